"""Block MDPs from Gymnasium environments that others wrote.

`from_gymnasium` reads the table of a tabular environment, and `tabulate` makes the table of any
environment with few states by trying every action in every state.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from blockmdp.checks import check_integer, is_terminal, warn
from blockmdp.emissions import Emission, Fixed
from blockmdp.envs.gym import horizon_of, mdp_of
from blockmdp.mdp import BlockMDP, Successors

__all__ = ["from_gymnasium", "tabulate"]

Env = gymnasium.Env[Any, Any]
Outcome = tuple[float, int, float]  # probability, next state and reward
RESETS = 1000  # from which an unknown initial distribution is estimated
_CHANGE_NOTHING = (PassiveEnvChecker, OrderEnforcing, TimeLimit)


def from_gymnasium(
    env: Env | str,
    horizon: int | None = None,
    *,
    emission: Emission | Callable[[int], Emission] | None = None,
    name: str | None = None,
    **options: Any,
) -> BlockMDP:
    """Make the Block MDP of a tabular Gymnasium environment, from the environment's own table.

    Such environments, for example FrozenLake, Taxi and CliffWalking, have the table
    `env.unwrapped.P[s][a]`: a list of (probability, next state, reward, terminated). All levels are
    alike and stored once. An episode ends where the environment ends it, or at level H. If the same
    state can also be entered without ending the episode, a last state is added in which episodes
    end.

    Parameters
    ----------
    env : gymnasium.Env or str
        An environment with a table, or its id.
    horizon : int or None, default=None
        Number of actions in an episode. None takes the environment's `max_episode_steps`.
    emission : Emission, function or None, default=None
        What the agent sees of a state; or a function that makes an emission for a given number of
        states. None shows the number of the state, as the environment does.
    name : str or None, default=None
        Name in titles and messages. None takes that of the environment.
    **options : object
        Arguments of `gymnasium.make`, if `env` is an id.

    Returns
    -------
    BlockMDP
        The problem. If the environment belongs to a Block MDP, this Block MDP.

    See Also
    --------
    tabulate : For environments without a table.
    BlockMDP.to_gymnasium : The inverse.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.from_gymnasium("FrozenLake-v1", is_slippery=True)
    >>> m
    <FrozenLake: horizon 100, 16 states, 4 actions, <Fixed: 16 states in 1 dimensions>>
    >>> round(m.optimal_value(), 4)
    0.7442
    """
    env = _made(env, options)
    known = mdp_of(env)
    if known is not None and emission is None and horizon in (None, known.horizon):
        return known
    table, n_actions = _table(env)
    _check_table(table, n_actions, env)
    horizon = horizon_of(env) if horizon is None else check_integer("horizon", horizon, 1)
    initial = _initial(env, len(table))
    ends = _ends(table, np.flatnonzero(initial))
    outcomes = [
        [
            [(p, ends.get(t, t) if done else t, r) for p, t, r, done in table[s][a] if p > 0]
            for a in range(n_actions)
        ]
        for s in range(len(table))
    ]
    absorbing = set(ends.values())
    extra = len(table) in absorbing
    initial = np.append(initial, 0.0) if extra else initial
    outcomes += [[]] * extra
    for s in absorbing:
        outcomes[s] = [[(1.0, s, 0.0)]] * n_actions
    S = len(outcomes)
    return BlockMDP(
        initial,
        *_lists(outcomes),
        emission=_emission(emission, S, np.arange(S)[:, None]),
        name=name or _name(env),
        horizon=horizon,
        ends=np.isin(np.arange(S), list(absorbing)),
    )


def _check_table(table: Any, n_actions: int, env: Any) -> None:
    """Raise ValueError for a probability or a next state that cannot be."""
    for s, a in itertools.product(range(len(table)), range(n_actions)):
        for p, t, r, _ in table[s][a]:
            if not (0 <= p <= 1 + 1e-9 and math.isfinite(r)):
                what = f"probability {p} and reward {r}"
            elif not 0 <= t < len(table):
                what = f"next state {t}, but there are {len(table)} states"
            else:
                continue
            raise ValueError(f"P of {env}: action {a} in state {s} has the {what}")


def tabulate(
    env: Env | str,
    key: Callable[[Any], Hashable] | None = None,
    horizon: int | None = None,
    *,
    set_state: Callable[[Any, Any], None] | None = None,
    observe: Callable[[Any, Any], Any] | None = None,
    emission: Emission | Callable[[int], Emission] | None = None,
    draws: int | None = None,
    starts: int = 1,
    cap: int = 10_000,
    seed: int = 0,
    name: str | None = None,
) -> BlockMDP:
    """Make the Block MDP of an environment by trying every action in every state.

    The search is breadth first, over copies of the environment (`copy.deepcopy`). States are
    numbered in the order in which they are found, and all of them can be reached. An episode ends
    at the horizon; a warning says so if the environment truncates it earlier.

    Parameters
    ----------
    env : gymnasium.Env or str
        An environment with discrete actions, or its id.
    key : function or None, default=None
        Function of `env.unwrapped` that returns a hashable value: what the state is. Two moments
        with the same key must have the same future, so leave out only what does not matter, such as
        a counter of steps. None takes the observation as the state.
    horizon : int or None, default=None
        Number of actions in an episode. None takes the environment's `max_episode_steps`.
    set_state : function or None, default=None
        Function of `env.unwrapped` and a key that brings the environment into that state. Then no
        copies are needed.
    observe : function or None, default=None
        Function of an environment and its last observation that returns what the agent will see of
        the state, an array. None takes `env.render()` if `render_mode` is "rgb_array", otherwise
        the observation.
    emission : Emission, function or None, default=None
        What the agent sees instead; or a function that makes an emission for a given number of
        states. None shows what `observe` returns, without noise.
    draws : int or None, default=None
        None is for environments whose steps are deterministic: every action is tried twice, with
        different random numbers, and a difference is an error. Otherwise every action is tried this
        many times, and frequencies are taken for probabilities: an estimate.
    starts : int, default=1
        Number of resets, with the seeds `seed`, `seed` + 1, ...; frequencies of their states are
        the initial distribution. With 1, all episodes start as `env.reset(seed=seed)` does.
    cap : int, default=10_000
        Largest number of states.
    seed : int, default=0
        Seed of the first reset.
    name : str or None, default=None
        Name in titles and messages. None takes that of the environment.

    Returns
    -------
    BlockMDP
        The problem.

    See Also
    --------
    from_gymnasium : For environments with a table; it is exact and needs no search.

    Examples
    --------
    >>> import blockmdp as bm
    >>> lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    >>> m = bm.tabulate(lake, key=lambda env: int(env.s), horizon=20)
    >>> m
    <FrozenLake: horizon 20, 16 states, 4 actions, <Fixed: 16 states in 1 dimensions>>
    >>> m.optimal_value()
    1.0
    """
    env = _made(env, {})
    n_actions, first = _actions(env)
    horizon = horizon_of(env) if horizon is None else check_integer("horizon", horizon, 1)
    draws = draws if draws is None else check_integer("draws", draws, 1)
    search = _Search(env, key, set_state, observe, check_integer("cap", cap, 1), horizon)
    met = [search.start(seed + i) for i in range(check_integer("starts", starts, 1))]
    outcomes: list[Sequence[Sequence[Outcome]]] = []
    with _progress(_name(env)) as show:
        while len(outcomes) < len(search.found):
            show(len(outcomes), len(search.found))
            s = len(outcomes)
            if search.ended[s]:
                outcomes.append([[(1.0, s, 0.0)]] * n_actions)
            else:
                outcomes.append([search.step(s, first + a, draws) for a in range(n_actions)])
            search.forget(s)
    S = len(outcomes)
    return BlockMDP(
        np.bincount(met, minlength=S) / len(met),
        *_lists(outcomes),
        emission=_emission(emission, S, search.shown),
        name=name or _name(env),
        horizon=horizon,
        ends=search.ended,
    )


def _made(env: Env | str, options: dict[str, Any]) -> Env:
    """Return an environment; make it if it is an id."""
    if isinstance(env, str):
        return gymnasium.make(env, **options)
    if not isinstance(env, gymnasium.Env):
        raise ValueError(f"env must be a Gymnasium environment or the id of one, got {env!r}")
    if options:
        raise ValueError(f"{', '.join(options)}: arguments of gymnasium.make need an id, got {env}")
    return env


def _name(env: Env) -> str:
    """Return the name of an environment, without namespace and version."""
    if env.spec is not None:
        return env.spec.name
    return type(env.unwrapped).__name__


def _actions(env: Env) -> tuple[int, int]:
    """Return the number of actions and the first one."""
    space = env.action_space
    if not isinstance(space, spaces.Discrete):
        raise ValueError(
            f"actions of {env} must be Discrete, got {space}: wrap it with "
            "gymnasium.wrappers.DiscretizeAction"
        )
    return int(space.n), int(space.start)


def _emission(
    emission: Emission | Callable[[int], Emission] | None, S: int, shown: Any
) -> Emission:
    """Return the emission of a problem with S states; `shown` is what to show without one."""
    if emission is None:
        return Fixed(shown)
    made = emission(S) if callable(emission) else emission
    if not isinstance(made, Emission):
        raise ValueError(
            "emission must be an Emission, a function that makes one for a number of states, or "
            f"None, got {made!r}"
        )
    return made


def _lists(outcomes: Sequence[Sequence[Sequence[Outcome]]]) -> tuple[Successors, NDArray[Any]]:
    """Return the transitions and their rewards (S, A, K), from outcomes[s][a].

    A state that is there several times with different rewards pays their mean.
    """
    merged = [[_merged(each) for each in row] for row in outcomes]
    K = max(len(each) for row in merged for each in row)
    shape = (len(merged), len(merged[0]), K)
    states, P, r = np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape)
    for s, row in enumerate(merged):
        for a, each in enumerate(row):
            for k, (p, t, reward) in enumerate(each):
                states[s, a, k], P[s, a, k], r[s, a, k] = t, p, reward
    return Successors(states, P), r


def _merged(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Add the probabilities of outcomes with the same next state."""
    same: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for p, t, r in outcomes:
        same[t].append((p, r))
    merged = []
    for t, pairs in same.items():
        total = sum(p for p, _ in pairs)
        rewards = {r for _, r in pairs}
        mean = rewards.pop() if len(rewards) == 1 else sum(p * r for p, r in pairs) / total
        merged.append((total, t, mean))
    return merged


