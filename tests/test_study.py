"""Study files: what they expand to, and what identifies a run."""

from __future__ import annotations

import copy
import json
import sys
import tomllib

import gymnasium as gym
import pytest

import blockmdp as bm
from blockmdp.experiments import Study, StudyError
from blockmdp.experiments.parts import build
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


def study(**changes):
    return Study(document(**changes))


def keys(*studies):
    return [[setting.key for setting in study.settings] for study in studies]


def labels(agents, **changes):
    return [s.label for s in study(agent=agents, problem="lock_bernoulli", **changes).settings]


# --- expansion ------------------------------------------------------------------------------------
def test_lists_are_axes_and_the_last_varies_fastest():
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


def test_axes_may_be_nested_and_may_list_tables():
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
    code = "import blockmdp as bm\ndef make(map) -> bm.BlockMDP: return bm.lock_bernoulli(sum(map))"
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


def test_a_setting_that_is_listed_twice_counts_once():
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
def test_two_spellings_of_the_same_setting_are_the_same_run():
    plain = study(problem="lock_bernoulli", agent=TABULAR)
    learner = {"v_max": 1, "bonus": 0.001, "lr": 0.1, "name": "OracleQ"}
    spelt_out = study(
        problem={"switch": 0.2, "horizon": 20, "name": "lock_bernoulli"},
        agent=[{"on": "latent", "learner": "none", "name": "Tabular", "label": "mine"}],
        solved={"share": 0.9, "window": 1000.0, "above": "none", "measure": "returns"},
        episodes=100.0,
    )
    assert keys(plain) == keys(spelt_out)
    tables = [{**TABULAR, "learner": table} for table in ("OracleQ", {"name": "OracleQ"}, learner)]
    assert len({keys(study(agent=table))[0][0] for table in tables}) == 1
    zero = [study(problem={"name": "lock_bernoulli", "switch": zero}) for zero in (0, 0.0)]
    assert keys(zero[0]) == keys(zero[1])
    assert keys(Study(DOCUMENT)) == keys(Study(json.loads(json.dumps(DOCUMENT, sort_keys=True))))


def test_the_string_none_stands_for_none_where_none_is_allowed():
    made = study(agent={"name": "URL", "stop_agreement": ["none", 0.9], "test_batch": "none"})
    assert [s.agent["stop_agreement"] for s in made.settings[:2]] == [None, 0.9]
    assert build("agent", made.settings[0].agent).test_batch is None


