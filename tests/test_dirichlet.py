"""The Dirichlet process mixture: its compiled loops, and the estimator."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

import blockmdp as bm
from blockmdp.jit import interpreted, is_compiled
from blockmdp.oracles import (
    DirichletMixture,
    IncrementalOracle,
    _bank,
    _dirichlet,
    _noise,
    _search,
    dirichlet,
    fit_oracle,
)
from blockmdp.oracles._dirichlet import Clusters, Model, Predictive
from blockmdp.oracles._noise import cell_limits, modes, whitening
from blockmdp.oracles.dirichlet import (
    MixtureBank,
    category_evidence,
    label_evidence,
    quantity_evidence,
)
from blockmdp.oracles.scores import CategoricalScores, ClippedScores, LinearScores, to_scores
from blockmdp.testing import check_incremental_oracle


def statistics(x, z, K):
    counts, sums = np.bincount(z, minlength=K), np.zeros((K, x.shape[1]))
    np.add.at(sums, z, x)
    return Clusters(counts, sums)


def gaussians(seed=0, n=60, d=8, K=3, apart=6.0):
    """Rows (n, d) of K clusters, and their clusters (n,)."""
    random = np.random.default_rng(seed)
    z = random.integers(K, size=n)
    return apart * random.normal(size=(K, d))[z] / math.sqrt(d) + random.normal(size=(n, d)), z


def observations(m, level, n, weights, seed=0):
    """Observations of random states at a level, and the states."""
    states = np.random.default_rng(seed).choice(m.n_states, size=n, p=weights)
    x = np.empty((n, m.emission.dim))
    for s in np.unique(states):
        x[states == s] = m.sample(level, int(s), int((states == s).sum()), seed=seed)
    return x, states


# --- the evidence ---------------------------------------------------------------------------------
def log_density(x, z, ratio):
    """log p(x | z) with means and noise integrated out, from the joint covariance of all rows."""
    n, d = x.shape
    V = np.eye(n) + ratio * (z[:, None] == z)
    inverse, one = np.linalg.inv(V), np.ones(n)
    mean = one @ inverse @ x / (one @ inverse @ one)
    Q = np.einsum("ij,ik,kj->", x - mean, inverse, x - mean)
    logs = np.linalg.slogdet(V)[1] + math.log(one @ inverse @ one)
    return -0.5 * d * logs - 0.5 * (n - 1) * d * math.log(Q)


def shared(bits, dim, log_alpha, ratio=1.0, noise=1.0):
    d = int(dim)
    return Model(bits, dim, ratio, noise, log_alpha, np.full(d, 0.3), np.linspace(0.2, 0.8, d))


def log_prior(counts, alpha):
    return sum(math.log(alpha) + math.lgamma(c) for c in counts if c)


def fit_noise(model, clusters, square):
    depends, typical = np.empty_like(model.depends), np.empty_like(model.typical)
    found = _dirichlet.fit_noise(model, clusters, square, depends, typical)
    return *found, depends, typical


@pytest.mark.parametrize("K", [1, 2, 4])
def test_the_evidence_of_numbers_is_that_of_their_joint_normal_distribution(K):
    x, _ = gaussians(n=12, d=3)
    z = np.arange(12) % K
    clusters = statistics(x, z, 5)
    model = shared(False, 3.0, math.log(0.1))
    score, ratio, *_ = fit_noise(model, clusters, (x**2).sum())
    direct = max(log_density(x, z, r) for r in _dirichlet.RATIOS)
    assert score - log_prior(clusters.counts, 0.1) == pytest.approx(direct, abs=1e-8)
    assert log_density(x, z, ratio) == pytest.approx(direct, abs=1e-8)


def test_the_evidence_of_bits_is_the_product_of_their_predictions():
    random = np.random.default_rng(0)
    x, z = (random.random((9, 8)) < 0.4).astype(float), np.arange(9) % 2
    x[:, 0] = z  # a bit that depends on the label
    clusters = statistics(x, z, 3)
    typical = (x[z == 0].mean(axis=0) + x[z == 1].mean(axis=0) + 0.5) / 3

    def probability(bits, first):
        """Of bits in their order, if each is drawn from those before it and `first`."""
        seen, result = [1 - first, first], 1.0
        for bit in bits.astype(int):
            result *= seen[bit] / sum(seen)
            seen[bit] += 1
        return result

    noise = [probability(x[:, j], 0.5) for j in range(8)]
    own = [
        probability(x[z == 0, j], typical[j]) * probability(x[z == 1, j], typical[j])
        for j in range(8)
    ]
    totals = {
        r: sum(math.log((1 - r) * n + r * o) for n, o in zip(noise, own)) for r in (3 / 8, 0.5)
    }
    model = shared(True, 8.0, math.log(0.5))
    score, ratio, _, depends, found_typical = fit_noise(model, clusters, 0.0)
    prior = log_prior(clusters.counts, 0.5)
    assert score == pytest.approx(prior + max(totals.values()), abs=1e-9)
    assert ratio == max(totals, key=totals.get)
    expected = [ratio * o / ((1 - ratio) * n + ratio * o) for n, o in zip(noise, own)]
    np.testing.assert_allclose(depends, expected, rtol=1e-9)
    np.testing.assert_allclose(found_typical, typical)
    assert depends[0] == depends.max() > 0.9


@pytest.mark.parametrize("K", [0, 1, 2, 5])
@pytest.mark.parametrize("room", [5, 8])
def test_few_labels_are_compared_by_inner_products_as_many_are_by_evidence(K, room):
    x, _ = gaussians(n=40)
    z = np.arange(40) % max(K, 1) + (K < 3)  # with gaps
    clusters = statistics(x[: 40 * (K > 0)], z[: 40 * (K > 0)], room)
    random = np.random.default_rng(1)
    prediction = Predictive(np.zeros((room, 8)), np.zeros(room), np.zeros(room))
    for scale in (0.5, 2.0, 8.0):
        model = shared(False, 7.5, math.log(0.01), 4.0, random.uniform(0.5, 3.0))
        row = scale * random.normal(size=8)
        square = (x**2).sum() * (K > 0) + row @ row
        current = np.zeros(room, np.bool_)
        best, top, unused, new, ratio, noise = _dirichlet.compare_labels(
            model, clusters, row, square, prediction, current
        )
        same, few_top, also_unused, few_new, few_ratio, few_noise = _dirichlet.compare_few(
            model, clusters, row, square, interpreted(_dirichlet.room_for_few)()
        )
        assert (same, also_unused) == (best, unused)
        if K != 1:  # with one label, all ratios are equally probable
            assert few_ratio == ratio
        assert few_noise == pytest.approx(noise, rel=1e-9)
        if K > 0 and unused >= 0:
            assert few_new - few_top == pytest.approx(new - top, abs=1e-7)


@pytest.mark.parametrize("K", [16, 30])
def test_many_labels_are_compared_and_merged_by_their_evidence(K, monkeypatch):
    x, z = gaussians(n=8 * K, K=K, apart=12.0)
    clusters, square = statistics(x, z, K + 2), float((x**2).sum())
    model = shared(False, 8.0, math.log(0.01), 4.0)
    prediction = Predictive(np.zeros((K + 2, 8)), np.zeros(K + 2), np.zeros(K + 2))

    def with_row(row, k):
        return fit_noise(
            model, statistics(np.vstack([x, row]), np.append(z, k), K + 2), square + row @ row
        )

    def compare(row):
        given = model, clusters, row, square + row @ row, prediction, np.zeros(K + 2, np.bool_)
        return _dirichlet.compare_labels(*given)

    for row in (x[3] + 0.1, 0.5 * (x[0] + x[1]), np.full(8, 20.0)):
        best, top, unused, new, *found = compare(row)
        assert unused == K
        assert [top, new] == pytest.approx([with_row(row, k)[0] for k in (best, K)])
        expected = with_row(row, best if top >= new else K)
        assert found == pytest.approx(expected[1:3])
    assert new > top  # the last row is far from all
    assert compare(x[3] + 0.1)[0] == z[3]

    pairs = np.array([(i, j) for i in range(K) for j in range(i)])
    merged = [
        _dirichlet.evidence(model, statistics(x, np.where(z == j, i, z), K + 2), square)
        for i, j in pairs
    ]
    better = np.flatnonzero(np.array(merged) > np.median(merged))
    for first in (0, better[0] + 1, better[-1] + 1):
        found = _search.next_merger(model, clusters, square, pairs, first, np.median(merged))
        assert found == min([i for i in better if i >= first], default=len(pairs))

    compiled = [compare(row) for row in x[:3]]
    interpret(monkeypatch, _dirichlet)
    for row, same in zip(x, compiled):
        assert compare(row) == pytest.approx(same, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-18, 1.0, 1e17])
def test_the_best_side_is_one_of_two_states_at_any_scale(scale):
    x, z = gaussians(n=50, K=2, apart=12.0)
    x[7] += 40 * (x[z == z[7]].mean(axis=0) - x[z != z[7]].mean(axis=0))  # away from the other
    side = np.zeros(50, np.bool_)
    farthest = _search.best_side((scale * x).astype(np.float32), side)
    assert farthest == 7
    x[7] = x[z == z[7]][0]
    _search.best_side((scale * x).astype(np.float32), side)
    assert adjusted_rand_score(side, z) == 1.0


def test_the_side_of_equal_rows_is_any():
    side = np.zeros(4, np.bool_)
    assert _search.best_side(np.ones((4, 3), np.float32), side) == 0
    assert not side.any()


def test_bits_are_cut_by_the_one_that_depends_most_on_another():
    random = np.random.default_rng(3)
    x = (random.random((60, 9)) < np.linspace(0.2, 0.8, 9)).astype(np.float32)
    x[:, 7] = np.where(random.random(60) < 0.9, x[:, 4], 1 - x[:, 4])
    x[:, 8] = 1.0  # says nothing
    side = np.zeros(60, np.bool_)
    farthest = _search.best_bit(x, side)
    dependence = np.abs(np.corrcoef(x[:, :8].T) - np.eye(8)).max(axis=0)
    assert np.array_equal(side, x[:, 4] == 1)
    assert dependence.max() == pytest.approx(dependence[4])
    assert dependence.max() == pytest.approx(dependence[7])
    distances = ((x - x.mean(axis=0)) ** 2).sum(axis=1)
    assert distances[farthest] == pytest.approx(distances.max())


@pytest.mark.parametrize("bits", [False, True])
def test_labels_are_the_same_however_much_room_there_is_for_them(bits):
    x, _ = gaussians(n=60, K=6)
    x = (x > 0).astype(np.float32) if bits else x.astype(np.float32)
    model, square = shared(bits, 8.0, math.log(0.01)), float((x**2).sum())

    def search(room):
        zeros = np.zeros((2, room), np.int64)
        z, counts = np.zeros(60, np.int64), np.bincount(np.zeros(60, int), minlength=room)
        sums = np.concatenate([[x.sum(axis=0)], np.zeros((room - 1, 8))])
        found, K, steps, is_full = model, 2, -1, True
        given = _search.Labelling(z, counts, sums, *zeros)
        is_swept = False
        while is_full:
            K, steps, is_stuck, is_full, found = _search.search(
                found, x, square, given, K, 500, steps, is_swept
            )
            is_swept = True
            more = ((0, len(given.counts) * is_full),)
            counts, born, split_at = (np.pad(a, more) for a in given[1:2] + given[3:])
            given = _search.Labelling(
                z, counts, np.pad(given.sums, (*more, (0, 0))), born, split_at
            )
        assert is_stuck
        return given, found

    small, large = search(2), search(64)
    assert small[0].counts.max() < 60
    assert np.array_equal(small[0].z, large[0].z)
    used = np.flatnonzero(small[0].counts)
    for mine, its in zip(small[0][1:], large[0][1:]):
        assert np.array_equal(mine[used], its[used])
    assert small[1][:5] == large[1][:5]


@pytest.mark.parametrize("memory", [None, 40])
def test_the_scatter_is_that_of_all_rows_however_often_it_is_asked_for(memory):
    x, _ = gaussians(n=120)
    oracle = DirichletMixture(memory=memory)
    for rows in np.split(x, 8):
        oracle.partial_fit(rows)
        scatter, degrees = oracle.noise_scatter()
        kept, z = oracle._raw.astype(np.float64), oracle._z
        expected = sum((z == k).sum() * np.cov(kept[z == k].T, bias=True) for k in np.unique(z))
        np.testing.assert_allclose(scatter, expected, atol=1e-9)
        assert degrees == len(kept) - len(np.unique(z))


@pytest.mark.parametrize("bits", [False, True])
def test_compiled_and_interpreted_loops_agree(bits, monkeypatch):
    x, z = gaussians(n=40)
    x = (x > 0).astype(np.float32) if bits else x.astype(np.float32)
    z = (z + (np.arange(40) % 5 == 0)) % 4
    model = shared(bits, 8.0, math.log(0.01), 0.3 if bits else 4.0, 1.5)

    def run():
        clusters, labels, square = statistics(x, z, 5), z.copy(), float((x**2).sum())
        moves = _dirichlet.map_sweeps(model, x, labels, clusters, 10)
        score, *best = fit_noise(model, clusters, square)
        prediction = Predictive(np.zeros((5, 8)), np.zeros(5), np.zeros(5))
        is_current = np.zeros(5, np.bool_)
        assigned, floats = [], [score, *np.hstack(best)]
        room = interpreted(_dirichlet.room_for_few)()
        for row in (x if bits else 3 * x)[:9]:
            label, is_new, is_doubtful, *after = _dirichlet.assign(
                model, clusters, row, square, prediction, is_current, room
            )
            assigned.append((label, is_new, is_doubtful))
            floats += after
        few, moved = np.array([1, 4, 9, 16]), np.zeros(4, np.int64)
        before = statistics(x, np.minimum(z, 1), 5)
        size = _dirichlet.group(model, before, x, np.minimum(z, 1), square, few, moved)
        assigned.append((size, *moved))
        side = np.zeros(len(x), np.bool_)
        assigned.append((_search.best_side(x, side), *side))
        assigned.append(tuple(_dirichlet.label_sums(x, z, 5).ravel()))
        exact = (moves, labels.tolist(), clusters.sums.tolist(), assigned)
        return floats, exact

    floats, exact = run()
    interpret(monkeypatch, _dirichlet)
    interpret(monkeypatch, _search)
    same_floats, same_exact = run()
    assert exact == same_exact
    assert floats == pytest.approx(same_floats, rel=1e-12)  # two libraries' lgamma


@pytest.mark.parametrize("n", [1, 15, 16, 17, 33])
def test_scoring_rows_together_is_scoring_them_one_by_one(n, monkeypatch):
    x = gaussians(n=n)[0].astype(np.float32)
    z = np.arange(n) % 4  # wrong, so that rows move
    model = shared(False, 8.0, math.log(0.01), 4.0, 1.5)

    def run():
        clusters, labels = statistics(x, z, 5), z.copy()
        moves = _dirichlet.map_sweeps(model, x, labels, clusters, 10)
        return moves, labels.tolist(), clusters.sums.tolist()

    together = run()
    interpret(monkeypatch, _dirichlet)
    monkeypatch.setattr(_dirichlet, "BLOCK", 1)
    assert run() == together
    assert n == 1 or together[0] > 0


def test_states_without_noise_do_not_look_crowded():
    random = np.random.default_rng(0)
    for d in (4, 16, 33):
        looks = random.normal(size=(4, d))
        z = np.r_[0, random.choice(4, size=1998, p=[0.05, 0.05, 0.1, 0.8])]
        mixture = DirichletMixture().fit(looks[z])
        assert not mixture._is_crowded(mixture._current())


@pytest.mark.parametrize("kind", ["round", "bits", "correlated", "spikes"])
def test_mixtures_of_a_bank_are_mixtures_alone_and_loops_agree(kind, monkeypatch):
    random = np.random.default_rng(0)
    x = np.stack([gaussians(seed, n=50, d=6)[0] for seed in range(3)])  # (mixtures, rows, d)
    x = (x > 0).astype(float) if kind == "bits" else x
    x = x @ np.diag([9.0, 1, 1, 1, 1, 0.2]) if kind == "correlated" else x
    if kind == "spikes":
        x = np.where(random.random(x.shape) < 0.15, 40.0, x)
    groups = random.permutation(np.repeat(np.arange(3), 50))

    def learn():
        bank = MixtureBank([DirichletMixture() for _ in range(3)])
        for some in np.array_split(np.arange(150), 40):
            learnt = [(groups[: i + 1] == groups[i]).sum() - 1 for i in some]
            bank.learn(groups[some], x[groups[some], learnt])
        return bank.mixtures

    together = learn()
    assert any(one.limits_ is not None for one in together) == (kind == "spikes")
    for one, rows in zip(together, x):
        alone = DirichletMixture().partial_fit(rows)
        assert np.array_equal(one.labels_, alone.labels_)
        assert np.array_equal(one.predict(rows), alone.predict(rows))
    for module in (_bank, _search, dirichlet):
        interpret(monkeypatch, module)
    for one, other, rows in zip(together, learn(), x):
        assert np.array_equal(one.labels_, other.labels_)
        assert np.array_equal(one.predict(rows), other.predict(rows))
        for mine, others in zip(one.linear_scores(), other.linear_scores()):
            assert mine == pytest.approx(others, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("bits", [False, True])
def test_quiet_mixtures_are_reconsidered_by_a_loop_as_in_python(bits, monkeypatch):
    batches = [gaussians(seed, n=60, d=6)[0] for seed in range(3)]
    batches = [(x > 0).astype(float) if bits else x for x in batches]

    def learn():
        found = []
        for x in batches:
            mixture = DirichletMixture()
            for row in x:
                mixture.partial_fit(row[None])
                found.append((mixture.labels_.tolist(), mixture.n_labels_, mixture.evidence_))
        return found

    for module in (_bank, _search, dirichlet):
        interpret(monkeypatch, module)
    done, reconsider = [], _bank.reconsider

    def noted(*args):
        done.append(reconsider(*args))
        return done[-1]

    monkeypatch.setattr(_bank, "reconsider", noted)
    in_loop = learn()
    assert True in done
    assert False in done
    monkeypatch.setattr(_bank, "reconsider", lambda *args: False)
    for one, other in zip(in_loop, learn()):
        assert one[:2] == other[:2]
        assert one[2] == pytest.approx(other[2], rel=1e-9)


def test_raising_max_labels_takes_effect_at_once():
    draw = np.random.default_rng(0)
    means = 6 * draw.normal(size=(4, 128))
    z = np.r_[draw.integers(0, 2, 40), draw.integers(0, 4, 5)]
    x = means[z] + draw.normal(size=(45, 128))
    mixture = DirichletMixture(max_labels=2).partial_fit(x[:40])
    mixture.set_params(max_labels=500)
    for row in x[40:]:
        mixture.partial_fit(row[None])
    assert mixture.n_labels_ > 2


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 65])
def test_equal_numbers_stay_in_order(n):
    numbers = np.random.default_rng(n).integers(0, 5, n).astype(float)
    expected = np.argsort(numbers, kind="stable").tolist()
    assert _search.stable_order(numbers).tolist() == expected
    assert interpreted(_search.stable_order)(numbers).tolist() == expected


def test_rows_have_no_more_room_than_the_memory():
    mixtures = [DirichletMixture(memory=100) for _ in range(3)]
    bank = dirichlet.MixtureBank(mixtures, 10**6)
    bank.learn(np.array([0, 1, 2]), np.random.default_rng(0).normal(size=(3, 8)))
    assert bank.state.raw.shape == (3, 100, 8)


def test_room_for_rows_is_not_written_before_it_is_used(monkeypatch):
    bank = _bank.new_bank(2, 8, 1000)
    bank.raw[0, :3], bank.n[0] = 7.0, 3
    monkeypatch.setattr(np, "zeros_like", None)  # it writes
    own = bank.with_own_x()
    assert own.x is not own.raw
    assert np.array_equal(own.x, own.raw)


def interpret(monkeypatch, module):
    """Replace all compiled functions of a module by the Python functions behind them."""
    for name, function in vars(module).items():
        if is_compiled(function):
            monkeypatch.setattr(module, name, interpreted(function))


# --- the estimator --------------------------------------------------------------------------------
@pytest.mark.parametrize(("H", "level"), [(5, 2), (25, 20), (100, 50), (100, 100)])
def test_a_new_state_is_recognised_at_its_first_observation(H, level):
    x, states = observations(bm.comblock(H), level, 250, [0.02, 0.02, 0.96], seed=H)
    oracle = DirichletMixture()
    for i, row in enumerate(x):
        oracle.partial_fit(row[None])
        if i >= 4:  # a few observations do not tell how many states there are
            assert oracle.n_labels_ == len(set(states[: i + 1]))
    assert adjusted_rand_score(states, oracle.labels_) == 1.0
    assert np.array_equal(oracle.predict(x), oracle.labels_)


def test_fit_and_partial_fit_find_the_same_clusters():
    x, states = observations(bm.comblock(50), 7, 300, [0.4, 0.2, 0.4])
    online, at_once = DirichletMixture().partial_fit(x), DirichletMixture().fit(x)
    assert adjusted_rand_score(states, online.labels_) == 1.0
    assert adjusted_rand_score(online.labels_, at_once.labels_) == 1.0


def test_it_finds_the_states_of_the_papers_locks():
    for lock in (bm.lock_bernoulli(10), bm.lock_gaussian(10, sigma=0.2)):
        x, states = observations(lock, 3, 300, [0.2, 0.3, 0.5])
        assert adjusted_rand_score(states, DirichletMixture().partial_fit(x).labels_) == 1.0


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([None, 1, 8, 20]),
)
def test_labels_changes_and_statistics_stay_consistent(seed, n, d, bits, memory):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)) * 10.0 ** random.integers(-3, 4)
    x[random.random(n) < 0.3] = x[0]
    if bits:
        x = (x > 0).astype(float)
    oracle = DirichletMixture(max_labels=4, memory=memory)
    before = np.zeros(0, np.int64)
    for row in x:
        oracle.partial_fit(row[None])
        changed = np.flatnonzero(oracle.labels_[:-1] != before)
        assert np.array_equal(oracle.changed_labels(), changed)
        before = oracle.labels_.copy()
    assert len(oracle.labels_) == n
    assert oracle.labels_.max() < oracle.n_labels_ <= 4
    assert oracle._n == n if memory is None else oracle._n <= max(memory, 4)
    kept = oracle._x.astype(np.float64)
    counts, sums = statistics(kept, oracle._z, len(oracle._clusters.counts))
    assert np.array_equal(oracle.labels_[oracle._places()], oracle._z)
    assert np.array_equal(counts, oracle._clusters.counts)
    tolerance = 1e-5 * np.abs(kept).max() + 1e-12
    assert sums == pytest.approx(oracle._clusters.sums, rel=1e-5, abs=tolerance)
    assert set(oracle.predict(x)) <= set(oracle.labels_)


def test_old_observations_are_forgotten_but_neither_rare_states_nor_labels():
    random = np.random.default_rng(0)
    states = np.concatenate([[0, 1, 2] * 5, random.integers(2, size=3_000), [2, 3] * 5])
    x = 5.0 * np.eye(8)[states] + 0.5 * random.normal(size=(len(states), 8))
    oracle = DirichletMixture(memory=120)
    for rows in np.array_split(x, 1_000):
        oracle.partial_fit(rows)
    assert oracle._n <= 120
    assert oracle._bank.state.raw.shape[1] <= 256
    assert adjusted_rand_score(states, oracle.labels_) == 1.0
    assert adjusted_rand_score(states, oracle.predict(x)) == 1.0
    again = pickle.loads(pickle.dumps(oracle)).partial_fit(x[:50])
    assert np.array_equal(again.labels_[:-50], oracle.labels_)


def test_a_batch_that_is_too_large_is_forgotten_with_the_next():
    x, _ = gaussians()
    oracle = DirichletMixture(memory=30.0)
    for _ in range(8):
        oracle.partial_fit(x)
    labels = oracle.labels_
    before = labels.copy()
    other = copy.copy(oracle)
    oracle.partial_fit(x[:1])
    assert oracle._n <= 31
    assert np.array_equal(labels, before)
    assert np.array_equal(other.labels_, before)
    assert len(copy.copy(oracle).partial_fit(x[:1]).changed_labels()) == 0


def test_labels_of_forgotten_observations_follow_those_that_were_kept():
    random = np.random.default_rng(1)
    one, other = (random.normal(size=(n, 3)) for n in (400, 4_000))
    one[:, 0] += np.where(np.arange(400) % 2, 2.5, -2.5)  # two states, or so it seems at first
    other[:, 0] += random.uniform(-4, 4, size=4_000)  # until the gap is filled
    oracle = DirichletMixture(memory=500)
    labels = np.zeros(0, np.int64)
    for rows in np.array_split(np.concatenate([one, other]), 200):
        oracle.partial_fit(rows)
        labels = np.concatenate([labels, np.zeros(len(rows), np.int64)])
        at = np.union1d(oracle.changed_labels(), np.arange(len(labels) - len(rows), len(labels)))
        labels[at] = oracle.labels_[at]
        assert np.array_equal(labels, oracle.labels_)
    assert set(labels) <= set(oracle._shown)


def test_bits_that_turn_out_to_be_numbers_are_learnt_again():
    oracle = DirichletMixture().partial_fit([[0.0, 1.0]] * 5)
    assert oracle._model.bits
    oracle.partial_fit([[0.5, 0.5]])
    assert len(oracle.labels_) == 6
    assert not oracle._model.bits


def test_fit_forgets_what_was_learnt_before():
    x, _ = gaussians()
    once, again = DirichletMixture().fit(x), DirichletMixture().partial_fit(3 * x[:20, :5]).fit(x)
    assert np.array_equal(once.labels_, again.labels_)
    assert len(again.changed_labels()) == 0
    assert np.array_equal(once.predict(2 * x), again.predict(2 * x))


def test_it_is_an_incremental_oracle():
    assert isinstance(DirichletMixture(), IncrementalOracle)
    check_incremental_oracle(DirichletMixture())
    check_incremental_oracle(DirichletMixture(), gaussians(n=50, apart=3.0)[0])


def test_invalid_observations_are_refused():
    oracle = DirichletMixture().partial_fit(np.ones((3, 2)))
    for method in (oracle.partial_fit, oracle.predict):
        with pytest.raises(ValueError, match="features"):
            method(np.ones((1, 3)))
        for value in (np.nan, np.inf, -np.inf):
            with pytest.raises(ValueError, match=r"NaN|infinity"):
                method(np.array([[value, 1.0]]))
    assert len(oracle.labels_) == 3
    with pytest.raises(ValueError, match="scale them down"):
        DirichletMixture().fit(gaussians()[0] * 1e40)


def test_invalid_parameters_are_refused():
    for wrong, message in (
        ({"max_labels": 0}, "max_labels must be an integer >= 1, got 0"),
        ({"concentration": 0.0}, "concentration must be a number > 0, got 0.0"),
        ({"concentration": float("nan")}, "concentration must be a number > 0"),
        ({"concentration": "x"}, "concentration must be a number > 0"),
        ({"memory": 0}, "memory must be an integer >= 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            DirichletMixture(**wrong).fit(gaussians()[0])
    parameters = {"concentration": 0.5, "max_labels": 7, "memory": 90}
    assert clone(DirichletMixture(**parameters)).get_params() == parameters


def test_hundreds_of_states_are_found_when_each_was_seen_a_few_times():
    m = bm.random_block_mdp(horizon=3, n_states=160, seed=0)
    x, states = observations(m, 1, 800, np.full(160, 1 / 160))
    assert adjusted_rand_score(states, DirichletMixture().partial_fit(x).labels_) > 0.99


@pytest.mark.parametrize("n", [2, 3, 10, 60])
def test_wards_tree_and_its_cuts_are_those_of_scipy(n):
    x = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
    tree, scipys = _search.ward_tree(x), linkage(x, "ward")
    assert np.array_equal(tree, scipys[:, :2])
    for K in range(1, n + 1):
        assert np.array_equal(dirichlet._cut(tree, K), cut_tree(scipys, K)[:, 0])


def test_equal_rows_are_merged_first():
    x = np.array([[0.0], [5.0], [0.0], [9.0], [5.0], [0.0]], np.float32)
    assert dirichlet._cut(_search.ward_tree(x), 3).tolist() == [0, 1, 0, 2, 1, 0]


def test_a_few_rows_are_recognised_as_a_new_state_together():
    m = bm.noisy_lock(4, "bits", seed=1)
    x = np.concatenate([m.sample(2, 2, 400), m.sample(2, 0, 8)]).astype(float)
    oracle = DirichletMixture().partial_fit(x[:400])
    assert oracle.n_labels_ == 1
    oracle.partial_fit(x[400:])  # too few to make it reconsider all labels
    assert adjusted_rand_score(np.arange(408) >= 400, oracle.labels_) > 0.7


def test_a_shape_of_the_noise_from_elsewhere_is_refused_if_states_cannot_be_seen_through_it():
    m = bm.random_block_mdp(horizon=60, n_states=3)
    x, states = observations(m, 7, 4000, [0.4, 0.2, 0.4])
    T = whitening(4000 * np.cov(x.T), 4000)  # it contains the distances between the states
    oracle = DirichletMixture()
    oracle.share_noise(T)
    oracle.partial_fit(x[:400])
    assert adjusted_rand_score(states[:400], oracle.labels_) == 1.0


def test_noise_that_varies_by_chance_has_no_shape_by_the_evidence_either(monkeypatch):
    """The short cut without eigenvalues finds the same, however many directions are filled."""
    generator, cases = np.random.default_rng(5), []
    for d in (4, 7, 16, 40):
        for kind in range(100):
            filled = int(generator.integers(2, d + 1)) if kind % 2 else d
            scales = np.ones(filled)
            scales[0] = generator.uniform(0.3, 3.0) if kind % 4 > 1 else 1.0
            n = int(generator.integers(3 * d, 8 * d))
            axes = np.linalg.qr(generator.normal(size=(d, d)))[0][:filled]
            x = generator.normal(size=(n, filled)) * scales @ axes
            cases.append((x.T @ x * 10.0 ** generator.integers(-8, 9), n))
    known = [_noise._vary_by_chance(*case) for case in cases]
    assert 0.2 < np.mean(known) < 0.6
    monkeypatch.setattr(_noise, "_vary_by_chance", lambda *_: False)
    assert all(whitening(*case) is None for case, is_known in zip(cases, known) if is_known)
    assert any(whitening(*case) is not None for case in cases)


def test_a_copy_is_independent_and_a_failed_fit_changes_nothing():
    x, _ = gaussians()
    for copied in (copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))):
        oracle = DirichletMixture().partial_fit(x)
        before = oracle.labels_.copy()
        other = copied(oracle).partial_fit(x + 50)
        assert np.array_equal(oracle.labels_, before)
        assert len(other.labels_) == 2 * len(before)
        assert other.n_labels_ > oracle.n_labels_
    for wrong in ({"max_labels": 0}, {"concentration": -1}):
        with pytest.raises(ValueError, match="must be"):
            oracle.set_params(**wrong).fit(x)
        assert np.array_equal(oracle.predict(x), before)
    with pytest.raises(ValueError, match="beyond 1e18"):
        DirichletMixture().partial_fit([[1e20, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("online", [True, False])
def test_max_labels_can_be_lowered_below_the_labels_there_are(online):
    x, z = gaussians(n=120, K=6)
    mixture = DirichletMixture().partial_fit(x[:60])
    mixture.set_params(max_labels=1)
    for rows in np.array_split(x[60:], 60 if online else 1):
        mixture.partial_fit(rows)
    assert adjusted_rand_score(z, mixture.labels_) == 1.0
    mixture.set_params(max_labels=0)
    with pytest.raises(ValueError, match="max_labels"):
        mixture.partial_fit(x[:1])


@pytest.mark.parametrize("bits", [False, True])
def test_labels_do_not_depend_on_the_room_that_another_mixture_needs(bits):
    for seed in range(12):
        few, many = gaussians(seed, n=40, K=5, d=4)[0], gaussians(seed + 99, n=40, K=20, d=4)[0]
        if bits:
            few, many = (few > 0).astype(float), (many > 0).astype(float)
        pair = [DirichletMixture(concentration=1.0) for _ in range(2)]
        bank = MixtureBank(pair)
        bank.learn(np.ones(40, np.int64), many)
        bank.learn(np.zeros(40, np.int64), few)
        alone = DirichletMixture(concentration=1.0).partial_fit(few)
        assert np.array_equal(pair[0].labels_, alone.labels_)
        assert bank.state.room[0] == alone._bank.state.room[0]


def test_there_are_never_more_than_max_labels():
    for k in (1, 2):
        assert DirichletMixture(max_labels=k).fit(gaussians()[0]).n_labels_ <= k
        assert DirichletMixture(max_labels=k).partial_fit(gaussians()[0]).n_labels_ <= k


def test_as_an_oracle_it_has_linear_scores():
    x, states = observations(bm.comblock(20), 5, 200, [0.3, 0.3, 0.4])
    fitted = fit_oracle(DirichletMixture(), x, np.uint64(1))
    assert isinstance(fitted.predictor, LinearScores)
    assert adjusted_rand_score(states, fitted.predict(x)) == 1.0
    assert bm.URL(DirichletMixture()).fit(bm.lock_bernoulli(5), 2_000).value() == 0.5


def test_states_are_found_behind_strong_noise_that_hides_them():
    random = np.random.default_rng(0)
    states = random.choice(3, size=300, p=[0.25, 0.25, 0.5])
    noise = random.normal(size=(300, 10)) * np.where(np.arange(10) < 8, 0.1, 2.0)
    turn = np.linalg.qr(random.normal(size=(10, 10)))[0]
    oracle = DirichletMixture()
    for row in (np.eye(10)[states] + noise) @ turn:
        oracle.partial_fit(row[None])
    assert adjusted_rand_score(states, oracle.labels_) > 0.99
    fresh = (np.eye(10)[states] + noise[::-1]) @ turn
    assert adjusted_rand_score(states, oracle.predict(fresh)) > 0.99


def test_hidden_states_are_split_where_neighbours_agree():
    random = np.random.default_rng(5)
    states = random.choice(3, size=400, p=[0.2, 0.2, 0.6])
    x = np.eye(12)[states] + random.normal(size=(400, 12)) * np.where(np.arange(12) < 9, 0.1, 2.0)
    x = x @ np.linalg.qr(random.normal(size=(12, 12)))[0]
    values, vectors = np.linalg.eigh(np.cov(x.T))
    for part in modes(x @ (vectors / np.sqrt(values))):  # as if there were one state
        shares = np.array([part[states == s].mean() for s in range(3)])
        assert (np.minimum(shares, 1 - shares) < 0.1).all()
        assert np.ptp(shares) > 0.9


def test_correlated_noise_is_not_split():
    m = bm.noisy_lock(horizon=10, noise="correlated", seed=21)
    x, states = observations(m, 4, 1000, [0.5, 0.4, 0.1], seed=4)
    oracle = DirichletMixture().fit(x)
    assert oracle.n_labels_ == 3
    assert adjusted_rand_score(oracle.labels_, states) == 1.0


def test_only_data_with_more_neighbours_than_one_state_has_are_crowded():
    random = np.random.default_rng(0)
    one_state = random.normal(size=(400, 5))
    many_states = 20 * random.normal(size=(40, 5))[np.arange(400) % 40] + one_state
    for x, is_crowded in ((one_state, False), (many_states, True)):
        oracle = DirichletMixture(max_labels=1).fit(x)
        assert oracle._is_crowded(oracle._current()) is is_crowded


def test_states_in_a_row_and_states_without_noise_are_found():
    random = np.random.default_rng(6)
    states = random.integers(5, size=150)
    x = 8.0 * states[:, None] * np.eye(10)[0] + random.normal(size=(150, 10))
    assert adjusted_rand_score(states, DirichletMixture().fit(x).labels_) == 1.0
    states = random.integers(3, size=600)
    x = random.normal(size=(600, 4)) * [5.0, 1.0, 0.2, 0.2] + 20.0 * states[:, None]
    x[states == 0] = 0.0
    assert modes(x[states == 0]) == modes(x[:1]) == []
    for fit in (DirichletMixture().fit, DirichletMixture().partial_fit):
        labels = fit(x).labels_
        assert len(set(labels[states == 0])) == 1
        assert set(labels[states == 0]).isdisjoint(labels[states > 0])


def test_a_state_keeps_one_label_if_its_noise_does_not_fill_all_dimensions():
    random = np.random.default_rng(2)
    turn = np.linalg.qr(random.normal(size=(9, 9)))[0]
    for d, n, scale in itertools.product((1, 2, 5), (60, 500, 1500), (1e-3, 1.0)):
        noise = np.zeros((n, 9))
        noise[:, :d] = scale * random.normal(size=(n, d))
        for x in (noise, noise @ turn, noise + np.arange(9)):
            assert len(np.unique(DirichletMixture().fit(x).labels_)) == 1
    states = random.integers(3, size=600)
    x = np.pad(5.0 * np.eye(4)[states] + 0.3 * random.normal(size=(600, 4)), ((0, 0), (0, 5)))
    assert adjusted_rand_score(states, DirichletMixture().fit(x @ turn).labels_) == 1.0


def test_a_label_is_split_as_soon_as_it_has_grown_by_half():
    random = np.random.default_rng(0)
    common, near, other = (
        random.normal(size=(n, 6)) + mean
        for n, mean in ((2000, 30.0 * np.eye(6)[0]), (6, 0.0), (40, 5.0 * np.eye(6)[1]))
    )
    oracle = DirichletMixture().fit(np.concatenate([common, near, other[:2]]))
    assert oracle.n_labels_ == 2  # the two rare states still look like one
    for row in other[2:]:
        oracle.partial_fit(row[None])
    assert len(oracle.labels_) < 1.5 * 2008  # so they are not reconsidered as a whole
    assert len(np.unique(oracle.labels_)) == 3


def test_small_labels_are_hidden_only_if_they_are_many_and_hold_few_rows():
    random = np.random.default_rng(4)

    def shown(n_small, rows_each):
        x = np.concatenate(
            [random.normal(size=(800, 12))]
            + [random.normal(size=12) * 40 + random.normal(size=(rows_each, 12))] * n_small
        )
        x[800:] += 100.0 * np.repeat(random.normal(size=(n_small, 12)), rows_each, axis=0)
        oracle = DirichletMixture()
        for rows in np.array_split(x[random.permutation(len(x))], 40):
            oracle.partial_fit(rows)
        return len(np.unique(oracle.labels_))

    assert shown(1, 4) == 2  # a rare state is a state
    assert shown(10, 4) == 1  # ten of them are outliers
    assert shown(10, 40) == 11  # unless they are not so rare


def test_outliers_get_the_closest_large_label():
    random = np.random.default_rng(1)
    states = random.integers(2, size=400)
    far = random.random(400) < 0.05
    x = 3.0 * np.eye(6)[states] + random.normal(size=(400, 6)) * np.where(far, 4.0, 0.1)[:, None]
    oracle = DirichletMixture()
    for row in x:
        oracle.partial_fit(row[None])
    assert adjusted_rand_score(states[~far], oracle.labels_[~far]) == 1.0
    assert len(np.unique(oracle.labels_)) == len(np.unique(oracle.predict(x))) == 2


def with_spikes(x, share=0.03, size=3.0, seed=7):
    """Rows in which single numbers are replaced by outliers."""
    random = np.random.default_rng(seed)
    return np.where(random.random(x.shape) < share, size * random.choice([-1, 1], x.shape), x)


@pytest.mark.parametrize("online", [True, False])
def test_single_numbers_that_are_outliers_are_clipped(online):
    x, states = observations(bm.noisy_lock(10, noise="round"), 4, 300, [0.5, 0.3, 0.2], seed=1)
    spiked, oracle = with_spikes(x), DirichletMixture()
    for rows in np.split(spiked, 100 if online else 1):
        oracle = oracle.partial_fit(rows) if online else oracle.fit(rows)
    low, high = oracle.limits_
    assert (low > -3).all()
    assert (high < 3).all()
    labels = oracle.predict(x)
    assert adjusted_rand_score(states, labels) > 0.99
    fitted = fit_oracle(oracle, spiked, np.uint64(1)).predictor
    assert isinstance(fitted, ClippedScores)
    again = pickle.loads(pickle.dumps(oracle))
    assert np.array_equal(oracle.predict(spiked), again.predict(spiked))
    assert DirichletMixture().fit(x).limits_ is None


def test_limits_are_given_up_if_more_data_show_that_they_were_wrong():
    random = np.random.default_rng(3)
    oracle = DirichletMixture().fit(with_spikes(random.normal(size=(100, 20)), 0.05, 40.0))
    assert oracle.limits_ is not None
    far = np.where(random.random((150, 1)) < 0.2, 30.0, 1.0)  # whole rows
    oracle.partial_fit(random.normal(size=(150, 20)) * far)
    assert oracle.limits_ is None


def test_limits_become_wider_where_new_states_are():
    random = np.random.default_rng(4)
    oracle = DirichletMixture().fit(with_spikes(random.normal(size=(200, 20)), 0.05, 40.0))
    before = oracle.limits_[1]
    states = random.integers(3, size=1_000)
    x = random.normal(size=(1_000, 20))
    x[:, 0] += 12.0 * states
    for rows in np.split(with_spikes(x, 0.05, 40.0), 20):
        oracle.partial_fit(rows)
    after = oracle.limits_[1]
    assert after[0] > before[0] + 10
    assert np.array_equal(after[1:], before[1:])
    assert len({np.bincount(oracle.predict(x[states == s])).argmax() for s in range(3)}) == 3


@pytest.mark.parametrize("d", [1, 2, 4, 8])
@pytest.mark.parametrize("rare", [0.1, 0.15, 0.2])
def test_rare_states_with_a_coordinate_each_are_kept(d, rare):
    random = np.random.default_rng(0)
    states = random.choice(d + 1, size=600, p=[1 - rare] + [rare / d] * d)
    x = 10 * np.eye(d + 1)[states][:, 1:] + random.normal(size=(600, d))
    oracle = DirichletMixture().fit(x)
    assert oracle.limits_ is None
    assert adjusted_rand_score(states, oracle.labels_) > 0.99


def test_states_that_come_late_are_found_behind_heavy_tails():
    random = np.random.default_rng(1)
    states = np.concatenate([np.zeros(200, int), random.integers(4, size=800)])
    x = random.standard_t(3, size=(1_000, 10))
    x[:, 0] += 12.0 * states
    oracle = DirichletMixture()
    for rows in np.split(x, 100):
        oracle.partial_fit(rows)
    assert adjusted_rand_score(states, oracle.labels_) > 0.9


@pytest.mark.parametrize("noise", ["round", "correlated", "directions", "by level", "outliers"])
def test_states_and_outlying_rows_are_not_taken_for_outlying_numbers(noise):
    m = bm.noisy_lock(horizon=10, noise=noise, seed=31)
    for seed, weights in enumerate(([0.1, 0.1, 0.8], [0.02, 0.03, 0.95], [0.4, 0.4, 0.2])):
        assert cell_limits(observations(m, 4, 400, weights, seed)[0]) is None
    one_hot = np.eye(20)[np.random.default_rng(0).integers(20, size=400)]  # twenty rare states
    assert cell_limits(one_hot + 0.1 * np.random.default_rng(1).normal(size=(400, 20))) is None


def test_old_outliers_are_forgotten_but_a_rare_state_that_comes_later_is_found():
    random = np.random.default_rng(5)
    n = 3_000
    states = random.integers(2, size=n)
    states[2_000:][random.random(n - 2_000) < 0.03] = 2
    far = random.random(n) < 0.05
    x = 3.0 * np.eye(6)[states] + random.normal(size=(n, 6)) * np.where(far, 4.0, 0.1)[:, None]
    oracle, earlier = DirichletMixture(), np.zeros(0, np.int64)
    for i, row in enumerate(x):
        oracle.partial_fit(row[None])
        now = oracle.labels_
        changed = np.flatnonzero(earlier != now[:i])
        assert np.array_equal(changed, oracle.changed_labels())
        earlier = now
    assert len(now) == n
    assert oracle._n < n - 50
    assert oracle.trusted_labels().sum() == 3
    assert oracle.n_labels_ < 40 < np.count_nonzero(far) / 3
    assert adjusted_rand_score(states[~far], now[~far]) > 0.99
    assert len(np.unique(oracle.predict(x[~far]))) == 3


def test_rare_labels_are_trusted_where_there_are_no_outliers_or_many_of_them():
    random = np.random.default_rng(0)
    states = np.minimum(random.geometric(0.04, size=600), 100)  # few of many states are common
    x = 20.0 * random.normal(size=(101, 8))[states] + random.normal(size=(600, 8))
    oracle = DirichletMixture().partial_fit(x)
    assert oracle.trusted_labels().all()
    oracle._bank.state.outliers[0] = 1
    rare = np.bincount(oracle.labels_) < 6
    assert rare.any()
    assert oracle.trusted_labels().all()


def test_labels_are_right_when_all_outliers_are_forgotten_at_once():
    random = np.random.default_rng(2)
    x = 3.0 * np.eye(6)[random.integers(2, size=1_000)] + 0.1 * random.normal(size=(1_000, 6))
    x[300:315] += 50.0 * random.normal(size=(15, 6))
    oracle, earlier = DirichletMixture(), np.zeros(0, np.int64)
    for rows in np.array_split(x, 40):
        oracle.partial_fit(rows)
        changed = np.flatnonzero(earlier != oracle.labels_[: len(earlier)])
        assert np.array_equal(changed, oracle.changed_labels())
        earlier = oracle.labels_
    assert oracle._n == 985
    assert np.array_equal(oracle.labels_, oracle.predict(x))


def test_outliers_stay_hidden_when_old_observations_are_forgotten():
    random = np.random.default_rng(5)
    states, far = random.integers(2, size=8_000), random.random(8_000) < 0.05
    x = 3.0 * np.eye(6)[states]
    x += random.normal(size=x.shape) * np.where(far, 4.0, 0.1)[:, None]
    oracle = DirichletMixture(memory=2_000)
    for rows in np.array_split(x, 320):
        oracle.partial_fit(rows)
    assert len(oracle.labels_) == 8_000
    assert len(np.unique(oracle.predict(x))) == 2
    with pytest.raises(ValueError, match="1e18"):
        oracle.partial_fit(np.full((1, 6), 1e19))
    assert len(np.unique(oracle.partial_fit(x[:1]).predict(x))) == 2


def test_memory_can_be_changed_between_batches():
    g = np.random.default_rng(0)
    x = g.normal(size=(120, 6)) + 20 * np.eye(6)[g.integers(3, size=120)]
    oracle = DirichletMixture(memory=40).partial_fit(x[:60])
    assert oracle.set_params(memory=None).partial_fit(x[60:90])._n == 90
    assert oracle.set_params(memory=40).partial_fit(x[90:])._n <= 70
    assert len(oracle.labels_) == 120


def test_an_agent_clips_outlying_numbers_and_its_file_does_too(tmp_path):
    lock = bm.noisy_lock(horizon=5, noise="round", seed=4)

    class Spiked(bm.Emission):
        stationary = False
        n_states, dim = lock.emission.n_states, lock.emission.dim

        def sample(self, level, states, keys):
            z = bm.rng.normals(keys ^ np.uint64(1), self.dim)
            return np.where(
                np.abs(z) > 2.2, 3 * np.sign(z), lock.emission.sample(level, states, keys)
            )

    tables = (lock.initial, lock.transitions, lock.rewards, lock.reward_probability)
    m = bm.BlockMDP(*tables, emission=Spiked())
    agent = bm.OnlineURL(pool_levels=False).fit(m, 300, seed=0)
    assert agent.value() > 0.9 * m.optimal_value()
    kinds = {type(each.predictor) for each in agent.policy_.decoder.fitted}
    assert ClippedScores in kinds
    agent.save(tmp_path / "policy.npz")
    loaded = bm.load(tmp_path / "policy.npz").decoder
    x = m.sample(3, 0, n=200)
    levels = np.full(200, 3)
    assert np.array_equal(loaded.decode(levels, x), agent.policy_.decoder.decode(levels, x))


def categories(level=4, n=240, seed=1):
    m = bm.noisy_lock(10, noise="numbered categories")
    return observations(m, level, n, [0.5, 0.3, 0.2], seed=seed)


@pytest.mark.parametrize("online", [True, False])
def test_whole_numbers_without_an_order_are_categories(online):
    x, states = categories()
    oracle = DirichletMixture()
    for rows in np.split(x, 60 if online else 1):
        oracle = oracle.partial_fit(rows) if online else oracle.fit(rows)
    assert oracle.values_.tolist() == [0, 1, 2, 3, 4]
    assert oracle.limits_ is None
    assert oracle.n_features_in_ == x.shape[1]
    assert adjusted_rand_score(states, oracle.labels_) > 0.95
    others, states = categories(seed=2)
    labels = oracle.predict(others)
    assert adjusted_rand_score(states, labels) > 0.95
    fitted = to_scores(oracle)
    assert isinstance(fitted, CategoricalScores)
    assert np.array_equal(fitted.predict(others), labels)
    again = pickle.loads(pickle.dumps(oracle))
    assert np.array_equal(again.predict(others), labels)
    assert np.array_equal(again.partial_fit(others).labels_, oracle.partial_fit(others).labels_)


def test_whole_numbers_with_an_order_are_numbers():
    x, states = observations(bm.noisy_lock(10, noise="correlated"), 4, 240, [0.5, 0.3, 0.2], seed=1)
    oracle = DirichletMixture()
    for rows in np.split(np.round(3 * x), 60):
        oracle.partial_fit(rows)
    assert oracle.values_ is None
    assert adjusted_rand_score(states, oracle.labels_) > 0.95


@pytest.mark.parametrize("number", [5.0, -2.0, 0.5, 40.0])
def test_a_number_that_was_not_seen_before_changes_the_categories_or_ends_them(number):
    x, states = categories()
    oracle = DirichletMixture().fit(x)
    before = oracle.labels_
    other = x[:1].copy()
    other[0, 0] = number
    oracle.partial_fit(other)
    values = {5.0: [*range(6)], -2.0: [*range(-2, 5)]}.get(number)
    assert (None if oracle.values_ is None else oracle.values_.tolist()) == values
    assert len(oracle.labels_) == len(x) + 1
    changed = np.flatnonzero(before != oracle.labels_[:-1])
    assert np.array_equal(oracle.changed_labels(), changed)
    if values:
        assert adjusted_rand_score(states, oracle.predict(x)) > 0.95
        assert oracle.labels_[-1] == oracle.labels_[0]


def test_levels_of_a_bank_take_the_same_numbers_for_categories():
    mixtures = [DirichletMixture() for _ in range(4)]
    bank = MixtureBank(mixtures)
    first = np.tile(categories(0, 1)[0], (60, 1))
    data = [first, *(categories(level, 60)[0] for level in (3, 4))]
    for rows in zip(*data):
        bank.learn(np.arange(3), np.array(rows))
    assert bank.values.tolist() == [0, 1, 2, 3, 4]
    assert mixtures[0].n_labels_ == 1  # the first level has no noise
    late = categories(5, 1)[0]
    bank.learn(np.array([3]), late)  # this level saw nothing before
    assert mixtures[3].predict(late) == mixtures[3].labels_ == [0]
    bank.learn(np.array([3]), late + 0.5)
    assert [mixture.values_ for mixture in mixtures] == [None] * 4
    assert [len(mixture.labels_) for mixture in mixtures] == [60, 60, 60, 2]


def test_an_agent_takes_numbers_for_categories_and_its_file_does_too(tmp_path):
    m = bm.noisy_lock(horizon=5, noise="numbered categories", seed=4)
    agent = bm.OnlineURL(pool_levels=False).fit(m, 300, seed=0)
    assert agent.value() > 0.95 * m.optimal_value()
    assert {type(each.predictor) for each in agent.decoder_.fitted} == {CategoricalScores}
    agent.save(tmp_path / "policy.npz")
    loaded = bm.load(tmp_path / "policy.npz").decoder
    x, levels = m.sample(3, 0, n=200), np.full(200, 3)
    x[::7, 0] = 0.3  # no category
    assert np.array_equal(loaded.decode(levels, x), agent.decoder_.decode(levels, x))


def test_the_evidence_of_categories_is_that_of_one_after_the_other():
    random = np.random.default_rng(0)
    codes, z = random.integers(3, size=(12, 2)), random.integers(4, size=12)
    z[z == 1] = 3  # a label that is not in use
    log_p, alpha = 0.0, 0.3
    for i in range(12):
        same = z[:i] == z[i]
        log_p += math.log(same.sum() or alpha)
        for j in range(2):
            seen = np.sum(codes[:i, j][same] == codes[i, j])
            log_p += math.log((seen + 0.5) / (same.sum() + 1.5))
    found = category_evidence(codes.astype(float), z) + label_evidence(z, alpha)
    assert found == pytest.approx(log_p)


def test_the_evidence_of_quantities_is_that_of_normal_numbers():
    x = np.array([[0.0, 7.0], [2.0, 7.0], [6.0, 7.0], [9.0, 7.0]])
    z = np.array([0, 0, 2, 2])
    variance = (1 + 1 + 1.5**2 + 1.5**2) / 2  # two means are known
    density = norm(0, math.sqrt(variance)).logpdf([-1, 1, -1.5, 1.5]).sum()
    price = 0.5 * (2 * math.log(3) + math.log(4))
    assert quantity_evidence(x, z) == pytest.approx(density - price)


@pytest.mark.parametrize("name", ["values_", "limits_"])
def test_what_is_learnt_is_unknown_before(name):
    with pytest.raises(NotFittedError):
        getattr(DirichletMixture(), name)


def rounded_blobs(d, n=200, seed=1):
    random = np.random.default_rng(seed)
    states, means = random.integers(4, size=n), random.uniform(0, 8, size=(4, d))
    x = means[states] + 1.2 * random.normal(size=(n, d))
    return np.clip(np.round(x), -1, 10), states


def grid(size, n=200):
    cells = np.random.default_rng(0).integers(size, size=(n, 2))
    return cells.astype(float), cells @ [size, 1]


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("data", [rounded_blobs(10), rounded_blobs(20), grid(4), grid(8)])
def test_quantities_and_clean_data_are_not_taken_for_categories(data, online):
    x, states = data
    oracle = DirichletMixture()
    for rows in np.split(x, 200 if online else 1):
        oracle = oracle.partial_fit(rows) if online else oracle.fit(rows)
    assert oracle.values_ is None
    assert adjusted_rand_score(states, oracle.labels_) > 0.98


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_data_that_are_refused_leave_categories_as_they_were(method):
    x, _ = categories()
    oracle = DirichletMixture().fit(x)
    labels, bad = oracle.labels_, x.copy()
    bad[3, 0] = 1e30
    with pytest.raises(ValueError, match="beyond 1e18"):
        getattr(oracle, method)(bad)
    assert np.array_equal(oracle.labels_, labels)
    assert np.array_equal(oracle.predict(x), labels)


@pytest.mark.parametrize("memory", [None, 40])
@pytest.mark.parametrize("seed", range(6))
def test_labels_that_change_with_the_coding_are_reported(seed, memory):
    random = np.random.default_rng(seed)
    x, _ = categories(n=150, seed=seed)
    x[:20] = x[:20] > 2  # bits at first
    x[140:] += 0.5 * (seed % 2)  # no categories at the end
    oracle, before = DirichletMixture(memory=memory), np.zeros(0, np.int64)
    codings = set()
    for rows in np.split(x, np.sort(random.choice(np.arange(1, 150), 20, replace=False))):
        oracle.partial_fit(rows)
        now = oracle.labels_
        changed = np.flatnonzero(before != now[: len(before)])
        assert np.array_equal(oracle.changed_labels(), changed)
        assert len(now) == len(before) + len(rows)
        codings.add(oracle.values_ is None)
        before = now
    assert codings == {True, False}


def test_a_large_first_batch_can_be_categories():
    x, _ = categories(n=1_000)
    oracle = DirichletMixture().partial_fit(x)
    assert oracle.values_ is not None
    wide = np.tile(x[:40], 3)  # 300 bits
    oracle = DirichletMixture().fit(wide)
    assert oracle.values_ is not None
    wide[0, 0] = 9.0  # 600 would be too many
    assert oracle.partial_fit(wide[:1]).values_ is None
