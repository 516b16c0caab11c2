"""Invalid studies: one line that names the place, and never another exception than StudyError."""

from __future__ import annotations

import copy
import sys
import tomllib

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from blockmdp.cli import main
from blockmdp.experiments import Study, StudyError, catalogue
from blockmdp.experiments.toml import to_toml

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
    """Run each test in its own folder, and restore the import path afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a study file."""

    def write(text=TEXT, name="study.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def document(**changes):
    """The study above, with other values at the top."""
    return copy.deepcopy(DOCUMENT) | changes


# --- messages -------------------------------------------------------------------------------------
def refused(path, capsys, *options):
    """Return the one line that the command prints about an invalid study file."""
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
    # an unknown key, at each place
    "top": ("seeds = 2", "seed = 2", "seed: unknown key; did you mean 'seeds'?"),
    "top, far": ("seeds = 2", "xyz = 2", "xyz: unknown key (known: agent, episodes"),
    "problem": ("horizon", "horizn", "problem.horizn: lock_bernoulli has no such parameter; did"),
    "agent": ("batch", "batches", "agent[0].batches: URL has no such parameter; did you mean 'ba"),
    "oracle": ("n_states", "n_state", "agent[0].oracle.n_state: pca_kmeans has no such parameter"),
    "learner": ("lr =", "rate =", "agent[0].learner.rate: OracleQ has no such parameter (known"),
    "solved": ("[problem]", "solved.windw = 1\n[problem]", "did you mean 'window'?"),
    "when": ('"Tabular"', '"Tabular"\nwhen.horzon = 3', "agent[1].when.horzon: no problem has t"),
    # a missing key
    "no seeds": ("seeds = 2", "", "seeds: is missing, and every study requires it"),
    "no episodes": ("episodes = 100", "", "episodes: is missing, and every study requires it"),
    "no problem": ("[problem]", "[solved]", "problem: is missing, and every study requires it"),
    "no name": ('name = "URL"', "", "agent[0].name: must name the agent: URL, OnlineURL, PCID, Ta"),
    "no name below": ('name = "OracleQ", ', "", "agent[0].learner.name: must name the learner: Or"),
    "nothing": (TEXT, "", "seeds: is missing, and every study requires it"),
    # a wrong type
    "seeds": ("seeds = 2", 'seeds = "2"', "seeds: must be an integer >= 1, got '2'"),
    "half a seed": ("seeds = 2", "seeds = 2.5", "seeds: must be an integer >= 1, got 2.5"),
    "true seeds": ("seeds = 2", "seeds = true", "seeds: must be an integer >= 1, got True"),
    "a seed": ("seeds = 2", 'seeds = [1, "2"]', "seeds[1]: must be an integer >= 0, got '2'"),
    "episodes": ("= 100", "= {}", "episodes: must be an integer >= 1, got {}"),
    "text": ("batch = 20", 'batch = "20"', "agent[0].batch: must be an integer, got '20'"),
    "a float": ("batch = 20", "batch = 20.5", "agent[0].batch: must be an integer, got 20.5"),
    "true": ("batch = 20", "batch = true", "agent[0].batch: must be an integer, got True"),
    "a number": ("batch = 20", 'growth = "x"', "agent[0].growth: must be a number, got 'x'"),
    "a number or none": (
        "batch = 20",
        'stop_agreement = "x"',
        'agent[0].stop_agreement: must be a number or "none", got',
    ),
    "a table": ("batch = 20", "batch = { n = 20 }", "agent[0].batch: must be an integer, got {'n'"),
    "a list": ("batch = 20", "batch = [[1]]", "agent[0].batch: must be an integer, got [1]"),
    "truth": ("batch = 20", "resample = 1", "agent[0].resample: must be true or false, got 1"),
    "a name": ('"Tabular"', "7", "agent[1].name: must name the agent"),
    "a problem": ("[problem]\nname", "problem = 7\n[x]\nname", "x: unknown key"),
    "a part": ("oracle = {", "oracle = 3 #", "agent[0]: URL: "),
    "a learner": ("learner = {", "learner = 3 #", "agent[0].learner: must be a table such as { na"),
    "a label": ('"Tabular"', '"Tabular"\nlabel = 3', "agent[1].label: must be a string of one lin"),
    "two lines": ('"Tabular"', '"Tabular"\nlabel = "a\\nb"', "agent[1].label: must be a string of"),
    "solved is a table": ("episodes", "solved = 3\nepisodes", "solved: must be a table, got 3"),
    "share": ("episodes", 'solved.share = "x"\nepisodes', "solved.share: must be a number, got 'x"),
    "window": ("episodes", "solved.window = 1.5\nepisodes", "solved.window: must be an integer >="),
    "measure": (
        "episodes",
        'solved.measure = "mean"\nepisodes',
        "solved.measure: must be \"returns\" or \"value\", got 'mean'",
    ),
    "measure is a list": (
        "episodes",
        'solved.measure = ["value"]\nepisodes',
        'solved.measure: must be "returns" or "value", got [',
    ),
    "a window of values": (
        "episodes",
        'solved = { measure = "value", window = 9 }\nepisodes',
        'solved.window: belongs to measure = "returns", not to measure = "value"',
    ),
    "above a value": (
        "episodes",
        'solved = { measure = "value", above = 0.4 }\nepisodes',
        "which has only share; remove above or measure",
    ),
    "share of values": (
        "episodes",
        'solved = { measure = "value", share = 0 }\nepisodes',
        "solved.share: must be in (0, 1], got 0.0",
    ),
    "the value of a black box": (
        '[problem]\nname = "lock_bernoulli"\nhorizon = [3, 5]',
        'solved.measure = "value"\n[problem]\nname = "FrozenLake-v1"',
        'problem: FrozenLake-v1 makes a TimeLimit, a black box, which has no exact value, but '
        'solved.measure is "value"; use measure = "returns" and set solved.above',
    ),
    "when is a table": ('"Tabular"', '"Tabular"\nwhen = 3', "agent[1].when: must be a table, such"),
    "modules": ("seeds", "modules = 3\nseeds", "modules: must be the path of a folder, got 3"),
    "agent is no table": ("[[agent]]", "agents = 3\n[[agent]]", "problem.agents: lock_bernoulli h"),
    # a value out of range
    "seeds 0": ("seeds = 2", "seeds = 0", "seeds: must be an integer >= 1, got 0"),
    "a seed < 0": ("seeds = 2", "seeds = [0, -1]", "seeds[1]: must be an integer >= 0, got -1"),
    "many seeds": ("seeds = 2", "seeds = 100_000_000", "seeds: must be at most 1000000, got 10000"),
    "many runs": ("seeds = 2", "seeds = 1_000_000", "at most 1000000 runs, got 6000000"),
    "episodes 0": ("= 100", "= [1, 0]", "episodes: must be an integer >= 1, got 0"),
    "long": ("= 100", "= 1e300", "episodes: must be at most 10^12, got 1e+300"),
    "horizon 0": ("[3, 5]", "[3, 0]", "problem: lock_bernoulli: horizon must be an integer >= 1"),
    "lr 2": ("0.03", "2", "agent[0]: URL: OracleQ: lr must be a number in"),
    "on": ('"Tabular"', '"Tabular"\non = "here"', "must be 'latent' or 'likelihood' or 'obs"),
    "share > 1": ("episodes", "solved.share = 1.1\nepisodes", "solved.share: must be in (0, 1], g"),
    "above": ("episodes", "solved.above = inf\nepisodes", "solved.above: must be a number, got in"),
    "huge": ("= 100", f"= {2**63}", "episodes: 9223372036854775808 does not fit into 64 bits"),
    "huge, in hex": ("= 100", f"= 0x{'f' * 5000}", "episodes: a huge number does not fit into 64"),
    "huge seeds": ("seeds = 2", f"seeds = -0x{'f' * 4000}"[:10], "seeds: must be an integer >= 1"),
    "too many digits": ("= 100", f"= {huge(5000)}", "Exceeds the limit (4300 digits)"),
    "nan": ("0.03", "nan", "agent[0].learner.lr[0]: must not be nan"),
    "infinite": ("0.03", "inf", "agent[0]: URL: OracleQ: lr must be a number in"),
    # an empty grid
    "no seed": ("seeds = 2", "seeds = []", "seeds: the list is empty"),
    "no length": ("= 100", "= []", "episodes: the list is empty"),
    "no horizon": ("[3, 5]", "[]", "problem.horizon: the list is empty"),
    "no rate": ("[0.03, 0.1]", "[]", "agent[0].learner.lr: the list is empty"),
    "no agent": (TEXT[TEXT.index("[[agent]]") :], "[agent]", "agent[0].name: must name the agent"),
    "when nothing": ('"Tabular"', '"Tabular"\nwhen = []', "agent[1].when: matches no problem of t"),
    "when never": ('"Tabular"', '"Tabular"\nwhen.horizon = [4, 6]', "agent[1].when: matches no pr"),
    # a name that does not exist
    "no such problem": ("bernoulli", "bernuli", "problem.name: unknown problem 'lock_bernuli'; di"),
    "no such agent": ('"URL"', '"ULR"', "agent[0].name: unknown agent 'ULR'; did you mean 'URL'?"),
    "no such oracle": ("pca_kmeans", "kmeans", "oracle 'kmeans'; did you mean 'pca_kmeans'?"),
    "no such learner": ('"OracleQ"', '"SARSA"', "learner 'SARSA' (known: DelayedQ, E3, EULER"),
    "no such module": ('"URL"', '"nowhere:X"', "cannot import 'nowhere:X': ModuleNotFoundError"),
    "no such class": ('"URL"', '"blockmdp:URLs"', "it has no 'URLs'; did you mean 'URL'?"),
    "no callable": ('"URL"', '"sys:maxsize"', "'sys:maxsize' is not a class or function that make"),
    "no agent it is": ('"Tabular"', '"blockmdp:OracleQ"', "does not make an agent with a"),
    "no problem it is": ('"lock_bernoulli"\nhorizon = [3, 5]', '"builtins:dict"', "not make a Bl"),
    "no such id": ('"lock_bernoulli"', '"FrozenLaek-v1"', "environment 'FrozenLaek-v1'; did you m"),
    "no such module's id": ('"lock_bernoulli"', '"nowhere:X-v1"', "No module named 'nowhere'"),
    "relative": ('"URL"', '"..x:y"', "agent[0].name: cannot import '..x:y'"),
    "no module": ('"URL"', '":x"', "agent[0].name: unknown agent ':x'"),
    "exit": ('"URL"', '"sys:exit"', "agent[0]"),
    # too many of something
    "twice": ("seeds = 2", "seeds = [3, 4, 3]", "seeds: the list contains a seed twice"),
    "two alike": ('"Tabular"', '"Tabular"\nlabel = "URL lr=0.1"', "another agent has the label 'U"),
    "a large grid": ("[3, 5]", f"[{'3,' * 100_001}]", "problem: the grid has more than 100000 poi"),
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
    # invalid TOML, or values that a study has no use for
    "no TOML": ("seeds = 2", "seeds 2", "Expected '=' after a key in a key/value pair (at line 1,"),
    "cut off": (TEXT, TEXT[:-2], "(at "),
    "a key twice": ("seeds = 2", "seeds = 2\nseeds = 3", "Cannot overwrite a value (at line 2,"),
    "a date": ("seeds = 2", "seeds = 1979-05-27", "seeds: must be a number, string, list or tabl"),
    "a time": ("batch = 20", "batch = 07:32:00", "agent[0].batch: must be a number, string, list"),
    "deep lists": ("[3, 5]", "[" * 3000 + "]" * 3000, "is nested too deeply"),
    "deep tables": ("seeds = 2", f"{'a.' * 900}a = 1", "is nested too deeply"),
    "line breaks": ("seeds = 2", '"a\\nb" = 2', "a b: unknown key"),
}  # fmt: skip


