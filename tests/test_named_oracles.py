"""The oracles that the paper names besides its own three, and when AutoOracle chooses them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import poisson
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import blockmdp as bm
from blockmdp import rng
from blockmdp.envs.locks import make_lock
from blockmdp.jit import interpreted, is_compiled
from blockmdp.oracles import (
    AutoencoderSimHash,
    AutoOracle,
    BernoulliMixture,
    CategoricalMixture,
    ControlledMixture,
    DirichletMixture,
    GaussianMixture,
    IndependenceMixture,
    PoissonMixture,
    ScreenOracle,
    SphericalMixture,
    SubspaceClustering,
    _em,
    _network,
    fit_oracle,
    simhash,
    subspaces,
)
from blockmdp.oracles.auto import is_two_sided
from blockmdp.oracles.independence import most_dependent
from blockmdp.oracles.scores import QuadraticScores

Rows = NDArray[Any]
draw = np.random.default_rng(0)
BITS = bm.Bits(draw.uniform(0.05, 0.95, (3, 60)))
CATEGORIES = bm.Categories(draw.dirichlet(np.ones(4), (3, 25)))
COUNTS = bm.Counts(draw.uniform(0, 8, (3, 20)))
SUBSPACES = bm.Subspaces(draw.normal(size=(3, 2, 10)), 0.02)
DIGITS = bm.Digits([0, 1, 4])


def observed(emission: bm.Emission, n: int, seed: int = 0) -> tuple[Rows, Rows]:
    """Return n observations, and their states: 0, 1, 2, 0, ..."""
    states = np.arange(n) % emission.n_states
    return emission.sample(0, states, rng.children(rng.root(seed), 0, n)), states


def purity(labels: Rows, states: Rows) -> float:
    """The share of rows whose label stands for their state: the most frequent one of its rows."""
    right = [np.bincount(states[labels == label]).max() for label in np.unique(labels)]
    return float(sum(right) / len(states))


# --- each on the emission that it is made for -----------------------------------------------------
@pytest.mark.parametrize(
    ("oracle", "emission"),
    [
        (PoissonMixture(3, random_state=0), COUNTS),
        (CategoricalMixture(3, random_state=0), CATEGORIES),
        (IndependenceMixture(), BITS),
        (SubspaceClustering(3, random_state=0), SUBSPACES),
        (AutoencoderSimHash(random_state=0), bm.OneHotGaussian(3, 5, 0.1)),
    ],
    ids=lambda part: type(part).__name__,
)
def test_an_oracle_separates_the_states_that_it_is_made_for(
    oracle: Any, emission: bm.Emission
) -> None:
    oracle.fit(observed(emission, 300)[0].astype(float))
    fresh, states = observed(emission, 900, seed=1)
    assert purity(oracle.predict(fresh), states) > 0.98


@pytest.mark.parametrize(
    ("emission", "kind"),
    [
        (BITS, BernoulliMixture),
        (CATEGORIES, CategoricalMixture),
        (COUNTS, PoissonMixture),
        (SUBSPACES, SubspaceClustering),
        (bm.OneHotGaussian(3, 20, 0.2), SphericalMixture),
    ],
    ids=lambda part: type(part).__name__,
)
def test_auto_oracle_chooses_the_kind_by_the_data(emission: bm.Emission, kind: type) -> None:
    X, _ = observed(emission, 300)
    oracle = AutoOracle().fit(X)
    assert isinstance(oracle.estimator_, kind)
    assert oracle.n_labels_ == 3
    assert oracle.path_[-1][0] == 3
    fresh, states = observed(emission, 900, seed=1)
    assert purity(oracle.predict(fresh), states) > 0.98


def test_whole_numbers_that_are_no_counts_keep_their_gaussians() -> None:
    g = np.random.default_rng(1)
    codes = 2 * np.eye(5)[g.integers(5, size=300)]  # without noise
    oracle = AutoOracle().fit(codes)
    assert isinstance(oracle.estimator_, SphericalMixture)
    assert oracle.n_labels_ == 5
    centres = np.repeat(g.integers(400, 600, (3, 6)), 100, axis=0)
    rounded = np.rint(centres + 9 * g.normal(size=(300, 6)))
    assert isinstance(AutoOracle().fit(rounded).estimator_, SphericalMixture)
    shared = g.integers(0, 40, (200, 1))
    dependent = shared + g.integers(0, 3, (200, 4))  # one cloud along the diagonal
    assert not isinstance(
        AutoOracle().fit(dependent).estimator_, PoissonMixture | CategoricalMixture
    )


def test_url_learns_a_lock_of_counts_and_its_policy_can_be_saved(tmp_path: Any) -> None:
    for emission in (COUNTS, CATEGORIES):
        m = make_lock("Lock", 4, 0.2, 0, emission)
        agent = bm.URL(AutoOracle(), batch=30).fit(m, episodes=1500, seed=0)
        assert agent.value() > 0.45
        agent.save(tmp_path / "policy.npz")
        loaded = bm.load(tmp_path / "policy.npz")
        x = m.sample(2, 1, n=50)
        assert np.array_equal(loaded.act(x, 2), agent.act(x, 2))


def test_check_oracle_measures_g_of_the_new_oracles() -> None:
    for oracle, emission in ((PoissonMixture(3), COUNTS), (SubspaceClustering(3), SUBSPACES)):
        check = bm.testing.check_oracle(oracle, emission, sizes=(60, 200), seeds=4, samples=200)
        assert check.g[-1] < 0.02
        assert len(check.plot().axes) == 1


# --- arguments ------------------------------------------------------------------------------------
WRONG = [
    (SubspaceClustering(0), "n_clusters must be an integer >= 1, got 0"),
    (SubspaceClustering(n_dims=0), "n_dims must be an integer >= 1, got 0"),
    (SubspaceClustering(n_neighbors=-1), "n_neighbors must be an integer >= 1, got -1"),
    (SubspaceClustering(n_init=0), "n_init must be an integer >= 1, got 0"),
    (SubspaceClustering(max_iter=0), "max_iter must be an integer >= 1, got 0"),
    (SubspaceClustering(max_points="all"), "max_points must be an integer >= 3, got 'all'"),
    (AutoencoderSimHash(0), "n_hashes must be an integer >= 1, got 0"),
    (AutoencoderSimHash(units=0), "units must be an integer >= 1, got 0"),
    (AutoencoderSimHash(iterations=1.5), "iterations must be an integer >= 1, got 1.5"),
    (AutoencoderSimHash(noise=-0.1), "noise must be a number >= 0, got -0.1"),
    (AutoencoderSimHash(alpha="x"), "alpha must be a number >= 0, got 'x'"),
    (AutoencoderSimHash(tol=np.nan), "tol must be a number >= 0, got nan"),
    (PoissonMixture(0), "n_components must be an integer >= 1, got 0"),
    (PoissonMixture(prior=-1.0), "prior must be a number >= 0, got -1.0"),
    (CategoricalMixture(n_init=0), "n_init must be an integer >= 1, got 0"),
    (CategoricalMixture(max_iter=True), "max_iter must be an integer >= 1, got True"),
    (BernoulliMixture(prior=0), "prior must be a number > 0, got 0"),
    (BernoulliMixture(binarize=np.inf), "binarize must be a finite number, got inf"),
    (SphericalMixture(reg_covar=-1e-6), "reg_covar must be a number >= 0, got -1e-06"),
    (GaussianMixture(tol=-1), "tol must be a number >= 0, got -1"),
    (IndependenceMixture(alpha=1.5), r"alpha must be a number in \[0, 1\], got 1.5"),
    (IndependenceMixture(max_components=0), "max_components must be an integer >= 1, got 0"),
    (AutoOracle(0), "max_labels must be an integer >= 1, got 0"),
    (AutoOracle(caution=None), "caution must be a finite number, got None"),
    (ControlledMixture(max_labels=0), "max_labels must be an integer >= 1, got 0"),
    (ControlledMixture(error="small"), r"error must be a number in \(0, 1\), got 'small'"),
    (ScreenOracle(channels=0), "channels must be an integer >= 1, got 0"),
    (ScreenOracle(tolerated=-1), "tolerated must be an integer >= 0, got -1"),
]


@pytest.mark.parametrize(("oracle", "message"), WRONG, ids=lambda part: str(part)[:40])
def test_a_wrong_parameter_is_named_however_few_the_data_are(oracle: Any, message: str) -> None:
    X = np.arange(24.0).reshape(4, 6)
    with pytest.raises(ValueError, match=message):
        oracle.fit(X)
    with pytest.raises(ValueError, match=message):  # not "too few observations"
        fit_oracle(oracle, X, np.uint64(0))


def test_a_whole_number_may_be_a_float() -> None:
    X, _ = observed(COUNTS, 30)
    for kind in (PoissonMixture, SubspaceClustering, AutoOracle):
        one, other = (kind(n, random_state=0).fit(X) for n in (2, 2.0))
        assert np.array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize(
    "oracle",
    [
        AutoOracle(),
        AutoencoderSimHash(),
        BernoulliMixture(),
        CategoricalMixture(),
        ControlledMixture(),
        DirichletMixture(),
        GaussianMixture(),
        IndependenceMixture(),
        PoissonMixture(),
        ScreenOracle(),
        SphericalMixture(),
        SubspaceClustering(),
    ],
    ids=lambda oracle: type(oracle).__name__,
)
def test_an_oracle_that_is_not_fitted_says_so(oracle: Any) -> None:
    X = np.zeros((2, 3))
    asked = 0
    for name, arguments in {
        "predict": (X,),
        "predict_proba": (X,),
        "score": (X,),
        "score_samples": (X,),
        "linear_scores": (),
        "quadratic_scores": (),
        "changed_labels": (),
        "trusted_labels": (),
    }.items():
        is_constant = (type(oracle), name) == (CategoricalMixture, "linear_scores")
        if hasattr(oracle, name) and not is_constant:
            asked += 1
            with pytest.raises(NotFittedError, match=f"This {type(oracle).__name__} instance"):
                getattr(oracle, name)(*arguments)
    assert asked
    assert not hasattr(oracle, "labels_")
    assert not hasattr(oracle, "n_labels_")


# --- counts and categories ------------------------------------------------------------------------
def test_the_likelihood_of_a_poisson_mixture_follows_from_its_parameters() -> None:
    X, _ = observed(COUNTS, 90)
    mixture = PoissonMixture(3, random_state=0).fit(X)
    joint = [
        np.log(w) + poisson.logpmf(X, rates).sum(axis=1)
        for w, rates in zip(mixture.weights_, mixture.means_)
    ]
    likelihood = logsumexp(joint, axis=0)
    assert mixture.score_samples(X) == pytest.approx(likelihood)
    assert mixture.log_likelihood_ == pytest.approx(likelihood.sum(), rel=1e-4)
    assert np.array_equal(mixture.predict(X), np.argmax(joint, axis=0))
    one = PoissonMixture(1, prior=3.0).fit(X)
    assert one.means_[0] == pytest.approx(X.mean(axis=0))


def test_the_likelihood_of_a_categorical_mixture_follows_from_its_parameters() -> None:
    X, _ = observed(CATEGORIES, 90)
    mixture = CategoricalMixture(3, random_state=0).fit(X)
    joint = np.log(mixture.weights_) + sum(
        np.log(p[:, np.searchsorted(values, column)]).T
        for p, values, column in zip(mixture.probabilities_, mixture.categories_, X.T)
    )
    likelihood = logsumexp(joint, axis=1)
    assert mixture.score_samples(X) == pytest.approx(likelihood)
    assert mixture.log_likelihood_ == pytest.approx(likelihood.sum(), rel=1e-4)
    assert np.array_equal(mixture.predict(X), joint.argmax(axis=1))
    for p in mixture.probabilities_:
        assert p.sum(axis=1) == pytest.approx(1.0)


def test_bits_as_categories_are_the_same_mixture() -> None:
    X, _ = observed(BITS, 150)
    bits, both = (m(3, random_state=0).fit(X) for m in (BernoulliMixture, CategoricalMixture))
    assert both.log_likelihood_ == pytest.approx(bits.log_likelihood_, rel=1e-6)
    assert np.array_equal(both.predict(X), bits.predict(X))


def test_the_names_of_categories_do_not_matter_and_new_ones_tell_nothing() -> None:
    X, _ = observed(CATEGORIES, 200)
    names = np.array([7.5, -2.0, 100.0, 0.0])
    plain, renamed = (CategoricalMixture(3, random_state=0).fit(x) for x in (X, names[X]))
    assert purity(renamed.predict(names[X]), plain.predict(X)) == 1.0
    unknown = np.full((1, X.shape[1]), 99.0)
    assert plain.predict_proba(unknown)[0] == pytest.approx(plain.weights_)


def test_data_of_the_wrong_kind_are_an_error() -> None:
    with pytest.raises(ValueError, match="Negative values in data passed to PoissonMixture"):
        PoissonMixture(2).fit([[1.0, -1.0], [2.0, 3.0]])
    with pytest.raises(ValueError, match=r"2 coordinates have 20002 different values.*use a mix"):
        CategoricalMixture(2).fit(np.arange(20_002.0).reshape(-1, 2))


def test_counts_and_categories_are_the_same_without_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = observed(COUNTS, 30)[0][:, :4], observed(CATEGORIES, 30)[0][:, :4]

    def fits() -> list[Rows]:
        kinds = (PoissonMixture(2, random_state=0), CategoricalMixture(2, random_state=0))
        return [kind.fit(x).means_ for kind, x in zip(kinds, X)]

    compiled = fits()
    for name, function in vars(_em).items():
        if is_compiled(function):
            monkeypatch.setattr(_em, name, interpreted(function))
    for one, other in zip(compiled, fits()):
        assert one == pytest.approx(other, rel=1e-9)


# --- independence ---------------------------------------------------------------------------------
def test_independent_bits_are_not_split_and_dependent_ones_are() -> None:
    false_alarms = 0
    for seed in range(40):
        X = np.random.default_rng(seed).random((200, 12)) < 0.3
        false_alarms += IndependenceMixture(alpha=0.05).fit(X).n_labels_ > 1
    assert false_alarms <= 6  # 2 are expected at most; more than 6 have a probability of 0.5 %
    X, states = observed(bm.OneHotBernoulli(3, 10), 150)
    oracle = IndependenceMixture().fit(X)
    assert oracle.n_labels_ == 3
    assert oracle.p_values_.min() >= 0.01
    assert purity(oracle.labels_, states) == 1.0
    assert np.array_equal(fit_oracle(oracle, X, np.uint64(0)).predict(X), oracle.predict(X))


def test_the_most_dependent_pair_is_found_among_rare_bits() -> None:
    X = np.zeros((400, 6))
    X[::2, 0] = X[::2, 3] = 1.0
    X[7, 4] = X[7, 5] = 1.0  # they agree once, which tells little
    p, bit = most_dependent(X, np.ones(400))
    assert p < 1e-20
    assert bit in (0, 3)
    assert most_dependent(X[:, 1:2], np.ones(400)) == (1.0, 0)


def test_rounded_counts_that_no_table_has_are_not_a_dependence() -> None:
    # 2.4 rows, of which 1.6 and 1.6 are ones: of 2, 2 and 2, both must be ones in 2, not in 1
    X = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert most_dependent(X, np.full(3, 0.8)) == (1.0, 0)


def test_components_that_run_out_are_reported() -> None:
    X, _ = observed(bm.OneHotBernoulli(6, 4), 300)
    with pytest.warns(ConvergenceWarning, match="bits still depend on each other with 2 comp"):
        assert IndependenceMixture(max_components=2).fit(X).n_labels_ == 2


# --- subspaces ------------------------------------------------------------------------------------
def test_the_subspaces_and_the_noise_are_found() -> None:
    X, states = observed(SUBSPACES, 300)
    oracle = SubspaceClustering(3, random_state=0).fit(X)
    assert oracle.bases_.shape == (3, 2, 10)
    assert oracle.noise_variance_ == pytest.approx(0.02**2, rel=0.1)
    for s in range(3):
        label = np.bincount(oracle.labels_[states == s]).argmax()
        U = oracle.bases_[label]
        left = SUBSPACES.vectors[s] - SUBSPACES.vectors[s] @ U.T @ U
        assert np.abs(left).max() < 0.1
    assert np.array_equal(oracle.predict(-5.0 * X), oracle.labels_)


def test_names_of_columns_are_no_trouble_for_subspaces() -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(SubspaceClustering(2, random_state=0).fit(X).labels_) == 60
    with pytest.raises(ValueError, match="max_points must be an integer >= 3, got 2"):
        SubspaceClustering(3, max_points=2).fit(X)


def test_subspaces_become_scores_that_give_their_labels() -> None:
    X, _ = observed(SUBSPACES, 200)
    for oracle in (SubspaceClustering(3), AutoOracle()):
        scores, whole = (fit_oracle(oracle, X, np.uint64(1), as_scores=a) for a in (True, False))
        assert isinstance(scores.predictor, QuadraticScores)
        assert np.array_equal(scores.predict(X), whole.predict(X))
        assert scores.n_labels == whole.n_labels == 3


def test_the_graph_may_have_fewer_points_than_the_data() -> None:
    X, states = observed(SUBSPACES, 600)
    oracle = SubspaceClustering(3, max_points=100, random_state=0).fit(X)
    assert purity(oracle.labels_, states) > 0.98


def test_the_likelihood_of_subspaces_is_that_of_gaussians() -> None:
    from scipy.stats import multivariate_normal

    X, _ = observed(SUBSPACES, 60)
    oracle = SubspaceClustering(2, n_dims=2, random_state=0).fit(X)
    joint = []
    for U, variances, w in zip(oracle.bases_, oracle.variances_, oracle.weights_):
        C = oracle.noise_variance_ * (np.eye(10) - U.T @ U) + (U.T * variances) @ U
        joint.append(np.log(w) + multivariate_normal.logpdf(X, np.zeros(10), C))
    assert oracle.log_likelihood_ == pytest.approx(logsumexp(joint, axis=0).sum())


def test_only_data_on_both_sides_of_the_origin_may_be_subspaces() -> None:
    assert is_two_sided(observed(SUBSPACES, 200)[0])
    assert not is_two_sided(observed(bm.OneHotGaussian(3, 20, 0.2), 200)[0])
    assert not is_two_sided(np.abs(observed(SUBSPACES, 200)[0]))


def test_impossible_subspaces_are_an_error() -> None:
    X, _ = observed(SUBSPACES, 10)
    with pytest.raises(ValueError, match="n_dims must be from 1 to 10, got 21"):
        SubspaceClustering(n_dims=21).fit(X)
    with pytest.raises(ValueError, match="n_samples must be at least n_clusters=11"):
        SubspaceClustering(11).fit(X)
    with pytest.warns(ConvergenceWarning, match="SubspaceClustering did not converge in 1"):
        SubspaceClustering(3, max_iter=1, n_init=1, random_state=0).fit(observed(SUBSPACES, 90)[0])
    assert subspaces.n_parameters(2, 1, 5) == 12


# --- auto-encoder and SimHash ---------------------------------------------------------------------
def test_images_of_different_digits_rarely_have_the_same_hash() -> None:
    X, _ = observed(DIGITS, 600)
    oracle = AutoencoderSimHash(random_state=0).fit(X)
    fresh, states = observed(DIGITS, 900, seed=1)
    assert purity(oracle.predict(fresh), states) > 0.9
    assert oracle.n_labels_ < 150


def test_a_hash_that_is_new_gets_the_label_of_the_most_similar_one() -> None:
    X, _ = observed(bm.OneHotGaussian(3, 5, 0.1), 100)
    oracle = AutoencoderSimHash(random_state=0).fit(X)
    assert np.array_equal(oracle.predict(X), oracle.labels_)
    few = np.arange(oracle.n_labels_)[::2]
    kept = np.isin(oracle.labels_, few)
    hashes, oracle.codes_ = oracle.codes_[oracle.labels_], oracle.codes_[few]
    labels = oracle.predict(X)
    assert np.array_equal(few[labels[kept]], oracle.labels_[kept])
    nearest = np.bitwise_count(hashes[:, None] ^ oracle.codes_)
    assert np.array_equal(nearest[np.arange(len(X)), labels], nearest.min(axis=1))
    with pytest.raises(ValueError, match="n_hashes must be from 1 to 63, got 64"):
        AutoencoderSimHash(64).fit(X)


def test_noise_drives_the_code_to_0_and_1() -> None:
    X = observed(bm.OneHotGaussian(3, 5, 0.1), 300)[0].astype(float)
    rows = (X - X.mean(axis=0)) / X.std()
    far = []
    for noise in (0.0, 0.6):
        net = _network.train(rows, rows, 3, 1.0, 100, 1e-5, rng.root(0), noise)
        hidden = np.empty((3, len(rows)))
        _network.activate(np.ascontiguousarray(rows.T), net, hidden)
        far.append(np.abs(hidden - 0.5).mean())
    assert far[1] > far[0]


def test_hashes_are_the_same_without_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    X = observed(bm.OneHotGaussian(3, 1, 0.1), 12)[0].astype(float)

    def fit() -> AutoencoderSimHash:
        return AutoencoderSimHash(units=2, iterations=5, random_state=0).fit(X)

    compiled = fit()
    for module in (_network, simhash):
        for name, function in vars(module).items():
            if is_compiled(function):
                monkeypatch.setattr(module, name, interpreted(function))
    plain = fit()
    assert np.array_equal(plain.codes_, compiled.codes_)
    assert np.array_equal(plain.predict(X), compiled.labels_)
