"""Oracles that users bring: their labels are checked, and their failures do not end a run."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import blockmdp as bm
from blockmdp import rng
from blockmdp.history import Refit
from blockmdp.oracles import InductiveClusterer, fit_oracle
from blockmdp.oracles.fitting import check_labels
from blockmdp.policy import Policy
from blockmdp.simulators import make_simulator
from blockmdp.url.doubts import invented_labels, unsettled, warn_of_doubts
from blockmdp.url.online import OnlineDecoder, _NumberedOracle

KEY = rng.root(0)
LOCK = bm.lock_gaussian(3, sigma=0.05, seed=1)


class Nearest(ClusterMixin, BaseEstimator):
    """Labels x by the nearest of the numbers 0, ..., len(names) - 1, under other names."""

    def __init__(self, names=(0, 1, 2)):
        self.names = names

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        at = np.rint(X[:, 0]).astype(int).clip(0, len(self.names) - 1)
        return np.array(self.names)[at]


class NearestCluster(Nearest):
    """The same as a clusterer that cannot predict."""

    predict = property()  # it has none

    def fit_predict(self, X, y=None):
        return Nearest.predict(self, X)


class Online(Nearest):
    """The same as an incremental oracle."""

    def partial_fit(self, X, y=None):
        self.labels_ = np.concatenate(
            [getattr(self, "labels_", self.predict(X)[:0]), self.predict(X)]
        )
        return self

    def changed_labels(self):
        return np.zeros(0, int)


def rows(*numbers):
    """Observations that lie on these numbers."""
    return np.array(numbers, float)[:, None]


# --- labels ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("oracle", [Nearest, NearestCluster, Online])
@pytest.mark.parametrize(
    "names", [("a", "b", "c"), (0.0, 0.5, 1.0), (np.nan, 1, 2), ([0], [1], [2])]
)
def test_labels_that_are_no_whole_numbers_are_refused_before_anything_is_learnt(oracle, names):
    oracle = oracle(names)
    for make in (bm.URL, bm.OnlineURL):
        with pytest.raises(ValueError, match=rf"{type(oracle).__name__}: .* whole number .*; got"):
            make(oracle).fit(LOCK, episodes=5)


def test_labels_of_the_wrong_number_are_refused():
    class Short(Nearest):
        def predict(self, X):
            return super().predict(X)[1:]

    for oracle in (Short(), make_pipeline(StandardScaler(), Short())):
        with pytest.raises(ValueError, match=r"Short: predict .* 4 observations .* shape \(3,\)"):
            fit_oracle(oracle, rows(0, 1, 2, 2), KEY)


def test_labels_that_an_incremental_oracle_changes_are_read_again():
    class Changing(Online):
        """At the third observation, all that lie on 1 get another label."""

        def partial_fit(self, X, y=None):
            super().partial_fit(X)
            self.changed = np.zeros(0, int)
            if len(self.labels_) == 3:
                self.changed = np.flatnonzero(self.labels_[:2] == self.names[1])
                self.labels_ = np.where(self.labels_ == self.names[1], 99, self.labels_)
            return self

        def changed_labels(self):
            return self.changed

    oracle = _NumberedOracle(Changing((40, 50, 60)))
    for x, labels in ((1, [0]), (0, [0, 1]), (1, [2, 1, 2]), (0, [2, 1, 2, 1])):
        oracle.partial_fit(rows(x))
        assert oracle.labels_.tolist() == labels


def test_noise_is_shared_only_by_oracles_that_know_theirs():
    taken = []

    class Taking(Online):
        def share_noise(self, T):
            raise AssertionError("nobody has measured any noise")

    class Knowing(Taking):
        def noise_scatter(self):
            return np.eye(1), 1000

        def share_noise(self, T):
            taken.append(T)

    m = bm.lock_gaussian(2, sigma=0.05, seed=1)
    bm.OnlineURL(Taking(), pool_levels=False).fit(m, episodes=30)
    bm.OnlineURL(Knowing(), pool_levels=False).fit(m, episodes=30)
    assert taken


@pytest.mark.parametrize(("memory", "levels", "share"), [(None, 3, None), (9, 3, 3), (2, 3, 1)])
def test_oracles_that_are_refitted_share_the_memory(memory, levels, share):
    decoder = OnlineDecoder(KMeans(2), levels - 1, 10, pool_levels=False, key=KEY, memory=memory)
    assert [oracle.memory for oracle in decoder.oracles] == [share] * levels


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5), st.sampled_from([np.int64, object]))
def test_integers_of_any_size_are_labels(labels, dtype):
    given_labels = np.array(labels, dtype)
    if dtype is object and labels:
        with pytest.raises(ValueError, match="dtype object"):
            check_labels(given_labels, len(labels), Nearest())
    elif dtype is np.int64:
        assert check_labels(given_labels, len(labels), Nearest()).tolist() == labels


@pytest.mark.parametrize("wrong", [1e300, np.inf, np.uint64(2**63 + 1), 1j])
def test_numbers_that_are_no_64_bit_integers_are_refused(wrong):
    with pytest.raises(ValueError, match="whole number"):
        check_labels(np.array([wrong]), 1, Nearest())


distinct = st.lists(st.integers(-3, 10**12), min_size=3, max_size=3, unique=True)


@given(distinct, st.sampled_from([Nearest, NearestCluster]), st.sampled_from([int, float]))
@settings(max_examples=40, deadline=None)
def test_labels_with_gaps_are_numbered_from_0_on_and_noise_is_no_cluster(names, oracle, dtype):
    x = rows(*[0, 1, 2] * 10)
    fitted = fit_oracle(oracle(tuple(map(dtype, names))), x, KEY)
    found = sorted(name for name in names if name != -1)
    labels = fitted.predict(x)[:3]
    for name, label in zip(names, labels):
        if name != -1 and (fitted.names or oracle is NearestCluster):
            assert label == found.index(name)
    assert fitted.n_labels <= 4
    if oracle is Nearest:  # a label of its own for noise, the last
        assert len(set(labels.tolist())) == 3
        assert -1 not in names or labels[names.index(-1)] == fitted.n_labels - 1
    else:  # noise gets the label of a cluster
        assert set(labels.tolist()) == set(range(len(found)))


def test_noise_and_labels_that_appear_later_share_the_last_label():
    for names in [(0, 1, -1), (0, 1, 7), (10**6, 2 * 10**6, -1), (10**6, 2 * 10**6, 5)]:
        fitted = fit_oracle(Nearest(names), rows(0, 1, 0, 1), KEY)
        assert fitted.n_labels == 3
        assert fitted.predict(rows(0, 1, 2)).tolist() == [0, 1, 2]


def test_scikit_learns_clusterers_get_no_label_more_than_they_were_asked_for():
    x = rows(*[0, 1, 2] * 10)
    for oracle in (KMeans(3, n_init=2), AgglomerativeClustering(3), DBSCAN(eps=0.1)):
        assert fit_oracle(oracle, x, KEY).n_labels == 3
        assert fit_oracle(oracle, x, KEY, as_scores=False).n_labels == 3


def test_an_inductive_clusterer_numbers_its_labels():
    oracle = InductiveClusterer(NearestCluster((10**6, -1, 7))).fit(rows(0, 0, 1, 2, 2))
    assert oracle.labels_.tolist() == [1, 1, -1, 0, 0]
    assert oracle.classes_.tolist() == [7, 10**6]
    assert oracle.n_labels_ == 2


def test_labels_far_apart_need_no_memory():
    for make in (bm.URL, bm.OnlineURL):
        agent = make(Nearest((0, 10**6))).fit(LOCK, episodes=40)
        assert agent.decoder_.n_labels <= 3
        assert agent.policy_.pi.shape[1] <= 6


def test_names_of_labels_are_saved(tmp_path):
    pytest.importorskip("skops")
    agent = bm.URL(Nearest((10**6, 0, 7))).fit(LOCK, episodes=20)
    agent.save(tmp_path / "policy.npz")
    trusted = [f"{Nearest.__module__}.Nearest"]
    loaded = bm.load(tmp_path / "policy.npz", trusted)
    assert loaded.decoder.fitted[0].names == agent.decoder_.fitted[0].names != ()
    x = LOCK.sample(1, 0, n=20)
    assert np.array_equal(loaded.decode(x, 1), agent.decode(x, 1))


def test_an_incremental_oracle_gives_new_labels_the_next_free_number():
    f = OnlineDecoder(Online((7, 10**6, -1)), 1, 3, pool_levels=True, key=KEY)
    for k, (x, labels) in enumerate([((1, 0), [1, 0]), ((1, 1), [1, 1]), ((2, 0), [2, 0])]):
        if k:
            assert f.decode(np.zeros(1, int), rows(x[0])).tolist() == labels[:1]
        episode = bm.simulators.base.Trajectories(
            rows(*x)[None], np.zeros((1, 1), int), np.zeros((1, 1)), np.ones(1, int)
        )
        f.learn(episode)
        assert f.labels[k].tolist() == labels
    assert f.n_labels == 3
    assert f.decoder().decode(np.zeros(3, int), rows(0, 1, 2)).tolist() == [0, 1, 2]


# --- failures -------------------------------------------------------------------------------------
class Fails(KMeans):
    """K-means that fails in every fit to more than `most` observations."""

    def __init__(self, n_clusters=3, error=ArithmeticError, most=200, n_init=2, random_state=None):
        super().__init__(n_clusters, n_init=n_init, random_state=random_state)
        self.error, self.most = error, most

    def fit(self, X, y=None):
        if len(X) > self.most:
            raise self.error("ill-defined\n  covariance")
        return super().fit(X)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_failed_refit_keeps_the_last_decoder_and_warns_once(pooled):
    oracle = Fails(most=100 if pooled else 25)
    agent = bm.URL(oracle, batch=25, iterations=1, retrain_every=20, pool_levels=pooled)
    with pytest.warns(UserWarning, match=r"Fails.* fits failed.* the first one before episode 20"):
        agent.fit(LOCK, episodes=80, seed=0)
    notes = [refit.notes for refit in agent.history_]
    assert notes[0] == ()
    assert all("ArithmeticError: ill-defined covariance" in note for note in notes[1])
    assert [refit.relabelled for refit in agent.history_] == [0] * 4
    assert len(agent.returns_) == 80


def test_few_observations_do_not_replace_a_decoder_that_was_learnt():
    last = fit_oracle(KMeans(3, n_init=2), rows(0, 1, 2), KEY)
    failing = Fails(error=ValueError, most=3)
    kept = fit_oracle(failing, rows(0, 1, 2, 2), KEY, last=last)
    assert kept.predictor is last.predictor
    assert "ValueError: ill-defined covariance" in kept.notes[0]
    single = fit_oracle(failing, rows(0, 1, 2, 2), KEY)  # nothing was learnt before
    assert fit_oracle(failing, rows(0, 1, 2, 2), KEY, last=single).n_labels == 1


def test_levels_that_fail_keep_their_labels_while_others_learn():
    class OneLevel(KMeans):
        def fit(self, X, y=None):
            if len(X) > 30 and X[0, 0] > 0.5:  # the first state, the only one at level 0
                raise ArithmeticError("no")
            return super().fit(X)

    m = bm.lock_gaussian(2, sigma=0.05)
    agent = bm.URL(OneLevel(3, n_init=2), batch=30, iterations=3, pool_levels=False)
    with pytest.warns(UserWarning, match="failed"):
        agent.fit(m, episodes=10, record=True)
    first, *_, last = (refit.policy.decoder for refit in agent.history_)
    kept = [a.predictor is b.predictor for a, b in zip(first.fitted, last.fitted)]
    assert any(kept)
    assert not all(kept)
    for h in np.flatnonzero(kept):
        assert np.array_equal(first.order[h], last.order[h][: first.n_labels])


def test_a_failed_refit_online_keeps_the_last_decoder_and_warns_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        agent = bm.OnlineURL(Fails(most=100)).fit(LOCK, episodes=80, seed=0)
    (warning,) = [w for w in caught if issubclass(w.category, UserWarning)]
    assert "ArithmeticError: ill-defined covariance" in str(warning.message)
    assert warning.filename == __file__
    failed = [refit for refit in agent.history_ if refit.notes]
    assert f"{len(failed)} fits failed" in str(warning.message)
    assert len(agent.returns_) == 80


@pytest.mark.parametrize("make", [bm.URL, bm.OnlineURL])
def test_if_the_first_fit_fails_an_error_says_what_to_try(make):
    with pytest.raises(ValueError, match=r"Fails\(.* cannot learn from .* Try other parameters"):
        make(Fails(most=0)).fit(LOCK, episodes=5)
    with pytest.raises(ValueError, match=r"Fails\(.* cannot learn from"):  # the first with enough
        make(Fails(error=ValueError, most=0)).fit(LOCK, episodes=100)


@pytest.mark.parametrize("make", [bm.URL, bm.OnlineURL])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_interrupts_and_lack_of_memory_end_the_run(make, error):
    with pytest.raises(error):
        make(Fails(error=error, most=150)).fit(LOCK, episodes=100)


# --- doubts ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("oracle", "sign"),
    [
        (KMeans(3, n_init=2), "agree on .* earned no more"),
        (DBSCAN(), "tells no observations apart"),
        (DBSCAN(eps=1e-6, min_samples=1), "labels for .* observations"),
    ],
)
def test_a_clusterer_that_cannot_decode_a_lock_is_doubted(oracle, sign):
    m = bm.lock_bernoulli(horizon=10, switch=0.2)
    agent = bm.URL(oracle, pool_levels=False, iterations=3)
    with pytest.warns(UserWarning, match=f"decoder that .*{type(oracle).__name__}.*{sign}"):
        agent.fit(m, episodes=500)
    assert agent.value() < 0.05


def refits(*ks):
    return [Refit(k, k, None, (), ((0, i),), 0.5, 0) for i, k in enumerate(ks)]


def test_a_learner_that_was_soon_done_has_earned_more():
    soon = np.concatenate([np.zeros(30), np.ones(1970)])
    assert list(invented_labels(refits(*range(1500, 1600)), soon, [np.ones(100, int)])) == []


def test_a_learner_has_earned_more_if_chance_does_not_explain_it():
    returns = np.tile([0.0, 1.0], 500)
    error = 0.5 * np.sqrt(1 / 100 + 1 / 250)  # of the first tenth and the last quarter
    for gain, doubts in ((2.5, 0), (1.5, 1)):
        more = returns + gain * error * (np.arange(1000) >= 750)
        assert len(list(unsettled(refits(0, 1), more, [np.array([500, 600])]))) == doubts
    short = np.array([0.0] + [1.0] * 11)  # the first of few episodes is a start
    assert list(unsettled(refits(0, 1), short, [np.array([50, 60])])) == []


def test_the_last_agreement_counts_and_no_labels_are_no_doubt():
    agreed = [Refit(0, 0, None, (), (), a, 0) for a in (0.5, 0.5, 0.99)]
    counts = [np.array([50, 60])]
    assert list(unsettled(agreed, np.zeros(400), counts)) == []
    assert len(list(unsettled(agreed[:2], np.zeros(400), counts))) == 1
    assert list(unsettled([], np.zeros(400), [])) == []


def test_two_levels_share_what_they_know_of_the_noise():
    class Sharing(Online):
        shared = 0

        def noise_scatter(self):
            return np.eye(3), 1_000

        def share_noise(self, T):
            type(self).shared += 1

    f = OnlineDecoder(Sharing((0, 1)), 1, 40, pool_levels=False, key=KEY)
    simulator = make_simulator(bm.lock_bernoulli(1), 0)
    for _ in range(20):
        f.learn(simulator.rollout([Policy(np.full((1, 1, 4), 0.25), f)], 1, "learn"))
    assert Sharing.shared == 2


def test_unsettled_decoders_are_doubted_only_if_nothing_was_learnt():
    nothing, much = np.zeros(400), np.repeat([0.0, 1.0], 200)
    counts = [np.array([50, 60, 70])]
    assert len(list(unsettled(refits(0, 1), nothing, counts))) == 1
    assert list(unsettled(refits(0, 1), much, counts)) == []
    assert list(unsettled([], nothing, counts)) == []


@pytest.mark.parametrize(("episodes", "said"), [(99, []), (100, ["one doubt"])])
def test_the_decoder_of_a_short_fit_is_not_judged(episodes, said):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_doubts(KMeans(2), [], np.zeros(episodes), iter(["one doubt"]))
    assert [str(each.message).partition("wrong. ")[2] for each in caught] == said


def test_late_labels_are_doubted_if_they_are_rare_and_nothing_was_learnt():
    nothing, much = np.zeros(400), np.repeat([0.0, 1.0], 200)
    rare, common = [np.array([900, 1, 1, 1])], [np.array([900, 50, 40, 3])]
    a_third = [np.array([900, 50, 1])]
    late, early = refits(0, 300, 350), refits(0, 20, 50)
    (doubt,) = invented_labels(late, nothing, rare)
    assert "4 labels, of which 2 appeared in the last quarter" in doubt
    others = [(late, much, rare), (early, nothing, rare)]
    others += [(late, nothing, counts) for counts in (common, a_third)]
    for each in others:
        assert list(invented_labels(*each)) == []


def test_the_defaults_are_not_doubted():
    for m in (bm.lock_bernoulli(horizon=5), bm.lock_gaussian(horizon=5)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            bm.URL().fit(m, episodes=500)
            bm.OnlineURL().fit(m, episodes=120)
