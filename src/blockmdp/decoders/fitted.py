"""Decoders that oracles have learnt. They are values: relabelling returns a new one."""

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

Stacked = tuple[NDArray[np.float64], NDArray[np.float64]]

__all__ = ["FittedDecoder", "constant_decoder", "decode_mixture"]


@dataclass(frozen=True, eq=False)
class FittedDecoder:
    """Decoder that consists of fitted oracles and an order of their labels.

    It is f_[H+1] in the paper.

    Parameters
    ----------
    fitted : tuple of FittedOracle
        One for all levels (pooled), or one for each of the levels 0, ..., H.
    order : ndarray of shape (len(fitted), n_labels)
        A permutation for each of these: their label l is order[., l] here.

    See Also
    --------
    FittedDecoder.of : Makes one without relabelling.
    constant_decoder : The decoder before any data.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.cluster import KMeans
    >>> from blockmdp import oracles, rng
    >>> x = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> f = FittedDecoder.of((oracles.fit_oracle(KMeans(2), x, rng.root(0)),))
    >>> labels = f.decode(np.zeros(4, int), x)
    >>> np.array_equal(f.swap(0, 0, 1).decode(np.zeros(4, int), x), 1 - labels)
    True
    """

    fitted: tuple[FittedOracle, ...]
    order: NDArray[np.int32]

    @classmethod
    def of(cls, fitted: tuple[FittedOracle, ...], n_labels: int = 1) -> FittedDecoder:
        """Make a decoder that does not rename the labels of its oracles.

        Parameters
        ----------
        fitted : tuple of FittedOracle
            One for all levels (pooled), or one for each of the levels 0, ..., H.
        n_labels : int, default=1
            Smallest number of labels of the decoder.

        Returns
        -------
        FittedDecoder
            The decoder.
        """
        n = max(n_labels, *(f.n_labels for f in fitted))
        return cls(fitted, np.tile(np.arange(n, dtype=np.int32), (len(fitted), 1)))

    @property
    def pooled(self) -> bool:
        """Whether there is one oracle for all levels."""
        return len(self.fitted) == 1

    @property
    def n_labels(self) -> int:
        """Number of labels, at the level with most."""
        return int(self.order.shape[1])

    @property
    def notes(self) -> tuple[str, ...]:
        """What was unusual about the fits, with the level if there are several."""
        if self.pooled:
            return self.fitted[0].notes
        return tuple(f"level {h}: {note}" for h, f in enumerate(self.fitted) for note in f.notes)

    def group(self, level: int) -> int:
        """Return the index of a level's oracle in `fitted`.

        Parameters
        ----------
        level : int
            Level, from 0 to H.

        Returns
        -------
        int
            Always 0 if the decoder is pooled.
        """
        return 0 if self.pooled else level

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        levels : ndarray of shape (n,)
            Level of each observation.
        x : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        _check_one_each("level", levels, x)
        if len(x) == 0:
            return np.zeros(0, np.int32)
        levels, x = np.asarray(levels), x.reshape(len(x), -1)
        if self.pooled or (levels == levels[0]).all():
            g = self.group(int(levels[0]))
            return np.asarray(self.order[g][self.fitted[g].predict(x)], np.int32)
        stacked = self._stacked(x) if self._are_many(levels) else None
        if stacked is not None:
            return np.asarray(self.order[levels, linear_labels(x, levels, *stacked)], np.int32)
        labels = np.empty(len(x), np.int32)
        for h, rows in by_level(levels):
            labels[rows] = self.order[h][self.fitted[h].predict(x[rows])]
        return labels

    def _are_many(self, levels: NDArray[np.int64]) -> bool:
        """Whether observations are so many that it pays to label all levels in one loop."""
        n = len(self.fitted)
        return len(levels) > n and bool(levels.min() >= 0 and levels.max() < n)

    def _stacked(self, x: NDArray[Any]) -> Stacked | None:
        """Return the linear scores of all levels for observations x, None if some have none."""
        return _stack([_linear(self, h, x.shape[1]) for h in range(len(self.fitted))], x)

    def widened(self, n_labels: int) -> FittedDecoder:
        """Return the same decoder with more labels, which it does not use.

        Parameters
        ----------
        n_labels : int
            Smallest number of labels of the new decoder.

        Returns
        -------
        FittedDecoder
            The decoder itself if it has that many labels.
        """
        if n_labels <= self.n_labels:
            return self
        new = np.arange(self.n_labels, n_labels, dtype=np.int32)
        order = np.hstack([self.order, np.tile(new, (len(self.order), 1))])
        return replace(self, order=order)

    def swap(self, group: int, one: int, other: int) -> FittedDecoder:
        """Return the decoder in which two labels have changed places.

        Parameters
        ----------
        group : int
            Index of the oracle in `fitted`.
        one, other : int
            The labels.

        Returns
        -------
        FittedDecoder
            A new decoder.
        """
        order = self.order.copy()
        row = self.order[group]
        order[group][row == one] = other
        order[group][row == other] = one
        return replace(self, order=order)


