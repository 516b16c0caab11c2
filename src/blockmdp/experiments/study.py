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

from blockmdp.checks import check_integer
from blockmdp.experiments.catalogue import (
    SOURCE,
    Config,
    StudyError,
    build,
    complete,
    one_line,
    short,
    suggest,
    takes_seed,
)

if TYPE_CHECKING:
    from blockmdp.experiments.results import Results

__all__ = ["Run", "Setting", "Study", "StudyError", "titles", "to_toml", "varying"]

KEYS = ("seeds", "episodes", "problem", "agent", "solved")
MOST_SETTINGS, MOST_RUNS, DEEPEST = 10**5, 10**7, 20
OWN = ("episodes", "solved")  # of these a problem may have its own
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
    entry : which of the study's agents it is, from 0; those of one label are one.
    table : that agent as the study writes it, at this point of the grid.
    """

    problem: Config
    agent: Config
    episodes: int
    solved: Config
    panel: str = ""
    label: str = ""
    base: str = ""
    entry: int = 0
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


_FIELDS = tuple(Setting.__dataclass_fields__)


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
        (a list of tables) and, if need be, solved. Any other list is an axis of a grid. An agent
        may have a label, and a table `when` of what its problems must have: { horizon = [5, 10] }.
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
        _check_plain(document, "")
        self._whole: Study | None = None  # of which this is a part
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
        """Read a study file; each change is "key=value", as in `--set problem.horizon=[5]`.

        A user's own modules are looked for beside the file, or in the folder that it names as
        `modules`.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise StudyError(f"{path}: {error.strerror or error}") from None
        except ValueError:
            raise StudyError(f"{path}: is not text in UTF-8") from None
        try:
            document = tomllib.loads(text)
            for change in changes:
                _change(document, change)
            folder = document.pop("modules", ".")
            if not isinstance(folder, str):
                raise StudyError(f"modules: must be the path of a folder, got {short(folder)}")
            name = path.stem.encode(errors="replace").decode()  # whatever the file system allows
            return cls(document, name, path.parent / folder)
        except RecursionError:
            raise StudyError(f"{path}: is nested too deeply") from None
        except ValueError as error:
            raise StudyError(f"{path}: {one_line(error)}") from None

    def expanded(self) -> str:
        """The whole study as JSON, with every setting, so that it can be read where a user's own
        parts are not to be had, or have changed.
        """
        whole = self._whole or self
        settings = [{name: getattr(s, name) for name in (*_FIELDS, "key")} for s in whole.settings]
        return json.dumps({"document": whole.document, "seeds": whole.seeds, "settings": settings})

    @classmethod
    def restored(cls, text: str, name: str, folder: str | None) -> Study:
        """The study that `expanded` wrote."""
        kept = json.loads(text)
        study = object.__new__(cls)
        study._whole, study.document, study.seeds = None, kept["document"], kept["seeds"]
        study.name, study.folder = name, folder
        study.settings = []
        for fields in kept["settings"]:
            key = fields.pop("key", None)
            study.settings.append(Setting(**fields))
            if key:  # hashing it again takes longer than all the rest
                vars(study.settings[-1])["key"] = key
        return study

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
        other.name, other.seeds, other._whole = name, list(seeds), None
        other.document = self.document | {"seeds": list(seeds)}
        return other

    def only(self, conditions: Iterable[str]) -> Study:
        """The part in which each condition holds: "agent=URL", "horizon=5,10", "seed=3"."""
        part = object.__new__(Study)
        part.__dict__.update(self.__dict__)
        part._whole = self._whole or self
        for condition in conditions:
            key, equals, values = (word.strip() for word in condition.partition("="))
            if not equals:
                raise StudyError(f"--only {condition}: must be key=value, such as agent=URL")
            # as a whole too, since a panel's title has commas; and 1e-3 is 0.001
            wanted = {values, *(_say(_parse(value)) for value in values.split(","))}
            if key == "seed":
                known = {str(seed) for seed in part.seeds}
                part.seeds = [seed for seed in part.seeds if str(seed) in wanted]
            else:
                names = [_names(setting) for setting in part.settings]
                if not any(key in has for has in names):
                    near = suggest(key, {"seed"}.union(*names))
                    raise StudyError(f"--only {condition}: no setting has {key!r}{near}")
                known = set[str]().union(*(has.get(key, ()) for has in names))
                part.settings = [s for s, has in zip(part.settings, names)
                                 if has.get(key, set()) & wanted]  # fmt: skip
            if not part.settings or not part.seeds:
                raise StudyError(f"--only {condition}: no run is left{suggest(values, known)}")
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
            raise StudyError(f"seeds: at most {MOST_RUNS}, got {short(seeds)}")
        return list(range(n))
    if not seeds:
        raise StudyError("seeds: the list is empty")
    numbers = [_whole(f"seeds[{i}]", seed, 0) for i, seed in enumerate(seeds)]
    if len(set(numbers)) < len(numbers):
        raise StudyError("seeds: the same seed stands there twice")
    if max(numbers) >= 2**63:
        raise StudyError("seeds: must be below 2^63")
    return numbers


