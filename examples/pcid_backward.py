"""Why PCID fails at switch 0.5: where an observation came from says nothing about its live state.

PCID tells states apart by their backward distribution, the law of the (state, action) before. This
draws it for the two live states of a lock, each (state, action) before being equally likely.
`python pcid_backward.py FILE.png` writes the picture of docs/pcid.md.
"""

import sys

import numpy as np
from matplotlib.figure import Figure

import blockmdp as bm

figure = Figure(figsize=(9.5, 2.6), layout="constrained")
axes = figure.subplots(1, 3, sharey=True)
for ax, switch in zip(axes, (0.0, 0.2, 0.5)):
    P = bm.lock_bernoulli(horizon=2, switch=switch, seed=3).transitions[1]  # (state, action, next)
    backward = (P / P.sum(axis=(0, 1), keepdims=True)).reshape(-1, 3)[:, :2]  # given the next state
    distance = np.abs(backward[:, 0] - backward[:, 1]).sum()
    print(f"switch {switch}: the backward distributions are {distance:.2f} apart (L1)")
    at = np.arange(8)  # nothing comes from the dead state
    ax.bar(at - 0.2, backward[:8, 0], 0.4, color="#0072B2", label="live state 0")
    ax.bar(at + 0.2, backward[:8, 1], 0.4, color="#E69F00", label="live state 1")
    ax.set_title(f"switch {switch}: L1 distance {distance:.1f}", fontsize=10)
    ax.set_xticks(at, [f"{s},{a}" for s in range(2) for a in range(4)], fontsize=8)
    ax.set_xlabel("state, action before")
axes[0].set_ylabel("probability")
bars = axes[0].get_legend_handles_labels()
figure.legend(*bars, title="given the next is", loc="outside right center", frameon=False)
if len(sys.argv) > 1:
    figure.savefig(sys.argv[1], dpi=110)
