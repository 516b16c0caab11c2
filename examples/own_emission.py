"""An emission of one's own is one small class: here, a state shows as a noisy ring of its own."""

import numpy as np

import blockmdp as bm


class Rings(bm.Emission):
    """State s is seen as a point near the circle of radius s + 1."""

    def __init__(self, n_states):
        self.n_states, self.dim = n_states, 2

    def sample(self, level, states, keys):
        u = bm.rng.uniforms(keys, 2)  # noise comes from the keys, and from nowhere else
        angle, radius = 2 * np.pi * u[:, 0], states + 1 + 0.2 * (u[:, 1] - 0.5)
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])


lock = bm.lock_bernoulli(horizon=5, switch=0.2, seed=0)
m = bm.BlockMDP(
    lock.initial, lock.transitions, lock.rewards, lock.reward_probability, emission=Rings(3)
)
print(m, m.sample(level=0, state=1, n=3), sep="\n")
