"""Running a study: expand it, leave out what is done, do the rest, keep every result at once."""

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
from typing import Any

from blockmdp.experiments.pool import Executor, Pool
from blockmdp.experiments.progress import Watch
from blockmdp.experiments.results import Results
from blockmdp.experiments.runs import Outcome
from blockmdp.experiments.store import Store
from blockmdp.experiments.study import Study

__all__ = ["Interrupted", "cores", "run_studies", "run_study"]


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


def run_study(study: Study, out: str | Path | None = None, **options: Any) -> Results:
    """Do what is missing of a study, and give all its results.

    Parameters
    ----------
    out : the directory of the store; by default results/NAME.
    options : as for `run_studies`.
    """
    out = Path("results") / study.name if out is None else Path(out)
    (results,) = run_studies([study], out, **options)
    return results


def run_studies(
    studies: Sequence[Study],
    out: Path,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    timeout: float | None = None,
    memory: float | None = None,
    retry_failed: bool = False,
    quiet: bool = False,
) -> list[Results]:
    """Do what is missing of several studies in one store; a run that two of them have is done once.

    Parameters
    ----------
    out : the directory of the store.
    jobs : processes on this machine; by default one for each core.
    cluster : the address or scheduler file of a Dask cluster to use instead.
    timeout : seconds after which a run fails.
    memory : GiB that a run's process may allocate.
    retry_failed : do runs again that failed before.
    quiet : show no progress.
    """
    told: list[str] = []
    with _interruptible(), Store(out, write=True, tell=told.append) as store:
        store.drop_damaged()
        for study in studies:
            store.register(study)
        store.announce(study=studies[-1].name, jobs=jobs or cores())
        finished = store.done() | (set() if retry_failed else store.failed())
        bars = {
            run.key: (run, run.setting.panel if len(studies) == 1 else study.name)
            for study in studies
            for run in study.runs()
        }
        missing = [run for run, _ in bars.values() if run.key not in finished]
        totals = Counter(bar for _, bar in bars.values())
        before = totals - Counter(bars[run.key][1] for run in missing)
        with Watch(totals, before, quiet) as watch:
            for line in told:
                watch.say(line)
            if missing:
                options = {"timeout": timeout, "memory": memory, "folder": studies[0].folder}
                with _executor(jobs, cluster, options) as executor:
                    for run, outcome in executor.map(missing):
                        store.add(run, outcome)
                        if outcome.error is not None and watch.failed < 5:
                            watch.say(f"failed: {run}: {_last_line(outcome)}")
                        watch.tick(bars[run.key][1], outcome.error is not None, executor.state())
    return [Results(out, study) for study in studies]


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
        atexit.register(gc.freeze)  # Python would spend a second on what is garbage at its end
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
