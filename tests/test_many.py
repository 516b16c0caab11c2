"""Fits of many agents at once give what each fit alone gives."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from faults import are_gone, wait_until
from helpers import python
from sklearn.mixture import GaussianMixture

import blockmdp as bm
from blockmdp import learners
from blockmdp.agents import processes
from blockmdp.checks import catching_warnings, warn
from blockmdp.oracles import DirichletMixture

LEARNERS = [cls() for name in learners.__all__
            if isinstance(cls := getattr(learners, name), type)
            and issubclass(cls, bm.Learner)
            and name not in ("Learner", "FixedPolicy")]  # fmt: skip


def assert_same(one, other):
    """Check that two agents learnt the same, bit for bit."""
    assert np.array_equal(one.returns_, other.returns_)
    assert np.array_equal(one.trajectories_, other.trajectories_)
    assert one.ledger_ == other.ledger_
    assert np.array_equal(one.policy_.pi, other.policy_.pi)
    for a, b in zip(getattr(one, "tables_", ()), getattr(other, "tables_", ())):
        assert np.array_equal(a, b, equal_nan=True)
    assert [s.k for s in one.snapshots_] == [s.k for s in other.snapshots_]
    for a, b in zip(one.snapshots_, other.snapshots_):
        assert a.trajectories == b.trajectories
        assert np.array_equal(a.policy.pi, b.policy.pi)


def check_many(agents, problems, episodes, seeds, engine):
    fits = bm.fit_many(agents, problems, episodes, seeds, engine=engine, record="few")
    for i, fit in enumerate(fits):
        agent = agents[i] if isinstance(agents, list) else agents
        alone = copy.copy(agent).fit(problems[i], episodes, seeds[i], record="few")
        assert_same(alone, fit)
        assert_same(alone.fit_more(5), fit.fit_more(5))


def lock(seed, kind=bm.lock_bernoulli, **options):
    return kind(horizon=3, seed=seed, **options)


@pytest.mark.parametrize(
    "agent",
    [
        bm.Tabular(bm.OracleQ(lr=0.3)),
        bm.Tabular(bm.PSRL(), on="observation"),
        bm.URL(bm.oracles.pca_kmeans(), bm.OracleQ(), batch=40),
        bm.OnlineURL(),
        bm.PCID(n=60),
    ],
    ids=lambda agent: type(agent).__name__,
)
def test_many_fits_give_what_each_fit_alone_gives(agent):
    check_many(agent, [lock(s) for s in range(3)], 20, [7, 8, 9], "compiled")


@pytest.fixture
def two_processes(monkeypatch):
    """Let `fit_many` use another process at once, on any machine with Linux."""
    if sys.platform != "linux":
        pytest.skip("processes are copied on Linux alone")
    monkeypatch.setattr(processes, "cores", lambda: 2)
    monkeypatch.setattr(processes, "PATIENCE", 0.0)


class Placed:
    """Notes where a fit ran. This process waits until another one has begun to fit."""

    home, begun = 0, Path()

    def _begin(self, simulator, episodes, record):
        self.pid_ = os.getpid()
        warn(f"seed {simulator.seed}")
        warnings.warn(f"plain {simulator.seed}", stacklevel=1)
        if self.pid_ != self.home:
            self.begun.touch()
        for _ in range(6000):  # a minute at most: without another process, the test must fail
            if self.begun.exists():
                break
            time.sleep(0.01)
        self.begun.touch()
        return super()._begin(simulator, episodes, record)


class PlacedOnlineURL(Placed, bm.OnlineURL): ...


class PlacedURL(Placed, bm.URL): ...


class PlacedPCID(Placed, bm.PCID): ...


@pytest.mark.parametrize("agent", [PlacedOnlineURL(), PlacedURL(batch=40), PlacedPCID(n=60)])
def test_processes_give_what_each_fit_alone_gives(agent, two_processes, tmp_path, monkeypatch):
    monkeypatch.setattr(Placed, "home", os.getpid())
    monkeypatch.setattr(Placed, "begun", tmp_path / "begun")
    problems = [lock(s) for s in range(4)]
    with warnings.catch_warnings(record=True, action="always") as caught:
        fits = bm.fit_many(agent, problems, 20, range(4), engine="compiled", record="few")
    told = [str(each.message) for each in caught]
    assert [each[-6:] for each in told if "fit_many" in each] == [f"seed {s}" for s in range(4)]
    assert sorted(each for each in told if "plain" in each) == [f"plain {s}" for s in range(4)]
    assert len({fit.pid_ for fit in fits}) == 2
    for seed, (problem, fit) in enumerate(zip(problems, fits)):
        assert fit.mdp_ is problem  # and not a copy
        assert type(fit) is type(agent)
        with warnings.catch_warnings(action="ignore"):
            alone = copy.copy(agent).fit(problem, 20, seed, record="few")
        assert_same(alone, fit)
        assert_same(alone.fit_more(5), fit.fit_more(5))
    monkeypatch.undo()
    assert not multiprocessing.active_children()


class AtHome(bm.OnlineURL):
    """Fails in other processes: it ends them, or raises an error."""

    home, error = 0, None

    def _begin(self, simulator, episodes, record):
        if os.getpid() != self.home:
            if self.error is not None:
                raise self.error
            os._exit(1)  # as if it was killed
        return super()._begin(simulator, episodes, record)


@pytest.mark.parametrize("error", [None, RuntimeError("elsewhere")])
def test_what_fails_in_another_process_is_done_here(error, two_processes, monkeypatch):
    monkeypatch.setattr(AtHome, "home", os.getpid())
    monkeypatch.setattr(AtHome, "error", error)
    problems = [lock(s) for s in range(4)]
    fits = bm.fit_many(AtHome(), problems, 20, range(4), engine="compiled")
    for seed, (fit, problem) in enumerate(zip(fits, problems)):
        assert_same(bm.OnlineURL().fit(problem, 20, seed), fit)


def test_fits_go_on_if_the_system_allows_no_more_processes(two_processes, monkeypatch):
    asked = []

    def refuse():
        asked.append(True)
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    problems = [lock(s) for s in range(3)]
    fits = bm.fit_many(bm.OnlineURL(), problems, 20, range(3), engine="compiled")
    assert asked == [True]
    for seed, (fit, problem) in enumerate(zip(fits, problems)):
        assert_same(bm.OnlineURL().fit(problem, 20, seed), fit)


class Changed(bm.OnlineURL):
    """Cannot be pickled after its fit."""

    def _begin(self, simulator, episodes, record):
        self.function_ = lambda: os.getpid()
        return super()._begin(simulator, episodes, record)


def test_what_cannot_be_sent_back_is_done_here(two_processes):
    problems = [lock(s) for s in range(4)]
    fits = bm.fit_many(Changed(), problems, 20, range(4), engine="compiled")
    for seed, (fit, problem) in enumerate(zip(fits, problems)):
        assert fit.function_() == os.getpid()
        assert_same(bm.OnlineURL().fit(problem, 20, seed), fit)


class Hanging(bm.OnlineURL):
    """Waits for a lock that another thread held when the process was copied."""

    home, begun, waited = 0, Path(), Path()

    def _begin(self, simulator, episodes, record):
        if os.getpid() != self.home:
            self.begun.touch()
            time.sleep(60)
            self.waited.touch()
        wait_until(self.begun.exists)
        return super()._begin(simulator, episodes, record)


def test_a_process_that_hangs_is_not_waited_for(two_processes, tmp_path, monkeypatch):
    monkeypatch.setattr(Hanging, "home", os.getpid())
    monkeypatch.setattr(Hanging, "begun", tmp_path / "begun")
    monkeypatch.setattr(Hanging, "waited", tmp_path / "waited")
    monkeypatch.setattr(processes, "SILENCE", 0.1)
    problems = [lock(s) for s in range(4)]
    fits = bm.fit_many(Hanging(), problems, 20, range(4), engine="compiled")
    for seed, (fit, problem) in enumerate(zip(fits, problems)):
        assert_same(bm.OnlineURL().fit(problem, 20, seed), fit)
    assert Hanging.begun.exists()
    assert not Hanging.waited.exists()
    wait_until(lambda: not multiprocessing.active_children())


def test_no_process_is_copied_while_another_thread_fits(two_processes, monkeypatch):
    begun, over = threading.Event(), threading.Event()

    class Slow(bm.OnlineURL):
        def _begin(self, simulator, episodes, record):
            begun.set()
            over.wait(60)
            return super()._begin(simulator, episodes, record)

    thread = threading.Thread(target=Slow().fit, args=(lock(0), 20))
    thread.start()
    try:
        assert begun.wait(60)
        monkeypatch.setattr(os, "fork", lambda: pytest.fail("a process was copied"))
        bm.fit_many(bm.OnlineURL(), lock(0), 20, range(3), engine="compiled")
    finally:
        over.set()
        thread.join()


class Old(PlacedOnlineURL):
    def _begin(self, simulator, episodes, record):
        warnings.warn(f"old {simulator.seed}", DeprecationWarning, stacklevel=1)
        return super()._begin(simulator, episodes, record)


def test_deprecations_in_processes_are_told(two_processes, tmp_path, monkeypatch):
    monkeypatch.setattr(Placed, "home", os.getpid())
    monkeypatch.setattr(Placed, "begun", tmp_path / "begun")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits = bm.fit_many(Old(), lock(0), 20, range(4), engine="compiled")
    assert len({fit.pid_ for fit in fits}) == 2
    told = {str(each.message) for each in caught}
    assert {f"old {seed}" for seed in range(4)} <= told


def test_results_are_kept_as_they_come(two_processes):
    kept = {}

    def call(i):
        if i > 0:
            return f"result {i}"
        wait_until(lambda: len(kept) == 3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        processes.call_each(call, range(4), [], [], kept.__setitem__)
    assert kept == {i: f"result {i}" for i in (1, 2, 3)}
    assert not processes._others_fit()  # no thread is left


def test_several_processes_that_die_or_hang_lose_nothing(monkeypatch, two_processes, tmp_path):
    monkeypatch.setattr(processes, "cores", lambda: 5)
    monkeypatch.setattr(processes, "SILENCE", 0.2)
    home = os.getpid()

    def call(i):
        if os.getpid() != home:
            (tmp_path / str(os.getpid())).touch()
            number = len(list(tmp_path.iterdir()))
            if number == 1:
                os._exit(1)
            if number == 2:
                time.sleep(60)
        else:
            wait_until(lambda: len(list(tmp_path.iterdir())) > 1)
        time.sleep(0.02)
        return i

    results = {}
    processes.call_each(call, range(40), range(3), [], results.__setitem__)
    assert results == {i: i for i in range(40)}
    wait_until(lambda: not multiprocessing.active_children())


def test_what_cannot_be_pickled_takes_turns(two_processes):
    calls = []

    class Local(DirichletMixture):
        def partial_fit(self, X, y=None):
            calls.append(os.getpid())
            return super().partial_fit(X, y)

    problems = [lock(s) for s in range(4)]
    fits = bm.fit_many(bm.OnlineURL(Local()), problems, 20, range(4), engine="compiled")
    n = len(calls)
    for seed, (fit, problem) in enumerate(zip(fits, problems)):
        assert_same(bm.OnlineURL(Local()).fit(problem, 20, seed), fit)
    assert len(calls) == 2 * n > 0  # those of another process would be missing


def test_each_fit_has_its_own_notes():
    oracles = [GaussianMixture(3, max_iter=1 if i % 2 else 200) for i in range(12)]
    agents = [bm.URL(oracle, batch=60) for oracle in oracles]
    fits = bm.fit_many(agents, lock(1), 50, range(12), engine="compiled")
    for i, (agent, fit) in enumerate(zip(agents, fits)):
        alone = copy.copy(agent).fit(lock(1), 50, i)
        assert [refit.notes for refit in fit.history_] == [each.notes for each in alone.history_]


@pytest.mark.parametrize("episodes", [-1, 2.5, "10", None])
def test_episodes_are_checked_once_for_all(episodes):
    with pytest.raises(ValueError, match="episodes must be an integer >= 0"):
        bm.fit_many(bm.Tabular(), lock(0), episodes, seeds=0)


def test_lists_are_aligned():
    agents = [bm.Tabular(bm.OracleQ(lr=lr)) for lr in (0.1, 0.5)]
    m = lock(0)
    fits = bm.fit_many(agents, m, 30, seeds=3, engine="compiled")
    assert [fit.learner.lr for fit in fits] == [0.1, 0.5]
    assert not hasattr(agents[0], "policy_")
    with pytest.raises(ValueError, match="agent has 2 entries, but another list has 3"):
        bm.fit_many(agents, m, 30, seeds=[0, 1, 2])
    with pytest.raises(ValueError, match="needs agents of blockmdp, and a BlockMDP"):
        bm.fit_many(agents, ["CartPole-v1"], 30, seeds=0)
    with pytest.raises(ValueError, match="needs agents of blockmdp, and a BlockMDP"):
        bm.fit_many(bm.URL, m, 30, seeds=0)
    with pytest.raises(ValueError, match="engine must be 'auto', 'compiled' or 'cuda'"):
        bm.fit_many(agents, m, 30, seeds=0, engine="gpu")


class Broken(bm.Tabular):
    """Fails at once."""

    def _begin(self, simulator, episodes, record):
        raise RuntimeError("boom")


def test_a_failed_fit_is_named_and_ends_the_others():
    agents = [bm.Tabular(), Broken(), *[bm.Tabular() for _ in range(20)]]
    with pytest.raises(RuntimeError, match="boom") as caught:
        bm.fit_many(agents, lock(0), 200, seeds=0, engine="compiled")
    assert caught.value.__notes__ == ["this happened in fit 1 of fit_many, counted from 0"]


class Worried(bm.Tabular):
    """Warns, and fails at once."""

    def _begin(self, simulator, episodes, record):
        warn(f"seed {simulator.seed} is worrying")
        if simulator.seed == 1:
            raise RuntimeError("boom")
        return super()._begin(simulator, episodes, record)


def test_warnings_are_told_even_if_a_fit_fails():
    with (
        pytest.warns(UserWarning, match="is worrying") as caught,
        pytest.raises(RuntimeError, match="boom"),
    ):
        bm.fit_many(Worried(), lock(0), 10, seeds=[1, 0], engine="compiled")
    told = [str(each.message) for each in caught]
    assert told[0] == "fit 0 of fit_many, counted from 0: seed 1 is worrying"


def test_a_warning_names_the_fit_and_points_at_the_users_line():
    agents = [bm.OnlineURL(learner=bm.UCBVI(v_max=v)) for v in (4.0, 1.0, 4.0, 1.0)]
    with pytest.warns(UserWarning, match="v_max") as caught:
        bm.fit_many(agents, bm.diabolical_lock(3), 5, seeds=0, engine="compiled")
    told = [str(each.message) for each in caught]
    assert [message.partition(": ")[0] for message in told] == [
        "fit 1 of fit_many, counted from 0",
        "fit 3 of fit_many, counted from 0",
    ]
    assert all("v_max=1, but" in message for message in told)
    assert {each.filename for each in caught} == {__file__}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no copies of processes")
def test_a_copy_of_a_process_catches_no_warnings_for_its_parent():
    shown = warnings.showwarning
    with catching_warnings():
        pid = os.fork()
        if pid == 0:
            os._exit(0 if warnings.showwarning is shown else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.integration
def test_ctrl_c_ends_the_fits_in_all_threads():
    code = """
