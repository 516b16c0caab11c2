"""Block Markov decision processes (Feng et al. 2020, Section 3), with exact values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer
from blockmdp.dynamics import Dynamics, at_level, successor
from blockmdp.emissions import Emission
from blockmdp.jit import index, inlined, jit

__all__ = ["BlockMDP", "Successors"]

Array = NDArray[np.float64]
Lists = NDArray[np.int32] | None


@dataclass(frozen=True, eq=False)
class Successors:
    """Transitions as lists of possible next states, for problems where these are few.

    A table of all transitions has S^2 A entries for each level; these lists have S A K. Their order
    does not matter. A list that is shorter than K ends in entries of probability 0, whose states
    are ignored.

    Parameters
    ----------
    states : array-like of int, of shape (H, S, A, K) or (S, A, K)
        Next states, all different within a list.
    probability : array-like of the same shape
        Their probabilities.

    See Also
    --------
    BlockMDP : Takes them as `transitions`.

    Examples
    --------
    A chain of 1,000 states: action 0 stays, and action 1 moves on with probability 0.9. Each step
    to state 50 pays 1, also by staying there.

    >>> import blockmdp as bm
    >>> s = np.arange(1000)
    >>> stay, move = np.stack([s, s], axis=1), np.stack([s, (s + 1) % 1000], axis=1)
    >>> states = np.stack([stay, move], axis=1)  # (S, A, K)
    >>> chain = bm.Successors(states, np.broadcast_to([[1, 0], [0.1, 0.9]], states.shape))
    >>> m = bm.BlockMDP(s == 0, chain, s == 50, emission=bm.OneHotBernoulli(1000, 0), horizon=60)
    >>> round(m.optimal_value(), 3)
    5.474
    """

    states: ArrayLike
    probability: ArrayLike


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
    transitions : array-like of shape (H, S, A, S) or (S, A, S), or Successors
        Probability of the next state, given level, state and action. Without the axis of levels,
        all levels are alike and stored once.
    rewards : array-like that broadcasts to the shape of `transitions`
        Reward of a transition, if it is paid; or a vector of shape (S,), by next state.
    reward_probability : array-like that broadcasts to the shape of `transitions`, default=1.0
        Probability that the reward of a transition is paid; otherwise the reward is 0.
    emission : Emission
        Distribution of the observations of the latent states at levels 0, ..., H.
    name : str, default="BlockMDP"
        Name in titles and messages.
    horizon : int or None, default=None
        Number of actions in an episode, H, if all levels are alike.
    ends : array-like of shape (S,) or None, default=None
        Whether a state ends the episode before level H. Such a state must lead only to itself and
        pay nothing, so that exact values are the same as if the episode went on. None has no such
        states.

    See Also
    --------
    Successors : Lists of next states, for large problems.
    from_gymnasium : The Block MDP of a tabular Gymnasium environment.
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
    emission: Emission
    name: str
    horizon: int
    ends: NDArray[np.bool_] | None
    _tables: _Tables
    to_gymnasium: ClassVar[Callable[..., Any]]  # see `blockmdp.envs.gym`

    def __init__(
        self,
        initial: ArrayLike,
        transitions: ArrayLike | Successors,
        rewards: ArrayLike,
        reward_probability: ArrayLike = 1.0,
        *,
        emission: Emission,
        name: str = "BlockMDP",
        horizon: int | None = None,
        ends: ArrayLike | None = None,
    ) -> None:
        P, states, shape = _transitions(transitions)
        H = _horizon(shape, horizon)
        P = P.reshape(-1, *shape[-3:])
        S = P.shape[1]
        mu = _array("initial", initial)
        if mu.shape != (S,):
            raise ValueError(
                f"initial must have the shape (S,) = ({S},), as transitions have {S} states, got "
                f"{mu.shape}"
            )
        _check_distributions("initial", mu)
        _check_distributions("transitions", P.reshape(shape))
        if states is not None:
            states = states.reshape(P.shape)
        r = _by_transition("rewards", rewards, shape, states)
        if not np.isfinite(r).all():
            i = _first(~np.isfinite(r))
            raise ValueError(f"rewards{_at(i)} must be finite, got {r[i]}")
        p = _by_transition("reward_probability", reward_probability, shape, states)
        if not ((p >= 0) & (p <= 1)).all():
            i = _first(~((p >= 0) & (p <= 1)))
            raise ValueError(f"reward_probability{_at(i)} must be in [0, 1], got {p[i]}")
        if states is not None:
            states, (P, r, p) = _in_order(states, P, r, p)
        if not isinstance(emission, Emission):
            raise ValueError(f"emission must be a blockmdp.emissions.Emission, got {emission!r}")
        _check_emission(emission, H)
        if emission.n_states != S:
            raise ValueError(
                f"emission has {emission.n_states} latent states, but transitions have {S}"
            )
        if emission.n_levels not in (None, H + 1):
            raise ValueError(
                f"emission has {emission.n_levels} levels, but horizon {H} needs {H + 1} (0 to H)"
            )
        tables = _Tables(states, P, r, p)
        over = _ends(ends, mu, tables)
        for array in (mu, over, *tables):
            if array is not None:
                array.setflags(write=False)
        for field, value in (
            ("initial", mu),
            ("emission", emission),
            ("name", name),
            ("horizon", H),
            ("ends", over),
            ("_tables", tables),
        ):
            object.__setattr__(self, field, value)

    @property
    def n_states(self) -> int:
        """Number of latent states, S."""
        return len(self.initial)

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return int(self._tables.P.shape[2])

    @property
    def stationary(self) -> bool:
        """Whether all levels are stored as one, so that they have the same dynamics."""
        return len(self._tables.P) < self.horizon

    @property
    def successors(self) -> Successors | None:
        """The possible next states, if they are stored as lists; otherwise None."""
        states, P = self._tables.states, self._tables.P
        return None if states is None else Successors(states, P)

    @property
    def transitions(self) -> Array:
        """Probabilities of the next states, an ndarray of shape (H, S, A, S).

        It is read-only. Levels that are stored as one take no memory, but lists of successors are
        written out.
        """
        return self._dense(self._tables.P)

    @property
    def rewards(self) -> Array:
        """Rewards of the transitions, an ndarray of shape (H, S, A, S), as `transitions`."""
        return self._dense(self._tables.r)

    @property
    def reward_probability(self) -> Array:
        """Probabilities that rewards are paid, an ndarray of shape (H, S, A, S)."""
        return self._dense(self._tables.p)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments, so that a copy is read-only too."""
        tables = self._tables
        P = tables.P if tables.states is None else Successors(tables.states, tables.P)
        arrays = (self.initial, P, tables.r, tables.p)
        return _rebuild, (*arrays, self.emission, self.name, self.horizon, self.ends)

    def __repr__(self) -> str:
        return (
            f"<{self.name}: horizon {self.horizon}, {self.n_states} states, "
            f"{self.n_actions} actions, {self.emission!r}>"
        )

    @cached_property
    def expected_rewards(self) -> Array:
        """Mean reward r(h, s, a) of a step, an ndarray of shape (H, S, A)."""
        _, P, r, p = self._tables
        expected = np.asarray(np.einsum("hsat,hsat,hsat->hsa", P, r, p), np.float64)
        return np.broadcast_to(expected, self._shape)

    @cached_property
    def has_choice(self) -> NDArray[np.bool_]:
        """Whether it matters which action is taken, an ndarray of shape (H, S).

        It does not if all actions have the same rewards and lead to the same states.
        """
        tables = (table for table in self._tables if table is not None)
        differ = [(table != table[:, :, :1]).any(axis=(2, 3)) for table in tables]
        return np.broadcast_to(np.any(differ, axis=0), self._shape[:2])

    @cached_property
    def dynamics(self) -> Dynamics:
        """The latent tables in the form that the compiled loops read."""
        states, P, r, p = self._tables
        model = np.stack((_cumulative(P), r, p), axis=-1)
        first = _cumulative(self.initial)
        possible = first[: 1 + int(np.argmax(first == 2.0))]
        # loops take arrays that can be written to: numba would compile others once more
        lists = None if states is None else states.copy()
        ends = None if self.ends is None else self.ends.copy()
        return Dynamics(possible, model, lists, ends, self.horizon)

    @property
    def _shape(self) -> tuple[int, int, int]:
        """The numbers of levels, states and actions: (H, S, A)."""
        return self.horizon, self.n_states, self.n_actions

    def _dense(self, table: Array) -> Array:
        """Write a table out by next state, (H, S, A, S)."""
        states = self._tables.states
        if states is not None:
            level, s, a, k = np.nonzero(self._tables.P)
            dense = np.zeros((*table.shape[:3], self.n_states))
            dense[level, s, a, states[level, s, a, k]] = table[level, s, a, k]
            table = dense
        return np.broadcast_to(table, (*self._shape, self.n_states))

    def _mean_at_first(self, V: Array) -> float:
        """Return the mean of V (S,) over the initial states, which `cumsum` adds in their order."""
        return float(np.cumsum(self.initial * V)[-1])

    @cached_property
    def _optimum(self) -> tuple[Array, Array]:
        """V* (H + 1, S) and Q* (H, S, A), by dynamic programming from the last level backwards."""
        V, Q = np.zeros((self.horizon + 1, self.n_states)), np.zeros(self._shape)
        states, P, *_ = self._tables
        _optimal_values(P, states, self.expected_rewards, V, Q)
        return V, Q

    def optimal_value(self) -> float:
        """Return V*, the largest expected return of any policy.

        Returns
        -------
        float
            Optimal value.
        """
        return self._mean_at_first(self._optimum[0][0])

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
        return np.full(self._shape, 1.0 / self.n_actions)

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
        states, P, *_ = self._tables
        V = _values_of(self._policy(pi), P, states, self.expected_rewards)
        return self._mean_at_first(V)

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
        states, P, *_ = self._tables
        for h in range(self.horizon):
            i = h if len(P) > 1 else 0
            if states is None:
                mu[h + 1] = np.einsum("s,sa,sat->t", mu[h], pi[h], P[i])
            else:
                mass = np.einsum("s,sa,sak->sak", mu[h], pi[h], P[i])
                mu[h + 1] = np.bincount(states[i].ravel(), mass.ravel(), len(mu[h]) + 1)[:-1]
        return mu

    def reachability(self) -> Array:
        """Return the largest probability with which any policy visits each state.

        Returns
        -------
        ndarray of shape (H + 1, S)
            Probability of being in the state at the level, under the best policy for this.
        """
        reach = np.empty((self.horizon + 1, self.n_states))
        best = np.eye(self.n_states)  # (s, target)
        for level in range(self.horizon + 1):
            if self.stationary:
                best = self._best(0, best) if level else best
            else:
                best = np.eye(self.n_states)
                for h in reversed(range(level)):
                    best = self._best(h, best)
            reach[level] = self.initial @ best if level else self.initial
        return reach

    def _best(self, h: int, best: Array) -> Array:
        """Return the largest mean of each column of `best` (S, n) at level h, over actions."""
        states, P, *_ = self._tables
        i = h if len(P) > 1 else 0
        if states is None:
            return np.asarray((P[i] @ best).max(axis=1), np.float64)
        after = np.full_like(best, -np.inf)
        for a in range(self.n_actions):
            mean = np.zeros_like(best)
            for k in range(P.shape[3]):
                mean += P[i, :, a, k, None] * best[np.minimum(states[i, :, a, k], len(best) - 1)]
            np.maximum(after, mean, out=after)
        return after

    def is_block(self) -> bool:
        """Return whether observation and level are enough to know the state.

        In a Block MDP, no two states look the same. Here they are compared at each level, as far as
        they can be reached there.

        Returns
        -------
        bool
            Whether no two such states show the same observation.

        Raises
        ------
        ValueError
            If observations are noisy, so that they cannot all be compared.
        """
        if self.emission.has_noise:
            raise ValueError(f"{self.emission!r} is noisy: its observations cannot all be compared")
        for h, there in enumerate(self.reached()):
            states = np.flatnonzero(there)
            x = self.emission.sample(h, states, np.zeros(len(states), np.uint64))
            if len(np.unique(x, axis=0)) < len(states):
                return False
        return True

    def reached(self) -> NDArray[np.bool_]:
        """Return which states can be seen at each level; `reachability` says how likely that is.

        A state that ends an episode counts only at the levels at which it can be entered.

        Returns
        -------
        ndarray of shape (H + 1, S)
            Whether some policy visits the state at the level.
        """
        states, P, *_ = self._tables
        levels = [there := self.initial > 0]
        for h in range(self.horizon):
            i = h if len(P) > 1 else 0
            goes_on = there if self.ends is None else there & ~self.ends
            places = np.nonzero((P[i] > 0) & goes_on[:, None, None])
            there = np.zeros(self.n_states, np.bool_)
            there[places[2] if states is None else states[i][places]] = True
            levels.append(there)
        return np.array(levels)

    def reward_range(self) -> tuple[float, float]:
        """Return the smallest and the largest reward of the transitions that are possible.

        Returns
        -------
        low, high : float
            Bounds of the rewards, if they are paid.
        """
        _, P, r, _ = self._tables
        possible = r[P > 0]
        return float(possible.min()), float(possible.max())

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
        if pi.shape != self._shape:
            raise ValueError(f"pi must have the shape (H, S, A) = {self._shape}, got {pi.shape}")
        _check_distributions("pi", pi)
        return pi


