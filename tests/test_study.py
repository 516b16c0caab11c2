"""Study files: what they may say, what they expand to, and how a run is known."""

from __future__ import annotations

import copy
import json
import sys
import tomllib

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import blockmdp as bm
from blockmdp.cli import main
from blockmdp.experiments.catalogue import build
from blockmdp.experiments.study import Study, StudyError, to_toml

TEXT = """\
seeds = 2
episodes = 100
[problem]
name = "lock_bernoulli"
horizon = [3, 5]
[[agent]]
name = "URL"
batch = 20
oracle = { name = "pca_kmeans", n_states = 3 }
learner = { name = "OracleQ", lr = [0.03, 0.1] }
[[agent]]
name = "Tabular"
"""
DOCUMENT = tomllib.loads(TEXT)
TABULAR = {"name": "Tabular"}
fuzz = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def _own_path(monkeypatch, tmp_path):
    """Each test in a folder of its own, which is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])


@pytest.fixture
def file(tmp_path):
    """Writes a study file."""

    def write(text=TEXT, name="study.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def document(**changes):
    """The study above, with other values at the top."""
    return copy.deepcopy(DOCUMENT) | changes


def study(**changes):
    return Study(document(**changes))


def keys(*studies):
    return [[setting.key for setting in study.settings] for study in studies]


def labels(agents, **changes):
    return [s.label for s in study(agent=agents, problem="lock_bernoulli", **changes).settings]


# --- what is wrong gets one line ------------------------------------------------------------------
def refused(path, capsys, *options):
    """What the command says of a study file that it does not take."""
    assert main(["run", str(path), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert len(err) < 1000
    assert err.startswith("blockmdp: ")
    assert not (path.parent / "results").exists()
    return err.removeprefix("blockmdp: ").rstrip("\n")


def huge(digits):
    return "1" * digits


WRONG = {
    # a key that is not there, at each place
    "top": ("seeds = 2", "seed = 2", "seed: there is no such key; did you mean 'seeds'?"),
    "top, far": ("seeds = 2", "xyz = 2", "xyz: there is no such key (there are: agent, episodes"),
    "problem": ("horizon", "horizn", "problem.horizn: lock_bernoulli has no such parameter; did"),
    "agent": ("batch", "batches", "agent[0].batches: URL has no such parameter; did you mean 'ba"),
    "oracle": ("n_states", "n_state", "agent[0].oracle.n_state: pca_kmeans has no such parameter"),
    "learner": ("lr =", "rate =", "agent[0].learner.rate: OracleQ has no such parameter (there"),
    "solved": ("[problem]", "solved.windw = 1\n[problem]", "did you mean 'window'?"),
    "when": ('"Tabular"', '"Tabular"\nwhen.horzon = 3', "agent[1].when.horzon: no problem has it"),
    # something missing
    "no seeds": ("seeds = 2", "", "seeds: a study needs it"),
    "no episodes": ("episodes = 100", "", "episodes: a study needs it"),
    "no problem": ("[problem]", "[solved]", "problem: a study needs it"),
    "no name": ('name = "URL"', "", "agent[0].name: say which agent: URL, PCID, Tabular"),
    "no name below": ('name = "OracleQ", ', "", "agent[0].learner.name: say which learner: Orac"),
    "nothing": (TEXT, "", "seeds: a study needs it"),
    # a wrong type
    "seeds": ("seeds = 2", 'seeds = "2"', "seeds: must be a whole number, got '2'"),
    "half a seed": ("seeds = 2", "seeds = 2.5", "seeds: must be a whole number, 1 or more; got 2."),
    "true seeds": ("seeds = 2", "seeds = true", "seeds: must be a whole number, got True"),
    "a seed": ("seeds = 2", 'seeds = [1, "2"]', "seeds[1]: must be a whole number, got '2'"),
    "episodes": ("= 100", "= {}", "episodes: must be a whole number, got {}"),
    "text": ("batch = 20", 'batch = "20"', "agent[0].batch: must be a whole number, got '20'"),
    "a float": ("batch = 20", "batch = 20.5", "agent[0].batch: must be a whole number, got 20.5"),
    "true": ("batch = 20", "batch = true", "agent[0].batch: must be a whole number, got True"),
    "a number": ("batch = 20", 'stable = "x"', 'agent[0].stable: must be a number or "none", got'),
    "a table": ("batch = 20", "batch = { n = 20 }", "agent[0].batch: must be a whole number, got"),
    "a list": ("batch = 20", "batch = [[1]]", "agent[0].batch: must be a whole number, got [1]"),
    "truth": ("batch = 20", "resample = 1", "agent[0].resample: must be true or false, got 1"),
    "a name": ('"Tabular"', "7", "agent[1].name: say which agent"),
    "a problem": ("[problem]\nname", "problem = 7\n[x]\nname", "x: there is no such key"),
    "a part": ("oracle = {", "oracle = 3 #", "agent[0]: URL: "),
    "a learner": ("learner = {", "learner = 3 #", "agent[0].learner: must be a table such as { na"),
    "a label": ('"Tabular"', '"Tabular"\nlabel = 3', "agent[1].label: must be a string of one lin"),
    "two lines": ('"Tabular"', '"Tabular"\nlabel = "a\\nb"', "agent[1].label: must be a string of"),
    "solved is a table": ("episodes", "solved = 3\nepisodes", "solved: must be a table, got 3"),
    "share": ("episodes", 'solved.share = "x"\nepisodes', "solved.share: must be a number, got 'x"),
    "window": ("episodes", "solved.window = 1.5\nepisodes", "solved.window: must be a whole numbe"),
    "when is a table": ('"Tabular"', '"Tabular"\nwhen = 3', "agent[1].when: must be a table, such"),
    "modules": ("seeds", "modules = 3\nseeds", "modules: must be the path of a folder, got 3"),
    "agent is no table": ("[[agent]]", "agents = 3\n[[agent]]", "problem.agents: lock_bernoulli h"),
    # a value out of range
    "seeds 0": ("seeds = 2", "seeds = 0", "seeds: must be a whole number, 1 or more; got 0"),
    "a seed < 0": ("seeds = 2", "seeds = [0, -1]", "seeds[1]: must be a whole number, 0 or more"),
    "many seeds": ("seeds = 2", "seeds = 100_000_000", "seeds: at most 10000000, got 100000000"),
    "many runs": ("seeds = 2", "seeds = 10_000_000", "60000000 runs are too many for one study"),
    "episodes 0": ("= 100", "= [1, 0]", "episodes: must be a whole number, 1 or more; got 0"),
    "long": ("= 100", "= 1e300", "episodes: at most 10^12, got 1e+300"),
    "horizon 0": ("[3, 5]", "[3, 0]", "problem: lock_bernoulli: horizon must be a whole number"),
    "lr 2": ("0.03", "2", "agent[0]: URL: OracleQ: lr must be a number in"),
    "on": ('"Tabular"', '"Tabular"\non = "here"', "must be 'latent' or 'observation', got 'here'"),
    "share > 1": ("episodes", "solved.share = 1.1\nepisodes", "solved.share: must be in (0, 1], g"),
    "above": ("episodes", "solved.above = inf\nepisodes", "solved.above: must be a number, got in"),
    "huge": ("= 100", f"= {2**63}", "episodes: 9223372036854775808 is too large for a number of 6"),
    "huge, in hex": ("= 100", f"= 0x{'f' * 5000}", "episodes: a huge number is too large for a"),
    "huge seeds": ("seeds = 2", f"seeds = -0x{'f' * 4000}"[:10], "seeds: must be a whole number"),
    "too many digits": ("= 100", f"= {huge(5000)}", "Exceeds the limit (4300 digits)"),
    "nan": ("0.03", "nan", "agent[0].learner.lr[0]: nan is no number"),
    "infinite": ("0.03", "inf", "agent[0]: URL: OracleQ: lr must be a number in"),
    # an empty grid
    "no seed": ("seeds = 2", "seeds = []", "seeds: the list is empty"),
    "no length": ("= 100", "= []", "episodes: the list is empty"),
    "no horizon": ("[3, 5]", "[]", "problem.horizon: the list is empty, and so is the grid"),
    "no rate": ("[0.03, 0.1]", "[]", "agent[0].learner.lr: the list is empty, and so is the grid"),
    "no agent": (TEXT[TEXT.index("[[agent]]") :], "[agent]", "agent[0].name: say which agent"),
    "when nothing": ('"Tabular"', '"Tabular"\nwhen = []', "agent[1].when: holds for no problem"),
    "when never": ('"Tabular"', '"Tabular"\nwhen.horizon = [4, 6]', "agent[1].when: holds for no"),
    # a name that does not exist
    "no such problem": ("bernoulli", "bernuli", "problem.name: there is no problem 'lock_bernuli'"),
    "no such agent": ('"URL"', '"ULR"', "agent[0].name: there is no agent 'ULR'; did you mean 'UR"),
    "no such oracle": ("pca_kmeans", "kmeans", "no oracle 'kmeans'; did you mean 'pca_kmeans'?"),
    "no such learner": ('"OracleQ"', '"SARSA"', "no learner 'SARSA' (there are: OracleQ, PSRL, QL"),
    "no such module": ('"URL"', '"nowhere:X"', "cannot import 'nowhere:X': ModuleNotFoundError"),
    "no such class": ('"URL"', '"blockmdp:URLs"', "no 'URLs' in it; did you mean 'URL'?"),
    "no callable": ('"URL"', '"sys:maxsize"', "'sys:maxsize' is not a class or function that make"),
    "no agent it is": ('"Tabular"', '"blockmdp:OracleQ"', "makes a OracleQ, which has no fit"),
    "no problem it is": ('"lock_bernoulli"\nhorizon = [3, 5]', '"builtins:dict"', "makes a dict,"),
    "no such id": ('"lock_bernoulli"', '"FrozenLaek-v1"', "environment 'FrozenLaek-v1'; did you m"),
    "no such module's id": ('"lock_bernoulli"', '"nowhere:X-v1"', "No module named 'nowhere'"),
    "relative": ('"URL"', '"..x:y"', "agent[0].name: cannot import '..x:y'"),
    "no module": ('"URL"', '":x"', "agent[0].name: there is no agent ':x'"),
    "exit": ('"URL"', '"sys:exit"', "agent[0]"),
    # too much of it
    "twice": ("seeds = 2", "seeds = [3, 4, 3]", "seeds: the same seed stands there twice"),
    "two alike": ('"Tabular"', '"Tabular"\nlabel = "URL lr=0.1"', "another one is called 'URL lr="),
    "a large grid": ("[3, 5]", str(list(range(1, 100_002))), "the grid has more than 100000 point"),
    "a product": (
        "lr = [0.03, 0.1]",
        f"lr = {[0.1] * 400}, bonus = {[0.1] * 400}",
        "agent[0]: the grid has more than 100000 points",
    ),
    "all together": (
        '"Tabular"',
        f'"Tabular"\nlearner = {{ name = "OracleQ", lr = {[0.1] * 50_000} }}',
        "the grid has more than 100000 settings",
    ),
    # no TOML, or nothing to be said in a study
    "no TOML": ("seeds = 2", "seeds 2", "Expected '=' after a key in a key/value pair (at line 1,"),
    "cut off": (TEXT, TEXT[:-2], "(at "),
    "a key twice": ("seeds = 2", "seeds = 2\nseeds = 3", "Cannot overwrite a value (at line 2,"),
    "a date": ("seeds = 2", "seeds = 1979-05-27", "seeds: a date has no use in a study"),
    "a time": ("batch = 20", "batch = 07:32:00", "agent[0].batch: a time has no use in a study"),
    "deep lists": ("[3, 5]", "[" * 3000 + "]" * 3000, "is nested too deeply"),
    "deep tables": ("seeds = 2", f"{'a.' * 900}a = 1", "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a"),
    "line breaks": ("seeds = 2", '"a\\nb" = 2', "a b: there is no such key"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_gets_one_line_with_its_place(old, new, words, file, capsys):
    assert old in TEXT
    path = file(TEXT.replace(old, new, 1))
    with pytest.raises(StudyError) as error:
        Study.load(path)
    told = str(error.value)
    assert told.startswith(f"{path}: ")
    assert words in told
    assert refused(path, capsys) == told


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file or directory"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.write_bytes(b"# caf\xe9\n" + TEXT.encode()), "is not text in UTF-8"),
        (lambda path: path.write_bytes(b"\0" * 100), "Invalid statement (at line 1, column 1)"),
    ],
)
def test_a_file_that_cannot_be_read_gets_one_line(make, words, tmp_path, capsys):
    make(tmp_path / "study.toml")
    assert refused(tmp_path / "study.toml", capsys) == f"{tmp_path / 'study.toml'}: {words}"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("1 / 0", "cannot import 'broken:Own': ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "cannot import 'broken:Own': SystemExit: 3"),
        ("def Own(: pass", "cannot import 'broken:Own': SyntaxError: invalid syntax (broken.py, l"),
        ("def Own(): raise KeyError('a')", "problem: broken:Own: KeyError: 'a'"),
        ("def Own(): raise SystemExit(3)", "problem: broken:Own: SystemExit: 3"),
        ("def Own(): raise ValueError('a\\nb')", "problem: broken:Own: a b"),
        ("def Own(size): pass", "problem.size: broken:Own needs it"),
        ("class Own:\n  def __init__(self, n: int): pass", "problem.n: broken:Own needs it"),
    ],
)  # fmt: skip
def test_a_user_s_module_may_fail_in_any_way(code, words, file, capsys, monkeypatch):
    file(code, "broken.py")
    path = file(TEXT.replace('"lock_bernoulli"\nhorizon = [3, 5]', '"broken:Own"'))
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    from blockmdp.experiments import catalogue

    catalogue._find.cache_clear(), catalogue._parameters.cache_clear()
    assert words in refused(path, capsys)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--set=episodes", "--set episodes: must be key=value, such as episodes=5000"),
        ("--set==5", "--set =5: must be key=value"),
        ("--set=epsodes=5", "epsodes: there is no such key; did you mean 'episodes'?"),
        ("--set=episodes=many", "episodes: must be a whole number, got 'many'"),
        ("--set=agent.ULR.batch=5", "the study has no 'ULR'; did you mean 'URL'?"),
        ("--set=agent.URL.learnr.lr=5", "the study has no 'learnr'; did you mean 'learner'?"),
        ("--set=agent.URL.batch.x=5", "--set agent.URL.batch.x=5: agent.URL.batch is no table"),
        ("--set=agent.URL.lr=5", "agent[0].lr: URL has no such parameter"),
        ("--set=problem.horizon=[]", "problem.horizon: the list is empty"),
        ("--set=episodes=5\nseeds=1", "episodes: must be a whole number, got '5\\nseeds=1'"),
        (f"--set=episodes={huge(5000)}", "episodes: must be a whole number, got '1111"),
        ("--only=agent", "--only agent: must be key=value, such as agent=URL"),
        ("--only=agnt=URL", "--only agnt=URL: no setting has 'agnt'; did you mean 'agent'?"),
        ("--only=agent=ULR", "--only agent=ULR: no run is left; did you mean 'URL'?"),
        ("--only=horizon=4", "--only horizon=4: no run is left (there are: 3, 5)"),
        ("--only=seed=2", "--only seed=2: no run is left (there are: 0, 1)"),
        ("--only=agent=a\nb", "--only agent=a b: no run is left"),
    ],
)
def test_a_bad_change_or_choice_gets_one_line(option, words, file, capsys):
    assert words in refused(file(), capsys, option)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "a study is a table, got []"),
        ({1: 2}, "keys must be strings, got 1"),
        (document(seeds=(1, 2)), "seeds: a tuple has no use in a study"),
        (document(seeds=np.int64(2)), "seeds: a int64 has no use in a study"),
        (document(seeds=None), "seeds: must be a whole number, got None"),
        (document(agent=None), "agent[0]: must be a table with a name, got None"),
        (document(agent=["URL", 3]), "agent[0]: must be a table with a name, got 'URL'"),
        (document(agent={**TABULAR, "when": None}), "agent[0].when: must be a table"),
        (document(problem=3), "problem: must be a table with a name, got 3"),
        (document(modules="."), "modules: there is no such key"),
    ],
)
def test_a_document_from_python_is_checked_too(given, words):
    with pytest.raises(StudyError) as error:
        Study(given)
    assert words in str(error.value)


# --- whatever a file holds, nothing but a StudyError comes of it ----------------------------------
texts = st.text(st.characters(codec="utf-8"), max_size=6)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 30)
    | st.sampled_from([2**63, -(2**63), 2**200])
    | st.sampled_from([0.0, -1.0, 0.5, 1e300, float("inf"), float("nan")])
    | st.text(max_size=5)
    | st.sampled_from(["URL", "PCID", "Tabular", "OracleQ", "gmm", "none", "a.b:c", "x-v1"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["name", "learner", "oracle", "lr", "when", "label"]) | st.text(max_size=3),
        inner,
        max_size=3,
    ),
    max_leaves=6,
)  # fmt: skip


def places(value, above=()):
    """Every path into a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, below in list(items):
        yield (*above, key)
        if isinstance(below, dict | list):
            yield from places(below, (*above, key))


