"""Tabular: what it refuses, black-box environments, acting and its value, and how much it needs."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from helpers import PlainRecorder, python

from blockmdp import (
    BlockMDP,
    OneHotBernoulli,
    OracleQ,
    QLearning,
    Tabular,
    load,
    lock_bernoulli,
    lock_gaussian,
)
from blockmdp.envs import BlockMDPEnv
from blockmdp.simulators import make_simulator


class Corridor(gym.Env):
    """Cells 0, 1, ...; action 1 goes on, 0 stays. Ends when `length` is reached, which pays 1."""

    action_space = spaces.Discrete(2)

    def __init__(self, length=3, observation_space=None, start=0):
        self.length = length
        self.observation_space = observation_space or spaces.Discrete(length + 1)
        self.action_space = spaces.Discrete(2, start=start)
        self.resets = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets.append(seed)
        self.cell = 0
        return self.cell, {}

    def step(self, action):
        assert action in self.action_space
        self.cell += int(action - self.action_space.start)
        done = self.cell == self.length
        return self.cell, float(done), done, False, {}


class PlainGreedy(OracleQ):
    act = staticmethod(lambda tables, k, h, s, key: int(tables.q[h, s].argmax()))


def limited(env, steps):
    return gym.wrappers.TimeLimit(env, steps)


# --- refusals -------------------------------------------------------------------------------------
def test_gaussian_observations_are_refused_since_no_table_can_hold_them():
    agent = Tabular(on="observation")
    mdp = lock_gaussian(horizon=3)
    for problem in (
        mdp,
        lock_gaussian(horizon=3, truncate=True),
        BlockMDPEnv(mdp),
        gym.make("blockmdp/LockGaussian-v0", horizon=3),
        "blockmdp/LockGaussian-v0",
    ):
        with pytest.raises(ValueError, match=r"LockGaussian.* has infinitely many"):
            agent.fit(problem, 10)
    with pytest.raises(ValueError, match=r"on='observation'.*infinitely many.*on='latent'"):
        agent.fit(mdp, 10, engine="stepwise")


def test_a_black_box_with_real_valued_observations_is_refused():
    env = limited(Corridor(observation_space=spaces.Box(0, 9, (1,))), 5)
    with pytest.raises(ValueError, match="infinitely many"):
        Tabular(on="observation").fit(env, 10)


@pytest.mark.parametrize("on", ["latents", "Latent", "", None, 0])
def test_unknown_on_is_refused(on):
    with pytest.raises(ValueError, match="on must be 'latent', 'likelihood' or 'observation', got"):
        Tabular(on=on)


def test_a_learner_must_be_an_instance_of_learner():
    for wrong in ("OracleQ", 0.1, lambda: None, int):
        with pytest.raises(TypeError, match=r"learner must be a blockmdp\.Learner, such as"):
            Tabular(wrong)
    with pytest.raises(TypeError, match=r"learner must be an instance: write OracleQ\(\)"):
        Tabular(OracleQ)


def test_repr_shows_what_is_not_default():
    assert repr(Tabular()) == "Tabular()"
    agent = Tabular(OracleQ(), on="observation")
    assert repr(agent) == f"Tabular(learner={OracleQ()!r}, on='observation')"


def test_oracleq_is_the_default_learner():
    mdp = lock_bernoulli(horizon=3)
    default, named = (Tabular(learner).fit(mdp, 100) for learner in (None, OracleQ()))
    assert np.array_equal(default.tables_.q, named.tables_.q)


@pytest.mark.parametrize("engine", ["gpu", "Compiled", None])
def test_unknown_engine_is_refused(engine):
    with pytest.raises(ValueError, match="engine must be 'auto', 'compiled', 'interpreted' or"):
        Tabular().fit(lock_bernoulli(horizon=2), 10, engine=engine)


@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_a_black_box_cannot_be_compiled(engine):
    with pytest.raises(ValueError, match=f"engine='{engine}' needs a BlockMDP"):
        Tabular(on="observation").fit(limited(Corridor(), 5), 10, engine=engine)


@pytest.mark.parametrize("episodes", [-1, 1.5, "10", -0.5])
def test_episodes_must_be_a_whole_number(episodes):
    with pytest.raises(ValueError, match=r"episodes must be an integer >= 0, got"):
        Tabular().fit(lock_bernoulli(horizon=2), episodes)


@pytest.mark.parametrize("episodes", [float("nan"), float("inf"), "many", None])
def test_episodes_that_are_no_number_are_refused_in_the_same_words(episodes):
    with pytest.raises((ValueError, TypeError), match="episodes must be an integer"):
        Tabular().fit(lock_bernoulli(horizon=2), episodes)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, "1", None])
@pytest.mark.parametrize("engine", ["auto", "stepwise"])
def test_bad_seed_is_refused(seed, engine):
    with pytest.raises(ValueError, match="seed must be an integer from 0 to"):
        Tabular().fit(lock_bernoulli(horizon=2), 10, seed=seed, engine=engine)


@pytest.mark.parametrize("problem", [None, 3, lock_bernoulli, np.eye(2)])
def test_only_a_problem_is_a_problem(problem):
    with pytest.raises(TypeError, match="problem must be a BlockMDP, a Gymnasium environment or"):
        Tabular().fit(problem, 10)


def test_unknown_id_is_gymnasiums_own_error():
    with pytest.raises(gym.error.NameNotFound, match="LockBernouli"):
        Tabular().fit("blockmdp/LockBernouli-v0", 10)


@pytest.mark.parametrize(
    "space", [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2])], ids=["Box", "MultiDiscrete"]
)
def test_actions_that_are_not_discrete_are_refused(space):
    env = limited(Corridor(), 5)
    env.action_space = space
    with pytest.raises(ValueError, match=r"actions of .* must be Discrete, got"):
        Tabular(on="observation").fit(env, 10)


def test_an_environment_that_hides_its_latent_state_cannot_be_learnt_on_it():
    with pytest.raises(ValueError, match="does not report its latent state"):
        Tabular(on="latent").fit(limited(Corridor(), 5), 10)


def test_an_environment_without_a_bound_on_its_episodes_is_refused():
    with pytest.raises(ValueError, match="does not state its longest episode: set horizon"):
        Tabular(on="observation").fit(Corridor(), 10)


@pytest.mark.parametrize(
    "learner",
    [
        QLearning(exploration=1.0),
        PlainGreedy(),
    ],
    ids=lambda x: type(x).__name__,
)
def test_an_episode_longer_than_the_horizon_is_refused(learner):
    with pytest.raises(ValueError, match="did not end after 4 steps: set a larger horizon in fit"):
        Tabular(learner, on="observation").fit(Corridor(9), 10, horizon=4)


# --- black boxes ----------------------------------------------------------------------------------
def test_frozen_lake_is_learnt():
    env = gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=20)
    agent = Tabular(OracleQ(lr=0.5, bonus=0.001), on="observation").fit(env, 1000, seed=0)
    assert agent.ledger_ == {"learn": 1000}
    assert agent.policy_.pi.shape == (20, 16, 4)
    assert agent.returns_[:100].mean() < 0.2
    assert agent.returns_[-100:].mean() > 0.9
    x, _ = env.reset(seed=1)
    done, level, reward = False, 0, 0.0
    while not done:
        x, reward, terminated, truncated, _ = env.step(agent.act(x, level))
        done, level = terminated or truncated, level + 1
    assert reward == 1.0


def test_a_black_box_is_seeded_once_and_then_goes_on():
    env = Corridor()
    Tabular(on="observation").fit(limited(env, 5), 4, seed=11)
    assert env.resets == [11, None, None, None]


def test_same_seed_same_run_on_a_black_box():
    def run(seed):
        env = gym.make("FrozenLake-v1", is_slippery=True)
        agent = Tabular(QLearning(exploration=1.0), on="observation")
        return agent.fit(env, 200, seed=seed, horizon=100).returns_

    assert np.array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))


def record(env, episodes=50, **options):
    return Tabular(PlainRecorder(), on="observation").fit(env, episodes, **options).tables_


def test_nothing_follows_an_episode_that_ended_early():
    tables = record(limited(Corridor(2), 6))
    lengths = (tables.action >= 0).sum(axis=1)
    assert set(lengths) >= {2, 3, 4}
    for k, n in enumerate(lengths):
        ended = tables.reward[k, n - 1] == 1.0
        assert (tables.next_label[k, n - 1] == -1) == (ended and n < 6)
        assert (tables.label[k, :n] >= 0).all()
        assert (tables.label[k, n:] == -7).all()  # no step was made up
        assert tables.next_label[k, : n - 1].tolist() == tables.label[k, 1:n].tolist()
        assert tables.reward[k, : n - 1].sum() == 0
        assert ended or n == 6


def test_the_state_in_which_an_episode_was_cut_off_still_counts():
    tables = record(limited(Corridor(9), 3), horizon=7)
    assert ((tables.action >= 0).sum(axis=1) == 3).all()
    assert (tables.next_label[:, 2] >= 0).all()
    assert len(np.unique(tables.next_label[:, 2])) == 4  # cells 0 to 3


def test_horizon_is_the_one_given_else_the_time_limit_that_bites_first():
    def horizon(env, **options):
        return make_simulator(env, **options).horizon

    assert horizon(limited(Corridor(), 5)) == 5
    assert horizon(limited(limited(Corridor(), 5), 9)) == 5
    assert horizon(limited(limited(Corridor(), 9), 5)) == 5
    assert horizon(limited(Corridor(), 5), horizon=3) == 3
    assert horizon(Corridor(), horizon=3) == 3
    assert horizon(gym.make("FrozenLake-v1")) == 100
    assert horizon(gym.wrappers.TimeLimit(gym.make("FrozenLake-v1"), 20)) == 20
    assert horizon(BlockMDPEnv(lock_bernoulli(horizon=6)), engine="stepwise") == 6


def test_horizon_is_the_first_axis_of_all_tables():
    agent = Tabular(on="observation").fit(Corridor(1), 20, horizon=50, seed=1)
    assert agent.tables_.q.shape[0] == agent.policy_.pi.shape[0] == 50


@pytest.mark.parametrize("engine", ["compiled", "stepwise"])
def test_a_block_mdp_cannot_be_given_another_horizon(engine):
    mdp = lock_bernoulli(horizon=3)
    Tabular().fit(mdp, 5, engine=engine, horizon=3)
    with pytest.raises(ValueError, match="horizon must be None or 3"):
        Tabular().fit(mdp, 5, engine=engine, horizon=9)


@pytest.mark.parametrize("horizon", [0, -1, 2.5, "long"])
def test_a_horizon_that_is_no_positive_whole_number_is_refused(horizon):
    with pytest.raises(ValueError, match="horizon must be an integer >= 1"):
        Tabular(on="observation").fit(Corridor(), 5, horizon=horizon)


def test_actions_that_do_not_start_at_zero_are_shifted():
    agent = Tabular(OracleQ(lr=0.5, v_max=2.0), on="observation")
    with pytest.warns(UserWarning, match="add 5 to what `act` returns"):
        agent.fit(limited(Corridor(3, start=5), 4), 300, seed=0)
    assert agent.returns_[-50:].mean() > 0.9


def test_integer_boxes_and_bits_are_finite():
    for space in (spaces.Box(0, 9, (), np.int64), spaces.MultiBinary(1), spaces.MultiDiscrete([9])):
        agent = Tabular(on="observation").fit(limited(Corridor(2, space), 4), 20)
        assert agent.returns_.sum() > 0


# --- acting and its value -------------------------------------------------------------------------
def test_value_on_latent_states_is_exactly_that_of_act():
    mdp = lock_bernoulli(horizon=6, switch=0.2, seed=3)
    for episodes in (0, 30, 300, 3000):
        agent = Tabular().fit(mdp, episodes, seed=3)
        assert agent.policy_.pi.shape == (6, 3, 4)
        actions = [[agent.act(s, h) for s in range(3)] for h in range(6)]
        assert agent.value() == mdp.value(np.eye(4)[actions])
    assert agent.value() == mdp.optimal_value() == 0.5


def test_an_agent_that_learnt_nothing_acts_and_is_valued_as_action_0():
    mdp = lock_bernoulli(horizon=3, seed=3)
    first = np.zeros((3, 3, 4))
    first[:, :, 0] = 1.0
    for on in ("latent", "observation"):
        assert Tabular(on=on).fit(mdp, 0).value() == mdp.value(first)


def test_value_on_observations_grows_to_the_optimum():
    mdp = lock_bernoulli(horizon=3, switch=0.2, seed=3)
    values = [Tabular(on="observation").fit(mdp, n, seed=3).value() for n in (0, 100, 5000)]
    assert all(0 <= v <= 0.5 for v in values)
    assert values[0] < 0.1 < 0.45 < values[-1]


def test_value_on_observations_is_what_acting_earns():
    mdp = lock_bernoulli(horizon=3, switch=0.2, seed=5)
    agent = Tabular(on="observation").fit(mdp, 700, seed=5)
    assert 0.1 < agent.value() < 0.45  # half learnt, so that a wrong value would show
    seen = agent.policy_.decoder.n_labels
    env = BlockMDPEnv(mdp)
    total, n = 0.0, 4000
    for k in range(n):
        x, _ = env.reset(seed=99 if k == 0 else None)
        for level in range(3):
            x, r, _, _, _ = env.step(agent.act(x, level))
            total += r
    assert total / n == pytest.approx(agent.value(), abs=0.04)
    assert agent.policy_.decoder.n_labels == seen  # acting does not teach


def test_the_value_of_a_black_box_is_unknown():
    agent = Tabular(on="observation").fit(limited(Corridor(), 5), 10)
    with pytest.raises(
        ValueError, match=r"needs the latent states of a BlockMDP, but .* black box"
    ):
        agent.value()


def test_act_follows_the_policy_on_latent_states():
    mdp = lock_bernoulli(horizon=4, switch=0.2, seed=3)
    agent = Tabular().fit(mdp, 3000, seed=3)
    for level, state in np.ndindex(4, 3):
        for x in (state, np.int64(state)):
            assert agent.act(x, level) == agent.policy_.pi[level, state].argmax()


def test_a_policy_acts_on_observations_of_many_levels_as_on_each():
    m = lock_bernoulli(horizon=4, switch=0.2, seed=3)
    policy = Tabular(on="observation").fit(m, 500, seed=3).policy_
    levels = np.array([3, 0, 2, 2, 1])
    x = np.array([m.sample(h, 0, 1)[0] for h in levels])
    for method in (policy.act, policy.decode):
        assert method(x, levels).tolist() == [method(row, h) for row, h in zip(x, levels)]
        for same in (levels.astype(np.uint64), levels.tolist()):
            assert method(x, same).tolist() == method(x, levels).tolist()
    with pytest.raises(ValueError, match="one level for each of 5 observations, got 2"):
        policy.act(x, levels[:2])
    with pytest.raises(ValueError, match="level must be from 0 to 3, got 4"):
        policy.act(x, levels + 1)


def test_act_opens_the_lock_from_observations():
    mdp = lock_bernoulli(horizon=2, switch=0.0, seed=3)
    agent = Tabular(on="observation").fit(mdp, 3000, seed=3)
    P = mdp.transitions
    x = mdp.sample(0, 0, 50)
    for row in x:
        assert P[0, 0, agent.act(row, 0), 2] == 0  # not dead
    assert isinstance(agent.act(x[0], 0), int)


def test_an_observation_never_seen_is_acted_upon():
    stay = np.ones((2, 1, 3, 1))
    mdp = BlockMDP([1.0], stay, 1.0, emission=OneHotBernoulli(1, 40))
    agent = Tabular(OracleQ(v_max=2.0), on="observation").fit(mdp, 3)
    unseen = np.ones(41, np.int8)
    assert agent.policy_.decode(unseen, 1) == agent.policy_.decoder.n_labels
    assert agent.act(unseen, 1) == 0
    nothing = Tabular(OracleQ(v_max=2.0), on="observation").fit(mdp, 0)
    assert nothing.act(unseen, 0) == 0
    latent = Tabular(OracleQ(v_max=2.0)).fit(mdp, 3)
    assert latent.act(8, 0) == 0  # a latent state that does not exist
    for wrong in (-1, 0.5, np.nan, "a", [[0]]):
        with pytest.raises(ValueError, match=r"latent state|finite|numbers"):
            latent.act(wrong, 0)


def test_numbers_that_only_round_to_a_known_observation_are_unknown():
    mdp = lock_bernoulli(horizon=2, seed=3)
    agent = Tabular(on="observation").fit(mdp, 200)
    x = mdp.sample(0, 0, 1)[0].astype(float)
    assert agent.policy_.decode(x, 0) < agent.policy_.decoder.n_labels
    assert agent.policy_.decode(x + 0.25, 0) == agent.policy_.decoder.n_labels


@pytest.mark.parametrize("on", ["latent", "observation"])
def test_a_tabular_agent_can_be_recorded_saved_and_plotted(tmp_path, on):
    mdp = lock_bernoulli(horizon=3, switch=0.2, seed=3)
    agent = Tabular(on=on).fit(mdp, 500, seed=1, record=True)
    plain = Tabular(on=on).fit(mdp, 500, seed=1)
    assert np.array_equal(agent.returns_, plain.returns_)  # recording changes nothing
    assert np.array_equal(agent.trajectories_, np.arange(1, 501))
    assert agent.snapshots_[-1].policy is agent.policy_
    assert plain.snapshots_ == plain.history_ == agent.history_ == []
    agent.save(tmp_path / "policy.npz")
    loaded = load(tmp_path / "policy.npz")
    for h in range(3):
        x = np.arange(4) if on == "latent" else np.concatenate([mdp.sample(h, 0, 300), x_odd(mdp)])
        assert np.array_equal(loaded.decode(x, h), agent.policy_.decode(x, h))
        assert np.array_equal(loaded.act(x, h), agent.act(x, h))
    titles = [axes.get_title(loc="left") for axes in agent.plot().axes]
    assert titles == ["Returns", "Value of the policy"]
    assert len(plain.plot().axes) == 1


def x_odd(mdp):
    """An observation that cannot occur."""
    return np.full((1, mdp.emission.dim), 1, np.int8)


def test_a_recorded_table_does_not_know_later_observations():
    mdp = lock_bernoulli(horizon=12, seed=3)
    agent = Tabular(on="observation").fit(mdp, 4000, record=True)
    sizes = [entry.policy.decoder.n_labels for entry in agent.snapshots_]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    first = agent.snapshots_[0].policy
    x = np.concatenate([mdp.sample(2, s, 300) for s in range(3)])
    assert first.decode(x, 2).max() == first.decoder.n_labels


@pytest.mark.parametrize("kind", [list, np.int64, np.float64])
def test_act_knows_an_observation_whatever_the_type_of_its_numbers(kind):
    mdp = lock_bernoulli(horizon=3, switch=0.0, seed=1)
    agent = Tabular(on="observation").fit(mdp, 3000, seed=1)
    x = mdp.sample(1, 0, 20)
    as_kind = [row.tolist() if kind is list else row.astype(kind) for row in x]
    assert [agent.act(row, 1) for row in as_kind] == [agent.act(row, 1) for row in x]


# --- what it needs --------------------------------------------------------------------------------
@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_fifty_thousand_episodes_of_observations_fit_into_a_gigabyte():
    code = (
        "import blockmdp as bm\n"
        "m = bm.lock_bernoulli(horizon=20, switch=0.2, seed=0)\n"
        "a = bm.Tabular(bm.OracleQ(), on='observation').fit(m, 50_000, seed=0)\n"
        # not ru_maxrss, which a process inherits from the one that started it
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(a.ledger_['learn'], peak.split()[1])"
    )
    episodes, kilobytes = map(int, python(code).split())
    assert episodes == 50_000
    assert kilobytes < 1_000_000


def test_the_name_of_a_problem_is_not_an_id():
    with pytest.raises(ValueError, match=r"'lock_bernoulli' is a function.*bm.lock_bernoulli\(\)"):
        Tabular().fit("lock_bernoulli", 10)


def test_a_policy_is_valued_on_a_problem_of_its_own_size_only():
    agent = Tabular().fit(lock_bernoulli(horizon=3), 10)
    with pytest.raises(ValueError, match="horizon 3 and 4 actions, but LockBernoulli has"):
        agent.value(on=lock_bernoulli(horizon=4))


# --- learners that do not know the level ----------------------------------------------------------
def test_a_learner_that_does_not_know_the_level_has_one_table(tmp_path):
    m = lock_bernoulli(horizon=4, switch=0.2)
    agent = Tabular(OracleQ(), on="observation", by_level=False).fit(m, 300, seed=0)
    assert agent.tables_.q.shape[0] == 1
    pi = agent.policy_.pi
    assert (pi == pi[:1]).all()
    x = m.sample(1, 0, 20)
    labels = [agent.policy_.decode(x, h) for h in (0, 3)]
    assert np.array_equal(*labels)
    agent.save(tmp_path / "blind.npz")
    loaded = load(tmp_path / "blind.npz")
    assert np.array_equal(loaded.decode(x, 2), labels[0])
    assert np.array_equal(loaded.act(x, 2), agent.act(x, 2))


def test_without_the_level_a_lock_cannot_be_opened():
    m = lock_bernoulli(horizon=5, seed=3)
    blind, sees = (
        Tabular(OracleQ(lr=0.3), on="observation", by_level=by_level).fit(m, 20_000, seed=0)
        for by_level in (False, True)
    )
    assert sees.returns_[-1000:].mean() > 0.45
    assert blind.returns_[-1000:].mean() < 0.3
