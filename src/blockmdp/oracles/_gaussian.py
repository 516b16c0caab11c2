"""Compiled loops of `GaussianMixture`: k-means for a start, then expectation maximisation.

Log p(x, k) is c[k] - |W[k] x + b[k]|^2 / 2 for every type of covariance, as in `QuadraticScores`. A
component is scored until it is known that it cannot be responsible for a row. Sums run row by row,
so the same data give the same mixture for any number of threads.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import index, inlined, jit
from blockmdp.oracles.scores import bands, half_square

__all__ = ["TYPES", "GaussianFit", "best_of_starts"]

Floats = NDArray[np.float64]

TYPES = ("full", "tied", "diag", "spherical")  # their indices are the argument `kind` below
FULL, TIED, DIAG, SPHERICAL = range(4)
LLOYD = 30  # most iterations of k-means; more hardly improve the mixtures
IMPOSSIBLE = 40.0  # nats by which a component is less probable if its share is not counted


class GaussianFit(NamedTuple):
    """The result of `best_of_starts`, and the components during `em`, changed in place."""

    log_weights: Any  # (K,)
    means: Any  # (K, d)
    covariances: Any  # (K, d, d)
    W: Any  # (K, d, d), inverses of the Cholesky factors of the covariances
    b: Any  # (K, d)
    c: Any  # (K,)
    log_likelihood: float  # -inf if no start worked
    n_iter: int


def best_of_starts(
    kind: int, x: Floats, uniforms: Floats, reg: float, max_iter: int, tol: float
) -> GaussianFit:
    """Fit a mixture to x (n, d) from several starts, and return the `GaussianFit` that is most
    likely. A start that gives the same clusters as another one is left out.

    uniforms: (starts, K, trials), random numbers for `seed_centres`.
    """
    starts = (clusters(x, numbers) for numbers in uniforms)
    owners = {owner.tobytes(): owner for owner in starts}
    fits = (em(kind, x, owner, uniforms.shape[1], reg, max_iter, tol) for owner in owners.values())
    return max(fits, key=lambda fit: fit.log_likelihood)


def em(
    kind: int, x: Floats, owner: NDArray[np.int64], K: int, reg: float, max_iter: int, tol: float
) -> GaussianFit:
    """Iterate until the mean log-likelihood changes by less than `tol`.

    owner: (n,), component of each row to start from.
    """
    d = x.shape[1]
    log_weights, c = np.zeros(K), np.zeros(K)
    means, b = np.zeros((K, d)), np.zeros((K, d))
    S, W = np.zeros((K, d, d)), np.zeros((K, d, d))
    fit = GaussianFit(log_weights, means, S, W, b, c, -np.inf, 0)
    log_likelihood, n_iter = iterate(kind, x, owner, reg, max_iter, tol, fit)
    return fit._replace(log_likelihood=log_likelihood, n_iter=n_iter)


@jit
def iterate(kind, x, owner, reg, max_iter, tol, fit):
    """Set the arrays of `fit`; return its log-likelihood, and the number of iterations."""
    n, d = x.shape
    r = np.zeros((n, len(fit.c)))
    for i in range(n):
        r[i, owner[i]] = 1.0
    works = maximise(kind, x, r, reg, fit)
    before = -np.inf
    change = np.inf
    n_iter = 0
    while works and n_iter < max_iter and change >= tol:
        n_iter += 1
        mean = expect(x, fit, r) / n - 0.5 * d * math.log(2.0 * math.pi)
        works = maximise(kind, x, r, reg, fit)
        change = abs(mean - before)
        before = mean
    return n * before if works and not math.isnan(before) else -np.inf, n_iter


@jit
def expect(x, fit, r):
    """E step: set the responsibilities; return the sum of log sum_k exp(score of k) over rows."""
    n, d = x.shape
    W, b = fit.W, fit.b
    K = len(b)
    band = bands(W)
    head = min(d, 4)
    scores = np.empty(K)
    total = 0.0
    for i in range(n):
        row = x[i]
        leader = 0
        for k in range(K):
            scores[k] = fit.c[k] - half_square(W, b, index(k), 0, head, band, row, np.inf)
            if scores[k] > scores[leader]:
                leader = k
        scores[leader] -= half_square(W, b, index(leader), head, d, band, row, np.inf)
        top = scores[leader]
        for k in range(K):
            if k != leader:
                behind = scores[k] - top + IMPOSSIBLE
                if behind >= 0.0:
                    scores[k] -= half_square(W, b, index(k), head, d, band, row, behind)
                top = max(top, scores[k])
        mass = 0.0
        for k in range(K):
            likely = scores[k] >= top - IMPOSSIBLE
            r[i, k] = math.exp(scores[k] - top) if likely else 0.0
            mass += r[i, k]
        for k in range(K):
            r[i, k] /= mass
        total += top + math.log(mass)
    return total


@jit
def maximise(kind, x, r, reg, fit):
    """M step: set the components for given responsibilities; return whether that was possible."""
    n, d = x.shape
    K = r.shape[1]
    size = np.full(K, 10.0 * 2.0**-52)
    means, S = fit.means, fit.covariances
    means[:] = 0.0
    S[:] = 0.0
    for i in range(n):
        for k in range(K):
            if r[i, k] > 0.0:
                size[k] += r[i, k]
                for j in range(d):
                    means[k, j] += r[i, k] * x[i, j]
    for k in range(K):
        fit.log_weights[k] = math.log(size[k] / n)
        for j in range(d):
            means[k, j] /= size[k]
    scatter(kind, x, r, means, S)
    works = True
    for k in range(K):
        if kind == TIED and k > 0:
            S[k] = S[0]
            fit.W[k] = fit.W[0]
        else:
            weight = float(n) if kind == TIED else size[k]
            average(kind, S[k], weight, reg)
            works = works and invert_factor(S[k], fit.W[k])
        fit.c[k] = fit.log_weights[k]
        for i in range(d):
            fit.c[k] += math.log(fit.W[k, i, i])
            fit.b[k, i] = 0.0
            for j in range(i + 1):
                fit.b[k, i] -= fit.W[k, i, j] * means[k, j]
    return works


@jit
def scatter(kind, x, r, means, S):
    """Add up the products of deviations from the means: lower triangles, or diagonals only; all in
    S[0] if components share their covariance.
    """
    n, d = x.shape
    K = r.shape[1]
    away = np.empty(d)
    squares = np.zeros((K, d))
    for i in range(n):
        for k in range(K):
            if r[i, k] > 0.0:
                for j in range(d):
                    away[j] = x[i, j] - means[k, j]
                if kind in (FULL, TIED):
                    sums = S[0 if kind == TIED else k]
                    for j in range(d):
                        value = r[i, k] * away[j]
                        for m in range(j + 1):
                            sums[j, m] += value * away[m]
                else:
                    for j in range(d):
                        squares[k, j] += r[i, k] * away[j] * away[j]
    if kind not in (FULL, TIED):
        for k in range(K):
            for j in range(d):
                S[k, j, j] = squares[k, j]


@jit
def average(kind, S, size, reg):
    """Turn sums of products into a covariance matrix, in place."""
    d = len(S)
    if kind == SPHERICAL:
        mean = 0.0
        for j in range(d):
            mean += S[j, j] / d
        for j in range(d):
            S[j, j] = mean
    for j in range(d):
        for m in range(j + 1):
            S[j, m] /= size
            S[m, j] = S[j, m]
        S[j, j] += reg


@jit
def invert_factor(S, W):
    """Set W to the inverse of the Cholesky factor of S; return whether S is positive definite."""
    d = len(S)
    W[:] = 0.0
    for j in range(d):  # the factor, for now
        for i in range(j, d):
            value = S[i, j]
            for m in range(j):
                value -= W[i, m] * W[j, m]
            if i > j:
                W[i, j] = value / W[j, j]
            elif value > 0.0:
                W[j, j] = math.sqrt(value)
            else:
                W[:] = np.eye(d)
                return False
    for j in range(d):
        W[j, j] = 1.0 / W[j, j]
        for i in range(j + 1, d):
            value = 0.0
            for m in range(j, i):
                value -= W[i, m] * W[m, j]
            W[i, j] = value / W[i, i]
    return True


# --- the start -----------------------------------------------------------------------------------
@jit
def clusters(x, uniforms):
    """Return the clusters (n,) that k-means finds in x, numbered as they appear."""
    owner = np.empty(len(x), np.int64)
    lloyd(x, seed_centres(x, uniforms), owner, LLOYD)
    number_by_appearance(owner, len(uniforms))
    return owner


@jit
def seed_centres(x, uniforms):
    """Draw rows far from each other, as greedy k-means++ does; return them as centres (K, d).

    uniforms: (K, trials), random numbers. The first row needs one; each other row is the best of
    `trials`.
    """
    n, d = x.shape
    K, trials = uniforms.shape
    centres = np.empty((K, d))
    nearest = np.full(n, np.inf)
    new = np.empty(n)
    best = np.empty(n)
    for k in range(K):
        least = np.inf
        total = nearest.sum() if k else 0.0
        for trial in range(trials if k else 1):
            i = min(int(uniforms[k, trial] * n), n - 1)
            if k:
                left = uniforms[k, trial] * total
                i = 0
                while i < n - 1 and left >= nearest[i]:
                    left -= nearest[i]
                    i += 1
            sum_of_new = 0.0
            for m in range(n):
                square = 0.0
                for j in range(d):
                    square += (x[m, j] - x[i, j]) * (x[m, j] - x[i, j])
                new[m] = min(nearest[m], square)
                sum_of_new += new[m]
            if sum_of_new < least:
                least = sum_of_new
                centres[k] = x[i]
                best[:] = new
        nearest[:] = best
    return centres


@jit
def lloyd(x, centres, owner, max_iter):
    """K-means from given centres (K, d), which change; set the cluster of each row, owner (n,)."""
    n, d = x.shape
    K = len(centres)
    halves = np.empty(K)
    counts = np.empty(K)
    sums = np.empty_like(centres)
    owner[:] = -1
    moved = 1
    n_iter = 0
    while n_iter < max_iter and moved:
        n_iter += 1
        moved = 0
        counts[:] = 0.0
        sums[:] = 0.0
        for k in range(K):
            halves[k] = 0.5 * dot(centres[k], centres[k])
        for i in range(n):
            row = x[i]
            label = 0
            best = -np.inf
            for k in range(K):
                score = dot(centres[k], row) - halves[k]
                if score > best:
                    best = score
                    label = k
            moved += owner[i] != label
            owner[i] = label
            counts[label] += 1.0
            for j in range(d):
                sums[label, j] += row[j]
        for k in range(K):
            if counts[k] > 0.0:
                for j in range(d):
                    centres[k, j] = sums[k, j] / counts[k]
            else:
                centres[k] = x[farthest(x, sums, counts, owner)]


@jit
def farthest(x, sums, counts, owner):
    """Return the row that is farthest from the mean of its cluster."""
    worst = 0
    most = -1.0
    for i in range(len(x)):
        k = owner[i]
        square = 0.0
        for j in range(x.shape[1]):
            away = x[i, j] - sums[k, j] / counts[k]
            square += away * away
        if square > most:
            most = square
            worst = i
    return worst


@inlined
def dot(a, b):
    """Return a . b."""
    total = 0.0
    for j in range(len(a)):
        total += a[index(j)] * b[index(j)]
    return total


@jit
def number_by_appearance(owner, K):
    """Number clusters in the order in which they first appear."""
    numbers = np.full(K, -1)
    n_labels = 0
    for i in range(len(owner)):
        if numbers[owner[i]] < 0:
            numbers[owner[i]] = n_labels
            n_labels += 1
        owner[i] = numbers[owner[i]]
