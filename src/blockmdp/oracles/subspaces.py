"""Subspace clustering with labels for new observations.

The data are first clustered by thresholding (Heckel and Bölcskei 2015): each point is linked to
those with the largest cosine, whatever its sign, and the graph is cut by its eigenvectors. From
there, subspaces are fitted to labels and labels to subspaces in turn (k-subspaces, Bradley and
Mangasarian 2000).
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.checks import InvalidParameterError, check_integer
from blockmdp.oracles.scores import QuadraticScores

__all__ = ["SubspaceClustering"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
LEAST = 1e-6  # of the mean square of the data: the smallest variance of the noise


class SubspaceClustering(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters that are subspaces through the origin.

    An observation gets the label of the nearest subspace.

    Parameters
    ----------
    n_clusters : int, default=3
        Number of subspaces.
    n_dims : int or None, default=None
        Dimension of the subspaces. None chooses the one with the best Bayesian information
        criterion.
    n_neighbors : int, default=5
        Points to which each point is linked at least.
    n_init : int, default=10
        Number of starts: the first by thresholding, all others from random points. The most likely
        result is kept.
    max_iter : int, default=100
        Largest number of iterations of each start.
    max_points : int, default=1000
        Largest number of points in the graph. If there are more, evenly spaced ones are taken.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    bases_ : ndarray of shape (n_clusters, n_dims, d)
        Orthonormal vectors that span each subspace.
    variances_ : ndarray of shape (n_clusters, n_dims)
        Mean squares of the coefficients of these vectors.
    noise_variance_ : float
        Mean square of what is outside of the subspaces, for each dimension.
    weights_ : ndarray of shape (n_clusters,)
        Shares of the data.
    labels_ : ndarray of shape (n,)
        Labels of the data.
    n_labels_ : int
        Number of labels, n_clusters.
    log_likelihood_ : float
        Log-likelihood of the data: each cluster is a Gaussian around the origin.
    n_iter_ : int
        Iterations of the start that was kept.
    n_features_in_ : int
        Number of coordinates of an observation.

    See Also
    --------
    AutoOracle : Chooses the number of subspaces.
    blockmdp.Subspaces : An emission with such observations.

    References
    ----------
    Reinhard Heckel and Helmut Bölcskei. Robust subspace clustering via thresholding. IEEE
    Transactions on Information Theory 61, 2015.

    Paul S. Bradley and Olvi L. Mangasarian. k-Plane clustering. Journal of Global Optimization 16,
    2000.

    Examples
    --------
    >>> import blockmdp as bm
    >>> emission = bm.Subspaces([[[1.0, 1.0, 0.0]], [[0.0, 1.0, -1.0]]], sigma=0.01)
    >>> X = emission.sample(0, np.arange(100) % 2, bm.rng.children(bm.rng.root(0), 0, 100))
    >>> oracle = SubspaceClustering(2, random_state=0).fit(X)
    >>> a, b = oracle.predict([[5.0, 5.0, 0.0], [0.0, -3.0, 3.0]])
    >>> bool(a != b), oracle.bases_.shape
    (True, (2, 1, 3))
    """

    def __init__(
        self,
        n_clusters: int = 3,
        *,
        n_dims: int | None = None,
        n_neighbors: int = 5,
        n_init: int = 10,
        max_iter: int = 100,
        max_points: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_dims = n_dims
        self.n_neighbors = n_neighbors
        self.n_init = n_init
        self.max_iter = max_iter
        self.max_points = max_points
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> SubspaceClustering:
        """Learn from a data set.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        SubspaceClustering
            The estimator itself.
        """
        for name in ("n_clusters", "n_neighbors", "n_init", "max_iter"):
            check_integer(name, getattr(self, name), 1)
        check_integer("max_points", self.max_points, max(int(self.n_clusters), 2))
        if self.n_dims is not None:
            check_integer("n_dims", self.n_dims, 1)
        X = np.ascontiguousarray(validate_data(self, X, dtype=np.float64))
        n, d = X.shape
        if n < self.n_clusters:
            raise ValueError(
                f"n_samples must be at least n_clusters={self.n_clusters}, got n_samples={n}"
            )
        if self.n_dims is not None and self.n_dims > d:
            raise InvalidParameterError(f"n_dims must be from 1 to {d}, got {self.n_dims!r}")
        random = check_random_state(self.random_state)
        some = X[np.linspace(0, n - 1, min(n, int(self.max_points))).astype(np.int64)]
        labels = self._threshold(some, random)
        p = int(self.n_dims) if self.n_dims else self._dimension(some, labels, random)
        every = {"starts": int(self.n_init), "max_iter": int(self.max_iter)}
        if n > len(some):
            labels = nearest(X, self._best(some, labels, p, random, **every).model)
        best = self._best(X, labels, p, random, **every)
        if best.n_iter == self.max_iter:
            warnings.warn(
                f"SubspaceClustering did not converge in {self.max_iter} iterations: try a larger "
                "max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.bases_, self.variances_, self.noise_variance_, self.weights_ = best.model
        self.log_likelihood_, self.n_iter_ = best.log_likelihood, best.n_iter
        self.n_labels_ = int(self.n_clusters)
        self.labels_ = self._labels(X)
        return self

    def predict(self, X: Any) -> Labels:
        """Return the nearest subspace of each observation.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        check_is_fitted(self)
        return self._labels(validate_data(self, X, dtype=np.float64, reset=False))

    def _labels(self, X: Array) -> Labels:
        W, _, c = self.quadratic_scores()
        labels = QuadraticScores(np.ascontiguousarray(W), np.zeros(W.shape[:2]), c).predict(X)
        return np.asarray(labels, np.int64)

    def quadratic_scores(self) -> tuple[Array, Array, Array]:
        """Return the quadratic scores by which `predict` chooses labels.

        Returns
        -------
        tuple of ndarray
            W (n_clusters, d, d), m (n_clusters, d) and c (n_clusters,), the latter two zeros: the
            label of x is the k with the largest `c[k] - |W[k] (x - m[k])|^2 / 2`. W[k] x is what
            is left of x outside of subspace k.
        """
        check_is_fitted(self)
        K, _, d = self.bases_.shape
        W = np.eye(d) - np.swapaxes(self.bases_, 1, 2) @ self.bases_
        return W, np.zeros((K, d)), np.zeros(K)

    def _threshold(self, X: Array, random: Any) -> Labels:
        """Link each row to those of the largest cosine; return the parts of that graph, (n,)."""
        K, n = int(self.n_clusters), len(X)
        if K == 1:
            return np.zeros(n, np.int64)
        units = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
        cosines = np.abs(units @ units.T).clip(0.0, 1.0)
        np.fill_diagonal(cosines, -1.0)
        q = min(int(self.n_neighbors), n - 1)
        neighbours = np.argsort(-cosines, axis=1, kind="stable")[:, :q]
        rows = np.arange(n)[:, None]
        A = np.zeros_like(cosines)
        A[rows, neighbours] = np.exp(-2 * np.arccos(cosines[rows, neighbours]))
        A += A.T
        scale = 1 / np.sqrt(A.sum(axis=1))
        V = eigh(A * scale[:, None] * scale, subset_by_index=[n - K, n - 1])[1]
        V /= np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300)
        found = KMeans(K, n_init=10, random_state=random).fit_predict(V)
        return np.asarray(found, np.int64)

    def _dimension(self, X: Array, labels: Labels, random: Any) -> int:
        """Return the dimension with the best Bayesian information criterion. It is at most that of
        the parts of the graph, which is too large if they mix subspaces. The search starts with 1
        and stops after two without a gain. A few short starts are enough here.
        """
        n, d = X.shape
        K = int(self.n_clusters)
        best, best_score = 1, -math.inf
        for p in range(1, best_dimension(X, labels, K) + 1):
            fit = self._best(X, labels, p, random, starts=5, max_iter=10)
            score = fit.log_likelihood - 0.5 * math.log(n) * n_parameters(K, p, d)
            if score > best_score:
                best, best_score = p, score
            elif p > best + 1:
                break
        return best

    def _best(
        self, X: Array, labels: Labels, p: int, random: Any, *, starts: int, max_iter: int
    ) -> _Fit:
        """Return the most likely result of all starts; the first starts from given labels."""
        K = int(self.n_clusters)
        fits = [self._refine(X, labels, p, max_iter)]
        for _ in range(1, min(int(self.n_init), starts) if K > 1 else 1):
            fits.append(self._refine(X, random_labels(X, K, p, random), p, max_iter))
        return max(fits, key=lambda fit: fit.log_likelihood)

    def _refine(self, X: Array, labels: Labels, p: int, max_iter: int) -> _Fit:
        """Fit subspaces to labels and labels to subspaces, until nothing changes."""
        n_iter = 0
        while n_iter < max_iter:
            n_iter += 1
            model = fit_subspaces(X, labels, int(self.n_clusters), p)
            new = nearest(X, model)
            if np.array_equal(new, labels):
                break
            labels = new
        return _Fit(model, log_likelihood(X, model), n_iter)


class _Model(NamedTuple):
    """Gaussians around the origin: the variance is that of the noise outside of a subspace."""

    bases: Array  # (K, p, d)
    variances: Array  # (K, p), noise included
    noise: float
    weights: Array  # (K,)


class _Fit(NamedTuple):
    """The result of one start."""

    model: _Model
    log_likelihood: float
    n_iter: int


def spectra(X: Array, labels: Labels, K: int) -> tuple[Array, Array, Array]:
    """Return sizes (K,), eigenvalues (K, d), descending, and eigenvectors (K, d, d) of the mean
    squares of each cluster.
    """
    d = X.shape[1]
    sizes, values, vectors = np.zeros(K), np.zeros((K, d)), np.zeros((K, d, d))
    for k in range(K):
        rows = X[labels == k]
        sizes[k] = len(rows)
        w, V = np.linalg.eigh(rows.T @ rows / max(len(rows), 1))
        values[k], vectors[k] = np.maximum(w[::-1], 0.0), V.T[::-1]
    return sizes, values, vectors


def noise_of(X: Array, sizes: Array, values: Array, p: int) -> float:
    """Return the variance of the noise, for the `spectra` of X."""
    n, d = X.shape
    least = LEAST * float((X**2).mean()) or LEAST
    outside = float((sizes[:, None] * values[:, p:]).sum())
    return max(outside / (n * (d - p)), least) if d > p else least


def fit_subspaces(X: Array, labels: Labels, K: int, p: int) -> _Model:
    """Return the subspaces of dimension p that fit the rows of each label best."""
    n = len(X)
    sizes, values, vectors = spectra(X, labels, K)
    noise = noise_of(X, sizes, values, p)
    return _Model(
        np.ascontiguousarray(vectors[:, :p]),
        np.maximum(values[:, :p], noise),
        noise,
        np.maximum(sizes, 1e-9) / n,
    )


def nearest(X: Array, model: _Model) -> Labels:
    """Return the nearest subspace of each row."""
    inside = [((X @ U.T) ** 2).sum(axis=1) for U in model.bases]
    return np.asarray(np.argmax(inside, axis=0), np.int64)


def log_likelihood(X: Array, model: _Model) -> float:
    """Return the log-likelihood of all rows."""
    d, p = X.shape[1], model.bases.shape[1]
    squares = (X**2).sum(axis=1)
    joint = []
    for U, variances, weight in zip(model.bases, model.variances, model.weights):
        inside = (X @ U.T) ** 2
        away = (inside / variances).sum(axis=1)
        away += np.maximum(squares - inside.sum(axis=1), 0.0) / model.noise
        log_det = np.log(variances).sum() + (d - p) * math.log(model.noise)
        joint.append(math.log(weight) - 0.5 * (away + log_det + d * math.log(2 * math.pi)))
    return float(logsumexp(np.stack(joint), axis=0).sum())


def n_parameters(K: int, p: int, d: int) -> float:
    """Return the number of parameters of K subspaces of dimension p: bases, variances, weights."""
    return K * (p * d - p * (p - 1) / 2) + K


def best_dimension(X: Array, labels: Labels, K: int) -> int:
    """Return the dimension with the best Bayesian information criterion, for given labels."""
    n, d = X.shape
    sizes, values, _ = spectra(X, labels, K)
    scores = []
    for p in range(1, max(d, 2)):
        noise = noise_of(X, sizes, values, p)
        outside = float((sizes[:, None] * values[:, p:]).sum())
        log_det = (sizes[:, None] * np.log(np.maximum(values[:, :p], noise))).sum()
        fit = -0.5 * (log_det + n * (d - p) * math.log(noise) + outside / noise + n * p)
        scores.append(fit - 0.5 * math.log(n) * n_parameters(K, p, d))
    return 1 + int(np.argmax(scores))


def random_labels(X: Array, K: int, p: int, random: Any) -> Labels:
    """Return the nearest of K subspaces, each through p random rows."""
    near = []
    for _ in range(K):
        U = np.linalg.qr(X[random.choice(len(X), min(p, len(X)), replace=False)].T)[0]
        near.append(((X @ U) ** 2).sum(axis=1))
    return np.asarray(np.argmax(near, axis=0), np.int64)
