"""Entries of an agent's `history_`: what happened in a fit, in order."""

from __future__ import annotations

from dataclasses import dataclass

from blockmdp.policy import Policy

__all__ = ["Level", "Refit", "Snapshot"]


@dataclass(frozen=True)
class Snapshot:
    """The policy at one moment of a fit (`Tabular` with `record=True`).

    Parameters
    ----------
    k : int
        Learning episodes so far.
    trajectories : int
        Trajectories of all kinds so far.
    policy : Policy
        Policy that the learner has learnt by then.
    """

    k: int
    trajectories: int
    policy: Policy


@dataclass(frozen=True)
class Refit:
    """One training of the decoder (`URL`), or one episode that changed it (`OnlineURL`).

    Parameters
    ----------
    k : int
        Learning episode (from 0) before which it happened.
    trajectories : int
        Trajectories of all kinds so far.
    policy : Policy or None
        The new decoder with the learner's policy of that moment; None without `record=True`.
    notes : tuple of str
        What was unusual in the oracle's fit.
    confirmed : tuple of (int, int)
        Each (level, label) that the test data confirmed; online, each new label.
    agreement : float
        Agreement with the previous decoder on fresh data, up to a permutation of the labels; NaN
        for the first.
    relabelled : int
        Number of labels whose name changed, judged by most of their data; online, the number of
        earlier observations that got another label.
    """

    k: int
    trajectories: int
    policy: Policy | None
    notes: tuple[str, ...]
    confirmed: tuple[tuple[int, int], ...]
    agreement: float
    relabelled: int


@dataclass(frozen=True)
class Level:
    """What `PCID` found at one level.

    Parameters
    ----------
    level : int
        The level.
    trajectories : int
        Trajectories of all kinds so far.
    clusters : int
        Number of states found.
    sizes : tuple of int
        Observations in each.
    reach : tuple of float
        Probability with which the homing policy of each state reaches it, by the learnt model.
    cover : tuple of Policy or None
        Homing policies of the level before, which found these states; None without `record=True`.
    """

    level: int
    trajectories: int
    clusters: int
    sizes: tuple[int, ...]
    reach: tuple[float, ...]
    cover: tuple[Policy, ...] | None = None