def test_an_invalid_study_file_gets_one_line_with_the_place(file, capsys):
    for case, (old, new, words) in WRONG.items():
        assert old in TEXT, case
        path = file(TEXT.replace(old, new, 1))
        line = refused(path, capsys)
        assert line.startswith(f"{path}: "), (case, line)
        assert words in line, (case, line)


def test_the_command_prints_the_message_of_the_study_error(file, capsys):
    path = file(TEXT.replace("batch", "batches"))
    with pytest.raises(StudyError) as error:
        Study.load(path)
    assert refused(path, capsys) == str(error.value)


def test_a_file_that_cannot_be_read_gets_one_line(tmp_path, capsys):
    for i, (make, words) in enumerate(
        [
            (lambda path: None, "No such file or directory"),
            (lambda path: path.mkdir(), "Is a directory"),
            (lambda path: path.write_bytes(b"# caf\xe9\n" + TEXT.encode()), "must be UTF-8 text"),
            (lambda path: path.write_bytes(b"\0" * 100), "Invalid statement (at line 1, column 1)"),
        ]
    ):
        path = tmp_path / f"study{i}.toml"
        make(path)
        assert refused(path, capsys) == f"{path}: {words}"


MAKES = "def Own() -> Env: "
ODD = """
class Odd(BaseException):
    def __str__(self):
        raise ValueError
"""


