"""The simulator of vector environments: many copies of a Gymnasium environment, side by side.

Each step decodes the observations of all copies at once, so a slow decoder costs less.

The copies run their episodes independently of each other. A learner acts in all copies with its
current tables, and learns from each episode when it ends. So with n copies it is up to n - 1
episodes behind. With one copy the result is that of `GymSimulator`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from blockmdp import rng
from blockmdp.checks import check_finite
from blockmdp.decoders import Decoder
from blockmdp.envs.gym import BlockMDPVectorEnv
from blockmdp.jit import interpreted
from blockmdp.loop import act_each, choice_key, replay
from blockmdp.policy import Policy
from blockmdp.simulators.base import (
    LearnerRun,
    Simulator,
    check_observations,
    check_reward,
    decode_rows,
    first_action,
    latent_states,
)
from blockmdp.simulators.rollout import choose_each
from blockmdp.trajectories import Observations, Trajectories, by_level

__all__ = ["VectorSimulator"]

VectorEnv = gym.vector.VectorEnv[Any, Any, Any]


class _Copies(NamedTuple):
    """The episodes that n copies are running, and what they have seen and done.

    Steps are counted from the first reset, and step t stands in row t % T of the arrays that begin
    with T, which is enough for the longest episode.
    """

    number: NDArray[np.int64]  # (n,), of the episode; -1 if nobody needs it
    key: NDArray[np.uint64]  # (n,)
    start: NDArray[np.int64]  # (n,), step at which the episode began
    level: NDArray[np.int64]  # (n,), number of actions so far
    labels: NDArray[np.int64]  # (T, n)
    actions: NDArray[np.int64]  # (T, n)
    rewards: NDArray[np.float64]  # (T, n)
    x: NDArray[Any]  # (T, n, ...)

    def episode(self, i: int) -> tuple[NDArray[np.int64], ...]:
        """Return labels, x, actions and rewards of the episode that ended in copy i."""
        steps = np.arange(self.start[i], self.start[i] + self.level[i] + 1) % len(self.x)
        before = steps[:-1]
        seen = self.labels[steps, i], self.x[steps, i]
        return *seen, self.actions[before, i], self.rewards[before, i]


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
        self._first_action = first_action(space, envs)
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
        choose, teach = act_each, replay
        if not learner.is_compiled():
            choose, teach = interpreted(choose), interpreted(teach)
        levels: list[int] = []
        x: list[Any] = []

        def label(copies: _Copies, x: NDArray[Any], info: dict[str, Any]) -> Any:
            if decoder is None:
                return latent_states(info, self.env)
            check_finite(x)
            return decoder.decode(copies.level.copy(), x)

        def act(copies: _Copies, rows: Any, labels: NDArray[np.int64]) -> Any:
            self.grow(run, max(decoder.n_labels if decoder else 0, int(labels.max()) + 1))
            k, levels, keys = copies.number[rows] + first, copies.level[rows], copies.key[rows]
            return choose(learner.act, run.tables, k, levels, labels, keys, self.n_actions)

        def end(copies: _Copies, i: int, early: bool) -> None:
            labels, seen, actions, rewards = copies.episode(i)
            self.grow(run, int(labels.max()) + 1)
            k, length = first + int(copies.number[i]), len(actions)
            H = length + 1 if early else length  # `replay` tells the learner of the end
            did, earned = np.zeros((1, H), np.int64), np.zeros((1, H))
            did[0, :length], earned[0, :length] = actions, rewards
            past = labels[None].astype(np.int32), did, earned, np.array([length])
            teach(learner.update, run.tables, *past)
            learner.plan(run.tables, k, choice_key(run.key, k, self.horizon))
            run.returns[k] = sum(rewards.tolist())
            if record:
                levels.extend(range(len(seen)))
                x.extend(seen)

        keys = rng.children(run.key, first, stop - first)
        self._run(keys, label, act, end, "learn", keep_x=record)
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
        kept: dict[int, NDArray[Any]] = {}

        def label(copies: _Copies, x: NDArray[Any], info: dict[str, Any]) -> Any:
            check_finite(x)
            if len(policies) == 1 and policies[0].decoder is not None:
                return policies[0].decoder.decode(copies.level.copy(), x)
            labels = np.empty(len(x), np.int64)
            latent = latent_states(info, self.env) if "latent_state" in info else None
            for h, rows in by_level(copies.level):
                follows = which[np.maximum(copies.number[rows], 0)]
                states = None if latent is None else latent[rows]
                labels[rows] = decode_rows(policies, follows, h, x[rows], states)
            return labels

        def act(copies: _Copies, rows: Any, labels: NDArray[np.int64]) -> Any:
            levels, keys = copies.level[rows], copies.key[rows]
            if len(policies) == 1:
                return choose_each(policies[0].pi, levels, labels, keys)
            actions, follows = np.empty_like(labels), which[copies.number[rows]]
            for i in np.unique(follows):
                of = follows == i
                actions[of] = choose_each(policies[i].pi, levels[of], labels[of], keys[of])
            return actions

        def end(copies: _Copies, i: int, early: bool) -> None:
            k, h = copies.number[i], copies.level[i]
            _, seen, actions[k, :h], rewards[k, :h] = copies.episode(i)
            lengths[k] = h
            if keep_x:
                kept[k] = seen

        keys = rng.children(self.policy_key, self.episodes, n)
        self._run(keys, label, act, end, kind, keep_x=keep_x)
        x = np.zeros(
            (n, H + 1 if keep_x else 0, *self.observation_shape),
            np.result_type(*{seen.dtype for seen in kept.values()}) if kept else np.float64,
        )
        for k, seen in kept.items():
            x[k, : len(seen)] = seen.reshape(len(seen), *self.observation_shape)
        return Trajectories(x, actions, rewards, lengths)

    def _run(
        self,
        keys: NDArray[np.uint64],
        label: Callable[[_Copies, NDArray[Any], dict[str, Any]], Any],
        act: Callable[[_Copies, Any, NDArray[np.int64]], Any],
        end: Callable[[_Copies, int, bool], None],
        kind: str,
        *,
        keep_x: bool,
    ) -> None:
        """Run one episode for each key.

        Parameters
        ----------
        keys : ndarray of shape (n,)
            Keys of the choices of the episodes.
        label : function
            Labels the observations of all copies, given the copies, x and info.
        act : function
            Chooses the next actions of some copies, given all, their rows and their labels.
        end : function
            Is called with the copies, the number of one whose episode ends, and whether it ends
            before the horizon.
        kind : str
            Name under which `ledger` counts the episodes.
        keep_x : bool
            Whether `end` needs the observations.
        """
        if len(keys) == 0:
            return
        n, T = self.at_once, self.horizon + 2
        begun = ended = t = 0

        def begin(i: int) -> None:
            """Start the next episode in a copy, or one that nobody needs if all have started."""
            nonlocal begun
            wanted = begun < len(keys)
            self.ledger[kind if wanted else "unused"] += 1
            copies.number[i] = begun if wanted else -1
            copies.key[i] = keys[begun] if wanted else 0
            copies.start[i], copies.level[i] = t, 0
            begun += wanted

        x, info = self.env.reset(seed=self.seed if self._fresh else None)
        self._fresh = False
        seen = np.asarray(x) if keep_x else np.zeros((n, 0))
        integers = [np.zeros(shape, np.int64) for shape in (n, n, n, (T, n), (T, n))]
        number, start, level, labels, actions = integers
        copies = _Copies(
            number=number,
            key=np.zeros(n, np.uint64),
            start=start,
            level=level,
            labels=labels,
            actions=actions,
            rewards=np.zeros((T, n)),
            x=np.zeros((T, *seen.shape), seen.dtype),
        )
        for i in range(n):
            begin(i)
        copies.x[0], labels[0] = seen, label(copies, x, info)
        over = np.zeros(n, np.bool_)
        last = self.horizon  # step before which no episode is too long
        changed = True  # whether copies began or ended an episode in the last step
        while ended < len(keys):
            now = t % T
            if changed:
                rows = ((number >= 0) & ~over).nonzero()[0]
                active = slice(None) if len(rows) == n else rows  # a slice is faster
            if len(rows) < n:
                actions[now] = 0
            if len(rows):
                actions[now, active] = act(copies, active, labels[now, active])
            x, r, terminated, truncated, info = self.env.step(actions[now] + self._first_action)
            if np.count_nonzero(np.isfinite(r)) < n:
                for each in r[~over]:
                    check_reward(each, self.env)
            copies.rewards[now] = r
            t += 1
            level += 1
            begins, over = over, terminated | truncated
            if changed:
                over &= ~begins
                for i in begins.nonzero()[0].tolist():  # this step only reset the copy
                    begin(i)
            if t >= last:
                self._check_length(level, over)
                last = int(start.min()) + self.horizon
            labels[t % T] = label(copies, x, info)
            if keep_x:
                seen = np.asarray(x)
                if seen.dtype != copies.x.dtype:
                    dtype = np.result_type(copies.x, seen)
                    copies = copies._replace(x=copies.x.astype(dtype))
                copies.x[t % T] = seen
            changed = bool(np.count_nonzero(over) or np.count_nonzero(begins))
            if changed:
                for i in ((number >= 0) & over).nonzero()[0].tolist():
                    end(copies, i, bool(terminated[i]) and int(level[i]) < self.horizon)
                    ended += 1

    def _check_length(self, level: NDArray[np.int64], over: NDArray[np.bool_]) -> None:
        """Raise ValueError if an episode is longer than the horizon."""
        if (level[~over] >= self.horizon).any():
            raise ValueError(
                f"an episode of {self.env} did not end after {self.horizon} steps: set a larger "
                "horizon in fit"
            )
