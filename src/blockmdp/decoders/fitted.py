"""The decoder: fitted oracles and an order of their labels. Relabelling makes a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.decoders.base import Decoder
from blockmdp.oracles.fitting import ConstantPredictor, FittedOracle
from blockmdp.oracles.scores import LinearScores, linear_labels
from blockmdp.trajectories import by_level

__all__ = ["FittedDecoder", "constant_decoder", "decode_mixture"]


@dataclass(frozen=True, eq=False)
class FittedDecoder:
    """f_[H+1]: observations of each level to labels.

    Parameters
    ----------
    fitted : one fitted oracle for all levels (pooled), or one for each of the levels 0, ..., H.
    order : (1 or H + 1, n_labels) for each of these a permutation: label l of the fitted oracle is
        called order[., l] here.
    """

    fitted: tuple[FittedOracle, ...]
    order: NDArray[np.int32]

    @classmethod
    def of(cls, fitted: tuple[FittedOracle, ...], n_labels: int = 1) -> FittedDecoder:
        """The labels just as the oracles give them, with room for n_labels."""
        n = max(n_labels, *(f.n_labels for f in fitted))
        return cls(fitted, np.tile(np.arange(n, dtype=np.int32), (len(fitted), 1)))

    @property
    def pooled(self) -> bool:
        """Whether one oracle serves all levels."""
        return len(self.fitted) == 1

    @property
    def n_labels(self) -> int:
        return int(self.order.shape[1])

    @property
    def notes(self) -> tuple[str, ...]:
        """What was out of the ordinary in the fitting, with the level."""
        if self.pooled:
            return self.fitted[0].notes
        return tuple(f"level {h}: {note}" for h, f in enumerate(self.fitted) for note in f.notes)

    def group(self, level: int) -> int:
        """The place of a level's oracle."""
        return 0 if self.pooled else level

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """The labels (n,) of the observations x (n, ...), where x[i] was made at levels[i]."""
        if len(x) == 0:
            return np.zeros(0, np.int32)
        x = x.reshape(len(x), -1)
        if self.pooled:
            return np.asarray(self.order[0][self.fitted[0].predict(x)], np.int32)
        labels = np.empty(len(x), np.int32)
        for h, rows in by_level(levels):
            labels[rows] = self.order[h][self.fitted[h].predict(x[rows])]
        return labels

    def widened(self, n_labels: int) -> FittedDecoder:
        """The same decoder with room for n_labels, of which it does not use the new ones."""
        if n_labels <= self.n_labels:
            return self
        new = np.arange(self.n_labels, n_labels, dtype=np.int32)
        order = np.hstack([self.order, np.tile(new, (len(self.order), 1))])
        return replace(self, order=order)

    def swap(self, group: int, one: int, other: int) -> FittedDecoder:
        """The decoder that says `one` where this says `other`, and the reverse."""
        order = self.order.copy()
        row = self.order[group]
        order[group][row == one] = other
        order[group][row == other] = one
        return replace(self, order=order)


def decode_mixture(
    decoders: Sequence[Decoder], which: NDArray[np.int64], level: int, x: NDArray[Any]
) -> NDArray[np.int32]:
    """The labels (n,) of one level's observations x (n, ...), x[i] as decoders[which[i]] sees it.

    Decoders that score linearly are asked all at once, others one after the other.
    """
    if len(x) == 0:
        return np.zeros(0, np.int32)
    if len(decoders) == 1:
        return decoders[0].decode(np.full(len(x), level), x)
    scores = [_linear(f, level) for f in decoders]
    if all(s is not None for s in scores):
        K = max(len(s.b) for s in scores if s is not None)
        L = max(f.n_labels for f in decoders)
        W = np.zeros((len(decoders), K, x.reshape(len(x), -1).shape[1]))
        b = np.full((len(decoders), K), -np.inf)
        order = np.zeros((len(decoders), L), np.int32)
        for i, (f, s) in enumerate(zip(decoders, scores)):
            assert isinstance(f, FittedDecoder)
            assert s is not None
            W[i, : len(s.b)], b[i, : len(s.b)] = s.W, s.b
            order[i, : f.n_labels] = f.order[f.group(level)]
        raw = linear_labels(x.reshape(len(x), -1), which, W, b)
        return np.asarray(order[which, raw], np.int32)
    labels = np.empty(len(x), np.int32)
    for i in np.unique(which):
        rows = which == i
        labels[rows] = decoders[i].decode(np.full(int(rows.sum()), level), x[rows])
    return labels


def _linear(f: Decoder, level: int) -> LinearScores | None:
    predictor = f.fitted[f.group(level)].predictor if isinstance(f, FittedDecoder) else None
    if isinstance(predictor, ConstantPredictor):
        return LinearScores(np.zeros((1, 1)), np.zeros(1))
    return predictor if isinstance(predictor, LinearScores) else None


def constant_decoder() -> FittedDecoder:
    """The decoder before any data: one label for all."""
    return FittedDecoder.of((FittedOracle(ConstantPredictor(), 1),))
