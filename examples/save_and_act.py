"""
Save a policy and use it
========================

Learn once, save the policy to a file, load it elsewhere, and act.
"""

# %%
# Learn and save
# --------------
# The file holds arrays and JSON. Loading it runs no code from the file.
import tempfile
from pathlib import Path

import gymnasium as gym
import matplotlib.pyplot as plt

import blockmdp as bm

env = gym.make(
    "blockmdp/LockGaussian-v0", horizon=10, switch=0.2, sigma=0.1, render_mode="rgb_array"
)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "policy.npz"
    bm.URL().fit(env, episodes=10_000, seed=0).save(path)
    print(f"{path.name}: {path.stat().st_size} bytes")
    policy = bm.load(path)
print(policy)

# %%
# Act
# ---
# A policy needs the observation and the level, which is the number of actions so far.
total, episodes = 0.0, 200
for episode in range(episodes):
    x, info = env.reset(seed=1 if episode == 0 else None)
    for level in range(policy.horizon):
        x, reward, *_ = env.step(policy.act(x, level))
        total += reward
print(f"mean return of {episodes} episodes: {total / episodes:.2f} (the optimum is 0.5)")

# %%
# The environment draws the latent states of its last episode. The colours show the value of each
# state; the policy never sees them.
fig = plt.figure(figsize=(7, 2.4))
ax = fig.add_axes((0, 0, 1, 1))
ax.imshow(env.render())
ax.set_axis_off()
plt.show()
