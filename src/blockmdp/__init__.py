"""blockmdp: exploration with rich observations.

Declare or pick a Block MDP, plug an unsupervised oracle and a tabular learner together, run them at
compiled speed.

>>> import blockmdp as bm
>>> m = bm.lock_bernoulli(horizon=5, switch=0.2, seed=0)
>>> agent = bm.Tabular(bm.OracleQ(lr=0.1, bonus=0.001), on="latent")
>>> agent = agent.fit(m, episodes=20_000, seed=0)
>>> agent.value() == m.optimal_value()
True
"""

from blockmdp import emissions, oracles, rng, testing
from blockmdp.agents import Tabular, load
from blockmdp.emissions import (
    Emission,
    Hadamard,
    Linear,
    OneHotBernoulli,
    OneHotGaussian,
    PerLevel,
    StateAndLevel,
)
from blockmdp.envs import comblock, diabolical_lock, lock_bernoulli, lock_gaussian
from blockmdp.experiments import Results, Study
from blockmdp.learners import UCBVI, Learner, OracleQ, QLearning
from blockmdp.mdp import BlockMDP
from blockmdp.pcid import PCID
from blockmdp.url import URL

__version__ = "0.1.0"

__all__ = [
    "PCID",
    "UCBVI",
    "URL",
    "BlockMDP",
    "Emission",
    "Hadamard",
    "Learner",
    "Linear",
    "OneHotBernoulli",
    "OneHotGaussian",
    "OracleQ",
    "PerLevel",
    "QLearning",
    "Results",
    "StateAndLevel",
    "Study",
    "Tabular",
    "comblock",
    "diabolical_lock",
    "emissions",
    "load",
    "lock_bernoulli",
    "lock_gaussian",
    "oracles",
    "rng",
    "testing",
]
