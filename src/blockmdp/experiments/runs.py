"""One run: make the problem and the agent, fit, keep what is worth keeping.

This is what a worker process does, here or on a cluster. What comes and goes is plain data.
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

from blockmdp.envs import mdp_of
from blockmdp.experiments import statistics
from blockmdp.experiments.catalogue import build, takes_seed
from blockmdp.mdp import BlockMDP

__all__ = ["Curve", "Outcome", "execute"]

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True, eq=False)
class Curve:
    """A run's course at some 200 points; all arrays (points,).

    Attributes
    ----------
    episodes : that the learner had had.
    trajectories : of all kinds that had been drawn by then.
    total : the sum of all returns so far.
    """

    episodes: NDArray[np.int64]
    trajectories: NDArray[np.int64]
    total: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        arrays = (self.episodes, self.trajectories, self.total)
        return zlib.compress(
            b"".join(a.astype(a.dtype.newbyteorder("<")).tobytes() for a in arrays)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Curve:
        rows = np.frombuffer(zlib.decompress(data), "<i8").reshape(3, -1)
        return cls(rows[0], rows[1], rows[2].view("<f8"))


@dataclass(frozen=True)
class Outcome:
    """What came of a run. Only `seconds` and `environment` may differ between two of the same run.

    Attributes
    ----------
    average : mean return over all episodes.
    final : mean return of the last episodes, as many as `solved.window`.
    solved_at : trajectories of all kinds until it was solved, or None.
    trajectories : drawn in all, and `ledger`: by kind.
    curve : a `Curve`, as bytes.
    error : why it failed, with the traceback; None if it did not.
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


def execute(config: dict[str, Any], seed: int) -> Outcome:
    """Do a run; `config` is the content of its setting. An exception becomes an outcome too."""
    start = time.perf_counter()
    try:
        outcome = _fit(config, seed)
    except Exception:
        outcome = {"error": traceback.format_exc(limit=-12)}
    seconds = time.perf_counter() - start
    return Outcome(**outcome, seconds=seconds, environment=environment())


def _fit(config: dict[str, Any], seed: int) -> dict[str, Any]:
    own = {"seed": seed} if takes_seed(config["problem"]) else {}
    problem = build("problem", config["problem"], **own)
    agent = build("agent", config["agent"])
    agent.fit(problem, config["episodes"], seed=seed)
    returns = np.asarray(agent.returns_, np.float64)
    if not (returns.ndim == 1 and returns.size and np.isfinite(returns).all()):
        raise ValueError("the agent's returns_ must be a list of finite numbers, one an episode")
    drawn = getattr(agent, "trajectories_", None)
    drawn = np.arange(1, len(returns) + 1) if drawn is None else np.asarray(drawn, np.int64)
    at = statistics.thin(len(returns))
    curve = Curve(at, drawn[at - 1], np.cumsum(returns)[at - 1])
    window = config["solved"]["window"]
    threshold = _threshold(config["solved"], problem)
    solved = None if threshold is None else statistics.solved_at(returns, threshold, window)
    ledger = {str(kind): int(n) for kind, n in getattr(agent, "ledger_", {}).items()}
    return {
        "average": float(returns.mean()),
        "final": float(returns[0 if window == "all" else -window :].mean()),
        "solved_at": None if solved is None else int(drawn[solved - 1]),
        "trajectories": sum(ledger.values()) or int(drawn[-1]),
        "ledger": ledger,
        "curve": curve.to_bytes(),
    }


def _threshold(solved: dict[str, Any], problem: Any) -> float | None:
    if solved["above"] is not None:
        return float(solved["above"])
    mdp = problem if isinstance(problem, BlockMDP) else mdp_of(problem)
    if mdp is None:
        return None  # nobody knows what the best would be
    best = mdp.optimal_value()
    return best - (1 - float(solved["share"])) * abs(best)


@functools.cache
def environment() -> dict[str, Any]:
    """What the result may depend on beside the run itself."""
    packages = ("blockmdp", "numpy", "numba", "scikit-learn", "scipy")
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "machine": platform.machine(),
        "host": platform.node(),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
    }
