"""One run: make the problem and the agent, fit the agent, summarise its returns.

This is what a worker process does, on this machine or on a cluster. It receives and returns plain
data.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import platform
import re
import time
import traceback
import zlib
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from blockmdp import __version__
from blockmdp.envs import mdp_of
from blockmdp.experiments import statistics
from blockmdp.experiments.errors import short
from blockmdp.experiments.parts import build, import_parts, takes_seed
from blockmdp.history import FEW, next_checkpoint
from blockmdp.mdp import BlockMDP

if TYPE_CHECKING:
    from blockmdp.agents import Agent, DecodingAgent

__all__ = [
    "Curve",
    "Decoding",
    "Outcome",
    "Values",
    "environment",
    "execute",
    "optimal_value",
    "optimum",
    "prepare",
]

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


MOST_BYTES = 2**20  # of a curve, unpacked; about 200 points have 5,000
OBSERVATIONS = 300  # of each level, to measure a decoder with


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
        return _packed(self.episodes, self.trajectories, self.total)

    @classmethod
    def from_bytes(cls, data: bytes) -> Curve:
        """Return the curve that `to_bytes` wrote."""
        episodes, trajectories, total = _unpacked(data, 3)
        return cls(episodes, trajectories, total.view("<f8"))


@dataclass(frozen=True, eq=False)
class Values:
    """What the greedy policy was worth at about 20 points of a run.

    Attributes
    ----------
    trajectories : ndarray of shape (points,)
        Trajectories of all kinds so far.
    value : ndarray of shape (points,)
        Value of the policy, computed from the model.
    """

    trajectories: NDArray[np.int64]
    value: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """Return the arrays as compressed bytes."""
        return _packed(self.trajectories, self.value)

    @classmethod
    def from_bytes(cls, data: bytes) -> Values:
        """Return the values that `to_bytes` wrote."""
        trajectories, value = _unpacked(data, 2)
        return cls(trajectories, value.view("<f8"))


@dataclass(frozen=True, eq=False)
class Decoding:
    """How well the decoder of a run tells latent states apart.

    Attributes
    ----------
    labels : ndarray of shape (H + 1,)
        How many different labels the observations of each level got.
    accuracy : ndarray of shape (H + 1,)
        Accuracy at each level; see `blockmdp.measures.accuracy`.
    """

    labels: NDArray[np.int64]
    accuracy: NDArray[np.float64]

    def to_bytes(self) -> bytes:
        """Return the arrays as compressed bytes."""
        return _packed(self.labels, self.accuracy)

    @classmethod
    def from_bytes(cls, data: bytes) -> Decoding:
        """Return what `to_bytes` wrote."""
        labels, accuracy = _unpacked(data, 2)
        accuracy = accuracy.view("<f8")
        if not ((labels >= 1) & (accuracy >= 0) & (accuracy <= 1)).all():
            raise ValueError("these are no accuracies")
        return cls(labels, accuracy)


def _packed(*arrays: NDArray[Any]) -> bytes:
    return zlib.compress(b"".join(a.astype(a.dtype.newbyteorder("<")).tobytes() for a in arrays))


def _unpacked(data: bytes, rows: int) -> NDArray[np.int64]:
    """Return arrays that `_packed` wrote; ValueError for anything else, however large it is."""
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, MOST_BYTES)
    except zlib.error:
        plain = b""
    if not unpacking.eof or not plain or len(plain) % (8 * rows):
        raise ValueError("these are no packed arrays")
    return np.frombuffer(plain, "<i8").reshape(rows, -1)


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
    optimal : float or None
        Optimal value of the problem; None for a black box.
    value : float or None
        Value of the final policy, computed from the model; None for a black box, and for an agent
        that is no `blockmdp.Agent`.
    values : bytes
        `Values` of the policies before, as bytes; empty if there are none.
    accuracy : float or None
        Accuracy of the decoder at its worst level; None without a decoder, or for a black box.
    decoding : bytes
        `Decoding` of all levels, as bytes; empty if there is none.
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
    optimal: float | None = None
    value: float | None = None
    values: bytes = b""
    accuracy: float | None = None
    decoding: bytes = b""
    seconds: float = 0.0
    environment: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the outcome as JSON, which a worker sends to its driver."""
        plain = {key: value.hex() if isinstance(value, bytes) else value
                 for key, value in vars(self).items()}  # fmt: skip
        return json.dumps(plain)

    @classmethod
    def from_json(cls, text: str | bytes) -> Outcome:
        """Return the outcome that `to_json` wrote; ValueError if it is none."""
        try:
            values = json.loads(text)
            for key in ("curve", "values", "decoding"):
                values[key] = bytes.fromhex(values[key])
        except (ValueError, TypeError, KeyError):
            raise ValueError("it cannot be read as an outcome") from None
        if values.keys() != cls.__annotations__.keys():
            raise ValueError("an outcome has other fields")
        for key, types in _TYPES.items():
            if not isinstance(values[key], types) or isinstance(values[key], bool):
                raise ValueError(f"{key} of an outcome is {short(values[key])}")
        outcome = cls(**values)
        if outcome.error is None:
            Curve.from_bytes(outcome.curve)
        if outcome.values:
            Values.from_bytes(outcome.values)
        if outcome.decoding:
            Decoding.from_bytes(outcome.decoding)
        return outcome