class _Tables(NamedTuple):
    """The latent tables of a Block MDP. L is 1 if all levels are alike, otherwise H.

    The i-th of K next states is `states[h, s, a, i]`, or state i if `states` is None (K = S). Lists
    are in increasing order; places that are not needed have state S and probability 0.
    """

    states: Lists  # (L, S, A, K)
    P: Array  # (L, S, A, K), probabilities
    r: Array  # (L, S, A, K), rewards
    p: Array  # (L, S, A, K), probabilities of the rewards


# --- compiled loops, whose sums have a fixed order: BLAS adds differently on other CPUs -----------
@jit
def _optimal_values(P: Array, states: Lists, rewards: Array, V: Array, Q: Array) -> None:
    """Write V* to V (H + 1, S), whose last level is 0, and Q* to Q (H, S, A).

    P, states: see `_Tables`. rewards: (H, S, A), mean rewards.
    """
    H, S, A = Q.shape
    for h in range(H - 1, -1, -1):
        for s in range(S):
            V[h, s] = -np.inf
            for a in range(A):
                Q[h, s, a] = rewards[h, s, a] + _mean_after(P, states, h, s, a, V[h + 1])
                V[h, s] = max(V[h, s], Q[h, s, a])


@jit
def _values_of(pi: Array, P: Array, states: Lists, rewards: Array) -> Array:
    """Return the mean return (S,) of a policy pi (H, S, A) from each latent state on.

    P, states, rewards: see `_optimal_values`.
    """
    H, S, A = pi.shape
    V, now = np.zeros(S), np.zeros(S)
    for h in range(H - 1, -1, -1):
        for s in range(S):
            now[s] = 0.0
            for a in range(A):
                if pi[h, s, a] > 0.0:
                    q = rewards[h, s, a] + _mean_after(P, states, h, s, a, V)
                    now[s] += pi[h, s, a] * q
        V, now = now, V
    return V


