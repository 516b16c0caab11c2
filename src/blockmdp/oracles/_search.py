"""Compiled search of `DirichletMixture` for labels that make the data more probable.

It sweeps over all rows, merges two labels, or makes part of a label a new one, as long as that
pays. Where it stops, a cut through a hierarchical clustering may still be better.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from blockmdp.jit import inlined, jit, template
from blockmdp.oracles._dirichlet import (
    BLOCK,
    MANY,
    Clusters,
    add_products,
    copy,
    dot,
    evidence,
    evidence_of_parts,
    label_parts,
    label_sums,
    map_sweeps,
    update_part,
)

__all__ = [
    "FEW",
    "Labelling",
    "best_cut",
    "best_side",
    "dimensions",
    "finds_nothing",
    "first_unused",
    "is_full",
    "later",
    "may_split",
    "next_merger",
    "noise_dimensions",
    "note_labels",
    "search",
    "split",
    "split_pays",
    "stable_order",
    "sweep",
    "ward_tree",
]

FEW = 200  # observations up to which labels are examined often
SWEEPS = 5  # passes over the data before the evidence is compared
POWERS = 10  # steps towards the direction with the largest variance
TINY = float(np.finfo(np.float32).tiny)


class Labelling(NamedTuple):
    """The labels of n rows, and what is known of each label; there is room for C labels."""

    z: Any  # (n,)
    counts: Any  # (C,) rows of each label
    sums: Any  # (C, d) their sum
    born: Any  # (C,) rows there were when the label appeared, -1 if it is not in use
    split_at: Any  # (C,) rows of the label at which it is examined the next time


# --- the search -----------------------------------------------------------------------------------
@template
def search(model, x, square, labelling, K, most, steps, is_swept):
    """Sweep, merge and split as long as that makes the data more probable.

    model: where to begin. x: (n, d) rows. square: sum of the squares of all numbers; not used for
    bits. labelling: changed in place; labels are 0, ..., K - 1. most: the largest K allowed. steps:
    the largest number of changes, -1 for any. is_swept: whether that is not to be done again.

    Returns the new K, the number of steps that are left, whether nothing was found in the last one,
    whether there is not enough room for labels to go on, and the new model.
    """
    counts, sums = labelling.counts, labelling.sums
    if not is_swept:
        now = Clusters(counts[:K], sums[:K])
        score, own = score_labels(model, now, square)
        score, model = sweep(model, own, score, x, labelling.z, now, square)
    found = True
    while found and steps != 0:
        K = note_labels(labelling, K, most)
        if max(K, min(K + 1, most)) > len(counts) or is_full(counts[:K], most):
            return K, steps, False, True, model
        steps -= 1
        now = Clusters(counts[:K], sums[:K])
        score = score_labels(model, now, square)[0]
        found = False
        pairs = close_pairs(now)
        i = 0
        while i < len(pairs) and not found:
            i = next_merger(model, now, square, pairs, i, score)
            if i < len(pairs):
                z = np.where(labelling.z == pairs[i, 1], pairs[i, 0], labelling.z)
                found, K, model = try_labels(model, x, square, labelling, K, most, z, score)
                i += 1
        k = 0
        while k < K and not found:
            found, K, model = split(model, x, square, labelling, K, most, k, score)
            k += 1
    return note_labels(labelling, K, most), steps, not found, False, model


@jit
def score_labels(model, clusters, square):
    """Return the evidence of labels, and the model that maximises it."""
    return evidence_of_parts(model, clusters, label_parts(model, clusters), square)


@jit
def sweep(model, own, score, x, z, clusters, square):
    """Sweep over rows as long as that makes the data more probable.

    own: the model that maximises the evidence of z (n,) and its clusters, which is `score`. They
    are changed in place.

    Returns the new evidence, and the model that maximises it.
    """
    while True:
        other = z.copy()
        moved = Clusters(clusters.counts.copy(), clusters.sums.copy())
        if map_sweeps(own, x, other, moved, SWEEPS) == 0:
            return score, own
        other_score, other_model = score_labels(model, moved, square)
        if not is_better(other_score, score):
            return score, own
        copy(other, z)
        copy_clusters(moved, clusters)
        score = other_score
        own = other_model


@inlined
def copy_clusters(clusters, to):
    """Write the counts and sums of labels to others, which may have room for more labels."""
    copy(clusters.counts, to.counts)
    for k in range(len(clusters.counts)):
        for j in range(clusters.sums.shape[1]):
            to.sums[k, j] = clusters.sums[k, j]


@inlined
def is_better(one, other):
    """Whether one evidence is larger than another, by more than rounding errors."""
    return one > other + 1e-9 * abs(other)


@jit
def try_labels(model, x, square, labelling, K, most, z, score):
    """Take over the labels z (n,), after a sweep, if they make the data more probable than `score`.

    There is room for K + 1 labels, unless that is more than `most`, which can be less than K if it
    was changed. z is overwritten.

    Returns whether they do, and the new K and model.
    """
    room = max(K, min(z.max() + 2, most))
    clusters = Clusters(np.bincount(z, minlength=room), label_sums(x, z, room))
    other_score, own = score_labels(model, clusters, square)
    other_score, own = sweep(model, own, other_score, x, z, clusters, square)
    if not is_better(other_score, score):
        return False, K, model
    copy(z, labelling.z)
    copy_clusters(clusters, labelling)
    return True, note_labels(labelling, room, most), own


@jit
def split(model, x, square, labelling, K, most, k, score):
    """Make a part of label k a new label if that makes the data more probable than `score`; see
    `try_labels`.
    """
    now = Clusters(labelling.counts[:K], labelling.sums[:K])
    new = first_unused(now.counts)
    found = False
    if new < K and now.counts[k] > 1:
        rows = np.flatnonzero(labelling.z == k)
        own = x[rows]
        parts = parts_of(model.bits, own)
        for i in range(2):
            if not found and split_pays(model, now, square, own, parts[i], k, new, score):
                z = labelling.z.copy()
                z[rows[parts[i]]] = new
                found, K, model = try_labels(model, x, square, labelling, K, most, z, score)
    return found, K, model


@jit
def may_split(model, x, z, square, clusters, k, score):
    """Whether `split` would try to split label k, of rows x (n, d) with labels z (n,)."""
    new = first_unused(clusters.counts)
    if new == len(clusters.counts) or clusters.counts[k] < 2:
        return False
    own = x[np.flatnonzero(z == k)]
    parts = parts_of(model.bits, own)
    pays = False
    for i in range(2):
        pays = pays or split_pays(model, clusters, square, own, parts[i], k, new, score)
    return pays


@template
def finds_nothing(model, x, z, square, clusters, most):
    """Whether neither `search` nor a cut through a tree finds anything to try.

    Returns that, and the model that maximises the evidence.
    """
    score, own = score_labels(model, clusters, square)
    moved = Clusters(clusters.counts.copy(), clusters.sums.copy())
    if map_sweeps(own, x, z.copy(), moved, 1) > 0:
        return False, own
    score = score_labels(own, clusters, square)[0]
    pairs = close_pairs(clusters)
    if next_merger(own, clusters, square, pairs, 0, score) < len(pairs):
        return False, own
    for k in range(len(clusters.counts)):
        if may_split(own, x, z, square, clusters, k, score):
            return False, own
    if len(x) >= 3:
        K, cut = best_cut(own, x, ward_tree(x), square)
        if cut > score and most >= K:
            return False, own
    return True, own


@inlined
def first_unused(counts):
    """Return the first label without rows; their number if there is none."""
    k = 0
    while k < len(counts) and counts[k] > 0:
        k += 1
    return k


@jit
def note_labels(labelling, K, most):
    """Take note of labels that appeared or are gone. Return K, doubled if all labels are in use and
    the arrays have room for that; so K does not depend on how much room they have.
    """
    n, C = len(labelling.z), len(labelling.counts)
    for k in range(C):
        if k >= K or labelling.counts[k] == 0:
            labelling.born[k] = -1
            labelling.split_at[k] = 0
        else:
            if labelling.born[k] < 0:
                labelling.born[k] = n
            if labelling.split_at[k] <= 0:
                labelling.split_at[k] = later(labelling.counts[k])
    if is_full(labelling.counts[:K], most) and min(2 * K, most) <= C:
        K = min(2 * K, most)
    return K


@inlined
def is_full(counts, most):
    """Whether all labels are in use, though there may be more."""
    return first_unused(counts) == len(counts) and most > len(counts)


@inlined
def later(count):
    """Return how many observations of a label there are when it is examined the next time."""
    return count + (max(count // 2, 2) if count < FEW else count)


@jit
def noise_dimensions(x, z, clusters):
    """Estimate the number of dimensions that the noise of rows x (n, d) with labels z (n,) fills.

    It is tr(C)^2 / tr(C^2) for its covariance C. With few rows, it is close to d.
    """
    n, d = x.shape
    deviations = np.empty((n, d))
    for i in range(n):
        k = z[i]
        for j in range(d):
            deviations[i, j] = x[i, j] - clusters.sums[k, j] / clusters.counts[k]
    # the smaller of two matrices, which have the same eigenvalues but for zeros
    scatter = deviations.T @ deviations if d < n else deviations @ deviations.T
    return dimensions(scatter, n - np.count_nonzero(clusters.counts), d)


@jit
def dimensions(scatter, degrees, d):
    """Do the same for a matrix with the eigenvalues of the scatter, and its degrees of freedom."""
    if degrees < 2:
        return float(d)
    trace = 0.0
    square = 0.0
    for i in range(len(scatter)):
        trace += scatter[i, i]
        for j in range(len(scatter)):
            square += scatter[i, j] * scatter[i, j]
    if trace <= 0.0:
        return float(d)
    trace /= degrees
    square /= float(degrees) ** 2
    square -= trace**2 / degrees  # unbiased (Bai and Saranadasa 1996)
    square *= degrees**2 / ((degrees + 2.0) * (degrees - 1.0))
    square = (degrees * square + 10.0 * trace**2 / d) / (degrees + 10.0)
    return min(max(trace**2 / max(square, 1e-300), 1.0), float(d))


# --- two labels become one ------------------------------------------------------------------------
@jit
def close_pairs(clusters):
    """Return all pairs of labels in use, the one with more rows first, (m, 2). If they are many,
    return only those that cost least to merge.
    """
    used = np.flatnonzero(clusters.counts)
    U = len(used)
    pairs = np.empty((U * (U - 1) // 2, 2), np.int64)
    m = 0
    for a in range(U):
        for c in range(a + 1, U):
            larger = clusters.counts[used[a]] >= clusters.counts[used[c]]
            pairs[m, 0] = used[a] if larger else used[c]
            pairs[m, 1] = used[c] if larger else used[a]
            m += 1
    if U <= MANY:
        return pairs
    cost = np.empty(m)
    for i in range(m):
        one, two = pairs[i]
        n_one, n_two = float(clusters.counts[one]), float(clusters.counts[two])
        distance = 0.0
        for j in range(clusters.sums.shape[1]):
            distance += (clusters.sums[one, j] / n_one - clusters.sums[two, j] / n_two) ** 2
        cost[i] = distance * n_one * n_two / (n_one + n_two)
    return pairs[stable_order(cost)[: 2 * U]]


@jit
def next_merger(model, clusters, square, pairs, first, score):
    """Find the next pair of labels whose merger is more probable than `score`.

    pairs: (m, 2). first: index of the pair to begin with. Returns its index, m if there is none.
    """
    counts = clusters.counts.copy()
    sums = clusters.sums.copy()
    merged = Clusters(counts, sums)
    parts = label_parts(model, clusters)
    for i in range(first, len(pairs)):
        one, two = pairs[i]
        counts[one] += counts[two]
        counts[two] = 0
        for j in range(sums.shape[1]):
            sums[one, j] += sums[two, j]
            sums[two, j] = 0.0
        update_part(model, merged, parts, one)
        if evidence_of_parts(model, merged, parts, square)[0] > score:
            return i
        for k in (one, two):
            counts[k] = clusters.counts[k]
            for j in range(sums.shape[1]):
                sums[k, j] = clusters.sums[k, j]
            update_part(model, merged, parts, k)
    return len(pairs)


# --- a part of a label becomes a new one ----------------------------------------------------------
@jit
def split_pays(model, clusters, square, x, part, k, new, score):
    """Whether it is more probable than `score` that part of label k is the label `new`.

    x: (n, d) rows of label k. part: (n,) whether each belongs to the new label.
    """
    counts = clusters.counts.copy()
    sums = clusters.sums.copy()
    for i in range(len(x)):
        if part[i]:
            counts[new] += 1
            for j in range(sums.shape[1]):
                sums[new, j] += x[i, j]
    counts[k] -= counts[new]
    for j in range(sums.shape[1]):
        sums[k, j] -= sums[new, j]
    return evidence(model, Clusters(counts, sums), square) > score


@jit
def parts_of(bits, x):
    """Return two candidates for a part of a label, (2, n): the smaller side of the best cut, and
    the row that is farthest from the mean. x: (n, d) rows of the label.
    """
    n = len(x)
    parts = np.zeros((2, n), np.bool_)
    farthest = best_bit(x, parts[0]) if bits else best_side(x, parts[0])
    parts[1, farthest] = True
    for i in range(2):
        if 2 * np.count_nonzero(parts[i]) > n:
            for row in range(n):
                parts[i, row] = not parts[i, row]
    return parts


@jit
def best_bit(x, side):
    """Cut rows of bits in two by the one that depends most on another bit.

    x: (n, d), float32. side: (n,), overwritten with this bit. All numbers are whole, or quotients
    of whole numbers, so that they are the same on every machine.

    Returns the row that is farthest from the mean.
    """
    n, d = x.shape
    both = x.T @ x  # exact: there are fewer than 2^24 rows
    best = 0
    most = -1.0
    for j in range(d):
        for i in range(d):
            if i != j:
                one, two = float(both[i, i]), float(both[j, j])
                spread = (one * (n - one)) * (two * (n - two))
                if spread > 0.0:
                    dependence = (n * float(both[i, j]) - one * two) ** 2 / spread
                    if dependence > most:
                        most = dependence
                        best = j
    farthest = 0
    most = -1.0
    for i in range(n):
        side[i] = x[i, best] > 0.5
        distance = 0.0
        for j in range(d):
            distance += (n * float(x[i, j]) - float(both[j, j])) ** 2
        if distance > most:
            most = distance
            farthest = i
    return farthest


@jit
def best_side(x, side):
    """Cut rows in two along the direction with the largest variance, or one almost as good: where
    no direction stands out, any will do. So single precision is enough.

    x: (n, d), float32. side: (n,), overwritten with whether each row is on the second side.

    Returns the row that is farthest from the mean.
    """
    n, d = x.shape
    mean = np.zeros(d)
    for i in range(n):
        for j in range(d):
            mean[j] += x[i, j]
    mean /= n
    deviations = np.empty((n, d), np.float32)
    columns = np.empty((d, n), np.float32)
    farthest = 0
    most = 0.0
    for i in range(n):
        for j in range(d):
            deviations[i, j] = x[i, j] - mean[j]
        square = dot(deviations[i], deviations[i])
        if square > most:
            most = square
            farthest = i
    scale = np.float32(1.0 / max(math.sqrt(most), TINY))  # so that powers stay finite
    scale_to_columns(deviations, scale, columns)
    for i in range(n):
        for j in range(d):
            deviations[i, j] *= scale
    along = np.empty(n, np.float32)
    direction = deviations[farthest].copy()
    for step in range(POWERS + 1):
        along[:] = 0.0
        add_products(direction, columns, along)
        if step < POWERS:
            direction[:] = 0.0
            add_products(along, deviations, direction)
            direction /= np.float32(max(math.sqrt(dot(direction, direction)), TINY))
    threshold = cut_in_two(along)
    for i in range(n):
        side[i] = along[i] > threshold
    return farthest


@inlined
def scale_to_columns(rows, scale, columns):
    """Write rows (n, d), times a number, to columns (d, n).

    16 rows are written at a time, because neighbours in a row get far away from each other.
    """
    n, d = rows.shape
    whole = n - n % BLOCK
    for start in range(0, whole, BLOCK):
        for j in range(d):
            for c in range(BLOCK):
                columns[j, start + c] = rows[start + c, j] * scale
    for i in range(whole, n):
        for j in range(d):
            columns[j, i] = rows[i, j] * scale


@jit
def cut_in_two(numbers):
    """Return where to cut numbers (n,) with mean 0, so that the two sides differ most."""
    order = np.sort(numbers)
    n = len(order)
    total = 0.0
    most = -1.0
    threshold = 0.0
    for i in range(n - 1):
        total += order[i]
        between = total * total / ((i + 1.0) * (n - 1.0 - i))
        if between > most:
            most = between
            threshold = 0.5 * (np.float64(order[i]) + np.float64(order[i + 1]))
    return threshold


# --- a hierarchical clustering --------------------------------------------------------------------
@jit
def ward_tree(x):
    """Return Ward's tree of rows x (n, d): in step i, labels tree[i, 0] and tree[i, 1] become label
    n + i, and the first n labels are the rows.

    It follows chains of nearest neighbours (Müllner 2011).
    """
    n = len(x)
    distance = distances(x)
    sizes = np.ones(n, np.int64)
    pairs = np.empty((n - 1, 2), np.int64)  # of rows that stand for their labels
    height = np.empty(n - 1)
    chain = np.empty(n, np.int64)
    length = 0
    for step in range(n - 1):
        if length == 0:
            length = 1
            chain[0] = np.flatnonzero(sizes)[0]
        while True:
            one = chain[length - 1]
            two = chain[length - 2] if length > 1 else -1
            least = distance[one, two] if length > 1 else np.inf
            for i in range(n):
                if sizes[i] > 0 and i != one and distance[one, i] < least:
                    least = distance[one, i]
                    two = i
            for i in range(n):
                if two < 0 and sizes[i] > 0 and i != one:  # all distances are infinite or NaN
                    two = i
            if length > 1 and two == chain[length - 2]:
                break
            chain[length] = two
            length += 1
        length -= 2
        one, two = min(one, two), max(one, two)
        pairs[step, 0] = one
        pairs[step, 1] = two
        height[step] = least
        n_one, n_two = sizes[one], sizes[two]
        sizes[one] = 0
        sizes[two] = n_one + n_two
        for i in range(n):
            if sizes[i] > 0 and i != two:
                share = 1.0 / (n_one + n_two + sizes[i])
                square = (sizes[i] + n_one) * share * distance[i, one] * distance[i, one]
                square += (sizes[i] + n_two) * share * distance[i, two] * distance[i, two]
                square -= sizes[i] * share * least * least
                distance[i, two] = distance[two, i] = math.sqrt(max(square, 0.0))
    tree = np.empty((n - 1, 2), np.int64)
    above = np.full(2 * n - 1, -1)  # label that a label became part of
    order = stable_order(height)
    for step in range(n - 1):
        for i in range(2):
            label = pairs[order[step], i]
            while above[label] >= 0:
                label = above[label]
            tree[step, i] = label
            above[label] = n + step
        one, two = tree[step]
        tree[step, 0] = min(one, two)
        tree[step, 1] = max(one, two)
    return tree


@jit
def stable_order(numbers):
    """Return the order of numbers (n,), equal ones as they stand. Numba's own takes 7 s to compile.

    It merges runs that are in order, each twice as long as the last ones.
    """
    n = len(numbers)
    order, merged = np.arange(n), np.empty(n, np.int64)
    length = 1
    while length < n:
        for start in range(0, n, 2 * length):
            i, middle = start, min(start + length, n)
            j, stop = middle, min(middle + length, n)
            for k in range(start, stop):
                if j == stop or (i < middle and numbers[order[i]] <= numbers[order[j]]):
                    merged[k] = order[i]
                    i += 1
                else:
                    merged[k] = order[j]
                    j += 1
        order, merged = merged, order
        length *= 2
    return order


@jit
def distances(x):
    """Return the distances (n, n) of all pairs of rows x (n, d).

    The squares of a pair are added in four sums, as in `dot`, and those of all pairs of a row
    together, so that they are vectorised.
    """
    n, d = x.shape
    whole = d - d % 4
    columns = np.empty((d, n))
    for i in range(n):
        for k in range(d):
            columns[k, i] = x[i, k]
    distance = np.empty((n, n))
    sums = np.empty((4, n))
    for i in range(n):
        sums[:, : i + 1] = 0.0
        for k in range(d):
            own = columns[k, i]
            column = columns[k]
            total = sums[k % 4 if k < whole else 0]
            for j in range(i + 1):
                total[j] += (own - column[j]) * (own - column[j])
        for j in range(i + 1):
            square = (sums[0, j] + sums[1, j]) + (sums[2, j] + sums[3, j])
            distance[i, j] = distance[j, i] = math.sqrt(square)
    return distance


@jit
def best_cut(model, x, tree, square):
    """Return the number of labels of the most probable cut through a tree, and its evidence.

    x: (n, d). tree: (n - 1, 2), as `ward_tree` returns it. Large numbers of
    labels are tried in steps, and none with fewer than two rows per label.
    """
    n, d = x.shape
    counts = np.zeros(2 * n - 1, np.int64)
    sums = np.zeros((2 * n - 1, d))
    for i in range(n):
        counts[i] = 1
        for j in range(d):
            sums[i, j] = x[i, j]
    alive = np.zeros(2 * n - 1, np.bool_)
    alive[:n] = True
    best = -np.inf
    best_K = 1
    next_K = n // 2
    for i in range(n - 1):
        one, two = tree[i]
        new = n + i
        counts[new] = counts[one] + counts[two]
        for j in range(d):
            sums[new, j] = sums[one, j] + sums[two, j]
        alive[one] = alive[two] = False
        alive[new] = True
        K = n - 1 - i
        if next_K >= K:
            next_K = K - max(K // 5, 1)
            used = np.flatnonzero(alive)
            score = evidence(model, Clusters(counts[used], sums[used]), square)
            if score > best:
                best = score
                best_K = K
    return best_K, best
