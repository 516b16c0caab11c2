"""Studies on a real Dask cluster: the same results as on this machine, also after faults."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from faults import (
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
    wait_until,
)

from blockmdp.experiments import Study, driver

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc"),
    pytest.mark.skipif(find_spec("distributed") is None, reason="needs Dask: blockmdp[dask]"),
]
IMPATIENT = {"BLOCKMDP_CLUSTER_TIMEOUT": "3"}


class LocalCluster:
    """A scheduler and workers on this machine, each a process. `ready` replaces dead ones."""

    def __init__(self, lab):
        self.lab = lab
        self.file = lab / "scheduler.json"
        self.scheduler = None
        self.workers = []
        self._logs = 0

    def ready(self, n=1):
        """Make sure that the scheduler knows at least n workers."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.close()
            self._start_scheduler(port="0")
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        logs = []
        while len(self.workers) < n:
            options = ("--no-nanny", "--nthreads", "1", "--local-directory", self.lab / "dask")
            worker, log = self._start("worker", self.address, *options)
            self.workers.append(worker)
            logs.append(log)
        for log in logs:
            wait_until(lambda log=log: "Registered to:" in log.read_text())
        return self

    def restart(self):
        """Kill the scheduler, and start another at the same address, with a worker."""
        address = self.address
        self.scheduler.kill()
        self.scheduler.wait()
        self._start_scheduler(port=address.rpartition(":")[2])
        for worker in self.workers:  # they wait for the old one
            worker.kill()
            worker.wait()
        self.ready()
        assert self.address == address

    @property
    def address(self):
        return json.loads(self.file.read_text())["address"]

    def processes(self):
        """Return the worker processes that do runs."""
        return [pid for worker in self.workers for pid in children(worker.pid)]

    def close(self):
        for process in [*self.workers, *filter(None, [self.scheduler])]:
            process.kill()
            process.wait()
        self.workers.clear()

    def _start_scheduler(self, port):
        self.file.unlink(missing_ok=True)
        options = ("--port", port, "--scheduler-file", self.file)
        self.scheduler, _ = self._start("scheduler", *options)
        wait_until(lambda: self.file.exists() and self.file.stat().st_size)

    def _start(self, kind, *arguments):
        self._logs += 1
        log = self.lab / f"dask-{self._logs}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, arguments)]
                + ["--host", "127.0.0.1", "--no-dashboard"],
                stdout=file,
                stderr=file,
                cwd=self.lab,
            )
        return process, log


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "make_executor", InProcess)
        Study.load(lab / "steady.toml").run(lab / "local", quiet=True)
    return content(lab / "local")


# --- runs -----------------------------------------------------------------------------------------
def test_a_cluster_gives_the_same_results_as_this_machine(lab, cluster, local, tmp_path):
    cluster.ready(2)
    run = ("run", "steady.toml", "--out", tmp_path, "--cluster", cluster.address)
    status, err = blockmdp(lab, *run)
    assert status == 0, err
    assert "2 Dask workers with 2 threads" in err
    assert content(tmp_path) == local


def test_a_killed_dask_worker_loses_no_run(lab, cluster, local, tmp_path):
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
    wait_until(lambda: are_gone(orphans))


def test_runs_that_kill_hang_or_eat_memory_fail_alone(lab, cluster, tmp_path):
    cluster.ready()
    run = ("run", "faulty.toml", "--out", tmp_path, "--cluster", cluster.address, *LIMITS)
    status, err = blockmdp(lab, *run, "--only", "agent=Killer,Hanger,Glutton,Leaker nap=0")
    assert status == 1
    assert "3 runs failed" in err
    why = errors(tmp_path)
    assert why["Killer"].endswith("the worker process died 6 times: Killed (9)")
    assert why["Hanger"] == "exceeded the timeout of 5 s"
    assert "MemoryError" in why["Glutton"].splitlines()[-1]
    assert finished(tmp_path) == 1
    assert all(worker.poll() is None for worker in cluster.workers)


def test_two_studies_share_a_cluster(lab, cluster, local, tmp_path):
    cluster.ready(2)
    runs = [
        Command(lab, "run", "steady.toml", "--out", tmp_path / name, "--cluster", cluster.address)
        for name in ("one", "other")
    ]
    with runs[0] as one, runs[1] as other:
        assert one.wait() == 0, one.stderr
        assert other.wait() == 0, other.stderr
    assert content(tmp_path / "one") == content(tmp_path / "other") == local