CHANGES = [
    {"episodes": 101},
    {"solved": {"share": 0.8}},
    {"solved": {"above": 0.3}},
    {"solved": {"window": 999}},
    {"solved": {"measure": "value"}},
    {"solved": {"measure": "value", "share": 0.8}},
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


def test_a_newer_parameter_is_part_of_the_key_unless_it_changes_nothing():
    problem = {"name": "lock_bernoulli", "horizon": 3}
    learners = [{"name": "OracleQ", "stationary": shared} for shared in (False, True)]
    agents = [
        {},
        {"by_level": True},
        {"by_level": False},
        *({"learner": each} for each in learners),
    ]
    keys = [next(study(problem=problem, agent=TABULAR | a).runs()).key for a in agents]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_parts_that_have_new_parameters_keep_their_keys():
    def key(**agent):
        problem = {"name": "lock_bernoulli", "horizon": 3}
        return next(study(problem=problem, agent=agent).runs()).key

    planner = key(name="Tabular", learner="UCBVI")
    assert planner == "40b1ed888961ef6f8248cf47a9f60eff"
    for newer in ({"discount": 0.9}, {"greedy": "known"}):
        assert key(name="Tabular", learner={"name": "UCBVI"} | newer) != planner
    pictures = key(name="URL", learner="OracleQ", oracle="images")
    assert pictures == "e1a407b481e7c34ea89f6db3fe9a0f4b"
    rendered = {"name": "images", "kind": "rendered"}
    assert key(name="URL", learner="OracleQ", oracle=rendered) != pictures


# --- a user's own parts ---------------------------------------------------------------------------
OWN = '''
import functools
import blockmdp as bm
from sklearn.cluster import KMeans

def lock(horizon: int, seed: int = 0) -> bm.BlockMDP:
    return bm.lock_bernoulli(horizon, 0.0, seed)

easy = functools.partial(bm.lock_bernoulli, switch=0.0)

def kmeans(n_states: int = 3, source: str = "x") -> KMeans:
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
    """Return a function that writes the module above, which returns one that loads a study."""

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


def test_parameters_of_a_user_s_part_are_checked_too(own):
    load = own("own_checked")
    for table, words in (
        (
            {"name": "own_checked:lock"},
            "problem.horizon: is missing, and own_checked:lock requires it",
        ),
        ({"name": "own_checked:lock", "horizn": 3}, "did you mean 'horizon'?"),
        ({"name": "own_checked:lock", "horizon": "3"}, "problem.horizon: must be an integer"),
        ({"name": "own_checked:easy", "horizon": "3"}, "problem.horizon: must be an integer"),
        ({"name": "own_checked:lok"}, "it has no 'lok'; did you mean 'lock'?"),
    ):
        with pytest.raises(StudyError) as error:
            load(table)
        assert words in str(error.value)


def test_a_partial_function_keeps_its_parameters(own):
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


def test_import_paths_with_a_colon_and_with_a_dot_name_the_same_part(own):
    load = own("own_twice")
    one, two = (load({"name": f"own_twice{mark}lock", "horizon": 3}) for mark in ":.")
    assert one.panels != two.panels
    one, two = (made.settings[0].problem | {"name": "same"} for made in (one, two))
    assert one == two


def test_a_study_can_name_the_folder_of_its_modules(file, tmp_path):
    (tmp_path / "below").mkdir()
    file(OWN, "own_above.py")
    path = file('modules = ".."\n' + TEXT.replace('"Tabular"', '"own_above:Agent"'), "below/a.toml")
    made = Study.load(path)
    assert made.folder == str(tmp_path)
    assert made.settings[2].label == "Agent"


def test_a_part_of_an_installed_package_is_named_by_import_path(own):
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
def test_a_label_names_the_parameters_in_which_agents_differ():
    url = {"name": "URL", "learner": {"name": "OracleQ", "lr": [0.1, 0.3]}}
    assert labels([url, TABULAR]) == ["URL lr=0.1", "URL lr=0.3", "OracleQ-lat"]
    assert labels([{**url, "label": "mine"}]) == ["mine lr=0.1", "mine lr=0.3"]
    assert labels([{"name": "URL", "oracle": ["gmm", "pca_kmeans"]}]) == [
        *("URL oracle=gmm", "URL oracle=pca_kmeans")
    ]
    assert labels([{"name": "URL", "learner": ["none", "UCBVI"]}]) == [
        *("URL learner=none", "URL learner=UCBVI")
    ]
    learners = ["UCBVI", {"name": "UCBQ", "scale": [1.0, 0.1]}]
    assert labels([{"name": "URL", "learner": learners}]) == [
        *("URL learner=UCBVI", "URL learner=UCBQ scale=1", "URL learner=UCBQ scale=0.1")
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


def test_an_agent_whose_parameters_depend_on_the_panel_has_one_label():
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
def test_a_panel_s_title_names_the_parameters_in_which_problems_differ(problem, titles):
    assert study(problem=problem).panels == titles


# --- parts and changes ----------------------------------------------------------------------------
def test_only_keeps_the_runs_that_match():
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


def test_only_does_not_change_the_study():
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
    assert changed(path, "agent.label=all").settings[0].base_label == "all"
    assert changed(path, "solved={window=7}").settings[0].solved["window"] == 7
    assert changed(path, "episodes=7", "episodes=8").settings[0].episodes == 8


def test_a_change_finds_an_agent_by_its_label(file):
    path = file(TEXT.replace('"URL"', '"URL"\nlabel = "mine"') + '[[agent]]\nname = "URL"\n')
    made = changed(path, "agent.mine.batch=77")
    assert {s.agent["batch"] for s in made.settings if s.base_label == "mine"} == {77}
    assert {s.agent["batch"] for s in made.settings if s.base_label == "URL"} != {77}


def test_a_file_may_begin_with_a_byte_order_mark(file):
    assert keys(Study.load(file(b"\xef\xbb\xbf" + TEXT.encode()))) == keys(Study(DOCUMENT))


def test_a_file_name_need_not_be_valid_utf_8(file):
    assert Study.load(file(name="caf\udce9.toml")).name == "caf?"


def test_a_study_and_its_runs_have_readable_texts(file):
    made = bm.Study.load(file(name="my.first.toml"))
    assert repr(made) == "<study my.first: 6 settings x 2 seeds>"
    assert str(next(made.runs())) == "H = 5 | URL lr=0.03 | seed 0"


# --- a problem's own episodes and measure ---------------------------------------------------------
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


def test_only_a_measure_other_than_returns_is_part_of_a_setting():
    measure = {"measure": "value", "share": 0.8}
    plain, valued = Study(two_problems(name="lock_gaussian", solved=measure), "s").settings
    assert "measure" not in plain.content  # runs from before there was a choice keep their keys
    assert '"measure":"value"' in valued.content
    assert (plain.measure, valued.measure) == ("returns", "value")


def test_each_number_of_episodes_of_a_problem_has_its_own_panel():
    study = Study(two_problems(name="lock_bernoulli", horizon=5, episodes=[60, 70]), "s")
    assert [s.panel for s in study.settings] == [
        "H = 3",
        "H = 5, 60 episodes",
        "H = 5, 70 episodes",
    ]
