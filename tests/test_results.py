"""A small study, run for real: its frames, tables, curves, and the commands that show them."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from faults import InProcess
from helpers import python
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

import blockmdp as bm
from blockmdp.cli import main
from blockmdp.envs import random_block_mdp
from blockmdp.experiments import Results, Study, driver, statistics, tuning
from blockmdp.experiments.catalogue import find, parameters
from blockmdp.experiments.errors import StoreError, StudyError
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.runs import execute
from blockmdp.experiments.store import FILE, Store

OWN = """
import os

import blockmdp as bm


def lock(horizon: int = 3, size: int | None = None, seed: int = 0) -> bm.BlockMDP:
    return bm.lock_bernoulli(size or horizon, 0.0, seed)


def any_lock(x, seed=0) -> bm.BlockMDP:
    return bm.lock_bernoulli(3, 0.0, seed)


class Unlucky:
    "Fails until it is mended."

    def fit(self, problem, episodes, seed=0):
        if "MENDED" not in os.environ:
            raise RuntimeError("no luck\\nwith seed %d" % seed)
        self.returns_ = [1.0] * episodes


class Guess:
    "Is right where the horizon is what it guesses."

    def __init__(self, horizon: int):
        self.horizon = horizon

    def fit(self, problem, episodes, seed=0):
        self.returns_ = [float(problem.horizon == self.horizon)] * episodes
"""
TEXT = """
seeds = 3
episodes = 400
[solved]
window = 100
share = 0.6
[problem]
name = "lock_bernoulli"
horizon = [3, 4]
[[agent]]
name = "URL"
batch = 30
iterations = 2
oracle = { name = "pca_kmeans", n_init = 1 }
[[agent]]
name = "Tabular"
learner = { name = "OracleQ", lr = [0.1, 0.3] }
[[agent]]
name = "results_own:Unlucky"
when.horizon = 3
"""
NAMES = ["URL", "OracleQ-lat lr=0.1", "OracleQ-lat lr=0.3"]
PAIRS = [("H = 3", name) for name in [*NAMES, "Unlucky"]] + [("H = 4", name) for name in NAMES]


def command(*arguments):
    """Return the exit status of a command and what it prints on stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A folder with a study file, a module next to it, and what the command `run` printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", sys.path[:])
        folder = tmp_path_factory.mktemp("ran")
        (folder / "results_own.py").write_text(OWN)
        (folder / "small.toml").write_text(TEXT)
        printed = command("run", folder / "small.toml", "--out", folder / "out", "--jobs", 1)
        yield SimpleNamespace(folder=folder, printed=printed)


@pytest.fixture
def results(ran):
    return bm.Results(ran.folder / "out")


