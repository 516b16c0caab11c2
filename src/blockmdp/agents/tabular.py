"""A tabular learner alone, on latent states or raw observations (Feng et al. 2020, Section 5)."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym
import numpy as np

from blockmdp.agents.base import Agent, check_learner
from blockmdp.decoders import TableDecoder
from blockmdp.learners import Learner, OracleQ
from blockmdp.policy import Policy
from blockmdp.simulators import Simulator

__all__ = ["Tabular"]


class Tabular(Agent):
    """A tabular learner without a decoder.

    On latent states it is the skyline: what could be learnt if the hidden state were shown. On
    observations it takes each distinct observation for a state of its own.

    Parameters
    ----------
    learner : Learner or None, default=None
        Tabular learner. None is `OracleQ()`.
    on : {"latent", "observation"}, default="latent"
        What the learner is shown.

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
        self, learner: Learner | None = None, on: Literal["latent", "observation"] = "latent"
    ) -> None:
        check_learner(learner)
        if on not in ("latent", "observation"):
            raise ValueError(f"on must be 'latent' or 'observation', got {on!r}")
        self.learner = learner
        self.on = on

    def _fit(self, simulator: Simulator, episodes: int, record: bool) -> None:
        table = None if self.on == "latent" else _table_for(simulator)
        learner = OracleQ() if self.learner is None else self.learner
        run = simulator.start(learner, episodes)
        simulator.learn(run, table)
        pi = learner.policy(run.tables).copy()
        shape = () if table is None else simulator.observation_shape
        self.policy_ = Policy(pi, None if table is None else table.frozen(), shape)
        self.tables_, self.returns_, self.history_ = run.tables, run.returns, []
        self.trajectories_ = np.arange(1, episodes + 1)


def _table_for(simulator: Simulator) -> TableDecoder:
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
    return TableDecoder(simulator.horizon)


def _is_finite(space: gym.Space[Any]) -> bool:
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        return True
    return isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.integer)
