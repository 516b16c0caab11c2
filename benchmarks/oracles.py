"""How many trajectories each oracle needs to tell the states of a lock apart, for each emission.

    python -m benchmarks.oracles                     # the table, on one core
    python -m benchmarks.oracles --seeds 100 106     # on other locks
    python -m benchmarks.oracles --plot g.png        # g(n, delta) of each oracle on its emission

The lock has the dynamics of the paper at H = 10. An oracle learns once, from uniformly random
trajectories with all levels pooled. It has learnt enough if at most one of the seeds has an
accuracy below 98 % (all states count equally, each label is read as the state that it is mostly
given to).
Oracles that must be told the number of labels get five for the three states.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import blockmdp as bm
from blockmdp import oracles, rng, streams
from blockmdp.envs.locks import make_lock

H, S, K = 10, 3, 5
SIZES = (10, 30, 100, 300)
ENOUGH = 0.98
DASH = "–"  # noqa: RUF001


def uniforms(seed: int, *shape: int) -> Any:
    """Return random numbers that depend on the seed of the lock alone."""
    key = np.array([rng.key(streams.problem(seed), 9)])
    return rng.uniforms(key, int(np.prod(shape)))[0].reshape(shape)


def categories(seed: int) -> bm.Categories:
    p = -np.log(1.0 - uniforms(seed, S, 20, 4))
    return bm.Categories(p / p.sum(axis=2, keepdims=True))


def subspaces(seed: int) -> bm.Subspaces:
    key = rng.children(rng.key(streams.problem(seed), 9), 0, S)
    return bm.Subspaces(rng.normals(key, 60).reshape(S, 3, 20), sigma=0.1)


EMISSIONS: dict[str, Callable[[int], bm.Emission]] = {
    "LockBernoulli": lambda seed: bm.OneHotBernoulli(S, H),
    "LockGaussian 0.1": lambda seed: bm.OneHotGaussian(S, H, 0.1),
    "LockGaussian 0.2": lambda seed: bm.OneHotGaussian(S, H, 0.2),
    "Bits": lambda seed: bm.Bits(0.05 + 0.9 * uniforms(seed, S, 60)),
    "Categories": categories,
    "Counts": lambda seed: bm.Counts(8.0 * uniforms(seed, S, 20)),
    "Subspaces": subspaces,
    "Digits": lambda seed: bm.lock_digits(1, seed=seed).emission,
}
ORACLES = {
    "pca_kmeans": oracles.pca_kmeans(K),
    "pca_dbscan_svm": oracles.pca_dbscan_svm(),
    "gmm": oracles.gmm(K),
    "SphericalMixture": oracles.SphericalMixture(K),
    "BernoulliMixture": oracles.BernoulliMixture(K),
    "IndependenceMixture": oracles.IndependenceMixture(),
    "CategoricalMixture": oracles.CategoricalMixture(K),
    "PoissonMixture": oracles.PoissonMixture(K),
    "SubspaceClustering": oracles.SubspaceClustering(K),
    "AutoencoderSimHash": oracles.AutoencoderSimHash(),
    "AutoOracle": oracles.AutoOracle(),
}
MADE_FOR = {
    "IndependenceMixture": "Bits",
    "CategoricalMixture": "Categories",
    "PoissonMixture": "Counts",
    "SubspaceClustering": "Subspaces",
    "AutoencoderSimHash": "Digits",
    "AutoOracle": "LockGaussian 0.2",
}


def fitted(oracle: Any, emission: str, n: int, seed: int) -> tuple[float, Any]:
    """Return the accuracy of an oracle that learnt from n trajectories, and its decoder."""
    m = make_lock(emission, H, 0.2, seed, EMISSIONS[emission](seed))
    agent = bm.URL(oracle, batch=n, iterations=1, test_batch=0, pool_levels=True)
    agent.fit(m, episodes=1, seed=seed)
    labels = np.stack([agent.decode(m.sample(1, s, n=1000, seed=seed), 1) for s in range(S)])
    C = np.stack([np.bincount(row, minlength=labels.max() + 1) / 1000 for row in labels])
    return float(bm.measures.accuracy(C[None])[0]), agent.decoder_


def fits(name: str, emission: str) -> bool:
    """Whether a mixture is defined for the numbers of an emission."""
    x = EMISSIONS[emission](0)
    if name == "CategoricalMixture":
        return np.issubdtype(x.dtype, np.integer)
    return name != "PoissonMixture" or x.low >= 0


def needed(name: str, emission: str, seeds: range) -> str:
    """Return how many trajectories are enough, as text."""
    for n in SIZES:
        missed = 0
        for seed in seeds:
            missed += fitted(ORACLES[name], emission, n, seed)[0] < ENOUGH
            if missed > 1:
                break
        else:
            return str(n)
    return f"> {SIZES[-1]}"


def table(seeds: range, names: list[str]) -> None:
    """Print the trajectories that each oracle needs, as Markdown."""
    print(f"| oracle | {' | '.join(EMISSIONS)} |\n|{'---|' * (len(EMISSIONS) + 1)}")
    for name in names:
        start = time.perf_counter()
        cells = [needed(name, e, seeds) if fits(name, e) else DASH for e in EMISSIONS]
        seconds = time.perf_counter() - start
        print(f"| `{name}` | {' | '.join(cells)} |  {seconds:.0f} s", flush=True)


def choices(seeds: range, n: int = 100) -> None:
    """Print what AutoOracle chooses for each emission."""
    print(f"\nAutoOracle after {n} trajectories:\n\n| emission | choice | labels |\n|---|---|---|")
    for emission in EMISSIONS:
        kinds: Counter[str] = Counter()
        labels: Counter[int] = Counter()
        for seed in seeds:
            m = make_lock(emission, H, 0.2, seed, EMISSIONS[emission](seed))
            x = random_observations(m, n, seed)
            oracle = oracles.AutoOracle(random_state=0).fit(x)
            kinds[type(oracle.estimator_).__name__] += 1
            labels[oracle.n_labels_] += 1
        print(f"| {emission} | {counted(kinds)} | {counted(labels)} |", flush=True)


def random_observations(m: bm.BlockMDP, n: int, seed: int) -> Any:
    """Return the observations of n uniformly random trajectories."""
    pi = np.full((m.horizon, 1, m.n_actions), 1 / m.n_actions)
    policy = bm.Policy(pi, bm.decoders.constant_decoder())
    return bm.simulators.make_simulator(m, seed).rollout([policy], n, "oracle").observations.x


def counted(found: Counter[Any]) -> str:
    most = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{what} ({count})" if len(most) > 1 else str(what) for what, count in most)


def plot(path: str) -> None:
    """Draw g(n, delta) of each oracle on the emission that it is made for."""
    from matplotlib.figure import Figure

    with bm.plots.style():
        figure = Figure((5.6, 3.6), layout="constrained")
        ax = figure.add_subplot()
        for name, emission in MADE_FOR.items():
            check = bm.testing.check_oracle(
                ORACLES[name], EMISSIONS[emission](0), sizes=(30, 100, 300, 1000), seeds=6
            )
            print(name, emission, check.g)
            ax.plot(check.sizes, np.maximum(check.g, 5e-4), "-o", ms=4, label=f"{name}, {emission}")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("observations n")
        ax.set_ylabel("g(n, 0.1)")
        figure.legend(loc="outside right upper", fontsize=7)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 6), metavar=("FIRST", "END"))
    parser.add_argument("--only", nargs="*", default=list(ORACLES), help="names of oracles")
    parser.add_argument("--plot", metavar="FILE", help="draw g(n, delta) instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.plot:
        plot(options.plot)
        return
    table(range(*options.seeds), options.only)
    if "AutoOracle" in options.only:
        choices(range(*options.seeds))


if __name__ == "__main__":
    main()
