"""Emissions: shapes, distributions, and that a row depends on its level, state and key alone."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.linalg import hadamard

from blockmdp import rng
from blockmdp.emissions import (
    Digits,
    Emission,
    ExogenousBits,
    Hadamard,
    Linear,
    MarkovBits,
    OneHotBernoulli,
    OneHotGaussian,
    PerLevel,
    StateAndLevel,
)
from blockmdp.families import (
    Bits,
    Categories,
    Counts,
    Subspaces,
    in_subspaces,
    numbers_by_threshold,
)
from blockmdp.jit import interpreted
from blockmdp.mdp import BlockMDP
from blockmdp.tapes import observe

ALPHA = 1e-4


def sample(emission, states, seed=0, level=0):
    states = np.asarray(states, np.int64)
    return emission.sample(level, states, rng.children(rng.root(seed), 0, len(states)))


def all_states(emission, n):
    """Return n states: 0, 1, ..., again and again."""
    return np.arange(n) % emission.n_states


def rotation(n, seed=0):
    """Return a random orthogonal matrix, (n, n)."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]


class Shifted(Emission):
    def __init__(self, n_states, dim=1):
        self.n_states, self.dim = n_states, dim

    def sample(self, level, states, keys):
        return rng.normals(keys, self.dim) + states[:, None]


class ColumnByColumn(Shifted):
    """The same numbers, stored column by column as by `np.stack(columns).T`."""

    def sample(self, level, states, keys):
        return np.asfortranarray(super().sample(level, states, keys))


class Louder(Shifted):
    """A different distribution at every level."""

    stationary = False

    def sample(self, level, states, keys):
        return (level + 1) * rng.normals(keys, self.dim) + states[:, None]


MARKOV = MarkovBits([7, 2, 5], *np.random.default_rng(0).uniform(0.1, 0.9, (2, 12)))
EMISSIONS = {
    "Bernoulli": OneHotBernoulli(3, 20),
    "Bernoulli, no bits": OneHotBernoulli(4, 0),
    "Bernoulli, many bits": OneHotBernoulli(2, 150),
    "Bernoulli, p = 0.3": OneHotBernoulli(3, 20, 0.3),
    "Gaussian": OneHotGaussian(3, 5, 0.1),
    "Gaussian, nothing extra": OneHotGaussian(3, 0, 0.1),
    "Gaussian, no noise": OneHotGaussian(3, 5, 0.0),
    "Gaussian, truncated at 2.5 sigma": OneHotGaussian(3, 5, 0.2, truncate=True),
    "Gaussian, truncated at 0.5 sigma": OneHotGaussian(3, 5, 1.0, truncate=True),
    "Linear, Hadamard of Bernoulli": Linear(OneHotBernoulli(3, 13), hadamard(16)),
    "Linear, rotation of Bernoulli": Linear(OneHotBernoulli(3, 20), rotation(23)),
    "Linear, rotation of Gaussian": Linear(OneHotGaussian(3, 20, 0.1), rotation(23)),
    "Linear, to one dimension": Linear(OneHotGaussian(3, 5, 0.1), np.ones((1, 8))),
    "Linear, to more dimensions": Linear(Shifted(3, 5), rotation(33)[:, :5]),
    "Linear, transposed": Linear(Shifted(3, 9), rotation(9).T),
    "Linear, column by column": Linear(ColumnByColumn(3, 9), rotation(9)),
    "Linear of Linear": Linear(Linear(Shifted(3, 7), rotation(7, 1)), rotation(7, 2)),
    "StateAndLevel": StateAndLevel(3, 4, 0.1, noisy=5),
    "Hadamard of StateAndLevel": Hadamard(StateAndLevel(3, 4, 0.1)),
    "Linear of StateAndLevel": Linear(StateAndLevel(3, 4, 0.1), rotation(7)),
    "PerLevel": PerLevel([OneHotBernoulli(3, 5), OneHotGaussian(3, 5, 0.1), Louder(3, 8)]),
    "Linear of PerLevel": Linear(
        PerLevel([OneHotGaussian(3, 5, 0.1 * h) for h in range(3)]), rotation(8)
    ),
    "a user's": Shifted(3),
    "Bits": Bits([[0.0, 0.3, 1.0], [0.5, 0.9, 0.2]]),
    "Categories": Categories([[[0.2, 0.8], [1.0, 0.0]], [[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]]]),
    "Counts": Counts([[0.0, 1.5, 400.0], [3.0, 20.0, 0.1]]),
    "Subspaces": Subspaces(np.random.default_rng(1).normal(size=(3, 2, 5)), 0.1),
    "Subspaces, no noise": Subspaces([[[1.0, 2.0]], [[0.0, 1.0]]]),
    "Digits": Digits([7, 1, 4]),
    "ExogenousBits": ExogenousBits(3, 3, 10, 0.1, 0.1),
    "ExogenousBits, no bits": ExogenousBits(3, 3, 0, 0.1, 0.1),
    "MarkovBits": MARKOV,
    "Linear of MarkovBits": Linear(MARKOV, rotation(12)),
    "Hadamard of ExogenousBits": Hadamard(ExogenousBits(3, 3, 10, 0.1, 0.1)),
    "PerLevel with MarkovBits": PerLevel([OneHotBernoulli(3, 9), MARKOV, OneHotBernoulli(3, 9)]),
}


