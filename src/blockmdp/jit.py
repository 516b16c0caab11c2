"""The decorators under which every compiled function of the package stands.

`inlined` is for the scalar functions that loops are made of, `jit` for the loops. Both keep their
machine code in numba's cache where a directory can be written, and do without where none can (numba
itself would raise on import).

Numba judges a cached loop by the file it stands in, so a change to a function inlined from
*another* file would go unnoticed. Here the age of a cache entry is judged by the source of the
whole package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

__all__ = [
    "index",
    "inlined",
    "inlined_for_users",
    "interpreted",
    "is_compiled",
    "jit",
    "template",
]


def _package_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_STAMP = _package_digest()

keys_wrap_around = np.errstate(over="ignore")
"""Decorator for interpreted code: 64-bit keys overflow by design, and numpy would warn."""


def _compile(
    function: Callable[..., Any], *, cache: bool = True, **options: Any
) -> Callable[..., Any]:
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return keys_wrap_around(function)
    compiled = numba.njit(error_model="numpy", **options)(function)
    if not cache:
        return compiled
    try:
        compiled.enable_caching()
        file = compiled._cache._cache_file
        file._source_stamp = _STAMP
        file._load_index = _or_empty(file._load_index)
    except (
        AttributeError,
        RuntimeError,
    ):  # JIT disabled, another numba, or no directory to write in
        pass
    return compiled


def _or_empty(load: Callable[[], dict[Any, Any]]) -> Callable[[], dict[Any, Any]]:
    """Take an index that cannot be read, such as one of another version, for an empty one."""

    def load_index() -> dict[Any, Any]:
        try:
            return load()
        except Exception:
            return {}

    return load_index


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop."""
    return _compile(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a scalar function, to be copied into each loop that calls it.

    The copying is LLVM's (`forceinline`), not numba's own (`inline="always"`). References to arrays
    are not counted (`_nrt=False`), which such a function, that makes and keeps no array, can do
    without: each count is an atomic instruction in the middle of the loop. Together 2x to 3x.
    """
    return _compile(function, forceinline=True, _nrt=False)


def template(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop that takes functions as arguments, to be copied whole into a loop that names
    them.

    The copying is numba's, since a loop that hands functions on as values cannot be kept in the
    cache.
    """
    return _compile(function, cache=False, inline="always")


def inlined_for_users(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `inlined`, for functions that are given a user's tables.

    Not cached: an index that names a type of the user's own cannot be read where that type's module
    is not to be found.
    """
    return _compile(function, cache=False, forceinline=True)


@inlined
def _unsigned(i):
    return np.uint32(i)


# A number that is used as an index and is never negative. As an unsigned one it needs no check for
# counting from the end, which is a quarter of the loop's time; numba computes with it as with any
# other integer, numpy would not, so interpreted code is given a plain integer.
index: Callable[[int], int]
index = int if numba.config.DISABLE_JIT else _unsigned  # type: ignore[attr-defined]


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether a function is numba's, so that a compiled loop can call it."""
    return hasattr(function, "py_func")


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain Python function under a compiled one."""
    return keys_wrap_around(function.py_func) if is_compiled(function) else function
