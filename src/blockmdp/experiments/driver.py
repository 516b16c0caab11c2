"""The driver: does the missing runs of a study and stores each as soon as it is finished."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from blockmdp.experiments.cluster import Cluster
from blockmdp.experiments.errors import Interrupted, StoreError
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.parts import takes_seed
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.pool import Executor, Pool
from blockmdp.experiments.progress import Progress
from blockmdp.experiments.results import Results
from blockmdp.experiments.runs import optimum
from blockmdp.experiments.settings import canonical
from blockmdp.experiments.store import Store

__all__ = ["cores", "run_studies"]

MAX_FAILURES_SHOWN = 5


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_studies(
    studies: Sequence[Plan],
    out: Path,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    timeout: float | None = None,
    memory: float | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
    checkpoint: bool = False,
) -> list[Results]:
    """Do the missing runs of several studies in one store. Shared runs are done once.

    Parameters
    ----------
    studies : sequence of Study
        What to run.
    out : Path
        Directory of the store.
    jobs : int or None, default=None
        Number of processes on this machine. None is one for each core.
    cluster : str or None, default=None
        Address or scheduler file of a Dask cluster to use instead of this machine.
    timeout : float or None, default=None
        Seconds after which a run fails. None sets no limit.
    memory : float or None, default=None
        GiB that the process of a run may allocate. None sets no limit.
    retry_failed : bool, default=False
        Repeat runs that failed before.
    quiet : bool, default=False
        Show no progress.
    checkpoint : bool, default=False
        Keep the state of each fit in OUT/checkpoints, and go on from there.

    Returns
    -------
    list of Results
        The results of each study.

    Raises
    ------
    StoreError
        If the store cannot be written.
    ExecutorError
        If no worker can do any more runs.
    Interrupted
        If the user stops it with Ctrl-C or SIGTERM.
    """
    warnings: list[str] = []
    with interruptible(), Store(out, write=True, warn=warnings.append) as store:
        store.drop_damaged()
        for study in studies:
            store.register(study)
        store.announce(study=studies[-1].name, jobs=jobs or cores())
        _add_optima(store, studies)
        finished = store.done() | (set() if retry_failed else store.failed())
        bars = {
            run.key: (run, run.setting.panel if len(studies) == 1 else study.name)
            for study in studies
            for run in study.runs()
        }
        missing = [run for run, _ in bars.values() if run.key not in finished]
        totals = Counter(bar for _, bar in bars.values())
        before = totals - Counter(bars[run.key][1] for run in missing)
        with Progress(totals, before, quiet) as progress:
            for line in warnings:
                progress.warn(line)
            if missing:
                options = {"timeout": timeout, "memory": memory, "folder": studies[0].folder}
                if checkpoint:
                    options["checkpoints"] = _folder(out / "checkpoints")
                with make_executor(jobs, cluster, options) as executor:
                    for run, outcome in executor.map(missing, store.settle):
                        store.add(run, outcome)
                        failed = outcome.error is not None
                        if failed and progress.failed < MAX_FAILURES_SHOWN:
                            progress.warn(f"failed: {run}: {last_line(outcome)}")
                        progress.tick(bars[run.key][1], failed, executor.state())
    return [Results(out, study) for study in studies]


def _add_optima(store: Store, studies: Sequence[Plan]) -> None:
    """Complete the runs of earlier versions, which did not store the optimal value."""
    old = store.done() - store.with_optimum()
    if not old:
        return
    known: dict[tuple[str, int], float | None] = {}
    for study in studies:
        for run in study.runs():
            if run.key in old:
                old.remove(run.key)
                problem = run.setting.problem
                place = canonical(problem), run.seed if takes_seed(problem) else 0
                if place not in known:
                    known[place] = optimum(problem, run.seed)
                store.add_optimum(run, known[place])


def _folder(path: Path) -> str:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {path}: {error.strerror}") from None
    return str(path.resolve())


def make_executor(
    jobs: int | None, cluster: str | None, options: dict[str, float | str | None]
) -> Executor:
    if cluster is None:
        return Pool(cores() if jobs is None else jobs, **options)  # type: ignore[arg-type]
    return Cluster(cluster, **options)  # type: ignore[arg-type]


def last_line(outcome: Outcome) -> str:
    lines = (outcome.error or "").strip().splitlines()
    return lines[-1] if lines else ""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a study in the same way."""

    def stop(signum: int, frame: object) -> None:
        atexit.register(gc.freeze)  # else Python spends a second on garbage before it exits
        raise Interrupted(signum)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