@pytest.fixture
def copied(ran, tmp_path):
    """A copy that a test may change."""
    shutil.copytree(ran.folder, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def idle(monkeypatch):
    """Fail if a run is done."""

    def refuse(*_):
        raise AssertionError("there should be nothing to do")

    monkeypatch.setattr(driver, "make_executor", refuse)


@pytest.fixture
def executor(monkeypatch):
    """Do runs in this process."""
    executor = InProcess()
    monkeypatch.setattr(driver, "make_executor", lambda *_: executor)
    return executor


def of(results, panel, agent):
    return [row for s, row in results.rows if (s.panel, s.label) == (panel, agent)]


# --- run ------------------------------------------------------------------------------------------
def test_run_reports_finished_and_failed_runs(ran):
    status, out, err = ran.printed
    assert status == 1
    where = ran.folder / "out"
    assert (
        out
        == f"18 runs of small are in {where}. Next: blockmdp table {where}; blockmdp plot {where}\n"
    )
    lines = err.splitlines()
    assert sum(line.startswith("failed: H = 3 | Unlucky | seed ") for line in lines) == 3
    assert any(line.startswith("21/21 runs, ") for line in lines)
    assert lines[-1] == f"blockmdp: 3 runs failed; for the reasons: blockmdp status {where}"


def test_every_run_is_there_once(results):
    assert len(results.study) == len(results.rows) == 21
    assert (len(results.done), len(results.failed)) == (18, 3)
    expected = [(panel, agent, seed) for panel, agent in PAIRS for seed in range(3)]
    assert [(s.panel, s.label, row.seed) for s, row in results.rows] == expected
    assert {row.key for _, row in results.rows} == {run.key for run in results.study.runs()}
    assert repr(results) == "<results of small: 18 of 21 runs done>"


def test_running_again_does_nothing(copied, idle):
    before = Results(copied / "out").rows
    status, out, _ = command("run", copied / "small.toml", "--out", copied / "out")
    assert status == 1
    assert out.startswith("18 runs of small are in ")
    assert [row for _, row in Results(copied / "out").rows] == [row for _, row in before]


def test_a_run_is_what_fitting_the_agent_gives(ran, results):
    oracle = bm.oracles.pca_kmeans(n_init=1)
    agents = {
        "URL": lambda: bm.URL(oracle, batch=30, iterations=2),
        "OracleQ-lat lr=0.3": lambda: bm.Tabular(bm.OracleQ(lr=0.3)),
    }
    curves = results.curves()
    at = statistics.thin(400)
    for label, make in agents.items():
        for seed in range(3):
            with threadpool_limits(1):
                agent = make().fit(bm.lock_bernoulli(3, seed=seed), 400, seed=seed)
            row = of(results, "H = 3", label)[seed]
            assert row.average == agent.returns_.mean()
            assert row.final == agent.returns_[-100:].mean()
            assert json.loads(row.ledger) == agent.ledger_
            assert row.trajectories == sum(agent.ledger_.values())
            one = (curves.panel == "H = 3") & (curves.agent == label) & (curves.seed == seed)
            curve = curves[one]
            drawn = getattr(agent, "trajectories_", np.arange(1, 401))
            assert curve.trajectories.tolist() == drawn[at - 1].tolist()
            earned = np.cumsum(agent.returns_)[at - 1]
            assert curve.average.to_numpy() == pytest.approx(earned / drawn[at - 1])
            solved = statistics.solved_at(agent.returns_, 0.3, 100)
            assert row.solved_at == (None if solved is None else drawn[solved - 1])


def test_the_oracle_s_training_counts_as_trajectories(results):
    curves = results.curves()
    first = curves[curves.seed == 0].groupby(["panel", "agent"]).trajectories.min()
    assert first["H = 3", "OracleQ-lat lr=0.1"] == 2
    assert first["H = 3", "URL"] > 30
    for row in of(results, "H = 3", "URL"):
        assert row.trajectories > 430
        assert row.solved_at is None or row.solved_at > 130


def test_a_second_study_in_the_same_directory_reuses_runs(copied, executor):
    text = TEXT.replace("[3, 4]", "[2, 3]").replace("seeds = 3", "seeds = [2, 3]")
    (copied / "second.toml").write_text(text)
    options = ("--out", copied / "out", "--only", "agent=OracleQ-lat", "--only", "lr=0.1")
    status, out, err = command("run", copied / "second.toml", *options, "--jobs", 1)
    assert status == 0
    done = {(run.setting.problem["horizon"], run.seed) for run in executor.runs}
    assert done == {(2, 2), (2, 3), (3, 3)}
    assert "3/3 runs" in err
    assert out.startswith("4 runs of second are in ")
    first, second = (Results(copied / "out", name) for name in ("small", "second"))
    assert len(first.done) == 18
    assert len(second.done) == 6  # those by URL and at the other rate come from the first study
    shared = {row.key for _, row in first.rows} & {row.key for _, row in second.rows}
    assert len(shared) == 4
    assert Results(copied / "out").study.name == "second"
    assert command("status", copied / "out")[1].startswith("second: 6 of 14 runs done, 1 failed, 7")
    _, out, _ = command("status", copied / "out", "--study", "small")
    assert out.startswith("small: 18 of 21 runs done")
    status, out, err = command("table", copied / "out", "--study", "third")
    assert (status, out) == (1, "")
    assert err.endswith("has no study 'third'; it has small, second\n")


def test_a_failed_run_is_repeated_only_if_the_user_asks(copied, executor, monkeypatch):
    monkeypatch.setenv("MENDED", "1")
    arguments = ("run", copied / "small.toml", "--out", copied / "out", "--quiet")
    status, out, err = command(*arguments)
    assert (status, out, executor.runs) == (1, "", [])
    assert err.startswith("blockmdp: 3 runs failed")
    before = Results(copied / "out").done
    assert command(*arguments, "--retry-failed") == (0, "", "")
    after = Results(copied / "out")
    assert (len(after.done), len(after.failed), len(executor.runs)) == (21, 0, 3)
    assert {row for _, row in before} < {row for _, row in after.done}
    assert [row.average for row in of(after, "H = 3", "Unlucky")] == [1.0] * 3


# --- from Python ----------------------------------------------------------------------------------
def test_a_frame_has_a_row_for_each_run(results):
    frame = results.frame()
    assert len(frame) == 21
    assert frame.columns.is_unique
    assert {
        *("panel", "agent", "seed", "average", "final", "solved_at", "trajectories", "seconds"),
        *("error", "key", "problem.horizon", "problem.switch", "agent.learner.lr", "agent.batch"),
        *("episodes", "ledger.learn", "ledger.oracle", "environment.blockmdp"),
        *("environment.threads", "environment.numpy"),
    } <= set(frame.columns)
    done = frame[frame.error.isna()]
    assert set(done["environment.threads"]) == {"1"}
    assert set(done["environment.blockmdp"]) == {bm.__version__}
    assert (done["ledger.learn"] == 400).all()
    assert (done.seconds > 0).all()
    means = done.groupby(["panel", "agent"]).final.mean()
    for summary in results.summaries():
        if summary.runs:
            assert summary.final == pytest.approx(means[summary.panel, summary.agent])
    failed = frame[frame.error.notna()]
    assert set(failed.agent) == {"Unlucky"}
    assert all("Traceback" in error and "no luck" in error for error in failed.error)


def test_curves_are_a_frame_of_points(results):
    curves = results.curves()
    assert len(curves) == 18 * 200
    assert list(curves) == [
        *("panel", "agent", "seed", "episodes", "trajectories", "average", "sliding", "regret")
    ]
    last = curves[curves.episodes == 400].set_index(["panel", "agent", "seed"])
    for setting, row in results.done:
        point = last.loc[setting.panel, setting.label, row.seed]
        assert point.average == pytest.approx(row.average * 400 / row.trajectories)
        assert point.sliding == pytest.approx(row.final)
        assert point.trajectories == row.trajectories
        assert point.regret == pytest.approx(0.5 * row.trajectories - row.average * 400)


def test_a_summary_is_computed_from_its_seeds(results):
    summaries = results.summaries()
    assert [(s.panel, s.agent) for s in summaries] == PAIRS
    for s in summaries:
        rows = of(results, s.panel, s.agent)
        done = [row for row in rows if row.error is None]
        assert (s.runs, s.failed) == (len(done), len(rows) - len(done))
        if not done:
            assert math.isnan(s.final)
            continue
        final = np.array([row.final for row in done])
        solved = sum(row.solved_at is not None for row in done)
        assert s.solved == solved / 3
        assert (s.solved_low, s.solved_high) == statistics.wilson(solved, 3)
        assert s.solved_at == statistics.median_with_censoring([row.solved_at for row in done])
        assert s.final == pytest.approx(final.mean())
        assert (s.final_low, s.final_high) == statistics.bootstrap(final)
        assert s.iqm == statistics.iqm(final)
        assert s.average == pytest.approx(np.mean([row.average for row in done]))
        assert s.trajectories == np.median([row.trajectories for row in done])


def test_a_study_can_be_run_from_python(ran, idle):
    study = bm.Study.load(ran.folder / "small.toml").only(["agent=URL"])
    results = study.run(ran.folder / "out", quiet=True)
    assert isinstance(results, bm.Results)
    assert len(results.done) == len(study) == 6
    assert isinstance(study, bm.Study)  # a part of a study can be run, too
    assert len(bm.Results(ran.folder / "out", study).rows) == 6


# --- tables ---------------------------------------------------------------------------------------
def test_a_text_table_has_a_line_for_each_summary(results):
    head, *lines = results.table(width=100).splitlines()
    assert head.split() == ["agent", "solved", "at", "final", "value", "accuracy", "failed"]
    assert len(lines) == 7 + 2
    sections = [line for line in lines if not line.startswith("  ")]
    assert sections == ["H = 3", "H = 4"]
    assert lines[4].split() == ["Unlucky", "-", "-", "-", "-", "-", "3"]
    summary = results.summaries()[1]
    cells = re.split(r"  +", lines[2].strip())
    assert cells[0] == "OracleQ-lat lr=0.1"
    solved = round(3 * summary.solved)
    assert cells[1].startswith(f"{solved} of 3 [{summary.solved_low:.2f}, ")
    assert cells[3].startswith(f"{summary.final:.3f} [{summary.final_low:.3f}, ")
    assert cells[4] == f"{summary.value:.3f}"
    assert not any(line.endswith(" ") for line in lines)
    narrow = results.table(width=70).splitlines()
    assert max(map(len, narrow)) <= 70 < max(map(len, lines))
    assert not any("[" in line for line in narrow)


def test_a_table_in_markdown_has_as_many_columns_in_each_row(results):
    lines = results.table("markdown").splitlines()
    assert len(lines) == 9
    assert all(line.startswith("| ") and line.endswith(" |") for line in (lines[0], *lines[2:]))
    assert {line.count("|") for line in lines} == {9}
    assert set(lines[1]) == {"|", "-"}


def test_a_table_as_csv_has_the_summaries_numbers(results):
    frame = pd.read_csv(io.StringIO(results.table("csv")))
    assert list(zip(frame.panel, frame.agent, strict=True)) == PAIRS
    for (_, row), summary in zip(frame.iterrows(), results.summaries(), strict=True):
        for name in ("runs", "failed", "solved", "solved_at", "final", "iqm", "seconds"):
            assert row[name] == pytest.approx(getattr(summary, name), nan_ok=True)


def test_the_command_table_prints_the_table(ran, results):
    for form in ("text", "markdown", "csv"):
        printed = command("table", ran.folder / "out", "--format", form)
        assert printed == (0, results.table(form) + "\n", "")


# --- figures --------------------------------------------------------------------------------------
@pytest.mark.parametrize("y", ["average", "sliding"])
def test_a_panel_s_curves_are_mean_and_deviation_over_seeds(results, y):
    panels = results.panels(y)
    assert [panel.title for panel in panels] == ["H = 3", "H = 4"]
    assert [panel.optimum for panel in panels] == [0.5, 0.5]
    frame = results.curves()
    for panel in panels:
        assert [curve.label for curve in panel.curves] == NAMES  # without the one that failed
        for curve in panel.curves[1:]:  # whose runs all have the same x
            of_it = frame[(frame.panel == panel.title) & (frame.agent == curve.label)]
            seeds = of_it.pivot_table(index="trajectories", columns="seed", values=y)
            assert np.array_equal(curve.x, seeds.index)
            assert curve.mean == pytest.approx(seeds.mean(axis=1).to_numpy())
            assert curve.std == pytest.approx(seeds.std(axis=1, ddof=0).to_numpy())
        url = panel.curves[0]
        ends = frame[(frame.panel == panel.title) & (frame.agent == "URL")].groupby("seed")
        assert url.x[0] == np.median(ends.trajectories.min())
        assert url.x[-1] == np.median(ends.trajectories.max())
        assert len(url.x) == len(url.mean) == len(url.std) == 200


def test_the_panels_of_a_figure_share_their_x_axis_and_legend(results):
    figure = results.plot()
    assert [ax.get_title("left") for ax in figure.axes] == ["H = 3", "H = 4"]
    longest = max(curve.x[-1] for panel in results.panels() for curve in panel.curves)
    assert {ax.get_xlim() for ax in figure.axes} == {(0.0, longest)}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*NAMES, "optimum"]


