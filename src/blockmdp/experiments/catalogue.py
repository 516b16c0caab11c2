"""What a study file can name: built-in parts, users' own parts and Gymnasium environments.

The signature of a part is its schema. The keys of a table are the parameters, and their values are
checked against the annotations. A user's own part therefore needs no other description.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym

from blockmdp.checks import did_you_mean
from blockmdp.emissions import Emission
from blockmdp.experiments.errors import StudyError, one_line, suggest
from blockmdp.learners import Learner
from blockmdp.mdp import BlockMDP

__all__ = [
    "CATALOGUE",
    "describe",
    "find",
    "is_foreign",
    "is_union",
    "parameters",
    "source_digest",
]

PACKAGE = Path(__file__).parents[1]

# The module of each name. It is imported when needed, because scikit-learn takes a second.
CATALOGUE: dict[str, dict[str, str]] = {
    kind: dict.fromkeys(names.split(), module)
    for kind, module, names in (
        (
            "problem",
            "blockmdp.envs",
            "lock_bernoulli lock_gaussian comblock diabolical_lock bidirectional_lock "
            "exogenous_lock tasid_lock lock_digits noisy_chain multi_maze noisy_lock deep_sea "
            "river_swim random_block_mdp from_gymnasium minigrid",
        ),
        ("agent", "blockmdp", "URL OnlineURL PCID Tabular"),
        (
            "oracle",
            "blockmdp.oracles",
            "AutoOracle pca_kmeans gmm pca_dbscan_svm images BernoulliMixture SphericalMixture "
            "GaussianMixture DirichletMixture ControlledMixture PoissonMixture CategoricalMixture "
            "IndependenceMixture SubspaceClustering AutoencoderSimHash ScreenOracle",
        ),
        (
            "learner",
            "blockmdp.learners",
            "OracleQ QLearning UCBVI PSRL DelayedQ E3 EULER OPSRL PSRLTheory RLSVI RMAX UBEV UCBQ "
            "UCBVITheory UCRL2",
        ),
    )
}


PACKAGES = ("blockmdp", "sklearn")  # whose parts a study may name without trust
ENVIRONMENTS = ("blockmdp.", "gymnasium.envs.")  # modules whose environments it may name

# What a part of each kind is, in words, and the annotation of a function that makes one.
KINDS = {
    "problem": ("a BlockMDP or a Gymnasium environment", "-> blockmdp.BlockMDP"),
    "agent": ("an agent with a method fit", "-> blockmdp.Agent"),
    "oracle": ("an estimator with a method fit", "-> sklearn.base.BaseEstimator"),
    "learner": ("a blockmdp.Learner", "-> blockmdp.Learner"),
    "emission": ("a blockmdp.Emission", "-> blockmdp.Emission"),
}


def is_foreign(kind: str, name: str) -> bool:
    """Whether a name stands for code of the user, which only runs if the user trusts it."""
    if name in CATALOGUE.get(kind, {}):
        return False
    if kind == "problem" and name in gym.registry:
        return not str(gym.registry[name].entry_point).startswith(ENVIRONMENTS)
    module, _ = _split_path(name)
    return bool(module) and module.partition(".")[0] not in PACKAGES


@functools.lru_cache(maxsize=4096)
def find(kind: str, name: str, place: str) -> Callable[..., Any]:
    """Import the class or function that a name stands for.

    Parameters
    ----------
    kind : str
        A key of the catalogue.
    name : str
        A name of the catalogue, an import path, or the id of a Gymnasium environment.
    place : str
        Where the name is in the study, for messages.

    Returns
    -------
    callable
        Makes the part from its parameters.

    Raises
    ------
    StudyError
        If there is no such part.
    """
    known = CATALOGUE.get(kind, {})
    if name in known:
        return getattr(importlib.import_module(known[name]), name)  # type: ignore[no-any-return]
    if kind == "problem" and re.search(r"-v\d+$", name):
        return _environment(name, place)
    module, attribute = _split_path(name)
    if not module or not attribute:
        raise StudyError(f"{place}: unknown {kind} {name!r}{suggest(name, known)}")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            if not hasattr(found, part):
                near = did_you_mean(part, dir(found))
                raise StudyError(f"{place}: cannot import {name!r}: it has no {part!r}{near}")
            found = getattr(found, part)
    except StudyError:
        raise
    except BaseException as error:  # a user's module may fail in any way
        if isinstance(error, KeyboardInterrupt):
            raise
        raise StudyError(
            f"{place}: cannot import {name!r}: {type(error).__name__}: {one_line(error)}"
        ) from None
    _check_type(kind, name, found, place)
    return found  # type: ignore[no-any-return]


def _check_type(kind: str, name: str, maker: Any, place: str) -> None:
    """Check that something makes parts of a kind, without calling it."""
    kinds = [kind] if kind in KINDS else list(KINDS)  # a part of a part, such as a classifier
    what = " or ".join(KINDS[each][0] for each in kinds)
    if not callable(maker):
        raise StudyError(f"{place}: {name!r} is not a class or function that makes {what}")
    made = _definition(maker)
    if not inspect.isclass(made):
        try:
            made = typing.get_type_hints(made).get("return")
        except Exception:  # an annotation that cannot be resolved
            made = None
        if made is None:
            raise StudyError(
                f"{place}: the function {name!r} does not say what it makes: annotate it, such as "
                f"{KINDS[kinds[0]][1]}"
            )
    options = typing.get_args(made) if is_union(made) else (made,)
    if not all(any(_is_a(each, option) for each in kinds) for option in options):
        raise StudyError(f"{place}: {name!r} does not make {what}")


def _is_a(kind: str, made: Any) -> bool:
    """Whether a class is one of problems, agents, oracles, learners or emissions."""
    if not inspect.isclass(made):
        return False
    if kind == "problem":
        return issubclass(made, BlockMDP) or callable(getattr(made, "step", None))
    if kind in ("agent", "oracle"):
        return callable(getattr(made, "fit", None)) or made.__name__ == "BaseEstimator"
    return issubclass(made, Learner if kind == "learner" else Emission)


def is_union(hint: Any) -> bool:
    """Whether an annotation allows several types."""
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _environment(name: str, place: str) -> Callable[..., Any]:
    module, _, environment = name.rpartition(":")
    try:
        if module:  # importing it registers the environment
            importlib.import_module(module)
        gym.spec(environment)
    except (Exception, SystemExit) as error:
        near = did_you_mean(name, gym.registry) or f": {one_line(error)}"
        raise StudyError(f"{place}: unknown Gymnasium environment {name!r}{near}") from None
    return functools.partial(gym.make, name)


def source_digest(name: str, maker: Callable[..., Any]) -> str | None:
    """Return a digest of the user's files in which a part is named and defined, None if built in.

    Files of installed packages are left out: their versions are recorded with each run.
    """
    contents = set()
    for thing in (sys.modules.get(_split_path(name)[0]), _definition(maker)):
        with contextlib.suppress(OSError, TypeError):
            path = Path(inspect.getsourcefile(thing) or "")  # type: ignore[arg-type]
            if "site-packages" not in path.parts and PACKAGE not in path.parents:
                contents.add(path.read_bytes())
    return hashlib.sha256(b"\0".join(sorted(contents))).hexdigest()[:16] if contents else None


def _split_path(name: str) -> tuple[str, str]:
    """Split module:name or module.name."""
    module, colon, attribute = name.partition(":")
    if not colon:
        module, _, attribute = name.rpartition(".")
    return module, attribute


def _definition(maker: Any) -> Any:
    """Return the class or function behind partials, wrappers and callable objects."""
    maker = inspect.unwrap(maker.func if isinstance(maker, functools.partial) else maker)
    return maker if inspect.isroutine(maker) or inspect.isclass(maker) else type(maker).__call__


@functools.lru_cache(maxsize=4096)
def parameters(kind: str, name: str) -> tuple[dict[str, tuple[Any, Any]], bool]:
    """Return the parameters of a part.

    Returns
    -------
    parameters : dict
        Annotation and default of each parameter that can be given by name.
    anything : bool
        Whether the part takes any other parameter too.
    """
    maker: Any = find(kind, name, kind)
    if _definition(maker) is gym.make:  # the options of an environment are unknown here
        return {}, True
    try:
        signature = inspect.signature(maker)
    except (TypeError, ValueError):
        return {}, True
    try:
        definition = _definition(maker)
        is_class = inspect.isclass(definition)
        hints = typing.get_type_hints(definition.__init__ if is_class else definition)
    except Exception:  # ignore annotations that cannot be resolved
        hints = {}
    named = {
        p.name: (hints.get(p.name, Any), p.default)
        for p in signature.parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    return named, any(p.kind == p.VAR_KEYWORD for p in signature.parameters.values())


def _in_toml(default: Any) -> str:
    return json.dumps("none" if default is None else default, default=str)


def describe(kinds: str | None = None) -> str:
    """Return a text that lists all built-in parts, or those of one kind, such as "learners": each
    with a summary and its parameters.
    """
    lines = []
    for kind, makers in CATALOGUE.items():
        if kinds not in (None, f"{kind}s"):
            continue
        lines.append(f"{kind}s")
        for name in makers:
            first = (inspect.getdoc(find(kind, name, kind)) or "").partition("\n\n")[0]
            known, _ = parameters(kind, name)
            words = ", ".join(
                key if default is inspect.Parameter.empty else f"{key} = {_in_toml(default)}"
                for key, (_, default) in known.items()
                if not (kind == "problem" and key == "seed")
            )
            lines += [f"  {name}: {' '.join(first.split())}", f"      {words}"]
        lines.append("")
    lines += [
        "Name your own parts by import path, such as my_module:MyClass. Modules are looked up next",
        "to the study file and on Python's path. A problem may also be the id of a Gymnasium",
        "environment, such as FrozenLake-v1.",
    ]
    return "\n".join(lines)
