"""A lock with noise of many shapes, to see what a decoder can bear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_number, check_size
from blockmdp.emissions import Emission, branches
from blockmdp.envs.locks import N_ACTIONS, make_lock
from blockmdp.mdp import BlockMDP

__all__ = ["NOISES", "NoisyCode", "noisy_lock"]

NOISES = (
    *("round", "correlated", "direction", "directions", "by state", "by level"),
    *("heavy tails", "joint tails", "outliers"),
    *("counts", "categories", "numbered categories", "bits"),
)
DISCRETE = ("counts", "categories", "numbered categories", "bits")
CATEGORIES = 5
MOST = 60  # largest count


class NoisyCode(Emission):
    """A one-hot code of the state behind noise, permuted and rotated at random at each level.

    If the noise is discrete, it is the distribution of every coordinate that depends on the state,
    and nothing is rotated.

    Parameters
    ----------
    n_states : int
        Number of latent states.
    n_levels : int
        Number of levels.
    noise : str
        Kind of noise, one of `NOISES`.
    dim : int
        Number of coordinates, before categories are written as bits.
    sigma : float
        Scale of noise that is continuous.
    key : np.uint64
        Key of the rotations, the permutations and the distributions.
    """

    stationary = False

    def __init__(
        self, n_states: int, n_levels: int, noise: str, dim: int, sigma: float, key: np.uint64
    ) -> None:
        self.n_states, self.n_levels, self.noise, self.sigma = n_states, n_levels, noise, sigma
        self.dim = self._d = d = dim
        S, L = n_states, n_levels
        rotation, order, shape, scale, law = rng.children(key, 0, 5)
        turns = rng.normals(rng.children(rotation, 0, L), d * d).reshape(L, d, d)
        self._turns = np.linalg.qr(turns)[0]  # (L, d, d)
        self._places = rng.uniforms(rng.children(order, 0, L), d).argsort(axis=1)[:, :S]
        self._scales = np.full((L, S), sigma)
        if noise == "by state":
            self._scales *= np.resize([0.5, 1.0, 2.0], S)
        if noise == "by level":
            self._scales *= 0.3 + 1.7 * rng.uniforms(rng.children(scale, 0, L), 1)
        self._shape = np.eye(d)  # of noise with the scale 1
        if noise == "direction":
            self._shape[-1, -1] = 5.0
        if noise == "directions":
            self._shape[[-1, -2], [-1, -2]] = 20.0
        if noise == "correlated":
            axes = np.linalg.qr(rng.normals(rng.children(shape, 0, d), d))[0]
            self._shape = axes * np.geomspace(0.2, 3.0, d)
        u = rng.uniforms(rng.children(law, 0, L * S), d * CATEGORIES).reshape(L, S, d, CATEGORIES)
        third = (u[..., 0] * 3).astype(np.int64)
        if noise == "counts":
            self._chances = _poisson(np.array([1.0, 4.0, 12.0])[third])
        elif noise == "bits":
            one = np.array([0.05, 0.5, 0.95])[third]
            self._chances = np.stack([1 - one, one], axis=-1)
            self.dtype, self.low, self.high, self.finite = np.uint8, 0, 1, True
        else:  # squares of logarithms make some categories rare
            weights = np.log(u + 1e-12) ** 2
            self._chances = weights / weights.sum(axis=-1, keepdims=True)
        if noise == "categories":
            self.dim *= CATEGORIES
            self.dtype, self.low, self.high, self.finite = np.uint8, 0, 1, True

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[Any]:
        """Draw one observation for each latent state; see `Emission.sample`."""
        d = self._d
        if self.noise in DISCRETE:
            u = rng.uniforms(keys, d)[:, :, None]
            below = np.cumsum(self._chances[level, states], axis=2)[:, :, :-1]
            numbers = (u >= below).sum(axis=2)
            if self.noise == "categories":
                numbers = np.eye(CATEGORIES)[numbers].reshape(len(keys), -1)
            return np.asarray(numbers, self.dtype)
        z = rng.normals(keys, 4 * d)
        e = z[:, :d]
        if self.noise == "heavy tails":
            e = e / np.sqrt((z[:, d:].reshape(len(z), d, 3) ** 2).mean(axis=2))
        if self.noise == "joint tails":
            e = e / np.sqrt((z[:, d : d + 3] ** 2).mean(axis=1, keepdims=True))
        if self.noise == "outliers":
            rare = rng.uniforms(branches(keys, 1), 1) < 0.05
            e = np.where(rare, 20 * e, e)
        x = (e[:, None, :] * self._shape).sum(axis=2) * self._scales[level, states, None]
        x[np.arange(len(x)), self._places[level, states]] += 1
        return np.asarray((x[:, None, :] * self._turns[level]).sum(axis=2))

    def log_likelihood(self, level: int, x: NDArray[Any]) -> NDArray[np.float64]:
        """Compute how probable observations are in each state.

        Parameters
        ----------
        level : int
            Level at which they are made.
        x : ndarray of shape (n, dim)
            Observations.

        Returns
        -------
        ndarray of shape (n, S)
            Logarithms of probabilities or densities, up to a constant for each observation.
        """
        d = self._d
        out = np.empty((len(x), self.n_states))
        numbers = x
        if self.noise == "categories":
            numbers = x.reshape(len(x), d, CATEGORIES).argmax(axis=2)
        for s in range(self.n_states):
            if self.noise in DISCRETE:
                chances = np.log(np.maximum(self._chances[level, s], 1e-300))
                out[:, s] = chances[np.arange(d), numbers.astype(np.int64)].sum(axis=1)
                continue
            y = x @ self._turns[level]
            y[:, self._places[level, s]] -= 1
            scale = self._scales[level, s]
            e = np.linalg.solve(self._shape, y.T).T / scale
            square = (e**2).sum(axis=1)
            if self.noise == "heavy tails":
                log = -2 * np.log1p(e**2 / 3).sum(axis=1)
            elif self.noise == "joint tails":
                log = -(3 + d) / 2 * np.log1p(square / 3)
            elif self.noise == "outliers":
                rare = math.log(0.05) - d * math.log(20) - square / 800
                log = np.logaddexp(math.log(0.95) - square / 2, rare)
            else:
                log = -square / 2
            out[:, s] = log - d * math.log(scale)
        return out

    def __repr__(self) -> str:
        return f"<NoisyCode: {self.n_states} states in {self.dim} dimensions, {self.noise}>"


def _poisson(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities of 0, 1, ..., MOST, (..., MOST + 1)."""
    n = np.arange(MOST + 1)
    logs = n * np.log(rates)[..., None] - rates[..., None] - [math.lgamma(i + 1) for i in n]
    return np.asarray(np.exp(logs))


