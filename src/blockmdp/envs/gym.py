"""The Gymnasium face of a Block MDP: one environment, many at once, and their ids.

The random numbers are those of the compiled loop (`blockmdp.loop`), bit for bit: after
`reset(seed=s)` come the episodes 0, 1, ... of `streams.world(s)`, and the n-th observation of a
latent state at a level is drawn from `child(streams.noise(s, level, state), n)`; those of an
episode whose noise hangs together from `child(streams.episode_noise(s), episode)`.

>>> env = gymnasium.make("blockmdp/LockBernoulli-v0", horizon=5)
>>> x, info = env.reset(seed=0)
>>> x.shape, info
((8,), {'latent_state': 0, 'level': 0})
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker
from numpy.typing import ArrayLike, NDArray

from blockmdp import rng, streams
from blockmdp.dynamics import Dynamics, first_state, next_state, sample_reward
from blockmdp.jit import jit
from blockmdp.mdp import BlockMDP
from blockmdp.rng import child

__all__ = [
    "BlockMDPEnv",
    "BlockMDPVectorEnv",
    "Observe",
    "make",
    "make_vector",
    "mdp_of",
    "register",
]

Observe = Literal["observation", "latent"]

_METADATA: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}


class BlockMDPEnv(gymnasium.Env[Any, Any]):
    """A Block MDP, one step at a time. An episode ends (`terminated`) when it reaches level H.

    `reset(seed=s)` starts the world of the seed s at its first episode; `reset()` goes on to its
    next one. `info` tells the `latent_state` and the `level` (0 to H) of each observation.

    Parameters
    ----------
    mdp : BlockMDP
    observe : "observation" shows what the emission makes of the latent state, "latent" the latent
        state itself.
    render_mode : "ansi", "rgb_array" or None.

    Examples
    --------
    >>> from blockmdp.envs import lock_bernoulli
    >>> env = BlockMDPEnv(lock_bernoulli(horizon=1))
    >>> x, info = env.reset(seed=0)
    >>> x, reward, terminated, truncated, info = env.step(0)
    >>> terminated, info["level"]
    (True, 1)
    """

    metadata = _METADATA

    def __init__(
        self, mdp: BlockMDP, *, observe: Observe = "observation", render_mode: str | None = None
    ) -> None:
        self.mdp = mdp
        self.observe = observe
        self.render_mode = _known_mode(render_mode)
        self.action_space = spaces.Discrete(mdp.n_actions)
        self.observation_space = _observation_space(mdp, observe)
        self._seed: int | None = None
        self._path: list[int] = []  # latent states of this episode, at levels 0, ..., now
        self._last: tuple[int, float] | None = None  # action and reward

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is None and self._seed is None:
            seed = _random_seed(self.np_random)
        if seed is not None:
            self._set_seed(seed)
        self._episode += 1
        self._episode_key = rng.key(self._world_key, self._episode)
        self._path = [int(first_state(self.mdp.dynamics.initial, self._episode_key))]
        self._last = None
        return self._arrive()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._path:
            raise ResetNeeded("step before the first reset: call reset first")
        h, s = len(self._path) - 1, self._path[-1]
        if h == self.mdp.horizon:
            raise ResetNeeded(f"step after the end: the episode ended at level {h}, call reset")
        if not self.action_space.contains(action):
            raise ValueError(
                f"action {action!r} is none of the integers 0 to {self.mdp.n_actions - 1}"
            )
        a = int(action)
        model, e = self.mdp.dynamics.model, self._episode_key
        t = int(next_state(model, h, s, a, e))
        r = float(sample_reward(model, h, s, a, t, e))
        self._path.append(t)
        self._last = (a, r)
        x, info = self._arrive()
        return x, r, h + 1 == self.mdp.horizon, False, info

    def render(self) -> Any:
        if not _can_render(self.render_mode, started=bool(self._path)):
            return None
        return _frame(self.render_mode, self.mdp, self._path, self._last)

    def _set_seed(self, seed: int) -> None:
        """Start the world of a seed, before its first episode."""
        self._world_key = streams.world(seed)
        self._episode_noise_key = streams.episode_noise(seed)
        self._seed = seed
        self._episode = -1
        self._visits = np.zeros((self.mdp.horizon + 1, self.mdp.n_states), np.int64)
        self._noise_keys: dict[tuple[int, int], np.uint64] = {}

    def _arrive(self) -> tuple[Any, dict[str, Any]]:
        """What is seen of the place that the path has come to; counts the visit."""
        level, state = len(self._path) - 1, self._path[-1]
        n = self._visits[level, state]
        self._visits[level, state] += 1
        info = {"latent_state": state, "level": level}
        if self.observe == "latent":
            return np.int64(state), info
        if self.mdp.emission.per_episode:
            key = rng.key(self._episode_noise_key, self._episode)
        else:
            key = rng.key(self._noise_key(level, state), n)
        x = self.mdp.emission.sample(level, np.array([state]), np.array([key]))
        return x[0], info

    def _noise_key(self, level: int, state: int) -> np.uint64:
        place = level, state
        if place not in self._noise_keys:
            assert self._seed is not None
            self._noise_keys[place] = streams.noise(self._seed, level, state)
        return self._noise_keys[place]


class _Copies(NamedTuple):
    """Where n copies of a Block MDP stand; the loop below changes it in place."""

    world: NDArray[np.uint64]  # (n,) keys
    noise: NDArray[np.uint64]  # (n,) keys
    episode: NDArray[np.int64]  # (n,)
    level: NDArray[np.int64]  # (n,)
    path: NDArray[np.int64]  # (n, H + 1) latent states of this episode, up to the level
    visits: NDArray[np.int64]  # (n, H + 1, S)


@jit
def _advance(
    dynamics: Dynamics,
    copies: _Copies,
    moving: NDArray[np.bool_],
    fresh: NDArray[np.bool_],
    actions: NDArray[np.int64],
    rewards: NDArray[np.float64],
    keys: NDArray[np.uint64],
    per_episode: bool,
) -> None:
    """Move copies on: to their next episode if `fresh`, else by their action.

    moving, fresh, actions: (n,). rewards, keys (of observations): (n,), filled for those moving.
    per_episode: whether the key of an observation is that of its episode.
    """
    for i in range(len(moving)):
        if not moving[i]:
            continue
        if fresh[i]:
            copies.episode[i] += 1
        e = np.uint64(child(copies.world[i], copies.episode[i]))
        if fresh[i]:
            level = 0
            state = first_state(dynamics.initial, e)
            rewards[i] = 0.0
        else:
            h, s, a = copies.level[i], copies.path[i, copies.level[i]], actions[i]
            level = h + 1
            state = next_state(dynamics.model, h, s, a, e)
            rewards[i] = sample_reward(dynamics.model, h, s, a, state, e)
        copies.level[i] = level
        copies.path[i, level] = state
        if per_episode:
            keys[i] = child(copies.noise[i], copies.episode[i])
        else:
            place = np.uint64(child(np.uint64(child(copies.noise[i], level)), state))
            keys[i] = child(place, copies.visits[i, level, state])
        copies.visits[i, level, state] += 1


class BlockMDPVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Many copies of a Block MDP, stepped together in one compiled loop.

    Gives what `gymnasium.vector.SyncVectorEnv` gives with as many `BlockMDPEnv`, number for number:
    copy i has the seed `seed + i`, and the step after the end of an episode ignores the action and
    starts the next one.

    Parameters
    ----------
    mdp : BlockMDP
    num_envs : int
    observe, render_mode : as for `BlockMDPEnv`.

    Examples
    --------
    >>> from blockmdp.envs import lock_bernoulli
    >>> envs = BlockMDPVectorEnv(lock_bernoulli(horizon=5), num_envs=3)
    >>> x, info = envs.reset(seed=0)
    >>> x.shape, info["level"]
    ((3, 8), array([0, 0, 0]))
    """

    def __init__(
        self,
        mdp: BlockMDP,
        num_envs: int,
        *,
        observe: Observe = "observation",
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be 1 or more, got {num_envs!r}")
        self.mdp = mdp
        self.num_envs = n = num_envs
        self.observe = observe
        self.render_mode = _known_mode(render_mode)
        self.metadata = {**_METADATA, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_action_space = spaces.Discrete(mdp.n_actions)
        self.single_observation_space = _observation_space(mdp, observe)
        self.action_space = batch_space(self.single_action_space, n)
        self.observation_space = batch_space(self.single_observation_space, n)

        levels, S = mdp.horizon + 1, mdp.n_states
        self._copies = _Copies(
            world=np.zeros(n, np.uint64),
            noise=np.zeros(n, np.uint64),
            episode=np.zeros(n, np.int64),
            level=np.zeros(n, np.int64),
            path=np.zeros((n, levels), np.int64),
            visits=np.zeros((n, levels, S), np.int64),
        )
        self._seeded = np.zeros(n, np.bool_)
        self._actions = np.zeros(n, np.int64)  # the last ones, as are the rewards
        self._rewards = np.zeros(n)
        self._keys = np.zeros(n, np.uint64)
        self._seen = np.zeros(
            self.observation_space.shape or (), self.single_observation_space.dtype
        )

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start the world of each seed, or go on to the next episode where a copy is given none.

        Parameters
        ----------
        seed : of the first copy, the others having seed + 1, ...; or a list of one for each copy.
        options : {"reset_mask": (num_envs,) booleans} resets only some of the copies.
        """
        super().reset(seed=seed if isinstance(seed, int) else None)
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"reset_mask must be {self.num_envs} booleans, got {mask!r}")
        for i in np.flatnonzero(mask).tolist():
            self._set_seed(i, seeds[i])
        return self._move(mask, fresh=mask)

    def step(
        self, actions: ArrayLike
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        if not self._seeded.all():
            raise ResetNeeded("step before the first reset: call reset first")
        H, A = self.mdp.horizon, self.mdp.n_actions
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be {self.num_envs} integers, got {actions!r}")
        ended = self._copies.level == H
        bad = ~ended & ((actions < 0) | (actions >= A))
        if bad.any():
            i = int(bad.argmax())
            raise ValueError(f"action {actions[i]} of copy {i} is not in 0 to {A - 1}")
        self._actions = actions.astype(np.int64)
        x, info = self._move(np.ones(self.num_envs, np.bool_), fresh=ended)
        truncated = np.zeros(self.num_envs, np.bool_)
        return x, self._rewards.copy(), self._copies.level == H, truncated, info

    def render(self) -> Any:
        if not _can_render(self.render_mode, started=bool(self._seeded.all())):
            return None
        paths, levels = self._copies.path.tolist(), self._copies.level.tolist()
        steps = zip(self._actions.tolist(), self._rewards.tolist())
        return tuple(
            _frame(self.render_mode, self.mdp, path[: h + 1], (a, r) if h > 0 else None)
            for path, h, (a, r) in zip(paths, levels, steps)
        )

    def _set_seed(self, i: int, seed: int | None) -> None:
        """Start the world of a seed in copy i, before its first episode.

        Without a seed it stays in the world it is in, if it is in one.
        """
        if seed is None:
            if self._seeded[i]:
                return
            seed = _random_seed(self.np_random)
        self._copies.world[i] = streams.world(seed)
        noise = streams.episode_noise if self.mdp.emission.per_episode else streams.noise_root
        self._copies.noise[i] = noise(seed)
        self._copies.episode[i] = -1
        self._copies.visits[i] = 0
        self._seeded[i] = True

    def _move(
        self, moving: NDArray[np.bool_], fresh: NDArray[np.bool_]
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Move copies on, to their next episode if fresh; what they see, and the info of these."""
        copies = self._copies
        _advance(
            self.mdp.dynamics,
            copies,
            moving,
            fresh,
            self._actions,
            self._rewards,
            self._keys,
            self.mdp.emission.per_episode,
        )
        state = copies.path[np.arange(self.num_envs), copies.level]
        self._look(moving, state)
        info = {
            "latent_state": np.where(moving, state, 0),
            "_latent_state": moving.copy(),
            "level": np.where(moving, copies.level, 0),
            "_level": moving.copy(),
        }
        return self._seen.copy(), info

    def _look(self, moving: NDArray[np.bool_], state: NDArray[np.int64]) -> None:
        """Draw what the copies that moved see: one call, or one a level where levels differ."""
        emission, level = self.mdp.emission, self._copies.level
        if self.observe == "latent":
            self._seen[moving] = state[moving]
        elif emission.stationary:
            self._seen[moving] = emission.sample(0, state[moving], self._keys[moving])
        else:
            for h in np.unique(level[moving]):
                there = moving & (level == h)
                self._seen[there] = emission.sample(int(h), state[there], self._keys[there])


def _observation_space(mdp: BlockMDP, observe: Observe) -> spaces.Space[Any]:
    if observe == "latent":
        return spaces.Discrete(mdp.n_states)
    if observe != "observation":
        raise ValueError(f"observe must be 'observation' or 'latent', got {observe!r}")
    emission = mdp.emission
    if np.dtype(emission.dtype) == np.int8 and (emission.low, emission.high) == (0, 1):
        return spaces.MultiBinary(emission.dim)
    # An emission without bounds makes a box without bounds: check_env warns of it, but any made-up
    # bound would be false.
    return spaces.Box(emission.low, emission.high, (emission.dim,), emission.dtype)


def _known_mode(render_mode: str | None) -> str | None:
    if render_mode not in (None, *_METADATA["render_modes"]):
        raise ValueError(
            f"render_mode must be None or one of {_METADATA['render_modes']}, got {render_mode!r}"
        )
    return render_mode


def _can_render(render_mode: str | None, *, started: bool) -> bool:
    if render_mode is None:
        gymnasium.logger.warn("render() shows nothing with render_mode=None; make one with another")
    elif not started:
        raise ResetNeeded("render before the first reset: call reset first")
    return render_mode is not None


def _frame(
    render_mode: str | None, mdp: BlockMDP, path: list[int], last: tuple[int, float] | None
) -> Any:
    from blockmdp.envs import render  # here, since few need matplotlib and it is slow to import

    action, reward = last or (None, None)
    draw = render.ansi if render_mode == "ansi" else render.rgb
    return draw(mdp, path, action=action, reward=reward)


def _random_seed(generator: np.random.Generator) -> int:
    return int(generator.integers(2**63))


# --- ids ------------------------------------------------------------------------------------------
def register(id: str, problem: Callable[..., BlockMDP], **defaults: Any) -> None:
    """Let `gymnasium.make` and `gymnasium.make_vec` know a problem by an id.

    Both then take the problem's own arguments, `observe` and `render_mode`. Registering the same
    twice does nothing.

    Parameters
    ----------
    id : "namespace/Name-v0".
    problem : a function that returns a BlockMDP. It is remembered by its name, so it must stand at
        the top of a module.
    defaults : arguments for it.

    Examples
    --------
    >>> from blockmdp.envs import lock_bernoulli
    >>> register("mine/ShortLock-v0", lock_bernoulli, horizon=3)
    >>> gymnasium.make("mine/ShortLock-v0").observation_space
    MultiBinary(6)
    """
    name = f"{problem.__module__}:{problem.__qualname__}"
    if not problem.__qualname__.isidentifier():
        raise ValueError(f"{name} is not a function at the top of a module, so no id can name it")
    kwargs = {"problem": name, **defaults}
    known = gymnasium.registry.get(id)
    if known is None or known.kwargs != kwargs:
        gymnasium.register(
            id,
            entry_point=f"{__name__}:make",
            vector_entry_point=f"{__name__}:make_vector",
            kwargs=kwargs,
        )


def make(
    problem: str,
    *,
    observe: Observe = "observation",
    render_mode: str | None = None,
    **arguments: Any,
) -> BlockMDPEnv:
    """The environment of the problem "module:function", called with the arguments."""
    return BlockMDPEnv(_load(problem)(**arguments), observe=observe, render_mode=render_mode)


make.metadata = _METADATA  # type: ignore[attr-defined]  # where gymnasium.make looks for render modes


def make_vector(
    problem: str,
    num_envs: int,
    *,
    observe: Observe = "observation",
    render_mode: str | None = None,
    **arguments: Any,
) -> BlockMDPVectorEnv:
    """The vector environment of the problem "module:function", called with the arguments."""
    mdp = _load(problem)(**arguments)
    return BlockMDPVectorEnv(mdp, num_envs, observe=observe, render_mode=render_mode)


def _load(problem: str) -> Callable[..., BlockMDP]:
    module, function = problem.split(":")
    found: Callable[..., BlockMDP] = getattr(importlib.import_module(module), function)
    return found


def mdp_of(env: gymnasium.Env[Any, Any]) -> BlockMDP | None:
    """The BlockMDP that an environment plays, or None where there is none to be seen.

    Looks through the wrappers of `gymnasium.make` that change nothing; under any other wrapper, or
    in a subclass of `BlockMDPEnv`, or where latent states are shown as observations, the
    environment behaves otherwise than its BlockMDP says.
    """
    while type(env) in (PassiveEnvChecker, OrderEnforcing):
        env = env.env  # type: ignore[attr-defined]
    plain = type(env) is BlockMDPEnv and env.observe == "observation"
    return env.mdp if plain else None  # type: ignore[attr-defined]
