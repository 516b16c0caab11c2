"""PCID: what it finds level by level, where it must fail, and that it keeps to the agents' face."""

from __future__ import annotations

from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from helpers import key_that_draws
from scipy.stats import ortho_group

import blockmdp as bm
from blockmdp.learners.fixed_policy import FixedPolicy
from blockmdp.pcid import _greedy, _Linear, _Network
from blockmdp.simulators import make_simulator


def lock(H=4, switch=0.2, seed=0):
    return bm.lock_bernoulli(horizon=H, switch=switch, seed=seed)


@pytest.mark.parametrize("model", ["linear", "network"])
@pytest.mark.parametrize("switch", [0.0, 0.2])
def test_both_locks_are_opened(model, switch):
    for m in (lock(5, switch), bm.lock_gaussian(5, switch, sigma=0.1)):
        agent = bm.PCID(model, n=300).fit(m, episodes=1000, seed=1)
        assert agent.value() > 0.48
        assert agent.returns_.mean() > 0.43
        assert agent.accuracy()[1:].min() > 0.95


def test_it_draws_n_trajectories_a_level_and_says_so():
    agent = bm.PCID(n=120).fit(lock(3), episodes=50, seed=0)
    assert agent.ledger_ == {"explore": 360, "learn": 50}
    assert agent.trajectories_.tolist() == list(range(361, 411))
    assert [level.trajectories for level in agent.history_] == [120, 240, 360]
    assert [level.level for level in agent.history_] == [1, 2, 3]


def test_states_with_the_same_backward_distribution_are_one_to_it():
    """At switch 0.5 each good action leads to either live state alike."""
    agent = bm.PCID(n=400).fit(lock(4, switch=0.5), episodes=10, seed=0)
    C = agent.confusion(500)
    live_alike = np.abs(C[1:, 0] - C[1:, 1]).sum(axis=1)
    assert live_alike.max() < 0.8  # 2 if they were told apart
    assert np.abs(C[1:, 0] - C[1:, 2]).sum(axis=1).min() > 1.5  # the dead state is told apart


def test_the_number_of_clusters_is_cut_while_one_is_small():
    agent = bm.PCID(n=100, n_clusters=6, min_cluster=30).fit(lock(2), episodes=5, seed=0)
    for level in agent.history_:
        assert level.clusters <= 3
        assert min(level.sizes) >= 30
    assert any("fewer than 30" in note for note in agent.decoder_.notes)
    assert not bm.PCID(n=300).fit(lock(2), episodes=5, seed=0).decoder_.notes  # 3 clusters are kept


def test_homing_policies_reach_what_the_model_says():
    m = lock(3, switch=0.2)
    agent = bm.PCID(n=400).fit(m, episodes=5, seed=0, record=True)
    simulator = make_simulator(m, seed=1)
    for level, next_level in pairwise(agent.history_):
        h = level.level
        for target, (policy, reach) in enumerate(zip(next_level.cover, level.reach)):
            x = simulator.rollout([policy], 1000, "check").x[:, h]
            share = np.mean(agent.decoder_.decode(np.full(len(x), h), x) == target)
            assert share == pytest.approx(reach, abs=0.08)
            assert reach > 0.7  # all states can be reached, up to the switch


def test_it_predicts_the_previous_state_and_not_only_the_action():
    """The first action chooses a state, which no other action changes."""
    S, A, H = 2, 2, 3
    P = np.zeros((H, S, A, S))
    P[0, :, [0, 1], [0, 1]] = 1.0
    P[1:] = np.eye(S)[:, None]
    rewards = np.zeros((H, S, A, S))
    rewards[-1] = np.eye(S)[:, :, None]  # the last action has to name the state
    m = bm.BlockMDP([1, 0], P, rewards, emission=bm.OneHotBernoulli(S, 3))
    agent = bm.PCID(n=300, n_clusters=2).fit(m, episodes=10, seed=0)
    assert agent.accuracy()[1:].min() > 0.95
    assert agent.value() > 0.95


def test_actions_tie_if_they_differ_by_rounding_errors():
    third = (0.1 + 0.2) / 3
    assert third != 0.1
    for scale in (1.0, 1e-12):  # however small rewards are
        Q = scale * np.array([[0.1, third, 0.05]])
        assert _greedy(Q).tolist() == [[0.5, 0.5, 0.0]]
    assert _greedy(np.zeros((1, 2))).tolist() == [[0.5, 0.5]]


def test_levels_that_emit_differently_are_no_trouble():
    base = lock(4)
    emissions = [
        bm.Linear(bm.OneHotGaussian(3, 4, sigma=0.1), ortho_group.rvs(7, random_state=h))
        for h in range(5)
    ]
    m = bm.BlockMDP(
        base.initial,
        base.transitions,
        base.rewards,
        base.reward_probability,
        emission=bm.PerLevel(emissions),
    )
    assert bm.PCID(n=300).fit(m, episodes=10, seed=0).value() > 0.48


@pytest.mark.parametrize("model", ["linear", "network"])
def test_engines_agree(model):
    agents = [
        bm.PCID(model, n=60).fit(lock(3), episodes=40, seed=5, engine=engine)
        for engine in ("compiled", "interpreted", "stepwise")
    ]
    for other in agents[1:]:
        assert np.array_equal(agents[0].returns_, other.returns_)
        assert np.array_equal(agents[0].policy_.pi, other.policy_.pi)
        assert agents[0].ledger_ == other.ledger_


