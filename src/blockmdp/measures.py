"""How good a decoder and a policy are, measured against the latent states of a `BlockMDP`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_number
from blockmdp.decoders import Decoder, FrozenTable
from blockmdp.history import Snapshot
from blockmdp.learners import Learner
from blockmdp.mdp import BlockMDP
from blockmdp.policy import Policy
from blockmdp.simulators.block import BlockSimulator
from blockmdp.tapes import fill_keys, observe

__all__ = ["accuracy", "confusion", "recovers", "regret", "solved_from", "value", "values"]


def value(mdp: BlockMDP, policy: Policy, samples: int | None = 1000, seed: int = 0) -> float:
    """Compute the expected return of acting by `policy.act`.

    Exact for a policy on latent states. For a policy on observations, the probability of each
    action in a latent state is measured on fresh observations of it, if it matters which is taken;
    given these probabilities, the value is computed exactly, without rollouts.

    Parameters
    ----------
    mdp : BlockMDP
        Problem to act in.
    policy : Policy
        Policy to evaluate.
    samples : int or None, default=1000
        Fresh observations of each latent state at each level. None draws about 30,000 in all,
        between 100 and 1,000 of each.
    seed : int, default=0
        Seed of these observations.

    Returns
    -------
    float
        Expected return of an episode.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5)
    >>> value(m, bm.Policy(m.optimal_policy()))
    0.5
    """
    return _value(mdp, policy, partial(_seen, _Fresh(mdp, mdp.has_choice, samples, seed)))


Decode = Callable[[NDArray[np.int64], NDArray[Any]], Any]  # of levels and observations
NUMBERS = 1 << 22  # of the observations that are drawn and decoded at once


class _Labels(NamedTuple):
    """How many of `samples` observations of a latent state at a level have a label, where any do.

    Many policies have the same decoder, and the actions of a policy follow from these few numbers.
    """

    levels: NDArray[np.int64]  # (m,)
    states: NDArray[np.int64]  # (m,)
    labels: NDArray[np.int64]  # (m,)
    counts: NDArray[np.int64]  # (m,)
    samples: int


class _Fresh:
    """Fresh observations of latent states at levels, level by level and state by state.

    They are in parts of at most `NUMBERS` numbers, or of one level if it has more.
    """

    def __init__(
        self, mdp: BlockMDP, cells: NDArray[np.bool_], samples: int | None, seed: int
    ) -> None:
        """cells: (levels, S), which states to observe at which levels."""
        if samples is not None:
            check_integer("samples", samples, 1)
        if not mdp.emission.has_noise:
            samples = 1
        if samples is None:
            samples = min(max(30_000 // ((mdp.horizon + 1) * mdp.n_states), 100), 1000)
        self.mdp, self.samples, self._cells, self._seed = mdp, samples, cells, seed
        at_once = max(NUMBERS // (mdp.n_states * samples * mdp.emission.dim), 1)
        starts = range(0, len(cells), at_once)
        self._parts = [range(h, min(h + at_once, len(cells))) for h in starts]
        self._kept: dict[range, _Part] = {}

    def parts(self, *, keep: bool) -> Iterator[_Part]:
        """Yield all observations. keep: whether they will be needed again."""
        for part in self._parts:
            seen = self._kept.get(part) or self._draw(part)
            if keep:
                self._kept[part] = seen
            if len(seen.x):
                yield seen

    def _draw(self, part: range) -> _Part:
        n, cells = self.samples, self._cells[part.start : part.stop]
        levels, states = np.nonzero(cells)
        above = rng.children(streams.sampling_root(self._seed), part.start, len(part))
        below = np.stack([rng.children(key, 0, self.mdp.n_states) for key in above])[cells]
        keys = fill_keys(below, np.zeros(len(below), np.int64), np.full(len(below), n))
        of_rows = np.repeat(levels + part.start, n), np.repeat(states, n)
        return _Part(*of_rows, observe(self.mdp.emission, *of_rows, keys))


class _Part(NamedTuple):
    """Observations, `samples` of each state in a row."""

    levels: NDArray[np.int64]  # (m,)
    states: NDArray[np.int64]  # (m,)
    x: NDArray[Any]  # (m, d)


def _count(fresh: _Fresh, decode: Decode, *, keep: bool = False) -> _Labels:
    """Decode fresh observations, and count the labels of each state at each level."""
    n, columns = fresh.samples, [np.empty((4, 0), np.int64)]
    for seen in fresh.parts(keep=keep):
        given = np.asarray(decode(seen.levels, seen.x))
        labels = given.ravel().astype(np.int64)
        if len(labels) != len(seen.x):
            raise ValueError(f"a decoder gave {len(labels)} labels for {len(seen.x)} observations")
        if labels.min() < 0 or (labels != given.ravel()).any():
            wrong = given.ravel()[(labels < 0) | (labels != given.ravel())][0]
            raise ValueError(f"the labels of a decoder must be whole numbers >= 0, got {wrong}")
        cells, K = np.arange(len(labels)) // n, int(labels.max()) + 1
        numbers = cells * K + labels  # of a level, a state and a label
        if len(numbers) >= K * (cells[-1] + 1):
            counts = np.bincount(numbers)
            found = np.flatnonzero(counts)
            counts = counts[found]
        else:
            found, counts = np.unique(numbers, return_counts=True)
        first = found // K * n  # row of the cell
        columns.append(np.stack([seen.levels[first], seen.states[first], found % K, counts]))
    levels, states, labels, counts = np.concatenate(columns, axis=1)
    return _Labels(levels, states, labels, counts, n)


def _seen(fresh: _Fresh, policy: Policy, *, keep: bool = False) -> _Labels:
    """Return the labels of fresh observations under the decoder of a policy."""
    return _count(fresh, lambda levels, x: policy.decode(x, levels), keep=keep)


def _rows(policy: Policy) -> Hashable:
    """What tables of observations share, that were frozen at different times; for dictionaries."""
    decoder = policy.decoder
    return decoder.rows if isinstance(decoder, FrozenTable) else id(decoder)


def _n_rows(policy: Policy) -> int:
    return policy.decoder.n_rows if isinstance(policy.decoder, FrozenTable) else 0


def _earlier(seen: _Labels, policy: Policy) -> _Labels:
    """Return the labels that a policy gives the same observations, whose table may be smaller."""
    if not isinstance(policy.decoder, FrozenTable):
        return seen
    return seen._replace(labels=policy.decoder.earlier(seen.levels, seen.labels))


def _value(mdp: BlockMDP, policy: Policy, count: Callable[[Policy], _Labels]) -> float:
    """Compute the value of a policy, given the labels of observations of states with a choice."""
    S, A = mdp.n_states, mdp.n_actions
    if policy.pi.shape[::2] != (mdp.horizon, A):
        H, _, actions = policy.pi.shape
        raise ValueError(
            f"the policy has horizon {H} and {actions} actions, but {mdp.name} has horizon "
            f"{mdp.horizon} and {A} actions"
        )
    if policy.decoder is None:
        levels, states = np.indices((mdp.horizon, S))
        return mdp.value(np.eye(A)[policy.actions(states, levels)])
    seen = count(policy)
    actions = policy.actions(seen.labels, seen.levels)
    cells = (seen.levels * S + seen.states) * A + actions
    shares = np.bincount(cells, seen.counts, mdp.horizon * S * A) / seen.samples
    shares = shares.reshape(mdp.horizon, S, A)
    shares[~mdp.has_choice, 0] = 1.0
    return mdp.value(shares)


def solved_from(
    mdp: BlockMDP,
    snapshots: Sequence[Snapshot],
    share: float = 0.9,
    samples: int | None = None,
    seed: int = 0,
) -> int | None:
    """Find the trajectory from which the value of a learner's policy stays good, to the end.

    Unlike a mean of returns, this needs no window, and the luck of single returns plays no part. It
    is strict: a single bad policy at a checkpoint moves it to the next one. An optimistic learner
    has such a lapse whenever it tries another action again, and a longer fit has more checkpoints.
    Between two checkpoints nothing is measured.

    Parameters
    ----------
    mdp : BlockMDP
        Problem to act in. A black box has no known value.
    snapshots : sequence of Snapshot
        Policies along the way, in order: `snapshots_` of an agent.
    share : float, default=0.9
        Share of the optimal value that is good.
    samples : int or None, default=None
        Fresh observations of each latent state at each level, as in `value`.
    seed : int, default=0
        Seed of these observations.

    Returns
    -------
    int or None
        `trajectories` of the first snapshot from which all values are good; None if the last one
        is not.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5)
    >>> agent = bm.Tabular(bm.UCBVI(bonus=0.1)).fit(m, episodes=500, record=True)
    >>> solved_from(m, agent.snapshots_)
    26
    """
    check_number("share", share, 0, 1, closed="right")
    best = mdp.optimal_value()
    good = best - (1 - share + 1e-9) * abs(best)  # values have rounding errors
    backwards = [snapshot.policy for snapshot in reversed(snapshots)]
    first = None
    for v, snapshot in zip(_values(mdp, backwards, samples, seed), reversed(snapshots)):
        if v < good:
            break
        first = snapshot.trajectories
    return first


def values(
    mdp: BlockMDP, snapshots: Sequence[Snapshot], samples: int | None = None, seed: int = 0
) -> NDArray[np.float64]:
    """Compute the value of a learner's policy at each checkpoint.

    Parameters
    ----------
    mdp : BlockMDP
        Problem to act in. A black box has no known value.
    snapshots : sequence of Snapshot
        Policies along the way: `snapshots_` of an agent.
    samples : int or None, default=None
        Fresh observations of each latent state at each level, as in `value`.
    seed : int, default=0
        Seed of these observations.

    Returns
    -------
    ndarray of shape (n,)
        Expected return of an episode.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5)
    >>> agent = bm.Tabular(bm.UCBVI(bonus=0.1)).fit(m, episodes=64, record="few")
    >>> [snapshot.k for snapshot in agent.snapshots_]
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]
    >>> values(m, agent.snapshots_)[-4:]
    array([0.1, 0.5, 0.5, 0.5])
    """
    policies = [snapshot.policy for snapshot in snapshots]
    return np.array(list(_values(mdp, policies, samples, seed)))


def _values(
    mdp: BlockMDP, policies: Sequence[Policy], samples: int | None, seed: int
) -> Iterator[float]:
    """Yield the value of each policy, all on the same observations."""
    fresh = _Fresh(mdp, mdp.has_choice, samples, seed)
    count = cache(partial(_seen, fresh, keep=True))
    largest: dict[Hashable, Policy] = {}  # one policy for each decoder, for tables the largest
    for policy in sorted(policies, key=_n_rows):
        largest[_rows(policy)] = policy

    def labels(policy: Policy) -> _Labels:
        return _earlier(count(largest[_rows(policy)]), policy)

    last, v = None, 0.0
    for policy in policies:
        if last is None or not _equal(policy, last):
            v = _value(mdp, policy, labels)
        yield v
        last = policy


def _equal(one: Policy, other: Policy) -> bool:
    """Whether two policies with the same decoder choose the same actions."""
    same = one.decoder is other.decoder and one.pi.shape == other.pi.shape
    return same and bool((one.pi.argmax(axis=2) == other.pi.argmax(axis=2)).all())


def regret(mdp: BlockMDP, learner: Learner, episodes: int, seed: int = 0) -> NDArray[np.float64]:
    """Compute the exact regret of a learner that is shown latent states.

    It is the sum of V* - V(pi_k) over the episodes so far, where pi_k is the policy that the
    learner follows in episode k, exploration included. Both values are computed from the model, so
    the luck of single returns plays no part. (A learner with `stationary=True` may change its
    policy within an episode; what counts is the one at its beginning.)

    Parameters
    ----------
    mdp : BlockMDP
        Problem to learn.
    learner : Learner
        The learner.
    episodes : int
        Number of episodes.
    seed : int, default=0
        Seed of the run: its episodes are those of ``Tabular(learner).fit(mdp, episodes, seed)``.

    Returns
    -------
    ndarray of shape (episodes,)
        Regret after each episode.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=3)
    >>> regret(m, bm.UCBVI(bonus=0.0), episodes=100)[[0, 9, 99]].round(2)
    array([0.44, 4.18, 6.7 ])
    """
    check_integer("episodes", episodes, 1)
    for name, value, kind in (("mdp", mdp, BlockMDP), ("learner", learner, Learner)):
        if not isinstance(value, kind):
            raise ValueError(f"{name} must be a blockmdp.{kind.__name__}, got {value!r}")
    simulator = BlockSimulator(mdp, seed)
    run = simulator.start(learner, episodes)
    best, lost = mdp.optimal_value(), np.empty(episodes)
    last, v = None, 0.0
    for k in range(episodes):
        pi = learner.behaviour(run.tables, k)
        if last is None or not np.array_equal(pi, last):
            last, v = pi.copy(), mdp.value(pi)
        lost[k] = best - v
        simulator.learn(run, None, 1)
    return np.cumsum(lost)


def confusion(
    mdp: BlockMDP, decoder: Decoder, samples: int | None = 1000, seed: int = 0
) -> NDArray[np.float64]:
    """Measure the share of each latent state's observations that a decoder gives each label.

    Parameters
    ----------
    mdp : BlockMDP
        Problem whose observations are decoded.
    decoder : Decoder
        Decoder to measure.
    samples : int or None, default=1000
        Fresh observations of each latent state at each level. None draws about 30,000 in all,
        between 100 and 1,000 of each.
    seed : int, default=0
        Seed of these observations.

    Returns
    -------
    ndarray of shape (H + 1, S, n_labels)
        Rows sum to 1.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_gaussian(horizon=5)
    >>> agent = bm.OnlineURL().fit(m, episodes=200)
    >>> confusion(m, agent.decoder_).shape[:2]
    (6, 3)
    """
    fresh = _Fresh(mdp, np.ones((mdp.horizon + 1, mdp.n_states), np.bool_), samples, seed)
    seen = _count(fresh, decoder.decode)
    if seen.labels.max() >= decoder.n_labels:
        raise ValueError(
            f"a decoder with n_labels = {decoder.n_labels} gave the label {seen.labels.max()}: "
            "labels must be from 0 to n_labels - 1"
        )
    C = np.zeros((mdp.horizon + 1, mdp.n_states, decoder.n_labels))
    C[seen.levels, seen.states, seen.labels] = seen.counts / seen.samples
    return C


def accuracy(
    C: NDArray[np.float64], reachable: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Compute how well labels tell latent states apart, at each level.

    Each label is read as the state that it is most often given to. If there are as many labels as
    states, and no two states are merged, this is the best permutation. All reachable states count
    equally.

    Parameters
    ----------
    C : ndarray of shape (H + 1, S, n_labels)
        See `confusion`.
    reachable : ndarray of shape (H + 1, S) or None, default=None
        States to count; None counts all.

    Returns
    -------
    ndarray of shape (H + 1,)
        Between 0 and 1.

    Examples
    --------
    >>> C = np.array([[[0.9, 0.1], [0.2, 0.8]]])  # one level, two states, two labels
    >>> accuracy(C).round(2)
    array([0.85])
    """
    S = C.shape[1]
    weight = np.ones(C.shape[:2]) if reachable is None else reachable.astype(np.float64)
    weighted = C * weight[:, :, None]
    right = np.arange(S)[:, None] == weighted.argmax(axis=1)[:, None, :]
    total = weight.sum(axis=1)
    shares = (weighted * right).sum(axis=(1, 2)) / np.maximum(total, 1.0)
    shares[total == 0] = 1.0  # there is nothing to tell apart
    return np.asarray(np.minimum(shares, 1.0), np.float64)  # sums have rounding errors


