"""Fitting an unsupervised-learning oracle (Feng et al. 2020, Definition 1).

An oracle is any scikit-learn clusterer or mixture. If it has `predict`, it is used as it is. If it
only has `fit_predict` (DBSCAN, HDBSCAN, OPTICS, agglomerative, spectral), a classifier learns its
labels and predicts those of new observations, as the paper does with DBSCAN and a support vector
machine.

All labels from outside enter the package through `check_labels` and `renumber`. An oracle may use
any whole numbers as labels, and -1 for noise; the package numbers them 0, ..., n - 1.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from blockmdp import rng
from blockmdp.checks import catching_warnings, check_finite
from blockmdp.oracles._svm import svm_labels
from blockmdp.oracles.scores import SCORES, Predictor, to_scores

__all__ = [
    "ConstantPredictor",
    "FittedOracle",
    "IncrementalOracle",
    "InductiveClusterer",
    "OracleError",
    "check_is_oracle",
    "check_labels",
    "fit_growing",
    "fit_oracle",
    "learn_more",
    "one_thread",
    "renumber",
]


class OracleError(ValueError):
    """An oracle failed to fit, or gave labels that are not whole numbers."""


@dataclass(frozen=True)
class FittedOracle:
    """Fitted oracle that gives labels 0, ..., n_labels - 1.

    Parameters
    ----------
    predictor : Predictor
        A fitted estimator, or its scores.
    n_labels : int
        Number of labels.
    notes : tuple of str, default=()
        What was unusual about the fit, one sentence each.
    names : tuple of int, default=()
        What the predictor calls the labels 0, 1, ..., if it has other numbers for them. Whatever
        it gives besides gets the last label, `n_labels - 1`.

    See Also
    --------
    fit_oracle : Returns one.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from blockmdp import rng
    >>> fitted = fit_oracle(KMeans(2), np.array([[0.0], [0.1], [5.0], [5.1]]), rng.root(0))
    >>> fitted.n_labels
    2
    >>> a, b = fitted.predict(np.array([[0.2], [4.9]]))
    >>> bool(a != b)
    True
    """

    predictor: Predictor
    n_labels: int
    notes: tuple[str, ...] = ()
    names: tuple[int, ...] = ()

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        x : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        if len(x) == 0:
            return np.zeros(0, np.int32)
        if not (isinstance(self.predictor, SCORES) and x.dtype == np.int8):  # loops take bits too
            x = _as_floats(x)
        labels = check_labels(self.predictor.predict(x), len(x), self.predictor)
        last = self.n_labels - 1
        if self.names:
            numbers = {name: i for i, name in enumerate(self.names)}
            labels = renumber(labels, lambda name: numbers.get(name, last))
        # as an unsigned number, -1 is larger than every label
        return np.minimum(labels.view(np.uint64), np.uint64(last)).astype(np.int32)


@dataclass(frozen=True)
class ConstantPredictor:
    """Label 0 for every observation, before anything was learnt."""

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        """Label observations.

        Parameters
        ----------
        x : ndarray of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Zeros.
        """
        return np.zeros(len(x), np.int32)


@runtime_checkable
class IncrementalOracle(Protocol):
    """Protocol of oracles that learn online, for `OnlineURL` and for the retraining of `URL`.

    `OnlineURL` calls `partial_fit` after each episode with its observations, and `predict` for each
    observation on which it acts. Labels are integers from 0 on, and a label should keep its number
    as long as it means the same. Any other whole number, such as -1 for noise, gets the next free
    number when it first appears. An oracle may change its mind about earlier observations. It
    reports them in `changed_labels`, and the learner then learns the past again.

    An oracle is also a scikit-learn estimator. Derive it from `sklearn.base.BaseEstimator` and let
    the constructor only store its parameters, since `OnlineURL` works on clones. Oracles without
    these methods work in `OnlineURL` too: they are fitted again whenever the data have grown by
    half.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        Labels of all observations so far, in the order in which they arrived.
    n_labels_ : int, optional
        Number of labels, larger than every label of `labels_` and of `predict`. If it is missing,
        it is taken to be `labels_.max() + 1`.

    See Also
    --------
    DirichletMixture : An incremental oracle.
    ControlledMixture : An incremental oracle that looks at actions.
    blockmdp.testing.check_incremental_oracle : Checks an oracle of your own.

    Notes
    -----
    Any object with the three methods satisfies the protocol; there is nothing to inherit from.

    An oracle that looks at actions has another method, ``see_actions(X, before, labels, actions)``.
    It is called before `partial_fit` with the observations X of the next batch that followed an
    action, the observation before each, the label by which the agent acted there, and the action.
    If its attribute `explores_` is True, the agent acts at random from the next episode on, and
    meanwhile only random actions are shown. `URL` shows the steps of the trajectories that it
    collects for the oracle, except for the first batch, which goes to `fit`. See
    `ControlledMixture`.

    With a method `linear_scores` (see `blockmdp.oracles.scores.to_scores`), the decoder that is
    learnt is a pair of matrices, which runs compiled and is saved without skops.

    Examples
    --------
    An oracle that makes a new label of each observation far from all others:

    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator, ClusterMixin
    >>> class Leaders(ClusterMixin, BaseEstimator):
    ...     def __init__(self, radius=1.0):
    ...         self.radius = radius
    ...
    ...     def fit(self, X, y=None):
    ...         self.leaders_, self.labels_ = X[:1], np.zeros(0, int)
    ...         return self.partial_fit(X)
    ...
    ...     def partial_fit(self, X, y=None):
    ...         if not hasattr(self, "leaders_"):
    ...             return self.fit(X)
    ...         for x in X:
    ...             if np.linalg.norm(self.leaders_ - x, axis=1).min() > self.radius:
    ...                 self.leaders_ = np.vstack([self.leaders_, x])
    ...             self.labels_ = np.append(self.labels_, self.predict([x]))
    ...         return self
    ...
    ...     def predict(self, X):
    ...         distances = [np.linalg.norm(self.leaders_ - x, axis=1) for x in X]
    ...         return np.argmin(distances, axis=1)
    ...
    ...     def changed_labels(self):
    ...         return np.zeros(0, int)  # it never changes its mind

    >>> import blockmdp as bm
    >>> bm.testing.check_incremental_oracle(Leaders())
    >>> m = bm.lock_gaussian(horizon=4, sigma=0.05)
    >>> bm.OnlineURL(Leaders(0.8), bm.UCBVI()).fit(m, episodes=300).value()
    0.5
    """

    def partial_fit(self, X: Any) -> Any:
        """Learn from more observations.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Observations, in the order in which they were made.

        Returns
        -------
        IncrementalOracle
            The oracle itself.
        """

    def predict(self, X: Any) -> Any:
        """Label observations without learning from them.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels, each smaller than the number of labels so far.
        """

    def changed_labels(self) -> Any:
        """Return which earlier observations the last `partial_fit` relabelled.

        Returns
        -------
        ndarray of shape (m,)
            Their indices in `labels_`, in ascending order.
        """


class InductiveClusterer(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusterer that labels new observations with a classifier.

    Parameters
    ----------
    clusterer : estimator
        Has `fit_predict`. Observations that it labels -1 are noise, from which the classifier does
        not learn. So `predict` gives each of them the label of a cluster.
    classifier : estimator, default=SVC()
        Learns the clusterer's labels.

    Attributes
    ----------
    labels_ : ndarray of shape (n,)
        The clusterer's labels of the data, numbered 0, ..., m - 1; -1 for noise.
    n_labels_ : int
        Number of labels that `predict` can give.
    classes_ : ndarray of shape (m,)
        The clusterer's own numbers of these labels.
    clusterer_, classifier_ : estimator
        The fitted estimators. `classifier_` is None if there are fewer than two classes.
    n_features_in_ : int
        Number of coordinates of an observation.

    See Also
    --------
    pca_dbscan_svm : A pipeline that ends in one.

    Examples
    --------
    >>> from sklearn.cluster import DBSCAN
    >>> from blockmdp.oracles import InductiveClusterer
    >>> X = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]
    >>> oracle = InductiveClusterer(DBSCAN(eps=0.5, min_samples=2)).fit(X)
    >>> oracle.predict([[0.3], [4.9]])
    array([0, 1])
    """

    def __init__(self, clusterer: Any, classifier: Any = None) -> None:
        self.clusterer = clusterer
        self.classifier = classifier

    def fit(self, X: Any, y: None = None) -> InductiveClusterer:
        """Cluster a data set, and fit the classifier to its labels.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.
        y : None
            Ignored.

        Returns
        -------
        InductiveClusterer
            The estimator itself.
        """
        X = validate_data(self, X)
        self.clusterer_ = clone(self.clusterer)
        labels = self.clusterer_.fit_predict(X)
        self.labels_ = check_labels(labels, len(X), self.clusterer_, "fit_predict")
        kept = self.labels_ != -1
        self.classes_, self.labels_[kept] = np.unique(self.labels_[kept], return_inverse=True)
        self.n_labels_ = max(len(self.classes_), 1)
        self.classifier_ = None
        if len(self.classes_) > 1:
            self.classifier_ = clone(SVC() if self.classifier is None else self.classifier)
            self.classifier_.fit(X[kept], self.labels_[kept])
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Label observations.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Observations.

        Returns
        -------
        ndarray of shape (n,)
            Their labels.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        if self.classifier_ is None:
            return np.zeros(len(X), np.int64)
        labels = svm_labels(self.classifier_, X)
        return np.asarray(self.classifier_.predict(X) if labels is None else labels)


