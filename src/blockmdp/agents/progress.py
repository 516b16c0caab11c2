"""A bar in the terminal for fits that take longer than two seconds."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from multiprocessing import parent_process
from typing import Any

from numba.core import event

from blockmdp.checks import is_terminal
from blockmdp.simulators import Simulator

__all__ = ["FitProgress"]

DELAY, EVERY = 2.0, 0.2  # seconds before the bar appears, and between two looks at the fit
RECENT = 100  # episodes whose mean return is shown


class FitProgress:
    """Shows how far a fit is, from a thread that only looks. It is a context manager.

    Parameters
    ----------
    simulator : Simulator
        Where the episodes of the fit are counted.
    name : str
        Name of the agent.
    """

    def __init__(self, simulator: Simulator, name: str) -> None:
        self._simulator, self._name = simulator, name
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._compiling, self._exit = _Compiling(), ExitStack()

    def __enter__(self) -> FitProgress:
        alone = threading.current_thread() is threading.main_thread() and not parent_process()
        if alone and is_terminal(sys.stderr):
            self._exit.enter_context(event.install_listener("numba:compile", self._compiling))
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
        self._exit.close()

    def _watch(self) -> None:
        if self._ended.wait(DELAY):
            return
        from rich import progress  # here, because most fits are short
        from rich.console import Console

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[words]}"),
        )
        console = Console(stderr=True, highlight=False)
        with progress.Progress(*columns, console=console, transient=True) as bars:
            task = bars.add_task(self._name, total=None, words="")
            while True:
                run = self._simulator.run
                words = f"{self._simulator.episodes:,} trajectories"
                k = 0 if run is None else run.k
                if run is not None and k:
                    words += f", mean return {run.returns[max(k - RECENT, 0) : k].mean():.3f}"
                if self._simulator.labels:
                    words += f", {self._simulator.labels} labels"
                if self._compiling.depth:
                    words = "compiling for the first time"
                total = None if run is None else len(run.returns)
                bars.update(task, total=total, completed=k, words=words)
                if self._ended.wait(EVERY):
                    return


class _Compiling(event.Listener):
    """Notices when numba compiles."""

    depth = 0  # functions that are being compiled, each for the one before

    def on_start(self, event: Any) -> None:
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1
