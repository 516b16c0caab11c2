"""Compiled loops of `DirichletMixture`, which follows MAP-DP (Raykov et al. 2016).

Row i has a label z_i, and the labels have a Dirichlet process as their prior. Observations are of
one of two kinds:

- *Real numbers.* x_i has the distribution N(mu_k, noise I) for z_i = k, and mu_k has the
  distribution N(m, ratio noise I). The mu_k, m and the noise are integrated out under flat priors
  on m and on the logarithm of the noise, so no scale has to be set. `dim` is the number of
  dimensions that the noise fills, which can be fewer than there are coordinates.
- *Bits.* Bit j of x_i is 1 with probability p_kj for z_i = k. Some bits depend on the label: then
  p_kj has the prior Beta(m_j, 1 - m_j), where m_j, in `typical`, is the mean of p_kj over the
  labels. The others are noise: p_kj = p_j has the prior Beta(1/2, 1/2). Before the data are seen, a
  bit depends on the label with probability `ratio`; given the data, with probability `depends[j]`.

Names follow the paper: `z` are the labels, `counts[k]` is N_k, `alpha` is N_0, and each row gets
the label with the smallest d_ik (here: with the largest score -d_ik).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from blockmdp.jit import inlined, jit

__all__ = [
    "Clusters",
    "Model",
    "Predictive",
    "assign",
    "common_mean",
    "evidence",
    "fit_noise",
    "group",
    "label_sums",
    "linear_scores",
    "map_sweeps",
]

RATIOS = tuple(4.0**i for i in range(-3, 11))
BLOCK = 16  # rows that are treated together
MANY = 14  # labels above which not all ratios and not all pairs of labels are tried
LOG_PI = math.log(math.pi)


class Model(NamedTuple):
    """What all labels share."""

    bits: bool  # whether observations are bits; real numbers if not
    dim: float  # dimensions that the noise fills
    ratio: float  # variance of the labels' means divided by that of the noise; of bits, see above
    noise: float  # variance of the noise
    log_alpha: float  # logarithm of the concentration
    depends: Any  # (d,) of bits, see above
    typical: Any  # (d,) of bits, see above


class Clusters(NamedTuple):
    """Sufficient statistics of a clustering. A label that is not in use has count 0."""

    counts: Any  # (K,) rows of each label, N_k
    sums: Any  # (K, d) their sum


class Parts(NamedTuple):
    """What each label adds to the evidence. Of a label that is not in use, it means nothing."""

    prior: Any  # (K,) log of (N_k - 1)!, its part of the Dirichlet process
    squares: Any  # (K,) of its sum; not used for bits


class Predictive(NamedTuple):
    """What labels predict: log p(x | k) = b[k] + W[k] . x - g[k] |x|^2 / 2, up to a constant."""

    W: Any  # (K, d)
    b: Any  # (K,)
    g: Any  # (K,)


class Few(NamedTuple):
    """Room for what is computed of at most MANY labels in use, and one more row."""

    used: Any  # (MANY,) the labels
    counts: Any  # (MANY + 1,) their rows, and 1
    products: Any  # (MANY + 1, MANY + 1) inner products of their sums and, at last, the row
    mean: Any  # (MANY + 1,) inner products with the mean of their means
    weight: Any  # (MANY + 1,) of their sums, in the sum of their means


@jit
def room_for_few():
    """Return a `Few`."""
    n = MANY + 1
    return Few(
        np.empty(MANY, np.int64), np.empty(n, np.int64), np.empty((n, n)), np.empty(n), np.empty(n)
    )


# --- sums -----------------------------------------------------------------------------------------
@inlined
def dot(x, y):
    """Return the inner product of two vectors.

    Four sums side by side are faster than one, in which each addition waits for the one before.
    Their order is fixed, so that the result is the same on every machine.
    """
    d = len(x)
    whole = d - d % 4
    a = b = c = e = 0.0
    for j in range(0, whole, 4):
        a += x[j] * np.float64(y[j])
        b += x[j + 1] * np.float64(y[j + 1])
        c += x[j + 2] * np.float64(y[j + 2])
        e += x[j + 3] * np.float64(y[j + 3])
    for j in range(whole, d):
        a += x[j] * np.float64(y[j])
    return (a + b) + (c + e)


@inlined
def dot_row(X, k, y):
    """Return `dot(X[k], y)`, without making an array of the row."""
    d = len(y)
    whole = d - d % 4
    a = b = c = e = 0.0
    for j in range(0, whole, 4):
        a += X[k, j] * np.float64(y[j])
        b += X[k, j + 1] * np.float64(y[j + 1])
        c += X[k, j + 2] * np.float64(y[j + 2])
        e += X[k, j + 3] * np.float64(y[j + 3])
    for j in range(whole, d):
        a += X[k, j] * np.float64(y[j])
    return (a + b) + (c + e)


@inlined
def dot_rows(X, i, Y, k):
    """Return `dot(X[i], Y[k])`."""
    d = X.shape[1]
    whole = d - d % 4
    a = b = c = e = 0.0
    for j in range(0, whole, 4):
        a += X[i, j] * Y[k, j]
        b += X[i, j + 1] * Y[k, j + 1]
        c += X[i, j + 2] * Y[k, j + 2]
        e += X[i, j + 3] * Y[k, j + 3]
    for j in range(whole, d):
        a += X[i, j] * Y[k, j]
    return (a + b) + (c + e)


@inlined
def add_products(weights, rows, total):
    """Add the rows (n, d), times their weights (n,), to `total` (d,).

    Four are added at once, one after the other, because writing takes longer than adding.
    """
    n = len(weights)
    whole = n - n % 4
    for i in range(0, whole, 4):
        one, two, three, four = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        for j in range(len(total)):
            first = (total[j] + one * rows[i, j]) + two * rows[i + 1, j]
            total[j] = (first + three * rows[i + 2, j]) + four * rows[i + 3, j]
    for i in range(whole, n):
        for j in range(len(total)):
            total[j] += weights[i] * rows[i, j]


@inlined
def copy(x, to):
    """Write the vector x to another one. (Numba compiles `to[:] = x` for a third of a second.)"""
    for j in range(len(x)):
        to[j] = x[j]


@inlined
def number_used(counts):
    """Return the number of labels in use."""
    used = 0
    for k in range(len(counts)):
        used += counts[k] > 0
    return used


@jit
def label_sums(x, z, K):
    """Return the sum (K, d) of the rows x (n, d) of each label; z: (n,) labels."""
    n, d = x.shape
    sums = np.zeros((K, d))
    for i in range(n):
        k = z[i]
        for j in range(d):
            sums[k, j] += x[i, j]
    return sums


# --- the probability of a clustering --------------------------------------------------------------
@jit
def evidence(model, clusters, square):
    """Return log p(x, z) up to a constant of the data, for the noise that maximises it.

    model: its noise is not used, and its ratio only says where to begin to search if there are many
    labels. square: the sum of the squares of all numbers; not used for bits.
    """
    return evidence_of_parts(model, clusters, label_parts(model, clusters), square)[0]


@jit
def fit_noise(model, clusters, square, depends, typical):
    """Return the evidence, and the ratio and noise of the model that maximises it. The ratio is one
    of `RATIOS`. depends, typical: (d,), set to those of this model.
    """
    parts = label_parts(model, clusters)
    score, best = evidence_of_parts(model, clusters, parts, square)
    copy(best.depends, depends)
    copy(best.typical, typical)
    return score, best.ratio, best.noise


@jit
def label_parts(model, clusters):
    """Return what each label adds to the evidence, as `Parts`."""
    K = len(clusters.counts)
    parts = Parts(np.zeros(K), np.zeros(K))
    for k in range(K):
        update_part(model, clusters, parts, k)
    return parts


@inlined
def update_part(model, clusters, parts, k):
    """Bring the parts of label k up to date."""
    counts, sums = clusters
    if counts[k] > 0:
        parts.prior[k] = math.lgamma(counts[k])
        if not model.bits:
            parts.squares[k] = dot_rows(sums, k, sums, k)


@jit
def evidence_of_parts(model, clusters, parts, square):
    """Return the evidence, and the model that maximises it. parts: those of all labels."""
    counts, sums = clusters
    n = 0
    for k in range(len(counts)):
        n += counts[k]
    prior = log_prior(model, clusters, parts)
    if model.bits:
        score, best_model = evidence_of_bits(model, clusters)
        return prior + score, best_model
    if n < 2:
        return prior, with_noise(model, model.dim, 1.0, 1.0)
    if number_used(counts) > MANY:
        mean = np.empty(sums.shape[1])
        score, ratio, noise = evidence_of_many(model, clusters, parts, square, mean)
        return score, with_noise(model, model.dim, ratio, noise)
    few = room_for_few()
    U = 0
    for k in range(len(counts)):
        if counts[k] > 0:
            few.used[U] = k
            few.counts[U] = counts[k]
            for c in range(U + 1):
                few.products[U, c] = dot_rows(sums, k, sums, few.used[c])
            U += 1
    within = square_within(clusters, parts, square)
    best, ratio, noise = evidence_of_few(model.dim, model.ratio, U, few, within)
    return prior + best, with_noise(model, model.dim, ratio, noise)


@inlined
def log_prior(model, clusters, parts):
    """Return the log probability of the labels under the Dirichlet process."""
    total = 0.0
    for k in range(len(clusters.counts)):
        if clusters.counts[k] > 0:
            total += model.log_alpha + parts.prior[k]
    return total


@inlined
def square_within(clusters, parts, square):
    """Return the sum of squares around the labels' means."""
    within = square
    for k in range(len(clusters.counts)):
        if clusters.counts[k] > 0:
            within -= parts.squares[k] / clusters.counts[k]
    return max(within, 1e-12 * square) + 1e-300


