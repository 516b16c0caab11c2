"""Any scikit-learn clusterer or mixture is an oracle, and its scores give the same labels."""

from __future__ import annotations

import itertools
import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import (
    DBSCAN,
    HDBSCAN,
    OPTICS,
    AgglomerativeClustering,
    Birch,
    KMeans,
    MiniBatchKMeans,
    SpectralClustering,
)
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info, threadpool_limits

import blockmdp as bm
from blockmdp.jit import interpreted
from blockmdp.oracles import (
    AutoOracle,
    DirichletMixture,
    IncrementalOracle,
    InductiveClusterer,
    check_is_oracle,
    fit_oracle,
    gmm,
    pca_dbscan_svm,
    pca_kmeans,
)
from blockmdp.oracles._svm import svm_labels
from blockmdp.oracles.fitting import one_thread
from blockmdp.oracles.scores import (
    SCORES,
    LinearScores,
    QuadraticScores,
    linear_labels,
    quadratic_labels,
    to_scores,
)
from blockmdp.testing import check_incremental_oracle

KEY = np.uint64(7)
COVARIANCES = ("full", "tied", "diag", "spherical")

CLUSTERERS = {
    "KMeans": KMeans(3, n_init=5),
    "MiniBatchKMeans": MiniBatchKMeans(3, n_init=5),
    "Birch": Birch(n_clusters=3),
    **{
        f"GaussianMixture {c}": GaussianMixture(3, covariance_type=c, n_init=5) for c in COVARIANCES
    },
    "BayesianGaussianMixture": BayesianGaussianMixture(n_components=3, n_init=3),
    "DBSCAN": DBSCAN(eps=1.0),
    "HDBSCAN": HDBSCAN(copy=True),
    "OPTICS": OPTICS(cluster_method="dbscan", eps=1.0),
    "AgglomerativeClustering": AgglomerativeClustering(3),
    "SpectralClustering": SpectralClustering(3),
}
PIPELINES = {
    f"Pipeline {name}": make_pipeline(StandardScaler(with_std=False), PCA(3), clone(last))
    for name, last in CLUSTERERS.items()
}
READY = {
    "pca_kmeans": pca_kmeans(3),
    "pca_dbscan_svm": pca_dbscan_svm(eps=1.0),
    "gmm": gmm(3),
}
ORACLES = CLUSTERERS | PIPELINES | READY
any_oracle = pytest.mark.parametrize("name", ORACLES)


def clusters(n, seed=0, dtype=np.float64):
    """Observations (n, 5) of three states far from each other, and the states (n,)."""
    g = np.random.default_rng(seed)
    states = np.arange(n) % 3
    x = 6 * np.eye(3, 5)[states] + 0.2 * g.normal(size=(n, 5))
    return (10 * x if dtype is np.int8 else x).astype(dtype), states


def one_to_one(labels, states):
    """Whether each state has its own label, and each label its own state."""
    pairs = set(zip(labels.tolist(), states.tolist()))
    return len(pairs) == len(set(labels.tolist())) == len(set(states.tolist()))


@cache
def fitted_to_clusters(name):
    return fit_oracle(ORACLES[name], clusters(120)[0], KEY)


def state(estimator):
    """Names and values of all attributes of an estimator, and of the estimators inside it."""
    for name, value in vars(estimator).items():
        if isinstance(value, BaseEstimator):
            yield from state(value)
        elif name == "steps":
            for _, step in value:
                yield from state(step)
        else:
            yield f"{name}={value}"


# --- every kind of oracle -------------------------------------------------------------------------
@any_oracle
def test_every_kind_of_oracle_separates_distant_states_and_stays_unfitted_itself(name):
    before = list(state(clone(ORACLES[name])))
    fitted = fitted_to_clusters(name)
    assert list(state(ORACLES[name])) == before
    x, states = clusters(90, seed=1)
    labels = fitted.predict(x)
    assert labels.dtype == np.int32
    assert one_to_one(labels, states)
    assert labels.max() < fitted.n_labels
    assert fitted.notes == ()


