"""One run: make the problem and the agent, fit the agent, summarise its returns.

This is what a worker process does, on this machine or on a cluster. It receives and returns plain
data.
"""

from __future__ import annotations

import functools
import os
import platform
import time
import traceback
import zlib
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp import __version__
from blockmdp.envs import mdp_of
from blockmdp.experiments import statistics
from blockmdp.experiments.parts import build, import_parts, takes_seed
from blockmdp.mdp import BlockMDP

__all__ = ["Curve", "Outcome", "environment", "execute", "optimal_value", "prepare"]

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True, eq=False)
class Curve:
    """The course of a run at about 200 points.

    Attributes
    ----------
    episodes : ndarray of shape (points,)
        Learning episodes so far.
    trajectories : ndarray of shape (points,)
        Trajectories of all kinds so far.
    total : ndarray of shape (points,)
        Sum of the returns of the learning episodes so far.
    """

    episodes: NDArray[np.int64]
    trajectories: NDArray[np.int64]
    total: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """Return the arrays as compressed bytes."""
        arrays = (self.episodes, self.trajectories, self.total)
        return zlib.compress(
            b"".join(a.astype(a.dtype.newbyteorder("<")).tobytes() for a in arrays)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Curve:
        """Return the curve that `to_bytes` wrote."""
        rows = np.frombuffer(zlib.decompress(data), "<i8").reshape(3, -1)
        return cls(rows[0], rows[1], rows[2].view("<f8"))


@dataclass(frozen=True)
class Outcome:
    """The result of a run. Repeating a run changes only `seconds` and `environment`.

    Attributes
    ----------
    error : str or None
        Why the run failed, with the traceback; None if it did not.
    average : float or None
        Mean return over all episodes.
    final : float or None
        Mean return over the last `solved.window` episodes; if runs are solved by value, that of the
        final policy.
    solved_at : int or None
        Trajectories of all kinds until the run was solved, by the measure of `solved`; None if it
        never was.
    trajectories : int
        Trajectories of all kinds that were drawn.
    ledger : dict
        Trajectories by kind.
    curve : bytes
        A `Curve`, as bytes.
    seconds : float
        Time that the run took.
    environment : dict
        Versions and machine.
    """

    error: str | None = None
    average: float | None = None
    final: float | None = None
    solved_at: int | None = None
    trajectories: int = 0
    ledger: dict[str, int] = field(default_factory=dict)
    curve: bytes = b""
    seconds: float = 0.0
    environment: dict[str, Any] = field(default_factory=dict)


def prepare(config: dict[str, Any]) -> None:
    """Import all modules that a run needs, so that importing does not count as its time.

    A module that cannot be imported makes `execute` fail, not this function.
    """
    for kind in ("problem", "agent"):
        import_parts(kind, config[kind])


def execute(config: dict[str, Any], seed: int) -> Outcome:
    """Do a run.

    Parameters
    ----------
    config : dict
        Content of a setting: problem, agent, episodes, solved.
    seed : int
        Seed of the run.

    Returns
    -------
    Outcome
        The result. An exception becomes the outcome's `error`.
    """
    start = time.perf_counter()
    try:
        outcome = _fit(config, seed)
    except Exception:
        outcome = {"error": traceback.format_exc(limit=-12)}
    seconds = time.perf_counter() - start
    return Outcome(**outcome, seconds=seconds, environment=environment())


def _fit(config: dict[str, Any], seed: int) -> dict[str, Any]:
    problem_seed = {"seed": seed} if takes_seed(config["problem"]) else {}
    problem = build("problem", config["problem"], **problem_seed)
    agent = build("agent", config["agent"])
    by_value = config["solved"].get("measure") == "value"
    agent.fit(problem, config["episodes"], seed=seed, **({"record": True} if by_value else {}))
    returns = np.asarray(agent.returns_, np.float64)
    if not (returns.ndim == 1 and returns.size and np.isfinite(returns).all()):
        raise ValueError("the agent's returns_ must be finite numbers, one for each episode")
    drawn = getattr(agent, "trajectories_", None)
    drawn = np.arange(1, len(returns) + 1) if drawn is None else np.asarray(drawn, np.int64)
    at = statistics.thin(len(returns))
    curve = Curve(at, drawn[at - 1], np.cumsum(returns)[at - 1])
    window = config["solved"]["window"]
    final = float(returns[0 if window == "all" else -window :].mean())
    if by_value:
        solved_at, final = agent.solved_from(config["solved"]["share"]), agent.value()
    else:
        threshold = _threshold(config["solved"], problem)
        solved = None if threshold is None else statistics.solved_at(returns, threshold, window)
        solved_at = None if solved is None else int(drawn[solved - 1])
    ledger = {str(kind): int(n) for kind, n in getattr(agent, "ledger_", {}).items()}
    return {
        "average": float(returns.mean()),
        "final": final,
        "solved_at": solved_at,
        "trajectories": sum(ledger.values()) or int(drawn[-1]),
        "ledger": ledger,
        "curve": curve.to_bytes(),
    }


def _threshold(solved: dict[str, Any], problem: Any) -> float | None:
    """Return the mean return from which a run counts as solved, None if it is unknown."""
    if solved["above"] is not None:
        return float(solved["above"])
    best = optimal_value(problem)
    return None if best is None else best - (1 - float(solved["share"])) * abs(best)


def optimal_value(problem: Any) -> float | None:
    """Return the optimal value of a problem, None if its model is unknown."""
    mdp = problem if isinstance(problem, BlockMDP) else mdp_of(problem)
    return None if mdp is None else mdp.optimal_value()


@functools.cache
def environment() -> dict[str, Any]:
    """Return versions and machine, on which results may depend."""
    packages = ("numpy", "numba", "scikit-learn", "scipy")
    return {
        "python": platform.python_version(),
        "blockmdp": __version__,
        **{name: version(name) for name in packages},
        "machine": platform.machine(),
        "host": platform.node(),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
    }
