"""Damaged stores. The files are real; the runs are done in this process."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from faults import InProcess, content, mount, select, unmount

from blockmdp.cli import main
from blockmdp.experiments import Study, driver
from blockmdp.experiments.outcome import Outcome
from blockmdp.experiments.settings import Run
from blockmdp.experiments.store import FILE, FORMAT, Store


@pytest.fixture
def executor(monkeypatch):
    executor = InProcess()
    monkeypatch.setattr(driver, "make_executor", lambda *_: executor)
    return executor


STUDY = """
seeds = 8
episodes = 300
problem = { name = "lock_bernoulli", horizon = [2, 3] }
agent = [{ name = "Tabular" }, { name = "PCID", n = 50, when.horizon = 2 }]
"""
N = 24  # runs of this study


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A folder with a study and all its results in `out`."""
    folder = tmp_path_factory.mktemp("healthy")
    (folder / "study.toml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "make_executor", InProcess)
        Study.load(folder / "study.toml").run(folder / "out", quiet=True)
    assert Path(f"{folder / 'out' / FILE}-wal").stat().st_size == 0  # all is in the one file
    return folder


def repair(healthy, data, out, executor, capsys):
    """Return how many runs are repeated with a store of these bytes, and the warnings."""
    out.mkdir()
    (out / FILE).write_bytes(data)
    for command in ("status", "table"):
        assert main([command, str(out)]) in (0, 1)
    before = len(executor.runs)
    assert main(["run", str(healthy / "study.toml"), "--out", str(out), "--quiet"]) == 0
    assert content(out) == content(healthy / "out")
    assert main(["status", str(out)]) == 0
    warnings = capsys.readouterr().err
    if len(executor.runs) > before:
        assert "damaged" in warnings or "empty file" in warnings
    return len(executor.runs) - before, warnings


def test_a_truncated_store_is_reported_and_repaired(healthy, tmp_path, executor, capsys):
    data = (healthy / "out" / FILE).read_bytes()
    for i, share in enumerate((0, 1e-5, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99999)):
        cut = data[: int(share * len(data))]
        again, _ = repair(healthy, cut, tmp_path / str(i), executor, capsys)
        assert again > 0
    assert again < N  # of the last one, most rows are readable and kept


def test_a_store_with_a_lost_page_is_reported_and_repaired(healthy, tmp_path, executor, capsys):
    data = (healthy / "out" / FILE).read_bytes()
    again = []
    for page in range(0, len(data), 4096):
        hole = data[:page] + bytes(4096) + data[page + 4096 :]
        again.append(repair(healthy, hole, tmp_path / str(page), executor, capsys)[0])
    assert again[0] == N
    assert 0 < np.median(again) < N


def test_a_flipped_byte_in_a_run_costs_only_that_run(healthy, tmp_path, executor, capsys):
    data = (healthy / "out" / FILE).read_bytes()
    for column in ("setting", "ledger", "environment", "curve"):
        table, next_to_key = ("curves", "curve") if column == "curve" else ("runs", "setting")
        columns = f"key, {next_to_key}, {column}"
        (row,) = select(healthy / "out", f"SELECT {columns} FROM {table} LIMIT 1 OFFSET 3")
        key, beside, value = (v if isinstance(v, bytes) else v.encode() for v in row)
        place = data.index(value, data.index(key + beside) + len(key))
        for mask in (1, 0x80):
            flipped = bytearray(data)
            flipped[place + len(value) // 2] ^= mask
            out = tmp_path / f"{column}{mask}"
            again, warnings = repair(healthy, flipped, out, executor, capsys)
            assert again == 1
            assert "deleted 1 damaged runs, which are done again" in warnings


@pytest.mark.parametrize("flips", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_byte_anywhere_loses_nothing_silently(flips, healthy, tmp_path, executor, capsys):
    data = (healthy / "out" / FILE).read_bytes()
    draw = random.Random(20)
    costs = []
    for i in range(flips):
        flipped = bytearray(data)
        flipped[draw.randrange(100, len(data))] ^= 1 << draw.randrange(8)
        costs.append(repair(healthy, flipped, tmp_path / str(i), executor, capsys)[0])
    assert 0 < sum(costs) < flips * N


def test_a_damaged_exact_value_is_computed_again(healthy, tmp_path, executor, capsys):
    shutil.copytree(healthy / "out", tmp_path / "out")
    with contextlib.closing(sqlite3.connect(tmp_path / "out" / FILE)) as store, store:
        assert store.execute("UPDATE exact SET value = 7 WHERE rowid = 3").rowcount == 1
    before = len(executor.runs)
    assert (
        main(["run", str(healthy / "study.toml"), "--out", str(tmp_path / "out"), "--quiet"]) == 0
    )
    assert "deleted 1 damaged runs" in capsys.readouterr().err
    assert len(executor.runs) == before + 1
    with Store(tmp_path / "out") as store, Store(healthy / "out") as sound:
        assert sorted(r.value for r in store.rows()) == sorted(r.value for r in sound.rows())


@pytest.mark.parametrize("change", ["accuracy = 0.3", "levels = x'00'"])
def test_a_damaged_accuracy_is_measured_again(change, healthy, tmp_path, executor, capsys):
    shutil.copytree(healthy / "out", tmp_path / "out")
    with contextlib.closing(sqlite3.connect(tmp_path / "out" / FILE)) as store, store:
        assert store.execute(f"UPDATE decoding SET {change} WHERE rowid = 3").rowcount == 1
    assert main(["table", str(tmp_path / "out")]) == 0
    assert "1 damaged accuracies are left out; run the study again" in capsys.readouterr().err
    before = len(executor.runs)
    study = ["run", str(healthy / "study.toml"), "--out", str(tmp_path / "out"), "--quiet"]
    assert main(study) == 0
    assert "deleted 1 damaged runs" in capsys.readouterr().err
    assert len(executor.runs) == before + 1
    with Store(tmp_path / "out") as store, Store(healthy / "out") as sound:
        keys = [row.key for row in sound.rows()]
        assert store.decoding(keys) == sound.decoding(keys)
        assert len(sound.decoding(keys)) == 8


def test_a_damaged_file_is_kept_under_another_name(healthy, tmp_path, executor, capsys):
    data = (healthy / "out" / FILE).read_bytes()[:-5000]
    repair(healthy, data, tmp_path / "out", executor, capsys)
    (kept,) = (tmp_path / "out").glob(f"{FILE}.damaged-*")
    assert kept.read_bytes() == data


def test_a_store_of_another_format_is_refused(healthy, tmp_path, executor, capsys):
    shutil.copy(healthy / "out" / FILE, tmp_path)
    run = ["run", str(healthy / "study.toml"), "--out", str(tmp_path)]
    for change, words in (
        (+1, "was written by a newer blockmdp: upgrade to use it"),
        (-3, "was written by an older blockmdp: choose another --out"),
    ):
        with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as store:
            store.execute(f"PRAGMA user_version={FORMAT + change}")
        for command in (run, ["status", str(tmp_path)]):
            assert main(command) == 1
            assert words in capsys.readouterr().err
    assert executor.runs == []


@pytest.mark.parametrize("wal", [False, True])
def test_a_directory_that_cannot_be_written_can_be_read(wal, healthy, tmp_path, capsys):
    root = os.geteuid() == 0  # who may write whatever the permissions say
    if root:
        mount(tmp_path)
    try:
        shutil.copy(healthy / "out" / FILE, tmp_path)
        if wal:  # as a killed driver leaves it
            (tmp_path / f"{FILE}-wal").write_bytes(b"what was written last")
        mount(tmp_path, "-o", "remount,ro") if root else tmp_path.chmod(0o555)
        assert main(["status", str(tmp_path)]) == 0
        out, err = capsys.readouterr()
        assert f"study: {N} of {N} runs done" in out
        assert ("the latest runs may be missing" in err) == wal
    finally:
        unmount(tmp_path) if root else tmp_path.chmod(0o755)


def test_odd_values_are_not_taken_for_damage(tmp_path, healthy):
    study = Study.load(healthy / "study.toml")
    odd = [
        Outcome(average=float("nan"), final=-0.0, curve=b"\0"),
        Outcome(average=float("inf"), final=1e-320, curve=b""),
        Outcome(error="no \udcff UTF-8, a \0 and a \N{SNOWMAN}"),
    ]
    with Store(tmp_path, write=True) as store:
        for seed, outcome in enumerate(odd):
            store.add(Run(study.settings[0], seed), outcome)
        assert store.drop_damaged() == 0
        assert len(store.rows()) == 3
