"""Run the experiments of Feng et al. 2020, Section 5, from the files in `studies/`, and check the
claims. Some studies go beyond the paper: an untuned agent, agents without arguments beside the
paper's skyline, and longer horizons.
"""

from __future__ import annotations

import html
import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from blockmdp.checks import cores
from blockmdp.envs import lock_bernoulli, lock_gaussian
from blockmdp.experiments import Results, Study, StudyError
from blockmdp.experiments.driver import Options, run_studies
from blockmdp.experiments.progress import duration
from blockmdp.experiments.reporting import Report, Section, html_table, write_report
from blockmdp.experiments.results import part_of
from blockmdp.experiments.runs import environment
from blockmdp.experiments.settings import Setting
from blockmdp.measures import confusion
from blockmdp.paper.claims import as_text, claims_of, horizon_slopes
from blockmdp.paper.report import (
    DecoderView,
    claims_section,
    decoders_section,
    growth_section,
)
from blockmdp.plots import curves as figures
from blockmdp.url import URL

__all__ = ["PARTS", "naive_seconds", "reproduce", "studies_folder"]

FIGURES = {
    "figure1": "Figure 1: LockBernoulli",
    "figure2": "Figure 2: LockGaussian, sigma 0.1",
    "figure3": "Figure 3: LockGaussian, sigma 0.2",
}
PARTS = {
    "fig1": "figure1",
    "fig2": "figure2",
    "fig3": "figure3",
    "untuned": "untuned",
    "defaults": "defaults",
    "skyline": "skyline",
    "horizon": "horizon",
}
PAPER_SEEDS = 50
AGENTS = (
    "URL",
    "URL untuned",
    "OracleQ-lat",
    "PCID",
    "QLearning-lat",
    "OracleQ-obs",
    "QLearning-obs",
)
ORACLES = {
    "pca_kmeans": "KMeans",
    "gmm": "GMM",
    "pca_dbscan_svm": "DBSCAN",
}