@st.composite
def mutated(draw):
    """A valid document with up to three values deleted, replaced, added or moved below."""
    changed = document(solved={"share": 0.5, "window": 10})
    changed["agent"][0] |= {"when": {"horizon": 3}, "label": "mine"}
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from(list(places(changed)) or [("seeds",)]))
        table = changed
        for key in above:
            table = table[key]
        how = draw(st.sampled_from(["delete", "replace", "add", "nest"]))
        if how == "delete":
            if isinstance(table, list) or last in table:
                del table[last]
        elif how == "add" and isinstance(table, dict):
            table[draw(st.text(max_size=3) | st.sampled_from(["name", "seed", "sigma"]))] = draw(
                plain
            )
        elif how == "nest":
            table[last] = draw(st.sampled_from([[0], {"name": 0}, {"x": 0}])).copy()
        else:
            table[last] = draw(plain)
    return changed  # fmt: skip


def attempt(make):
    """What is made, or the StudyError; nothing else may come."""
    try:
        return make()
    except StudyError as error:
        return error


def is_one_line(error, path):
    return str(error).startswith(f"{path}: ") and len(str(error).splitlines()) == 1


@fuzz
@given(mutated())
def test_a_mutated_study_is_a_study_or_a_study_error(changed):
    made = attempt(lambda: Study(changed))
    if isinstance(made, StudyError):
        assert str(made)
        return
    assert len(made) == len(list(made.runs())) > 0
    assert len({run.key for run in made.runs()}) == len(made)
    assert keys(Study(tomllib.loads(to_toml(changed)))) == keys(made)  # and it can be written down


