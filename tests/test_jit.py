"""The cache of compiled code: used if possible, not needed, and never out of date."""

from __future__ import annotations

import importlib.util
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import python

import blockmdp
from blockmdp import jit, rng
from blockmdp.emissions import branches
from blockmdp.jit import interpreted

SOURCE = Path(blockmdp.__file__).parent

# A small loop in emissions.py that inlines a function of rng.py. The code prints where the package
# was found, the cache directory, loops loaded and compiled, and the result of both versions.
BRANCHES = """
import numpy as np
import blockmdp
from blockmdp.emissions import branches
from blockmdp.jit import interpreted
keys = np.array([7], np.uint64)
compiled, plain = branches(keys, 3)[0], interpreted(branches)(keys, 3)[0]
s = branches.stats
print(blockmdp.__file__, s.cache_path, sum(s.cache_hits.values()), sum(s.cache_misses.values()))
print(compiled, plain)
"""

# The episode loop of a learner of the package, and of a learner that a user might write.
FIT = """
from typing import Any, NamedTuple
import numba, numpy as np
import blockmdp as bm
from blockmdp.learners.oracleq import loop
P = np.zeros((3, 2, 2, 2))
P[:, 0] = [[0.5, 0.5], [0, 1]]
P[:, 1] = [[0, 1], [1, 0]]
m = bm.BlockMDP([0.5, 0.5], P, [0.0, 0.4], 0.5, emission=bm.OneHotBernoulli(2, 1))
agent = bm.Tabular(bm.OracleQ(v_max=3.0)).fit(m, 200, seed=1)

class Tables(NamedTuple):
    q: Any

class Uniform(bm.Learner):
    def tables(self, H, S, A, episodes):
        return Tables(np.zeros((H, S, A)))

    act = staticmethod(numba.njit(lambda tables, k, h, s, key: bm.rng.integer(key, 0, 2)))

    @staticmethod
    @numba.njit
    def update(tables, h, s, a, r, s_next):
        tables.q[h, s, a] += 1

users = bm.Tabular(Uniform()).fit(m, 20, engine="compiled")
assert users.tables_.q.sum() == 60
s = loop.stats
print(bm.__file__, s.cache_path, sum(s.cache_hits.values()), sum(s.cache_misses.values()))
print(repr(float(agent.tables_.q.sum())), 0)
"""


class Printed:
    def __init__(self, text):
        self.file, self.cache, hits, misses, self.compiled, self.interpreted = text.split()
        self.hits, self.misses = int(hits), int(misses)


def run(code, package, **env):
    """Run code in a fresh process, with a copy of the package."""
    env = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", **env}
    # not in the folder of the tests, which would come first on the path
    printed = Printed(python(code, cwd="/", env=env))
    assert Path(printed.file).parent == package
    return printed


