"""The paper's reproduction: its claims, its figures, and the report in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from blockmdp.cli import main
from blockmdp.experiments import Results, Study
from blockmdp.experiments.statistics import wilson
from blockmdp.paper.claims import Claim, _at_least, as_text, claims_of, horizon_slopes
from blockmdp.paper.reproduce import FIGURES, PARTS, naive_seconds, studies_folder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    """Figure 1 and the study of longer horizons, one seed."""
    out = tmp_path_factory.mktemp("paper")
    arguments = ["--seeds", "1", "--only", "fig1,horizon", "--out", str(out), "--jobs", "2"]
    assert main(["reproduce", *arguments, "--quiet"]) == 0
    return out


# --- the study files ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PARTS.values())
def test_a_study_file_of_the_paper_is_in_order(name):
    study = Study.load(studies_folder() / f"{name}.toml")
    assert study.seeds == list(range(10 if name == "horizon" else 50))
    if name in FIGURES:
        assert len(study.panels) == 9
        labels = {setting.base for setting in study.settings}
        expected = {"URL", "URL untuned", "PCID", "OracleQ-lat", "QLearning-lat"}
        assert labels == expected | (
            {"OracleQ-obs", "QLearning-obs"} if name == "figure1" else set()
        )
        per_panel = {(s.panel, s.base) for s in study.settings}
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
        *("holds |", "does not hold |", "cannot be told |")
    ]


@pytest.mark.parametrize(
    ("solved", "verdict"), [(50, True), (43, None), (30, False)], ids=["all", "some", "few"]
)
def test_a_share_is_reached_only_if_its_whole_interval_says_so(solved, verdict):
    assert _at_least(0.9, *wilson(solved, 50)) is verdict
    assert _at_least(0.9, *wilson(2, 2)) is None  # two runs prove nothing


def test_claims_are_measured_on_the_runs(reproduction):
    figure = Results(reproduction, "figure1")
    claims = {claim.says: claim for claim in claims_of({"figure1": figure})}
    near = claims[
        "LockBernoulli, H = 20, switch 0.2 and 0.5: URL is near-optimal with probability 80%"
    ]
    finals = [
        row.final
        for setting, row in figure.done
        if setting.base == "URL"
        and setting.problem["horizon"] == 20
        and setting.problem["switch"] > 0
    ]
    assert len(finals) == 2
    assert near.measured.startswith(f"{sum(f >= 0.45 for f in finals)} of 2 runs")
    assert any("PCID" in says for says in claims)
    text = (reproduction / "claims.md").read_text()
    assert text == as_text(list(claims.values())) + "\n"


def test_growth_with_the_horizon_is_the_slope_of_logarithms(reproduction):
    rows = horizon_slopes(Results(reproduction, "horizon"))
    assert {row["agent"] for row in rows} == {"URL untuned", "OracleQ-lat"}
    for row in rows:
        assert row["H"] == [5, 10, 20, 40, 80]
        assert row["solved"] == ["1 of 1"] * 5
        slope = np.polyfit(np.log(row["H"]), np.log(row["trajectories"]), 1)[0]
        assert row["slope"] == pytest.approx(slope)
        assert 0.5 < row["slope"] < 1.5


def test_a_naive_loop_would_take_its_time_for_every_step(reproduction):
    rows = Results(reproduction, "figure1").done
    lat = [(s, row) for s, row in rows if s.base == "OracleQ-lat" and s.problem["horizon"] == 20]
    steps = sum(row.trajectories * 20 for _, row in lat)
    assert 1e3 < steps / naive_seconds(lat) < 1e6  # steps a second
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


# --- the report in a browser ----------------------------------------------------------------------
@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("needs Chromium: on Debian, apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def opened(browser, report: Path, **options):
    """A page with the report, what it asked for, and what it complained of."""
    page = browser.new_page(**options)
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(report.as_uri())
    return page, requests, complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "viewport",
    [{"width": 1280, "height": 800}, {"width": 390, "height": 844}],
    ids=["laptop", "phone"],
)
def test_the_report_opens_from_disk_and_draws_every_trace(browser, reproduction, viewport, scheme):
    report = reproduction / "report.html"
    page, requests, complaints = opened(browser, report, viewport=viewport, color_scheme=scheme)
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
    assert page.locator("#figure1 .panel").count() == 9
    assert page.locator("#figure1 .trace").count() == 9 * 7
    assert page.locator("h2").count() >= 5
    wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert not wide  # nothing to scroll sideways
    page.close()


def test_agents_can_be_hidden_the_y_axis_changed_and_values_read(browser, reproduction):
    page, _, complaints = opened(browser, reproduction / "report.html")
    page.click("#figure1 button[data-agent='PCID']")
    assert page.locator("#figure1 .trace").count() == 9 * 6
    assert page.locator("#figure1 .trace[data-agent='PCID']").count() == 0
    page.click("#figure1 button[data-agent='PCID']")
    trace = page.locator("#figure1 .panel .trace[data-agent='URL']").first
    before = trace.get_attribute("d")
    page.click("#figure1 button[data-y='sliding']")
    assert (
        page.locator("#figure1 .panel .trace[data-agent='URL']").first.get_attribute("d") != before
    )
    page.locator("#figure1 .panel svg").first.hover()
    tip = page.locator("#figure1 .tip").first
    assert tip.is_visible()
    assert re.search(r"trajectories", tip.inner_text())
    assert len(tip.inner_text().splitlines()) == 8
    assert complaints == []
    page.close()


def test_the_report_s_data_are_the_results(reproduction):
    text = (reproduction / "report.html").read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    (figure,) = data["figures"]
    panel = figure["panels"][0]
    results = Results(reproduction, "figure1")
    drawn = results.panels("average")[0]
    assert panel["title"].startswith(drawn.title)
    for shown, curve in zip(panel["curves"], drawn.curves):
        assert shown["agent"] == curve.label
        assert shown["average"] == pytest.approx(curve.mean, abs=1e-4)
