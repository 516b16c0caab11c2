"""Every example runs, with warnings as errors, and shows what its text says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}


def floats(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


def check_corridor(shown: str) -> None:
    optimum, learnt = floats(shown.partition("optimum ")[2])[:2]
    assert learnt == pytest.approx(optimum, abs=0.02)


def check_lake(shown: str) -> None:
    true, noisy = floats(shown)[:2]
    assert true == 1.0
    assert noisy >= 0.95


def check_comparison(shown: str) -> None:
    values = dict(re.findall(r"(\w+): value (\d\.\d+)", shown))
    assert all(float(values[name]) == 1.0 for name in ("states", "OnlineURL", "URL"))
    assert float(values["PCID"]) < 0.9


def check_held_out_images(shown: str) -> None:
    learnt, optimum, held_out = floats(shown)[-3:]
    assert min(learnt, held_out) >= 0.9 * optimum


CHECKS = {
    "own_problem": check_corridor,
    "frozen_lake": check_lake,
    "compare_agents": check_comparison,
    "held_out_images": check_held_out_images,
    "debug_learner": lambda shown: shown.index("Broken: value 0.000"),
    "own_incremental_oracle": lambda shown: shown.index("accuracy 1.000, value 0.500"),
    "own_oracle": lambda shown: shown.index("accuracy 1.000, value 0.500"),
    "save_and_act": lambda shown: shown.index("mean return of 200 episodes: 0.4"),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_draws_a_picture(name, monkeypatch, tmp_path, capsys):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    try:
        variables = runpy.run_path(str(EXAMPLES[name]), run_name="__main__")
        assert plt.get_fignums() or any(isinstance(value, Figure) for value in variables.values())
    finally:
        plt.close("all")
    assert list(tmp_path.iterdir()) == [], "an example must leave no files behind"
    shown = capsys.readouterr().out
    assert shown.strip()
    CHECKS.get(name, str)(shown)


def test_every_example_has_its_place_in_the_gallery():
    listed = re.search(r"^EXAMPLES = \((.*?)^\)", (ROOT / "docs/conf.py").read_text(), re.M | re.S)
    assert listed
    assert set(re.findall(r'"(\w+)"', listed[1])) == set(EXAMPLES)
