"""Named problems and their Gymnasium face."""

from blockmdp.envs.gym import BlockMDPEnv, BlockMDPVectorEnv, mdp_of, register
from blockmdp.envs.locks import lock_bernoulli, lock_gaussian
from blockmdp.envs.rotated import comblock, diabolical_lock

__all__ = [
    "BlockMDPEnv",
    "BlockMDPVectorEnv",
    "comblock",
    "diabolical_lock",
    "lock_bernoulli",
    "lock_gaussian",
    "mdp_of",
    "register",
]

register("blockmdp/LockBernoulli-v0", lock_bernoulli)
register("blockmdp/LockGaussian-v0", lock_gaussian)
register("blockmdp/Comblock-v0", comblock)
register("blockmdp/DiabolicalLock-v0", diabolical_lock)