class _Agent(NamedTuple):
    """A point of an agent's grid."""

    place: str
    config: Config
    label: str
    when: Any
    entry: int
    table: Config


class _Problem(NamedTuple):
    """A point of the problems' grid, and for how long and by which measure it is run."""

    place: str
    config: Config
    episodes: int
    solved: Config


def _problems(document: Mapping[str, Any]) -> list[_Problem]:
    lengths = _episodes(document["episodes"], "episodes")
    solved = _solved(document.get("solved", {}), "solved")
    points: list[_Problem] = []
    for place, table in _expand(document["problem"], "problem"):
        own = {key: table[key] for key in OWN if key in table} if isinstance(table, dict) else {}
        rest = {key: table[key] for key in table if key not in OWN} if own else table
        config = complete("problem", rest, place)
        here = _episodes(own["episodes"], f"{place}.episodes") if "episodes" in own else lengths
        measure = _solved(own["solved"], f"{place}.solved") if "solved" in own else solved
        if (len(points) + 1) * len(here) > MOST_SETTINGS:
            raise StudyError(f"the grid has more than {MOST_SETTINGS} settings")
        points += [_Problem(place, config, n, measure) for n in here]
    return points


def _settings(document: Mapping[str, Any], check: bool) -> list[Setting]:
    problems = _problems(document)
    lengths: dict[str, set[int]] = {}
    for problem in problems:
        lengths.setdefault(_canonical(problem.config), set()).add(problem.episodes)
    panels: list[Config] = []
    for problem, title in zip(problems, titles([problem.config for problem in problems])):
        several = len(lengths[_canonical(problem.config)]) > 1
        title += f", {problem.episodes} episodes" if several else ""
        panels.append({"panel": title, "episodes": problem.episodes} | problem.config)
    agents = _agents(document["agent"], panels)
    if len(panels) * len(agents) > MOST_SETTINGS:
        raise StudyError(f"the grid has more than {MOST_SETTINGS} settings")
    if check:
        _try("problem", ((problem.place, problem.config) for problem in problems))
        _try("agent", ((agent.place, agent.config) for agent in agents))
    here = [tuple(i for i, a in enumerate(agents) if _holds(a.when, panel)) for panel in panels]
    labels = _labels(agents, here)
    settings: dict[str, Setting] = {}
    names: dict[tuple[str, str], str] = {}
    for (_, what, n, solved), panel, indices in zip(problems, panels, here):
        for i in indices:
            place, config, base, _, entry, table = agents[i]
            title, label = panel["panel"], labels[i]
            setting = Setting(what, config, n, solved, title, label, base, entry, table)
            settings.setdefault(setting.key, setting)
            if names.setdefault((title, label), setting.key) != setting.key:
                raise StudyError(f"{place}: another one is called {label!r} too; "
                                 "give it a label of its own")  # fmt: skip
    return list(settings.values())


