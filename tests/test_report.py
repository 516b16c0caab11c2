"""The paper's reproduction: its claims, its figures, and its report."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from faults import InProcess
from pages import draw_all, opened

from blockmdp.cli import main
from blockmdp.experiments import Results, Study, driver
from blockmdp.experiments.statistics import wilson
from blockmdp.paper import reproduce as paper
from blockmdp.paper.claims import (
    Claim,
    _at_least,
    _near_optimal,
    as_text,
    claims_of,
    horizon_slopes,
)
from blockmdp.paper.report import growth_section
from blockmdp.paper.reproduce import FIGURES, PARTS, naive_seconds, studies_folder

# Small studies with the panels and agents of the paper's.
FIGURE1 = """
seeds = 50
episodes = 4000
solved.window = 100
[problem]
name = "lock_bernoulli"
horizon = [5, 20]
switch = [0.2, 0.5]
[[agent]]
label = "URL"
name = "URL"
batch = 60
iterations = 1
test_batch = 0
oracle = { name = "pca_kmeans", n_init = 1 }
[[agent]]
label = "URL untuned"
name = "URL"
batch = 20
iterations = 2
[[agent]]
name = "PCID"
n = 40
[[agent]]
name = "Tabular"
on = ["latent", "observation"]
learner = ["OracleQ", "QLearning"]
"""
HORIZON = """
seeds = 50
episodes = 1500
solved.window = 100
[problem]
name = "lock_bernoulli"
horizon = [2, 4, 8]
[[agent]]
label = "URL untuned"
name = "URL"
[[agent]]
name = "Tabular"
"""
LABELS = ["URL", "URL untuned", "PCID", *(f"{q}-{on}" for q in ("OracleQ", "QLearning")
                                          for on in ("lat", "obs"))]  # fmt: skip


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    """What `blockmdp reproduce` writes for the small studies, with one seed."""
    out, studies = tmp_path_factory.mktemp("paper"), tmp_path_factory.mktemp("studies")
    (studies / "figure1.toml").write_text(FIGURE1)
    (studies / "horizon.toml").write_text(HORIZON)
    arguments = ["--seeds", "1", "--only", "fig1,horizon", "--out", str(out), "--quiet"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "make_executor", InProcess)
        patch.setattr(paper, "studies_folder", lambda: studies)
        assert main(["reproduce", *arguments]) == 0
    return out


@pytest.mark.slow
def test_the_paper_s_studies_run(tmp_path):
    arguments = ["--seeds", "1", "--only", "fig1,horizon", "--out", str(tmp_path), "--jobs", "2"]
    assert main(["reproduce", *arguments, "--quiet"]) == 0
    rows = horizon_slopes(Results(tmp_path, "horizon"))
    assert [row["solved"] for row in rows] == [["1 of 1"] * 5] * 4
    assert all(0.5 < row["slope"] < 1.5 for row in rows)


# --- the study files ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PARTS.values())
def test_a_study_file_of_the_paper_is_complete(name):
    study = Study.load(studies_folder() / f"{name}.toml")
    assert study.seeds == list(range(10 if name == "horizon" else 50))
    if name in FIGURES:
        assert len(study.panels) == 9
        labels = {setting.base_label for setting in study.settings}
        expected = {"URL", "URL untuned", "PCID", "OracleQ-lat", "QLearning-lat"}
        assert labels == expected | (
            {"OracleQ-obs", "QLearning-obs"} if name == "figure1" else set()
        )
        per_panel = {(s.panel, s.base_label) for s in study.settings}
        assert len(per_panel) == len(study.settings) == 9 * len(labels)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_s_settings_are_points_of_its_grid(name):
    tuned = Study.load(studies_folder() / f"{name}.toml")
    grid = Study.load(studies_folder() / "grids" / f"{name}.toml")
    assert {s.key for s in tuned.settings} <= {s.key for s in grid.settings}
    text = (studies_folder() / f"{name}.toml").read_text()
    assert f"# Made by: blockmdp tune studies/grids/{name}.toml" in text


# --- claims ---------------------------------------------------------------------------------------
def test_a_claim_s_verdict_is_in_words():
    table = as_text([Claim("a", "1", True), Claim("b", "2", False), Claim("c", "3", None)])
    assert [line.split(" | ")[-1] for line in table.splitlines()[2:]] == [
        *("holds |", "does not hold |", "undecided |")
    ]


@pytest.mark.parametrize(
    ("solved", "verdict"), [(50, True), (43, None), (30, False)], ids=["all", "some", "few"]
)
def test_a_fraction_is_reached_only_if_its_whole_interval_is_above(solved, verdict):
    assert _at_least(0.9, *wilson(solved, 50)) is verdict
    assert _at_least(0.9, *wilson(2, 2)) is None  # two runs do not decide it


def test_agents_without_arguments_are_compared_with_the_skyline(tmp_path):
    problem = {"name": "lock_bernoulli", "horizon": [5], "switch": [0.2, 0.5]}
    common = {"seeds": 2, "problem": problem, "solved": {"share": 0.8, "window": 50}}
    agents = [{"name": "URL"}, {"name": "OnlineURL"}]
    defaults = Study({**common, "episodes": 150, "agent": agents})
    latent = {"label": "OracleQ-lat", "name": "Tabular", "on": "latent"}
    skyline = Study({**common, "episodes": 1000, "agent": [latent]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "make_executor", InProcess)
        runs = [s.run(tmp_path / str(i), quiet=True) for i, s in enumerate((defaults, skyline))]
    claims = {claim.says: claim for claim in claims_of({}, None, *runs)}
    assert len(claims) == 4  # for each agent, one of all panels and one of H = 5
    every = claims["Our aim: URL() with no argument solves every seed of every panel"]
    assert every.measured == "4 of 4 runs in 2 panels"
    assert every.holds
    says = "Our aim: at H = 5, OnlineURL() needs at most 0.4 of the trajectories of OracleQ-lat"
    at = {s.agent: [] for r in runs for s in r.summaries()}
    for summary in (s for r in runs for s in r.summaries()):
        at[summary.agent].append(summary.solved_at)
    ratios = [a / b for a, b in zip(at["OnlineURL"], at["OracleQ-lat"])]
    assert claims[says].measured.startswith(f"ratio of medians from {min(ratios):.3f} to")
    assert claims[says].holds is (max(ratios) <= 0.4)
    assert len(claims_of({}, None, runs[0])) == 2  # without the skyline


def test_a_run_is_near_optimal_within_ten_percent():
    setting = SimpleNamespace(base_label="URL", problem={"horizon": 20, "switch": 0.2})
    finals = (0.5, 0.451, 0.449, 0.3)
    claim = _near_optimal([(setting, SimpleNamespace(final=f)) for f in finals], "Lock", 0.8)
    assert claim.measured.startswith("2 of 4 runs end within 10 %")


def test_claims_are_checked_on_the_runs(reproduction):
    figure = Results(reproduction, "figure1")
    claims = {claim.says: claim for claim in claims_of({"figure1": figure})}
    near = claims[
        "LockBernoulli, H = 20, switch 0.2 and 0.5: URL is near-optimal with probability 80%"
    ]
    finals = [
        row.final
        for setting, row in figure.done
        if setting.base_label == "URL"
        and setting.problem["horizon"] == 20
        and setting.problem["switch"] > 0
    ]
    assert len(finals) == 2
    assert near.measured.startswith(f"{sum(f >= 0.45 for f in finals)} of 2 runs")
    assert any("PCID" in says for says in claims)
    final = {(s.panel, s.agent): s for s in figure.summaries() if s.runs}
    for H in {s.problem["horizon"] for s, _ in figure.done}:
        says = f"H = {H}: URL is much better than QLearning-lat (the paper: especially at H = 20)"
        panels = [p for p in figure.study.panels if f"H = {H}," in p]
        lows = [final[p, "URL"].final_low for p in panels]
        highs = [final[p, "QLearning-lat"].final_high for p in panels]
        twice = [low > 2 * high for low, high in zip(lows, highs)]
        assert claims[says].holds is all(twice)
        assert f"in {sum(twice)} of {len(panels)} panels" in claims[says].measured
    text = (reproduction / "claims.md").read_text()
    assert text == as_text(list(claims.values())) + "\n"


def test_growth_with_the_horizon_is_the_slope_of_logarithms(reproduction):
    rows = horizon_slopes(Results(reproduction, "horizon"))
    assert [row["agent"] for row in rows] == ["URL untuned", "OracleQ-lat"]
    for row in rows:
        assert row["H"] == [2, 4, 8]
        assert row["solved"] == ["1 of 1"] * 3
        slope = np.polyfit(np.log(row["H"]), np.log(row["trajectories"]), 1)[0]
        assert row["slope"] == pytest.approx(slope)


def test_the_time_of_plain_python_is_proportional_to_the_steps(reproduction):
    rows = Results(reproduction, "figure1").done
    lat = [
        (s, row) for s, row in rows if s.base_label == "OracleQ-lat" and s.problem["horizon"] == 20
    ]
    steps = sum(row.trajectories * 20 for _, row in lat)
    assert 1e3 < steps / naive_seconds(lat) < 1e6  # steps per second
    assert naive_seconds(rows) > naive_seconds(lat)


def test_figures_tables_and_a_report_are_written(reproduction):
    names = {path.name for path in reproduction.iterdir()}
    for kind in ("png", "pdf", "svg"):
        assert {f"figure1.{kind}", f"figure1-sliding.{kind}"} <= names
    assert {"figure1.csv", "claims.md", "report.html"} <= names
    svg = (reproduction / "figure1.svg").read_text()
    assert "KMeans" in svg


def test_a_part_that_does_not_exist_is_refused_in_one_line(capsys, tmp_path):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "--only", "fig4", "--out", str(tmp_path)])
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "fig4" in err
    assert "fig1" in err


# --- the report -----------------------------------------------------------------------------------
def test_the_report_has_the_paper_s_sections(reproduction):
    text = (reproduction / "report.html").read_text()
    ids = set(re.findall(r"<h2 id='([^']*)'", text))
    assert ids == {"about", "claims", "figure1", "growth", "decoders", "settings", "rerun"}
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    figure, decoders = data["figures"]
    assert [len(decoders["panels"]), decoders["id"]] == [4, "figure1-decoders"]
    assert data["agents"][:2] == ["URL", "URL untuned"]  # the same colours in all figures
    titles = [panel["title"] for panel in figure["panels"]]
    assert titles == [f"H = {H}, switch = {s}, KMeans" for H in (5, 20) for s in (0.2, 0.5)]


def test_no_column_of_the_report_is_empty(reproduction):
    text = (reproduction / "report.html").read_text()
    tables = re.findall(r"<table[^>]*>(.*?)</table>", text, re.DOTALL)
    assert len(tables) > 8
    for table in tables:
        rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
        cells = cells[1:] if "<th>" in table else cells
        assert all(set(column) - {"", "-", "nan"} for column in zip(*cells)), table
    slopes = growth_section(horizon_slopes(Results(reproduction, "horizon"))).body
    assert slopes.count("<th>slope</th>") == 2  # not that of the seeds solved


@pytest.mark.integration
def test_the_paper_s_report_draws_every_trace(browser, reproduction):
    with opened(browser, reproduction / "report.html") as (page, requests, complaints):
        assert page.locator("#figure1-figure .panel").count() == 4
        draw_all(page)
        assert page.locator("#figure1-figure .trace").count() == 4 * 7
        assert page.locator(".decoders svg").count() == 3
        assert complaints == []
        assert [url for url in requests if not url.startswith("data:")] == [page.url]
