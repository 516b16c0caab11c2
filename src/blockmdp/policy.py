"""A policy: a decoder, and a table of what to do at each of its labels.

Agents hold one, simulators roll it out, files store it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blockmdp import saving
from blockmdp.checks import check_finite, check_integer
from blockmdp.decoders import Decoder

__all__ = ["Policy", "load", "own_table", "with_labels"]


@dataclass(frozen=True, eq=False)
class Policy:
    """Decode the observation, then look the action up in a table (pi o f in the paper).

    Parameters
    ----------
    pi : ndarray of shape (H, n_labels, A)
        Probability of each action, given the level and the label.
    decoder : Decoder or None, default=None
        Maps observations to labels. None if the labels are the latent states themselves.
    observation_shape : tuple of int or None, default=None
        Shape of one observation, checked by `act` and `decode`. None checks nothing.

    See Also
    --------
    blockmdp.load : Read a policy from a file.

    Examples
    --------
    >>> import blockmdp as bm
    >>> agent = bm.Tabular(bm.UCBVI()).fit(bm.lock_bernoulli(horizon=3), episodes=500)
    >>> agent.policy_
    <Policy: horizon 3, 3 labels, 4 actions, on latent states>
    """

    pi: NDArray[np.float64]
    decoder: Decoder | None = None
    observation_shape: tuple[int, ...] | None = None

    @property
    def horizon(self) -> int:
        """Number of actions in an episode, H."""
        return int(self.pi.shape[0])

    def decode(self, x: Any, level: int | ArrayLike) -> Any:
        """Label observations.

        Parameters
        ----------
        x : array-like
            One observation, or n of them stacked along the first axis. If the policy has no
            decoder, the latent states themselves.
        level : int or array-like of shape (n,)
            Level at which they were made, from 0 to H; of all of them, or of each.

        Returns
        -------
        int or ndarray of shape (n,)
            One label for one observation, n labels for n.
        """
        levels = self._level(level, self.horizon)
        x = np.asarray(x)
        check_finite(x)
        shape = () if self.decoder is None else self.observation_shape
        one = x.ndim == 0 if shape is None else x.shape == shape
        if not one and shape is not None and (x.ndim == 0 or x.shape[1:] != shape):
            raise ValueError(_shape_message(x.shape, shape))
        rows = x[None] if one else x
        if np.size(levels) not in (1, len(rows)):
            n = np.size(levels)
            raise ValueError(f"give one level for each of {len(rows)} observations, got {n}")
        labels: NDArray[Any]
        if self.decoder is None:
            labels = _latent_states(rows)
        else:
            labels = self.decoder.decode(np.full(len(rows), levels, np.int64), rows)
        return int(labels[0]) if one else labels

    def act(self, x: Any, level: int | ArrayLike) -> Any:
        """Choose an action: the most probable one, the first of several.

        A label that the table does not know gets action 0.

        Parameters
        ----------
        x : array-like
            One observation, or n of them; see `decode`.
        level : int or array-like of shape (n,)
            Level at which they were made, from 0 to H - 1; of all of them, or of each.

        Returns
        -------
        int or ndarray of shape (n,)
            One action for one observation, n actions for n.
        """
        levels = self._level(level, self.horizon - 1)
        actions = self.actions(np.asarray(self.decode(x, levels)), levels)
        return int(actions) if actions.ndim == 0 else actions

    def actions(self, labels: NDArray[Any], level: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """Look up the actions that `act` chooses for labels.

        Parameters
        ----------
        labels : ndarray of any shape
            Labels.
        level : int or ndarray of the same shape
            Level of the observations that have them.

        Returns
        -------
        ndarray of the same shape
            Actions.
        """
        last = self.pi.shape[1] - 1
        actions = self.pi[level, np.minimum(labels, last)].argmax(axis=-1)
        return np.asarray(np.where(labels <= last, actions, 0), np.int64)

    def save(self, path: str | Path) -> None:
        """Write the policy to a file, without pickle.

        Parameters
        ----------
        path : str or Path
            File to write; `blockmdp.load` reads it.
        """
        saving.write_policy(Path(path), self.pi, self.decoder, self.observation_shape)

    def __repr__(self) -> str:
        H, labels, A = self.pi.shape
        on = ", on latent states" if self.decoder is None else ""
        return f"<Policy: horizon {H}, {labels} labels, {A} actions{on}>"

    def _level(self, level: Any, last: int) -> Any:
        """Return levels, checked to be from 0 to `last`."""
        levels = np.asarray(level)
        if levels.ndim == 1 and levels.dtype.kind in "ui":
            for extreme in (levels.min(initial=0), levels.max(initial=0)):
                self._level(int(extreme), last)
            return levels
        level = check_integer("level", level)
        if level > last:
            end = " (level H is the end of an episode)" if level == self.horizon else ""
            raise ValueError(f"level must be from 0 to {last}, got {level}{end}")
        return level


def load(path: str | Path, trusted: Sequence[str] = ()) -> Policy:
    """Read a policy that an agent or `Policy.save` wrote.

    Loading runs no code from the file. Arrays are checked before they are used.

    Parameters
    ----------
    path : str or Path
        File to read.
    trusted : sequence of str, default=()
        Your own estimator classes, as "module.Class", that the decoder may contain. Those of
        scikit-learn and of this package are known.

    Returns
    -------
    Policy
        It can `act`, `decode` and `save`.

    Examples
    --------
    >>> import tempfile, blockmdp as bm
    >>> agent = bm.URL().fit(bm.lock_bernoulli(horizon=3), episodes=500)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     agent.save(f"{folder}/policy.npz")
    ...     policy = bm.load(f"{folder}/policy.npz")
    >>> policy
    <Policy: horizon 3, 3 labels, 4 actions>
    """
    return Policy(*saving.read_policy(Path(path), trusted))


def own_table(pi: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a copy of a table, in which levels that share their entries still do.

    Parameters
    ----------
    pi : ndarray of shape (H, n_labels, A)
        Table.

    Returns
    -------
    ndarray of shape (H, n_labels, A)
        The copy.
    """
    return np.broadcast_to(_rows(pi).copy(), pi.shape) if _shares(pi) else pi.copy()


def _shares(pi: NDArray[np.float64]) -> bool:
    """Whether all levels of a table share their entries."""
    return pi.strides[0] == 0 and len(pi) > 1


def _rows(pi: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the levels of a table that differ."""
    return pi[:1] if _shares(pi) else pi


def with_labels(pi: NDArray[np.float64], labels: int) -> NDArray[np.float64]:
    """Extend pi (L, A) to at least `labels` rows; the new rows are uniform."""
    new = labels - len(pi)
    return np.pad(pi, ((0, new), (0, 0)), constant_values=1 / pi.shape[1]) if new > 0 else pi


def _latent_states(x: NDArray[Any]) -> NDArray[np.int64]:
    if x.dtype.kind not in "ui" or (len(x) and x.min() < 0):
        raise ValueError(f"latent states must be integers >= 0, got {x!r}")
    return x.astype(np.int64)


def _shape_message(got: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if shape == ():
        return f"give one latent state, or an array (n,) of them; got shape {got}"
    many = str(("n", *shape)).replace("'", "")
    return f"one observation has shape {shape}, n of them {many}; got {got}"
