"""Measure large studies: reading a store of many settings, and what a tiny run costs.

`python -m benchmarks.scale` does 5,000 and 20,000 runs of a millisecond each on two processes, and
prints what the driver adds to each run, and its memory. Then it makes a store of 100,000 settings,
and prints the CPU time of the commands that read it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from blockmdp.experiments import Study
from blockmdp.experiments.outcome import Curve, Outcome, Values
from blockmdp.experiments.store import Store

GRID = """seeds = 1
episodes = 2000
[problem]
name = "lock_bernoulli"
horizon = 3
switch = {switch}
[agent]
name = "Tabular"
[agent.learner]
name = "OracleQ"
lr = {rates}
bonus = {rates}
"""
TINY = """
import resource, sys, time
from blockmdp.experiments import Study
study = Study({"seeds": int(sys.argv[1]), "episodes": 1, "solved": {"window": 1},
               "problem": {"name": "lock_bernoulli", "horizon": 1},
               "agent": {"name": "Tabular", "on": "latent"}})
before = resource.getrusage(resource.RUSAGE_SELF)
start = time.perf_counter()
results = study.run(sys.argv[2], jobs=2, quiet=True)
more = time.perf_counter() - start - sum(row.seconds for _, row in results.done) / 2
after = resource.getrusage(resource.RUSAGE_SELF)
used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
print(f"{1e3 * used / len(study):.2f} ms of CPU time for each run, "
      f"{1e3 * more / len(study):.2f} ms more than the run itself, {after.ru_maxrss // 1024} MB")
"""
COMMAND = "import sys; from _blockmdp_command import main; sys.exit(main())"  # as installed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the size")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        for n in (50, 200) if quick else (5_000, 20_000):
            command = [sys.executable, "-c", TINY, str(n), str(Path(folder) / str(n))]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print(f"driver of {n} runs: {done.stdout.strip()}")
        file, out = Path(folder) / "large.toml", Path(folder) / "out"
        rates = [round(0.1 + 1e-4 * i, 4) for i in range(10 if quick else 100)]
        switch = [round(0.1 + 0.01 * i, 2) for i in range(10)]
        file.write_text(GRID.format(switch=switch, rates=rates))
        _fill(out, Study.load(file))
        print("CPU seconds")
        for words in (["status", out], ["table", out], ["run", file, "--dry-run"]):
            print(f"  blockmdp {words[0]}{' --dry-run' * (words[0] == 'run')}: {_cpu(*words):.2f}")


def _fill(out: Path, study: Study) -> None:
    """Make a store in which all runs are done."""
    n = np.arange(1, 201) * 10
    curve, values = Curve(n, n, n * 0.5).to_bytes(), Values(n[::10], n[::10] * 0.1).to_bytes()
    numbers = {"average": 0.4, "final": 0.5, "solved_at": 1000, "optimal": 0.5, "value": 0.5}
    outcome = Outcome(**numbers, trajectories=2000, curve=curve, values=values, seconds=0.1)
    with Store(out, write=True) as store:
        store.register(study)
        for run in study.runs():
            store.add(run, outcome)


def _cpu(*words: object) -> float:
    """Return the CPU time of a command, in user mode."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [sys.executable, "-c", COMMAND, *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


if __name__ == "__main__":
    main()
