"""The command, the figure it draws, and what the README promises."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import sys
from concurrent.futures.process import BrokenProcessPool
from importlib.metadata import entry_points
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import blockmdp as bm
from blockmdp.cli import main
from blockmdp.experiments import reproduce as experiment
from blockmdp.experiments.figures import Curve, Panel, learning_curves, save

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
        (["--help"], ["reproduce", "--version"]),
        (["reproduce", "--help"], ["--out", "--seeds", "--episodes", "--jobs", "--quick"]),
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
        (["reproduce", "--episodes", "many"], "--episodes: must be a whole number"),
        (["reproduce", "--jobs", "-1"], "--jobs: must be a whole number"),
        (["reproduce", "--seeds", "3", "--quick"], "not allowed with argument --seeds"),
        (["reproduce", "--seed", "3"], "unrecognized arguments: --seed"),
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
        (BrokenProcessPool(), 1, "a worker process died"),
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


# --- reproduce ------------------------------------------------------------------------------------
def reproduce(out, jobs):
    """What a small reproduction says on stdout and on stderr."""
    told, progress = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(progress):
        arguments = ["--seeds", "2", "--episodes", "1500", "--jobs", str(jobs), "--out", str(out)]
        assert main(["reproduce", *arguments]) == 0
    return told.getvalue(), progress.getvalue()


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduction") / "made" / "on the way"
    return out, *reproduce(out, jobs=2)


def test_reproduce_writes_a_figure_and_its_curves(reproduction):
    out = reproduction[0]
    kinds = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml", "csv": b"algorithm,"}
    assert {path.name for path in out.iterdir()} == {f"figure1-skyline.{kind}" for kind in kinds}
    for kind, start in kinds.items():
        assert (out / f"figure1-skyline.{kind}").read_bytes().startswith(start)


def test_the_curves_are_the_mean_and_deviation_of_the_runs(reproduction):
    with (reproduction[0] / "figure1-skyline.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("algorithm", "horizon", "switch", "seeds", "trajectories", "mean", "std")
    ]
    assert len(rows) == 4 * 9 * 200
    last = {
        (row["algorithm"], row["horizon"], row["switch"]): row
        for row in rows
        if row["trajectories"] == "1500"
    }
    assert len(last) == 4 * 9
    assert {row["seeds"] for row in rows} == {"2"}
    agents = {"OracleQ-lat": bm.OracleQ(), "QLearning-lat": bm.QLearning()}
    for name, learner in agents.items():
        means = [
            bm.Tabular(learner).fit(bm.lock_bernoulli(5, 0.2, seed=s), 1500, seed=s).returns_.mean()
            for s in range(2)
        ]
        row = last[name, "5", "0.2"]
        assert float(row["mean"]) == pytest.approx(np.mean(means), abs=1e-6)
        assert float(row["std"]) == pytest.approx(np.std(means), abs=1e-6)


def test_reproduce_tells_how_far_it_is_and_what_came_of_it(reproduction):
    _, told, progress = reproduction
    assert progress.splitlines()[-1].startswith("72/72 runs")
    lines = told.splitlines()
    header = next(i for i, line in enumerate(lines) if "OracleQ-lat" in line)
    assert lines[header].split() == ["H", "switch", *ALGORITHMS]
    assert lines[header + 1].split()[:2] == ["5", "0"]
    assert lines[header + 9].split() == ["20", "0.5", *["-", "0/2"] * 4]


def test_the_number_of_processes_changes_nothing(reproduction, tmp_path):
    reproduce(tmp_path, jobs=1)
    for path in reproduction[0].iterdir():
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


def test_the_cumulative_average_is_that_of_all_returns_so_far():
    n, average = experiment.cumulative_average(np.array([0.0, 1.0, 1.0, 0.0]), points=2)
    assert n.tolist() == [2, 4]
    assert average.tolist() == [0.5, 0.5]
    n, average = experiment.cumulative_average(np.array([0.0, 1.0, 1.0]), points=200)
    assert n.tolist() == [1, 2, 3]
    assert average.tolist() == [0, 0.5, 2 / 3]


def test_a_run_is_solved_when_its_last_returns_exceed_the_threshold():
    returns = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    assert experiment.solved_at(returns, window=2, threshold=0.9) == 5
    assert experiment.solved_at(returns, window=2, threshold=0.5) == 5
    assert experiment.solved_at(returns, window=2, threshold=0.45) == 2
    assert experiment.solved_at(returns, window=2, threshold=1.0) is None
    assert experiment.solved_at(returns, window=7, threshold=0.1) is None


# --- figures --------------------------------------------------------------------------------------
def panels(n):
    x = np.arange(1.0, 2001.0, 500.0)
    curves = [
        Curve("rising", x, x / 5000, x / 50_000),
        Curve("flat", x, np.zeros(4), np.zeros(4)),
    ]
    return [Panel(f"panel {i}", curves[: 1 + i % 2]) for i in range(n)]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9])
def test_a_figure_has_an_axes_for_each_panel_and_one_legend(n):
    given = panels(n)
    figure = learning_curves(given, columns=3, optimum=0.5)
    assert [ax.get_title() for ax in figure.axes] == [panel.title for panel in given]
    (legend,) = figure.legends
    labels = {text.get_text() for text in legend.get_texts()}
    assert labels == {curve.label for panel in given for curve in panel.curves} | {"optimum"}
    assert not any(ax.get_legend() for ax in figure.axes)


def test_a_figure_draws_the_data_it_is_given():
    given = panels(2)
    figure = learning_curves(given, optimum=0.5)
    for ax, panel in zip(figure.axes, given, strict=True):
        lines = {line.get_label(): line for line in ax.get_lines()}
        for curve in panel.curves:
            assert np.array_equal(lines[curve.label].get_xdata(), curve.x)
            assert np.array_equal(lines[curve.label].get_ydata(), curve.mean)
        assert set(np.asarray(lines["optimum"].get_ydata())) == {0.5}
        assert len(ax.collections) == len(panel.curves)  # the bands
        band = ax.collections[0].get_paths()[0].vertices
        assert band[:, 1].max() == pytest.approx(np.max(panel.curves[0].mean + panel.curves[0].std))


def test_a_label_looks_the_same_in_every_panel_and_no_two_look_alike():
    figure = learning_curves(panels(4))
    looks = {
        (line.get_label(), line.get_color(), line.get_linestyle())
        for ax in figure.axes
        for line in ax.get_lines()
    }
    assert len(looks) == 2
    assert len({colour for _, colour, _ in looks}) == 2


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
        save(learning_curves(panels(2), optimum=0.5), tmp_path / stem)
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
        assert (ROOT / link).exists(), link
    for name in re.findall(r"`([a-z_/]+(?:\.py|/))`", README):
        assert (ROOT / "src" / "blockmdp" / name).exists() or (ROOT / name).exists(), name
    assert (ROOT / "docs" / "figure1-skyline.png").stat().st_size < 150_000
