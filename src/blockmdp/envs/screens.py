"""Pictures behind tints, distractors, pixel noise and camera shift."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blockmdp.checks import check_integer, check_number
from blockmdp.emissions import Emission
from blockmdp.jit import jit
from blockmdp.rng import child, integer, normal, uniform

__all__ = ["Screens"]

# random numbers of an observation: places of the first ones, and the stream of the pixels' noise
GAIN, RAISE, SHIFT, DISTRACTORS = 0, 3, 6, 8
EACH = 5  # numbers that a distractor takes
PIXELS = 1


class Screens(Emission):
    """A picture of each state, seen through noise that has nothing to do with the state.

    Each observation has fresh noise: first distractors, then shift, tint and pixel noise.

    Parameters
    ----------
    pictures : array-like of shape (n_states, height, width, 3)
        Picture of each state, with colours from 0 to 255.
    tint : float, default=0.0
        Strength of a random tint, in [0, 1]. Each colour channel is multiplied by a random number
        from 1 - `tint` to 1, and raised by a random share of what that leaves up to 255.
    distractors : int, default=0
        Number of squares in random colours at random places. They move behind everything that
        differs from state to state: they cover only pixels in which a picture has the most common
        colour of the pixel.
    size : int, default=2
        Side of a distractor, in pixels.
    pixel : float, default=0.0
        Standard deviation of Gaussian noise on each number, as a share of 255.
    shift : int, default=0
        Largest number of pixels by which the camera moves to each side. What comes into view is
        black.

    Attributes
    ----------
    shape : tuple of int
        Height, width and 3. Observations are flattened.
    pictures : ndarray of shape (n_states, height, width, 3)
        The pictures, without noise.

    See Also
    --------
    minigrid : Makes such problems.
    Fixed : Pictures without noise.

    Notes
    -----
    Tints and distractors leave all states distinguishable if the pictures are different. Strong
    pixel noise does not.

    Examples
    --------
    >>> from blockmdp import rng
    >>> red, blue = np.zeros((2, 4, 4, 3))
    >>> red[1, 1], blue[2, 2] = (255, 0, 0), (0, 0, 255)
    >>> emission = Screens([red, blue], tint=0.3)
    >>> x = emission.sample(0, np.array([0, 1]), rng.children(rng.root(0), 0, 2))
    >>> x.shape, x.dtype
    ((2, 48), dtype('uint8'))
    """

    dtype = np.uint8
    low, high = 0.0, 255.0
    finite = True

    def __init__(
        self,
        pictures: ArrayLike,
        *,
        tint: float = 0.0,
        distractors: int = 0,
        size: int = 2,
        pixel: float = 0.0,
        shift: int = 0,
    ) -> None:
        shown = np.array(pictures)
        if shown.ndim != 4 or shown.shape[3] != 3 or shown.size == 0:
            raise ValueError(
                "Screens: pictures must have the shape (n_states, height, width, 3), got "
                f"{shown.shape}"
            )
        if shown.dtype.kind not in "iuf" or not ((shown >= 0) & (shown <= 255)).all():
            raise ValueError("Screens: pictures must be numbers from 0 to 255")
        self.pictures = shown.astype(np.uint8)
        if not (shown == self.pictures).all():
            hint = ": multiply them by 255" if shown.max() <= 1 else ", not fractions: round them"
            raise ValueError(f"Screens: pictures must be whole numbers from 0 to 255{hint}")
        self.pictures.setflags(write=False)
        self.n_states, self.shape = len(shown), shown.shape[1:]
        self.dim = math.prod(self.shape)
        self.tint = check_number("tint", tint, 0, 1)
        self.pixel = check_number("pixel", pixel, 0)
        self.distractors = check_integer("distractors", distractors)
        self.size = min(check_integer("size", size, 1), max(self.shape[:2]))
        self.shift = check_integer("shift", shift)
        self.has_noise = bool(tint or distractors or pixel or shift)
        self._behind = _most_common(self.pictures)

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.uint8]:
        noise = (self.tint, self.distractors, self.size, self.pixel, self.shift)
        x: NDArray[np.uint8] = draw_screens(self.pictures, self._behind, states, keys, *noise)
        return x.reshape(len(states), self.dim)

    def __repr__(self) -> str:
        names = ("tint", "distractors", "pixel", "shift")
        noise = [f"{name} {getattr(self, name)}" for name in names if getattr(self, name)]
        size = f"{self.shape[0]} x {self.shape[1]} pixels"
        return f"<Screens: {', '.join([f'{self.n_states} states', size, *noise])}>"


def _most_common(pictures: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return where each picture has the most common colour of the pixel, (S, height, width)."""
    p = pictures.astype(np.int64)
    colours = (p[..., 0] * 256 + p[..., 1]) * 256 + p[..., 2]
    flat = colours.reshape(len(colours), -1)
    common = [int(np.unique(c, return_counts=True)[1].argmax()) for c in flat.T]
    first = np.array([np.unique(c)[i] for c, i in zip(flat.T, common)])
    return np.asarray(colours == first.reshape(colours.shape[1:]))


@jit
def draw_screens(
    pictures: NDArray[np.uint8],
    behind: NDArray[np.bool_],
    states: NDArray[np.int64],
    keys: NDArray[np.uint64],
    tint: float,
    distractors: int,
    size: int,
    pixel: float,
    shift: int,
) -> NDArray[Any]:
    """Return what is seen of each state, (n, height, width, 3).

    pictures: (S, height, width, 3). behind: (S, height, width), where distractors are visible.
    states, keys: (n,).
    """
    _, height, width, _ = pictures.shape
    out = np.zeros((len(states), height, width, 3), np.uint8)
    gain, raised = np.ones(3), np.zeros(3)
    for n in range(len(states)):
        s, key = states[n], keys[n]
        picture = pictures[s].copy()
        for d in range(distractors):
            first = DISTRACTORS + EACH * d
            top, left = integer(key, first, height), integer(key, first + 1, width)
            for i in range(top, min(top + size, height)):
                for j in range(left, min(left + size, width)):
                    if behind[s, i, j]:
                        for c in range(3):
                            picture[i, j, c] = integer(key, first + 2 + c, 256)
        down = integer(key, SHIFT, 2 * shift + 1) - shift
        right = integer(key, SHIFT + 1, 2 * shift + 1) - shift
        for c in range(3):
            gain[c] = 1.0 - tint * uniform(key, GAIN + c)
            raised[c] = 255.0 * (1.0 - gain[c]) * uniform(key, RAISE + c)
        below = np.uint64(child(key, PIXELS))
        for i in range(height):
            for j in range(width):
                from_i, from_j = i - down, j - right
                inside = 0 <= from_i < height and 0 <= from_j < width
                for c in range(3):
                    x = float(picture[from_i, from_j, c]) if inside else 0.0
                    x = gain[c] * x + raised[c]
                    if pixel > 0.0:
                        x += 255.0 * pixel * normal(below, (i * width + j) * 3 + c)
                    out[n, i, j, c] = int(min(max(x, 0.0), 255.0) + 0.5)
    return out
