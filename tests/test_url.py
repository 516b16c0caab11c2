"""URL (Feng et al. 2020, Algorithms 1 and 2): as written, to the last trajectory; as practised."""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from helpers import python
from sklearn.cluster import DBSCAN, KMeans

import blockmdp as bm
from blockmdp import (
    URL,
    BlockMDP,
    Learner,
    Linear,
    OneHotGaussian,
    OracleQ,
    PerLevel,
    QLearning,
    UCBVITheory,
    lock_bernoulli,
    lock_gaussian,
    rng,
)
from blockmdp.decoders import constant_decoder
from blockmdp.oracles import DirichletMixture, gmm, pca_dbscan_svm, pca_kmeans
from blockmdp.oracles.fitting import ConstantPredictor, FittedOracle, fit_growing, learn_more
from blockmdp.policy import Policy
from blockmdp.simulators import BlockSimulator, GymSimulator, make_simulator
from blockmdp.tapes import Tapes
from blockmdp.trajectories import Observations
from blockmdp.url import TSR

ENGINES = ("compiled", "interpreted", "stepwise")
LOCK = lock_gaussian(horizon=3, switch=0.2, sigma=0.1, seed=1)
BITS = lock_bernoulli(horizon=3, switch=0.2, seed=1)


def another_emission_a_level(H=2, S=2, A=2, entropy=0):
    """A small problem, seen through another rotation at each level."""
    g = np.random.default_rng(entropy)
    P = np.full((H, S, A, S), 0.1 / S)
    for h, s, a in np.ndindex(H, S, A):
        P[h, s, a, g.integers(S)] += 0.9
    r = np.zeros((H, S, A, S))
    r[-1, 0] = 1.0
    rotations = [np.linalg.qr(g.normal(size=(S + 2, S + 2)))[0] for _ in range(H + 1)]
    emission = PerLevel([Linear(OneHotGaussian(S, 2, 0.1), m) for m in rotations])
    return BlockMDP(np.eye(S)[0], P, r, emission=emission)


def kmeans(k=3, n_init=2):
    return KMeans(k, n_init=n_init)


def practice(oracle=None, learner=None, **fields):
    """The quickest practice: one small fit."""
    fields = {"batch": 40, "iterations": 1, "test_batch": 10} | fields
    return URL(kmeans() if oracle is None else oracle, learner or OracleQ(lr=0.3), **fields)


def same(one, other):
    """Whether two agents came to the same, to the last bit."""
    x = np.random.default_rng(0).normal(size=(100, one.mdp_.emission.dim))
    levels = np.arange(100) % (one.policy_.horizon + 1)
    return (
        np.array_equal(one.returns_, other.returns_)
        and np.array_equal(one.trajectories_, other.trajectories_)
        and np.array_equal(one.policy_.pi, other.policy_.pi)
        and np.array_equal(one.evaluations_, other.evaluations_)
        and all(np.array_equal(a, b) for a, b in zip(one.tables_, other.tables_))
        and one.ledger_ == other.ledger_
        and np.array_equal(one.decoder_.decode(levels, x), other.decoder_.decode(levels, x))
        and [d.trajectories for d in one.history_] == [d.trajectories for d in other.history_]
    )


@contextmanager
def recorded_rollouts():
    """What is asked of `rollout`: (kind, n, policies), in order; learning is ("learn", n, ())."""
    asked = []
    rollout, learn = BlockSimulator.rollout, BlockSimulator.learn

    def rolling(self, policies, n, kind, **options):
        asked.append((kind, n, tuple(policies)))
        return rollout(self, policies, n, kind, **options)

    def learning(self, run, sight, n=None, record=False):
        before = run.k
        seen = learn(self, run, sight, n, record)
        asked.append(("learn", run.k - before, ()))
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockSimulator, "rollout", rolling)
        patch.setattr(BlockSimulator, "learn", learning)
        yield asked


@contextmanager
def recorded_trainings():
    """The data and the test data of each training of a decoder."""
    seen = []
    train = TSR._train

    def training(self, D, test, *arguments):
        seen.append((D, test))
        train(self, D, test, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TSR, "_train", training)
        yield seen


@pytest.fixture
def rollouts():
    with recorded_rollouts() as asked:
        yield asked


@pytest.fixture
def trainings():
    with recorded_trainings() as seen:
        yield seen


# --- the constants --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("epsilon", "delta", "H", "S", "N", "L", "J"),
    [
        (0.1, 0.1, 5, 3, 2, 41_500, 19),  # log(20)/2 = 1.498; 9*25/0.02 log 40 = 41499.9
        (0.5, 0.5, 2, 2, 1, 100, 7),  # log(4)/2 = 0.69; 9*4/0.5 log 4 = 99.8
        (0.2, 0.01, 1, 4, 3, 720, 9),  # log(200)/2 = 2.65; 9/0.08 log 600 = 719.7
    ],
)
def test_restarts_evaluations_and_iterations_are_those_printed(epsilon, delta, H, S, N, L, J):
    c = URL.constants(epsilon, delta, H, S, batch=7)
    assert (c.N, c.L, c.J, c.B) == (N, L, J, 7)
    agent = URL.theory(kmeans(), epsilon=epsilon, delta=delta, horizon=H, n_states=S, batch=7)
    assert (agent.restarts, agent.evaluation, agent.iterations, agent.batch) == (N, L, J, 7)


def test_one_action_and_one_state_are_enough_for_the_constants():
    assert URL.constants(0.1, 0.1, horizon=1, n_states=1, batch=7).J == 3


def test_the_label_error_is_half_at_most():
    c = URL.constants(0.1, 0.1, 1, 1, delta_1=0.9999, batch=7)
    assert c.min_count == pytest.approx(3 * 0.5 * 7 * -math.log(0.9999))


def test_a_learner_that_shares_its_model_needs_one_decoder_for_all_levels():
    learner = UCBVITheory(stationary=True)
    for pool_levels in (False, "auto"):
        with pytest.raises(ValueError, match=r"stationary=True, but .* set pool_levels=True"):
            URL(learner=learner, pool_levels=pool_levels)
    URL(learner=learner, pool_levels=True)


def test_the_batch_size_comes_from_the_oracles_g():
    asked = []

    def g_inverse(epsilon, delta):
        asked.append((epsilon, delta))
        return math.log(1 / delta) / epsilon

    c = URL.constants(
        0.1, 0.1, 2, 2, label_error=0.1, delta_1=0.01, g_inverse=g_inverse, episodes=10
    )
    # K J = 70; g^{-1}(0.01 / 70, 0.01) = 7000 log 100 = 32236.2; over 70: 460.5
    assert asked == [(pytest.approx(0.01 / 70), 0.01)]
    assert c.B == 461
    assert c.min_count == pytest.approx(3 * 0.1 * 461 * math.log(100))