# --- what all emissions have in common ------------------------------------------------------------
def test_samples_have_the_declared_shape_type_and_bounds():
    for name, emission in EMISSIONS.items():
        for level in range(3):
            for n in (0, 1, 50):
                x = sample(emission, all_states(emission, n), level=level)
                assert x.shape == (n, emission.dim), name
                assert x.dtype == emission.dtype, name
                assert np.isfinite(x).all(), name
                assert np.all((x >= emission.low) & (x <= emission.high)), name


@settings(deadline=None, max_examples=100)
@given(name=st.sampled_from(sorted(EMISSIONS)), data=st.data())
def test_a_row_depends_on_its_level_state_and_key_alone(name, data):
    emission = EMISSIONS[name]
    n = data.draw(st.integers(1, 40))
    level = data.draw(st.integers(0, 2))
    row = st.integers(0, emission.n_states - 1)
    states = np.array(data.draw(st.lists(row, min_size=n, max_size=n)), np.int64)
    keys = rng.children(np.uint64(data.draw(st.integers(0, 2**64 - 1))), 0, n)
    whole = emission.sample(level, states, keys)
    i = data.draw(st.integers(0, n - 1))
    alone = emission.sample(level, states[i : i + 1], keys[i : i + 1])
    assert alone.tobytes() == np.ascontiguousarray(whole[i : i + 1]).tobytes()
    some = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=2 * n)), np.int64)
    assert np.array_equal(emission.sample(level, states[some], keys[some]), whole[some])


def test_rows_of_a_large_batch_are_those_of_small_batches():
    n = 9000  # larger than the buffers and blocks of numpy
    keys = rng.children(rng.root(3), 0, n)
    for name, emission in EMISSIONS.items():
        states = all_states(emission, n)
        whole = emission.sample(1, states, keys)
        for size in (1, 2, 7, 64):
            for start in (0, 4093, n - size):
                rows = slice(start, start + size)
                part = emission.sample(1, states[rows], keys[rows])
                assert np.array_equal(part, whole[rows]), name


def test_a_stationary_emission_ignores_the_level_and_others_do_not():
    for name, emission in EMISSIONS.items():
        states = all_states(emission, 30)
        x, y = (sample(emission, states, level=level) for level in (1, 2))
        assert np.array_equal(x, y) == emission.stationary, name


@pytest.mark.parametrize("name", [n for n, e in EMISSIONS.items() if e.takes_levels])
def test_observations_of_many_levels_at_once_are_those_of_each_level(name: str) -> None:
    emission = EMISSIONS[name]
    states = all_states(emission, 60)
    levels = np.arange(len(states)) % 3
    keys = rng.children(rng.root(4), 0, len(states))
    x = emission.sample(levels, states, keys)
    for h in range(3):
        here = levels == h
        assert np.array_equal(x[here], emission.sample(h, states[here], keys[here]))


