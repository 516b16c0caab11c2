"""Fits in several processes, for agents that also run Python: their threads would take turns.

The processes are copies of this one, so they know all that it knows: classes of a notebook,
compiled functions, filters of warnings. They send back everything but the problems.
"""

from __future__ import annotations

import ctypes
import io
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from blockmdp.checks import cores

__all__ = ["call_each"]

T = TypeVar("T")
PATIENCE = 0.1  # seconds of calls here before others help: the first ones load compiled functions
PR_SET_PDEATHSIG = 1


def call_each(
    call: Callable[[int], T], numbers: Sequence[int], stay: Sequence[int], shared: Sequence[Any]
) -> dict[int, T]:
    """Call a function with each of some numbers, here and in copies of this process.

    What fails in a copy is done again here, so errors are the same as without copies. Warnings of
    the copies are repeated here.

    Parameters
    ----------
    call : callable
        Function of a number. Its result is pickled if it comes from a copy.
    numbers : sequence of int
        The numbers.
    stay : sequence of int
        Those with which it must be called here.
    shared : sequence of object
        What is not copied if it is part of a result, but the same as here.

    Returns
    -------
    dict
        The result for each number.
    """
    results: dict[int, T] = {}
    own, todo = deque(stay), deque(i for i in numbers if i not in set(stay))
    may_help = sys.platform == "linux" and not multiprocessing.current_process().daemon
    copies: list[_Copy] = []
    caught: list[warnings.WarningMessage] = []
    until = time.monotonic() + PATIENCE

    def next_one() -> int | None:
        for each in (own, todo):
            try:
                return each.popleft()
            except IndexError:  # others took the last one
                pass
        return None

    try:
        while (i := next_one()) is not None or copies:
            if i is None:
                copies[-1].join()  # it may have failed, and left something to do
                copies.pop()
                continue
            if may_help and time.monotonic() >= until:
                with suppress(OSError):  # the system may allow fewer processes than cores
                    for _ in range(min(cores() - 1, len(todo))):
                        copies.append(_Copy(call, shared, own, todo, results, caught))
                may_help = False
                for copy in copies:  # when all have been made: threads should not be copied
                    copy.start()
            results[i] = call(i)
    finally:
        for copy in copies:
            copy.process.kill()
        for each in caught:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return results


class _Copy(threading.Thread):
    """A copy of this process, and a thread that waits for its results."""

    def __init__(
        self,
        call: Callable[[int], T],
        shared: Sequence[Any],
        own: deque[int],
        todo: deque[int],
        results: dict[int, T],
        caught: list[warnings.WarningMessage],
    ) -> None:
        super().__init__(daemon=True)
        self._shared, self._own, self._todo, self._results = shared, own, todo, results
        self._caught = caught
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        arguments = (other, call, shared, os.getpid())
        self.process = context.Process(target=_answer, args=arguments, daemon=True)
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            self.process.start()  # Python warns if there are threads; none of ours holds a lock
        other.close()

    def run(self) -> None:
        while True:
            try:
                i = self._todo.popleft()
            except IndexError:
                break
            try:
                self._pipe.send(i)
                data = self._pipe.recv_bytes()
                if data:
                    self._results[i], caught = _Unpickler(data, self._shared).load()
                    self._caught.extend(caught)
                else:
                    self._own.append(i)
            except Exception:  # it was killed
                self._own.append(i)
                break
        self.process.kill()
        self.process.join()
        self._pipe.close()


def _answer(pipe: Any, call: Callable[[int], Any], shared: Sequence[Any], parent: int) -> None:
    """Call a function with what comes from the pipe, and send back what it returns; in a copy."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while os.getppid() == parent:
        i = pipe.recv()
        try:
            with warnings.catch_warnings(record=True) as caught:
                result = call(i)
            file = io.BytesIO()
            _Pickler(file, shared).dump((result, caught))
            data = file.getvalue()
        except Exception:
            data = b""
        pipe.send_bytes(data)


class _Pickler(pickle.Pickler):
    """Pickles everything but what is shared."""

    def __init__(self, file: io.BytesIO, shared: Sequence[Any]) -> None:
        super().__init__(file)
        self._places = {id(each): place for place, each in enumerate(shared)}

    def persistent_id(self, each: Any) -> int | None:
        return self._places.get(id(each))


class _Unpickler(pickle.Unpickler):
    """Puts what is shared where it was."""

    def __init__(self, data: bytes, shared: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._shared = shared

    def persistent_load(self, place: int) -> Any:
        return self._shared[place]
