"""The random streams of a seed.

Each use of random numbers has its own stream, so that no two uses share numbers:

======  =====================  ===================================================================
stream  function               what it is for
======  =====================  ===================================================================
0       `problem`              drawing a problem, such as the combination of a lock
1       `world`                initial states, transitions and rewards
2       `noise`, `noise_root`  observations
3       `agent`                choices of learners
4       `estimator`            random states of unsupervised estimators
5       `sampling`             observations drawn outside of any episode
6       `policy`               choices of fixed policies
7       `mixture`              which one of several policies an episode follows
8       `episode_noise`        observations whose noise is correlated within an episode
======  =====================  ===================================================================
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
    """Return the key for drawing a problem, such as the combination of a lock."""
    return rng.root(seed, 0)


def world(seed: int) -> np.uint64:
    """Return the key of initial states, transitions and rewards.

    Episode n of the environment has the key `key(world(seed), n)`.
    """
    return rng.root(seed, 1)


def noise(seed: int, level: int, state: int) -> np.uint64:
    """Return the key of the observations of a latent state at a level.

    The n-th observation has the key `key(noise(seed, level, state), n)`.
    """
    return rng.key(noise_root(seed), level, state)


def noise_root(seed: int) -> np.uint64:
    """Return the key above all keys of `noise`: `key(noise_root(seed), level, state)`."""
    return rng.root(seed, 2)


def agent(seed: int, n: int = 0) -> np.uint64:
    """Return the key of the choices of the n-th learner of a run.

    Step h of its episode k has the key `blockmdp.loop.choice_key(agent(seed, n), k, h)`.
    """
    return rng.key(rng.root(seed, 3), n)


def estimator(seed: int) -> np.uint64:
    """Return the key of the random states that unsupervised estimators get."""
    return rng.root(seed, 4)


def sampling(seed: int, level: int, state: int) -> np.uint64:
    """Return the key of observations that are drawn outside of any episode, to measure with."""
    return rng.key(sampling_root(seed), level, state)


def sampling_root(seed: int) -> np.uint64:
    """Return the key above all keys of `sampling`: `key(sampling_root(seed), level, state)`."""
    return rng.root(seed, 5)


def policy(seed: int) -> np.uint64:
    """Return the key of the choices of fixed policies.

    Step h of episode n has the key `rng.step(key(policy(seed), n), h)`.
    """
    return rng.root(seed, 6)


def mixture(seed: int) -> np.uint64:
    """Return the key that decides which of several policies an episode follows.

    Episode n has the key `key(mixture(seed), n)`.
    """
    return rng.root(seed, 7)


def episode_noise(seed: int) -> np.uint64:
    """Return the key of observations whose noise is correlated within an episode.

    All observations of episode n have the key `key(episode_noise(seed), n)`; see
    `Emission.per_episode`.
    """
    return rng.root(seed, 8)
