"""
MiniGrid from noisy pixels
==========================

In DoorKey, the agent must find a key, open a door with it and walk to the goal. Here it sees only
pictures, behind tints and distractors. :func:`blockmdp.minigrid` knows the exact table of the
problem, so we also know how good the learnt policy is. This example needs
``pip install 'blockmdp[minigrid]'``.
"""

# %%
# The problem
# -----------
# The layout is fixed, and the noise changes at every step.
import matplotlib.pyplot as plt

import blockmdp as bm

m = bm.minigrid("MiniGrid-DoorKey-5x5-v0", 20, noise={"tint": 0.3, "distractors": 2})
print(m)
print(f"optimal value {m.optimal_value()}")

# %%
# Six pictures of the same state:
fig, axes = plt.subplots(1, 6, figsize=(9, 1.7), layout="constrained")
for ax, x in zip(axes, m.sample(level=0, state=0, n=6)):
    ax.imshow(x.reshape(m.emission.shape))
    ax.axis("off")
plt.show()

# %%
# Learn
# -----
# The oracle for rendered images fits the colours of all pictures to each other, and hides colours
# that do not recur. The learner shares one model between levels, and first tries what is near.
oracle = bm.oracles.images(kind="rendered")
learner = bm.UCBVI(bonus=0.0, stationary=True, discount=0.95, greedy="known")
agent = bm.OnlineURL(oracle, learner, pool_levels=True).fit(m, episodes=200, seed=0)
print(f"{agent.decoder_.n_labels} labels, first success in episode {agent.returns_.argmax()}")
print(f"value {agent.value(samples=2):.2f}")

# %%
# Watch
# -----
# ``animate`` plays the learnt policy and writes a GIF file. Here are some of its pictures.
from pathlib import Path  # noqa: E402
from tempfile import mkdtemp  # noqa: E402

from PIL import Image, ImageSequence  # noqa: E402

path = Path(mkdtemp()) / "doorkey.gif"
print(f"return {agent.animate(path)}")
with Image.open(path) as film:
    frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(film)]
shown = [frames[i * (len(frames) - 1) // 7] for i in range(8)]  # with the first and the last
fig, axes = plt.subplots(1, 8, figsize=(10, 1.5), layout="constrained")
for ax, frame in zip(axes, shown):
    ax.imshow(frame)
    ax.axis("off")
plt.show()
