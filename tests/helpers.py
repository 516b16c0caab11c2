"""What several tests share: a learner that only writes down, and ways to run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from blockmdp import Learner
from blockmdp.rng import integer

WINDOW, ENOUGH = 1000, 0.45


def solved_at(returns):
    """Episodes until the mean return of the last 1000 exceeds 0.45; infinitely many if never."""
    total = np.cumsum(np.append(0.0, returns))
    solved = np.flatnonzero(total[WINDOW:] - total[:-WINDOW] > ENOUGH * WINDOW)
    return WINDOW + solved[0] if len(solved) else np.inf


# --- a learner that writes down what it is shown --------------------------------------------------
class Record(NamedTuple):
    action: Any  # (K, H), as are the next three
    label: Any
    next_label: Any
    reward: Any
    planned: Any  # (K,) how often `plan` was called for an episode
    now: Any  # (1,) the episode that `update` is in
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
    """Acts at random and writes down every step, in plain Python."""

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


# --- other processes ------------------------------------------------------------------------------
def python(code, *, cwd=Path(__file__).parent, env=()):
    """What a fresh Python prints, beside this file and with more environment variables."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **dict(env)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
