"""One step of a Block MDP, as scalar functions that all engines share.

If e is the key of an episode, the initial state is drawn with `uniform(e, 0)`, the next state of
step h with `uniform(e, 2h + 1)` and its reward with `uniform(e, 2h + 2)`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined
from blockmdp.rng import uniform

__all__ = ["Dynamics", "first_state", "next_state", "sample_reward"]

Array = NDArray[np.float64]


class Dynamics(NamedTuple):
    """The latent tables of a Block MDP, in the form that the loops read.

    `model[h, s, a, t]` holds three numbers of the next state t side by side: the cumulative
    probability, the reward, and the probability of the reward. So a step computes one address and
    touches one cache line. Cumulative probabilities end in 2, above every uniform number.
    """

    initial: Array  # (S,) cumulative
    model: Array  # (H, S, A, S, 3)


@inlined
def first_state(initial: Array, e: np.uint64) -> int:
    """Draw the initial latent state of the episode with key e."""
    u = uniform(e, 0)
    s = 0
    for i in range(len(initial) - 1):
        s += u >= initial[i]
    return s


@inlined
def next_state(model: Array, h: int, s: int, a: int, e: np.uint64) -> int:
    """Draw the latent state that follows action a in state s at level h."""
    u = uniform(e, 2 * h + 1)
    t = 0
    for i in range(model.shape[3] - 1):  # counting has no branches, so it is faster than searching
        t += u >= model[h, s, a, i, 0]
    return t


@inlined
def sample_reward(model: Array, h: int, s: int, a: int, t: int, e: np.uint64) -> float:
    """Draw the reward of a transition: its value with its probability, otherwise 0."""
    r: float = model[h, s, a, t, 1]
    if r != 0.0 and uniform(e, 2 * h + 2) >= model[h, s, a, t, 2]:
        r = 0.0
    return r
