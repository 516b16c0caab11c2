"""Tapes: observations that are drawn and decoded before they are needed.

Given the latent state, observations do not depend on the past. So they are drawn and decoded in
large batches, and the episode loop only reads labels from a tape. The n-th visit to a latent state
at a level shows the n-th observation of this cell of the tape.
"""

from __future__ import annotations

import math
from functools import cached_property
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

__all__ = [
    "SHOW_LATENT",
    "EpisodeTapes",
    "Tape",
    "Tapes",
    "episodes_on_tape",
    "fill_keys",
    "observe",
    "read_label",
]


class Tape(NamedTuple):
    """What the agent will see: labels, or the observations themselves.

    The n-th visit to state s at level h shows `shown[shift[h, s] + (n & mask)]`, where the mask is
    -1, or 0 if all visits show the same. An empty tape shows the latent states.
    """

    shown: NDArray[Any]  # (rows,) labels, or (rows, dim) observations, noisy ones as doubles
    shift: NDArray[np.int64]  # (H + 1, S)
    limit: NDArray[np.int64]  # (H + 1, S), number of visits that the tape is made for
    visits: NDArray[np.int64]  # (H + 1, S), number of visits so far
    mask: int = -1


AHEAD = 64  # most episodes whose observations are drawn ahead
NONE = object()  # no decoder so far
_EMPTY = np.zeros((0, 0), np.int64)
SHOW_LATENT = Tape(np.zeros(0, np.int32), _EMPTY, _EMPTY, _EMPTY)


