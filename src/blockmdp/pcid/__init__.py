"""PCID, policy cover via inductive decoding (Du et al. 2019), the rival in Feng et al. 2020."""

from blockmdp.pcid.agent import PCID

__all__ = ["PCID"]