@jit
def evidence_of_few(dim, ratio, U, few, within):
    """Return the evidence of the means of U labels, and the ratio and noise that maximise it.

    The best of all ratios is found from a few of them. It is close to `ratio`, and a bound
    tells when no other can be better: with the ratio, the squares fall, but not below `within`, and
    their price rises.

    few: has the counts of the labels, and the inner products of their sums, below the diagonal and
    on it. within: sum of squares around the labels' means.
    """
    n = 0
    for a in range(U):
        n += few.counts[a]
    first = place_of_ratio(ratio) if U > 1 else 0  # of one label, all are equally probable
    squares, price = weigh_means(U, few, within, RATIOS[first])
    best = score_of(dim, n, squares, price)
    noise = squares
    i = first
    cheapest = weigh_means(U, few, within, RATIOS[0])[1]
    for j in range(first - 1, -1, -1):
        squares, price = weigh_means(U, few, within, RATIOS[j])
        if score_of(dim, n, squares, cheapest) < best - 1e-9 * abs(best):
            break
        score = score_of(dim, n, squares, price)
        if score >= best:
            best = score
            noise = squares
            i = j
    for j in range(first + 1, len(RATIOS) if U > 1 else 0):
        squares, price = weigh_means(U, few, within, RATIOS[j])
        if score_of(dim, n, within, price) < best - 1e-9 * abs(best):
            break
        score = score_of(dim, n, squares, price)
        if score > best:
            best = score
            noise = squares
            i = j
    return best, RATIOS[i], noise / ((n - 1) * dim)


