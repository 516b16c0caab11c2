"""Keys for the observations of a tape."""

from __future__ import annotations

import numpy as np

from blockmdp.kernels.jit import jit
from blockmdp.rng import child

__all__ = ["fill_keys", "splice"]


@jit
def fill_keys(cell_keys, starts, counts):
    """Keys of visits starts[c], ..., starts[c] + counts[c] - 1 of each cell c, one cell after the
    other.
    """
    keys = np.empty(counts.sum(), np.uint64)
    i = 0
    for c in range(len(counts)):
        for n in range(counts[c]):
            keys[i] = child(cell_keys[c], starts[c] + n)
            i += 1
    return keys


@jit
def splice(old, first, left, new, counts):
    """For each cell c its `left[c]` old labels from `first[c]` on, then `counts[c]` new ones."""
    out = np.empty(left.sum() + counts.sum(), np.int32)
    i = 0
    j = 0
    for c in range(len(counts)):
        for n in range(left[c]):
            out[i] = old[first[c] + n]
            i += 1
        for _ in range(counts[c]):
            out[i] = new[j]
            i += 1
            j += 1
    return out
