"""Measure how much faster `fit_many` is on all cores than on one.

    python -m benchmarks.many

Both run alternately, on each core in turn, because a core's speed may change from one second to the
next. There are many short fits, so that one that ends last does not count much. Do not run anything
else at the same time.
"""

from __future__ import annotations

import os
import statistics
import time

import blockmdp as bm

N, ROUNDS = 16, 7
CASES = [
    ("OracleQ-lat", bm.Tabular(bm.OracleQ()), bm.lock_bernoulli, 250_000),
    ("UCBVI-lat", bm.Tabular(bm.UCBVI()), bm.lock_bernoulli, 50_000),
    ("URL", bm.URL(), bm.lock_gaussian, 5_000),
    ("OnlineURL", bm.OnlineURL(), bm.lock_gaussian, 200),
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
        for _ in range(ROUNDS):
            alone = statistics.mean(seconds(agent, problems, episodes, {core}) for core in cores)
            ratios.append(alone / seconds(agent, problems, episodes, cores))
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        print(f"{name}: {len(cores)} cores are {middle:.2f} times as fast ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
