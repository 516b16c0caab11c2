"""What learners that estimate a model share: counts, expectations and planning.

The tables of such a learner begin with these fields:

- q: (H, S, A), and v: (H + 1, S), values at each level; v is 0 at level H;
- n: (L, S, A), visits; m: (L, S, A, S), transitions; r: (L, S, A), sums of rewards. L is H, or 1 if
  all levels share one model;
- order: (L + 1, S), 0 for the first state met at a level, ...; -1 if never met. It is (1, S) if all
  levels share one model;
- states: the same shape, the states in the order in which they were met; met: their number.

A transition that ended the episode is none of m. Where a formula contains the number of states, it
is the largest number met at a level, and sums go over states in the order in which they were met:
engines may number observations differently and in advance, but they agree on what was met.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit, template
from blockmdp.learners.base import at
from blockmdp.rng import child

__all__ = [
    "begins_epoch",
    "count",
    "count_in_epoch",
    "expectation",
    "largest_value",
    "mean_square",
    "mean_values",
    "meet",
    "n_states",
    "new_model",
    "optimise",
    "ranges",
    "state_key",
    "variance",
]


Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
NewModel = tuple[Floats, Floats, Ints, Ints, Floats, Ints, Ints, Ints]


def new_model(H: int, S: int, A: int, v_max: float, *, stationary: bool) -> NewModel:
    """Return the fields that all tables share, in their order, with all values at `v_max`."""
    L = 1 if stationary else H
    levels = 1 if stationary else H + 1
    v = np.full((H + 1, S), v_max)
    v[H] = 0.0
    return (
        np.full((H, S, A), v_max),
        v,
        np.zeros((L, S, A), np.int32),
        np.zeros((L, S, A, S), np.int32),
        np.zeros((L, S, A)),
        np.full((levels, S), -1, np.int32),
        np.zeros((levels, S), np.int32),
        np.zeros(levels, np.int32),
    )


def ranges(H: int, v_max: float | None) -> tuple[float, float]:
    """Return the largest return and the largest reward: H and 1, or both `v_max` if it is set."""
    return (float(H), 1.0) if v_max is None else (float(v_max), float(v_max))


def mean_values(H: int, n: NDArray[Any], m: NDArray[Any], r: NDArray[Any]) -> NDArray[np.float64]:
    """Return the values (H, S, A) of the actions that were tried, in the mean model.

    Those that were not are worth -inf, and states never met 0. The arrays are those of the tables.
    """
    q = np.full((H, *n.shape[1:]), -np.inf)
    fill_mean_values(n, m, r, q)
    return q


@jit
def fill_mean_values(n, m, r, q):
    """Write the values of the actions that were tried to q (H, S, A); see `mean_values`.

    The division comes last, so that actions that are worth the same tie exactly.
    """
    H, S, A = q.shape
    v, v_next = np.zeros(S), np.zeros(S)
    for step in range(H):
        h = H - 1 - step
        i = at(n, h)
        for s in range(S):
            v[s] = 0.0
            is_known = False
            for a in range(A):
                if n[i, s, a] > 0:
                    total = 0.0
                    for t in range(S):
                        if m[i, s, a, t] > 0:
                            total += m[i, s, a, t] * v_next[t]
                    q[h, s, a] = (r[i, s, a] + total) / n[i, s, a]
                    v[s] = max(v[s], q[h, s, a]) if is_known else q[h, s, a]
                    is_known = True
        v, v_next = v_next, v


@inlined
def largest_value(tables, h):
    """Return the largest possible return from level h on."""
    return min(tables.v_max, tables.r_max * (len(tables.q) - h))


@inlined
def meet(tables, h, s):
    """Take note of a state at a level."""
    i = at(tables.order, h)
    if tables.order[i, s] < 0:
        tables.order[i, s] = tables.met[i]
        tables.states[i, tables.met[i]] = s
        tables.met[i] += 1


@inlined
def count(tables, h, s, a, r, s_next):
    """Add a step to the data."""
    i = at(tables.n, h)
    meet(tables, h, s)
    tables.n[i, s, a] += 1
    tables.r[i, s, a] += r
    if s_next >= 0:
        meet(tables, h + 1, s_next)
        tables.m[i, s, a, s_next] += 1


@inlined
def count_in_epoch(tables, h, s, a, r, s_next):
    """Add a step to the data, and note in `due` (1,) if the visits of an action have doubled since
    the epoch began, when they were `before` (L, S, A).
    """
    i = at(tables.n, h)
    count(tables, h, s, a, r, s_next)
    tables.due[0] |= tables.n[i, s, a] >= 2 * tables.before[i, s, a]


@inlined
def begins_epoch(tables):
    """Begin a new epoch if the visits of some action have doubled; return whether they have."""
    if not tables.due[0]:
        return False
    tables.due[0] = False
    L, S, A = tables.n.shape
    for i in range(L):
        for s in range(S):
            for a in range(A):
                tables.before[i, s, a] = tables.n[i, s, a]
    return True


@inlined
def n_states(tables):
    """Return the largest number of states met at a level, at least 1."""
    most = 1
    for h in range(len(tables.met)):
        most = max(most, int(tables.met[h]))
    return most


@inlined
def state_key(tables, key, h, s):
    """Return the key of what is drawn for a state, by the order of first visits."""
    i = at(tables.order, h)
    return np.uint64(child(np.uint64(child(key, i)), tables.order[i, s]))


@inlined
def expectation(tables, h, s, a, v):
    """Return the mean of v (S,) over the next states seen; it is 0 where the episode ended."""
    i = at(tables.n, h)
    below = at(tables.order, h + 1)
    total = 0.0
    for j in range(tables.met[below]):
        t = tables.states[below, j]
        total += tables.m[i, s, a, t] * v[t]
    return total / tables.n[i, s, a]


@inlined
def mean_square(tables, h, s, a, v, w):
    """Return the mean of (v - w)^2 over the next states seen."""
    i = at(tables.n, h)
    below = at(tables.order, h + 1)
    total = 0.0
    for j in range(tables.met[below]):
        t = tables.states[below, j]
        total += tables.m[i, s, a, t] * (v[t] - w[t]) ** 2
    return total / tables.n[i, s, a]


@inlined
def variance(tables, h, s, a, v):
    """Return the variance of v over the next states seen; it is 0 where the episode ended."""
    i = at(tables.n, h)
    below = at(tables.order, h + 1)
    mean = expectation(tables, h, s, a, v)
    ended = tables.n[i, s, a]
    total = 0.0
    for j in range(tables.met[below]):
        t = tables.states[below, j]
        ended -= tables.m[i, s, a, t]
        total += tables.m[i, s, a, t] * (v[t] - mean) ** 2
    return (total + ended * mean * mean) / tables.n[i, s, a]


@template
def optimise(value, tables, key):
    """Compute the values of all actions, from the last level to the first.

    value: function of tables, h, s, a and a key that returns the value of an action given
    `tables.v` at the next level. States never met keep the value that they began with.
    """
    H, S, A = tables.q.shape
    for i in range(H):
        h = H - 1 - i
        for s in range(S):
            if tables.order[at(tables.order, h), s] < 0:
                continue
            own_key = state_key(tables, key, h, s)
            best = -math.inf
            for a in range(A):
                tables.q[h, s, a] = value(tables, h, s, a, np.uint64(child(own_key, a)))
                best = max(best, tables.q[h, s, a])
            tables.v[h, s] = best
