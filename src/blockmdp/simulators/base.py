"""The base class of simulators: they draw trajectories, for learners or by policies, and count
them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import warn
from blockmdp.decoders import Decoder
from blockmdp.learners.base import Learner
from blockmdp.mdp import BlockMDP
from blockmdp.policy import Policy
from blockmdp.trajectories import Observations, Trajectories

__all__ = ["LearnerRun", "Simulator", "check_reward"]


@dataclass
class LearnerRun:
    """A learner at work.

    Attributes
    ----------
    learner : Learner
        The learner, which holds its hyperparameters.
    tables : tuple
        The learner's tables.
    returns : ndarray of shape (episodes,)
        Return of each episode; filled up to episode k.
    n_labels : int
        Number of labels that the tables have room for.
    key : np.uint64
        Key of the learner's choices, see `blockmdp.loop.choice_key`.
    k : int, default=0
        Number of episodes so far.
    """

    learner: Learner
    tables: Any
    returns: NDArray[np.float64]
    n_labels: int
    key: np.uint64
    k: int = 0


class Simulator(ABC):
    """Draws trajectories from a problem and counts them by kind.

    Attributes
    ----------
    mdp : BlockMDP or None
        The Block MDP behind the problem; None for a black box.
    horizon : int
        Longest episode, H.
    n_actions : int
        Number of actions, A.
    observation_shape : tuple of int
        Shape of one observation.
    ledger : Counter
        Trajectories drawn so far, by kind.
    """

    mdp: BlockMDP | None
    horizon: int
    n_actions: int
    observation_shape: tuple[int, ...]

    def __init__(self, seed: int) -> None:
        self.seed = _check_seed(seed)
        self.ledger: Counter[str] = Counter()
        self._learners = 0
        self._policy_key = streams.policy(seed)
        self._mixture_key = streams.mixture(seed)

    @property
    def episodes(self) -> int:
        """Number of trajectories drawn so far, of all kinds."""
        return self.ledger.total()

    def start(self, learner: Learner, episodes: int) -> LearnerRun:
        """Make fresh tables for a run of that many episodes."""
        self._check_scale(learner)
        S = self.mdp.n_states if self.mdp else 1
        tables = learner.tables(self.horizon, S, self.n_actions, episodes)
        key = streams.agent(self.seed, self._learners)
        self._learners += 1
        return LearnerRun(learner, tables, np.zeros(episodes), S, key)

    def _check_scale(self, learner: Learner) -> None:
        """Warn if an optimistic learner expects less than the problem can pay."""
        v_max = getattr(learner, "v_max", None)
        if v_max is None or self.mdp is None:
            return
        most = self.mdp.optimal_value()
        if most > v_max + 1e-9:
            warn(
                f"{type(learner).__name__} has v_max={v_max:g}, but the optimal value of "
                f"{self.mdp.name} is {most:.4g}: it may stop exploring too early. Set "
                f"v_max={math.ceil(most * 1000) / 1000:g} or more"
            )

    @abstractmethod
    def learn(
        self,
        run: LearnerRun,
        decoder: Decoder | None,
        n: int | None = None,
        *,
        record: bool = False,
    ) -> Observations | None:
        """Run n more learning episodes (all that remain if None).

        The learner sees the decoder's labels, or the latent states if there is no decoder. With
        `record`, return the observations that were met.
        """

    @abstractmethod
    def rollout(
        self, policies: Sequence[Policy], n: int, kind: str, *, keep_x: bool = True
    ) -> Trajectories:
        """Draw n trajectories, each by one of the policies, drawn uniformly; count them as
        `kind`.
        """

    def _mixture(self, policies: Sequence[Policy], n: int) -> NDArray[np.int64]:
        """Return which policy each of the next n trajectories follows, (n,)."""
        if len(policies) == 1:
            return np.zeros(n, np.int64)
        keys = rng.children(self._mixture_key, self.episodes, n)
        return (rng.uniforms(keys, 1)[:, 0] * len(policies)).astype(np.int64)

    def grow(self, run: LearnerRun, labels: int) -> None:
        """Make room for more labels in the tables, and keep what they hold."""
        if self._reserve(run, labels):
            run.tables = run.learner.grow(run.tables, *self._table_sizes(run))

    def restart(self, run: LearnerRun, labels: int) -> None:
        """Replace the tables by fresh ones with room for that many labels."""
        self._reserve(run, labels)
        run.tables = run.learner.tables(*self._table_sizes(run))

    def _reserve(self, run: LearnerRun, labels: int) -> bool:
        if labels <= run.n_labels:
            return False
        episodes = len(run.returns)  # each shows a level one observation, so few more are met
        run.n_labels = max(labels, min(2 * run.n_labels, episodes + episodes // 4))
        return True

    def _table_sizes(self, run: LearnerRun) -> tuple[int, int, int, int]:
        return self.horizon, run.n_labels, self.n_actions, len(run.returns)


def check_reward(r: Any, env: Any) -> None:
    """Raise ValueError for a reward that is not a finite number."""
    if not math.isfinite(r):
        raise ValueError(f"{env} paid a reward of {r}: rewards must be finite numbers")


def _check_seed(seed: int) -> int:
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2**63 - 1, got {seed!r}")
    return int(seed)
