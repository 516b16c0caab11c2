"""A hash table that numbers rows of 64-bit words, open addressing with linear probing."""

from __future__ import annotations

import numpy as np

from blockmdp.kernels.jit import jit
from blockmdp.rng import mix

__all__ = ["number_rows"]


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
