"""The driver: does the missing runs of a study and stores each as soon as it is finished."""

from __future__ import annotations

import atexit
import contextlib
import gc
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from blockmdp.checks import cores
from blockmdp.experiments.cluster import Cluster
from blockmdp.experiments.errors import Interrupted, StoreError
from blockmdp.experiments.gpu import Gpu
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.parts import takes_seed
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.pool import Executor, Pool
from blockmdp.experiments.progress import Progress
from blockmdp.experiments.results import Results
from blockmdp.experiments.runs import optimum
from blockmdp.experiments.settings import canonical
from blockmdp.experiments.store import Store

__all__ = ["Options", "run_studies"]

MAX_FAILURES_SHOWN = 5


@dataclass(frozen=True)
class Options:
    """How runs are done, with the names and defaults of `Study.run`.

    Parameters
    ----------
    jobs, cluster, timeout, memory, retry_failed, quiet, checkpoint, device
        As for `Study.run`.
    """

    jobs: int | None = None
    cluster: str | None = None
    timeout: float | None = None
    memory: float | None = None
    retry_failed: bool = False
    quiet: bool = False
    checkpoint: bool = False
    device: str = "cpu"


def run_studies(studies: Sequence[Plan], out: Path, options: Options) -> list[Results]:
    """Do the missing runs of several studies in one store. Shared runs are done once.

    Parameters
    ----------
    studies : sequence of Study
        What to run.
    out : Path
        Directory of the store.
    options : Options
        How to run it.

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
        store.announce(study=studies[-1].name, jobs=options.jobs or cores())
        _add_optima(store, studies)
        finished = store.done() | (set() if options.retry_failed else store.failed())
        bars = {
            run.key: (run, run.setting.panel if len(studies) == 1 else study.name)
            for study in studies
            for run in study.runs()
        }
        missing = [run for run, _ in bars.values() if run.key not in finished]
        totals = Counter(bar for _, bar in bars.values())
        before = totals - Counter(bars[run.key][1] for run in missing)
        with Progress(totals, before, options.quiet) as progress:
            for line in warnings:
                progress.warn(line)
            if missing:
                with make_executor(options, studies[0].folder, out) as executor:
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


def make_executor(options: Options, folder: str | None, out: Path) -> Executor:
    """Return workers for the runs of a store; folder: the user's own modules."""
    if options.device == "cuda":
        return Gpu(folder)
    checkpoints = _folder(out / "checkpoints") if options.checkpoint else None
    common = options.timeout, options.memory, folder
    if options.cluster is not None:
        return Cluster(options.cluster, *common, checkpoints=checkpoints)
    jobs = cores() if options.jobs is None else options.jobs
    return Pool(jobs, *common, checkpoints=checkpoints)


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
