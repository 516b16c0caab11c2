"""The compiled loop of OnlineURL: episodes in which nothing is found but known labels.

Most episodes are of this kind once the decoder is good. The mixtures count their rows, reconsider
their labels and keep them, and the learner learns from labels that do not change. An episode in
which more happens is left to `OnlineDecoder.learn`, from the row on that needs it. So this loop
changes no result, and the other engines, which do without it, are its twin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.dynamics import Dynamics
from blockmdp.jit import inlined, jit, template
from blockmdp.learners import PSRL, UCBVI, psrl, ucbvi
from blockmdp.learners.base import best_actions
from blockmdp.loop import replay
from blockmdp.oracles._bank import Bank, learn_rows, update_scores
from blockmdp.oracles._dirichlet import dot
from blockmdp.rng import child, step
from blockmdp.simulators.rollout import play
from blockmdp.tapes import Tape, episodes_on_tape

__all__ = ["LOOPS", "Bounds", "Past", "World"]


class World(NamedTuple):
    """The problem, and where episodes get their random numbers: episode k is number first + k."""

    dynamics: Dynamics
    tape: Tape  # of observations
    key: np.uint64
    policy_key: np.uint64  # of the choices of actions
    agent_key: np.uint64  # of the learner
    first: int


class Past(NamedTuple):
    """What is known of all episodes, see `OnlineDecoder`."""

    labels: NDArray[np.int64]  # (episodes, H + 1)
    actions: NDArray[np.int64]  # (episodes, H)
    rewards: NDArray[np.float64]  # (episodes, H)
    lengths: NDArray[np.int64]  # (episodes,)


class Bounds(NamedTuple):
    """Which observations the mixtures can learn without a change to how they see all of them."""

    rows: int  # most rows of a mixture
    whole: bool  # whether all numbers must be whole ...
    low: float  # ... and in a range
    high: float


@inlined
def is_plain(bank, bounds, g, n, x, row):
    """Whether mixture g can learn row number n: x (d,), or `row` (d,), which is x less the centre.

    A row that it cannot is its first, is too much for its arrays or its memory, or has numbers that
    are too large, or of another kind than those so far.
    """
    plain = bank.room[g] > 0 and n < bounds.rows and dot(row, row) < 1e36
    if bounds.whole or bank.bits[g]:
        for j in range(len(row)):
            v = x[j]
            if bounds.whole:
                plain = plain and bounds.low <= v <= bounds.high and v == np.floor(v)
            if bank.bits[g]:
                plain = plain and (v == 0.0 or v == 1.0)
    return plain


@template
def learn_online(
    update: Callable[..., None],
    plan: Callable[..., None],
    tables: Any,
    world: World,
    bank: Bank,
    bounds: Bounds,
    pooled: bool,
    past: Past,
    k: int,
    stop: int,
    x: NDArray[Any],
    moved: NDArray[np.int64],
) -> tuple[int, int, bool, int, bool]:
    """Run episodes k, ..., stop - 1, until the tape is used up or an episode needs attention.

    Parameters
    ----------
    update, plan : function
        Functions of the learner, which follows the best actions of its table `q`.
    tables : tuple
        Tables of the learner, changed in place.
    world : World
        The problem.
    bank : Bank
        The mixtures, changed in place. None of them hides labels.
    bounds : Bounds
        What they can learn.
    pooled : bool
        Whether there is one mixture for all levels.
    past : Past
        All episodes; filled from k on.
    k : int
        The first episode.
    stop : int
        The episode before which to stop.
    x : ndarray of shape (H + 1, d)
        Overwritten with the observations of the last episode.
    moved : ndarray of shape (DOUBTS,)
        Overwritten with the rows that should have a new label.

    Returns
    -------
    tuple
        The episode that is next, or needs attention; how many of its rows are learnt, -1 if it has
        not begun; and for the last of these rows what `learn_rows` says of it.
    """
    H, A = past.actions.shape[1], world.dynamics.model.shape[2]
    rows, shaped = np.empty(x.shape), np.empty(x.shape)
    levels = np.arange(H + 1)
    groups = np.zeros(H + 1, np.int64) if pooled else levels
    for _ in range(episodes_on_tape(world.tape, stop - k)):
        number = world.first + k
        n_labels = bank.scores.b.shape[1]
        pi = best_actions(tables.q)
        if n_labels > pi.shape[1]:
            known = pi
            pi = np.full((H, n_labels, A), 1 / A)
            pi[:, : known.shape[1]] = known
        past.lengths[k] = play(
            world.dynamics,
            world.tape,
            bank.scores,
            pi,
            np.uint64(child(world.key, number)),
            np.uint64(child(world.policy_key, number)),
            x,
            past.actions[k],
            past.rewards[k],
            rows,
            shaped,
        )
        m = past.lengths[k] + 1
        plain = True
        for h in range(m):
            g = groups[h]
            n = bank.n[g] + (h if pooled else 0)
            plain = plain and is_plain(bank, bounds, g, n, x[h], rows[h])
        if not plain:
            return k, 0, False, 0, False
        learnt, is_new, size, stopped = learn_rows(
            bank, groups[:m], rows[:m], shaped[:m], True, 0, moved
        )
        if stopped:
            return k, learnt, is_new, size, True
        if update_scores(bank, groups[:1] if pooled else levels[:m]).any():
            return k, m, False, 0, False
        for h in range(m):
            g = groups[h]
            past.labels[k, h] = bank.z[g, bank.n[g] - (m - h if pooled else 1)]
        episode = slice(k, k + 1)
        replay(
            update,
            tables,
            past.labels[episode],
            past.actions[episode],
            past.rewards[episode],
            past.lengths[episode],
        )
        plan(tables, k, np.uint64(step(np.uint64(child(world.agent_key, k)), H)))
        k += 1
    return k, -1, False, 0, False


@jit
def with_psrl(tables, world, bank, bounds, pooled, past, k, stop, x, moved):
    update, plan = psrl.update, psrl.plan
    return learn_online(update, plan, tables, world, bank, bounds, pooled, past, k, stop, x, moved)


@jit
def with_ucbvi(tables, world, bank, bounds, pooled, past, k, stop, x, moved):
    update, plan = ucbvi.update, ucbvi.plan
    return learn_online(update, plan, tables, world, bank, bounds, pooled, past, k, stop, x, moved)


LOOPS = {PSRL: with_psrl, UCBVI: with_ucbvi}  # learners that follow the best actions of a table q
