"""Tuning with Optuna: ranges of study files, trials, pruning, and going on after a stop."""

from __future__ import annotations

import re
import signal
import sys
import tomllib

import pytest
from faults import Command, InProcess, blockmdp, content, finished
from test_results import command

from blockmdp.experiments import Results, Study, StudyError, driver, search, tuning
from blockmdp.experiments.errors import StoreError
from blockmdp.experiments.ranges import draw, points, size, space
from blockmdp.experiments.store import Store

MODULE = '''
import time

import numpy as np


class Problem:
    def __init__(self, horizon: int):
        self.horizon = horizon

    def step(self, action):
        """Make it look like a Gymnasium environment."""


class Peak:
    """Best where x = 0.3 and n is the horizon. Fails where x is above `limit`."""

    def __init__(self, x: float = 0.3, n: int = 2, kind: str = "a", limit: float = 9.0,
                 nap: float = 0.0):
        if x < 0:
            raise ValueError(f"x must be >= 0, got {x}")
        self.x, self.n, self.limit, self.nap = x, n, limit, nap

    def fit(self, problem, episodes, seed):
        time.sleep(self.nap)
        if self.x > self.limit:
            raise RuntimeError("x is too large")
        noise = np.random.default_rng(seed).normal(scale=0.01)
        best = 1 - abs(self.x - 0.3) - 0.1 * abs(self.n - problem.horizon)
        self.returns_ = np.full(episodes, best + noise)
'''
X, N = {"low": 0, "high": 1}, {"low": 1, "high": 9}
DOCUMENT = {
    "seeds": 2,
    "episodes": 5,
    "problem": {"name": "tuning_own:Problem", "horizon": [2, 5]},
    "agent": [{"name": "tuning_own:Peak", "x": X, "n": N}],
}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", sys.path[:])
        folder = tmp_path_factory.mktemp("own")
        (folder / "tuning_own.py").write_text(MODULE)
        sys.path.insert(0, str(folder))
        yield folder


@pytest.fixture
def executor(monkeypatch):
    """Do runs in this process."""
    executor = InProcess()
    monkeypatch.setattr(driver, "make_executor", lambda *_: executor)
    return executor


@pytest.fixture
def study(folder):
    """Return a function that makes a study of that document, with other agents."""
    return lambda *agents, **changes: Study(
        {**DOCUMENT, **({"agent": list(agents)} if agents else {}), **changes}, "own", folder
    )


def peak(**parameters):
    return {"name": "tuning_own:Peak", **parameters}


def text(out):
    """Return tuned.toml without the command and the notes of one directory."""
    return (out / "tuned.toml").read_text()


def tried(out, name="own.tuning"):
    return [(s.panel, s.label) for s in Results(out, name).study.settings]


# --- ranges ---------------------------------------------------------------------------------------
def test_a_range_of_a_float_has_floats_and_others_keep_integers(study):
    assert study().ranges == ["agent[0].x", "agent[0].n"]
    found = space(DOCUMENT["agent"][0], "agent[0]")
    assert (found["x"].low, found["x"].high, found["x"].step) == (0.0, 1.0, None)
    assert isinstance(found["x"].low, float)
    assert [n for n, _ in points(found["n"])] == [*range(1, 10)]
    assert all(isinstance(n, int) for n, _ in points(found["n"]))


