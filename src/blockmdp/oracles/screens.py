"""An oracle for pictures that a program draws: colours that recur, before a background."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.checks import InvalidParameterError, check_integer
from blockmdp.jit import inlined, jit

__all__ = ["ScreenOracle"]

Codes = NDArray[np.int32]

HIDDEN = -1  # code of a colour that does not recur
GROWTH = 1.25  # of the data, after which colours and labels are learnt again
CLOSE = 2.0  # difference of colours that rounding explains
LINES, APART = 50, 10.0  # lines that are tried to fit a tint, each through two numbers so far apart
MOST = 50  # first pictures, whose median is the picture that others are fitted to
FINEST = 4.0  # smallest difference of colours that counts, of 255
SPREAD = 6.0  # the same in units of the typical difference between two pictures
FEWEST, SHARE = 3, 0.003  # a colour recurs if it is in 3 pictures, and in 0.3 % since the first


class ScreenOracle(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Recognises pictures that a program draws, behind tints and distractors.

    It learns online, in three steps. The colours of each picture, from 0 to 255, are fitted to
    those of the first ones, channel by channel, which removes tints. Colours that recur make up a
    palette; pixels of any other colour are hidden. Two pictures have the same label if no pixel
    that is visible in both is different.

    Parameters
    ----------
    channels : int, default=3
        Numbers of each pixel. Those of a pixel are neighbours in a flattened picture.
    tolerated : int, default=0
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
    A colour recurs if it is in at least three pictures, and in 0.3 % of the pictures since it
    was first seen. So a distractor whose colour is always the same is not recognised as noise.

    Examples
    --------
    >>> pictures = np.zeros((2, 8, 8, 3))
    >>> pictures[0, 2, 2:4] = pictures[1, 5, 5:7] = (160, 0, 0)  # a red bar at two places
    >>> pictures[:, :, :4] += 90.0  # on a wall, or on black floor
    >>> states = np.arange(20) % 2
    >>> brightness = np.linspace(0.5, 1.0, 20)[:, None, None, None]
    >>> X = (pictures[states] * brightness).reshape(20, -1)
    >>> oracle = ScreenOracle().fit(X)
    >>> oracle.n_labels_, bool((oracle.labels_ == states).all())
    (2, True)
    """

    def __init__(self, channels: int = 3, tolerated: int = 0) -> None:
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
        channels = int(self.channels)
        first = fit_colours(X[:MOST], X[0], channels, CLOSE)
        self._first, self._tolerance = np.median(first, axis=0), _tolerance(first)
        self._palette = Palette.new(channels)
        self._kept, self._n = np.zeros((0, X.shape[1] // channels), np.int32), 0
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
        if self._n >= self._due:
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
        check_is_fitted(self, "labels_")
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
        X = self._fitted(self._checked(X, reset=False))
        rows = read_codes(X, self._palette, self._names, self._background, self._tolerance)
        return np.array([self._nearest(row)[0] for row in rows], np.int64)

    @property
    def n_labels_(self) -> int:
        """Number of labels."""
        return int(self._prototypes.used[0])

    @property
    def palette_(self) -> NDArray[np.float64]:
        """The colours that recur."""
        return np.asarray(self._palette.colours[: len(self._recurs)][self._recurs])

    @property
    def _codes(self) -> Codes:
        """The colours of all pictures so far."""
        return np.asarray(self._kept[: self._n])

    def _checked(self, X: Any, *, reset: bool) -> NDArray[np.float64]:
        """Return X as float64, after a check of X and of the parameters."""
        check_integer("tolerated", self.tolerated)
        check_integer("channels", self.channels, 1)
        X = np.asarray(validate_data(self, X, dtype=np.float64, reset=reset))
        low, high = float(X.min()), float(X.max())
        if low < 0 or high > 255:
            raise InvalidParameterError(
                f"ScreenOracle: colours must be from 0 to 255, got numbers from {low:g} to {high:g}"
            )
        if reset and 0 < high <= 1:
            raise InvalidParameterError(
                "ScreenOracle: colours must be from 0 to 255, but all are from 0 to 1: multiply "
                "the pictures by 255"
            )
        if X.shape[1] % int(self.channels):
            raise InvalidParameterError(
                f"pictures of {X.shape[1]} numbers cannot have {self.channels} channels: set "
                "channels of ScreenOracle"
            )
        return X

    def _fitted(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Remove the tints of pictures."""
        fitted = fit_colours(X, self._first, int(self.channels), self._tolerance / 2)
        return np.asarray(fitted)

    def _add(self, X: NDArray[np.float64]) -> None:
        """Keep the codes of more pictures."""
        X, (room, pixels) = self._fitted(X), self._kept.shape
        if self._n + len(X) > room:
            more = np.zeros((max(room // 4, self._n + len(X) - room), pixels), np.int32)
            self._kept = np.concatenate([self._kept, more])
        codes = self._kept[self._n :]
        for i, x in enumerate(X):
            self._palette = self._palette.with_room(pixels)
            guess = codes[max(i - 1, 0)]
            learn_codes(x, self._palette, self._n + i, self._tolerance, guess, codes[i])
        self._n += len(X)

    def _relearn(self) -> None:
        """Learn palette, background and labels from all pictures so far."""
        n, used = self._n, self._palette.used[0]
        since, seen = self._palette.since[:used], self._palette.seen[:used]
        self._recurs = seen >= FEWEST + SHARE * (n - since)
        self._names = np.flatnonzero(self._recurs)
        background = most_common(self._codes, self._recurs)
        self._background = np.where(self._recurs[background], background, HIDDEN).astype(np.int32)
        self._prototypes = Prototypes.new(self._codes.shape[1])
        self._known: dict[str, int] = {}  # saved as text
        rows = self._cleaned(self._codes)
        self.labels_ = np.array([self._learn(row) for row in rows], np.int64)
        self._due = GROWTH * n

    def _cleaned(self, codes: Codes) -> Codes:
        """Replace colours that do not recur by HIDDEN."""
        recurs = np.append(self._recurs, False)  # the last is that of colours never seen
        codes = np.where(codes < len(self._recurs), codes, HIDDEN)
        return np.where(recurs[codes], codes, HIDDEN).astype(np.int32)

    def _learn(self, row: Codes) -> int:
        """Return the label of a clean picture, perhaps a new one."""
        label, far = self._nearest(row)
        if far > self.tolerated:
            label = self.n_labels_
            self._prototypes = self._prototypes.with_row(row, self._background)
        elif far == 0:
            complete(self._prototypes.rows[label], row)
        self._known[_name(row)] = label
        return label

    def _nearest(self, row: Codes) -> tuple[int, int]:
        """Return the label with the fewest different pixels, and their number."""
        known = self._known.get(_name(row))
        if known is not None:
            return known, 0
        differs = np.flatnonzero(row != self._background)
        label, far = nearest(self._prototypes, row, differs, np.zeros(len(row), np.bool_))
        return int(label), int(far)


def _name(row: Codes) -> str:
    return row.tobytes().decode("latin-1")


def _tolerance(X: NDArray[np.float64]) -> float:
    """Return the smallest difference of colours that counts: more than noise of single pixels."""
    typical = np.median(np.abs(np.diff(X, axis=0))) if len(X) > 1 else 0.0
    return max(FINEST, SPREAD * float(typical))


class Prototypes(NamedTuple):
    """One clean picture of each label."""

    rows: Codes  # (room, pixels), HIDDEN where the colour is not known
    differs: Codes  # (room, m), pixels in which it is not like the background
    lengths: NDArray[np.int64]  # (room,), their number
    used: NDArray[np.int64]  # (1,), number of labels

    @classmethod
    def new(cls, pixels: int) -> Prototypes:
        """Return no prototypes."""
        none = np.zeros((0, 0), np.int32)
        lengths, used = np.zeros(0, np.int64), np.zeros(1, np.int64)
        return cls(np.zeros((0, pixels), np.int32), none, lengths, used)

    def with_row(self, row: Codes, background: Codes) -> Prototypes:
        """Return prototypes with one more."""
        differs = np.flatnonzero(row != background)
        k, (room, m) = int(self.used[0]), self.differs.shape
        new = self
        if k == room or len(differs) > m:
            shape = (max(2 * k, 16), max(2 * len(differs), m))
            rows = np.zeros((shape[0], len(row)), np.int32)
            wide, lengths = np.zeros(shape, np.int32), np.zeros(shape[0], np.int64)
            rows[:k], wide[:k, :m], lengths[:k] = self.rows[:k], self.differs[:k], self.lengths[:k]
            new = Prototypes(rows, wide, lengths, self.used)
        new.rows[k], new.differs[k, : len(differs)], new.lengths[k] = row, differs, len(differs)
        new.used[0] = k + 1
        return new


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
        colours, seen, since, last = (
            np.concatenate([field, np.zeros((room + n, *field.shape[1:]), field.dtype)])
            for field in self[:4]
        )
        return Palette(colours, seen, since, last, self.used)


# --- compiled loops -------------------------------------------------------------------------------
@jit
def fit_colours(X, first, channels, close):
    """Fit each channel of the pictures X (n, d) to the first picture (d,), and return the result.

    The most common number of the first picture and one other pixel make a line y = a x + b. Of
    many such lines, the best is the one to which most pixels are close; what has changed from
    picture to picture does not matter.
    """
    n, d = X.shape
    out = np.empty((n, d))
    pixels = d // channels
    y, x = np.empty(pixels), np.empty(pixels)
    for c in range(channels):
        for j in range(pixels):
            y[j] = first[j * channels + c]
        common = most_frequent(y)
        alike = np.flatnonzero(np.abs(y - common) <= close)
        others = np.flatnonzero(np.abs(y - common) > APART)
        step = max(len(others) // LINES, 1)
        for i in range(n):
            for j in range(pixels):
                x[j] = X[i, j * channels + c]
            here = np.median(x[alike])
            a, b, most = 1.0, 0.0, count_close(x, y, 1.0, 0.0, close)
            for j in others[::step]:
                if abs(x[j] - here) > 1.0:
                    slope = (y[j] - common) / (x[j] - here)
                    near = count_close(x, y, slope, common - slope * here, close)
                    if slope > 0.0 and near > most:
                        a, b, most = slope, common - slope * here, near
            if len(others) == 0:
                b = common - here
            a, b = refined(x, y, a, b, close)
            for j in range(pixels):
                out[i, j * channels + c] = a * x[j] + b
    return out


@jit
def most_frequent(y):
    """Return the most frequent of the numbers y (n,), rounded."""
    low = np.floor(y.min())
    counts = np.zeros(int(y.max() - low) + 2, np.int64)
    for j in range(len(y)):
        counts[int(y[j] - low + 0.5)] += 1
    return low + counts.argmax()


@jit
def count_close(x, y, a, b, close):
    """Return for how many pixels a x + b is close to y."""
    n = 0
    for j in range(len(x)):
        n += abs(a * x[j] + b - y[j]) <= close
    return n


@jit
def refined(x, y, a, b, close):
    """Return the least-squares line of the pixels that are close to a line."""
    n, sx, sy, sxx, sxy = 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(len(x)):
        if abs(a * x[j] + b - y[j]) <= close:
            n += 1.0
            sx += x[j]
            sy += y[j]
            sxx += x[j] * x[j]
            sxy += x[j] * y[j]
    spread = n * sxx - sx * sx
    if n == 0.0 or spread <= n * n:
        return a, b
    slope = (n * sxy - sx * sy) / spread
    return slope, (sy - slope * sx) / n


@inlined
def difference(colours, k, x, j):
    """Return the largest difference of a channel between colour k and pixel j of x."""
    channels = colours.shape[1]
    most = 0.0
    for c in range(channels):
        most = max(most, abs(colours[k, c] - x[j * channels + c]))
    return most


@inlined
def find(palette, names, x, j, guess, tolerance):
    """Return the colour of pixel j of x (d,): the guess, the nearest one, or HIDDEN.

    names: (m,), the colours to choose from.
    """
    if guess >= 0 and difference(palette.colours, guess, x, j) <= tolerance / 2:
        return guess
    best, at = tolerance, HIDDEN
    for k in names:
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
        known = guess[j] if guess[j] < palette.used[0] else HIDDEN
        k = find(palette, range(palette.used[0]), x, j, known, tolerance)
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
def read_codes(X, palette, names, background, tolerance):
    """Return which of the colours `names` (m,) each pixel of the pictures X (n, d) has, or HIDDEN.

    background: (pixels,), a good guess.
    """
    out = np.empty((len(X), len(background)), np.int32)
    for i in range(len(X)):
        x = X[i]
        for j in range(len(background)):
            out[i, j] = find(palette, names, x, j, background[j], tolerance)
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
        column = codes[:, j].copy()
        for k in column:
            counts[k] += 1
        best, most = -1, 0
        for k in column:
            score = counts[k] + (n if recurs[k] else 0)
            if counts[k] > 0 and score > most:
                best, most = k, score
        out[j] = best
        for k in column:
            counts[k] = 0
    return out


@jit
def complete(prototype, row):
    """Fill in what was hidden in a prototype (pixels,) and is visible in a row (pixels,)."""
    for j in range(len(row)):
        if prototype[j] == HIDDEN:
            prototype[j] = row[j]


@jit
def nearest(prototypes, row, differs, is_listed):
    """Return the prototype with the fewest visible differences to a row, and their number.

    Of several, it is the one of which the row hides least. row: (pixels,). differs: (m,), pixels
    in which the row is not like the background. is_listed: (pixels,), working memory, False.
    """
    for j in differs:
        is_listed[j] = True
    at, best, best_hidden = 0, len(row) + 1, 0
    for k in range(prototypes.used[0]):
        other = prototypes.rows[k]
        far, hidden = 0, 0
        for j in differs:
            far += row[j] != HIDDEN and other[j] != HIDDEN and row[j] != other[j]
        for i in range(prototypes.lengths[k]):
            j = prototypes.differs[k, i]
            if not is_listed[j]:
                far += other[j] != HIDDEN and row[j] != other[j]
            elif row[j] == HIDDEN:
                hidden += 1
        if far < best or (far == best and hidden < best_hidden):
            at, best, best_hidden = k, far, hidden
    return at, best
