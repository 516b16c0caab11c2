"""Random numbers as pure functions: each number depends on a key and an index alone.

A key is 64 bits, an `np.uint64`. `draw(key, i)` is the i-th output of a SplitMix64 generator
(Steele, Lea and Flood 2014) that starts at `key`. `child(key, i)` is the key of the i-th stream
below `key`. There is no state to store or to advance, so results do not depend on the order of
calls, on batch sizes, on the process or on the engine.

Python code derives keys with `key(k, i, ...)`. Compiled code calls `np.uint64(child(k, i))`.

>>> k = key(root(0), 7)
>>> uniform(k, 0) == uniform(k, 0)
True
>>> normals(np.array([k]), 3).shape
(1, 3)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit

__all__ = [
    "bits",
    "child",
    "children",
    "draw",
    "gamma",
    "integer",
    "key",
    "normal",
    "normals",
    "root",
    "step",
    "truncated_normals",
    "uniform",
    "uniforms",
]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BRANCH = np.uint64(0xD1B54A32D192ED03)
_STEP = np.uint64(0xD1342543DE82EF95)
_MUL1 = np.uint64(0xBF58476D1CE4E5B9)
_MUL2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31, _11, _63 = (np.uint64(n) for n in (27, 30, 31, 11, 63))


@inlined
def mix(z):
    """Scramble 64 bits; different inputs give different outputs."""
    z = (z ^ (z >> _30)) * _MUL1
    z = (z ^ (z >> _27)) * _MUL2
    return z ^ (z >> _31)


@inlined
def draw(key, i):
    """Return the i-th 64 random bits of a stream.

    Parameters
    ----------
    key : np.uint64
        Key of the stream.
    i : int
        Index of the draw, from 0.

    Returns
    -------
    np.uint64
        Random bits.
    """
    return mix(np.uint64(key) + np.uint64(i) * _GOLDEN)


@inlined
def child(key, i):
    """Return the key of the i-th stream below `key`, for use in compiled code.

    Wrap the result in `np.uint64`. Python code calls `key` instead.

    Parameters
    ----------
    key : np.uint64
        Key above the stream.
    i : int
        Number of the stream, from 0.

    Returns
    -------
    np.uint64
        Key of the stream. It is scrambled twice, so that it differs from all draws of `key`.
    """
    return mix(mix(np.uint64(key) + np.uint64(i) * _GOLDEN) ^ _BRANCH)


@inlined
def step(key, h):
    """Return the key of step h below `key`.

    This is cheaper than `child`. It is safe because an episode has few steps, and a step few draws.

    Parameters
    ----------
    key : np.uint64
        Key of the episode.
    h : int
        Number of the step, from 0.

    Returns
    -------
    np.uint64
        Key of the step.
    """
    return np.uint64(key) + np.uint64(h) * _STEP


@inlined
def uniform(key, i):
    """Return the i-th number of a stream, uniform on [0, 1).

    Parameters
    ----------
    key : np.uint64
        Key of the stream.
    i : int
        Index of the number, from 0.

    Returns
    -------
    float
        A multiple of 2**-53.
    """
    return np.int64(draw(key, i) >> _11) * 2.0**-53


@inlined
def integer(key, i, n):
    """Return the i-th number of a stream, uniform on 0, ..., n - 1.

    Parameters
    ----------
    key : np.uint64
        Key of the stream.
    i : int
        Index of the number, from 0.
    n : int
        Number of possible values.

    Returns
    -------
    int
        A number from 0 to n - 1.
    """
    return int(uniform(key, i) * n)


# --- normal numbers: a ziggurat of 256 layers (Marsaglia and Tsang 2000) --------------------------
_R = 3.6541528853610088  # start of the tail
_V = 0.00492867323399  # area of each layer
LARGEST_NORMAL = _R + math.sqrt(106.0 * math.log(2.0))  # the tail rejects what lies beyond


def _ziggurat() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the right edges x (257,) of the layers, widest first, and the densities f (257,)."""
    f = lambda x: math.exp(-0.5 * x * x)  # noqa: E731
    x = np.zeros(257)
    x[0], x[1] = _V / f(_R), _R
    for i in range(2, 256):
        x[i] = math.sqrt(-2.0 * math.log(_V / x[i - 1] + f(x[i - 1])))
    return x, np.array([f(e) for e in x])


