"""Simulators, which draw all trajectories that agents see, and count them.

All simulators have the same interface. `BlockSimulator` runs a `BlockMDP` in compiled or
interpreted loops. `GymSimulator` steps through any Gymnasium environment, and `VectorSimulator`
through many copies of one. For a `BlockMDP`, the first two give the same results, bit for bit.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym

from blockmdp import envs
from blockmdp.checks import check_integer
from blockmdp.envs.gym import BlockMDPEnv, mdp_of
from blockmdp.mdp import BlockMDP
from blockmdp.simulators.base import LearnerRun, Simulator
from blockmdp.simulators.block import BlockSimulator
from blockmdp.simulators.stepwise import GymSimulator
from blockmdp.simulators.vector import VectorSimulator

__all__ = [
    "BlockSimulator",
    "Engine",
    "GymSimulator",
    "LearnerRun",
    "Problem",
    "Simulator",
    "VectorSimulator",
    "make_simulator",
]

Engine = Literal["auto", "compiled", "interpreted", "stepwise"]
Problem = BlockMDP | gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | str


def make_simulator(
    problem: Problem, seed: int = 0, *, engine: Engine = "auto", horizon: int | None = None
) -> Simulator:
    """Make the simulator of a problem.

    Parameters
    ----------
    problem : BlockMDP, gymnasium.Env, gymnasium.vector.VectorEnv or str
        A Block MDP, a Gymnasium environment, a vector of them, or the id of an environment.
    seed : int, default=0
        Seed of the environment and of all choices.
    engine : {"auto", "compiled", "interpreted", "stepwise"}, default="auto"
        "auto" runs every Block MDP in compiled loops, also if it is given as a Gymnasium
        environment, and steps through any other environment. The other values force one way.
    horizon : int or None, default=None
        Longest episode, for a Gymnasium environment that does not state it.

    Returns
    -------
    Simulator
        The simulator.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=3)
    >>> simulator = make_simulator(m, seed=0)
    >>> simulator.rollout([bm.Policy(m.optimal_policy())], 5, "test").actions.shape
    (5, 3)
    >>> simulator.ledger
    Counter({'test': 5})
    """
    if engine not in ("auto", "compiled", "interpreted", "stepwise"):
        raise ValueError(
            f"engine must be 'auto', 'compiled', 'interpreted' or 'stepwise', got {engine!r}"
        )
    if horizon is not None:
        horizon = check_integer("horizon", horizon, 1)
    if isinstance(problem, str) and hasattr(envs, problem):
        raise ValueError(
            f"{problem!r} is a function, not the id of an environment: give fit bm.{problem}()"
        )
    if isinstance(problem, str):
        problem = gym.make(problem)
    if isinstance(problem, gym.vector.VectorEnv):
        if engine not in ("auto", "stepwise"):
            raise ValueError(
                f"engine={engine!r} needs a BlockMDP, but {problem} is a vector environment"
            )
        return VectorSimulator(problem, seed, horizon)
    if isinstance(problem, BlockMDP):
        mdp: BlockMDP | None = problem
    elif isinstance(problem, gym.Env):
        mdp = mdp_of(problem)
    else:
        raise TypeError(
            f"problem must be a BlockMDP, a Gymnasium environment or the id of one, got {problem!r}"
        )
    if mdp is not None and horizon not in (None, mdp.horizon):
        raise ValueError(f"horizon must be None or {mdp.horizon}, that of {mdp}, got {horizon}")
    if mdp is None or engine == "stepwise":
        if engine in ("compiled", "interpreted"):
            raise ValueError(f"engine={engine!r} needs a BlockMDP, but {problem} has none")
        env = BlockMDPEnv(problem) if isinstance(problem, BlockMDP) else problem
        return GymSimulator(env, seed, horizon)
    return BlockSimulator(mdp, seed, compiled=engine != "interpreted")
