"""Auto-encoder and SimHash, by which Tang et al. (2017) count states.

The hidden layer of an auto-encoder is rounded to a binary code, and random projections of the code
(SimHash, Charikar 2002) give the label. Training is that of `_network`: L-BFGS on one hidden layer,
compiled and the same on all CPUs, so no deep-learning library is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp import rng
from blockmdp.checks import InvalidParameterError, check_integer, check_number
from blockmdp.jit import jit
from blockmdp.oracles._network import Network, activate, train

__all__ = ["AutoencoderSimHash"]

Array = NDArray[np.float64]
MOST = 63  # bits of a hash, which is a positive integer


class AutoencoderSimHash(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Labels that are hashes of the code of an auto-encoder (Tang et al. 2017).

    Observations with the same hash get the same label. There can be many more labels than states.

    Parameters
    ----------
    n_hashes : int, default=16
        Number of random projections, k in the paper, at most 63. There are up to 2^n_hashes labels.
    units : int, default=8
        Number of hidden units of the auto-encoder: the length of the binary code, D in the paper.
    noise : float, default=0.3
        In training, uniform noise from -noise to noise is added to each hidden unit, which drives
        the units to 0 or 1.
    alpha : float, default=0.2
        Penalty for the squares of the weights. A larger one gives fewer labels.
    iterations : int, default=100
        Largest number of iterations of L-BFGS.
    tol : float, default=1e-4
        Stop when no derivative of the loss is larger than this.
    random_state : int, RandomState or None, default=None
        Seed of the weights and of the projections.

    Attributes
    ----------
    codes_ : ndarray of shape (n_labels,)
        Hashes of the labels, as integers, ascending.
    labels_ : ndarray of shape (n,)
        Labels of the data.
    n_labels_ : int
        Number of different hashes in the data.
    n_features_in_ : int
        Number of coordinates of an observation.

    See Also
    --------
    AutoOracle : Finds fewer labels where one of its mixtures fits.
    blockmdp.Digits : An emission with images.

    Notes
    -----
    Differences from the paper: the network has one hidden layer, the code, and no convolutions; it
    has squared errors instead of the likelihood of pixels; the noise of a row is the same in all
    iterations, and there is no other term that makes units binary; codes are centred before they
    are projected, so that units which are nearly always 1 do not decide the sign. A hash that is
    not in the data gets the label of the most similar one.

    References
    ----------
    Haoran Tang, Rein Houthooft, Davis Foote, Adam Stooke, Xi Chen, Yan Duan, John Schulman, Filip
    De Turck and Pieter Abbeel. #Exploration: A Study of Count-Based Exploration for Deep
    Reinforcement Learning. NeurIPS 2017.

    Moses S. Charikar. Similarity estimation techniques from rounding algorithms. STOC 2002.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_gaussian(horizon=5, sigma=0.1)
    >>> X = np.concatenate([m.sample(1, state, n=50) for state in range(3)])
    >>> labels = AutoencoderSimHash(random_state=0).fit_predict(X)
    >>> bool(set(labels[:50]) & set(labels[50:]))
    False
    """

    def __init__(
        self,
        n_hashes: int = 16,
        *,
        units: int = 8,
        noise: float = 0.3,
        alpha: float = 0.2,
        iterations: int = 100,
        tol: float = 1e-4,
        random_state: Any = None,
    ) -> None:
        self.n_hashes = n_hashes
        self.units = units
        self.noise = noise
        self.alpha = alpha
        self.iterations = iterations
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: None = None) -> AutoencoderSimHash:
        """Learn from a data set.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        AutoencoderSimHash
            The estimator itself.
        """
        if check_integer("n_hashes", self.n_hashes, 1) > MOST:
            raise InvalidParameterError(f"n_hashes must be from 1 to {MOST}, got {self.n_hashes!r}")
        for name in ("units", "iterations"):
            check_integer(name, getattr(self, name), 1)
        for name in ("noise", "alpha", "tol"):
            check_number(name, getattr(self, name), 0)
        X = np.ascontiguousarray(validate_data(self, X, dtype=np.float64))
        random = check_random_state(self.random_state)
        key = rng.root(int(random.randint(2**31 - 1)))
        self.mean_ = X.mean(axis=0)
        self.scale_ = float(np.sqrt(((X - self.mean_) ** 2).mean())) or 1.0
        rows = (X - self.mean_) / self.scale_
        penalty, noise, tol = float(self.alpha) * len(X), float(self.noise), float(self.tol)
        units, iterations = int(self.units), int(self.iterations)
        net = train(rows, rows, units, penalty, iterations, tol, key, noise)
        self._net = Network(*(np.array(part) for part in net))
        self._centre = np.asarray(binary_codes(rows, self._net).mean(axis=0), np.float64)
        keys = rng.children(rng.key(key, 1), 0, int(self.n_hashes))
        self._A = rng.normals(keys, units)
        self.codes_, labels = np.unique(self._hashes(X), return_inverse=True)
        self.n_labels_ = len(self.codes_)
        self.labels_ = np.asarray(labels, np.int64)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the label of the hash of each observation.

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
        X = np.ascontiguousarray(validate_data(self, X, dtype=np.float64, reset=False))
        hashes, at = np.unique(self._hashes(X), return_inverse=True)
        differ = np.bitwise_count(hashes[:, None] ^ self.codes_)
        return np.asarray(differ.argmin(axis=1)[at], np.int64)

    def _hashes(self, X: Array) -> NDArray[np.int64]:
        codes = binary_codes((X - self.mean_) / self.scale_, self._net)
        return np.asarray(sign_bits(codes - self._centre, self._A), np.int64)


# --- compiled loops: the hash of a row depends on that row alone ----------------------------------
@jit
def binary_codes(x: Array, net: Network) -> Array:
    """Return the hidden layer of rows x (n, d), rounded to 0 and 1, (n, units)."""
    hidden = np.empty((len(net.b), len(x)))
    activate(np.ascontiguousarray(x.T), net, hidden)
    out = np.empty((len(x), len(net.b)))
    for i in range(len(x)):
        for m in range(len(net.b)):
            out[i, m] = 1.0 if hidden[m, i] > 0.5 else 0.0
    return out


@jit
def sign_bits(x: Array, A: Array) -> NDArray[np.int64]:
    """Return the signs of A x for rows x (n, units), as bits of integers (n,). A: (k, units)."""
    out = np.zeros(len(x), np.int64)
    for i in range(len(x)):
        for k in range(len(A)):
            y = 0.0
            for m in range(x.shape[1]):
                y += A[k, m] * x[i, m]
            out[i] = 2 * out[i] + (1 if y > 0.0 else 0)
    return out
