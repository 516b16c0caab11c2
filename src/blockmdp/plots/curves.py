"""Figures of many runs: learning curves, and growth with a parameter."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from blockmdp.plots.style import COLOURS, GREY, style

__all__ = ["Curve", "Panel", "Points", "growth", "learning_curves", "save"]

_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean and standard deviation of a quantity over runs.

    Parameters
    ----------
    label : str
        Name in the legend.
    x : ndarray of shape (n,)
        Where the quantity was measured.
    mean : ndarray of shape (n,)
        Mean over runs.
    std : ndarray of shape (n,)
        Standard deviation over runs.
    seeds : sequence of int, default=()
        Seeds of the runs.
    runs : ndarray of shape (len(seeds), n) or None, default=None
        The quantity in each run. Figures do not show it.
    """

    label: str
    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    seeds: Sequence[int] = ()
    runs: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False)
class Points:
    """Median and quartiles of a quantity over runs, at a few values of a parameter.

    Parameters
    ----------
    label : str
        Name in the legend.
    x : ndarray of shape (n,)
        Values of the parameter.
    low : ndarray of shape (n,)
        Lower quartile.
    median : ndarray of shape (n,)
        Median.
    high : ndarray of shape (n,)
        Upper quartile.
    """

    label: str
    x: NDArray[np.float64]
    low: NDArray[np.float64]
    median: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Panel:
    """One panel of a figure.

    Parameters
    ----------
    title : str
        Title of the panel.
    curves : sequence of Curve or Points
        What to draw.
    optimum : float or None, default=None
        Draw a line at the optimal value; None if it is unknown.
    """

    title: str
    curves: Sequence[Any]
    optimum: float | None = None


def learning_curves(
    panels: Sequence[Panel],
    *,
    columns: int = 3,
    order: Sequence[str] = (),
    x_label: str = "training trajectories",
    y_label: str = "average reward",
    log_x: bool = False,
) -> Figure:
    """Draw learning curves: the mean over runs, with a band of one standard deviation.

    Parameters
    ----------
    panels : sequence of Panel
        What to draw. A label has the same colour and line style in all panels, and one entry in the
        legend.
    columns : int, default=3
        Panels in a row.
    order : sequence of str, default=()
        Labels that come first. Several figures with the same order give a label the same colour.
    x_label : str, default="training trajectories"
        Label of the x-axes.
    y_label : str, default="average reward"
        Label of the y-axes.
    log_x : bool, default=False
        Whether the x-axes are logarithmic.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. If all panels have an optimum, the y-axes end a tenth above it.

    Examples
    --------
    >>> x = np.arange(1, 4)
    >>> panel = Panel("H = 5", [Curve("OracleQ-lat", x, x / 10, x / 50)], optimum=0.5)
    >>> len(learning_curves([panel, panel]).axes)
    2
    """
    ends = [max((curve.x[-1] for curve in panel.curves), default=1) for panel in panels]
    best = [panel.optimum for panel in panels if panel.optimum is not None]
    alike = max(ends, default=1) <= 3 * min(ends, default=1)
    same_scale = not best or max(best) == min(best)
    figure, axes = _grid(panels, columns, order, _draw, sharex=alike, sharey=same_scale)
    for ax, panel, end in zip(axes, panels, ends):
        if log_x:
            ax.set_xscale("log")
            ax.set_xlim(min((c.x[0] for c in panel.curves), default=1), end)
        else:
            ax.set_xlim(0, max(ends) if alike else end)
        if len(best) == len(panels) and min(best) > 0:
            top = max(best) if same_scale else panel.optimum or 1.0
            shown = panels if same_scale else [panel]
            lowest = min((c.mean.min() for p in shown for c in p.curves), default=0.0)
            # so that a line at 0 does not hide on the axis
            ax.set_ylim(min(-0.03 * top, 1.05 * lowest), 1.1 * top)
    figure.supxlabel(x_label, fontsize=9)
    figure.supylabel(y_label, fontsize=9)
    return figure


def growth(
    panels: Sequence[Panel],
    *,
    columns: int = 3,
    x_label: str = "H",
    y_label: str = "trajectories until solved",
) -> Figure:
    """Draw medians against a parameter on logarithmic axes, with bars between the quartiles.

    Parameters
    ----------
    panels : sequence of Panel
        What to draw; their curves are `Points`.
    columns : int, default=3
        Panels in a row.
    x_label : str, default="H"
        Label of the x-axes.
    y_label : str, default="trajectories until solved"
        Label of the y-axes.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Examples
    --------
    >>> x = np.array([5.0, 10.0, 20.0])
    >>> figure = growth([Panel("lock", [Points("OracleQ-lat", x, 9 * x, 10 * x, 11 * x)])])
    >>> figure.axes[0].get_xscale()
    'log'
    """
    figure, axes = _grid(panels, columns, (), _draw_points, sharex=False, sharey=True)
    for ax, panel in zip(axes, panels):
        ticks = sorted({float(x) for points in panel.curves for x in points.x})
        ax.set_xscale("log" if min(ticks) > 0 else "linear")
        ax.set_yscale("log")
        ax.set_xticks(ticks, [f"{x:g}" for x in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _thousands(y)))
        ax.grid(visible=True, lw=0.4, color="#dddddd")
    figure.supxlabel(x_label, fontsize=9)
    figure.supylabel(y_label, fontsize=9)
    return figure