@inlined
def place_of_ratio(ratio):
    """Return the index of the largest of `RATIOS` that does not exceed a ratio."""
    i = 0
    while i + 1 < len(RATIOS) and RATIOS[i + 1] <= ratio:
        i += 1
    return i


@inlined
def weigh_means(U, few, within, ratio):
    """Return the sum of squares around the labels' means and of these means, given their ratio, and
    the price of the means; see `evidence_of_few`.
    """
    _, counts, products, _, weight = few
    weights = 0.0
    spreads = 1.0
    between = 0.0
    mean_square = 0.0
    for a in range(U):
        spread = 1.0 + ratio * counts[a]
        spreads *= spread
        weight[a] = 1.0 / spread
        weights += weight[a] * counts[a]
        between += weight[a] * products[a, a] / counts[a]
        product = 0.5 * weight[a] * products[a, a]
        for c in range(a):
            product += weight[c] * products[a, c]
        mean_square += 2.0 * weight[a] * product
    return within + max(between - mean_square / weights, 0.0), spreads * weights


@inlined
def score_of(dim, n, squares, price):
    """Return the evidence of n rows with a sum of squares, and with means of this price."""
    return -0.5 * dim * ((n - 1) * math.log(squares) + math.log(price))


@jit
def with_noise(model, dim, ratio, noise):
    """Return a model with another dimension, ratio and noise."""
    return Model(model.bits, dim, ratio, noise, model.log_alpha, model.depends, model.typical)


