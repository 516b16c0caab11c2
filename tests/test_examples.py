"""The examples run, as they stand, with warnings as errors, and print what they promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def run(path: Path) -> str:
    command = [sys.executable, "-W", "error", path.name]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_an_example_runs(path):
    assert run(path).strip()


def test_the_corridor_is_learnt_to_its_optimum():
    optimum, learnt = map(
        float,
        re.findall(r"\d\.\d+", run(EXAMPLES[0].parent / "own_problem.py").split("optimum")[1])[:2],
    )
    assert learnt == pytest.approx(optimum, abs=0.02)


def test_the_black_box_is_solved_behind_noise():
    true, noisy = map(float, re.findall(r"\d\.\d\d", run(EXAMPLES[0].parent / "black_box.py")))
    assert true == 1.0
    assert noisy >= 0.95
