"""A study: problems x agents x hyperparameters x seeds, as data. Lists are the axes of a grid.

A study expands to settings, a setting and a seed make a run, and a run is known by its content.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from blockmdp.checks import whole_number
from blockmdp.experiments.catalogue import (
    Config,
    StudyError,
    build,
    complete,
    one_line,
    suggest,
    takes_seed,
)

if TYPE_CHECKING:
    from blockmdp.experiments.results import Results

__all__ = ["Run", "Setting", "Study", "StudyError", "to_toml"]

KEYS = ("seeds", "episodes", "problem", "agent", "solved")
MOST_SETTINGS, MOST_RUNS = 10**5, 10**7
SOLVED = {"share": 0.9, "above": None, "window": 1000}


@dataclass(frozen=True, eq=False)
class Setting:
    """All that a run is but its seed.

    Attributes
    ----------
    problem, agent : tables with all defaults filled in.
    episodes : that the agent learns from.
    solved : when a run counts as solved: once the mean of the last `window` returns exceeds
        `above`, by default `share` of the problem's optimal value.
    panel, label : which figure and which curve the run belongs to; no part of its content.
    base : the label without what tells the points of one agent's grid apart.
    table : the agent as the study writes it, at this point of the grid.
    """

    problem: Config
    agent: Config
    episodes: int
    solved: Config
    panel: str = ""
    label: str = ""
    base: str = ""
    table: Config = field(default_factory=dict)

    @cached_property
    def content(self) -> str:
        """All but panel and label, as JSON in its one form."""
        return _canonical(
            {
                "problem": self.problem,
                "agent": self.agent,
                "episodes": self.episodes,
                "solved": self.solved,
            }
        )

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()[:32]

    @cached_property
    def flat(self) -> dict[str, Any]:
        """Every value by its dotted name: problem.horizon, agent.learner.lr, ..."""
        return dict(_flatten({"problem": self.problem, "agent": self.agent})) | {
            "episodes": self.episodes
        }


class Run(NamedTuple):
    setting: Setting
    seed: int

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{self.setting.key}/{self.seed}".encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return f"{self.setting.panel} | {self.setting.label} | seed {self.seed}"


class Study:
    """Many runs, described by a document: a study file's content.

    Parameters
    ----------
    document : seeds (a number, or a list of them), episodes, problem (a table, or several), agent
        (a list of tables) and, if need be, solved. Any other list is an axis of a grid.
    name : of the study; a file's stem.
    folder : where a user's own modules are looked for.
    check : make every problem and agent once, to let them check their values.

    Attributes
    ----------
    settings : each problem with each agent, in the order of the document.
    seeds : of the runs; each is the problem's seed too, unless the problem has one of its own.

    Examples
    --------
    >>> study = Study(
    ...     {
    ...         "seeds": 2,
    ...         "episodes": 2000,
    ...         "problem": {"name": "lock_bernoulli", "horizon": [3, 5]},
    ...         "agent": [{"name": "Tabular", "learner": {"name": "OracleQ", "lr": [0.1, 0.3]}}],
    ...     }
    ... )
    >>> len(study.settings), len(study)
    (4, 8)
    >>> study.settings[1].label
    'OracleQ-lat lr=0.3'
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        name: str = "study",
        folder: str | Path | None = None,
        *,
        check: bool = True,
    ) -> None:
        self.document = dict(document)
        self.name = name
        self.folder = None if folder is None else str(Path(folder).resolve())
        if self.folder is not None and self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        self.seeds = _seeds(self.document)
        self.settings = _settings(self.document, check)
        if len(self) > MOST_RUNS:
            raise StudyError(f"{len(self)} runs are too many for one study; at most {MOST_RUNS}")

    @classmethod
    def load(cls, path: str | Path, changes: Iterable[str] = ()) -> Study:
        """Read a study file; each change is "key=value", as in `--set problem.horizon=[5]`."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise StudyError(f"{path}: {error.strerror or error}") from None
        except ValueError:
            raise StudyError(f"{path}: is not text in UTF-8") from None
        try:
            document = tomllib.loads(text)
            for change in changes:
                _change(document, change)
            return cls(document, path.stem, path.parent)
        except (StudyError, ValueError, RecursionError) as error:
            raise StudyError(f"{path}: {one_line(error)}") from None

    def __len__(self) -> int:
        return len(self.settings) * len(self.seeds)

    def __repr__(self) -> str:
        return f"<study {self.name}: {len(self.settings)} settings x {len(self.seeds)} seeds>"

    def runs(self) -> Iterator[Run]:
        """Seed by seed, the longest runs first, so that half a study is a study of half the seeds
        and no process is left alone with a long run at the end.
        """

        def length(setting: Setting) -> float:
            H = setting.problem.get("horizon", 1)
            return setting.episodes * (H if isinstance(H, int | float) else 1)

        settings = sorted(self.settings, key=length, reverse=True)
        return (Run(setting, seed) for seed in self.seeds for setting in settings)

    @property
    def panels(self) -> list[str]:
        return list(dict.fromkeys(setting.panel for setting in self.settings))

    def on_seeds(self, seeds: Sequence[int], name: str) -> Study:
        """The same study, on other seeds, under another name."""
        other = object.__new__(Study)
        other.__dict__.update(self.__dict__)
        other.name, other.seeds = name, list(seeds)
        other.document = self.document | {"seeds": list(seeds)}
        return other

    def only(self, conditions: Iterable[str]) -> Study:
        """The part in which each condition holds: "agent=URL", "horizon=5,10", "seed=3"."""
        part = object.__new__(Study)
        part.__dict__.update(self.__dict__)
        for condition in conditions:
            key, equals, values = condition.partition("=")
            key = key.strip()
            if not equals:
                raise StudyError(f"--only {condition}: must be key=value, such as agent=URL")
            wanted = {value.strip() for value in values.split(",")}
            if key == "seed":
                part.seeds = [seed for seed in part.seeds if str(seed) in wanted]
            else:
                known = {name for s in self.settings for name in _names(s)}
                if key not in known:
                    raise StudyError(f"--only {condition}: no setting has {key!r}"
                                     f"{suggest(key, known)}")  # fmt: skip
                part.settings = [s for s in part.settings if _names(s).get(key, set()) & wanted]
            if not part.settings or not part.seeds:
                raise StudyError(f"--only {condition}: no run is left")
        return part

    def run(self, out: str | Path | None = None, **options: Any) -> Results:
        """Do what is missing, on all cores; see `blockmdp.experiments.driver.run_study`."""
        from blockmdp.experiments.driver import run_study

        return run_study(self, out, **options)


def _seeds(document: Mapping[str, Any]) -> list[int]:
    for key in document:
        if key not in KEYS:
            raise StudyError(f"{key}: there is no such key{suggest(key, KEYS)}")
    for key in ("seeds", "episodes", "problem", "agent"):
        if key not in document:
            raise StudyError(f"{key}: a study needs it")
    seeds = document["seeds"]
    if not isinstance(seeds, list):
        n = _whole("seeds", seeds, 1)
        if n > MOST_RUNS:
            raise StudyError(f"seeds: at most {MOST_RUNS}, got {n}")
        return list(range(n))
    if not seeds:
        raise StudyError("seeds: the list is empty")
    numbers = [_whole(f"seeds[{i}]", seed, 0) for i, seed in enumerate(seeds)]
    if len(set(numbers)) < len(numbers):
        raise StudyError("seeds: the same seed stands there twice")
    if max(numbers) >= 2**63:
        raise StudyError("seeds: must be below 2^63")
    return numbers


def _settings(document: Mapping[str, Any], check: bool) -> list[Setting]:
    _check_plain(document, "")
    problems = [
        (place, complete("problem", table, place))
        for place, table in _expand(document["problem"], "problem")
    ]
    for place, problem in _distinct(problems) if check else ():
        _try("problem", problem, place)
    lengths = document["episodes"]
    lengths = lengths if isinstance(lengths, list) else [lengths]
    if not lengths:
        raise StudyError("episodes: the list is empty")
    lengths = [_whole("episodes", n, 1) for n in lengths]
    if max(lengths) > 10**12:
        raise StudyError(f"episodes: at most 10^12, got {max(lengths)}")
    solved = _solved(document.get("solved", {}))
    entries = document["agent"]
    entries = entries if isinstance(entries, list) else [entries]
    if not entries:
        raise StudyError("agent: the list is empty")
    agents: list[tuple[str, Config, str, Any, Config]] = []
    for i, entry in enumerate(entries):
        place = f"agent[{i}]"
        if not isinstance(entry, Mapping):
            raise StudyError(f"{place}: must be a table with a name, got {entry!r:.60}")
        label, when = entry.get("label"), entry.get("when", {})
        if label is not None and not isinstance(label, str):
            raise StudyError(f"{place}.label: must be a string, got {label!r:.60}")
        _check_when(when, [problem for _, problem in problems], f"{place}.when")
        table = {key: value for key, value in entry.items() if key not in ("label", "when")}
        for below, grid_point in _expand(table, place):
            config = complete("agent", grid_point, below)
            agents.append((below, config, label or _label(config), when, grid_point))
    distinct = _distinct([(place, agent) for place, agent, *_ in agents])
    for place, agent in distinct if check else ():
        _try("agent", agent, place)
    if len(problems) * len(lengths) * len(agents) > MOST_SETTINGS:
        raise StudyError(f"the grid has more than {MOST_SETTINGS} settings")
    titles = _titles([problem for _, problem in problems])
    grid = [
        (f"{title}, {n} episodes" if len(lengths) > 1 else title, problem, agent, n, base, table)
        for (_, problem), title in zip(problems, titles)
        for n in lengths
        for _, agent, base, when, table in agents
        if _holds(when, problem)
    ]
    labels = _labels([(panel, base, agent) for panel, _, agent, _, base, _ in grid])
    settings: dict[str, Setting] = {}
    for (panel, problem, agent, n, base, table), label in zip(grid, labels):
        setting = Setting(problem, agent, n, solved, panel, label, base, table)
        settings.setdefault(setting.key, setting)
    return list(settings.values())


def _expand(table: Any, place: str) -> list[tuple[str, Any]]:
    """Every point of the grid that a table with lists in it spans, with its place."""
    if _size(table) > MOST_SETTINGS:
        raise StudyError(f"{place}: the grid has more than {MOST_SETTINGS} points")
    if isinstance(table, list):
        if not table:
            raise StudyError(f"{place}: the list is empty, and so is the grid")
        if not isinstance(table[0], Mapping):
            return [(place, item) for item in table]
        return [
            point for i, item in enumerate(table) for point in _expand(item, f"{place}[{i}]")
        ]  # fmt: skip
    if not isinstance(table, Mapping):
        return [(place, table)]
    axes = [
        [(key, value) for _, value in _expand(value, f"{place}.{key}")]
        if isinstance(value, list | Mapping)
        else [(key, value)]
        for key, value in table.items()
    ]
    return [(place, dict(point)) for point in itertools.product(*axes)]


def _size(table: Any) -> int:
    if isinstance(table, list):
        return sum(_size(item) if isinstance(item, Mapping) else 1 for item in table)
    if isinstance(table, Mapping):
        return math.prod(_size(value) for value in table.values())
    return 1


def _try(kind: str, config: Config, place: str) -> None:
    """Make it once, so that it checks its own values."""
    from blockmdp.mdp import BlockMDP  # late, and only here: what the parts are is their affair

    seed = {"seed": 0} if kind == "problem" and takes_seed(config) else {}
    try:
        made = build(kind, config, **seed)
    except StudyError:
        raise
    except Exception as error:
        raise StudyError(f"{place}: {config['name']}: {one_line(error)}") from None
    if kind == "problem":
        if hasattr(made, "close"):
            made.close()
        if not (isinstance(made, BlockMDP) or hasattr(made, "step")):
            raise StudyError(
                f"{place}: {config['name']} makes a {type(made).__name__}, "
                "neither a BlockMDP nor a Gymnasium environment"
            )
    elif not hasattr(made, "fit"):
        raise StudyError(
            f"{place}: {config['name']} makes a {type(made).__name__}, which has no fit"
        )


def _solved(table: Any) -> Config:
    if not isinstance(table, Mapping):
        raise StudyError(f"solved: must be a table, got {table!r:.60}")
    for key in table:
        if key not in SOLVED:
            raise StudyError(f"solved.{key}: there is no such key{suggest(key, SOLVED)}")
    solved: Config = dict(SOLVED) | dict(table)
    _whole("solved.window", solved["window"], 1)
    for key in ("share", "above"):
        value = solved[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value)) and not (key == "above" and value is None):
            raise StudyError(f"solved.{key}: must be a number, got {value!r:.60}")
        solved[key] = None if value is None else float(value)
    if not 0 < solved["share"] <= 1:
        raise StudyError(f"solved.share: must be in (0, 1], got {solved['share']}")
    return solved


def _check_when(when: Any, problems: Sequence[Config], place: str) -> None:
    known = {key for problem in problems for key in problem}
    for table in when if isinstance(when, list) else [when]:
        if not isinstance(table, Mapping):
            raise StudyError(f"{place}: must be a table, such as {{ horizon = 5 }}, or several; "
                             f"got {table!r:.60}")  # fmt: skip
        for key in table:
            if key not in known:
                raise StudyError(f"{place}.{key}: no problem has it{suggest(key, known)}")
    if not any(_holds(when, problem) for problem in problems):
        raise StudyError(f"{place}: holds for no problem of this study")


def _holds(when: Any, problem: Config) -> bool:
    """Whether a problem has the values that a table asks for, each one or one of a list; of several
    tables one will do.
    """
    if isinstance(when, list):
        return any(_holds(table, problem) for table in when)
    return all(
        key in problem and problem[key] in (value if isinstance(value, list) else [value])
        for key, value in when.items()
    )


def _label(agent: Config) -> str:
    """How an agent is called in figures if the study does not say."""
    learner = agent.get("learner")
    if agent["name"] == "Tabular":
        name = "OracleQ" if learner is None else learner["name"].rpartition(":")[2]
        return f"{name}-{str(agent['on'])[:3]}"
    return str(agent["name"].rpartition(":")[2].rpartition(".")[2])


def _labels(rows: Sequence[tuple[str, str, Config]]) -> list[str]:
    """Labels of (panel, label, agent), with what tells agents of one label in one panel apart."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for panel, label, agent in rows:
        groups.setdefault((panel, label), []).append(dict(_flatten(agent)))
    varying: dict[str, list[str]] = {}
    for (_, label), agents in groups.items():
        names = varying.setdefault(label, [])
        for name in dict.fromkeys(name for agent in agents for name in agent):
            different = any(agent.get(name) != agents[0].get(name) for agent in agents)
            if different and name not in names and not name.endswith("source"):
                names.append(name)
    told = []
    for _, label, agent in rows:
        flat = dict(_flatten(agent))
        words = [f"{name.rpartition('.')[2] if not name.endswith('.name') else name[:-5]}"
                 f"={_say(flat[name])}" for name in varying[label] if name in flat]  # fmt: skip
        told.append(" ".join([label, *words]))
    return told


