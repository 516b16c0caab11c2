"""Several `DirichletMixture`s side by side, one for each level, so that one call updates them all.

Mixture g has row g of every array. Its labels are 0, ..., room[g] - 1, in use or not.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, jit, template
from blockmdp.oracles._dirichlet import (
    Clusters,
    Model,
    Predictive,
    assign,
    evidence,
    group,
    linear_scores,
    room_for_few,
)
from blockmdp.oracles._noise import MIN_DEGREES
from blockmdp.oracles._search import (
    FEW,
    Labelling,
    finds_nothing,
    is_full,
    later,
    may_split,
    noise_dimensions,
    note_labels,
    search,
    split,
    stable_order,
)
from blockmdp.oracles.scores import BankScores, shape

__all__ = [
    "DOUBTS",
    "MAX_SHARE",
    "MIN_CELL_ROWS",
    "MIN_SHARE",
    "NEW_DIMENSIONS",
    "Bank",
    "are_many",
    "count_stale",
    "is_stale",
    "learn_rows",
    "new_bank",
    "note_labels_of",
    "only",
    "search_labels",
    "update_scores",
    "with_room",
]

MIN_ROWS = 3  # rows that confirm a label
MIN_SHARE = 0.01  # share of the rows, since it is new, that confirms a label
MAX_SHARE = 0.1  # share of the rows that are taken for outliers at most
TRIAL = 50  # rows for which a new label is trusted
PATIENCE = 300  # rows after its first for which a label is kept, even if it is taken for outliers
MIN_CELL_ROWS = 32  # observations from which on outlying numbers are sought
MIN_CELL_LABELS, MAX_CELL_LABELS = 8, 0.1  # labels, also as a share of the rows, that are too many
NEW_DIMENSIONS = 0.1  # change of the dimensions of the noise for which labels are reconsidered
MOST_ROOM = 1 << 26  # numbers for which there is room before they are seen
DOUBTS = 20  # rows that are kept in mind because they may belong to a new label


class Bank(NamedTuple):
    """The state of G mixtures; C and K are the numbers of rows and labels there is room for."""

    raw: Any  # (G, C, d) observations without the centre
    x: Any  # (G, C, d) the same, clipped and after T; the same array if no mixture has done that
    z: Any  # (G, C) labels
    n: Any  # (G,) number of observations
    due: Any  # (G,) number of observations at which the labels are reconsidered
    limited: Any  # (G,) the number when it was last decided whether to clip them
    square: Any  # (G,) sum of the squares of all numbers in x
    room: Any  # (G,) number of labels, with those that are not in use
    most: Any  # (G,) the largest number allowed
    counts: Any  # (G, K) see `Clusters`
    sums: Any  # (G, K, d)
    born: Any  # (G, K) observations there were when the label appeared, -1 if not in use
    split_at: Any  # (G, K) number of observations of the label at which it may be split, or 0
    doubtful: Any  # (G, DOUBTS) the last rows that a new label would fit better
    doubts: Any  # (G,) number of rows that there were
    hidden: Any  # (G, K) whether the label is taken for outliers
    outliers: Any  # (G,) number of rows of such labels that were forgotten
    bits: Any  # (G,) see `Model`
    dim: Any  # (G,)
    ratio: Any  # (G,)
    noise: Any  # (G,)
    log_alpha: Any  # (G,)
    depends: Any  # (G, d)
    typical: Any  # (G, d)
    prediction: Predictive  # (G, K, d), (G, K), (G, K), kept by `assign`
    is_current: Any  # (G, K) which predictions are up to date
    scores: BankScores  # what `predict` needs

    def trimmed(self) -> Bank:
        """Return the bank without room for more rows."""
        most = int(self.n.max(initial=1))
        raw, z = self.raw[:, :most].copy(), self.z[:, :most].copy()
        x = raw if self.x is self.raw else self.x[:, :most].copy()
        return self._replace(raw=raw, x=x, z=z)

    def with_own_x(self) -> Bank:
        """Return a bank whose x is an array of its own."""
        if self.x is not self.raw:
            return self
        x, most = np.zeros(self.raw.shape, self.raw.dtype), int(self.n.max())
        x[:, :most] = self.raw[:, :most]
        return self._replace(x=x)


def new_bank(G: int, d: int, rows: int) -> Bank:
    """Return room for G mixtures of observations with d coordinates, and for `rows` of each, unless
    that is very much.
    """
    K, C = 2, max(min(rows, MOST_ROOM // (G * (d + 2))), 16)

    def zeros(*shape: int, dtype: Any = np.float64) -> NDArray[Any]:
        return np.zeros((G, *shape), dtype)

    raw = zeros(C, d, dtype=np.float32)
    return Bank(
        raw=raw,
        x=raw,
        z=zeros(C, dtype=np.int64),
        n=zeros(dtype=np.int64),
        due=zeros(dtype=np.int64),
        limited=zeros(dtype=np.int64),
        square=zeros(),
        room=zeros(dtype=np.int64),
        most=zeros(dtype=np.int64),
        counts=zeros(K, dtype=np.int64),
        sums=zeros(K, d),
        born=zeros(K, dtype=np.int64),
        split_at=zeros(K, dtype=np.int64),
        doubtful=zeros(DOUBTS, dtype=np.int64),
        doubts=zeros(dtype=np.int64),
        hidden=zeros(K, dtype=np.bool_),
        outliers=zeros(dtype=np.int64),
        bits=zeros(dtype=np.bool_),
        dim=zeros(),
        ratio=zeros(),
        noise=zeros(),
        log_alpha=zeros(),
        depends=zeros(d),
        typical=zeros(d),
        prediction=Predictive(zeros(K, d), zeros(K), zeros(K)),
        is_current=zeros(K, dtype=np.bool_),
        scores=BankScores(
            centre=zeros(d),
            low=np.full((G, d), -np.inf),
            high=np.full((G, d), np.inf),
            T=zeros(0, 0),
            has_T=zeros(dtype=np.bool_),
            W=zeros(K, d),
            b=np.full((G, K), -np.inf),
        ),
    )


def with_room(bank: Bank, *, rows: int = 0, labels: int = 0) -> Bank:
    """Return a bank with room for at least that many rows and labels of each mixture."""
    if rows > bank.z.shape[1]:
        more = max(rows, 2 * bank.z.shape[1]) - bank.z.shape[1]
        raw = _padded(bank.raw, more)
        x = raw if bank.x is bank.raw else _padded(bank.x, more)
        bank = bank._replace(raw=raw, x=x, z=_padded(bank.z, more))
    more = labels - bank.counts.shape[1]
    if more > 0:
        scores = bank.scores
        bank = bank._replace(
            counts=_padded(bank.counts, more),
            sums=_padded(bank.sums, more),
            born=_padded(bank.born, more, -1),
            split_at=_padded(bank.split_at, more),
            hidden=_padded(bank.hidden, more),
            prediction=Predictive(*(_padded(a, more) for a in bank.prediction)),
            is_current=_padded(bank.is_current, more),
            scores=scores._replace(W=_padded(scores.W, more), b=_padded(scores.b, more, -np.inf)),
        )
    return bank


def only(bank: Bank, g: int) -> Bank:
    """Return a copy of one mixture, as a bank of its own, without room for more rows."""

    def row(array: NDArray[Any]) -> NDArray[Any]:
        return array[g : g + 1]

    rows: dict[str, Any] = {"raw": row(bank.raw), "x": row(bank.x), "z": row(bank.z)}
    if bank.x is bank.raw:
        rows["x"] = rows["raw"]
    few = bank._replace(n=row(bank.n), **rows).trimmed()
    rest: dict[str, Any] = {
        name: row(a).copy()
        for name, a in zip(bank._fields, bank)
        if isinstance(a, np.ndarray) and name not in rows
    }
    return few._replace(
        **rest,
        prediction=Predictive(*(row(a).copy() for a in bank.prediction)),
        scores=BankScores(*(row(a).copy() for a in bank.scores)),
    )


def _padded(array: NDArray[Any], more: int, value: float = 0) -> NDArray[Any]:
    """Return a copy with `more` entries at the end of its second axis."""
    G, C, *rest = array.shape
    new = np.zeros((G, C + more, *rest), array.dtype)  # no memory is touched before it is used
    new[:, :C] = array
    if value:
        new[:, C:] = value
    return new


# --- compiled loops -------------------------------------------------------------------------------
@template
def model_of(bank, g):
    """Return the model of one mixture. (A call would count the references to all arrays.)"""
    return Model(
        bank.bits[g],
        bank.dim[g],
        bank.ratio[g],
        bank.noise[g],
        bank.log_alpha[g],
        bank.depends[g],
        bank.typical[g],
    )


@jit
def learn_rows(bank, groups, rows, shaped, is_shaped, first, moved):
    """Give observations their most probable labels, in their order, until one needs attention: it
    has a new label, or should have one together with others, or the labels of its mixture may have
    to change; see `reconsider`.

    groups: (m,) mixture of each row. rows: (m, d), without the centre. shaped: (m, d), what `shape`
    makes of them if `is_shaped`; otherwise (1, d), overwritten. first: where to begin. moved:
    (DOUBTS,), overwritten with the rows that should have a new label.

    Returns the number of rows learnt, including those before `first`; whether the last one has a
    new label; how many rows should have one; and whether the last one needs attention.
    """
    m = len(rows)
    few = room_for_few()
    for i in range(first, m):
        g = groups[i]
        n = bank.n[g]
        label, is_new, is_doubtful = learn_row(bank, g, rows, shaped, is_shaped, i, few)
        size = 0
        if is_doubtful:
            bank.doubtful[g, bank.doubts[g] % DOUBTS] = n
            bank.doubts[g] += 1
            candidates = bank.doubtful[g, : min(bank.doubts[g], DOUBTS)]
            candidates = candidates[stable_order(candidates)]
            x, K = bank.x[g, : n + 1], bank.room[g]
            clusters = Clusters(bank.counts[g, :K], bank.sums[g, :K])
            model, square = model_of(bank, g), bank.square[g]
            size = group(model, clusters, x, bank.z[g], square, candidates, moved)
        is_due = n + 1 >= bank.due[g] or bank.counts[g, label] >= bank.split_at[g, label]
        if is_new or size > 0 or (is_due and not reconsider(bank, g)):
            return i + 1, is_new, size, True
    return m, False, 0, False


@inlined
def learn_row(bank, g, rows, shaped, is_shaped, i, few):
    """Give row i its most probable label in mixture g; see `learn_rows`. few: overwritten.

    Returns the label, whether it is new, and whether a few such rows together might get a new one.
    (Counting references would take a third of the time, so it is a scalar function.)
    """
    n, K = bank.n[g], bank.room[g]
    at = i if is_shaped else 0
    if not is_shaped:
        shape(bank.scores, g, rows[i], shaped[0])
    square = bank.square[g]
    for j in range(rows.shape[1]):
        bank.raw[g, n, j] = rows[i, j]
        bank.x[g, n, j] = shaped[at, j]
        square += shaped[at, j] * shaped[at, j]
    bank.square[g] = square
    bank.n[g] = n + 1
    W, b, density = bank.prediction
    label, is_new, is_doubtful, ratio, noise = assign(
        model_of(bank, g),
        Clusters(bank.counts[g, :K], bank.sums[g, :K]),
        bank.x[g, n],
        square,
        Predictive(W[g, :K], b[g, :K], density[g, :K]),
        bank.is_current[g, :K],
        few,
    )
    bank.z[g, n] = label
    bank.ratio[g] = ratio
    bank.noise[g] = noise
    return label, is_new, is_doubtful


@template
def reconsider(bank, g):
    """Reconsider the labels of a mixture if that is due, or the last one if it has grown.

    Returns whether nothing is to be changed, and takes note of that. Otherwise Python has to do it,
    and nothing has changed.
    """
    return are_stable(bank, g) if bank.n[g] >= bank.due[g] else is_whole(bank, g)


@template
def are_stable(bank, g):
    """Return whether a mixture has few rows, and there is nothing to find in them."""
    n, K, d = bank.n[g], bank.room[g], bank.x.shape[2]
    bits = bank.bits[g]
    is_shaped = bank.due[g] == 0 or bank.scores.has_T[g] or n >= MIN_DEGREES * d
    if n > FEW or (not bits and (is_shaped or bank.scores.low[g].max() > -np.inf)):
        return False
    clusters = Clusters(bank.counts[g, :K], bank.sums[g, :K])
    if is_full(clusters.counts, bank.most[g]):
        return False
    decides = n >= max(2 * bank.limited[g], MIN_CELL_ROWS) and not bits
    if decides and are_many(np.count_nonzero(clusters.counts), n):
        return False
    x, z = bank.x[g, :n], bank.z[g, :n]
    dim = bank.dim[g]
    if not bits:
        dim = noise_dimensions(x, z, clusters)
        if abs(dim - bank.dim[g]) >= NEW_DIMENSIONS * bank.dim[g]:
            return False
    model, most = model_of(bank, g), bank.most[g]
    done, model = finds_nothing(model, x, z, bank.square[g], clusters, most)
    if not done:
        return False
    take_over(bank, g, K, model)
    bank.dim[g] = dim
    bank.due[g] = math.ceil((1.5 if n < FEW else 2.0) * n)
    if decides:
        bank.limited[g] = n
    for k in range(K):
        bank.split_at[g, k] = later(bank.counts[g, k]) if bank.counts[g, k] > 0 else 0
    return True


@template
def is_whole(bank, g):
    """Return whether it is certain that the last label of a mixture cannot be split."""
    n, K = bank.n[g], bank.room[g]
    x, z, square = bank.x[g, :n], bank.z[g, :n], bank.square[g]
    clusters, model = Clusters(bank.counts[g, :K], bank.sums[g, :K]), model_of(bank, g)
    k = z[n - 1]
    score = evidence(model, clusters, square)
    if may_split(model, x, z, square, clusters, k, score):
        return False
    bank.split_at[g, k] = later(bank.counts[g, k])
    return True


@inlined
def are_many(labels, n):
    """Whether labels of n rows are so many that single numbers may be outliers."""
    return labels >= max(MIN_CELL_LABELS, MAX_CELL_LABELS * n)


@template
def labelling_of(bank, g):
    """Return the labels of one mixture."""
    z = bank.z[g, : bank.n[g]]
    return Labelling(z, bank.counts[g], bank.sums[g], bank.born[g], bank.split_at[g])


@jit
def note_labels_of(bank, g):
    """Take note of the labels of one mixture, which have changed; see `note_labels`.

    Returns one more than the largest label in use, and whether there is not enough room for labels.
    """
    K = note_labels(labelling_of(bank, g), bank.room[g], bank.most[g])
    bank.room[g] = K
    bank.is_current[g] = False
    n_labels = K
    while n_labels > 0 and bank.counts[g, n_labels - 1] == 0:
        n_labels -= 1
    return n_labels, is_full(bank.counts[g, :K], bank.most[g])


@jit
def search_labels(bank, g, only, steps, is_swept):
    """Search for more probable labels of one mixture; see `search`. Or split label `only`, unless
    it is -1, if that makes the data more probable; see `split`.

    Returns the number of steps that are left, whether nothing was found in the last one, and
    whether there is not enough room for labels to go on.
    """
    x, square, labelling = bank.x[g, : bank.n[g]], bank.square[g], labelling_of(bank, g)
    K, most, model = bank.room[g], bank.most[g], model_of(bank, g)
    if only < 0:
        K, steps, is_stuck, needs_room, model = search(
            model, x, square, labelling, K, most, steps, is_swept
        )
        take_over(bank, g, K, model)
        return steps, is_stuck, needs_room
    clusters = Clusters(labelling.counts[:K], labelling.sums[:K])
    score = evidence(model, clusters, square)
    found, K, model = split(model, x, square, labelling, K, most, only, score)
    if found:
        take_over(bank, g, K, model)
    bank.split_at[g, only] = later(bank.counts[g, only])
    return 0, not found, False


@jit
def take_over(bank, g, K, model):
    """Give a mixture other labels, for which there is room K, and what goes with them."""
    bank.room[g] = K
    bank.is_current[g] = False
    bank.ratio[g] = model.ratio
    bank.noise[g] = model.noise
    bank.depends[g] = model.depends
    bank.typical[g] = model.typical


@jit
def update_scores(bank, groups):
    """Bring the scores of some mixtures up to date. Return which have or had hidden labels."""
    doubted = np.zeros(len(groups), np.bool_)
    mean, density = np.empty(bank.sums.shape[2]), np.empty(bank.counts.shape[1])
    for i in range(len(groups)):
        g = groups[i]
        K = bank.room[g]
        update_one(bank, g, mean, density)
        for k in range(K):
            doubted[i] |= bank.hidden[g, k]
        hide_doubtful(bank, g)
        for k in range(K):
            if bank.hidden[g, k]:
                doubted[i] = True
                bank.scores.b[g, k] = -np.inf
    return doubted


@inlined
def update_one(bank, g, mean, density):
    """Bring the scores of one mixture up to date. mean: (d,) and density: (K,), overwritten."""
    K = bank.room[g]
    W, b = bank.scores.W[g, :K], bank.scores.b[g, :K]
    clusters = Clusters(bank.counts[g, :K], bank.sums[g, :K])
    linear_scores(model_of(bank, g), clusters, mean, W, b, density[:K])


@inlined
def hide_doubtful(bank, g):
    """Choose the labels that are hidden: the small ones, if small labels are outliers here.

    A new label is trusted at first. If at least two more labels stayed small than grew, and hold
    few of the rows together, small labels are taken for outliers, and a new label is used only when
    it has grown.
    """
    stayed = bank.outliers[g]
    grew = 0
    rows = bank.outliers[g]
    for k in range(bank.room[g]):
        count = bank.counts[g, k]
        bank.hidden[g, k] = False
        if is_large(bank, g, k):
            grew += 1
        elif count > 0 and bank.n[g] - bank.born[g, k] >= TRIAL:
            stayed += 1
            rows += count
    if stayed > grew + 1 and grew > 0 and rows < MAX_SHARE * (bank.n[g] + bank.outliers[g]):
        for k in range(bank.room[g]):
            bank.hidden[g, k] = bank.counts[g, k] > 0 and not is_large(bank, g, k)


@inlined
def is_stale(bank, g, k):
    """Whether a label is taken for outliers, and old enough to be forgotten."""
    return bank.hidden[g, k] and bank.n[g] - bank.born[g, k] >= PATIENCE


@jit
def count_stale(bank, groups):
    """Return how many labels of some mixtures may be forgotten."""
    stale = np.zeros(len(groups), np.int64)
    for i in range(len(groups)):
        for k in range(bank.room[groups[i]]):
            stale[i] += is_stale(bank, groups[i], k)
    return stale


@inlined
def is_large(bank, g, k):
    """Whether a label is more than a few rows, and more than a small share of those since then."""
    count = bank.counts[g, k]
    return count >= MIN_ROWS and count >= MIN_SHARE * (bank.n[g] - bank.born[g, k])
