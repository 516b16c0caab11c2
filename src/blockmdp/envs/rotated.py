"""Locks whose observation is rotated and tells the level, so that each level needs its own decoder.

Two live states and a dead one at each level, and many actions, of which one keeps the agent alive;
dying is paid a little, to lead greedy learners astray. The observation is the state's one-hot code
beside the level's, plus noise, multiplied by a Hadamard matrix. All numbers count from 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer
from blockmdp.emissions import Hadamard, StateAndLevel
from blockmdp.mdp import BlockMDP

__all__ = ["comblock", "diabolical_lock"]

LIVE, DEAD = (0, 1), 2


def diabolical_lock(
    horizon: int = 5,
    n_actions: int = 10,
    swap: float = 0.5,
    sigma: float = 0.1,
    seed: int = 0,
) -> BlockMDP:
    """The diabolical combination lock of HOMER (Misra, Henaff, Krishnamurthy, Langford 2020).

    The good action of a live state, drawn uniformly for every level and live state, leads to the
    same live state, or with probability `swap` to the other; any other action leads to the dead
    state. A step alive costs 1 / (H - 1), the last one pays 5, so that V* = 4; dying pays 0.1 with
    probability 0.5. The first state is live state 0. Observations: R^(2^ceil(log2(H + 4))).

    Parameters
    ----------
    horizon : H, the number of actions in an episode.
    n_actions : A.
    swap : 0.5 as their paper describes it; their code's default is 0, an easier lock.
    sigma : standard deviation of the noise, on all H + 4 coordinates.
    seed : of the good actions.

    Notes
    -----
    Their measure is the number of episodes until the mean return exceeds V*/2. Here level H, which
    is seen after the last action, is coded too; with H = 1 nothing is charged before the end.

    Examples
    --------
    >>> round(diabolical_lock(horizon=10).optimal_value(), 10)
    4.0
    """
    H = check_integer("horizon", horizon, 1)
    P, good = _lock(H, n_actions, swap, seed)
    rewards, chance = np.zeros_like(P), np.ones_like(P)
    for h in range(H):
        pay = 5.0 if h == H - 1 else -1.0 / (H - 1)
        for s in LIVE:
            rewards[h, s, good[h, s], LIVE] = pay
            rewards[h, s, :, DEAD], chance[h, s, :, DEAD] = 0.1, 0.5
    emission = Hadamard(StateAndLevel(3, H + 1, sigma, noisy=H + 4))
    return BlockMDP([1, 0, 0], P, rewards, chance, emission=emission, name="DiabolicalLock")


def comblock(
    horizon: int = 100,
    n_actions: int = 10,
    swap: float = 0.5,
    sigma: float = 0.1,
    dense: bool = False,
    seed: int = 0,
) -> BlockMDP:
    """The combination lock of BRIEE (Zhang, Song, Uehara, Wang, Agarwal, Sun 2022).

    As in `diabolical_lock` one action of a live state keeps alive and swaps the live state with
    probability `swap`. The last good action pays 1; dying pays 0.1 with probability 0.5. The first
    state is either live one, with probability 0.5. Observations: R^(2^ceil(log2(H + 4))).

    Parameters
    ----------
    horizon, n_actions, swap, seed : as in `diabolical_lock`.
    sigma : standard deviation of the noise, on the first H + 3 coordinates.
    dense : every good step pays 0.1, the last one 1, and dying pays nothing.

    Notes
    -----
    Their measure is five evaluations in a row of 20 perfect episodes each.

    Examples
    --------
    >>> m = comblock(horizon=100)
    >>> m.optimal_value(), m.emission.dim
    (1.0, 128)
    """
    H = check_integer("horizon", horizon, 1)
    P, good = _lock(H, n_actions, swap, seed)
    rewards, chance = np.zeros_like(P), np.ones_like(P)
    for h in range(H):
        for s in LIVE:
            if dense or h == H - 1:
                rewards[h, s, good[h, s], LIVE] = 1.0 if h == H - 1 else 0.1
            if not dense:
                rewards[h, s, :, DEAD], chance[h, s, :, DEAD] = 0.1, 0.5
    emission = Hadamard(StateAndLevel(3, H + 1, sigma, noisy=H + 3))
    return BlockMDP([0.5, 0.5, 0], P, rewards, chance, emission=emission, name="Comblock")


def _lock(
    H: int, n_actions: int, swap: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Transitions (H, 3, A, 3), and the good action of each level and live state (H, 2)."""
    A = check_integer("n_actions", n_actions, 2)
    if not 0 <= swap <= 1:
        raise ValueError(f"swap must be in [0, 1], got {swap!r}")
    keys = rng.children(streams.problem(seed), 0, H * len(LIVE))
    good = (rng.uniforms(keys, 1)[:, 0] * A).astype(np.int64).reshape(H, len(LIVE))
    P = np.zeros((H, 3, A, 3))
    P[:, :, :, DEAD] = 1.0
    for h in range(H):
        for s in LIVE:
            P[h, s, good[h, s]] = 0.0
            P[h, s, good[h, s], s] = 1 - swap
            P[h, s, good[h, s], 1 - s] += swap
    return P, good
