"""Checks of a study's document: seeds, episodes, when a run is solved, where an agent runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from blockmdp.experiments.errors import StudyError, short, suggest
from blockmdp.experiments.settings import SOURCE, Config

__all__ = ["check_document", "check_when", "matches", "read_episodes", "read_seeds", "read_solved"]

REQUIRED = ("seeds", "episodes", "problem", "agent")
KEYS = (*REQUIRED, "solved")
SOLVED_DEFAULTS = {"share": 0.9, "above": None, "window": 1000}
MEASURES = ("returns", "value")  # what `solved` looks at; the first is the default
MAX_SEEDS, MAX_EPISODES, MAX_DEPTH = 10**6, 10**12, 20


def check_document(document: Any) -> None:
    """Check that a document holds plain values only, and that its keys are those of a study."""
    _check_plain(document, "")
    for key in document:
        if key not in KEYS:
            raise StudyError(f"{key}: unknown key{suggest(key, KEYS)}")
    for key in REQUIRED:
        if key not in document:
            raise StudyError(f"{key}: is missing, and every study requires it")


def _check_plain(value: Any, place: str, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise StudyError(f"{place:.60}: is nested too deeply")
    if isinstance(value, Mapping):
        for key, below in value.items():
            if not isinstance(key, str):
                raise StudyError(f"{place}: keys must be strings, got {short(key)}")
            _check_plain(below, f"{place}.{key}".strip("."), depth + 1)
    elif depth == 0:
        raise StudyError(f"a study must be a table, got {short(value)}")
    elif isinstance(value, list):
        for i, below in enumerate(value):
            _check_plain(below, f"{place}[{i}]", depth + 1)
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise StudyError(f"{place}: must be a number, string, list or table, "
                         f"got a {type(value).__name__}")  # fmt: skip
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise StudyError(f"{place}: {short(value)} does not fit into 64 bits")
    elif value != value:
        raise StudyError(f"{place}: must not be nan")


def read_seeds(document: Mapping[str, Any]) -> Sequence[int]:
    """Return the seeds of a study: those listed, or 0, 1, ... if the document gives a number."""
    seeds = document["seeds"]
    if not isinstance(seeds, list):
        n = _integer("seeds", seeds, 1)
        if n > MAX_SEEDS:
            raise StudyError(f"seeds: must be at most {MAX_SEEDS}, got {short(seeds)}")
        return range(n)
    if not seeds:
        raise StudyError("seeds: the list is empty")
    numbers = [_integer(f"seeds[{i}]", seed, 0) for i, seed in enumerate(seeds)]
    if len(set(numbers)) < len(numbers):
        raise StudyError("seeds: the list contains a seed twice")
    if max(numbers) >= 2**63:
        raise StudyError("seeds: must be below 2^63")
    return numbers


def read_episodes(episodes: Any, place: str) -> list[int]:
    """Return the numbers of episodes, one or several."""
    numbers = episodes if isinstance(episodes, list) else [episodes]
    if not numbers:
        raise StudyError(f"{place}: the list is empty")
    integers = [_integer(place, n, 1) for n in numbers]
    if max(integers) > MAX_EPISODES:
        raise StudyError(f"{place}: must be at most 10^12, got {short(max(numbers))}")
    return list(dict.fromkeys(integers))


def read_solved(table: Any, place: str) -> Config:
    """Return the table `solved` with defaults filled in.

    It has a key `measure` only if that is "value". Runs from before there was a choice keep their
    keys.
    """
    if not isinstance(table, Mapping):
        raise StudyError(f"{place}: must be a table, got {short(table)}")
    known = ("measure", *SOLVED_DEFAULTS)
    for key in table:
        if key not in known:
            raise StudyError(f"{place}.{key}: unknown key{suggest(key, known)}")
    solved: Config = dict(SOLVED_DEFAULTS) | dict(table)
    measure = solved.pop("measure", MEASURES[0])
    if measure not in MEASURES:
        raise StudyError(f'{place}.measure: must be "returns" or "value", got {short(measure)}')
    if measure == "value":
        for key in ("window", "above"):
            if key in table:
                raise StudyError(f'{place}.{key}: belongs to measure = "returns", not to measure = '
                                 f'"value", which has only share; remove {key} or measure'
                                 )  # fmt: skip
    if solved["window"] != "all":
        if isinstance(solved["window"], str):
            got = short(solved["window"])
            raise StudyError(f'{place}.window: must be an integer or "all", got {got}')
        solved["window"] = _integer(f"{place}.window", solved["window"], 1)
    for key in ("share", "above"):
        value = solved[key]
        if key == "above" and value in (None, "none"):
            solved[key] = None
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and math.isfinite(value)):
            raise StudyError(f"{place}.{key}: must be a number, got {short(value)}")
        solved[key] = float(value)
    if not 0 < solved["share"] <= 1:
        raise StudyError(f"{place}.share: must be in (0, 1], got {solved['share']}")
    return solved | ({"measure": measure} if measure != MEASURES[0] else {})


def check_when(when: Any, panels: Sequence[Config], place: str) -> None:
    """Check that a condition `when` names parameters of problems and matches at least one."""
    known = {key for panel in panels for key in panel if key != SOURCE}
    for table in when if isinstance(when, list) else [when]:
        if not isinstance(table, Mapping):
            raise StudyError(f"{place}: must be a table, such as {{ horizon = 5 }}, or a list of "
                             f"tables, got {short(table)}")  # fmt: skip
        for key in table:
            if key not in known:
                raise StudyError(f"{place}.{key}: no problem has this parameter"
                                 f"{suggest(key, known)}")  # fmt: skip
    if not any(matches(when, panel) for panel in panels):
        raise StudyError(f"{place}: matches no problem of this study")


def matches(when: Any, panel: Config) -> bool:
    """Whether a panel has the values that a condition asks for.

    A list of values matches any of them. A list of tables matches if one of the tables does.
    """
    if isinstance(when, list):
        return any(matches(table, panel) for table in when)
    return all(
        key in panel and panel[key] in (value if isinstance(value, list) else [value])
        for key, value in when.items()
    )


def _integer(place: str, value: Any, least: int) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or int(value) != value or value < least:
        raise StudyError(f"{place}: must be an integer >= {least}, got {short(value)}")
    return int(value)
