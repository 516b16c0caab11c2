"""Heat maps: one number for each pair of a row and a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from numpy.typing import NDArray

from blockmdp.plots.style import style

__all__ = ["heat_map"]

UNREACHED = "#e6e6e6"


def heat_map(
    values: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    label: str = "trajectories until solved",
) -> Figure:
    """Draw a table of numbers, coloured on a logarithmic scale: the darker, the smaller.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_columns)
        Numbers. Those below 1 have the colour of 1. An infinite one is grey, with a dash, and there
        is nothing where one is NaN.
    rows, columns : sequence of str
        Their names.
    label : str, default="trajectories until solved"
        What the numbers are.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Examples
    --------
    >>> figure = heat_map(np.array([[10.0, np.inf]]), ["PSRL"], ["H = 5", "H = 10"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['10', '-']
    """
    values = np.asarray(values, np.float64)
    shown = values[np.isfinite(values)]
    low, high = (max(shown.min(), 1.0), max(shown.max(), 1.0)) if shown.size else (1.0, 1.0)
    norm: Normalize = LogNorm(low, high) if high > low else Normalize(low, low + 1)
    width = 0.4 + 0.075 * max(map(len, rows), default=1) + 0.75 * len(columns) + 0.7
    height = 0.3 + 0.075 * max(map(len, columns), default=1) + 0.22 * len(rows)
    with style():
        figure = Figure((width, max(height, 1.6)), layout=ConstrainedLayoutEngine())
        ax = figure.subplots()
        never = np.ma.masked_where(~np.isinf(values), np.ones_like(values))
        ax.imshow(never, ListedColormap([UNREACHED]), aspect="auto")
        image = ax.imshow(np.ma.masked_invalid(np.maximum(values, low)), norm=norm, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if not np.isnan(value):
                dark = np.isfinite(value) and norm(max(value, low)) < 0.6
                text = f"{round(value):,}" if np.isfinite(value) else "-"
                colour = "white" if dark else "black"
                ax.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
        ax.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
        ax.set_yticks(range(len(rows)), rows)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if shown.size:
            bar = figure.colorbar(image, ax=ax, label=label, fraction=0.05, pad=0.02)
            if high > low:
                bar.ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
                bar.ax.yaxis.set_minor_locator(NullLocator())
            bar.outline.set_visible(False)
    return figure
