"""The documentation is true: its code runs and prints what the page says, and its commands, links
and names exist. Whether it builds is checked by `make docs`.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import blockmdp
from blockmdp import Study
from blockmdp.cli import _parser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = {"_build", "auto_examples", "generated", "backreferences"}  # by Sphinx
PAGES = [
    *sorted(page for page in DOCS.rglob("*.md") if BUILT.isdisjoint(page.parts)),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
BLOCK = re.compile(
    r"^(?P<skip><!-- not run: .+ -->\n)?"
    r"(?:```(?P<plain>\w+)\n|```\{code-block\} (?P<named>\w+)\n:caption: (?P<caption>\S+)\n+)"
    r"(?P<body>.*?)^```$(?:\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A fenced block. The caption is the name of a file, the output stands in a block below."""

    language: str
    body: str
    caption: str | None
    output: str | None
    line: int


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            m["plain"] or m["named"],
            m["body"],
            m["caption"],
            m["output"],
            text.count("\n", 0, m.start("body")),
        )
        for m in BLOCK.finditer(text)
        if (m["plain"] or m["named"]) in languages and not m["skip"]
    ]


@cache
def prose(page: Path) -> str:
    """A page without its blocks of code; directives stay."""
    kept, code, directives = [], "", [""]
    for line in page.read_text().splitlines():
        fence, info = re.fullmatch(r"(`{3,}|)(.*)", line).groups()
        if code:
            code = "" if line == code else code
        elif fence and info.startswith("{") and not info.startswith("{code-block}"):
            directives.append(fence)
            kept.append(line)
        elif fence and line == directives[-1]:
            directives.pop()
        elif fence:
            code = fence
        else:
            kept.append(line)
    return "\n".join(kept)


@pytest.mark.integration
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.stem
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # a study adds its folder
    namespace = {"__name__": "__main__"}
    for block in blocks(page, "python", "toml"):
        if block.caption:
            Path(block.caption).write_text(block.body)
        elif block.language == "python":
            capsys.readouterr()
            # numbered as in the page, for tracebacks
            code = compile("\n" * block.line + block.body, str(page), "exec", dont_inherit=True)
            exec(code, namespace)
            if block.output is not None:
                assert capsys.readouterr().out == block.output, f"{page.name}:{block.line}"


def test_the_study_files_of_the_pages_load(tmp_path):
    for page in PAGES:
        for block in blocks(page, "toml"):
            if block.caption:
                path = tmp_path / block.caption
                path.write_text(block.body)
                assert len(Study.load(path)) > 0


def test_the_commands_of_the_pages_are_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # --out makes its directory
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for block in blocks(page, "bash", "console"):
            for line in block.body.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                where = f"{page.name}:{block.line}: {line}"
                if words[:1] == ["make"]:
                    assert words[1] in targets, where
                elif words[:1] == ["blockmdp"] and words != ["blockmdp", "--version"]:
                    try:
                        _parser().parse_args(words[1:])
                    except SystemExit:
                        pytest.fail(where)
                elif words[:1] == ["python"] and words[1].endswith(".py"):
                    assert (ROOT / words[1]).is_file(), where


