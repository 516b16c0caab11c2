"""What a study file can name, and how a table of the file becomes an object.

The schema of a table is the signature of what it names: its keys are the parameters, its values are
checked against their annotations, and the object is made once to let it check the rest. So a
problem, an agent, an oracle or a learner needs no other description than its own.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import importlib
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

__all__ = ["CATALOGUE", "SOURCE", "StudyError", "build", "complete", "one_line", "short", "suggest"]

Config = dict[str, Any]
SOURCE = "source.sha256"  # of a user's own file; no parameter can have this name
PACKAGE = Path(__file__).parents[1]

# Where each is to be found; imported when it is needed, since scikit-learn takes a second.
CATALOGUE: dict[str, dict[str, str]] = {
    kind: dict.fromkeys(names.split(), module)
    for kind, module, names in (
        (
            "problem",
            "blockmdp.envs",
            "lock_bernoulli lock_gaussian comblock diabolical_lock exogenous_lock lock_digits "
            "noisy_chain random_block_mdp",
        ),
        ("agent", "blockmdp", "URL PCID Tabular"),
        (
            "oracle",
            "blockmdp.oracles",
            "AutoOracle pca_kmeans gmm pca_dbscan_svm images BernoulliMixture SphericalMixture "
            "DirichletMixture",
        ),
        ("learner", "blockmdp.learners", "OracleQ QLearning UCBVI PSRL"),
    )
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
        raise StudyError(f"{place}: must be a table with a name, got {short(table)}")
    name = table.get("name")
    if not isinstance(name, str):
        known = ", ".join(CATALOGUE.get(kind, {})) or "an import path such as package.module:name"
        raise StudyError(f"{place}.name: say which {kind}: {known}")
    config: Config = {"name": name}
    maker = _find(kind, name, f"{place}.name")
    if name not in CATALOGUE.get(kind, {}) and (source := _source(name, maker)):
        config[SOURCE] = source  # a changed file is another setting
    parameters, anything = _parameters(kind, name)
    if kind == "problem":
        parameters = {k: v for k, v in parameters.items() if k != "seed"} | (
            {"seed": parameters["seed"]} if "seed" in table and "seed" in parameters else {}
        )
    for key, value in table.items():
        if key == "name":
            continue
        if key not in parameters and not anything:
            hint = suggest(key, parameters)
            raise StudyError(f"{place}.{key}: {name} has no such parameter{hint}")
        annotation, _ = parameters.get(key, (Any, None))
        config[key] = _checked(key, value, annotation, f"{place}.{key}")
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
        if key not in ("name", SOURCE)
    }
    return _find(kind, config["name"], kind)(**arguments, **more)


def takes_seed(config: Mapping[str, Any]) -> bool:
    """Whether a problem is drawn anew from each run's seed."""
    return "seed" not in config and "seed" in _parameters("problem", config["name"])[0]


def suggest(word: object, known: Iterable[str]) -> str:
    """; did you mean ..., or what there is."""
    known = sorted(known)
    there = ", ".join(known)
    return _near(word, known) or (f" (there are: {one_line(there)})" if known else "")


def _near(word: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(word), known, 1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def one_line(error: object) -> str:
    """The message of an exception, or any text, in one line."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 300 else words[:300] + " ..."


@functools.lru_cache(maxsize=4096)
def _find(kind: str, name: str, place: str) -> Callable[..., Any]:
    known = CATALOGUE.get(kind, {})
    if name in known:
        return getattr(importlib.import_module(known[name]), name)  # type: ignore[no-any-return]
    if kind == "problem" and re.search(r"-v\d+$", name):
        return _environment(name, place)
    module, attribute = _module_of(name)
    if not module or not attribute:
        raise StudyError(f"{place}: there is no {kind} {name!r}{suggest(name, known)}")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            if not hasattr(found, part):
                near = _near(part, dir(found))
                raise StudyError(f"{place}: cannot import {name!r}: no {part!r} in it{near}")
            found = getattr(found, part)
    except StudyError:
        raise
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise StudyError(
            f"{place}: cannot import {name!r}: {type(error).__name__}: {one_line(error)}"
        ) from None
    if not callable(found):
        raise StudyError(f"{place}: {name!r} is not a class or function that makes a {kind}")
    return found  # type: ignore[no-any-return]


def _environment(name: str, place: str) -> Callable[..., Any]:
    module, _, environment = name.rpartition(":")
    try:
        if module:  # that registers it
            importlib.import_module(module)
        gym.spec(environment)
    except (Exception, SystemExit) as error:
        near = _near(name, gym.registry) or f": {one_line(error)}"
        raise StudyError(f"{place}: there is no Gymnasium environment {name!r}{near}") from None
    return functools.partial(gym.make, name)


def _source(name: str, maker: Callable[..., Any]) -> str | None:
    """A digest of a user's own files: where a part is named and where it is defined."""
    contents = set()
    for thing in (sys.modules.get(_module_of(name)[0]), _origin(maker)):
        with contextlib.suppress(OSError, TypeError):
            path = Path(inspect.getsourcefile(thing) or "")  # type: ignore[arg-type]
            if "site-packages" not in path.parts and PACKAGE not in path.parents:
                contents.add(path.read_bytes())
    return hashlib.sha256(b"\0".join(sorted(contents))).hexdigest()[:16] if contents else None


def _module_of(name: str) -> tuple[str, str]:
    """The module and what is in it, of module:name or module.name."""
    module, colon, attribute = name.partition(":")
    if not colon:
        module, _, attribute = name.rpartition(".")
    return module, attribute


def _origin(maker: Any) -> Any:
    """The class or function that does the work."""
    maker = inspect.unwrap(maker.func if isinstance(maker, functools.partial) else maker)
    return maker if inspect.isroutine(maker) or inspect.isclass(maker) else type(maker).__call__


@functools.lru_cache(maxsize=4096)
def _parameters(kind: str, name: str) -> tuple[dict[str, tuple[Any, Any]], bool]:
    """Name -> (annotation, default) of what can be given by name; whether anything else can."""
    maker: Any = _find(kind, name, kind)
    if _origin(maker) is gym.make:  # an environment's options are its own affair
        return {}, True
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):
        return {}, True
    try:
        origin = _origin(maker)
        hints = typing.get_type_hints(origin.__init__ if inspect.isclass(origin) else origin)
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
    part = key in ("oracle", "learner")
    if value == "none" and _fits(None, hint) and (part or not _fits(value, hint)):
        return None  # TOML has no word for it
    if isinstance(value, Mapping) and ("name" in value or part):
        return complete(key, value, place)
    if part and isinstance(value, str):
        return complete(key, value, place)
    if not _fits(value, hint):
        raise StudyError(f"{place}: must be {_say(hint)}, got {short(value)}")
    options = typing.get_args(hint) if _is_union(hint) else (hint,)
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and float in options and int not in options else value


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
        return " or ".join([_say(o) for o in options] + ['"none"'] * _fits(None, hint))
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


def short(value: object) -> str:
    """A value as an error message shows it."""
    try:
        text = repr(value)
    except ValueError:  # Python writes out no number of more than 4300 digits
        return "a huge number"
    return text if len(text) <= 60 else text[:57] + "..."


def describe() -> str:
    """What there is, by kind, with a line each and its parameters."""
    lines = []
    for kind, makers in CATALOGUE.items():
        lines.append(f"{kind}s")
        for name in makers:
            first = (inspect.getdoc(_find(kind, name, kind)) or "").partition("\n\n")[0]
            parameters, _ = _parameters(kind, name)
            words = ", ".join(
                f"{key} = {json.dumps('none' if default is None else default, default=str)}"
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
