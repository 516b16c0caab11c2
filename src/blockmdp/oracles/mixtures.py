"""Mixtures with compiled expectation maximisation, and an oracle that chooses one by the data."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, DensityMixin
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.kernels.em import em

__all__ = ["AutoOracle", "BernoulliMixture", "SphericalMixture"]

Array = NDArray[np.float64]


class _Mixture(DensityMixin, BaseEstimator):  # type: ignore[misc]
    """What the two have in common: everything but the meaning of a coordinate."""

    n_components: int
    n_init: int
    max_iter: int
    tol: float
    random_state: Any
    _bits: bool

    def fit(self, X: Any, y: None = None) -> Any:
        """Learn from observations X (n, d): the likeliest of `n_init` tries."""
        X = self._prepared(X, reset=True)
        if len(X) < self.n_components:
            raise ValueError(
                f"n_samples={len(X)} is fewer than n_components={self.n_components} to learn"
            )
        random = check_random_state(self.random_state)
        tries = [
            self._em(X, seeded(X, self.n_components, random), self.max_iter, self.tol)
            for _ in range(self.n_init)
        ]
        self._keep(max(tries, key=lambda found: found[3]))
        if self.n_iter_ == self.max_iter:
            warnings.warn(
                f"no convergence in {self.max_iter} iterations: try a larger max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _em(self, X: Array, r: Array, max_iter: int, tol: float) -> Any:
        return em(self._bits, X, r, self._prior(), max_iter, tol)

    def _keep(self, found: Any) -> None:
        log_weights, self.means_, self.variance_, self.log_likelihood_, self.n_iter_ = found
        self.weights_ = np.exp(log_weights)
        self.weights_ /= self.weights_.sum()

    def _prior(self) -> float:
        raise NotImplementedError

    def _prepared(self, X: Any, reset: bool) -> Array:
        return np.ascontiguousarray(validate_data(self, X, dtype=np.float64, reset=reset))

    def scores(self) -> tuple[Array, Array]:
        """W (K, d) and b (K,): W x + b is log p(x, k), up to what is the same for all k."""
        raise NotImplementedError

    def _common(self, X: Array) -> Any:
        """What is the same for all k."""
        return 0.0

    def _log_joint(self, X: Any) -> Array:
        """log p(x, k), (n, K)."""
        check_is_fitted(self)
        X = self._prepared(X, reset=False)
        W, b = self.scores()
        return np.asarray(X @ W.T + b + self._common(X), np.float64)

    def score_samples(self, X: Any) -> Array:
        """The log-likelihood of each observation, (n,)."""
        joint = self._log_joint(X)
        top = joint.max(axis=1)
        return np.asarray(top + np.log(np.exp(joint - top[:, None]).sum(axis=1)), np.float64)

    def score(self, X: Any, y: None = None) -> float:
        """The mean log-likelihood."""
        return float(self.score_samples(X).mean())

    def predict_proba(self, X: Any) -> Array:
        """The probability of each component, (n, n_components)."""
        joint = self._log_joint(X)
        p = np.exp(joint - joint.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True), np.float64)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The likeliest component of each observation, (n,)."""
        return np.asarray(self._log_joint(X).argmax(axis=1), np.int64)

    def fit_predict(self, X: Any, y: None = None) -> NDArray[np.int64]:
        return np.asarray(self.fit(X).predict(X), np.int64)


