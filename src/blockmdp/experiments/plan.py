"""The plan of a study: which runs it consists of. Pure data, without checks and without running."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, Self

from blockmdp.experiments.changes import select
from blockmdp.experiments.errors import StoreError
from blockmdp.experiments.settings import Run, Setting

__all__ = ["Plan"]

NAMES = [field.name for field in fields(Setting)]
_SLOTS = (*NAMES, "key")
TYPES: dict[str, type] = dict.fromkeys(NAMES, dict)
TYPES.update(panel=str, label=str, base_label=str, episodes=int, agent_index=int)


class Plan:
    """The settings and the seeds of a study. Every setting with every seed makes a run.

    A store keeps the plan of each of its studies, so that results can be read without the modules
    that the study names. `Study` builds a plan from a document and can run it.

    Parameters
    ----------
    name : str
        Name of the study.
    folder : str or None
        Folder with the user's own modules.
    document : dict
        Content of the study file.
    seeds : sequence of int
        Seeds of the runs.
    settings : sequence of Setting
        Each problem with each agent.

    Attributes
    ----------
    name, folder, document, seeds, settings
        As given.

    See Also
    --------
    Study : Reads and runs a study.
    """

    def __init__(
        self,
        name: str,
        folder: str | None,
        document: dict[str, Any],
        seeds: Sequence[int],
        settings: Sequence[Setting],
    ) -> None:
        self.name, self.folder, self.document = name, folder, document
        self.seeds, self.settings = list(seeds), list(settings)
        self._whole: Plan | None = None  # the plan that `only` took this part from

    def __len__(self) -> int:
        return len(self.settings) * len(self.seeds)

    def __repr__(self) -> str:
        return f"<study {self.name}: {len(self.settings)} settings x {len(self.seeds)} seeds>"

    @property
    def whole(self) -> Plan:
        """The study that `only` took this part from; itself if it is no part."""
        return self._whole or self

    @property
    def panels(self) -> list[str]:
        """Titles of the panels, in the order of the document."""
        return list(dict.fromkeys(setting.panel for setting in self.settings))

    def runs(self) -> Iterator[Run]:
        """Iterate over all runs, seed by seed, with the longest runs of each seed first.

        An unfinished study is therefore a study with fewer seeds, and no worker is left alone with
        a long run at the end.

        Returns
        -------
        iterator of Run
            A setting and a seed each.
        """

        def length(setting: Setting) -> float:
            H = setting.problem.get("horizon", 1)
            return setting.episodes * (H if isinstance(H, int | float) else 1)

        settings = sorted(self.settings, key=length, reverse=True)
        return (Run(setting, seed) for seed in self.seeds for setting in settings)

    def only(self, conditions: Iterable[str]) -> Self:
        """Return the part of the study in which all conditions hold.

        Parameters
        ----------
        conditions : iterable of str
            A name and one or more values each, such as "agent=URL", "horizon=5,10" or "seed=3".

        Returns
        -------
        Plan or Study
            Of the same type as this one, with fewer settings or seeds.

        Raises
        ------
        StudyError
            If a condition cannot be read, or no run matches.
        """
        part = copy.copy(self)
        part._whole = self._whole or self
        part.settings, part.seeds = select(self.settings, self.seeds, conditions)
        return part

    def on_seeds(self, seeds: Iterable[int], name: str) -> Self:
        """Return the same study with other seeds.

        Parameters
        ----------
        seeds : iterable of int
            Seeds of the new study.
        name : str
            Name of the new study.

        Returns
        -------
        Plan or Study
            Of the same type as this one.
        """
        other = copy.copy(self)
        other.name, other.seeds = name, list(seeds)
        other.document = self.document | {"seeds": other.seeds}
        if self._whole is not None:
            other._whole = self._whole.on_seeds(other.seeds, name)
        return other

    def to_json(self) -> str:
        """Return the whole study as JSON, also if this is a part of it.

        Returns
        -------
        str
            Document, seeds and settings, for `from_json`.
        """
        whole = self._whole or self
        columns = {name: _packed([getattr(s, name) for s in whole.settings]) for name in NAMES}
        keys = [setting.key for setting in whole.settings]
        kept = {"document": whole.document, "seeds": whole.seeds, "settings": columns, "keys": keys}
        return json.dumps(kept)

    @staticmethod
    def from_json(text: str, name: str, folder: str | None) -> Plan:
        """Return the plan that `to_json` wrote.

        Parameters
        ----------
        text : str
            What `to_json` returned.
        name : str
            Name of the study.
        folder : str or None
            Folder with the user's own modules.

        Returns
        -------
        Plan
            The plan of the whole study.
        """
        try:
            kept = json.loads(text)
            columns, keys = kept["settings"], kept.get("keys")
            if isinstance(columns, list):  # as earlier versions wrote it: a table for each setting
                keys = [table.pop("key") for table in columns]
                tables = [vars(Setting(**table)) for table in columns]
                columns = {name: _packed([table[name] for table in tables]) for name in NAMES}
            for each in NAMES:
                _check(each, columns[each][0])
            rows = zip(*(_unpacked(columns[each], len(keys)) for each in NAMES), keys)
            settings = list(map(_setting, rows))
            document, seeds = kept["document"], kept["seeds"]
            _check_types([document], dict)
            _check_types(seeds, int)
            _check_types(keys, str)
            return Plan(name, folder, document, seeds, settings)
        except (ValueError, TypeError, LookupError, AttributeError):
            raise StoreError(f"the study {name} of this store cannot be read") from None


def _packed(column: Sequence[Any]) -> list[list[Any]]:
    """Return the distinct values of a column, and which of them each of its entries is."""
    numbers: dict[str, int] = {}
    known: dict[int, int] = {}  # by identity, since settings share their tables
    for value in column:
        if id(value) not in known:
            known[id(value)] = numbers.setdefault(json.dumps(value), len(numbers))
    return [[json.loads(text) for text in numbers], [known[id(value)] for value in column]]


def _check_types(values: Sequence[Any], of: type) -> None:
    if not all(type(value) is of for value in values):
        raise TypeError("a stranger has changed the plan")


def _check(name: str, values: Sequence[Any]) -> None:
    """Raise an exception if the distinct values of a column cannot be those of settings."""
    _check_types(values, TYPES[name])
    for key in {"problem": ("name",), "solved": ("window", "above")}.get(name, ()):
        for value in values:
            value[key]


def _unpacked(packed: list[list[Any]], n: int) -> list[Any]:
    """Return the column that `_packed` was given."""
    values, numbers = packed
    if len(numbers) != n or min(numbers, default=0) < 0:
        raise ValueError("a column does not have one value for each setting")
    return [values[i] for i in numbers]


def _setting(row: tuple[Any, ...]) -> Setting:
    """Make a setting with a known key. Its own methods would take ten times as long."""
    setting = object.__new__(Setting)
    vars(setting).update(zip(_SLOTS, row))
    return setting
