"""Whether one agent is better than another: their runs with the same seeds, panel by panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from blockmdp.experiments import statistics, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MEASURES", "By", "Comparison", "Duel", "Scores"]

Array = NDArray[np.float64]
By = Literal["reward", "final", "solved"]

MEASURES = {
    "reward": "reward per trajectory of any kind",
    "final": "return at the end",
    "solved": "trajectories until solved",
}
LEVEL = 0.05  # of the corrected tests


@dataclass(frozen=True)
class Scores:
    """The runs of two agents in one panel, in pairs with the same seed.

    Attributes
    ----------
    panel : str
        Title of the panel.
    runs : ndarray of shape (n, 2)
        What is compared, of both agents.
    reached : ndarray of shape (n, 2)
        False where a run was not solved in time, if that is what is compared; then `runs` has the
        number of trajectories up to which runs are compared.
    """

    panel: str
    runs: Array
    reached: NDArray[np.bool_]


@dataclass(frozen=True)
class Duel:
    """Two agents in one panel. All intervals are 95 % intervals.

    Attributes
    ----------
    panel : str
        Title of the panel.
    seeds : int
        Number of seeds that both have.
    one, other : float
        Means over these seeds; geometric means of trajectories.
    change, low, high : float
        Mean of the differences, with a bootstrap interval over seeds; the ratio of trajectories.
    improvement : float
        Probability that a run of the first agent is better than one of the second.
    p, corrected : float
        p-value of a permutation test that exchanges the two agents in each seed, and the same after
        Holm's correction for the number of panels.
    verdict : str
        "better", "worse" or "undecided", by the corrected p-value.
    """

    panel: str
    seeds: int
    one: float
    other: float
    change: float
    low: float
    high: float
    improvement: float
    p: float
    corrected: float
    verdict: str


class Comparison:
    """A comparison of two agents, seed by seed. `Results.compare` makes it.

    Parameters
    ----------
    agents : tuple of (str, str)
        Labels of the two agents.
    by : {"reward", "final", "solved"}
        What is compared.
    scores : sequence of Scores
        Their runs in each panel.
    unit : str, default="as a share of the optimum"
        What rewards are measured in; empty if panels may differ in that.
    left_out : str, default=""
        Runs that have no partner, in words.

    Attributes
    ----------
    duels : list of Duel
        The comparison in each panel.
    iqms : list of tuple of (float, float, float)
        Interquartile mean of all runs of each agent, and the ends of its stratified bootstrap
        interval.
    improvement : tuple of (float, float, float)
        Probability that a run of the first agent is better than one of the second in the same
        panel, averaged over panels, and the ends of its interval.

    See Also
    --------
    blockmdp.Results.compare : Compares two agents of a study.
    """

    def __init__(
        self,
        agents: tuple[str, str],
        by: By,
        scores: Sequence[Scores],
        unit: str = "as a share of the optimum",
        left_out: str = "",
    ) -> None:
        self.agents, self.by, self.scores = agents, by, list(scores)
        self.left_out = left_out
        self.unit = "" if by == "solved" else unit
        # Trajectories are compared by their logarithms, and fewer are better.
        is_count = by == "solved"
        self._shown: Any = np.exp if is_count else np.asarray
        self._runs = [np.log(each.runs) if is_count else each.runs for each in self.scores]
        self._sign = -1.0 if is_count else 1.0
        self._digits = 0 if is_count else 3

    def __repr__(self) -> str:
        one, other = self.agents
        return f"<comparison of {one} with {other} in {len(self.scores)} panels, by {self.by}>"

    @cached_property
    def duels(self) -> list[Duel]:
        """The comparison in each panel."""
        p = [statistics.permutation_test(runs[:, 0] - runs[:, 1]) for runs in self._runs]
        titles = [each.panel for each in self.scores]
        return [self._duel(*each) for each in zip(titles, self._runs, p, statistics.holm(p))]

    def _duel(self, panel: str, runs: Array, p: float, corrected: float) -> Duel:
        gains = runs[:, 0] - runs[:, 1]
        verdict = "undecided"
        if corrected < LEVEL:
            verdict = "better" if self._sign * gains.mean() > 0 else "worse"
        means = [*runs.mean(axis=0), gains.mean(), *statistics.bootstrap(gains)]
        one, other, change, low, high = self._shown(means).tolist()
        better = statistics.improvement(*(self._sign * runs).T)
        return Duel(panel, len(runs), one, other, change, low, high, better, p, corrected, verdict)

    @cached_property
    def iqms(self) -> list[tuple[float, float, float]]:
        """Interquartile mean of each agent, and the ends of its interval."""

        def both(strata: list[Array]) -> Array:
            return np.array([statistics.iqm(runs) for runs in np.concatenate(strata).T])

        ends = self._shown([both(self._runs), *statistics.stratified(both, self._runs)])
        return [(float(ends[0, i]), float(ends[1, i]), float(ends[2, i])) for i in range(2)]

    @cached_property
    def improvement(self) -> tuple[float, float, float]:
        """Probability that the first agent is better, and the ends of its interval."""

        def mean(strata: list[Array]) -> float:
            found = [statistics.improvement(*(self._sign * runs).T) for runs in strata]
            return float(np.mean(found))

        low, high = statistics.stratified(mean, self._runs)
        return mean(self._runs), float(low), float(high)

    def profile(self, at: Array) -> tuple[Array, Array, Array]:
        """Return the performance profiles: the share of runs that are at least so good.

        Parameters
        ----------
        at : ndarray of shape (points,)
            Scores to reach, or numbers of trajectories within which to solve.

        Returns
        -------
        share, low, high : ndarray of shape (2, points)
            The share of the runs of each agent, and the ends of its stratified bootstrap interval.
        """
        limits = self._sign * np.asarray(at, np.float64)
        good = [
            np.asarray(
                (self._sign * each.runs[:, :, None] >= limits) & each.reached[:, :, None],
                np.float64,
            )
            for each in self.scores
        ]

        def share(strata: list[Array]) -> Array:
            return np.asarray(np.concatenate(strata).mean(axis=0), np.float64)

        return share(good), *statistics.stratified(share, good)

    def table(self, form: tables.Form = "text", width: int = 80) -> str:
        """Return a table with one row for each panel.

        Parameters
        ----------
        form : {"text", "csv", "markdown"}, default="text"
            Format of the table.
        width : int, default=80
            Columns of text. In a table that is wider, problems are above their rows.

        Returns
        -------
        str
            The CSV form has all fields of `Duel`. The other forms have these columns, with 95 %
            intervals in brackets:

            - problem: title of the panel;
            - seeds: number of seeds that both agents have;
            - one column for each agent: its mean;
            - difference, or the ratio of trajectories: its mean over seeds;
            - P: probability that a run of the first agent is better;
            - p: of a permutation test, after Holm's correction for the number of panels;
            - verdict: whether the first agent is better or worse, if p is below 0.05.
        """
        if form == "csv":
            one, other = self.agents
            named = {"agent": one, "than": other, "by": self.by}
            return tables.as_csv(Duel, [asdict(duel) for duel in self.duels], **named)
        change = "ratio" if self.by == "solved" else "difference"
        head = ("problem", "seeds", *self.agents, change, "P", "p", "verdict")
        rows = [head, *map(self._cells, self.duels)]
        text = tables.aligned(rows, form)
        return tables.titled(rows) if form == "text" and tables.widest(text) > width else text

    def _cells(self, duel: Duel) -> tuple[str, ...]:
        return (
            duel.panel,
            str(duel.seeds),
            f"{duel.one:.{self._digits}f}",
            f"{duel.other:.{self._digits}f}",
            f"{duel.change:.3f} [{duel.low:.3f}, {duel.high:.3f}]",
            f"{duel.improvement:.2f}",
            "<0.001" if duel.corrected < 0.001 else f"{duel.corrected:.3f}",
            duel.verdict,
        )

    def summary(self) -> str:
        """Return the comparison over all panels in words.

        Returns
        -------
        str
            A few lines.
        """
        one, other = self.agents
        n, verdicts = len(self.duels), [duel.verdict for duel in self.duels]
        lines = [
            f"{one} is better than {other} in {verdicts.count('better')} of {n} "
            f"{'panel' if n == 1 else 'panels'}, worse in {verdicts.count('worse')}, and "
            f"undecided in {verdicts.count('undecided')}",
            f"compared by {self.description}",
        ]
        if self.by == "solved":
            reached = np.concatenate([each.reached for each in self.scores])
            shares = [f"{agent} {share:.0%}" for agent, share in zip(self.agents, reached.mean(0))]
            lines.append(f"runs solved in time: {', '.join(shares)}")
        if self.unit or self.by == "solved" or n == 1:  # otherwise panels may differ in their unit
            means = [
                f"{agent} {_with_ends(found, self._digits)}"
                for agent, found in zip(self.agents, self.iqms)
            ]
            lines.append(f"interquartile mean of all runs: {', '.join(means)}")
        better = _with_ends(self.improvement, 2)
        lines.append(f"probability that a run of {one} is better: {better}")
        return "\n".join([*lines, *filter(None, [self.left_out])])

    @property
    def description(self) -> str:
        """What is compared, in words."""
        return ", ".join(filter(None, (MEASURES[self.by], self.unit)))

    def plot(self) -> Figure:
        """Draw the difference in each panel, and the performance profiles of both agents.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from blockmdp.plots.duels import Interval, duel_figure  # here, because it takes a second

        runs = np.concatenate([each.runs for each in self.scores])
        is_ratio = self.by == "solved"
        spaced = np.geomspace if is_ratio else np.linspace
        low = runs.min() if is_ratio else min(runs.min(), 0.0)
        at = np.asarray(spaced(low, runs.max(), 101), np.float64)
        bands = zip(*self.profile(at))
        one, other = self.agents
        return duel_figure(
            [Interval(d.panel, d.change, d.low, d.high, d.verdict) for d in self.duels],
            at,
            dict(zip(self.agents, bands)),
            change=f"{one} / {other}" if is_ratio else f"{one} minus {other}",
            score=("solved within so many trajectories" if is_ratio else self.description),
            is_ratio=is_ratio,
        )


def _with_ends(found: tuple[float, float, float], digits: int) -> str:
    value, low, high = (f"{number:.{digits}f}" for number in found)
    return f"{value} [{low}, {high}]"
