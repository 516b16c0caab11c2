"""Dirichlet process mixtures with their parameters integrated out: Gaussians that all have one
variance, or independent bits.

A clustering is its sufficient statistics: how many rows each label has, and their sum. The
variance of Gaussian means is `ratio` times that of the noise; their own mean and the noise are
integrated out too, under flat priors, so that no scale need be given. `dim` is the number of
dimensions that the noise fills, which may be fewer than there are. Of bits, a label is thought to
differ from the others in a few: each has the probability that it has in all data, or, with a small
chance, one of its own with the prior Beta(1/2, 1/2).
"""

from __future__ import annotations

import math

import numpy as np

from blockmdp.jit import jit

__all__ = ["assign", "best_cut", "common_mean", "evidence", "map_sweeps", "nearest", "scores"]

RATIOS = tuple(4.0**i for i in range(-3, 11))
LOG_PI = math.log(math.pi)


@jit
def evidence(bits, counts, sums, square, dim, log_alpha):
    """The log probability of the data and their clustering, up to a constant of the data.

    counts: (K,), some may be 0. sums: (K, d). square: the sum of all squares (Gaussian).

    Returns it, and the ratio and the noise's variance under which it is largest.
    """
    K, d = sums.shape
    n = 0
    total = 0.0
    within = square
    mean = np.zeros(d)
    if bits:
        common_mean(bits, counts, sums, 1.0, mean)
    for k in range(K):
        if counts[k] > 0:
            n += counts[k]
            total += log_alpha + math.lgamma(counts[k])
            for j in range(d):
                if bits:
                    total += bit(counts[k], sums[k, j], mean[j], d)[0]
                else:
                    within -= sums[k, j] * sums[k, j] / counts[k]
    if bits or n < 2:
        return total, 1.0, 1.0
    within = max(within, 1e-12 * square) + 1e-300
    used = np.flatnonzero(counts)
    U = len(used)
    gram = np.zeros((U, U))  # of the labels' means
    for a in range(U):
        for c in range(a + 1):
            for j in range(d):
                gram[a, c] += sums[used[a], j] * sums[used[c], j]
            gram[a, c] /= counts[used[a]] * counts[used[c]]
    weight = np.empty(U)
    best = -np.inf
    best_ratio = 1.0
    best_noise = 1.0
    for ratio in RATIOS:
        weights = 0.0
        logs = 0.0
        for a in range(U):
            spread = 1.0 + ratio * counts[used[a]]
            weight[a] = counts[used[a]] / spread
            weights += weight[a]
            logs += math.log(spread)
        between = 0.0
        for a in range(U):
            between += weight[a] * (1.0 - weight[a] / weights) * gram[a, a]
            for c in range(a):
                between -= 2.0 * weight[a] * weight[c] / weights * gram[a, c]
        Q = within + max(between, 0.0)
        score = -0.5 * dim * ((n - 1) * math.log(Q) + logs + math.log(weights))
        if score > best:
            best = score
            best_ratio = ratio
            best_noise = Q / ((n - 1) * dim)
    return total + best, best_ratio, best_noise


@jit
def bit(n, ones, mean, d):
    """The log probability of n bits of a label, of which some are ones, and how far to believe that
    the label has a law of its own for them.
    """
    chance = min(3.0 / d, 0.5)
    same = ones * math.log(mean) + (n - ones) * math.log(1.0 - mean) + math.log(1.0 - chance)
    own = math.lgamma(ones + 0.5) + math.lgamma(n - ones + 0.5) - math.lgamma(n + 1.0)
    own += math.log(chance) - LOG_PI
    top = max(same, own)
    total = top + math.log(math.exp(same - top) + math.exp(own - top))
    return total, math.exp(own - total)


@jit
def scores(bits, counts, sums, ratio):
    """W (K, d) and b (K,): the largest of W x + b tells the label of x, however rare it was."""
    K, d = sums.shape
    W = np.zeros((K, d))
    b = np.empty(K)
    g = np.empty(K)
    mean = np.zeros(d)
    common_mean(bits, counts, sums, ratio, mean)
    for k in range(K):
        predictive(bits, k, counts, sums, mean, 0.0, ratio, 1.0, W, b, g)
        if counts[k] == 0:
            b[k] = -np.inf
        elif not bits:  # as if all were known equally well
            b[k] /= g[k]
            for j in range(d):
                W[k, j] /= g[k]
    return W, b


