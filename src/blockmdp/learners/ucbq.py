"""UCBQ: Q-learning with upper confidence bounds (Jin et al. 2018), as published.

The numbers in the margin are the lines of their Algorithm 1 (UCB-Hoeffding); Algorithm 2
(UCB-Bernstein) differs in the bonus only. Returns lie in [0, H] there; here they may lie in
[0, u H], and all bonuses are u times as large. The constants c, c_1 and c_2 of the paper, of which
it only says that they exist, are `scale`. The number of states in a bonus is the largest number met
at a level so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.learners._model import meet, n_states
from blockmdp.learners.base import Learner, best_action, best_value, check_constants
from blockmdp.loop import learn, no_plan

__all__ = ["UCBQ"]


class Tables(NamedTuple):
    """Tables of `UCBQ`."""

    q: NDArray[np.float64]  # (H, S, A), starts at u H
    n: NDArray[np.int32]  # (H, S, A), number of visits
    next: NDArray[np.float64]  # (H, S, A, 2), sums of the next values and of their squares
    beta: NDArray[np.float64]  # (H, S, A), of Algorithm 2
    order: NDArray[np.int32]  # (H + 1, S), see `_model`
    states: NDArray[np.int32]  # (H + 1, S)
    met: NDArray[np.int32]  # (H + 1,)
    scale: float
    unit: float  # u = v_max / H
    log: float  # logarithm of A T / delta
    bernstein: bool


@inlined
def act(tables, k, h, s, key):
    return best_action(tables.q, h, s, key)  # 5


@inlined
def hoeffding(tables, t):
    """Return c sqrt(H^3 iota / t)."""
    H = len(tables.q)
    iota = tables.log + math.log(n_states(tables))
    return tables.scale * tables.unit * math.sqrt(float(H) ** 3 * iota / t)


@inlined
def bernstein(tables, h, s, a, t):
    """Return beta_t of Algorithm 2."""
    H, _, A = tables.q.shape
    S = n_states(tables)
    iota = tables.log + math.log(S)
    mean = tables.next[h, s, a, 0] / t
    W = max(tables.next[h, s, a, 1] / t - mean * mean, 0.0) / tables.unit**2
    beta = math.sqrt(H * (W + H) * iota / t) + math.sqrt(float(H) ** 7 * S * A) * iota / t
    return min(tables.scale * tables.unit * beta, hoeffding(tables, t))


@inlined
def update(tables, h, s, a, r, s_next):
    q = tables.q
    H = len(q)
    meet(tables, h, s)
    if s_next >= 0:
        meet(tables, h + 1, s_next)
    tables.n[h, s, a] += 1  # 6
    t = tables.n[h, s, a]
    alpha = (H + 1.0) / (H + t)
    v_next = min(tables.unit * H, best_value(q, h + 1, s_next))  # 8, of the next level
    if tables.bernstein:
        tables.next[h, s, a, 0] += v_next
        tables.next[h, s, a, 1] += v_next * v_next
        beta = bernstein(tables, h, s, a, t)
        bonus = (beta - (1.0 - alpha) * tables.beta[h, s, a]) / (2.0 * alpha)
        tables.beta[h, s, a] = beta
    else:
        bonus = hoeffding(tables, t)
    q[h, s, a] = (1.0 - alpha) * q[h, s, a] + alpha * (r + v_next + bonus)  # 7


@jit
def loop(tables, dynamics, tape, episodes, k, returns):
    return learn(act, update, no_plan, tables, dynamics, tape, episodes, k, returns)


@dataclass(frozen=True)
class UCBQ(Learner):
    """Q-learning with upper confidence bounds and the learning rate (H + 1) / (H + n).

    Its regret is at most of the order of sqrt(H^4 S A T) with the bonus of Hoeffding, and
    sqrt(H^3 S A T) with that of Bernstein, for T = H K steps.

    Parameters
    ----------
    bonus : {"hoeffding", "bernstein"}, default="hoeffding"
        Bonus of an action.
    scale : float, default=1.0
        Factor of the bonus: c in the paper.
    delta : float, default=0.05
        Probability with which the bound may fail (p in the paper).
    v_max : float or None, default=None
        Largest possible return of an episode. None is H, as published, for rewards in [0, 1].

    See Also
    --------
    OracleQ : The simpler variant in the experiments of Feng et al. (2020).

    References
    ----------
    Chi Jin, Zeyuan Allen-Zhu, Sebastien Bubeck and Michael I. Jordan. Is Q-learning Provably
    Efficient? NeurIPS 2018.

    Examples
    --------
    >>> import blockmdp as bm
    >>> learner = bm.UCBQ(scale=0.01, v_max=1.0)
    >>> bm.Tabular(learner).fit(bm.lock_bernoulli(horizon=5), episodes=5_000).value()
    0.5
    """

    bonus: Literal["hoeffding", "bernstein"] = "hoeffding"
    scale: float = 1.0
    delta: float = 0.05
    v_max: float | None = None

    def __post_init__(self) -> None:
        check_constants(self)

    def has_guarantee(self) -> bool:
        return self.scale >= 1

    def tables(self, H: int, S: int, A: int, episodes: int) -> Tables:
        v_max = float(H) if self.v_max is None else float(self.v_max)
        return Tables(
            np.full((H, S, A), v_max),
            np.zeros((H, S, A), np.int32),
            np.zeros((H, S, A, 2)),
            np.zeros((H, S, A)),
            np.full((H + 1, S), -1, np.int32),
            np.zeros((H + 1, S), np.int32),
            np.zeros(H + 1, np.int32),
            float(self.scale),
            v_max / H,
            math.log(A * H * episodes / self.delta),
            self.bonus == "bernstein",
        )

    act = staticmethod(act)
    update = staticmethod(update)
    compiled_loop = staticmethod(loop)
