"""E3: explicit explore or exploit (Kearns and Singh 2002), for a finite horizon.

A state is known at a level when each of its actions was tried m times. In a state that is not
known, the learner takes the action tried least (balanced wandering). Before each episode it
computes two policies in the model of the known states: one that earns most there, and one that
reaches a state that is not known with the largest probability. It follows the second as long as
this probability exceeds `escape`. A finite horizon makes this simpler than in the paper, where the
two policies are run for as many steps as their discount or mixing time demands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import check_integer
from blockmdp.jit import inlined, jit
from blockmdp.learners._model import count, expectation, new_model
from blockmdp.learners.base import Learner, at, best_action, check_constants, check_range
from blockmdp.loop import learn

__all__ = ["E3"]


class Tables(NamedTuple):
    """Tables of `E3`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]  # of the policy that is followed
    v: NDArray[np.float64]  # its values
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    starts: NDArray[np.int32]  # (S,), visits at level 0
    exploits: NDArray[np.bool_]  # (1,), whether the policy is the one that earns most
    min_visits: int
    escape: float


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    count(tables, h, s, a, r, s_next)
    if h == 0:
        tables.starts[s] += 1


@inlined
def is_known(tables, h, s):
    i = at(tables.n, h)
    known = True
    for a in range(tables.n.shape[2]):
        known = known and tables.n[i, s, a] >= tables.min_visits
    return known


@inlined
def solve(tables, exploit):
    """Compute q and v of one of the two policies, from the last level to the first."""
    H, S, A = tables.q.shape
    for step in range(H):
        h = H - 1 - step
        i = at(tables.n, h)
        for s in range(S):
            if tables.order[at(tables.order, h), s] < 0:
                tables.v[h, s] = 0.0 if exploit else 1.0
                continue
            known = is_known(tables, h, s)
            best = -math.inf
            for a in range(A):
                n = tables.n[i, s, a]
                if known:
                    reward = tables.r[i, s, a] / n if exploit else 0.0
                    tables.q[h, s, a] = reward + expectation(tables, h, s, a, tables.v[h + 1])
                else:
                    tables.q[h, s, a] = -n  # balanced wandering
                best = max(best, tables.q[h, s, a])
            if known:
                tables.v[h, s] = best
            else:
                tables.v[h, s] = 0.0 if exploit else 1.0


@inlined
def plan(tables, k, key):
    solve(tables, False)
    total = 0
    escapes = 0.0
    for s in range(len(tables.starts)):
        total += tables.starts[s]
        escapes += tables.starts[s] * tables.v[0, s]
    tables.exploits[0] = escapes <= tables.escape * total
    if tables.exploits[0]:
        solve(tables, True)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class E3(Learner):
    """Explicit explore or exploit.

    Parameters
    ----------
    m : int, default=5
        Visits of each action from which on a state is known.
    escape : float, default=0.01
        Probability of reaching a state that is not known above which the learner explores.
    stationary : bool, default=False
        Estimate one model for all levels, as in the paper. Use it if the transitions and rewards do
        not depend on the level, and labels mean the same at all levels.

    See Also
    --------
    RMAX : Explores and exploits with one policy.

    References
    ----------
    Michael Kearns and Satinder Singh. Near-Optimal Reinforcement Learning in Polynomial Time.
    Machine Learning 49, 2002.

    Examples
    --------
    >>> import blockmdp as bm
    >>> bm.Tabular(bm.E3()).fit(bm.lock_bernoulli(horizon=5), episodes=2_000).value()
    0.5
    """

    m: int = 5
    escape: float = 0.01
    stationary: bool = False

    def __post_init__(self) -> None:
        check_integer("m", self.m, 1)
        check_range(self, "escape", 0.0, 1.0)
        check_constants(self)

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        return Tables(
            *new_model(H, S, A, 0.0, stationary=self.stationary),
            np.zeros(S, np.int32),
            np.zeros(1, np.bool_),
            int(self.m),
            float(self.escape),
        )

    def policy(self, tables: Tables) -> NDArray[np.float64]:
        # the policy that earns most in known states, also while the learner explores
        own = tables._replace(q=tables.q.copy(), v=tables.v.copy())
        solve(own, True)
        return super().policy(own)

    def behaviour(self, tables: Tables, k: int) -> NDArray[np.float64]:
        return super().policy(tables)

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
