"""Checks for your own learners and oracles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from blockmdp import rng, streams
from blockmdp.agents.tabular import Tabular
from blockmdp.checks import check_integer, check_number
from blockmdp.emissions import Emission
from blockmdp.envs.locks import lock_bernoulli, lock_gaussian
from blockmdp.jit import interpreted
from blockmdp.learners.base import Learner
from blockmdp.mdp import BlockMDP
from blockmdp.oracles import FittedOracle, check_is_oracle, fit_oracle
from blockmdp.oracles.scores import to_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["OracleCheck", "check_incremental_oracle", "check_learner", "check_oracle"]


def check_learner(learner: Learner) -> None:
    """Check that a learner follows the protocol of `blockmdp.Learner`.

    The learner runs on a small lock in every engine. Its tables must have the right shapes, its
    actions must be in range, all its randomness must come from the key, only `update` and `plan`
    may change the tables, `grow` must keep what was learnt, and every engine must give the same
    result.

    Parameters
    ----------
    learner : Learner
        The learner to check.

    Raises
    ------
    AssertionError
        If something is wrong; the message says what.

    See Also
    --------
    blockmdp.Learner : The base class of learners.

    Examples
    --------
    >>> import blockmdp as bm
    >>> bm.testing.check_learner(bm.OracleQ())
    """
    name = type(learner).__name__
    assert not isinstance(learner, type), (
        f"pass an instance: check_learner({getattr(learner, '__name__', '')}()), with brackets"
    )
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
                f"{name}: table {field} is shared between two calls of tables(): make a new array "
                "in each call"
            )

    key = np.uint64(12345)
    before = _copy(tables)
    actions = {_integer(learner.act(tables, 0, 0, 0, key), name, A) for _ in range(100)}
    assert len(actions) == 1, (
        f"{name}.act gives different actions for the same key: draw from the key only"
    )
    for k, h, s in np.ndindex(2, H, S):
        a = learner.act(tables, k, h, s, np.uint64(k * 100 + h * 10 + s))
        assert a in range(A), f"{name}.act gave {a!r}; actions are 0, ..., {A - 1}"
    _assert_same(before, tables, f"{name}.act changed table {{}}: only update and plan may")
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
    by_level = not getattr(learner, "stationary", False)
    for on in ("latent", "observation"):
        # interpreted and with every action checked first: compiled code would read past the tables
        checked = _with_checked_actions(learner, A)
        Tabular(checked, on, by_level=by_level).fit(problem, episodes, seed=3, engine="interpreted")
        agent = Tabular(learner, on, by_level=by_level)
        runs = {
            engine: copy(agent).fit(problem, episodes, seed=3, engine=engine)
            for engine in ("interpreted", "stepwise", "compiled")
        }
        first = runs["compiled"]
        for engine, other in runs.items():
            assert np.array_equal(first.returns_, other.returns_), (
                f"{name} on={on!r}: the returns of the {engine} and the compiled engine differ"
            )
        repeat = copy(agent).fit(problem, episodes, seed=3)
        assert np.array_equal(first.returns_, repeat.returns_), (
            f"{name} on={on!r}: the same seed gave different returns: draw random numbers from the "
            "key only"
        )


def _with_checked_actions(learner: Learner, A: int) -> Learner:
    """Return a copy of a learner that raises an error for an action out of range."""
    act = interpreted(learner.act)

    def checked(tables: Any, k: int, h: int, s: int, key: np.uint64) -> int:
        a: int = act(tables, k, h, s, key)
        assert a in range(A), (
            f"{type(learner).__name__}.act gave {a!r} in episode {k}; actions are 0, ..., {A - 1}"
        )
        return a

    learner = copy(learner)
    object.__setattr__(learner, "act", checked)
    return learner


def _integer(action: Any, name: str, A: int) -> int:
    assert isinstance(action, int | np.integer), (
        f"{name}.act returned {action!r}; actions are the integers 0, ..., {A - 1}"
    )
    return int(action)


def _field(tables: Any, i: int) -> str:
    names = getattr(tables, "_fields", None)
    return repr(names[i]) if names else str(i)


def _copy(tables: Any) -> list[Any]:
    return [t.copy() if isinstance(t, np.ndarray) else t for t in tables]


def _assert_same(before: Any, after: Any, message: str) -> None:
    for i, (one, two) in enumerate(zip(before, after)):
        assert np.array_equal(one, two), message.format(_field(after, i))


# --- oracles --------------------------------------------------------------------------------------
def check_incremental_oracle(oracle: Any, X: ArrayLike | None = None) -> None:
    """Check that an oracle follows the protocol `blockmdp.oracles.IncrementalOracle`.

    Clones of the oracle learn from the data in batches of different sizes. After each batch,
    `labels_` must have a label for every observation so far, `changed_labels` must return exactly
    the earlier observations whose label changed, and `predict` must give labels in range, which do
    not depend on what else is in the batch. The same data must give the same labels again. If the
    oracle offers `linear_scores`, they must give the labels of `predict`.

    Parameters
    ----------
    oracle : IncrementalOracle
        The oracle to check. It is not changed.
    X : array-like of shape (n, d), default=None
        Observations to learn from, at least 10. None takes 60 observations of a Gaussian lock.

    Raises
    ------
    AssertionError
        If something is wrong; the message says what.

    See Also
    --------
    blockmdp.oracles.IncrementalOracle : The protocol, with an example.
    check_oracle : How well an oracle recognises states.

    Examples
    --------
    >>> import blockmdp as bm
    >>> bm.testing.check_incremental_oracle(bm.oracles.DirichletMixture())
    """
    name = type(oracle).__name__
    for method in ("partial_fit", "predict", "changed_labels", "get_params", "fit"):
        assert callable(getattr(oracle, method, None)), (
            f"{name} has no method {method}: an incremental oracle is a scikit-learn estimator "
            "with fit, partial_fit, predict and changed_labels"
        )
    x = _lock_observations() if X is None else np.array(X, np.float64)
    if x.ndim != 2 or len(x) < 10:
        raise ValueError(f"X must be an array of shape (n, d) with n >= 10, got shape {x.shape}")
    first, second = _learn_in_batches(oracle, x), _learn_in_batches(oracle, x)
    assert np.array_equal(first.labels_, second.labels_), (
        f"{name}: the same data gave different labels_: is something random, or shared by clones?"
    )
    labels = _checked_labels(name, "predict", first.predict(x), len(x))
    assert np.array_equal(labels, deepcopy(first).predict(x)), (
        f"{name}: a deep copy predicts other labels"
    )
    scores = to_scores(first)
    if scores is not first:
        assert np.array_equal(labels, scores.predict(x)), (
            f"{name}.linear_scores gives other labels than predict"
        )


def _lock_observations() -> NDArray[np.float64]:
    """Return 60 observations of three states in random order, the first ones of one state."""
    m = lock_gaussian(horizon=4, sigma=0.2)
    x = np.concatenate([m.sample(1, s, n=20) for s in range(3)])
    order = np.argsort(rng.uniforms(rng.children(rng.root(0), 0, 55), 1)[:, 0]) + 5
    return np.asarray(np.concatenate([x[:5], x[order]]), np.float64)


def _learn_in_batches(oracle: Any, x: NDArray[np.float64]) -> Any:
    """Return a clone that has learnt from x, and was checked after each batch."""
    name = type(oracle).__name__
    try:
        oracle = clone(oracle)
    except (TypeError, RuntimeError) as error:
        raise AssertionError(f"{name} cannot be cloned: {error}") from error
    before = np.zeros(0, np.int64)
    sizes = [1, 1, 1, 2, 5]
    ends = np.append(np.cumsum(sizes), range(sum(sizes) + 7, len(x) + 7, 7)).clip(max=len(x))
    for start, end in pairwise([0, *np.unique(ends).tolist()]):
        batch = x[start:end].copy()
        oracle.partial_fit(batch)
        assert np.array_equal(batch, x[start:end]), f"{name}.partial_fit changed its argument"
        labels = _checked_labels(name, "labels_", oracle.labels_, end).copy()
        changed = np.asarray(oracle.changed_labels())
        expected = np.flatnonzero(labels[:start] != before)
        assert np.array_equal(changed, expected), (
            f"{name}.changed_labels must return the earlier observations whose label changed, "
            f"{expected.tolist()} after {end} observations, got {changed.tolist()}"
        )
        predicted = _checked_labels(name, "predict", oracle.predict(x), len(x))
        n_labels = int(getattr(oracle, "n_labels_", labels.max() + 1))
        for what, given in (("labels_", labels), ("predict", predicted)):
            assert given.max() < n_labels, (
                f"{name}: {what} has the label {given.max()} after {end} observations, but there "
                f"are {n_labels} labels (n_labels_, or labels_.max() + 1)"
            )
        one_by_one = np.concatenate([np.asarray(oracle.predict(row[None])) for row in x])
        assert np.array_equal(predicted, one_by_one), (
            f"{name}.predict labels an observation differently alone and among others"
        )
        assert np.array_equal(labels, oracle.labels_), f"{name}.predict changed labels_"
        before = labels
    return oracle


def _checked_labels(name: str, what: str, labels: Any, n: int) -> NDArray[np.int64]:
    labels = np.asarray(labels)
    assert labels.shape == (n,), (
        f"{name}: {what} must have one label for each of {n} observations, got shape {labels.shape}"
    )
    assert labels.dtype.kind in "iu", f"{name}: {what} must be integers, got {labels.dtype}"
    assert labels.min() >= 0, f"{name}: {what} must be >= 0, got {labels.min()}"
    return np.asarray(labels, np.int64)


@dataclass(frozen=True, eq=False)
class OracleCheck:
    """Error of an oracle for each sample size, from `check_oracle`.

    Parameters
    ----------
    sizes : ndarray of shape (m,)
        Numbers n of observations, ascending.
    errors : ndarray of shape (m, seeds)
        Share of fresh observations with a wrong label.
    delta : float
        Share of seeds that may do worse than `g`.
    notes : tuple of str, default=()
        What was unusual about the fits, with n and the number of seeds.
    resolution : float, default=0.0
        Smallest error other than 0 that could be measured.

    See Also
    --------
    check_oracle : Returns one.

    Examples
    --------
    >>> import numpy as np
    >>> from blockmdp.testing import OracleCheck
    >>> check = OracleCheck(np.array([10, 100]), np.array([[0.3, 0.2], [0.1, 0.0]]), delta=0.1)
    >>> check.g
    array([0.3, 0.1])
    >>> check.g_inverse(0.2)
    100
    """

    sizes: NDArray[np.int64]
    errors: NDArray[np.float64]
    delta: float
    notes: tuple[str, ...] = ()
    resolution: float = 0.0

    @property
    def g(self) -> NDArray[np.float64]:
        """Error g(n, delta) for each size, (m,), which 1 - delta of the seeds do not exceed."""
        return self._quantile(self.delta)

    def g_inverse(self, epsilon: float, delta: float | None = None) -> int:
        """Return g^{-1}(epsilon, delta): the smallest size from which g stays below epsilon.

        It is an estimate, not a bound. An error of 0 means that none was seen, and for a delta
        below 1 / seeds the worst seed counts. Pass it to `URL.theory(..., g_inverse=...)`.

        Parameters
        ----------
        epsilon : float
            Error, in (0, 1].
        delta : float or None, default=None
            Probability of a larger error, in (0, 1). None is that of the check.

        Returns
        -------
        int
            One of `sizes`.

        Raises
        ------
        ValueError
            If g is not below epsilon at the largest size.
        """
        delta = _check_delta(self.delta if delta is None else delta)
        if not epsilon > 0:
            raise ValueError(f"epsilon must be > 0, got {epsilon!r}")
        g = self._quantile(delta)
        enough = np.minimum.accumulate((g < epsilon)[::-1])[::-1]
        if not enough.any():
            best = int(g.argmin())
            raise ValueError(
                f"g(n, {delta:g}) is not below {epsilon:g} at the largest n: it is {g[-1]:.3g} at "
                f"{self.sizes[-1]}, and its minimum is {g[best]:.3g} at {self.sizes[best]}. Try "
                "larger sizes or another oracle"
            )
        return int(self.sizes[enough.argmax()])

    def plot(self) -> Figure:
        """Plot the errors against n, on logarithmic axes.

        Returns
        -------
        Figure
            The figure. Errors of 0 are drawn on a line below all others.
        """
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
    """Measure the error of an oracle for each sample size.

    This estimates g(n, delta) of Definition 1 in Feng et al. (2020). For each n and seed, the
    oracle learns from n observations of latent states drawn from mu, and labels fresh ones. Its
    error is 1 - P(f(x) = alpha(s)) for s drawn from mu and the best permutation alpha. If there are
    more labels than states, there is no permutation: then each label counts as the state that it is
    mostly given to, and `notes` says so.

    Parameters
    ----------
    oracle : estimator
        Scikit-learn clusterer or mixture.
    problem : BlockMDP or Emission
        Where observations come from.
    sizes : sequence of int, default=(30, 100, 300, 1000, 3000)
        Numbers n of observations, ascending. The smaller samples of a seed are part of the larger.
    seeds : int, default=20
        Number of repetitions, with the seeds 0, 1, ...
    delta : float, default=0.1
        Share of seeds that may do worse than `g`.
    level : int, default=0
        Level at which observations are made.
    weights : array-like of shape (S,), default=None
        Distribution mu of the latent states. None is uniform.
    samples : int, default=1000
        Fresh observations of each state, on which the error is measured.

    Returns
    -------
    OracleCheck
        The errors, with `g`, `g_inverse` and `plot`.

    See Also
    --------
    check_incremental_oracle : Whether an oracle follows the protocol of online oracles.

    Examples
    --------
    >>> import blockmdp as bm
    >>> emission = bm.OneHotGaussian(3, 2, sigma=0.1)
    >>> check = bm.testing.check_oracle(bm.oracles.pca_kmeans(3), emission, seeds=5)
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
    _check_delta(delta)
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
    sorted_notes = tuple(
        f"n = {n}, {count} of {seeds} seeds: {note}"
        for (n, note), count in sorted(notes.items(), key=lambda item: item[0][0])
    )
    resolution = float(mu[mu > 0].min()) / samples
    return OracleCheck(ns, errors, float(delta), sorted_notes, resolution)


