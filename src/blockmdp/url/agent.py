"""URL, the unified framework (Feng et al. 2020, Algorithm 1), as written and as practised."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.agents.decoded import DecodingAgent
from blockmdp.checks import whole_number
from blockmdp.learners import UCBVI, Learner, OracleQ
from blockmdp.oracles import AutoOracle, check_is_oracle
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.oracles.fitting import one_thread
from blockmdp.simulators import Engine, Policy, Problem, Simulator, simulate
from blockmdp.url.fix_label import LabelStandard
from blockmdp.url.online import OnlineDecoder
from blockmdp.url.tsr import TSR, Refit

__all__ = ["URL", "Constants"]


@dataclass(frozen=True)
class Constants:
    """The constants of Algorithms 1 and 2 as printed, for accuracy epsilon and confidence delta.

    N restarts, L evaluation episodes each, J iterations of TSR, the batch size B, and the count of
    test observations that confirms a label.
    """

    N: int
    L: int
    J: int
    B: int
    min_count: float

    def trajectories(self, K: int) -> int:
        """The paper's count: N sum_k sum_i ((k - 1) J + i + 1) B + N L.

        It leaves out the K + 1 trajectories a restart that TSR hands to the learner, and the data
        of the last call of TSR (line 10), which is the term k = K + 1.
        """
        return self.N * _data(self.J, self.B, 1, K) + self.N * self.L

    def all_trajectories(self, K: int) -> dict[str, int]:
        """What is really drawn, by kind: with the last call of TSR and the learner's episodes."""
        J, B, N = self.J, self.B, self.N
        test = N * (K + 1) * J * B
        return {
            "oracle": N * _data(J, B, 1, K + 1) - test,
            "test": test,
            "learn": N * K,
            "evaluate": N * self.L,
        }


def _data(J: int, B: int, first: int, last: int) -> int:
    ks = range(first, last + 1)
    return sum(((k - 1) * J + i + 1) * B for k in ks for i in range(1, J + 1))