_X, _F = _ziggurat()
_SCALE = np.append(_X[:256], -_X[:256]) * 2.0**-52  # of positive numbers, and of negative ones
_INSIDE = np.floor(2.0**52 * np.append(_X[1:256] / _X[:255], 0.0)).astype(np.int64)
_INSIDE = np.append(_INSIDE, _INSIDE)
_SIDE = np.uint64(
    511
)  # layer and sign: one look-up is faster than a branch that is hard to predict
_LAYER = np.uint64(255)
_SIGN = np.uint64(256)
_12 = np.uint64(12)


@inlined
def normal(key, i):
    """Return the i-th number of a stream, standard normal.

    Parameters
    ----------
    key : np.uint64
        Key of the stream.
    i : int
        Index of the number, from 0.

    Returns
    -------
    float
        A normal number with mean 0 and variance 1.
    """
    z = draw(key, i)
    side = np.int64(z & _SIDE)
    m = np.int64(z >> _12)
    if m < _INSIDE[side]:
        return m * _SCALE[side]
    return _normal_edge(z)


@jit
def _normal_edge(z):
    """Finish the one draw in a hundred that hits the edge of a layer.

    It needs more random bits, and gets them by scrambling z again.
    """
    while True:
        layer = np.int64(z & _LAYER)
        m = np.int64(z >> _12)
        sign = -1.0 if z & _SIGN else 1.0
        x = m * _SCALE[layer]
        if m < _INSIDE[layer]:
            return sign * x
        z = mix(z + _GOLDEN)
        u = (np.int64(z >> _11) + 1) * 2.0**-53  # (0, 1]
        if layer == 0:  # the tail, beyond _R
            z = mix(z + _GOLDEN)
            v = (np.int64(z >> _11) + 1) * 2.0**-53
            x = -math.log(u) / _R
            while -2.0 * math.log(v) < x * x:
                z = mix(z + _GOLDEN)
                u = (np.int64(z >> _11) + 1) * 2.0**-53
                z = mix(z + _GOLDEN)
                v = (np.int64(z >> _11) + 1) * 2.0**-53
                x = -math.log(u) / _R
            return sign * (_R + x)
        if _F[layer] + u * (_F[layer + 1] - _F[layer]) < math.exp(-0.5 * x * x):
            return sign * x
        z = mix(z + _GOLDEN)


@inlined
def gamma(key, i, shape):
    """Return the i-th number of a stream, with a gamma distribution of scale 1.

    The method is that of Marsaglia and Tsang (2000). It rejects some proposals, so each number has
    its own stream. Two short cuts, which change nothing, avoid most logarithms.

    Parameters
    ----------
    key : np.uint64
        Key of the stream.
    i : int
        Index of the number, from 0.
    shape : float
        Shape of the gamma distribution, greater than 0.

    Returns
    -------
    float
        A number > 0, or 0 if it is too small for a float.
    """
    key = np.uint64(child(key, i))
    boost = 1.0
    if shape < 1.0:
        u = uniform(key, 0)
        if u > 746.0 * shape:  # log(1 - u) < -u, and exp(-746) is 0
            return 0.0
        boost = math.exp(math.log(1.0 - u) / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    j = 1
    while True:
        x = normal(key, j)
        v = 1.0 + c * x
        v = v * v * v
        u = 1.0 - uniform(key, j + 1)
        if v > 0.0 and (
            u < 1.0 - 0.0331 * x * x * x * x
            or math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v)
        ):
            return d * v * boost
        j += 2


# --- whole arrays -------------------------------------------------------------------------------
@jit
def _children(key, start, n):
    out = np.empty(n, np.uint64)
    for i in range(n):
        out[i] = child(key, start + i)
    return out


@jit
def _uniforms(keys, d):
    out = np.empty((len(keys), d))
    for i in range(len(keys)):
        for j in range(d):
            out[i, j] = uniform(keys[i], j)
    return out


@jit
def _fill_normals(keys, d, out):
    for i in range(len(keys)):
        for j in range(d):
            out[i, j] = normal(keys[i], j)


@jit
def _fill_truncated_normals(keys, d, bound, out):
    for i in range(len(keys)):
        for j in range(d):
            key = np.uint64(child(keys[i], j))
            t = 0
            if bound > 1.0:
                x = normal(key, t)
                while abs(x) > bound:
                    t += 1
                    x = normal(key, t)
            else:  # propose uniform numbers: nearly all normal ones would be rejected
                x = bound * (2.0 * uniform(key, 0) - 1.0)
                while uniform(key, t + 1) >= math.exp(-0.5 * x * x):
                    t += 2
                    x = bound * (2.0 * uniform(key, t) - 1.0)
            out[i, j] = x


