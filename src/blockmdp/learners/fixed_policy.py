"""FixedPolicy: follows a given policy and learns nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners.base import Learner
from blockmdp.loop import learn, no_plan
from blockmdp.rng import uniform

__all__ = ["FixedPolicy"]


class Tables(NamedTuple):
    """Tables of `FixedPolicy`."""

    pi: NDArray[np.float64]  # (H, S, A)


@inlined
def act(tables, k, h, s, key):
    pi = tables.pi
    u = uniform(key, 0)
    total = 0.0
    action = 0
    for a in range(pi.shape[2]):
        if pi[h, s, a] > 0.0 and u >= total:
            action = a
        total += pi[h, s, a]
    return action


@inlined
def update(tables, h, s, a, r, s_next):
    pass


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, no_plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True, eq=False)
class FixedPolicy(Learner):
    """Follow a given policy.

    Parameters
    ----------
    pi : ndarray of shape (H, n_labels, A)
        Probability of each action. Labels that are not in the table get a random action.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5)
    >>> agent = bm.Tabular(FixedPolicy(m.optimal_policy())).fit(m, episodes=10)
    >>> agent.value()
    0.5
    """

    pi: NDArray[np.float64]

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        pi = np.full((H, max(S, self.pi.shape[1]), A), 1.0 / A)
        pi[:, : self.pi.shape[1]] = self.pi
        return Tables(pi)

    def policy(self, tables: Any) -> NDArray[np.float64]:
        return np.asarray(tables.pi, np.float64)

    act = staticmethod(act)
    update = staticmethod(update)
    compiled_loop = staticmethod(loop)
