"""Statistics of runs: pure functions of arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "anytime",
    "average_curve",
    "bootstrap",
    "bootstraps",
    "holm",
    "improvement",
    "iqm",
    "iqms",
    "median_with_censoring",
    "permutation_test",
    "quartiles",
    "resamples",
    "sliding_curve",
    "solved_at",
    "stratified",
    "thin",
    "wilson",
]

Array = NDArray[np.float64]
Window = int | Literal["all"]
EXACT = 12  # differences up to which all choices of signs are tried


def thin(n: int, points: int = 200) -> NDArray[np.int64]:
    """Return evenly spaced numbers of episodes, the last one n.

    Parameters
    ----------
    n : int
        Number of episodes.
    points : int, default=200
        Number of points; fewer if n is smaller.

    Returns
    -------
    ndarray of shape (points,)
        Increasing numbers from 1 to n.

    Examples
    --------
    >>> thin(1000, 4).tolist(), thin(3).tolist()
    ([250, 500, 750, 1000], [1, 2, 3])
    """
    at = np.unique(np.linspace(0, n, points + 1).round().astype(np.int64))
    return at[at > 0]


def solved_at(returns: Array, threshold: float, window: Window = 1000) -> int | None:
    """Return the number of episodes until the mean of the last returns exceeds a threshold.

    Parameters
    ----------
    returns : ndarray of shape (episodes,)
        Return of each episode.
    threshold : float
        Mean return to exceed.
    window : int or "all", default=1000
        Number of last returns to average. There is no mean before the window is full.

    Returns
    -------
    int or None
        None if the mean never exceeds the threshold.

    Examples
    --------
    >>> returns = np.array([0.0, 0.0, 1.0, 1.0])
    >>> solved_at(returns, 0.45, window=2), solved_at(returns, 0.45, window="all")
    (3, 4)
    """
    total = np.concatenate([[0.0], np.cumsum(returns)])
    if window == "all":
        above = np.flatnonzero(total[1:] > threshold * np.arange(1, len(total)))
        return int(above[0]) + 1 if len(above) else None
    above = np.flatnonzero(total[window:] - total[:-window] > threshold * window)
    return int(above[0]) + window if len(above) else None


def average_curve(trajectories: NDArray[np.int64], total: Array) -> Array:
    """Return the average reward: the sum of the learner's returns so far per trajectory so far.

    Trajectories drawn to train or test an oracle count, but their rewards do not.

    Parameters
    ----------
    trajectories : ndarray of shape (points,)
        Trajectories of all kinds so far.
    total : ndarray of shape (points,)
        Sum of the returns of the learning episodes so far.

    Returns
    -------
    ndarray of shape (points,)
        Average reward at each point.
    """
    return np.asarray(total / trajectories, np.float64)


def sliding_curve(n: NDArray[np.int64], total: Array, window: Window = 1000) -> Array:
    """Return the mean of the last returns at each point of a curve.

    Exact if the window starts at a point of the curve, interpolated if it starts between two.

    Parameters
    ----------
    n : ndarray of shape (points,)
        Learning episodes so far.
    total : ndarray of shape (points,)
        Sum of their returns.
    window : int or "all", default=1000
        Number of last returns to average; all returns where there are fewer.

    Returns
    -------
    ndarray of shape (points,)
        Mean return at each point.

    Examples
    --------
    >>> sliding_curve(np.array([1, 2, 3]), np.array([0.0, 1.0, 2.0]), window=2).tolist()
    [0.0, 0.5, 1.0]
    """
    start = np.zeros_like(n) if window == "all" else np.maximum(n - window, 0)
    before = np.interp(start, np.concatenate([[0], n]), np.concatenate([[0.0], total]))
    return np.asarray((total - before) / (n - start), np.float64)


@functools.lru_cache(maxsize=1024)
def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's confidence interval for a fraction.

    Parameters
    ----------
    successes, n : int
        Number of successes, and of trials.
    confidence : float, default=0.95
        Level of the interval.

    Returns
    -------
    low, high : float
        Ends of the interval; 0 and 1 without trials.

    Examples
    --------
    >>> [round(end, 2) for end in wilson(40, 50)]
    [0.67, 0.89]
    """
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre, scale = p + z * z / (2 * n), 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - half) / scale, (centre + half) / scale
    return max(min(low, p), 0.0), min(max(high, p), 1.0)  # despite rounding


