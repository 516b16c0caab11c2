"""The protocol of a decoder: what maps observations to the labels that a learner works on."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decoder"]


class Decoder(Protocol):
    """(level, observations) -> labels 0, ..., n_labels - 1."""

    @property
    def n_labels(self) -> int:
        """How many labels there are, at any level; may grow as observations are decoded."""

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """The labels (n,) of the observations x (n, ...), where x[i] was made at levels[i]."""
