"""Oracles that users bring: their labels are checked."""

from __future__ import annotations

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
from blockmdp.oracles import InductiveClusterer, fit_oracle
from blockmdp.oracles.fitting import check_labels
from blockmdp.url.online import OnlineDecoder

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


distinct = st.lists(st.integers(-1, 10**12), min_size=3, max_size=3, unique=True)


@given(distinct, st.sampled_from([Nearest, NearestCluster]), st.sampled_from([int, float]))
@settings(max_examples=40, deadline=None)
def test_labels_with_gaps_are_numbered_from_0_on_and_noise_is_no_cluster(names, oracle, dtype):
    x = rows(*[0, 1, 2] * 10)
    fitted = fit_oracle(oracle(tuple(map(dtype, names))), x, KEY)
    found = sorted(name for name in names if name >= 0)
    labels = fitted.predict(x)[:3]
    for name, label in zip(names, labels):
        if name >= 0 and (fitted.names or oracle is NearestCluster):
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
    f = OnlineDecoder(Online((7, 10**6, -1)), 1, 3, pooled=True, key=KEY)
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