def test_labels_of_far_away_observations_are_in_range():
    x = np.random.default_rng(2).normal(scale=100, size=(200, 5))
    for name in ORACLES:
        fitted = fitted_to_clusters(name)
        labels = fitted.predict(x)
        assert labels.min() >= 0, name
        assert labels.max() < fitted.n_labels, name


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_observations_may_have_any_numeric_type(dtype):
    x, states = clusters(120, dtype=dtype)
    for name, oracle in CLUSTERERS.items():
        oracle = clone(oracle)
        if dtype is np.int8 and hasattr(oracle, "eps"):
            oracle.set_params(eps=10.0)
        if isinstance(oracle, SpectralClustering):
            oracle.set_params(affinity="nearest_neighbors")
        assert one_to_one(fit_oracle(oracle, x, KEY).predict(x), states), name


def test_images_are_flattened():
    x, states = clusters(60)
    images = np.concatenate([x, np.zeros((60, 1))], axis=1).reshape(60, 2, 3)
    fitted = fit_oracle(KMeans(3, n_init=5), images, KEY)
    assert one_to_one(fitted.predict(images.reshape(60, 6)), states)


def test_the_classifier_does_not_learn_from_noise():
    x, states = clusters(90)
    outlier = np.full((1, 5), -50.0)
    oracle = InductiveClusterer(DBSCAN(eps=1.0), KNeighborsClassifier(1))
    fitted = fit_oracle(oracle, np.concatenate([outlier, x]), KEY)
    assert fitted.n_labels == 3
    assert fitted.predict(outlier)[0] in range(3)
    assert one_to_one(fitted.predict(x), states)


def test_a_clusterer_can_be_given_any_classifier():
    tree = DecisionTreeClassifier()
    for classifier, expected in ((tree, DecisionTreeClassifier), (None, SVC)):
        oracle = pca_dbscan_svm(eps=1.0, classifier=classifier)
        fitted = fit_oracle(oracle, clusters(120)[0], KEY)
        assert isinstance(fitted.predictor.steps[-1][1].classifier_, expected)
    assert not hasattr(tree, "tree_")  # the user's own stays unfitted


# --- scores ---------------------------------------------------------------------------------------
SCALERS = (
    "passthrough",
    StandardScaler(),
    StandardScaler(with_std=False),
    StandardScaler(with_mean=False),
    StandardScaler(with_mean=False, with_std=False),
    MinMaxScaler((-1, 2)),
    MaxAbsScaler(),
)
PROJECTORS = (None, PCA(2), PCA(3, whiten=True), TruncatedSVD(2))
LAST = {
    "KMeans": lambda k: KMeans(k, n_init=1),
    "MiniBatchKMeans": lambda k: MiniBatchKMeans(k, n_init=1),
    **{c: lambda k, c=c: GaussianMixture(k, covariance_type=c, max_iter=20) for c in COVARIANCES},
}
DTYPES = (np.int8, np.float32, np.float64)


def random_data(g, n, dtype):
    if dtype == np.int8:
        return g.integers(-3, 4, (n, 6)).astype(np.int8)
    return (g.normal(size=(n, 6)) * [1, 2, 0.1, 1, 5, 1] + [0, 3, 0, -2, 10, 0]).astype(dtype)


def quality(estimator, x):
    """The quality (n, labels) by which scikit-learn chooses the label of each row."""
    if hasattr(estimator, "predict_proba"):
        return estimator.predict_proba(x)
    distance = estimator.transform(x).astype(np.float64)
    return np.exp(-((distance - distance.min(axis=1, keepdims=True)) ** 2)) - 1e-2 * distance


