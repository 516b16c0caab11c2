"""What several tests share: a learner that records what it sees, keys, and fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from blockmdp import Learner, rng, streams
from blockmdp.jit import is_compiled
from blockmdp.rng import integer

WINDOW, ENOUGH = 1000, 0.45


def solved_at(returns):
    """Return the episodes until the mean of the last 1000 returns exceeds 0.45; inf if never."""
    total = np.cumsum(np.append(0.0, returns))
    solved = np.flatnonzero(total[WINDOW:] - total[:-WINDOW] > ENOUGH * WINDOW)
    return WINDOW + solved[0] if len(solved) else np.inf


def key_that_draws(u, i):
    """Return the key whose i-th uniform number is u, by inverting SplitMix64."""

    def unshift(z, n):
        x = z
        for _ in range(64 // n):
            x = z ^ (x >> n)
        return x

    z = int(u * 2**53) << 11
    z = unshift(z, 31) * pow(0x94D049BB133111EB, -1, 2**64) % 2**64
    z = unshift(z, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64
    key = np.uint64((unshift(z, 30) - i * 0x9E3779B97F4A7C15) % 2**64)
    assert rng.uniform(key, i) == u
    return key


# --- a learner that records what it sees ----------------------------------------------------------
class Record(NamedTuple):
    action: Any  # (K, H), as are the next three
    label: Any
    next_label: Any
    reward: Any
    planned: Any  # (K,) number of calls of `plan` in each episode
    now: Any  # (1,) the present episode
    count: Any  # (H, S, A)


def _act(tables, k, h, s, key):
    return integer(key, k % 3 + h, tables.count.shape[2])


def _update(tables, h, s, a, r, s_next):
    k = tables.now[0]
    tables.action[k, h] = a
    tables.label[k, h] = s
    tables.next_label[k, h] = s_next
    tables.reward[k, h] = r
    tables.count[h, s, a] += 1


def _plan(tables, k, key):
    tables.planned[k] += 1
    tables.now[0] = k + 1


class PlainRecorder(Learner):
    """Acts at random and records every step, in plain Python."""

    def tables(self, H, S, A, episodes):
        blank = [np.full((episodes, H), -7) for _ in range(3)]
        zeros = np.zeros((episodes, H)), np.zeros(episodes, np.int64), np.zeros(1, np.int64)
        return Record(*blank, *zeros, np.zeros((H, S, A), np.int64))

    def policy(self, tables):
        return np.full(tables.count.shape, 1 / tables.count.shape[2])

    act = staticmethod(_act)
    update = staticmethod(_update)
    plan = staticmethod(_plan)


class Recorder(PlainRecorder):
    """The same, compiled."""

    act = staticmethod(njit(_act))
    update = staticmethod(njit(_update))
    plan = staticmethod(njit(_plan))


# --- random numbers -------------------------------------------------------------------------------
def numbers(keys, *, compiled):
    """Numbers of all functions of `blockmdp.rng`, by name."""
    assert is_compiled(rng.normal) == compiled
    few = keys[::50]
    scalars = {
        name: np.array([function(k, i) for k in few[:40] for i in (0, 1, 2**40)], dtype)
        for name, dtype, function in (
            ("draw", np.uint64, rng.draw),
            ("child", np.uint64, rng.child),
            ("step", np.uint64, rng.step),
            ("uniform", np.float64, rng.uniform),
            ("normal", np.float64, rng.normal),
            ("integer", np.int64, lambda k, i: rng.integer(k, i, 10)),
            ("gamma", np.float64, lambda k, i: rng.gamma(k, i, 0.3)),
        )
    }
    return scalars | {
        "children": rng.children(keys[0], 5, 3000),
        "roots": np.array([rng.root(s, t) for s in (0, 1, 2**64 - 1) for t in range(5)]),
        "noise": np.array([streams.noise(7, h, s) for h in range(5) for s in range(3)]),
        "uniforms": rng.uniforms(few, 40),
        "first normals": rng.normals(keys, 1),
        "normals": rng.normals(few, 100),
        "normals, float32": rng.normals(few, 10, np.float32),
        "truncated, wide": rng.truncated_normals(few, 20, 2.495),
        "truncated, narrow": rng.truncated_normals(few, 20, 0.499),
        "bits": rng.bits(few, 150),
        "bits, float64": rng.bits(few, 150, np.float64),
    }


# --- other processes ------------------------------------------------------------------------------
def python(code, *, cwd=Path(__file__).parent, env=()):
    """Return what a fresh Python prints, in this folder and with more environment variables.

    Coverage is not measured there: it would double the time of imports.
    """
    inherited = {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**inherited, **dict(env)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
