"""Fits that go on give the same bits as one longer fit, also from a file."""

import copy
import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

import blockmdp as bm
from blockmdp import checkpoints, rng, saving
from blockmdp.agents import continuing
from blockmdp.checkpoints import read_checkpoint, write_checkpoint
from blockmdp.experiments import Study
from blockmdp.experiments.runs import execute

LOCK = bm.lock_bernoulli(horizon=4)
NOISY = bm.noisy_lock(3, "outliers")
AGENTS = {
    "latent": (lambda: bm.Tabular(bm.UCBVI()), LOCK),
    "model-free": (lambda: bm.Tabular(bm.OracleQ()), LOCK),
    "likelihood": (lambda: bm.Tabular(bm.PSRL(), on="likelihood"), NOISY),
    "online": (lambda: bm.OnlineURL(), bm.comblock(horizon=4)),
    "online, bits": (lambda: bm.OnlineURL(), bm.exogenous_lock(horizon=3)),
    "online, forgets": (lambda: bm.OnlineURL(memory=200), NOISY),
    "online, categories": (lambda: bm.OnlineURL(), bm.noisy_lock(3, "numbered categories")),
    "online, refitted": (lambda: bm.OnlineURL(KMeans(3)), LOCK),
    "url": (lambda: bm.URL(), LOCK),
    "url, own levels": (lambda: bm.URL(), bm.comblock(horizon=3)),
    "url, once": (lambda: bm.URL(KMeans(3), bm.OracleQ()), LOCK),
    "url, retrained": (
        lambda: bm.URL(GaussianMixture(3), bm.UCBVI(), retrain_every=30, memory=400),
        LOCK,
    ),
    "pcid": (lambda: bm.PCID(n=60), LOCK),
}


def facts(agent):
    """Everything that a fit has learnt, in a form that can be compared."""
    tables = getattr(agent, "tables_", ())
    return {
        "returns": agent.returns_.tolist(),
        "trajectories": agent.trajectories_.tolist(),
        "ledger": agent.ledger_,
        "pi": agent.policy_.pi.tolist(),
        "tables": [np.asarray(each).tolist() for each in tables],
        "history": repr([{**vars(e), "policy": None, "cover": None} for e in agent.history_]),
        "snapshots": [(s.k, s.trajectories, s.policy.pi.tolist()) for s in agent.snapshots_],
        "value": None if agent.mdp_ is None else agent.value(samples=50),
    }


def assert_same(one, other):
    first, second = facts(one), facts(other)
    for name in first:
        assert first[name] == second[name], name


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", AGENTS)
def test_a_fit_that_goes_on_gives_the_same_bits_as_a_longer_one(name, tmp_path):
    make, problem = AGENTS[name]
    whole = make().fit(problem, 150, seed=3, record=True)
    assert_same(whole, make().fit(problem, 64, seed=3, record=True).fit_more(5).fit_more(81))
    file = tmp_path / "fit.npz"
    make().fit(problem, 47, seed=3, record=True, checkpoint=file)
    assert_same(whole, make().fit(problem, 150, seed=3, record=True, checkpoint=file))


@pytest.mark.slow
@pytest.mark.parametrize("name", AGENTS)
def test_a_fit_cut_at_random_points_gives_the_same_bits(name, tmp_path):
    make, problem = AGENTS[name]
    whole = make().fit(problem, 300, seed=8, record="few")
    for i, cut in enumerate(np.random.default_rng(5).integers(1, 300, 50)):
        file = tmp_path / f"{i}.npz"
        make().fit(problem, int(cut), seed=8, record="few", checkpoint=file)
        assert_same(whole, make().fit(problem, 300, seed=8, record="few", checkpoint=file))


