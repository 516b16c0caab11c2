"""Decoders that label each distinct observation."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import jit
from blockmdp.rng import mix
from blockmdp.trajectories import by_level

__all__ = ["FrozenTable", "TableDecoder", "number_rows"]


class TableDecoder:
    """Decoder that labels each distinct observation.

    Observations are numbered at each level, in the order in which they are first decoded.

    Parameters
    ----------
    horizon : int
        Number of actions in an episode, H.
    by_level : bool, default=True
        Number observations at each level. If False, an observation has the same number at all
        levels.

    See Also
    --------
    FrozenTable : The same table when learning is over.

    Examples
    --------
    >>> import numpy as np
    >>> table = TableDecoder(horizon=1)
    >>> table.decode(np.array([0, 0, 0]), np.array([[7.0], [9.0], [7.0]]))
    array([0, 1, 0], dtype=int32)
    >>> table.n_labels
    2
    """

    def __init__(self, horizon: int, *, by_level: bool = True) -> None:
        self._levels = [_Rows() for _ in range(horizon + 1 if by_level else 1)]
        self._dtype: np.dtype[Any] | None = None  # of the first observations
        self._size = 0  # of each

    @property
    def n_labels(self) -> int:
        """Largest number of observations at any level."""
        return max(level.count for level in self._levels)

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations; those never seen before get a new label.

        Parameters
        ----------
        levels : ndarray of shape (n,)
            Level of each observation.
        x : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.

        Raises
        ------
        ValueError
            If they have another size than the first ones, or do not fit into their dtype.
        """
        if len(x) == 0:
            return np.zeros(0, np.int32)
        if self._dtype is None:
            self._dtype, self._size = x.dtype, x[0].size
        if x[0].size != self._size:
            raise ValueError(f"an observation has {x[0].size} numbers, but others had {self._size}")
        if x.dtype != self._dtype:
            x = self._same_type(x)
        numbers = np.empty(len(x), np.int32)
        for h, rows in _tables(self._levels, levels):
            numbers[rows] = self._levels[h].add(_words(x[rows]))
        return numbers

    def _same_type(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return observations with the dtype of the first; equal ones must have equal bytes."""
        with np.errstate(invalid="ignore"):
            same_type = x.astype(self._dtype)
        if not np.array_equal(same_type, x):
            raise ValueError(
                f"observations have dtype {x.dtype} and do not fit into {self._dtype}, the dtype "
                "of the first: let the environment return one dtype"
            )
        return same_type

    def frozen(self) -> FrozenTable:
        """Return the table as it is now.

        Returns
        -------
        FrozenTable
            A decoder that learns no new observation. Later calls of `decode` do not change it.
        """
        counts = tuple(level.count for level in self._levels)
        dtype = np.dtype(np.float64) if self._dtype is None else self._dtype
        return FrozenTable(tuple(self._levels), counts, dtype)


@dataclass(frozen=True, eq=False)
class FrozenTable:
    """Table of observations that learns no new one.

    Observations that are not in the table get the label `n_labels`. Make one by
    `TableDecoder.frozen` or `FrozenTable.of`.

    Attributes
    ----------
    dtype : np.dtype
        Type of the numbers of an observation.

    Examples
    --------
    >>> import numpy as np
    >>> table = TableDecoder(horizon=0)
    >>> labels = table.decode(np.array([0, 0]), np.array([[7.0], [9.0]]))
    >>> table.frozen().decode(np.array([0, 0]), np.array([[9.0], [8.0]]))
    array([1, 2], dtype=int32)
    """

    _levels: tuple[_Rows, ...]
    _counts: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, words: Sequence[NDArray[np.uint64]], dtype: np.dtype[Any]) -> FrozenTable:
        """Make a table from the rows that `words` returned.

        Parameters
        ----------
        words : sequence of ndarray of shape (n, w)
            The observations of each level, or of all levels, as rows of 64-bit words.
        dtype : np.dtype
            Type of their numbers.

        Returns
        -------
        FrozenTable
            The table.
        """
        levels = tuple(_Rows() for _ in words)
        for level, rows in zip(levels, words):
            level.add(np.ascontiguousarray(rows))
        return cls(levels, tuple(level.count for level in levels), dtype)

    @property
    def n_labels(self) -> int:
        """Largest number of observations at any level."""
        return max(self._counts)

    @property
    def n_rows(self) -> int:
        """Number of observations at all levels."""
        return sum(self._counts)

    @property
    def rows(self) -> Hashable:
        """What this table shares with all others that the same `TableDecoder` returned."""
        return self._levels

    def earlier(self, levels: NDArray[np.int64], labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the labels of observations, given those of a larger table with the same `rows`.

        Parameters
        ----------
        levels : ndarray of shape (n,)
            Level of each observation.
        labels : ndarray of shape (n,)
            Labels that the larger table gives them.

        Returns
        -------
        ndarray of shape (n,)
            Their labels here: what `decode` would return.
        """
        counts = np.asarray(self._counts)
        known = labels < (counts[levels] if len(counts) > 1 else counts[0])
        return np.where(known, labels, self.n_labels)

    def words(self) -> list[NDArray[np.uint64]]:
        """Return the observations of each level, as rows of 64-bit words.

        Returns
        -------
        list of ndarray of shape (n, w)
            One array for each level, or one for all.
        """
        return [level.rows(count) for level, count in zip(self._levels, self._counts)]

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        levels : ndarray of shape (n,)
            Level of each observation.
        x : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels; `n_labels` for those that are not in the table.
        """
        same_type = x.astype(self.dtype, copy=False)
        numbers = np.empty(len(x), np.int32)
        for h, rows in _tables(self._levels, levels):
            numbers[rows] = self._levels[h].find(_words(same_type[rows]))
            found = numbers[rows]
            numbers[rows] = np.where((found < 0) | (found >= self._counts[h]), self.n_labels, found)
        exact = (same_type == x).all(axis=tuple(range(1, x.ndim)))
        return np.where(exact, numbers, np.int32(self.n_labels))


def _tables(tables: Sequence[_Rows], levels: NDArray[np.int64]) -> Iterator[tuple[int, Any]]:
    """Yield each table that is needed, and the rows to look up in it."""
    return by_level(levels if len(tables) > 1 else np.zeros_like(levels))


class _Rows:
    """One level's observations, as rows of 64-bit words."""

    def __init__(self) -> None:
        self.count = 0
        self._kept = np.empty((0, 0), np.uint64)
        self._slots = np.empty(0, np.int64)  # room is made with the first row

    def rows(self, count: int) -> NDArray[np.uint64]:
        """Return the first `count` rows."""
        return self._kept[:count]

    def add(self, rows: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the number of each row; new rows are kept and get the next number."""
        if self.count + len(rows) > len(self._kept):
            self._grow(2 * (self.count + len(rows)), rows.shape[1])
        numbers = np.empty(len(rows), np.int32)
        self.count = number_rows(rows, self._slots, self._kept, self.count, True, numbers)
        return numbers

    def find(self, rows: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the number of each row; -1 for those that were not kept."""
        if self.count == 0 or rows.shape[1] != self._kept.shape[1]:
            return np.full(len(rows), -1, np.int32)
        numbers = np.empty(len(rows), np.int32)
        number_rows(rows, self._slots, self._kept, self.count, False, numbers)
        return numbers

    def _grow(self, room: int, width: int) -> None:
        old = self._kept[: self.count]
        self._kept = np.empty((room, width), np.uint64)
        self._slots = np.full(1 << (2 * room - 1).bit_length(), -1, np.int64)
        number_rows(old, self._slots, self._kept, 0, True, np.empty(len(old), np.int32))


def _words(x: NDArray[Any]) -> NDArray[np.uint64]:
    """Return observations as rows of bytes, padded to whole 64-bit words."""
    flat = np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8)
    padded = np.zeros((len(x), -(-flat.shape[1] // 8) * 8), np.uint8)
    padded[:, : flat.shape[1]] = flat
    return padded.view(np.uint64)


@jit
def number_rows(rows, slots, kept, count, grow, numbers):
    """Look rows up in a hash table, set the number of each, and return how many are kept now.

    rows: (n, w) uint64. slots: (2**b,) int64, the hash table, -1 where free; at least twice as long
    as there will be rows; changed in place. kept: (room, w) uint64, the first `count` rows in use;
    changed in place. grow: whether to keep unknown rows, for which there must be room; if not,
    their number is -1. numbers: (n,) int32.
    """
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
    return count
