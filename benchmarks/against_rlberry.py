"""Compare UCBVI with that of rlberry, on the same chain: its regret, and its speed.

rlberry needs another version of Gymnasium, so it runs in an environment of its own:

    python -m venv /tmp/rlberry
    /tmp/rlberry/bin/pip install rlberry==0.7.3 rlberry-scool==0.7.3
    python -m benchmarks.against_rlberry /tmp/rlberry/bin/python

Both plan after each episode with a model for each level and the bonus c / sqrt(n). Four details of
rlberry's agent are changed to be the same: its bonus has another term, the value of an untried
action depends on the level, only the values of states are clipped, and it breaks ties by the number
of the action. The regret is that of the returns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

EPISODES = 500
HORIZON = 10
STATES = 5
BONUS = 0.1
SEEDS = 300


def theirs(path: str) -> dict[str, list[float]]:
    """Run rlberry's UCBVI on the chain in a file. This runs in rlberry's environment."""
    from rlberry.envs.interface import Model
    from rlberry.spaces import Discrete
    from rlberry_scool.agents import UCBVIAgent

    chain = np.load(path)
    P, R = chain["P"], chain["R"]  # (S, A, S)
    cumulative = P.cumsum(axis=2)

    class Chain(Model):
        name = "chain"
        reward_range = (0.0, 1.0 / HORIZON)
        observation_space = Discrete(P.shape[0])
        action_space = Discrete(P.shape[1])

        def __init__(self, seed: int = 0) -> None:
            self.random = np.random.default_rng(seed)
            self.s = 0

        def reset(self, seed: Any = None, options: Any = None) -> tuple[int, dict[str, Any]]:
            self.s = 0
            return self.s, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            s = self.s
            self.s = int(np.searchsorted(cumulative[s, action], self.random.random(), "right"))
            return self.s, float(R[s, action, self.s]), False, False, {}

    class Agent(UCBVIAgent):
        def _compute_bonus(self, n: int, hh: int) -> float:
            return min(self.bonus_scale_factor / np.sqrt(n), self.v_max[0])

        def reset(self, **options: Any) -> None:
            super().reset(**options)
            self.B_sa[:] = self.v_max[0]
            self.returns: list[float] = []

        def _get_action(self, state: int, hh: int = 0) -> int:
            best = np.flatnonzero(self.Q[hh, state] == self.Q[hh, state].max())
            return int(best[self.env.unwrapped.random.integers(len(best))])

        def _run_episode(self) -> float:
            self.returns.append(super()._run_episode())
            np.minimum(self.Q, self.v_max[0], out=self.Q)
            return self.returns[-1]

    returns, seconds = [], []
    for seed in range(-1, SEEDS):  # the first one compiles
        agent = Agent(
            Chain(seed + 1),
            gamma=1.0,
            horizon=HORIZON,
            bonus_scale_factor=BONUS,
            stage_dependent=True,
        )
        start = time.process_time()
        agent.fit(EPISODES)
        if seed >= 0:
            seconds.append(time.process_time() - start)
            returns.append(float(np.sum(agent.returns)))
    return {"returns": returns, "seconds": seconds}


def ours(chain: Any) -> dict[str, list[float]]:
    """Run our UCBVI."""
    import blockmdp as bm

    learner = bm.UCBVI(bonus=BONUS, v_max=1.0)
    returns, seconds = [], []
    for seed in range(-1, SEEDS):
        start = time.process_time()
        agent = bm.Tabular(learner, on="latent").fit(chain, EPISODES, seed=seed + 1)
        if seed >= 0:
            seconds.append(time.process_time() - start)
            returns.append(float(agent.returns_.sum()))
    return {"returns": returns, "seconds": seconds}


def main() -> None:
    """Run both, and print how their regrets and times compare."""
    import tempfile

    from scipy.stats import ks_2samp

    import blockmdp as bm

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("python", help="the Python of an environment with rlberry")
    python = parser.parse_args().python
    chain = bm.river_swim(n_states=STATES, horizon=HORIZON)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.npz"
        np.savez(path, P=chain.transitions[0], R=chain.rewards[0])
        command = [python, __file__, "--theirs", str(path)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    other = json.loads(done.stdout.splitlines()[-1])
    own = ours(chain)
    best = EPISODES * chain.optimal_value()
    for name, runs in (("rlberry", other), ("blockmdp", own)):
        regret = best - np.array(runs["returns"])
        print(
            f"{name}: regret {regret.mean():.2f}, standard deviation {regret.std():.2f}, "
            f"{1e6 * np.mean(runs['seconds']) / EPISODES:.1f} microseconds per episode"
        )
    p = ks_2samp(own["returns"], other["returns"]).pvalue
    print(f"Kolmogorov-Smirnov: p = {p:.2f} for the same distribution, {SEEDS} runs each")
    print(f"speed: {np.mean(other['seconds']) / np.mean(own['seconds']):.0f}x")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--theirs"]:
        print(json.dumps(theirs(sys.argv[2])))
    else:
        main()
