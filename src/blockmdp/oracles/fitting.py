"""Fitting an unsupervised learning oracle (Feng et al. 2020, Definition 1).

An oracle is any scikit-learn estimator. One with `predict` is used as it stands. One with
`fit_predict` alone (DBSCAN, HDBSCAN, OPTICS, agglomerative, spectral) is completed by a classifier
fitted to the labels it gave, as the paper completes DBSCAN by a support vector machine.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC
from threadpoolctl import ThreadpoolController

from blockmdp import rng
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.oracles.mixtures import AutoOracle
from blockmdp.oracles.scores import Predictor, to_scores

__all__ = [
    "ConstantPredictor",
    "FittedOracle",
    "IncrementalOracle",
    "InductiveClusterer",
    "check_is_oracle",
    "fit_oracle",
    "one_thread",
]


@dataclass(frozen=True)
class FittedOracle:
    """A fitted oracle: `predictor.predict(x)` gives labels 0, ..., n_labels - 1.

    Attributes
    ----------
    notes : what was out of the ordinary in the fitting, a sentence each.
    """

    predictor: Predictor
    n_labels: int
    notes: tuple[str, ...] = ()

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        if len(x) == 0:
            return np.zeros(0, np.int32)
        labels = np.asarray(self.predictor.predict(_as_numbers(x)))
        return np.asarray(np.clip(labels, 0, self.n_labels - 1), np.int32)


@dataclass(frozen=True)
class ConstantPredictor:
    """One label for everything: what there is to say before anything was learnt."""

    def predict(self, x: NDArray[Any]) -> NDArray[np.int32]:
        return np.zeros(len(x), np.int32)


@runtime_checkable
class IncrementalOracle(Protocol):
    """An oracle that learns from observations as they arrive, as `OnlineURL` needs it.

    Besides these methods it has an attribute `labels_`, the labels of all observations so far in
    the order in which they arrived. It may have `n_labels_`, one more than its largest label.
    """

    def partial_fit(self, X: Any) -> Any:
        """Learn from more observations X (n, d)."""

    def predict(self, X: Any) -> Any:
        """Label observations X (n, d) without learning from them."""

    def changed_labels(self) -> Any:
        """Return which earlier observations got another label in the last `partial_fit`: their
        indices in `labels_`.
        """


class InductiveClusterer(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """A clusterer that cannot label new points, completed by a classifier that can.

    Parameters
    ----------
    clusterer : has `fit_predict`; points that it labels -1 are noise, which the classifier is not
        shown.
    classifier : has `fit` and `predict`; a support vector machine by default.

    Attributes
    ----------
    labels_ : the clusterer's labels of the data, (n,).
    classes_ : the labels that `predict` can give.
    """

    def __init__(self, clusterer: Any, classifier: Any = None) -> None:
        self.clusterer = clusterer
        self.classifier = classifier

    def fit(self, X: NDArray[Any], y: None = None) -> InductiveClusterer:
        self.clusterer_ = clone(self.clusterer)
        self.labels_ = np.asarray(self.clusterer_.fit_predict(X))
        kept = self.labels_ >= 0
        self.classes_ = np.unique(self.labels_[kept])
        self.classifier_ = None
        if len(self.classes_) > 1:
            self.classifier_ = clone(SVC() if self.classifier is None else self.classifier)
            self.classifier_.fit(np.asarray(X)[kept], self.labels_[kept])
        self.n_features_in_ = np.asarray(X).shape[1]
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        if self.classifier_ is None:
            return np.zeros(len(X), np.int32)
        return np.asarray(self.classifier_.predict(X))


def check_is_oracle(oracle: Any) -> None:
    """Refuse what is no unsupervised scikit-learn estimator, before any work is done."""
    if not (hasattr(oracle, "fit") and hasattr(oracle, "get_params")) or isinstance(oracle, type):
        raise TypeError(
            "oracle must be a scikit-learn clusterer or mixture (an instance, such as KMeans(3)), "
            f"got {oracle!r}"
        )
    if is_classifier(_last(oracle)) or is_regressor(_last(oracle)):
        raise TypeError(f"oracle {oracle!r} is supervised: it would need labels to learn from")
    if not (_can(oracle, "predict") or _can(oracle, "fit_predict")):
        raise TypeError(f"oracle {oracle!r} has neither predict nor fit_predict")


def fit_oracle(oracle: Any, x: NDArray[Any], key: np.uint64, *, fold: bool = True) -> FittedOracle:
    """Fit a copy of an oracle to observations, every `random_state` inside it drawn from the key.

    One thread, so that the same data and key give the same labels. Too few points for the clusters
    asked for, a single class, or a fit that does not converge are noted, not raised.

    Parameters
    ----------
    oracle : a scikit-learn estimator.
    x : (n, ...) observations; flattened to (n, d).
    key : np.uint64
    fold : turn the fitted estimator into matrices where it is no more than that.
    """
    if len(x) == 0:
        return FittedOracle(ConstantPredictor(), 1, ("no observations to learn from",))
    x = _as_numbers(x)
    if not np.isfinite(x).all():
        raise ValueError("observations must be finite numbers: some are NaN or infinite")
    if (x == x[0]).all():
        return FittedOracle(
            ConstantPredictor(), 1, (f"a single label: all of {len(x)} observations are the same",)
        )
    notes: list[str] = []
    estimator = _seeded(_completed(clone(oracle)), key)
    _cut_to(estimator, x, notes)
    with one_thread(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            estimator.fit(x)
            n_labels, found = _count_labels(estimator, x)
        except ValueError as error:
            wrongly_set = type(error).__name__ == "InvalidParameterError"  # scikit-learn's own
            if len(x) >= _FEW or wrongly_set:
                raise ValueError(
                    f"{oracle!r} cannot learn from {len(x)} observations: {error}"
                ) from error
            notes.append(f"a single label: {len(x)} observations are too few ({error})")
            return FittedOracle(ConstantPredictor(), 1, tuple(notes))
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            notes.append(str(warning.message).split("\n")[0])
    if found == 1:
        notes.append(f"a single label for all of {len(x)} observations")
    bits = bool(np.isin(x, (0, 1)).all())
    return FittedOracle(to_scores(estimator, bits) if fold else estimator, n_labels, tuple(notes))


def one_thread() -> Any:
    """A context in which numerical libraries keep to one thread, so that results repeat."""
    return _threads().limit(limits=1)


_FEW = 100  # so few observations may be too few for an estimator: then they get one label


@cache
def _threads() -> ThreadpoolController:
    """Found once: looking for the thread pools takes longer than many a fit."""
    return ThreadpoolController()


def _as_numbers(x: NDArray[Any]) -> NDArray[Any]:
    """Rows of floating-point numbers; estimators differ in what they make of others."""
    x = np.ascontiguousarray(x.reshape(len(x), -1))
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)


def _can(estimator: Any, method: str) -> bool:
    try:
        return callable(getattr(estimator, method))
    except AttributeError:  # a Pipeline has the methods of its last step alone
        return False


def _last(estimator: Any) -> Any:
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return estimator


def _completed(oracle: Any) -> Any:
    """The oracle itself if it can predict; else with its last step completed by a classifier."""
    if _can(oracle, "predict"):
        return oracle
    if not isinstance(oracle, Pipeline):
        return InductiveClusterer(oracle)
    *before, (name, last) = oracle.steps
    return Pipeline([*before, (name, InductiveClusterer(last))])


def _seeded(estimator: Any, key: np.uint64) -> Any:
    names = sorted(
        name
        for name in estimator.get_params(deep=True)
        if name == "random_state" or name.endswith("__random_state")
    )
    states = {name: int(rng.integer(key, i, 2**31 - 1)) for i, name in enumerate(names)}
    return estimator.set_params(**states)


def _n_clusters(estimator: Any) -> int:
    """How many labels an estimator was asked for; 0 if it decides itself."""
    last = _last(estimator)
    last = getattr(last, "clusterer", last)
    for name in ("n_clusters", "n_components"):
        n = getattr(last, name, None)
        if isinstance(n, int | np.integer):
            return int(n)
    return 0


def _set_n_clusters(estimator: Any, n: int) -> None:
    last = _last(estimator)
    last = getattr(last, "clusterer", last)
    name = "n_clusters" if hasattr(last, "n_clusters") else "n_components"
    last.set_params(**{name: max(n, 1)})


def _cut_to(estimator: Any, x: NDArray[Any], notes: list[str]) -> None:
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


def _count_labels(estimator: Any, x: NDArray[Any]) -> tuple[int, int]:
    """Labels that `predict` can give, and labels that it gives for x."""
    last = _last(estimator)
    if isinstance(last, InductiveClusterer):
        return max(int(last.classes_.max(initial=0)) + 1, 1), max(len(last.classes_), 1)
    if isinstance(last, AutoOracle | DirichletMixture):
        return last.n_labels_, len(np.unique(last.labels_))
    given = np.unique(estimator.predict(x))
    return max(_n_clusters(estimator), int(given.max()) + 1), len(given)
