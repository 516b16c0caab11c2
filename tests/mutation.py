"""Measure how many bugs the fast tests catch: change the code in one place, and run them.

    python tests/mutation.py                    # a sample of 240 changes
    python tests/mutation.py --only url         # those of them that are in blockmdp.url

Each change ("mutant") is made in a copy of the package, on which the tests of that module run, the
fastest first, until one fails. The changes are drawn with a fixed seed, so the result can be
repeated, one part after the other.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "blockmdp"
LIMIT = 120  # seconds of computing; a test that takes longer, and five times its usual, is caught

# What to change, its share of the sample, and the tests that should notice.
LEARNERS = ["guarantees", "learners", "psrl", "tabular", "unchanged", "law", "engines", "theory"]
LEARNERS += ["rotated", "pcid", "docstrings"]
URL = ["fix_label", "url", "theory", "online", "own_oracles", "unchanged", "snapshots", "rotated"]
URL += ["check_oracle", "black_box", "controlled", "pooling", "continuing", "docstrings"]
PARTS = {
    "url": (0.25, URL),
    "pcid.py": (0.125, ["pcid", "unchanged", "pcid_panels", "plots", "continuing"]),
    "learners": (0.35, LEARNERS),
    "decoders": (0.1, ["decoder", "fix_label", "url", "unchanged", "saving", "plots"]),
    "experiments/statistics.py": (0.1, ["statistics", "until", "comparison", "results", "report"]),
    "paper/claims.py": (0.075, ["claims", "report"]),
}

# Files whose functions are copied into the compiled loops of others.
SHARED = {"learners/base.py", "learners/_model.py", "decoders/table.py", "decoders/base.py"}

SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


# In a copy, machine code is compiled again only where the mutant is, or everywhere if it is shared.
STAMP_OF = """
def _stamp_of(source):
    import json, os
    mutant = json.loads(os.environ.get("MUTANT", "null"))
    counts = mutant is not None and (mutant["shared"] or source.name == mutant["file"])
    return mutant["text"] if counts else "original"

"""

# A plugin of pytest for a copy. Without a mutant it notes how long each test takes; with one it
# lets the fastest tests run first, and those of the changed module before others like them, and
# ends a test that does not end by itself.
ORDER = """
import json, os, resource, time
from pathlib import Path

LIMIT = {limit}
mutant = json.loads(os.environ.get("MUTANT", "null"))
at = Path("seconds.json")
seconds = json.loads(at.read_text()) if at.exists() else {}

def pytest_collection_modifyitems(items):
    if mutant is not None:
        near = "tests/test_" + mutant["nearest"] + ".py"
        weight = lambda test: 0.1 if test.startswith(near) else 1.0
        items.sort(key=lambda item: weight(item.nodeid) * seconds.get(item.nodeid, 0.0))

def pytest_runtest_setup(item):
    if mutant is not None:
        end = time.process_time() + LIMIT + 5 * seconds.get(item.nodeid, 0.0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(end) + 1, resource.RLIM_INFINITY))

def pytest_runtest_logreport(report):
    if mutant is None:
        seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration

def pytest_sessionfinish():
    if mutant is None:
        at.write_text(json.dumps(seconds))
"""
NEAREST = {"tsr": "url", "agent": "url", "levels": "online", "doubts": "own_oracles"}


class Mutant(NamedTuple):
    """A change of one expression."""

    path: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        where = f"{self.path.relative_to(PACKAGE)}:{self.line}"
        return f"{where}: {' '.join(self.before.split())}  ->  {self.after}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what an expression or statement could be instead."""
    if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp | ast.AugAssign):
        new = copy.deepcopy(node)
        if isinstance(new, ast.Compare):
            new.ops = [_swapped(new.ops[0]), *new.ops[1:]]
        else:
            new.op = _swapped(new.op)
        yield new
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield ast.UnaryOp(ast.Not(), node.test)


def _swapped(operator: ast.AST) -> ast.AST:
    return SWAPS.get(type(operator), type(operator))()


def mutants(path: Path) -> list[Mutant]:
    """Return all changes of a file, but for texts, annotations, messages and exports."""
    source = path.read_text()
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()
    found: dict[str, Mutant] = {}
    for node in _code(tree):
        for new in changes(node):
            old = node.test if isinstance(node, ast.If | ast.While | ast.IfExp) else node
            begin = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            after = ast.unparse(new)
            if not isinstance(new, ast.AugAssign):
                after = f"({after})"
            text = (data[:begin] + after.encode() + data[end:]).decode()
            before = data[begin:end].decode()
            try:
                same = ast.dump(ast.parse(text)) == ast.dump(tree)
            except SyntaxError:
                continue
            if not same:
                found.setdefault(text, Mutant(path, old.lineno, before, after, text))
    return list(found.values())


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Walk through what a test can notice."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or name in ("annotation", "returns", "bases"):
                continue
            if isinstance(child, ast.Raise | ast.JoinedStr | ast.Assert | ast.ImportFrom):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            yield child
            yield from _code(child)


