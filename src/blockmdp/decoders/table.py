"""A table of observations: each one is a label of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import jit
from blockmdp.rng import mix
from blockmdp.trajectories import by_level

__all__ = ["FrozenTable", "TableDecoder", "number_rows"]


class TableDecoder:
    """Give each distinct observation a label of its own.

    Observations are numbered at each level, in the order in which they are first decoded.

    Parameters
    ----------
    horizon : int
        Number of actions in an episode, H.
    """

    def __init__(self, horizon: int) -> None:
        self._levels = [_Rows() for _ in range(horizon + 1)]
        self._dtype: np.dtype[Any] | None = None  # of the observations

    @property
    def n_labels(self) -> int:
        """Largest number of observations at any level."""
        return max(level.count for level in self._levels)

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """Return the labels (n,) of the observations x (n, ...); new ones get a new label."""
        if self._dtype is None and len(x):
            self._dtype = x.dtype
        numbers = np.empty(len(x), np.int32)
        for h, rows in by_level(levels):
            numbers[rows] = self._levels[h].add(_words(x[rows]))
        return numbers

    def frozen(self) -> FrozenTable:
        """Return the table as it is now, which learns no new observation."""
        counts = tuple(level.count for level in self._levels)
        dtype = np.dtype(np.float64) if self._dtype is None else self._dtype
        return FrozenTable(tuple(self._levels), counts, dtype)


@dataclass(frozen=True, eq=False)
class FrozenTable:
    """A table of observations that learns no new one: unknown observations get the label
    `n_labels`.
    """

    _levels: tuple[_Rows, ...]
    _counts: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, words: Sequence[NDArray[np.uint64]], dtype: np.dtype[Any]) -> FrozenTable:
        """Make a table of the rows that `words` returned, one array for each level."""
        levels = tuple(_Rows() for _ in words)
        for level, rows in zip(levels, words):
            level.add(np.ascontiguousarray(rows))
        return cls(levels, tuple(level.count for level in levels), dtype)

    @property
    def n_labels(self) -> int:
        """Largest number of observations at any level."""
        return max(self._counts)

    def words(self) -> list[NDArray[np.uint64]]:
        """Return the observations of each level, as rows of 64-bit words."""
        return [level.rows(count) for level, count in zip(self._levels, self._counts)]

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """Return the labels (n,) of the observations x (n, ...)."""
        same_type = x.astype(self.dtype, copy=False)
        numbers = np.empty(len(x), np.int32)
        for h, rows in by_level(levels):
            numbers[rows] = self._levels[h].find(_words(same_type[rows]))
            found = numbers[rows]
            numbers[rows] = np.where((found < 0) | (found >= self._counts[h]), self.n_labels, found)
        exact = (same_type == x).reshape(len(x), -1).all(axis=1)
        return np.where(exact, numbers, np.int32(self.n_labels))


class _Rows:
    """One level's observations, as rows of 64-bit words."""

    def __init__(self) -> None:
        self.count = 0
        self._kept = np.empty((0, 0), np.uint64)
        self._slots = np.full(2, -1, np.int64)

    def rows(self, count: int) -> NDArray[np.uint64]:
        """The first `count` rows."""
        return self._kept[:count]

    def add(self, rows: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Number the rows, and keep those that are new."""
        if self.count + len(rows) > len(self._kept):
            self._grow(2 * (self.count + len(rows)), rows.shape[1])
        numbers, self.count = number_rows(rows, self._slots, self._kept, self.count, True)
        return np.asarray(numbers, np.int32)

    def find(self, rows: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Number the rows; -1 for those never kept."""
        if self.count == 0 or rows.shape[1] != self._kept.shape[1]:
            return np.full(len(rows), -1, np.int32)
        numbers, _ = number_rows(rows, self._slots, self._kept, self.count, False)
        return np.asarray(numbers, np.int32)

    def _grow(self, room: int, width: int) -> None:
        old = self._kept[: self.count]
        self._kept = np.empty((room, width), np.uint64)
        self._slots = np.full(1 << (2 * room - 1).bit_length(), -1, np.int64)
        _, self.count = number_rows(old, self._slots, self._kept, 0, True)


def _words(x: NDArray[Any]) -> NDArray[np.uint64]:
    """Observations as rows of bytes, padded to whole 64-bit words."""
    flat = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8)
    padded = np.zeros((len(x), -(-flat.shape[1] // 8) * 8), np.uint8)
    padded[:, : flat.shape[1]] = flat
    return padded.view(np.uint64)


@jit
def number_rows(rows, slots, kept, count, grow):
    """The number of each row, (n,): its place in `kept`, or -1 for an unknown one; where `grow`,
    unknown rows are kept.

    Parameters
    ----------
    rows : (n, w) uint64.
    slots : (2**b,) int64, -1 where free; at least twice as long as there will be rows. Changed in
        place.
    kept : (room, w) uint64, the first `count` of them in use; room for n more where `grow`. Changed
        in place.
    count : rows kept so far.
    grow : whether to keep unknown rows.

    Returns
    -------
    numbers : (n,) int32
    count : rows kept in the end.
    """
    numbers = np.empty(len(rows), np.int32)
    mask = len(slots) - 1
    for i in range(len(rows)):
        z = np.uint64(len(slots))
        for j in range(rows.shape[1]):
            z = np.uint64(mix(z ^ rows[i, j]))
        at = np.int64(z >> np.uint64(1)) & mask
        while True:
            n = slots[at]
            if n < 0:
                if grow:
                    n = count
                    slots[at] = n
                    for j in range(rows.shape[1]):
                        kept[n, j] = rows[i, j]
                    count += 1
                break
            same = True
            for j in range(rows.shape[1]):
                same = same and kept[n, j] == rows[i, j]
            if same:
                break
            at = (at + 1) & mask
        numbers[i] = n
    return numbers, count
