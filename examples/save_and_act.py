"""A policy for use: fit, save, load elsewhere, act."""

import tempfile
from pathlib import Path

import gymnasium as gym

import blockmdp as bm

env = gym.make("blockmdp/LockGaussian-v0", horizon=10, switch=0.2, sigma=0.1)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "policy.npz"
    bm.URL(batch=250, iterations=8).fit(env, episodes=10_000, seed=0).save(path)
    policy = bm.load(path)

total, episodes = 0.0, 200
for episode in range(episodes):
    x, info = env.reset(seed=1 if episode == 0 else None)
    for level in range(policy.horizon):
        x, reward, *_ = env.step(policy.act(x, level))
        total += reward
print(f"mean return of {episodes} episodes: {total / episodes:.2f} (the optimum is 0.5)")
