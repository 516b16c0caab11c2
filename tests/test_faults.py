"""Faults, injected for real: killed drivers and workers, full disks, damaged stores."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from faults import (
    CAPS,
    FAULTY,
    Command,
    are_gone,
    blockmdp,
    children,
    content,
    errors,
    finished,
    make_lab,
    select,
    wait_until,
)

from blockmdp.cli import main
from blockmdp.experiments import driver
from blockmdp.experiments.pool import Pool
from blockmdp.experiments.runs import Outcome, execute
from blockmdp.experiments.store import FILE, FORMAT, Store
from blockmdp.experiments.study import Run, Study

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def undisturbed(lab):
    """The content of the steady study, done by one process in peace."""
    status, err = blockmdp(lab, "run", "steady.toml", "--out", "undisturbed", "--jobs", 1)
    assert status == 0, err
    return content(lab / "undisturbed")


# --- processes ------------------------------------------------------------------------------------
def test_ten_kills_of_the_driver_lose_nothing_that_was_finished(lab, undisturbed, tmp_path):
    draw = random.Random(10)
    there = 0
    for kill in range(10):
        jobs = 1 + kill // 7
        with Command(lab, "run", "steady.toml", "--out", tmp_path, "--jobs", jobs) as command:
            if kill % 2:
                command.until(lambda n=there: finished(tmp_path) > n)
                time.sleep(draw.uniform(0, 0.15))
            else:
                time.sleep(draw.uniform(0, 1.5))
            workers = children(command.pid)
            command.send(signal.SIGKILL)
        wait_until(lambda pids=workers: are_gone(pids), 10)
        assert finished(tmp_path) >= there
        there = finished(tmp_path)
    status, err = blockmdp(lab, "run", "steady.toml", "--out", tmp_path, "--jobs", 2)
    assert status == 0, err
    assert "damaged" not in err
    assert content(tmp_path) == undisturbed
    assert len(undisturbed[0]) == len(undisturbed[1]) == 28


def test_a_killed_worker_costs_no_run(lab, undisturbed, tmp_path):
    with Command(lab, "run", "steady.toml", "--out", tmp_path, "--jobs", 2) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        os.kill(children(command.pid)[0], signal.SIGKILL)
        assert command.wait() == 0, command.stderr
    assert content(tmp_path) == undisturbed


def test_runs_that_kill_hang_or_eat_memory_fail_alone_and_can_be_done_again(lab, tmp_path):
    again = ("run", "faulty.toml", "--out", tmp_path, "--jobs", 2, *CAPS)
    status, err = blockmdp(lab, *again)
    assert status == 1
    assert "5 runs failed" in err
    why = errors(tmp_path)
    assert set(why) == set(FAULTY)
    assert why["Killer"] == "farewell\nthe worker process died 3 times: Killed (9)"
    assert why["Hanger"] == "took longer than the time-out of 5 s"
    assert "MemoryError" in why["Glutton"].splitlines()[-1]
    assert why["Thrower"].startswith("Traceback")
    assert why["Thrower"].endswith("\nValueError: bad luck\n")
    assert "returns_ must be a list of finite numbers" in why["Nan"]
    assert finished(tmp_path) == 3

    before = select(tmp_path, "SELECT key, finished FROM runs ORDER BY key")
    assert blockmdp(lab, *again)[0] == 1  # they are not done again unasked
    assert select(tmp_path, "SELECT key, finished FROM runs ORDER BY key") == before
    (lab / "mended").touch()
    try:
        status, err = blockmdp(lab, *again[:-4], "--retry-failed")
    finally:
        (lab / "mended").unlink()
    assert status == 0, err
    assert (errors(tmp_path), finished(tmp_path)) == ({}, 8)


@pytest.mark.parametrize(("signum", "jobs"), [(signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_an_interrupt_ends_a_study_soon_and_keeps_what_is_finished(signum, jobs, lab, tmp_path):
    run = ("run", "long.toml", "--out", tmp_path, "--jobs", jobs, "--quiet")
    with Command(lab, *run, warm=False) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        workers = children(command.pid)
        there, start = finished(tmp_path), time.monotonic()
        command.send(signum)
        assert command.wait(10) == 128 + signum
        print(f"ended {time.monotonic() - start:.2f} s after {signum.name}")
        assert command.stderr.count("\n") == 1
        assert "what was finished is kept; the same command goes on from there" in command.stderr
    assert len(workers) == jobs
    assert are_gone(workers)
    assert finished(tmp_path) >= there


def test_a_worker_without_work_ends_after_a_while_and_another_takes_its_place(healthy):
    one, two = Study.load(healthy / "study.toml").settings
    with Pool(idle=0.1) as pool:
        for setting in (one, two):
            ((_, outcome),) = pool.map([Run(setting, 0)])
            assert outcome.error is None
            (worker,) = pool._workers
            wait_until(lambda: worker.process.poll() == 0)  # noqa: B023


def test_a_second_driver_is_refused(lab, tmp_path):
    with Store(tmp_path, write=True):
        status, err = blockmdp(lab, "run", "steady.toml", "--out", tmp_path)
    assert status == 1
    assert err.count("\n") == 1
    assert f"{tmp_path} is in use by process {os.getpid()} on " in err


# --- disks ----------------------------------------------------------------------------------------
def mount(folder, *options):
    done = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "tmpfs", folder], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")


def unmount(folder):
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(params=["disk", "file"])
def full(request, tmp_path):
    """A directory, options under which it is soon full, and a way to make room."""
    if request.param == "file":  # one that may not grow
        yield tmp_path, {"fsize": 100_000}, lambda: None
        return
    mount(tmp_path, "-o", "size=200k")
    yield tmp_path, {}, lambda: mount(tmp_path, "-o", "remount,size=20m")
    unmount(tmp_path)


def test_a_full_disk_stops_a_study_that_goes_on_once_there_is_room(lab, undisturbed, full):
    out, options, grow = full
    run = ("run", "steady.toml", "--out", out, "--jobs", 1)
    status, err = blockmdp(lab, *run, **options)
    assert status == 1
    assert err.splitlines()[-1].startswith(f"blockmdp: cannot write to {out / FILE}: ")
    assert "Traceback" not in err
    rows = content(out)[0]
    assert 0 < len(rows) < 28
    assert set(rows) < set(undisturbed[0])
    assert blockmdp(lab, "status", out)[0] == 0
    grow()
    status, err = blockmdp(lab, *run)
    assert (status, "damaged" in err) == (0, False)
    assert content(out) == undisturbed


# --- damage: the store is real, the runs are done in this process ---------------------------------
class Here:
    """Does runs without worker processes, and counts them."""

    def __init__(self, *_):
        self.runs = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def state(self):
        return "here"

    def map(self, runs):
        for run in runs:
            self.runs += 1
            yield run, execute(json.loads(run.setting.content), run.seed)


@pytest.fixture
def here(monkeypatch):
    executor = Here()
    monkeypatch.setattr(driver, "_executor", lambda *_: executor)
    return executor


STUDY = """
seeds = 8
episodes = 300
problem = { name = "lock_bernoulli", horizon = [2, 3] }
agent = { name = "Tabular" }
"""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A folder with a study and its results in `out`, all there."""
    folder = tmp_path_factory.mktemp("healthy")
    (folder / "study.toml").write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_executor", Here)
        Study.load(folder / "study.toml").run(folder / "out", quiet=True)
    assert Path(f"{folder / 'out' / FILE}-wal").stat().st_size == 0  # all is in the one file
    return folder


