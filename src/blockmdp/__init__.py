"""blockmdp: exploration in problems with rich observations and few hidden states.

Pick or define a Block MDP, combine an unsupervised-learning oracle with a tabular learner, and run
them at compiled speed.

>>> import blockmdp as bm
>>> m = bm.lock_bernoulli(horizon=5, switch=0.2, seed=0)
>>> agent = bm.URL().fit(m, episodes=20_000, seed=0)
>>> agent.value() == m.optimal_value()
True
"""

import importlib
from typing import TYPE_CHECKING, Any

from blockmdp import emissions, rng
from blockmdp.emissions import (
    Digits,
    Emission,
    ExogenousBits,
    Fixed,
    Hadamard,
    Linear,
    MarkovBits,
    OneHotBernoulli,
    OneHotGaussian,
    PerLevel,
    StateAndLevel,
)
from blockmdp.envs import (
    comblock,
    deep_sea,
    diabolical_lock,
    exogenous_lock,
    from_gymnasium,
    lock_bernoulli,
    lock_digits,
    lock_gaussian,
    noisy_chain,
    noisy_lock,
    random_block_mdp,
    river_swim,
    tabulate,
)
from blockmdp.learners import (
    E3,
    EULER,
    OPSRL,
    PSRL,
    RLSVI,
    RMAX,
    UBEV,
    UCBQ,
    UCBVI,
    UCRL2,
    DelayedQ,
    Learner,
    OracleQ,
    PSRLTheory,
    QLearning,
    UCBVITheory,
)
from blockmdp.mdp import BlockMDP, Successors

if TYPE_CHECKING:
    from blockmdp import measures, oracles, plots, testing
    from blockmdp.agents import Agent, Tabular
    from blockmdp.experiments import Results, Study
    from blockmdp.measures import regret
    from blockmdp.pcid import PCID
    from blockmdp.policy import Policy, load
    from blockmdp.url import URL, OnlineURL

__version__ = "0.2.0"

__all__ = [
    "E3",
    "EULER",
    "OPSRL",
    "PCID",
    "PSRL",
    "RLSVI",
    "RMAX",
    "UBEV",
    "UCBQ",
    "UCBVI",
    "UCRL2",
    "URL",
    "Agent",
    "BlockMDP",
    "DelayedQ",
    "Digits",
    "Emission",
    "ExogenousBits",
    "Fixed",
    "Hadamard",
    "Learner",
    "Linear",
    "MarkovBits",
    "OneHotBernoulli",
    "OneHotGaussian",
    "OnlineURL",
    "OracleQ",
    "PSRLTheory",
    "PerLevel",
    "Policy",
    "QLearning",
    "Results",
    "StateAndLevel",
    "Study",
    "Successors",
    "Tabular",
    "UCBVITheory",
    "comblock",
    "deep_sea",
    "diabolical_lock",
    "emissions",
    "exogenous_lock",
    "from_gymnasium",
    "load",
    "lock_bernoulli",
    "lock_digits",
    "lock_gaussian",
    "measures",
    "noisy_chain",
    "noisy_lock",
    "oracles",
    "plots",
    "random_block_mdp",
    "regret",
    "river_swim",
    "rng",
    "tabulate",
    "testing",
]

# Modules that import scikit-learn, which takes a second, are loaded when first used.
_LATER = {
    "Agent": "blockmdp.agents",
    "OnlineURL": "blockmdp.url",
    "PCID": "blockmdp.pcid",
    "Policy": "blockmdp.policy",
    "Results": "blockmdp.experiments",
    "Study": "blockmdp.experiments",
    "Tabular": "blockmdp.agents",
    "URL": "blockmdp.url",
    "load": "blockmdp.policy",
    "measures": "blockmdp",
    "oracles": "blockmdp",
    "plots": "blockmdp",
    "regret": "blockmdp.measures",
    "testing": "blockmdp",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _LATER[name] == "blockmdp":
        return importlib.import_module(f"blockmdp.{name}")
    globals()[name] = found = getattr(importlib.import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
