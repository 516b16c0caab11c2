"""What the tests of faults share: a user's module with faulty agents, studies of it, processes."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from blockmdp.experiments.runs import execute

PATIENCE = 300  # seconds after which a test fails that waits for something certain to happen

# A problem and agents that need neither scikit-learn nor compiled code: worker processes start
# quickly, and a run takes milliseconds even if nothing is compiled yet.
MODULE = '''
import contextlib, os, signal, time
from pathlib import Path

import numpy as np

MENDED = Path(__file__).with_name("mended")
HOARD = []


class Problem:
    def __init__(self, horizon: int):
        self.horizon = horizon

    def step(self, action):
        """Make it look like a Gymnasium environment."""


class Slow:
    """Random numbers, after a nap."""

    def __init__(self, nap: float = 0.0):
        self.nap = nap

    def fit(self, problem, episodes, seed):
        time.sleep(self.nap)
        self.returns_ = np.random.default_rng([seed, problem.horizon]).random(episodes)


class Faulty(Slow):
    """The same, but with a fault until it is mended."""

    def fit(self, problem, episodes, seed):
        if not MENDED.exists():
            self.fault()
        super().fit(problem, episodes, seed)

    def fault(self):
        pass


class Killer(Faulty):
    def fault(self):
        print("farewell", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


class Hanger(Faulty):
    def fault(self):
        time.sleep(10_000)


class Glutton(Faulty):
    def fault(self):
        for size in (2**23, 2**16, 2**9):  # eat up the crumbs, too
            with contextlib.suppress(MemoryError):
                while True:
                    HOARD.append(np.zeros(size))
        HOARD.append(np.zeros(2**23))


class Leaker(Faulty):
    def fault(self):
        HOARD.append(np.zeros(2**26))


class Thrower(Faulty):
    def fault(self):
        raise ValueError("bad luck")


class Nan(Faulty):
    def fit(self, problem, episodes, seed):
        super().fit(problem, episodes, seed)
        if not MENDED.exists():
            self.returns_[3] = np.nan
'''

FAULTY = ("Killer", "Hanger", "Glutton", "Thrower", "Nan")

STEADY_STUDY = """
seeds = {seeds}
episodes = 300
[problem]
name = "faulty:Problem"
horizon = [2, 3]
[[agent]]
name = "faulty:Slow"
nap = {nap}
"""
STEADY_RUNS = 20

# A Leaker keeps half of the memory that a process may use. It is sound, but two of them do not fit
# into one process.
FAULTY_STUDY = """
seeds = 1
episodes = 300
[problem]
name = "faulty:Problem"
horizon = 2
""" + "".join(
    f'[[agent]]\nname = "faulty:{name}"\nnap = {nap}\n'
    for name, nap in [*((name, 0.0) for name in FAULTY), ("Leaker", [0.0, 0.01])]
)
# Only the run itself counts for the timeout, which takes milliseconds unless it hangs.
LIMITS = ("--timeout", "5", "--memory", "1")


def make_lab(folder: Path) -> Path:
    """Write a user's module and study files."""
    (folder / "faulty.py").write_text(MODULE)
    (folder / "steady.toml").write_text(STEADY_STUDY.format(seeds=STEADY_RUNS // 2, nap=0.05))
    long = "[0.0, 0.001, 10_000.0]"  # a cluster may swap neighbours, so the first two are short
    (folder / "long.toml").write_text(STEADY_STUDY.format(seeds=2, nap=long))
    (folder / "faulty.toml").write_text(FAULTY_STUDY)
    return folder


# --- runs without worker processes ----------------------------------------------------------------
class InProcess:
    """An executor that does runs in this process, and counts them."""

    def __init__(self, *_):
        self.runs = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def state(self):
        return "this process"

    def map(self, runs, meanwhile):
        for run in runs:
            self.runs.append(run)
            yield run, execute(json.loads(run.setting.content), run.seed)


# --- the command in its own process ---------------------------------------------------------------
class Command:
    """`blockmdp ARGUMENTS` in a real process.

    A warm process is forked from one that has imported everything, which saves seconds.
    """

    def __init__(self, lab, *arguments, warm=True, max_file_size=None, env=()):
        self._err = Path(lab) / f"stderr-{os.urandom(8).hex()}"
        words, env = [str(word) for word in arguments], dict(env)
        if warm:
            self._process = _warm.Process(
                target=_command, args=(words, str(lab), str(self._err), max_file_size, env)
            )
            self._process.start()
        else:
            with self._err.open("wb") as err:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "blockmdp.cli", *words],
                    stdout=subprocess.DEVNULL,
                    stderr=err,
                    cwd=lab,
                    env={**os.environ, **env},
                )
        self.pid = self._process.pid

    def is_alive(self):
        return _state(self.pid) is not None

    def until(self, holds):
        """Wait for something while it runs."""
        wait_until(lambda: holds() or not self.is_alive())
        assert holds(), self.stderr

    def send(self, signum):
        os.kill(self.pid, signum)

    def wait(self):
        """Return its exit status, as a shell gives it."""
        if isinstance(self._process, subprocess.Popen):
            status = self._process.wait(PATIENCE)
        else:
            self._process.join(PATIENCE)
            status = self._process.exitcode
        assert status is not None, f"still running after {PATIENCE} s: {self.stderr}"
        return status if status >= 0 else 128 - status

    @property
    def stderr(self):
        return self._err.read_text() if self._err.exists() else ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.is_alive():
            self.send(signal.SIGKILL)
        self.wait()


