"""What the paper's report shows besides its studies: claims, growth and pictures of decoders."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockmdp.experiments.reporting import Section, html_table
from blockmdp.paper.claims import Claim

__all__ = ["DecoderView", "claims_section", "decoders_section", "growth_section"]


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


def claims_section(claims: Sequence[Claim]) -> Section:
    """Return a table of claims with verdicts."""
    rows = []
    for claim in claims:
        kind = {True: "holds", False: "fails", None: ""}[claim.holds]
        rows.append(
            f"<tr><td>{html.escape(claim.says)}</td><td>{html.escape(claim.measured)}</td>"
            f"<td class='verdict {kind}'>{claim.verdict}</td></tr>"
        )
    head = "<tr><th>claim</th><th>measured here</th><th>verdict</th></tr>"
    table = f"<div class='scroll'><table class='claims'>{head}{''.join(rows)}</table></div>"
    return Section("claims", "Claims", table)


def growth_section(rows: Sequence[dict[str, Any]]) -> Section:
    """Return tables of what `horizon_slopes` measured."""

    def number(x: float) -> str:
        return "-" if not math.isfinite(x) else f"{x:,.0f}" if x >= 10 else f"{x:.2f}"

    head = ("problem", "agent", *(f"H = {h}" for h in rows[0]["H"]))
    solved = [(r["problem"], r["agent"], *r["solved"]) for r in rows]
    median = [
        (r["problem"], r["agent"], *map(number, r["trajectories"]), number(r["slope"]))
        for r in rows
    ]
    spent = [
        (r["problem"], r["agent"], *map(number, r["seconds"]), number(r["slope_seconds"]))
        for r in rows
    ]
    body = "".join(
        f"<p>{words}</p>{html_table(names, table)}"
        for words, names, table in (
            (
                "Median number of trajectories until solved, and the slope of its logarithm "
                "against the logarithm of H. The paper's theorem bounds it by a polynomial in H "
                "(of degree 5 or more, times what the oracle needs).",
                (*head, "slope"),
                median,
            ),
            ("Seeds solved.", head, solved),
            ("Seconds per run, and their slope.", (*head, "slope"), spent),
        )
    )
    return Section("growth", "Longer horizons", body)


def decoders_section(views: Sequence[DecoderView]) -> Section:
    """Return pictures of decoders, which show where they err."""
    body = (
        "<p class='faint'>New observations of each latent state at level 1, projected on their "
        "first two principal components. The colour is the label that the untuned agent's decoder "
        "gives, the shape is the true state. The tables show how often each state gets each "
        f"label.</p><div class='decoders'>{''.join(map(_decoder, views))}</div>"
    )
    return Section("decoders", "Decoders", body)


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
        f"<svg viewBox='0 0 320 220' role='img' aria-label='{html.escape(view.title)}'>"
        f"{''.join(marks)}</svg>{html_table(head, rows)}</div>"
    )
