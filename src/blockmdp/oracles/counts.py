"""Mixtures of counts and of categories, with compiled expectation maximisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from blockmdp.oracles._em import COUNTS, Fit, Prior
from blockmdp.oracles.mixtures import Mixture, dependent_bit
from blockmdp.oracles.scores import LinearScores

__all__ = ["CategoricalMixture", "PoissonMixture"]

Array = NDArray[np.float64]
MAX_COLUMNS = 20_000  # of a one-hot code


class _Counts(Mixture):
    """What counts and one-hot codes share."""

    _kind = COUNTS
    _coordinate: NDArray[np.int64] | None = None

    def __init__(
        self,
        n_components: int = 3,
        *,
        n_init: int = 5,
        max_iter: int = 200,
        tol: float = 1e-5,
        prior: float = 0.5,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.prior = prior
        self.random_state = random_state

    def gains(self, means: Array, mean: Array, variance: float) -> Array:
        q = np.maximum(mean, 1e-12)
        return np.asarray(means * np.log(np.maximum(means, 1e-12) / q) - means + q, np.float64)

    def costs(self, N: Array, M: Array, variance: float) -> Array:
        p = np.maximum(M / N[:, None], 1e-12)
        return np.asarray(-(M * np.log(p)).sum(axis=1), np.float64)

    def dependence(self, X: Array) -> float:
        """Return the largest correlation of two coordinates in the largest component, above what
        chance allows. Columns that are nearly always the same do not count.
        """
        rows = self._even(self._validated(X, reset=False))
        owner = self.predict(X)
        rows = rows[owner == np.bincount(owner).argmax()]
        varied = (rows != np.median(rows, axis=0)).mean(axis=0) > 0.1
        if varied.sum() < 2:
            return 0.0
        rows = rows[:, varied]
        group = None if self._coordinate is None else self._coordinate[varied]
        gain, _ = dependent_bit(rows, group)
        chance = 4 * math.log(rows.shape[1] + 1)
        return math.sqrt(max(2 * gain - chance, 0.0) / len(rows))


class PoissonMixture(_Counts):
    """Mixture of independent Poisson counts.

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
    prior : float, default=0.5
        Rows like the mean of all data that are added to what each component has seen.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Probabilities of the components.
    means_ : ndarray of shape (n_components, d)
        Rates: the mean counts of the components.
    log_likelihood_ : float
        Log-likelihood of the data.
    n_iter_ : int
        Iterations of the start that was kept.

    See Also
    --------
    CategoricalMixture : For numbers without an order.
    AutoOracle : Chooses the number of components.
    blockmdp.Counts : An emission with such observations.

    References
    ----------
    Jia Li and Hongyuan Zha. Two-way Poisson mixture models for simultaneous document
    classification and word clustering. Computational Statistics and Data Analysis 50, 2006. (One
    way of the two: rows are clustered, columns are not.)

    Examples
    --------
    >>> import blockmdp as bm
    >>> emission = bm.Counts([[1.0, 20.0], [20.0, 1.0]])
    >>> X = emission.sample(0, np.arange(100) % 2, bm.rng.children(bm.rng.root(0), 0, 100))
    >>> labels = PoissonMixture(2, random_state=0).fit_predict(X)
    >>> int((labels[::2] == labels[0]).sum()), int((labels[1::2] == labels[0]).sum())
    (50, 0)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def best_split(self, X: Array, variance: float) -> tuple[float, NDArray[np.bool_]]:
        return super().best_split(self._even(X), 1.0)

    def _prior(self, X: Array) -> Prior:
        prior = float(self.prior)
        return Prior(prior * X.mean(axis=0), np.full(X.shape[1], prior), 0.0)

    def _even(self, X: Array) -> Array:
        return np.asarray(2 * np.sqrt(X + 0.375), np.float64)  # Anscombe: the variance is about 1

    def _validated(self, X: Any, reset: bool) -> Array:
        x = super()._validated(X, reset)
        check_non_negative(x, type(self).__name__)
        return x

    def _scores(self) -> tuple[Array, Array]:
        return np.log(self.means_), np.log(self.weights_) - self.means_.sum(axis=1)

    def _shared_term(self, X: Array) -> Any:
        return -gammaln(X + 1).sum(axis=1, keepdims=True)

    def _shared_likelihood(self, X: Array) -> float:
        return float(self._shared_term(X).sum())


