"""The report: one HTML file that opens from disk and loads nothing else.

It shows what a store holds, and neither imports nor calls what the store names. All texts are
escaped, since a store may come from a stranger.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blockmdp import __version__
from blockmdp.experiments import tables
from blockmdp.experiments.errors import StoreError, printable
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.progress import duration
from blockmdp.experiments.settings import Setting
from blockmdp.experiments.store import Row
from blockmdp.experiments.toml import to_toml

__all__ = ["Part", "Report", "Section", "about", "html_table", "plain_name", "write_report"]

# What a report shows at most, so that it has at most some 20 MB
MAX_PANELS = 400
MAX_AGENTS = 64  # of a panel
MAX_NUMBERS = 1_000_000  # of means, and as many of single runs
MOST_POINTS, LEAST_POINTS = 200, 20  # of a curve
MAX_ROWS = 1000  # of a table
MAX_ERRORS = 50
MAX_CHARACTERS = 200_000  # of a study file, and of all tracebacks

YS = {
    "average": ("average so far", "average return"),
    "sliding": ("last returns", "mean of last returns"),
    "value": ("value", "value of the policy"),
    "regret": ("regret", "regret"),
}
BY_LEVEL = ("accuracy", "labels")


@dataclass(frozen=True)
class Section:
    """A section of the report besides the studies.

    Attributes
    ----------
    name : str
        Anchor of the section.
    title : str
        Heading.
    body : str
        Content, as HTML in which all texts are escaped.
    """

    name: str
    title: str
    body: str


@dataclass(frozen=True)
class Part:
    """A study in the report.

    Attributes
    ----------
    plan : Plan
        The study.
    rows : sequence of tuple of (Setting, Row)
        Runs that have ended.
    panels : callable
        Returns the learning curves, a list of `blockmdp.plots.Panel`, for each of "average",
        "sliding", "value" and "regret", and curves over levels for "accuracy" and "labels".
    summaries : sequence of Summary
        Each agent in each panel.
    state : str, default=""
        Who does the missing runs.
    title : str, default=""
        Heading; the name of the study if empty.
    titles : mapping, default={}
        Titles to show instead of those of the panels.
    """

    plan: Plan
    rows: Sequence[tuple[Setting, Row]]
    panels: Callable[[Any], Sequence[Any]]
    summaries: Sequence[tables.Summary]
    state: str = ""
    title: str = ""
    titles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Everything that a report shows.

    Attributes
    ----------
    title, summary : str
        Heading and first paragraph.
    facts : sequence of tuple of (str, str)
        Name and text of what is known of all studies.
    parts : sequence of Part
        The studies.
    before, after : sequence of Section, default=()
        Sections above and below the studies.
    agents : sequence of str, default=()
        Labels of agents that come first in the order of colours.
    """

    title: str
    summary: str
    facts: Sequence[tuple[str, str]]
    parts: Sequence[Part]
    before: Sequence[Section] = ()
    after: Sequence[Section] = ()
    agents: Sequence[str] = ()


def write_report(report: Report, path: str | Path) -> None:
    """Write a report to a file.

    Parameters
    ----------
    report : Report
        What to show.
    path : str or Path
        An .html file. Its directory is created if needed.

    Raises
    ------
    StoreError
        If the file has another ending or cannot be written.
    """
    path = Path(path)
    if path.suffix != ".html":
        raise StoreError(f"{path}: must end in .html")
    template = (Path(__file__).parent / "report.html").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", template, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    body, data = _content(report)
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    parts = {
        "%SCRIPT%": digest,  # no other script runs in the page
        "%TITLE%": _escaped(report.title),
        "%BODY%": body,
        "%DATA%": text.replace("<", "\\u003c"),
    }
    page = re.sub("|".join(parts), lambda mark: parts[mark[0]], template)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"cannot write to {path}: {reason}; choose another file") from None


def plain_name(text: str, taken: Iterable[str] = ()) -> str:
    """Return a text as the name of a file or an anchor, different from those that are taken."""
    plain = re.sub(r"\W+", "_", text, flags=re.ASCII)[:60].strip("_") or "study"  # "-" is for parts
    name, n = plain, 2
    while name in taken:
        name, n = f"{plain}_{n}", n + 1
    return name


