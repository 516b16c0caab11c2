"""Mixtures with compiled expectation maximisation, and an oracle that chooses one by the data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

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

from blockmdp.oracles._em import em

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
    with one full covariance. It begins as one component. A component in which coordinates depend on
    each other is split: bits by the one that another depends on most, numbers across their first
    principal direction. Splits, and then mergers, are kept as long as they are worth it: as long as
    the log-likelihood rises by more than the parameters cost, which is a price for each mean that
    is not that of all data. Nothing is drawn at random. Where no mixture can be fitted, the
    observations are scaled, projected and clustered by k-means.

    Numbers that repeat exactly come from a stock of observations (images, say); how often each was
    drawn says nothing about which are alike, so each counts once.

    The label of an observation is the component that makes it likeliest, however rare that was in
    the data: how often a policy comes to a state says nothing about the next policy.

    Parameters
    ----------
    max_labels : stop splitting there.
    caution : nats of log-likelihood that a parameter must be worth, and log d on top.

    Attributes
    ----------
    estimator_ : the mixture, or a pipeline, that was chosen.
    n_labels_ : how many labels it has.
    path_ : (labels, penalised log-likelihood) after each step that was kept.

    Examples
    --------
    >>> import blockmdp as bm
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
        """Learn from observations X (n, d)."""
        everything = X = np.ascontiguousarray(validate_data(self, X, dtype=np.float64))
        bits = bool(np.isin(X, (0.0, 1.0)).all())
        X = X if bits else self._distinct(X)
        best, score = self._grown(X, BernoulliMixture() if bits else SphericalMixture())
        if not bits:
            tied, tied_score = self._tied(X, best)
            if tied_score > score:
                best, score = tied, tied_score
        if not np.isfinite(score):
            clusters = KMeans(min(3, len(np.unique(X, axis=0))), n_init=10,
                              random_state=self.random_state)  # fmt: skip
            best = make_pipeline(StandardScaler(), PCA(min(3, *X.shape)), clusters).fit(X)
        else:
            best.weights_ = np.full(best.n_components, 1.0 / best.n_components)
        self.estimator_ = best
        last = best[-1] if hasattr(best, "steps") else best
        self.n_labels_ = int(getattr(last, "n_clusters", 0) or last.n_components)
        self.labels_ = self.predict(everything)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The label of each observation, (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.estimator_.predict(X), np.int64)

    def _distinct(self, X: Array) -> Array:
        """Every row once, if some repeat and there are too many to be labels of their own."""
        distinct = np.unique(X, axis=0)
        return distinct if self.max_labels < len(distinct) < len(X) else X

    def _grown(self, X: Array, mixture: _Mixture) -> tuple[Any, float]:
        """Split while it pays, then merge while it pays."""
        now = self._step(X, mixture, np.ones((len(X), 1)))
        self.path_ = [(1, now.score)]
        for ways in (_splits, _mergers):
            better: _Step | None = now
            while better is not None:
                now, better = better, None
                for r in ways(mixture._bits, X, now.r, now.found):
                    step = self._step(X, mixture, r)
                    if step.score > now.score and r.shape[1] <= self.max_labels:
                        better = step
                        self.path_.append((r.shape[1], step.score))
                        break
        mixture.set_params(n_components=now.r.shape[1])
        mixture.n_features_in_ = X.shape[1]
        mixture._keep(mixture._em(X, now.r, mixture.max_iter, mixture.tol))
        return mixture, now.score

    def _step(self, X: Array, mixture: _Mixture, r: Array) -> _Step:
        found = mixture._em(X, r, 50, 1e-4)
        penalty = self._penalty(mixture._bits, len(X), *found[:3])
        return _Step(r, found, float(found[3]) - penalty)

    def _penalty(
        self, bits: bool, n: int, log_weights: Array, means: Array, variance: float
    ) -> float:
        """What the parameters of a mixture cost: for each mean that differs from that of all data,
        what it gains, but no more than a price; all the more where there are few data for it.
        """
        K, d = means.shape
        weights = np.exp(log_weights)
        all_data = weights @ means
        if bits:
            p, q = means, np.clip(all_data, 1e-12, 1 - 1e-12)
            apart = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
        else:
            apart = (means - all_data) ** 2 / (2 * variance)
        price = self.caution + math.log(d)
        parameters = np.minimum(n * weights[:, None] * apart / price, 1.0).sum() + K - 1
        return self._cost(price, parameters, n * d)

    @staticmethod
    def _cost(price: float, parameters: float, numbers: int) -> float:
        left = numbers - parameters - 1
        return price * parameters * numbers / left if left > 0 else math.inf

    def _tied(self, X: Array, spherical: Any) -> tuple[Any, float]:
        """A mixture with one full covariance, begun from the spherical one."""
        n, d = X.shape
        k = spherical.n_components
        parameters = k * d + k - 1 + d * (d + 1) // 2
        penalty = self._cost(self.caution, parameters, n * d)
        if n < 4 * d:
            return None, -math.inf
        apart = X - spherical.means_[spherical.predict(X)]
        covariance = apart.T @ apart / n + spherical.reg_covar * np.eye(d)
        gain = 0.5 * n * (d * math.log(spherical.variance_) - np.linalg.slogdet(covariance)[1])
        if gain < self.caution * d * (d + 1) / 2:  # spherical is good enough
            return None, -math.inf
        tied = GaussianMixture(
            k, covariance_type="tied", means_init=spherical.means_, random_state=self.random_state
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


class _Step(NamedTuple):
    """A mixture on the way: responsibilities (n, K), what `em` found, the penalised likelihood."""

    r: Array
    found: Any
    score: float


TRIES = 4  # splits or mergers that may fail before no more are tried


def _splits(bits: bool, X: Array, r: Array, found: Any) -> Iterator[Array]:
    """Responsibilities with one component more, the most promising first."""
    owner = r.argmax(axis=1)
    promising = []
    for k in range(r.shape[1]):
        rows = np.flatnonzero(owner == k)
        if len(rows) >= 2:
            gain, side = best_split(bits, X[rows], found[2])
            promising.append((gain, k, rows[side]))
    for _, k, rows in sorted(promising, key=lambda p: -p[0])[:TRIES]:
        new = np.zeros(len(X))
        new[rows] = r[rows, k]
        split = np.column_stack([r, new])
        split[rows, k] = 0.0
        yield np.ascontiguousarray(split)


def best_split(bits: bool, X: Array, variance: float) -> tuple[float, NDArray[np.bool_]]:
    """Where to cut rows of one component in two, and about what that gains."""
    n = len(X)
    centred = X - X.mean(axis=0)
    if bits:
        C = centred.T @ centred / n
        spread = np.sqrt(np.maximum(np.diag(C), 1e-12))
        z = n * (C / np.outer(spread, spread)) ** 2  # dependence of each two bits, about chi^2
        np.fill_diagonal(z, 0.0)
        return float(z.max()) / 2, X[:, int(z.max(axis=1).argmax())] > 0.5
    if n < X.shape[1]:
        along = np.linalg.eigh(centred @ centred.T)[1][:, -1]
    else:
        along = centred @ np.linalg.eigh(centred.T @ centred / n)[1][:, -1]
    order = np.sort(along)
    size = np.arange(1, n)
    between = np.cumsum(order)[:-1] ** 2 * n / (size * (n - size))  # of two groups cut there
    cut = int(between.argmax())
    return float(between[cut]) / (2 * variance), along > (order[cut] + order[cut + 1]) / 2


def _mergers(bits: bool, X: Array, r: Array, found: Any) -> Iterator[Array]:
    """Responsibilities with two components made one, those first that lose least by it."""
    n = len(X)
    size, sums = r.sum(axis=0), r.T @ X

    def cost(N: Array, M: Array) -> Array:
        """Minus the log-likelihood of N rows with the sums M as one component, up to a constant."""
        N = np.maximum(N, 1e-9)
        share = -N * np.log(N / n)
        if not bits:
            return np.asarray(share - 0.5 * (M**2).sum(axis=1) / (N * found[2]))
        p = np.clip(M / N[:, None], 1e-9, 1 - 1e-9)
        return np.asarray(share - N * (p * np.log(p) + (1 - p) * np.log(1 - p)).sum(axis=1))

    i, j = np.triu_indices(r.shape[1], 1)
    alone = cost(size, sums)
    loss = cost(size[i] + size[j], sums[i] + sums[j]) - alone[i] - alone[j]
    for pair in loss.argsort(kind="stable")[:TRIES]:
        merged = r.copy()
        merged[:, i[pair]] += merged[:, j[pair]]
        yield np.ascontiguousarray(np.delete(merged, j[pair], axis=1))
