"""Trajectories, and the observations in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Observations", "Trajectories", "by_level"]


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations x (n, ...) and the level (n,) at which each was made, in no particular order."""

    levels: NDArray[np.int64]
    x: NDArray[Any]

    def __len__(self) -> int:
        return len(self.levels)

    def __add__(self, other: Observations) -> Observations:
        return Observations(
            np.concatenate([self.levels, other.levels]), np.concatenate([self.x, other.x])
        )


@dataclass(frozen=True, eq=False)
class Trajectories:
    """n trajectories, padded to H steps where an episode ended early.

    Attributes
    ----------
    x : (n, H + 1, ...) observations; empty where none were asked for.
    actions : (n, H)
    rewards : (n, H)
    lengths : (n,) steps taken.
    """

    x: NDArray[Any]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def returns(self) -> NDArray[np.float64]:
        """The return of each, (n,)."""
        return np.asarray(self.rewards.sum(axis=1), np.float64)

    @property
    def observations(self) -> Observations:
        """All observations, with their levels."""
        made = np.arange(self.x.shape[1]) <= self.lengths[:, None]
        return Observations(np.nonzero(made)[1], self.x[made])


def by_level(levels: NDArray[np.int64]) -> Iterator[tuple[int, slice | NDArray[np.int64]]]:
    """The rows of each level present: a slice where rows come in the order of their levels, else
    their indices.
    """
    if len(levels) == 1:  # by far the most frequent call, one observation at a time
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
