"""The two combination locks of Feng et al. 2020, Section 5 (after Du et al. 2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer
from blockmdp.emissions import Emission, OneHotBernoulli, OneHotGaussian
from blockmdp.mdp import BlockMDP

__all__ = ["lock_bernoulli", "lock_gaussian"]

LIVE, DEAD, N_ACTIONS = (0, 1), 2, 4


def lock_bernoulli(horizon: int = 20, switch: float = 0.2, seed: int = 0) -> BlockMDP:
    """LockBernoulli: the lock seen as its state's one-hot code and `horizon` random bits.

    At each level there are two live states and a dead one, and 4 actions. From a live state one
    action leads to live state 0 with probability 1 - switch and to live state 1 with probability
    switch; a second one does the reverse; the other two lead to the dead state, which nothing
    leaves. Arriving alive at the end pays 1 with probability 0.5. Which action is which is drawn
    anew for every level and live state. The first state is live state 0.

    Parameters
    ----------
    horizon : H, the number of actions in an episode. Observations are in {0, 1}^(H + 3).
    switch : alpha, in [0, 1].
    seed : of the action roles; problems with another seed have another combination.

    Notes
    -----
    The authors' code differs from their text, which is followed here: there, the second good action
    is always the first plus one (modulo 4), and the switch is not applied on the last step (which
    no reward depends on).

    Examples
    --------
    >>> m = lock_bernoulli(horizon=5, switch=0.2, seed=0)
    >>> m.optimal_value()
    0.5
    """
    horizon = check_integer("horizon", horizon, 1)
    return _lock("LockBernoulli", horizon, switch, seed, OneHotBernoulli(3, horizon))


def lock_gaussian(
    horizon: int = 20,
    switch: float = 0.2,
    sigma: float = 0.1,
    seed: int = 0,
    *,
    truncate: bool = False,
) -> BlockMDP:
    """LockGaussian: the lock of `lock_bernoulli`, seen as its state's one-hot code in R^(H + 3)
    plus Gaussian noise.

    Parameters
    ----------
    horizon, switch, seed : as in `lock_bernoulli`.
    sigma : standard deviation of the noise on every coordinate.
    truncate : cut the noise off so that no observation can come from two states. The paper's own
        lock is not truncated, and so not quite a Block MDP.

    Examples
    --------
    >>> lock_gaussian(horizon=5, sigma=0.2).emission
    OneHotGaussian(3, 5, sigma=0.2)
    """
    horizon = check_integer("horizon", horizon, 1)
    emission = OneHotGaussian(3, horizon, sigma, truncate=truncate)
    return _lock("LockGaussian", horizon, switch, seed, emission)


def _lock(name: str, H: int, switch: float, seed: int, emission: Emission) -> BlockMDP:
    if not 0 <= switch <= 1:
        raise ValueError(f"switch must be in [0, 1], got {switch!r}")
    roles = _permutations(seed, H)
    P = np.zeros((H, 3, N_ACTIONS, 3))
    P[:, DEAD, :, DEAD] = 1.0
    for h in range(H):
        for s in LIVE:
            keep, flip, *fatal = roles[h, s]
            P[h, s, keep, LIVE] = 1 - switch, switch
            P[h, s, flip, LIVE] = switch, 1 - switch
            P[h, s, fatal, DEAD] = 1.0
    rewards = np.zeros_like(P)
    rewards[-1, :, :, LIVE] = 1.0
    return BlockMDP([1, 0, 0], P, rewards, 0.5, emission=emission, name=name)


def _permutations(seed: int, H: int) -> NDArray[np.int64]:
    """A random order of the actions for every level and live state, (H, 2, A)."""
    keys = rng.children(streams.problem(seed), 0, H * len(LIVE))
    return rng.uniforms(keys, N_ACTIONS).argsort(axis=1).reshape(H, len(LIVE), N_ACTIONS)