def check_is_oracle(oracle: Any) -> None:
    """Raise a TypeError if an object is not an unsupervised scikit-learn estimator.

    Parameters
    ----------
    oracle : object
        What a user passed as oracle.
    """
    if isinstance(oracle, type) or not (hasattr(oracle, "fit") and hasattr(oracle, "get_params")):
        raise TypeError(
            "oracle must be a scikit-learn clusterer or mixture: an instance with fit and "
            f"get_params, such as KMeans(3), got {oracle!r}"
        )
    if is_classifier(_last_step(oracle)) or is_regressor(_last_step(oracle)):
        raise TypeError(
            f"oracle must be unsupervised, such as a clusterer or a mixture, got {oracle!r}, which "
            "learns from labels"
        )
    if not (_has_method(oracle, "predict") or _has_method(oracle, "fit_predict")):
        raise TypeError(f"oracle must have predict or fit_predict, got {oracle!r}")


def fit_oracle(
    oracle: Any,
    x: NDArray[Any],
    key: np.uint64,
    *,
    as_scores: bool = True,
    last: FittedOracle | None = None,
) -> FittedOracle:
    """Fit a clone of an oracle to observations.

    All randomness comes from the key, and only one thread is used, so the same data and key give
    the same labels. If there are too few observations for the clusters that were asked for, or just
    one cluster, or the fit does not converge, this is noted and no error is raised.

    The oracle may use any whole numbers as labels. If they leave gaps, they become 0, 1, 2, ... in
    ascending order. Labels that it first gives later, and noise (-1), share one more label, the
    last. An oracle gets no such label if it states the number of its labels.

    Parameters
    ----------
    oracle : estimator
        Scikit-learn clusterer or mixture.
    x : ndarray of shape (n, ...)
        Observations; each is flattened.
    key : np.uint64
        From which every `random_state` in the oracle is drawn.
    as_scores : bool, default=True
        Turn the fitted estimator into scores where possible: see
        `blockmdp.oracles.scores.to_scores`.
    last : FittedOracle or None, default=None
        What the oracle learnt last. If it fails now, this is returned with a note.

    Returns
    -------
    FittedOracle
        The fitted oracle.

    Raises
    ------
    ValueError
        If the oracle fails and has learnt nothing so far, or if its labels are not whole numbers.

    Notes
    -----
    An estimator can have the attributes `labels_`, the labels of the data, and `n_labels_`, the
    number of labels that `predict` can give. Without them, the data are labelled by `predict` to
    count their labels.

    Examples
    --------
    >>> from sklearn.cluster import DBSCAN
    >>> from blockmdp import rng
    >>> x = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    >>> fit_oracle(DBSCAN(eps=0.5, min_samples=2), x, rng.root(0)).n_labels
    2
    >>> fit_oracle(DBSCAN(eps=9.0, min_samples=2), x, rng.root(0)).notes
    ('a single label for all of 6 observations',)
    """
    estimator = _with_predict(clone(oracle))
    _set_random_states(estimator, key)
    notes: list[str] = []
    if _is_varied(x):
        _limit_components(estimator, _as_floats(x), notes)
    return _fitted(estimator, oracle, x, notes, last, as_scores=as_scores)


