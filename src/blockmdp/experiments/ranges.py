"""Ranges of hyperparameters, such as { low = 0.001, high = 1.0, log = true }, and their points."""

from __future__ import annotations

import itertools
import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from blockmdp.experiments.catalogue import is_union, parameters
from blockmdp.experiments.errors import StudyError, short, suggest

__all__ = [
    "Range",
    "Suggester",
    "at_end",
    "check_ranges",
    "draw",
    "not_runnable",
    "points",
    "size",
    "space",
]

KEYS = ("low", "high", "log", "step")
CONDITIONS = ("label", "when")  # keys of an agent that are no parameters


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, both included.

    Parameters
    ----------
    low, high : int or float
        The ends.
    log : bool
        Whether the logarithm is uniform.
    step : int, float or None
        Distance of two values; None if all floats are allowed.
    """

    low: int | float
    high: int | float
    log: bool
    step: int | float | None

    @property
    def n_values(self) -> int:
        """The number of values of a range with steps."""
        assert self.step is not None
        return math.floor((self.high - self.low) / self.step + 1e-9) + 1

    def value(self, i: int) -> int | float:
        """Return the i-th value of a range with steps."""
        assert self.step is not None
        x = self.low + i * self.step
        return x if isinstance(x, int) else float(f"{x:.12g}")

    def rounded(self, x: float) -> float:
        """Return a number to about four digits, so that labels can be read."""
        scale = min(x, self.high - self.low) if self.log else self.high - self.low
        return min(max(round(x, 3 - math.floor(math.log10(scale))), self.low), self.high)


class Suggester(Protocol):
    """What suggests values: a trial of Optuna."""

    def suggest_categorical(self, name: str, choices: Any) -> Any: ...

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int: ...


# --- in a document --------------------------------------------------------------------------------
def check_ranges(document: Mapping[str, Any]) -> list[str]:
    """Check all ranges of a document, and return their places.

    Raises
    ------
    StudyError
        If a range is not valid, or is no parameter of an agent.
    """
    for key in document.keys() - {"agent"}:
        for place, _ in _ranges(document[key], key):
            raise StudyError(f"{place}: must not be a range: only parameters of agents are tuned; "
                             "write a value or a list of values")  # fmt: skip
    agents = document["agent"]
    found: list[tuple[str, Mapping[str, Any]]] = []
    for i, entry in enumerate(agents if isinstance(agents, list) else [agents]):
        if isinstance(entry, Mapping):
            for key, value in entry.items():
                if key not in CONDITIONS:
                    found += _ranges(value, f"agent[{i}].{key}")
    for place, table in found:
        _read(table, place)
    return [place for place, _ in found]


def at_end(document: Mapping[str, Any], end: str) -> dict[str, Any]:
    """Return a document with one end of each range, "low" or "high", in its place."""

    def replaced(value: Any) -> Any:
        if _is_range(value):
            return value[end]
        if isinstance(value, list):
            return [replaced(item) for item in value]
        if isinstance(value, Mapping):
            return {key: replaced(below) for key, below in value.items()}
        return value

    def parameters_of(entry: Any) -> Any:
        if not isinstance(entry, Mapping):
            return entry
        return {k: v if k in CONDITIONS else replaced(v) for k, v in entry.items()}

    agents = document["agent"]
    several = isinstance(agents, list)
    return dict(document) | {
        "agent": [parameters_of(a) for a in agents] if several else parameters_of(agents)
    }


def not_runnable(place: str, file: str) -> StudyError:
    """Return the error that a study with a range cannot be run."""
    return StudyError(f"{file}: {place}: is a range, which can be tuned, but not run: "
                      f"blockmdp tune {file} --trials 50")  # fmt: skip


def _is_range(value: Any) -> bool:
    return isinstance(value, Mapping) and "name" not in value and not value.keys().isdisjoint(
        ("low", "high")
    )  # fmt: skip


def _ranges(value: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all ranges in a value, with their places."""
    if _is_range(value):
        yield place, value
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _ranges(below, f"{place}.{key}")
    elif isinstance(value, list):
        for i, below in enumerate(value):
            yield from _ranges(below, f"{place}[{i}]")