@jit
def nearest(x, centre, W, b):
    """The labels (n,) that scores tell of the rows x (n, d), which are not centred."""
    n, d = x.shape
    labels = np.zeros(n, np.int64)
    for i in range(n):
        top = -np.inf
        for k in range(len(b)):
            score = b[k]
            for j in range(d):
                score += W[k, j] * (x[i, j] - centre[j])
            if score > top:
                top = score
                labels[i] = k
    return labels


@jit
def predictive(bits, k, counts, sums, mean, dim, ratio, noise, W, b, g):
    """What label k predicts: log p(x) = b + W x - g |x|^2 / 2, up to a constant, in place."""
    d = sums.shape[1]
    n = counts[k]
    if bits:
        g[k] = 0.0
        b[k] = 0.0
        for j in range(d):
            own = bit(n, sums[k, j], mean[j], d)[1]
            one = own * (sums[k, j] + 0.5) / (n + 1.0) + (1.0 - own) * mean[j]
            W[k, j] = math.log(one) - math.log(1.0 - one)
            b[k] += math.log(1.0 - one)
    else:
        spread = 1.0 + ratio / (1.0 + ratio * n)
        g[k] = 1.0 / (noise * spread)
        b[k] = -0.5 * dim * math.log(spread)
        for j in range(d):
            m = (ratio * sums[k, j] + mean[j]) / (1.0 + ratio * n)
            W[k, j] = g[k] * m
            b[k] -= 0.5 * W[k, j] * m


@jit
def map_sweeps(bits, x, z, counts, sums, dim, ratio, noise, log_alpha, sweeps):
    """Move each row to its likeliest label given all the others, or to one of its own, until none
    moves; z (n,), counts (K,) and sums (K, d) are changed in place.

    Returns how many moves were made.
    """
    n, d = x.shape
    K = len(counts)
    W = np.zeros((K, d))
    b = np.zeros(K)
    g = np.zeros(K)
    V = np.zeros((d, K))  # W transposed: the scores of all labels are summed side by side
    scores = np.empty(K)
    mean = np.zeros(d)
    common_mean(bits, counts, sums, ratio, mean)
    for k in range(K):
        predictive(bits, k, counts, sums, mean, dim, ratio, noise, W, b, g)
        V[:, k] = W[k]
    own = (np.zeros(1, np.int64), np.zeros((1, d)), np.zeros((1, d)), np.zeros(1), np.zeros(1))
    moves = 0
    for _ in range(sweeps):
        moved = 0
        for i in range(n):
            old = z[i]
            scores[:] = b
            square = 0.0
            for j in range(d):
                value = np.float64(x[i, j])
                square += value * value
                for k in range(K):
                    scores[k] += V[j, k] * value
            best = -1
            top = -np.inf
            empty = False
            for k in range(K):
                if counts[k] > 0 and k != old:
                    score = scores[k] - 0.5 * g[k] * square + math.log(counts[k])
                elif k == old:
                    score = leave_one_out(bits, x, i, k, counts, sums, mean, dim, ratio, noise, own)
                    score += math.log(counts[k] - 1) if counts[k] > 1 else log_alpha
                elif not empty and counts[old] > 1:  # a row alone would only change its name
                    empty = True
                    score = scores[k] - 0.5 * g[k] * square + log_alpha
                else:
                    continue
                if score > top or (score == top and k == old):
                    top = score
                    best = k
            if best != old:
                moved += 1
                z[i] = best
                take(x, i, old, -1, counts, sums)
                take(x, i, best, 1, counts, sums)
                for k in (old, best):
                    predictive(bits, k, counts, sums, mean, dim, ratio, noise, W, b, g)
                    V[:, k] = W[k]
        moves += moved
        if moved == 0:
            break
    return moves


@jit
def leave_one_out(bits, x, i, k, counts, sums, mean, dim, ratio, noise, own):
    """The log probability of row i under its label k, had that not seen it."""
    count, total, W, b, g = own
    d = x.shape[1]
    count[0] = counts[k] - 1
    for j in range(d):
        total[0, j] = sums[k, j] - x[i, j]
    predictive(bits, 0, count, total, mean, dim, ratio, noise, W, b, g)
    score = b[0]
    for j in range(d):
        score += (W[0, j] - 0.5 * g[0] * x[i, j]) * x[i, j]
    return score


