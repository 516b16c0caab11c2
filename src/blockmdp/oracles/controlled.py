"""An oracle that looks at actions, and ignores bits that no action influences.

In an exogenous Block MDP (Efroni et al. 2022, Lamb et al. 2023, Levine et al. 2025), part of an
observation moves on its own: a clock, a second agent, other people's screens. Clusters then follow
that part as well, and only actions tell what the agent controls.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import rel_entr
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from blockmdp.checks import check_integer, check_number
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.oracles.scores import LinearScores

__all__ = ["ControlledMixture", "Patterns", "influence"]

Bits = NDArray[np.uint8]
Ints = NDArray[np.int64]
NONE = np.zeros(0, np.int64)

FIRST = 250  # steps after which exogenous bits are looked for
GROWTH = 1.25  # factor by which the steps must have grown until they are looked for again
SUSPECTS = 10  # bits with a memory of their own, and
SUSPECT_SHARE = 0.1  # their share of the bits that vary, from which on the agent acts at random
SURPRISE = math.log(100.0)  # how surprising their memory must be, each
DECIDED = 0.5  # share of the bits that vary which must be decided before that ends, and
NEARLY = 0.5  # share of `min_count` that no other bit may have then: it will be decided soon
NEW = 0.01  # share of observations with a pattern of their own, up to which patterns are labels
CHUNK = 1_000  # observations that are learnt again at once
SPARSE = 0.1  # share of ones below which sparse matrices are faster


class ControlledMixture(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Dirichlet process mixture of the bits that actions influence.

    It is a `DirichletMixture` that can also see actions. If many bits depend on their own past more
    than the labels explain, something moves on its own. Then the agent acts at random for a while,
    and the oracle tests for each bit whether some action changes the probability of its next value,
    given any bit of the present observation. Bits that vary and pass no test are exogenous: the
    mixture no longer sees them. A bit that was seldom 1 or seldom 0 is kept, since it may belong to
    a state that random actions do not reach.

    If observations are not bits, no actions are shown or nothing moves on its own, the labels are
    those of the `DirichletMixture`, which learns the covariance of noise.

    Parameters
    ----------
    concentration : float, default=0.01
        See `DirichletMixture`.
    max_labels : int, default=500
        Largest number of labels.
    memory : int or None, default=None
        Observations that the mixture keeps; see `DirichletMixture`.
    min_count : int, default=150
        Ones and zeros that a bit must have had before it is taken for exogenous.
    max_steps : int, default=20_000
        Largest number of steps with random actions.
    error : float, default=0.001
        Probability that a test finds any influence where there is none.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Labels of all observations so far; 0 while the agent acts at random.
    n_labels_ : int
        Number of labels.
    explores_ : bool
        Whether the agent should act at random in the next episode.
    controlled_ : ndarray of shape (d,)
        Whether some action was found to influence each bit.
    kept_ : ndarray of shape (d,)
        Whether the mixture sees each coordinate.

    See Also
    --------
    DirichletMixture : The same without actions.
    IncrementalOracle : The protocol; it says how an oracle sees actions.

    Notes
    -----
    The test counts the steps that have one bit before and another bit after: how often was an
    action taken, and how often should it have been if it did not matter? Random actions are
    independent, so Chernoff's inequality bounds the probability of each difference. The threshold
    holds for all pairs of bits and actions together. Asking for the action that lies between two
    observations is inverse kinematics [1]_; here it is asked of pairs of bits.

    It cannot tell apart what is mixed: if each bit depends on controlled and on exogenous parts,
    all are kept. A bit that an action influences only after several steps is taken for exogenous,
    and so is one that depends on actions in places only that random actions do not reach.

    References
    ----------
    .. [1] Y. Efroni, D. Misra, A. Krishnamurthy, A. Agarwal, J. Langford (2022). Provably filtering
       exogenous distractors using multistep inverse dynamics. ICLR 2022.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.noisy_chain(n_states=5, n_bits=64)
    >>> oracle = bm.oracles.ControlledMixture()
    >>> agent = bm.OnlineURL(oracle, pool_levels=True).fit(m, episodes=500)
    >>> agent.value(), agent.recovers()
    (1.0, True)
    """

    def __init__(
        self,
        concentration: float = 0.01,
        max_labels: int = 500,
        memory: int | None = None,
        min_count: int = 150,
        max_steps: int = 20_000,
        error: float = 0.001,
    ) -> None:
        self.concentration, self.max_labels, self.memory = concentration, max_labels, memory
        self.min_count, self.max_steps, self.error = min_count, max_steps, error

    def fit(self, X: Any, y: None = None) -> ControlledMixture:
        """Learn from a data set without actions, and forget what was learnt before.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        ControlledMixture
            The estimator itself.
        """
        X = validate_data(self, X, dtype=np.float64)
        self._reset()
        self._are_bits = _are_bits(X)
        self.mixture_.fit(X)
        self._keep(X)
        return self

    def partial_fit(self, X: Any, y: None = None) -> ControlledMixture:
        """Learn from more observations, in their order.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        ControlledMixture
            The estimator itself.
        """
        X = self._validated(X, reset=not self._has_begun())
        if not hasattr(self, "mixture_"):
            self._reset()
        self._are_bits &= self._is_settled or _are_bits(X)
        labels, changed = self.labels_, self._decide()
        if not self.explores_:
            if changed:
                self._relearn()
            self.mixture_.partial_fit(self._visible(X))
        self._keep(X)
        if changed:
            self._changed = np.flatnonzero(labels != self.labels_[: len(labels)])
        else:
            self._changed = NONE if self.explores_ else self.mixture_.changed_labels()
        return self

    def see_actions(self, X: Any, before: Any, labels: Any, actions: Any) -> None:
        """Take note of the steps that led to observations of the next `partial_fit`.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Observations that followed an action.
        before : ndarray of shape (n, d)
            The observation before each.
        labels : ndarray of shape (n,)
            The label of the observation before, when the action was chosen.
        actions : ndarray of shape (n,)
            The actions.
        """
        if not hasattr(self, "mixture_"):
            self._reset()
        if self._is_settled or not len(X):
            return
        self._are_bits &= _are_bits(X) and _are_bits(before)
        if self._are_bits:
            self._steps.append((_packed(before), _packed(X), np.asarray(actions)))
            self._n_steps += len(X)

    def predict(self, X: Any) -> Ints:
        """Label observations without learning from them.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        check_is_fitted(self, "mixture_")
        X = self._validated(X, reset=False)
        if self.explores_:
            return np.zeros(len(X), np.int64)
        return np.asarray(self.mixture_.predict(self._visible(X)))

    def changed_labels(self) -> Ints:
        """Return which earlier observations the last `partial_fit` relabelled.

        Returns
        -------
        ndarray of shape (m,)
            Their indices in `labels_`, in ascending order.
        """
        check_is_fitted(self, "mixture_")
        return self._changed

    def linear_scores(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the linear scores by which `predict` chooses labels.

        Returns
        -------
        W : ndarray of shape (n_labels, d)
            Weights, 0 for coordinates that are not kept.
        b : ndarray of shape (n_labels,)
            Intercepts: the label of x is the k with the largest W[k] . x + b[k].
        """
        check_is_fitted(self, "mixture_")
        if self.explores_:
            return np.zeros((1, self.n_features_in_)), np.zeros(1)
        some, b = self.mixture_.linear_scores()
        if self.kept_.all():
            return some, b
        some = some.reshape(len(b), int(self.kept_.sum()), -1)  # several numbers for categories
        W = np.zeros((len(b), len(self.kept_), some.shape[2]))
        W[:, self.kept_] = some
        return W.reshape(len(b), -1), b

    def trusted_labels(self) -> NDArray[np.bool_]:
        """Return which labels a policy should rely on; see `DirichletMixture.trusted_labels`.

        Returns
        -------
        ndarray of shape (n_labels,)
            True for each label to rely on.
        """
        check_is_fitted(self, "mixture_")
        return np.ones(1, np.bool_) if self.explores_ else self.mixture_.trusted_labels()

    def noise_scatter(self) -> tuple[NDArray[np.float64], int]:
        """Return how observations deviate from the means of their labels.

        Returns
        -------
        scatter : ndarray of shape (d, d)
            Sum of the outer products of the deviations.
        degrees : int
            Its degrees of freedom; 0 if there is nothing to learn from, or observations are bits.
        """
        return self.mixture_.noise_scatter() if hasattr(self, "mixture_") else (np.zeros((0, 0)), 0)

    def share_noise(self, T: NDArray[np.float64] | None) -> None:
        """Take over the shape of the noise from other data; see `DirichletMixture.share_noise`.

        Parameters
        ----------
        T : ndarray of shape (d, d) or None
            Matrix for which the noise of x T is round. None forgets it.
        """
        if not hasattr(self, "mixture_"):
            self._reset()
        self.mixture_.share_noise(T)

    @property
    def labels_(self) -> Ints:
        """Labels of all observations so far."""
        if not self._n or self.explores_:
            return np.zeros(self._n, np.int64)
        return np.asarray(self.mixture_.labels_)

    @property
    def n_labels_(self) -> int:
        """Number of labels."""
        return 1 if self.explores_ else self.mixture_.n_labels_

    @property
    def limits_(self) -> Any:
        """Limits to which observations are clipped; see `DirichletMixture`."""
        check_is_fitted(self, "mixture_")
        return getattr(self.mixture_, "limits_", None)

    @property
    def values_(self) -> Any:
        """Numbers that stand for categories; see `DirichletMixture`."""
        check_is_fitted(self, "mixture_")
        return None if self.explores_ else getattr(self.mixture_, "values_", None)

    def _reset(self) -> None:
        check_number("error", self.error, 0, 1, closed="neither")
        check_integer("min_count", self.min_count, 1)
        check_integer("max_steps", self.max_steps, 1)
        self._new_mixture()
        self.mixture_._check_parameters()
        self._are_bits, self._is_settled, self.explores_ = True, False, False
        self._past: list[Bits] = []  # all observations, as long as they are bits
        self._steps: list[tuple[Bits, Bits, Ints]] = []  # of random actions, once it explores
        self._n = self._n_steps = 0
        self._due = FIRST
        self._changed = NONE

    _validated = DirichletMixture._validated

    def _has_begun(self) -> bool:
        return hasattr(self, "mixture_") and self._n > 0

    def _new_mixture(self) -> None:
        self.mixture_: Any = DirichletMixture(self.concentration, self.max_labels, self.memory)

    def _visible(self, X: Any) -> Any:
        return X if not self._n or self.kept_.all() else X[:, self.kept_]

    def _keep(self, X: Any) -> None:
        """Keep observations, to learn from them again if other bits are visible."""
        if not self._n:
            self.kept_ = np.ones(X.shape[1], np.bool_)
            self.controlled_ = np.zeros(X.shape[1], np.bool_)
        self._n += len(X)
        if self._is_settled:
            self._past = []
        else:
            self._past.append(_packed(X))

    def _decide(self) -> bool:
        """Decide whether to explore, and which bits to keep. Return whether labels change."""
        is_early = not self._n or self._n_steps < self._due
        if self._is_settled or (self._are_bits and is_early):
            return False
        if not self._are_bits:
            was, self.explores_, self._is_settled, self._steps = self.explores_, False, True, []
            return was
        self._due = min(math.ceil(GROWTH * self._n_steps), max(self.max_steps, self._n_steps + 1))
        x, y, actions = (np.concatenate(each) for each in zip(*self._steps))
        self._steps = [(x, y, actions)]
        before, after = (np.unpackbits(each, axis=1, count=self.n_features_in_) for each in (x, y))
        if not self.explores_:
            if not _moves_on_its_own(before, after, self.mixture_.predict(after)):
                self._is_settled = self._n_steps >= self.max_steps
                return False
            self.explores_, self._steps, self._n_steps, self._due = True, [], 0, FIRST
            return True
        found, rarer = influence(before, after, actions, self.error)
        decided = found | (rarer >= self.min_count)
        nearly = ~decided & (rarer >= NEARLY * self.min_count)
        is_enough = np.count_nonzero(decided) >= DECIDED * np.count_nonzero(rarer)
        is_done = found.any() and is_enough and not nearly.any()
        if not is_done and self._n_steps < self.max_steps:
            return False
        self.explores_, self._is_settled, self._steps = False, True, []
        self.controlled_ = found
        if found.any():
            self.kept_ = found | (rarer < self.min_count)
        return True

    def _relearn(self) -> None:
        """Learn all observations again, from the bits that are visible."""
        past = self._past = [np.concatenate(self._past)]
        rows = np.unpackbits(past[0], axis=1, count=self.n_features_in_)[:, self.kept_]
        _, counts = np.unique(np.packbits(rows, axis=1), axis=0, return_counts=True)
        if len(counts) < self.max_labels and (counts == 1).sum() <= NEW * len(rows):
            self.mixture_ = Patterns(self.max_labels).partial_fit(rows)  # exact, and fast
            return
        self._new_mixture()
        for first in range(0, len(rows), CHUNK):
            self.mixture_.partial_fit(rows[first : first + CHUNK].astype(np.float64))


