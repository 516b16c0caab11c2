"""What an agent sees of the world: labels for observations.

A learner works on labels. A *sight* gives them: nothing at all where the latent states themselves
are shown (`None`), a table of all observations seen (`ObservationTable`), or a decoder that
unsupervised learning has made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from blockmdp.kernels.table import number_rows

__all__ = ["ObservationTable", "Sight", "by_level"]


class Sight(Protocol):
    """(level, observations) -> labels 0, ..., n_labels - 1."""

    @property
    def n_labels(self) -> int:
        """How many labels there are, at any level; may grow as observations are decoded."""

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """The labels (n,) of the observations x (n, ...), where x[i] was made at levels[i]."""


class ObservationTable:
    """Every observation is a label of its own: numbers them, at each level, in the order in which
    they are first met.
    """

    def __init__(self, horizon: int) -> None:
        self._levels = [_Rows() for _ in range(horizon + 1)]
        self._like: NDArray[Any] | None = None  # an observation, for its type and shape

    @property
    def n_labels(self) -> int:
        return max(level.count for level in self._levels)

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        if self._like is None and len(x):
            self._like = np.array(x[0])
        return self._numbers(levels, x, grow=True)

    def find(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """As `decode`, but -1 for observations never met, which stay unknown."""
        if self._like is None:
            return np.full(len(x), -1, np.int32)
        if x.shape[1:] != self._like.shape:
            raise ValueError(f"an observation has the shape {self._like.shape}, not {x.shape[1:]}")
        x = x.astype(self._like.dtype, copy=False)
        return self._numbers(levels, x, grow=False)

    def _numbers(
        self, levels: NDArray[np.int64], x: NDArray[Any], *, grow: bool
    ) -> NDArray[np.int32]:
        numbers = np.empty(len(x), np.int32)
        for h, rows in by_level(levels):
            numbers[rows] = self._levels[h].numbers(x[rows], grow=grow)
        return numbers


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


class _Rows:
    """One level's observations, as rows of 64-bit words."""

    def __init__(self) -> None:
        self.count = 0
        self._kept = np.empty((0, 0), np.uint64)
        self._slots = np.full(2, -1, np.int64)

    def numbers(self, x: NDArray[Any], *, grow: bool) -> NDArray[np.int32]:
        rows = _words(x)
        if grow and self.count + len(rows) > len(self._kept):
            self._make_room(2 * (self.count + len(rows)), rows.shape[1])
        if self.count == 0 and not grow:
            return np.full(len(rows), -1, np.int32)
        with np.errstate(over="ignore"):
            numbers, self.count = number_rows(rows, self._slots, self._kept, self.count, grow)
        return np.asarray(numbers, np.int32)

    def _make_room(self, room: int, width: int) -> None:
        old = self._kept[: self.count]
        self._kept = np.empty((room, width), np.uint64)
        self._slots = np.full(1 << (2 * room - 1).bit_length(), -1, np.int64)
        with np.errstate(over="ignore"):
            _, self.count = number_rows(old, self._slots, self._kept, 0, True)


def _words(x: NDArray[Any]) -> NDArray[np.uint64]:
    """Observations as rows of bytes, padded to whole 64-bit words."""
    flat = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8)
    padded = np.zeros((len(x), -(-flat.shape[1] // 8) * 8), np.uint8)
    padded[:, : flat.shape[1]] = flat
    return padded.view(np.uint64)
