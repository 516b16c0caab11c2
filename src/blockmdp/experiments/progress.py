"""Progress of a study: live bars in a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from blockmdp.experiments.errors import printable

__all__ = ["Progress", "duration", "speed"]

MAX_BARS = 30
EARLY = 3  # runs after which the speed is not yet known


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(5), duration(125), duration(7300)
    ('5 s', '2 min 5 s', '2 h 1 min')
    """
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def speed(rate: float) -> str:
    """Return a number of runs per second in words.

    >>> speed(12.34), speed(0.5), speed(0.004)
    ('12.3 runs/s', '2.0 s per run', '250 s per run')
    """
    if rate >= 1:
        return f"{rate:.1f} runs/s"
    return f"{1 / rate:.1f} s per run" if rate > 0.1 else f"{1 / rate:.0f} s per run"


class Progress:
    """Shows on stderr how far a study is.

    Parameters
    ----------
    totals : Counter
        Number of runs by panel, or by study.
    before : Counter
        Number of these runs that were done before.
    quiet : bool, default=False
        Show only what goes wrong.
    every : float, default=5.0
        Seconds between two lines.
    """

    def __init__(
        self,
        totals: Counter[str],
        before: Counter[str],
        quiet: bool = False,
        every: float = 5.0,
    ) -> None:
        from rich.console import Console  # here, because who looks at results needs none

        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._quiet, self._every = quiet, every
        self._totals, self._before = totals, before
        self._total = totals.total() - before.total()
        self.done = self.failed = 0
        self._first = self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        if self._live:
            from rich import progress as rich_progress

            columns = (
                rich_progress.TextColumn("{task.description}"),
                rich_progress.BarColumn(None),
                rich_progress.MofNCompleteColumn(),
                rich_progress.TextColumn("{task.fields[words]}"),
            )
            self._bars = rich_progress.Progress(*columns, console=self._console)
            panels = self._totals if 1 < len(self._totals) <= MAX_BARS else {}
            self._bar_of = {
                panel: self._bars.add_task(
                    panel, total=total, completed=self._before[panel], words=""
                )
                for panel, total in panels.items()
            }
            total, completed = self._totals.total(), self._before.total()
            self._all = self._bars.add_task("all", total=total, completed=completed, words="")
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._bars.stop()

    def warn(self, line: str) -> None:
        """Show a line, also if quiet."""
        (self._bars.console if hasattr(self, "_bars") else self._console).print(
            printable(line), markup=False
        )

    def tick(self, panel: str, failed: bool, workers: str) -> None:
        """Count a run that has ended, and show it.

        Parameters
        ----------
        panel : str
            Panel or study of the run.
        failed : bool
            Whether it failed.
        workers : str
            The workers, in a few words.
        """
        self.done += 1
        self.failed += failed
        now = time.monotonic()
        if self.done == 1:
            self._first = now  # the time before was spent starting processes
        is_last = self.done == self._total
        if self._live:
            if panel in self._bar_of:
                self._bars.advance(self._bar_of[panel])
            self._bars.update(self._all, advance=1, words=self._words(now, workers))
        elif not self._quiet and (now - self._last_line >= self._every or is_last):
            self._last_line = now
            self._console.print(f"{self.done}/{self._total} runs, {self._words(now, workers)}")

    def _words(self, now: float, workers: str) -> str:
        words = [workers]
        if self.done > EARLY:
            rate = (self.done - 1) / max(now - self._first, 1e-9)
            left = duration((self._total - self.done) / rate)
            words = [speed(rate), f"{left} left", workers]
        if self.failed:
            words.append(f"{self.failed} failed")
        return ", ".join(words)
