"""What the documentation needs from Sphinx and does not find there: formulas as MathML, links from
names in the text to the reference, the members of a class page, figures of the gallery.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cached_property
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpydoc.xref import DEFAULT_LINKS
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx_gallery.scrapers import figure_rst

logger = logging.getLogger(__name__)
HERE = Path(__file__).parent


# --- the reference --------------------------------------------------------------------------------
def public_classes() -> dict[str, str]:
    """Return the full names of the classes in the tables of the reference, by their short names."""
    text = (HERE / "reference" / "index.rst").read_text()
    return {
        name.rpartition(".")[2]: f"blockmdp.{name}"
        for name in re.findall(r"^   ((?:[a-z_]+\.)*[A-Z]\w+)$", text, re.MULTILINE)
    }


PUBLIC = public_classes()


def linked_types() -> dict[str, str]:
    """Return the names that become links in the types of docstrings, and what they link to."""
    theirs = [
        line.split()[0]
        for file in (HERE / "inventory").glob("*.txt")
        for line in file.read_text().splitlines()
        if not line.startswith("#")
    ]
    short = {
        "array-like": "numpy.typing.ArrayLike",
        "callable": "collections.abc.Callable",
        "estimator": "sklearn.base.BaseEstimator",
        "iterable": "collections.abc.Iterable",
        "iterator": "collections.abc.Iterator",
        "mapping": "collections.abc.Mapping",
        "ndarray": "numpy.ndarray",
        "np.dtype": "numpy.dtype",
        "np.uint64": "numpy.uint64",
        "sequence": "collections.abc.Sequence",
        "DataFrame": "pandas.DataFrame",
        "Figure": "matplotlib.figure.Figure",
        "Path": "pathlib.Path",
        "Pipeline": "sklearn.pipeline.Pipeline",
        "RandomState": "numpy.random.RandomState",
    }
    plain = {name: name for name in DEFAULT_LINKS}  # not numpydoc's, which need whole inventories
    return plain | {name: f":obj:`{name}`" for name in theirs} | short | PUBLIC


def members_of(fullname: str) -> dict[str, Any]:
    """Return the public members with a docstring that a class has from this package."""
    module, _, name = fullname.rpartition(".")
    cls = getattr(importlib.import_module(module), name)
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("blockmdp"):
            for name, member in vars(base).items():
                if not name.startswith("_") and member.__doc__:
                    found.setdefault(name, member)
    return found


def methods_of(fullname: str) -> list[str]:
    """Return the names of a class's methods, in the order of their definition."""
    return [
        name
        for name, member in members_of(fullname).items()
        if inspect.isroutine(member) and not isinstance(member, cached_property)
    ]


def properties_of(fullname: str) -> list[str]:
    """Return the names of a class's properties, in the order of their definition."""
    return [
        name
        for name, member in members_of(fullname).items()
        if isinstance(member, property | cached_property)
    ]


# --- the gallery ----------------------------------------------------------------------------------
def figure_scraper(block: Any, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """Save the figures that a block makes without pyplot, such as those of `agent.plot()`."""
    names = variables["example_globals"]
    known = names.setdefault("_known_figures", [])
    known += [plt.figure(number) for number in plt.get_fignums()]  # saved by another scraper
    paths = []
    for figure in [value for value in names.values() if isinstance(value, Figure)]:
        if not any(figure is other for other in known):
            known.append(figure)
            paths.append(next(variables["image_path_iterator"]))
            figure.savefig(paths[-1], dpi=120)
    return str(figure_rst(paths, conf["src_dir"]))


# --- formulas: browsers typeset MathML themselves, without scripts or fonts from elsewhere --------
def mathml(node: nodes.Element, *, block: bool) -> str:
    """Translate a formula; warn if that is not possible."""
    tex = re.sub(r"\\dots\b", r"\\ldots", node.astext())  # docutils does not know \dots
    try:
        return str(tex2mathml(tex, as_block=block))
    except MathError as error:
        logger.warning("%s in %r", error, tex, location=node)
        return tex


def inline_math(writer: Any, node: nodes.math) -> None:
    """Write a formula in the text."""
    writer.body.append(mathml(node, block=False))
    raise nodes.SkipNode


def block_math(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on its own line, which can be scrolled if it is too long."""
    writer.body.append(f'<div class="math">{mathml(node, block=True)}</div>')
    raise nodes.SkipNode


# --- names in the text: code, with a link if the name is in the reference -------------------------
OURS = re.compile(r"(?:bm|blockmdp)\.([A-Za-z_][\w.]*)")


def name_role(
    role: str,
    rawtext: str,
    text: str,
    lineno: int,
    inliner: Any,
    options: Any = None,
    content: Any = None,
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Show a `name` in a docstring."""
    obj = inliner.document.settings.env.domains.python_domain.role("obj")
    name, _, rest = text.partition(".")
    if name.removesuffix("()") in PUBLIC:
        full = PUBLIC[name.removesuffix("()")]
        rawtext = text = f"{text} <{full}{rest and '.'}{rest.removesuffix('()')}>"
    found, messages = obj("py:obj", rawtext, text, lineno, inliner)
    found[0]["may_be_missing"] = True
    return found, messages


def link_code(app: Sphinx, document: nodes.document) -> None:
    """Link code such as `bm.URL()` in pages."""
    for node in list(document.findall(nodes.literal)):
        ours = OURS.match(node.astext())
        parents = (nodes.reference, nodes.title, addnodes.pending_xref)
        if ours and not isinstance(node.parent, parents):
            link = addnodes.pending_xref(
                refdomain="py",
                reftype="obj",
                reftarget=f"blockmdp.{ours[1]}",
                refdoc=app.env.docname,
                may_be_missing=True,
            )
            node.replace_self(link)
            link.append(node)


def no_link(app: Sphinx, env: Any, node: Any, content: nodes.Element) -> nodes.Element | None:
    """Leave a name without a link, and without a warning, if it has no page."""
    # numpydoc tries to link every attribute whose value has a docstring
    is_attribute = node["reftype"] == "obj" and "." not in node["reftarget"]
    return content if node.get("may_be_missing") or is_attribute else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register everything with Sphinx."""
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.add_role("name", name_role)
    app.connect("doctree-read", link_code)
    app.connect("missing-reference", no_link, priority=900)  # after intersphinx
    return {"parallel_read_safe": True, "parallel_write_safe": True}
