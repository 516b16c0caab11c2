"""Delayed Q-learning (Strehl et al. 2006), for a finite horizon.

`update` is the algorithm as Strehl, Li and Littman (2009) print it, with their names. There is one
table for each level, and no discount.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import check_integer
from blockmdp.jit import inlined, jit
from blockmdp.learners._model import ranges
from blockmdp.learners.base import Learner, best_action, best_value, check_constants, check_range
from blockmdp.loop import learn, no_plan

__all__ = ["DelayedQ"]


class Tables(NamedTuple):
    """Tables of `DelayedQ`."""

    q: NDArray[np.float64]  # (H, S, A), starts at the largest value of its level
    U: NDArray[np.float64]  # (H, S, A), sum of the targets since the last attempt
    n: NDArray[np.int32]  # (H, S, A), their number (l in the paper)
    begun: NDArray[np.int64]  # (H, S, A), time at which the last attempt began
    learns: NDArray[np.bool_]  # (H, S, A), LEARN in the paper
    t: NDArray[np.int64]  # (2,), time, and time of the last change of q (t* in the paper)
    m: int
    epsilon: float


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    q, U, n, t = tables.q, tables.U, tables.n, tables.t
    t[0] += 1
    if tables.begun[h, s, a] <= t[1]:  # something has changed since the last attempt
        tables.learns[h, s, a] = True
    if not tables.learns[h, s, a]:
        return
    if n[h, s, a] == 0:
        tables.begun[h, s, a] = t[0]
    n[h, s, a] += 1
    U[h, s, a] += r + best_value(q, h + 1, s_next)
    if n[h, s, a] < tables.m:
        return
    mean = U[h, s, a] / tables.m
    if q[h, s, a] - mean >= 2.0 * tables.epsilon:
        q[h, s, a] = mean + tables.epsilon
        t[1] = t[0]
    elif tables.begun[h, s, a] > t[1]:
        tables.learns[h, s, a] = False
    U[h, s, a] = 0.0
    n[h, s, a] = 0


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, no_plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class DelayedQ(Learner):
    """Q-learning that changes a value only after m visits, and only if it falls clearly.

    Parameters
    ----------
    m : int, default=5
        Visits between two attempts to change a value. The bound needs m of the order of
        H^2 / epsilon^2, times logarithms.
    epsilon : float, default=0.01
        Accuracy: a value changes only if it falls by twice as much.
    v_max : float or None, default=None
        Largest possible return of an episode. None is H - h from level h on, for rewards in [0, 1].

    References
    ----------
    Alexander L. Strehl, Lihong Li, Eric Wiewiora, John Langford and Michael L. Littman. PAC
    Model-Free Reinforcement Learning. ICML 2006.

    Alexander L. Strehl, Lihong Li and Michael L. Littman. Reinforcement Learning in Finite MDPs:
    PAC Analysis. JMLR 10, 2009.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.DelayedQ(m=3, v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=3), episodes=3_000).value()
    0.5
    """

    m: int = 5
    epsilon: float = 0.01
    v_max: float | None = None

    def __post_init__(self) -> None:
        check_integer("m", self.m, 1)
        check_range(self, "epsilon", 0.0, 1e300)
        check_constants(self)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max, r_max = ranges(H, self.v_max)
        largest = np.minimum(v_max, r_max * (H - np.arange(H)))
        return Tables(
            np.tile(largest[:, None, None], (1, S, A)),
            np.zeros((H, S, A)),
            np.zeros((H, S, A), np.int32),
            np.zeros((H, S, A), np.int64),
            np.ones((H, S, A), np.bool_),
            np.zeros(2, np.int64),
            int(self.m),
            float(self.epsilon),
        )

    act = staticmethod(act)
    update = staticmethod(update)
    compiled_loop = staticmethod(loop)
