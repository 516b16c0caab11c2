"""Files from strangers: a study file or a store must not run what it has no business to name."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import zlib

import numpy as np
import pytest
from faults import InProcess

from blockmdp.cli import main
from blockmdp.experiments import Results, Study, StudyError, driver
from blockmdp.experiments.outcome import Curve, Decoding, Outcome, Values
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.runs import execute
from blockmdp.experiments.settings import Setting
from blockmdp.experiments.store import _COLUMNS, FILE, Store, _checksum

LOCK = {"name": "lock_bernoulli", "horizon": 2}
DOCUMENT = {"seeds": 1, "episodes": 30, "problem": LOCK, "agent": [{"name": "Tabular"}]}
URL = {"name": "URL", "batch": 10}


@pytest.fixture
def executor(monkeypatch):
    monkeypatch.setattr(driver, "make_executor", InProcess)


@pytest.fixture
def touch(tmp_path):
    """A command that leaves a trace, and a function that says whether it has run."""
    trace = tmp_path / "trace"
    return f"touch {trace}", trace.exists


# --- study files ----------------------------------------------------------------------------------
@pytest.mark.parametrize("trust", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "subprocess.getoutput",
        "builtins:eval",
        "os:remove",
        "os:_exit",
    ],
)
def test_only_parts_can_be_named(name, trust, touch):
    command, has_run = touch
    part = {"name": name, "command": command, "args": command, "cmd": command}
    for changes in (
        {"problem": part},
        {"problem": LOCK | {"switch": part}},
        {"agent": [part]},
        {"agent": [{"name": "URL", "oracle": part}]},
        {"agent": [{"name": "URL", "learner": part}]},
        {"agent": [{"name": "URL", "batch": part}]},
        {"agent": [{"name": "PCID", "classifier": part}]},
        {"agent": [{"name": "URL", "oracle": {"name": "sklearn.cluster:KMeans", "init": part}}]},
    ):
        if trust:
            with pytest.raises(StudyError, match=r"does not (say what it )?make|has no such"):
                Study(DOCUMENT | changes)
        else:
            try:
                study = Study(DOCUMENT | changes, trust=False)
            except StudyError:
                continue
            with pytest.raises(StudyError, match="without trust cannot be run"):
                study.run("nowhere")
    assert not has_run()


@pytest.mark.parametrize("trust", [True, False])
def test_no_detour_leads_to_other_functions(trust, touch, tmp_path, monkeypatch):
    command, has_run = touch
    (tmp_path / "detour.py").write_text(f"import os\nos.system({command!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    detours = [
        {"name": "blockmdp.envs.gym:make", "problem": "os:system", "command": command},
        {"name": "blockmdp.envs.gym:make_vector", "problem": "os:system", "command": command},
        {"name": "blockmdp/LockBernoulli-v0", "problem": "os:system", "command": command},
    ]
    if not trust:  # else it may be imported
        detours += [
            {"name": "detour:FrozenLake-v1"},
            {"name": "from_gymnasium", "env": "detour:FrozenLake-v1"},
            {"name": "gymnasium:make", "id": "detour:FrozenLake-v1"},
            {"name": "gymnasium.envs.registration:make", "id": "detour:FrozenLake-v1"},
            {"name": "gymnasium:make_vec", "id": "detour:FrozenLake-v1"},
            {"name": "GymV26Environment-v0", "env_id": "detour:FrozenLake-v1"},
        ]
    for problem in detours:
        with contextlib.suppress(StudyError):
            Study(DOCUMENT | {"problem": problem}, trust=trust)
        assert not has_run(), problem


def test_a_function_says_what_it_makes(tmp_path):
    (tmp_path / "said.py").write_text(
        "import blockmdp as bm\n"
        "def silent(): return bm.lock_bernoulli(2)\n"
        "def lying() -> int: return bm.lock_bernoulli(2)\n"
        "def unknown() -> 'Nowhere': return bm.lock_bernoulli(2)\n"
        "def either() -> bm.BlockMDP | None: return bm.lock_bernoulli(2)\n"
        "def good() -> 'bm.BlockMDP': return bm.lock_bernoulli(2)\n"
    )
    words = {
        "silent": "problem.name: the function 'said:silent' does not say what it makes: annota",
        "lying": "'said:lying' does not make a BlockMDP or a Gymnasium environment",
        "unknown": "does not say what it makes: annotate it, such as -> blockmdp.BlockMDP",
        "either": "'said:either' does not make a BlockMDP",
    }
    for name, message in words.items():
        with pytest.raises(StudyError, match=message):
            Study(DOCUMENT | {"problem": f"said:{name}"}, folder=tmp_path)
    assert len(Study(DOCUMENT | {"problem": "said:good"}, folder=tmp_path)) == 1


def test_a_dry_run_imports_nothing_of_the_user_s(tmp_path, capsys):
    code = "import pathlib\npathlib.Path(__file__).with_suffix('.trace').touch()\n"
    (tmp_path / "dry.py").write_text(code + "from blockmdp import lock_bernoulli as lock\n")
    (tmp_path / "sklearn.py").write_text(code)  # would be found before the real one
    text = """
        seeds = 2
        episodes = 30
        problem = [{ name = "dry:lock", horizon = 2 }, { name = "lock_bernoulli", horizon = 3 }]
        agent = [{ name = "URL", oracle = "pca_kmeans" }]
    """
    (tmp_path / "study.toml").write_text(text)
    run = ["run", str(tmp_path / "study.toml"), "--dry-run", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "blockmdp.cli", *run], capture_output=True, text=True, check=False
    )
    assert (done.returncode, list(tmp_path.glob("*.trace"))) == (0, [])
    assert len(done.stdout.splitlines()) == 4
    assert "not imported: dry:lock; with --trust" in done.stderr
    (tmp_path / "sklearn.py").unlink()
    assert main([*run, "--trust"]) == 0
    assert "not imported" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*.trace")] == ["dry.trace"]
    sys.path.remove(str(tmp_path))


# --- stores ---------------------------------------------------------------------------------------
def test_looking_at_a_store_runs_nothing_that_it_names(touch, tmp_path, capsys):
    command, has_run = touch
    evil = {"name": "os:system", "command": command}
    solved = {"share": 0.9, "above": None, "window": 20}
    settings = [
        Setting(evil, evil | {"learner": evil, "n": i}, 30, solved, "panel", label, label, i)
        for i, label in enumerate(("one", "=two()"))
    ]
    plan = Plan("evil", None, DOCUMENT, [0, 1], settings)
    with Store(tmp_path, write=True) as store:
        store.register(plan)
        for run in plan.runs():
            execute({**json.loads(run.setting.content)}, run.seed)  # fails, and runs nothing
            n = np.array([1, 30])
            curve = Curve(n, n, n * 0.5).to_bytes()
            values = Values(n, n * 0.5).to_bytes()
            decoding = Decoding(n, n / 30).to_bytes()
            facts = (None, 0.5, 0.5, 20, 30, {"learn": 30}, curve, 0.5, 0.5, values, 0.1, decoding)
            store.add(run, Outcome(*facts))
    where = str(tmp_path)
    for words in (
        ["status", where],
        ["table", where],
        ["table", where, "--format", "csv"],
        *(["plot", where, "--y", y] for y in ("average", "sliding", "value", "regret")),
        *(["plot", where, "--y", y] for y in ("accuracy", "labels")),
        *(["plot", where, "--map", kind] for kind in ("solved", "regret")),
        ["compare", where, "one", "=two()"],
        ["export", where, str(tmp_path / "runs.csv")],
        ["report", where],
    ):
        assert main(words) == 0, capsys.readouterr()
        assert "Error" not in capsys.readouterr().err
    assert not has_run()
    with open(tmp_path / "runs.csv") as file:  # no spreadsheet may take a cell for a formula
        cells = [cell for row in csv.reader(file) for cell in row]
    assert "'=two()" in cells
    assert not any(cell.startswith("=") for cell in cells)
    assert "'=two()" in Results(tmp_path).table("csv")


def test_a_store_that_others_wrote_gives_no_traceback(tmp_path, executor, capsys):
    agents = {"agent": [URL, {"name": "Tabular"}]}
    study = Study(DOCUMENT | agents | {"solved": {"window": 10}}, "study")
    study.run(tmp_path / "good", quiet=True)

    def altered(name, table, column, value):
        """Change a value of all rows, with the right checksums."""
        shutil.copytree(tmp_path / "good", tmp_path / name)
        with contextlib.closing(sqlite3.connect(tmp_path / name / FILE)) as db, db:
            names = _COLUMNS[table]
            for row in db.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall():
                change = value if callable(value) else lambda _: value
                new = tuple(change(old) if n == column else old for n, old in zip(names, row))
                sets = ", ".join(f"{n}=?" for n in (*names, "checksum"))
                where = f"WHERE {names[0]}=?"
                db.execute(f"UPDATE {table} SET {sets} {where}", (*new, _checksum(new), row[0]))

    def without_label(document):
        plan = json.loads(document)
        plan["settings"]["label"][0][0] = None
        return json.dumps(plan)

    bomb = zlib.compress(b"\0" * 10**8)
    plan = json.dumps({"document": {}, "seeds": [0], "settings": [{"key": "x", "solved": {}}]})
    for i, (table, column, value) in enumerate(
        [
            ("curves", "curve", b"garbage"),
            ("curves", "curve", bomb),
            ("exact", '"values"', zlib.compress(b"\0" * 24)),
            ("exact", "optimal", None),
            ("exact", "optimal", "x"),
            ("exact", "value", b"x"),
            ("exact", '"values"', 3),
            ("decoding", "accuracy", "x"),
            ("decoding", "accuracy", math.inf),
            ("decoding", "accuracy", None),
            ("decoding", "levels", b"garbage"),
            ("decoding", "levels", bomb),
            ("decoding", "levels", "x"),
            ("decoding", "levels", None),
            ("decoding", "levels", Decoding(np.ones(2, int), np.array([1, np.nan])).to_bytes()),
            ("decoding", "levels", Decoding(np.array([-1]), np.array([1.0])).to_bytes()),
            ("decoding", "levels", Decoding(np.ones(9, int), np.ones(9)).to_bytes()),
            ("decoding", "key", "none of its runs"),
            ("runs", "ledger", "[1]"),
            ("runs", "ledger", "nothing"),
            ("runs", "environment", "3"),
            ("runs", "error", "\x1b]0;title\x07\x1b[2J"),
            ("studies", "document", plan),
            ("studies", "document", "[]"),
            ("studies", "document", without_label),
            ("runs", "error", b"\xff"),
            ("runs", "solved_at", "x"),
            ("runs", "trajectories", None),
            ("runs", "average", "{}"),
            ("runs", "average", None),
            ("runs", "seconds", None),
            ("runs", "seconds", math.inf),
            ("runs", "finished", "x"),
            ("runs", "ledger", '{"learn": "x"}'),
            ("runs", "environment", '{"python": [1]}'),
        ]
    ):
        altered(str(i), table, column, value)
        out = str(tmp_path / str(i))
        for words in (
            ["status"],
            ["table"],
            ["plot"],
            ["plot", "--y", "value"],
            ["plot", "--y", "accuracy"],
            ["plot", "--map", "regret"],
            ["report"],
        ):
            assert main([words[0], out, *words[1:]]) in (0, 1), (table, column, words)
            printed = "".join(capsys.readouterr())
            assert "\x1b" not in printed


def test_no_text_of_a_study_controls_the_terminal(tmp_path, capsys):
    solved = {"share": 0.9, "above": 1, "window": 20}
    words = ("\x1b[31mpanel", "la\x07bel")
    setting = Setting({"name": "\x1b[2J"}, {"name": "x"}, 30, solved, *words)
    plan = Plan("evil", None, DOCUMENT, [0], [setting])
    with Store(tmp_path, write=True) as store:
        store.register(plan)
        for run in plan.runs():
            n = np.array([1, 30])
            curve = Curve(n, n, n * 0.5).to_bytes()
            store.add(run, Outcome(None, 0.5, 0.5, 20, 30, {"learn": 30}, curve))
    assert main(["table", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "\\x1b[31mpanel" in out
    assert "\x1b" not in out
    assert "\x07" not in out


# --- messages of workers --------------------------------------------------------------------------
def test_an_outcome_survives_its_way_as_json():
    n = np.array([1, 7])
    curve = Curve(n, n, n / 3).to_bytes()
    decoding = Decoding(n, n / 7).to_bytes()
    outcome = Outcome(
        *(None, 0.1, 1 / 3, None, 7, {"learn": 7}, curve, 0.5, 0.25, b"", 0.1, decoding, 0.1, {})
    )
    assert Outcome.from_json(outcome.to_json()) == outcome
    failed = Outcome(error="Traceback \udcff\n")
    assert Outcome.from_json(failed.to_json()) == failed


def test_what_is_no_outcome_is_refused():
    good = json.loads(Outcome(error="why").to_json())
    assert Outcome.from_json(json.dumps(good)) == Outcome(error="why")
    for wrong in (
        [],
        "ready",
        {},
        good | {"more": 1},
        good | {"average": "0.5"},
        good | {"solved_at": 1.5},
        good | {"trajectories": True},
        good | {"ledger": []},
        good | {"curve": "not hexadecimal"},
        good | {"values": b"garbage".hex()},
        good | {"decoding": b"garbage".hex()},
        good | {"decoding": None},
        good | {"accuracy": "1"},
        good | {"error": None},  # and no curve
        good | {"error": 3},
    ):
        with pytest.raises(ValueError, match=r"outcome|arrays"):
            Outcome.from_json(json.dumps(wrong))
    with pytest.raises(ValueError, match="outcome"):
        Outcome.from_json(b"\x80\x04cos\nsystem\n")


def test_a_part_may_raise_anything(tmp_path, executor):
    code = """