def _training(
    emission: Emission, level: int, mu: NDArray[np.float64], n: int, seed: int
) -> NDArray[Any]:
    """Return n observations of states drawn from mu, (n, dim). Those of a smaller n come first."""
    u = rng.uniforms(rng.children(streams.world(seed), 0, n), 1)[:, 0]
    within = np.searchsorted(np.cumsum(mu), u, side="right")
    states = np.minimum(within, np.flatnonzero(mu)[-1])  # rounding: mu can sum to less than 1
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
    """Return 1 - P(f(x) = alpha(s)) for the best alpha, and notes."""
    P = np.zeros((len(mu), f.n_labels))  # P(s, f(x))
    for s, x in enumerate(fresh):
        labels = f.predict(x.reshape(len(x), -1))
        P[s] = mu[s] * np.bincount(labels, minlength=f.n_labels) / len(labels)
    P = P[:, P.any(axis=0)]
    S, L = P.shape
    if S < L:
        right = P.argmax(axis=0), np.arange(L)
        notes = [f"more labels than the {S} states: each counts as its most frequent state"]
    else:
        right, notes = linear_sum_assignment(-P), []
    P[right] = 0
    return float(P.sum()), notes


def _sizes(sizes: Sequence[int]) -> NDArray[np.int64]:
    for n in sizes:
        check_integer("sizes", n, 1)
    if len(sizes) == 0 or any(a >= b for a, b in pairwise(sizes)):
        raise ValueError(f"sizes must be ascending integers, at least one, got {sizes!r}")
    return np.array(sizes, np.int64)


def _distribution(weights: ArrayLike | None, S: int) -> NDArray[np.float64]:
    mu = np.full(S, 1 / S) if weights is None else np.asarray(weights, np.float64)
    if mu.shape != (S,) or not (mu >= 0).all() or abs(mu.sum() - 1) > 1e-8:
        raise ValueError(f"weights must be the probabilities of {S} states, got {weights!r}")
    return mu


def _check_delta(delta: float) -> float:
    return check_number("delta", delta, 0, 1, closed="neither")
