"""How many seeds are enough: add seeds until all means are known well."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from blockmdp.experiments import statistics
from blockmdp.experiments.driver import run_studies
from blockmdp.experiments.errors import StudyError
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.results import Results

__all__ = ["half_widths", "run_until"]

LEAST = 10  # seeds; the spread of fewer is not known well enough


def run_until(
    study: Plan, out: Path, until: float, max_seeds: int, *, quiet: bool, **options: Any
) -> Results:
    """Run a study with more and more seeds, until the widest interval is narrow.

    Parameters
    ----------
    study : Study
        What to run; its seeds come first.
    out : Path
        Directory of the store.
    until : float
        Half the width of the intervals, as a share of the optimal value.
    max_seeds : int
        Number of seeds at which to stop in any case.
    quiet : bool
        Show no progress.
    **options
        As for `run_studies`.

    Returns
    -------
    Results
        The results with all seeds.
    """
    if not 0 < until < math.inf:
        raise StudyError(f"until must be a number > 0, got {until!r}")
    seeds = list(study.seeds)
    while True:
        n = len(seeds)
        part = study.on_seeds(seeds, study.name) if seeds != list(study.seeds) else study
        (results,) = run_studies([part], out, quiet=quiet, **options)
        widths = half_widths(results)
        name, width = max(widths.items(), key=lambda item: item[1], default=("", 0.0))
        enough = n >= LEAST and width <= until
        if not quiet:
            known = f"{n} seeds: the mean of {name} is known to ±{width:.3g}"
            print(known if widths else f"{n} seeds: no run is finished", file=sys.stderr)
        if enough or not widths or n >= max_seeds or results.failed:
            return results
        wanted = max(n * (width / until) ** 2, LEAST)  # the width shrinks like the square root
        new = min(math.ceil(min(max(wanted, n + 1), max(2 * n, LEAST))), max_seeds) - n
        seeds += range(max(seeds) + 1, max(seeds) + 1 + new)


def half_widths(results: Results) -> dict[str, float]:
    """Return half the width of the interval of each agent in each panel, by their names.

    It is that of the mean return at the end, as a share of the optimal value, and holds for all
    numbers of seeds at once. It is computed as if one more run had returned 0: ten good runs do not
    exclude that one in ten fails.
    """
    finals: dict[str, list[float]] = {}
    for setting, row in results.done:
        best = abs(row.optimal) if row.optimal else 1.0
        finals.setdefault(f"{setting.label}, {setting.panel}", []).append((row.final or 0.0) / best)
    return {name: statistics.anytime(np.array([*values, 0.0])) for name, values in finals.items()}
