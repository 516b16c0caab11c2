"""How a latent state becomes an observation: q(x | s) of a Block MDP.

An emission is a small class: what its observations look like, and `sample`. To add one, subclass
`Emission` and turn the keys that `sample` is given into noise with the functions of `blockmdp.rng`:

>>> class Shifted(Emission):
...     "The state's number plus a normal number."
...
...     def __init__(self, n_states):
...         self.n_states, self.dim = n_states, 1
...
...     def sample(self, level, states, keys):
...         return rng.normals(keys, 1) + states[:, None]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blockmdp import rng
from blockmdp.checks import check_integer
from blockmdp.jit import jit
from blockmdp.rng import child, uniform

__all__ = [
    "Digits",
    "Emission",
    "ExogenousBits",
    "Hadamard",
    "Linear",
    "MarkovBits",
    "OneHotBernoulli",
    "OneHotGaussian",
    "PerLevel",
    "StateAndLevel",
]


class Emission(ABC):
    """The law of an observation given the level and the latent state."""

    n_states: int
    """Latent states it can show."""
    dim: int
    """Length of an observation."""
    dtype: Any = np.float64
    low: float = -np.inf
    high: float = np.inf
    finite: bool = False
    """Whether observations are of finitely many kinds, so that a table can hold them."""
    stationary: bool = True
    """Whether all levels emit alike (`sample` then ignores its level)."""
    n_levels: int | None = None
    """Levels it has laws for; None: any number."""
    per_episode: bool = False
    """Whether an episode's noise hangs together: `sample` is then given the key of the episode, the
    same at all its levels. What is computed level by level, such as `agent.value()`, then takes the
    decoder's errors at different levels for independent, which they need not be."""

    @abstractmethod
    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        """Draw one observation for each latent state, (n, dim), with the randomness of its key.

        Row i must be a function of (level, states[i], keys[i]) alone.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.n_states} states in {self.dim} dimensions>"


class OneHotBernoulli(Emission):
    """The state's one-hot code followed by independent bits, in {0, 1}^(n_states + n_bits).

    Parameters
    ----------
    n_states, n_bits : int
    p : probability that a bit is 1.
    """

    dtype = np.int8
    low, high = 0.0, 1.0
    finite = True

    def __init__(self, n_states: int, n_bits: int, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"OneHotBernoulli: p must be in [0, 1], got {p!r}")
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
            x[:, self.n_states :] = rng.bits(keys, self.n_bits)
        else:
            x[:, self.n_states :] = rng.uniforms(keys, self.n_bits) < self.p
        return x

    def __repr__(self) -> str:
        return f"OneHotBernoulli({self.n_states}, {self.n_bits}, p={self.p})"


class OneHotGaussian(Emission):
    """The state's one-hot code, padded with `n_extra` zeros, plus N(0, sigma^2) noise on every
    coordinate.

    Parameters
    ----------
    n_states, n_extra : int
    sigma : standard deviation of the noise.
    truncate : draw the noise given that no coordinate of it exceeds `bound` = 0.499. The blocks of
        different states are then disjoint, as a Block MDP asks (Feng et al. 2020, footnote on
        Gaussian mixtures); without it they overlap.
    """

    dtype = np.float32
    bound = 0.499

    def __init__(
        self, n_states: int, n_extra: int, sigma: float, *, truncate: bool = False
    ) -> None:
        if not 0 <= sigma < np.inf:
            raise ValueError(f"OneHotGaussian: sigma must be finite and >= 0, got {sigma!r}")
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
        x *= np.float32(self.sigma)
        x[np.arange(len(states)), states] += 1
        return x

    def __repr__(self) -> str:
        truncate = ", truncate=True" if self.truncate else ""
        return f"OneHotGaussian({self.n_states}, {self.n_extra}, sigma={self.sigma}{truncate})"


class Linear(Emission):
    """Another emission seen through a fixed linear map: x -> matrix @ x (a rotation, a Hadamard
    matrix, ...).

    Parameters
    ----------
    emission : the emission underneath.
    matrix : (dim, emission.dim).
    """

    def __init__(self, emission: Emission, matrix: ArrayLike) -> None:
        m = np.array(matrix, np.float64)
        if m.ndim != 2 or m.shape[1] != emission.dim:
            raise ValueError(
                f"Linear: matrix must have the shape (any, {emission.dim}), to fit {emission!r}; "
                f"got {m.shape}"
            )
        if not np.isfinite(m).all():
            raise ValueError(f"Linear: matrix{_where(~np.isfinite(m))} is not finite")
        m.setflags(write=False)
        self.emission, self.matrix = emission, m
        self.n_states, self.dim = emission.n_states, len(m)
        self.finite, self.stationary = emission.finite, emission.stationary
        self.n_levels, self.per_episode = emission.n_levels, emission.per_episode
        self.dtype = np.float32 if emission.dtype == np.float32 else np.float64

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        # einsum's own loop, not BLAS: a row must not depend on how many rows there are
        x = self.emission.sample(level, states, keys).astype(np.float64, order="C")
        return np.asarray(np.einsum("nj,ij->ni", x, self.matrix, optimize=False), self.dtype)

    def __repr__(self) -> str:
        return f"Linear({self.emission!r}, <{self.dim} x {self.emission.dim} matrix>)"


class StateAndLevel(Emission):
    """The state's one-hot code, then the level's, plus N(0, sigma^2) noise on some coordinates.

    Parameters
    ----------
    n_states, n_levels : int
    sigma : standard deviation of the noise.
    noisy : how many coordinates have noise, from the first; by default all.
    """

    stationary = False

    def __init__(
        self, n_states: int, n_levels: int, sigma: float, *, noisy: int | None = None
    ) -> None:
        if not 0 <= sigma < np.inf:
            raise ValueError(f"StateAndLevel: sigma must be finite and >= 0, got {sigma!r}")
        self.n_states = check_integer("n_states", n_states, 1)
        self.n_levels: int = check_integer("n_levels", n_levels, 1)
        self.dim = self.n_states + self.n_levels
        self.sigma = sigma
        self.noisy = self.dim if noisy is None else min(check_integer("noisy", noisy), self.dim)

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        x = np.zeros((len(states), self.dim))
        x[:, : self.noisy] = self.sigma * rng.normals(keys, self.noisy)
        x[np.arange(len(states)), states] += 1
        x[:, self.n_states + level] += 1
        return x

    def __repr__(self) -> str:
        return f"StateAndLevel({self.n_states}, {self.n_levels}, sigma={self.sigma})"


class ExogenousBits(Emission):
    """The state's one-hot code, then the level's, then bits that nothing the agent does has a part
    in, plus N(0, sigma^2) noise on every coordinate.

    At level 0 the bits are fair coins; from each level to the next every bit flips with probability
    `flip`. The Gaussian noise is drawn anew at every level.

    Parameters
    ----------
    n_states, n_levels, n_bits : int
    flip : probability that a bit flips, in [0, 1].
    sigma : standard deviation of the noise.

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
        if not 0 <= flip <= 1:
            raise ValueError(f"ExogenousBits: flip must be in [0, 1], got {flip!r}")
        if not 0 <= sigma < np.inf:
            raise ValueError(f"ExogenousBits: sigma must be finite and >= 0, got {sigma!r}")
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
    """The state's one-hot code at some places of a string of bits, each other bit of which is a
    Markov chain of two states.

    The chains start from their stationary laws, so that the bits of one level are distributed as
    those of any other; from level to level they move on by their rates.

    Parameters
    ----------
    places : (n_states,) where the one-hot code stands, no place twice.
    rise, fall : (dim,) the probabilities with which a bit goes from 0 to 1 and from 1 to 0; those
        at `places` are ignored.

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
                "MarkovBits: rise and fall must be as long as an observation, both; got "
                f"{self.rise.shape} and {self.fall.shape}"
            )
        for name, rate in (("rise", self.rise), ("fall", self.fall)):
            good = (rate >= 0) & (rate <= 1)  # false for NaN
            if not good.all():
                i = int((~good).argmax())
                raise ValueError(f"MarkovBits: {name}[{i}] is {rate[i]}, not a probability")
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
                f"MarkovBits: places must be different integers from 0 to {self.dim - 1}, one a "
                f"state; got {places!r}"
            )
        self.n_states = len(self.places)
        total = self.rise + self.fall
        total[self.places] = 1.0
        if not total.all():
            raise ValueError(
                f"MarkovBits: bit {int(total.argmin())} can never change, so it has no stationary "
                "law; give it a rise or a fall above 0"
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
        return f"<MarkovBits: {self.n_states} states at places of {self.dim} bits>"


Images = Literal["train", "test", "all"]


class Digits(Emission):
    """Each state is shown as a handwritten digit: one of its images, drawn at random.

    The images are the 1797 of scikit-learn's `load_digits` (Alpaydin and Kaynak 1998), 8 x 8 grey
    values scaled to [0, 1].

    Parameters
    ----------
    digits : (n_states,) which digit shows which state, no digit twice.
    images : "test" are the third, sixth, ... image of each digit, in the order of the data set,
        "train" are the others, "all" are both.

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
            raise ValueError(f"Digits: digits must be some of 0 to 9, one a state; got {digits!r}")
        if len(set(self.digits)) < len(self.digits):
            raise ValueError(f"Digits: no two states can have the same digit; got {digits!r}")
        from sklearn.datasets import load_digits  # here, since it takes a second to import

        x, y = load_digits(return_X_y=True)
        self.n_states, self.split = len(self.digits), images
        self.images = tuple(_part(x[y == d] / 16, images) for d in self.digits)

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


