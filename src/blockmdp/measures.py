"""How good a decoder and a policy are, measured against the latent states of a `BlockMDP`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.decoders import Decoder
from blockmdp.mdp import BlockMDP
from blockmdp.policy import Policy

__all__ = ["accuracy", "confusion", "value"]


def value(mdp: BlockMDP, policy: Policy, samples: int = 1000, seed: int = 0) -> float:
    """Compute the expected return of acting by `policy.act`.

    Exact for a policy on latent states. For a policy on observations, the probability of each
    action in a latent state is measured on fresh observations of it; given these probabilities, the
    value is computed exactly, without rollouts.

    Parameters
    ----------
    mdp : BlockMDP
        Problem to act in.
    policy : Policy
        Policy to evaluate.
    samples : int, default=1000
        Fresh observations of each latent state at each level.
    seed : int, default=0
        Seed of these observations.

    Returns
    -------
    float
        Expected return of an episode.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5)
    >>> value(m, bm.Policy(m.optimal_policy()))
    0.5
    """
    S, A = mdp.n_states, mdp.n_actions
    if policy.pi.shape[::2] != (mdp.horizon, A):
        H, _, actions = policy.pi.shape
        raise ValueError(
            f"the policy has horizon {H} and {actions} actions, but {mdp.name} has horizon "
            f"{mdp.horizon} and {A} actions"
        )
    on_states = np.empty((mdp.horizon, S, A))
    for h in range(mdp.horizon):
        if policy.decoder is None:
            actions = policy.act(np.arange(S), h)[:, None]
        else:
            actions = policy.act(_fresh(mdp, h, samples, seed), h).reshape(S, samples)
        on_states[h] = (actions[:, :, None] == np.arange(A)).mean(axis=1)
    return mdp.value(on_states)


def confusion(
    mdp: BlockMDP, decoder: Decoder, samples: int = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """Measure the share of each latent state's observations that a decoder gives each label.

    Parameters
    ----------
    mdp : BlockMDP
        Problem whose observations are decoded.
    decoder : Decoder
        Decoder to measure.
    samples : int, default=1000
        Fresh observations of each latent state at each level.
    seed : int, default=0
        Seed of these observations.

    Returns
    -------
    ndarray of shape (H + 1, S, n_labels)
        Rows sum to 1.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_gaussian(horizon=5)
    >>> agent = bm.OnlineURL().fit(m, episodes=200)
    >>> confusion(m, agent.decoder_).shape[:2]
    (6, 3)
    """
    C = np.empty((mdp.horizon + 1, mdp.n_states, decoder.n_labels))
    for h in range(mdp.horizon + 1):
        x = _fresh(mdp, h, samples, seed)
        labels = decoder.decode(np.full(len(x), h), x).reshape(mdp.n_states, samples)
        for s in range(mdp.n_states):
            C[h, s] = np.bincount(labels[s], minlength=decoder.n_labels) / samples
    return C


def accuracy(
    C: NDArray[np.float64], reachable: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Compute how well labels tell latent states apart, at each level.

    Each label is read as the state that it is most often given to. If there are as many labels as
    states, and no two states are merged, this is the best permutation. All reachable states count
    equally.

    Parameters
    ----------
    C : ndarray of shape (H + 1, S, n_labels)
        See `confusion`.
    reachable : ndarray of shape (H + 1, S) or None, default=None
        States to count; None counts all.

    Returns
    -------
    ndarray of shape (H + 1,)
        Between 0 and 1.

    Examples
    --------
    >>> C = np.array([[[0.9, 0.1], [0.2, 0.8]]])  # one level, two states, two labels
    >>> accuracy(C).round(2)
    array([0.85])
    """
    S = C.shape[1]
    weight = np.ones(C.shape[:2]) if reachable is None else reachable.astype(np.float64)
    weighted = C * weight[:, :, None]
    right = np.arange(S)[:, None] == weighted.argmax(axis=1)[:, None, :]
    return np.asarray((weighted * right).sum(axis=(1, 2)) / weight.sum(axis=1), np.float64)


def _fresh(mdp: BlockMDP, level: int, samples: int, seed: int) -> NDArray[Any]:
    """Fresh observations of every latent state at a level, (S * samples, dim), state by state."""
    return np.concatenate([mdp.sample(level, s, samples, seed) for s in range(mdp.n_states)])
