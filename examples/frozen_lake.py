"""
A Gymnasium environment behind noise
====================================

Agents also learn environments of which nothing is known. This example puts noise on FrozenLake and
solves it with :class:`blockmdp.URL`, on eight copies at a time.
"""

# %%
# The environment
# ---------------
# FrozenLake shows the number of its cell. The wrapper replaces the number by 24 noisy numbers. Any
# environment works if its actions are discrete and its episodes have a maximum length.
import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans

import blockmdp as bm


class Noisy(gym.ObservationWrapper):
    """The one-hot code of the state plus Gaussian noise, in 24 dimensions."""

    def __init__(self, env, sigma=0.1, dim=24):
        super().__init__(env)
        self.sigma, self.dim = sigma, dim
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (dim,), np.float32)

    def observation(self, s):
        x = self.unwrapped.np_random.normal(0, self.sigma, self.dim)
        x[s] += 1
        return x.astype(np.float32)


def lake():
    return gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=20)


# %%
# Learn
# -----
# The first agent sees the true cells, the second only noise. There are 16 cells. The oracle gets 24
# labels: two labels for one cell do no harm, but one label for two cells does.
skyline = bm.Tabular(on="observation").fit(lake(), episodes=2_000, seed=0)
copies = gym.vector.SyncVectorEnv([lambda: Noisy(lake())] * 8)
agent = bm.URL(KMeans(24, n_init=10), batch=1_000, iterations=1)
agent.fit(copies, episodes=3_000, seed=0, horizon=20)
true, noisy = skyline.returns_[-200:].mean(), agent.returns_[-200:].mean()
print(f"mean return on true cells {true:.2f}, behind noise {noisy:.2f}")

# %%
# Act
# ---
# Nothing exact is known about a black box, so there is no ``value()``. Instead, let the agent walk.
# It may wait at the start, because only the goal counts and there are 20 steps to reach it.
env = Noisy(lake())
x, _ = env.reset(seed=1)
path = [env.unwrapped.s]
for level in range(20):
    x, reward, terminated, truncated, _ = env.step(agent.act(x, level))
    path.append(env.unwrapped.s)
    if terminated or truncated:
        break
print(f"reward {reward}, path {[int(s) for s in path]}")

# %%
# On the left the lake with the path: holes are dark, the goal is green. On the right the returns.
fig, (left, right) = plt.subplots(
    1, 2, figsize=(8, 3), layout="constrained", gridspec_kw={"width_ratios": [1, 1.8]}
)
kinds = env.unwrapped.desc.astype(str)
colours = {"S": "#e8f1fa", "F": "#e8f1fa", "H": "#35506b", "G": "#7fc97f"}
for (row, column), kind in np.ndenumerate(kinds):
    left.add_patch(plt.Rectangle((column - 0.5, row - 0.5), 1, 1, fc=colours[kind], ec="white"))
rows, columns = np.divmod(path, 4)
left.plot(columns, rows, "o-", color="#D55E00")
left.set(xlim=(-0.5, 3.5), ylim=(3.5, -0.5), aspect="equal", xticks=[], yticks=[], title="Path")
for label, fitted in {"true cells": skyline, "URL behind noise": agent}.items():
    y = np.convolve(fitted.returns_, np.ones(100) / 100, mode="valid")
    right.plot(fitted.trajectories_[99:], y, label=label)
right.set(xlabel="trajectories of any kind", ylabel="mean of 100 returns", title="Returns")
right.legend(frameon=False)
plt.show()