def fit_growing(oracle: Any, x: NDArray[Any], key: np.uint64, last: FittedOracle) -> FittedOracle:
    """Fit an incremental oracle, which will learn more, and not a clone of it.

    Parameters
    ----------
    oracle : IncrementalOracle
        The oracle.
    x, key, last
        As for `fit_oracle`.

    Returns
    -------
    FittedOracle
        What it has learnt. If its predictor is a `ConstantPredictor`, it has learnt nothing.
    """
    _set_random_states(oracle, key)
    return _own(_fitted(oracle, oracle, x, [], last), oracle)


def learn_more(oracle: Any, x: NDArray[Any], last: FittedOracle) -> FittedOracle:
    """Let an incremental oracle that was fitted learn from more observations.

    Parameters
    ----------
    oracle : IncrementalOracle
        The oracle.
    x : ndarray of shape (n, ...)
        Observations that it has not seen.
    last : FittedOracle
        What it has learnt so far. If it fails now, this is returned with a note.

    Returns
    -------
    FittedOracle
        What it has learnt.
    """
    if len(x) == 0:
        return replace(last, notes=())
    return _own(_fitted(oracle, oracle, x, [], last, go_on=True), oracle)


def _own(fitted: FittedOracle, oracle: Any) -> FittedOracle:
    """Return a fitted oracle that does not change when the oracle learns more."""
    return replace(fitted, predictor=deepcopy(oracle)) if fitted.predictor is oracle else fitted


