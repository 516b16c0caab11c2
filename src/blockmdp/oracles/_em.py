"""Compiled loops of mixtures with independent coordinates: expectation maximisation.

In such a mixture log p(x, k) is b[k] + x . W[:, k] up to a term that all components share. Sums
run row by row, so the same data give the same mixture for any number of threads.

Categories are counts too: the one-hot code of a category has as many Poisson counts with mean p as
there are categories, and their probability is p times exp(-1), whatever p is.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import jit

__all__ = ["BITS", "COUNTS", "REALS", "Fit", "Prior", "em"]

Floats = NDArray[np.float64]

REALS, BITS, COUNTS = 0, 1, 2  # what the coordinates are
TINY = 1e-300  # the rate of a count that is always 0


class Fit(NamedTuple):
    """The result of `em`."""

    log_weights: Any  # (K,)
    means: Any  # (K, d)
    variance: float  # of every coordinate; 1 for bits and counts
    log_likelihood: float  # for counts, without the term that all components share
    n_iter: int


class Prior(NamedTuple):
    """What is added to the data of each component. Real numbers only use `variance`."""

    sums: Any  # (d,), added to the sum of its rows
    sizes: Any  # (d,), added to their number
    variance: float


class Components(NamedTuple):
    """The parameters of a mixture, and the scores that follow from them. Changed in place."""

    log_weights: Any  # (K,)
    means: Any  # (K, d)
    W: Any  # (d, K)
    b: Any  # (K,)


def em(kind: int, x: Floats, r: Floats, prior: Prior, max_iter: int, tol: float) -> Fit:
    """Iterate until the mean log-likelihood rises by less than `tol`.

    kind: REALS, BITS or COUNTS. x: (n, d). r: (n, K) responsibilities to start from, overwritten.
    """
    d, K = x.shape[1], r.shape[1]
    components = Components(np.empty(K), np.empty((K, d)), np.empty((d, K)), np.empty(K))
    found = iterate(kind, x, r, prior, max_iter, tol, components)
    return Fit(components.log_weights, components.means, *found)


@jit
def iterate(kind, x, r, prior, max_iter, tol, components):
    """Set `components` to those of the last step; return the other parts of the `Fit`."""
    n, d = x.shape
    square = 0.0
    if kind == REALS:
        for i in range(n):
            for j in range(d):
                square += x[i, j] * x[i, j]
    before = -np.inf
    total = -np.inf
    variance = 1.0
    n_iter = 0
    while n_iter < max_iter:
        n_iter += 1
        variance = maximise(kind, x, square, r, prior, components)
        total = expect(x, components, r)
        if kind == REALS:
            total -= 0.5 * square / variance + 0.5 * n * d * math.log(2.0 * math.pi * variance)
        if total - before < tol * n:
            break
        before = total
    return variance, total, n_iter


@jit
def maximise(kind, x, square, r, prior, components):
    """M step: set the components for given responsibilities; return the variance."""
    n, d = x.shape
    K = r.shape[1]
    log_weights, means, W, b = components
    size = np.full(K, 1e-10)
    means[:] = 0.0
    for i in range(n):
        for k in range(K):
            if r[i, k] > 1e-12:
                size[k] += r[i, k]
                for j in range(d):
                    means[k, j] += r[i, k] * x[i, j]
    explained = 0.0
    for k in range(K):
        log_weights[k] = math.log(size[k] / n)
        b[k] = log_weights[k]
        for j in range(d):
            if kind == REALS:
                means[k, j] /= size[k]
                explained += size[k] * means[k, j] * means[k, j]
                continue
            means[k, j] = (means[k, j] + prior.sums[j]) / (size[k] + prior.sizes[j])
            if kind == BITS:
                W[j, k] = math.log(means[k, j]) - math.log(1.0 - means[k, j])
                b[k] += math.log(1.0 - means[k, j])
            else:
                means[k, j] = max(means[k, j], TINY)
                W[j, k] = math.log(means[k, j])
                b[k] -= means[k, j]
    if kind != REALS:
        return 1.0
    variance = max(square - explained, 0.0) / (n * d) + prior.variance
    for k in range(K):
        for j in range(d):
            W[j, k] = means[k, j] / variance
            b[k] -= 0.5 * means[k, j] * W[j, k]
    return variance


@jit
def expect(x, components, r):
    """E step: set the responsibilities; return the sum of log sum_k exp(score of k) over rows."""
    n, d = x.shape
    W, b = components.W, components.b
    K = len(b)
    total = 0.0
    for i in range(n):
        row = r[i]
        row[:] = b
        for j in range(d):  # the inner loop over components is what the compiler vectorises
            value = x[i, j]
            for k in range(K):
                row[k] += W[j, k] * value
        top = row[0]
        for k in range(1, K):
            top = max(top, row[k])
        mass = 0.0
        for k in range(K):
            row[k] = math.exp(row[k] - top)
            mass += row[k]
        for k in range(K):
            row[k] /= mass
        total += top + math.log(mass)
    return total
