"""The lock seen as handwritten digits."""

from __future__ import annotations

import numpy as np

from blockmdp import rng, streams
from blockmdp.checks import check_integer
from blockmdp.emissions import Digits, Images
from blockmdp.envs.locks import DEAD, LIVE, _lock
from blockmdp.mdp import BlockMDP

__all__ = ["lock_digits"]


def lock_digits(
    horizon: int = 10, switch: float = 0.2, images: Images = "train", seed: int = 0
) -> BlockMDP:
    """LockDigits: the lock of `lock_bernoulli`, each of its three states seen as images of a
    handwritten digit.

    Which digit shows which state is drawn from the seed, and is the same at all levels; an
    observation is any image of that digit, 64 grey values in [0, 1]. The images are scikit-learn's
    own (`blockmdp.emissions.Digits`).

    Parameters
    ----------
    horizon, switch : as in `lock_bernoulli`.
    images : "train", "test" (a third of each digit's images, none of them in "train") or "all".
        The same seed gives the same lock and the same digits with other images, so a decoder learnt
        from the first can be judged on the second.
    seed : of the action roles, which are those of `lock_bernoulli`, and of the digits.

    Notes
    -----
    Not from the paper, whose observations are one-hot codes with noise; the dynamics are the
    paper's.

    Examples
    --------
    >>> m = lock_digits(horizon=5, seed=0)
    >>> m
    <LockDigits: horizon 5, 3 states, 4 actions, Digits([5, 8, 7], images='train')>
    >>> m.optimal_value()
    0.5
    """
    H = check_integer("horizon", horizon, 1)
    u = rng.uniforms(np.array([streams.problem(seed)]), 10)[0]
    digits = u.argsort()[: len((*LIVE, DEAD))].tolist()
    return _lock("LockDigits", H, switch, seed, Digits(digits, images))