def _is_varied(x: NDArray[Any]) -> bool:
    return len(x) > 0 and not (x == x[0]).all()


def _fitted(
    estimator: Any,
    oracle: Any,
    x: NDArray[Any],
    notes: list[str],
    last: FittedOracle | None,
    *,
    as_scores: bool = True,
    go_on: bool = False,
) -> FittedOracle:
    """Fit an estimator to observations, or let it go on from what it has learnt.

    oracle: what it was made from, for error messages.
    """
    if len(x) == 0:
        return FittedOracle(ConstantPredictor(), 1, ("no observations to learn from",))
    x = _as_floats(x)
    check_finite(x)
    if not (go_on or _is_varied(x)):
        note = f"a single label: all of {len(x)} observations are the same"
        return FittedOracle(ConstantPredictor(), 1, (note,))
    with one_thread(), catching_warnings() as caught:
        try:
            if go_on:
                estimator.partial_fit(x)
            else:
                estimator.fit(x)
            labels, n_stated = _labels(estimator, x, go_on=go_on)
        except MemoryError:
            raise
        except Exception as error:
            if last is not None and not isinstance(last.predictor, ConstantPredictor):
                return replace(last, notes=(f"{KEPT} ({_one_line(error)})",))
            if isinstance(error, OracleError):
                raise
            is_misconfigured = type(error).__name__ == "InvalidParameterError"  # scikit-learn's
            if len(x) >= FEW or is_misconfigured or not isinstance(error, ValueError):
                why = _one_line(error).rstrip(".")
                raise OracleError(
                    f"{oracle!r} cannot learn from {len(x)} observations: {why}. Try other "
                    "parameters, more data or another oracle"
                ) from error
            notes.append(f"a single label: {len(x)} observations are too few ({error})")
            return FittedOracle(ConstantPredictor(), 1, tuple(notes))
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            notes.append(str(warning.message).split("\n")[0])
    used = np.unique(labels)
    if len(used) <= 1:
        n = len(labels) if go_on else len(x)
        notes.append(f"a single label for all of {n} observations")
    predictor = to_scores(estimator) if as_scores else estimator
    if predictor is not estimator:
        return FittedOracle(predictor, n_stated or len(predictor.b), tuple(notes))
    n_labels, names = _numbering(estimator, used, n_stated)
    return FittedOracle(predictor, n_labels, tuple(notes), names)


