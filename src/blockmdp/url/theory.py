"""The constants of Algorithms 1 and 2 as printed, and the conditions of their proof.

The comments name the equations of Feng et al. (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from blockmdp.checks import check_integer, warn
from blockmdp.learners import Learner
from blockmdp.mdp import BlockMDP

__all__ = ["DELTA_2", "Constants", "Theory", "constants"]

DELTA_2 = 0.005  # half of the probability with which a restart may fail (Proposition 1)


@dataclass(frozen=True)
class Constants:
    """Constants of Algorithms 1 and 2 as printed, for accuracy epsilon and confidence delta.

    Parameters
    ----------
    N : int
        Restarts.
    L : int
        Evaluation episodes of each restart.
    J : int
        Iterations of TSR.
    B : int
        Batch size.
    min_count : float
        Test observations that confirm a label.
    K : int or None, default=None
        Learning episodes of each restart, if the learner knows how many it needs.
    """

    N: int
    L: int
    J: int
    B: int
    min_count: float
    K: int | None = None

    def trajectories(self, K: int) -> int:
        """Trajectories by the paper's formula: N sum_k sum_i ((k - 1) J + i + 1) B + N L.

        The formula leaves out the K trajectories of each restart that the learner learns from, and
        the data of the last call of TSR (line 10), which is the term k = K + 1.

        Parameters
        ----------
        K : int
            Learning episodes of each restart.

        Returns
        -------
        int
            Number of trajectories.
        """
        return self.N * _data(self.J, self.B, 1, K) + self.N * self.L

    def all_trajectories(self, K: int) -> dict[str, int]:
        """Trajectories that are drawn, by kind: also the last call of TSR, and the learner's own.

        Parameters
        ----------
        K : int
            Learning episodes of each restart.

        Returns
        -------
        dict
            As in `URL.ledger_`.
        """
        J, B, N = self.J, self.B, self.N
        test = N * (K + 1) * J * B
        return {
            "oracle": N * _data(J, B, 1, K + 1) - test,
            "test": test,
            "learn": N * K,
            "evaluate": N * self.L,
        }


def _data(J: int, B: int, first: int, last: int) -> int:
    """Return the sum over k and i of ((k - 1) J + i + 1) B, for k from `first` to `last`."""
    n = last - first + 1
    ks = n * (first + last - 2) // 2  # sum of k - 1
    return B * (ks * J * J + n * (J * (J + 1) // 2 + J))


def constants(
    epsilon: float,
    delta: float,
    horizon: int,
    n_states: int,
    *,
    batch: int | None = None,
    label_error: float | None = None,
    delta_1: float = 0.01,
    g_inverse: Callable[[float, float], float] | None = None,
    episodes: int | None = None,
    learner: Learner | None = None,
    n_actions: int | None = None,
) -> tuple[Constants, Theory]:
    """Compute the constants; see `URL.constants`. Return them with what they were computed for."""
    label_error = _label_error(horizon, n_states, delta_1) if label_error is None else label_error
    for name, value in (
        ("epsilon", epsilon),
        ("delta", delta),
        ("label_error", label_error),
        ("delta_1", delta_1),
    ):
        if not 0 < value < 1:
            raise ValueError(f"{name} must be in (0, 1), got {value!r}")
    H, S = check_integer("horizon", horizon, 1), check_integer("n_states", n_states, 1)
    N = math.ceil(math.log(2 / delta) / 2)
    L = math.ceil(9 * H**2 / (2 * epsilon**2) * math.log(2 * N / delta))
    J = (H + 1) * S + 1
    K = None
    if learner is not None and n_actions is not None:
        needs = getattr(learner, "sample_complexity", None)
        A = check_integer("n_actions", n_actions, 1)
        K = None if needs is None else needs(H, S, A, epsilon / 4, DELTA_2)
    if batch is None:
        episodes = K if episodes is None else episodes
        if g_inverse is None or episodes is None:
            raise ValueError("give batch, or the oracle's g_inverse and the episodes K")
        KJ = check_integer("episodes", episodes, 1) * J
        batch = max(math.ceil(g_inverse(label_error**2 / KJ, delta_1) / KJ), 1)
    batch = check_integer("batch", batch, 1)
    found = Constants(N, L, J, batch, 3 * label_error * batch * math.log(1 / delta_1), K)
    return found, Theory(H, S, label_error, delta_1, found)


def _label_error(H: int, S: int, delta_1: float) -> float:
    """Return half of the largest label error that Lemma 2 allows."""
    H, S = check_integer("horizon", H, 1), check_integer("n_states", S, 1)
    if not 0 < delta_1 < 1:
        raise ValueError(f"delta_1 must be in (0, 1), got {delta_1!r}")
    return min(1 / (200 * H * S * math.log(1 / delta_1)), 0.5)


@dataclass(frozen=True)
class Theory:
    """What `URL.theory` assumes, to be checked before and after a fit."""

    horizon: int
    n_states: int
    label_error: float
    delta_1: float
    constants: Constants

    def check(self, learner: Learner) -> None:
        """Raise ValueError if no label can be confirmed; warn of other conditions that fail."""
        H, S, log = self.horizon, self.n_states, math.log(1 / self.delta_1)
        if self.constants.min_count > self.constants.B:
            raise ValueError(
                f"3 label_error B log(1/delta_1) = {self.constants.min_count:.3g} test "
                f"observations confirm a label, but there are only B = {self.constants.B} (line 12 "
                f"of Algorithm 2): choose label_error < {1 / (3 * log):.3g}"
            )
        failed = []
        if self.label_error * log > 0.1:
            failed.append(
                f"label_error log(1/delta_1) = {self.label_error * log:.3g} must be at most 0.1 "
                "(Lemma 1)"
            )
        least = 50 * H * self.label_error * S * log
        if least >= 0.5:
            failed.append(
                f"50 H label_error |S| log(1/delta_1) = {least:.3g} must be less than 1/2 (Lemma "
                f"2): choose label_error < {0.5 / (50 * H * S * log):.3g}, or leave it out"
            )
        if not learner.has_guarantee():
            failed.append(
                f"{learner!r} is not known to be (epsilon, delta)-correct (Definition 2): take "
                "UCBVITheory(), say, with scale=1"
            )
        _warn(failed)

    def check_problem(self, mdp: BlockMDP | None, horizon: int) -> None:
        """Raise ValueError for another horizon; warn if a known problem is not as assumed."""
        if horizon != self.horizon:
            raise ValueError(
                f"URL.theory made this agent for horizon {self.horizon}, but the problem has "
                f"horizon {horizon}"
            )
        if mdp is not None:
            _warn([*_problems(self, mdp)])

    def check_labels(self, n_labels: int) -> None:
        """Warn if the oracle has found more labels than there are states."""
        if n_labels > self.n_states:
            _warn(
                [
                    f"the oracle has found {n_labels} labels at a level, but J = (H + 1) |S| + 1 "
                    f"assumes at most |S| = {self.n_states} (Definition 1)"
                ]
            )


def _problems(theory: Theory, mdp: BlockMDP) -> Iterator[str]:
    reachable = int((mdp.reachability() > 0).sum(axis=1).max())
    if reachable > theory.n_states:
        yield (
            f"{mdp.name} has {reachable} states at a level, but n_states={theory.n_states} (|S| in "
            "Section 2)"
        )
    low, high = mdp.reward_range()
    if low < 0 or high > 1:
        yield (
            f"rewards of {mdp.name} lie in [{low:g}, {high:g}], but must lie in [0, 1] (Section 2)"
        )


def _warn(failed: list[str]) -> None:
    if failed:
        warn("the proof of URL.theory does not apply here. " + "; ".join(failed))