# --- the table of an environment ------------------------------------------------------------------
def _table(env: Env) -> tuple[Any, int]:
    """Return the table of an environment, and the number of actions."""
    inner: Any = env
    while isinstance(inner, gymnasium.Wrapper):
        if type(inner) not in _CHANGE_NOTHING:
            raise ValueError(
                f"{type(inner).__name__} may change {env}, and the table knows nothing of it: give "
                "env.unwrapped, or use tabulate"
            )
        inner = inner.env
    table, states, actions = getattr(inner, "P", None), env.observation_space, env.action_space
    if table is None or not all(isinstance(x, spaces.Discrete) for x in (states, actions)):
        raise ValueError(
            f"{env} has no table P[state][action]: use tabulate, or learn from it as a black box"
        )
    if getattr(inner, "fickle_passenger", False):
        raise ValueError(f"{env} with fickle_passenger does more than its table P says")
    n_states, n_actions = int(states.n), int(actions.n)  # type: ignore[attr-defined]
    try:
        rows = [
            [
                [(float(p), int(t), float(r), bool(done)) for p, t, r, done in table[s][a]]
                for a in range(n_actions)
            ]
            for s in range(n_states)
        ]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"the table P of {env} must have a list of (probability, next state, reward, "
            f"terminated) for each of {n_states} states and {n_actions} actions: {error!r}"
        ) from None
    return rows, n_actions


