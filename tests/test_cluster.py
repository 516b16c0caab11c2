"""A study on a real Dask cluster: the same results as here, and what becomes of it in a fault."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from faults import (
    CAPS,
    Command,
    are_gone,
    blockmdp,
    children,
    content,
    errors,
    finished,
    make_lab,
    wait_until,
)

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc"),
    pytest.mark.skipif(find_spec("distributed") is None, reason="needs Dask: blockmdp[dask]"),
]
LONELY = {"BLOCKMDP_CLUSTER_TIMEOUT": "3"}


class LocalCluster:
    """A scheduler and workers on loopback, each a process; `ready` replaces those that died."""

    def __init__(self, lab):
        self.lab = lab
        self.file = lab / "scheduler.json"
        self.scheduler = None
        self.workers = []

    def ready(self, n=1):
        """At least n workers."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.close()
            self.file.unlink(missing_ok=True)
            self.scheduler = self._start("scheduler", "--port", "0", "--scheduler-file", self.file)
            wait_until(lambda: self.file.exists() and self.file.stat().st_size)
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < n:
            options = ("--no-nanny", "--nthreads", "1", "--local-directory", self.lab / "dask")
            self.workers.append(self._start("worker", self.address, *options))
        return self

    @property
    def address(self):
        return json.loads(self.file.read_text())["address"]

    def processes(self):
        """The worker processes that do runs."""
        return [pid for worker in self.workers for pid in children(worker.pid)]

    def close(self):
        for process in [*self.workers, *filter(None, [self.scheduler])]:
            process.kill()
            process.wait()
        self.workers.clear()

    def _start(self, kind, *arguments):
        with (self.lab / "dask.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, arguments)]
                + ["--host", "127.0.0.1", "--no-dashboard"],
                stdout=log,
                stderr=log,
                cwd=self.lab,
            )


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def cluster(lab):
    cluster = LocalCluster(lab)
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def local(lab):
    """The content of the steady study, done on this machine."""
    status, err = blockmdp(lab, "run", "steady.toml", "--out", "local", "--jobs", 1)
    assert status == 0, err
    return content(lab / "local")


# --- runs -----------------------------------------------------------------------------------------
def test_a_cluster_gives_the_same_results_as_this_machine(lab, cluster, local, tmp_path):
    cluster.ready(2)
    run = ("run", "steady.toml", "--out", tmp_path, "--cluster", cluster.address)
    status, err = blockmdp(lab, *run)
    assert status == 0, err
    assert "2 Dask workers with 2 threads" in err
    assert content(tmp_path) == local


def test_a_dask_worker_that_is_killed_costs_no_run(lab, cluster, local, tmp_path):
    cluster.ready(2)
    run = ("run", "steady.toml", "--out", tmp_path, "--cluster", cluster.file)
    with Command(lab, *run) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        os.kill(cluster.processes()[0], signal.SIGKILL)  # a process that does a run
        command.until(lambda: finished(tmp_path) >= 8)
        orphans = children(cluster.workers[0].pid)
        cluster.workers[0].kill()  # the Dask worker itself
        assert command.wait() == 0, command.stderr
    assert content(tmp_path) == local
    wait_until(lambda: are_gone(orphans), 10)


def test_runs_that_kill_hang_or_eat_memory_fail_alone(lab, cluster, tmp_path):
    cluster.ready()
    run = ("run", "faulty.toml", "--out", tmp_path, "--cluster", cluster.address, *CAPS)
    status, err = blockmdp(lab, *run, "--only", "agent=Killer,Hanger,Glutton,Leaker nap=0")
    assert status == 1
    assert "3 runs failed" in err
    why = errors(tmp_path)
    assert why["Killer"].endswith("the worker process died 3 times: Killed (9)")
    assert why["Hanger"] == "took longer than the time-out of 5 s"
    assert "MemoryError" in why["Glutton"].splitlines()[-1]
    assert finished(tmp_path) == 1
    assert all(worker.poll() is None for worker in cluster.workers)


# --- the end of it --------------------------------------------------------------------------------
def test_an_interrupt_ends_a_study_soon_and_its_runs_too(lab, cluster, tmp_path):
    cluster.ready()
    run = ("run", "long.toml", "--out", tmp_path, "--cluster", cluster.address, "--quiet")
    with Command(lab, *run, warm=False) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        there, start, at_work = finished(tmp_path), time.monotonic(), cluster.processes()
        command.send(signal.SIGINT)
        assert command.wait(10) == 130
        print(f"ended {time.monotonic() - start:.2f} s after SIGINT")
        assert command.stderr.count("\n") == 1
        assert "what was finished is kept; the same command goes on from there" in command.stderr
    assert finished(tmp_path) >= there
    wait_until(lambda: are_gone(at_work), 20)  # or they would be busy for 600 s


def test_a_cluster_without_workers_is_told(lab, cluster, tmp_path):
    cluster.ready()
    run = ("run", "long.toml", "--out", tmp_path, "--cluster", cluster.address, "--quiet")
    with Command(lab, *run, env=LONELY) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        for worker in cluster.workers:
            worker.kill()
        assert command.wait(60) == 1
        assert command.stderr == (
            f"blockmdp: the Dask cluster at {cluster.address} has no workers; start some and run "
            "the same command again\n"
        )
    assert finished(tmp_path) >= 1


def test_a_scheduler_that_is_gone_is_told(lab, cluster, tmp_path):
    cluster.ready()
    run = ("run", "long.toml", "--out", tmp_path, "--cluster", cluster.address, "--quiet")
    with Command(lab, *run, env=LONELY) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        cluster.scheduler.kill()
        assert command.wait(60) == 1
        assert command.stderr == (
            f"blockmdp: the Dask scheduler at {cluster.address} is gone; start it and run "
            "the same command again\n"
        )
    assert finished(tmp_path) >= 1


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers at tcp://127.0.0.1:1: "),
        ("nowhere", "'nowhere' is no address of a scheduler, such as tcp://host:8786, and no "),
        ("nowhere.json", "scheduler file nowhere.json: No such file or directory"),
        ("broken.json", "broken.json is no scheduler file: it names no address"),
    ],
)
def test_a_scheduler_that_is_not_there_is_told(address, words, lab, tmp_path):
    (lab / "broken.json").write_text("{}")
    run = ("run", "steady.toml", "--out", tmp_path, "--cluster", address)
    status, err = blockmdp(lab, *run, env=LONELY)
    assert status == 1
    assert err.startswith(f"blockmdp: {words}")
    assert err.count("\n") == 1