_TYPES: dict[str, Any] = {
    "error": str | None,
    "average": float | int | None,
    "final": float | int | None,
    "solved_at": int | None,
    "trajectories": int,
    "ledger": dict,
    "optimal": float | int | None,
    "value": float | int | None,
    "accuracy": float | int | None,
    "seconds": float | int,
    "environment": dict,
}


def prepare(config: dict[str, Any]) -> None:
    """Import all modules that a run needs, so that importing does not count as its time.

    A module that cannot be imported makes `execute` fail, not this function.
    """
    import blockmdp.agents  # noqa: F401 (and with it scikit-learn)

    for kind in ("problem", "agent"):
        import_parts(kind, config[kind])


def execute(config: dict[str, Any], seed: int, checkpoints: str | None = None) -> Outcome:
    """Do a run.

    Parameters
    ----------
    config : dict
        Content of a setting: problem, agent, episodes, solved.
    seed : int
        Seed of the run.
    checkpoints : str or None, default=None
        Folder in which fits keep their state, to go on from there.

    Returns
    -------
    Outcome
        The result. An exception becomes the outcome's `error`.
    """
    start = time.perf_counter()
    try:
        outcome = _fit(config, seed, checkpoints)
    except BaseException:  # a user's part may raise anything
        outcome = {"error": traceback.format_exc(limit=-12)}
    seconds = time.perf_counter() - start
    return Outcome(**outcome, seconds=seconds, environment=environment())


def _fit(config: dict[str, Any], seed: int, checkpoints: str | None) -> dict[str, Any]:
    # here, because who looks at results need not wait for them
    from blockmdp.agents import Agent, DecodingAgent
    from blockmdp.checkpoints import CheckpointError

    problem = _problem(config["problem"], seed)
    agent = build("agent", config["agent"])
    optimal = optimal_value(problem)
    by_value = config["solved"].get("measure") == "value"
    record = True if by_value else "few"
    takes = inspect.signature(agent.fit).parameters
    recorded = optimal is not None and isinstance(agent, Agent) and "record" in takes
    options: dict[str, Any] = {"record": record} if recorded else {}
    file: dict[str, Any] = {}
    if checkpoints and isinstance(agent, Agent) and "checkpoint" in takes:
        file = {"checkpoint": _checkpoint(checkpoints, config, seed, options)}
    try:
        agent.fit(problem, config["episodes"], seed=seed, **options, **file)
    except CheckpointError:  # raised before the first episode
        agent.fit(problem, config["episodes"], seed=seed, **options)
    returns = np.asarray(agent.returns_, np.float64)
    learnt = getattr(agent, "ledger_", {}).get("learn", config["episodes"])
    if not (returns.shape == (learnt,) and learnt and np.isfinite(returns).all()):
        raise ValueError("the agent's returns_ must be finite numbers, one for each episode")
    drawn = getattr(agent, "trajectories_", None)
    drawn = np.arange(1, len(returns) + 1) if drawn is None else np.asarray(drawn, np.int64)
    at = statistics.thin(len(returns))
    curve = Curve(at, drawn[at - 1], np.cumsum(returns)[at - 1])
    window = config["solved"]["window"]
    final = float(returns[0 if window == "all" else -window :].mean())
    exact = _exact(agent) if recorded else {}
    if recorded and isinstance(agent, DecodingAgent):
        exact |= _decoding(agent)
    if by_value:
        solved_at, final = agent.solved_from(config["solved"]["share"]), exact["value"]
    else:
        threshold = _threshold(config["solved"], optimal)
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
        "optimal": optimal,
        **exact,
    }