@fuzz
@given(data=st.data())
def test_a_mutated_file_is_a_study_or_a_study_error(file, data):
    text = TEXT
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 8))
        middle = data.draw(texts | st.sampled_from("[]{}=\"'.#,\n"))
        text = text[:start] + middle + text[end:]
    path = file(text)
    made = attempt(lambda: Study.load(path))
    assert isinstance(made, Study) or is_one_line(made, path)


@fuzz
@given(data=st.binary(max_size=60) | st.text(st.characters(codec="utf-8")).map(str.encode))
def test_a_random_file_is_a_study_error(file, data):
    path = file(data)
    assert is_one_line(attempt(lambda: Study.load(path)), path)


@fuzz
@given(key=st.text(max_size=12), value=st.text(max_size=12))
@example(key="agent", value="URL")
@example(key="agent.URL.batch", value="[1, 2]")
@example(key="agent.URL.learner", value="OracleQ")
@example(key="problem.name", value="lock_gaussian")
def test_any_change_or_choice_gives_a_study_or_a_study_error(file, key, value):
    path, words = file(), f"{key}={value}"
    assert attempt(lambda: Study.load(path, [words]))
    assert attempt(lambda: Study.load(path).only([words]))


toml = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@fuzz
@given(st.dictionaries(texts, toml, max_size=4))
def test_what_is_written_as_toml_reads_back_the_same(given):
    assert tomllib.loads(to_toml(given)) == given