def test_scores_label_bits_as_they_label_floats():
    g = np.random.default_rng(5)
    x = g.integers(0, 2, (200, 6)).astype(np.int8)
    for oracle in (KMeans(3, n_init=1), GaussianMixture(3)):
        fitted = fit_oracle(oracle, x, KEY)
        assert isinstance(fitted.predictor, SCORES)
        assert np.array_equal(fitted.predict(x), fitted.predict(x.astype(np.float64)))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_compiled_votes_give_the_labels_of_scikit_learns_svm(k):
    g = np.random.default_rng(k)
    for d, gamma, C in itertools.product((1, 3), ("scale", "auto", 0.3), (0.1, 10.0)):
        y = np.arange(60) % k
        x = g.normal(size=(k, d))[y] + g.normal(size=(60, d))
        classifier = SVC(gamma=gamma, C=C).fit(x, 3 * y - 1)
        rows = 2 * g.normal(size=(500, d))
        assert np.array_equal(svm_labels(classifier, rows), classifier.predict(rows))
    for other in (SVC(kernel="linear"), SVC(break_ties=True), DecisionTreeClassifier()):
        assert svm_labels(other.fit(x, y), rows) is None


@pytest.mark.filterwarnings("ignore")  # such data do not always converge
@pytest.mark.parametrize("last", LAST)
def test_scores_give_scikit_learns_labels_behind_every_scaler_and_projection(last):
    g = np.random.default_rng(0)
    for i, (scaler, projector) in enumerate(itertools.product(SCALERS, PROJECTORS)):
        k, dtype = 2 + i % 4, DTYPES[i % 3]
        mixture = LAST[last](k if i else 1).set_params(random_state=0)
        estimator = make_pipeline(clone(scaler, safe=False), clone(projector, safe=False), mixture)
        with one_thread():
            estimator.fit(random_data(g, 60, dtype))
        scores = to_scores(estimator)
        is_quadratic = last in COVARIANCES and last != "tied"
        assert isinstance(scores, QuadraticScores if is_quadratic else LinearScores), estimator
        x = random_data(g, 50, dtype)
        floats = x.astype(np.float64) if dtype is np.int8 else x  # else their mixtures overflow
        theirs, ours, rows = estimator.predict(floats), scores.predict(x), np.arange(len(x))
        q = quality(estimator, floats)
        is_tie = np.isclose(q[rows, ours], q[rows, theirs], rtol=1e-3, atol=1e-6)
        assert ((ours == theirs) | is_tie).all(), estimator
        assert (ours == theirs).mean() > 0.5, estimator  # ties are the exception


def test_the_label_of_a_row_does_not_depend_on_its_batch():
    for last, dtype in itertools.product(LAST, DTYPES):
        g = np.random.default_rng(3)
        oracle = make_pipeline(StandardScaler(), PCA(3), LAST[last](4))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = fit_oracle(oracle, random_data(g, 80, dtype), KEY)
        x = random_data(g, 100, dtype)
        whole = fitted.predict(x)
        assert len(set(whole.tolist())) == 4
        one_by_one = np.concatenate([fitted.predict(x[i : i + 1]) for i in range(100)])
        assert np.array_equal(whole, one_by_one), (last, dtype)
        assert np.array_equal(whole[::-1], fitted.predict(x[::-1])), (last, dtype)
        assert np.array_equal(whole[5:22], fitted.predict(np.asfortranarray(x)[5:22]))


@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(0, 20),
    d=st.integers(1, 5),
    K=st.integers(1, 4),
    P=st.integers(1, 3),
    dtype=st.sampled_from(DTYPES),
    entropy=st.integers(0, 2**32),
)
def test_compiled_scores_equal_interpreted_ones(n, d, K, P, dtype, entropy):
    g = np.random.default_rng(entropy)
    x = (3 * g.normal(size=(n, d))).astype(dtype)
    which = g.integers(P, size=n)
    W, b = g.normal(size=(P, K, d)), g.normal(size=(P, K))
    b[g.random((P, K)) < 0.2] = -np.inf
    ours = linear_labels(x, which, W, b)
    assert ours.dtype == np.int32
    assert np.array_equal(ours, interpreted(linear_labels)(x, which, W, b))
    assert n == 0 or (b[which, ours] > -np.inf)[(b[which] > -np.inf).any(axis=1)].all()
    W, b, c = g.normal(size=(K, P, d)), g.normal(size=(K, P)), g.normal(size=K)
    ours = quadratic_labels(x, W, b, c)
    assert np.array_equal(ours, interpreted(quadratic_labels)(x, W, b, c))
    y = np.einsum("kpd,nd->nkp", W, x.astype(np.float64)) + b
    score = c - 0.5 * (y**2).sum(axis=2)
    assert np.allclose(score[np.arange(n), ours], score.max(axis=1, initial=-np.inf))


