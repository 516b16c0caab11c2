"""Summaries of runs, against computations by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from blockmdp.experiments.statistics import (
    average_curve,
    bootstrap,
    iqm,
    median_with_censoring,
    permutation_test,
    quartiles,
    resamples,
    sliding_curve,
    solved_at,
    thin,
    wilson,
)


# --- points of a curve ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("n", "points", "at"),
    [
        (1, 200, [1]),
        (5, 200, [1, 2, 3, 4, 5]),
        (10, 4, [2, 5, 8, 10]),
        (1000, 2, [500, 1000]),
        (7, 1, [7]),
    ],
)
def test_a_thinned_curve_has_evenly_spaced_points(n, points, at):
    assert thin(n, points).tolist() == at


def test_a_thinned_curve_has_200_points_and_ends_with_the_last_episode():
    for n in (200, 201, 399, 20_000, 10**12):
        at = thin(n)
        assert len(at) == 200
        assert at[-1] == n
        assert at.dtype == np.int64
        steps = np.diff(at)
        assert steps.min() >= 1
        assert steps.max() - steps.min() <= 1


def test_the_average_is_of_all_returns_so_far():
    n, total = np.array([1, 2, 4]), np.array([0.0, 1.0, 3.0])
    assert average_curve(n, total).tolist() == [0.0, 0.5, 0.75]


def test_the_sliding_average_is_of_the_last_returns():
    # returns 0 1 1 0 0 1 at every episode, a window of 2: 0/1, 1/2, 2/2, 1/2, 0/2, 1/2
    total = np.cumsum([0.0, 1.0, 1.0, 0.0, 0.0, 1.0])
    n = np.arange(1, 7)
    assert sliding_curve(n, total, window=2).tolist() == [0.0, 0.5, 1.0, 0.5, 0.0, 0.5]
    assert np.array_equal(sliding_curve(n, total, window=6), average_curve(n, total))
    assert np.array_equal(sliding_curve(n, total, window=100), average_curve(n, total))


def test_the_sliding_average_of_a_thinned_curve_interpolates_where_the_window_begins():
    # totals 0, 4, 8 after 10, 20, 30 episodes; 5 before 20 the total is taken as 2
    n, total = np.array([10, 20, 30]), np.array([0.0, 4.0, 8.0])
    assert sliding_curve(n, total, window=5).tolist() == [0.0, 0.4, 0.4]
    assert sliding_curve(n, total, window=10).tolist() == [0.0, 0.4, 0.4]
    assert sliding_curve(n, total, window=15).tolist() == [0.0, 4 / 15, 6 / 15]


# --- solved ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("window", "threshold", "at"),
    [
        (2, 0.9, 5),
        (2, 0.5, 5),  # exceeds, not reaches
        (2, 0.45, 2),
        (2, 1.0, None),
        (1, 0.5, 1),
        (6, 0.4, 6),
        (6, 0.5, None),
        (7, 0.1, None),  # there never were 7 episodes
        (10**12, -5.0, None),
    ],
)
def test_a_run_is_solved_once_its_last_returns_exceed_the_threshold(window, threshold, at):
    assert solved_at(np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0]), threshold, window) == at


def test_returns_may_be_negative():
    assert solved_at(np.array([-9.0, -2.0, -2.0]), -3.0, window=2) == 3


# --- intervals ------------------------------------------------------------------------------------
def test_wilson_s_interval_is_that_of_the_formula():
    z, n, p = 1.959963984540054, 10, 0.3
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    assert wilson(3, 10) == pytest.approx((centre - half, centre + half), abs=1e-12)
    assert wilson(3, 10) == pytest.approx((0.10779, 0.60322), abs=5e-6)


def test_wilson_s_interval_stays_between_0_and_1():
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753), abs=5e-6)
    assert wilson(10, 10) == pytest.approx((0.72247, 1.0), abs=5e-6)
    for k in range(11):
        low, high = wilson(k, 10)
        assert 0 <= low <= k / 10 <= high <= 1
        assert wilson(10 - k, 10) == pytest.approx((1 - high, 1 - low))
    assert wilson(0, 0) == (0.0, 1.0)
    for n in range(1, 100):  # despite rounding
        assert wilson(n, n)[1] == 1.0
        assert wilson(0, n)[0] == 0.0


def test_wilson_s_interval_widens_with_confidence_and_narrows_with_runs():
    def width(*arguments):
        low, high = wilson(*arguments)
        return high - low

    assert width(5, 10, 0.9) < width(5, 10, 0.95) < width(5, 10, 0.99)
    assert width(500, 1000) < width(50, 100) < width(5, 10)


def test_the_bootstrap_s_interval_holds_the_mean_and_repeats():
    values = np.array([0.1, 0.2, 0.2, 0.5, 0.9, 0.4])
    low, high = bootstrap(values)
    assert values.min() < low < values.mean() < high < values.max()
    assert bootstrap(values) == (low, high)
    wide = bootstrap(values, confidence=0.99)
    assert wide[0] <= low
    assert high <= wide[1]


def test_the_bootstrap_s_interval_is_between_quantiles_of_the_resamples_means():
    values = np.array([0.1, 0.2, 0.2, 0.5, 0.9, 0.4])
    drawn = resamples(6)
    assert drawn.shape == (2000, 6)
    assert set(drawn.ravel()) == set(range(6))
    means = values[drawn].mean(axis=1)
    assert bootstrap(values) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_the_bootstrap_of_two_values_is_known():
    # means 0, 1/2, 1 with chances 1/4, 1/2, 1/4
    assert bootstrap(np.array([0.0, 1.0])) == (0.0, 1.0)
    assert bootstrap(np.array([0.0, 1.0]), confidence=0.3) == (0.5, 0.5)


@pytest.mark.parametrize("n", [200, 1000, 1001, 50_000])
def test_the_bootstrap_of_many_values_is_the_normal_interval(n):
    values = np.arange(n) / n
    half = 1.96 * values.std() / math.sqrt(n)
    assert bootstrap(values) == pytest.approx((0.5 - half, 0.5 + half), abs=0.15 * half + 0.5 / n)


def test_values_that_are_all_the_same_have_no_spread():
    assert bootstrap(np.array([0.3])) == (0.3, 0.3)
    assert bootstrap(np.full(5000, 0.25)) == (0.25, 0.25)


# --- means and medians ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([3.0], 3.0),
        ([1.0, 5.0], 3.0),
        ([0.0, 6.0, 30.0], (0.25 * 0 + 1 * 6 + 0.25 * 30) / 1.5),
        ([9.0, 0.0, 2.0, 1.0], 1.5),
        ([0.0, 1.0, 2.0, 3.0, 100.0], (0.75 * 1 + 1 * 2 + 0.75 * 3) / 2.5),
        (list(range(8)), 3.5),
        ([-1e9, 1.0, 1.0, 1e9], 1.0),
    ],
)
def test_the_interquartile_mean_is_that_of_the_middle_half(values, mean):
    assert iqm(np.array(values)) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([7], 7.0),
        ([None], math.inf),
        ([10, 20], 15.0),
        ([10, None], math.inf),
        ([None, 10, 20], 20.0),
        ([None, None, 10], math.inf),
        ([1, 2, 3, None], 2.5),
        ([1, 2, None, None], math.inf),
        ([5, None, 1, 2, None], 5.0),
    ],
)
def test_a_run_that_was_not_solved_counts_as_longer_than_all_others(values, median):
    assert median_with_censoring(values) == median


def test_the_mean_of_all_returns_can_be_the_measure():
    returns = np.array([0.0, 0.0, 1.0, 1.0, 1.0])
    assert solved_at(returns, 0.5, "all") == 5
    assert solved_at(returns, 0.6, "all") is None
    assert solved_at(np.array([1.0, 0.0]), 0.5, "all") == 1
    n = np.array([1, 2, 3, 4, 5])
    assert sliding_curve(n, np.cumsum(returns), "all") == pytest.approx(np.cumsum(returns) / n)


def test_quartiles_count_what_was_not_solved_as_longer_than_all():
    assert quartiles([1, 2, 3, 4, 5]) == (2.0, 3.0, 4.0)
    assert quartiles([7]) == (7.0, 7.0, 7.0)
    low, median, high = quartiles([1, 2, None, None])
    assert (low, median, high) == (1.0, np.inf, np.inf)


def test_strata_are_resampled_independently():
    assert np.array_equal(resamples(5, 10, stratum=1), resamples(5, 20)[10:])
    assert not np.array_equal(resamples(5, 10, stratum=1), resamples(5, 10))


def test_up_to_twelve_differences_all_signs_are_tried():
    assert permutation_test(np.arange(1.0, 13.0)) == 2 / 2**12
    drawn = permutation_test(np.arange(1.0, 14.0)) * 10_000
    assert drawn == pytest.approx(round(drawn), abs=1e-9)
    assert drawn >= 1


def test_from_1001_values_on_the_mean_is_taken_for_normal():
    values = np.random.default_rng(0).random(1001)
    for n in (1000, 1001):
        mean, error = values[:n].mean(), values[:n].std() / np.sqrt(n)
        is_normal = bootstrap(values[:n])[1] == pytest.approx(
            mean + 1.959963984540054 * error, abs=1e-12
        )
        assert is_normal == (n > 1000)
