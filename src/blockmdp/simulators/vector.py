"""Many copies of a Gymnasium environment side by side: each step decodes all their observations at
once, which is what makes a slow decoder bearable on a black box.

Copies run through episodes one after the other, each at its own pace. A learner acts in all of them
by the tables it has at the moment and learns from each episode as it ends, so with n copies it lags
up to n - 1 episodes behind; with one copy it is the stepwise loop.
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
from blockmdp.decoders import Decoder, decode_mixture
from blockmdp.envs.gym import BlockMDPVectorEnv
from blockmdp.loop import choice_key
from blockmdp.policy import Policy, with_labels
from blockmdp.simulators.base import LearnerRun, Simulator, check_reward
from blockmdp.simulators.rollout import choose_one
from blockmdp.trajectories import Observations, Trajectories

__all__ = ["VectorSimulator"]

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]


@dataclass
class _Episode:
    """An episode under way in one copy."""

    number: int
    key: np.uint64
    labels: list[int] = field(default_factory=list)
    x: list[Any] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    early: bool = False

    @property
    def level(self) -> int:
        return len(self.actions)


class VectorSimulator(Simulator):
    """Any Gymnasium vector environment with discrete actions and bounded episodes.

    Episodes that copies begin when no more are wanted are counted as "unused".
    """

    def __init__(self, envs: VectorEnv, seed: int, horizon: int | None = None) -> None:
        super().__init__(seed)
        self.env, self.mdp = envs, None
        space = envs.single_action_space
        if not isinstance(space, gym.spaces.Discrete):
            raise ValueError(f"{envs} has the actions {space}; Discrete ones are needed")
        mode = envs.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.NEXT_STEP:
            raise ValueError(
                f"{envs} must reset its copies on the step after an episode's end "
                f"(autoreset_mode=AutoresetMode.NEXT_STEP), not by {mode}"
            )
        own = envs.unwrapped.mdp.horizon if isinstance(envs.unwrapped, BlockMDPVectorEnv) else None
        limit = horizon or own or getattr(envs.spec, "max_episode_steps", None)
        if not limit:
            raise ValueError(f"{envs} does not say how long an episode can be: give fit a horizon")
        self.horizon, self.n_actions = int(limit), int(space.n)
        self.observation_shape = tuple(envs.single_observation_space.shape or ())
        self._first_action = int(space.start)
        self._fresh = True

    def learn(
        self,
        run: LearnerRun,
        decoder: Decoder | None,
        n: int | None = None,
        *,
        record: bool = False,
    ) -> Observations | None:
        stop = len(run.returns) if n is None else min(run.k + n, len(run.returns))
        first, learner = run.k, run.learner
        levels: list[int] = []
        x: list[Any] = []

        def see(episodes: Sequence[_Episode], x: NDArray[Any], info: dict[str, Any]) -> Any:
            if decoder is None and "latent_state" not in info:
                raise ValueError(
                    f"{self.env} does not tell its latent state (info has no 'latent_state'); "
                    "learn on='observation'"
                )
            if decoder is None:
                return info["latent_state"]
            return decoder.decode(np.array([e.level for e in episodes]), x)

        def act(episode: _Episode) -> int:
            self.grow(run, max(decoder.n_labels if decoder else 0, episode.labels[-1] + 1))
            k, h = first + episode.number, episode.level
            key = choice_key(run.key, k, h)
            return int(learner.act(run.tables, k, h, episode.labels[-1], key))

        def end(episode: _Episode) -> None:
            self.grow(run, max(episode.labels) + 1)
            k = first + episode.number
            after = episode.labels[1:] if not episode.early else [*episode.labels[1:-1], -1]
            steps = zip(episode.labels, episode.actions, episode.rewards, after)
            for h, (s, a, r, s_next) in enumerate(steps):
                learner.update(run.tables, h, s, a, r, s_next)
            learner.plan(run.tables, k, choice_key(run.key, k, self.horizon))
            run.returns[k] = sum(episode.rewards)
            if record:
                levels.extend(range(len(episode.x)))
                x.extend(episode.x)

        keys = rng.children(run.key, first, stop - first)
        self._run(keys, see, act, end, "learn")
        run.k = stop
        return Observations(np.array(levels, np.int64), np.array(x)) if record else None

    def rollout(
        self, policies: Sequence[Policy], n: int, kind: str, *, keep_x: bool = True
    ) -> Trajectories:
        H, which = self.horizon, self._mixture(policies, n)
        actions, rewards = np.zeros((n, H), np.int64), np.zeros((n, H))
        lengths = np.zeros(n, np.int64)
        kept: list[Any] = [None] * n

        def see(episodes: Sequence[_Episode], x: NDArray[Any], info: dict[str, Any]) -> Any:
            labels = np.empty(len(x), np.int64)
            at = np.array([e.level for e in episodes])
            for h in np.unique(at):
                rows = np.flatnonzero(at == h)
                follows = which[[max(episodes[int(i)].number, 0) for i in rows]]
                labels[rows] = decode_mixture(
                    [p.decoder for p in policies], follows, int(h), x[rows]
                )
            return labels

        def act(episode: _Episode) -> int:
            h, label = episode.level, episode.labels[-1]
            pi = with_labels(policies[which[episode.number]].pi[h], label + 1)
            return int(choose_one(pi, label, episode.key, h))

        def end(episode: _Episode) -> None:
            i, h = episode.number, episode.level
            actions[i, :h], rewards[i, :h], lengths[i] = episode.actions, episode.rewards, h
            kept[i] = episode.x + [np.zeros_like(episode.x[0])] * (H - h)

        keys = rng.children(self._policy_key, self.episodes, n)
        self._run(keys, see, act, end, kind)
        shape = (n, H + 1 if keep_x else 0, *self.observation_shape)
        x = np.array(kept if keep_x else []).reshape(shape)
        return Trajectories(x, actions, rewards, lengths)

    def _run(
        self,
        keys: NDArray[np.uint64],
        see: Callable[[Sequence[_Episode], NDArray[Any], dict[str, Any]], Any],
        act: Callable[[_Episode], int],
        end: Callable[[_Episode], None],
        kind: str,
    ) -> None:
        """Run as many episodes as there are keys: label all observations by `see`, choose by `act`,
        hand each episode to `end` when it is over.
        """
        if len(keys) == 0:
            return
        begun, ended = 0, 0

        def begin() -> _Episode:
            nonlocal begun
            wanted = begun < len(keys)
            self.ledger[kind if wanted else "unused"] += 1
            episode = _Episode(begun if wanted else -1, keys[begun] if wanted else np.uint64(0))
            begun += wanted
            return episode

        x, info = self.env.reset(seed=self.seed if self._fresh else None)
        self._fresh = False
        episodes = [begin() for _ in range(self.env.num_envs)]
        self._note(episodes, x, see(episodes, x, info))
        over = np.zeros(self.env.num_envs, np.bool_)
        while ended < len(keys):
            actions = np.zeros(self.env.num_envs, np.int64)
            for i, episode in enumerate(episodes):
                if not over[i] and episode.number >= 0:
                    actions[i] = act(episode)
            x, r, terminated, truncated, info = self.env.step(actions + self._first_action)
            for i, episode in enumerate(episodes):
                if over[i]:  # this step has reset the copy, and done nothing else
                    episodes[i] = begin()
                else:
                    episode.actions.append(int(actions[i]))
                    check_reward(r[i], self.env)
                    episode.rewards.append(float(r[i]))
                    self._check_length(episode, terminated[i] or truncated[i])
                    episode.early = bool(terminated[i]) and episode.level < self.horizon
            self._note(episodes, x, see(episodes, x, info))
            over = (terminated | truncated) & ~over
            for episode, ends in zip(episodes, over):
                if ends and episode.number >= 0:
                    end(episode)
                    ended += 1

    def _note(self, episodes: Sequence[_Episode], x: NDArray[Any], labels: Any) -> None:
        for i, episode in enumerate(episodes):
            episode.labels.append(int(labels[i]))
            episode.x.append(np.array(x[i]))

    def _check_length(self, episode: _Episode, over: bool) -> None:
        if episode.level == self.horizon and not over:
            raise ValueError(
                f"an episode of {self.env} did not end after {self.horizon} steps: give fit a "
                "larger horizon"
            )