def test_estimators_without_scores_are_used_as_they_are():
    x, _ = clusters(90)
    for oracle in (
        Birch(n_clusters=3),
        BayesianGaussianMixture(n_components=3),
        make_pipeline(MinMaxScaler(clip=True), KMeans(3, n_init=5)),
        make_pipeline(make_pipeline(StandardScaler(), PCA(3)), KMeans(3, n_init=5)),
    ):
        fitted = fit_oracle(oracle, x, KEY)
        assert isinstance(fitted.predictor, BaseEstimator)
        assert np.array_equal(fitted.predict(x), fitted.predictor.predict(x))


def test_mixtures_decode_bits_as_numbers():
    """Mixtures of scikit-learn 1.9 compute in the type of their argument: int8 overflows."""
    x = np.random.default_rng(0).integers(0, 2, (200, 8)).astype(np.int8)
    for oracle in (
        gmm(3),
        BayesianGaussianMixture(n_components=3),
        make_pipeline(MinMaxScaler(), gmm(3)),
    ):
        fitted = fit_oracle(oracle, x, KEY)
        assert np.array_equal(fitted.predict(x), fitted.predict(x.astype(np.float64)))
        assert fitted.notes == ()


# --- a user's own estimator -----------------------------------------------------------------------
class Halves(ClusterMixin, BaseEstimator):
    """The least that scikit-learn calls an estimator."""

    def fit(self, X, y=None):
        self.middle_ = X[:, 0].mean()
        return self

    def predict(self, X):
        return (X[:, 0] > self.middle_).astype(int)


class LinearHalves(Halves):
    def linear_scores(self):
        return np.array([[0.0] * 5, [1.0, 0.0, 0.0, 0.0, 0.0]]), np.array([0.0, -self.middle_])


def test_an_estimator_needs_only_fit_and_predict():
    x, states = clusters(90)
    for oracle in (Halves(), make_pipeline(StandardScaler(), Halves())):
        fitted = fit_oracle(oracle, x, KEY)
        assert fitted.n_labels == 3  # one more for labels that it may give later
        assert one_to_one(fitted.predict(x), (states == 0).astype(int))


def test_an_estimator_with_linear_scores_runs_compiled():
    x, _ = clusters(90)
    plain = fit_oracle(Halves(), x, KEY).predict(x)
    for oracle in (LinearHalves(), make_pipeline(StandardScaler(with_std=False), LinearHalves())):
        fitted = fit_oracle(oracle, x, KEY)
        assert isinstance(fitted.predictor, LinearScores)
        assert np.array_equal(fitted.predict(x), plain)
    kept = fit_oracle(LinearHalves(), x, KEY, as_scores=False)
    assert isinstance(kept.predictor, LinearHalves)


def test_linear_scores_may_be_none_but_must_have_the_right_shapes():
    x, _ = clusters(90)
    estimator = LinearHalves().fit(x)
    estimator.linear_scores = lambda: None
    assert to_scores(estimator) is estimator
    estimator.linear_scores = lambda: (np.zeros((2, 5)), np.zeros(3))
    with pytest.raises(ValueError, match=r"LinearHalves.linear_scores must return W \(K, d\)"):
        to_scores(estimator)


def test_the_packages_oracles_have_linear_scores_behind_projections_too():
    x, states = clusters(90)
    for oracle in (AutoOracle(), DirichletMixture()):
        fitted = fit_oracle(make_pipeline(PCA(3), oracle), x, KEY)
        assert isinstance(fitted.predictor, LinearScores)
        assert one_to_one(fitted.predict(x), states)


