"""
Your own environment in ten lines
=================================

:func:`blockmdp.tabulate` makes an exact Block MDP of any Gymnasium environment with few states, by
trying every action in every state.
"""

# %%
# The environment
# ---------------
# A lamp room: ten switches in a row, one of which opens the door. You walk left or right, or press.
import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

import blockmdp as bm


class LampRoom(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(10), gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action):
        self.place = int(np.clip(self.place + (-1, 1, 0)[action], 0, 9))
        opened = action == 2 and self.place == 7
        return self.place, float(opened), opened, False, {}


# %%
# The Block MDP
# -------------
# ``key`` says what the state is. The emission is what the agent sees of it: here, noise.
m = bm.tabulate(
    LampRoom(),
    key=lambda env: env.place,
    horizon=12,
    emission=lambda S: bm.OneHotGaussian(S, 6, sigma=0.1),
)
print(m)
print(f"optimal value {m.optimal_value()}")

# %%
# Learn and measure
# -----------------
agent = bm.OnlineURL(pool_levels=True).fit(m, episodes=300, seed=0, record=True)
print(f"value {agent.value():.2f}, accuracy {agent.accuracy().mean():.2f}")

# %%
# On the left, three observations of each state, one row each. On the right the exact value.
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.imshow(np.concatenate([m.sample(0, s, 3) for s in range(m.n_states)]), cmap="cividis")
left.set(title="Observations", xlabel="coordinate", ylabel="three of each state")
right.plot([snapshot.k for snapshot in agent.snapshots_], agent.values())
right.set(title="Exact value", xlabel="episode", ylim=(0, 1.05))
plt.show()
