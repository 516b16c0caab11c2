"""The simulator of Gymnasium environments, one step at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from blockmdp import rng
from blockmdp.decoders import Decoder
from blockmdp.envs.gym import BlockMDPEnv, horizon_of, mdp_of
from blockmdp.loop import choice_key
from blockmdp.policy import Policy, with_labels
from blockmdp.simulators.base import (
    LearnerRun,
    Simulator,
    check_observation,
    check_observations,
    check_reward,
    first_action,
    latent_states,
)
from blockmdp.simulators.rollout import choose_one
from blockmdp.trajectories import Observations, Trajectories

__all__ = ["GymSimulator"]


class GymSimulator(Simulator):
    """Steps through a Gymnasium environment with discrete actions and bounded episodes.

    Parameters
    ----------
    env : gymnasium.Env
        The environment.
    seed : int
        Seed of the first reset and of all choices.
    horizon : int or None, default=None
        Longest episode. None takes it from the environment.
    """

    def __init__(self, env: gym.Env[Any, Any], seed: int, horizon: int | None = None) -> None:
        super().__init__(seed)
        self.env = env
        self.mdp = mdp_of(env)
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise ValueError(f"actions of {env} must be Discrete, got {env.action_space}")
        self.n_actions = int(env.action_space.n)
        self.horizon = horizon or horizon_of(env)
        self.observation_shape = tuple(env.observation_space.shape or ())
        self._first_action = first_action(env.action_space, env)
        self._fresh = True

    def state(self) -> dict[str, Any]:
        if isinstance(self.env.unwrapped, BlockMDPEnv):
            raise ValueError(
                f"{self.env} cannot be restored from a checkpoint: use engine='auto', and give fit "
                "the Block MDP itself"
            )
        return super().state() | {"random": self.world()}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore({name: value for name, value in state.items() if name != "random"})
        self._reset()
        self.set_world(state["random"])

    def world(self) -> Any:
        if isinstance(self.env.unwrapped, BlockMDPEnv):
            return None
        return self.env.unwrapped.np_random.bit_generator.state

    def set_world(self, world: Any) -> None:
        if world is not None:
            self.env.unwrapped.np_random.bit_generator.state = world

    def learn(
        self,
        run: LearnerRun,
        decoder: Decoder | None,
        n: int | None = None,
        record: bool = False,
    ) -> Observations | None:
        if decoder is not None:
            check_observations(self.env.observation_space, self.env)
        stop = len(run.returns) if n is None else min(run.k + n, len(run.returns))
        learner, seen = run.learner, _Seen()
        while run.k < stop:
            x, info = self._reset()
            s = self._label(run, decoder, 0, x, info)
            total, h, done = 0.0, 0, False
            while not done:
                self._check_level(h)
                if record:
                    seen.add(h, x)
                key = choice_key(run.key, run.k, h)
                a = int(learner.act(run.tables, run.k, h, s, key))
                if not 0 <= a < self.n_actions:
                    raise ValueError("act of the learner returned an action that does not exist")
                x, r, done, early, info = self._step(h, a)
                s_next = -1 if early else self._label(run, decoder, h + 1, x, info)
                learner.update(run.tables, h, s, a, r, s_next)
                total += r
                s, h = s_next, h + 1
            if record:
                seen.add(h, x)
            learner.plan(run.tables, run.k, choice_key(run.key, run.k, self.horizon))
            run.returns[run.k] = total
            run.k += 1
            self.ledger["learn"] += 1
            if self.is_due(run):
                self.keep(run, decoder)
        return seen.observations() if record else None

    def rollout(
        self,
        policies: Sequence[Policy],
        n: int,
        kind: str,
        *,
        keep_x: bool = True,
        levels: int | None = None,
    ) -> Trajectories:
        check_observations(self.env.observation_space, self.env)
        H = self.horizon
        which = self._mixture(policies, n)
        c = rng.children(self.policy_key, self.episodes, n)
        first = self.episodes
        x: list[list[Any]] = []
        actions, rewards = np.zeros((n, H), np.int64), np.zeros((n, H))
        lengths = np.zeros(n, np.int64)
        for i in range(n):
            policy = policies[which[i]]
            xh, info = self._reset()
            rows, h, done = [self._array(xh).copy()], 0, False
            while not done:
                self._check_level(h)
                label = self._decode(policy.decoder, h, xh, info)
                pi = with_labels(policy.pi[h], label + 1)
                actions[i, h] = choose_one(pi, label, c[i], h)
                xh, rewards[i, h], done, _, info = self._step(h, int(actions[i, h]))
                rows.append(self._array(xh).copy())  # some environments reuse one array
                h += 1
            lengths[i] = h
            if keep_x:
                x.append(rows + [np.zeros_like(rows[0])] * (H - h))
            self.ledger[kind] += 1
        assert self.episodes == first + n
        shape = (n, H + 1 if keep_x else 0, *self.observation_shape)
        return Trajectories(np.array(x).reshape(shape), actions, rewards, lengths)

    def _step(self, h: int, a: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take action a; return observation, reward, whether the episode is over, early, info."""
        x, r, terminated, truncated, info = self.env.step(a + self._first_action)
        check_reward(r, self.env)
        early = bool(terminated) and h + 1 < self.horizon
        return x, float(r), bool(terminated or truncated), early, info

    def _check_level(self, h: int) -> None:
        """Raise ValueError if an episode is longer than the horizon."""
        if h == self.horizon:
            raise ValueError(
                f"an episode of {self.env} did not end after {h} steps: set a larger horizon in "
                "fit, or wrap the environment with gymnasium.wrappers.TimeLimit"
            )

    def _reset(self) -> tuple[Any, dict[str, Any]]:
        """Start an episode; the first one sets the seed."""
        seed = self.seed if self._fresh else None
        self._fresh = False
        return self.env.reset(seed=seed)

    def _label(
        self, run: LearnerRun, decoder: Decoder | None, level: int, x: Any, info: dict[str, Any]
    ) -> int:
        """Return the label of an observation, and grow the tables if it is new."""
        label = self._decode(decoder, level, x, info)
        self.grow(run, label + 1 if decoder is None else decoder.n_labels)
        return label

    def _decode(self, decoder: Decoder | None, level: int, x: Any, info: dict[str, Any]) -> int:
        """Return the label of an observation; without a decoder, the latent state."""
        if decoder is not None:
            return int(decoder.decode(np.array([level]), self._array(x)[None])[0])
        return int(latent_states(info, self.env))

    def _array(self, x: Any) -> NDArray[Any]:
        return check_observation(x, self.observation_shape, self.env)


class _Seen:
    """A list of observations that grows one by one."""

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.x: list[Any] = []

    def add(self, level: int, x: Any) -> None:
        self.levels.append(level)
        self.x.append(np.array(x))

    def observations(self) -> Observations:
        return Observations(np.array(self.levels, np.int64), np.array(self.x))