def test_a_batch_given_is_a_batch_taken():
    c = URL.constants(0.1, 0.1, 2, 2, batch=5, g_inverse=lambda epsilon, delta: 1e9, episodes=3)
    assert c.B == 5


def test_theory_needs_a_batch_or_an_oracles_g():
    with pytest.raises(ValueError, match="batch"):
        URL.theory(kmeans(), horizon=2, n_states=2)
    with pytest.raises(ValueError, match="episodes"):
        URL.theory(kmeans(), horizon=2, n_states=2, g_inverse=lambda epsilon, delta: 1)


@pytest.mark.parametrize("field", ["epsilon", "delta", "label_error", "delta_1"])
@pytest.mark.parametrize("value", [0, 1, -0.1, 2.0, float("nan")])
def test_probabilities_and_accuracies_of_theory_are_between_0_and_1(field, value):
    with pytest.raises(ValueError, match=field):
        URL.theory(kmeans(), horizon=2, n_states=2, batch=5, **{field: value})


@pytest.mark.parametrize("field", ["horizon", "n_states", "batch"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_sizes_of_theory_are_whole_numbers(field, value):
    with pytest.raises(ValueError, match=field):
        URL.theory(kmeans(), **({"horizon": 2, "n_states": 2, "batch": 5} | {field: value}))


def test_theory_says_which_condition_of_the_proof_fails():
    sizes = {"horizon": 2, "n_states": 2, "batch": 5}
    for learner, label_error, delta_1, what in (
        (None, 0.05, 0.01, r"= 0.23 must be at most 0.1 \(Lemma 1\)"),
        (None, 0.01, 0.01, r"= 9.21 must be less than 1/2 \(Lemma 2\)"),
        (None, 0.0006, 0.01, r"= 0.553 must be less than 1/2 \(Lemma 2\)"),
        (OracleQ(), None, 0.01, r"OracleQ.* not known to be \(epsilon, delta\)-correct \(Def"),
        (UCBVITheory(scale=0.1), None, 0.01, "Definition 2"),
    ):
        with pytest.warns(UserWarning, match=what):
            URL.theory(kmeans(), learner, label_error=label_error, delta_1=delta_1, **sizes)
    with pytest.warns(UserWarning, match="Lemma 2") as caught:
        URL.theory(kmeans(), label_error=0.1 / math.log(100), delta_1=0.01, **sizes)
    assert "Lemma 1" not in str(caught[0].message)  # exactly 0.1
    with pytest.raises(ValueError, match=r"line 12.*label_error < 0.0724"):
        URL.theory(kmeans(), label_error=0.2, **sizes)


def test_theory_checks_the_problem_and_the_labels():
    sizes = {"epsilon": 0.9, "delta": 0.5, "horizon": 2, "batch": 3}
    lock = lock_gaussian(horizon=2)
    with pytest.raises(ValueError, match="horizon 2, but the problem has horizon 3"):
        URL.theory(kmeans(3), n_states=3, **sizes).fit(lock_gaussian(horizon=3), 1)
    with pytest.warns(UserWarning, match=r"LockGaussian has 3 states at a level.*n_states=2"):
        URL.theory(kmeans(2), n_states=2, **sizes).fit(lock, 1)
    with pytest.warns(UserWarning, match=r"has found 4 labels.*\|S\| = 3 \(Definition 1\)"):
        URL.theory(kmeans(4), n_states=3, **sizes).fit(lock, 1)
    twice = BlockMDP(
        lock.initial, lock.transitions, 2 * lock.rewards, lock.reward_probability,
        emission=lock.emission,
    )  # fmt: skip
    with pytest.warns(UserWarning, match=r"lie in \[0, 2\].*\(Section 2\)"):
        URL.theory(kmeans(3), n_states=3, **sizes).fit(twice, 1)


def test_the_number_of_episodes_comes_from_the_learners_bound():
    learner = UCBVITheory(stationary=True)
    H, S, A, epsilon, delta = 2, 2, 2, 0.5, 0.1
    K = learner.sample_complexity(H, S, A, epsilon, delta)
    L = math.log(5 * S * A * H * K / (delta / 2))
    bound = 20 * H * L * math.sqrt(S * A * H * K) + 250 * H**2 * S**2 * A * L**2
    assert learner.regret_bound(H, S, A, K, delta / 2) == pytest.approx(bound)
    assert bound <= K * epsilon * delta / 2 < bound * 1.001
    c = URL.constants(0.5, 0.1, 2, 2, batch=5, learner=learner, n_actions=2)
    assert learner.sample_complexity(2, 2, 2, 0.5 / 4, 0.005) == c.K
    asked = []

    def g_inverse(epsilon, delta):
        asked.append(epsilon)
        return 1.0

    URL.constants(0.5, 0.1, 2, 2, g_inverse=g_inverse, learner=learner, n_actions=2)
    label_error = 1 / (200 * 2 * 2 * math.log(100))
    assert asked == [pytest.approx(label_error**2 / (c.K * c.J), rel=1e-9, abs=0)]
    assert UCBVITheory("bernstein", v_max=1.0).regret_bound(H, S, A, 100, 0.1) < bound


def test_theory_departs_in_nothing():
    agent = URL.theory(kmeans(), horizon=2, n_states=2, batch=5)
    assert agent.resample
    assert agent.fix_labels
    assert not agent.pool_levels
    assert agent.stop_agreement is None
    assert agent.growth == 1
    assert agent.test_batch == agent.batch
    assert agent.retrain_every == 1


# --- Algorithms 1 and 2, trajectory by trajectory -------------------------------------------------
K, J, B, N, L = 3, 7, 4, 2, 266  # J = (2 + 1) 2 + 1; N, L for epsilon = 0.5, delta = 0.1


@pytest.fixture(scope="module")
def theory():
    """A run of Algorithm 1, with all that it asked for."""
    sizes = {"horizon": 2, "n_states": 2, "batch": B, "label_error": 0.01}
    with pytest.warns(UserWarning, match="Definition 2"):
        agent = URL.theory(kmeans(2), OracleQ(lr=0.5), epsilon=0.5, delta=0.1, **sizes)
    with recorded_rollouts() as rollouts, recorded_trainings() as trainings:
        agent.fit(another_emission_a_level(), episodes=K, seed=0)
    return agent, rollouts, trainings


def test_the_oracle_learns_from_how_the_learner_behaves():
    random = bm.QLearning(exploration=1.0, final_epsilon=0.5)  # its policy is greedy
    with recorded_rollouts() as asked:
        URL(kmeans(3), random, batch=20).fit(LOCK, 30, seed=0)
    kind, _, (policy,) = asked[0]
    assert kind == "oracle"
    assert (policy.pi == 0.25).all()
    with recorded_rollouts() as asked:
        URL(kmeans(3), random, batch=20, retrain_every=10, resample=True).fit(LOCK, 30, seed=0)
    pi = next(p for kind, _, p in reversed(asked[:-1]) if kind == "test")[-1].pi
    assert pi.min() > 0.01  # exploration included, in the last training before the end
    assert pi.max() > 0.25


def test_theory_draws_what_the_formula_says(theory):
    agent, asked, _ = theory
    c = URL.constants(0.5, 0.1, 2, 2, batch=B)
    assert (c.N, c.L, c.J) == (N, L, J)
    assert agent.ledger_ == c.all_trajectories(K)
    assert agent.ledger_ == {
        "oracle": N * sum(((k - 1) * J + i) * B for k in range(1, K + 2) for i in range(1, J + 1)),
        "test": N * (K + 1) * J * B,
        "learn": N * K,
        "evaluate": N * L,
    }
    # the printed count stops at k = K: it is what is drawn before each restart's last call of TSR
    drawn, calls = 0, 0
    for kind, n, _ in asked:
        if kind == "oracle":
            calls = calls % ((K + 1) * J) + 1
        if kind == "evaluate" or (kind in ("oracle", "test") and calls <= K * J):
            drawn += n
    printed = N * sum(((k - 1) * J + i + 1) * B for k in range(1, K + 1) for i in range(1, J + 1))
    assert c.trajectories(K) == printed + N * L == drawn


def test_theory_asks_for_training_and_test_data_in_the_order_of_the_algorithms(theory):
    _, asked, _ = theory
    expected = []
    for _ in range(N):
        for k in range(1, K + 2):
            for i in range(1, J + 1):
                n = (k - 1) * J + i
                expected += [("oracle", n * B, n), ("test", B, 1)]  # Unif(Pi), pi o f
            if k <= K:
                expected.append(("learn", 1, 0))
    expected += [("evaluate", L, 1)] * N
    assert [(kind, n, len(policies)) for kind, n, policies in asked] == expected


def test_the_policy_set_is_of_each_episodes_policy_on_each_iterations_decoder(theory):
    _, asked, _ = theory
    one_restart = asked[: (K + 1) * J * 2 + K]
    sets = [policies for kind, _, policies in one_restart if kind == "oracle"]
    tests = [policies for kind, _, policies in one_restart if kind == "test"]
    for n, (Pi, (newest,)) in enumerate(zip(sets, tests)):
        assert Pi[-1] is newest
        assert Pi[:-1] == (sets[n - 1] if n else ())
    decoders = [newest.decoder for (newest,) in tests]
    assert decoders[0].n_labels == 1
    assert len({id(f) for f in decoders}) == (K + 1) * J  # each iteration has the one before's
    for k in range(K + 1):
        of_episode = [newest.pi for (newest,) in tests[k * J : (k + 1) * J]]
        assert all(np.array_equal(pi, of_episode[0]) for pi in of_episode)


def test_each_restart_begins_with_nothing(theory):
    _, asked, _ = theory
    again = asked[(K + 1) * J * 2 + K :]
    ((first,), (second,)) = (part[0][2] for part in (asked, again))
    assert second.decoder.n_labels == 1
    assert second is not first
    assert np.array_equal(second.pi, np.full((2, 2, 2), 0.5))


def test_theory_fits_an_oracle_a_level_on_the_data_of_that_level(theory):
    agent, _, trainings = theory
    assert len(agent.decoder_.fitted) == 3
    assert not agent.decoder_.pooled
    for n, (D, test) in enumerate(trainings):
        i = n % ((K + 1) * J) + 1
        assert np.bincount(D.levels).tolist() == [i * B] * 3
        assert np.bincount(test.levels).tolist() == [B] * 3


def test_theory_confirms_labels_and_calls_them_by_their_names(theory):
    agent, _, _ = theory
    confirmed = [label for refit in agent.history_ for label in refit.confirmed]
    assert len(confirmed) == len(set(confirmed))
    assert {level for level, _ in confirmed} == {0, 1, 2}
    assert len(agent.history_) == (K + 1) * J
    assert [refit.k for refit in agent.history_] == [k for k in range(K + 1) for _ in range(J)]


def test_the_best_of_the_restarts_is_put_out(theory):
    agent, asked, _ = theory
    evaluated = [policies[0] for kind, _, policies in asked if kind == "evaluate"]
    best = evaluated[int(np.argmax(agent.evaluations_))]
    assert agent.policy_ is best
    assert agent.decoder_ is best.decoder
    assert len(agent.evaluations_) == N
    assert len(agent.returns_) == len(agent.trajectories_) == N * K


def test_a_mixture_follows_each_policy_as_often_as_another():
    policies = [Policy(np.tile(np.eye(4)[a], (3, 1, 1)), constant_decoder()) for a in range(4)]
    n = 20_000
    rolled = make_simulator(LOCK, seed=3).rollout(policies, n, "oracle")
    assert (rolled.actions == rolled.actions[:, :1]).all()  # one policy a trajectory
    counts = np.bincount(rolled.actions[:, 0], minlength=4)
    assert (np.abs(counts - n / 4) < 5 * math.sqrt(n * 3 / 16)).all()
    apart = rolled.actions[1:, 0] == rolled.actions[:-1, 0]
    assert abs(apart.mean() - 1 / 4) < 5 * math.sqrt(3 / 16 / n)


# --- practice: each field does what it says -------------------------------------------------------
def drawn(asked, kind):
    return [n for k, n, _ in asked if k == kind]


def test_one_iteration_is_one_batch_and_one_fit(rollouts):
    agent = practice(batch=57, test_batch=13).fit(LOCK, 100)
    assert agent.ledger_ == {"oracle": 57, "test": 13, "learn": 100, "evaluate": 0}
    assert len(agent.history_) == 1
    assert rollouts[0][2][0].decoder.n_labels == 1
    assert agent.trajectories_.tolist() == list(range(71, 171))


def test_test_data_are_a_tenth_of_the_batch_by_default_but_at_least_ten(rollouts):
    for batch in (200, 20):
        practice(batch=batch, test_batch=None).fit(LOCK, 1)
    practice(batch=20, test_batch=0).fit(LOCK, 1)
    assert drawn(rollouts, "test") == [20, 10, 0]


@pytest.mark.parametrize("engine", ENGINES)
def test_no_test_data_are_needed(engine):
    agent = practice(test_batch=0).fit(LOCK, 20, engine=engine)
    assert agent.ledger_ == {"oracle": 40, "test": 0, "learn": 20, "evaluate": 0}
    assert math.isnan(agent.history_[0].agreement)


def test_a_decoder_that_is_stable_is_trained_no_more():
    agent = practice(iterations=9, stop_agreement=0.9).fit(LOCK, 50)
    assert agent.ledger_["oracle"] == 2 * 40
    assert agent.ledger_["test"] == 2 * 10
    assert math.isnan(agent.history_[0].agreement)
    assert agent.history_[1].agreement >= 0.9


def test_without_a_measure_of_stability_all_iterations_are_run():
    agent = practice(iterations=4, stop_agreement=None).fit(LOCK, 50)
    assert agent.ledger_["oracle"] == 4 * 40
    assert len(agent.history_) == 4


def test_a_decoder_that_is_never_stable_is_trained_to_the_last_iteration():
    noise = KMeans(9, n_init=1, init="random", max_iter=1)
    agent = practice(noise, iterations=5, stop_agreement=1.0).fit(LOCK, 50)
    assert len(agent.history_) == 5
    assert max(refit.agreement for refit in agent.history_[1:]) < 1


def test_without_test_data_nothing_is_judged_stable():
    agent = practice(iterations=3, stop_agreement=0.0, test_batch=0).fit(LOCK, 50)
    assert len(agent.history_) == 3


def test_batches_grow_while_the_decoder_is_not_stable(rollouts):
    practice(iterations=4, stop_agreement=None, growth=1.5).fit(LOCK, 10)
    assert drawn(rollouts, "oracle") == [40, 60, 90, 135]
    assert drawn(rollouts, "test") == [10] * 4


def test_earlier_data_are_kept(trainings):
    practice(iterations=3, stop_agreement=None).fit(LOCK, 10)
    sizes = [len(D) for D, _ in trainings]
    assert sizes == [40 * 4, 80 * 4, 120 * 4]
    for (before, _), (after, _) in itertools.pairwise(trainings):
        assert np.array_equal(after.x[: len(before)], before.x)
    for D, test in trainings:
        assert not (D.x[:, None] == test.x[None]).all(axis=2).any()  # judged on fresh data


def test_resampling_draws_all_data_anew(rollouts, trainings):
    practice(iterations=3, stop_agreement=None, resample=True).fit(LOCK, 2)
    # B for each policy there is: those of the first call, and of the last
    assert drawn(rollouts, "oracle") == [40, 80, 120, 160, 200, 240]
    assert [len(policies) for kind, _, policies in rollouts if kind == "oracle"] == [*range(1, 7)]
    (one, _), (two, _) = trainings[:2]
    assert not (one.x[:, None] == two.x[None]).all(axis=2).any()


def test_levels_are_pooled_or_not():
    assert len(practice().fit(LOCK, 10).decoder_.fitted) == 1
    assert len(practice(pool_levels=False).fit(LOCK, 10).decoder_.fitted) == 4


def test_labels_are_confirmed_only_where_they_are_matched():
    assert practice(min_count=5).fit(LOCK, 10).history_[0].confirmed
    assert not practice(min_count=5, fix_labels=False).fit(LOCK, 10).history_[0].confirmed
    assert not practice(min_count=10**6).fit(LOCK, 10).history_[0].confirmed


def test_a_decoder_is_retrained_after_every_so_many_episodes(trainings):
    agent = practice(retrain_every=30).fit(LOCK, 100)
    assert [refit.k for refit in agent.history_] == [0, 30, 60, 90]
    assert agent.ledger_ == {"oracle": 40, "test": 10, "learn": 100, "evaluate": 0}
    assert [len(D) // 4 for D, _ in trainings] == [40, 55, 85, 115]
    assert [len(test) // 4 for _, test in trainings] == [10, 15, 15, 15]
    for D, test in trainings[1:]:
        assert not (D.x[:, None] == test.x[None]).all(axis=2).any()


def test_what_a_decoder_is_retrained_on_is_what_the_learner_met(trainings):
    practice(retrain_every=30).fit(LOCK, 61, seed=4)
    stepwise = list(trainings)
    trainings.clear()
    practice(retrain_every=30).fit(LOCK, 61, seed=4, engine="stepwise")
    for (D, test), (E, tests) in zip(stepwise, trainings):
        for one, other in ((D, E), (test, tests)):
            assert sorted(map(tuple, rows(one))) == sorted(map(tuple, rows(other)))


def rows(observations):
    return np.column_stack([observations.levels, observations.x]).tolist()


def test_without_retraining_a_decoder_is_left_alone_once_learning_begins(rollouts):
    practice().fit(LOCK, 500)
    assert [kind for kind, _, _ in rollouts] == ["oracle", "test", "learn"]


@pytest.mark.parametrize("engine", ["compiled", "stepwise"])
def test_memory_keeps_the_newest_episodes_whole(trainings, engine):
    practice(retrain_every=50, memory=160).fit(LOCK, 201, engine=engine)
    assert [len(D) for D, _ in trainings] == [160] * 5
    for D, _ in trainings:  # 40 trajectories of four observations each
        assert np.bincount(D.levels, minlength=4).tolist() == [40] * 4
    for (D, _), (_, met) in zip(trainings[2:], trainings[1:]):
        known = {tuple(row) for row in D.x.tolist()}  # 25 of its 40 are new, the others just older
        assert sum(tuple(row) in known for row in met.x.tolist()) >= 4 * 15


def test_memory_without_limit_keeps_everything(trainings):
    practice(retrain_every=50, memory=None).fit(LOCK, 201)
    assert [len(D) // 4 for D, _ in trainings] == [40, 65, 115, 165, 215]


class Counting(DirichletMixture):
    """Notes which observations it learns from."""

    learnt: ClassVar[list] = []  # (how, number of observations)
    fails: ClassVar[set] = set()  # numbers of observations

    def fit(self, X, y=None):
        self.learnt.append(("fit", len(X)))
        return super().fit(X)

    def partial_fit(self, X, y=None):
        self.learnt.append(("partial_fit", len(X)))
        if len(self.learnt) in self.fails:
            raise ArithmeticError("no")
        return super().partial_fit(X)

    def linear_scores(self):
        return None  # so that it labels by itself


@pytest.fixture
def counting(monkeypatch):
    monkeypatch.setattr(Counting, "learnt", [])
    return Counting


def test_an_incremental_oracle_learns_only_from_what_is_new(counting):
    fields = {"oracle": Counting(), "retrain_every": 30}
    agent = practice(**fields).fit(LOCK, 100, record=True)
    assert counting.learnt == [("fit", 160), ("partial_fit", 60), *[("partial_fit", 120)] * 2]
    before, after = (agent.history_[i].policy.decoder.fitted[0].predictor for i in (0, 3))
    assert (len(before.labels_), len(after.labels_)) == (160, 460)  # earlier ones are copies
    counting.learnt.clear()
    practice(**fields, memory=160).fit(LOCK, 100)  # what it has seen is forgotten first
    assert counting.learnt == [("fit", 160), ("partial_fit", 60), *[("partial_fit", 120)] * 2]
    counting.learnt.clear()
    practice(oracle=Counting(), iterations=2, stop_agreement=None, resample=True).fit(LOCK, 1)
    assert {how for how, _ in counting.learnt} == {"fit"}


def test_an_incremental_oracle_that_failed_begins_again(counting, monkeypatch):
    monkeypatch.setattr(Counting, "fails", {2})
    with pytest.warns(UserWarning, match="an earlier decoder was kept"):
        agent = practice(oracle=Counting(), retrain_every=30).fit(LOCK, 100)
    assert counting.learnt == [
        *[("fit", 160), ("partial_fit", 60), ("fit", 340), ("partial_fit", 120)]
    ]
    assert [len(refit.notes) for refit in agent.history_] == [0, 1, 0, 0]


def test_recording_keeps_every_decoder_with_its_policy():
    agent = practice(iterations=3, stop_agreement=None).fit(LOCK, 50, record=True)
    assert len({id(refit.policy.decoder) for refit in agent.history_}) == 3
    assert agent.history_[-1].policy.decoder is agent.decoder_
    assert all(refit.policy.pi.shape == (3, 3, 4) for refit in agent.history_)
    assert practice().fit(LOCK, 50).history_[0].policy is None


def test_more_labels_than_states_make_the_tables_grow():
    agent = practice(kmeans(8)).fit(LOCK, 10_000)
    assert agent.policy_.pi.shape[1] >= 8
    assert agent.value() > 0.45


def test_no_episodes_still_make_a_policy():
    agent = practice().fit(LOCK, 0)
    assert len(agent.returns_) == 0
    assert agent.ledger_ == {"oracle": 40, "test": 10, "learn": 0, "evaluate": 0}
    first = np.zeros((3, 3, 4))
    first[:, :, 0] = 1.0  # nothing is learnt: act takes the first action
    assert agent.value() == LOCK.value(first)


# --- restarts -------------------------------------------------------------------------------------
def test_the_restart_that_evaluates_best_is_kept():
    blind = KMeans(3, n_init=1, init="random", max_iter=1)  # good now and then
    agent = practice(blind, batch=20, restarts=6, evaluation=4000).fit(BITS, 400, seed=1)
    assert len(agent.evaluations_) == 6
    assert agent.evaluations_.max() - agent.evaluations_.min() > 0.1
    assert agent.value(4000) == pytest.approx(agent.evaluations_.max(), abs=0.04)
    assert agent.ledger_["evaluate"] == 6 * 4000
    assert agent.ledger_["oracle"] == 6 * 20
    assert len(agent.returns_) == 6 * 400


def test_the_value_is_what_the_policy_earns():
    agent = practice(KMeans(3, n_init=1), evaluation=50_000)
    agent.fit(lock_gaussian(horizon=3, switch=0.2, sigma=0.9, seed=1), 2000)
    assert 0.1 < agent.value(20_000) < 0.45  # a decoder that errs
    assert agent.evaluations_[0] == pytest.approx(agent.value(20_000), abs=0.012)


class Coin(Learner):
    """Acts at random and counts."""

    def tables(self, H, S, A, episodes):
        return (np.zeros((H, S, A)),)

    @staticmethod
    def act(tables, k, h, s, key):
        return int(key) >> 11 & 1

    @staticmethod
    def update(tables, h, s, a, r, s_next):
        tables[0][h, s, a] += 1

    def policy(self, tables):
        return np.full(tables[0].shape, 1 / tables[0].shape[2])


@pytest.mark.parametrize("engine", ["interpreted", "stepwise"])
def test_each_restart_makes_choices_of_its_own(engine):
    """Else restarts on a problem without chance are one and the same run."""
    rewards = 2.0 ** -np.arange(6)[:, None, None, None] * np.array([0, 1])[None, None, :, None]
    mdp = BlockMDP([1.0], np.ones((6, 1, 2, 1)), rewards, emission=OneHotGaussian(1, 1, 0.1))
    agent = practice(kmeans(1), Coin(), batch=5, restarts=3, evaluation=5)
    returns = agent.fit(mdp, 20, engine=engine).returns_.reshape(3, 20)
    assert (returns[0] != returns[1]).any()
    assert (returns[0] != returns[2]).any()
    assert (returns[1] != returns[2]).any()


# --- engines --------------------------------------------------------------------------------------
DECODERS = {
    "linear": pca_kmeans(3, n_init=2),
    "quadratic": gmm(3, n_init=1),
    "neither": pca_dbscan_svm(eps=1.0),
}
any_decoder = pytest.mark.parametrize("oracle", DECODERS.values(), ids=DECODERS.keys())
pooled_or_not = pytest.mark.parametrize("pool_levels", [True, False], ids=["pooled", "by level"])


@any_decoder
@pooled_or_not
@pytest.mark.parametrize("mdp", [LOCK, BITS], ids=["Gaussian", "Bernoulli"])
def test_engines_agree_to_the_last_bit_on_a_fixed_decoder(oracle, pool_levels, mdp):
    runs = [
        practice(oracle, pool_levels=pool_levels, evaluation=20).fit(mdp, 30, seed=3, engine=engine)
        for engine in ENGINES
    ]
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])


@pooled_or_not
def test_engines_agree_to_the_last_bit_while_the_decoder_is_trained(pool_levels):
    fields = {"iterations": 3, "stop_agreement": None, "pool_levels": pool_levels, "growth": 1.5}
    learner = QLearning(lr=0.3, exploration=0.5)
    runs = [practice(learner=learner, **fields).fit(LOCK, 30, seed=3, engine=e) for e in ENGINES]
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])


@pytest.mark.parametrize("oracle", [kmeans(2), DBSCAN(eps=0.8)], ids=["KMeans", "DBSCAN"])
def test_engines_agree_to_the_last_bit_on_algorithm_1_as_written(oracle):
    mdp = another_emission_a_level()
    runs = [
        URL.theory(oracle, epsilon=0.9, delta=0.5, horizon=2, n_states=2, batch=3).fit(
            mdp, 2, seed=3, engine=engine
        )
        for engine in ENGINES
    ]
    assert runs[0].ledger_ == URL.constants(0.9, 0.5, 2, 2, batch=3).all_trajectories(2)
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])


