"""An oracle for pictures that a program draws: colours that recur, before a background."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.checks import check_integer
from blockmdp.jit import jit

__all__ = ["ScreenOracle"]

Codes = NDArray[np.int32]

GROWTH = 1.25  # of the data, after which colours and labels are learnt again
FITS = 15  # steps of the fit of a tint
MOST = 50  # pictures from which the size of pixel noise is learnt
FINEST = 6.0  # smallest difference of colours that counts, of 255
SPREAD = 6.0  # the same in units of the typical difference between two pictures
FEWEST, SHARE = 3, 0.02  # a colour recurs if it is in 3 pictures and 2 % of those since the first


class ScreenOracle(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Recognises pictures that a program draws, behind tints, distractors and pixel noise.

    It learns online, in four steps. The colours of each picture are fitted to those of the first
    one, channel by channel, which removes tints. Colours that recur make up a palette; any other
    colour is taken for noise, and replaced by the most common colour of the pixel, the background.
    Then pictures of the same state are equal, up to a few pixels.

    Parameters
    ----------
    channels : int, default=3
        Numbers of each pixel. Those of a pixel are neighbours in a flattened picture.
    tolerated : int, default=1
        Largest number of pixels in which pictures with the same label differ.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Labels of all pictures so far.
    n_labels_ : int
        Number of labels.
    palette_ : ndarray of shape (m, channels)
        The colours that recur.
    n_features_in_ : int
        Number of numbers of a picture.

    See Also
    --------
    blockmdp.oracles.images : Oracles for images.
    DirichletMixture : For noise that is not in single pixels.

    Notes
    -----
    A colour recurs if it is in at least three pictures, and in 2 % of the pictures since it was
    first seen. So a distractor whose colour is always the same is not recognised as noise.

    Examples
    --------
    >>> pictures = np.zeros((2, 8, 8, 3))
    >>> pictures[0, 2, 2:4] = pictures[1, 5, 5:7] = (250, 0, 0)  # a red bar at two places
    >>> pictures[:, :, :4] += 90.0  # on a wall, or on black floor
    >>> states = np.arange(20) % 2
    >>> brightness = np.linspace(0.5, 1.0, 20)[:, None, None, None]
    >>> X = (pictures[states] * brightness).reshape(20, -1)
    >>> oracle = ScreenOracle().fit(X)
    >>> oracle.n_labels_, bool((oracle.labels_ == states).all())
    (2, True)
    """

    def __init__(self, channels: int = 3, tolerated: int = 1) -> None:
        self.channels = channels
        self.tolerated = tolerated

    def fit(self, X: Any, y: None = None) -> ScreenOracle:
        """Learn from pictures, and forget what was learnt before.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Flattened pictures.
        y : None
            Ignored.

        Returns
        -------
        ScreenOracle
            The estimator itself.
        """
        X = self._checked(X, reset=True)
        self._first = X[0]
        self._tolerance = _tolerance(fit_colours(X[:MOST], X[0], self.channels))
        self._palette = Palette.new(self.channels)
        self._codes = np.zeros((0, X.shape[1] // self.channels), np.int32)
        self.labels_ = self._changed = np.zeros(0, np.int64)
        self._add(X)
        self._relearn()
        return self

    def partial_fit(self, X: Any, y: None = None) -> ScreenOracle:
        """Learn from more pictures.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Flattened pictures.
        y : None
            Ignored.

        Returns
        -------
        ScreenOracle
            The estimator itself.
        """
        if not hasattr(self, "labels_"):
            return self.fit(X)
        X = self._checked(X, reset=False)
        before = self.labels_
        self._add(X)
        if len(self._codes) >= self._due:
            self._relearn()
        else:
            new = [self._learn(row) for row in self._cleaned(self._codes[len(before) :])]
            self.labels_ = np.concatenate([before, new])
        self._changed = np.flatnonzero(self.labels_[: len(before)] != before)
        return self

    def changed_labels(self) -> NDArray[np.int64]:
        """Return which earlier pictures the last `partial_fit` relabelled.

        Returns
        -------
        ndarray of shape (m,)
            Their indices in `labels_`.
        """
        return self._changed

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Label pictures without learning from them.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Flattened pictures.

        Returns
        -------
        ndarray of shape (n,)
            Label of the picture that differs in the fewest pixels.
        """
        check_is_fitted(self, "n_labels_")
        X = fit_colours(self._checked(X, reset=False), self._first, self.channels)
        rows = self._cleaned(read_codes(X, self._palette, self._background, self._tolerance))
        return np.array([self._nearest(row)[0] for row in rows], np.int64)

    @property
    def n_labels_(self) -> int:
        """Number of labels."""
        return len(self._prototypes)

    @property
    def palette_(self) -> NDArray[np.float64]:
        """The colours that recur."""
        return np.asarray(self._palette.colours[: len(self._recurs)][self._recurs])

    def _checked(self, X: Any, *, reset: bool) -> NDArray[np.float64]:
        """Return X as float64, after a check of X and of the parameters."""
        X = np.asarray(validate_data(self, X, dtype=np.float64, reset=reset))
        check_integer("tolerated", self.tolerated)
        if X.shape[1] % check_integer("channels", self.channels, 1):
            raise ValueError(
                f"pictures of {X.shape[1]} numbers cannot have {self.channels} channels: set "
                "channels of ScreenOracle"
            )
        return X

    def _add(self, X: NDArray[np.float64]) -> None:
        """Keep the codes of more pictures."""
        X = fit_colours(X, self._first, self.channels)
        codes = np.empty((len(X), self._codes.shape[1]), np.int32)
        for i, x in enumerate(X):
            self._palette = self._palette.with_room(codes.shape[1])
            n = len(self._codes) + i
            learn_codes(x, self._palette, n, self._tolerance, codes[max(i - 1, 0)], codes[i])
        self._codes = np.concatenate([self._codes, codes])

    def _relearn(self) -> None:
        """Learn palette, background and labels from all pictures so far."""
        n, used = len(self._codes), self._palette.used[0]
        since, seen = self._palette.since[:used], self._palette.seen[:used]
        self._recurs = seen >= FEWEST + SHARE * (n - since)
        self._background = most_common(self._codes, self._recurs)
        self._prototypes = np.zeros((0, self._codes.shape[1]), np.int32)
        self._labels: dict[bytes, int] = {}
        rows = self._cleaned(self._codes)
        self.labels_ = np.array([self._learn(row) for row in rows], np.int64)
        self._due = GROWTH * n

    def _cleaned(self, codes: Codes) -> Codes:
        """Replace colours that do not recur by the background."""
        recurs = np.append(self._recurs, False)  # the last is that of colours never seen
        codes = np.where(codes < len(self._recurs), codes, -1)
        return np.where(recurs[codes], codes, self._background)

    def _learn(self, row: Codes) -> int:
        """Return the label of a clean picture, perhaps a new one."""
        name = row.tobytes()
        if name not in self._labels:
            label, far = self._nearest(row)
            if far > self.tolerated:
                label = len(self._prototypes)
                self._prototypes = np.concatenate([self._prototypes, row[None]])
            self._labels[name] = label
        return self._labels[name]

    def _nearest(self, row: Codes) -> tuple[int, int]:
        """Return the label with the fewest different pixels, and their number."""
        known = self._labels.get(row.tobytes())
        return (known, 0) if known is not None else nearest(self._prototypes, row)


def _tolerance(X: NDArray[np.float64]) -> float:
    """Return the smallest difference of colours that counts: more than noise of single pixels."""
    typical = np.median(np.abs(np.diff(X, axis=0))) if len(X) > 1 else 0.0
    return max(FINEST, SPREAD * float(typical))


class Palette(NamedTuple):
    """All colours that were seen, in the order in which they appeared."""

    colours: NDArray[np.float64]  # (room, channels)
    seen: NDArray[np.int64]  # (room,), number of pictures with this colour
    since: NDArray[np.int64]  # (room,), the first of them
    last: NDArray[np.int64]  # (room,), the last of them
    used: NDArray[np.int64]  # (1,), number of colours

    @classmethod
    def new(cls, channels: int) -> Palette:
        """Return a palette without colours."""
        empty = np.zeros(0, np.int64)
        return cls(np.zeros((0, channels)), empty, empty, empty, np.zeros(1, np.int64))

    def with_room(self, n: int) -> Palette:
        """Return a palette with room for n more colours."""
        room = len(self.seen)
        if self.used[0] + n <= room:
            return self
        longer = [
            np.concatenate([field, np.zeros((room + n, *field.shape[1:]), field.dtype)])
            for field in self[:4]
        ]
        return Palette(*longer, self.used)


# --- compiled loops -------------------------------------------------------------------------------
@jit
def fit_colours(X, first, channels):
    """Fit each channel of the pictures X (n, d) to the first picture (d,), and return the result.

    The fit minimises the sum of absolute differences, so that what has changed does not matter.
    """
    n, d = X.shape
    out = np.empty((n, d))
    for i in range(n):
        for c in range(channels):
            a, b = 1.0, 0.0
            for fit in range(FITS):
                w, wx, wy, wxx, wxy = 0.0, 0.0, 0.0, 0.0, 0.0
                for j in range(c, d, channels):
                    x, y = X[i, j], first[j]
                    weight = 1.0 if fit == 0 else 1.0 / max(abs(y - a * x - b), 1.0)
                    w += weight
                    wx += weight * x
                    wy += weight * y
                    wxx += weight * x * x
                    wxy += weight * x * y
                spread = w * wxx - wx * wx
                a = (w * wxy - wx * wy) / spread if spread > 1e-9 * w * w else 1.0
                b = (wy - a * wx) / w
            for j in range(c, d, channels):
                out[i, j] = a * X[i, j] + b
    return out


@jit
def difference(colours, k, x, j):
    """Return the largest difference of a channel between colour k and pixel j of x."""
    channels = colours.shape[1]
    most = 0.0
    for c in range(channels):
        most = max(most, abs(colours[k, c] - x[j * channels + c]))
    return most


@jit
def find(palette, x, j, guess, tolerance):
    """Return the colour of pixel j of x (d,): the guess, or the nearest one; -1 if none is near."""
    if 0 <= guess < palette.used[0] and difference(palette.colours, guess, x, j) <= tolerance / 2:
        return guess
    best, at = tolerance, -1
    for k in range(palette.used[0]):
        far = difference(palette.colours, k, x, j)
        if far < best or (at < 0 and far <= best):
            best, at = far, k
    return at


@jit
def learn_codes(x, palette, n, tolerance, guess, out):
    """Write the colour of each pixel of picture n, x (d,), to `out`; add colours that are new.

    guess, out: (pixels,), where a good guess saves time.
    """
    channels = palette.colours.shape[1]
    for j in range(len(out)):
        k = find(palette, x, j, guess[j], tolerance)
        if k < 0:
            k = palette.used[0]
            palette.used[0] += 1
            palette.since[k] = n
            palette.last[k] = -1
            for c in range(channels):
                palette.colours[k, c] = x[j * channels + c]
        if palette.last[k] != n:
            palette.last[k] = n
            palette.seen[k] += 1
        out[j] = k


@jit
def read_codes(X, palette, guess, tolerance):
    """Return the colour of each pixel of pictures X (n, d), -1 for those never seen."""
    out = np.empty((len(X), len(guess)), np.int32)
    for i in range(len(X)):
        for j in range(len(guess)):
            out[i, j] = find(palette, X[i], j, guess[j], tolerance)
    return out


@jit
def most_common(codes, recurs):
    """Return the most common of the recurring colours of each pixel, or of all if none recurs.

    codes: (n, pixels). recurs: (colours,).
    """
    n, pixels = codes.shape
    counts = np.zeros(len(recurs), np.int64)
    out = np.empty(pixels, np.int32)
    for j in range(pixels):
        for i in range(n):
            counts[codes[i, j]] += 1
        best, most = -1, 0
        for i in range(n):
            k = codes[i, j]
            score = counts[k] + (n if recurs[k] else 0)
            if counts[k] > 0 and score > most:
                best, most = k, score
        out[j] = best
        for i in range(n):
            counts[codes[i, j]] = 0
    return out


@jit
def nearest(prototypes, row):
    """Return the row of `prototypes` (K, pixels) with the fewest differences, and their number."""
    at, best = 0, len(row) + 1
    for k in range(len(prototypes)):
        far = 0
        for j in range(len(row)):
            far += prototypes[k, j] != row[j]
            if far >= best:
                break
        if far < best:
            at, best = k, far
    return at, best
