"""The simulator of Block MDPs, in compiled loops or in the same loops interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.decoders import Decoder
from blockmdp.history import next_checkpoint
from blockmdp.jit import interpreted
from blockmdp.learners.base import Learner
from blockmdp.loop import Episodes, learn, learn_from
from blockmdp.mdp import BlockMDP
from blockmdp.oracles.scores import BankScores
from blockmdp.policy import Policy, with_labels
from blockmdp.simulators.base import LearnerRun, Simulator, decode_rows
from blockmdp.simulators.rollout import advance, choose, play, start
from blockmdp.tapes import (
    SHOW_LATENT,
    EpisodeTapes,
    Tape,
    Tapes,
    episodes_on_tape,
    read_label,
)
from blockmdp.trajectories import Observations, Trajectories

__all__ = ["BlockSimulator"]

AT_ONCE = 2**16  # episodes of one compiled loop, during which Python can do nothing else


class BlockSimulator(Simulator):
    """Simulates a BlockMDP in compiled loops.

    Parameters
    ----------
    mdp : BlockMDP
        The problem.
    seed : int
        Seed of the environment and of all choices.
    compiled : bool, default=True
        Whether to compile the episode loop. Learners in plain Python are always interpreted.

    Attributes
    ----------
    compiled : bool
        As given.
    """

    mdp: BlockMDP

    def __init__(self, mdp: BlockMDP, seed: int, *, compiled: bool = True) -> None:
        super().__init__(seed)
        self.mdp, self.horizon, self.n_actions = mdp, mdp.horizon, mdp.n_actions
        self.observation_shape = (mdp.emission.dim,)
        self.compiled = compiled
        self.world_key = streams.world(seed)
        kind = EpisodeTapes if mdp.emission.per_episode else Tapes
        self._tapes: Tapes | EpisodeTapes = kind(mdp, seed)
        self._counts_visits = True  # episodes on latent states do not

    def state(self) -> dict[str, Any]:
        own = {"visits": self._tapes.visits, "_counts_visits": self._counts_visits}
        return super().state() | own

    def restore(self, state: dict[str, Any]) -> None:
        super().restore({name: value for name, value in state.items() if name != "visits"})
        self._tapes.visits = state["visits"]

    @property
    def visits(self) -> NDArray[np.int64]:
        """Number of visits to each latent state at each level so far, (H + 1, S)."""
        return self._tapes.visits

    def seen_since(self, visits: NDArray[np.int64]) -> Observations:
        """Draw again the observations of all episodes since the numbers of visits were these."""
        return self._tapes.replay(visits, self.visits - visits)

    def learn(
        self,
        run: LearnerRun,
        decoder: Decoder | None,
        n: int | None = None,
        record: bool = False,
    ) -> Observations | None:
        stop = len(run.returns) if n is None else min(run.k + n, len(run.returns))
        loop = self._loop(run.learner)
        self.use_observations(decoder is not None)
        visits, seen = self.visits.copy(), []
        tape = SHOW_LATENT if decoder is None else None
        while run.k < stop:
            if tape is None:
                assert decoder is not None
                tape = self._tapes.refill(decoder, stop - run.k)
                self.grow(run, decoder.n_labels)
            episodes = Episodes(self.world_key, run.key, offset=self.episodes - run.k)
            end = min(stop, run.k + AT_ONCE)
            if self.snapshots is not None:
                end = min(end, next_checkpoint(run.k, self.digits))
            k = loop(run.tables, self.mdp.dynamics, tape, episodes, run.k, run.returns[:end])
            self.ledger["learn"] += k - run.k
            run.k = k
            if k < end:
                tape = None  # it is used up
            elif self.is_due(run):
                self.keep(run, decoder)
            if record and self.mdp.emission.per_episode:  # `replay` takes one episode
                seen.append(self.seen_since(visits))
                visits = self.visits.copy()
        if not record:
            return None
        seen.append(self.seen_since(visits))
        if len(seen) == 1:
            return seen[0]
        levels, x = ([getattr(each, name) for each in seen] for name in ("levels", "x"))
        return Observations(np.concatenate(levels), np.concatenate(x))

    def rollout(
        self,
        policies: Sequence[Policy],
        n: int,
        kind: str,
        *,
        keep_x: bool = True,
        levels: int | None = None,
    ) -> Trajectories:
        self.use_observations(True)
        scores = getattr(policies[0].decoder, "scores", None) if len(policies) == n == 1 else None
        if isinstance(scores, BankScores) and keep_x:
            return self._play(policies[0].pi, scores, kind)
        mdp, H, ends = self.mdp, self.horizon, self.mdp.ends
        which = self._mixture(policies, n)
        e = rng.children(self.world_key, self.episodes, n)
        c = rng.children(self.policy_key, self.episodes, n)
        levels = H + 1 if levels is None else levels
        x = np.zeros((n, levels if keep_x else 0, mdp.emission.dim), mdp.emission.dtype)
        actions, rewards, lengths = np.zeros((n, H), np.int64), np.zeros((n, H)), np.full(n, H)
        s, on = start(mdp.dynamics.initial, e), np.arange(n)  # on: episodes that are not over
        for h in range(H + 1):
            xh = None
            if h < levels:
                xh = self._tapes.sample(h, s, on)
                if keep_x:
                    x[on, h] = xh
            else:
                self._tapes.skip(h, s)
            if ends is not None:
                lengths[on[ends[s]]], alive = h, ~ends[s]
                s, on = s[alive], on[alive]
                xh = None if xh is None else xh[alive]
            if h < H:
                labels = np.zeros(len(on), np.int64)
                if xh is not None:
                    labels = decode_rows(policies, which[on], h, xh, latent=s)
                pi = _stack(policies, h, int(labels.max(initial=0)) + 1)
                a = choose(pi, which[on], labels, c[on], h)
                actions[on, h] = a
                r = np.empty(len(s))
                s = advance(mdp.dynamics, h, s, a, e[on], r)
                rewards[on, h] = r
        self.ledger[kind] += n
        return Trajectories(x, actions, rewards, lengths)

    def observations(self, episodes: int) -> Tape:
        """Return a tape of observations, for compiled loops. It lasts for at least one of the
        episodes still to come.
        """
        self.use_observations(True)
        return self._tapes.observations(episodes)

    def _play(self, pi: NDArray[np.float64], scores: BankScores, kind: str) -> Trajectories:
        """Draw one trajectory of a policy whose decoder consists of linear scores."""
        H, emission = self.horizon, self.mdp.emission
        labels = scores.b.shape[1]
        if labels > pi.shape[1]:
            few, pi = pi, np.full((H, labels, self.n_actions), 1 / self.n_actions)
            pi[:, : few.shape[1]] = few
        x = np.zeros((1, H + 1, emission.dim))  # the tape has doubles, as mixtures see them
        actions, rewards = np.zeros((1, H), np.int64), np.zeros((1, H))
        loop = play if self.compiled else interpreted(play)
        length = loop(
            self.mdp.dynamics,
            self._tapes.observations(),
            scores,
            pi,
            rng.key(self.world_key, self.episodes),
            rng.key(self.policy_key, self.episodes),
            *(x[0], actions[0], rewards[0], *np.empty((2, H + 1, emission.dim))),
        )
        self.ledger[kind] += 1
        x = x.astype(emission.dtype, copy=False)
        return Trajectories(x, actions, rewards, np.full(1, length))

    def use_observations(self, used: bool) -> None:
        """Raise ValueError for observations after episodes on latent states.

        Such episodes do not count visits, and the next observation depends on this count.
        """
        if used and not self._counts_visits:
            raise ValueError(
                "this simulator has run episodes on latent states: make a new one for observations"
            )
        self._counts_visits = used

    def _loop(self, learner: Learner) -> Any:
        """Return the episode loop for a learner; see `blockmdp.loop.learn` for its arguments."""
        functions: tuple[Any, ...] = (learner.act, learner.update, learner.plan)
        loop: Any = learn
        if not (self.compiled and learner.is_compiled()):
            functions = tuple(map(interpreted, (read_label, episodes_on_tape, *functions)))
            loop = interpreted(learn_from)
        elif learner.compiled_loop is not None:
            return learner.compiled_loop
        return lambda *arguments: loop(*functions, *arguments)


def _stack(policies: Sequence[Policy], h: int, labels: int) -> NDArray[np.float64]:
    """Return the probabilities of all policies at level h, (policies, at least labels, A)."""
    L = max(labels, *(p.pi.shape[1] for p in policies)) if policies else labels
    return np.stack([with_labels(p.pi[h], L) for p in policies])
