"""MiniGrid environments as Block MDPs, from pictures (Chevalier-Boisvert et al. 2023)."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import check_integer, did_you_mean
from blockmdp.emissions import Fixed
from blockmdp.envs.convert import tabulate
from blockmdp.envs.screens import Screens
from blockmdp.mdp import BlockMDP, Successors

__all__ = ["NOISES", "minigrid"]

NOISES: dict[str, dict[str, Any]] = {
    "tint": {"tint": 0.3},
    "distractors": {"distractors": 2},
    "pixel": {"pixel": 0.05},
    "shift": {"shift": 1},
}
_NEVER_CHANGE = ("wall", "goal", "lava", "floor")


def minigrid(
    env: str,
    horizon: int | None = None,
    *,
    observation: Literal["pixels", "grid", "view"] = "pixels",
    noise: str | Mapping[str, Any] | None = None,
    reward: Literal["success", "early"] = "success",
    tile: int = 4,
    cap: int = 20_000,
    seed: int = 0,
) -> BlockMDP:
    """Make the Block MDP of a MiniGrid environment, with its exact table and noisy pictures.

    It needs the extra `blockmdp[minigrid]`. The layout is that of `env.reset(seed=seed)`, the same
    in all episodes. Every action is tried in every state. A state is the agent's cell and
    direction, what it carries, where all objects are, and which doors are open or locked.

    Parameters
    ----------
    env : str
        Id of the environment, such as "MiniGrid-DoorKey-5x5-v0".
    horizon : int or None, default=None
        Number of actions in an episode. None takes the environment's `max_steps`, which is long.
    observation : {"pixels", "grid", "view"}, default="pixels"
        What the agent sees. "pixels" is a picture of the whole grid from above, without the empty
        margin. "grid" is the type, colour and state of each cell, and the agent's direction and
        what it carries. "view" is the picture of what lies in front of the agent, as MiniGrid's own
        observations are; then many states look the same.
    noise : str, mapping or None, default=None
        Noise of the picture: "tint", "distractors", "pixel" or "shift", or arguments of `Screens`
        such as `{"tint": 0.5, "pixel": 0.02}`. None shows the picture as it is.
    reward : {"success", "early"}, default="success"
        "success" pays 1 for success. "early" pays 1 - 0.9 t / H after t steps, as MiniGrid
        does; then the reward depends on the level, and one table is stored for each level.
    tile : int, default=4
        Pixels on each side of a cell.
    cap : int, default=20_000
        Largest number of states.
    seed : int, default=0
        Seed of the layout.

    Returns
    -------
    BlockMDP
        The problem. `m.is_block()` says whether no two states look the same.

    See Also
    --------
    tabulate : Does the same for any environment with few states.
    Screens : The noise.
    blockmdp.oracles.images : An oracle for such pictures.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.minigrid("MiniGrid-Empty-5x5-v0", 10, noise="tint")  # doctest: +SKIP
    >>> m  # doctest: +SKIP
    <Empty-5x5: horizon 10, 34 states, 7 actions, <Screens: 34 states, 20 x 20 pixels, tint 0.3>>
    """
    if observation not in ("pixels", "grid", "view"):
        raise ValueError(f"observation must be 'pixels', 'grid' or 'view', got {observation!r}")
    if reward not in ("success", "early"):
        raise ValueError(f"reward must be 'success' or 'early', got {reward!r}")
    arguments = _noise(noise)
    if arguments and observation == "grid":
        raise ValueError("noise needs a picture: set observation='pixels', or noise=None")
    made = _make(env)
    H = int(made.unwrapped.max_steps) if horizon is None else check_integer("horizon", horizon, 1)
    look, layout = _Look(observation, check_integer("tile", tile, 1)), _Layout()
    m = tabulate(
        _Success(made),
        layout.key,
        H,
        set_state=layout.set_state,
        observe=lambda env, _: look(env.unwrapped),
        emission=lambda S: Screens(look.shown, **arguments) if arguments else Fixed(look.shown),
        cap=cap,
        seed=seed,
        name=env.removeprefix("MiniGrid-").removesuffix("-v0"),
    )
    return _paying_early(m) if reward == "early" else m


def _noise(noise: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of `Screens`."""
    if noise is None:
        return {}
    if isinstance(noise, Mapping):
        allowed = [name for name in inspect.signature(Screens).parameters if name != "pictures"]
        for name in noise:
            if name not in allowed:
                raise ValueError(f"noise must have keys from {_listed(name, allowed)}")
        Screens(np.zeros((1, 1, 1, 3)), **noise)  # checks the values before states are explored
        return dict(noise)
    if not isinstance(noise, str) or noise not in NOISES:
        raise ValueError(f"noise must be a mapping, None or one of {_listed(noise, NOISES)}")
    return NOISES[noise]


def _listed(word: object, allowed: Iterable[str]) -> str:
    """Return the end of a message about a word that is not allowed."""
    names = ", ".join(map(repr, allowed))
    return f"{names}, got {word!r}{did_you_mean(word, allowed)}"


