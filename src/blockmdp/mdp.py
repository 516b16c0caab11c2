"""BlockMDP: a Block Markov Decision Process as data (Feng et al. 2020, Section 3), and what can be
computed of it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blockmdp import rng, streams
from blockmdp.dynamics import Dynamics
from blockmdp.emissions import Emission

__all__ = ["BlockMDP"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class BlockMDP:
    """An episodic MDP over a few latent states, seen through an emission: a value, read-only.

    An episode starts at level 0 in a state drawn from `initial` and takes H actions, to level H.
    Levels, states and actions count from 0 (the paper's level h is level h - 1 here).

    Parameters
    ----------
    initial : (S,) probabilities of the first latent state.
    transitions : (H, S, A, S') probabilities of the next latent state.
    rewards : (H, S, A, S') or broadcast to it: what a transition pays when it pays.
    reward_probability : (H, S, A, S') or broadcast to it: the probability that it pays.
    emission : how the latent states of levels 0, ..., H are observed.
    name : a word for titles and messages.

    Examples
    --------
    >>> from blockmdp.emissions import OneHotBernoulli
    >>> stay = np.eye(2)[None, :, None, :]  # H = 1, S = 2, A = 1
    >>> m = BlockMDP([0.5, 0.5], stay, [0.0, 1.0], emission=OneHotBernoulli(2, 3))
    >>> m.optimal_value()
    0.5
    """

    initial: Array
    transitions: Array
    rewards: Array
    reward_probability: Array
    emission: Emission
    name: str

    def __init__(
        self,
        initial: ArrayLike,
        transitions: ArrayLike,
        rewards: ArrayLike,
        reward_probability: ArrayLike = 1.0,
        *,
        emission: Emission,
        name: str = "BlockMDP",
    ) -> None:
        P = _array("transitions", transitions)
        if P.ndim != 4 or P.shape[1] != P.shape[3] or 0 in P.shape:
            raise ValueError(
                f"transitions must have the shape (H, S, A, S), none of them 0; got {P.shape}"
            )
        mu = _array("initial", initial)
        if mu.shape != P.shape[1:2]:
            raise ValueError(
                f"initial must have the shape ({P.shape[1]},), one entry a state of transitions; "
                f"got {mu.shape}"
            )
        _check_distributions("initial", mu)
        _check_distributions("transitions", P)
        r = _broadcast("rewards", rewards, P.shape)
        if not np.isfinite(r).all():
            i = _first(~np.isfinite(r))
            raise ValueError(f"rewards{_at(i)} is {r[i]}, not a finite number")
        p = _broadcast("reward_probability", reward_probability, P.shape)
        if not ((p >= 0) & (p <= 1)).all():
            i = _first(~((p >= 0) & (p <= 1)))
            raise ValueError(f"reward_probability{_at(i)} is {p[i]}, not in [0, 1]")
        if not isinstance(emission, Emission):
            raise ValueError(f"emission must be a blockmdp.emissions.Emission, got {emission!r}")
        if emission.n_states != P.shape[1]:
            raise ValueError(
                f"emission shows {emission.n_states} latent states, transitions have {P.shape[1]}"
            )
        if emission.n_levels not in (None, len(P) + 1):
            raise ValueError(
                f"emission has laws for {emission.n_levels} levels, but horizon {len(P)} makes "
                f"{len(P) + 1} (0 to H)"
            )
        for field, value in (
            ("initial", mu),
            ("transitions", P),
            ("rewards", r),
            ("reward_probability", p),
        ):
            value.setflags(write=False)
            object.__setattr__(self, field, value)
        object.__setattr__(self, "emission", emission)
        object.__setattr__(self, "name", name)

    @property
    def horizon(self) -> int:
        """H, the number of actions in an episode."""
        return int(self.transitions.shape[0])

    @property
    def n_states(self) -> int:
        """S, the number of latent states."""
        return int(self.transitions.shape[1])

    @property
    def n_actions(self) -> int:
        """A, the number of actions."""
        return int(self.transitions.shape[2])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its arguments, so that a copy is as read-only as the original."""
        return _rebuild, (
            self.initial,
            self.transitions,
            self.rewards,
            self.reward_probability,
            self.emission,
            self.name,
        )

    def __repr__(self) -> str:
        return (
            f"<{self.name}: horizon {self.horizon}, {self.n_states} states, {self.n_actions} "
            "actions, "
            f"{self.emission!r}>"
        )

    @cached_property
    def expected_rewards(self) -> Array:
        """r(h, s, a), the mean reward of a step, (H, S, A)."""
        P, r, p = self.transitions, self.rewards, self.reward_probability
        expected = np.asarray(np.einsum("hsat,hsat,hsat->hsa", P, r, p), np.float64)
        expected.setflags(write=False)
        return expected

    @cached_property
    def dynamics(self) -> Dynamics:
        """The tables in the form that the compiled loops read."""
        tables = (_cumulative(self.transitions), self.rewards, self.reward_probability)
        return Dynamics(_cumulative(self.initial), np.stack(tables, axis=-1))

    @cached_property
    def _optimum(self) -> tuple[Array, Array]:
        """V* (H + 1, S) and Q* (H, S, A), by dynamic programming from the last level back."""
        V = np.zeros((self.horizon + 1, self.n_states))
        Q = np.zeros(self.transitions.shape[:3])
        for h in reversed(range(self.horizon)):
            Q[h] = self.expected_rewards[h] + self.transitions[h] @ V[h + 1]
            V[h] = Q[h].max(axis=1)
        return V, Q

    def optimal_value(self) -> float:
        """V*, the largest expected return of any policy."""
        return float(self.initial @ self._optimum[0][0])

    def optimal_values(self) -> Array:
        """V*(h, s), the most that can be earned from a state on, (H + 1, S)."""
        return self._optimum[0].copy()

    def optimal_policy(self) -> Array:
        """An optimal policy on latent states, (H, S, A); deterministic: of equally good actions the
        first.
        """
        return np.asarray(np.eye(self.n_actions)[self._optimum[1].argmax(axis=2)], np.float64)

    def uniform_policy(self) -> Array:
        """The policy that acts at random, (H, S, A)."""
        return np.full(self.transitions.shape[:3], 1.0 / self.n_actions)

    def value(self, pi: ArrayLike) -> float:
        """The exact expected return of a policy on latent states.

        Parameters
        ----------
        pi : (H, S, A) probabilities of each action.
        """
        pi = self._policy(pi)
        V = np.zeros(self.n_states)
        for h in reversed(range(self.horizon)):
            V = np.einsum("sa,sa->s", pi[h], self.expected_rewards[h] + self.transitions[h] @ V)
        return float(self.initial @ V)

    def occupancy(self, pi: ArrayLike) -> Array:
        """The distribution over latent states at each level under a policy, (H + 1, S)."""
        pi = self._policy(pi)
        mu = np.empty((self.horizon + 1, self.n_states))
        mu[0] = self.initial
        for h in range(self.horizon):
            mu[h + 1] = np.einsum("s,sa,sat->t", mu[h], pi[h], self.transitions[h])
        return mu

    def reachability(self) -> Array:
        """The largest probability with which any policy visits a state at a level, (H + 1, S)."""
        reach = np.empty((self.horizon + 1, self.n_states))
        for level in range(self.horizon + 1):
            best = np.eye(self.n_states)  # (s, target)
            for h in reversed(range(level)):
                best = (self.transitions[h] @ best).max(axis=1)
            reach[level] = self.initial @ best if level else self.initial
        return reach

    def sample(self, level: int, state: int, n: int, seed: int = 0) -> NDArray[Any]:
        """n fresh observations of a latent state at a level, (n, dim); not those that any agent
        meets.
        """
        if not (0 <= level <= self.horizon and 0 <= state < self.n_states):
            raise ValueError(
                f"levels are 0 to {self.horizon} and states 0 to {self.n_states - 1}; got level "
                f"{level!r}, state {state!r}"
            )
        keys = rng.children(streams.sampling(seed, level, state), 0, n)
        return self.emission.sample(level, np.full(n, state), keys)

    def _policy(self, pi: ArrayLike) -> Array:
        pi = _array("pi", pi)
        if pi.shape != self.transitions.shape[:3]:
            raise ValueError(
                f"pi must have the shape (H, S, A) = {self.transitions.shape[:3]}; got {pi.shape}"
            )
        _check_distributions("pi", pi)
        return pi


def _rebuild(*arguments: Any) -> BlockMDP:
    *arrays, emission, name = arguments
    return BlockMDP(*arrays, emission=emission, name=name)


def _array(field: str, value: ArrayLike) -> Array:
    try:
        return np.array(value, np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError(f"{field} is not an array of numbers: {value!r}") from None


def _broadcast(field: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    array = _array(field, value)
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise ValueError(
            f"{field} must have the shape (H, S, A, S) = {shape}, or one that broadcasts to it; "
            f"got {array.shape}"
        ) from None


def _check_distributions(field: str, p: Array) -> None:
    """Entries along the last axis are probabilities and sum to one."""
    good = p >= 0  # false for NaN
    if not good.all():
        i = _first(~good)
        raise ValueError(f"{field}{_at(i)} is {p[i]}, not a probability")
    total = p.sum(axis=-1)
    good = np.abs(total - 1) <= 1e-8
    if not good.all():
        i = _first(~good)
        raise ValueError(f"{field}{_at(i)} sums to {total[i]:.10g}, not to 1")


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _at(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""


def _cumulative(p: Array) -> Array:
    """Cumulative sums, and 2 from the last possible outcome on, so that rounding makes nothing
    impossible happen.
    """
    c = np.cumsum(p, axis=-1)
    possible_later = np.cumsum((p > 0)[..., ::-1], axis=-1)[..., ::-1] - (p > 0) > 0
    c[~possible_later] = 2.0
    return c
