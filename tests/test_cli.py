"""The command, the figure it draws, and what the README promises."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import blockmdp as bm
from blockmdp.cli import main
from blockmdp.experiments import reproduce as experiment
from blockmdp.experiments.driver import Interrupted
from blockmdp.experiments.pool import ExecutorError
from blockmdp.experiments.store import StoreError
from blockmdp.experiments.study import StudyError
from blockmdp.plots.curves import Curve, Panel, learning_curves, save

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ALGORITHMS = ["OracleQ-lat", "QLearning-lat", "OracleQ-obs", "QLearning-obs"]


# --- the command ----------------------------------------------------------------------------------
def exit_status(arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


def test_the_package_installs_the_command():
    (command,) = entry_points(group="console_scripts", name="blockmdp")
    assert command.load() is main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--help"],
            [
                *("run", "tune", "status", "plot", "table", "export", "list", "reproduce"),
                "--version",
            ],
        ),
        (
            ["run", "--help"],
            [
                *("STUDY", "--out", "--set", "--only", "--jobs", "--cluster", "--timeout"),
                *("--memory", "--retry-failed", "--quiet", "--dry-run"),
            ],
        ),
        (["tune", "--help"], ["--tuning-seeds", "--out", "--set", "--cluster"]),
        (["plot", "--help"], ["--y", "--to", "--study"]),
        (["table", "--help"], ["Wilson", "bootstrap", "--format"]),
        (["reproduce", "--help"], ["--out", "--seeds", "--only", "--jobs", "--quick"]),
    ],
)
def test_help_names_what_there_is(arguments, words, capsys):
    assert exit_status(arguments) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in words)


def test_the_version_is_the_package_s(capsys):
    assert exit_status(["--version"]) == 0
    assert capsys.readouterr().out == f"blockmdp {bm.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["reprodcue"], "reprodcue"),
        (["reproduce", "--seeds", "0"], "--seeds: must be a whole number, 1 or more; got '0'"),
        (["reproduce", "--only", "fig4"], "--only: there is no 'fig4', only fig1, fig2"),
        (["reproduce", "--jobs", "-1"], "--jobs: must be a whole number"),
        (["reproduce", "--seeds", "3", "--quick"], "not allowed with argument --seeds"),
        (["reproduce", "--seed", "3"], "unrecognized arguments: --seed"),
        (["run"], "the following arguments are required: STUDY"),
        (
            ["run", "study.toml", "--jobs", "0"],
            "--jobs: must be a whole number, 1 or more; got '0'",
        ),
        (["run", "study.toml", "--timeout", "0"], "--timeout: must be a number above 0; got '0'"),
        (["run", "study.toml", "--memory", "nan"], "--memory: must be a number above 0; got 'nan'"),
        (["run", "study.toml", "--timeout", "inf"], "--timeout: must be a number above 0"),
        (["run", "study.toml", "--quie"], "unrecognized arguments: --quie"),
        (["tune", "study.toml", "--tuning-seeds", "x"], "--tuning-seeds: must be a whole number"),
        (["table", "results", "--format", "html"], "invalid choice: 'html'"),
        (["plot", "results", "--y", "best"], "invalid choice: 'best'"),
        (["export", "results"], "the following arguments are required: FILE"),
    ],
)
def test_a_bad_argument_gets_one_line_and_status_2(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert exit_status(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert words in err


def test_an_out_that_cannot_be_written_gets_one_line_and_status_2(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "below")
    assert exit_status(["reproduce", "--out", out]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"cannot write to {out!r}: Not a directory" in err


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (Interrupted(signal.SIGINT), 130, "what was finished is kept; the same command goes on"),
        (Interrupted(signal.SIGTERM), 143, "what was finished is kept; the same command goes on"),
        (ExecutorError("no worker is left"), 1, "no worker is left"),
        (StoreError("out is in use"), 1, "out is in use"),
        (StudyError("seeds: a\nb"), 2, "seeds: a b"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
    ],
)
def test_what_goes_wrong_on_the_way_gets_one_line(
    error, status, words, capsys, tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(experiment, "reproduce", fail)
    assert main(["reproduce", "--out", str(tmp_path)]) == status
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert words in err


def test_a_reader_that_goes_away_gets_no_traceback():
    listing = [sys.executable, "-m", "blockmdp.cli", "list"]
    with subprocess.Popen(listing, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


# --- figures --------------------------------------------------------------------------------------
def panels(n, optimum=None):
    x = np.arange(1.0, 2001.0, 500.0)
    curves = [
        Curve("rising", x, x / 5000, x / 50_000),
        Curve("flat", x, np.zeros(4), np.zeros(4)),
    ]
    return [Panel(f"panel {i}", curves[: 1 + i % 2], optimum) for i in range(n)]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_a_figure_has_an_axes_for_each_panel_and_one_legend(n):
    given = panels(n, 0.5)
    figure = learning_curves(given, columns=3)
    assert [ax.get_title() for ax in figure.axes] == [panel.title for panel in given]
    (legend,) = figure.legends
    labels = {text.get_text() for text in legend.get_texts()}
    assert labels == {curve.label for panel in given for curve in panel.curves} | {"optimum"}
    assert not any(ax.get_legend() for ax in figure.axes)


def test_a_figure_draws_the_data_it_is_given():
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


def test_where_an_optimum_is_unknown_the_y_axis_follows_the_curves():
    x = np.array([1.0, 9.0])
    down = Curve("falling", x, -x, x / 50)
    for best in (None, -1.0):
        figure = learning_curves([Panel("", [down], best), Panel("", [down])])
        low, high = figure.axes[0].get_ylim()
        assert low < -9
        assert high > -1
        lines = [line.get_label() for line in figure.axes[0].get_lines()]
        assert lines == ["falling"] + ["optimum"] * (best is not None)


def test_a_label_looks_the_same_in_every_panel_and_no_two_look_alike():
    figure = learning_curves(panels(4))
    looks = {
        (line.get_label(), line.get_color(), line.get_linestyle())
        for ax in figure.axes
        for line in ax.get_lines()
    }
    assert len(looks) == 2
    assert len({colour for _, colour, _ in looks}) == 2


@pytest.mark.parametrize("n", [1, 2, 6])
def test_long_titles_and_labels_find_their_place(n):
    title = "lock_gaussian, H = 20, switch = 0.25, sigma = 0.125, 20000 episodes"
    label = "URL batch=2000 oracle=pca_kmeans n_components=3 lr=0.03"
    x = np.array([1.0, 9.0])
    curves = [Curve(f"{label} {i}", x, x / 20, x / 50) for i in range(7)]
    figure = learning_curves([Panel(title, curves, 0.5)] * n)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    boxes = [legend.get_window_extent(), *(ax.title.get_window_extent() for ax in figure.axes)]
    boxes += [ax.get_window_extent() for ax in figure.axes]
    for i, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])
    assert min(ax.get_window_extent().height for ax in figure.axes) > 80  # of 100 points an inch


def test_drawing_and_saving_leave_matplotlib_s_settings_alone(tmp_path):
    with mpl.rc_context({"font.size": 23, "axes.facecolor": "pink"}):
        before = dict(mpl.rcParams)
        figure = learning_curves(panels(1))
        save(figure, tmp_path / "figure")
        assert dict(mpl.rcParams) == before
    assert figure.axes[0].get_facecolor() == (1, 1, 1, 1)  # nor do they follow them
    assert "matplotlib.pyplot" not in sys.modules or not mpl.pyplot.get_fignums()


def test_the_same_figure_gives_the_same_files(tmp_path):
    for stem in ("one", "two"):
        save(learning_curves(panels(2, 0.5)), tmp_path / stem)
    for kind in ("png", "pdf", "svg"):
        one, two = (tmp_path / f"{stem}.{kind}" for stem in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


# --- the README -----------------------------------------------------------------------------------
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_code_block_of_the_readme_runs_and_learns_the_lock(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
    assert any(
        line.startswith("0.5 ") or line == "0.5" for line in capsys.readouterr().out.splitlines()
    )


def test_the_readme_has_code_blocks():
    assert len(BLOCKS) == 3


def test_the_readme_points_to_files_that_exist():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    for link in links:
        assert link.startswith("https://") or (ROOT / link).exists(), link
    for name in re.findall(r"`([a-z_/]+(?:\.py|/))`", README):
        assert (ROOT / "src" / "blockmdp" / name).exists() or (ROOT / name).exists(), name
    assert (ROOT / "docs" / "figure1.png").stat().st_size < 250_000
