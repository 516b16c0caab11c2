"""The report of any study: what it contains, and how it behaves in a real browser."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import re
import tomllib

import numpy as np
import pytest
from faults import InProcess
from pages import draw_all, opened

from blockmdp.cli import main
from blockmdp.experiments import Results, Study, driver, reporting
from blockmdp.experiments.errors import StoreError
from blockmdp.experiments.outcome import Curve, Decoding, Outcome, Values
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.runs import _commit
from blockmdp.experiments.settings import Setting
from blockmdp.experiments.store import Store

EVIL = "</script><img src=x onerror=alert(1)>"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SOLVED = {"share": 0.9, "above": None, "window": 20}
ENVIRONMENT = {"python": "3.11", "blockmdp": "0.2", "host": "secret"}
DOCUMENT = {
    "seeds": 3,
    "episodes": 300,
    "solved": {"window": 50},
    "problem": {"name": "lock_bernoulli", "horizon": [2, 3]},
    "agent": [{"name": "URL", "batch": 20}, {"name": "Tabular", "learner": ["OracleQ", "UCBVI"]}],
}


class Page(html.parser.HTMLParser):
    """Tags, ids and links of a page; the content of scripts is not parsed, as in a browser."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links = set(), [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.add(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links |= {found["href"]} if "href" in found else set()


def data_of(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[1])


