"""FixLabel (Feng et al. 2020, Algorithm 3): confirmed labels survive a refit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from blockmdp import URL
from blockmdp.decoders import FittedDecoder
from blockmdp.oracles import fit_oracle
from blockmdp.oracles.fitting import FittedOracle
from blockmdp.trajectories import Observations
from blockmdp.url import LabelStandard, agreement, fix_label
from blockmdp.url.tsr import _invents_labels, _relabelled


class ByHand:
    """Observation (s, i) has the label table[s][i % len(table[s])].

    An entry of the table is a label, or a list of labels that alternate.
    """

    def __init__(self, table):
        self.table = [entry if isinstance(entry, list) else [entry] for entry in table]
        self.n_labels = 1 + max(max(entry) for entry in self.table)

    def predict(self, x):
        return np.array([self.table[int(s)][int(i) % len(self.table[int(s)])] for s, i in x], int)


def fit(*tables, n_labels=1):
    """A decoder with one table for all levels, or one for each."""
    fitted = tuple(FittedOracle(p, p.n_labels) for p in map(ByHand, tables))
    return FittedDecoder.of(fitted, n_labels)


def data(states, n=10, levels=(0,)):
    """n observations of each state at each level."""
    x = np.array([(s, i) for _ in levels for s in states for i in range(n)], np.float64)
    return Observations(np.repeat(levels, n * len(states)), x.reshape(-1, 2))


def standard(f, test, min_count=1.0, **options):
    Z = LabelStandard(pooled=f.pooled, min_count=min_count, **options)
    Z.confirm(f, test)
    return Z


def labels_of(f, states, level=0):
    """The label of each state's first observation."""
    test = data(states, n=1, levels=(level,))
    return f.decode(test.levels, test.x).tolist()


def is_permutation(f):
    return np.array_equal(np.sort(f.order), np.tile(np.arange(f.n_labels), (len(f.order), 1)))


# --- refits ---------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(refit=st.permutations(range(5)), first=st.permutations(range(5)))
def test_confirmed_labels_survive_a_permuted_refit(refit, first):
    Z = standard(fit(first), data(range(5)))
    f = fix_label(fit(refit), Z)
    assert labels_of(f, range(5)) == first
    assert is_permutation(f)


@settings(max_examples=40, deadline=None)
@given(
    first=st.tuples(*[st.permutations(range(3))] * 3),
    refit=st.tuples(*[st.permutations(range(3))] * 3),
)
def test_each_level_has_its_own_label_standard(first, refit):
    Z = standard(fit(*first), data(range(3), levels=(0, 1, 2)))
    assert len(Z.D) == 9
    f = fix_label(fit(*refit), Z)
    for level in range(3):
        assert labels_of(f, range(3), level) == first[level]


def test_exactly_three_fifths_are_not_enough_to_swap():
    Z = standard(fit([0, 1, 2]), data(range(3)))
    f = fix_label(fit([[1, 1, 1, 0, 0], [1, 0, 2, 0, 2], [1, 0, 2, 0, 2]]), Z)
    assert f.order.tolist() == [[0, 1, 2]]


def test_slightly_more_than_three_fifths_are_enough_to_swap():
    almost = [1] * 601 + [0] * 399
    Z = standard(fit([0, 1, 2]), data([0], n=1000))
    assert fix_label(fit([almost, 1, 2]), Z).order.tolist() == [[1, 0, 2]]
    assert fix_label(fit([almost[1:] + [0], 1, 2]), Z).order.tolist() == [[0, 1, 2]]


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 400), count=st.integers(0, 400), s=st.integers(0, 2))
def test_labels_are_swapped_above_three_fifths_only(n, count, s):
    count = min(count, n)
    other = (s + 1) % 3
    Z = LabelStandard(pooled=True, min_count=1)
    Z.D[0, s] = data([0], n=n).x
    f = fix_label(fit([[other] * count + [s] * (n - count), 0, 1, 2]), Z)
    swapped = 5 * count > 3 * n
    assert f.order[0, other] == (s if swapped else other)
    assert f.order[0, s] == (other if swapped else s)


def test_a_decoder_that_agrees_with_the_standard_is_returned_as_it_is():
    f = fit([0, 1, 2])
    assert fix_label(f, standard(f, data(range(3)))) is f
    assert fix_label(f, LabelStandard(pooled=True, min_count=1)) is f


def test_the_larger_part_of_a_split_state_keeps_its_label():
    Z = standard(fit([0, 1]), data(range(2)))
    f = fix_label(fit([[2, 2, 2, 1, 2], 0], n_labels=Z.n_labels), Z)  # 4/5 get label 2, 1/5 label 1
    assert labels_of(f, [0, 1]) == [0, 1]
    rest = f.decode(np.array([0]), np.array([[0.0, 3.0]]))[0]
    assert rest not in (0, 1)
    assert is_permutation(f)