@inlined
def evidence_of_many(model, clusters, parts, square, mean):
    """Return the evidence of many labels, the best ratio and its noise. mean: (d,), overwritten.

    The search begins with the model's ratio, and goes up and down from it as long as that is
    better. This takes fewer steps than trying all ratios, and each takes U d of them, not U^2.
    """
    within = square_within(clusters, parts, square)
    i = place_of_ratio(model.ratio)
    best, noise = score_ratio(model.dim, clusters, parts, within, mean, RATIOS[i])
    for step in (1, -1):
        while 0 <= i + step < len(RATIOS):
            ratio = RATIOS[i + step]
            other, its_noise = score_ratio(model.dim, clusters, parts, within, mean, ratio)
            if other <= best:
                break
            best = other
            noise = its_noise
            i += step
    return log_prior(model, clusters, parts) + best, RATIOS[i], noise


@inlined
def score_ratio(dim, clusters, parts, within, mean, ratio):
    """Return the evidence of the means for one ratio, and its noise.

    within: sum of squares around the labels' means. mean: (d,), overwritten.
    """
    counts, sums = clusters
    n = 0
    weights = 0.0
    logs = 0.0
    between = 0.0
    for j in range(len(mean)):
        mean[j] = 0.0
    for k in range(len(counts)):
        if counts[k] > 0:
            n += counts[k]
            spread = 1.0 + ratio * counts[k]
            weights += counts[k] / spread
            logs += math.log(spread)
            between += parts.squares[k] / (counts[k] * spread)
            for j in range(len(mean)):
                mean[j] += sums[k, j] / spread
    between -= dot(mean, mean) / weights
    Q = within + max(between, 0.0)
    score = -0.5 * dim * ((n - 1) * math.log(Q) + logs + math.log(weights))
    return score, Q / ((n - 1) * dim)


@jit
def evidence_of_bits(model, clusters):
    """Return the log probability of all bits given their labels, and the model with the best ratio
    and what goes with it.
    """
    counts, sums = clusters
    K, d = sums.shape
    n = counts.sum()
    U = np.count_nonzero(counts)
    ones = np.zeros(d)
    typical = np.full(d, 0.5)
    for k in range(K):
        if counts[k] > 0:
            for j in range(d):
                ones[j] += sums[k, j]
                typical[j] += sums[k, j] / counts[k]
    noise = np.empty(d)  # log probability of a bit that is noise
    gain = np.empty(d)  # what it gains if it depends on the label
    for j in range(d):
        typical[j] /= U + 1.0
        noise[j] = math.lgamma(ones[j] + 0.5) + math.lgamma(n - ones[j] + 0.5)
        noise[j] -= math.lgamma(n + 1.0) + LOG_PI
        gain[j] = U * math.log(math.sin(math.pi * typical[j]) / math.pi) - noise[j]
    for k in range(K):
        if counts[k] > 0:
            constant = math.lgamma(counts[k] + 1.0)
            for j in range(d):
                gain[j] += math.lgamma(sums[k, j] + typical[j])
                gain[j] += math.lgamma(counts[k] - sums[k, j] + 1.0 - typical[j]) - constant
    best = -np.inf
    best_ratio = 0.5
    for number in (3.0, 10.0):  # of bits that depend on the label
        ratio = min(number / d, 0.5)
        score = 0.0
        for j in range(d):
            if gain[j] > 0.0:
                score += gain[j] + math.log(ratio + (1.0 - ratio) * math.exp(-gain[j]))
            else:
                score += math.log(1.0 - ratio + ratio * math.exp(gain[j]))
        if score > best:
            best = score
            best_ratio = ratio
    depends = np.empty(d)
    for j in range(d):
        depends[j] = best_ratio
        depends[j] /= best_ratio + (1.0 - best_ratio) * math.exp(min(-gain[j], 700.0))
    best_model = Model(model.bits, model.dim, best_ratio, 1.0, model.log_alpha, depends, typical)
    return best + noise.sum(), best_model