@pytest.mark.parametrize("model", ["linear", "network"])
def test_a_saved_policy_acts_as_the_agent_did(model, tmp_path):
    m = lock(4)
    agent = bm.PCID(model, n=100).fit(m, episodes=5, seed=0)
    agent.save(tmp_path / "p.npz")
    loaded = bm.load(tmp_path / "p.npz")
    for h in range(4):
        x = m.sample(h, 0, 50)
        assert np.array_equal(agent.act(x, h), loaded.act(x, h))


def test_a_black_box_is_explored_stepwise():
    env = gym.wrappers.TransformReward(
        gym.make("blockmdp/LockBernoulli-v0", horizon=3, switch=0.0), lambda r: 2 * r
    )
    agent = bm.PCID(n=300).fit(env, episodes=200, seed=0, horizon=3)
    assert agent.returns_.mean() > 0.8
    with pytest.raises(ValueError, match="black box"):
        agent.value()


def test_the_picture_of_pcid_is_drawn():
    figure = bm.PCID(n=60).fit(lock(2), episodes=50, seed=0).plot()
    assert len(figure.axes) >= 3


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="model must be 'linear' or 'network'"):
        bm.PCID("forest")
    for name in ("n", "n_clusters", "min_cluster"):
        with pytest.raises(ValueError, match=f"{name} must be an integer >= 1"):
            bm.PCID(**{name: 0})
    with pytest.raises(ValueError, match="episodes must be an integer"):
        bm.PCID().fit(lock(), episodes=1.5)


def test_follow_keeps_to_the_protocol_of_learners():
    bm.testing.check_learner(FixedPolicy(np.full((3, 3, 4), 0.25)))
    halves = FixedPolicy(np.full((1, 1, 2), 0.5))
    for u, action in ((0.0, 0), (0.5 - 2**-53, 0), (0.5, 1)):
        assert halves.act(halves.tables(1, 1, 2, 1), 0, 0, 0, key_that_draws(u, 0)) == action
    pi = FixedPolicy(np.eye(4)[None, :2]).tables(1, 3, 4, 10).pi
    assert pi[0].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0.25] * 4]  # no label 2 in the policy


def test_the_same_seed_gives_the_same_agent():
    one, two = (bm.PCID(n=80).fit(lock(3), episodes=30, seed=2) for _ in range(2))
    assert np.array_equal(one.returns_, two.returns_)
    assert np.array_equal(one.policy_.pi, two.policy_.pi)


def test_scores_choose_the_centre_nearest_to_the_prediction():
    draw = np.random.default_rng(0)
    x = draw.normal(size=(200, 4)).astype(np.float32)
    y = np.exp(2 * x[:, :3])
    y /= y.sum(axis=1, keepdims=True)
    for model in (_Linear.fit(x, y), _Network.fit(x, y, 3, np.uint64(0))):
        predicted = model.predict(x)
        C = predicted[:5] * np.array([0.6, 0.8, 1.0, 1.2, 1.4])[:, None]  # of different lengths
        distances = ((predicted[:, None] - C) ** 2).sum(axis=2)
        nearest = distances.argmin(axis=1)
        assert len(set(nearest)) > 2
        assert (model.nearest(C).predict(x) == nearest).mean() > 0.99


def test_a_cluster_of_exactly_the_smallest_size_is_kept():
    x = np.repeat([[0.0], [1.0]], 30, axis=0)
    came_from = np.repeat([0, 1], 30)
    for min_cluster, found in ((30, 2), (31, 1)):
        agent = bm.PCID(n_clusters=2, min_cluster=min_cluster)
        assert agent._decode_backward(x, came_from, 2, np.uint64(0)).n_labels == found


def second_action_pays(**options):
    """A state in which the second of two actions pays, and a state after it."""
    rewards = np.zeros((3, 2, 2, 2))
    rewards[0, 0, 1] = 1.0
    transitions = np.zeros((3, 2, 2, 2))
    transitions[..., 1] = 1.0
    emission = bm.OneHotBernoulli(2, 2)
    return bm.BlockMDP([1, 0], transitions, rewards, emission=emission, **options)


def test_one_cluster_is_enough_for_one_state():
    agent = bm.PCID(n=20, n_clusters=1).fit(second_action_pays(), episodes=5, seed=0)
    assert agent.value() == 1.0
    assert [level.clusters for level in agent.history_] == [1, 1, 1]


def test_an_action_is_known_after_one_trial():
    m = second_action_pays()
    fits = [bm.PCID(n=1).fit(m, episodes=1, seed=seed) for seed in range(8)]
    assert {fit.policy_.pi[0, 0, 1] for fit in fits} == {0.5, 1.0}  # the other was tried, or this
    for fit in fits:  # also where no action was tried
        assert (fit.transitions_.sum(axis=3) == 1.0).all()


def test_a_level_that_no_episode_reaches_has_one_label():
    m = second_action_pays(ends=[False, True])
    agent = bm.PCID(n=20).fit(m, episodes=5, seed=0)
    assert [level.clusters for level in agent.history_[1:]] == [1, 1]
    assert sum("no observations to learn from" in note for note in agent.decoder_.notes) == 2
    assert agent.value() == 1.0
