"""What happens in one step of a Block MDP: scalar functions, written once for every engine.

With e the key of an episode, the initial state is drawn from `uniform(e, 0)`, the next state of
step h from `uniform(e, 2h + 1)` and its reward from `uniform(e, 2h + 2)`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined
from blockmdp.rng import uniform

__all__ = ["Dynamics", "first_state", "next_state", "sample_reward"]


class Dynamics(NamedTuple):
    """The latent tables of a Block MDP in the form the loops read.

    `model[h, s, a, t]` holds the cumulative probability, the reward and the reward's probability of
    the next state t, side by side, so that a step computes one address and touches one cache line.
    Cumulative probabilities end in 2, more than any uniform number.
    """

    initial: NDArray[np.float64]  # (S,) cumulative
    model: NDArray[np.float64]  # (H, S, A, S, 3)


@inlined
def first_state(initial, e):
    """The initial latent state of the episode with key e."""
    u = uniform(e, 0)
    s = 0
    for i in range(len(initial) - 1):
        s += u >= initial[i]
    return s


@inlined
def next_state(model, h, s, a, e):
    """The latent state after action a; counting keeps the pipeline full, searching would not."""
    u = uniform(e, 2 * h + 1)
    t = 0
    for i in range(model.shape[3] - 1):
        t += u >= model[h, s, a, i, 0]
    return t


@inlined
def sample_reward(model, h, s, a, t, e):
    """The reward of a transition: its value with its probability, else nothing."""
    r = model[h, s, a, t, 1]
    if r != 0.0 and uniform(e, 2 * h + 2) >= model[h, s, a, t, 2]:
        r = 0.0
    return r
