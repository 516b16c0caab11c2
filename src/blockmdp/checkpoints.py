"""The file format of checkpoints: the state of a fit as arrays and JSON, never pickle.

A state is a graph of our own objects. Each object is written once, so what was shared before is
shared afterwards. Estimators of others are written by skops, which runs no code on loading.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockmdp import saving

__all__ = ["CheckpointError", "read_checkpoint", "write_checkpoint"]

_FORMAT, _VERSION = "blockmdp checkpoint", 2
_PLAIN = (bool, int, float, str, type(None))


class CheckpointError(ValueError):
    """A checkpoint that cannot be used."""


def write_checkpoint(path: Path, about: dict[str, Any], state: Any, known: dict[str, Any]) -> None:
    """Write the state of a fit, whole or not at all.

    Parameters
    ----------
    path : Path
        File to write.
    about : dict
        What the fit is: names and plain values.
    state : object
        The state.
    known : dict
        Objects that are not written but named, because the reader has them.
    """
    writer = _Writer(known)
    tree = writer.node(state)
    text = json.dumps({"about": about, "state": tree})
    arrays = writer.arrays | {"tree": np.frombuffer(text.encode(), np.uint8)}  # has a checksum
    saving.write_archive(path, {}, arrays, _FORMAT, _VERSION, compress=False)


def read_checkpoint(path: Path) -> tuple[dict[str, Any], _Reader]:
    """Read what `write_checkpoint` wrote; raise CheckpointError for any other file.

    Parameters
    ----------
    path : Path
        File to read.

    Returns
    -------
    about : dict
        What the fit is.
    reader : object
        `reader.state(known, types)` makes the state.
    """
    try:
        _, arrays = saving.read_archive(path, _FORMAT, _VERSION)
    except ValueError as error:
        raise CheckpointError(f"{error}. Delete it to begin again") from None
    try:
        content = json.loads(arrays.pop("tree").tobytes())
        return dict(content["about"]), _Reader(path, content["state"], arrays)
    except (ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{path} does not hold a valid checkpoint: {error!r}") from None


class _Writer:
    """Turns objects into nodes: plain values, or a dict with the kind of the object."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._names = {id(each): name for name, each in known.items() if each is not None}
        self._seen: dict[int, tuple[int, Any]] = {}  # objects stay alive: no id is used twice

    def node(self, value: Any) -> Any:
        if type(value) in _PLAIN:
            return value
        if id(value) in self._names:
            return {"known": self._names[id(value)]}
        if type(value) in (list, tuple):
            return {type(value).__name__: [self.node(each) for each in value]}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value))}
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if id(value) in self._seen:
            return {"same": self._seen[id(value)][0]}
        number = len(self._seen)
        self._seen[id(value)] = number, value
        return self._first(value) | {"number": number}

    def _first(self, value: Any) -> dict[str, Any]:
        name = _name(type(value))
        if isinstance(value, tuple):
            trimmed = getattr(value, "trimmed", None)
            fields = trimmed() if callable(trimmed) else value
            return {"record": name, "values": [self.node(each) for each in fields]}
        if isinstance(value, dict):
            return {"dict": [[self.node(k), self.node(v)] for k, v in value.items()]}
        if isinstance(value, np.ndarray):
            shared = value.ndim > 1 and value.strides[0] == 0 and len(value) > 1
            name = self._array(value[:1] if shared else value)
            return {"array": name, "rows": len(value) if shared else 0,
                    "writeable": value.flags.writeable}  # fmt: skip
        if not _is_own(type(value)):
            return {"skops": self._array(saving.to_skops(value))}
        return {"object": name, "values": {k: self.node(v) for k, v in vars(value).items()}}

    def _array(self, array: NDArray[Any]) -> str:
        if array.dtype.hasobject:
            raise ValueError(f"a checkpoint cannot hold an array of {array.dtype}")
        name = f"a{len(self.arrays)}"
        self.arrays[name] = array
        return name


class _Reader:
    """Turns nodes into objects, of our own classes only. It calls nothing that the file names."""

    def __init__(self, path: Path, tree: Any, arrays: dict[str, NDArray[Any]]) -> None:
        self._path, self._tree, self._arrays = path, tree, arrays
        self._made: dict[int, Any] = {}  # by number

    def state(self, known: dict[str, Any], types: Sequence[type] = ()) -> Any:
        """Return the state; `types` are classes of users that it may contain."""
        self._known, self._types = known, {_name(cls): cls for cls in types}
        try:
            return self._value(self._tree)
        except Exception as error:  # skops has its own
            raise CheckpointError(
                f"{self._path} does not hold a valid checkpoint: {error!r}"
            ) from None

    def _value(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        for kind, sequence in (("list", list), ("tuple", tuple)):
            if kind in node:
                return sequence(map(self._value, node[kind]))
        if "known" in node:
            return self._known[node["known"]]
        if "scalar" in node:
            return self._arrays[node["scalar"]][()]
        if "dtype" in node:
            return np.dtype(node["dtype"])
        return self._made[node["same"]] if "same" in node else self._new(node)

    def _new(self, node: dict[str, Any]) -> Any:
        value: Any
        number = node["number"]
        if "array" in node:
            value = self._arrays[node["array"]]
            value.setflags(write=node["writeable"])
            if node["rows"]:
                value = np.broadcast_to(value, (node["rows"], *value.shape[1:]))
        elif "dict" in node:
            value = self._made[number] = {}
            value.update((self._value(k), self._value(v)) for k, v in node["dict"])
        elif "skops" in node:
            trusted = [name.replace(":", ".") for name in self._types]
            value = saving.from_skops(self._arrays[node["skops"]], trusted)
        elif "record" in node:
            cls = self._types.get(node["record"]) or _own(node["record"])
            value = tuple.__new__(cls, map(self._value, node["values"]))
        else:
            value = self._made[number] = object.__new__(_own(node["object"]))
            vars(value).update((k, self._value(v)) for k, v in node["values"].items())
        self._made[number] = value
        return value


def _name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_own(cls: type) -> bool:
    return cls.__module__.split(".")[0] == __package__


def _own(name: str) -> type:
    """Return a class of this package, which must be imported already."""
    module, _, names = name.partition(":")
    found: Any = sys.modules[module]
    for each in names.split("."):
        found = vars(found)[each]
    if not (isinstance(found, type) and _is_own(found)):
        raise TypeError(f"{name} is no class of {__package__}")
    return found
