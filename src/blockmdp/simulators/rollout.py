"""Compiled loops that draw many trajectories of fixed policies at once, level by level.

The random numbers of an episode are the same as in `blockmdp.loop`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.dynamics import (
    Dynamics,
    draw_successor,
    first_state,
    is_end,
    sample_reward,
    successor,
)
from blockmdp.jit import inlined, jit
from blockmdp.oracles.scores import BankScores, best_label, shape
from blockmdp.rng import step, uniform
from blockmdp.tapes import Tape

__all__ = ["advance", "choose", "choose_each", "choose_one", "play", "start"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.uint64]


@jit
def start(initial: Floats, e: Keys) -> Integers:
    """Draw the initial states (n,) of the episodes with the keys e (n,)."""
    s = np.empty(len(e), np.int64)
    for i in range(len(e)):
        s[i] = first_state(initial, e[i])
    return s


@inlined
def choose_one(pi: Floats, label: int, c: np.uint64, h: int) -> int:
    """Draw an action for step h from the probabilities pi[label].

    pi: (labels, A). c: key of the choices of the episode.
    """
    u = uniform(np.uint64(step(c, h)), 0)
    total = 0.0
    action = 0
    for a in range(pi.shape[1]):
        if pi[label, a] > 0.0 and u >= total:
            action = a
        total += pi[label, a]
    return action


@jit
def choose(pi: Floats, which: Integers, labels: Integers, c: Keys, h: int) -> Integers:
    """Draw an action (n,) for each trajectory; trajectory i follows the policy pi[which[i]].

    pi: (policies, labels, A). which, labels, c: (n,).
    """
    a = np.empty(len(labels), np.int64)
    for i in range(len(labels)):
        a[i] = choose_one(pi[which[i]], labels[i], c[i], h)
    return a


@jit
def choose_each(pi: Floats, levels: Integers, labels: Integers, c: Keys) -> Integers:
    """Draw an action (n,) for each label; they are at any levels. New labels get random actions.

    pi: (H, labels, A). levels, labels, c: (n,).
    """
    A = pi.shape[2]
    any_action = np.full((1, A), 1 / A)
    a = np.empty(len(labels), np.int64)
    for i in range(len(labels)):
        if labels[i] < pi.shape[1]:
            a[i] = choose_one(pi[levels[i]], labels[i], c[i], levels[i])
        else:
            a[i] = choose_one(any_action, 0, c[i], levels[i])
    return a


@jit
def advance(dynamics: Dynamics, h: int, s: Integers, a: Integers, e: Keys, r: Floats) -> Integers:
    """Return the next states (n,) of step h, and set the rewards r (n,). s, a, e: (n,)."""
    model = dynamics.model
    t = np.empty(len(s), np.int64)
    for n in range(len(s)):
        i = draw_successor(model, h, s[n], a[n], e[n])
        t[n] = successor(dynamics.states, h, s[n], a[n], i)
        r[n] = sample_reward(model, h, s[n], a[n], i, e[n])
    return t


@inlined
def play(
    dynamics: Dynamics,
    tape: Tape,
    scores: BankScores,
    pi: Floats,
    e: np.uint64,
    c: np.uint64,
    x: NDArray[Any],
    actions: Integers,
    rewards: Floats,
    rows: Floats,
    shaped: Floats,
) -> int:
    """Play one episode of a policy whose decoder consists of linear scores; return its length.

    tape: of observations. pi: (H, labels, A). e, c: keys of the episode and of its choices. x:
    (H + 1, d), actions: (H,) and rewards: (H,) are filled in place, and so are rows: (H + 1, d),
    which are x without the centre, and shaped: (H + 1, d), the same after `shape`.
    """
    H, d = len(rewards), x.shape[1]
    s = first_state(dynamics.initial, e)
    for h in range(H + 1):
        shown = tape.shift[h, s] + (tape.visits[h, s] & tape.mask)
        tape.visits[h, s] += 1
        for j in range(d):
            x[h, j] = tape.shown[shown, j]
        g = min(h, len(scores.b) - 1)
        for j in range(d):
            rows[h, j] = x[h, j] - scores.centre[g, j]
        shape(scores, g, rows[h], shaped[h])
        if is_end(dynamics.ends, s):
            return h
        if h < H:
            actions[h] = choose_one(pi[h], best_label(scores, g, shaped[h]), c, h)
            i = draw_successor(dynamics.model, h, s, actions[h], e)
            rewards[h] = sample_reward(dynamics.model, h, s, actions[h], i, e)
            s = successor(dynamics.states, h, s, actions[h], i)
    return H