def check_labels(labels: Any, n: int, oracle: Any, method: str = "predict") -> NDArray[np.int64]:
    """Return the labels that an oracle gave to n observations as an array of integers.

    Parameters
    ----------
    labels : array-like
        What it returned.
    n : int
        Number of observations.
    oracle : estimator
        The oracle, for the error message.
    method : str, default="predict"
        Where the labels come from, likewise.

    Returns
    -------
    ndarray of shape (n,)
        The labels.

    Raises
    ------
    OracleError
        If they are not one whole number for each observation.
    """
    given = np.asarray(labels)
    kind = given.dtype.kind
    if kind in "uf":
        is_whole = bool(np.all((np.abs(given) < 2.0**63) & (np.rint(given) == given)))
    else:
        is_whole = kind in "bi"
    if is_whole and given.shape == (n,):
        return given.astype(np.int64)
    shown = repr(given.ravel()[:3].tolist())[1:-1]
    raise OracleError(
        f"{type(_last_step(oracle)).__name__}: {method} must give each of {n} observations a whole "
        f"number as its label (-1 for noise), an array of shape ({n},); got shape {given.shape}, "
        f"dtype {given.dtype}: {shown}, ..."
    )


def renumber(labels: NDArray[np.int64], number: Callable[[int], int]) -> NDArray[np.int64]:
    """Replace each label by its number.

    Parameters
    ----------
    labels : ndarray of shape (n,)
        Labels.
    number : callable
        Takes a label and returns its number. It is called once for each label, in ascending order.

    Returns
    -------
    ndarray of shape (n,)
        Numbers.
    """
    names, at = np.unique(labels, return_inverse=True)
    return np.array([number(name) for name in names.tolist()], np.int64)[at]


def one_thread() -> Any:
    """Limit numerical libraries to one thread, so that results repeat and threads do not wait.

    Returns
    -------
    context manager
        Restores the numbers of threads at the end.
    """
    return _thread_pools().limit(limits=1)


FEW = 100  # with fewer observations, an oracle that fails to fit is replaced by a single label
KEPT = "the fit failed and the last decoder was kept"  # how the note of a failed refit begins


@cache
def _thread_pools() -> ThreadpoolController:
    """Find the thread pools, once, since that takes longer than many fits."""
    return ThreadpoolController()


def _as_floats(x: NDArray[Any]) -> NDArray[Any]:
    """Return rows of floating-point numbers; estimators treat other types differently."""
    x = np.ascontiguousarray(x.reshape(len(x), -1))
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)


def _has_method(estimator: Any, method: str) -> bool:
    try:
        return callable(getattr(estimator, method))
    except AttributeError:  # a Pipeline only has the methods of its last step
        return False


