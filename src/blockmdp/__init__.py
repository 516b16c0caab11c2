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
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockmdp import emissions, measures, oracles, plots, rng, testing
    from blockmdp.agents import Agent, Tabular, fit_many
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
        Screens,
        bidirectional_lock,
        comblock,
        deep_sea,
        diabolical_lock,
        exogenous_lock,
        from_gymnasium,
        lock_bernoulli,
        lock_digits,
        lock_gaussian,
        minigrid,
        multi_maze,
        noisy_chain,
        noisy_lock,
        random_block_mdp,
        river_swim,
        tabulate,
        tasid_lock,
    )
    from blockmdp.experiments import Results, Study
    from blockmdp.families import Bits, Categories, Counts, Subspaces
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
    "Bits",
    "BlockMDP",
    "Categories",
    "Counts",
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
    "Screens",
    "StateAndLevel",
    "Study",
    "Subspaces",
    "Successors",
    "Tabular",
    "UCBVITheory",
    "bidirectional_lock",
    "comblock",
    "deep_sea",
    "diabolical_lock",
    "emissions",
    "exogenous_lock",
    "fit_many",
    "from_gymnasium",
    "load",
    "lock_bernoulli",
    "lock_digits",
    "lock_gaussian",
    "measures",
    "minigrid",
    "multi_maze",
    "noisy_chain",
    "noisy_lock",
    "oracles",
    "plots",
    "random_block_mdp",
    "regret",
    "river_swim",
    "rng",
    "tabulate",
    "tasid_lock",
    "testing",
]

# Each module is loaded when a name of it is first used: scikit-learn and the compiled functions
# take a second.
_NAMES = {
    "blockmdp.agents": "Agent Tabular fit_many",
    "blockmdp.emissions": (
        "Digits Emission ExogenousBits Fixed Hadamard Linear MarkovBits OneHotBernoulli "
        "OneHotGaussian PerLevel StateAndLevel"
    ),
    "blockmdp.envs": (
        "Screens bidirectional_lock comblock deep_sea diabolical_lock exogenous_lock "
        "from_gymnasium lock_bernoulli lock_digits lock_gaussian minigrid multi_maze noisy_chain "
        "noisy_lock random_block_mdp river_swim tabulate tasid_lock"
    ),
    "blockmdp.experiments": "Results Study",
    "blockmdp.families": "Bits Categories Counts Subspaces",
    "blockmdp.learners": (
        "DelayedQ E3 EULER Learner OPSRL OracleQ PSRL PSRLTheory QLearning RLSVI RMAX UBEV "
        "UCBQ UCBVI UCBVITheory UCRL2"
    ),
    "blockmdp.mdp": "BlockMDP Successors",
    "blockmdp.measures": "regret",
    "blockmdp.pcid": "PCID",
    "blockmdp.policy": "Policy load",
    "blockmdp.url": "OnlineURL URL",
}
_MODULES = ("emissions", "measures", "oracles", "plots", "rng", "testing")
_LATER = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"blockmdp.{name}")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(importlib.import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# With the package, Gymnasium gets to know the ids of its environments. The command `blockmdp` loads
# them when it needs them, so that looking at results does not wait for the compiler.
if "_blockmdp_command" not in sys.modules:
    for _name in ("envs", "learners"):
        importlib.import_module(f"blockmdp.{_name}")
