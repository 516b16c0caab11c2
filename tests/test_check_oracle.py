"""check_oracle: the error of an oracle against the size of its sample, g(n, delta)."""

from __future__ import annotations

import io

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, KMeans

from blockmdp import (
    URL,
    Linear,
    OneHotBernoulli,
    OneHotGaussian,
    PerLevel,
    lock_bernoulli,
    lock_gaussian,
)
from blockmdp.oracles import gmm, pca_kmeans
from blockmdp.testing import OracleCheck, check_oracle

EASY = OneHotGaussian(3, 2, sigma=0.1)


class Split(ClusterMixin, BaseEstimator):
    """Knows which coordinate is largest, and gives two labels to each."""

    def fit(self, X, y=None):
        return self

    def predict(self, X):
        return 2 * X[:, :3].argmax(axis=1) + (X[:, 3] > 0)


class Remembers(ClusterMixin, BaseEstimator):
    """Keeps what it was shown."""

    seen = []  # noqa: RUF012 (shared by clones, which is the point)

    def fit(self, X, y=None):
        self.seen.append(X.copy())
        return self

    def predict(self, X):
        return X[:, :3].argmax(axis=1)


@pytest.fixture
def seen():
    Remembers.seen.clear()
    return Remembers.seen


# --- the error ------------------------------------------------------------------------------------
def test_the_error_of_a_good_oracle_falls_to_nothing_on_an_easy_emission():
    check = check_oracle(pca_kmeans(3, n_init=3), EASY, sizes=(5, 30, 300), seeds=10)
    assert check.sizes.tolist() == [5, 30, 300]
    assert check.errors.shape == (3, 10)
    means = check.errors.mean(axis=1)
    assert means[0] > means[1] > means[2]
    assert means[2] < 1e-3
    assert check.notes == ()


@pytest.mark.parametrize("weights", [None, [0.2, 0.7, 0.1], [0.5, 0.5, 0.0]])
def test_one_label_for_all_errs_on_all_but_the_likeliest_state(weights):
    check = check_oracle(KMeans(1), EASY, sizes=(10, 100), seeds=3, weights=weights)
    mu = np.full(3, 1 / 3) if weights is None else np.array(weights)
    assert np.allclose(check.errors, 1 - mu.max())
    assert check.notes == (
        "n = 10, 3 of 3 seeds: a single label for all of 10 observations",
        "n = 100, 3 of 3 seeds: a single label for all of 100 observations",
    )


def test_two_labels_cannot_be_the_names_of_three_states():
    check = check_oracle(KMeans(2, n_init=5), OneHotGaussian(3, 0, 0.01), sizes=(100,), seeds=5)
    assert np.allclose(check.errors, 1 / 3)


def test_a_state_of_no_weight_is_neither_learnt_from_nor_counted(seen):
    check = check_oracle(Remembers(), OneHotBernoulli(3, 1), weights=[0.9, 0, 0.1], seeds=2)
    assert np.array_equal(check.errors, np.zeros((5, 2)))
    shown = np.concatenate(seen)[:, :3].mean(axis=0)
    assert shown[1] == 0
    assert shown[0] == pytest.approx(0.9, abs=0.03)


def test_the_error_is_that_of_the_best_permutation_and_weighted():
    """States 0 and 1 look alike: one label is right on the likelier of them."""
    merged = Linear(OneHotGaussian(3, 0, 0.01), [[1, 1, 0], [0, 0, 1]])
    check = check_oracle(KMeans(2, n_init=5), merged, sizes=(200,), weights=[0.3, 0.2, 0.5])
    assert np.allclose(check.errors, 0.2)


def test_labels_beyond_the_number_of_states_are_read_as_the_state_they_are_mostly_of():
    check = check_oracle(Split(), EASY, sizes=(50,), seeds=4)
    assert check.errors.max() < 1e-3
    (note,) = check.notes
    assert note.startswith("n = 50, 4 of 4 seeds: more labels than the 3 states")


def test_samples_of_one_seed_contain_each_other_and_differ_between_seeds(seen):
    check_oracle(Remembers(), EASY, sizes=(10, 40), seeds=2)
    small, large, other, _ = seen
    assert np.array_equal(large[:10], small)
    assert not np.isin(other, large).any()


def test_the_error_is_measured_on_observations_that_were_not_learnt_from(seen):
    fresh = []

    class Watches(Remembers):
        def predict(self, X):
            fresh.append(X)
            return super().predict(X)

    check_oracle(Watches(), EASY, sizes=(40,), seeds=1, samples=70)
    # fitting itself may look at the labels of what was learnt from
    assert sum(len(x) for x in fresh if not np.array_equal(x, seen[0])) == 3 * 70
    assert not any(np.isin(x, seen[0]).any() for x in fresh if not np.array_equal(x, seen[0]))


def test_the_level_decides_what_is_seen():
    m = PerLevel([OneHotGaussian(3, 0, 0.05), OneHotGaussian(3, 0, 1.0)])
    easy, hard = (
        check_oracle(KMeans(3, n_init=3), m, level=h, sizes=(300,), seeds=3) for h in (0, 1)
    )
    assert easy.g[0] < 0.001
    assert hard.g[0] > 0.2


def test_a_problem_and_its_emission_are_the_same():
    m = lock_gaussian(2, sigma=0.2)
    one, two = (check_oracle(KMeans(3), p, sizes=(50,), seeds=3) for p in (m, m.emission))
    assert np.array_equal(one.errors, two.errors)