def test_observations_in_a_table_may_get_other_numbers_but_the_same_actions():
    def agent():
        return bm.Tabular(bm.OracleQ(), on="observation")

    whole = agent().fit(LOCK, 200)
    more = agent().fit(LOCK, 90).fit_more(110)
    assert whole.returns_.tolist() == more.returns_.tolist()
    states = np.arange(3).repeat(200)
    x = LOCK.emission.sample(1, states, rng.children(np.uint64(9), 0, len(states)))
    rows = [a.policy_.decode(x, 1) for a in (whole, more)]
    both = (rows[0] < whole.policy_.pi.shape[1]) & (rows[1] < more.policy_.pi.shape[1])
    assert both.sum() > 100
    one, other = (a.policy_.pi[1, row[both]] for a, row in zip((whole, more), rows))
    assert one.tolist() == other.tolist()
    assert len(np.unique(one, axis=0)) > 1


def test_levels_that_share_a_table_still_share_it_in_policies_and_checkpoints(tmp_path):
    def agent():
        return bm.Tabular(bm.OracleQ(), on="observation", by_level=False)

    file = tmp_path / "fit.npz"
    whole = agent().fit(LOCK, 300, record="few")
    agent().fit(LOCK, 150, record="few", checkpoint=file)
    more = agent().fit(LOCK, 300, record="few", checkpoint=file)
    assert whole.returns_.tolist() == more.returns_.tolist()
    for each in (whole, more):
        assert len(each.snapshots_) > 10
        assert {s.policy.pi.strides[0] for s in each.snapshots_} == {0}
        assert each.values(samples=50).tolist() == whole.values(samples=50).tolist()
    pi = np.ascontiguousarray(whole.policy_.pi)
    x = LOCK.emission.sample(2, np.arange(3), rng.children(np.uint64(1), 0, 3))
    dense = bm.Policy(pi, whole.policy_.decoder, whole.policy_.observation_shape)
    assert whole.act(x, 2).tolist() == dense.act(x, 2).tolist()


def test_pieces_and_files_of_an_interrupted_fit_do_not_change_the_result(tmp_path, monkeypatch):
    """With a checkpoint after each piece, and an end in the middle of the loop."""
    monkeypatch.setattr(continuing, "EVERY", -1.0)
    monkeypatch.setattr(continuing, "SHARE", float("inf"))
    write, written = continuing.write_checkpoint, []

    class Killed(BaseException):
        pass

    def write_some(*arguments):
        written.append(arguments)
        write(*arguments)
        if len(written) % 3 == 0:
            raise Killed

    monkeypatch.setattr(continuing, "write_checkpoint", write_some)
    file = tmp_path / "fit.npz"
    for _ in range(30):
        try:
            agent = bm.URL().fit(LOCK, 150, seed=1, checkpoint=file)
            break
        except Killed:
            assert read_checkpoint(file)[0]["episodes"] < 150
    assert len(written) > 20
    assert_same(bm.URL().fit(LOCK, 150, seed=1), agent)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda agent: pickle.loads(pickle.dumps(agent))]
)
@pytest.mark.parametrize("name", ["online", "online, bits", "url", "pcid"])
def test_a_copy_of_an_agent_goes_on_by_itself(copied, name):
    make, problem = AGENTS[name]
    agent, same = make().fit(problem, 40), make().fit(problem, 40)
    other = copied(agent).fit_more(30)
    assert_same(same, agent)
    assert_same(agent.fit_more(30), other)


