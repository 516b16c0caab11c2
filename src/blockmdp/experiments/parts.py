"""Tables of a study file that describe one part each: a problem, an agent, an oracle, a learner.

`complete` checks such a table and fills in all defaults; `build` makes the object.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Mapping
from typing import Any

from blockmdp.experiments.catalogue import (
    CATALOGUE,
    find,
    is_foreign,
    is_union,
    parameters,
    source_digest,
)
from blockmdp.experiments.errors import StudyError, short, suggest
from blockmdp.experiments.settings import SOURCE, Config

__all__ = ["SOURCE", "Config", "build", "complete", "foreign", "import_parts", "takes_seed"]


def complete(kind: str, table: Any, place: str, trust: bool = True) -> Config:
    """Check a table and fill in all defaults.

    Two tables with the same meaning give the same result. Checks that need the object itself are
    left to `build`.

    Parameters
    ----------
    kind : str
        A key of the catalogue: problem, agent, oracle or learner.
    table : mapping or str
        Table of the study file. A string stands for a table with only a name.
    place : str
        Where the table is in the study, for messages.
    trust : bool, default=True
        Whether to import the user's own parts. If not, their tables stay as they are.

    Returns
    -------
    dict
        Name and all parameters.

    Raises
    ------
    StudyError
        If a name is unknown, a parameter is unknown or missing, or a value has the wrong type.
    """
    if isinstance(table, str):
        table = {"name": table}
    if not isinstance(table, Mapping):
        raise StudyError(f"{place}: must be a table with a name, got {short(table)}")
    name = table.get("name")
    if not isinstance(name, str):
        known = ", ".join(CATALOGUE.get(kind, {})) or "an import path such as package.module:name"
        raise StudyError(f"{place}.name: must name the {kind}: {known}")
    config: Config = {"name": name}
    if not trust and _is_foreign(kind, table):
        return config | {key: value for key, value in table.items() if key != "name"}
    maker = find(kind, name, f"{place}.name")
    if name not in CATALOGUE.get(kind, {}) and (source := source_digest(name, maker)):
        config[SOURCE] = source  # a changed file makes a different setting
    known_parameters, anything = parameters(kind, name)
    if kind == "problem":
        known_parameters = {k: v for k, v in known_parameters.items() if k != "seed"} | (
            {"seed": known_parameters["seed"]}
            if "seed" in table and "seed" in known_parameters
            else {}
        )
    for key, value in table.items():
        if key == "name":
            continue
        if key not in known_parameters and not anything:
            hint = suggest(key, known_parameters)
            raise StudyError(f"{place}.{key}: {name} has no such parameter{hint}")
        annotation, _ = known_parameters.get(key, (Any, None))
        config[key] = _checked(key, value, annotation, f"{place}.{key}", trust)
    for key, (_, default) in known_parameters.items():
        if key in config:
            continue
        if default is inspect.Parameter.empty:
            raise StudyError(f"{place}.{key}: is missing, and {name} requires it")
        if _is_plain(default):
            config[key] = list(default) if isinstance(default, tuple) else default
    return config


def build(kind: str, config: Mapping[str, Any], **more: Any) -> Any:
    """Make the object that a complete table describes, with some more arguments."""
    arguments = {
        key: build(key, value) if _is_part(value) else value
        for key, value in config.items()
        if key not in ("name", SOURCE)
    }
    return find(kind, config["name"], kind)(**arguments, **more)


def import_parts(kind: str, config: Mapping[str, Any]) -> None:
    """Import everything that `build` will need. Errors are left to `build`."""
    with contextlib.suppress(Exception):
        find(kind, config["name"], kind)
    for key, value in config.items():
        if _is_part(value):
            import_parts(key, value)


def foreign(kind: str, config: Mapping[str, Any]) -> list[str]:
    """Return the names of the user's own parts in a table."""
    own = [config["name"]] if _is_foreign(kind, config) else []
    below = (foreign(key, value) for key, value in config.items() if _is_part(value))
    return own + [name for names in below for name in names]


def _is_foreign(kind: str, table: Mapping[str, Any]) -> bool:
    """Whether a table names code of the user: as the part, or as the environment of a problem."""
    names = [table["name"], *([table["env"]] if kind == "problem" and "env" in table else [])]
    return any(is_foreign(kind, name) for name in names if isinstance(name, str))


def takes_seed(config: Mapping[str, Any]) -> bool:
    """Whether a problem is drawn from the seed of each run."""
    return "seed" not in config and "seed" in parameters("problem", config["name"])[0]


def _is_part(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("name"), str)


def _checked(key: str, value: Any, hint: Any, place: str, trust: bool) -> Any:
    """Return the value in its standard form if it fits the annotation."""
    is_part = key in ("oracle", "learner")
    if value == "none" and _fits(None, hint) and (is_part or not _fits(value, hint)):
        return None  # TOML has no null
    if isinstance(value, Mapping) and ("name" in value or is_part):
        return complete(key, value, place, trust)
    if is_part and isinstance(value, str):
        return complete(key, value, place, trust)
    if not _fits(value, hint):
        raise StudyError(f"{place}: must be {_describe(hint)}, got {short(value)}")
    options = typing.get_args(hint) if is_union(hint) else (hint,)
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_integer and float in options and int not in options else value


def _fits(value: Any, hint: Any) -> bool:
    if is_union(hint):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return any(value == option for option in typing.get_args(hint))
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is str:
        return isinstance(value, str)
    if hint in (None, type(None)):
        return value is None
    # only a table can describe one of our own classes
    return not (inspect.isclass(hint) and hint.__module__.startswith("blockmdp"))


def _describe(hint: Any) -> str:
    if is_union(hint):
        options = [o for o in typing.get_args(hint) if o is not type(None)]
        return " or ".join([_describe(o) for o in options] + ['"none"'] * _fits(None, hint))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(option) for option in typing.get_args(hint))
    words = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
    if hint in words:
        return words[hint]
    name = str(getattr(hint, "__name__", hint)).lower()
    return f'a table such as {{ name = "..." }} that names a {name}'


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)
