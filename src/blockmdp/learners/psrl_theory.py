"""PSRL with its published prior (Osband, Russo and Van Roy 2013).

The transitions of an action have a Dirichlet prior with the same mass for each state, and its
rewards a normal-gamma prior with mean u, the largest reward. After each episode, `plan` draws a
model from the posterior and solves it.

A state that was met, but never at the next level, is worth u for each step left, at most `v_max`:
what the prior expects. All of them are drawn together.
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
    largest_value,
    mean_values,
    n_states,
    new_model,
    optimise,
    ranges,
)
from blockmdp.learners.base import Learner, at, best_action, check_constants, check_range
from blockmdp.loop import learn
from blockmdp.rng import child, gamma, normal

__all__ = ["PSRLTheory"]


class Tables(NamedTuple):
    """Tables of `PSRLTheory`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]  # in the model drawn last
    v: NDArray[np.float64]
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    r_square: NDArray[np.float64]  # (L, S, A), sums of the squares of rewards
    prior: float  # mass of each next state
    v_max: float  # largest possible return
    r_max: float  # largest possible reward


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    count(tables, h, s, a, r, s_next)
    tables.r_square[at(tables.n, h), s, a] += r * r


@inlined
def draw_reward(tables, h, s, a, key):
    """Draw the mean reward from its posterior, a normal-gamma distribution.

    The prior has the mass of one reward u, and two degrees of freedom with the variance u^2.
    """
    i = at(tables.n, h)
    n = tables.n[i, s, a]
    u = tables.r_max
    total = u + tables.r[i, s, a]
    mean = total / (n + 1.0)
    square = max(u * u + tables.r_square[i, s, a] - total * mean, 0.0)
    precision = gamma(key, 0, 1.0 + n / 2.0) / (u * u + square / 2.0)
    return mean + normal(key, 1) / math.sqrt((n + 1.0) * precision)


@inlined
def draw_next(tables, h, s, a, key):
    """Draw the transitions from their posterior; return the expected value of the next state."""
    i = at(tables.n, h)
    below = at(tables.order, h + 1)
    mass = 0.0
    total = 0.0
    ended = tables.n[i, s, a]
    for j in range(tables.met[below]):
        t = tables.states[below, j]
        ended -= tables.m[i, s, a, t]
        g = gamma(key, 2 + j, tables.prior + tables.m[i, s, a, t])
        mass += g
        total += g * tables.v[h + 1, t]
    others = n_states(tables) - tables.met[below]
    if others > 0:
        g = gamma(key, 0, others * tables.prior)
        mass += g
        total += g * largest_value(tables, h + 1)
    if ended > 0:
        mass += gamma(key, 1, float(ended))
    return total / mass if mass > 0.0 else 0.0


@inlined
def value(tables, h, s, a, key):
    """Draw the value of an action, given the values of the next level."""
    drawn = draw_reward(tables, h, s, a, key)
    if h + 1 < len(tables.q):
        drawn += draw_next(tables, h, s, a, np.uint64(child(key, 0)))
    return drawn


@inlined
def plan(tables, k, key):
    optimise(value, tables, key)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class PSRLTheory(Learner):
    """Posterior sampling with the prior of its regret bound.

    Averaged over problems drawn from the prior, the regret is at most of the order of
    H S sqrt(A T), up to logarithms.

    Parameters
    ----------
    prior : float, default=1.0
        Mass of each next state in the Dirichlet prior. 1 is the uniform distribution.
    v_max : float or None, default=None
        Largest possible return of an episode, and of a reward. None is H and 1.
    stationary : bool, default=False
        Draw one model for all levels, as in the paper. Use it if the transitions and rewards do not
        depend on the level, and labels mean the same at all levels.

    See Also
    --------
    PSRL : With a prior that needs fewer episodes in practice.
    OPSRL : Takes the best of several draws.

    References
    ----------
    Ian Osband, Daniel Russo and Benjamin Van Roy. (More) Efficient Reinforcement Learning via
    Posterior Sampling. NeurIPS 2013.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.PSRLTheory(v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=5), episodes=3_000).value()
    0.5
    """

    prior: float = 1.0
    v_max: float | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        check_range(self, "prior", 1e-6, 1e6)
        check_constants(self)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max, r_max = ranges(H, self.v_max)
        model = new_model(H, S, A, v_max, stationary=self.stationary)
        return Tables(
            *model,
            np.zeros(model[2].shape),
            float(self.prior),
            v_max,
            r_max,
        )

    def policy(self, tables: Tables) -> NDArray[np.float64]:
        q = mean_values(len(tables.q), tables.n, tables.m, tables.r)
        return super().policy(tables._replace(q=q))

    def behaviour(self, tables: Tables, k: int) -> NDArray[np.float64]:
        return super().policy(tables)

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
