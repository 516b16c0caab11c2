"""Every public name has a numpydoc docstring: parameters with types, what it returns, an example."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import blockmdp

validate = pytest.importorskip("numpydoc.validate").validate

CHECKS = set(
    "GL05 GL06 GL07 GL08 SS01 SS02 SS03 SS04 SS06 PR01 PR02 PR03 PR04 PR05 PR06 PR07 PR08 PR09 "
    "RT01 RT03 RT04 RT05 SA02 SA03 SA04 EX01".split()
)


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