@pooled_or_not
def test_interpreted_and_compiled_loops_agree_across_refits(pool_levels):
    compiled, interpreted, _ = (
        practice(retrain_every=7, pool_levels=pool_levels).fit(LOCK, 50, seed=3, engine=engine)
        for engine in ENGINES
    )
    assert same(compiled, interpreted)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the decoder that KMeans:UserWarning")  # some seeds fail
@pooled_or_not
@pytest.mark.parametrize("fix_labels", [True, False], ids=["matched", "not matched"])
def test_tapes_and_the_stepwise_loop_agree_in_law_across_refits(pool_levels, fix_labels):
    """The order of the data that a refit is given may differ, and with it the fit."""
    n, means = 40, {}
    for engine in ("compiled", "stepwise"):
        agent = practice(retrain_every=10, pool_levels=pool_levels, fix_labels=fix_labels)
        means[engine] = [
            agent.fit(
                lock_gaussian(3, 0.2, 0.1, seed=s), 200, seed=s, engine=engine
            ).returns_.mean()
            for s in range(n)
        ]
    difference = np.subtract(*means.values())
    assert abs(difference.mean()) < 4 * difference.std() / math.sqrt(n) + 1e-9
    assert np.mean(means["compiled"]) > 0.1


def test_a_problem_that_comes_as_an_environment_is_the_same_problem():
    from blockmdp.envs import BlockMDPEnv

    assert same(practice().fit(LOCK, 30), practice().fit(BlockMDPEnv(LOCK), 30))
    simulator = make_simulator(BlockMDPEnv(LOCK), 0, engine="stepwise")
    assert isinstance(simulator, GymSimulator)


