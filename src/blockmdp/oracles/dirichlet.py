"""A mixture that gains labels as it sees more data: MAP-DP (Raykov et al. 2016), online."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaincinv, gammaln
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.checks import check_integer, check_number
from blockmdp.oracles._bank import (
    DOUBTS,
    MAX_SHARE,
    MIN_CELL_ROWS,
    MIN_SHARE,
    NEW_DIMENSIONS,
    Bank,
    are_many,
    count_stale,
    is_stale,
    learn_rows,
    new_bank,
    note_labels_of,
    only,
    search_labels,
    update_scores,
    with_room,
)
from blockmdp.oracles._dirichlet import (
    Clusters,
    Model,
    evidence,
    fit_noise,
    label_sums,
    map_sweeps,
)
from blockmdp.oracles._noise import (
    MIN_DEGREES,
    UNIT_DENSITY,
    cell_limits,
    modes,
    neighbour_differences,
    rank,
    robust_range,
    whitening,
)
from blockmdp.oracles._search import FEW, SWEEPS, best_cut, dimensions, ward_tree
from blockmdp.oracles.scores import (
    CategoricalScores,
    ClippedScores,
    LinearScores,
    bank_labels,
    one_hot,
)

__all__ = ["Begun", "DirichletMixture", "MixtureBank", "bounded", "trusting"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MAX_TREE = 2_000  # most observations of which all pairs are compared, if they look crowded
OUTLIERS = 10  # labels that are forgotten together, because it takes a pass over the data
MAX_CELL_ROWS = 500  # observations among which outlying numbers are sought
MAX_CLIPPED = 0.2  # share of the rows that may be clipped in a column
MAX_VALUES = 12  # whole numbers that may be categories
MAX_CATEGORY_BITS = 500  # of an observation
MIN_CATEGORY_ROWS, MAX_CATEGORY_ROWS = 32, 500  # observations of a mixture that decide
MIN_DISTINCT = 0.9  # share of different observations without which there is no noise
NONE = np.zeros(0, np.int64)
NONE.setflags(write=False)


class DirichletMixture(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Dirichlet process mixture that can learn online.

    A mixture of Gaussians that share one covariance, or of independent bits if all observations are
    zeros and ones. It finds the number of labels itself, and in many dimensions it recognises a
    new state at its first observation. Where small labels do not grow, it takes them for outliers.
    If observations consist of a few different whole numbers, it takes them for categories, one bit
    for each, if that explains them better.

    `fit` learns from a data set. `partial_fit` adds observations to those seen before. A label
    keeps its number as long as it has observations. Whenever the data have grown by half, labels
    are merged or split where that is more probable, so earlier observations can get another label.
    (With hundreds of observations, they must have doubled if nothing changed the last time.)

    Parameters
    ----------
    concentration : float, default=0.01
        Concentration alpha of the Dirichlet process. Smaller values give fewer labels.
    max_labels : int, default=500
        Largest number of labels.
    memory : int or None, default=None
        Observations that `partial_fit` keeps, unless a single batch is larger. When there are more,
        it forgets the older half of those of each label, but none of a rare label. None sets no
        limit. Old outliers are always forgotten.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Labels of all observations so far, also of those forgotten. Outliers have the label that is
        closest.
    n_labels_ : int
        Number of labels: one more than the largest in use.
    limits_ : tuple of ndarray of shape (d,), or None
        Limits to which observations are clipped, because single numbers in them are outliers.
    values_ : ndarray of shape (v,), or None
        The numbers that stand for categories, if observations are taken for categories.
    evidence_ : float
        Log probability of the data that are kept and of their labels, up to a constant.
    n_features_in_ : int
        Number of coordinates of an observation.

    See Also
    --------
    AutoOracle : Chooses a mixture and its number of labels for a whole data set.
    IncrementalOracle : The protocol of oracles that learn online.

    Notes
    -----
    The algorithm is MAP-DP [1]_: it moves one observation after the other to its most probable
    label given all others. Here the means, the noise and the scale of the means are integrated
    out, so there is no scale to set, and clusterings with few and with many labels can be compared
    by their evidence. Mergers, splits and cuts through a hierarchical clustering lead out of local
    optima.

    References
    ----------
    .. [1] Y. P. Raykov, A. Boukouvalas, F. Baig, M. A. Little (2016). What to do when k-means
       clustering fails: a simple yet principled alternative algorithm. PLoS ONE 11(9).

    Examples
    --------
    >>> import blockmdp as bm
    >>> from blockmdp.oracles import DirichletMixture
    >>> m = bm.comblock(horizon=100)
    >>> live, dead = m.sample(level=50, state=0, n=1), m.sample(level=50, state=2, n=20)
    >>> oracle = DirichletMixture().partial_fit(dead)
    >>> oracle.n_labels_
    1
    >>> oracle.partial_fit(live).n_labels_
    2
    """

    def __init__(
        self, concentration: float = 0.01, max_labels: int = 500, memory: int | None = None
    ) -> None:
        self.concentration = concentration
        self.max_labels = max_labels
        self.memory = memory

    def fit(self, X: Any, y: None = None) -> DirichletMixture:
        """Learn from a data set, and forget what was learnt before.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        DirichletMixture
            The estimator itself.
        """
        X = validate_data(self, X, dtype=np.float64)
        self._check_parameters()
        _check_size(X - X[0])
        bank = MixtureBank([self])
        bank.recode(np.zeros(len(X), np.int64), X)
        self._learn_again(X)
        bank.consider_categories()
        bank.finish(np.zeros(1, np.int64), {0})
        return self

    def partial_fit(self, X: Any, y: None = None) -> DirichletMixture:
        """Learn from more observations, in their order.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        DirichletMixture
            The estimator itself.
        """
        first = not self._has_begun()
        X = self._validated(X, reset=first)
        if first:
            MixtureBank([self])
        else:
            self._check_parameters()  # they may have changed
            self._bank.state.most[self._g] = self.max_labels
        self._bank.learn(np.full(len(X), self._g), X)
        return self

    def changed_labels(self) -> Labels:
        """Return which earlier observations the last `partial_fit` relabelled.

        Returns
        -------
        ndarray of shape (m,)
            Their indices in `labels_`, in ascending order.
        """
        if not hasattr(self, "_changed"):  # the check is slow, and this is called in every episode
            check_is_fitted(self, "_changed")
        return self._changed

    def noise_scatter(self) -> tuple[Array, int]:
        """Return how observations deviate from the means of their labels.

        Returns
        -------
        scatter : ndarray of shape (d, d)
            Sum of the outer products of the deviations.
        degrees : int
            Its degrees of freedom; 0 if there is nothing to learn from, or observations are bits.
        """
        if not self._has_begun() or self._model.bits:
            return np.zeros((0, 0)), 0
        return self._scatter(self._z)

    def share_noise(self, T: Array | None) -> None:
        """Take over the shape of the noise from other data, from the next `partial_fit` on.

        Parameters
        ----------
        T : ndarray of shape (d, d) or None
            Matrix for which the noise of x T is round. None forgets it.
        """
        if _differ(T, self._shared) and (T is None or _differ(T, self._refused)):
            self._shared, self._refused = T, None
            if self._has_begun():
                self._bank.state.due[self._g] = 0

    def predict(self, X: Any) -> Labels:
        """Label observations without learning from them.

        Each gets the most probable label, no matter how often that label occurred before.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        check_is_fitted(self, "n_labels_")
        X = self._validated(X, reset=False)
        return self._decode(self._bank.coded(X))

    def linear_scores(self) -> tuple[Array, Array]:
        """Return the linear scores by which `predict` chooses labels.

        Returns
        -------
        W : ndarray of shape (n_labels, d)
            Weights; (n_labels, d v) if observations are categories.
        b : ndarray of shape (n_labels,)
            Intercepts: the label of x is the k with the largest W[k] . x + b[k], where x is clipped
            to `limits_`, or says of each number which of `values_` it is, if there are any.
        """
        self._check_has_learnt()
        scores, T = self._bank.state.scores, self._T
        W, b = (each[self._g, : self.n_labels_] for each in (scores.W, scores.b))
        W = W.copy() if T is None else W @ T.T
        return W, b - W @ self._centre

    def trusted_labels(self) -> NDArray[np.bool_]:
        """Return which labels a policy should rely on.

        While it learns, an agent trusts a new label, which may be a new state. When it is done,
        this no longer pays where outliers were found: there, labels of less than 1 % of the
        observations are not trusted, unless they are more than a tenth of them together.

        Returns
        -------
        ndarray of shape (n_labels,)
            True for each label to rely on.
        """
        self._check_has_learnt()
        counts = self._clusters.counts[: self.n_labels_]
        rare = counts < MIN_SHARE * self._n
        has_outliers = self._bank.state.outliers[self._g] > 0
        few = counts[rare].sum() < MAX_SHARE * self._n
        return np.asarray(~rare | (not (has_outliers and few)))

    @property
    def labels_(self) -> Labels:
        """Labels of all observations so far."""
        if self._forgotten is None:
            labels = self._shown.copy()  # rows may move
        else:
            kept, every = self._forgotten
            labels = np.concatenate([every, self._shown[len(kept) :]])
            labels[kept] = self._shown[: len(kept)]
        labels.setflags(write=False)
        return labels

    @property
    def limits_(self) -> tuple[Array, Array] | None:
        """Limits (d,) and (d,) to which observations are clipped, None if they are not."""
        self._check_has_learnt()
        if not self._bank.is_clipped(self._g):
            return None
        scores, g = self._bank.state.scores, self._g
        return scores.low[g] + self._centre, scores.high[g] + self._centre

    @property
    def values_(self) -> Array | None:
        """Numbers (v,) that stand for categories, None if observations are not categories."""
        self._check_has_learnt()
        return self._bank.values

    @property
    def evidence_(self) -> float:
        """Log probability of the data and their labels, up to a constant."""
        return self._current().score

    def _check_has_learnt(self) -> None:
        if not hasattr(self, "n_labels_"):  # scikit-learn's check is slow
            check_is_fitted(self, "n_labels_")

    def _validated(self, X: Any, *, reset: bool) -> Array:
        """Return X as (n, d) finite float64. Arrays that need no conversion take a short cut, since
        online this is called for every observation.
        """
        if (
            not reset
            and isinstance(X, np.ndarray)
            and X.ndim == 2
            and X.shape[1] == self.n_features_in_
            and len(X) > 0
            and X.dtype.kind in "fiu"
            and "feature_names_in_" not in vars(self)
            and math.isfinite(np.vdot(X, X))  # so all numbers are finite
        ):
            return X.astype(np.float64, copy=False)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=reset), np.float64)

    # --- the state, which is row _g of a bank ----------------------------------------------------
    _bank: MixtureBank
    _g: int

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of this mixture alone, without the others of its bank."""
        state = dict(super().__getstate__())
        bank = state.pop("_bank", None)
        if bank is not None and bank.has_begun[self._g]:
            state["_state"], state["_coding"] = only(bank.state, self._g), bank.coding
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        own, coding = state.pop("_state", None), state.pop("_coding", None)
        super().__setstate__(state)
        if own is not None:
            bank = MixtureBank([self])
            bank.state, bank.has_begun, bank._changed = own, [True], [self]
            bank.coding = coding or Coding()

    def _has_begun(self) -> bool:
        return hasattr(self, "_bank") and self._bank.has_begun[self._g]

    @property
    def _n(self) -> int:
        return int(self._bank.state.n[self._g])

    @property
    def _raw(self) -> NDArray[np.float32]:
        return np.asarray(self._bank.state.raw[self._g, : self._n])

    @property
    def _x(self) -> NDArray[np.float32]:
        return np.asarray(self._bank.state.x[self._g, : self._n])

    @property
    def _z(self) -> Labels:
        return np.asarray(self._bank.state.z[self._g, : self._n])

    @property
    def _shown(self) -> Labels:
        """Labels of the rows, for others to see."""
        return self._z if self._reported is None else self._reported

    @property
    def _square(self) -> float:
        return float(self._bank.state.square[self._g])

    @property
    def _centre(self) -> Array:
        return np.asarray(self._bank.state.scores.centre[self._g])

    @property
    def _T(self) -> Array | None:
        scores = self._bank.state.scores
        return scores.T[self._g] if scores.has_T[self._g] else None

    def _copy_of_T(self) -> Array | None:
        return None if self._T is None else self._T.copy()

    @property
    def _clusters(self) -> Clusters:
        state, K = self._bank.state, self._bank.state.room[self._g]
        return Clusters(state.counts[self._g, :K], state.sums[self._g, :K])

    @property
    def _most(self) -> int:
        """The largest number of labels allowed."""
        return int(self._bank.state.most[self._g])

    @property
    def _model(self) -> Model:
        state, g = self._bank.state, self._g
        return Model(
            bits=bool(state.bits[g]),
            dim=float(state.dim[g]),
            ratio=float(state.ratio[g]),
            noise=float(state.noise[g]),
            log_alpha=float(state.log_alpha[g]),
            depends=state.depends[g],
            typical=state.typical[g],
        )

    @_model.setter
    def _model(self, model: Model) -> None:
        for name, value in zip(model._fields, model):
            getattr(self._bank.state, name)[self._g] = value

    # --- learning ---------------------------------------------------------------------------------
    def _reset(self, X: Array) -> None:
        """Forget everything, and choose the kind of mixture for the data X, coded by the bank."""
        self._check_parameters()
        _check_size(X - X[0])
        d = X.shape[1]
        bits = _are_bits(X)
        self._bank.begin(self._g, d)
        self.n_features_in_ = d if self._bank.values is None else d // len(self._bank.values)
        ratio = min(3.0 / d, 0.5) if bits else 1.0
        log_alpha = math.log(self.concentration)
        self._model = Model(
            bits, float(d), ratio, 1.0, log_alpha, np.full(d, ratio), np.full(d, 0.5)
        )
        self._centre[:] = 0.0 if bits else X[0]  # subtracted, for precision
        self._bank.state.most[self._g] = self.max_labels
        self._bank.state.room[self._g] = min(2, self._most)
        self._reported: Labels | None = None  # labels of all rows, if some labels are hidden
        self._forgotten: _Forgotten | None = None
        self.n_labels_ = 0
        self._n_tried = 0  # number of rows when `_forget_shape` was last tried
        self._is_confirmed = False  # whether limits have been found twice
        self._before: Labels | None = None  # labels of earlier rows, before they changed
        self._changed = NONE
        self._known_products: tuple[int, Any] = 0, 0.0  # see `_products`: of how many rows, and it

    def _check_parameters(self) -> None:
        check_integer("max_labels", self.max_labels, 1)
        if self.memory is not None:
            check_integer("memory", self.memory, 1)
        check_number("concentration", self.concentration, 0, closed="neither")

    _shared: Array | None = None  # shape of the noise in other data
    _refused: Array | None = None  # the same, if it is wrong here

    def _learn_again(self, X: Array) -> None:
        """Forget everything, and find labels of the observations X from scratch."""
        rows, n = self._bank.coded(X), len(X)
        self._reset(rows)
        self._bank.reserve(rows=n)
        self._bank.state.raw[self._g, :n] = rows - self._centre
        self._bank.state.n[self._g] = n
        self._begin()

    def _begin(self) -> None:
        """Find labels from scratch.

        It is not known how many dimensions the noise fills: fewer than the data if the states are
        far apart, and fewer than neighbours let one think if it is strong in few directions. So
        both are tried.
        """
        one_label = np.zeros(self._n, np.int64)
        self._reshape(None, one_label)
        if self._model.bits or self._n < 3:
            self._reconsider()
            return
        x = self._x.astype(np.float64)
        near, d = neighbour_differences(x, x), rank(x)
        price = d * (d + 1) / 4 * math.log(self._n)  # of a shape, as in the BIC
        found = []
        for dim in (
            dimensions(_smaller_product(x - x.mean(axis=0)), self._n - 1, x.shape[1]),
            dimensions(_smaller_product(near), len(near), x.shape[1]),
        ):
            self._reshape(None, one_label)
            self._model = self._model._replace(dim=dim)
            self._reconsider()
            now = self._current()
            alike = self._model._replace(dim=float(d))
            score = evidence(alike, now.clusters, self._square)
            score -= 0.0 if self._T is None else price
            found.append((score, now.z, self._copy_of_T(), self._model))
        _, z, T, model = max(found, key=lambda each: each[0])
        self._reshape(T, z)
        self._model = model

    def _attend(self, is_new: bool, moved: Labels) -> None:
        """Give some rows a new label together, if there are any. Then reconsider all labels if that
        is due; otherwise see who else moves to a new label, or try to split one that has grown.
        """
        if len(moved):
            z = self._z.copy()
            z[moved] = np.flatnonzero(self._clusters.counts == 0)[0]
            self._accept(self._clustering(z))
        elif is_new:
            self._count_labels()
        if self._n >= self._bank.state.due[self._g]:
            self._reconsider()
        elif is_new or len(moved):
            self._accept(self._swept(self._current()))
        else:
            self._split(int(self._z[-1]))

    def _restart(self, X: Array) -> None:
        """Learn the past again, which were bits, before the observations X, which are not."""
        before, past = self._labels_before(), self._raw.astype(np.float64)
        forgotten = self._forgotten
        self._reset(np.concatenate([past, X]))
        self._bank.learn_rows(np.full(len(past), self._g), past - self._centre)
        self._before, self._forgotten = before, forgotten

    def _current(self) -> _Clustering:
        clusters = Clusters(self._clusters.counts.copy(), self._clusters.sums.copy())
        return self._scored(self._z.copy(), clusters)

    def _accept(self, new: _Clustering) -> None:
        g, K = self._g, len(new.clusters.counts)
        self._bank.reserve(labels=K)
        state = self._bank.state
        state.counts[g], state.sums[g] = 0, 0.0
        state.counts[g, :K], state.sums[g, :K] = new.clusters
        state.room[g] = K
        state.is_current[g] = False
        self._model = new.model
        before = self._z.copy()
        self._z[:] = new.z
        self._moved(before)

    def _count_labels(self) -> None:
        """Update `n_labels_`, and keep at least one unused label if `max_labels` allows."""
        g, state = self._g, self._bank.state
        self.n_labels_, is_full = note_labels_of(state, g)
        if is_full:
            self._bank.reserve(labels=2 * int(state.room[g]))
            note_labels_of(self._bank.state, g)

    # --- finding a more probable clustering -------------------------------------------------------
    def _reconsider(self) -> None:
        """Merge and split labels as long as that makes the data more probable."""
        labels, T = self._z.copy(), self._copy_of_T()
        for _ in range(6):
            now = self._search()
            if not (self._learn_noise(now) or self._split_modes() or self._forget_shape()):
                break
        changed = _differ(T, self._T) or not np.array_equal(labels, self._z)
        growth = 1.5 if changed or self._n < FEW else 2.0
        self._bank.state.due[self._g] = math.ceil(growth * self._n)
        self._bank.state.split_at[self._g] = 0  # no label has to be examined before it has grown
        self._count_labels()
        if self._limit_cells():
            before = self._z.copy()
            self._begin()
            self._accept(self._clustering(_renamed(before, self._z)))

    def _split(self, k: int) -> None:
        """Split label k if that makes the data more probable.

        A rare label can grow several times before the data do, and new states that are hard to
        recognise are in it.
        """
        before = self._z.copy()
        self._bank.reserve(labels=min(len(self._clusters.counts) + 1, self._most))
        _, is_whole, _ = search_labels(self._bank.state, self._g, k, 0, False)
        if not is_whole:
            self._moved(before)

    def _search(self, steps: int = -1) -> _Clustering:
        """Sweep, merge, split and cut until nothing makes the data more probable, or after a number
        of steps.
        """
        before, is_swept = self._z.copy(), False
        while True:
            given = self._g, -1, steps, is_swept
            steps, is_stuck, is_full = search_labels(self._bank.state, *given)
            is_swept = True
            if is_full:
                self._bank.reserve(labels=2 * self._bank.state.counts.shape[1])
                continue
            self._moved(before)
            now = self._current()
            if not (is_stuck and self._cut(now)):
                return now

    def _moved(self, before: Labels) -> None:
        """Take note that labels may have changed from what they were before."""
        if self._before is None and not np.array_equal(self._z, before):
            self._before = before
        self._count_labels()

    def _limit_cells(self) -> bool:
        """Clip all rows if single numbers are outliers and labels are many, as if each were a state
        of its own. Return whether the limits have changed.

        This is decided whenever the data have doubled, and confirmed or taken back the next time.
        Later, limits become wider in columns where they clip many rows: there are new states.
        """
        n, limited = self._n, self._bank.state.limited
        if self._model.bits or n < max(2 * limited[self._g], MIN_CELL_ROWS):
            return False
        limited[self._g] = n
        is_clipped = self._bank.is_clipped(self._g)
        if not (is_clipped or are_many(np.count_nonzero(self._clusters.counts), n)):
            return False
        rows = np.random.default_rng(n).permutation(n)[:MAX_CELL_ROWS]
        x = self._raw[rows].astype(np.float64)
        limits: Any = cell_limits(x)
        if not is_clipped:
            if limits is None:
                return False
        elif limits is None and not self._is_confirmed:
            limits = -np.inf, np.inf
        else:
            self._is_confirmed = True
            limits = self._bank.wider_limits(self._g, x)
            if limits is None:
                return False
        self._bank.limit(self._g, *limits)
        self._shared = self._refused = None  # they knew nothing of the limits
        self._known_products = 0, 0.0
        return True

    def _learn_noise(self, now: _Clustering) -> bool:
        """Learn the shape of the noise. Return whether the labels should be reconsidered."""
        if self._model.bits:
            return False
        enough = self._n >= MIN_DEGREES * self._raw.shape[1]
        scatter, degrees = self._scatter(now.z) if enough else (None, 0)
        T = self._shape(scatter, degrees)
        reshaped = _differ(T, self._T)
        if reshaped:
            self._reshape(T, now.z)
            now = self._current()
        if scatter is None:
            scatter, degrees = self._small_scatter(now)
        elif self._T is not None:
            scatter = self._T.T @ scatter @ self._T
        before, dim = self._model.dim, dimensions(scatter, degrees, self._x.shape[1])
        self._model = self._model._replace(dim=dim)
        return reshaped or abs(dim - before) >= NEW_DIMENSIONS * before

    def _forget_shape(self) -> bool:
        """Take the noise for round if that makes the data more probable, with other labels.

        Where others share a shape that contains the distances between states, the states cannot be
        seen through it. This is tried whenever the data have doubled, until they are enough to
        learn the shape from.
        """
        enough = self._n >= 2 * MIN_DEGREES * self._x.shape[1]
        if self._T is None or self._shared is None or enough or self._n < 2 * self._n_tried:
            return False
        self._n_tried = self._n
        now, T = self._current(), self._copy_of_T()
        self._reshape(None, now.z)
        if _is_better(self._search(steps=10), now):
            self._shared, self._refused = None, self._shared
            return True
        self._reshape(T, now.z)
        return False

    def _split_modes(self) -> bool:
        """Split a label together with a new shape of the noise, if that is more probable.

        If a label contains several states, its covariance contains the distances between them, and
        seen through it they are not worth a label each. A new shape alone, without a new label,
        does not count: it is for `_learn_noise` to say.
        """
        if self._T is None:
            return False
        now, T = self._current(), self._copy_of_T()
        unused = np.flatnonzero(now.clusters.counts == 0)
        large = np.flatnonzero(now.clusters.counts >= MIN_DEGREES * self._x.shape[1])
        for k in large if len(unused) else ():
            rows = np.flatnonzero(now.z == k)
            for part in modes(self._x[rows].astype(np.float64)):
                z = now.z.copy()
                z[rows[part]] = unused[0]
                self._reshape(self._shape(*self._scatter(z)), z)
                other = self._swept(self._current(), rows)
                if _is_better(other, now) and other.n_labels > now.n_labels:
                    self._accept(other)
                    return True
                self._reshape(T, now.z)
        return False

    def _shape(self, scatter: Array | None, degrees: int) -> Array | None:
        """Return the shape that others share, corrected by what this data set tells."""
        T = self._shared
        if scatter is None or degrees < MIN_DEGREES * len(scatter):
            return T
        if T is None:
            return whitening(scatter, degrees)
        own = whitening(T.T @ scatter @ T, degrees)
        return T if own is None else T @ own

    def _scatter(self, z: Labels) -> tuple[Array, int]:
        """Return the sum of the outer products of the deviations from the labels' means, and its
        degrees of freedom.
        """
        counts = np.bincount(z)
        sums = label_sums(self._bank.clipped(self._g, self._raw), z, len(counts))
        sums /= np.sqrt(np.maximum(counts, 1))[:, None]
        scatter = _outer_products(sums)
        np.subtract(self._products(), scatter, out=scatter)
        return scatter, self._n - int(np.count_nonzero(counts))

    def _products(self) -> Array:
        """Return the sum of the outer products of all rows.

        If it is smaller than the rows, it is kept, and only new rows are added.
        """
        n, d = self._raw.shape
        known, before = self._known_products
        if n == known:
            return np.asarray(before)
        x = self._bank.clipped(self._g, self._raw[known:]).astype(np.float64)
        products = _outer_products(x)
        products += before
        if n > d:
            self._known_products = n, products
        return products

    def _reshape(self, T: Array | None, z: Labels) -> None:
        """Look at all rows through another T, with the labels z."""
        self._bank.shape(self._g, T)
        self._accept(self._clustering(z))

    def _labels_before(self) -> Labels:
        """Return the labels of the rows that were reported last, and of others since then."""
        if self._reported is not None:
            return self._reported
        return self._z.copy() if self._before is None else self._before

    def _observations(self) -> Array:
        """Return the observations that are kept."""
        values, rows = self._bank.values, self._raw.astype(np.float64) + self._centre
        if values is None:
            return rows
        return np.asarray(values[rows.reshape(len(rows), -1, len(values)).argmax(axis=2)])

    def _decode(self, X: Array) -> Labels:
        """Return the labels of observations, coded by the bank."""
        groups = np.full(len(X), self._g)
        return np.asarray(bank_labels(self._bank.state.scores, groups, X), np.int64)

    def _report(self, n_before: int) -> None:
        """Update `labels_` and what has changed in it. Rows of hidden labels get the next best."""
        before = self._labels_before()
        hidden = self._bank.state.hidden[self._g]
        self._reported = None
        if hidden.any():
            rows = np.flatnonzero(hidden[self._z])
            self._reported = self._z.copy()
            self._reported[rows] = self._decode(self._raw[rows].astype(np.float64) + self._centre)
        before, now = before[:n_before], self._shown[:n_before]
        self._changed = np.flatnonzero(before != now)
        self._before = None
        if self._forgotten is not None and len(self._changed):
            old = self._forgotten
            self._forgotten = old.following(before, now)
            also = np.flatnonzero(self._forgotten.labels != old.labels)
            self._changed = np.union1d(self._places()[self._changed], also)

    # --- forgetting -------------------------------------------------------------------------------
    def _make_room(self, n: int) -> None:
        """Forget the older half of the rows of each label until there is room for n more, but no
        row of a rare label.
        """
        assert self.memory is not None
        while self._n + n > self.memory and self._forget_older_half():
            pass

    def _forget_older_half(self) -> bool:
        """Return whether there was anything to forget."""
        assert self.memory is not None
        counts = np.bincount(self._z)
        rare = int(self.memory) // (4 * np.count_nonzero(counts))
        keep = np.zeros(self._n, np.bool_)
        for k in np.flatnonzero(counts):
            keep[np.flatnonzero(self._z == k)[-max(counts[k] // 2, rare, 1) :]] = True
        if keep.all():
            return False
        state = self._bank.state
        state.split_at[self._g] = 0
        state.outliers[self._g] *= keep.mean()  # so that their share stays the same
        self._keep(keep)
        return True

    def _forget_outliers(self) -> None:
        """Forget the rows of old labels that are taken for outliers.

        They would only cost time, since most outliers have a label of their own. If one was a rare
        state, it is easier to recognise as a new one when it comes back.
        """
        state, g = self._bank.state, self._g
        stale = np.array([is_stale(state, g, k) for k in range(state.room[g])])
        kept = ~stale[self._z]
        state.outliers[g] += np.count_nonzero(~kept)
        state.hidden[g, : len(stale)] &= ~stale
        self._keep(kept)

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget all other rows."""
        rows = np.flatnonzero(kept)
        self._forgotten = _Forgotten(self._places()[rows], self.labels_)
        if self._reported is not None:
            self._reported = self._reported[rows]
        self._bank.keep(self._g, rows)
        self._n_tried = min(self._n_tried, self._n)
        limited = self._bank.state.limited
        limited[self._g] = min(limited[self._g], self._n)
        self._known_products = 0, 0.0
        self._accept(self._clustering(self._z.copy()))

    def _places(self) -> Labels:
        """Return the indices of the rows among all observations."""
        if self._forgotten is None:
            return np.arange(self._n)
        kept, labels = self._forgotten
        new = len(labels) + np.arange(self._n - len(kept))
        return np.concatenate([kept, new])

    def _small_scatter(self, now: _Clustering) -> tuple[Array, int]:
        """Return a matrix with the eigenvalues of the scatter of x, and its degrees of freedom."""
        counts, sums = now.clusters
        used = np.maximum(counts, 1)[:, None]
        degrees = self._n - int(np.count_nonzero(counts))
        return _smaller_product(self._x - (sums / used)[now.z]), degrees

    def _swept(self, now: _Clustering, of: Labels | slice = slice(None)) -> _Clustering:
        """Sweep over all rows, or some, as long as that makes the data more probable."""
        x = self._x[of]
        while True:
            z, some = now.z.copy(), now.z[of].copy()
            clusters = Clusters(now.clusters.counts.copy(), now.clusters.sums.copy())
            if map_sweeps(now.model, x, some, clusters, SWEEPS) == 0:
                return now
            z[of] = some
            after = self._scored(z, clusters)
            if not _is_better(after, now):
                return now
            now = after

    def _clustering(self, z: Labels) -> _Clustering:
        room = min(int(z.max()) + 2, self._most)
        counts = np.bincount(z, minlength=max(len(self._clusters.counts), room))
        return self._scored(z, Clusters(counts, label_sums(self._x, z, len(counts))))

    def _scored(self, z: Labels, clusters: Clusters) -> _Clustering:
        depends, typical = np.empty_like(self._model.depends), np.empty_like(self._model.typical)
        score, ratio, noise = fit_noise(self._model, clusters, self._square, depends, typical)
        model = self._model._replace(ratio=ratio, noise=noise, depends=depends, typical=typical)
        return _Clustering(z, clusters, score, model)

    def _cut(self, now: _Clustering) -> bool:
        """Take over the most probable cut through Ward's tree, if it is more probable.

        With many states and few observations, splitting one label into many can pay where
        splitting it into two does not.
        """
        if not (3 <= self._n <= FEW or (self._n <= MAX_TREE and self._is_crowded(now))):
            return False
        tree = ward_tree(self._x)
        K, score = best_cut(self._model, self._x, tree, self._square)
        if not (score > now.score and self._most >= K):
            return False
        other = self._swept(self._clustering(_renamed(now.z, _cut(tree, K))))
        if not _is_better(other, now):
            return False
        self._accept(other)
        return True

    def _is_crowded(self, now: _Clustering) -> bool:
        """Whether a third of the rows of the largest label have more close neighbours than rows of
        one Gaussian have: one each.

        If so, it may consist of many states, of which each has few rows so far.
        """
        n, dim, k = int(now.clusters.counts.max()), self._model.dim, now.clusters.counts.argmax()
        if n < FEW:
            return False
        rows = self._x[now.z == k] - now.clusters.sums[k] / n  # exactly 0 without noise
        squares, some = np.einsum("ij,ij->i", rows, rows), np.arange(0, n, n // 20)
        distances = squares[some, None] + squares - 2 * rows[some] @ rows.T
        close = 2 * gammaincinv(dim / 2, 1 / n) / dim * 2 * squares.mean()  # one row in n is closer
        neighbours = np.count_nonzero(distances < close, axis=1) - 1
        return bool(np.count_nonzero(neighbours > 2) > len(some) / 3)


class MixtureBank:
    """Mixtures that learn together: one of each level.

    Parameters
    ----------
    mixtures : list of DirichletMixture
        Mixtures that know nothing so far.
    rows : int, default=0
        How many observations each will see, if that is known.

    Attributes
    ----------
    state : Bank
        All that they know, from the first observation on.
    has_begun : list of bool
        Whether each has seen an observation.
    coding : Coding
        Whether observations are few whole numbers, and taken for categories.
    """

    state: Bank
    _rows = 0

    def __init__(self, mixtures: list[DirichletMixture], rows: int = 0) -> None:
        self.mixtures, self._rows = mixtures, rows
        self.coding = Coding()
        self.has_begun = [False] * len(mixtures)
        self._changed: list[DirichletMixture] = []  # in the last call of `finish`
        self._own()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._own()  # a copy of a mixture has a bank of its own

    def _own(self) -> None:
        for g, mixture in enumerate(self.mixtures):
            mixture._bank, mixture._g = self, g

    def begin(self, g: int, d: int) -> None:
        """Make mixture g forget everything."""
        if not any(self.has_begun):
            limits = [self._rows if m.memory is None else m.memory for m in self.mixtures]
            self.state = new_bank(len(self.mixtures), d, min(self._rows, max(limits)))
        self.has_begun[g] = True
        state = self.state
        vectors = (state.n, state.due, state.limited, state.doubts, state.outliers, state.square)
        for array in (*vectors, state.scores.has_T):
            array[g] = 0
        for array in (state.counts, state.sums, state.split_at, state.is_current, state.hidden):
            array[g] = 0
        state.born[g], state.scores.b[g] = -1, -np.inf
        state.scores.low[g], state.scores.high[g] = -np.inf, np.inf

    def reserve(self, *, rows: int = 0, labels: int = 0) -> None:
        """Make room."""
        self.state = with_room(self.state, rows=rows, labels=labels)

    def is_clipped(self, g: int) -> bool:
        """Whether mixture g clips its rows."""
        return bool(self.state.scores.low[g].max() > -np.inf)

    def clipped(self, g: int, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return rows of mixture g within its limits."""
        if not self.is_clipped(g):
            return rows
        scores = self.state.scores
        return np.clip(rows, scores.low[g], scores.high[g]).astype(np.float32)

    def limit(self, g: int, low: Array | float, high: Array | float) -> None:
        """Clip the rows of mixture g from now on. See `shape` for those it has."""
        self.state.scores.low[g], self.state.scores.high[g] = low, high

    def wider_limits(self, g: int, x: Array) -> tuple[Array, Array] | None:
        """Return the limits of mixture g, with new ones for columns in which they clip many of the
        rows x; None if there are no such columns.
        """
        low, high = self.state.scores.low[g], self.state.scores.high[g]
        many = ((x < low) | (x > high)).mean(axis=0) > MAX_CLIPPED
        if not many.any():
            return None
        new_low, new_high = robust_range(x)
        wider = np.minimum(low, new_low), np.maximum(high, new_high)
        return np.where(many, wider[0], low), np.where(many, wider[1], high)

    def shape(self, g: int, T: Array | None) -> None:
        """Look at all rows of mixture g within its limits and through another T."""
        state, n = self.state, int(self.state.n[g])
        x = self.clipped(g, state.raw[g, :n]).astype(np.float64)
        if T is not None and state.scores.T.size == 0:
            G, d = state.scores.centre.shape
            self.state = state = state._replace(scores=state.scores._replace(T=np.zeros((G, d, d))))
        if T is not None or self.is_clipped(g):
            self.state = state = state.with_own_x()
        state.scores.has_T[g] = T is not None
        if T is not None:
            state.scores.T[g] = T
            x = x @ T
        state.x[g, :n] = x
        state.square[g] = np.vdot(x, x)

    def is_quiet(self) -> bool:
        """Whether mixtures only learn rows, and need nothing else before or after that, as long as
        no label is new.
        """
        return self.values is None and any(self.has_begun) and not self.state.hidden.any()

    def most_rows(self) -> int:
        """Return how many rows a mixture has room and memory for."""
        limits = [mixture.memory for mixture in self.mixtures]
        return min([int(self.state.z.shape[1]), *(n for n in limits if n is not None)])

    def rows_before_decision(self) -> float:
        """Return how many rows a mixture can learn before it is decided about categories."""
        return self.coding.due - 1 - self.coding.n if self.coding.is_undecided() else math.inf

    def count(self, rows: int) -> None:
        """Take note that the mixtures have learnt up to that many rows."""
        self.coding = self.coding._replace(n=self.coding.n + rows)

    def learn(self, groups: Labels, X: Array, begun: Begun | None = None) -> list[int]:
        """Learn from observations, in their order.

        Parameters
        ----------
        groups : ndarray of shape (m,)
            Mixture that learns from each.
        X : ndarray of shape (m, d)
            Observations, finite.
        begun : Begun or None, default=None
            How many of them are learnt already, while the bank was quiet.

        Returns
        -------
        list of int
            Mixtures whose labels may have changed or increased in number.
        """
        counts = np.bincount(groups)
        used = np.flatnonzero(counts)
        n_before = np.zeros(len(self.mixtures), np.int64)
        if begun is not None:
            touched: set[int] = set()
            done = np.bincount(groups[: begun.rows], minlength=len(self.mixtures))
            n_before[:] = self.state.n - done
            self.count(int(counts.max()))
        else:
            touched = self._forget(used, counts[used])
            if any(self.has_begun):
                n_before[:] = self.state.n
            touched |= self.recode(groups, X)  # also of mixtures that learn nothing from X
            used = np.union1d(used, np.array(sorted(touched), np.int64)) if touched else used
            X = self.coded(X)
            touched |= self._welcome(groups, X, used)
        touched |= self.learn_rows(groups, X - self.state.scores.centre[groups], begun)
        relearnt = self.consider_categories()
        if relearnt:
            used, touched = np.array(sorted(touched | relearnt)), touched | relearnt
        return self.finish(used, touched, n_before)

    def _forget(self, used: Labels, sizes: Labels) -> set[int]:
        """Forget old outliers of some mixtures, and what they have no memory for when they learn
        `sizes` rows. Return the mixtures that forgot outliers.
        """
        touched: set[int] = set()
        if not any(self.has_begun):
            return touched
        for g in used[count_stale(self.state, used) >= OUTLIERS]:
            self.mixtures[g]._forget_outliers()
            touched.add(int(g))
        limits = [self.mixtures[g].memory for g in used]
        most = np.array([math.inf if limit is None else limit for limit in limits])
        too_many = self.state.n[used] + sizes > most
        for g, size in zip(used[too_many], sizes[too_many]):
            if self.has_begun[g]:
                self.mixtures[g]._make_room(int(size))
        return touched

    def _welcome(self, groups: Labels, X: Array, used: Labels) -> set[int]:
        """Let mixtures begin that learn their first row, and those of bits begin again if X are not
        bits. Return the latter.
        """
        touched: set[int] = set()
        for g in used if not all(self.has_begun) else ():
            if not self.has_begun[g]:
                self.mixtures[g]._reset(X[groups == g])
        if self.state.bits[used].any() and not _are_bits(X):
            for g in used[self.state.bits[used]]:
                if not _are_bits(X[groups == g]):
                    self.mixtures[g]._restart(X[groups == g])
                    touched.add(int(g))
        return touched

    # --- whole numbers, which may stand for categories --------------------------------------------
    @property
    def values(self) -> Array | None:
        """Numbers that stand for categories, None if observations are not categories."""
        return self.coding.values

    def coded(self, X: Array) -> Array:
        """Return observations as the mixtures see them."""
        return X if self.values is None else one_hot(X, self.values)

    def recode(self, groups: Labels, X: Array) -> set[int]:
        """Take note of the numbers in X, before they are learnt. If they are categories that were
        not seen before, or no categories, learn the past again. Return the mixtures that did.
        """
        if self.values is not None:
            _check_size(X)
        before, now = self.coding, self.coding.with_numbers(X)
        now = now._replace(n=before.n + int(np.bincount(groups).max()))
        if before.values is now.values or not any(self.has_begun):
            self.coding = now
            return set()
        return self._replace_by(self._relearnt(now))

    def consider_categories(self) -> set[int]:
        """Take observations for categories from now on, if that explains them better. Return the
        mixtures that learnt the past again.

        This is decided whenever the mixtures have seen twice as much. It compares how probable the
        numbers are, as categories and as quantities, each with the labels found that way. Mixtures
        whose observations repeat have no noise, and labels are right in any case: if that is true
        for half of them, nothing changes.
        """
        if self.values is not None or not self.coding.is_due():
            return set()
        self.coding = self.coding._replace(due=2 * self.coding.n)
        other = MixtureBank([clone(mixture) for mixture in self.mixtures])
        other.coding = self.coding.with_values()
        samples = []
        for old, new, begun in zip(self.mixtures, other.mixtures, self.has_begun):
            if begun:
                rows = np.random.default_rng(old._n).permutation(old._n)[:MAX_CATEGORY_ROWS]
                samples.append((old._observations()[rows], old._z[rows], new))
        noisy = [each for each in samples if _rarely_repeat(each[0])]
        if 2 * len(noisy) <= len(samples):
            return set()
        gain, more = 0.0, 0
        for x, z, new in noisy:
            new._learn_again(x)
            gain += category_evidence(x, new._z) + label_evidence(new._z, new.concentration)
            gain -= quantity_evidence(x, z) + label_evidence(z, new.concentration)
            more += new.n_labels_ - 1
        return self._replace_by(self._relearnt(other.coding)) if more and gain > 0 else set()

    def _relearnt(self, coding: Coding) -> MixtureBank:
        """Return mixtures that learnt the same observations by another coding."""
        other = MixtureBank([clone(mixture) for mixture in self.mixtures], self._rows)
        other.coding = coding
        for old, new, begun in zip(self.mixtures, other.mixtures, self.has_begun):
            if begun:
                new._learn_again(old._observations())
                new._accept(new._clustering(_renamed(old._z, new._z)))
        return other

    def _replace_by(self, other: MixtureBank) -> set[int]:
        """Take over what other mixtures learnt from the same observations. Return which did."""
        begun = {g for g, has_begun in enumerate(self.has_begun) if has_begun}
        for g in begun:
            mixture = self.mixtures[g]
            before, forgotten = mixture._labels_before(), mixture._forgotten
            for name, value in vars(other.mixtures[g]).items():
                setattr(mixture, name, value)
            mixture._bank, mixture._before, mixture._forgotten = self, before, forgotten
        self.state, self.coding = other.state, other.coding
        return begun

    def learn_rows(self, groups: Labels, rows: Array, begun: Begun | None = None) -> set[int]:
        """Learn from rows without the centre. Return the mixtures that needed attention.

        begun: see `learn`.
        """
        _check_size(rows)
        most = int(np.bincount(groups).max())
        self.reserve(rows=int(self.state.n[groups].max()) + most)
        touched = set()
        moved, shaped = np.empty(DOUBTS, np.int64), np.empty((1, rows.shape[1]))
        last = Begun(0, False, moved[:0], False) if begun is None else begun
        while True:
            if last.stopped:
                g = int(groups[last.rows - 1])
                self.mixtures[g]._attend(last.is_new, last.moved)
                touched.add(g)
            if last.rows == len(rows):
                return touched
            given = self.state, groups, rows, shaped, False, last.rows, moved
            i, is_new, size, stopped = learn_rows(*given)
            last = Begun(i, is_new, moved[:size], stopped)

    def finish(self, used: Labels, touched: set[int], n_before: Labels | None = None) -> list[int]:
        """Update the scores and the labels that mixtures report after they have learnt."""
        n_before = np.zeros(len(self.mixtures), np.int64) if n_before is None else n_before
        doubted = used[update_scores(self.state, used)]
        for mixture in self._changed:
            mixture._changed = NONE
        changed = sorted(touched.union(map(int, doubted)))
        self._changed = [self.mixtures[g] for g in changed]
        for g in changed:
            self.mixtures[g]._report(int(n_before[g]))
        return changed

    def keep(self, g: int, rows: Labels) -> None:
        """Forget all rows of mixture g but some, in ascending order."""
        state, n = self.state, len(rows)
        arrays = [state.raw, state.z] if state.x is state.raw else [state.raw, state.x, state.z]
        for array in arrays:
            array[g, :n] = array[g, rows]
        x = state.x[g, :n].astype(np.float64)
        state.square[g] = np.vdot(x, x)
        state.due[g] -= state.n[g] - n
        state.n[g], state.doubts[g] = n, 0
        state.born[g] = np.where(state.born[g] < 0, -1, np.searchsorted(rows, state.born[g]))

    def last_labels(self, groups: Labels) -> Labels:
        """Return the labels (m,) of the observations of the last call of `learn`.

        groups: as they were in that call.
        """
        counts = np.bincount(groups, minlength=len(self.mixtures))
        order = np.argsort(groups, kind="stable")
        rows = np.empty_like(groups)  # of each observation, in its mixture
        rows[order] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - self.state.n, counts)
        labels = np.asarray(self.state.z[groups, rows])
        for mixture in self._changed:
            n = counts[mixture._g]
            if n:
                labels[groups == mixture._g] = mixture._shown[-n:]
        return labels


class Begun(NamedTuple):
    """What a compiled loop has learnt of the last observations, and why it stopped."""

    rows: int  # how many are learnt
    is_new: bool  # whether the last one has a new label
    moved: Labels  # rows of its mixture that should have one together
    stopped: bool  # whether it needs attention


class Coding(NamedTuple):
    """How a bank sees whole numbers: as they are, or as categories."""

    values: Array | None = None  # what stands for categories
    is_possible: bool = True  # whether all numbers so far could be categories
    low: float = math.inf  # the smallest number so far, and the largest
    high: float = -math.inf
    n: int = 0  # observations of a mixture so far
    due: int = MIN_CATEGORY_ROWS  # observations when it is decided the next time

    def with_numbers(self, X: Array) -> Coding:
        """Return the coding after more observations."""
        if not self.is_possible:
            return self
        low, high = min(self.low, float(X.min())), max(self.high, float(X.max()))
        v = high - low + 1
        if v > min(MAX_VALUES, MAX_CATEGORY_BITS / X.shape[1]) or not (np.rint(X) == X).all():
            return self._replace(values=None, is_possible=False)
        seen = self._replace(low=low, high=high)
        is_known = self.values is None or (low, high) == (self.low, self.high)
        return seen if is_known else seen.with_values()

    def with_values(self) -> Coding:
        """Return the coding that takes all numbers in the range for categories."""
        return self._replace(values=np.arange(self.low, self.high + 1))

    def is_undecided(self) -> bool:
        """Whether it is still to be decided about categories; bits need no decision."""
        return self.is_possible and self.high - self.low > 1

    def is_due(self) -> bool:
        """Whether to decide about categories now."""
        return self.is_undecided() and self.n >= self.due


def label_evidence(z: Labels, concentration: float) -> float:
    """Return the log probability of labels under a Dirichlet process, up to a constant."""
    n = np.bincount(z)
    n = n[n > 0]
    return float(len(n) * math.log(concentration) + gammaln(n).sum())


def category_evidence(x: Array, z: Labels) -> float:
    """Return the log probability of categories x (n, d), given their labels z (n,).

    The shares of the categories of a coordinate have Jeffreys' prior. Those that do not occur in x
    do not count.
    """
    n, total = np.bincount(z), 0.0
    for column in x.T:
        values, which = np.unique(column, return_inverse=True)
        counts = np.zeros((len(n), len(values)))
        np.add.at(counts, (z, which), 1)
        total += (gammaln(counts + 0.5) - gammaln(0.5)).sum()
        total += (gammaln(len(values) / 2) - gammaln(n + len(values) / 2)).sum()
    return float(total)


def quantity_evidence(x: Array, z: Labels) -> float:
    """Return the log probability of whole numbers x (n, d), given their labels z (n,), as normal
    numbers whose variance depends on the coordinate alone.

    Each mean costs half a logarithm. Coordinates with a single value do not count.
    """
    x = x[:, (x != x[0]).any(axis=0)]
    n = np.bincount(z)
    means = label_sums(x.astype(np.float32), z, len(n)) / np.maximum(n, 1)[:, None]
    squares = ((x - means[z]) ** 2).sum(axis=0)
    degrees = max(len(x) - np.count_nonzero(n), 1)
    variance = np.maximum(squares / degrees, UNIT_DENSITY)
    fit = -0.5 * (len(x) * np.log(2 * math.pi * variance) + squares / variance).sum()
    return float(fit - 0.5 * x.shape[1] * (np.log(n + 1).sum() + math.log(len(x))))


def trusting(predictor: Any, oracle: Any) -> Any:
    """Return a predictor that gives only labels which its oracle trusts.

    Parameters
    ----------
    predictor : Predictor
        What an oracle has learnt.
    oracle : estimator
        The oracle.

    Returns
    -------
    Predictor
        The predictor itself, unless it is the scores of a `DirichletMixture`.
    """
    is_linear = isinstance(predictor, LinearScores | ClippedScores | CategoricalScores)
    if not (is_linear and hasattr(oracle, "trusted_labels")):
        return predictor
    return replace(predictor, b=np.where(oracle.trusted_labels(), predictor.b, -np.inf))


def bounded(oracle: Any, memory: int | None, n: int) -> Any:
    """Return one of n clones of an incremental oracle, which share a memory.

    Parameters
    ----------
    oracle : IncrementalOracle
        If it is a `DirichletMixture` without a memory of its own, the clone gets its share.
    memory : int or None
        Observations that all n keep together.
    n : int
        Number of clones.

    Returns
    -------
    IncrementalOracle
        The clone.
    """
    oracle = clone(oracle)
    is_mixture = hasattr(oracle, "trusted_labels")
    if is_mixture and memory is not None and getattr(oracle, "memory", 0) is None:
        oracle.memory = max(int(memory) // n, 1)
    return oracle


class _Forgotten(NamedTuple):
    """Labels of all observations at the time when some were forgotten."""

    kept: Labels  # indices of those that were not forgotten; their labels may be outdated
    labels: Labels

    def following(self, before: Labels, now: Labels) -> _Forgotten:
        """Give forgotten observations the label that most rows of their label have now."""
        gone = np.ones(len(self.labels), np.bool_)
        gone[self.kept] = False
        labels = self.labels.copy()
        for k in np.unique(labels[gone]):
            if (before == k).any():
                labels[gone & (self.labels == k)] = np.bincount(now[before == k]).argmax()
        return _Forgotten(self.kept, labels)


class _Clustering(NamedTuple):
    """Labels of all rows, their statistics, their evidence, and the model that maximises it."""

    z: Labels
    clusters: Clusters
    score: float
    model: Model

    @property
    def n_labels(self) -> int:
        """Number of labels in use."""
        return int(np.count_nonzero(self.clusters.counts))


def _smaller_product(deviations: Array) -> Array:
    """Return D'D or DD', which have the same eigenvalues but for zeros."""
    n, d = deviations.shape
    return deviations.T @ deviations if d < n else deviations @ deviations.T


def _outer_products(x: Array) -> Array:
    """Return x'x. For few rows, a copy makes it faster: of a matrix and itself, numpy computes one
    half, and then copies it number by number.
    """
    return np.asarray(x.T @ (x.copy() if len(x) < 500 else x))


def _differ(one: Array | None, other: Array | None) -> bool:
    """Whether two shapes differ by more than a tenth in some direction."""
    if one is None or other is None:
        return one is not other
    if np.array_equal(one, other):
        return False
    return _are_apart(one.tobytes(), other.tobytes(), len(one))


@lru_cache(maxsize=2)  # all levels compare the same two when they share another shape
def _are_apart(one: bytes, other: bytes, d: int) -> bool:
    A, B = (np.frombuffer(each).reshape(d, d) for each in (one, other))
    M = np.linalg.solve(A, B)
    squares = np.linalg.eigvalsh(M.T @ M)
    return bool(squares[-1] > 1.1**2 or squares[0] < 1.1**-2)


def _check_size(rows: Array) -> None:
    if not (np.einsum("ij,ij->i", rows, rows) < 1e36).all():
        raise ValueError("observations contain numbers beyond 1e18: scale them down")


def _is_better(one: _Clustering, other: _Clustering) -> bool:
    return one.score > other.score + 1e-9 * abs(other.score)


def _renamed(old: Labels, new: Labels) -> Labels:
    """Rename the labels of a new clustering so that as many rows as possible keep their label."""
    n = int(max(old.max(), new.max())) + 1
    together = np.zeros((n, n), np.int64)
    np.add.at(together, (new, old), 1)
    rows, names = linear_sum_assignment(-together)
    renamed = np.empty(n, np.int64)
    renamed[rows] = names
    return np.asarray(renamed[new], np.int64)


def _cut(tree: Array, K: int) -> Labels:
    """Return the labels of the rows after all but the last K - 1 mergers of a tree."""
    n = len(tree) + 1
    root = np.arange(2 * n - K)
    for i in range(n - K - 1, -1, -1):
        root[tree[i]] = root[n + i]
    first, labels = np.unique(root[:n], return_index=True, return_inverse=True)[1:]
    return np.asarray(np.argsort(np.argsort(first))[labels], np.int64)


def _rarely_repeat(x: Array) -> bool:
    return len(np.unique(x, axis=0)) >= MIN_DISTINCT * len(x)


def _are_bits(X: Array) -> bool:
    return bool(((X == 0.0) | (X == 1.0)).all())