@inlined
def next_bit(model, n, ones, mean, j):
    """Return the probability that the next bit j of a label is 1, after n bits.

    mean: that of bit j in all data.
    """
    own = (ones + model.typical[j]) / (n + 1.0)
    return model.depends[j] * own + (1.0 - model.depends[j]) * mean


@jit
def common_mean(model, clusters, mean):
    """Write to `mean` (d,) the mean m of the labels' means; for bits, that of all data."""
    counts, sums = clusters
    weights = 0.0
    for j in range(len(mean)):
        mean[j] = 0.0
    for k in range(len(counts)):
        if counts[k] > 0:
            weight = 1.0 if model.bits else 1.0 / (1.0 + model.ratio * counts[k])
            weights += weight * counts[k]
            for j in range(len(mean)):
                mean[j] += weight * sums[k, j]
    for j in range(len(mean)):
        if model.bits:
            mean[j] = (mean[j] + 0.5) / (weights + 1.0)
        else:
            mean[j] /= max(weights, 1e-300)


# --- what a label predicts ------------------------------------------------------------------------
@inlined
def predictive(model, clusters, mean, k, out):
    """Write to `out`, a `Predictive`, what label k predicts for one more row."""
    d = clusters.sums.shape[1]
    n = clusters.counts[k]
    W, b, g = out
    if model.bits:
        g[k] = 0.0
        b[k] = 0.0
        for j in range(d):
            p = next_bit(model, n, clusters.sums[k, j], mean[j], j)
            W[k, j] = math.log(p) - math.log(1.0 - p)
            b[k] += math.log(1.0 - p)
    else:
        spread = 1.0 + model.ratio / (1.0 + model.ratio * n)
        g[k] = 1.0 / (model.noise * spread)
        scale = g[k] / (1.0 + model.ratio * n)
        for j in range(d):
            W[k, j] = scale * (model.ratio * clusters.sums[k, j] + mean[j])
        b[k] = -0.5 * (model.dim * math.log(spread) + dot_rows(W, k, W, k) / g[k])


@inlined
def leave_one_out(model, clusters, mean, row, square, k, own, is_current):
    """Return log p(row | k), where label k has not seen this row of its own.

    square: sum of the squares of the row. own: a `Predictive`, for any row of a label without this
    row. Of real numbers, it is overwritten by each row. Of bits, it is the same for all rows, and
    kept where `is_current` (K,).
    """
    W, b, g = own
    n = clusters.counts[k] - 1
    if not model.bits:
        spread = 1.0 + model.ratio / (1.0 + model.ratio * n)
        g[k] = 1.0 / (model.noise * spread)
        scale = g[k] / (1.0 + model.ratio * n)
        for j in range(len(row)):
            W[k, j] = scale * (model.ratio * (clusters.sums[k, j] - row[j]) + mean[j])
        b[k] = -0.5 * (model.dim * math.log(spread) + dot_rows(W, k, W, k) / g[k])
    elif not is_current[k]:
        is_current[k] = True
        b[k] = 0.0
        for j in range(len(row)):
            ones = clusters.sums[k, j]
            zero = 0.0 if ones > n else math.log(1.0 - next_bit(model, n, ones, mean[j], j))
            one = 0.0 if ones < 1.0 else math.log(next_bit(model, n, ones - 1.0, mean[j], j))
            W[k, j] = one - zero
            b[k] += zero
    return log_density(own, k, row, square)


@inlined
def log_density(prediction, k, row, square):
    """Return log p(row | k), up to a constant. square: sum of the squares of the row."""
    W, b, g = prediction
    return b[k] + dot_row(W, k, row) - 0.5 * g[k] * square