def mends(healthy, data, out, here, capsys):
    """How many runs the command does again with a store of these bytes, and what it tells."""
    out.mkdir()
    (out / FILE).write_bytes(data)
    for command in ("status", "table"):
        assert main([command, str(out)]) in (0, 1)
    before = here.runs
    assert main(["run", str(healthy / "study.toml"), "--out", str(out), "--quiet"]) == 0
    assert content(out) == content(healthy / "out")
    assert main(["status", str(out)]) == 0
    told = capsys.readouterr().err
    if here.runs > before:
        assert "damaged" in told or "empty file" in told
    return here.runs - before, told


@pytest.mark.parametrize("share", [0, 1e-5, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99999])
def test_a_truncated_store_is_told_and_done_again(share, healthy, tmp_path, here, capsys):
    data = (healthy / "out" / FILE).read_bytes()
    again, _ = mends(healthy, data[: int(share * len(data))], tmp_path / "out", here, capsys)
    assert again > 0
    if share == 0.99999:
        assert again < 16  # what can be read is kept


def test_a_store_of_which_a_page_is_lost_is_told_and_done_again(healthy, tmp_path, here, capsys):
    data = (healthy / "out" / FILE).read_bytes()
    again = []
    for page in range(0, len(data), 4096):
        hole = data[:page] + bytes(4096) + data[page + 4096 :]
        again.append(mends(healthy, hole, tmp_path / str(page), here, capsys)[0])
    assert again[0] == 16
    assert 0 < np.median(again) < 16


