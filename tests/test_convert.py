"""Block MDPs from Gymnasium environments: the table of an environment, and the search for one."""

from __future__ import annotations

import io
import random
import sys
import threading
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeAwareObservation, TransformReward
from hypothesis import given, settings
from hypothesis import strategies as st

import blockmdp as bm
from blockmdp.envs import BlockMDPEnv, mdp_of
from blockmdp.simulators import make_simulator

TOY_TEXT = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake-v1", {"success_rate": 0.7, "reward_schedule": (2, -1, -0.1)}),
    ("FrozenLake8x8-v1", {}),
    ("CliffWalking-v1", {}),
    ("CliffWalkingSlippery-v1", {}),
    ("Taxi-v4", {}),
    ("Taxi-v4", {"is_rainy": True}),
]


def value_iteration(env, horizon):
    """Return V* of an environment with a table, without blockmdp."""
    table, S, A = env.unwrapped.P, env.observation_space.n, env.action_space.n
    V = [0.0] * S
    for _ in range(horizon):
        V = [
            max(
                sum(p * (r + (0.0 if done else V[t])) for p, t, r, done in table[s][a])
                for a in range(A)
            )
            for s in range(S)
        ]
    return sum(p * v for p, v in zip(env.unwrapped.initial_state_distrib, V))


@pytest.mark.parametrize(("id", "options"), TOY_TEXT, ids=[f"{i} {o}" for i, o in TOY_TEXT])
@pytest.mark.parametrize("horizon", [1, 13, 100])
def test_the_optimal_value_of_toy_text_is_that_of_value_iteration(id, options, horizon):
    env = gym.make(id, **options)
    m = bm.from_gymnasium(env, horizon)
    assert m.stationary == (horizon > 1)
    assert m.n_states == env.observation_space.n
    assert abs(m.optimal_value() - value_iteration(env, horizon)) < 1e-12
    assert m.optimal_value() == bm.from_gymnasium(id, horizon, **options).optimal_value()


def test_every_toy_text_environment_with_a_table_was_tried():
    here = {id for id, _ in TOY_TEXT}
    for id, spec in gym.registry.items():
        if "toy_text" in str(spec.entry_point) and hasattr(gym.make(id).unwrapped, "P"):
            assert id in here


@pytest.mark.parametrize("id", ["FrozenLake-v1", "CliffWalkingSlippery-v1", "Taxi-v4"])
def test_episodes_have_the_law_of_the_environment(id):
    """Means and frequencies of random walks agree within four standard errors."""
    H, n = 12, 1500
    env, m = gym.make(id), bm.from_gymnasium(id, H)
    random = np.random.default_rng(0)
    returns, last = np.zeros(n), np.zeros(n, int)
    for i in range(n):
        s, _ = env.reset(seed=i)
        for _ in range(H):
            s, r, terminated, _, _ = env.step(random.integers(m.n_actions))
            returns[i] += r
            if terminated:
                break
        last[i] = s
    ours = make_simulator(m).rollout([bm.Policy(m.uniform_policy())], 4 * n, "test")
    error = np.sqrt(returns.var() / n + ours.returns.var() / (4 * n))
    assert abs(returns.mean() - ours.returns.mean()) < 4 * error + 1e-9
    assert abs(returns.mean() - m.value(m.uniform_policy())) < 4 * np.sqrt(returns.var() / n) + 1e-9
    final = m.occupancy(m.uniform_policy())[H]
    share = np.bincount(last, minlength=m.n_states) / n
    common = final * n > 20
    assert not share[final == 0].any()
    assert (np.abs(share - final)[common] < 4.5 * np.sqrt(final / n)[common]).all()


class Table(gym.Env):
    """An environment that consists of a table `P`."""

    def __init__(self, table, initial=None, starts=(0,)):
        self.P, self.starts = table, starts
        if initial is not None:
            self.initial_state_distrib = initial
        self.observation_space = gym.spaces.Discrete(len(table))
        self.action_space = gym.spaces.Discrete(len(table[0]))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return int(self.np_random.choice(self.starts)), {}


def test_a_state_where_episodes_both_end_and_go_on_needs_another_one():
    table = {0: {0: [(0.5, 0, 1.0, True), (0.5, 0, 0.0, False)]}}
    m = bm.from_gymnasium(Table(table, [1.0]), 3)
    assert m.n_states == 2
    assert m.optimal_value() == 0.5 + 0.25 + 0.125
    assert m.transitions[0].tolist() == [[[0.5, 0.5]], [[0.0, 1.0]]]