def studies_folder() -> Path:
    """Return the folder with the paper's study files, in the installed package or a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "studies", package.parents[1] / "studies"):
        if (folder / "figure1.toml").is_file():
            return folder
    raise StudyError("the paper's study files are missing: install blockmdp again")


def reproduce(
    out: Path, *, seeds: int | None = None, only: Iterable[str] = (), **options: Any
) -> tuple[str, bool]:
    """Run all experiments, or some, and write figures, tables, claims and a report.

    Parameters
    ----------
    out : Path
        Directory for everything.
    seeds : int or None, default=None
        Seeds of each setting of the figures. Other studies are scaled by the same factor. None is
        50, as in the paper.
    only : iterable of str, default=()
        Some of `PARTS`. Empty runs all.
    **options
        Options of `blockmdp.experiments.Study.run`.

    Returns
    -------
    text : str
        Claims and facts.
    complete : bool
        Whether no run failed.
    """
    start = time.monotonic()
    names = [PARTS[part] for part in (only or PARTS)]
    studies = [Study.load(studies_folder() / f"{name}.toml") for name in names]
    if seeds is not None:
        share = seeds / PAPER_SEEDS
        studies = [s.on_seeds(range(max(round(share * len(s.seeds)), 1)), s.name) for s in studies]
    results = dict(zip(names, run_studies(studies, out, Options(**options))))
    spent = time.monotonic() - start
    shown = {name: r for name, r in results.items() if name in FIGURES and r.done}
    titles = {name: _titles(result) for name, result in shown.items()}
    for name, result in shown.items():
        for y in ("average", "sliding"):
            stem = out / (name if y == "average" else f"{name}-sliding")
            figures.save(_figure(result, titles[name], y), stem)
        (out / f"{name}.csv").write_text(result.table("csv") + "\n", encoding="utf-8")
    claims = claims_of(shown, *map(results.get, ("untuned", "defaults", "skyline")))
    growth = horizon_slopes(results["horizon"]) if "horizon" in results else []
    text = as_text(claims)
    (out / "claims.md").write_text(text + "\n", encoding="utf-8")
    facts = _facts(results, spent)
    write_report(
        Report(
            "Exploration with an unsupervised-learning oracle: Feng et al. 2020, reproduced",
            "The experiments of Provably Efficient Exploration for Reinforcement Learning Using "
            "Unsupervised Learning (Feng, Wang, Yin, Du, Yang, NeurIPS 2020), run from study "
            "files. URL is reinforcement learning with an unsupervised-learning oracle; PCID (Du "
            "et al. 2019) is the baseline; -lat learns on latent states and -obs on observations.",
            facts,
            [
                part_of(result, title=FIGURES[name], titles=titles[name])
                for name, result in shown.items()
            ],
            [claims_section(claims)] if claims else [],
            [
                *([growth_section(growth)] if growth else []),
                decoders_section(_decoders()),
                *([_settings(shown)] if shown else []),
                Section("rerun", "Commands", f"<pre>{html.escape(_commands(results))}</pre>"),
            ],
            AGENTS,
        ),
        out / "report.html",
    )
    failed = sum(len(result.failed) for result in results.values())
    lines = [text, "", *(f"{name}: {words}" for name, words in facts)]
    lines += ["", f"report: {out / 'report.html'}"]
    return "\n".join(lines), not failed


def naive_seconds(rows: Iterable[tuple[Setting, Any]]) -> float:
    """Estimate the time that runs would take in plain Python, step by step.

    Parameters
    ----------
    rows : iterable of tuple of (Setting, Row)
        Runs of the paper's agents.

    Returns
    -------
    float
        Seconds, from speeds measured by `make bench`: those in results/bench.json, or else those
        that come with the package.
    """
    speeds: dict[str, float] = {}
    for file in (Path(__file__).parent / "naive.json", Path("results/bench.json")):
        if file.is_file():
            rows_of = json.loads(file.read_text(encoding="utf-8"))["rows"]
            speeds |= {row["name"]: row["naive_steps_per_second"] for row in rows_of}
    total = 0.0
    for setting, row in rows:
        H = setting.problem["horizon"]
        total += row.trajectories * H / speeds[f"{_loop(setting)} H={5 if H <= 5 else 20}"]
    return total


def _loop(setting: Setting) -> str:
    """Return the name of the plain-Python loop that corresponds to an agent."""
    agent = setting.agent
    if agent["name"] == "PCID":
        return "PCID exploiting"
    if agent["name"] == "Tabular":
        learner = (agent.get("learner") or {"name": "OracleQ"})["name"]
        return f"{learner}-{agent['on'][:3]}"
    oracle = agent.get("oracle") or {"name": "gmm"}
    return f"URL, {'KMeans' if oracle['name'] == 'pca_kmeans' else 'GMM'}"


def _figure(results: Results, titles: dict[str, str], y: Any) -> Any:
    panels = [replace(p, title=titles.get(p.title, p.title)) for p in results.panels(y)]
    words = "average reward" if y == "average" else "sliding mean reward"
    return figures.learning_curves(panels, columns=3, order=AGENTS, y_label=words)


def _titles(results: Results) -> dict[str, str]:
    """Return panel titles with the oracle that URL uses there, as in the paper."""
    titles = {}
    for setting in results.study.settings:
        if setting.base_label == "URL":
            oracle = ORACLES.get((setting.agent.get("oracle") or {}).get("name", ""), "")
            titles[setting.panel] = f"{setting.panel}, {oracle}".rstrip(", ")
    return titles


def _settings(figures: dict[str, Results]) -> Section:
    """Return a table of the tuned hyperparameters."""
    rows = []
    for name, results in figures.items():
        for setting in results.study.settings:
            table = {k: v for k, v in setting.agent_table.items() if k != "name"}
            words = ", ".join(f"{k} = {_format(v)}" for k, v in table.items()) or "defaults"
            rows.append((name, setting.panel, setting.base_label, words))
    body = (
        "<p class='faint'>Best settings by reward per trajectory, chosen on separate seeds.</p>"
        "<details><summary>All settings</summary>"
        f"{html_table(('figure', 'panel', 'agent', 'settings'), rows)}</details>"
    )
    return Section("settings", "Hyperparameters", body)


def _format(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{k}={_format(v)}" for k, v in value.items() if k != "name")
        return f"{value.get('name', '')}({inside})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _facts(results: dict[str, Results], spent: float) -> list[tuple[str, str]]:
    rows = [row for result in results.values() for row in result.done]
    distinct = {row.key: (setting, row) for setting, row in rows}.values()
    steps = sum(row.trajectories * setting.problem["horizon"] for setting, row in distinct)
    computing = sum(row.seconds for _, row in distinct)
    naive = naive_seconds(distinct)
    env = environment()
    versions = ", ".join(
        f"{k} {env[k]}" for k in ("blockmdp", "python", "numpy", "numba", "scikit-learn")
    )
    failed = sum(len(result.failed) for result in results.values())
    return [
        ("runs", f"{len(distinct)}" + (f", and {failed} failed" if failed else "")),
        ("environment steps", f"{steps:,}"),
        ("time", f"{duration(spent)} now; {duration(computing)} of computing time in all runs"),
        (
            "plain Python",
            f"would take about {naive / 3600:,.0f} hours without fitting oracles, "
            f"{naive / max(computing, 1e-9):,.0f} times as long",
        ),
        ("machine", f"{platform.machine()}, {cores()} of {os.cpu_count()} cores"),
        ("versions", versions),
        ("date", time.strftime("%Y-%m-%d")),
    ]


def _decoders() -> list[DecoderView]:
    """Return pictures of the untuned agent's decoders at H = 10."""
    views = []
    for title, mdp in (
        ("LockBernoulli", lock_bernoulli(10, 0.2)),
        ("LockGaussian, sigma 0.1", lock_gaussian(10, 0.2, 0.1)),
        ("LockGaussian, sigma 0.2", lock_gaussian(10, 0.2, 0.2)),
    ):
        agent = URL().fit(mdp, 100)
        n, level = 80, 1
        x = np.concatenate([mdp.sample(level, s, n) for s in range(mdp.n_states)])
        states = np.repeat(np.arange(mdp.n_states), n)
        points = PCA(2).fit_transform(x.astype(np.float64))
        share = confusion(mdp, agent.decoder_)[level]
        labels = agent.decode(x, level)
        views.append(DecoderView(f"{title}, H = 10", points, labels, states, share))
    return views


def _commands(results: dict[str, Results]) -> str:
    lines = ["blockmdp reproduce    # everything; --quick: a first look; --only fig1: a part"]
    for name in results:
        lines.append(f"blockmdp run studies/{name}.toml")
    lines += [
        f"blockmdp tune studies/grids/{n}.toml --tuning-seeds 5" for n in results if n in FIGURES
    ]
    return "\n".join(lines)