@pytest.mark.parametrize("column", ["setting", "ledger", "environment", "curve"])
@pytest.mark.parametrize("mask", [1, 0x80])
def test_a_flipped_byte_in_a_run_costs_that_run(column, mask, healthy, tmp_path, here, capsys):
    data = bytearray((healthy / "out" / FILE).read_bytes())
    table, next_to_key = ("curves", "curve") if column == "curve" else ("runs", "setting")
    columns = f"key, {next_to_key}, {column}"
    (row,) = select(healthy / "out", f"SELECT {columns} FROM {table} LIMIT 1 OFFSET 3")
    key, beside, value = (v if isinstance(v, bytes) else v.encode() for v in row)
    place = data.index(value, data.index(key + beside) + len(key))
    data[place + len(value) // 2] ^= mask
    again, told = mends(healthy, data, tmp_path / "out", here, capsys)
    assert again == 1
    assert "1 damaged runs in " in told
    assert "are taken out, to be done again" in told


def test_a_flipped_byte_anywhere_loses_nothing_silently(healthy, tmp_path, here, capsys):
    data = (healthy / "out" / FILE).read_bytes()
    draw = random.Random(20)
    costs = []
    for i in range(20):
        flipped = bytearray(data)
        flipped[draw.randrange(100, len(data))] ^= 1 << draw.randrange(8)
        costs.append(mends(healthy, flipped, tmp_path / str(i), here, capsys)[0])
    assert 0 < sum(costs) < 20 * 16


def test_a_damaged_file_is_put_aside(healthy, tmp_path, here, capsys):
    data = (healthy / "out" / FILE).read_bytes()[:-5000]
    mends(healthy, data, tmp_path / "out", here, capsys)
    (aside,) = (tmp_path / "out").glob(f"{FILE}.damaged-*")
    assert aside.read_bytes() == data


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_store_of_a_newer_format_is_refused(command, healthy, tmp_path, here, capsys):
    shutil.copy(healthy / "out" / FILE, tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as store:
        store.execute(f"PRAGMA user_version={FORMAT + 1}")
    study = [str(healthy / "study.toml"), "--out"] if command == "run" else []
    assert main([command, *study, str(tmp_path)]) == 1
    assert "was written by a newer blockmdp: upgrade to use it" in capsys.readouterr().err
    assert here.runs == 0


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
        told, err = capsys.readouterr()
        assert "study: 16 of 16 runs done" in told
        assert ("the latest runs may be missing" in err) == wal
    finally:
        unmount(tmp_path) if root else tmp_path.chmod(0o755)


@pytest.mark.parametrize(
    "odd",
    [
        Outcome(average=float("nan"), final=-0.0, curve=b"\0"),
        Outcome(average=float("inf"), final=1e-320, curve=b""),
        Outcome(error="no \udcff UTF-8, a \0 and a \N{SNOWMAN}"),
    ],
)
def test_odd_values_are_not_taken_for_damage(odd, tmp_path, healthy):
    study = Study.load(healthy / "study.toml")
    with Store(tmp_path, write=True) as store:
        store.add(Run(study.settings[0], 0), odd)
        assert store.drop_damaged() == 0
        assert len(store.rows()) == 1