def test_rewards_of_the_same_next_state_are_averaged():
    table = {0: {0: [(0.25, 0, 4.0, False), (0.75, 0, 0.0, False)]}}
    m = bm.from_gymnasium(Table(table, [1.0]), 2)
    assert (m.optimal_value(), m.rewards[0, 0, 0, 0]) == (2.0, 1.0)


def test_an_initial_distribution_that_is_not_stated_comes_from_resets():
    stay = {s: {0: [(1.0, s, float(s), False)]} for s in range(3)}
    assert bm.from_gymnasium(Table(stay, starts=(2,)), 1).initial.tolist() == [0, 0, 1]
    with pytest.warns(UserWarning, match="estimated from 1000 resets"):
        m = bm.from_gymnasium(Table(stay, starts=(1, 2)), 1)
    assert m.initial[0] == 0
    assert abs(m.initial[1] - 0.5) < 4 * 0.5 / np.sqrt(1000)


@st.composite
def tables(draw):
    """Tables in Gymnasium's format: repeated next states, ends, and impossible outcomes."""
    S, A = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    g = np.random.default_rng(draw(st.integers(0, 2**32)))

    def outcomes():
        n = g.integers(1, 5)
        p = g.choice([0.0, 1.0, 3.0], n)
        p[0] += 1.0
        p /= p.sum()
        return [
            (float(q), int(g.integers(S)), float(g.integers(-2, 3)), bool(g.random() < 0.3))
            for q in p
        ]

    table = {s: {a: outcomes() for a in range(A)} for s in range(S)}
    return Table(table, g.dirichlet(np.ones(S)))


@settings(deadline=None, max_examples=40)
@given(tables(), st.integers(1, 6))
def test_any_table_has_the_value_of_value_iteration(env, horizon):
    m = bm.from_gymnasium(env, horizon)
    assert abs(m.optimal_value() - value_iteration(env, horizon)) < 1e-12


def test_an_emission_may_be_put_on_top():
    shown = bm.from_gymnasium("FrozenLake-v1", 9, emission=lambda S: bm.OneHotGaussian(S, 4, 0.1))
    assert shown.emission.dim == 20
    again = bm.from_gymnasium("FrozenLake-v1", 9, emission=shown.emission)
    assert again.emission is shown.emission
    with pytest.raises(ValueError, match="emission has 5 latent states, but transitions have 16"):
        bm.from_gymnasium("FrozenLake-v1", 9, emission=bm.OneHotBernoulli(5, 0))


def test_to_gymnasium_is_the_inverse():
    m = bm.from_gymnasium("FrozenLake-v1")
    env = m.to_gymnasium(render_mode="ansi")
    assert isinstance(env, BlockMDPEnv)
    assert bm.from_gymnasium(env) is m is mdp_of(env)
    assert bm.from_gymnasium("blockmdp/LockBernoulli-v0", horizon=None).horizon > 0
    x, info = env.reset(seed=0)
    assert (x.tolist(), info["latent_state"], m.horizon) == ([0], 0, 100)
    assert "FrozenLake" in env.render()


def test_our_own_ids_tell_the_time_limit_to_wrappers():
    for id in [id for id in gym.registry if id.startswith("blockmdp/")]:
        env = gym.make(id)
        assert env.spec.max_episode_steps == mdp_of(env).horizon
    timed = TimeAwareObservation(gym.make("blockmdp/LockBernoulli-v0", horizon=4), flatten=False)
    assert timed.observation_space["time"].high == 4
    x, _ = timed.reset(seed=0)
    assert x["time"] == 0
    for h in range(4):
        x, _, terminated, _, _ = timed.step(0)
        assert x["time"] == h + 1
    assert terminated


# --- tabulate -------------------------------------------------------------------------------------
def set_taxi(env, key):
    env.s = key


def test_the_search_finds_the_table_of_an_environment():
    env = gym.make("Taxi-v4")
    table = bm.from_gymnasium(env, 30)
    m = bm.tabulate(
        env, key=lambda env: int(env.s), set_state=set_taxi, horizon=30, starts=3, seed=5
    )
    number = m.emission.observations[:, 0]  # of the state in the environment
    assert len(set(number.tolist())) == m.n_states
    at = [int(s) for s, _ in (env.reset(seed=i) for i in (5, 6, 7))]
    assert np.flatnonzero(m.initial).tolist() == [0, 1, 2]
    assert number[:3].tolist() == at
    assert np.allclose(m.optimal_values(), table.optimal_values()[:, number], rtol=0, atol=1e-12)


