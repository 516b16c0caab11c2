"""Whether one decoder can serve all levels: the quick look, against the thorough one."""

from __future__ import annotations

import numpy as np
import pytest

import blockmdp as bm
from blockmdp.decoders import constant_decoder
from blockmdp.policy import Policy
from blockmdp.simulators import make_simulator
from blockmdp.trajectories import Observations
from blockmdp.url import pooling
from blockmdp.url.levels import cluster_by_level, look_alike
from blockmdp.url.pooling import can_pool, surely_alike


def random_walk(m, n, seed):
    """Observations of n uniformly random trajectories."""
    pi = np.full((m.horizon, 1, m.n_actions), 1 / m.n_actions)
    simulator = make_simulator(m, seed)
    return simulator.rollout([Policy(pi, constant_decoder())], n, "oracle").observations


PROBLEMS = {
    "bits": (lambda s: bm.lock_bernoulli(10, 0.2, seed=s), True),
    "sigma 0.1": (lambda s: bm.lock_gaussian(10, 0.2, 0.1, seed=s), True),
    "sigma 0.2": (lambda s: bm.lock_gaussian(10, 0.0, 0.2, seed=s), True),
    "rotated levels": (lambda s: bm.comblock(5, seed=s), False),
    "level codes": (lambda s: bm.diabolical_lock(5, seed=s), False),
    "noise by level": (lambda s: bm.noisy_lock(5, noise="by level", seed=s), False),
    "rotated bits": (lambda s: bm.noisy_lock(5, noise="bits", seed=s), False),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_quick_look_agrees_with_the_thorough_one(name):
    make, alike = PROBLEMS[name]
    for seed in range(3):
        data = random_walk(make(seed), 30, seed)
        assert surely_alike(data) is alike
        assert (look_alike(*cluster_by_level(data)) is not False) is alike
        assert can_pool(data) is alike


def shifted(shift, apart, n=60, levels=4, d=6):
    """Two states, `apart` from each other, and all of it shifted from level to level."""
    g = np.random.default_rng(0)
    x = 0.1 * g.normal(size=(levels, n, d))
    x[:, ::2, 0] += apart
    x[..., 1] += shift * np.arange(levels)[:, None]
    return Observations(np.repeat(np.arange(levels), n), x.reshape(-1, d))


def test_a_small_shift_between_levels_is_seen_however_far_apart_states_are():
    for apart in (1.0, 10.0, 100.0):
        assert surely_alike(shifted(0.0, apart))
        assert not surely_alike(shifted(0.3, apart))


def test_two_levels_are_enough():
    assert surely_alike(shifted(0.0, 1.0, levels=2))
    assert not surely_alike(shifted(0.3, 1.0, levels=2))
    assert not surely_alike(shifted(0.0, 1.0, levels=1))


def test_half_of_the_pairs_of_levels_are_not_enough():
    data = shifted(0.0, 1.0, levels=3)
    x = data.x.copy()
    x[data.levels == 2, 1] += 0.3
    assert not surely_alike(Observations(data.levels, x))
    data = shifted(0.0, 1.0, levels=4)
    x = data.x.copy()
    x[data.levels == 3, 1] += 0.3
    assert surely_alike(Observations(data.levels, x))


def test_a_label_that_is_coarse_at_other_levels_proves_nothing(monkeypatch):
    data = shifted(0.3, 4.0, levels=12)
    clustered = np.isin(data.levels, (1, 6))  # here one state is visited, elsewhere two
    x = data.x.copy()
    x[clustered & (x[:, 0] > 2), 0] -= 4.0
    assert not surely_alike(Observations(data.levels, x))
    monkeypatch.setattr(pooling, "TIGHT", np.inf)
    assert surely_alike(Observations(data.levels, x))


def test_the_order_of_observations_does_not_matter_and_huge_numbers_do_no_harm():
    data = random_walk(bm.lock_gaussian(5), 30, 0)
    order = np.random.default_rng(0).permutation(len(data))
    assert surely_alike(Observations(data.levels[order], data.x[order]))
    huge = Observations(data.levels, data.x.astype(np.float64) * 1e12)
    assert not surely_alike(huge)
    assert can_pool(huge)


def test_levels_with_hardly_any_observations_prove_nothing():
    data = random_walk(bm.lock_gaussian(5), 2, 0)
    assert not surely_alike(data)
    assert can_pool(data)


def test_the_largest_number_and_the_fewest_observations_that_still_count():
    data = random_walk(bm.lock_gaussian(5), 30, 0)
    x = data.x.astype(np.float64)
    x /= np.abs(x).max()
    assert surely_alike(Observations(data.levels, x * 1e9))
    assert not surely_alike(Observations(data.levels, x * (1e9 + 0.5)))
    levels, labels = np.repeat([0, 1], 3), np.zeros(6, np.int64)
    few = Observations(levels, np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0])[:, None])
    assert look_alike(few, labels)
    assert look_alike(Observations(levels[1:-1], few.x[1:-1]), labels[1:-1]) is None
