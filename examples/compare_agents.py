"""
Compare agents on a hard lock
=============================

This example compares :class:`blockmdp.URL`, :class:`blockmdp.OnlineURL` and :class:`blockmdp.PCID`
with a learner that sees the latent states, on the combination lock of Zhang et al. (2022).
"""

# %%
# The problem
# -----------
# At each of five levels, one of ten actions keeps the agent alive. A wrong action gives a small
# reward, and the large one is lost. Observations are noisy codes of the state and the level,
# multiplied by a Hadamard matrix. Every episode starts in one of two states.
import matplotlib.pyplot as plt
import numpy as np

import blockmdp as bm

m = bm.comblock(horizon=5, seed=0)
print(m)
print(f"optimal value {m.optimal_value()}, random actions {m.value(m.uniform_policy()):.2f}")

# %%
# The agents
# ----------
# All get the same problem and the same seed. ``Tabular`` sees the latent states, so it shows the
# best that can be expected.
agents = {
    "latent states": bm.Tabular(bm.UCBVI()),
    "OnlineURL": bm.OnlineURL(),
    "URL": bm.URL(),
    "PCID": bm.PCID(n=300),
}
for label, agent in agents.items():
    agent.fit(m, episodes=1_500, seed=0)
    drawn = sum(agent.ledger_.values())
    print(f"{label:>13}: value {agent.value():.2f}, {drawn} trajectories")

# %%
# On the left the returns. The curves start where learning starts; ``PCID`` explores for 1,500
# trajectories before that. On the right how well each decoder separates the latent states.
#
# - ``OnlineURL`` learns its decoder from the learner's own episodes. The farther the learner gets,
#   the more the decoder sees.
# - ``URL`` trains its decoders first, on random actions. They rarely survive to the last levels, so
#   it trains again whenever the learner's episodes have increased by a tenth. Each time the decoder
#   knows a level or two more. That is why it learns later.
# - ``PCID`` assumes that all episodes start in the same state. Here there are two.
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
window = 50
for i, (label, agent) in enumerate(agents.items()):
    y = np.convolve(agent.returns_, np.ones(window) / window, mode="valid")
    left.plot(agent.trajectories_[window - 1 :], y, color=f"C{i}", label=label)
    if hasattr(agent, "accuracy"):
        right.plot(agent.accuracy(), "o-", color=f"C{i}", ms=12 - 3 * i, label=label)
left.axhline(m.optimal_value(), color="0.4", lw=0.8, label="optimum")
left.set(xlabel="trajectories of any kind", ylabel=f"mean of {window} returns", xlim=(0, None))
left.legend(frameon=False)
right.set(xlabel="level", ylabel="accuracy of the decoder", ylim=(0, 1.05))
plt.show()
