"""Decoders folded into a few matrices: the label of an observation is the best of a few scores.

A row's label depends on that row alone, whatever the batch: a matrix product by BLAS would not
promise that.
"""

from __future__ import annotations

import math

import numpy as np

from blockmdp.kernels.jit import jit

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
            score = b[w, k]
            for j in range(x.shape[1]):
                score += W[w, k, j] * row[j]
            if score > best:
                best = score
                label = k
        labels[i] = label
    return labels


@jit
def quadratic_labels(x, W, b, c):
    """argmax over k of c[k] - |W[k] x + b[k]|^2 / 2: the likeliest component of a Gaussian mixture.

    x: (n, d). W: (K, p, d). b: (K, p). c: (K,). Returns (n,) int32.
    """
    labels = np.empty(len(x), np.int32)
    row = np.empty(x.shape[1])
    for i in range(len(x)):
        for j in range(x.shape[1]):
            row[j] = x[i, j]
        best = -np.inf
        label = 0
        for k in range(len(c)):
            score = c[k]
            for m in range(b.shape[1]):
                y = b[k, m]
                for j in range(x.shape[1]):
                    y += W[k, m, j] * row[j]
                score -= 0.5 * y * y
            if score > best:
                best = score
                label = k
        labels[i] = label
    return labels


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
