"""EULER: episodic upper lower exploration (Zanette and Brunskill 2019).

`plan` is their Algorithm 1, with Bernstein's inequality as the bonus of a transition: J, B_p and
B_v are those of the paper's Proposition 2. They assume one model for all levels
(`stationary=True`). S in a bonus is the largest number of states met at a level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners._model import (
    count,
    expectation,
    largest_value,
    mean_square,
    n_states,
    new_model,
    ranges,
    variance,
)
from blockmdp.learners.base import Learner, at, best_action, check_constants
from blockmdp.loop import learn

__all__ = ["EULER"]


class Tables(NamedTuple):
    """Tables of `EULER`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]
    v: NDArray[np.float64]  # the upper bound
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    r_square: NDArray[np.float64]  # (L, S, A), sums of the squares of rewards
    lower: NDArray[np.float64]  # (H + 1, S), lower bound of the values
    scale: float
    v_max: float  # largest possible return
    r_max: float  # largest possible reward
    log: float  # logarithm of 4 A T / delta'


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    count(tables, h, s, a, r, s_next)
    tables.r_square[at(tables.n, h), s, a] += r * r


@inlined
def reward_bonus(tables, h, s, a, L):
    """Return the empirical Bernstein bonus of the mean reward."""
    i = at(tables.n, h)
    n = tables.n[i, s, a]
    if n < 2:
        return tables.r_max
    mean = tables.r[i, s, a] / n
    spread = max(tables.r_square[i, s, a] / n - mean * mean, 0.0) * n / (n - 1)
    return math.sqrt(2.0 * spread * L / n) + 7.0 * tables.r_max * L / (3.0 * (n - 1))


@inlined
def transition_bonus(tables, h, s, a, L, v):
    """Return phi(p, v) + ((4 J + B_p) / sqrt(n) + B_v |upper - lower|) / sqrt(n)."""
    n = tables.n[at(tables.n, h), s, a]
    J = tables.v_max * L / 3.0
    B_p = tables.v_max * math.sqrt(2.0 * L)
    B_v = math.sqrt(2.0 * L)
    phi = math.sqrt(2.0 * variance(tables, h, s, a, v) * L / n) + J / n
    width = math.sqrt(mean_square(tables, h, s, a, tables.v[h + 1], tables.lower[h + 1]))
    return phi + ((4.0 * J + B_p) / math.sqrt(n) + B_v * width) / math.sqrt(n)


@inlined
def plan(tables, k, key):
    H, S, A = tables.q.shape
    L = tables.log + math.log(n_states(tables))
    c = tables.scale
    for step in range(H):
        h = H - 1 - step
        i = at(tables.n, h)
        most = largest_value(tables, h)
        for s in range(S):
            if tables.order[at(tables.order, h), s] < 0:
                continue
            best = 0
            for a in range(A):
                tables.q[h, s, a] = most
                if tables.n[i, s, a] > 0:
                    upper = tables.v[h + 1]
                    bonus = c * transition_bonus(tables, h, s, a, L, upper) if h + 1 < H else 0.0
                    bonus += c * reward_bonus(tables, h, s, a, L)
                    mean = tables.r[i, s, a] / tables.n[i, s, a]
                    mean += expectation(tables, h, s, a, upper)
                    tables.q[h, s, a] = min(most, mean + bonus)
                if tables.q[h, s, a] > tables.q[h, s, best]:
                    best = a
            tables.v[h, s] = tables.q[h, s, best]
            tables.lower[h, s] = 0.0
            if tables.n[i, s, best] > 0:
                lower = tables.lower[h + 1]
                bonus = c * transition_bonus(tables, h, s, best, L, lower) if h + 1 < H else 0.0
                bonus += c * reward_bonus(tables, h, s, best, L)
                mean = tables.r[i, s, best] / tables.n[i, s, best]
                mean += expectation(tables, h, s, best, lower)
                tables.lower[h, s] = max(0.0, mean - bonus)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class EULER(Learner):
    """Optimistic planning with bonuses that shrink with the variance of the problem.

    With high probability the regret is at most of the order of sqrt(Q S A T), where Q is the
    largest variance of a step's reward and next value, and no larger than with UCBVI.

    Parameters
    ----------
    scale : float, default=1.0
        Factor of the bonus; 1 is as published.
    delta : float, default=0.05
        Probability with which the bound may fail.
    v_max : float or None, default=None
        Largest possible return of an episode. None is H - h from level h on, as published, for
        rewards in [0, 1].
    stationary : bool, default=False
        Estimate one model for all levels, as in the paper. Use it if the transitions and rewards do
        not depend on the level, and labels mean the same at all levels.

    References
    ----------
    Andrea Zanette and Emma Brunskill. Tighter Problem-Dependent Regret Bounds in Reinforcement
    Learning without Domain Knowledge using Value Function Bounds. ICML 2019.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.EULER(scale=0.01, v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=5), episodes=2_000).value()
    0.5
    """

    scale: float = 1.0
    delta: float = 0.05
    v_max: float | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        check_constants(self)

    def has_guarantee(self) -> bool:
        return self.scale >= 1

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max, r_max = ranges(H, self.v_max)
        model = new_model(H, S, A, v_max, stationary=self.stationary)
        return Tables(
            *model,
            np.zeros(model[2].shape),
            np.zeros((H + 1, S)),
            float(self.scale),
            v_max,
            r_max,
            math.log(4 * A * H * episodes * 7 / self.delta),
        )

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