def _episodes(lengths: Any, place: str) -> list[int]:
    lengths = lengths if isinstance(lengths, list) else [lengths]
    if not lengths:
        raise StudyError(f"{place}: the list is empty")
    numbers = [_whole(place, n, 1) for n in lengths]
    if max(numbers) > 10**12:
        raise StudyError(f"{place}: at most 10^12, got {short(max(lengths))}")
    return list(dict.fromkeys(numbers))


def _agents(entries: Any, panels: Sequence[Config]) -> list[_Agent]:
    entries = entries if isinstance(entries, list) else [entries]
    if not entries:
        raise StudyError("agent: the list is empty")
    agents = []
    first: dict[str | int, int] = {}
    for i, entry in enumerate(entries):
        place = f"agent[{i}]"
        if not isinstance(entry, Mapping):
            raise StudyError(f"{place}: must be a table with a name, got {short(entry)}")
        label, when = entry.get("label", ""), entry.get("when", {})
        if not isinstance(label, str) or not label.isprintable():
            raise StudyError(f"{place}.label: must be a string of one line, got {short(label)}")
        _check_when(when, panels, f"{place}.when")
        table = {key: value for key, value in entry.items() if key not in ("label", "when")}
        which = first.setdefault(label or i, i)
        for below, point in _expand(table, place):
            config = complete("agent", point, below)
            agents.append(_Agent(below, config, label or _label(config), when, which, point))
    return agents


def _expand(table: Any, place: str) -> list[tuple[str, Any]]:
    """Every point of the grid that a table with lists in it spans, with its place."""
    if _size(table) > MOST_SETTINGS:
        raise StudyError(f"{place}: the grid has more than {MOST_SETTINGS} points")
    if isinstance(table, list):
        if not table:
            raise StudyError(f"{place}: the list is empty, and so is the grid")
        return [
            point
            for i, item in enumerate(table)
            for point in (
                _expand(item, f"{place}[{i}]") if isinstance(item, Mapping) else [(place, item)]
            )
        ]
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


def _try(kind: str, configs: Iterable[tuple[str, Config]]) -> None:
    """Make each once, so that it checks its own values."""
    from blockmdp.mdp import BlockMDP  # late, and only here: what the parts are is their affair

    for place, config in {
        _canonical(config): (place, config) for place, config in configs
    }.values():
        seed = {"seed": 0} if kind == "problem" and takes_seed(config) else {}
        try:
            made = build(kind, config, **seed)
        except (Exception, SystemExit) as error:  # a user's own part may fail in any way
            why = "" if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: "
            raise StudyError(f"{place}: {config['name']}: {why}{one_line(error)}") from None
        what = f"{place}: {config['name']} makes a {type(made).__name__}"
        if kind == "agent" and not hasattr(made, "fit"):
            raise StudyError(f"{what}, which has no fit")
        if kind == "problem" and not (isinstance(made, BlockMDP) or hasattr(made, "step")):
            raise StudyError(f"{what}, neither a BlockMDP nor a Gymnasium environment")
        if hasattr(made, "close"):
            made.close()


def _solved(table: Any, place: str) -> Config:
    if not isinstance(table, Mapping):
        raise StudyError(f"{place}: must be a table, got {short(table)}")
    for key in table:
        if key not in SOLVED:
            raise StudyError(f"{place}.{key}: there is no such key{suggest(key, SOLVED)}")
    solved: Config = dict(SOLVED) | dict(table)
    if solved["window"] != "all":
        if isinstance(solved["window"], str):
            got = short(solved["window"])
            raise StudyError(f'{place}.window: must be a whole number or "all", got {got}')
        solved["window"] = _whole(f"{place}.window", solved["window"], 1)
    for key in ("share", "above"):
        value = solved[key]
        if key == "above" and value in (None, "none"):
            solved[key] = None
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and math.isfinite(value)):
            raise StudyError(f"{place}.{key}: must be a number, got {short(value)}")
        solved[key] = float(value)
    if not 0 < solved["share"] <= 1:
        raise StudyError(f"{place}.share: must be in (0, 1], got {solved['share']}")
    return solved


