"""Emissions in which each state has its own parameters: the mixtures that the paper names.

Given the state, the coordinates of an observation are independent bits, categories or counts, or
the observation lies in a subspace (Feng et al. 2020, examples of unsupervised learning oracles).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blockmdp.checks import check_number
from blockmdp.emissions import Emission
from blockmdp.jit import jit
from blockmdp.rng import normal, uniform

__all__ = ["Bits", "Categories", "Counts", "Subspaces"]

Array = NDArray[np.float64]
MAX_RATE = 500.0  # above, exp(-rate) loses its digits


class Bits(Emission):
    """Independent bits, each with a probability that depends on the state.

    Parameters
    ----------
    p : array-like of shape (n_states, dim)
        Probability of a 1 for each state and bit.

    See Also
    --------
    OneHotBernoulli : A one-hot code of the state, followed by bits that do not depend on it.
    blockmdp.oracles.BernoulliMixture : The oracle that is made for it.

    Examples
    --------
    >>> from blockmdp import rng
    >>> emission = Bits([[0.1, 0.9, 0.5], [0.9, 0.1, 0.5]])
    >>> emission.sample(0, np.array([0, 1]), rng.children(rng.root(0), 0, 2))
    array([[0, 1, 1],
           [1, 0, 0]], dtype=int8)
    """

    dtype = np.int8
    low, high = 0.0, 1.0
    finite = True

    def __init__(self, p: ArrayLike) -> None:
        self.p = _table("Bits: p", p, 2)
        _check(self.p <= 1, "Bits: p", self.p, "in [0, 1]")
        self.n_states, self.dim = self.p.shape
        self._thresholds = _read_only(1.0 - self.p[:, :, None])

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.int8]:
        return np.asarray(numbers_by_threshold(keys, states, self._thresholds), np.int8)


class Categories(Emission):
    """Independent categories, with probabilities that depend on the state.

    Parameters
    ----------
    p : array-like of shape (n_states, dim, m), or sequence of dim such arrays (n_states, m_j)
        Probabilities of the categories 0, ..., m - 1 for each state and coordinate. Each
        coordinate can have another number of categories if there is one array for each.

    See Also
    --------
    blockmdp.oracles.CategoricalMixture : The oracle that is made for it.

    Examples
    --------
    >>> from blockmdp import rng
    >>> emission = Categories([[[0.8, 0.1, 0.1]] * 4, [[0.1, 0.1, 0.8]] * 4])
    >>> emission.sample(0, np.array([0, 1]), rng.children(rng.root(0), 0, 2))
    array([[0, 0, 0, 0],
           [2, 2, 2, 2]], dtype=int16)
    """

    dtype = np.int16
    low = 0.0
    finite = True

    def __init__(self, p: ArrayLike | Sequence[ArrayLike]) -> None:
        self.p = _table("Categories: p", _padded(p), 3)
        total = self.p.sum(axis=2)
        _check(np.abs(total - 1) < 1e-8, "Categories: the sum of p", total, "1")
        self.n_states, self.dim, m = self.p.shape
        self.high = float(m - 1)
        within = np.cumsum(self.p, axis=2)[:, :, :-1]
        last = m - 1 - (self.p[:, :, ::-1] > 0).argmax(axis=2)  # rounding: the sum may be below 1
        within[np.arange(m - 1) >= last[:, :, None]] = 1.0
        self._thresholds = _read_only(within)

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.int16]:
        return np.asarray(numbers_by_threshold(keys, states, self._thresholds), np.int16)


class Counts(Emission):
    """Independent Poisson counts, with rates that depend on the state.

    Parameters
    ----------
    rates : array-like of shape (n_states, dim)
        Mean count for each state and coordinate, from 0 to 500.

    See Also
    --------
    blockmdp.oracles.PoissonMixture : The oracle that is made for it.

    Examples
    --------
    >>> from blockmdp import rng
    >>> emission = Counts([[1.0, 20.0], [20.0, 1.0]])
    >>> emission.sample(0, np.array([0, 1]), rng.children(rng.root(0), 0, 2))
    array([[ 1, 17],
           [24,  2]], dtype=int16)
    """

    dtype = np.int16
    low = 0.0

    def __init__(self, rates: ArrayLike) -> None:
        self.rates = _table("Counts: rates", rates, 2)
        _check(self.rates <= MAX_RATE, "Counts: rates", self.rates, f"at most {MAX_RATE:g}")
        self.n_states, self.dim = self.rates.shape
        most = float(self.rates.max())
        n = int(most + 12 * most**0.5 + 20)  # a uniform number never reaches beyond
        self.high = float(n)
        p = np.empty((*self.rates.shape, n))
        with localcontext(prec=30):  # the decimal exp is the same on every CPU
            p[:, :, 0] = [[float((-Decimal(r)).exp()) for r in row] for row in self.rates.tolist()]
        for k in range(1, n):
            p[:, :, k] = p[:, :, k - 1] * self.rates / k
        self._thresholds = _read_only(np.cumsum(p, axis=2))

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.int16]:
        return np.asarray(numbers_by_threshold(keys, states, self._thresholds), np.int16)


class Subspaces(Emission):
    """Each state is a subspace through the origin; observations lie in it, up to noise.

    An observation is a combination of the state's vectors, with standard normal coefficients, plus
    Gaussian noise on every coordinate.

    Parameters
    ----------
    vectors : array-like of shape (n_states, p, dim)
        Vectors that span the subspace of each state.
    sigma : float, default=0.0
        Standard deviation of the noise.

    See Also
    --------
    blockmdp.oracles.SubspaceClustering : The oracle that is made for it.

    Notes
    -----
    Subspaces meet in the origin, so with noise, an observation near it can come from any state.

    Examples
    --------
    >>> from blockmdp import rng
    >>> emission = Subspaces([[[1.0, 1.0, 0.0]], [[0.0, 1.0, -1.0]]])
    >>> emission.sample(0, np.array([0, 1]), rng.children(rng.root(0), 0, 2)).round(1)
    array([[ 1.1,  1.1,  0. ],
           [ 0. ,  1.1, -1.1]])
    """

    def __init__(self, vectors: ArrayLike, sigma: float = 0.0) -> None:
        self.vectors = _table("Subspaces: vectors", vectors, 3, least=-np.inf)
        self.sigma = check_number("Subspaces: sigma", sigma, 0)
        self.n_states, self.n_dims, self.dim = self.vectors.shape

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        return np.asarray(in_subspaces(keys, states, self.vectors, self.sigma), np.float64)


def _padded(p: Any) -> Any:
    """Return arrays (n_states, m_j), one for each coordinate, as one array (n_states, dim, m)."""
    try:
        whole = np.asarray(p)
    except ValueError:  # different lengths
        whole = np.zeros(0)
    if whole.ndim == 3:
        return whole
    parts = [_numbers("Categories: p", part) for part in p] if np.iterable(p) else []
    if not parts or any(part.ndim != 2 or len(part) != len(parts[0]) for part in parts):
        shapes = ", ".join(str(part.shape) for part in parts) or "none"
        raise ValueError(
            "Categories: p must be an array (n_states, dim, m), or one array (n_states, m_j) for "
            f"each coordinate, got the shapes {shapes}"
        )
    out = np.zeros((len(parts[0]), len(parts), max(part.shape[1] for part in parts)))
    for j, part in enumerate(parts):
        out[:, j, : part.shape[1]] = part
    return out


def _table(name: str, values: ArrayLike, ndim: int, least: float = 0.0) -> Array:
    """Return parameters as an array that cannot be changed, after a check."""
    table = _numbers(name, values)
    if table.ndim != ndim or 0 in table.shape:
        raise ValueError(f"{name} must have {ndim} dimensions, none empty, got {table.shape}")
    _check(np.isfinite(table) & (table >= least), name, table, f"finite and >= {least:g}")
    return _read_only(table)


def _numbers(name: str, values: ArrayLike) -> Array:
    """Return a new array of numbers."""
    try:
        table = np.array(values)
        if table.dtype.kind in "biuf":
            return table.astype(np.float64)
    except ValueError:  # different lengths
        pass
    given = " ".join(repr(values).split())
    raise ValueError(f"{name} must be numbers in rows of the same length, got {given:.80}")


def _check(good: NDArray[np.bool_], name: str, values: Array, expected: str) -> None:
    if not good.all():
        at = tuple(int(i) for i in np.argwhere(~good)[0])
        place = "".join(f"[{i}]" for i in at)
        raise ValueError(f"{name}{place} must be {expected}, got {values[at]}")


def _read_only(a: Array) -> Array:
    a = np.ascontiguousarray(a)
    a.setflags(write=False)
    return a


# --- compiled loops -------------------------------------------------------------------------------
@jit
def numbers_by_threshold(
    keys: NDArray[np.uint64], states: NDArray[np.int64], thresholds: Array
) -> NDArray[np.int64]:
    """Return (n, d) numbers: how many of the thresholds of state and coordinate are at most u.

    u = `uniform(key, j)` for coordinate j. thresholds: (S, d, m), ascending.
    """
    n, d, m = len(keys), thresholds.shape[1], thresholds.shape[2]
    out = np.empty((n, d), np.int64)
    for i in range(n):
        for j in range(d):
            u = uniform(keys[i], j)
            low, high = 0, m
            while low < high:
                middle = (low + high) // 2
                if thresholds[states[i], j, middle] <= u:
                    low = middle + 1
                else:
                    high = middle
            out[i, j] = low
    return out


@jit
def in_subspaces(
    keys: NDArray[np.uint64], states: NDArray[np.int64], vectors: Array, sigma: float
) -> Array:
    """Return (n, d) points in the subspaces that vectors (S, p, d) span, plus noise.

    The coefficients are `normal(key, 0)`, ..., `normal(key, p - 1)`; the noise follows them.
    """
    p, d = vectors.shape[1], vectors.shape[2]
    out = np.empty((len(keys), d))
    for i in range(len(keys)):
        for j in range(d):
            out[i, j] = sigma * normal(keys[i], p + j)
        for k in range(p):
            z = normal(keys[i], k)
            for j in range(d):
                out[i, j] += z * vectors[states[i], k, j]
    return out
