"""Emissions: the distribution of observations given a latent state, q(x | s) of a Block MDP.

To add an emission, subclass `Emission`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blockmdp import rng
from blockmdp.checks import check_integer, check_number
from blockmdp.jit import inlined, jit
from blockmdp.rng import child, draw, normal, uniform

__all__ = [
    "Digits",
    "Drawing",
    "Emission",
    "ExogenousBits",
    "Fixed",
    "Hadamard",
    "Linear",
    "MarkovBits",
    "OneHotBernoulli",
    "OneHotGaussian",
    "PerLevel",
    "StateAndLevel",
]


class Drawing(NamedTuple):
    """How a compiled loop draws one observation, x = matrix @ y.

    Parameters
    ----------
    value : function
        `value(constants, level, state, key, j)` returns y[j]; a compiled scalar function.
    constants : tuple of float
        Numbers that it needs.
    largest : ndarray of shape (dim,)
        Bound of each `|y[j]|`. A loop need not draw what cannot change the label.
    matrix : ndarray of shape (emission.dim, dim) or None, default=None
        None if x is y.

    Examples
    --------
    >>> drawing = OneHotBernoulli(3, 5).drawing()
    >>> key = rng.key(rng.root(0), 0)
    >>> [int(drawing.value(drawing.constants, 0, 2, key, j)) for j in range(8)]
    [0, 0, 1, 1, 0, 0, 1, 0]
    """

    value: Callable[..., float]
    constants: tuple[float, ...]
    largest: NDArray[np.float64]
    matrix: NDArray[np.float64] | None = None


class Emission(ABC):
    """Base class of emissions: the distribution of observations given level and latent state.

    A subclass defines `sample` and sets `n_states`, `dim` and, if the defaults below are wrong, the
    other attributes. `sample` gets one key for each observation and turns it into noise with the
    functions of `blockmdp.rng`. It must use no other source of randomness, so that runs repeat.

    Attributes
    ----------
    n_states : int
        Number of latent states, S.
    dim : int
        Length of an observation.
    dtype : type, default=np.float64
        Type of the entries of an observation.
    low, high : float, default=-inf and inf
        Bounds of the entries.
    finite : bool, default=False
        Whether there are finitely many different observations, so that a table can hold them.
    stationary : bool, default=True
        Whether the distribution is the same at all levels. If so, `sample` must ignore the level.
    takes_levels : bool, default=False
        Whether `sample` also takes an array of levels, one for each observation. Then observations
        of many levels are drawn in one call, which is faster. A subclass inherits it.
    n_levels : int or None, default=None
        Number of levels, H + 1, that the emission is made for; None fits any number.
    per_episode : bool, default=False
        Whether noise is correlated within an episode. If so, all levels of an episode get the same
        key. Note that `Agent.value` works level by level, so it treats the errors of a decoder at
        different levels as independent.
    has_noise : bool, default=True
        Whether a state can look different at two visits to the same level. If not, `sample` must
        ignore the keys, and each state is drawn and decoded once.

    See Also
    --------
    BlockMDP : Combines an emission with the dynamics of the latent states.

    Examples
    --------
    >>> class Shifted(Emission):
    ...     "The number of the state plus a standard normal number."
    ...
    ...     def __init__(self, n_states):
    ...         self.n_states, self.dim = n_states, 1
    ...
    ...     def sample(self, level, states, keys):
    ...         return rng.normals(keys, 1) + states[:, None]
    >>> keys = rng.children(rng.root(0), 0, 4)
    >>> Shifted(3).sample(0, np.array([0, 1, 2, 2]), keys).shape
    (4, 1)
    """

    n_states: int
    dim: int
    dtype: Any = np.float64
    low: float = -np.inf
    high: float = np.inf
    finite: bool = False
    stationary: bool = True
    takes_levels: bool = False
    n_levels: int | None = None
    per_episode: bool = False
    has_noise: bool = True

    @abstractmethod
    def sample(
        self, level: Any, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        """Draw one observation for each latent state.

        Parameters
        ----------
        level : int
            Level at which all of them are made, from 0 to H. If `takes_levels`, it can also be an
            ndarray of shape (n,).
        states : ndarray of shape (n,)
            Latent states.
        keys : ndarray of shape (n,)
            Keys of the random numbers, one for each observation.

        Returns
        -------
        ndarray of shape (n, dim)
            Observations. Row i depends on its level, `states[i]` and `keys[i]` alone, and on no
            other row.
        """

    def drawing(self) -> Drawing | None:
        """Return how compiled loops draw one observation; None if only `sample` can.

        Returns
        -------
        Drawing or None
            By default None. The engine "cuda" of `fit_many` needs it.
        """
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.n_states} states in {self.dim} dimensions>"


class Fixed(Emission):
    """One observation for each state, without noise.

    Parameters
    ----------
    observations : array-like of shape (n_states, ...)
        Observation of each state, such as a picture. It is flattened.

    Attributes
    ----------
    shape : tuple of int
        Shape of one observation before it was flattened.

    See Also
    --------
    tabulate : Makes such an emission from what an environment shows.

    Examples
    --------
    >>> Fixed([[0, 0], [0, 1], [1, 1]]).sample(0, np.array([2, 1]), np.zeros(2, np.uint64))
    array([[1, 1],
           [0, 1]])
    """

    finite = True
    has_noise = False

    def __init__(self, observations: ArrayLike) -> None:
        x = np.array(observations)
        if x.dtype.kind not in "biuf" or x.ndim == 0 or x.size == 0:
            raise ValueError(
                "Fixed: observations must be numbers, one array for each state, got an array of "
                f"{x.dtype} and shape {x.shape}"
            )
        if not np.isfinite(x).all():
            raise ValueError(f"Fixed: observations{_where(~np.isfinite(x))} is not finite")
        self.n_states, self.shape = len(x), x.shape[1:]
        self.observations = x.astype(np.int8 if x.dtype == np.bool_ else x.dtype).reshape(
            len(x), -1
        )
        self.observations.setflags(write=False)
        self.dim, self.dtype = self.observations.shape[1], self.observations.dtype.type
        self.low, self.high = float(x.min()), float(x.max())

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        return np.asarray(self.observations[states])

    def __repr__(self) -> str:
        return f"<Fixed: {self.n_states} states in {self.dim} dimensions>"


class OneHotBernoulli(Emission):
    """One-hot code of the state, followed by independent random bits.

    Observations are in {0, 1}^(n_states + n_bits).

    Parameters
    ----------
    n_states : int
        Number of latent states.
    n_bits : int
        Number of random bits.
    p : float, default=0.5
        Probability that a bit is 1.

    Examples
    --------
    >>> emission = OneHotBernoulli(3, 5)
    >>> emission.sample(0, np.array([0, 2]), rng.children(rng.root(0), 0, 2))
    array([[1, 0, 0, 1, 0, 0, 1, 0],
           [0, 0, 1, 1, 1, 0, 0, 1]], dtype=int8)
    """

    dtype = np.int8
    low, high = 0.0, 1.0
    finite = True

    def __init__(self, n_states: int, n_bits: int, p: float = 0.5) -> None:
        check_number("OneHotBernoulli: p", p, 0, 1)
        check_integer("n_states", n_states, 1)
        check_integer("n_bits", n_bits)
        self.n_states, self.n_bits, self.p = n_states, n_bits, p
        self.dim = n_states + n_bits

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.int8]:
        x = np.zeros((len(states), self.dim), np.int8)
        x[np.arange(len(states)), states] = 1
        if self.p == 0.5:
            rng.bits(keys, self.n_bits, out=x[:, self.n_states :])
        else:
            x[:, self.n_states :] = rng.uniforms(keys, self.n_bits) < self.p
        return x

    def drawing(self) -> Drawing:
        return Drawing(bit, (float(self.n_states), float(self.p)), np.ones(self.dim))

    def __repr__(self) -> str:
        return f"OneHotBernoulli({self.n_states}, {self.n_bits}, p={self.p})"


class OneHotGaussian(Emission):
    """One-hot code of the state, padded with zeros, plus Gaussian noise on every coordinate.

    Parameters
    ----------
    n_states : int
        Number of latent states.
    n_extra : int
        Number of zeros after the one-hot code.
    sigma : float
        Standard deviation of the noise.
    truncate : bool, default=False
        Whether to truncate the noise of each coordinate to [-0.499, 0.499]. Then no observation can
        come from two states, as a Block MDP requires (Feng et al. 2020, footnote on Gaussian
        mixtures). Otherwise the observations of different states overlap.

    Examples
    --------
    >>> emission = OneHotGaussian(3, 5, sigma=0.1)
    >>> emission.sample(0, np.array([0, 2]), rng.children(rng.root(0), 0, 2)).shape
    (2, 8)
    """

    dtype = np.float32
    bound = 0.499

    def __init__(
        self, n_states: int, n_extra: int, sigma: float, *, truncate: bool = False
    ) -> None:
        check_number("OneHotGaussian: sigma", sigma, 0)
        check_integer("n_states", n_states, 1)
        check_integer("n_extra", n_extra)
        self.n_states, self.n_extra, self.sigma, self.truncate = n_states, n_extra, sigma, truncate
        self.dim = n_states + n_extra
        if truncate:
            self.low, self.high = -0.5, 1.5

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.float32]:
        if self.truncate and self.sigma > 0:
            bound = self.bound / self.sigma
            x = rng.truncated_normals(keys, self.dim, bound, np.float32)
        else:
            x = rng.normals(keys, self.dim, np.float32)
        scale_and_mark(x, np.float32(self.sigma), states)
        return x

    def drawing(self) -> Drawing | None:
        if self.truncate:
            return None
        constants = (float(np.float32(self.sigma)),)
        largest = np.full(
            self.dim, 1.0001 * constants[0] * rng.LARGEST_NORMAL
        )  # rounded to 32 bits
        largest[: self.n_states] += 1.0
        return Drawing(single_normal, constants, largest)

    def __repr__(self) -> str:
        truncate = ", truncate=True" if self.truncate else ""
        return f"OneHotGaussian({self.n_states}, {self.n_extra}, sigma={self.sigma}{truncate})"


class Linear(Emission):
    """An emission multiplied by a fixed matrix, such as a rotation.

    Parameters
    ----------
    emission : Emission
        Emission to transform.
    matrix : array-like of shape (dim, emission.dim)
        An observation x becomes `matrix @ x`.

    See Also
    --------
    Hadamard : The same for a Hadamard matrix, and faster.

    Examples
    --------
    >>> Linear(OneHotBernoulli(3, 1), [[1, 0, 0, 0], [0, 1, 1, 1]]).dim
    2
    """

    def __init__(self, emission: Emission, matrix: ArrayLike) -> None:
        m = np.array(matrix, np.float64)
        if m.ndim != 2 or m.shape[1] != emission.dim:
            raise ValueError(
                f"Linear: matrix must have the shape (any, {emission.dim}) to match {emission!r}, "
                f"got {m.shape}"
            )
        if not np.isfinite(m).all():
            raise ValueError(f"Linear: matrix{_where(~np.isfinite(m))} is not finite")
        m.setflags(write=False)
        self.emission, self.matrix = emission, m
        self.n_states, self.dim = emission.n_states, len(m)
        self.finite, self.stationary = emission.finite, emission.stationary
        self.n_levels, self.takes_levels = emission.n_levels, emission.takes_levels
        self.per_episode = emission.per_episode
        self.has_noise = emission.has_noise
        self.dtype = np.float32 if emission.dtype == np.float32 else np.float64

    def sample(
        self, level: Any, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        # einsum's own loop instead of BLAS: a row must not depend on the number of rows
        x = self.emission.sample(level, states, keys).astype(np.float64, order="C")
        return np.asarray(np.einsum("nj,ij->ni", x, self.matrix, optimize=False), self.dtype)

    def drawing(self) -> Drawing | None:
        return _multiplied(self.matrix, self.emission)

    def __repr__(self) -> str:
        return f"Linear({self.emission!r}, <{self.dim} x {self.emission.dim} matrix>)"


class StateAndLevel(Emission):
    """One-hot codes of the state and of the level, plus Gaussian noise.

    Parameters
    ----------
    n_states : int
        Number of latent states.
    n_levels : int
        Number of levels, H + 1.
    sigma : float
        Standard deviation of the noise.
    noisy : int or None, default=None
        Number of coordinates with noise, counted from the first. None puts noise on all of them.

    Examples
    --------
    >>> emission = StateAndLevel(3, 6, sigma=0.0)
    >>> emission.sample(2, np.array([1]), rng.children(rng.root(0), 0, 1)).astype(int)
    array([[0, 1, 0, 0, 0, 1, 0, 0, 0]])
    """

    stationary = False
    takes_levels = True

    def __init__(
        self, n_states: int, n_levels: int, sigma: float, *, noisy: int | None = None
    ) -> None:
        check_number("StateAndLevel: sigma", sigma, 0)
        self.n_states = check_integer("n_states", n_states, 1)
        self.n_levels: int = check_integer("n_levels", n_levels, 1)
        self.dim = self.n_states + self.n_levels
        self.sigma = sigma
        self.noisy = self.dim if noisy is None else min(check_integer("noisy", noisy), self.dim)

    def sample(
        self,
        level: int | NDArray[np.int64],
        states: NDArray[np.int64],
        keys: NDArray[np.uint64],
    ) -> NDArray[np.float64]:
        x, rows = np.empty((len(keys), self.dim)), np.arange(len(keys))
        write_normals(keys, float(self.sigma), self.noisy, x)
        x[rows, states] += 1
        x[rows, self.n_states + level] += 1
        return x

    def drawing(self) -> Drawing:
        constants = (float(self.n_states), float(self.sigma), float(self.noisy))
        largest = np.full(self.dim, self.sigma * rng.LARGEST_NORMAL + 1.0)
        return Drawing(coordinate, constants, largest)

    def __repr__(self) -> str:
        return f"StateAndLevel({self.n_states}, {self.n_levels}, sigma={self.sigma})"


class ExogenousBits(Emission):
    """One-hot codes of state and level, then bits that ignore the agent, plus Gaussian noise.

    At level 0 the bits are fair coins. From each level to the next, every bit flips with
    probability `flip`. The Gaussian noise is independent at every level and on every coordinate.

    Parameters
    ----------
    n_states : int
        Number of latent states.
    n_levels : int
        Number of levels, H + 1.
    n_bits : int
        Number of exogenous bits.
    flip : float
        Probability that a bit flips, in [0, 1].
    sigma : float
        Standard deviation of the noise.

    Examples
    --------
    >>> emission = ExogenousBits(3, 6, 10, flip=0.1, sigma=0.0)
    >>> key = rng.children(rng.root(0), 0, 1)
    >>> x, y = (emission.sample(level, np.array([1]), key)[0] for level in (2, 3))
    >>> x[:9].astype(int)
    array([0, 1, 0, 0, 0, 1, 0, 0, 0])
    >>> int((x[9:] != y[9:]).sum())
    1
    """

    stationary = False
    per_episode = True

    def __init__(
        self, n_states: int, n_levels: int, n_bits: int, flip: float, sigma: float
    ) -> None:
        check_number("ExogenousBits: flip", flip, 0, 1)
        check_number("ExogenousBits: sigma", sigma, 0)
        self.n_states = check_integer("n_states", n_states, 1)
        self.n_levels: int = check_integer("n_levels", n_levels, 1)
        self.n_bits = check_integer("n_bits", n_bits)
        self.dim = self.n_states + self.n_levels + self.n_bits
        self.flip, self.sigma = flip, sigma

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        rate = np.full(self.n_bits, float(self.flip))
        bits = markov_bits(keys, level, np.full(self.n_bits, 0.5), rate, rate)
        x = self.sigma * rng.normals(branches(keys, level), self.dim)
        x[np.arange(len(states)), states] += 1
        x[:, self.n_states + level] += 1
        x[:, self.n_states + self.n_levels :] += bits
        return x

    def __repr__(self) -> str:
        shape = f"{self.n_states}, {self.n_levels}, {self.n_bits}"
        return f"ExogenousBits({shape}, flip={self.flip}, sigma={self.sigma})"


class MarkovBits(Emission):
    """One-hot code of the state, hidden among bits that are Markov chains.

    Every bit outside the one-hot code is a Markov chain with two states. The chains start from
    their stationary distributions, so the bits have the same distribution at every level.

    Parameters
    ----------
    places : array-like of shape (n_states,)
        Positions of the one-hot code in the observation, all different.
    rise : array-like of shape (dim,)
        Probability that each bit goes from 0 to 1. Entries at `places` are ignored.
    fall : array-like of shape (dim,)
        Probability that each bit goes from 1 to 0. Entries at `places` are ignored.

    Examples
    --------
    >>> emission = MarkovBits([2, 0], rise=np.full(8, 0.1), fall=np.full(8, 0.3))
    >>> key = rng.children(rng.root(0), 0, 1)
    >>> emission.sample(0, np.array([0]), key)[0]
    array([0, 0, 1, 0, 1, 0, 0, 1], dtype=int8)
    >>> emission.sample(1, np.array([1]), key)[0]
    array([1, 1, 0, 1, 1, 0, 1, 0], dtype=int8)
    """

    dtype = np.int8
    low, high = 0.0, 1.0
    finite = True
    stationary = False
    per_episode = True

    def __init__(self, places: ArrayLike, rise: ArrayLike, fall: ArrayLike) -> None:
        self.rise, self.fall = (np.array(rate, np.float64) for rate in (rise, fall))
        if self.rise.ndim != 1 or self.rise.shape != self.fall.shape:
            raise ValueError(
                "MarkovBits: rise and fall must be vectors of the same length, got the shapes "
                f"{self.rise.shape} and {self.fall.shape}"
            )
        for name, rate in (("rise", self.rise), ("fall", self.fall)):
            good = (rate >= 0) & (rate <= 1)  # false for NaN
            if not good.all():
                i = int((~good).argmax())
                raise ValueError(f"MarkovBits: {name}[{i}] must be in [0, 1], got {rate[i]}")
        self.dim = len(self.rise)
        self.places = np.array(places)
        if (
            self.places.ndim != 1
            or len(self.places) == 0
            or self.places.dtype.kind not in "iu"
            or not ((self.places >= 0) & (self.places < self.dim)).all()
            or len(np.unique(self.places)) < len(self.places)
        ):
            raise ValueError(
                f"MarkovBits: places must be different integers from 0 to {self.dim - 1}, one for "
                f"each state, got {places!r}"
            )
        self.n_states = len(self.places)
        total = self.rise + self.fall
        total[self.places] = 1.0
        if not total.all():
            raise ValueError(
                f"MarkovBits: bit {int(total.argmin())} never changes, so it has no stationary "
                "distribution; set its rise or fall above 0"
            )
        self._start = self.rise / total

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.int8]:
        x: NDArray[np.int8] = markov_bits(keys, level, self._start, self.rise, self.fall)
        x[:, self.places] = 0
        x[np.arange(len(states)), self.places[states]] = 1
        return x

    def __repr__(self) -> str:
        return f"<MarkovBits: {self.n_states} states among {self.dim} bits>"


Images = Literal["train", "test", "all"]


class Digits(Emission):
    """Images of handwritten digits, one digit for each state.

    An observation is a random image of the state's digit. The images are the 1797 of
    :func:`sklearn.datasets.load_digits` (Alpaydin and Kaynak 1998), with 8 x 8 grey values scaled
    to [0, 1].

    Parameters
    ----------
    digits : sequence of int
        Digit of each state, all different.
    images : {"train", "test", "all"}, default="train"
        Which images to use. "test" is every third image of each digit, in the order of the data
        set; "train" is all others.

    Examples
    --------
    >>> emission = Digits([3, 8])
    >>> [len(shown) for shown in emission.images]
    [122, 116]
    >>> [len(shown) for shown in Digits([3, 8], images="test").images]
    [61, 58]
    """

    dtype = np.float32
    low, high = 0.0, 1.0
    finite = True
    dim = 64

    def __init__(self, digits: Sequence[int], images: Images = "train") -> None:
        if images not in ("train", "test", "all"):
            raise ValueError(f"Digits: images must be 'train', 'test' or 'all', got {images!r}")
        self.digits = tuple(int(d) for d in digits)
        if not self.digits or not set(self.digits) <= set(range(10)):
            raise ValueError(f"Digits: digits must be from 0 to 9, at least one, got {digits!r}")
        if len(set(self.digits)) < len(self.digits):
            raise ValueError(f"Digits: digits must be different for each state, got {digits!r}")
        from sklearn.datasets import load_digits  # here, because the import takes a second

        x, y = load_digits(return_X_y=True)
        self.n_states, self.split = len(self.digits), images
        self.images = tuple(_split(x[y == d] / 16, images) for d in self.digits)

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.float32]:
        u = rng.uniforms(keys, 1)[:, 0]
        x = np.empty((len(states), self.dim), np.float32)
        for s, shown in enumerate(self.images):
            here = states == s
            x[here] = shown[(u[here] * len(shown)).astype(np.int64)]
        return x

    def __repr__(self) -> str:
        return f"Digits({list(self.digits)}, images={self.split!r})"


def _split(x: NDArray[np.float64], images: Images) -> NDArray[np.float32]:
    """Return the training images, the test images or all images of one digit."""
    test = np.arange(len(x)) % 3 == 2
    part = x if images == "all" else x[test if images == "test" else ~test]
    return part.astype(np.float32)


class Hadamard(Emission):
    """An emission multiplied by a Hadamard matrix, so that all coordinates mix.

    Observations are first padded with zeros to a power of two. The matrix is Sylvester's, with
    entries +1 and -1.

    Parameters
    ----------
    emission : Emission
        Emission to transform.

    Examples
    --------
    >>> Hadamard(OneHotGaussian(3, 10, sigma=0.1)).dim
    16
    """

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self.n_states, self.n_levels = emission.n_states, emission.n_levels
        self.dim = 1 << max(emission.dim - 1, 0).bit_length()
        self.finite, self.stationary = emission.finite, emission.stationary
        self.takes_levels, self.per_episode = emission.takes_levels, emission.per_episode
        self.has_noise = emission.has_noise

    def sample(
        self, level: Any, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        x, d = np.empty((len(states), self.dim)), self.emission.dim
        x[:, :d] = self.emission.sample(level, states, keys)
        x[:, d:] = 0.0
        hadamard_transform(x)
        return x

    def drawing(self) -> Drawing | None:
        matrix = np.eye(self.dim)
        hadamard_transform(matrix)
        return _multiplied(matrix[:, : self.emission.dim], self.emission)

    def __repr__(self) -> str:
        return f"Hadamard({self.emission!r})"


class PerLevel(Emission):
    """A different emission at each level.

    Parameters
    ----------
    emissions : sequence of Emission
        Emissions of the levels 0, ..., H. The last one is seen after the last action.

    Examples
    --------
    >>> PerLevel([OneHotBernoulli(3, 5, p) for p in (0.1, 0.5, 0.9)]).n_levels
    3
    """

    stationary = False

    def __init__(self, emissions: Sequence[Emission]) -> None:
        if not emissions:
            raise ValueError("PerLevel: emissions must not be empty")
        self.emissions = tuple(emissions)
        first = self.emissions[0]
        for h, e in enumerate(self.emissions):
            if (e.n_states, e.dim) != (first.n_states, first.dim):
                raise ValueError(
                    f"PerLevel: emissions[{h}] has {e.n_states} states and {e.dim} dimensions, but "
                    f"emissions[0] has {first.n_states} and {first.dim}"
                )
            if e.n_levels not in (None, len(self.emissions)):
                raise ValueError(
                    f"PerLevel: emissions[{h}] has {e.n_levels} levels, but there are "
                    f"{len(self.emissions)} emissions, one for each level"
                )
        self.n_states, self.dim = first.n_states, first.dim
        self.n_levels = len(self.emissions)
        self.dtype = np.result_type(*(e.dtype for e in self.emissions)).type
        self.low = min(e.low for e in self.emissions)
        self.high = max(e.high for e in self.emissions)
        self.finite = all(e.finite for e in self.emissions)
        self.per_episode = any(e.per_episode for e in self.emissions)
        self.has_noise = any(e.has_noise for e in self.emissions)

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        emission = self.emissions[level]
        if self.per_episode and not emission.per_episode:  # independent noise at this level
            keys = branches(keys, level)
        return emission.sample(level, states, keys).astype(self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"<PerLevel: {self.n_levels} emissions, the first {self.emissions[0]!r}>"


def _where(mask: NDArray[np.bool_]) -> str:
    """Return the index of the first True, as text."""
    return str([int(i) for i in np.argwhere(mask)[0]])


def _multiplied(matrix: NDArray[np.float64], emission: Emission) -> Drawing | None:
    """Return the drawing of an emission that is multiplied by a matrix."""
    inner = emission.drawing()
    if inner is None:
        return None
    return inner._replace(matrix=matrix if inner.matrix is None else matrix @ inner.matrix)


# --- one observation, in compiled loops: the same numbers as `sample` draws -----------------------
@inlined
def bit(constants, level, state, key, j):
    """`OneHotBernoulli`; constants: number of states, probability of 1."""
    i = j - int(constants[0])
    if i < 0:
        return 1.0 if j == state else 0.0
    if constants[1] == 0.5:
        return np.int64((draw(key, i // 64) >> np.uint64(63 - i % 64)) & np.uint64(1)) * 1.0
    return 1.0 if uniform(key, i) < constants[1] else 0.0


@inlined
def single_normal(constants, level, state, key, j):
    """`OneHotGaussian`, in single precision; constants: standard deviation."""
    noise = np.float32(np.float32(normal(key, j)) * np.float32(constants[0]))
    return float(np.float32(noise + np.float32(1.0)) if j == state else noise)


@inlined
def coordinate(constants, level, state, key, j):
    """`StateAndLevel`; constants: number of states, standard deviation, coordinates with noise."""
    y = constants[1] * normal(key, j) if j < constants[2] else 0.0
    return y + (j == state) + (j == int(constants[0]) + level)


# --- compiled loops -------------------------------------------------------------------------------
@jit
def scale_and_mark(x: NDArray[np.float32], sigma: np.float32, states: NDArray[np.int64]) -> None:
    """Multiply x (n, d) by sigma, and add 1 to the coordinate states[i] of row i, in place."""
    n, d = x.shape
    for i in range(n):
        for j in range(d):
            x[i, j] *= sigma
        x[i, states[i]] += np.float32(1.0)


@jit
def write_normals(
    keys: NDArray[np.uint64], sigma: float, noisy: int, x: NDArray[np.float64]
) -> None:
    """Write normal numbers, times sigma, to the first `noisy` columns of x (n, d), and 0 to the
    others. keys: (n,).
    """
    for i in range(len(keys)):
        for j in range(noisy):
            x[i, j] = sigma * normal(keys[i], j)
        for j in range(noisy, x.shape[1]):
            x[i, j] = 0.0


@jit
def branches(keys: NDArray[np.uint64], i: int) -> NDArray[np.uint64]:
    """Return the key of the i-th stream below each key, (n,)."""
    out = np.empty(len(keys), np.uint64)
    for n in range(len(keys)):
        out[n] = child(keys[n], i)
    return out


@jit
def markov_bits(
    keys: NDArray[np.uint64],
    level: int,
    start: NDArray[np.float64],
    rise: NDArray[np.float64],
    fall: NDArray[np.float64],
) -> NDArray[np.int8]:
    """Return the bits (n, d) at a level; each bit is a Markov chain with two states.

    Bit j at level 0 is drawn with `uniform(key, j)`. Its flip on the way to level t is drawn with
    `uniform(key, t * d + j)`. So all levels of one key belong to the same chains.

    keys: (n,). start, rise, fall: (d,), the probabilities of 1 at level 0, of 0 -> 1 and of 1 -> 0.
    """
    d = len(start)
    out = np.empty((len(keys), d), np.int8)
    for i in range(len(keys)):
        if i > 0 and keys[i] == keys[i - 1]:
            out[i] = out[i - 1]
            continue
        for j in range(d):
            out[i, j] = uniform(keys[i], j) < start[j]
        for t in range(1, level + 1):
            for j in range(d):  # no branches: a processor could not predict them
                u = uniform(keys[i], t * d + j)
                out[i, j] = (u < rise[j]) * (1 - out[i, j]) + (u >= fall[j]) * out[i, j]
    return out


@jit
def hadamard_transform(x: NDArray[np.float64]) -> None:
    """Multiply each row by Sylvester's Hadamard matrix, in place. x: (n, d), d a power of two.

    Two steps are done at once, as long as there are two, so that numbers are read and written half
    as often.
    """
    n, d = x.shape
    for i in range(n):
        step = 1
        while 4 * step <= d:
            for start in range(0, d, 4 * step):
                for j in range(start, start + step):
                    a, b = x[i, j], x[i, j + step]
                    c, e = x[i, j + 2 * step], x[i, j + 3 * step]
                    a, b, c, e = a + b, a - b, c + e, c - e
                    x[i, j], x[i, j + step] = a + c, b + e
                    x[i, j + 2 * step], x[i, j + 3 * step] = a - c, b - e
            step *= 4
        for j in range(step if step < d else 0):
            a, b = x[i, j], x[i, j + step]
            x[i, j], x[i, j + step] = a + b, a - b