def test_steps_logarithms_lists_and_nested_parts_are_drawn_from_their_ranges():
    entry = {
        "label": "mine",
        "name": "URL",
        "batch": {"low": 1, "high": 1000, "log": True},
        "oracle": [
            {"name": "pca_kmeans"},
            {"name": "gmm", "n_states": {"low": 2, "high": 8, "step": 3}},
        ],
        "learner": {
            "name": "OracleQ",
            "lr": {"low": 1e-4, "high": 1, "log": True},
            "bonus": {"low": 0.1, "high": 0.5, "step": 0.1},
        },
    }
    found = space(entry, "agent[0]")
    assert size(found) == float("inf")
    assert size(found["oracle"]) == 4
    assert [x for x, _ in points(found["learner"]["bonus"])] == [0.1, 0.2, 0.3, 0.4, 0.5]
    asked, _ = search._new_study()
    drawn = [draw(found, asked.ask()) for _ in range(50)]
    assert {point["oracle"].get("n_states") for point, _ in drawn} == {None, 2, 5, 8}
    assert all(isinstance(point["batch"], int) for point, _ in drawn)
    lrs = [point["learner"]["lr"] for point, _ in drawn]
    assert sum(lr < 0.01 for lr in lrs) > 15  # half of them, since the range is logarithmic
    assert all(len(f"{lr:e}".rstrip("0").split("e")[0].rstrip("0")) <= 6 for lr in lrs)
    assert all(base["learner"] == {"name": "OracleQ", "lr": 1e-4, "bonus": 0.1}
               for _, base in drawn)  # fmt: skip


def test_numbers_of_a_narrow_range_are_rounded_to_its_width():
    found = space(peak(x={"low": 0.999, "high": 0.9999}), "agent[0]")
    asked, _ = search._new_study()
    xs = {draw(found, asked.ask())[0]["x"] for _ in range(10)}
    assert len(xs) > 5
    assert all(0.999 <= x <= 0.9999 for x in xs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"low": 2}, "agent[0].x: low must be less than high, got 2 and 1"),
        ({"low": 1}, "agent[0].x: low must be less than high, got 1 and 1"),
        ({"low": 0, "log": True}, "agent[0].x.low: must be > 0 if log = true, got 0"),
        ({"low": "a"}, "agent[0].x.low: must be a number, got 'a'"),
        ({"low": True}, "agent[0].x.low: must be a number, got True"),
        ({"high": float("inf")}, "agent[0].x.high: must be a number, got inf"),
        ({"log": 1}, "agent[0].x.log: must be true or false, got 1"),
        ({"step": 0}, "agent[0].x.step: must be > 0 and at most high - low, got 0"),
        ({"step": 2}, "agent[0].x.step: must be > 0 and at most high - low, got 2"),
        ({"low": 0.1, "log": True, "step": 0.1}, "agent[0].x.step: cannot be combined with log"),
        ({"steps": 1}, "agent[0].x.steps: a range has no such key; did you mean 'step'?"),
        ({"low": -1}, "agent[0]: tuning_own:Peak: x must be >= 0, got -1.0"),
    ],
)
def test_an_invalid_range_is_one_line_that_names_the_place(study, changes, message):
    with pytest.raises(StudyError, match=f"^{re.escape(message)}"):
        study(peak(x=X | changes))


def test_a_range_needs_both_ends_and_both_are_checked(study):
    with pytest.raises(StudyError, match=r"^agent\[0\].x.high: is missing"):
        study(peak(x={"low": 1}))
    with pytest.raises(StudyError, match=r"^agent\[0\].n: must be an integer, got 3.5"):
        study(peak(n={"low": 1, "high": 3.5}))
    lr = {"name": "Tabular", "learner": {"name": "OracleQ", "lr": {"low": 0.1, "high": 3.0}}}
    with pytest.raises(StudyError, match=r"^agent\[0\]: Tabular: .*lr.*3\.0"):
        study(lr)


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (X, r"agent\[0\].name: must name the agent"),
        ({"low": 1}, r"agent\[0\].name: must name the agent"),
        (peak(label={"low": 1}), r"agent\[0\].label: must be a string"),
        (peak(when={"low": 1}), r"agent\[0\].when.low: no problem has this parameter"),
        (peak(when={"horizon": N}), r"agent\[0\].when: matches no problem"),
    ],
)
def test_an_agent_its_label_and_its_condition_are_no_ranges(study, agent, message):
    with pytest.raises(StudyError, match=f"^{message}"):
        study(agent)


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": N},
        {"episodes": N},
        {"problem": {"name": "tuning_own:Problem", "horizon": N}},
        {"solved": {"window": N}},
    ],
)
def test_only_parameters_of_agents_can_be_ranges(study, changes):
    (key,) = changes
    with pytest.raises(StudyError, match=f"^{key}.*: must not be a range: only parameters of age"):
        study(**changes)


