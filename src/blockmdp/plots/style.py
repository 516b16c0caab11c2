"""The one style of all figures: colours and matplotlib settings."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from matplotlib import style as matplotlib_style

__all__ = ["BLUE", "COLOURS", "GREEN", "GREY", "ORANGE", "style"]

# Okabe and Ito's colours, which the colour-blind can tell apart, in an order of falling contrast
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLUE, ORANGE, GREEN = COLOURS[:3]
GREY = "#666666"

_SETTINGS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "figure.titlesize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "pdf.fonttype": 42,  # fonts that journals accept
    "svg.hashsalt": "blockmdp",  # the same data gives the same file
}


def style() -> AbstractContextManager[None]:
    """Use the package's settings on top of matplotlib's defaults, and restore the user's after."""
    return matplotlib_style.context(_SETTINGS, after_reset=True)
