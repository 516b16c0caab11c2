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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blockmdp import rng
from blockmdp.checks import whole_number
from blockmdp.kernels.transform import hadamard_transform

__all__ = [
    "Emission",
    "Hadamard",
    "Linear",
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
        whole_number("n_states", n_states, 1)
        whole_number("n_bits", n_bits)
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
        whole_number("n_states", n_states, 1)
        whole_number("n_extra", n_extra)
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
        self.n_levels = emission.n_levels
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
        self.n_states = whole_number("n_states", n_states, 1)
        self.n_levels: int = whole_number("n_levels", n_levels, 1)
        self.dim = self.n_states + self.n_levels
        self.sigma = sigma
        self.noisy = self.dim if noisy is None else min(whole_number("noisy", noisy), self.dim)

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

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        return self.emissions[level].sample(level, states, keys).astype(self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"PerLevel([{self.emissions[0]!r}, ...{self.n_levels} in all])"


def _where(mask: NDArray[np.bool_]) -> str:
    return str([int(i) for i in np.argwhere(mask)[0]])
