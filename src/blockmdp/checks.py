"""Refusals of bad arguments, in one voice."""

from __future__ import annotations

from typing import Any

__all__ = ["whole_number"]


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """The value as an integer, if it is a whole number and not too small; else a ValueError."""
    try:
        whole = int(value)
        good = whole == value and whole >= least
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise ValueError(f"{name} must be a whole number, {least} or more; got {value!r}")
    return whole
