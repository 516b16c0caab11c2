"""PSRL: posterior sampling for reinforcement learning (Strens 2000; Osband et al. 2013).

After each episode, `plan` draws a model from the posterior and solves it. The learner follows the
optimal policy of this model in the next episode.

The posterior of an action is a Dirichlet distribution over what it can pay, and another over the
next states. What was seen has its counts. A reward between 0 and the largest (or smallest) reward
seen counts as a part of that reward and a part of nothing. Two small prior masses stand for what
was never seen: a reward, and a next state, each worth as much as an episode may be worth. They are
divided by the horizon, so that the surprises expected of a whole episode do not grow with it: with
few data the learner then trusts what it saw once, but it always tries again. Actions that were
never tried are worth `v_max`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners._model import mean_values
from blockmdp.learners.base import Learner, at, best_action, check_range, check_stationary
from blockmdp.loop import learn
from blockmdp.rng import child, gamma

__all__ = ["PSRL"]


class Tables(NamedTuple):
    """Tables of `PSRL`."""

    q: NDArray[np.float64]  # (H, S, A), in the model drawn last
    v: NDArray[np.float64]  # (H + 1, S), 0 at level H
    n: NDArray[np.int32]  # (L, S, A), number of visits; L is H, or 1 if all levels share one model
    m: NDArray[np.int32]  # (L, S, A, S), number of transitions; none if a visit ended the episode
    r: NDArray[np.float64]  # (L, S, A, 2), sums of positive and of negative rewards
    order: NDArray[np.int32]  # (L, S), 0 for the first state met at a level, ...; -1 if never met
    met: NDArray[np.int32]  # (L,), number of states met
    returns: NDArray[np.float64]  # (3,), return of this episode so far; least and greatest of all
    rewards: NDArray[np.float64]  # (2,), least and greatest reward; 0 counts as seen
    scale: NDArray[np.float64]  # (2,), what a surprise is worth, and v_max
    unseen: float  # prior mass of next states never seen
    wins: float  # prior mass of rewards never seen
    losses: float  # prior mass of no reward
    learns_scale: bool


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    i = at(tables.n, h)
    if tables.order[i, s] < 0:
        tables.order[i, s] = tables.met[i]
        tables.met[i] += 1
    tables.n[i, s, a] += 1
    tables.r[i, s, a, 0 if r > 0.0 else 1] += r
    if s_next >= 0:
        tables.m[i, s, a, s_next] += 1
    if len(tables.n) == 1 and tables.n[i, s, a] == 1:
        # else an action that leads nowhere would look new for the rest of the episode
        for later in range(h + 1, len(tables.q)):
            after = tables.v[later + 1, s_next] if s_next >= 0 else 0.0
            tables.q[later, s, a] = min(tables.scale[1], r + after)
    returns, rewards = tables.returns, tables.rewards
    returns[0] = r if h == 0 else returns[0] + r
    returns[1] = min(returns[1], returns[0])
    returns[2] = max(returns[2], returns[0])
    rewards[0] = min(rewards[0], r)
    rewards[1] = max(rewards[1], r)


@inlined
def learn_scale(tables):
    """Learn what an episode may be worth: at least 1, and more if returns differ by more.

    An action that was never tried may be worth twice as much as any difference seen so far, so that
    a small reward does not end the search for larger ones.
    """
    width = tables.returns[2] - tables.returns[1]
    tables.scale[0] = max(1.0, width)
    tables.scale[1] = max(1.0, 2.0 * width)


@inlined
def draw_reward(tables, i, s, a, key):
    """Draw the mean reward of an action from the posterior."""
    won, lost = 0.0, 0.0
    if tables.r[i, s, a, 0] > 0.0:
        won = tables.r[i, s, a, 0] / tables.rewards[1]
    if tables.r[i, s, a, 1] < 0.0:
        lost = tables.r[i, s, a, 1] / tables.rewards[0]
    g = gamma(key, 0, tables.wins)
    if g == 0.0 and won == 0.0 and lost == 0.0:
        return 0.0
    total = g * tables.scale[0]
    mass = g + gamma(key, 1, tables.losses + max(tables.n[i, s, a] - won - lost, 0.0))
    if won > 0.0:
        g = gamma(key, 2, won)
        mass += g
        total += g * tables.rewards[1]
    if lost > 0.0:
        g = gamma(key, 3, lost)
        mass += g
        total += g * tables.rewards[0]
    return total / mass


@inlined
def draw_value(tables, h, s, a, key):
    """Draw the value of an action from the posterior, given the values of the next level."""
    H, S, _ = tables.q.shape
    i = at(tables.n, h)
    reward = draw_reward(tables, i, s, a, key)
    if h == H - 1:
        return reward
    v_max = tables.scale[1]
    mass = gamma(key, 4, tables.unseen)
    total = mass * tables.scale[0]
    ended = tables.n[i, s, a]
    for t in range(S):
        count = tables.m[i, s, a, t]
        if count > 0:
            order = tables.order[at(tables.n, h + 1), t]
            g = gamma(key, 7 + order, count)
            mass += g
            total += g * (tables.v[h + 1, t] if order >= 0 else v_max)
            ended -= count
    if ended > 0:
        mass += gamma(key, 5, ended)
    return min(v_max, reward + total / mass)


@inlined
def plan(tables, k, key):
    H, S, A = tables.q.shape
    if tables.learns_scale:
        learn_scale(tables)
    for step in range(H):
        h = H - 1 - step
        i = at(tables.n, h)
        for s in range(S):
            if tables.order[i, s] < 0:
                continue
            best = -math.inf
            # by the order of first visits: engines may number observations differently
            state_key = np.uint64(child(np.uint64(child(key, i)), tables.order[i, s]))
            for a in range(A):
                tables.q[h, s, a] = tables.scale[1]
                if tables.n[i, s, a] > 0:
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
        Prior mass of next states never seen, in an episode.
    wins : float, default=0.05
        Prior mass of rewards never seen, in an episode. Larger values try more often what has not
        paid so far.
    losses : float, default=0.1
        Prior mass of no reward, of each action at each level.
    v_max : float or None, default=None
        Largest possible return of an episode. None learns it from the returns seen: it is 1 at
        least, and twice their range. Set it if rewards are much smaller or larger than 1.
    stationary : bool, default=False
        Draw one model for all levels. Use it if the transitions and rewards do not depend on
        the level, and labels mean the same at all levels: it needs up to H times fewer episodes.

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
    wins: float = 0.05
    losses: float = 0.1
    v_max: float | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        for field in ("unseen", "wins", "losses"):
            check_range(self, field, 1e-6, 1e6)
        if self.v_max is not None:
            check_range(self, "v_max", 0.0, 1e300)
        check_stationary(self)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max = 1.0 if self.v_max is None else float(self.v_max)
        v = np.full((H + 1, S), v_max)
        v[H] = 0.0
        L = 1 if self.stationary else H
        return Tables(
            np.full((H, S, A), v_max),
            v,
            np.zeros((L, S, A), np.int32),
            np.zeros((L, S, A, S), np.int32),
            np.zeros((L, S, A, 2)),
            np.full((L, S), -1, np.int32),
            np.zeros(L, np.int32),
            np.zeros(3),
            np.zeros(2),
            np.array([v_max, v_max]),
            float(self.unseen) / H,
            float(self.wins) / H,
            float(self.losses),
            self.v_max is None,
        )

    def policy(self, tables: Tables) -> NDArray[np.float64]:
        q = mean_values(len(tables.q), tables.n, tables.m, tables.r.sum(axis=3))
        return super().policy(tables._replace(q=q))

    def behaviour(self, tables: Tables, k: int) -> NDArray[np.float64]:
        return super().policy(tables)

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
