"""Fitted estimators as a few matrices, where they are no more than that.

K-means behind any number of scaling and projecting steps gives the label whose score, linear in the
observation, is largest; a Gaussian mixture the label whose score, quadratic, is largest. Folded so,
a decoder runs compiled, gives a row the same label in any batch, and is saved as plain arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from blockmdp.kernels.decode import linear_labels, network_labels, quadratic_labels
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.oracles.mixtures import AutoOracle, BernoulliMixture, SphericalMixture

__all__ = ["LinearScores", "NetworkScores", "Predictor", "QuadraticScores", "fold"]

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


def fold(estimator: Any, bits: bool = False) -> Any:
    """The matrices that do what a fitted estimator's `predict` does, or the estimator itself.

    bits : whether all observations are bits, for which a mixture of bits is linear too.
    """
    if isinstance(estimator, AutoOracle):
        return fold(estimator.estimator_, bits)
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
