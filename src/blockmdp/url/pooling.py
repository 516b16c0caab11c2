"""Whether one decoder can serve all levels: a quick look, and a thorough one if that is needed."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import check_finite
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.trajectories import Observations
from blockmdp.url.levels import (
    CLEARLY,
    FEWEST,
    LARGE,
    MAX_NUMBER,
    cluster_by_level,
    compare,
    look_alike,
)

__all__ = ["can_pool"]

Array = NDArray[np.float64]

TIGHT = 1.25  # how much farther from their mean observations of one label may be at another level


def can_pool(data: Observations) -> bool:
    """Whether levels look alike, or it cannot be told.

    Parameters
    ----------
    data : Observations
        Observations of all levels, in any order.

    Returns
    -------
    bool
        The answer.
    """
    return surely_alike(data) or look_alike(*cluster_by_level(data)) is not False


def surely_alike(data: Observations) -> bool:
    """Whether most levels have a label in common with the next, if the labels of one level, or of a
    second one, show it. False if they do not, which means nothing.

    Clustering every level takes most of the time of a short fit. Here one level is clustered, and
    the observations of all others get its nearest label.

    Parameters
    ----------
    data : Observations
        Observations of all levels, in any order.

    Returns
    -------
    bool
        The answer.
    """
    check_finite(data.x)
    order = data.order()
    at, x = data.levels[order], data.x[order].reshape(len(order), -1).astype(np.float64)
    if np.abs(x).max() > MAX_NUMBER:
        return False
    levels = [x[at == h] for h in range(int(at.max()) + 1)]
    enough = (len(levels) - 1) // 2 + 1  # see `look_alike`
    for h in sorted({1, len(levels) // 2}):
        if h < len(levels) and len(levels[h]) >= FEWEST:
            labels = _labels_of(levels[h])
            parts = [_parts(rows, labels) for rows in levels]
            alike = sum(_have_common(*pair, labels) for pair in itertools.pairwise(parts))
            if alike >= enough:
                return True
    return False


def _labels_of(rows: Array) -> list[Array]:
    """Cluster the observations of a level; return those of each label that has enough."""
    z = DirichletMixture().fit(rows).labels_
    parts = [rows[z == k] for k in np.unique(z)]
    return [part for part in parts if len(part) >= FEWEST]


def _parts(rows: Array, labels: list[Array]) -> list[Array]:
    """Return the rows that are closest to the mean of each label."""
    if not labels:
        return []
    far = [((rows - label.mean(axis=0)) ** 2).sum(axis=1) for label in labels]
    nearest = np.argmin(far, axis=0)
    return [rows[nearest == k] for k in range(len(labels))]


def _have_common(one: list[Array], other: list[Array], labels: list[Array]) -> bool:
    """Whether two levels have a label in common: a large one, as tight as where it was found."""
    n = sum(map(len, one))
    for a, b, label in zip(one, other, labels):
        if len(a) >= max(FEWEST, LARGE * n) and len(b) >= FEWEST:
            gap, distance = compare(a, [b])
            noise = compare(label, [label])[1].mean()
            if gap.mean() <= CLEARLY * distance.mean() and distance.mean() <= TIGHT * noise:
                return True
    return False