# --- expansion ------------------------------------------------------------------------------------
def test_lists_are_axes_and_the_first_runs_slowest():
    made = study(problem={"name": "lock_bernoulli", "horizon": [3, 5], "switch": [0.0, 0.2]})
    assert len(made.settings) == 2 * 2 * 3
    assert len(made) == 24
    shown = [
        (s.problem["horizon"], s.problem["switch"], s.agent["name"]) for s in made.settings[:7]
    ]
    assert shown == [
        (3, 0.0, "URL"),
        (3, 0.0, "URL"),
        (3, 0.0, "Tabular"),
        (3, 0.2, "URL"),
        (3, 0.2, "URL"),
        (3, 0.2, "Tabular"),
        (5, 0.0, "URL"),
    ]
    assert [s.agent["learner"]["lr"] for s in made.settings[:2]] == [0.03, 0.1]


def test_axes_may_be_nested_and_of_tables():
    learner = [{"name": "OracleQ", "lr": [0.1, 0.2]}, "QLearning"]
    made = study(
        problem="lock_bernoulli",
        agent={
            "name": "URL",
            "batch": [10, 20],
            "learner": learner,
            "oracle": ["gmm", "pca_kmeans"],
        },
    )
    assert len(made.settings) == 2 * 3 * 2
    parts = [
        (s.agent["batch"], s.agent["learner"]["name"], s.agent["oracle"]["name"])
        for s in made.settings[:6]
    ]
    assert parts == [
        (10, name, oracle)
        for name in ("OracleQ", "OracleQ", "QLearning")
        for oracle in ("gmm", "pca_kmeans")
    ]


