"""After how many steps exogenous Block MDPs are recovered, by the test of the STEEL paper.

    python -m benchmarks.exogenous                       # all problems, 20 seeds
    python -m benchmarks.exogenous --only multi_maze --seeds 5

A fit is continued in pieces, each a fifth longer, until the decoder and the transitions are right
up to a permutation of the states, and the policy has 99 % of the optimal value. Locks have too many
actions for an agent that is paid to try them all, so they are judged by value alone.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import blockmdp as bm
from blockmdp.oracles import ControlledMixture

SAMPLES = 10  # fresh observations of each state at each level


class Setting(NamedTuple):
    """A problem, the agent, and the episodes of its first piece and of all."""

    problem: Callable[[int], bm.BlockMDP]
    agent: Callable[[], Any]
    first: int
    most: int
    whole_model: bool = True


def maze(distractors: int) -> Setting:
    """The multi-maze, whose dynamics do not depend on the level."""

    def agent() -> Any:
        return bm.OnlineURL(ControlledMixture(), bm.PSRL(stationary=True), pool_levels=True)

    return Setting(lambda seed: bm.multi_maze(distractors, seed=seed), agent, 500, 10_000)


def chain(states: int) -> Setting:
    """STEEL's chain."""
    agent = lambda: bm.OnlineURL(ControlledMixture())  # noqa: E731
    return Setting(lambda seed: bm.noisy_chain(states, seed=seed), agent, 200, 11_000)


def lock(make: Any, horizon: int, most: int) -> Setting:
    """A lock whose observations are not bits: there, `ControlledMixture` is the default oracle."""
    first = 10 * horizon
    problem = lambda seed: make(horizon, seed=seed)  # noqa: E731
    return Setting(problem, bm.OnlineURL, first, most, whole_model=False)


SETTINGS = {
    "multi_maze, 8 distractors": maze(8),
    "multi_maze, 2 distractors": maze(2),
    "multi_maze, alone": maze(0),
    **{f"noisy_chain, K = {K}": chain(K) for K in (20, 30, 40)},
    **{f"bidirectional_lock, H = {H}": lock(bm.bidirectional_lock, H, 8_000) for H in (6, 11, 16)},
    **{f"tasid_lock, H = {H}": lock(bm.tasid_lock, H, 4_000) for H in (5, 10, 20, 40)},
    "bidirectional_lock, H = 50": lock(bm.bidirectional_lock, 50, 8_000),
}


def run(setting: Setting, seed: int) -> tuple[bool, int, int]:
    """Fit until all is right. Return whether it is, and the episodes and steps until then."""
    m = setting.problem(seed)
    agent = setting.agent()
    episodes, done = setting.first, 0
    while True:
        agent = agent.fit_more(episodes - done) if done else agent.fit(m, episodes, seed=seed)
        done = episodes
        enough = 0.99 * m.optimal_value()
        is_right = agent.value(2) >= enough and agent.value(SAMPLES) >= enough  # 2 are fast
        if is_right and setting.whole_model:
            is_right = agent.recovers(samples=SAMPLES)
        if is_right or done >= setting.most:
            return is_right, done, done * m.horizon
        episodes = min(done + max(done // 5, 1), setting.most)


def main() -> None:
    """Run all settings and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="part of the name of a setting")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of single labels, while the agent acts at random
    print("| problem | right | episodes, median | steps: median | most | seconds a run |")
    print("|---|---|---|---|---|---|")
    for name, setting in SETTINGS.items():
        if arguments.only in name:
            start = time.perf_counter()
            runs = [run(setting, seed) for seed in range(arguments.seeds)]
            right, episodes, steps = (np.array(each) for each in zip(*runs))
            seconds = (time.perf_counter() - start) / len(runs)
            print(
                f"| {name} | {right.sum()} of {len(runs)} | {np.median(episodes):,.0f} "
                f"| {np.median(steps):,.0f} | {steps.max():,} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
