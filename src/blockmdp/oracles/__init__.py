"""Unsupervised learning oracles: any scikit-learn clusterer or mixture; here the paper's three,
one that chooses by the data, and one that learns online.
"""

from __future__ import annotations

from typing import Any

from sklearn.cluster import DBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC

from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.oracles.fitting import (
    FittedOracle,
    IncrementalOracle,
    InductiveClusterer,
    check_is_oracle,
    fit_oracle,
)
from blockmdp.oracles.mixtures import AutoOracle, BernoulliMixture, SphericalMixture

__all__ = [
    "AutoOracle",
    "BernoulliMixture",
    "DirichletMixture",
    "FittedOracle",
    "IncrementalOracle",
    "InductiveClusterer",
    "SphericalMixture",
    "check_is_oracle",
    "fit_oracle",
    "gmm",
    "images",
    "pca_dbscan_svm",
    "pca_kmeans",
]


def pca_kmeans(n_states: int = 3, n_components: int = 3, n_init: int = 10) -> Pipeline:
    """Standardise, project on the principal components, cluster by k-means (the paper's first).

    `n_init` restarts matter: with scikit-learn's present default of one, most decoders of the locks
    at H = 20 are bad.
    """
    return make_pipeline(StandardScaler(), PCA(n_components), KMeans(n_states, n_init=n_init))


def pca_dbscan_svm(
    eps: float = 0.5, min_samples: int = 5, n_components: int = 3, classifier: Any = None
) -> Pipeline:
    """Standardise, project, cluster by density, and let a support vector machine label new points
    (the paper's second).
    """
    clusterer = DBSCAN(eps=eps, min_samples=min_samples)
    return make_pipeline(
        StandardScaler(), PCA(n_components), InductiveClusterer(clusterer, classifier or SVC())
    )


def gmm(n_states: int = 3, covariance_type: str = "full", n_init: int = 10) -> GaussianMixture:
    """A mixture of Gaussians on the observations as they are (the paper's third).

    They are not standardised: that would blow the noise up to the size of the signal.
    """
    return GaussianMixture(n_states, covariance_type=covariance_type, n_init=n_init)


def images(n_components: int = 20, caution: float = -2.0) -> Pipeline:
    """For images: bring all to one brightness, project on the principal components, and let
    `AutoOracle` choose the number of labels, rather too many than too few.
    """
    return make_pipeline(Normalizer(), PCA(n_components), AutoOracle(caution=caution))
