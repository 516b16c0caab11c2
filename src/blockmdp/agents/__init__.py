"""Agents: what composes a simulator, a sight and a learner into something that can be fitted to a
problem.
"""

from blockmdp.agents.decoded import DecodedPolicy, DecodingAgent, load
from blockmdp.agents.tabular import Tabular

__all__ = ["DecodedPolicy", "DecodingAgent", "Tabular", "load"]
