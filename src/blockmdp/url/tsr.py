"""TSR, the trajectory sampling routine (Feng et al. 2020, Algorithm 2), as written and as
practised.

Each departure of the experiments from the algorithm is a field of `TSR`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from blockmdp import rng, streams
from blockmdp.decoder import Decoder, know_nothing
from blockmdp.oracles.fitting import Fitted, fit_oracle
from blockmdp.simulators import Observations, Policy, Simulator
from blockmdp.url.fix_label import LabelStandard, fix_label

__all__ = ["TSR", "Refit", "agreement"]


@dataclass(frozen=True)
class Refit:
    """What one training of the decoder did: a line in the agent's diary.

    Attributes
    ----------
    k : the learner's episode (from 0) before which it happened.
    trajectories : drawn in all by then.
    f, pi : the decoder that came of it, and the policy on its labels; kept where asked for.
    notes : what was out of the ordinary in the oracle's fitting.
    confirmed : the (level, label) that its test data confirmed.
    agreement : with the decoder before, on fresh data, up to a permutation; NaN for the first.
    relabelled : labels whose name changed against the decoder before, by most of their data;
        online, earlier observations that are read otherwise now.
    """

    k: int
    trajectories: int
    f: Decoder | None
    pi: NDArray[np.float64] | None
    notes: tuple[str, ...]
    confirmed: tuple[tuple[int, int], ...]
    agreement: float
    relabelled: int


@dataclass
class TSR:
    """Algorithm 2. Holds what it keeps between calls: the policies Pi, Z, the decoder f.

    Parameters
    ----------
    simulator, oracle : where trajectories come from, and what learns from their observations.
    J : iterations a call, at the most.
    B : batch size.
    B_test : test trajectories an iteration; B as written.
    resample : draw all training data anew from Unif(Pi) in each iteration, as written; else keep
        earlier data and add a batch by the newest policy, as practised.
    growth : each batch is so many times the one before, while the decoder is not stable.
    stable : stop once two decoders in a row agree so far on fresh data, up to a permutation of
        their labels; None never stops early, as written.
    pool_levels : one decoder for all levels; else one each, as written.
    match_labels : call FixLabel, as written.
    Z : the label standard data.
    memory : keep at most so many observations, the newest, for further training.
    record : keep every decoder in the diary.
    """

    simulator: Simulator
    oracle: Any
    J: int
    B: int
    B_test: int
    resample: bool
    growth: float
    stable: float | None
    pool_levels: bool
    match_labels: bool
    Z: LabelStandard
    memory: int | None = None
    record: bool = False
    restart: int = 0
    f: Decoder = field(default_factory=know_nothing)
    Pi: list[Policy] = field(default_factory=list)
    data: Observations | None = None
    diary: list[Refit] = field(default_factory=list)
    is_stable: bool = False
    fits: int = 0

    def decoder(self, pi: NDArray[np.float64], k: int) -> Decoder:
        """Train the decoder for the policy pi of episode k (from 1). pi: (H, labels, A)."""
        batch = float(self.B)
        for _ in range(self.J):  # 3
            policy = Policy(pi, self.f)
            if self.resample:
                self.Pi.append(policy)  # 4
                n = len(self.Pi) * self.B  # ((k - 1) J + i) B, called in every episode
                D = self.simulator.rollout(self.Pi, n, "oracle").observations  # 5
            else:
                new = self.simulator.rollout([policy], math.ceil(batch), "oracle").observations
                D = self._remember(new)
                batch *= self.growth
            test = self.simulator.rollout([policy], self.B_test, "test").observations  # 6
            self._train(D, test, pi, k)  # 7-12
            if self.is_stable:
                break
        return self.f

    def retrain(self, pi: NDArray[np.float64], fresh: Observations, k: int) -> Decoder:
        """As practised: go on training on what the learner has just seen.

        Half of it joins the training data, the other half tests, and joins them afterwards.
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

    def _remember(self, new: Observations) -> Observations:
        self.data = new if self.data is None else self.data + new
        return self.data

    def _forget(self, data: Observations) -> Observations:
        """Keep the newest observations, as many of each level, and no more than `memory`."""
        if self.memory is not None and len(data) > self.memory:
            most = max(self.memory // (self.simulator.horizon + 1), 1)
            kept = [rows[-most:] for rows in _rows_by_level(data.levels)]
            at = np.sort(np.concatenate(kept))
            self.data = data = Observations(data.levels[at], data.x[at])
        return data

    def _shuffled(self, new: Observations) -> Observations:
        """In an order that favours no latent state, since old observations may be forgotten."""
        with np.errstate(over="ignore"):
            key = np.uint64(rng.child(streams.estimator(self.simulator.seed), 2**40 + self.restart))
            key = np.uint64(rng.child(key, self.fits))
        flat = new.x.reshape(len(new), -1)
        sort = np.lexsort((*flat.T, new.levels))  # engines hand them over in different orders
        at = sort[np.argsort(rng.uniforms(rng.children(key, 0, len(new)), 1)[:, 0])]
        return Observations(new.levels[at], new.x[at])

    def _train(self, D: Observations, test: Observations, pi: NDArray[np.float64], k: int) -> None:
        before = self.f
        n_labels = max(self.Z.n_labels, before.n_labels)
        f = Decoder.of(self._fit(D), n_labels)  # 7
        if self.match_labels:
            f = fix_label(f, self.Z)  # 8
        confirmed = tuple(self.Z.confirm(f, test)) if self.match_labels else ()  # 9-12
        first = self.fits == 0
        agreed = math.nan if first or len(test) == 0 else agreement(before, f, test)
        self.is_stable = self.stable is not None and agreed >= self.stable
        relabelled = 0 if first else _relabelled(before, f, test)
        self.f = f
        self.fits += 1
        drawn = self.simulator.episodes
        kept, acted = (f, pi) if self.record else (None, None)
        self.diary.append(Refit(k - 1, drawn, kept, acted, f.notes, confirmed, agreed, relabelled))

    def _fit(self, D: Observations) -> tuple[Fitted, ...]:
        with np.errstate(over="ignore"):
            key = np.uint64(rng.child(streams.estimator(self.simulator.seed), self.restart))
            key = np.uint64(rng.child(key, self.fits))
            if self.pool_levels:
                return (fit_oracle(self.oracle, D.x, key),)
            return tuple(
                fit_oracle(self.oracle, D.x[D.levels == h], np.uint64(rng.child(key, h)))
                for h in range(self.simulator.horizon + 1)
            )


def _rows_by_level(levels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [np.flatnonzero(levels == h) for h in np.unique(levels)]


def agreement(one: Decoder, other: Decoder, data: Observations) -> float:
    """The share of each label on which two decoders agree, up to the best permutation of labels.

    Averaged over the labels of `one` that occur, so that a rare label weighs as much as a common
    one, and over the levels where each level has its own decoder: the least agreeing level counts.
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


def _relabelled(before: Decoder, after: Decoder, data: Observations) -> int:
    """How many labels of `before`, at each level, have most of their data called otherwise now."""
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