def noisy_lock(
    horizon: int = 10,
    noise: str = "correlated",
    switch: float = 0.2,
    sigma: float = 0.1,
    dim: int = 20,
    seed: int = 0,
) -> BlockMDP:
    """NoisyLock: the lock of the paper behind noise of a given kind, different at each level.

    The states, actions and rewards are those of `lock_bernoulli`. An observation is the one-hot
    code of the state, at places that differ from level to level, plus noise, rotated at random at
    each level. So each level needs its own decoder. If the noise is discrete, there is no code: the
    state decides how the coordinates are distributed.

    Parameters
    ----------
    horizon : int, default=10
        Number of actions in an episode, H.
    noise : str, default="correlated"
        Kind of noise: "round", "correlated", "direction", "directions", "by state", "by level",
        "heavy tails", "joint tails", "outliers", "counts", "categories", "numbered categories" or
        "bits"; see the notes.
    switch : float, default=0.2
        Probability of arriving in the other live state, in [0, 1].
    sigma : float, default=0.1
        Scale of the noise, if it is continuous.
    dim : int, default=20
        Number of coordinates, at least 3. Each category takes five bits.
    seed : int, default=0
        Seed of the combination, the rotations and the distributions.

    Returns
    -------
    BlockMDP
        The lock, with V* = 0.5.

    See Also
    --------
    lock_gaussian : The lock with the same round noise at all levels.
    exogenous_lock : Noise that depends on the past.

    Notes
    -----
    Noise has the standard deviation sigma in all directions if it is "round". Other kinds are:

    - correlated: from 0.2 to 3 sigma, in random directions that are the same at all levels before
      these are rotated;
    - direction, directions: 5 sigma in one direction, 20 sigma in two;
    - by state: sigma / 2, sigma and 2 sigma in the three states;
    - by level: 0.3 to 2 sigma, different at each level;
    - heavy tails: Student's t with 3 degrees of freedom in each coordinate;
    - joint tails: the same, with one random scale for all coordinates of an observation;
    - outliers: 20 sigma in 5 % of the observations.

    For the discrete kinds, a distribution is drawn for each level, state and coordinate:

    - counts: Poisson with a mean of 1, 4 or 12;
    - categories: one of five categories, as bits; numbered categories: numbered from 0 to 4;
    - bits: 1 with probability 0.05, 0.5 or 0.95.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.noisy_lock(horizon=10, noise="outliers")
    >>> m
    <NoisyLock: horizon 10, 3 states, 4 actions, <NoisyCode: 3 states in 20 dimensions, outliers>>
    >>> x = m.sample(level=4, state=2, n=5)
    >>> m.emission.log_likelihood(4, x).argmax(axis=1)
    array([2, 2, 2, 2, 2])
    """
    H = check_integer("horizon", horizon, 1)
    check_size(H, 3, N_ACTIONS)
    dim = check_integer("dim", dim, 3)
    if noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(map(repr, NOISES))}, got {noise!r}")
    sigma = check_number("sigma", sigma, 0, closed="neither")
    key = rng.key(streams.problem(seed), 2**40)
    emission = NoisyCode(3, H + 1, noise, dim, sigma, key)
    return make_lock("NoisyLock", H, switch, seed, emission)
