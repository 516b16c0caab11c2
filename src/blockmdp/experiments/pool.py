"""Worker processes: the same on a laptop and on every machine of a cluster.

A worker is a separate Python process with one thread for linear algebra. It does one run at a time.
A fault affects one run only: if the worker is killed, the run is tried again; if it hangs or needs
too much memory, the run fails. Workers end with the process that started them.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Protocol

from blockmdp import rng
from blockmdp.experiments.errors import ExecutorError, one_line
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.runs import RESERVE, THREADS, environment, execute, prepare
from blockmdp.experiments.settings import Run

__all__ = ["Executor", "Pool", "work"]

MAX_TRIES = 3  # how often a run may lose its worker
MAX_KILLS = 6  # how often its worker may be killed, which is rarely the run's fault
KILLS = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP)  # exit status of a killed process
READY, STARTED = b"ready", b"started"  # what a worker sends before an outcome
START_TIMEOUT = 180.0  # seconds for a worker to start, and to import what a run names

# What a worker process executes. Imports take seconds; before them, it asks Linux to be killed
# when its driver ends, and checks that the driver has not ended already.
START = """
import contextlib, ctypes, os, signal
with contextlib.suppress(Exception):
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(os.environ["BLOCKMDP_DRIVER"]):
    os._exit(1)
from blockmdp.experiments.pool import work
work()
"""


class Executor(Protocol):
    """Does runs in any order. A context manager that leaves no process behind."""

    def map(
        self, runs: Iterable[Run], meanwhile: Callable[[], None]
    ) -> Iterator[tuple[Run, Outcome]]:
        """Do the runs and yield each with its outcome, as soon as it ends.

        Call `meanwhile` at least every second.
        """
        ...

    def state(self) -> str:
        """Describe the workers in a few words."""
        ...

    def __enter__(self) -> Executor: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Pool:
    """Worker processes on this machine.

    Parameters
    ----------
    jobs : int, default=1
        Number of processes.
    timeout : float or None, default=None
        Seconds after which a run fails. The time to start a process and to import modules does not
        count. None sets no limit.
    memory : float or None, default=None
        GiB that a process may allocate. A run that needs more fails. None sets no limit.
    folder : str or None, default=None
        Folder with the user's own modules.
    idle : float or None, default=None
        Seconds after which a process without work ends. None keeps it until the pool is closed.
    checkpoints : str or None, default=None
        Folder in which fits keep their state, to go on from there.
    """

    def __init__(
        self,
        jobs: int = 1,
        timeout: float | None = None,
        memory: float | None = None,
        folder: str | None = None,
        idle: float | None = None,
        checkpoints: str | None = None,
    ) -> None:
        self.timeout = timeout
        self._options = {
            "memory": memory,
            "folder": folder,
            "idle": idle,
            "checkpoints": checkpoints,
            "has_timeout": timeout is not None,
        }
        self._jobs = jobs
        self._workers: list[_Worker] = []

    def state(self) -> str:
        """Describe the workers in a few words."""
        return f"{len(self._workers)} process{'es' * (len(self._workers) != 1)}"

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_alive(self) -> bool:
        """Whether a process has not ended."""
        return any(worker.process.poll() is None for worker in self._workers)

    def close(self) -> None:
        """Kill all processes."""
        for worker in self._workers:
            worker.kill()  # kill all before waiting for the first
        while self._workers:
            self._workers.pop().reap()

    def map(
        self, runs: Iterable[Run], meanwhile: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Run, Outcome]]:
        """Do runs and yield each with its outcome, as soon as it ends.

        Parameters
        ----------
        runs : iterable of Run
            What to do.
        meanwhile : callable, optional
            Called at least every second. If it raises an exception, the runs end.

        Yields
        ------
        run : Run
            A run that has ended.
        outcome : Outcome
            Its result, or why it failed.

        Raises
        ------
        ExecutorError
            If processes cannot start.
        """
        waiting = _Waiting(runs)
        compiled: set[tuple[str, ...]] = set()
        tries: collections.Counter[str] = collections.Counter()
        kills: collections.Counter[str] = collections.Counter()
        while waiting or self._busy():
            while waiting and len(self._busy()) < self._jobs:
                kinds = {w.run.setting.kind for w in self._workers if w.run is not None}
                self._idle_worker().start(waiting.pop(kinds - compiled), self.timeout)
            busy = self._busy()
            patience = min(worker.deadline for worker in busy) - time.monotonic()
            wait([worker.pipe for worker in busy], max(min(patience, 1.0), 0))
            meanwhile()
            for worker in busy:
                run = worker.run
                assert run is not None
                outcome = worker.receive()
                if worker.ready:
                    tries["start"] = kills["start"] = 0
                if outcome is not None:
                    compiled.add(run.setting.kind)
                    if self._is_out_of_memory(outcome):
                        self._remove(worker)  # its memory would be missing for the next run
                        if worker.runs > 1:  # earlier runs may have taken the memory
                            waiting.first.append(run)
                            continue
                    yield run, outcome
                elif worker.dead:
                    self._remove(worker)
                    killed = worker.code in KILLS
                    counts = kills if killed else tries
                    counts[run.key if worker.ready else "start"] += 1
                    if tries["start"] == MAX_TRIES or kills["start"] == MAX_KILLS:
                        raise ExecutorError(f"a worker process cannot start: {worker.last_line}")
                    if counts[run.key] < (MAX_KILLS if killed else MAX_TRIES):
                        waiting.last.append(run)  # the next process may be killed as well
                        continue
                    died = f"the worker process died {counts[run.key]} times: {worker.how}"
                    yield run, _failure(f"{worker.output}\n{died}".strip())
                elif time.monotonic() >= worker.deadline:
                    self._remove(worker)
                    if not worker.ready:
                        raise ExecutorError(
                            f"a worker process did not start in {START_TIMEOUT:.0f} s"
                        )
                    if not worker.started:
                        yield run, _failure(f"imports took longer than {START_TIMEOUT:.0f} s")
                    else:
                        seconds = float(self.timeout or 0)
                        yield run, _failure(f"exceeded the timeout of {seconds:g} s", seconds)

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.run is not None]

    def _idle_worker(self) -> _Worker:
        """Return a live process without work, a new one if there is none."""
        for worker in [worker for worker in self._workers if worker.run is None]:
            if worker.process.poll() is None:
                return worker
            self._remove(worker)
        self._workers.append(_Worker(self._options))
        return self._workers[-1]

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.kill()
        worker.reap()

    def _is_out_of_memory(self, outcome: Outcome) -> bool:
        return bool(self._options["memory"]) and "MemoryError" in (outcome.error or "")


class _Waiting:
    """Runs that no process has, in their order.

    The first run of a kind compiles its loops, unless they are in the cache. Meanwhile other
    processes had better do runs of other kinds than compile the same.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._queues: dict[tuple[str, ...], collections.deque[tuple[int, Run]]] = {}
        for place, run in enumerate(runs):
            self._queues.setdefault(run.setting.kind, collections.deque()).append((place, run))
        self.first: collections.deque[Run] = collections.deque()  # to be taken before all others
        self.last: collections.deque[Run] = collections.deque()  # when there are no others

    def __bool__(self) -> bool:
        return bool(self.first or self._queues or self.last)

    def pop(self, compiling: set[tuple[str, ...]]) -> Run:
        """Take the first run whose kind is not being compiled, or the first if there is none."""
        if self.first or not self._queues:
            return (self.first or self.last).popleft()
        kinds = self._queues.keys() - compiling or self._queues.keys()
        kind = min(kinds, key=lambda kind: self._queues[kind][0][0])
        _, run = self._queues[kind].popleft()
        if not self._queues[kind]:
            del self._queues[kind]
        return run