def sample(only: str, count: int, seed: int) -> list[tuple[Mutant, list[str]]]:
    """Draw changes from the parts whose name contains `only`, according to their shares.

    Those of a part stay the same as long as the part does.
    """
    chosen: list[tuple[Mutant, list[str]]] = []
    for name, (share, tests) in PARTS.items():
        if only in name:
            at = PACKAGE / name
            files = [at] if at.is_file() else sorted(at.glob("*.py"))
            pool = [(m, tests) for f in files for m in mutants(f)]
            draw = random.Random(f"{name} {seed}")
            chosen += draw.sample(pool, min(round(count * share), len(pool)))
    return chosen


def new_copy(folder: Path) -> Path:
    """Copy the package and its tests. A compiled function depends on its own file alone there."""
    ignore = shutil.ignore_patterns(
        ".git", ".venv", "results", "_build", "auto_examples", ".*cache"
    )
    shutil.copytree(ROOT, folder, ignore=ignore, symlinks=True)
    jit = folder / "src" / "blockmdp" / "jit.py"
    stamp = "file._source_stamp = _STAMP"
    text = jit.read_text().replace(stamp, "file._source_stamp = _stamp_of(source)")
    jit.write_text(text.replace("\n_STAMP =", f"\n{STAMP_OF}\n_STAMP ="))
    (folder / "order.py").write_text(ORDER.replace("{limit}", str(LIMIT)))
    return folder


def run(folder: Path, mutant: Mutant | None, tests: list[str]) -> bool:
    """Run the tests in a copy of the package. Return whether all pass."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(folder)])}
    files = [f"tests/test_{name}.py" for name in tests]
    if mutant is not None:
        inside = mutant.path.relative_to(PACKAGE)
        at = folder / "src" / "blockmdp" / inside
        at.unlink()  # it is a link
        at.write_text(mutant.source)
        nearest = NEAREST.get(at.stem, at.stem)
        about = {"file": at.name, "shared": str(inside) in SHARED, "nearest": nearest}
        environment["MUTANT"] = json.dumps({**about, "text": mutant.source})
        files.insert(0, str(at))  # its examples
    plugins = ["-p", "no:xdist", "-p", "no:cacheprovider", "-p", "order"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", *plugins, *files],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            preexec_fn=None if mutant is None else _limit_time,
            timeout=None if mutant is None else 30 * LIMIT,  # one that waits
        )
    except subprocess.TimeoutExpired:
        return False
    if mutant is None and done.returncode:
        sys.exit(f"the tests fail without any change:\n{done.stdout[-3000:]}")
    return done.returncode == 0


def is_caught(pattern: Path, mutant: Mutant, tests: list[str]) -> bool:
    """Run the tests on a mutant, in a copy that shares files and machine code with a pattern."""
    with tempfile.TemporaryDirectory(dir=pattern.parent) as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(pattern, copy, symlinks=True, copy_function=os.link)
        return not run(copy, mutant, tests)


def _limit_time() -> None:
    """Kill a process that never ends; the time of others does not count."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, resource.RLIM_INFINITY))


def main() -> None:
    """Run the sample, and print what was not caught."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", choices=PARTS, help="a part (default: all)")
    parser.add_argument(
        "--count", type=int, default=240, help="changes in all parts (default: 240)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample (default: 0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--start", type=int, default=1, help="leave out the changes before this")
    args = parser.parse_args()
    chosen = sample(args.only, args.count, args.seed)[args.start - 1 :]
    needed = list(dict.fromkeys(name for _, tests in chosen for name in tests))
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        pattern = new_copy(Path(folder) / "pattern")
        run(pattern, None, needed)
        with ThreadPoolExecutor(args.jobs) as pool:
            outcomes = pool.map(lambda each: is_caught(pattern, *each), chosen)
            for i, ((mutant, _), caught) in enumerate(zip(chosen, outcomes), args.start):
                print(f"{i} {'caught' if caught else 'SURVIVED'} {mutant}", flush=True)
                if not caught:
                    survivors.append(mutant)
    caught = len(chosen) - len(survivors)
    print(f"\n{caught} of {len(chosen)} changes were caught: {caught / len(chosen):.1%}")
    for mutant in survivors:
        print(f"survived: {mutant}")


if __name__ == "__main__":
    main()
