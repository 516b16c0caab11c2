"""What every simulator has: it draws trajectories, for learners or by policies, and counts them."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.learners.base import Learner
from blockmdp.mdp import BlockMDP
from blockmdp.sights import Sight

__all__ = [
    "Learning",
    "Observations",
    "Policy",
    "Simulator",
    "Trajectories",
    "check_reward",
    "padded",
]


@dataclass
class Learning:
    """A learner at work: its tables, the episode k it has come to, and the return of each episode
    so far.
    """

    learner: Learner
    tables: Any
    returns: NDArray[np.float64]
    n_labels: int
    """Labels that the tables have room for."""
    key: np.uint64
    """What its choices are drawn from: `step(child(key, k), h)`."""
    k: int = 0


@dataclass(frozen=True, eq=False)
class Policy:
    """pi o f: what to do where the sight f shows a label. pi: (H, labels, A) probabilities."""

    pi: NDArray[np.float64]
    f: Sight


@dataclass(frozen=True, eq=False)
class Observations:
    """Observations x (n, ...) and the level (n,) at which each was made, in no particular order."""

    levels: NDArray[np.int64]
    x: NDArray[Any]

    def __len__(self) -> int:
        return len(self.levels)

    def __add__(self, other: Observations) -> Observations:
        return Observations(
            np.concatenate([self.levels, other.levels]), np.concatenate([self.x, other.x])
        )


@dataclass(frozen=True, eq=False)
class Trajectories:
    """n trajectories, padded to H steps where an episode ended early.

    Attributes
    ----------
    x : (n, H + 1, ...) observations; empty where none were asked for.
    actions : (n, H)
    rewards : (n, H)
    lengths : (n,) steps taken.
    """

    x: NDArray[Any]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def returns(self) -> NDArray[np.float64]:
        """The return of each, (n,)."""
        return np.asarray(self.rewards.sum(axis=1), np.float64)

    @property
    def observations(self) -> Observations:
        """All observations, with their levels."""
        made = np.arange(self.x.shape[1]) <= self.lengths[:, None]
        return Observations(np.nonzero(made)[1], self.x[made])


class Simulator(ABC):
    """Draws trajectories from a problem and counts them by kind.

    Attributes
    ----------
    mdp : the BlockMDP behind the problem, or None where there is none to be known.
    horizon, n_actions : int
    observation_shape : of one observation.
    ledger : trajectories drawn so far, by kind.
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
        """Trajectories drawn so far, of all kinds."""
        return self.ledger.total()

    def start(self, learner: Learner, episodes: int) -> Learning:
        """Fresh tables for a run of that many episodes."""
        self._check_scale(learner)
        S = self.mdp.n_states if self.mdp else 1
        tables = learner.tables(self.horizon, S, self.n_actions, episodes)
        key = streams.agent(self.seed, self._learners)
        self._learners += 1
        return Learning(learner, tables, np.zeros(episodes), S, key)

    def _check_scale(self, learner: Learner) -> None:
        """Warn of an optimist who does not know how much there is to be had."""
        v_max = getattr(learner, "v_max", None)
        if v_max is None or self.mdp is None:
            return
        most = self.mdp.optimal_value()
        if most > v_max + 1e-9:
            warnings.warn(
                f"{type(learner).__name__} has v_max={v_max:g}, but an episode of {self.mdp.name} "
                f"can be expected to pay {most:.4g}: it may stop looking too early. Give it "
                f"v_max={math.ceil(most * 1000) / 1000:g} or more",
                stacklevel=4,
            )

    @abstractmethod
    def learn(
        self, run: Learning, sight: Sight | None, n: int | None = None, *, record: bool = False
    ) -> Observations | None:
        """Let a learner have n more episodes (None: all that remain) with what `sight` shows.

        Where `record`, the observations that it met are returned.
        """

    @abstractmethod
    def rollout(
        self, policies: Sequence[Policy], n: int, kind: str, *, keep_x: bool = True
    ) -> Trajectories:
        """n trajectories, each by one of the policies, drawn uniformly; counted as `kind`."""

    def _mixture(self, policies: Sequence[Policy], n: int) -> NDArray[np.int64]:
        """Which policy each of the next n trajectories follows, (n,)."""
        if len(policies) == 1:
            return np.zeros(n, np.int64)
        keys = rng.children(self._mixture_key, self.episodes, n)
        return (rng.uniforms(keys, 1)[:, 0] * len(policies)).astype(np.int64)

    def make_room(self, run: Learning, labels: int, *, anew: bool = False) -> None:
        """Let the tables have room for so many labels; where `anew`, make them afresh."""
        grows = labels > run.n_labels
        if grows:
            episodes = len(run.returns)  # each shows a level one observation, so few more are met
            run.n_labels = max(labels, min(2 * run.n_labels, episodes + episodes // 4))
        if grows or anew:
            shape = (self.horizon, run.n_labels, self.n_actions, len(run.returns))
            learner = run.learner
            run.tables = learner.tables(*shape) if anew else learner.grow(run.tables, *shape)


def check_reward(r: Any, env: Any) -> None:
    """Refuse a reward that nothing can be learnt from."""
    if not math.isfinite(r):
        raise ValueError(f"{env} paid a reward of {r}: rewards must be finite numbers")


def padded(pi: NDArray[np.float64], labels: int) -> NDArray[np.float64]:
    """pi (L, A) with room for so many labels, of which the new ones act at random."""
    new = labels - len(pi)
    return np.pad(pi, ((0, new), (0, 0)), constant_values=1 / pi.shape[1]) if new > 0 else pi


def _check_seed(seed: int) -> int:
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number from 0 to 2**63 - 1, got {seed!r}")
    return int(seed)
