"""After how many steps exogenous Block MDPs are recovered, by the test of the STEEL paper.

    python -m benchmarks.exogenous                       # all problems, 20 seeds
    python -m benchmarks.exogenous --only multi_maze --seeds 5
    python -m benchmarks.exogenous --no-loss             # ControlledMixture against the default

A fit is continued in pieces, each a fifth longer, until the decoder and the transitions are right
up to a permutation of the states, and the policy has 99 % of the optimal value. Locks have too many
actions for an agent that is paid to try them all, so they are judged by value alone.

With `--no-loss`, nothing moves on its own. Both oracles are compared by the trajectories until the
mean of the last 100 returns exceeds 0.8 of the optimal value.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import blockmdp as bm
from blockmdp.oracles import ControlledMixture

WINDOW, SHARE = 100, 0.8  # solved: the mean of so many returns exceeds this share of the optimum
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


LOCKS = {
    "lock_bernoulli": bm.lock_bernoulli,
    "lock_gaussian, sigma = 0.1": partial(bm.lock_gaussian, sigma=0.1),
    "lock_gaussian, sigma = 0.2": partial(bm.lock_gaussian, sigma=0.2),
}
PLAIN = {  # nothing moves on its own: problem, and episodes
    **{
        f"comblock, H = {H}": (partial(bm.comblock, H), n)
        for H, n in ((5, 400), (10, 500), (20, 700), (25, 850))
    },
    **{
        f"{name}, H = {H}": (partial(make, H), n)
        for name, make in LOCKS.items()
        for H, n in ((5, 500), (10, 600), (20, 900))
    },
}


def solved_at(m: bm.BlockMDP, oracle: Any, episodes: int, seed: int) -> tuple[float, Any]:
    """Return the trajectories until solved, infinite if it is not, and all returns."""
    returns = bm.OnlineURL(oracle).fit(m, episodes, seed=seed).returns_
    means = np.convolve(returns, np.ones(WINDOW) / WINDOW, mode="valid")
    good = np.flatnonzero(means > SHARE * m.optimal_value())
    return (float(good[0] + WINDOW) if len(good) else np.inf), returns


def no_loss(only: str, seeds: range) -> None:
    """Compare both oracles where nothing moves on its own."""
    print("| problem | default: solved | median | ControlledMixture: solved | median | same runs |")
    print("|---|---|---|---|---|---|")
    for name, (problem, episodes) in PLAIN.items():
        if only not in name:
            continue
        one, other = (
            [solved_at(problem(seed=seed), oracle, episodes, seed) for seed in seeds]
            for oracle in (None, ControlledMixture())
        )
        cells = [name]
        for runs in (one, other):
            at = [n for n, _ in runs]
            cells += [f"{np.isfinite(at).sum()} of {len(at)}", f"{np.median(at):,.0f}"]
        same = sum(np.array_equal(a, b) for (_, a), (_, b) in zip(one, other))
        print("|", " | ".join([*cells, f"{same} of {len(one)}"]), "|", flush=True)


def main() -> None:
    """Run all settings and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="part of the name of a setting")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--no-loss", action="store_true", help="where nothing moves on its own")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of single labels, while the agent acts at random
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.no_loss:
        no_loss(arguments.only, seeds)
        return
    print("| problem | right | episodes, median | steps: median | most | seconds a run |")
    print("|---|---|---|---|---|---|")
    for name, setting in SETTINGS.items():
        if arguments.only in name:
            start = time.perf_counter()
            runs = [run(setting, seed) for seed in seeds]
            right, episodes, steps = (np.array(each) for each in zip(*runs))
            seconds = (time.perf_counter() - start) / len(runs)
            print(
                f"| {name} | {right.sum()} of {len(runs)} | {np.median(episodes):,.0f} "
                f"| {np.median(steps):,.0f} | {steps.max():,} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