@inlined
def linear_scores(model, clusters, mean, W, b, g):
    """Write W (K, d) and b (K,): the label of x is the largest of W x + b.

    How often a label occurred does not count, and for real numbers all means count as equally well
    known. Labels that are not in use get -inf. mean: (d,) and g: (K,), overwritten.
    """
    K, d = clusters.sums.shape
    bits, _, ratio, _, log_alpha, depends, typical = model
    alike = Model(bits, 0.0, ratio, 1.0, log_alpha, depends, typical)
    common_mean(alike, clusters, mean)
    for k in range(K):
        if clusters.counts[k] == 0:
            b[k] = -np.inf
            continue
        predictive(alike, clusters, mean, k, Predictive(W, b, g))
        if not model.bits:
            b[k] /= g[k]
            for j in range(d):
                W[k, j] /= g[k]


# --- MAP-DP ---------------------------------------------------------------------------------------
@jit
def map_sweeps(model, x, z, clusters, sweeps):
    """Move each row to its most probable label given all other rows, until none moves.

    x: (n, d). z: (n,) and clusters are changed in place. sweeps: the largest number of passes.

    Returns the number of moves.
    """
    n, d = x.shape
    counts = clusters.counts
    K = len(counts)
    prediction = Predictive(np.zeros((K, d)), np.zeros(K), np.zeros(K))
    block, row = np.zeros((d, BLOCK)), np.empty(d)
    scores, squares = np.empty((K, BLOCK)), np.empty(BLOCK)
    mean = np.zeros(d)
    common_mean(model, clusters, mean)
    for k in range(K):
        predictive(model, clusters, mean, k, prediction)
    own = Predictive(np.zeros((K, d)), np.zeros(K), np.zeros(K))
    is_current = np.zeros(K, np.bool_)
    log_counts = np.zeros(K)
    for k in range(K):
        log_counts[k] = math.log(counts[k]) if counts[k] > 0 else 0.0
    moves = 0
    for _ in range(sweeps):
        moved = 0
        for i in range(n):
            at = i % BLOCK
            if at == 0:
                fill_block(x, i, block, squares)
                for k in range(K):
                    score_block(prediction, k, block, scores)
            for j in range(d):
                row[j] = x[i, j]
            old = z[i]
            square = squares[at]
            best = -1
            top = -np.inf
            tried_new = False
            for k in range(K):  # score = -d_ik = log p(x_i | k) + log N_k, both without row i
                if counts[k] > 0 and k != old:
                    score = scores[k, at] - 0.5 * prediction.g[k] * square + log_counts[k]
                elif k == old:
                    score = leave_one_out(model, clusters, mean, row, square, k, own, is_current)
                    score += math.log(counts[k] - 1) if counts[k] > 1 else model.log_alpha
                elif not tried_new and counts[old] > 1:  # a single row would only be renamed
                    tried_new = True
                    score = scores[k, at] - 0.5 * prediction.g[k] * square + model.log_alpha
                else:
                    continue
                if score > top or (score == top and k == old):
                    top = score
                    best = k
            if best != old:
                moved += 1
                z[i] = best
                add(clusters, old, row, -1)
                add(clusters, best, row, 1)
                for k in (old, best):
                    is_current[k] = False
                    log_counts[k] = math.log(counts[k]) if counts[k] > 0 else 0.0
                    predictive(model, clusters, mean, k, prediction)
                    score_block(prediction, k, block, scores)
        moves += moved
        if moved == 0:
            break
    return moves


@inlined
def fill_block(x, first, block, squares):
    """Write the rows from number `first` on to the columns of `block` (d, BLOCK), and the sums of
    their squares to `squares` (BLOCK,).
    """
    for c in range(BLOCK):
        squares[c] = 0.0
    for j in range(len(block)):
        for c in range(min(BLOCK, len(x) - first)):
            block[j, c] = x[first + c, j]
        for c in range(BLOCK):
            squares[c] += block[j, c] * block[j, c]


@inlined
def score_block(prediction, k, block, scores):
    """Write b[k] + W[k] . x for each column x of `block` (d, BLOCK) to `scores[k]` (BLOCK,)."""
    for c in range(BLOCK):
        scores[k, c] = prediction.b[k]
    add_products(prediction.W[k], block, scores[k])


