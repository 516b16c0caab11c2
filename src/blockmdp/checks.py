"""Argument checks and warnings that all modules share."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

__all__ = ["check_integer", "warn"]

_PACKAGE = str(Path(__file__).parent)


def check_integer(name: str, value: Any, least: int = 0) -> int:
    """Return the value as an int if it is an integer and large enough; raise ValueError if not."""
    try:
        whole = int(value)
        good = whole == value and whole >= least
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    return whole


def warn(message: str) -> None:
    """Warn at the line of the user's code that called into the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level - 1)
