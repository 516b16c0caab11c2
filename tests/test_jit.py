"""numba's cache: used where it can be, done without where it cannot, never out of date."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from helpers import python

import blockmdp
from blockmdp import rng

SOURCE = Path(blockmdp.__file__).parent

# A small problem, made by hand so that little is compiled. Prints where the package was found,
# whether there is a cache, how many loops came from it and how many were compiled, and the sum of
# the learnt table: by the compiled loop and by the interpreted one.
FIT = """
import numpy as np
import blockmdp as bm
from blockmdp.learners.oracleq import loop
P = np.zeros((3, 2, 2, 2))
P[:, 0] = [[0.5, 0.5], [0, 1]]
P[:, 1] = [[0, 1], [1, 0]]
m = bm.BlockMDP([0.5, 0.5], P, [0.0, 0.4], 0.5, emission=bm.OneHotBernoulli(2, 1))
def total(engine):
    agent = bm.Tabular(bm.OracleQ(v_max=3.0)).fit(m, 200, seed=1, engine=engine)
    return repr(float(agent.tables_.q.sum()))
compiled = total("compiled")
hits, misses = (sum(c.values()) for c in (loop.stats.cache_hits, loop.stats.cache_misses))
print(bm.__file__, loop.stats.cache_path is not None, hits, misses, compiled, total("interpreted"))
"""


class Printed:
    def __init__(self, text):
        self.file, cached, hits, misses, self.compiled, self.interpreted = text.split()
        self.cached, self.hits, self.misses = cached == "True", int(hits), int(misses)


def fit(package, *, env=(), before=""):
    """Fit with a copy of the package, in a process of its own."""
    env = {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", **dict(env)}
    # not beside the tests, whose directory would come first on the path
    printed = Printed(python(before + FIT, cwd="/", env=env))
    assert Path(printed.file).parent == package
    return printed


def copy_package(to):
    return shutil.copytree(SOURCE, to / "blockmdp", ignore=shutil.ignore_patterns("__pycache__"))


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """A copy of the package, a cache directory that one process has filled, and what it printed."""
    package = copy_package(tmp_path_factory.mktemp("source"))
    env = {"NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    return package, env, fit(package, env=env)


def test_a_second_process_compiles_nothing(cached):
    package, env, first = cached
    assert (first.cached, first.hits, first.misses) == (True, 0, 1)
    second = fit(package, env=env)
    assert (second.cached, second.hits, second.misses) == (True, 1, 0)
    assert first.compiled == first.interpreted == second.compiled


def test_a_change_to_a_function_inlined_from_another_file_is_noticed(cached, tmp_path):
    package, env, before = cached
    shutil.copytree(env["NUMBA_CACHE_DIR"], tmp_path / "cache")
    base = package / "learners" / "base.py"
    text = base.read_text()
    best = "        v = max(v, q[h, s, b])\n"
    assert text.count(best) == 1
    base.write_text(text.replace(best, "        v = 0.125\n"))
    try:
        after = fit(package, env={"NUMBA_CACHE_DIR": str(tmp_path / "cache")})
    finally:
        base.write_text(text)
    assert (after.cached, after.hits, after.misses) == (True, 0, 1)
    assert after.compiled == after.interpreted != before.compiled


def test_where_no_cache_directory_can_be_made_loops_compile_without(tmp_path):
    package = copy_package(tmp_path)
    for folder in (package, *filter(Path.is_dir, package.rglob("*"))):
        (folder / "__pycache__").touch()  # a file is in the way, also for root
    (tmp_path / "file").touch()
    names = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    env = {name: str(tmp_path / "file" / name) for name in names}
    code = (
        "import blockmdp as bm\n"
        "key = bm.rng.root(0)\n"
        "print(bm.__file__, bm.rng._children.stats.cache_path, *bm.rng.children(key, 0, 2))"
    )
    file, cache, *numbers = python(code, cwd="/", env={**env, "PYTHONPATH": str(tmp_path)}).split()
    assert Path(file).parent == package
    assert cache == "None"
    assert list(map(int, numbers)) == rng.children(rng.root(0), 0, 2).tolist()


def test_in_a_read_only_home_all_works_without(cached, tmp_path):
    package, home = copy_package(tmp_path), tmp_path / "home"
    home.mkdir()
    paths = [home, package, *package.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        env = {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "NUMBA_CACHE_DIR": ""}
        printed = fit(package, env=env, before=LIKE_ANYONE + f"assert not writable({str(home)!r})")
    finally:
        for path in paths:
            path.chmod(0o755)
    assert not printed.cached
    assert printed.compiled == printed.interpreted == cached[2].compiled


# Root may write anywhere, by a capability that Linux lets it give up for the programs it starts.
LIKE_ANYONE = """
import ctypes, os, sys
def writable(path):
    return os.access(path, os.W_OK)
if os.geteuid() == 0 and "LIKE_ANYONE" not in os.environ:
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0) == 0
    os.environ["LIKE_ANYONE"] = "yes"
    os.execv(sys.executable, sys.orig_argv)
"""


USER = """
import numba, numpy as np
import blockmdp as bm
from blockmdp.rng import integer
class Uniform(bm.Learner):
    def tables(self, H, S, A, episodes):
        return (np.zeros((H, S, A)),)
    act = staticmethod(numba.njit(lambda tables, k, h, s, key: integer(key, 0, 2)))
    @staticmethod
    @numba.njit
    def update(tables, h, s, a, r, s_next):
        tables[0][h, s, a] += 1
m = bm.BlockMDP([1.0], np.ones((1, 1, 2, 1)), 1.0, emission=bm.OneHotBernoulli(1, 1))
print(bm.Tabular(Uniform()).fit(m, 20, engine="compiled").tables_[0].sum())
"""


def test_a_users_own_learner_leaves_nothing_more_in_the_cache_each_time(cached):
    package, env, _ = cached
    env = {**env, "PYTHONPATH": str(package.parent)}
    folder = Path(env["NUMBA_CACHE_DIR"])
    counts = []
    for _ in range(2):
        assert python(USER, cwd="/", env=env).split() == ["20.0"]
        counts.append(len(list(folder.rglob("*.nbc"))))
    assert counts[0] == counts[1]
