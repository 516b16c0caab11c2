"""URL on environments that nobody here wrote: FrozenLake, seen through noise."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from sklearn.cluster import KMeans

from blockmdp import PCID, UCBVI, URL, OnlineURL, OracleQ, QLearning, Tabular, load
from blockmdp.decoders import TableDecoder
from blockmdp.jit import inlined
from blockmdp.oracles import gmm, pca_dbscan_svm, pca_kmeans
from blockmdp.simulators import GymSimulator
from blockmdp.url import TSR


class Noisy(gym.ObservationWrapper):
    """A discrete observation as its one-hot code plus Gaussian noise."""

    def __init__(self, env, sigma=0.1):
        super().__init__(env)
        self.n, self.sigma = int(env.observation_space.n), sigma
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self.n,), np.float32)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.g = np.random.default_rng(seed)
        return super().reset(seed=seed, options=options)

    def observation(self, s):
        x = self.g.normal(scale=self.sigma, size=self.n).astype(np.float32)
        x[s] += 1
        return x


class Picture(gym.ObservationWrapper):
    """A vector as a picture of two rows."""

    def __init__(self, env):
        super().__init__(env)
        (n,) = env.observation_space.shape
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2, n // 2), np.float32)

    def observation(self, x):
        return x.reshape(2, -1)


def lake(steps=10, **options):
    """FrozenLake, 4 x 4, not slippery: 1 for the goal, 0 for a hole. Both end the episode."""
    return gym.make("FrozenLake-v1", **({"is_slippery": False} | options), max_episode_steps=steps)


def pond(steps=8):
    """The same, 3 x 3 with one hole, and slippery."""
    return lake(steps, desc=["SFF", "FHF", "FFG"], is_slippery=True)


def kmeans(k=16, n_init=5):
    return KMeans(k, n_init=n_init)


def quick(oracle=None, learner=None, **fields):
    fields = {"batch": 100, "iterations": 1, "test_batch": 5} | fields
    return URL(oracle or kmeans(), learner or OracleQ(lr=0.5, bonus=0.0), **fields)


@pytest.fixture
def data_by_level(monkeypatch):
    """How many observations of each level each training of a decoder had."""
    counts, fit = [], TSR._fit

    def counted(self, D, k):
        counts.append(np.bincount(D.levels, minlength=self.simulator.horizon + 1))
        return fit(self, D, k)

    monkeypatch.setattr(TSR, "_fit", counted)
    return counts


# --- as good as on true states --------------------------------------------------------------------
ORACLES = {
    "KMeans": kmeans(16, n_init=10),
    "more labels than states": kmeans(20, n_init=5),
    "GaussianMixture": gmm(16, "spherical", n_init=3),
}


@pytest.mark.parametrize("oracle", ORACLES.values(), ids=ORACLES.keys())
def test_url_learns_on_noise_what_a_table_learns_on_true_states(oracle, tmp_path):
    agent = URL(oracle, OracleQ(lr=0.5, bonus=0.0), batch=500, iterations=1)
    agent.fit(Noisy(lake()), 1500, seed=1)
    assert agent.returns_[-200:].mean() > 0.95  # test_tabular.py has the table
    assert agent.ledger_ == {"oracle": 500, "test": 50, "learn": 1500, "evaluate": 0}
    agent.save(tmp_path / "policy.npz")
    for policy in (agent, load(tmp_path / "policy.npz")):
        assert walks(policy, episodes=20) >= 19


def walks(policy, episodes):
    """Return how many walks of a policy reach the goal."""
    env, earned = Noisy(lake()), 0.0
    for episode in range(episodes):
        x, _ = env.reset(seed=episode)
        level, done = 0, False
        while not done:
            x, r, terminated, truncated, _ = env.step(policy.act(x, level))
            earned += r
            level, done = level + 1, terminated or truncated
    return earned


def test_url_reaches_on_slippery_ice_what_a_table_reaches():
    learner, episodes = OracleQ(lr=0.1, bonus=0.02), 1500
    table = Tabular(learner, on="observation").fit(pond(), episodes, seed=2)
    at_random = quick(kmeans(9), evaluation=500).fit(Noisy(pond()), 0, seed=2).evaluations_[0]
    known = table.returns_[-750:].mean()
    assert known > 2 * at_random
    agent = URL(kmeans(9), learner, batch=200, iterations=1, pool_levels=False)
    agent.fit(Noisy(pond()), episodes, seed=2)
    assert agent.returns_[-750:].mean() > known - 0.06


# --- episodes that end early ----------------------------------------------------------------------
def test_only_what_was_seen_is_learnt_from(data_by_level):
    """Episodes fall into holes, so fewer and fewer reach a level; none is made up."""
    quick(batch=200).fit(Noisy(lake()), 5, seed=0)
    (counts,) = data_by_level
    assert counts[0] == counts[1] == 200
    assert (np.diff(counts) <= 0).all()
    assert 0 < counts[-1] < 100


def test_levels_without_data_have_one_label_and_a_note(data_by_level):
    agent = quick(kmeans(4), batch=20, pool_levels=False).fit(Noisy(lake(40)), 40, seed=0)
    empty = np.flatnonzero(data_by_level[0] == 0)
    assert len(empty) > 3
    assert len(agent.decoder_.fitted) == 41
    for h in empty:
        assert agent.decoder_.fitted[h].n_labels == 1
        assert f"level {h}: no observations to learn from" in agent.decoder_.notes
    x, _ = Noisy(lake()).reset(seed=0)
    assert agent.decode(x, int(empty[0])) == 0
    assert agent.act(x, int(empty[0])) in range(4)


@pytest.mark.parametrize(
    "oracle",
    [gmm(3, n_init=1), pca_kmeans(3), pca_dbscan_svm()],
    ids=["GaussianMixture", "KMeans", "DBSCAN"],
)
def test_levels_with_one_observation_are_no_crash(data_by_level, oracle):
    agent = quick(oracle, batch=20, pool_levels=False).fit(Noisy(lake(40)), 20, seed=0)
    assert (data_by_level[0] == 1).any()
    assert len(agent.returns_) == 20


def test_nothing_is_expected_after_an_episode_that_ended_early():
    """The learner is told of the end: past a hole no label promises anything."""
    agent = quick(learner=QLearning(lr=1.0, exploration=1.0)).fit(Noisy(lake()), 300, seed=0)
    assert agent.tables_.q.max() <= 1
    assert set(np.unique(agent.returns_)) <= {0.0, 1.0}


# --- any environment ------------------------------------------------------------------------------
def test_pictures_are_observations_too(tmp_path):
    env = Picture(Noisy(lake()))
    agent = quick().fit(env, 50, seed=3)
    flat = quick().fit(Noisy(lake()), 50, seed=3)
    assert np.array_equal(agent.returns_, flat.returns_)
    x, _ = env.reset(seed=0)
    assert isinstance(agent.act(x, 0), int)
    assert agent.act(np.stack([x, x, x]), 0).tolist() == [agent.act(x, 0)] * 3
    agent.save(tmp_path / "policy.npz")
    assert load(tmp_path / "policy.npz").act(x, 0) == agent.act(x, 0)


def test_the_same_seed_gives_the_same_run():
    one, two, other = (quick().fit(Noisy(lake()), 60, seed=s) for s in (4, 4, 5))
    assert np.array_equal(one.returns_, two.returns_)
    assert np.array_equal(one.policy_.pi, two.policy_.pi)
    assert not np.array_equal(one.policy_.pi, other.policy_.pi)


def test_retraining_while_learning_works_on_what_was_met(data_by_level):
    agent = quick(retrain_every=20).fit(Noisy(lake()), 61, seed=0)
    assert len(agent.history_) == 4
    assert [c[0] for c in data_by_level] == [100, 110, 130, 150]
    assert agent.ledger_ == {"oracle": 100, "test": 5, "learn": 61, "evaluate": 0}


def test_algorithm_1_as_written_runs_on_a_black_box():
    agent = URL.theory(kmeans(4), epsilon=0.9, delta=0.5, horizon=2, n_states=4, batch=3)
    env = Noisy(lake(2, desc=["SF", "FG"]))
    agent.fit(env, 2, seed=0)
    c = URL.constants(0.9, 0.5, 2, 4, batch=3)
    assert agent.ledger_ == c.all_trajectories(2)


def test_episodes_that_last_longer_than_the_horizon_are_refused():
    with pytest.raises(ValueError, match="horizon"):
        quick(batch=20).fit(Noisy(lake(20)), 10, horizon=3)


class Late(gym.Env):
    """Episodes of 4 steps, but for the fourth."""

    observation_space = gym.spaces.Discrete(1)
    action_space = gym.spaces.Discrete(2)
    begun = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begun, self.t = self.begun + 1, 0
        return 0, {}

    def step(self, action):
        self.t += 1
        return 0, 0.0, False, self.t >= (6 if self.begun == 4 else 4), {}


@pytest.mark.parametrize("late", [0, 2])
def test_an_episode_of_one_copy_that_lasts_longer_than_the_horizon_is_refused(late):
    def copy(is_late):
        return Late() if is_late else gym.wrappers.TimeLimit(Late(), 3)

    envs = gym.vector.SyncVectorEnv([lambda i=i: copy(i == late) for i in range(3)])
    agent = Tabular(QLearning(exploration=1.0), on="observation")
    with pytest.raises(ValueError, match="did not end after 4 steps: set a larger horizon in fit"):
        agent.fit(envs, 60, horizon=4)


def test_an_environment_without_a_bound_needs_a_horizon_or_a_time_limit():
    bare = Noisy(lake().unwrapped)
    with pytest.raises(ValueError, match="TimeLimit"):
        quick().fit(bare, 10)
    limited = gym.wrappers.TimeLimit(Noisy(lake().unwrapped), 6)
    assert quick().fit(limited, 10).policy_.horizon == 6


def test_what_a_black_box_hides_stays_hidden():
    agent = quick(batch=20).fit(Noisy(lake()), 10)
    assert agent.mdp_ is None
    for ask in (agent.value, agent.accuracy, agent.confusion):
        with pytest.raises(ValueError, match="black box"):
            ask()


@pytest.mark.parametrize("engine", ["compiled", "interpreted"])
def test_a_black_box_cannot_be_compiled(engine):
    with pytest.raises(ValueError, match="BlockMDP"):
        quick().fit(Noisy(lake()), 10, engine=engine)


def test_an_environments_id_will_do():
    agent = quick(kmeans(4), batch=5).fit("FrozenLake-v1", 5)  # whole numbers, taken as they are
    assert agent.policy_.horizon == 100
    assert agent.act(0, 0) in range(4)


def test_actions_are_counted_from_where_the_environment_does():
    class Shifted(gym.ActionWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.action_space = gym.spaces.Discrete(4, start=10)

        def action(self, action):
            return action - 10

    one = quick().fit(Noisy(lake()), 50, seed=1)
    with pytest.warns(UserWarning, match="counts its actions from 10, but `act` from 0"):
        other = quick().fit(Shifted(Noisy(lake())), 50, seed=1)
    assert np.array_equal(one.returns_, other.returns_)


# --- environments that are not as they say --------------------------------------------------------
class Ring(gym.Env):
    """Three places in a circle. The last of them pays, and an episode has five steps."""

    observation_space, action_space = gym.spaces.MultiBinary(12), gym.spaces.Discrete(2)

    def __init__(self, first=np.int8, then=np.int64, **more):
        self.first, self.then, self.more = first, then, more

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.steps = 0
        return np.zeros(12, self.first), {}

    def step(self, action):
        self.place, self.steps = (self.place + int(action)) % 3, self.steps + 1
        x = np.array([0] * self.place + [1] * (12 - self.place), self.then)
        reward = self.more.get("reward", float(self.place == 2))
        info = {"latent_state": self.more["state"]} if "state" in self.more else {}
        return self.more.get("x", x), reward, False, self.steps >= 5, info


@pytest.mark.parametrize("by_level", [True, False])
def test_a_table_of_observations_does_not_mind_another_dtype(by_level):
    def fitted(*types):
        agent = Tabular(UCBVI(v_max=5), on="observation", by_level=by_level)
        return agent.fit(Ring(*types), 300, horizon=5)

    one, other = fitted(), fitted(np.int64, np.int64)
    assert np.array_equal(one.returns_, other.returns_)
    env, total = Ring(), 0.0
    x, _ = env.reset()
    for h in range(5):
        x, r, *_ = env.step(one.act(x, h))
        total += r
    assert total == one.returns_[-50:].mean() == 4.0


def test_observations_that_do_not_fit_into_a_table_are_refused():
    agent = Tabular(on="observation", by_level=False)
    with pytest.raises(ValueError, match="dtype float64 and do not fit into int8, the dtype of"):
        agent.fit(Ring(x=np.full(12, 0.5)), 5, horizon=5)
    table = TableDecoder(horizon=1)
    table.decode(np.array([0]), np.zeros((1, 3)))
    with pytest.raises(ValueError, match="an observation has 40 numbers, but others had 3"):
        table.decode(np.array([1]), np.zeros((1, 40)))


AGENTS = [URL(kmeans(3), OracleQ(), batch=5), OnlineURL(), PCID(n=5), Tabular(on="observation")]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: type(agent).__name__)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"x": np.ones(40)}, r"observation of shape \(40,\), but its .* space has shape \(12,\)"),
        ({"x": [[1.0], [1.0, 2.0]]}, r"observations must be arrays, but .* returned \[\[1.0\]"),
        ({"x": np.full(12, np.nan)}, "observations must be finite numbers"),
        ({"reward": None}, "rewards must be numbers, but .* returned None"),
        ({"reward": np.ones(2)}, "rewards must be numbers, but .* returned array"),
        ({"reward": np.nan}, "rewards must be finite, but .* returned nan"),
    ],
)
def test_an_environment_that_returns_nonsense_is_named(agent, more, message):
    with pytest.raises(ValueError, match=message):
        agent.fit(Ring(**more), 5, horizon=5)


def test_an_observation_that_is_not_a_number_is_refused_from_copies_too():
    class Broken(Ring):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (12,), np.float64)

    envs = gym.vector.SyncVectorEnv([lambda: Broken(x=np.full(12, np.nan))] * 2)
    for agent in AGENTS[:3]:
        with pytest.raises(ValueError, match="observations must be finite numbers"):
            agent.fit(envs, 5, horizon=5)


class States(gym.Wrapper):
    """The same latent state after every step; None if there is none."""

    def __init__(self, env, state):
        super().__init__(env)
        self.state = state

    def reset(self, **options):
        x, _ = self.env.reset(**options)
        return x, {} if self.state is None else {"latent_state": self.state}

    def step(self, action):
        *rest, _ = self.env.step(action)
        return *rest, {} if self.state is None else {"latent_state": self.state}


@pytest.mark.parametrize("state", [-1, -(10**8), 1.7, "a"])
def test_latent_states_are_whole_numbers_from_0_on(state):
    for env in (States(lake(), state), gym.vector.SyncVectorEnv([lambda: States(lake(), state)])):
        with pytest.raises(ValueError, match=r"states must be integers >= 0, but .* reports"):
            Tabular().fit(env, 5, horizon=10)


def test_every_copy_must_report_its_latent_state():
    envs = gym.vector.SyncVectorEnv([lambda: States(lake(), 1), lambda: States(lake(), None)])
    with pytest.raises(ValueError, match="does not report its latent state"):
        Tabular().fit(envs, 5, horizon=10)


class Wild(OracleQ):
    act = staticmethod(inlined(lambda tables, k, h, s, key: 900000))


class Mild(OracleQ):
    act = staticmethod(lambda tables, k, h, s, key: -1)


@pytest.mark.parametrize("learner", [Wild(), Mild()])
def test_an_action_that_does_not_exist_is_not_taken(learner):
    for env in (Ring(), gym.vector.SyncVectorEnv([Ring] * 3)):
        with pytest.raises(ValueError, match="returned an action that does not exist"):
            Tabular(learner, on="observation").fit(env, 5, horizon=5)


# --- many copies at once --------------------------------------------------------------------------
def copies(n):
    return gym.vector.SyncVectorEnv([lambda: Noisy(lake()) for _ in range(n)])


def test_copies_of_an_environment_side_by_side_are_learnt_as_well():
    agent = quick(batch=500).fit(copies(8), 1500, seed=1, horizon=10)
    assert agent.returns_[-200:].mean() > 0.95
    assert {k: agent.ledger_[k] for k in ("oracle", "test", "learn")} == {
        "oracle": 500,
        "test": 5,
        "learn": 1500,
    }


def test_a_slow_decoder_labels_the_observations_of_all_copies_at_once(monkeypatch):
    calls = []
    predict = KMeans.predict

    class Slow(KMeans):
        """Not folded."""

        def predict(self, X):
            calls.append(len(X))
            return predict(self, X)

    quick(Slow(16, n_init=1), batch=50).fit(copies(8), 50, seed=1, horizon=10)
    assert np.median(calls) == 8


def test_no_test_data_are_needed_with_copies():
    agent = quick(batch=20, test_batch=0).fit(copies(3), 10, horizon=10)
    assert agent.ledger_["test"] == 0


def test_stepping_is_what_black_boxes_are_for():
    from blockmdp.simulators import make_simulator

    assert isinstance(make_simulator(Noisy(lake())), GymSimulator)
