"""The report: one HTML file that opens from disk and loads nothing else."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blockmdp.experiments.results import Results
from blockmdp.paper.claims import Claim

__all__ = ["DecoderView", "Report", "write_report"]


@dataclass(frozen=True)
class DecoderView:
    """Observations in two dimensions with their labels and latent states.

    Attributes
    ----------
    title : str
        Title above the picture.
    points : ndarray of shape (n, 2)
        Projected observations.
    labels, states : ndarray of shape (n,)
        Label that the decoder gives, and true latent state.
    confusion : ndarray of shape (S, n_labels)
        Fraction of each state's observations that get each label.
    """

    title: str
    points: Any
    labels: Any
    states: Any
    confusion: Any


@dataclass(frozen=True)
class Report:
    """Everything that the report shows.

    Attributes
    ----------
    title, summary : str
        Heading and first paragraph.
    facts : sequence of tuple of (str, str)
        What was run, where and for how long: name and text.
    claims : sequence of Claim
        Claims with verdicts.
    agents : sequence of str
        Labels of agents, in the order of their colours.
    figures : sequence of tuple of (str, str, Results)
        Id, title and results of each figure with learning curves.
    titles : dict
        Panel titles to show instead of the study's, by figure id and panel.
    growth : sequence of dict
        Rows of `horizon_slopes`.
    decoders : sequence of DecoderView
        Pictures of decoders.
    settings : sequence of tuple of (str, str, str, str)
        Figure, panel, agent and tuned parameters.
    commands : str
        Commands that repeat the experiments.
    """

    title: str
    summary: str
    facts: Sequence[tuple[str, str]]
    claims: Sequence[Claim]
    agents: Sequence[str]
    figures: Sequence[tuple[str, str, Results]]
    titles: dict[tuple[str, str], str]
    growth: Sequence[dict[str, Any]]
    decoders: Sequence[DecoderView]
    settings: Sequence[tuple[str, str, str, str]]
    commands: str


def write_report(report: Report, path: Path) -> None:
    """Write the report to a file.

    Parameters
    ----------
    report : Report
        What to show.
    path : Path
        An .html file.
    """
    template = (Path(__file__).parent / "report.html").read_text(encoding="utf-8")
    data, agents = _data(report)
    text = json.dumps({"agents": agents, "figures": data}, separators=(",", ":"))
    parts = {
        "%TITLE%": html.escape(report.title),
        "%BODY%": _body(report),
        "%DATA%": text.replace("<", "\\u003c"),
    }
    for mark, part in parts.items():
        template = template.replace(mark, part, 1)
    path.write_text(template, encoding="utf-8")


def _data(report: Report) -> tuple[list[dict[str, Any]], list[str]]:
    figures: list[dict[str, Any]] = []
    agents = dict.fromkeys(report.agents)
    for name, _, results in report.figures:
        sliding = {p.title: p for p in results.panels("sliding")}
        panels, top = [], 0.0
        for panel in results.panels("average"):
            curves = []
            for curve, last in zip(panel.curves, sliding[panel.title].curves):
                agents.setdefault(curve.label)
                curves.append(
                    {
                        "agent": curve.label,
                        "x": [round(float(x)) for x in curve.x],
                        "average": _short(curve.mean),
                        "average_std": _short(curve.std),
                        "sliding": _short(last.mean),
                        "sliding_std": _short(last.std),
                    }
                )
                top = max(top, float(np.max(curve.mean)), float(np.max(last.mean)))
            if panel.optimum is not None:
                top = max(top, panel.optimum)
            title = report.titles.get((name, panel.title), panel.title)
            panels.append({"title": title, "optimum": panel.optimum, "curves": curves})
        figures.append({"id": name, "panels": panels, "top": 1.1 * top or 1.0, "hidden": []})
    return figures, list(agents)


def _short(values: Any) -> list[float]:
    return [round(float(v), 4) for v in values]


def _body(report: Report) -> str:
    parts = [f"<h1>{html.escape(report.title)}</h1>", f"<p>{html.escape(report.summary)}</p>"]
    parts.append(_table((), report.facts))
    if report.claims:
        parts += ["<h2 id='claims'>Claims</h2>", _claims(report.claims)]
    for name, title, results in report.figures:
        seeds = len(results.study.seeds)
        parts += [
            f"<h2>{html.escape(title)}</h2>",
            "<p class='faint'>Reward against training trajectories of all kinds, including those "
            f"that train and test the oracle. Lines are means over {seeds} seeds, bands one "
            "standard deviation, and the dashed line is the optimum. Point at a panel to read "
            "values; click on an agent to hide it.</p>",
            f"<section id='{name}'></section>",
        ]
    if report.growth:
        parts += ["<h2 id='growth'>Longer horizons</h2>", _growth(report.growth)]
    if report.decoders:
        parts += [
            "<h2 id='decoders'>Decoders</h2>",
            "<p class='faint'>New observations of each latent state at level 1, projected on "
            "their first two principal components. The colour is the label that the untuned "
            "agent's decoder gives, the shape is the true state. The tables show how often each "
            "state gets each label.</p>",
            f"<div class='decoders'>{''.join(_decoder(view) for view in report.decoders)}</div>",
        ]
    if report.settings:
        head = ("figure", "panel", "agent", "settings")
        table = _table(head, report.settings)
        parts += [
            "<h2 id='settings'>Hyperparameters</h2>",
            "<p class='faint'>Best settings by reward per trajectory, chosen on separate "
            "seeds.</p>",
            f"<details><summary>All settings</summary>{table}</details>",
        ]
    parts += ["<h2 id='rerun'>Commands</h2>", f"<pre>{html.escape(report.commands)}</pre>"]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{html.escape(h)}</th>" for h in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    top = f"<tr>{top}</tr>" if any(head) else ""
    return f"<div class='scroll'><table>{top}{body}</table></div>"


def _claims(claims: Sequence[Claim]) -> str:
    rows = []
    for claim in claims:
        kind = {True: "holds", False: "fails", None: ""}[claim.holds]
        rows.append(
            f"<tr><td>{html.escape(claim.says)}</td><td>{html.escape(claim.measured)}</td>"
            f"<td class='verdict {kind}'>{claim.verdict}</td></tr>"
        )
    head = "<tr><th>claim</th><th>measured here</th><th>verdict</th></tr>"
    return f"<div class='scroll'><table class='claims'>{head}{''.join(rows)}</table></div>"


def _growth(rows: Sequence[dict[str, Any]]) -> str:
    def number(x: float) -> str:
        return "-" if not math.isfinite(x) else f"{x:,.0f}" if x >= 10 else f"{x:.2f}"

    horizons = rows[0]["H"]
    head = ("problem", "agent", *(f"H = {h}" for h in horizons), "slope")
    median = [
        (r["problem"], r["agent"], *map(number, r["trajectories"]), f"{r['slope']:.2f}")
        for r in rows
    ]
    solved = [(r["problem"], r["agent"], *r["solved"], "") for r in rows]
    seconds = [
        (r["problem"], r["agent"], *map(number, r["seconds"]), f"{r['slope_seconds']:.2f}")
        for r in rows
    ]
    return "".join(
        f"<p>{words}</p>{_table(head, table)}"
        for words, table in (
            (
                "Median number of trajectories until solved, and the slope of its logarithm "
                "against the logarithm of H. The paper's theorem bounds it by a polynomial in H "
                "(of degree 5 or more, times what the oracle needs).",
                median,
            ),
            ("Seeds solved.", solved),
            ("Seconds per run, and their slope.", seconds),
        )
    )


def _decoder(view: DecoderView) -> str:
    points = np.asarray(view.points, np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    at = 12 + (points - low) / np.maximum(high - low, 1e-9) * [296, 196]
    marks = []
    for (x, y), label, state in zip(at, view.labels, view.states):
        style = f"fill='var(--c{int(label) % 8})' fill-opacity='0.75'"
        if state == 0:
            marks.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.2' {style}/>")
        elif state == 1:
            marks.append(
                f"<rect x='{x - 2.8:.1f}' y='{y - 2.8:.1f}' width='5.6' height='5.6' {style}/>"
            )
        else:
            d = f"M{x:.1f},{y - 3.6:.1f}l3.6,6.4h-7.2z"
            marks.append(f"<path d='{d}' {style}/>")
    shapes = ("circle", "square", "triangle")
    head = ("state", *(f"label {j}" for j in range(len(view.confusion[0]))))
    rows = [
        (f"{s} ({shapes[min(s, 2)]})", *(f"{share:.1%}" for share in row))
        for s, row in enumerate(view.confusion)
    ]
    return (
        f"<div><strong>{html.escape(view.title)}</strong>"
        f"<svg viewBox='0 0 320 220' role='img'>{''.join(marks)}</svg>{_table(head, rows)}</div>"
    )