def test_an_emission_that_takes_levels_is_called_once_for_all_of_them():
    calls = []

    class Counted(StateAndLevel):
        def sample(self, level, states, keys):
            calls.append(level)
            return super().sample(level, states, keys)

    levels, keys = np.array([2, 0, 1, 2]), rng.children(rng.root(0), 0, 4)
    observe(Counted(3, 4, 0.1), levels, np.zeros(4, np.int64), keys)
    assert len(calls) == 1
    assert np.array_equal(calls[0], levels)


@pytest.mark.parametrize("name", [n for n, e in EMISSIONS.items() if e.drawing() is not None])
def test_coordinates_drawn_one_by_one_are_those_of_a_sample_and_bounded(name: str) -> None:
    emission = EMISSIONS[name]
    drawing = emission.drawing()
    assert drawing is not None
    states = all_states(emission, 60)
    keys = rng.children(rng.root(3), 0, len(states))
    draw = functools.partial(drawing.value, drawing.constants, 1)
    dim = range(len(drawing.largest))
    y = np.array([[draw(s, key, j) for j in dim] for s, key in zip(states, keys)])
    x = emission.sample(1, states, keys)
    if drawing.matrix is None:
        assert np.array_equal(y, x)
    else:
        assert np.allclose(y @ drawing.matrix.T, x)
    assert (np.abs(y) <= drawing.largest).all()


def test_a_repr_names_the_class():
    for emission in EMISSIONS.values():
        assert type(emission).__name__ in repr(emission)


def test_emissions_built_on_correlated_noise_are_per_episode():
    for name, emission in EMISSIONS.items():
        assert emission.per_episode == ("MarkovBits" in name or "ExogenousBits" in name), name


def test_levels_with_independent_noise_share_none_although_they_share_the_key_of_the_episode():
    bits = OneHotBernoulli(3, 40)
    mixed = PerLevel([bits, MarkovBits([0, 1, 2], *np.full((2, 43), 0.5)), bits, bits])
    states = np.zeros(500, np.int64)
    x = [sample(mixed, states, level=h)[:, 3:] for h in range(4)]
    for one, two in ((0, 1), (0, 2), (2, 3), (1, 2)):
        # standard error 0.0035
        assert (x[one] == x[two]).mean() == pytest.approx(0.5, abs=0.02)


# --- OneHotBernoulli ------------------------------------------------------------------------------
def test_bernoulli_is_the_one_hot_code_and_bits_that_are_one_with_probability_p():
    for p in (0.0, 0.1, 0.5, 1.0):
        emission = OneHotBernoulli(3, 70, p)
        states = all_states(emission, 15_000)
        x = sample(emission, states, seed=1)
        assert emission.dim == x.shape[1] == 73
        assert np.array_equal(x[:, :3], np.eye(3)[states])
        bits = x[:, 3:].astype(float)
        assert set(np.unique(bits)) <= {0.0, 1.0}
        error = 4.8 * math.sqrt(p * (1 - p) / (len(x) / 3))
        for s in range(3):
            assert np.abs(bits[states == s].mean(axis=0) - p).max() <= error
        if 0 < p < 1:
            z = np.corrcoef(bits.T) * math.sqrt(len(x))
            assert np.abs(z[np.triu_indices(70, 1)]).max() < 5.4


def test_probabilities_of_zero_and_one_are_exact():
    keys = np.array([0], np.uint64)
    assert rng.uniforms(keys, 1)[0, 0] == 0.0  # the extreme case
    assert OneHotBernoulli(1, 1, 0.0).sample(0, np.array([0]), keys).tolist() == [[1, 0]]
    assert OneHotBernoulli(1, 1, 1.0).sample(0, np.array([0]), keys).tolist() == [[1, 1]]


def test_all_observations_of_a_few_bits_are_equally_likely():
    x = sample(OneHotBernoulli(2, 6), np.zeros(64_000), seed=2)
    counts = np.bincount(x[:, 2:] @ (1 << np.arange(6)), minlength=64)
    assert stats.chisquare(counts).pvalue > ALPHA