def iqm(values: Array) -> float:
    """Return the interquartile mean: the mean of the middle half.

    Parameters
    ----------
    values : ndarray of shape (n,)
        At least one value. Values at the edges of the middle half count in part.

    Returns
    -------
    float
        The interquartile mean.

    Examples
    --------
    >>> iqm(np.array([0.0, 1.0, 2.0, 9.0])), iqm(np.array([3.0]))
    (1.5, 3.0)
    """
    return float(iqms(np.asarray(values, np.float64)[None])[0])


def iqms(values: Array) -> Array:
    """Return the interquartile means of the rows of a matrix. See `iqm`.

    Parameters
    ----------
    values : ndarray of shape (means, n)
        At least one value for each mean.

    Returns
    -------
    ndarray of shape (means,)
        The interquartile means.
    """
    n = values.shape[1]
    edges = np.arange(n + 1) / n
    inside = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    if n == 1:
        return np.asarray(values[:, 0] * inside / inside, np.float64)
    # one product at a time: a product of matrices rounds differently
    sums = np.array([row @ inside for row in np.sort(values, axis=1)])
    return np.asarray(sums / inside.sum(), np.float64)


def bootstrap(values: Array, confidence: float = 0.95) -> tuple[float, float]:
    """Return the percentile bootstrap's confidence interval for a mean.

    The same values give the same interval. For more than 1000 values, the normal interval is used,
    which is practically the same.

    Parameters
    ----------
    values : ndarray of shape (n,)
        At least one value.
    confidence : float, default=0.95
        Level of the interval.

    Returns
    -------
    low, high : float
        Ends of the interval.
    """
    low, high = bootstraps(np.asarray(values, np.float64)[None], confidence)
    return float(low[0]), float(high[0])


def bootstraps(values: Array, confidence: float = 0.95) -> tuple[Array, Array]:
    """Return the confidence intervals of many means at once. See `bootstrap`.

    Parameters
    ----------
    values : ndarray of shape (means, n)
        At least one value for each mean.
    confidence : float, default=0.95
        Level of the intervals.

    Returns
    -------
    low, high : ndarray of shape (means,)
        Ends of the intervals.
    """
    ends = 0.5 - confidence / 2, 0.5 + confidence / 2
    found = np.stack([values[:, 0], values[:, 0]])  # of values that are all the same
    differ = np.flatnonzero((values != values[:, :1]).any(axis=1))
    n = values.shape[1]
    if n > 1000:
        for i in differ:
            mean = NormalDist(values[i].mean(), values[i].std() / math.sqrt(n))
            found[:, i] = [mean.inv_cdf(end) for end in ends]
    elif len(differ):
        # one product at a time: a product of matrices rounds differently
        means = np.stack([_weights(n) @ values[i] for i in differ])
        found[:, differ] = np.quantile(means, ends, axis=1)
    return found[0], found[1]


def anytime(values: Array, confidence: float = 0.95, best_at: int = 50) -> float:
    """Return half the width of an interval for the mean that holds at every sample size at once.

    Whoever looks at an ordinary interval after each value, and stops when it is narrow, stops when
    it is too narrow by chance. This one is an asymptotic confidence sequence: with probability
    `confidence` the mean is inside at all sample sizes, so it is when one stops. It is about 1.5
    times as wide.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Values so far, at least two.
    confidence : float, default=0.95
        Level of the interval.
    best_at : int, default=50
        Sample size at which the interval is as narrow as possible.

    Returns
    -------
    float
        The interval is the mean, plus or minus this.

    References
    ----------
    I. Waudby-Smith, D. Arbour, R. Sinha, E. H. Kennedy and A. Ramdas, *Time-uniform central limit
    theory and asymptotic confidence sequences*, Annals of Statistics 2024, Theorem 2.2.

    Examples
    --------
    >>> values = np.array([0.4, 0.6] * 25)
    >>> round(anytime(values), 3)  # 1.96 * 0.1 / sqrt(50) is 0.028
    0.043
    """
    n, alpha = len(values), 1 - confidence
    log = -2 * math.log(alpha)
    rho = (log + math.log(log + 1)) / best_at  # its square, in the paper's words
    width = 2 * (n * rho + 1) / (n**2 * rho) * math.log(math.sqrt(n * rho + 1) / alpha)
    return float(np.std(values, ddof=1) * math.sqrt(width))


def resamples(n: int, times: int = 2000, stratum: int = 0) -> NDArray[np.int64]:
    """Return the indices that bootstrap resamples draw from n values, of shape (times, n). Those of
    different strata are independent.
    """
    from blockmdp import rng  # here, because compiled functions take half a second

    keys = rng.children(np.uint64(n), stratum * times, times)
    return (rng.uniforms(keys, n) * n).astype(np.int64)


