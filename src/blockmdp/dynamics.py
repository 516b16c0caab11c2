"""One step of a Block MDP, as scalar functions that all engines share.

If e is the key of an episode, the initial state is drawn with `uniform(e, 0)`, the next state of
step h with `uniform(e, 2h + 1)` and its reward with `uniform(e, 2h + 2)`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import index, inlined
from blockmdp.rng import uniform

__all__ = [
    "Dynamics",
    "at_level",
    "draw_successor",
    "first_state",
    "is_end",
    "sample_reward",
    "successor",
]

Array = NDArray[np.float64]


class Dynamics(NamedTuple):
    """The latent tables of a Block MDP, in the form that the loops read.

    `model[h, s, a, i]` describes the i-th of K possible next states by three numbers that lie side
    by side: the cumulative probability, the reward, and the probability of the reward. So a step
    computes one address and touches one cache line. Cumulative probabilities end in 2, above every
    uniform number. If all levels are alike, `model` has one level instead of H.

    The i-th possible state is `states[h, s, a, i]`, or state i if `states` is None (K = S). An
    episode is over at level H, or when it reaches a state that `ends` it. Numba knows when it
    compiles a loop which of these are None, so they cost nothing then.
    """

    initial: Array  # (at most S,) cumulative
    model: Array  # (H or 1, S, A, K, 3)
    states: NDArray[np.int32] | None  # (H or 1, S, A, K)
    ends: NDArray[np.bool_] | None  # (S,)
    horizon: int


@inlined
def at_level(tables: NDArray[Any], h: int) -> int:
    """Return where the tables of level h are: at h, or at 0 if all levels share them."""
    return index(h) if len(tables) > 1 else index(0)


@inlined
def first_state(initial: Array, e: np.uint64) -> int:
    """Draw the initial latent state of the episode with key e."""
    u = uniform(e, 0)
    s = 0
    for i in range(len(initial) - 1):
        s += u >= initial[i]
    return s


@inlined
def draw_successor(model: Array, h: int, s: int, a: int, e: np.uint64) -> int:
    """Draw what follows action a in state s at level h: its place among the possible states."""
    level = at_level(model, h)
    u = uniform(e, 2 * h + 1)
    i = 0
    for j in range(model.shape[3] - 1):  # counting has no branches, so it is faster than searching
        i += u >= model[level, s, a, j, 0]
    return i


@inlined
def successor(states: NDArray[np.int32] | None, h: int, s: int, a: int, i: int) -> int:
    """Return the i-th of the states that may follow action a in state s at level h."""
    if states is None:
        return index(i)
    return index(states[at_level(states, h), s, a, i])


@inlined
def is_end(ends: NDArray[np.bool_] | None, t: int) -> bool:
    """Return whether the episode is over in state t, even before level H."""
    if ends is None:
        return False
    return bool(ends[t])


@inlined
def sample_reward(model: Array, h: int, s: int, a: int, i: int, e: np.uint64) -> float:
    """Draw the reward of a step to the i-th of the possible states: its value or 0."""
    level = at_level(model, h)
    r: float = model[level, s, a, i, 1]
    if r != 0.0 and uniform(e, 2 * h + 2) >= model[level, s, a, i, 2]:
        r = 0.0
    return r