@inlined
def add(clusters, k, row, times):
    """Add a row to label k (times = 1), or remove it (times = -1)."""
    clusters.counts[k] += times
    for j in range(len(row)):
        clusters.sums[k, j] += times * row[j]
    if clusters.counts[k] == 0:  # exactly zero, whatever the rounding
        for j in range(len(row)):
            clusters.sums[k, j] = 0.0


@inlined
def assign(model, clusters, row, square, prediction, is_current, few):
    """Label one more row (d,): with its most probable label, or a new one if that makes all data
    more probable.

    clusters: changed in place. square: the sum of all squares, with those of this row.
    prediction: a `Predictive`, kept between calls; for bits, it is up to date where `is_current`
    (K,). (For real numbers it always changes, with the noise.) few: overwritten.

    Returns the label, whether it is new, whether a few such rows together might get a new one, and
    the ratio and noise from now on.
    """
    counts = clusters.counts
    if model.bits or number_used(counts) > MANY:
        found = compare_labels(model, clusters, row, square, prediction, is_current)
    else:
        found = compare_few(model, clusters, row, square, few)
    best, top, unused, new, ratio, noise = found
    is_new = best < 0 or new > top
    label = unused if is_new else best
    is_doubtful = False
    if not is_new:
        lead = math.log(counts[best]) - model.log_alpha  # of a known label over a new one
        is_doubtful = new + 0.75 * lead > top
    add(clusters, label, row, 1)
    is_current[label] = False
    return label, is_new, is_doubtful, ratio, noise


@jit
def compare_labels(model, clusters, row, square, prediction, is_current):
    """Compare the labels in use, and a new one, for one more row; see `assign`.

    Returns the most probable label in use (-1 if there is none) and its score, a label that is not
    in use (-1 if there is none) and its score, and the ratio and noise of the better one.
    """
    counts, sums = clusters
    K, d = sums.shape
    mean = np.zeros(d)
    common_mean(model, clusters, mean)
    row_square = dot(row, row)
    best = -1
    top = -np.inf
    unused = -1
    new = -np.inf
    for k in range(K):
        if counts[k] == 0 and unused >= 0:
            continue
        if not (model.bits and is_current[k]):
            predictive(model, clusters, mean, k, prediction)
            is_current[k] = True
        score = log_density(prediction, k, row, row_square)
        if counts[k] == 0:
            unused = k
            new = score + model.log_alpha
        elif score + math.log(counts[k]) > top:
            top = score + math.log(counts[k])
            best = k
    ratio, noise = model.ratio, model.noise
    if best >= 0 and not model.bits:  # the noise depends on the choice, so compare the evidence
        parts = label_parts(model, clusters)
        given = (model, clusters, parts, row, square, mean)
        top, ratio, noise = evidence_with(*given, best)
        new = -np.inf
        if unused >= 0:
            new, new_ratio, new_noise = evidence_with(*given, unused)
            if new > top:
                ratio, noise = new_ratio, new_noise
    return best, top, unused, new, ratio, noise


@inlined
def evidence_with(model, clusters, parts, row, square, mean, k):
    """Return what `evidence_of_many` does if one more row has label k. parts: as they are now."""
    add(clusters, k, row, 1)
    update_part(model, clusters, parts, k)
    found = evidence_of_many(model, clusters, parts, square, mean)
    add(clusters, k, row, -1)
    update_part(model, clusters, parts, k)
    return found