def _make(env: str) -> Any:
    """Make a MiniGrid environment without a limit of steps."""
    try:
        import minigrid  # noqa: F401, it registers the ids
        from minigrid.minigrid_env import MiniGridEnv
    except ImportError:
        raise ImportError("MiniGrid is missing: pip install 'blockmdp[minigrid]'") from None
    made = gymnasium.make(env).unwrapped
    if not isinstance(made, MiniGridEnv):
        raise ValueError(f"env must be the id of a MiniGrid environment, got {env!r}: use tabulate")
    return made


class _Success(gymnasium.RewardWrapper[Any, Any]):
    """Pays 1 for success. MiniGrid pays less the later it comes."""

    def reward(self, reward: Any) -> float:
        return float(np.sign(reward))


class _Layout:
    """Reads the state of a MiniGrid environment, and restores it.

    Objects that look alike are different, because an environment may ask for one of them.
    """

    def __init__(self) -> None:
        self._objects: list[Any] | None = None  # those that can change

    def _begin(self, env: Any) -> list[Any]:
        """Look at the objects of an environment that was just reset."""
        objects = [o for o in env.grid.grid if o is not None and o.type not in _NEVER_CHANGE]
        for each in objects:  # it grows: a box may contain another one
            if getattr(each, "contains", None) is not None:
                objects.append(each.contains)
        self._numbers = {id(each): i for i, each in enumerate(objects)}
        self._rest = [None if id(o) in self._numbers else o for o in env.grid.grid]
        return objects

    def key(self, env: Any) -> tuple[Any, ...]:
        """Return the agent's place and direction, what it carries, all places, and the doors."""
        if self._objects is None:
            self._objects = self._begin(env)
        places = [-1] * len(self._objects)
        for cell, each in enumerate(env.grid.grid):
            if id(each) in self._numbers:
                places[self._numbers[id(each)]] = cell
        carried = -1 if env.carrying is None else self._numbers[id(env.carrying)]
        doors = tuple((each.is_open, each.is_locked) for each in self._doors())
        x, y = map(int, env.agent_pos)
        return x, y, int(env.agent_dir), carried, tuple(places), doors

    def set_state(self, env: Any, key: tuple[Any, ...]) -> None:
        """Bring the environment into the state with this key."""
        assert self._objects is not None
        x, y, env.agent_dir, carried, places, doors = key
        env.agent_pos, env.step_count = (x, y), 0
        env.carrying = None if carried < 0 else self._objects[carried]
        env.grid.grid = list(self._rest)
        for each, cell in zip(self._objects, places):
            each.cur_pos = (-1, -1) if cell < 0 else (cell % env.width, cell // env.width)
            if cell >= 0:
                env.grid.grid[cell] = each
        for door, (is_open, is_locked) in zip(self._doors(), doors):
            door.is_open, door.is_locked = is_open, is_locked

    def _doors(self) -> list[Any]:
        return [each for each in self._objects or () if each.type == "door"]


class _Look:
    """What the agent sees of a MiniGrid environment; `shown` has it for all states."""

    def __init__(self, observation: str, tile: int) -> None:
        self.observation, self.tile = observation, tile
        self.shown: list[NDArray[np.uint8]] = []

    def __call__(self, env: Any) -> NDArray[np.uint8]:
        if self.observation == "grid":
            cells, agent = env.grid.encode().ravel(), (*env.agent_pos, env.agent_dir)
            carried = (0, 0, 0) if env.carrying is None else env.carrying.encode()
            x = np.concatenate([cells, agent, carried])
        elif self.observation == "view":
            x = env.get_frame(tile_size=self.tile, agent_pov=True)
        else:
            if not self.shown:
                self._inside = _without_margin(env, self.tile)
            x = env.get_frame(highlight=False, tile_size=self.tile)[self._inside]
        self.shown.append(x.astype(np.uint8))
        return self.shown[-1]


def _without_margin(env: Any, tile: int) -> tuple[slice, slice]:
    """Return the part of a picture in which there is something in the grid."""
    cells = np.array([each is not None for each in env.grid.grid])
    rows, columns = np.nonzero(cells.reshape(env.height, env.width))
    (top, left), (bottom, right) = ((f(rows), f(columns)) for f in (np.min, np.max))
    return slice(top * tile, (bottom + 1) * tile), slice(left * tile, (right + 1) * tile)


def _paying_early(m: BlockMDP) -> BlockMDP:
    """Return a problem that pays less the later success comes, as MiniGrid does."""
    states, P, r, _ = m._tables
    assert states is not None
    H = m.horizon
    pay = (1 - 0.9 * np.arange(1, H + 1) / H)[:, None, None, None]
    return BlockMDP(
        m.initial,
        Successors(np.repeat(states, H, axis=0), np.repeat(P, H, axis=0)),
        np.where(r > 0, pay, r),
        emission=m.emission,
        name=m.name,
        horizon=H,
        ends=m.ends,
    )
