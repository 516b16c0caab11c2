"""Block Markov decision processes (Feng et al. 2020, Section 3), with exact values."""

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
    """A Block MDP: an episodic MDP whose few latent states are hidden behind rich observations.

    An episode starts at level 0 in a latent state drawn from `initial`, takes H actions and ends at
    level H. At every level the agent sees an observation that `emission` draws for the latent
    state. Levels, states and actions count from 0, so level h of the papers is level h - 1 here.

    The model is known in full, so optimal values and values of policies are computed exactly. A
    BlockMDP is read-only.

    Parameters
    ----------
    initial : array-like of shape (S,)
        Probability of each initial state.
    transitions : array-like of shape (H, S, A, S)
        Probability of the next state, given level, state and action.
    rewards : array-like that broadcasts to (H, S, A, S)
        Reward of a transition, if it is paid.
    reward_probability : array-like that broadcasts to (H, S, A, S), default=1.0
        Probability that the reward of a transition is paid; otherwise the reward is 0.
    emission : Emission
        Distribution of the observations of the latent states at levels 0, ..., H.
    name : str, default="BlockMDP"
        Name in titles and messages.

    See Also
    --------
    lock_bernoulli : A combination lock, the main example of Feng et al. (2020).
    random_block_mdp : Draws a Block MDP at random.
    blockmdp.envs.BlockMDPEnv : The same problem as a Gymnasium environment.

    References
    ----------
    Fei Feng, Ruosong Wang, Wotao Yin, Simon S. Du and Lin F. Yang. Provably Efficient Exploration
    for Reinforcement Learning Using Unsupervised Learning. NeurIPS 2020.

    Examples
    --------
    Two states and two actions: action 1 changes the state, and arriving in state 1 pays 1.

    >>> import blockmdp as bm
    >>> stay, move = np.eye(2), 1 - np.eye(2)
    >>> P = np.stack([stay, move], axis=1)  # (S, A, S)
    >>> m = bm.BlockMDP([1, 0], np.stack([P, P]), [0, 1], emission=bm.OneHotBernoulli(2, 3))
    >>> m
    <BlockMDP: horizon 2, 2 states, 2 actions, OneHotBernoulli(2, 3, p=0.5)>
    >>> m.optimal_value()
    2.0
    >>> m.optimal_policy().argmax(axis=2)  # (H, S)
    array([[1, 0],
           [1, 0]])
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
                f"transitions must have the shape (H, S, A, S), without zeros, got {P.shape}"
            )
        mu = _array("initial", initial)
        if mu.shape != P.shape[1:2]:
            raise ValueError(
                f"initial must have the shape (S,) = ({P.shape[1]},), as transitions have "
                f"{P.shape[1]} states, got {mu.shape}"
            )
        _check_distributions("initial", mu)
        _check_distributions("transitions", P)
        r = _broadcast("rewards", rewards, P.shape)
        if not np.isfinite(r).all():
            i = _first(~np.isfinite(r))
            raise ValueError(f"rewards{_at(i)} must be finite, got {r[i]}")
        p = _broadcast("reward_probability", reward_probability, P.shape)
        if not ((p >= 0) & (p <= 1)).all():
            i = _first(~((p >= 0) & (p <= 1)))
            raise ValueError(f"reward_probability{_at(i)} must be in [0, 1], got {p[i]}")
        if not isinstance(emission, Emission):
            raise ValueError(f"emission must be a blockmdp.emissions.Emission, got {emission!r}")
        _check_emission(emission, len(P))
        if emission.n_states != P.shape[1]:
            raise ValueError(
                f"emission has {emission.n_states} latent states, but transitions have {P.shape[1]}"
            )
        if emission.n_levels not in (None, len(P) + 1):
            raise ValueError(
                f"emission has {emission.n_levels} levels, but horizon {len(P)} needs "
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
        """Number of actions in an episode, H."""
        return int(self.transitions.shape[0])

    @property
    def n_states(self) -> int:
        """Number of latent states, S."""
        return int(self.transitions.shape[1])

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return int(self.transitions.shape[2])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments, so that a copy is read-only too."""
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
            f"<{self.name}: horizon {self.horizon}, {self.n_states} states, "
            f"{self.n_actions} actions, {self.emission!r}>"
        )

    @cached_property
    def expected_rewards(self) -> Array:
        """Mean reward r(h, s, a) of a step, an ndarray of shape (H, S, A)."""
        P, r, p = self.transitions, self.rewards, self.reward_probability
        expected = np.asarray(np.einsum("hsat,hsat,hsat->hsa", P, r, p), np.float64)
        expected.setflags(write=False)
        return expected

    @cached_property
    def dynamics(self) -> Dynamics:
        """The latent tables in the form that the compiled loops read."""
        tables = (_cumulative(self.transitions), self.rewards, self.reward_probability)
        return Dynamics(_cumulative(self.initial), np.stack(tables, axis=-1))

    @cached_property
    def _optimum(self) -> tuple[Array, Array]:
        """V* (H + 1, S) and Q* (H, S, A), by dynamic programming from the last level backwards."""
        V = np.zeros((self.horizon + 1, self.n_states))
        Q = np.zeros(self.transitions.shape[:3])
        for h in reversed(range(self.horizon)):
            Q[h] = self.expected_rewards[h] + self.transitions[h] @ V[h + 1]
            V[h] = Q[h].max(axis=1)
        return V, Q

    def optimal_value(self) -> float:
        """Return V*, the largest expected return of any policy.

        Returns
        -------
        float
            Optimal value.
        """
        return float(self.initial @ self._optimum[0][0])

    def optimal_values(self) -> Array:
        """Return V*(h, s), the largest expected return from each state on.

        Returns
        -------
        ndarray of shape (H + 1, S)
            Optimal values; 0 at level H.
        """
        return self._optimum[0].copy()

    def optimal_policy(self) -> Array:
        """Return an optimal policy on latent states.

        Returns
        -------
        ndarray of shape (H, S, A)
            Probability of each action. The policy is deterministic; among equally good actions it
            takes the first.
        """
        return np.asarray(np.eye(self.n_actions)[self._optimum[1].argmax(axis=2)], np.float64)

    def uniform_policy(self) -> Array:
        """Return the policy that chooses all actions with equal probability.

        Returns
        -------
        ndarray of shape (H, S, A)
            Probability of each action.
        """
        return np.full(self.transitions.shape[:3], 1.0 / self.n_actions)

    def value(self, pi: ArrayLike) -> float:
        """Return the exact expected return of a policy on latent states.

        Parameters
        ----------
        pi : array-like of shape (H, S, A)
            Probability of each action, given level and latent state.

        Returns
        -------
        float
            Value of the policy.
        """
        pi = self._policy(pi)
        V = np.zeros(self.n_states)
        for h in reversed(range(self.horizon)):
            V = np.einsum("sa,sa->s", pi[h], self.expected_rewards[h] + self.transitions[h] @ V)
        return float(self.initial @ V)

    def occupancy(self, pi: ArrayLike) -> Array:
        """Return the distribution of the latent state at each level under a policy.

        Parameters
        ----------
        pi : array-like of shape (H, S, A)
            Probability of each action, given level and latent state.

        Returns
        -------
        ndarray of shape (H + 1, S)
            Probability of each state; rows sum to 1.
        """
        pi = self._policy(pi)
        mu = np.empty((self.horizon + 1, self.n_states))
        mu[0] = self.initial
        for h in range(self.horizon):
            mu[h + 1] = np.einsum("s,sa,sat->t", mu[h], pi[h], self.transitions[h])
        return mu

    def reachability(self) -> Array:
        """Return the largest probability with which any policy visits each state.

        Returns
        -------
        ndarray of shape (H + 1, S)
            Probability of being in the state at the level, under the best policy for this.
        """
        reach = np.empty((self.horizon + 1, self.n_states))
        for level in range(self.horizon + 1):
            best = np.eye(self.n_states)  # (s, target)
            for h in reversed(range(level)):
                best = (self.transitions[h] @ best).max(axis=1)
            reach[level] = self.initial @ best if level else self.initial
        return reach

    def sample(self, level: int, state: int, n: int, seed: int = 0) -> NDArray[Any]:
        """Draw fresh observations of a latent state, different from all that agents see.

        Parameters
        ----------
        level : int
            Level, from 0 to H.
        state : int
            Latent state.
        n : int
            Number of observations.
        seed : int, default=0
            Seed of the observations.

        Returns
        -------
        ndarray of shape (n, dim)
            Observations.
        """
        if not (0 <= level <= self.horizon and 0 <= state < self.n_states):
            raise ValueError(
                f"level must be from 0 to {self.horizon} and state from 0 to {self.n_states - 1}, "
                f"got level {level!r} and state {state!r}"
            )
        keys = rng.children(streams.sampling(seed, level, state), 0, n)
        return self.emission.sample(level, np.full(n, state), keys)

    def _policy(self, pi: ArrayLike) -> Array:
        """Return a policy as an array (H, S, A) of valid probabilities."""
        pi = _array("pi", pi)
        if pi.shape != self.transitions.shape[:3]:
            raise ValueError(
                f"pi must have the shape (H, S, A) = {self.transitions.shape[:3]}, got {pi.shape}"
            )
        _check_distributions("pi", pi)
        return pi


