"""PSRL: posterior sampling (Strens 2000; Osband, Russo, Van Roy 2013): plan in a model drawn from
the posterior, follow the plan for an episode, draw again.

Next states have a Dirichlet posterior, rewards in [0, v_max] a beta one. The prior on next states
is that of a state never seen: it lies outside of those counted, and there an optimum is assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners.base import Learner, best_action, require
from blockmdp.loop import learn
from blockmdp.rng import child, gamma

__all__ = ["PSRL"]


class Tables(NamedTuple):
    q: NDArray[np.float64]  # (H, S, A), of the model drawn last
    v: NDArray[np.float64]  # (H + 1, S), that of level H is 0
    n: NDArray[np.int32]  # (H, S, A), visits
    m: NDArray[np.int32]  # (H, S, A, S), transitions; a visit that ended the episode has none
    r: NDArray[np.float64]  # (H, S, A), sum of rewards
    order: NDArray[np.int32]  # (H, S), as which state of its level it was met; -1 if never
    met: NDArray[np.int32]  # (H,), how many were
    unseen: float  # mass of the prior on next states never seen
    wins: float  # and of that on rewards
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
    """The value of an action in a model drawn from the posterior, given those of the next level."""
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
            # by its place in the order, since engines may call a state by another number
            of_state = np.uint64(child(np.uint64(child(key, h)), tables.order[h, s]))
            for a in range(A):
                if tables.n[h, s, a] > 0:
                    of_it = np.uint64(child(of_state, a))
                    tables.q[h, s, a] = draw_value(tables, h, s, a, of_it)
                best = max(best, tables.q[h, s, a])
            tables.v[h, s] = best


@jit
def loop(tables, dynamics, tape, env_key, agent_key, offset, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, env_key, agent_key, offset, k, returns)


@dataclass(frozen=True)
class PSRL(Learner):
    """Posterior sampling: acts by the optimal policy of a model drawn anew for each episode.

    Parameters
    ----------
    unseen : mass of the prior on next states never seen, which are worth `v_max`.
    wins, losses : of the beta prior on rewards.
    v_max : the largest return of an episode.

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
            require(self, field, 1e-6, 1e6)
        require(self, "v_max", -1e300, 1e300)

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
        """Optimal in the model of the counts, where what was never tried is worth nothing."""
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