def test_the_same_call_gives_the_same_result():
    runs = [check_oracle(gmm(3, n_init=1), EASY, sizes=(30, 60), seeds=4) for _ in range(2)]
    assert np.array_equal(runs[0].errors, runs[1].errors)
    assert runs[0].notes == runs[1].notes
    more = check_oracle(gmm(3, n_init=1), EASY, sizes=(30, 60), seeds=6)
    assert np.array_equal(more.errors[:, :4], runs[0].errors)


def test_clusterers_that_cannot_predict_are_completed():
    check = check_oracle(DBSCAN(eps=0.4), OneHotGaussian(3, 0, 0.05), sizes=(100,), seeds=3)
    assert check.g[0] < 0.01


# --- g and its inverse ----------------------------------------------------------------------------
def by_hand(*rows, delta=0.25, **more):
    return OracleCheck(10 ** np.arange(1, len(rows) + 1), np.array(rows), delta, **more)


def test_g_is_the_error_that_a_share_of_one_minus_delta_does_not_exceed():
    check = by_hand([0.4, 0.1, 0.3, 0.2], [0.0, 0.0, 0.0, 0.9])
    assert check.g.tolist() == [0.3, 0.0]


def test_g_inverse_is_the_size_from_which_on_g_stays_below():
    check = by_hand([0.3] * 4, [0.05] * 4, [0.2] * 4, [0.05] * 4, [0.01] * 4)
    assert check.g_inverse(0.5) == 10
    assert check.g_inverse(0.25) == 100
    assert check.g_inverse(0.1) == 10_000  # 0.05 at 100 did not last
    assert check.g_inverse(0.05) == 100_000  # strictly below
    assert isinstance(check.g_inverse(0.5), int)


def test_g_inverse_takes_another_delta():
    check = by_hand([0.0, 0.1, 0.2, 0.3], [0.0, 0.0, 0.0, 0.2])
    assert check.g_inverse(0.15) == 100
    assert check.g_inverse(0.15, 0.5) == 10
    with pytest.raises(ValueError, match=r"g\(n, 0.01\) is not below 0.15"):
        check.g_inverse(0.15, 0.01)


def test_g_inverse_tells_how_far_the_oracle_came():
    check = by_hand([0.3] * 4, [0.02] * 4, [0.06] * 4)
    with pytest.raises(ValueError, match=r"0\.06 at 1000; the smallest reached is 0\.02, at 100"):
        check.g_inverse(0.01)
    with pytest.raises(ValueError, match="epsilon must be larger than 0"):
        check.g_inverse(0)
    with pytest.raises(ValueError, match="delta"):
        check.g_inverse(0.1, 1)


def test_theory_takes_the_batch_from_a_check():
    check = check_oracle(pca_kmeans(3), OneHotGaussian(3, 2, 0.02), sizes=(5, 5000), seeds=5)
    agent = URL.theory(pca_kmeans(3), horizon=2, n_states=3, g_inverse=check.g_inverse, episodes=10)
    assert agent.batch == 50  # 5000 / (K J), with J = 10


# --- the drawing ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "check",
    [
        by_hand([0.3, 0.2], [0.1, 0.0], [0.0, 0.0], resolution=0.001),
        by_hand([0.0, 0.0]),
        by_hand([0.5], [0.5], delta=0.1),
        by_hand(*np.full((10, 3), 0.2)),
    ],
)
def test_the_check_is_drawn_on_logarithmic_axes(check):
    figure = check.plot()
    (ax,) = figure.axes
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("observations n", "share labelled wrongly")
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert labels == [f"each of {check.errors.shape[1]} seeds", "median", f"g(n, {check.delta:g})"]
    assert [t.get_text() for t in ax.texts] == ["none seen"] * bool((check.errors == 0).any())
    assert all(np.all(np.asarray(line.get_ydata()) > 0) for line in ax.lines)
    figure.savefig(io.BytesIO(), dpi=50)


# --- what it refuses ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"oracle": KMeans}, TypeError, "an instance"),
        ({"problem": "FrozenLake-v1"}, TypeError, "BlockMDP or an Emission"),
        ({"sizes": ()}, ValueError, "sizes"),
        ({"sizes": (0, 10)}, ValueError, "sizes"),
        ({"sizes": (10, 10)}, ValueError, "growing"),
        ({"seeds": 0}, ValueError, "seeds"),
        ({"samples": 0}, ValueError, "samples"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"level": 3}, ValueError, "from 0 to 2"),
        ({"level": -1}, ValueError, "level"),
        ({"weights": [0.5, 0.5]}, ValueError, "probabilities of 3 states"),
        ({"weights": [0.5, 0.6, -0.1]}, ValueError, "probabilities of 3 states"),
        ({"weights": [0.5, 0.5, 0.5]}, ValueError, "probabilities of 3 states"),
    ],
)
def test_wrong_arguments_are_named(change, error, message):
    arguments = {"oracle": KMeans(3), "problem": lock_bernoulli(2), **change}
    oracle, problem = arguments.pop("oracle"), arguments.pop("problem")
    with pytest.raises(error, match=message):
        check_oracle(oracle, problem, **arguments)


def test_a_check_cannot_be_changed():
    with pytest.raises(AttributeError):
        by_hand([0.1]).delta = 0.5
