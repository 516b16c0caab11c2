"""Decorators for compiled functions.

Use `inlined` for the scalar functions that loops are made of, and `jit` for the loops. Both store
their machine code in numba's cache. If no cache directory can be written, they compile in memory
(numba itself would raise on import).

Numba checks whether a cached loop is up to date by looking at the file that contains the loop, so
it misses a change to a function that is inlined from *another* file. Here a cache entry is valid
only as long as no file of the package changes.

A loop that Python calls must return a number, a plain tuple of numbers, or one new array, and write
other arrays into its arguments. Numba runs Python code to return arrays and named tuples. If Ctrl-C
interrupts it there, numba only notices for one new array, and otherwise may crash the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

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
    """Return a hash of all source files of the package."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        source = path.read_bytes()
        if b"blockmdp.jit" in source or path.name == "jit.py":  # it defines compiled functions
            digest.update(source)
    return digest.hexdigest()


_STAMP = _package_digest()

# 64-bit keys overflow by design, and numpy would warn. Compiled code never warns.
_keys_wrap_around: Callable[[Callable[..., Any]], Callable[..., Any]]
_keys_wrap_around = np.errstate(over="ignore")


def _compile(
    function: Callable[..., Any], *, cache: bool = True, **options: Any
) -> Callable[..., Any]:
    """Compile a function; with numba disabled, return it uncompiled."""
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return _keys_wrap_around(function)
    options |= {"error_model": "numpy", "no_cfunc_wrapper": True}
    compiled: Any = numba.njit(**options)(function)
    _compile_once_for_all_constants(compiled)
    try:
        if cache:
            _cache(compiled)
    except (AttributeError, RuntimeError):  # no directory to write to, or another numba
        pass
    return cast(Callable[..., Any], compiled)


def _compile_once_for_all_constants(compiled: Any) -> None:
    """Give a constant the type of any other number; numba would compile a loop for each."""
    template_for, plain = compiled.get_call_template, cast(Any, numba.types.unliteral)

    def get_call_template(args: Any, kws: Any) -> Any:
        return template_for(tuple(map(plain, args)), {name: plain(kws[name]) for name in kws})

    compiled.get_call_template = get_call_template


def _cache(compiled: Any) -> None:
    """Store the machine code of a compiled function on disk."""
    compiled.enable_caching()
    file = compiled._cache._cache_file
    source = Path(compiled.py_func.__code__.co_filename)
    if Path(__file__).parent in source.parents:
        file._source_stamp = _STAMP
    else:  # a user's file, whose changes count too
        file._source_stamp = (_STAMP, file._source_stamp)
    file._load_index = _or_empty(file._load_index)


def _or_empty(load: Callable[[], dict[Any, Any]]) -> Callable[[], dict[Any, Any]]:
    """Treat a cache index that cannot be read as empty.

    An index pickles the types of arguments. Another version of the package may lack some of them.
    """

    def load_index() -> dict[Any, Any]:
        try:
            return load()
        except Exception:
            return {}

    return load_index


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop.

    It counts references, also if a function that does not is the first to call it.
    """
    return _compile(function, nogil=True, _nrt=True)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a scalar function that is copied into each loop that calls it.

    LLVM does the copying (`forceinline`), not numba (`inline="always"`). References to arrays are
    not counted (`_nrt=False`): each count would be an atomic instruction in the middle of the loop.
    Together this makes loops 2 to 3 times faster. So these functions must not create, keep or
    return arrays, or call a loop that returns one.
    """
    return _compile(function, forceinline=True, _nrt=False)


def template(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a loop that takes functions as arguments and is copied into the loop that names them.

    Numba does the copying, because a loop that passes functions on as values cannot be cached.
    """
    return _compile(function, cache=False, inline="always")


def inlined_for_users(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a scalar function that is called with tables of a user's learner.

    It is not cached: an index that names a type of the user's own module cannot be read by a
    process that does not find this module.
    """
    return _compile(function, cache=False, forceinline=True)


@inlined
def _unsigned(i: int) -> Any:
    return np.uint32(i)


# Converts a number that is used as an index and is never negative. An unsigned index needs no check
# for counting from the end of an array, and this check takes a quarter of the loop's time. Numba
# calculates with unsigned numbers as with any others, but numpy does not, so interpreted code keeps
# a plain integer.
index: Callable[[int], int]
index = int if numba.config.DISABLE_JIT else _unsigned  # type: ignore[attr-defined]


def is_compiled(function: Callable[..., Any]) -> bool:
    """Return whether numba compiled a function, so that compiled loops can call it."""
    return hasattr(function, "py_func")


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the plain Python function behind a compiled one."""
    plain: Callable[..., Any] | None = getattr(function, "py_func", None)
    return function if plain is None else _keys_wrap_around(plain)