@inlined
def compare_few(model, clusters, row, square, few):
    """Do the same as `compare_labels` for real numbers and few labels, from inner products alone.

    Scores lack a constant. few: overwritten.
    """
    counts, sums = clusters
    K = len(counts)
    used, n, products = few.used, few.counts, few.products
    unused = -1
    U = 0
    for k in range(K):
        if counts[k] > 0:
            used[U] = k
            n[U] = counts[k]
            U += 1
        elif unused < 0:
            unused = k
    if U == 0:
        return -1, -np.inf, unused, 0.0, model.ratio, model.noise
    n[U] = 1
    products[U, U] = dot(row, row)
    within = square - products[U, U]
    for a in range(U):
        for c in range(a + 1):
            products[a, c] = products[c, a] = dot_rows(sums, used[a], sums, used[c])
        products[U, a] = products[a, U] = dot_row(sums, used[a], row)
        within -= products[a, a] / n[a]
    least = 1e-12 * square
    best = nearest(model, U, few)
    new = -np.inf
    new_ratio, new_noise = model.ratio, model.noise
    if unused >= 0:
        new, new_ratio, new_noise = evidence_of_few(
            model.dim, model.ratio, U + 1, few, max(within, least) + 1e-300
        )
        new += model.log_alpha - math.log(n[best])
    within += products[best, best] / n[best] + products[U, U]
    for c in range(U):
        products[best, c] += products[U, c]
        products[c, best] = products[best, c]
    products[best, best] += products[U, best] + products[U, U]
    n[best] += 1
    within -= products[best, best] / n[best]
    top, ratio, noise = evidence_of_few(model.dim, model.ratio, U, few, max(within, least) + 1e-300)
    if new > top:
        ratio, noise = new_ratio, new_noise
    return used[best], top, unused, new, ratio, noise


@inlined
def nearest(model, U, few):
    """Return which of U labels is the most probable for one more row; see `compare_few`."""
    _, n, products, mean, _ = few
    weights = 0.0
    for c in range(U + 1):
        mean[c] = 0.0
    for a in range(U):
        spread = 1.0 + model.ratio * n[a]
        weights += n[a] / spread
        for c in range(U + 1):
            mean[c] += products[a, c] / spread
    mean_square = 0.0
    for a in range(U):
        mean_square += mean[a] / (1.0 + model.ratio * n[a])
    for c in range(U + 1):
        mean[c] /= weights
    mean_square /= weights * weights
    best = 0
    top = -np.inf
    for a in range(U):
        spread = 1.0 + model.ratio * n[a]
        product = (model.ratio * products[U, a] + mean[U]) / spread  # of what it predicts and row
        size = model.ratio * (model.ratio * products[a, a] + 2.0 * mean[a]) + mean_square
        distance = products[U, U] - 2.0 * product + size / (spread * spread)
        variance = 1.0 + model.ratio / spread
        score = model.dim * math.log(variance) + distance / (model.noise * variance)
        score = math.log(n[a]) - 0.5 * score
        if score > top:
            top = score
            best = a
    return best


@jit
def group(model, clusters, x, z, square, candidates, moved):
    """Find rows that together make a new label more probable: the last candidate, and those others
    that fit best to it.

    x: (n, d). z: (n,). candidates: (m,) rows. moved: (m,), overwritten with the rows found.

    Returns their number, 0 if no such group makes the data more probable.
    """
    counts = clusters.counts.copy()
    sums = clusters.sums.copy()
    K, d = sums.shape
    new = 0
    while new < K and counts[new] > 0:
        new += 1
    if new == K:
        return 0
    now = Clusters(counts, sums)
    best = evidence(model, now, square)
    mean = np.zeros(d)
    common_mean(model, now, mean)
    prediction = Predictive(np.zeros((K, d)), np.zeros(K), np.zeros(K))
    is_current = np.zeros(K, np.bool_)
    own = np.empty(len(candidates))  # what its label predicts for each
    squares = np.empty(len(candidates))
    left = np.ones(len(candidates), np.bool_)
    for i in range(len(candidates)):
        row = candidates[i]
        left[i] = counts[z[row]] > 1
        if left[i]:
            squares[i] = dot(x[row], x[row])
            own[i] = leave_one_out(
                model, now, mean, x[row], squares[i], z[row], prediction, is_current
            )
    found = 0
    pick = len(candidates) - 1
    for size in range(len(candidates)):
        if not left[pick]:
            break
        left[pick] = False
        row = candidates[pick]
        moved[size] = row
        add(now, z[row], x[row], -1)
        add(now, new, x[row], 1)
        score = evidence(model, now, square)
        if score > best:
            best = score
            found = size + 1
        predictive(model, now, mean, new, prediction)
        top = -np.inf
        for i in range(len(candidates)):
            if left[i]:
                gain = log_density(prediction, new, x[candidates[i]], squares[i]) - own[i]
                if gain > top:
                    top = gain
                    pick = i
    return found
