"""Mixtures of bits and of Gaussians, with compiled expectation maximisation."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.checks import InvalidParameterError, check_integer, check_number
from blockmdp.oracles._em import BITS, REALS, Fit, Prior, em
from blockmdp.oracles._gaussian import TYPES, GaussianFit, best_of_starts

__all__ = ["BernoulliMixture", "GaussianMixture", "Mixture", "SphericalMixture"]

Array = NDArray[np.float64]


class Mixture(DensityMixin, BaseEstimator):  # type: ignore[misc]
    """What the mixtures share: everything but the distribution of a component."""

    n_components: int
    n_init: int
    max_iter: int
    tol: float
    random_state: Any
    _kind: int = REALS
    _degrees: Any = 1.0  # parameters of a component for each column that `em` sees

    def fit(self, X: Any, y: None = None) -> Any:
        """Learn from a data set.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        estimator
            The estimator itself.
        """
        self._check_parameters()
        X = self._validated(X, reset=True)
        if len(X) < self.n_components:
            raise ValueError(
                f"n_samples must be at least n_components={self.n_components}, got "
                f"n_samples={len(X)}"
            )
        self._set_parameters(self._best_fit(X, check_random_state(self.random_state)))
        if self.n_iter_ == self.max_iter:
            warnings.warn(
                f"{type(self).__name__} did not converge in {self.max_iter} iterations: try a "
                "larger max_iter or tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _check_parameters(self) -> None:
        parameters = self.get_params(deep=False)
        for name in ("n_components", "n_init", "max_iter"):
            if name in parameters:
                check_integer(name, parameters[name], 1)
        for name in ("tol", "prior", "reg_covar"):
            if name in parameters:
                check_number(name, parameters[name], 0)

    def _best_fit(self, X: Array, random: Any) -> Any:
        K = int(self.n_components)
        fits = [
            self._em(X, initial_responsibilities(self._even(X), K, random))
            for _ in range(int(self.n_init))
        ]
        return max(fits, key=lambda fit: fit.log_likelihood)

    def _em(self, X: Array, r: Array, max_iter: int | None = None, tol: float | None = None) -> Fit:
        max_iter = int(self.max_iter) if max_iter is None else max_iter
        tol = float(self.tol) if tol is None else tol
        fit: Fit = em(self._kind, X, r, self._prior(X), max_iter, tol)
        shared = self._shared_likelihood(X)
        return fit._replace(log_likelihood=fit.log_likelihood + shared) if shared else fit

    def _set_parameters(self, fit: Fit) -> None:
        self.means_, self.variance_ = fit.means, fit.variance
        self.log_likelihood_, self.n_iter_ = fit.log_likelihood, fit.n_iter
        self.weights_ = np.exp(fit.log_weights)
        self.weights_ /= self.weights_.sum()

    def _prior(self, X: Array) -> Prior:
        """Return what is added to the data X of each component."""
        raise NotImplementedError

    def _shared_likelihood(self, X: Array) -> float:
        """Return the part of the log-likelihood that `em` leaves out."""
        return 0.0

    def _even(self, X: Array) -> Array:
        """Return the rows such that noise is about the same everywhere."""
        return X

    def _validated(self, X: Any, reset: bool) -> Array:
        return np.ascontiguousarray(validate_data(self, X, dtype=np.float64, reset=reset))

    # What the search of `AutoOracle` needs: here for real numbers.
    def gains(self, means: Array, mean: Array, variance: float) -> Array:
        """Return what a row gains by the means of its component, (K, d), over one mean (d,)."""
        return np.asarray((means - mean) ** 2 / (2 * variance), np.float64)

    def best_split(self, X: Array, variance: float) -> tuple[float, NDArray[np.bool_]]:
        """Split the rows of one component in two; return roughly what that gains, and the side of
        each row.
        """
        n = len(X)
        centred = X - X.mean(axis=0)
        if n < X.shape[1]:
            along = np.linalg.eigh(centred @ centred.T)[1][:, -1]
        else:
            along = centred @ np.linalg.eigh(centred.T @ centred / n)[1][:, -1]
        between, side = best_cut_of(along)
        return between / (2 * variance), side

    def costs(self, N: Array, M: Array, variance: float) -> Array:
        """Return minus the log-likelihood of N rows (K,) with sums M (K, d), each as one component,
        without the part that does not depend on how rows are grouped.
        """
        return np.asarray(-0.5 * (M**2).sum(axis=1) / (N * variance), np.float64)

    def linear_scores(self) -> tuple[Array, Array] | None:
        """Return the linear scores by which `predict` chooses labels.

        Returns
        -------
        tuple of ndarray, or None
            W (n_components, d) and b (n_components,): the label of x is the k with the largest
            W[k] . x + b[k]. None if `predict` is not linear.
        """
        check_is_fitted(self)
        return self._scores()

    def _scores(self) -> tuple[Array, Array]:
        """Return W (K, d) and b (K,): W x + b is log p(x, k), up to a term that all k share."""
        raise NotImplementedError

    def _shared_term(self, X: Array) -> Any:
        """Return that term."""
        return 0.0

    def _log_joint(self, X: Any) -> Array:
        """Return log p(x, k), (n, K)."""
        check_is_fitted(self)
        return self._joint(self._validated(X, reset=False))

    def _joint(self, X: Array) -> Array:
        """Return log p(x, k), (n, K), for data that were checked."""
        W, b = self._scores()
        return np.asarray(X @ W.T + b + self._shared_term(X), np.float64)

    def score_samples(self, X: Any) -> Array:
        """Return the log-likelihood of each observation.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Log-likelihoods.
        """
        joint = self._log_joint(X)
        top = joint.max(axis=1)
        return np.asarray(top + np.log(np.exp(joint - top[:, None]).sum(axis=1)), np.float64)

    def score(self, X: Any, y: None = None) -> float:
        """Return the mean log-likelihood.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        float
            Mean log-likelihood.
        """
        return float(self.score_samples(X).mean())

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each component.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n, n_components)
            Probabilities.
        """
        joint = self._log_joint(X)
        p = np.exp(joint - joint.max(axis=1, keepdims=True))
        return np.asarray(p / p.sum(axis=1, keepdims=True), np.float64)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the most probable component of each observation.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        return np.asarray(self._log_joint(X).argmax(axis=1), np.int64)

    def fit_predict(self, X: Any, y: None = None) -> NDArray[np.int64]:
        """Learn from a data set and return its labels.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        return np.asarray(self.fit(X).predict(X), np.int64)


class BernoulliMixture(Mixture):
    """Mixture of independent bits.

    Parameters
    ----------
    n_components : int, default=3
        Number of components.
    n_init : int, default=5
        Number of starts, of which the most likely result is kept.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float, default=1e-5
        Stop when the mean log-likelihood rises by less than this.
    binarize : float, default=0.5
        Coordinates above this threshold are 1, all others 0.
    prior : float, default=0.5
        Zeros, and ones, added to what each component has seen of each bit.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Probabilities of the components.
    means_ : ndarray of shape (n_components, d)
        Probabilities of a 1.
    log_likelihood_ : float
        Log-likelihood of the data.
    n_iter_ : int
        Iterations of the start that was kept.

    See Also
    --------
    SphericalMixture, GaussianMixture : For real numbers.
    AutoOracle : Chooses the number of components.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.repeat([[0, 0, 1], [1, 1, 0]], 20, axis=0)
    >>> labels = BernoulliMixture(2, random_state=0).fit_predict(X)
    >>> int((labels[:20] == labels[0]).sum()), int((labels[20:] == labels[0]).sum())
    (20, 0)
    """

    _kind = BITS

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("binarize", self.binarize)
        check_number("prior", self.prior, 0, closed="neither")  # no probability may be 0

    def _prior(self, X: Array) -> Prior:
        d = X.shape[1]
        return Prior(np.full(d, float(self.prior)), np.full(d, 2.0 * float(self.prior)), 0.0)

    def _validated(self, X: Any, reset: bool) -> Array:
        x = super()._validated(X, reset)
        bits = np.ascontiguousarray(x > self.binarize, np.float64)
        if reset:
            self._fitted_to_bits = np.array_equal(x, bits)
        return bits

    def linear_scores(self) -> tuple[Array, Array] | None:
        """Return the linear scores by which `predict` chooses labels.

        Returns
        -------
        tuple of ndarray, or None
            W (n_components, d) and b (n_components,): the label of x is the k with the largest
            W[k] . x + b[k]. None if the data were not bits, since then `predict` has a threshold.
        """
        check_is_fitted(self)
        return super().linear_scores() if self._fitted_to_bits else None

    def gains(self, means: Array, mean: Array, variance: float) -> Array:
        p, q = means, np.clip(mean, 1e-12, 1 - 1e-12)
        gain = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
        return np.asarray(gain, np.float64)

    def best_split(self, X: Array, variance: float) -> tuple[float, NDArray[np.bool_]]:
        return dependent_bit(X)

    def costs(self, N: Array, M: Array, variance: float) -> Array:
        p = np.clip(M / N[:, None], 1e-9, 1 - 1e-9)
        return np.asarray(-N * (p * np.log(p) + (1 - p) * np.log(1 - p)).sum(axis=1), np.float64)

    def _scores(self) -> tuple[Array, Array]:
        W = np.log(self.means_) - np.log1p(-self.means_)
        return W, np.log1p(-self.means_).sum(axis=1) + np.log(self.weights_)


class SphericalMixture(Mixture):
    """Mixture of Gaussians that share one variance in all coordinates.

    Parameters
    ----------
    n_components : int, default=3
        Number of components.
    n_init : int, default=5
        Number of starts, of which the most likely result is kept.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float, default=1e-5
        Stop when the mean log-likelihood rises by less than this.
    reg_covar : float, default=1e-6
        Added to the variance.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Probabilities of the components.
    means_ : ndarray of shape (n_components, d)
        Means of the components.
    variance_ : float
        Variance of every coordinate of every component.
    log_likelihood_ : float
        Log-likelihood of the data.
    n_iter_ : int
        Iterations of the start that was kept.

    See Also
    --------
    BernoulliMixture : For bits.
    AutoOracle : Chooses the number of components.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_gaussian(horizon=5, sigma=0.1)
    >>> X = np.concatenate([m.sample(1, state, n=50) for state in range(3)])
    >>> float(round(SphericalMixture(3, random_state=0).fit(X).variance_ ** 0.5, 1))
    0.1
    """

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

    def _prior(self, X: Array) -> Prior:
        return Prior(np.empty(0), np.empty(0), float(self.reg_covar))

    def _scores(self) -> tuple[Array, Array]:
        W = self.means_ / self.variance_
        return W, np.log(self.weights_) - 0.5 * (self.means_ * W).sum(axis=1)

    def _shared_term(self, X: Array) -> Any:
        d = X.shape[1]
        log_scale = 0.5 * d * math.log(2 * math.pi * self.variance_)
        return -0.5 * (X**2).sum(axis=1, keepdims=True) / self.variance_ - log_scale


class GaussianMixture(Mixture):
    """Mixture of Gaussians, as scikit-learn's and faster.

    Parameters
    ----------
    n_components : int, default=3
        Number of components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        Each component has a covariance matrix of its own; all share one; each has a diagonal one;
        each has one variance.
    n_init : int, default=10
        Number of starts by k-means, of which the most likely result is kept.
    max_iter : int, default=100
        Largest number of iterations.
    tol : float, default=1e-3
        Stop when the mean log-likelihood changes by less than this.
    reg_covar : float, default=1e-6
        Added to the variances.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Probabilities of the components.
    means_ : ndarray of shape (n_components, d)
        Means of the components.
    covariances_ : ndarray of shape (n_components, d, d)
        Covariance matrices of the components, for every type.
    log_likelihood_ : float
        Log-likelihood of the data.
    n_iter_ : int
        Iterations of the start that was kept.

    See Also
    --------
    SphericalMixture : All components share one variance.
    gmm : Returns one.

    Notes
    -----
    The algorithm and its constants are those of `sklearn.mixture.GaussianMixture`. The random
    numbers are not, so the two find the same mixtures, but number components differently.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_gaussian(horizon=5, sigma=0.1)
    >>> X = np.concatenate([m.sample(1, state, n=50) for state in range(3)])
    >>> mixture = GaussianMixture(3, covariance_type="spherical", random_state=0).fit(X)
    >>> np.sqrt(mixture.covariances_[:, 0, 0]).round(1)
    array([0.1, 0.1, 0.1])
    """

    def __init__(
        self,
        n_components: int = 3,
        *,
        covariance_type: str = "full",
        n_init: int = 10,
        max_iter: int = 100,
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.covariance_type not in TYPES:
            raise InvalidParameterError(
                f"covariance_type must be one of {', '.join(TYPES)}, got {self.covariance_type!r}"
            )

    def _best_fit(self, X: Array, random: Any) -> GaussianFit:
        K = int(self.n_components)
        uniforms = random.random_sample((int(self.n_init), K, 2 + int(math.log(K))))
        centre = X.mean(axis=0)
        fit: GaussianFit = best_of_starts(
            TYPES.index(self.covariance_type),
            X - centre,
            uniforms,
            float(self.reg_covar),
            int(self.max_iter),
            float(self.tol),
        )
        if not np.isfinite(fit.log_likelihood):
            raise ValueError(
                "a covariance matrix is not positive definite: try fewer components, a simpler "
                f"covariance_type than {self.covariance_type!r}, or a larger reg_covar"
            )
        return fit._replace(means=fit.means + centre)

    def _set_parameters(self, fit: Any) -> None:
        self.means_, self.covariances_, self._W = fit.means, fit.covariances, fit.W
        self.log_likelihood_, self.n_iter_ = fit.log_likelihood, fit.n_iter
        self.weights_ = np.exp(fit.log_weights)
        self.weights_ /= self.weights_.sum()

    def linear_scores(self) -> tuple[Array, Array] | None:
        """Return the linear scores by which `predict` chooses labels.

        Returns
        -------
        tuple of ndarray, or None
            W (n_components, d) and b (n_components,): the label of x is the k with the largest
            W[k] . x + b[k]. None unless components share their covariance.
        """
        check_is_fitted(self)
        if self.covariance_type != "tied":
            return None
        W = self.means_ @ self._W[0].T @ self._W[0]
        return W, np.log(self.weights_) - 0.5 * (self.means_ * W).sum(axis=1)

    def quadratic_scores(self) -> tuple[Array, Array, Array] | None:
        """Return the quadratic scores by which `predict` chooses labels.

        Returns
        -------
        tuple of ndarray, or None
            W (n_components, d, d), m (n_components, d) and c (n_components,): the label of x is
            the k with the largest `c[k] - |W[k] (x - m[k])|^2 / 2`. None if linear scores do.
        """
        check_is_fitted(self)
        if self.covariance_type == "tied":
            return None
        return self._W, self.means_, np.log(self.weights_) + self._log_det()

    def _log_det(self) -> Array:
        return np.asarray(np.log(np.diagonal(self._W, axis1=1, axis2=2)).sum(axis=1), np.float64)

    def _joint(self, X: Array) -> Array:
        squares = [((X - m) @ W.T) ** 2 for m, W in zip(self.means_, self._W)]
        away = np.stack([each.sum(axis=1) for each in squares], axis=1)
        c = np.log(self.weights_) + self._log_det() - 0.5 * X.shape[1] * math.log(2 * math.pi)
        return np.asarray(c - 0.5 * away, np.float64)


def initial_responsibilities(X: Array, K: int, random: Any) -> Array:
    """Draw K rows far from each other, as k-means++ does, and assign each row to the nearest;
    return responsibilities (n, K).
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
        distance = distances(min(i, n - 1))
        owner[distance < nearest] = k
        nearest = np.minimum(nearest, distance)
    r = np.zeros((n, K))
    r[np.arange(n), owner] = 1.0
    return r


