"""Named problems and their Gymnasium face."""

from blockmdp.envs.gym import BlockMDPEnv, BlockMDPVectorEnv, mdp_of, register
from blockmdp.envs.locks import lock_bernoulli, lock_gaussian

__all__ = [
    "BlockMDPEnv",
    "BlockMDPVectorEnv",
    "lock_bernoulli",
    "lock_gaussian",
    "mdp_of",
    "register",
]

register("blockmdp/LockBernoulli-v0", lock_bernoulli)
register("blockmdp/LockGaussian-v0", lock_gaussian)
