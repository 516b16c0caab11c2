"""
Why PCID fails when states mix
==============================

:class:`blockmdp.PCID` separates two states by what came before them: by the distribution of the
previous state and action. If that is the same for both states, PCID cannot separate them.
"""

# %%
# The backward distributions
# --------------------------
# A lock has two live states. A good action leads to the other one with probability ``switch``. The
# bars show, for each live state, the distribution of the state and action before it (the *backward
# distribution*) when all of these are equally likely. With ``switch=0.5`` the two are the same.
import matplotlib.pyplot as plt
import numpy as np

import blockmdp as bm

switches = (0.0, 0.2, 0.5)
fig, axes = plt.subplots(1, 3, figsize=(9.5, 2.6), layout="constrained", sharey=True)
for ax, switch in zip(axes, switches):
    P = bm.lock_bernoulli(horizon=2, switch=switch, seed=3).transitions[1]  # (state, action, next)
    backward = (P / P.sum(axis=(0, 1), keepdims=True)).reshape(-1, 3)[:, :2]
    distance = np.abs(backward[:, 0] - backward[:, 1]).sum()
    print(f"switch {switch}: L1 distance of the backward distributions {distance:.2f}")
    at = np.arange(8)  # nothing comes from the dead state
    ax.bar(at - 0.2, backward[:8, 0], 0.4, color="#0072B2", label="state 0")
    ax.bar(at + 0.2, backward[:8, 1], 0.4, color="#E69F00", label="state 1")
    ax.set_title(f"switch {switch}: L1 distance {distance:.1f}", fontsize=10)
    ax.set_xticks(at, [f"{s},{a}" for s in range(2) for a in range(4)], fontsize=8)
    ax.set_xlabel("state, action before")
axes[0].set_ylabel("probability")
bars = axes[0].get_legend_handles_labels()
fig.legend(*bars, title="next state", loc="outside right center", frameon=False)

# %%
# What follows
# ------------
# Without two labels, PCID must take the same action in both live states. In some locks such an
# action happens to exist at every level, so it still opens those. :class:`blockmdp.URL` clusters
# the observations themselves and opens all of them. Here are eight locks for each ``switch``:
opened = {"URL": [], "PCID": []}
for switch in switches:
    locks = [bm.lock_bernoulli(horizon=8, switch=switch, seed=seed) for seed in range(8)]
    for name, agent, episodes in (("URL", bm.URL(), 4_000), ("PCID", bm.PCID(n=300), 100)):
        solved = [agent.fit(m, episodes, seed=0).value() >= 0.45 for m in locks]
        opened[name].append(np.mean(solved))
        print(f"switch {switch}: {name} opens {sum(solved)} of 8 locks")

fig, ax = plt.subplots(figsize=(5.5, 2.6), layout="constrained")
for offset, (name, shares) in zip((-0.2, 0.2), opened.items()):
    ax.bar(np.arange(3) + offset, shares, 0.4, label=name)
ax.set_xticks(range(3), [f"switch {switch}" for switch in switches])
ax.set(ylabel="locks opened", ylim=(0, 1.05))
fig.legend(loc="outside right center", frameon=False)
plt.show()
