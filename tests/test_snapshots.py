"""Policies at checkpoints of a fit, and from which trajectory on they are good."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

import blockmdp as bm
from blockmdp import measures
from blockmdp.history import Snapshot, next_checkpoint

LOCK = bm.lock_bernoulli(horizon=3, switch=0.2, seed=3)
AGENTS = {
    "Tabular, latent states": lambda: bm.Tabular(bm.UCBVI(bonus=0.1)),
    "Tabular, observations": lambda: bm.Tabular(on="observation"),
    "URL": lambda: bm.URL(learner=bm.UCBVI(bonus=0.1)),
    "URL, retrained": lambda: bm.URL(batch=40, retrain_every=37),
    "URL, restarts": lambda: bm.URL(batch=40, restarts=2, evaluation=20),
    "OnlineURL": lambda: bm.OnlineURL(learner=bm.UCBVI(bonus=0.1)),
    "PCID": lambda: bm.PCID(n=150),
}


def checkpoints(episodes):
    """All checkpoints before the end of a fit."""
    k = [next_checkpoint(0)]
    while k[-1] < episodes:
        k.append(next_checkpoint(k[-1]))
    return k[:-1]


# --- checkpoints ----------------------------------------------------------------------------------
def test_every_episode_up_to_64_is_a_checkpoint_then_about_every_fortieth_part():
    grid = np.array(checkpoints(10**7))
    assert grid[:64].tolist() == list(range(1, 65))
    growth = np.diff(grid[63:]) / grid[63:-1]
    assert growth.min() > 1 / 64
    assert growth.max() <= 1 / 32
    assert len(grid) < 700


def test_the_next_checkpoint_is_the_same_from_any_episode_before_it():
    grid = checkpoints(3000)
    for k in range(grid[-1]):
        assert next_checkpoint(k) == next(c for c in grid if c > k)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_keeps_its_policy_at_each_checkpoint_and_at_the_end(name):
    episodes = 150
    agent = AGENTS[name]().fit(LOCK, episodes, seed=1, record=True)
    restarts = getattr(agent, "restarts", 1)
    at = [n * episodes + k for n in range(restarts) for k in checkpoints(episodes)]
    assert [s.k for s in agent.snapshots_] == [*at, restarts * episodes]
    last = agent.snapshots_.pop()
    assert last.policy is agent.policy_
    assert last.trajectories == sum(agent.ledger_.values())
    for s in agent.snapshots_:
        assert s.trajectories == agent.trajectories_[s.k - 1]


@pytest.mark.parametrize("name", [name for name in AGENTS if name != "URL, restarts"])
def test_a_kept_policy_is_that_of_a_fit_which_ends_there(name):
    agent = AGENTS[name]().fit(LOCK, 150, seed=1, record=True)
    for s in agent.snapshots_[9:100:45]:
        shorter = AGENTS[name]().fit(LOCK, s.k, seed=1)
        assert shorter.trajectories_[-1] == s.trajectories
        for h in range(LOCK.horizon):
            states = name == "Tabular, latent states"
            x = (
                np.arange(3)
                if states
                else np.concatenate([LOCK.sample(h, i, 50) for i in range(3)])
            )
            assert np.array_equal(shorter.act(x, h), s.policy.act(x, h))


def test_without_record_no_policy_is_kept():
    assert bm.Tabular().fit(LOCK, 50).snapshots_ == []
    assert bm.OnlineURL().fit(LOCK, 50).snapshots_ == []


@pytest.mark.parametrize("engine", ["compiled", "interpreted", "stepwise"])
def test_all_engines_keep_the_same_policies(engine):
    agent = bm.URL(batch=20).fit(LOCK, 70, engine=engine, record=True)
    same = bm.URL(batch=20).fit(LOCK, 70, record=True)
    for one, other in zip(agent.snapshots_, same.snapshots_, strict=True):
        assert (one.k, one.trajectories) == (other.k, other.trajectories)
        assert np.array_equal(one.policy.pi, other.policy.pi)


def test_a_black_box_keeps_policies_a_vector_of_them_only_the_last():
    env = gym.make("FrozenLake-v1", max_episode_steps=10)
    agent = bm.Tabular(on="observation").fit(env, 80, record=True)
    assert len(agent.snapshots_) == len(checkpoints(80)) + 1
    envs = gym.make_vec("blockmdp/LockBernoulli-v0", num_envs=3, horizon=3)
    assert len(bm.URL(batch=20).fit(envs, 80, record=True).snapshots_) == 1


# --- from where on they are good ------------------------------------------------------------------
def by_hand(agent, shares):
    """The definition: evaluate everything."""
    values = [measures.value(agent.mdp_, s.policy, 1000, agent.seed_) for s in agent.snapshots_]
    found = {}
    for share in shares:
        good = [value >= share * agent.mdp_.optimal_value() for value in values]
        bad = [i for i, is_good in enumerate(good) if not is_good]
        first = bad[-1] + 1 if bad else 0
        found[share] = agent.snapshots_[first].trajectories if good[-1] else None
    return found


@pytest.mark.parametrize("name", AGENTS)
def test_solved_from_is_the_first_trajectory_after_the_last_bad_policy(name):
    agent = AGENTS[name]().fit(LOCK, 600, seed=1, record=True)
    found = {share: agent.solved_from(share) for share in (0.5, 0.9, 1.0)}
    assert found == by_hand(agent, found)
    if name != "Tabular, observations":
        assert 0 < found[0.9] < sum(agent.ledger_.values())
    assert agent.solved_from() == found[0.9]


def test_pcid_is_solved_from_its_first_episode_after_exploration():
    agent = bm.PCID(n=150).fit(LOCK, 20, record=True)
    assert agent.solved_from() == agent.ledger_["explore"] + 1


def values(*wanted):
    """Snapshots whose policies have these shares of the optimal value, 1 or 0."""
    best = LOCK.optimal_policy()
    worst = np.roll(best, 1, axis=2)
    each = [bm.Policy((best if good else worst).copy()) for good in wanted]
    return [Snapshot(i, 10 * i, policy) for i, policy in enumerate(each, 1)]


@pytest.mark.parametrize(
    ("good", "expected"),
    [
        ((1, 1, 1), 10),
        ((0, 1, 1), 20),
        ((1, 0, 1), 30),
        ((1, 1, 0), None),
        ((0, 0, 0), None),
        ((), None),
    ],
)
def test_a_policy_that_gets_worse_again_was_not_solved(good, expected):
    assert measures.solved_from(LOCK, values(*good)) == expected
    with pytest.raises(ValueError, match="samples must be an integer >= 1, got 0"):
        measures.solved_from(LOCK, values(*good), samples=0)


def test_states_are_observed_only_where_it_matters_which_action_is_taken(monkeypatch):
    m = bm.lock_bernoulli(horizon=5, seed=0)
    assert m.has_choice.tolist() == [[True, True, False]] * 5  # the last state is dead
    agent = bm.OnlineURL().fit(m, 60)
    table = np.eye(4)[agent.policy_.pi.argmax(axis=2)]
    C = agent.confusion(200)[:-1, :, : table.shape[1]]
    shares = np.einsum("hsk,hka->hsa", C, table)
    observed = []
    real = measures.observe
    monkeypatch.setattr(measures, "observe", lambda *a: observed.extend(a[2]) or real(*a))
    assert agent.value(200) == pytest.approx(m.value(shares), abs=1e-12)
    assert set(observed) == {0, 1}
    P = m.transitions[:, :, :1].repeat(4, axis=2)
    nothing = bm.BlockMDP(m.initial, P, 0.25, emission=m.emission)
    assert not nothing.has_choice.any()
    assert measures.value(nothing, agent.policy_) == pytest.approx(5 * 0.25)


def test_equal_policies_are_evaluated_once_and_none_before_the_last_bad_one(monkeypatch):
    evaluated = []
    real = measures._value
    monkeypatch.setattr(measures, "_value", lambda *a: evaluated.append(a[1]) or real(*a))
    snapshots = values(0, 0, 1, 0, 1, 1, 1)
    assert measures.solved_from(LOCK, snapshots) == 50
    assert evaluated == [snapshots[6].policy, snapshots[3].policy]


@pytest.mark.parametrize("by_level", [True, False])
def test_values_of_tables_that_grow_are_those_of_each_table_alone(by_level):
    agent = bm.Tabular(on="observation", by_level=by_level).fit(LOCK, 300, seed=2, record="few")
    alone = [measures.value(LOCK, s.policy, None, seed=2) for s in agent.snapshots_]
    assert len(set(alone)) > 3
    assert measures.values(LOCK, agent.snapshots_, None, 2).tolist() == alone
    assert measures.values(LOCK, agent.snapshots_[::-1], None, 2).tolist() == alone[::-1]


def test_the_value_follows_from_the_actions_for_fresh_observations():
    agent = bm.URL().fit(LOCK, 30, seed=1)
    policy = agent.policy_
    few = bm.Policy(policy.pi[:, :2], policy.decoder)  # the third label gets action 0
    for each in (policy, few):
        shares = np.empty((LOCK.horizon, LOCK.n_states, LOCK.n_actions))
        for h, s in np.ndindex(shares.shape[:2]):
            actions = each.act(LOCK.sample(h, s, 50, seed=3), h)
            shares[h, s] = np.bincount(actions, minlength=LOCK.n_actions) / 50
        assert measures.value(LOCK, each, 50, seed=3) == LOCK.value(shares)


def test_the_whole_optimal_value_can_be_asked_for_even_if_it_is_negative():
    costs = bm.BlockMDP(
        LOCK.initial, LOCK.transitions, LOCK.rewards - 1, emission=LOCK.emission, name="costs"
    )
    assert costs.optimal_value() < 0
    best = Snapshot(1, 7, bm.Policy(costs.optimal_policy()))
    assert measures.solved_from(costs, [best], share=1.0) == 7


def test_solved_from_says_what_it_needs():
    agent = bm.Tabular()
    with pytest.raises(NotFittedError, match="call fit before solved_from"):
        agent.solved_from()
    with pytest.raises(ValueError, match="record=True"):
        agent.fit(LOCK, 10).solved_from()
    for share in (0, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"share must be a number in \(0, 1\], got"):
            agent.fit(LOCK, 10, record=True).solved_from(share)
    black_box = gym.make("FrozenLake-v1", max_episode_steps=10)
    agent = bm.Tabular(on="observation").fit(black_box, 10, record=True)
    with pytest.raises(ValueError, match=r"solved_from needs the latent states .* black box"):
        agent.solved_from()
