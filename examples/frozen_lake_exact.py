"""
Solve FrozenLake exactly
========================

FrozenLake has a table of its transitions. :func:`blockmdp.from_gymnasium` reads it, so the optimal
policy and its value are computed, not learnt; and what a learner does can be compared with them.
"""

# %%
# The problem
# -----------
# Episodes end after 100 steps, in a hole, or at the goal. On slippery ice, the agent often moves to
# the side.
import matplotlib.pyplot as plt
import numpy as np

import blockmdp as bm

lake = bm.from_gymnasium("FrozenLake-v1", is_slippery=True)
print(lake)
print(f"optimal value {lake.optimal_value():.4f}")

# %%
# Learn
# -----
# The dynamics are the same at all levels, so the learner estimates one model for all of them.
learner = bm.UCBVI(stationary=True)
agent = bm.Tabular(learner).fit(lake, episodes=3_000, seed=0, record=True)
print(f"learnt value {agent.value():.4f} after {agent.solved_from(0.95)} episodes")

# %%
# On the left the optimal policy at the start of an episode, and the probability of reaching the
# goal from each cell. On the right the exact value of what was learnt, at each checkpoint.
V, best = lake.optimal_values()[0], lake.optimal_policy()[0].argmax(axis=1)
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
image = left.imshow(V[:16].reshape(4, 4), cmap="cividis", vmin=0, vmax=1)
for s in range(16):
    if V[s] > 0:
        row, column = divmod(s, 4)
        left.text(column, row, "←↓→↑"[best[s]], color="white", ha="center", va="center", size=16)
left.set(title="Optimal policy", xticks=[], yticks=[])
fig.colorbar(image, ax=left, label="probability of success")
episodes = [snapshot.k for snapshot in agent.snapshots_]
right.plot(episodes, agent.values())
right.axhline(lake.optimal_value(), color="0.5", ls="--")
right.set(title="Exact value", xlabel="episode", ylim=(0, 1), xscale="log")
plt.show()

# %%
# The ice is slippery, so a single episode may fail. The mean return of many is close to the value:
env = lake.to_gymnasium()
returns = []
for seed in range(200):
    (x, info), total = env.reset(seed=seed), 0.0
    for level in range(lake.horizon):
        x, reward, terminated, truncated, info = env.step(agent.act(info["latent_state"], level))
        total += reward
        if terminated:
            break
    returns.append(total)
print(f"mean return of 200 episodes {np.mean(returns):.2f}")