def test_an_estimator_can_say_how_many_labels_it_has():
    class Five(Halves):
        def fit(self, X, y=None):
            super().fit(X)
            self.labels_, self.n_labels_ = self.predict(X), 5
            return self

    assert fit_oracle(Five(), clusters(90)[0], KEY).n_labels == 5
    assert fit_oracle(make_pipeline(PCA(2), Five()), clusters(90)[0], KEY).n_labels == 5


# --- a user's own incremental oracle --------------------------------------------------------------
class Chains(ClusterMixin, BaseEstimator):
    """Observations are alike if a chain of neighbours connects them, so labels can merge."""

    def __init__(self, radius=1.0):
        self.radius = radius

    def fit(self, X, y=None):
        self.X_, self.labels_ = X[:0], np.zeros(0, int)
        return self.partial_fit(X)

    def partial_fit(self, X, y=None):
        if not hasattr(self, "X_"):
            return self.fit(X)
        before, self.X_ = self.labels_, np.vstack([self.X_, X])
        chain = fcluster(linkage(self.X_), self.radius, "distance") if len(self.X_) > 1 else [1]
        _, first, chain = np.unique(chain, return_index=True, return_inverse=True)
        self.labels_ = first.argsort().argsort()[chain]  # in the order in which they appeared
        self.changed_ = np.flatnonzero(before != self.labels_[: len(before)])
        return self

    def predict(self, X):
        distances = [np.linalg.norm(self.X_ - x, axis=1) for x in X]
        return self.labels_[np.argmin(distances, axis=1)]

    def changed_labels(self):
        return self.changed_


@pytest.mark.parametrize("pooled", [True, False])
def test_an_incremental_oracle_of_your_own_works_in_online_url(pooled):
    oracle = Chains(radius=1.0)
    assert isinstance(oracle, IncrementalOracle)
    check_incremental_oracle(oracle)
    agent = bm.OnlineURL(oracle, pool_levels=pooled).fit(bm.comblock(3, n_actions=3), 60)
    assert agent.value() == 1.0
    assert agent.accuracy().min() == 1.0
    assert sum(entry.relabelled for entry in agent.history_) > 0
    learnt = agent.decoder_.fitted[0].predictor
    assert isinstance(learnt, Chains)
    assert len(learnt.labels_) == (60 * 4 if pooled else 60)
    assert not hasattr(oracle, "X_")  # it worked on clones


def test_an_incremental_oracle_with_linear_scores_gives_a_compiled_decoder():
    class Linear(DirichletMixture):
        """A class that the package does not know."""

    agent = bm.OnlineURL(Linear(), bm.UCBVI()).fit(bm.lock_gaussian(3, sigma=0.1), 60)
    assert isinstance(agent.decoder_.fitted[0].predictor, LinearScores)


# --- randomness and threads -----------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore")  # random starts do not always converge
@pytest.mark.parametrize(
    "oracle",
    [
        KMeans(6, n_init=1, init="random"),
        GaussianMixture(6, init_params="random", max_iter=30),
        make_pipeline(PCA(3, svd_solver="randomized"), KMeans(6, n_init=1)),
        SpectralClustering(6),
    ],
    ids=["KMeans", "GaussianMixture", "randomized PCA", "SpectralClustering"],
)
def test_the_key_determines_the_labels(oracle):
    g = np.random.default_rng(4)
    x, fresh = g.normal(size=(150, 5)), g.normal(size=(200, 5))
    labels = [fit_oracle(oracle, x, np.uint64(key)).predict(fresh) for key in (1, 2, 3)]
    for key, first in zip((1, 2, 3), labels):
        assert np.array_equal(first, fit_oracle(oracle, x, np.uint64(key)).predict(fresh))
    assert len({tuple(one.tolist()) for one in labels}) > 1


def random_states(estimator):
    return {
        name: value
        for name, value in estimator.get_params(deep=True).items()
        if name.split("__")[-1] == "random_state"
    }


