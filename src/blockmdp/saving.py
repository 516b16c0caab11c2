"""The file format of policies: arrays and JSON in an npz archive, never pickle.

A decoder that is a few matrices is saved as these; any other scikit-learn estimator by skops, which
runs no code on loading. What is read is checked as a whole before it is used.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.decoders import Decoder, FittedDecoder, FrozenTable
from blockmdp.oracles.fitting import ConstantPredictor, FittedOracle
from blockmdp.oracles.scores import (
    CategoricalScores,
    ClippedScores,
    LinearScores,
    NetworkScores,
    QuadraticScores,
)

__all__ = [
    "from_skops",
    "read_archive",
    "read_policy",
    "to_skops",
    "write_archive",
    "write_policy",
]

Parts = tuple[NDArray[np.float64], Decoder | None, tuple[int, ...] | None]

_FORMAT, _VERSION = "blockmdp policy", 2
# kind -> (class, its arrays with their dimensions; equal letters are equal lengths)
_SCORES: dict[str, tuple[Any, dict[str, str]]] = {
    "linear": (LinearScores, {"W": "kd", "b": "k"}),
    "clipped": (ClippedScores, {"W": "kd", "b": "k", "low": "d", "high": "d"}),
    "categorical": (CategoricalScores, {"W": "kdv", "b": "k", "values": "v"}),
    "quadratic": (QuadraticScores, {"W": "kpd", "b": "kp", "c": "k"}),
    "network": (NetworkScores, {"W": "ud", "b": "u", "V": "ku", "c": "k"}),
    "constant": (ConstantPredictor, {}),
}
_TRUSTED = [
    "blockmdp.oracles._network.Network",
    "blockmdp.oracles.auto.AutoOracle",
    "blockmdp.oracles.counts.CategoricalMixture",
    "blockmdp.oracles.fitting.InductiveClusterer",
    "blockmdp.oracles.independence.IndependenceMixture",
    "blockmdp.oracles.mixtures.BernoulliMixture",
    "blockmdp.oracles.screens.Palette",
    "blockmdp.oracles.screens.Prototypes",
    "blockmdp.oracles.screens.ScreenOracle",
    "blockmdp.oracles.simhash.AutoencoderSimHash",
]


def write_policy(
    path: Path,
    pi: NDArray[np.float64],
    decoder: Decoder | None,
    observation_shape: tuple[int, ...] | None,
) -> None:
    """Write the parts of a policy, whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {"pi": pi}
    about: dict[str, Any] = {"observation_shape": observation_shape}
    if decoder is None:
        about["decoder"] = "latent"
    elif isinstance(decoder, FrozenTable):
        words = decoder.words()
        about |= {"decoder": "table", "dtype": decoder.dtype.str, "tables": len(words)}
        arrays |= {f"rows{h}": rows for h, rows in enumerate(words)}
    elif isinstance(decoder, FittedDecoder):
        about |= {"decoder": "fitted", "fitted": []}
        arrays["order"] = decoder.order
        for i, fitted in enumerate(decoder.fitted):
            kind, parts = _parts(fitted.predictor)
            arrays |= {f"f{i}.{name}": value for name, value in parts.items()}
            entry = {"kind": kind, "n_labels": fitted.n_labels, "notes": list(fitted.notes)}
            about["fitted"].append(entry | ({"names": fitted.names} if fitted.names else {}))
    else:
        raise TypeError(f"a policy with a {type(decoder).__name__} as decoder cannot be saved")
    write_archive(path, about, arrays, _FORMAT, _VERSION)


def read_policy(path: Path, trusted: Sequence[str] = ()) -> Parts:
    """Read what `write_policy` wrote; raise ValueError with the reason for any other file."""
    about, arrays = read_archive(path, _FORMAT, _VERSION)
    try:
        return _read_parts(about, arrays, trusted)
    except (KeyError, TypeError, IndexError) as error:
        what = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path} does not hold a valid policy: {what}") from None
    except ValueError as error:
        raise ValueError(f"{path} does not hold a valid policy: {error}") from None


