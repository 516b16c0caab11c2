"""Policies in files: arrays and JSON in an npz archive, never pickle.

A decoder that folds into matrices is saved as these; any other scikit-learn estimator by skops,
which runs no code on loading.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
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


def write_policy(path: Path, pi: NDArray[np.float64], f: Decoder, shape: tuple[int, ...]) -> None:
    """Write pi (H, labels, A), the decoder f and an observation's shape, whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {"pi": pi, "order": f.order}
    fitted = []
    for i, one in enumerate(f.fitted):
        kind, parts = _parts(one.predictor)
        arrays |= {f"f{i}.{name}": value for name, value in parts.items()}
        fitted.append({"kind": kind, "n_labels": one.n_labels, "notes": list(one.notes)})
    about = {
        "format": _FORMAT,
        "version": _VERSION,
        "observation_shape": shape,
        "fitted": fitted,
        "digest": _digest(arrays),
    }
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_policy(
    path: Path, trusted: Sequence[str] = ()
) -> tuple[NDArray[np.float64], Decoder, tuple[int, ...]]:
    """What `write_policy` wrote; a ValueError says what is wrong with any other file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # what damaged archives raise is no closed list
        raise ValueError(f"{path} is no policy of blockmdp, or is damaged: {error}") from None
    try:
        about = json.loads(arrays.pop("about").tobytes())
        if about["format"] != _FORMAT:
            raise KeyError("format")
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"{path} is an archive, but no policy of blockmdp") from None
    if about.get("version") != _VERSION:
        raise ValueError(
            f"{path} has the format {about.get('version')} of policies; this blockmdp reads "
            f"{_VERSION}"
        )
    if about.get("digest") != _digest(arrays):
        raise ValueError(
            f"{path} is a policy that was altered after it was written: its digest does not fit"
        )
    try:
        fitted = tuple(
            Fitted(
                _predictor(one["kind"], arrays, f"f{i}.", trusted),
                one["n_labels"],
                tuple(one["notes"]),
            )
            for i, one in enumerate(about["fitted"])
        )
        return arrays["pi"], Decoder(fitted, arrays["order"]), tuple(about["observation_shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds a policy that cannot be read: {error}") from None


def _parts(predictor: Any) -> tuple[str, dict[str, NDArray[Any]]]:
    for kind, (cls, names) in _FOLDED.items():
        if isinstance(predictor, cls):
            return kind, {name: getattr(predictor, name) for name in names}
    skops_io = _skops()
    return "skops", {"bytes": np.frombuffer(skops_io.dumps(predictor), np.uint8)}


def _predictor(
    kind: str, arrays: dict[str, NDArray[Any]], prefix: str, trusted: Sequence[str]
) -> Any:
    if kind in _FOLDED:
        cls, names = _FOLDED[kind]
        return cls(*(arrays[prefix + name] for name in names))
    skops_io, data = _skops(), arrays[prefix + "bytes"].tobytes()
    known = [*_TRUSTED, *trusted]
    unknown = [t for t in skops_io.get_untrusted_types(data=data) if t not in known]
    if unknown:
        raise ValueError(
            f"its decoder is made of types that are not known to be safe: {unknown}; "
            "name those that you trust in load(path, trusted=[...])"
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
