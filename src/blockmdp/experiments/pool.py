"""Worker processes: the same on a laptop and on every machine of a cluster.

A worker is a Python process of its own, with one thread for linear algebra, that does one run at a
time. What happens to a worker happens to its run only: if it is killed the run is tried again, if
it hangs or eats too much memory the run fails. Workers end with the process that started them.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import json
import os
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

from blockmdp.experiments.runs import THREADS, Outcome, environment
from blockmdp.experiments.study import Run

__all__ = ["Executor", "ExecutorError", "Pool"]

TRIES = 3  # how often a run may lose its worker
PATIENCE = 180.0  # seconds for a worker to start

# How a worker begins. Imports take seconds; before, it asks Linux to end it with its driver.
START = """
import contextlib, ctypes, os, signal
with contextlib.suppress(Exception):
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(os.environ["BLOCKMDP_DRIVER"]):
    os._exit(1)  # it is gone already
from blockmdp.experiments.pool import work
work()
"""


class ExecutorError(RuntimeError):
    """No run can be done any more; what to do about it."""


class Executor(Protocol):
    """Does runs, in any order; a context manager that leaves nothing running behind."""

    def map(self, runs: Iterable[Run]) -> Iterator[tuple[Run, Outcome]]: ...

    def state(self) -> str:
        """Who is at work, in words."""
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
    jobs : how many.
    timeout : seconds after which a run fails; None: never.
    memory : GiB that a worker may allocate; a run that needs more fails.
    folder : where a user's own modules are.
    idle : seconds after which a worker without work ends; None: when the pool is closed.
    """

    def __init__(
        self,
        jobs: int = 1,
        timeout: float | None = None,
        memory: float | None = None,
        folder: str | None = None,
        idle: float | None = None,
    ) -> None:
        self.timeout = timeout
        self._options = {"memory": memory, "folder": folder, "idle": idle}
        self._jobs = jobs
        self._workers: list[_Worker] = []

    def state(self) -> str:
        return f"{len(self._workers)} processes"

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()  # all of them, and only then wait
        while self._workers:
            self._workers.pop().reap()

    def map(
        self, runs: Iterable[Run], abandoned: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[Run, Outcome]]:
        """Do runs; `abandoned` is asked every second whether nobody waits for them any more."""
        waiting = collections.deque(runs)
        tries: collections.Counter[str] = collections.Counter()
        while waiting or self._busy():
            while waiting and len(self._busy()) < self._jobs:
                self._idle().start(waiting.popleft(), self.timeout)
            busy = self._busy()
            patience = min(worker.deadline for worker in busy) - time.monotonic()
            wait([worker.pipe for worker in busy], max(min(patience, 1.0), 0))
            if abandoned():
                self.close()
                raise ExecutorError("nobody waits for this run any more")
            for worker in busy:
                run = worker.run
                assert run is not None
                outcome = worker.receive()
                if worker.ready:
                    tries["start"] = 0
                if outcome is not None:
                    if self._is_out_of_memory(outcome):
                        self._remove(worker)  # or the next run would suffer from what this one left
                        if worker.runs > 1:  # as this one may have suffered from others
                            waiting.appendleft(run)
                            continue
                    yield run, outcome
                elif worker.dead:
                    self._remove(worker)
                    tries[run.key if worker.ready else "start"] += 1
                    if tries["start"] == TRIES:
                        raise ExecutorError(f"a worker process cannot start: {worker.last_line}")
                    if tries[run.key] < TRIES:
                        waiting.appendleft(run)
                        continue
                    why = f"{worker.words}\nthe worker process died {TRIES} times: {worker.how}"
                    yield run, Outcome(error=why.strip(), environment=environment())
                elif time.monotonic() >= worker.deadline:
                    self._remove(worker)
                    if not worker.ready:
                        raise ExecutorError(f"a worker process did not start in {PATIENCE:.0f} s")
                    why = f"took longer than the time-out of {self.timeout:g} s"
                    spent = {"seconds": float(self.timeout or 0), "environment": environment()}
                    yield run, Outcome(error=why, **spent)  # type: ignore[arg-type]

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.run is not None]

    def _idle(self) -> _Worker:
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


class _Worker:
    """One process and what it is doing."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.pipe, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs.fileno()), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=[theirs.fileno()],
            process_group=0,  # Ctrl-C is for the driver
            env=os.environ | dict.fromkeys(THREADS, "1") | {"BLOCKMDP_DRIVER": str(os.getpid())},
        )
        theirs.close()
        self.run: Run | None = None
        self.ready = self.dead = False
        self.runs = 0
        self.deadline = time.monotonic() + PATIENCE
        self._timeout: float | None = None

    def start(self, run: Run, timeout: float | None) -> None:
        self.run, self._timeout = run, timeout
        if self.ready:
            self._set_deadline()
        # a broken pipe is seen as the end of the worker
        with contextlib.suppress(OSError):
            self.pipe.send((run.setting.content, run.seed))

    def receive(self) -> Outcome | None:
        """What came of the run, if it is over."""
        try:
            message = self.pipe.recv() if self.pipe.poll() else None
        except (EOFError, OSError):
            self.dead = True
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)  # let it end in its own way, to tell which
            return None
        if message == "ready":
            self.ready = True
            self._set_deadline()
        if not isinstance(message, Outcome):
            return None
        self.run = None
        self.runs += 1
        return message

    def _set_deadline(self) -> None:
        self.deadline = time.monotonic() + (1e9 if self._timeout is None else self._timeout)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for the end, and note how it came and what the process said last."""
        code = self.process.wait()
        self.how = f"exit status {code}" if code >= 0 else f"{signal.strsignal(-code)} ({-code})"
        self._output.seek(max(self._output.seek(0, os.SEEK_END) - 2000, 0))
        self.words = self._output.read().decode(errors="replace").strip()
        self.last_line = (self.words or self.how).splitlines()[-1]
        self._output.close()
        self.pipe.close()


# --- in the worker's process ----------------------------------------------------------------------
def work() -> None:
    pipe, options = Connection(int(sys.argv[1])), json.loads(sys.argv[2])
    _end_with_driver()
    faulthandler.enable()
    if options["folder"]:
        sys.path.insert(0, options["folder"])
    from blockmdp.experiments.runs import execute

    if options["memory"]:
        import resource

        limit = int(options["memory"] * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    pipe.send("ready")
    while pipe.poll(options.get("idle")):
        try:
            content, seed = pipe.recv()
        except EOFError:
            return
        pipe.send(execute(json.loads(content), seed))


def _end_with_driver() -> None:
    """Elsewhere than on Linux: within a second or two."""
    driver = int(os.environ["BLOCKMDP_DRIVER"])

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
