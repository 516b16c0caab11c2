"""Fits of many agents at once give what each fit alone gives."""

from __future__ import annotations

import copy
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from faults import are_gone, wait_until
from helpers import python
from numba import cuda
from sklearn.mixture import GaussianMixture

import blockmdp as bm
from blockmdp import learners
from blockmdp.agents import processes
from blockmdp.checks import warn
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


def test_a_label_that_never_wins_does_not_decide_what_is_drawn():
    from blockmdp.simulators.cuda import _turns

    W, b = np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 3.0]]), np.array([0.5, -0.5])
    turn, rest = _turns(W, b, np.ones(3))
    assert turn.tolist() == [1, 0, 2]  # no difference is larger than that of coordinate 1
    assert rest == pytest.approx([1.0, 0.0, 0.0], abs=1e-12)
    more, never = np.concatenate([W, [[99.0, 0.0, -99.0]]]), np.append(b, -np.inf)
    for one, other in zip(_turns(more, never, np.ones(3)), (turn, rest)):
        assert np.array_equal(one, other)


def test_nothing_to_fit_is_an_empty_list_and_any_iterable_will_do():
    assert bm.fit_many(bm.Tabular(), [], 10, []) == []
    fits = bm.fit_many(bm.Tabular(), (lock(s) for s in range(2)), 10, np.arange(2))
    assert [fit.seed_ for fit in fits] == [0, 1]


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_one_clear_error():
    with pytest.raises(ValueError, match=r"engine='cuda' cannot be used: no NVIDIA GPU was found"):
        bm.fit_many(bm.Tabular(), lock(0), 10, seeds=0, engine="cuda")
    assert bm.fit_many(bm.Tabular(), lock(0), 10, seeds=0)[0].returns_.shape == (10,)


def check_cuda():
    """Compare the kernel with the CPU, on the simulator or on a GPU."""
    bits, normals = [lock(s) for s in range(3)], [lock(s, bm.lock_gaussian) for s in range(3)]
    own = bm.comblock(horizon=3)
    seeds = [7, 8, 9]
    check_many(bm.Tabular(bm.OracleQ(lr=0.3)), bits, 12, seeds, "cuda")
    check_many(bm.URL(bm.oracles.pca_kmeans(), bm.OracleQ(), batch=40), normals, 6, seeds, "cuda")
    check_many(bm.URL(bm.oracles.gmm(), bm.OracleQ(), batch=40), bits, 6, seeds, "cuda")
    check_many(bm.URL(learner=bm.OracleQ(), retrain_every=4, batch=40), bits, 8, seeds, "cuda")
    levels = bm.URL(bm.oracles.pca_kmeans(), bm.OracleQ(), batch=40, pool_levels=False)
    check_many(levels, [own] * 2, 6, [1, 2], "cuda")
    check_many(bm.PCID(n=40), bits, 6, seeds, "cuda")
    mixed = [bm.Tabular(bm.OracleQ(lr=0.3)), bm.Tabular(bm.PSRL()), bm.PCID(n=40)]
    check_many(mixed, bits, 6, seeds, "cuda")
    for agent, problem, words in (
        (bm.OnlineURL(), bits[0], "OnlineURL learns its decoder in each episode"),
        (bm.URL(evaluation=5), bits[0], "evaluation=5 draws trajectories after the last episode"),
        (bm.Tabular(on="observation"), bits[0], "linear or quadratic scores"),
        (bm.PCID(n=40), bm.exogenous_lock(horizon=3), "cannot draw the observations of"),
    ):
        with pytest.raises(ValueError, match=words):
            bm.fit_many(agent, problem, 5, seeds=0, engine="cuda")
        bm.fit_many(agent, problem, 5, seeds=0)


def test_the_kernel_gives_the_same_in_the_simulator():
    """In a process of its own: numba reads these variables when it is imported."""
    variables = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    python("import test_cuda; test_cuda.check_cuda()", env=variables)


@pytest.mark.cuda
def test_the_kernel_gives_the_same_on_a_gpu():
    check_cuda()


@pytest.mark.cuda
def test_100_random_fits_on_a_gpu():
    """Logarithms and powers are rounded differently there, so a few learners may choose otherwise
    after a while; the others must learn the same, bit for bit.
    """
    draw = random.Random(0)
    agents, problems, seeds = [], [], []
    for i in range(100):
        make = draw.choice([bm.lock_bernoulli, bm.random_block_mdp])
        agents.append(bm.Tabular(LEARNERS[i % len(LEARNERS)]))
        problems.append(make(horizon=4, seed=draw.randrange(10**6)))
        seeds.append(draw.randrange(10**6))
    fits = bm.fit_many(agents, problems, 1000, seeds, engine="cuda")
    same = {}
    for agent, problem, seed, fit in zip(agents, problems, seeds, fits):
        alone = copy.copy(agent).fit(problem, 1000, seed)
        equal = np.array_equal(alone.returns_, fit.returns_)
        same.setdefault(type(agent.learner).__name__, []).append(equal)
    print({name: f"{sum(each)} of {len(each)}" for name, each in same.items()}, file=sys.stderr)
    assert all(all(same[name]) for name in ("OracleQ", "QLearning", "UCBVI", "DelayedQ", "RMAX"))
    assert np.mean([np.mean(each) for each in same.values()]) > 0.9


STUDY = """
seeds = 3
episodes = 8
[[problem]]
name = "lock_bernoulli"
horizon = [2, 3]
[[agent]]
name = "Tabular"
[[agent]]
name = "URL"
batch = 30
learner = "OracleQ"
[[agent]]
name = "OnlineURL"
"""


def test_a_study_on_the_simulator_stores_the_same_runs(tmp_path):
    (tmp_path / "s.toml").write_text(STUDY)
    code = (
        "import sys; from blockmdp.cli import main;"
        "sys.exit(main(['run', 's.toml', '--quiet', '--out', sys.argv[0], *OPTIONS]))"
    )
    rows = []
    for name, options, variables in (
        ("cpu", [], {}),
        ("gpu", ["--device", "cuda"], {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}),
    ):
        python(code.replace("sys.argv[0]", repr(name)).replace("*OPTIONS", f"*{options}"),
               cwd=tmp_path, env=variables)  # fmt: skip
        frame = bm.Results(tmp_path / name).frame().sort_values("key", ignore_index=True)
        assert len(frame) == 18
        assert frame["error"].isna().all()
        rows.append(frame.drop(columns=["seconds", "environment.threads"]))
    pd.testing.assert_frame_equal(*rows)


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_a_study_without_a_gpu_is_one_clear_error(tmp_path):
    (tmp_path / "s.toml").write_text(STUDY)
    study = bm.Study.load(tmp_path / "s.toml")
    with pytest.raises(RuntimeError, match="--device cuda cannot be used: no NVIDIA GPU"):
        study.run(tmp_path / "out", device="cuda", quiet=True)
    with pytest.raises(ValueError, match="there is no --cluster, --timeout, --memory"):
        study.run(tmp_path / "out", device="cuda", timeout=3.0)