def test_what_a_killed_process_left_of_a_checkpoint_is_removed(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    living = os.getppid()
    left = tmp_path / f"fit.npz.{ended.pid}.part"
    others = [tmp_path / f"fit.npz.{living}.part", tmp_path / "fit.npz.x.part"]
    others.append(tmp_path / f"another.npz.{ended.pid}.part")
    for path in (left, *others):
        path.touch()
    bm.Tabular().fit(LOCK, 20, checkpoint=tmp_path / "fit.npz")
    assert {*tmp_path.iterdir()} == {tmp_path / "fit.npz", *others}


def test_a_number_of_episodes_is_no_truth_value():
    agent = bm.Tabular().fit(LOCK, 5)
    for wrong in (True, np.True_, 1.5, "1"):
        with pytest.raises(ValueError, match="episodes must be an integer >= 0, got"):
            agent.fit_more(wrong)
    assert len(agent.fit_more(2.0).returns_) == 7


def test_a_checkpoint_of_a_longer_fit_is_left_alone(tmp_path):
    file = tmp_path / "fit.npz"
    bm.OnlineURL().fit(LOCK, 80, checkpoint=file)
    content = file.read_bytes()
    short = bm.OnlineURL().fit(LOCK, 30, checkpoint=file)
    assert_same(bm.OnlineURL().fit(LOCK, 30), short)
    assert file.read_bytes() == content


def test_a_learner_that_depends_on_the_length_begins_again_or_says_so(tmp_path):
    agent = bm.Tabular(bm.QLearning(exploration=0.5)).fit(LOCK, 50)
    with pytest.raises(ValueError, match="QLearning depends on the number of episodes, so a fit"):
        agent.fit_more(50)
    file = tmp_path / "fit.npz"
    bm.Tabular(bm.QLearning(exploration=0.5)).fit(LOCK, 50, checkpoint=file)
    more = bm.Tabular(bm.QLearning(exploration=0.5)).fit(LOCK, 100, checkpoint=file)
    assert_same(bm.Tabular(bm.QLearning(exploration=0.5)).fit(LOCK, 100), more)


@pytest.mark.parametrize(
    ("options", "what"),
    [({"evaluation": 5}, "evaluation=5"), ({"resample": True, "iterations": 1}, "resample=True")],
)
def test_an_agent_that_ends_with_trajectories_of_its_own_cannot_go_on(options, what, tmp_path):
    agent = bm.URL(KMeans(3), **options).fit(LOCK, 3)
    with pytest.raises(ValueError, match=f"this fit cannot be continued: {what} draws"):
        agent.fit_more(3)
    with pytest.raises(ValueError, match=f"cannot be used: {what} draws"):
        agent.fit(LOCK, 3, checkpoint=tmp_path / "fit.npz")


def test_an_agent_with_a_fit_of_its_own_cannot_go_on():
    class Own(bm.Agent):
        def _fit(self, simulator, episodes, record):
            self.policy_ = bm.Policy(LOCK.optimal_policy())
            self.returns_, self.history_ = np.zeros(episodes), []
            self.trajectories_ = np.arange(episodes)

    with pytest.raises(ValueError, match="cannot be continued: Own defines _fit, but not"):
        Own().fit(LOCK, 3).fit_more(3)


class Doubled(bm.Tabular):
    """Changes what it has learnt, in a fit of its own."""

    def _fit(self, simulator, episodes, record):
        super()._fit(simulator, episodes, record)
        self.returns_ = 2 * self.returns_


def test_a_subclass_with_a_fit_of_its_own_cannot_go_on_either(tmp_path):
    agent = Doubled(bm.UCBVI()).fit(LOCK, 3)
    for go_on in (
        lambda: agent.fit_more(3),
        lambda: agent.fit(LOCK, 3, checkpoint=tmp_path / "fit.npz"),
    ):
        with pytest.raises(ValueError, match="Doubled defines _fit, but not _begin"):
            go_on()


def test_an_interrupted_fit_cannot_go_on(monkeypatch):
    agent = bm.Tabular(Curious()).fit(LOCK, 10)
    act, count = Curious.act, [0]

    def stop(self, *arguments):
        count[0] += 1
        if count[0] == 7:
            raise KeyboardInterrupt
        return act(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Curious, "act", stop)
        with pytest.raises(KeyboardInterrupt):
            agent.fit_more(10)
    with pytest.raises(ValueError, match="cannot be continued: it was interrupted"):
        agent.fit_more(10)
    assert len(agent.fit(LOCK, 10).fit_more(10).returns_) == 20


def test_a_fit_survives_a_checkpoint_that_cannot_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(continuing, "write_checkpoint", full)
    with pytest.warns(UserWarning, match="goes on without a checkpoint: .*No space left"):
        agent = bm.URL().fit(LOCK, 30, checkpoint=tmp_path / "fit.npz")
    assert_same(bm.URL().fit(LOCK, 30), agent)


def test_an_environment_that_others_used_in_between_is_brought_back():
    env = gym.make("FrozenLake-v1")
    whole = bm.Tabular(bm.UCBVI(), on="observation").fit(env, 60, seed=1)
    agent = bm.Tabular(bm.UCBVI(), on="observation").fit(env, 25, seed=1)
    env.reset(seed=99)
    assert_same(whole, agent.fit_more(35))


def test_an_agent_of_an_environment_can_be_pickled_but_not_continued():
    env = gym.make("FrozenLake-v1")
    env.lock = threading.Lock()  # cannot be pickled
    agent = bm.Tabular(bm.UCBVI(), on="observation").fit(env, 10)
    other = pickle.loads(pickle.dumps(agent))
    assert other.returns_.tolist() == agent.returns_.tolist()
    with pytest.raises(ValueError, match="or the agent is a copy"):
        other.fit_more(5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (bm.Linear(bm.OneHotGaussian(2, 0, 0.1), np.eye(2)),
         bm.Linear(bm.OneHotGaussian(2, 0, 0.1), 2 * np.eye(2))),
        (KMeans(2, init=np.zeros((2, 3))), KMeans(2, init=np.ones((2, 3)))),
        ({"a": [1, 2.0, None]}, {"a": [1, 2.0, 0]}),
    ],
)  # fmt: skip
def test_a_digest_depends_on_the_content(one, other):
    assert continuing._digest(one) != continuing._digest(other)
    assert continuing._digest(one) == continuing._digest(copy.deepcopy(one))


