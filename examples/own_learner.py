"""
Write your own learner
======================

A learner is arrays plus two functions: ``act`` chooses an action, ``update`` learns from one step.
This example writes optimistic Q-learning and compares it with the learners of the package.
"""

# %%
# The learner
# -----------
# The arrays are a named tuple. With ``numba.njit`` on the two functions, the whole episode loop is
# compiled; without it, the same loop runs in plain Python. Random choices use the ``key``:
# ``best_action`` breaks ties with it.
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from numba import njit

import blockmdp as bm
from blockmdp.learners import best_action, best_value


class Tables(NamedTuple):
    q: np.ndarray  # (H, S, A)


@njit
def act(tables, k, h, s, key):  # episode k, level h, label s
    return best_action(tables.q, h, s, key)


@njit
def update(tables, h, s, a, r, s_next):
    target = r + best_value(tables.q, h + 1, s_next)
    tables.q[h, s, a] += 0.1 * (target - tables.q[h, s, a])


class Optimistic(bm.Learner):
    """Q-learning that starts from 1 and has no bonus."""

    act, update = staticmethod(act), staticmethod(update)

    def tables(self, H, S, A, episodes):
        return Tables(np.ones((H, S, A)))


# %%
# Check it
# --------
# ``check_learner`` raises an error that says what is wrong. Nothing is wrong here.
bm.testing.check_learner(Optimistic())

# %%
# Use it
# ------
# Every agent takes it. ``Tabular`` sees the latent states, ``URL`` only observations.
m = bm.lock_bernoulli(horizon=10, switch=0.2, seed=0)
agents = {
    "Optimistic": bm.Tabular(Optimistic()),
    "OracleQ": bm.Tabular(bm.OracleQ()),
    "UCBVI": bm.Tabular(bm.UCBVI()),
    "URL with Optimistic": bm.URL(learner=Optimistic()),
}

fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for label, agent in agents.items():
    agent.fit(m, episodes=6_000, seed=0)
    print(f"{label}: value {agent.value():.3f}")
    y = np.convolve(agent.returns_, np.ones(300) / 300, mode="valid")
    ax.plot(agent.trajectories_[299:], y, label=label)
ax.axhline(m.optimal_value(), color="0.4", lw=0.8, label="optimum")
ax.set(xlabel="trajectories of any kind", ylabel="mean of 300 returns", xlim=(0, None))
ax.legend(frameon=False)
plt.show()
