"""UCBVI: optimistic value iteration on an estimated model (Azar, Osband and Munos 2017).

`update` adds a step to the data and `plan` computes the optimistic values of their Algorithm 2. The
differences: transitions and rewards are estimated separately for each level (unless `stationary`),
the bonus is c / sqrt(n) instead of 7 H L / sqrt(n), and values are not forced to decrease over time
(`UCBVITheory` is the algorithm as published); a discount is possible. With c = 0 this is R-MAX
(Brafman and Tennenholtz 2002) with every action known after one visit.

`plan` computes only entries that can have changed: those visited since the last planning, and those
that lead to a state whose value has changed. The result is the same. Sums go over the few next
states that were seen, so that problems with thousands of states can be planned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, interpreted, jit
from blockmdp.learners.base import Learner, at, best_action, check_range, check_stationary
from blockmdp.loop import learn

__all__ = ["UCBVI"]


class Tables(NamedTuple):
    """Tables of `UCBVI`."""

    q: NDArray[np.float64]  # (H, S, A)
    v: NDArray[np.float64]  # (H + 1, S), 0 at level H
    n: NDArray[np.int32]  # (L, S, A), number of visits; L is H, or 1 if all levels share one model
    m: NDArray[np.int32]  # (L, S, A, S), number of transitions; none if a visit ended the episode
    r: NDArray[np.float64]  # (L, S, A), sum of rewards
    due: NDArray[np.bool_]  # (L, S, A), whether visited since the last planning
    changed: NDArray[np.bool_]  # (2, S), working memory of `plan`: whether values have changed
    c: float
    v_max: float
    successors: NDArray[np.int32]  # (L, S, A, S), the next states seen, in increasing order
    seen: NDArray[np.int32]  # (L, S, A), their number
    discount: float


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def backup(tables, h, s, a):
    """Return the optimistic value of an action, given the values of the next level."""
    n = tables.n[at(tables.n, h), s, a]
    if n == 0:
        return tables.v_max
    return min(tables.v_max, mean(tables, h, s, a) + tables.c / math.sqrt(n))


@inlined
def mean(tables, h, s, a):
    """Return the mean of reward and next value, of an action that was tried."""
    i = at(tables.n, h)
    total = tables.r[i, s, a]
    for j in range(tables.seen[i, s, a]):
        t = tables.successors[i, s, a, j]
        total += tables.m[i, s, a, t] * (tables.discount * tables.v[h + 1, t])
    return total / tables.n[i, s, a]


@inlined
def count(tables, i, s, a, t):
    """Add a transition to state t to the data of level i."""
    if tables.m[i, s, a, t] == 0:
        j = tables.seen[i, s, a]
        while j > 0 and tables.successors[i, s, a, j - 1] > t:
            tables.successors[i, s, a, j] = tables.successors[i, s, a, j - 1]
            j -= 1
        tables.successors[i, s, a, j] = t
        tables.seen[i, s, a] += 1
    tables.m[i, s, a, t] += 1


@inlined
def update(tables, h, s, a, r, s_next):
    i = at(tables.n, h)
    tables.n[i, s, a] += 1
    tables.r[i, s, a] += r
    if s_next >= 0:
        count(tables, i, s, a, s_next)
    tables.due[i, s, a] = True
    if len(tables.n) == 1 and tables.n[i, s, a] == 1:
        # else an action that leads nowhere would look new for the rest of the episode
        for later in range(h + 1, len(tables.q)):
            tables.q[later, s, a] = backup(tables, later, s, a)


@inlined
def plan(tables, k, key):
    H, S, A = tables.q.shape
    changed = tables.changed
    changed[:] = False
    for step in range(H):
        h = H - 1 - step
        i = at(tables.n, h)
        here = h % 2
        below = 1 - here
        anything = False
        for t in range(S):
            changed[here, t] = False
            anything |= changed[below, t]
        for s in range(S):
            affected = False
            for a in range(A):
                due = tables.due[i, s, a]
                if anything and not due and tables.n[i, s, a] > 0:
                    for j in range(tables.seen[i, s, a]):
                        due |= changed[below, tables.successors[i, s, a, j]]
                if due:
                    tables.due[i, s, a] = len(tables.n) == 1 and h > 0  # done at all levels
                    tables.q[h, s, a] = backup(tables, h, s, a)
                    affected = True
            if affected:
                best = tables.q[h, s, 0]
                for a in range(1, A):
                    best = max(best, tables.q[h, s, a])
                changed[here, s] = best != tables.v[h, s]
                tables.v[h, s] = best


@jit
def exploit(tables):
    """Compute q and v without optimism, where actions that were never tried are not an option."""
    H, S, A = tables.q.shape
    for step in range(H):
        h = H - 1 - step
        for s in range(S):
            best = -math.inf
            for a in range(A):
                tried = tables.n[at(tables.n, h), s, a] > 0
                tables.q[h, s, a] = mean(tables, h, s, a) if tried else -math.inf
                best = max(best, tables.q[h, s, a])
            tables.v[h, s] = best if best > -math.inf else 0.0


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class UCBVI(Learner):
    """Optimistic value iteration on the estimated model.

    Parameters
    ----------
    bonus : float, default=0.1
        Scale c of the exploration bonus c / sqrt(n) of an action that was tried n times. With 0 the
        learner trusts what it has seen once, which is best if the problem is deterministic.
    v_max : float, default=1.0
        Largest possible return of an episode; the value of actions that were never tried.
    stationary : bool, default=False
        Estimate one model for all levels. Use it if the transitions and rewards do not depend on
        the level, and labels mean the same at all levels: it needs up to H times fewer episodes.
    discount : float, default=1.0
        Factor by which a value counts less one step earlier. Below 1, the learner first tries what
        is near. With 1, everything that may still be reached in the episode is equally good, so in
        a maze it walks at random until the time is nearly over.
    greedy : {"optimistic", "known"}, default="optimistic"
        The policy that is learnt: the one that the learner follows, or the best one in the model of
        what was seen, with the same `discount`. With "known", a goal reached once is kept, while
        the learner goes on looking.

    References
    ----------
    Mohammad Gheshlaghi Azar, Ian Osband and Remi Munos. Minimax Regret Bounds for Reinforcement
    Learning. ICML 2017.

    Ronen I. Brafman and Moshe Tennenholtz. R-MAX: A General Polynomial Time Algorithm for
    Near-Optimal Reinforcement Learning. JMLR 2002.

    Examples
    --------
    >>> from blockmdp import Tabular, lock_bernoulli
    >>> Tabular(UCBVI()).fit(lock_bernoulli(horizon=10), episodes=2_000).value()
    0.5
    """

    bonus: float = 0.1
    v_max: float = 1.0
    stationary: bool = False
    discount: float = 1.0
    greedy: Literal["optimistic", "known"] = "optimistic"

    def __post_init__(self) -> None:
        check_range(self, "bonus", 0.0, math.inf)
        check_range(self, "v_max", -1e300, 1e300)
        check_stationary(self)
        check_range(self, "discount", 0.0, 1.0)
        if self.greedy not in ("optimistic", "known"):
            raise ValueError(f"greedy must be 'optimistic' or 'known', got {self.greedy!r}")

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v = np.full((H + 1, S), float(self.v_max))
        v[H] = 0.0
        L = 1 if self.stationary else H
        return Tables(
            np.full((H, S, A), float(self.v_max)),
            v,
            np.zeros((L, S, A), np.int32),
            np.zeros((L, S, A, S), np.int32),
            np.zeros((L, S, A)),
            np.zeros((L, S, A), np.bool_),
            np.zeros((2, S), np.bool_),
            float(self.bonus),
            float(self.v_max),
            np.zeros((L, S, A, S), np.int32),
            np.zeros((L, S, A), np.int32),
            float(self.discount),
        )

    def policy(self, tables: Tables) -> NDArray[np.float64]:
        if self.greedy == "known":
            tables = tables._replace(q=tables.q.copy(), v=tables.v.copy())
            (exploit if self.is_compiled() else interpreted(exploit))(tables)
        return super().policy(tables)

    def behaviour(self, tables: Tables, k: int) -> NDArray[np.float64]:
        return super().policy(tables)

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
