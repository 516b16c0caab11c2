"""OracleQ: Q-learning with upper confidence bounds (Jin et al. 2018), as used in the experiments of
Feng et al. 2020.

The constant learning rate and the bonus c * sqrt(H / n), with no logarithm, are the experiments'
own; the analysis has the rate (H + 1) / (H + n) and the bonus c * sqrt(H^3 log(SAT / delta) / n).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners.base import Learner, best_action, best_value, require
from blockmdp.loop import learn, no_plan

__all__ = ["OracleQ"]


class Tables(NamedTuple):
    q: NDArray[np.float64]  # (H, S, A), optimistic at first
    n: NDArray[np.int32]  # (H, S, A), visits
    alpha: float
    c: float
    v_max: float


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    q = tables.q
    n = tables.n
    H = len(q)
    n[h, s, a] += 1
    target = r + best_value(q, h + 1, s_next) + tables.c * math.sqrt(H / n[h, s, a])
    q[h, s, a] = min(tables.v_max, (1 - tables.alpha) * q[h, s, a] + tables.alpha * target)


@jit
def loop(tables, dynamics, tape, env_key, agent_key, offset, k, returns):
    return learn(
        act, update, no_plan, tables, dynamics, tape, env_key, agent_key, offset, k, returns
    )


@dataclass(frozen=True)
class OracleQ(Learner):
    """Optimistic Q-learning with a constant rate.

    Parameters
    ----------
    lr : learning rate, in (0, 1].
    bonus : c in the exploration bonus c * sqrt(H / n).
    v_max : the largest return of an episode; Q starts there and never exceeds it.

    Examples
    --------
    >>> OracleQ(lr=0.1, bonus=0.001)
    OracleQ(lr=0.1, bonus=0.001, v_max=1.0)
    """

    lr: float = 0.1
    bonus: float = 0.001
    v_max: float = 1.0

    def __post_init__(self) -> None:
        require(self, "lr", 1e-12, 1.0)
        require(self, "bonus", 0.0, math.inf)
        require(self, "v_max", -math.inf, math.inf)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        return Tables(
            np.full((H, S, A), float(self.v_max)),
            np.zeros((H, S, A), np.int32),
            float(self.lr),
            float(self.bonus),
            float(self.v_max),
        )

    act = staticmethod(act)
    update = staticmethod(update)
    compiled_loop = staticmethod(loop)
