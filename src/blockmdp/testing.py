"""Checks that tell whether a part you bring is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from blockmdp import rng, streams
from blockmdp.agents.tabular import Tabular
from blockmdp.checks import check_integer
from blockmdp.emissions import Emission
from blockmdp.envs.locks import lock_bernoulli
from blockmdp.jit import interpreted
from blockmdp.learners.base import Learner
from blockmdp.mdp import BlockMDP
from blockmdp.oracles import FittedOracle, check_is_oracle, fit_oracle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["OracleCheck", "check_learner", "check_oracle"]


def check_learner(learner: Learner) -> None:
    """Raise an AssertionError that says what is wrong with a learner; return if nothing is.

    The learner is run on a small lock, from compiled loops if it is compiled, interpreted and
    stepwise. It must keep to the protocol of `blockmdp.Learner`: tables of the right shapes,
    actions in range, randomness from its key alone, changes to its tables only, room for more
    labels without forgetting, the same result in every engine.

    Examples
    --------
    >>> from blockmdp import OracleQ
    >>> check_learner(OracleQ())
    """
    name = type(learner).__name__
    assert isinstance(learner, Learner), f"{name} must subclass blockmdp.Learner"
    H, S, A, episodes = 3, 3, 4, 200
    tables = learner.tables(H, S, A, episodes)
    assert isinstance(tables, tuple), (
        f"{name}.tables must return a tuple (best a NamedTuple) of arrays and numbers, got "
        f"{type(tables).__name__}"
    )
    again = learner.tables(H, S, A, episodes)
    for i, (one, two) in enumerate(zip(tables, again)):
        field = _field(tables, i)
        assert isinstance(one, np.ndarray | int | float | np.generic), (
            f"{name}: table {field} is a {type(one).__name__}; numba takes arrays and numbers"
        )
        if isinstance(one, np.ndarray):
            assert not np.shares_memory(one, two), (
                f"{name}: table {field} is shared between two calls of tables(): make it anew "
                "each time"
            )

    key = np.uint64(12345)
    before = _copy(tables)
    actions = {int(learner.act(tables, 0, 0, 0, key)) for _ in range(5)}
    assert len(actions) == 1, (
        f"{name}.act gives different actions for one key: draw from the key alone"
    )
    for k, h, s in np.ndindex(2, H, S):
        a = learner.act(tables, k, h, s, np.uint64(k * 100 + h * 10 + s))
        assert a in range(A), f"{name}.act gave {a!r}; actions are 0, ..., {A - 1}"
    _same(before, tables, f"{name}.act changed table {{}}: only update and plan may")
    learner.update(tables, 0, 0, 1, 1.0, 2)
    learner.update(tables, H - 1, 1, 0, 0.0, 0)
    learner.update(tables, 0, 2, 3, 0.5, -1)  # an episode that ended early
    learner.plan(tables, 0, key)

    grown = learner.grow(tables, H, 2 * S, A, episodes)
    for i, (old, new) in enumerate(zip(tables, grown)):
        if isinstance(old, np.ndarray):
            part = new[tuple(slice(n) for n in old.shape)]
            assert np.array_equal(part, old), (
                f"{name}.grow lost entries of table {_field(tables, i)}"
            )
    for s in range(2 * S):
        a = learner.act(grown, 0, 0, s, key)
        assert 0 <= a < A, f"{name}.act gave {a!r} for a label that came with grow"

    pi = learner.policy(tables)
    assert pi.shape == (H, S, A), (
        f"{name}.policy must have the shape (H, S, A) = {(H, S, A)}, got {pi.shape}"
    )
    off = (pi < 0).any(axis=2) | ~np.isclose(pi.sum(axis=2), 1)
    assert not off.any(), f"{name}.policy must be probabilities of the actions, got {pi[off][0]}"

    problem = lock_bernoulli(horizon=H, switch=0.2, seed=1)
    for on in ("latent", "observation"):
        # interpreted and watched first: compiled code would read past the tables
        Tabular(_watched(learner, A), on).fit(problem, episodes, seed=3, engine="interpreted")
        runs = {
            engine: Tabular(learner, on).fit(problem, episodes, seed=3, engine=engine)
            for engine in ("interpreted", "stepwise", "compiled")
        }
        first = runs["compiled"]
        for engine, other in runs.items():
            assert np.array_equal(first.returns_, other.returns_), (
                f"{name} on={on!r}: the returns of the {engine} and the compiled engine differ"
            )
        repeat = Tabular(learner, on).fit(problem, episodes, seed=3)
        assert np.array_equal(first.returns_, repeat.returns_), (
            f"{name} on={on!r}: the same seed gave other returns; is there randomness beside the "
            "key?"
        )


def _watched(learner: Learner, A: int) -> Learner:
    """The learner, with an eye on each of its actions."""
    act = interpreted(learner.act)

    def watched(tables: Any, k: int, h: int, s: int, key: np.uint64) -> int:
        a: int = act(tables, k, h, s, key)
        assert a in range(A), (
            f"{type(learner).__name__}.act gave {a!r} in episode {k}; actions are 0, ..., {A - 1}"
        )
        return a

    copy_of_it = copy(learner)
    object.__setattr__(copy_of_it, "act", watched)
    return copy_of_it


def _field(tables: Any, i: int) -> str:
    names = getattr(tables, "_fields", None)
    return repr(names[i]) if names else str(i)


def _copy(tables: Any) -> list[Any]:
    return [t.copy() if isinstance(t, np.ndarray) else t for t in tables]


def _same(before: Any, after: Any, message: str) -> None:
    for i, (one, two) in enumerate(zip(before, after)):
        assert np.array_equal(one, two), message.format(_field(after, i))


# --- oracles --------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class OracleCheck:
    """An oracle's error against the number of observations it learns from: see `check_oracle`.

    Attributes
    ----------
    sizes : (m,) the numbers n of observations, growing.
    errors : (m, seeds) the share of fresh observations that were labelled wrongly.
    delta : the share of seeds that may do worse than `g` says.
    notes : what was out of the ordinary in the fitting, with n and the number of seeds.
    resolution : the smallest error other than 0 that could have been seen.
    """

    sizes: NDArray[np.int64]
    errors: NDArray[np.float64]
    delta: float
    notes: tuple[str, ...] = ()
    resolution: float = 0.0

    @property
    def g(self) -> NDArray[np.float64]:
        """g(n, delta) for each of the sizes, (m,): 1 - delta of the seeds have no larger error."""
        return self._quantile(self.delta)

    def g_inverse(self, epsilon: float, delta: float | None = None) -> int:
        """g^{-1}(epsilon, delta): the smallest n tried from which on g stays below epsilon.

        What `URL.theory(..., g_inverse=check.g_inverse)` asks for. It is an estimate, no bound: an
        error of 0 says that none was seen, and a delta below 1 / seeds gets the worst of the seeds.

        Parameters
        ----------
        epsilon : in (0, 1].
        delta : in (0, 1); by default that of the check.
        """
        delta = _fraction("delta", self.delta if delta is None else delta)
        if not epsilon > 0:
            raise ValueError(f"epsilon must be larger than 0, got {epsilon!r}")
        g = self._quantile(delta)
        enough = np.minimum.accumulate((g < epsilon)[::-1])[::-1]
        if not enough.any():
            best = int(g.argmin())
            raise ValueError(
                f"g(n, {delta:g}) is not below {epsilon:g} at the largest n tried: "
                f"{g[-1]:.3g} at {self.sizes[-1]}; the smallest reached is {g[best]:.3g}, at "
                f"{self.sizes[best]}. Try larger sizes, or another oracle"
            )
        return int(self.sizes[enough.argmax()])

    def plot(self) -> Figure:
        """The errors against n, on logarithmic axes; those of 0 lie on a line below the others."""
        from matplotlib.figure import Figure  # here, since matplotlib is slow to import

        from blockmdp.plots.style import BLUE, GREY, ORANGE, style

        seen = self.errors[self.errors > 0]
        floor = 0.5 * min(seen.min(initial=1.0), self.resolution or 1.0)
        points, median, g = (
            np.where(y > 0, y, floor) for y in (self.errors, np.median(self.errors, axis=1), self.g)
        )
        with style():
            figure = Figure((4.6, 3.4), layout="constrained")
            ax = figure.add_subplot()
            spread = 1.2 ** np.linspace(-1, 1, points.shape[1] + 2)[1:-1]  # tells the seeds apart
            ax.plot(
                (self.sizes[:, None] * spread).ravel(),
                points.ravel(),
                ".",
                color=GREY,
                alpha=0.4,
                ms=7,
                mew=0,
                label=f"each of {points.shape[1]} seeds",
            )
            ax.plot(self.sizes, median, "-o", color=BLUE, ms=4, label="median")
            ax.plot(self.sizes, g, "-s", color=ORANGE, ms=4, label=f"g(n, {self.delta:g})")
            ax.set_xscale("log")
            ax.set_yscale("log")
            if len(self.sizes) <= 8:
                ax.set_xticks(self.sizes, [f"{n:,}" for n in self.sizes])
                ax.set_xticks([], minor=True)
            ax.set_ylim(top=1.2)
            if (self.errors == 0).any():
                ax.axhline(floor, color=GREY, lw=0.8, zorder=1)
                ax.annotate(
                    "none seen",
                    (1, floor),
                    (-2, 3),
                    ax.get_yaxis_transform(),
                    textcoords="offset points",
                    ha="right",
                    color=GREY,
                    fontsize=8,
                )
            ax.set_xlabel("observations n")
            ax.set_ylabel("share labelled wrongly")
            ax.tick_params(which="both", labelsize=8, width=0.6)
            figure.legend(loc="outside upper left", ncols=3)
        return figure

    def _quantile(self, delta: float) -> NDArray[np.float64]:
        q = np.quantile(self.errors, 1 - delta, axis=1, method="inverted_cdf")
        return np.asarray(q, np.float64)


def check_oracle(
    oracle: Any,
    problem: BlockMDP | Emission,
    *,
    sizes: Sequence[int] = (30, 100, 300, 1000, 3000),
    seeds: int = 20,
    delta: float = 0.1,
    level: int = 0,
    weights: ArrayLike | None = None,
    samples: int = 1000,
) -> OracleCheck:
    """Estimate g(n, delta), an oracle's error against sample size (Feng et al. 2020, Definition 1).

    For each n and seed the oracle learns from n observations of latent states drawn from mu, and
    labels fresh ones. Its error is 1 - P(f(x) = alpha(s)) with s from mu and the best permutation
    alpha. An oracle that gives more labels than there are states has no permutation: then each
    label is read as the state that it is mostly given to, which `notes` says.

    Parameters
    ----------
    oracle : any scikit-learn clusterer or mixture.
    problem : a BlockMDP, or an emission alone.
    sizes : the numbers n of observations to learn from; those of one seed contain each other.
    seeds : repetitions, with the seeds 0, ..., seeds - 1; the same call gives the same result.
    delta : see `OracleCheck`.
    level : whose emission it is (from 0).
    weights : mu, (S,) probabilities of the latent states; uniform by default.
    samples : fresh observations of each state that the error is measured on.

    Examples
    --------
    >>> from blockmdp import OneHotGaussian, oracles
    >>> check = check_oracle(oracles.pca_kmeans(3), OneHotGaussian(3, 2, sigma=0.1), seeds=5)
    >>> check.errors.shape
    (5, 5)
    >>> check.g_inverse(0.05)
    30
    """
    check_is_oracle(oracle)
    emission = problem.emission if isinstance(problem, BlockMDP) else problem
    if not isinstance(emission, Emission):
        raise TypeError(f"problem must be a BlockMDP or an Emission, got {problem!r}")
    ns = _sizes(sizes)
    check_integer("seeds", seeds, 1)
    check_integer("samples", samples, 1)
    _fraction("delta", delta)
    levels = problem.horizon + 1 if isinstance(problem, BlockMDP) else emission.n_levels
    check_integer("level", level, 0)
    if levels is not None and level >= levels:
        raise ValueError(f"level must be from 0 to {levels - 1}, got {level!r}")
    mu = _distribution(weights, emission.n_states)

    errors = np.empty((len(ns), seeds))
    notes: Counter[tuple[int, str]] = Counter()
    for seed in range(seeds):
        x = _training(emission, level, mu, int(ns[-1]), seed)
        fresh = [_fresh(emission, level, s, samples, seed) for s in range(len(mu))]
        for i, n in enumerate(ns):
            key = rng.key(streams.estimator(seed), n)
            f = fit_oracle(oracle, x[:n], key)
            errors[i, seed], extra = _error(f, fresh, mu)
            notes.update((int(n), note) for note in (*f.notes, *extra))
    said = tuple(
        f"n = {n}, {count} of {seeds} seeds: {note}"
        for (n, note), count in sorted(notes.items(), key=lambda item: item[0][0])
    )
    resolution = float(mu[mu > 0].min()) / samples
    return OracleCheck(ns, errors, float(delta), said, resolution)


def _training(
    emission: Emission, level: int, mu: NDArray[np.float64], n: int, seed: int
) -> NDArray[Any]:
    """n observations from sum_s q(. | s) mu(s), (n, dim); the first of them do not depend on n."""
    u = rng.uniforms(rng.children(streams.world(seed), 0, n), 1)[:, 0]
    within = np.searchsorted(np.cumsum(mu), u, side="right")
    states = np.minimum(within, np.flatnonzero(mu)[-1])  # the sum of mu may be a bit less than 1
    keys = np.empty(n, np.uint64)
    for s in range(len(mu)):
        visits = int((states == s).sum())
        keys[states == s] = rng.children(streams.noise(seed, level, s), 0, visits)
    return emission.sample(level, states, keys)


def _fresh(emission: Emission, level: int, state: int, n: int, seed: int) -> NDArray[Any]:
    keys = rng.children(streams.sampling(seed, level, state), 0, n)
    return emission.sample(level, np.full(n, state), keys)


def _error(
    f: FittedOracle, fresh: Sequence[NDArray[Any]], mu: NDArray[np.float64]
) -> tuple[float, list[str]]:
    """1 - P(f(x) = alpha(s)) for the best alpha, and what there is to say about it."""
    P = np.zeros((len(mu), f.n_labels))  # P(s, f(x))
    for s, x in enumerate(fresh):
        labels = f.predict(x.reshape(len(x), -1))
        P[s] = mu[s] * np.bincount(labels, minlength=f.n_labels) / len(labels)
    P = P[:, P.any(axis=0)]
    S, L = P.shape
    if S < L:
        right = P.argmax(axis=0), np.arange(L)
        said = [f"more labels than the {S} states: each read as the state it is mostly given to"]
    else:
        right, said = linear_sum_assignment(-P), []
    P[right] = 0
    return float(P.sum()), said


def _sizes(sizes: Sequence[int]) -> NDArray[np.int64]:
    for n in sizes:
        check_integer("sizes", n, 1)
    if len(sizes) == 0 or any(a >= b for a, b in pairwise(sizes)):
        raise ValueError(f"sizes must be one or more numbers, growing; got {sizes!r}")
    return np.array(sizes, np.int64)


def _distribution(weights: ArrayLike | None, S: int) -> NDArray[np.float64]:
    mu = np.full(S, 1 / S) if weights is None else np.asarray(weights, np.float64)
    if mu.shape != (S,) or not (mu >= 0).all() or abs(mu.sum() - 1) > 1e-8:
        raise ValueError(f"weights must be the probabilities of {S} states, got {weights!r}")
    return mu


def _fraction(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value!r}")
    return value
