"""FittedOracle estimators as a few matrices, where they are no more than that.

K-means behind any number of scaling and projecting steps gives the label whose score, linear in the
observation, is largest; a Gaussian mixture the label whose score, quadratic, is largest. Folded so,
a decoder runs compiled, gives a row the same label in any batch, and is saved as plain arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from blockmdp.jit import index, inlined, jit
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.oracles.mixtures import AutoOracle, BernoulliMixture, SphericalMixture

__all__ = ["LinearScores", "NetworkScores", "Predictor", "QuadraticScores", "to_scores"]

Array = NDArray[np.float64]


class Predictor(Protocol):
    """Anything that gives each row a whole number: a fitted scikit-learn estimator, or its fold."""

    def predict(self, x: NDArray[Any]) -> NDArray[Any]: ...


@dataclass(frozen=True)
class LinearScores:
    """The label k with the largest W[k] . x + b[k]. W: (K, d), b: (K,)."""

    W: Array
    b: Array

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        which = np.zeros(len(x), np.int64)
        return np.asarray(linear_labels(x, which, self.W[None], self.b[None]), np.int32)


@dataclass(frozen=True)
class QuadraticScores:
    """The label k with the largest c[k] - |W[k] x + b[k]|^2 / 2.

    W: (K, p, d), b: (K, p), c: (K,).
    """

    W: Array
    b: Array
    c: Array

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        return np.asarray(quadratic_labels(x, self.W, self.b, self.c), np.int32)


@dataclass(frozen=True)
class NetworkScores:
    """The label k with the largest V[k] . sigmoid(W x + b) + c[k].

    W: (units, d), b: (units,), V: (K, units), c: (K,).
    """

    W: Array
    b: Array
    V: Array
    c: Array

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        return np.asarray(network_labels(x, self.W, self.b, self.V, self.c), np.int32)


def to_scores(estimator: Any, bits: bool = False) -> Any:
    """The matrices that do what a fitted estimator's `predict` does, or the estimator itself.

    bits : whether all observations are bits, for which a mixture of bits is linear too.
    """
    if isinstance(estimator, AutoOracle):
        return to_scores(estimator.estimator_, bits)
    if isinstance(estimator, DirichletMixture):
        return LinearScores(*map(_read_only, estimator.scores()))
    steps = (
        [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    )
    *before, last = [step for step in steps if step not in (None, "passthrough")]
    maps = [_affine(step) for step in before]
    foldable = type(last) in (KMeans, MiniBatchKMeans, GaussianMixture, SphericalMixture)
    foldable |= type(last) is BernoulliMixture and bits and not before
    if not foldable or any(m is None for m in maps):
        return estimator
    M, v = np.eye(last.n_features_in_), np.zeros(last.n_features_in_)
    for A, a in reversed([m for m in maps if m is not None]):  # x -> M (A x + a) + v
        M, v = M @ A, M @ a + v
    if isinstance(last, BernoulliMixture | SphericalMixture):
        W, b = last.scores()
        return LinearScores(_read_only(W @ M), _read_only(W @ v + b))
    if not isinstance(last, GaussianMixture):
        C = np.asarray(last.cluster_centers_, np.float64)
        return LinearScores(_read_only(C @ M), _read_only(C @ v - 0.5 * (C**2).sum(axis=1)))
    if last.covariance_type == "tied":  # what is quadratic is the same for all
        P = last.precisions_ @ last.means_.T  # (p, K)
        c = np.log(last.weights_) - 0.5 * (last.means_.T * P).sum(axis=0)
        return LinearScores(_read_only(P.T @ M), _read_only(P.T @ v + c))
    L = _cholesky_factors(last)  # (K, p, p): y = L[k].T @ (x - mean[k])
    log_det = np.log(np.abs(np.diagonal(L, axis1=1, axis2=2))).sum(axis=1)
    b = np.einsum("kqp,kq->kp", L, v - last.means_)
    c = np.log(last.weights_) + log_det
    return QuadraticScores(_read_only(np.swapaxes(L, 1, 2) @ M), _read_only(b), _read_only(c))


def _affine(step: Any) -> tuple[Array, Array] | None:
    """(A, a) with transform(x) = A x + a, or None where a step is no such map."""
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
    """`precisions_cholesky_` of any covariance type as full matrices, (K, p, p)."""
    P, p = mixture.precisions_cholesky_, mixture.means_.shape[1]
    if mixture.covariance_type == "full":
        return np.asarray(P, np.float64)
    diagonal = P if mixture.covariance_type == "diag" else np.repeat(P[:, None], p, axis=1)
    return np.asarray(diagonal[:, :, None] * np.eye(p), np.float64)


def _read_only(a: Array) -> Array:
    a = np.ascontiguousarray(a, np.float64)
    a.setflags(write=False)
    return a


# --- compiled loops: the label of a row depends on that row alone, which BLAS would not promise ---
@jit
def linear_labels(x, which, W, b):
    """argmax over k of W[w, k] . x + b[w, k], with w = which[i] for row i.

    x: (n, d). which: (n,). W: (P, K, d). b: (P, K). Returns (n,) int32.
    """
    labels = np.empty(len(x), np.int32)
    row = np.empty(x.shape[1])
    for i in range(len(x)):
        w = which[i]
        for j in range(x.shape[1]):
            row[j] = x[i, j]
        best = -np.inf
        label = 0
        for k in range(b.shape[1]):
            score = b[w, k] + _dot(W, w, k, x.shape[1], row)
            if score > best:
                best = score
                label = k
        labels[i] = label
    return labels


@jit
def quadratic_labels(x, W, b, c):
    """argmax over k of c[k] - |W[k] x + b[k]|^2 / 2: the likeliest component of a Gaussian mixture.

    Scores only fall as squares are subtracted. So all components are scored by their first squares,
    the leader is scored to the end, and each other one is given up as soon as it is behind. A row
    of W is gone through to its last entry that is not zero (half of it, for a full covariance).

    x: (n, d). W: (K, p, d). b: (K, p). c: (K,). Returns (n,) int32.
    """
    K, p, d = W.shape
    last = np.zeros((K, p), np.int64)
    for k in range(K):
        for m in range(p):
            for j in range(d):
                if W[k, m, j] != 0.0:
                    last[k, m] = j + 1
    labels = np.empty(len(x), np.int32)
    row = np.empty(d)
    scores = np.empty(K)
    head = min(p, 4)
    for i in range(len(x)):
        for j in range(d):
            row[j] = x[i, j]
        label = 0
        for k in range(K):
            scores[k] = c[k] - _half_square(W, b, index(k), 0, head, last, row, np.inf)
            if scores[k] > scores[label]:
                label = k
        best = scores[label] - _half_square(W, b, index(label), head, p, last, row, np.inf)
        leader = label
        for k in range(K):
            if k != leader and scores[k] >= best:
                behind = scores[k] - best
                score = scores[k] - _half_square(W, b, index(k), head, p, last, row, behind)
                if score > best or (score == best and k < label):
                    best = score
                    label = k
        labels[i] = label
    return labels


@inlined
def _half_square(W, b, k, start, stop, last, row, enough):
    """|W[k] x + b[k]|^2 / 2 over its coordinates start, ..., stop - 1; or any more than enough."""
    total = 0.0
    m = start
    while m < stop and total <= enough:
        y = b[k, index(m)] + _dot(W, k, index(m), last[k, index(m)], row)
        total += 0.5 * y * y
        m += 1
    return total


@inlined
def _dot(W, k, m, n, row):
    """W[k, m] . row, over the first n coordinates."""
    total = 0.0
    for j in range(n):
        total += W[k, m, j] * row[j]
    return total


@jit
def network_labels(x, W, b, V, c):
    """argmax over k of V[k] . sigmoid(W x + b) + c[k]: a network with one hidden layer.

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
