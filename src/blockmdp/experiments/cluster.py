"""Runs on a Dask cluster. Every thread of a Dask worker has a worker process of its own
(`blockmdp.experiments.pool`), so that a run does the same there as here: what it does to its
process, it does to no other.
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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from blockmdp.experiments.catalogue import one_line
from blockmdp.experiments.pool import TRIES, ExecutorError, Pool
from blockmdp.experiments.runs import Outcome
from blockmdp.experiments.study import Run, Setting

__all__ = ["Cluster"]

# seconds without any worker, or without the scheduler, before giving up
LONELY = float(os.environ.get("BLOCKMDP_CLUSTER_TIMEOUT", "30"))
FETCH = 5.0  # seconds for an answer
IDLE = 60.0  # seconds after which a process without work ends


class Cluster:
    """The workers of a Dask cluster.

    Parameters
    ----------
    address : of the scheduler, such as tcp://host:8786, or the path of its scheduler file.
    timeout, memory, folder : as for `Pool`.
    lonely : seconds to wait for a worker, or the scheduler, to come (back).
    """

    def __init__(
        self,
        address: str,
        timeout: float | None = None,
        memory: float | None = None,
        folder: str | None = None,
        lonely: float = LONELY,
    ) -> None:
        try:
            import distributed
        except ImportError:
            raise ExecutorError(
                "a cluster needs Dask, which is not installed: pip install 'blockmdp[dask]'"
            ) from None
        self._address, self._lonely = address, lonely
        # a number of its own, so that no process of an earlier study, with a user's modules as they
        # were then, does a run of this one
        self._number = uuid.uuid4().hex
        self._options = {"timeout": timeout, "memory": memory, "folder": folder, "idle": IDLE}
        self._asked, self._known = -math.inf, list[int]()
        _silence("distributed")  # what goes wrong is said in one line
        try:
            self._client = distributed.Client(
                _address(address), timeout=min(10.0, lonely), set_as_default=False
            )
        except (OSError, ValueError, TypeError) as error:
            raise ExecutorError(f"no Dask scheduler answers at {address}: {error}") from None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        # what is running is dropped with the connection; the scheduler may be gone, so do not wait
        with contextlib.suppress(Exception):
            self._client.close(timeout=1)

    def state(self) -> str:
        return f"{len(self._known)} Dask workers with {sum(self._known)} threads"

    def map(self, runs: Iterable[Run]) -> Iterator[tuple[Run, Outcome]]:
        waiting = collections.deque(runs)
        tries: collections.Counter[str] = collections.Counter()
        ended: queue.SimpleQueue[tuple[Run, Any]] = queue.SimpleQueue()
        flying: set[Any] = set()  # futures: Dask drops those that nobody holds

        def listen(run: Run, future: Any) -> None:
            future.add_done_callback(lambda done: ended.put((run, done)))

        while waiting or flying:
            self._wait_for_workers()
            while waiting and len(flying) < 2 * sum(self._known):
                run = waiting.popleft()
                future = self._submit(run)
                flying.add(future)
                listen(run, future)
            try:
                run, future = ended.get(timeout=1.0)
            except queue.Empty:
                continue
            outcome, error = None, None
            try:
                if future.status == "finished":
                    outcome = future.result(timeout=FETCH)
                elif future.status == "error":
                    error = future.exception(timeout=FETCH)
            except TimeoutError:  # its worker is gone, and it is being done again
                listen(run, future)
                continue
            except Exception:  # the scheduler is gone: no fault of the run
                pass
            flying.discard(future)
            future.release()  # one that is held would be done again when its worker dies
            tries[run.key] += error is not None
            if outcome is not None:
                yield run, outcome
            elif tries[run.key] < TRIES:
                waiting.appendleft(run)
            elif type(error).__name__ == "KilledWorker":
                yield run, Outcome(error=f"the Dask worker died {TRIES} times")
            else:
                raise ExecutorError(f"the Dask workers cannot do runs: {one_line(error)}")

    def _submit(self, run: Run) -> Any:
        arguments = run.setting.content, run.seed, self._options, self._number
        key = f"blockmdp-{run.key}-{uuid.uuid4().hex}"
        return self._client.submit(_in_worker, *arguments, key=key, pure=False)

    def _wait_for_workers(self) -> None:
        start = time.monotonic()
        while not self._look():
            status = self._client.status
            if status == "closed" or time.monotonic() - start > self._lonely:
                what = "cluster at {} has no workers; start some"
                if status != "running":
                    what = "scheduler at {} is gone; start it"
                raise ExecutorError(
                    f"the Dask {what.format(self._address)} and run the same command again"
                )
            time.sleep(0.5)

    def _look(self) -> bool:
        """Whether there are workers; the scheduler is asked once a second."""
        if time.monotonic() - self._asked > 1.0:
            self._known = []
            with contextlib.suppress(OSError, RuntimeError, AttributeError):  # it is gone
                ask: Any = self._client.scheduler
                threads = self._client.sync(ask.ncores, workers=None, callback_timeout=FETCH)
                self._known = list(threads.values())
            self._asked = time.monotonic()
        return self._client.status == "running" and sum(self._known) > 0


def _silence(package: str) -> None:
    for name in [package, *logging.root.manager.loggerDict]:
        if f"{name}.".startswith(f"{package}."):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _address(given: str) -> str:
    """The address of a scheduler, given that or its scheduler file."""
    if Path(given).suffix != ".json":
        if not re.fullmatch(r"((tcp|tls|ucx|wss?)://)?[^/]+:\d+", given):
            raise ExecutorError(
                f"{given!r} is no address of a scheduler, such as tcp://host:8786, and no "
                "scheduler file, such as scheduler.json"
            )
        return given
    try:
        return str(json.loads(Path(given).read_text(encoding="utf-8"))["address"])
    except OSError as error:
        raise ExecutorError(f"scheduler file {given}: {error.strerror}") from None
    except (ValueError, LookupError, TypeError):
        raise ExecutorError(f"{given} is no scheduler file: it names no address") from None


# --- on the Dask worker ---------------------------------------------------------------------------
_local = threading.local()


def _in_worker(content: str, seed: int, options: dict[str, Any], number: str) -> Outcome:
    """Do a run in a process of its own, which is kept for the thread's next run of this study."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.get_current_task()

    def abandoned() -> bool:  # by a driver that was interrupted, or killed
        state = worker.state.tasks.get(task)
        return state is None or state.state == "cancelled"

    if getattr(_local, "number", None) != number:
        if hasattr(_local, "pool"):
            _local.pool.close()
        _local.pool, _local.number = Pool(1, **options), number
    setting = Setting(**json.loads(content))
    outcome: Outcome
    ((_, outcome),) = _local.pool.map([Run(setting, seed)], abandoned)
    return outcome
