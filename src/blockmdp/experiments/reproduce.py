"""The experiments of Feng et al. 2020, Section 5. So far: the skyline and the baselines of Figure
1, that is, OracleQ and QLearning on LockBernoulli, on latent states and on observations.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from blockmdp.agents import Tabular
from blockmdp.envs import lock_bernoulli
from blockmdp.experiments.figures import Curve, Panel, learning_curves, save
from blockmdp.learners import OracleQ, QLearning

__all__ = ["Run", "Summary", "cumulative_average", "reproduce", "solved_at"]

HORIZONS, SWITCHES, OPTIMUM = (5, 10, 20), (0.0, 0.2, 0.5), 0.5
POINTS = 200  # of a curve that is kept

ALGORITHMS: dict[str, Callable[[], Tabular]] = {
    "OracleQ-lat": lambda: Tabular(OracleQ(lr=0.1, bonus=0.001), on="latent"),
    "QLearning-lat": lambda: Tabular(QLearning(lr=0.1, exploration=0.001), on="latent"),
    "OracleQ-obs": lambda: Tabular(OracleQ(lr=0.1, bonus=0.001), on="observation"),
    "QLearning-obs": lambda: Tabular(QLearning(lr=0.1, exploration=0.001), on="observation"),
}


@dataclass(frozen=True)
class Run:
    """One run: an algorithm on a lock. The seed is the problem's too, so that every run has a
    combination of its own.
    """

    algorithm: str
    horizon: int
    switch: float
    seed: int
    episodes: int


@dataclass(frozen=True, eq=False)
class Summary:
    """What is kept of a run: points (trajectories, average reward so far), and when it solved."""

    run: Run
    trajectories: NDArray[np.int64]
    average: NDArray[np.float64]
    solved_at: int | None


def cumulative_average(
    returns: NDArray[np.float64], points: int = POINTS
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The paper's y-axis: the mean of the first n returns, at evenly spaced n.

    Returns
    -------
    n : (points,), fewer where there are fewer returns; the last is all of them.
    average : (points,)

    Examples
    --------
    >>> n, average = cumulative_average(np.array([0.0, 1.0, 1.0, 0.0]), points=2)
    >>> n.tolist(), average.tolist()
    ([2, 4], [0.5, 0.5])
    """
    n = np.unique(np.linspace(0, len(returns), points + 1).round().astype(np.int64)[1:])
    n = n[n > 0]
    return n, np.cumsum(returns)[n - 1] / n


def solved_at(
    returns: NDArray[np.float64], window: int = 1000, threshold: float = 0.45
) -> int | None:
    """Trajectories until the mean of the last `window` returns exceeds the threshold; None if it
    never does.

    Examples
    --------
    >>> solved_at(np.array([0.0, 0.0, 1.0, 1.0]), window=2, threshold=0.45)
    3
    """
    total = np.concatenate([[0.0], np.cumsum(returns)])
    above = np.flatnonzero(total[window:] - total[:-window] > threshold * window)
    return int(above[0]) + window if len(above) else None


def execute(run: Run) -> Summary:
    problem = lock_bernoulli(run.horizon, run.switch, seed=run.seed)
    agent = ALGORITHMS[run.algorithm]().fit(problem, run.episodes, seed=run.seed)
    returns = agent.returns_
    return Summary(run, *cumulative_average(returns), solved_at(returns))


