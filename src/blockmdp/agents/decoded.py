"""What agents that decode observations have in common: acting, looking inside, saving."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.decoder import Decoder
from blockmdp.mdp import BlockMDP
from blockmdp.saving import read_policy, write_policy
from blockmdp.simulators.base import padded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DecodedPolicy", "DecodingAgent", "accuracy", "confusion", "decoded_value", "load"]


class DecodedPolicy:
    """pi o f: decode the observation, then act by a table.

    Attributes
    ----------
    decoder_ : f.
    policy_ : pi, (H, labels, A) probabilities.
    observation_shape_ : the shape of an observation.
    """

    decoder_: Decoder
    policy_: NDArray[np.float64]
    observation_shape_: tuple[int, ...]

    @property
    def horizon(self) -> int:
        """H, the number of actions in an episode."""
        return int(self.policy_.shape[0])

    def decode(self, x: Any, level: int) -> Any:
        """The label of an observation at a level (from 0), or the labels (n,) of n observations."""
        if not 0 <= level <= self.horizon:
            raise ValueError(f"level must be from 0 to {self.horizon}, got {level!r}")
        x, shape = np.asarray(x), self.observation_shape_
        if x.shape == shape:
            return int(self.decoder_.decode(np.array([level]), x[None])[0])
        if x.shape[1:] != shape or x.ndim == 0:
            raise ValueError(
                f"an observation has the shape {shape}, and n of them {('n', *shape)}: "
                f"got {x.shape}".replace("'", "")
            )
        return self.decoder_.decode(np.full(len(x), level), x)

    def act(self, x: Any, level: int) -> Any:
        """The action at a level (from 0), given an observation; or the actions (n,) for n.

        The likeliest action of `policy_`, the first of several; so too for a label that came up
        after the learner had its last episode, of which it knows nothing.
        """
        if level == self.horizon:
            raise ValueError(f"level {level} is the end of an episode: there is nothing to do")
        labels = np.asarray(self.decode(x, level))
        greedy = self._greedy[level]
        actions = np.where(labels < len(greedy), greedy[np.minimum(labels, len(greedy) - 1)], 0)
        return int(actions) if actions.ndim == 0 else actions

    def save(self, path: str | Path) -> None:
        """Write the policy to a file that `blockmdp.load` reads; no pickle is involved."""
        write_policy(Path(path), self.policy_, self.decoder_, self.observation_shape_)

    @cached_property
    def _greedy(self) -> NDArray[np.int64]:
        return np.asarray(self.policy_.argmax(axis=2), np.int64)


class _Loaded(DecodedPolicy):
    """A policy from a file."""

    def __init__(
        self, policy: NDArray[np.float64], decoder: Decoder, shape: tuple[int, ...]
    ) -> None:
        self.policy_, self.decoder_, self.observation_shape_ = policy, decoder, shape

    def __repr__(self) -> str:
        H, labels, A = self.policy_.shape
        return f"<policy: horizon {H}, {labels} labels, {A} actions>"


def load(path: str | Path, trusted: Sequence[str] = ()) -> DecodedPolicy:
    """The policy that an agent's `save` wrote: it can `act` and `decode`.

    Parameters
    ----------
    trusted : "module.Class" of estimators of your own that the decoder may be made of; those of
        scikit-learn are known.
    """
    return _Loaded(*read_policy(Path(path), trusted))


def confusion(mdp: BlockMDP, f: Decoder, samples: int = 1000, seed: int = 0) -> NDArray[np.float64]:
    """The share of each latent state's observations that a decoder gives each label.

    Measured on fresh observations of every state at every level. (H + 1, S, labels)
    """
    C = np.empty((mdp.horizon + 1, mdp.n_states, f.n_labels))
    for h in range(mdp.horizon + 1):
        x = np.concatenate([mdp.sample(h, s, samples, seed) for s in range(mdp.n_states)])
        labels = f.decode(np.full(len(x), h), x).reshape(mdp.n_states, samples)
        for s in range(mdp.n_states):
            C[h, s] = np.bincount(labels[s], minlength=f.n_labels) / samples
    return C


def accuracy(C: NDArray[np.float64], reachable: NDArray[np.bool_] | None = None) -> Any:
    """How well labels tell latent states apart, at each level, (H + 1,).

    Each label is read as the state that it is most often given to (with as many labels as states
    and no two states merged: the best permutation). States count alike; those that cannot be
    reached do not count.

    Parameters
    ----------
    C : (H + 1, S, labels), see `confusion`.
    reachable : (H + 1, S)
    """
    S = C.shape[1]
    weight = np.ones(C.shape[:2]) if reachable is None else reachable.astype(np.float64)
    weighted = C * weight[:, :, None]
    right = np.arange(S)[:, None] == weighted.argmax(axis=1)[:, None, :]
    return (weighted * right).sum(axis=(1, 2)) / weight.sum(axis=1)


def decoded_value(mdp: BlockMDP, pi: NDArray[np.float64], C: NDArray[np.float64]) -> float:
    """The expected return of pi o f: given the latent state, labels are drawn from f's confusion.

    Exact for the confusion given: dynamic programming, no rollouts. pi: (H, labels, A).
    """
    L = C.shape[2]
    pi = np.stack([padded(p, L) for p in pi])
    return mdp.value(np.einsum("hsl,hla->hsa", C[:-1], pi[:, :L]))


class DecodingAgent(DecodedPolicy):
    """An agent that has learnt a decoder and a policy on its labels from a problem."""

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is missing."""
        fitted = "policy_" in self.__dict__
        hint = "" if fitted else ": it is not fitted yet, call fit first"
        raise AttributeError(f"{type(self).__name__} has no {name}{hint}")

    returns_: NDArray[np.float64]
    trajectories_: NDArray[np.int64]
    ledger_: dict[str, int]
    mdp_: BlockMDP | None
    seed_: int

    def value(self, samples: int = 1000, *, on: BlockMDP | None = None) -> float:
        """The expected return of the agent's policy; needs a problem whose BlockMDP is known.

        Parameters
        ----------
        samples : fresh observations of each state at each level, to measure the decoder by.
        on : a problem to measure it on; by default the one that was learnt. It may show its states
            otherwise: by images that were held out, say.
        """
        mdp = self._known("value") if on is None else on
        return decoded_value(mdp, self.policy_, self.confusion(samples, on=on))

    def confusion(self, samples: int = 1000, *, on: BlockMDP | None = None) -> NDArray[np.float64]:
        """The share of each latent state's observations given each label, (H + 1, S, labels)."""
        mdp = self._known("confusion") if on is None else on
        return confusion(mdp, self.decoder_, samples, getattr(self, "seed_", 0))

    def accuracy(self, samples: int = 1000) -> NDArray[np.float64]:
        """How well the labels tell the latent states of each level apart, (H + 1,)."""
        reachable = self._known("accuracy").reachability() > 0
        return np.asarray(accuracy(self.confusion(samples), reachable), np.float64)

    def plot(self) -> Figure:
        """A picture of what the agent did: its returns, its decoder and how that was trained."""
        from blockmdp.agents.picture import picture  # here, since matplotlib is slow to import

        return picture(self)

    def _known(self, what: str) -> BlockMDP:
        if getattr(self, "mdp_", None) is None:
            why = (
                "this agent was fitted to a black box"
                if hasattr(self, "mdp_")
                else "call fit first"
            )
            raise ValueError(f"{what} needs the latent states of a BlockMDP: {why}")
        assert self.mdp_ is not None
        return self.mdp_
