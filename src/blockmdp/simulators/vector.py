"""The simulator of vector environments: many copies of a Gymnasium environment, side by side.

Each step decodes the observations of all copies at once, so a slow decoder costs less.

The copies run their episodes independently of each other. A learner acts in all copies with its
current tables, and learns from each episode when it ends. So with n copies it is up to n - 1
episodes behind. With one copy the result is that of `GymSimulator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from blockmdp import rng
from blockmdp.decoders import Decoder
from blockmdp.envs.gym import BlockMDPVectorEnv
from blockmdp.jit import interpreted
from blockmdp.loop import choice_key, replay
from blockmdp.policy import Policy
from blockmdp.rng import step
from blockmdp.simulators.base import (
    LearnerRun,
    Simulator,
    check_observations,
    check_reward,
    decode_rows,
    latent_states,
)
from blockmdp.simulators.rollout import choose_each
from blockmdp.trajectories import Observations, Trajectories

__all__ = ["VectorSimulator"]

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]


@dataclass
class _Episode:
    """An episode that one copy is running; its number is -1 if nobody needs it."""

    number: int
    key: np.uint64
    labels: list[int] = field(default_factory=list)
    x: list[Any] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    level: int = 0  # number of actions so far
    early: bool = False


class VectorSimulator(Simulator):
    """Steps through a Gymnasium vector environment with discrete actions and bounded episodes.

    A copy starts a new episode even if no more are needed; `ledger` counts it as "unused". There
    are no `snapshots`: the copies would have to wait for each other at every checkpoint.

    Parameters
    ----------
    envs : gymnasium.vector.VectorEnv
        The vector environment.
    seed : int
        Seed of the first reset and of all choices.
    horizon : int or None, default=None
        Longest episode. None takes it from the environment.
    """

    def __init__(self, envs: VectorEnv, seed: int, horizon: int | None = None) -> None:
        super().__init__(seed)
        self.env, self.mdp = envs, None
        space = envs.single_action_space
        if not isinstance(space, gym.spaces.Discrete):
            raise ValueError(f"actions of {envs} must be Discrete, got {space}")
        mode = envs.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.NEXT_STEP:
            raise ValueError(
                f"{envs} must have autoreset_mode=AutoresetMode.NEXT_STEP, which resets a copy in "
                f"the step after the end of an episode, got {mode}"
            )
        own = envs.unwrapped.mdp.horizon if isinstance(envs.unwrapped, BlockMDPVectorEnv) else None
        limit = horizon or own or getattr(envs.spec, "max_episode_steps", None)
        if not limit:
            raise ValueError(f"{envs} does not state its longest episode: set horizon in fit")
        self.horizon, self.n_actions, self.at_once = int(limit), int(space.n), int(envs.num_envs)
        self.observation_shape = tuple(envs.single_observation_space.shape or ())
        self._first_action = int(space.start)
        self._fresh = True

    def state(self) -> dict[str, Any]:
        raise ValueError(
            f"{self.env} cannot be restored from a checkpoint: its episodes run at the same time"
        )

    def learn(
        self,
        run: LearnerRun,
        decoder: Decoder | None,
        n: int | None = None,
        record: bool = False,
    ) -> Observations | None:
        if decoder is not None:
            check_observations(self.env.single_observation_space, self.env)
        stop = len(run.returns) if n is None else min(run.k + n, len(run.returns))
        first, learner = run.k, run.learner
        teach = replay if learner.is_compiled() else interpreted(replay)
        levels: list[int] = []
        x: list[Any] = []

        def label(episodes: Sequence[_Episode], x: NDArray[Any], info: dict[str, Any]) -> Any:
            if decoder is None:
                return latent_states(info, self.env)
            return decoder.decode(np.array([e.level for e in episodes]), x)

        def act(episodes: Sequence[_Episode]) -> list[int]:
            actions = []
            for episode in episodes:
                self.grow(run, max(decoder.n_labels if decoder else 0, episode.labels[-1] + 1))
                k, h = first + episode.number, episode.level
                key = np.uint64(step(episode.key, h))  # as `choice_key`, but faster
                actions.append(int(learner.act(run.tables, k, h, episode.labels[-1], key)))
            return actions

        def end(episode: _Episode) -> None:
            self.grow(run, max(episode.labels) + 1)
            k = first + episode.number
            length = episode.level
            H = length + 1 if episode.early else length  # `replay` tells the learner of the end
            actions, rewards = np.zeros((1, H), np.int64), np.zeros((1, H))
            actions[0, :length], rewards[0, :length] = episode.actions, episode.rewards
            labels = np.array([episode.labels], np.int32)
            teach(learner.update, run.tables, labels, actions, rewards, np.array([length]))
            learner.plan(run.tables, k, choice_key(run.key, k, self.horizon))
            run.returns[k] = sum(episode.rewards)
            if record:
                levels.extend(range(len(episode.x)))
                x.extend(episode.x)

        keys = rng.children(run.key, first, stop - first)
        self._run(keys, label, act, end, "learn")
        run.k = stop
        return Observations(np.array(levels, np.int64), np.array(x)) if record else None

    def rollout(
        self,
        policies: Sequence[Policy],
        n: int,
        kind: str,
        *,
        keep_x: bool = True,
        levels: int | None = None,
    ) -> Trajectories:
        check_observations(self.env.single_observation_space, self.env)
        H, which = self.horizon, self._mixture(policies, n)
        actions, rewards = np.zeros((n, H), np.int64), np.zeros((n, H))
        lengths = np.zeros(n, np.int64)
        kept: list[Any] = [None] * n

        def label(episodes: Sequence[_Episode], x: NDArray[Any], info: dict[str, Any]) -> Any:
            labels = np.empty(len(x), np.int64)
            levels, latent = np.array([e.level for e in episodes]), info.get("latent_state")
            if len(policies) == 1 and policies[0].decoder is not None:
                return policies[0].decoder.decode(levels, x)
            for h in np.unique(levels):
                rows = np.flatnonzero(levels == h)
                follows = which[[max(episodes[int(i)].number, 0) for i in rows]]
                states = None if latent is None else latent[rows]
                labels[rows] = decode_rows(policies, follows, int(h), x[rows], states)
            return labels

        def probabilities(episode: _Episode) -> NDArray[np.float64]:
            pi, label = policies[which[episode.number]].pi[episode.level], episode.labels[-1]
            return pi[label] if label < len(pi) else np.full(pi.shape[1], 1 / pi.shape[1])

        def act(episodes: Sequence[_Episode]) -> Any:
            keys, levels = [e.key for e in episodes], [e.level for e in episodes]
            pi = np.array([probabilities(episode) for episode in episodes])
            return choose_each(pi, np.array(keys), np.array(levels))

        def end(episode: _Episode) -> None:
            i, h = episode.number, episode.level
            actions[i, :h], rewards[i, :h], lengths[i] = episode.actions, episode.rewards, h
            kept[i] = episode.x + [np.zeros_like(episode.x[0])] * (H - h)

        keys = rng.children(self._policy_key, self.episodes, n)
        self._run(keys, label, act, end, kind)
        shape = (n, H + 1 if keep_x else 0, *self.observation_shape)
        x = np.array(kept if keep_x else []).reshape(shape)
        return Trajectories(x, actions, rewards, lengths)

    def _run(
        self,
        keys: NDArray[np.uint64],
        label: Callable[[Sequence[_Episode], NDArray[Any], dict[str, Any]], Any],
        act: Callable[[Sequence[_Episode]], Any],
        end: Callable[[_Episode], None],
        kind: str,
    ) -> None:
        """Run one episode for each key.

        Parameters
        ----------
        keys : ndarray of shape (n,)
            Keys of the choices of the episodes.
        label : function
            Labels the observations of all copies, given their episodes, x and info.
        act : function
            Chooses the next actions of the given episodes.
        end : function
            Is called with each episode that ends.
        kind : str
            Name under which `ledger` counts the episodes.
        """
        if len(keys) == 0:
            return
        begun, ended = 0, 0

        def begin() -> _Episode:
            """Start the next episode, or one that nobody needs if all have started."""
            nonlocal begun
            wanted = begun < len(keys)
            self.ledger[kind if wanted else "unused"] += 1
            episode = _Episode(begun if wanted else -1, keys[begun] if wanted else np.uint64(0))
            begun += wanted
            return episode

        x, info = self.env.reset(seed=self.seed if self._fresh else None)
        self._fresh = False
        episodes = [begin() for _ in range(self.env.num_envs)]
        self._note(episodes, x, label(episodes, x, info))
        over = np.zeros(self.env.num_envs, np.bool_)
        while ended < len(keys):
            actions = np.zeros(self.env.num_envs, np.int64)
            active = [i for i, e in enumerate(episodes) if not over[i] and e.number >= 0]
            if active:
                actions[active] = act([episodes[i] for i in active])
            x, r, terminated, truncated, info = self.env.step(actions + self._first_action)
            if not np.isfinite(r[~over]).all():
                check_reward(r[~over & ~np.isfinite(r)][0], self.env)
            for i, episode in enumerate(episodes):
                if over[i]:  # this step only resets the copy
                    episodes[i] = begin()
                else:
                    episode.actions.append(int(actions[i]))
                    episode.rewards.append(float(r[i]))
                    episode.level += 1
                    self._check_length(episode, terminated[i] or truncated[i])
                    episode.early = bool(terminated[i]) and episode.level < self.horizon
            self._note(episodes, x, label(episodes, x, info))
            over = (terminated | truncated) & ~over
            for episode, ends in zip(episodes, over):
                if ends and episode.number >= 0:
                    end(episode)
                    ended += 1

    def _note(self, episodes: Sequence[_Episode], x: NDArray[Any], labels: Any) -> None:
        """Append observations and labels to the episodes."""
        x = np.array(x)  # a copy: some environments reuse one array
        for episode, label, row in zip(episodes, np.asarray(labels).tolist(), x):
            episode.labels.append(label)
            episode.x.append(row)

    def _check_length(self, episode: _Episode, over: bool) -> None:
        """Raise ValueError if an episode is longer than the horizon."""
        if episode.level == self.horizon and not over:
            raise ValueError(
                f"an episode of {self.env} did not end after {self.horizon} steps: set a larger "
                "horizon in fit"
            )
