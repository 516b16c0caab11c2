"""Policies in files: arrays and JSON in an npz archive, never pickle.

A decoder that folds into matrices is saved as these; any other scikit-learn estimator by skops,
which runs no code on loading.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.decoder import Decoder
from blockmdp.oracles.fitting import Constant, Fitted
from blockmdp.oracles.folded import LinearScores, NetworkScores, QuadraticScores

__all__ = ["read_policy", "write_policy"]

_FORMAT, _VERSION = "blockmdp policy", 1
_FOLDED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "linear": (LinearScores, ("W", "b")),
    "quadratic": (QuadraticScores, ("W", "b", "c")),
    "network": (NetworkScores, ("W", "b", "V", "c")),
    "constant": (Constant, ()),
}
_TRUSTED = ["blockmdp.oracles.fitting.Completed"]


def write_policy(path: Path, pi: NDArray[np.float64], f: Decoder) -> None:
    """Write pi (H, labels, A) and the decoder f to a file, whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {"pi": pi, "order": f.order}
    fitted = []
    for i, one in enumerate(f.fitted):
        kind, parts = _parts(one.predictor)
        arrays |= {f"f{i}.{name}": value for name, value in parts.items()}
        fitted.append({"kind": kind, "n_labels": one.n_labels, "notes": list(one.notes)})
    about = {"format": _FORMAT, "version": _VERSION, "fitted": fitted, "digest": _digest(arrays)}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_policy(path: Path) -> tuple[NDArray[np.float64], Decoder]:
    """pi and f from a file of `write_policy`; a ValueError says what is wrong with any other."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is no policy of blockmdp, or is cut short: {error}") from None
    try:
        about = json.loads(arrays.pop("about").tobytes())
        if about["format"] != _FORMAT:
            raise KeyError
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"{path} is an archive, but no policy of blockmdp") from None
    if about["version"] != _VERSION:
        raise ValueError(
            f"{path} has the format {about['version']} of policies; this blockmdp reads {_VERSION}"
        )
    if _digest(arrays) != about["digest"]:
        raise ValueError(f"{path} was altered after it was written: its digest does not fit")
    fitted = tuple(
        Fitted(
            _predictor(entry["kind"], arrays, f"f{i}."), entry["n_labels"], tuple(entry["notes"])
        )
        for i, entry in enumerate(about["fitted"])
    )
    return arrays["pi"], Decoder(fitted, arrays["order"])


def _parts(predictor: Any) -> tuple[str, dict[str, NDArray[Any]]]:
    for kind, (cls, names) in _FOLDED.items():
        if isinstance(predictor, cls):
            return kind, {name: getattr(predictor, name) for name in names}
    skops_io = _skops()
    return "skops", {"bytes": np.frombuffer(skops_io.dumps(predictor), np.uint8)}


def _predictor(kind: str, arrays: dict[str, NDArray[Any]], prefix: str) -> Any:
    if kind in _FOLDED:
        cls, names = _FOLDED[kind]
        return cls(*(arrays[prefix + name] for name in names))
    skops_io, data = _skops(), arrays[prefix + "bytes"].tobytes()
    unknown = [t for t in skops_io.get_untrusted_types(data=data) if t not in _TRUSTED]
    if unknown:
        raise ValueError(
            f"the policy's decoder is made of types that are not known to be safe: {unknown}"
        )
    return skops_io.loads(data, trusted=_TRUSTED)


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
