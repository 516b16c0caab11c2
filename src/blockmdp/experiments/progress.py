"""How far a study is: live bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

__all__ = ["Watch", "duration"]

MOST_BARS = 30


def duration(seconds: float) -> str:
    """
    >>> duration(5), duration(125), duration(7300)
    ('5 s', '2 min 5 s', '2 h 1 min')
    """
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


class Watch:
    """Is told of each run that ends, and tells the user, on stderr.

    Parameters
    ----------
    totals : runs by panel, or by study.
    before : those of them that were done before.
    quiet : say nothing but what is wrong.
    every : seconds between two lines.
    """

    def __init__(
        self,
        totals: Counter[str],
        before: Counter[str],
        quiet: bool = False,
        every: float = 5.0,
    ) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live = self._console.is_terminal and not quiet
        self._quiet, self._every = quiet, every
        self._totals, self._before = totals, before
        self._total = totals.total() - before.total()
        self.done = self.failed = 0
        self._first = self._told = time.monotonic()

    def __enter__(self) -> Watch:
        if self._live:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[words]}"),
            )
            self._progress = Progress(*columns, console=self._console)
            panels = self._totals if 1 < len(self._totals) <= MOST_BARS else {}
            self._bars = {
                panel: self._progress.add_task(
                    panel, total=total, completed=self._before[panel], words=""
                )
                for panel, total in panels.items()
            }
            total, completed = self._totals.total(), self._before.total()
            self._all = self._progress.add_task("all", total=total, completed=completed, words="")
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._progress.stop()

    def say(self, line: str) -> None:
        """Something the user should know, quiet or not."""
        (self._progress.console if hasattr(self, "_progress") else self._console).print(
            line, markup=False
        )

    def tick(self, panel: str, failed: bool, who: str) -> None:
        self.done += 1
        self.failed += failed
        now = time.monotonic()
        if self.done == 1:
            self._first = now  # what came before was processes starting
        last = self.done == self._total
        if self._live:
            if panel in self._bars:
                self._progress.advance(self._bars[panel])
            self._progress.update(self._all, advance=1, words=self._words(now, who))
        elif not self._quiet and (now - self._told >= self._every or last):
            self._told = now
            self._console.print(f"{self.done}/{self._total} runs, {self._words(now, who)}")

    def _words(self, now: float, who: str) -> str:
        words = [who]
        if self.done > 1:
            rate = (self.done - 1) / max(now - self._first, 1e-9)
            left = duration((self._total - self.done) / rate)
            words = [f"{rate:.1f} runs/s", f"{left} left", who]
        if self.failed:
            words.append(f"{self.failed} failed")
        return ", ".join(words)
