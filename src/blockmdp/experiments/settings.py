"""The data of one run: its setting (problem, agent, number of episodes) and its seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

__all__ = [
    "SOURCE",
    "Config",
    "Run",
    "Setting",
    "agent_content",
    "canonical",
    "content",
    "flatten",
]

Config = dict[str, Any]
SOURCE = "source.sha256"  # key of a digest of the user's file; no parameter can have this name


@dataclass(frozen=True, eq=False)
class Setting:
    """One problem with one agent, all parameters fixed. With a seed it makes a run.

    Parameters
    ----------
    problem, agent : dict
        Name and all parameters, with defaults filled in.
    episodes : int
        Episodes that the agent learns from.
    solved : dict
        When a run counts as solved: as soon as the mean of the last `window` returns exceeds
        `above`, or, if `above` is None, the fraction `share` of the optimal value. If `measure` is
        "value": as soon as the exact value of the greedy policy stays at `share` of the optimal
        value or above.
    panel : str, default=""
        Title of the panel that shows the run.
    label : str, default=""
        Label of the curve that shows the run.
    base_label : str, default=""
        The label without the parameters that vary over the agent's grid.
    agent_index : int, default=0
        Position of the agent in the study. Agents with the same label share one.
    agent_table : dict, default={}
        The agent as the study file writes it, at this point of the grid.

    Notes
    -----
    Only `problem`, `agent`, `episodes` and `solved` identify a setting. A run is not repeated if
    panels or labels change.
    """

    problem: Config
    agent: Config
    episodes: int
    solved: Config
    panel: str = ""
    label: str = ""
    base_label: str = ""
    agent_index: int = 0
    agent_table: Config = field(default_factory=dict)

    @cached_property
    def content(self) -> str:
        """What identifies the setting, as canonical JSON."""
        parts = agent_content(self.agent), canonical(self.problem), canonical(self.solved)
        return content(*parts, self.episodes)

    @cached_property
    def key(self) -> str:
        """Digest of the content."""
        return hashlib.sha256(self.content.encode()).hexdigest()[:32]

    @property
    def measure(self) -> str:
        """By what a run counts as solved: "returns" or "value"."""
        return str(self.solved.get("measure", "returns"))

    @cached_property
    def kind(self) -> tuple[str, ...]:
        """What the agent consists of. Agents of one kind mostly execute the same compiled loops."""
        return tuple(part for _, part in flatten(self.agent) if isinstance(part, str))

    @cached_property
    def flat(self) -> dict[str, Any]:
        """Every value by its dotted name, such as problem.horizon or agent.learner.lr."""
        return dict(flatten({"problem": self.problem, "agent": self.agent})) | {
            "episodes": self.episodes
        }


class Run(NamedTuple):
    """A setting and a seed.

    Attributes
    ----------
    setting : Setting
        What to run.
    seed : int
        Seed of the agent, and of the problem unless the problem fixes its own.
    """

    setting: Setting
    seed: int

    @property
    def key(self) -> str:
        """Digest of setting and seed, under which the store keeps the run."""
        return hashlib.sha256(f"{self.setting.key}/{self.seed}".encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return f"{self.setting.panel} | {self.setting.label} | seed {self.seed}"


# Parameters that came after the first version, and their defaults. A default is no part of a key,
# so that runs of earlier versions still count.
NEWER: dict[Any, dict[str, Any]] = {
    "Tabular": {"by_level": True},
    **{name: {"stationary": False} for name in ("OracleQ", "PSRL", "QLearning")},
    "UCBVI": {"stationary": False, "discount": 1.0, "greedy": "optimistic"},
    "images": {"kind": "varied", "channels": 3},
}


def agent_content(agent: Config) -> str:
    """Return what identifies an agent, as canonical JSON."""
    return canonical(_without_newer(agent))


def content(agent: str, problem: str, solved: str, episodes: int) -> str:
    """Return what identifies a setting, given the canonical JSON of its parts: as canonical JSON.

    A study has many settings, but few different parts.
    """
    return f'{{"agent":{agent},"episodes":{episodes},"problem":{problem},"solved":{solved}}}'


def _without_newer(table: Config) -> Config:
    newer = NEWER.get(table.get("name"), {})
    return {
        key: _without_newer(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if not (key in newer and canonical(value) == canonical(newer[key]))
    }


def flatten(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every entry of a nested table."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def canonical(value: Any) -> str:
    """Return a value as JSON; equal values give equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
