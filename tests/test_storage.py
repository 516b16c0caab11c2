"""Lists of successors, and levels stored once: the same problem as with full tables."""

from __future__ import annotations

import pickle

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blockmdp as bm
from blockmdp.envs import BlockMDPEnv, BlockMDPVectorEnv
from blockmdp.simulators import make_simulator

exact = settings(deadline=None, max_examples=25)


@st.composite
def stored(draw):
    """A problem with full tables, and the same one with lists and, perhaps, one level for all."""
    H, S, A = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 3))
    K = draw(st.integers(1, S))
    g = np.random.default_rng(draw(st.integers(0, 2**32)))
    alike = draw(st.booleans())
    shape = (S, A) if alike else (H, S, A)
    states = np.array([g.permutation(S)[:K] for _ in range(int(np.prod(shape)))])
    states = states.reshape(*shape, K)
    P = g.choice([0.0, 1.0, 2.0, 3.0], states.shape)
    P[..., 0] += 1.0
    P /= P.sum(axis=-1, keepdims=True)
    r, p = g.normal(size=P.shape), g.choice([0.3, 0.7, 1.0], P.shape)
    mu = g.dirichlet(np.ones(S)) if draw(st.booleans()) else np.eye(S)[g.integers(S)]
    options = {
        "emission": draw(st.sampled_from([bm.OneHotBernoulli(S, 2), markov(S), plain(S, H)]))
    }
    if draw(st.booleans()):  # some states end the episode
        ends = (g.random(S) < 0.5) & (mu == 0)
        options["ends"] = ends
        states[..., ends, :, :] = np.flatnonzero(ends)[:, None, None]
        P[..., ends, :, :] = np.arange(K) == 0
        r[..., ends, :, :] = 0.0
    horizon = H if alike else None
    lists = bm.BlockMDP(mu, bm.Successors(states, P), r, p, **options, horizon=horizon)
    tables = []
    for values in (P, r, p):
        full = np.zeros((*shape, S))
        for index in zip(*np.nonzero(P)):
            full[(*index[:-1], states[index])] = values[index]
        tables.append(np.broadcast_to(full, (H, S, A, S)))
    return bm.BlockMDP(mu, *tables, **options), lists


def plain(S, H):
    """Return an emission without noise that changes from level to level."""
    return bm.PerLevel([bm.Fixed(np.arange(S) + 10.0 * (h % 2)) for h in range(H + 1)])


def markov(S):
    """Return an emission whose noise is correlated within an episode."""
    return bm.MarkovBits(np.arange(S), np.full(S + 2, 0.3), np.full(S + 2, 0.4))


@exact
@given(stored(), st.integers(0, 2**32))
def test_lists_give_the_values_of_full_tables(both, entropy):
    full, lists = both
    for field in ("transitions", "rewards", "reward_probability"):
        assert np.array_equal(getattr(full, field), getattr(lists, field))
        with pytest.raises(ValueError, match="read-only"):
            getattr(lists, field)[:] = 0
    pi = np.random.default_rng(entropy).dirichlet(
        np.ones(full.n_actions), (full.horizon, full.n_states)
    )
    for method in ("optimal_values", "optimal_value", "reachability", "reward_range"):
        assert np.allclose(getattr(full, method)(), getattr(lists, method)(), rtol=0, atol=1e-12)
    assert np.allclose(full.occupancy(pi), lists.occupancy(pi), rtol=0, atol=1e-12)
    assert np.isclose(full.value(pi), lists.value(pi), rtol=0, atol=1e-12)
    assert np.allclose(full.expected_rewards, lists.expected_rewards, rtol=0, atol=1e-12)
    assert np.isclose(lists.value(lists.optimal_policy()), full.optimal_value(), rtol=0, atol=1e-12)


@exact
@given(stored())
def test_lists_give_the_same_trajectories_as_full_tables_bit_for_bit(both):
    engines = ("compiled", "interpreted", "stepwise")
    for on in ("latent", "observation"):
        learner = bm.QLearning(lr=0.5, exploration=1.0)
        fits = [
            bm.Tabular(learner, on=on).fit(m, 20, seed=3, engine=engine)
            for m in both
            for engine in engines
        ]
        for fit in fits[1:]:
            assert np.array_equal(fits[0].returns_, fit.returns_)
            assert on == "observation" or np.array_equal(fits[0].tables_.q, fit.tables_.q)
    policy = bm.Policy(both[0].uniform_policy())
    drawn = []
    for m in both:
        for engine in ("compiled", "stepwise"):
            simulator = make_simulator(m, 4, engine=engine)
            drawn += [[simulator.rollout([policy], n, "test") for n in (7, 5)]]
    for other in drawn[1:]:
        for one, two in zip(drawn[0], other):
            for field in ("x", "actions", "rewards", "lengths"):
                assert np.array_equal(getattr(one, field), getattr(two, field)), field


