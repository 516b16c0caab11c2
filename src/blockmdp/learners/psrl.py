"""PSRL: posterior sampling for reinforcement learning (Strens 2000; Osband et al. 2013).

After each episode, `plan` draws a model from the posterior and solves it. The learner follows the
optimal policy of this model in the next episode.

Rewards in [0, v_max] have a beta posterior. Next states have a Dirichlet posterior: one count for
each transition seen, and a prior mass on a state never seen before, which is worth `v_max`. Actions
that were never tried are worth `v_max` too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners.base import Learner, best_action, check_range
from blockmdp.loop import learn
from blockmdp.rng import child, gamma

__all__ = ["PSRL"]


class Tables(NamedTuple):
    """Tables of `PSRL`."""

    q: NDArray[np.float64]  # (H, S, A), in the model drawn last
    v: NDArray[np.float64]  # (H + 1, S), 0 at level H
    n: NDArray[np.int32]  # (H, S, A), number of visits
    m: NDArray[np.int32]  # (H, S, A, S), number of transitions; none if a visit ended the episode
    r: NDArray[np.float64]  # (H, S, A), sum of rewards
    order: NDArray[np.int32]  # (H, S), 0 for the first state met at a level, ...; -1 if never met
    met: NDArray[np.int32]  # (H,), number of states met
    unseen: float  # prior mass of next states never seen
    wins: float  # prior of rewards
    losses: float
    v_max: float


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    if tables.order[h, s] < 0:
        tables.order[h, s] = tables.met[h]
        tables.met[h] += 1
    tables.n[h, s, a] += 1
    tables.r[h, s, a] += r
    if s_next >= 0:
        tables.m[h, s, a, s_next] += 1


@inlined
def draw_value(tables, h, s, a, key):
    """Draw the value of an action from the posterior, given the values of the next level."""
    H, S, _ = tables.q.shape
    n = tables.n[h, s, a]
    paid = tables.r[h, s, a] / tables.v_max if tables.v_max > 0.0 else 0.0
    won = gamma(key, 0, tables.wins + max(paid, 0.0))
    lost = gamma(key, 1, tables.losses + max(n - paid, 0.0))
    reward = tables.v_max * won / (won + lost)
    if h == H - 1:
        return reward
    mass = gamma(key, 2, tables.unseen)
    total = mass * tables.v_max
    ended = n
    for t in range(S):
        count = tables.m[h, s, a, t]
        if count > 0:
            g = gamma(key, 5 + tables.order[h + 1, t], count)
            mass += g
            total += g * tables.v[h + 1, t]
            ended -= count
    if ended > 0:
        mass += gamma(key, 3, ended)
    return min(tables.v_max, reward + total / mass)


@inlined
def plan(tables, k, key):
    H, S, A = tables.q.shape
    for i in range(H):
        h = H - 1 - i
        for s in range(S):
            if tables.order[h, s] < 0:
                continue
            best = -math.inf
            # by the order of first visits: engines may number observations differently
            state_key = np.uint64(child(np.uint64(child(key, h)), tables.order[h, s]))
            for a in range(A):
                if tables.n[h, s, a] > 0:
                    action_key = np.uint64(child(state_key, a))
                    tables.q[h, s, a] = draw_value(tables, h, s, a, action_key)
                best = max(best, tables.q[h, s, a])
            tables.v[h, s] = best


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class PSRL(Learner):
    """Posterior sampling: follow the optimal policy of a model drawn from the posterior.

    Parameters
    ----------
    unseen : float, default=0.01
        Prior mass of next states never seen, which are worth `v_max`.
    wins : float, default=0.1
        First parameter of the beta prior of rewards.
    losses : float, default=0.1
        Second parameter of the beta prior of rewards.
    v_max : float, default=1.0
        Largest possible return of an episode.

    References
    ----------
    Malcolm Strens. A Bayesian Framework for Reinforcement Learning. ICML 2000.

    Ian Osband, Daniel Russo and Benjamin Van Roy. (More) Efficient Reinforcement Learning via
    Posterior Sampling. NeurIPS 2013.

    Examples
    --------
    >>> from blockmdp import Tabular, lock_bernoulli
    >>> Tabular(PSRL()).fit(lock_bernoulli(horizon=10), episodes=3_000).value()
    0.5
    """

    unseen: float = 0.01
    wins: float = 0.1
    losses: float = 0.1
    v_max: float = 1.0

    def __post_init__(self) -> None:
        for field in ("unseen", "wins", "losses"):
            check_range(self, field, 1e-6, 1e6)
        check_range(self, "v_max", -1e300, 1e300)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v = np.full((H + 1, S), float(self.v_max))
        v[H] = 0.0
        return Tables(
            np.full((H, S, A), float(self.v_max)),
            v,
            np.zeros((H, S, A), np.int32),
            np.zeros((H, S, A, S), np.int32),
            np.zeros((H, S, A)),
            np.full((H, S), -1, np.int32),
            np.zeros(H, np.int32),
            float(self.unseen),
            float(self.wins),
            float(self.losses),
            float(self.v_max),
        )

    def policy(self, tables: Tables) -> NDArray[np.float64]:
        # optimal in the mean model, in which untried actions are worth 0
        n = np.maximum(tables.n, 1)
        q, v = tables.r / n, np.zeros(tables.q.shape[1])
        for h in reversed(range(len(q))):
            q[h] += (tables.m[h] / n[h, :, :, None]) @ v
            v = q[h].max(axis=1)
        return super().policy(tables._replace(q=q))

    def behaviour(self, tables: Tables, k: int) -> NDArray[np.float64]:
        return super().policy(tables)

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
