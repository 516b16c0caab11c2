"""Choosing hyperparameters on separate seeds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from blockmdp.experiments.driver import Options
from blockmdp.experiments.errors import StoreError, StudyError
from blockmdp.experiments.labels import varying
from blockmdp.experiments.results import Results
from blockmdp.experiments.search import optuna_version, score, search
from blockmdp.experiments.settings import SOURCE, Setting
from blockmdp.experiments.study import Study
from blockmdp.experiments.toml import to_toml

__all__ = ["FIRST_SEED", "best_settings", "tune"]

FIRST_SEED = 1_000_000  # the first tuning seed; seeds of studies are usually smaller


def tune(
    study: Study,
    out: str | Path | None = None,
    *,
    seeds: int = 10,
    trials: int | None = None,
    command: str = "blockmdp tune",
    **options: Any,
) -> tuple[Study, Path]:
    """Try hyperparameters on tuning seeds, and keep the best point of each agent in each panel.

    The best point has the most reward per trajectory, counting trajectories of all kinds.

    Parameters
    ----------
    study : Study
        Study with a grid, or with ranges, of hyperparameters.
    out : str, Path or None, default=None
        Directory in which to keep the runs. None is results/NAME.
    seeds : int, default=10
        Number of tuning seeds.
    trials : int or None, default=None
        Number of points that Optuna tries for each agent in each panel. An agent with fewer points,
        or without ranges in a study with ranges, is tried in full. None tries the whole grid.
    command : str, default="blockmdp tune"
        Command to mention in the study file that is written.
    **options
        More options of `Study.run`.

    Returns
    -------
    tuned : Study
        The study with the best settings, on its own seeds, not yet run.
    path : Path
        Its study file, OUT/tuned.toml.

    Raises
    ------
    StoreError
        If the study uses the tuning seeds itself, or no setting of an agent finished on all of
        them.
    StudyError
        If the study has ranges and `trials` is None, or Optuna is missing.
    """
    if trials is None and study.ranges:
        raise StudyError(f"{study.name}.toml: {study.ranges[0]}: is a range: say how many points "
                         "to try, such as --trials 50")  # fmt: skip
    if trials is not None and trials < 1:
        raise StudyError(f"trials must be an integer >= 1, got {trials!r}")
    out = Path("results") / study.name if out is None else Path(out)
    numbers = list(range(FIRST_SEED, FIRST_SEED + seeds))
    if set(numbers) & set(study.seeds):
        raise StoreError(f"tuning uses the seeds from {FIRST_SEED} on: choose others for the study")
    trial = study.on_seeds(numbers, f"{study.name}.tuning")
    if trials is None:
        results = trial.run(out, **options)
    else:
        results = search(trial, trials, out, Options(**options))
    best = best_settings(results)
    whole = Study(study.document, folder=study.folder, check=False)
    axes = varying([{"episodes": s.episodes} | s.problem for s in whole.settings])
    entries: dict[str, dict[str, Any]] = {}
    for setting, _ in sorted(best, key=lambda point: point[0].agent_index):
        entry = entries.setdefault(
            f"{setting.agent_index} {setting.agent_table}",
            {"label": setting.base_label, **setting.agent_table, "when": []},
        )
        entry["when"].append(_when(setting, axes))
    for entry in entries.values():
        if len(entry["when"]) == len(whole.panels):
            del entry["when"]
    document = dict(study.document) | {"agent": list(entries.values())}
    if study.seeds != whole.seeds:
        document["seeds"] = study.seeds
    tuned = Study(document, f"{study.name}.tuned", study.folder)
    of, how = "'s grid in", []
    if trials is not None:
        of = " in"
        how = [
            f"Optuna {optuna_version()} tried up to {trials} points of each agent in each panel."
        ]
    lines = [
        f"Made by: {command}",
        f"The best point of each agent{of} {study.name}.toml, in each panel: the one with",
        "the most reward per trajectory (oracle and test trajectories included) on the tuning",
        f"seeds {numbers[0]} to {numbers[-1]}.",
        *how,
        *(f"  {s.panel} | {s.label}: {score:.4f}" for s, score in best),
    ]
    if study.folder and any(SOURCE in setting.content for setting in tuned.settings):
        document = {"modules": os.path.relpath(study.folder, out), **document}
    path = out / "tuned.toml"
    notes = "".join(f"# {' '.join(line.splitlines())}\n" for line in lines)
    path.write_text(f"{notes}\n{to_toml(document)}", encoding="utf-8")
    return tuned, path


def _when(setting: Setting, axes: list[str]) -> dict[str, Any]:
    """Return a condition that only the panel of this setting matches."""
    facts = {"episodes": setting.episodes} | setting.problem
    values = {key: facts.get(key) for key in axes}
    plain = all(isinstance(value, bool | int | float | str) for value in values.values())
    return values if plain else {"panel": setting.panel}


def best_settings(results: Results) -> list[tuple[Setting, float]]:
    """Return the setting with the most reward per trajectory, for each agent in each panel.

    Parameters
    ----------
    results : Results
        A study with a grid.

    Returns
    -------
    list of tuple of (Setting, float)
        The best setting and its reward per trajectory. The first of equals wins.

    Raises
    ------
    StoreError
        If no setting of an agent finished on all seeds.
    """
    scores: dict[str, list[float]] = {}
    for setting, row in results.done:
        reward = score(setting, row)
        assert reward is not None
        scores.setdefault(setting.key, []).append(reward)
    agents: dict[tuple[str, int], list[Setting]] = {}
    for setting in results.study.settings:
        agents.setdefault((setting.panel, setting.agent_index), []).append(setting)
    best = []
    for (panel, _), settings in agents.items():
        points = [
            (setting, sum(scores[setting.key]) / len(scores[setting.key]))
            for setting in settings
            if len(scores.get(setting.key, ())) == len(results.study.seeds)
        ]
        if not points:
            raise StoreError(
                f"no setting of {settings[0].base_label} in {panel} finished on all tuning seeds"
            )
        best.append(max(points, key=lambda point: point[1]))
    return best
