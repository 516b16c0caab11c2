"""UBEV: upper bounding the expected next value (Dann, Lattimore and Brunskill 2017).

`plan` is their Algorithm 1. Values of the next level are capped by the largest possible value,
where the paper takes the largest one computed. S in a bonus is the largest number of states met at
a level.
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
    n_states,
    new_model,
    optimise,
    ranges,
)
from blockmdp.learners.base import Learner, at, best_action, check_constants
from blockmdp.loop import learn

__all__ = ["UBEV"]


class Tables(NamedTuple):
    """Tables of `UBEV`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]
    v: NDArray[np.float64]
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    scale: float
    v_max: float  # largest possible return
    r_max: float  # largest possible reward
    log: float  # logarithm of 18 A H / delta


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    count(tables, h, s, a, r, s_next)


@inlined
def width(tables, n):
    """Return phi = sqrt((2 llnp(n) + log(18 S A H / delta)) / n), where llnp is log log."""
    llnp = math.log(math.log(max(n, math.e)))
    return tables.scale * math.sqrt((2.0 * llnp + tables.log + math.log(n_states(tables))) / n)


@inlined
def value(tables, h, s, a, key):
    i = at(tables.n, h)
    n = tables.n[i, s, a]
    most = largest_value(tables, h + 1) if h + 1 < len(tables.q) else 0.0
    if n == 0:
        return min(tables.v_max, tables.r_max + most)
    phi = width(tables, n)
    reward = min(tables.r_max, tables.r[i, s, a] / n + tables.r_max * phi)
    after = min(most, expectation(tables, h, s, a, tables.v[h + 1]) + most * phi)
    return min(tables.v_max, reward + after)


@inlined
def plan(tables, k, key):
    optimise(value, tables, key)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class UBEV(Learner):
    """Optimistic planning that is uniformly PAC: few mistakes of every size at once.

    With probability 1 - delta, for every epsilon at once, the number of episodes whose policy is
    not epsilon-optimal is of the order of S A H^4 / epsilon^2 for small epsilon, up to logarithms.

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
        Estimate one model for all levels. Use it if the transitions and rewards do not depend on
        the level, and labels mean the same at all levels.

    References
    ----------
    Christoph Dann, Tor Lattimore and Emma Brunskill. Unifying PAC and Regret: Uniform PAC Bounds
    for Episodic Reinforcement Learning. NeurIPS 2017.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.UBEV(scale=0.05, v_max=1.0)
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
        return Tables(
            *new_model(H, S, A, v_max, stationary=self.stationary),
            float(self.scale),
            v_max,
            r_max,
            math.log(18 * A * H / self.delta),
        )

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
