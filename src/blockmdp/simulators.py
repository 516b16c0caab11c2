"""Where trajectories come from. Every one that any agent draws is drawn, and counted, here.

Two simulators have one face: `BlockSimulator` runs a `BlockMDP` in compiled (or interpreted) loops,
`GymSimulator` steps through any Gymnasium environment. For a `BlockMDP` both give the same numbers,
bit for bit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.decoder import decode_mixture
from blockmdp.emissions import Emission
from blockmdp.envs.gym import BlockMDPEnv, mdp_of
from blockmdp.kernels.jit import interpreted
from blockmdp.kernels.rollout import advance, choose, choose_one, number_visits, start
from blockmdp.kernels.simulate import Tape, learn
from blockmdp.kernels.tapes import fill_keys, splice
from blockmdp.learners.base import Learner
from blockmdp.mdp import BlockMDP
from blockmdp.sights import Sight, by_level

__all__ = [
    "BlockSimulator",
    "Engine",
    "GymSimulator",
    "Learning",
    "Observations",
    "Policy",
    "Problem",
    "Simulator",
    "Trajectories",
    "simulate",
]

Engine = Literal["auto", "compiled", "interpreted", "stepwise"]
Problem = BlockMDP | gym.Env[Any, Any] | str


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
    ledger : trajectories drawn so far, by kind.
    """

    mdp: BlockMDP | None
    horizon: int
    n_actions: int

    def __init__(self, seed: int) -> None:
        self.seed = _check_seed(seed)
        self.ledger: Counter[str] = Counter()
        self._agent_key = streams.agent(seed)
        self._policy_key = streams.policy(seed)
        self._mixture_key = streams.mixture(seed)

    @property
    def episodes(self) -> int:
        """Trajectories drawn so far, of all kinds."""
        return self.ledger.total()

    def start(self, learner: Learner, episodes: int) -> Learning:
        """Fresh tables for a run of that many episodes."""
        S = self.mdp.n_states if self.mdp else 1
        tables = learner.tables(self.horizon, S, self.n_actions, episodes)
        return Learning(learner, tables, np.zeros(episodes), S)

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

    def _make_room(self, run: Learning, labels: int) -> None:
        if labels > run.n_labels:
            run.n_labels = max(labels, 2 * run.n_labels)
            run.tables = run.learner.grow(
                run.tables, self.horizon, run.n_labels, self.n_actions, len(run.returns)
            )


class BlockSimulator(Simulator):
    """A BlockMDP in compiled loops; interpreted ones where asked, or where the learner is plain
    Python.
    """

    mdp: BlockMDP

    def __init__(self, mdp: BlockMDP, seed: int, *, compiled: bool = True) -> None:
        super().__init__(seed)
        self.mdp, self.horizon, self.n_actions = mdp, mdp.horizon, mdp.n_actions
        self._compiled = compiled
        self._world_key = streams.world(seed)
        self._tapes = _Tapes(mdp, seed)

    def learn(
        self, run: Learning, sight: Sight | None, n: int | None = None, *, record: bool = False
    ) -> Observations | None:
        stop = len(run.returns) if n is None else min(run.k + n, len(run.returns))
        loop = self._loop(run.learner)
        visits = self._tapes.visits.copy()
        while run.k < stop:
            tape = _SHOW_LATENT if sight is None else self._tapes.filled(sight, stop - run.k)
            if sight is not None:
                self._make_room(run, sight.n_labels)
            with np.errstate(over="ignore"):
                k = loop(
                    run.tables,
                    self.mdp.dynamics,
                    tape,
                    self._world_key,
                    self._agent_key,
                    self.episodes - run.k,
                    run.k,
                    run.returns[:stop],
                )
            self.ledger["learn"] += k - run.k
            run.k = k
        return self._tapes.shown(visits, self._tapes.visits - visits) if record else None

    def rollout(
        self, policies: Sequence[Policy], n: int, kind: str, *, keep_x: bool = True
    ) -> Trajectories:
        mdp, H, model = self.mdp, self.horizon, self.mdp.dynamics.model
        which = self._mixture(policies, n)
        e = rng.children(self._world_key, self.episodes, n)
        c = rng.children(self._policy_key, self.episodes, n)
        x = np.empty((n, H + 1 if keep_x else 0, mdp.emission.dim), mdp.emission.dtype)
        actions, rewards = np.empty((n, H), np.int64), np.empty((n, H))
        with np.errstate(over="ignore"):
            s = start(mdp.dynamics.initial, e)
            for h in range(H + 1):
                xh = self._tapes.show(h, s)
                if keep_x:
                    x[:, h] = xh
                if h < H:
                    labels = decode_mixture([p.f for p in policies], which, h, xh)
                    a = choose(
                        _stack(policies, h, int(labels.max(initial=0)) + 1), which, labels, c, h
                    )
                    actions[:, h] = a
                    s, rewards[:, h] = advance(model, h, s, a, e)
        self.ledger[kind] += n
        return Trajectories(x, actions, rewards, np.full(n, H))

    def _loop(self, learner: Learner) -> Any:
        functions: tuple[Any, ...] = (learner.act, learner.update, learner.plan)
        loop: Any = learn
        if not (self._compiled and learner.is_compiled()):
            functions, loop = tuple(map(interpreted, functions)), interpreted(learn)
        elif learner.compiled_loop is not None:
            return learner.compiled_loop
        return lambda *arguments: loop(*functions, *arguments)