def test_without_bits_a_bernoulli_observation_is_the_one_hot_code():
    x = sample(OneHotBernoulli(4, 0), [3, 0, 1, 2, 2])
    assert x.tolist() == np.eye(4, dtype=int)[[3, 0, 1, 2, 2]].tolist()


def test_bernoulli_observations_are_finitely_many_bytes():
    emission = OneHotBernoulli(3, 4)
    assert (emission.finite, emission.low, emission.high) == (True, 0.0, 1.0)
    assert np.dtype(emission.dtype) == np.int8


def test_a_probability_outside_the_unit_interval_raises():
    for p in (-0.1, 1.1, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"OneHotBernoulli: p must be a number in \[0, 1\]"):
            OneHotBernoulli(3, 4, p)


# --- OneHotGaussian -------------------------------------------------------------------------------
def test_gaussian_is_the_one_hot_code_plus_normal_noise_on_every_coordinate():
    for sigma in (0.1, 3.0):
        emission = OneHotGaussian(3, 5, sigma)
        states = all_states(emission, 30_000)
        x = sample(emission, states, seed=4)
        assert emission.dim == x.shape[1] == 8
        assert x.dtype == np.float32
        noise = (x.astype(float) - np.eye(3, 8)[states]) / sigma
        for s in range(3):
            for j in range(8):
                assert stats.kstest(noise[states == s, j], "norm").pvalue > ALPHA
        assert np.abs(noise.mean(axis=0)).max() * math.sqrt(len(x)) < 4.5
        assert np.abs(noise.var(axis=0) - 1).max() * math.sqrt(len(x) / 2) < 4.5
        z = np.corrcoef(noise.T) * math.sqrt(len(x))
        assert np.abs(z[np.triu_indices(8, 1)]).max() < 4.8


def test_without_noise_a_gaussian_observation_is_the_padded_one_hot_code():
    for truncate in (False, True):
        x = sample(OneHotGaussian(3, 2, 0.0, truncate=truncate), [2, 0, 1])
        assert np.array_equal(x, np.eye(3, 5)[[2, 0, 1]])


def test_truncated_noise_leaves_every_observation_decodable():
    for sigma in (0.2, 1.0):
        emission = OneHotGaussian(3, 20, sigma, truncate=True)
        states = all_states(emission, 30_000)
        x = sample(emission, states, seed=5)
        assert np.array_equal(x.argmax(axis=1), states)
        assert np.array_equal(np.argwhere(x > 0.5), np.c_[np.arange(len(x)), states])
        noise = x.astype(float) - np.eye(3, 23)[states]
        assert 0.49 < np.abs(noise).max() < 0.5
        truncated = stats.truncnorm(-0.499 / sigma, 0.499 / sigma, scale=sigma)
        for j in range(6):
            assert stats.kstest(noise[:, j], truncated.cdf).pvalue > ALPHA


def test_noise_that_is_not_truncated_mixes_up_the_states():
    for sigma in (0.2, 1.0):
        emission = OneHotGaussian(3, 20, sigma)
        states = all_states(emission, 100_000)
        x = sample(emission, states, seed=5)
        assert np.any(x[:, :3].argmax(axis=1) != states)


def test_truncated_observations_are_bounded_and_others_are_not():
    cut, free = OneHotGaussian(3, 1, 1.0, truncate=True), OneHotGaussian(3, 1, 1.0)
    assert (cut.low, cut.high) == (-0.5, 1.5)
    assert (free.low, free.high) == (-np.inf, np.inf)
    assert not cut.finite
    assert not free.finite


def test_a_sigma_that_is_negative_or_not_finite_raises():
    for sigma in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="OneHotGaussian: sigma must be a number >= 0"):
            OneHotGaussian(3, 4, sigma)


