"""The protocol of decoders."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decoder"]


class Decoder(Protocol):
    """Protocol of decoders, which map an observation and its level to a label.

    Labels are 0, ..., n_labels - 1. Any object with `n_labels` and `decode` is a decoder.

    See Also
    --------
    FittedDecoder : A decoder that an oracle has learnt.
    TableDecoder : A decoder that labels each distinct observation.

    Examples
    --------
    >>> import numpy as np
    >>> class Largest:
    ...     n_labels = 3
    ...
    ...     def decode(self, levels, x):
    ...         return x[:, :3].argmax(axis=1).astype(np.int32)
    >>> Largest().decode(np.array([0, 5]), np.array([[0.1, 0.9, 0.0], [0.0, 0.2, 0.7]]))
    array([1, 2], dtype=int32)
    """

    @property
    def n_labels(self) -> int:
        """Number of labels, at the level with most; it may grow as observations are decoded."""

    def decode(self, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        levels : ndarray of shape (n,)
            Level of each observation; one call may have several.
        x : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
