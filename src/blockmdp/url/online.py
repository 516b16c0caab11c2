"""OnlineURL: the decoder is learnt from the learner's own episodes, from the first one on.

No trajectory is drawn for the oracle alone. After each episode, or one of each copy of a vector
environment, the oracles learn from what it showed: there may be new labels, and earlier
observations may get another label. If they do, the learner learns the whole past again.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.agents.base import OWN_LABELS, DecodingAgent, check_learner, check_shared
from blockmdp.agents.continuing import resized
from blockmdp.checks import check_finite, check_integer
from blockmdp.decoders import FittedDecoder, constant_decoder
from blockmdp.history import Refit, next_checkpoint
from blockmdp.jit import interpreted
from blockmdp.learners import PSRL, Learner
from blockmdp.loop import choice_key, replay
from blockmdp.oracles import DirichletMixture, IncrementalOracle, check_is_oracle
from blockmdp.oracles._bank import DOUBTS, Bank
from blockmdp.oracles._noise import MIN_DEGREES, whitening
from blockmdp.oracles.dirichlet import Begun, MixtureBank, bounded, trusting
from blockmdp.oracles.fitting import (
    FittedOracle,
    check_labels,
    fit_oracle,
    renumber,
)
from blockmdp.oracles.scores import BankScores, bank_labels, to_scores
from blockmdp.policy import Policy
from blockmdp.simulators import BlockSimulator, LearnerRun, Simulator
from blockmdp.simulators.block import AT_ONCE
from blockmdp.trajectories import Observations, Trajectories, by_level
from blockmdp.url._online import LOOPS, Bounds, Past, World
from blockmdp.url.doubts import invented_labels, label_counts, warn_of_doubts
from blockmdp.url.fix_label import LabelStandard, fix_label
from blockmdp.url.levels import look_alike

__all__ = ["OnlineDecoder", "OnlineURL"]

DECISIONS = (16, 32, 64)  # episodes after which levels are compared, to pool them or not


class OnlineURL(DecodingAgent):
    """URL whose decoder is learnt from the learner's own episodes.

    It draws no trajectories for the oracle alone, and recognises a new state at its first visits.

    Parameters
    ----------
    oracle : estimator or None, default=None
        Learns to decode observations. An incremental oracle
        (`blockmdp.oracles.IncrementalOracle`) learns after each episode; any other scikit-learn
        clusterer or mixture is refitted whenever its data have grown by half. None is
        `blockmdp.oracles.DirichletMixture()`. `blockmdp.oracles.ControlledMixture()` also looks at
        actions.
    learner : Learner or None, default=None
        Tabular learner that works on the labels. None is `PSRL()`.
    pool_levels : bool or "auto", default="auto"
        Whether to learn one decoder for all levels; the learner still knows the level. If False,
        learn one for each level. "auto" begins with one for each level, and takes one for all if
        the levels look alike after 16, 32 or 64 episodes.
    memory : int or None, default=1_000_000
        Observations kept to learn from, of all levels together; see `DirichletMixture`, whose own
        `memory`, if set, counts instead, for each level. An oracle that is refitted keeps the
        newest, at most twice as many. None keeps all. An incremental oracle of your own keeps what
        it likes.

    Attributes
    ----------
    policy_ : Policy
        The policy that was learnt: the learner's table on the labels of `decoder_`.
    decoder_ : FittedDecoder
        The decoder that was learnt.
    returns_ : ndarray of shape (episodes,)
        Return of each learning episode.
    trajectories_ : ndarray of shape (episodes,)
        Trajectories drawn by the end of each episode.
    ledger_ : dict
        Number of trajectories drawn, by kind; here all of them are "learn".
    tables_ : tuple
        The learner's tables.
    history_ : list of Refit
        One entry for each episode that changed the decoder, or for the last one if there are copies
        of the environment and several episodes changed it.

    See Also
    --------
    URL : Trains the decoder first, on trajectories of its own.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.comblock(horizon=10)
    >>> agent = bm.OnlineURL().fit(m, episodes=400)
    >>> agent.value()
    1.0
    >>> agent.ledger_
    {'learn': 400}
    """

    tables_: Any
    history_: list[Refit]

    def __init__(
        self,
        oracle: Any = None,
        learner: Learner | None = None,
        *,
        pool_levels: bool | Literal["auto"] = "auto",
        memory: int | None = 1_000_000,
    ) -> None:
        if oracle is not None:
            check_is_oracle(oracle)
        check_learner(learner)
        if pool_levels not in (True, False, "auto"):
            raise ValueError(f'pool_levels must be True, False or "auto", got {pool_levels!r}')
        if pool_levels is not True:
            check_shared(learner, OWN_LABELS)
        if memory is not None:
            check_integer("memory", memory, 1)
        self.oracle, self.learner = oracle, learner
        self.pool_levels, self.memory = pool_levels, memory

    def _begin(self, simulator: Simulator, episodes: int, record: bool) -> _State:
        A = PSRL() if self.learner is None else self.learner
        run = simulator.start(A, episodes)  # 3
        f = OnlineDecoder(
            DirichletMixture() if self.oracle is None else self.oracle,
            simulator.horizon,
            episodes,
            pool_levels=self.pool_levels,
            key=rng.key(streams.estimator(simulator.seed), 0),
            memory=self.memory,
        )
        return _State(run, f, np.zeros(episodes, np.int64), [], record)

    def _learn(self, simulator: Simulator, state: _State, stop: int) -> None:
        """Algorithm 1, with line 6 replaced by `OnlineDecoder.learn`."""
        run, f, A = state.run, state.f, state.run.learner
        state.trajectories = resized(state.trajectories, len(run.returns))
        f.reserve(len(run.returns))
        while run.k < stop:  # 4
            if self._play_on(simulator, state, stop):
                continue
            pi = A.behaviour(run.tables, run.k)  # 5
            is_random = f.explores
            if is_random:
                pi = np.full_like(pi, 1 / pi.shape[2])
            n = min(simulator.at_once, stop - run.k)  # one episode for each copy
            f.is_random[run.k : run.k + n] = is_random
            drawn = simulator.rollout([Policy(pi, f)], n, "learn")  # 6
            self._learn_from(drawn, pi, simulator, state)

    def _play_on(self, simulator: Simulator, state: _State, stop: int) -> bool:
        """Run episodes in a compiled loop, and finish the one that it leaves. Return whether there
        were any.
        """
        run, f, A = state.run, state.f, state.run.learner
        loop = LOOPS.get(type(A))
        if loop is None or not (isinstance(simulator, BlockSimulator) and simulator.compiled):
            return False
        if simulator.snapshots is not None:
            stop = min(stop, next_checkpoint(run.k, simulator.digits))
        stop, first = min(f.quiet_until(stop), run.k + AT_ONCE), run.k
        if stop <= first:
            return False
        tape = simulator.observations(len(run.returns) - first)
        keys = (simulator.world_key, simulator.policy_key, run.key)
        world = World(simulator.mdp.dynamics, tape, *keys, simulator.episodes - first)
        x = np.zeros((simulator.horizon + 1, tape.shown.shape[1]))
        moved = np.empty(DOUBTS, np.int64)
        given = (run.tables, world, *f.for_loops())
        k, learnt, is_new, size, stopped = loop(*given, first, stop, x, moved)
        new = slice(first, k)
        run.returns[new] = f.rewards[new].sum(axis=1)
        state.trajectories[new] = simulator.episodes + np.arange(1, k - first + 1)
        simulator.ledger["learn"] += k - first
        f.pass_on(k)
        run.k = k
        if k > first and simulator.is_due(run):
            simulator.keep(run, f.decoder())
        if learnt >= 0:
            simulator.ledger["learn"] += 1
            pi = A.behaviour(run.tables, k)
            own = (f.actions[k : k + 1].copy(), f.rewards[k : k + 1].copy(), f.lengths[k : k + 1])
            begun = Begun(learnt, is_new, moved[:size], stopped) if learnt else None
            self._learn_from(Trajectories(x[None], *own), pi, simulator, state, begun)
        return True

    def _learn_from(
        self,
        episodes: Trajectories,
        pi: NDArray[np.float64],
        simulator: Simulator,
        state: _State,
        begun: Begun | None = None,
    ) -> None:
        """Learn from episodes in which the policy pi was followed, or from the rest of one."""
        run, f, A = state.run, state.f, state.run.learner
        born, relabelled = f.learn(episodes, begun)
        new = slice(run.k, run.k + len(episodes))
        last = new.stop - 1
        if born or relabelled or f.notes:
            policy = Policy(pi, f.decoder()) if state.record else None
            entry = (last, simulator.episodes, policy, f.notes, tuple(born))
            state.history.append(Refit(*entry, math.nan, relabelled))
        if relabelled:
            simulator.restart(run, f.n_labels)
        else:
            simulator.grow(run, f.n_labels)
        f.teach(A, run.tables, 0 if relabelled else run.k)  # 7
        A.plan(run.tables, last, choice_key(run.key, last, simulator.horizon))
        run.returns[new], state.trajectories[new] = episodes.returns, simulator.episodes
        run.k = new.stop
        if simulator.is_due(run):
            simulator.keep(run, f.decoder())

    def _end(self, simulator: Simulator, state: _State) -> None:
        run, history = state.run, state.history
        pi = run.learner.policy(run.tables).copy()  # 9
        self.policy_ = Policy(pi, state.decoder, simulator.observation_shape)  # 11
        self.tables_, self.history_ = run.tables, list(history)
        self.returns_, self.trajectories_ = run.returns, state.trajectories[: run.k]
        doubts = invented_labels(history, run.returns, state.f.counts())
        explores = state.f.explores
        warn_of_doubts(state.f.oracle, history, run.returns, doubts, explores=explores)


@dataclass
class _State:
    """A fit so far: the learner's run, and the decoder that learns with it."""

    run: LearnerRun
    f: OnlineDecoder
    trajectories: NDArray[np.int64]
    history: list[Refit]
    record: bool

    @property
    def decoder(self) -> FittedDecoder:
        """The decoder, which no longer changes."""
        return self.f.decoder()