@inlined
def _mean_after(P: Array, states: Lists, h: int, s: int, a: int, V: Array) -> float:
    """Return the mean value of the next state, given the values V (S,) of all."""
    one = two = three = four = 0.0  # four sums side by side: none waits for the one before
    K = P.shape[3]
    for i in range(0, K - K % 4, 4):
        one += _share(P, states, h, s, a, i, V)
        two += _share(P, states, h, s, a, i + 1, V)
        three += _share(P, states, h, s, a, i + 2, V)
        four += _share(P, states, h, s, a, i + 3, V)
    for i in range(K - K % 4, K):
        one += _share(P, states, h, s, a, i, V)
    return (one + two) + (three + four)


@inlined
def _share(P: Array, states: Lists, h: int, s: int, a: int, i: int, V: Array) -> float:
    """Return what the i-th of the possible next states adds to their mean value."""
    p: float = P[at_level(P, h), index(s), index(a), index(i)]
    value: float = 0.0
    if states is None:
        value = V[index(i)]
    elif p > 0.0:  # otherwise the place may have no state
        value = V[successor(states, h, s, a, i)]
    return p * value


def _rebuild(*arguments: Any) -> BlockMDP:
    """Unpickle a BlockMDP."""
    *arrays, emission, name, horizon, ends = arguments
    return BlockMDP(*arrays, emission=emission, name=name, horizon=horizon, ends=ends)


