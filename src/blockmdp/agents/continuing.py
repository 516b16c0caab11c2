"""Fits that go on: longer than planned, or after an interruption."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import os
import re
import time
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from blockmdp import __version__
from blockmdp.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from blockmdp.checks import warn
from blockmdp.simulators import LearnerRun, Simulator

__all__ = ["fit_from", "keep_last", "lengthen", "resized"]

EVERY = 10.0  # seconds between two checkpoints
SHARE = 0.05  # of the time, at most, goes into writing them


def lengthen(run: LearnerRun, simulator: Simulator, episodes: int) -> None:
    """Make a run longer; raise ValueError if the learner would have begun it differently.

    Parameters
    ----------
    run : LearnerRun
        Run whose `returns` get longer.
    simulator : Simulator
        Where it runs.
    episodes : int
        Number of episodes in all.
    """
    if depends_on_length(run, simulator, episodes):
        raise ValueError(
            f"{type(run.learner).__name__} depends on the number of episodes, so a fit of "
            f"{len(run.returns)} cannot become one of {episodes}: fit with episodes={episodes} at "
            "once, and with checkpoint=FILE to be able to interrupt it"
        )
    run.returns = resized(run.returns, episodes)


def resized(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return an array with n rows: the first ones, or all of them followed by zeros."""
    more = np.zeros((max(n - len(array), 0), *array.shape[1:]), array.dtype)
    return np.concatenate([array[:n], more])


def depends_on_length(run: LearnerRun, simulator: Simulator, episodes: int) -> bool:
    """Whether the tables of a learner would be others for another number of episodes."""
    one, other = (
        run.learner.tables(simulator.horizon, 1, simulator.n_actions, n)
        for n in (len(run.returns), episodes)
    )
    return not _are_equal(one, other)


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_are_equal, one, other))
    one, other = np.asarray(one), np.asarray(other)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")


def keep_last(simulator: Simulator, state: Any) -> None:
    """Keep the policy with which a shorter fit ended, if a longer one would have kept it."""
    last = simulator.snapshots[-1].k if simulator.snapshots else 0
    if state.run.k > last and simulator.is_due(state.run):
        simulator.keep(state.run, state.decoder)


def fit_from(
    path: Path,
    agent: Any,
    simulator: Simulator,
    episodes: int,
    record: bool | Literal["few"],
) -> None:
    """Fit an agent from a checkpoint on, if there is one that helps, and keep it up to date.

    The result does not depend on the checkpoint. One of a longer fit is left as it is.

    Parameters
    ----------
    path : Path
        The file.
    agent : Agent
        Agent to fit.
    simulator : Simulator
        Simulator before its first trajectory.
    episodes : int
        Number of episodes in all.
    record : bool or "few"
        What the fit records.
    """
    _check_usable(path, agent, simulator)
    about = {"record": record, **_identity(agent, simulator)}
    names = {name: getattr(agent, name, None) for name in ("oracle", "learner")}
    known = {"simulator": simulator} | {name: v for name, v in names.items() if v is not None}
    state = _read(path, agent, simulator, episodes, about, known) if path.exists() else None
    keeps_file = state is not None or not path.exists()
    if state is None:
        state = agent._begin(simulator, episodes, record is True)
    run: LearnerRun = state.run
    keep_last(simulator, state)
    written, cost, piece = time.perf_counter(), 0.0, 1
    while run.k < episodes:
        begun = time.perf_counter()
        agent._learn(simulator, state, min(run.k + piece, episodes))
        now = time.perf_counter()
        piece *= 2 if now - begun < 1 else 1
        if keeps_file and (run.k == episodes or now - written > max(EVERY, cost / SHARE)):
            keeps_file = _write(path, about | {"episodes": run.k}, simulator, state, known)
            written = time.perf_counter()
            cost = written - now
    agent._end(simulator, state)
    agent._so_far = (simulator, state, simulator.world())


def _check_usable(path: Path, agent: Any, simulator: Simulator) -> None:
    """Raise CheckpointError, before the fit, if there can be no checkpoint."""
    why = agent._why_not_more()
    if path.is_dir():
        why = "it is a folder"
    elif not path.parent.is_dir():
        why = f"there is no folder {path.parent}"
    elif not os.access(path.parent, os.W_OK):
        why = f"{path.parent} cannot be written to"
    try:
        simulator.state()
    except ValueError as error:
        why = str(error)
    if why:
        raise CheckpointError(f"checkpoint={str(path)!r} cannot be used: {why}")