def fill(directory, name="study", *, panels=("H = 2",), agents=("URL",), seeds=3, **more):
    """Store a study that was never run; more: fields of outcomes by name."""
    settings = [
        Setting({"name": "x", "p": p}, {"name": "y", "a": a}, 30, SOLVED, panel, agent, agent, a)
        for p, panel in enumerate(panels)
        for a, agent in enumerate(agents)
    ]
    document = {"seeds": seeds, "agent": [{"name": name, "label": label} for label in agents]}
    plan = Plan(name, None, document, range(seeds), settings)
    n = np.arange(1, 31)
    with Store(directory, write=True) as store:
        store.register(plan)
        for i, run in enumerate(plan.runs()):
            total = np.cumsum(np.full(30, 0.1 * (1 + i % 5)))
            given = {
                "average": 0.5,
                "final": 0.5,
                "solved_at": 20,
                "trajectories": 30,
                "ledger": {"learn": 30},
                "curve": Curve(n, n, total).to_bytes(),
                "environment": ENVIRONMENT,
            } | more
            store.add(run, Outcome(**given))
    return Results(directory, name)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A study that was run, with a report."""
    out = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "make_executor", InProcess)
        Study(DOCUMENT, "locks").run(out, quiet=True)
    assert main(["report", str(out)]) == 0
    return out


# --- content --------------------------------------------------------------------------------------
def test_every_link_of_the_report_leads_somewhere(store):
    text = (store / "locks-report.html").read_text()
    page, data = Page(text), data_of(store / "locks-report.html")
    drawn = {panel["id"] for figure in data["figures"] for panel in figure["panels"]}
    assert len(drawn) == 2 + 2  # learning curves, and decoders
    assert len(page.ids) == len(set(page.ids))
    anchors = {link[1:] for link in page.links if link.startswith("#")}
    assert anchors <= set(page.ids) | drawn
    assert drawn <= anchors  # the contents list them
    headings = set(re.findall(r"<h[23] id='([^']*)'", text))
    assert {"about", "locks", "locks-curves", "locks-table", "locks-kinds"} <= headings <= anchors
    assert not [link for link in page.links if not link.startswith(("#", "data:,"))]


def test_the_report_contains_the_results(store):
    results = Results(store)
    curves, decoders = data_of(store / "locks-report.html")["figures"]
    ys = {"average": 0.5, "sliding": 0.5, "value": 0.5, "regret": 0.5, "accuracy": 1.0}
    for y, best in ys.items():
        figure = decoders if y == "accuracy" else curves
        for shown, panel in zip(figure["panels"], results.panels(y), strict=True):
            assert shown["title"] == panel.title
            assert shown["optimum"] == best
            for drawn, curve in zip(shown["curves"], panel.curves, strict=True):
                line = drawn["y"][y]
                assert (drawn["agent"], drawn["seeds"]) == (curve.label, [0, 1, 2])
                assert line["x"] == line["few"] == [round(x) for x in curve.x.tolist()]
                assert line["mean"] == pytest.approx(curve.mean, rel=1e-4)
                assert line["std"] == pytest.approx(curve.std, rel=1e-4)
                assert np.array(line["runs"]) == pytest.approx(curve.runs, rel=1e-4)


def test_the_report_has_facts_the_table_and_the_study_file(store):
    text = (store / "locks-report.html").read_text()
    for words in ("18 of 18 runs done", "2 problems, 3 agents, 3 seeds", "numpy", "commit"):
        assert words in text
    files = data_of(store / "locks-report.html")["files"]
    assert files["locks-table"]["text"] == Results(store).table("csv") + "\n"
    assert files["locks-study"]["name"] == "locks.toml"
    assert tomllib.loads(files["locks-study"]["text"]) == DOCUMENT
    head = ["problem", "agent", "solved", "at", "final", "value", "accuracy"]
    assert "".join(f"<th>{name}</th>" for name in head) in text
    assert Results(store).table("markdown").splitlines()[0] == f"| {' | '.join(head)} |"


def test_an_unknown_value_makes_no_empty_column_and_reasons_are_given(tmp_path):
    fill(tmp_path, solved_at=None).report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "<th>value</th>" not in text
    assert "n/a: the optimal value is unknown" in text
    (curve,) = data_of(tmp_path / "report.html")["figures"][0]["panels"][0]["curves"]
    assert set(curve["y"]) == {"average", "sliding"}


def test_the_report_shows_where_decoders_err_if_there_are_any(store, tmp_path):
    text = (store / "locks-report.html").read_text()
    assert "<h3 id='locks-decoders'>Where the decoder errs" in text
    _, decoders = data_of(store / "locks-report.html")["figures"]
    assert [curve["agent"] for curve in decoders["panels"][0]["curves"]] == ["URL"]
    assert decoders["panels"][0]["curves"][0]["y"]["accuracy"]["x"] == [0, 1, 2]
    fill(tmp_path).report(tmp_path / "report.html")
    assert "decoder errs" not in (tmp_path / "report.html").read_text()
    assert len(data_of(tmp_path / "report.html")["figures"]) == 1
    long = Decoding(np.full(1000, 3), np.linspace(1, 0.5, 1000))
    fill(tmp_path, "long", accuracy=0.5, decoding=long.to_bytes()).report(tmp_path / "long.html")
    line = data_of(tmp_path / "long.html")["figures"][1]["panels"][0]["curves"][0]["y"]["accuracy"]
    assert (len(line["x"]), line["x"][-1], line["mean"][-1]) == (200, 999, 0.5)


def test_partial_results_and_failed_runs_are_shown(tmp_path):
    results = fill(tmp_path, agents=("good", "bad"), seeds=2)
    failed = Outcome(error="Traceback (most recent call last):\n  <b>code\nRuntimeError: no <luck>")
    with Store(tmp_path, write=True) as store:
        keys = [row.key for setting, row in results.rows if setting.label == "bad"]
        store._connection.execute("DELETE FROM runs WHERE key IN (?, ?)", keys)
        runs = [run for run in results.study.runs() if run.setting.label == "bad"]
        store.add(runs[0], failed)
    Results(tmp_path).report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "2 of 4 runs done, 1 failed, 1 to do" in text
    assert "H = 2 | bad | seed 0: RuntimeError: no &lt;luck&gt;" in text
    assert "  &lt;b&gt;code" in text


def test_a_study_without_finished_runs_has_a_report(tmp_path):
    results = fill(tmp_path, error="killed", environment={})
    results.report(tmp_path / "report.html")
    assert "No run is finished yet" in (tmp_path / "report.html").read_text()


def test_no_text_of_a_store_becomes_code(tmp_path):
    kinds = {"learn": 30, EVIL: 1}
    names = {"panels": (EVIL,), "agents": (EVIL, "=cmd()"), "ledger": kinds}
    fill(tmp_path, EVIL, **names, environment={EVIL: EVIL, "host": "secret"})
    fill(tmp_path, EVIL + "2", agents=(EVIL,), error=EVIL)
    assert main(["report", str(tmp_path), "--study", "all"]) == 0
    text = (tmp_path / "studies-report.html").read_text()
    page = Page(text)
    assert "img" not in page.tags
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text
    assert "secret" not in text  # nor does a report tell names of machines
    figures = data_of(tmp_path / "studies-report.html")["figures"]
    assert figures[0]["study"] == figures[0]["panels"][0]["title"] == EVIL
    assert re.fullmatch(r"[\w-]+", figures[0]["id"], re.ASCII)
    assert main(["report", str(tmp_path), "--study", EVIL]) == 0
    assert {p.name for p in tmp_path.glob("*.html")} == {
        *("studies-report.html", f"{figures[0]['id']}-report.html")
    }


def test_numbers_that_json_does_not_know_are_left_out(tmp_path):
    n = np.array([1, 30])
    odd = Curve(n, n, n * np.nan).to_bytes()
    fill(tmp_path, curve=odd, optimal=0.5, values=Values(n, n * np.nan).to_bytes())
    Results(tmp_path).report(tmp_path / "report.html")
    (curve,) = data_of(tmp_path / "report.html")["figures"][0]["panels"][0]["curves"]
    assert curve["y"]["value"]["mean"] == [None, None]


def test_a_large_study_is_thinned_and_the_report_says_how(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "MAX_PANELS", 3)
    monkeypatch.setattr(reporting, "MAX_AGENTS", 2)
    monkeypatch.setattr(reporting, "MAX_NUMBERS", 1000)
    monkeypatch.setattr(reporting, "MAX_ROWS", 4)
    panels = [f"p = {i}" for i in range(5)]
    results = fill(tmp_path, panels=panels, agents="abc", seeds=4)
    results.report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    for words in (
        "Only the first 3 of 5 panels are drawn.",
        "A panel shows at most 2 agents.",
        "Curves are thinned to 23 points.",
        "Curves of single seeds are thinned to 20 points.",
        "The curves of 12 single runs are left out",
        "11 more rows are in the CSV file.",
    ):
        assert words in text
    (figure,) = data_of(tmp_path / "report.html")["figures"]
    assert [len(panel["curves"]) for panel in figure["panels"]] == [2, 2, 2]
    line = figure["panels"][0]["curves"][0]["y"]["average"]
    whole = results.panels()[0].curves[0]
    assert len(line["x"]) == 23
    assert (line["x"][0], line["x"][-1]) == (whole.x[0], whole.x[-1])
    assert (line["few"][0], line["few"][-1]) == (whole.x[0], whole.x[-1])
    assert (len(line["runs"]), len(line["runs"][0])) == (2, 20)


# --- the command ----------------------------------------------------------------------------------
def test_the_command_names_the_study_it_shows(tmp_path, capsys):
    for name in ("one", "two"):
        fill(tmp_path, name)
    assert main(["report", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'two-report.html'}\n"
    assert "this is the study two, one of 2" in err
    assert "1 of 2 in the store" in (tmp_path / "two-report.html").read_text()
    path = tmp_path / "new" / "folder" / "both.html"
    assert main(["report", str(tmp_path), "--study", "all", "--out", str(path)]) == 0
    assert [figure["id"] for figure in data_of(path)["figures"]] == ["one", "two"]


def test_a_file_that_cannot_be_written_gets_one_line(tmp_path, capsys):
    results = fill(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.html").mkdir()
    for name, status, words in (
        ("report.pdf", 2, "report.pdf: must end in .html"),
        ("file/report.html", 1, "; choose another file"),
        ("folder.html", 1, "Is a directory; choose another file"),
    ):
        assert main(["report", str(tmp_path), "--out", str(tmp_path / name)]) == status
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert words in err
    with pytest.raises(StoreError, match=r"must end in \.html"):
        results.report(tmp_path / "report.pdf")


# --- in a browser ---------------------------------------------------------------------------------
@pytest.mark.integration
def test_a_phone_shows_values_by_touch_and_needs_no_scrolling_sideways(browser, store):
    with opened(browser, store / "locks-report.html", **PHONE) as (page, requests, complaints):
        assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        picture = page.locator(".panel svg").first
        picture.scroll_into_view_if_needed()
        picture.tap()
        tip = page.locator(".tip").first
        assert tip.is_visible()
        lines = tip.inner_text().splitlines()
        assert lines[0].endswith("trajectories")
        assert len(lines) == 4
        box, inside = tip.bounding_box(), page.locator(".panel").first.bounding_box()
        assert box["x"] >= inside["x"] - 1
        assert box["x"] + box["width"] <= inside["x"] + inside["width"] + 1
        assert box["y"] + box["height"] <= inside["y"] + inside["height"]
        page.locator(".panel h4").first.tap()
        assert not tip.is_visible()
        small = page.evaluate(
            "[...document.querySelectorAll('button, a, summary')].filter(b => {"
            "const r = b.getBoundingClientRect(); return r.width < 24 || r.height < 24;"
            "}).map(b => b.outerHTML)"
        )
        assert small == []
        assert complaints == []
        assert [url for url in requests if not url.startswith("data:")] == [page.url]


@pytest.mark.integration
def test_a_phone_shows_the_accuracy_of_a_level_by_touch(browser, tmp_path):
    levels = Decoding(np.array([1, 3, 4]), np.array([1.0, 0.9, 0.25])).to_bytes()
    fill(tmp_path, agents=("URL", "PCID"), optimal=0.5, accuracy=0.25, decoding=levels)
    assert main(["report", str(tmp_path)]) == 0
    with opened(browser, tmp_path / "study-report.html", **PHONE) as (page, _, complaints):
        box = page.locator("#study-decoders-panel-1")
        picture, tip = box.locator("svg"), box.locator(".tip")
        picture.scroll_into_view_if_needed()
        page.wait_for_selector("#study-decoders-panel-1 .trace", state="attached")
        assert [t.text_content() for t in box.locator("text").all()][-2:] == [
            *("level", "accuracy of the decoder")
        ]
        middle = picture.bounding_box()["width"] * (58 + 146) / 360  # between the ends of the axis
        picture.tap(position={"x": middle, "y": 60})
        assert tip.inner_text().splitlines() == [
            *("level 1", "0.9 ± 0 (3 labels) URL", "0.9 ± 0 (3 labels) PCID")
        ]
        before = picture.inner_html()
        page.locator("button[data-toggle='log']").tap()
        page.locator("button[data-y='regret']").tap()
        assert box.locator(".trace").first.get_attribute("d") in before  # not for this figure
        picture.focus()
        for key, words in (("End", "level 2"), ("ArrowLeft", "level 1"), ("ArrowLeft", "level 0")):
            page.keyboard.press(key)
            assert tip.inner_text().splitlines()[0] == words
        page.locator("#study-decoders-figure button[data-agent='PCID']").tap()
        assert box.locator(".trace").count() == 1
        with page.expect_download() as found:
            page.locator("button[data-curves='study-decoders']").tap()
        rows = list(csv.DictReader(io.StringIO(found.value.path().read_text())))
        mine = [r for r in rows if (r["agent"], r["seed"]) == ("URL", "mean")]
        assert [(r["level"], r["value"]) for r in mine if r["quantity"] == "accuracy"] == [
            *(("0", "1"), ("1", "0.9"), ("2", "0.25"))
        ]
        assert complaints == []


@pytest.mark.integration
def test_buttons_change_all_figures_at_once(browser, tmp_path):
    for name in ("one", "two"):
        fill(tmp_path, name, agents=("URL", "PCID"), optimal=0.5)
    main(["report", str(tmp_path), "--study", "all"])
    with opened(browser, tmp_path / "studies-report.html") as (page, _, complaints):
        draw_all(page)
        marks = {kind: page.locator(f".{kind}") for kind in ("trace", "band", "seed")}

        def counted():
            return {kind: mark.count() for kind, mark in marks.items()}

        assert counted() == {"trace": 4, "band": 4, "seed": 0}
        page.click("#one-figure button[data-agent='PCID']")
        assert counted() == {"trace": 2, "band": 2, "seed": 0}
        pressed = page.locator("button[data-agent='PCID'][aria-pressed='false']")
        assert pressed.count() == 2
        page.click("button[data-toggle='seeds']")
        page.click("button[data-toggle='band']")
        assert counted() == {"trace": 2, "band": 0, "seed": 6}
        for button, words in (
            ("button[data-y='regret']", "regret"),
            ("button[data-toggle='log']", "training trajectories"),
        ):
            before = [mark.get_attribute("d") for mark in marks["trace"].all()]
            page.click(button)
            after = [mark.get_attribute("d") for mark in marks["trace"].all()]
            assert all(one != other for one, other in zip(before, after, strict=True))
            assert page.locator(f"#two-figure text:text-is('{words}')").count() == 1
        page.locator("#two-panel-1 svg").focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator("#two-panel-1 .tip").is_visible()
        assert complaints == []


@pytest.mark.integration
def test_downloads_hold_the_results(browser, store):
    def download(page, selector):
        with page.expect_download() as found:
            page.click(selector)
        return found.value.suggested_filename, found.value.path().read_text()

    results = Results(store)
    with opened(browser, store / "locks-report.html") as (page, _, complaints):
        name, text = download(page, "button[data-curves='locks']")
        assert name == "locks-curves.csv"
        rows = list(csv.DictReader(io.StringIO(text)))
        for y in ("average", "value"):
            for panel in results.panels(y):
                for curve in panel.curves:
                    here = (panel.title, curve.label, y)
                    mine = [r for r in rows if (r["panel"], r["agent"], r["quantity"]) == here]
                    means = [float(r["value"]) for r in mine if r["seed"] == "mean"]
                    assert means == pytest.approx(curve.mean, rel=1e-4)
                    last = [float(r["value"]) for r in mine if r["seed"] == "2"]
                    assert last == pytest.approx(curve.runs[2], rel=1e-4)
        assert download(page, "button[data-file='locks-study']")[0] == "locks.toml"
        assert download(page, "button[data-file='locks-table']")[1] == results.table("csv") + "\n"
        assert complaints == []


@pytest.mark.integration
def test_a_stranger_s_names_run_nothing_in_the_browser(browser, tmp_path):
    fill(tmp_path, EVIL, panels=(EVIL,), agents=(EVIL, "=cmd()"), environment={EVIL: EVIL})
    Results(tmp_path).report(tmp_path / "report.html")
    with opened(browser, tmp_path / "report.html") as (page, requests, complaints):
        alerts = []
        page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
        draw_all(page)
        page.locator(".panel svg").first.click()
        assert EVIL in page.locator(".tip").first.inner_text()
        with page.expect_download() as found:
            page.click("button[data-curves]")
        assert re.fullmatch(r"[\w.-]+", found.value.suggested_filename, re.ASCII)
        rows = list(csv.reader(io.StringIO(found.value.path().read_text())))
        assert {row[2] for row in rows[1:]} == {EVIL, "'=cmd()"}
        # the policy of the page runs no script but its own
        page.evaluate("document.body.insertAdjacentHTML('beforeend', '<b onclick=alert(1)>b</b>')")
        page.locator("b").last.click()
        assert alerts == []
        assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [page.url]
        assert all("Content Security Policy" in line for line in complaints)


@pytest.mark.integration
def test_many_panels_are_drawn_only_where_one_looks(browser, tmp_path):
    names = [f"agent {i}" for i in range(30)]
    results = fill(tmp_path, panels=[f"p = {i}" for i in range(60)], agents=names, seeds=1)
    results.report(tmp_path / "report.html")
    with opened(browser, tmp_path / "report.html") as (page, _, complaints):
        page.locator("#study-panel-1").scroll_into_view_if_needed()
        page.wait_for_selector("#study-panel-1 .trace", state="attached")
        filled = page.evaluate(
            "[...document.querySelectorAll('.panel svg')].filter(p => p.firstChild).length"
        )
        assert 0 < filled < 40
        assert page.locator("#study-panel-60 .trace").count() == 0
        page.locator("#study-panel-60").scroll_into_view_if_needed()
        page.wait_for_selector("#study-panel-60 .trace", state="attached")
        looks = page.evaluate(
            "[...document.querySelectorAll('#study-panel-60 .trace')].map("
            "t => t.getAttribute('stroke') + t.getAttribute('stroke-dasharray'))"
        )
        assert len(set(looks)) == len(looks) == 30
        assert page.locator("button[data-toggle='band']").count() == 0  # there is one seed
        page.locator("#study-panel-60 svg").hover()
        assert "and 22 more" in page.locator("#study-panel-60 .tip").inner_text()
        assert complaints == []


@pytest.mark.parametrize("kind", ["branch", "packed", "detached", "none"])
def test_the_commit_of_a_checkout_is_known(kind, tmp_path):
    commit, git = "0123456789ab" + "c" * 28, tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n" if kind != "detached" else commit)
    if kind == "branch":
        (git / "refs" / "heads" / "main").write_text(f"{commit}\n")
    elif kind == "packed":
        (git / "packed-refs").write_text(f"# pack\n{'d' * 40} refs/x\n{commit} refs/heads/main\n")
    found = {} if kind == "none" else {"commit": "0123456789ab"}
    assert _commit(tmp_path) == found
    assert _commit(tmp_path / "nowhere") == {}
