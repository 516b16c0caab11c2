"""An environment that nobody here wrote: FrozenLake behind noise, eight copies at a time."""

import gymnasium as gym
import numpy as np
from sklearn.cluster import KMeans

import blockmdp as bm


class Noisy(gym.ObservationWrapper):
    """The state's one-hot code plus Gaussian noise, in 24 dimensions."""

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


skyline = bm.Tabular(on="observation").fit(lake(), episodes=2_000, seed=0)
copies = gym.vector.SyncVectorEnv([lambda: Noisy(lake())] * 8)
# 16 states, and labels to spare: two for one state do no harm, one for two states does
agent = bm.URL(KMeans(24, n_init=10), batch=1_000, iterations=1)
agent.fit(copies, episodes=4_000, seed=0, horizon=20)
true, noisy = skyline.returns_[-200:].mean(), agent.returns_[-200:].mean()
print(f"on true states {true:.2f}, behind noise {noisy:.2f}")
