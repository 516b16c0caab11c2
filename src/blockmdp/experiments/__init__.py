"""Experiments: study files, runs on all cores or a cluster, a store, figures and tables."""

from blockmdp.experiments.results import Results
from blockmdp.experiments.study import Study, StudyError

__all__ = ["Results", "Study", "StudyError"]