_warm = multiprocessing.get_context("forkserver")
_warm.set_forkserver_preload(["blockmdp.cli", "blockmdp.experiments", "distributed"])


def _command(arguments, folder, err, max_file_size, env):
    os.chdir(folder)
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT), 2)
    if max_file_size is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_size, max_file_size))
    from blockmdp.cli import main

    sys.exit(main(arguments))


def blockmdp(lab, *arguments, **options):
    """Return the exit status of a command and what it prints on stderr."""
    with Command(lab, *arguments, **options) as command:
        return command.wait(), command.stderr


# --- processes ------------------------------------------------------------------------------------
def wait_until(holds):
    """Wait for something that must happen sooner or later."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"did not happen in {PATIENCE} s"
        time.sleep(0.02)


def children(pid):
    """Return the live processes that a process has started."""
    stats = (_stat(int(path.name)) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [int(stat[0]) for stat in stats if stat and int(stat[2]) == pid and stat[1] != "Z"]


def are_gone(pids):
    return all(_state(pid) is None for pid in pids)


def _state(pid):
    """Return the state of a process, None if it has ended."""
    stat = _stat(pid)
    return stat[1] if stat and stat[1] not in "ZX" else None


def _stat(pid):
    """Return pid, state and parent of a process."""
    try:
        before, _, after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return [before.split()[0], *after.split()[:2]]


# --- disks ----------------------------------------------------------------------------------------
def mount(folder, *options):
    done = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "tmpfs", folder], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")


def unmount(folder):
    subprocess.run(["umount", "-l", folder], check=True)


# --- stores ---------------------------------------------------------------------------------------
def select(out, query):
    with contextlib.closing(sqlite3.connect(f"file:{out}/runs.sqlite?mode=ro", uri=True)) as store:
        return store.execute(query).fetchall()


def finished(out):
    """Return the number of finished runs."""
    with contextlib.suppress(sqlite3.Error):
        return select(out, "SELECT count(*) FROM runs WHERE error IS NULL")[0][0]
    return 0


def errors(out):
    """Return why runs failed, by the name of the agent's class."""
    rows = select(
        out,
        "SELECT content, error FROM runs JOIN settings ON settings.key = runs.setting "
        "WHERE error IS NOT NULL",
    )
    return {json.loads(text)["agent"]["name"].partition(":")[2]: why for text, why in rows}


def content(out):
    """Return everything that does not depend on when and where a study was run."""
    columns = "key, setting, seed, error, average, final, solved_at, trajectories, ledger"
    return [
        select(out, f"SELECT {columns} FROM runs ORDER BY key"),
        select(out, "SELECT key, curve FROM curves ORDER BY key"),
        select(out, "SELECT key, content FROM settings ORDER BY key"),
        select(out, "SELECT name, document FROM studies ORDER BY name"),
    ]
