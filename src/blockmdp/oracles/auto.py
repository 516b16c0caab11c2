"""An oracle that chooses a mixture, and its number of labels, by the data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as SklearnMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.checks import catching_warnings, check_integer, check_number
from blockmdp.oracles._em import Fit
from blockmdp.oracles._noise import UNIT_DENSITY
from blockmdp.oracles.counts import CategoricalMixture, PoissonMixture
from blockmdp.oracles.mixtures import BernoulliMixture, Mixture, SphericalMixture
from blockmdp.oracles.scores import LinearScores, to_scores
from blockmdp.oracles.subspaces import SubspaceClustering, n_parameters

__all__ = ["AutoOracle"]

Array = NDArray[np.float64]
TRIES = 4  # splits or mergers tried before the search stops
MAX_COLUMNS = 2000  # of counts, or of the one-hot code of categories; otherwise not tried
ROWS = 1000  # by which the kind of mixture is chosen
MAX_DEPENDENCE = 0.5  # correlation of coordinates that a mixture of whole numbers may leave


class AutoOracle(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Mixture whose kind and number of labels are chosen by the data.

    Bits get a mixture of bits, counts one of Poisson distributions, and categories one of
    categories. Other numbers get a mixture of Gaussians, which share one variance or one full
    covariance, or subspaces through the origin. An observation is labelled with the component under
    which it is most probable, no matter how common that component was: how often one policy visits
    a state says nothing about the next policy.

    Parameters
    ----------
    max_labels : int, default=200
        Largest number of labels.
    caution : float, default=1.5
        Log-likelihood (in nats) that a parameter must gain to be worth its cost, plus log d.
        Smaller values give more labels.
    random_state : int, RandomState or None, default=None
        Seed of scikit-learn's estimators, where they are tried (a full covariance, k-means).

    Attributes
    ----------
    estimator_ : estimator
        The mixture or SubspaceClustering that was chosen, or a Pipeline with k-means where none
        could be fitted.
    labels_ : ndarray of shape (n,)
        Labels of the data.
    n_labels_ : int
        Number of labels.
    path_ : list of (int, float)
        Number of labels and penalised log-likelihood after each step.

    See Also
    --------
    DirichletMixture : Learns online.
    images : A pipeline for images that ends in this oracle.

    Notes
    -----
    The search starts with one component. It splits a component whose coordinates depend on each
    other: bits by the bit on which another one depends most, numbers across their first principal
    direction, counts likewise after a square root. Then it merges components. Each step is kept if
    the log-likelihood gains more than the additional parameters cost.

    If some rows of real numbers are equal, the data were drawn from a finite collection, such as
    images. How often each was drawn does not tell which are alike, so each counts once.

    Examples
    --------
    >>> import blockmdp as bm
    >>> from blockmdp.oracles import AutoOracle
    >>> m = bm.lock_gaussian(horizon=10, sigma=0.2)
    >>> X = np.concatenate([m.sample(1, state, n=50) for state in range(3)])
    >>> AutoOracle().fit(X).n_labels_
    3
    """

    def __init__(
        self, max_labels: int = 200, *, caution: float = 1.5, random_state: Any = None
    ) -> None:
        self.max_labels = max_labels
        self.caution = caution
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> AutoOracle:
        """Learn from a data set.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        AutoOracle
            The estimator itself.
        """
        check_integer("max_labels", self.max_labels, 1)
        check_number("caution", self.caution)
        everything = X = np.ascontiguousarray(validate_data(self, X, dtype=np.float64))
        if np.isin(X, (0.0, 1.0)).all():
            best, score = self._search(X, BernoulliMixture())
        else:
            best, score = self._discrete(X)
            if best is None:
                X = self._distinct(X)
                best, score = self._continuous(X)
        if not np.isfinite(score):
            clusters = KMeans(min(3, len(np.unique(X, axis=0))), n_init=10,
                              random_state=self.random_state)  # fmt: skip
            best = make_pipeline(StandardScaler(), PCA(min(3, *X.shape)), clusters).fit(X)
        elif isinstance(best, Mixture | SklearnMixture):
            best.weights_ = np.full(best.n_components, 1.0 / best.n_components)
        self.estimator_ = best
        last = best[-1] if hasattr(best, "steps") else best
        self.n_labels_ = int(getattr(last, "n_clusters", 0) or last.n_components)
        self.labels_ = np.asarray(best.predict(everything), np.int64)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Label observations.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.estimator_.predict(X), np.int64)

    def linear_scores(self) -> tuple[Array, Array] | None:
        """Return the linear scores by which `predict` chooses labels.

        Returns
        -------
        tuple of ndarray, or None
            W (n_labels, d) and b (n_labels,): the label of x is the k with the largest
            W[k] . x + b[k]. None if `predict` is not linear.
        """
        check_is_fitted(self)
        scores = to_scores(self.estimator_)
        return (scores.W, scores.b) if isinstance(scores, LinearScores) else None

    def quadratic_scores(self) -> tuple[Array, Array, Array] | None:
        """Return the quadratic scores by which `predict` chooses labels.

        Returns
        -------
        tuple of ndarray, or None
            W (n_labels, p, d), m (n_labels, d) and c (n_labels,): the label of x is the k with the
            largest `c[k] - |W[k] (x - m[k])|^2 / 2`. None unless the labels are subspaces.
        """
        check_is_fitted(self)
        found = self.estimator_
        return found.quadratic_scores() if isinstance(found, SubspaceClustering) else None

    def _discrete(self, X: Array) -> tuple[Any, float]:
        """Return a mixture of counts or of categories and its score. None if the data are not whole
        numbers from 0 on, have no noise, or if rounded Gaussians explain them better.
        """
        nothing = None, -math.inf
        if X.min() < 0 or (np.rint(X) != X).any() or X.shape[1] > MAX_COLUMNS:
            return nothing
        some = X[:: -(-len(X) // ROWS)]
        possible = math.prod(float(len(np.unique(column))) for column in some.T)
        if len(np.unique(some, axis=0)) < min(len(some) / 2, possible / 10):
            return nothing  # a few different rows, far fewer than independent columns would give
        families: list[Mixture] = [SphericalMixture(reg_covar=UNIT_DENSITY), PoissonMixture()]
        if sum(len(np.unique(column)) for column in some.T) <= MAX_COLUMNS:
            families.append(CategoricalMixture())
        best = max(families, key=lambda family: self._evidence(some, family))
        if best is families[0] or best.dependence(some) > MAX_DEPENDENCE:
            return nothing
        return self._search(X, clone(best))

    def _evidence(self, X: Array, mixture: Mixture) -> float:
        """Return the score of a mixture, minus what the mean of all data costs."""
        score = self._search(X, mixture)[1]
        parameters = np.broadcast_to(mixture._degrees, mixture.means_.shape[1]).sum()
        return score - 0.5 * math.log(len(X)) * float(parameters)

    def _continuous(self, X: Array) -> tuple[Any, float]:
        """Return subspaces or a mixture of Gaussians, and the score."""
        some = X[:: -(-len(X) // ROWS)]
        if is_two_sided(some):
            score = self._gaussians(some)[1]
            subspaces = self._subspaces(some)
            if subspaces[1] > score:
                return subspaces if len(some) == len(X) else self._subspaces(X)
        return self._gaussians(X)

    def _gaussians(self, X: Array) -> tuple[Any, float]:
        """Return a mixture of Gaussians with one variance or one covariance, and its score."""
        best, score = self._search(X, SphericalMixture())
        tied, tied_score = self._tied(X, best)
        return (tied, tied_score) if tied_score > score else (best, score)

    def _distinct(self, X: Array) -> Array:
        """Return each row once, if some repeat and there are too many to be labels themselves."""
        distinct = np.unique(X, axis=0)
        return distinct if self.max_labels < len(distinct) < len(X) else X

    def _search(self, X: Array, mixture: Mixture) -> tuple[Any, float]:
        """Split while that is worth it, then merge; return the mixture and its score."""
        X = mixture._validated(X, reset=True)
        now = self._candidate(X, mixture, np.ones((len(X), 1)))
        self.path_ = [(1, now.score)]
        for moves in (_splits, _mergers):
            better: _Candidate | None = now
            while better is not None:
                now, better = better, None
                for r in moves(mixture, X, now.r, now.fit.variance):
                    candidate = self._candidate(X, mixture, r)
                    if candidate.score > now.score and r.shape[1] <= self.max_labels:
                        better = candidate
                        self.path_.append((r.shape[1], candidate.score))
                        break
        mixture.n_components = now.r.shape[1]
        mixture._set_parameters(mixture._em(X, now.r))
        return mixture, now.score

    def _candidate(self, X: Array, mixture: Mixture, r: Array) -> _Candidate:
        fit = mixture._em(X, r, max_iter=50, tol=1e-4)
        penalty = self._penalty(mixture, len(X), fit)
        return _Candidate(r, fit, float(fit.log_likelihood) - penalty)

    def _penalty(self, mixture: Mixture, n: int, fit: Fit) -> float:
        """Return the cost of the parameters: of each mean that differs from that of all data, what
        it gains but at most a price, and more if there are few data.
        """
        K, d = fit.means.shape
        weights = np.exp(fit.log_weights)
        all_data = weights @ fit.means
        gain = mixture.gains(fit.means, all_data, fit.variance)
        price = self.caution + math.log(d)
        paid = np.minimum(n * weights[:, None] * gain / price, 1.0) * mixture._degrees
        return self._cost(price, paid.sum() + K - 1, n * mixture.n_features_in_)

    @staticmethod
    def _cost(price: float, parameters: float, numbers: int) -> float:
        left = numbers - parameters - 1
        return price * parameters * numbers / left if left > 0 else math.inf

    def _tied(self, X: Array, spherical: Any) -> tuple[Any, float]:
        """Return a mixture with one full covariance, started from the spherical one, and its score;
        -inf if that is not worth it.
        """
        n, d = X.shape
        k = spherical.n_components
        parameters = k * d + k - 1 + d * (d + 1) // 2
        penalty = self._cost(self.caution, parameters, n * d)
        if n < 4 * d:
            return None, -math.inf
        residuals = X - spherical.means_[spherical._joint(X).argmax(axis=1)]
        covariance = residuals.T @ residuals / n + spherical.reg_covar * np.eye(d)
        gain = 0.5 * n * (d * math.log(spherical.variance_) - np.linalg.slogdet(covariance)[1])
        if gain < self.caution * d * (d + 1) / 2:
            return None, -math.inf
        tied = SklearnMixture(
            k, covariance_type="tied", means_init=spherical.means_, random_state=self.random_state
        )
        with catching_warnings(ConvergenceWarning):
            try:
                tied.fit(X)
            except ValueError:
                return None, -math.inf
        return tied, float(tied.score(X)) * n - penalty

    def _subspaces(self, X: Array) -> tuple[Any, float]:
        """Return subspaces, one more as long as the score rises, and the score; -inf if there are
        too few data.
        """
        n, d = X.shape
        best, best_score, without_gain = None, -math.inf, 0
        if d < 2 or n < 4 * d:
            return best, best_score
        self.path_ = []
        for K in range(1, min(int(self.max_labels), n // d) + 1):
            subspaces = SubspaceClustering(K, n_init=5, max_points=500, random_state=0)
            with catching_warnings(ConvergenceWarning):
                subspaces.fit(X)
            parameters = n_parameters(K, subspaces.bases_.shape[1], d)
            score = subspaces.log_likelihood_ - self._cost(self.caution, parameters, n * d)
            if score > best_score:
                best, best_score, without_gain = subspaces, score, 0
                self.path_.append((K, score))
            elif without_gain == 1:
                break
            else:
                without_gain += 1
        return best, best_score


def is_two_sided(X: Array) -> bool:
    """Whether the row that is most parallel to a row often points the other way: a subspace
    contains -x with x, a cloud of points around a mean does not.
    """
    units = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    cosines = units @ units.T
    np.fill_diagonal(cosines, 0.0)
    most = np.abs(cosines).argmax(axis=1)
    return bool((cosines[np.arange(len(X)), most] < 0).mean() > 0.2)


class _Candidate(NamedTuple):
    """A mixture in the search: responsibilities (n, K), parameters, penalised log-likelihood."""

    r: Array
    fit: Fit
    score: float


def _splits(mixture: Mixture, X: Array, r: Array, variance: float) -> Iterator[Array]:
    """Yield responsibilities with one more component, the most promising first."""
    owner = r.argmax(axis=1)
    promising = []
    for k in range(r.shape[1]):
        rows = np.flatnonzero(owner == k)
        if len(rows) >= 2:
            gain, side = mixture.best_split(X[rows], variance)
            promising.append((gain, k, rows[side]))
    for _, k, rows in sorted(promising, key=lambda p: -p[0])[:TRIES]:
        new = np.zeros(len(X))
        new[rows] = r[rows, k]
        split = np.column_stack([r, new])
        split[rows, k] = 0.0
        yield np.ascontiguousarray(split)


def _mergers(mixture: Mixture, X: Array, r: Array, variance: float) -> Iterator[Array]:
    """Yield responsibilities in which two components are one, the least loss first."""
    n = len(X)
    size, sums = r.sum(axis=0), r.T @ X

    def cost(N: Array, M: Array) -> Array:
        """Return minus the log-likelihood of N rows with sums M as one component."""
        N = np.maximum(N, 1e-9)
        share = -N * np.log(N / n)
        return np.asarray(share + mixture.costs(N, M, variance), np.float64)

    i, j = np.triu_indices(r.shape[1], 1)
    alone = cost(size, sums)
    loss = cost(size[i] + size[j], sums[i] + sums[j]) - alone[i] - alone[j]
    for pair in loss.argsort(kind="stable")[:TRIES]:
        merged = r.copy()
        merged[:, i[pair]] += merged[:, j[pair]]
        yield np.ascontiguousarray(np.delete(merged, j[pair], axis=1))
