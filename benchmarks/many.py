"""Measure how much faster `fit_many` is on all cores than on one.

    python -m benchmarks.many

Both run alternately, three times. Do not run anything else at the same time.
"""

from __future__ import annotations

import os
import time

import blockmdp as bm

N = 8
CASES = [
    ("OracleQ-lat", bm.Tabular(bm.OracleQ()), bm.lock_bernoulli, 1_000_000),
    ("UCBVI-lat", bm.Tabular(bm.UCBVI()), bm.lock_bernoulli, 200_000),
    ("URL", bm.URL(), bm.lock_gaussian, 20_000),
    ("OnlineURL", bm.OnlineURL(), bm.lock_gaussian, 1_000),
]


def seconds(agent: bm.Agent, problems: list[bm.BlockMDP], episodes: int, cores: set[int]) -> float:
    """Return how long the fits take on some cores; the threads inherit them."""
    os.sched_setaffinity(0, cores)
    start = time.perf_counter()
    bm.fit_many(agent, problems, episodes, range(N), engine="compiled")
    return time.perf_counter() - start


def main() -> None:
    """Print the ratios."""
    cores = os.sched_getaffinity(0)
    for name, agent, make, episodes in CASES:
        problems = [make(horizon=20, switch=0.2, seed=seed) for seed in range(N)]
        seconds(agent, problems, 100, cores)  # compile
        ratios = []
        for _ in range(3):
            alone = seconds(agent, problems, episodes, {min(cores)})
            ratios.append(alone / seconds(agent, problems, episodes, cores))
        print(f"{name}: {len(cores)} cores are {sorted(round(r, 2) for r in ratios)} times faster")


if __name__ == "__main__":
    main()