def _array(field: str, value: ArrayLike) -> Array:
    """Copy a value into an array of floats."""
    try:
        return np.array(value, np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError(f"{field} must be an array of numbers, got {value!r}") from None


def _transitions(
    transitions: ArrayLike | Successors,
) -> tuple[Array, NDArray[np.int32] | None, tuple[int, ...]]:
    """Return the probabilities, the successors if they are listed, and the shape of both."""
    if not isinstance(transitions, Successors):
        P = _array("transitions", transitions)
        if P.ndim not in (3, 4) or P.shape[-3] != P.shape[-1] or 0 in P.shape:
            raise ValueError(
                f"transitions must have the shape (H, S, A, S) or (S, A, S), without zeros, got "
                f"{P.shape}"
            )
        return P, None, P.shape
    P = _array("probability of Successors", transitions.probability)
    states = np.array(transitions.states)
    if P.ndim not in (3, 4) or 0 in P.shape or states.shape != P.shape:
        raise ValueError(
            "states and probability of Successors must have the same shape, (H, S, A, K) or "
            f"(S, A, K), without zeros, got {states.shape} and {P.shape}"
        )
    S = P.shape[-3]
    bad = (P > 0) & ~((states >= 0) & (states < S))
    if states.dtype.kind not in "iu" or bad.any():
        got = states.dtype if not bad.any() else states[_first(bad)]
        raise ValueError(f"states of Successors must be integers from 0 to {S - 1}, got {got}")
    return P, np.where(P > 0, states, S).astype(np.int32), P.shape


def _horizon(shape: tuple[int, ...], horizon: int | None) -> int:
    """Return the number of levels, from the shape of the transitions or as given."""
    if len(shape) == 3 or shape[0] == 1:
        if horizon is None and len(shape) == 3:
            raise ValueError(
                "transitions must have the shape (H, S, A, S), or set horizon if all levels are "
                f"alike: got {shape} and no horizon"
            )
        return check_integer("horizon", 1 if horizon is None else horizon, 1)
    if horizon not in (None, shape[0]):
        raise ValueError(f"horizon must be {shape[0]}, as transitions have, or None: got {horizon}")
    return shape[0]


def _by_transition(
    field: str, value: ArrayLike, shape: tuple[int, ...], states: NDArray[np.int32] | None
) -> Array:
    """Copy a value into an array (L, S, A, K). shape: of the transitions, perhaps without L."""
    array = _array(field, value)
    full = (1, *shape)[-4:]
    axes = "H, S, A, S" if states is None else "H, S, A, K"
    if array.ndim == 2 or (array.ndim == 3 and len(shape) == 4):
        raise ValueError(
            f"{field} must be a number, a vector (S,) by next state, or have four axes ({axes}); "
            f"{array.shape} is ambiguous. Write R[None, :, :, None] for R[s, a], and "
            "R[..., None] for R[h, s, a]"
        )
    if states is not None and array.shape == (shape[-3],):
        return np.append(array, 0.0)[states]
    try:
        return np.broadcast_to(array, full).copy()
    except ValueError:
        raise ValueError(
            f"{field} must have the shape ({axes}) = {full}, or one that broadcasts to it, got "
            f"{array.shape}"
        ) from None


def _ends(ends: ArrayLike | None, initial: Array, tables: _Tables) -> NDArray[np.bool_] | None:
    """Check the states that end an episode."""
    if ends is None:
        return None
    over = np.array(ends)
    if over.shape != initial.shape or over.dtype != np.bool_:
        raise ValueError(f"ends must be {len(initial)} booleans, one for each state, got {ends!r}")
    states, P, r, _ = tables
    to = np.broadcast_to(np.arange(P.shape[3]), P.shape) if states is None else states
    leaves = (P > 0) & ((to != np.arange(len(over))[:, None, None]) | (r != 0))
    bad = over & ((initial > 0) | leaves.any(axis=(0, 2, 3)))
    if bad.any():
        raise ValueError(
            f"state {int(bad.argmax())} cannot end an episode: it must not be initial, and must "
            "lead only to itself and pay nothing"
        )
    return over


def _in_order(
    states: NDArray[np.int32], *tables: Array
) -> tuple[NDArray[np.int32], tuple[Array, ...]]:
    """Sort lists of next states; raise ValueError if one contains a state twice."""
    order = np.argsort(states, axis=-1, kind="stable")
    states = np.take_along_axis(states, order, axis=-1)
    twice = (states[..., 1:] == states[..., :-1]) & (states[..., 1:] < states.shape[1])
    if twice.any():
        i = _first(twice)
        raise ValueError(
            f"states of Successors must be different within a list, but state {states[i]} is there "
            f"twice at {_at(i[:-1])}: add its probabilities"
        )
    return states, tuple(np.take_along_axis(table, order, axis=-1) for table in tables)


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
    if emission.takes_levels and H > 0 and emission.n_levels in (None, H + 1):
        levels = np.array([1, 0, 1])
        states = np.arange(3) % emission.n_states
        keys = rng.children(streams.sampling(0, 0, 0), 0, 3)
        together = np.asarray(emission.sample(levels, states, keys))
        apart = [emission.sample(int(h), states[[i]], keys[[i]])[0] for i, h in enumerate(levels)]
        if not np.array_equal(together, apart, equal_nan=one.dtype.kind == "f"):
            raise ValueError(
                f"{name}.sample gives different observations for an array of levels than for each "
                "level: set its attribute takes_levels = False"
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
