"""Learners with guarantees: their bonuses by hand, the rules of learners, and exact regret."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import FrozenInstanceError, fields, replace
from math import log, sqrt

import numpy as np
import pytest
from helpers import python
from scipy import stats

import blockmdp as bm
from blockmdp import rng
from blockmdp.jit import is_compiled
from blockmdp.learners import e3, opsrl, psrl_theory, rlsvi, ucbvi_theory, ucrl2
from blockmdp.testing import check_learner

# Learners that need few episodes on problems whose returns are at most 1.
LEARNERS = {
    "UCBQ": bm.UCBQ(scale=0.02, v_max=1.0),
    "UCBQ, Bernstein": bm.UCBQ("bernstein", scale=0.02, v_max=1.0),
    "UCBVITheory": bm.UCBVITheory(scale=0.003, v_max=1.0),
    "UCBVITheory, Bernstein": bm.UCBVITheory("bernstein", scale=0.003, v_max=1.0),
    "UBEV": bm.UBEV(scale=0.05, v_max=1.0),
    "EULER": bm.EULER(scale=0.005, v_max=1.0),
    "RMAX": bm.RMAX(m=20, v_max=1.0),
    "E3": bm.E3(m=20),
    "DelayedQ": bm.DelayedQ(m=20, epsilon=0.002, v_max=1.0),
    "UCRL2": bm.UCRL2(scale=0.03, v_max=1.0),
    "RLSVI": bm.RLSVI(scale=0.05, v_max=1.0),
    "PSRLTheory": bm.PSRLTheory(v_max=1.0),
    "OPSRL": bm.OPSRL(scale=0.02, v_max=1.0),
    "UCBVI": bm.UCBVI(bonus=0.05),
    "PSRL": bm.PSRL(),
    "OracleQ": bm.OracleQ(bonus=0.01),
}
SHARED = ("UCBVI", "PSRL", "OracleQ", "UCRL2", "PSRLTheory")  # the others have the same code
H, S, A, K, DELTA = 2, 2, 2, 10, 0.1
STEPS = [  # h, s, a, r, s_next: three episodes; two states are met at level 1, one at the others
    (0, 0, 0, 0.5, 0),
    (1, 0, 0, 1.0, 0),
    (0, 0, 0, 0.25, 0),
    (1, 0, 0, 0.5, 0),
    (0, 0, 0, 0.0, 1),
    (1, 1, 1, 0.0, 0),
]


def learnt(learner):
    tables = learner.tables(H, S, A, K)
    for h, s, a, r, t in STEPS:
        learner.update(tables, h, s, a, r, t)
    learner.plan(tables, 2, np.uint64(1))
    return tables


ELSEWHERE = ("UCBVI", "PSRL", "OracleQ", "UCBQ", "UCBVITheory")  # the last two also as Bernstein


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_are_values(name):
    """So they can be shared by agents, compared and used as keys."""
    learner = LEARNERS[name]
    field = fields(learner)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(learner, field, 0.5)
    assert {learner: name}[replace(learner)] == name


@pytest.mark.parametrize("name", [name for name in LEARNERS if name not in ELSEWHERE])
def test_learners_follow_the_rules(name):
    check_learner(LEARNERS[name])


@pytest.mark.parametrize("name", SHARED)
def test_learners_that_share_a_model_follow_the_rules(name):
    learner = replace(LEARNERS[name], stationary=True)
    m = bm.lock_bernoulli(horizon=3, switch=0.2, seed=1)
    returns = [
        bm.Tabular(learner, on, by_level=False).fit(m, 100, seed=3, engine=engine).returns_
        for on in ("latent", "observation")
        for engine in ("compiled", "interpreted", "stepwise")
    ]
    for each in (returns[:3], returns[3:]):
        assert np.array_equal(each[0], each[1])
        assert np.array_equal(each[0], each[2])


# --- bonuses, by hand -----------------------------------------------------------------------------
def test_the_bonuses_of_ucbq():
    c, iota = 0.1, log(S * A * H * K / DELTA)
    tables = bm.UCBQ(scale=c, delta=DELTA).tables(H, S, A, K)
    assert (tables.q == H).all()
    learner = bm.UCBQ(scale=c, delta=DELTA)
    learner.update(tables, 1, 0, 0, 1.0, 0)
    learner.update(tables, 1, 1, 0, 1.0, 0)
    learner.update(tables, 1, 0, 0, 0.5, 0)
    b_1, b_2 = (c * sqrt(H**3 * iota / t) for t in (1, 2))
    b_0 = c * sqrt(H**3 * (iota - log(2)))  # only one state had been met
    q = (1 - 3 / 4) * (1.0 + b_0) + 3 / 4 * (0.5 + b_2)  # rates (H + 1) / (H + t): 1 and 3 / 4
    assert tables.q[1, 0, 0] == pytest.approx(q)
    assert tables.q[1, 1, 0] == pytest.approx(1.0 + b_1)


def test_the_bernstein_bonus_of_ucbq():
    c = 0.01
    learner = bm.UCBQ("bernstein", scale=c, delta=DELTA)
    tables = learner.tables(H, S, A, K)
    tables.q[1] = [[0.2, 0.1], [0.6, 0.0]]
    learner.update(tables, 0, 0, 0, 0.0, 0)
    learner.update(tables, 0, 0, 0, 0.0, 1)
    iota_1, iota_2 = (log(s * A * H * K / DELTA) for s in (1, 2))

    def beta(t, W, s, iota):
        first = c * (sqrt(H * (W + H) * iota / t) + sqrt(H**7 * s * A) * iota / t)
        return min(first, c * sqrt(H**3 * iota / t))

    beta_1, beta_2 = beta(1, 0.0, 1, iota_1), beta(2, 0.04, 2, iota_2)  # the variance of 0.2, 0.6
    q = 0.2 + beta_1 / 2
    q = q / 4 + 3 / 4 * (0.6 + (beta_2 - beta_1 / 4) / (2 * 3 / 4))
    assert tables.q[0, 0, 0] == pytest.approx(q)
    assert tables.next[0, 0, 0] == pytest.approx([0.2 + 0.6, 0.2**2 + 0.6**2])


def test_bonuses_do_not_overflow_at_long_horizons():
    H = 2_000  # H^7 has more than 64 bits
    for learner in (bm.UCBQ("bernstein", scale=1e9), bm.RLSVI(), bm.UCBVITheory("bernstein")):
        tables = learner.tables(H, 2, 2, 10)
        learner.update(tables, 0, 0, 0, 0.0, 1)
        learner.plan(tables, 0, np.uint64(0))
        assert np.isfinite(tables.q).all()
    assert bm.UCBQ("bernstein").tables(H, 2, 2, 10).q.max() == H


def test_the_bonuses_of_ucbvi():
    c, L = 1e-3, log(5 * S * A * H * K / DELTA)
    tables = learnt(bm.UCBVITheory(scale=c, delta=DELTA))
    v = np.array([0.75 + c * 7 * H * L / sqrt(2), H])  # an action of each was never tried
    assert tables.q[1, 0, 0] == pytest.approx(v[0])
    assert tables.q[1, 1, 1] == pytest.approx(c * 7 * H * L)
    assert tables.q[0, 0, 0] == pytest.approx(min(H, 0.25 + H + c * 7 * H * L / sqrt(3)))
    tables.n[1, [0, 1], [1, 0]] = 1  # now all were tried
    tables.q[1] = np.minimum(tables.q[1], 0.8)  # values never increase
    bm.UCBVITheory.plan(tables, 0, np.uint64(0))
    v = tables.q[1].max(axis=1)
    assert v[0] == 0.8
    after = 2 / 3 * v[0] + 1 / 3 * v[1]
    assert tables.q[0, 0, 0] == pytest.approx(0.25 + after + c * 7 * H * L / sqrt(3))


def test_the_bernstein_bonus_of_ucbvi():
    c, L = 1e-3, log(5 * S * A * H * K / DELTA)
    tables = learnt(bm.UCBVITheory("bernstein", scale=c, delta=DELTA))
    tables.n[1, [0, 1], [1, 0]] = 1
    tables.q[1] = np.minimum(tables.q[1], [[0.8, 0.3], [0.2, 0.1]])
    bm.UCBVITheory.plan(tables, 0, np.uint64(0))
    v, N = tables.q[1].max(axis=1), 3
    p = np.array([2 / 3, 1 / 3])
    spread = p @ v**2 - (p @ v) ** 2
    visits = np.array([2, 1])
    correction = p @ np.minimum(100**2 * H**3 * S**2 * A * L**2 / visits, H**2)
    bonus = sqrt(8 * L * spread / N) + 14 * H * L / (3 * N) + sqrt(8 * correction / N)
    assert tables.q[0, 0, 0] == pytest.approx(0.25 + p @ v + c * bonus)
    assert tables.q[1, 0, 0] == pytest.approx(min(0.8, 0.75 + c * 14 * H * L / (3 * 2)))
    tables = learnt(bm.UCBVITheory("bernstein", v_max=0.5, delta=DELTA))  # rewards up to 1/4
    tables.visits[1] = 2 * 10**9, 10**9  # so many that the correction is below H^2
    tables.v[1] = 0.3, 0.1
    spread = 16 * (p @ tables.v[1] ** 2 - (p @ tables.v[1]) ** 2)
    correction = p @ (100**2 * H**3 * S**2 * A * L**2 / tables.visits[1])
    assert correction < H**2 / 10
    bonus = sqrt(8 * L * spread / N) + 14 * H * L / (3 * N) + sqrt(8 * correction / N)
    assert ucbvi_theory.bonus_2(tables, 0, 0, 0, N) == pytest.approx(bonus)


def test_the_bonus_of_ubev():
    c = 0.1
    tables = learnt(bm.UBEV(scale=c, delta=DELTA))

    def phi(n):
        return c * sqrt((2 * log(log(max(n, math.e))) + log(18 * S * A * H / DELTA)) / n)

    assert tables.q[1, 0, 0] == pytest.approx(min(1, 0.75 + phi(2)))
    assert tables.q[1, 1, 1] == pytest.approx(phi(1))
    assert tables.q[1, 1, 0] == 1.0  # never tried, and one step is left
    v = np.array([1.0, 1.0])
    assert tables.q[0, 0, 0] == pytest.approx(0.25 + phi(3) + min(1, v.mean() + phi(3)))


def test_the_bonuses_of_euler():
    c, L = 1e-3, log(4 * S * A * H * K * 7 / DELTA)
    learner = bm.EULER(scale=c, delta=DELTA)
    tables = learner.tables(H, S, A, K)
    extra = [(1, 0, 1, 0.0, 0), (1, 0, 1, 0.0, 0), (1, 1, 0, 0.0, 0), (1, 1, 1, 0.0, 0)]
    for h, s, a, r, t in STEPS + extra + extra[2:]:
        learner.update(tables, h, s, a, r, t)
    learner.plan(tables, 0, np.uint64(0))

    def reward(n, variance):
        return sqrt(2 * variance * L / n) + 7 * L / (3 * (n - 1))

    upper = np.array([0.75 + c * reward(2, 0.125), c * reward(2, 0.0)])  # of 1.0 and 0.5; of zeros
    assert tables.v[1] == pytest.approx(upper)
    lower = np.maximum(0.0, [0.75 - c * reward(2, 0.125), 0.0])
    assert tables.lower[1] == pytest.approx(lower)
    p, n = np.array([2 / 3, 1 / 3]), 3
    J, B_p, B_v = H * L / 3, H * sqrt(2 * L), sqrt(2 * L)
    spread = p @ upper**2 - (p @ upper) ** 2
    phi = sqrt(2 * spread * L / n) + J / n
    width = sqrt(p @ (upper - lower) ** 2)
    bonus = phi + ((4 * J + B_p) / sqrt(n) + B_v * width) / sqrt(n)
    q = 0.25 + p @ upper + c * (bonus + reward(3, np.var([0.5, 0.25, 0.0], ddof=1)))
    assert tables.q[0, 0, 0] == pytest.approx(q)
    for _ in range(2):  # with the other action tried, the first one is the best
        learner.update(tables, 0, 0, 1, 0.0, 1)
    learner.plan(tables, 1, np.uint64(0))
    spread = p @ lower**2 - (p @ lower) ** 2
    bonus += sqrt(2 * spread * L / n) + J / n - phi
    q = 0.25 + p @ lower - c * (bonus + reward(3, np.var([0.5, 0.25, 0.0], ddof=1)))
    assert tables.lower[0, 0] == pytest.approx(q)


def test_rmax_and_e3_know_an_action_after_m_visits():
    tables = learnt(bm.RMAX(m=2))
    assert tables.q[1, 0].tolist() == [0.75, 1.0]
    assert tables.q[1, 1].tolist() == [1.0, 1.0]
    assert tables.n.max() == 2  # later visits do not count
    assert tables.q[0, 0, 0] == pytest.approx((0.5 + 0.25) / 2 + 1.0)
    assert not bm.E3().tables(H, S, A, K).q.any()  # of what it does not know it expects nothing
    tables = learnt(bm.E3(m=1))
    assert tables.starts.tolist() == [3, 0]
    assert tables.q[1, 1].tolist() == [0.0, -1.0]  # the action tried least
    assert tables.q[0, 0].tolist() == [-3.0, 0.0]
    assert not tables.exploits[0]
    learner = bm.E3(m=1, escape=0.5)
    tables = learnt(learner)
    for s in (0, 1):
        learner.update(tables, 0, 0, 1, 0.0, s)
        learner.update(tables, 1, s, 1 - s, 0.0, 0)
    learner.plan(tables, 4, np.uint64(0))
    assert tables.exploits[0]
    assert tables.q[1, 0, 0] == 0.75
    assert tables.q[0, 0].tolist() == pytest.approx([0.25 + 2 / 3 * 0.75, 0.5 * 0.75])
    tables.n[1, 1, 0] = 0  # not known any more
    e3.solve(tables, True)
    assert tables.v[1].tolist() == [0.75, 0.0]  # nothing can be earned there
    e3.solve(tables, False)
    assert tables.v[1].tolist() == [0.0, 1.0]  # it is where to escape to


def test_delayed_q_learning_changes_a_value_after_m_visits():
    learner = bm.DelayedQ(m=2, epsilon=0.1)
    tables = learner.tables(H, S, A, K)
    assert tables.q[:, 0, 0].tolist() == [2.0, 1.0]
    learner.update(tables, 1, 0, 0, 0.5, 0)
    assert tables.q[1, 0, 0] == 1.0
    learner.update(tables, 1, 0, 0, 0.25, 0)
    assert tables.q[1, 0, 0] == 0.375 + 0.1
    for _ in range(2):  # the value has changed since, so there is one more attempt
        learner.update(tables, 1, 0, 0, 0.375, 0)
    assert tables.q[1, 0, 0] == 0.375 + 0.1
    assert not tables.learns[1, 0, 0]
    for _ in range(2):  # nothing has changed: the reward is ignored
        learner.update(tables, 1, 0, 0, 0.0, 0)
    assert tables.q[1, 0, 0] == 0.375 + 0.1
    for _ in range(2):
        learner.update(tables, 1, 1, 0, 0.0, 0)  # now something has
    for _ in range(2):
        learner.update(tables, 1, 0, 0, 0.0, 0)
    assert tables.q[1, 0, 0] == 0.1


def test_the_confidence_sets_of_ucrl2():
    c, t = 0.05, 6
    tables = learnt(bm.UCRL2(scale=c, delta=DELTA))
    reward = c * sqrt(7 * log(2 * S * H * A * t / DELTA) / (2 * 2))
    assert tables.q[1, 0, 0] == pytest.approx(0.75 + reward)
    tables.v[1] = 0.6, 0.1
    tables.order[1, 1] = 1
    width = c * sqrt(14 * S * log(2 * A * H * t / DELTA) / 3)
    reward = 0.25 + c * sqrt(7 * log(2 * S * H * A * t / DELTA) / (2 * 3))
    p = 2 / 3 + width / 2
    q = ucrl2.value(tables, 0, 0, 0, np.uint64(0))
    assert q == pytest.approx(reward + p * 0.6 + (1 - p) * 0.1)
    tables.v[1] = 0.1, 0.6  # the worst state may be the first
    p = 1 / 3 + width / 2
    q = ucrl2.value(tables, 0, 0, 0, np.uint64(0))
    assert q == pytest.approx(reward + p * 0.6 + (1 - p) * 0.1)


def test_ucrl2_takes_what_the_best_state_gains_from_the_worst_ones_first():
    t, S = 8, 3
    c = 0.6 / sqrt(14 * S * log(2 * A * H * t / DELTA) / 4)
    learner = bm.UCRL2(scale=c, delta=DELTA)
    tables = learner.tables(H, S, A, K)
    for after in (0, 1, 2, 2):
        learner.update(tables, 0, 0, 0, 0.0, after)
        learner.update(tables, 1, after, 0, 0.0, 0)
    learner.plan(tables, 0, np.uint64(0))
    tables.v[1] = 0.0, 0.5, 1.0
    reward = c * sqrt(7 * log(2 * S * H * A * t / DELTA) / (2 * 4))
    q = ucrl2.value(tables, 0, 0, 0, np.uint64(0))  # 0.3 goes to the best, 0.25 from the worst
    assert q == pytest.approx(reward + 0.2 * 0.5 + 0.8 * 1.0)
    tables.m[0, 0, 0] = 1, 1, 1  # one episode ended instead, and nothing is worse than that
    q = ucrl2.value(tables, 0, 0, 0, np.uint64(0))
    assert q == pytest.approx(reward + (0.25 - 0.05) * 0.0 + 0.25 * 0.5 + (0.25 + 0.3) * 1.0)


def test_a_new_policy_is_computed_when_visits_have_doubled():
    for learner in (bm.UCRL2(), bm.OPSRL()):
        tables = learner.tables(H, S, A, 100)
        planned = []
        for k in range(40):
            for h in range(H):
                learner.update(tables, h, 0, 0, 0.5, 0)
            if tables.due[0]:
                planned.append(k + 1)
            learner.plan(tables, k, np.uint64(k))
        assert planned == [1, 2, 4, 8, 16, 32]


def test_the_noise_of_rlsvi():
    tables = learnt(bm.RLSVI(scale=0.5))
    beta = H**3 * S * log(2 * H * S * A * 3) / 2
    tables.v[1] = 0.6, 0.3
    keys = rng.children(np.uint64(2), 0, 4000)
    x = np.array([rlsvi.value(tables, 0, 0, 0, key) for key in keys])
    mean = (0.75 + 2 * 0.6 + 0.3) / 4
    assert stats.kstest((x - mean) / (0.5 * sqrt(beta / 4)), "norm").pvalue > 1e-3


def test_the_posterior_of_psrl_with_its_published_prior():
    tables = learnt(bm.PSRLTheory(prior=0.5))
    tables.v[1] = 0.9, 0.2
    keys = rng.children(np.uint64(2), 0, 4000)
    x = np.array([psrl_theory.draw_next(tables, 0, 0, 0, key) for key in keys])
    p = np.random.default_rng(0).beta(2.5, 1.5, size=100_000)
    assert stats.ks_2samp(x, p * 0.9 + (1 - p) * 0.2).pvalue > 1e-3
    x = np.array([psrl_theory.draw_reward(tables, 1, 0, 0, key) for key in keys])
    tables.v[H] = 9.0  # nothing comes after the last level
    assert psrl_theory.value(tables, 1, 0, 0, keys[0]) == x[0]
    # Student's t: the prior reward 1 counts as one more, its variance as two degrees of freedom
    mean, rate = 2.5 / 3, 1 + ((np.array([1, 1, 0.5]) - 2.5 / 3) ** 2).sum() / 2
    scale = sqrt(rate / (2 * 3))
    assert stats.kstest(x, stats.t(4, loc=mean, scale=scale).cdf).pvalue > 1e-3
    bm.PSRLTheory.update(tables, 0, 0, 1, 0.0, -1)  # the episode ends
    x = np.array([psrl_theory.draw_next(tables, 0, 0, 1, key) for key in keys])
    p = np.random.default_rng(0).dirichlet([0.5, 0.5, 1.0], size=100_000)
    assert stats.ks_2samp(x, p[:, 0] * 0.9 + p[:, 1] * 0.2).pvalue > 1e-3


def test_a_state_that_was_not_met_has_the_largest_value_of_its_level():
    found = []
    for learner in (bm.PSRLTheory(prior=0.5), bm.OPSRL(delta=DELTA)):
        tables = learner.tables(3, S, A, K)
        for s in (0, 1):  # two states are met at level 1, and one at level 2
            for h, at, to in ((0, 0, s), (1, s, 0), (2, 0, 0)):
                learner.update(tables, h, at, 0, 0.0, to)
        tables.v[2, 0] = 0.2
        found.append(tables)
    tables, optimist = found
    keys = rng.children(np.uint64(4), 0, 4000)
    x = np.array([psrl_theory.draw_next(tables, 1, 0, 0, key) for key in keys])
    p = np.random.default_rng(0).beta(1.5, 0.5, size=100_000)
    assert stats.ks_2samp(x, p * 0.2 + (1 - p) * 1.0).pvalue > 1e-3
    x = np.array([opsrl.posterior_sample(optimist, 1, 0, 0, key) for key in keys])
    unit = log(3 * K / DELTA)
    shapes = (1 + 720 * unit) / (120 * unit), 720 / 120
    p = np.random.default_rng(0).beta(*shapes, size=100_000)
    assert stats.ks_2samp(x, p * 0.2 + (1 - p) * 1.0).pvalue > 1e-3


def test_the_draws_of_optimistic_psrl():
    tables = learnt(bm.OPSRL(scale=0.05, delta=DELTA))
    tables.v[1] = 0.9, 0.2
    width = 0.05 * log(4 * S)
    low = [max(p - sqrt(3 * p * width / 3) - 3 * width / 3, 0) for p in (2 / 3, 1 / 3)]
    q = 0.25 + low[0] * 0.9 + low[1] * 0.2 + (1 - sum(low)) * 0.9  # psi = 8 draws find the best
    assert opsrl.value(tables, 0, 0, 0, np.uint64(3)) == pytest.approx(q)
    tables.v[H] = 9.0  # nothing comes after the last level
    assert opsrl.value(tables, 1, 0, 0, np.uint64(3)) == 0.75
    many = bm.OPSRL(scale=1e-6, delta=DELTA).tables(H, S, A, K)
    many.n[0, 0, 0], many.m[0, 0, 0] = 3000, (2000, 1000)
    many.order[1], many.states[1], many.met[:] = (0, 1), (0, 1), (1, 2, 1)
    many.v[1] = 0.9, 0.2
    keys = rng.children(np.uint64(2), 0, 2000)
    x = np.array([opsrl.posterior_sample(many, 0, 0, 0, key) for key in keys])
    unit = 1e-6 * log(H * K / DELTA)
    shape = [(n + 720 * unit) / (120 * unit) for n in (2000, 1000)]
    p = np.random.default_rng(0).beta(*shape, size=50_000)
    assert x == pytest.approx(2 / 3 * 0.9 + 1 / 3 * 0.2, abs=0.01)
    assert x.std() == pytest.approx((p * 0.7).std(), rel=0.1)
    assert opsrl.value(many, 0, 0, 0, np.uint64(3)) >= np.median(x)
    shapes = [(n + 720 * unit) / (120 * unit) for n in (2000, 1000)]
    drawn = [rng.gamma(keys[0], 2 + j, shape) for j, shape in enumerate(shapes)]
    assert x[0] == pytest.approx((drawn[0] * 0.9 + drawn[1] * 0.2) / sum(drawn), rel=1e-12)
    many.m[0, 0, 0] = 1000, 500  # the other half of the episodes ended there
    x = np.array([opsrl.posterior_sample(many, 0, 0, 0, key) for key in keys])
    assert x == pytest.approx((2 / 3 * 0.9 + 1 / 3 * 0.2) / 2, abs=0.01)


def digests():
    """What each learner has in its tables after the same 20 episodes."""
    found = {}
    for name, learner in LEARNERS.items():
        random = np.random.default_rng(0)
        tables = learner.tables(3, 4, 2, 50)
        for k in range(20):
            s = 0
            for h in range(3):
                a, t, r = int(random.integers(2)), int(random.integers(4)), random.random() / 3
                t = -1 if h == 1 and random.random() < 0.2 else t  # the episode ends
                learner.update(tables, h, s, a, r, t)
                if t < 0:
                    break
                s = t
            learner.plan(tables, k, np.uint64(k))
        digest = hashlib.sha256()
        for array in map(np.ascontiguousarray, tables):
            digest.update(array.tobytes())
        found[name] = digest.hexdigest()
    return found


def test_compiled_learners_do_what_plain_python_does():
    assert all(is_compiled(learner.update) for learner in LEARNERS.values())
    code = "import json, test_guarantees; print(json.dumps(test_guarantees.digests()))"
    assert json.loads(python(code, env={"NUMBA_DISABLE_JIT": "1"})) == digests()


# --- whole runs -----------------------------------------------------------------------------------
def chain(n=5, horizon=8):
    """The river swim: action 0 goes back and pays little at the end; 1 goes on, and may slip."""
    P, r = np.zeros((n, 2, n)), np.zeros((n, 2))
    for s in range(n):
        P[s, 0, max(s - 1, 0)] = 1.0
        P[s, 1, min(s + 1, n - 1)] += 0.7
        P[s, 1, s] += 0.3
    r[0, 0], r[n - 1, 1] = 0.01, 1.0 / horizon
    return stationary_mdp(P, r, horizon)


def grid(side=3, horizon=5):
    """Four directions; the opposite corner pays."""
    n = side * side
    P, r = np.zeros((n, 4, n)), np.zeros((n, 4))
    for s in range(n):
        for a, (dx, dy) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))):
            x, y = np.clip(s % side + dx, 0, side - 1), np.clip(s // side + dy, 0, side - 1)
            P[s, a, y * side + x] = 1.0
    r[n - 1] = 1.0 / horizon
    return stationary_mdp(P, r, horizon)


def stationary_mdp(P, r, horizon):
    n = len(P)
    shape = (horizon, *P.shape)
    rewards = np.broadcast_to(r[:, :, None], P.shape)
    return bm.BlockMDP(
        np.eye(n)[0],
        np.broadcast_to(P, shape),
        np.broadcast_to(rewards, shape),
        emission=bm.OneHotGaussian(n, n, 0.1),
    )


PROBLEMS = {
    "chain": chain(),
    "grid": grid(),
    "random": bm.random_block_mdp(horizon=4, n_states=4, n_actions=2, paying=0.3, seed=3),
}
SLOW = ("DelayedQ", "UCBQ", "UCBQ, Bernstein")  # model-free


@pytest.mark.parametrize("name", LEARNERS)
def test_each_learner_solves_a_chain_a_grid_and_a_random_problem(name):
    for problem, m in PROBLEMS.items():
        episodes = 200_000 if name in SLOW else 6_000
        agent = bm.Tabular(LEARNERS[name]).fit(m, episodes, seed=1)
        assert agent.value() >= 0.9 * m.optimal_value(), problem


def test_regret_is_exact_and_that_of_the_same_episodes():
    m = bm.lock_bernoulli(horizon=3, switch=0.2)
    learner = bm.UCBVI(bonus=0.0)
    lost = np.diff(bm.regret(m, learner, 50, seed=4), prepend=0.0)
    agent = bm.Tabular(learner).fit(m, 49, seed=4)
    assert lost[0] == pytest.approx(0.5 - m.value(np.full((3, m.n_states, 4), 0.25)))
    assert lost[-1] == pytest.approx(0.5 - m.value(agent.policy_.pi))
    assert (lost >= -1e-12).all()


def test_one_model_for_all_levels_needs_fewer_episodes():
    m = chain(horizon=12)
    for name in ("UCBVI", "PSRL", "UBEV", "UCRL2"):
        learner = LEARNERS[name]
        shared = bm.regret(m, replace(learner, stationary=True), 400, seed=0)[-1]
        assert shared < 0.5 * bm.regret(m, learner, 400, seed=0)[-1], name


@pytest.mark.parametrize("learner", [bm.UCBVI(bonus=0.0), bm.PSRL()])
def test_an_action_that_leads_nowhere_is_tried_once_in_an_episode(learner):
    P = np.broadcast_to(np.eye(2)[:, None], (2, 3, 2))  # no action leads anywhere
    m = stationary_mdp(P, np.zeros((2, 3)), horizon=20)
    agent = bm.Tabular(replace(learner, stationary=True)).fit(m, 1)
    assert (agent.tables_.n[0, 0] > 0).all()


def test_the_regret_of_ucbvi_grows_slowly_and_stays_below_its_bound():
    m, K, delta = grid(side=2, horizon=3), 3_000, 0.1
    S, A, H = m.n_states, m.n_actions, m.horizon
    L = log(5 * S * A * H * K / delta)
    found = bm.regret(m, bm.UCBVITheory(delta=delta, stationary=True), K)
    k = np.arange(1, K + 1)
    assert (found <= 20 * H * L * np.sqrt(S * A * H * k) + 250 * H**2 * S**2 * A * L**2).all()
    small = bm.regret(m, LEARNERS["UCBVITheory"], K)
    assert small[-1] - small[K // 2] < 0.1 * small[K // 2]


def test_the_bounds_of_the_regret_of_ucbvi():
    H, S, A, K, delta = 3, 4, 2, 100, 0.1
    L = log(5 * S * A * H * K / delta)
    found = bm.UCBVITheory(stationary=True).regret_bound(H, S, A, K, delta)
    assert found == pytest.approx(20 * H * L * sqrt(S * A * H * K) + 250 * H**2 * S**2 * A * L**2)
    found = bm.UCBVITheory("bernstein", stationary=True).regret_bound(H, S, A, K, delta)
    bound = 30 * H * L * sqrt(S * A * K) + 2500 * H**2 * S**2 * A * L**2
    assert found == pytest.approx(bound + 4 * H * sqrt(H * K * L))
    half = bm.UCBVITheory("bernstein", stationary=True, v_max=1.5)
    assert half.regret_bound(H, S, A, K, delta) == pytest.approx(found / 2)
    by_level = bm.UCBVITheory("bernstein").regret_bound(H, S, A, K, delta)
    alike = bm.UCBVITheory("bernstein", stationary=True).regret_bound(H, H * S, A, K, delta)
    assert by_level == alike


def test_wrong_constants_are_refused():
    for make in (
        lambda: bm.UCBQ("chernoff"),
        lambda: bm.UCBVITheory(scale=-1.0),
        lambda: bm.EULER(delta=0.0),
        lambda: bm.UBEV(v_max=0.0),
        lambda: bm.UCRL2(stationary="yes"),
        lambda: bm.RMAX(m=0),
        lambda: bm.E3(escape=2.0),
        lambda: bm.DelayedQ(epsilon=-0.1),
        lambda: bm.PSRLTheory(prior=0.0),
        lambda: bm.PSRL(unseen=1e6 + 0.5),
        lambda: bm.OPSRL(scale=0.0),
        lambda: bm.RLSVI(scale=math.inf),
        lambda: bm.Tabular(bm.UCBQ(), by_level=False),
        lambda: bm.UCBVITheory(scale=0.5).sample_complexity(2, 2, 2, 0.1, 0.1),
        lambda: bm.regret(grid(), bm.UCBVI, 10),
        lambda: bm.regret("FrozenLake-v1", bm.UCBVI(), 10),
    ):
        with pytest.raises(ValueError, match=r"must be|needs"):
            make()


def test_one_model_for_all_levels_needs_labels_that_mean_the_same():
    learner = bm.UCBVI(stationary=True)
    for make, fix in (
        (lambda: bm.Tabular(learner, on="observation"), "by_level=False"),
        (lambda: bm.URL(learner=learner), "pool_levels=True"),
        (lambda: bm.OnlineURL(learner=learner, pool_levels=False), "pool_levels=True"),
    ):
        with pytest.raises(ValueError, match=f"stationary=True, but .*{fix}"):
            make()
    bm.OnlineURL(learner=learner, pool_levels=True).fit(bm.river_swim(3, 4), 20)


def test_a_learner_says_whether_its_bound_holds():
    assert bm.UCBVITheory().has_guarantee()
    assert not bm.UCBVITheory(scale=0.5).has_guarantee()
    assert not bm.PSRL().has_guarantee()
    for learner in (bm.EULER, bm.RLSVI, bm.UBEV, bm.UCBQ):
        assert learner(scale=1.0).has_guarantee()
        assert not learner(scale=0.99).has_guarantee()