class Cached:
    """Computes something when it is first used, and holds itself."""

    def __init__(self):
        self.me, self.parts = self, [{"n": i} for i in range(50)]

    @functools.cached_property
    def total(self):
        return 50


def test_a_digest_is_the_same_after_use_and_in_every_process():
    """Objects that are made on the way must not be taken for others that had their place."""
    used = Cached()
    assert used.total == 50
    values = [[Cached(), KMeans(3), bm.PSRL(), LOCK.emission] for _ in range(20)]
    assert len({continuing._digest(each) for each in values}) == 1
    assert continuing._digest(used) == continuing._digest(Cached())
    emission = bm.comblock(horizon=3).emission
    before = continuing._digest(emission)
    bm.OnlineURL().fit(bm.comblock(horizon=3), 5)
    emission.sample(0, np.zeros(2, np.int64), rng.children(np.uint64(1), 0, 2))
    assert continuing._digest(emission) == before


def test_an_agent_that_is_not_fitted_cannot_go_on():
    with pytest.raises(ValueError, match="not fitted yet: call fit before fit_more"):
        bm.URL().fit_more(3)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seed": 1}, "seed is 0, not 1"),
        ({"record": True}, "record is False, not True"),
        ({"problem": bm.lock_bernoulli(horizon=4, seed=1)}, "the details of the problem are not"),
        ({"problem": bm.lock_bernoulli(horizon=3)}, "problem is"),
        ({"agent": bm.OnlineURL(memory=7)}, "agent is OnlineURL"),
    ],
)
def test_the_checkpoint_of_another_fit_is_refused(change, what, tmp_path):
    file = tmp_path / "fit.npz"
    bm.OnlineURL().fit(LOCK, 5, checkpoint=file)
    options = {"agent": bm.OnlineURL(), "problem": LOCK} | change
    agent, problem = options.pop("agent"), options.pop("problem")
    with pytest.raises(ValueError, match=f"checkpoint of another fit: {what}"):
        agent.fit(problem, 10, checkpoint=file, **options)


def test_a_folder_that_does_not_exist_is_noticed_before_the_fit(tmp_path):
    with pytest.raises(ValueError, match="cannot be used: there is no folder"):
        bm.URL().fit(LOCK, 10**9, checkpoint=tmp_path / "no" / "fit.npz")


def test_a_black_box_goes_on_exactly_if_its_random_state_is_that_of_gymnasium(tmp_path):
    def env():
        return gym.make("FrozenLake-v1")

    def agent():
        return bm.Tabular(bm.UCBVI(), on="observation")

    whole = agent().fit(env(), 60)
    assert_same(whole, agent().fit(env(), 25).fit_more(35))
    file = tmp_path / "fit.npz"
    agent().fit(env(), 25, checkpoint=file)
    assert_same(whole, agent().fit(env(), 60, checkpoint=file))


