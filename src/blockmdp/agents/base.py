"""The base class of agents: learn a policy from a problem, use it, look at it, save it."""

from __future__ import annotations

import contextlib
import copy
import inspect
from abc import ABC
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from blockmdp import measures
from blockmdp.agents.continuing import fit_from, keep_last, lengthen
from blockmdp.agents.progress import FitProgress
from blockmdp.checks import check_integer
from blockmdp.decoders import Decoder, FittedDecoder
from blockmdp.history import FEW, MANY, Level, Refit, Snapshot
from blockmdp.learners import Learner
from blockmdp.mdp import BlockMDP
from blockmdp.oracles.fitting import one_thread
from blockmdp.policy import Policy
from blockmdp.simulators import Engine, LearnerRun, Problem, Simulator, make_simulator
from blockmdp.trajectories import Observations

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Agent", "DecodingAgent", "Steps", "check_learner"]

Steps = Generator[tuple[LearnerRun, Decoder | None, int, bool], Observations | None, None]


class Agent(ABC):
    """Base class of all agents.

    An agent learns a policy from a problem (`fit`), uses it (`act`), measures it (`value`), shows
    it (`plot`) and saves it (`save`). A subclass stores its parameters unchanged in `__init__` and
    defines `_fit`; one that can be continued (`fit_more`) defines `_begin`, `_end`, and `_learn` or
    `_steps`.

    Attributes
    ----------
    policy_ : Policy
        The policy that was learnt.
    returns_ : ndarray of shape (episodes,)
        Return of each learning episode.
    trajectories_ : ndarray of shape (episodes,)
        Trajectories of all kinds drawn by the end of each learning episode.
    ledger_ : dict
        Number of trajectories drawn, by kind.
    history_ : list
        What happened in the fit, see `blockmdp.history`.
    snapshots_ : list of Snapshot
        The greedy policy at checkpoints of the fit, and `policy_` at its end; empty without
        `record=True`.
    mdp_ : BlockMDP or None
        The Block MDP that was learnt; None for a black box.
    seed_ : int
        Seed of the fit.

    See Also
    --------
    URL : Trains a decoder, then learns on its labels.
    OnlineURL : Learns the decoder from the learner's own episodes.
    PCID : Learns decoder and policy level by level.
    Tabular : A tabular learner alone.

    Examples
    --------
    >>> import blockmdp as bm
    >>> isinstance(bm.URL(), bm.Agent)
    True
    """

    policy_: Policy
    returns_: NDArray[np.float64]
    trajectories_: NDArray[np.int64]
    ledger_: dict[str, int]
    history_: list[Any]
    snapshots_: list[Snapshot]
    mdp_: BlockMDP | None
    seed_: int

    def __repr__(self) -> str:
        """Show the parameters that differ from their defaults."""
        shown = []
        for p in inspect.signature(type(self)).parameters.values():
            value = getattr(self, p.name)
            if not (value is p.default or (type(value) is type(p.default) and value == p.default)):
                by_name = f"{p.name}=" if p.kind is p.KEYWORD_ONLY else ""
                shown.append(f"{by_name or p.name + '='}{value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def fit(
        self,
        problem: Problem,
        episodes: int,
        seed: int = 0,
        *,
        engine: Engine = "auto",
        horizon: int | None = None,
        record: bool | Literal["few"] = False,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learn from scratch. In a terminal, a fit of more than two seconds shows how far it is.

        The same seed gives the same result, on every engine. A longer fit with the same seed begins
        with the same episodes, unless the learner depends on their number, as `QLearning` does.

        Parameters
        ----------
        problem : BlockMDP, gymnasium.Env, gymnasium.vector.VectorEnv or str
            Problem to learn: a Block MDP, a Gymnasium environment, a vector of them, or the id of
            an environment.
        episodes : int
            Number of learning episodes. Trajectories for an oracle or for exploration are
            additional; `ledger_` counts them all.
        seed : int, default=0
            Seed of the environment, of the learner's choices and of the oracle's random states.
        engine : {"auto", "compiled", "interpreted", "stepwise"}, default="auto"
            How episodes are run. "auto" compiles whatever has a Block MDP and steps through
            anything else. "interpreted" runs the same loop in plain Python, to debug a learner.
            "stepwise" steps through the Gymnasium environment.
        horizon : int or None, default=None
            Longest episode, for a Gymnasium environment that does not state it.
        record : bool or "few", default=False
            Keep the greedy policy at checkpoints in `snapshots_`, for `solved_from`, `values` and
            `plot`, and policies in the entries of `history_`. The result is the same. There is a
            checkpoint after each of the first 64 episodes, and later one every 2 to 3 %. "few"
            keeps nothing in `history_`, and has checkpoints after 1, 2, 3, 4, 6, 8, 12, 16, ...
            episodes. A vector of environments has none.
        checkpoint : str, Path or None, default=None
            File in which to keep the state of the fit, every ten seconds and at the end. If it
            exists, the fit goes on from there, and gives the same result as one that was never
            interrupted.

        Returns
        -------
        self
            The fitted agent.
        """
        episodes = check_integer("episodes", episodes)
        simulator = self._simulator(problem, seed, engine, horizon, record)
        self._so_far: tuple[Simulator, Any, Any] | None = None
        with one_thread(), FitProgress(simulator, type(self).__name__):
            if checkpoint is None:
                self._fit(simulator, episodes, record is True)
            else:
                fit_from(Path(checkpoint), self, simulator, episodes, record)
        return self._fitted_by(simulator)

    def fit_more(self, episodes: int) -> Self:
        """Go on learning. The result is the same as that of one longer fit, bit for bit.

        Parameters
        ----------
        episodes : int
            Number of further learning episodes.

        Returns
        -------
        self
            The agent, fitted to all episodes so far.

        Raises
        ------
        ValueError
            If a longer fit would have begun differently: the learner depends on the number of
            episodes, as `QLearning` does, or the agent ends with trajectories of its own, as `URL`
            with `evaluation`, `restarts` or `resample`. A vector of environments goes on with fresh
            episodes, so the result is another one.
        """
        simulator, state, world = self._state("fit_more")
        total = state.run.k + check_integer("episodes", episodes)
        lengthen(state.run, simulator, total)
        self._so_far = None  # if it is interrupted, nobody knows what was learnt
        simulator.set_world(world)
        with one_thread(), FitProgress(simulator, type(self).__name__):
            self._go_on(simulator, state, total)
        return self._fitted_by(simulator)

    def _simulator(
        self, problem: Problem, seed: int, engine: Engine, horizon: int | None, record: Any
    ) -> Simulator:
        """Make the simulator of a fit."""
        simulator = make_simulator(problem, seed, engine=engine, horizon=horizon)
        if record not in (True, False, "few"):
            raise ValueError(f"record must be True, False or 'few', got {record!r}")
        simulator.snapshots = [] if record else None
        simulator.digits = FEW if record == "few" else MANY
        return simulator

    def _fit(self, simulator: Simulator, episodes: int, record: bool) -> None:
        """Learn, and set `policy_`, `returns_`, `trajectories_` and `history_`."""
        state = self._begin(simulator, episodes, record)
        self._go_on(simulator, state, episodes)

    def _why_not_more(self) -> str:
        """Say why a fit cannot be continued; nothing if it can."""
        fit, begin = (
            next(cls for cls in type(self).__mro__ if name in vars(cls))
            for name in ("_fit", "_begin")
        )
        if begin is Agent or (fit is not begin and issubclass(fit, begin)):
            return f"{fit.__name__} defines _fit, but not _begin, _learn and _end"
        return ""

    def _begin(self, simulator: Simulator, episodes: int, record: bool) -> Any:
        """Return the state of a fit before its first episode: an object with a `run` and a
        `decoder`, which changes in `_learn`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define _fit")

    def _learn(self, simulator: Simulator, state: Any, stop: int) -> None:
        """Learn until there were `stop` episodes."""
        steps, seen = self._steps(simulator, state, stop), None
        with contextlib.suppress(StopIteration):
            while True:
                seen = simulator.learn(*steps.send(seen))

    def _steps(self, simulator: Simulator, state: Any, stop: int) -> Steps:
        """Yield what to learn next: arguments of `Simulator.learn`, whose result is sent back.

        An agent that learns in this way can be fitted together with others, see `fit_many`.
        """
        raise NotImplementedError

    def _end(self, simulator: Simulator, state: Any) -> None:
        """Set what `_fit` sets, from a state that stays as it is."""
        raise NotImplementedError

    def _go_on(self, simulator: Simulator, state: Any, stop: int) -> None:
        """Learn until there were `stop` episodes, and set what was learnt."""
        keep_last(simulator, state)
        self._learn(simulator, state, stop)
        self._ended(simulator, state)

    def _ended(self, simulator: Simulator, state: Any) -> None:
        """Set what was learnt, and keep the state for `fit_more`."""
        self._end(simulator, state)
        self._so_far = (simulator, state, simulator.world())

    def _fitted_by(self, simulator: Simulator) -> Self:
        """Set what all agents have in common after a fit."""
        self.snapshots_ = list(simulator.snapshots or ())
        if simulator.snapshots is not None:
            self.snapshots_.append(Snapshot(len(self.returns_), simulator.episodes, self.policy_))
        self.mdp_, self.seed_ = simulator.mdp, simulator.seed
        self.ledger_ = dict(simulator.ledger)
        return self

    def _state(self, what: str) -> tuple[Simulator, Any, Any]:
        """Return the simulator, the state of the fit so far, and that of the world."""
        so_far, why = self._fitted(what)._so_far, self._why_not_more()
        if so_far is None or why:
            why = why or "it was interrupted, or the agent is a copy"
            raise ValueError(f"this fit cannot be continued: {why}")
        return so_far

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle of the agent has: not the environment it learnt from."""
        state = dict(vars(self))
        if state.get("_so_far") and hasattr(state["_so_far"][0], "env"):
            state["_so_far"] = None
        return state

    def __copy__(self) -> Self:
        """Return a copy that shares nothing with this agent: `fit_more` changes its tables."""
        return copy.deepcopy(self)

    def act(self, x: Any, level: int | NDArray[np.int64]) -> Any:
        """Choose an action by the learnt policy; see `Policy.act`.

        Parameters
        ----------
        x : array-like
            One observation, or n of them. An agent on latent states takes latent states.
        level : int or ndarray of shape (n,)
            Level at which they were made, from 0 to H - 1; of all of them, or of each.

        Returns
        -------
        int or ndarray of shape (n,)
            One action for one observation, n actions for n.
        """
        return self._fitted("act").policy_.act(x, level)

    def value(self, samples: int = 1000, *, on: BlockMDP | None = None) -> float:
        """Compute the expected return of acting by `act`; see `blockmdp.measures.value`.

        Parameters
        ----------
        samples : int, default=1000
            Fresh observations of each state at each level, to measure the decoder with.
        on : BlockMDP or None, default=None
            Problem to act in. None is the one that was learnt; another one may, for example, show
            held-out images.

        Returns
        -------
        float
            Expected return of an episode.
        """
        return measures.value(self._known("value", on), self.policy_, samples, self.seed_)

    def solved_from(
        self, share: float = 0.9, samples: int | None = None, *, on: BlockMDP | None = None
    ) -> int | None:
        """Find the trajectory from which the greedy policy stays good.

        See `blockmdp.measures.solved_from`. It needs `fit(..., record=True)`.

        Parameters
        ----------
        share : float, default=0.9
            Share of the optimal value that is good.
        samples : int or None, default=None
            Fresh observations of each state at each level. None draws about 30,000 in all, between
            100 and 1,000 of each.
        on : BlockMDP or None, default=None
            Problem to act in; None is the one that was learnt.

        Returns
        -------
        int or None
            Trajectories of all kinds until then; None if the policy is not good at the end.
        """
        mdp = self._recorded("solved_from", on)
        return measures.solved_from(mdp, self.snapshots_, share, samples, self.seed_)

    def values(
        self, samples: int | None = None, *, on: BlockMDP | None = None
    ) -> NDArray[np.float64]:
        """Compute the value of the greedy policy at each checkpoint.

        See `blockmdp.measures.values`. It needs `fit(..., record=True)`.

        Parameters
        ----------
        samples : int or None, default=None
            Fresh observations of each state at each level, as in `solved_from`.
        on : BlockMDP or None, default=None
            Problem to act in; None is the one that was learnt.

        Returns
        -------
        ndarray of shape (n,)
            Expected return of an episode, for each entry of `snapshots_`.
        """
        mdp = self._recorded("values", on)
        return measures.values(mdp, self.snapshots_, samples, self.seed_)

    def save(self, path: str | Path) -> None:
        """Write the learnt policy to a file that `blockmdp.load` reads.

        Parameters
        ----------
        path : str or Path
            File to write.
        """
        self._fitted("save").policy_.save(path)

    def plot(self, *, level: int | None = None) -> Figure:
        """Draw the returns, the decoder and its training; see `blockmdp.plots.plot_agent`.

        Parameters
        ----------
        level : int or None, default=None
            Level whose labels are shown. None shows the mean over all levels.

        Returns
        -------
        matplotlib.figure.Figure
            The figure; no window opens.
        """
        from blockmdp.plots.agent import plot_agent  # here, since matplotlib is slow to import

        return plot_agent(self._fitted("plot"), level=level)

    def animate(
        self,
        path: str | Path,
        *,
        on: Any = None,
        episodes: int = 1,
        seed: int = 0,
        fps: float = 4.0,
    ) -> float:
        """Play episodes of the learnt policy, and write them to a GIF file.

        The film shows what the agent sees if that is a picture, and otherwise what `render` draws;
        see `blockmdp.plots.animate`.

        Parameters
        ----------
        path : str or Path
            File to write, which ends in ".gif".
        on : BlockMDP, gymnasium.Env or None, default=None
            Problem to act in. None is the Block MDP that was learnt. A black box must be given,
            made with `render_mode="rgb_array"`.
        episodes : int, default=1
            Number of episodes.
        seed : int, default=0
            Seed of the first episode.
        fps : float, default=4.0
            Pictures in a second, at most 100.

        Returns
        -------
        float
            Mean return of the episodes.
        """
        from blockmdp.plots.animation import animate  # here, since matplotlib is slow to import

        problem = self._known("animate") if on is None else on
        options: dict[str, Any] = {"episodes": episodes, "seed": seed, "fps": fps}
        return animate(problem, self._fitted("animate").policy_, path, **options)

    def _fitted(self, what: str) -> Self:
        if "policy_" not in vars(self):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet: call fit before {what}"
            )
        return self

    def _known(self, what: str, on: BlockMDP | None = None) -> BlockMDP:
        """Return the Block MDP to measure on."""
        mdp = self._fitted(what).mdp_ if on is None else on
        if mdp is None:
            raise ValueError(
                f"{what} needs the latent states of a BlockMDP, but this agent was fitted to a "
                "black box"
            )
        return mdp

    def _recorded(self, what: str, on: BlockMDP | None) -> BlockMDP:
        """Return the Block MDP to measure the policies of the fit on."""
        mdp = self._known(what, on)
        if not self.snapshots_:
            raise ValueError(f"{what} needs the policies of the fit: call fit with record=True")
        return mdp


class DecodingAgent(Agent):
    """Base class of agents that learn a decoder."""

    history_: list[Refit] | list[Level]

    @property
    def decoder_(self) -> FittedDecoder:
        """The decoder of `policy_`."""
        decoder = self._fitted("decoder_").policy_.decoder
        assert isinstance(decoder, FittedDecoder)
        return decoder

    def decode(self, x: Any, level: int | NDArray[np.int64]) -> Any:
        """Label observations; see `Policy.decode`.

        Parameters
        ----------
        x : array-like
            One observation, or n of them.
        level : int or ndarray of shape (n,)
            Level at which they were made, from 0 to H; of all of them, or of each.

        Returns
        -------
        int or ndarray of shape (n,)
            One label for one observation, n labels for n.
        """
        return self._fitted("decode").policy_.decode(x, level)

    def confusion(self, samples: int = 1000, *, on: BlockMDP | None = None) -> NDArray[np.float64]:
        """Measure the share of each latent state's observations that gets each label.

        Parameters
        ----------
        samples : int, default=1000
            Fresh observations of each state at each level.
        on : BlockMDP or None, default=None
            Problem to measure on; None is the one that was learnt.

        Returns
        -------
        ndarray of shape (H + 1, S, n_labels)
            Rows sum to 1.
        """
        return measures.confusion(self._known("confusion", on), self.decoder_, samples, self.seed_)

    def accuracy(self, samples: int = 1000) -> NDArray[np.float64]:
        """Measure how well the labels tell the latent states of each level apart.

        Parameters
        ----------
        samples : int, default=1000
            Fresh observations of each state at each level.

        Returns
        -------
        ndarray of shape (H + 1,)
            Between 0 and 1; see `blockmdp.measures.accuracy`.
        """
        reachable = self._known("accuracy").reached()
        return measures.accuracy(self.confusion(samples), reachable)

    def recovers(
        self,
        tolerance: float = 0.1,
        samples: int | None = None,
        *,
        on: BlockMDP | None = None,
    ) -> bool:
        """Test whether decoder and transitions are right, up to a permutation of the states.

        See `blockmdp.measures.recovers`. The learner must count transitions, as `PSRL` and `UCBVI`
        do.

        Parameters
        ----------
        tolerance : float, default=0.1
            Largest distance between an estimated and a true distribution of the next state.
        samples : int or None, default=None
            Fresh observations of each state at each level, as in `solved_from`.
        on : BlockMDP or None, default=None
            Problem to compare with; None is the one that was learnt.

        Returns
        -------
        bool
            Whether both are right.
        """
        mdp = self._known("recovers", on)
        counts = getattr(getattr(self, "tables_", None), "m", None)
        if counts is None:
            raise ValueError(
                "recovers needs a learner that counts transitions, such as PSRL or UCBVI, but this "
                f"{type(self).__name__} has none"
            )
        return measures.recovers(mdp, self.decoder_, counts, tolerance, samples, self.seed_)


# why a learner of `URL` and `OnlineURL` may not share a model between levels
OWN_LABELS = "each level may have a decoder of its own: set pool_levels=True"


def check_shared(learner: Any, why: str) -> None:
    """Raise ValueError if a learner shares one model between levels, and say why it must not."""
    if getattr(learner, "stationary", False):
        raise ValueError(f"{type(learner).__name__} has stationary=True, but {why}")


def check_learner(learner: Any, *, optional: bool = True) -> None:
    """Raise TypeError for anything that is not an instance of `blockmdp.Learner`."""
    if isinstance(learner, Learner) or (optional and learner is None):
        return
    if isinstance(learner, type) and issubclass(learner, Learner):
        raise TypeError(f"learner must be an instance: write {learner.__name__}(), with brackets")
    raise TypeError(f"learner must be a blockmdp.Learner, such as OracleQ(), got {learner!r}")