def test_a_study_with_ranges_can_be_tuned_but_not_run(study, folder, tmp_path):
    with pytest.raises(StudyError, match=r"^own.toml: agent\[0\].x: .* not run: blockmdp tune"):
        study().run(tmp_path / "out")
    with pytest.raises(StudyError, match=r"^own.toml: agent\[0\].x: is a range: say how many"):
        tuning.tune(study(), tmp_path / "out")
    path = folder / "ranges.toml"
    path.write_text(FILE)
    expected = f"{path}: agent[0].x: is a range, which can be tuned, but not run: blockmdp tune "
    for options in ((), ("--dry-run",)):
        status, out, err = command("run", path, "--out", tmp_path / "out", *options)
        assert (status, out, err) == (2, "", f"blockmdp: {expected}{path} --trials 50\n")
    status, out, err = command("tune", path, "--out", tmp_path / "out")
    assert (status, out) == (2, "")
    assert err.startswith("blockmdp: ranges.toml: agent[0].x: is a range: say how many points")
    assert not (tmp_path / "out").exists()


FILE = """
seeds = 2
episodes = 5
[problem]
name = "tuning_own:Problem"
horizon = 2
[[agent]]
name = "tuning_own:Peak"
x = { low = 0, high = 1 }
nap = 0.01
"""


