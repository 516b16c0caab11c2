"""Figures of learning curves: what is drawn, and that drawing changes nothing else."""

from __future__ import annotations

import sys

import matplotlib as mpl
import numpy as np
import pytest

from blockmdp.plots.curves import Curve, Panel, learning_curves, save


def panels(n, optimum=None):
    x = np.arange(1.0, 2001.0, 500.0)
    curves = [
        Curve("rising", x, x / 5000, x / 50_000),
        Curve("flat", x, np.zeros(4), np.zeros(4)),
    ]
    return [Panel(f"panel {i}", curves[: 1 + i % 2], optimum) for i in range(n)]


def test_a_figure_has_one_axes_per_panel_and_one_legend():
    for n in (1, 2, 3, 5):
        given = panels(n, 0.5)
        figure = learning_curves(given, columns=3)
        assert [ax.get_title("left") for ax in figure.axes] == [panel.title for panel in given]
        (legend,) = figure.legends
        labels = {text.get_text() for text in legend.get_texts()}
        assert labels == {curve.label for panel in given for curve in panel.curves} | {"optimum"}
        assert not any(ax.get_legend() for ax in figure.axes)


def test_the_lowest_panel_of_each_column_has_numbers_on_its_x_axis():
    shown = [ax.xaxis.get_tick_params()["labelbottom"] for ax in learning_curves(panels(5)).axes]
    assert shown == [False, False, True, True, True]


def test_a_figure_draws_its_data():
    given = panels(2, 0.5)
    figure = learning_curves(given)
    for ax, panel in zip(figure.axes, given, strict=True):
        lines = {line.get_label(): line for line in ax.get_lines()}
        for curve in panel.curves:
            assert np.array_equal(lines[curve.label].get_xdata(), curve.x)
            assert np.array_equal(lines[curve.label].get_ydata(), curve.mean)
        assert set(np.asarray(lines["optimum"].get_ydata())) == {0.5}
        assert len(ax.collections) == len(panel.curves)  # the bands
        band = ax.collections[0].get_paths()[0].vertices
        assert band[:, 1].max() == pytest.approx(np.max(panel.curves[0].mean + panel.curves[0].std))


def test_the_y_axis_shows_every_optimum_and_the_x_axis_every_curve():
    x = np.array([1.0, 9.0])
    long, short = (Curve("rising", x * n, x / 10, x / 50) for n in (3, 1))
    for order in ([long, short], [short, long]):
        given = [Panel("", [curve], best) for curve, best in zip(order, (0.5, 2.0), strict=True)]
        figure = learning_curves(given)
        assert {ax.get_xlim() for ax in figure.axes} == {(0.0, 27.0)}
        assert figure.axes[0].get_ylim() == pytest.approx((-0.015, 0.55))
        assert figure.axes[1].get_ylim() == pytest.approx((-0.06, 2.2))


def test_the_y_axis_follows_the_curves_if_an_optimum_is_unknown():
    x = np.array([1.0, 9.0])
    down = Curve("falling", x, -x, x / 50)
    for best in (None, -1.0):
        figure = learning_curves([Panel("", [down], best), Panel("", [down])])
        low, high = figure.axes[0].get_ylim()
        assert low < -9
        assert high > -1
        lines = [line.get_label() for line in figure.axes[0].get_lines()]
        assert lines == ["falling"] + ["optimum"] * (best is not None)


def test_a_label_looks_the_same_in_every_panel_and_labels_differ():
    figure = learning_curves(panels(4))
    looks = {
        (line.get_label(), line.get_color(), line.get_linestyle())
        for ax in figure.axes
        for line in ax.get_lines()
    }
    assert len(looks) == 2
    assert len({colour for _, colour, _ in looks}) == 2


@pytest.mark.parametrize("n", [1, 6])
def test_long_titles_and_labels_do_not_overlap(n):
    title = "lock_gaussian, H = 20, switch = 0.25, sigma = 0.125, 20000 episodes"
    label = "URL batch=2000 oracle=pca_kmeans n_components=3 lr=0.03"
    x = np.array([1.0, 9.0])
    curves = [Curve(f"{label} {i}", x, x / 20, x / 50) for i in range(7)]
    figure = learning_curves([Panel(title, curves, 0.5)] * n)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    boxes = [legend.get_window_extent()]
    boxes += [ax._left_title.get_window_extent() for ax in figure.axes]
    boxes += [ax.get_window_extent() for ax in figure.axes]
    for i, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])
    assert min(ax.get_window_extent().height for ax in figure.axes) > 80  # of 100 points an inch


def test_drawing_and_saving_do_not_change_matplotlib_s_settings(tmp_path):
    with mpl.rc_context({"font.size": 23, "axes.facecolor": "pink"}):
        before = dict(mpl.rcParams)
        figure = learning_curves(panels(1))
        save(figure, tmp_path / "figure", ["png"])
        assert dict(mpl.rcParams) == before
    assert figure.axes[0].get_facecolor() == (1, 1, 1, 1)  # and they do not affect the figure
    assert "matplotlib.pyplot" not in sys.modules or not mpl.pyplot.get_fignums()


def test_the_same_figure_gives_the_same_files(tmp_path):
    for stem in ("one", "two"):
        save(learning_curves(panels(1, 0.5)), tmp_path / stem)
    for kind in ("png", "pdf", "svg"):
        one, two = (tmp_path / f"{stem}.{kind}" for stem in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()