def dependent_bit(
    X: Array, group: NDArray[np.int64] | None = None
) -> tuple[float, NDArray[np.bool_]]:
    """Find the bit that depends most on another one; return roughly what splitting the rows by its
    value gains, and its value in each row. Bits of the same group (d,) are not compared.
    """
    n = len(X)
    centred = X - X.mean(axis=0)
    C = centred.T @ centred / n
    spread = np.sqrt(np.maximum(np.diag(C), 1e-12))
    C /= np.outer(spread, spread)
    np.fill_diagonal(C, 0.0)
    if group is not None:
        C[group[:, None] == group] = 0.0
    z = n * np.maximum(C.max(axis=1), -C.min(axis=1)) ** 2  # roughly chi^2, of pairs of bits
    return float(z.max()) / 2, X[:, int(z.argmax())] > 0.5


def best_cut_of(along: Array) -> tuple[float, NDArray[np.bool_]]:
    """Cut numbers with mean 0 in two; return the sum of squares between the two sides, and the side
    of each.
    """
    n = len(along)
    order = np.sort(along)
    size = np.arange(1, n)
    between = np.cumsum(order)[:-1] ** 2 * n / (size * (n - size))
    cut = int(between.argmax())
    return float(between[cut]), along > (order[cut] + order[cut + 1]) / 2
