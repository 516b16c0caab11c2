"""Runs on a Dask cluster. Every thread of a Dask worker has a worker process of its own
(`blockmdp.experiments.pool`), so that a run does the same there as here: what it does to its
process, it does to no other.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from blockmdp.experiments.pool import TRIES, ExecutorError, Pool
from blockmdp.experiments.runs import Outcome
from blockmdp.experiments.study import Run, Setting

__all__ = ["Cluster"]

LONELY = 30.0  # seconds without any worker, or without the scheduler, before giving up


class Cluster:
    """The workers of a Dask cluster.

    Parameters
    ----------
    address : of the scheduler, such as tcp://host:8786, or the path of its scheduler file.
    timeout, memory, folder : as for `Pool`.
    lonely : seconds to wait for a worker to come (back).
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
        self._options = {"timeout": timeout, "memory": memory, "folder": folder}
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # we say it in one line
        where: dict[str, Any] = {"address": address}
        if Path(address).suffix == ".json":
            if not Path(address).is_file():
                raise ExecutorError(f"there is no scheduler file {address}")
            where = {"scheduler_file": address}
        try:
            self._client = distributed.Client(**where, timeout=10, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise ExecutorError(f"no Dask scheduler answers at {address}: {error}") from None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        # Not `close`, which waits for a scheduler that may be gone: what is running is dropped
        # when the connection is.
        with contextlib.suppress(Exception):
            self._client.close(timeout=1)

    def state(self) -> str:
        workers, threads = self._workers()
        return f"{workers} Dask workers with {threads} threads"

    def map(self, runs: Iterable[Run]) -> Iterator[tuple[Run, Outcome]]:
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        flying: dict[str, tuple[Run, Any]] = {}
        tries: collections.Counter[str] = collections.Counter()
        waiting = iter(runs)

        def submit(run: Run) -> None:
            n = tries[run.key]
            future = self._client.submit(
                _in_worker,
                run.setting.content,
                run.seed,
                self._options,
                key=f"blockmdp-{run.key}-{n}",
                pure=False,
            )
            flying[run.key] = run, future
            future.add_done_callback(lambda done, key=run.key: ended.put((key, done)))

        more = True
        while more or flying:
            self._wait_for_workers()
            window = 2 * max(self._workers()[1], 1)
            while more and len(flying) < window:
                run = next(waiting, None)
                more = run is not None
                if run is not None:
                    submit(run)
            try:
                key, future = ended.get(timeout=1.0)
            except queue.Empty:
                continue
            if key not in flying or flying[key][1] is not future:
                continue
            run, _ = flying.pop(key)
            if future.status == "finished":
                outcome = future.result()
                future.release()  # one that is held would be done again when its worker dies
                yield run, outcome
                continue
            why = f"the Dask worker died {TRIES} times"
            if future.status == "error":
                error = future.exception()
                if type(error).__name__ != "KilledWorker":
                    why, tries[key] = f"on the Dask worker: {error!r}", TRIES
            future.release()
            tries[key] += 1
            if tries[key] < TRIES:
                submit(run)
            else:
                yield run, Outcome(error=why)

    def _workers(self) -> tuple[int, int]:
        info = self._client.scheduler_info(n_workers=-1)["workers"]
        return len(info), sum(worker["nthreads"] for worker in info.values())

    def _wait_for_workers(self) -> None:
        start = time.monotonic()
        while True:
            if self._client.status == "running":
                if self._workers()[0] > 0:
                    return
                problem = f"the Dask cluster at {self._address} has no workers"
            else:
                problem = f"the Dask scheduler at {self._address} is gone"
            if self._client.status == "closed" or time.monotonic() - start > self._lonely:
                raise ExecutorError(f"{problem}; start it and run the same command again")
            time.sleep(0.5)


# --- on the Dask worker ---------------------------------------------------------------------------
_local = threading.local()


def _in_worker(content: str, seed: int, options: dict[str, Any]) -> Outcome:
    """Do a run in a process of its own, which is kept for the thread's next run."""
    import json

    pool = getattr(_local, "pool", None)
    if pool is None or _local.options != options:
        if pool is not None:
            pool.close()
        pool, _local.options = Pool(1, **options), options
        _local.pool = pool
    setting = Setting(**json.loads(content))
    ((_, outcome),) = pool.map([Run(setting, seed)])
    return outcome