class Corridor(gym.Env):
    """Five cells; a picture of them; a counter of steps that does not matter."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    observation_space = gym.spaces.Dict({"cell": gym.spaces.Discrete(5)})
    action_space = gym.spaces.Discrete(2, start=3)

    def __init__(self, render_mode=None, slip=0.0):
        self.render_mode, self.slip = render_mode, slip

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.steps = 0, 0
        return {"cell": 0}, {}

    def step(self, action):
        self.steps += 1
        forwards = (action == 4) != (self.np_random.random() < self.slip)
        self.cell = min(max(self.cell + (1 if forwards else -1), 0), 4)
        return {"cell": self.cell}, float(self.cell == 4), self.cell == 4, False, {}

    def render(self):
        picture = np.zeros((1, 5, 3), np.uint8)
        picture[0, self.cell] = 255
        self.surface = threading.Lock()  # as pygame's, it cannot be copied
        return picture


def cell(env):
    return env.cell


def set_cell(env, key):
    env.cell = key


def test_your_own_environment_in_one_line():
    m = bm.tabulate(Corridor("rgb_array"), key=cell, horizon=6)
    assert (m.n_states, m.optimal_value(), m.emission.shape) == (5, 1.0, (1, 5, 3))
    assert m.sample(3, 2, 1)[0].reshape(5, 3).argmax(axis=0).tolist() == [2, 2, 2]
    agent = bm.Tabular(bm.UCBVI()).fit(m, 40)
    assert agent.value() == 1.0


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_how_far_the_search_is(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    m = bm.tabulate(Corridor("rgb_array"), key=cell, horizon=6)
    assert m.n_states == 5
    assert "states of Corridor" in sys.stderr.getvalue()


def test_a_function_that_sets_the_state_replaces_copies():
    env = Corridor("rgb_array")
    env.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot be copied.*set_state"):
        bm.tabulate(env, key=cell, horizon=6)
    m = bm.tabulate(env, key=cell, set_state=set_cell, horizon=6)
    other = bm.tabulate(Corridor("rgb_array"), key=cell, horizon=6)
    assert np.array_equal(m.transitions, other.transitions)
    assert np.array_equal(m.emission.observations, other.emission.observations)


def test_frequencies_estimate_a_random_environment():
    def show(env, x):
        return [env.unwrapped.cell]

    env = Corridor(slip=0.25)
    with pytest.raises(ValueError, match=r"random: action \d in state \d.*draws=1000"):
        bm.tabulate(env, key=cell, observe=show, horizon=9)
    m = bm.tabulate(env, key=cell, observe=show, horizon=9, draws=400)
    P = m.transitions[0]
    assert np.abs(P[2, 1, [1, 3]] - [0.25, 0.75]).max() < 4 * np.sqrt(0.25 * 0.75 / 400)
    same = bm.tabulate(env, key=cell, observe=show, horizon=9, draws=400)
    assert np.array_equal(same.transitions, m.transitions)


class Counting(Corridor):
    observation_space = gym.spaces.Box(0, 1000, (1,), np.int64)

    def step(self, action):
        _, r, *_ = super().step(action)
        return np.array([self.steps]), r, False, False, {}

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return np.array([0]), {}


UNSUITABLE = {
    "continuous actions": (lambda: bm.tabulate("Pendulum-v1"), "must be Discrete.*Discretize"),
    "Dict observations": (lambda: bm.tabulate(Corridor(), horizon=3), "are a Dict.*key and obs"),
    "Dict observations, with a key": (
        lambda: bm.tabulate(Corridor(), key=cell, horizon=3),
        "are a Dict.*key and observe",
    ),
    "unbounded episodes": (lambda: bm.tabulate(Corridor(), key=cell), "set horizon"),
    "too many states": (
        lambda: bm.tabulate(Counting(), horizon=3, cap=50),
        "more than 50 states: raise cap",
    ),
    "a key that cannot be looked up": (
        lambda: bm.tabulate(Corridor("rgb_array"), key=lambda env: [env.cell], horizon=3),
        "hashable, got",
    ),
    "pictures of several sizes": (
        lambda: bm.tabulate(
            Corridor(), key=cell, observe=lambda env, x: [0] * (1 + env.cell), horizon=3
        ),
        "the same shape",
    ),
    "no table": (lambda: bm.from_gymnasium("Blackjack-v1", 5), "no table.*use tabulate"),
    "no table, continuous": (lambda: bm.from_gymnasium("Pendulum-v1"), "no table"),
    "no horizon": (lambda: bm.from_gymnasium("CliffWalking-v1"), "set horizon"),
    "a wrapper": (
        lambda: bm.from_gymnasium(TransformReward(gym.make("FrozenLake-v1"), lambda r: 2 * r)),
        "TransformReward may change.*env.unwrapped",
    ),
    "more than the table": (
        lambda: bm.from_gymnasium("Taxi-v4", fickle_passenger=True),
        "fickle_passenger",
    ),
    "a table of another format": (
        lambda: bm.from_gymnasium(Table({0: {0: [(1.0, 0)]}}, [1.0]), 3),
        r"list of \(probability, next state, reward, terminated\)",
    ),
    "options of a finished environment": (
        lambda: bm.from_gymnasium(gym.make("FrozenLake-v1"), is_slippery=False),
        "is_slippery: arguments of gymnasium.make need an id",
    ),
    "no environment": (lambda: bm.from_gymnasium(5), "got 5"),
}


@pytest.mark.parametrize(("make", "message"), UNSUITABLE.values(), ids=UNSUITABLE.keys())
def test_what_does_not_fit_gets_one_clear_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_fixed_observations_have_no_noise():
    x = np.arange(12.0).reshape(3, 2, 2)
    emission = bm.Fixed(x)
    states = np.array([2, 0, 2])
    shown = emission.sample(5, states, np.arange(3, dtype=np.uint64))
    assert np.array_equal(shown, x[states].reshape(3, 4))
    assert (emission.dim, emission.shape, emission.low, emission.high) == (4, (2, 2), 0.0, 11.0)
    x[:] = 0
    assert emission.observations[2, 3] == 11
    for bad in (["a"], [np.nan], 3.0, [], [[1], [2, 3]]):
        with pytest.raises(ValueError, match=r"Fixed|inhomogeneous"):
            bm.Fixed(bad)


class OwnGenerator(gym.Env):
    """Pays with probability 1/2, by a generator of its own."""

    observation_space = gym.spaces.Discrete(3)
    action_space = gym.spaces.Discrete(1)

    def __init__(self, make):
        self.make = make

    def reset(self, *, seed=None, options=None):
        self.own = self.make(seed)
        return 0, {}

    def step(self, action):
        win = self.own.random() < 0.5
        return 1 + int(win), float(win), True, False, {}


@pytest.mark.parametrize("make", [random.Random, np.random.default_rng, np.random.RandomState])
def test_an_environment_with_its_own_generator_is_random(make):
    value = bm.tabulate(OwnGenerator(make), horizon=1, draws=400).optimal_value()
    assert value == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((-0.5, 0, 5.0, False), "has the probability -0.5"),
        ((float("nan"), 0, 5.0, False), "has the probability nan"),
        ((0.0, 0, float("inf"), False), "reward inf"),
        ((0.0, 9, 0.0, True), "next state 9, but there are 2 states"),
    ],
)
def test_an_impossible_table_is_refused(row, words):
    env = gym.make("FrozenLake-v1").unwrapped
    env.P = {s: {0: [(1.0, 1, 1.0, True)]} for s in range(2)}
    env.P[0][0].append(row)
    env.action_space, env.initial_state_distrib = gym.spaces.Discrete(1), np.array([1.0, 0.0])
    env.observation_space = gym.spaces.Discrete(2)
    with pytest.raises(ValueError, match=words):
        bm.from_gymnasium(env, horizon=3)


class Short(Corridor):
    """Truncates its episodes after two steps, whatever a wrapper says."""

    def step(self, action):
        x, reward, terminated, _, info = super().step(action)
        return x, reward, terminated, self.steps >= 2, info


class Unpaid(Corridor):
    def step(self, action):
        x, _, terminated, truncated, info = super().step(action)
        return x, float("nan"), terminated, truncated, info


def test_an_episode_that_is_truncated_before_the_horizon_is_reported() -> None:
    with pytest.warns(UserWarning, match="truncates an episode after 2 steps") as caught:
        bm.tabulate(Short("rgb_array"), cell, horizon=20)
    assert len(caught) == 1
    bm.tabulate(Short("rgb_array"), cell, horizon=2)


def test_a_set_state_that_does_not_do_what_it_says_is_refused() -> None:
    with pytest.raises(ValueError, match="set_state must bring"):
        bm.tabulate(Corridor("rgb_array"), cell, horizon=20, set_state=lambda env, key: None)


def test_rewards_and_emissions_that_cannot_be_are_named() -> None:
    with pytest.raises(ValueError, match=r"action 3 in state 0 of .* pays nan"):
        bm.tabulate(Unpaid("rgb_array"), cell, horizon=5)
    for emission, got in ((3, 3), (lambda S: S, 5)):
        with pytest.raises(ValueError, match=rf"emission must be an Emission.*got {got}"):
            bm.tabulate(Corridor("rgb_array"), cell, horizon=5, emission=emission)
