"""The grid of a study: every list in its document is an axis, every point a setting."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from blockmdp.experiments.document import check_when, matches, read_episodes, read_solved
from blockmdp.experiments.errors import StudyError, one_line, short
from blockmdp.experiments.labels import agent_label, distinct_labels, panel_titles
from blockmdp.experiments.parts import build, complete, foreign, takes_seed
from blockmdp.experiments.runs import optimal_value
from blockmdp.experiments.settings import Config, Setting, agent_content, canonical, content
from blockmdp.mdp import BlockMDP

__all__ = ["expand"]

MAX_SETTINGS = 10**5
PER_PROBLEM = ("episodes", "solved")  # keys that a problem may set for itself


class _Agent(NamedTuple):
    """A point of an agent's grid."""

    place: str
    config: Config
    label: str
    when: Any
    position: int
    table: Config


class _Problem(NamedTuple):
    """A point of the problems' grid, with its number of episodes and when it is solved."""

    place: str
    config: Config
    episodes: int
    solved: Config


def expand(document: Mapping[str, Any], check: bool = True, trust: bool = True) -> list[Setting]:
    """Return the settings of a study: each problem with each agent, in the document's order.

    Parameters
    ----------
    document : mapping
        A study's document whose keys have been checked.
    check : bool, default=True
        Make every problem and every agent once, so that they check their own parameters.
    trust : bool, default=True
        Whether to import the user's own parts, and to make them.

    Returns
    -------
    list of Setting
        No two settings have the same content, or the same label in the same panel.
    """
    _check_size(document)
    problems = _problems(document, trust)
    valued = [problem.solved.get("measure") == "value" for problem in problems]
    if check:  # before agents, whose imports take seconds
        parts = [(p.place, p.config, v) for p, v in zip(problems, valued)]
        _try_building("problem", parts, trust)
    panels = _panels(problems)
    agents = _agents(document["agent"], panels, trust)
    shown = [tuple(i for i, a in enumerate(agents) if matches(a.when, panel)) for panel in panels]
    if check:
        measured = {i for indices, by_value in zip(shown, valued) if by_value for i in indices}
        parts = [(a.place, a.config, i in measured) for i, a in enumerate(agents)]
        _try_building("agent", parts, trust)
    labels = distinct_labels([a.label for a in agents], [a.config for a in agents], shown)
    settings: dict[str, Setting] = {}
    taken: dict[tuple[str, str], str] = {}
    contents = [agent_content(agent.config) for agent in agents]
    for problem, panel, indices in zip(problems, panels, shown):
        of_problem = canonical(problem.config), canonical(problem.solved), problem.episodes
        for i in indices:
            agent, title, label = agents[i], panel["panel"], labels[i]
            setting = Setting(
                problem.config,
                agent.config,
                problem.episodes,
                problem.solved,
                title,
                label,
                agent.label,
                agent.position,
                agent.table,
            )
            vars(setting)["content"] = content(contents[i], *of_problem)
            settings.setdefault(setting.key, setting)
            if taken.setdefault((title, label), setting.key) != setting.key:
                raise StudyError(f"{agent.place}: another agent has the label {label!r}; "
                                 "give one of them a different label")  # fmt: skip
    return list(settings.values())


def _problems(document: Mapping[str, Any], trust: bool) -> list[_Problem]:
    common_episodes = read_episodes(document["episodes"], "episodes")
    common_solved = read_solved(document.get("solved", {}), "solved")
    points: list[_Problem] = []
    for place, table in _points(document["problem"], "problem"):
        own: Config = {}
        if isinstance(table, dict):
            own = {key: table[key] for key in PER_PROBLEM if key in table}
            table = {key: value for key, value in table.items() if key not in PER_PROBLEM}
        config = complete("problem", table, place, trust)
        episodes, solved = common_episodes, common_solved
        if "episodes" in own:
            episodes = read_episodes(own["episodes"], f"{place}.episodes")
        if "solved" in own:
            solved = read_solved(own["solved"], f"{place}.solved")
        points += [_Problem(place, config, n, solved) for n in episodes]
    return points


def _panels(problems: Sequence[_Problem]) -> list[Config]:
    """Return what an agent's `when` can ask for: parameters, episodes and the panel's title."""
    lengths: dict[str, set[int]] = {}
    for problem in problems:
        lengths.setdefault(canonical(problem.config), set()).add(problem.episodes)
    panels: list[Config] = []
    for problem, title in zip(problems, panel_titles([problem.config for problem in problems])):
        if len(lengths[canonical(problem.config)]) > 1:
            title += f", {problem.episodes} episodes"
        panels.append({"panel": title, "episodes": problem.episodes} | problem.config)
    return panels


