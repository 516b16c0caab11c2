"""Random numbers: their distributions, their independence, and that key and index determine them.

The statistical tests have fixed seeds, so they always pass or always fail. A correct generator
would fail with one in 10^4 choices of seeds.
"""

from __future__ import annotations

import inspect
import itertools
import math

import numba
import numpy as np
import pytest
from helpers import numbers, python
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from threadpoolctl import threadpool_limits

from blockmdp import rng, streams

ALPHA = 1e-4
SEEDS = [0, 1, 2**63 + 5]
KEYS = st.integers(0, 2**64 - 1).map(np.uint64)

exact = settings(deadline=None, max_examples=30)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Use one thread: the matrices here are thin, and threads would wait for each other."""
    with threadpool_limits(1):
        yield


# --- loops over scalar functions ------------------------------------------------------------------
@numba.njit
def draws(keys, start, d):
    """draw(keys[n], start + j), (n, d)."""
    out = np.empty((len(keys), d), np.uint64)
    for n in range(len(keys)):
        for j in range(d):
            out[n, j] = rng.draw(keys[n], start + j)
    return out


@numba.njit
def steps(keys, h):
    """step(keys[n], h), (n,)."""
    out = np.empty(len(keys), np.uint64)
    for n in range(len(keys)):
        out[n] = rng.step(keys[n], h)
    return out


@numba.njit
def roots(start, n, stream):
    """root(start + i, stream), (n,)."""
    out = np.empty(n, np.uint64)
    for i in range(n):
        seed = np.uint64(start) + np.uint64(i)
        out[i] = rng.child(np.uint64(rng.child(seed, 0)), stream)
    return out


@numba.njit
def integers(keys, d, m):
    """Count how often integer(key, j, m) is each of 0, ..., m - 1, (m,)."""
    out = np.zeros(m, np.int64)
    for n in range(len(keys)):
        for j in range(d):
            out[rng.integer(keys[n], j, m)] += 1
    return out


@numba.njit
def normal_histogram(key, n, d, per_unit, half):
    """Count normal(child(key, i), j), i < n, j < d, in bins of 1 / per_unit from -half to half."""
    bins = 2 * half * per_unit
    out = np.zeros(bins, np.int64)
    for i in range(n):
        c = np.uint64(rng.child(key, i))
        for j in range(d):
            b = math.floor(rng.normal(c, j) * per_unit) + half * per_unit
            out[min(max(b, 0), bins - 1)] += 1
    return out


def unmix(z: np.ndarray) -> np.ndarray:
    """Invert the scrambling of SplitMix64: unmix(mix(z)) = z."""

    def unshift(z, n):
        x = z
        for _ in range(64 // n):
            x = z ^ (x >> np.uint64(n))
        return x

    z = unshift(z, 31) * np.uint64(pow(0x94D049BB133111EB, -1, 2**64))
    z = unshift(z, 27) * np.uint64(pow(0xBF58476D1CE4E5B9, -1, 2**64))
    return unshift(z, 30)


def keys_that_draw(z) -> np.ndarray:
    """Return keys whose first draws are z."""
    z = np.array(z, np.uint64)
    keys = unmix(z)
    assert np.array_equal(draws(keys, 0, 1)[:, 0], z)
    return keys


def key_that_draws(z: int) -> np.uint64:
    return keys_that_draw([z])[0]


def keys_of(seed: int, n: int) -> np.ndarray:
    return rng.children(rng.root(seed), 0, n)


def chi_square(counts: np.ndarray) -> float:
    return float(stats.chisquare(counts).pvalue)


# --- uniform numbers ------------------------------------------------------------------------------
def test_draws_are_the_published_outputs_of_splitmix64():
    for key, outputs in (
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]),
    ):
        assert [int(rng.draw(np.uint64(key), i)) for i in (1, 2, 3)] == outputs


@exact
@given(st.integers(0, 2**64 - 1))
def test_scrambling_is_one_to_one(z):
    assert int(rng.mix(key_that_draws(z))) == z
    assert int(unmix(np.array([rng.mix(np.uint64(z))], np.uint64))[0]) == z


def test_uniforms_are_uniform():
    for seed in SEEDS:
        u = rng.uniforms(keys_of(seed, 50_000), 5)
        assert stats.kstest(u.ravel(), "uniform").pvalue > ALPHA
        for j in range(5):
            assert stats.kstest(u[:, j], "uniform").pvalue > ALPHA


def test_successive_uniforms_of_one_stream_are_uniform():
    for seed in SEEDS:
        u = rng.uniforms(np.array([rng.root(seed)]), 200_000)
        assert stats.kstest(u.ravel(), "uniform").pvalue > ALPHA


def test_low_middle_and_high_bits_of_draws_are_uniform():
    for seed in SEEDS:
        z = draws(keys_of(seed, 50_000), 0, 5).ravel()
        for shift in (0, 26, 52):
            part = (z >> np.uint64(shift)) & np.uint64(4095)
            assert chi_square(np.bincount(part.astype(np.int64), minlength=4096)) > ALPHA


def test_the_number_of_ones_in_a_draw_is_binomial():
    binomial = stats.binom(64, 0.5)
    p = np.array([binomial.cdf(18), *binomial.pmf(range(19, 46)), binomial.sf(45)])
    for seed in SEEDS:
        ones = np.bitwise_count(draws(keys_of(seed, 50_000), 0, 5).ravel())
        counts = np.bincount(np.clip(ones, 18, 46).astype(np.int64) - 18, minlength=29)
        assert stats.chisquare(counts, p * ones.size).pvalue > ALPHA


@exact
@given(KEYS, st.integers(0, 2**40))
def test_a_uniform_is_the_top_53_bits_of_its_draw(key, i):
    assert rng.uniform(key, i) == (int(rng.draw(key, i)) >> 11) / 2**53


def test_uniform_never_reaches_one_and_can_be_zero():
    last = key_that_draws(2**64 - 1)
    assert rng.uniform(last, 0) == 1 - 2.0**-53
    assert rng.uniforms(np.array([last]), 1)[0, 0] == 1 - 2.0**-53
    assert rng.uniform(key_that_draws(0), 0) == 0.0


def test_integers_are_uniform_over_their_range():
    keys = keys_of(11, 50_000)
    for n in (1, 2, 3, 4, 7, 10, 97, 1000):
        counts = integers(keys, 4, n)
        assert counts.sum() == 200_000
        assert n == 1 or chi_square(counts) > ALPHA


def test_integer_stays_below_n_for_the_largest_draw():
    last, first = key_that_draws(2**64 - 1), key_that_draws(0)
    for n in (1, 2, 3, 7, 10, 1000, 2**31 - 1, 2**31, 2**52 + 1):
        assert rng.integer(last, 0, n) == n - 1
        assert rng.integer(first, 0, n) == 0


# --- normal numbers -------------------------------------------------------------------------------
def test_normals_are_normal():
    for seed in SEEDS:
        x = rng.normals(keys_of(seed, 50_000), 5)
        assert stats.kstest(x.ravel(), "norm").pvalue > ALPHA
        for j in range(5):
            assert stats.kstest(x[:, j], "norm").pvalue > ALPHA


def test_normals_have_the_moments_of_the_normal_distribution():
    moments = [1, 0, 1, 0, 3, 0, 15, 0, 105, 0, 945, 0, 10395]  # E x^0, ..., E x^12
    for seed in SEEDS:
        x = rng.normals(keys_of(seed, 100_000), 4).ravel()
        power = np.ones_like(x)
        for k in range(1, 7):
            power *= x
            spread = math.sqrt(moments[2 * k] - moments[k] ** 2)
            z = (power.mean() - moments[k]) / spread * math.sqrt(x.size)
            assert abs(z) < 4, (k, z)


@pytest.fixture(scope="module")
def histogram():
    """Counts of 5e7 normals in bins of width 1/20 from -6 to 6."""
    return normal_histogram(rng.root(4), 3_125_000, 16, 20, 6)


def test_normal_tails_past_four_sigma_have_the_right_weight(histogram):
    n = int(histogram.sum())
    assert n == 50_000_000
    for one_sided in (histogram, histogram[::-1]):
        for sigmas in (4.0, 4.5, 5.0):
            beyond = int(one_sided[round(20 * (6 + sigmas)) :].sum())
            assert stats.binomtest(beyond, n, stats.norm.sf(sigmas)).pvalue > ALPHA


def test_every_twentieth_of_a_sigma_has_the_right_weight(histogram):
    edges = np.arange(-6, 6 + 1e-9, 1 / 20)
    p = np.diff(stats.norm.cdf(edges))
    p[0] += stats.norm.cdf(-6)
    p[-1] += stats.norm.sf(6)
    expected = p * histogram.sum()
    common = expected >= 20
    counts = np.append(histogram[common], histogram[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    expected *= counts.sum() / expected.sum()
    assert stats.chisquare(counts, expected).pvalue > ALPHA


def test_the_two_signs_are_equally_likely_at_every_distance(histogram):
    right, left = histogram[120:], histogram[:120][::-1]
    both = right + left
    z = (right - left)[both > 20] / np.sqrt(both[both > 20])
    assert np.abs(z).max() < 5
    assert stats.chi2.sf((z**2).sum(), len(z)) > ALPHA


def test_draws_in_the_tail_of_the_ziggurat_have_the_distribution_of_the_normal_tail():
    inside = np.uint64(rng._INSIDE[0])
    for sign in (0, 1):
        u = rng.uniforms(np.array([rng.root(5, sign)]), 200_000)[0]
        m = inside + (u * float(2**52 - int(inside))).astype(np.uint64)
        keys = keys_that_draw(m << np.uint64(12) | np.uint64(sign << 8))  # of layer 0, the lowest
        x = rng.normals(keys, 1)[:, 0] * (-1 if sign else 1)
        assert x.min() >= rng._R
        beyond = np.exp(stats.norm.logsf(x) - stats.norm.logsf(rng._R))
        assert stats.kstest(beyond, "uniform").pvalue > ALPHA


def test_a_draw_in_the_tail_is_repeated_until_it_is_accepted():
    def next_uniform(z):
        z = rng.mix(np.uint64((int(z) + int(rng._GOLDEN)) % 2**64))
        return z, ((int(z) >> 11) + 1) * 2.0**-53

    rejected = []
    for i in range(5_000):
        z = start = np.uint64(int(rng.mix(np.uint64(i))) & ~0xFF | 0xFFF << 52)  # in layer 0
        x, y, count = 1.0, 0.0, -1
        while 2.0 * y < x * x:
            z, u = next_uniform(z)
            z, v = next_uniform(z)
            x, y, count = -math.log(u) / rng._R, -math.log(v), count + 1
        rejected.append(count)
        assert abs(rng._normal_edge(start)) == rng._R + x
    assert max(rejected) > 1  # some were rejected twice


def test_the_layers_of_the_ziggurat_have_equal_areas():
    x, f = rng._X, rng._F
    assert np.all(np.diff(x) < 0)
    assert x[256] == 0
    np.testing.assert_allclose(x[1:256] * np.diff(f)[1:], rng._V, rtol=1e-8)
    tail = math.sqrt(math.pi / 2) * math.erfc(x[1] / math.sqrt(2))
    assert x[1] * f[1] + tail == pytest.approx(rng._V, rel=1e-8)


def test_normals_do_not_repeat():
    for seed in SEEDS:
        x = rng.normals(keys_of(seed, 50_000), 5)
        assert np.unique(x).size == x.size


# --- truncated normal numbers ---------------------------------------------------------------------
def test_truncated_normals_have_the_truncated_distribution():
    keys = keys_of(21, 20_000)
    for bound in (4.99, 2.495, 1.2, 1.000001, 1.0, 0.998, 0.499, 0.05):
        x = rng.truncated_normals(keys, 5, bound)
        assert np.abs(x).max() <= bound
        truncated = stats.truncnorm(-bound, bound)
        assert stats.kstest(x.ravel(), truncated.cdf).pvalue > ALPHA
        second, fourth = truncated.moment(2), truncated.moment(4)
        assert abs(np.mean(x**2) - second) < 4 * math.sqrt((fourth - second**2) / x.size)
        assert np.abs(x).max() > 0.97 * min(bound, 4.0)  # and comes close to it


def test_truncated_normals_are_uncorrelated_across_coordinates_and_keys():
    for bound in (2.495, 0.499):
        x = rng.truncated_normals(keys_of(22, 50_000), 6, bound)
        x = np.hstack([x[:-1], x[1:]])
        z = np.corrcoef(x.T) * math.sqrt(len(x))
        assert np.abs(z[np.triu_indices(12, 1)]).max() < 4.8


def test_a_bound_of_zero_leaves_only_zero():
    assert np.all(rng.truncated_normals(keys_of(0, 50), 4, 0.0) == 0)


def test_an_infinite_bound_truncates_nothing():
    keys = keys_of(23, 50_000)
    x = rng.truncated_normals(keys, 4, math.inf)
    assert stats.kstest(x.ravel(), "norm").pvalue > ALPHA


# --- bits -----------------------------------------------------------------------------------------
def test_bits_are_fair_and_uncorrelated_beyond_sixty_four():
    for seed in SEEDS:
        b = rng.bits(keys_of(seed, 20_000), 200)
        assert b.dtype == np.int8
        assert set(np.unique(b)) == {0, 1}
        z = (2.0 * b.mean(axis=0) - 1) * math.sqrt(len(b))
        assert np.abs(z).max() < 4.9
        signs = 2 * b.astype(np.float32) - 1
        across = signs.T @ signs / math.sqrt(len(b))
        assert np.abs(across[np.triu_indices(200, 1)]).max() < 6.0
        below = signs[:-1].T @ signs[1:] / math.sqrt(len(b) - 1)
        assert np.abs(below).max() < 6.1


@exact
@given(KEYS, st.integers(0, 260))
def test_bits_are_those_of_successive_draws_from_the_highest_to_the_lowest(key, d):
    text = "".join(f"{int(rng.draw(key, i)):064b}" for i in range(5))
    assert "".join(map(str, rng.bits(np.array([key]), d)[0])) == text[:d]


# --- independence ---------------------------------------------------------------------------------
N = 20_000


def _neighbouring_indices(seed):
    z = draws(np.array([rng.root(seed)]), 0, N + 1)[0]
    return z[:-1], z[1:]


def _neighbouring_keys(seed):
    z = draws(keys_of(seed, N + 1), 0, 1)[:, 0]
    return z[:-1], z[1:]


def _neighbouring_keys_and_indices(seed):
    z = draws(keys_of(seed, N + 1), 0, 2)
    return z[:-1, 1], z[1:, 0]


def _two_streams_of_one_seed(seed):
    z = [draws(np.array([rng.root(seed, stream)]), 0, N)[0] for stream in (1, 2)]
    return z[0], z[1]


def _two_streams_across_seeds(seed):
    z = [draws(roots(seed, N, stream), 0, 1)[:, 0] for stream in (0, 1)]
    return z[0], z[1]


def _neighbouring_seeds(seed):
    z = draws(roots(seed, N + 1, 1), 0, 1)[:, 0]
    return z[:-1], z[1:]


def _the_same_child_of_neighbouring_seeds(seed):
    keys = roots(seed, N + 1, 1)
    z = draws(np.array([rng.children(k, 7, 1)[0] for k in keys]), 0, 1)[:, 0]
    return z[:-1], z[1:]


def _neighbouring_steps(seed):
    keys = keys_of(seed, N)
    return draws(steps(keys, 3), 0, 1)[:, 0], draws(steps(keys, 4), 0, 1)[:, 0]


def _successive_steps_of_one_key(seed):
    z = np.concatenate([draws(steps(keys_of(seed, 1), h), 0, 1)[0] for h in range(N + 1)])
    return z[:-1], z[1:]


def _indices_of_neighbouring_steps(seed):
    keys = keys_of(seed, N)
    return draws(steps(keys, 3), 1, 1)[:, 0], draws(steps(keys, 4), 0, 1)[:, 0]


def _a_key_and_its_children(seed):
    key = rng.root(seed)
    return draws(np.array([key]), 0, N)[0], rng.children(key, 0, N)


def _a_key_and_what_its_children_draw(seed):
    key = rng.root(seed)
    return draws(np.array([key]), 0, N)[0], draws(rng.children(key, 0, N), 0, 1)[:, 0]


def _what_children_draw_and_what_grandchildren_draw(seed):
    keys = keys_of(seed, N)
    grandchildren = np.concatenate([rng.children(k, 0, 1) for k in keys])
    return draws(keys, 0, 1)[:, 0], draws(grandchildren, 0, 1)[:, 0]


PAIRS = [
    _neighbouring_indices,
    _neighbouring_keys,
    _neighbouring_keys_and_indices,
    _two_streams_of_one_seed,
    _two_streams_across_seeds,
    _neighbouring_seeds,
    _the_same_child_of_neighbouring_seeds,
    _neighbouring_steps,
    _successive_steps_of_one_key,
    _indices_of_neighbouring_steps,
    _a_key_and_its_children,
    _a_key_and_what_its_children_draw,
    _what_children_draw_and_what_grandchildren_draw,
]


def test_related_draws_are_independent():
    for pair in PAIRS:
        check_independent(*pair(seed=0))


def check_independent(a, b):
    n = len(a)
    assert np.unique(a).size == np.unique(b).size == n
    # as numbers
    u, v = (a >> np.uint64(11)) * 2.0**-53, (b >> np.uint64(11)) * 2.0**-53
    assert abs(np.corrcoef(u, v)[0, 1]) * math.sqrt(n) < 4
    assert stats.kstest((u - v) % 1.0, "uniform").pvalue > ALPHA
    assert stats.kstest((u + v) % 1.0, "uniform").pvalue > ALPHA
    # as pairs of their highest and of their lowest bits
    for shift in (60, 0):
        i, j = (((z >> np.uint64(shift)) & np.uint64(15)).astype(np.int64) for z in (a, b))
        assert chi_square(np.bincount(16 * i + j, minlength=256)) > ALPHA
    # bit by bit
    s, t = (np.unpackbits(z.view(np.uint8).reshape(n, 8), axis=1) for z in (a.copy(), b.copy()))
    z = (2 * s.astype(np.float32) - 1).T @ (2 * t.astype(np.float32) - 1) / math.sqrt(n)
    assert np.abs(z).max() < 5.8


def test_neighbouring_rows_and_columns_are_uncorrelated():
    for function in (rng.normals, rng.uniforms):
        x = function(keys_of(31, 50_000), 8)
        x = np.hstack([x[:-1], x[1:], x[:-1] ** 2])
        z = np.corrcoef(x.T) * math.sqrt(len(x))
        upper = np.triu_indices(24, 1)
        own_square = (upper[1] - upper[0]) == 16
        assert np.abs(z[upper][~own_square]).max() < 5


def test_no_two_draws_of_an_episode_are_the_same():
    episode = keys_of(7, 1)
    z = draws(np.concatenate([steps(episode, h) for h in range(2000)]), 0, 100)
    assert np.unique(z).size == z.size


def test_the_uses_of_a_seed_share_no_key():
    keys = []
    for seed, name in itertools.product(range(40), streams.__all__):
        use = getattr(streams, name)
        others = len(inspect.signature(use).parameters) - 1  # parameters after the seed
        keys += [use(seed, *arguments) for arguments in np.ndindex((6, 3)[:others])]
    keys += [c for k in keys[:200] for c in rng.children(k, 0, 50)]
    assert all(isinstance(k, np.uint64) for k in keys)
    assert len({int(k) for k in keys}) == len(keys)


def test_a_seed_outside_64_bits_raises():
    for seed in (-1, 2**64):
        with pytest.raises((OverflowError, ValueError)):
            rng.root(seed)


# --- known values ---------------------------------------------------------------------------------
def test_known_values():
    """A change here changes all results of all users."""
    assert [rng.root(0), rng.root(0, 1), rng.root(1), rng.root(2**64 - 1, 4)] == [
        0xFE4971F11C8B08A0,
        0x177556FB7E53193A,
        0x7F5340F0B73420B2,
        0xEF1B52077363313B,
    ]
    assert streams.noise(3, 2, 1) == 0xCDA858FFEA4A3FE7
    key = rng.root(12345, 3)
    assert key == 0x426B3ECDBDDD152A
    for function, i, value in (
        (rng.draw, 0, 0x4B6F47887468BBD7),
        (rng.draw, 1, 0xE84BFF0E9EAC1EB0),
        (rng.draw, 10**12, 0xD1199B4D1A5CFBA2),
        (rng.child, 0, 0x1B5BC51F4F585A76),
        (rng.child, 1, 0x7100B80DB0781DF1),
        (rng.child, 10**12, 0xE54CE4AE8A5C8ABD),
        (rng.step, 0, 0x426B3ECDBDDD152A),
        (rng.step, 1, 0x139F64119C6004BF),
        (rng.step, 19, 0xC94A02D74194DD39),
    ):
        assert int(function(key, i)) == value, (function, i)
    assert [rng.integer(key, i, 10) for i in range(12)] == [2, 9, 0, 0, 5, 0, 0, 7, 0, 5, 1, 0]
    keys = np.array([key])
    assert "".join(map(str, rng.bits(keys, 70)[0])) == (
        "0100101101101111010001111000100001110100011010001011101111010111111010"
    )
    for row, known in (
        (rng.uniforms(keys, 2), "0x1.2dbd1e21d1a2ep-2 0x1.d097fe1d3d583p-1"),
        (rng.normals(keys, 2), "-0x1.129420674c244p-2 0x1.1958e2a50ff2ap+0"),
        (rng.truncated_normals(keys, 2, 2.495), "-0x1.29d1b1ede2fddp+1 -0x1.08c3b5e257bfbp+0"),
        (rng.truncated_normals(keys, 2, 0.499), "0x1.c4d6e66c6d6cdp-3 0x1.791d7637450e2p-2"),
    ):
        assert [x.hex() for x in row[0].tolist()] == known.split()
    below = rng.children(key, 0, 3000)
    for i, value in (
        (297, "0x1.09dfca59186e9p-4"),  # rejected at the edge of a layer and drawn again
        (356, "-0x1.5eab9811f5c33p-2"),  # accepted at the edge of a layer
    ):
        assert rng.normal(below[i], 0).hex() == value
    # the tail depends on the logarithm of the platform
    assert rng.normal(below[1475], 0) == pytest.approx(-3.846294104830807, rel=1e-14)


# --- scalars and arrays, batches ------------------------------------------------------------------
@exact
@given(KEYS, st.integers(0, 2**40))
def test_children_are_child_one_by_one(key, start):
    assert [int(c) for c in rng.children(key, start, 5)] == [
        int(rng.child(key, start + i)) for i in range(5)
    ]


@exact
@given(KEYS, st.integers(0, 70))
def test_arrays_hold_what_the_scalar_functions_return(key, d):
    keys = rng.children(key, 0, 3)
    cells = [[(k, j) for j in range(d)] for k in keys]
    for array, scalar in ((rng.uniforms, rng.uniform), (rng.normals, rng.normal)):
        x = array(keys, d)
        assert x.shape == (3, d)
        assert x.tolist() == [[scalar(k, j) for k, j in row] for row in cells]


VECTOR_FUNCTIONS = [
    rng.uniforms,
    rng.normals,
    lambda keys, d: rng.normals(keys, d, np.float32),
    lambda keys, d: rng.truncated_normals(keys, d, 2.495),
    lambda keys, d: rng.truncated_normals(keys, d, 0.499),
    rng.bits,
]


@settings(deadline=None, max_examples=60)
@given(function=st.sampled_from(VECTOR_FUNCTIONS), data=st.data())
def test_results_do_not_depend_on_batching(function, data):
    keys = rng.children(data.draw(KEYS), 0, data.draw(st.integers(0, 40)))
    d = data.draw(st.integers(0, 80))
    whole = function(keys, d)
    assert whole.shape == (len(keys), d)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=5)))
    parts = [function(part, d) for part in np.split(keys, cuts)]
    assert np.array_equal(np.concatenate(parts), whole)
    order = np.array(data.draw(st.permutations(range(len(keys)))), np.int64)
    assert np.array_equal(function(keys[order], d), whole[order])
    fewer = data.draw(st.integers(0, d))
    assert np.array_equal(function(keys, fewer), whole[:, :fewer])


def test_keys_need_not_be_contiguous():
    keys = keys_of(5, 40)
    for function in (rng.uniforms, rng.normals, rng.bits):
        assert np.array_equal(function(keys[::-3], 9), function(keys[::-3].copy(), 9))


def test_float32_numbers_are_the_float64_ones_rounded():
    keys = keys_of(6, 1000)
    for x, y in (
        (rng.normals(keys, 7), rng.normals(keys, 7, np.float32)),
        (rng.truncated_normals(keys, 7, 2.0), rng.truncated_normals(keys, 7, 2.0, np.float32)),
    ):
        assert y.dtype == np.float32
        assert np.array_equal(x.astype(np.float32), y)


# --- compiled and interpreted ---------------------------------------------------------------------
def ziggurat_edges() -> np.ndarray:
    """Return keys whose first draw is next to the inner edge of a layer, beyond it, or at zero."""
    z = []
    for layer in range(256):
        inside = int(rng._INSIDE[layer])
        for m in {0, max(inside - 1, 0), inside, (inside + 2**52) // 2, 2**52 - 1}:
            z += [m << 12 | sign << 8 | layer for sign in (0, 1)]
    return keys_that_draw(z)


def tail_keys(n: int) -> np.ndarray:
    """Return keys whose first normal number is in the tail of the ziggurat."""
    keys = keys_of(41, 5_000 * n)
    tail = keys[np.abs(rng.normals(keys, 1)[:, 0]) > rng._R]
    assert len(tail) >= n
    return tail[:n]


@pytest.mark.integration
def test_without_the_compiler_all_numbers_are_the_same(tmp_path):
    keys = np.concatenate([ziggurat_edges(), tail_keys(100), keys_of(42, 2000)])
    np.save(tmp_path / "keys.npy", keys)
    code = (
        "import numpy as np, helpers\n"
        f"keys = np.load({str(tmp_path / 'keys.npy')!r})\n"
        f"np.savez({str(tmp_path / 'numbers.npz')!r}, **helpers.numbers(keys, compiled=False))"
    )
    python(code, env={"NUMBA_DISABLE_JIT": "1"})
    compiled, interpreted = numbers(keys, compiled=True), np.load(tmp_path / "numbers.npz")
    assert (np.abs(compiled["first normals"]) > rng._R).sum() > 100
    assert set(compiled) == set(interpreted)
    for name, a in compiled.items():
        b = interpreted[name]
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert a.tobytes() == b.tobytes(), name


def test_bits_can_be_written_to_a_part_of_an_array():
    keys = rng.children(rng.root(1), 0, 5)
    x = np.full((5, 80), 7, np.int8)
    rng.bits(keys, 70, out=x[:, 3:73])
    assert np.array_equal(x[:, 3:73], rng.bits(keys, 70))
    assert (x[:, :3] == 7).all()
    assert (x[:, 73:] == 7).all()
    with pytest.raises(ValueError, match=r"out must have shape \(5, 70\), got \(5, 80\)"):
        rng.bits(keys, 70, out=x)
