"""Checks of arguments, and warnings that point at the caller's code."""

from __future__ import annotations

import difflib
import math
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

import numpy as np

__all__ = [
    "InvalidParameterError",
    "catching_warnings",
    "check_finite",
    "check_integer",
    "check_number",
    "check_size",
    "cores",
    "did_you_mean",
    "is_terminal",
    "keep_warnings",
    "warn",
]

COPIES = 6  # of a table of transitions: rewards, cumulative probabilities and what is temporary
_PACKAGE = str(Path(__file__).parent)
_kept: ContextVar[list[str] | None] = ContextVar("_kept", default=None)  # warnings, for later
Caught = list[warnings.WarningMessage]
_catching: ContextVar[tuple[Any, ...]] = ContextVar("_catching", default=())  # (kind, caught)


class InvalidParameterError(ValueError):
    """An argument is wrong, whatever the data. Scikit-learn has an error of this name, which is
    private; `fit_oracle` recognises both by the name.
    """


def check_finite(x: Any) -> None:
    """Check that observations are numbers, and none is missing.

    Parameters
    ----------
    x : ndarray
        Observations.

    Raises
    ------
    ValueError
        If they are not real numbers, or one is NaN or infinite.
    """
    if x.dtype.kind not in "buif":
        raise ValueError(f"observations must be arrays of numbers, got dtype {x.dtype}")
    if x.dtype.kind == "f" and np.count_nonzero(np.isfinite(x)) < x.size:  # faster than `all`
        raise ValueError("observations must be finite numbers: some are NaN or infinite")


def check_integer(name: str, value: Any, least: int = 0) -> int:
    """Return `value` as an int.

    Parameters
    ----------
    name : str
        Name of the argument, for the error message.
    value : object
        Value to check. Integers of any type pass, and floats that are whole numbers; True and
        False do not.
    least : int, default=0
        Smallest value allowed.

    Returns
    -------
    int
        The value.

    Raises
    ------
    InvalidParameterError
        If the value is not an integer, is smaller than `least`, or does not fit in 64 bits.
    """
    try:
        whole = int(value)
        good = whole == value and whole >= least and not isinstance(value, bool | np.bool_)
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise InvalidParameterError(f"{name} must be an integer >= {least}, got {value!r}")
    if whole >= 2**63:
        raise InvalidParameterError(f"{name} must be smaller than 2**63, got {value!r}")
    return whole


def check_number(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    closed: Literal["both", "left", "right", "neither"] = "both",
) -> float:
    """Return `value` as a float.

    Parameters
    ----------
    name : str
        Name of the argument, for the error message.
    value : object
        Value to check. Finite numbers of any type pass; True and False do not.
    low, high : float, default=-inf and inf
        Bounds of the value.
    closed : {"both", "left", "right", "neither"}, default="both"
        Which of the bounds are allowed.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InvalidParameterError
        If the value is not a finite number, or is out of bounds.
    """
    left, right = closed in ("both", "left"), closed in ("both", "right")
    is_number = isinstance(value, int | float | np.integer | np.floating)
    try:
        x = float(value) if is_number and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer
        x = math.nan
    x = x if math.isfinite(x) else math.nan
    if (low <= x if left else low < x) and (x <= high if right else x < high):
        return x
    if low == -math.inf:
        allowed = "a finite number"
    elif high == math.inf:
        allowed = f"a number {'>=' if left else '>'} {low:g}"
    else:
        allowed = f"a number in {'[' if left else '('}{low:g}, {high:g}{']' if right else ')'}"
    raise InvalidParameterError(f"{name} must be {allowed}, got {value!r}")


def check_size(H: int, S: int, A: int) -> None:
    """Check that the tables of a problem fit into memory, before any is made.

    Parameters
    ----------
    H, S, A : int
        Number of levels, states and actions.

    Raises
    ------
    ValueError
        If they do not fit.
    """
    needed = COPIES * 8 * H * S * A * S
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise ValueError(
            f"{H:,} levels of {S:,} states and {A:,} actions need {needed / 2**30:,.0f} GiB, but "
            f"this machine has {there / 2**30:,.0f} GiB: take fewer"
        )


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word.

    Parameters
    ----------
    word : object
        The word.
    known : iterable of str
        Words to choose from.

    Returns
    -------
    str
        "; did you mean ...?", or nothing if no known word is close.
    """
    near = difflib.get_close_matches(str(word), known, 1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal; no if it is closed, or is no stream at all.

    Parameters
    ----------
    stream : object
        Such as sys.stderr, which may be None or any object with a method write.

    Returns
    -------
    bool
        Whether it is.
    """
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


@contextmanager
def keep_warnings(messages: list[str]) -> Iterator[None]:
    """Let `warn` collect messages, as long as this context lasts in this thread.

    Parameters
    ----------
    messages : list of str
        Gets the messages.

    Yields
    ------
    None
        Nothing.
    """
    token = _kept.set(messages)
    try:
        yield
    finally:
        _kept.reset(token)


@contextmanager
def catching_warnings(of: type[Warning] = Warning) -> Iterator[Caught]:
    """Catch the warnings of this thread, whatever the filters say.

    `warnings.catch_warnings` would catch those of other threads, too.

    Parameters
    ----------
    of : type, default=Warning
        Kind of warnings to catch. Others are issued at the end.

    Yields
    ------
    list of WarningMessage
        Gets the warnings.
    """
    caught: Caught = []
    token = _catching.set((*_catching.get(), (of, caught)))
    _dispatcher.enter()
    try:
        yield caught
    finally:
        _catching.reset(token)
        _dispatcher.leave()


class _Dispatcher:
    """Gives each warning to the thread that it comes from, as long as some thread catches any."""

    def __init__(self) -> None:
        self._lock, self._threads = threading.Lock(), 0
        self._others: Caught = []

    def enter(self) -> None:
        with self._lock:
            self._threads += 1
            if self._threads == 1:
                self._before = warnings.catch_warnings()
                self._before.__enter__()
                warnings.simplefilter("always")
                warnings.showwarning = self._show

    def leave(self) -> None:
        others: Caught = []
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self._before.__exit__(None, None, None)
                others, self._others = self._others, []
        for each in others:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)

    def _show(self, message: Any, category: Any, *where: Any, **more: Any) -> None:
        fitting = (caught for of, caught in reversed(_catching.get()) if issubclass(category, of))
        caught = next(fitting, self._others)
        caught.append(warnings.WarningMessage(message, category, *where, **more))

    def hold(self) -> None:
        """Let other threads wait, while this process is copied."""
        self._lock.acquire()

    def go_on(self) -> None:
        """Go on after that."""
        self._lock.release()

    def forget(self) -> None:
        """Stop catching, in the copy: the threads that did are not there."""
        try:
            if self._threads:
                self._threads, self._others = 0, []
                self._before.__exit__(None, None, None)
            _catching.set(())
        finally:
            self._lock.release()


_dispatcher = _Dispatcher()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_dispatcher.hold,
        after_in_parent=_dispatcher.go_on,
        after_in_child=_dispatcher.forget,
    )


def warn(message: str) -> None:
    """Issue a `UserWarning` that points at the line of user code that called the package.

    Parameters
    ----------
    message : str
        Text of the warning.
    """
    if (kept := _kept.get()) is not None:
        kept.append(message)
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
