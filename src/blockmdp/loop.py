"""The loop in which a learner meets a Block MDP.

Random numbers: the episode with number n has the environment key e = child(environment key, n) (see
`blockmdp.dynamics`). The learner's choices are drawn from `choice_key`.
"""

from __future__ import annotations

import numpy as np

from blockmdp.dynamics import first_state, next_state, sample_reward
from blockmdp.jit import index, inlined_for_users, template
from blockmdp.rng import child, key, step
from blockmdp.tapes import episodes_on_tape, read_label

__all__ = ["choice_key", "learn", "no_plan", "replay"]


def choice_key(agent_key: np.uint64, k: int, h: int) -> np.uint64:
    """Key of the learner's choices in step h of its k-th episode; with h = H, of its planning."""
    return np.uint64(step(key(agent_key, k), h))


@inlined_for_users
def no_plan(tables, k, key):
    """For learners that have nothing to do between episodes."""


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
            batch = episodes_on_tape(tape, batch)
            if batch <= 0:
                break
        for _ in range(batch):
            e = np.uint64(child(env_key, offset + k))
            c = np.uint64(child(agent_key, k))
            s = index(first_state(initial, e))
            o = s if latent else index(read_label(labels, shift, visits, 0, s))
            total = 0.0
            for level in range(H):
                h = index(level)
                a = index(act(tables, k, h, o, np.uint64(step(c, h))))
                if a >= A:
                    raise ValueError("act of the learner gave an action that does not exist")
                t = index(next_state(model, h, s, a, e))
                r = sample_reward(model, h, s, a, t, e)
                o_next = t if latent else index(read_label(labels, shift, visits, level + 1, t))
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
