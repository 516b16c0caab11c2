"""Measure single runs of the paper's figures: `python -m benchmarks.paper`.

It prints the CPU time of a run of each agent at each horizon (switch 0.2), and a digest of what the
runs found. To compare two versions, run it in both: the same digests mean the same results.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from typing import Any

FIGURES = ("figure1", "figure2", "figure3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each agent")
    parser.add_argument("--switch", type=float, default=0.2, help="of the locks")
    parser.add_argument("--only", default="", help="a part of the label of the agents to run")
    args = parser.parse_args()
    for library in ("OMP", "OPENBLAS", "MKL"):  # before numpy is imported, as in a worker
        os.environ[f"{library}_NUM_THREADS"] = "1"

    from blockmdp.experiments import Study
    from blockmdp.experiments.runs import execute
    from blockmdp.paper.reproduce import studies_folder

    for figure in FIGURES:
        for setting in Study.load(studies_folder() / f"{figure}.toml").settings:
            problem = setting.problem
            if problem["switch"] != args.switch or args.only not in setting.label:
                continue
            config = {"problem": problem, "agent": setting.agent}
            config |= {"episodes": setting.episodes, "solved": setting.solved}
            execute(config, 10**6)  # loads compiled code
            start = time.process_time()
            outcomes = [execute(config, seed) for seed in range(args.seeds)]
            ms = 1e3 * (time.process_time() - start) / args.seeds
            name = f"{figure}, H = {problem['horizon']:2}, {setting.label}"
            print(f"{name:36} {ms:7.0f} ms  {_digest(outcomes)}", flush=True)


def _digest(outcomes: list[Any]) -> str:
    """Return a hash of all that does not depend on the clock or the machine."""
    found = [vars(each) | {"seconds": 0.0, "environment": {}} for each in outcomes]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
