"""Whether levels look alike, so that one decoder can serve them all."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import check_finite
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.trajectories import Observations

__all__ = ["cluster_by_level", "compare", "look_alike"]

Array = NDArray[np.float64]

CLEARLY = 0.1  # share of the noise by which labels of two levels differ if these look different
MAX_NUMBER = 1e9  # to which larger ones are scaled down
FEWEST, LARGE = 3, 0.2  # observations of a label, and their share, to compare it with another


def look_alike(data: Observations, labels: NDArray[np.int64]) -> bool | None:
    """Whether most levels have a label in common with the next; None if that cannot be told.

    For each two neighbouring levels, the observations of a label are compared with the closest mean
    of a label of the next level and with the mean of the others of their own; the label that fits
    best counts. Distances are divided by what they are on average if both means are of one state.

    Parameters
    ----------
    data : Observations
        Observations of all levels.
    labels : ndarray of shape (n,)
        Their labels, which mean something else at each level.

    Returns
    -------
    bool or None
        The answer.
    """
    x = data.x.reshape(len(data.x), -1).astype(np.float64)
    levels = []
    for h in range(int(data.levels.max()) + 1):
        at = np.flatnonzero(data.levels == h)
        rows = [x[at[labels[at] == k]] for k in np.unique(labels[at])]
        levels.append([each for each in rows if len(each) >= FEWEST])
    pairs = []
    for one, other in itertools.pairwise(levels):
        n = sum(map(len, one))
        large = [compare(rows, other) for rows in one if other and len(rows) >= LARGE * n]
        if large:
            pairs.append(min(large, key=_misfit))
    if not pairs:
        return None
    best = sorted(pairs, key=_misfit)[: len(pairs) // 2 + 1]  # a label may still be missing
    gap, distance = (np.concatenate(values) for values in zip(*best))
    if gap.mean() > CLEARLY * distance.mean():
        return False
    return True if gap.mean() <= gap.std() / math.sqrt(len(gap)) else None


def cluster_by_level(data: Observations) -> tuple[Observations, NDArray[np.int64]]:
    """Label observations with a mixture for each level.

    Parameters
    ----------
    data : Observations
        Observations of all levels, in any order.

    Returns
    -------
    data : Observations
        The same, in an order that depends on nothing but them. Huge numbers are scaled down.
    labels : ndarray of shape (n,)
        Their labels.
    """
    check_finite(data.x)
    order = data.order()
    levels, x = data.levels[order], data.x[order].reshape(len(order), -1).astype(np.float64)
    x /= max(np.abs(x).max() / MAX_NUMBER, 1.0)  # the mixture rejects huge numbers, others do not
    labels = np.zeros(len(x), np.int64)
    for h in np.unique(levels):
        labels[levels == h] = DirichletMixture().fit(x[levels == h]).labels_
    return Observations(levels, x), labels


def _misfit(fit: tuple[Array, Array]) -> float:
    gap, distance = fit
    return float(gap.mean() / distance.mean())


def compare(rows: Array, others: list[Array]) -> tuple[Array, Array]:
    """Return by how much rows are farther from the closest mean of others than from their own, and
    how far they are from their own.
    """
    n = len(rows)
    own = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1) * (n / (n - 1))
    gaps = [
        ((rows - other.mean(axis=0)) ** 2).sum(axis=1) * (len(other) / (len(other) + 1))
        for other in others
    ]
    return np.min(gaps, axis=0) - own, own + 1e-300
