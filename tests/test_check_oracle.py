"""check_oracle, which measures g(n, delta), and check_incremental_oracle."""

from __future__ import annotations

import io

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import DBSCAN, KMeans

import blockmdp as bm
from blockmdp import (
    URL,
    Linear,
    OneHotBernoulli,
    OneHotGaussian,
    PerLevel,
    lock_bernoulli,
    lock_gaussian,
)
from blockmdp.oracles import DirichletMixture, gmm, pca_kmeans
from blockmdp.testing import OracleCheck, check_incremental_oracle, check_oracle

EASY = OneHotGaussian(3, 2, sigma=0.1)


class TwoLabelsPerState(ClusterMixin, BaseEstimator):
    """Knows which coordinate is largest, and gives two labels to each."""

    def fit(self, X, y=None):
        return self

    def predict(self, X):
        return 2 * X[:, :3].argmax(axis=1) + (X[:, 3] > 0)


class Recorder(ClusterMixin, BaseEstimator):
    """Keeps the data that it is fitted to."""

    seen = []  # noqa: RUF012 (shared by clones on purpose)

    def fit(self, X, y=None):
        self.seen.append(X.copy())
        return self

    def predict(self, X):
        return X[:, :3].argmax(axis=1)


@pytest.fixture
def seen():
    Recorder.seen.clear()
    return Recorder.seen


# --- the error ------------------------------------------------------------------------------------
def test_the_error_of_a_good_oracle_vanishes_as_the_sample_grows():
    check = check_oracle(pca_kmeans(3, n_init=3), EASY, sizes=(5, 30, 300), seeds=10)
    assert check.sizes.tolist() == [5, 30, 300]
    assert check.errors.shape == (3, 10)
    means = check.errors.mean(axis=1)
    assert means[0] > means[1] > means[2]
    assert means[2] < 1e-3
    assert check.notes == ()


def test_a_single_label_is_right_for_the_most_probable_state_only():
    for weights in (None, [0.2, 0.7, 0.1], [0.5, 0.5, 0.0]):
        check = check_oracle(KMeans(1), EASY, sizes=(10, 100), seeds=3, weights=weights)
        mu = np.full(3, 1 / 3) if weights is None else np.array(weights)
        assert np.allclose(check.errors, 1 - mu.max())
        assert check.notes == (
            "n = 10, 3 of 3 seeds: a single label for all of 10 observations",
            "n = 100, 3 of 3 seeds: a single label for all of 100 observations",
        )


def test_two_labels_are_wrong_for_one_of_three_states():
    check = check_oracle(KMeans(2, n_init=5), OneHotGaussian(3, 0, 0.01), sizes=(100,), seeds=5)
    assert np.allclose(check.errors, 1 / 3)


def test_a_state_without_weight_is_neither_learnt_from_nor_counted(seen):
    check = check_oracle(Recorder(), OneHotBernoulli(3, 1), weights=[0.9, 0, 0.1], seeds=2)
    assert np.array_equal(check.errors, np.zeros((5, 2)))
    shown = np.concatenate(seen)[:, :3].mean(axis=0)
    assert shown[1] == 0
    assert shown[0] == pytest.approx(0.9, abs=0.03)


def test_the_error_is_weighted_and_uses_the_best_permutation():
    """States 0 and 1 look alike: one label is right on the likelier of them."""
    merged = Linear(OneHotGaussian(3, 0, 0.01), [[1, 1, 0], [0, 0, 1]])
    check = check_oracle(KMeans(2, n_init=5), merged, sizes=(200,), weights=[0.3, 0.2, 0.5])
    assert np.allclose(check.errors, 0.2)


def test_surplus_labels_count_as_their_most_frequent_state():
    check = check_oracle(TwoLabelsPerState(), EASY, sizes=(50,), seeds=4)
    assert check.errors.max() < 1e-3
    (note,) = check.notes
    assert note.startswith("n = 50, 4 of 4 seeds: more labels than the 3 states")