def digest():
    """All that a few small runs came to."""
    found = hashlib.sha256()
    for agent in (
        practice(batch=10, test_batch=3, evaluation=5).fit(BITS, 6, seed=1),
        practice(gmm(2, n_init=1), batch=10, test_batch=3, pool_levels=False).fit(LOCK, 6, seed=1),
        practice(batch=10, test_batch=3, retrain_every=2).fit(LOCK, 6, seed=2),
        practice(batch=4, test_batch=3, iterations=2, resample=True).fit(LOCK, 2, seed=2),
    ):
        for array in (agent.returns_, agent.policy_.pi, agent.decoder_.order, agent.trajectories_):
            found.update(np.ascontiguousarray(array).tobytes())
        found.update(repr(agent.ledger_).encode())
    return found.hexdigest()


@pytest.mark.integration
def test_with_the_compiler_switched_off_every_number_is_the_same():
    code = "import numba, test_url; print(numba.config.DISABLE_JIT, test_url.digest())"
    printed = python(code, env={"NUMBA_DISABLE_JIT": "1"})
    assert printed.split() == ["1", digest()]


@pytest.mark.parametrize(
    "oracle", [kmeans(), pca_dbscan_svm(eps=1.0)], ids=["folded", "not folded"]
)
@pytest.mark.parametrize("retrain_every", [None, 40])
def test_results_do_not_depend_on_the_size_of_batches_on_tapes(monkeypatch, oracle, retrain_every):
    runs = []
    for rows_at_once, least_rows in [(1, 1), (50, 7), (1 << 18, 1 << 14)]:
        monkeypatch.setattr(Tapes, "rows_at_once", rows_at_once)
        monkeypatch.setattr(Tapes, "least_rows", least_rows)
        runs.append(practice(oracle, retrain_every=retrain_every).fit(LOCK, 150, seed=2))
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])