# --- Linear ---------------------------------------------------------------------------------------
def test_hadamard_of_bits_is_exact_and_can_be_undone():
    under, matrix = OneHotBernoulli(3, 13), hadamard(16)
    x, y = (sample(e, all_states(under, 500), seed=6) for e in (under, Linear(under, matrix)))
    assert y.dtype == np.float64
    assert np.array_equal(y, x.astype(int) @ matrix.T)
    assert np.array_equal(y @ matrix / 16, x)


def test_a_rotated_observation_is_the_matrix_times_the_original_one():
    for under in (OneHotGaussian(3, 20, 0.1), OneHotBernoulli(3, 20), Shifted(3, 23)):
        m = rotation(23)
        x, y = (sample(e, all_states(under, 300), seed=7) for e in (under, Linear(under, m)))
        expected = np.array([m @ row for row in x.astype(float)])
        assert np.allclose(y, expected, rtol=0, atol=1e-6 if y.dtype == np.float32 else 1e-13)
        assert not np.allclose(y, x, atol=0.1)


def test_a_rotation_keeps_the_distribution_of_gaussian_noise():
    m = rotation(8)
    emission = Linear(OneHotGaussian(3, 5, 0.2), m)
    states = all_states(emission, 30_000)
    noise = (sample(emission, states, seed=8) - m.T[states]) / 0.2
    for j in range(8):
        assert stats.kstest(noise[:, j], "norm").pvalue > ALPHA


def test_linear_has_the_attributes_of_the_emission_it_transforms():
    bits = Linear(OneHotBernoulli(3, 1), np.ones((2, 4)))
    reals = Linear(OneHotGaussian(3, 1, 0.1), np.ones((2, 4)))
    levels = Linear(PerLevel([OneHotBernoulli(3, 1)] * 5), np.ones((2, 4)))
    assert (bits.finite, bits.stationary, bits.n_levels, bits.dim) == (True, True, None, 2)
    assert (reals.finite, reals.dtype) == (False, np.float32)
    assert (levels.stationary, levels.n_levels, levels.n_states) == (False, 5, 3)


def test_the_matrix_of_linear_is_copied_and_read_only():
    matrix = np.eye(4)
    emission = Linear(OneHotBernoulli(3, 1), matrix)
    matrix[...] = 7
    assert np.array_equal(emission.matrix, np.eye(4))
    with pytest.raises(ValueError, match="read-only"):
        emission.matrix[0, 0] = 7