def write_archive(
    path: Path,
    about: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    kind: str,
    version: int,
    *,
    compress: bool = True,
) -> None:
    """Write arrays and JSON to a file, whole or not at all."""
    save = np.savez_compressed if compress else np.savez
    about = {"format": kind, "version": version, **about, "digest": _digest(arrays)}
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # others may write the same file
    try:
        with part.open("wb") as file:
            save(file, allow_pickle=False, **arrays, about=text)
        part.replace(path)
    except OSError as error:
        if error.filename is None:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from None  # not the part
    finally:
        part.unlink(missing_ok=True)
    for old in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
        if _is_left(old):
            old.unlink(missing_ok=True)


def _is_left(part: Path) -> bool:
    """Whether the process that wrote a part of a file was killed, and left it."""
    try:
        os.kill(int(part.suffixes[-2][1:]), 0)
    except ProcessLookupError:
        return True
    except (ValueError, OSError, OverflowError):  # not ours, or another user's process
        return False
    return False


def read_archive(
    path: Path, kind: str, version: int
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `write_archive` wrote; raise ValueError with the reason for any other file."""
    what = kind.removeprefix("blockmdp ")
    arrays = _read_arrays(path, what)
    try:
        about = json.loads(arrays.pop("about").tobytes())
        if about["format"] != kind:
            raise KeyError("format")
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"{path} is an archive, but not a {what} of blockmdp") from None
    if about.get("version") != version:
        raise ValueError(
            f"{path} has version {about.get('version')} of the {what} format; this version of "
            f"blockmdp reads {version}"
        )
    if about.get("digest") != _digest(arrays):
        raise ValueError(f"the {what} {path} was changed after it was written: wrong checksum")
    return about, arrays


def _read_arrays(path: Path, what: str) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            if not file.read(2) == b"PK":
                raise ValueError("it is not an npz archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # damaged archives raise many kinds of errors
        raise ValueError(f"{path} is not a {what} of blockmdp, or is damaged: {error}") from None


def _read_parts(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]], trusted: Sequence[str]
) -> Parts:
    pi = arrays["pi"]
    _require(pi.ndim == 3 and pi.size > 0 and pi.dtype == np.float64, "pi must be (H, labels, A)")
    good = (pi >= 0).all() and (np.abs(pi.sum(axis=2) - 1) < 1e-8).all()
    _require(bool(good), "the rows of pi must be probabilities")
    shape = about["observation_shape"]
    if shape is not None:
        _require(
            isinstance(shape, list) and all(type(n) is int and n > 0 for n in shape),
            f"observation_shape must be a list of positive integers, got {shape!r}",
        )
        shape = tuple(shape)
    dim = None if shape is None else int(np.prod(shape))
    if about["decoder"] == "latent":
        return pi, None, shape
    if about["decoder"] == "table":
        return pi, _read_table(about, arrays, len(pi) + 1, dim), shape
    _require(about["decoder"] == "fitted", f"unknown kind of decoder {about['decoder']!r}")
    fitted = tuple(
        _read_fitted(entry, arrays, f"f{i}.", dim, trusted)
        for i, entry in enumerate(about["fitted"])
    )
    _require(len(fitted) in (1, len(pi) + 1), "a decoder has one oracle, or one for each level")
    order = arrays["order"]
    _require(
        order.ndim == 2 and order.dtype == np.int32 and len(order) == len(fitted),
        "order must have one row for each oracle",
    )
    n_labels = order.shape[1]
    _require(
        bool((np.sort(order, axis=1) == np.arange(n_labels)).all()),
        "each row of order must be a permutation of the labels",
    )
    _require(
        all(1 <= f.n_labels <= n_labels for f in fitted), "an oracle has more labels than order"
    )
    return pi, FittedDecoder(fitted, order), shape


def _read_table(
    about: dict[str, Any], arrays: dict[str, NDArray[Any]], levels: int, dim: int | None
) -> FrozenTable:
    dtype = np.dtype(about["dtype"])
    _require(dtype.kind in "buif", f"observations cannot have dtype {dtype}")
    tables = about.get("tables", levels)
    _require(tables in (1, levels), f"there must be one table, or one for each of {levels} levels")
    words = [arrays[f"rows{h}"] for h in range(tables)]
    for h, rows in enumerate(words):
        _require(rows.ndim == 2 and rows.dtype == np.uint64, f"rows{h} must be words of 64 bits")
        width = None if dim is None else -(-dim * dtype.itemsize // 8)
        _require(
            len(rows) == 0 or width in (None, rows.shape[1]),
            f"rows{h} does not fit observations of {dim} numbers",
        )
        distinct = len(np.unique(rows, axis=0)) if len(rows) else 0
        _require(distinct == len(rows), f"rows{h} has an observation twice")
    return FrozenTable.of(words, dtype)


def _read_fitted(
    entry: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    prefix: str,
    dim: int | None,
    trusted: Sequence[str],
) -> FittedOracle:
    kind, n_labels, notes = entry["kind"], entry["n_labels"], tuple(entry["notes"])
    _require(type(n_labels) is int and n_labels >= 1, "n_labels must be a positive integer")
    _require(all(isinstance(note, str) for note in notes), "notes must be strings")
    if kind == "skops":
        names = tuple(entry.get("names", ()))
        _require(
            all(type(name) is int for name in names) and len({*names}) == len(names) <= n_labels,
            "names must be different integers, one for each label",
        )
        estimator = from_skops(arrays[prefix + "bytes"], trusted)
        _require(hasattr(estimator, "predict"), "its decoder has no predict")
        return FittedOracle(estimator, n_labels, notes, names)
    _require(kind in _SCORES, f"unknown kind of oracle {kind!r}")
    cls, dims = _SCORES[kind]
    lengths: dict[str, int] = {} if dim is None else {"d": dim}
    values = []
    for name, letters in dims.items():
        value = arrays[prefix + name]
        _require(
            value.dtype == np.float64 and value.ndim == len(letters),
            f"{prefix}{name} must be {len(letters)}-dimensional numbers",
        )
        for letter, length in zip(letters, value.shape):
            _require(
                length == lengths.setdefault(letter, length) and length > 0,
                f"{prefix}{name} has shape {value.shape}, which does not fit the other arrays",
            )
        _require(not np.isnan(value).any(), f"{prefix}{name} has NaN")
        values.append(np.ascontiguousarray(value))
    if dims:
        _require(lengths["k"] <= n_labels, f"{kind} scores have more labels than n_labels")
    return FittedOracle(cls(*values), n_labels, notes)


def _require(good: bool, message: str) -> None:
    if not good:
        raise ValueError(message)


def _parts(predictor: Any) -> tuple[str, dict[str, NDArray[Any]]]:
    for kind, (cls, names) in _SCORES.items():
        if isinstance(predictor, cls):
            return kind, {name: getattr(predictor, name) for name in names}
    return "skops", {"bytes": to_skops(predictor)}


def to_skops(estimator: Any) -> NDArray[np.uint8]:
    """Return an estimator as bytes, which `from_skops` reads without running code."""
    skops_io = _skops()
    try:
        return np.frombuffer(skops_io.dumps(estimator), np.uint8)
    except skops_io.exceptions.UnsupportedTypeException:
        raise TypeError(
            f"{type(estimator).__name__} cannot be saved: skops, which saves estimators, does not "
            "support it. Use another oracle, k-means or a mixture for example"
        ) from None


def from_skops(array: NDArray[Any], trusted: Sequence[str]) -> Any:
    """Return the estimator that `to_skops` wrote; ValueError if it has types that are not known."""
    skops_io, data = _skops(), array.tobytes()
    known = [*_TRUSTED, *trusted]
    unknown = [t for t in skops_io.get_untrusted_types(data=data) if t not in known]
    if unknown:
        raise ValueError(
            f"its decoder contains types that are not known to be safe: {unknown}; if you trust "
            "them, name them in load(path, trusted=[...])"
        )
    return skops_io.loads(data, trusted=known)


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise ImportError(
            "saving or loading this decoder needs skops: pip install 'blockmdp[save]' (k-means and "
            "Gaussian mixtures are saved without it)"
        ) from None
    return skops.io


def _digest(arrays: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