def _read(table: Mapping[str, Any], place: str, floats: bool = False) -> Range:
    """Return a range; of integers if all its numbers are, unless `floats`."""
    for key in table:
        if key not in KEYS:
            raise StudyError(f"{place}.{key}: a range has no such key{suggest(key, KEYS)}")
    for key in ("low", "high"):
        if key not in table:
            raise StudyError(f"{place}.{key}: is missing, and every range requires it")
    numbers = {key: table[key] for key in ("low", "high", "step") if key in table}
    for key, x in numbers.items():
        if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x):
            raise StudyError(f"{place}.{key}: must be a number, got {short(x)}")
    low, high, step, log = table["low"], table["high"], table.get("step"), table.get("log", False)
    if not isinstance(log, bool):
        raise StudyError(f"{place}.log: must be true or false, got {short(log)}")
    if not low < high or not math.isfinite(high - low):
        raise StudyError(f"{place}: low must be less than high, got {low} and {high}")
    if log and low <= 0:
        raise StudyError(f"{place}.low: must be > 0 if log = true, got {low}")
    if log and step is not None:
        raise StudyError(f"{place}.step: cannot be combined with log = true; remove one of them")
    if step is not None and not 0 < step <= high - low:
        raise StudyError(f"{place}.step: must be > 0 and at most high - low, got {step}")
    if floats or any(isinstance(x, float) for x in numbers.values()):
        return Range(float(low), float(high), log, step)
    return Range(low, high, log, step or 1)


# --- the points of an agent -----------------------------------------------------------------------
def space(entry: Mapping[str, Any], place: str) -> Any:
    """Return the table of an agent, without label and condition, with its ranges as `Range`.

    Parameters
    ----------
    entry : mapping
        An agent of a study file.
    place : str
        Where it is in the study, for messages.

    Returns
    -------
    dict
        The same table. Ranges of parameters that are floats have floats.
    """
    table = {key: value for key, value in entry.items() if key not in CONDITIONS}
    return _space("agent", table, place, False)


def _space(kind: str, value: Any, place: str, floats: bool) -> Any:
    if _is_range(value):
        return _read(value, place, floats)
    if isinstance(value, list):
        return [_space(kind, item, f"{place}[{i}]", floats) for i, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    names = value.get("name")
    names = [name for name in (names if isinstance(names, list) else [names]) if name]
    return {
        key: _space(key, below, f"{place}.{key}", any(_is_float(kind, n, key) for n in names))
        for key, below in value.items()
    }


def _is_float(kind: str, name: str, key: str) -> bool:
    """Whether a parameter of a part is a float, so that 1 means 1.0."""
    hint, _ = parameters(kind, name)[0].get(key, (Any, None))
    options = typing.get_args(hint) if is_union(hint) else (hint,)
    return float in options and int not in options


def size(value: Any) -> float:
    """Return the number of points of a space; infinity if it has a range of floats."""
    if isinstance(value, Range):
        return math.inf if value.step is None else value.n_values
    if isinstance(value, list):
        return sum(map(size, value))
    if isinstance(value, dict):
        return math.prod(map(size, value.values()))
    return 1


def points(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each point of a finite space, and the same point with all ranges at their low end."""
    if isinstance(value, Range):
        yield from ((value.value(i), value.low) for i in range(value.n_values))
    elif isinstance(value, list):
        for item in value:
            yield from points(item)
    elif isinstance(value, dict):
        axes = [[(key, x, base) for x, base in points(below)] for key, below in value.items()]
        for chosen in itertools.product(*axes):
            yield {key: x for key, x, _ in chosen}, {key: base for key, _, base in chosen}
    else:
        yield value, value


def draw(value: Any, trial: Suggester, place: str = "agent") -> tuple[Any, Any]:
    """Return a point of a space that a trial suggests, and the same with ranges at their low end.

    Parameters
    ----------
    value : object
        A space, or a part of one.
    trial : Suggester
        What suggests values.
    place : str, default="agent"
        Name of the part, by which the trial knows it.

    Returns
    -------
    point : object
        The space with one value for each range and each list.
    base : object
        The same, with the low end of each range.
    """
    if isinstance(value, Range):
        return _suggested(value, trial, place), value.low
    if isinstance(value, list):
        several = len(value) > 1
        i = trial.suggest_categorical(place, list(range(len(value)))) if several else 0
        return draw(value[i], trial, f"{place}[{i}]")
    if isinstance(value, dict):
        drawn = {key: draw(below, trial, f"{place}.{key}") for key, below in value.items()}
        return {k: point for k, (point, _) in drawn.items()}, {k: b for k, (_, b) in drawn.items()}
    return value, value


def _suggested(of: Range, trial: Suggester, place: str) -> int | float:
    if of.step is None:
        return of.rounded(trial.suggest_float(place, of.low, of.high, log=of.log))
    if of.log:
        return trial.suggest_int(place, int(of.low), int(of.high), log=True)
    return of.value(trial.suggest_int(place, 0, of.n_values - 1))
