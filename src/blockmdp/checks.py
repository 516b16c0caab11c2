"""Checks of arguments, and warnings that point at the caller's code."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["check_finite", "check_integer", "check_size", "is_terminal", "warn"]

COPIES = 6  # of a table of transitions: rewards, cumulative probabilities and what is temporary
_PACKAGE = str(Path(__file__).parent)


def check_finite(x: Any) -> None:
    """Check observations for numbers that are missing.

    Parameters
    ----------
    x : ndarray
        Observations.

    Raises
    ------
    ValueError
        If one is NaN or infinite.
    """
    if not np.isfinite(x).all():
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
    ValueError
        If the value is not an integer, or is smaller than `least`.
    """
    try:
        whole = int(value)
        good = whole == value and whole >= least and not isinstance(value, bool | np.bool_)
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    return whole


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


def warn(message: str) -> None:
    """Issue a `UserWarning` that points at the line of user code that called the package.

    Parameters
    ----------
    message : str
        Text of the warning.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
