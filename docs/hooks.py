"""The API reference: a line `::: module name ...` becomes what the docstrings of these names say,
`::: module *` of all its public names that the page has not had yet.

A docstring's sections become headings, its lines "name : what it is" a definition list, its
examples code. MkDocs calls `on_page_markdown` for each page (`hooks` in mkdocs.yml).
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import blockmdp

LINE = re.compile(r"^::: (\S+) (.+)$", re.MULTILINE)
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
FIELD = re.compile(r"^(\S.*?)(?: : (.*))?$")


def on_page_markdown(markdown: str, **_: Any) -> str:
    shown: set[str] = set()
    return LINE.sub(lambda found: reference(found[1], found[2].split(), shown), markdown)


def reference(module: str, names: list[str], shown: set[str]) -> str:
    """These names of a module, in Markdown; "*" is all others that the page has not shown yet."""
    parts = importlib.import_module(module)
    shown.update(names)
    rest = [name for name in parts.__all__ if name not in shown] if "*" in names else []
    shown.update(rest)
    things = [(name, getattr(parts, name)) for name in [*names, *rest] if name != "*"]
    return "\n\n".join(text for name, thing in things for text in entry(module, name, thing))


def entry(module: str, name: str, thing: Any) -> Iterator[str]:
    """A function, or a class with its methods and properties."""
    module = "blockmdp" if name in blockmdp.__all__ else module
    yield f"### `{name}` {{ #{module}.{name} }}"
    yield signature(name, thing)
    yield prose(inspect.getdoc(thing) or "")
    for member, what in members(thing) if inspect.isclass(thing) else ():
        yield f"#### `{name}.{member}` {{ #{module}.{name}.{member} }}"
        yield signature(member, what) if callable(what) else ""
        yield prose(inspect.getdoc(what) or "")


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """What is public and documented in a class, or in a base that has no entry of its own."""
    public = {id(getattr(blockmdp, name)) for name in blockmdp.__all__}
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("blockmdp") or (base is not cls and id(base) in public):
            continue
        for name, member in vars(base).items():
            known = inspect.isroutine(member) or isinstance(member, property | cached_property)
            if known and not name.startswith("_") and name not in seen and member.__doc__:
                yield name, getattr(cls, name) if inspect.isroutine(member) else member
            seen.add(name)


def signature(name: str, thing: Any) -> str:
    """As it is called, without types: the text says what is what."""
    try:
        whole = inspect.signature(thing)
    except ValueError:  # an exception
        return ""
    shown = [p.replace(annotation=p.empty) for p in whole.parameters.values() if p.name != "self"]
    call = f"{name}{whole.replace(parameters=shown, return_annotation=whole.empty)}"
    return code(textwrap.fill(call, 88, subsequent_indent="    ", break_on_hyphens=False))


def prose(docstring: str) -> str:
    """A docstring in Markdown."""
    head, *sections = SECTION.split(docstring)
    parts = [paragraphs(head)]
    for title, body in zip(sections[::2], sections[1::2]):
        fields = " : " in body and title in ("Parameters", "Attributes", "Returns")
        parts += [f"**{title}**", (definitions if fields else paragraphs)(body)]
    return "\n\n".join(parts)


def paragraphs(body: str) -> str:
    """As they stand; those that begin with >>> as code."""
    blocks = [textwrap.dedent(block) for block in re.split(r"\n\s*\n", body.strip("\n"))]
    return "\n\n".join(
        code(re.sub(" +# doctest:.*", "", block), "pycon") if block.startswith(">>>") else block
        for block in blocks
    )


def definitions(body: str) -> str:
    """Lines "name : what it is", with what follows indented."""
    lines = []
    for line in textwrap.dedent(body.strip("\n")).splitlines():
        field = None if line.startswith(" ") else FIELD.match(line)
        if field:
            lines += ["", f"`{field[1]}`", f":   {field[2] or ''}"]
        else:
            lines.append(f"    {line.strip()}")
    return "\n".join(lines)


def code(body: str, language: str = "python") -> str:
    return f"```{language}\n{body}\n```"
