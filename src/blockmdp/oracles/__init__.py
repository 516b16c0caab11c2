"""Unsupervised-learning oracles, which learn to decode observations.

Any scikit-learn clusterer or mixture is an oracle. Here are the three of the paper's experiments,
the others that it names, one that chooses among them by the data, and one that learns online.
"""

from __future__ import annotations

from typing import Any, Literal

from sklearn.cluster import DBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.svm import SVC

from blockmdp.oracles.auto import AutoOracle
from blockmdp.oracles.controlled import ControlledMixture
from blockmdp.oracles.counts import CategoricalMixture, PoissonMixture
from blockmdp.oracles.dirichlet import DirichletMixture
from blockmdp.oracles.fitting import (
    FittedOracle,
    IncrementalOracle,
    InductiveClusterer,
    check_is_oracle,
    fit_oracle,
)
from blockmdp.oracles.independence import IndependenceMixture
from blockmdp.oracles.mixtures import BernoulliMixture, GaussianMixture, SphericalMixture
from blockmdp.oracles.screens import ScreenOracle
from blockmdp.oracles.simhash import AutoencoderSimHash
from blockmdp.oracles.subspaces import SubspaceClustering

__all__ = [
    "AutoOracle",
    "AutoencoderSimHash",
    "BernoulliMixture",
    "CategoricalMixture",
    "ControlledMixture",
    "DirichletMixture",
    "FittedOracle",
    "GaussianMixture",
    "IncrementalOracle",
    "IndependenceMixture",
    "InductiveClusterer",
    "PoissonMixture",
    "ScreenOracle",
    "SphericalMixture",
    "SubspaceClustering",
    "check_is_oracle",
    "fit_oracle",
    "gmm",
    "images",
    "pca_dbscan_svm",
    "pca_kmeans",
]


def pca_kmeans(n_states: int = 3, n_components: int = 3, n_init: int = 10) -> Pipeline:
    """Return a pipeline that standardises, projects and clusters by k-means.

    It is the first oracle of the paper.

    Parameters
    ----------
    n_states : int, default=3
        Number of clusters.
    n_components : int, default=3
        Number of principal components.
    n_init : int, default=10
        Number of starts of k-means. With a single one, most decoders of the locks at horizon 20
        are bad.

    Returns
    -------
    Pipeline
        StandardScaler, PCA and KMeans.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5)
    >>> agent = bm.URL(bm.oracles.pca_kmeans(3), batch=100).fit(m, episodes=1000)
    >>> bool(agent.accuracy().min() > 0.95)
    True
    """
    return make_pipeline(StandardScaler(), PCA(n_components), KMeans(n_states, n_init=n_init))


def pca_dbscan_svm(
    eps: float = 0.5, min_samples: int = 5, n_components: int = 3, classifier: Any = None
) -> Pipeline:
    """Return a pipeline that standardises, projects and clusters by density.

    It is the second oracle of the paper. New observations are labelled by a classifier.

    Parameters
    ----------
    eps : float, default=0.5
        Largest distance between neighbours.
    min_samples : int, default=5
        Neighbours that make a cluster.
    n_components : int, default=3
        Number of principal components.
    classifier : estimator, default=SVC()
        Labels new observations.

    Returns
    -------
    Pipeline
        StandardScaler, PCA and an InductiveClusterer with DBSCAN.

    See Also
    --------
    InductiveClusterer : Its last step.

    Examples
    --------
    >>> from blockmdp.oracles import pca_dbscan_svm
    >>> [type(step).__name__ for _, step in pca_dbscan_svm(eps=0.3).steps]
    ['StandardScaler', 'PCA', 'InductiveClusterer']
    """
    clusterer = DBSCAN(eps=eps, min_samples=min_samples)
    return make_pipeline(
        StandardScaler(), PCA(n_components), InductiveClusterer(clusterer, classifier or SVC())
    )


def gmm(n_states: int = 3, covariance_type: str = "full", n_init: int = 10) -> GaussianMixture:
    """Return a mixture of Gaussians for the observations as they are.

    It is the third oracle of the paper. Standardising would raise the noise to the size of the
    signal.

    Parameters
    ----------
    n_states : int, default=3
        Number of components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        See `GaussianMixture`.
    n_init : int, default=10
        Number of starts.

    Returns
    -------
    GaussianMixture
        The mixture, not fitted.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_gaussian(horizon=5, sigma=0.1)
    >>> agent = bm.URL(bm.oracles.gmm(3), batch=100).fit(m, episodes=1000)
    >>> bool(agent.accuracy().min() > 0.95)
    True
    """
    return GaussianMixture(n_states, covariance_type=covariance_type, n_init=n_init)


def images(
    n_components: int = 20,
    caution: float = -2.0,
    *,
    kind: Literal["varied", "rendered"] = "varied",
    channels: int = 3,
) -> Pipeline | ScreenOracle:
    """Return an oracle for images, which chooses the number of labels.

    Parameters
    ----------
    n_components : int, default=20
        Number of principal components, only for varied images.
    caution : float, default=-2.0
        See `AutoOracle`, only for varied images.
    kind : {"varied", "rendered"}, default="varied"
        Kind of images. "varied" is for photographs and handwriting, where images of a state are
        alike but never equal: they are brought to the same brightness, projected on their principal
        components and clustered, with too many labels rather than too few. "rendered" is for what a
        program draws, where images of a state are equal up to tints and distractors, with
        colours from 0 to 255; it learns online.
    channels : int, default=3
        Numbers of each pixel, only for rendered images: 3 for colours, 1 for grey values.

    Returns
    -------
    Pipeline or ScreenOracle
        Normalizer, PCA and AutoOracle; or a ScreenOracle.

    See Also
    --------
    AutoOracle : The last step for varied images.
    ScreenOracle : The oracle for rendered images.

    Examples
    --------
    >>> from blockmdp.oracles import images
    >>> [type(step).__name__ for _, step in images().steps]
    ['Normalizer', 'PCA', 'AutoOracle']
    >>> images(kind="rendered")
    ScreenOracle()
    """
    if kind not in ("varied", "rendered"):
        raise ValueError(f"kind must be 'varied' or 'rendered', got {kind!r}")
    for name, value, default, only in (
        ("n_components", n_components, 20, "varied"),
        ("caution", caution, -2.0, "varied"),
        ("channels", channels, 3, "rendered"),
    ):
        if kind != only and value != default:
            raise ValueError(f"{name} is only for kind={only!r}, got {name}={value!r}")
    if kind == "rendered":
        return ScreenOracle(channels)
    return make_pipeline(Normalizer(), PCA(n_components), AutoOracle(caution=caution))
