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

from blockmdp.decoder import Decoder
from blockmdp.kernels.jit import interpreted
from blockmdp.kernels.simulate import replay
from blockmdp.learners import Learner
from blockmdp.oracles.fitting import Constant, Fitted
from blockmdp.oracles.folded import LinearScores
from blockmdp.sights import by_level
from blockmdp.simulators import Trajectories

__all__ = ["OnlineDecoder"]


class OnlineDecoder:
    """A sight that learns from what it sees, and knows how it reads all that it has seen.

    Parameters
    ----------
    oracle : a `blockmdp.oracles.DirichletMixture`, copied for each level.
    horizon : H.
    episodes : how many it will see at the most.
    pooled : one oracle for all levels, else one each.

    Attributes
    ----------
    labels : (episodes, H + 1) of all observations so far; with them `actions`, `rewards` and
        `lengths` of the episodes, as in `Trajectories`.
    """

    def __init__(self, oracle: Any, horizon: int, episodes: int, *, pooled: bool) -> None:
        self.pooled = pooled
        self.oracles = [clone(oracle) for _ in range(1 if pooled else horizon + 1)]
        self.k = 0
        self.labels = np.zeros((episodes, horizon + 1), np.int64)
        self.actions = np.zeros((episodes, horizon), np.int64)
        self.rewards = np.zeros((episodes, horizon))
        self.lengths = np.zeros(episodes, np.int64)
        self._fitted = [Fitted(Constant(), 1) for _ in self.oracles]

    @property
    def n_labels(self) -> int:
        return max(f.n_labels for f in self._fitted)

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        x = x.reshape(len(x), -1)
        labels = np.empty(len(x), np.int32)
        for h, rows in by_level(np.zeros_like(levels) if self.pooled else levels):
            labels[rows] = self._fitted[h].predict(x[rows])
        return labels

    def learn(self, episode: Trajectories) -> bool:
        """Take in an episode; whether an earlier one is read otherwise now."""
        k, length = self.k, int(episode.lengths[0])
        x = episode.x[0, : length + 1].reshape(length + 1, -1)
        if not np.isfinite(x).all():
            raise ValueError("observations must be finite numbers: some are NaN or infinite")
        self.actions[k], self.rewards[k] = episode.actions[0], episode.rewards[0]
        self.lengths[k] = length
        self.k += 1
        reread = False
        for g, rows in enumerate([x] if self.pooled else x[:, None]):
            reread |= self._take(g, rows)
        return reread

    def _take(self, g: int, rows: NDArray[Any]) -> bool:
        oracle, k = self.oracles[g], self.k - 1
        oracle.take(rows)
        self._fitted[g] = Fitted(LinearScores(*oracle.scores()), oracle.n_labels_)
        if not oracle.relabelled_:
            here = self.labels[k] if self.pooled else self.labels[k, g : g + 1]
            here[: len(rows)] = oracle.labels_[-len(rows) :]
            return False
        lengths = self.lengths[: self.k]
        if self.pooled:
            made = np.arange(self.labels.shape[1]) <= lengths[:, None]
            self.labels[: self.k][made] = oracle.labels_
        else:
            self.labels[: self.k, g][lengths >= g] = oracle.labels_
        return True

    def teach(self, learner: Learner, tables: Any, first: int) -> None:
        """Let a learner learn from all episodes from `first` on, as they are read now."""
        update: Any = learner.update
        run = replay if learner.is_compiled() else interpreted(replay)
        past = (self.labels, self.actions, self.rewards, self.lengths)
        run(update, tables, *(a[first : self.k] for a in past))

    def decoder(self) -> Decoder:
        """What it has learnt so far, as a decoder."""
        return Decoder.of(tuple(self._fitted))
