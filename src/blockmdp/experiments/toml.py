"""Writing a study's document as TOML. Python's standard library only reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["to_toml"]


def to_toml(document: Mapping[str, Any]) -> str:
    """Return a document as the text of a study file. None becomes "none".

    Examples
    --------
    >>> print(to_toml({"seeds": 2, "agent": [{"name": "URL", "learner": {"name": "PSRL"}}]}))
    seeds = 2
    <BLANKLINE>
    [[agent]]
    name = "URL"
    learner = { name = "PSRL" }
    <BLANKLINE>
    """
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
