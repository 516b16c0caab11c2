"""Worker processes: the same on a laptop and on every machine of a cluster.

A worker is a Python process of its own, with one thread for linear algebra, that does one run at a
time. What happens to a worker happens to its run only: if it is killed the run is tried again, if
it hangs or eats too much memory the run fails. Workers end with the process that started them.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from types import TracebackType
from typing import Any, Protocol

from blockmdp.experiments.runs import THREADS, Outcome, environment
from blockmdp.experiments.study import Run

__all__ = ["Executor", "ExecutorError", "Pool"]

TRIES = 3  # how often a run may lose its worker
PATIENCE = 60.0  # seconds for a worker to start


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
    """

    def __init__(
        self,
        jobs: int = 1,
        timeout: float | None = None,
        memory: float | None = None,
        folder: str | None = None,
    ) -> None:
        self.timeout = timeout
        self._options = {"memory": memory, "folder": folder}
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
            worker.kill()
        self._workers.clear()

    def map(self, runs: Iterable[Run]) -> Iterator[tuple[Run, Outcome]]:
        waiting = iter(runs)
        again: collections.deque[Run] = collections.deque()
        tries: collections.Counter[str] = collections.Counter()

        def following() -> Run | None:
            return again.popleft() if again else next(waiting, None)

        while True:
            idle = sum(worker.run is None for worker in self._workers)
            while len(self._workers) < self._jobs or idle:
                run = following()
                if run is None:
                    break
                free = next((w for w in self._workers if w.run is None), None)
                if free is None:
                    free = _Worker(self._options)
                    self._workers.append(free)
                free.start(run, self.timeout)
                idle = sum(worker.run is None for worker in self._workers)
            busy = [worker for worker in self._workers if worker.run is not None]
            if not busy:
                return
            patience = min(worker.deadline for worker in busy) - time.monotonic()
            ready = set(wait([w.pipe for w in busy], max(min(patience, 3600.0), 0)))
            for worker in busy:
                run = worker.run
                assert run is not None
                if worker.pipe in ready:
                    outcome = worker.receive()
                    if outcome is not None:
                        yield run, outcome
                    if not worker.dead:
                        continue
                    self._workers.remove(worker)
                    tries[run.key if worker.ready else "start"] += 1
                    if tries["start"] == TRIES:
                        raise ExecutorError(f"a worker process cannot start: {worker.last_words()}")
                    if tries[run.key] < TRIES:
                        again.append(run)
                        continue
                    why = f"the worker process died {TRIES} times: {worker.last_words()}"
                    yield run, Outcome(error=why, environment=environment())
                elif time.monotonic() >= worker.deadline:
                    self._workers.remove(worker)
                    worker.kill()
                    if not worker.ready:
                        raise ExecutorError(f"a worker process did not start in {PATIENCE:.0f} s")
                    why = f"took longer than the time-out of {self.timeout:g} s"
                    spent = {"seconds": float(self.timeout or 0), "environment": environment()}
                    yield run, Outcome(error=why, **spent)  # type: ignore[arg-type]


class _Worker:
    """One process and what it is doing."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.pipe, theirs = Pipe()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno()), json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=[theirs.fileno()],
            process_group=0,  # Ctrl-C is for the driver
            env=os.environ | dict.fromkeys(THREADS, "1") | {"BLOCKMDP_DRIVER": str(os.getpid())},
        )
        theirs.close()
        self.run: Run | None = None
        self.ready = self.dead = False
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
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.dead = True
            self.kill()
            return None
        if message == "ready":
            self.ready = True
            self._set_deadline()
            return None
        self.run = None
        assert isinstance(message, Outcome)
        return message

    def _set_deadline(self) -> None:
        self.deadline = time.monotonic() + (1e9 if self._timeout is None else self._timeout)

    def last_words(self) -> str:
        self._stderr.seek(max(self._stderr.seek(0, os.SEEK_END) - 2000, 0))
        words = self._stderr.read().decode(errors="replace").strip()
        code = self.process.returncode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        return f"{how}\n{words}".strip()

    def kill(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.pipe.close()


# --- in the worker's process ----------------------------------------------------------------------
def _work(pipe: Connection, options: dict[str, Any]) -> None:
    _end_with_parent()
    faulthandler.enable()
    if options["folder"]:
        sys.path.insert(0, options["folder"])
    from blockmdp.experiments.runs import execute

    if options["memory"]:
        import resource

        limit = int(options["memory"] * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    pipe.send("ready")
    while True:
        try:
            content, seed = pipe.recv()
        except EOFError:
            return
        pipe.send(execute(json.loads(content), seed))


def _end_with_parent() -> None:
    """Die when the driver does, however it dies."""
    driver = int(os.environ["BLOCKMDP_DRIVER"])
    with contextlib.suppress(Exception):  # Linux: at once, whatever is running
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:  # elsewhere: within a second or two
        while os.getppid() == driver:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _work(Connection(int(sys.argv[1])), json.loads(sys.argv[2]))