class Tapes:
    """Draws and decodes observations of a BlockMDP in batches.

    The n-th observation of a latent state at a level depends on the seed alone. So neither batch
    sizes nor a change of decoder change what is seen. A new decoder decodes again all observations
    that are not used yet.

    Parameters
    ----------
    mdp : BlockMDP
        Problem to observe.
    seed : int
        Seed of the observations.

    Attributes
    ----------
    visits : ndarray of shape (H + 1, S)
        Number of visits to each latent state at each level so far.
    """

    rows_at_once = 1 << 18
    least_rows = 1 << 14  # below this size, a call of `predict` costs about the same

    def __init__(self, mdp: BlockMDP, seed: int) -> None:
        self.mdp = mdp
        shape = (mdp.horizon + 1, mdp.n_states)
        self._seed = seed
        self.visits = np.zeros(shape, np.int64)
        self._limit = np.zeros(shape, np.int64)
        self._shift = np.zeros(shape, np.int64)
        self._shown: NDArray[Any] = np.zeros(0, np.int32)
        self._spare = self._shown  # where to write the next one
        self._decoder: Any = NONE
        self._last_visits, self._last_episodes = np.zeros(shape, np.int64), 0  # at the last refill

    @cached_property
    def _cell_keys(self) -> NDArray[np.uint64]:
        """Keys of the cells of the tape; `streams.noise` of each level and state."""
        levels = rng.children(streams.noise_root(self._seed), 0, self.mdp.horizon + 1)
        return np.concatenate([rng.children(key, 0, self.mdp.n_states) for key in levels])

    def refill(self, decoder: Decoder | None, episodes: int) -> Tape:
        """Return a tape that lasts for at least one episode.

        It lasts for about as many episodes as there were so far.

        Parameters
        ----------
        decoder : Decoder or None
            Maps observations to labels. None shows the observations themselves.
        episodes : int
            Number of episodes still to come.

        Returns
        -------
        Tape
            The tape, for use in compiled loops.
        """
        if not self.mdp.emission.has_noise:
            return self._constant(decoder)
        if decoder is not self._decoder:
            self._decoder = decoder
            self._limit = self.visits.copy()
            self._shown = _shown(decoder, self.mdp.emission)
        past = int(self.visits[0].sum())
        rate = (self.visits - self._last_visits) / max(past - self._last_episodes, 1)
        cells = self.visits.size
        numbers = 1 << (24 if decoder is not None else 21)
        rows = min(self.rows_at_once, numbers // self.mdp.emission.dim)
        ahead = min(episodes, max(past, 1), rows // (self.mdp.horizon + 1) + 1)
        if decoder is None:
            spare = min(max(rows // (4 * cells), 4), 16)
        else:
            spare = min(max(self.least_rows // cells, 16), 1024)
        expected = rate * ahead
        want = np.minimum(expected + 2 * np.sqrt(expected) + spare, episodes).astype(np.int64)
        left = self._limit - self.visits
        self._fill(decoder, left, np.maximum(want - left, 0))
        self._last_visits, self._last_episodes = self.visits.copy(), past
        return Tape(self._shown, self._shift, self._limit, self.visits)

    def observations(self, episodes: int = AHEAD) -> Tape:
        """Return a tape that shows observations, and lasts for at least one episode.

        Parameters
        ----------
        episodes : int, default=AHEAD
            Number of episodes still to come.

        Returns
        -------
        Tape
            The tape, for use in compiled loops.
        """
        if not self.mdp.emission.has_noise:
            return self._constant(None)
        if self._decoder is not None or (self._limit <= self.visits).any():
            self.refill(None, min(episodes, AHEAD))
        return Tape(self._shown, self._shift, self._limit, self.visits)

    def sample(
        self, level: int, states: NDArray[np.int64], episodes: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Draw the next observation of each latent state, and count the visits.

        Parameters
        ----------
        level : int
            Level of the observations.
        states : ndarray of shape (n,)
            Latent states of n trajectories.
        episodes : ndarray of shape (n,)
            Which of the trajectories drawn together they are; those that are over are left out.

        Returns
        -------
        ndarray of shape (n, dim)
            Observations.
        """
        keys = number_visits(
            self._cell_keys.reshape(self.visits.shape)[level], self.visits[level], states
        )
        self._pass_by()
        return self.mdp.emission.sample(level, states, keys)

    def skip(self, level: int, states: NDArray[np.int64]) -> None:
        """Count visits as `sample` does, but draw nothing.

        Parameters
        ----------
        level : int
            Level of the observations.
        states : ndarray of shape (n,)
            Latent states of n trajectories.
        """
        self.visits[level] += np.bincount(states, minlength=self.mdp.n_states)
        self._pass_by()

    def _pass_by(self) -> None:
        """Leave out what the tape holds for visits that were made without it."""
        self._limit = np.maximum(self._limit, self.visits)

    def replay(self, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Observations:
        """Draw again the observations of past or future visits.

        Parameters
        ----------
        starts : ndarray of shape (H + 1, S)
            Number of the first visit to each latent state at each level.
        counts : ndarray of shape (H + 1, S)
            Number of visits.

        Returns
        -------
        Observations
            What these visits show.
        """
        level, state = (np.repeat(i.ravel(), counts.ravel()) for i in np.indices(counts.shape))
        keys = fill_keys(self._cell_keys, starts.ravel(), counts.ravel())
        return Observations(level, observe(self.mdp.emission, level, state, keys))

    def _constant(self, decoder: Decoder | None) -> Tape:
        """Return a tape without noise, which lasts for ever: each cell has one entry."""
        if decoder is not self._decoder:
            levels, S = self.visits.shape
            states, keys = np.arange(S), np.zeros(S, np.uint64)
            looks = 1 if decoder is None and self.mdp.emission.stationary else levels
            shown = [
                _decoded(decoder, np.full(S, h), self.mdp.emission.sample(h, states, keys))
                for h in range(looks)
            ]
            self._decoder, self._shown = decoder, np.concatenate(shown)
            self._shift = np.minimum(np.arange(levels), looks - 1)[:, None] * S + states
            self._limit = np.full(self.visits.shape, np.iinfo(np.int64).max)
        return Tape(self._shown, self._shift, self._limit, self.visits, mask=0)

    def _fill(
        self, decoder: Decoder | None, left: NDArray[np.int64], new: NDArray[np.int64]
    ) -> None:
        """Keep what is left of each cell, and add to it. left, new: (H + 1, S)."""
        ahead = self.replay(self.visits + left, new)
        shown = _decoded(decoder, ahead.levels, ahead.x)
        first, held = (self._shift + self.visits).ravel(), left + new
        out = self._room(int(held.sum()))
        parts = (_as_rows(self._shown), first, left.ravel(), _as_rows(shown), new.ravel())
        splice(*parts, _as_rows(out))
        self._shown, self._spare = out, self._shown
        start = np.cumsum(held.ravel()) - held.ravel()
        self._limit = self.visits + held
        self._shift = start.reshape(held.shape) - self.visits

    def _room(self, n: int) -> NDArray[Any]:
        """Return an array for at least n entries: the one before this one, if it is large enough,
        because fresh memory takes longer to get than to fill.
        """
        shown, spare = self._shown, self._spare
        if len(spare) >= n and (spare.dtype, spare.shape[1:]) == (shown.dtype, shown.shape[1:]):
            return spare
        return np.empty((2 * n, *shown.shape[1:]), shown.dtype)


class EpisodeTapes:
    """Like `Tapes`, for emissions whose noise is correlated within an episode.

    What a latent state at a level shows depends on the seed and the episode alone. An episode
    visits each level once, so a tape has one label for each cell and lasts for one episode. The
    observations of many episodes are drawn and decoded together.

    Parameters
    ----------
    mdp : BlockMDP
        Problem to observe; its emission has `per_episode=True`.
    seed : int
        Seed of the observations.

    Attributes
    ----------
    visits : ndarray of shape (H + 1, S)
        Number of visits to each latent state at each level so far.
    """

    rows_at_once = 1 << 16

    def __init__(self, mdp: BlockMDP, seed: int) -> None:
        self.mdp = mdp
        self._key = streams.episode_noise(seed)
        self.visits = np.zeros((mdp.horizon + 1, mdp.n_states), np.int64)
        self._places = np.arange(self.visits.size).reshape(self.visits.shape)
        self._shown: NDArray[Any] = np.zeros((0, self.visits.size), np.int32)
        self._first = 0  # episode that comes first in it
        self._sampled = 0
        self._decoder: Any = NONE

    def refill(self, decoder: Decoder | None, episodes: int) -> Tape:
        """Return a tape that lasts for one episode; see `Tapes.refill`."""
        now = int(self.visits[0].sum())
        if decoder is not self._decoder or not 0 <= now - self._first < len(self._shown):
            self._decoder, self._first = decoder, now
            self._fill(decoder, now, episodes)
        shown = self._shown[now - self._first]
        return Tape(shown, self._places - self.visits, self.visits + 1, self.visits)

    def observations(self, episodes: int = AHEAD) -> Tape:
        """Return a tape that shows the observations of one episode; see `Tapes.observations`."""
        return self.refill(None, min(episodes, AHEAD))

    def sample(
        self, level: int, states: NDArray[np.int64], episodes: NDArray[np.int64]
    ) -> NDArray[Any]:
        """Draw the next observation of each latent state, and count the visits.

        Parameters
        ----------
        level : int
            Level of the observations.
        states : ndarray of shape (n,)
            Latent states of n trajectories.
        episodes : ndarray of shape (n,)
            Which of the trajectories drawn together they are; those that are over are left out.

        Returns
        -------
        ndarray of shape (n, dim)
            Observations.
        """
        if level == 0:
            self._sampled = int(self.visits[0].sum())  # episodes before those drawn together
        n = int(episodes.max(initial=-1)) + 1
        keys = rng.children(self._key, self._sampled, n)[episodes]
        self.skip(level, states)
        return self.mdp.emission.sample(level, states, keys)

    def skip(self, level: int, states: NDArray[np.int64]) -> None:
        """Count visits as `sample` does, but draw nothing; see `Tapes.skip`."""
        self.visits[level] += np.bincount(states, minlength=self.mdp.n_states)

    def replay(self, starts: NDArray[np.int64], counts: NDArray[np.int64]) -> Observations:
        """Draw again the observations of one episode.

        Parameters
        ----------
        starts : ndarray of shape (H + 1, S)
            Number of visits to each latent state at each level before the episode.
        counts : ndarray of shape (H + 1, S)
            1 for the cells that the episode visited, otherwise 0.

        Returns
        -------
        Observations
            What the episode showed.
        """
        level, state = np.nonzero(counts)
        key = rng.children(self._key, int(starts[0].sum()), 1)
        keys = np.repeat(key, len(level))
        return Observations(level, observe(self.mdp.emission, level, state, keys))

    def _fill(self, decoder: Decoder | None, first: int, episodes: int) -> None:
        """Draw and decode the observations of the next episodes, as many as fit into a batch."""
        (levels, S), cells = self.visits.shape, self.visits.size
        numbers = 1 << (24 if decoder is not None else 21)
        rows = min(self.rows_at_once, numbers // self.mdp.emission.dim)
        n = max(min(episodes, rows // cells), 1)
        level, episode, state = (i.ravel() for i in np.indices((levels, n, S)))
        keys = rng.children(self._key, first, n)[episode]
        x = observe(self.mdp.emission, level, state, keys)
        shown = _decoded(decoder, level, x)
        shown = shown.reshape(levels, n, S, *shown.shape[1:]).swapaxes(0, 1)
        dtype = _shown(decoder, self.mdp.emission).dtype
        self._shown = np.ascontiguousarray(shown, dtype).reshape(n, cells, *shown.shape[3:])


def _shown(decoder: Decoder | None, emission: Emission) -> NDArray[Any]:
    """Return room for what no visit shows: doubles, so that loops are compiled once for all."""
    return np.zeros((0, emission.dim)) if decoder is None else np.zeros(0, np.int32)


def _as_rows(shown: NDArray[Any]) -> NDArray[Any]:
    return shown.reshape(len(shown), math.prod(shown.shape[1:]))


def _decoded(decoder: Decoder | None, levels: NDArray[np.int64], x: NDArray[Any]) -> NDArray[Any]:
    """Return the labels of observations; without a decoder, the observations."""
    return x if decoder is None else np.asarray(decoder.decode(levels, x), np.int32)


def observe(
    emission: Emission,
    levels: NDArray[np.int64],
    states: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> NDArray[Any]:
    """Draw one observation for each level, latent state and key, (n, dim)."""
    if emission.stationary:
        return emission.sample(0, states, keys)
    if emission.takes_levels:
        return emission.sample(levels, states, keys)
    x = np.empty((len(states), emission.dim), emission.dtype)
    for h, rows in by_level(levels):
        x[rows] = emission.sample(h, states[rows], keys[rows])
    return x


# --- compiled loops -------------------------------------------------------------------------------
@inlined
def read_label(tape: Tape, h: int, s: int) -> np.int64:
    """Return what the next visit to state s at level h shows, and count the visit."""
    if len(tape.shown) == 0:
        return np.int64(s)
    n = tape.visits[h, s]
    tape.visits[h, s] = n + 1
    return np.int64(tape.shown[tape.shift[h, s] + (n & tape.mask)])


@inlined
def episodes_on_tape(tape: Tape, most: int) -> int:
    """Return how many episodes the tape is sure to last for, up to `most`.

    An episode visits a latent state at a level at most once.
    """
    n = most
    for h in range(tape.visits.shape[0]):
        for s in range(tape.visits.shape[1]):
            n = min(n, tape.limit[h, s] - tape.visits[h, s])
    return n


@jit
def number_visits(
    cell_keys: NDArray[np.uint64], visits: NDArray[np.int64], s: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the keys (n,) of the next observations of the states s (n,), and count the visits.

    cell_keys: (S,), keys of the states of one level. visits: (S,), changed in place.
    """
    keys = np.empty(len(s), np.uint64)
    for i in range(len(s)):
        keys[i] = child(cell_keys[s[i]], visits[s[i]])
        visits[s[i]] += 1
    return keys


@jit
def fill_keys(
    cell_keys: NDArray[np.uint64], starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the keys of visits starts[c], ..., starts[c] + counts[c] - 1 of each cell c, in order.

    cell_keys, starts, counts: (cells,).
    """
    keys = np.empty(counts.sum(), np.uint64)
    i = 0
    for c in range(len(counts)):
        for n in range(counts[c]):
            keys[i] = child(cell_keys[c], starts[c] + n)
            i += 1
    return keys


@jit
def splice(
    old: NDArray[Any],
    first: NDArray[np.int64],
    left: NDArray[np.int64],
    new: NDArray[Any],
    counts: NDArray[np.int64],
    out: NDArray[Any],
) -> None:
    """Write for each cell c `left[c]` old rows from `first[c]` on, then `counts[c]` new ones.

    old, new, out: (rows, dim). first, left, counts: (cells,).
    """
    dim = out.shape[1]
    i = 0
    j = 0
    for c in range(len(counts)):
        for n in range(left[c]):
            for k in range(dim):
                out[i, k] = old[first[c] + n, k]
            i += 1
        for _ in range(counts[c]):
            for k in range(dim):
                out[i, k] = new[j, k]
            i += 1
            j += 1
