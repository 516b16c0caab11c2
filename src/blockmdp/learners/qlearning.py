"""QLearning: Q-learning (Watkins 1989) with epsilon-greedy exploration.

It is a baseline in the experiments of Feng et al. (2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners.base import (
    Learner,
    at,
    best_action_at,
    best_value,
    check_range,
    check_stationary,
)
from blockmdp.loop import learn, no_plan
from blockmdp.rng import uniform

__all__ = ["QLearning"]


class Tables(NamedTuple):
    """Tables of `QLearning`."""

    q: NDArray[np.float64]  # (H, S, A), or (1, S, A) if all levels share one table
    H: int
    alpha: float
    decay: float  # decrease of epsilon per episode
    final: float


@inlined
def act(tables, k, h, s, key):
    epsilon = max(tables.final, 1.0 - tables.decay * k)
    A = tables.q.shape[2]
    u = uniform(key, 0)
    if u < epsilon:
        return min(int(u / epsilon * A), A - 1)  # u / epsilon is uniform on [0, 1)
    return best_action_at(tables.q, at(tables.q, h), s, u, epsilon)


@inlined
def update(tables, h, s, a, r, s_next):
    q = tables.q
    i = at(q, h)
    after = 0.0 if h + 1 == tables.H else best_value(q, at(q, h + 1), s_next)
    q[i, s, a] += tables.alpha * (r + after - q[i, s, a])


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, no_plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class QLearning(Learner):
    """Q-learning with epsilon-greedy exploration.

    Q starts at 0. With probability epsilon the learner chooses a random action.

    Parameters
    ----------
    lr : float, default=0.1
        Learning rate, in (0, 1].
    exploration : float, default=0.001
        Fraction of the episodes during which epsilon falls linearly from 1 to `final_epsilon`.
    final_epsilon : float, default=0.01
        Epsilon after that.
    stationary : bool, default=False
        Keep one table for all levels, so that the learner does not know the level. Use it if the
        best action does not depend on the level, and labels mean the same at all levels.

    References
    ----------
    Christopher J. C. H. Watkins. Learning from Delayed Rewards. PhD thesis, King's College,
    Cambridge, 1989.

    Examples
    --------
    >>> QLearning(lr=0.1, exploration=0.1)
    QLearning(lr=0.1, exploration=0.1, final_epsilon=0.01, stationary=False)
    """

    lr: float = 0.1
    exploration: float = 0.001
    final_epsilon: float = 0.01
    stationary: bool = False

    def __post_init__(self) -> None:
        check_range(self, "lr", 1e-12, 1.0)
        check_range(self, "exploration", 0.0, 1.0)
        check_range(self, "final_epsilon", 0.0, 1.0)
        check_stationary(self)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        span = max(self.exploration * episodes, 1.0)
        return Tables(
            np.zeros((1 if self.stationary else H, S, A)),
            H,
            float(self.lr),
            (1.0 - self.final_epsilon) / span,
            float(self.final_epsilon),
        )

    def policy(self, tables: Tables) -> NDArray[np.float64]:
        pi = super().policy(tables)
        return np.broadcast_to(pi, (tables.H, *pi.shape[1:]))

    def behaviour(self, tables: Tables, k: int) -> NDArray[np.float64]:
        epsilon = max(tables.final, 1.0 - tables.decay * k)
        return (1 - epsilon) * self.policy(tables) + epsilon / tables.q.shape[2]

    act = staticmethod(act)
    update = staticmethod(update)
    compiled_loop = staticmethod(loop)