@exact
@given(stored())
def test_environments_do_not_know_how_a_problem_is_stored(both):
    paths = []
    for m in both:
        env, envs = BlockMDPEnv(m), BlockMDPVectorEnv(m, 2)
        (x, _), (y, _) = env.reset(seed=1), envs.reset(seed=1)
        path = [x.tolist(), y.tolist()]
        terminated = False
        for h in range(2 * m.horizon):
            a = h % m.n_actions
            if terminated:
                x, r, terminated = env.reset()[0], 0.0, False
            else:
                x, r, terminated, *_ = env.step(a)
            y, rewards, over, *_ = envs.step([a, a])
            path += [x.tolist(), float(r), terminated, y.tolist(), rewards.tolist(), over.tolist()]
            assert (x.tolist(), r, terminated) == (y[0].tolist(), rewards[0], over[0])
        paths.append(path)
    assert paths[0] == paths[1]


@exact
@given(stored())
def test_states_are_reached_where_reachability_is_positive(both):
    for m in both:
        live = slice(None) if m.ends is None else ~m.ends
        assert np.array_equal(m.reached()[:, live], m.reachability()[:, live] > 0)
        assert not (m.reached() & (m.reachability() == 0)).any()


def test_states_that_look_the_same_make_no_block_mdp():
    def shown(*numbers):
        return corridor(emission=bm.Fixed(list(numbers))).is_block()

    assert shown(3, 1, 2, 0)
    assert shown(3, 3, 2, 2) is False  # at level 1, cells 0 and 1
    emission = bm.Fixed([3, 1, 3, 0])
    assert corridor(emission=emission, horizon=1).is_block()  # cell 2 is too far
    assert not corridor(emission=emission, horizon=2).is_block()
    by_level = [bm.Fixed([h, h + 1, h + 2, h + 3]) for h in range(10)]
    assert corridor(emission=bm.PerLevel(by_level)).is_block()
    with pytest.raises(ValueError, match="noisy"):
        corridor().is_block()


@exact
@given(stored())
def test_a_copy_is_stored_in_the_same_way(both):
    for m in both:
        copy = pickle.loads(pickle.dumps(m))
        assert (copy.stationary, copy.horizon) == (m.stationary, m.horizon)
        assert (copy.successors is None) == (m.successors is None)
        assert np.array_equal(copy.dynamics.model, m.dynamics.model)
        assert repr(copy) == repr(m)


def test_full_tables_without_levels_are_stored_once():
    P = np.random.default_rng(0).dirichlet([1, 1, 1], (3, 2))
    r = np.random.default_rng(1).random((3, 2, 3))
    emission = bm.OneHotBernoulli(3, 1)
    alike = bm.BlockMDP([1, 0, 0], P, r, emission=emission, horizon=7)
    full = bm.BlockMDP([1, 0, 0], [P] * 7, [r] * 7, emission=emission)
    assert alike.stationary
    assert not full.stationary
    assert alike.dynamics.model.shape == (1, 3, 2, 3, 3)
    assert alike.transitions.shape == (7, 3, 2, 3)
    assert alike.transitions.strides[0] == 0
    assert alike.optimal_value() == full.optimal_value()
    assert np.array_equal(alike.reachability(), full.reachability())
    one, two = (bm.Tabular(bm.UCBVI(v_max=7.0)).fit(m, 50, seed=1) for m in (alike, full))
    assert np.array_equal(one.returns_, two.returns_)


