"""OracleQ: Q-learning with upper confidence bounds (Jin et al. 2018, Algorithm 1).

The numbers in the margin are the line numbers of that algorithm. Three things differ, as in the
experiments of Feng et al. (2020): the learning rate is constant instead of (H + 1) / (H + n), the
bonus is c sqrt(H / n) instead of c sqrt(H^3 log(SAT / delta) / n), and Q instead of V is capped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners.base import (
    Learner,
    at,
    best_action,
    best_value,
    check_range,
    check_stationary,
)
from blockmdp.loop import learn, no_plan

__all__ = ["OracleQ"]


class Tables(NamedTuple):
    """Tables of `OracleQ`."""

    q: NDArray[np.float64]  # (H, S, A), starts at v_max; (1, S, A) if all levels share one table
    n: NDArray[np.int32]  # the same shape, number of visits
    H: int
    alpha: float
    c: float
    v_max: float


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, at(tables.q, h), s, key)  # 5


@inlined
def update(tables, h, s, a, r, s_next):
    q = tables.q
    n = tables.n
    i = at(q, h)
    n[i, s, a] += 1  # 6
    after = 0.0 if h + 1 == tables.H else best_value(q, at(q, h + 1), s_next)
    target = r + after + tables.c * math.sqrt(tables.H / n[i, s, a])
    q[i, s, a] = min(tables.v_max, (1 - tables.alpha) * q[i, s, a] + tables.alpha * target)  # 7-8


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, no_plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class OracleQ(Learner):
    """Optimistic Q-learning with a constant learning rate.

    The name is that of Feng et al. (2020). The algorithm is Q-learning with upper confidence bounds
    of Jin et al. (2018), with a simpler bonus and learning rate.

    Parameters
    ----------
    lr : float, default=0.1
        Learning rate, in (0, 1].
    bonus : float, default=0.001
        Scale c of the exploration bonus c sqrt(H / n) of an action that was tried n times.
    v_max : float, default=1.0
        Largest possible return of an episode. Q starts there and never exceeds it.
    stationary : bool, default=False
        Keep one table for all levels, so that the learner does not know the level. Use it if the
        best action does not depend on the level, and labels mean the same at all levels.

    References
    ----------
    Chi Jin, Zeyuan Allen-Zhu, Sebastien Bubeck and Michael I. Jordan. Is Q-learning Provably
    Efficient? NeurIPS 2018.

    Examples
    --------
    >>> OracleQ(lr=0.1, bonus=0.001)
    OracleQ(lr=0.1, bonus=0.001, v_max=1.0, stationary=False)
    """

    lr: float = 0.1
    bonus: float = 0.001
    v_max: float = 1.0
    stationary: bool = False

    def __post_init__(self) -> None:
        check_range(self, "lr", 1e-12, 1.0)
        check_range(self, "bonus", 0.0, math.inf)
        check_range(self, "v_max", -math.inf, math.inf)
        check_stationary(self)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        L = 1 if self.stationary else H
        return Tables(
            np.full((L, S, A), float(self.v_max)),
            np.zeros((L, S, A), np.int32),
            H,
            float(self.lr),
            float(self.bonus),
            float(self.v_max),
        )

    def policy(self, tables: Tables) -> NDArray[np.float64]:
        pi = super().policy(tables)
        return np.broadcast_to(pi, (tables.H, *pi.shape[1:]))

    act = staticmethod(act)
    update = staticmethod(update)
    compiled_loop = staticmethod(loop)