def reproduce(out: Path, *, seeds: int = 50, episodes: int = 20_000, jobs: int = 1) -> str:
    """Run everything, write `figure1-skyline` as png, pdf, svg and csv into `out`, and return a
    table in words.
    """
    cells = itertools.product(ALGORITHMS, HORIZONS, SWITCHES)
    runs = [Run(*cell, seed, episodes) for cell in cells for seed in range(seeds)]
    # The longest first, so that no process is left alone with one at the end.
    runs.sort(key=lambda run: (run.algorithm.endswith("obs"), run.horizon), reverse=True)
    groups: dict[tuple[str, int, float], list[Summary]] = {}
    for summary in progress(map_processes(execute, runs, jobs), len(runs)):
        run = summary.run
        groups.setdefault((run.algorithm, run.horizon, run.switch), []).append(summary)
    for group in groups.values():  # so that sums do not depend on which run was done first
        group.sort(key=lambda summary: summary.run.seed)

    stem = out / "figure1-skyline"
    panels = [
        Panel(
            f"$H = {H}$, switch ${switch:g}$",
            [_curve(name, groups[name, H, switch]) for name in ALGORITHMS],
            OPTIMUM,
        )
        for H, switch in itertools.product(HORIZONS, SWITCHES)
    ]
    save(learning_curves(panels, columns=len(SWITCHES)), stem)
    write_csv(stem.with_suffix(".csv"), groups)
    return table(groups)


def _curve(label: str, group: Sequence[Summary]) -> Curve:
    averages = np.array([summary.average for summary in group])
    return Curve(
        label,
        group[0].trajectories.astype(np.float64),
        averages.mean(axis=0),
        averages.std(axis=0),
    )


def write_csv(path: Path, groups: dict[tuple[str, int, float], list[Summary]]) -> None:
    """One line a point of each curve; mean and standard deviation are over the seeds."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["algorithm", "horizon", "switch", "seeds", "trajectories", "mean", "std"])
        for name, H, switch in itertools.product(ALGORITHMS, HORIZONS, SWITCHES):
            group = groups[name, H, switch]
            curve = _curve(name, group)
            for x, mean, std in zip(group[0].trajectories, curve.mean, curve.std):
                writer.writerow([name, H, switch, len(group), x, f"{mean:.6f}", f"{std:.6f}"])


def table(groups: dict[tuple[str, int, float], list[Summary]]) -> str:
    """For each panel and algorithm the median number of trajectories to solve, and how many seeds
    did.
    """
    lines = [
        "Trajectories until the mean of the last 1000 returns exceeds 0.45:",
        "median over seeds (-: half of them or more never got there), seeds that got there",
        "",
        f"{'H':>3}{'switch':>8}" + "".join(f"{name:>18}" for name in ALGORITHMS),
    ]
    for H, switch in itertools.product(HORIZONS, SWITCHES):
        cells = []
        for name in ALGORITHMS:
            at = [s.solved_at for s in groups[name, H, switch]]
            solved = sum(n is not None for n in at)
            median = np.median([np.inf if n is None else n for n in at])
            shown = f"{median:,.0f}" if np.isfinite(median) else "-"
            cells.append(f"{shown:>10}{f'{solved}/{len(at)}':>8}")
        lines.append(f"{H:>3}{switch:>8g}" + "".join(cells))
    return "\n".join(lines)


# --- many processes -------------------------------------------------------------------------------
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


def map_processes(
    function: Callable[[Run], Summary], runs: Sequence[Run], jobs: int
) -> Iterator[Summary]:
    """Results in the order in which they are ready. Each process has one thread."""
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with _environment(_ONE_THREAD), ProcessPoolExecutor(min(jobs, len(runs)), context) as pool:
        try:
            with _interrupts_ignored():  # and so, for their whole life, by processes started here
                futures = [pool.submit(function, run) for run in runs]
            for future in as_completed(futures):
                yield future.result()
        except BaseException:  # Ctrl-C too: do not wait for what is under way
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def progress(summaries: Iterable[Summary], total: int, every: float = 5.0) -> Iterator[Summary]:
    """Pass results on and tell, on stderr, how many there have been: a bar on a terminal, elsewhere
    a line now and then.
    """
    console = Console(stderr=True)
    start = told = time.monotonic()
    if not console.is_terminal:
        for done, summary in enumerate(summaries, start=1):
            yield summary
            now = time.monotonic()
            if now - told >= every or done == total:
                told = now
                console.print(f"{done}/{total} runs, {now - start:.0f} s", highlight=False)
        return
    columns = (TextColumn("runs"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        for summary in bar.track(summaries, total=total):
            yield summary
