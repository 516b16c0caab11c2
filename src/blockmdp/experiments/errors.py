"""Errors of studies, stores and workers, and helpers to write one-line messages."""

from __future__ import annotations

from collections.abc import Iterable

from blockmdp.checks import did_you_mean

__all__ = [
    "ExecutorError",
    "Interrupted",
    "StoreError",
    "StudyError",
    "one_line",
    "printable",
    "short",
    "suggest",
]


class StudyError(ValueError):
    """A study is invalid. The message names the place, the mistake and how to fix it."""


class StoreError(RuntimeError):
    """A store cannot be read or written. The message gives the reason and what to do."""


class ExecutorError(RuntimeError):
    """No worker can do any more runs. The message gives the reason and what to do."""


class Interrupted(KeyboardInterrupt):
    """The user stopped a study with Ctrl-C or SIGTERM. Finished runs are kept.

    Parameters
    ----------
    signum : int
        Number of the signal. The exit status of the command is 128 more.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def suggest(word: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the nearest known word, or all of them."""
    known = sorted(known)
    there = ", ".join(known)
    return did_you_mean(word, known) or (f" (known: {one_line(there)})" if known else "")


def one_line(error: object) -> str:
    """Return the message of an exception, or any text, on one line."""
    try:
        words = " ".join(str(error).split()) or type(error).__name__
    except Exception:  # a user's exception may fail to print itself
        words = type(error).__name__
    return words if len(words) <= 300 else words[:300] + " ..."


def printable(text: str) -> str:
    """Return a text without characters that control a terminal; they are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def short(value: object) -> str:
    """Return a value as an error message shows it."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print numbers of more than 4300 digits
        return "a huge number"
    return text if len(text) <= 60 else text[:57] + "..."
