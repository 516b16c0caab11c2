"""Tables: one row for each agent in each panel, summarised over seeds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from blockmdp.experiments import statistics
from blockmdp.experiments.store import Row

__all__ = ["Form", "Summary", "aligned", "as_csv", "summarise", "table"]

Form = Literal["text", "csv", "markdown"]


@dataclass(frozen=True)
class Summary:
    """An agent in a panel, summarised over seeds. All intervals are 95 % intervals.

    Attributes
    ----------
    panel, agent : str
        Title of the panel and label of the agent.
    runs, failed : int
        Number of finished and of failed runs.
    measure : str
        By what a run counts as solved, "returns" or "value".
    solved, solved_low, solved_high : float
        Fraction of the finished runs that were solved, with Wilson's interval.
    solved_at : float
        Median number of trajectories until solved. Unsolved runs count as longer than all others;
        infinite if the median run was not solved.
    final, final_low, final_high : float
        Mean return at the end of the run (over the last `solved.window` episodes), with a bootstrap
        interval.
    iqm : float
        Interquartile mean of the return at the end.
    average : float
        Mean return over all episodes.
    trajectories : float
        Median number of trajectories of all kinds.
    seconds : float
        Mean time of a run.
    """

    panel: str
    agent: str
    runs: int
    failed: int
    measure: str
    solved: float
    solved_low: float
    solved_high: float
    solved_at: float
    final: float
    final_low: float
    final_high: float
    iqm: float
    average: float
    trajectories: float
    seconds: float


def summarise(panel: str, label: str, rows: Sequence[Row], measure: str = "returns") -> Summary:
    """Summarise the runs of one agent in one panel."""
    done = [row for row in rows if row.error is None]
    n = len(done)
    if not n:
        nan = math.nan
        return Summary(panel, label, 0, len(rows), measure, nan, 0.0, 1.0, *[nan] * 8)
    solved = sum(row.solved_at is not None for row in done)
    final = np.array([row.final for row in done], np.float64)
    return Summary(
        panel,
        label,
        n,
        len(rows) - n,
        measure,
        solved / n,
        *statistics.wilson(solved, n),
        statistics.median_with_censoring([row.solved_at for row in done]),
        float(final.mean()),
        *statistics.bootstrap(final),
        statistics.iqm(final),
        float(np.mean([row.average for row in done])),
        float(np.median([row.trajectories for row in done])),
        float(np.mean([row.seconds for row in done])),
    )


def table(summaries: Sequence[Summary], form: Form = "text") -> str:
    """Return summaries as a table; the CSV form has all fields, the others the main ones."""
    if form == "csv":
        return as_csv(Summary, [vars(summary) for summary in summaries])
    head = ("problem", "agent", "runs", "solved", "solved at", "final mean", "IQM")
    rows = [head, *(_cells(s) for s in summaries)]
    measures = [s.measure for s in summaries]
    if set(measures) - {"returns"}:  # say which, next to what was measured
        rows = [(*row[:5], cell, *row[5:]) for row, cell in zip(rows, ["by", *measures])]
    return aligned(rows, form)


def as_csv(kind: type, records: Sequence[Mapping[str, Any]], **more: str) -> str:
    """Return records of a dataclass as comma-separated values, below a line with their names.

    more: further columns at the front, with the same value in each line.
    """
    file = io.StringIO()
    names = [*more, *(field.name for field in fields(kind))]
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**more, **record} for record in records)
    return file.getvalue().rstrip()


def aligned(rows: Sequence[Sequence[str]], form: Form = "text") -> str:
    """Return rows of cells as text in columns, or in Markdown; the first row is the head.

    As text, a first cell that is the same as in the row above is not repeated.
    """
    if form == "markdown":
        lines = [" | ".join(["", *(cell.replace("|", r"\|") for cell in row), ""]).strip()
                 for row in rows]  # fmt: skip
        return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    lines, last = [], None
    for row in rows:
        shown = ("" if row[0] == last else row[0], *row[1:])
        last = row[0]
        lines.append("  ".join(cell.ljust(w) for cell, w in zip(shown, widths)).rstrip())
    return "\n".join(lines)


def _cells(s: Summary) -> tuple[str, ...]:
    if not s.runs:
        return s.panel, s.agent, f"0 ({s.failed} failed)", "-", "-", "-", "-"
    runs = f"{s.runs} ({s.failed} failed)" if s.failed else str(s.runs)
    at = "-" if not s.solved else "unsolved" if math.isinf(s.solved_at) else f"{s.solved_at:.0f}"
    return (
        s.panel,
        s.agent,
        runs,
        f"{s.solved:.0%} [{s.solved_low:.2f}, {s.solved_high:.2f}]",
        at,
        f"{s.final:.3f} [{s.final_low:.3f}, {s.final_high:.3f}]",
        f"{s.iqm:.3f}",
    )
