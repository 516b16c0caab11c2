"""PSRL, and the gamma numbers that it draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import blockmdp as bm
from blockmdp import rng
from blockmdp.jit import interpreted
from blockmdp.learners.psrl import draw_value, plan, update
from blockmdp.testing import check_learner


def test_gamma_numbers_have_the_gamma_distribution():
    for shape in (0.01, 0.3, 1.0, 2.5, 40.0):
        x = np.array([rng.gamma(np.uint64(5), i, shape) for i in range(4000)])
        assert stats.kstest(x, stats.gamma(shape).cdf).pvalue > 1e-3
        assert x[7] == interpreted(rng.gamma)(np.uint64(5), 7, shape)


def test_psrl_follows_the_rules_of_learners():
    check_learner(bm.PSRL())


def test_a_bad_hyperparameter_raises():
    for wrong in ({"unseen": 0.0}, {"unseen": math.inf}, {"wins": -1.0}, {"v_max": "much"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            bm.PSRL(**wrong)


def test_a_drawn_value_has_the_posterior_distribution():
    tables = bm.PSRL(unseen=0.5, wins=1.0, losses=1.0).tables(2, 3, 2, 10)
    for t in (0, 0, 0, 1):
        update(tables, 0, 0, 1, 0.0, t)
        update(tables, 1, t, 0, 0.0, 0)
    tables.v[1] = 0.0, 1.0, 0.3
    keys = rng.children(np.uint64(3), 0, 20_000)
    x = np.array([draw_value(tables, 0, 0, 1, key) for key in keys])
    random = np.random.default_rng(0)
    p = random.dirichlet([0.5, 3, 1], size=200_000)
    reward = random.beta(1, 5, size=200_000)
    y = np.minimum(1.0, reward + p[:, 0] + p[:, 2])
    assert stats.ks_2samp(x, y).pvalue > 1e-3


def test_an_action_that_ends_the_episode_has_no_value_beyond_its_reward():
    tables = bm.PSRL(unseen=1e-6, wins=1e-6).tables(3, 2, 2, 10)
    for _ in range(50):
        update(tables, 0, 0, 0, 0.0, -1)
    assert draw_value(tables, 0, 0, 0, np.uint64(1)) < 1e-3


def test_untried_actions_are_optimal_and_each_plan_draws_another_model():
    tables = bm.PSRL().tables(2, 2, 3, 10)
    update(tables, 0, 0, 1, 0.0, 1)
    update(tables, 1, 1, 2, 0.5, 0)
    plan(tables, 0, np.uint64(1))
    one = tables.q.copy()
    assert (one[0, 0, [0, 2]] == 1.0).all()
    plan(tables, 1, np.uint64(2))
    assert not np.array_equal(one, tables.q)
    twin = tables._replace(q=tables.q.copy(), v=tables.v.copy())
    interpreted(plan)(twin, 1, np.uint64(2))
    assert np.array_equal(twin.q, tables.q)


def test_all_engines_give_the_same_returns():
    lock = bm.lock_bernoulli(3, seed=1)
    for on in ("latent", "observation"):
        one, *others = (
            bm.Tabular(bm.PSRL(), on=on).fit(lock, 50, seed=2, engine=engine)
            for engine in ("compiled", "interpreted", "stepwise")
        )
        for other in others:
            assert np.array_equal(one.returns_, other.returns_)


def test_psrl_solves_the_lock_of_the_paper_on_latent_states_and_on_labels():
    for H, seed in ((5, 0), (20, 0), (20, 1)):
        lock = bm.lock_bernoulli(H, seed=seed)
        agent = bm.Tabular(bm.PSRL()).fit(lock, 3_000, seed=seed)
        assert agent.value() == 0.5
        assert agent.returns_[-1000:].mean() > 0.42
    assert bm.URL(learner=bm.PSRL()).fit(lock, 3_000, seed=0).value() == 0.5
