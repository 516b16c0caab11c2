"""The documentation tells the truth: its code runs and prints what the page says, its commands and
links are good, and it builds into pages that load nothing from the network.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from blockmdp import Study
from blockmdp.cli import _parser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
BLOCK = re.compile(
    r"^(?P<skip><!-- not run: .+ -->\n)?```(?P<language>\w+)(?: title=\"(?P<title>[^\"\n]+)\")?\n"
    r"(?P<body>.*?)^```$(?:\n```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


class Block(NamedTuple):
    """A fenced block: what is in it, its title (a file's name) and what stands below as output."""

    language: str
    body: str
    title: str | None
    output: str | None
    line: int


def blocks(page: Path, *languages: str) -> list[Block]:
    text = page.read_text()
    return [
        Block(m["language"], m["body"], m["title"], m["output"], text.count("\n", 0, m.start()) + 1)
        for m in BLOCK.finditer(text)
        if m["language"] in languages and not m["skip"]
    ]


@each_page
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # a study adds its folder
    namespace = {"__name__": "__main__"}
    for block in blocks(page, "python", "toml"):
        if block.title:
            Path(block.title).write_text(block.body)
        elif block.language == "python":
            capsys.readouterr()
            # numbered as in the page, for tracebacks
            code = compile("\n" * block.line + block.body, str(page), "exec", dont_inherit=True)
            exec(code, namespace)
            if block.output is not None:
                assert capsys.readouterr().out == block.output, f"{page.name}:{block.line}"


@each_page
def test_the_study_files_of_a_page_load(page, tmp_path):
    for block in blocks(page, "toml"):
        if block.title:
            path = tmp_path / block.title
            path.write_text(block.body)
            assert len(Study.load(path)) > 0


@each_page
def test_the_commands_of_a_page_are_commands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # --out makes its directory
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for block in blocks(page, "bash", "console"):
        for line in block.body.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["make"]:
                assert words[1] in targets, line
            elif words[:1] == ["blockmdp"] and words != ["blockmdp", "--version"]:
                try:
                    _parser().parse_args(words[1:])
                except SystemExit:
                    pytest.fail(f"{page.name}: {line}")


@each_page
def test_links_and_pictures_of_a_page_are_there(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path = target.partition("#")[0]
        if path and "://" not in path:
            assert (page.parent / path).is_file(), f"{page.name} links to {target}"


def test_pictures_are_small_and_used():
    pages = "".join(page.read_text() for page in PAGES)
    for picture in (DOCS / "img").glob("*.png"):
        assert picture.stat().st_size < 80_000, picture.name
        assert f"img/{picture.name}" in pages


def test_files_that_pages_name_are_there():
    for page in PAGES:
        for name in re.findall(
            r"`((?:src|examples|tests|docs|studies)/[\w./-]+\.\w+)`", page.read_text()
        ):
            assert (ROOT / name).is_file(), f"{page.name} names {name}"


def test_the_reference_has_every_public_name():
    hooks = runpy.run_path(str(DOCS / "hooks.py"))
    text = hooks["on_page_markdown"]((DOCS / "reference.md").read_text())
    described = set(re.findall(r"^### `(\w+)`", text, re.MULTILINE))
    for name in ("", ".oracles", ".emissions", ".learners", ".experiments", ".testing", ".rng"):
        module = importlib.import_module(f"blockmdp{name}")
        modules = {part for part in module.__all__ if f"blockmdp.{part}" in sys.modules}
        assert set(module.__all__) - modules - described == set()


def test_a_docstring_becomes_headings_lists_and_code():
    prose = runpy.run_path(str(DOCS / "hooks.py"))["prose"]
    text = prose(
        "What it does.\n\nParameters\n----------\na, b : numbers\n    of some size.\nflag\n\n"
        "Examples\n--------\n>>> f(1)\n2\n>>> g()  # doctest: +SKIP"
    )
    assert text == (
        "What it does.\n\n**Parameters**\n\n\n`a, b`\n:   numbers\n    of some size.\n\n`flag`\n"
        ":   \n\n**Examples**\n\n```pycon\n>>> f(1)\n2\n>>> g()\n```"
    )


def test_the_site_builds_and_loads_nothing_from_the_network(tmp_path):
    pytest.importorskip(
        "material", reason="MkDocs Material is not installed: pip install '.[docs]'"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").glob("*.html"))
    assert {page.stem for page in PAGES} <= {page.stem for page in pages}
    for page in pages:
        html = page.read_text()
        loaded = re.findall(
            r"<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=\"?([^\s\">]+)", html
        )
        assert [url for url in loaded if re.match(r"(?:\w+:)?//", url)] == []
        assert not re.search(r"^::: ", html, re.MULTILINE)