def test_plot_writes_to_the_directory_or_to_a_file(copied):
    status, out, err = command("plot", copied / "out")
    files = [copied / "out" / f"small-average.{kind}" for kind in ("png", "pdf", "svg")]
    assert (status, out.split(), err) == (0, [str(file) for file in files], "")
    starts = [b"\x89PNG", b"%PDF", b"<?xml"]
    assert [file.read_bytes()[: len(s)] for file, s in zip(files, starts, strict=True)] == starts
    to = copied / "my.figure.png"
    assert command("plot", copied / "out", "--y", "sliding", "--to", to)[:2] == (0, f"{to}\n")
    assert to.read_bytes().startswith(b"\x89PNG")
    assert to.read_bytes() != files[0].read_bytes()


# --- export ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("kind", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_what_is_exported_reads_back(kind, read, ran, results, tmp_path):
    to = tmp_path / f"runs.{kind}"
    assert command("export", ran.folder / "out", to) == (0, f"wrote 21 runs to {to}\n", "")
    frame, back = results.frame(), read(to)
    assert set(back.pop("study")) == {"small"}
    assert list(back) == list(frame)
    for name in ("panel", "agent", "seed", "key", "problem.horizon", "episodes"):
        assert back[name].tolist() == frame[name].tolist()
    for name in ("average", "final", "solved_at", "seconds", "agent.learner.lr", "ledger.oracle"):
        expected = frame[name].to_numpy(float, na_value=np.nan)
        assert back[name].to_numpy(float, na_value=np.nan) == pytest.approx(expected, nan_ok=True)
    assert back.error.dropna().tolist() == frame.error.dropna().tolist()


def test_parameters_of_several_types_are_exported_as_text(tmp_path, own_study, executor):
    study = own_study(problem={"name": "results_own:any_lock", "x": [1, "a", True, [2]]})
    assert study.panels == ["x = 1", "x = a", "x = true", "x = [2]"]
    study.run(tmp_path, quiet=True).export(tmp_path / "runs.parquet")
    back = pd.read_parquet(tmp_path / "runs.parquet")
    assert set(back["problem.x"]) == {"1", "a", "True", "[2]"}


def test_what_cannot_be_done_gets_one_line(ran):
    for arguments, status, words in (
        (["export", "OUT", "runs.xls"], 2, "runs.xls: must end in .csv or .parquet"),
        (["export", "OUT", "OUT/missing/runs.csv"], 1, "non-existent directory"),
        (["plot", "OUT", "--to", "figure.gif"], 2, "--to figure.gif: must end in .png, .pdf or .s"),
        (["plot", "OUT", "--to", "OUT/missing/a.png"], 1, "No such file or directory"),
        (["status", "OUT/missing"], 1, "no runs in "),
        (["table", "OUT", "--study", "other"], 1, "has no study 'other'; it has small"),
    ):
        words_given = [word.replace("OUT", str(ran.folder / "out")) for word in arguments]
        printed = command(*words_given)
        assert printed[:2] == (status, "")
        assert printed[2].count("\n") == 1
        assert words in printed[2]