def html_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as HTML, with all texts escaped, and without columns that are empty."""
    cells = [[str(cell) for cell in row] for row in rows]
    shown = [i for i, column in enumerate(zip(*cells)) if not set(column) <= {"", "-"}]
    top = "".join(f"<th>{_escaped(head[i])}</th>" for i in shown) if any(head) else ""
    lines = ["".join(f"<td>{_escaped(row[i])}</td>" for i in shown) for row in cells]
    body = "".join(f"<tr>{line}</tr>" for line in [top, *lines] if line)
    brief = any(head) and max((len(cell) for row in cells for cell in row), default=0) <= 60
    kind = " class='brief'" if brief else ""
    return f"<div class='scroll' tabindex='0'><table{kind}>{body}</table></div>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))


# --- the page -------------------------------------------------------------------------------------
def _content(report: Report) -> tuple[str, dict[str, Any]]:
    """Return the body of the page, and its data."""
    agents = {printable(label): None for label in report.agents}
    figures: list[dict[str, Any]] = []
    files: dict[str, dict[str, str]] = {}
    contents: list[tuple[str, str, list[tuple[str, str]]]] = []
    blocks: list[str] = []

    def add(section: Section, below: Sequence[tuple[str, str]] = ()) -> None:
        contents.append((section.name, section.title, list(below)))
        blocks.append(_heading(2, section.name, section.title) + section.body)

    names = {section.name for section in (*report.before, *report.after)} | {"contents", "about"}
    for section in report.before:
        add(section)
    few = max(MAX_PANELS // max(len(report.parts), 1), 1)
    shares = max(len(report.parts), 1)
    for part in report.parts:
        name = plain_name(part.plan.name, names)
        names.add(name)
        numbers = MAX_NUMBERS // shares
        drawn = [
            _figure(part, name, tuple(YS), few, numbers),
            _figure(part, f"{name}-decoders", BY_LEVEL, few, numbers // 10),
        ]
        for figure, _ in drawn:
            for panel in figure["panels"]:
                agents |= dict.fromkeys(curve["agent"] for curve in panel["curves"])
        figures += [figure for figure, _ in drawn if figure["panels"]]
        body, below = _study(part, name, drawn, files)
        add(Section(name, part.title or part.plan.name, body), below)
    for section in report.after:
        add(section)
    about = html_table((), report.facts)
    data = {
        "agents": list(agents),
        "ys": [[y, *words] for y, words in YS.items()],
        "figures": figures,
        "files": files,
    }
    head = (
        f"<h1>{_escaped(report.title)}</h1><p>{_escaped(report.summary)}</p>"
        + _contents([("about", "About this report", []), *contents])
        + _heading(2, "about", "About this report")
        + about
    )
    return "\n".join([head, *blocks]), data


def _heading(level: int, name: str, title: str) -> str:
    link = f"<a class='anchor' href='#{name}' aria-label='link to this section'>#</a>"
    return f"<h{level} id='{name}'>{_escaped(title)} {link}</h{level}>"


def _contents(entries: Sequence[tuple[str, str, list[tuple[str, str]]]]) -> str:
    def link(name: str, title: str) -> str:
        return f"<a href='#{name}'>{_escaped(title)}</a>"

    items = []
    for name, title, below in entries:
        inner = "".join(f"<li>{link(*entry)}</li>" for entry in below)
        items.append(f"<li>{link(name, title)}{f'<ul>{inner}</ul>' if inner else ''}</li>")
    return f"<nav id='contents' aria-label='Contents'><ul>{''.join(items)}</ul></nav>"


def _study(
    part: Part,
    name: str,
    drawn: Sequence[tuple[dict[str, Any], list[str]]],
    files: dict[str, dict[str, str]],
) -> tuple[str, list[tuple[str, str]]]:
    """Return the section of a study, and its entries in the contents; add its files."""
    below: list[tuple[str, str]] = []
    blocks = [html_table((), _facts(part))]

    def add(ending: str, title: str, *body: str) -> None:
        below.append((f"{name}-{ending}", title))
        blocks.extend([_heading(3, f"{name}-{ending}", title), *body])

    def add_figure(
        ending: str, title: str, figure: dict[str, Any], left_out: Sequence[str], words: str
    ) -> None:
        of = figure["id"]
        add(
            *(ending, title, f"<p class='faint'>{_escaped(' '.join([words, *left_out]))}</p>"),
            f"<p><button data-curves='{of}'>Download the curves (CSV)</button></p>"
            "<noscript><p>The figures need JavaScript.</p></noscript>"
            f"<section class='figure' id='{of}-figure'></section>",
        )
        below.extend((panel["id"], panel["title"]) for panel in figure["panels"][:12])

    curves, decoders = drawn
    if curves[0]["panels"]:
        add_figure("curves", "Learning curves", *curves, _words(part))
    else:
        blocks.append("<p>No run is finished yet, so there are no learning curves.</p>")
    if decoders[0]["panels"]:
        add_figure("decoders", "Where the decoder errs", *decoders, _DECODERS)
    if part.summaries:
        files[f"{name}-table"] = {
            "name": f"{name}-table.csv",
            "text": tables.table(part.summaries, "csv") + "\n",
        }
        add("table", "Summary", _summary(part, name))
    kinds = _kinds(part)
    if kinds:
        add("kinds", "Trajectories by kind", kinds)
    failed = [(setting, row) for setting, row in part.rows if row.error is not None]
    if failed:
        add("failed", "Failed runs", _failures(failed))
    toml = _toml(part.plan)
    if toml:
        files[f"{name}-study"] = {"name": f"{name}.toml", "text": toml}
        shown = "\n".join(map(printable, toml.splitlines()))
        add(
            *("study", "Study file"),
            f"<p>To repeat the study, save its file and run <code>blockmdp run {name}.toml</code>. "
            "Modules of its author are not in this file.</p>"
            f"<p><button data-file='{name}-study'>Download the study file (TOML)</button></p>"
            f"<details><summary>Show it</summary><pre tabindex='0'>{html.escape(shown)}</pre>"
            "</details>",
        )
    return "\n".join(blocks), below


def _facts(part: Part) -> list[tuple[str, str]]:
    plan, total = part.plan, len(part.plan)
    done = [row for _, row in part.rows if row.error is None]
    failed = len(part.rows) - len(done)
    missing = total - len(part.rows)
    runs = f"{len(done)} of {total} runs done"
    runs += f", {failed} failed" * bool(failed) + f", {missing} to do" * bool(missing)
    labels = dict.fromkeys(setting.label for setting in plan.settings)
    agents = ", ".join([*labels][:20]) + f" and {len(labels) - 20} more" * (len(labels) > 20)
    sizes = {"problem": len(plan.panels), "agent": len(labels), "seed": len(plan.seeds)}
    facts = [
        ("study", plan.name),
        ("runs", runs + (f" ({part.state})" if part.state else "")),
        ("grid", ", ".join(f"{n} {what}{'s' * (n != 1)}" for what, n in sizes.items())),
        ("agents", agents),
    ]
    if done:
        drawn = sum(row.trajectories for row in done)
        spent = sum(row.seconds for row in done)
        ends = [time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(_when(row))) for row in
                (min(done, key=_when), max(done, key=_when))]  # fmt: skip
        facts += [
            ("trajectories", f"{drawn:,}"),
            ("computing time", f"{duration(spent)}, {spent / len(done):.3g} s per run"),
            ("finished", ends[0] if ends[0] == ends[1] else f"from {ends[0]} to {ends[1]}"),
        ]
    facts += _versions([row for _, row in part.rows])
    return facts


def _when(row: Row) -> float:
    """Return when a run was finished, in a range that has dates."""
    return min(max(float(row.finished), 0.0), 4e9)


def _versions(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return with which software and on what machines runs were done."""
    found = Counter(row.environment for row in rows).most_common()
    if not found:
        return []
    lines: Counter[str] = Counter()
    commits: dict[str, None] = {}
    for text, n in found:
        kept = json.loads(text)
        if kept.get("commit"):
            commits[str(kept.pop("commit"))] = None
        hidden = ("host", "threads")  # not for everyone to know, and of no use to them
        lines[", ".join(f"{k} {v}" for k, v in kept.items() if k not in hidden)] += n
    several = len(lines) > 1
    shown = [f"{line}{f' ({n} runs)' if several else ''}" for line, n in lines.most_common(5)]
    shown += [f"and {len(lines) - 5} other sets"] * (len(lines) > 5)
    commit = ", ".join(commits) or "not stored; the version of blockmdp is below"
    return [("commit", commit), ("versions", "; ".join(shown))]


