"""One run: make the problem and the agent, fit the agent, summarise its returns.

This is what a worker process does, on this machine or on a cluster. It receives and returns plain
data.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import os
import platform
import re
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blockmdp import __version__
from blockmdp.envs import mdp_of
from blockmdp.experiments import statistics
from blockmdp.experiments.outcome import Curve, Decoding, Outcome, Values
from blockmdp.experiments.parts import build, import_parts, takes_seed
from blockmdp.history import FEW, next_checkpoint
from blockmdp.mdp import BlockMDP

if TYPE_CHECKING:
    from blockmdp.agents import Agent, DecodingAgent

__all__ = [
    "environment",
    "execute",
    "execute_together",
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


OBSERVATIONS = 300  # of each level, to measure a decoder with
RESERVE: list[bytearray] = []  # memory to report that there is no more, if it is limited


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
    except BaseException as error:  # a user's part may raise anything
        if isinstance(error, MemoryError):
            RESERVE.clear()
        outcome = {"error": traceback.format_exc(limit=-12)}
    seconds = time.perf_counter() - start
    return Outcome(**outcome, seconds=seconds, environment=environment())


def execute_together(tasks: Sequence[tuple[dict[str, Any], int]]) -> list[Outcome]:
    """Do runs at once on a GPU. What cannot be done there is done on the CPU, one by one.

    Parameters
    ----------
    tasks : sequence of (dict, int)
        Content of a setting and seed of each run.

    Returns
    -------
    list of Outcome
        What `execute` would return, but for `seconds`: they are shared equally.
    """
    from blockmdp.agents import fit_many

    start = time.perf_counter()
    groups: dict[tuple[int, Any], list[int]] = {}
    made: dict[int, tuple[Any, Any, dict[str, Any]]] = {}
    for i, (config, seed) in enumerate(tasks):
        with contextlib.suppress(Exception):  # `execute` below reports it
            made[i] = problem, _, options = _parts(config, seed)
            if isinstance(problem, BlockMDP) and options:
                groups.setdefault((config["episodes"], options["record"]), []).append(i)
    found: dict[int, dict[str, Any]] = {}
    for (episodes, record), members in groups.items():
        problems: list[Any] = [made[i][0] for i in members]
        agents: list[Any] = [made[i][1] for i in members]
        seeds = [tasks[i][1] for i in members]
        with contextlib.suppress(Exception):
            fits = fit_many(agents, problems, episodes, seeds, engine="auto", record=record)
            for i, fit, problem in zip(members, fits, problems):
                found[i] = _summary(fit, tasks[i][0], problem.optimal_value(), recorded=True)
    seconds = (time.perf_counter() - start) / max(len(found), 1)
    return [
        Outcome(**found[i], seconds=seconds, environment=environment())
        if i in found
        else execute(*task)
        for i, task in enumerate(tasks)
    ]


def _parts(config: dict[str, Any], seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """Make the problem and the agent of a run, and return them with options of `fit`."""
    from blockmdp.agents import Agent  # here: who looks at results need not wait for scikit-learn

    problem = _problem(config["problem"], seed)
    agent = build("agent", config["agent"])
    record = True if config["solved"].get("measure") == "value" else "few"
    takes = inspect.signature(agent.fit).parameters
    known = optimal_value(problem) is not None
    recorded = known and isinstance(agent, Agent) and "record" in takes
    return problem, agent, {"record": record} if recorded else {}


def _fit(config: dict[str, Any], seed: int, checkpoints: str | None) -> dict[str, Any]:
    from blockmdp.agents import Agent
    from blockmdp.checkpoints import CheckpointError

    problem, agent, options = _parts(config, seed)
    file: dict[str, Any] = {}
    takes = inspect.signature(agent.fit).parameters
    if checkpoints and isinstance(agent, Agent) and "checkpoint" in takes:
        file = {"checkpoint": _checkpoint(checkpoints, config, seed, options)}
    try:
        agent.fit(problem, config["episodes"], seed=seed, **options, **file)
    except CheckpointError:  # raised before the first episode
        agent.fit(problem, config["episodes"], seed=seed, **options)
    return _summary(agent, config, optimal_value(problem), recorded=bool(options))


def _summary(
    agent: Any, config: dict[str, Any], optimal: float | None, *, recorded: bool
) -> dict[str, Any]:
    """Return the fields of the outcome of a fit."""
    from blockmdp.agents import DecodingAgent

    by_value = config["solved"].get("measure") == "value"
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
    reachable = mdp.reached()
    accuracy = measures.accuracy(C, reachable)
    labels = np.maximum((C * reachable[:, :, None]).any(axis=1).sum(axis=1), 1)
    return {
        "accuracy": float(accuracy.min()),
        "decoding": Decoding(labels, accuracy).to_bytes(),
    }


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
