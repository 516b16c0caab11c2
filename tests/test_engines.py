"""One truth: compiled, interpreted and stepwise loops give the same actions, rewards and tables."""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from helpers import PlainRecorder, Recorder, python
from hypothesis import given, settings
from hypothesis import strategies as st

import blockmdp.simulators
from blockmdp import (
    BlockMDP,
    ExogenousBits,
    Hadamard,
    Linear,
    MarkovBits,
    OneHotBernoulli,
    OracleQ,
    PerLevel,
    QLearning,
    Tabular,
    lock_bernoulli,
    lock_gaussian,
)
from blockmdp.decoders import TableDecoder
from blockmdp.envs import BlockMDPEnv
from blockmdp.simulators import BlockSimulator, GymSimulator, Policy, make_simulator

ENGINES = ("compiled", "interpreted", "stepwise")
LEARNERS = [
    OracleQ(lr=0.3, bonus=0.05, v_max=9.0),
    QLearning(lr=0.3, exploration=0.5, final_epsilon=0.1),
    Recorder(),
]
EPISODES = 60

any_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda x: type(x).__name__)


class Nearest:
    """A decoder: the largest of the first n coordinates. Noise makes it err."""

    def __init__(self, n, first=0):
        self.n_labels, self.first = n, first

    def decode(self, levels, x):
        return x[:, self.first : self.first + self.n_labels].argmax(axis=1)


def random_mdp(H, S, A, entropy, emission=None):
    """Sparse transitions, and a reward of its own, often uncertain, for each of them."""
    g = np.random.default_rng(entropy)
    weights = g.choice([0.0, 0.0, 1.0, 2.0], (H, S, A, S)) + 1e-3 * (g.random((H, S, A, S)) < 0.5)
    weights[..., g.integers(S)] += 0.1
    P = weights / weights.sum(axis=-1, keepdims=True)
    p = g.choice([0.0, 0.3, 0.7, 1.0], P.shape)
    mu = g.dirichlet(np.ones(S))
    return BlockMDP(mu, P, g.normal(size=P.shape), p, emission=emission or OneHotBernoulli(S, 2))


def per_level(H, S=3):
    return PerLevel([OneHotBernoulli(S, 3, p=(h + 1) / (H + 2)) for h in range(H + 1)])


def rotated(S):
    return Linear(
        OneHotBernoulli(S, 2), np.linalg.qr(np.random.default_rng(0).normal(size=(8, S + 2)))[0]
    )


def markov(S=3):
    g = np.random.default_rng(S)
    return MarkovBits(g.permutation(S + 2)[:S], *g.uniform(0.1, 0.9, (2, S + 2)))


def episodes_and_levels(H, S=3):
    """Noise that hangs together over an episode at some levels, and is fresh at others."""
    return PerLevel([OneHotBernoulli(S, 2) if h == 1 else markov(S) for h in range(H + 1)])


PROBLEMS = {
    "LockBernoulli": lock_bernoulli(horizon=4, switch=0.2, seed=1),
    "PerLevel": random_mdp(3, 3, 2, 0, per_level(3)),
    "Linear": random_mdp(3, 3, 2, 1, rotated(3)),
    "horizon 1": lock_bernoulli(horizon=1, switch=0.5, seed=2),
    "one state": random_mdp(3, 1, 2, 2),
    "one action": random_mdp(3, 3, 1, 3),
    "one of each": random_mdp(1, 1, 1, 4),
    "MarkovBits": random_mdp(3, 3, 2, 5, markov()),
    "ExogenousBits": random_mdp(3, 3, 2, 6, Hadamard(ExogenousBits(3, 4, 2, 0.3, 0.0))),
    "MarkovBits at some levels": random_mdp(3, 3, 2, 7, episodes_and_levels(3)),
    "MarkovBits, one state": random_mdp(1, 1, 2, 8, markov(1)),
}
EPISODE_NOISE = ["MarkovBits", "ExogenousBits", "MarkovBits at some levels"]
any_problem = pytest.mark.parametrize("mdp", PROBLEMS.values(), ids=PROBLEMS.keys())


