"""Settings of the documentation. `make docs` builds it into site/, without the network."""

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

import blockmdp

logger = logging.getLogger(__name__)
HERE = Path(__file__).parent

project = "blockmdp"
copyright = "2026, the blockmdp authors"
version = release = blockmdp.__version__
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
nitpicky = True

# Pages in Markdown
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Links to other projects: the names that we use, each with its page. Nothing is downloaded.
intersphinx_mapping = {
    project: (url, f"inventory/{project}.txt")
    for project, url in {
        "gymnasium": "https://gymnasium.farama.org/",
        "matplotlib": "https://matplotlib.org/stable/",
        "numpy": "https://numpy.org/doc/stable/",
        "pandas": "https://pandas.pydata.org/docs/",
        "python": "https://docs.python.org/3/",
        "scikit-learn": "https://scikit-learn.org/stable/",
        "scipy": "https://docs.scipy.org/doc/scipy/",
    }.items()
}

# The API reference: types stand in the docstrings
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
autosummary_imported_members = True
numpydoc_show_class_members = False  # the templates list the public ones
numpydoc_attributes_as_param_list = True
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"  # only names in the aliases are links


def public_classes() -> dict[str, str]:
    """The classes in the tables of the reference, by their short names."""
    text = (HERE / "reference" / "index.rst").read_text()
    return {
        name.rpartition(".")[2]: f"blockmdp.{name}"
        for name in re.findall(r"^   ((?:[a-z_]+\.)*[A-Z]\w+)$", text, re.MULTILINE)
    }


def linked_types() -> dict[str, str]:
    """Names that become links where a docstring gives a type."""
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
        "path-like": "pathlib.Path",
        "sequence": "collections.abc.Sequence",
        "DataFrame": "pandas.DataFrame",
        "Figure": "matplotlib.figure.Figure",
        "Path": "pathlib.Path",
    }
    plain = {name: name for name in DEFAULT_LINKS}  # numpydoc's own, to pages that we do not list
    return plain | {name: f":obj:`{name}`" for name in theirs} | short | PUBLIC


PUBLIC = public_classes()
numpydoc_xref_aliases = linked_types()

# The gallery: every script in examples/ is run
EXAMPLES = (
    "first_steps",
    "frozen_lake",
    "save_and_act",
    "own_problem",
    "own_emission",
    "own_oracle",
    "own_learner",
    "own_incremental_oracle",
    "decoder_errors",
    "debug_learner",
    "small_study",
    "compare_agents",
    "pcid_backward",
    "held_out_images",
)


def example_order(file: str) -> int:
    return EXAMPLES.index(Path(file).stem)


def figure_scraper(block: Any, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """Save the figures that a block makes without pyplot, such as those of `agent.plot()`."""
    names = variables["example_globals"]
    known = names.setdefault("_known_figures", [])
    known += [plt.figure(number) for number in plt.get_fignums()]  # these have their own scraper
    paths = []
    for figure in [value for value in names.values() if isinstance(value, Figure)]:
        if not any(figure is other for other in known):
            known.append(figure)
            paths.append(next(variables["image_path_iterator"]))
            figure.savefig(paths[-1], dpi=120)
    return figure_rst(paths, conf["src_dir"])


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": example_order,
    "image_scrapers": (figure_scraper, "matplotlib"),
    "capture_repr": (),
    "abort_on_example_error": True,
    "write_computation_times": False,
    "min_reported_time": 1e9,  # how long a script took depends on the machine
    "show_signature": False,
    "show_memory": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "doc_module": ("blockmdp",),
    "backreferences_dir": "reference/backreferences",
    "reference_url": {"blockmdp": None},
}
suppress_warnings = ["config.cache"]  # functions in the configuration are no fault

# How it looks
html_theme = "pydata_sphinx_theme"
html_title = "blockmdp"
html_favicon = "img/favicon.svg"
html_logo = "img/favicon.svg"
html_static_path = ["_static"]
html_math_renderer = "mathml"
html_show_search_summary = False  # it would fetch pages, which browsers refuse from disk
html_show_sourcelink = False
html_css_files = ["blockmdp.css"]
html_sidebars = {"index": [], "**": ["sidebar-nav-bs"]}
html_context = {"default_mode": "auto"}  # dark where the reader's system is
html_theme_options = {
    "logo": {"text": "blockmdp"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navigation_depth": 2,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


# --- what a class page lists ----------------------------------------------------------------------
def members_of(fullname: str) -> dict[str, Any]:
    """The documented, public members that a class has from us, in the order of their definition."""
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
    return [
        name
        for name, member in members_of(fullname).items()
        if inspect.isroutine(member) and not isinstance(member, cached_property)
    ]


def properties_of(fullname: str) -> list[str]:
    return [
        name
        for name, member in members_of(fullname).items()
        if isinstance(member, property | cached_property)
    ]


autosummary_context = {"methods_of": methods_of, "properties_of": properties_of}


# --- formulas as MathML, which browsers typeset themselves ----------------------------------------
def mathml(node: nodes.Element, *, block: bool) -> str:
    tex = re.sub(r"\\dots\b", r"\\ldots", node.astext())  # which docutils does not know
    try:
        return tex2mathml(tex, as_block=block)
    except MathError as error:
        logger.warning("%s in %r", error, tex, location=node)
        return tex


def inline_math(writer: Any, node: nodes.math) -> None:
    writer.body.append(mathml(node, block=False))
    raise nodes.SkipNode


def block_math(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{mathml(node, block=True)}</div>')
    raise nodes.SkipNode


# --- names in the text: code, and a link where the name is documented -----------------------------
default_role = "name"  # `name` in docstrings
OURS = re.compile(r"(?:bm|blockmdp)\.([A-Za-z_][\w.]*)")  # code that begins so, in pages


def name_role(
    role: str,
    rawtext: str,
    text: str,
    lineno: int,
    inliner: Any,
    options: Any = None,
    content: Any = None,
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    obj = inliner.document.settings.env.domains.python_domain.role("obj")
    name, _, rest = text.partition(".")
    if name.removesuffix("()") in PUBLIC:
        full = PUBLIC[name.removesuffix("()")]
        rawtext = text = f"{text} <{full}{rest and '.'}{rest.removesuffix('()')}>"
    found, messages = obj("py:obj", rawtext, text, lineno, inliner)
    found[0]["may_be_missing"] = True
    return found, messages


def link_code(app: Sphinx, document: nodes.document) -> None:
    """Link code such as `bm.URL()` in the running text to the API reference."""
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
    # numpydoc links attributes that have a docstring, also one from elsewhere
    is_attribute = node["reftype"] == "obj" and "." not in node["reftarget"]
    return content if node.get("may_be_missing") or is_attribute else None


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.add_role("name", name_role)
    app.connect("doctree-read", link_code)
    app.connect("missing-reference", no_link, priority=900)  # after intersphinx
