"""Measure learning on an NVIDIA GPU, in learning steps per second.

python -m benchmarks.cuda
"""

from __future__ import annotations

import time
from collections import Counter
from itertools import product

import numpy as np
from numba import cuda
from sklearn.cluster import KMeans

import blockmdp as bm
from blockmdp.simulators import BlockSimulator
from blockmdp.simulators import cuda as gpu

EPISODES = 20_000
SECONDS: Counter[str] = Counter()


class Timed:
    """A kernel whose time is measured."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, size):
        def launch(*arguments):
            cuda.synchronize()
            start = time.perf_counter()
            self.kernel[size](*arguments)
            cuda.synchronize()
            SECONDS["kernel"] += time.perf_counter() - start

        return launch


def learn(name, problems, decoders, seeds, twice=True):
    """Learn by OracleQ in all runs at once, and print how fast that is."""
    for attempt in range(1 + twice):  # the first time includes compiling
        requests = []
        for mdp, decoder, seed in zip(problems, decoders, seeds):
            simulator = BlockSimulator(mdp, seed)
            run = simulator.start(bm.OracleQ(), EPISODES)
            requests.append(gpu.Request(simulator, run, decoder, EPISODES if attempt else 1, False))
        SECONDS.clear()
        start = time.perf_counter()
        gpu.learn_many(requests)
        SECONDS["all"] = time.perf_counter() - start
    steps = sum(request.n * request.simulator.horizon for request in requests)
    mean = np.mean([request.run.returns[-1000:].mean() for request in requests])
    print(f"{name}: {len(requests):,} runs, {SECONDS['kernel']:.2f} s in kernels "
          f"({steps / SECONDS['kernel'] / 1e9:.1f} G steps/s), {SECONDS['all']:.1f} s with all "
          f"copies; mean return at the end {mean:.3f}", flush=True)  # fmt: skip


def main() -> None:
    """Measure runs on latent states, behind observations, and all panels of the paper."""
    print(cuda.get_current_device().name)
    make = gpu.kernel_of
    gpu.kernel_of = lambda *arguments: Timed(make(*arguments))
    seeds = range(33_750)
    latent = [bm.lock_bernoulli(horizon=20, switch=0.2, seed=seed) for seed in range(50)]
    learn("OracleQ-lat, H = 20", [latent[s % 50] for s in seeds], [None] * len(seeds), seeds)
    seen = [bm.lock_gaussian(horizon=20, sigma=0.1, switch=0.2, seed=seed) for seed in range(50)]
    url = bm.URL(KMeans(3, n_init=10), bm.OracleQ(), batch=3000)
    decoder = url.fit(seen[0], 10).decoder_
    learn("URL with k-means, H = 20", [seen[s % 50] for s in seeds], [decoder] * len(seeds), seeds)
    locks = [(bm.lock_bernoulli, {})] + [(bm.lock_gaussian, {"sigma": s}) for s in (0.1, 0.2)]
    problems, decoders = [], []
    for (lock, options), horizon in product(locks, (5, 10, 20)):
        url = bm.URL(learner=bm.OracleQ()).fit(lock(horizon=horizon, seed=0, **options), 10)
        for switch in (0.0, 0.2, 0.5):
            problems += [lock(horizon=horizon, switch=switch, seed=s, **options) for s in range(50)]
            decoders += [url.decoder_] * 50
    fifty = list(range(50)) * 27
    learn("27 panels, latent states", problems, [None] * len(problems), fifty)
    learn("27 panels, URL untuned", problems, decoders, fifty)


if __name__ == "__main__":
    main()