def learnt(problem, engine, learner, make_sight, *, episodes=EPISODES, seed=5, pieces=(None,)):
    """A run of a learner, and its sight."""
    simulator = make_simulator(problem, seed, engine=engine)
    assert type(simulator) is (GymSimulator if engine == "stepwise" else BlockSimulator)
    run, sight = simulator.start(learner, episodes), make_sight()
    for n in pieces:
        simulator.learn(run, sight, n)
    assert run.k == episodes
    return run, sight


def no_sight():
    return None


def identical(one, two):
    """Whether two runs agree in each return and each entry of each table."""
    same_tables = [np.array_equal(a, b) for a, b in zip(one.tables, two.tables)]
    return np.array_equal(one.returns, two.returns) and len(same_tables) > 2 and all(same_tables)


def assert_same_but_for_numbering(mdp, one, two):
    """Two runs on tables of observations agree where each numbers the observations in its own way.

    one, two: (run, table).
    """
    (a, a_table), (b, b_table) = one, two
    assert np.array_equal(a.returns, b.returns)
    fresh = a.learner.tables(mdp.horizon, 1, mdp.n_actions, len(a.returns))
    for h in range(mdp.horizon):
        x = np.concatenate([mdp.sample(h, s, 200) for s in range(mdp.n_states)])
        i, j = (table.find(np.full(len(x), h), x) for table in (a_table, b_table))
        # an observation drawn ahead by one and never met by the other has learnt nothing
        assert (j >= 0).any()
        for field, start in zip(a.tables._fields, fresh):
            if field in ("q", "n", "count"):
                rows = [
                    np.where((n >= 0)[:, None], getattr(run.tables, field)[h, n], start[h, 0])
                    for run, n in ((a, i), (b, j))
                ]
                assert np.array_equal(*rows)
                assert field == "q" or rows[0].any()
    if isinstance(a.learner, PlainRecorder):
        assert_same_record_but_for_numbering(a.tables, b.tables)


def assert_same_record_but_for_numbering(a, b):
    for field in ("action", "reward", "planned"):
        assert np.array_equal(getattr(a, field), getattr(b, field))
    for field in ("label", "next_label"):
        for i, j in zip(getattr(a, field).T, getattr(b, field).T):
            pairs = set(zip(i.tolist(), j.tolist()))
            assert len(pairs) == len(set(i.tolist())) == len(set(j.tolist()))
    assert np.array_equal(a.next_label[:, :-1], a.label[:, 1:])


# --- the three engines ----------------------------------------------------------------------------
@any_learner
@any_problem
def test_engines_agree_on_latent_states(mdp, learner):
    compiled, interpreted, stepwise = (learnt(mdp, e, learner, no_sight)[0] for e in ENGINES)
    assert identical(compiled, interpreted)
    assert identical(compiled, stepwise)


@pytest.mark.parametrize("truncate", [False, True])
@any_learner
def test_engines_agree_on_latent_states_of_the_gaussian_lock(learner, truncate):
    mdp = lock_gaussian(horizon=4, switch=0.2, sigma=0.3, seed=1, truncate=truncate)
    compiled, interpreted, stepwise = (learnt(mdp, e, learner, no_sight)[0] for e in ENGINES)
    assert identical(compiled, interpreted)
    assert identical(compiled, stepwise)


@any_learner
@any_problem
def test_engines_agree_on_observations(mdp, learner):
    make = partial(TableDecoder, mdp.horizon)
    compiled, interpreted, stepwise = (learnt(mdp, e, learner, make) for e in ENGINES)
    assert identical(compiled[0], interpreted[0])
    assert_same_but_for_numbering(mdp, compiled, stepwise)