def _agents(entries: Any, panels: Sequence[Config], trust: bool) -> list[_Agent]:
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
        check_when(when, panels, f"{place}.when")
        table = _without_conditions(entry)
        position = first.setdefault(label or i, i)
        for below, point in _points(table, place):
            config = complete("agent", point, below, trust)
            agents.append(
                _Agent(below, config, label or agent_label(config), when, position, point)
            )
    return agents


def _without_conditions(entry: Mapping[str, Any]) -> Config:
    return {key: value for key, value in entry.items() if key not in ("label", "when")}


def _points(table: Any, place: str) -> list[tuple[str, Any]]:
    """Return every point of the grid that a table with lists in it spans, with its place."""
    if isinstance(table, list):
        if not table:
            raise StudyError(f"{place}: the list is empty")
        return [
            point
            for i, item in enumerate(table)
            for point in (
                _points(item, f"{place}[{i}]") if isinstance(item, Mapping) else [(place, item)]
            )
        ]
    if not isinstance(table, Mapping):
        return [(place, table)]
    axes = [
        [(key, value) for _, value in _points(value, f"{place}.{key}")]
        if isinstance(value, list | Mapping)
        else [(key, value)]
        for key, value in table.items()
    ]
    return [(place, dict(point)) for point in itertools.product(*axes)]


def _check_size(document: Mapping[str, Any]) -> None:
    """Count the points of the grid before any of them is made."""
    sizes = [("problem", _size(document["problem"]))]
    agents = document["agent"]
    for i, entry in enumerate(agents if isinstance(agents, list) else [agents]):
        table = _without_conditions(entry) if isinstance(entry, Mapping) else entry
        sizes.append((f"agent[{i}]", _size(table)))
    for place, size in sizes:
        if size > MAX_SETTINGS:
            raise StudyError(f"{place}: the grid has more than {MAX_SETTINGS} points")
    n_agents = sum(size for _, size in sizes[1:])
    episodes = document["episodes"]
    n_panels = sizes[0][1] * (len(episodes) if isinstance(episodes, list) else 1)
    if n_panels * n_agents > MAX_SETTINGS:
        raise StudyError(f"the grid has more than {MAX_SETTINGS} settings")


def _size(table: Any) -> int:
    """Return the number of points of the grid that a table with lists in it spans."""
    if isinstance(table, list):
        return sum(_size(item) if isinstance(item, Mapping) else 1 for item in table)
    if isinstance(table, Mapping):
        return math.prod(_size(value) for value in table.values())
    return 1


def _try_building(kind: str, configs: Iterable[tuple[str, Config, bool]], trust: bool) -> None:
    """Make each part once, so that it checks its own parameters. Skip the user's without trust.

    configs: place, complete table, and whether runs with it are solved by value.
    """
    distinct = {(canonical(config), by_value): (place, config, by_value)
                for place, config, by_value in configs}  # fmt: skip
    for place, config, by_value in distinct.values():
        if not trust and foreign(kind, config):
            continue
        seed = {"seed": 0} if kind == "problem" and takes_seed(config) else {}
        try:
            made = build(kind, config, **seed)
        except BaseException as error:  # a user's own part may fail in any way
            if isinstance(error, KeyboardInterrupt):
                raise
            why = "" if isinstance(error, TypeError | ValueError) else f"{type(error).__name__}: "
            raise StudyError(f"{place}: {config['name']}: {why}{one_line(error)}") from None
        what = f"{place}: {config['name']} makes a {type(made).__name__}"
        if kind == "agent" and not hasattr(made, "fit"):
            raise StudyError(f"{what}, which has no method fit")
        if kind == "problem" and not (isinstance(made, BlockMDP) or hasattr(made, "step")):
            raise StudyError(f"{what}, which is neither a BlockMDP nor a Gymnasium environment")
        if by_value and kind == "agent" and not _can_record(made):
            raise StudyError(f"{what}, whose fit keeps no policies, but solved.measure is "
                             '"value"; derive it from blockmdp.Agent, or measure "returns"'
                             )  # fmt: skip
        if by_value and kind == "problem" and optimal_value(made) is None:
            raise StudyError(f'{what}, a black box, which has no exact value, but solved.measure '
                             'is "value"; use measure = "returns" and set solved.above'
                             )  # fmt: skip
        if hasattr(made, "close"):
            made.close()


def _can_record(agent: Any) -> bool:
    """Whether an agent keeps its policies, so that their values can be computed."""
    from blockmdp.agents import Agent

    return isinstance(agent, Agent) and "record" in inspect.signature(agent.fit).parameters
