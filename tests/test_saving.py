"""Policies in files: what is loaded does what was saved, and what is no policy is refused."""

from __future__ import annotations

import io
import json
import re
import zipfile

import numpy as np
import pytest
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
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import blockmdp as bm
import blockmdp.saving
from blockmdp import URL, OracleQ
from blockmdp.decoders import FittedDecoder
from blockmdp.oracles import (
    AutoencoderSimHash,
    SubspaceClustering,
    fit_oracle,
    gmm,
    pca_dbscan_svm,
    pca_kmeans,
)
from blockmdp.policy import Policy
from blockmdp.saving import read_policy, write_policy

H, LOCK = 3, bm.lock_gaussian(horizon=3, switch=0.2, sigma=0.1, seed=1)
DIM = H + 3


def fitted(oracle, *, pool_levels=True, learner=None):
    agent = URL(oracle, learner, batch=40, iterations=1, test_batch=0, pool_levels=pool_levels)
    return agent.fit(LOCK, episodes=200, seed=2)


AGENTS = {
    "KMeans": lambda: fitted(pca_kmeans(3)),
    "GaussianMixture": lambda: fitted(gmm(3, n_init=2)),
    "KMeans per level": lambda: fitted(pca_kmeans(3), pool_levels=False),
    "GaussianMixture per level": lambda: fitted(gmm(2, n_init=1), pool_levels=False),
    "MiniBatchKMeans": lambda: fitted(MiniBatchKMeans(3, n_init=3)),
    "DBSCAN": lambda: fitted(pca_dbscan_svm(eps=1.0)),
    "DBSCAN per level": lambda: fitted(DBSCAN(eps=0.8), pool_levels=False),
    "HDBSCAN": lambda: fitted(HDBSCAN(copy=True)),
    "OPTICS": lambda: fitted(OPTICS(cluster_method="dbscan", eps=0.8)),
    "AgglomerativeClustering": lambda: fitted(AgglomerativeClustering(3)),
    "SpectralClustering": lambda: fitted(SpectralClustering(3)),
    "BayesianGaussianMixture": lambda: fitted(BayesianGaussianMixture(n_components=3)),
    "SubspaceClustering": lambda: fitted(SubspaceClustering(3)),
    "AutoencoderSimHash": lambda: fitted(AutoencoderSimHash()),
}


@pytest.fixture(scope="module")
def agent():
    return fitted(pca_kmeans(3))


@pytest.fixture
def saved(agent, tmp_path):
    """The path of a policy, and the bytes there."""
    path = tmp_path / "policy.npz"
    agent.save(path)
    return path, path.read_bytes()


def rewritten(path, change):
    """The file with its arrays changed by a function."""
    with np.load(path) as archive:
        arrays = dict(archive)
    change(arrays)
    np.savez(path, **arrays)


def about(arrays):
    return json.loads(arrays["about"].tobytes())


def with_about(arrays, **entries):
    text = json.dumps(about(arrays) | entries).encode()
    arrays["about"] = np.frombuffer(text, np.uint8)


def same(one, other, x):
    labels = [np.array_equal(one.decode(x, h), other.decode(x, h)) for h in range(H + 1)]
    actions = [np.array_equal(one.act(x, h), other.act(x, h)) for h in range(H)]
    return all(labels) and all(actions)


# --- there and back -------------------------------------------------------------------------------
@pytest.mark.parametrize("make", AGENTS.values(), ids=AGENTS.keys())
def test_a_loaded_policy_labels_and_acts_as_the_saved_one(make, tmp_path):
    agent, path = make(), tmp_path / "policy.npz"
    agent.save(path)
    loaded = bm.load(path)
    g = np.random.default_rng(0)
    x = np.concatenate(
        [
            g.normal(size=(200, DIM)).astype(np.float32),
            *(LOCK.sample(h, s, 30) for h in range(H + 1) for s in range(3)),
        ]
    )
    assert same(agent, loaded, x)
    assert len(np.unique(loaded.decode(x, 1))) > 1
    assert np.array_equal(loaded.pi, agent.policy_.pi)
    assert loaded.decoder.notes == agent.decoder_.notes
    assert loaded.horizon == H
    assert loaded.act(x[0], 0) == agent.act(x[0], 0)