@any_learner
@pytest.mark.parametrize("truncate", [False, True])
def test_engines_agree_through_a_decoder_that_errs(learner, truncate):
    mdp = lock_gaussian(horizon=4, switch=0.2, sigma=0.4, seed=1, truncate=truncate)
    compiled, interpreted, stepwise = (
        learnt(mdp, e, learner, partial(Nearest, 3, first=1))[0] for e in ENGINES
    )
    assert identical(compiled, interpreted)
    assert identical(compiled, stepwise)
    latent = learnt(mdp, "compiled", Recorder(), no_sight)[0].tables.label
    seen = learnt(mdp, "compiled", Recorder(), partial(Nearest, 3, first=1))[0].tables.label
    for s in (1, 2):  # right about some states more often than not, and often wrong
        assert 0.5 < (seen[latent == s] == s - 1).mean() <= 1
    assert len(np.unique(seen[latent == 0])) == 3


@settings(deadline=None, max_examples=100)
@given(
    H=st.integers(1, 4),
    S=st.integers(1, 4),
    A=st.integers(1, 3),
    entropy=st.integers(0, 2**32),
    seed=st.integers(0, 2**63 - 1),
    learner=st.sampled_from([OracleQ(lr=0.5, bonus=0.1, v_max=4.0), *LEARNERS[1:]]),
)
def test_engines_agree_on_random_problems(H, S, A, entropy, seed, learner):
    mdp = random_mdp(H, S, A, entropy)
    for make in (no_sight, partial(TableDecoder, H), partial(Nearest, S, first=1)):
        runs = [learnt(mdp, e, learner, make, episodes=25, seed=seed) for e in ENGINES]
        assert identical(runs[0][0], runs[1][0])
        if make is no_sight or make.func is Nearest:
            assert identical(runs[0][0], runs[2][0])
        else:
            assert_same_but_for_numbering(mdp, runs[0], runs[2])


@any_problem
def test_plain_python_learner_is_shown_what_its_compiled_twin_is(mdp):
    for make in (no_sight, partial(TableDecoder, mdp.horizon)):
        assert identical(
            learnt(mdp, "compiled", Recorder(), make)[0],
            learnt(mdp, "compiled", PlainRecorder(), make)[0],
        )


def test_record_is_what_the_environment_shows_when_its_actions_are_replayed():
    mdp = random_mdp(4, 3, 3, 8)
    record = learnt(mdp, "compiled", Recorder(), no_sight, seed=9)[0]
    env = BlockMDPEnv(mdp)
    for k in range(EPISODES):
        _, info = env.reset(seed=9 if k == 0 else None)
        for h in range(mdp.horizon):
            assert record.tables.label[k, h] == info["latent_state"]
            _, r, terminated, _, info = env.step(record.tables.action[k, h])
            assert record.tables.reward[k, h] == r
            assert record.tables.next_label[k, h] == info["latent_state"]
        assert terminated
    assert np.array_equal(record.tables.planned, np.ones(EPISODES))
    assert np.allclose(record.returns, record.tables.reward.sum(axis=1), rtol=0, atol=1e-12)
    assert len(np.unique(record.tables.action)) == 3
    assert len(np.unique(record.tables.label)) == 3


def test_label_of_an_observation_is_its_own_and_nobody_elses():
    mdp = PROBLEMS["LockBernoulli"]
    record, table = learnt(mdp, "compiled", Recorder(), partial(TableDecoder, mdp.horizon))
    latent = learnt(mdp, "compiled", Recorder(), no_sight)[0].tables.label
    env = BlockMDPEnv(mdp)
    for k in range(EPISODES):
        x, info = env.reset(seed=5 if k == 0 else None)
        for h in range(mdp.horizon):
            assert record.tables.label[k, h] == table.find(np.array([h]), x[None])[0]
            assert latent[k, h] == info["latent_state"]
            x, _, _, _, info = env.step(record.tables.action[k, h])