@cache
def anchors(page: Path) -> set[str]:
    """The names by which links and references reach the headings of a page."""
    heading = r"^(.+)\n[-=]{3,}$" if page.suffix == ".rst" else r"^#+ (.+)$"
    titles = re.findall(heading, prose(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    return {*plain, *re.findall(r"^\(([\w-]+)\)=$", prose(page), re.MULTILINE)}


def find(page: Path, target: str) -> Path:
    """The source of what a link or a directive names; scripts are the source of the gallery."""
    path = (DOCS / target[1:] if target.startswith("/") else page.parent / target).resolve()
    if DOCS / "auto_examples" in path.parents:
        name = re.fullmatch(r"(?:sphx_glr_)?(\w+?)(?:_\d{3})?", path.stem)[1]
        return ROOT / "examples" / ("GALLERY_HEADER.rst" if name == "index" else f"{name}.py")
    found = [path, path.with_name(f"{path.name}.md"), path.with_name(f"{path.name}.rst")]
    return next((file for file in found if file.exists()), path)


def test_the_links_of_the_pages_lead_somewhere():
    for page in PAGES:
        targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
        targets += re.findall(r"^```\{(?:figure|image|include)\} (\S+)$", prose(page), re.MULTILINE)
        targets += re.findall(r"^:link: (\S+)$", prose(page), re.MULTILINE)
        targets += [target for target, _ in roles(page, "doc")]
        for target in targets:
            path, _, anchor = target.partition("#")
            if "://" not in target:
                file = find(page, path) if path else page
                assert file.exists(), f"{page.name} links to {target}"
                if anchor:
                    assert anchor in anchors(file), f"{page.name} links to {target}"


def roles(page: Path, *names: str) -> list[tuple[str, str]]:
    r"""Targets of roles such as {doc}`title <target>`, and the roles."""
    found = re.findall(rf"\{{({'|'.join(names)})\}}`([^`]+)`", prose(page))
    return [(re.sub(r".*<(.+)>$", r"\1", text).lstrip("~"), role) for role, text in found]


def test_the_names_and_sections_that_pages_refer_to_exist():
    sections = set().union(*map(anchors, PAGES))
    for page in PAGES:
        for name, role in roles(page, "class", "func", "meth", "attr", "mod", "exc"):
            if role != "mod":
                assert any(f"{name}.".startswith(f"{known}.") for known in described()), name
            thing: Any = blockmdp
            for part in name.split(".")[1:]:
                thing = getattr(thing, part, None) or importlib.import_module(
                    f"{thing.__name__}.{part}"
                )
        for name, _ in roles(page, "ref"):
            if example := re.match(r"sphx_glr_auto_examples_(\w+\.py)", name):
                assert (ROOT / "examples" / example[1]).is_file(), name
            else:
                assert name in sections | {"random-numbers"}, name


def test_the_files_that_pages_name_exist():
    pattern = r"`((?:src|examples|tests|docs|studies)/[\w./-]+\.\w+)`"
    for page in PAGES:
        for name in re.findall(pattern, page.read_text()):
            assert (ROOT / name).is_file(), f"{page.name} names {name}"


def test_no_line_of_text_is_taken_for_a_comment():
    for page in PAGES:
        lost = re.findall(r"^%.*", prose(page), re.MULTILINE)
        assert not lost, f"{page.name}: MyST hides lines that begin with a percent sign: {lost}"


def test_pictures_are_small_and_used():
    pages = "".join(page.read_text() for page in PAGES)
    for picture in (DOCS / "img").glob("*.png"):
        assert picture.stat().st_size < 80_000, picture.name
        assert f"img/{picture.name}" in pages


@cache
def described() -> frozenset[str]:
    """The names that have a page in the API reference."""
    text = (DOCS / "reference" / "index.rst").read_text()
    tables = re.findall(r"^\.\. autosummary::\n(?:   :.*\n)+\n((?:   \S+\n)+)", text, re.MULTILINE)
    return frozenset(f"blockmdp.{name}" for table in tables for name in table.split())


def test_the_reference_has_every_public_name():
    parts = {name: getattr(blockmdp, name) for name in blockmdp.__all__}
    public = {
        f"blockmdp.{name}" for name, part in parts.items() if not isinstance(part, ModuleType)
    }
    for part in (
        "envs",
        "experiments",
        "learners",
        "measures",
        "oracles",
        "plots",
        "rng",
        "testing",
    ):
        module = importlib.import_module(f"blockmdp.{part}")
        public |= {
            f"blockmdp.{part}.{name}" for name in module.__all__ if name not in blockmdp.__all__
        }
    assert public - described() == set()


def test_the_names_of_the_reference_exist_and_have_a_docstring():
    for name in described():
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute).__doc__, name


@pytest.mark.integration
def test_the_built_site_can_be_searched_from_disk_without_the_network():
    """Needs a site: `make docs` builds it."""
    chromium = shutil.which("chromium")
    if not (ROOT / "site" / "index.html").is_file() or not chromium:
        pytest.skip("needs the site (make docs) and Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    requested: list[str] = []
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.on("request", lambda request: requested.append(request.url))
        for name in (
            "index",
            "guide/url",
            "auto_examples/index",
            "reference/generated/blockmdp.URL",
        ):
            page.goto((ROOT / "site" / f"{name}.html").as_uri())
            wider = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert wider <= 0, f"{name} scrolls sideways on a phone"
        page.goto((ROOT / "site" / "search.html").as_uri() + "?q=OnlineURL")
        page.wait_for_selector("#search-results li a")
        browser.close()
    assert [url for url in requested if not url.startswith(("file:", "data:"))] == []