@jit
def _fill_bits(keys, d, out):
    for i in range(len(keys)):
        for j in range(d):
            if j % 64 == 0:
                z = draw(keys[i], j // 64)
            out[i, j] = z >> _63
            z = z << np.uint64(1)


def root(seed: int, stream: int = 0) -> np.uint64:
    """Return the key of a seed.

    Parameters
    ----------
    seed : int
        Seed, from 0 to 2**64 - 1.
    stream : int, default=0
        Number of the stream; `blockmdp.streams` lists the streams in use.

    Returns
    -------
    np.uint64
        Key of the stream.
    """
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise ValueError(f"seed must be an integer from 0 to 2**64 - 1, got {seed!r}")
    return key(np.uint64(seed), 0, stream)


def key(above: np.uint64, *path: int) -> np.uint64:
    """Return the key at the end of a path of streams.

    Parameters
    ----------
    above : np.uint64
        Key at which the path starts.
    *path : int
        Number of the stream to follow at each level. `key(k, 1, 2)` is stream 2 below stream 1 of
        `k`.

    Returns
    -------
    np.uint64
        Key of the last stream.
    """
    for i in path:
        above = np.uint64(child(above, i))
    return above


def children(key: np.uint64, start: int, n: int) -> NDArray[np.uint64]:
    """Return the keys of the streams start, ..., start + n - 1 below `key`.

    Parameters
    ----------
    key : np.uint64
        Key above the streams.
    start : int
        Number of the first stream.
    n : int
        Number of streams.

    Returns
    -------
    ndarray of shape (n,)
        Keys of the streams.
    """
    return _children(key, start, n)


def uniforms(keys: NDArray[np.uint64], d: int) -> NDArray[np.float64]:
    """Return the first d numbers of each stream, uniform on [0, 1).

    Parameters
    ----------
    keys : ndarray of shape (n,)
        Keys of the streams.
    d : int
        Numbers drawn from each stream.

    Returns
    -------
    ndarray of shape (n, d)
        Entry [i, j] is `uniform(keys[i], j)`.
    """
    return _uniforms(keys, d)


def normals(
    keys: NDArray[np.uint64], d: int, dtype: type[np.floating[Any]] = np.float64
) -> NDArray[Any]:
    """Return the first d standard normal numbers of each stream.

    Parameters
    ----------
    keys : ndarray of shape (n,)
        Keys of the streams.
    d : int
        Numbers drawn from each stream.
    dtype : type, default=np.float64
        Type of the result.

    Returns
    -------
    ndarray of shape (n, d)
        Entry [i, j] is `normal(keys[i], j)`.
    """
    out = np.empty((len(keys), d), dtype)
    _fill_normals(keys, d, out)
    return out


def truncated_normals(
    keys: NDArray[np.uint64], d: int, bound: float, dtype: type[np.floating[Any]] = np.float64
) -> NDArray[Any]:
    """Return d standard normal numbers of each stream, truncated to [-bound, bound].

    Parameters
    ----------
    keys : ndarray of shape (n,)
        Keys of the streams.
    d : int
        Numbers drawn from each stream.
    bound : float
        Largest absolute value allowed.
    dtype : type, default=np.float64
        Type of the result.

    Returns
    -------
    ndarray of shape (n, d)
        Numbers with the truncated normal distribution.
    """
    out = np.empty((len(keys), d), dtype)
    _fill_truncated_normals(keys, d, float(bound), out)
    return out


def bits(
    keys: NDArray[np.uint64],
    d: int,
    dtype: type[np.generic] = np.int8,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return d fair random bits of each stream.

    Parameters
    ----------
    keys : ndarray of shape (n,)
        Keys of the streams.
    d : int
        Bits drawn from each stream.
    dtype : type, default=np.int8
        Type of the result.
    out : ndarray of shape (n, d) or None, default=None
        Where to write them. None makes a new array.

    Returns
    -------
    ndarray of shape (n, d)
        Zeros and ones.
    """
    if out is None:
        out = np.empty((len(keys), d), dtype)
    elif out.shape != (len(keys), d):
        raise ValueError(f"out must have shape {(len(keys), d)}, got {out.shape}")
    _fill_bits(keys, d, out)
    return out
