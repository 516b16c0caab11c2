"""Choosing hyperparameters on seeds of their own, and reporting on others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blockmdp.experiments.driver import run_study
from blockmdp.experiments.results import Results
from blockmdp.experiments.store import StoreError
from blockmdp.experiments.study import Setting, Study, to_toml

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
    entries: dict[str, dict[str, Any]] = {}
    axes = _axes(study)
    for setting, _ in best:
        entry = entries.setdefault(
            f"{setting.base} {setting.table}", {"label": setting.base, **setting.table, "when": []}
        )
        entry["when"].append({key: setting.problem[key] for key in axes if key in setting.problem})
    document = dict(study.document) | {"agent": list(entries.values())}
    for entry in entries.values():
        if len({str(when) for when in entry["when"]}) == len(study.panels):
            del entry["when"]
    tuned = Study(document, f"{study.name}.tuned", study.folder)
    lines = [
        f"# Made by: {how or 'blockmdp tune'}",
        f"# Each agent's best point of the grid of {study.name}.toml in each panel: the one with",
        "# the most reward per trajectory, oracle and tests included, over tuning seeds",
        f"# {numbers[0]} to {numbers[-1]}.",
    ]
    lines += [f"#   {s.panel} | {s.label}: {score:.4f}" for s, score in best]
    path = out / "tuned.toml"
    path.write_text("\n".join(lines) + "\n\n" + to_toml(document), encoding="utf-8")
    return tuned, path


def best_settings(results: Results) -> list[tuple[Setting, float]]:
    """For each panel and agent the setting with the most reward per trajectory, and that."""
    scores: dict[tuple[str, str], dict[str, list[float]]] = {}
    settings = {setting.key: setting for setting in results.study.settings}
    for setting, row in results.done:
        assert row.average is not None
        points = scores.setdefault((setting.panel, setting.base), {})
        points.setdefault(setting.key, []).append(
            row.average * setting.episodes / max(row.trajectories, 1)
        )
    best = []
    for panel, base in dict.fromkeys((s.panel, s.base) for s in results.study.settings):
        points = scores.get((panel, base), {})
        whole = {k: v for k, v in points.items() if len(v) == len(results.study.seeds)}
        if not whole:
            raise StoreError(f"no setting of {base} in {panel} came through all its tuning seeds")
        means = {key: sum(values) / len(values) for key, values in whole.items()}
        key = max(means, key=means.__getitem__)  # the first of equals
        best.append((settings[key], means[key]))
    return best


def _axes(study: Study) -> list[str]:
    problems = [setting.problem for setting in study.settings]
    keys = dict.fromkeys(key for problem in problems for key in problem if key != "source")
    return [key for key in keys if any(p.get(key) != problems[0].get(key) for p in problems)]
