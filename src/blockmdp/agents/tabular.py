"""A tabular learner that learns no decoder (Feng et al. 2020, Section 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from blockmdp.agents.base import Agent, Steps, check_learner, check_shared
from blockmdp.decoders import Decoder, TableDecoder
from blockmdp.learners import Learner, OracleQ
from blockmdp.policy import Policy, own_table
from blockmdp.simulators import LearnerRun, Simulator
from blockmdp.trajectories import by_level

__all__ = ["Tabular"]


class Tabular(Agent):
    """A tabular learner that learns no decoder.

    On latent states it is the skyline: what could be learnt if the hidden state were shown. With
    the likelihood it is shown the most likely state instead, which is the best that a decoder can
    tell. On observations it takes each distinct observation for a state of its own.

    Parameters
    ----------
    learner : Learner or None, default=None
        Tabular learner. None is `OracleQ()`.
    on : {"latent", "likelihood", "observation"}, default="latent"
        What the learner is shown. "likelihood" needs an emission with a method `log_likelihood`, as
        that of `blockmdp.noisy_lock`; the policy cannot be saved.
    by_level : bool, default=True
        Whether the learner knows the level of a state or observation. If False, all levels share
        one table (of learners that plan, one model), as for the learners on observations of Feng
        et al. (2020). The learner must have a parameter `stationary`, which is then True.

    Attributes
    ----------
    policy_ : Policy
        The policy that was learnt.
    returns_ : ndarray of shape (episodes,)
        Return of each episode.
    trajectories_ : ndarray of shape (episodes,)
        Trajectories drawn by the end of each episode.
    ledger_ : dict
        Number of trajectories drawn, by kind.
    tables_ : tuple
        The learner's tables.
    snapshots_ : list of Snapshot
        Policies at checkpoints; empty without `record=True`.
    history_ : list
        Empty, since there is no decoder to train.

    See Also
    --------
    URL : Learns a decoder first, then works on its labels.

    Examples
    --------
    >>> import blockmdp as bm
    >>> agent = bm.Tabular(bm.OracleQ(lr=0.1, bonus=0.001), on="latent")
    >>> agent.fit(bm.lock_bernoulli(horizon=5, switch=0.2), episodes=20_000, seed=0).value()
    0.5
    >>> agent.ledger_
    {'learn': 20000}
    """

    tables_: Any

    def __init__(
        self,
        learner: Learner | None = None,
        on: Literal["latent", "likelihood", "observation"] = "latent",
        *,
        by_level: bool = True,
    ) -> None:
        check_learner(learner)
        if on not in ("latent", "likelihood", "observation"):
            raise ValueError(f"on must be 'latent', 'likelihood' or 'observation', got {on!r}")
        if not by_level and not hasattr(OracleQ() if learner is None else learner, "stationary"):
            raise ValueError(
                f"by_level=False needs a learner with a parameter stationary, which "
                f"{type(learner).__name__} does not have"
            )
        if on == "observation" and by_level:
            check_shared(learner, "observations are numbered at each level: set by_level=False")
        self.learner = learner
        self.on = on
        self.by_level = by_level

    def _begin(self, simulator: Simulator, episodes: int, record: bool) -> _State:
        decoder = self._decoder(simulator)
        learner: Any = OracleQ() if self.learner is None else self.learner
        if not self.by_level:
            learner = replace(learner, stationary=True)
        return _State(simulator.start(learner, episodes), decoder)

    def _steps(self, simulator: Simulator, state: _State, stop: int) -> Steps:
        yield state.run, state.decoder, stop - state.run.k, False

    def _end(self, simulator: Simulator, state: _State) -> None:
        run, decoder = state.run, state.decoder
        pi = own_table(run.learner.policy(run.tables))
        shape = () if decoder is None else simulator.observation_shape
        frozen = decoder.frozen() if isinstance(decoder, TableDecoder) else decoder
        self.policy_ = Policy(pi, frozen, shape)
        self.tables_, self.returns_, self.history_ = run.tables, run.returns, []
        self.trajectories_ = np.arange(1, run.k + 1)

    def _decoder(self, simulator: Simulator) -> Decoder | None:
        if self.on == "latent":
            return None
        if self.on == "likelihood":
            return _Likelihood(simulator)
        return _table_for(simulator, self.by_level)


@dataclass
class _State:
    """A fit so far: the learner's run, and what shows it labels."""

    run: LearnerRun
    decoder: Decoder | None


class _Likelihood:
    """Shows the most likely latent state."""

    def __init__(self, simulator: Simulator) -> None:
        emission: Any = simulator.mdp and simulator.mdp.emission
        self.emission = emission
        if not hasattr(self.emission, "log_likelihood"):
            raise ValueError(
                "on='likelihood' needs an emission with a method log_likelihood(level, x), which "
                f"{self.emission or 'a black box'} does not have"
            )
        self.n_labels: int = self.emission.n_states

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        labels = np.empty(len(x), np.int32)
        for h, rows in by_level(levels):
            labels[rows] = self.emission.log_likelihood(h, x[rows]).argmax(axis=1)
        return labels


def _table_for(simulator: Simulator, by_level: bool) -> TableDecoder:
    if simulator.mdp is not None:
        finite, what = simulator.mdp.emission.finite, repr(simulator.mdp)
    else:
        space = simulator.env.observation_space  # type: ignore[attr-defined]
        finite, what = _is_finite(space), f"{simulator.env}"  # type: ignore[attr-defined]
    if not finite:
        raise ValueError(
            f"on='observation' needs finitely many observations, but {what} has infinitely many. "
            "Decode them (blockmdp.URL or blockmdp.OnlineURL), or learn on='latent'"
        )
    return TableDecoder(simulator.horizon, by_level=by_level)


def _is_finite(space: gym.Space[Any]) -> bool:
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        return True
    return isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.integer)