def recovers(
    mdp: BlockMDP,
    decoder: Decoder,
    counts: NDArray[Any],
    tolerance: float = 0.1,
    samples: int | None = None,
    seed: int = 0,
) -> bool:
    """Test whether a decoder and a model are right, up to a permutation of the states.

    This is the test of success of the STEEL paper. It is strict: at each level, every reachable
    state must have one label for all its observations, and no two states the same. Every action in
    every reachable state must have been tried, and lead to the right labels.

    Parameters
    ----------
    mdp : BlockMDP
        The problem.
    decoder : Decoder
        Decoder to test.
    counts : ndarray of shape (L, n_labels, A, n_labels)
        How often an action led from one label to another, at each level; L is H, or 1 if levels
        were counted together. If neither the labels nor the dynamics of the problem depend on the
        level, the counts of all levels are added.
    tolerance : float, default=0.1
        Largest distance between the estimated and the true distribution of the next state, half
        the sum of absolute differences. With any tolerance below 0.5, the most frequent next state
        of a deterministic problem is the right one.
    samples : int or None, default=None
        Fresh observations of each latent state at each level, as in `value`.
    seed : int, default=0
        Seed of these observations.

    Returns
    -------
    bool
        Whether both are right.

    References
    ----------
    Alexander Levine, Peter Stone and Amy Zhang. Learning a Fast Mixing Exogenous Block MDP using a
    Single Trajectory. ICLR 2025.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.noisy_chain(n_states=4, n_bits=16)
    >>> agent = bm.OnlineURL(learner=bm.UCBVI(bonus=0.1)).fit(m, episodes=200)
    >>> recovers(m, agent.decoder_, agent.tables_.m)
    True
    """
    check_number("tolerance", tolerance, 0, 1)
    A, counts = mdp.n_actions, np.asarray(counts)
    if counts.ndim != 4 or len(counts) not in (1, mdp.horizon) or counts.shape[2] != A:
        raise ValueError(
            f"counts must have shape (1 or {mdp.horizon}, n_labels, {A}, n_labels) to be compared "
            f"with {mdp.name}, but have shape {counts.shape}"
        )
    reached = mdp.reached()
    C = confusion(mdp, decoder, samples, seed)
    labels = np.where(reached, C.argmax(axis=2), -1)  # (H + 1, S)
    if (C.max(axis=2) < 1)[reached].any():
        return False
    if any(len(np.unique(row[on])) < on.sum() for row, on in zip(labels, reached)):
        return False
    ends = np.zeros(mdp.n_states, np.bool_) if mdp.ends is None else mdp.ends
    P = mdp.transitions * ~ends  # as in the counts, where the end of an episode is no label
    one = labels.max(axis=0)  # (S,), if labels do not depend on the level
    used = one[one >= 0]
    is_one = bool((labels == one)[reached].all()) and len(np.unique(used)) == len(used)
    if is_one and (P[:1] == P).all():
        known = np.asarray((reached[:-1] & ~ends).any(axis=0))
        return _agree(P[0], counts.sum(axis=0), one, one, known, tolerance)
    return len(counts) == mdp.horizon and all(
        _agree(P[h], counts[h], labels[h], labels[h + 1], reached[h] & ~ends, tolerance)
        for h in range(mdp.horizon)
    )


def _agree(
    P: NDArray[np.float64],
    counts: NDArray[Any],
    labels: NDArray[np.int64],
    next_labels: NDArray[np.int64],
    states: NDArray[np.bool_],
    tolerance: float,
) -> bool:
    """Whether counted transitions (labels, A, labels) of some states agree with P (S, A, S)."""
    n = counts.sum(axis=2, keepdims=True)[labels[states]]
    found = counts[labels[states]] / np.maximum(n, 1)
    true = np.zeros_like(found)
    there = next_labels >= 0
    true[:, :, next_labels[there]] = P[states][:, :, there]
    tried = (n[:, :, 0] > 0) | (true.sum(axis=2) == 0)
    return bool((tried & (np.abs(found - true).sum(axis=2) / 2 <= tolerance)).all())