def test_several_problems_may_differ_in_their_parameters():
    problems = [
        {"name": "lock_bernoulli", "horizon": [3, 5]},
        {"name": "lock_gaussian", "horizon": 3, "sigma": 0.2},
    ]
    made = study(problem=problems, agent=TABULAR)
    assert [s.problem["name"] for s in made.settings] == [*["lock_bernoulli"] * 2, "lock_gaussian"]
    assert made.settings[2].problem["sigma"] == 0.2


def test_a_list_in_a_list_is_a_value(file):
    code = "def make(map): return __import__('blockmdp').lock_bernoulli(sum(map))"
    file(code, "listed.py")
    made = Study(document(problem={"name": "listed:make", "map": [[1, 2], [3]]}), folder=".")
    assert made.panels == ["map = [1, 2]", "map = [3]"]


def test_a_list_of_episodes_is_an_axis():
    made = study(problem="lock_bernoulli", episodes=[10, 20, 10.0], agent=TABULAR)
    assert [(s.episodes, s.panel) for s in made.settings] == [
        (10, "lock_bernoulli, 10 episodes"),
        (20, "lock_bernoulli, 20 episodes"),
    ]


def test_seeds_are_a_number_or_a_list():
    assert study(seeds=3).seeds == [0, 1, 2]
    assert study(seeds=[7, 3, 5.0]).seeds == [7, 3, 5]


def test_runs_go_seed_by_seed_and_the_longest_first():
    made = study(seeds=[4, 2], agent=TABULAR)
    assert [(run.seed, run.setting.problem["horizon"]) for run in made.runs()] == [
        *((4, 5), (4, 3), (2, 5), (2, 3))
    ]


def test_a_setting_that_stands_there_twice_is_one():
    assert len(study(agent=[TABULAR, TABULAR, {**TABULAR, "label": "again"}]).settings) == 2
    assert len(study(agent=TABULAR, problem={"name": "lock_bernoulli", "horizon": [3, 3]})) == 2


def test_an_agent_may_be_for_some_problems_only():
    problem = {"name": "lock_bernoulli", "horizon": [3, 5, 7], "switch": [0.0, 0.2]}

    def where(when, **changes):
        made = study(problem=problem, agent={**TABULAR, "when": when}, **changes)
        return [(s.problem["horizon"], s.problem["switch"]) for s in made.settings]

    assert where({"horizon": 5}) == [(5, 0.0), (5, 0.2)]
    assert where({"horizon": [3, 5], "switch": 0}) == [(3, 0.0), (5, 0.0)]
    assert where([{"horizon": 3, "switch": 0.2}, {"horizon": 7, "switch": 0.0}]) == [
        *((3, 0.2), (7, 0.0))
    ]
    assert where({"panel": "H = 3, switch = 0.2"}) == [(3, 0.2)]
    assert where({"episodes": 20, "switch": 0.2, "horizon": 3}, episodes=[10, 20]) == [(3, 0.2)]
    assert len(where({})) == 6


# --- keys -----------------------------------------------------------------------------------------
def test_the_same_content_in_other_words_is_the_same_run():
    plain = study(problem="lock_bernoulli", agent=TABULAR)
    learner = {"v_max": 1, "bonus": 0.001, "lr": 0.1, "name": "OracleQ"}
    spelt_out = study(
        problem={"switch": 0.2, "horizon": 20, "name": "lock_bernoulli"},
        agent=[{"on": "latent", "learner": "none", "name": "Tabular", "label": "mine"}],
        solved={"share": 0.9, "window": 1000.0, "above": "none"},
        episodes=100.0,
    )
    assert keys(plain) == keys(spelt_out)
    tables = [{**TABULAR, "learner": table} for table in ("OracleQ", {"name": "OracleQ"}, learner)]
    assert len({keys(study(agent=table))[0][0] for table in tables}) == 1
    zero = [study(problem={"name": "lock_bernoulli", "switch": zero}) for zero in (0, 0.0)]
    assert keys(zero[0]) == keys(zero[1])
    assert keys(Study(DOCUMENT)) == keys(Study(json.loads(json.dumps(DOCUMENT, sort_keys=True))))


def test_none_can_be_said_where_it_means_something():
    made = study(agent={"name": "URL", "stable": ["none", 0.9], "iterations": "none"})
    assert [s.agent["stable"] for s in made.settings[:2]] == [None, 0.9]
    assert build("agent", made.settings[0].agent).iterations is None


