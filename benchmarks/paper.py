"""Measure what `make paper` computes, by agent: `python -m benchmarks.paper`.

It runs each of the 281 settings with one seed, and multiplies the CPU time by the number of seeds.
Run it twice: the first time it compiles. A digest tells whether two versions found the same.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections import Counter, defaultdict
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the runs (default: 0)")
    parser.add_argument("--only", default="", help="a part of the name of the agents to run")
    args = parser.parse_args()
    for library in ("OMP", "OPENBLAS", "MKL"):  # before numpy is imported, as in a worker
        os.environ[f"{library}_NUM_THREADS"] = "1"

    from blockmdp.experiments import Study
    from blockmdp.experiments.runs import execute
    from blockmdp.paper.reproduce import PARTS, studies_folder

    studies = [Study.load(studies_folder() / f"{part}.toml") for part in PARTS.values()]
    runs = {run.key: run for study in studies for run in study.runs()}
    n_seeds = Counter(run.setting.key for run in runs.values())
    settings = {run.setting.key: run.setting for run in runs.values()}
    seconds: dict[str, float] = defaultdict(float)
    n_runs: dict[str, int] = defaultdict(int)
    digests: dict[str, Any] = defaultdict(hashlib.sha256)
    begun = set()
    for key, setting in sorted(settings.items()):
        name = _name(setting.agent)
        if args.only not in name:
            continue
        config = {"problem": setting.problem, "agent": setting.agent}
        config |= {"episodes": setting.episodes, "solved": setting.solved}
        kind = name, setting.problem["name"]
        if kind not in begun:
            begun.add(kind)
            execute(config, 10**6)  # compiles, or loads compiled code
        start = time.process_time()
        outcome = execute(config, args.seed)
        seconds[name] += n_seeds[key] * (time.process_time() - start)
        n_runs[name] += n_seeds[key]
        digests[name].update(_facts(outcome))
    for name in sorted(seconds, key=lambda name: -seconds[name]):
        digest = digests[name].hexdigest()[:12]
        print(f"{name:32} {n_runs[name]:6} runs {seconds[name]:6.0f} s  {digest}")
    if not seconds:
        raise SystemExit(f"no agent has {args.only!r} in its name")
    print(f"{'all':32} {sum(n_runs.values()):6} runs {sum(seconds.values()):6.0f} s")


def _name(agent: dict[str, Any]) -> str:
    """Return how an agent differs from others, as far as its speed depends on that."""
    oracle = agent.get("oracle")
    oracle = oracle["name"] if isinstance(oracle, dict) else oracle
    parts = [agent["name"], agent.get("model"), oracle, agent.get("on")]
    return " ".join(part for part in parts if part)


def _facts(outcome: Any) -> bytes:
    """Return all that does not depend on the clock or the machine."""
    return repr(vars(outcome) | {"seconds": 0.0, "environment": {}}).encode()


if __name__ == "__main__":
    main()