def _rebuild(*arguments: Any) -> BlockMDP:
    """Unpickle a BlockMDP."""
    *arrays, emission, name = arguments
    return BlockMDP(*arrays, emission=emission, name=name)


def _array(field: str, value: ArrayLike) -> Array:
    """Copy a value into an array of floats."""
    try:
        return np.array(value, np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError(f"{field} must be an array of numbers, got {value!r}") from None


def _broadcast(field: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Copy a value into an array of a given shape."""
    array = _array(field, value)
    if array.ndim in (2, 3):
        raise ValueError(
            f"{field} must be a number, a vector (S,) by next state, or have four axes (H, S, A, "
            f"S); {array.shape} is ambiguous. Write R[None, :, :, None] for R[s, a], and "
            "R[..., None] for R[h, s, a]"
        )
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise ValueError(
            f"{field} must have the shape (H, S, A, S) = {shape}, or one that broadcasts to it, "
            f"got {array.shape}"
        ) from None


def _check_emission(emission: Emission, H: int) -> None:
    """Draw a few observations, to find mistakes in a user's own emission early."""
    name = type(emission).__name__
    for field in ("n_states", "dim"):
        if not hasattr(emission, field):
            raise ValueError(f"{name} must set {field}")
    states = np.arange(min(2, emission.n_states))
    keys = rng.children(streams.sampling(0, 0, 0), 0, len(states))
    one, two = (np.asarray(emission.sample(0, states, keys)) for _ in range(2))
    if one.shape != (len(states), emission.dim):
        raise ValueError(
            f"{name}.sample must return shape (n, dim) = {(len(states), emission.dim)}, got "
            f"{one.shape}"
        )
    if not np.array_equal(one, two, equal_nan=one.dtype.kind == "f"):
        raise ValueError(
            f"{name}.sample gives different observations for the same keys: draw from the keys only"
        )
    if emission.stationary and H > 0 and emission.n_levels in (None, H + 1):
        last = np.asarray(emission.sample(H, states, keys))
        if not np.array_equal(one, last, equal_nan=one.dtype.kind == "f"):
            raise ValueError(
                f"{name}.sample gives different observations at different levels: set its "
                "attribute stationary = False"
            )


def _check_distributions(field: str, p: Array) -> None:
    """Check that the entries along the last axis are probabilities that sum to 1."""
    good = p >= 0  # false for NaN
    if not good.all():
        i = _first(~good)
        raise ValueError(f"{field}{_at(i)} must be a probability, got {p[i]}")
    total = p.sum(axis=-1)
    good = np.abs(total - 1) <= 1e-8
    if not good.all():
        i = _first(~good)
        raise ValueError(f"{field}{_at(i)} must sum to 1, but sums to {total[i]:.10g}")


def _first(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the index of the first True."""
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _at(index: tuple[int, ...]) -> str:
    """Return an index as text."""
    return f"[{', '.join(map(str, index))}]" if index else ""


def _cumulative(p: Array) -> Array:
    """Return cumulative sums that are 2 from the last possible outcome on.

    So no impossible outcome can happen if rounding leaves a sum below 1.
    """
    c = np.cumsum(p, axis=-1)
    possible_later = np.cumsum((p > 0)[..., ::-1], axis=-1)[..., ::-1] - (p > 0) > 0
    c[~possible_later] = 2.0
    return c
