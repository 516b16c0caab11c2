"""What came of a study: frames, tables, curves."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from blockmdp.envs import mdp_of
from blockmdp.experiments import statistics
from blockmdp.experiments.catalogue import build, takes_seed
from blockmdp.experiments.progress import duration
from blockmdp.experiments.runs import Curve
from blockmdp.experiments.store import Row, Store, StoreError, driver_of
from blockmdp.experiments.study import Setting, Study, titles
from blockmdp.mdp import BlockMDP

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from blockmdp.plots.curves import Panel

__all__ = ["Results", "Summary"]

POINTS = 200
Y = Literal["average", "sliding"]


@dataclass(frozen=True)
class Summary:
    """An agent on a problem, over seeds.

    Attributes
    ----------
    runs, failed : how many are there, and how many failed.
    solved, solved_low, solved_high : the share of seeds solved, with Wilson's interval.
    solved_at : the median number of trajectories until solved, unsolved runs counting as longer
        than all others; infinite if it falls among them.
    final, final_low, final_high : mean return at the end, with a bootstrap interval.
    iqm : the interquartile mean of the same.
    average : mean return over all episodes.
    trajectories : median number drawn in all.
    seconds : mean time of a run.
    """

    panel: str
    agent: str
    runs: int
    failed: int
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


class Results:
    """The runs of a study that a directory holds.

    Parameters
    ----------
    directory : where `Study.run` or `blockmdp run` put them.
    study : a study, or the name of one; by default the one that was run there last.
    tell : is given a line about each thing that is wrong.

    Examples
    --------
    >>> Results("results/my-study").frame()  # doctest: +SKIP
    """

    def __init__(
        self, directory: str | Path, study: Study | str | None = None, tell: Any = None
    ) -> None:
        self.directory = Path(directory)
        self._tell = tell or (lambda line: None)
        with Store(self.directory, tell=self._tell) as store:
            self.study = study if isinstance(study, Study) else store.study(study)
            settings = {setting.key: setting for setting in self.study.settings}
            seeds = set(self.study.seeds)
            rows = [r for r in store.rows() if r.setting in settings and r.seed in seeds]
        order = {key: i for i, key in enumerate(settings)}
        rows.sort(key=lambda row: row.seed)
        rows.sort(key=lambda row: order[row.setting])
        self.rows: list[tuple[Setting, Row]] = [(settings[row.setting], row) for row in rows]

    def __repr__(self) -> str:
        return f"<results of {self.study.name}: {len(self.done)} of {len(self.study)} runs done>"

    @cached_property
    def done(self) -> list[tuple[Setting, Row]]:
        return [pair for pair in self.rows if pair[1].error is None]

    @cached_property
    def failed(self) -> list[tuple[Setting, Row]]:
        return [pair for pair in self.rows if pair[1].error is not None]

    def frame(self) -> pd.DataFrame:
        """One row a run: what was run, and what came of it."""
        import pandas as pd

        return pd.DataFrame([_record(setting, row) for setting, row in self.rows])

    def curves(self) -> pd.DataFrame:
        """One row a point of a run's curve, about 200 for each run."""
        import pandas as pd

        curves = self._curves()
        parts = []
        for setting, row in self.done:
            if row.key in curves:
                c = curves[row.key]
                parts.append(
                    pd.DataFrame(
                        {
                            "panel": setting.panel,
                            "agent": setting.label,
                            "seed": row.seed,
                            "episodes": c.episodes,
                            "trajectories": c.trajectories,
                            "average": statistics.average_curve(c.trajectories, c.total),
                            "sliding": _y(c, "sliding", setting),
                        }
                    )
                )
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def summaries(self) -> list[Summary]:
        """One for each agent in each panel, in the order of the study."""
        groups: dict[tuple[str, str], list[Row]] = {}
        for setting, row in self.rows:
            groups.setdefault((setting.panel, setting.label), []).append(row)
        order = {panel: i for i, panel in enumerate(self.study.panels)}
        pairs = sorted(groups.items(), key=lambda item: order[item[0][0]])
        return [_summary(panel, label, rows) for (panel, label), rows in pairs]

    def table(self, form: Literal["text", "csv", "markdown"] = "text") -> str:
        """The summaries as a table in words."""
        summaries = self.summaries()
        if form == "csv":
            file = io.StringIO()
            names = list(Summary.__dataclass_fields__)
            writer = csv.DictWriter(file, names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(vars(summary) for summary in summaries)
            return file.getvalue().rstrip()
        head = ("problem", "agent", "runs", "solved", "solved at", "final mean", "IQM")
        rows = [head, *(_cells(s) for s in summaries)]
        if form == "markdown":
            lines = [" | ".join(["", *(cell.replace("|", r"\|") for cell in row), ""]).strip()
                     for row in rows]  # fmt: skip
            return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines, last = [], None
        for row in rows:
            shown = ("" if row[0] == last else row[0], *row[1:])
            last = row[0]
            lines.append("  ".join(cell.ljust(w) for cell, w in zip(shown, widths)).rstrip())
        return "\n".join(lines)

    def status(self) -> str:
        """How far the study is, in words."""
        total, done, failed = len(self.study), len(self.done), len(self.failed)
        missing = total - done - failed
        lines = [
            f"{self.study.name}: {done} of {total} runs done, {failed} failed, {missing} to do"
        ]
        driver = driver_of(self.directory)
        if driver is not None:
            since = driver.get("since", time.time())
            finished = sum(row.finished >= since for _, row in self.rows)
            rate = finished / max(time.time() - since, 1e-9)
            left = f", {duration(missing / rate)} left" if finished and missing else ""
            lines.append(
                f"running now: process {driver.get('pid')} on {driver.get('host')}, "
                f"{min(driver.get('jobs', missing), missing)} runs at a time, "
                f"{rate:.1f} runs/s{left}"
            )
        elif missing:
            lines.append("nothing is running: give the command `blockmdp run` again to go on")
        if done:
            spent = sum(row.seconds for _, row in self.done)
            lines.append(f"{duration(spent)} of computing so far, {spent / done:.3g} s a run")
        versions = {json.loads(e)["blockmdp"] for e in {r.environment for _, r in self.done}}
        if len(versions) > 1:
            lines.append(
                f"runs come from several versions of blockmdp: {', '.join(sorted(versions))}"
            )
        for setting, row in self.failed[:5]:
            why = (row.error or "").strip().splitlines() or ["?"]
            told = why[-1 if why[0].startswith("Traceback") else 0]
            lines.append(f"failed: {setting.panel} | {setting.label} | seed {row.seed}: {told}")
        if failed > 5:
            lines.append(f"... and {failed - 5} more")
        if failed:
            lines.append("do them again with --retry-failed; tracebacks: blockmdp export")
        return "\n".join(lines)

    def panels(self, y: Y = "average") -> list[Panel]:
        """Curves to draw: mean and standard deviation over seeds, on a common x-axis."""
        from blockmdp.plots import curves as figures

        curves = self._curves()
        groups: dict[str, dict[str, list[tuple[Setting, Curve]]]] = {}
        for setting, row in self.done:
            if row.key in curves:
                labels = groups.setdefault(setting.panel, {})
                labels.setdefault(setting.label, []).append((setting, curves[row.key]))
        panels = []
        for panel in self.study.panels:
            if panel not in groups:
                continue
            labels = groups[panel]
            lines = []
            for label, members in labels.items():
                x, ys = _common([(c.trajectories, _y(c, y, setting)) for setting, c in members])
                lines.append(figures.Curve(label, x, ys.mean(axis=0), ys.std(axis=0)))
            setting = next(iter(labels.values()))[0][0]
            panels.append(figures.Panel(panel, lines, _optimum(setting)))
        return panels

    def plot(self, y: Y = "average", *, against: str | None = None) -> Figure:
        """All panels, as the paper draws them: mean and one standard deviation over seeds; or how
        the trajectories until solved grow with a parameter of the problem.
        """
        from blockmdp.plots import curves as figures

        if against is not None:
            panels = self.growth(against)
            if not panels:
                raise StoreError(
                    f"{against}: no problem of {self.study.name} has it with several values, or no "
                    "run of them is done yet"
                )
            return figures.growth(panels, x_label="H" if against == "horizon" else against)
        panels = self.panels(y)
        if not panels:
            raise StoreError(f"no run of {self.study.name} in {self.directory} is done yet")
        words = "average reward" if y == "average" else "sliding mean reward"
        return figures.learning_curves(panels, columns=_columns(self.study), y_label=words)

    def growth(self, key: str) -> list[Panel]:
        """Trajectories until solved against a parameter of the problem, over seeds: the median, and
        the quarters on either side; where the median run was not solved there is no point. Of runs
        of several lengths only the longest count.
        """
        from blockmdp.plots import curves as figures

        problems: dict[str, dict[str, Any]] = {}
        groups: dict[str, dict[str, dict[float, tuple[int, list[int | None]]]]] = {}
        for setting, row in self.done:
            value = setting.problem.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                rest = {k: v for k, v in setting.problem.items() if k != key}
                name = json.dumps(rest, sort_keys=True)
                problems[name] = rest
                of_label = groups.setdefault(name, {}).setdefault(setting.label, {})
                longest, runs = of_label.get(float(value), (0, []))
                if setting.episodes > longest:
                    longest, runs = setting.episodes, []
                if setting.episodes == longest:
                    runs.append(row.solved_at)
                of_label[float(value)] = longest, runs
        panels = []
        for labels, title in zip(groups.values(), titles(list(problems.values()))):
            lines = []
            for label, at in labels.items():
                x = sorted(at)
                quarters = np.array([statistics.quartiles(at[value][1]) for value in x])
                known = np.isfinite(quarters[:, 1])
                lines.append(figures.Points(label, np.array(x)[known], *quarters[known].T))
            several = any(len(at) > 1 for at in labels.values())
            if several and any(len(points.x) for points in lines):
                panels.append(figures.Panel(title, lines))
        return panels

    def export(self, path: str | Path) -> None:
        """Write `frame` to a .csv or .parquet file."""
        path = Path(path)
        frame = self.frame()
        if path.suffix == ".csv":
            frame.to_csv(path, index=False)
        elif path.suffix == ".parquet":
            mixed = [
                name
                for name, column in frame.items()
                if column.dtype == object and column.dropna().map(type).nunique() > 1
            ]
            frame[mixed] = frame[mixed].astype("string")  # a column of Parquet has one type
            try:
                frame.to_parquet(path, index=False)
            except ImportError:
                raise StoreError(
                    "Parquet needs pyarrow: pip install 'blockmdp[parquet]', or export to .csv"
                ) from None
        else:
            raise StoreError(f"{path}: can export to .csv and .parquet")

    def _curves(self) -> dict[str, Curve]:
        with Store(self.directory, tell=self._tell) as store:
            data = store.curves(row.key for _, row in self.done)
        return {key: Curve.from_bytes(curve) for key, curve in data.items()}


def _record(setting: Setting, row: Row) -> dict[str, Any]:
    flat = {
        name: json.dumps(value) if isinstance(value, list) else value
        for name, value in setting.flat.items()
    }
    ledger = {f"ledger.{kind}": n for kind, n in json.loads(row.ledger).items()}
    environment = {f"environment.{k}": v for k, v in json.loads(row.environment).items()}
    return {
        "panel": setting.panel,
        "agent": setting.label,
        "seed": row.seed,
        "average": row.average,
        "final": row.final,
        "solved_at": row.solved_at,
        "trajectories": row.trajectories,
        "seconds": row.seconds,
        "error": row.error,
        **flat,
        **ledger,
        **environment,
        "key": row.key,
    }


def _summary(panel: str, label: str, rows: Sequence[Row]) -> Summary:
    done = [row for row in rows if row.error is None]
    n = len(done)
    if not n:
        nan = math.nan
        return Summary(panel, label, 0, len(rows), nan, 0.0, 1.0, *[nan] * 8)
    solved = sum(row.solved_at is not None for row in done)
    final = np.array([row.final for row in done], np.float64)
    return Summary(
        panel,
        label,
        n,
        len(rows) - n,
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


def _cells(s: Summary) -> tuple[str, ...]:
    if not s.runs:
        return s.panel, s.agent, f"0 ({s.failed} failed)", "-", "-", "-", "-"
    runs = f"{s.runs} ({s.failed} failed)" if s.failed else str(s.runs)
    at = "-" if not s.solved else "more" if math.isinf(s.solved_at) else f"{s.solved_at:.0f}"
    return (
        s.panel,
        s.agent,
        runs,
        f"{s.solved:.0%} [{s.solved_low:.2f}, {s.solved_high:.2f}]",
        at,
        f"{s.final:.3f} [{s.final_low:.3f}, {s.final_high:.3f}]",
        f"{s.iqm:.3f}",
    )


def _y(curve: Curve, y: Y, setting: Setting) -> np.ndarray[Any, np.dtype[np.float64]]:
    if y == "average":
        return statistics.average_curve(curve.trajectories, curve.total)
    return statistics.sliding_curve(curve.episodes, curve.total, setting.solved["window"])


def _common(lines: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Curves of several runs at common x: from where half of them have begun to where half have
    ended; a run outside of its own range stays at its end. (points,), (runs, points)
    """
    xs = [x for x, _ in lines]
    if all(np.array_equal(x, xs[0]) for x in xs[1:]):
        return xs[0].astype(np.float64), np.stack([y for _, y in lines])
    low = np.median([x[0] for x in xs])
    high = np.median([x[-1] for x in xs])
    x = np.linspace(low, high, POINTS)
    return x, np.stack([np.interp(x, own, y) for own, y in lines])


def _optimum(setting: Setting) -> float | None:
    seed = {"seed": 0} if takes_seed(setting.problem) else {}
    try:
        problem = build("problem", setting.problem, **seed)
    except Exception:  # a user's problem that is not to be had here
        return None
    mdp = problem if isinstance(problem, BlockMDP) else mdp_of(problem)
    return None if mdp is None else mdp.optimal_value()


def _columns(study: Study) -> int:
    """As many as the last of the problem's axes has values."""
    n = len(study.panels)
    problems = [dict(s.problem) for s in study.settings]
    for key in reversed(list(problems[0])):
        values = {str(problem.get(key)) for problem in problems}
        if 1 < len(values) <= 4 and n % len(values) == 0:
            return len(values)
    return 3
