"""The loop in which a learner meets a Block MDP, and the scalar functions it is made of.

Randomness: with e = child(environment key, episode), the initial state is drawn from `uniform(e,
0)`, the next state of step h from `uniform(e, 2h + 1)` and its reward from `uniform(e, 2h + 2)`.
The learner's own choices in step h of its k-th episode are drawn from the key `step(child(agent
key, k), h)`, and those of its planning after it from `step(child(agent key, k), H)`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.kernels.jit import index, inlined, inlined_for_users, template
from blockmdp.rng import child, step, uniform

__all__ = ["Dynamics", "Tape", "first_state", "learn", "next_state", "no_plan", "pay", "replay"]


class Dynamics(NamedTuple):
    """The latent tables of a Block MDP in the form the loops read.

    `model[h, s, a, t]` holds the cumulative probability, the reward and the reward's probability of
    the next state t, side by side, so that a step computes one address and touches one cache line.
    Cumulative probabilities end in 2, more than any uniform number.
    """

    initial: NDArray[np.float64]  # (S,) cumulative
    model: NDArray[np.float64]  # (H, S, A, S, 3)


class Tape(NamedTuple):
    """What the agent will see: the n-th visit to (level, latent state) shows `labels[shift[level,
    latent] + n]`.

    Given the latent state observations are independent, so they can be drawn, and decoded, before
    they are needed, many at a time. With no labels at all the latent state itself is shown.
    """

    labels: NDArray[np.int32]
    shift: NDArray[np.int64]  # (H + 1, S)
    limit: NDArray[np.int64]  # (H + 1, S): visits that the tape holds labels for
    visits: NDArray[np.int64]  # (H + 1, S): visits so far


@inlined
def first_state(initial, e):
    """The initial latent state of the episode with key e."""
    u = uniform(e, 0)
    s = 0
    for i in range(len(initial) - 1):
        s += u >= initial[i]
    return s


@inlined
def next_state(model, h, s, a, e):
    """The latent state after action a; counting keeps the pipeline full, searching would not."""
    u = uniform(e, 2 * h + 1)
    t = 0
    for i in range(model.shape[3] - 1):
        t += u >= model[h, s, a, i, 0]
    return t


@inlined
def pay(model, h, s, a, t, e):
    """The reward of a transition: its value with its probability, else nothing."""
    r = model[h, s, a, t, 1]
    if r != 0.0 and uniform(e, 2 * h + 2) >= model[h, s, a, t, 2]:
        r = 0.0
    return r


@inlined_for_users
def no_plan(tables, k, key):
    """For learners that have nothing to do between episodes."""


@inlined
def _see(labels, shift, visits, h, s):
    n = visits[h, s]
    visits[h, s] = n + 1
    return np.int64(labels[shift[h, s] + n])


@inlined
def _episodes_on_tape(tape, most):
    """How many episodes the tape is sure to last, each of which visits a (level, latent state) at
    most once.
    """
    n = most
    for h in range(tape.visits.shape[0]):
        for s in range(tape.visits.shape[1]):
            n = min(n, tape.limit[h, s] - tape.visits[h, s])
    return n


@template
def learn(act, update, plan, tables, dynamics, tape, env_key, agent_key, offset, k, returns):
    """Run learning episodes k, k + 1, ... until `returns` is full or the tape runs dry; the next k
    is returned.

    Parameters
    ----------
    act, update, plan : the learner's functions (see `blockmdp.learners.Learner`).
    tables : the learner's tables, changed in place.
    dynamics : Dynamics
    tape : Tape, its `visits` changed in place.
    env_key, agent_key : np.uint64
    offset : episodes that the environment had given before the learner's first.
    k : the first episode to run.
    returns : (episodes,), filled in place.
    """
    initial = dynamics.initial
    model = dynamics.model
    labels = tape.labels
    shift = tape.shift
    visits = tape.visits
    H = len(model)
    A = index(model.shape[2])
    latent = len(labels) == 0
    while k < len(returns):
        batch = len(returns) - k
        if not latent:
            batch = _episodes_on_tape(tape, batch)
            if batch <= 0:
                break
        for _ in range(batch):
            e = np.uint64(child(env_key, offset + k))
            c = np.uint64(child(agent_key, k))
            s = index(first_state(initial, e))
            o = s if latent else index(_see(labels, shift, visits, 0, s))
            total = 0.0
            for level in range(H):
                h = index(level)
                a = index(act(tables, k, h, o, np.uint64(step(c, h))))
                if a >= A:
                    raise ValueError("act of the learner gave an action that does not exist")
                t = index(next_state(model, h, s, a, e))
                r = pay(model, h, s, a, t, e)
                o_next = t if latent else index(_see(labels, shift, visits, level + 1, t))
                update(tables, h, o, a, r, o_next)
                total += r
                s = t
                o = o_next
            plan(tables, k, np.uint64(step(c, H)))
            returns[k] = total
            k += 1
    return k


@template
def replay(update, tables, labels, actions, rewards, lengths):
    """Let a learner learn from n trajectories, in their order, under the labels (n, H + 1).

    An episode that took fewer than H steps (`lengths`) ended early.
    """
    n, H = actions.shape
    for i in range(n):
        for h in range(lengths[i]):
            ended = h + 1 == lengths[i] and lengths[i] < H
            t = np.int64(-1) if ended else np.int64(labels[i, h + 1])
            update(tables, h, np.int64(labels[i, h]), actions[i, h], rewards[i, h], t)
