"""
Write your own oracle
=====================

An oracle is a scikit-learn estimator that labels observations without supervision. Here, each
latent state is seen as a ring, which k-means cannot separate, so we write an oracle that can.
"""

# %%
# The observations
# ----------------
# This emission is explained in :ref:`sphx_glr_auto_examples_own_emission.py`.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans

import blockmdp as bm


class Rings(bm.Emission):
    """State s is seen as a point near the circle of radius s + 1."""

    def __init__(self, n_states):
        self.n_states, self.dim = n_states, 2

    def sample(self, level, states, keys):
        u = bm.rng.uniforms(keys, 2)
        angle, radius = 2 * np.pi * u[:, 0], states + 1 + 0.2 * (u[:, 1] - 0.5)
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


lock = bm.lock_bernoulli(horizon=5, switch=0.2, seed=0)
m = bm.BlockMDP(
    lock.initial, lock.transitions, lock.rewards, lock.reward_probability, emission=Rings(3)
)


# %%
# The oracle
# ----------
# It needs ``fit`` and ``predict``. An estimator that has only ``fit_predict`` works too: a
# classifier then labels new observations. If there is a parameter ``random_state``, it is set from
# the seed of the run.
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


# %%
# Check it
# --------
# ``check_oracle`` measures how often an oracle labels a new observation wrongly, against the number
# of observations that it has learnt from.
sizes = (10, 30, 100, 300)
own = bm.testing.check_oracle(Radii(3), Rings(3), sizes=sizes, seeds=10)
kmeans = bm.testing.check_oracle(KMeans(3, n_init=10), Rings(3), sizes=sizes, seeds=10)
print("errors of Radii: ", own.g)
print("errors of KMeans:", kmeans.g)

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.plot(sizes, own.g, "o-", label="Radii")
ax.plot(sizes, kmeans.g, "s--", label="KMeans")
ax.set(
    xscale="log", xlabel="observations to learn from", ylabel="labelled wrongly", ylim=(-0.03, 1)
)
ax.legend(frameon=False)

# %%
# Use it
# ------
agent = bm.URL(Radii(3), batch=200).fit(m, episodes=5_000, seed=0)
print(f"accuracy {agent.accuracy().min():.3f}, value {agent.value():.3f} of {m.optimal_value()}")
figure = agent.plot()
plt.show()