@pytest.mark.parametrize("make", AGENTS.values(), ids=AGENTS.keys())
def test_files_hold_no_pickle(make, tmp_path):
    path = tmp_path / "policy.npz"
    make().save(path)
    with np.load(path, allow_pickle=False) as archive:
        assert {archive[name].dtype.kind for name in archive.files} <= set("iuf")
    assert b"sklearn" not in zipfile.ZipFile(path).read("pi.npy")


def test_a_policy_on_images_can_be_saved(tmp_path):
    g = np.random.default_rng(0)
    images = 4 * np.eye(2)[g.integers(2, size=60)].repeat(3, axis=1).reshape(60, 2, 3)
    images += g.normal(size=images.shape) / 4
    f = FittedDecoder.of((fit_oracle(KMeans(2, n_init=3), images, np.uint64(0)),))
    pi = np.eye(2)[None]  # one step: do what the label says
    write_policy(tmp_path / "policy.npz", pi, f, (2, 3))
    loaded = bm.load(tmp_path / "policy.npz")
    labels = loaded.decode(images, 0)
    assert labels.shape == (60,)
    assert set(labels.tolist()) == {0, 1}
    assert np.array_equal(labels, f.decode(np.zeros(60, np.int64), images))
    assert [loaded.decode(image, 0) for image in images] == labels.tolist()
    assert np.array_equal(loaded.act(images, 0), labels)
    assert [loaded.act(image, 0) for image in images] == labels.tolist()


def test_a_file_may_have_any_name(agent, tmp_path):
    for name in ("policy", "policy.npz", "policy.v2.bin"):
        agent.save(str(tmp_path / name))
        assert bm.load(str(tmp_path / name)).horizon == H
    assert sorted(p.name for p in tmp_path.iterdir()) == ["policy", "policy.npz", "policy.v2.bin"]


def test_saving_twice_gives_the_same_arrays(agent, tmp_path):
    agent.save(tmp_path / "one")
    bm.load(tmp_path / "one")
    again = read_policy(tmp_path / "one")
    write_policy(tmp_path / "two", *again)
    with np.load(tmp_path / "one") as one, np.load(tmp_path / "two") as two:
        assert sorted(one.files) == sorted(two.files)
        assert all(np.array_equal(one[name], two[name]) for name in one.files)


def test_labels_are_loaded_under_the_names_that_they_had(tmp_path):
    x = np.array([[0.0], [10.0]])
    f = FittedDecoder.of((fit_oracle(KMeans(2, n_init=1), x, np.uint64(0)),), 4).swap(0, 0, 3)
    pi = np.full((1, 4, 2), 0.5)
    write_policy(tmp_path / "policy.npz", pi, f, (1,))
    _, loaded, _ = read_policy(tmp_path / "policy.npz")
    assert set(loaded.decode(np.zeros(2, np.int64), x).tolist()) == {1, 3}
    assert np.array_equal(loaded.order, f.order)