class _Tapes:
    """Observations of a BlockMDP, drawn and decoded ahead of their use (see `Tape`).

    What the n-th visit to (level, latent state) shows depends on the seed alone, so neither the
    size of a batch nor a change of sight in between changes what is seen; a new sight decodes
    afresh what has not been used yet.
    """

    rows_at_once = 1 << 18
    least_rows = 1 << 14  # a call of `predict` costs the same up to about so many

    def __init__(self, mdp: BlockMDP, seed: int) -> None:
        self.mdp = mdp
        shape = (mdp.horizon + 1, mdp.n_states)
        self._cell_keys = np.array(
            [streams.noise(seed, h, s) for h in range(shape[0]) for s in range(shape[1])], np.uint64
        )
        self.visits = np.zeros(shape, np.int64)
        self._limit = np.zeros(shape, np.int64)
        self._shift = np.zeros(shape, np.int64)
        self._labels = np.zeros(0, np.int32)
        self._sight: Sight | None = None
        self._then = (
            np.zeros(shape, np.int64),
            0,
        )  # visits, and their episodes, at the last filling

    def filled(self, sight: Sight, episodes: int) -> Tape:
        """A tape that lasts for one episode at least, and for about as many as there have been so
        far.
        """
        if sight is not self._sight:
            self._sight = sight
            self._limit = self.visits.copy()
        past = int(self.visits[0].sum())
        visits, episode = self._then
        rate = (self.visits - visits) / max(past - episode, 1)
        cells = self.visits.size
        rows = min(self.rows_at_once, (1 << 24) // self.mdp.emission.dim)
        ahead = min(episodes, max(past, 1), rows // (self.mdp.horizon + 1) + 1)
        spare = min(max(self.least_rows // cells, 16), 1024)
        expected = rate * ahead
        want = np.minimum(expected + 2 * np.sqrt(expected) + spare, episodes).astype(np.int64)
        left = self._limit - self.visits
        self._fill(sight, left, np.maximum(want - left, 0))
        self._then = (self.visits.copy(), past)
        return Tape(self._labels, self._shift, self._limit, self.visits)

    def show(self, level: int, states: NDArray[np.int64]) -> NDArray[Any]:
        """What the next n trajectories see of their states (n,) at a level, (n, dim)."""
        keys = number_visits(
            self._cell_keys.reshape(self.visits.shape)[level], self.visits[level], states
        )
        # what the tape holds for these visits is skipped
        self._limit = np.maximum(self._limit, self.visits)
        return self.mdp.emission.sample(level, states, keys)

    def shown(self, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Observations:
        """What visits starts, ..., starts + counts - 1 to each (level, latent state) showed."""
        level, state = (np.repeat(i.ravel(), counts.ravel()) for i in np.indices(counts.shape))
        with np.errstate(over="ignore"):
            keys = fill_keys(self._cell_keys, starts.ravel(), counts.ravel())
        return Observations(level, observe(self.mdp.emission, level, state, keys))

    def _fill(self, sight: Sight, left: NDArray[np.int64], new: NDArray[np.int64]) -> None:
        ahead = self.shown(self.visits + left, new)
        labels = np.asarray(sight.decode(ahead.levels, ahead.x), np.int32)
        first = (self._shift + self.visits).ravel()
        self._labels = splice(self._labels, first, left.ravel(), labels, new.ravel())
        held = left + new
        start = np.cumsum(held.ravel()) - held.ravel()
        self._limit = self.visits + held
        self._shift = start.reshape(held.shape) - self.visits


def observe(
    emission: Emission,
    levels: NDArray[np.int64],
    states: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> NDArray[Any]:
    """One observation for each level, latent state and key, (n, dim)."""
    if emission.stationary:
        return emission.sample(0, states, keys)
    x = np.empty((len(states), emission.dim), emission.dtype)
    for h, rows in by_level(levels):
        x[rows] = emission.sample(h, states[rows], keys[rows])
    return x


_NOTHING = np.zeros((0, 0), np.int64)
_SHOW_LATENT = Tape(np.zeros(0, np.int32), _NOTHING, _NOTHING, _NOTHING)


class GymSimulator(Simulator):
    """Any Gymnasium environment with discrete actions and a bounded episode, one step at a time."""

    def __init__(self, env: gym.Env[Any, Any], seed: int, horizon: int | None = None) -> None:
        super().__init__(seed)
        self.env = env
        self.mdp = mdp_of(env)
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise ValueError(f"{env} has the actions {env.action_space}; Discrete ones are needed")
        self.n_actions = int(env.action_space.n)
        self.horizon = horizon or _horizon_of(env, self.mdp)
        self._first_action = int(env.action_space.start)
        self._fresh = True

    def learn(
        self, run: Learning, sight: Sight | None, n: int | None = None, *, record: bool = False
    ) -> Observations | None:
        stop = len(run.returns) if n is None else min(run.k + n, len(run.returns))
        learner, seen = run.learner, _Seen()
        while run.k < stop:
            with np.errstate(over="ignore"):
                choices = np.uint64(rng.child(self._agent_key, run.k))
            x, info = self._reset()
            s = self._label(run, sight, 0, x, info)
            total, h, done = 0.0, 0, False
            while not done:
                if record:
                    seen.add(h, x)
                with np.errstate(over="ignore"):
                    a = int(learner.act(run.tables, run.k, h, s, np.uint64(rng.step(choices, h))))
                x, r, done, early, info = self._step(h, a)
                s_next = -1 if early else self._label(run, sight, h + 1, x, info)
                learner.update(run.tables, h, s, a, r, s_next)
                total += r
                s, h = s_next, h + 1
            if record:
                seen.add(h, x)
            learner.plan(run.tables, run.k)
            run.returns[run.k] = total
            run.k += 1
            self.ledger["learn"] += 1
        return seen.observations() if record else None

    def rollout(
        self, policies: Sequence[Policy], n: int, kind: str, *, keep_x: bool = True
    ) -> Trajectories:
        H = self.horizon
        which = self._mixture(policies, n)
        c = rng.children(self._policy_key, self.episodes, n)
        first = self.episodes
        x: list[list[Any]] = []
        actions, rewards = np.zeros((n, H), np.int64), np.zeros((n, H))
        lengths = np.zeros(n, np.int64)
        for i in range(n):
            policy = policies[which[i]]
            xh, _ = self._reset()
            rows, h, done = [xh], 0, False
            while not done:
                label = int(policy.f.decode(np.array([h]), np.asarray(xh)[None])[0])
                with np.errstate(over="ignore"):
                    pi = _padded(policy.pi[h], label + 1)
                    actions[i, h] = choose_one(pi, label, c[i], h)
                xh, rewards[i, h], done, _, _ = self._step(h, int(actions[i, h]))
                rows.append(xh)
                h += 1
            lengths[i] = h
            if keep_x:
                x.append(rows + [np.zeros_like(rows[0])] * (H - h))
            self.ledger[kind] += 1
        assert self.episodes == first + n
        return Trajectories(np.array(x) if keep_x else np.empty((n, 0)), actions, rewards, lengths)

    def _step(self, h: int, a: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward, whether the episode is over, whether early, info."""
        if h == self.horizon:
            raise ValueError(
                f"an episode of {self.env} did not end after {h} steps: give fit a larger horizon, "
                "or wrap the environment in gymnasium.wrappers.TimeLimit"
            )
        x, r, terminated, truncated, info = self.env.step(a + self._first_action)
        early = bool(terminated) and h + 1 < self.horizon
        return x, float(r), bool(terminated or truncated), early, info

    def _reset(self) -> tuple[Any, dict[str, Any]]:
        seed = self.seed if self._fresh else None
        self._fresh = False
        return self.env.reset(seed=seed)

    def _label(
        self, run: Learning, sight: Sight | None, level: int, x: Any, info: dict[str, Any]
    ) -> int:
        if sight is None:
            if "latent_state" not in info:
                raise ValueError(
                    f"{self.env} does not tell its latent state (info has no 'latent_state'); "
                    "learn on='observation'"
                )
            label = int(info["latent_state"])
            self._make_room(run, label + 1)
        else:
            label = int(sight.decode(np.array([level]), np.asarray(x)[None])[0])
            self._make_room(run, sight.n_labels)
        return label


class _Seen:
    """Collects observations one by one."""

    def __init__(self) -> None:
        self.levels: list[int] = []
        self.x: list[Any] = []

    def add(self, level: int, x: Any) -> None:
        self.levels.append(level)
        self.x.append(x)

    def observations(self) -> Observations:
        return Observations(np.array(self.levels, np.int64), np.array(self.x))


def _stack(policies: Sequence[Policy], h: int, labels: int) -> NDArray[np.float64]:
    """The policies' probabilities at level h, (P, L, A), with room for so many labels."""
    L = max(labels, *(p.pi.shape[1] for p in policies)) if policies else labels
    return np.stack([_padded(p.pi[h], L) for p in policies])


def _padded(pi: NDArray[np.float64], labels: int) -> NDArray[np.float64]:
    """pi (L, A) with room for so many labels, of which the new ones act at random."""
    new = labels - len(pi)
    return np.pad(pi, ((0, new), (0, 0)), constant_values=1 / pi.shape[1]) if new > 0 else pi


def simulate(
    problem: Problem, seed: int = 0, *, engine: Engine = "auto", horizon: int | None = None
) -> Simulator:
    """The simulator of a problem: a BlockMDP, a Gymnasium environment or an environment's id.

    Parameters
    ----------
    engine : "auto" runs every BlockMDP in compiled loops, also one that comes as a Gymnasium
        environment, and steps through anything else. "compiled", "interpreted" and "stepwise"
        insist on one way.
    horizon : the longest episode; only where a Gymnasium environment does not say so itself.
    """
    if engine not in ("auto", "compiled", "interpreted", "stepwise"):
        raise ValueError(
            f"engine must be 'auto', 'compiled', 'interpreted' or 'stepwise', got {engine!r}"
        )
    if isinstance(problem, str):
        problem = gym.make(problem)
    if isinstance(problem, BlockMDP):
        mdp: BlockMDP | None = problem
    elif isinstance(problem, gym.Env):
        mdp = mdp_of(problem)
    else:
        raise TypeError(
            f"a problem is a BlockMDP, a Gymnasium environment or an environment's id, got "
            f"{problem!r}"
        )
    if mdp is None or engine == "stepwise":
        if engine in ("compiled", "interpreted"):
            raise ValueError(f"engine={engine!r} needs a BlockMDP, and {problem} hides none")
        env = BlockMDPEnv(problem) if isinstance(problem, BlockMDP) else problem
        return GymSimulator(env, seed, horizon)
    return BlockSimulator(mdp, seed, compiled=engine != "interpreted")


def _horizon_of(env: gym.Env[Any, Any], mdp: BlockMDP | None) -> int:
    if mdp is not None:
        return mdp.horizon
    horizon = getattr(env.spec, "max_episode_steps", None) or _time_limit(env)
    if not horizon:
        raise ValueError(
            f"{env} does not say how long an episode can be: give fit a horizon, or wrap the "
            "environment in "
            "gymnasium.wrappers.TimeLimit"
        )
    return int(horizon)


def _time_limit(env: gym.Env[Any, Any]) -> int | None:
    limit: int | None = None
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            limit = min(limit or math.inf, env._max_episode_steps)  # type: ignore[assignment]
        env = env.env
    return limit


def _check_seed(seed: int) -> int:
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number from 0 to 2**63 - 1, got {seed!r}")
    return int(seed)
