"""Any scikit-learn clusterer or mixture is an oracle, and its folded form is the same oracle."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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

from blockmdp import URL
from blockmdp.jit import interpreted
from blockmdp.oracles import (
    InductiveClusterer,
    check_is_oracle,
    fit_oracle,
    gmm,
    pca_dbscan_svm,
    pca_kmeans,
)
from blockmdp.oracles.scores import (
    LinearScores,
    QuadraticScores,
    linear_labels,
    quadratic_labels,
)

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
any_oracle = pytest.mark.parametrize("oracle", ORACLES.values(), ids=ORACLES.keys())
any_clusterer = pytest.mark.parametrize("oracle", CLUSTERERS.values(), ids=CLUSTERERS.keys())


def clusters(n, seed=0, dtype=np.float64):
    """Observations (n, 5) of three states far from each other, and the states (n,)."""
    g = np.random.default_rng(seed)
    states = np.arange(n) % 3
    x = 6 * np.eye(3, 5)[states] + 0.2 * g.normal(size=(n, 5))
    return (10 * x if dtype is np.int8 else x).astype(dtype), states


def one_to_one(labels, states):
    """Whether each state has a label of its own, and each label a state."""
    pairs = set(zip(labels.tolist(), states.tolist()))
    return len(pairs) == len(set(labels.tolist())) == len(set(states.tolist()))


# --- every kind fits and predicts -----------------------------------------------------------------
@any_oracle
def test_every_kind_of_oracle_tells_far_states_apart_on_data_it_has_not_seen(oracle):
    fitted = fit_oracle(oracle, clusters(120)[0], KEY)
    x, states = clusters(90, seed=1)
    labels = fitted.predict(x)
    assert labels.dtype == np.int32
    assert one_to_one(labels, states)
    assert labels.max() < fitted.n_labels
    assert fitted.notes == ()


@any_oracle
def test_labels_of_observations_from_nowhere_are_in_range(oracle):
    fitted = fit_oracle(oracle, clusters(120)[0], KEY)
    x = np.random.default_rng(2).normal(scale=100, size=(200, 5))
    labels = fitted.predict(x)
    assert labels.min() >= 0
    assert labels.max() < fitted.n_labels


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
@any_clusterer
def test_any_type_of_number_will_do(oracle, dtype):
    x, states = clusters(120, dtype=dtype)
    oracle = clone(oracle)
    if dtype is np.int8 and hasattr(oracle, "eps"):
        oracle.set_params(eps=10.0)
    if isinstance(oracle, SpectralClustering):
        oracle.set_params(affinity="nearest_neighbors")
    assert one_to_one(fit_oracle(oracle, x, KEY).predict(x), states)


def test_images_are_learnt_from_flat():
    x, states = clusters(60)
    images = np.concatenate([x, np.zeros((60, 1))], axis=1).reshape(60, 2, 3)
    fitted = fit_oracle(KMeans(3, n_init=5), images, KEY)
    assert one_to_one(fitted.predict(images.reshape(60, 6)), states)


def test_noise_is_not_shown_to_the_classifier():
    x, states = clusters(90)
    outlier = np.full((1, 5), -50.0)
    oracle = InductiveClusterer(DBSCAN(eps=1.0), KNeighborsClassifier(1))
    fitted = fit_oracle(oracle, np.concatenate([outlier, x]), KEY)
    assert fitted.n_labels == 3
    assert fitted.predict(outlier)[0] in range(3)
    assert one_to_one(fitted.predict(x), states)


def test_a_classifier_of_ones_own_completes_a_clusterer():
    tree = DecisionTreeClassifier()
    fitted = fit_oracle(pca_dbscan_svm(eps=1.0, classifier=tree), clusters(120)[0], KEY)
    assert isinstance(fitted.predictor.steps[-1][1].classifier_, DecisionTreeClassifier)
    assert isinstance(
        fit_oracle(pca_dbscan_svm(eps=0.5), clusters(120)[0], KEY)
        .predictor.steps[-1][1]
        .classifier_,
        SVC,
    )
    assert not hasattr(tree, "tree_")


# --- folded ---------------------------------------------------------------------------------------
SCALERS = {
    "no scaler": "passthrough",
    "standard": StandardScaler(),
    "centred": StandardScaler(with_std=False),
    "scaled": StandardScaler(with_mean=False),
    "nothing done": StandardScaler(with_mean=False, with_std=False),
    "min and max": MinMaxScaler((-1, 2)),
    "largest": MaxAbsScaler(),
}
PROJECTORS = {
    "no projector": None,
    "PCA": PCA(2),
    "whitened": PCA(3, whiten=True),
    "SVD": TruncatedSVD(2),
}
LAST = {
    "KMeans": lambda k: KMeans(k, n_init=1),
    "MiniBatchKMeans": lambda k: MiniBatchKMeans(k, n_init=1),
    **{c: lambda k, c=c: GaussianMixture(k, covariance_type=c) for c in COVARIANCES},
}


def random_data(g, n, dtype):
    if dtype == np.int8:
        return g.integers(-3, 4, (n, 6)).astype(np.int8)
    return (g.normal(size=(n, 6)) * [1, 2, 0.1, 1, 5, 1] + [0, 3, 0, -2, 10, 0]).astype(dtype)


def how_good(estimator, x):
    """The quality (n, labels) by which scikit-learn chooses each row's label."""
    if hasattr(estimator, "predict_proba"):
        return estimator.predict_proba(x)
    distance = estimator.transform(x).astype(np.float64)
    return np.exp(-((distance - distance.min(axis=1, keepdims=True)) ** 2)) - 1e-2 * distance