def test_a_user_s_module_may_fail_in_any_way(file, capsys, monkeypatch):
    path = file(TEXT.replace('"lock_bernoulli"\nhorizon = [3, 5]', '"broken:Own"'))
    for code, words in (
        ("1 / 0", "cannot import 'broken:Own': ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(3)", "cannot import 'broken:Own': SystemExit: 3"),
        ("def Own(: pass", "cannot import 'broken:Own': SyntaxError: invalid syntax (broken.py, l"),
        (f"{MAKES}raise KeyError('a')", "problem: broken:Own: KeyError: 'a'"),
        (f"{MAKES}raise SystemExit(3)", "problem: broken:Own: SystemExit: 3"),
        (f"{MAKES}raise ValueError('a\\nb')", "problem: broken:Own: a b"),
        (f"{MAKES}raise Odd", "problem: broken:Own: Odd: Odd"),
        (
            MAKES.replace("()", "(size)") + "1",
            "problem.size: is missing, and broken:Own requires it",
        ),
        (
            "class Own(Env):\n  def __init__(self, n: int): pass",
            "problem.n: is missing, and broken:O",
        ),
        ("def Own(): pass", "the function 'broken:Own' does not say what it makes: annotate it"),
        ("def Own() -> int: pass", "'broken:Own' does not make a BlockMDP or a Gymnasium envi"),
    ):
        file(
            f"from gymnasium import Env\n{ODD}{code}" if "Own(:" not in code else code, "broken.py"
        )
        sys.modules.pop("broken", None)
        catalogue.find.cache_clear(), catalogue.parameters.cache_clear()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # each module is a new one
        assert words in refused(path, capsys), code
    sys.modules.pop("broken", None)


