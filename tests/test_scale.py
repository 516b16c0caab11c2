"""Large studies: what is read, written and computed once, and not for each setting or run."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import fields

import numpy as np
import pytest
from faults import InProcess, select

from blockmdp import cli
from blockmdp.experiments import Results, Study, driver, statistics, store, tables
from blockmdp.experiments.outcome import Curve, Outcome
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.settings import Setting, canonical
from blockmdp.experiments.store import Row, Store

NAMES = [field.name for field in fields(Setting)]


def grid(settings=6, seeds=2):
    """Return a study with half as many agents as settings."""
    rates = [round(0.1 + 0.01 * i, 2) for i in range(settings // 2)]
    learner = {"name": "OracleQ", "lr": rates}
    problem = {"name": "lock_bernoulli", "horizon": [1, 2]}
    agent = {"name": "Tabular", "on": "latent", "learner": learner}
    return Study({"seeds": seeds, "episodes": 5, "problem": problem, "agent": agent}, check=False)


def outcome():
    n = np.arange(1, 4)
    return Outcome(None, 0.5, 0.5, 20, 30, {"learn": 5}, Curve(n, n, n * 0.5).to_bytes(), 0.5, 0.5)


def fill(directory, study):
    with Store(directory, write=True) as opened:
        opened.register(study)
        for run in study.runs():
            opened.add(run, outcome())


@pytest.fixture
def statements(monkeypatch):
    """The SQL statements of all stores that are opened."""
    found, connect = [], store._connect

    def traced(uri):
        connection = connect(uri)
        connection.set_trace_callback(found.append)
        return connection

    monkeypatch.setattr(store, "_connect", traced)
    return found


# --- reading --------------------------------------------------------------------------------------
def test_status_reads_neither_curves_nor_values(tmp_path, statements, capsys):
    fill(tmp_path, grid())
    statements.clear()
    assert cli.main(["status", str(tmp_path)]) == 0
    assert "12 of 12 runs done" in capsys.readouterr().out
    assert any("FROM runs" in each for each in statements)
    assert not any("FROM curves" in each or "FROM exact" in each for each in statements)
    assert cli.main(["table", str(tmp_path)]) == 0
    assert any("FROM exact" in each for each in statements)
    assert not any("FROM curves" in each for each in statements)


@pytest.mark.parametrize("command", ["status", "table"])
def test_the_number_of_statements_does_not_grow_with_the_study(tmp_path, statements, command):
    counts = []
    for settings in (2, 20):
        fill(tmp_path / str(settings), grid(settings))
        statements.clear()
        assert cli.main([command, str(tmp_path / str(settings))]) == 0
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_a_stored_plan_is_the_plan_and_shares_its_tables():
    study = grid(20)
    text = study.to_json()
    plan = Plan.from_json(text, "name", None)
    for name in (*NAMES, "key", "content"):
        assert [getattr(s, name) for s in plan.settings] == [
            getattr(s, name) for s in study.settings
        ]
    assert (plan.seeds, plan.document) == (study.seeds, study.document)
    assert len({id(s.agent) for s in plan.settings}) == 10
    assert len({id(s.problem) for s in plan.settings}) == 2
    assert text.count("OracleQ-lat lr=0.19") == 1  # labels too


def test_plans_of_earlier_versions_can_be_read():
    study = grid()
    settings = [{name: getattr(s, name) for name in (*NAMES, "key")} for s in study.settings]
    for table in settings:
        del table["agent_table"]  # the first version had none
    kept = {"document": study.document, "seeds": list(study.seeds), "settings": settings}
    plan = Plan.from_json(json.dumps(kept), "name", None)
    assert [s.key for s in plan.settings] == [s.key for s in study.settings]
    assert [s.label for s in plan.settings] == [s.label for s in study.settings]
    assert plan.settings[0].agent_table == {}


@pytest.mark.parametrize("damage", ["index", "negative", "length", "name"])
def test_a_plan_with_wrong_columns_is_refused(damage):
    kept = json.loads(grid().to_json())
    values, numbers = kept["settings"]["problem"]
    if damage == "index":
        numbers[0] = len(values)
    elif damage == "negative":
        numbers[0] = -1
    elif damage == "length":
        numbers.pop()
    else:
        del values[0]["name"]
    with pytest.raises(store.StoreError, match="the study name of this store cannot be read"):
        Plan.from_json(json.dumps(kept), "name", None)


def test_contents_are_canonical_json():
    for setting in grid().settings:
        agent = {k: v for k, v in setting.agent.items() if k != "by_level"}
        agent["learner"] = {k: v for k, v in agent["learner"].items() if k != "stationary"}
        own = {"problem": setting.problem, "agent": agent, "episodes": 5, "solved": setting.solved}
        assert setting.content == canonical(own)
        assert Setting(*(getattr(setting, name) for name in NAMES)).content == setting.content


# --- tables ---------------------------------------------------------------------------------------
def test_agents_are_summarised_together_as_each_alone(monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 3)
    rng = np.random.default_rng(0)
    setting = grid().settings[0]
    agents = []
    for n in (0, 1, 2, 3, 3, 3, 3, 7, 9, 9, 50, 50, 1001):
        rows = [_row(seed, *rng.random(5)) for seed in range(n)]
        agents.append((setting, [*rows, _row(n, *rng.random(5))._replace(error="why")]))
    together = tables.summarise(agents)
    assert repr(together) == repr([tables.summarise([agent])[0] for agent in agents])
    for summary, (_, rows) in zip(together, agents):
        done = rows[:-1]
        assert (summary.runs, summary.failed) == (len(done), 1)
        if done:
            final = np.array([row.final for row in done])
            assert summary.final == final.mean()
            assert (summary.final_low, summary.final_high) == statistics.bootstrap(final)
            assert summary.iqm == statistics.iqm(final)
            assert summary.seconds == np.mean([row.seconds for row in done])
            assert summary.value == np.mean([row.value for row in done])
        else:
            assert math.isnan(summary.final)


def _row(seed, average, final, seconds, optimal, value):
    run = ("key", "setting", seed, None, average, final, 5, 5 + seed, '{"learn": 5}')
    return Row(*run, seconds, 0.0, "{}", optimal, value)


def test_a_long_table_is_cut_in_a_terminal_only(tmp_path, monkeypatch, capsys):
    fill(tmp_path, grid())
    monkeypatch.setattr(cli, "MAX_LISTED", 3)
    assert cli.main(["table", str(tmp_path)]) == 0
    whole = capsys.readouterr().out
    assert whole.count("OracleQ-lat") == 6
    monkeypatch.setattr(cli, "is_terminal", lambda stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(["table", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == whole.splitlines()[:4]
    assert lines[4:] == ["... and 5 more lines; to see them all: | less"]


# --- writing --------------------------------------------------------------------------------------
def stored(directory):
    return select(directory, "SELECT count(*) FROM runs")[0][0]


def test_runs_that_end_together_are_committed_together(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "COMMIT_EVERY", math.inf)
    one, *others = grid().runs()
    with Store(tmp_path, write=True) as opened:
        opened.add(one, outcome())
        assert stored(tmp_path) == 1  # the first is not kept waiting
        for run in others:
            opened.add(run, outcome())
        assert stored(tmp_path) == 1
        assert len(opened.done()) == 12
        monkeypatch.setattr(store, "COMMIT_EVERY", 0)
        opened.settle()
        assert stored(tmp_path) == 12


def test_closing_a_store_commits(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "COMMIT_EVERY", math.inf)
    fill(tmp_path, grid())
    assert stored(tmp_path) == 12
    assert len(Results(tmp_path).done) == 12


def test_an_interrupt_while_a_run_is_stored_loses_this_run_only(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "COMMIT_EVERY", math.inf)
    runs = list(grid().runs())[:3]
    insert = Store._insert

    def interrupted(self, table, row, replace=False):
        if table == "curves" and row[0] == runs[2].key:
            raise KeyboardInterrupt
        insert(self, table, row, replace)

    monkeypatch.setattr(Store, "_insert", interrupted)
    with contextlib.suppress(KeyboardInterrupt), Store(tmp_path, write=True) as opened:
        for run in runs:
            opened.add(run, outcome())
    assert stored(tmp_path) == 2
    with Store(tmp_path, write=True) as opened:
        assert opened.drop_damaged() == 0


def test_a_study_of_many_tiny_runs_commits_few_times(tmp_path, monkeypatch, statements):
    monkeypatch.setattr(driver, "make_executor", InProcess)
    monkeypatch.setattr(store, "COMMIT_EVERY", math.inf)
    grid(2, seeds=10).run(tmp_path, quiet=True)
    assert len(Results(tmp_path).done) == 20
    added = statements.index(next(each for each in statements if "INTO runs" in each))
    assert sum(each == "COMMIT" for each in statements[added:]) == 2  # the first run, and the end
