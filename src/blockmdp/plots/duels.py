"""Two agents compared: their difference in each panel, and the share of runs that are good."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter
from numpy.typing import NDArray

from blockmdp.plots.style import BLUE, GREY, ORANGE, style

__all__ = ["Interval", "duel_figure"]

Array = NDArray[np.float64]
Band = tuple[Array, Array, Array]
TINTS = {"better": BLUE, "worse": ORANGE, "undecided": GREY}
MARKERS = {"better": "o", "worse": "s", "undecided": "D"}


@dataclass(frozen=True)
class Interval:
    """A number with an interval.

    Parameters
    ----------
    label : str
        Name of the row.
    value, low, high : float
        The number, and the ends of its interval.
    verdict : {"better", "worse", "undecided"}
        What it means for the first agent; chooses colour and marker.
    """

    label: str
    value: float
    low: float
    high: float
    verdict: str


def duel_figure(
    intervals: Sequence[Interval],
    x: Array,
    profiles: Mapping[str, Band],
    *,
    change: str,
    score: str,
    is_ratio: bool = False,
) -> Figure:
    """Draw intervals below each other, and performance profiles beside them.

    Parameters
    ----------
    intervals : sequence of Interval
        One for each row, from top to bottom.
    x : ndarray of shape (points,)
        Where the profiles were measured.
    profiles : mapping of str to tuple of (ndarray, ndarray, ndarray)
        For each agent, the share of its runs at each point, and the ends of its interval.
    change : str
        What the intervals are about.
    score : str
        What is on the x-axis of the profiles.
    is_ratio : bool, default=False
        Whether intervals are ratios, drawn on a logarithmic scale around 1, and not differences
        around 0. Then the x-axis of the profiles is logarithmic too.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Examples
    --------
    >>> share = np.array([1.0, 0.8])
    >>> figure = duel_figure(
    ...     [Interval("H = 5", 0.1, 0.05, 0.2, "better")],
    ...     np.array([0.0, 1.0]),
    ...     {"URL": (share, share, share)},
    ...     change="URL minus PCID",
    ...     score="return at the end",
    ... )
    >>> len(figure.axes)
    2
    """
    height = max(2.6, 0.9 + 0.19 * len(intervals))
    with style():
        figure = Figure((8.0, height), layout=ConstrainedLayoutEngine())
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        _draw_intervals(left, intervals, is_ratio)
        left.set_xlabel(textwrap.fill(change, 40))
        for (agent, (share, low, high)), colour in zip(profiles.items(), (BLUE, ORANGE)):
            dashes = "-" if colour == BLUE else (0, (5, 1.5))
            name, step = textwrap.fill(agent, 40), {"color": colour}
            right.step(x, share, where="post", label=name, linestyle=dashes, **step)
            right.fill_between(x, low, high, step="post", alpha=0.2, linewidth=0, **step)
        is_short = sum(map(len, profiles)) < 30
        right.set_xlabel(textwrap.fill(score, 40))
        right.set_ylabel("share of all runs")
        right.set_ylim(-0.02, 1.02)
        right.yaxis.set_major_formatter(PercentFormatter(1.0))
        if is_ratio:
            _make_log(right)
        right.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=1 + is_short, borderpad=0)
    return figure


def _draw_intervals(ax: Axes, intervals: Sequence[Interval], is_ratio: bool) -> None:
    ax.axvline(1.0 if is_ratio else 0.0, color=GREY, linewidth=0.6)
    for i, each in enumerate(intervals):
        tint = TINTS[each.verdict]
        ax.plot([each.low, each.high], [i, i], color=tint, linewidth=1.4)
        ax.plot(each.value, i, MARKERS[each.verdict], color=tint, markersize=4)
    for verdict in TINTS:  # a legend of those that occur
        if any(each.verdict == verdict for each in intervals):
            ax.plot([], [], MARKERS[verdict], color=TINTS[verdict], label=verdict, markersize=4)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0, handletextpad=0.2)
    ax.set_yticks(range(len(intervals)), [each.label for each in intervals])
    ax.set_ylim(len(intervals) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    if is_ratio:
        _make_log(ax)


def _make_log(ax: Axes) -> None:
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
