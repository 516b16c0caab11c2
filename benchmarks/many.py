"""Measure how much faster `fit_many` is on all cores than on one.

    python -m benchmarks.many

A core of a virtual machine is not always equally fast. So short measurements on each core and on
all of them take turns, and the median over the turns counts. There are many fits in each, so that
the one that ends last does not count much. Do not run anything else at the same time.
"""

from __future__ import annotations

import os
import time

import numpy as np
from sklearn.cluster import KMeans

import blockmdp as bm

N = 64  # fits, as a study has
TURNS = 5
K_MEANS = bm.URL(KMeans(3, n_init=10), bm.OracleQ(), batch=100, iterations=1)
CASES = [
    ("OracleQ-lat", bm.Tabular(bm.OracleQ()), bm.lock_bernoulli, 10, 100_000),
    ("UCBVI-lat", bm.Tabular(bm.UCBVI()), bm.lock_bernoulli, 10, 20_000),
    ("URL", bm.URL(), bm.lock_gaussian, 20, 1_000),
    ("URL with k-means", K_MEANS, bm.lock_gaussian, 20, 20_000),
    ("OnlineURL", bm.OnlineURL(), bm.lock_gaussian, 10, 400),
]


def seconds(agent: bm.Agent, problems: list[bm.BlockMDP], episodes: int, cores: set[int]) -> float:
    """Return how long the fits take on some cores; threads and processes inherit them."""
    os.sched_setaffinity(0, cores)
    start = time.perf_counter()
    bm.fit_many(agent, problems, episodes, range(N), engine="compiled")
    return time.perf_counter() - start


def main() -> None:
    """Print the ratios."""
    cores = os.sched_getaffinity(0)
    for name, agent, make, horizon, episodes in CASES:
        problems = [make(horizon, switch=0.2, seed=seed) for seed in range(N)]
        seconds(agent, problems, episodes, cores)  # compile
        alone, together = [], []
        for _ in range(TURNS):
            each = [seconds(agent, problems, episodes, {core}) for core in cores]
            alone.append(sum(each) / len(each))
            together.append(seconds(agent, problems, episodes, cores))
        low, median, high = np.quantile(np.divide(alone, together), [0.25, 0.5, 0.75])
        print(
            f"{name}: {median:.2f} times as fast on {len(cores)} cores as on one "
            f"(quartiles {low:.2f} and {high:.2f} of {TURNS} turns)",
            flush=True,
        )


if __name__ == "__main__":
    main()