# --- all ways to name a problem -------------------------------------------------------------------
class Harmless(gym.Wrapper):
    """Changes nothing, but hides that there is a BlockMDP below."""


def fitted(problem, learner, on, engine="auto", horizon=None, episodes=40, seed=3):
    return Tabular(learner, on).fit(problem, episodes, seed=seed, engine=engine, horizon=horizon)


@pytest.mark.parametrize("on", ["latent", "observation"])
@any_learner
def test_id_environment_and_block_mdp_are_the_same_problem(learner, on):
    name = "blockmdp/LockBernoulli-v0"
    mdp = lock_bernoulli()
    truth = fitted(mdp, learner, on)
    assert truth._simulator.mdp is mdp
    for problem in (
        name,
        gym.make(name),
        gym.make(name, disable_env_checker=True),
        BlockMDPEnv(mdp),
    ):
        agent = fitted(problem, learner, on)
        assert isinstance(agent._simulator, BlockSimulator)
        assert np.array_equal(agent.returns_, truth.returns_)
        assert identical_tables(agent, truth)


def identical_tables(one, two):
    return all(np.array_equal(a, b) for a, b in zip(one.tables_, two.tables_))


@any_learner
def test_gaussian_lock_by_id_is_the_same_problem(learner):
    truth = fitted(lock_gaussian(horizon=3, switch=0.5, sigma=0.2, seed=4), learner, "latent")
    made = gym.make("blockmdp/LockGaussian-v0", horizon=3, switch=0.5, sigma=0.2, seed=4)
    for engine in ENGINES:
        agent = fitted(made, learner, "latent", engine)
        assert np.array_equal(agent.returns_, truth.returns_)
        assert identical_tables(agent, truth)


@any_learner
def test_wrapped_environment_is_stepped_through_to_the_same_end(learner):
    mdp = lock_bernoulli(horizon=4, switch=0.2, seed=1)
    truth = fitted(mdp, learner, "latent")
    agent = fitted(Harmless(BlockMDPEnv(mdp)), learner, "latent", horizon=4)
    assert isinstance(agent._simulator, GymSimulator)
    assert agent._simulator.mdp is None
    assert np.array_equal(agent.returns_, truth.returns_)
    for name, table, true in zip(truth.tables_._fields, agent.tables_, truth.tables_):
        if name in ("q", "n", "count"):  # it did not know how many states there are
            table = table[:, : mdp.n_states]
        assert np.array_equal(table, true)


@any_learner
def test_wrapped_environment_is_the_same_on_observations(learner):
    mdp = lock_bernoulli(horizon=4, switch=0.2, seed=1)
    truth = fitted(mdp, learner, "observation")
    agent = fitted(Harmless(BlockMDPEnv(mdp)), learner, "observation", horizon=4)
    assert isinstance(agent._simulator, GymSimulator)
    assert np.array_equal(agent.returns_, truth.returns_)
    if isinstance(learner, Recorder):
        assert_same_record_but_for_numbering(truth.tables_, agent.tables_)


@any_learner
def test_environment_that_shows_latent_states_as_observations_is_the_same(learner):
    mdp = lock_bernoulli(horizon=4, switch=0.2, seed=1)
    truth = fitted(mdp, learner, "latent")
    agent = fitted(BlockMDPEnv(mdp, observe="latent"), learner, "observation", horizon=4)
    assert np.array_equal(agent.returns_, truth.returns_)
    if isinstance(learner, Recorder):
        assert_same_record_but_for_numbering(truth.tables_, agent.tables_)


def test_an_environment_that_was_used_before_starts_anew():
    env = gym.make("blockmdp/LockBernoulli-v0", horizon=4)
    truth = fitted(env, Recorder(), "latent", "stepwise")
    env.reset(seed=77)
    env.step(0)
    assert identical_tables(fitted(env, Recorder(), "latent", "stepwise"), truth)


