"""FixLabel (Feng et al. 2020, Algorithm 3), and the label standard data Z that it goes by."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.decoder import Decoder
from blockmdp.simulators import Observations

__all__ = ["LabelStandard", "fix_label"]


class LabelStandard:
    """Z: for each label confirmed so far, at each level, observations that were given it.

    Parameters
    ----------
    pooled : whether all levels share one decoder, and so one set of labels.
    min_count : how many test observations confirm a label: 3 epsilon B log(1 / delta_1).
    most : how many of them are kept at the most; None for all, as written.
    """

    def __init__(self, *, pooled: bool, min_count: float, most: int | None = None) -> None:
        self.pooled, self.min_count, self.most = pooled, min_count, most
        self.D: dict[tuple[int, int], NDArray[Any]] = {}  # (level, s) -> D_{h,s}

    def confirm(self, f: Decoder, test: Observations) -> list[tuple[int, int]]:
        """Lines 9-12 of Algorithm 2: add what the test data confirm; the (level, label) added."""
        added = []
        levels = np.zeros_like(test.levels) if self.pooled else test.levels
        labels = f.decode(test.levels, test.x)
        for h in np.unique(levels):
            for s in np.unique(labels[levels == h]):
                D = test.x[(levels == h) & (labels == s)]  # D''_{h,s}
                if (h, s) not in self.D and len(D) >= self.min_count:
                    self.D[int(h), int(s)] = D[: self.most]
                    added.append((int(h), int(s)))
        return added

    @property
    def n_labels(self) -> int:
        """One more than the largest confirmed label."""
        return max((s + 1 for _, s in self.D), default=1)


def fix_label(f: Decoder, Z: LabelStandard) -> Decoder:
    """Call again by their names the labels of a new decoder that Z knows (Algorithm 3)."""
    f = f.widened(Z.n_labels)
    for (h, s), D in Z.D.items():  # 2
        labels = f.decode(np.full(len(D), h), D)
        counts = np.bincount(labels, minlength=f.n_labels)
        s_new = int(counts.argmax())
        if counts[s_new] > 3 / 5 * len(D) and s_new != s:  # 3
            f = f.swap(f.group(h), s_new, s)  # 4
    return f