def test_an_invalid_option_gets_one_line(file, capsys):
    for option, words in (
        ("--set=episodes", "--set episodes: must be key=value, such as episodes=5000"),
        ("--set==5", "--set =5: must be key=value"),
        ("--set=epsodes=5", "epsodes: unknown key; did you mean 'episodes'?"),
        ("--set=episodes=many", "episodes: must be an integer >= 1, got 'many'"),
        ("--set=agent.ULR.batch=5", "the study has no 'ULR'; did you mean 'URL'?"),
        ("--set=agent.URL.learnr.lr=5", "the study has no 'learnr'; did you mean 'learner'?"),
        ("--set=agent.URL.batch.x=5", "--set agent.URL.batch.x=5: agent.URL.batch is not a table"),
        ("--set=agent.URL.lr=5", "agent[0].lr: URL has no such parameter"),
        ("--set=problem.horizon=[]", "problem.horizon: the list is empty"),
        ("--set=episodes=5\nseeds=1", "episodes: must be an integer >= 1, got '5\\nseeds=1'"),
        (f"--set=episodes={huge(5000)}", "episodes: must be an integer >= 1, got '1111"),
        ("--only=agent", "--only agent: must be key=value, such as agent=URL"),
        ("--only=agnt=URL", "--only agnt=URL: no setting has 'agnt'; did you mean 'agent'?"),
        ("--only=agent=ULR", "--only agent=ULR: no run matches; did you mean 'URL'?"),
        ("--only=horizon=4", "--only horizon=4: no run matches (known: 3, 5)"),
        ("--only=seed=2", "--only seed=2: no run matches (known: 0, 1)"),
        ("--only=agent=a\nb", "--only agent=a b: no run matches"),
    ):
        assert words in refused(file(), capsys, option), option