def test_without_optuna_there_is_one_line_before_any_work(study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(StudyError, match=r"needs Optuna, .*: pip install 'blockmdp\[tune\]'"):
        tuning.tune(study(), tmp_path / "out", trials=5)
    assert not (tmp_path / "out").exists()


# --- trials ---------------------------------------------------------------------------------------
def test_trials_find_the_best_point_of_each_panel(executor, study, tmp_path):
    tuned, path = tuning.tune(study(), tmp_path, trials=40, seeds=4, quiet=True)
    assert [s.panel for s in tuned.settings] == ["H = 2", "H = 5"]
    for setting in tuned.settings:
        assert abs(setting.agent["x"] - 0.3) < 0.15
        assert abs(setting.agent["n"] - setting.problem["horizon"]) <= 1
    assert {run.seed for run in executor.runs} == {*range(1_000_000, 1_000_004)}
    assert len({run.key for run in executor.runs}) == len(executor.runs)
    assert "Optuna " in path.read_text()
    assert [r.key for r in Study.load(path).runs()] == [r.key for r in tuned.runs()]


def test_more_trials_later_are_the_same_as_all_at_once(executor, study, tmp_path):
    once, twice = tmp_path / "once", tmp_path / "twice"
    tuning.tune(study(), once, trials=18, seeds=4, quiet=True)
    n = len(executor.runs)
    for trials in (3, 7, 18):
        tuning.tune(study(), twice, trials=trials, seeds=4, quiet=True)
    assert len(executor.runs) - n >= n  # all that `once` did; pruning knew less then
    assert text(twice) == text(once)
    assert tried(twice) == tried(once)
    done = len(executor.runs)
    tuning.tune(study(), twice, trials=18, seeds=4, quiet=True)
    assert len(executor.runs) == done


def test_an_interrupted_search_goes_on_with_the_same_questions(study, tmp_path, monkeypatch):
    class Stopping(InProcess):
        def map(self, runs, meanwhile):
            for pair in super().map(runs, meanwhile):
                if len(self.runs) == 23:
                    raise KeyboardInterrupt
                yield pair

    stopping, rest, whole = Stopping(), InProcess(), InProcess()
    for executor, out in ((stopping, "cut"), (rest, "cut"), (whole, "whole")):
        monkeypatch.setattr(driver, "make_executor", lambda *_, e=executor: e)
        if executor is stopping:
            with pytest.raises(KeyboardInterrupt):
                tuning.tune(study(), tmp_path / out, trials=12, seeds=4, quiet=True)
        else:
            tuning.tune(study(), tmp_path / out, trials=12, seeds=4, quiet=True)
    assert text(tmp_path / "cut") == text(tmp_path / "whole")
    keys = [run.key for run in stopping.runs[:-1] + rest.runs]
    assert keys == [run.key for run in whole.runs]


def test_pruned_trials_save_runs_and_are_studies_of_their_own(executor, study, tmp_path):
    tuning.tune(study(peak(x=X)), tmp_path, trials=20, seeds=8, quiet=True)
    assert len(executor.runs) < 2 * 20 * 8
    with Store(tmp_path) as store:
        names = store.names()
    assert names[-1] == "own.tuning"
    total = 0
    for name in names:
        results = Results(tmp_path, name)
        assert len(results.done) == len(results.study)
        total += len(results.done)
    assert total == len(executor.runs)
    assert len([n for name in names for n in tried(tmp_path, name)]) == 40
    best = max(Results(tmp_path, "own.tuning").done, key=lambda pair: pair[1].average)
    assert "own.tuning.first-2" in names
    assert abs(best[0].agent["x"] - 0.3) < 0.05
    status, out, _ = command("status", tmp_path, "--study", "all")
    assert status == 0
    assert "0 to do" in out
    assert "not running" not in out


def test_a_point_that_fails_counts_as_failed_and_the_search_goes_on(executor, study, tmp_path):
    agent = peak(x={"low": 0, "high": 2}, limit=0.8)
    tuned, _ = tuning.tune(study(agent), tmp_path, trials=10, seeds=2, quiet=True)
    assert all(setting.agent["x"] <= 0.8 for setting in tuned.settings)
    failed = Results(tmp_path, "own.tuning.first-1").failed
    assert failed
    done = len(executor.runs)
    tuning.tune(study(agent), tmp_path, trials=10, seeds=2, quiet=True)
    assert len(executor.runs) == done
    tuning.tune(study(agent), tmp_path, trials=10, seeds=2, quiet=True, retry_failed=True)
    assert len(executor.runs) == done + len(failed)


def test_if_all_points_fail_one_line_says_so(executor, study, tmp_path):
    with pytest.raises(StoreError, match="no setting of Peak in H = 2 finished on all tuning see"):
        tuning.tune(study(peak(x=X, limit=-1.0)), tmp_path, trials=3, seeds=1, quiet=True)


def test_fewer_points_than_trials_are_the_whole_grid(executor, study, tmp_path):
    agent = peak(x=[0.1, 0.3, 0.3], n={"low": 1, "high": 3})
    tuned, _ = tuning.tune(study(agent), tmp_path / "a", trials=50, seeds=3, quiet=True)
    assert len(tried(tmp_path / "a")) == 12  # 2 panels, and 0.3 counts once
    assert len(executor.runs) == 36
    grid, _ = tuning.tune(study(peak(x=[0.1, 0.3], n=[1, 2, 3])), tmp_path / "b", seeds=3,
                          quiet=True)  # fmt: skip
    assert [s.key for s in tuned.settings] == [s.key for s in grid.settings]


def test_trials_of_lists_are_points_of_the_grid_and_none_is_run_twice(executor, study, tmp_path):
    agent = peak(x=[i / 10 for i in range(10)], n=[1, 2, 3, 4])
    part = study(agent).only(["horizon=2", "n=1,2,4"])
    tuned, _ = tuning.tune(part, tmp_path, trials=12, seeds=1, quiet=True)
    assert len(executor.runs) == len({run.key for run in executor.runs}) == 12
    allowed = {setting.key for setting in part.settings}
    assert {run.setting.key for run in executor.runs} <= allowed
    assert {s.panel for s in tuned.settings} == {"H = 2"}


def test_agents_without_ranges_are_tried_in_full(executor, study, tmp_path):
    grid = peak(x=[i / 10 for i in range(8)], label="grid")  # the low end of X is one of them
    tuning.tune(study(peak(x=X), grid), tmp_path, trials=3, seeds=1, quiet=True)
    labels = [label for panel, label in tried(tmp_path) if panel == "H = 2"]
    assert sum(label.startswith("grid x=") for label in labels) == 8
    assert sum(label.startswith("Peak x=") for label in labels) == 3


def test_an_agent_may_be_the_low_end_of_another(executor, study, tmp_path):
    agents = peak(x=0.0, label="zero"), peak(x=X, label="range")
    tuned, _ = tuning.tune(study(*agents), tmp_path, trials=4, seeds=1, quiet=True)
    assert [s.label for s in tuned.settings] == ["zero", "range"] * 2


def test_agents_with_the_same_label_are_one_search_and_obey_when(executor, study, tmp_path):
    agents = (
        peak(label="mine", x=X, when={"horizon": 2}),
        peak(label="mine", x={"low": 0.5, "high": 0.6}, when={"horizon": 5}),
    )
    tuned, _ = tuning.tune(study(*agents), tmp_path, trials=4, seeds=1, quiet=True)
    assert len(tried(tmp_path)) == 8
    assert [s.panel for s in tuned.settings] == ["H = 2", "H = 5"]
    assert 0.5 <= tuned.settings[1].agent["x"] <= 0.6


def test_a_full_search_counts_its_trials_as_they_end(
    executor, study, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(search, "EVERY", 0.0)
    grid = study(peak(n=[1, 2, 3]), problem={"name": "tuning_own:Problem", "horizon": 2})
    tuning.tune(grid, tmp_path, trials=9, seeds=2)
    lines = capsys.readouterr().err.splitlines()
    shown = [re.match(r"(\d)/3 trials, (\d) of at most 6 runs", line) for line in lines]
    assert [match.groups() for match in shown if match] == [
        *(("0", "1"), ("0", "2"), ("0", "3"), ("1", "4"), ("2", "5"), ("3", "6"))
    ]


def test_a_search_says_what_it_found_and_has_a_limit(executor, study, tmp_path, capsys):
    tuning.tune(study(peak(x=X)), tmp_path, trials=6, seeds=2)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["H = 2 | Peak", "H = 5 | Peak"]
    assert re.search(r"6 trials.*; best: Peak x=0\.\d+: [01]\.\d{4}$", lines[0])
    with pytest.raises(StudyError, match="at most 1000000 runs, and 100000 trials on 10 tuning"):
        tuning.tune(study(peak(x=X)), tmp_path, trials=100_000)
    with pytest.raises(StudyError, match="trials must be an integer >= 1, got 0"):
        tuning.tune(study(peak(x=X)), tmp_path, trials=0)


# --- processes ------------------------------------------------------------------------------------
@pytest.mark.integration
def test_neither_processes_nor_kills_change_the_result(folder, tmp_path):
    (folder / "kill.toml").write_text(FILE)
    tune = ("tune", "kill.toml", "--trials", "12", "--tuning-seeds", "4", "--out")
    one, two, killed = (tmp_path / name for name in ("one", "two", "killed"))
    assert blockmdp(folder, *tune, one, "--jobs", 1)[0] == 0
    assert blockmdp(folder, *tune, two, "--jobs", 2)[0] == 0
    for n in (5, 17):
        with Command(folder, *tune, killed, "--jobs", 2) as running:
            running.until(lambda n=n: finished(killed) >= n)
            running.send(signal.SIGKILL)
    assert blockmdp(folder, *tune, killed, "--jobs", 2)[0] == 0
    assert content(one) == content(two) == content(killed)
    documents = [tomllib.loads((out / "tuned.toml").read_text()) for out in (one, two, killed)]
    assert documents[0] == documents[1] | {"modules": documents[0]["modules"]}
    assert documents[1] == documents[2] | {"modules": documents[1]["modules"]}
