"""What a seed's streams of random numbers are used for. One number a use, so that no two uses share
numbers.
"""

from __future__ import annotations

import numpy as np

from blockmdp import rng

__all__ = [
    "agent",
    "episode_noise",
    "estimator",
    "mixture",
    "noise",
    "noise_root",
    "policy",
    "problem",
    "sampling",
    "world",
]


def problem(seed: int) -> np.uint64:
    """Drawing a problem: a lock's combination, ..."""
    return rng.root(seed, 0)


def world(seed: int) -> np.uint64:
    """Initial states, transitions and rewards: `child(world(seed), episode)`."""
    return rng.root(seed, 1)


def noise(seed: int, level: int, state: int) -> np.uint64:
    """Observations: the n-th of a latent state at a level has the key `child(noise(seed, level,
    state), n)`.
    """
    return _cell(noise_root(seed), level, state)


def noise_root(seed: int) -> np.uint64:
    """Above all keys of `noise`: `child(child(noise_root(seed), level), state)`."""
    return rng.root(seed, 2)


def episode_noise(seed: int) -> np.uint64:
    """Observations whose noise hangs together over an episode (`Emission.per_episode`): those of an
    episode have the key `child(episode_noise(seed), episode)`.
    """
    return rng.root(seed, 8)


def agent(seed: int, n: int = 0) -> np.uint64:
    """The choices of the n-th learner of a run: `step(child(agent(seed, n), episode), h)`."""
    return rng.key(rng.root(seed, 3), n)


def estimator(seed: int) -> np.uint64:
    """Random states handed to unsupervised estimators."""
    return rng.root(seed, 4)


def policy(seed: int) -> np.uint64:
    """Choices of a policy that is followed, not learnt: `step(child(policy(seed), episode), h)`."""
    return rng.root(seed, 6)


def mixture(seed: int) -> np.uint64:
    """Which policy of several an episode follows: `child(mixture(seed), episode)`."""
    return rng.root(seed, 7)


def sampling(seed: int, level: int, state: int) -> np.uint64:
    """Observations drawn to look at or to measure with, outside of any episode."""
    return _cell(rng.root(seed, 5), level, state)


def _cell(key: np.uint64, level: int, state: int) -> np.uint64:
    return rng.key(key, level, state)
