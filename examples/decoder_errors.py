"""
Find where a decoder errs
=========================

If an agent stays below the optimum, its decoder may merge latent states. On a known problem you can
measure where.
"""

# %%
# An agent that does badly
# ------------------------
# The noise of this lock is strong, and the oracle gets few trajectories.
import matplotlib.pyplot as plt
import numpy as np

import blockmdp as bm

m = bm.lock_gaussian(horizon=8, switch=0.2, sigma=0.25, seed=0)
agent = bm.URL(bm.oracles.pca_kmeans(3), batch=30, iterations=1)
agent.fit(m, episodes=5_000, seed=1)
print(f"value {agent.value():.2f} of {m.optimal_value()}")

# %%
# Which level
# -----------
# ``accuracy`` is the fraction of observations that get the right label, for each level. It counts
# only states that can be reached.
print(agent.accuracy().round(2))

# %%
# Which states
# ------------
# ``confusion`` gives, for each level and latent state, the fraction of observations with each
# label. The pictures show the second and the last level. A good decoder has one dark field in each
# row, each in another column. This one gives two labels to state 2, the dead state, and one of them
# also to state 1.
C = agent.confusion()
fig, axes = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
for ax, level in zip(axes, (1, m.horizon)):
    ax.imshow(C[level], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for (state, label), share in np.ndenumerate(C[level]):
        colour = "white" if share > 0.5 else "black"
        ax.text(label, state, f"{share:.2f}", ha="center", va="center", color=colour)
    ax.set(title=f"level {level}", xlabel="label", ylabel="latent state")
    ax.set(xticks=range(C.shape[2]), yticks=range(C.shape[1]))

# %%
# Which observations
# ------------------
# Draw fresh observations of each state, and decode them. The first three coordinates are the
# one-hot code of the state plus noise. The picture shows two of them, for observations with the
# usual label of their state (dots) and with another one (crosses). The errors are everywhere in the
# clouds: the labels depend on other coordinates, which are only noise.
level = m.horizon
fig, axes = plt.subplots(1, 3, figsize=(8, 2.8), layout="constrained", sharex=True, sharey=True)
for state, ax in enumerate(axes):
    x = m.sample(level, state, n=400)
    labels = agent.decode(x, level)
    usual = np.bincount(labels).argmax()
    wrong = labels != usual
    ax.plot(*x[~wrong, 1:3].T, ".", ms=4)
    ax.plot(*x[wrong, 1:3].T, "x", ms=4)
    ax.set(title=f"state {state}: {wrong.mean():.0%} wrong", xlabel="coordinate 1")
axes[0].set_ylabel("coordinate 2")

# %%
# A remedy
# --------
# More data do not help here, but another oracle does. ``pca_kmeans`` standardises all coordinates,
# so that those with only noise become as large as those that carry the state. ``AutoOracle`` does
# not.
batches = (10, 30, 100)
oracles = {"PCA, k-means": bm.oracles.pca_kmeans(3), "AutoOracle": bm.oracles.AutoOracle()}
fig, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
for name, oracle in oracles.items():
    worst = []
    for batch in batches:
        agent = bm.URL(oracle, batch=batch, iterations=1).fit(m, episodes=1, seed=1)
        worst.append(agent.accuracy().min())
    ax.plot(batches, worst, "o-", label=name)
ax.set(xscale="log", xlabel="trajectories for the oracle", ylabel="worst accuracy", ylim=(0, 1.05))
ax.legend(frameon=False)
plt.show()
