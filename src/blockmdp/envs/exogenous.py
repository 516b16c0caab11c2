"""Problems with exogenous noise: bits of the observation that change over time on their own."""

from __future__ import annotations

import numpy as np

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_size
from blockmdp.emissions import ExogenousBits, Hadamard, MarkovBits
from blockmdp.envs.rotated import comblock
from blockmdp.mdp import BlockMDP

__all__ = ["exogenous_lock", "noisy_chain", "tasid_lock"]

BRANCH_A, BRANCH_B, DEAD = 0, 1, 2


def exogenous_lock(
    horizon: int = 5,
    n_actions: int = 10,
    n_bits: int = 10,
    flip: float = 0.1,
    sigma: float = 0.1,
    seed: int = 0,
) -> BlockMDP:
    """ExogenousLock: the combination lock with exogenous bits of the PPE paper.

    The latent dynamics are deterministic. At level 0 one action enters branch a and another one
    enters branch b. Later, each branch has one good action per level, which stays in the branch.
    All other actions lead to the dead state. The last good action pays 1 in branch a and 0.1 in
    branch b, so V* = 1.

    An observation consists of the one-hot codes of state and level, and of the exogenous bits, plus
    Gaussian noise. It is padded with zeros to a power of two and multiplied by a Hadamard matrix.
    The bits are fair coins at level 0 and flip with probability `flip` in every step.

    Parameters
    ----------
    horizon : int, default=5
        Number of actions in an episode, H.
    n_actions : int, default=10
        Number of actions, at least 3.
    n_bits : int, default=10
        Number of exogenous bits.
    flip : float, default=0.1
        Probability that a bit flips in a step.
    sigma : float, default=0.1
        Standard deviation of the noise.
    seed : int, default=0
        Seed of the good actions. Those of the two branches differ at every level.

    Returns
    -------
    BlockMDP
        The lock.

    See Also
    --------
    noisy_chain : Another problem with exogenous noise.

    Notes
    -----
    States are 0 (branch a), 1 (branch b) and 2 (dead). As in the authors' code, the initial state
    has the code of branch a; the level tells them apart. Their code can also pay for the dead state
    and charge for live states. Both are 0 here.

    References
    ----------
    Yonathan Efroni, Dipendra Misra, Akshay Krishnamurthy, Alekh Agarwal and John Langford. Provably
    Filtering Exogenous Distractors using Multistep Inverse Dynamics. ICLR 2022.

    Examples
    --------
    >>> m = exogenous_lock(horizon=5, n_bits=10)
    >>> m.optimal_value(), m.emission.dim
    (1.0, 32)
    """
    H = check_integer("horizon", horizon, 1)
    A = check_integer("n_actions", n_actions, 3)
    check_size(H, 3, A)
    keys = rng.children(streams.problem(seed), 0, H)
    good = rng.uniforms(keys, A).argsort(axis=1)[:, :2]  # (H, 2): two different actions per level
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


def tasid_lock(
    horizon: int = 5,
    n_actions: int = 10,
    n_bits: int | None = None,
    sigma: float = 0.1,
    seed: int = 0,
) -> BlockMDP:
    """TasidLock: the combination lock of the TASID paper, with random bits mixed in.

    States, actions and rewards are those of `comblock`: one good action for each live state and
    level, which leads to either live state; all others lead to the dead state. The last good action
    pays 1, so V* = 1.

    An observation consists of the one-hot codes of state and level and of fair random bits, fresh
    ones at every level, plus Gaussian noise. It is padded with zeros to a power of two and
    multiplied by a Hadamard matrix.

    Parameters
    ----------
    horizon : int, default=5
        Number of actions in an episode, H. The paper has 5 to 40.
    n_actions : int, default=10
        Number of actions, at least 2.
    n_bits : int or None, default=None
        Number of random bits. None is H + 4, as in the paper.
    sigma : float, default=0.1
        Standard deviation of the noise, on all coordinates.
    seed : int, default=0
        Seed of the good actions.

    Returns
    -------
    BlockMDP
        The lock.

    See Also
    --------
    exogenous_lock : The random bits depend on those before.

    Notes
    -----
    TASID also gets a simulator of the latent dynamics, and learns only to decode. Here nothing is
    known. The dead state pays 0.1 with probability 0.5 on arrival, as in `comblock`.

    References
    ----------
    Yao Liu, Dipendra Misra, Miro Dudik and Robert Schapire. Provably Sample-Efficient RL with Side
    Information about Latent Dynamics. NeurIPS 2022.

    Examples
    --------
    >>> m = tasid_lock(horizon=40)
    >>> m.optimal_value(), m.emission.dim
    (1.0, 128)
    """
    m = comblock(horizon, n_actions, seed=seed)
    bits = horizon + 4 if n_bits is None else n_bits
    emission = Hadamard(ExogenousBits(3, horizon + 1, bits, 0.5, sigma))
    tables = (m.initial, m.transitions, m.rewards, m.reward_probability)
    return BlockMDP(*tables, emission=emission, name="TasidLock")


def noisy_chain(
    n_states: int = 20, n_bits: int = 512, horizon: int | None = None, seed: int = 0
) -> BlockMDP:
    """NoisyChain: the combination lock of the STEEL paper, a chain hidden among noisy bits.

    Every state has two actions. The right one, drawn for each state, leads to the next state of the
    chain. The wrong one leads back to state 0. In the last state, the right action pays 1 and
    stays. So V* = 1 with the horizon K = n_states, and each further level adds 1.

    An observation has n_bits bits. K of them, at random places, are the one-hot code of the state.
    Each other bit is a Markov chain with two states, whose two rates are drawn from U[0.1, 0.9].

    Parameters
    ----------
    n_states : int, default=20
        Number of states, K. The paper has 20, 30 and 40.
    n_bits : int, default=512
        Length of an observation, at least K.
    horizon : int or None, default=None
        Number of actions in an episode, at least K. None is K.
    seed : int, default=0
        Seed of the right actions, the places and the rates.

    Returns
    -------
    BlockMDP
        The chain.

    See Also
    --------
    exogenous_lock : Another problem with exogenous noise.

    Notes
    -----
    The paper has one endless trajectory without rewards. It starts in a random state and with fair
    bits, and the right action of the last state leads to state 0. Here episodes start in state 0,
    and the bits start from their stationary distributions, as after a long time.

    References
    ----------
    Alexander Levine, Peter Stone and Amy Zhang. Learning a Fast Mixing Exogenous Block MDP using a
    Single Trajectory. ICLR 2025.

    Examples
    --------
    >>> m = noisy_chain(n_states=20)
    >>> m
    <NoisyChain: horizon 20, 20 states, 2 actions, <MarkovBits: 20 states among 512 bits>>
    >>> m.optimal_value()
    1.0
    """
    K = check_integer("n_states", n_states, 1)
    n_bits = check_integer("n_bits", n_bits, 1)
    if n_bits < K:
        raise ValueError(f"n_bits must be at least n_states = {K}, got {n_bits!r}")
    H = K if horizon is None else check_integer("horizon", horizon, 1)
    check_size(H, K, 2)
    if H < K:
        raise ValueError(
            f"horizon must be at least n_states = {K}, or no reward is reachable, got {horizon!r}"
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
