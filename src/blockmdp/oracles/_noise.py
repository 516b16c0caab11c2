"""The shape of noise, learnt from deviations: a covariance, shrunk by its evidence.

Deviations have the distribution N(0, Sigma). The prior of Sigma is an inverse Wishart distribution
around psi I, whose weight is that of `weight` observations. The scale psi and the weight maximise
the evidence. Round noise gets a large weight, so its estimate is round too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import multigammaln

__all__ = ["MIN_DEGREES", "whitening"]

Array = NDArray[np.float64]

WEIGHTS = (*np.geomspace(1.0, 1e4, 17), 1e6)
SCALES = 25
MIN_DEGREES = 3  # observations for each coordinate, from which on the shape of the noise is learnt
ROUND = 1.5  # ratio of the variances of two directions up to which noise counts as round
NULL = 1e-9  # share of the largest variance below which there is no noise in a direction


def whitening(scatter: Array, degrees: float) -> Array | None:
    """Compute the matrix T for which the noise of x T is round, None if that of x already is.

    Parameters
    ----------
    scatter : ndarray of shape (d, d)
        Sum of the outer products of deviations from their mean.
    degrees : float
        Degrees of freedom of that sum.

    Returns
    -------
    ndarray of shape (d, d) or None
        Symmetric, with determinant 1 on the directions that the noise fills.
    """
    values, vectors = np.linalg.eigh(scatter)
    filled = values > NULL * values[-1]
    s, d = values[filled], np.count_nonzero(filled)
    if d < 2:
        return None
    best, variances = -np.inf, None
    for weight in WEIGHTS:
        nu = weight + d + 1
        constant = multigammaln((nu + degrees) / 2, d) - multigammaln(nu / 2, d)
        psi = weight * np.geomspace(s[0] / degrees, s[-1] / degrees, SCALES)[:, None]
        logs = np.log(psi + s).sum(axis=1)
        evidence = constant + 0.5 * nu * d * np.log(psi[:, 0]) - 0.5 * (nu + degrees) * logs
        i = evidence.argmax()
        if evidence[i] > best:
            best, variances = evidence[i], None
            if weight < WEIGHTS[-1]:
                variances = psi[i] + s
    if variances is None or variances.max() < ROUND * variances.min():
        return None
    scale = np.ones(len(values))
    scale[filled] = np.exp(0.5 * (np.log(variances).mean() - np.log(variances)))
    # rounded, so that it is the same on every machine
    T = ((vectors * scale) @ vectors.T).astype(np.float32)
    return np.asarray(T, np.float64)