def test_a_matrix_that_does_not_fit_raises():
    for matrix, message in (
        (np.eye(3), r"Linear: matrix must have the shape \(any, 4\).*\(3, 3\)"),
        (np.ones(4), r"Linear: matrix must have the shape \(any, 4\).*\(4,\)"),
        (np.array([[1, 2, 3, 4], [0, 0, np.nan, 0]]), r"Linear: matrix\[1, 2\] is not finite"),
        (np.array([[np.inf, 2, 3, 4]]), r"Linear: matrix\[0, 0\] is not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            Linear(OneHotBernoulli(3, 1), matrix)


# --- PerLevel -------------------------------------------------------------------------------------
def test_perlevel_uses_the_emission_of_each_level():
    parts = [OneHotBernoulli(3, 5, 0.2), OneHotGaussian(3, 5, 0.1), OneHotBernoulli(3, 5)]
    emission = PerLevel(parts)
    states = all_states(emission, 40)
    for level, part in enumerate(parts):
        x = sample(emission, states, level=level)
        assert np.array_equal(x, sample(part, states, level=level))
        assert x.dtype == np.float32


def test_perlevel_refuses_a_part_with_other_levels():
    with pytest.raises(ValueError, match=r"emissions\[0\] has 2 levels, but there are 5 emissions"):
        PerLevel([StateAndLevel(3, 2, 0.1)] * 5)


def test_a_level_or_a_state_that_does_not_exist_is_an_error():
    emission = StateAndLevel(3, 2, 0.1)
    for level, state in [(2, 0), (0, 5), (0, -6)]:
        with pytest.raises(IndexError):
            sample(emission, [0, state], level=level)


def test_perlevel_passes_the_level_on():
    emission = PerLevel([Louder(2, 4)] * 3)
    for level in range(3):
        x = sample(emission, [0, 1], level=level)
        assert np.array_equal(x, sample(Louder(2, 4), [0, 1], level=level))


def test_perlevel_has_the_attributes_of_all_its_parts():
    bits, cut = OneHotBernoulli(3, 5), OneHotGaussian(3, 5, 0.1, truncate=True)
    only_bits, mixed = PerLevel([bits, bits]), PerLevel([bits, cut, bits])
    assert (only_bits.finite, only_bits.n_levels, only_bits.dtype) == (True, 2, np.int8)
    assert (mixed.finite, mixed.n_levels, mixed.dtype) == (False, 3, np.float32)
    assert (mixed.low, mixed.high, mixed.stationary) == (-0.5, 1.5, False)
    assert (mixed.n_states, mixed.dim) == (3, 8)


def test_perlevel_without_emissions_raises():
    with pytest.raises(ValueError, match="PerLevel: emissions must not be empty"):
        PerLevel([])


def test_parts_of_perlevel_that_differ_in_size_raise_with_their_index():
    good = OneHotBernoulli(3, 5)
    for odd in (OneHotBernoulli(2, 5), OneHotBernoulli(3, 6)):
        with pytest.raises(ValueError, match=r"PerLevel: emissions\[2\] has . states and . dim"):
            PerLevel([good, good, odd, good])


# --- emissions of users ---------------------------------------------------------------------------
def test_an_emission_of_a_user_works_in_a_block_mdp():
    m = BlockMDP([0.5, 0.5], np.full((2, 2, 3, 2), 0.5), [0.0, 1.0], emission=Shifted(2))
    assert m.optimal_value() == 1.0
    x = sample(m.emission, [0] * 20_000 + [1] * 20_000, seed=9)[:, 0]
    assert stats.kstest(x[:20_000], "norm").pvalue > ALPHA
    assert stats.kstest(x[20_000:] - 1, "norm").pvalue > ALPHA
    assert (m.emission.finite, m.emission.stationary, m.emission.n_levels) == (False, True, None)
    assert "Shifted" in repr(m)


def test_an_emission_without_sample_cannot_be_made():
    class Nothing(Emission):
        n_states, dim = 2, 1

    with pytest.raises(TypeError, match="sample"):
        Nothing()


# --- parameters for each state --------------------------------------------------------------------
def test_bits_and_categories_have_their_probabilities() -> None:
    n = 30_000
    bits = Bits([[0.0, 0.3, 1.0], [0.5, 0.9, 0.2]])
    states = all_states(bits, n)
    x = sample(bits, states, seed=11)
    for s in range(2):
        assert np.abs(x[states == s].mean(axis=0) - bits.p[s]).max() < 0.02
    assert not x[states == 0, 0].any()
    assert x[states == 0, 2].all()
    parts = [[[0.2, 0.8], [1.0, 0.0]], [[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]]]
    categories = Categories(parts)
    assert categories.p.shape == (2, 2, 3)
    x = sample(categories, states, seed=12)
    for j, part in enumerate(np.array(p) for p in parts):
        for s in range(2):
            counts = np.bincount(x[states == s, j], minlength=part.shape[1])
            assert not counts[part[s] == 0].any()
            expected = part[s] * counts.sum()
            seen = part[s] > 0
            if seen.sum() > 1:
                assert stats.chisquare(counts[seen], expected[seen]).pvalue > ALPHA


def test_a_category_without_probability_never_appears_at_the_end_of_the_unit_interval() -> None:
    thirds = Categories([[[1 / 3, 1 / 3, 1 / 3, 0.0]]])
    assert thirds._thresholds[0, 0, 2] == 1.0
    assert thirds._thresholds[0, 0, 1] < 1.0


def test_counts_are_poisson() -> None:
    rates = [0.1, 1.5, 20.0, 400.0]
    emission = Counts([rates])
    x = sample(emission, np.zeros(40_000), seed=13)
    for j, rate in enumerate(rates):
        top = int(stats.poisson.ppf(0.999, rate))
        counts = np.bincount(np.minimum(x[:, j], top), minlength=top + 1)
        p = stats.poisson.pmf(np.arange(top + 1), rate)
        p[-1] = stats.poisson.sf(top - 1, rate)
        usual = p * len(x) > 5
        expected = p[usual] / p[usual].sum() * counts[usual].sum()
        assert stats.chisquare(counts[usual], expected).pvalue > ALPHA
    assert np.abs(np.corrcoef(x.T)[np.triu_indices(4, 1)]).max() < 0.03


def test_observations_of_a_state_lie_in_its_subspace() -> None:
    vectors = np.random.default_rng(2).normal(size=(3, 2, 6))
    emission = Subspaces(vectors)
    states = all_states(emission, 3000)
    x = sample(emission, states, seed=14)
    for s in range(3):
        rows = x[states == s]
        assert np.linalg.matrix_rank(rows, tol=1e-9) == 2
        assert np.abs(rows.T @ rows / len(rows) - vectors[s].T @ vectors[s]).max() < 1.0
    noisy = sample(Subspaces(vectors, 0.5), states, seed=14)
    assert (noisy - x).std() == pytest.approx(0.5, rel=0.02)


def test_draws_of_states_with_parameters_are_the_same_without_the_compiler() -> None:
    keys = rng.children(rng.root(5), 0, 40)
    for name in ("Bits", "Categories", "Counts"):
        emission = EMISSIONS[name]
        states = all_states(emission, 40)
        arguments = keys, states, emission._thresholds
        plain = interpreted(numbers_by_threshold)(*arguments)
        assert np.array_equal(plain, numbers_by_threshold(*arguments))
        assert np.array_equal(plain, emission.sample(0, states, keys))
        u = rng.uniforms(keys, emission.dim)
        below = emission._thresholds[states] <= u[:, :, None]
        assert np.array_equal(plain, below.sum(axis=2))
    vectors, states = EMISSIONS["Subspaces"].vectors, np.arange(40) % 3
    plain = interpreted(in_subspaces)(keys, states, vectors, 0.1)
    assert plain.tobytes() == in_subspaces(keys, states, vectors, 0.1).tobytes()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bits([[0.5, 1.5]]), r"Bits: p\[0\]\[1\] must be in \[0, 1\], got 1.5"),
        (lambda: Bits([0.5]), r"Bits: p must have 2 dimensions, none empty, got \(1,\)"),
        (lambda: Categories([[[0.5, 0.4]]]), r"the sum of p\[0\]\[0\] must be 1, got 0.9"),
        (lambda: Categories([[0.5, 0.5], [1.0]]), "one array .n_states, m_j. for each coordinate"),
        (lambda: Categories([]), "one array .n_states, m_j. .* got the shapes none"),
        (lambda: Categories(0.5), "one array .n_states, m_j. .* got the shapes none"),
        (lambda: Categories("abc"), "Categories: p must be numbers .*, got 'a'"),
        (lambda: Categories([[["1", "0"]]]), "Categories: p must be numbers .*'1', '0'"),
        (lambda: Bits([["0.5"]]), r"Bits: p must be numbers .*, got \[\['0.5'\]\]"),
        (lambda: Bits([[0.5], [0.5, 0.5]]), "Bits: p must be numbers in rows of the same length"),
        (lambda: Counts("many"), "Counts: rates must be numbers .*, got 'many'"),
        (lambda: Subspaces([[["x"]]]), "Subspaces: vectors must be numbers"),
        (lambda: Subspaces([[[1.0]]], "x"), "Subspaces: sigma must be a number >= 0, got 'x'"),
        (lambda: Counts([[600.0]]), r"rates\[0\]\[0\] must be at most 500, got 600"),
        (lambda: Counts([[-1.0]]), r"rates\[0\]\[0\] must be finite and >= 0, got -1"),
        (lambda: Subspaces([[[np.nan]]]), r"vectors\[0\]\[0\]\[0\] must be finite"),
        (lambda: Subspaces([[[1.0]]], -1), "sigma must be a number >= 0, got -1"),
    ],
)
def test_wrong_parameters_are_named(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