# --- without the compiler -------------------------------------------------------------------------
def digest():
    """A fingerprint of returns and tables of many runs."""
    sha = hashlib.sha256()
    problems = [*PROBLEMS.values(), lock_gaussian(horizon=3, sigma=0.2), random_mdp(4, 3, 3, 11)]
    for mdp in problems:
        sights = [no_sight, partial(Nearest, min(2, mdp.n_states), 1)]
        if mdp.emission.finite:
            sights.append(partial(TableDecoder, mdp.horizon))
        for learner in LEARNERS:
            for make in sights:
                run, _ = learnt(mdp, "compiled", learner, make, episodes=40)
                for array in (run.returns, *run.tables):
                    sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def test_with_the_compiler_switched_off_every_number_is_the_same():
    code = "import numba, test_engines; print(numba.config.DISABLE_JIT, test_engines.digest())"
    printed = python(code, env={"NUMBA_DISABLE_JIT": "1"})
    assert printed.split() == ["1", digest()]


# --- batches and pieces ---------------------------------------------------------------------------
# problems on which a decoder errs; in the last two noise hangs together over an episode
ERRING = {
    "LockGaussian": lock_gaussian(horizon=4, switch=0.2, sigma=0.4, seed=1),
    "ExogenousBits": random_mdp(4, 3, 4, 9, ExogenousBits(3, 5, 2, 0.3, 0.4)),
    "MarkovBits": PROBLEMS["MarkovBits"],
}
any_erring = pytest.mark.parametrize("mdp", ERRING.values(), ids=ERRING.keys())
BATCHES = [(1, 1), (7, 3), (33, 401), (1 << 18, 1 << 14)]


def with_batches(monkeypatch, rows_at_once, least_rows):
    monkeypatch.setattr(blockmdp.tapes.Tapes, "rows_at_once", rows_at_once)
    monkeypatch.setattr(blockmdp.tapes.Tapes, "least_rows", least_rows)
    monkeypatch.setattr(blockmdp.tapes.EpisodeTapes, "rows_at_once", rows_at_once)


def count_fillings(monkeypatch):
    """How often tapes have been filled, [n]."""
    count = [0]

    def counting(fill):
        def counted(self, *arguments):
            count[0] += 1
            fill(self, *arguments)

        return counted

    for kind in (blockmdp.tapes.Tapes, blockmdp.tapes.EpisodeTapes):
        monkeypatch.setattr(kind, "_fill", counting(kind._fill))
    return count


@any_learner
@pytest.mark.parametrize("problem", ["LockBernoulli", "PerLevel", "one of each", "MarkovBits"])
def test_results_do_not_depend_on_the_size_of_batches(monkeypatch, problem, learner):
    mdp = PROBLEMS[problem]
    fillings = count_fillings(monkeypatch)
    runs, counts = [], []
    for rows_at_once, least_rows in BATCHES:
        with_batches(monkeypatch, rows_at_once, least_rows)
        fillings[0] = 0
        make = partial(TableDecoder, mdp.horizon)
        runs.append(learnt(mdp, "compiled", learner, make, episodes=300))
        counts.append(fillings[0])
    assert counts[0] > 2 * counts[-1]
    for run in runs[1:]:
        assert_same_but_for_numbering(mdp, runs[0], run)


@any_learner
@any_erring
def test_results_through_a_decoder_do_not_depend_on_the_size_of_batches(monkeypatch, mdp, learner):
    runs = []
    for rows_at_once, least_rows in BATCHES:
        with_batches(monkeypatch, rows_at_once, least_rows)
        runs.append(learnt(mdp, "compiled", learner, partial(Nearest, 3), episodes=300)[0])
    assert all(identical(runs[0], run) for run in runs[1:])


