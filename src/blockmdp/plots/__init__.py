"""Plots: pure functions from data to a matplotlib `Figure`.

No window opens, and no global setting changes.
"""

from blockmdp.plots.agent import plot_agent
from blockmdp.plots.animation import animate
from blockmdp.plots.curves import Curve, Panel, Points, growth, learning_curves, save
from blockmdp.plots.duels import Interval, duel_figure
from blockmdp.plots.maps import heat_map
from blockmdp.plots.style import style

__all__ = [
    "Curve",
    "Interval",
    "Panel",
    "Points",
    "animate",
    "duel_figure",
    "growth",
    "heat_map",
    "learning_curves",
    "plot_agent",
    "save",
    "style",
]