class BernoulliMixture(_Mixture):
    """A mixture of independent bits.

    Parameters
    ----------
    n_components : of the mixture.
    n_init : tries, of which the likeliest is kept.
    max_iter, tol : stop after so many iterations, or once the mean log-likelihood rises by less.
    binarize : a coordinate above it is a 1, others are 0.
    prior : of each bit: so many zeros and ones are taken to have been seen.

    Attributes
    ----------
    weights_ : (n_components,)
    means_ : (n_components, d) the probability of a 1.
    log_likelihood_ : of the data.
    n_iter_ : iterations of the try that was kept.

    Examples
    --------
    >>> X = np.repeat([[0, 0, 1], [1, 1, 0]], 20, axis=0)
    >>> labels = BernoulliMixture(2, random_state=0).fit_predict(X)
    >>> int((labels[:20] == labels[0]).sum()), int((labels[20:] == labels[0]).sum())
    (20, 0)
    """

    _bits = True

    def __init__(
        self,
        n_components: int = 3,
        *,
        n_init: int = 5,
        max_iter: int = 200,
        tol: float = 1e-5,
        binarize: float = 0.5,
        prior: float = 0.5,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.binarize = binarize
        self.prior = prior
        self.random_state = random_state

    def _prior(self) -> float:
        return float(self.prior)

    def _prepared(self, X: Any, reset: bool) -> Array:
        return np.ascontiguousarray(super()._prepared(X, reset) > self.binarize, np.float64)

    def scores(self) -> tuple[Array, Array]:
        W = np.log(self.means_) - np.log1p(-self.means_)
        return W, np.log1p(-self.means_).sum(axis=1) + np.log(self.weights_)


class SphericalMixture(_Mixture):
    """A mixture of Gaussians with independent coordinates, all of the same variance.

    Parameters
    ----------
    n_components, n_init, max_iter, tol : as in `BernoulliMixture`.
    reg_covar : added to the variance.

    Attributes
    ----------
    weights_ : (n_components,)
    means_ : (n_components, d)
    variance_ : of every coordinate of every component.
    log_likelihood_, n_iter_ : as in `BernoulliMixture`.
    """

    _bits = False

    def __init__(
        self,
        n_components: int = 3,
        *,
        n_init: int = 5,
        max_iter: int = 200,
        tol: float = 1e-5,
        reg_covar: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.random_state = random_state

    def _prior(self) -> float:
        return float(self.reg_covar)

    def scores(self) -> tuple[Array, Array]:
        W = self.means_ / self.variance_
        return W, np.log(self.weights_) - 0.5 * (self.means_ * W).sum(axis=1)

    def _common(self, X: Array) -> Any:
        d = X.shape[1]
        log_scale = 0.5 * d * math.log(2 * math.pi * self.variance_)
        return -0.5 * (X**2).sum(axis=1, keepdims=True) / self.variance_ - log_scale


class AutoOracle(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """An oracle that needs no settings: the kind of mixture and the number of labels are chosen by
    the data alone.

    Bits are taken for a mixture of bits, other numbers for a mixture of Gaussians, spherical or
    with one full covariance. It is begun with more components than are likely to be needed; then
    the two that cost least to merge are merged, again and again, and of all the mixtures on the way
    the one with the largest penalised likelihood is kept: log-likelihood less `caution` for each
    parameter, corrected for small samples. Where no mixture can be fitted, the observations are
    scaled, projected and clustered by k-means.

    Parameters
    ----------
    max_labels : components to begin with. Where more than half of them are kept, it is begun again
        with twice as many.
    n_init : short tries to begin from.
    caution : nats of log-likelihood a parameter must be worth.

    Attributes
    ----------
    estimator_ : the mixture, or a pipeline, that was chosen.
    n_labels_ : how many labels it has.
    path_ : (labels, penalised log-likelihood) of the mixtures on the way.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_gaussian(horizon=10, sigma=0.2)
    >>> X = np.concatenate([m.sample(1, state, n=50) for state in range(3)])
    >>> AutoOracle(random_state=0).fit(X).n_labels_
    3
    """

    def __init__(
        self,
        max_labels: int = 16,
        *,
        n_init: int = 5,
        caution: float = 1.5,
        random_state: Any = None,
    ) -> None:
        self.max_labels = max_labels
        self.n_init = n_init
        self.caution = caution
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> AutoOracle:
        """Learn from observations X (n, d)."""
        X = np.ascontiguousarray(validate_data(self, X, dtype=np.float64))
        random = check_random_state(self.random_state)
        bits = np.isin(X, (0.0, 1.0)).all()
        best, score = self._merged(X, BernoulliMixture() if bits else SphericalMixture(), random)
        if not bits:
            tied, tied_score = self._tied(X, best, random)
            if tied_score > score:
                best, score = tied, tied_score
        if not np.isfinite(score):
            best = make_pipeline(
                StandardScaler(),
                PCA(min(3, *X.shape)),
                KMeans(min(3, len(np.unique(X, axis=0))), n_init=10, random_state=random),
            ).fit(X)
        self.estimator_ = best
        last = best[-1] if hasattr(best, "steps") else best
        self.n_labels_ = int(getattr(last, "n_clusters", 0) or last.n_components)
        self.labels_ = self.predict(X)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The label of each observation, (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.estimator_.predict(X), np.int64)

    def _merged(self, X: Array, mixture: _Mixture, random: Any) -> tuple[Any, float]:
        """The best mixture on the way from many components to one, and its score."""
        n, d = X.shape
        K = max(min(self.max_labels, n // 2), 1)
        while True:
            starts = [seeded(X, K, random) for _ in range(self.n_init)]
            likelihoods = [mixture._em(X, r, 10, 1e-4)[3] for r in starts]
            r = starts[int(np.argmax(likelihoods))]
            way = []
            while True:
                found = mixture._em(X, r, 30, 1e-4)
                k = r.shape[1]
                parameters = k * d + k - 1 + (not mixture._bits)
                way.append((found[3] - self._penalty(parameters, n * d), k, r.copy()))
                if k == 1:
                    break
                r = _merge(mixture._bits, X, r, found[2])
            score, k, r = max(way, key=lambda step: step[0])
            if 2 * k <= K or n // 2 < 2 * K:
                break
            K *= 2
        self.path_ = [(step[1], float(step[0])) for step in way]
        mixture.set_params(n_components=k)
        mixture.n_features_in_ = d
        mixture._keep(mixture._em(X, r, mixture.max_iter, mixture.tol))
        return mixture, float(score)

    def _penalty(self, parameters: int, numbers: int) -> float:
        left = numbers - parameters - 1
        return self.caution * parameters * numbers / left if left > 0 else math.inf

    def _tied(self, X: Array, spherical: _Mixture, random: Any) -> tuple[Any, float]:
        """A mixture with one full covariance, begun from the spherical one."""
        n, d = X.shape
        k = spherical.n_components
        parameters = k * d + k - 1 + d * (d + 1) // 2
        penalty = self._penalty(parameters, n * d)
        if n < 4 * d:
            return None, -math.inf
        apart = X - spherical.means_[spherical.predict(X)]
        covariance = apart.T @ apart / n + spherical.reg_covar * np.eye(d)
        gain = 0.5 * n * (d * math.log(spherical.variance_) - np.linalg.slogdet(covariance)[1])
        if gain < self.caution * d * (d + 1) / 2:  # spherical is good enough
            return None, -math.inf
        tied = GaussianMixture(
            k, covariance_type="tied", means_init=spherical.means_, random_state=random
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                tied.fit(X)
            except ValueError:
                return None, -math.inf
        return tied, float(tied.score(X)) * n - penalty


def seeded(X: Array, K: int, random: Any) -> Array:
    """Responsibilities to begin with: K points far from each other, as k-means++ draws them, and
    each row given to the nearest. (n, K)
    """
    n = len(X)
    squares = (X**2).sum(axis=1)

    def distances(i: int) -> Array:
        return np.asarray(np.maximum(squares + squares[i] - 2 * (X @ X[i]), 0.0), np.float64)

    nearest = distances(int(random.randint(n)))
    owner = np.zeros(n, np.int64)
    for k in range(1, K):
        total = np.cumsum(nearest)
        if total[-1] <= 0:
            break
        i = int(np.searchsorted(total, random.uniform() * total[-1], side="right"))
        away = distances(min(i, n - 1))
        owner[away < nearest] = k
        nearest = np.minimum(nearest, away)
    r = np.zeros((n, K))
    r[np.arange(n), owner] = 1.0
    return r


def _merge(bits: bool, X: Array, r: Array, variance: float) -> Array:
    """Responsibilities with those two components made one that lose least by it."""
    n = len(X)
    size, sums = r.sum(axis=0), r.T @ X

    def cost(N: Array, M: Array) -> Array:
        """Minus the log-likelihood of N rows with the sums M as one component, up to a constant."""
        N = np.maximum(N, 1e-9)
        share = -N * np.log(N / n)
        if not bits:
            return np.asarray(share - 0.5 * (M**2).sum(axis=1) / (N * variance))
        p = np.clip(M / N[:, None], 1e-9, 1 - 1e-9)
        return np.asarray(share - N * (p * np.log(p) + (1 - p) * np.log(1 - p)).sum(axis=1))

    i, j = np.triu_indices(r.shape[1], 1)
    alone = cost(size, sums)
    loss = cost(size[i] + size[j], sums[i] + sums[j]) - alone[i] - alone[j]
    cheapest = int(loss.argmin())
    i, j = i[cheapest], j[cheapest]
    merged = r.copy()
    merged[:, i] += merged[:, j]
    return np.ascontiguousarray(np.delete(merged, j, axis=1))