def test_a_state_split_in_halves_has_no_majority():
    Z = standard(fit([0, 1]), data(range(2)))
    f = fix_label(fit([[2, 3], 1], n_labels=Z.n_labels), Z)
    assert f.order.tolist() == [[0, 1, 2, 3]]


def test_merged_states_get_the_label_of_one_of_them():
    Z = standard(fit([0, 1, 2]), data(range(3)))
    f = fix_label(fit([2, 2, 0]), Z)
    both, third = labels_of(f, [0, 2])
    assert both in (0, 1)
    assert labels_of(f, [1]) == [both]
    assert third == 2
    assert is_permutation(f)


def test_labels_survive_a_refit_that_errs_on_a_fifth():
    for seed in range(5):
        g = np.random.default_rng(seed)
        Z = standard(fit(range(4)), data(range(4), n=500))
        refit = g.permutation(4)
        table = [
            [int(g.integers(4)) if g.random() < 0.2 else int(s) for _ in range(500)] for s in refit
        ]
        f = fix_label(fit(table), Z)
        assert [f.order[0, s] for s in refit] == [0, 1, 2, 3]


def test_labels_survive_from_one_run_of_kmeans_to_the_next():
    s = np.random.default_rng(0).integers(3, size=300)
    x = 4 * np.eye(3)[s] + np.random.default_rng(1).normal(scale=0.3, size=(300, 3))
    test = Observations(np.zeros(300, np.int64), x)
    raw = [
        FittedDecoder.of((fit_oracle(KMeans(3, n_init=3), x, np.uint64(key)),)) for key in range(9)
    ]
    assert len({tuple(f.decode(test.levels, x).tolist()) for f in raw}) > 2
    Z = standard(raw[0], test)
    fixed = [fix_label(f, Z).decode(test.levels, x).tolist() for f in raw]
    assert all(labels == fixed[0] for labels in fixed)


# --- unconfirmed and new labels -------------------------------------------------------------------
def test_only_confirmed_labels_are_restored():
    Z = standard(fit([0, 1, 2]), data([1]))
    f = fix_label(fit([2, 0, 1]), Z)
    assert labels_of(f, [1]) == [1]
    assert sorted(labels_of(f, [0, 2])) == [0, 2]
    assert labels_of(f, [0, 2]) == [2, 0]  # not restored: label 1 went from state 2 to 1


def test_a_new_label_replaces_no_confirmed_one():
    Z = standard(fit([0, 1]), data([0, 1]))
    f = fix_label(fit([2, 0, 1], n_labels=Z.n_labels), Z)  # a third state, never seen before
    assert labels_of(f, [0, 1]) == [0, 1]
    assert labels_of(f, [2]) == [2]
    Z.confirm(f, data([2]))
    again = fix_label(fit([1, 2, 0]), Z)
    assert labels_of(again, [0, 1, 2]) == [0, 1, 2]


def test_a_label_that_vanishes_for_a_while_returns():
    Z = standard(fit([0, 1, 2]), data(range(3)))
    f = fix_label(fit([1, 0, 0], n_labels=Z.n_labels), Z)  # states 1 and 2 are merged
    assert labels_of(f, [0]) == [0]
    Z.confirm(f, data(range(3), n=50))
    assert labels_of(fix_label(fit([1, 2, 0]), Z), range(3)) == [0, 1, 2]


@settings(max_examples=60, deadline=None)
@given(
    standards=st.lists(st.permutations(range(4)), min_size=1, max_size=3),
    tables=st.lists(
        st.lists(
            st.one_of(st.integers(0, 5), st.lists(st.integers(0, 5), min_size=1, max_size=7)),
            min_size=4,
            max_size=4,
        ),
        min_size=1,
        max_size=3,
    ),
    seen=st.lists(st.integers(0, 3), min_size=0, max_size=4, unique=True),
    n=st.integers(1, 12),
)
def test_labels_always_stay_distinct(standards, tables, seen, n):
    Z = LabelStandard(pooled=len(tables) == 1, min_count=1)
    for level, table in enumerate(standards[: len(tables)]):
        test = data(seen, n=n)
        labels = ByHand(table).predict(test.x)
        for s in set(labels.tolist()):
            Z.D[level, s] = test.x[labels == s]
    f = fix_label(fit(*tables, n_labels=Z.n_labels), Z)
    assert is_permutation(f)


def test_a_decoder_with_fewer_labels_than_confirmed_ones_stays_a_permutation():
    Z = standard(fit([0, 1, 2]), data([2]))
    f = fix_label(fit([0, 1, 0]), Z)  # two labels, so 2 is not one of them
    assert is_permutation(f)


