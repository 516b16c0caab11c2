"""A decoder is a value: fitted oracles, and a permutation of their labels."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN, KMeans

from blockmdp.decoders import FittedDecoder, constant_decoder, decode_mixture
from blockmdp.oracles import fit_oracle, gmm
from blockmdp.oracles.fitting import ConstantPredictor, FittedOracle
from blockmdp.oracles.scores import LinearScores, QuadraticScores


class Lookup:
    """A fitted oracle by hand: observation (s, ...) has the label labels[s]."""

    def __init__(self, *labels):
        self.labels = np.array(labels)

    def predict(self, x):
        return self.labels[x[:, 0].astype(int)]


def decoder(*tables, n_labels=1):
    """One table of labels for all levels, or one for each."""
    return FittedDecoder.of(tuple(FittedOracle(Lookup(*t), max(t) + 1) for t in tables), n_labels)


def states(*s):
    return np.array(s, np.float64)[:, None]


def zeros(x):
    return np.zeros(len(x), np.int64)


# --- a value --------------------------------------------------------------------------------------
def test_swapping_makes_a_new_decoder_and_leaves_the_old_one():
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


@given(
    n=st.integers(1, 6),
    groups=st.integers(1, 3),
    swaps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=8),
)
def test_swaps_keep_a_permutation_and_undo_themselves(n, groups, swaps):
    f = g = decoder(*[tuple(range(n))] * groups)
    swaps = [(group % groups, a % n, b % n) for group, a, b in swaps]
    for swap in swaps:
        g = g.swap(*swap)
        assert np.array_equal(np.sort(g.order), np.sort(f.order))
    for swap in swaps[::-1]:
        g = g.swap(*swap)
    assert np.array_equal(g.order, f.order)


def test_a_swap_is_of_names_not_of_the_oracles_labels():
    f, x = decoder((0, 1, 2)), states(0, 1, 2)
    g = f.swap(0, 0, 1).swap(0, 1, 2)  # state 0 is called 1, then 2; state 1 is called 0
    assert g.decode(zeros(x), x).tolist() == [2, 0, 1]


# --- pooled, or one a level -----------------------------------------------------------------------
def test_a_pooled_decoder_ignores_the_level():
    f, x = decoder((2, 0, 1)), states(0, 1, 2, 0)
    assert f.pooled
    assert f.decode(np.array([0, 3, 7, 1]), x).tolist() == [2, 0, 1, 2]
    assert f.group(5) == 0


@pytest.mark.parametrize("levels", [[0, 0, 1, 1, 2], [2, 1, 0, 1, 0]])
def test_each_level_is_decoded_by_its_own_oracle(levels):
    tables = [(0, 1), (1, 0), (2, 2)]
    f = decoder(*tables)
    assert not f.pooled
    s = [0, 1, 0, 1, 1]
    expected = [tables[h][i] for h, i in zip(levels, s)]
    assert f.decode(np.array(levels), states(*s)).tolist() == expected
    assert [f.group(h) for h in range(3)] == [0, 1, 2]


def test_a_swap_at_one_level_leaves_the_others():
    f, x = decoder((0, 1), (0, 1)).swap(1, 0, 1), states(0, 1, 0, 1)
    assert f.decode(np.array([0, 0, 1, 1]), x).tolist() == [0, 1, 1, 0]


def test_notes_name_the_level_where_there_are_several():
    one, other = (
        FittedOracle(ConstantPredictor(), 1, ("alone",)),
        FittedOracle(ConstantPredictor(), 1, ()),
    )
    assert FittedDecoder.of((one,)).notes == ("alone",)
    assert FittedDecoder.of((other, one)).notes == ("level 1: alone",)


def test_nothing_to_decode_is_no_labels():
    for f in (decoder((0, 1)), decoder((0, 1), (1, 0)), constant_decoder()):
        labels = f.decode(np.zeros(0, np.int64), np.zeros((0, 4)))
        assert labels.shape == (0,)
        assert labels.dtype == np.int32


def test_images_are_decoded_flat():
    images = np.arange(2 * 3 * 4.0).reshape(2, 3, 4) / 12  # the first number is 0, then 1
    assert decoder((1, 0)).decode(np.zeros(2, np.int64), images).tolist() == [1, 0]


def test_before_any_data_there_is_one_label_for_all():
    f, x = constant_decoder(), np.random.default_rng(0).normal(size=(9, 4))
    assert f.n_labels == 1
    assert f.decode(np.arange(9), x).tolist() == [0] * 9


# --- labels that come and go ----------------------------------------------------------------------
def test_there_is_room_for_the_most_labels_of_any_level_and_for_those_of_before():
    assert decoder((0, 1), (0, 1, 2)).n_labels == 3
    assert decoder((0, 1), (0, 1, 2), n_labels=5).n_labels == 5
    assert decoder((0, 1, 2), n_labels=2).n_labels == 3


def test_an_oracle_with_few_labels_can_be_given_a_name_beyond_its_own():
    f, x = decoder((0, 1), n_labels=5).swap(0, 1, 4), states(0, 1)
    assert f.decode(zeros(x), x).tolist() == [0, 4]
    assert f.n_labels == 5


# --- many decoders at once ------------------------------------------------------------------------
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


def test_the_kinds_are_what_they_are_called():
    kinds = LinearScores, LinearScores, ConstantPredictor, QuadraticScores
    for name, kind in zip(FITTED, kinds):
        assert isinstance(FITTED[name][0].predictor, kind)
    assert not isinstance(FITTED["neither"][0].predictor, kinds)


@st.composite
def decoders(draw, kinds):
    """Pooled or one a level, of any of the kinds, with labels swapped and perhaps added."""
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


@settings(deadline=None, max_examples=60)
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
def test_a_mixture_is_decoded_as_if_one_by_one(fs, n, level, dtype, shape, entropy):
    x = observations(n, entropy).astype(dtype).reshape(n, *shape)
    which = np.random.default_rng(entropy).integers(len(fs), size=n)
    labels = decode_mixture(fs, which, level, x)
    expected = [int(fs[w].decode(np.array([level]), row[None])[0]) for w, row in zip(which, x)]
    assert labels.tolist() == expected
    assert labels.dtype == np.int32


@pytest.mark.parametrize("kind", sorted(FITTED))
def test_a_mixture_with_nothing_to_decode_gives_no_labels(kind):
    fs = [FittedDecoder.of((one,)) for one in FITTED[kind]]
    labels = decode_mixture(fs, np.zeros(0, np.int64), 0, np.zeros((0, D), np.float32))
    assert labels.shape == (0,)


def test_a_mixture_of_linear_decoders_never_asks_them_one_by_one(monkeypatch):
    fs = [FittedDecoder.of((FITTED[kind][0],)) for kind in LINEAR]
    x, which = observations(9, 0), np.arange(9) % 3
    expected = decode_mixture(fs, which, 0, x).tolist()
    monkeypatch.setattr(FittedDecoder, "decode", None)
    assert decode_mixture(fs, which, 0, x).tolist() == expected
