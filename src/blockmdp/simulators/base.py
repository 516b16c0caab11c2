"""The base class of simulators, which draw trajectories and count them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_finite, warn
from blockmdp.decoders import Decoder, TableDecoder, decode_mixture
from blockmdp.history import MANY, Snapshot, next_checkpoint
from blockmdp.learners.base import Learner
from blockmdp.mdp import BlockMDP
from blockmdp.policy import Policy, own_table
from blockmdp.trajectories import Observations, Trajectories

__all__ = [
    "LearnerRun",
    "Simulator",
    "check_observations",
    "check_reward",
    "decode_rows",
    "latent_states",
]


@dataclass
class LearnerRun:
    """A run of a learner: its tables, its returns so far and its key.

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
    """Base class of simulators: draws trajectories from a problem and counts them by kind.

    Parameters
    ----------
    seed : int
        Seed of the environment and of all choices, from 0 to 2**63 - 1.

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
    at_once : int
        Number of episodes that run at the same time.
    ledger : Counter
        Trajectories drawn so far, by kind.
    snapshots : list of Snapshot or None
        Where `learn` keeps the learner's policy at each checkpoint; None, the default, keeps none.
    digits : int
        How many checkpoints there are, see `blockmdp.history.next_checkpoint`.
    run : LearnerRun or None
        The run that was started last.
    labels : int
        Number of labels that a learner was last shown; 0 if it sees latent states.
    """

    mdp: BlockMDP | None
    horizon: int
    n_actions: int
    observation_shape: tuple[int, ...]
    at_once: int = 1

    def __init__(self, seed: int) -> None:
        self.seed = _check_seed(seed)
        self.ledger: Counter[str] = Counter()
        self.snapshots: list[Snapshot] | None = None
        self.digits = MANY
        self.run: LearnerRun | None = None
        self.labels = 0
        self._learners = 0
        self.policy_key = streams.policy(seed)
        self._mixture_key = streams.mixture(seed)

    @property
    def episodes(self) -> int:
        """Number of trajectories drawn so far, of all kinds."""
        return self.ledger.total()

    def start(self, learner: Learner, episodes: int) -> LearnerRun:
        """Start a run of a learner, with fresh tables.

        Parameters
        ----------
        learner : Learner
            The learner.
        episodes : int
            Number of episodes of the run.

        Returns
        -------
        LearnerRun
            The run, before its first episode.
        """
        self._check_scale(learner)
        S = self.mdp.n_states if self.mdp else 1
        tables = learner.tables(self.horizon, S, self.n_actions, episodes)
        key = streams.agent(self.seed, self._learners)
        self._learners += 1
        self.run = LearnerRun(learner, tables, np.zeros(episodes), S, key)
        return self.run

    def _check_scale(self, learner: Learner) -> None:
        """Warn if `v_max` of a learner is smaller than the optimal value."""
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
        record: bool = False,
    ) -> Observations | None:
        """Run learning episodes.

        Parameters
        ----------
        run : LearnerRun
            Run to continue; its tables and returns are changed in place.
        decoder : Decoder or None
            Maps observations to the labels that the learner sees. None shows the latent states.
        n : int or None, default=None
            Number of episodes. None runs all that remain.
        record : bool, default=False
            Whether to return the observations.

        Returns
        -------
        Observations or None
            All observations of these episodes, in any order, if `record` is set.
        """

    @abstractmethod
    def rollout(
        self,
        policies: Sequence[Policy],
        n: int,
        kind: str,
        *,
        keep_x: bool = True,
        levels: int | None = None,
    ) -> Trajectories:
        """Draw trajectories of policies.

        Parameters
        ----------
        policies : sequence of Policy
            Policies to follow. Each trajectory follows one of them, drawn uniformly. A policy
            without a decoder acts on latent states.
        n : int
            Number of trajectories.
        kind : str
            What the trajectories are for; `ledger` counts them under this name.
        keep_x : bool, default=True
            Whether to keep the observations.
        levels : int or None, default=None
            Number of levels whose observations are needed, from level 0 on; None for all. The
            policies must not depend on later observations. A simulator may leave them out.

        Returns
        -------
        Trajectories
            The n trajectories.
        """

    def state(self) -> dict[str, Any]:
        """Return what the next trajectories depend on, for a checkpoint.

        Returns
        -------
        dict
            Argument of `restore`.
        """
        own = {name: getattr(self, name) for name in ("labels", "snapshots", "run", "_learners")}
        return own | {"ledger": dict(self.ledger)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from where another simulator of the same problem and seed was.

        Parameters
        ----------
        state : dict
            What its method `state` returned.
        """
        for name, value in state.items():
            setattr(self, name, Counter(value) if name == "ledger" else value)

    def world(self) -> Any:
        """Return the random state of an environment that others may use too; None if it has none.

        Returns
        -------
        object
            Argument of `set_world`.
        """
        return None

    def set_world(self, world: Any) -> None:
        """Bring an environment back to a random state.

        Parameters
        ----------
        world : object
            What `world` returned.
        """
        assert world is None

    def _mixture(self, policies: Sequence[Policy], n: int) -> NDArray[np.int64]:
        """Draw which policy each of the next n trajectories follows, (n,)."""
        if len(policies) == 1:
            return np.zeros(n, np.int64)
        keys = rng.children(self._mixture_key, self.episodes, n)
        return (rng.uniforms(keys, 1)[:, 0] * len(policies)).astype(np.int64)

    def is_due(self, run: LearnerRun) -> bool:
        """Whether to `keep` the policy of a learner now.

        Parameters
        ----------
        run : LearnerRun
            Run after an episode.

        Returns
        -------
        bool
            True at a checkpoint before the end of the run, if there are `snapshots`.
        """
        if self.snapshots is None or run.k == len(run.returns):
            return False
        return next_checkpoint(run.k - 1, self.digits) == run.k

    def keep(self, run: LearnerRun, decoder: Decoder | None) -> None:
        """Append the policy of a learner to `snapshots`.

        Parameters
        ----------
        run : LearnerRun
            Run whose policy is kept.
        decoder : Decoder or None
            Maps observations to the labels that the learner sees; None if it sees latent states.
        """
        assert self.snapshots is not None
        pi = own_table(run.learner.policy(run.tables))
        shape = () if decoder is None else self.observation_shape
        if isinstance(decoder, TableDecoder):
            decoder = decoder.frozen()
        policy = Policy(pi, decoder, shape)
        self.snapshots.append(Snapshot(self.ledger["learn"], self.episodes, policy))

    def grow(self, run: LearnerRun, labels: int) -> None:
        """Enlarge the tables for more labels, and keep what was learnt.

        Parameters
        ----------
        run : LearnerRun
            Run whose tables grow, if they are too small.
        labels : int
            Number of labels.
        """
        if self._reserve(run, labels):
            run.tables = run.learner.grow(run.tables, *self._table_sizes(run))

    def restart(self, run: LearnerRun, labels: int) -> None:
        """Replace the tables by fresh ones.

        Parameters
        ----------
        run : LearnerRun
            Run whose tables are replaced.
        labels : int
            Number of labels that the new tables must hold.
        """
        self._reserve(run, labels)
        run.tables = run.learner.tables(*self._table_sizes(run))

    def _reserve(self, run: LearnerRun, labels: int) -> bool:
        """Plan for at least `labels` labels; return whether the tables are too small."""
        self.labels = labels
        if labels <= run.n_labels:
            return False
        run.n_labels = max(labels, 2 * run.n_labels)
        return True

    def _table_sizes(self, run: LearnerRun) -> tuple[int, int, int, int]:
        """Return the arguments of `Learner.tables`."""
        return self.horizon, run.n_labels, self.n_actions, len(run.returns)


def decode_rows(
    policies: Sequence[Policy],
    which: NDArray[np.int64],
    level: int,
    x: NDArray[Any],
    latent: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Label the observations of n trajectories at a level.

    Parameters
    ----------
    policies : sequence of Policy
        Policies; those without a decoder take the latent states as labels.
    which : ndarray of shape (n,)
        Policy that each trajectory follows.
    level : int
        Level of the observations.
    x : ndarray of shape (n, ...)
        Observations.
    latent : ndarray of shape (n,) or None
        Latent states; None if they are not known.

    Returns
    -------
    ndarray of shape (n,)
        Labels.
    """
    decoders = [policy.decoder for policy in policies if policy.decoder is not None]
    if len(decoders) == len(policies):
        return np.asarray(decode_mixture(decoders, which, level, x), np.int64)
    if latent is None:
        raise ValueError(
            "a policy without a decoder acts on latent states, but the environment does not report "
            "them: info has no 'latent_state'"
        )
    labels = np.array(latent, np.int64)
    for i, policy in enumerate(policies):
        rows = np.flatnonzero(which == i)
        if policy.decoder is not None:
            labels[rows] = policy.decoder.decode(np.full(len(rows), level), x[rows])
    return labels


def latent_states(info: dict[str, Any], env: Any) -> Any:
    """Return the latent states that an environment reports; raise ValueError if there are none, or
    not one of each copy, or if they are not integers >= 0.
    """
    if "latent_state" not in info or not np.all(info.get("_latent_state", True)):
        raise ValueError(
            f"{env} does not report its latent state: info has no 'latent_state'. Learn from "
            "observations instead"
        )
    states = np.asarray(info["latent_state"])
    if states.dtype.kind not in "ui" or np.count_nonzero(states < 0):
        raise ValueError(f"latent states must be integers >= 0, but {env} reports {states}")
    return states


def check_observations(space: gym.Space[Any], env: Any) -> None:
    """Raise ValueError for observations that are not arrays, which no decoder can read."""
    if space.shape is None:
        raise ValueError(
            f"observations of {env} are a {type(space).__name__}, not an array: wrap it with "
            "gymnasium.wrappers.FlattenObservation, or with a wrapper that selects one array"
        )


def check_observation(x: Any, shape: tuple[int, ...], env: Any) -> NDArray[Any]:
    """Return an observation as an array; raise ValueError if it is not one of finite numbers, or
    has another size than the space of an environment says.
    """
    try:
        array = np.asarray(x)
    except ValueError:  # rows of different lengths
        raise ValueError(f"observations must be arrays, but {env} returned {x!r}") from None
    check_finite(array)
    if array.size != math.prod(shape):
        raise ValueError(
            f"{env} returned an observation of shape {array.shape}, but its observation space has "
            f"shape {shape}"
        )
    return array


def check_reward(r: Any, env: Any) -> None:
    """Raise ValueError for a reward that is not a finite number."""
    try:
        is_finite = math.isfinite(r)
    except TypeError:
        raise ValueError(f"rewards must be numbers, but {env} returned {r!r}") from None
    if not is_finite:
        raise ValueError(f"rewards must be finite, but {env} returned {r}")


def first_action(space: gym.spaces.Discrete, env: Any) -> int:
    """Return what an environment calls its first action, and warn if that is not 0."""
    first = int(space.start)
    if first:
        warn(
            f"{env} counts its actions from {first}, but `act` from 0: to play, add {first} to "
            "what `act` returns"
        )
    return first


def _check_seed(seed: int) -> int:
    """Return the seed as an int; raise ValueError if it is not one from 0 to 2**63 - 1."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2**63 - 1, got {seed!r}")
    return int(seed)