# --- label standard data Z ------------------------------------------------------------------------
def test_min_count_observations_confirm_a_label():
    Z = LabelStandard(pooled=True, min_count=10)
    assert Z.confirm(fit([0, 1, 2]), data([0, 1], n=9)) == []
    assert Z.D == {}
    assert Z.confirm(fit([0, 1, 2]), data([1, 2], n=10)) == [(0, 1), (0, 2)]
    assert sorted(Z.D) == [(0, 1), (0, 2)]


def test_min_count_need_not_be_an_integer():
    Z = LabelStandard(pooled=True, min_count=9.5)
    assert Z.confirm(fit([0]), data([0], n=9)) == []
    assert Z.confirm(fit([0]), data([0], n=10)) == [(0, 0)]


def test_a_label_keeps_the_observations_that_confirmed_it_first():
    Z = standard(fit([0, 1]), data([0]))
    kept = Z.D[0, 0].copy()
    assert Z.confirm(fit([1, 0]), data([0, 1], n=30)) == [(0, 1)]
    assert np.array_equal(Z.D[0, 0], kept)
    assert (Z.D[0, 1][:, 0] == 0).all()
    assert len(Z.D[0, 1]) == 30


def test_all_levels_of_a_pooled_decoder_count_together():
    pooled, single = (
        LabelStandard(pooled=True, min_count=10),
        LabelStandard(pooled=False, min_count=10),
    )
    test = data([0], n=4, levels=(0, 1, 2))
    assert pooled.confirm(fit([3]), test) == [(0, 3)]
    assert single.confirm(fit([3], [3], [3]), test) == []
    assert single.confirm(fit([1], [2], [3]), data([0], n=10, levels=(0, 2))) == [(0, 1), (2, 3)]


def test_at_most_max_examples_observations_are_kept():
    assert len(standard(fit([0]), data([0], n=50), max_examples=7).D[0, 0]) == 7
    assert len(standard(fit([0]), data([0], n=50)).D[0, 0]) == 50


def test_no_observations_confirm_no_label():
    Z = LabelStandard(pooled=True, min_count=1)
    assert Z.confirm(fit([0]), data([])) == []
    assert Z.n_labels == 1


def test_min_count_of_theory_is_that_of_the_paper():
    for B, label_error, delta_1 in ((100, 0.0005, 0.01), (37, 0.001, 0.1)):
        agent = URL.theory(
            KMeans(2), horizon=2, n_states=2, batch=B, label_error=label_error, delta_1=delta_1
        )
        assert agent.min_count == pytest.approx(3 * label_error * B * math.log(1 / delta_1))


# --- agreement of two decoders --------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(one=st.permutations(range(4)), other=st.permutations(range(4)))
def test_decoders_that_differ_by_a_permutation_agree(one, other):
    assert agreement(fit(one), fit(other), data(range(4))) == 1


def test_agreement_is_the_mean_over_labels():
    one = fit([0, 1, 2])
    assert agreement(one, fit([0, 0, 2]), data(range(3))) == pytest.approx(2 / 3)  # merged
    assert agreement(one, fit([[0, 3], 1, 2]), data(range(3))) == pytest.approx(2.5 / 3)  # split
    assert agreement(one, fit([[0, 0, 0, 0, 1], 1, 2]), data(range(3))) == pytest.approx(2.8 / 3)


def test_a_rare_label_counts_as_much_as_a_common_one():
    test = data([0], n=999) + data([1], n=1)
    assert agreement(fit([0, 1]), fit([0, 0]), test) == pytest.approx(1 / 2)


def test_the_level_that_agrees_least_counts():
    test = data([0, 1], levels=(0, 1, 2))
    one, other = fit([0, 1], [0, 1], [0, 1]), fit([1, 0], [1, 1], [0, 1])
    assert agreement(one, other, test) == pytest.approx(1 / 2)


def test_decoders_with_different_numbers_of_labels_can_be_compared():
    assert agreement(fit([0, 1]), fit([5, 3]), data([0, 1])) == 1
    assert agreement(fit([5, 3]), fit([0, 1]), data([0, 1])) == 1


def test_a_mixture_invents_labels_if_there_are_fewer_than_five_observations_for_each():
    rare, common = np.arange(12), np.repeat(np.arange(12, 21), 10)
    labels = np.concatenate([rare, common, [20, 20]])  # 104 observations of 21 labels
    assert _invents_labels(labels)
    assert not _invents_labels(np.append(labels, 20))
    assert not _invents_labels(np.repeat(np.arange(26), 4))  # no label is rare
    half = np.repeat(np.arange(50), [2] * 25 + [3] * 25)  # half of them are, but not most
    assert not _invents_labels(half)
    assert _invents_labels(np.append(half, 50))


def test_without_test_data_no_label_counts_as_renamed():
    assert _relabelled(fit([0, 1]), fit([1, 0]), data([])) == 0
    assert _relabelled(fit([0, 1]), fit([1, 0]), data([0, 1])) == 2
