"""Tapes: observations that are drawn and decoded before they are needed.

Given the latent state, observations are independent. So they can be drawn and decoded many at a
time, and the episode loop only reads labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.emissions import Emission
from blockmdp.jit import inlined, jit
from blockmdp.mdp import BlockMDP
from blockmdp.rng import child
from blockmdp.trajectories import Observations, by_level

if TYPE_CHECKING:  # scikit-learn, which decoders need, takes a second to import
    from blockmdp.decoders import Decoder

__all__ = ["SHOW_LATENT", "EpisodeTapes", "Tape", "Tapes", "episodes_on_tape", "read_label"]


class Tape(NamedTuple):
    """What the agent will see: the n-th visit to (level, latent state) shows `labels[shift[level,
    latent] + n]`.

    Given the latent state observations are independent, so they can be drawn, and decoded, before
    they are needed, many at a time. With no labels at all the latent state itself is shown.
    """

    labels: NDArray[np.int32]
    shift: NDArray[np.int64]  # (H + 1, S)
    limit: NDArray[np.int64]  # (H + 1, S): visits that the tape holds labels for
    visits: NDArray[np.int64]  # (H + 1, S): visits so far


_NOTHING = np.zeros((0, 0), np.int64)
SHOW_LATENT = Tape(np.zeros(0, np.int32), _NOTHING, _NOTHING, _NOTHING)


class Tapes:
    """Observations of a BlockMDP, drawn and decoded ahead of their use (see `Tape`).

    What the n-th visit to (level, latent state) shows depends on the seed alone, so neither the
    size of a batch nor a change of decoder in between changes what is seen; a new decoder decodes
    afresh what has not been used yet.
    """

    rows_at_once = 1 << 18
    least_rows = 1 << 14  # a call of `predict` costs the same up to about so many

    def __init__(self, mdp: BlockMDP, seed: int) -> None:
        self.mdp = mdp
        shape = (mdp.horizon + 1, mdp.n_states)
        self._cell_keys = np.array(
            [streams.noise(seed, h, s) for h in range(shape[0]) for s in range(shape[1])], np.uint64
        )
        self.visits = np.zeros(shape, np.int64)
        self._limit = np.zeros(shape, np.int64)
        self._shift = np.zeros(shape, np.int64)
        self._labels = np.zeros(0, np.int32)
        self._decoder: Decoder | None = None
        self._then = (
            np.zeros(shape, np.int64),
            0,
        )  # visits, and their episodes, at the last filling

    def refill(self, decoder: Decoder, episodes: int) -> Tape:
        """A tape that lasts for one episode at least, and for about as many as there have been so
        far.
        """
        if decoder is not self._decoder:
            self._decoder = decoder
            self._limit = self.visits.copy()
        past = int(self.visits[0].sum())
        visits, episode = self._then
        rate = (self.visits - visits) / max(past - episode, 1)
        cells = self.visits.size
        rows = min(self.rows_at_once, (1 << 24) // self.mdp.emission.dim)
        ahead = min(episodes, max(past, 1), rows // (self.mdp.horizon + 1) + 1)
        spare = min(max(self.least_rows // cells, 16), 1024)
        expected = rate * ahead
        want = np.minimum(expected + 2 * np.sqrt(expected) + spare, episodes).astype(np.int64)
        left = self._limit - self.visits
        self._fill(decoder, left, np.maximum(want - left, 0))
        self._then = (self.visits.copy(), past)
        return Tape(self._labels, self._shift, self._limit, self.visits)

    def sample(self, level: int, states: NDArray[np.int64]) -> NDArray[Any]:
        """What the next n trajectories see of their states (n,) at a level, (n, dim)."""
        keys = number_visits(
            self._cell_keys.reshape(self.visits.shape)[level], self.visits[level], states
        )
        # what the tape holds for these visits is skipped
        self._limit = np.maximum(self._limit, self.visits)
        return self.mdp.emission.sample(level, states, keys)

    def replay(self, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Observations:
        """What visits starts, ..., starts + counts - 1 to each (level, latent state) showed."""
        level, state = (np.repeat(i.ravel(), counts.ravel()) for i in np.indices(counts.shape))
        keys = fill_keys(self._cell_keys, starts.ravel(), counts.ravel())
        return Observations(level, _observe(self.mdp.emission, level, state, keys))

    def _fill(self, decoder: Decoder, left: NDArray[np.int64], new: NDArray[np.int64]) -> None:
        ahead = self.replay(self.visits + left, new)
        labels = np.asarray(decoder.decode(ahead.levels, ahead.x), np.int32)
        first = (self._shift + self.visits).ravel()
        self._labels = splice(self._labels, first, left.ravel(), labels, new.ravel())
        held = left + new
        start = np.cumsum(held.ravel()) - held.ravel()
        self._limit = self.visits + held
        self._shift = start.reshape(held.shape) - self.visits


class EpisodeTapes:
    """As `Tapes`, for an emission whose noise hangs together over an episode
    (`Emission.per_episode`).

    What (level, latent state) shows in an episode depends on the seed and the episode alone, and an
    episode visits a level once: a tape holds one label for each, and lasts for one episode. Those
    of many episodes are drawn and decoded at once.
    """

    rows_at_once = 1 << 16

    def __init__(self, mdp: BlockMDP, seed: int) -> None:
        self.mdp = mdp
        self._key = streams.episode_noise(seed)
        self.visits = np.zeros((mdp.horizon + 1, mdp.n_states), np.int64)
        self._places = np.arange(self.visits.size).reshape(self.visits.shape)
        self._labels = np.zeros((0, self.visits.size), np.int32)  # of the episodes from _first on
        self._first = 0
        self._decoder: Decoder | None = None

    def refill(self, decoder: Decoder, episodes: int) -> Tape:
        """A tape that lasts for one episode; draws and decodes up to so many ahead."""
        now = int(self.visits[0].sum())
        if decoder is not self._decoder or not 0 <= now - self._first < len(self._labels):
            self._decoder, self._first = decoder, now
            self._fill(decoder, now, episodes)
        labels = self._labels[now - self._first]
        return Tape(labels, self._places - self.visits, self.visits + 1, self.visits)

    def sample(self, level: int, states: NDArray[np.int64]) -> NDArray[Any]:
        """What the next n trajectories see of their states (n,) at a level, (n, dim)."""
        keys = rng.children(self._key, int(self.visits[level].sum()), len(states))
        self.visits[level] += np.bincount(states, minlength=self.mdp.n_states)
        return self.mdp.emission.sample(level, states, keys)

    def replay(self, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Observations:
        """What one episode showed: the one that met the places of `counts` after `starts` visits to
        each.
        """
        level, state = np.nonzero(counts)
        key = rng.children(self._key, int(starts[0].sum()), 1)
        keys = np.repeat(key, len(level))
        return Observations(level, _observe(self.mdp.emission, level, state, keys))

    def _fill(self, decoder: Decoder, first: int, episodes: int) -> None:
        cells = self.visits.size
        rows = min(self.rows_at_once, (1 << 24) // self.mdp.emission.dim)
        n = max(min(episodes, rows // cells), 1)
        level, state = (np.repeat(i.ravel(), n) for i in np.indices(self.visits.shape))
        keys = np.tile(rng.children(self._key, first, n), cells)
        x = _observe(self.mdp.emission, level, state, keys)
        labels = np.asarray(decoder.decode(level, x), np.int32)
        self._labels = np.ascontiguousarray(labels.reshape(cells, n).T)


def _observe(
    emission: Emission,
    levels: NDArray[np.int64],
    states: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> NDArray[Any]:
    """One observation for each level, latent state and key, (n, dim)."""
    if emission.stationary:
        return emission.sample(0, states, keys)
    x = np.empty((len(states), emission.dim), emission.dtype)
    for h, rows in by_level(levels):
        x[rows] = emission.sample(h, states[rows], keys[rows])
    return x


# --- compiled loops -------------------------------------------------------------------------------
@inlined
def read_label(labels, shift, visits, h, s):
    n = visits[h, s]
    visits[h, s] = n + 1
    return np.int64(labels[shift[h, s] + n])


@inlined
def episodes_on_tape(tape, most):
    """How many episodes the tape is sure to last, each of which visits a (level, latent state) at
    most once.
    """
    n = most
    for h in range(tape.visits.shape[0]):
        for s in range(tape.visits.shape[1]):
            n = min(n, tape.limit[h, s] - tape.visits[h, s])
    return n


@jit
def number_visits(cell_keys, visits, s):
    """Keys (n,) of what is seen of the states s (n,), in their order; counts the visits.

    cell_keys: (S,), the keys of one level's states. visits: (S,), changed in place.
    """
    keys = np.empty(len(s), np.uint64)
    for i in range(len(s)):
        keys[i] = child(cell_keys[s[i]], visits[s[i]])
        visits[s[i]] += 1
    return keys


@jit
def fill_keys(cell_keys, starts, counts):
    """Keys of visits starts[c], ..., starts[c] + counts[c] - 1 of each cell c, one cell after the
    other.
    """
    keys = np.empty(counts.sum(), np.uint64)
    i = 0
    for c in range(len(counts)):
        for n in range(counts[c]):
            keys[i] = child(cell_keys[c], starts[c] + n)
            i += 1
    return keys


@jit
def splice(old, first, left, new, counts):
    """For each cell c its `left[c]` old labels from `first[c]` on, then `counts[c]` new ones."""
    out = np.empty(left.sum() + counts.sum(), np.int32)
    i = 0
    j = 0
    for c in range(len(counts)):
        for n in range(left[c]):
            out[i] = old[first[c] + n]
            i += 1
        for _ in range(counts[c]):
            out[i] = new[j]
            i += 1
            j += 1
    return out
