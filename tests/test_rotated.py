"""Locks with rotated observations that contain the level, and UCBVI, which solves them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import hadamard

from blockmdp import Tabular, rng
from blockmdp.emissions import Hadamard, StateAndLevel, hadamard_transform
from blockmdp.envs import comblock, diabolical_lock, lock_bernoulli
from blockmdp.jit import interpreted
from blockmdp.learners import UCBVI
from blockmdp.learners.ucbvi import backup, plan, update
from blockmdp.testing import check_learner


# --- emissions ------------------------------------------------------------------------------------
def test_the_fast_transform_multiplies_by_the_hadamard_matrix():
    for d in (1, 2, 8, 64):
        x = np.random.default_rng(0).normal(size=(5, d))
        fast, plain = x.copy(), x.copy()
        hadamard_transform(fast)
        interpreted(hadamard_transform)(plain)
        assert fast == pytest.approx(x @ hadamard(d))
        assert np.array_equal(fast, plain)


def test_state_and_level_have_codes_and_only_the_first_coordinates_have_noise():
    keys = rng.children(np.uint64(1), 0, 2000)
    states = np.arange(2000) % 3
    x = StateAndLevel(3, 5, 0.1, noisy=6).sample(2, states, keys)
    code = np.zeros((2000, 8))
    code[np.arange(2000), states] = 1
    code[:, 3 + 2] = 1
    noise = x - code
    assert (noise[:, 6:] == 0).all()
    assert noise[:, :6].std() == pytest.approx(0.1, rel=0.05)
    assert abs(noise[:, :6].mean()) < 0.005


def test_a_row_of_a_hadamard_emission_does_not_depend_on_its_batch():
    emission = Hadamard(StateAndLevel(3, 11, 0.1))
    assert emission.dim == 16
    keys, states = rng.children(np.uint64(1), 0, 50), np.arange(50) % 3
    together = emission.sample(4, states, keys)
    one_by_one = [emission.sample(4, states[i : i + 1], keys[i : i + 1])[0] for i in range(50)]
    assert np.array_equal(together, np.stack(one_by_one))


# --- problems -------------------------------------------------------------------------------------
def test_live_states_have_one_good_action_and_the_dead_state_cannot_be_left():
    for lock, H in itertools.product((comblock, diabolical_lock), (1, 2, 7, 30)):
        m = lock(horizon=H, n_actions=5, seed=3)
        alive = m.transitions[:, :2, :, :2].sum(axis=3)  # (H, 2, A)
        assert (np.sort(alive, axis=2) == [0, 0, 0, 0, 1]).all()
        assert (m.transitions[:, 2, :, 2] == 1).all()
        assert m.emission.dim == 2 ** int(np.ceil(np.log2(H + 4)))


def test_the_optimal_values_are_those_of_the_papers():
    assert comblock(horizon=20).optimal_value() == pytest.approx(1.0)
    assert comblock(horizon=30, dense=True).optimal_value() == pytest.approx(1.0 + 29 * 0.1)
    for H in (2, 5, 20):
        assert diabolical_lock(horizon=H).optimal_value() == pytest.approx(4.0)


def test_dying_pays_a_tenth_with_probability_one_half():
    for m in (comblock(4), diabolical_lock(4)):
        dying = m.transitions[:, :2, :, 2] == 1
        assert (m.rewards[:, :2, :, 2][dying] == 0.1).all()
        assert (m.reward_probability[:, :2, :, 2][dying] == 0.5).all()


def test_another_seed_gives_another_combination_and_without_swaps_all_is_deterministic():
    one, same, other = (comblock(10, seed=s).transitions for s in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    P = diabolical_lock(6, swap=0.0).transitions
    assert set(np.unique(P)) == {0.0, 1.0}
    with pytest.raises(ValueError, match="swap must be a number in"):
        comblock(5, swap=1.5)
    with pytest.raises(ValueError, match="n_actions must be an integer >= 2"):
        comblock(5, n_actions=1)


# --- UCBVI ----------------------------------------------------------------------------------------
def test_ucbvi_follows_the_rules_of_learners():
    check_learner(UCBVI(bonus=0.2))


def test_the_value_of_an_action_is_its_mean_plus_the_bonus_up_to_v_max():
    tables = UCBVI(bonus=0.2, v_max=0.5).tables(1, 1, 3, 10)
    for _ in range(4):
        update(tables, 0, 0, 0, 0.1, 0)
    update(tables, 0, 0, 1, 0.4, 0)
    plan(tables, 0, np.uint64(0))
    assert tables.q[0, 0] == pytest.approx([0.1 + 0.2 / 2, 0.5, 0.5])  # the last was never tried


def test_planning_what_has_changed_equals_planning_everything():
    for bonus in (0.0, 0.3):
        for stationary in (False, True):
            check_planning(UCBVI(bonus=bonus, stationary=stationary), H=6, S=4, A=3)


def check_planning(learner, H, S, A):
    tables = learner.tables(H, S, A, 100)
    random = np.random.default_rng(0)
    for k in range(100):
        s = int(random.integers(S))
        length = int(random.integers(1, H + 1))  # episodes may end early
        for h in range(length):
            a, t = int(random.integers(A)), int(random.integers(S))
            ended = h == length - 1 and length < H
            update(tables, h, s, a, float(random.random() < 0.2) / H, -1 if ended else t)
            s = t
        plan(tables, k, np.uint64(k))
        v = np.zeros((H + 1, S))
        for h in reversed(range(H)):
            tables_at = tables._replace(v=v)
            q = np.array([[backup(tables_at, h, s, a) for a in range(A)] for s in range(S)])
            assert tables.q[h] == pytest.approx(q, abs=1e-12)
            v[h] = q.max(axis=1)
        assert tables.v == pytest.approx(v, abs=1e-12)


def test_on_latent_states_ucbvi_solves_a_comblock_in_a_few_visits_to_each_action():
    for (H, most), seed in itertools.product(((5, 130), (10, 240), (50, 1050)), range(3)):
        agent = Tabular(UCBVI(bonus=0.0)).fit(comblock(H, seed=seed), most + 200, seed=seed)
        assert agent.returns_[most:].mean() == 1.0
        assert agent.value() == 1.0


def test_with_a_bonus_ucbvi_learns_from_random_rewards():
    for seed in range(5):
        agent = Tabular(UCBVI()).fit(lock_bernoulli(20, 0.2, seed=seed), 4000, seed=seed)
        assert agent.value() == pytest.approx(0.5)
