"""RLSVI: randomised least-squares value iteration, for tables (Osband et al. 2016; Russo 2019).

After each episode, `plan` adds Gaussian noise to the mean rewards and solves the model. The
variance of the noise is that of Russo (2019), for which the regret is bounded: beta / (n + 1) with
beta = H^3 S log(2 H S A k) / 2. Means are divided by n + 1, as if each action had paid nothing
once. S is the largest number of states met at a level.
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
    mean_values,
    n_states,
    new_model,
    optimise,
    ranges,
)
from blockmdp.learners.base import Learner, at, best_action, check_constants
from blockmdp.loop import learn
from blockmdp.rng import normal

__all__ = ["RLSVI"]


class Tables(NamedTuple):
    """Tables of `RLSVI`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]
    v: NDArray[np.float64]
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    k: NDArray[np.int64]  # (1,), number of episodes
    scale: float
    unit: float  # u = v_max / H


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    count(tables, h, s, a, r, s_next)


@inlined
def noise(tables, n):
    """Return the standard deviation sqrt(beta / (n + 1))."""
    H, _, A = tables.q.shape
    S = n_states(tables)
    beta = float(H) ** 3 * S * math.log(2.0 * H * S * A * tables.k[0]) / 2.0
    return tables.scale * tables.unit * math.sqrt(beta / (n + 1.0))


@inlined
def value(tables, h, s, a, key):
    i = at(tables.n, h)
    n = tables.n[i, s, a]
    mean = 0.0
    if n > 0:
        mean = tables.r[i, s, a] / n + expectation(tables, h, s, a, tables.v[h + 1])
    return mean * n / (n + 1.0) + noise(tables, n) * normal(key, h)


@inlined
def plan(tables, k, key):
    tables.k[0] = k + 1
    optimise(value, tables, key)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class RLSVI(Learner):
    """Explore by adding noise to the rewards of the estimated model.

    Its expected regret is at most of the order of H^3 S^1.5 sqrt(A K), up to logarithms.

    Parameters
    ----------
    scale : float, default=1.0
        Factor of the standard deviation of the noise; 1 is as published.
    v_max : float or None, default=None
        Largest possible return of an episode. None is H, as published, for rewards in [0, 1].
    stationary : bool, default=False
        Estimate one model for all levels. Use it if the transitions and rewards do not depend on
        the level, and labels mean the same at all levels.

    References
    ----------
    Ian Osband, Benjamin Van Roy and Zheng Wen. Generalization and Exploration via Randomized Value
    Functions. ICML 2016.

    Daniel Russo. Worst-Case Regret Bounds for Exploration via Randomized Value Functions. NeurIPS
    2019.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.RLSVI(scale=0.05, v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=5), episodes=3_000).value()
    0.5
    """

    scale: float = 1.0
    v_max: float | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        check_constants(self)

    def has_guarantee(self) -> bool:
        return self.scale >= 1

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max, _ = ranges(H, self.v_max)
        return Tables(
            *new_model(H, S, A, 0.0, stationary=self.stationary),
            np.ones(1, np.int64),
            float(self.scale),
            v_max / H,
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