def _check_when(when: Any, panels: Sequence[Config], place: str) -> None:
    known = {key for panel in panels for key in panel if key != SOURCE}
    for table in when if isinstance(when, list) else [when]:
        if not isinstance(table, Mapping):
            raise StudyError(f"{place}: must be a table, such as {{ horizon = 5 }}, or several; "
                             f"got {short(table)}")  # fmt: skip
        for key in table:
            if key not in known:
                raise StudyError(f"{place}.{key}: no problem has it{suggest(key, known)}")
    if not any(_holds(when, panel) for panel in panels):
        raise StudyError(f"{place}: holds for no problem of this study")


def _holds(when: Any, panel: Config) -> bool:
    """Whether a panel has the values that a table asks for, each one or one of a list; of several
    tables one will do.
    """
    if isinstance(when, list):
        return any(_holds(table, panel) for table in when)
    return all(
        key in panel and panel[key] in (value if isinstance(value, list) else [value])
        for key, value in when.items()
    )


def _label(agent: Config) -> str:
    """How an agent is called in figures if the study does not say."""
    learner = agent.get("learner")
    if agent["name"] == "Tabular":
        name = "OracleQ" if learner is None else _last(learner["name"])
        return f"{name}-{str(agent['on'])[:3]}"
    return _last(agent["name"])


def _last(path: str) -> str:
    return path.rpartition(":")[2].rpartition(".")[2]


def _labels(agents: Sequence[_Agent], panels: Iterable[tuple[int, ...]]) -> list[str]:
    """The agents' labels, with what tells those of one label in one panel apart; a panel is the
    indices of its agents.
    """
    flats = [dict(_flatten(agent.config)) for agent in agents]
    telling: dict[str, dict[str, None]] = {agent.label: {} for agent in agents}
    for indices in dict.fromkeys(panels):
        groups: dict[str, list[Config]] = {}
        for i in indices:
            groups.setdefault(agents[i].label, []).append(flats[i])
        for label, group in groups.items():
            telling[label] |= dict.fromkeys(varying(group))
    return [
        " ".join(
            [agent.label, *(f"{_last(name.removesuffix('.name'))}={_say(flat[name])}"
             for name in telling[agent.label] if name in flat)]
        )
        for agent, flat in zip(agents, flats)
    ]  # fmt: skip


def titles(problems: Sequence[Config]) -> list[str]:
    """Panels' titles: what tells the problems apart."""
    flats = [dict(_flatten(problem)) for problem in problems]
    every = varying(flats)
    # not what the problems of one name have alone, and all alike, unless nothing else will do
    few = [key for key in every if varying([{key: flat[key]} for flat in flats if key in flat])]
    found = [_title(flat, few) for flat in flats]
    if len(set(found)) < len({repr(flat) for flat in flats}):
        found = [_title(flat, every) for flat in flats]
    return found


def _title(flat: Mapping[str, Any], keys: Iterable[str]) -> str:
    words = [
        _say(flat[key])
        if key == "name"
        else f"{'H' if key == 'horizon' else key} = {_say(flat[key])}"
        for key in keys
        if key in flat and (key, flat[key]) != ("horizon", None)
    ]
    return ", ".join(words) or _say(flat["name"])