def _words(part: Part) -> str:
    """Say what the learning curves show."""
    windows = sorted({str(s.solved["window"]) for s in part.plan.settings})
    n = max(Counter((s.panel, s.label) for s, row in part.rows if row.error is None).values())
    lines = f"Lines are means over {n} seeds, bands one standard deviation."
    return (
        "The x-axis counts training trajectories of all kinds, including those that train and test "
        f"a decoder. {lines if n > 1 else 'Each line is one run.'} A dashed grey line is the "
        f"optimal value, if that is known. The last returns are those of {' or '.join(windows)} "
        "episodes. Tap or point at a panel to read values; its arrow keys move along it. The "
        "buttons change all figures at once."
    )


_DECODERS = (
    "How well the labels of the final decoder tell the latent states of each level apart: the "
    "share of about 300 fresh observations whose label belongs to their state. All states that can "
    "be reached count equally. The dashed grey line is a decoder without errors. Tap or point at a "
    "panel to read accuracies and numbers of labels. If two states share a label, the learner must "
    "treat them alike."
)


def _summary(part: Part, name: str) -> str:
    head, *rows = tables.columns(part.summaries[:MAX_ROWS])
    notes = dict.fromkeys(s.unjudged for s in part.summaries if s.unjudged)
    more = len(part.summaries) - MAX_ROWS
    words = [f"n/a: {why}" for why in notes]
    words += [f"{more} more rows are in the CSV file."] * (more > 0)
    return (
        "<p class='faint'>As <code>blockmdp table</code>: runs solved and trajectories until "
        "solved (median), return at the end, exact value of the final policy and accuracy of the "
        "decoder at its worst level (means), with 95 % intervals in brackets.</p>"
        f"<p><button data-file='{name}-table'>Download the table (CSV)</button></p>"
        + html_table(head, rows)
        + "".join(f"<p>{_escaped(line)}</p>" for line in words)
    )


