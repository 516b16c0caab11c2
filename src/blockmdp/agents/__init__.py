"""Agents: their base class, the tabular learner alone, and fits of many agents at once."""

from blockmdp.agents.base import Agent, DecodingAgent
from blockmdp.agents.many import fit_many
from blockmdp.agents.tabular import Tabular

__all__ = ["Agent", "DecodingAgent", "Tabular", "fit_many"]
