"""Runs on a Dask cluster.

Every thread of a Dask worker has its own worker process (`blockmdp.experiments.pool`). A run
therefore behaves as on this machine, and a fault affects that run only.
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import math
import os
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from blockmdp.experiments.errors import ExecutorError, one_line
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.pool import MAX_TRIES, Pool
from blockmdp.experiments.settings import Run, Setting

__all__ = ["Cluster"]

CLUSTER_TIMEOUT = 30.0  # seconds to wait for a missing scheduler or for workers
REPLY_TIMEOUT = 5.0  # seconds for the scheduler to answer a question
IDLE = 60.0  # seconds after which a process without work ends


class Cluster:
    """The workers of a Dask cluster.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as tcp://host:8786, or path of its scheduler file.
    timeout : float or None, default=None
        Seconds after which a run fails.
    memory : float or None, default=None
        GiB that the process of a run may allocate.
    folder : str or None, default=None
        Folder with the user's own modules, on every machine.
    checkpoints : str or None, default=None
        Folder in which fits keep their state, on a disk that all machines share.
    cluster_timeout : float or None, default=None
        Seconds to wait for a missing scheduler or for workers before giving up. None takes the
        environment variable BLOCKMDP_CLUSTER_TIMEOUT, or 30.

    Raises
    ------
    ExecutorError
        If Dask is not installed, or no scheduler answers.
    """

    def __init__(
        self,
        address: str,
        timeout: float | None = None,
        memory: float | None = None,
        folder: str | None = None,
        checkpoints: str | None = None,
        cluster_timeout: float | None = None,
    ) -> None:
        try:
            import distributed  # here, because it is optional and takes a second
        except ImportError:
            raise ExecutorError(
                "a cluster needs Dask, which is not installed: pip install 'blockmdp[dask]'"
            ) from None
        if cluster_timeout is None:
            cluster_timeout = float(os.environ.get("BLOCKMDP_CLUSTER_TIMEOUT", CLUSTER_TIMEOUT))
        self._address, self._cluster_timeout = address, cluster_timeout
        # Processes are not shared between studies, since a user's modules may have changed.
        self._id = uuid.uuid4().hex
        self._options = {
            "timeout": timeout,
            "memory": memory,
            "folder": folder,
            "checkpoints": checkpoints,
            "idle": IDLE,
        }
        self._asked, self._threads = -math.inf, list[int]()
        _silence("distributed")  # we report problems ourselves, in one line
        try:
            self._client = distributed.Client(
                _address(address), timeout=min(10.0, cluster_timeout), set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:
            raise ExecutorError(f"no Dask scheduler answers at {address}: {error}") from None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        # closing the connection drops what is running; do not wait, the scheduler may be gone
        with contextlib.suppress(Exception):
            self._client.close(timeout=1)

    def state(self) -> str:
        """Describe the workers in a few words."""
        return f"{len(self._threads)} Dask workers with {sum(self._threads)} threads"

    def map(
        self, runs: Iterable[Run], meanwhile: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Run, Outcome]]:
        """Do runs and yield each with its outcome, as soon as it ends.

        Parameters
        ----------
        runs : iterable of Run
            What to do.
        meanwhile : callable, optional
            Called at least every second, unless the scheduler or all workers are gone.

        Yields
        ------
        run : Run
            A run that has ended.
        outcome : Outcome
            Its result, or why it failed.

        Raises
        ------
        ExecutorError
            If the scheduler or all workers are gone, or the workers cannot do runs.
        """
        waiting = collections.deque(runs)
        tries: collections.Counter[str] = collections.Counter()
        ended: queue.SimpleQueue[tuple[Run, Any]] = queue.SimpleQueue()
        submitted: set[Any] = set()  # Dask cancels futures that nobody holds

        def listen(run: Run, future: Any) -> None:
            future.add_done_callback(lambda done: ended.put((run, done)))

        while waiting or submitted:
            self._wait_for_workers()
            meanwhile()
            while waiting and len(submitted) < 2 * sum(self._threads):
                run = waiting.popleft()
                future = self._submit(run)
                submitted.add(future)
                listen(run, future)
            try:
                run, future = ended.get(timeout=1.0)
            except queue.Empty:
                continue
            outcome, error = None, None
            try:
                if future.status == "finished":
                    outcome = future.result(timeout=REPLY_TIMEOUT)
                elif future.status == "error":
                    error = future.exception(timeout=REPLY_TIMEOUT)
            except TimeoutError:  # its worker is gone, and Dask does the run again
                listen(run, future)
                continue
            except Exception:  # the scheduler is gone, which is not the run's fault
                pass
            submitted.discard(future)
            future.release()  # Dask would do it again if its worker died
            tries[run.key] += error is not None
            if outcome is not None:
                yield run, _with_modules(_checked(outcome))
            elif tries[run.key] < MAX_TRIES:
                waiting.appendleft(run)
            elif type(error).__name__ == "KilledWorker":
                yield run, Outcome(error=f"the Dask worker died {MAX_TRIES} times")
            else:
                raise ExecutorError(f"the Dask workers cannot do runs: {one_line(error)}")

    def _submit(self, run: Run) -> Any:
        arguments = run.setting.content, run.seed, self._options, self._id
        key = f"blockmdp-{run.key}-{uuid.uuid4().hex}"
        return self._client.submit(_in_worker, *arguments, key=key, pure=False)

    def _wait_for_workers(self) -> None:
        start = time.monotonic()
        while not self._has_workers():
            status = self._client.status
            if status == "closed" or time.monotonic() - start > self._cluster_timeout:
                what = "cluster at {} has no workers; start some"
                if status != "running":
                    what = "scheduler at {} is gone; start it"
                raise ExecutorError(
                    f"the Dask {what.format(self._address)} and run the same command again"
                )
            time.sleep(0.5)

    def _has_workers(self) -> bool:
        """Whether the cluster has workers. Asks the scheduler at most once a second."""
        if time.monotonic() - self._asked > 1.0:
            self._threads = []
            with contextlib.suppress(OSError, RuntimeError, AttributeError):  # it is gone
                ask: Any = self._client.scheduler
                threads = self._client.sync(
                    ask.ncores, workers=None, callback_timeout=REPLY_TIMEOUT
                )
                self._threads = list(threads.values())
            self._asked = time.monotonic()
        return self._client.status == "running" and sum(self._threads) > 0


def _checked(outcome: Any) -> Outcome:
    """Return what a Dask worker sent as an outcome, a failure if it is none."""
    try:
        return Outcome.from_json(outcome)
    except ValueError as error:
        return Outcome(error=f"the Dask worker sent no outcome: {one_line(error)}")


def _with_modules(outcome: Outcome) -> Outcome:
    """Raise an ExecutorError if a worker lacks a module. This process could import it."""
    lines = (outcome.error or "").strip().splitlines()
    missing = re.search(r"StudyError: \w+: (cannot import .*)", lines[-1] if lines else "")
    if missing:
        raise ExecutorError(
            f"a Dask worker {missing[1]}; put the module next to the study file on a disk that all "
            "machines share, or install it on each, and run the same command again"
        )
    return outcome


def _silence(package: str) -> None:
    for name in [package, *logging.root.manager.loggerDict]:
        if f"{name}.".startswith(f"{package}."):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _address(given: str) -> str:
    """Return the address of a scheduler, given the address or the path of its scheduler file."""
    if Path(given).suffix != ".json":
        if not re.fullmatch(r"((tcp|tls|ucx|wss?)://)?[^/]+:\d+", given):
            raise ExecutorError(
                f"{given!r} is neither the address of a scheduler, such as tcp://host:8786, nor "
                "a scheduler file, such as scheduler.json"
            )
        return given
    try:
        return str(json.loads(Path(given).read_text(encoding="utf-8"))["address"])
    except OSError as error:
        raise ExecutorError(f"scheduler file {given}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError):
        raise ExecutorError(f"{given} is not a scheduler file: it has no address") from None


# --- on the Dask worker ---------------------------------------------------------------------------
_local = threading.local()


def _in_worker(content: str, seed: int, options: dict[str, Any], study_id: str) -> str:
    """Do a run in a process of this thread. It is kept for the next run of the same study."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.get_current_task()

    def check_needed() -> None:  # it is not if the driver was interrupted or killed
        state = worker.state.tasks.get(task)
        if state is None or state.state == "cancelled":
            pool.close()
            raise ExecutorError("this run is not needed any more")

    pools: dict[str, Pool] = vars(_local).setdefault("pools", {})  # studies may take turns
    for other in [key for key in pools if key != study_id and not pools[key].is_alive()]:
        pools.pop(other).close()
    pool = pools.setdefault(study_id, Pool(1, **options))
    setting = Setting(**json.loads(content))
    outcome: Outcome
    ((_, outcome),) = pool.map([Run(setting, seed)], check_needed)
    return outcome.to_json()