def test_samples_of_a_seed_contain_each_other_and_those_of_two_seeds_differ(seen):
    check_oracle(Recorder(), EASY, sizes=(10, 40), seeds=2)
    small, large, other, _ = seen
    assert np.array_equal(large[:10], small)
    assert not np.isin(other, large).any()


def test_the_error_is_measured_on_fresh_observations(seen):
    fresh = []

    class PredictRecorder(Recorder):
        def predict(self, X):
            fresh.append(X)
            return super().predict(X)

    check_oracle(PredictRecorder(), EASY, sizes=(40,), seeds=1, samples=70)
    # fitting may predict the labels of its own data
    assert sum(len(x) for x in fresh if not np.array_equal(x, seen[0])) == 3 * 70
    assert not any(np.isin(x, seen[0]).any() for x in fresh if not np.array_equal(x, seen[0]))


def test_observations_are_made_at_the_given_level():
    m = PerLevel([OneHotGaussian(3, 0, 0.05), OneHotGaussian(3, 0, 1.0)])
    easy, hard = (
        check_oracle(KMeans(3, n_init=3), m, level=h, sizes=(300,), seeds=3) for h in (0, 1)
    )
    assert easy.g[0] < 0.001
    assert hard.g[0] > 0.2


def test_a_problem_and_its_emission_give_the_same_errors():
    m = lock_gaussian(2, sigma=0.2)
    one, two = (check_oracle(KMeans(3), p, sizes=(50,), seeds=3) for p in (m, m.emission))
    assert np.array_equal(one.errors, two.errors)


def test_the_same_call_gives_the_same_result():
    runs = [check_oracle(gmm(3, n_init=1), EASY, sizes=(30, 60), seeds=4) for _ in range(2)]
    assert np.array_equal(runs[0].errors, runs[1].errors)
    assert runs[0].notes == runs[1].notes
    more = check_oracle(gmm(3, n_init=1), EASY, sizes=(30, 60), seeds=6)
    assert np.array_equal(more.errors[:, :4], runs[0].errors)


def test_clusterers_without_predict_can_be_checked():
    check = check_oracle(DBSCAN(eps=0.4), OneHotGaussian(3, 0, 0.05), sizes=(100,), seeds=3)
    assert check.g[0] < 0.01


# --- g and its inverse ----------------------------------------------------------------------------
def by_hand(*rows, delta=0.25, **more):
    return OracleCheck(10 ** np.arange(1, len(rows) + 1), np.array(rows), delta, **more)


def test_g_is_a_quantile_of_the_errors():
    check = by_hand([0.4, 0.1, 0.3, 0.2], [0.0, 0.0, 0.0, 0.9])
    assert check.g.tolist() == [0.3, 0.0]


def test_g_inverse_is_the_size_from_which_g_stays_below_epsilon():
    check = by_hand([0.3] * 4, [0.05] * 4, [0.2] * 4, [0.05] * 4, [0.01] * 4)
    assert check.g_inverse(0.5) == 10
    assert check.g_inverse(0.25) == 100
    assert check.g_inverse(0.1) == 10_000  # 0.05 at 100 did not last
    assert check.g_inverse(0.05) == 100_000  # strictly below
    assert isinstance(check.g_inverse(0.5), int)


def test_g_inverse_accepts_another_delta():
    check = by_hand([0.0, 0.1, 0.2, 0.3], [0.0, 0.0, 0.0, 0.2])
    assert check.g_inverse(0.15) == 100
    assert check.g_inverse(0.15, 0.5) == 10
    with pytest.raises(ValueError, match=r"g\(n, 0.01\) is not below 0.15"):
        check.g_inverse(0.15, 0.01)


def test_g_inverse_says_how_close_the_oracle_came():
    check = by_hand([0.3] * 4, [0.02] * 4, [0.06] * 4)
    with pytest.raises(ValueError, match=r"0\.06 at 1000, and its minimum is 0\.02 at 100"):
        check.g_inverse(0.01)
    with pytest.raises(ValueError, match="epsilon must be > 0"):
        check.g_inverse(0)
    with pytest.raises(ValueError, match="delta"):
        check.g_inverse(0.1, 1)


