"""The decoder learnt online: from the learner's own episodes, from the first one on.

No trajectory is drawn for the oracle alone. After each episode the oracles take in what it showed:
labels may be born, and earlier observations may turn out to have been misread. Then the past is
read again, and the learner learns it anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from blockmdp import rng
from blockmdp.decoder import Decoder, know_nothing
from blockmdp.kernels.jit import interpreted
from blockmdp.kernels.simulate import replay
from blockmdp.learners import Learner
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.oracles.fitting import Constant, Fitted, fit_oracle
from blockmdp.oracles.folded import LinearScores
from blockmdp.sights import by_level
from blockmdp.simulators import Observations, Trajectories
from blockmdp.url.fix_label import LabelStandard, fix_label

__all__ = ["OnlineDecoder"]


class OnlineDecoder:
    """A sight that learns from what it sees, and knows how it reads all that it has seen.

    Parameters
    ----------
    oracle : a `DirichletMixture`, whose labels are born when they are needed, or any other oracle,
        which is fitted anew when its data have grown by half.
    horizon : H.
    episodes : how many it will see at the most.
    pooled : one oracle for all levels, else one each.
    min_count : observations that confirm a label of another oracle, for FixLabel.
    key : for another oracle's random states.

    Attributes
    ----------
    k : episodes seen.
    labels : (episodes, H + 1) of all observations so far; with them `actions`, `rewards` and
        `lengths` of the episodes, as in `Trajectories`.
    """

    def __init__(
        self,
        oracle: Any,
        horizon: int,
        episodes: int,
        *,
        pooled: bool,
        min_count: float,
        key: np.uint64,
    ) -> None:
        self.pooled = pooled
        keys = rng.children(key, 0, 1 if pooled else horizon + 1)
        grows = isinstance(oracle, DirichletMixture)
        self.oracles: list[DirichletMixture | _Refitted] = [
            clone(oracle) if grows else _Refitted(oracle, k, min_count) for k in keys
        ]
        self.n_labels = 1
        self.k = 0
        self.labels = np.zeros((episodes, horizon + 1), np.int64)
        self.actions = np.zeros((episodes, horizon), np.int64)
        self.rewards = np.zeros((episodes, horizon))
        self.lengths = np.zeros(episodes, np.int64)

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        x = x.reshape(len(x), -1)
        labels = np.zeros(len(x), np.int32)
        for g, rows in by_level(np.zeros_like(levels) if self.pooled else levels):
            labels[rows] = self.oracles[g].read(x[rows])
        return labels

    def learn(self, episode: Trajectories) -> tuple[list[tuple[int, int]], int]:
        """Take in an episode.

        Returns the (level, label) that were born, and how many earlier observations are read
        otherwise now.
        """
        length = int(episode.lengths[0])
        x = episode.x[0, : length + 1].reshape(length + 1, -1)
        if not np.isfinite(x).all():
            raise ValueError("observations must be finite numbers: some are NaN or infinite")
        self.actions[self.k], self.rewards[self.k] = episode.actions[0], episode.rewards[0]
        self.lengths[self.k] = length
        self.k += 1
        born, reread = [], 0
        for g, rows in enumerate([x] if self.pooled else x[:, None]):
            known = self.oracles[g].n_labels_
            reread += self._take(g, rows)
            born += [(g, label) for label in range(known, self.oracles[g].n_labels_)]
        return born, reread

    def _take(self, g: int, rows: NDArray[Any]) -> int:
        oracle, n = self.oracles[g], len(rows)
        oracle.take(rows)
        self.n_labels = max(self.n_labels, oracle.n_labels_)
        if not oracle.relabelled_:
            first = 0 if self.pooled else g
            self.labels[self.k - 1, first : first + n] = oracle.labels_[-n:]
            return 0
        levels = np.arange(self.labels.shape[1])
        made = levels <= self.lengths[: self.k, None]
        made &= self.pooled or levels == g
        before = self.labels[: self.k][made]
        self.labels[: self.k][made] = oracle.labels_
        return int((before[:-n] != oracle.labels_[:-n]).sum())

    def teach(self, learner: Learner, tables: Any, first: int) -> None:
        """Let a learner learn from all episodes from `first` on, as they are read now."""
        run = replay if learner.is_compiled() else interpreted(replay)
        past = (self.labels, self.actions, self.rewards, self.lengths)
        run(learner.update, tables, *(a[first : self.k] for a in past))

    def decoder(self) -> Decoder:
        """What it has learnt so far, as a decoder."""
        each = [_decoder_of(oracle).widened(self.n_labels) for oracle in self.oracles]
        return Decoder(tuple(f.fitted[0] for f in each), np.concatenate([f.order for f in each]))


class _Refitted:
    """Any oracle online: fitted anew when its data have grown by half, and FixLabel keeps names."""

    def __init__(self, oracle: Any, key: np.uint64, min_count: float) -> None:
        self.oracle, self.key = oracle, key
        self.Z = LabelStandard(pooled=True, min_count=min_count, most=500)
        self.f = know_nothing()
        self.data: list[NDArray[Any]] = []
        self.labels_ = np.zeros(0, np.int64)
        self.relabelled_ = False
        self.n = self.learnt = self.fits = 0

    @property
    def n_labels_(self) -> int:
        return self.f.n_labels

    def read(self, X: NDArray[Any]) -> NDArray[np.int32]:
        return self.f.decode(np.zeros(len(X), np.int64), X)

    def take(self, X: NDArray[Any]) -> None:
        self.data.append(X)
        self.n += len(X)
        before = self.labels_
        if self.n >= 1.5 * self.learnt:
            self._fit()
            self.labels_ = self.read(self.data[0]).astype(np.int64)
        else:
            self.labels_ = np.concatenate([before, self.read(X)])
        self.relabelled_ = not np.array_equal(self.labels_[: len(before)], before)

    def _fit(self) -> None:
        self.data, self.learnt = [np.concatenate(self.data)], self.n
        with np.errstate(over="ignore"):
            fitted = fit_oracle(
                self.oracle, self.data[0], np.uint64(rng.child(self.key, self.fits))
            )
        self.fits += 1
        self.f = fix_label(Decoder.of((fitted,), self.f.n_labels), self.Z)
        self.Z.confirm(self.f, Observations(np.zeros(self.n, np.int64), self.data[0]))


def _decoder_of(oracle: DirichletMixture | _Refitted) -> Decoder:
    if isinstance(oracle, _Refitted):
        return oracle.f
    if oracle.n_labels_ == 0:  # it has seen nothing
        return Decoder.of((Fitted(Constant(), 1),))
    return Decoder.of((Fitted(LinearScores(*oracle.scores()), oracle.n_labels_),))
