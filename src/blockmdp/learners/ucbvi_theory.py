"""UCBVI-CH and UCBVI-BF: optimistic value iteration, as published (Azar et al. 2017).

`plan` is their Algorithm 2; the bonus is that of Algorithm 3 (CH) or 4 (BF). They assume one model
for all levels (`stationary=True`), returns in [0, H], and rewards that are known. Here returns may
lie in [0, u H], all bonuses are u times as large, and the mean reward seen counts as the reward. S
in a bonus is the largest number of states met at a level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners._model import (
    count,
    expectation,
    n_states,
    new_model,
    optimise,
    variance,
)
from blockmdp.learners.base import Learner, at, best_action, check_constants
from blockmdp.loop import learn

__all__ = ["UCBVITheory"]


class Tables(NamedTuple):
    """Tables of `UCBVITheory`; for the first eight fields, see `_model`."""

    q: NDArray[np.float64]
    v: NDArray[np.float64]
    n: NDArray[np.int32]
    m: NDArray[np.int32]
    r: NDArray[np.float64]
    order: NDArray[np.int32]
    states: NDArray[np.int32]
    met: NDArray[np.int32]
    visits: NDArray[np.int32]  # (H, S), visits of a state at a level (N' in the paper)
    scale: float
    unit: float  # u = v_max / H
    log: float  # logarithm of 5 A T / delta
    bernstein: bool


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)


@inlined
def update(tables, h, s, a, r, s_next):
    count(tables, h, s, a, r, s_next)
    tables.visits[h, s] += 1


@inlined
def bonus_1(tables, N):
    """Return 7 H L / sqrt(N), for rewards in [0, 1]."""
    L = tables.log + math.log(n_states(tables))
    return 7.0 * len(tables.q) * L / math.sqrt(N)


@inlined
def bonus_2(tables, h, s, a, N):
    """Return the bonus of Algorithm 4, for rewards in [0, 1]."""
    H, _, A = tables.q.shape
    S = n_states(tables)
    L = tables.log + math.log(S)
    i = at(tables.n, h)
    spread = variance(tables, h, s, a, tables.v[h + 1]) / tables.unit**2
    correction = 0.0
    if h + 1 < H:  # all values at level H are 0
        below = at(tables.order, h + 1)
        for j in range(tables.met[below]):
            t = tables.states[below, j]
            most = 100.0**2 * float(H) ** 3 * S**2 * A * L**2 / max(tables.visits[h + 1, t], 1)
            correction += tables.m[i, s, a, t] / N * min(most, H**2)
    return (
        math.sqrt(8.0 * L * spread / N) + 14.0 * H * L / (3.0 * N) + math.sqrt(8.0 * correction / N)
    )


@inlined
def value(tables, h, s, a, key):
    """Return the optimistic value of an action, which never increases over time."""
    i = at(tables.n, h)
    N = tables.n[i, s, a]
    most = tables.unit * len(tables.q)
    if N == 0:
        return most
    bonus = bonus_2(tables, h, s, a, N) if tables.bernstein else bonus_1(tables, N)
    bonus *= tables.scale * tables.unit
    q = tables.r[i, s, a] / N + expectation(tables, h, s, a, tables.v[h + 1]) + bonus
    return min(tables.q[h, s, a], min(most, q))


@inlined
def plan(tables, k, key):
    optimise(value, tables, key)


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class UCBVITheory(Learner):
    """Optimistic value iteration with the bonuses that its regret bounds need.

    With probability 1 - delta the regret after K episodes, T = H K steps, is at most
    20 H L sqrt(S A T) + 250 H^2 S^2 A L^2 with the bonus "hoeffding" (UCBVI-CH), and
    30 H L sqrt(S A K) + 2500 H^2 S^2 A L^2 + 4 H sqrt(K L H) with "bernstein" (UCBVI-BF).

    The proofs assume that rewards are known. The bonus "bernstein" is small at the last level, so
    it may not be enough where rewards are random; "hoeffding" is.

    Parameters
    ----------
    bonus : {"hoeffding", "bernstein"}, default="hoeffding"
        Bonus of an action.
    scale : float, default=1.0
        Factor of the bonus; 1 is as published.
    delta : float, default=0.05
        Probability with which the bound may fail.
    v_max : float or None, default=None
        Largest possible return of an episode. None is H, as published, for rewards in [0, 1].
    stationary : bool, default=False
        Estimate one model for all levels, as in the paper. Use it if the transitions and rewards do
        not depend on the level, and labels mean the same at all levels.

    See Also
    --------
    UCBVI : The same with a smaller bonus, for practice.

    References
    ----------
    Mohammad Gheshlaghi Azar, Ian Osband and Remi Munos. Minimax Regret Bounds for Reinforcement
    Learning. ICML 2017.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.UCBVITheory(scale=0.003, v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=5), episodes=2_000).value()
    0.5
    """

    bonus: Literal["hoeffding", "bernstein"] = "hoeffding"
    scale: float = 1.0
    delta: float = 0.05
    v_max: float | None = None
    stationary: bool = False

    def __post_init__(self) -> None:
        check_constants(self)

    def regret_bound(self, H: int, S: int, A: int, episodes: int, delta: float) -> float:
        """Compute the published bound of the regret (Theorems 1 and 2).

        Parameters
        ----------
        H, S, A : int
            Horizon, number of states and of actions.
        episodes : int
            Number of episodes, K.
        delta : float
            Probability with which the bound may fail.

        Returns
        -------
        float
            The bound. Without `stationary`, a state at each level counts as one of its own.
        """
        K, S = episodes, S if self.stationary else S * H
        L = math.log(5 * S * A * H * K / delta)
        unit = 1.0 if self.v_max is None else self.v_max / H
        if self.bonus == "hoeffding":
            bound = 20 * H * L * math.sqrt(S * A * H * K) + 250 * H**2 * S**2 * A * L**2
        else:
            bound = 30 * H * L * math.sqrt(S * A * K) + 2500 * H**2 * S**2 * A * L**2
            bound += 4 * H * math.sqrt(H * K * L)
        return unit * bound

    def sample_complexity(self, H: int, S: int, A: int, epsilon: float, delta: float) -> int:
        """Compute how many episodes are enough for an epsilon-optimal policy.

        The bound of the regret speaks of all policies together, so the policy is one of them, drawn
        at random (Jin et al. 2018, Section 3.1).

        Parameters
        ----------
        H, S, A : int
            Horizon, number of states and of actions.
        epsilon : float
            Accuracy.
        delta : float
            Probability with which the policy may be worse.

        Returns
        -------
        int
            Number of episodes, C(epsilon, delta) in Feng et al. (2020).

        Examples
        --------
        >>> UCBVITheory().sample_complexity(H=2, S=2, A=2, epsilon=0.5, delta=0.1)
        44220924582
        """

        if not self.has_guarantee():
            raise ValueError(f"the bound needs scale=1, got scale={self.scale!r}")

        def is_enough(K: int) -> bool:
            return self.regret_bound(H, S, A, K, delta / 2) <= K * epsilon * delta / 2

        most = 1
        while not is_enough(most):
            most *= 2
        least = most // 2
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (least, middle) if is_enough(middle) else (middle, most)
        return most

    def has_guarantee(self) -> bool:
        return self.scale >= 1

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max = float(H) if self.v_max is None else float(self.v_max)
        return Tables(
            *new_model(H, S, A, v_max, stationary=self.stationary),
            np.zeros((H, S), np.int32),
            float(self.scale),
            v_max / H,
            math.log(5 * A * H * episodes / self.delta),
            self.bonus == "bernstein",
        )

    act = staticmethod(act)
    update = staticmethod(update)
    plan = staticmethod(plan)
    compiled_loop = staticmethod(loop)
