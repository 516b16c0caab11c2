"""Mixtures with compiled expectation maximisation, and the oracle that chooses one by the data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import bernoulli, norm
from sklearn.cluster import DBSCAN
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from blockmdp import URL, lock_bernoulli, lock_gaussian, oracles
from blockmdp.decoders import constant_decoder
from blockmdp.jit import interpreted, is_compiled
from blockmdp.oracles import (
    AutoOracle,
    BernoulliMixture,
    DirichletMixture,
    InductiveClusterer,
    SphericalMixture,
    _em,
    _gaussian,
    fit_oracle,
    scores,
)
from blockmdp.oracles.auto import _mergers
from blockmdp.oracles.mixtures import initial_responsibilities
from blockmdp.oracles.scores import LinearScores, QuadraticScores, to_scores
from blockmdp.policy import Policy
from blockmdp.simulators import make_simulator


def bits(n, states=(0, 1, 2), horizon=10, seed=0):
    m = lock_bernoulli(horizon, seed=seed)
    return np.concatenate([m.sample(1, s, n, seed) for s in states]), np.repeat(states, n)


def reals(n, states=(0, 1, 2), sigma=0.2, horizon=10, seed=0):
    m = lock_gaussian(horizon, sigma=sigma, seed=seed)
    return np.concatenate([m.sample(1, s, n, seed) for s in states]), np.repeat(states, n)


def purity(labels, states):
    """The share of rows whose label stands for their state: the most frequent one of its rows."""
    right = [np.bincount(states[labels == label]).max() for label in np.unique(labels)]
    return sum(right) / len(states)


# --- as scikit-learn estimators -------------------------------------------------------------------
@pytest.mark.parametrize(
    "estimator",
    [
        pytest.param(AutoOracle(), marks=pytest.mark.integration),  # it takes seconds
        oracles.AutoencoderSimHash(),
        BernoulliMixture(2),
        oracles.CategoricalMixture(2),
        DirichletMixture(),
        oracles.IndependenceMixture(),
        InductiveClusterer(DBSCAN()),
        oracles.PoissonMixture(2),
        SphericalMixture(2),
        oracles.SubspaceClustering(2),
        *(oracles.GaussianMixture(2, covariance_type=c) for c in ("full", "tied", "spherical")),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_scikit_learns_own_checks_pass(estimator):
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert failed == {}
    assert sum(r["status"] == "passed" for r in results) >= 40


# --- the mixtures ---------------------------------------------------------------------------------
def test_the_likelihood_of_a_bernoulli_mixture_follows_from_its_parameters():
    X, _ = bits(30)
    mixture = BernoulliMixture(3, random_state=0).fit(X)
    joint = np.stack(
        [
            np.log(w) + bernoulli.logpmf(X, p).sum(axis=1)
            for w, p in zip(mixture.weights_, mixture.means_)
        ],
        axis=1,
    )
    likelihood = logsumexp(joint, axis=1)
    assert mixture.score_samples(X) == pytest.approx(likelihood)
    assert mixture.score(X) == pytest.approx(likelihood.mean())
    assert mixture.log_likelihood_ == pytest.approx(likelihood.sum(), rel=1e-4)
    assert mixture.predict_proba(X) == pytest.approx(np.exp(joint - likelihood[:, None]))
    assert np.array_equal(mixture.predict(X), joint.argmax(axis=1))


def test_the_likelihood_of_a_spherical_mixture_follows_from_its_parameters():
    X, _ = reals(30)
    mixture = SphericalMixture(3, random_state=0).fit(X)
    scale = np.sqrt(mixture.variance_)
    joint = np.stack(
        [
            np.log(w) + norm.logpdf(X, mu, scale).sum(axis=1)
            for w, mu in zip(mixture.weights_, mixture.means_)
        ],
        axis=1,
    )
    assert mixture.score_samples(X) == pytest.approx(logsumexp(joint, axis=1))
    assert mixture.log_likelihood_ == pytest.approx(logsumexp(joint, axis=1).sum(), rel=1e-4)
    assert np.array_equal(mixture.predict(X), joint.argmax(axis=1))


def test_a_single_component_has_the_mean_of_the_data():
    X, _ = bits(40)
    mixture = BernoulliMixture(1, prior=0.5).fit(X)
    assert mixture.means_[0] == pytest.approx((X.sum(axis=0) + 0.5) / (len(X) + 1))
    X, _ = reals(40)
    mixture = SphericalMixture(1, reg_covar=0.0).fit(X)
    assert mixture.means_[0] == pytest.approx(X.mean(axis=0), abs=1e-6)
    assert mixture.variance_ == pytest.approx(X.var(axis=0).mean(), rel=1e-5)


@pytest.mark.parametrize(
    ("mixture", "data"), [(BernoulliMixture(3), bits), (SphericalMixture(3), reals)]
)
def test_no_iteration_lowers_the_likelihood(mixture, data):
    X = np.ascontiguousarray(data(40)[0], np.float64)
    start = initial_responsibilities(X, 3, np.random.RandomState(0))
    path = [mixture._em(X, start.copy(), n, -np.inf).log_likelihood for n in range(1, 12)]
    assert (np.diff(path) > -1e-9 * abs(path[0])).all()


@pytest.mark.parametrize(
    ("mixture", "data"), [(BernoulliMixture(3), bits), (SphericalMixture(3), reals)]
)
def test_a_mixture_separates_the_states_of_a_lock(mixture, data):
    X, states = data(100)
    labels = mixture.set_params(random_state=1).fit_predict(X)
    assert purity(labels, states) > 0.98


def test_a_spherical_mixture_is_as_likely_as_scikit_learns():
    X, _ = reals(300)
    ours = SphericalMixture(3, random_state=0).fit(X)
    theirs = GaussianMixture(3, covariance_type="spherical", n_init=5, random_state=0).fit(X)
    assert ours.score(X) == pytest.approx(theirs.score(X), abs=0.02)
    assert np.sort(ours.weights_) == pytest.approx(np.sort(theirs.weights_), abs=0.01)


def test_a_fit_that_does_not_converge_warns_and_too_few_rows_are_an_error():
    X, _ = bits(40)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 iterations"):
        BernoulliMixture(3, max_iter=2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="n_samples must be at least n_components=3"):
        BernoulliMixture(3).fit(X[:2])


def test_coordinates_above_the_threshold_are_ones():
    X, _ = bits(40)
    plain = BernoulliMixture(3, random_state=0).fit(X)
    scaled = BernoulliMixture(3, binarize=5.0, random_state=0).fit(10.0 * X)
    assert np.array_equal(plain.means_, scaled.means_)
    assert np.array_equal(plain.predict(X), scaled.predict(10.0 * X))


# --- choosing by the data -------------------------------------------------------------------------
def random_walk_data(m, n, seed):
    """Observations of n uniformly random trajectories."""
    pi = np.full((m.horizon, 1, m.n_actions), 1 / m.n_actions)
    simulator = make_simulator(m, seed)
    return simulator.rollout([Policy(pi, constant_decoder())], n, "oracle").observations.x


@pytest.mark.parametrize(
    ("lock", "mixture"),
    [
        (lock_bernoulli, BernoulliMixture),
        (lambda H, seed: lock_gaussian(H, sigma=0.1, seed=seed), SphericalMixture),
        (lambda H, seed: lock_gaussian(H, sigma=0.2, seed=seed), SphericalMixture),
    ],
    ids=["bits", "sigma 0.1", "sigma 0.2"],
)
def test_thirty_random_trajectories_are_enough_to_find_three_states(lock, mixture):
    for horizon, seeds in ((5, 5), (10, 5), (40, 1)):
        for seed in range(seeds):
            m = lock(horizon, seed=seed)
            oracle = AutoOracle().fit(random_walk_data(m, 30, seed))
            assert isinstance(oracle.estimator_, mixture)
            assert oracle.n_labels_ == 3
            fresh = np.concatenate([m.sample(2, s, 200) for s in range(3)])
            assert purity(oracle.predict(fresh), np.repeat(range(3), 200)) > 0.98


def test_one_state_is_not_split():
    for X in (bits(200, states=(2,))[0], reals(200, states=(0,))[0]):
        assert AutoOracle().fit(X).n_labels_ == 1


def test_many_states_are_found_by_repeated_splits():
    rng = np.random.default_rng(0)
    means = 4 * rng.normal(size=(30, 8))
    states = np.repeat(range(30), 20)
    X = means[states] + 0.3 * rng.normal(size=(len(states), 8))
    oracle = AutoOracle().fit(X)
    assert oracle.n_labels_ == 30
    assert purity(oracle.predict(X), states) > 0.98
    assert (np.diff([score for _, score in oracle.path_]) > 0).all()
    assert AutoOracle(max_labels=10).fit(X).n_labels_ == 10


def test_elongated_noise_gets_a_full_covariance():
    rng = np.random.default_rng(0)
    states = np.repeat(range(2), 300)
    X = rng.normal(size=(600, 4)) * [5.0, 0.1, 0.1, 0.1]
    X[:, 1] += states
    oracle = AutoOracle().fit(X)
    assert getattr(oracle.estimator_, "covariance_type", None) == "tied"


def test_a_few_observations_get_a_single_label():
    for n in (2, 3, 5, 8):
        assert AutoOracle().fit(reals(n, states=(0,))[0]).n_labels_ == 1
        assert AutoOracle().fit(bits(n, states=(0,))[0]).n_labels_ == 1


def test_the_two_most_similar_components_are_merged_first():
    X = np.array([[0.0], [0.1], [5.0], [9.0]])
    r = next(_mergers(SphericalMixture(), X, np.eye(4), 1.0))
    assert r.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_numbers_are_split_between_two_groups_and_bits_by_the_one_others_depend_on():
    X = np.array([[0.0, 1.0], [0.1, -1.0], [9.0, 1.0], [9.1, -1.0]])
    side = SphericalMixture().best_split(X, 1.0)[1].tolist()
    assert side in ([True, True, False, False], [False, False, True, True])
    X = np.random.default_rng(0).integers(0, 2, (100, 6)).astype(float)
    X[:, 4] = 1 - X[:, 2]
    assert BernoulliMixture().best_split(X, 1.0)[1].tolist() == (X[:, 2] > 0.5).tolist()


def test_the_random_state_does_not_change_the_mixture():
    X, _ = bits(50)
    one, other = (AutoOracle(random_state=s).fit(X) for s in (0, 1))
    assert np.array_equal(one.estimator_.means_, other.estimator_.means_)
    assert one.path_ == other.path_


@pytest.mark.parametrize("data", [bits, reals])
def test_linear_scores_give_the_labels_of_predict(data):
    X, _ = data(60)
    estimator, scores = (
        fit_oracle(AutoOracle(), X, np.uint64(3), as_scores=as_scores)
        for as_scores in (False, True)
    )
    assert isinstance(scores.predictor, LinearScores)
    assert isinstance(estimator.predictor, AutoOracle)
    assert np.array_equal(estimator.predict(X), scores.predict(X))
    assert estimator.n_labels == scores.n_labels == 3


def test_a_bernoulli_mixture_is_linear_only_for_bits():
    fitted = fit_oracle(BernoulliMixture(3), reals(60)[0], np.uint64(0))
    assert isinstance(fitted.predictor, BernoulliMixture)
    X, _ = bits(60)
    for binarize, is_linear in ((0.5, True), (-1.0, False)):  # every bit is above -1
        mixture = BernoulliMixture(3, binarize=binarize).fit(X)
        assert (mixture.linear_scores() is not None) == is_linear


def test_mixtures_are_the_same_without_the_compiler(monkeypatch):
    def fits():
        for X in (bits(8, horizon=4)[0], reals(8, horizon=4)[0]):
            oracle = AutoOracle(max_labels=3).fit(X)
            yield oracle.labels_.tolist(), [(k, f"{score:.6g}") for k, score in oracle.path_]

    compiled = list(fits())
    for name, function in vars(_em).items():
        if is_compiled(function):
            monkeypatch.setattr(_em, name, interpreted(function))
    assert list(fits()) == compiled


# --- in URL ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("sigma", [None, 0.1, 0.2])
def test_url_with_default_settings_solves_a_lock_with_few_oracle_trajectories(sigma):
    m = lock_bernoulli(10, 0.2) if sigma is None else lock_gaussian(10, 0.2, sigma)
    agent = URL().fit(m, 8000, seed=0)
    assert agent.value() == pytest.approx(0.5, abs=0.01)
    assert agent.accuracy().min() > 0.98
    assert agent.ledger_["oracle"] + agent.ledger_["test"] <= 160


def test_repeated_observations_count_once():
    stock = np.random.default_rng(0).normal(size=(60, 4)) + np.repeat([[0], [9]], 30, axis=0)
    drawn = stock[np.random.default_rng(1).integers(60, size=2000)]
    oracle = AutoOracle(max_labels=50).fit(drawn)
    assert oracle.n_labels_ == 2
    assert len(oracle.labels_) == 2000
    codes = np.eye(5)[np.random.default_rng(2).integers(5, size=300)] * 0.5  # without noise
    assert AutoOracle().fit(codes).n_labels_ == 5


# --- Gaussians with covariances, against scikit-learn ---------------------------------------------
COVARIANCES = ("full", "tied", "diag", "spherical")


def blobs(n, d, K, apart, seed):
    """K clouds of points, each with another covariance."""
    g = np.random.default_rng(seed)
    shapes = np.eye(d) + 0.3 * g.normal(size=(K, d, d))
    states = g.integers(K, size=n)
    return apart * g.normal(size=(K, d))[states] + np.einsum(
        "nij,nj->ni", shapes[states], g.normal(size=(n, d))
    )


def full_covariances(theirs):
    """Return the covariances of a scikit-learn mixture as matrices."""
    C, (K, d) = theirs.covariances_, theirs.means_.shape
    if theirs.covariance_type == "tied":
        return np.stack([C] * K)
    if theirs.covariance_type == "full":
        return C
    return np.stack([np.diag(np.broadcast_to(c, d)) for c in C])


def assert_same_mixture(X, ours, theirs):
    """Same likelihood, same parameters up to the order of components, same predictions."""
    assert ours.log_likelihood_ / len(X) == pytest.approx(theirs.lower_bound_, abs=1e-6)
    far = ((ours.means_[:, None] - theirs.means_) ** 2).sum(axis=2)
    order = far.argmin(axis=1)
    assert sorted(order) == list(range(len(order)))
    assert ours.means_ == pytest.approx(theirs.means_[order], rel=1e-6, abs=1e-9)
    assert ours.weights_ == pytest.approx(theirs.weights_[order], rel=1e-6)
    close = pytest.approx(full_covariances(theirs)[order], rel=1e-5, abs=1e-9)
    assert ours.covariances_ == close
    assert np.array_equal(order[ours.predict(X)], theirs.predict(X))
    assert ours.score_samples(X) == pytest.approx(theirs.score_samples(X), rel=1e-6, abs=1e-6)
    assert ours.predict_proba(X) == pytest.approx(theirs.predict_proba(X)[:, order], abs=1e-6)


@pytest.mark.parametrize("covariance_type", COVARIANCES)
@pytest.mark.parametrize(
    ("n", "d", "K"), [(40, 1, 2), (300, 2, 1), (300, 3, 4), (400, 8, 3), (900, 13, 3)]
)
def test_a_gaussian_mixture_is_that_of_scikit_learn(covariance_type, n, d, K):
    X = blobs(n, d, K, apart=8.0, seed=n + d)
    options = {"covariance_type": covariance_type, "n_init": 5, "random_state": 0}
    assert_same_mixture(
        X, oracles.GaussianMixture(K, **options).fit(X), GaussianMixture(K, **options).fit(X)
    )


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_overlapping_gaussians_are_as_likely_as_scikit_learns(covariance_type):
    gains = []
    for seed in range(10):
        X = blobs(300, 3, 3, apart=1.0, seed=seed)
        options = {"covariance_type": covariance_type, "n_init": 10, "random_state": seed}
        ours, theirs = (
            kind(3, **options).fit(X) for kind in (oracles.GaussianMixture, GaussianMixture)
        )
        gains.append(ours.log_likelihood_ / len(X) - theirs.lower_bound_)
        assert ours.score(X) == pytest.approx(ours.log_likelihood_ / len(X), abs=0.01)
    assert np.mean(gains) > -0.005


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_gaussians_of_awkward_data_are_those_of_scikit_learn(covariance_type):
    X = blobs(200, 3, 2, apart=20.0, seed=3)
    constant = np.column_stack([X, np.full(200, 7.0)])
    stretched = X * [1e4, 1.0, 1e-4] + [1e6, 0.0, 1.0]
    for data in (constant, np.repeat(X, 3, axis=0), stretched):
        options = {"covariance_type": covariance_type, "n_init": 3, "random_state": 1}
        ours = oracles.GaussianMixture(2, **options).fit(data)
        theirs = GaussianMixture(2, **options).fit(data)
        assert ours.log_likelihood_ / len(data) == pytest.approx(theirs.lower_bound_, abs=1e-4)
        same = ours.predict(data) == theirs.predict(data)
        assert same.all() or not same.any()


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_more_components_than_different_points_do_no_harm(covariance_type):
    X = np.repeat([[0.0, 0.0], [5.0, 5.0]], 20, axis=0)
    mixture = oracles.GaussianMixture(4, covariance_type=covariance_type, random_state=0).fit(X)
    labels = mixture.predict(X)
    assert not set(labels[:20]) & set(labels[20:])
    assert np.isfinite(mixture.log_likelihood_)
    assert mixture.weights_.sum() == pytest.approx(1.0)


def test_a_gaussian_mixture_says_what_is_wrong():
    X = blobs(50, 3, 2, apart=3.0, seed=0)
    with pytest.raises(ValueError, match=r"covariance_type must be one of full, tied.*'round'"):
        oracles.GaussianMixture(2, covariance_type="round").fit(X)
    with pytest.raises(ValueError, match="n_samples must be at least n_components=60"):
        oracles.GaussianMixture(60).fit(X)
    with pytest.raises(ValueError, match="not positive definite: try fewer components"):
        oracles.GaussianMixture(2, reg_covar=0.0).fit(np.column_stack([X, X[:, 0]]) * 0)
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 iterations"):
        oracles.GaussianMixture(2, max_iter=1).fit(X)


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_a_gaussian_mixture_becomes_scores_that_give_its_labels(covariance_type):
    X = blobs(300, 6, 3, apart=1.0, seed=5)
    mixture = oracles.GaussianMixture(3, covariance_type=covariance_type, random_state=0)
    for estimator in (mixture, make_pipeline(StandardScaler(), PCA(4), mixture)):
        scores = to_scores(estimator.fit(X))
        kind = LinearScores if covariance_type == "tied" else QuadraticScores
        assert isinstance(scores, kind)
        assert np.array_equal(scores.predict(X), estimator.predict(X))


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_gaussians_are_the_same_without_the_compiler(covariance_type, monkeypatch):
    X = np.concatenate([blobs(30, 5, 3, apart=1.0, seed=2), np.zeros((3, 5))])

    def fit():
        mixture = oracles.GaussianMixture(
            3, covariance_type=covariance_type, n_init=2, random_state=0
        )
        return mixture.fit(X)

    compiled = fit()
    for module in (_gaussian, scores):
        for name, function in vars(module).items():
            if is_compiled(function):
                monkeypatch.setattr(module, name, interpreted(function))
    monkeypatch.setattr(_gaussian, "index", int)
    monkeypatch.setattr(scores, "index", int)
    for name in ("bands", "half_square"):
        monkeypatch.setattr(_gaussian, name, getattr(scores, name))
    plain = fit()
    assert plain.n_iter_ == compiled.n_iter_
    assert np.array_equal(plain.predict(X), compiled.predict(X))
    assert plain.covariances_ == pytest.approx(compiled.covariances_, rel=1e-9)


def test_a_cluster_that_loses_all_rows_starts_again_from_the_farthest_one():
    X = np.array([[0.0], [0.1], [0.2], [9.0]])
    owner = np.zeros(4, np.int64)
    centres = np.array([[0.1], [100.0]])
    _gaussian.lloyd(X, centres, owner, 10)
    assert owner.tolist() == [0, 0, 0, 1]


def test_equal_starts_are_run_once_and_seeds_are_far_apart():
    X = blobs(200, 2, 3, apart=50.0, seed=1)
    uniforms = np.random.default_rng(0).random((4, 3, 3))
    for each in uniforms:
        centres = _gaussian.seed_centres(X, each)
        gaps = ((centres[:, None] - centres) ** 2).sum(axis=2)
        assert gaps[~np.eye(3, dtype=bool)].min() > 100.0
    owner = np.array([2, 2, 0, 1, 0])
    _gaussian.number_by_appearance(owner, 3)
    assert owner.tolist() == [0, 0, 1, 2, 1]