class _Places(NamedTuple):
    """Where observations were made."""

    k: NDArray[np.int64]  # (n,), episodes
    level: NDArray[np.int64]  # (n,)


class OnlineDecoder:
    """A decoder updated online, with the labels of all observations so far.

    Parameters
    ----------
    oracle : estimator
        An `IncrementalOracle`, or any other oracle, which is then refitted.
    horizon : int
        Number of actions in an episode, H.
    episodes : int
        Largest number of episodes it will see.
    pool_levels : bool or "auto"
        One oracle for all levels; if False one for each level; "auto" decides.
    key : np.uint64
        Key of the random states of an oracle that is refitted.
    memory : int or None, default=None
        Observations that all oracles together keep; None keeps all.

    Attributes
    ----------
    n_labels : int
        Number of labels at the level that has had most.
    k : int
        Number of episodes seen.
    labels : ndarray of shape (episodes, H + 1)
        Labels of all observations so far.
    actions, rewards, lengths : ndarray
        What else the episodes consist of, as in `Trajectories`.
    is_random : ndarray of shape (episodes,)
        Whether the actions of an episode were drawn at random, because an oracle asked for it.
    notes : tuple of str
        Which oracles failed in the last call of `learn`, and why.
    """

    def __init__(
        self,
        oracle: Any,
        horizon: int,
        episodes: int,
        *,
        pool_levels: bool | Literal["auto"],
        key: np.uint64,
        memory: int | None = None,
    ) -> None:
        self.oracle, self._key, self._memory = oracle, key, memory
        self._past: list[NDArray[Any]] | None = [] if pool_levels == "auto" else None
        self.n_labels = 1  # of all oracles, at any time
        self.k = self._k_shared = 0
        self.notes: tuple[str, ...] = ()
        self.labels = np.zeros((episodes, horizon + 1), np.int64)
        self.acted = np.zeros((episodes, horizon + 1), np.int64)
        self.actions = np.zeros((episodes, horizon), np.int64)
        self.rewards = np.zeros((episodes, horizon))
        self.lengths = np.zeros(episodes, np.int64)
        self.is_random = np.zeros(episodes, np.bool_)
        self._begin(horizon + 1 if pool_levels in (False, "auto") else 1)

    def reserve(self, episodes: int) -> None:
        """Make room for more episodes."""
        for name in ("labels", "acted", "actions", "rewards", "lengths", "is_random"):
            setattr(self, name, resized(getattr(self, name), episodes))

    def _begin(self, n_oracles: int) -> None:
        """Begin with oracles that know nothing: one for all levels, or one for each."""
        self.pooled = n_oracles == 1
        keys = rng.children(self._key, 0, n_oracles)
        self.oracles: list[Any] = [
            _incremental(self.oracle, k, self._memory, n_oracles) for k in keys
        ]
        self._n_labels = np.zeros(len(keys), np.int64)  # of each oracle, now
        self._see_actions = hasattr(self.oracle, "see_actions")
        own = all(isinstance(f, DirichletMixture) for f in self.oracles)
        rows = self.labels.size // n_oracles  # of each
        self._bank = MixtureBank(self.oracles, rows) if own else None  # they learn in one call

    @property
    def scores(self) -> BankScores | None:
        """Scores of all oracles as arrays, by which compiled loops decode; None if there are none.

        Those of level h are in row h, or all in row 0 if the levels are pooled.
        """
        bank = self._bank
        return bank.state.scores if bank and bank.values is None and any(bank.has_begun) else None

    @property
    def explores(self) -> bool:
        """Whether an oracle that looks at actions asks for random ones."""
        return self._see_actions and any(getattr(f, "explores_", False) for f in self.oracles)

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """Return the labels (n,) of the observations x (n, ...) made at `levels` (n,)."""
        x, scores = x.reshape(len(x), -1), self.scores
        groups = np.zeros(len(levels), np.int64) if self.pooled else levels
        if scores is not None:
            d = scores.centre.shape[1]
            if x.shape[1] != d:
                raise ValueError(f"an observation has {x.shape[1]} numbers, but others had {d}")
            x = np.ascontiguousarray(x, np.float64)
            return np.asarray(bank_labels(scores, groups, x), np.int32)
        labels = np.zeros(len(x), np.int32)
        for g, rows in by_level(groups):
            if self._n_labels[g]:
                labels[rows] = self.oracles[g].predict(x[rows])
        return labels

    def quiet_until(self, stop: int) -> int:
        """Return before which episode, at most `stop`, mixtures only learn rows: until then, levels
        neither share what they know nor decide anything. It is `k` if there are no mixtures.
        """
        bank = self._bank
        if bank is None or self._past is not None or not bank.is_quiet():
            return self.k
        rows = self.labels.shape[1] if self.pooled else 1  # of a mixture, in each episode
        decision = self.k + bank.rows_before_decision() / rows
        return int(min(stop, self._shares_at() - 1, decision))

    def for_loops(self) -> tuple[Bank, Bounds, bool, Past]:
        """Return what `_online.learn_online` needs of this decoder."""
        bank = self._bank
        assert bank is not None
        coding = bank.coding
        bounds = Bounds(bank.most_rows(), coding.is_possible, coding.low, coding.high)
        past = Past(self.labels, self.actions, self.rewards, self.lengths)
        return bank.state, bounds, self.pooled, past

    def pass_on(self, k: int) -> None:
        """Take note that a compiled loop has learnt all episodes before number k."""
        bank, new = self._bank, slice(self.k, k)
        assert bank is not None
        bank.count(int(self.lengths[new].sum()) + k - self.k if self.pooled else k - self.k)
        self.k = k

    def learn(
        self, episodes: Trajectories, begun: Begun | None = None
    ) -> tuple[list[tuple[int, int]], int]:
        """Learn from one or more episodes, or from the rest of one that a compiled loop has begun.

        Returns
        -------
        born : list of (int, int)
            Each (level, label) that is new.
        relabelled : int
            Number of earlier observations that have another label now.
        """
        made = self._levels() <= episodes.lengths[:, None]
        x = episodes.x[made].reshape(np.count_nonzero(made), -1)
        check_finite(x)
        k, levels = np.nonzero(made)
        at = _Places(self.k + k, levels)
        if self._see_actions:  # the labels on which the actions were based
            self.acted[at] = self.decode(levels, x)
        new = slice(self.k, self.k + len(episodes))
        self.actions[new], self.rewards[new] = episodes.actions, episodes.rewards
        self.lengths[new] = episodes.lengths
        born: list[tuple[int, int]] = []
        relabelled = 0
        self.notes = ()
        while self.k < new.stop:
            self._share_noise()
            end = new.stop if self.pooled else min(max(self._shares_at(), self.k + 2) - 1, new.stop)
            rows = (at.k >= self.k) & (at.k < end)
            places = _Places(at.k[rows], levels[rows])
            more, changed = self._learn_until(end, places, x[rows], begun)
            born, relabelled = born + more, relabelled + changed
        return born, relabelled

    def _learn_until(
        self, end: int, at: _Places, x: NDArray[Any], begun: Begun | None
    ) -> tuple[list[tuple[int, int]], int]:
        """Learn from the episodes before number `end`; see `learn`."""
        before, self.k = self.k, end
        known = self._n_labels.copy()
        relabelled = self._learn(at, x, begun)
        born = [
            (int(g), label)
            for g in np.flatnonzero(self._n_labels > known)
            for label in range(known[g], self._n_labels[g])
        ]
        if self._past is not None:
            self._past += np.split(x, np.flatnonzero(at.level == 0)[1:])
            if any(before < k <= self.k for k in DECISIONS) and self._look_alike(self._past):
                relabelled += self._pool(self._past)
            if self.pooled or self.k >= DECISIONS[-1]:
                self._past = None
        others = enumerate(self.oracles if self._bank is None else ())  # mixtures never fail
        failed = [(g, oracle.failure) for g, oracle in others if getattr(oracle, "failure", "")]
        self.notes += tuple(why if self.pooled else f"level {g}: {why}" for g, why in failed)
        return born, relabelled

    def _levels(self) -> NDArray[np.int64]:
        return np.arange(self.labels.shape[1])

    def _look_alike(self, past: list[NDArray[Any]]) -> bool:
        levels = np.concatenate([np.arange(len(x)) for x in past])
        labels = np.concatenate([z[: len(x)] for x, z in zip(past, self.labels)])
        return bool(look_alike(Observations(levels, np.concatenate(past)), labels))

    def _pool(self, past: list[NDArray[Any]]) -> int:
        """Begin again with one oracle for all levels. Return the number of observations so far."""
        self._begin(1)
        for self.k, x in enumerate(past, start=1):
            levels = np.arange(len(x))
            self._learn(_Places(np.full_like(levels, self.k - 1), levels), x)
        return sum(map(len, past))

    def _shares_at(self) -> int:
        """Return the number of the episode before which levels share what they know of the noise:
        whenever the data have grown by half.
        """
        return max(math.ceil(1.5 * self._k_shared), DECISIONS[0])

    def _share_noise(self) -> None:
        """Let levels share what they know of the noise, if the next episode is the one for that."""
        if self.k + 1 < self._shares_at():
            return
        self._k_shared = self.k + 1
        needed = ("noise_scatter", "share_noise")
        oracles = [f for f in self.oracles if all(hasattr(f, name) for name in needed)]
        if len(oracles) < 2:
            return
        known = [f.noise_scatter() for f in oracles]
        degrees = sum(n for _, n in known)
        scatter = sum(s for s, n in known if n)
        if degrees >= MIN_DEGREES * max(len(s) for s, _ in known) and degrees:
            T = whitening(np.asarray(scatter), degrees)
            for f in oracles:
                f.share_noise(T)

    def _learn(self, at: _Places, x: NDArray[Any], begun: Begun | None = None) -> int:
        """Let the oracles learn from the last episodes. Return the number of labels that changed.

        at: where the observations x were made, episode by episode. begun: see `MixtureBank.learn`.
        """
        relabelled = 0
        groups = np.zeros_like(at.level) if self.pooled else at.level
        if self._bank is None:
            for g, rows in by_level(groups):
                at_g = np.arange(len(x))[rows]
                if self._see_actions:
                    self._show_actions(g, at, x, at_g[at.level[at_g] > 0])
                oracle = self.oracles[g]
                oracle.partial_fit(x[at_g])
                relabelled += self._read_labels(g)
                self.labels[at.k[at_g], at.level[at_g]] = oracle.labels_[-len(at_g) :]
        else:
            for g in self._bank.learn(groups, x.astype(np.float64), begun):
                relabelled += self._read_labels(g)
            self.labels[at] = self._bank.last_labels(groups)
        return relabelled

    def _show_actions(self, g: int, at: _Places, x: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Tell oracle g which actions led to some of the observations x.

        An oracle that asks for random actions sees no others. There are others if it began to ask
        while it learnt the past again.
        """
        if getattr(self.oracles[g], "explores_", False):
            rows = rows[self.is_random[at.k[rows]]]
        if len(rows):
            before = at.k[rows], at.level[rows] - 1
            self.oracles[g].see_actions(
                x[rows], x[rows - 1], self.acted[before], self.actions[before]
            )

    def _read_labels(self, g: int) -> int:
        """Read the labels of oracle g after it has learnt. Return how many have changed."""
        oracle = self.oracles[g]
        labels, changed = oracle.labels_, oracle.changed_labels()
        n_labels = getattr(oracle, "n_labels_", None)
        self._n_labels[g] = int(labels.max()) + 1 if n_labels is None else n_labels
        self.n_labels = max(self.n_labels, int(self._n_labels[g]))
        if len(changed):
            levels = self._levels()
            made = levels <= self.lengths[: self.k, None]
            made &= self.pooled or levels == g
            self.labels[: self.k][made] = labels
        return len(changed)

    def teach(self, learner: Learner, tables: Any, first: int) -> None:
        """Let a learner learn from all episodes from `first` on, under their present labels."""
        run = replay if learner.is_compiled() else interpreted(replay)
        past = (self.labels, self.actions, self.rewards, self.lengths)
        run(learner.update, tables, *(a[first : self.k] for a in past))

    def counts(self) -> list[NDArray[np.int64]]:
        """Return, for each oracle, the number of observations of each of its labels."""
        levels = self._levels()
        made = levels <= self.lengths[: self.k, None]
        groups = np.broadcast_to(levels * (not self.pooled), made.shape)
        return label_counts(self.labels[: self.k][made], groups[made])

    def decoder(self) -> FittedDecoder:
        """Return what has been learnt so far as a decoder that no longer changes."""
        each = [
            _decoder_of(oracle, int(n)).widened(self.n_labels)
            for oracle, n in zip(self.oracles, self._n_labels)
        ]
        fitted = tuple(f.fitted[0] for f in each)
        return FittedDecoder(fitted, np.concatenate([f.order for f in each]))


def _incremental(oracle: Any, key: np.uint64, memory: int | None, n: int) -> Any:
    """Return one of n clones of an incremental oracle, or an oracle that is refitted."""
    if not isinstance(oracle, IncrementalOracle):
        return _RefittedOracle(oracle, key, None if memory is None else max(int(memory) // n, 1))
    oracle = bounded(oracle, memory, n)
    own = type(oracle) is DirichletMixture  # it needs no check, which would take time
    return oracle if own else _NumberedOracle(oracle)


class _NumberedOracle:
    """Checks the labels of an incremental oracle, and numbers them as they appear.

    Labels 0, ..., n_labels_ - 1 keep their numbers if the oracle states `n_labels_`.
    """

    def __init__(self, oracle: Any) -> None:
        self.oracle = oracle
        self.numbers: dict[int, int] = {}  # label of the oracle -> label
        self.labels_ = np.zeros(0, np.int64)

    @property
    def n_labels_(self) -> int:
        return len(self.numbers)

    def partial_fit(self, X: NDArray[Any]) -> None:
        self.oracle.partial_fit(X)
        n = len(self.labels_) + len(X)
        labels = check_labels(self.oracle.labels_, n, self.oracle, "labels_")
        for label in range(int(getattr(self.oracle, "n_labels_", 0))):
            self._number(label)
        kept = 0 if len(self.changed_labels()) else len(self.labels_)
        new = renumber(labels[kept:], self._number)
        self.labels_ = np.concatenate([self.labels_[:kept], new])

    def predict(self, X: NDArray[Any]) -> NDArray[np.int64]:
        labels = check_labels(self.oracle.predict(X), len(X), self.oracle)
        return renumber(labels, self._number)

    def changed_labels(self) -> Any:
        return self.oracle.changed_labels()

    def __getattr__(self, name: str) -> Any:
        """Return what else an oracle has, such as `see_actions`."""
        if name in ("see_actions", "explores_", "noise_scatter", "share_noise"):
            return getattr(self.oracle, name)
        raise AttributeError(name)

    def _number(self, label: int) -> int:
        return self.numbers.setdefault(label, len(self.numbers))


class _RefittedOracle:
    """Makes any oracle incremental: refits it when its data have grown by half, with FixLabel."""

    def __init__(self, oracle: Any, key: np.uint64, memory: int | None) -> None:
        self.oracle, self.key, self.memory = oracle, key, memory
        self.Z = LabelStandard(pooled=True, min_count=10, max_examples=500)
        self.f = constant_decoder()
        self.data: list[NDArray[Any]] = []
        self.labels_ = np.zeros(0, np.int64)
        self._changed = np.zeros(0, np.int64)
        self.n = self.kept = self.learnt = self.fits = 0
        self.failure = ""  # of the last call of `partial_fit`

    @property
    def n_labels_(self) -> int:
        return self.f.n_labels

    def predict(self, X: NDArray[Any]) -> NDArray[np.int32]:
        return self.f.decode(np.zeros(len(X), np.int64), X)

    def partial_fit(self, X: NDArray[Any]) -> None:
        self.data.append(X)
        self.n += len(X)
        self.kept += len(X)
        before, self.failure = self.labels_, ""
        most = math.inf if self.memory is None else max(self.memory, len(X))
        is_due = self.n >= 1.5 * self.learnt
        if is_due or self.kept > 2 * most:
            self.kept = int(min(most, self.kept))
            self.data = [np.concatenate(self.data)[-self.kept :]]
        if is_due:
            self._refit(self.data[0])
            labels = self.predict(self.data[0])
            forgotten = before[: self.n - len(labels)]
            self.labels_ = np.concatenate([forgotten, labels]).astype(np.int64)
        else:
            self.labels_ = np.concatenate([before, self.predict(X)])
        self._changed = np.flatnonzero(self.labels_[: len(before)] != before)

    def changed_labels(self) -> NDArray[np.int64]:
        return self._changed

    def _refit(self, data: NDArray[Any]) -> None:
        self.learnt = self.n
        last = self.f.fitted[0]
        fitted = fit_oracle(self.oracle, data, rng.key(self.key, self.fits), last=last)
        self.fits += 1
        if fitted.predictor is last.predictor:
            self.failure = fitted.notes[0]
            return
        self.f = fix_label(FittedDecoder.of((fitted,), self.f.n_labels), self.Z)
        self.Z.confirm(self.f, Observations(np.zeros(len(data), np.int64), data))


def _decoder_of(oracle: Any, n_labels: int) -> FittedDecoder:
    if isinstance(oracle, _RefittedOracle):
        return oracle.f
    if n_labels == 0:  # it has seen nothing
        return constant_decoder()
    names: tuple[int, ...] = ()
    if isinstance(oracle, _NumberedOracle):
        names, oracle = tuple(oracle.numbers), oracle.oracle
        names = () if names == tuple(range(n_labels)) else names
    scores = oracle if names else to_scores(oracle)
    predictor = trusting(deepcopy(oracle) if scores is oracle else scores, oracle)
    return FittedDecoder.of((FittedOracle(predictor, n_labels, names=names),))
