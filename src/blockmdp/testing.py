"""Checks that tell whether a part you bring is right."""

from __future__ import annotations

from typing import Any

import numpy as np

from blockmdp.agents.tabular import Tabular
from blockmdp.envs.locks import lock_bernoulli
from blockmdp.learners.base import Learner

__all__ = ["check_learner"]


def check_learner(learner: Learner) -> None:
    """Raise an AssertionError that says what is wrong with a learner; return if nothing is.

    The learner is run on a small lock, from compiled loops if it is compiled, interpreted and
    stepwise. It must keep to the protocol of `blockmdp.Learner`: tables of the right shapes,
    actions in range, randomness from its key alone, changes to its tables only, room for more
    labels without forgetting, the same result in every engine.

    Examples
    --------
    >>> from blockmdp import OracleQ
    >>> check_learner(OracleQ())
    """
    name = type(learner).__name__
    assert isinstance(learner, Learner), f"{name} must subclass blockmdp.Learner"
    H, S, A, episodes = 3, 3, 4, 200
    tables = learner.tables(H, S, A, episodes)
    assert isinstance(tables, tuple), (
        f"{name}.tables must return a tuple (best a NamedTuple) of arrays and numbers, got "
        f"{type(tables).__name__}"
    )
    again = learner.tables(H, S, A, episodes)
    for i, (one, two) in enumerate(zip(tables, again)):
        field = _field(tables, i)
        assert isinstance(one, np.ndarray | int | float | np.generic), (
            f"{name}: table {field} is a {type(one).__name__}; numba takes arrays and numbers"
        )
        if isinstance(one, np.ndarray):
            assert not np.shares_memory(one, two), (
                f"{name}: table {field} is shared between two calls of tables(): make it anew "
                "each time"
            )

    key = np.uint64(12345)
    before = _copy(tables)
    actions = {int(learner.act(tables, 0, 0, 0, key)) for _ in range(5)}
    assert len(actions) == 1, (
        f"{name}.act gives different actions for one key: draw from the key alone"
    )
    for k, h, s in np.ndindex(2, H, S):
        a = learner.act(tables, k, h, s, np.uint64(k * 100 + h * 10 + s))
        assert a in range(A), f"{name}.act gave {a!r}; actions are 0, ..., {A - 1}"
    _same(before, tables, f"{name}.act changed table {{}}: only update and plan may")
    learner.update(tables, 0, 0, 1, 1.0, 2)
    learner.update(tables, H - 1, 1, 0, 0.0, 0)
    learner.update(tables, 0, 2, 3, 0.5, -1)  # an episode that ended early
    learner.plan(tables, 0)

    grown = learner.grow(tables, H, 2 * S, A, episodes)
    for i, (old, new) in enumerate(zip(tables, grown)):
        if isinstance(old, np.ndarray):
            part = new[tuple(slice(n) for n in old.shape)]
            assert np.array_equal(part, old), (
                f"{name}.grow lost entries of table {_field(tables, i)}"
            )
    for s in range(2 * S):
        a = learner.act(grown, 0, 0, s, key)
        assert 0 <= a < A, f"{name}.act gave {a!r} for a label that came with grow"

    pi = learner.policy(tables)
    assert pi.shape == (H, S, A), (
        f"{name}.policy must have the shape (H, S, A) = {(H, S, A)}, got {pi.shape}"
    )
    off = (pi < 0).any(axis=2) | ~np.isclose(pi.sum(axis=2), 1)
    assert not off.any(), f"{name}.policy must be probabilities of the actions, got {pi[off][0]}"

    problem = lock_bernoulli(horizon=H, switch=0.2, seed=1)
    for on in ("latent", "observation"):
        runs = {
            engine: Tabular(learner, on).fit(problem, episodes, seed=3, engine=engine)
            for engine in ("compiled", "interpreted", "stepwise")
        }
        first = runs["compiled"]
        for engine, other in runs.items():
            assert np.array_equal(first.returns_, other.returns_), (
                f"{name} on={on!r}: the returns of the {engine} and the compiled engine differ"
            )
        repeat = Tabular(learner, on).fit(problem, episodes, seed=3)
        assert np.array_equal(first.returns_, repeat.returns_), (
            f"{name} on={on!r}: the same seed gave other returns; is there randomness beside the "
            "key?"
        )


def _field(tables: Any, i: int) -> str:
    names = getattr(tables, "_fields", None)
    return repr(names[i]) if names else str(i)


def _copy(tables: Any) -> list[Any]:
    return [t.copy() if isinstance(t, np.ndarray) else t for t in tables]


def _same(before: Any, after: Any, message: str) -> None:
    for i, (one, two) in enumerate(zip(before, after)):
        assert np.array_equal(one, two), message.format(_field(after, i))