CHANGES = [
    {"episodes": 101},
    {"solved": {"share": 0.8}},
    {"solved": {"above": 0.3}},
    {"solved": {"window": 999}},
    {"problem": "lock_gaussian"},
    {"problem": {"name": "lock_bernoulli", "horizon": 19}},
    {"problem": {"name": "lock_bernoulli", "switch": 0.25}},
    {"problem": {"name": "lock_bernoulli", "seed": 0}},
    {"agent": {**TABULAR, "on": "observation"}},
    {"agent": {**TABULAR, "learner": "OracleQ"}},
    {"agent": {**TABULAR, "learner": "QLearning"}},
    {"agent": {**TABULAR, "learner": {"name": "OracleQ", "lr": 0.1 + 1e-9}}},
    {"agent": {**TABULAR, "learner": {"name": "OracleQ", "bonus": 0}}},
    {"agent": {"name": "PCID"}},
]


def test_a_changed_setting_is_another_run():
    first = {"problem": "lock_bernoulli", "agent": TABULAR}
    made = [keys(study(**(first | change)))[0][0] for change in [{}, *CHANGES]]
    assert len(set(made)) == len(made)


def test_another_seed_is_another_run():
    made = {run.key for run in study(seeds=100).runs()}
    assert len(made) == 600
    assert made > {run.key for run in study(seeds=[7, 3]).runs()}


def test_the_keys_are_what_they_were():
    made = study(problem={"name": "lock_bernoulli", "horizon": 3}, agent=TABULAR)
    assert [run.key for run in made.runs()] == [
        "412ac107dcf70479555697fe5fe9d206",
        "42c649414d6461415b8e32b6b5706644",
    ]


# --- a user's own parts ---------------------------------------------------------------------------
OWN = '''
import functools
import blockmdp as bm
from sklearn.cluster import KMeans

def lock(horizon: int, seed: int = 0):
    return bm.lock_bernoulli(horizon, 0.0, seed)

easy = functools.partial(bm.lock_bernoulli, switch=0.0)

def kmeans(n_states: int = 3, source: str = "x"):
    assert source == "x"
    return KMeans(n_states, n_init=1)

class Steady(bm.OracleQ):
    """A learner."""

class Agent:
    def __init__(self, n: int = 1, learner: bm.Learner | None = None):
        self.learner = learner
    def fit(self, problem, episodes, seed=0):
        self.returns_ = [0.0] * episodes
'''


@pytest.fixture
def own(file):
    """Writes the module above under a name of its own, and gives what loads a study beside it."""

    def write(name, code=OWN):
        file(code, f"{name}.py")

        def load(problem="lock_bernoulli", agent=None):
            made = {"problem": problem, "agent": agent or [TABULAR], "seeds": 2, "episodes": 10}
            return Study.load(file(to_toml(made)))

        return load

    return write


def test_a_user_s_problem_oracle_learner_and_agent_are_named_by_import_path(own):
    load = own("own_parts")
    (s,) = load({"name": "own_parts:lock", "horizon": 4}).settings
    assert build("problem", s.problem, seed=3).horizon == 4
    assert "seed" not in s.problem
    (s,) = load(
        agent=[
            {
                "name": "URL",
                "oracle": {"name": "own_parts.kmeans", "n_states": 4, "source": "x"},
                "learner": {"name": "own_parts.Steady", "lr": 0.5},
            }
        ]
    ).settings
    made = build("agent", s.agent)
    assert (type(made.learner).__name__, made.learner.lr) == ("Steady", 0.5)
    assert made.oracle.n_clusters == 4
    (s,) = load(agent=[{"name": "own_parts:Agent", "n": 2, "learner": "OracleQ"}]).settings
    assert isinstance(build("agent", s.agent).learner, bm.OracleQ)
    assert s.label == "Agent"
    (s,) = load(agent=[{**TABULAR, "learner": "own_parts.Steady"}]).settings
    assert s.label == "Steady-lat"


def test_a_user_s_parameters_are_checked_as_ours_are(own):
    load = own("own_checked")
    for table, words in (
        ({"name": "own_checked:lock"}, "problem.horizon: own_checked:lock needs it"),
        ({"name": "own_checked:lock", "horizn": 3}, "did you mean 'horizon'?"),
        ({"name": "own_checked:lock", "horizon": "3"}, "problem.horizon: must be a whole number"),
        ({"name": "own_checked:easy", "horizon": "3"}, "problem.horizon: must be a whole number"),
        ({"name": "own_checked:lok"}, "no 'lok' in it; did you mean 'lock'?"),
    ):
        with pytest.raises(StudyError) as error:
            load(table)
        assert words in str(error.value)


def test_a_partial_function_has_the_parameters_of_the_whole(own):
    (s,) = own("own_partial")({"name": "own_partial:easy"}).settings
    assert (s.problem["switch"], s.problem["horizon"]) == (0.0, 20)
    assert build("problem", s.problem, seed=5).horizon == 20


def test_a_changed_file_of_a_user_is_another_run(own):
    load = own("own_changed")
    tables = [
        {"problem": {"name": "own_changed:lock", "horizon": 3}},
        {"problem": {"name": "own_changed:easy"}},
        {"agent": [{"name": "own_changed:Agent"}]},
        {"agent": [{**TABULAR, "learner": "own_changed:Steady"}]},
        {"agent": [{"name": "URL", "oracle": "own_changed:kmeans"}]},
        {},
    ]
    before = keys(*(load(**table) for table in tables))
    assert before == keys(*(load(**table) for table in tables))
    own("own_changed", OWN + "\n# changed\n")
    after = keys(*(load(**table) for table in tables))
    assert [a != b for a, b in zip(before, after, strict=True)] == [True] * 5 + [False]