def test_a_document_from_python_is_checked_too():
    for given_document, words in (
        ([], "a study must be a table, got []"),
        ({1: 2}, "keys must be strings, got 1"),
        (document(seeds=(1, 2)), "seeds: must be a number, string, list or table, got a tuple"),
        (document(seeds=np.int64(2)), "seeds: must be a number, string, list or table, got a int6"),
        (document(seeds=None), "seeds: must be an integer >= 1, got None"),
        (document(agent=None), "agent[0]: must be a table with a name, got None"),
        (document(agent=["URL", 3]), "agent[0]: must be a table with a name, got 'URL'"),
        (document(agent={**TABULAR, "when": None}), "agent[0].when: must be a table"),
        (document(problem=3), "problem: must be a table with a name, got 3"),
        (document(modules="."), "modules: unknown key"),
    ):
        with pytest.raises(StudyError) as error:
            Study(given_document)
        assert words in str(error.value)


def test_a_problem_s_own_episodes_and_measure_are_checked():
    first = {"name": "lock_bernoulli", "horizon": 3}
    for wrong, words in (
        ({"episodes": 0}, "problem[1].episodes: must be an integer >= 1, got 0"),
        ({"episodes": "many"}, "problem[1].episodes: must be an integer >= 1, got 'many'"),
        ({"solved": {"windw": 3}}, "problem[1].solved.windw: unknown key"),
        ({"solved": {"window": "some"}}, "problem[1].solved.window: must be an integer or"),
        ({"solved": 3}, "problem[1].solved: must be a table"),
    ):
        with pytest.raises(StudyError) as error:
            Study(document(problem=[first, {**first, "horizon": 5, **wrong}]))
        assert words in str(error.value)


def test_only_agents_that_keep_policies_can_be_measured_by_value():
    value = {"measure": "value"}
    lock = {"name": "lock_bernoulli", "horizon": 3}
    own = {"name": f"{__name__}:Own", "when": {"horizon": 5}}
    agents = [{"name": "Tabular"}, own]
    with pytest.raises(StudyError) as error:
        Study(document(agent=agents, solved=value))
    assert str(error.value).startswith(f"agent[1]: {__name__}:Own makes a Own, whose fit keeps no")
    assert 'derive it from blockmdp.Agent, or measure "returns"' in str(error.value)
    problems = [{**lock, "solved": value}, {**lock, "horizon": 5}]
    assert len(Study(document(agent=agents, problem=problems)).settings) == 3


class Own:
    """An agent that is not a `blockmdp.Agent`."""

    def fit(self, problem, episodes, seed=0):
        self.returns_ = [0.0] * episodes


# --- random studies -------------------------------------------------------------------------------
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
    """Return what is made, or the StudyError. Any other exception fails the test."""
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
    read_back = Study(tomllib.loads(to_toml(changed)))
    assert [s.key for s in read_back.settings] == [s.key for s in made.settings]


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