def decode_mixture(
    decoders: Sequence[Decoder], which: NDArray[np.int64], level: int, x: NDArray[Any]
) -> NDArray[np.int32]:
    """Label observations of one level, each by its own decoder.

    Decoders with linear scores run together in one loop, all others one after the other.

    Parameters
    ----------
    decoders : sequence of Decoder
        The decoders.
    which : ndarray of shape (n,)
        Index of the decoder of each observation.
    level : int
        Level of all observations.
    x : ndarray of shape (n, ...)
        Observations.

    Returns
    -------
    ndarray of shape (n,)
        Their labels.

    Examples
    --------
    >>> import numpy as np
    >>> f = constant_decoder()
    >>> decode_mixture([f, f], np.array([0, 1, 0]), 0, np.zeros((3, 2)))
    array([0, 0, 0], dtype=int32)
    """
    _check_one_each("decoder", which, x)
    if len(x) == 0:
        return np.zeros(0, np.int32)
    if which.min() < 0 or which.max() >= len(decoders):
        raise ValueError(
            f"which must be from 0 to {len(decoders) - 1}, the decoders' places, got {which}"
        )
    if all(f is decoders[0] for f in decoders):
        return decoders[0].decode(np.full(len(x), level), x)
    rows = x.reshape(len(x), -1)
    stacked = _stack([_linear(f, level, rows.shape[1]) for f in decoders], rows)
    if stacked is not None:
        order = np.zeros((len(decoders), max(f.n_labels for f in decoders)), np.int32)
        for i, f in enumerate(decoders):
            assert isinstance(f, FittedDecoder)
            order[i, : f.n_labels] = f.order[f.group(level)]
        return np.asarray(order[which, linear_labels(rows, which, *stacked)], np.int32)
    labels = np.empty(len(x), np.int32)
    for i in np.unique(which):
        own = which == i
        labels[own] = decoders[i].decode(np.full(int(own.sum()), level), x[own])
    return labels


def _check_one_each(name: str, which: NDArray[np.int64], x: NDArray[Any]) -> None:
    """Raise ValueError unless there is one of `which` for each observation: compiled loops would
    read beyond it.
    """
    if np.shape(which) != (len(x),):
        n = np.size(which)
        raise ValueError(f"give one {name} for each of {len(x)} observations, got {n}")


def _stack(scores: Sequence[LinearScores | None], x: NDArray[Any]) -> Stacked | None:
    """Return W (n, K, d) and b (n, K) of n linear scores for observations x (m, d); None if some
    are missing or made for other observations.
    """
    d, known = x.shape[1], [each for each in scores if each is not None]
    if len(known) < len(scores) or any(each.W.shape[1] != d for each in known):
        return None
    K = max(len(each.b) for each in known)
    W, b = np.zeros((len(known), K, d)), np.full((len(known), K), -np.inf)
    for i, each in enumerate(known):
        W[i, : len(each.b)], b[i, : len(each.b)] = each.W, each.b
    return W, b


def _linear(f: Decoder, level: int, d: int) -> LinearScores | None:
    """Return the linear scores of d numbers by which a decoder labels at a level, if it has any."""
    if not isinstance(f, FittedDecoder):
        return None
    fitted = f.fitted[f.group(level)]
    predictor = fitted.predictor
    if isinstance(predictor, ConstantPredictor):
        return LinearScores(np.zeros((1, d)), np.zeros(1))
    if not isinstance(predictor, LinearScores) or fitted.names:
        return None
    return predictor if len(predictor.b) <= fitted.n_labels else None


def constant_decoder() -> FittedDecoder:
    """Return the decoder before any data, which gives every observation the label 0.

    Returns
    -------
    FittedDecoder
        A pooled decoder with one label.

    Examples
    --------
    >>> constant_decoder().n_labels
    1
    """
    return FittedDecoder.of((FittedOracle(ConstantPredictor(), 1),))
