"""Signs that the decoder of a finished fit is wrong, and what to try then.

They need only what the agents have: the history, the returns and the labels of their data. A sign
is no proof, and without a sign a decoder can still be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import warn
from blockmdp.history import Refit
from blockmdp.oracles.fitting import KEPT

__all__ = ["invented_labels", "label_counts", "unsettled", "warn_of_doubts"]

Counts = list[NDArray[np.int64]]
FEWEST = 100  # episodes; the decoder of a shorter fit is not judged
LOW = 0.95  # agreement of the last two decoders
FEW = 10  # observations for each label, on average
_EXPLORES = (
    "It still tests with random actions which parts of an observation they influence, and until "
    "then all observations have one label. Try more episodes.",
)


def warn_of_doubts(
    oracle: Any,
    history: Sequence[Refit],
    returns: NDArray[np.float64],
    doubts: Iterator[str],
    *,
    explores: bool = False,
) -> None:
    """Issue one warning with all doubts about what an oracle has learnt, if there are any.

    Parameters
    ----------
    oracle : estimator
        The oracle.
    history : sequence of Refit
        The agent's history, which has the failed fits.
    returns : ndarray of shape (episodes,)
        Returns of its episodes.
    doubts : iterator of str
        Further doubts, one sentence each.
    explores : bool, default=False
        Whether the oracle still asks for random actions, and has no labels so far.
    """
    judged = _EXPLORES if explores else doubts if len(returns) >= FEWEST else ()
    found = [*_failures(history), *judged]
    if found:
        name = " ".join(repr(oracle).split())
        warn(f"the decoder that {name} learnt may be wrong. {' '.join(found)}")


def label_counts(labels: NDArray[Any], groups: NDArray[Any]) -> Counts:
    """Count the observations of each label that occurs, in each group.

    Parameters
    ----------
    labels, groups : ndarray of shape (n,)
        Labels of observations, and to which group each belongs.

    Returns
    -------
    list of ndarray
        One array for each group.
    """
    return [np.unique(labels[groups == g], return_counts=True)[1] for g in np.unique(groups)]


def unsettled(
    history: Sequence[Refit], returns: NDArray[np.float64], counts: Counts
) -> Iterator[str]:
    """Doubt a decoder that depends on chance, or has a single label or too many (`URL`).

    Parameters
    ----------
    history : sequence of Refit
        The agent's history.
    returns : ndarray of shape (episodes,)
        Returns of its episodes.
    counts : list of ndarray
        `label_counts` of the training data.

    Yields
    ------
    str
        One sentence or two for each doubt.
    """
    n, rows = sum(map(len, counts)), sum(int(each.sum()) for each in counts)
    yield from _nothing_told_apart(counts, "a larger batch")
    if rows < FEW * n:
        yield (
            f"It has {n} labels for {rows} observations. Try a larger batch, or an oracle "
            "with fewer labels."
        )
    agreed = history[-1].agreement if history else 1.0
    if agreed < LOW and not _earned_more(returns):
        yield (
            f"Its last two versions agree on {agreed:.0%} of each label only, and the learner "
            "earned no more than at the start. Try a larger batch or another oracle."
        )


def invented_labels(
    history: Sequence[Refit], returns: NDArray[np.float64], counts: Counts
) -> Iterator[str]:
    """Doubt a decoder that finds ever more labels, most of them for few observations (`OnlineURL`).

    Parameters
    ----------
    history : sequence of Refit
        The agent's history.
    returns : ndarray of shape (episodes,)
        Returns of its episodes.
    counts : list of ndarray
        `label_counts` of all observations.

    Yields
    ------
    str
        One sentence or two for each doubt.
    """
    n, few = sum(map(len, counts)), sum(int((each < 3).sum()) for each in counts)
    yield from _nothing_told_apart(counts, "more episodes")
    late = sum(len(refit.confirmed) for refit in history if refit.k >= 0.75 * len(returns))
    if late > 1 and 3 * few > n and not _earned_more(returns):
        yield (
            f"It has {n} labels, of which {late} appeared in the last quarter of the episodes and "
            f"{few} have fewer than 3 observations, and the learner earned no more than at "
            "the start. Try another oracle or PCID."
        )


def _nothing_told_apart(counts: Counts, more: str) -> Iterator[str]:
    if len(counts) and all(len(each) == 1 for each in counts):
        yield f"It tells no observations apart. Try {more} or another oracle."


def _failures(history: Sequence[Refit]) -> Iterator[str]:
    failed = [(refit.k, note) for refit in history for note in refit.notes if KEPT in note]
    if failed:
        k, note = failed[0]
        fits = "1 fit" if len(failed) == 1 else f"{len(failed)} fits"
        yield (
            f"{fits} failed, so that an earlier decoder was kept, the first one before "
            f"episode {k}{note.partition(KEPT)[2]}. Try other parameters or another oracle."
        )


def _earned_more(returns: NDArray[np.float64]) -> bool:
    """Whether the last quarter of the returns is clearly better than the first tenth, or than the
    first few.
    """
    n, end = len(returns), returns[-max(len(returns) // 4, 1) :]
    for start in (returns[: max(n // 10, 1)], returns[: max(n // 100, 10)]):
        error = np.sqrt(start.var() / len(start) + end.var() / len(end))
        if end.mean() - start.mean() > 2 * error:
            return True
    return False
