"""How many seeds are enough: intervals that hold when one stops, and studies that grow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from faults import InProcess

from blockmdp.experiments import Results, Study, StudyError, driver
from blockmdp.experiments.statistics import anytime
from blockmdp.experiments.until import half_widths

DOCUMENT = {
    "seeds": 4,
    "episodes": 60,
    "solved": {"window": 20},
    "problem": {"name": "lock_bernoulli", "horizon": 2},
    "agent": [{"name": "Tabular", "label": "skyline"}],
}


@pytest.fixture
def executor(monkeypatch):
    made = InProcess()
    monkeypatch.setattr(driver, "make_executor", lambda *_: made)
    return made


def test_the_half_width_is_that_of_the_paper():
    values = np.array([1.0, 2.0, 4.0, 5.0])
    square = (-2 * math.log(0.05) + math.log(-2 * math.log(0.05) + 1)) / 50
    inside = 2 * (4 * square + 1) / (16 * square) * math.log(math.sqrt(4 * square + 1) / 0.05)
    assert anytime(values) == pytest.approx(math.sqrt(10 / 3) * math.sqrt(inside))
    assert anytime(10 * values) == pytest.approx(10 * anytime(values))
    assert anytime(values, 0.99) > anytime(values) > anytime(np.tile(values, 5))


def stops_at(values, until, width):
    """Double the number of values until they are known well; return the mean of these."""
    n = 10
    while width(values[:n]) > until and n < len(values):
        n *= 2
    return values[:n].mean()


def test_who_stops_when_the_interval_is_narrow_is_right():
    wrong = {"ordinary": 0, "anytime": 0}
    for seed in range(300):
        good = (np.random.default_rng(seed).random(1280) < 0.9).astype(float)  # one in ten fails
        for name, width in {
            "ordinary": lambda x: 1.96 * x.std() / math.sqrt(len(x)),
            "anytime": lambda x: anytime(np.append(x, 0.0)),
        }.items():
            wrong[name] += abs(stops_at(good, 0.05, width) - 0.9) > 0.05
    assert wrong["anytime"] <= 9 < 75 <= wrong["ordinary"]  # of 300, where 15 are allowed


def test_a_study_grows_until_its_means_are_known(tmp_path, executor, capsys):
    results = Study(DOCUMENT, "grows").run(tmp_path, until=0.2)
    n = len(results.study.seeds)
    assert results.study.seeds == list(range(n))
    assert len(executor.runs) == n > 10
    (width,) = half_widths(results).values()
    assert width <= 0.2
    rows = [row.final / 0.5 for _, row in results.done]
    assert width == anytime(np.array([*rows, 0.0]))
    lines = [line for line in capsys.readouterr().err.splitlines() if "known to" in line]
    assert lines[0].startswith("4 seeds: the mean of skyline, ")
    assert lines[-1].startswith(f"{n} seeds: ")
    again = Study(DOCUMENT, "grows").run(tmp_path, until=0.2, quiet=True)
    assert len(executor.runs) == n  # nothing is repeated
    assert again.study.seeds == results.study.seeds
    assert len(Results(tmp_path).study) == n


def test_a_part_of_a_study_grows_and_the_rest_remains(tmp_path, executor):
    agents = [*DOCUMENT["agent"], {"name": "Tabular", "learner": "QLearning", "label": "other"}]
    study = Study(DOCUMENT | {"agent": agents}, "parts")
    study.run(tmp_path, quiet=True)
    study.only(["agent=skyline"]).run(tmp_path, until=0.3, quiet=True)
    found = Results(tmp_path)
    runs = {s.agent: s.runs for s in found.summaries()}
    assert runs["other"] == 4 < runs["skyline"] == len(found.study.seeds)
    with pytest.raises(StudyError, match="--only cannot choose some"):
        study.only(["seed=1"]).run(tmp_path, until=0.3)


def test_until_needs_a_scale(tmp_path, executor):
    lake = {"name": "FrozenLake-v1", "is_slippery": False}
    agent = [{"name": "URL", "oracle": "pca_kmeans"}]
    study = Study(DOCUMENT | {"problem": lake, "agent": agent, "seeds": 1}, "lake")
    with pytest.raises(StudyError, match=r"a positive optimal value, but that of .* is unknown"):
        study.run(tmp_path, until=0.1, quiet=True)


def test_a_study_stops_growing_at_max_seeds_and_at_failures(tmp_path, executor, capsys):
    results = Study(DOCUMENT | {"seeds": [7, 3]}, "most").run(
        tmp_path / "a", until=0.01, max_seeds=12, quiet=True
    )
    assert results.study.seeds == [7, 3, *range(8, 18)]
    assert "not to ±0.01; stopped at --max-seeds" in capsys.readouterr().err
    (tmp_path / "fails_now.py").write_text(
        "class Agent:\n    def fit(self, problem, episodes, seed=0):\n        1 / 0\n"
    )
    fails = Study(DOCUMENT | {"agent": [{"name": "fails_now:Agent"}]}, folder=tmp_path)
    assert len(fails.run(tmp_path / "b", until=0.1, quiet=True).failed) == 4
    with pytest.raises(StudyError, match="until must be a number > 0, got 0"):
        fails.run(tmp_path / "c", until=0)


def test_how_many_perfect_runs_are_enough():
    def known(n):
        return anytime(np.array([1.0] * n + [0.0]))

    for until, n in ((0.1, 30), (0.05, 60), (0.02, 154)):  # as docs/experiments/studies.md says
        assert known(n) <= until < known(n - 1)
