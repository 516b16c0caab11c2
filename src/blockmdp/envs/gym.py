"""Gymnasium environments of Block MDPs: single ones, vectors of them, and their ids.

The random numbers are those of the compiled loop (`blockmdp.loop`), bit for bit. After
`reset(seed=s)`, the environment plays episodes 0, 1, ... of `streams.world(s)`. The n-th
observation of a latent state at a level is drawn with `key(streams.noise(s, level, state), n)`. If
noise is correlated within an episode, the observations of episode n are drawn with
`key(streams.episode_noise(s), n)`.

>>> env = gymnasium.make("blockmdp/LockBernoulli-v0", horizon=5)
>>> x, info = env.reset(seed=0)
>>> x.shape, info
((8,), {'latent_state': 0, 'level': 0})
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import ArrayLike, NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer
from blockmdp.dynamics import (
    Dynamics,
    draw_successor,
    first_state,
    sample_reward,
    successor,
)
from blockmdp.jit import jit
from blockmdp.mdp import BlockMDP
from blockmdp.rng import child
from blockmdp.tapes import observe

__all__ = [
    "BlockMDPEnv",
    "BlockMDPVectorEnv",
    "Observe",
    "horizon_of",
    "make",
    "make_vector",
    "mdp_of",
    "register",
]

Observe = Literal["observation", "latent"]

_METADATA: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 8}


class BlockMDPEnv(gymnasium.Env[Any, Any]):
    """The Gymnasium environment of a Block MDP.

    An episode ends (`terminated`) at level H, or in a state that ends it. `reset(seed=s)` starts
    the first episode of seed s, and `reset()` the next one. `info` contains the `latent_state` and
    the `level` (0 to H) of each observation.

    Parameters
    ----------
    mdp : BlockMDP
        The problem.
    observe : {"observation", "latent"}, default="observation"
        Whether the agent sees observations or the latent states themselves.
    render_mode : {"ansi", "rgb_array"} or None, default=None
        How `render` draws the latent state: as text, as a picture, or not at all.

    See Also
    --------
    BlockMDPVectorEnv : Many copies at once.
    register : Makes a problem available to `gymnasium.make`.

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
        self.render_mode = _check_mode(render_mode)
        self.action_space = spaces.Discrete(mdp.n_actions)
        self.observation_space = _observation_space(mdp, observe)
        self._spec: EnvSpec | None = None
        self._seed: int | None = None
        self._path: list[int] = []  # latent states of this episode so far
        self._last: tuple[int, float] | None = None  # action and reward

    @property
    def spec(self) -> EnvSpec | None:
        """Spec of an environment made by `gymnasium.make`; `max_episode_steps` is the horizon."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        # The horizon is an argument of the problem, so the registered spec cannot contain it.
        # `gymnasium.make` sets this attribute after it has decided about a TimeLimit wrapper.
        if spec is not None and spec.max_episode_steps is None:
            spec = replace(spec, max_episode_steps=self.mdp.horizon)
        self._spec = spec

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Parameters
        ----------
        seed : int or None, default=None
            Start the first episode of this seed. None starts the next episode.
        options : dict or None, default=None
            Ignored.

        Returns
        -------
        x : ndarray of shape (dim,) or int
            Observation.
        info : dict
            `latent_state` and `level`.
        """
        super().reset(seed=seed)
        if seed is None and self._seed is None:
            seed = _random_seed(self.np_random)
        if seed is not None:
            self._set_seed(seed)
        self._episode += 1
        self._episode_key = rng.key(self._world_key, self._episode)
        self._path = [int(first_state(self.mdp.dynamics.initial, self._episode_key))]
        self._last = None
        return self._observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action.

        Parameters
        ----------
        action : int
            Action, from 0 to A - 1.

        Returns
        -------
        x : ndarray of shape (dim,) or int
            Observation.
        reward : float
            Reward.
        terminated : bool
            Whether the episode has reached level H, or a state that ends it.
        truncated : bool
            Always False.
        info : dict
            `latent_state` and `level`.
        """
        if not self._path:
            raise ResetNeeded("call reset before the first step")
        h, s = len(self._path) - 1, self._path[-1]
        if self._is_over():
            raise ResetNeeded(f"the episode ended at level {h}: call reset before the next step")
        if not self.action_space.contains(action):
            raise ValueError(
                f"action must be an integer from 0 to {self.mdp.n_actions - 1}, got {action!r}"
            )
        a = int(action)
        (_, model, states, *_), e = self.mdp.dynamics, self._episode_key
        i = draw_successor(model, h, s, a, e)
        r = float(sample_reward(model, h, s, a, i, e))
        self._path.append(int(successor(states, h, s, a, i)))
        self._last = (a, r)
        x, info = self._observe()
        return x, r, self._is_over(), False, info

    def render(self) -> Any:
        """Draw the path through the latent states.

        Returns
        -------
        str, ndarray of shape (height, width, 3) or None
            Text, a picture or nothing, depending on `render_mode`.
        """
        if not _can_render(self.render_mode, started=bool(self._path)):
            return None
        return _frame(self.render_mode, self.mdp, self._path, self._last)

    def _is_over(self) -> bool:
        """Whether the episode has ended."""
        ends = self.mdp.ends
        last = len(self._path) - 1 == self.mdp.horizon
        return last or (ends is not None and bool(ends[self._path[-1]]))

    def _set_seed(self, seed: int) -> None:
        """Go to the start of a seed, before its first episode."""
        self._world_key = streams.world(seed)
        self._episode_noise_key = streams.episode_noise(seed)
        self._seed = seed
        self._episode = -1
        self._visits = np.zeros((self.mdp.horizon + 1, self.mdp.n_states), np.int64)
        self._noise_keys: dict[tuple[int, int], np.uint64] = {}

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        """Draw the observation of the current latent state, and count the visit."""
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
        """Return the key of the observations of a latent state at a level."""
        cell = level, state
        if cell not in self._noise_keys:
            assert self._seed is not None
            self._noise_keys[cell] = streams.noise(self._seed, level, state)
        return self._noise_keys[cell]


class _Copies(NamedTuple):
    """State of n copies of a Block MDP, changed in place by `_advance`."""

    world: NDArray[np.uint64]  # (n,) keys
    noise: NDArray[np.uint64]  # (n,) keys
    episode: NDArray[np.int64]  # (n,)
    level: NDArray[np.int64]  # (n,)
    path: NDArray[np.int64]  # (n, H + 1) latent states of this episode so far
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
    """Move copies: to the first level of the next episode if `fresh`, otherwise by an action.

    moving, fresh, actions: (n,). rewards, keys of observations: (n,), changed for copies that move.
    per_episode: whether noise is correlated within an episode.
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
            j = draw_successor(dynamics.model, h, s, a, e)
            state = successor(dynamics.states, h, s, a, j)
            rewards[i] = sample_reward(dynamics.model, h, s, a, j, e)
        copies.level[i] = level
        copies.path[i, level] = state
        if per_episode:
            keys[i] = child(copies.noise[i], copies.episode[i])
        else:
            cell = np.uint64(child(np.uint64(child(copies.noise[i], level)), state))
            keys[i] = child(cell, copies.visits[i, level, state])
        copies.visits[i, level, state] += 1


