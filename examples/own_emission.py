"""
Write your own emission
=======================

An emission turns latent states into observations. It is one class with one method. Here, each
latent state is seen as a point near a circle of its own radius.
"""

# %%
# The class
# ---------
# ``sample`` gets one key for each observation. All noise comes from these keys, through the
# functions of :mod:`blockmdp.rng`, so that the same seed always gives the same observations.
import matplotlib.pyplot as plt
import numpy as np

import blockmdp as bm


class Rings(bm.Emission):
    """State s is seen as a point near the circle of radius s + 1."""

    def __init__(self, n_states):
        self.n_states, self.dim = n_states, 2

    def sample(self, level, states, keys):
        u = bm.rng.uniforms(keys, 2)
        angle, radius = 2 * np.pi * u[:, 0], states + 1 + 0.2 * (u[:, 1] - 0.5)
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


# %%
# A lock with these observations
# ------------------------------
# Any problem can use the new emission. This one takes the transitions and rewards of a lock.
lock = bm.lock_bernoulli(horizon=5, switch=0.2, seed=0)
m = bm.BlockMDP(
    lock.initial, lock.transitions, lock.rewards, lock.reward_probability, emission=Rings(3)
)
print(m)

# %%
# The rings are easy to see, but hard for k-means: it cuts the plane into three sectors. The
# lock cannot be learnt with such labels. :ref:`sphx_glr_auto_examples_own_oracle.py` shows an
# oracle that can do it.
agent = bm.URL(bm.oracles.pca_kmeans(3, n_components=2), batch=200)
agent.fit(m, episodes=5_000, seed=0)
print(f"accuracy {agent.accuracy().min():.2f}, value {agent.value():.2f} of {m.optimal_value()}")

x = np.concatenate([m.sample(level=1, state=s, n=300) for s in range(3)])
fig, axes = plt.subplots(1, 2, figsize=(7, 3.4), layout="constrained", sharey=True)
axes[0].scatter(*x.T, s=6, c=np.repeat(range(3), 300), cmap="viridis")
axes[0].set(title="Latent states", aspect="equal")
axes[1].scatter(*x.T, s=6, c=agent.decode(x, level=1), cmap="viridis")
axes[1].set(title="Labels by k-means", aspect="equal")
plt.show()
