"""Tabular learners, one file for each algorithm."""

from blockmdp.learners.base import Learner, best_action, best_value
from blockmdp.learners.oracleq import OracleQ
from blockmdp.learners.psrl import PSRL
from blockmdp.learners.qlearning import QLearning
from blockmdp.learners.ucbvi import UCBVI

__all__ = ["PSRL", "UCBVI", "Learner", "OracleQ", "QLearning", "best_action", "best_value"]
