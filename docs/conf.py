"""Settings of the documentation. `make docs` builds it into site/, without the network."""

from __future__ import annotations

import sys
from pathlib import Path

import blockmdp

sys.path.insert(0, str(Path(__file__).parent))
from extension import figure_scraper, linked_types, methods_of, properties_of

project = "blockmdp"
copyright = "2026, the blockmdp authors"
version = release = blockmdp.__version__
extensions = [
    "extension",
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
nitpicky = True  # a name that does not exist is an error
suppress_warnings = ["config.cache"]  # this file contains functions

# Pages in Markdown
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Links to other projects. inventory/ lists the names that we use, so nothing is downloaded.
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

# The API reference
default_role = "name"  # of `names` in docstrings
autodoc_typehints = "none"  # the docstrings have the types
autosummary_imported_members = True
autosummary_context = {"methods_of": methods_of, "properties_of": properties_of}
numpydoc_show_class_members = False  # the templates list them
numpydoc_attributes_as_param_list = True
numpydoc_xref_param_type = True
numpydoc_xref_aliases = linked_types()
numpydoc_xref_ignore = "all"  # words that are not among the aliases
toc_object_entries_show_parents = "hide"

# The gallery runs every script in examples/, and shows them in this order
EXAMPLES = (
    "first_steps",
    "frozen_lake",
    "save_and_act",
    "frozen_lake_exact",
    "minigrid_pixels",
    "own_environment",
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
    """Return the place of a script in the gallery."""
    return EXAMPLES.index(Path(file).stem)


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": example_order,
    "image_scrapers": (figure_scraper, "matplotlib"),
    "capture_repr": (),
    "abort_on_example_error": True,
    "write_computation_times": False,
    "min_reported_time": 1e9,  # times depend on the machine
    "show_signature": False,
    "show_memory": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "doc_module": ("blockmdp",),
    "backreferences_dir": "reference/backreferences",
    "reference_url": {"blockmdp": None},
}

# How it looks
html_theme = "pydata_sphinx_theme"
html_title = "blockmdp"
html_favicon = html_logo = "img/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["blockmdp.css"]
html_math_renderer = "mathml"
html_show_search_summary = False  # it fetches pages, which browsers refuse for files on disk
html_show_sourcelink = False
html_sidebars = {"index": [], "**": ["sidebar-nav-bs"]}
html_context = {"default_mode": "auto"}  # dark if the reader's system is
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
