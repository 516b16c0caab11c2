"""The locks, sentence by sentence as in Section 5 of Feng et al. (2020)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from blockmdp import rng
from blockmdp.emissions import OneHotBernoulli, OneHotGaussian
from blockmdp.envs import lock_bernoulli, lock_gaussian

ALPHA = 1e-4
SWITCHES = [0.0, 0.2, 0.5, 0.8, 1.0]
LIVE, DEAD = (0, 1), 2
PAIRS = list(itertools.permutations(range(4), 2))

LOCKS = (lock_bernoulli, lock_gaussian)
exact = settings(deadline=None, max_examples=25)


def roles(m):
    """Return the good actions (H, 2, 2): those to live states 0 and 1, by level and live state."""
    good = m.transitions[:, :2, :, :2]  # (H, live, A, live)
    return good.argmax(axis=2)


# --- "at level h, from states s1 and s2 one action leads ..." -------------------------------------
def test_each_live_state_has_one_action_each_way_and_two_fatal_ones():
    for lock, switch, horizon in itertools.product(LOCKS, SWITCHES, (1, 2, 20)):
        m = lock(horizon=horizon, switch=switch, seed=3)
        assert m.transitions.shape == (horizon, 3, 4, 3)
        wanted = sorted([[1 - switch, switch, 0], [switch, 1 - switch, 0], [0, 0, 1], [0, 0, 1]])
        for h in range(horizon):
            for s in LIVE:
                assert sorted(m.transitions[h, s].tolist()) == wanted


def test_the_dead_state_cannot_be_left():
    for lock in LOCKS:
        m = lock(horizon=6)
        assert np.all(m.transitions[:, DEAD, :, DEAD] == 1)
        assert np.all(m.transitions[:, DEAD, :, LIVE] == 0)


def test_an_episode_starts_in_the_first_live_state():
    for lock in LOCKS:
        assert lock(horizon=4).initial.tolist() == [1, 0, 0]


# --- "non-zero reward is only achievable if the agent can reach s1 or s2 at H + 1 ..." ------------
def test_the_only_reward_is_a_fair_coin_for_ending_alive():
    for lock in LOCKS:
        m = lock(horizon=5, switch=0.2)
        mean = m.rewards * m.reward_probability
        possible = m.transitions > 0
        assert np.all(mean[:-1][possible[:-1]] == 0)
        assert np.all(mean[-1][..., DEAD] == 0)
        arriving = possible[-1][..., :2]
        assert arriving.sum() == 2 * 2 * 2
        assert np.all(m.rewards[-1][..., :2][arriving] == 1)
        assert np.all(m.reward_probability[-1][..., :2][arriving] == 0.5)


@exact
@given(st.integers(1, 25), st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_the_optimal_value_is_one_half_for_every_switch(horizon, switch, seed):
    m = lock_bernoulli(horizon=horizon, switch=switch, seed=seed)
    assert m.optimal_value() == pytest.approx(0.5, abs=1e-12)
    assert m.occupancy(m.optimal_policy())[:, DEAD].max() == 0
    assert m.value(m.uniform_policy()) == pytest.approx(0.5 * 0.5**horizon, rel=1e-9)


def test_without_switching_two_to_the_h_of_four_to_the_h_action_sequences_lead_to_reward():
    for horizon in range(1, 5):
        m = lock_bernoulli(horizon=horizon, switch=0.0, seed=7)
        paying = 0
        for actions in itertools.product(range(4), repeat=horizon):
            mu, total = m.initial, 0.0
            for h, a in enumerate(actions):
                step = mu[:, None] * m.transitions[h, :, a]
                total += (step * m.rewards[h, :, a] * m.reward_probability[h, :, a]).sum()
                mu = step.sum(axis=0)
            assert total in (0.0, 0.5)
            paying += total > 0
        assert paying == 2**horizon


# --- "action labels are randomly assigned ..." ----------------------------------------------------
@pytest.fixture(scope="module")
def drawn():
    """The good actions of 3000 locks with 4 levels, as numbers 0 to 11, (seed, level, live)."""
    numbers = {pair: i for i, pair in enumerate(PAIRS)}
    locks = (roles(lock_bernoulli(horizon=4, switch=0.2, seed=seed)) for seed in range(3000))
    return np.array([[[numbers[tuple(p)] for p in level] for level in lock] for lock in locks])


def test_all_assignments_of_actions_are_equally_likely(drawn):
    for h, s in np.ndindex(4, 2):
        counts = np.bincount(drawn[:, h, s], minlength=12)
        assert stats.chisquare(counts).pvalue > ALPHA


def test_assignments_of_different_levels_and_live_states_are_independent(drawn):
    for one, other in (
        ((0, 0), (0, 1)),
        ((0, 0), (1, 0)),
        ((1, 0), (2, 0)),
        ((0, 1), (1, 0)),
        ((2, 1), (3, 1)),
    ):
        a, b = drawn[:, *one], drawn[:, *other]
        counts = np.bincount(12 * a + b, minlength=144)
        assert stats.chisquare(counts).pvalue > ALPHA


def test_assignments_of_neighbouring_seeds_are_independent(drawn):
    counts = np.bincount(12 * drawn[:-1, 0, 0] + drawn[1:, 0, 0], minlength=144)
    assert stats.chisquare(counts).pvalue > ALPHA


def test_every_level_and_live_state_has_its_own_assignment():
    m = lock_bernoulli(horizon=50, seed=1)
    pairs = {tuple(p) for p in roles(m).reshape(-1, 2)}
    assert pairs == set(PAIRS)
    assert np.any(roles(m)[:, 0] != roles(m)[:, 1])


def test_the_same_seed_gives_the_same_lock_and_another_seed_another_lock():
    for lock in LOCKS:
        a, b, c = (lock(horizon=10, seed=seed) for seed in (5, 5, 6))
        assert np.array_equal(a.transitions, b.transitions)
        assert not np.array_equal(a.transitions, c.transitions)


@exact
@given(st.integers(1, 12), st.floats(0, 1), st.integers(0, 2**64 - 1))
def test_the_two_locks_of_a_seed_differ_in_their_observations_only(horizon, switch, seed):
    a = lock_bernoulli(horizon, switch, seed)
    b = lock_gaussian(horizon, switch, seed=seed)
    for field in ("initial", "transitions", "rewards", "reward_probability"):
        assert np.array_equal(getattr(a, field), getattr(b, field))


def test_the_combination_of_a_known_seed():
    """A change here gives all users other locks for the same seeds."""
    m = lock_bernoulli(horizon=3, switch=0.2, seed=0)
    assert roles(m).tolist() == [[[1, 0], [2, 1]], [[1, 0], [1, 0]], [[0, 2], [0, 1]]]


# --- observations ---------------------------------------------------------------------------------
def test_observations_have_three_coordinates_more_than_the_horizon():
    for lock, horizon in itertools.product(LOCKS, (1, 5, 20)):
        m = lock(horizon)
        assert (m.emission.dim, m.horizon, m.n_states, m.n_actions) == (horizon + 3, horizon, 3, 4)


def test_lock_bernoulli_shows_the_one_hot_state_and_fair_bits():
    m = lock_bernoulli(horizon=5)
    assert isinstance(m.emission, OneHotBernoulli)
    states = np.arange(30_000) % 3
    for level in (0, 5):
        x = m.emission.sample(level, states, rng.children(rng.root(level), 0, len(states)))
        assert np.array_equal(x[:, :3], np.eye(3)[states])
        counts = np.bincount(x[:, 3:] @ (1 << np.arange(5)), minlength=32)
        assert stats.chisquare(counts).pvalue > ALPHA


def test_lock_gaussian_shows_the_one_hot_state_with_noise_on_all_coordinates():
    states = np.arange(10_000) % 3
    for sigma, level in ((0.1, 0), (0.2, 5)):
        m = lock_gaussian(horizon=5, sigma=sigma)
        assert isinstance(m.emission, OneHotGaussian)
        x = m.emission.sample(level, states, rng.children(rng.root(level), 0, len(states)))
        noise = (x - np.eye(3, 8)[states]) / sigma
        for j in range(8):
            assert stats.kstest(noise[:, j], "norm").pvalue > ALPHA


def test_lock_gaussian_is_truncated_only_if_asked():
    assert not lock_gaussian(horizon=2).emission.truncate
    m = lock_gaussian(horizon=2, sigma=0.4, truncate=True)
    states = np.arange(30_000) % 3
    x = m.emission.sample(0, states, rng.children(rng.root(0), 0, len(states)))
    assert np.array_equal(x[:, :3].argmax(axis=1), states)


def test_the_default_locks_are_the_largest_of_the_paper():
    for m in (lock_bernoulli(), lock_gaussian()):
        assert m.horizon == 20
        assert np.unique(m.transitions).tolist() == pytest.approx([0, 0.2, 0.8, 1])
    assert lock_gaussian().emission.sigma == 0.1
    assert lock_bernoulli().name == "LockBernoulli"
    assert lock_gaussian().name == "LockGaussian"


# --- bad arguments --------------------------------------------------------------------------------
def test_a_horizon_that_is_not_a_positive_integer_raises():
    for lock, horizon in itertools.product(LOCKS, (0, -3, 2.5, float("nan"), float("inf"))):
        with pytest.raises(ValueError, match="horizon must be an integer >= 1"):
            lock(horizon=horizon)


def test_an_integer_horizon_may_have_any_type():
    for lock, horizon in itertools.product(LOCKS, (4.0, np.int64(4), np.float64(4))):
        m = lock(horizon=horizon)
        assert (m.horizon, m.emission.dim) == (4, 7)


def test_a_switch_may_have_any_type():
    for lock, switch in itertools.product(LOCKS, (0, 1, np.float32(0.2), np.float64(0.2))):
        assert np.allclose(lock(horizon=3, switch=switch).transitions.sum(axis=3), 1, atol=1e-12)


def test_a_switch_outside_the_unit_interval_raises():
    for lock, switch in itertools.product(LOCKS, (-0.1, 1.5, float("nan"), float("inf"))):
        with pytest.raises(ValueError, match=r"switch must be a number in \[0, 1\]"):
            lock(horizon=3, switch=switch)


def test_a_sigma_that_is_negative_or_not_finite_raises():
    for sigma in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="sigma must be a number >= 0"):
            lock_gaussian(horizon=3, sigma=sigma)