class URL(DecodingAgent):
    """Any unsupervised learning oracle and any tabular learner, on any Block MDP.

    The defaults are the method as practised in the paper's experiments: the oracle is trained on
    batches of trajectories by the current policy, at first a random one, until it is stable; then
    the learner works on its labels. `URL.theory` makes Algorithm 1 as written.

    Parameters
    ----------
    oracle : any scikit-learn clusterer or mixture; `blockmdp.oracles.AutoOracle` by default, which
        chooses the kind of mixture and the number of labels by the data.
    learner : any `blockmdp.Learner`; OracleQ by default.
    batch : B, oracle trajectories an iteration of TSR.
    iterations : J, how often TSR trains the decoder at the most; `None`: (H + 1) n_states + 1.
    stable : stop training once two decoders in a row agree so far; `None` never stops early. It is
        judged on `test_batch` fresh trajectories, up to a permutation of the labels, and as the
        mean over labels of the share that is called alike, so that rare labels count as much as
        common ones (`blockmdp.url.agreement`).
    growth : each batch is so many times the one before, while the decoder is not stable.
    test_batch : test trajectories an iteration; by default a tenth of the batch, at least 10.
    resample : draw all training data anew from all policies so far in each iteration, as written;
        by default earlier data are kept.
    pool_levels : one decoder for all levels, whose labels the learner tells apart by their level;
        else a decoder for each level, as written.
    online : learn the decoder from the learner's own episodes, from the first one on, and draw none
        for the oracle alone (`blockmdp.url.online`); the fields on training and testing then do
        nothing. By default where levels are not pooled and no oracle is named. The oracle is then
        `blockmdp.oracles.DirichletMixture` and the learner UCBVI with no bonus, if none is named.
    match_labels : let FixLabel keep the names of confirmed labels when the decoder is trained anew.
    min_count : how many test observations confirm a label.
    examples : how many of them are kept to know it by; `None` for all, as written.
    retrain_every : go on training while learning, after every so many episodes, on what the learner
        has seen; by default the decoder is not touched once learning begins.
    memory : observations kept for further training while learning, the newest.
    restarts : N, how often to start over, with a new learner, decoder, Pi and Z; the policy that
        evaluates best is kept.
    evaluation : L, episodes by which each restart's policy is judged.
    n_states : |S|, for the number of iterations as printed; by default the problem's own.

    Attributes
    ----------
    returns_ : (restarts x episodes,) the return of each episode that the learner had.
    trajectories_ : as long: trajectories of any kind drawn by the end of that episode.
    ledger_ : trajectories drawn, by kind: "oracle", "test", "learn", "evaluate"; "unused", where
        copies of a vector environment began more than were wanted.
    decoder_, policy_ : f and pi (H, labels, A), which together are the agent's policy.
    tables_ : the learner's tables.
    diary_ : a `Refit` for each training of the decoder; online, for each episode that changed it.
    evaluations_ : (restarts,) mean return of each restart's policy; empty if not asked for.

    Examples
    --------
    >>> from blockmdp import lock_bernoulli
    >>> m = lock_bernoulli(horizon=5, switch=0.2)
    >>> agent = URL(batch=100, iterations=1).fit(m, episodes=20_000, seed=0)
    >>> agent.value()
    0.5
    >>> agent.ledger_
    {'oracle': 100, 'test': 10, 'learn': 20000, 'evaluate': 0}
    """

    tables_: Any
    diary_: list[Refit]
    evaluations_: NDArray[np.float64]

    def __init__(
        self,
        oracle: Any = None,
        learner: Learner | None = None,
        *,
        batch: int = 30,
        iterations: int | None = 10,
        stable: float | None = 0.95,
        growth: float = 1.0,
        test_batch: int | None = None,
        resample: bool = False,
        pool_levels: bool = True,
        online: bool | None = None,
        match_labels: bool = True,
        min_count: float = 10,
        examples: int | None = 500,
        retrain_every: int | None = None,
        memory: int | None = 100_000,
        restarts: int = 1,
        evaluation: int = 0,
        n_states: int | None = None,
    ) -> None:
        if online not in (None, True, False):
            raise ValueError(f"online must be None, True or False, got {online!r}")
        if online is None:
            online = oracle is None and not pool_levels
        if oracle is None:
            oracle = DirichletMixture() if online else AutoOracle()
        if learner is None:
            learner = UCBVI(bonus=0.0) if online else OracleQ()
        check_is_oracle(oracle)
        if not isinstance(learner, Learner):
            raise TypeError(f"learner must be a blockmdp.Learner, got {learner!r}")
        for name, value, least in (
            ("batch", batch, 1),
            ("iterations", iterations, 1),
            ("test_batch", test_batch, 0),
            ("examples", examples, 1),
            ("retrain_every", retrain_every, 1),
            ("memory", memory, 1),
            ("restarts", restarts, 1),
            ("evaluation", evaluation, 0),
            ("n_states", n_states, 1),
        ):
            if value is not None or name in ("batch", "restarts", "evaluation"):
                whole_number(name, value, least)
        if stable is not None and not 0 <= stable <= 1:
            raise ValueError(f"stable must be None or in [0, 1], got {stable!r}")
        if not 1 <= growth < math.inf:
            raise ValueError(f"growth must be a number, 1 or more; got {growth!r}")
        if not min_count >= 0:
            raise ValueError(f"min_count must be a number, 0 or more; got {min_count!r}")
        if online and (resample or retrain_every is not None):
            raise ValueError(
                "online=True learns from every episode as it comes: leave resample and "
                "retrain_every alone"
            )
        if restarts > 1 and evaluation == 0:
            raise ValueError("restarts need evaluation episodes to choose the best of them by")
        self.oracle = oracle
        self.learner, self.online = learner, online
        self.batch = int(batch)
        self.iterations = None if iterations is None else int(iterations)
        self.stable, self.growth = stable, growth
        self.test_batch = max(self.batch // 10, 10) if test_batch is None else int(test_batch)
        self.resample, self.pool_levels = resample, pool_levels
        self.match_labels, self.min_count = match_labels, min_count
        self.examples = None if examples is None else int(examples)
        self.retrain_every = None if retrain_every is None else int(retrain_every)
        self.memory = None if memory is None else int(memory)
        self.restarts, self.evaluation = int(restarts), int(evaluation)
        self.n_states = None if n_states is None else int(n_states)
        self._horizon: int | None = None  # that of `theory`, whose constants depend on it

    def __repr__(self) -> str:
        fields = (
            ("pool_levels", "online")
            if self.online
            else ("batch", "iterations", "stable", "pool_levels", "match_labels", "retrain_every")
        )
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"URL({self.oracle!r}, {self.learner!r}, {shown})"

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
        label_error: float = 0.01,
        delta_1: float = 0.01,
        g_inverse: Callable[[float, float], float] | None = None,
        episodes: int | None = None,
    ) -> URL:
        """Algorithm 1 as written: nothing pooled, nothing reused, nothing stopped early.

        Parameters
        ----------
        epsilon, delta : the policy is to be epsilon-optimal with probability 1 - delta.
        horizon, n_states : H and |S|.
        batch : B; or give `g_inverse` and `episodes`.
        label_error, delta_1 : the decoder's own epsilon and delta_1 of Algorithm 2, which decide
            how many test observations confirm a label.
        g_inverse : g^{-1}(epsilon, delta) of the oracle (Definition 1); then
            B = g^{-1}(label_error^2 / (K J), delta_1) / (K J), with K = `episodes`.
        """
        constants = cls.constants(
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
        agent = cls(
            oracle,
            learner,
            batch=constants.B,
            test_batch=constants.B,
            iterations=constants.J,
            stable=None,
            resample=True,
            pool_levels=False,
            match_labels=True,
            min_count=constants.min_count,
            examples=None,
            retrain_every=1,
            restarts=constants.N,
            evaluation=constants.L,
            n_states=n_states,
        )
        agent._horizon = horizon
        return agent

    @staticmethod
    def constants(
        epsilon: float,
        delta: float,
        horizon: int,
        n_states: int,
        *,
        batch: int | None = None,
        label_error: float = 0.01,
        delta_1: float = 0.01,
        g_inverse: Callable[[float, float], float] | None = None,
        episodes: int | None = None,
    ) -> Constants:
        """The constants of `theory`."""
        for name, value in (
            ("epsilon", epsilon),
            ("delta", delta),
            ("label_error", label_error),
            ("delta_1", delta_1),
        ):
            if not 0 < value < 1:
                raise ValueError(f"{name} must be in (0, 1), got {value!r}")
        H = whole_number("horizon", horizon, 1)
        n_states = whole_number("n_states", n_states, 1)
        N = math.ceil(math.log(2 / delta) / 2)
        L = math.ceil(9 * H**2 / (2 * epsilon**2) * math.log(2 * N / delta))
        J = (H + 1) * n_states + 1
        if batch is None:
            if g_inverse is None or episodes is None:
                raise ValueError("give batch, or the oracle's g_inverse and the episodes K")
            episodes = whole_number("episodes", episodes, 1)
            KJ = episodes * J
            batch = max(math.ceil(g_inverse(label_error**2 / KJ, delta_1) / KJ), 1)
        return Constants(N, L, J, batch, 3 * label_error * batch * math.log(1 / delta_1))

    def fit(
        self,
        problem: Problem,
        episodes: int,
        seed: int = 0,
        *,
        engine: Engine = "auto",
        horizon: int | None = None,
        record: bool = False,
    ) -> URL:
        """Learn from scratch (Algorithm 1); the same seed gives the same result.

        Parameters
        ----------
        problem : a BlockMDP, a Gymnasium environment or an environment's id.
        episodes : K, how many the learner has; the oracle's trajectories come on top.
        seed : of the world's chances, the learner's choices and the oracle's random states.
        engine, horizon : see `blockmdp.simulators.simulate`.
        record : keep every decoder, with its policy, in `diary_`, for `plot` to look into.
        """
        episodes = whole_number("episodes", episodes)
        simulator = simulate(problem, seed, engine=engine, horizon=horizon)
        if self._horizon not in (None, simulator.horizon):
            raise ValueError(
                f"URL.theory made this agent for horizon {self._horizon}, and the problem has "
                f"{simulator.horizon}"
            )
        simulator.ledger.update(dict.fromkeys(("oracle", "test", "learn", "evaluate"), 0))
        attempts = [
            self._attempt(simulator, episodes, n, record) for n in range(self.restarts)
        ]  # 2
        if self.evaluation:  # 13
            means = [
                simulator.rollout(
                    [a.policy], self.evaluation, "evaluate", keep_x=False
                ).returns.mean()
                for a in attempts
            ]
        else:
            means = []
        best = attempts[int(np.argmax(means)) if means else 0]  # 14
        self.__dict__.pop("_greedy", None)
        self.mdp_, self.seed_ = simulator.mdp, simulator.seed
        self.observation_shape_ = simulator.observation_shape
        self.evaluations_ = np.array(means)
        self.returns_ = np.concatenate([a.returns for a in attempts])
        self.trajectories_ = np.concatenate([a.trajectories for a in attempts])
        self.ledger_ = dict(simulator.ledger)
        self.decoder_, self.policy_ = best.policy.f, best.policy.pi  # type: ignore[assignment]
        self.tables_, self.diary_ = best.tables, best.diary
        return self

    def _attempt(self, simulator: Simulator, K: int, n: int, record: bool) -> _Attempt:
        """Lines 3-11: one restart."""
        if self.online:
            with one_thread():
                return self._online(simulator, K, n, record)
        A = self.learner
        run = simulator.start(A, K)  # 3
        tsr = self._tsr(simulator, n, record)
        trajectories = np.empty(K, np.int64)
        fresh = None
        while run.k < K:  # 4
            pi = A.behaviour(run.tables, run.k).copy()  # 5
            k = run.k
            if self.resample or tsr.data is None:
                f = tsr.decoder(pi, k + 1)  # 6
            elif fresh is not None:
                f = tsr.retrain(pi, fresh, k + 1)
            before = simulator.episodes
            look = self.retrain_every is not None and not self.resample
            fresh = simulator.learn(run, f, self.retrain_every, record=look)  # 6-7
            trajectories[k : run.k] = before + np.arange(1, run.k - k + 1)
        pi = A.policy(run.tables).copy()  # 9
        f = tsr.decoder(pi, K + 1) if self.resample or tsr.data is None else tsr.f  # 10
        return _Attempt(Policy(pi, f), run.tables, run.returns, trajectories, tsr.diary)  # 11

    def _online(self, simulator: Simulator, K: int, n: int, record: bool) -> _Attempt:
        """Lines 3-11, the decoder learnt from the learner's own episodes."""
        A = self.learner
        run = simulator.start(A, K)  # 3
        with np.errstate(over="ignore"):
            key = np.uint64(rng.child(streams.estimator(simulator.seed), n))
        f = OnlineDecoder(
            self.oracle,
            simulator.horizon,
            K,
            pooled=self.pool_levels,
            min_count=self.min_count,
            key=key,
        )
        trajectories = np.empty(K, np.int64)
        diary = []
        while run.k < K:  # 4
            pi = A.behaviour(run.tables, run.k)  # 5
            episode = simulator.rollout([Policy(pi, f)], 1, "learn")  # 6
            born, reread = f.learn(episode)
            if born or reread:
                kept, acted = (f.decoder(), pi) if record else (None, None)
                drawn = simulator.episodes
                diary.append(Refit(run.k, drawn, kept, acted, (), tuple(born), math.nan, reread))
            simulator.make_room(run, f.n_labels, anew=reread > 0)
            f.teach(A, run.tables, 0 if reread else run.k)  # 7
            with np.errstate(over="ignore"):
                choices = np.uint64(rng.child(run.key, run.k))
                A.plan(run.tables, run.k, np.uint64(rng.step(choices, simulator.horizon)))
            run.returns[run.k] = episode.returns[0]
            trajectories[run.k] = simulator.episodes
            run.k += 1
        policy = Policy(A.policy(run.tables).copy(), f.decoder())  # 9
        return _Attempt(policy, run.tables, run.returns, trajectories, diary)  # 11

    def _tsr(self, simulator: Simulator, n: int, record: bool) -> TSR:
        J = self.iterations
        if J is None:
            S = self.n_states or (simulator.mdp.n_states if simulator.mdp else None)
            if S is None:
                raise ValueError("iterations=None needs n_states where the problem hides them")
            J = (simulator.horizon + 1) * S + 1
        return TSR(
            simulator,
            self.oracle,
            J=J,
            B=self.batch,
            B_test=self.test_batch,
            resample=self.resample,
            growth=self.growth,
            stable=self.stable,
            pool_levels=self.pool_levels,
            match_labels=self.match_labels,
            Z=LabelStandard(
                pooled=self.pool_levels,
                min_count=self.min_count,
                most=self.examples,
            ),
            memory=self.memory,
            record=record,
            restart=n,
        )


@dataclass(frozen=True)
class _Attempt:
    """What one restart came to."""

    policy: Policy
    tables: Any
    returns: NDArray[np.float64]
    trajectories: NDArray[np.int64]
    diary: list[Refit]
