"""What a study file can name, and how a table of the file becomes an object.

The schema of a table is the signature of what it names: its keys are the parameters, its values are
checked against their annotations, and the object is made once to let it check the rest. So a
problem, an agent, an oracle or a learner needs no other description than its own.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium as gym

from blockmdp import envs, learners, oracles
from blockmdp.agents import Tabular
from blockmdp.pcid import PCID
from blockmdp.url import URL

__all__ = ["CATALOGUE", "StudyError", "build", "complete", "one_line", "suggest"]

Config = dict[str, Any]

CATALOGUE: dict[str, dict[str, Callable[..., Any]]] = {
    "problem": {f.__name__: f for f in (envs.lock_bernoulli, envs.lock_gaussian)},
    "agent": {c.__name__: c for c in (URL, PCID, Tabular)},
    "oracle": {f.__name__: f for f in (oracles.pca_kmeans, oracles.gmm, oracles.pca_dbscan_svm)},
    "learner": {c.__name__: c for c in (learners.OracleQ, learners.QLearning)},
}


class StudyError(ValueError):
    """What is wrong with a study, where, and how to mend it: one line."""


def complete(kind: str, table: Any, place: str) -> Config:
    """A table of a study file with all defaults filled in, checked but for what making it checks.

    Two tables that mean the same come out the same. `kind` is a key of the catalogue.
    """
    if isinstance(table, str):
        table = {"name": table}
    if not isinstance(table, Mapping):
        raise StudyError(f"{place}: must be a table with a name, got {_short(table)}")
    name = table.get("name")
    if not isinstance(name, str):
        known = ", ".join(CATALOGUE.get(kind, {})) or "an import path such as package.module:name"
        raise StudyError(f"{place}.name: say which {kind}: {known}")
    config: Config = {"name": name}
    maker = _find(kind, name, f"{place}.name")
    if name not in CATALOGUE.get(kind, {}) and (source := _source(maker)):
        config["source"] = source  # a changed file is another setting
    parameters, anything = _parameters(maker, place)
    if kind == "problem":
        parameters = {k: v for k, v in parameters.items() if k != "seed"} | (
            {"seed": parameters["seed"]} if "seed" in table and "seed" in parameters else {}
        )
    for key, value in table.items():
        if key == "name":
            continue
        if key not in parameters:
            if anything:
                config[key] = value
                continue
            hint = suggest(key, parameters)
            raise StudyError(f"{place}.{key}: {name} has no such parameter{hint}")
        config[key] = _checked(key, value, parameters[key][0], f"{place}.{key}")
    for key, (_, default) in parameters.items():
        if key in config:
            continue
        if default is inspect.Parameter.empty:
            raise StudyError(f"{place}.{key}: {name} needs it")
        if _is_plain(default):
            config[key] = list(default) if isinstance(default, tuple) else default
    return config


def build(kind: str, config: Mapping[str, Any], **more: Any) -> Any:
    """The object that a complete table describes."""
    arguments = {
        key: build(key, value) if isinstance(value, Mapping) and "name" in value else value
        for key, value in config.items()
        if key not in ("name", "source")
    }
    return _find(kind, config["name"], kind)(**arguments, **more)


def takes_seed(config: Mapping[str, Any]) -> bool:
    """Whether a problem is drawn anew from each run's seed."""
    maker = _find("problem", config["name"], "problem")
    return "seed" not in config and "seed" in _parameters(maker, "problem")[0]