def test_a_study_goes_on_when_its_scheduler_is_restarted(lab, cluster, local, tmp_path):
    cluster.ready()
    run = ("run", "steady.toml", "--out", tmp_path, "--cluster", cluster.address)
    with Command(lab, *run) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        cluster.restart()
        assert command.wait() == 0, command.stderr
    assert content(tmp_path) == local


def test_a_worker_without_the_users_module_is_reported(lab, cluster, tmp_path):
    cluster.ready()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "absent.py").write_text((lab / "faulty.py").read_text())
    study = (lab / "steady.toml").read_text().replace("faulty:", "absent:")
    (tmp_path / "absent.toml").write_text(study)
    run = ("run", tmp_path / "absent.toml", "--out", tmp_path / "out", "--quiet")
    env = {"PYTHONPATH": os.pathsep.join([str(elsewhere), os.environ.get("PYTHONPATH", "")])}
    on_cluster = ("--cluster", cluster.address)
    status, err = blockmdp(lab, *run, *on_cluster, warm=False, env=env)
    assert status == 1
    assert err == (
        "blockmdp: a Dask worker cannot import 'absent:Problem': ModuleNotFoundError: No module "
        "named 'absent'; put the module next to the study file on a disk that all machines share, "
        "or install it on each, and run the same command again\n"
    )
    assert errors(tmp_path / "out") == {}  # so that the same command does these runs again
    shutil.copy(elsewhere / "absent.py", tmp_path)
    status, err = blockmdp(lab, *run, *on_cluster, warm=False, env=env)
    assert (status, err) == (0, "")
    assert finished(tmp_path / "out") == STEADY_RUNS


# --- the end of a study ---------------------------------------------------------------------------
def test_an_interrupt_ends_a_study_and_its_runs(lab, cluster, tmp_path):
    cluster.ready()
    run = ("run", "long.toml", "--out", tmp_path, "--cluster", cluster.address, "--quiet")
    with Command(lab, *run) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        before, at_work = finished(tmp_path), cluster.processes()
        command.send(signal.SIGINT)
        assert command.wait() == 130
        assert command.stderr.count("\n") == 1
        assert "finished runs are kept; run the same command again to resume" in command.stderr
    assert finished(tmp_path) >= before
    wait_until(lambda: are_gone(at_work))  # otherwise they would be busy for hours


def test_a_cluster_without_workers_is_reported(lab, cluster, tmp_path):
    cluster.ready()
    run = ("run", "long.toml", "--out", tmp_path, "--cluster", cluster.address, "--quiet")
    with Command(lab, *run, env=IMPATIENT) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        for worker in cluster.workers:
            worker.kill()
        assert command.wait() == 1
        assert command.stderr == (
            f"blockmdp: the Dask cluster at {cluster.address} has no workers; start some and run "
            "the same command again\n"
        )
    assert finished(tmp_path) >= 1


def test_a_scheduler_that_is_gone_is_reported(lab, cluster, tmp_path):
    cluster.ready()
    run = ("run", "long.toml", "--out", tmp_path, "--cluster", cluster.address, "--quiet")
    with Command(lab, *run, env=IMPATIENT) as command:
        command.until(lambda: finished(tmp_path) >= 1)
        cluster.scheduler.kill()
        assert command.wait() == 1
        assert command.stderr == (
            f"blockmdp: the Dask scheduler at {cluster.address} is gone; start it and run "
            "the same command again\n"
        )
    assert finished(tmp_path) >= 1


def test_a_missing_scheduler_is_reported_in_one_line(lab, tmp_path):
    (lab / "broken.json").write_text("{}")
    for address, words in (
        ("tcp://127.0.0.1:1", "no Dask scheduler answers at tcp://127.0.0.1:1: "),
        ("nowhere", "'nowhere' is neither the address of a scheduler, such as tcp://host:8786, no"),
        ("nowhere.json", "scheduler file nowhere.json: No such file or directory"),
        ("broken.json", "broken.json is not a scheduler file: it has no address"),
    ):
        run = ("run", "steady.toml", "--out", tmp_path, "--cluster", address)
        status, err = blockmdp(lab, *run, env=IMPATIENT)
        assert status == 1
        assert err.startswith(f"blockmdp: {words}")
        assert err.count("\n") == 1
