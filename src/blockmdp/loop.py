"""The episode loop, in which a learner plays a Block MDP.

Episode n of the environment has the key `e = child(env_key, n)`; `blockmdp.dynamics` says what is
drawn with it. The learner draws its choices with `choice_key`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
from blockmdp.jit import index, inlined_for_users, template
from blockmdp.rng import child, key, step
from blockmdp.tapes import Tape, episodes_on_tape, read_label

__all__ = ["Episodes", "act_each", "choice_key", "learn", "learn_from", "no_plan", "replay"]


class Episodes(NamedTuple):
    """Where the episodes of a learner get their random numbers."""

    env_key: np.uint64  # of the environment
    agent_key: np.uint64  # of the learner's choices
    offset: int  # number of episodes of the environment before the learner's first


def choice_key(agent_key: np.uint64, k: int, h: int) -> np.uint64:
    """Return the key of a learner's choices in step h of its episode k; h = H is for planning.

    Parameters
    ----------
    agent_key : np.uint64
        Key of the learner, from `blockmdp.streams.agent`.
    k : int
        Episode, from 0.
    h : int
        Step, from 0 to H.

    Returns
    -------
    np.uint64
        The key that `Learner.act` and `Learner.plan` get.
    """
    return np.uint64(step(key(agent_key, k), h))


@inlined_for_users
def no_plan(tables: Any, k: int, key: np.uint64) -> None:
    """Run after each episode, or after several that began together; by default, do nothing.

    Parameters
    ----------
    tables : tuple
        Tables of the learner, to be changed in place.
    k : int
        Episode that has ended, from 0.
    key : np.uint64
        Key of the random numbers of this call.
    """


@template
def learn(
    act: Callable[..., int],
    update: Callable[..., None],
    plan: Callable[..., None],
    tables: Any,
    dynamics: Dynamics,
    tape: Tape,
    episodes: Episodes,
    k: int,
    returns: NDArray[np.float64],
) -> int:
    """Run learning episodes k, k + 1, ... until `returns` is full or the tape is used up.

    Parameters
    ----------
    act, update, plan : function
        Functions of the learner, see `blockmdp.Learner`.
    tables : tuple
        Tables of the learner, changed in place.
    dynamics : Dynamics
        Latent tables of the problem.
    tape : Tape
        Labels that the learner sees; its `visits` are changed in place.
    episodes : Episodes
        Keys of the random numbers.
    k : int
        First episode to run.
    returns : ndarray of shape (episodes,)
        Return of each episode, filled in place.

    Returns
    -------
    int
        The next episode to run.
    """
    return learn_from(
        read_label,
        episodes_on_tape,
        act,
        update,
        plan,
        tables,
        dynamics,
        tape,
        episodes,
        k,
        returns,
    )


@template
def learn_from(
    see: Callable[..., int],
    lasts: Callable[..., int],
    act: Callable[..., int],
    update: Callable[..., None],
    plan: Callable[..., None],
    tables: Any,
    dynamics: Dynamics,
    sight: Any,
    episodes: Episodes,
    k: int,
    returns: NDArray[np.float64],
) -> int:
    """Run learning episodes like `learn`, from any source of labels.

    Parameters
    ----------
    see : function
        `see(sight, h, s)` returns the label that the next visit to state s at level h shows.
    lasts : function
        `lasts(sight, n)` returns for how many of n episodes there are labels.
    act, update, plan : function
        Functions of the learner, see `blockmdp.Learner`.
    tables : tuple
        Tables of the learner, changed in place.
    dynamics : Dynamics
        Latent tables of the problem.
    sight : tuple
        First argument of `see` and `lasts`.
    episodes : Episodes
        Keys of the random numbers.
    k : int
        First episode to run.
    returns : ndarray of shape (episodes,)
        Return of each episode, filled in place.

    Returns
    -------
    int
        The next episode to run.
    """
    initial = dynamics.initial
    model = dynamics.model
    states = dynamics.states
    ends = dynamics.ends
    H = dynamics.horizon
    A = index(model.shape[2])
    while k < len(returns):
        batch = lasts(sight, len(returns) - k)
        if batch <= 0:
            break
        for _ in range(batch):
            e = np.uint64(child(episodes.env_key, episodes.offset + k))
            c = np.uint64(child(episodes.agent_key, k))
            s = index(first_state(initial, e))
            o = index(see(sight, 0, s))
            total = 0.0
            for level in range(H):
                h = index(level)
                a = index(act(tables, k, h, o, np.uint64(step(c, h))))
                if a >= A:
                    raise ValueError("act of the learner returned an action that does not exist")
                i = index(draw_successor(model, h, s, a, e))
                t = index(successor(states, h, s, a, i))
                r = sample_reward(model, h, s, a, i, e)
                o_next = index(see(sight, level + 1, t))
                total += r
                if is_end(ends, t) and level + 1 < H:
                    update(tables, h, o, a, r, np.int64(-1))
                    break
                update(tables, h, o, a, r, o_next)
                s = t
                o = o_next
            plan(tables, k, np.uint64(step(c, H)))
            returns[k] = total
            k += 1
    return k


@template
def act_each(
    act: Callable[..., int],
    tables: Any,
    k: NDArray[np.int64],
    levels: NDArray[np.int64],
    labels: NDArray[np.int64],
    keys: NDArray[np.uint64],
    n_actions: int,
) -> NDArray[np.int64]:
    """Let a learner choose the next actions of n episodes that run at the same time.

    Parameters
    ----------
    act : function
        Function of the learner, see `blockmdp.Learner`.
    tables : tuple
        Tables of the learner.
    k, levels, labels : ndarray of shape (n,)
        Episodes, their levels, and the labels that they show.
    keys : ndarray of shape (n,)
        Keys of the choices of each episode.
    n_actions : int
        Number of actions.

    Returns
    -------
    ndarray of shape (n,)
        Actions.
    """
    actions = np.empty(len(k), np.int64)
    for i in range(len(k)):
        h = int(levels[i])
        actions[i] = act(tables, int(k[i]), h, int(labels[i]), np.uint64(step(keys[i], h)))
        if not 0 <= actions[i] < n_actions:
            raise ValueError("act of the learner returned an action that does not exist")
    return actions


@template
def replay(
    update: Callable[..., None],
    tables: Any,
    labels: NDArray[np.int32],
    actions: NDArray[np.int64],
    rewards: NDArray[np.float64],
    lengths: NDArray[np.int64],
) -> None:
    """Update a learner with n past trajectories, in their order.

    Parameters
    ----------
    update : function
        Update of the learner, see `blockmdp.Learner`.
    tables : tuple
        Tables of the learner, changed in place.
    labels : ndarray of shape (n, H + 1)
        Labels that the decoder gives the observations now.
    actions : ndarray of shape (n, H)
        Actions.
    rewards : ndarray of shape (n, H)
        Rewards.
    lengths : ndarray of shape (n,)
        Number of steps. An episode with fewer than H steps ended early.
    """
    n, H = actions.shape
    for i in range(n):
        for h in range(lengths[i]):
            ended = h + 1 == lengths[i] and lengths[i] < H
            t = np.int64(-1) if ended else np.int64(labels[i, h + 1])
            update(tables, h, np.int64(labels[i, h]), actions[i, h], rewards[i, h], t)
