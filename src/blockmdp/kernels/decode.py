"""Decoders folded into a few matrices: the label of an observation is the best of a few scores.

A row's label depends on that row alone, whatever the batch: a matrix product by BLAS would not
promise that.
"""

from __future__ import annotations

import math

import numpy as np

from blockmdp.kernels.jit import index, inlined, jit

__all__ = ["linear_labels", "network_labels", "quadratic_labels"]


@jit
def linear_labels(x, which, W, b):
    """argmax over k of W[w, k] . x + b[w, k], with w = which[i] for row i.

    x: (n, d). which: (n,). W: (P, K, d). b: (P, K). Returns (n,) int32.
    """
    labels = np.empty(len(x), np.int32)
    row = np.empty(x.shape[1])
    for i in range(len(x)):
        w = which[i]
        for j in range(x.shape[1]):
            row[j] = x[i, j]
        best = -np.inf
        label = 0
        for k in range(b.shape[1]):
            score = b[w, k] + _dot(W, w, k, x.shape[1], row)
            if score > best:
                best = score
                label = k
        labels[i] = label
    return labels


@jit
def quadratic_labels(x, W, b, c):
    """argmax over k of c[k] - |W[k] x + b[k]|^2 / 2: the likeliest component of a Gaussian mixture.

    Scores only fall as squares are subtracted. So all components are scored by their first squares,
    the leader is scored to the end, and each other one is given up as soon as it is behind. A row
    of W is gone through to its last entry that is not zero (half of it, for a full covariance).

    x: (n, d). W: (K, p, d). b: (K, p). c: (K,). Returns (n,) int32.
    """
    K, p, d = W.shape
    last = np.zeros((K, p), np.int64)
    for k in range(K):
        for m in range(p):
            for j in range(d):
                if W[k, m, j] != 0.0:
                    last[k, m] = j + 1
    labels = np.empty(len(x), np.int32)
    row = np.empty(d)
    scores = np.empty(K)
    head = min(p, 4)
    for i in range(len(x)):
        for j in range(d):
            row[j] = x[i, j]
        label = 0
        for k in range(K):
            scores[k] = c[k] - _half_square(W, b, index(k), 0, head, last, row, np.inf)
            if scores[k] > scores[label]:
                label = k
        best = scores[label] - _half_square(W, b, index(label), head, p, last, row, np.inf)
        leader = label
        for k in range(K):
            if k != leader and scores[k] >= best:
                behind = scores[k] - best
                score = scores[k] - _half_square(W, b, index(k), head, p, last, row, behind)
                if score > best or (score == best and k < label):
                    best = score
                    label = k
        labels[i] = label
    return labels


@inlined
def _half_square(W, b, k, start, stop, last, row, enough):
    """|W[k] x + b[k]|^2 / 2 over its coordinates start, ..., stop - 1; or any more than enough."""
    total = 0.0
    m = start
    while m < stop and total <= enough:
        y = b[k, index(m)] + _dot(W, k, index(m), last[k, index(m)], row)
        total += 0.5 * y * y
        m += 1
    return total


@inlined
def _dot(W, k, m, n, row):
    """W[k, m] . row, over the first n coordinates."""
    total = 0.0
    for j in range(n):
        total += W[k, m, j] * row[j]
    return total


@jit
def network_labels(x, W, b, V, c):
    """argmax over k of V[k] . sigmoid(W x + b) + c[k]: a network with one hidden layer.

    x: (n, d). W: (units, d). b: (units,). V: (K, units). c: (K,). Returns (n,) int32.
    """
    labels = np.empty(len(x), np.int32)
    hidden = np.empty(len(b))
    for i in range(len(x)):
        for m in range(len(b)):
            y = b[m]
            for j in range(x.shape[1]):
                y += W[m, j] * x[i, j]
            hidden[m] = 1.0 / (1.0 + math.exp(-y))
        best = -np.inf
        label = 0
        for k in range(len(c)):
            score = c[k]
            for m in range(len(b)):
                score += V[k, m] * hidden[m]
            if score > best:
                best = score
                label = k
        labels[i] = label
    return labels