class CategoricalMixture(_Counts):
    """Mixture of independent categories.

    The categories of a coordinate are the different numbers that it takes in the data; their order
    and size mean nothing. A number that was not in the data tells nothing about the label.

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
    prior : float, default=0.5
        Observations of each category that are added to what each component has seen.
    random_state : int, RandomState or None, default=None
        Seed of the starts.

    Attributes
    ----------
    categories_ : list of ndarray
        Categories of each coordinate, ascending.
    weights_ : ndarray of shape (n_components,)
        Probabilities of the components.
    probabilities_ : list of ndarray of shape (n_components, m)
        Probabilities of the m categories of each coordinate.
    means_ : ndarray of shape (n_components, sum of all m)
        The same, side by side.
    log_likelihood_ : float
        Log-likelihood of the data.
    n_iter_ : int
        Iterations of the start that was kept.

    See Also
    --------
    BernoulliMixture : For bits.
    PoissonMixture : For counts.
    AutoOracle : Chooses the number of components.
    blockmdp.Categories : An emission with such observations.

    References
    ----------
    Dominique Bontemps and Wilson Toussile. Clustering and variable selection for categorical
    multivariate data. Electronic Journal of Statistics 7, 2013.

    Examples
    --------
    >>> X = np.repeat([[2, 0, 7], [5, 0, 3]], 20, axis=0)
    >>> mixture = CategoricalMixture(2, random_state=0).fit(X)
    >>> mixture.categories_[2]
    array([3., 7.])
    >>> labels = mixture.predict(X)
    >>> int((labels[:20] == labels[0]).sum()), int((labels[20:] == labels[0]).sum())
    (20, 0)
    """

    @property
    def n_labels_(self) -> int:
        """Number of labels, n_components."""
        check_is_fitted(self)
        return int(self.n_components)

    @property
    def probabilities_(self) -> list[Array]:
        """Probabilities of the categories of each coordinate."""
        check_is_fitted(self)
        ends = np.cumsum([len(values) for values in self.categories_])[:-1]
        return np.split(self.means_, ends, axis=1)

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
        check_is_fitted(self)
        scores = LinearScores(*self._scores())
        return np.asarray(scores.predict(self._validated(X, reset=False)), np.int64)

    def linear_scores(self) -> None:
        """Return None: labels are not linear in the numbers that stand for categories.

        Returns
        -------
        None
            There are no linear scores.
        """

    def best_split(self, X: Array, variance: float) -> tuple[float, NDArray[np.bool_]]:
        return dependent_bit(X, self._coordinate)

    @property
    def _degrees(self) -> Array:
        """Parameters of a component for each column: m - 1 for m of them."""
        m = np.array([len(values) for values in self.categories_], np.float64)
        return np.asarray(np.repeat((m - 1) / m, m.astype(np.int64)), np.float64)

    def _prior(self, X: Array) -> Prior:
        m = np.array([len(values) for values in self.categories_], np.float64)
        each = np.full(X.shape[1], float(self.prior))
        return Prior(each, float(self.prior) * np.repeat(m, m.astype(np.int64)), 0.0)

    def _validated(self, X: Any, reset: bool) -> Array:
        """Return the one-hot code, (n, sum of all m)."""
        x = validate_data(self, X, dtype=np.float64, reset=reset)
        if reset:
            self.categories_ = [np.unique(column) for column in x.T]
            sizes = [len(values) for values in self.categories_]
            self._coordinate = np.repeat(np.arange(len(sizes)), sizes)
            columns = sum(sizes)
            if columns > MAX_COLUMNS:
                raise ValueError(
                    f"{type(self).__name__}: the {x.shape[1]} coordinates have {columns} different "
                    f"values, at most {MAX_COLUMNS} are possible: these look like numbers, so use "
                    "a mixture of numbers, such as GaussianMixture"
                )
        parts = [column[:, None] == values for column, values in zip(x.T, self.categories_)]
        return np.ascontiguousarray(np.concatenate(parts, axis=1), np.float64)

    def _scores(self) -> tuple[Array, Array]:
        return np.log(self.means_), np.log(self.weights_)

    def _shared_likelihood(self, X: Array) -> float:
        return float(X.sum())

    def _set_parameters(self, fit: Fit) -> None:
        super()._set_parameters(fit)
        del self.variance_
