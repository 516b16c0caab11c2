"""Problems of the literature, and their Gymnasium environments."""

from blockmdp.envs.classic import deep_sea, river_swim
from blockmdp.envs.convert import from_gymnasium, tabulate
from blockmdp.envs.digits import lock_digits
from blockmdp.envs.exogenous import exogenous_lock, noisy_chain, tasid_lock
from blockmdp.envs.grids import minigrid
from blockmdp.envs.gym import BlockMDPEnv, BlockMDPVectorEnv, mdp_of, register
from blockmdp.envs.locks import lock_bernoulli, lock_gaussian
from blockmdp.envs.maze import multi_maze
from blockmdp.envs.noisy import noisy_lock
from blockmdp.envs.random import random_block_mdp
from blockmdp.envs.rotated import bidirectional_lock, comblock, diabolical_lock
from blockmdp.envs.screens import Screens

__all__ = [
    "BlockMDPEnv",
    "BlockMDPVectorEnv",
    "Screens",
    "bidirectional_lock",
    "comblock",
    "deep_sea",
    "diabolical_lock",
    "exogenous_lock",
    "from_gymnasium",
    "lock_bernoulli",
    "lock_digits",
    "lock_gaussian",
    "mdp_of",
    "minigrid",
    "multi_maze",
    "noisy_chain",
    "noisy_lock",
    "random_block_mdp",
    "register",
    "river_swim",
    "tabulate",
    "tasid_lock",
]

register("blockmdp/LockBernoulli-v0", lock_bernoulli)
register("blockmdp/LockGaussian-v0", lock_gaussian)
register("blockmdp/Comblock-v0", comblock)
register("blockmdp/DiabolicalLock-v0", diabolical_lock)
register("blockmdp/ExogenousLock-v0", exogenous_lock)
register("blockmdp/BidirectionalLock-v0", bidirectional_lock)
register("blockmdp/TasidLock-v0", tasid_lock)
register("blockmdp/LockDigits-v0", lock_digits)
register("blockmdp/NoisyChain-v0", noisy_chain)
register("blockmdp/MultiMaze-v0", multi_maze)
register("blockmdp/NoisyLock-v0", noisy_lock)
register("blockmdp/DeepSea-v0", deep_sea)
register("blockmdp/RiverSwim-v0", river_swim)
register("blockmdp/RandomBlockMDP-v0", random_block_mdp)
