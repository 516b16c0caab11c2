"""Exploration problems of the tabular literature: DeepSea and RiverSwim."""

from __future__ import annotations

import numpy as np

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_size
from blockmdp.emissions import Emission, OneHotGaussian
from blockmdp.mdp import BlockMDP

__all__ = ["deep_sea", "river_swim"]

COST = 0.01  # of going right all the way


def deep_sea(size: int = 10, emission: Emission | None = None, seed: int = 0) -> BlockMDP:
    """DeepSea: a diver sinks through a square, and the treasure is in the far corner.

    In each of N steps the diver sinks by one row and moves left or right by one column, unless the
    wall is in the way. It starts in the first column. Only the diver that always moves right gets
    to the last column, where a step to the right pays 1. Each step to the right costs 0.01 / N, so
    V* = 0.99, and all rewards on the way discourage from going there. Which of the two actions
    moves right is drawn at random for each row and column.

    The latent state is the column, and the level is the row.

    Parameters
    ----------
    size : int, default=10
        Number of rows and columns, N, and of actions in an episode.
    emission : Emission or None, default=None
        Distribution of the observations. None is the one-hot code of the column in R^N with
        Gaussian noise of standard deviation 0.1.
    seed : int, default=0
        Seed of the actions.

    Returns
    -------
    BlockMDP
        The problem.

    Notes
    -----
    This is the deterministic version. For bsuite, an episode is bad if the diver left the diagonal,
    and DeepSea is solved when the share of bad episodes falls below 0.9. Only good episodes pay, so
    in a study this is ``solved = { share = 0.1, window = "all" }``.

    References
    ----------
    Ian Osband et al. Behaviour Suite for Reinforcement Learning. ICLR 2020.

    Examples
    --------
    >>> m = deep_sea(size=10)
    >>> m
    <DeepSea: horizon 10, 10 states, 2 actions, OneHotGaussian(10, 0, sigma=0.1)>
    >>> round(m.optimal_value(), 4)
    0.99
    """
    N = check_integer("size", size, 2)
    check_size(N, N, 2)
    right = rng.uniforms(rng.children(streams.problem(seed), 0, N), N) < 0.5  # (row, column)
    P, rewards = np.zeros((N, N, 2, N)), np.zeros((N, N, 2, N))
    columns = np.arange(N)
    for row in range(N):
        to_right = right[row].astype(np.int64)
        P[row, columns, to_right, np.minimum(columns + 1, N - 1)] = 1.0
        P[row, columns, 1 - to_right, np.maximum(columns - 1, 0)] = 1.0
        rewards[row, columns, to_right] = -COST / N
        rewards[row, N - 1, to_right[N - 1]] += 1.0
    emission = OneHotGaussian(N, 0, 0.1) if emission is None else emission
    return BlockMDP(columns == 0, P, rewards, emission=emission, name="DeepSea")


def river_swim(
    n_states: int = 6, horizon: int = 20, emission: Emission | None = None, seed: int = 0
) -> BlockMDP:
    """RiverSwim: a swimmer is paid much upstream, and a little for doing nothing downstream.

    The states are places along a river. Action 0 drifts down by one place, and pays 0.005 / H at
    the first one. Action 1 swims up: it gets on by one place with probability 0.35, stays with 0.6
    and falls back with 0.05. (From the first place it gets on with probability 0.6. At the last
    place it stays with 0.6 and falls back with 0.4.) Swimming at the last place pays 1 / H. An
    episode starts at the first place. Nothing depends on the level.

    Parameters
    ----------
    n_states : int, default=6
        Number of places.
    horizon : int, default=20
        Number of actions in an episode, H.
    emission : Emission or None, default=None
        Distribution of the observations. None is the one-hot code of the place with Gaussian noise
        of standard deviation 0.1.
    seed : int, default=0
        Ignored: there is nothing to draw.

    Returns
    -------
    BlockMDP
        The problem.

    Notes
    -----
    Published rewards are H times as large; here the return of an episode is at most 1.

    References
    ----------
    Alexander L. Strehl and Michael L. Littman. An Analysis of Model-Based Interval Estimation for
    Markov Decision Processes. Journal of Computer and System Sciences 74, 2008.

    Examples
    --------
    >>> m = river_swim(n_states=6, horizon=20)
    >>> round(m.optimal_value(), 2)
    0.17
    """
    S, H = check_integer("n_states", n_states, 2), check_integer("horizon", horizon, 1)
    check_size(H, S, 2)
    P, rewards = np.zeros((S, 2, S)), np.zeros((S, 2, S))
    places = np.arange(S)
    P[places, 0, np.maximum(places - 1, 0)] = 1.0
    for step, probability in ((-1, 0.05), (0, 0.6), (1, 0.35)):
        P[places, 1, np.clip(places + step, 0, S - 1)] += probability
    P[0, 1, :2], P[-1, 1, -2:] = (0.4, 0.6), (0.4, 0.6)
    rewards[0, 0], rewards[-1, 1] = 0.005 / H, 1.0 / H
    emission = OneHotGaussian(S, 0, 0.1) if emission is None else emission
    shape = (H, *P.shape)
    return BlockMDP(
        places == 0,
        np.broadcast_to(P, shape),
        np.broadcast_to(rewards, shape),
        emission=emission,
        name="RiverSwim",
    )