def test_both_ways_to_write_a_path_find_the_same(own):
    load = own("own_twice")
    one, two = (load({"name": f"own_twice{mark}lock", "horizon": 3}) for mark in ":.")
    assert one.panels != two.panels
    one, two = (made.settings[0].problem | {"name": "same"} for made in (one, two))
    assert one == two


def test_a_study_may_say_where_its_modules_are(file, tmp_path):
    (tmp_path / "below").mkdir()
    file(OWN, "own_above.py")
    path = file('modules = ".."\n' + TEXT.replace('"Tabular"', '"own_above:Agent"'), "below/a.toml")
    made = Study.load(path)
    assert made.folder == str(tmp_path)
    assert made.settings[2].label == "Agent"


def test_an_installed_part_goes_by_its_import_path_too(own):
    load = own("own_none")
    oracle = {"name": "sklearn.cluster.KMeans", "n_clusters": 4}
    (s,) = load(agent=[{"name": "URL", "oracle": oracle}]).settings
    assert build("agent", s.agent).oracle.n_clusters == 4
    classifier = {"name": "sklearn.neighbors:KNeighborsClassifier", "n_neighbors": 3}
    oracle = {"name": "pca_dbscan_svm", "classifier": classifier}
    (s,) = load(agent=[{"name": "URL", "oracle": oracle}]).settings
    assert build("agent", s.agent).oracle[-1].classifier.n_neighbors == 3


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("FrozenLake-v1", {"is_slippery": False}),
        ("blockmdp/LockBernoulli-v0", {"horizon": 3}),
        ("blockmdp:blockmdp/LockBernoulli-v0", {"horizon": 3}),
    ],
)
def test_a_problem_may_be_a_gymnasium_id(name, options):
    made = study(problem={"name": name, **options}, agent={**TABULAR, "on": "observation"})
    (setting,) = made.settings
    assert made.panels == [name]
    env = build("problem", setting.problem)
    assert isinstance(env, gym.Env)
    assert env.spec.kwargs.items() >= options.items()
    env.close()


# --- labels and titles ----------------------------------------------------------------------------
def test_a_label_says_what_tells_an_agent_from_the_others():
    url = {"name": "URL", "learner": {"name": "OracleQ", "lr": [0.1, 0.3]}}
    assert labels([url, TABULAR]) == ["URL lr=0.1", "URL lr=0.3", "OracleQ-lat"]
    assert labels([{**url, "label": "mine"}]) == ["mine lr=0.1", "mine lr=0.3"]
    assert labels([{"name": "URL", "oracle": ["gmm", "pca_kmeans"]}]) == [
        *("URL oracle=gmm covariance_type=full", "URL oracle=pca_kmeans n_components=3"),
    ]
    assert labels([{**TABULAR, "on": ["latent", "observation"], "learner": "QLearning"}]) == [
        *("QLearning-lat", "QLearning-obs"),
    ]
    assert labels([{"name": "URL", "resample": [True, False]}]) == [
        *("URL resample=true", "URL resample=false")
    ]


def test_two_labels_are_never_the_same():
    rates = [0.1234567, 0.12345671, 1e-12, 0.5]
    made = labels([{**TABULAR, "learner": {"name": "OracleQ", "lr": rates}}])
    assert made == [f"OracleQ-lat lr={rate}" for rate in rates]


def test_an_agent_with_another_best_rate_in_each_panel_has_one_label():
    def tabular(lr, horizon):
        return {**TABULAR, "learner": {"name": "OracleQ", "lr": lr}, "when": {"horizon": horizon}}

    made = study(agent=[tabular(0.1, 3), tabular(0.3, 5)])
    assert [(s.panel, s.label) for s in made.settings] == [
        *(("H = 3", "OracleQ-lat"), ("H = 5", "OracleQ-lat"))
    ]


@pytest.mark.parametrize(
    ("problem", "titles"),
    [
        ("lock_bernoulli", ["lock_bernoulli"]),
        ({"name": "lock_bernoulli", "horizon": [3, 5]}, ["H = 3", "H = 5"]),
        (
            {"name": "lock_bernoulli", "horizon": [3, 5], "switch": [0, 0.25]},
            [f"H = {H}, switch = {x}" for H in (3, 5) for x in (0, 0.25)],
        ),
        (
            {"name": ["lock_bernoulli", "lock_gaussian"]},
            ["lock_bernoulli", "lock_gaussian"],
        ),
        (
            [{"name": "FrozenLake-v1"}, {"name": "FrozenLake-v1", "is_slippery": False}],
            ["FrozenLake-v1", "is_slippery = false"],
        ),
        (
            {"name": "lock_bernoulli", "switch": [0.1234567, 0.1234568]},
            ["switch = 0.1234567", "switch = 0.1234568"],
        ),
    ],
)
def test_a_panel_s_title_is_what_tells_its_problem_from_the_others(problem, titles):
    assert study(problem=problem).panels == titles