class Odd(BaseException):
    def __str__(self):
        raise ValueError("no words")

class Agent:
    def fit(self, problem, episodes, seed=0):
        raise Odd
"""
    (tmp_path / "raises.py").write_text(code)
    study = Study(DOCUMENT | {"agent": [{"name": "raises:Agent"}]}, folder=tmp_path)
    results = study.run(tmp_path / "out", quiet=True)
    assert len(results.failed) == 1
    assert "raises.Odd" in results.status()
    sys.path.remove(str(tmp_path))


# --- the command ----------------------------------------------------------------------------------
def test_a_closed_output_is_no_error(tmp_path, executor):
    Study(DOCUMENT, "closed").run(tmp_path, quiet=True)
    command = f"{sys.executable} -m blockmdp.cli table {tmp_path}"
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{command} {closed}"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_imports_ends_the_command_in_one_line(signum):
    code = "from _blockmdp_command import main; main()"
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-c", code, "list"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "numpy" in line:  # the first of many
                process.send_signal(signum)
                break
        rest = process.stderr.read()
    assert process.returncode == 128 + signum
    assert "blockmdp: interrupted" in rest
    assert "Traceback" not in rest


# --- sizes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (
            {"name": "lock_bernoulli", "horizon": 10**9},
            "1,000,000,000 levels of 3 states and 4 act",
        ),
        ({"name": "lock_gaussian", "horizon": 10**9}, "this machine has .* GiB: take fewer"),
        ({"name": "comblock", "horizon": 10**9}, "take fewer"),
        ({"name": "diabolical_lock", "horizon": 10**9}, "take fewer"),
        ({"name": "exogenous_lock", "horizon": 10**9}, "take fewer"),
        ({"name": "noisy_lock", "horizon": 10**9}, "take fewer"),
        ({"name": "lock_digits", "horizon": 10**9}, "take fewer"),
        ({"name": "noisy_chain", "n_states": 500, "horizon": 10**9}, "take fewer"),
        ({"name": "deep_sea", "size": 10**5}, "100,000 levels of 100,000 states and 2 actions"),
        ({"name": "river_swim", "n_states": 10**6}, "take fewer"),
        ({"name": "random_block_mdp", "n_states": 10**6}, "take fewer"),
    ],
)
def test_a_problem_that_does_not_fit_into_memory_is_refused_before_it_is_made(problem, words):
    with pytest.raises(StudyError, match=words):
        Study(DOCUMENT | {"problem": problem})


def test_runs_are_counted_before_they_are_made(tmp_path, capsys):
    many = [i / 1000 for i in range(1000)]
    grid = {"name": "OracleQ", "lr": many, "bonus": many, "v_max": many}
    for changes, words in (
        ({"agent": [{"name": "Tabular", "learner": grid}]}, "more than 100000 points"),
        ({"seeds": 10**9}, "seeds: must be at most 1000000, got 1000000000"),
        ({"seeds": 10**6, "episodes": [10, 20]}, "at most 1000000 runs, got 2000000"),
    ):
        with pytest.raises(StudyError, match=words):
            Study(DOCUMENT | changes)
    path = tmp_path / "deep.toml"
    path.write_text(".".join(["a"] * 100_000) + " = 1\n")
    with pytest.raises(StudyError, match="is nested too deeply"):
        Study.load(path)
    path.write_text(
        'seeds = 20_000\nepisodes = 10\nproblem = "lock_bernoulli"\nagent = [{ name = "Tabular" }]'
    )
    assert main(["run", str(path), "--dry-run", "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert out.endswith("seed 9999\n... and 10000 more\n")
    assert err == "20000 runs, 0 of them done\n"


# --- damaged study files --------------------------------------------------------------------------
STUDY = """
seeds = 2
episodes = [10, 20]
modules = "."
[[problem]]
name = "lock_bernoulli"
horizon = [2, 3]
switch = 0.1
solved = { measure = "value", share = 0.8 }
[[problem]]
name = "FrozenLake-v1"
is_slippery = false
[[agent]]
name = "URL"
label = "mine"
when = { horizon = 2 }
batch = 20
oracle = { name = "gmm", n_states = 3 }
[[agent]]
name = "Tabular"
learner = { name = "OracleQ", lr = [0.1, 0.3] }
[solved]
window = 5
above = 0.4
"""
WORDS = [
    *STUDY.split(),
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    "=",
    ",",
    "nan",
    "inf",
    "-1",
    "0",
    "1e9",
    "true",
]
WORDS += [
    '"none"',
    '""',
    "[]",
    "{}",
    "\n",
    "\x00",
    "\u202e",
    "é",
    "2026-11-16",
    '"os:system"',
    "1_0",
]


def mutated(draw):
    """The study with a few words deleted, repeated, exchanged or replaced."""
    parts = re.split(r"(\s+)", STUDY)
    for _ in range(draw.randint(1, 3)):
        i, j = draw.randrange(len(parts)), draw.randrange(len(parts))
        kind = draw.randrange(4)
        if kind == 0:
            del parts[i]
        elif kind == 1:
            parts.insert(i, parts[j])
        elif kind == 2:
            parts[i], parts[j] = parts[j], parts[i]
        else:
            parts[i] = draw.choice(WORDS)
    return "".join(parts)


def test_a_mutated_study_file_is_read_or_refused_in_one_line(tmp_path, capsys):
    draw = random.Random(15)
    seen = {0: 0, 2: 0}
    for i in range(300):
        path = tmp_path / "mutated.toml"
        path.write_text(mutated(draw))
        status = main(["run", str(path), "--dry-run", "--trust", "--out", str(tmp_path / "out")])
        err = capsys.readouterr().err
        assert status in seen, (i, path.read_text(), err)
        assert "Traceback" not in err
        assert status == 0 or len(err.splitlines()) == 1, (i, err)
        seen[status] += 1
    assert min(seen.values()) > 20
    sys.path.remove(str(tmp_path))
