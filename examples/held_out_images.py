"""
Images that the agent has never seen
====================================

Each latent state of this lock is shown as images of a handwritten digit. The agent learns from some
images of each digit and is then tested on others.
"""

# %%
# The images
# ----------
# The images are those of scikit-learn, 8 by 8 pixels. ``images="train"`` uses two thirds of them,
# ``images="test"`` the others.
import matplotlib.pyplot as plt

import blockmdp as bm

lock = bm.lock_digits(horizon=5, images="train", seed=0)
print(lock, lock.emission.digits)

fig, axes = plt.subplots(3, 8, figsize=(6, 2.6), layout="constrained")
for state, row in enumerate(axes):
    for ax, x in zip(row, lock.sample(level=0, state=state, n=len(row))):
        ax.imshow(x.reshape(8, 8), cmap="gray_r")
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(f"state {state}", rotation=0, ha="right", va="center")

# %%
# Learn
# -----
# ``oracles.images`` brings all images to the same brightness before it clusters them.
agent = bm.URL(bm.oracles.images(), batch=500, iterations=1)
agent.fit(lock, episodes=20_000, seed=0)

# %%
# Test on other images
# --------------------
# With the same seed, the second lock has the same transitions and the same digits.
same_lock = bm.lock_digits(horizon=5, images="test", seed=0)
print(f"value on the images learnt from: {agent.value():.3f} of {lock.optimal_value()}")
print(f"value on other images:           {agent.value(on=same_lock):.3f}")
plt.show()