# --- refits while learning ------------------------------------------------------------------------
def test_retraining_often_costs_no_reward_if_labels_are_matched_and_much_if_not():
    mdp, episodes = lock_gaussian(horizon=3, switch=0.2, sigma=0.1, seed=3), 300
    fixed, matched, unmatched = (
        practice(kmeans(3), batch=60, memory=300, min_count=5, **fields).fit(mdp, episodes, seed=3)
        for fields in ({}, {"retrain_every": 3}, {"retrain_every": 3, "fix_labels": False})
    )
    late = slice(episodes // 2, None)
    assert fixed.returns_[late].mean() > 0.35
    assert matched.returns_[late].mean() > 0.9 * fixed.returns_[late].mean()
    assert unmatched.returns_[late].mean() < 0.6 * fixed.returns_[late].mean()
    assert len(matched.history_) == len(unmatched.history_) == episodes // 3
    relabelled = [sum(refit.relabelled for refit in a.history_) for a in (matched, unmatched)]
    assert relabelled[0] < relabelled[1] / 5


@pytest.mark.slow
def test_retraining_every_episode_costs_the_lock_of_the_paper_nothing():
    mdp = lock_bernoulli(horizon=5, switch=0.2, seed=1)
    fixed, matched, unmatched = (
        practice(pca_kmeans(3), OracleQ(), batch=100, memory=3000, **fields).fit(mdp, 2500, seed=1)
        for fields in ({}, {"retrain_every": 1}, {"retrain_every": 1, "fix_labels": False})
    )
    early = slice(0, 1500)  # in the end it may learn what works under any names
    assert fixed.returns_[-1000:].mean() > 0.45
    assert matched.returns_[-1000:].mean() > 0.45
    assert matched.returns_[early].mean() > 0.95 * fixed.returns_[early].mean()
    assert unmatched.returns_[early].mean() < 0.5 * fixed.returns_[early].mean()
    assert unmatched.returns_.mean() < 0.7 * fixed.returns_.mean()


# --- runs that repeat -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pool_levels": False},
        {"iterations": 3, "stop_agreement": 0.9, "retrain_every": 20},
        {"restarts": 2, "evaluation": 10, "resample": True, "retrain_every": 50},
    ],
    ids=["plain", "by level", "retrained", "restarted"],
)
def test_the_same_seed_gives_the_same_result(fields):
    agent = practice(**fields)
    one = practice(**fields).fit(LOCK, 100, seed=5)
    assert same(one, agent.fit(LOCK, 100, seed=5))
    assert not same(one, practice(**fields).fit(LOCK, 100, seed=6))
    assert same(one, agent.fit(LOCK, 100, seed=5))


