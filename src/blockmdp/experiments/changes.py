"""Changes to a study: set a value (`--set`), or keep some of its runs (`--only`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

from blockmdp.experiments.errors import StudyError, suggest
from blockmdp.experiments.labels import format_value
from blockmdp.experiments.settings import Setting

__all__ = ["select", "set_value"]


def set_value(document: dict[str, Any], change: str) -> None:
    """Set one value of a document, in place.

    Parameters
    ----------
    document : dict
        Content of a study file.
    change : str
        A dotted name and a value in TOML, such as "episodes=5000" or
        "agent.URL.batch=[100, 200]". Agents are found by label or name.

    Raises
    ------
    StudyError
        If the change cannot be read, or the document has no such table.
    """
    path, equals, text = change.partition("=")
    if not equals or not path.strip():
        raise StudyError(f"--set {change}: must be key=value, such as episodes=5000")
    *parents, last = path.strip().split(".")
    tables: list[Any] = [document]
    for part in parents:
        below = [pair for table in tables for pair in _children(table)]
        tables = [found for name, found in below if name == part]
        if not tables:
            near = suggest(part, {name for name, _ in below if isinstance(name, str)})
            raise StudyError(f"--set {change}: the study has no {part!r}{near}")
    for table in [row for t in tables for row in (t if isinstance(t, list) else [t])]:
        if not isinstance(table, dict):
            raise StudyError(f"--set {change}: {'.'.join(parents)} is not a table")
        table[last] = _parse(text)


def select(
    settings: Sequence[Setting], seeds: Sequence[int], conditions: Iterable[str]
) -> tuple[list[Setting], list[int]]:
    """Return the settings and the seeds for which all conditions hold.

    Parameters
    ----------
    settings : sequence of Setting
        Settings to choose from.
    seeds : sequence of int
        Seeds to choose from.
    conditions : iterable of str
        A name and one or more values each, such as "agent=URL", "horizon=5,10" or "seed=3".

    Returns
    -------
    settings : list of Setting
        Those that match.
    seeds : list of int
        Those that match.

    Raises
    ------
    StudyError
        If a condition cannot be read, or no run matches.
    """
    settings, seeds = list(settings), list(seeds)
    for condition in conditions:
        key, equals, text = (word.strip() for word in condition.partition("="))
        if not equals:
            raise StudyError(f"--only {condition}: must be key=value, such as agent=URL")
        # the whole text too, because a panel's title has commas; parsed, since 1e-3 is 0.001
        wanted = {text, *(format_value(_parse(value)) for value in text.split(","))}
        if key == "seed":
            known = {str(seed) for seed in seeds}
            seeds = [seed for seed in seeds if str(seed) in wanted]
        else:
            names = [_names(setting) for setting in settings]
            if not any(key in has for has in names):
                near = suggest(key, {"seed"}.union(*names))
                raise StudyError(f"--only {condition}: no setting has {key!r}{near}")
            known = set[str]().union(*(has.get(key, ()) for has in names))
            pairs = zip(settings, names)
            settings = [setting for setting, has in pairs if has.get(key, set()) & wanted]
        if not settings or not seeds:
            raise StudyError(f"--only {condition}: no run matches{suggest(text, known)}")
    return settings, seeds


def _names(setting: Setting) -> dict[str, set[str]]:
    """Return the names that a condition can use for a setting, and the values that match."""
    names: dict[str, set[str]] = {
        "agent": {setting.label, setting.base_label, setting.agent["name"]},
        "problem": {setting.problem["name"], setting.panel},
    }
    for dotted, value in setting.flat.items():
        parts = dotted.split(".")
        for i in range(len(parts)):
            names.setdefault(".".join(parts[i:]), set()).add(format_value(value))
    return names


def _children(table: Any) -> list[tuple[Any, Any]]:
    """Return what is below a table, by key, or below a list of tables, by label and name."""
    if isinstance(table, dict):
        return list(table.items())
    rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
    return [(row.get(key), row) for row in rows for key in ("label", "name")]


def _parse(text: str) -> Any:
    """Return a value written in TOML; any other text is a string."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return document["value"] if len(document) == 1 else text.strip()
