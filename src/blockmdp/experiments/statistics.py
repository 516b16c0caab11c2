"""Summaries of runs: pure functions of arrays."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng

__all__ = [
    "average_curve",
    "bootstrap",
    "iqm",
    "median_with_censoring",
    "quartiles",
    "resamples",
    "sliding_curve",
    "solved_at",
    "thin",
    "wilson",
]

Array = NDArray[np.float64]
Window = int | Literal["all"]  # how many of the last returns are averaged


def thin(n: int, points: int = 200) -> NDArray[np.int64]:
    """Evenly spaced numbers of episodes, the last one n. (points,), fewer where n is less.

    >>> thin(1000, 4).tolist(), thin(3).tolist()
    ([250, 500, 750, 1000], [1, 2, 3])
    """
    at = np.unique(np.linspace(0, n, points + 1).round().astype(np.int64))
    return at[at > 0]


def solved_at(returns: Array, threshold: float, window: Window = 1000) -> int | None:
    """Episodes until the mean of the last `window` returns, or of all, exceeds the threshold.

    None if it never does.

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
    """The paper's y-axis, average reward: the sum of the learner's returns so far over the number
    of trajectories of any kind so far. All arrays (points,).

    An oracle's trajectories count, what little they may have earned does not.
    """
    return np.asarray(total / trajectories, np.float64)


def sliding_curve(n: NDArray[np.int64], total: Array, window: Window = 1000) -> Array:
    """The mean of the last `window` returns, of all where there are fewer, at each point.

    Exact where the window's start is a point; else the total is interpolated there.

    >>> sliding_curve(np.array([1, 2, 3]), np.array([0.0, 1.0, 2.0]), window=2).tolist()
    [0.0, 0.5, 1.0]
    """
    start = np.zeros_like(n) if window == "all" else np.maximum(n - window, 0)
    before = np.interp(start, np.concatenate([[0], n]), np.concatenate([[0.0], total]))
    return np.asarray((total - before) / (n - start), np.float64)


def wilson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a share.

    >>> [round(end, 2) for end in wilson(40, 50)]
    [0.67, 0.89]
    """
    if n == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    centre, scale = p + z * z / (2 * n), 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return min((centre - half) / scale, p), max((centre + half) / scale, p)  # but for rounding


def iqm(values: Array) -> float:
    """The interquartile mean: of the middle half, runs at its edge in part.

    >>> iqm(np.array([0.0, 1.0, 2.0, 9.0])), iqm(np.array([3.0]))
    (1.5, 3.0)
    """
    values = np.sort(np.asarray(values, np.float64))
    n = len(values)
    edges = np.arange(n + 1) / n
    inside = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0, None)
    return float(values @ inside / inside.sum())


def bootstrap(values: Array, confidence: float = 0.95) -> tuple[float, float]:
    """The bootstrap's percentile interval for a mean; the same values give the same interval.

    Of more than 1000 values the mean is as good as normal, and so is the interval.
    """
    values = np.asarray(values, np.float64)
    if (values == values[0]).all():
        return float(values[0]), float(values[0])
    if len(values) > 1000:
        mean = NormalDist(values.mean(), values.std() / math.sqrt(len(values)))
        return mean.inv_cdf(0.5 - confidence / 2), mean.inv_cdf(0.5 + confidence / 2)
    means = _weights(len(values)) @ values
    low, high = np.quantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return float(low), float(high)


def resamples(n: int, times: int = 2000) -> NDArray[np.int64]:
    """Which of n values each resample draws. (times, n)"""
    return (rng.uniforms(rng.children(np.uint64(n), 0, times), n) * n).astype(np.int64)


@functools.lru_cache(maxsize=8)
def _weights(n: int) -> Array:
    """How much each of n values weighs in the mean of each resample. (times, n)"""
    drawn = resamples(n)
    drawn += n * np.arange(len(drawn))[:, None]
    return np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape) / n


def median_with_censoring(values: list[int | None]) -> float:
    """The median where None is longer than anything seen; infinite if it falls among those.

    >>> median_with_censoring([10, None, 20]), median_with_censoring([10, None, None])
    (20.0, inf)
    """
    known = sorted(math.inf if v is None else float(v) for v in values)
    middle = len(known) // 2
    if len(known) % 2:
        return known[middle]
    return (known[middle - 1] + known[middle]) / 2


def quartiles(values: list[int | None]) -> tuple[float, float, float]:
    """The quartiles where None is longer than anything seen; infinite where they fall among those.

    >>> quartiles([10, 20, 30, 40, None])
    (20.0, 30.0, 40.0)
    """
    known = sorted(math.inf if v is None else float(v) for v in values)
    below, above = known[(len(known) - 1) // 4], known[-1 - (len(known) - 1) // 4]
    return below, median_with_censoring(values), above
