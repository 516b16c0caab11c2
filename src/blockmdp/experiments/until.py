"""How many seeds are enough: add seeds until all means are known well."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

from blockmdp.experiments import statistics
from blockmdp.experiments.driver import Options, run_studies
from blockmdp.experiments.errors import StudyError
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.results import Results

__all__ = ["half_widths", "run_until"]

LEAST = 10  # seeds; the spread of fewer is not known well enough


def run_until(study: Plan, out: Path, until: float, max_seeds: int, options: Options) -> Results:
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
    options : Options
        How to run it.

    Returns
    -------
    Results
        The results with all seeds.
    """
    if not 0 < until < math.inf:
        raise StudyError(f"until must be a number > 0, got {until!r}")
    if study.seeds != study.whole.seeds:
        raise StudyError("until adds seeds, so --only cannot choose some")
    seeds = list(study.seeds)
    while True:
        n = len(seeds)
        part = study if n == len(study.seeds) else study.on_seeds(seeds, study.name)
        (results,) = run_studies([part], out, options)
        widths = half_widths(results)
        if not widths:
            return results
        name, width = max(widths.items(), key=lambda item: item[1])
        known = f"{n} seeds: the mean of {name} is known to ±{width:.3g} of the optimal value"
        if n >= LEAST and width <= until:
            _say(f"{known}, and all others as well", options.quiet)
            return results
        if results.failed or n >= max_seeds:
            why = "since runs failed" if results.failed else "at --max-seeds"
            print(f"{known}, not to ±{until:g}; stopped {why}", file=sys.stderr)
            return results
        _say(known, options.quiet)
        wanted = max(n * (width / until) ** 2, LEAST)  # the width shrinks like the square root
        new = min(math.ceil(min(max(wanted, n + 1), max(2 * n, LEAST))), max_seeds) - n
        seeds += range(max(seeds) + 1, max(seeds) + 1 + new)


def _say(line: str, quiet: bool) -> None:
    if not quiet:
        print(line, file=sys.stderr)


def half_widths(results: Results) -> dict[str, float]:
    """Return half the width of the interval of each agent in each panel, by their names.

    It is that of the mean return at the end, as a share of the optimal value, and holds for all
    numbers of seeds at once. It is computed as if one more run had returned 0: ten good runs do not
    exclude that one in ten fails.

    Raises
    ------
    StudyError
        If the optimal value of a problem is unknown, or not positive.
    """
    finals: dict[str, list[float]] = {}
    for setting, row in results.done:
        if row.optimal is None or row.optimal <= 0:
            raise StudyError(
                f"until needs a positive optimal value, but that of {setting.panel} is "
                f"{'unknown' if row.optimal is None else row.optimal}"
            )
        share = (row.final or 0.0) / row.optimal
        finals.setdefault(f"{setting.label}, {setting.panel}", []).append(share)
    return {name: statistics.anytime(np.array([*values, 0.0])) for name, values in finals.items()}
