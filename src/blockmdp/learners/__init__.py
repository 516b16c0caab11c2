"""Tabular learners, one file for each algorithm."""

from blockmdp.learners.base import Learner, best_action, best_value
from blockmdp.learners.delayed_q import DelayedQ
from blockmdp.learners.e3 import E3
from blockmdp.learners.euler import EULER
from blockmdp.learners.opsrl import OPSRL
from blockmdp.learners.oracleq import OracleQ
from blockmdp.learners.psrl import PSRL
from blockmdp.learners.psrl_theory import PSRLTheory
from blockmdp.learners.qlearning import QLearning
from blockmdp.learners.rlsvi import RLSVI
from blockmdp.learners.rmax import RMAX
from blockmdp.learners.ubev import UBEV
from blockmdp.learners.ucbq import UCBQ
from blockmdp.learners.ucbvi import UCBVI
from blockmdp.learners.ucbvi_theory import UCBVITheory
from blockmdp.learners.ucrl2 import UCRL2

__all__ = [
    "E3",
    "EULER",
    "OPSRL",
    "PSRL",
    "RLSVI",
    "RMAX",
    "UBEV",
    "UCBQ",
    "UCBVI",
    "UCRL2",
    "DelayedQ",
    "Learner",
    "OracleQ",
    "PSRLTheory",
    "QLearning",
    "UCBVITheory",
    "best_action",
    "best_value",
]
