"""Learners: updates by hand, random choices, bad hyperparameters, and learners of users."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit
from scipy import stats
from threadpoolctl import threadpool_info, threadpool_limits

from blockmdp import Learner, OracleQ, QLearning, Tabular, lock_bernoulli, rng
from blockmdp.jit import interpreted
from blockmdp.learners._model import fill_mean_values, mean_values
from blockmdp.learners.base import best_action, best_actions, best_value
from blockmdp.testing import check_learner

KEY = np.uint64(7)


def keys(n, seed=0):
    return rng.children(rng.root(seed), 0, n)


# --- building blocks ------------------------------------------------------------------------------
def test_best_value_is_the_largest_entry_and_zero_after_the_end():
    q = np.array([[[1.0, 3.0, 2.0], [-1.0, -3.0, -2.0]]])
    assert best_value(q, 0, 0) == 3.0
    assert best_value(q, 0, 1) == -1.0
    assert best_value(q, 1, 0) == 0.0  # level H
    assert best_value(q, 0, -1) == 0.0  # ended early


@pytest.mark.parametrize("L", [1, 4])
def test_values_in_the_mean_model_are_those_of_a_plain_recursion(L):
    draw = np.random.default_rng(L)
    H, S, A = 4, 5, 3
    n = draw.integers(0, 3, (L, S, A)).astype(np.int32)
    n[:, 0] = 0  # a state in which nothing was tried
    m = np.zeros((L, S, A, S), np.int32)
    for i, s, a in np.argwhere(n > 0):  # some transitions ended the episode
        np.add.at(m[i, s, a], draw.integers(0, S, draw.integers(0, n[i, s, a] + 1)), 1)
    r = draw.normal(size=(L, S, A))
    v = np.zeros(S)
    expected = np.empty((H, S, A))
    for h in reversed(range(H)):
        i = h if L > 1 else 0
        tried = n[i] > 0
        expected[h] = np.where(tried, (r[i] + m[i] @ v) / np.maximum(n[i], 1), -np.inf)
        v = np.where(tried.any(axis=1), expected[h].max(axis=1), 0.0)
    assert mean_values(H, n, m, r) == pytest.approx(expected, rel=1e-12)
    q = np.full((H, S, A), -np.inf)
    interpreted(fill_mean_values)(n, m, r, q)
    assert (q == mean_values(H, n, m, r)).all()


def test_actions_that_are_worth_the_same_in_the_mean_model_tie_exactly():
    draw = np.random.default_rng(0)
    m = draw.integers(0, 9, (2, 5, 4, 5)).astype(np.int32)
    m[1] = 0
    n, r = np.maximum(m.sum(axis=3), 1).astype(np.int32), np.zeros((2, 5, 4))
    n[1], r[1] = 3, 3.0  # each action of the last level pays 1
    assert (mean_values(2, n, m, r) == 1.0).all()


def test_the_greedy_policy_shares_the_probability_among_the_best_actions():
    q = np.random.default_rng(0).integers(0, 3, (2, 50, 4)) / 2 - 0.5
    best = q == q.max(axis=2, keepdims=True)
    assert (best_actions(q) == best / best.sum(axis=2, keepdims=True)).all()
    q[1, 7, 2] = np.nan
    assert np.isnan(best_actions(q)[1, 7]).all()
    assert np.isnan(best_actions(q)).sum() == 4


def test_ties_are_broken_evenly_among_the_maxima_only():
    for row, maxima in (
        ([0.0, 0.0, 0.0, 0.0], [0, 1, 2, 3]),
        ([1.0, 0.0, 1.0, 0.0], [0, 2]),
        ([0.0, 1.0, 0.5, 1.0], [1, 3]),
        ([2.0, 1.0, 2.0, 2.0], [0, 2, 3]),
        ([-1.0, -1.0, -2.0, -1.0], [0, 1, 3]),
    ):
        q = np.array([[row]])
        counts = np.bincount([best_action(q, 0, 0, key) for key in keys(6000)], minlength=4)
        assert set(np.flatnonzero(counts)) == set(maxima)
        assert stats.chisquare(counts[maxima]).pvalue > 1e-4


def test_a_single_maximum_is_always_taken():
    for a in range(4):
        q = np.eye(4)[None, None, a]
        assert {best_action(q, 0, 0, key) for key in keys(50)} == {a}


# --- OracleQ --------------------------------------------------------------------------------------
def test_oracleq_starts_optimistic_and_unvisited():
    q, n, _, alpha, c, v_max = OracleQ(lr=0.25, bonus=2, v_max=3).tables(2, 5, 4, 10)
    assert q.shape == n.shape == (2, 5, 4)
    assert (q == 3.0).all()
    assert (n == 0).all()
    assert (alpha, c, v_max) == (0.25, 2.0, 3.0)


def test_oracleq_updates_as_computed_by_hand():
    learner = OracleQ(lr=0.5, bonus=0.1, v_max=1.0)
    t = learner.tables(4, 2, 2, 10)  # H = 4, so that c * sqrt(H / n) is 0.2 / sqrt(n)

    learner.update(t, 3, 0, 1, 0.0, 1)  # at the last level: no value after it
    assert t.q[3, 0, 1] == pytest.approx(0.5 * 1 + 0.5 * (0 + 0 + 0.2))  # 0.6
    learner.update(t, 3, 0, 1, 0.0, 0)
    assert t.q[3, 0, 1] == pytest.approx(0.5 * 0.6 + 0.5 * 0.2 / math.sqrt(2))
    assert t.n[3, 0, 1] == 2

    t.q[3, 1] = 0.25, 0.5
    learner.update(t, 2, 0, 0, 0.1, 1)  # the better action's value at the next level counts
    assert t.q[2, 0, 0] == pytest.approx(0.5 * 1 + 0.5 * (0.1 + 0.5 + 0.2))
    learner.update(t, 2, 1, 0, 0.1, -1)  # ended early: nothing follows
    assert t.q[2, 1, 0] == pytest.approx(0.5 * 1 + 0.5 * (0.1 + 0 + 0.2))

    touched = np.zeros((4, 2, 2), int)
    touched[3, 0, 1], touched[2, 0, 0], touched[2, 1, 0] = 2, 1, 1
    assert np.array_equal(t.n, touched)
    touched[3, 1] = 1
    assert (t.q[touched == 0] == 1.0).all()


def test_values_of_oracleq_never_exceed_v_max():
    learner = OracleQ(lr=0.5, bonus=5.0, v_max=2.0)
    t = learner.tables(3, 1, 1, 10)
    for _ in range(20):
        learner.update(t, 1, 0, 0, 1.0, 0)
        assert t.q[1, 0, 0] == 2.0
    low = OracleQ(lr=0.5, bonus=0.0, v_max=2.0)
    t = low.tables(3, 1, 1, 10)
    low.update(t, 2, 0, 0, 1.0, 0)
    assert t.q[2, 0, 0] == 1.5


def test_oracleq_acts_greedily():
    learner = OracleQ()
    t = learner.tables(2, 2, 3, 10)
    t.q[1, 0] = 0.2, 0.9, 0.3
    assert {learner.act(t, 0, 1, 0, key) for key in keys(50)} == {1}
    assert {learner.act(t, 0, 1, 1, key) for key in keys(50)} == {0, 1, 2}


# --- QLearning ------------------------------------------------------------------------------------
def test_qlearning_updates_as_computed_by_hand():
    learner = QLearning(lr=0.25)
    t = learner.tables(2, 2, 2, 10)
    assert (t.q == 0).all()
    learner.update(t, 1, 0, 1, 1.0, 1)
    assert t.q[1, 0, 1] == 0.25
    learner.update(t, 1, 0, 1, 1.0, 0)
    assert t.q[1, 0, 1] == 0.25 + 0.25 * 0.75  # 0.4375
    learner.update(t, 0, 1, 0, 0.5, 0)
    assert t.q[0, 1, 0] == 0.25 * (0.5 + 0.4375)
    learner.update(t, 0, 1, 1, 0.5, -1)
    assert t.q[0, 1, 1] == 0.25 * 0.5
    assert np.count_nonzero(t.q) == 3


def share_of_random_actions(learner, episodes, k, n=4000):
    """Return the fraction of choices that are not the best of 1000 actions."""
    t = learner.tables(1, 1, 1000, episodes)
    t.q[0, 0, 17] = 1.0
    return np.mean([learner.act(t, k, 0, 0, key) != 17 for key in keys(n, seed=k)])


def test_epsilon_falls_linearly_over_a_fraction_of_the_episodes():
    for exploration, final, k, epsilon in (
        (0.5, 0.01, 0, 1.0),
        (0.5, 0.01, 125, 0.7525),
        (0.5, 0.01, 250, 0.505),
        (0.5, 0.01, 500, 0.01),
        (0.5, 0.01, 999, 0.01),
        (1.0, 0.2, 500, 0.6),
        (0.001, 0.01, 0, 1.0),
        (0.001, 0.01, 1, 0.01),
        (0.0, 0.01, 0, 1.0),
        (0.0, 0.01, 1, 0.01),
        (0.0, 0.0, 1, 0.0),
        (0.25, 1.0, 900, 1.0),
    ):
        learner = QLearning(exploration=exploration, final_epsilon=final)
        share = share_of_random_actions(learner, 1000, k)
        expected = epsilon * 0.999  # one random action in a thousand is the best one
        assert abs(share - expected) <= 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_random_actions_are_uniform():
    learner = QLearning(exploration=1.0)
    t = learner.tables(1, 1, 5, 100)
    t.q[0, 0, 2] = 1.0
    counts = np.bincount([learner.act(t, 0, 0, 0, key) for key in keys(5000)], minlength=5)
    assert stats.chisquare(counts).pvalue > 1e-4


# --- hyperparameters ------------------------------------------------------------------------------
def test_a_bad_hyperparameter_raises_with_its_name():
    for kind, field, bad in (
        (OracleQ, "lr", 0.0),
        (OracleQ, "lr", 1.5),
        (OracleQ, "lr", math.nan),
        (OracleQ, "lr", "0.1"),
        (OracleQ, "bonus", -1e-9),
        (OracleQ, "bonus", None),
        (OracleQ, "v_max", math.nan),
        (QLearning, "lr", -0.1),
        (QLearning, "exploration", 1.1),
        (QLearning, "exploration", -0.1),
        (QLearning, "exploration", [0.1]),
        (QLearning, "final_epsilon", 2),
        (QLearning, "final_epsilon", -1),
    ):
        with pytest.raises(ValueError, match=rf"{kind.__name__}: {field} must be a number in \["):
            kind(**{field: bad})


def test_hyperparameters_are_stored_as_given_and_cannot_be_changed():
    learner = OracleQ(lr=1, bonus=np.float64(0.5))
    assert (learner.lr, learner.bonus, learner.v_max) == (1, 0.5, 1.0)
    with pytest.raises(AttributeError):
        learner.lr = 0.2
    assert QLearning(0.2, 0.3, 0.4) == QLearning(lr=0.2, exploration=0.3, final_epsilon=0.4)


# --- policies and growing tables ------------------------------------------------------------------
def test_the_best_actions_share_the_probability_of_the_policy():
    learner = QLearning()
    t = learner.tables(2, 1, 4, 10)
    t.q[0, 0] = 1, 3, 3, 0
    assert learner.policy(t).tolist() == [[[0, 0.5, 0.5, 0]], [[0.25] * 4]]


def test_grown_tables_keep_what_was_learnt_and_are_fresh_elsewhere():
    learner = OracleQ(v_max=2.0)
    t = learner.tables(3, 2, 2, 10)
    learner.update(t, 1, 1, 0, 0.5, 0)
    grown = learner.grow(t, 3, 5, 2, 10)
    assert grown.q.shape == (3, 5, 2)
    assert np.array_equal(grown.q[:, :2], t.q)
    assert np.array_equal(grown.n[:, :2], t.n)
    assert grown.n.sum() == 1
    assert (grown.q[:, 2:] == 2.0).all()
    assert grown[2:] == t[2:]


# --- learners of users ----------------------------------------------------------------------------
class CountTables(NamedTuple):
    q: Any
    n: Any


def ucb_act(tables, k, h, s, key):
    best, a = -1.0, 0
    for b in range(tables.q.shape[2]):
        n = tables.n[h, s, b]
        x = 9.0 + rng.uniform(key, b) if n == 0 else tables.q[h, s, b] + math.sqrt(0.02 / n)
        if x > best:
            best, a = x, b
    return a


def ucb_update(tables, h, s, a, r, s_next):
    tables.n[h, s, a] += 1
    target = r + best_value(tables.q, h + 1, s_next)
    tables.q[h, s, a] += (target - tables.q[h, s, a]) / tables.n[h, s, a]


class PlainCount(Learner):
    """Q-learning with averages and a bonus: the learner of a user, in plain Python."""

    def tables(self, H, S, A, episodes):
        return CountTables(np.zeros((H, S, A)), np.zeros((H, S, A), np.int64))

    act = staticmethod(ucb_act)
    update = staticmethod(ucb_update)


class Count(PlainCount):
    act = staticmethod(njit(ucb_act))
    update = staticmethod(njit(ucb_update))


class Uniform(Learner):
    """A learner whose tables have no names, so there is no table `q`."""

    def tables(self, H, S, A, episodes):
        return (np.zeros((H, S, A)),)

    @staticmethod
    def act(tables, k, h, s, key):
        return rng.integer(key, 0, tables[0].shape[2])

    @staticmethod
    def update(tables, h, s, a, r, s_next):
        tables[0][h, s, a] += 1


def test_check_learner_passes_correct_learners():
    for learner in (
        OracleQ(),
        OracleQ(lr=1.0, bonus=1.0, v_max=5.0),
        QLearning(exploration=0.5),
        PlainCount(),
        Count(),
    ):
        check_learner(learner)


def test_learners_run_on_one_thread_too():
    seen = []

    class ThreadCounter(PlainCount):
        @staticmethod
        def act(tables, k, h, s, key):
            seen.append({pool["num_threads"] for pool in threadpool_info()})
            return 0

    with threadpool_limits(limits=2):
        before = [pool["num_threads"] for pool in threadpool_info()]
        Tabular(ThreadCounter()).fit(lock_bernoulli(2), 1)
        assert [pool["num_threads"] for pool in threadpool_info()] == before
    assert seen == [{1}, {1}]


def test_the_learner_of_a_user_learns_the_same_compiled_and_in_plain_python():
    mdp = lock_bernoulli(horizon=3, switch=0.2, seed=4)
    assert Count().is_compiled()
    assert not PlainCount().is_compiled()
    for on in ("latent", "observation"):
        compiled, plain = (
            Tabular(kind(), on).fit(mdp, 1500, seed=1) for kind in (Count, PlainCount)
        )
        assert np.array_equal(compiled.returns_, plain.returns_)
        assert np.array_equal(compiled.tables_.q, plain.tables_.q)
        assert np.array_equal(compiled.tables_.n, plain.tables_.n)
        assert compiled.value() == pytest.approx(0.5)


def test_a_learner_with_only_some_functions_compiled_runs_interpreted():
    class Half(PlainCount):
        act = staticmethod(njit(ucb_act))

    mdp = lock_bernoulli(horizon=3, switch=0.2, seed=4)
    half, plain = (Tabular(kind()).fit(mdp, 200, seed=1) for kind in (Half, PlainCount))
    assert not Half().is_compiled()
    assert np.array_equal(half.tables_.q, plain.tables_.q)


def test_a_learner_without_a_table_q_must_define_policy():
    with pytest.raises(NotImplementedError, match=r"Uniform have no field 'q': define policy"):
        Tabular(Uniform()).fit(lock_bernoulli(horizon=2), 50)


def test_an_incomplete_learner_raises_with_the_missing_method():
    for call, missing in (
        (lambda x: x.tables(1, 1, 1, 1), "tables"),
        (lambda x: x.act((), 0, 0, 0, KEY), "act"),
        (lambda x: x.update((), 0, 0, 0, 0.0, 0), "update"),
    ):
        with pytest.raises(NotImplementedError, match=rf"must define {missing}\("):
            call(Learner())


# --- broken learners ------------------------------------------------------------------------------
class OutOfRange(PlainCount):
    act = staticmethod(lambda tables, k, h, s, key: 4)


class OutOfRangeCompiled(Count):
    act = staticmethod(njit(lambda tables, k, h, s, key: -1))


class OutOfRangeLater(PlainCount):
    act = staticmethod(lambda tables, k, h, s, key: 4 if k >= 50 else 0)


class OwnRandomness(PlainCount):
    generator = np.random.default_rng(0)
    act = staticmethod(lambda tables, k, h, s, key: int(OwnRandomness.generator.integers(4)))


class OwnRandomnessWhileLearning(PlainCount):
    generator = np.random.default_rng(0)

    @staticmethod
    def update(tables, h, s, a, r, s_next):
        tables.n[h, s, a] += 1
        tables.q[h, s, a] = OwnRandomnessWhileLearning.generator.random()


class ActWrites(PlainCount):
    @staticmethod
    def act(tables, k, h, s, key):
        tables.n[h, s, 0] += 1
        return 0


class SharedTables(PlainCount):
    shared = CountTables(np.zeros((3, 3, 4)), np.zeros((3, 3, 4), np.int64))

    def tables(self, H, S, A, episodes):
        return self.shared


class Forgetful(PlainCount):
    def grow(self, tables, H, S, A, episodes):
        return self.tables(H, S, A, episodes)


class NotProbabilities(PlainCount):
    def policy(self, tables):
        return np.full(tables.q.shape, 0.5)


class NegativeProbabilities(PlainCount):
    def policy(self, tables):
        return np.broadcast_to([2.0, -1.0, 0.0, 0.0], tables.q.shape)


class WrongShape(PlainCount):
    def policy(self, tables):
        return np.full(tables.q.shape[:2], 0.25)


class Listed(PlainCount):
    def tables(self, H, S, A, episodes):
        return list(super().tables(H, S, A, episodes))


class Worded(PlainCount):
    def tables(self, H, S, A, episodes):
        return (*super().tables(H, S, A, episodes), "words")


class NoLearner:
    pass


def test_check_learner_names_what_is_wrong_with_a_broken_learner():
    for broken, message in (
        (OutOfRange, r"OutOfRange\.act .*4"),
        (OutOfRangeCompiled, r"act .*-1"),
        (OutOfRangeLater, "OutOfRangeLater.act .*4"),
        (OwnRandomness, "act .*different actions"),
        (OwnRandomnessWhileLearning, "returns"),
        (ActWrites, "act changed table 'n'"),
        (SharedTables, "table 'q' is shared"),
        (Forgetful, "grow lost entries of table 'q'"),
        (NotProbabilities, r"policy must be probabilities .*got \[0\.5"),
        (NegativeProbabilities, "policy must be probabilities"),
        (WrongShape, r"policy must have the shape \(H, S, A\) = \(3, 3, 4\), got \(3, 3\)"),
        (Listed, "tables must return a tuple .*, got list"),
        (Worded, "table 2 is a str"),
        (NoLearner, r"NoLearner must subclass blockmdp\.Learner"),
    ):
        with pytest.raises(AssertionError, match=message):
            check_learner(broken())


def test_check_learner_wants_an_instance_and_integer_actions():
    with pytest.raises(AssertionError, match=r"pass an instance: check_learner\(OracleQ\(\)\)"):
        check_learner(OracleQ)

    class Silent(OracleQ):
        act = staticmethod(lambda tables, k, h, s, key: None)

    with pytest.raises(AssertionError, match=r"Silent\.act returned None; actions are"):
        check_learner(Silent())