def _kinds(part: Part) -> str:
    """Return a table of trajectories by kind, if some were not for learning."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    kinds: dict[str, None] = {}
    for setting, row in part.rows:
        if row.error is None:
            ledger = json.loads(row.ledger)
            kinds |= dict.fromkeys(ledger)
            groups.setdefault((setting.panel, setting.label), []).append(ledger)
    if not set(kinds) - {"learn"}:
        return ""
    shown = list(kinds)[:10]
    rows = []
    for (panel, label), ledgers in list(groups.items())[:MAX_ROWS]:
        means = [_mean([ledger.get(kind, 0) for ledger in ledgers]) for kind in shown]
        rows.append((panel, label, *means))
    return (
        "<p class='faint'>Means over seeds. A store keeps no decoders. To see which states one "
        "confuses, fit the agent and draw it with <code>blockmdp.plots.plot_agent</code>.</p>"
        + html_table(("problem", "agent", *shown), rows)
    )


def _mean(values: Sequence[Any]) -> str:
    if not all(isinstance(value, int | float) for value in values):
        return "?"
    mean = math.fsum(values) / len(values)
    return f"{mean:,.0f}" if mean else "-"


def _failures(failed: Sequence[tuple[Setting, Row]]) -> str:
    items, left = [], MAX_CHARACTERS
    for setting, row in failed[:MAX_ERRORS]:
        lines = (row.error or "").strip().splitlines() or ["?"]
        reason = lines[-1 if lines[0].startswith("Traceback") else 0][:300]
        trace = "\n".join(map(printable, lines))[: max(left, 0)]
        left -= len(trace)
        title = f"{setting.panel} | {setting.label} | seed {row.seed}: {reason}"
        items.append(
            f"<details><summary>{_escaped(title)}</summary><pre tabindex='0'>{html.escape(trace)}"
            "</pre></details>"
        )
    more = len(failed) - MAX_ERRORS
    end = f"<p>and {more} more; <code>blockmdp export</code> writes all.</p>" if more > 0 else ""
    return "".join(items) + end


def _toml(plan: Plan) -> str:
    """Return the study file, empty if the store has none that can be written."""
    try:
        text = to_toml(plan.document)
    except (AttributeError, TypeError, ValueError, RecursionError):  # not written by us
        return ""
    return text if len(text) <= MAX_CHARACTERS else ""


# --- the data of figures --------------------------------------------------------------------------
def _figure(
    part: Part, name: str, ys: Sequence[str], most_panels: int, numbers: int
) -> tuple[dict[str, Any], list[str]]:
    """Return curves of a study, and what was left out, in sentences."""
    panels: dict[str, dict[str, Any]] = {}
    curves: dict[tuple[str, str], dict[str, Any]] = {}
    left_out: list[str] = []
    points = per_run = LEAST_POINTS
    most_runs = 0
    for y in ys:
        found = part.panels(y)
        if y == ys[0]:
            shown = [c for panel in found[:most_panels] for c in panel.curves[:MAX_AGENTS]]
            n, m = len(shown), sum(len(c.seeds) for c in shown)
            points = _between(numbers // (7 * max(n, 1)))
            most_runs = numbers // (4 * LEAST_POINTS * max(n, 1))
            runs = sum(min(len(c.seeds), most_runs) for c in shown)
            per_run = _between(numbers // (4 * max(runs, 1)))
            left_out = _left_out(found, most_panels, points, per_run, m - runs)
        for panel in found[:most_panels]:
            title = printable(part.titles.get(panel.title, panel.title))
            record = panels.setdefault(
                panel.title,
                {"id": f"{name}-panel-{len(panels) + 1}", "title": title, "curves": []},
            )
            if panel.optimum is not None and math.isfinite(panel.optimum):
                record["optimum"] = panel.optimum
            for curve in panel.curves[:MAX_AGENTS]:
                key = panel.title, curve.label
                if key not in curves:
                    curves[key] = {
                        "agent": printable(curve.label),
                        "seeds": list(curve.seeds[:most_runs]),
                        "runs": len(curve.seeds),
                        "y": {},
                    }
                    record["curves"].append(curves[key])
                at, few = _thin(len(curve.x), points), _thin(len(curve.x), per_run)
                line = {
                    "x": [round(x) for x in curve.x[at].tolist()],
                    "mean": _short(curve.mean[at]),
                }
                if len(curve.seeds) > 1:
                    line["std"] = _short(curve.std[at])
                    line["few"] = [round(x) for x in curve.x[few].tolist()]
                    line["runs"] = [_short(run[few]) for run in curve.runs[:most_runs]]
                curves[key]["y"][y] = line
    figure = {
        "id": name,
        "study": printable(part.plan.name),
        "seeds": len(part.plan.seeds),
        "panels": list(panels.values()),
    }
    if ys == BY_LEVEL:
        figure |= {"y": "accuracy", "words": "accuracy of the decoder", "x": "level"}
    return figure, left_out


def _left_out(
    panels: Sequence[Any], most_panels: int, points: int, per_run: int, runs: int
) -> list[str]:
    """Say what the figure of a study does not show."""
    words = []
    if len(panels) > most_panels:
        words.append(f"Only the first {most_panels} of {len(panels)} panels are drawn.")
    if any(len(panel.curves) > MAX_AGENTS for panel in panels):
        words.append(f"A panel shows at most {MAX_AGENTS} agents.")
    longest = max((len(curve.x) for panel in panels for curve in panel.curves), default=0)
    if points < longest:
        words.append(f"Curves are thinned to {points} points.")
    if per_run < longest:
        words.append(f"Curves of single seeds are thinned to {per_run} points.")
    if runs:
        words.append(f"The curves of {runs} single runs are left out; means are over all runs.")
    return words


def _between(points: int) -> int:
    return min(max(points, LEAST_POINTS), MOST_POINTS)


def _thin(n: int, points: int) -> Any:
    """Return indices of at most so many points, with the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, points)).round().astype(np.int64))


def _short(values: Any) -> list[float | None]:
    """Return numbers with five digits; None if they are not finite."""
    return [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.tolist()]


def about(studies: int, kept: int) -> list[tuple[str, str]]:
    """Return how a report of some of the studies in a store was made."""
    now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    shown = f"{studies} of {kept} in the store" if kept > studies else f"{studies}"
    return [
        ("studies", shown),
        ("made", f"{now}, by blockmdp report of blockmdp {__version__}, from stored runs alone"),
    ]