def _initial(env: Env, S: int) -> NDArray[np.float64]:
    """Return the probability of each initial state."""
    known = getattr(env.unwrapped, "initial_state_distrib", None)
    if known is not None:
        return np.array(known, np.float64)
    first = Counter(int(env.reset(seed=i)[0]) for i in range(RESETS))
    if len(first) > 1:
        warn(f"{env} does not state its initial distribution: it is estimated from {RESETS} resets")
    initial = np.zeros(S)
    initial[list(first)] = np.array(list(first.values())) / RESETS
    return initial


def _ends(table: Any, starts: Iterable[int]) -> dict[int, int]:
    """Return where episodes stay that ended in each state: there, or in an extra state.

    A state in which the episode may also go on cannot be both.
    """
    alive, todo, ended = set(starts), list(starts), set()
    while todo:
        for outcomes in table[todo.pop()]:
            for p, t, _, done in outcomes:
                if p > 0 and done:
                    ended.add(t)
                elif p > 0 and t not in alive:
                    alive.add(t)
                    todo.append(t)
    # states that cannot be reached keep their rows, unless they are ends
    unreached = {t for row in table for each in row for p, t, _, done in each if p > 0 and done}
    return {t: len(table) if t in alive else t for t in ended | unreached}


# --- the search -----------------------------------------------------------------------------------
def _reseed(env: Any, numbers: tuple[int, ...]) -> None:
    """Give an environment, and what it wraps, new random numbers."""
    env.unwrapped.np_random = np.random.default_rng(numbers)
    layers = [env]
    while layers[-1] is not env.unwrapped:
        layers.append(layers[-1].env)
    for layer in layers:
        for name, value in list(vars(layer).items()):
            if isinstance(value, np.random.Generator) and name != "_np_random":
                setattr(layer, name, np.random.default_rng((*numbers, 1)))
            elif isinstance(value, np.random.RandomState):
                value.seed([*numbers, 1])
            elif isinstance(value, random.Random):
                value.seed(repr(numbers))


