"""Running a study: expand it, leave out what is done, do the rest, keep every result at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from blockmdp.experiments.pool import Executor, Pool
from blockmdp.experiments.progress import Watch
from blockmdp.experiments.results import Results
from blockmdp.experiments.runs import Outcome
from blockmdp.experiments.store import Store
from blockmdp.experiments.study import Study

__all__ = ["Interrupted", "cores", "run_study"]


class Interrupted(KeyboardInterrupt):
    """By Ctrl-C or SIGTERM, which is the exit status minus 128; what was finished is kept."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_study(
    study: Study,
    out: str | Path | None = None,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    timeout: float | None = None,
    memory: float | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
) -> Results:
    """Do what is missing of a study, and give all its results.

    Parameters
    ----------
    out : the directory of the store; by default results/NAME.
    jobs : processes on this machine; by default one for each core.
    cluster : the address or scheduler file of a Dask cluster to use instead.
    timeout : seconds after which a run fails.
    memory : GiB that a run's process may allocate.
    retry_failed : do runs again that failed before.
    quiet : show no progress.
    """
    out = Path("results") / study.name if out is None else Path(out)
    told: list[str] = []
    with Store(out, write=True, tell=told.append) as store, _interruptible():
        store.drop_damaged()
        store.register(study)
        store.announce(study=study.name, jobs=jobs or cores())
        finished = store.done() | (set() if retry_failed else store.failed())
        missing = [run for run in study.runs() if run.key not in finished]
        before = Counter(setting.panel for setting in study.settings)
        before = Counter({panel: n * len(study.seeds) for panel, n in before.items()})
        before.subtract(run.setting.panel for run in missing)
        with Watch(study, before, quiet) as watch:
            for line in told:
                watch.say(line)
            if missing:
                options = {"timeout": timeout, "memory": memory, "folder": study.folder}
                with _executor(jobs, cluster, options) as executor:
                    for run, outcome in executor.map(missing):
                        store.add(run, outcome)
                        if outcome.error is not None and watch.failed < 5:
                            watch.say(f"failed: {run}: {_last_line(outcome)}")
                        watch.tick(run.setting.panel, outcome.error is not None, executor.state())
    return Results(out, study)


def _executor(
    jobs: int | None, cluster: str | None, options: dict[str, float | str | None]
) -> Executor:
    if cluster is None:
        return Pool(cores() if jobs is None else jobs, **options)  # type: ignore[arg-type]
    from blockmdp.experiments.cluster import Cluster

    return Cluster(cluster, **options)  # type: ignore[arg-type]


def _last_line(outcome: Outcome) -> str:
    lines = (outcome.error or "").strip().splitlines()
    return lines[-1] if lines else ""


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends a study as Ctrl-C does."""

    def stop(signum: int, frame: object) -> None:
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
