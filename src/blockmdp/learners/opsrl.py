"""Optimistic posterior sampling (Agrawal and Jia 2017), for a finite horizon.

`value` is the sampling step of their Algorithm 1: psi transition vectors are drawn for each action,
and the best of them counts. Where an action was tried often, they are drawn from a Dirichlet
posterior that is wider than usual; where it was not, from the lower confidence bounds of the
transitions, and the rest of the mass goes to a random state. As in the paper, a new policy is
computed when the visits of some action have doubled. Rewards are known there; here the mean reward
seen counts as the reward. S is the largest number of states met at a level.
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
    mean_values,
    n_states,
    new_model,
    optimise,
    ranges,
)
from blockmdp.learners.base import Learner, at, best_action, check_constants, check_range
from blockmdp.loop import learn
from blockmdp.rng import child, gamma, integer

__all__ = ["OPSRL"]


class Tables(NamedTuple):
    """Tables of `OPSRL`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]  # in the model drawn last
    v: NDArray[np.float64]
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    before: NDArray[np.int32]  # (L, S, A), see `begins_epoch`
    due: NDArray[np.bool_]  # (1,), the same
    scale: float
    v_max: float  # largest possible return
    r_max: float  # largest possible reward
    T: float  # number of steps
    delta: float  # rho in the paper


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    count_in_epoch(tables, h, s, a, r, s_next)


@inlined
def value_of(tables, h, order):
    """Return the value of the state that was met as number `order` at level h; if there is none,
    the largest possible value.
    """
    i = at(tables.order, h)
    if order >= tables.met[i]:
        return largest_value(tables, h)
    return tables.v[h, tables.states[i, order]]


@inlined
def lower_bound(tables, p, n):
    """Return p minus sqrt(3 p log(4 S) / n) + 3 log(4 S) / n, at least 0."""
    log = tables.scale * math.log(4.0 * n_states(tables))
    return max(p - math.sqrt(3.0 * p * log / n) - 3.0 * log / n, 0.0)


@inlined
def posterior_sample(tables, h, s, a, key):
    """Return the expected value of the next state under a draw from a wide Dirichlet posterior."""
    i = at(tables.n, h)
    below = at(tables.order, h + 1)
    log = tables.scale * math.log(tables.T / tables.delta)
    omega, kappa = 720.0 * log, 120.0 * log
    mass = 0.0
    total = 0.0
    ended = tables.n[i, s, a]
    for j in range(tables.met[below]):
        t = tables.states[below, j]
        ended -= tables.m[i, s, a, t]
        g = gamma(key, 2 + j, (tables.m[i, s, a, t] + omega) / kappa)
        mass += g
        total += g * tables.v[h + 1, t]
    others = n_states(tables) - tables.met[below]
    if others > 0:
        g = gamma(key, 0, others * omega / kappa)
        mass += g
        total += g * largest_value(tables, h + 1)
    if ended > 0:
        mass += gamma(key, 1, (ended + omega) / kappa)
    return total / mass


@inlined
def value(tables, h, s, a, key):
    """Return the value of an action under the best of psi draws."""
    A = tables.q.shape[2]
    S = n_states(tables)
    i = at(tables.n, h)
    n = tables.n[i, s, a]
    most = largest_value(tables, h)
    if n == 0:
        return most
    reward = tables.r[i, s, a] / n
    if h + 1 == len(tables.q):
        return min(most, reward)
    psi = max(math.ceil(S * math.log(S * A / tables.delta)), 1)
    omega = 720.0 * tables.scale * math.log(tables.T / tables.delta)
    best = -math.inf
    if n >= math.sqrt(tables.T * S / A) + 12.0 * omega * S**2:
        for j in range(psi):
            best = max(best, posterior_sample(tables, h, s, a, np.uint64(child(key, j))))
        return min(most, reward + best)
    below = at(tables.order, h + 1)
    known = 0.0
    rest = 1.0
    ended = n
    for j in range(tables.met[below]):
        t = tables.states[below, j]
        ended -= tables.m[i, s, a, t]
        p = lower_bound(tables, tables.m[i, s, a, t] / n, n)
        known += p * tables.v[h + 1, t]
        rest -= p
    if ended > 0:
        rest -= lower_bound(tables, ended / n, n)
    for j in range(psi):
        best = max(best, value_of(tables, h + 1, integer(key, j, S)))
    return min(most, reward + known + max(rest, 0.0) * best)


@inlined
def plan(tables, k, key):
    if begins_epoch(tables):
        optimise(value, tables, key)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class OPSRL(Learner):
    """Posterior sampling in which the best of several draws counts.

    Its bound holds for average rewards that are known, not for this version: rewards that are paid
    at random are not explored.

    Parameters
    ----------
    scale : float, default=1.0
        Factor of the logarithms in the width of the draws; 1 is as published. The number of draws
        is S log(S A / delta), of which the paper gives only the order.
    delta : float, default=0.05
        Probability with which the bound may fail (rho in the paper).
    v_max : float or None, default=None
        Largest possible return of an episode. None is H - h from level h on, for rewards in [0, 1].
    stationary : bool, default=False
        Draw one model for all levels, as in the paper. Use it if the transitions and rewards do not
        depend on the level, and labels mean the same at all levels.

    See Also
    --------
    PSRL : Draws one model.

    References
    ----------
    Shipra Agrawal and Randy Jia. Optimistic Posterior Sampling for Reinforcement Learning:
    Worst-Case Regret Bounds. NeurIPS 2017.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.OPSRL(scale=0.01, v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=5), episodes=3_000).value()
    0.5
    """

    scale: float = 1.0
    delta: float = 0.05
    v_max: float | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        check_constants(self)
        check_range(self, "scale", 1e-9, 1e300)  # the draws have a width

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max, r_max = ranges(H, self.v_max)
        model = new_model(H, S, A, v_max, stationary=self.stationary)
        return Tables(
            *model,
            np.zeros(model[2].shape, np.int32),
            np.zeros(1, np.bool_),
            float(self.scale),
            v_max,
            r_max,
            float(H * episodes),
            float(self.delta),
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
