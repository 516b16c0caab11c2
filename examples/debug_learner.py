"""
Debug a learner
===============

Compiled code cannot be stepped through. With ``engine="interpreted"`` the same loop runs in plain
Python, so that ``print``, a debugger and your own records work inside a learner.
"""

# %%
# A learner with a mistake
# ------------------------
# Can you see it?
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

import blockmdp as bm
from blockmdp.learners import best_action, best_value


class Tables(NamedTuple):
    q: np.ndarray  # (H, S, A)
    n: np.ndarray  # (H, S, A), visits


class Broken(bm.Learner):
    """Q-learning that starts from 1."""

    def tables(self, H, S, A, episodes):
        return Tables(np.ones((H, S, A)), np.zeros((H, S, A)))

    @staticmethod
    def act(tables, k, h, s, key):
        return best_action(tables.q, h, s, key)

    @staticmethod
    def update(tables, h, s, a, r, s_next):
        tables.n[h, s, a] += 1
        target = r + best_value(tables.q, h + 1, s_next)
        tables.q[h, s, a] += 0.1 * target


# %%
# The learner follows the rules for learners, so ``check_learner`` finds nothing. But it does not
# learn the lock:
bm.testing.check_learner(Broken())
m = bm.lock_bernoulli(horizon=4, switch=0.2, seed=0)
agent = bm.Tabular(Broken()).fit(m, episodes=1_000, seed=0, engine="interpreted")
print(f"value {agent.value():.3f} of {m.optimal_value()}")

# %%
# Look inside
# -----------
# After a fit, ``tables_`` holds the arrays. No episode can earn more than 1, so no Q should exceed
# 1. One does, by far, and no other action was ever tried:
print("visits:", agent.tables_.n[0, 0])
print("Q:     ", agent.tables_.q[0, 0].round())


# %%
# Watch it happen
# ---------------
# In this engine the functions are plain Python, so they can write to a list, print, or call
# ``breakpoint()``. This learner records each update at the last level, where the target is the
# reward alone.
steps = []


class Recorded(Broken):
    @staticmethod
    def update(tables, h, s, a, r, s_next):
        before = tables.q[h, s, a]
        Broken.update(tables, h, s, a, r, s_next)
        if h == len(tables.q) - 1:
            steps.append(f"{r:.1f}     {before:.2f}      {tables.q[h, s, a]:.2f}")


bm.Tabular(Recorded()).fit(m, episodes=1_000, seed=0, engine="interpreted")
print("reward  Q before  Q after")
print(*steps[:5], sep="\n")


# %%
# Q starts from 1 and a reward of 0 should pull it down, but it stays where it is. The last line of
# ``update`` adds a tenth of the target; it should move Q a tenth of the way to the target.
class Fixed(Broken):
    @staticmethod
    def update(tables, h, s, a, r, s_next):
        tables.n[h, s, a] += 1
        target = r + best_value(tables.q, h + 1, s_next)
        tables.q[h, s, a] += 0.1 * (target - tables.q[h, s, a])


fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for learner in (Broken(), Fixed()):
    agent = bm.Tabular(learner).fit(m, episodes=1_000, seed=0, engine="interpreted")
    name = type(learner).__name__
    print(f"{name}: value {agent.value():.3f}")
    ax.plot(np.convolve(agent.returns_, np.ones(100) / 100, mode="valid"), label=name)
ax.axhline(m.optimal_value(), color="0.4", lw=0.8, label="optimum")
ax.set(xlabel="episode", ylabel="mean of 100 returns")
ax.legend(frameon=False)
plt.show()