def _grid(
    panels: Sequence[Panel],
    columns: int,
    order: Sequence[str],
    draw: Callable[[Axes, Panel, Sequence[str]], None],
    *,
    sharex: bool,
    sharey: bool,
) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels with one legend; return it and its axes."""
    there = dict.fromkeys(curve.label for panel in panels for curve in panel.curves)
    looks = list(dict.fromkeys([*order, *there]))
    labels = [label for label in looks if label in there]
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    entries = [*labels, *["optimum"] * any(panel.optimum is not None for panel in panels)]
    widest = 0.6 + 0.075 * max(map(len, entries), default=1)  # an entry of the legend, in inches
    width = max(0.4 + 2.2 * columns, 0.2 + widest)
    in_a_row = max(min(len(entries), int(width / widest)), 1)
    titles = [_wrapped(panel.title, int((width - 0.4) / columns / 0.07)) for panel in panels]
    lines = max((title.count("\n") for title in titles), default=0)
    height = 0.5 + 0.2 * -(-len(entries) // in_a_row) + (1.6 + 0.15 * lines) * rows
    with style():
        layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.04)
        figure = Figure((width, height), layout=layout)
        grid = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
        for ax, panel, title in zip(grid.flat, panels, titles):
            draw(ax, panel, looks)
            ax.set_title(title, pad=4, fontweight="normal")  # bold titles would wrap
        for ax in grid.flat[len(panels) :]:
            ax.remove()
        for ax in grid.flat[max(len(panels) - columns, 0) : len(panels)]:
            ax.tick_params(labelbottom=True)  # also above an empty place
        handles: dict[str, Artist] = {}
        for ax in figure.axes:
            handles |= {label: artist for artist, label in zip(*ax.get_legend_handles_labels())}
        figure.legend(
            [handles[entry] for entry in entries],
            entries,
            loc="outside upper center",
            ncols=in_a_row,
            frameon=False,
            handlelength=2.4,
            columnspacing=1.6,
        )
    return figure, list(grid.flat[: len(panels)])


def save(figure: Figure, stem: Path, formats: Sequence[str] = ("png", "pdf", "svg")) -> list[Path]:
    """Write a figure to files; the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.
    stem : Path
        Path of the files without their suffix.
    formats : sequence of str, default=("png", "pdf", "svg")
        Suffixes of the files.

    Returns
    -------
    list of Path
        The files.
    """
    options: dict[str, dict[str, Any]] = {
        "png": {"dpi": 130, "pil_kwargs": {"optimize": True}},
        "pdf": {"metadata": {"CreationDate": None}},
        "svg": {"metadata": {"Date": None}},
    }
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    with style():
        for kind, path in zip(formats, paths):
            figure.savefig(path, **options.get(kind, {}))
    return paths


def _wrapped(title: str, width: int) -> str:
    """Break a title into lines of about `width` characters, after commas only."""
    tied = re.sub("(?<!,) ", "\xa0", title)
    return textwrap.fill(tied, width, break_long_words=False).replace("\xa0", " ")


def _draw(ax: Axes, panel: Panel, looks: Sequence[str]) -> None:
    for curve in panel.curves:
        i = looks.index(curve.label)
        colour, dashes = COLOURS[i % len(COLOURS)], _DASHES[i % len(_DASHES)]
        low, high = curve.mean - curve.std, curve.mean + curve.std
        ax.fill_between(curve.x, low, high, color=colour, alpha=0.18, linewidth=0)
        ax.plot(curve.x, curve.mean, color=colour, linestyle=dashes, lw=1.5, label=curve.label)
    if panel.optimum is not None:
        ax.axhline(panel.optimum, color=GREY, lw=0.8, zorder=1, label="optimum")
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _thousands(x)))


def _draw_points(ax: Axes, panel: Panel, looks: Sequence[str]) -> None:
    for points in panel.curves:
        i = looks.index(points.label)
        colour, dashes = COLOURS[i % len(COLOURS)], _DASHES[i % len(_DASHES)]
        top = np.where(np.isfinite(points.high), points.high, points.median)
        bars = (points.median - points.low, top - points.median)
        ax.errorbar(
            points.x,
            points.median,
            bars,
            color=colour,
            linestyle=dashes,
            lw=1.5,
            marker="os^D"[i % 4],
            ms=4,
            label=points.label,
        )


def _thousands(x: float) -> str:
    return f"{x / 1000:g}k" if abs(x) >= 1000 else f"{x:g}"
