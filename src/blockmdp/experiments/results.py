"""Results of a study: frames, tables and figures of the runs in a store."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from blockmdp.checks import warn as warn_user
from blockmdp.experiments import reporting, statistics, tables
from blockmdp.experiments.comparison import MEASURES, By, Comparison, Scores
from blockmdp.experiments.errors import StoreError, printable, suggest
from blockmdp.experiments.labels import panel_titles
from blockmdp.experiments.lock import driver_of
from blockmdp.experiments.outcome import Curve, Decoding, Values
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.progress import duration, speed
from blockmdp.experiments.settings import Setting
from blockmdp.experiments.store import Row, Store

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from blockmdp.plots.curves import Panel

__all__ = ["Ended", "Results", "compare", "export", "report"]

POINTS = 200
CURVES = ("average", "sliding", "regret")  # columns of `curves`
BY_LEVEL = ("accuracy", "labels")  # columns of `decoding`
Y = Literal["average", "sliding", "value", "regret", "accuracy", "labels"]
Of = Literal["solved", "regret"]
Matrix = np.ndarray[Any, np.dtype[np.float64]]


class Results:
    """The stored runs of a study.

    Parameters
    ----------
    directory : str or Path
        Directory of the store, where `Study.run` or `blockmdp run` put the runs.
    study : Study, str or None, default=None
        A study, or the name of one in the store. None is the study that was run last.
    warn : callable, default=blockmdp.checks.warn
        Called with one line about everything that is damaged or missing. By default, this is a
        Python warning.

    Attributes
    ----------
    directory : Path
        Directory of the store.
    study : Plan
        Settings and seeds of the study: a `Study` without the method `run`.
    rows : list of tuple of (Setting, Row)
        All runs that have ended, by setting and seed.
    done : list of tuple of (Setting, Row)
        The runs that were finished.
    failed : list of tuple of (Setting, Row)
        The runs that failed.

    Raises
    ------
    StoreError
        If the directory has no store, or the store has no such study.

    See Also
    --------
    Study : Runs a study and returns its results.

    Examples
    --------
    >>> import tempfile
    >>> import blockmdp as bm
    >>> study = bm.Study(
    ...     {
    ...         "seeds": 2,
    ...         "episodes": 300,
    ...         "problem": {"name": "lock_bernoulli", "horizon": 2},
    ...         "agent": {"name": "Tabular", "on": "latent"},
    ...     }
    ... )
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     results = study.run(directory, jobs=1, quiet=True)
    ...     bm.Results(directory)
    <results of study: 2 of 2 runs done>
    >>> results.frame()["ledger.learn"].tolist()
    [300, 300]
    """

    _exact = True  # whether rows have optimal and final values

    def __init__(
        self,
        directory: str | Path,
        study: Plan | str | None = None,
        warn: Callable[[str], None] = warn_user,
    ) -> None:
        self.directory = Path(directory)
        self._warn = warn
        with Store(self.directory, warn=warn) as store:
            self.study = study if isinstance(study, Plan) else store.plan(study)
            settings = {setting.key: setting for setting in self.study.settings}
            seeds = set(self.study.seeds)
            ended = store.rows(self._exact)
        by_setting: dict[str, list[Row]] = {key: [] for key in settings}
        for row in ended:
            if row.setting in by_setting and row.seed in seeds:
                by_setting[row.setting].append(row)
        self.rows: list[tuple[Setting, Row]] = [
            (settings[key], row)
            for key, rows in by_setting.items()
            for row in (sorted(rows, key=lambda row: row.seed) if len(rows) > 1 else rows)
        ]

    def __repr__(self) -> str:
        return f"<results of {self.study.name}: {len(self.done)} of {len(self.study)} runs done>"

    @cached_property
    def done(self) -> list[tuple[Setting, Row]]:
        """The runs that were finished."""
        return [pair for pair in self.rows if pair[1].error is None]

    @cached_property
    def failed(self) -> list[tuple[Setting, Row]]:
        """The runs that failed."""
        return [pair for pair in self.rows if pair[1].error is not None]

    # --- tables -----------------------------------------------------------------------------------
    def frame(self) -> pd.DataFrame:
        """Return a frame with one row for each run.

        Returns
        -------
        DataFrame
            With these columns:

            - `panel`, `agent`, `seed`: title of the panel, label of the agent, seed of the run;
            - `average`: mean return over all learning episodes;
            - `final`: mean return over the last `solved.window` episodes; if runs are solved by
              value, that of the final policy;
            - `solved_at`: trajectories of all kinds until the run was solved, missing if it never
              was;
            - `measure`: by what it counts as solved, "returns" or "value";
            - `trajectories`: trajectories of all kinds that were drawn;
            - `optimal`: optimal value of the problem, missing for a black box;
            - `value`: value of the final policy, computed from the model, missing for a black box;
            - `regret`: `optimal` for each trajectory of any kind, minus all returns;
            - `accuracy`: accuracy of the decoder at its worst level, missing for an agent without
              one and for a black box; see `decoding`;
            - `seconds`: time that the run took;
            - `error`: traceback of a failed run, missing if it did not fail;
            - `problem.*`, `agent.*`, `episodes`: every parameter by its dotted name, such as
              `problem.horizon` or `agent.learner.lr`;
            - `ledger.*`: trajectories by kind, such as `ledger.oracle`, `ledger.test` and
              `ledger.learn`;
            - `environment.*`: versions of Python and packages, machine, host, number of threads;
            - `key`: key of the run in the store.
        """
        import pandas as pd  # here, because it takes a second

        return pd.DataFrame([_record(setting, row) for setting, row in self.rows])

    def curves(self) -> pd.DataFrame:
        """Return a frame with about 200 points of the learning curve of each finished run.

        Returns
        -------
        DataFrame
            With these columns:

            - `panel`, `agent`, `seed`: title of the panel, label of the agent, seed of the run;
            - `episodes`: learning episodes so far;
            - `trajectories`: trajectories of all kinds so far;
            - `average`: sum of all returns so far, divided by `trajectories`;
            - `sliding`: mean return of the last `solved.window` episodes;
            - `regret`: optimal value for each trajectory so far, minus the returns so far; missing
              for a black box.
        """
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
                            **{y: _y(c, y, setting, row) for y in CURVES},
                        }
                    )
                )
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def values(self) -> pd.DataFrame:
        """Return a frame with the exact value of the policy at about 20 points of each run.

        Returns
        -------
        DataFrame
            Runs of black boxes have no rows. The columns are:

            - `panel`, `agent`, `seed`: title of the panel, label of the agent, seed of the run;
            - `trajectories`: trajectories of all kinds so far;
            - `value`: expected return of the greedy policy at that point, computed from the model;
            - `optimal`: optimal value of the problem.
        """
        import pandas as pd

        stored = self._values()
        parts = [
            pd.DataFrame(
                {
                    "panel": setting.panel,
                    "agent": setting.label,
                    "seed": row.seed,
                    "trajectories": stored[row.key].trajectories,
                    "value": stored[row.key].value,
                    "optimal": row.optimal,
                }
            )
            for setting, row in self.done
            if row.key in stored
        ]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def decoding(self) -> pd.DataFrame:
        """Return a frame with the accuracy of each run's decoder at each level.

        It was measured at the end of the run, on about 300 fresh observations of each level.

        Returns
        -------
        DataFrame
            Runs without a decoder and runs of black boxes have no rows. The columns are:

            - `panel`, `agent`, `seed`: title of the panel, label of the agent, seed of the run;
            - `level`: the level, from 0 to H;
            - `accuracy`: how well labels tell its latent states apart, between 0 and 1; see
              `blockmdp.measures.accuracy`;
            - `labels`: how many different labels the observations got.
        """
        import pandas as pd

        stored = self._decoding()
        parts = [
            pd.DataFrame(
                {
                    "panel": setting.panel,
                    "agent": setting.label,
                    "seed": row.seed,
                    "level": np.arange(len(stored[row.key].labels)),
                    "accuracy": stored[row.key].accuracy,
                    "labels": stored[row.key].labels,
                }
            )
            for setting, row in self.done
            if row.key in stored
        ]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def summaries(self) -> list[tables.Summary]:
        """Summarise each agent in each panel over its seeds.

        Returns
        -------
        list of Summary
            In the order of the study.
        """
        groups: dict[str, tuple[Setting, list[Row]]] = {}
        for setting, row in self.rows:
            groups.setdefault(setting.key, (setting, []))[1].append(row)
        order = {panel: i for i, panel in enumerate(self.study.panels)}
        found = sorted(groups.values(), key=lambda pair: order[pair[0].panel])
        return tables.summarise(found)

    def table(self, form: Literal["text", "csv", "markdown"] = "text", width: int = 80) -> str:
        """Return a table with one row for each agent in each panel.

        Parameters
        ----------
        form : {"text", "csv", "markdown"}, default="text"
            Format of the table.
        width : int, default=80
            Columns of text. A table that is wider leaves out intervals.

        Returns
        -------
        str
            The CSV form has all fields of `Summary`. The other forms have these columns, with 95 %
            intervals in brackets:

            - problem: title of the panel, in text above its agents;
            - agent: label of the agent;
            - solved: how many of the finished runs were solved, with Wilson's interval; "n/a" if
              that cannot be judged, with the reason below the table;
            - at: median number of trajectories until solved; "unsolved" if the median run was not
              solved, "-" if none was;
            - by: how this was measured, "returns" or "value", unless all are "returns";
            - final: mean return over the last `solved.window` episodes, or value of the final
              policy, with a bootstrap interval;
            - value: mean of the exact value of the final policy, "-" for a black box;
            - accuracy: mean of the accuracy of the decoder at its worst level, "-" for an agent
              without one, if there is any;
            - failed: number of failed runs, if there are any.
        """
        return tables.table(self.summaries(), form, width)

    def compare(self, one: str, other: str, by: By = "reward") -> Comparison:
        """Compare two agents, seed by seed.

        Parameters
        ----------
        one, other : str
            Labels of the agents.
        by : {"reward", "final", "solved"}, default="reward"
            What is compared:

            - "reward": sum of all returns, divided by the number of trajectories of any kind;
            - "final": mean return over the last `solved.window` episodes; if runs are solved by
              value, that of the final policy;
            - "solved": number of trajectories until solved, up to as many as all runs of the panel
              have drawn; runs that are not solved by then count as equal.

            Rewards are divided by the optimal value, if that is known and positive in all panels.

        Returns
        -------
        Comparison
            The result: a table, a summary and a figure.

        Raises
        ------
        StoreError
            If the study has no such agent, or no panel in which both have runs.
        """
        return compare([self], one, other, by)

    def export(self, path: str | Path) -> None:
        """Write `frame` to a file, with the name of the study in the first column.

        Parameters
        ----------
        path : str or Path
            A .csv or .parquet file.

        Raises
        ------
        StoreError
            If the file has another ending, or Parquet needs pyarrow.
        """
        export([self], path)

    def report(self, path: str | Path) -> None:
        """Write one HTML file that shows the study and opens without a network.

        It has learning curves with the values of single seeds, where decoders err, the table,
        failed runs with their errors, versions, and the study file. Nothing that the store names is
        imported or called.

        Parameters
        ----------
        path : str or Path
            An .html file.

        Raises
        ------
        StoreError
            If the file has another ending or cannot be written.
        """
        report([self], path)

    def status(self) -> str:
        """Return a text about how far the study is.

        Returns
        -------
        str
            Numbers of finished, failed and missing runs, the running process, the time left, and
            the first errors.
        """
        total, done, failed = len(self.study), len(self.done), len(self.failed)
        missing = total - done - failed
        lines = [
            f"{self.study.name}: {done} of {total} runs done, {failed} failed, {missing} to do"
        ]
        if self._measures != "returns":
            lines.append(f"runs are solved by {self._measures}")
        driver = driver_of(self.directory)
        if driver is not None:
            since = driver.get("since", time.time())
            finished = sum(row.finished >= since for _, row in self.rows)
            rate = finished / max(time.time() - since, 1e-9)
            left = f", {duration(missing / rate)} left" if finished and missing else ""
            lines.append(
                f"running: process {driver.get('pid')} on {driver.get('host')}, "
                f"{min(driver.get('jobs', missing), missing)} at a time"
                f"{f', {speed(rate)}' if finished else ''}{left}"
            )
        elif missing:
            lines.append("not running: repeat the `blockmdp run` command to do the missing runs")
        if done:
            spent = sum(row.seconds for _, row in self.done)
            lines.append(f"computing time: {duration(spent)}, {spent / done:.3g} s per run")
        versions = {
            str(json.loads(e).get("blockmdp")) for e in {r.environment for _, r in self.done}
        }
        if len(versions) > 1:
            names = ", ".join(sorted(versions))
            lines.append(f"the runs were done by different versions of blockmdp: {names}")
        for setting, row in self.failed[:5]:
            error = (row.error or "").strip().splitlines() or ["?"]
            reason = error[-1 if error[0].startswith("Traceback") else 0]
            lines.append(f"failed: {setting.panel} | {setting.label} | seed {row.seed}: {reason}")
        if failed > 5:
            lines.append(f"... and {failed - 5} more")
        if failed:
            lines.append("to repeat failed runs: --retry-failed; for tracebacks: blockmdp export")
        return "\n".join(map(printable, lines))

    # --- figures ----------------------------------------------------------------------------------
    def panels(self, y: Y = "average") -> list[Panel]:
        """Return the learning curves of all panels: mean and standard deviation over seeds.

        Parameters
        ----------
        y : {"average", "sliding", "value", "regret", "accuracy", "labels"}, default="average"
            Quantity on the y-axis, a column of `curves`, `values` or `decoding`. The last two are
            shown against the level.

        Returns
        -------
        list of blockmdp.plots.Panel
            In the order of the study, without panels that have no finished run.
        """
        from blockmdp.plots import curves as plots  # here, because matplotlib takes a second

        if y not in (*CURVES, "value", *BY_LEVEL):
            names = ", ".join((*CURVES, "value", *BY_LEVEL))
            raise ValueError(f"y must be one of {names}, got {y!r}")
        read = self._decoding if y in BY_LEVEL else self._values if y == "value" else self._curves
        stored: dict[str, Any] = read()
        groups: dict[str, dict[str, dict[int, tuple[Any, Matrix]]]] = {}
        optima: dict[str, dict[int, float | None]] = {}
        for setting, row in self.done:
            if row.key in stored and not (y == "regret" and row.optimal is None):
                labels = groups.setdefault(setting.panel, {})
                labels.setdefault(setting.label, {})[row.seed] = _line(
                    stored[row.key], y, setting, row
                )
                best = {"accuracy": 1.0, "labels": None, "regret": None}.get(y, row.optimal)
                optima.setdefault(setting.panel, {})[row.seed] = best
        panels = []
        for panel in self.study.panels:
            lines = []
            for label, members in groups.get(panel, {}).items():
                x, ys = _common(list(members.values()), hold=y == "value")
                mean, std = ys.mean(axis=0), ys.std(axis=0)
                lines.append(plots.Curve(label, x, mean, std, list(members), ys))
            if lines:
                known = [best for best in optima[panel].values() if best is not None]
                panels.append(plots.Panel(panel, lines, float(np.mean(known)) if known else None))
        return panels

    def growth(self, parameter: str) -> list[Panel]:
        """Return how the number of trajectories until solved grows with a parameter.

        Parameters
        ----------
        parameter : str
            A numeric parameter of the problem, such as "horizon".

        Returns
        -------
        list of blockmdp.plots.Panel
            Median and quartiles over seeds, one panel for each problem that has several values of
            the parameter. There is no point where the median run was not solved. If runs differ in
            their number of episodes, only the longest count.
        """
        from blockmdp.plots import curves as plots

        problems: dict[str, dict[str, Any]] = {}
        groups: dict[str, dict[str, dict[float, tuple[int, list[int | None]]]]] = {}
        for setting, row in self.done:
            value = setting.problem.get(parameter)
            if isinstance(value, int | float) and not isinstance(value, bool):
                rest = {k: v for k, v in setting.problem.items() if k != parameter}
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
        for labels, title in zip(groups.values(), panel_titles(list(problems.values()))):
            lines = []
            for label, at in labels.items():
                x = sorted(at)
                quarters = np.array([statistics.quartiles(at[value][1]) for value in x])
                known = np.isfinite(quarters[:, 1])
                lines.append(plots.Points(label, np.array(x)[known], *quarters[known].T))
            several = any(len(at) > 1 for at in labels.values())
            if several and any(len(points.x) for points in lines):
                panels.append(plots.Panel(title, lines))
        return panels

    def cells(self, of: Of = "solved") -> tuple[Matrix, list[str], list[str]]:
        """Return the median over seeds of one number for each agent in each panel.

        Parameters
        ----------
        of : {"solved", "regret"}, default="solved"
            The number of trajectories until solved, infinite if the median run was not; or the
            regret: how many optimal returns were lost, of one for each trajectory. Trajectories
            that only train a decoder count as lost.

        Returns
        -------
        values : ndarray of shape (n_agents, n_panels)
            The medians. NaN where there is no run, where it cannot be judged whether a run is
            solved, or where the optimal value is unknown or not positive.
        agents, panels : list of str
            Labels of the rows and titles of the columns, in the order of the study.
        """
        if of not in ("solved", "regret"):
            raise ValueError(f"of must be 'solved' or 'regret', got {of!r}")
        groups: dict[tuple[str, str], list[tuple[Setting, Row]]] = {}
        for setting, row in self.done:
            groups.setdefault((setting.label, setting.panel), []).append((setting, row))
        found = {label for label, _ in groups}
        settings = sorted(self.study.settings, key=lambda setting: setting.agent_index)
        agents = [each for each in dict.fromkeys(s.label for s in settings) if each in found]
        panels = [panel for panel in self.study.panels if any(panel == p for _, p in groups)]
        values = np.full((len(agents), len(panels)), np.nan)
        for (label, panel), runs in groups.items():
            rows = [row for _, row in runs]
            if of == "regret":
                cell = np.median([_lost(setting, row) for setting, row in runs])
            elif tables.unjudged(runs[0][0], rows):
                cell = np.nan
            else:
                cell = statistics.median_with_censoring([row.solved_at for row in rows])
            values[agents.index(label), panels.index(panel)] = cell
        return values, agents, panels

    def plot_map(self, of: Of = "solved") -> Figure:
        """Draw `cells` as a heat map, with one row for each agent and one column for each panel.

        Parameters
        ----------
        of : {"solved", "regret"}, default="solved"
            What to show.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        StoreError
            If no run is finished.
        """
        from blockmdp.plots.maps import heat_map

        values, agents, panels = self.cells(of)
        if not agents:
            raise StoreError(f"{self.study.name} has no finished runs in {self.directory}")
        by = "" if self._measures == "returns" else f", by {self._measures}"
        words = {"solved": f"trajectories until solved{by}", "regret": "regret, in optimal returns"}
        return heat_map(values, agents, panels, label=words[of])

    def plot(self, y: Y = "average", *, against: str | None = None) -> Figure:
        """Draw all panels.

        Parameters
        ----------
        y : {"average", "sliding", "value", "regret", "accuracy", "labels"}, default="average"
            Quantity on the y-axis of learning curves: the sum of all returns so far per trajectory;
            the mean return of the last `solved.window` episodes; the exact value of the greedy
            policy; or the optimal value for each trajectory so far, minus all returns so far. Or,
            against the level, the accuracy of the final decoder, or its number of labels. All but
            the first two need a Block MDP.
        against : str or None, default=None
            A numeric parameter of the problem, such as "horizon". If given, draw how the number of
            trajectories until solved grows with it, instead of learning curves.

        Returns
        -------
        matplotlib.figure.Figure
            Learning curves show mean and standard deviation over seeds.

        Raises
        ------
        StoreError
            If no run is finished, or no problem has several values of the parameter.
        """
        from blockmdp.plots import curves as plots

        if against is not None:
            panels = self.growth(against)
            if not panels:
                raise StoreError(
                    f"{against}: no problem of {self.study.name} has several values of it, or none "
                    "of their runs is finished"
                )
            x_label = "H" if against == "horizon" else against
            if self._measures == "returns":
                return plots.growth(panels, x_label=x_label)
            y_label = f"trajectories until solved, by {self._measures}"
            return plots.growth(panels, x_label=x_label, y_label=y_label)
        panels = self.panels(y)
        if not panels:
            if self.done:
                raise StoreError(
                    f"{self.study.name} has no runs with a known {y}: it needs a Block MDP, an "
                    f"agent{' with a decoder' * (y in BY_LEVEL)}, and runs of this version"
                )
            raise StoreError(f"{self.study.name} has no finished runs in {self.directory}")
        words = {
            "average": "average reward",
            "sliding": "sliding mean reward",
            "value": "value of the policy",
            "regret": "regret",
            "accuracy": "accuracy of the decoder",
            "labels": "labels of the decoder",
        }
        x_label = "level" if y in BY_LEVEL else "training trajectories"
        return plots.learning_curves(
            panels,
            columns=_columns(self.study),
            x_label=x_label,
            y_label=words[y],
            log_x=y == "value",
        )

    @property
    def _measures(self) -> str:
        """By what runs count as solved, in words."""
        return " or ".join(sorted({setting.measure for setting in self.study.settings}))

    def _curves(self) -> dict[str, Curve]:
        with Store(self.directory, warn=self._warn) as store:
            data = store.curves(row.key for _, row in self.done)
        return self._unpacked(Curve, data)

    def _values(self) -> dict[str, Values]:
        with Store(self.directory, warn=self._warn) as store:
            data = store.values(row.key for _, row in self.done)
        return self._unpacked(Values, data)

    def _decoding(self) -> dict[str, Decoding]:
        with Store(self.directory, warn=self._warn) as store:
            data = store.decoding(row.key for _, row in self.done)
        return self._unpacked(Decoding, data)

    def _unpacked(self, kind: type[Any], data: dict[str, bytes]) -> dict[str, Any]:
        found = {}
        for key, packed in data.items():
            try:
                found[key] = kind.from_bytes(packed)
            except ValueError:  # not written by us
                what = "accuracies" if kind is Decoding else "curve"
                self._warn(f"{self.directory}: the {what} of run {key} cannot be read")
        return found


class Ended(Results):
    """Which runs have ended, for `status`: results without optimal and final values."""

    _exact = False


def compare(studies: Sequence[Results], one: str, other: str, by: By = "reward") -> Comparison:
    """Compare two agents in all panels of several studies. See `Results.compare`.

    Parameters
    ----------
    studies : sequence of Results
        Results of the studies. If there are several, their names are in the titles of the panels.
    one, other : str
        Labels of the agents.
    by : {"reward", "final", "solved"}, default="reward"
        What is compared.

    Returns
    -------
    Comparison
        The result.
    """
    if by not in MEASURES:
        raise ValueError(f"by must be one of {', '.join(MEASURES)}, got {by!r}")
    if one == other:
        raise StoreError(f"{one} cannot be compared with itself")
    pairs: dict[str, list[_Pair]] = {}
    known: dict[str, None] = {}
    seen: set[tuple[str, str]] = set()
    lone_seeds = lone_panels = 0
    for results in studies:
        runs: dict[str, dict[int, dict[str, tuple[Setting, Row]]]] = {}
        for setting, row in results.done:
            known[setting.label] = None
            if setting.label in (one, other):
                seeds = runs.setdefault(setting.panel, {})
                seeds.setdefault(row.seed, {})[setting.label] = (setting, row)
        for panel, seeds in runs.items():
            both = [(found[one], found[other]) for found in seeds.values() if len(found) == 2]
            lone_seeds += len(seeds) - len(both) if both else 0
            lone_panels += not both
            new = [pair for pair in both if _keys(pair) not in seen]  # studies can share runs
            seen.update(map(_keys, new))
            if new:
                title = panel if len(studies) == 1 else f"{results.study.name}: {panel}"
                pairs[title] = new
    for label in (one, other):
        if label not in known:
            raise StoreError(f"there are no finished runs of {label!r}{suggest(label, known)}")
    if not pairs:
        raise StoreError(f"{one} and {other} have no seed in common in any panel")
    every = [run for both in pairs.values() for pair in both for run in pair]
    optimal = [row.optimal for _, row in every]
    scaled = by != "solved" and all(best is not None and best > 0 for best in optimal)
    if by == "solved" and all(row.solved_at is None for _, row in every):
        raise StoreError(f"no run of {one} or {other} was solved: compare them by reward or final")
    alone = {"seed": lone_seeds, "panel": lone_panels}
    lone = [f"{n} {what}{'s' * (n > 1)}" for what, n in alone.items() if n]
    return Comparison(
        (one, other),
        by,
        [_scores(panel, both, by, scaled) for panel, both in pairs.items()],
        "as a share of the optimum" if scaled else "",
        f"left out: {' and '.join(lone)} without finished runs of both" if lone else "",
    )


_Pair = tuple[tuple[Setting, Row], tuple[Setting, Row]]


def _keys(pair: _Pair) -> tuple[str, str]:
    (_, one), (_, other) = pair
    return one.key, other.key


def _scores(panel: str, both: Sequence[_Pair], by: By, scaled: bool) -> Scores:
    if by != "solved":
        runs = np.array([[_score(*run, by, scaled) for run in pair] for pair in both])
        return Scores(panel, runs, np.ones(runs.shape, np.bool_))
    limit = min(row.trajectories for pair in both for _, row in pair)
    at = np.array([[row.solved_at or np.inf for _, row in pair] for pair in both])
    return Scores(panel, np.minimum(at, limit), at <= limit)


def _score(setting: Setting, row: Row, by: By, scaled: bool) -> float:
    score = row.final if by == "final" else tables.total(setting, row) / row.trajectories
    assert score is not None
    return score / (row.optimal or 1.0) if scaled else score


def export(studies: Sequence[Results], path: str | Path) -> None:
    """Write the runs of several studies to a file. See `Results.export`.

    Parameters
    ----------
    studies : sequence of Results
        Results of the studies; their names are in the first column.
    path : str or Path
        A .csv or .parquet file.
    """
    import pandas as pd

    path = Path(path)
    frames = [results.frame() for results in studies]
    for results, frame in zip(studies, frames):
        frame.insert(0, "study", results.study.name)
    frame = pd.concat(frames, ignore_index=True)
    if path.suffix == ".csv":
        texts = frame.select_dtypes(include=["object", "string"]).columns
        frame[texts] = frame[texts].map(tables.guarded)
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
        raise StoreError(f"{path}: must end in .csv or .parquet")


def report(studies: Sequence[Results], path: str | Path) -> None:
    """Write an HTML file that shows several studies. See `Results.report`.

    Parameters
    ----------
    studies : sequence of Results
        Results of the studies.
    path : str or Path
        An .html file.
    """
    with Store(studies[0].directory, warn=studies[0]._warn) as store:
        kept = len(store.names())
    names = ", ".join(results.study.name for results in studies)
    reporting.write_report(
        reporting.Report(
            f"Results of {names}",
            "Made from stored runs by blockmdp, a toolkit for exploration in Block MDPs.",
            reporting.about(len(studies), kept),
            [part_of(results) for results in studies],
        ),
        path,
    )


def part_of(results: Results, **more: Any) -> reporting.Part:
    """Return a study as a part of a report. more: its title, and titles of its panels."""
    state = ""
    if driver_of(results.directory) is not None:
        state = "a process is writing to the store at the moment"
    return reporting.Part(
        results.study, results.rows, results.panels, results.summaries(), state, **more
    )


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
        "measure": setting.measure,
        "trajectories": row.trajectories,
        "optimal": row.optimal,
        "value": row.value,
        "regret": None if row.error is not None else tables.regret(setting, row),
        "accuracy": row.accuracy,
        "seconds": row.seconds,
        "error": row.error,
        **flat,
        **ledger,
        **environment,
        "key": row.key,
    }


def _line(run: Any, y: str, setting: Setting, row: Row) -> tuple[Any, Matrix]:
    """Return what a figure shows of a run: x and y."""
    if y in BY_LEVEL:
        line = np.asarray(getattr(run, y), np.float64)
        return np.arange(len(line)), line
    return run.trajectories, run.value if y == "value" else _y(run, y, setting, row)


def _y(curve: Curve, y: str, setting: Setting, row: Row) -> Matrix:
    if y == "average":
        return statistics.average_curve(curve.trajectories, curve.total)
    if y == "regret":
        best = math.nan if row.optimal is None else row.optimal
        return np.asarray(best * curve.trajectories - curve.total, np.float64)
    return statistics.sliding_curve(curve.episodes, curve.total, setting.solved["window"])


def _common(lines: Sequence[tuple[Any, Any]], hold: bool = False) -> tuple[Any, Any]:
    """Return the curves of several runs at common x, of shapes (points,) and (runs, points).

    The common x goes from the median start to the median end of the runs. A run keeps its first and
    last value outside of its own range. Between two points it is interpolated, or, with `hold`,
    keeps the value of the first one; then x is spaced geometrically.
    """
    xs = [x for x, _ in lines]
    if all(np.array_equal(x, xs[0]) for x in xs[1:]):
        return xs[0].astype(np.float64), np.stack([y for _, y in lines])
    low = np.median([x[0] for x in xs])
    high = np.median([x[-1] for x in xs])
    if hold:
        x = np.geomspace(low, high, POINTS)
        at = [np.maximum(np.searchsorted(own, x, side="right") - 1, 0) for own, _ in lines]
        return x, np.stack([y[i] for i, (_, y) in zip(at, lines)])
    x = np.linspace(low, high, POINTS)
    return x, np.stack([np.interp(x, own, y) for own, y in lines])


def _lost(setting: Setting, row: Row) -> float:
    """Return the regret in optimal returns, NaN if that is unknown."""
    lost = tables.regret(setting, row)
    known = lost is not None and row.optimal is not None and row.optimal > 0
    return lost / row.optimal if known else math.nan  # type: ignore[operator]


def _columns(plan: Plan) -> int:
    """Return the number of values of the problem's last axis, if that makes full rows."""
    n = len(plan.panels)
    problems = [dict(s.problem) for s in plan.settings]
    for key in reversed(list(problems[0])):
        values = {str(problem.get(key)) for problem in problems}
        if 1 < len(values) <= 4 and n % len(values) == 0:
            return len(values)
    return 3
