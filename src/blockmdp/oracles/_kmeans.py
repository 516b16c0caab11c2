"""Compiled loops of k-means: k-means++ (Arthur and Vassilvitskii 2007) and Lloyd's iterations.

The algorithm is that of scikit-learn's KMeans. Of several candidates for the next centre, the one
that leaves the smallest sum of squares is taken. An empty cluster takes the point that is farthest
from its centre. All sums have a fixed order, so all CPUs give the same clusters.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit
from blockmdp.rng import child, integer, uniform

__all__ = ["Clusters", "kmeans"]


class Clusters(NamedTuple):
    """The result of `kmeans`."""

    centres: Any  # (K, d)
    labels: Any  # (n,), the nearest centre of each point
    inertia: float  # sum of the squared distances from it
    n_iter: int


class Partition(NamedTuple):
    """The cluster of each point, and what is known of its distance from the centres.

    The bounds (Elkan 2003) change by as much as the centres move, so most distances need not be
    computed. Changed in place.
    """

    labels: Any  # (n,)
    upper: Any  # (n,) bound of the distance from the point's own centre
    lower: Any  # (K, n) bound of the distance from each other centre; inf for its own
    sums: Any  # (K, d) sum of the points of each cluster
    sizes: Any  # (K,) and their number


def kmeans(
    x: NDArray[np.float64], K: int, n_init: int, max_iter: int, tol: float, key: np.uint64
) -> Clusters:
    """Return the `Clusters` with the smallest inertia of `n_init` starts.

    x: (n, d). A start ends when no label changes, or when the squares of the moves of all centres
    sum to less than `tol` times the variance of a coordinate.
    """
    centres, labels = np.zeros((K, x.shape[1])), np.zeros(len(x), np.int64)
    inertia, n_iter = best_start(x, n_init, max_iter, tol, key, centres, labels)
    return Clusters(centres, labels, inertia, n_iter)


@jit
def best_start(x, n_init, max_iter, tol, key, centres, labels):
    """Set `centres` and `labels` to those of the best start; return its inertia and `n_iter`."""
    n, d = x.shape
    columns = np.ascontiguousarray(x.T)
    variance = 0.0
    for j in range(d):
        mean = 0.0
        for i in range(n):
            mean += columns[j, i] / n
        for i in range(n):
            variance += (columns[j, i] - mean) * (columns[j, i] - mean) / (n * d)
    best, n_iter = np.inf, 0
    for start in range(n_init):
        C = seeds(columns, len(centres), np.uint64(child(key, start)))
        found = lloyd(x, columns, C, max_iter, tol * variance)
        if found.inertia < best:
            best, n_iter = found.inertia, found.n_iter
            centres[:] = found.centres
            labels[:] = found.labels
    return best, n_iter


@jit
def seeds(columns, K, key):
    """Draw K centres (K, d) by k-means++.

    columns: (d, n). The inner loops run over points, so the compiler can vectorise them without
    changing the order of a sum.
    """
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
def lloyd(x, columns, C, max_iter, tol):
    """Move the centres C (K, d) to the means of their points, again and again.

    x: (n, d) points. columns: (d, n), the same.
    """
    d = x.shape[1]
    K = len(C)
    moves = np.zeros(K)
    now = nearest(x, columns, C)
    n_iter = 0
    moved = np.inf
    while (n_iter == 0 or assign(x, C, moves, now)) and n_iter < max_iter and moved > tol:
        fill_empty(x, C, now)
        n_iter += 1
        moved = 0.0
        for k in range(K):
            square = 0.0
            if now.sizes[k] > 0.0:
                for j in range(d):
                    mean = now.sums[k, j] / now.sizes[k]
                    square += (mean - C[k, j]) * (mean - C[k, j])
                    C[k, j] = mean
            moves[k] = math.sqrt(square)
            moved += square
    inertia = 0.0
    for i in range(len(x)):
        inertia += square_distance(x, i, C, now.labels[i])
    return Clusters(C, now.labels, inertia, n_iter)


@jit
def nearest(x, columns, C):
    """Return the `Partition` of points by their nearest centre, the first of several; see `lloyd`.

    No distance can be left out here, so they are computed column by column, like those in `seeds`.
    """
    n, d = x.shape
    K = len(C)
    now = Partition(
        np.zeros(n, np.int64), np.empty(n), np.empty((K, n)), np.zeros((K, d)), np.zeros(K)
    )
    for k in range(K):
        distances(columns, C[k], now.lower[k])
        for i in range(n):
            now.lower[k, i] = math.sqrt(now.lower[k, i])
            if k == 0 or now.lower[k, i] < now.upper[i]:
                now.upper[i] = now.lower[k, i]
                now.labels[i] = k
    for i in range(n):  # all points begin in the first cluster
        put(x, i, 0, 1.0, now)
    for i in range(n):
        k = now.labels[i]
        now.lower[k, i] = np.inf
        if k > 0:
            put(x, i, 0, -1.0, now)
            put(x, i, k, 1.0, now)
    return now


@jit
def assign(x, C, moves, now):
    """Label each point with its nearest centre, the first of several; return if a label changed.

    moves: (K,), how far the centres have moved since the last call.
    """
    n, K = len(x), len(C)
    labels, upper, lower = now.labels, now.upper, now.lower
    others = np.full(n, np.inf)  # bound of the distance from any other centre
    for k in range(K):
        for i in range(n):
            lower[k, i] -= moves[k]
            others[i] = min(others[i], lower[k, i])
    changed = False
    for i in range(n):
        old = labels[i]
        upper[i] += moves[old]
        if upper[i] >= others[i]:
            upper[i] = math.sqrt(square_distance(x, i, C, old))
        if upper[i] >= others[i]:
            lower[old, i] = upper[i]
            for k in range(K):
                if k != old and lower[k, i] <= upper[i]:
                    near = math.sqrt(square_distance(x, i, C, k))
                    lower[k, i] = near
                    if near < upper[i] or (near == upper[i] and k < labels[i]):
                        upper[i] = near
                        labels[i] = k
            lower[labels[i], i] = np.inf
            if labels[i] != old:
                changed = True
                put(x, i, old, -1.0, now)
                put(x, i, labels[i], 1.0, now)
    return changed


@jit
def fill_empty(x, C, now):
    """Give each empty cluster the point that is farthest from its centre."""
    for k in range(len(C)):
        if now.sizes[k] == 0.0:
            farthest = -1
            most = 0.0
            for i in range(len(x)):
                square = square_distance(x, i, C, now.labels[i])
                if square > most and now.sizes[now.labels[i]] > 1.0:
                    most = square
                    farthest = i
            if farthest >= 0:
                put(x, farthest, now.labels[farthest], -1.0, now)
                put(x, farthest, k, 1.0, now)
                now.labels[farthest] = k
                now.upper[farthest] = np.inf
                now.lower[:, farthest] = 0.0
                now.lower[k, farthest] = np.inf


@inlined
def put(x, i, k, sign, now):
    """Add point i to cluster k, or with the sign -1 take it away."""
    now.sizes[k] += sign
    for j in range(x.shape[1]):
        now.sums[k, j] += sign * x[i, j]


@inlined
def square_distance(x, i, C, k):
    """Return the squared distance of point i from centre k."""
    total = 0.0
    for j in range(x.shape[1]):
        t = x[i, j] - C[k, j]
        total += t * t
    return total
