"""Faults, injected for real: killed drivers and workers, full disks."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from faults import (
    FAULTY,
    LIMITS,
    STEADY_RUNS,
    Command,
    InProcess,
    are_gone,
    blockmdp,
    children,
    content,
    errors,
    finished,
    make_lab,
    mount,
    select,
    unmount,
    wait_until,
)

from blockmdp.experiments import Study, driver
from blockmdp.experiments import pool as pool_module
from blockmdp.experiments.errors import ExecutorError
from blockmdp.experiments.pool import Pool
from blockmdp.experiments.store import FILE, Store

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def undisturbed(lab):
    """The content of the steady study, done without any fault."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "make_executor", InProcess)
        Study.load(lab / "steady.toml").run(lab / "undisturbed", quiet=True)
    return content(lab / "undisturbed")


# --- processes ------------------------------------------------------------------------------------
def test_kills_of_the_driver_lose_no_finished_run(lab, undisturbed, tmp_path):
    draw = random.Random(10)
    run = ("run", "steady.toml", "--out", tmp_path)
    before = 0
    for kill in range(5):
        with Command(lab, *run, "--jobs", 2 if kill == 4 else 1) as command:
            if kill in (1, 3, 4):  # while it runs
                command.until(lambda n=before: finished(tmp_path) > n)
                time.sleep(draw.uniform(0, 0.1))
            else:  # while it starts
                time.sleep(draw.uniform(0, 1.0))
            workers = children(command.pid)
            command.send(signal.SIGKILL)
        wait_until(lambda pids=workers: are_gone(pids))
        assert finished(tmp_path) >= before
        before = finished(tmp_path)
    assert 3 <= before < STEADY_RUNS
    status, err = blockmdp(lab, *run, "--jobs", 1)
    assert status == 0, err
    assert "damaged" not in err
    assert content(tmp_path) == undisturbed
    assert len(undisturbed[0]) == len(undisturbed[1]) == STEADY_RUNS


def test_a_killed_worker_loses_no_run(lab, undisturbed, tmp_path):
    with Command(lab, "run", "steady.toml", "--out", tmp_path, "--jobs", 2) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        os.kill(children(command.pid)[0], signal.SIGKILL)
        assert command.wait() == 0, command.stderr
    assert content(tmp_path) == undisturbed


def test_a_run_is_not_blamed_for_kills_from_outside(lab, undisturbed, tmp_path):
    with Command(lab, "run", "steady.toml", "--out", tmp_path, "--jobs", 1) as command:
        for n in range(5):  # each kill meets a process as soon as it has begun
            command.until(lambda n=n: finished(tmp_path) >= 1 + n)
            os.kill(children(command.pid)[0], signal.SIGKILL)
        assert command.wait() == 0, command.stderr
    assert content(tmp_path) == undisturbed


def test_runs_that_kill_hang_or_eat_memory_fail_alone_and_can_be_repeated(lab, tmp_path):
    again = ("run", "faulty.toml", "--out", tmp_path, "--jobs", 2, *LIMITS)
    status, err = blockmdp(lab, *again)
    assert status == 1
    assert "5 runs failed" in err
    why = errors(tmp_path)
    assert set(why) == set(FAULTY)
    assert why["Killer"] == "farewell\nthe worker process died 6 times: Killed (9)"
    assert why["Hanger"] == "exceeded the timeout of 5 s"
    assert "MemoryError" in why["Glutton"].splitlines()[-1]
    assert why["Thrower"].startswith("Traceback")
    assert why["Thrower"].endswith("\nValueError: bad luck\n")
    assert "returns_ must be finite numbers" in why["Nan"]
    assert finished(tmp_path) == 2

    before = select(tmp_path, "SELECT key, finished FROM runs ORDER BY key")
    assert blockmdp(lab, *again)[0] == 1  # failed runs are not repeated unless the user asks
    assert select(tmp_path, "SELECT key, finished FROM runs ORDER BY key") == before
    (lab / "mended").touch()
    try:
        status, err = blockmdp(lab, *again[:-4], "--retry-failed")
    finally:
        (lab / "mended").unlink()
    assert status == 0, err
    assert (errors(tmp_path), finished(tmp_path)) == ({}, 7)


SLOW_IMPORT = """
import os, time
from faulty import Problem, Slow as Agent
if "BLOCKMDP_DRIVER" in os.environ:  # in a worker process
    time.sleep(2.5)
"""


def test_the_timeout_does_not_count_the_time_of_imports(lab):
    (lab / "slow_import.py").write_text(SLOW_IMPORT)
    document = {
        "seeds": 1,
        "episodes": 5,
        "problem": {"name": "slow_import:Problem", "horizon": 2},
        "agent": {"name": "slow_import:Agent"},
    }
    study = Study(document, folder=lab)
    with Pool(timeout=2.0, folder=study.folder) as pool:
        ((_, outcome),) = pool.map(study.runs())
    assert outcome.error is None


def test_a_process_that_does_not_start_ends_the_study(lab, monkeypatch):
    monkeypatch.setattr(pool_module, "START_TIMEOUT", 1e-9)
    study = Study.load(lab / "steady.toml").only(["seed=0", "horizon=2"])
    with Pool() as pool, pytest.raises(ExecutorError, match="did not start in 0 s"):
        list(pool.map(study.runs()))


