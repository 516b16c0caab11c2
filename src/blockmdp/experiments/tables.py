"""Tables: one row for each agent in each panel, summarised over seeds."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

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
Array = np.ndarray[Any, np.dtype[np.float64]]
BLOCK = 1000  # agents that are summarised at a time


class Summary(NamedTuple):
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
    accuracy : float
        Mean accuracy of the decoder at its worst level; NaN without a decoder, or if it is unknown.
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
    accuracy: float
    unjudged: str = ""


def summarise(agents: Sequence[tuple[Setting, Sequence[Row]]]) -> list[Summary]:
    """Summarise agents over their runs, each in one panel."""
    done = [[row for row in rows if row.error is None] for _, rows in agents]
    alike: dict[int, list[int]] = {}  # agents with the same number of runs: rows of one matrix
    for i, rows in enumerate(done):
        alike.setdefault(len(rows), []).append(i)
    found: list[Any] = [None] * len(agents)
    for n, members in alike.items():
        for start in range(0, len(members), BLOCK):
            block = members[start : start + BLOCK]
            runs = [(agents[i][0], row) for i in block for row in done[i]]
            for i, of_agent in zip(block, _numbers(runs, n) if n else [_NONE] * len(block)):
                setting, ended = agents[i]
                head = setting.panel, setting.label, n, len(ended) - n, setting.measure
                why = "" if not n or of_agent[0] else unjudged(setting, done[i])
                numbers = (*_NONE[:4], *of_agent[4:]) if why else of_agent
                found[i] = Summary._make((*head, *numbers, why))
    return found


_NONE = (math.nan, 0.0, 1.0, *(math.nan,) * 12)  # the fields from `solved` to `accuracy`, no runs


def _numbers(runs: Sequence[tuple[Setting, Row]], n: int) -> Iterable[tuple[float, ...]]:
    """Return the fields from `solved` to `accuracy` for each n runs."""

    of = dict(zip(Row._fields, zip(*(row for _, row in runs))))

    def matrix(values: Sequence[float | None]) -> Array:
        return np.array(values, np.float64).reshape(-1, n)  # None becomes NaN

    at = matrix(of["solved_at"])
    at[np.isnan(at)] = math.inf
    solved = np.isfinite(at).sum(axis=1)
    final, average = matrix(of["final"]), matrix(of["average"])
    trajectories, optimal = matrix(of["trajectories"]), matrix(of["optimal"])
    learnt = matrix([_learnt(row.ledger, setting.episodes) for setting, row in runs])
    columns = (
        solved / n,
        *np.array([statistics.wilson(k, n) for k in range(n + 1)])[solved].T,
        np.median(at, axis=1),
        final.mean(axis=1),
        *statistics.bootstraps(final),
        statistics.iqms(final),
        average.mean(axis=1),
        np.median(trajectories, axis=1),
        matrix(of["seconds"]).mean(axis=1),
        matrix(of["value"]).mean(axis=1),
        optimal.mean(axis=1),
        (optimal * trajectories - average * learnt).mean(axis=1),  # as `regret`
        matrix(of["accuracy"]).mean(axis=1),
    )
    return zip(*(column.tolist() for column in columns))


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
    average = math.nan if row.average is None else row.average  # SQLite has no NaN
    return float(average * _learnt(row.ledger, setting.episodes))


@functools.lru_cache(maxsize=1024)  # many runs have the same
def _learnt(ledger: str, episodes: int) -> int:
    return json.loads(ledger).get("learn", episodes)  # type: ignore[no-any-return]


def regret(setting: Setting, row: Row) -> float | None:
    """Return the optimal value for each trajectory minus all returns; None if it is unknown."""
    if row.optimal is None:
        return None
    return row.optimal * row.trajectories - total(setting, row)


def table(summaries: Sequence[Summary], form: Form = "text", width: int = 80) -> str:
    """Return summaries as a table; the CSV form has all fields, the others the main ones."""
    if form == "csv":
        return as_csv(Summary, [summary._asdict() for summary in summaries])
    notes = {s.unjudged: None for s in summaries if s.unjudged}
    below = "".join(f"\n\nn/a: {why}" for why in notes)
    if form == "markdown":
        return aligned(columns(summaries), form) + below
    text = titled(columns(summaries[:BLOCK]))  # a part is not wider than the whole
    if widest(text) <= width and len(summaries) > BLOCK:
        text = titled(columns(summaries))
    if widest(text) > width:
        text = titled(columns(summaries, intervals=False))
    return text + below


def as_csv(kind: type, records: Sequence[Mapping[str, Any]], **more: str) -> str:
    """Return records of a class as comma-separated values, below a line with their names.

    more: further columns at the front, with the same value in each line.
    """
    file = io.StringIO()
    names = [*more, *kind.__annotations__]
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
    columns = [_printable(column) for column in zip(*rows)]
    *padded, last = (
        [cell.ljust(width) for cell in column]
        for column, width in ((column, max(map(len, column))) for column in columns)
    )
    return "\n".join(map(str.rstrip, map("  ".join, zip(*padded, last))))


def _printable(column: Sequence[str]) -> Sequence[str]:
    """Return texts without characters that control a terminal; most columns have none at all."""
    return column if "".join(column).isprintable() else [printable(cell) for cell in column]


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


def columns(summaries: Sequence[Summary], intervals: bool = True) -> list[list[str]]:
    """Return the cells of a table, by row; the first row is the head."""
    of = dict(zip(Summary._fields, list(zip(*summaries)) or [()] * len(Summary._fields)))
    judged = of["unjudged"], of["runs"], of["solved"]
    columns = {
        "problem": of["panel"],
        "agent": of["agent"],
        "solved": _each(_solved, *judged, of["solved_low"], of["solved_high"], interval=intervals),
        "at": _each(_at, *judged, of["solved_at"]),
        "by": of["measure"],
        "final": _each(_number, of["final"], of["final_low"], of["final_high"], interval=intervals),
        "value": _each(_number, of["value"]),
        "accuracy": _each(_number, of["accuracy"]),
        "failed": list(map(str, of["failed"])),
    }
    if set(columns["by"]) == {"returns"}:
        del columns["by"]
    if set(columns["accuracy"]) <= {"-"}:
        del columns["accuracy"]
    if set(columns["failed"]) == {"0"}:
        del columns["failed"]
    return [list(columns), *map(list, zip(*columns.values()))]


def _each(cell: Callable[..., str], *columns: Sequence[Any], **more: Any) -> list[str]:
    """Return a cell for each row of values; many rows have the same. more: values of all rows."""
    known = functools.cache(functools.partial(cell, **more))
    return list(map(known, *columns))


def _solved(
    unjudged: str, runs: int, solved: float, low: float, high: float, interval: bool
) -> str:
    if unjudged or not runs:
        return f"n/a ({runs} run{'s' * (runs > 1)})" if runs else "-"
    between = f" [{low:.2f}, {high:.2f}]" if interval else ""
    return f"{round(solved * runs)} of {runs}{between}"


def _at(unjudged: str, runs: int, solved: float, solved_at: float) -> str:
    if unjudged:
        return "n/a"
    return "-" if not solved > 0 else "unsolved" if math.isinf(solved_at) else f"{solved_at:.0f}"


def _number(x: float, low: float = 0.0, high: float = 0.0, interval: bool = False) -> str:
    if math.isnan(x):
        return "-"
    return f"{x:.3f} [{low:.3f}, {high:.3f}]" if interval else f"{x:.3f}"