@pytest.mark.parametrize("engine", ENGINES)
@any_learner
@pytest.mark.parametrize("problem", ["LockBernoulli", "MarkovBits"])
def test_learning_in_pieces_is_learning_in_one_go(engine, learner, problem):
    mdp = PROBLEMS[problem]
    pieces = (1, 0, 13, 7, 30, 1, None)
    for make in (no_sight, partial(Nearest, 3)):
        whole, _ = learnt(mdp, engine, learner, make)
        parts, _ = learnt(mdp, engine, learner, make, pieces=pieces)
        assert identical(whole, parts)
    make = partial(TableDecoder, mdp.horizon)
    whole = learnt(mdp, engine, learner, make)
    parts = learnt(mdp, engine, learner, make, pieces=pieces)
    assert_same_but_for_numbering(mdp, whole, parts)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_piece_too_long_stops_at_the_runs_end(engine):
    mdp = PROBLEMS["LockBernoulli"]
    whole, _ = learnt(mdp, engine, Recorder(), no_sight)
    parts, _ = learnt(mdp, engine, Recorder(), no_sight, pieces=(50, 50))
    assert identical(whole, parts)


@any_learner
@any_erring
def test_a_new_sight_in_the_middle_decodes_what_comes_after_it(mdp, learner):
    runs = []
    for engine in ENGINES:
        simulator = make_simulator(mdp, 5, engine=engine)
        run = simulator.start(learner, EPISODES)
        for sight, n in ((Nearest(3), 11), (Nearest(3, 2), 30), (Nearest(5), None)):
            simulator.learn(run, sight, n)
        runs.append(run)
    assert identical(runs[0], runs[1])
    for one, two in zip(runs[0].tables, runs[2].tables):
        assert np.array_equal(one, two)


@any_erring
def test_two_runs_in_one_simulator_share_its_episodes(mdp):
    pairs = []
    for engine in ENGINES:
        simulator = make_simulator(mdp, 5, engine=engine)
        one, two = (simulator.start(Recorder(), n) for n in (30, 40))
        for run, n in ((one, 10), (two, 25), (one, None), (two, None)):
            simulator.learn(run, Nearest(3), n)
        assert simulator.episodes == 70
        pairs.append((one, two))
    for one, two in pairs[1:]:
        assert identical(one, pairs[0][0])
        assert identical(two, pairs[0][1])
    alone = learnt(mdp, "compiled", Recorder(), partial(Nearest, 3), episodes=10)[0]
    assert np.array_equal(alone.returns, pairs[0][0].returns[:10])
    assert not np.array_equal(pairs[0][0].tables.label[:30], pairs[0][1].tables.label[:30])


def test_after_latent_states_a_simulator_refuses_to_go_on_by_sight():
    simulator = make_simulator(PROBLEMS["LockBernoulli"], 5)
    run = simulator.start(Recorder(), EPISODES)
    simulator.learn(run, None, 20)
    with pytest.raises(ValueError, match="go on by sight in a new simulator"):
        simulator.learn(run, Nearest(3, 3))


def rows(levels, x):
    """Observations with their levels, in order of size."""
    return sorted((int(h), *map(float, row)) for h, row in zip(levels, x))


@pytest.mark.parametrize("problem", ["PerLevel", *EPISODE_NOISE])
def test_recorded_observations_are_those_that_were_met(problem):
    mdp = PROBLEMS[problem]
    records = []
    for engine in ENGINES:
        simulator = make_simulator(mdp, 5, engine=engine)
        run = simulator.start(Recorder(), 40)
        assert simulator.learn(run, Nearest(3), 15) is None
        records.append(simulator.learn(run, Nearest(3), record=True))
        none = simulator.learn(run, Nearest(3), record=True)
        assert len(none) == 0
        assert none.x.shape[1:] == (mdp.emission.dim,) or engine == "stepwise"
    for seen in records:
        assert len(seen) == 25 * (mdp.horizon + 1)
        assert rows(seen.levels, seen.x) == rows(records[0].levels, records[0].x)


