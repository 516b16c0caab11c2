"""Random Block MDPs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_number, check_size
from blockmdp.emissions import Emission, OneHotGaussian
from blockmdp.mdp import BlockMDP

__all__ = ["random_block_mdp"]

Array = NDArray[np.float64]


def random_block_mdp(
    horizon: int = 10,
    n_states: int = 5,
    n_actions: int = 3,
    successors: int = 2,
    paying: float = 0.1,
    emission: Emission | None = None,
    seed: int = 0,
) -> BlockMDP:
    """RandomBlockMDP: a Block MDP with random transitions and rewards, different at every level.

    An action in a state leads to one of `successors` states. These states are drawn uniformly, and
    their probabilities from the uniform Dirichlet distribution. Episodes start in state 0. Among
    all reachable (level, state, action), the fraction `paying` pays a reward, drawn uniformly. Then
    all rewards are scaled so that the largest V*(h, s) of a reachable state is 1. So V* is in
    (0, 1], and learners with v_max = 1 fit.

    Parameters
    ----------
    horizon : int, default=10
        Number of actions in an episode, H.
    n_states : int, default=5
        Number of latent states, S.
    n_actions : int, default=3
        Number of actions, A.
    successors : int, default=2
        Number of possible next states of an action. With 1 the problem is deterministic.
    paying : float, default=0.1
        Fraction of (level, state, action) that pay a reward, in (0, 1]; at least one does.
    emission : Emission or None, default=None
        Distribution of the observations. None is the one-hot code of the state in R^(S + H) with
        Gaussian noise of standard deviation 0.1, as in `lock_gaussian`.
    seed : int, default=0
        Seed of transitions and rewards.

    Returns
    -------
    BlockMDP
        The problem.

    Notes
    -----
    The tables are dense. Each takes 8 H S A S bytes, and there are six of them during a run.

    Examples
    --------
    >>> m = random_block_mdp(horizon=10, n_states=5, seed=0)
    >>> m
    <RandomBlockMDP: horizon 10, 5 states, 3 actions, OneHotGaussian(5, 10, sigma=0.1)>
    >>> round(m.optimal_value(), 3)
    0.988
    """
    H = check_integer("horizon", horizon, 1)
    S = check_integer("n_states", n_states, 1)
    A = check_integer("n_actions", n_actions, 1)
    check_size(H, S, A)
    k = check_integer("successors", successors, 1)
    k = min(k, S)
    paying = check_number("paying", paying, 0, 1, closed="right")
    if emission is None:
        emission = OneHotGaussian(S, H, 0.1)
    P, reachable = _transitions(H, S, A, k, seed)
    r = _rewards(reachable, A, paying, seed)
    r /= _largest_value(P, r, reachable)
    initial = np.eye(S)[0]
    return BlockMDP(initial, P, r[..., None], emission=emission, name="RandomBlockMDP")


def _transitions(H: int, S: int, A: int, k: int, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """Draw P (H, S, A, S), and return which states are reachable at levels 0 to H - 1, (H, S)."""
    key = streams.problem(seed)
    P = np.zeros((H, S, A, S))
    reachable = np.zeros((H, S), np.bool_)
    reachable[0, 0] = True
    for h in range(H):
        u = rng.uniforms(rng.children(key, h * S * A, S * A), S + k)
        to = np.sort(np.argpartition(u[:, :S], k - 1, axis=1)[:, :k], axis=1)
        weights = -np.log1p(-u[:, S:])  # exponential: normalised, they are Dirichlet(1, ..., 1)
        weights /= weights.sum(axis=1, keepdims=True)
        np.put_along_axis(P[h].reshape(S * A, S), to, weights, axis=1)
        if h + 1 < H:
            reachable[h + 1] = (P[h, reachable[h]] > 0).any(axis=(0, 1))
    return P, reachable


def _rewards(reachable: NDArray[np.bool_], A: int, paying: float, seed: int) -> Array:
    """Draw the rewards before scaling, (H, S, A)."""
    key = streams.problem(seed)
    H, S = reachable.shape
    u = rng.uniforms(rng.children(key, H * S * A, H * S * A), 2)
    cells = np.flatnonzero(np.repeat(reachable.ravel(), A))
    n = max(round(paying * len(cells)), 1)
    chosen = cells[np.argsort(u[cells, 0])[:n]]
    r = np.zeros(H * S * A)
    r[chosen] = 1.0 - u[chosen, 1]  # (0, 1]
    return r.reshape(H, S, A)


def _largest_value(P: Array, r: Array, reachable: NDArray[np.bool_]) -> float:
    """Return the largest V*(h, s) of a reachable state."""
    V = np.zeros(P.shape[1])
    largest = 0.0
    for h in reversed(range(len(P))):
        V = (r[h] + P[h] @ V).max(axis=1)
        largest = max(largest, float(V[reachable[h]].max()))
    return largest
