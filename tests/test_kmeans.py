"""Compiled k-means: as good as scikit-learn's, and the same without the compiler."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from blockmdp import rng
from blockmdp.jit import interpreted, is_compiled
from blockmdp.oracles import _kmeans

DRAW = np.random.default_rng(0)
DATA = {
    "blobs": (DRAW.normal(size=(300, 12)) * 0.3 + np.eye(12)[DRAW.integers(4, size=300)], 4),
    "noise": (DRAW.normal(size=(400, 5)), 6),
    "bits": (DRAW.integers(2, size=(200, 3)).astype(float), 3),
    "a grid, with ties": (np.indices((6, 6)).reshape(2, -1).T.astype(float), 4),
    "repeated points": (np.repeat(DRAW.normal(size=(10, 3)), 20, axis=0), 4),
    "far from 0": (DRAW.normal(size=(200, 2)) + 1e6 * DRAW.integers(3, size=(200, 1)), 3),
    "one dimension": (DRAW.normal(size=(50, 1)), 3),
    "as many clusters as points": (DRAW.normal(size=(7, 2)), 7),
    "one cluster": (DRAW.normal(size=(30, 4)), 1),
}


def fit(x, K, n_init=10, max_iter=300, tol=1e-4, seed=0):
    return _kmeans.kmeans(x, K, n_init, max_iter, tol, rng.root(seed))


def distances(x, centres):
    return ((x[:, None] - centres) ** 2).sum(axis=2)


@pytest.mark.parametrize("name", DATA)
def test_clusters_are_as_good_as_those_of_scikit_learn(name):
    x, K = DATA[name]
    theirs = [KMeans(K, n_init=10, random_state=seed).fit(x).inertia_ for seed in range(20)]
    ours = [fit(x, K, seed=seed).inertia for seed in range(20)]
    assert np.mean(ours) <= 1.02 * np.mean(theirs) + 1e-9
    assert min(ours) == pytest.approx(min(theirs), rel=0.001, abs=1e-9)


@pytest.mark.parametrize("name", DATA)
def test_labels_centres_and_inertia_belong_together(name):
    x, K = DATA[name]
    found = fit(x, K, tol=0.0)
    near = distances(x, found.centres)
    own = near[np.arange(len(x)), found.labels]
    assert own == pytest.approx(near.min(axis=1), rel=1e-9, abs=1e-9)
    assert found.inertia == pytest.approx(own.sum(), rel=1e-9, abs=1e-9)
    for k in range(K):
        mean = x[found.labels == k].mean(axis=0)
        assert found.centres[k] == pytest.approx(mean, rel=1e-9, abs=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_more_clusters_than_different_points_leave_some_empty():
    x = np.repeat([[0.0, 1.0], [2.0, 3.0]], 5, axis=0)
    found = fit(x, 4)
    assert found.inertia == 0.0
    assert len(set(found.labels[:5])) == len(set(found.labels[5:])) == 1
    with pytest.warns(ConvergenceWarning):
        assert KMeans(4, n_init=10, random_state=0).fit(x).inertia_ == 0.0


def test_empty_clusters_take_the_farthest_points():
    x = np.concatenate([np.zeros((8, 1)), [[5.0], [9.0]]])
    start = np.array([[0.0], [100.0], [200.0]])
    found = _kmeans.lloyd(x, x.T.copy(), start, 300, 0.0)
    assert sorted(found.centres.ravel()) == [0.0, 5.0, 9.0]
    assert found.inertia == 0.0


@pytest.mark.parametrize("name", ["blobs", "noise", "repeated points", "one dimension"])
def test_bounds_of_distances_change_nothing(name):
    x, K = DATA[name]
    start = x[:: len(x) // K][:K].copy()
    C, labels, n_iter = start.copy(), distances(x, start).argmin(axis=1), 0
    while n_iter == 0 or not np.array_equal(labels, distances(x, C).argmin(axis=1)):
        labels = distances(x, C).argmin(axis=1)
        C = np.array([x[labels == k].mean(axis=0) for k in range(K)])
        n_iter += 1
    found = _kmeans.lloyd(x, x.T.copy(), start, 300, 0.0)
    assert found.labels.tolist() == labels.tolist()
    assert found.n_iter == n_iter > 1
    assert found.centres == pytest.approx(C, abs=1e-12)


def test_it_stops_at_the_largest_number_of_iterations_or_at_the_tolerance():
    x, K = DATA["noise"]
    every = fit(x, K, n_init=1, tol=0.0)
    assert fit(x, K, n_init=1, max_iter=2, tol=0.0).n_iter == 2
    assert 1 < fit(x, K, n_init=1, tol=1e-2).n_iter < every.n_iter
    assert fit(x, K, n_init=1, max_iter=2).inertia > every.inertia


def test_the_best_start_is_kept():
    x, K = DATA["noise"]
    inertias = [fit(x, K, n_init=n).inertia for n in range(1, 11)]
    assert inertias == sorted(inertias, reverse=True)
    assert inertias[-1] < inertias[0]


def test_starts_follow_the_law_of_kmeans_plus_plus():
    """The first centre is uniform; of the next, two are drawn by squared distance, and the better
    one is taken."""
    columns = np.array([[0.0, 1.0, 3.0]])
    n = 4000
    pairs = np.array([_kmeans.seeds(columns, 2, rng.key(rng.root(0), i)).ravel() for i in range(n)])
    # after 0 and after 1, a centre at 3 is better; after 3, those at 0 and 1 are equally good
    for first, second, p in ((0, 3, 1 - (1 / 10) ** 2), (1, 3, 1 - (1 / 5) ** 2), (3, 0, 9 / 13)):
        rows = pairs[pairs[:, 0] == first]
        assert len(rows) / n == pytest.approx(1 / 3, abs=0.03)
        assert np.mean(rows[:, 1] == second) == pytest.approx(p, abs=0.04)


def test_clusters_are_the_same_without_the_compiler(monkeypatch):
    x, K = DRAW.normal(size=(25, 3)), 4
    start = np.array([[0.0, 0, 0], [50, 50, 50], [1, 1, 1]])
    compiled = fit(x, K, n_init=3), _kmeans.lloyd(x, x.T.copy(), start.copy(), 300, 0.0)
    for name, function in vars(_kmeans).items():
        if is_compiled(function):
            monkeypatch.setattr(_kmeans, name, interpreted(function))
    plain = fit(x, K, n_init=3), _kmeans.lloyd(x, x.T.copy(), start.copy(), 300, 0.0)
    for one, other in zip(compiled, plain):
        assert one.labels.tolist() == other.labels.tolist()
        assert one.centres.tobytes() == other.centres.tobytes()
        assert (one.inertia, one.n_iter) == (other.inertia, other.n_iter)
