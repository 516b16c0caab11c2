"""Pictures of an episode: levels from left to right, latent states from top to bottom.

>>> from blockmdp.envs import lock_bernoulli
>>> print(ansi(lock_bernoulli(horizon=5), [0, 1, 1], action=3, reward=0.0))
LockBernoulli
  level  0         5
state 0  o . . . . .
state 1  . o @ . . .
state 2  . . . . . .
level 2 of 5, state 1, action 3, reward 0, V* 0.5
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any, cast

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import NDArray

from blockmdp.mdp import BlockMDP

__all__ = ["ansi", "rgb"]

COLUMNS = 80  # of text; a longer horizon scrolls instead of wrapping


def ansi(
    mdp: BlockMDP, path: Sequence[int], *, action: int | None = None, reward: float | None = None
) -> str:
    """Draw an episode as text: `@` is the agent, `o` is where it was before.

    Parameters
    ----------
    mdp : BlockMDP
        The problem.
    path : sequence of int
        Latent states of the episode so far, at levels 0, 1, ...
    action : int or None, default=None
        Last action, if any.
    reward : float or None, default=None
        Last reward, if any.

    Returns
    -------
    str
        Lines of at most 80 characters. If the horizon is too long for them, they show the levels
        around the present one.
    """
    names = ["level"] + [f"state {s}" for s in range(mdp.n_states)]
    margin = max(map(len, names))
    levels = _window(mdp.horizon + 1, len(path) - 1, (COLUMNS - margin - 2) // 2)
    marks = dict.fromkeys(enumerate(path), "o")
    marks[len(path) - 1, path[-1]] = "@"
    rows = [_numbers(levels)]
    for s in range(mdp.n_states):
        rows.append(" ".join(marks.get((h, s), ".") for h in levels))
    lines = [f"{name:>{margin}}  {row}" for name, row in zip(names, rows)]
    return "\n".join([mdp.name, *lines, _caption(mdp, path, action, reward)])


def rgb(
    mdp: BlockMDP, path: Sequence[int], *, action: int | None = None, reward: float | None = None
) -> NDArray[np.uint8]:
    """Draw an episode as a picture: colours show V*, the line the path, the large dot the agent.

    Parameters
    ----------
    mdp : BlockMDP
        The problem.
    path : sequence of int
        Latent states of the episode so far, at levels 0, 1, ...
    action : int or None, default=None
        Last action, if any.
    reward : float or None, default=None
        Last reward, if any.

    Returns
    -------
    ndarray of shape (height, width, 3)
        Colours from 0 to 255. Height and width are even, as video codecs require, and the same for
        all paths of a problem.
    """
    return _picture(mdp).frame(path, _caption(mdp, path, action, reward))


def _caption(mdp: BlockMDP, path: Sequence[int], action: int | None, reward: float | None) -> str:
    """Return the line below a picture."""
    level, state = len(path) - 1, path[-1]
    words = [f"level {level} of {mdp.horizon}", f"state {state}"]
    if action is not None:
        words.append(f"action {action}")
    if reward is not None:
        words.append(f"reward {reward:.3g}")
    return ", ".join([*words, f"V* {mdp.optimal_values()[level, state]:.3g}"])


def _window(n: int, centre: int, width: int) -> range:
    """Return `width` of the numbers 0, ..., n - 1 around `centre`; all if there are fewer."""
    start = max(0, min(centre - width // 2, n - width))
    return range(start, min(start + width, n))


def _numbers(levels: range) -> str:
    """Return the number of every fifth level, above its column of two characters."""
    line = ""
    for column, level in enumerate(levels):
        if level % 5 == 0:
            line = line.ljust(2 * column) + str(level)
    return line


# --- the picture ----------------------------------------------------------------------------------
_DPI = 100
_INK, _PALE, _VERMILION = "#222222", "#666666", "#d55e00"
_COLOURS = "cividis"  # readable with colour blindness, and in grey


class _Picture:
    """The background of a problem, drawn once; each frame draws a path on top of it."""

    # in pixels: largest cell, largest grid of cells, margins
    cell, grid = 56, (1060, 440)
    left, right, top, bottom = 72, 92, 72, 56
    least_width = 340  # of the grid, so that the caption fits

    def __init__(self, mdp: BlockMDP) -> None:
        H, S = mdp.horizon, mdp.n_states
        inner_width = min(self.grid[0], max(self.cell * (H + 1), self.least_width))
        inner_height = min(self.grid[1], self.cell * S)
        width = _even(self.left + inner_width + self.right)
        height = _even(self.top + inner_height + self.bottom)
        cell = min(inner_width / (H + 1), inner_height / S)

        figure = Figure((width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
        self._canvas = cast(Any, FigureCanvasAgg(figure))  # its methods have no types

        def box(x: float, w: float) -> tuple[float, float, float, float]:
            """Return the box of columns x to x + w beside the grid, in fractions of the figure."""
            return x / width, self.bottom / height, w / width, inner_height / height

        ax = figure.add_axes(box(self.left, inner_width))
        V = mdp.optimal_values()  # includes 0, at level H
        low, high = float(V.min()), float(V.max())
        if low == high:
            high = low + 1.0
        mesh = ax.pcolormesh(
            V.T, cmap=_COLOURS, vmin=low, vmax=high, edgecolors="white", linewidth=0.03 * cell
        )
        ax.set_ylim(S, 0)
        for axis, n, most in (
            (ax.xaxis, H + 1, inner_width // 28),
            (ax.yaxis, S, inner_height // 18),
        ):
            ticks = np.arange(0, n, _spacing(n, most))
            axis.set_ticks(ticks + 0.5, [str(tick) for tick in ticks])
        ax.set_xlabel("level", color=_INK, fontsize=10)
        ax.set_ylabel("latent state", color=_INK, fontsize=10)

        bar = figure.add_axes(box(self.left + inner_width + 18, 12))
        figure.colorbar(mesh, cax=bar, ticks=[low, high], format="%.3g")
        bar.set_title("V*", fontsize=10, color=_INK)
        for axes in (ax, bar):
            axes.tick_params(length=0, labelsize=9, labelcolor=_INK)
            axes.spines[:].set_visible(False)

        def text(y: float, words: str, **style: Any) -> Text:
            """Write a line above the grid."""
            x = self.left / width
            return figure.text(x, 1 - y / height, words, va="center", parse_math=False, **style)

        text(24, mdp.name, fontsize=12, fontweight="bold", color=_INK)
        self._caption = text(46, "", fontsize=10, color=_PALE, animated=True)

        # light on dark, so that lines are visible on every colour; sizes in points
        thick, dot, spot = max(1.2, 0.04 * cell), max(3.6, 0.16 * cell), max(7.0, 0.33 * cell)
        self._path = [
            Line2D([], [], color=_INK, lw=thick + 1.6, marker="o", ms=dot + 1.6, mew=0),
            Line2D([], [], color="white", lw=thick, marker="o", ms=dot, mew=0),
        ]
        self._place = [
            Line2D([], [], marker="o", mfc=_INK, ms=spot + 2 * thick + 2, mew=0),
            Line2D([], [], marker="o", mfc=_VERMILION, mec="white", ms=spot + thick, mew=thick),
        ]
        for line in (*self._path, *self._place):
            line.set(animated=True, clip_on=False)
            ax.add_line(line)
        self._canvas.draw()
        self._background = self._canvas.copy_from_bbox(figure.bbox)

    def frame(self, path: Sequence[int], caption: str) -> NDArray[np.uint8]:
        """Return the picture with a path, (height, width, 3)."""
        levels, states = np.arange(len(path)) + 0.5, np.asarray(path) + 0.5
        for line in self._path:
            line.set_data(levels, states)
        for line in self._place:
            line.set_data(levels[-1:], states[-1:])
        self._caption.set_text(caption)
        self._canvas.restore_region(self._background)
        for artist in (*self._path, *self._place, self._caption):
            artist.draw(self._canvas.get_renderer())
        return np.array(self._canvas.buffer_rgba())[..., :3].copy()


@lru_cache(maxsize=4)  # each one holds a canvas
def _picture(mdp: BlockMDP) -> _Picture:
    """Return the background of a problem."""
    return _Picture(mdp)


def _spacing(n: int, most: int) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, ... that thins n labels to at most `most`."""
    steps = (k * int(10**e) for e in count() for k in (1, 2, 5))
    return next(step for step in steps if n <= step * max(most, 1))


def _even(n: int) -> int:
    """Round up to an even number."""
    return n + n % 2