@functools.lru_cache(maxsize=8)
def _weights(n: int) -> Array:
    """Return the weight of each of n values in the mean of each resample, of shape (times, n)."""
    drawn = resamples(n)
    drawn += n * np.arange(len(drawn))[:, None]
    return np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape) / n


def stratified(
    statistic: Callable[[list[Array]], Any], strata: Sequence[Array], confidence: float = 0.95
) -> tuple[Any, Any]:
    """Return the stratified bootstrap's confidence interval for a statistic.

    Parameters
    ----------
    statistic : callable
        Takes a list of arrays like `strata`, and returns a number or an array.
    strata : sequence of ndarray of shape (n, ...)
        Values of each stratum, such as those of the seeds of a problem. They are resampled along
        the first axis, within their stratum only.
    confidence : float, default=0.95
        Level of the interval.

    Returns
    -------
    low, high : float or ndarray
        Ends of the interval, at each entry of the statistic.
    """
    drawn = [resamples(len(values), stratum=i) for i, values in enumerate(strata)]
    found = [
        statistic([values[rows] for values, rows in zip(strata, each)]) for each in zip(*drawn)
    ]
    low, high = np.quantile(found, [0.5 - confidence / 2, 0.5 + confidence / 2], axis=0)
    return low, high


def improvement(one: Array, other: Array) -> float:
    """Return the probability that a run of one agent has a larger value than one of another.

    Parameters
    ----------
    one, other : ndarray of shape (n,) and (m,)
        Values of the runs of both agents. All pairs are compared, and equal values count half.

    Returns
    -------
    float
        The probability.

    Examples
    --------
    >>> improvement(np.array([1.0, 3.0]), np.array([1.0, 2.0]))
    0.625
    """
    larger, equal = one[:, None] > other, one[:, None] == other
    return float((larger + 0.5 * equal).mean())


def permutation_test(differences: Array) -> float:
    """Return the p-value of a permutation test of whether the mean of paired differences is 0.

    If both agents are alike, each difference is as likely as its opposite. The p-value is the share
    of all choices of signs for which the mean is at least as far from 0.

    Parameters
    ----------
    differences : ndarray of shape (n,)
        At least one number.

    Returns
    -------
    float
        Exact for up to 12 differences that are not 0; for more, of 10,000 choices of signs.

    Examples
    --------
    >>> permutation_test(np.array([1.0, 2.0, 3.0, 4.0, 5.0])), permutation_test(np.zeros(3))
    (0.0625, 1.0)
    """
    differences = differences[differences != 0]
    n = len(differences)
    if n <= EXACT:
        signs = 1.0 - 2.0 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        from blockmdp import rng

        signs = np.where(rng.uniforms(rng.children(np.uint64(n), 0, 9_999), n) < 0.5, -1.0, 1.0)
        signs = np.vstack([np.ones(n), signs])
    sums = np.abs(signs @ differences)
    return float(np.mean(sums >= abs(differences.sum()) * (1 - 1e-12)))


def holm(p: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests (Holm 1979).

    Parameters
    ----------
    p : sequence of float
        p-values of the tests.

    Returns
    -------
    list of float
        Those below 0.05 are significant, with at most 5 % risk that any of them is wrong.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    order = np.argsort(p, kind="stable")
    scaled = np.asarray(p, np.float64)[order] * np.arange(len(p), 0, -1)
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(each) for each in corrected]


def median_with_censoring(values: list[int | None]) -> float:
    """Return the median, where None counts as longer than every number.

    Parameters
    ----------
    values : list of int or None
        Trajectories until solved; None for a run that was not solved.

    Returns
    -------
    float
        Infinite if the median is None.

    Examples
    --------
    >>> median_with_censoring([10, None, 20]), median_with_censoring([10, None, None])
    (20.0, inf)
    """
    known = sorted(math.inf if v is None else float(v) for v in values)
    middle = len(known) // 2
    if len(known) % 2:
        return known[middle]
    return (known[middle - 1] + known[middle]) / 2


def quartiles(values: list[int | None]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile, where None counts as longest.

    Parameters
    ----------
    values : list of int or None
        Trajectories until solved; None for a run that was not solved.

    Returns
    -------
    low, median, high : float
        Infinite where they are None.

    Examples
    --------
    >>> quartiles([10, 20, 30, 40, None])
    (20.0, 30.0, 40.0)
    """
    known = sorted(math.inf if v is None else float(v) for v in values)
    below, above = known[(len(known) - 1) // 4], known[-1 - (len(known) - 1) // 4]
    return below, median_with_censoring(values), above
