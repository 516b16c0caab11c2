"""Fits in several processes, for agents that also run Python: their threads would take turns.

The processes are copies of this one, so they know all that it knows: classes of a notebook,
compiled functions, filters of warnings. They send back everything but the problems.

A copy has only the thread that made it. So it waits forever for a lock that another thread holds,
or for the threads of a library. No copy is made while another thread fits, and a copy that does
nothing for a while is not waited for: what it should do is done here.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from blockmdp.checks import catching_warnings, cores

__all__ = ["call_each"]

PATIENCE = 0.1  # seconds of calls here before others help: the first ones load compiled functions
SILENCE = 5.0  # seconds without computing after which a copy seems to be stuck
LONGEST = 10  # times the longest call here, but at least a minute, after which it does too
SLICE = 0.1  # seconds after which a thread that waits looks around
PR_SET_PDEATHSIG = 1


def call_each(
    call: Callable[[int], Any],
    numbers: Sequence[int],
    stay: Sequence[int],
    shared: Sequence[Any],
    keep: Callable[[int, Any], None],
) -> None:
    """Call a function with each of some numbers, here and in copies of this process.

    What fails in a copy is done again here, so errors are the same as without copies. Warnings of
    the copies are shown here at the end.

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
    keep : callable
        Gets each number and its result, as soon as it is there; from any thread.
    """
    jobs, must_stay = _Jobs(call, shared, keep), set(stay)
    jobs.here.extend(stay)
    jobs.anywhere.extend(i for i in numbers if i not in must_stay)
    copies: list[_Copy] = []
    until, longest = time.monotonic() + PATIENCE, 0.0
    may_help = sys.platform == "linux" and not multiprocessing.current_process().daemon
    try:
        while True:
            alive = [copy for copy in copies if copy.is_alive()]
            i = jobs.take()  # after that: a copy that has ended may have left something
            if i is None and not alive:
                return
            if i is None:
                limit = max(60.0, LONGEST * longest)
                stuck = (number for copy in alive if (number := copy.stuck_at(limit)) is not None)
                i = next(filter(jobs.is_open, stuck), None)
            if i is None:
                alive[0].join(SLICE)
                continue
            if may_help and time.monotonic() >= until and not _others_fit():
                may_help = False
                _make_copies(min(cores() - 1, len(jobs.anywhere)), jobs, copies)
            start = time.monotonic()
            jobs.end(i, call(i))
            longest = max(longest, time.monotonic() - start)
            for copy in alive:
                if copy.number == i:
                    copy.process.kill()
    finally:
        jobs.anywhere.clear()
        for copy in copies:
            copy.process.kill()
        for copy in copies:
            copy.join(1.0)
        for each in jobs.caught:
            warnings.showwarning(*each)  # the copy has the same filters


class _Jobs:
    """What is to be done, and what has been done."""

    def __init__(
        self, call: Callable[[int], Any], shared: Sequence[Any], keep: Callable[[int, Any], None]
    ) -> None:
        self.call, self.shared = call, shared
        self.here: deque[int] = deque()  # numbers for this process
        self.anywhere: deque[int] = deque()
        self.caught: list[Any] = []  # message, category, file and line of each warning
        self._keep, self._lock = keep, threading.Lock()
        self._done: set[int] = set()

    def take(self) -> int | None:
        """Return a number for this process, None if there is none left."""
        for each in (self.here, self.anywhere):
            with suppress(IndexError):  # others took the last one
                while (i := each.popleft()) in self._done:
                    pass
                return i
        return None

    def is_open(self, i: int) -> bool:
        """Whether there is no result yet."""
        return i not in self._done

    def end(self, i: int, result: Any, caught: Sequence[Any] = ()) -> None:
        """Keep a result and its warnings, unless somebody else was faster."""
        with self._lock:
            if i not in self._done:
                self._done.add(i)
                self.caught.extend(caught)
                self._keep(i, result)


def _others_fit() -> bool:
    """Whether another thread runs code of this package or of numba, and may hold their locks."""
    for thread, frame in sys._current_frames().items():
        each = None if thread == threading.get_ident() else frame
        while each is not None:
            if each.f_globals.get("__name__", "").partition(".")[0] in ("blockmdp", "numba"):
                return True
            each = each.f_back
    return False


def _make_copies(n: int, jobs: _Jobs, copies: list[_Copy]) -> None:
    """Add n copies of this process, or as many as the system allows, and let them begin."""
    with _uninterrupted():
        with suppress(OSError), catching_warnings(DeprecationWarning):  # Python warns of threads
            for _ in range(n):
                copies.append(_Copy(jobs, copies))
        for copy in copies.copy():  # when all have been made: threads should not be copied
            try:
                copy.start()
            except RuntimeError:  # the system allows no more threads
                copies.remove(copy)
                copy.end()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let Ctrl-C wait. Python handles it in its main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if is_main else None
    came: list[int] = []
    if before is not None:
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    for number in came[:1]:
        signal.raise_signal(number)


class _Copy(threading.Thread):
    """A copy of this process, and a thread that waits for its results."""

    def __init__(self, jobs: _Jobs, others: Sequence[_Copy]) -> None:
        super().__init__(daemon=True)
        self._jobs = jobs
        self.number: int | None = None  # what it does now
        self._since = self._moved = time.monotonic()
        self._computed = 0
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        ours = [self._pipe, *(each._pipe for each in others)]
        arguments = (theirs, ours, jobs, os.getpid())
        self.process = context.Process(target=_answer, args=arguments, daemon=True)
        with theirs:
            self.process.start()

    def run(self) -> None:
        jobs = self._jobs
        with suppress(IndexError, EOFError, OSError):  # nothing is left to do, or it has ended
            while True:
                self._since, self.number = time.monotonic(), jobs.anywhere.popleft()
                try:
                    self._pipe.send(self.number)
                    data = self._receive()
                except (EOFError, OSError):
                    jobs.here.append(self.number)
                    raise
                try:
                    result, caught = _Unpickler(data, jobs.shared).load()
                except Exception:  # it failed and sent None, or something that cannot be read
                    jobs.here.append(self.number)
                else:
                    jobs.end(self.number, result, caught)
        self.number = None
        self.end()

    def _receive(self) -> bytes:
        """Wait for an answer. A program that the process started may hold its end of the pipe."""
        while not self._pipe.poll(SLICE):
            if not self.process.is_alive():
                raise EOFError
        return self._pipe.recv_bytes()

    def stuck_at(self, limit: float) -> int | None:
        """Return what it does if it has computed nothing for a while, or takes longer than that."""
        now, computed = time.monotonic(), _cpu_time(self.process.pid)
        if computed != self._computed:
            self._computed, self._moved = computed, now
        is_stuck = now - self._moved >= SILENCE or now - self._since >= limit
        return self.number if is_stuck else None

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


def _cpu_time(pid: int | None) -> int:
    """Return for how long a process has computed, in ticks of Linux."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError):
        return 0


def _answer(pipe: Any, ours: Sequence[Any], jobs: _Jobs, parent: int) -> None:
    """Call a function with what comes from the pipe, and send back what it returns; in a copy.

    ours: ends of pipes that only the parent uses.
    """
    signal.signal(signal.SIGINT, lambda *_: None)  # unlike SIG_IGN, no program here inherits it
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for each in ours:
        each.close()
    while os.getppid() == parent:
        try:
            i, answer = pipe.recv(), None
        except EOFError:  # the parent does not need it
            return
        with suppress(Exception), warnings.catch_warnings(record=True) as caught:
            result = jobs.call(i)
            told = [(each.message, each.category, each.filename, each.lineno) for each in caught]
            answer = result, told
        try:
            data = _pickled(answer, jobs.shared)
        except Exception:
            return  # the next ones cannot be pickled either
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # it may be closed
                stream.flush()
        pipe.send_bytes(data)


def _pickled(each: Any, shared: Sequence[Any]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, shared).dump(each)
    return file.getvalue()


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
