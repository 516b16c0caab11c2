"""A mixture that gains labels as it sees more data: MAP-DP (Raykov et al. 2016), online."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.checks import check_integer
from blockmdp.oracles._dirichlet import (
    Clusters,
    Model,
    Predictive,
    assign,
    best_cut,
    evidence,
    linear_scores,
    map_sweeps,
    nearest,
)
from blockmdp.oracles._noise import MIN_DEGREES, modes, whitening
from blockmdp.oracles.mixtures import best_split

__all__ = ["DirichletMixture"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

SWEEPS = 5  # passes over the data before the evidence is compared
MIN_ROWS = 3  # rows that confirm a label
TRIAL = 50  # rows for which a new label is trusted
MAX_TREE = 200  # most observations of which all pairs are compared
NONE = np.zeros(0, np.int64)
NONE.setflags(write=False)


class DirichletMixture(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Dirichlet process mixture that can learn online.

    A mixture of Gaussians that share one covariance, or of independent bits if all observations are
    zeros and ones. It finds the number of labels itself, and in many dimensions it recognises a
    new state at its first observation. Where small labels do not grow, it takes them for outliers.

    `fit` learns from a data set. `partial_fit` adds observations to those seen before. A label
    keeps its number as long as it has observations. Whenever the data have grown by half, labels
    are merged or split where that is more probable, so earlier observations can get another label.

    Parameters
    ----------
    concentration : float, default=0.01
        Concentration alpha of the Dirichlet process. Smaller values give fewer labels.
    max_labels : int, default=200
        Largest number of labels.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Labels of all observations so far. Outliers have the label that is closest.
    n_labels_ : int
        Number of labels: one more than the largest in use.
    evidence_ : float
        Log probability of the data and their labels, up to a constant.
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

    def __init__(self, concentration: float = 0.01, max_labels: int = 200) -> None:
        self.concentration = concentration
        self.max_labels = max_labels

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
        self._reset(X)
        for row in X - self._centre:
            self._store(row)
            self._z[self._n - 1] = 0
        self._accept(self._clustering(self._z[: self._n]))
        self._reconsider()
        self._update_scores()
        self._n_before = 0
        self._report()
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
        first = not hasattr(self, "_x")
        X = self._validated(X, reset=first)
        if first:
            self._reset(X)
        self._n_before, self._labels_before = self._n, None
        if self._model.bits and not _are_bits(X):  # not bits after all, so start again
            past, labels = self._raw[: self._n].astype(np.float64), self.labels_.copy()
            self._reset(np.concatenate([past, X]))
            self._labels_before = labels
            for row in past - self._centre:
                self._learn(row)
        for row in X - self._centre:
            self._learn(row)
        self._update_scores()
        self._report()
        return self

    def changed_labels(self) -> Labels:
        """Return which earlier observations the last `partial_fit` relabelled.

        Returns
        -------
        ndarray of shape (m,)
            Their indices in `labels_`, in ascending order.
        """
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
        if not hasattr(self, "_x") or self._model.bits:
            return np.zeros((0, 0)), 0
        return self._scatter(self._z[: self._n])

    def share_noise(self, T: Array | None) -> None:
        """Take over the shape of the noise from other data, from the next `partial_fit` on.

        Parameters
        ----------
        T : ndarray of shape (d, d) or None
            Matrix for which the noise of x T is round. None forgets it.
        """
        self._shared = T
        self._n_reconsidered = 0

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
        if not hasattr(self, "n_labels_"):  # `check_is_fitted` alone takes longer than the rest
            check_is_fitted(self, "n_labels_")
        X = self._validated(X, reset=False)
        return np.asarray(nearest(X, self._centre, *self._linear_scores), np.int64)

    def linear_scores(self) -> tuple[Array, Array]:
        """Return the linear scores by which `predict` chooses labels.

        Returns
        -------
        W : ndarray of shape (n_labels, d)
            Weights.
        b : ndarray of shape (n_labels,)
            Intercepts: the label of x is the k with the largest W[k] . x + b[k].
        """
        check_is_fitted(self, "n_labels_")
        W, b = (scores[: self.n_labels_] for scores in self._linear_scores)
        return W, b - W @ self._centre

    @property
    def labels_(self) -> Labels:
        """Labels of all observations so far."""
        labels = self._reported[: self._n]
        labels.setflags(write=False)
        return labels

    @property
    def evidence_(self) -> float:
        """Log probability of the data and their labels, up to a constant."""
        return float(evidence(self._model, self._clusters, self._square)[0])

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

    # --- learning ---------------------------------------------------------------------------------
    def _reset(self, X: Array) -> None:
        """Forget everything, and choose the kind of mixture for the data X."""
        check_integer("max_labels", self.max_labels, 1)
        alpha = self.concentration
        if not (isinstance(alpha, int | float) and 0 < alpha < math.inf):
            raise ValueError(f"concentration must be a number > 0, got {alpha!r}")
        d = X.shape[1]
        bits = _are_bits(X)
        ratio = min(3.0 / d, 0.5) if bits else 1.0
        self._model = Model(bits, float(d), ratio, 1.0, math.log(alpha))
        self._centre = np.zeros(d) if bits else X[0].copy()  # subtracted, for precision
        self._n = self._n_reconsidered = 0
        self._raw, self._z = np.empty((16, d), np.float32), np.empty(16, np.int64)
        self._T: Array | None = None  # makes the noise of the rows x T round
        self._x = self._raw  # the rows after T
        self._square = 0.0
        self._reported = self._z  # the same array as long as no label is hidden
        K = min(2, self.max_labels)
        self._born = np.full(K, -1, np.int64)
        self._clusters = Clusters(np.zeros(K, np.int64), np.zeros((K, d)))
        self._reset_predictions()
        self.n_labels_ = 0
        # for `changed_labels`: the number of earlier rows, and their labels before the first change
        self._n_before, self._labels_before = 0, None
        self._changed = NONE

    _labels_before: Labels | None
    _shared: Array | None = None  # shape of the noise in other data

    def _store(self, row: Array) -> None:
        if self._n == len(self._raw):
            rows = [np.concatenate([x, np.empty_like(x)]) for x in (self._raw, self._x)]
            self._x = rows[0] if self._x is self._raw else rows[1]
            self._raw = rows[0]
            z = np.concatenate([self._z, np.empty_like(self._z)])
            self._reported = (
                z if self._reported is self._z else np.concatenate([self._reported, self._z])
            )
            self._z = z
        if not float(np.dot(row, row)) < 1e36:
            raise ValueError("observations contain numbers beyond 1e18: scale them down")
        self._raw[self._n] = row
        if self._T is not None:
            row = row @ self._T
            self._x[self._n] = row
        square = float(np.dot(row, row))
        self._square += square
        self._n += 1

    def _learn(self, row: Array) -> None:
        """Give an observation its most probable label, which can be a new one."""
        self._store(row)
        i = self._n - 1
        self._z[i], is_new, self._model = assign(
            self._model, self._clusters, self._x[i], self._square, *self._predictions
        )
        if is_new:
            self._count_labels()
        if self._n >= 1.5 * self._n_reconsidered:
            self._reconsider()
        elif is_new:
            self._accept(self._swept(self._current()))

    def _current(self) -> _Clustering:
        clusters = Clusters(self._clusters.counts.copy(), self._clusters.sums.copy())
        return self._scored(self._z[: self._n].copy(), clusters)

    def _accept(self, new: _Clustering) -> None:
        if self._labels_before is None:
            self._labels_before = self._z[: self._n_before].copy()
        self._z[: self._n], self._clusters, self._model = new.z, new.clusters, new.model
        self._count_labels()
        self._reset_predictions()

    def _count_labels(self) -> None:
        """Update `n_labels_`, and keep at least one unused label if `max_labels` allows."""
        counts, sums = self._clusters
        K, d = sums.shape
        self.n_labels_ = int(np.flatnonzero(counts)[-1]) + 1
        born = np.full(K, -1)
        born[: len(self._born)] = self._born[:K]
        self._born = np.where(counts == 0, -1, np.where(born < 0, self._n, born))
        if (counts > 0).all() and self.max_labels > K:
            more = min(2 * K, self.max_labels) - K
            self._clusters = Clusters(
                np.concatenate([counts, np.zeros(more, np.int64)]),
                np.concatenate([sums, np.zeros((more, d))]),
            )
            self._born = np.concatenate([self._born, np.full(more, -1)])
            self._reset_predictions()

    def _reset_predictions(self) -> None:
        """Make room for what `assign` keeps: the labels' predictions, and which are current."""
        K, d = self._clusters.sums.shape
        predictions = Predictive(np.zeros((K, d)), np.zeros(K), np.zeros(K))
        self._predictions = predictions, np.zeros(K, np.bool_)

    # --- finding a more probable clustering -------------------------------------------------------
    def _reconsider(self) -> None:
        """Merge and split labels as long as that makes the data more probable."""
        self._n_reconsidered = self._n
        for _ in range(6):
            now = self._swept(self._current())
            self._accept(now)
            better = True
            while better:
                better, now = False, self._current()
                for z in itertools.chain(self._mergers(now), self._splits(now), self._cuts(now)):
                    other = self._swept(self._clustering(z))
                    if _is_better(other, now):
                        better = True
                        self._accept(other)
                        break
            if not self._learn_noise(now) and not self._split_modes():
                break

    def _learn_noise(self, now: _Clustering) -> bool:
        """Learn the shape of the noise. Return whether the labels should be reconsidered."""
        if self._model.bits:
            return False
        T = self._shape(now.z)
        reshaped = _differ(T, self._T)
        if reshaped:
            self._reshape(T, now.z)
            now = self._current()
        before, dim = self._model.dim, self._noise_dimensions(now)
        self._model = self._model._replace(dim=dim)
        return reshaped or abs(dim - before) >= 0.1 * before

    def _split_modes(self) -> bool:
        """Split a label together with a new shape of the noise, if that is more probable.

        If a label contains several states, its covariance contains the distances between them, and
        seen through it they are not worth a label each.
        """
        now, T = self._current(), self._T
        unused = np.flatnonzero(now.clusters.counts == 0)
        large = np.flatnonzero(now.clusters.counts >= MIN_DEGREES * self._x.shape[1])
        for k in large if T is not None and len(unused) else ():
            rows = np.flatnonzero(now.z == k)
            for part in modes(self._x[rows].astype(np.float64)):
                z = now.z.copy()
                z[rows[part]] = unused[0]
                self._reshape(self._shape(z), z)
                other = self._swept(self._current())
                if _is_better(other, now):
                    self._accept(other)
                    return True
                self._reshape(T, now.z)
        return False

    def _shape(self, z: Labels) -> Array | None:
        """Return the shape that others share, corrected by what this data set tells."""
        scatter, degrees = self._scatter(z)
        T = self._shared
        if degrees < MIN_DEGREES * len(scatter):
            return T
        if T is None:
            return whitening(scatter, degrees)
        own = whitening(T.T @ scatter @ T, degrees)
        return T if own is None else T @ own

    def _scatter(self, z: Labels) -> tuple[Array, int]:
        """Return the sum of the outer products of the deviations from the labels' means, and its
        degrees of freedom.
        """
        x = self._raw[: self._n].astype(np.float64)
        counts = np.bincount(z)
        sums = np.zeros((len(counts), x.shape[1]))
        np.add.at(sums, z, x)
        x -= (sums / np.maximum(counts, 1)[:, None])[z]
        return x.T @ x, self._n - int(np.count_nonzero(counts))

    def _reshape(self, T: Array | None, z: Labels) -> None:
        """Look at all rows through another T, with the labels z."""
        self._T = T
        self._x, x = self._raw, self._raw[: self._n].astype(np.float64)
        if T is not None:
            x = x @ T
            self._x = np.empty_like(self._raw)
            self._x[: self._n] = x
        self._square = float(np.vdot(x, x))
        self._accept(self._clustering(z.copy()))

    def _update_scores(self) -> None:
        W, b = linear_scores(self._model, self._clusters)
        self._hidden = self._doubtful()
        b[self._hidden] = -np.inf
        self._linear_scores = (W if self._T is None else W @ self._T.T), b

    def _doubtful(self) -> NDArray[np.bool_]:
        """Return which labels are hidden: those of a few rows, if such labels are outliers here.

        A new label is trusted at first. If more labels stayed small than grew, small labels are
        taken for outliers, and a new label is used only when it has enough rows.
        """
        counts = self._clusters.counts
        few = (counts > 0) & (counts < MIN_ROWS)
        stayed = np.count_nonzero(few & (self._n - self._born >= TRIAL))
        grew = np.count_nonzero(counts >= MIN_ROWS)
        return few if stayed > grew + 1 and grew else np.zeros_like(few)

    def _report(self) -> None:
        """Update `labels_` and what has changed in it. Rows of hidden labels get the next best."""
        before = self._labels_before
        if self._reported is not self._z:
            before = self._reported[: self._n_before].copy()
        self._reported = self._z
        if self._hidden.any():
            before = self._z[: self._n_before] if before is None else before
            rows = np.flatnonzero(self._hidden[self._z[: self._n]])
            self._reported = self._z.copy()
            x = self._raw[rows].astype(np.float64)
            self._reported[rows] = nearest(x, np.zeros(x.shape[1]), *self._linear_scores)
        self._changed = NONE
        if before is not None:
            self._changed = np.flatnonzero(before != self._reported[: len(before)])

    def _noise_dimensions(self, now: _Clustering) -> float:
        """Estimate the number of dimensions that the noise fills: tr(C)^2 / tr(C^2) for its
        covariance C. With few data, it is the number of coordinates.
        """
        counts, sums = now.clusters
        n, d = self._n, self._x.shape[1]
        degrees = n - np.count_nonzero(counts)
        if self._model.bits or degrees < 2:
            return float(d)
        used = np.maximum(counts, 1)[:, None]
        x = self._x[:n] - (sums / used)[now.z]
        S = (x.T @ x if d < n else x @ x.T) / degrees
        trace = np.trace(S)
        if trace <= 0:
            return float(d)
        square = (S**2).sum() - trace**2 / degrees  # unbiased (Bai and Saranadasa 1996)
        square *= degrees**2 / ((degrees + 2) * (degrees - 1))
        square = (degrees * square + 10 * trace**2 / d) / (degrees + 10)
        return float(np.clip(trace**2 / max(square, 1e-300), 1.0, d))

    def _swept(self, now: _Clustering) -> _Clustering:
        """Sweep over the rows as long as that makes the data more probable."""
        while True:
            z = now.z.copy()
            clusters = Clusters(now.clusters.counts.copy(), now.clusters.sums.copy())
            moves = map_sweeps(now.model, self._x[: self._n], z, clusters, SWEEPS)
            if moves == 0:
                return now
            after = self._scored(z, clusters)
            if not _is_better(after, now):
                return now
            now = after

    def _clustering(self, z: Labels) -> _Clustering:
        room = min(int(z.max()) + 2, self.max_labels)
        counts = np.bincount(z, minlength=max(len(self._clusters.counts), room))
        sums = np.zeros((len(counts), self._x.shape[1]))
        for k in np.flatnonzero(counts):
            sums[k] = self._x[: self._n][z == k].sum(axis=0, dtype=np.float64)
        return self._scored(z, Clusters(counts, sums))

    def _scored(self, z: Labels, clusters: Clusters) -> _Clustering:
        return _Clustering(z, clusters, *evidence(self._model, clusters, self._square))

    def _mergers(self, now: _Clustering) -> Iterator[Labels]:
        """Yield labels in which two are merged into the larger, where that is more probable."""
        used = np.flatnonzero(now.clusters.counts)
        for i, k in enumerate(used):
            for other in used[i + 1 :]:
                counts, sums = now.clusters.counts.copy(), now.clusters.sums.copy()
                kept, gone = (k, other) if counts[k] >= counts[other] else (other, k)
                counts[kept] += counts[gone]
                sums[kept] += sums[gone]
                counts[gone], sums[gone] = 0, 0.0
                if evidence(self._model, Clusters(counts, sums), self._square)[0] > now.score:
                    yield np.where(now.z == gone, kept, now.z)

    def _splits(self, now: _Clustering) -> Iterator[Labels]:
        """Yield labels in which part of one becomes a new one, where that is more probable."""
        counts = now.clusters.counts
        unused = np.flatnonzero(counts == 0)
        for k in np.flatnonzero(counts > 1) if len(unused) else ():
            rows = np.flatnonzero(now.z == k)
            x = self._x[rows].astype(np.float64)
            farthest = ((x - x.mean(axis=0)) ** 2).sum(axis=1).argmax()
            for part in (best_split(self._model.bits, x, 1.0)[1], np.arange(len(x)) == farthest):
                smaller = part if 2 * part.sum() <= len(part) else ~part
                z = now.z.copy()
                z[rows[smaller]] = unused[0]
                if self._clustering(z).score > now.score:
                    yield z

    def _cuts(self, now: _Clustering) -> Iterator[Labels]:
        """Yield the most probable cut through Ward's tree, if it is more probable.

        With many states and few observations, splitting one label into many can pay where
        splitting it into two does not.
        """
        if not 3 <= self._n <= MAX_TREE:
            return
        x = self._x[: self._n]
        tree = linkage(pdist(x), "ward")
        K, score = best_cut(self._model, x, tree, self._square)
        if score > now.score and self.max_labels >= K:
            yield _renamed(now.z, cut_tree(tree, K)[:, 0].astype(np.int64))


class _Clustering(NamedTuple):
    """Labels of all rows, their statistics, their evidence, and the model that maximises it."""

    z: Labels
    clusters: Clusters
    score: float
    model: Model


def _differ(one: Array | None, other: Array | None) -> bool:
    """Whether two shapes differ by more than a tenth in some direction."""
    if one is None or other is None:
        return one is not other
    ratios = np.linalg.svd(np.linalg.solve(one, other), compute_uv=False)
    return bool(ratios[0] > 1.1 or ratios[-1] < 1 / 1.1)


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


def _are_bits(X: Array) -> bool:
    return bool(((X == 0.0) | (X == 1.0)).all())