def _titles(problems: Sequence[Config]) -> list[str]:
    """Panels' titles: what tells the problems apart."""
    flats = [dict(_flatten(problem)) for problem in problems]
    names = list(dict.fromkeys(name for flat in flats for name in flat if name != "source"))
    varying = [n for n in names if any(flat.get(n) != flats[0].get(n) for flat in flats)]
    titles = []
    for flat in flats:
        words = [
            str(flat[n]) if n == "name" else f"{'H' if n == 'horizon' else n} = {_say(flat[n])}"
            for n in varying
            if n in flat
        ]
        titles.append(", ".join(words) or str(flat["name"]))
    return titles


def _names(setting: Setting) -> dict[str, set[str]]:
    """What `--only` can ask for -> the values it has."""
    names: dict[str, set[str]] = {
        "agent": {setting.label, setting.agent["name"]},
        "problem": {setting.problem["name"], setting.panel},
    }
    for dotted, value in setting.flat.items():
        parts = dotted.split(".")
        for i in range(len(parts)):
            names.setdefault(".".join(parts[i:]), set()).add(_say(value))
    return names


def _say(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flatten(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _distinct(rows: Iterable[tuple[str, Config]]) -> list[tuple[str, Config]]:
    return list({_canonical(config): (place, config) for place, config in rows}.values())


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _whole(place: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StudyError(f"{place}: must be a whole number, got {value!r:.60}")
    try:
        return whole_number(place, value, least)
    except ValueError as error:
        raise StudyError(one_line(error).replace(" ", ": ", 1)) from None


def _check_plain(value: Any, place: str) -> None:
    if isinstance(value, Mapping):
        for key, below in value.items():
            if not isinstance(key, str):
                raise StudyError(f"{place}: keys must be strings, got {key!r:.60}")
            _check_plain(below, f"{place}.{key}".strip("."))
    elif isinstance(value, list):
        for i, below in enumerate(value):
            _check_plain(below, f"{place}[{i}]")
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise StudyError(f"{place}: a {type(value).__name__} has no use in a study")


def _change(document: dict[str, Any], change: str) -> None:
    """Set one value of a document: "episodes=5000", "agent.URL.batch=[100, 200]"."""
    path, equals, text = change.partition("=")
    if not equals or not path.strip():
        raise StudyError(f"--set {change}: must be key=value, such as episodes=5000")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text.strip()
    *parents, last = path.strip().split(".")
    tables: list[Any] = [document]
    for part in parents:
        below = []
        for table in tables:
            found = table.get(part) if isinstance(table, dict) else None
            if isinstance(table, list):
                found = [row for row in table if isinstance(row, dict)
                         and part in (row.get("label"), row.get("name"))] or None  # fmt: skip
            if found is not None:
                below.append(found)
        if not below:
            raise StudyError(f"--set {change}: the study has no {part!r}")
        tables = below
    tables = [row for t in tables for row in (t if isinstance(t, list) else [t])]
    for table in tables:
        if not isinstance(table, dict):
            raise StudyError(f"--set {change}: {'.'.join(parents)} is no table")
        table[last] = value


def to_toml(document: Mapping[str, Any]) -> str:
    """A study's document as a study file."""
    lines = [f"{_key(k)} = {_value(v)}" for k, v in document.items() if not _is_tables(v)]
    for key, value in document.items():
        if _is_tables(value):
            rows = value if isinstance(value, list) else [value]
            head = f"[[{_key(key)}]]" if isinstance(value, list) else f"[{_key(key)}]"
            for row in rows:
                body = [f"{_key(k)} = {_value(v)}" for k, v in row.items() if v is not None]
                lines += ["", head, *body]
    return "\n".join(lines) + "\n"


def _is_tables(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, Mapping) for item in value)
    return isinstance(value, Mapping)


def _key(key: str) -> str:
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isascii() and bare.isalnum() else json.dumps(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inside} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)