@jit
def take(x, i, k, sign, counts, sums):
    """Give row i to label k, or take it away."""
    counts[k] += sign
    for j in range(x.shape[1]):
        sums[k, j] += sign * x[i, j]
    if counts[k] == 0:
        for j in range(x.shape[1]):
            sums[k, j] = 0.0


@jit
def assign(bits, x, counts, sums, square, dim, ratio, noise, log_alpha, W, b, g, known):
    """Give one more row x (d,) its label: the likeliest, or one of its own if that explains all
    data better. counts and sums are changed in place; `square` is that of all rows, with this one.

    W (K, d), b, g: what the labels predict (see `predictive`), where it is `known` (K,).

    Returns the label, whether it is new, and the ratio and the noise from then on.
    """
    K, d = sums.shape
    mean = np.zeros(d)
    common_mean(bits, counts, sums, ratio, mean)
    best = -1
    top = -np.inf
    empty = -1
    new = -np.inf
    for k in range(K):
        if counts[k] == 0 and empty >= 0:
            continue
        if not (bits and known[k]):
            predictive(bits, k, counts, sums, mean, dim, ratio, noise, W, b, g)
            known[k] = True
        score = b[k]
        for j in range(d):
            score += (W[k, j] - 0.5 * g[k] * x[j]) * x[j]
        if counts[k] == 0:
            empty = k
            new = score + log_alpha
        elif score + math.log(counts[k]) > top:
            top = score + math.log(counts[k])
            best = k
    rows = x.reshape(1, d)
    if best >= 0 and not bits:  # the noise depends on all labels: only the whole tells
        take(rows, 0, best, 1, counts, sums)
        top, best_ratio, best_noise = evidence(bits, counts, sums, square, dim, log_alpha)
        take(rows, 0, best, -1, counts, sums)
        new = -np.inf
        if empty >= 0:
            take(rows, 0, empty, 1, counts, sums)
            new, ratio, noise = evidence(bits, counts, sums, square, dim, log_alpha)
            take(rows, 0, empty, -1, counts, sums)
        if top >= new:
            ratio = best_ratio
            noise = best_noise
    born = best < 0 or new > top
    label = empty if born else best
    take(rows, 0, label, 1, counts, sums)
    known[label] = False
    return label, born, ratio, noise


@jit
def common_mean(bits, counts, sums, ratio, mean):
    """The mean around which those of the labels are drawn; of bits, that of all data. In place."""
    mean[:] = 0.0
    weights = 0.0
    for k in range(len(counts)):
        if counts[k] > 0:
            weight = 1.0 if bits else 1.0 / (1.0 + ratio * counts[k])
            weights += weight * counts[k]
            for j in range(len(mean)):
                mean[j] += weight * sums[k, j]
    for j in range(len(mean)):
        if bits:
            mean[j] = (mean[j] + 0.5) / (weights + 1.0)
        else:
            mean[j] /= max(weights, 1e-300)


@jit
def best_cut(bits, x, tree, square, dim, log_alpha):
    """How many labels the most probable cut of a tree of mergers has, and its evidence.

    tree: (n - 1, 4), as `scipy.cluster.hierarchy.linkage` makes it. Of many labels not every number
    is tried, and none with fewer than two rows a label.
    """
    n, d = x.shape
    counts = np.zeros(2 * n - 1, np.int64)
    sums = np.zeros((2 * n - 1, d))
    for i in range(n):
        counts[i] = 1
        sums[i] = x[i]
    alive = np.zeros(2 * n - 1, np.bool_)
    alive[:n] = True
    best = -np.inf
    best_K = 1
    due = n // 2
    for i in range(n - 1):
        one = int(tree[i, 0])
        two = int(tree[i, 1])
        new = n + i
        counts[new] = counts[one] + counts[two]
        for j in range(d):
            sums[new, j] = sums[one, j] + sums[two, j]
        alive[one] = alive[two] = False
        alive[new] = True
        K = n - 1 - i
        if due >= K:
            due = K - max(K // 5, 1)
            used = np.flatnonzero(alive)
            score = evidence(bits, counts[used], sums[used], square, dim, log_alpha)[0]
            if score > best:
                best = score
                best_K = K
    return best_K, best