def test_fitting_leaves_the_oracle_as_it_was():
    oracle = pca_kmeans(3)
    before = repr(oracle.get_params())
    URL(oracle, batch=20, iterations=1).fit(LOCK, 10)
    assert repr(oracle.get_params()) == before
    assert not hasattr(oracle[-1], "cluster_centers_")


def test_the_defaults_open_the_locks():
    for mdp in (lock_bernoulli(horizon=5, switch=0.2), lock_gaussian(horizon=5, switch=0.2)):
        agent = URL().fit(mdp, 10_000, seed=0)
        assert agent.returns_[-1000:].mean() > 0.45
        assert agent.value() > 0.49
        assert agent.accuracy().min() > 0.98


MEMORY = """
from blockmdp import URL, lock_gaussian
from sklearn.cluster import KMeans

lock = lock_gaussian(horizon=10, switch=0.2, sigma=0.1)
sizes = []
for episodes in (50_000, 200_000):
    URL(KMeans(3, n_init=1), batch=200, iterations=1).fit(lock, episodes)
    status = open("/proc/self/status").read()  # ru_maxrss would begin with the parent's
    sizes.append(int(status.split("VmHWM:")[1].split()[0]))
print(*sizes)
"""


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_does_not_grow_with_the_number_of_episodes():
    """But for a return and a count an episode. The observations alone would take 85 MB more."""
    few, many = map(int, python(MEMORY).split())
    arrays = 150_000 * 8 * 4 / 1024  # returns and trajectories, of a restart and of all
    assert many - few < arrays + 30_000


