"""Block MDPs drawn at random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer
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
    """A Block MDP whose transitions and rewards are drawn at random, anew for every level.

    An action in a state of a level leads to one of `successors` states, which are drawn uniformly;
    their probabilities are drawn from the flat Dirichlet law. The first state is state 0. Of all
    (level, state, action) that can be come to, the share `paying` is drawn to pay, each an amount
    drawn uniformly. Then all amounts are scaled, so that 1 is the most that can be earned on from
    any state that can be come to: V* is in (0, 1], and learners may take values to be at most 1.

    Parameters
    ----------
    horizon : H, the number of actions in an episode.
    n_states, n_actions : S and A.
    successors : how many next states an action can lead to, from 1 (nothing is left to chance) to
        S or more (anything can follow).
    paying : share of (level, state, action) that pay, in (0, 1]; at least one does.
    emission : how states are seen; by default their one-hot code in R^(S + H) with N(0, 0.1^2)
        noise, as in `lock_gaussian`.
    seed : of transitions and rewards.

    Notes
    -----
    The tables are dense: 8 x H x S x A x S bytes each, of which there are three, and another three
    once episodes are drawn.

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
    k = check_integer("successors", successors, 1)
    k = min(k, S)
    if not 0 < paying <= 1:
        raise ValueError(f"paying must be in (0, 1], got {paying!r}")
    if emission is None:
        emission = OneHotGaussian(S, H, 0.1)
    P, reachable = _transitions(H, S, A, k, seed)
    r = _rewards(reachable, A, paying, seed)
    r /= _largest_value(P, r, reachable)
    initial = np.eye(S)[0]
    return BlockMDP(initial, P, r[..., None], emission=emission, name="RandomBlockMDP")


def _transitions(H: int, S: int, A: int, k: int, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """P (H, S, A, S), and which states can be come to at the levels 0, ..., H - 1, (H, S)."""
    key = streams.problem(seed)
    P = np.zeros((H, S, A, S))
    reachable = np.zeros((H, S), np.bool_)
    reachable[0, 0] = True
    for h in range(H):
        u = rng.uniforms(rng.children(key, h * S * A, S * A), S + k)
        to = np.sort(np.argpartition(u[:, :S], k - 1, axis=1)[:, :k], axis=1)
        weights = -np.log1p(-u[:, S:])  # exponential; their shares are Dirichlet(1, ..., 1)
        weights /= weights.sum(axis=1, keepdims=True)
        np.put_along_axis(P[h].reshape(S * A, S), to, weights, axis=1)
        if h + 1 < H:
            reachable[h + 1] = (P[h, reachable[h]] > 0).any(axis=(0, 1))
    return P, reachable


def _rewards(reachable: NDArray[np.bool_], A: int, paying: float, seed: int) -> Array:
    """What is paid before scaling, (H, S, A)."""
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
    """The most that can be earned on from any state that can be come to."""
    V = np.zeros(P.shape[1])
    largest = 0.0
    for h in reversed(range(len(P))):
        V = (r[h] + P[h] @ V).max(axis=1)
        largest = max(largest, float(V[reachable[h]].max()))
    return largest