def test_stepping_through_a_block_mdp_goes_on_in_memory_but_not_from_a_file(tmp_path):
    whole = bm.URL().fit(LOCK, 60, engine="stepwise")
    assert_same(whole, bm.URL().fit(LOCK, 20, engine="stepwise").fit_more(40))
    with pytest.raises(ValueError, match="use engine='auto'"):
        bm.URL().fit(LOCK, 60, engine="stepwise", checkpoint=tmp_path / "fit.npz")


def test_a_vector_of_environments_cannot_be_restored(tmp_path):
    envs = gym.make_vec("CartPole-v1", num_envs=2)
    with pytest.raises(ValueError, match="cannot be restored from a checkpoint"):
        bm.URL().fit(envs, 10, checkpoint=tmp_path / "fit.npz")


class Counts(NamedTuple):
    n: np.ndarray


class Curious(bm.Learner):
    """A user's learner with tables of its own class."""

    def tables(self, H, S, A, episodes):
        return Counts(np.zeros((H, S, A)))

    def act(self, tables, k, h, s, key):
        return int(np.argmin(tables.n[h, s]))

    def update(self, tables, h, s, a, r, s_next):
        tables.n[h, s, a] += 1

    def policy(self, tables):
        return np.full(tables.n.shape, 1 / tables.n.shape[2])


def test_tables_of_a_users_learner_are_kept(tmp_path):
    whole = bm.Tabular(Curious()).fit(LOCK, 40)
    file = tmp_path / "fit.npz"
    bm.Tabular(Curious()).fit(LOCK, 15, checkpoint=file)
    assert_same(whole, bm.Tabular(Curious()).fit(LOCK, 40, checkpoint=file))


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "blockmdp.saving:np", "x:y"])
def test_a_checkpoint_makes_no_objects_of_other_classes(name, tmp_path):
    file = tmp_path / "fit.npz"
    write_checkpoint(file, {}, bm.PSRL(), {})
    with np.load(file) as archive:
        arrays = dict(archive)
    del arrays["about"]
    content = json.loads(arrays["tree"].tobytes())
    content["state"]["object"] = name
    arrays["tree"] = np.frombuffer(json.dumps(content).encode(), np.uint8)
    saving.write_archive(file, {}, arrays, checkpoints._FORMAT, checkpoints._VERSION)
    with pytest.raises(ValueError, match="does not hold a valid checkpoint"):
        read_checkpoint(file)[1].state({})


@pytest.mark.parametrize("cut", [0, 10, 1000])
def test_a_damaged_checkpoint_is_refused_with_its_name(cut, tmp_path):
    file = tmp_path / "fit.npz"
    bm.OnlineURL().fit(LOCK, 20, checkpoint=file)
    file.write_bytes(file.read_bytes()[:-cut] if cut else b"junk")
    with pytest.raises(ValueError, match=r"fit\.npz is not a checkpoint of blockmdp"):
        bm.OnlineURL().fit(LOCK, 30, checkpoint=file)


def test_a_policy_is_no_checkpoint(tmp_path):
    file = tmp_path / "fit.npz"
    bm.URL().fit(LOCK, 20).save(file)
    with pytest.raises(ValueError, match="is an archive, but not a checkpoint"):
        bm.URL().fit(LOCK, 30, checkpoint=file)


def test_what_was_shared_before_is_shared_afterwards(tmp_path):
    a = np.arange(3.0)
    a.setflags(write=False)
    known = bm.PSRL()
    state = {"a": [a, a], (1, "b"): known, "learner": replace(known), "key": np.uint64(2**63)}
    write_checkpoint(tmp_path / "c.npz", {"k": 1}, state, {"known": known})
    about, reader = read_checkpoint(tmp_path / "c.npz")
    found = reader.state({"known": known})
    assert about == {"k": 1}
    assert found["a"][0] is found["a"][1]
    assert found["a"][0].tolist() == [0, 1, 2]
    assert not found["a"][0].flags.writeable
    assert found[1, "b"] is known
    assert found["learner"] == known
    assert found["learner"] is not known
    assert found["key"] == np.uint64(2**63)
    assert type(found["key"]) is np.uint64