# --- parts and changes ----------------------------------------------------------------------------
def test_only_keeps_the_runs_that_are_asked_for():
    made = study(problem={"name": "lock_bernoulli", "horizon": [3, 5, 7], "switch": [0, 0.2]})

    def kept(*conditions):
        part = made.only(conditions)
        return len(part.settings), part.seeds

    assert kept() == (18, [0, 1])
    assert kept("agent=URL") == (12, [0, 1])
    assert kept("agent=OracleQ-lat") == (6, [0, 1])
    assert kept("agent=URL lr=0.03") == (6, [0, 1])
    assert kept("horizon=3,7") == kept("problem.horizon = 3, 7") == kept("horizon=3.0,7")
    assert kept("horizon=3,7") == (12, [0, 1])
    assert kept("lr=1e-1") == kept("agent.learner.lr=0.10") == kept("learner.lr=.1,0.1")
    assert kept("lr=0.1") == (6, [0, 1])
    assert kept("seed=1") == (18, [1])
    assert kept("agent=URL", "horizon=3", "switch=0", "seed=0") == (2, [0])
    assert kept("problem=H = 3, switch = 0") == (3, [0, 1])
    assert kept("resample=false") == (12, [0, 1])
    assert kept("oracle.name=pca_kmeans") == (12, [0, 1])
    mine = study(agent={**DOCUMENT["agent"][0], "label": "mine"}).only(["agent=mine"])
    assert len(mine.settings) == 4


def test_only_leaves_the_study_as_it_was():
    made = study()
    part = made.only(["agent=URL", "seed=1"])
    assert len(part) == 4
    assert (len(made), made.seeds) == (12, [0, 1])
    assert part.document == made.document


def changed(path, *changes):
    return Study.load(path, changes)


def test_a_change_sets_a_value_of_the_study(file):
    path = file()
    assert changed(path).document == DOCUMENT
    assert changed(path, "episodes=5_000").settings[0].episodes == 5000
    assert changed(path, "seeds = [4, 5]").seeds == [4, 5]
    assert changed(path, "problem.horizon=[7]").panels == ["lock_bernoulli"]
    assert changed(path, "problem.name=lock_gaussian").panels == ["H = 3", "H = 5"]
    batches = [s.agent.get("batch") for s in changed(path, "agent.URL.batch=[7, 8]").settings[:5]]
    assert batches == [7, 7, 8, 8, None]
    assert changed(path, "agent.URL.learner.lr=0.5").settings[0].agent["learner"]["lr"] == 0.5
    assert changed(path, "agent.URL.oracle=gmm").settings[0].agent["oracle"]["name"] == "gmm"
    assert changed(path, "agent.Tabular.on='observation'").settings[2].label == "OracleQ-obs"
    assert changed(path, "agent.label=all").settings[0].base == "all"
    assert changed(path, "solved={window=7}").settings[0].solved["window"] == 7
    assert changed(path, "episodes=7", "episodes=8").settings[0].episodes == 8


def test_a_change_finds_an_agent_by_its_label(file):
    path = file(TEXT.replace('"URL"', '"URL"\nlabel = "mine"') + '[[agent]]\nname = "URL"\n')
    made = changed(path, "agent.mine.batch=77")
    assert {s.agent["batch"] for s in made.settings if s.base == "mine"} == {77}
    assert {s.agent["batch"] for s in made.settings if s.base == "URL"} != {77}


def test_a_file_may_begin_with_a_byte_order_mark(file):
    assert keys(Study.load(file(b"\xef\xbb\xbf" + TEXT.encode()))) == keys(Study(DOCUMENT))


def test_the_name_of_a_file_may_be_any_the_system_allows(file):
    assert Study.load(file(name="caf\udce9.toml")).name == "caf?"


def test_a_study_tells_what_it_is(file):
    made = bm.Study.load(file(name="my.first.toml"))
    assert repr(made) == "<study my.first: 6 settings x 2 seeds>"
    assert str(next(made.runs())) == "H = 5 | URL lr=0.03 | seed 0"


# --- a problem's own length and measure -----------------------------------------------------------
def two_problems(**problem):
    return {
        "seeds": 1,
        "episodes": 50,
        "problem": [{"name": "lock_bernoulli", "horizon": 3}, problem],
        "agent": {"name": "Tabular", "on": "latent"},
    }


def test_a_problem_can_have_its_own_episodes_and_measure():
    measure = {"share": 0.5, "window": "all"}
    short, long = Study(
        two_problems(name="lock_bernoulli", horizon=5, episodes=70, solved=measure), "s"
    ).settings
    assert (short.episodes, long.episodes) == (50, 70)
    assert short.solved == {"share": 0.9, "above": None, "window": 1000}
    assert long.solved == {"share": 0.5, "above": None, "window": "all"}
    assert "episodes" not in long.problem
    assert "solved" not in long.problem
    assert (short.panel, long.panel) == ("H = 3", "H = 5")


def test_several_lengths_of_one_problem_are_panels_of_their_own():
    study = Study(two_problems(name="lock_bernoulli", horizon=5, episodes=[60, 70]), "s")
    assert [s.panel for s in study.settings] == [
        "H = 3",
        "H = 5, 60 episodes",
        "H = 5, 70 episodes",
    ]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"episodes": 0}, "problem[1].episodes"),
        ({"episodes": "many"}, "problem[1].episodes: must be a whole number"),
        ({"solved": {"windw": 3}}, "problem[1].solved.windw: there is no such key"),
        ({"solved": {"window": "some"}}, "problem[1].solved.window: must be a whole number or"),
        ({"solved": 3}, "problem[1].solved: must be a table"),
    ],
)
def test_what_is_wrong_with_them_is_told_with_its_place(wrong, words):
    with pytest.raises(StudyError, match=words.replace("[", "\\[")):
        Study(two_problems(name="lock_bernoulli", horizon=5, **wrong), "s")