def copy_package(to):
    return shutil.copytree(SOURCE, to / "blockmdp", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return copy_package(tmp_path_factory.mktemp("source"))


EXPECTED = branches(np.array([7], np.uint64), 3)[0]


@pytest.mark.integration
def test_a_second_process_loads_the_loop_and_adds_nothing_to_the_cache(package, tmp_path):
    first, files = run(FIT, package, NUMBA_CACHE_DIR=str(tmp_path)), set(tmp_path.rglob("*.nb?"))
    assert (first.hits, first.misses) == (0, 1)
    second = run(FIT, package, NUMBA_CACHE_DIR=str(tmp_path))
    assert (second.hits, second.misses) == (1, 0)
    assert first.compiled == second.compiled
    assert set(tmp_path.rglob("*.nb?")) == files  # also none for the learner of the user


@pytest.mark.integration
def test_a_change_to_a_function_inlined_from_another_file_is_noticed(package, tmp_path):
    before = run(BRANCHES, package, NUMBA_CACHE_DIR=str(tmp_path))
    assert (before.hits, before.misses) == (0, 1)
    assert before.compiled == before.interpreted == str(EXPECTED)
    changed = package / "rng.py"
    text = changed.read_text()
    constant = "_BRANCH = np.uint64(0xD1B54A32D192ED03)"
    assert text.count(constant) == 1
    changed.write_text(text.replace(constant, "_BRANCH = np.uint64(1)"))
    try:
        after = run(BRANCHES, package, NUMBA_CACHE_DIR=str(tmp_path))
    finally:
        changed.write_text(text)
    assert (after.hits, after.misses) == (0, 1)
    assert after.compiled == after.interpreted != before.compiled


@pytest.mark.integration
def test_without_a_cache_directory_loops_compile_in_memory(tmp_path):
    package = copy_package(tmp_path)
    for folder in (package, *filter(Path.is_dir, package.rglob("*"))):
        (folder / "__pycache__").touch()  # a file that is in the way, also for root
    (tmp_path / "file").touch()
    names = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    printed = run(BRANCHES, package, **{name: str(tmp_path / "file" / name) for name in names})
    assert printed.cache == "None"
    assert printed.compiled == printed.interpreted == str(EXPECTED)


@pytest.mark.integration
def test_in_a_read_only_home_loops_compile_in_memory(tmp_path):
    package, home = copy_package(tmp_path), tmp_path / "home"
    home.mkdir()
    paths = [home, package, *package.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        env = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "NUMBA_CACHE_DIR": ""}
        code = WITHOUT_ROOT + f"assert not os.access({str(home)!r}, os.W_OK)\n" + BRANCHES
        printed = run(code, package, **env)
    finally:
        for path in paths:
            path.chmod(0o755)
    assert printed.cache == "None"
    assert printed.compiled == printed.interpreted == str(EXPECTED)


# Root may write anywhere. On Linux it can give up this right for the programs that it starts.
WITHOUT_ROOT = """
import ctypes, os, sys
if os.geteuid() == 0 and "WITHOUT_ROOT" not in os.environ:
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) == 0
    os.environ["WITHOUT_ROOT"] = "yes"
    os.execv(sys.executable, sys.orig_argv)
"""


# --- a cache index that cannot be used ------------------------------------------------------------
@pytest.fixture
def compile_double(tmp_path):
    """Import a module with one compiled function and call it; return (loaded, compiled)."""
    file = tmp_path / "doubling.py"
    file.write_text("from blockmdp.jit import jit\n@jit\ndef double(x):\n    return 2 * x\n")

    def load():
        spec = importlib.util.spec_from_file_location("doubling", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.double(21) == 42
        stats = module.double.stats
        return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())

    return load


def test_an_index_that_cannot_be_unpickled_is_replaced(compile_double, tmp_path):
    assert compile_double() == (0, 1)
    assert compile_double() == (1, 0)
    (index,) = tmp_path.rglob("*.nbi")
    with index.open("rb") as f:
        version = pickle.load(f)
    lost_class = b"cblockmdp.kernels.gone\nTables\n."  # as another version of the package writes it
    for junk in (lost_class, b"", b"no pickle"):
        index.write_bytes(pickle.dumps(version) + junk)
        assert compile_double() == (0, 1)
        assert compile_double() == (1, 0)


def test_an_index_of_another_version_of_the_package_is_replaced(compile_double, monkeypatch):
    assert compile_double() == (0, 1)
    monkeypatch.setattr(jit, "_STAMP", "another version")
    assert compile_double() == (0, 1)
    assert compile_double() == (1, 0)


def test_a_change_to_a_users_own_file_is_noticed(compile_double, tmp_path):
    assert compile_double() == (0, 1)
    file = tmp_path / "doubling.py"
    file.write_text(file.read_text().replace("2 * x", "x + x"))
    assert compile_double() == (0, 1)


# --- Ctrl-C ---------------------------------------------------------------------------------------
def test_ctrl_c_never_crashes_a_loop():
    code = """
import numpy as np
from numba.core import serialize

original, left = serialize._numba_unpickle, 0


def unpickle(*args):  # numba calls it for each array that a loop returns
    global left
    left -= 1
    if left == 0:
        raise KeyboardInterrupt
    return original(*args)


serialize._numba_unpickle = unpickle

import blockmdp as bm
from blockmdp import oracles, rng
from blockmdp.decoders import TableDecoder
from blockmdp.oracles._kmeans import kmeans
from blockmdp.oracles.mixtures import SphericalMixture

x = np.random.default_rng(0).normal(size=(12, 4))
levels, bits, keys = np.zeros(12, np.int64), x > 0, rng.children(rng.root(0), 0, 3)
env = bm.lock_bernoulli(horizon=2)
calls = {
    "random numbers": lambda: rng.truncated_normals(keys, 2, 1.0),
    "k-means": lambda: kmeans(x, 2, 1, 5, 0.0, keys[0]),
    "Gaussians": lambda: oracles.gmm(2, n_init=1).fit(x),
    "balls": lambda: SphericalMixture(2, n_init=1).fit(x),
    "bits": lambda: oracles.BernoulliMixture(2, n_init=1).fit(bits),
    "a Dirichlet process": lambda: oracles.DirichletMixture().fit(x),
    "bits of a Dirichlet process": lambda: oracles.DirichletMixture().fit(bits),
    "a network": lambda: oracles.AutoencoderSimHash(2, units=2, iterations=2).fit(x),
    "a table": lambda: TableDecoder(1).decode(levels, x),
    "URL": lambda: bm.URL(batch=4, iterations=1).fit(env, 8, seed=0),
    "PCID": lambda: bm.PCID("network", 4, min_cluster=1).fit(env, 40, seed=0),
}
for name, call in calls.items():
    left, interrupted, done = 0, 0, False
    call()
    while not done and interrupted < 100:
        left = interrupted + 1
        try:
            call()
            done = True
        except KeyboardInterrupt:
            interrupted += 1
    print(interrupted)
"""
    assert sum(int(each) for each in python(code).split()) > 100


# --- interpreted functions ------------------------------------------------------------------------
def test_a_loop_is_compiled_once_for_all_constants():
    @jit.jit
    def twice(x):
        return 2 * x

    @jit.jit
    def outer(n):
        return twice(0) + twice(1) + twice(n)

    assert outer(3) == 8
    assert len(twice.signatures) == 1


def test_keys_overflow_without_a_warning_in_interpreted_functions():
    keys = rng.children(rng.root(0), 0, 5)  # warnings are errors in all tests
    assert np.array_equal(interpreted(branches)(keys, 3), branches(keys, 3))
    for key in keys:
        assert interpreted(rng.child)(key, 3) == rng.child(key, 3) == rng.key(key, 3)
        assert interpreted(rng.step)(key, 3) == rng.step(key, 3)
        assert interpreted(rng.uniform)(key, 3) == rng.uniform(key, 3)
