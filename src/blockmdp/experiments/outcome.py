"""The outcome of a run: plain data that a worker sends and a store keeps."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.experiments.errors import short

__all__ = ["Curve", "Decoding", "Outcome", "Values"]

MOST_BYTES = 2**20  # of a curve, unpacked; about 200 points have 5,000


@dataclass(frozen=True, eq=False)
class Curve:
    """The course of a run at about 200 points.

    Attributes
    ----------
    episodes : ndarray of shape (points,)
        Learning episodes so far.
    trajectories : ndarray of shape (points,)
        Trajectories of all kinds so far.
    total : ndarray of shape (points,)
        Sum of the returns of the learning episodes so far.
    """

    episodes: NDArray[np.int64]
    trajectories: NDArray[np.int64]
    total: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """Return the arrays as compressed bytes."""
        return _packed(self.episodes, self.trajectories, self.total)

    @classmethod
    def from_bytes(cls, data: bytes) -> Curve:
        """Return the curve that `to_bytes` wrote."""
        episodes, trajectories, total = _unpacked(data, 3)
        return cls(episodes, trajectories, total.view("<f8"))


@dataclass(frozen=True, eq=False)
class Values:
    """What the greedy policy was worth at about 20 points of a run.

    Attributes
    ----------
    trajectories : ndarray of shape (points,)
        Trajectories of all kinds so far.
    value : ndarray of shape (points,)
        Value of the policy, computed from the model.
    """

    trajectories: NDArray[np.int64]
    value: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """Return the arrays as compressed bytes."""
        return _packed(self.trajectories, self.value)

    @classmethod
    def from_bytes(cls, data: bytes) -> Values:
        """Return the values that `to_bytes` wrote."""
        trajectories, value = _unpacked(data, 2)
        return cls(trajectories, value.view("<f8"))


@dataclass(frozen=True, eq=False)
class Decoding:
    """How well the decoder of a run tells latent states apart.

    Attributes
    ----------
    labels : ndarray of shape (H + 1,)
        How many different labels the observations of each level got.
    accuracy : ndarray of shape (H + 1,)
        Accuracy at each level; see `blockmdp.measures.accuracy`.
    """

    labels: NDArray[np.int64]
    accuracy: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """Return the arrays as compressed bytes."""
        return _packed(self.labels, self.accuracy)

    @classmethod
    def from_bytes(cls, data: bytes) -> Decoding:
        """Return what `to_bytes` wrote."""
        labels, accuracy = _unpacked(data, 2)
        accuracy = accuracy.view("<f8")
        if not ((labels >= 1) & (accuracy >= 0) & (accuracy <= 1)).all():
            raise ValueError("these are no accuracies")
        return cls(labels, accuracy)


def _packed(*arrays: NDArray[Any]) -> bytes:
    return zlib.compress(b"".join(a.astype(a.dtype.newbyteorder("<")).tobytes() for a in arrays))


def _unpacked(data: bytes, rows: int) -> NDArray[np.int64]:
    """Return arrays that `_packed` wrote; ValueError for anything else, however large it is."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, MOST_BYTES)
    except zlib.error:
        plain = b""
    if not unpacking.eof or not plain or len(plain) % (8 * rows):
        raise ValueError("these are no packed arrays")
    return np.frombuffer(plain, "<i8").reshape(rows, -1)


@dataclass(frozen=True)
class Outcome:
    """The result of a run. Repeating a run changes only `seconds` and `environment`.

    Attributes
    ----------
    error : str or None
        Why the run failed, with the traceback; None if it did not.
    average : float or None
        Mean return over all episodes.
    final : float or None
        Mean return over the last `solved.window` episodes; if runs are solved by value, that of the
        final policy.
    solved_at : int or None
        Trajectories of all kinds until the run was solved, by the measure of `solved`; None if it
        never was.
    trajectories : int
        Trajectories of all kinds that were drawn.
    ledger : dict
        Trajectories by kind.
    curve : bytes
        A `Curve`, as bytes.
    optimal : float or None
        Optimal value of the problem; None for a black box.
    value : float or None
        Value of the final policy, computed from the model; None for a black box, and for an agent
        that is no `blockmdp.Agent`.
    values : bytes
        `Values` of the policies before, as bytes; empty if there are none.
    accuracy : float or None
        Accuracy of the decoder at its worst level; None without a decoder, or for a black box.
    decoding : bytes
        `Decoding` of all levels, as bytes; empty if there is none.
    seconds : float
        Time that the run took.
    environment : dict
        Versions and machine.
    """

    error: str | None = None
    average: float | None = None
    final: float | None = None
    solved_at: int | None = None
    trajectories: int = 0
    ledger: dict[str, int] = field(default_factory=dict)
    curve: bytes = b""
    optimal: float | None = None
    value: float | None = None
    values: bytes = b""
    accuracy: float | None = None
    decoding: bytes = b""
    seconds: float = 0.0
    environment: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the outcome as JSON, which a worker sends to its driver."""
        plain = {key: value.hex() if isinstance(value, bytes) else value
                 for key, value in vars(self).items()}  # fmt: skip
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str | bytes) -> Outcome:
        """Return the outcome that `to_json` wrote; ValueError if it is none."""
        try:
            values = json.loads(text)
            for key in ("curve", "values", "decoding"):
                values[key] = bytes.fromhex(values[key])
        except (ValueError, TypeError, KeyError):
            raise ValueError("it cannot be read as an outcome") from None
        if values.keys() != cls.__annotations__.keys():
            raise ValueError("an outcome has other fields")
        for key, types in _TYPES.items():
            if not isinstance(values[key], types) or isinstance(values[key], bool):
                raise ValueError(f"{key} of an outcome is {short(values[key])}")
        outcome = cls(**values)
        if outcome.error is None:
            Curve.from_bytes(outcome.curve)
        if outcome.values:
            Values.from_bytes(outcome.values)
        if outcome.decoding:
            Decoding.from_bytes(outcome.decoding)
        return outcome


_TYPES: dict[str, Any] = {
    "error": str | None,
    "average": float | int | None,
    "final": float | int | None,
    "solved_at": int | None,
    "trajectories": int,
    "ledger": dict,
    "optimal": float | int | None,
    "value": float | int | None,
    "accuracy": float | int | None,
    "seconds": float | int,
    "environment": dict,
}