def test_every_random_state_is_set_at_any_depth():
    class NotKMeans(KMeans):
        """Has no scores, so that the fitted estimator can be inspected."""

    oracle = make_pipeline(
        StandardScaler(),
        make_pipeline(PCA(4, svd_solver="randomized"), PCA(3)),
        make_pipeline(TruncatedSVD(2), NotKMeans(3, n_init=2)),
    )
    inside = fit_oracle(oracle, clusters(90)[0], KEY).predictor
    states = random_states(inside)
    assert len(states) == 4
    assert all(isinstance(s, int) for s in states.values())
    assert len(set(states.values())) == 4
    assert set(random_states(oracle).values()) == {None}


def test_an_inductive_clusterer_and_its_classifier_are_seeded():
    oracle = InductiveClusterer(SpectralClustering(3), DecisionTreeClassifier())
    inside = fit_oracle(make_pipeline(PCA(3), oracle), clusters(90)[0], KEY).predictor
    assert len(random_states(inside)) == 3
    assert all(isinstance(s, int) for s in random_states(inside).values())
    bare = fit_oracle(SpectralClustering(3), clusters(90)[0], KEY).predictor
    assert isinstance(random_states(bare)["clusterer__random_state"], int)


def test_the_key_overrides_a_random_state():
    x = np.random.default_rng(4).normal(size=(150, 5))
    one, other = (
        fit_oracle(KMeans(6, n_init=1, random_state=s), x, KEY).predict(x) for s in (0, 1)
    )
    assert np.array_equal(one, other)


def test_fitting_uses_one_thread_and_restores_the_others():
    seen = []

    class ThreadCounter(ClusterMixin, BaseEstimator):
        def fit(self, X, y=None):
            seen.append({pool["num_threads"] for pool in threadpool_info()})
            return self

        def predict(self, X):
            return np.zeros(len(X), int)

    with threadpool_limits(limits=2):
        before = [pool["num_threads"] for pool in threadpool_info()]
        assert 2 in before
        fit_oracle(ThreadCounter(), clusters(9)[0], KEY)
        assert seen == [{1}]
        assert [pool["num_threads"] for pool in threadpool_info()] == before


# --- unusual data ---------------------------------------------------------------------------------
@any_oracle
def test_few_observations_give_labels_in_range(name):
    before = list(state(clone(ORACLES[name])))
    for n in (2, 3, 4):
        fitted = fit_oracle(ORACLES[name], clusters(n)[0], KEY)
        labels = fitted.predict(clusters(30)[0])
        assert labels.min() >= 0
        assert labels.max() < fitted.n_labels
        assert n >= 3 or fitted.notes
        assert all(len(note) > 10 for note in fitted.notes)
    assert list(state(ORACLES[name])) == before  # also if fewer clusters were fitted


def test_constant_data_give_a_single_label_and_a_note():
    for oracle in READY.values():
        for n in (1, 20, 400):
            fitted = fit_oracle(oracle, np.ones((n, 5)), KEY)
            assert set(fitted.predict(clusters(30)[0]).tolist()) == {0}
            assert fitted.notes == (f"a single label: all of {n} observations are the same",)


def test_no_data_give_a_single_label_and_a_note():
    for oracle in READY.values():
        fitted = fit_oracle(oracle, np.zeros((0, 5)), KEY)
        assert fitted.n_labels == 1
        assert set(fitted.predict(clusters(30)[0]).tolist()) == {0}
        assert fitted.notes == ("no observations to learn from",)


def test_a_nested_pipeline_may_have_fewer_points_than_clusters():
    oracle = make_pipeline(StandardScaler(), make_pipeline(PCA(2), KMeans(3, n_init=2)))
    fitted = fit_oracle(oracle, clusters(2)[0], KEY)
    assert fitted.predict(clusters(30)[0]).max() < fitted.n_labels
    assert fitted.notes


def test_there_are_at_most_as_many_labels_as_different_points():
    for n in (2, 5):
        x = np.repeat(clusters(n)[0], 4, axis=0)
        for oracle in (KMeans(6, n_init=2), make_pipeline(PCA(2), KMeans(6, n_init=2)), gmm(6)):
            fitted = fit_oracle(oracle, x, KEY)
            assert fitted.n_labels == n
            assert f"{n} different points for 6 clusters: fitted {n}" in fitted.notes


