"""Choosing hyperparameters on seeds of their own, and reporting on others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from blockmdp.experiments.catalogue import SOURCE
from blockmdp.experiments.driver import run_study
from blockmdp.experiments.results import Results
from blockmdp.experiments.store import StoreError
from blockmdp.experiments.study import Setting, Study, to_toml, varying

__all__ = ["FIRST_SEED", "best_settings", "tune"]

FIRST_SEED = 1_000_000  # tuning seeds are from here on; those of a study are usually below


def tune(
    study: Study, out: str | Path | None = None, *, seeds: int = 10, how: str = "", **options: Any
) -> tuple[Study, Path]:
    """Run a study's grid on tuning seeds and keep, for each agent in each panel, its best point.

    Parameters
    ----------
    seeds : how many tuning seeds.
    how : the command that is noted in the file.
    options : as for `run_study`.

    Returns
    -------
    tuned : the study with the best settings, on its own seeds; not yet run.
    path : of its study file, OUT/tuned.toml.
    """
    out = Path("results") / study.name if out is None else Path(out)
    numbers = list(range(FIRST_SEED, FIRST_SEED + seeds))
    if set(numbers) & set(study.seeds):
        raise StoreError(f"tuning seeds are those from {FIRST_SEED} on: the study uses them itself")
    trial = study.on_seeds(numbers, f"{study.name}.tuning")
    best = best_settings(run_study(trial, out, **options))
    whole = Study(study.document, folder=study.folder, check=False)
    axes = varying([{"episodes": s.episodes} | s.problem for s in whole.settings])
    entries: dict[str, dict[str, Any]] = {}
    for setting, _ in sorted(best, key=lambda point: point[0].entry):
        entry = entries.setdefault(
            f"{setting.entry} {setting.table}", {"label": setting.base, **setting.table, "when": []}
        )
        entry["when"].append(_when(setting, axes))
    for entry in entries.values():
        if len(entry["when"]) == len(whole.panels):
            del entry["when"]
    document = dict(study.document) | {"agent": list(entries.values())}
    if study.seeds != whole.seeds:
        document["seeds"] = study.seeds
    tuned = Study(document, f"{study.name}.tuned", study.folder)
    lines = [
        f"Made by: {how or 'blockmdp tune'}",
        f"Each agent's best point of the grid of {study.name}.toml in each panel: the one with",
        "the most reward per trajectory, oracle and tests included, over tuning seeds",
        f"{numbers[0]} to {numbers[-1]}.",
        *(f"  {s.panel} | {s.label}: {score:.4f}" for s, score in best),
    ]
    if study.folder and any(SOURCE in setting.content for setting in tuned.settings):
        document = {"modules": os.path.relpath(study.folder, out), **document}
    path = out / "tuned.toml"
    notes = "".join(f"# {' '.join(line.splitlines())}\n" for line in lines)
    path.write_text(f"{notes}\n{to_toml(document)}", encoding="utf-8")
    return tuned, path


def _when(setting: Setting, axes: list[str]) -> dict[str, Any]:
    """What tells the setting's panel from the others."""
    facts = {"episodes": setting.episodes} | setting.problem
    values = {key: facts.get(key) for key in axes}
    plain = all(isinstance(value, bool | int | float | str) for value in values.values())
    return values if plain else {"panel": setting.panel}


def best_settings(results: Results) -> list[tuple[Setting, float]]:
    """For each panel and agent the setting with the most reward per trajectory, and that."""
    scores: dict[str, list[float]] = {}
    for setting, row in results.done:
        assert row.average is not None
        scores.setdefault(setting.key, []).append(
            row.average * setting.episodes / max(row.trajectories, 1)
        )
    agents: dict[tuple[str, int], list[Setting]] = {}
    for setting in results.study.settings:
        agents.setdefault((setting.panel, setting.entry), []).append(setting)
    best = []
    for (panel, _), settings in agents.items():
        points = [
            (setting, sum(scores[setting.key]) / len(scores[setting.key]))
            for setting in settings
            if len(scores.get(setting.key, ())) == len(results.study.seeds)
        ]
        if not points:
            raise StoreError(
                f"no setting of {settings[0].base} in {panel} came through all its tuning seeds"
            )
        best.append(max(points, key=lambda point: point[1]))  # the first of equals
    return best
