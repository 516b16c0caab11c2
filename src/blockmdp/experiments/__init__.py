"""Experiments: study files, runs on all cores or on a cluster, a store, tables and figures.

Imports go one way: errors, statistics, progress, lock, toml < catalogue < parts, ranges <
settings, document < labels, runs < changes, grid, pool < plan, cluster < store < tables <
comparison, reporting < results < driver < study < search < tuning.
"""

from blockmdp.experiments.errors import StudyError
from blockmdp.experiments.results import Results
from blockmdp.experiments.study import Study

__all__ = ["Results", "Study", "StudyError"]
