"""Runs on an NVIDIA GPU, thousands at once."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator

from blockmdp.experiments.errors import ExecutorError
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.runs import execute_together
from blockmdp.experiments.settings import Run

__all__ = ["Gpu"]

AT_ONCE = 4096  # runs; what is done of them is lost if the study is interrupted


class Gpu:
    """Does runs on a GPU, by `blockmdp.fit_many`, in this process.

    Parameters
    ----------
    folder : str or None, default=None
        Folder with the user's own modules.
    """

    def __init__(self, folder: str | None = None) -> None:
        from blockmdp.agents.many import why_no_gpu

        if why := why_no_gpu():
            raise ExecutorError(f"--device cuda cannot be used: {why}")
        self._folder = folder

    def map(
        self, runs: Iterable[Run], meanwhile: Callable[[], None]
    ) -> Iterator[tuple[Run, Outcome]]:
        """Do the runs and yield each with its outcome."""
        waiting = iter(runs)
        while batch := list(itertools.islice(waiting, AT_ONCE)):
            tasks = [(json.loads(run.setting.content), run.seed) for run in batch]
            yield from zip(batch, execute_together(tasks))
            meanwhile()

    def state(self) -> str:
        """Describe the workers in a few words."""
        return "1 GPU"

    def __enter__(self) -> Gpu:
        if self._folder is not None:
            sys.path.insert(0, self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            sys.path.remove(self._folder)
