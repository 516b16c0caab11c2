"""What an agent keeps of its fit: policies at checkpoints, and the entries of `history_`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blockmdp.policy import Policy

__all__ = ["Level", "Refit", "Snapshot", "next_checkpoint"]

MANY, FEW = 6, 2  # binary digits of a checkpoint that are not 0 throughout


@dataclass(frozen=True)
class Snapshot:
    """The greedy policy at one moment of a fit, an entry of `snapshots_`.

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


def next_checkpoint(k: int, digits: int = MANY) -> int:
    """Return the next checkpoint after k learning episodes, at which `record=True` keeps a policy.

    Up to 64, every episode is a checkpoint; later they are 1.6 % to 3.1 % apart. They are the
    numbers with six binary digits, followed by zeros. So they do not depend on the agent or on the
    length of the fit. With two digits they are 1, 2, 3, 4, 6, 8, 12, 16 and so on.

    Parameters
    ----------
    k : int
        Learning episodes so far.
    digits : int, default=6
        Binary digits of a checkpoint before the zeros.

    Returns
    -------
    int
        Learning episodes at the next checkpoint.

    Examples
    --------
    >>> next_checkpoint(0), next_checkpoint(64), next_checkpoint(1000)
    (1, 66, 1008)
    """
    step = 1 << max(k.bit_length() - digits, 0)
    return (k // step + 1) * step


@dataclass(frozen=True)
class Refit:
    """One training of the decoder (`URL`), or an episode that changed it (`OnlineURL`).

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
