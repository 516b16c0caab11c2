"""An oracle of one's own is a scikit-learn estimator: here, one that sees rings."""

import numpy as np
from own_emission import m
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans

import blockmdp as bm


class Radii(ClusterMixin, BaseEstimator):
    """K-means on the distance from the origin."""

    def __init__(self, n_clusters=3, random_state=None):
        self.n_clusters, self.random_state = n_clusters, random_state

    def fit(self, X, y=None):
        self.kmeans_ = KMeans(self.n_clusters, n_init=10, random_state=self.random_state)
        self.kmeans_.fit(np.linalg.norm(X, axis=1, keepdims=True))
        return self

    def predict(self, X):
        return self.kmeans_.predict(np.linalg.norm(X, axis=1, keepdims=True))


agent = bm.URL(Radii(3), batch=200).fit(m, episodes=5_000, seed=0)
print(f"accuracy {agent.accuracy().min():.3f}, value {agent.value():.3f} of {m.optimal_value()}")
