"""Combination locks with rotated observations that contain the level.

The locks have two live states and a dead state at each level, and many actions, of which only one
stays alive. Dying pays a little, which misleads greedy learners. An observation is the one-hot code
of the state beside that of the level, plus noise, multiplied by a Hadamard matrix. Since the level
is part of the observation, each level needs its own decoder.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_number, check_size
from blockmdp.emissions import Hadamard, StateAndLevel
from blockmdp.mdp import BlockMDP

__all__ = ["bidirectional_lock", "comblock", "diabolical_lock"]

LIVE, DEAD = (0, 1), 2


def diabolical_lock(
    horizon: int = 5,
    n_actions: int = 10,
    swap: float = 0.5,
    sigma: float = 0.1,
    seed: int = 0,
) -> BlockMDP:
    """DiabolicalLock: the diabolical combination lock of the HOMER paper.

    Each live state has one good action per level. It leads to the same live state, or with
    probability `swap` to the other one. All other actions lead to the dead state, which cannot be
    left. Every good action before the last costs 1 / (H - 1) and the last one pays 5, so V* = 4.
    Dying pays 0.1 with probability 0.5. An episode starts in live state 0.

    An observation consists of the one-hot codes of state and level plus Gaussian noise, padded with
    zeros to a power of two and multiplied by a Hadamard matrix.

    Parameters
    ----------
    horizon : int, default=5
        Number of actions in an episode, H. Observations are in R^d, where d is H + 4, rounded up to
        a power of two.
    n_actions : int, default=10
        Number of actions, at least 2.
    swap : float, default=0.5
        Probability that a good action leads to the other live state. The paper has 0.5; the default
        of its code is 0, which is easier.
    sigma : float, default=0.1
        Standard deviation of the noise, on all H + 4 coordinates.
    seed : int, default=0
        Seed of the good actions.

    Returns
    -------
    BlockMDP
        The lock.

    See Also
    --------
    comblock : The version of the BRIEE paper.

    Notes
    -----
    The paper counts the episodes until the mean return exceeds V*/2. Here level H, which is seen
    after the last action, has a code too. With H = 1 nothing is charged before the end.

    References
    ----------
    Dipendra Misra, Mikael Henaff, Akshay Krishnamurthy and John Langford. Kinematic State
    Abstraction and Provably Efficient Rich-Observation Reinforcement Learning. ICML 2020.

    Examples
    --------
    >>> round(diabolical_lock(horizon=10).optimal_value(), 10)
    4.0
    """
    H = check_integer("horizon", horizon, 1)
    P, good = _lock(H, n_actions, swap, streams.problem(seed))
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
    """Comblock: the combination lock of the BRIEE paper.

    Each live state has one good action per level. It leads to the same live state, or with
    probability `swap` to the other one. All other actions lead to the dead state, which cannot be
    left. The last good action pays 1, so V* = 1. Dying pays 0.1 with probability 0.5. An episode
    starts in either live state, with probability 0.5 each.

    Observations are those of `diabolical_lock`.

    Parameters
    ----------
    horizon : int, default=100
        Number of actions in an episode, H. Observations are in R^d, where d is H + 4, rounded up to
        a power of two.
    n_actions : int, default=10
        Number of actions, at least 2.
    swap : float, default=0.5
        Probability that a good action leads to the other live state.
    sigma : float, default=0.1
        Standard deviation of the noise, on the first H + 3 coordinates.
    dense : bool, default=False
        Whether every good action before the last pays 0.1. Then dying pays nothing.
    seed : int, default=0
        Seed of the good actions.

    Returns
    -------
    BlockMDP
        The lock.

    See Also
    --------
    diabolical_lock : The version of the HOMER paper.

    Notes
    -----
    In the paper, the lock is solved after five evaluations in a row of 20 perfect episodes each.

    References
    ----------
    Xuezhou Zhang, Yuda Song, Masatoshi Uehara, Mengdi Wang, Alekh Agarwal and Wen Sun. Efficient
    Reinforcement Learning in Block MDPs: A Model-free Representation Learning Approach. ICML 2022.

    Examples
    --------
    >>> m = comblock(horizon=100)
    >>> m.optimal_value(), m.emission.dim
    (1.0, 128)
    """
    H = check_integer("horizon", horizon, 1)
    P, good = _lock(H, n_actions, swap, streams.problem(seed))
    rewards, chance = np.zeros_like(P), np.ones_like(P)
    for h in range(H):
        for s in LIVE:
            if dense or h == H - 1:
                rewards[h, s, good[h, s], LIVE] = 1.0 if h == H - 1 else 0.1
            if not dense:
                rewards[h, s, :, DEAD], chance[h, s, :, DEAD] = 0.1, 0.5
    emission = Hadamard(StateAndLevel(3, H + 1, sigma, noisy=H + 3))
    return BlockMDP([0.5, 0.5, 0], P, rewards, chance, emission=emission, name="Comblock")


def bidirectional_lock(
    horizon: int = 6,
    n_actions: int = 10,
    swap: float = 0.5,
    sigma: float = 0.1,
    seed: int = 0,
) -> BlockMDP:
    """BidirectionalLock: two diabolical locks of the PC-PG paper, of which one pays more.

    The first action chooses a lock: the first half of the actions lead to one, all others to the
    other. Each lock takes H - 1 more actions. Its live states have one good action per level, which
    leads to either live state of the lock. All other actions lead to its dead state, which cannot
    be left. Every good action before the last costs 1 / (H - 1). The last one pays 5 in one lock
    and 2 in the other, so V* = 5 - (H - 2) / (H - 1). Nothing tells which lock is better before its
    end.

    An observation consists of the one-hot codes of state and level plus Gaussian noise, padded with
    zeros to a power of two and multiplied by a Hadamard matrix.

    Parameters
    ----------
    horizon : int, default=6
        Number of actions in an episode, H, at least 2. The paper has 6, 11 and 16.
    n_actions : int, default=10
        Number of actions, at least 2.
    swap : float, default=0.5
        Probability that a good action leads to the other live state.
    sigma : float, default=0.1
        Standard deviation of the noise. The paper has none.
    seed : int, default=0
        Seed of the good actions and of the better lock.

    Returns
    -------
    BlockMDP
        The lock.

    See Also
    --------
    diabolical_lock : A single lock.

    Notes
    -----
    State 0 is the start, 1 to 3 are the live states and the dead state of the first lock, and 4 to
    6 those of the second. The authors' code shows one-hot codes of state, level and lock without
    noise and without the Hadamard matrix: `sigma=0` is as easy. There, the better lock depends on
    whether the seed is even.

    References
    ----------
    Alekh Agarwal, Mikael Henaff, Sham Kakade and Wen Sun. PC-PG: Policy Cover Directed Exploration
    for Provable Policy Gradient Learning. NeurIPS 2020.

    Examples
    --------
    >>> round(bidirectional_lock(horizon=6).optimal_value(), 10)
    4.2
    """
    H = check_integer("horizon", horizon, 2)
    A = check_integer("n_actions", n_actions, 2)
    check_size(H, 7, A)
    P, rewards = np.zeros((H, 7, A, 7)), np.zeros((H, 7, A, 7))
    P[:, range(7), :, range(7)] = 1.0  # what cannot happen stays in place
    better = int(rng.integer(streams.problem(seed), 2, 2))
    for lock, first in enumerate((1, 4)):
        own = slice(first, first + 3)
        inner, good = _lock(H - 1, A, swap, rng.key(streams.problem(seed), lock))
        P[1:, own] = 0.0
        P[1:, own, :, own] = inner
        P[0, 0, A // 2 * lock : A // 2 if lock == 0 else A] = np.eye(7)[first]
        for h in range(1, H):
            for s in LIVE:
                pay = (5.0 if lock == better else 2.0) if h == H - 1 else -1.0 / (H - 1)
                rewards[h, first + s, good[h - 1, s], [first, first + 1]] = pay
    emission = Hadamard(StateAndLevel(7, H + 1, sigma))
    return BlockMDP(np.eye(7)[0], P, rewards, emission=emission, name="BidirectionalLock")


def _lock(
    H: int, n_actions: int, swap: float, key: np.uint64
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the transitions (H, 3, A, 3), and the good actions of the live states (H, 2)."""
    A = check_integer("n_actions", n_actions, 2)
    check_size(H, 3, A)
    swap = check_number("swap", swap, 0, 1)
    keys = rng.children(key, 0, H * len(LIVE))
    good = (rng.uniforms(keys, 1)[:, 0] * A).astype(np.int64).reshape(H, len(LIVE))
    P = np.zeros((H, 3, A, 3))
    P[:, :, :, DEAD] = 1.0
    for h in range(H):
        for s in LIVE:
            P[h, s, good[h, s]] = 0.0
            P[h, s, good[h, s], s] = 1 - swap
            P[h, s, good[h, s], 1 - s] += swap
    return P, good
