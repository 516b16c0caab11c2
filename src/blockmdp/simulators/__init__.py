"""Where trajectories come from. Every one that any agent draws is drawn, and counted, here.

The simulators have one face: `BlockSimulator` runs a `BlockMDP` in compiled (or interpreted) loops,
`GymSimulator` steps through any Gymnasium environment, `VectorSimulator` through copies of one. For
a `BlockMDP` the first two give the same numbers, bit for bit.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium as gym

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
    """The simulator of a problem: a BlockMDP, a Gymnasium environment (also a vector of them) or
    an environment's id.

    Parameters
    ----------
    engine : "auto" runs every BlockMDP in compiled loops, also one that comes as a Gymnasium
        environment, and steps through anything else. "compiled", "interpreted" and "stepwise"
        insist on one way.
    horizon : the longest episode; only where a Gymnasium environment does not say so itself.
    """
    if engine not in ("auto", "compiled", "interpreted", "stepwise"):
        raise ValueError(
            f"engine must be 'auto', 'compiled', 'interpreted' or 'stepwise', got {engine!r}"
        )
    if horizon is not None:
        horizon = check_integer("horizon", horizon, 1)
    if isinstance(problem, str):
        problem = gym.make(problem)
    if isinstance(problem, gym.vector.VectorEnv):
        if engine not in ("auto", "stepwise"):
            raise ValueError(f"engine={engine!r} needs a BlockMDP, and {problem} is a vector env")
        return VectorSimulator(problem, seed, horizon)
    if isinstance(problem, BlockMDP):
        mdp: BlockMDP | None = problem
    elif isinstance(problem, gym.Env):
        mdp = mdp_of(problem)
    else:
        raise TypeError(
            f"a problem is a BlockMDP, a Gymnasium environment or an environment's id, got "
            f"{problem!r}"
        )
    if mdp is not None and horizon not in (None, mdp.horizon):
        raise ValueError(f"{mdp} has the horizon {mdp.horizon}; it cannot be given another")
    if mdp is None or engine == "stepwise":
        if engine in ("compiled", "interpreted"):
            raise ValueError(f"engine={engine!r} needs a BlockMDP, and {problem} hides none")
        env = BlockMDPEnv(problem) if isinstance(problem, BlockMDP) else problem
        return GymSimulator(env, seed, horizon)
    return BlockSimulator(mdp, seed, compiled=engine != "interpreted")