# --- status, list, dry runs -----------------------------------------------------------------------
def test_status_shows_what_is_done_and_what_failed(ran):
    status, out, err = command("status", ran.folder / "out")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "small: 18 of 21 runs done, 3 failed, 0 to do"
    assert re.fullmatch(r"computing time: (\d+ (h|min|s) ?)+, \S+ s per run", lines[1])
    assert lines[2:5] == [
        f"failed: H = 3 | Unlucky | seed {seed}: with seed {seed}" for seed in range(3)
    ]
    assert lines[5] == "to repeat failed runs: --retry-failed; for tracebacks: blockmdp export"
    assert len(lines) == 6


def test_status_shows_what_is_missing(copied):
    text = TEXT.replace("seeds = 3", "seeds = 9")
    (copied / "small.toml").write_text(text)
    with Store(copied / "out", write=True) as store:
        store.register(Study.load(copied / "small.toml"))
    lines = Results(copied / "out").status().splitlines()
    assert lines[0] == "small: 18 of 63 runs done, 3 failed, 42 to do"
    assert lines[1] == "not running: repeat the `blockmdp run` command to do the missing runs"
    with Store(copied / "out", write=True) as store:
        store.announce(study="small", jobs=2)
        line = Results(copied / "out").status().splitlines()[1]
    assert re.fullmatch(r"running: process \d+ on \S+, 2 at a time", line)


def test_status_shows_the_first_line_of_an_error_without_traceback(tmp_path, own_study):
    study = own_study()
    with Store(tmp_path, write=True) as store:
        store.register(study)
        for run in study.runs():
            error = "exceeded the timeout of 3 s\nbye" if run.seed else "  "
            store.add(run, Outcome(error=error, environment={"blockmdp": "1"}))
    text = Results(tmp_path).status()
    assert "seed 1: exceeded the timeout of 3 s\n" in text
    assert "seed 0: ?\n" in text
    assert "... and 3 more\n" in text
    lines = Results(tmp_path).table().splitlines()
    assert sum(line.split()[-5:] == ["-", "-", "-", "-", "2"] for line in lines) == 4
    with pytest.raises(StoreError, match=r"study has no finished runs in "):
        Results(tmp_path).plot()
    assert Results(tmp_path).curves().empty


def test_list_names_every_part():
    status, out, _ = command("list")
    assert "_empty" not in out
    assert status == 0
    lines = [line.strip() for line in out.splitlines()]
    for kind in ("problems", "agents", "oracles", "learners"):
        assert kind in lines
    for name in ("lock_bernoulli", "URL", "OnlineURL", "PCID", "Tabular", "gmm", "OracleQ"):
        (line,) = (line for line in lines if line.startswith(f"{name}: "))
        assert len(line) > len(name) + 10
    assert "horizon = 20, switch = 0.2" in lines
    assert 'learner = "none", on = "latent", by_level = true' in lines
    _, learners, _ = command("list", "learners")
    assert "PSRL: " in learners
    assert "lock_bernoulli: " not in learners


def test_a_dry_run_prints_the_runs_but_does_none(ran, idle, tmp_path):
    path = ran.folder / "small.toml"
    status, out, err = command("run", path, "--out", ran.folder / "out", "--dry-run", "--trust")
    assert status == 0
    lines = out.splitlines()
    assert len(lines) == 21
    assert lines[0] == "H = 4 | URL | seed 0  (done)"
    assert [line for line in lines if not line.endswith("(done)")] == [
        f"H = 3 | Unlucky | seed {seed}" for seed in range(3)
    ]
    assert err == "21 runs, 18 of them done\n"
    elsewhere = tmp_path / "elsewhere"
    options = (
        "--out",
        elsewhere,
        "--dry-run",
        "--trust",
        "--only",
        "seed=1",
        "--set",
        "episodes=7",
    )
    status, out, err = command("run", path, *options)
    assert (status, len(out.splitlines()), err) == (0, 7, "7 runs, 0 of them done\n")
    assert not elsewhere.exists()


# --- tune -----------------------------------------------------------------------------------------
DOCUMENT = {
    "seeds": 2,
    "episodes": 20,
    "problem": {"name": "lock_bernoulli", "horizon": [3, 4]},
    "agent": [{"name": "results_own:Guess", "horizon": [3, 4]}],
}


@pytest.fixture
def own_study(ran):
    """Return a function that makes a study of that document, with some changes."""
    return lambda **changes: Study({**DOCUMENT, **changes}, folder=ran.folder)


@pytest.fixture
def tune(executor, tmp_path):
    """Return a function that tunes a study and reads the result back from its file."""

    def run(study, seeds=2):
        tuned, path = tuning.tune(study, tmp_path / "out", seeds=seeds, quiet=True)
        read = Study.load(path)
        assert [run.key for run in read.runs()] == [run.key for run in tuned.runs()]
        assert [s.label for s in read.settings] == [s.label for s in tuned.settings]
        return tuned, tomllib.loads(path.read_text())

    return run


def chosen(tuned):
    return [(s.panel, s.agent["horizon"]) for s in tuned.settings]


def test_the_command_tune_chooses_the_better_point_and_runs_it_on_new_seeds(copied, executor):
    text = """
    seeds = 2
    episodes = 500
    [problem]
    name = "lock_bernoulli"
    horizon = 3
    [[agent]]
    name = "Tabular"
    learner = { name = "OracleQ", lr = [0.001, 0.1] }
    """
    (copied / "grid.toml").write_text(text)
    options = ("--tuning-seeds", 3)
    status, out, err = command("tune", copied / "grid.toml", "--out", copied / "new", *options)
    path = copied / "new" / "tuned.toml"
    assert status == 0
    assert f"the best settings are in {path}; running them on new seeds\n" in err
    tuning, tuned = (Results(copied / "new", f"grid.{name}") for name in ("tuning", "tuned"))
    assert {row.seed for _, row in tuning.done} == {1_000_000, 1_000_001, 1_000_002}
    assert {row.seed for _, row in tuned.done} == {0, 1}
    assert len(tuning.done) == 6
    assert [s.agent["learner"]["lr"] for s, _ in tuned.done] == [0.1, 0.1]
    table, _, last = out.rpartition("\n2 runs of grid.tuned are in ")
    assert table == tuned.table()
    assert last.endswith(f"blockmdp plot {copied / 'new'}\n")
    done = len(executor.runs)
    assert command("run", path, "--out", copied / "new", "--quiet") == (0, "", "")
    assert command("tune", copied / "grid.toml", "--out", copied / "new", *options)[1] == out
    assert len(executor.runs) == done  # all of them were stored
    notes = path.read_text().splitlines()
    assert notes[0].startswith(f"# Made by: blockmdp tune {copied / 'grid.toml'} --out ")
    scores = [line for line in notes if line.startswith("#   ")]
    assert len(scores) == 1
    assert scores[0].startswith("#   lock_bernoulli | OracleQ-lat lr=0.1: 0.")


