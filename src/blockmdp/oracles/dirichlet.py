"""A mixture that grows with the data: a label is born when an observation is unlike all before."""

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
from blockmdp.oracles._dirichlet import assign, best_cut, evidence, map_sweeps, nearest, scores
from blockmdp.oracles.mixtures import best_split

__all__ = ["DirichletMixture"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


class DirichletMixture(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """A Dirichlet process mixture of Gaussians that share one variance, or of independent bits, by
    maximum a posteriori (MAP-DP: Raykov, Boukouvalas, Baig, Little 2016).

    Means, noise and scale are integrated out, so that clusterings with few and with many labels can
    be compared: the number of labels is that of the most probable one found. In many dimensions a
    single observation of something new is enough to know it.

    It can be fitted as any clusterer, or online: `partial_fit` takes in what was seen last, and
    `labels_` says what it makes of everything seen so far. A label keeps its number for as long as
    it has observations. When the data have grown by half, all of them are looked at again: labels
    are merged or split where that is more probable.

    Parameters
    ----------
    concentration : alpha; the smaller, the less willingly a label is born.
    max_labels : there are never more.

    Attributes
    ----------
    labels_ : of all observations so far, (n,).
    n_labels_ : one more than the largest label.
    evidence_ : the log probability of the data and their labels, up to a constant.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.comblock(horizon=100)
    >>> live, dead = m.sample(level=50, state=0, n=1), m.sample(level=50, state=2, n=20)
    >>> oracle = DirichletMixture().partial_fit(dead)
    >>> oracle.n_labels_
    1
    >>> int(oracle.partial_fit(live).labels_[-1])
    1
    """

    def __init__(self, concentration: float = 0.01, max_labels: int = 200) -> None:
        self.concentration = concentration
        self.max_labels = max_labels

    def fit(self, X: Any, y: None = None) -> DirichletMixture:
        """Learn from observations X (n, d), and nothing else."""
        X = validate_data(self, X, dtype=np.float64)
        self._begin(X)
        for row in X - self._centre:
            self._append(row)
            self._z[self._n - 1] = 0
        self._keep(self._clustering(self.labels_))
        self._reconsider()
        return self

    def partial_fit(self, X: Any, y: None = None) -> DirichletMixture:
        """Learn from observations X (n, d) on top of all before, in their order."""
        first = not hasattr(self, "_x")
        X = self._validated(X, reset=first)
        if first:
            self._begin(X)
        self._earlier, self._before = self._n, None
        if self._bits and not _are_bits(X):  # so they were numbers after all
            past, labels = self._x[: self._n].astype(np.float64), self.labels_.copy()
            self._begin(np.concatenate([past, X]))
            self._before = labels
            for row in past - self._centre:
                self._add(row)
        for row in X - self._centre:
            self._add(row)
        before = self._z[:0] if self._before is None else self._before
        self._changed = np.flatnonzero(before != self._z[: len(before)])
        return self

    def changed_labels(self) -> NDArray[np.int64]:
        """Return which earlier observations got another label in the last `partial_fit`."""
        return self._changed

    def predict(self, X: Any) -> Labels:
        """The label of each observation, (n,): the nearest, however rare it was."""
        check_is_fitted(self, "_x")
        X = self._validated(X, reset=False)
        if self._reading is None:
            self._reading = self._scores()
        return np.asarray(nearest(X, self._centre, *self._reading), np.int64)

    def _validated(self, X: Any, *, reset: bool) -> Array:
        """X as (n, d) finite float64; arrays that clearly are need no long look, online."""
        if (
            not reset
            and isinstance(X, np.ndarray)
            and X.ndim == 2
            and X.dtype.kind in "fiu"
            and X.shape == (len(X) or -1, self.n_features_in_)
            and np.isfinite(X).all()
        ):
            return X.astype(np.float64, copy=False)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=reset), np.float64)

    def fit_predict(self, X: Any, y: None = None) -> Labels:
        return self.fit(X).labels_

    @property
    def labels_(self) -> Labels:
        labels = self._z[: self._n]
        labels.setflags(write=False)
        return labels

    n_labels_ = 0
    _changed = np.zeros(0, np.int64)
    _reading: tuple[Array, Array] | None = None
    _before: Labels | None = None  # the labels of earlier rows, before this `take` changed any

    @property
    def evidence_(self) -> float:
        return float(self._evidence(self._counts, self._sums)[0])

    def scores(self) -> tuple[Array, Array]:
        """W (labels, d) and b (labels,): the largest of W x + b tells the label."""
        W, b = self._scores()
        return W, b - W @ self._centre

    def _scores(self) -> tuple[Array, Array]:
        """The same for rows from which the centre was taken."""
        K = self.n_labels_
        W, b = scores(self._bits, self._counts[:K], self._sums[:K], self._ratio)
        return W, b

    # --- learning ---------------------------------------------------------------------------------
    def _begin(self, X: Array) -> None:
        """Forget everything. Numbers are kept as differences from the first row."""
        check_integer("max_labels", self.max_labels, 1)
        alpha = self.concentration
        if not (isinstance(alpha, int | float) and 0 < alpha < math.inf):
            raise ValueError(f"concentration must be a number above 0, got {alpha!r}")
        d = X.shape[1]
        self._bits = _are_bits(X)
        self._centre = np.zeros(d) if self._bits else X[0].copy()
        self._n = self._reconsidered = 0
        self._earlier, self._before = 0, None
        self._x, self._z = np.empty((16, d), np.float32), np.empty(16, np.int64)
        K = min(2, self.max_labels)
        self._counts, self._sums = np.zeros(K, np.int64), np.zeros((K, d))
        self._square, self._dim, self._ratio, self._noise = 0.0, float(d), 1.0, 1.0
        self._reading = None
        self._forget_beliefs()

    def _append(self, row: Array) -> None:
        if self._n == len(self._x):
            self._x = np.concatenate([self._x, np.empty_like(self._x)])
            self._z = np.concatenate([self._z, np.empty_like(self._z)])
        square = float(np.dot(row, row))
        if not square < 1e36:
            raise ValueError("observations have numbers beyond 1e18: scale them down")
        self._x[self._n] = row
        self._square += square
        self._n += 1

    def _add(self, row: Array) -> None:
        """Give an observation the likeliest label, or one of its own."""
        self._append(row)
        i = self._n - 1
        self._z[i], born, self._ratio, self._noise = assign(
            self._bits, self._x[i], self._counts, self._sums, self._square, self._dim, self._ratio,
            self._noise, math.log(self.concentration), *self._beliefs,
        )  # fmt: skip
        self._reading = None
        if born:
            self._count_labels()
        if self._n >= 1.5 * self._reconsidered:
            self._reconsider()
        elif born:
            self._keep(self._settled(self._now()))

    def _now(self) -> _Clustering:
        score, ratio, noise = self._evidence(self._counts, self._sums)
        counts, sums = self._counts.copy(), self._sums.copy()
        return _Clustering(self.labels_.copy(), counts, sums, score, ratio, noise)

    def _keep(self, new: _Clustering) -> None:
        if self._before is None:
            self._before = self._z[: self._earlier].copy()
        self._z[: self._n], self._counts, self._sums = new.z, new.counts, new.sums
        self._ratio, self._noise = new.ratio, new.noise
        self._reading = None
        self._count_labels()
        self._forget_beliefs()

    def _count_labels(self) -> None:
        """How many there are; let there always be one more without observations."""
        K = len(self._counts)
        self.n_labels_ = int(np.flatnonzero(self._counts)[-1]) + 1
        if (self._counts > 0).all() and self.max_labels > K:
            more = min(2 * K, self.max_labels) - K
            self._counts = np.concatenate([self._counts, np.zeros(more, np.int64)])
            self._sums = np.concatenate([self._sums, np.zeros((more, self._sums.shape[1]))])
            self._forget_beliefs()

    def _forget_beliefs(self) -> None:
        """What the labels predict has to be worked out again."""
        K, d = self._sums.shape
        self._beliefs = (np.zeros((K, d)), np.zeros(K), np.zeros(K), np.zeros(K, np.bool_))

    def _reconsider(self) -> None:
        """Look at all observations again: merge and split labels while that is more probable."""
        self._reconsidered = self._n
        for _ in range(3):
            now = self._settled(self._now())
            self._keep(now)
            better = True
            while better:
                better, now = False, self._now()
                for z in itertools.chain(self._mergers(now), self._splits(now), self._cuts(now)):
                    other = self._settled(self._clustering(z))
                    if other.score > now.score + 1e-9 * abs(now.score):
                        better = True
                        self._keep(other)
                        break
            before, self._dim = self._dim, self._noisy_dimensions(now)
            if abs(self._dim - before) < 0.1 * before:
                break

    def _noisy_dimensions(self, now: _Clustering) -> float:
        """In how many dimensions there is noise: tr(C)^2 / tr(C^2) of its covariance C, and until
        there are data to tell by, in all.
        """
        n, d = self._n, self._x.shape[1]
        degrees = n - np.count_nonzero(now.counts)
        if self._bits or degrees < 2:
            return float(d)
        used = np.maximum(now.counts, 1)[:, None]
        x = self._x[:n] - (now.sums / used)[now.z]
        S = (x.T @ x if d < n else x @ x.T) / degrees
        trace = np.trace(S)
        if trace <= 0:
            return float(d)
        square = (S**2).sum() - trace**2 / degrees  # unbiased (Bai and Saranadasa 1996)
        square *= degrees**2 / ((degrees + 2) * (degrees - 1))
        square = (degrees * square + 10 * trace**2 / d) / (degrees + 10)
        return float(np.clip(trace**2 / max(square, 1e-300), 1.0, d))

    def _settled(self, now: _Clustering) -> _Clustering:
        """Let rows move to likelier labels while that makes the whole more probable."""
        while True:
            z, counts, sums = now.z.copy(), now.counts.copy(), now.sums.copy()
            moves = map_sweeps(
                self._bits, self._x[: self._n], z, counts, sums, self._dim, now.ratio,
                now.noise, math.log(self.concentration), 5,
            )  # fmt: skip
            if moves == 0:
                return now
            after = _Clustering(z, counts, sums, *self._evidence(counts, sums))
            if not after.score > now.score + 1e-9 * abs(now.score):
                return now
            now = after

    def _clustering(self, z: Labels) -> _Clustering:
        room = min(int(z.max()) + 2, self.max_labels)
        counts = np.bincount(z, minlength=max(len(self._counts), room))
        sums = np.zeros((len(counts), self._x.shape[1]))
        for k in np.flatnonzero(counts):
            sums[k] = self._x[: self._n][z == k].sum(axis=0, dtype=np.float64)
        return _Clustering(z, counts, sums, *self._evidence(counts, sums))

    def _evidence(self, counts: Labels, sums: Array) -> tuple[float, float, float]:
        log_alpha = math.log(self.concentration)
        found = evidence(self._bits, counts, sums, self._square, self._dim, log_alpha)
        return found  # type: ignore[no-any-return]

    def _mergers(self, now: _Clustering) -> Iterator[Labels]:
        """Two labels made one, the larger of them, where that is more probable as it stands."""
        used = np.flatnonzero(now.counts)
        for i, k in enumerate(used):
            for other in used[i + 1 :]:
                kept, gone = (k, other) if now.counts[k] >= now.counts[other] else (other, k)
                counts, sums = now.counts.copy(), now.sums.copy()
                counts[kept] += counts[gone]
                sums[kept] += sums[gone]
                counts[gone], sums[gone] = 0, 0.0
                if self._evidence(counts, sums)[0] > now.score:
                    yield np.where(now.z == gone, kept, now.z)

    def _cuts(self, now: _Clustering) -> Iterator[Labels]:
        """The most probable cut of Ward's tree, if more probable than what there is.

        Where there are many states and few observations, no split of one label into two may pay
        though one into many does.
        """
        if not 3 <= self._n <= FEW:
            return
        x = self._x[: self._n]
        tree = linkage(pdist(x), "ward")
        K, score = best_cut(
            self._bits, x, tree, self._square, self._dim, math.log(self.concentration)
        )
        if score > now.score and self.max_labels >= K:
            yield _named_as(now.z, cut_tree(tree, K)[:, 0].astype(np.int64))

    def _splits(self, now: _Clustering) -> Iterator[Labels]:
        """One label made two, of which the smaller is new, where that is more probable."""
        free = np.flatnonzero(now.counts == 0)
        for k in np.flatnonzero(now.counts > 1) if len(free) else ():
            rows = np.flatnonzero(now.z == k)
            x = self._x[rows].astype(np.float64)
            far = ((x - x.mean(axis=0)) ** 2).sum(axis=1).argmax()
            for part in (best_split(self._bits, x, 1.0)[1], np.arange(len(x)) == far):
                smaller = part if 2 * part.sum() <= len(part) else ~part
                z = now.z.copy()
                z[rows[smaller]] = free[0]
                if self._clustering(z).score > now.score:
                    yield z


FEW = 200  # observations of which all may be compared with all


def _named_as(old: Labels, new: Labels) -> Labels:
    """The new clustering, its labels called as the old one calls most of their rows."""
    n = int(max(old.max(), new.max())) + 1
    together = np.zeros((n, n), np.int64)
    np.add.at(together, (new, old), 1)
    rows, names = linear_sum_assignment(-together)
    renamed = np.empty(n, np.int64)
    renamed[rows] = names
    return np.asarray(renamed[new], np.int64)


class _Clustering(NamedTuple):
    z: Labels
    counts: Labels
    sums: Array
    score: float
    ratio: float
    noise: float


def _are_bits(X: Array) -> bool:
    return bool(np.isin(X, (0.0, 1.0)).all())