def test_imports_that_take_too_long_make_the_run_fail(lab, monkeypatch):
    (lab / "endless_import.py").write_text(SLOW_IMPORT.replace("2.5", "10_000"))
    document = {
        "seeds": 1,
        "episodes": 5,
        "problem": {"name": "endless_import:Problem", "horizon": 2},
        "agent": {"name": "endless_import:Agent"},
    }
    study = Study(document, folder=lab)
    receive = pool_module._Worker.receive

    def without_patience(self):
        outcome = receive(self)
        if self.ready:
            self.deadline = 0.0
        return outcome

    monkeypatch.setattr(pool_module._Worker, "receive", without_patience)
    with Pool(folder=study.folder) as pool:
        ((_, outcome),) = pool.map(study.runs())
    assert outcome.error == "imports took longer than 180 s"


@pytest.mark.parametrize(
    ("signum", "jobs", "warm"), [(signal.SIGINT, 2, False), (signal.SIGTERM, 1, True)]
)
def test_an_interrupt_ends_a_study_and_keeps_finished_runs(signum, jobs, warm, lab, tmp_path):
    run = ("run", "long.toml", "--out", tmp_path, "--jobs", jobs, "--quiet")
    with Command(lab, *run, warm=warm) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        workers = children(command.pid)
        before = finished(tmp_path)
        command.send(signum)
        assert command.wait() == 128 + signum
        assert command.stderr.count("\n") == 1
        assert "finished runs are kept; run the same command again to resume" in command.stderr
    assert len(workers) == jobs
    assert are_gone(workers)
    assert finished(tmp_path) >= before


def test_a_worker_without_work_ends_and_another_takes_its_place(lab):
    one, two = Study.load(lab / "steady.toml").only(["seed=0"]).runs()
    with Pool(idle=0.1, folder=str(lab)) as pool:
        for run in (one, two):
            ((_, outcome),) = pool.map([run])
            assert outcome.error is None
            (worker,) = pool._workers
            wait_until(lambda: worker.process.poll() == 0)  # noqa: B023


def test_while_one_process_compiles_the_loops_of_an_agent_others_run_other_agents():
    agents = [
        {"name": "URL", "oracle": {"name": "gmm", "n_states": [2, 3]}},
        {"name": "Tabular", "on": "latent", "learner": {"name": "UCBVI"}},
    ]
    problem = {"name": "lock_bernoulli", "horizon": [5, 10]}
    document = {"seeds": 2, "episodes": 5, "problem": problem, "agent": agents}
    runs = list(Study(document).runs())
    url, tabular = ([run for run in runs if run.setting.agent["name"] == a["name"]] for a in agents)
    assert (len(url), len(tabular)) == (8, 4)
    kind, other = url[0].setting.kind, tabular[0].setting.kind
    assert {run.setting.kind for run in runs} == {kind, other}

    def order(compiling):
        waiting = pool_module._Waiting(runs)
        return [waiting.pop(compiling) for _ in runs]

    assert order(set()) == runs
    assert order({kind}) == [*tabular, *url]
    assert order({kind, other}) == runs
    waiting = pool_module._Waiting(runs[2:])
    waiting.first.append(runs[1])
    waiting.last.append(tabular[0])  # it was killed, so it waits for all others
    assert [waiting.pop({kind}) for _ in range(3)] == [
        runs[1],
        *[r for r in tabular if r in runs[2:]][:2],
    ]
    assert [waiting.pop({kind}) for _ in range(len(runs) - 3)][-1] == tabular[0]
    assert not waiting


def test_a_second_driver_is_refused(lab, tmp_path):
    with Store(tmp_path, write=True):
        status, err = blockmdp(lab, "run", "steady.toml", "--out", tmp_path)
    assert status == 1
    assert err.count("\n") == 1
    assert f"{tmp_path} is in use: process {os.getpid()} on " in err


# --- disks ----------------------------------------------------------------------------------------
@pytest.fixture(params=["disk", "file"])
def full(request, tmp_path):
    """A directory, options under which it is soon full, and a function that makes room."""
    if request.param == "file":  # limit the size of files
        yield tmp_path, {"max_file_size": 120_000}, lambda: None
        return
    mount(tmp_path, "-o", "size=160k")
    yield tmp_path, {}, lambda: mount(tmp_path, "-o", "remount,size=20m")
    unmount(tmp_path)


def test_a_full_disk_stops_a_study_which_resumes_when_there_is_room(lab, undisturbed, full):
    out, options, grow = full
    run = ("run", "steady.toml", "--out", out, "--jobs", 1)
    status, err = blockmdp(lab, *run, **options)
    assert status == 1
    assert err.splitlines()[-1].startswith(f"blockmdp: cannot write to {out / FILE}: ")
    assert "Traceback" not in err
    rows = content(out)[0]
    assert 0 < len(rows) < STEADY_RUNS
    assert set(rows) < set(undisturbed[0])
    assert blockmdp(lab, "status", out)[0] == 0
    grow()
    status, err = blockmdp(lab, *run)
    assert (status, "damaged" in err) == (0, False)
    assert content(out) == undisturbed
