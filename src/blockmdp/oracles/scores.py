"""Fitted estimators as a few matrices.

K-means labels an observation with the largest of some linear scores, and a Gaussian mixture with
the largest of some quadratic scores, also behind any number of scaling and projecting steps. In
this form a decoder runs compiled, gives a row the same label in any batch, and is saved as plain
arrays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from blockmdp.jit import index, inlined, jit

__all__ = [
    "SCORES",
    "BankScores",
    "CategoricalScores",
    "ClippedScores",
    "LinearScores",
    "NetworkScores",
    "Predictor",
    "QuadraticScores",
    "bands",
    "bank_labels",
    "best_label",
    "half_square",
    "shape",
    "to_scores",
]

Array = NDArray[np.float64]


class Predictor(Protocol):
    """Anything that labels rows: a fitted scikit-learn estimator, or its scores."""

    def predict(self, x: NDArray[Any]) -> NDArray[Any]:
        """Label observations.

        Parameters
        ----------
        x : ndarray of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """


@dataclass(frozen=True)
class LinearScores:
    """Label k with the largest W[k] . x + b[k].

    Parameters
    ----------
    W : ndarray of shape (K, d)
        Weights.
    b : ndarray of shape (K,)
        Intercepts; -inf for a label that is never given.
    """

    W: Array
    b: Array

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        x : ndarray of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        _check_width(x, self.W.shape[1])
        # copies, which can be written to: numba would compile the loop once more for others
        which, W, b = np.zeros(len(x), np.int64), self.W[None].copy(), self.b[None].copy()
        return np.asarray(linear_labels(np.ascontiguousarray(x), which, W, b), np.int32)


@dataclass(frozen=True)
class ClippedScores:
    """Label k with the largest W[k] . r + b[k], where r is x clipped to limits.

    Parameters
    ----------
    W : ndarray of shape (K, d)
        Weights.
    b : ndarray of shape (K,)
        Intercepts; -inf for a label that is never given.
    low, high : ndarray of shape (d,)
        Limits of each coordinate.
    """

    W: Array
    b: Array
    low: Array
    high: Array

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        x : ndarray of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        _check_width(x, self.W.shape[1])
        return LinearScores(self.W, self.b).predict(np.clip(x, self.low, self.high))


@dataclass(frozen=True)
class CategoricalScores:
    """Label k with the largest sum over j of W[k, j, c] + b[k], where c is the category of x[j].

    Parameters
    ----------
    W : ndarray of shape (K, d, v)
        Weight of each category of each coordinate.
    b : ndarray of shape (K,)
        Intercepts; -inf for a label that is never given.
    values : ndarray of shape (v,)
        The number that stands for each category. Others weigh nothing.
    """

    W: Array
    b: Array
    values: Array

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        x : ndarray of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        _check_width(x, self.W.shape[1])
        linear = LinearScores(self.W.reshape(len(self.b), -1), self.b)
        return linear.predict(one_hot(x, self.values))


def one_hot(x: NDArray[Any], values: Array) -> Array:
    """Return rows (n, d) as bits (n, d v), which say of each number which of v values it is."""
    return (x[:, :, None] == values).reshape(len(x), -1).astype(np.float64)


class BankScores(NamedTuple):
    """Linear scores of G decoders: decoder g gives x the label k with the largest
    W[g, k] . y + b[g, k]. Here y = r T[g], or r if it has no T, and r is x - centre[g], clipped.
    """

    centre: Any  # (G, d)
    low: Any  # (G, d) limits of x - centre, -inf and inf if there are none
    high: Any  # (G, d)
    T: Any  # (G, d, d); (G, 0, 0) if no decoder has had one
    has_T: Any  # (G,)
    W: Any  # (G, K, d)
    b: Any  # (G, K), -inf for a label that is never given


@dataclass(frozen=True)
class QuadraticScores:
    """Label k with the largest c[k] - |W[k] x + b[k]|^2 / 2.

    Parameters
    ----------
    W : ndarray of shape (K, p, d)
        Square roots of the precision matrices.
    b : ndarray of shape (K, p)
        Minus the means, multiplied by these.
    c : ndarray of shape (K,)
        Logarithms of weights and determinants.
    """

    W: Array
    b: Array
    c: Array

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        x : ndarray of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        _check_width(x, self.W.shape[2])
        return np.asarray(quadratic_labels(x, self.W, self.b, self.c), np.int32)


@dataclass(frozen=True)
class NetworkScores:
    """Label k with the largest V[k] . sigmoid(W x + b) + c[k].

    Parameters
    ----------
    W : ndarray of shape (units, d)
        Weights of the hidden layer.
    b : ndarray of shape (units,)
        Its intercepts.
    V : ndarray of shape (K, units)
        Weights of the output layer.
    c : ndarray of shape (K,)
        Its intercepts.
    """

    W: Array
    b: Array
    V: Array
    c: Array

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        x : ndarray of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        _check_width(x, self.W.shape[1])
        return np.asarray(network_labels(x, self.W, self.b, self.V, self.c), np.int32)


SCORES = (LinearScores, QuadraticScores, NetworkScores)


def _check_width(x: NDArray[Any], d: int) -> None:
    """Raise ValueError if observations have another size: compiled loops would read beyond W."""
    if x.shape[1] != d:
        raise ValueError(
            f"an observation has {x.shape[1]} numbers, but the decoder learnt from {d}"
        )


def to_scores(estimator: Any) -> Any:
    """Return scores that label as a fitted estimator does, or else the estimator itself.

    There are scores for scikit-learn's KMeans, MiniBatchKMeans and GaussianMixture, and for every
    estimator that offers `linear_scores` or `quadratic_scores`. They may stand alone, or at the end
    of a Pipeline of scikit-learn's scalers (StandardScaler, MinMaxScaler, MaxAbsScaler) and
    projections (PCA, TruncatedSVD).

    Parameters
    ----------
    estimator : estimator
        Fitted estimator with `predict`.

    Returns
    -------
    LinearScores, ClippedScores, CategoricalScores, QuadraticScores or estimator
        An object with `predict`.

    Notes
    -----
    An estimator of your own runs at compiled speed if it has a method `linear_scores()`. It returns
    `(W, b)`, of shapes (K, d) and (K,), such that `predict` labels x with the k of the largest
    `W[k] . x + b[k]`; or None if `predict` does not work like this. Likewise `quadratic_scores()`:
    it returns `(W, m, c)`, of shapes (K, p, d), (K, d) and (K,), and `predict` labels x with the k
    of the largest `c[k] - |W[k] (x - m[k])|^2 / 2`.

    Examples
    --------
    >>> import numpy as np
    >>> class Halves:
    ...     def predict(self, X):
    ...         return (X[:, 0] > 0).astype(int)
    ...
    ...     def linear_scores(self):
    ...         return np.array([[0.0, 0.0], [1.0, 0.0]]), np.zeros(2)
    >>> to_scores(Halves()).predict(np.array([[-1.0, 5.0], [2.0, 5.0]]))
    array([0, 1], dtype=int32)
    """
    steps = (
        [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    )
    *before, last = [step for step in steps if step not in (None, "passthrough")]
    maps = []
    for step in before:
        affine = _affine(step)
        if affine is None:
            return estimator
        maps.append(affine)
    quadratic = _quadratic(last)
    if quadratic is not None:
        W, means, c = quadratic
        M, v = _composed(maps, W.shape[2])
        b = np.einsum("kqp,kq->kp", np.swapaxes(W, 1, 2), v - means)
        return QuadraticScores(_read_only(W @ M), _read_only(b), _read_only(c))
    linear = _linear(last)
    if linear is None:
        return estimator
    W, b = linear
    values, limits = (getattr(last, name, None) for name in ("values_", "limits_"))
    if values is not None:
        W = W.reshape(len(b), -1, len(values))
        return estimator if maps else CategoricalScores(*map(_read_only, (W, b, values)))
    if limits is not None:
        return estimator if maps else ClippedScores(*map(_read_only, (W, b, *limits)))
    if not maps:
        return LinearScores(_read_only(W), _read_only(b))
    M, v = _composed(maps, W.shape[1])
    return LinearScores(_read_only(W @ M), _read_only(W @ v + b))


def _linear(estimator: Any) -> tuple[Array, Array] | None:
    """Return the linear scores (W, b) of an estimator, or None if it has none.

    Of scikit-learn's estimators exactly these classes: a subclass may have another `predict`.
    """
    if type(estimator) in (KMeans, MiniBatchKMeans):
        C = np.asarray(estimator.cluster_centers_, np.float64)
        return C, -0.5 * (C**2).sum(axis=1)
    if type(estimator) is GaussianMixture:  # one covariance: the quadratic term is the same for all
        P = estimator.precisions_ @ estimator.means_.T  # (p, K)
        return P.T, np.log(estimator.weights_) - 0.5 * (estimator.means_.T * P).sum(axis=0)
    scores = estimator.linear_scores() if hasattr(estimator, "linear_scores") else None
    if scores is None:
        return None
    W, b = (np.asarray(part, np.float64) for part in scores)
    if W.ndim != 2 or b.shape != (len(W),):
        raise ValueError(
            f"{type(estimator).__name__}.linear_scores must return W (K, d) and b (K,), got the "
            f"shapes {W.shape} and {b.shape}"
        )
    return W, b


def _quadratic(estimator: Any) -> tuple[Array, Array, Array] | None:
    """Return (W, means, c) of an estimator: it labels x with the k of the largest
    c[k] - |W[k] (x - means[k])|^2 / 2. None if it does not.
    """
    if type(estimator) is not GaussianMixture:
        has_scores = hasattr(estimator, "quadratic_scores")
        return estimator.quadratic_scores() if has_scores else None
    if estimator.covariance_type == "tied":
        return None
    L = _cholesky_factors(estimator)  # (K, p, p): y = L[k].T @ (x - mean[k])
    log_det = np.log(np.abs(np.diagonal(L, axis1=1, axis2=2))).sum(axis=1)
    return np.swapaxes(L, 1, 2), estimator.means_, np.log(estimator.weights_) + log_det


def _composed(maps: Sequence[tuple[Array, Array]], d: int) -> tuple[Array, Array]:
    """Return (M, v) such that M x + v applies all maps, the last of which has d outputs."""
    M, v = np.eye(d), np.zeros(d)
    for A, a in reversed(maps):  # x -> M (A x + a) + v
        M, v = M @ A, M @ a + v
    return M, v


def _affine(step: Any) -> tuple[Array, Array] | None:
    """Return (A, a) with transform(x) = A x + a, or None if a step is no such map."""
    d = step.n_features_in_ if hasattr(step, "n_features_in_") else 0
    if type(step) is StandardScaler:
        scale = 1.0 / step.scale_ if step.scale_ is not None else np.ones(d)
        mean = step.mean_ if step.with_mean else np.zeros(d)
        return np.diag(scale), -mean * scale
    if type(step) is MinMaxScaler and not step.clip:
        return np.diag(step.scale_), np.asarray(step.min_, np.float64)
    if type(step) is MaxAbsScaler:
        return np.diag(1.0 / step.scale_), np.zeros(d)
    if type(step) is PCA:
        A = np.asarray(step.components_, np.float64)
        if step.whiten:
            least = np.finfo(step.explained_variance_.dtype).eps
            A = A / np.maximum(np.sqrt(step.explained_variance_), least)[:, None]
        return A, -A @ step.mean_
    if type(step) is TruncatedSVD:
        return np.asarray(step.components_, np.float64), np.zeros(len(step.components_))
    return None


def _cholesky_factors(mixture: GaussianMixture) -> Array:
    """Return `precisions_cholesky_` of any covariance type as full matrices (K, p, p)."""
    P, p = mixture.precisions_cholesky_, mixture.means_.shape[1]
    if mixture.covariance_type == "full":
        return np.asarray(P, np.float64)
    diagonal = P if mixture.covariance_type == "diag" else np.repeat(P[:, None], p, axis=1)
    return np.asarray(diagonal[:, :, None] * np.eye(p), np.float64)


def _read_only(a: Array) -> Array:
    a = np.ascontiguousarray(a, np.float64)
    a.setflags(write=False)
    return a


# --- compiled loops: a row's label depends on that row alone, which BLAS does not guarantee -------
@jit
def linear_labels(x, which, W, b):
    """Return the argmax over k of W[w, k] . x + b[w, k], with w = which[i] for row i.

    x: (n, d). which: (n,). W: (P, K, d). b: (P, K). Returns (n,) int32.
    """
    n, d = x.shape
    labels = np.empty(n, np.int32)
    rows = by_group(which, len(b))
    i = 0
    while i < n:  # four rows with the same W at once: each term of a sum waits for the one before
        i0 = rows[i]
        w = which[i0]
        m = 1
        while m < min(4, n - i) and which[rows[i + m]] == w:
            m += 1
        i1, i2, i3 = rows[i + min(1, m - 1)], rows[i + min(2, m - 1)], rows[i + m - 1]
        best0 = best1 = best2 = best3 = -np.inf
        label0 = label1 = label2 = label3 = 0
        for k in range(b.shape[1]):
            score0 = score1 = score2 = score3 = 0.0
            for j in range(d):
                score0 += W[w, k, j] * x[i0, j]
                score1 += W[w, k, j] * x[i1, j]
                score2 += W[w, k, j] * x[i2, j]
                score3 += W[w, k, j] * x[i3, j]
            score0 += b[w, k]
            score1 += b[w, k]
            score2 += b[w, k]
            score3 += b[w, k]
            if score0 > best0:
                best0, label0 = score0, k
            if score1 > best1:
                best1, label1 = score1, k
            if score2 > best2:
                best2, label2 = score2, k
            if score3 > best3:
                best3, label3 = score3, k
        labels[i0], labels[i1], labels[i2], labels[i3] = label0, label1, label2, label3
        i += m
    return labels


@jit
def by_group(groups, G):
    """Return the rows of group 0, then those of group 1, and so on, each in their order.

    groups: (n,), group of each row, from 0 to G - 1, which is not checked.
    """
    after = np.zeros(G + 1, np.int64)
    for g in groups:
        after[g + 1] += 1
    for g in range(G):
        after[g + 1] += after[g]
    rows = np.empty(len(groups), np.int64)
    for i in range(len(groups)):
        rows[after[groups[i]]] = i
        after[groups[i]] += 1
    return rows


@jit
def bank_labels(scores, groups, x):
    """Return the labels (n,) that decoders groups (n,) give the rows x (n, d)."""
    n, d = x.shape
    labels = np.empty(n, np.int64)
    row = np.empty(d)
    y = np.empty(d)
    for i in range(n):
        for j in range(d):
            row[j] = x[i, j] - scores.centre[groups[i], j]
        shape(scores, groups[i], row, y)
        labels[i] = best_label(scores, groups[i], y)
    return labels


@inlined
def shape(scores, g, row, y):
    """Write the row, clipped, times T[g] to y; if there is no T, the clipped row itself."""
    d = len(row)
    if not scores.has_T[g]:
        for j in range(d):
            y[j] = min(max(row[j], scores.low[g, j]), scores.high[g, j])
        return
    for j in range(d):
        y[j] = 0.0
    for i in range(d):
        number = min(max(row[i], scores.low[g, i]), scores.high[g, i])
        for j in range(d):
            y[j] += number * scores.T[g, i, j]


@inlined
def best_label(scores, g, y):
    """Return the label that decoder g gives a row, after `shape`.

    Four labels are scored side by side, because each term of a sum waits for the one before.
    """
    K = scores.b.shape[1]
    best = -np.inf
    label = 0
    for k in range(0, K, 4):
        k1, k2, k3 = min(k + 1, K - 1), min(k + 2, K - 1), min(k + 3, K - 1)
        score = score1 = score2 = score3 = 0.0
        for j in range(len(y)):
            score += scores.W[g, k, j] * y[j]
            score1 += scores.W[g, k1, j] * y[j]
            score2 += scores.W[g, k2, j] * y[j]
            score3 += scores.W[g, k3, j] * y[j]
        score += scores.b[g, k]
        score1 += scores.b[g, k1]
        score2 += scores.b[g, k2]
        score3 += scores.b[g, k3]
        if score > best:
            best, label = score, k
        if score1 > best:
            best, label = score1, k1
        if score2 > best:
            best, label = score2, k2
        if score3 > best:
            best, label = score3, k3
    return label


@jit
def quadratic_labels(x, W, b, c):
    """Return the argmax over k of c[k] - |W[k] x + b[k]|^2 / 2: the most probable component of a
    Gaussian mixture.

    Scores only fall as squares are subtracted. So all components are first scored by a few squares,
    then the leader by all, and every other one until it falls behind. Rows of W are read where they
    are not zero, which is half of them for a full covariance.

    x: (n, d). W: (K, p, d). b: (K, p). c: (K,). Returns (n,) int32.
    """
    K, p, d = W.shape
    band = bands(W)
    labels = np.empty(len(x), np.int32)
    row = np.empty(d)
    scores = np.empty(K)
    head = min(p, 4)
    for i in range(len(x)):
        for j in range(d):
            row[j] = x[i, j]
        label = 0
        for k in range(K):
            scores[k] = c[k] - half_square(W, b, index(k), 0, head, band, row, np.inf)
            if scores[k] > scores[label]:
                label = k
        best = scores[label]
        best -= half_square(W, b, index(label), head, p, band, row, np.inf)
        leader = label
        for k in range(K):
            if k != leader and scores[k] >= best:
                behind = scores[k] - best
                score = scores[k]
                score -= half_square(W, b, index(k), head, p, band, row, behind)
                if score > best or (score == best and k < label):
                    best = score
                    label = k
        labels[i] = label
    return labels


class Bands(NamedTuple):
    """Where matrices W (K, p, d) are not zero."""

    first: Any  # (K, p): in row m or any later one, nothing is before first[k, m] ...
    last: Any  # (K, p): ... and in row m or any earlier one, all is before last[k, m]
    diagonal: Any  # (K,): whether W[k] is a diagonal matrix


@jit
def bands(W):
    """Return the `Bands` of matrices W (K, p, d)."""
    K, p, d = W.shape
    first = np.full((K, p), d)
    last = np.zeros((K, p), np.int64)
    diagonal = np.full(K, p == d)
    for k in range(K):
        for m in range(p):
            for j in range(d):
                if W[k, m, j] != 0.0:
                    last[k, m] = j + 1
                    first[k, m] = min(first[k, m], j)
                    diagonal[k] = diagonal[k] and m == j
        for m in range(1, p):
            last[k, m] = max(last[k, m], last[k, m - 1])
            first[k, p - 1 - m] = min(first[k, p - 1 - m], first[k, p - m])
    return Bands(first, last, diagonal)


@inlined
def half_square(W, b, k, start, stop, band, row, enough):
    """Return |W[k] x + b[k]|^2 / 2 over the coordinates start, ..., stop - 1, or a part of the sum
    that exceeds `enough`. Four coordinates at a time, so that none waits for the one before.
    """
    total = 0.0
    m = start
    while m + 4 <= stop and total <= enough:
        m0, m1, m2, m3 = index(m), index(m + 1), index(m + 2), index(m + 3)
        y0 = y1 = y2 = y3 = 0.0
        if band.diagonal[k]:
            y0, y1 = W[k, m0, m0] * row[m0], W[k, m1, m1] * row[m1]
            y2, y3 = W[k, m2, m2] * row[m2], W[k, m3, m3] * row[m3]
        else:
            for i in range(band.first[k, m0], band.last[k, m3]):
                j = index(i)
                y0 += W[k, m0, j] * row[j]
                y1 += W[k, m1, j] * row[j]
                y2 += W[k, m2, j] * row[j]
                y3 += W[k, m3, j] * row[j]
        y0, y1, y2, y3 = b[k, m0] + y0, b[k, m1] + y1, b[k, m2] + y2, b[k, m3] + y3
        total += 0.5 * y0 * y0
        total += 0.5 * y1 * y1
        total += 0.5 * y2 * y2
        total += 0.5 * y3 * y3
        m += 4
    while m < stop and total <= enough:
        y = 0.0
        for i in range(band.first[k, index(m)], band.last[k, index(m)]):
            y += W[k, index(m), index(i)] * row[index(i)]
        y = b[k, index(m)] + y
        total += 0.5 * y * y
        m += 1
    return total


@jit
def network_labels(x, W, b, V, c):
    """Return the argmax over k of V[k] . sigmoid(W x + b) + c[k]: a network with one hidden layer.

    x: (n, d). W: (units, d). b: (units,). V: (K, units). c: (K,). Returns (n,) int32.
    """
    labels = np.empty(len(x), np.int32)
    hidden = np.empty(len(b))
    for i in range(len(x)):
        for m in range(len(b)):
            y = b[m]
            for j in range(x.shape[1]):
                y += W[m, j] * x[i, j]
            hidden[m] = 1.0 / (1.0 + math.exp(-y))
        best = -np.inf
        label = 0
        for k in range(len(c)):
            score = c[k]
            for m in range(len(b)):
                score += V[k, m] * hidden[m]
            if score > best:
                best = score
                label = k
        labels[i] = label
    return labels