class _Search:
    """The states of an environment that were found so far.

    Parameters
    ----------
    env : gymnasium.Env
        The environment, which is changed if there is a `set_state`.
    key, set_state, observe, cap, horizon : object
        Arguments of `tabulate`.
    """

    def __init__(
        self, env: Env, key: Any, set_state: Any, observe: Any, cap: int, horizon: int
    ) -> None:
        self.env, self.key, self.set_state, self.observe = env, key, set_state, observe
        self.cap, self.horizon = cap, horizon
        self.found: dict[Hashable, int] = {}  # key and whether the episode has ended -> state
        self.keys: list[Any] = []
        self.ended: list[bool] = []
        self.depths: list[int] = []  # steps in which each state was found
        self.shown: list[NDArray[Any]] = []
        self._copies: deque[Any] = deque()  # of the states that are still to be searched
        self._first = 0  # state of the first copy

    def start(self, seed: int) -> int:
        """Reset the environment, and return the number of its state."""
        x, _ = self.env.reset(seed=seed)
        return self._number(self.env, x, ended=False, depth=0)

    def step(self, s: int, a: int, draws: int | None) -> list[Outcome]:
        """Return what action a in state s leads to."""
        seen: Counter[tuple[int, float]] = Counter()
        for i in range(draws or 2):
            env = self._at(s)
            if i > 0 or draws is not None:  # the first step of deterministic ones is as it comes
                _reseed(env, (s, a, i))
            x, r, terminated, truncated, _ = env.step(a)
            depth = self.depths[s] + 1
            if not math.isfinite(r):
                raise ValueError(f"action {a} in state {self._where(s)} of {self.env} pays {r}")
            if truncated and not terminated and depth < self.horizon and self.set_state is None:
                warn(
                    f"{self.env} truncates an episode after {depth} steps, before the horizon of "
                    f"{self.horizon}: tabulate goes on. Set horizon={depth} to end it there"
                )
                self.horizon = 0  # one warning is enough
            number = self._number(env, x, ended=bool(terminated), depth=depth)
            seen[number, float(r)] += 1
        if draws is None and len(seen) > 1:
            raise ValueError(
                f"{self.env} is random: action {a} in state {self._where(s)} has more than one "
                "result. "
                "Set draws, such as draws=1000, to estimate probabilities"
            )
        return [(n / (draws or 2), t, r) for (t, r), n in seen.items()]

    def _where(self, s: int) -> str:
        """Return the name of a state in messages."""
        return repr(s if self.key is None else self.keys[s])

    def forget(self, s: int) -> None:
        """Give up the copy of state s, which is the first one."""
        self._copies.popleft()
        self._first = s + 1

    def _at(self, s: int) -> Any:
        """Return an environment in state s that may be changed."""
        if self.set_state is None:
            return self._copy(self._copies[s - self._first])
        self.set_state(self.env.unwrapped, self.keys[s])
        if self.key is not None and (key := self.key(self.env.unwrapped)) != self.keys[s]:
            raise ValueError(
                f"set_state must bring {self.env} into the state with the key {self.keys[s]!r}, "
                f"but then key returns {key!r}"
            )
        return self.env

    def _number(self, env: Any, x: Any, *, ended: bool, depth: int) -> int:
        """Return the number of the state of an environment, and remember it if it is new."""
        key = _observation(x, env).tobytes() if self.key is None else self.key(env.unwrapped)
        try:
            number = self.found.setdefault((key, ended), len(self.found))
        except TypeError:
            raise ValueError(f"key must return something hashable, got {key!r}") from None
        if number == len(self.keys):
            if number == self.cap:
                raise ValueError(
                    f"{self.env} has more than {self.cap:,} states: raise cap, or let key leave "
                    "out what does not matter for the future"
                )
            self.keys.append(key)
            self.ended.append(ended)
            self.depths.append(depth)
            copied = None if self.set_state is not None else self._copy(env)
            self._copies.append(copied)
            self.shown.append(self._observe(env if copied is None else self._copy(env), x))
        return number

    def _observe(self, env: Any, x: Any) -> NDArray[Any]:
        """Return what the agent will see. Drawing may leave something that cannot be copied."""
        if self.observe is not None:
            shown = np.array(self.observe(env, x))
        elif env.render_mode == "rgb_array":
            shown = np.array(env.render())
        else:
            shown = _observation(x, env)
        if self.shown and shown.shape != self.shown[0].shape:
            raise ValueError(
                f"observations of {self.env} must have the same shape, got {self.shown[0].shape} "
                f"and {shown.shape}"
            )
        return shown

    def _copy(self, env: Any) -> Any:
        try:
            return copy.deepcopy(env)
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(
                f"{self.env} cannot be copied ({reason}): give tabulate a function set_state"
            ) from None


def _observation(x: Any, env: Any) -> NDArray[Any]:
    """Return an observation as an array."""
    if env.observation_space.shape is None:
        raise ValueError(
            f"observations of {env} are a {type(env.observation_space).__name__}, not an array: "
            "give tabulate functions key and observe, or wrap it with "
            "gymnasium.wrappers.FlattenObservation"
        )
    return np.atleast_1d(np.array(x))


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows how many states were searched and found, in a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda searched, found: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(f"states of {name}", total=None)
        yield lambda searched, found: bars.update(task, completed=searched, total=found)
