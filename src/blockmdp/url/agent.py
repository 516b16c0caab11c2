"""URL, the unified framework (Feng et al. 2020, Algorithm 1), as written and as in practice."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from blockmdp.agents.base import OWN_LABELS, DecodingAgent, Steps, check_learner, check_shared
from blockmdp.agents.continuing import resized
from blockmdp.checks import check_integer
from blockmdp.decoders import FittedDecoder
from blockmdp.history import Refit
from blockmdp.learners import PSRL, Learner, UCBVITheory
from blockmdp.oracles import check_is_oracle
from blockmdp.policy import Policy
from blockmdp.simulators import LearnerRun, Simulator
from blockmdp.trajectories import Observations
from blockmdp.url.doubts import unsettled, warn_of_doubts
from blockmdp.url.fix_label import LabelStandard
from blockmdp.url.theory import DELTA_2, Constants, Theory, constants
from blockmdp.url.tsr import TSR

__all__ = ["URL"]

NEWEST = 100  # episodes that a retraining learns from, if `retrain_every` is not set


class URL(DecodingAgent):
    """Reinforcement learning with an unsupervised-learning oracle (Feng et al. 2020, Algorithm 1).

    The oracle learns to decode observations into labels; the tabular learner works on the labels.
    The oracle is trained on batches of trajectories, at first random ones, until its labels are
    stable. The default oracle then goes on to learn from what the learner sees; others stay as they
    are, as in the paper's experiments. Each difference from the pseudocode has a parameter;
    `URL.theory` is Algorithm 1 as written.

    Parameters
    ----------
    oracle : estimator or None, default=None
        Scikit-learn clusterer or mixture that learns to decode observations. None is
        `blockmdp.oracles.DirichletMixture()`, or `blockmdp.oracles.AutoOracle()` if all levels
        share one decoder and the mixture needs a label for every few observations, as for images.
        Both find the number of labels. `blockmdp.oracles.ControlledMixture()` also looks at the
        actions of the trajectories that are collected for it, unless `resample` is set.
    learner : Learner or None, default=None
        Tabular learner that works on the labels. None is `PSRL()`.
    batch : int, default=30
        Trajectories collected in each iteration of TSR (B in the paper).
    iterations : int, default=10
        Iterations of TSR, if not stopped early (J in the paper). An oracle that looks at actions
        can ask for up to 100 more, with random actions.
    stop_agreement : float or None, default=0.95
        Stop TSR when two successive decoders agree on at least this fraction of each label, see
        `blockmdp.url.agreement`. None never stops early, as in the paper.
    growth : float, default=1.0
        Factor by which the batch grows from one iteration of TSR to the next.
    test_batch : int or None, default=None
        Test trajectories in each iteration of TSR. None is a tenth of the batch, but at least 10.
    resample : bool, default=False
        Draw all training data again in each iteration, from all policies so far, as in the paper.
        If False, earlier data are kept.
    pool_levels : bool or "auto", default="auto"
        Train one decoder for all levels; the learner still knows the level. If False, train one for
        each level, as in the paper. "auto" does so if levels look different in the first batch.
    fix_labels : bool, default=True
        Let FixLabel (Algorithm 3) keep the names of confirmed labels when the decoder is retrained.
    min_count : float, default=10
        Test observations that confirm a label.
    max_examples : int or None, default=500
        Observations kept as examples of each confirmed label. None keeps all, as in the paper.
    retrain_every : int or None, default=None
        Retrain the decoder after every so many learning episodes, on what the learner has seen:
        random trajectories seldom show all states. None retrains whenever the episodes have
        increased by a tenth, if the oracle is incremental
        (`blockmdp.oracles.IncrementalOracle`), and by half, if "auto" found that levels look
        different, each time on the newest 100 episodes (on all new ones of a vector environment).
        Otherwise the decoder is trained only once.
    memory : int or None, default=100_000
        Observations kept for retraining, the newest. None keeps all.
    restarts : int, default=1
        Independent restarts (N in the paper). The policy that evaluates best is kept.
    evaluation : int, default=0
        Episodes by which the policy of each restart is evaluated (L in the paper).

    Attributes
    ----------
    policy_ : Policy
        The policy that was learnt: the learner's table on the labels of `decoder_`.
    decoder_ : FittedDecoder
        The decoder that was learnt.
    returns_ : ndarray of shape (restarts * episodes,)
        Return of each learning episode.
    trajectories_ : ndarray of shape (restarts * episodes,)
        Trajectories of all kinds drawn by the end of each learning episode.
    ledger_ : dict
        Number of trajectories drawn, by kind: "oracle", "test", "learn", "evaluate", and "unused"
        if a vector environment started more episodes than were needed.
    tables_ : tuple
        The learner's tables.
    history_ : list of Refit
        One entry for each training of the decoder.
    evaluations_ : ndarray of shape (restarts,)
        Mean return of each restart's policy; empty if `evaluation=0`.

    See Also
    --------
    OnlineURL : Learns the decoder from the learner's own episodes.
    PCID : Learns decoder and policy level by level.

    References
    ----------
    F. Feng, R. Wang, W. Yin, S. S. Du, L. F. Yang. Provably Efficient Exploration for Reinforcement
    Learning Using Unsupervised Learning. NeurIPS 2020.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5, switch=0.2)
    >>> agent = bm.URL(batch=100, iterations=1).fit(m, episodes=20_000, seed=0)
    >>> agent.value()
    0.5
    >>> agent.ledger_
    {'oracle': 100, 'test': 10, 'learn': 20000, 'evaluate': 0}
    """

    tables_: Any
    history_: list[Refit]
    evaluations_: NDArray[np.float64]

    def __init__(
        self,
        oracle: Any = None,
        learner: Learner | None = None,
        *,
        batch: int = 30,
        iterations: int = 10,
        stop_agreement: float | None = 0.95,
        growth: float = 1.0,
        test_batch: int | None = None,
        resample: bool = False,
        pool_levels: bool | Literal["auto"] = "auto",
        fix_labels: bool = True,
        min_count: float = 10,
        max_examples: int | None = 500,
        retrain_every: int | None = None,
        memory: int | None = 100_000,
        restarts: int = 1,
        evaluation: int = 0,
    ) -> None:
        if oracle is not None:
            check_is_oracle(oracle)
        check_learner(learner)
        for name, value, least in (
            ("batch", batch, 1),
            ("iterations", iterations, 1),
            ("restarts", restarts, 1),
            ("evaluation", evaluation, 0),
        ):
            check_integer(name, value, least)
        for name, optional, least in (
            ("test_batch", test_batch, 0),
            ("max_examples", max_examples, 1),
            ("retrain_every", retrain_every, 1),
            ("memory", memory, 1),
        ):
            if optional is not None:
                check_integer(name, optional, least)
        if pool_levels not in (True, False, "auto"):
            raise ValueError(f'pool_levels must be True, False or "auto", got {pool_levels!r}')
        if pool_levels is not True:
            check_shared(learner, OWN_LABELS)
        if stop_agreement is not None and not 0 <= stop_agreement <= 1:
            raise ValueError(f"stop_agreement must be None or in [0, 1], got {stop_agreement!r}")
        if not 1 <= growth < math.inf:
            raise ValueError(f"growth must be a number >= 1, got {growth!r}")
        if not min_count >= 0:
            raise ValueError(f"min_count must be a number >= 0, got {min_count!r}")
        if restarts > 1 and evaluation == 0:
            raise ValueError("restarts > 1 needs evaluation episodes, to choose the best policy by")
        self.oracle, self.learner = oracle, learner
        self.batch, self.iterations, self.stop_agreement = batch, iterations, stop_agreement
        self.growth, self.test_batch, self.resample = growth, test_batch, resample
        self.pool_levels, self.fix_labels = pool_levels, fix_labels
        self.min_count, self.max_examples = min_count, max_examples
        self.retrain_every, self.memory = retrain_every, memory
        self.restarts, self.evaluation = restarts, evaluation
        self._theory: Theory | None = None  # what `theory` assumes

    @classmethod
    def theory(
        cls,
        oracle: Any,
        learner: Learner | None = None,
        *,
        epsilon: float = 0.1,
        delta: float = 0.1,
        horizon: int,
        n_states: int,
        batch: int | None = None,
        label_error: float | None = None,
        delta_1: float = 0.01,
        g_inverse: Callable[[float, float], float] | None = None,
        episodes: int | None = None,
    ) -> URL:
        """Make the agent of Algorithm 1 as written: no pooling, no reuse of data, no early stop.

        A warning says which assumption of the proof fails, if one does: here, and in `fit` for
        those about the problem and its labels.

        Parameters
        ----------
        oracle : estimator
            Scikit-learn clusterer or mixture.
        learner : Learner or None, default=None
            Tabular learner. None is `UCBVITheory()` that fails with probability 0.0025 at most.
        epsilon : float, default=0.1
            The policy is to be epsilon-optimal ...
        delta : float, default=0.1
            ... with probability at least 1 - delta.
        horizon : int
            Number of actions in an episode, H.
        n_states : int
            Number of latent states (S in the paper).
        batch : int or None, default=None
            Batch size B. None computes it from `g_inverse` and `episodes`.
        label_error : float or None, default=None
            The epsilon of Algorithm 2, which decides how many test observations confirm a label.
            None is half of the largest that the paper's Lemma 2 allows.
        delta_1 : float, default=0.01
            The delta_1 of Algorithm 2, likewise.
        g_inverse : callable or None, default=None
            The oracle's g^{-1}(epsilon, delta) of Definition 1. Then B = g^{-1}(label_error^2 /
            (K J), delta_1) / (K J), with K = `episodes`.
        episodes : int or None, default=None
            Learning episodes K, to compute B with.

        Returns
        -------
        URL
            An agent to `fit`.

        Raises
        ------
        ValueError
            If more test observations confirm a label than there are.
        """
        learner = UCBVITheory(delta=DELTA_2 / 2) if learner is None else learner
        found, theory = constants(
            epsilon,
            delta,
            horizon,
            n_states,
            batch=batch,
            label_error=label_error,
            delta_1=delta_1,
            g_inverse=g_inverse,
            episodes=episodes,
        )
        theory.check(learner)
        agent = cls(
            oracle,
            learner,
            batch=found.B,
            test_batch=found.B,
            iterations=found.J,
            stop_agreement=None,
            resample=True,
            pool_levels=False,
            min_count=found.min_count,
            max_examples=None,
            retrain_every=1,
            restarts=found.N,
            evaluation=found.L,
        )
        agent._theory = theory
        return agent

    @staticmethod
    def constants(
        epsilon: float,
        delta: float,
        horizon: int,
        n_states: int,
        *,
        batch: int | None = None,
        label_error: float | None = None,
        delta_1: float = 0.01,
        g_inverse: Callable[[float, float], float] | None = None,
        episodes: int | None = None,
        learner: Learner | None = None,
        n_actions: int | None = None,
    ) -> Constants:
        """Compute the constants of `theory`.

        Parameters
        ----------
        epsilon : float
            Accuracy.
        delta : float
            Probability of failure.
        horizon : int
            Number of actions in an episode, H.
        n_states : int
            Number of latent states (S in the paper).
        batch : int or None, default=None
            Batch size B. None computes it from `g_inverse` and `episodes`.
        label_error : float or None, default=None
            The epsilon of Algorithm 2. None is half of the largest that the paper's Lemma 2 allows.
        delta_1 : float, default=0.01
            The delta_1 of Algorithm 2.
        g_inverse : callable or None, default=None
            The oracle's g^{-1}(epsilon, delta) of Definition 1.
        episodes : int or None, default=None
            Learning episodes K, to compute B with. None is the K that the learner needs.
        learner : Learner or None, default=None
            Learner with a method `sample_complexity`, such as `UCBVITheory`, which says how many
            episodes K it needs to be epsilon / 4-optimal. None leaves K out.
        n_actions : int or None, default=None
            Number of actions, needed for K.

        Returns
        -------
        Constants
            N, L, J, B, the count that confirms a label, and K.

        Examples
        --------
        >>> URL.constants(0.1, 0.1, horizon=5, n_states=3, batch=100).J
        19
        """
        return constants(
            epsilon,
            delta,
            horizon,
            n_states,
            batch=batch,
            label_error=label_error,
            delta_1=delta_1,
            g_inverse=g_inverse,
            episodes=episodes,
            learner=learner,
            n_actions=n_actions,
        )[0]

    def _why_not_more(self) -> str:
        for name in ("evaluation", "restarts", "resample"):
            if getattr(self, name) != inspect.signature(URL).parameters[name].default:
                return f"{name}={getattr(self, name)} draws trajectories after the last episode"
        return super()._why_not_more()

    def _fit(self, simulator: Simulator, episodes: int, record: bool) -> None:
        if self._theory is not None:
            self._theory.check_problem(simulator.mdp, simulator.horizon)
        if not self._why_not_more():
            super()._fit(simulator, episodes, record)
            return
        attempts, policies = [], []
        for n in range(self.restarts):  # 2
            attempts.append(self._begin(simulator, episodes, record, n))
            self._learn(simulator, attempts[-1], episodes)
            policies.append(self._policy(simulator, attempts[-1]))
        means = [  # 13
            simulator.rollout([each], int(self.evaluation), "evaluate", keep_x=False).returns.mean()
            for each in policies
            if self.evaluation
        ]
        best = int(np.argmax(means)) if means else 0  # 14
        self._keep(attempts, best, policies[best], means)

    def _begin(
        self, simulator: Simulator, episodes: int, record: bool, restart: int = 0
    ) -> _Attempt:
        for kind in ("oracle", "test", "learn", "evaluate"):
            simulator.ledger.setdefault(kind, 0)
        A = PSRL() if self.learner is None else self.learner
        run = simulator.start(A, episodes)  # 3
        return _Attempt(run, self._tsr(simulator, restart, record), np.zeros(episodes, np.int64))

    def _steps(self, simulator: Simulator, attempt: _Attempt, stop: int) -> Steps:
        run, tsr, A = attempt.run, attempt.tsr, attempt.run.learner
        attempt.trajectories = resized(attempt.trajectories, len(run.returns))
        while run.k < stop:  # 4
            if attempt.quiet == attempt.newest == 0:
                pi = A.behaviour(run.tables, run.k).copy()  # 5
                if self.resample or tsr.data is None:
                    tsr.decoder(pi, run.k + 1)  # 6
                elif attempt.fresh is not None:
                    tsr.retrain(pi, attempt.fresh, run.k + 1)
                    attempt.fresh = None
                attempt.quiet, attempt.newest = self._until_retraining(tsr, run.k)
            k, before, left = run.k, simulator.episodes, stop - run.k
            if attempt.quiet:
                yield run, tsr.f, min(attempt.quiet, left), False
                attempt.quiet -= run.k - k
            elif attempt.newest is None:
                yield run, tsr.f, left, False
            else:
                fresh = yield run, tsr.f, min(attempt.newest, left), not self.resample  # 6-7
                attempt.newest -= run.k - k
                if fresh is not None:
                    attempt.fresh = fresh if attempt.fresh is None else attempt.fresh + fresh
            attempt.trajectories[k : run.k] = before + np.arange(1, run.k - k + 1)

    def _policy(self, simulator: Simulator, attempt: _Attempt) -> Policy:
        run, tsr = attempt.run, attempt.tsr
        pi = run.learner.policy(run.tables).copy()  # 9
        if self.resample or tsr.data is None:
            tsr.decoder(pi, run.k + 1)  # 10
        return Policy(pi, tsr.trusted_decoder(), simulator.observation_shape)  # 11

    def _end(self, simulator: Simulator, attempt: _Attempt) -> None:
        self._keep([attempt], 0, self._policy(simulator, attempt), [])

    def _keep(
        self, attempts: list[_Attempt], best: int, policy: Policy, means: list[float]
    ) -> None:
        """Set what was learnt, and say if it cannot be trusted."""
        run, tsr = attempts[best].run, attempts[best].tsr
        self.policy_, self.tables_, self.history_ = policy, run.tables, list(tsr.history)
        self.evaluations_ = np.array(means)
        self.returns_ = np.concatenate([a.run.returns for a in attempts])
        self.trajectories_ = np.concatenate([a.trajectories[: a.run.k] for a in attempts])
        if self._theory is not None:
            self._theory.check_labels(max(f.n_labels for f in self.decoder_.fitted))
        doubts = unsettled(tsr.history, run.returns, tsr.counts())
        warn_of_doubts(tsr.oracle, tsr.history, run.returns, doubts, explores=tsr.explores)

    def _until_retraining(self, tsr: TSR, k: int) -> tuple[int, int | None]:
        """Return two numbers of episodes until the decoder is retrained, if there were k so far:
        first come those that it does not learn from, then those that it does.

        Copies of an environment lose their unfinished episodes whenever it is retrained. So the
        more copies there are, the more episodes are between two trainings.
        """
        if self.retrain_every is not None:
            return 0, int(self.retrain_every)
        if not tsr.goes_on and (tsr.f.pooled or self.pool_levels != "auto"):
            return 0, None
        at_once = tsr.simulator.at_once
        n = max(int(self.batch), 10 * (at_once - 1), k // 10 if tsr.goes_on else k // 2)
        newest = min(n, NEWEST) if at_once == 1 else n
        return n - newest, newest

    def _tsr(self, simulator: Simulator, n: int, record: bool) -> TSR:
        return TSR(
            simulator,
            self.oracle,
            J=int(self.iterations),
            B=int(self.batch),
            B_test=int(max(self.batch // 10, 10) if self.test_batch is None else self.test_batch),
            resample=self.resample,
            growth=self.growth,
            stop_agreement=self.stop_agreement,
            pool_levels=self.pool_levels,
            fix_labels=self.fix_labels,
            Z=LabelStandard(
                pooled=bool(self.pool_levels),
                min_count=self.min_count,
                max_examples=_optional(self.max_examples),
            ),
            memory=_optional(self.memory),
            record=record,
            restart=n,
        )


def _optional(value: int | None) -> int | None:
    """Return an integer, also if it was given as 3.0."""
    return None if value is None else int(value)


@dataclass
class _Attempt:
    """What a restart knows: the learner's run, TSR, and the rest of the episodes until the decoder
    is retrained, first those that it does not learn from, then those that it does.
    """

    run: LearnerRun
    tsr: TSR
    trajectories: NDArray[np.int64]
    quiet: int = 0
    newest: int | None = 0
    fresh: Observations | None = None

    @property
    def decoder(self) -> FittedDecoder:
        """What the learner sees the labels of."""
        return self.tsr.f