import blockmdp as bm, os, signal, threading
m, agent = bm.lock_bernoulli(horizon=20), bm.Tabular(bm.OracleQ())
bm.fit_many(agent, m, 10, seeds=range(2), engine="compiled")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    bm.fit_many(agent, m, 10**8, seeds=range(6), engine="compiled")
except KeyboardInterrupt:
    print(threading.active_count())
"""
    assert python(code) == "1\n"


MANY_FITS = """
import blockmdp as bm, os, signal, threading, time
from blockmdp.agents import processes
from pathlib import Path
processes.cores = lambda: 2

class Placed(bm.OnlineURL):
    def _begin(self, simulator, episodes, record):
        Path(str(os.getpid())).touch()
        return super()._begin(simulator, episodes, record)

def when_there_are_two(do):
    def watch():
        while len(list(Path().iterdir())) < 2:
            time.sleep(0.05)
        do()
    threading.Thread(target=watch, daemon=True).start()

m = bm.lock_gaussian(horizon=10)
bm.fit_many(Placed(), m, 10, seeds=range(2), engine="compiled")
"""


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL"])
def test_the_processes_of_many_fits_end_with_their_parent(how, tmp_path):
    code = f"""{MANY_FITS}
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
processes.PATIENCE = 0.0
when_there_are_two(lambda: os.kill(os.getpid(), signal.{how}))
try:
    bm.fit_many(Placed(), m, 10**6, seeds=range(6), engine="compiled")
