"""Whether levels look alike, so that one decoder can serve them all."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.trajectories import Observations

__all__ = ["cluster_by_level", "look_alike"]

CLEARLY = 0.1  # share of the noise by which labels of two levels differ if these look different


def look_alike(data: Observations, labels: NDArray[np.int64]) -> bool | None:
    """Whether most levels have a label in common with the next; None if that cannot be told.

    For each two neighbouring levels, the observations of a label are compared with the mean of a
    label of the next level and with the mean of the others of their own; of all pairs of labels,
    the one counts that fits best. Distances are divided by what they are on average if both labels
    show the same state.

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
    at = [np.flatnonzero(data.levels == h) for h in range(int(data.levels.max()) + 1)]
    pairs = []
    for one, other in itertools.pairwise(at):
        fits = [
            _compare(x[one[labels[one] == i]], x[other[labels[other] == j]])
            for i in _large_labels(labels[one])
            for j in _large_labels(labels[other])
        ]
        if fits:
            pairs.append(min(fits, key=_misfit))
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
        The same, in an order that depends on nothing but them.
    labels : ndarray of shape (n,)
        Their labels.
    """
    flat = data.x.reshape(len(data.x), -1).astype(np.float64)
    order = np.lexsort((*flat.T, data.levels))
    levels, x = data.levels[order], flat[order]
    labels = np.zeros(len(x), np.int64)
    for h in np.unique(levels):
        labels[levels == h] = DirichletMixture().fit(x[levels == h]).labels_
    return Observations(levels, x), labels


def _misfit(fit: tuple[Any, Any]) -> float:
    gap, distance = fit
    return float(gap.mean() / distance.mean())


def _large_labels(z: NDArray[np.int64]) -> list[int]:
    counts = np.bincount(z)
    return [int(k) for k in np.flatnonzero(counts >= max(3, 0.2 * len(z)))]


def _compare(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[Any, Any]:
    """Return by how much `one` is farther from the mean of `other` than from its own, and how far
    it is from its own.
    """
    n, m = len(one), len(other)
    own = ((one - one.mean(axis=0)) ** 2).sum(axis=1) * (n / (n - 1))
    return ((one - other.mean(axis=0)) ** 2).sum(axis=1) * (m / (m + 1)) - own, own + 1e-300
