"""A combination lock that shows images of handwritten digits."""

from __future__ import annotations

import numpy as np

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_size
from blockmdp.emissions import Digits, Images
from blockmdp.envs.locks import DEAD, LIVE, N_ACTIONS, make_lock
from blockmdp.mdp import BlockMDP

__all__ = ["lock_digits"]


def lock_digits(
    horizon: int = 10, switch: float = 0.2, images: Images = "train", seed: int = 0
) -> BlockMDP:
    """LockDigits: a combination lock that shows its state as a handwritten digit.

    The states, actions and rewards are those of `lock_bernoulli`. Each of the three states has a
    digit, the same at all levels. An observation is a random image of this digit, with 64 grey
    values in [0, 1].

    Parameters
    ----------
    horizon : int, default=10
        Number of actions in an episode, H.
    switch : float, default=0.2
        Probability of arriving in the other live state, in [0, 1].
    images : {"train", "test", "all"}, default="train"
        Which images to use. "test" is a third of each digit's images, "train" the others. The same
        seed gives the same lock and digits, so `agent.value(on=...)` can measure on held-out
        images what was learnt from the training images.
    seed : int, default=0
        Seed of the combination and of the digits. The same seed gives the same combination as in
        `lock_bernoulli`.

    Returns
    -------
    BlockMDP
        The lock, with V* = 0.5.

    See Also
    --------
    lock_bernoulli : The same lock with random bits.
    Digits : The emission, and the source of the images.

    Notes
    -----
    This problem is not in Feng et al. (2020). Only its latent dynamics are.

    Examples
    --------
    >>> m = lock_digits(horizon=5, seed=0)
    >>> m
    <LockDigits: horizon 5, 3 states, 4 actions, Digits([5, 8, 7], images='train')>
    >>> m.optimal_value()
    0.5
    """
    H = check_integer("horizon", horizon, 1)
    check_size(H, 3, N_ACTIONS)
    u = rng.uniforms(np.array([streams.problem(seed)]), 10)[0]
    digits = u.argsort()[: len((*LIVE, DEAD))].tolist()
    return make_lock("LockDigits", H, switch, seed, Digits(digits, images))
