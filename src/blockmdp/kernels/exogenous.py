"""Noise that hangs together over an episode, as a function of the episode's key and the level."""

from __future__ import annotations

import numpy as np

from blockmdp.kernels.jit import jit
from blockmdp.rng import child, uniform

__all__ = ["branches", "markov_bits"]


@jit
def branches(keys, i):
    """The key of the i-th stream below each key, (n,)."""
    out = np.empty(len(keys), np.uint64)
    for n in range(len(keys)):
        out[n] = child(keys[n], i)
    return out


@jit
def markov_bits(keys, level, start, rise, fall):
    """Bits at a level, (n, d), each of which is a Markov chain of two states.

    Whether bit j is 1 at level 0 is drawn from `uniform(key, j)`, whether it flips on the way to
    level t from `uniform(key, t d + j)`, so that all levels of one key tell of one chain.

    keys: (n,). start, rise, fall: (d,), the probabilities of 1 at level 0, of 0 -> 1 and of 1 -> 0.
    """
    d = len(start)
    out = np.empty((len(keys), d), np.int8)
    for i in range(len(keys)):
        for j in range(d):
            out[i, j] = uniform(keys[i], j) < start[j]
        for t in range(1, level + 1):
            for j in range(d):  # without branches, which no processor could foresee
                u = uniform(keys[i], t * d + j)
                out[i, j] = (u < rise[j]) * (1 - out[i, j]) + (u >= fall[j]) * out[i, j]
    return out