@pytest.mark.parametrize("problem", ["PerLevel", *EPISODE_NOISE])
def test_rollouts_agree_before_and_after_learning(problem):
    mdp = PROBLEMS[problem]
    g = np.random.default_rng(0)
    policies = [Policy(g.dirichlet([1, 1], (3, 3)), Nearest(3, first)) for first in (0, 2)]
    drawn, runs = [], []
    for engine in ENGINES:
        simulator = make_simulator(mdp, 5, engine=engine)
        run = simulator.start(Recorder(), 40)
        simulator.learn(run, Nearest(3), 15)
        some = simulator.rollout(policies, 30, "test")
        simulator.learn(run, Nearest(3))
        more = simulator.rollout(policies[:1], 20, "more")
        assert simulator.ledger == Counter(learn=40, test=30, more=20)
        drawn.append((some, more))
        runs.append(run)
    for pair, run in zip(drawn[1:], runs[1:]):
        assert identical(run, runs[0])
        for one, two in zip(pair, drawn[0]):
            for field in ("x", "actions", "rewards", "lengths"):
                assert np.array_equal(getattr(one, field), getattr(two, field))


# --- the ledger, seeds, fitting again -------------------------------------------------------------
@pytest.mark.parametrize("on", ["latent", "observation"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("episodes", [0, 1, 123])
def test_ledger_counts_every_episode_once(episodes, engine, on):
    mdp = PROBLEMS["LockBernoulli"]
    agent = fitted(mdp, Recorder(), on, engine, episodes=episodes)
    assert Counter(agent.ledger_) == Counter(learn=episodes)
    assert agent.returns_.shape == (episodes,)
    assert agent.tables_.planned.tolist() == [1] * episodes
    assert agent.tables_.count.sum() == episodes * mdp.horizon


@pytest.mark.parametrize("engine", ENGINES)
def test_ledger_counts_each_piece(engine):
    simulator = make_simulator(PROBLEMS["LockBernoulli"], 0, engine=engine)
    run = simulator.start(Recorder(), 50)
    for n, total in ((10, 10), (0, 10), (25, 35), (25, 50), (5, 50)):
        simulator.learn(run, Nearest(3), n)
        assert simulator.ledger["learn"] == simulator.episodes == run.k == total


@pytest.mark.parametrize("engine", ENGINES)
def test_other_seeds_give_other_worlds_and_other_choices(engine):
    mdp = random_mdp(4, 3, 3, 5)
    runs = [learnt(mdp, engine, Recorder(), no_sight, seed=s)[0].tables for s in (0, 1, 2**63 - 1)]
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert not np.array_equal(runs[one].action, runs[two].action)
        assert not np.array_equal(runs[one].label, runs[two].label)
        assert not np.array_equal(runs[one].reward, runs[two].reward)


@pytest.mark.parametrize("on", ["latent", "observation"])
@any_learner
def test_fitting_again_forgets_the_first_fit(learner, on):
    mdp, other = PROBLEMS["LockBernoulli"], lock_bernoulli(horizon=6, switch=0.5, seed=9)
    agent = Tabular(learner, on).fit(other, 150, seed=8)
    assert agent.policy_.shape[0] == 6
    agent.fit(mdp, 40, seed=3)
    fresh = fitted(mdp, learner, on)
    assert np.array_equal(agent.returns_, fresh.returns_)
    assert identical_tables(agent, fresh)
    assert np.array_equal(agent.policy_, fresh.policy_)
    assert agent.ledger_ == fresh.ledger_


def test_a_finished_fit_is_not_changed_by_the_next():
    mdp = PROBLEMS["LockBernoulli"]
    agent = fitted(mdp, OracleQ(v_max=3.0), "latent")
    returns, q = agent.returns_, agent.tables_.q
    kept = returns.copy(), q.copy()
    agent.fit(mdp, 40, seed=4)
    assert np.array_equal(returns, kept[0])
    assert np.array_equal(q, kept[1])
    assert not np.array_equal(agent.tables_.q, q)