@settings(deadline=None, max_examples=60)
@given(
    scaler=st.sampled_from(sorted(SCALERS)),
    projector=st.sampled_from(sorted(PROJECTORS)),
    last=st.sampled_from(sorted(LAST)),
    k=st.integers(1, 5),
    dtype=st.sampled_from([np.int8, np.float32, np.float64]),
    entropy=st.integers(0, 2**32),
)
def test_folded_predictors_are_scikit_learns(scaler, projector, last, k, dtype, entropy):
    g = np.random.default_rng(entropy)
    estimator = make_pipeline(
        clone(SCALERS[scaler]) if scaler != "no scaler" else "passthrough",
        clone(PROJECTORS[projector]) if PROJECTORS[projector] is not None else None,
        LAST[last](k),
    ).set_params(**{f"{last_name(last)}__random_state": 0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(random_data(g, 60, dtype))
        x = random_data(g, 50, dtype)
        folded = to_scores(estimator)
        quadratic = last in COVARIANCES and last != "tied"
        assert isinstance(folded, QuadraticScores if quadratic else LinearScores)
        numbers = x.astype(np.float64) if dtype is np.int8 else x  # their mixtures overflow else
        theirs = estimator.predict(numbers)
        quality = how_good(estimator, numbers)
    ours = folded.predict(x)
    rows = np.arange(len(x))
    tied = np.isclose(quality[rows, ours], quality[rows, theirs], rtol=1e-3, atol=1e-6)
    assert ((ours == theirs) | tied).all()
    assert k == 1 or (ours == theirs).mean() > 0.5  # ties are the exception


def last_name(last):
    return "gaussianmixture" if last in COVARIANCES else last.lower()


@pytest.mark.parametrize("last", sorted(LAST))
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
def test_a_rows_label_does_not_depend_on_its_batch(last, dtype):
    g = np.random.default_rng(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folded = fit_oracle(
            make_pipeline(StandardScaler(), PCA(3), LAST[last](4)), random_data(g, 80, dtype), KEY
        )
    x = random_data(g, 300, dtype)
    whole = folded.predict(x)
    assert len(set(whole.tolist())) == 4
    assert np.array_equal(whole, np.concatenate([folded.predict(x[i : i + 1]) for i in range(300)]))
    assert np.array_equal(whole[::-1], folded.predict(x[::-1]))
    assert np.array_equal(whole[5:22], folded.predict(np.asfortranarray(x)[5:22]))


@settings(deadline=None, max_examples=50)
@given(
    n=st.integers(0, 20),
    d=st.integers(1, 5),
    K=st.integers(1, 4),
    P=st.integers(1, 3),
    dtype=st.sampled_from([np.int8, np.float32, np.float64]),
    entropy=st.integers(0, 2**32),
)
def test_compiled_scores_are_the_interpreted_ones(n, d, K, P, dtype, entropy):
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


@pytest.mark.parametrize(
    "oracle",
    [
        Birch(n_clusters=3),
        BayesianGaussianMixture(n_components=3),
        make_pipeline(MinMaxScaler(clip=True), KMeans(3, n_init=5)),
        make_pipeline(make_pipeline(StandardScaler(), PCA(3)), KMeans(3, n_init=5)),
    ],
    ids=lambda o: type(o).__name__,
)
def test_what_is_no_matrix_is_left_as_it_is(oracle):
    x, _ = clusters(90)
    fitted = fit_oracle(oracle, x, KEY)
    assert isinstance(fitted.predictor, BaseEstimator)
    assert np.array_equal(fitted.predict(x), fitted.predictor.predict(x))


class Halves(ClusterMixin, BaseEstimator):
    """The least that scikit-learn calls an estimator."""

    def fit(self, X, y=None):
        self.middle_ = X[:, 0].mean()
        return self

    def predict(self, X):
        return (X[:, 0] > self.middle_).astype(int)


def test_an_estimator_of_ones_own_needs_no_more_than_fit_and_predict():
    x, states = clusters(90)
    for oracle in (Halves(), make_pipeline(StandardScaler(), Halves())):
        fitted = fit_oracle(oracle, x, KEY)
        assert fitted.n_labels == 2
        assert one_to_one(fitted.predict(x), (states == 0).astype(int))


@pytest.mark.parametrize(
    "oracle",
    [gmm(3), BayesianGaussianMixture(n_components=3), make_pipeline(MinMaxScaler(), gmm(3))],
    ids=["folded", "not folded", "pipeline"],
)
def test_bits_are_decoded_as_the_numbers_they_are(oracle):
    """Mixtures of scikit-learn 1.9 reckon in the type of what they predict: int8 overflows."""
    x = np.random.default_rng(0).integers(0, 2, (200, 8)).astype(np.int8)
    fitted = fit_oracle(oracle, x, KEY)
    assert np.array_equal(fitted.predict(x), fitted.predict(x.astype(np.float64)))
    assert fitted.notes == ()


# --- randomness and threads -----------------------------------------------------------------------
RANDOM = {
    "KMeans": KMeans(6, n_init=1, init="random"),
    "gmm": GaussianMixture(6, init_params="random", max_iter=300),
    "randomized PCA": make_pipeline(PCA(3, svd_solver="randomized"), KMeans(6, n_init=1)),
    "SpectralClustering": SpectralClustering(6),
}


@pytest.mark.parametrize("oracle", RANDOM.values(), ids=RANDOM.keys())
def test_the_same_key_gives_the_same_labels_and_another_need_not(oracle):
    g = np.random.default_rng(4)
    x, fresh = g.normal(size=(150, 5)), g.normal(size=(200, 5))
    labels = [fit_oracle(oracle, x, np.uint64(key)).predict(fresh) for key in (1, 2, 3, 4, 5)]
    for key, first in zip((1, 2, 3, 4, 5), labels):
        assert np.array_equal(first, fit_oracle(oracle, x, np.uint64(key)).predict(fresh))
    assert len({tuple(one.tolist()) for one in labels}) > 1


def random_states(estimator):
    return {
        name: value
        for name, value in estimator.get_params(deep=True).items()
        if name.split("__")[-1] == "random_state"
    }


def test_every_random_state_is_set_however_deep():
    class Watched(KMeans):
        """No KMeans to the fold, so that the fitted estimator can be looked into."""

    oracle = make_pipeline(
        StandardScaler(),
        make_pipeline(PCA(4, svd_solver="randomized"), PCA(3)),
        make_pipeline(TruncatedSVD(2), Watched(3, n_init=2)),
    )
    inside = fit_oracle(oracle, clusters(90)[0], KEY).predictor
    states = random_states(inside)
    assert len(states) == 4
    assert all(isinstance(s, int) for s in states.values())
    assert len(set(states.values())) == 4
    assert set(random_states(oracle).values()) == {None}


def test_a_completed_clusterer_and_its_classifier_are_seeded():
    completed = InductiveClusterer(SpectralClustering(3), DecisionTreeClassifier())
    inside = fit_oracle(make_pipeline(PCA(3), completed), clusters(90)[0], KEY).predictor
    assert len(random_states(inside)) == 3
    assert all(isinstance(s, int) for s in random_states(inside).values())
    bare = fit_oracle(SpectralClustering(3), clusters(90)[0], KEY).predictor
    assert isinstance(random_states(bare)["clusterer__random_state"], int)


def test_a_random_state_of_ones_own_gives_way_to_the_key():
    g = np.random.default_rng(4)
    x = g.normal(size=(150, 5))
    one, other = (
        fit_oracle(KMeans(6, n_init=1, random_state=s), x, KEY).predict(x) for s in (0, 1)
    )
    assert np.array_equal(one, other)


@any_oracle
def test_the_users_own_estimator_stays_untouched(oracle):
    mine = clone(oracle)
    before = (repr(mine), sorted(map(str, deep_state(mine))))
    fit_oracle(mine, clusters(2)[0], KEY)  # two points for three clusters
    fit_oracle(mine, clusters(120)[0], KEY)
    assert (repr(mine), sorted(map(str, deep_state(mine)))) == before


def deep_state(estimator):
    """The names and values of all attributes of an estimator and of those inside it."""
    for name, value in vars(estimator).items():
        if isinstance(value, BaseEstimator):
            yield from deep_state(value)
        elif name == "steps":
            for _, step in value:
                yield from deep_state(step)
        else:
            yield name, value


class ThreadWatcher(ClusterMixin, BaseEstimator):
    def fit(self, X, y=None):
        watched.append({pool["num_threads"] for pool in threadpool_info()})
        return self

    def predict(self, X):
        return np.zeros(len(X), int)


watched: list[set[int]] = []


def test_an_oracle_is_fitted_on_one_thread_and_threads_are_given_back():
    with threadpool_limits(limits=2):
        before = [pool["num_threads"] for pool in threadpool_info()]
        assert 2 in before
        watched.clear()
        fit_oracle(ThreadWatcher(), clusters(9)[0], KEY)
        assert watched == [{1}]
        assert [pool["num_threads"] for pool in threadpool_info()] == before


# --- odd data -------------------------------------------------------------------------------------
@any_oracle
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_too_few_points_are_no_crash(oracle, n):
    x = clusters(n)[0]
    fitted = fit_oracle(oracle, x, KEY)
    labels = fitted.predict(clusters(30)[0])
    assert labels.min() >= 0
    assert labels.max() < fitted.n_labels
    if n < 3:
        assert fitted.notes
        assert all(len(note) > 10 for note in fitted.notes)


@pytest.mark.parametrize("whiten", [False, True])
def test_one_point_behind_a_projection_is_no_crash(whiten):
    oracle = make_pipeline(StandardScaler(), PCA(3, whiten=whiten), KMeans(3, n_init=2))
    fitted = fit_oracle(oracle, clusters(1)[0], KEY)
    assert set(fitted.predict(clusters(30)[0]).tolist()) == {0}
    assert any("single label" in note for note in fitted.notes)


def test_a_pipeline_within_a_pipeline_may_have_fewer_points_than_clusters():
    oracle = make_pipeline(StandardScaler(), make_pipeline(PCA(2), KMeans(3, n_init=2)))
    fitted = fit_oracle(oracle, clusters(2)[0], KEY)
    assert fitted.predict(clusters(30)[0]).max() < fitted.n_labels
    assert fitted.notes


@any_oracle
@pytest.mark.parametrize("n", [20, 400])
def test_constant_data_have_one_label_and_a_note(oracle, n):
    x = np.ones((n, 5))
    fitted = fit_oracle(oracle, x, KEY)
    assert len(set(fitted.predict(x).tolist())) == 1
    assert any("single label" in note for note in fitted.notes)


@any_oracle
def test_no_data_have_one_label_and_a_note(oracle):
    fitted = fit_oracle(oracle, np.zeros((0, 5)), KEY)
    assert fitted.n_labels == 1
    assert set(fitted.predict(clusters(30)[0]).tolist()) == {0}
    assert fitted.notes == ("no observations to learn from",)


@pytest.mark.parametrize("n", [2, 5])
def test_fewer_different_points_than_clusters_give_as_many_labels(n):
    x = np.repeat(clusters(n)[0], 4, axis=0)
    for oracle in (KMeans(6, n_init=2), make_pipeline(PCA(2), KMeans(6, n_init=2)), gmm(6)):
        fitted = fit_oracle(oracle, x, KEY)
        assert fitted.n_labels == n
        assert f"{n} different points for 6 clusters: fitted {n}" in fitted.notes


DENSE = {"DBSCAN": DBSCAN(eps=1.0), "pca_dbscan_svm": pca_dbscan_svm(eps=0.5)}


@pytest.mark.parametrize("oracle", DENSE.values(), ids=DENSE.keys())
def test_one_class_is_no_crash_and_is_noted(oracle):
    x = np.random.default_rng(0).normal(scale=0.1, size=(300, 2))
    fitted = fit_oracle(oracle.set_params(**pca_components(oracle, 2)), x, KEY)
    assert fitted.n_labels == 1
    assert set(fitted.predict(x + 10).tolist()) == {0}
    assert fitted.notes == ("a single label for all of 300 observations",)


@pytest.mark.parametrize("oracle", DENSE.values(), ids=DENSE.keys())
def test_noise_alone_is_no_crash_and_is_noted(oracle):
    x = np.random.default_rng(0).uniform(-1e4, 1e4, size=(40, 2))
    fitted = fit_oracle(
        clone(oracle).set_params(**pca_components(oracle, 2), **tight(oracle)), x, KEY
    )
    assert fitted.n_labels == 1
    assert set(fitted.predict(x).tolist()) == {0}
    assert fitted.notes == ("a single label for all of 40 observations",)


def pca_components(oracle, n):
    return {"pca__n_components": n} if isinstance(oracle, Pipeline) else {}


def tight(oracle):
    return {"completed__clusterer__eps": 1e-6} if isinstance(oracle, Pipeline) else {}


def test_a_mixture_that_does_not_converge_says_so_once():
    x = np.random.default_rng(0).normal(size=(200, 4))
    fitted = fit_oracle(GaussianMixture(4, max_iter=1), x, KEY)
    assert len(fitted.notes) == 1
    assert "did not converge" in fitted.notes[0]
    assert "\n" not in fitted.notes[0]
    assert fitted.predict(x).max() < fitted.n_labels


def test_more_components_than_points_are_cut_with_a_note():
    fitted = fit_oracle(make_pipeline(PCA(4), KMeans(2, n_init=2)), clusters(3)[0], KEY)
    assert "3 points for 4 components: fitted 3" in fitted.notes


def test_more_components_than_dimensions_are_cut_with_a_note():
    fitted = fit_oracle(make_pipeline(PCA(9), KMeans(3, n_init=2)), clusters(30)[0], KEY)
    assert "5 dimensions for 9 components: fitted 5" in fitted.notes


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize(
    "oracle",
    [KMeans(3, init="nonsense"), KMeans(0), gmm(3, "round")],
    ids=["init", "no clusters", "covariance"],
)
def test_an_oracle_that_can_never_be_fitted_is_an_error_however_few_the_points(oracle, n):
    with pytest.raises(ValueError, match=r"nonsense|n_clusters|round|n_components"):
        fit_oracle(oracle, clusters(n)[0], KEY)


@pytest.mark.parametrize("n", [20, 200])
def test_observations_that_are_no_numbers_are_an_error_however_few(n):
    x = clusters(n)[0]
    x[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        fit_oracle(KMeans(3, n_init=2), x, KEY)


# --- what is an oracle ----------------------------------------------------------------------------
@any_oracle
def test_every_kind_of_oracle_is_one(oracle):
    check_is_oracle(oracle)
    assert URL(oracle).oracle is oracle


NO_ORACLES = {
    "class": KMeans,
    "nothing": None,
    "name": "kmeans",
    "number": 3,
    "transformer": PCA(3),
    "regressor": LinearRegression(),
    "classifier": LogisticRegression(),
    "pipeline of a transformer": make_pipeline(StandardScaler(), PCA(3)),
    "pipeline of a regressor": make_pipeline(StandardScaler(), LinearRegression()),
}


@pytest.mark.parametrize("oracle", NO_ORACLES.values(), ids=NO_ORACLES.keys())
def test_what_is_no_unsupervised_estimator_is_refused(oracle):
    with pytest.raises(TypeError, match="oracle"):
        check_is_oracle(oracle)
    if oracle is not None:  # which is URL's word for its default
        with pytest.raises(TypeError, match="oracle"):
            URL(oracle)


def test_the_papers_three_oracles_are_what_their_names_say():
    assert [type(s) for _, s in pca_kmeans(4, 2, 7).steps] == [StandardScaler, PCA, KMeans]
    assert pca_kmeans(4, 2, 7)["pca"].n_components == 2
    assert pca_kmeans(4, 2, 7)["kmeans"].get_params()["n_clusters"] == 4
    assert pca_kmeans(4, 2, 7)["kmeans"].n_init == 7
    assert [type(s) for _, s in pca_dbscan_svm().steps] == [StandardScaler, PCA, InductiveClusterer]
    assert isinstance(pca_dbscan_svm()["completed"].classifier, SVC)
    assert pca_dbscan_svm(eps=0.3)["completed"].clusterer.eps == 0.3
    assert gmm(5, "diag").n_components == 5
    assert gmm(5, "diag").covariance_type == "diag"
