"""UCRL2: the best policy in the best plausible model (Jaksch, Ortner and Auer 2010).

For a finite horizon, extended value iteration is one pass from the last level to the first. As in
the paper, a new policy is computed when the visits of some action have doubled. S in a confidence
set is the largest number of states met at a level, times the number of levels that have a model of
their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners._model import (
    begins_epoch,
    count_in_epoch,
    largest_value,
    n_states,
    new_model,
    optimise,
    ranges,
)
from blockmdp.learners.base import Learner, at, best_action, check_constants
from blockmdp.loop import learn

__all__ = ["UCRL2"]


class Tables(NamedTuple):
    """Tables of `UCRL2`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]
    v: NDArray[np.float64]
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    before: NDArray[np.int32]  # (L, S, A), see `begins_epoch`
    t: NDArray[np.int64]  # (1,), number of steps so far
    due: NDArray[np.bool_]  # (1,), the same
    taken: NDArray[np.bool_]  # (S,), working memory of `value`
    scale: float
    v_max: float  # largest possible return
    r_max: float  # largest possible reward
    delta: float


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    count_in_epoch(tables, h, s, a, r, s_next)
    tables.t[0] += 1


@inlined
def reward_width(tables, n):
    """Return sqrt(7 log(2 S A t / delta) / (2 n))."""
    A = tables.q.shape[2]
    S = n_states(tables) * len(tables.n)
    log = math.log(2.0 * S * A * tables.t[0] / tables.delta)
    return tables.scale * tables.r_max * math.sqrt(7.0 * log / (2.0 * n))


@inlined
def transition_width(tables, n):
    """Return sqrt(14 S log(2 A t / delta) / n), the largest distance of plausible transitions.

    With a model for each level, there are H times as many actions.
    """
    A = tables.q.shape[2] * len(tables.n)
    log = math.log(2.0 * A * tables.t[0] / tables.delta)
    return tables.scale * math.sqrt(14.0 * n_states(tables) * log / n)


@inlined
def best_next_state(tables, h):
    """Return the best value at level h, over states met there; or of one that was not."""
    i = at(tables.order, h)
    best = 0.0
    if tables.met[i] < n_states(tables):
        best = largest_value(tables, h)
    for j in range(tables.met[i]):
        best = max(best, tables.v[h, tables.states[i, j]])
    return best


@inlined
def value(tables, h, s, a, key):
    """Return the value of an action in the best plausible model.

    Half of the distance goes to the best next state, and is taken from the worst ones.
    """
    i = at(tables.n, h)
    n = tables.n[i, s, a]
    most = largest_value(tables, h)
    if n == 0:
        return most
    reward = min(tables.r_max, tables.r[i, s, a] / n + reward_width(tables, n))
    if h + 1 == len(tables.q):
        return min(most, reward)
    below = at(tables.order, h + 1)
    best = best_next_state(tables, h + 1)
    total = 0.0
    top = 0.0  # mass at next states that are as good as the best
    ended = n
    for j in range(tables.met[below]):
        t = tables.states[below, j]
        tables.taken[t] = tables.m[i, s, a, t] == 0
        ended -= tables.m[i, s, a, t]
        total += tables.m[i, s, a, t] / n * tables.v[h + 1, t]
        if tables.v[h + 1, t] == best:
            top += tables.m[i, s, a, t] / n
    extra = min(transition_width(tables, n) / 2.0, 1.0 - top)
    total += extra * best
    moved = min(extra, ended / n)  # an episode that ended is worth nothing
    extra -= moved
    while extra > 1e-15:
        worst = -1
        for j in range(tables.met[below]):
            t = tables.states[below, j]
            if not tables.taken[t] and (worst < 0 or tables.v[h + 1, t] < tables.v[h + 1, worst]):
                worst = t
        if worst < 0:
            break
        tables.taken[worst] = True
        moved = min(extra, tables.m[i, s, a, worst] / n)
        total -= moved * tables.v[h + 1, worst]
        extra -= moved
    return min(most, reward + total)


@inlined
def plan(tables, k, key):
    if begins_epoch(tables):
        optimise(value, tables, key)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class UCRL2(Learner):
    """Optimism over all models that are plausible given the data.

    Its bound holds for the average reward of an endless episode; for this version there is none.
    Rewards must not be negative.

    Parameters
    ----------
    scale : float, default=1.0
        Factor of the widths of the confidence sets; 1 is as published.
    delta : float, default=0.05
        Probability with which the bound may fail.
    v_max : float or None, default=None
        Largest possible return of an episode. None is H - h from level h on, for rewards in [0, 1].
    stationary : bool, default=False
        Estimate one model for all levels, as in the paper. Use it if the transitions and rewards do
        not depend on the level, and labels mean the same at all levels.

    References
    ----------
    Thomas Jaksch, Ronald Ortner and Peter Auer. Near-optimal Regret Bounds for Reinforcement
    Learning. JMLR 11, 2010.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.UCRL2(scale=0.05, v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=5), episodes=3_000).value()
    0.5
    """

    scale: float = 1.0
    delta: float = 0.05
    v_max: float | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        check_constants(self)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max, r_max = ranges(H, self.v_max)
        model = new_model(H, S, A, v_max, stationary=self.stationary)
        return Tables(
            *model,
            np.zeros(model[2].shape, np.int32),
            np.zeros(1, np.int64),
            np.zeros(1, np.bool_),
            np.zeros(S, np.bool_),
            float(self.scale),
            v_max,
            r_max,
            float(self.delta),
        )

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