class BlockMDPVectorEnv(VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """The Gymnasium vector environment of a Block MDP: many copies in one compiled loop.

    It gives the same results as :class:`gymnasium.vector.SyncVectorEnv` with copies of
    `BlockMDPEnv`. Copy i has the seed `seed + i`. The step after the end of an episode ignores the
    action and starts the next episode.

    Parameters
    ----------
    mdp : BlockMDP
        The problem.
    num_envs : int
        Number of copies.
    observe : {"observation", "latent"}, default="observation"
        Whether the agent sees observations or the latent states themselves.
    render_mode : {"ansi", "rgb_array"} or None, default=None
        How `render` draws the latent states.

    See Also
    --------
    BlockMDPEnv : A single environment.

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
        self.mdp = mdp
        self.num_envs = n = check_integer("num_envs", num_envs, 1)
        self.observe = observe
        self.render_mode = _check_mode(render_mode)
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
        self._actions = np.zeros(n, np.int64)  # of the last step, as the next two
        self._rewards = np.zeros(n)
        self._keys = np.zeros(n, np.uint64)
        self._x = np.zeros(self.observation_space.shape or (), self.single_observation_space.dtype)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode in each copy.

        Parameters
        ----------
        seed : int, sequence of int or None, default=None
            Seed of the first copy, where the others get seed + 1, ..., or one seed for each copy. A
            copy without a seed starts its next episode.
        options : dict or None, default=None
            `{"reset_mask": mask}` resets only the copies where the boolean array of shape
            (num_envs,) is True.

        Returns
        -------
        x : ndarray of shape (num_envs, dim) or (num_envs,)
            Observations.
        info : dict
            `latent_state` and `level`.
        """
        super().reset(seed=seed if isinstance(seed, int) else None)
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must have {self.num_envs} entries, got {len(seeds)}")
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            raise ValueError(f"reset_mask must be {self.num_envs} booleans, got {mask!r}")
        for i in np.flatnonzero(mask).tolist():
            self._set_seed(i, seeds[i])
        return self._move(mask, fresh=mask)

    def step(
        self, actions: ArrayLike
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take an action in each copy; copies whose episode has ended start the next one.

        Parameters
        ----------
        actions : array-like of shape (num_envs,)
            Actions, from 0 to A - 1.

        Returns
        -------
        x : ndarray of shape (num_envs, dim) or (num_envs,)
            Observations.
        rewards : ndarray of shape (num_envs,)
            Rewards.
        terminated : ndarray of shape (num_envs,)
            Whether an episode has reached level H, or a state that ends it.
        truncated : ndarray of shape (num_envs,)
            Always False.
        info : dict
            `latent_state` and `level`.
        """
        if not self._seeded.all():
            raise ResetNeeded("call reset before the first step")
        A = self.mdp.n_actions
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be {self.num_envs} integers, got {actions!r}")
        ended = self._ended()
        bad = ~ended & ((actions < 0) | (actions >= A))
        if bad.any():
            i = int(bad.argmax())
            raise ValueError(f"actions[{i}] must be from 0 to {A - 1}, got {actions[i]}")
        self._actions = actions.astype(np.int64)
        x, info = self._move(np.ones(self.num_envs, np.bool_), fresh=ended)
        truncated = np.zeros(self.num_envs, np.bool_)
        return x, self._rewards.copy(), self._ended(), truncated, info

    def render(self) -> Any:
        """Draw the path of each copy through the latent states.

        Returns
        -------
        tuple or None
            One text or picture for each copy; None without a `render_mode`.
        """
        if not _can_render(self.render_mode, started=bool(self._seeded.all())):
            return None
        paths, levels = self._copies.path.tolist(), self._copies.level.tolist()
        steps = zip(self._actions.tolist(), self._rewards.tolist())
        return tuple(
            _frame(self.render_mode, self.mdp, path[: h + 1], (a, r) if h > 0 else None)
            for path, h, (a, r) in zip(paths, levels, steps)
        )

    def _ended(self) -> NDArray[np.bool_]:
        """Return which copies are at the end of an episode, (num_envs,)."""
        copies, ends = self._copies, self.mdp.ends
        over: NDArray[np.bool_] = copies.level == self.mdp.horizon
        if ends is not None:
            over |= ends[copies.path[np.arange(self.num_envs), copies.level]]
        return over

    def _set_seed(self, i: int, seed: int | None) -> None:
        """Go to the start of a seed in copy i; without a seed, keep the present one if any."""
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
        """Move copies, see `_advance`; return all observations, and the info of these copies."""
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
        self._observe(moving, state)
        info = {
            "latent_state": np.where(moving, state, 0),
            "_latent_state": moving.copy(),
            "level": np.where(moving, copies.level, 0),
            "_level": moving.copy(),
        }
        return self._x.copy(), info

    def _observe(self, moving: NDArray[np.bool_], state: NDArray[np.int64]) -> None:
        """Draw the observations of the copies that moved."""
        if self.observe == "latent":
            self._x[moving] = state[moving]
        else:
            where = self._copies.level[moving], state[moving], self._keys[moving]
            self._x[moving] = observe(self.mdp.emission, *where)


def _observation_space(mdp: BlockMDP, observe: Observe) -> spaces.Space[Any]:
    """Return the space of observations or of latent states."""
    if observe == "latent":
        return spaces.Discrete(mdp.n_states)
    if observe != "observation":
        raise ValueError(f"observe must be 'observation' or 'latent', got {observe!r}")
    emission = mdp.emission
    if np.dtype(emission.dtype) == np.int8 and (emission.low, emission.high) == (0, 1):
        return spaces.MultiBinary(emission.dim)
    # Unbounded noise needs an unbounded box. Gymnasium's checker warns about it, but any bound
    # would be wrong.
    return spaces.Box(emission.low, emission.high, (emission.dim,), emission.dtype)


def _check_mode(render_mode: str | None) -> str | None:
    """Return the render mode; raise ValueError if it is unknown."""
    if render_mode not in (None, *_METADATA["render_modes"]):
        raise ValueError(
            f"render_mode must be None or one of {_METADATA['render_modes']}, got {render_mode!r}"
        )
    return render_mode


def _can_render(render_mode: str | None, *, started: bool) -> bool:
    """Return whether there is something to draw; warn if there is no render mode."""
    if render_mode is None:
        gymnasium.logger.warn(
            "render() draws nothing with render_mode=None: set render_mode when you make the "
            "environment"
        )
    elif not started:
        raise ResetNeeded("call reset before the first render")
    return render_mode is not None


def _frame(
    render_mode: str | None, mdp: BlockMDP, path: list[int], last: tuple[int, float] | None
) -> Any:
    """Draw one frame."""
    from blockmdp.envs import render  # here, because matplotlib is slow to import

    action, reward = last or (None, None)
    draw = render.ansi if render_mode == "ansi" else render.rgb
    return draw(mdp, path, action=action, reward=reward)


def _random_seed(generator: np.random.Generator) -> int:
    """Draw a seed."""
    return int(generator.integers(2**63))


# --- ids ------------------------------------------------------------------------------------------
def register(id: str, problem: Callable[..., BlockMDP], **defaults: Any) -> None:
    """Make a problem available to `gymnasium.make` and `gymnasium.make_vec`.

    Both then accept the arguments of the problem, and `observe` and `render_mode`. Registering the
    same problem twice does nothing.

    Parameters
    ----------
    id : str
        Id of the environment, such as "namespace/Name-v0".
    problem : function
        Returns a BlockMDP. Other processes find it by its name, so it must be defined at the top
        level of a module.
    **defaults : object
        Arguments of the problem that differ from its own defaults.

    Examples
    --------
    >>> from blockmdp.envs import lock_bernoulli
    >>> register("mine/ShortLock-v0", lock_bernoulli, horizon=3)
    >>> gymnasium.make("mine/ShortLock-v0").observation_space
    MultiBinary(6)
    """
    name = f"{problem.__module__}:{problem.__qualname__}"
    if not problem.__qualname__.isidentifier():
        raise ValueError(f"problem must be a function at the top level of a module, got {name}")
    _REGISTERED[name] = problem
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
    """Make the environment of a problem; the entry point of registered ids.

    Parameters
    ----------
    problem : str
        Function that returns the BlockMDP, as "module:function". It must be registered.
    observe : {"observation", "latent"}, default="observation"
        See `BlockMDPEnv`.
    render_mode : {"ansi", "rgb_array"} or None, default=None
        See `BlockMDPEnv`.
    **arguments : object
        Arguments of the problem.

    Returns
    -------
    BlockMDPEnv
        The environment.
    """
    return BlockMDPEnv(_registered(problem)(**arguments), observe=observe, render_mode=render_mode)


# gymnasium.make reads the render modes from its entry point
make.metadata = _METADATA  # type: ignore[attr-defined]


def make_vector(
    problem: str,
    num_envs: int,
    *,
    observe: Observe = "observation",
    render_mode: str | None = None,
    **arguments: Any,
) -> BlockMDPVectorEnv:
    """Make the vector environment of a problem; the entry point of registered ids.

    Parameters
    ----------
    problem : str
        Function that returns the BlockMDP, as "module:function". It must be registered.
    num_envs : int
        Number of copies.
    observe : {"observation", "latent"}, default="observation"
        See `BlockMDPEnv`.
    render_mode : {"ansi", "rgb_array"} or None, default=None
        See `BlockMDPEnv`.
    **arguments : object
        Arguments of the problem.

    Returns
    -------
    BlockMDPVectorEnv
        The vector environment.
    """
    mdp = _registered(problem)(**arguments)
    return BlockMDPVectorEnv(mdp, num_envs, observe=observe, render_mode=render_mode)


_REGISTERED: dict[str, Callable[..., BlockMDP]] = {}  # what `register` was given, by name


def _registered(problem: str) -> Callable[..., BlockMDP]:
    """Return a function that was registered. No other is imported, whatever its name."""
    if problem not in _REGISTERED:
        raise ValueError(
            f"{problem!r} is not registered: import the module that calls blockmdp.envs.register"
        )
    return _REGISTERED[problem]


def mdp_of(env: gymnasium.Env[Any, Any]) -> BlockMDP | None:
    """Return the BlockMDP of an environment that behaves exactly as its BlockMDP.

    Parameters
    ----------
    env : gymnasium.Env
        Any environment.

    Returns
    -------
    BlockMDP or None
        The BlockMDP of a `BlockMDPEnv`, also inside the wrappers of `gymnasium.make`, which change
        nothing. None for any other environment: inside other wrappers, for a subclass of
        `BlockMDPEnv`, and if latent states are shown as observations.
    """
    limit = math.inf
    while type(env) in (PassiveEnvChecker, OrderEnforcing, TimeLimit):
        if isinstance(env, TimeLimit):
            limit = min(limit, env._max_episode_steps)
        env = env.env  # type: ignore[attr-defined]
    if type(env) is not BlockMDPEnv or env.observe != "observation" or limit < env.mdp.horizon:
        return None
    return env.mdp


def horizon_of(env: gymnasium.Env[Any, Any]) -> int:
    """Return the longest episode of an environment.

    Parameters
    ----------
    env : gymnasium.Env
        Any environment.

    Returns
    -------
    int
        Horizon of its Block MDP, its `max_episode_steps` or its TimeLimit.

    Raises
    ------
    ValueError
        If it does not state it.
    """
    if isinstance(env.unwrapped, BlockMDPEnv):
        return env.unwrapped.mdp.horizon
    horizon = getattr(env.spec, "max_episode_steps", None) or _time_limit(env)
    if not horizon:
        raise ValueError(
            f"{env} does not state its longest episode: set horizon, or wrap the environment with "
            "gymnasium.wrappers.TimeLimit"
        )
    return int(horizon)


def _time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Return the smallest limit of the TimeLimit wrappers; None if there are none."""
    limit: int | None = None
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            limit = min(limit or math.inf, env._max_episode_steps)  # type: ignore[assignment]
        env = env.env
    return limit


def _to_gymnasium(
    self: BlockMDP, *, observe: Observe = "observation", render_mode: str | None = None
) -> BlockMDPEnv:
    """Return the Gymnasium environment of this problem.

    `from_gymnasium` is the inverse.

    Parameters
    ----------
    observe : {"observation", "latent"}, default="observation"
        Whether the agent sees observations or the latent states themselves.
    render_mode : {"ansi", "rgb_array"} or None, default=None
        How `render` draws the latent state.

    Returns
    -------
    BlockMDPEnv
        The environment.
    """
    return BlockMDPEnv(self, observe=observe, render_mode=render_mode)


BlockMDP.to_gymnasium = _to_gymnasium  # here, because a problem does not know environments
