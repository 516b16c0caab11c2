"""R-MAX: every action is worth the maximum until it was tried m times (Brafman, Tennenholtz 2002).

With an estimated model of the known actions, and for a finite horizon: the value of an unknown
action is the largest possible return, which stands for the fictitious state of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import check_integer
from blockmdp.jit import inlined, jit
from blockmdp.learners._model import (
    count,
    expectation,
    largest_value,
    new_model,
    optimise,
    ranges,
)
from blockmdp.learners.base import Learner, at, best_action, check_constants
from blockmdp.loop import learn

__all__ = ["RMAX"]


class Tables(NamedTuple):
    """Tables of `RMAX`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]
    v: NDArray[np.float64]
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    due: NDArray[np.bool_]  # (1,), whether an action or a state has become known
    min_visits: int
    v_max: float  # largest possible return
    r_max: float  # largest possible reward


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    i = at(tables.n, h)
    if tables.n[i, s, a] < tables.min_visits:  # what is known does not change any more
        count(tables, h, s, a, r, s_next)
        tables.due[0] |= tables.n[i, s, a] == tables.min_visits


@inlined
def value(tables, h, s, a, key):
    i = at(tables.n, h)
    most = largest_value(tables, h)
    n = tables.n[i, s, a]
    if n < tables.min_visits:
        return most
    return min(most, tables.r[i, s, a] / n + expectation(tables, h, s, a, tables.v[h + 1]))


@inlined
def plan(tables, k, key):
    if tables.due[0]:
        tables.due[0] = False
        optimise(value, tables, key)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class RMAX(Learner):
    """Optimistic planning in which an action counts as unknown until it was tried m times.

    Parameters
    ----------
    m : int, default=5
        Visits from which on an action is known. What happens later does not change its estimate.
        1 is enough if the problem is deterministic.
    v_max : float or None, default=None
        Largest possible return of an episode. None is H - h from level h on, as published, for
        rewards in [0, 1].
    stationary : bool, default=False
        Estimate one model for all levels, as in the paper. Use it if the transitions and rewards do
        not depend on the level, and labels mean the same at all levels.

    See Also
    --------
    E3 : Decides between exploring and exploiting in each episode.

    References
    ----------
    Ronen I. Brafman and Moshe Tennenholtz. R-MAX: A General Polynomial Time Algorithm for
    Near-Optimal Reinforcement Learning. JMLR 2002.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.RMAX(m=5, v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=5), episodes=2_000).value()
    0.5
    """

    m: int = 5
    v_max: float | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        check_integer("m", self.m, 1)
        check_constants(self)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max, r_max = ranges(H, self.v_max)
        return Tables(
            *new_model(H, S, A, v_max, stationary=self.stationary),
            np.zeros(1, np.bool_),
            int(self.m),
            v_max,
            r_max,
        )

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