def _failure(error: str, seconds: float = 0.0) -> Outcome:
    return Outcome(error=error, seconds=seconds, environment=environment())


class _Worker:
    """One process and its present run."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.pipe, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs.fileno()), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            process_group=0,  # Ctrl-C goes to the driver only
            env=os.environ | dict.fromkeys(THREADS, "1") | {"BLOCKMDP_DRIVER": str(os.getpid())},
        )
        theirs.close()
        self.run: Run | None = None
        self.ready = self.started = self.dead = False
        self.runs = 0
        self._timeout: float | None = None
        self._set_deadline(START_TIMEOUT)

    def start(self, run: Run, timeout: float | None) -> None:
        """Send a run to the process. Its timeout counts from the process's answer "started"."""
        self.run, self.started, self._timeout = run, False, timeout
        if self.ready:
            self._set_deadline(START_TIMEOUT)
        # a broken pipe shows that the process has ended, which `receive` will notice
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(json.dumps([run.setting.content, run.seed]).encode())

    def receive(self) -> Outcome | None:
        """Read what the process sent, and return the outcome of the run if it has ended."""
        try:
            message = self.pipe.recv_bytes() if self.pipe.poll() else None
        except (EOFError, OSError):
            self.dead = True
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)  # let it end by itself, to learn its exit status
            return None
        if message == READY:
            self.ready = True
            self._set_deadline(START_TIMEOUT)
        elif message == STARTED:
            self.started = True
            self._set_deadline(self._timeout)
        elif message is not None:
            self.run = None
            self.runs += 1
            try:
                return Outcome.from_json(message)
            except ValueError as error:
                return _failure(f"the worker process sent no outcome: {one_line(error)}")
        return None

    def _set_deadline(self, seconds: float | None) -> None:
        self.deadline = time.monotonic() + (1e9 if seconds is None else seconds)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for the process to end, and keep its exit status and its last output."""
        self.code = code = self.process.wait()
        self.how = f"exit status {code}" if code >= 0 else f"{signal.strsignal(-code)} ({-code})"
        self._output.seek(max(self._output.seek(0, os.SEEK_END) - 2000, 0))
        self.output = self._output.read().decode(errors="replace").strip()
        self.last_line = (self.output or self.how).splitlines()[-1]
        self._output.close()
        self.pipe.close()


# --- in the worker process ------------------------------------------------------------------------
def work() -> None:
    """Do the runs that arrive through the pipe, until it is closed."""
    pipe, options = Connection(int(sys.argv[1])), json.loads(sys.argv[2])
    _end_with_driver()
    faulthandler.enable()
    if options["folder"]:
        sys.path.insert(0, options["folder"])
    if options["memory"]:
        limit = int(options["memory"] * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        RESERVE.append(bytearray(2**25))
    if options["has_timeout"]:
        rng.root(0)  # the first compiled function loads all of numba, which must not count
    pipe.send_bytes(READY)
    while pipe.poll(options["idle"]):
        try:
            content, seed = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        config = json.loads(content)
        prepare(config)
        pipe.send_bytes(STARTED)
        pipe.send_bytes(execute(config, seed, options["checkpoints"]).to_json().encode())


def _end_with_driver() -> None:
    """End this process within two seconds of its driver, on systems other than Linux."""
    driver = int(os.environ["BLOCKMDP_DRIVER"])

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
