"""Experiments: study files, runs on all cores or on a cluster, a store, tables and figures.

Imports go one way: errors, statistics, progress, lock, toml, settings < catalogue, labels, outcome
< parts, ranges, changes < document, runs, plan < grid, pool, store < cluster, tables < comparison,
reporting < results < driver < study < search < tuning.
"""

import importlib
from typing import TYPE_CHECKING, Any

from blockmdp.experiments.errors import StudyError

if TYPE_CHECKING:
    from blockmdp.experiments.results import Results
    from blockmdp.experiments.study import Study

__all__ = ["Results", "Study", "StudyError"]

# Who looks at results need not wait for what runs a study.
_LATER = {"Results": "blockmdp.experiments.results", "Study": "blockmdp.experiments.study"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(importlib.import_module(_LATER[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
