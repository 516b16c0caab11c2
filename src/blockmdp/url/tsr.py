"""TSR, the trajectory sampling routine (Feng et al. 2020, Algorithm 2).

Each difference between the algorithm as written and as used in the experiments is a field of `TSR`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from blockmdp import rng, streams
from blockmdp.decoders import FittedDecoder, constant_decoder
from blockmdp.history import Refit
from blockmdp.oracles import AutoOracle, DirichletMixture, IncrementalOracle
from blockmdp.oracles.dirichlet import bounded, trusting
from blockmdp.oracles.fitting import (
    KEPT,
    ConstantPredictor,
    FittedOracle,
    fit_growing,
    fit_oracle,
    learn_more,
)
from blockmdp.policy import Policy
from blockmdp.simulators import Simulator
from blockmdp.trajectories import Observations, Trajectories
from blockmdp.url.doubts import label_counts
from blockmdp.url.fix_label import LabelStandard, fix_label
from blockmdp.url.pooling import can_pool

__all__ = ["TSR", "agreement"]

# a mixture is taken to invent labels if, of at least ENOUGH observations, there are fewer than FEW
# for each label, and most labels have fewer than RARE
ENOUGH, FEW, RARE = 100, 5, 3
EXPLORING = 100  # batches of random trajectories that an oracle can ask for, beside the J


@dataclass
class TSR:
    """Algorithm 2. Keeps the policies Pi, the label standard Z and the decoder f between calls.

    Parameters
    ----------
    simulator : Simulator
        Where trajectories come from.
    oracle : estimator or None
        Learns to decode their observations. None is `DirichletMixture()`, and `AutoOracle()` if one
        decoder serves all levels and the mixture finds a label for every few observations.
    J : int
        Iterations in each call, if not stopped early. Those in which an oracle that looks at
        actions asks for random ones (see `IncrementalOracle`) do not count.
    B : int
        Batch size.
    B_test : int
        Test trajectories in each iteration; B in the paper.
    resample : bool
        Draw all training data again from Unif(Pi) in each iteration, as in the paper. If False,
        keep earlier data and add a batch by the newest policy.
    growth : float
        Factor by which the batch grows from one iteration to the next.
    stop_agreement : float or None
        Stop when two successive decoders agree on at least this fraction of each label, on fresh
        data and up to a permutation of the labels. None never stops early, as in the paper.
    pool_levels : bool or "auto"
        One decoder for all levels; if False one for each level, as in the paper. "auto" decides
        when the first data are there.
    fix_labels : bool
        Call FixLabel, as in the paper.
    Z : LabelStandard
        Label standard data.
    memory : int or None
        Observations kept for further training, the newest; None keeps all.
    record : bool
        Keep every decoder in the history.
    restart : int
        Number of the restart, for the oracle's random states.
    """

    simulator: Simulator
    oracle: Any
    J: int
    B: int
    B_test: int
    resample: bool
    growth: float
    stop_agreement: float | None
    pool_levels: bool | Literal["auto"]
    fix_labels: bool
    Z: LabelStandard
    memory: int | None
    record: bool
    restart: int
    f: FittedDecoder = field(default_factory=constant_decoder)
    Pi: list[Policy] = field(default_factory=list)
    data: Observations | None = None
    history: list[Refit] = field(default_factory=list)
    is_stable: bool = False
    fits: int = 0
    learning: dict[int, _Learning] = field(default_factory=dict)  # by level; 0 if levels are pooled
    is_default: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether the oracle goes on from what it has learnt, instead of being fitted again."""
        return isinstance(self.oracle, IncrementalOracle) and not self.resample

    @property
    def explores(self) -> bool:
        """Whether an oracle that looks at actions asks for random ones."""
        return any(_explores(own.oracle) for own in self.learning.values())

    def decoder(self, pi: NDArray[np.float64], k: int) -> FittedDecoder:
        """Train the decoder for the policy of an episode.

        Parameters
        ----------
        pi : ndarray of shape (H, n_labels, A)
            The learner's policy.
        k : int
            Number of the episode, from 1.

        Returns
        -------
        FittedDecoder
            The decoder, also kept for the next call.
        """
        batch, left = float(self.B), self.J
        for _ in range(self.J + EXPLORING):  # 3
            is_random = self.explores
            policy = Policy(np.full_like(pi, 1 / pi.shape[2]) if is_random else pi, self.f)
            if self.resample:
                self.Pi.append(policy)  # 4
                n = len(self.Pi) * self.B  # ((k - 1) J + i) B, called in every episode
                D = self.simulator.rollout(self.Pi, n, "oracle").observations  # 5
            else:
                new = self.simulator.rollout([policy], math.ceil(batch), "oracle")
                self._show_actions(new, is_random)
                D = self._remember(new.observations)
                batch *= 1.0 if is_random else self.growth
            test = self.simulator.rollout([policy], self.B_test, "test").observations  # 6
            self._train(D, test, pi, k)  # 7-12
            left -= not self.explores
            if self.is_stable or not left:
                break
        return self.f

    def retrain(self, pi: NDArray[np.float64], fresh: Observations, k: int) -> FittedDecoder:
        """Train on what the learner has just seen, as in the experiments.

        Half of it joins the training data. The other half tests the decoder, and joins afterwards.

        Parameters
        ----------
        pi : ndarray of shape (H, n_labels, A)
            The learner's policy.
        fresh : Observations
            What the learner has seen since the last training.
        k : int
            Number of the episode, from 1.

        Returns
        -------
        FittedDecoder
            The decoder, also kept for the next call.
        """
        fresh = self._shuffled(fresh)
        rows = _rows_by_level(fresh.levels)
        train, test = (
            Observations(fresh.levels[at], fresh.x[at])
            for at in (
                np.concatenate([r[: len(r) // 2] for r in rows]),
                np.concatenate([r[len(r) // 2 :] for r in rows]),
            )
        )
        self._train(self._forget(self._remember(train)), test, pi, k)
        self._remember(test)
        return self.f

    def trusted_decoder(self) -> FittedDecoder:
        """Return the decoder for a policy that learns no more; see `DirichletMixture`.

        Returns
        -------
        FittedDecoder
            The decoder, less the labels that its oracles do not trust.
        """
        if not self.learning:
            return self.f
        fitted = [
            replace(each, predictor=trusting(each.predictor, self.learning[g].oracle))
            if g in self.learning
            else each
            for g, each in enumerate(self.f.fitted)
        ]
        return FittedDecoder(tuple(fitted), self.f.order)

    def counts(self) -> list[NDArray[np.int64]]:
        """Count the training data of each label.

        Returns
        -------
        list of ndarray
            For each oracle, the numbers of observations of its labels; empty without data.
        """
        if self.data is None:
            return []
        labels = self.trusted_decoder().decode(self.data.levels, self.data.x)
        return label_counts(labels, np.zeros_like(labels) if self.f.pooled else self.data.levels)

    def _show_actions(self, new: Trajectories, is_random: bool) -> None:
        """Show the steps of a batch to oracles that look at actions, before they learn from it.

        They learn from the first batch by `fit`, without actions. An oracle that asks for random
        actions sees no others.
        """
        if not (hasattr(self.oracle, "see_actions") and self.learning):
            return
        after, before, actions = new.steps
        labels = self.f.decode(after.levels - 1, before)
        steps = [each.reshape(len(labels), -1) for each in (after.x, before)]
        for g, own in self.learning.items():
            if own.has_learnt and (is_random or not _explores(own.oracle)):
                rows = np.flatnonzero(self.pool_levels | (after.levels == g))
                own.oracle.see_actions(*(each[rows] for each in (*steps, labels, actions)))

    def _remember(self, new: Observations) -> Observations:
        self.data = new if self.data is None else self.data + new
        return self.data

    def _forget(self, data: Observations) -> Observations:
        """Keep at most `memory` observations: the newest, equally many of each level."""
        if self.memory is not None and len(data) > self.memory:
            most = max(self.memory // (self.simulator.horizon + 1), 1)
            kept = [rows[-most:] for rows in _rows_by_level(data.levels)]
            at = np.sort(np.concatenate(kept))
            gone = np.ones(len(data), np.bool_)
            gone[at] = False
            for g, own in self.learning.items():
                of_g = gone if self.pool_levels else gone[data.levels == g]
                own.n_seen -= int(np.count_nonzero(of_g[: own.n_seen]))
            self.data = data = Observations(data.levels[at], data.x[at])
        return data

    def _shuffled(self, new: Observations) -> Observations:
        """Shuffle, so that forgetting old observations favours no latent state."""
        key = rng.key(streams.estimator(self.simulator.seed), 2**40 + self.restart, self.fits)
        at = new.order()[np.argsort(rng.uniforms(rng.children(key, 0, len(new)), 1)[:, 0])]
        return Observations(new.levels[at], new.x[at])

    def _train(self, D: Observations, test: Observations, pi: NDArray[np.float64], k: int) -> None:
        before = self.f
        f = self._fit(D, k)  # 7
        if self.fix_labels:
            f = fix_label(f, self.Z)  # 8
        has_labels = not self.explores
        confirmed = tuple(self.Z.confirm(f, test)) if self.fix_labels and has_labels else ()  # 9-12
        first = self.fits == 0
        agreed = math.nan if first or len(test) == 0 else agreement(before, f, test)
        agree = self.stop_agreement is not None and agreed >= self.stop_agreement
        self.is_stable = agree and has_labels
        relabelled = 0 if first else _relabelled(before, f, test)
        self.f = f
        self.fits += 1
        drawn = self.simulator.episodes
        policy = Policy(pi, f) if self.record else None
        self.history.append(Refit(k - 1, drawn, policy, f.notes, confirmed, agreed, relabelled))

    def _fit(self, D: Observations, k: int) -> FittedDecoder:
        """Line 7. Where the oracle fails, the last one is kept with the names of its labels.

        An incremental oracle goes on from what it has learnt.
        """
        key = rng.key(streams.estimator(self.simulator.seed), self.restart, self.fits)
        last = self.f
        if self.pool_levels == "auto":
            self.pool_levels = self.Z.pooled = can_pool(D)
        if self.oracle is None:
            self.oracle, self.is_default = DirichletMixture(), True
        if self.pool_levels:
            parts = [(D.x, key, last.fitted[0])]
        else:
            parts = [
                (D.x[D.levels == h], rng.key(key, h), last.fitted[last.group(h)])
                for h in range(self.simulator.horizon + 1)
            ]
        fitted = tuple(self._fit_oracle(g, *part) for g, part in enumerate(parts))
        if self.is_default and self.pool_levels and 0 in self.learning:
            own = self.learning[0]
            if own.has_learnt and _invents_labels(own.oracle.labels_):
                self.oracle, self.is_default, self.learning = AutoOracle(), False, {}
                if k == 1:  # nobody has used the labels
                    self.Z.D, last = {}, constant_decoder()
                fitted = (fit_oracle(self.oracle, D.x, key, last=last.fitted[0]),)
        f = FittedDecoder.of(fitted, max(self.Z.n_labels, last.n_labels))
        for g, (new, (_, _, old)) in enumerate(zip(fitted, parts)):
            if new.predictor is old.predictor:
                f.order[g] = last.widened(f.n_labels).order[g]
        return f

    def _fit_oracle(
        self, g: int, x: NDArray[Any], key: np.uint64, last: FittedOracle
    ) -> FittedOracle:
        """Fit the oracle of level g, or of all levels if g = 0 and they are pooled."""
        if not self.goes_on:
            return fit_oracle(self.oracle, x, key, last=last)
        if g not in self.learning:
            n_oracles = 1 if self.pool_levels else self.simulator.horizon + 1
            self.learning[g] = _Learning(bounded(self.oracle, self.memory, n_oracles))
        own = self.learning[g]
        if own.has_learnt:
            fitted = learn_more(own.oracle, x[own.n_seen :], last)
        else:
            fitted = fit_growing(own.oracle, x, key, last)
            own.has_learnt = not isinstance(fitted.predictor, ConstantPredictor)
        own.n_seen = len(x) if own.has_learnt else 0
        if KEPT in "".join(fitted.notes):
            del self.learning[g]  # it may have learnt a part of the data
        return fitted


@dataclass
class _Learning:
    """An incremental oracle that learns from growing data."""

    oracle: Any
    has_learnt: bool = False
    n_seen: int = 0  # of the data that are kept, how many it has seen: the first ones


def _explores(oracle: Any) -> bool:
    return bool(getattr(oracle, "explores_", False))


def _invents_labels(labels: NDArray[np.int64]) -> bool:
    """Whether a mixture needs a label for every few observations, and most labels are rare."""
    counts = np.unique(labels, return_counts=True)[1]
    few = len(labels) < FEW * len(counts) and 2 * np.count_nonzero(counts < RARE) > len(counts)
    return bool(few and len(labels) >= ENOUGH)


def _rows_by_level(levels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [np.flatnonzero(levels == h) for h in np.unique(levels)]


def agreement(one: FittedDecoder, other: FittedDecoder, data: Observations) -> float:
    """Share of each label on which two decoders agree, up to the best permutation of the labels.

    It is the mean over the labels of `one` that occur, so that a rare label weighs as much as a
    common one. If each level has its own decoder, the level that agrees least counts.

    Parameters
    ----------
    one, other : FittedDecoder
        Decoders to compare.
    data : Observations
        Observations to compare them on.

    Returns
    -------
    float
        Between 0 and 1.
    """
    pooled = one.pooled and other.pooled
    groups = np.zeros_like(data.levels) if pooled else data.levels
    n = max(one.n_labels, other.n_labels)
    a, b = one.decode(data.levels, data.x), other.decode(data.levels, data.x)
    worst = 1.0
    for g in np.unique(groups):
        table = np.zeros((n, n))
        np.add.at(table, (a[groups == g], b[groups == g]), 1)
        seen = table.sum(axis=1) > 0
        table = table[seen] / table[seen].sum(axis=1, keepdims=True)
        rows, columns = linear_sum_assignment(-table)
        worst = min(worst, float(table[rows, columns].mean()))
    return worst


def _relabelled(before: FittedDecoder, after: FittedDecoder, data: Observations) -> int:
    """Count the labels of `before`, at each level, most of whose data have another label now."""
    if len(data) == 0:
        return 0
    a, b = before.decode(data.levels, data.x), after.decode(data.levels, data.x)
    pooled = before.pooled and after.pooled
    groups = np.zeros_like(data.levels) if pooled else data.levels
    count = 0
    for g in np.unique(groups):
        for s in np.unique(a[groups == g]):
            names = np.bincount(b[(groups == g) & (a == s)])
            count += int(names.argmax() != s)
    return count