def test_different_best_points_in_different_panels_use_when(tune, ran, tmp_path, own_study):
    tuned, document = tune(own_study())
    assert chosen(tuned) == [("H = 3", 3), ("H = 4", 4)]
    assert [s.label for s in tuned.settings] == ["Guess", "Guess"]
    assert [entry["when"] for entry in document["agent"]] == [[{"horizon": 3}], [{"horizon": 4}]]
    assert tuned.seeds == [0, 1]
    assert (tmp_path / "out" / document["modules"]).resolve() == ran.folder


def test_the_same_best_point_in_all_panels_needs_no_when(tune, own_study):
    agent = [{"name": "results_own:Guess", "horizon": [7, 8], "label": "mine"}, {"name": "Tabular"}]
    tuned, document = tune(own_study(agent=agent))
    assert document["agent"] == [
        {"label": "mine", "name": "results_own:Guess", "horizon": 7},  # the first of equals
        {"label": "OracleQ-lat", "name": "Tabular"},
    ]
    assert len(tuned.settings) == 4


def test_each_agent_is_tuned_and_agents_with_the_same_label_are_one(tune, own_study):
    agent = [{"name": "results_own:Guess", "horizon": [n, n + 1]} for n in (3, 7)]
    tuned, _ = tune(own_study(agent=agent))
    assert chosen(tuned) == [("H = 3", 3), ("H = 3", 7), ("H = 4", 4), ("H = 4", 7)]
    agent = [{"label": "mine", "name": "results_own:Guess", "horizon": n} for n in (7, 4, 3)]
    tuned, _ = tune(own_study(agent=agent))
    assert chosen(tuned) == [("H = 3", 3), ("H = 4", 4)]
    assert [s.label for s in tuned.settings] == ["mine", "mine"]


def test_panels_may_differ_in_episodes_only(tune, own_study):
    agent = {"name": "Tabular", "learner": {"name": "OracleQ", "lr": [0.01, 0.3]}}
    tuned, document = tune(own_study(episodes=[10, 300], agent=[agent]), seeds=3)
    assert len(tuned.settings) == 4
    assert len(document["agent"]) == 2
    for entry in document["agent"]:
        assert all(when.keys() == {"episodes", "horizon"} for when in entry["when"])


def test_panels_that_no_parameter_distinguishes_are_named_by_title(tune, own_study):
    problem = [{"name": "results_own:lock"}, {"name": "results_own:lock", "size": 4}]
    tuned, document = tune(own_study(problem=problem))
    titles = ["size = none", "size = 4"]
    assert chosen(tuned) == [*zip(titles, (3, 4), strict=True)]
    assert [e["when"] for e in document["agent"]] == [[{"panel": titles[0]}], [{"size": 4}]]


def test_a_part_of_a_study_can_be_tuned(tune, own_study):
    part = own_study().only(["problem.horizon=4", "seed=1"])
    tuned, _ = tune(part)
    assert chosen(tuned) == [("H = 4", 4)]
    assert tuned.seeds == [1]


def test_tuning_refuses_to_use_a_seed_of_the_study(tune, own_study):
    with pytest.raises(StoreError, match="tuning uses the seeds from 1000000 on"):
        tune(own_study(seeds=[1_000_001]))


def test_an_agent_that_always_fails_cannot_be_tuned(tune, own_study):
    with pytest.raises(StoreError, match="no setting of Unlucky in H = 3 finished"):
        tune(own_study(agent=[{"name": "results_own:Unlucky"}]))


def test_a_registered_environment_is_solved_by_the_optimum_of_its_problem():
    solved = {"share": 0.9, "above": None, "window": 100}
    agent = {"name": "Tabular", "on": "observation"}
    problem = {"name": "blockmdp/LockBernoulli-v0", "horizon": 1, "switch": 0.0}
    config = {"problem": problem, "agent": agent, "episodes": 300, "solved": solved}
    outcome = execute(config, seed=0)
    assert outcome.error is None
    assert outcome.solved_at is not None


def test_results_can_be_read_if_the_modules_of_another_study_are_missing(tmp_path):
    (tmp_path / "gone_soon.py").write_text("from blockmdp import lock_bernoulli as lock\n")
    sys.path.insert(0, str(tmp_path))
    try:
        document = {"seeds": 1, "episodes": 5, "agent": [{"name": "Tabular"}]}
        own = Study({**document, "problem": {"name": "gone_soon:lock", "horizon": 1}}, "own")
        plain = Study({**document, "problem": {"name": "lock_bernoulli", "horizon": 1}}, "plain")
        with Store(tmp_path / "out", write=True) as store:
            store.register(plain)
            store.register(own)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("gone_soon", None)
    (tmp_path / "gone_soon.py").unlink()
    assert len(Results(tmp_path / "out", "plain").study) == 1


def test_results_can_be_drawn_if_the_module_of_their_problem_is_missing(tmp_path, executor):
    (tmp_path / "gone_too.py").write_text("from blockmdp import lock_bernoulli as lock\n")
    document = {"seeds": 1, "episodes": 30, "agent": [{"name": "Tabular"}]}
    sys.path.insert(0, str(tmp_path))
    try:
        study = Study({**document, "problem": {"name": "gone_too:lock", "horizon": 1}}, "own")
        study.run(tmp_path / "out", quiet=True)
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("gone_too", None)
        find.cache_clear()
        parameters.cache_clear()
    (tmp_path / "gone_too.py").unlink()
    results = Results(tmp_path / "out")
    for y in ("average", "value", "regret"):
        assert len(results.plot(y).axes) == 1
    assert results.panels()[0].optimum == 0.5
    assert np.isfinite(results.cells("regret")[0]).all()


def test_the_store_knows_the_whole_study_if_a_part_was_run(tmp_path):
    document = {"seeds": 2, "episodes": 5, "agent": [{"name": "Tabular"}]}
    study = Study({**document, "problem": {"name": "lock_bernoulli", "horizon": [1, 2]}}, "parts")
    part = study.only(["horizon=1", "seed=1"])
    assert len(part) == 1
    with Store(tmp_path, write=True) as store:
        store.register(part)
    seen = Results(tmp_path).study
    assert [s.key for s in seen.settings] == [s.key for s in study.settings]
    assert [(s.panel, s.label) for s in seen.settings] == [
        (s.panel, s.label) for s in study.settings
    ]
    assert seen.seeds == study.seeds


