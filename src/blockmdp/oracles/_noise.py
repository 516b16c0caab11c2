"""The shape of noise, learnt from deviations: a covariance, shrunk by its evidence.

Deviations have the distribution N(0, Sigma). The prior of Sigma is an inverse Wishart distribution
around psi I, whose weight is that of `weight` observations. The scale psi and the weight maximise
the evidence. Round noise gets a large weight, so its estimate is round too.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpstrf
from scipy.spatial.distance import cdist
from scipy.special import gammaln

__all__ = [
    "MIN_DEGREES",
    "UNIT_DENSITY",
    "cell_limits",
    "modes",
    "neighbour_differences",
    "rank",
    "robust_range",
    "whitening",
]

Array = NDArray[np.float64]

WEIGHTS = (*np.geomspace(1.0, 1e4, 17), 1e6)
SCALES = 25
MIN_DEGREES = 3  # observations for each coordinate, from which on the shape of the noise is learnt
ROUND = 1.5  # ratio of the variances of two directions up to which noise counts as round
QUERIES, STEPS = 200, 3  # observations whose neighbours are found, and how often
NEIGHBOURS = 10_000  # observations among which they are found
LEAST = 0.05  # share of the largest variance of neighbours to which smaller ones are raised
FAR, LIMIT = 4.0, 2.5  # standard deviations: what is far out, and where it is clipped
MIN_CELLS, MIN_SHARE = 20, 0.01  # numbers far out, and their share, from which on they are clipped
MIN_PAIRS = 6  # pairs of them in one row that there should be by chance, so that the test can fail
# variance of a normal density that is 1 at its mean: the least for whole numbers, since no
# probability is larger
UNIT_DENSITY = 1 / (2 * math.pi)
NULL = 1e-9  # share of the largest variance below which there is no noise in a direction


def whitening(scatter: Array, degrees: float) -> Array | None:
    """Compute the matrix T for which the noise of x T is round, None if that of x already is.

    Parameters
    ----------
    scatter : ndarray of shape (d, d)
        Sum of the outer products of deviations from their mean.
    degrees : float
        Degrees of freedom of that sum.

    Returns
    -------
    ndarray of shape (d, d) or None
        Symmetric, with determinant 1 on the directions that the noise fills.
    """
    if _vary_by_chance(scatter, degrees):
        return None
    values = np.linalg.eigvalsh(scatter)  # the vectors, which take longer, are rarely needed
    filled = values > NULL * values[-1]
    s, d = values[filled], np.count_nonzero(filled)
    if d < 2:
        return None
    # the evidence of all weights (rows) and scales (columns)
    nu = np.array(WEIGHTS)[:, None] + d + 1
    scales = np.exp(np.linspace(math.log(s[0] / degrees), math.log(s[-1] / degrees), SCALES))
    psi = np.array(WEIGHTS)[:, None] * scales
    halves = np.arange(d) / 2
    constant = (gammaln((nu + degrees) / 2 - halves) - gammaln(nu / 2 - halves)).sum(axis=1)
    logs = np.log(psi[:, :, None] + s).sum(axis=2)
    evidence = constant[:, None] + 0.5 * nu * d * np.log(psi) - 0.5 * (nu + degrees) * logs
    i, j = np.unravel_index(evidence.argmax(), evidence.shape)
    variances = psi[i, j] + s
    if i == len(WEIGHTS) - 1 or variances.max() < ROUND * variances.min():
        return None
    vectors = np.linalg.eigh(scatter)[1]
    scale = np.ones(len(values))
    scale[filled] = np.exp(0.5 * (np.log(variances).mean() - np.log(variances)))
    # rounded, so that it is the same on every machine
    T = ((vectors * scale) @ vectors.T).astype(np.float32)
    return np.asarray(T, np.float64)


def _vary_by_chance(scatter: Array, degrees: float) -> bool:
    """Whether the eigenvalues vary no more than they are expected to if the noise is round.

    Then the evidence rises with the weight where that is large: the comparison below is whether its
    derivative by the inverse of the weight, where that is 0, is not positive. This recognises half
    of all round noise in a fraction of the time that the eigenvalues take.
    """
    trace, squares = np.trace(scatter), np.vdot(scatter, scatter)  # of the eigenvalues

    def is_expected(d: int) -> bool:
        return bool(degrees * d * squares <= (degrees + d + 1) * trace**2)

    # if it is true for more directions than the noise fills, it is also true for those
    return is_expected(len(scatter)) or is_expected(_most_filled(scatter))


def _most_filled(scatter: Array) -> int:
    """Return a bound of the number of directions that the noise fills: the number of columns of a
    Cholesky factor after which too little is left for one more.
    """
    least = NULL * np.trace(scatter) / len(scatter) ** 2
    return int(dpstrf(scatter, tol=least)[2])


def cell_limits(x: Array) -> tuple[Array, Array] | None:
    """Find limits for data in which single numbers are outliers.

    A few numbers that are far out are outliers if they are at random places: about as many pairs of
    them are in one row, and in one column, as by chance. Outliers that are whole rows have several
    in a row, and rare states have none, or several, or always the same ones.

    Parameters
    ----------
    x : ndarray of shape (n, d)
        Observations.

    Returns
    -------
    tuple of ndarray of shape (d,), or None
        Lower and upper limits, or None if there are no such outliers.
    """
    squares = (x - x.mean(axis=0)) ** 2
    if np.count_nonzero(squares > 9 * squares.mean(axis=0)) < 0.5 * MIN_SHARE * x.size:
        return None  # as most data, and much faster than medians
    median, deviation = _robust_moments(x)
    moves = deviation > 0
    far = np.abs(x - median)[:, moves] > FAR * deviation[moves]
    n_far = np.count_nonzero(far)
    if n_far < max(MIN_CELLS, MIN_SHARE * far.size):
        return None
    pairs = n_far * (n_far - 1) / (far.size - 1) / 2
    by_row, by_column = pairs * (far.shape[1] - 1), pairs * (far.shape[0] - 1)  # by chance
    in_rows, in_columns = (_pairs(far.sum(axis=axis)) for axis in (1, 0))
    if by_row < MIN_PAIRS or in_columns > 2 * by_column + 3:
        return None
    if not 0.5 * by_row <= in_rows <= 3 * by_row:
        return None
    return _limits(median, deviation)


def robust_range(x: Array) -> tuple[Array, Array]:
    """Return limits between which almost all numbers of a Gaussian with the same quartiles are.

    Parameters
    ----------
    x : ndarray of shape (n, d)
        Observations.

    Returns
    -------
    tuple of ndarray of shape (d,)
        Lower and upper limits; -inf and inf where half of the numbers are equal.
    """
    return _limits(*_robust_moments(x))


def _robust_moments(x: Array) -> tuple[Array, Array]:
    """Return the medians, and the standard deviations of Gaussians with the same quartiles."""
    quarter, median, three_quarters = np.quantile(x, (0.25, 0.5, 0.75), axis=0)
    return median, (three_quarters - quarter) / 1.349


def _limits(median: Array, deviation: Array) -> tuple[Array, Array]:
    width = np.where(deviation > 0, LIMIT * deviation, np.inf)
    return median - width, median + width


def _pairs(counts: NDArray[np.int64]) -> float:
    """Return how many pairs can be formed within groups of these sizes."""
    return float((counts * (counts - 1) / 2).sum())


def rank(x: Array) -> int:
    """Return the number of directions that observations fill.

    Parameters
    ----------
    x : ndarray of shape (n, d)
        Observations.

    Returns
    -------
    int
        At least 1.
    """
    x = x - x.mean(axis=0)
    values = np.linalg.eigvalsh(x.T @ x if x.shape[1] <= len(x) else x @ x.T)
    return max(int(np.count_nonzero(values > NULL * values[-1])), 1)


def modes(x: Array) -> list[NDArray[np.bool_]]:
    """Split observations where close neighbours agree most.

    Observations of two states, seen through their common covariance, have the same variance in all
    directions, so the direction with the largest variance tells nothing. But close neighbours are
    mostly of the same state, so they differ least in the directions that tell states apart. Seen
    through the covariance of neighbours, even more neighbours are of the same state.

    Parameters
    ----------
    x : ndarray of shape (n, d)
        Observations.

    Returns
    -------
    list of ndarray of shape (n,)
        Masks of one of the two parts, for the two best directions.
    """
    x = x - x.mean(axis=0)
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    filled = values > NULL * values[-1]
    if not filled.any():
        return []
    y = x @ (vectors[:, filled] / np.sqrt(values[filled]))
    seen = y
    for _ in range(STEPS):
        differences = neighbour_differences(seen, y)
        values, vectors = np.linalg.eigh(differences.T @ differences)
        turned = y @ vectors
        seen = turned / np.sqrt(np.maximum(values, LEAST * values[-1]) + 1e-300)
    return [_two_means(turned[:, i]) for i in range(min(2, turned.shape[1]))]


def neighbour_differences(seen: Array, x: Array) -> Array:
    """Return how some rows of x differ from their closest neighbours.

    Parameters
    ----------
    seen : ndarray of shape (n, c)
        Where neighbours are close.
    x : ndarray of shape (n, d)
        The rows, in the same order.

    Returns
    -------
    ndarray of shape (m, d)
        Differences.
    """
    few = np.arange(0, len(x), max(len(x) // QUERIES, 1))
    many = np.arange(0, len(x), max(len(x) // NEIGHBOURS, 1))
    distances = cdist(seen[few], seen[many], "sqeuclidean")
    distances[few[:, None] == many] = np.inf
    return np.asarray(x[few] - x[many[distances.argmin(axis=1)]])


def _two_means(x: Array) -> NDArray[np.bool_]:
    """Split numbers into the two groups with the smallest variance."""
    x = x - x.mean()
    ordered = np.sort(x)
    sums, n = np.cumsum(ordered)[:-1], np.arange(1, len(x))
    between = sums**2 / (n * (len(x) - n))
    return np.asarray(x <= ordered[between.argmax()])