# --- files that are no policies -------------------------------------------------------------------
def refused(path, match=None):
    with pytest.raises(ValueError, match=match) as caught:
        bm.load(path)
    assert path.name in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        bm.load(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("share", range(10))
def test_a_truncated_file_is_refused(saved, share):
    path, whole = saved
    path.write_bytes(whole[: len(whole) * share // 10])
    refused(path)


def test_a_file_without_its_last_byte_is_refused(saved):
    path, whole = saved
    path.write_bytes(whole[:-1])
    refused(path)


def test_no_flipped_byte_goes_unnoticed(saved, agent):
    """Bytes that hold no contents (the time of writing, ...) may change; nothing else may."""
    path, whole = saved
    x = np.random.default_rng(0).normal(size=(50, DIM))
    loaded = 0
    for i in range(0, len(whole), 5):
        altered = bytearray(whole)
        altered[i] ^= 0x55
        path.write_bytes(altered)
        policy, why = policy_or_reason(path)
        assert (policy is None and path.name in why) or same(policy, agent, x)
        loaded += policy is not None
    assert loaded < len(whole) // 5 / 2


def policy_or_reason(path):
    try:
        return bm.load(path), ""
    except ValueError as error:
        return None, str(error)


FOREIGN = {
    "empty": b"",
    "text": b"import this\n",
    "zeros": bytes(1000),
    "start of a zip": b"PK\x03\x04" + bytes(100),
    "pickle": b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00K\x01.",
}


@pytest.mark.parametrize("contents", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_file_is_refused(tmp_path, contents):
    path = tmp_path / "foreign.npz"
    path.write_bytes(contents)
    refused(path)


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "array.npy", np.ones(3))
    refused(tmp_path / "array.npy")


def test_a_directory_is_refused(tmp_path):
    with pytest.raises((ValueError, OSError), match=tmp_path.name):
        bm.load(tmp_path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": np.ones(3)},
        {"about": np.ones(3)},
        {"about": np.frombuffer(b"[1, 2]", np.uint8)},
        {"about": np.frombuffer(b'"text"', np.uint8)},
        {"about": np.frombuffer(b'{"format": "another"}', np.uint8)},
        {"about": np.frombuffer(b'{"format": "blockmdp policy"}', np.uint8)},
        {"about": np.frombuffer(b'{"format": "blockmdp policy", "version": 2}', np.uint8)},
    ],
    ids=["no about", "numbers", "list", "string", "another format", "no version", "no contents"],
)
def test_another_archive_is_refused(tmp_path, arrays):
    path = tmp_path / "archive.npz"
    np.savez(path, **arrays)
    refused(path, match="polic")


def test_another_zip_is_refused(tmp_path):
    path = tmp_path / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "nothing to see")
    refused(path)


def test_objects_in_an_archive_are_refused_and_not_run(saved, tmp_path):
    path, _ = saved
    witness = tmp_path / "ran"
    rewritten(path, lambda arrays: arrays.update(pi=np.array([Danger(str(witness))], object)))
    refused(path)
    assert not witness.exists()


class Danger:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_policy_of_the_future_is_refused(saved):
    path, _ = saved
    rewritten(path, lambda arrays: with_about(arrays, version=3))
    assert "3" in refused(path, match="format")


def test_an_altered_array_is_noticed(saved):
    path, _ = saved
    rewritten(path, lambda arrays: arrays.update(pi=arrays["pi"][:, ::-1]))
    refused(path, match="changed after it was written")


def test_a_missing_array_is_noticed(saved):
    path, _ = saved
    rewritten(path, lambda arrays: arrays.pop("f0.W"))
    refused(path, match="changed after it was written")


def test_an_unknown_kind_of_decoder_is_refused(saved):
    path, _ = saved

    def change(arrays):
        entries = about(arrays)["fitted"]
        with_about(arrays, fitted=[entry | {"kind": "crystal ball"} for entry in entries])

    rewritten(path, change)
    refused(path)


class Mine(KMeans):
    """A type that nobody has called safe."""


def test_unknown_types_in_a_decoder_are_refused_with_the_files_name(tmp_path):
    path = tmp_path / "policy.npz"
    f = FittedDecoder.of((fit_oracle(Mine(2, n_init=1), np.eye(4), np.uint64(0)),))
    write_policy(path, np.ones((1, 2, 1)), f, (4,))
    assert "Mine" in refused(path, match="safe")


class Unpackable(Birch):
    """skops does not know how to take a Birch apart."""


def test_an_estimator_that_cannot_be_packed_is_named_and_nothing_is_written(tmp_path):
    f = FittedDecoder.of((fit_oracle(Unpackable(n_clusters=2), np.eye(4), np.uint64(0)),))
    with pytest.raises(TypeError, match="Unpackable"):
        write_policy(tmp_path / "policy.npz", np.ones((1, 2, 1)), f, (4,))
    assert not list(tmp_path.iterdir())


# --- files whose parts do not fit each other ------------------------------------------------------
def forge(path, change):
    """Change the arrays, or what is said about them, and write a checksum that matches."""
    with np.load(path) as archive:
        arrays = dict(archive)
    told = json.loads(arrays.pop("about").tobytes())
    change(arrays, told)
    told["digest"] = blockmdp.saving._digest(arrays)
    arrays["about"] = np.frombuffer(json.dumps(told).encode(), np.uint8)
    np.savez(path, **arrays)


def setting(name, new):
    def change(arrays, told):
        arrays[name] = np.ascontiguousarray(new(arrays[name]))

    return change


def about_entry(name, new):
    return lambda arrays, told: told.update({name: new(told[name])})


FORGERIES = {
    "f0.b is cut short": (setting("f0.b", lambda b: b[:-1]), "f0.b has shape"),
    "f0.W has too few columns": (setting("f0.W", lambda W: W[:, :-1]), "f0.W has shape"),
    "f0.W is empty": (setting("f0.W", lambda W: W[:0]), "f0.W has shape"),
    "f0.W has NaN": (setting("f0.W", lambda W: W * np.nan), "f0.W has NaN"),
    "f0.W is of whole numbers": (setting("f0.W", lambda W: W.astype(int)), "f0.W must be"),
    "order is out of range": (setting("order", lambda o: o + 10**6), "permutation"),
    "order has a label twice": (setting("order", lambda o: o * 0), "permutation"),
    "order has a row too many": (setting("order", lambda o: np.vstack([o, o])), "one row for each"),
    "order is a line": (setting("order", lambda o: o[0]), "one row for each"),
    "order is of another type": (setting("order", lambda o: o.astype(float)), "one row for each"),
    "order has too few labels": (setting("order", lambda o: o[:, :1] * 0), "more labels than"),
    "pi is negative": (setting("pi", lambda pi: pi - 1), "probabilities"),
    "pi has NaN": (setting("pi", lambda pi: pi * np.nan), "probabilities"),
    "pi has two dimensions": (setting("pi", lambda pi: pi[0]), "pi must be"),
    "pi is empty": (setting("pi", lambda pi: pi[:0]), "pi must be"),
    "an array is missing": (lambda arrays, told: arrays.pop("f0.b"), "lacks"),
    "no oracle": (about_entry("fitted", lambda f: []), "one oracle"),
    "two oracles for four levels": (
        lambda arrays, told: (
            told["fitted"].append(told["fitted"][0]),
            arrays.update({"f1.W": arrays["f0.W"], "f1.b": arrays["f0.b"]}),
        ),
        "one oracle, or one for each level",
    ),
    "n_labels is a string": (
        about_entry("fitted", lambda f: [f[0] | {"n_labels": "3"}]),
        "n_labels must be",
    ),
    "n_labels is too small": (
        about_entry("fitted", lambda f: [f[0] | {"n_labels": 1}]),
        "more labels than n_labels",
    ),
    "n_labels is huge": (
        about_entry("fitted", lambda f: [f[0] | {"n_labels": 10**6}]),
        "more labels than order",
    ),
    "the shape does not fit": (about_entry("observation_shape", lambda s: [2, 2]), "f0.W has"),
    "the shape is negative": (about_entry("observation_shape", lambda s: [-6]), "positive"),
    "the shape is a number": (about_entry("observation_shape", lambda s: 6), "positive"),
    "fitted is a number": (about_entry("fitted", lambda f: 3), "not iterable"),
    "an unknown decoder": (about_entry("decoder", lambda d: "magic"), "unknown kind of decoder"),
}


def test_a_file_whose_parts_do_not_fit_each_other_is_refused(saved):
    path, whole = saved
    for what, (change, words) in FORGERIES.items():
        path.write_bytes(whole)
        forge(path, change)
        assert words in refused(path), what
    path.write_bytes(whole)
    forge(path, lambda arrays, told: None)
    bm.load(path)


def test_a_table_whose_parts_do_not_fit_each_other_is_refused(tmp_path):
    path = tmp_path / "table.npz"
    bm.Tabular(on="observation").fit(bm.lock_bernoulli(horizon=2), 50).save(path)
    whole = path.read_bytes()
    for change, words in (
        (setting("rows1", lambda r: r[:, :0]), "rows1 does not fit"),
        (setting("rows1", lambda r: r.astype(float)), "rows1 must be"),
        (setting("rows1", lambda r: np.vstack([r, r])), "rows1 has an observation twice"),
        (lambda arrays, told: arrays.pop("rows2"), "lacks"),
        (about_entry("dtype", lambda d: "O"), "dtype"),
        (about_entry("observation_shape", lambda s: [100]), "does not fit"),
    ):
        path.write_bytes(whole)
        forge(path, change)
        assert words in refused(path)


# --- saving that fails ----------------------------------------------------------------------------
def test_a_crash_while_writing_leaves_the_old_file(saved, agent, monkeypatch):
    path, whole = saved

    def crash(file, **arrays):
        file.write(b"PK half a file")
        raise OSError("no space left on device")

    monkeypatch.setattr(blockmdp.saving.np, "savez_compressed", crash)
    with pytest.raises(OSError, match="no space"):
        agent.save(path)
    assert path.read_bytes() == whole
    assert list(path.parent.iterdir()) == [path]


def test_a_crash_while_packing_an_estimator_leaves_the_old_file(saved, monkeypatch):
    path, whole = saved
    other = fitted(pca_dbscan_svm(eps=1.0))

    def crash(*arguments):
        raise RuntimeError("cannot pack this")

    monkeypatch.setattr("skops.io.dumps", crash)
    with pytest.raises(RuntimeError, match="cannot pack"):
        other.save(path)
    assert path.read_bytes() == whole
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_not_found(agent, tmp_path):
    path = tmp_path / "nowhere" / "policy.npz"
    with pytest.raises(FileNotFoundError, match=re.escape(f"'{path}'")):
        agent.save(path)


def test_a_file_cannot_be_written_over_a_folder(agent, tmp_path):
    with pytest.raises(IsADirectoryError, match=re.escape(f"'{tmp_path}'")):
        agent.save(tmp_path)
    assert not list(tmp_path.parent.glob("*.part"))


def test_an_estimator_that_skops_does_not_know_is_named(tmp_path):
    f = FittedDecoder.of((fit_oracle(Birch(n_clusters=2), np.eye(4), np.uint64(0)),))
    with pytest.raises(TypeError, match="Birch cannot be saved"):
        write_policy(tmp_path / "policy.npz", np.ones((1, 2, 1)), f, (4,))


def test_kmeans_needs_no_skops(agent, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skops.io", None)
    agent.save(tmp_path / "policy.npz")
    assert bm.load(tmp_path / "policy.npz").horizon == H
    with pytest.raises(ImportError, match=r"blockmdp\[save\]"):
        fitted(pca_dbscan_svm(eps=1.0)).save(tmp_path / "other.npz")
    assert not (tmp_path / "other.npz").exists()


# --- agents that have learnt nothing --------------------------------------------------------------
UNFITTED = {
    "save": lambda agent, path: agent.save(path),
    "act": lambda agent, path: agent.act(np.zeros(DIM), 0),
    "decode": lambda agent, path: agent.decode(np.zeros(DIM), 0),
    "value": lambda agent, path: agent.value(),
    "accuracy": lambda agent, path: agent.accuracy(),
    "confusion": lambda agent, path: agent.confusion(),
    "plot": lambda agent, path: agent.plot(),
    "decoder_": lambda agent, path: agent.decoder_,
}


@pytest.mark.parametrize("use", UNFITTED.values(), ids=UNFITTED.keys())
def test_an_agent_that_was_not_fitted_says_so(use, tmp_path):
    with pytest.raises(NotFittedError, match=r"this URL is not fitted yet: call fit before"):
        use(URL(), tmp_path / "policy.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("agent", [bm.Tabular(), bm.OnlineURL(), bm.PCID()])
def test_every_agent_says_that_it_is_not_fitted(agent, tmp_path):
    for use in (lambda: agent.act(0, 0), agent.value, agent.plot, lambda: agent.save(tmp_path)):
        with pytest.raises(NotFittedError, match="call fit before"):
            use()


# --- acting ---------------------------------------------------------------------------------------
def test_many_observations_are_acted_upon_at_once(agent):
    x = LOCK.sample(1, 0, 20)
    actions = agent.act(x, 1)
    assert actions.shape == (20,)
    assert actions.tolist() == [agent.act(row, 1) for row in x]
    assert isinstance(agent.act(x[0], 1), int)
    assert isinstance(agent.decode(x[0], 1), int)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_batch_stays_a_batch_however_small(agent, n):
    x = LOCK.sample(1, 0, n)
    assert np.shape(agent.decode(x, 1)) == (n,)
    assert np.shape(agent.act(x, 1)) == (n,)


def test_observations_that_are_not_finite_numbers_are_refused(agent):
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            agent.act(np.full(DIM, wrong), 0)
    with pytest.raises(ValueError, match="numbers"):
        agent.act(np.full(DIM, "1"), 0)


@pytest.mark.parametrize("level", [-1, H + 1, 1.5, None, "0"])
def test_levels_that_do_not_exist_are_refused(agent, level):
    with pytest.raises(ValueError, match="level"):
        agent.act(np.zeros(DIM), level)
    with pytest.raises(ValueError, match="level"):
        agent.decode(np.zeros(DIM), level)


def test_at_the_last_level_observations_are_decoded_but_there_is_no_action(agent):
    with pytest.raises(ValueError, match="end of an episode"):
        agent.act(np.zeros(DIM), H)
    assert agent.decode(np.zeros(DIM), H) in range(agent.decoder_.n_labels)


def test_fitting_again_forgets_the_first_policy():
    agent = fitted(pca_kmeans(3), learner=OracleQ(lr=0.3))
    x = LOCK.sample(0, 0, 5)
    agent.act(x, 0)
    other = bm.lock_gaussian(horizon=2, switch=0.2, sigma=0.1, seed=9)
    agent.fit(other, episodes=500, seed=4)
    assert agent.policy_.horizon == 2
    x = other.sample(1, 0, 5)
    assert (
        agent.act(x, 1).tolist() == agent.policy_.pi.argmax(axis=2)[1][agent.decode(x, 1)].tolist()
    )


def test_a_loaded_policy_is_a_policy_and_shows_its_size(saved):
    loaded = bm.load(saved[0])
    assert isinstance(loaded, Policy)
    assert repr(loaded) == "<Policy: horizon 3, 3 labels, 4 actions>"


def test_an_archive_in_memory_is_as_good_as_a_file(saved):
    """So that nothing but the bytes matters."""
    path, whole = saved
    with np.load(io.BytesIO(whole)) as archive:
        assert {"pi", "order", "about", "f0.W", "f0.b"} == set(archive.files)
    assert path.stat().st_size == len(whole)


def test_a_type_that_the_user_trusts_is_loaded(tmp_path):
    path = tmp_path / "policy.npz"
    f = FittedDecoder.of((fit_oracle(Mine(2, n_init=1), np.eye(4), np.uint64(0)),))
    write_policy(path, np.ones((1, 2, 1)), f, (4,))
    loaded = bm.load(path, trusted=[f"{Mine.__module__}.Mine"])
    assert np.array_equal(loaded.decode(np.eye(4), 0), f.decode(np.zeros(4, np.int64), np.eye(4)))


def test_a_mixture_behind_a_step_that_is_not_linear_can_be_saved(tmp_path):
    oracle = make_pipeline(Normalizer(), bm.oracles.DirichletMixture())
    agent = bm.URL(oracle).fit(bm.lock_gaussian(horizon=2), episodes=60)
    agent.save(tmp_path / "policy.npz")
    with pytest.raises(ValueError, match="trusted"):
        bm.load(tmp_path / "policy.npz")
