"""Locks whose observation is rotated and tells the level, and the learner that opens them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard

from blockmdp import Tabular, rng
from blockmdp.emissions import Hadamard, StateAndLevel, hadamard_transform
from blockmdp.envs import comblock, diabolical_lock, lock_bernoulli
from blockmdp.learners import UCBVI
from blockmdp.learners.ucbvi import backup, plan, update
from blockmdp.testing import check_learner


# --- emissions ------------------------------------------------------------------------------------
@pytest.mark.parametrize("d", [1, 2, 8, 64])
def test_the_fast_transform_is_a_product_with_hadamard_s_matrix(d):
    x = np.random.default_rng(0).normal(size=(5, d))
    fast = x.copy()
    hadamard_transform(fast)
    assert fast == pytest.approx(x @ hadamard(d))
    twin = x.copy()
    getattr(hadamard_transform, "py_func", hadamard_transform)(twin)
    assert np.array_equal(fast, twin)


def test_state_and_level_are_coded_and_noise_falls_on_the_first_coordinates_only():
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
@pytest.mark.parametrize("lock", [comblock, diabolical_lock])
@pytest.mark.parametrize("H", [1, 2, 7, 30])
def test_one_action_of_a_live_state_keeps_alive_and_nothing_leaves_the_dead_state(lock, H):
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


def test_dying_is_paid_a_little_half_of_the_time():
    for m in (comblock(4), diabolical_lock(4)):
        dying = m.transitions[:, :2, :, 2] == 1
        assert (m.rewards[:, :2, :, 2][dying] == 0.1).all()
        assert (m.reward_probability[:, :2, :, 2][dying] == 0.5).all()


def test_locks_of_different_seeds_have_different_combinations_and_swap_is_their_chance():
    one, same, other = (comblock(10, seed=s).transitions for s in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    P = diabolical_lock(6, swap=0.0).transitions
    assert set(np.unique(P)) == {0.0, 1.0}
    with pytest.raises(ValueError, match="swap must be in"):
        comblock(5, swap=1.5)
    with pytest.raises(ValueError, match="n_actions must be an integer >= 2"):
        comblock(5, n_actions=1)


# --- UCBVI ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("bonus", [0.0, 0.2])
def test_ucbvi_keeps_to_the_protocol(bonus):
    check_learner(UCBVI(bonus=bonus))


@pytest.mark.parametrize("bonus", [0.0, 0.3])
def test_planning_what_has_changed_is_planning_everything(bonus):
    H, S, A = 6, 4, 3
    tables = UCBVI(bonus=bonus).tables(H, S, A, 100)
    random = np.random.default_rng(0)
    for k in range(200):
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


@pytest.mark.parametrize(("H", "most"), [(5, 130), (10, 240), (50, 1050)])
def test_latent_states_given_it_opens_a_comblock_in_a_few_visits_to_each_action(H, most):
    for seed in range(3):
        agent = Tabular(UCBVI(bonus=0.0)).fit(comblock(H, seed=seed), most + 200, seed=seed)
        assert agent.returns_[most:].mean() == 1.0
        assert agent.value() == 1.0


def test_with_a_bonus_it_learns_where_rewards_are_random():
    for seed in range(5):
        agent = Tabular(UCBVI()).fit(lock_bernoulli(20, 0.2, seed=seed), 4000, seed=seed)
        assert agent.value() == pytest.approx(0.5)
