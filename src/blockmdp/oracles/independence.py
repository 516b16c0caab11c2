"""Clusters within which bits are independent, after Najafi, Motahari and Rabiee (2020).

They prove when a mixture of independent bits can be clustered although the number of clusters is
unknown. The bits of one component are independent, those of a mixture are not: this tells how many
components there are.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom
from sklearn.exceptions import ConvergenceWarning

from blockmdp.checks import check_integer, check_number
from blockmdp.oracles._em import Fit
from blockmdp.oracles.mixtures import BernoulliMixture

__all__ = ["IndependenceMixture"]

Array = NDArray[np.float64]
PAIRS = 20  # of bits that are tested exactly: those with the largest correlations


class IndependenceMixture(BernoulliMixture):
    """Mixture of bits with as few components as it takes to make the bits independent.

    It starts with one component. As long as two bits of a component depend on each other, by
    Fisher's exact test, the component is split. An observation is labelled with the component
    under which it is most probable, no matter how common that component was.

    Parameters
    ----------
    alpha : float, default=0.01
        Probability that independent bits of a component look dependent. The test of each pair is
        corrected for the number of pairs.
    max_components : int, default=50
        Largest number of components.
    max_iter : int, default=200
        Largest number of iterations of expectation maximisation after each split.
    tol : float, default=1e-5
        Stop when the mean log-likelihood rises by less than this.
    binarize : float, default=0.5
        Coordinates above this threshold are 1, all others 0.
    prior : float, default=0.5
        Zeros, and ones, added to what each component has seen of each bit.

    Attributes
    ----------
    n_labels_ : int
        Number of components that were found.
    p_values_ : ndarray of shape (n_labels,)
        Of the most dependent pair of bits of each component, corrected for the number of pairs.
    weights_ : ndarray of shape (n_labels,)
        All equal: how common a component was says nothing about the next policy.
    means_ : ndarray of shape (n_labels, d)
        Probabilities of a 1.
    labels_ : ndarray of shape (n,)
        Labels of the data.
    log_likelihood_ : float
        Log-likelihood of the data.
    n_iter_ : int
        Iterations after the last split.

    See Also
    --------
    BernoulliMixture : With a given number of components.
    AutoOracle : Chooses the number by a penalised likelihood.
    blockmdp.Bits : An emission with such observations.

    Notes
    -----
    This has the setting and the idea of the paper: bits, an unknown number of components, and no
    dependence within a component. It is not the algorithm of its proof, and we were able to read
    only its abstract and what Feng et al. (2020) say of it. So its guarantee does not carry over:

    - Pairs of bits are tested. Components that differ in one bit only are not separated (their
      mixture is itself one of independent bits), nor are those that only show in three bits
      together.
    - The most dependent component is split at one bit of its most dependent pair, and expectation
      maximisation does the rest. No other clusterings are searched.

    References
    ----------
    Amir Najafi, Seyed Abolfazl Motahari and Hamid R. Rabiee. Reliable clustering of Bernoulli
    mixture models. Bernoulli 26, 2020.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5)
    >>> X = np.concatenate([m.sample(1, state, n=50) for state in range(3)])
    >>> IndependenceMixture().fit(X).n_labels_
    3
    """

    def __init__(
        self,
        *,
        alpha: float = 0.01,
        max_components: int = 50,
        max_iter: int = 200,
        tol: float = 1e-5,
        binarize: float = 0.5,
        prior: float = 0.5,
    ) -> None:
        self.alpha = alpha
        self.max_components = max_components
        self.max_iter = max_iter
        self.tol = tol
        self.binarize = binarize
        self.prior = prior

    def fit(self, X: Any, y: None = None) -> IndependenceMixture:
        """Learn from a data set.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        IndependenceMixture
            The estimator itself.
        """
        self._check_parameters()
        X = self._validated(X, reset=True)
        r = np.ones((len(X), 1))
        while True:
            fit: Fit = self._em(X, r)  # r becomes the responsibilities
            tests = [most_dependent(X, weights) for weights in r.T]
            self.p_values_ = np.array([p for p, _ in tests])
            worst = int(self.p_values_.argmin())
            if self.p_values_[worst] >= self.alpha or r.shape[1] >= self.max_components:
                break
            side = X[:, tests[worst][1]] > 0.5
            split = np.column_stack([r, np.where(side, r[:, worst], 0.0)])
            split[side, worst] = 0.0
            r = np.ascontiguousarray(split)
        self._set_parameters(fit)
        if self.n_iter_ == self.max_iter or self.p_values_.min() < self.alpha:
            warnings.warn(
                f"IndependenceMixture: bits still depend on each other with {r.shape[1]} "
                f"components, or {self.max_iter} iterations did not converge: try a larger "
                "max_components or max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.n_labels_ = len(self.means_)
        self.weights_ = np.full(self.n_labels_, 1.0 / self.n_labels_)
        self.labels_ = np.asarray(self._joint(X).argmax(axis=1), np.int64)
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("alpha", self.alpha, 0, 1)
        check_integer("max_components", self.max_components, 1)


def most_dependent(X: Array, weights: Array) -> tuple[float, int]:
    """Return the p-value of the most dependent pair of bits, corrected for the number of pairs, and
    the bit of the pair that depends more on all others. Rows count by their weights (n,).
    """
    n, d = float(weights.sum()), X.shape[1]
    if d < 2 or n < 2:
        return 1.0, 0
    ones = weights @ X
    both = (X * weights[:, None]).T @ X
    mean = ones / n
    spread = np.sqrt(np.maximum(mean * (1 - mean), 1e-12))
    C = (both / n - np.outer(mean, mean)) / np.outer(spread, spread)
    i, j = np.triu_indices(d, 1)
    top = np.argsort(-np.abs(C[i, j]) * np.minimum(ones[i], ones[j]) ** 0.5, kind="stable")[:PAIRS]
    i, j = i[top], j[top]
    N, a, b, k = (np.rint(v).astype(np.int64) for v in (n, ones[i], ones[j], both[i, j]))
    k = np.clip(k, np.maximum(a + b - N, 0), np.minimum(a, b))  # each was rounded by itself
    tails = hypergeom.cdf(k, N, a, b), hypergeom.sf(k - 1, N, a, b)
    p = np.minimum(1.0, 2 * np.minimum(*tails))
    best = int(p.argmin())
    np.fill_diagonal(C, 0.0)
    pair = i[best], j[best]
    bit = max(pair, key=lambda each: float((C[each] ** 2).sum()))
    return min(1.0, float(p[best]) * d * (d - 1) / 2), int(bit)