@pytest.mark.integration
def test_showing_results_does_not_import_scikit_learn(ran):
    out = str(ran.folder / "out")
    code = (
        "import sys; from blockmdp.cli import main; "
        f"main(['status', {out!r}]); main(['table', {out!r}]); print('sklearn' in sys.modules)"
    )
    assert python(code).split()[-1] == "False"


@pytest.mark.integration
def test_a_reader_that_goes_away_causes_no_traceback(ran):
    table = [sys.executable, "-m", "blockmdp.cli", "table", str(ran.folder / "out")]
    with subprocess.Popen(table, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_map_shows_every_agent_on_every_problem(tmp_path, executor):
    document = {
        "seeds": 3,
        "episodes": 300,
        "solved": {"measure": "value"},
        "problem": [
            {"name": "lock_bernoulli", "horizon": 4},
            {"name": "random_block_mdp", "horizon": 4},  # V* depends on the seed
        ],
        "agent": [
            {"name": "Tabular", "on": "latent", "learner": ["UCBVI", "QLearning"]},
            {"name": "URL", "batch": 20, "when": {"name": "lock_bernoulli"}},
        ],
    }
    results = Study(document, "zoo").run(tmp_path, quiet=True)
    values, agents, panels = results.cells("regret")
    assert agents == ["UCBVI-lat", "QLearning-lat", "URL"]
    assert panels == results.study.panels
    assert np.argwhere(np.isnan(values)).tolist() == [[2, 1]]
    frame = results.frame()
    of_it = frame[(frame["agent"] == "QLearning-lat") & (frame["panel"] == panels[1])]
    best = [random_block_mdp(horizon=4, seed=seed).optimal_value() for seed in of_it["seed"]]
    assert values[1, 1] == pytest.approx(np.median(300 - 300 * of_it["average"] / best))
    url = frame[frame["agent"] == "URL"]
    lost = url["trajectories"] - 300 * url["average"] / 0.5
    assert values[2, 0] == pytest.approx(np.median(lost))
    solved, _, _ = results.cells("solved")
    assert solved[0, 0] == frame[frame["agent"] == "UCBVI-lat"]["solved_at"][:3].median()
    texts = [text.get_text() for text in results.plot_map("solved").axes[0].texts]
    assert texts[0] == f"{solved[0, 0]:,.0f}"
    assert len(texts) == 5
    assert main(["plot", str(tmp_path), "--map", "regret"]) == 0
    assert (tmp_path / "zoo-map-regret.png").stat().st_size > 1000
    with pytest.raises(SystemExit):
        main(["plot", str(tmp_path), "--map", "regret", "--against", "horizon"])
    with pytest.raises(ValueError, match="of must be 'solved' or 'regret'"):
        results.cells("value")


def test_growth_against_a_parameter_shows_what_was_solved(tmp_path, executor):
    document = {
        "seeds": 3,
        "episodes": 400,
        "solved": {"window": 20},
        "problem": [
            {"name": "comblock", "horizon": [2, 3, 5], "n_actions": 3},
            {"name": "lock_bernoulli", "horizon": 4},
        ],
        "agent": [
            {"name": "Tabular", "on": "latent", "learner": {"name": "UCBVI", "bonus": 0.0}},
            {"name": "Tabular", "on": "latent", "learner": "QLearning", "label": "lost"},
        ],
    }
    results = Study(document, "growth").run(tmp_path, quiet=True)
    (panel,) = results.growth("horizon")
    optimistic, lost = panel.curves
    assert panel.title == "comblock"
    assert optimistic.x.tolist() == [2, 3, 5]
    frame = results.frame()
    for x, median in zip(optimistic.x, optimistic.median):
        of_it = frame[(frame["problem.horizon"] == x) & (frame["agent"] == optimistic.label)]
        of_it = of_it[of_it["problem.name"] == "comblock"]
        assert median == of_it["solved_at"].median()
    assert set(lost.x) <= {2, 3, 5}
    ax = results.plot(against="horizon").axes[0]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["2", "3", "5"]
    assert main(["plot", str(tmp_path), "--against", "horizon"]) == 0
    assert (tmp_path / "growth-against-horizon.png").stat().st_size > 1000
    with pytest.raises(StoreError, match="n_actions"):
        results.plot(against="n_actions")


BY_VALUE = {
    "seeds": 1,
    "episodes": 300,
    "solved": {"measure": "value"},
    "problem": {"name": "lock_bernoulli", "horizon": [2, 3]},
    "agent": [
        {"name": "Tabular", "on": "latent", "learner": {"name": "UCBVI", "bonus": 0.1}},
        {"name": "URL", "batch": 30},
        {"name": "OnlineURL"},
        {"name": "PCID", "n": 120},
    ],
}


def test_runs_can_be_solved_by_the_value_of_their_policy(tmp_path, executor):
    results = Study(BY_VALUE, "valued").run(tmp_path, quiet=True)
    assert len(results.done) == 8
    agents = {
        "UCBVI-lat": bm.Tabular(bm.UCBVI(bonus=0.1)),
        "URL": bm.URL(batch=30),
        "OnlineURL": bm.OnlineURL(),
        "PCID": bm.PCID(n=120),
    }
    for setting, row in results.done:
        H, agent = setting.problem["horizon"], agents[setting.label]
        agent.fit(bm.lock_bernoulli(H, seed=row.seed), 300, seed=row.seed, record=True)
        assert row.solved_at == agent.solved_from()
        assert row.average == agent.returns_.mean()
    frame = results.frame()
    assert frame["solved_at"].min() < 300  # a window of 1,000 returns would not be full
    assert set(frame["measure"]) == {"value"}


def test_tables_and_figures_say_how_solved_was_measured(tmp_path, executor):
    changed = BY_VALUE | {"seeds": 1, "agent": BY_VALUE["agent"][:1]}
    valued = Study(changed, "valued").run(tmp_path, quiet=True)
    head, *rows = valued.table().splitlines()
    assert head.split() == ["agent", "solved", "at", "by", "final", "value"]
    assert all(re.split("  +", row)[-3] == "value" for row in rows if row.startswith("  "))
    assert [s.measure for s in valued.summaries()] == ["value", "value"]
    assert "| by |" in valued.table("markdown").splitlines()[0]
    assert "runs are solved by value" in valued.status().splitlines()
    figure = valued.plot(against="horizon")
    assert figure._supylabel.get_text() == "trajectories until solved, by value"
    lock = BY_VALUE["problem"] | {"solved": {"window": 50}}
    both = [lock, BY_VALUE["problem"] | {"horizon": [4, 5]}]
    mixed = Study(changed | {"problem": both}, "mixed").run(tmp_path, quiet=True)
    assert [s.measure for s in mixed.summaries()] == ["returns"] * 2 + ["value"] * 2
    assert "runs are solved by returns or value" in mixed.status()


def test_tables_of_returns_are_as_before(results):
    assert "by" not in results.table().splitlines()[0].split()
    assert "solved by" not in results.status()
    assert set(results.frame()["measure"]) == {"returns"}


def test_a_run_that_cannot_be_judged_is_not_called_unsolved(tmp_path, executor):
    document = {
        "seeds": 1,
        "episodes": 30,
        "problem": [
            {"name": "lock_bernoulli", "horizon": 2},
            {"name": "lock_bernoulli", "horizon": 3, "solved": {"window": 20, "above": 0.9}},
            {"name": "FrozenLake-v1", "is_slippery": False, "solved": {"window": 20}},
        ],
        "agent": [{"name": "URL", "oracle": "pca_kmeans"}],
    }
    results = Study(document, "odd").run(tmp_path, quiet=True)
    assert not results.failed
    reasons = [s.unjudged for s in results.summaries()]
    assert reasons == [
        "solved.window = 1000 is more than the 30 episodes of a run",
        "",
        "the optimal value is unknown: set solved.above; or, if an earlier version did the runs, "
        "run the study again",
    ]
    table = results.table()
    assert table.count("n/a (1 run)") == 2
    assert all(f"\nn/a: {reason}" in table for reason in reasons if reason)
    assert np.isnan(results.cells()[0]).tolist() == [[True, False, True]]


def test_the_exact_value_is_stored_along_each_run(tmp_path, executor):
    document = {
        "seeds": 2,
        "episodes": 300,
        "problem": {"name": "lock_bernoulli", "horizon": 3},
        "agent": [{"name": "OnlineURL"}, {"name": "Tabular"}],
    }
    results = Study(document, "worth").run(tmp_path, quiet=True)
    values = results.values()
    agents = {"OnlineURL": bm.OnlineURL(), "OracleQ-lat": bm.Tabular()}
    for setting, row in results.done:
        agent = agents[setting.label]
        agent.fit(bm.lock_bernoulli(3, seed=row.seed), 300, seed=row.seed, record="few")
        assert row.average == agent.returns_.mean()  # recording changes nothing
        assert (row.optimal, row.value) == (0.5, agent.value())
        own = values[(values.agent == setting.label) & (values.seed == row.seed)]
        assert own.value.tolist() == agent.values().tolist()
        assert own.trajectories.tolist() == [s.trajectories for s in agent.snapshots_]
        assert 15 <= len(own) <= 25
    frame = results.frame()
    lost = frame.optimal * frame.trajectories - frame.average * 300
    assert frame.regret.tolist() == pytest.approx(lost.tolist())
    (panel,) = results.panels("value")
    assert [curve.mean[-1] for curve in panel.curves] == [
        pytest.approx(own.groupby("seed").value.last().mean())
        for _, own in values.groupby("agent", sort=False)
    ]
    (panel,) = results.panels("regret")
    assert panel.optimum is None
    with pytest.raises(ValueError, match="y must be one of average, sliding, regret, value"):
        results.plot("worth")


def test_the_accuracy_of_each_decoder_is_stored_by_level(tmp_path, executor):
    kmeans = {"name": "sklearn.cluster:KMeans", "n_clusters": 3, "n_init": 2}
    document = {
        "seeds": 2,
        "episodes": 200,
        "problem": {"name": "lock_bernoulli", "horizon": 4},
        "agent": [{"name": "URL", "oracle": kmeans}, {"name": "PCID"}, {"name": "Tabular"}],
    }
    results = Study(document, "errs").run(tmp_path, quiet=True)
    measured = results.decoding()
    agents = {"URL": bm.URL(KMeans(3, n_init=2)), "PCID": bm.PCID()}
    for setting, row in results.done:
        own = measured[(measured.agent == setting.label) & (measured.seed == row.seed)]
        if setting.label not in agents:
            assert (row.accuracy, len(own)) == (None, 0)
            continue
        agent = agents[setting.label]
        agent.fit(bm.lock_bernoulli(4, seed=row.seed), 200, seed=row.seed)
        assert row.average == agent.returns_.mean()  # measuring changes nothing
        assert own.level.tolist() == [0, 1, 2, 3, 4]
        assert own.accuracy.tolist() == agent.accuracy(100).tolist()
        assert row.accuracy == agent.accuracy(100).min()
        assert own.labels.tolist()[0] == 1  # there is one state, and it is always recognised
        assert own.labels.max() <= agent.decoder_.n_labels
    worst = results.frame().groupby("agent").accuracy.mean()
    assert worst["URL"] < 0.9  # k-means on bits errs
    assert np.isnan(worst["OracleQ-lat"])
    assert [s.accuracy for s in results.summaries()][:2] == worst[["URL", "PCID"]].tolist()
    head, _, *lines = results.table(width=100).splitlines()
    assert head.split()[-1] == "accuracy"
    assert [line.split()[-1] for line in lines[:3]] == [
        *(f"{worst['URL']:.3f}", f"{worst['PCID']:.3f}", "-")
    ]
    (panel,) = results.panels("accuracy")
    assert ([c.label for c in panel.curves], panel.optimum) == (["URL", "PCID"], 1.0)
    of_url = measured[measured.agent == "URL"].groupby("level")
    assert panel.curves[0].mean.tolist() == pytest.approx(of_url.accuracy.mean().tolist())
    (panel,) = results.panels("labels")
    assert panel.curves[0].mean.tolist() == of_url.labels.mean().tolist()
    figure = results.plot("accuracy")
    assert (figure._supxlabel.get_text(), figure.axes[0].get_xlim()) == ("level", (0, 4))


def test_a_study_without_decoders_has_no_accuracy_to_show(tmp_path, executor):
    document = {
        "seeds": 1,
        "episodes": 20,
        "problem": "lock_bernoulli",
        "agent": [{"name": "Tabular"}],
    }
    results = Study(document, "plain").run(tmp_path, quiet=True)
    assert "accuracy" not in results.table(width=200)
    assert results.decoding().empty
    with pytest.raises(StoreError, match=r"no runs with a known accuracy: .* a decoder"):
        results.plot("accuracy")
    with sqlite3.connect(tmp_path / FILE) as store:
        assert store.execute("SELECT count(*) FROM decoding").fetchone() == (0,)


def test_a_store_without_accuracies_still_opens_and_gets_them_for_new_runs(tmp_path, executor):
    document = {
        "seeds": 1,
        "episodes": 60,
        "problem": {"name": "lock_bernoulli", "horizon": 2},
        "agent": [{"name": "URL", "batch": 20}],
    }
    whole = Study(document, "old").run(tmp_path, quiet=True)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as store:
        store.executescript("DROP TABLE decoding; PRAGMA user_version=3")
    old = Results(tmp_path)
    assert [row for _, row in old.done] == [row._replace(accuracy=None) for _, row in whole.done]
    assert "accuracy" not in old.table()
    done = len(executor.runs)
    results = Study(document | {"seeds": 2}, "old").run(tmp_path, quiet=True)
    assert len(executor.runs) == done + 1  # what was done is not repeated
    assert [row.accuracy is None for _, row in results.done] == [True, False]
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as store:
        assert store.execute("PRAGMA user_version").fetchone() == (4,)


def test_the_regret_of_a_study_is_exact_on_average(tmp_path, executor):
    learner = {"name": "QLearning", "final_epsilon": 0.3}
    document = {
        "seeds": 20,
        "episodes": 400,
        "problem": {"name": "lock_bernoulli", "horizon": 3, "seed": 0},
        "agent": [{"name": "Tabular", "learner": learner}],
    }
    results = Study(document, "lost").run(tmp_path, quiet=True)
    m = bm.lock_bernoulli(3, seed=0)
    exact = [bm.regret(m, bm.QLearning(final_epsilon=0.3), 400, seed)[-1] for seed in range(20)]
    (summary,) = results.summaries()
    luck = np.std(results.frame().regret - exact)
    assert abs(summary.regret - np.mean(exact)) < 3 * luck / np.sqrt(20)
    # values of greedy policies know nothing of the exploration
    runs = results.values().groupby("seed")
    greedy = [np.trapezoid(0.5 - own.value, own.trajectories) for _, own in runs]
    assert np.mean(greedy) < np.mean(exact) - 10 * luck / np.sqrt(20)


def test_every_restart_has_its_checkpoints(tmp_path, executor):
    document = {
        "seeds": 1,
        "episodes": 200,
        "problem": {"name": "lock_bernoulli", "horizon": 3},
        "agent": [{"name": "URL", "restarts": 2, "evaluation": 20}],
    }
    results = Study(document, "again").run(tmp_path, quiet=True)
    agent = bm.URL(restarts=2, evaluation=20)
    agent.fit(bm.lock_bernoulli(3, seed=0), 200, seed=0, record=True)
    stored = results.values()
    first = agent.trajectories_[199]
    assert len(stored[stored.trajectories < first]) >= 14
    assert len(stored[stored.trajectories > first]) >= 14
    (row,) = [row for _, row in results.done]
    assert row.optimal * row.trajectories - agent.returns_.sum() == pytest.approx(
        results.frame().regret[0]
    )


def test_an_agent_may_have_a_fit_of_its_own(tmp_path, executor):
    (tmp_path / "own_fit.py").write_text(
        "import numpy as np\nimport blockmdp as bm\n"
        "class Sub(bm.Tabular):\n"
        "    def fit(self, problem, episodes, seed=0):\n"
        "        return super().fit(problem, episodes, seed)\n"
        "class Long:\n"
        "    def fit(self, problem, episodes, seed=0):\n"
        "        self.returns_ = np.ones(2 * episodes)\n"
    )
    document = {"seeds": 1, "episodes": 20, "problem": "lock_bernoulli"}
    agents = [{"name": "own_fit:Sub"}, {"name": "own_fit:Long"}]
    results = Study(document | {"agent": agents}, "own", tmp_path).run(tmp_path / "o", quiet=True)
    (sub,) = [row for _, row in results.done]
    assert (sub.optimal, sub.value) == (0.5, None)
    assert "one for each episode" in results.failed[0][1].error
    by_value = document | {"solved": {"measure": "value"}, "agent": agents[:1]}
    with pytest.raises(StudyError, match="whose fit keeps no policies"):
        Study(by_value, "own", tmp_path)
    sys.path.remove(str(tmp_path))


def test_a_store_of_the_last_version_gets_its_optima_when_the_study_is_run(tmp_path, executor):
    document = {
        "seeds": 2,
        "episodes": 40,
        "problem": {"name": "lock_bernoulli", "horizon": 2},
        "agent": [{"name": "Tabular"}],
    }
    study = Study(document, "old")
    study.run(tmp_path, quiet=True)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as store:
        store.executescript("DROP TABLE exact; DROP TABLE decoding; PRAGMA user_version=2")
    old = Results(tmp_path)
    assert [row.optimal for _, row in old.done] == [None, None]
    assert old.panels()[0].optimum is None
    with pytest.raises(StoreError, match="no runs with a known value"):
        old.plot("value")
    done = len(executor.runs)
    results = study.run(tmp_path, quiet=True)
    assert len(executor.runs) == done  # nothing is repeated
    assert [row.optimal for _, row in results.done] == [0.5, 0.5]
    assert [row.value for _, row in results.done] == [None, None]


def test_panels_with_other_lengths_and_scales_have_their_own_axes(tmp_path, executor):
    document = {
        "seeds": 1,
        "episodes": 40,
        "problem": [
            {"name": "comblock", "horizon": 2},
            {"name": "diabolical_lock", "horizon": 2, "episodes": 400},
        ],
        "agent": {"name": "Tabular", "learner": {"name": "OracleQ", "v_max": 4.0}},
    }
    one, two = Study(document, "two").run(tmp_path, quiet=True).plot().axes
    assert (one.get_xlim()[1], two.get_xlim()[1]) == (40, 400)
    assert one.get_ylim()[1] == pytest.approx(1.1)
    assert two.get_ylim()[1] == pytest.approx(4.4)


def test_an_agent_alone_in_its_panels_is_named_in_each(tmp_path, executor):
    document = {
        "seeds": 1,
        "episodes": 20,
        "problem": {"name": "lock_bernoulli", "horizon": [2, 3]},
        "agent": [{"name": "Tabular", "label": "alone"}],
    }
    lines = Study(document, "alone").run(tmp_path, quiet=True).table().splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["H", "alone", "H", "alone"]
