"""Fitted decoders, which are values, and tables of observations."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN, KMeans

from blockmdp.decoders import (
    FittedDecoder,
    FrozenTable,
    TableDecoder,
    constant_decoder,
    decode_mixture,
)
from blockmdp.decoders.table import _Rows
from blockmdp.jit import interpreted
from blockmdp.oracles import fit_oracle, gmm
from blockmdp.oracles.fitting import ConstantPredictor, FittedOracle
from blockmdp.oracles.scores import BankScores, LinearScores, QuadraticScores, bank_labels


class Lookup:
    """Observation (s, ...) has the label labels[s]."""

    def __init__(self, *labels):
        self.labels = np.array(labels)

    def predict(self, x):
        return self.labels[x[:, 0].astype(int)]


def decoder(*tables, n_labels=1):
    """A decoder with one table of labels for all levels, or one for each."""
    return FittedDecoder.of(tuple(FittedOracle(Lookup(*t), max(t) + 1) for t in tables), n_labels)


def states(*s):
    return np.array(s, np.float64)[:, None]


def zeros(x):
    return np.zeros(len(x), np.int64)


# --- values ---------------------------------------------------------------------------------------
def test_swap_returns_a_new_decoder():
    f, x = decoder((0, 1, 2)), states(0, 1, 2)
    g = f.swap(0, 0, 2)
    assert g is not f
    assert f.decode(zeros(x), x).tolist() == [0, 1, 2]
    assert g.decode(zeros(x), x).tolist() == [2, 1, 0]
    assert g.fitted is f.fitted
    assert not np.shares_memory(f.order, g.order)


def test_a_decoder_cannot_be_changed():
    f = decoder((0, 1, 2))
    with pytest.raises(FrozenInstanceError):
        f.fitted = ()
    with pytest.raises(FrozenInstanceError):
        f.order = np.zeros((1, 3))


@settings(max_examples=40)
@given(
    n=st.integers(1, 6),
    groups=st.integers(1, 3),
    swaps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=8),
)
def test_swaps_keep_a_permutation_and_can_be_undone(n, groups, swaps):
    f = g = decoder(*[tuple(range(n))] * groups)
    swaps = [(group % groups, a % n, b % n) for group, a, b in swaps]
    for swap in swaps:
        g = g.swap(*swap)
        assert np.array_equal(np.sort(g.order), np.sort(f.order))
    for swap in swaps[::-1]:
        g = g.swap(*swap)
    assert np.array_equal(g.order, f.order)


def test_a_swap_exchanges_the_decoders_labels_not_the_oracles():
    f, x = decoder((0, 1, 2)), states(0, 1, 2)
    g = f.swap(0, 0, 1).swap(0, 1, 2)  # state 0 gets label 1, then 2; state 1 gets 0
    assert g.decode(zeros(x), x).tolist() == [2, 0, 1]


# --- one oracle or one per level ------------------------------------------------------------------
def test_a_pooled_decoder_ignores_the_level():
    f, x = decoder((2, 0, 1)), states(0, 1, 2, 0)
    assert f.pooled
    assert f.decode(np.array([0, 3, 7, 1]), x).tolist() == [2, 0, 1, 2]
    assert f.group(5) == 0


def test_each_level_is_decoded_by_its_own_oracle():
    tables = [(0, 1), (1, 0), (2, 2)]
    f = decoder(*tables)
    assert not f.pooled
    assert [f.group(h) for h in range(3)] == [0, 1, 2]
    s = [0, 1, 0, 1, 1]
    for levels in ([0, 0, 1, 1, 2], [2, 1, 0, 1, 0]):
        expected = [tables[h][i] for h, i in zip(levels, s)]
        assert f.decode(np.array(levels), states(*s)).tolist() == expected


def test_a_swap_at_one_level_does_not_change_the_others():
    f, x = decoder((0, 1), (0, 1)).swap(1, 0, 1), states(0, 1, 0, 1)
    assert f.decode(np.array([0, 0, 1, 1]), x).tolist() == [0, 1, 1, 0]


def test_notes_name_the_level_if_there_are_several():
    one, other = (
        FittedOracle(ConstantPredictor(), 1, ("alone",)),
        FittedOracle(ConstantPredictor(), 1, ()),
    )
    assert FittedDecoder.of((one,)).notes == ("alone",)
    assert FittedDecoder.of((other, one)).notes == ("level 1: alone",)


def test_decoding_nothing_gives_no_labels():
    for f in (decoder((0, 1)), decoder((0, 1), (1, 0)), constant_decoder()):
        labels = f.decode(np.zeros(0, np.int64), np.zeros((0, 4)))
        assert labels.shape == (0,)
        assert labels.dtype == np.int32


def test_images_are_flattened():
    images = np.arange(2 * 3 * 4.0).reshape(2, 3, 4) / 12  # the first number is 0, then 1
    assert decoder((1, 0)).decode(np.zeros(2, np.int64), images).tolist() == [1, 0]


def test_the_constant_decoder_has_a_single_label():
    f, x = constant_decoder(), np.random.default_rng(0).normal(size=(9, 4))
    assert f.n_labels == 1
    assert f.decode(np.arange(9), x).tolist() == [0] * 9


# --- the number of labels -------------------------------------------------------------------------
def test_the_number_of_labels_is_that_of_the_level_with_most_or_the_one_asked_for():
    assert decoder((0, 1), (0, 1, 2)).n_labels == 3
    assert decoder((0, 1), (0, 1, 2), n_labels=5).n_labels == 5
    assert decoder((0, 1, 2), n_labels=2).n_labels == 3


def test_a_label_can_be_swapped_with_one_that_the_oracle_does_not_have():
    f, x = decoder((0, 1), n_labels=5).swap(0, 1, 4), states(0, 1)
    assert f.decode(zeros(x), x).tolist() == [0, 4]
    assert f.n_labels == 5


# --- mixtures of decoders -------------------------------------------------------------------------
H, D = 2, 4


def observations(n, seed):
    g = np.random.default_rng(seed)
    return (5 * np.eye(3, D)[g.integers(3, size=n)] + g.normal(size=(n, D))).astype(np.float32)


def fit(kind, seed):
    if kind == "constant":
        return FittedOracle(ConstantPredictor(), 1)
    oracle = {
        "linear 2": KMeans(2, n_init=1),
        "linear 4": KMeans(4, n_init=1),
        "quadratic": gmm(3, n_init=1),
        "neither": DBSCAN(eps=2.0),
    }[kind]
    return fit_oracle(oracle, observations(60, seed), np.uint64(seed))


FITTED = {
    kind: [fit(kind, seed) for seed in range(3)]
    for kind in ("linear 2", "linear 4", "constant", "quadratic", "neither")
}


def test_the_oracles_have_the_scores_that_their_names_say():
    kinds = LinearScores, LinearScores, ConstantPredictor, QuadraticScores
    for name, kind in zip(FITTED, kinds):
        assert isinstance(FITTED[name][0].predictor, kind)
    assert not isinstance(FITTED["neither"][0].predictor, kinds)


@st.composite
def decoders(draw, kinds):
    """Decoders with one oracle or one per level, with labels swapped and perhaps added."""
    levels = draw(st.sampled_from([1, H + 1]))
    fitted = tuple(
        FITTED[draw(st.sampled_from(kinds))][draw(st.integers(0, 2))] for _ in range(levels)
    )
    f = FittedDecoder.of(fitted, draw(st.integers(1, 6)))
    for _ in range(draw(st.integers(0, 3))):
        a, b = (draw(st.integers(0, f.n_labels - 1)) for _ in range(2))
        f = f.swap(draw(st.integers(0, levels - 1)), a, b)
    return f


LINEAR = ["linear 2", "linear 4", "constant"]


@settings(deadline=None, max_examples=40)
@given(
    fs=st.one_of(
        st.lists(decoders(LINEAR), min_size=1, max_size=5),
        st.lists(decoders(sorted(FITTED)), min_size=1, max_size=5),
    ),
    n=st.integers(1, 30),
    level=st.integers(0, H),
    dtype=st.sampled_from([np.int8, np.float32, np.float64]),
    shape=st.sampled_from([(D,), (2, 2)]),
    entropy=st.integers(0, 2**32),
)
def test_each_observation_is_decoded_by_its_own_decoder(fs, n, level, dtype, shape, entropy):
    x = observations(n, entropy).astype(dtype).reshape(n, *shape)
    which = np.random.default_rng(entropy).integers(len(fs), size=n)
    labels = decode_mixture(fs, which, level, x)
    expected = [int(fs[w].decode(np.array([level]), row[None])[0]) for w, row in zip(which, x)]
    assert labels.tolist() == expected
    assert labels.dtype == np.int32


@settings(deadline=None, max_examples=40)
@given(
    f=st.one_of(decoders(LINEAR), decoders(sorted(FITTED))),
    n=st.integers(1, 30),
    dtype=st.sampled_from([np.int8, np.float32, np.float64]),
    entropy=st.integers(0, 2**32),
)
def test_observations_of_many_levels_are_decoded_as_each_alone(f, n, dtype, entropy):
    x = observations(n, entropy).astype(dtype)
    levels = np.random.default_rng(entropy).integers(H + 1, size=n)
    expected = [int(f.decode(np.array([h]), row[None])[0]) for h, row in zip(levels, x)]
    labels = f.decode(levels, x)
    assert labels.tolist() == expected
    assert labels.dtype == np.int32


@pytest.mark.parametrize("level", [-1, 3])
def test_levels_that_do_not_exist_never_reach_a_compiled_loop(level, monkeypatch):
    f = FittedDecoder.of(tuple(FITTED["linear 2"]))
    assert len(f.fitted) == 3
    monkeypatch.setattr("blockmdp.decoders.fitted.linear_labels", None)
    for levels in (np.full(9, level), np.append(np.full(8, level), 0)):
        with suppress(IndexError):
            f.decode(levels, np.zeros((9, D)))


def test_observations_of_one_level_need_the_scores_of_that_level_alone(monkeypatch):
    f = FittedDecoder.of(tuple(FITTED["linear 2"]))
    x = observations(9, 0)
    expected = [f.decode(np.full(1, h), x[:1])[0] for h in range(3)]
    monkeypatch.setattr("blockmdp.decoders.fitted._linear", None)
    assert f.decode([1.0], x[:1]).tolist() == [expected[1]]
    for h in range(3):
        assert f.decode(np.full(9, h), np.tile(x[:1], (9, 1))).tolist() == [expected[h]] * 9


@settings(deadline=None, max_examples=60)
@given(K=st.integers(1, 9), d=st.integers(1, 5), entropy=st.integers(0, 2**32))
def test_a_bank_gives_the_label_with_the_largest_score_and_the_first_of_several(K, d, entropy):
    draw = np.random.default_rng(entropy)
    G, n = 2, 20
    W, b = draw.integers(-2, 3, (2, G, K, d)).astype(float)  # small integers, so scores tie
    b = np.where(draw.random((G, K)) < 0.3, -np.inf, b[:, :, 0])
    free = np.full((G, d), np.inf)
    no_T = np.zeros((G, 0, 0)), np.zeros(G, np.bool_)
    scores = BankScores(np.zeros((G, d)), -free, free, *no_T, W, b)
    groups, x = draw.integers(G, size=n), draw.integers(-2, 3, (n, d)).astype(float)
    expected = (np.einsum("nkd,nd->nk", W[groups], x) + b[groups]).argmax(axis=1)
    assert bank_labels(scores, groups, x).tolist() == expected.tolist()
    assert interpreted(bank_labels)(scores, groups, x).tolist() == expected.tolist()


def test_there_must_be_one_level_or_decoder_for_each_observation():
    f = FittedDecoder.of(tuple(FITTED["linear 2"]))
    one, other = (FittedDecoder.of((each,)) for each in FITTED["linear 2"][:2])
    x = np.zeros((9, D))
    for n in (8, 10):
        with pytest.raises(ValueError, match="one level for each of 9 observations"):
            f.decode(np.zeros(n, np.int64), x)
        with pytest.raises(ValueError, match="one decoder for each of 9 observations"):
            decode_mixture([one, other], np.zeros(n, np.int64), 0, x)
    for wrong in (-1, 2, 10**6):
        with pytest.raises(ValueError, match="which must be from 0 to 1"):
            decode_mixture([one, other], np.array([0] * 8 + [wrong]), 0, x)


def test_many_observations_of_another_size_are_refused():
    f = FittedDecoder.of(tuple(FITTED["linear 2"]))
    with pytest.raises(ValueError, match="has 3 numbers, but the decoder learnt from 4"):
        f.decode(np.arange(9) % 3, np.zeros((9, 3)))


def test_a_mixture_without_observations_gives_no_labels():
    for kind in FITTED:
        fs = [FittedDecoder.of((one,)) for one in FITTED[kind]]
        labels = decode_mixture(fs, np.zeros(0, np.int64), 0, np.zeros((0, D), np.float32))
        assert labels.shape == (0,)


def test_decoders_with_linear_scores_run_in_one_loop(monkeypatch):
    fs = [FittedDecoder.of((FITTED[kind][0],)) for kind in LINEAR]
    x, which = observations(9, 0), np.arange(9) % 3
    expected = decode_mixture(fs, which, 0, x).tolist()
    monkeypatch.setattr(FittedDecoder, "decode", None)
    assert decode_mixture(fs, which, 0, x).tolist() == expected


# --- tables ---------------------------------------------------------------------------------------
def test_a_table_numbers_distinct_observations_at_each_level():
    g = np.random.default_rng(0)
    table = TableDecoder(horizon=2)
    numbers = [{} for _ in range(3)]
    for _ in range(20):  # the table has to grow on the way
        levels, x = g.integers(3, size=50), g.integers(0, 2, (50, 2, 4)).astype(np.int8)
        expected = [
            numbers[h].setdefault(row.tobytes(), len(numbers[h])) for h, row in zip(levels, x)
        ]
        assert table.decode(levels, x).tolist() == expected
        assert table.n_labels == max(map(len, numbers))


def test_a_frozen_table_gives_unknown_observations_one_more_label():
    table = TableDecoder(horizon=1)
    x = np.array([[1.0], [2.0], [3.0], [1.0]], np.float32)
    levels = np.array([0, 0, 0, 1])
    assert table.decode(levels, x).tolist() == [0, 1, 2, 0]
    frozen = table.frozen()
    table.decode(np.array([0, 1]), np.array([[9.0], [9.0]], np.float32))
    assert (table.n_labels, frozen.n_labels) == (4, 3)
    for f in (frozen, FrozenTable.of(frozen.words(), frozen.dtype)):
        assert f.decode(levels, x).tolist() == [0, 1, 2, 0]
        unknown = np.array([[9.0], [9.0], [2.0]], np.float32)
        assert f.decode(np.array([0, 1, 1]), unknown).tolist() == [3, 3, 3]


@pytest.mark.parametrize("by_level", [True, False])
def test_labels_of_an_earlier_table_follow_from_those_of_a_later_one(by_level):
    g = np.random.default_rng(1)
    table = TableDecoder(horizon=2, by_level=by_level)
    tables = [table.frozen()]
    for n in (1, 5, 30):
        table.decode(g.integers(3, size=n), g.integers(0, 9, (n, 1)).astype(np.int8))
        tables.append(table.frozen())
    levels, x = g.integers(3, size=200), g.integers(0, 9, (200, 1)).astype(np.int8)
    later = tables[-1].decode(levels, x)
    for earlier in tables:
        assert earlier.rows == tables[-1].rows != TableDecoder(horizon=2).frozen().rows
        assert earlier.n_rows == sum(map(len, earlier.words()))
        assert (earlier.earlier(levels, later) == earlier.decode(levels, x)).all()


def test_a_frozen_table_knows_equal_numbers_of_another_type():
    table = TableDecoder(horizon=0)
    table.decode(np.zeros(2, np.int64), np.array([[1, 0], [0, 1]], np.int8))
    x = np.array([[0.0, 1.0], [0.5, 1.0], [1.0, 257.0]])  # 0.5 and 257 are not int8
    assert table.frozen().decode(np.zeros(3, np.int64), x).tolist() == [1, 2, 2]
    assert table.frozen().decode(np.zeros(0, np.int64), x[:0]).tolist() == []


def test_an_empty_frozen_table_knows_nothing():
    frozen = TableDecoder(horizon=1).frozen()
    assert frozen.n_labels == 0
    assert frozen.decode(np.array([0, 1]), np.zeros((2, 3))).tolist() == [0, 0]


def test_a_table_does_not_know_observations_of_another_width():
    rows = _Rows()
    assert rows.find(np.zeros((2, 3), np.uint64)).tolist() == [-1, -1]  # it is empty
    rows.add(np.arange(6, dtype=np.uint64).reshape(2, 3))
    assert rows.find(np.arange(3, dtype=np.uint64)[None]).tolist() == [0]
    assert rows.find(np.arange(2, dtype=np.uint64)[None]).tolist() == [-1]
    assert rows.find(np.arange(4, dtype=np.uint64)[None]).tolist() == [-1]


def test_looking_for_rows_does_not_keep_them():
    rows, random = _Rows(), np.random.default_rng(0)
    known, unknown = random.integers(2**60, size=(2, 5, 2)).astype(np.uint64)
    assert rows.add(known).tolist() == [0, 1, 2, 3, 4]
    slots = rows._slots.copy()
    assert (rows.find(unknown) == -1).all()
    assert np.array_equal(rows._slots, slots)
    assert rows.find(known).tolist() == [0, 1, 2, 3, 4]


def test_decoders_are_compared_by_identity():
    one, other = constant_decoder(), constant_decoder()
    assert one != other
    assert len({one, other}) == 2


def test_the_first_observations_decide_the_type_of_a_table():
    table = TableDecoder(horizon=1)
    levels = np.zeros(2, np.int64)
    table.decode(levels[:0], np.zeros((0, 1)))
    table.decode(levels, np.array([[1], [2]], np.int8))
    assert table.decode(levels, np.array([[3.0], [1.0]])).tolist() == [2, 0]
    assert table.frozen().dtype == np.int8
