"""Every public name has a complete numpydoc docstring: parameters, returns and an example."""

from __future__ import annotations

import inspect
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