def _last_step(estimator: Any) -> Any:
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def _with_predict(oracle: Any) -> Any:
    """Return an oracle that has `predict`: itself, or with a classifier after its last step."""
    if _has_method(oracle, "predict"):
        return oracle
    if not isinstance(oracle, Pipeline):
        return InductiveClusterer(oracle)
    *before, (name, last) = oracle.steps
    return Pipeline([*before, (name, InductiveClusterer(last))])


def _set_random_states(estimator: Any, key: np.uint64) -> None:
    names = sorted(
        name
        for name in estimator.get_params(deep=True)
        if name == "random_state" or name.endswith("__random_state")
    )
    states = {name: int(rng.integer(key, i, 2**31 - 1)) for i, name in enumerate(names)}
    estimator.set_params(**states)


def _n_clusters(estimator: Any) -> int:
    """Return the number of labels that an estimator was asked for; 0 if it decides itself."""
    last = _last_step(estimator)
    last = getattr(last, "clusterer", last)
    for name in ("n_clusters", "n_components"):
        n = getattr(last, name, None)
        if isinstance(n, int | np.integer):
            return int(n)
    return 0


def _set_n_clusters(estimator: Any, n: int) -> None:
    last = _last_step(estimator)
    last = getattr(last, "clusterer", last)
    name = "n_clusters" if hasattr(last, "n_clusters") else "n_components"
    last.set_params(**{name: max(n, 1)})


def _limit_components(estimator: Any, x: NDArray[Any], notes: list[str]) -> None:
    """Ask for no more clusters than there are different points, nor dimensions than points."""
    asked = _n_clusters(estimator)
    points = len(np.unique(x, axis=0)) if len(x) < 100 * asked else len(x)
    if asked and points < asked:
        notes.append(f"{points} different points for {asked} clusters: fitted {points}")
        _set_n_clusters(estimator, points)
    for _, step in getattr(estimator, "steps", [])[:-1]:
        wanted, most = getattr(step, "n_components", None), min(x.shape)
        if isinstance(wanted, int | np.integer) and wanted > most:
            of = "points" if most == len(x) else "dimensions"
            notes.append(f"{most} {of} for {wanted} components: fitted {most}")
            step.set_params(n_components=most)


def _labels(estimator: Any, x: NDArray[Any], *, go_on: bool) -> tuple[NDArray[np.int64], int]:
    """Return the labels of x, and the number of labels that the estimator states, or 0.

    go_on: whether it has seen other observations before; then return the labels of all.
    """
    last = _last_step(estimator)
    if go_on:
        labels = check_labels(last.labels_, len(last.labels_), last, "labels_")
        return labels, int(getattr(last, "n_labels_", labels.max() + 1))
    if not (hasattr(last, "n_labels_") and hasattr(last, "labels_")):
        return check_labels(estimator.predict(x), len(x), estimator), _n_clusters(estimator)
    labels = last.labels_
    labels = check_labels(labels, len(x), last, "labels_")
    if isinstance(last, InductiveClusterer):
        labels = labels[labels != -1]  # it never predicts noise
    return labels, int(last.n_labels_)


def _numbering(
    estimator: Any, used: NDArray[np.int64], n_stated: int
) -> tuple[int, tuple[int, ...]]:
    """Return the number of labels, and the estimator's names for them if they leave gaps.

    An estimator may later give labels that it did not use so far. If it does not state how many
    there are, or uses -1 for noise, there is one more label for these.
    """
    last = _last_step(estimator)
    found = used[used != -1]
    largest, is_negative = int(found.max(initial=-1)), bool(np.any(found < 0))
    has_gaps = is_negative or largest >= max(len(found), n_stated)
    states_all = hasattr(last, "n_labels_") or (
        n_stated > 0 and type(last).__module__.startswith("sklearn.")
    )
    others = 0 if states_all and len(found) == len(used) else 1
    n_labels = max(len(found) if has_gaps else largest + 1, n_stated) + others
    return n_labels, tuple(found.tolist()) if has_gaps else ()


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