except KeyboardInterrupt:
    os._exit(130)
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert process.returncode == {"SIGINT": 130, "SIGKILL": -signal.SIGKILL}[how]
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    wait_until(lambda: are_gone(pids))


@pytest.mark.integration
def test_what_processes_print_is_not_lost(tmp_path):
    code = f"""{MANY_FITS}
processes.PATIENCE = 0.0
class Loud(Placed):
    def _begin(self, simulator, episodes, record):
        print("seed", simulator.seed)
        return super()._begin(simulator, episodes, record)
bm.fit_many(Loud(), m, 300, seeds=range(6), engine="compiled")
"""
    told = python(code, cwd=tmp_path, env={"PYTHONUNBUFFERED": ""}).splitlines()
    assert sorted(told) == [f"seed {seed}" for seed in range(6)]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.integration
def test_a_killed_process_loses_no_fit(tmp_path):
    code = f"""{MANY_FITS}
processes.PATIENCE = 0.0
def kill():
    for path in Path().iterdir():
        if int(path.name) != os.getpid():
            os.kill(int(path.name), signal.SIGKILL)
when_there_are_two(kill)
fits = bm.fit_many(Placed(), m, 1000, seeds=range(6), engine="compiled")
alone = [bm.OnlineURL().fit(m, 1000, seed) for seed in range(6)]
print([(a.returns_ == b.returns_).all().item() for a, b in zip(fits, alone)])
"""
    assert python(code, cwd=tmp_path) == f"{[True] * 6}\n"


def test_nothing_to_fit_is_an_empty_list_and_any_iterable_will_do():
    assert bm.fit_many(bm.Tabular(), [], 10, []) == []
    fits = bm.fit_many(bm.Tabular(), (lock(s) for s in range(2)), 10, np.arange(2))
    assert [fit.seed_ for fit in fits] == [0, 1]
