"""Many trajectories of given policies at once, level by level.

The random numbers of each trajectory are those of `blockmdp.loop`.
"""

from __future__ import annotations

import numpy as np

from blockmdp.dynamics import first_state, next_state, sample_reward
from blockmdp.jit import jit
from blockmdp.rng import step, uniform

__all__ = ["advance", "choose", "choose_one", "start"]


@jit
def start(initial, e):
    """First states (n,) of the episodes with the keys e (n,)."""
    s = np.empty(len(e), np.int64)
    for i in range(len(e)):
        s[i] = first_state(initial, e[i])
    return s


@jit
def choose_one(pi, label, c, h):
    """An action from the probabilities pi[label] (A,), drawn for step h with the key c."""
    u = uniform(np.uint64(step(c, h)), 0)
    total = 0.0
    action = 0
    for a in range(pi.shape[1]):
        if pi[label, a] > 0.0 and u >= total:
            action = a
        total += pi[label, a]
    return action


@jit
def choose(pi, which, labels, c, h):
    """Actions (n,): trajectory i follows pi[which[i]] where it sees labels[i].

    pi: (P, L, A). which, labels, c (keys): (n,).
    """
    a = np.empty(len(labels), np.int64)
    for i in range(len(labels)):
        a[i] = choose_one(pi[which[i]], labels[i], c[i], h)
    return a


@jit
def advance(model, h, s, a, e):
    """Next states and rewards, (n,) each, of the states s and actions a in the episodes e."""
    t = np.empty(len(s), np.int64)
    r = np.empty(len(s))
    for i in range(len(s)):
        t[i] = next_state(model, h, s[i], a[i], e[i])
        r[i] = sample_reward(model, h, s[i], a[i], t[i], e[i])
    return t, r
