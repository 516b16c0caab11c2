"""Trajectories and observations as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Observations", "Trajectories", "by_level"]


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations with their levels, in any order.

    Attributes
    ----------
    levels : ndarray of shape (n,)
        Level at which each observation was made.
    x : ndarray of shape (n, ...)
        Observations.
    """

    levels: NDArray[np.int64]
    x: NDArray[Any]

    def __len__(self) -> int:
        return len(self.levels)

    def __add__(self, other: Observations) -> Observations:
        return Observations(
            np.concatenate([self.levels, other.levels]), np.concatenate([self.x, other.x])
        )

    def order(self) -> NDArray[np.int64]:
        """Order by level, then by the last coordinate, then by the one before it, and so on.

        Engines hand over observations in different orders.

        Returns
        -------
        ndarray of shape (n,)
            Indices of the observations.
        """
        flat = self.x.reshape(len(self.x), -1)
        for width in (4, 64, flat.shape[1]):  # the first few nearly always suffice
            keys = flat[:, -width:]
            order = np.lexsort((*keys.T, self.levels))
            one, other = order[1:], order[:-1]
            same = self.levels[one] == self.levels[other]
            if not (keys[one[same]] == keys[other[same]]).all(axis=1).any():
                break
        return order


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Several trajectories, padded to H steps if an episode ended early.

    Attributes
    ----------
    x : ndarray of shape (n, H + 1, ...)
        Observations; of shape (n, 0, ...) if they were not kept.
    actions : ndarray of shape (n, H)
        Actions.
    rewards : ndarray of shape (n, H)
        Rewards.
    lengths : ndarray of shape (n,)
        Number of steps before the padding.
    """

    x: NDArray[Any]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.actions)

    def __getitem__(self, rows: slice) -> Trajectories:
        """Return some of the trajectories."""
        return Trajectories(
            self.x[rows], self.actions[rows], self.rewards[rows], self.lengths[rows]
        )

    @property
    def returns(self) -> NDArray[np.float64]:
        """Return of each trajectory, an ndarray of shape (n,)."""
        return np.asarray(self.rewards.sum(axis=1), np.float64)

    @property
    def observations(self) -> Observations:
        """All observations, without the padding."""
        made = np.arange(self.x.shape[1]) <= self.lengths[:, None]
        return Observations(np.nonzero(made)[1], self.x[made])

    @property
    def steps(self) -> tuple[Observations, NDArray[Any], NDArray[np.int64]]:
        """The observations that followed an action, those before them, and the actions."""
        made = np.arange(self.actions.shape[1]) < self.lengths[:, None]
        after = Observations(np.nonzero(made)[1] + 1, self.x[:, 1:][made])
        return after, self.x[:, :-1][made], self.actions[made]


def by_level(levels: NDArray[np.int64]) -> Iterator[tuple[int, slice | NDArray[np.int64]]]:
    """Group rows by level.

    Parameters
    ----------
    levels : ndarray of shape (n,)
        Level of each row.

    Yields
    ------
    level : int
        A level that occurs, in increasing order.
    rows : slice or ndarray
        Rows of this level: a slice if `levels` is sorted, otherwise their indices.
    """
    if len(levels) == 1:  # by far the most frequent call
        yield int(levels[0]), slice(0, 1)
        return
    ordered = bool((levels[1:] >= levels[:-1]).all())
    order = None if ordered else np.argsort(levels, kind="stable")
    if order is not None:
        levels = levels[order]
    ends = np.append(np.flatnonzero(levels[1:] != levels[:-1]) + 1, len(levels))
    start = 0
    for end in ends[: len(levels)]:
        rows = slice(start, end) if order is None else order[start:end]
        yield int(levels[start]), rows
        start = end
