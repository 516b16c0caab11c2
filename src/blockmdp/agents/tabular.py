"""A tabular learner alone: on the latent states (the skyline) or on raw observations (Feng et al.
2020, Section 5).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import whole_number
from blockmdp.learners import Learner, OracleQ
from blockmdp.sights import ObservationTable
from blockmdp.simulators import Engine, Problem, Simulator, simulate

__all__ = ["Tabular"]


class Tabular:
    """A tabular learner that is shown latent states, or takes each observation for a state of its
    own.

    Parameters
    ----------
    learner : any `blockmdp.Learner`; OracleQ by default.
    on : "latent" or "observation".

    Attributes
    ----------
    returns_ : (episodes,) the return of each episode.
    ledger_ : trajectories drawn, by kind.
    tables_ : the learner's tables.
    policy_ : (H, labels, A) probabilities of the actions that the learner has settled on.

    Examples
    --------
    >>> from blockmdp import lock_bernoulli
    >>> agent = Tabular(OracleQ(lr=0.1, bonus=0.001), on="latent")
    >>> agent.fit(lock_bernoulli(horizon=5, switch=0.2), episodes=20_000, seed=0).value()
    0.5
    >>> agent.ledger_
    {'learn': 20000}
    """

    returns_: NDArray[np.float64]
    ledger_: dict[str, int]
    tables_: Any

    def __init__(
        self, learner: Learner | None = None, on: Literal["latent", "observation"] = "latent"
    ) -> None:
        if on not in ("latent", "observation"):
            raise ValueError(f"on must be 'latent' or 'observation', got {on!r}")
        if learner is not None and not isinstance(learner, Learner):
            raise TypeError(f"learner must be a blockmdp.Learner, got {learner!r}")
        self.learner = OracleQ() if learner is None else learner
        self.on = on

    def __repr__(self) -> str:
        return f"Tabular({self.learner!r}, on={self.on!r})"

    def fit(
        self,
        problem: Problem,
        episodes: int,
        seed: int = 0,
        *,
        engine: Engine = "auto",
        horizon: int | None = None,
    ) -> Tabular:
        """Learn from scratch; the same seed gives the same result with every engine.

        Parameters
        ----------
        problem : a BlockMDP, a Gymnasium environment or an environment's id.
        episodes : how many to learn from.
        seed : of the world's chances and the learner's choices.
        engine, horizon : see `blockmdp.simulators.simulate`.
        """
        episodes = whole_number("episodes", episodes)
        simulator = simulate(problem, seed, engine=engine, horizon=horizon)
        self._table = None if self.on == "latent" else _table_for(simulator)
        run = simulator.start(self.learner, episodes)
        simulator.learn(run, self._table)
        self._simulator = simulator
        self.returns_, self.ledger_ = run.returns, dict(simulator.ledger)
        self.tables_ = run.tables
        self.__dict__.pop("policy_", None)
        return self

    @cached_property
    def policy_(self) -> NDArray[np.float64]:
        return self.learner.policy(self.tables_)

    def act(self, x: Any, level: int) -> int:
        """The action at a level (from 0), given the latent state or, `on="observation"`, the
        observation.
        """
        if self._table is None:
            label = int(x)
        else:
            label = int(self._table.find(np.array([level]), np.asarray(x)[None])[0])
        if not 0 <= label < self.policy_.shape[1]:
            return 0  # never seen: one action is as good as another
        return int(self.policy_[level, label].argmax())

    def value(self, samples: int = 1000) -> float:
        """The expected return of `policy_`; needs a problem whose BlockMDP is known.

        Exact on latent states. On observations the share of each action in a latent state is taken
        over so many fresh observations of it; where one was never seen before, the policy acts at
        random.
        """
        mdp = self._simulator.mdp
        if mdp is None:
            raise ValueError(
                "the exact value needs a BlockMDP; this agent was fitted to a black box"
            )
        if self._table is None:
            return mdp.value(self.policy_)
        pi = np.full((mdp.horizon, mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)
        for h in range(mdp.horizon):
            for s in range(mdp.n_states):
                x = mdp.sample(h, s, samples, seed=self._simulator.seed)
                labels = self._table.find(np.full(samples, h), x)
                actions = np.full((samples, mdp.n_actions), 1.0 / mdp.n_actions)
                actions[labels >= 0] = self.policy_[h, labels[labels >= 0]]
                pi[h, s] = actions.mean(axis=0)
        return mdp.value(pi)


def _table_for(simulator: Simulator) -> ObservationTable:
    if simulator.mdp is not None:
        finite, what = simulator.mdp.emission.finite, repr(simulator.mdp)
    else:
        space = simulator.env.observation_space  # type: ignore[attr-defined]
        finite, what = _is_finite(space), f"{simulator.env}"  # type: ignore[attr-defined]
    if not finite:
        raise ValueError(
            f"on='observation' needs finitely many observations, and {what} has infinitely many: "
            "no table can hold them. "
            "Decode them first (blockmdp.URL), or learn on='latent'"
        )
    return ObservationTable(simulator.horizon)


def _is_finite(space: gym.Space[Any]) -> bool:
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete | gym.spaces.MultiBinary):
        return True
    return isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.integer)
