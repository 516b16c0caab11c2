"""The layers of the package: imports only go down, and there are no cycles."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import blockmdp

PACKAGE = Path(blockmdp.__file__).parent
# from the bottom to the top, as in docs/development/design.md; those of one line stand side by side
LAYERS = [
    {"checks", "jit"},
    {"rng"},
    {"streams"},
    {"emissions", "dynamics"},
    {"families"},
    {"mdp"},
    {"trajectories"},
    {"oracles"},
    {"decoders"},
    {"tapes"},
    {"loop"},
    {"learners"},
    {"envs"},
    {"saving"},
    {"checkpoints"},
    {"policy"},
    {"history"},
    {"simulators"},
    {"measures"},
    {"plots"},
    {"agents"},
    {"url", "pcid"},
    {"testing"},
    {"experiments"},
    {"paper"},
    {"completion"},
    {"cli"},
]
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}


@cache
def modules():
    """Every module of the package but its own __init__, by its dotted name below `blockmdp`."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name and name != "__main__":
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def imported(tree):
    """What a module imports from the package, also inside functions and for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            assert not isinstance(node, ast.ImportFrom), "imports are absolute"
            continue
        for name in names:
            below = name.removeprefix("blockmdp.")
            if below != name:
                while below and below not in modules():  # a name in a module, not a module
                    below = below.rpartition(".")[0]
                yield below


@cache
def imports():
    """What each module imports from the package."""
    return {name: set(imported(tree)) - {""} for name, tree in modules().items()}


def test_every_module_has_a_layer():
    assert {name.split(".")[0] for name in modules()} == set(LAYER)


def test_imports_only_go_down_the_layers():
    upwards = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if name.split(".")[0] != other.split(".")[0]
        and LAYER[other.split(".")[0]] >= LAYER[name.split(".")[0]]
    ]
    assert not upwards, "\n".join(upwards)


def test_no_module_imports_itself_by_way_of_others():
    def reachable(name, seen):
        for other in imports()[name] - seen:
            seen.add(other)
            reachable(other, seen)
        return seen

    circular = [name for name in imports() if name in reachable(name, set())]
    assert not circular, f"import cycle through {', '.join(circular)}"


def test_overflow_of_keys_is_silenced_in_one_file_only():
    files = [p for p in PACKAGE.rglob("*.py") if "errstate(over" in p.read_text(encoding="utf-8")]
    assert [p.name for p in files] == ["jit.py"]
