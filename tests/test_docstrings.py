"""Every public name has a complete numpydoc docstring: parameters, returns and an example."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module

import pytest

import blockmdp

validate = pytest.importorskip("numpydoc.validate").validate

CHECKS = {
    *(f"GL0{i}" for i in (5, 6, 7, 8)),
    *(f"SS0{i}" for i in (1, 2, 3, 4, 6)),
    *(f"PR0{i}" for i in range(1, 10)),
    *(f"RT0{i}" for i in (1, 3, 4, 5)),
    *(f"SA0{i}" for i in (2, 3, 4)),
    "EX01",
}


NO_EXAMPLES = ("blockmdp.plots.", "blockmdp.rng.", "blockmdp.oracles.check_is_oracle")
EXEMPT = {("blockmdp.oracles.IncrementalOracle", "PR01")}  # a protocol is not called


def public():
    """Public classes and functions by their full name; those of modules in `__all__` too."""
    for name in blockmdp.__all__:
        thing = getattr(blockmdp, name)
        if inspect.ismodule(thing):
            for inner in thing.__all__:
                yield f"{thing.__name__}.{inner}"
        else:
            yield f"{thing.__module__}.{thing.__qualname__}"


def methods(full):
    """Methods and properties that a class defines; overridden ones inherit their docstring."""
    module, _, name = full.rpartition(".")
    cls = getattr(import_module(module), name)
    for key, value in vars(cls).items() if inspect.isclass(cls) else ():
        inherited = any(hasattr(base, key) for base in cls.__mro__[1:])
        documented = inspect.isfunction(value) or isinstance(
            value, property | classmethod | staticmethod
        )
        if documented and not key.startswith("_") and not inherited:
            yield f"{full}.{key}"


def test_public_docstrings_are_complete():
    wrong = []
    for full in dict.fromkeys(public()):
        for name in [full, *methods(full)]:
            for code, what in validate(name)["errors"]:
                needed = code != "EX01" or (name == full and not full.startswith(NO_EXAMPLES))
                if code in CHECKS and needed and (name, code) not in EXEMPT:
                    wrong.append(f"{name}: {code} {what}")
    assert not wrong, "\n".join(wrong)


def thing(name):
    """The class, function or method of a full name."""
    module, rest = name, []
    while True:
        try:
            found = import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for part in rest:
        found = getattr(found, part)
    return found


def test_documented_defaults_are_the_real_ones():
    wrong, checked = [], 0
    for full in dict.fromkeys(public()):
        for name in [full, *methods(full)]:
            found = thing(name)
            if isinstance(found, property):
                continue
            try:
                parameters = inspect.signature(found).parameters
            except (TypeError, ValueError):
                continue
            doc = inspect.getdoc(found) or ""
            for key, parameter in parameters.items():
                said = re.search(rf"^{key} : .*default=(.*)$", doc, re.MULTILINE)
                real = parameter.default
                if not said or not isinstance(real, bool | int | float | str | None):
                    continue
                try:
                    alike = ast.literal_eval(said[1].replace("^", "**")) == real
                except ValueError:
                    alike = real is None  # it says what None stands for
                checked += 1
                if not alike:
                    wrong.append(f"{name}: {key} is {real!r}, not {said[1]}")
    assert not wrong, "\n".join(wrong)
    assert checked > 200