def test_a_checkpoint_of_another_horizon_is_refused(tmp_path):
    def problem(horizon):
        lists = bm.Successors([[[0, 1]], [[0, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]])
        emission = bm.OneHotBernoulli(2, 1)
        return bm.BlockMDP([1, 0], lists, [0, 1], emission=emission, horizon=horizon)

    file, agent = tmp_path / "fit.npz", bm.Tabular(bm.QLearning())
    first = agent.fit(problem(4), 30, seed=1, checkpoint=file).returns_
    longer = agent.fit(problem(4), 60, seed=1, checkpoint=file).returns_
    assert np.array_equal(longer[:30], first)
    with pytest.raises(ValueError, match="another fit"):
        agent.fit(problem(5), 60, seed=1, checkpoint=file)


def corridor(**changes):
    """Four cells; action 1 goes on, action 0 goes back. Arriving in the last one pays 1."""
    s = np.arange(4)
    states = np.stack([np.maximum(s - 1, 0), np.minimum(s + 1, 3)], axis=1)[:, :, None]
    states[3] = 3
    rewards = ((states == 3) & (s[:, None, None] < 3)) * 1.0
    options = {"emission": bm.OneHotBernoulli(4, 3), "horizon": 9, "ends": s == 3} | changes
    return bm.BlockMDP(s == 0, bm.Successors(states, np.ones(states.shape)), rewards, **options)


def test_a_state_may_end_the_episode():
    m = corridor()
    assert m.optimal_value() == corridor(ends=None).optimal_value() == 1.0
    optimal = bm.Policy(np.eye(2)[np.ones((9, 4), int)])  # it does not wait
    short = make_simulator(m).rollout([optimal], 5, "test")
    assert short.lengths.tolist() == [3] * 5
    assert short.actions[0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert short.rewards[0].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert not short.x[:, 4:].any()
    assert short.x[:, 3, 3].all()
    assert make_simulator(corridor(ends=None)).rollout([optimal], 5, "test").lengths.max() == 9
    env = m.to_gymnasium()
    env.reset(seed=0)
    assert [env.step(1)[2] for _ in range(3)] == [False, False, True]
    with pytest.raises(gym.error.ResetNeeded):
        env.step(1)


@pytest.mark.parametrize("agent", [bm.URL, bm.OnlineURL])
def test_agents_learn_from_episodes_that_end_early(agent):
    one, two = (agent().fit(corridor(), 60, engine=engine) for engine in ("auto", "stepwise"))
    assert one.value() > 0.9
    assert np.array_equal(one.returns_, two.returns_)


@pytest.mark.parametrize(
    "changes",
    [
        {"ends": [False, False, True, True]},
        {"ends": [True, False, False, False]},
        {"ends": [0, 0, 0, 1]},
        {"ends": [True]},
    ],
)
def test_a_state_that_leads_elsewhere_cannot_end_an_episode(changes):
    with pytest.raises(ValueError, match=r"cannot end an episode|4 booleans"):
        corridor(**changes)


STATES, HALVES = [[[0, 1]], [[0, 1]]], [[[0.5, 0.5]], [[0.5, 0.5]]]
BAD = {
    "no horizon": ({"horizon": None}, r"set horizon.*\(2, 1, 2\)"),
    "horizon of other tables": (
        {"transitions": np.full((3, 2, 1, 2), 0.5), "horizon": 4},
        "horizon must be 3.*got 4",
    ),
    "horizon 0": ({"horizon": 0}, "horizon must be an integer >= 1"),
    "a state that does not exist": (
        {"transitions": bm.Successors([[[0, 2]], [[0, 1]]], HALVES)},
        "integers from 0 to 1, got 2",
    ),
    "half a state": (
        {"transitions": bm.Successors(np.array(STATES) / 2, HALVES)},
        "integers from 0 to 1, got float64",
    ),
    "a state twice": (
        {"transitions": bm.Successors([[[0, 1]], [[1, 1]]], HALVES)},
        r"state 1 is there twice at \[0, 1, 0\]: add",
    ),
    "two shapes": (
        {"transitions": bm.Successors([[[0]], [[1]]], HALVES)},
        r"the same shape.*\(2, 1, 1\) and \(2, 1, 2\)",
    ),
    "probabilities": (
        {"transitions": bm.Successors(STATES, np.array(HALVES) / 2)},
        r"transitions\[0, 0\] must sum to 1",
    ),
    "rewards by level": ({"rewards": np.ones((3, 2, 1, 2))}, r"\(H, S, A, K\) = \(1, 2, 1, 2\)"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_list_is_refused_in_one_line(changes, message):
    good = {
        "initial": [1, 0],
        "transitions": bm.Successors(STATES, HALVES),
        "rewards": 1.0,
        "emission": bm.OneHotBernoulli(2, 1),
        "horizon": 3,
    }
    assert bm.BlockMDP(**good).optimal_value() == 3
    with pytest.raises(ValueError, match=message) as caught:
        bm.BlockMDP(**(good | changes))
    assert "\n" not in str(caught.value)


def test_a_large_problem_takes_little_memory():
    S, A, H = 5000, 7, 300
    g = np.random.default_rng(0)
    states = g.integers(0, S, (S, A, 1))
    emission = bm.OneHotBernoulli(S, 0)
    goal = np.arange(S) == S - 1
    m = bm.BlockMDP(
        np.arange(S) == 0,
        bm.Successors(states, np.ones(states.shape)),
        goal,
        emission=emission,
        horizon=H,
    )
    assert m.dynamics.model.nbytes + sum(a.nbytes for a in m._tables) < 4e6
    for learner in (bm.QLearning(stationary=True), bm.OracleQ(stationary=True)):
        assert sum(np.asarray(a).nbytes for a in learner.tables(H, S, A, 10)) < 4e6
    agent = bm.Tabular(bm.QLearning(stationary=True)).fit(m, 3)
    assert 0 <= agent.value() <= m.optimal_value() <= H


def test_an_end_is_seen_only_where_it_can_be_entered():
    m = corridor()
    assert m.reached()[:, 3].tolist() == [h >= 3 for h in range(10)]  # one may wait before
    fixed = bm.BlockMDP([1, 0], [[[0, 1]], [[0, 1]]], [0, 0], emission=bm.OneHotBernoulli(2, 1),
                     horizon=4, ends=[False, True])  # fmt: skip
    assert fixed.reached()[:, 1].tolist() == [False, True, False, False, False]
