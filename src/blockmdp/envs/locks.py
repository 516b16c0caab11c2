"""The combination locks of Feng et al. (2020), Section 5, after Du et al. (2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_number, check_size
from blockmdp.emissions import Emission, OneHotBernoulli, OneHotGaussian
from blockmdp.mdp import BlockMDP

__all__ = ["lock_bernoulli", "lock_gaussian"]

LIVE, DEAD, N_ACTIONS = (0, 1), 2, 4


def lock_bernoulli(horizon: int = 20, switch: float = 0.2, seed: int = 0) -> BlockMDP:
    """LockBernoulli: a combination lock that shows its state among random bits.

    Every level has two live states and a dead state, and there are 4 actions. In a live state, one
    action leads to live state 0 with probability 1 - switch and to live state 1 with probability
    switch. A second action does the reverse. The other two actions lead to the dead state, which
    cannot be left. An episode starts in live state 0. If it ends in a live state, it pays 1 with
    probability 0.5, so V* = 0.5. All other rewards are 0.

    An observation is the one-hot code of the state, followed by H fair random bits.

    Parameters
    ----------
    horizon : int, default=20
        Number of actions in an episode, H. Observations are in {0, 1}^(H + 3).
    switch : float, default=0.2
        Probability of arriving in the other live state, in [0, 1] (alpha in the paper).
    seed : int, default=0
        Seed of the combination: the roles of the actions, drawn for every level and live state.

    Returns
    -------
    BlockMDP
        The lock.

    See Also
    --------
    lock_gaussian : The same lock with Gaussian noise.
    lock_digits : The same lock with images of handwritten digits.

    Notes
    -----
    This follows the text of the paper. In the authors' code, the second good action is always the
    first plus one (modulo 4), and there is no switch in the last step, which changes no reward.

    References
    ----------
    Fei Feng, Ruosong Wang, Wotao Yin, Simon S. Du and Lin F. Yang. Provably Efficient Exploration
    for Reinforcement Learning Using Unsupervised Learning. NeurIPS 2020.

    Simon S. Du, Akshay Krishnamurthy, Nan Jiang, Alekh Agarwal, Miroslav Dudik and John Langford.
    Provably Efficient RL with Rich Observations via Latent State Decoding. ICML 2019.

    Examples
    --------
    >>> m = lock_bernoulli(horizon=5, switch=0.2, seed=0)
    >>> m
    <LockBernoulli: horizon 5, 3 states, 4 actions, OneHotBernoulli(3, 5, p=0.5)>
    >>> m.optimal_value()
    0.5
    """
    horizon = check_integer("horizon", horizon, 1)
    check_size(horizon, 3, N_ACTIONS)
    return make_lock("LockBernoulli", horizon, switch, seed, OneHotBernoulli(3, horizon))


def lock_gaussian(
    horizon: int = 20,
    switch: float = 0.2,
    sigma: float = 0.1,
    seed: int = 0,
    *,
    truncate: bool = False,
) -> BlockMDP:
    """LockGaussian: a combination lock that shows its state with Gaussian noise.

    The states, actions and rewards are those of `lock_bernoulli`. An observation is the one-hot
    code of the state, padded with zeros, plus Gaussian noise on every coordinate.

    Parameters
    ----------
    horizon : int, default=20
        Number of actions in an episode, H. Observations are in R^(H + 3).
    switch : float, default=0.2
        Probability of arriving in the other live state, in [0, 1] (alpha in the paper).
    sigma : float, default=0.1
        Standard deviation of the noise.
    seed : int, default=0
        Seed of the combination. The same seed gives the same combination as in `lock_bernoulli`.
    truncate : bool, default=False
        Whether to truncate the noise, so that no observation can come from two states. The lock of
        the paper is not truncated, so strictly speaking it is not a Block MDP.

    Returns
    -------
    BlockMDP
        The lock, with V* = 0.5.

    See Also
    --------
    lock_bernoulli : The same lock with random bits; it has the references.

    Examples
    --------
    >>> lock_gaussian(horizon=5, sigma=0.2)
    <LockGaussian: horizon 5, 3 states, 4 actions, OneHotGaussian(3, 5, sigma=0.2)>
    """
    horizon = check_integer("horizon", horizon, 1)
    check_size(horizon, 3, N_ACTIONS)
    emission = OneHotGaussian(3, horizon, sigma, truncate=truncate)
    return make_lock("LockGaussian", horizon, switch, seed, emission)


def make_lock(name: str, H: int, switch: float, seed: int, emission: Emission) -> BlockMDP:
    """Return the lock with an emission."""
    switch = check_number("switch", switch, 0, 1)
    roles = _permutations(seed, H)
    P = np.zeros((H, 3, N_ACTIONS, 3))
    P[:, DEAD, :, DEAD] = 1.0
    levels = np.arange(H)
    for s in LIVE:
        keep, flip, *fatal = roles[:, s].T
        for action, to in ((keep, (1 - switch, switch)), (flip, (switch, 1 - switch))):
            P[levels, s, action, :DEAD] = to
        for action in fatal:
            P[levels, s, action, DEAD] = 1.0
    rewards = np.zeros_like(P)
    rewards[-1, :, :, LIVE] = 1.0
    return BlockMDP([1, 0, 0], P, rewards, 0.5, emission=emission, name=name)


def _permutations(seed: int, H: int) -> NDArray[np.int64]:
    """Draw an order of the actions for every level and live state, (H, 2, A)."""
    keys = rng.children(streams.problem(seed), 0, H * len(LIVE))
    return rng.uniforms(keys, N_ACTIONS).argsort(axis=1).reshape(H, len(LIVE), N_ACTIONS)