def config(episodes, **solved):
    study = Study(
        {
            "episodes": episodes,
            "seeds": 1,
            "problem": {"name": "lock_bernoulli", "horizon": 3},
            "agent": [{"name": "OnlineURL"}],
            "solved": solved,
        }
    )
    return json.loads(study.settings[0].content)


def test_runs_with_more_episodes_go_on_from_their_checkpoint(tmp_path, monkeypatch):
    folder = str(tmp_path)
    first = execute(config(40), 1, folder)
    assert first.error is None
    fresh = execute(config(100), 1)
    monkeypatch.setattr(bm.OnlineURL, "_begin", None)  # nothing begins again
    more = execute(config(100), 1, folder)
    assert more.error is None
    assert (more.curve, more.values, more.ledger) == (fresh.curve, fresh.values, fresh.ledger)
    assert "not callable" in execute(config(100), 2, folder).error  # another seed begins
    assert len(list(Path(folder).iterdir())) == 1


def test_agents_that_cannot_go_on_do_their_runs_without_checkpoints(tmp_path):
    plain = config(30)
    plain["agent"] = {"name": "URL", "evaluation": 5}
    outcome = execute(plain, 0, str(tmp_path))
    assert outcome.error is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("oracle", [{"name": "sklearn.cluster:Birch", "n_clusters": 3}, None])
def test_a_checkpoint_that_is_of_no_use_harms_no_run(oracle, tmp_path):
    """Birch cannot be written, and the file of the other is damaged."""
    plain = config(30)
    plain["agent"] = {"name": "URL", "oracle": oracle}
    fresh = execute(plain, 0)
    for _ in range(2):
        outcome = execute(plain, 0, str(tmp_path))
        assert (outcome.error, outcome.curve) == (None, fresh.curve)
        for file in tmp_path.iterdir():
            file.write_bytes(b"junk")


@pytest.mark.integration
def test_a_study_with_checkpoints_has_the_same_results(tmp_path):
    document = {
        "episodes": 50,
        "seeds": 2,
        "problem": {"name": "lock_bernoulli", "horizon": 3},
        "agent": [{"name": "OnlineURL"}, {"name": "PCID", "n": 60}],
    }
    options = {"jobs": 2, "quiet": True}
    Study(document, "s").run(tmp_path / "one", checkpoint=True, **options)
    assert len(list((tmp_path / "one" / "checkpoints").glob("*.npz"))) == 4
    longer = Study(document | {"episodes": 120}, "s")
    more = longer.run(tmp_path / "one", checkpoint=True, **options)
    fresh = longer.run(tmp_path / "two", **options)
    one, two = (
        [(s.label, r.seed, r.average, r.trajectories, r.value) for s, r in results.done]
        for results in (more, fresh)
    )
    assert one == two
    assert len(one) == 4


KILLED = """
import os, signal, sys
import blockmdp as bm
from blockmdp.agents import continuing

continuing.EVERY, continuing.SHARE = 0.0, float("inf")
write = continuing.write_checkpoint

def write_and_die(path, about, *rest):
    write(path, about, *rest)
    if about["episodes"] > 40:
        os.kill(os.getpid(), signal.SIGKILL)

continuing.write_checkpoint = write_and_die
bm.OnlineURL().fit(bm.comblock(horizon=4), 200, seed=2, checkpoint=sys.argv[1])
"""


@pytest.mark.integration
def test_a_fit_that_was_killed_goes_on(tmp_path):
    file: Path = tmp_path / "fit.npz"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert 40 < read_checkpoint(file)[0]["episodes"] < 200
    problem = bm.comblock(horizon=4)
    more = bm.OnlineURL().fit(problem, 200, seed=2, checkpoint=file)
    assert_same(bm.OnlineURL().fit(problem, 200, seed=2), more)