def varying(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys under which not all tables have the same, but for digests of files."""
    keys = dict.fromkeys(key for table in tables for key in table if not key.endswith(SOURCE))
    return [key for key in keys if len({repr(table.get(key, ...)) for table in tables}) > 1]


def _names(setting: Setting) -> dict[str, set[str]]:
    """What `--only` can ask for -> the values it has."""
    names: dict[str, set[str]] = {
        "agent": {setting.label, setting.base, setting.agent["name"]},
        "problem": {setting.problem["name"], setting.panel},
    }
    for dotted, value in setting.flat.items():
        parts = dotted.split(".")
        for i in range(len(parts)):
            names.setdefault(".".join(parts[i:]), set()).add(_say(value))
    return names


def _say(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(brief := f"{value:g}") == value:
        return brief
    return " ".join(str(value).split())


def _flatten(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _whole(place: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StudyError(f"{place}: must be a whole number, got {short(value)}")
    try:
        return check_integer(place, value, least)
    except ValueError as error:
        raise StudyError(one_line(error).replace(" ", ": ", 1)) from None


def _check_plain(value: Any, place: str, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise StudyError(f"{place:.60}: is nested too deeply")
    if isinstance(value, Mapping):
        for key, below in value.items():
            if not isinstance(key, str):
                raise StudyError(f"{place}: keys must be strings, got {short(key)}")
            _check_plain(below, f"{place}.{key}".strip("."), depth + 1)
    elif depth == 0:
        raise StudyError(f"a study is a table, got {short(value)}")
    elif isinstance(value, list):
        for i, below in enumerate(value):
            _check_plain(below, f"{place}[{i}]", depth + 1)
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise StudyError(f"{place}: a {type(value).__name__} has no use in a study")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise StudyError(f"{place}: {short(value)} is too large for a number of 64 bits")
    elif value != value:
        raise StudyError(f"{place}: nan is no number")


def _parse(text: str) -> Any:
    """A value as a study file writes it; what is none is a string."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return document["value"] if len(document) == 1 else text.strip()


def _named(table: Any) -> list[tuple[Any, Any]]:
    """What can be reached from a table by its keys, or from a list of them by label and name."""
    if isinstance(table, dict):
        return list(table.items())
    rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
    return [(row.get(key), row) for row in rows for key in ("label", "name")]


def _change(document: dict[str, Any], change: str) -> None:
    """Set one value of a document: "episodes=5000", "agent.URL.batch=[100, 200]"."""
    path, equals, text = change.partition("=")
    if not equals or not path.strip():
        raise StudyError(f"--set {change}: must be key=value, such as episodes=5000")
    *parents, last = path.strip().split(".")
    tables: list[Any] = [document]
    for part in parents:
        named = [pair for table in tables for pair in _named(table)]
        tables = [found for name, found in named if name == part]
        if not tables:
            near = suggest(part, {name for name, _ in named if isinstance(name, str)})
            raise StudyError(f"--set {change}: the study has no {part!r}{near}")
    for table in [row for t in tables for row in (t if isinstance(t, list) else [t])]:
        if not isinstance(table, dict):
            raise StudyError(f"--set {change}: {'.'.join(parents)} is no table")
        table[last] = _parse(text)


def to_toml(document: Mapping[str, Any]) -> str:
    """A study's document as a study file; None becomes "none"."""
    lines = [f"{_key(k)} = {_value(v)}" for k, v in document.items() if not _is_tables(v)]
    for key, value in document.items():
        if _is_tables(value):
            rows = value if isinstance(value, list) else [value]
            head = f"[[{_key(key)}]]" if isinstance(value, list) else f"[{_key(key)}]"
            for row in rows:
                lines += ["", head, *(f"{_key(k)} = {_value(v)}" for k, v in row.items())]
    return "\n".join(lines) + "\n"


def _is_tables(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, Mapping) for item in value)
    return isinstance(value, Mapping)


def _key(key: str) -> str:
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isascii() and bare.isalnum() else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items())
        return f"{{ {inside} }}"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return '"none"' if value is None else f"{value!s}"