# --- odd inputs -----------------------------------------------------------------------------------
COUNTS = ("batch", "iterations", "test_batch", "retrain_every", "memory", "restarts", "evaluation")


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", [-1, 1.5, "3", float("nan"), float("inf"), [1]])
def test_numbers_of_things_are_whole_and_not_negative(field, value):
    with pytest.raises(ValueError, match=rf"{field} must be an integer"):
        URL(**{field: value})


@pytest.mark.parametrize("field", ["batch", "iterations", "retrain_every", "memory", "restarts"])
def test_some_numbers_of_things_are_one_at_least(field):
    with pytest.raises(ValueError, match=rf"{field} must be an integer >= 1"):
        URL(**{field: 0})


@pytest.mark.parametrize("field", ["batch", "iterations", "restarts", "evaluation"])
def test_what_must_be_a_number_is_not_nothing(field):
    with pytest.raises(ValueError, match=field):
        URL(**{field: None})


def test_whole_floats_are_as_good_as_integers():
    floats = practice(
        batch=200.0,
        test_batch=None,
        iterations=2.0,
        evaluation=5.0,
        retrain_every=7.0,
        memory=900.0,
    )
    integers = practice(
        batch=200, test_batch=None, iterations=2, evaluation=5, retrain_every=7, memory=900
    )
    assert same(floats.fit(LOCK, 20.0), integers.fit(LOCK, 20))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop_agreement", -0.1),
        ("stop_agreement", 1.1),
        ("stop_agreement", float("nan")),
        ("growth", 0.9),
        ("growth", float("nan")),
        ("growth", float("inf")),
        ("min_count", float("nan")),
        ("min_count", -1),
    ],
)
def test_fields_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=field):
        URL(**{field: value})


def test_fields_at_the_end_of_their_range_are_taken():
    agent = URL(stop_agreement=0, growth=1, min_count=0, restarts=2, evaluation=1)
    assert (agent.stop_agreement, agent.growth, agent.evaluation) == (0, 1, 1)
    assert URL(stop_agreement=1, evaluation=0).stop_agreement == 1


def test_restarts_without_evaluation_are_refused():
    with pytest.raises(ValueError, match="evaluation"):
        URL(restarts=2)


@pytest.mark.parametrize("learner", [3, OracleQ, "OracleQ"])
def test_only_a_learner_is_a_learner(learner):
    with pytest.raises(TypeError, match="learner must be"):
        URL(learner=learner)


def test_the_constructor_stores_what_it_is_given_and_repr_shows_what_is_not_default():
    oracle = kmeans(3)
    agent = URL(oracle, batch=50.0, stop_agreement=None)
    assert agent.oracle is oracle
    assert agent.learner is None
    assert agent.batch == 50.0
    assert agent.test_batch is None
    assert repr(agent) == f"URL(oracle={oracle!r}, batch=50.0, stop_agreement=None)"
    assert repr(URL()) == "URL()"
    assert repr(URL(batch=30)) == "URL()"


@pytest.mark.parametrize("episodes", [-1, 1.5, float("nan"), "3", None])
def test_episodes_are_a_whole_number(episodes):
    with pytest.raises(ValueError, match="episodes"):
        URL().fit(LOCK, episodes)


@pytest.mark.parametrize("seed", [-1, 2**63, 0.5, None])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        URL().fit(LOCK, 10, seed=seed)


def test_a_failed_fit_leaves_the_agent_as_it_was():
    agent = practice().fit(LOCK, 10)
    policy = agent.policy_.pi
    with pytest.raises(ValueError, match="episodes"):
        agent.fit(LOCK, -1)
    assert agent.policy_.pi is policy


@pytest.mark.parametrize("pool_levels", [True, False])
def test_a_single_trajectory_to_learn_from_is_no_crash(pool_levels):
    for oracle in (kmeans(), gmm(3, n_init=1), pca_dbscan_svm()):
        agent = practice(oracle, batch=1, pool_levels=pool_levels).fit(LOCK, 20)
        assert agent.decoder_.notes or pool_levels
        assert agent.ledger_["oracle"] == 1


def test_a_horizon_of_one_and_a_single_state_are_problems_too():
    mdp = BlockMDP(
        [1.0], np.ones((1, 1, 2, 1)), [[[[0.0], [1.0]]]], emission=OneHotGaussian(1, 1, 1)
    )
    for engine in ENGINES:
        agent = practice(kmeans(1), pool_levels=False).fit(mdp, 50, engine=engine)
        assert agent.value() == 1


