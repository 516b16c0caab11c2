"""The base class of tabular learners (Feng et al. 2020, Definition 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from blockmdp.jit import inlined, is_compiled, jit
from blockmdp.loop import no_plan
from blockmdp.rng import uniform

__all__ = [
    "Learner",
    "at",
    "best_action",
    "best_action_at",
    "best_value",
    "check_constants",
    "check_range",
    "check_stationary",
]


class Learner:
    """Base class of tabular learners; subclass it to write your own.

    A learner is its hyperparameters, a method that makes tables, and functions that read and write
    these tables:

    - ``tables(H, S, A, episodes)`` returns fresh tables: a tuple of arrays and numbers. A named
      tuple reads best.
    - ``act(tables, k, h, s, key)`` chooses an action.
    - ``update(tables, h, s, a, r, s_next)`` learns from one step.
    - ``plan(tables, k, key)`` runs after each episode. It is optional.

    `act`, `update` and `plan` are static methods. If you decorate all of them with `numba.njit`,
    the whole episode loop is compiled around them. Otherwise the same loop runs in plain Python,
    which is slower but easy to debug.

    Four rules make a learner work with all agents and engines:

    - Draw random numbers only from the given key, with the functions of `blockmdp.rng`. Then the
      same seed gives the same run.
    - Change tables in `update` and `plan` only, not in `act`.
    - Give arrays that belong to levels, labels and actions the shape (H, S, A). A decoder may find
      new labels during a run. Then `grow` makes larger tables and copies the old entries to the
      same places.
    - Keep the action values in a table called `q`, or define `policy`.

    See Also
    --------
    blockmdp.testing.check_learner : Checks that a learner follows these rules.
    blockmdp.learners.best_action : Chooses the action with the largest value.
    blockmdp.learners.best_value : Returns the largest value of a label.

    Examples
    --------
    Optimistic Q-learning with the learning rate 1 / n:

    >>> from collections import namedtuple
    >>> import blockmdp as bm
    >>> Tables = namedtuple("Tables", ["q", "n"])
    >>> class Averages(bm.Learner):
    ...     def tables(self, H, S, A, episodes):
    ...         return Tables(q=np.ones((H, S, A)), n=np.zeros((H, S, A)))
    ...
    ...     @staticmethod
    ...     def act(tables, k, h, s, key):
    ...         return best_action(tables.q, h, s, key)
    ...
    ...     @staticmethod
    ...     def update(tables, h, s, a, r, s_next):
    ...         tables.n[h, s, a] += 1
    ...         target = r + best_value(tables.q, h + 1, s_next)
    ...         tables.q[h, s, a] += (target - tables.q[h, s, a]) / tables.n[h, s, a]
    >>> agent = bm.Tabular(Averages()).fit(bm.lock_bernoulli(horizon=3), episodes=500)
    >>> agent.value()
    0.5
    """

    compiled_loop: ClassVar[Callable[..., int] | None] = None
    """Episode loop compiled around this learner and cached; set by the learners of the package."""

    def tables(self, H: int, S: int, A: int, episodes: int) -> Any:
        """Make fresh tables.

        Parameters
        ----------
        H : int
            Horizon.
        S : int
            Number of labels.
        A : int
            Number of actions.
        episodes : int
            Number of episodes of the whole run.

        Returns
        -------
        tuple
            Arrays and numbers. No array may be shared between two calls.
        """
        raise NotImplementedError(f"{type(self).__name__} must define tables(H, S, A, episodes)")

    @staticmethod
    def act(tables: Any, k: int, h: int, s: int, key: np.uint64) -> int:
        """Choose an action.

        Parameters
        ----------
        tables : tuple
            Tables of the learner. `act` must not change them.
        k : int
            Episode, from 0.
        h : int
            Level, from 0 to H - 1.
        s : int
            Label of the observation; the latent state if the learner is shown latent states.
        key : np.uint64
            Key of the random numbers of this choice.

        Returns
        -------
        int
            Action, from 0 to A - 1.
        """
        raise NotImplementedError("a learner must define act(tables, k, h, s, key)")

    @staticmethod
    def update(tables: Any, h: int, s: int, a: int, r: float, s_next: int) -> None:
        """Learn from one step.

        Parameters
        ----------
        tables : tuple
            Tables of the learner, to be changed in place.
        h : int
            Level, from 0 to H - 1.
        s : int
            Label at level h.
        a : int
            Action.
        r : float
            Reward.
        s_next : int
            Label at level h + 1, or -1 if the episode ended before level H.
        """
        raise NotImplementedError("a learner must define update(tables, h, s, a, r, s_next)")

    plan = staticmethod(no_plan)

    def policy(self, tables: Any) -> NDArray[np.float64]:
        """Return the policy that was learnt: greedy with respect to the table `q`.

        Override it if the learner has no such table.

        Parameters
        ----------
        tables : tuple
            Tables of the learner.

        Returns
        -------
        ndarray of shape (H, S, A)
            Probability of each action. Equally good actions share the probability.
        """
        q = getattr(tables, "q", None)
        if q is None:
            raise NotImplementedError(
                f"the tables of {type(self).__name__} have no field 'q': define policy(tables), "
                "which returns an array of shape (H, S, A)"
            )
        return np.asarray(best_actions(q), np.float64)

    def behaviour(self, tables: Any, k: int) -> NDArray[np.float64]:
        """Return the distribution of `act` in an episode, exploration included.

        Override it if the learner does not act by `policy`.

        Parameters
        ----------
        tables : tuple
            Tables of the learner.
        k : int
            Episode, from 0.

        Returns
        -------
        ndarray of shape (H, S, A)
            Probability of each action.
        """
        return self.policy(tables)

    def grow(self, tables: Any, H: int, S: int, A: int, episodes: int) -> Any:
        """Return larger tables that keep what was learnt.

        Parameters
        ----------
        tables : tuple
            Tables of the learner.
        H : int
            Horizon.
        S : int
            New number of labels.
        A : int
            Number of actions.
        episodes : int
            Number of episodes of the whole run.

        Returns
        -------
        tuple
            Fresh tables for S labels, with the old entries copied to the same places.
        """
        grown = self.tables(H, S, A, episodes)
        for new, old in zip(grown, tables):
            if isinstance(new, np.ndarray):
                new[tuple(slice(n) for n in old.shape)] = old
        return grown

    def has_guarantee(self) -> bool:
        """Return whether a published bound holds for this learner, with these hyperparameters.

        Returns
        -------
        bool
            Whether it is known to be (epsilon, delta)-correct (Definition 2).
        """
        return False

    def is_compiled(self) -> bool:
        """Return whether numba compiled `act`, `update` and `plan`.

        Returns
        -------
        bool
            Whether the episode loop can be compiled around this learner.
        """
        return all(is_compiled(f) for f in (self.act, self.update, self.plan))


def check_range(learner: object, field: str, low: float, high: float) -> None:
    """Raise ValueError if a hyperparameter is not in [low, high]."""
    value = getattr(learner, field)
    if not (isinstance(value, int | float | np.number) and low <= value <= high):
        raise ValueError(
            f"{type(learner).__name__}: {field} must be a number in [{low:g}, {high:g}], got "
            f"{value!r}"
        )


def check_constants(learner: Any) -> None:
    """Raise ValueError if a constant of a learner with a guarantee is not valid."""
    name = type(learner).__name__
    for field, low, high in (("scale", 0.0, 1e300), ("delta", 1e-300, 1.0)):
        if hasattr(learner, field):
            check_range(learner, field, low, high)
    if getattr(learner, "v_max", None) is not None:
        check_range(learner, "v_max", 1e-300, 1e300)
    if getattr(learner, "bonus", "hoeffding") not in ("hoeffding", "bernstein"):
        raise ValueError(f'{name}: bonus must be "hoeffding" or "bernstein", got {learner.bonus!r}')
    if hasattr(learner, "stationary"):
        check_stationary(learner)


def check_stationary(learner: Any) -> None:
    """Raise ValueError if the field `stationary` is not a bool."""
    if not isinstance(learner.stationary, bool | np.bool_):
        name = type(learner).__name__
        raise ValueError(f"{name}: stationary must be True or False, got {learner.stationary!r}")


@inlined
def at(table, h):
    """Return the index of level h in a table: h, or 0 if all levels share it."""
    return h if len(table) > 1 else 0


@inlined
def best_action(q, h, s, key):
    """Return the action with the largest value; ties are broken at random.

    Parameters
    ----------
    q : ndarray of shape (H, S, A)
        Action values.
    h : int
        Level.
    s : int
        Label.
    key : np.uint64
        Key that `Learner.act` was given.

    Returns
    -------
    int
        Action.
    """
    return best_action_at(q, h, s, uniform(key, 0), 0.0)


@inlined
def best_action_at(q, h, s, u, low):
    """Return the action with the largest q[h, s, :]; u, uniform on [low, 1), breaks ties."""
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
    """Return the largest value of a label, max over a of q[h, s, a].

    Parameters
    ----------
    q : ndarray of shape (H, S, A)
        Action values.
    h : int
        Level. At level H the value is 0.
    s : int
        Label. If it is -1, the episode has ended, and the value is 0.

    Returns
    -------
    float
        Value.
    """
    if h >= q.shape[0] or s < 0:
        return 0.0
    v = q[h, s, 0]
    for b in range(1, q.shape[2]):
        v = max(v, q[h, s, b])
    return v


@jit
def best_actions(q):
    """Return the greedy policy (H, S, A) of action values q (H, S, A).

    Equally good actions share the probability; that of a label with a NaN is NaN.
    """
    H, S, A = q.shape
    pi = np.empty((H, S, A))
    for h in range(H):
        for s in range(S):
            top = q[h, s, 0]
            for a in range(1, A):
                if q[h, s, a] > top or q[h, s, a] != q[h, s, a]:
                    top = q[h, s, a]
            n = 0.0
            for a in range(A):
                n += q[h, s, a] == top
            for a in range(A):
                pi[h, s, a] = (q[h, s, a] == top) / n
    return pi
