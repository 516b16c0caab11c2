"""
Write your own problem
======================

A problem is a set of arrays over latent states, and an emission that turns a latent state into an
observation. This example builds a slippery corridor and learns it.
"""

# %%
# The arrays
# ----------
# The corridor has four cells and two actions: back, and forward, which slips to the first cell with
# probability 0.1. ``P[h, s, a, t]`` is the probability that action ``a`` at level ``h`` leads from
# state ``s`` to state ``t``. Each arrival in the last cell gives a reward.
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import ortho_group
from sklearn.decomposition import PCA

import blockmdp as bm

S, H = 4, 6
P = np.zeros((H, S, 2, S))
for s in range(S):
    P[:, s, 0, max(s - 1, 0)] = 1.0
    P[:, s, 1, min(s + 1, S - 1)] += 0.9
    P[:, s, 1, 0] += 0.1
start = np.eye(S)[0]
rewards = np.eye(S)[-1] / H  # given by the state that is reached

# %%
# The observations
# ----------------
# The agent sees the one-hot code of its cell and five more zeros, with Gaussian noise, after a
# random rotation. :class:`blockmdp.BlockMDP` checks all shapes and probabilities.
rotation = ortho_group.rvs(S + 5, random_state=0)
emission = bm.Linear(bm.OneHotGaussian(S, 5, sigma=0.1), rotation)
m = bm.BlockMDP(start, P, rewards, emission=emission, name="Corridor")
print(m)
print(f"optimal value {m.optimal_value():.3f}")

# %%
# Learn
# -----
# The learner needs no more than the observations. Here the oracle is a mixture of four Gaussians.
agent = bm.URL(bm.oracles.gmm(S), batch=100).fit(m, episodes=5_000, seed=0)
print(f"optimum {m.optimal_value():.3f}, learnt {agent.value():.3f}")
print(agent.ledger_)

# %%
# On the left, observations of all four cells, projected on three principal components. On the
# right, how often the learnt policy is in each cell, level by level: it goes forward, and starts
# again when it slips.
x = np.concatenate([m.sample(level=0, state=s, n=200) for s in range(S)])
z = PCA(3).fit_transform(x)
actions = np.array([[agent.act(m.sample(h, s, n=1)[0], h) for s in range(S)] for h in range(H)])
visits = m.occupancy(np.eye(2)[actions])

fig = plt.figure(figsize=(8, 3.4), layout="constrained")
left = fig.add_subplot(1, 2, 1, projection="3d")
for s in range(S):
    left.scatter(*z[200 * s : 200 * (s + 1)].T, s=6, label=f"cell {s}")
left.set(title="Observations", xticklabels=[], yticklabels=[], zticklabels=[])
left.view_init(elev=25, azim=35)
left.legend(frameon=False, loc="center left", bbox_to_anchor=(-0.4, 0.5))
right = fig.add_subplot(1, 2, 2)
image = right.imshow(visits[:H].T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
right.set(title="Where the policy goes", xlabel="level", ylabel="cell", yticks=range(S))
fig.colorbar(image, ax=right, label="probability")
plt.show()
