"""Problems with exogenous noise: bits of the observation that change over time, whatever the agent
does, and tell it nothing.
"""

from __future__ import annotations

import numpy as np

from blockmdp import rng, streams
from blockmdp.checks import check_integer
from blockmdp.emissions import ExogenousBits, Hadamard, MarkovBits
from blockmdp.mdp import BlockMDP

__all__ = ["exogenous_lock", "noisy_chain"]

BRANCH_A, BRANCH_B, DEAD = 0, 1, 2


def exogenous_lock(
    horizon: int = 5,
    n_actions: int = 10,
    n_bits: int = 10,
    flip: float = 0.1,
    sigma: float = 0.1,
    seed: int = 0,
) -> BlockMDP:
    """The lock with exogenous bits of PPE (Efroni, Misra, Krishnamurthy, Agarwal, Langford 2022).

    Nothing of the latent dynamics is left to chance. At level 0 one action enters branch a, another
    enters branch b; later a branch has one good action a level, which stays in it. Any other action
    leads to the dead state. The last good action pays 1 in branch a and 0.1 in branch b, so V* = 1.

    Observations: the one-hot codes of state and level and the bits, in R^(H + 4 + n_bits), plus
    N(0, sigma^2) noise, padded with zeros to a power of two and multiplied by a Hadamard matrix.
    The bits are fair coins at level 0 and flip with probability `flip` at every step.

    Parameters
    ----------
    horizon : H, the number of actions in an episode.
    n_actions : A, 3 at least.
    n_bits, flip, sigma : see above.
    seed : of the good actions; those of the two branches differ at every level.

    Notes
    -----
    States are 0 (branch a), 1 (branch b) and 2 (dead). As in their code the start has the code of
    branch a; the level tells them apart. Theirs can also pay for dying and charge for living; both
    are 0 here.

    Examples
    --------
    >>> m = exogenous_lock(horizon=5, n_bits=10)
    >>> m.optimal_value(), m.emission.dim
    (1.0, 32)
    """
    H = check_integer("horizon", horizon, 1)
    A = check_integer("n_actions", n_actions, 3)
    keys = rng.children(streams.problem(seed), 0, H)
    good = rng.uniforms(keys, A).argsort(axis=1)[:, :2]  # (H, 2): two different actions a level
    P, rewards = np.zeros((H, 3, A, 3)), np.zeros((H, 3, A, 3))
    P[:, :, :, DEAD] = 1.0
    for h in range(H):
        for branch in (BRANCH_A, BRANCH_B):
            a, s = good[h, branch], BRANCH_A if h == 0 else branch
            P[h, s, a] = np.eye(3)[branch]
    for branch, pay in ((BRANCH_A, 1.0), (BRANCH_B, 0.1)):
        rewards[-1, :, :, branch] = pay
    emission = Hadamard(ExogenousBits(3, H + 1, n_bits, flip, sigma))
    return BlockMDP([1, 0, 0], P, rewards, emission=emission, name="ExogenousLock")


def noisy_chain(
    n_states: int = 20, n_bits: int = 512, horizon: int | None = None, seed: int = 0
) -> BlockMDP:
    """The combination lock of STEEL (Levine, Stone, Zhang 2025): a chain among noisy bits.

    A state has two actions: the right one, drawn for each state, leads to the next state of the
    chain, the wrong one back to state 0. The right action of the last state pays 1 and stays there,
    so V* = 1 with the horizon K = n_states, and one more with each level more.

    Observations: n_bits bits. K of them, at places drawn at random, are the state's one-hot code;
    every other one is a Markov chain of two states, whose two rates are drawn from U[0.1, 0.9].

    Parameters
    ----------
    n_states : K; theirs are 20, 30 and 40.
    n_bits : K at least.
    horizon : K at least, and K by default.
    seed : of the right actions, the places and the rates.

    Notes
    -----
    Theirs is one endless trajectory without rewards, which starts in a state drawn at random and
    from fair bits; the right action of the last state leads to state 0. Here episodes start in
    state 0, and bits from their stationary laws, as they would be found after a long time.

    Examples
    --------
    >>> m = noisy_chain(n_states=20)
    >>> m
    <NoisyChain: horizon 20, 20 states, 2 actions, <MarkovBits: 20 states at places of 512 bits>>
    >>> m.optimal_value()
    1.0
    """
    K = check_integer("n_states", n_states, 1)
    if check_integer("n_bits", n_bits, 1) < K:
        raise ValueError(f"n_bits must be n_states = {K} or more, got {n_bits!r}")
    H = K if horizon is None else check_integer("horizon", horizon, 1)
    if H < K:
        raise ValueError(
            f"horizon must be n_states = {K} or more, or nothing could be earned; got {horizon!r}"
        )
    actions, order, rise, fall = rng.children(streams.problem(seed), 0, 4)
    right = (rng.uniforms(np.array([actions]), K)[0] * 2).astype(np.int64)
    places = rng.uniforms(np.array([order]), n_bits)[0].argsort()[:K]
    rates = 0.1 + 0.8 * rng.uniforms(np.array([rise, fall]), n_bits)
    P, rewards = np.zeros((H, K, 2, K)), np.zeros((H, K, 2, 1))
    for s in range(K):
        P[:, s, right[s], min(s + 1, K - 1)] = 1.0
        P[:, s, 1 - right[s], 0] = 1.0
    rewards[:, -1, right[-1]] = 1.0
    emission = MarkovBits(places, *rates)
    return BlockMDP(np.eye(K)[0], P, rewards, emission=emission, name="NoisyChain")