def _checkpoint(folder: str, config: dict[str, Any], seed: int, options: dict[str, Any]) -> Path:
    """Return the file for the state of a run: the same for any number of episodes."""
    facts = json.dumps([config["problem"], config["agent"], seed, options], sort_keys=True)
    return Path(folder) / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.npz"


def _problem(config: dict[str, Any], seed: int) -> Any:
    return build("problem", config, **({"seed": seed} if takes_seed(config) else {}))


def _exact(agent: Agent) -> dict[str, Any]:
    """Measure the policies of a recorded fit."""
    from blockmdp import measures

    K = len(agent.returns_) // getattr(agent, "restarts", 1)  # each attempt has its checkpoints
    ks = [(s.k - 1) % K + 1 for s in agent.snapshots_[:-1]]
    few = [s for s, k in zip(agent.snapshots_, ks) if next_checkpoint(k - 1, FEW) == k]
    few.append(agent.snapshots_[-1])
    assert agent.mdp_ is not None
    values = measures.values(agent.mdp_, few, None, agent.seed_)
    at = np.array([snapshot.trajectories for snapshot in few])
    return {"value": agent.value(), "values": Values(at, values).to_bytes()}


def _decoding(agent: DecodingAgent) -> dict[str, Any]:
    """Measure the decoder of a fit, on fresh observations that nothing else depends on."""
    from blockmdp import measures

    mdp, decoder = agent.mdp_, agent.policy_.decoder
    if mdp is None or decoder is None:
        return {}
    C = measures.confusion(mdp, decoder, max(OBSERVATIONS // mdp.n_states, 10), agent.seed_)
    reachable = _reachable(mdp)
    accuracy = measures.accuracy(C, reachable)
    labels = (C * reachable[:, :, None]).any(axis=1).sum(axis=1)
    return {
        "accuracy": float(accuracy.min()),
        "decoding": Decoding(labels, accuracy).to_bytes(),
    }


def _reachable(mdp: BlockMDP) -> NDArray[np.bool_]:
    """Return which states can be visited at each level, (H + 1, S), in time linear in H."""
    levels = [mdp.initial > 0]
    for step in mdp.transitions:
        levels.append((step[levels[-1]] > 0).any(axis=(0, 1)))
    return np.array(levels)


def _threshold(solved: dict[str, Any], best: float | None) -> float | None:
    """Return the mean return from which a run counts as solved, None if it is unknown."""
    if solved["above"] is not None:
        return float(solved["above"])
    return None if best is None else best - (1 - float(solved["share"])) * abs(best)


def optimal_value(problem: Any) -> float | None:
    """Return the optimal value of a problem, None if its model is unknown."""
    mdp = problem if isinstance(problem, BlockMDP) else mdp_of(problem)
    return None if mdp is None else mdp.optimal_value()


def optimum(config: dict[str, Any], seed: int) -> float | None:
    """Return the optimal value of the problem of a run, None if it is unknown."""
    try:
        return optimal_value(_problem(config, seed))
    except Exception:  # a user's problem that cannot be made here
        return None


@functools.cache
def environment() -> dict[str, Any]:
    """Return versions and machine, on which results may depend."""
    packages = ("numpy", "numba", "scikit-learn", "scipy")
    return {
        "python": platform.python_version(),
        "blockmdp": __version__,
        **_commit(Path(__file__).parents[3]),
        **{name: version(name) for name in packages},
        "machine": platform.machine(),
        "host": platform.node(),
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
    }


def _commit(checkout: Path) -> dict[str, str]:
    """Return the commit of a checkout of blockmdp; nothing if it is installed."""
    git = checkout / ".git"
    try:
        head = (git / "HEAD").read_text().strip().removeprefix("ref: ")
        if (git / head).is_file():
            head = (git / head).read_text().strip()
        elif (git / "packed-refs").is_file():
            packed = (git / "packed-refs").read_text()
            found = re.search(rf"^(\w+) {re.escape(head)}$", packed, re.MULTILINE)
            head = found[1] if found else head
    except OSError:
        return {}
    return {"commit": head[:12]} if re.fullmatch("[0-9a-f]{40,64}", head) else {}
