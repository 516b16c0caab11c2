"""
Write your own incremental oracle
=================================

:class:`blockmdp.OnlineURL` learns its decoder from the learner's own episodes, while it learns. Its
oracle gets the observations of one episode at a time. This example writes such an oracle.
"""

# %%
# The oracle
# ----------
# An incremental oracle has ``partial_fit`` and ``predict`` as in scikit-learn, the labels of all
# observations so far in ``labels_``, and ``changed_labels``, which says which of the earlier labels
# changed in the last ``partial_fit``.
#
# This one keeps a list of centres. A point that is farther than ``radius`` from all of them becomes
# a new centre; any other point moves its centre a little. A label never changes.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin

import blockmdp as bm


class Centres(ClusterMixin, BaseEstimator):
    """Clusters by the nearest centre, with new centres for distant points."""

    def __init__(self, radius=1.0):
        self.radius = radius

    def partial_fit(self, X, y=None):
        if not hasattr(self, "labels_"):
            self.centres_ = np.empty((0, X.shape[1]))
            self.counts_ = np.empty(0)
            self.labels_ = np.empty(0, np.int64)
        labels = [self._assign(x) for x in X]
        self.labels_ = np.append(self.labels_, labels)
        return self

    def fit(self, X, y=None):
        vars(self).pop("labels_", None)
        return self.partial_fit(X)

    def predict(self, X):
        return np.linalg.norm(X[:, None] - self.centres_, axis=2).argmin(axis=1)

    def changed_labels(self):
        return np.empty(0, np.int64)

    def _assign(self, x):
        distances = np.linalg.norm(self.centres_ - x, axis=1)
        if len(distances) == 0 or distances.min() > self.radius:
            self.centres_ = np.vstack([self.centres_, x])
            self.counts_ = np.append(self.counts_, 1)
            return len(self.counts_) - 1
        label = distances.argmin()
        self.counts_[label] += 1
        self.centres_[label] += (x - self.centres_[label]) / self.counts_[label]
        return label


# %%
# Use it
# ------
# On this lock, two observations of the same state are about 0.5 apart, and observations of
# different states about 1.5.
m = bm.lock_gaussian(horizon=10, switch=0.2, sigma=0.1, seed=0)
agent = bm.OnlineURL(Centres(radius=1.0)).fit(m, episodes=1_000, seed=0)
print(f"accuracy {agent.accuracy().min():.3f}, value {agent.value():.3f} of {m.optimal_value()}")
print(agent.ledger_)

# %%
# What the radius does
# --------------------
# A radius that is too small makes several labels for one state, and the learner has more to learn.
# A radius that is too large merges states, and the lock stays closed. If it merges all of them, the
# agent warns. The grey lines show the number of states and the optimum.
radii = (0.6, 0.8, 1.2, 2.0)
labels, values = [], []
for radius in radii:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the last radius is too large on purpose
        fitted = bm.OnlineURL(Centres(radius)).fit(m, episodes=300, seed=0)
    labels.append(fitted.decoder_.n_labels)
    values.append(fitted.value())

fig, (left, middle, right) = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
left.plot(np.convolve(agent.returns_, np.ones(50) / 50, mode="valid"))
left.axhline(m.optimal_value(), color="0.4", lw=0.8)
left.set(title="radius 1", xlabel="episode", ylabel="mean of 50 returns", ylim=(0, None))
middle.plot(radii, labels, "o-")
middle.axhline(m.n_states, color="0.4", lw=0.8)
middle.set(title="Labels", xlabel="radius", ylim=(0, None))
right.plot(radii, values, "o-")
right.axhline(m.optimal_value(), color="0.4", lw=0.8)
right.set(title="Value after 300 episodes", xlabel="radius", ylim=(-0.02, 0.55))
plt.show()
