"""Agents: their base class, and the tabular learner alone."""

from blockmdp.agents.base import Agent, DecodingAgent
from blockmdp.agents.tabular import Tabular

__all__ = ["Agent", "DecodingAgent", "Tabular"]