# --- one decoder, or one for each level -----------------------------------------------------------
@pytest.mark.parametrize(
    ("mdp", "pooled"),
    [
        (bm.lock_bernoulli(6, 0.2), True),
        (bm.lock_gaussian(6, 0.5, 0.2), True),
        (bm.lock_digits(5, seed=1), True),
        (bm.comblock(6), False),
        (bm.noisy_lock(6, "directions"), False),
        (bm.noisy_lock(6, "bits"), False),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_levels_share_a_decoder_unless_they_look_different(mdp, pooled):
    agent = bm.URL(iterations=1).fit(mdp, 0)
    assert agent.decoder_.pooled is pooled


def test_decoders_of_levels_that_look_different_are_retrained_until_they_know_the_states():
    mdp = bm.noisy_lock(6, "round", seed=3)
    agent = bm.URL().fit(mdp, 600, seed=3)
    assert agent.value() > 0.95 * mdp.optimal_value()
    trained_at = [refit.k for refit in agent.history_ if refit.k > 0]
    assert trained_at[0] == 30
    assert all(later == k + max(30, k // 10) for k, later in itertools.pairwise(trained_at))


def test_states_that_random_trajectories_do_not_show_are_found_while_it_learns():
    mdp = bm.deep_sea(10)
    agent = bm.URL().fit(mdp, 600, seed=1)
    assert agent.decoder_.pooled
    assert agent.history_[0].policy is None
    assert agent.value() == pytest.approx(mdp.optimal_value())
    assert agent.decoder_.n_labels == 10


def test_where_a_mixture_would_invent_labels_there_are_few():
    agent = bm.URL().fit(bm.lock_digits(5, seed=1), 600, seed=1)
    assert agent.decoder_.pooled
    assert agent.decoder_.n_labels < 20  # DirichletMixture() alone finds 187 in 360
    assert agent.history_[-1].k < 300  # AutoOracle() is not trained again
    assert agent.value() > 0.4


def test_many_states_are_not_taken_for_inventions():
    agent = bm.URL().fit(bm.random_block_mdp(n_states=60, horizon=5, seed=0), 300, seed=0)
    assert agent.decoder_.pooled
    assert agent.decoder_.n_labels >= 55  # 180 observations of the first batch show most of them
    few = bm.URL(batch=1).fit(bm.deep_sea(10), 600, seed=0)
    assert few.value() == pytest.approx(0.99)


@pytest.mark.filterwarnings("ignore:the decoder")  # it has 12 labels for 30 observations
@pytest.mark.parametrize("memory", [30, 200])
def test_what_an_oracle_has_learnt_survives_the_data(counting, memory):
    agent = URL(Counting(), batch=20, memory=memory, pool_levels=False)
    agent.fit(bm.lock_gaussian(4, sigma=0.05, seed=1), 300, seed=1)
    assert [how for how, _ in counting.learnt].count("fit") == 5  # one for each level
    assert all(f.n_labels > 1 for f in agent.decoder_.fitted[1:])


def fading():
    """Three states that look different; after each step, half of the episodes end."""
    P = np.zeros((4, 2, 4))
    P[:3, :, 3] = 0.5
    P[:3, :, :3] = 0.5 / 3
    P[3, :, 3] = 1.0
    emission = OneHotGaussian(4, 3, 0.1)
    over = np.arange(4) == 3
    return BlockMDP([1 / 3] * 3 + [0], P, 0.0, emission=emission, horizon=3, ends=over)


class Noting(DirichletMixture):
    """Notes the observations it learns from."""

    def fit(self, X, y=None):
        self.learnt = list(X[:, 0])
        return super().fit(X)

    def partial_fit(self, X, y=None):
        self.learnt += list(X[:, 0])
        return super().partial_fit(X)


@pytest.mark.filterwarnings("ignore:the decoder")
def test_each_level_learns_all_it_is_shown_once(monkeypatch):
    shown, oracles, fit = {}, {}, TSR._fit

    def spy(self, D, k):
        fitted = fit(self, D, k)
        for g, own in self.learning.items():
            shown.setdefault(g, set()).update(D.x[D.levels == g, 0].tolist())
            oracles[g] = own.oracle
        return fitted

    monkeypatch.setattr(TSR, "_fit", spy)
    agent = URL(Noting(), batch=20, memory=120, pool_levels=False, retrain_every=5)
    agent.fit(fading(), 200, seed=1)
    for g in range(4):
        assert sorted(oracles[g].learnt) == sorted(shown[g])
    assert len(shown[0]) > 120 / 4


def test_a_level_that_looks_the_same_for_long_keeps_its_labels():
    same = FittedOracle(ConstantPredictor(), 1)
    oracle = DirichletMixture()
    x = np.repeat([[0.0, 1.0], [5.0, 5.0]], 10, axis=0)
    first = fit_growing(oracle, x, np.uint64(0), same)
    assert first.n_labels == 2
    assert learn_more(oracle, x[:5], first).n_labels == 2  # all of them are the same
    assert learn_more(oracle, x[:0], first).predictor is first.predictor


def test_a_policy_relies_on_no_label_of_outliers():
    agent = bm.URL().fit(bm.noisy_lock(4, "heavy tails", seed=100), 2000, seed=100)
    used = [int(np.isfinite(f.predictor.b).sum()) for f in agent.decoder_.fitted]
    assert max(used) < max(f.n_labels for f in agent.decoder_.fitted)
    assert agent.value() > 0.97 * 0.5


def test_a_decoder_is_retrained_on_the_newest_episodes(trainings):
    bm.URL(learner=OracleQ(lr=0.3)).fit(LOCK, 2000)
    tests = [len(test) // 4 for _, test in trainings]
    fits = [k for k in range(1, len(tests)) if tests[k] == 50]
    assert len(fits) >= 5  # half of 100 episodes, as soon as there are more
    assert max(tests) == 50


def test_copies_of_an_environment_are_seldom_interrupted():
    envs = gym.make_vec("blockmdp/LockBernoulli-v0", num_envs=8, horizon=3)
    agent = bm.URL(learner=OracleQ(lr=0.3)).fit(envs, 300, seed=1)
    trained_at = [refit.k for refit in agent.history_ if refit.k > 0]
    assert trained_at == [70, 140, 210, 280]


def test_each_level_gets_a_mixture_that_learns_its_noise():
    mdp = bm.comblock(4, seed=1)  # its noise does not fill all dimensions
    agent = bm.URL().fit(mdp, 800, seed=1)
    assert not agent.decoder_.pooled
    assert agent.accuracy().min() == 1.0
    assert agent.value() > 0.95 * mdp.optimal_value()


@pytest.mark.parametrize("pool_levels", [True, "auto"])
def test_numbers_that_are_missing_or_huge(pool_levels):
    class Scaled(bm.Emission):
        n_states, dim = 3, 3

        def __init__(self, scale):
            self.scale = scale

        def sample(self, level, states, keys):
            return self.scale * (np.eye(3)[states] + 0.1 * rng.normals(keys, 3))

    def fit(scale):
        m = bm.lock_bernoulli(4, 0.2)
        m = bm.BlockMDP(m.initial, m.transitions, m.rewards, emission=Scaled(scale))
        return bm.URL(KMeans(3, n_init=2), pool_levels=pool_levels).fit(m, 300)

    with pytest.raises(ValueError, match="observations must be finite numbers: some are NaN"):
        fit(np.nan)
    assert fit(1e20).accuracy().min() == 1.0


def test_engines_agree_on_whether_levels_look_different():
    fits = [
        bm.URL(iterations=2).fit(bm.noisy_lock(3, "by state", seed=1), 70, seed=2, engine=engine)
        for engine in ("compiled", "interpreted", "stepwise")
    ]
    assert not any(agent.decoder_.pooled for agent in fits)
    assert len({agent.returns_.tobytes() for agent in fits}) == 1


def test_too_few_data_do_not_tell_levels_apart():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent = bm.URL(batch=2, iterations=1).fit(bm.comblock(4), 20)
    assert agent.decoder_.pooled


def test_pool_levels_is_checked():
    with pytest.raises(ValueError, match='pool_levels must be True, False or "auto", got 2'):
        bm.URL(pool_levels=2)


def test_observations_are_ordered_as_by_sorting_all_coordinates():
    random = np.random.default_rng(0)
    for dim in (1, 3, 70):
        x = random.integers(2, size=(200, dim)).astype(np.float32)
        x[:, -4:] = 0  # so that the last few are not enough
        data = Observations(random.integers(3, size=200), x)
        assert np.array_equal(data.order(), np.lexsort((*x.T, data.levels)))