@pytest.mark.parametrize("oracle", [DBSCAN(eps=1.0), pca_dbscan_svm(eps=0.5, n_components=2)])
def test_a_single_cluster_or_only_noise_is_noted(oracle):
    g = np.random.default_rng(0)
    x = g.normal(scale=0.1, size=(300, 2))
    fitted = fit_oracle(oracle, x, KEY)
    assert fitted.n_labels == 1
    assert set(fitted.predict(x + 10).tolist()) == {0}
    assert fitted.notes == ("a single label for all of 300 observations",)
    tight = {"inductiveclusterer__clusterer__eps": 1e-6} if isinstance(oracle, Pipeline) else {}
    x = g.uniform(-1e4, 1e4, size=(40, 2))
    fitted = fit_oracle(clone(oracle).set_params(**tight), x, KEY)
    assert fitted.n_labels == 1
    assert set(fitted.predict(x).tolist()) == {0}
    assert fitted.notes == ("a single label for all of 40 observations",)


def test_a_mixture_that_does_not_converge_is_noted_once():
    x = np.random.default_rng(0).normal(size=(200, 4))
    fitted = fit_oracle(GaussianMixture(4, max_iter=1), x, KEY)
    assert len(fitted.notes) == 1
    assert "did not converge" in fitted.notes[0]
    assert "\n" not in fitted.notes[0]
    assert fitted.predict(x).max() < fitted.n_labels


def test_components_are_limited_to_points_and_dimensions_with_a_note():
    fitted = fit_oracle(make_pipeline(PCA(4), KMeans(2, n_init=2)), clusters(3)[0], KEY)
    assert "3 points for 4 components: fitted 3" in fitted.notes
    fitted = fit_oracle(make_pipeline(PCA(9), KMeans(3, n_init=2)), clusters(30)[0], KEY)
    assert "5 dimensions for 9 components: fitted 5" in fitted.notes


def test_invalid_parameters_are_an_error_for_any_number_of_points():
    for n, oracle in itertools.product(
        (20, 200), (KMeans(3, init="nonsense"), KMeans(0), gmm(3, "round"))
    ):
        with pytest.raises(ValueError, match=r"nonsense|n_clusters|round|n_components"):
            fit_oracle(oracle, clusters(n)[0], KEY)


def test_observations_must_be_finite():
    for n in (20, 200):
        x = clusters(n)[0]
        x[3, 2] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            fit_oracle(KMeans(3, n_init=2), x, KEY)


# --- what is an oracle ----------------------------------------------------------------------------
def test_every_unsupervised_estimator_is_an_oracle():
    for oracle in ORACLES.values():
        check_is_oracle(oracle)
        assert bm.URL(oracle).oracle is oracle


def test_other_objects_are_refused_as_oracles():
    for oracle in (
        KMeans,  # a class
        None,
        "kmeans",
        3,
        PCA(3),
        LinearRegression(),
        LogisticRegression(),
        make_pipeline(StandardScaler(), PCA(3)),
        make_pipeline(StandardScaler(), LinearRegression()),
    ):
        with pytest.raises(TypeError, match="oracle must"):
            check_is_oracle(oracle)
        if oracle is not None:  # URL's default
            with pytest.raises(TypeError, match="oracle must"):
                bm.URL(oracle)


def test_the_papers_three_oracles_have_the_given_parameters():
    steps = pca_kmeans(4, 2, 7)
    assert [type(s) for _, s in steps.steps] == [StandardScaler, PCA, KMeans]
    assert steps["pca"].n_components == 2
    assert steps["kmeans"].get_params()["n_clusters"] == 4
    assert steps["kmeans"].n_init == 7
    steps = pca_dbscan_svm(eps=0.3)
    assert [type(s) for _, s in steps.steps] == [StandardScaler, PCA, InductiveClusterer]
    assert isinstance(steps["inductiveclusterer"].classifier, SVC)
    assert steps["inductiveclusterer"].clusterer.eps == 0.3
    assert gmm(5, "diag").n_components == 5
    assert gmm(5, "diag").covariance_type == "diag"