def suggest(word: object, known: Iterable[str]) -> str:
    """; did you mean ..., or what there is."""
    known = sorted(known)
    near = difflib.get_close_matches(str(word), known, 1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f" (there are: {', '.join(known)})" if known else ""


def one_line(error: BaseException) -> str:
    """The message of an exception, in one line."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 300 else words[:300] + " ..."


@functools.lru_cache(maxsize=4096)
def _find(kind: str, name: str, place: str) -> Callable[..., Any]:
    known = CATALOGUE.get(kind, {})
    if name in known:
        return known[name]
    if kind == "problem" and re.search(r"-v\d+$", name):
        return _environment(name, place)
    module, colon, attribute = name.partition(":")
    if not colon:
        module, _, attribute = name.rpartition(".")
    if not module or not attribute:
        raise StudyError(f"{place}: there is no {kind} {name!r}{suggest(name, known)}")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # a user's module may fail in any way
        raise StudyError(
            f"{place}: cannot import {name!r}: {type(error).__name__}: {one_line(error)}"
        ) from None
    if not callable(found):
        raise StudyError(f"{place}: {name!r} is not a class or function that makes a {kind}")
    return found  # type: ignore[no-any-return]


def _environment(name: str, place: str) -> Callable[..., Any]:
    try:
        gym.spec(name)
    except Exception as error:
        near = suggest(name, gym.registry) if "-v" in name else ""
        near = near if near.startswith(";") else ""
        raise StudyError(
            f"{place}: no Gymnasium environment {name!r}{near} ({one_line(error)})"
        ) from None
    return functools.partial(gym.make, name)


def _source(maker: Callable[..., Any]) -> str | None:
    """A digest of the file that a user's own part comes from; none for installed packages."""
    try:
        path = inspect.getsourcefile(maker)
        if path is None or "site-packages" in path:
            return None
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
    except (OSError, TypeError):
        return None


@functools.lru_cache(maxsize=4096)
def _parameters(maker: Callable[..., Any], place: str) -> tuple[dict[str, tuple[Any, Any]], bool]:
    """Name -> (annotation, default) of what can be given by name; whether anything else can."""
    if isinstance(maker, functools.partial):  # an environment's options are its own affair
        return {}, True
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):
        return {}, True
    try:
        hints = typing.get_type_hints(maker.__init__ if inspect.isclass(maker) else maker)
    except Exception:  # annotations that cannot be resolved are no annotations
        hints = {}
    named = {
        p.name: (hints.get(p.name, Any), p.default)
        for p in signature.parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    return named, any(p.kind == p.VAR_KEYWORD for p in signature.parameters.values())


def _checked(key: str, value: Any, hint: Any, place: str) -> Any:
    """The value in its one form, if it fits the annotation."""
    if isinstance(value, Mapping) and "name" in value:
        return complete(key, value, place)
    if key in ("oracle", "learner") and isinstance(value, str):
        return complete(key, value, place)
    if not _fits(value, hint):
        raise StudyError(f"{place}: must be {_say(hint)}, got {_short(value)}")
    options = typing.get_args(hint) if _is_union(hint) else (hint,)
    if float in options and int not in options and isinstance(value, int):
        try:
            return value if isinstance(value, bool) else float(value)
        except OverflowError:
            raise StudyError(f"{place}: {_short(value)} is too large") from None
    return value


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _fits(value: Any, hint: Any) -> bool:
    if _is_union(hint):
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
    # one of our own classes only a table can describe
    return not (inspect.isclass(hint) and hint.__module__.startswith("blockmdp"))


def _say(hint: Any) -> str:
    if _is_union(hint):
        options = [o for o in typing.get_args(hint) if o is not type(None)]
        return " or ".join(_say(option) for option in options)
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(repr(option) for option in typing.get_args(hint))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    if hint in words:
        return words[hint]
    name = str(getattr(hint, "__name__", hint)).lower()
    return f'a table such as {{ name = "..." }} that names a {name}'


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def describe() -> str:
    """What there is, by kind, with a line each and its parameters."""
    lines = []
    for kind, makers in CATALOGUE.items():
        lines.append(f"{kind}s")
        for name, maker in makers.items():
            first = (inspect.getdoc(maker) or "").partition("\n\n")[0]
            parameters, _ = _parameters(maker, kind)
            words = ", ".join(
                f"{key}={default!r}"
                for key, (_, default) in parameters.items()
                if not (kind == "problem" and key == "seed")
            )
            lines += [f"  {name}: {' '.join(first.split())}", f"      {words}"]
        lines.append("")
    lines.append(
        "Others by import path: my_module:MyClass, looked for beside the study file and on"
    )
    lines.append("Python's path; a problem may also be a Gymnasium id, such as FrozenLake-v1.")
    return "\n".join(lines)
