"""Expectation maximisation for mixtures whose components are independent over coordinates: bits, or
Gaussians that all have one variance.

Both score a row by b + x W, up to what all components have in common. Sums run row by row, so that
the same data give the same mixture whatever the number of threads.
"""

from __future__ import annotations

import math

import numpy as np

from blockmdp.jit import jit

__all__ = ["em"]


@jit
def em(bits, x, r, prior, max_iter, tol):
    """Iterate from responsibilities r until the mean log-likelihood rises by less than tol.

    bits : whether x (n, d) are bits; else real numbers. r : (n, K), overwritten. prior : zeros and
    ones of each bit taken to have been seen, or variance added.

    Returns log weights (K,), means (K, d), the variance, the log-likelihood, iterations made.
    """
    n, d = x.shape
    K = r.shape[1]
    log_weight = np.empty(K)
    mu = np.empty((K, d))
    W = np.empty((d, K))
    b = np.empty(K)
    square = 0.0
    if not bits:
        for i in range(n):
            for j in range(d):
                square += x[i, j] * x[i, j]
    before = -np.inf
    total = -np.inf
    var = 1.0
    made = 0
    while made < max_iter:
        made += 1
        var = maximise(bits, x, square, r, prior, log_weight, mu, W, b)
        total = expect(x, W, b, r)
        if not bits:
            total -= 0.5 * square / var + 0.5 * n * d * math.log(2.0 * math.pi * var)
        if total - before < tol * n:
            break
        before = total
    return log_weight, mu, var, total, made


@jit
def maximise(bits, x, square, r, prior, log_weight, mu, W, b):
    """Parameters and scores of given responsibilities, in place; returns the variance."""
    n, d = x.shape
    K = r.shape[1]
    size = np.full(K, 1e-10)
    mu[:] = 0.0
    for i in range(n):
        for k in range(K):
            if r[i, k] > 1e-12:
                size[k] += r[i, k]
                for j in range(d):
                    mu[k, j] += r[i, k] * x[i, j]
    explained = 0.0
    for k in range(K):
        log_weight[k] = math.log(size[k] / n)
        b[k] = log_weight[k]
        for j in range(d):
            if bits:
                mu[k, j] = (mu[k, j] + prior) / (size[k] + 2.0 * prior)
                W[j, k] = math.log(mu[k, j]) - math.log(1.0 - mu[k, j])
                b[k] += math.log(1.0 - mu[k, j])
            else:
                mu[k, j] /= size[k]
                explained += size[k] * mu[k, j] * mu[k, j]
    if bits:
        return 1.0
    var = max(square - explained, 0.0) / (n * d) + prior
    for k in range(K):
        for j in range(d):
            W[j, k] = mu[k, j] / var
            b[k] -= 0.5 * mu[k, j] * W[j, k]
    return var


@jit
def expect(x, W, b, r):
    """Responsibilities, in place; returns the sum of log sum exp of the scores."""
    n, d = x.shape
    K = len(b)
    total = 0.0
    for i in range(n):
        row = r[i]
        row[:] = b
        for j in range(d):  # all components at once: so many sums can run side by side
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