def test_theory_computes_its_batch_from_a_check():
    oracle = pca_kmeans(3, n_init=2)
    check = check_oracle(oracle, OneHotGaussian(3, 2, 0.02), sizes=(5, 5000), seeds=5)
    agent = URL.theory(pca_kmeans(3), horizon=2, n_states=3, g_inverse=check.g_inverse, episodes=10)
    assert agent.batch == 50  # 5000 / (K J), with J = 10


# --- the plot -------------------------------------------------------------------------------------
def test_the_plot_has_logarithmic_axes():
    for check in (
        by_hand([0.3, 0.2], [0.1, 0.0], [0.0, 0.0], resolution=0.001),
        by_hand([0.0, 0.0]),
        by_hand([0.5], [0.5], delta=0.1),
        by_hand(*np.full((10, 3), 0.2)),
    ):
        figure = check.plot()
        (ax,) = figure.axes
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("observations n", "share labelled wrongly")
        labels = [t.get_text() for t in figure.legends[0].get_texts()]
        seeds = check.errors.shape[1]
        assert labels == [f"each of {seeds} seeds", "median", f"g(n, {check.delta:g})"]
        assert [t.get_text() for t in ax.texts] == ["none seen"] * bool((check.errors == 0).any())
        assert all(np.all(np.asarray(line.get_ydata()) > 0) for line in ax.lines)
    figure.savefig(io.BytesIO(), dpi=50)


# --- invalid arguments ----------------------------------------------------------------------------
def test_invalid_arguments_are_named():
    for change, error, message in (
        ({"oracle": KMeans}, TypeError, "an instance"),
        ({"problem": "FrozenLake-v1"}, TypeError, "BlockMDP or an Emission"),
        ({"sizes": ()}, ValueError, "sizes"),
        ({"sizes": (0, 10)}, ValueError, "sizes"),
        ({"sizes": (10, 10)}, ValueError, "ascending"),
        ({"seeds": 0}, ValueError, "seeds"),
        ({"samples": 0}, ValueError, "samples"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"level": 3}, ValueError, "from 0 to 2"),
        ({"level": -1}, ValueError, "level"),
        ({"weights": [0.5, 0.5]}, ValueError, "probabilities of 3 states"),
        ({"weights": [0.5, 0.6, -0.1]}, ValueError, "probabilities of 3 states"),
        ({"weights": [0.5, 0.5, 0.5]}, ValueError, "probabilities of 3 states"),
    ):
        arguments = {"oracle": KMeans(3), "problem": lock_bernoulli(2), **change}
        oracle, problem = arguments.pop("oracle"), arguments.pop("problem")
        with pytest.raises(error, match=message):
            check_oracle(oracle, problem, **arguments)


def test_a_check_cannot_be_changed():
    with pytest.raises(AttributeError):
        by_hand([0.1]).delta = 0.5


# --- incremental oracles --------------------------------------------------------------------------
class Rounding(ClusterMixin, BaseEstimator):
    """A correct incremental oracle. At first it only looks at the first coordinate, then at two."""

    def __init__(self, enough=20):
        self.enough = enough

    def fit(self, X, y=None):
        self.X_, self.labels_ = X[:0], np.zeros(0, int)
        return self.partial_fit(X)

    def partial_fit(self, X, y=None):
        if not hasattr(self, "X_"):
            return self.fit(X)
        before, self.X_ = self.labels_, np.vstack([self.X_, X])
        self.labels_ = self.predict(self.X_)
        self.changed_ = np.flatnonzero(before != self.labels_[: len(before)])
        return self

    n_labels_ = 4

    def predict(self, X):
        second = X[:, 1] > 0.5 if len(self.X_) >= self.enough else 0
        return 2 * second + (X[:, 0] > 0.5)

    def changed_labels(self):
        return self.changed_


