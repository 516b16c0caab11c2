"""Tables: one row for each agent in each panel, summarised over seeds."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from blockmdp.experiments import statistics
from blockmdp.experiments.errors import printable
from blockmdp.experiments.settings import Setting
from blockmdp.experiments.store import Row

__all__ = [
    "Form",
    "Summary",
    "aligned",
    "as_csv",
    "guarded",
    "regret",
    "summarise",
    "table",
    "titled",
    "total",
    "unjudged",
    "widest",
]

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
    value : float
        Mean exact value of the final policy; NaN if it is unknown.
    optimal : float
        Mean optimal value of the problem; NaN if it is unknown.
    regret : float
        Mean regret: the optimal value for each trajectory, minus all returns; NaN if it is unknown.
    unjudged : str
        Why it cannot be judged whether runs were solved; empty if it can.
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
    value: float
    optimal: float
    regret: float
    unjudged: str = ""


def summarise(setting: Setting, rows: Sequence[Row]) -> Summary:
    """Summarise the runs of one agent in one panel."""
    done = [row for row in rows if row.error is None]
    n, nan = len(done), math.nan
    head = (setting.panel, setting.label, n, len(rows) - n, setting.measure)
    if not n:
        none = (nan,) * 3
        return Summary(*head, nan, 0.0, 1.0, nan, *none, *none, nan, *none)
    why = unjudged(setting, done)
    solved = sum(row.solved_at is not None for row in done)
    final = np.array([row.final for row in done], np.float64)
    return Summary(
        *head,
        *((nan, 0.0, 1.0) if why else (solved / n, *statistics.wilson(solved, n))),
        nan if why else statistics.median_with_censoring([row.solved_at for row in done]),
        float(final.mean()),
        *statistics.bootstrap(final),
        statistics.iqm(final),
        float(np.mean([row.average for row in done])),
        float(np.median([row.trajectories for row in done])),
        float(np.mean([row.seconds for row in done])),
        _mean([row.value for row in done]),
        _mean([row.optimal for row in done]),
        _mean([regret(setting, row) for row in done]),
        why,
    )


def unjudged(setting: Setting, done: Sequence[Row]) -> str:
    """Say why it cannot be judged whether runs are solved; empty if it can."""
    window = setting.solved["window"]
    if setting.measure == "value" or any(row.solved_at is not None for row in done):
        return ""
    if window != "all" and window > setting.episodes:
        return f"solved.window = {window} is more than the {setting.episodes} episodes of a run"
    if setting.solved["above"] is None and all(row.optimal is None for row in done):
        return (
            "the optimal value is unknown: set solved.above; or, if an earlier version did the "
            "runs, run the study again"
        )
    return ""


def total(setting: Setting, row: Row) -> float:
    """Return the sum of all returns of a run; a fit with restarts has more than `episodes`."""
    assert row.average is not None
    return float(row.average * json.loads(row.ledger).get("learn", setting.episodes))


def regret(setting: Setting, row: Row) -> float | None:
    """Return the optimal value for each trajectory minus all returns; None if it is unknown."""
    if row.optimal is None:
        return None
    return row.optimal * row.trajectories - total(setting, row)


def _mean(known: Sequence[float | None]) -> float:
    """Return the mean, NaN if a value is unknown."""
    return float(np.mean([math.nan if value is None else value for value in known]))


def table(summaries: Sequence[Summary], form: Form = "text", width: int = 80) -> str:
    """Return summaries as a table; the CSV form has all fields, the others the main ones."""
    if form == "csv":
        return as_csv(Summary, [vars(summary) for summary in summaries])
    notes = {s.unjudged: None for s in summaries if s.unjudged}
    below = "".join(f"\n\nn/a: {why}" for why in notes)
    if form == "markdown":
        return aligned(_columns(summaries), form) + below
    text = titled(_columns(summaries))
    if widest(text) > width:
        text = titled(_columns(summaries, intervals=False))
    return text + below


def as_csv(kind: type, records: Sequence[Mapping[str, Any]], **more: str) -> str:
    """Return records of a dataclass as comma-separated values, below a line with their names.

    more: further columns at the front, with the same value in each line.
    """
    file = io.StringIO()
    names = [*more, *(field.name for field in fields(kind))]
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({key: guarded(value) for key, value in {**more, **record}.items()})
    return file.getvalue().rstrip()


def guarded(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in tuple("=+-@\t\r") else cell


def aligned(rows: Sequence[Sequence[str]], form: Form = "text") -> str:
    """Return rows of cells as text in columns, or in Markdown; the first row is the head."""
    if form == "markdown":
        lines = [" | ".join(["", *(cell.replace("|", r"\|") for cell in row), ""]).strip()
                 for row in rows]  # fmt: skip
        return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def titled(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as text; their first cells are titles above those that share one."""
    head, *lines = aligned([(f"  {row[1]}", *row[2:]) for row in rows]).splitlines()
    text, last = [head], None
    for row, line in zip(rows[1:], lines):
        text += [line] if row[0] == last else [printable(row[0]), line]
        last = row[0]
    return "\n".join(text)


def widest(text: str) -> int:
    """Return the length of the longest line."""
    return max(map(len, text.splitlines()), default=0)


def _columns(summaries: Sequence[Summary], intervals: bool = True) -> list[list[str]]:
    """Return the cells of a table, by row; the first row is the head."""
    columns = {
        "problem": [s.panel for s in summaries],
        "agent": [s.agent for s in summaries],
        "solved": [_solved(s, intervals) for s in summaries],
        "at": [_at(s) for s in summaries],
        "by": [s.measure for s in summaries],
        "final": [_number(s.final, (s.final_low, s.final_high), intervals) for s in summaries],
        "value": [_number(s.value) for s in summaries],
        "failed": [str(s.failed) for s in summaries],
    }
    if set(columns["by"]) == {"returns"}:
        del columns["by"]
    if set(columns["failed"]) == {"0"}:
        del columns["failed"]
    return [list(columns), *map(list, zip(*columns.values()))]


def _solved(s: Summary, interval: bool) -> str:
    if s.unjudged or not s.runs:
        return f"n/a ({s.runs} run{'s' * (s.runs > 1)})" if s.runs else "-"
    between = f" [{s.solved_low:.2f}, {s.solved_high:.2f}]" if interval else ""
    return f"{round(s.solved * s.runs)} of {s.runs}{between}"


def _at(s: Summary) -> str:
    if s.unjudged:
        return "n/a"
    return (
        "-" if not s.solved > 0 else "unsolved" if math.isinf(s.solved_at) else f"{s.solved_at:.0f}"
    )


def _number(x: float, interval: tuple[float, float] | None = None, shown: bool = True) -> str:
    if math.isnan(x):
        return "-"
    low, high = interval or (x, x)
    return f"{x:.3f} [{low:.3f}, {high:.3f}]" if interval and shown else f"{x:.3f}"
