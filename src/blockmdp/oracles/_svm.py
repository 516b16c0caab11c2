"""Compiled predictions of a support vector machine with Gaussian kernels.

LIBSVM, which scikit-learn's SVC calls, asks for memory for each kernel that it evaluates. Here
sums have the same order, so the labels are the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC

from blockmdp.jit import jit

__all__ = ["svm_labels"]


def svm_labels(classifier: Any, X: NDArray[Any]) -> NDArray[Any] | None:
    """Return what `classifier.predict(X)` returns; None if it is no SVC with Gaussian kernels.

    Parameters
    ----------
    classifier : estimator
        Fitted classifier.
    X : ndarray of shape (n, d)
        Dense, finite rows.

    Returns
    -------
    ndarray of shape (n,) or None
        Labels.
    """
    gamma = getattr(classifier, "_gamma", None)
    if type(classifier) is not SVC or classifier.kernel != "rbf" or classifier.break_ties:
        return None
    if gamma is None or classifier._sparse:
        return None
    coefficients, intercepts = classifier.dual_coef_, classifier.intercept_
    if len(classifier.classes_) == 2:  # scikit-learn has turned their signs
        coefficients, intercepts = -coefficients, -intercepts
    ends = np.append(0, np.cumsum(classifier.n_support_)).astype(np.int64)
    S = np.ascontiguousarray(classifier.support_vectors_, np.float64)
    C = np.ascontiguousarray(coefficients, np.float64)
    rows = np.ascontiguousarray(X, np.float64)
    winners = votes(rows, S, C, np.asarray(intercepts, np.float64), ends, float(gamma))
    return np.asarray(classifier.classes_[winners])


@jit
def votes(X, S, C, b, ends, gamma):
    """Return the class with most votes, the first of several; each pair of classes has a vote.

    X: (n, d). S: (m, d) support vectors, class by class. C: (K - 1, m) their coefficients, against
    each other class. b: (K (K - 1) / 2,). ends: (K + 1,), where the vectors of each class begin.
    Returns (n,) int64.
    """
    m, d = S.shape
    K = len(ends) - 1
    winners = np.empty(len(X), np.int64)
    kernel = np.empty(m)
    won = np.empty(K, np.int64)
    for i in range(len(X)):
        for s in range(m):
            square = 0.0
            for j in range(d):
                t = X[i, j] - S[s, j]
                square += t * t
            kernel[s] = math.exp(-gamma * square)
        won[:] = 0
        pair = 0
        for k in range(K):
            for other in range(k + 1, K):
                score = 0.0
                for s in range(ends[k], ends[k + 1]):
                    score += C[other - 1, s] * kernel[s]
                for s in range(ends[other], ends[other + 1]):
                    score += C[k, s] * kernel[s]
                won[k if score + b[pair] > 0.0 else other] += 1
                pair += 1
        winners[i] = np.argmax(won)
    return winners