class ForgetsChanges(Rounding):
    def changed_labels(self):
        return np.zeros(0, int)


class NamesAllAsChanged(Rounding):
    def changed_labels(self):
        return np.arange(len(self.labels_) - 1)


class KeepsTheLastBatchOnly(Rounding):
    def partial_fit(self, X, y=None):
        super().partial_fit(X)
        self.labels_ = self.predict(X)
        return self


class LearnsWhenPredicting(Rounding):
    def predict(self, X):
        labels = super().predict(X)
        if len(X) == 1 and len(self.labels_) > 1:
            self.labels_ = np.zeros_like(self.labels_)
        return labels


class LooksAtTheBatch(Rounding):
    def predict(self, X):
        return (X[:, 0] >= X[:, 0].mean()).astype(int)


class SharesMemory(Rounding):
    fits = []  # noqa: RUF012 (shared by clones on purpose)

    def partial_fit(self, X, y=None):
        first = not hasattr(self, "X_")
        super().partial_fit(X)
        if first:
            self.fits.append(1)
        return self

    def predict(self, X):
        return (X[:, 0] > 0.5).astype(int) ^ (len(self.fits) > 1)


class TooManyLabels(Rounding):
    n_labels_ = 1


class NegativeLabels(Rounding):
    def predict(self, X):
        return super().predict(X) - 1


class FloatLabels(Rounding):
    def predict(self, X):
        return super().predict(X) / 2


class ChangesItsArgument(Rounding):
    def partial_fit(self, X, y=None):
        super().partial_fit(X)
        X -= 1
        return self


class WrongScores(Rounding):
    def linear_scores(self):
        return np.zeros((4, self.X_.shape[1])), np.zeros(4)


class CannotBeCloned(Rounding):
    def __init__(self, enough=20):
        self.enough = enough + 1


class NothingChanges(ClusterMixin, BaseEstimator):
    """Has partial_fit and predict, as many estimators of scikit-learn have."""

    def fit(self, X, y=None):
        return self

    partial_fit = fit

    def predict(self, X):
        return np.zeros(len(X), int)


OBSERVATIONS = EASY.sample(0, np.arange(40) % 3, bm.rng.children(bm.rng.root(0), 0, 40))


def test_correct_incremental_oracles_pass_the_check():
    check_incremental_oracle(Rounding())
    check_incremental_oracle(Rounding(), OBSERVATIONS)
    check_incremental_oracle(DirichletMixture())
    bits = np.random.default_rng(0).integers(0, 2, (15, 6))
    check_incremental_oracle(DirichletMixture(max_labels=2), bits)


def test_the_check_of_incremental_oracles_names_what_is_wrong():
    for oracle, message in (
        (ForgetsChanges(), r"changed_labels must return .* after \d+ observations, got \[\]"),
        (NamesAllAsChanged(), r"changed_labels must return .*, \[\] after 2 .*, got \[0\]"),
        (KeepsTheLastBatchOnly(), r"labels_ must have one label for each of 2 observations"),
        (LearnsWhenPredicting(), "predict changed labels_"),
        (LooksAtTheBatch(), "predict labels an observation differently alone and among others"),
        (SharesMemory(), "the same data gave different labels_"),
        (TooManyLabels(), r"has the label \d after \d observations, but there are 1 labels"),
        (NegativeLabels(), "must be >= 0, got -1"),
        (FloatLabels(), "must be integers, got float64"),
        (ChangesItsArgument(), "partial_fit changed its argument"),
        (WrongScores(), "linear_scores gives other labels than predict"),
        (CannotBeCloned(), "CannotBeCloned cannot be cloned"),
        (NothingChanges(), "NothingChanges has no method changed_labels"),
    ):
        with pytest.raises(AssertionError, match=message):
            check_incremental_oracle(oracle, OBSERVATIONS)
    with pytest.raises(ValueError, match="n >= 10"):
        check_incremental_oracle(Rounding(), np.zeros((5, 3)))
