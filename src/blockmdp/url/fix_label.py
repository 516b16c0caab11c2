"""FixLabel (Feng et al. 2020, Algorithm 3), and the label standard data Z that it uses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.decoders import FittedDecoder
from blockmdp.trajectories import Observations

__all__ = ["LabelStandard", "fix_label"]


class LabelStandard:
    """The label standard data Z: for each confirmed label, observations that were given it.

    Parameters
    ----------
    pooled : bool
        Whether all levels share one decoder, and so one set of labels.
    min_count : float
        Test observations that confirm a label: 3 epsilon B log(1 / delta_1) in the paper.
    max_examples : int or None, default=None
        Observations kept for each label; None keeps all, as in the paper.
    """

    def __init__(self, *, pooled: bool, min_count: float, max_examples: int | None = None) -> None:
        self.pooled, self.min_count, self.max_examples = pooled, min_count, max_examples
        self.D: dict[tuple[int, int], NDArray[Any]] = {}  # (level, s) -> D_{h,s}

    def confirm(self, f: FittedDecoder, test: Observations) -> list[tuple[int, int]]:
        """Add the labels that the test data confirm (Algorithm 2, lines 9-12).

        Parameters
        ----------
        f : FittedDecoder
            Decoder whose labels are tested.
        test : Observations
            Test data D''.

        Returns
        -------
        list of (int, int)
            Each (level, label) added.
        """
        added = []
        levels = np.zeros_like(test.levels) if self.pooled else test.levels
        labels = f.decode(test.levels, test.x)
        for h in np.unique(levels):
            for s in np.unique(labels[levels == h]):
                D = test.x[(levels == h) & (labels == s)]  # D''_{h,s}
                if (h, s) not in self.D and len(D) >= self.min_count:
                    self.D[int(h), int(s)] = D[: self.max_examples]
                    added.append((int(h), int(s)))
        return added

    @property
    def n_labels(self) -> int:
        """Largest confirmed label plus one."""
        return max((s + 1 for _, s in self.D), default=1)


def fix_label(f: FittedDecoder, Z: LabelStandard) -> FittedDecoder:
    """Give the labels of a new decoder the names that Z has for them (Algorithm 3).

    Parameters
    ----------
    f : FittedDecoder
        The new decoder.
    Z : LabelStandard
        Examples of the confirmed labels.

    Returns
    -------
    FittedDecoder
        The same decoder with other names.
    """
    f = f.widened(Z.n_labels)
    for (h, s), D in Z.D.items():  # 2
        labels = f.decode(np.full(len(D), h), D)
        counts = np.bincount(labels, minlength=f.n_labels)
        s_new = int(counts.argmax())
        if counts[s_new] > 3 / 5 * len(D) and s_new != s:  # 3
            f = f.swap(f.group(h), s_new, s)  # 4
    return f
