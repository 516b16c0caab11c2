"""A Block MDP of one's own: a corridor seen through a rotated, noisy code."""

import numpy as np
from scipy.stats import ortho_group

import blockmdp as bm

S, H = 4, 6
P = np.zeros((H, S, 2, S))  # two actions: back, and on, which slips back to the start now and then
for s in range(S):
    P[:, s, 0, max(s - 1, 0)] = 1.0
    P[:, s, 1, min(s + 1, S - 1)] += 0.9
    P[:, s, 1, 0] += 0.1
rewards = np.zeros(S)
rewards[-1] = 1 / H  # for every arrival at the corridor's end

turn = ortho_group.rvs(S + 5, random_state=0)
emission = bm.Linear(bm.OneHotGaussian(S, 5, sigma=0.1), turn)
m = bm.BlockMDP(np.eye(S)[0], P, rewards, emission=emission, name="Corridor")

agent = bm.URL(bm.oracles.gmm(S), batch=100).fit(m, episodes=5_000, seed=0)
print(f"{m}\noptimum {m.optimal_value():.3f}, learnt {agent.value():.3f}, drew {agent.ledger_}")
