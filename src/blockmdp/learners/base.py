"""What a tabular learner is (Feng et al. 2020, Definition 2): tables, and scalar functions that
read and write them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, is_compiled
from blockmdp.loop import no_plan
from blockmdp.rng import uniform

__all__ = ["Learner", "best_action", "best_action_at", "best_value", "require"]


class Learner:
    """Base of all tabular learners; subclass it to bring your own.

    A learner is its hyperparameters plus three functions of tables. Decorate them with `numba.njit`
    and the whole episode loop is compiled around them; leave them plain and the same loop runs
    interpreted.

    >>> from blockmdp import rng
    >>> class Uniform(Learner):
    ...     "Acts at random."
    ...
    ...     def tables(self, H, S, A, episodes):
    ...         return (np.zeros((H, S, A)),)
    ...
    ...     @staticmethod
    ...     def act(tables, k, h, s, key):
    ...         return rng.integer(key, 0, tables[0].shape[2])
    ...
    ...     @staticmethod
    ...     def update(tables, h, s, a, r, s_next):
    ...         tables[0][h, s, a] += 1

    Tables are a tuple (a `NamedTuple` reads best) of arrays and scalars. Arrays that are indexed by
    level, label and action have the shape (H, S, A); where the number of labels grows, tables are
    made anew for the larger S and the old entries are copied to the same places.

    Random choices are drawn from the key that `act` is given (`blockmdp.rng.uniform(key, i)` and
    its kin) and from nothing else: that is what makes runs repeat.
    """

    compiled_loop: ClassVar[Callable[..., int] | None] = None
    """The episode loop compiled around this learner and kept in numba's cache; for those that come
    with the package.
    """

    def tables(self, H: int, S: int, A: int, episodes: int) -> Any:
        """Fresh tables for horizon H, S labels, A actions and a run of that many episodes."""
        raise NotImplementedError(f"{type(self).__name__} must define tables(H, S, A, episodes)")

    @staticmethod
    def act(tables: Any, k: int, h: int, s: int, key: np.uint64) -> int:
        """The action in episode k (from 0) at level h (from 0), where label s is seen."""
        raise NotImplementedError("a learner must define act(tables, k, h, s, key)")

    @staticmethod
    def update(tables: Any, h: int, s: int, a: int, r: float, s_next: int) -> None:
        """Learn from one step. `s_next` is the label at level h + 1, or -1 if the episode ended
        before level H.
        """
        raise NotImplementedError("a learner must define update(tables, h, s, a, r, s_next)")

    plan = staticmethod(no_plan)
    """`plan(tables, k, key)`: what to do at the end of episode k; nothing by default."""

    def policy(self, tables: Any) -> NDArray[np.float64]:
        """The policy that the tables have learnt, as probabilities (H, S, A): greedy on the table
        named `q`.

        Define it for a learner that keeps no such table.
        """
        q = getattr(tables, "q", None)
        if q is None:
            raise NotImplementedError(
                f"the tables of {type(self).__name__} have no field 'q': define policy(tables) -> "
                "(H, S, A)"
            )
        best = q == q.max(axis=2, keepdims=True)
        return np.asarray(best / best.sum(axis=2, keepdims=True), np.float64)

    def behaviour(self, tables: Any, k: int) -> NDArray[np.float64]:
        """The law of `act` in episode k, (H, S, A): `policy`, unless the learner explores."""
        return self.policy(tables)

    def grow(self, tables: Any, H: int, S: int, A: int, episodes: int) -> Any:
        """The same tables with room for S labels."""
        grown = self.tables(H, S, A, episodes)
        for new, old in zip(grown, tables):
            if isinstance(new, np.ndarray):
                new[tuple(slice(n) for n in old.shape)] = old
        return grown

    def is_compiled(self) -> bool:
        """Whether all three functions are numba's."""
        return all(is_compiled(f) for f in (self.act, self.update, self.plan))


def require(learner: object, field: str, low: float, high: float) -> None:
    """Refuse a hyperparameter outside [low, high]."""
    value = getattr(learner, field)
    if not (isinstance(value, int | float | np.number) and low <= value <= high):
        raise ValueError(
            f"{type(learner).__name__}: {field} must be a number in [{low:g}, {high:g}], got "
            f"{value!r}"
        )


@inlined
def best_action(q, h, s, key):
    """The action with the largest q[h, s, :]; a tie is broken at random."""
    return best_action_at(q, h, s, uniform(key, 0), 0.0)


@inlined
def best_action_at(q, h, s, u, low):
    """The action with the largest q[h, s, :]; u, uniform on [low, 1), breaks a tie."""
    A = q.shape[2]
    best = q[h, s, 0]
    a = 0
    ties = 1
    for b in range(1, A):
        x = q[h, s, b]
        if x > best:
            best = x
            a = b
            ties = 1
        elif x == best:
            ties += 1
    if ties > 1:
        j = min(int((u - low) / (1.0 - low) * ties), ties - 1)
        if ties == A:
            return j
        for b in range(a, A):
            if q[h, s, b] == best:
                if j == 0:
                    a = b
                j -= 1
    return a


@inlined
def best_value(q, h, s):
    """max over a of q[h, s, a]; 0 past the last level or after the episode's end (s < 0)."""
    if h >= q.shape[0] or s < 0:
        return 0.0
    v = q[h, s, 0]
    for b in range(1, q.shape[2]):
        v = max(v, q[h, s, b])
    return v
