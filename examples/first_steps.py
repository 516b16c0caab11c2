"""
First steps: open a lock
========================

An agent must press the right actions on a combination lock, but it sees only noisy observations.
This example builds the lock, learns it with :class:`blockmdp.URL`, and shows what was learnt.
"""

# %%
# The problem
# -----------
# ``lock_bernoulli`` is the combination lock of Feng et al. (2020). At each of ten levels, two of
# four actions keep the agent alive, and only an agent that survives to the end gets a reward.
# The full model is known, so values are exact: the best policy earns 0.5 per episode, a random one
# almost nothing.
import matplotlib.pyplot as plt
import numpy as np

import blockmdp as bm

m = bm.lock_bernoulli(horizon=10, switch=0.2, seed=0)
print(m)
print(f"optimal value {m.optimal_value()}, value of random actions {m.value(m.uniform_policy())}")

# %%
# There are three latent states, but the agent never sees them. It sees vectors of zeros and ones,
# and most of the entries are noise. These are five observations of the same latent state:
print(m.sample(level=3, state=1, n=5))

# %%
# Learn
# -----
# ``URL`` trains an oracle that turns observations into labels, and a tabular learner that treats
# the labels as states. The ledger counts all trajectories: those for the oracle, for tests of the
# oracle, and for the learner.
agent = bm.URL().fit(m, episodes=10_000, seed=0, record=True)
print(f"value {agent.value()}, worst accuracy of the decoder {agent.accuracy().min()}")
print(agent.ledger_)

# %%
# Look at the agent
# -----------------
# ``plot`` draws what happened: the returns, how well the decoder separates the latent states, and
# how its training went. It returns a matplotlib figure; ``figure.savefig("agent.png")`` writes it
# to a file.
figure = agent.plot()

# %%
# Compare with an agent that sees the latent states
# --------------------------------------------------
# The same learner on the latent states is the best that can be expected. ``URL`` needs 80 more
# trajectories, which train and test its oracle.
skyline = bm.Tabular(on="latent").fit(m, episodes=10_000, seed=0)


def moving_average(returns, window=500):
    return np.convolve(returns, np.ones(window) / window, mode="valid")


fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for label, fitted in {"latent states": skyline, "URL, observations": agent}.items():
    y = moving_average(fitted.returns_)
    ax.plot(fitted.trajectories_[-len(y) :], y, label=label)
ax.axhline(m.optimal_value(), color="0.4", lw=0.8, label="optimum")
ax.set(xlabel="trajectories of any kind", ylabel="mean of 500 returns", xlim=(0, None))
ax.legend(frameon=False)
plt.show()
# sphinx_gallery_thumbnail_number = 2
