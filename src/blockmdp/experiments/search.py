"""Trials of hyperparameters that Optuna suggests, run in batches and pruned over seeds.

Optuna's state is not stored. A search that starts again asks Optuna for points in the same order,
and reports the scores of the stored runs to it. So Optuna suggests the same points as before, and
the search continues where it stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from blockmdp.checks import cores
from blockmdp.experiments import driver
from blockmdp.experiments.document import matches
from blockmdp.experiments.errors import StudyError, printable
from blockmdp.experiments.labels import agent_label, distinct_labels
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.parts import complete
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.pool import Executor
from blockmdp.experiments.ranges import draw, points, size, space
from blockmdp.experiments.results import Results
from blockmdp.experiments.settings import Config, Run, Setting
from blockmdp.experiments.store import Row, Store
from blockmdp.experiments.study import MAX_RUNS, Study

Known = dict[str, Row | Outcome]  # runs that have ended, by key

__all__ = ["Search", "optuna_version", "score", "search"]

BATCH = 5  # trials that are chosen before any of them is run, whatever the number of processes
STARTUP = 10  # trials that are drawn at random
MAX_ASKS = 50  # suggestions in a row that were tried before; then as many at random
SAMPLER_SEED = 0
EVERY = 5.0  # seconds between two lines about the progress
MAX_SHOWN = 3  # agents and panels whose best trial such a line shows


def score(setting: Setting, row: Row | Outcome) -> float | None:
    """Return the reward per trajectory of a run, counting trajectories of all kinds.

    It is None if the run failed.
    """
    if row.error is not None or row.average is None:
        return None
    return row.average * setting.episodes / max(row.trajectories, 1)


def optuna_version() -> str:
    """Return the version of Optuna.

    Raises
    ------
    StudyError
        If it is not installed.
    """
    try:
        import optuna  # here, because it is optional and takes a second
    except ImportError:
        raise StudyError(
            "--trials needs Optuna, which is not installed: pip install 'blockmdp[tune]'"
        ) from None
    return str(optuna.__version__)


def search(study: Study, trials: int, out: Path, options: driver.Options) -> Results:
    """Try hyperparameters of each agent in each panel, and keep all runs in a store.

    Parameters
    ----------
    study : Study
        What to tune, with its tuning seeds.
    trials : int
        Number of points to try for each agent in each panel.
    out : Path
        Directory of the store.
    options : Options
        How to run it.

    Returns
    -------
    Results
        The runs of all trials.

    Raises
    ------
    StudyError
        If Optuna is not installed, or there would be too many runs.
    """
    optuna_version()
    searches = _searches(study, trials)
    n = sum(s.n_trials for s in searches) * len(study.seeds)
    if n > MAX_RUNS:
        raise StudyError(f"a study can have at most {MAX_RUNS} runs, and {trials} trials on "
                         f"{len(study.seeds)} tuning seeds have up to {n}")  # fmt: skip
    report = _Report(searches, study.seeds, options.quiet)
    with contextlib.ExitStack() as stack:
        stack.enter_context(driver.interruptible())
        store = stack.enter_context(Store(out, write=True, warn=report.warn))
        store.drop_damaged()
        store.announce(study=study.name, jobs=options.jobs or cores())
        known: Known = {
            row.key: row for row in store.rows() if row.error is None or not options.retry_failed
        }
        executor: Executor | None = None
        while active := [s for s in searches if s.start()]:
            for first, last in _blocks(len(study.seeds)):
                seeds = study.seeds[first:last]
                if _missing(active, seeds, known):
                    _register(store, study, searches)
                    executor = executor or stack.enter_context(
                        driver.make_executor(options, study.folder, out)
                    )
                    for run, outcome in executor.map(_missing(active, seeds, known), store.settle):
                        store.add(run, outcome)
                        known[run.key] = outcome
                        report.tick(run, outcome, known)
                for s in active:
                    s.judge(known, study.seeds[:last], last == len(study.seeds))
        settings = _register(store, study, searches)
    report.conclude()
    plan = Plan(study.name, study.folder, study.document, study.seeds, settings)
    return Results(out, plan)


def _blocks(n: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks of seeds after which trials are pruned: a quarter, a half, all of them.

    >>> list(_blocks(10)), list(_blocks(2)), list(_blocks(1))
    ([(0, 3), (3, 5), (5, 10)], [(0, 1), (1, 2)], [(0, 1)])
    """
    ends = sorted({-(-n // 4), -(-n // 2), n})
    yield from zip([0, *ends], ends)


def _missing(active: Sequence[Search], seeds: Sequence[int], known: Known) -> list[Run]:
    """Return the runs of the present trials that are not known yet, trial by trial."""
    runs = [Run(trial.setting, seed) for s in active for trial in s.running for seed in seeds]
    return list({run.key: run for run in runs if run.key not in known}.values())


def _register(store: Store, study: Study, searches: Sequence[Search]) -> list[Setting]:
    """Store which runs belong to the tuning so far; return all settings, with their labels.

    A study has all its settings on all its seeds. So trials that ended after some of the seeds are
    studies of their own.
    """
    found = [trial for s in searches for trial in s.trials]
    panels: dict[str, list[int]] = {}
    for i, trial in enumerate(found):
        panels.setdefault(trial.setting.panel, []).append(i)
    labels = distinct_labels(
        [trial.setting.base_label for trial in found],
        [trial.setting.agent for trial in found],
        [tuple(indices) for indices in panels.values()],
    )
    groups: dict[int, dict[str, Setting]] = {}
    for trial, label in zip(found, labels):
        if trial.setting.label != label:
            trial.setting = dataclasses.replace(trial.setting, label=label)
        settings = groups.setdefault(trial.ended or len(study.seeds), {})
        settings.setdefault(trial.setting.key, trial.setting)
    for n, settings in sorted(groups.items()):  # the whole trials last: they are shown by default
        name = study.name if n == len(study.seeds) else f"{study.name}.first-{n}"
        seeds = study.seeds[:n]
        document = study.document | {"seeds": seeds}
        store.register(Plan(name, study.folder, document, seeds, [*settings.values()]))
    return [trial.setting for trial in found]


# --- one agent in one panel -----------------------------------------------------------------------
@dataclasses.dataclass
class _Trial:
    """A point that is tried.

    Attributes
    ----------
    setting : Setting
        The point.
    asked : optuna.Trial or None
        What suggested it; None if all points are tried.
    ended : int or None, default=None
        Number of seeds after which it was pruned or failed.
    failed : bool, default=False
        Whether one of its runs failed.
    """

    setting: Setting
    asked: Any
    ended: int | None = None
    failed: bool = False


class Search:
    """The trials of one agent in one panel.

    Parameters
    ----------
    like : sequence of Setting
        All points of the panel that may be tried, with ranges at their low end. Agents share them
        if they have a point in common.
    position : int
        Position of the agent in the study.
    entries : sequence of tuple of (str, mapping)
        Place and table of each agent of the study that is part of it.
    trials : int
        Number of points to try.
    in_full : bool
        Try all points, however many they are.

    Attributes
    ----------
    trials : list
        All trials so far.
    running : list
        Those that have not ended.
    n_trials : int
        Number of points that will be tried at most.
    is_full : bool
        Whether all points are tried.
    best : tuple of (float, Setting) or None
        The most reward per trajectory on all seeds so far, and with which setting.
    """

    def __init__(
        self,
        like: Sequence[Setting],
        position: int,
        entries: Sequence[tuple[str, Mapping[str, Any]]],
        trials: int,
        in_full: bool,
    ) -> None:
        self._like = dataclasses.replace(like[0], agent_index=position)
        self._allowed = {setting.key for setting in like}
        self._space = [space(entry, place) for place, entry in entries]
        self._label = entries[0][1].get("label", "")  # all have the same
        self.trials: list[_Trial] = []
        self.running: list[_Trial] = []
        self._tried: set[str] = set()
        self._best: tuple[float, _Trial] | None = None
        self.is_full = in_full or size(self._space) <= trials
        self.n_trials = int(size(self._space)) if self.is_full else trials
        self._optuna: Any = None
        if not self.is_full:
            self._optuna, self._random = _new_study()

    @property
    def best(self) -> tuple[float, Setting] | None:
        """The best trial so far."""
        return None if self._best is None else (self._best[0], self._best[1].setting)

    @property
    def name(self) -> str:
        """Panel and agent."""
        labels = [trial.setting.base_label for trial in self.trials[:1]] or [self._label]
        return f"{self._like.panel} | {labels[0]}"

    def start(self) -> bool:
        """Choose the next trials; return whether there are any."""
        if self._optuna is not None:
            while len(self.running) < BATCH and len(self.trials) < self.n_trials:
                trial = self._ask()
                if trial is None:
                    self.n_trials = len(self.trials)
                else:
                    self._add(trial)
        elif not self.trials:
            for point, base in points(self._space):
                setting = self._setting(point)
                if self._is_new(setting, point, base):
                    self._add(_Trial(setting, None))
            self.n_trials = len(self.trials)
        return bool(self.running)

    def _is_new(self, setting: Setting, point: Config, base: Config) -> bool:
        """Whether a point was not tried yet, and is in the part of the study that is tuned."""
        if setting.key in self._tried:
            return False
        return (setting if base == point else self._setting(base)).key in self._allowed

    def _add(self, trial: _Trial) -> None:
        self._tried.add(trial.setting.key)
        self.trials.append(trial)
        self.running.append(trial)

    def _ask(self) -> _Trial | None:
        """Return a point that was not tried before, None if there seem to be none."""
        from optuna.trial import TrialState

        assert self._optuna is not None
        tpe = self._optuna.sampler
        try:
            for i in range(2 * MAX_ASKS):
                if i == MAX_ASKS:  # TPE insists on points that are known
                    self._optuna.sampler = self._random
                asked = self._optuna.ask()
                point, base = draw(self._space, asked)
                setting = self._setting(point)
                if self._is_new(setting, point, base):
                    return _Trial(setting, asked)
                self._optuna.tell(asked, state=TrialState.FAIL)  # TPE ignores it
        finally:
            self._optuna.sampler = tpe
        return None

    def _setting(self, point: Config) -> Setting:
        config = complete("agent", point, "agent")
        label = self._label or agent_label(config)
        return dataclasses.replace(
            self._like, agent=config, base_label=label, label=label, agent_table=point
        )

    def judge(self, known: Known, seeds: Sequence[int], is_last: bool) -> None:
        """End the trials that failed, are hopeless or are complete."""
        from optuna.trial import TrialState

        for trial in list(self.running):
            found = [score(trial.setting, known[Run(trial.setting, seed).key]) for seed in seeds]
            scores = [x for x in found if x is not None]
            trial.failed = len(scores) < len(found)
            mean = sum(scores) / len(found)
            pruned = False
            if self._optuna is not None and not trial.failed:
                trial.asked.report(mean, len(seeds))
                pruned = not is_last and trial.asked.should_prune()
            if trial.failed or pruned:
                trial.ended = len(seeds)
            if trial.failed or pruned or is_last:
                self.running.remove(trial)
                if trial.ended is None and (self._best is None or mean > self._best[0]):
                    self._best = mean, trial
                if self._optuna is not None:
                    whole = {"values": mean} if trial.ended is None else {}
                    state = TrialState.COMPLETE if whole else TrialState.PRUNED
                    self._optuna.tell(trial.asked, state=state, **whole)

    def words(self) -> str:
        """Return how many trials were complete, pruned and failed."""
        failed = sum(trial.failed for trial in self.trials)
        pruned = sum(trial.ended is not None for trial in self.trials) - failed
        more = [f"{pruned} pruned"] * bool(pruned) + [f"{failed} failed"] * bool(failed)
        kind = "points, the whole grid" if self.is_full else "trials"
        return ", ".join([f"{len(self.trials)} {kind}", *more])


def _new_study() -> tuple[Any, Any]:
    """Return a study of Optuna, and a sampler of random points."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of Optuna 4
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=STARTUP,
            multivariate=True,  # a bonus is good or bad together with a learning rate
            constant_liar=False,
            seed=SAMPLER_SEED,
        )
    pruner = optuna.pruners.MedianPruner(n_startup_trials=BATCH)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    return study, optuna.samplers.RandomSampler(seed=SAMPLER_SEED)


def _searches(study: Study, trials: int) -> list[Search]:
    """Return a search for each agent in each panel. Agents with the same label are one."""
    agents = study.document["agent"]
    agents = agents if isinstance(agents, list) else [agents]
    first: dict[Any, int] = {}
    entries: dict[int, list[tuple[str, Any]]] = {}
    for i, entry in enumerate(agents):
        position = first.setdefault(entry.get("label") or i, i)
        entries.setdefault(position, []).append((f"agent[{i}]", entry))
    panels: dict[str, list[Setting]] = {}
    for setting in study.settings:
        panels.setdefault(setting.panel, []).append(setting)
    searches = []
    for panel, like in panels.items():
        facts = {"panel": panel, "episodes": like[0].episodes} | like[0].problem
        there = {setting.agent_index for setting in like}
        for position, group in entries.items():
            here = [(p, entry) for p, entry in group if matches(entry.get("when", {}), facts)]
            if not here or (study.whole is not study and position not in there):
                continue
            ranged = any(place.startswith(f"{p}.") for place in study.ranges for p, _ in here)
            in_full = bool(study.ranges) and not ranged
            searches.append(Search(like, position, here, trials, in_full))
    return searches


# --- progress -------------------------------------------------------------------------------------
class _Report:
    """Says on stderr how far the searches are."""

    def __init__(self, searches: Sequence[Search], seeds: Sequence[int], quiet: bool) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._searches, self._seeds, self._quiet = searches, seeds, quiet
        self._runs = self._failed = 0
        self._last_line = time.monotonic()

    def warn(self, line: str) -> None:
        """Show a line, also if quiet."""
        self._console.print(printable(line), markup=False)

    def tick(self, run: Run, outcome: Outcome, known: Known) -> None:
        """Count a run that has ended, and show it."""
        self._runs += 1
        if outcome.error is not None:
            self._failed += 1
            if self._failed <= driver.MAX_FAILURES_SHOWN:
                self.warn(f"failed: {run}: {driver.last_line(outcome)}")
        if time.monotonic() - self._last_line >= EVERY and not self._quiet:
            self._last_line = time.monotonic()
            ended = sum(len(s.trials) - len(s.running) for s in self._searches)
            running = [trial.setting for s in self._searches for trial in s.running]
            ended += sum(all(Run(s, seed).key in known for seed in self._seeds) for s in running)
            total = sum(s.n_trials for s in self._searches)
            best = [s.best for s in self._searches[:MAX_SHOWN] if s.best]
            found = ", ".join(f"{s.panel} | {s.label}: {x:.4f}" for x, s in best)
            so_far = f"; best so far: {found}" if found else ""
            most = total * len(self._seeds)
            self.warn(f"{ended}/{total} trials, {self._runs} of at most {most} runs{so_far}")

    def conclude(self) -> None:
        """Say what each search has found."""
        for s in self._searches if not self._quiet else ():
            found = "none finished" if s.best is None else f"{s.best[1].label}: {s.best[0]:.4f}"
            self.warn(f"{s.name}: {s.words()}; best: {found}")