def _write(
    path: Path, about: dict[str, Any], simulator: Simulator, state: Any, known: dict[str, Any]
) -> bool:
    """Write a checkpoint. Warn and return False if that is impossible: the fit must not be lost."""
    try:
        write_checkpoint(path, about, (simulator.state(), state), known)
    except Exception as error:  # a full disk, or an oracle that skops cannot write
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        warn(f"the fit goes on without a checkpoint: {path} cannot be written: {reason}")
        return False
    return True


def _read(
    path: Path,
    agent: Any,
    simulator: Simulator,
    episodes: int,
    about: dict[str, Any],
    known: dict[str, Any],
) -> Any:
    """Return the state in a checkpoint, and let the simulator go on; None if it does not help."""
    was, reader = read_checkpoint(path)
    for name, value in about.items():
        if was.get(name) != value:
            differs = f"{name} is {was.get(name)}, not {value}"
            if " of the " in name:  # a digest
                differs = f"the {name} are not the same"
            raise CheckpointError(
                f"{path} is the checkpoint of another fit: {differs}. Delete it, or choose another "
                "file"
            )
    if was["episodes"] > episodes:
        return None
    learner = getattr(agent, "learner", None)
    types = [type(each) for name, each in known.items() if name != "simulator"]
    if learner is not None:
        types.append(type(learner.tables(1, 1, 1, 1)))
    of_simulator, state = reader.state(known, types)
    if depends_on_length(state.run, simulator, episodes):
        return None
    simulator.restore(of_simulator)
    state.run.returns = resized(state.run.returns, episodes)
    return state


def _identity(agent: Any, simulator: Simulator) -> dict[str, Any]:
    """Return what must be the same for a fit to go on."""
    mdp = simulator.mdp
    if mdp is None:
        env = simulator.env  # type: ignore[attr-defined]
        spec = getattr(env, "spec", None)
        problem, content = str(env), [getattr(spec, "kwargs", None), str(env.observation_space)]
    else:
        problem, content = f"{mdp.name} {mdp!r}", [mdp.initial, *mdp.dynamics[1:4], mdp.emission]
    parameters = {name: getattr(agent, name) for name in inspect.signature(type(agent)).parameters}
    return {
        "agent": _without_addresses(repr(agent)),
        "parameters of the agent": _digest(parameters),
        "problem": _without_addresses(problem),
        "details of the problem": _digest([content, simulator.horizon]),
        "seed": simulator.seed,
        "version": __version__,
    }


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _digest(value: Any) -> str:
    """Return a digest of a value, and of all that it consists of."""
    digest = hashlib.sha256()
    seen: dict[int, tuple[int, Any]] = {}  # objects stay alive: no id is used twice

    def add(value: Any) -> None:
        digest.update(f"{type(value).__module__}.{type(value).__qualname__}(".encode())
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            digest.update(f"{value.dtype.str}{value.shape}".encode() + value.tobytes())
        elif isinstance(value, str | bytes | int | float | type | None):
            digest.update(repr(value).encode())
        elif id(value) in seen:
            digest.update(f"number {seen[id(value)][0]}".encode())
        else:
            seen[id(value)] = len(seen), value
            for part in _contents(value):
                add(part)
        digest.update(b")")

    add(value)
    return digest.hexdigest()[:16]


def _contents(value: Any) -> Iterable[Any]:
    """Return what a value consists of."""
    if isinstance(value, dict):
        return itertools.chain.from_iterable(value.items())
    if isinstance(value, list | tuple):
        return value
    if hasattr(value, "get_params") and not isinstance(value, type):
        return [value.get_params(deep=False)]
    if hasattr(value, "__dict__") and not callable(value):
        cls = type(value)
        is_cached = {n for n in vars(value) if isinstance(getattr(cls, n, None), cached_property)}
        return [{name: each for name, each in vars(value).items() if name not in is_cached}]
    return [_without_addresses(repr(value))]
