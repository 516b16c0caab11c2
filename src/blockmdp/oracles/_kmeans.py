"""Compiled loops of k-means: k-means++ (Arthur and Vassilvitskii 2007) and Lloyd's iterations.

The algorithm is that of scikit-learn's KMeans. Of several candidates for the next centre, the one
that leaves the smallest sum of squares is taken. An empty cluster takes the point that is farthest
from its centre. Points are stored by coordinates, (d, n): the inner loops run over points, so the
compiler vectorises them without changing the order of any sum, and all CPUs give the same clusters.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from blockmdp.jit import inlined, jit
from blockmdp.rng import child, integer, uniform

__all__ = ["Clusters", "kmeans"]


class Clusters(NamedTuple):
    """The result of `kmeans`."""

    centres: Any  # (K, d)
    labels: Any  # (n,), the nearest centre of each point
    inertia: float  # sum of the squared distances from it
    n_iter: int


class Sums(NamedTuple):
    """The sum of the points of each cluster, and their number. Changed in place."""

    points: Any  # (K, d)
    sizes: Any  # (K,)


@jit
def kmeans(x, K, n_init, max_iter, tol, key):
    """Return the `Clusters` with the smallest inertia of `n_init` starts.

    x: (n, d). A start ends when no label changes, or when the squares of the moves of all centres
    sum to less than `tol` times the variance of a coordinate.
    """
    n, d = x.shape
    columns = np.empty((d, n))
    middle = np.zeros(d)
    variance = 0.0
    for j in range(d):
        for i in range(n):
            middle[j] += x[i, j] / n
        for i in range(n):
            columns[j, i] = x[i, j] - middle[j]  # around 0, products lose fewer digits
            variance += columns[j, i] * columns[j, i] / (n * d)
    best = Clusters(np.empty((0, 0)), np.empty(0, np.int64), np.inf, 0)
    for start in range(n_init):
        C = seeds(columns, K, np.uint64(child(key, start)))
        found = lloyd(columns, C, max_iter, tol * variance)
        if found.inertia < best.inertia:
            best = found
    return Clusters(best.centres + middle, best.labels, best.inertia, best.n_iter)


@jit
def seeds(columns, K, key):
    """Draw K centres (K, d) by k-means++."""
    d, n = columns.shape
    C = np.empty((K, d))
    nearest = np.empty(n)  # squared distance of each point from the nearest centre
    tried = np.empty(n)
    best = np.empty(n)
    C[0] = columns[:, integer(key, 0, n)]
    distances(columns, C[0], nearest)
    drawn = 1
    for k in range(1, K):
        total = 0.0
        for i in range(n):
            total += nearest[i]
        least = np.inf
        for _ in range(2 + int(math.log(K))):
            goal = uniform(key, drawn) * total
            drawn += 1
            i = 0
            passed = nearest[0]
            while passed <= goal and i < n - 1:
                i += 1
                passed += nearest[i]
            distances(columns, columns[:, i].copy(), tried)
            left = 0.0
            for m in range(n):
                tried[m] = min(tried[m], nearest[m])
                left += tried[m]
            if left < least:
                least = left
                C[k] = columns[:, i]
                tried, best = best, tried
        nearest, best = best, nearest
    return C


@inlined
def distances(columns, c, out):
    """Write the squared distances of all points from c (d,) to `out` (n,)."""
    d, n = columns.shape
    out[:] = 0.0
    for j in range(d):
        for i in range(n):
            t = columns[j, i] - c[j]
            out[i] += t * t


@jit
def lloyd(columns, C, max_iter, tol):
    """Move the centres C (K, d) to the means of their points, again and again."""
    d, n = columns.shape
    K = len(C)
    labels = np.full(n, -1, np.int64)
    sums = Sums(np.zeros((K, d)), np.zeros(K))
    n_iter = 0
    moved = np.inf
    while assign(columns, C, labels, sums) and n_iter < max_iter and moved > tol:
        fill_empty(columns, C, labels, sums)
        n_iter += 1
        moved = 0.0
        for k in range(K):
            if sums.sizes[k] > 0.0:
                for j in range(d):
                    mean = sums.points[k, j] / sums.sizes[k]
                    moved += (mean - C[k, j]) * (mean - C[k, j])
                    C[k, j] = mean
    inertia = 0.0
    for i in range(n):
        inertia += distance(columns, i, C, labels[i])
    return Clusters(C, labels, inertia, n_iter)


@jit
def assign(columns, C, labels, sums):
    """Label each point with its nearest centre c; return whether a label changed.

    |x - c|^2 is smallest where |c|^2 / 2 - c . x is.
    """
    K, d = C.shape
    n = len(labels)
    best = np.full(n, np.inf)
    nearest = np.zeros(n, np.int64)
    scores = np.empty(n)
    for k in range(K):
        scores[:] = 0.0
        half = 0.0
        for j in range(d):
            c = C[k, j]
            half += 0.5 * c * c
            for i in range(n):
                scores[i] -= c * columns[j, i]
        for i in range(n):
            score = half + scores[i]
            nearest[i] = k if score < best[i] else nearest[i]
            best[i] = min(score, best[i])
    changed = False
    for i in range(n):
        if nearest[i] != labels[i]:
            changed = True
            move(columns, i, nearest[i], labels, sums)
    return changed


@jit
def fill_empty(columns, C, labels, sums):
    """Give each empty cluster the point that is farthest from its centre, if there is one."""
    for k in range(len(C)):
        if sums.sizes[k] == 0.0:
            farthest = 0
            most = 0.0
            for i in range(len(labels)):
                square = distance(columns, i, C, labels[i])
                if square > most:
                    most = square
                    farthest = i
            if most > 0.0:
                move(columns, farthest, k, labels, sums)
                C[k] = columns[:, farthest]


@inlined
def move(columns, i, k, labels, sums):
    """Move point i to cluster k."""
    old = labels[i]
    for j in range(len(columns)):
        if old >= 0:
            sums.points[old, j] -= columns[j, i]
        sums.points[k, j] += columns[j, i]
    if old >= 0:
        sums.sizes[old] -= 1.0
    sums.sizes[k] += 1.0
    labels[i] = k


@inlined
def distance(columns, i, C, k):
    """Return the squared distance of point i from centre k."""
    total = 0.0
    for j in range(len(columns)):
        t = columns[j, i] - C[k, j]
        total += t * t
    return total