def _part(x: NDArray[np.float64], images: Images) -> NDArray[np.float32]:
    """The images of one digit that belong to a part of them."""
    test = np.arange(len(x)) % 3 == 2
    part = x if images == "all" else x[test if images == "test" else ~test]
    return part.astype(np.float32)


class Hadamard(Emission):
    """Another emission, padded with zeros to a power of two and multiplied by the Hadamard matrix
    (Sylvester's, entries +1 and -1), so that every coordinate tells a little of everything.

    Parameters
    ----------
    emission : the emission underneath.
    """

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self.n_states, self.n_levels = emission.n_states, emission.n_levels
        self.dim = 1 << max(emission.dim - 1, 0).bit_length()
        self.finite, self.stationary = emission.finite, emission.stationary
        self.per_episode = emission.per_episode

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.float64]:
        x = np.zeros((len(states), self.dim))
        x[:, : self.emission.dim] = self.emission.sample(level, states, keys)
        hadamard_transform(x)
        return x

    def __repr__(self) -> str:
        return f"Hadamard({self.emission!r})"


class PerLevel(Emission):
    """Another emission at each level.

    Parameters
    ----------
    emissions : one for each of the levels 0, ..., H (the last is seen after the last action).
    """

    stationary = False

    def __init__(self, emissions: Sequence[Emission]) -> None:
        if not emissions:
            raise ValueError("PerLevel: needs at least one emission")
        self.emissions = tuple(emissions)
        first = self.emissions[0]
        for h, e in enumerate(self.emissions):
            if (e.n_states, e.dim) != (first.n_states, first.dim):
                raise ValueError(
                    f"PerLevel: emissions[{h}] shows {e.n_states} states in {e.dim} dimensions, "
                    f"emissions[0] shows {first.n_states} in {first.dim}"
                )
        self.n_states, self.dim = first.n_states, first.dim
        self.n_levels = len(self.emissions)
        self.dtype = np.result_type(*(e.dtype for e in self.emissions)).type
        self.low = min(e.low for e in self.emissions)
        self.high = max(e.high for e in self.emissions)
        self.finite = all(e.finite for e in self.emissions)
        self.per_episode = any(e.per_episode for e in self.emissions)

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        emission = self.emissions[level]
        if self.per_episode and not emission.per_episode:  # its noise is its level's own
            keys = branches(keys, level)
        return emission.sample(level, states, keys).astype(self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"PerLevel([{self.emissions[0]!r}, ...{self.n_levels} in all])"


def _where(mask: NDArray[np.bool_]) -> str:
    return str([int(i) for i in np.argwhere(mask)[0]])


# --- compiled loops -------------------------------------------------------------------------------
@jit
def branches(keys, i):
    """The key of the i-th stream below each key, (n,)."""
    out = np.empty(len(keys), np.uint64)
    for n in range(len(keys)):
        out[n] = child(keys[n], i)
    return out


@jit
def markov_bits(keys, level, start, rise, fall):
    """Bits at a level, (n, d), each of which is a Markov chain of two states.

    Whether bit j is 1 at level 0 is drawn from `uniform(key, j)`, whether it flips on the way to
    level t from `uniform(key, t d + j)`, so that all levels of one key tell of one chain.

    keys: (n,). start, rise, fall: (d,), the probabilities of 1 at level 0, of 0 -> 1 and of 1 -> 0.
    """
    d = len(start)
    out = np.empty((len(keys), d), np.int8)
    for i in range(len(keys)):
        for j in range(d):
            out[i, j] = uniform(keys[i], j) < start[j]
        for t in range(1, level + 1):
            for j in range(d):  # without branches, which no processor could foresee
                u = uniform(keys[i], t * d + j)
                out[i, j] = (u < rise[j]) * (1 - out[i, j]) + (u >= fall[j]) * out[i, j]
    return out


@jit
def hadamard_transform(x):
    """Multiply every row by Sylvester's Hadamard matrix, in place. x: (n, d), d a power of two."""
    n, d = x.shape
    for i in range(n):
        step = 1
        while step < d:
            for start in range(0, d, 2 * step):
                for j in range(start, start + step):
                    a = x[i, j]
                    b = x[i, j + step]
                    x[i, j] = a + b
                    x[i, j + step] = a - b
            step *= 2
