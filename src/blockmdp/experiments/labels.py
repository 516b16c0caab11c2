"""Labels of agents and titles of panels: short texts that say what differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from blockmdp.experiments.settings import SOURCE, Config, flatten

__all__ = ["agent_label", "distinct_labels", "format_value", "panel_titles", "varying"]


def agent_label(agent: Config) -> str:
    """Return the default label of an agent, such as URL.

    A tabular agent is named after its learner and what it learns on: OracleQ-lat learns on latent
    states, OracleQ-obs on observations.
    """
    learner = agent.get("learner")
    if agent["name"] == "Tabular":
        name = "OracleQ" if learner is None else _last_name(learner["name"])
        return f"{name}-{str(agent['on'])[:3]}"
    return _last_name(agent["name"])


def distinct_labels(
    labels: Sequence[str], agents: Sequence[Config], panels: Iterable[tuple[int, ...]]
) -> list[str]:
    """Return the labels, with the parameters added that differ between agents of the same label.

    Parameters
    ----------
    labels : sequence of str
        Label of each agent.
    agents : sequence of dict
        Name and parameters of each agent.
    panels : iterable of tuple of int
        Indices of the agents that each panel shows. Only agents of the same panel are compared.

    Returns
    -------
    list of str
        One label for each agent.
    """
    flats = [dict(flatten(agent)) for agent in agents]
    differing: dict[str, dict[str, None]] = {label: {} for label in labels}
    peers: dict[str, dict[int, Config]] = {label: {} for label in labels}
    for indices in dict.fromkeys(panels):
        groups: dict[str, dict[int, Config]] = {}
        for i in indices:
            groups.setdefault(labels[i], {})[i] = flats[i]
        for label, group in groups.items():
            differing[label] |= dict.fromkeys(varying(list(group.values())))
            peers[label] |= group
    told = {
        (label, key): _telling(key, list(peers[label].values()))
        for label, keys in differing.items()
        for key in keys
    }
    found = []
    for label, flat in zip(labels, flats):
        names = [n for n in differing[label] if n in flat and _part(n, flat) in told[label, n]]
        words = [f"{_last_name(n.removesuffix('.name'))}={format_value(flat[n])}" for n in names]
        found.append(" ".join([label, *words]))
    return found


def panel_titles(problems: Sequence[Config]) -> list[str]:
    """Return a title for each problem: the parameters in which the problems differ."""
    flats = [dict(flatten(problem)) for problem in problems]
    every = varying(flats)
    # leave out parameters that only some problems have, all with the same value, if possible
    few = [key for key in every if varying([{key: flat[key]} for flat in flats if key in flat])]
    found = [_title(flat, few) for flat in flats]
    if len(set(found)) < len({repr(flat) for flat in flats}):
        found = [_title(flat, every) for flat in flats]
    return found


def varying(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose value differs between the tables, except digests of files."""
    keys = dict.fromkeys(key for table in tables for key in table if not key.endswith(SOURCE))
    return [key for key in keys if len({repr(table.get(key, ...)) for table in tables}) > 1]


def _telling(key: str, peers: Sequence[Config]) -> set[str]:
    """Return the parts, by name, of which a value says more than that name."""
    values: dict[str, set[str]] = {}
    for peer in peers:
        values.setdefault(_part(key, peer), set()).add(repr(peer.get(key, ...)))
    is_name = key.rpartition(".")[2] == "name"
    return {part for part, found in values.items() if is_name or len(found) > 1}


def _part(key: str, flat: Config) -> str:
    """Return the name of the part that a parameter belongs to."""
    return repr(flat.get(".".join([*key.split(".")[:-1], "name"]), ...))


def format_value(value: Any) -> str:
    """Return a value as labels and titles show it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(brief := f"{value:g}") == value:
        return brief
    return " ".join(str(value).split())


def _title(flat: Mapping[str, Any], keys: Iterable[str]) -> str:
    words = [
        format_value(flat[key])
        if key == "name"
        else f"{'H' if key == 'horizon' else key} = {format_value(flat[key])}"
        for key in keys
        if key in flat and (key, flat[key]) != ("horizon", None)
    ]
    return ", ".join(words) or format_value(flat["name"])


def _last_name(path: str) -> str:
    return path.rpartition(":")[2].rpartition(".")[2]