class Patterns:
    """One label for each pattern of bits; a new one gets the label with most bits in common.

    Where controlled bits have no noise, this knows a state from its first visit on.

    Parameters
    ----------
    max_labels : int
        Largest number of labels.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Labels of all observations so far.
    """

    def __init__(self, max_labels: int) -> None:
        self.max_labels = max_labels
        self._number: dict[str, int] = {}
        self._patterns = np.zeros((0, 0))
        self.labels_ = NONE

    @property
    def n_labels_(self) -> int:
        """Number of labels."""
        return len(self._number)

    def partial_fit(self, X: Any) -> Patterns:
        """Learn from more observations (n, d)."""
        X = np.asarray(X, np.float64)
        if not self._number:
            self._patterns = np.zeros((0, X.shape[1]))
        labels = np.empty(len(X), np.int64)
        for i, row in enumerate(_packed(X)):
            name = row.tobytes().decode("latin-1")
            if name not in self._number and self.n_labels_ == self.max_labels:
                labels[i] = self.predict(X[i : i + 1])[0]
                continue
            labels[i] = k = self._number.setdefault(name, self.n_labels_)
            if k == len(self._patterns):
                self._patterns = np.concatenate([self._patterns, X[i : i + 1]])
        self.labels_ = np.concatenate([self.labels_, labels])
        return self

    def predict(self, X: Any) -> Ints:
        """Return the labels (n,) of observations (n, d)."""
        return np.asarray(LinearScores(*self.linear_scores()).predict(X), np.int64)

    def linear_scores(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return weights (n_labels, d) and intercepts (n_labels,): bits in common."""
        return 2 * self._patterns - 1, -self._patterns.sum(axis=1)

    def changed_labels(self) -> Ints:
        """Return no observations: labels never change."""
        return NONE

    def trusted_labels(self) -> NDArray[np.bool_]:
        """Return True for all labels."""
        return np.ones(self.n_labels_, np.bool_)


def influence(
    before: Bits, after: Bits, actions: Ints, error: float
) -> tuple[NDArray[np.bool_], Ints]:
    """Test which bits actions influence, where actions were drawn at random.

    Parameters
    ----------
    before, after : ndarray of shape (n, d)
        Observations before and after each step.
    actions : ndarray of shape (n,)
        The actions, independent of all that was before.
    error : float
        Probability that any bit is found that no action influences.

    Returns
    -------
    found : ndarray of shape (d,)
        Whether some action influences the bit.
    rarer : ndarray of shape (d,)
        Ones or zeros after the steps, whichever are fewer.
    """
    tried, actions = np.unique(actions, return_inverse=True)
    A = len(tried)
    ones = after.sum(axis=0, dtype=np.int64)
    rarer = np.minimum(ones, len(after) - ones)
    found = np.zeros(after.shape[1], np.bool_)
    targets, contexts = np.flatnonzero(rarer), np.flatnonzero(before.min(0) < before.max(0))
    if A < 2 or not len(targets):
        return found, rarer
    given = np.concatenate([np.ones((len(before), 1), np.uint8), before[:, contexts]], axis=1)
    X, Y = _matrix(given), _matrix(after[:, targets])
    threshold = math.log(4 * A * len(targets) * given.shape[1] / error)
    N, every = _product(X, Y), given.sum(axis=0, dtype=np.float64)[:, None]
    for a in range(A if A > 2 else 1):
        is_a = (actions == a).astype(np.float32)
        share = is_a.mean(dtype=np.float64)
        K, k = _product(X, Y, is_a), (given.T @ is_a)[:, None]
        for n, taken in ((N, K), (every - N, k - K)):  # steps to 1, and to 0
            found[targets] |= (_surprise(n, taken, share * n) > threshold).any(axis=0)
    return found, rarer


def _moves_on_its_own(before: Bits, after: Bits, labels: Ints) -> bool:
    """Whether many bits depend on their own past, given the label (n,) of the present."""
    ones = after.sum(axis=0)
    varied = np.flatnonzero((ones > 0) & (ones < len(after)))
    if len(varied) < SUSPECTS:
        return False
    x, y = before[:, varied].astype(np.float64), after[:, varied].astype(np.float64)
    names, labels = np.unique(labels, return_inverse=True)
    share = np.stack([y[labels == k].mean(axis=0) for k in range(len(names))])[labels]
    surprise = _surprise(x.sum(axis=0), (x * y).sum(axis=0), (x * share).sum(axis=0))
    suspects = np.count_nonzero(surprise > SURPRISE)
    return bool(suspects >= max(SUSPECTS, SUSPECT_SHARE * len(varied)))


def _surprise(n: Any, taken: Any, expected: Any) -> NDArray[np.float64]:
    """Return n KL(taken / n || expected / n), where n > 0: the negative logarithm of a bound on the
    probability that a sum of n Bernoulli variables is as far from what is expected (Hoeffding 1963)
    """
    surprise = rel_entr(taken, expected) + rel_entr(n - taken, n - expected)
    return np.where(np.isfinite(surprise), surprise, 0.0)


def _matrix(bits: Bits) -> Any:
    X = bits.astype(np.float32)
    return csr_array(X) if bits.mean() < SPARSE else X


def _product(X: Any, Y: Any, weight: Any = None) -> NDArray[np.float64]:
    """Return X' diag(weight) Y. All sums are of integers below 2^24, so they are exact."""
    if weight is not None:
        Y = Y.multiply(weight[:, None]).tocsr() if hasattr(Y, "multiply") else Y * weight[:, None]
    P = X.T @ Y
    return np.asarray(P.toarray() if hasattr(P, "toarray") else P, np.float64)


def _packed(X: Any) -> Bits:
    return np.packbits(np.asarray(X) > 0.5, axis=1)


def _are_bits(X: Any) -> bool:
    X = np.asarray(X)
    return bool(((X == 0) | (X == 1)).all())
