"""Decoders learnt online: the Dirichlet process mixture, and OnlineURL."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import accuracy_score

import blockmdp as bm
from blockmdp.jit import interpreted
from blockmdp.oracles import AutoOracle, DirichletMixture, IncrementalOracle
from blockmdp.oracles._bank import new_bank
from blockmdp.policy import Policy
from blockmdp.simulators import make_simulator
from blockmdp.trajectories import Observations, Trajectories
from blockmdp.url import online
from blockmdp.url._online import Bounds, is_plain
from blockmdp.url.levels import look_alike
from blockmdp.url.online import OnlineDecoder


# --- URL ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("H", "seeds"), [(5, 3), (10, 1), (25, 1)])
def test_untuned_it_opens_a_comblock_almost_as_soon_as_on_latent_states(H, seeds):
    for seed in range(seeds):
        m = bm.comblock(H, seed=seed)
        agent = bm.OnlineURL(pool_levels=False).fit(m, 20 * H + 100, seed=seed)
        latent = bm.Tabular(bm.UCBVI(bonus=0.0)).fit(m, 20 * H + 100, seed=seed)
        opened, skyline = (np.flatnonzero(a.returns_ > 0.99)[20] for a in (agent, latent))
        assert opened <= skyline + 40
        assert agent.value() == pytest.approx(1.0)
        assert agent.accuracy().min() == 1.0
        assert agent.ledger_ == {"learn": 20 * H + 100}


def test_the_diabolical_lock_too_given_the_scale_of_its_rewards():
    agent = bm.OnlineURL(learner=bm.UCBVI(bonus=0.0, v_max=5.0), pool_levels=False)
    assert agent.fit(bm.diabolical_lock(10), 400).value() == pytest.approx(4.0)


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("learner", [bm.UCBVI(bonus=0.0), bm.OracleQ()])
def test_engines_agree_bit_for_bit(pooled, learner):
    def run(engine):
        agent = bm.OnlineURL(learner=learner, pool_levels=pooled)
        return agent.fit(bm.comblock(6, n_actions=4, seed=1), 60, seed=2, engine=engine)

    one = run("compiled")
    for engine in ("interpreted", "stepwise"):
        other = run(engine)
        assert np.array_equal(one.returns_, other.returns_)
        assert np.array_equal(one.policy_.pi, other.policy_.pi)
        assert np.array_equal(one.confusion(50), other.confusion(50))


def corridor(horizon):
    """Five cells, of which the last one ends the episode and pays 1."""
    s = np.arange(5)
    states = np.stack([np.maximum(s - 1, 0), np.minimum(s + 1, 4)], axis=1)[:, :, None]
    states[4] = 4
    rewards = ((states == 4) & (s[:, None, None] < 4)) * 1.0
    options = {"emission": bm.OneHotGaussian(5, 0, sigma=0.1), "horizon": horizon, "ends": s == 4}
    return bm.BlockMDP(s == 0, bm.Successors(states, np.ones(states.shape)), rewards, **options)


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (bm.lock_gaussian(6, 0.2, 0.1), {}),
        (bm.lock_bernoulli(6, 0.2), {"learner": bm.UCBVI(bonus=0.1)}),
        (bm.lock_gaussian(4, 0.2, 0.1), {"pool_levels": True, "memory": 300}),
        (bm.lock_gaussian(4, 0.2, 0.1), {"pool_levels": False, "memory": 600}),
        (bm.comblock(8, n_actions=4), {"learner": bm.UCBVI(bonus=0.0, stationary=False)}),
        (bm.noisy_lock(5, "outliers"), {"pool_levels": False}),
        (bm.noisy_lock(5, "correlated"), {}),
        (bm.noisy_lock(5, "numbered categories"), {}),
        (bm.noisy_lock(4, "counts"), {}),
        (corridor(12), {}),
        (bm.deep_sea(6), {}),  # without noise
    ],
)
def test_the_compiled_loop_changes_nothing(problem, options, monkeypatch):
    def fit():
        agent = bm.OnlineURL(**options).fit(problem, 300, seed=3, record="few")
        return agent.fit_more(151)

    one = fit()
    monkeypatch.setattr(online, "LOOPS", {})
    other = fit()
    for name in ("returns_", "trajectories_", "ledger_"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    for mine, its in zip(one.tables_, other.tables_):
        assert np.array_equal(mine, its)
    assert [vars(each) | {"policy": 0} for each in one.history_] == [
        vars(each) | {"policy": 0} for each in other.history_
    ]
    assert len(one.snapshots_) == len(other.snapshots_)
    for mine, its in zip(one.snapshots_, other.snapshots_):
        assert (mine.k, mine.trajectories) == (its.k, its.trajectories)
        assert np.array_equal(mine.policy.pi, its.policy.pi)
        for h in range(problem.horizon):
            x = problem.sample(h, 1, 20)
            assert np.array_equal(mine.policy.decode(x, h), its.policy.decode(x, h))


def test_an_episode_in_which_labels_settle_does_not_leave_the_compiled_loop(monkeypatch):
    due, settled, left = [], [], []
    for_loops, pass_on, learn = OnlineDecoder.for_loops, OnlineDecoder.pass_on, OnlineDecoder.learn

    def enter(self):
        due.append(self._bank.state.due.copy())
        return for_loops(self)

    def leave(self, k):
        settled.extend(np.flatnonzero(self._bank.state.due != due[-1]))
        pass_on(self, k)

    def count(self, *arguments):
        left.append(1)
        return learn(self, *arguments)

    monkeypatch.setattr(OnlineDecoder, "for_loops", enter)
    monkeypatch.setattr(OnlineDecoder, "pass_on", leave)
    monkeypatch.setattr(OnlineDecoder, "learn", count)
    bm.OnlineURL(pool_levels=False).fit(bm.comblock(20), 400)
    assert len(settled) > 20
    assert len(left) < 100


@pytest.mark.parametrize("oracle", [None, KMeans(3, n_init=2)])
@pytest.mark.parametrize("pooled", [True, False])
def test_memory_is_bounded_and_learning_goes_on(oracle, pooled, monkeypatch):
    kept = []
    learn = OnlineDecoder.learn

    def spy(self, *arguments):
        result = learn(self, *arguments)
        if self._bank is not None:
            kept.append(self._bank.state.n.sum())
        else:
            kept.append(sum(len(x) for f in self.oracles for x in f.data))
        return result

    monkeypatch.setattr(OnlineDecoder, "learn", spy)
    m = bm.lock_gaussian(4, 0.2, 0.1, seed=1)
    agent = bm.OnlineURL(oracle, pool_levels=pooled, memory=500).fit(m, 600, seed=1)
    assert max(kept) <= (500 if oracle is None else 1_000)
    assert kept[-1] < 3_000
    assert agent.value() == pytest.approx(m.optimal_value(), rel=0.05)


def test_a_quiet_episode_has_only_rows_that_mixtures_can_learn():
    bank = new_bank(1, 2, 8)
    bank.room[:] = 1
    bounds = Bounds(rows=5, whole=True, low=0.0, high=3.0)
    for loop in (is_plain, interpreted(is_plain)):

        def can_learn(n, *x, bounds=bounds, loop=loop, centre=0.25):
            return loop(bank, bounds, 0, n, np.array(x), np.array(x) - centre)

        assert can_learn(4, 0.0, 3.0)
        assert not can_learn(5, 0.0, 3.0)
        assert not any(can_learn(0, 1.0, v) for v in (-1.0, 4.0, 0.5))
        bank.bits[:] = True
        assert can_learn(0, 0.0, 1.0)
        assert not can_learn(0, 0.0, 2.0)
        bank.bits[:] = False
        anything = bounds._replace(whole=False)
        assert can_learn(0, 0.5, -9.0, bounds=anything)
        assert not can_learn(0, 0.5, 1e18, bounds=anything)
        assert can_learn(0, 1e18, 1e18, bounds=anything, centre=1e18)
        assert not can_learn(0, 0.5, 0.0, bounds=anything, centre=1e18)
        bank.room[:] = 0
        assert not can_learn(0, 0.0, 3.0)
        bank.room[:] = 1


def test_memory_is_checked():
    with pytest.raises(ValueError, match="memory must be an integer >= 1, got 0"):
        bm.OnlineURL(memory=0)


def test_two_runs_of_one_seed_are_the_same_and_of_another_not():
    m = bm.comblock(8, seed=0)
    one, same, other = (
        bm.OnlineURL(pool_levels=False).fit(m, 150, seed=s).returns_ for s in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("oracle", [DirichletMixture(), AutoOracle(), KMeans(3, n_init=2)])
@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("memory", [None, 125])
@pytest.mark.parametrize("n", [1, 5])
def test_it_remembers_how_it_reads_everything_it_saw(oracle, pooled, memory, n):
    m = bm.comblock(4, n_actions=3, seed=3)
    simulator = make_simulator(m, 0)
    f = OnlineDecoder(oracle, 4, 50, pool_levels=pooled, key=np.uint64(1), memory=memory)
    seen = []
    for k in range(0, 50, n):
        episodes = simulator.rollout([Policy(m.uniform_policy(), f)], n, "learn")
        before = f.labels[:k].copy()
        born, reread = f.learn(episodes)
        changed = (f.labels[:k] != before).sum()
        assert reread == changed if n == 1 else reread >= changed  # some of these very episodes
        labels = f.labels[: k + n].max(axis=0)
        assert all(labels[level] >= label or n == 1 for level, label in born if not pooled)
        assert all(labels[level] <= label or n > 1 for level, label in born if not pooled)
        seen.extend(episodes.x)
    assert f.labels.max() < f.n_labels
    x, levels = np.concatenate(seen), np.tile(np.arange(5), 50)
    read = f.decode(levels, x).reshape(50, 5)
    # but for what has changed since it was last looked at, or forgotten
    assert (read == f.labels).mean() > (0.9 if memory is None else 0.8)
    assert np.array_equal(f.decoder().decode(levels, x).reshape(50, 5), read)


class Halves(BaseEstimator):
    """Gives the label 1 to observations above 0.5, once it has seen five; before, 0 to all."""

    def partial_fit(self, X):
        self.x = np.concatenate([self.x, X[:, 0]]) if hasattr(self, "x") else X[:, 0].copy()
        before = getattr(self, "labels_", np.zeros(0, np.int64))
        self.labels_ = ((self.x > 0.5) & (len(self.x) >= 5)).astype(np.int64)
        self._changed = np.flatnonzero(self.labels_[: len(before)] != before)
        return self

    def fit(self, X):
        return self.partial_fit(X)

    def changed_labels(self):
        return self._changed

    def predict(self, X):
        return ((X[:, 0] > 0.5) & (len(self.x) >= 5)).astype(np.int64)


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("oracle", [Halves(), DirichletMixture()])
def test_episodes_learnt_at_once_are_read_as_one_by_one(pooled, oracle):
    random = np.random.default_rng(0)
    x = random.integers(2, size=(30, 4, 1)) + random.normal(0, 0.01, (30, 4, 1))
    lengths = random.integers(0, 4, 30)
    episodes = Trajectories(x, np.zeros((30, 3), np.int64), np.zeros((30, 3)), lengths)
    made = np.arange(4) <= lengths[:, None]
    found = []
    for n in (1, 7, 30):
        f = OnlineDecoder(oracle, 3, 30, pool_levels=pooled, key=np.uint64(1))
        for k in range(0, 30, n):
            f.learn(episodes[k : k + n])
        assert f.k == 30
        assert np.array_equal(f.lengths, lengths)
        assert not f.labels[~made].any()
        rows = [made.sum()] if pooled else made.sum(axis=0)
        assert [each.sum() for each in f.counts()] == list(rows)
        found.append(f.labels)
    if isinstance(oracle, Halves):
        assert np.array_equal(found[0], found[1])
        assert np.array_equal(found[0], found[2])
        assert np.array_equal(found[0][made], (x[..., 0] > 0.5)[made])
    else:
        for labels in found:
            for h in range(4):
                both = {
                    (bool(s), int(z))
                    for s, z in zip(x[made[:, h], h, 0] > 0.5, labels[made[:, h], h])
                }
                assert len(both) == 2


@pytest.mark.parametrize(
    ("n", "shared"), [(1, [16, 24, 36]), (7, [16, 24, 36]), (50, [16, 24, 36])]
)
def test_levels_share_their_noise_at_the_same_episodes_however_many_are_learnt(n, shared):
    m = bm.noisy_lock(4, noise="correlated", seed=1)
    drawn = make_simulator(m, 0).rollout([Policy(m.uniform_policy(), None)], 50, "learn")
    f = OnlineDecoder(DirichletMixture(), 4, 50, pool_levels=False, key=np.uint64(1))
    at = []
    for oracle in f.oracles[:1]:
        oracle.share_noise = lambda T: at.append(f.k + 1)
    for k in range(0, 50, n):
        f.learn(drawn[k : k + n])
    assert at == shared


def test_labels_of_the_last_round_of_copies_are_late():
    class Inventive(Halves):
        def partial_fit(self, X):
            super().partial_fit(X)
            self.labels_ = np.arange(len(self.x))
            return self

        def predict(self, X):
            return np.zeros(len(X), np.int64)

    copies = gym.make_vec("blockmdp/LockBernoulli-v0", num_envs=64, horizon=4)
    with pytest.warns(UserWarning, match="appeared in the last quarter"):
        agent = bm.OnlineURL(Inventive(), pool_levels=True).fit(copies, 128, seed=0)
    assert [refit.k for refit in agent.history_] == [63, 127]


def test_copies_share_a_decoder_where_levels_look_alike():
    copies = gym.make_vec("blockmdp/LockBernoulli-v0", num_envs=7, horizon=4)
    agent = bm.OnlineURL().fit(copies, 70, seed=0)  # it decides after 16, 32 and 64 episodes
    assert agent.policy_.decoder.pooled


def test_a_round_of_copies_may_be_larger_than_the_memory():
    copies = gym.make_vec("blockmdp/LockBernoulli-v0", num_envs=20, horizon=4)
    agent = bm.OnlineURL(pool_levels=False, memory=50).fit(copies, 60, seed=0)
    assert agent.ledger_["learn"] == 60


@pytest.mark.parametrize("learner", [bm.UCBVI(bonus=0.0), bm.OracleQ()])
def test_what_it_teaches_is_what_a_learner_would_have_learnt(learner):
    f = OnlineDecoder(DirichletMixture(), 3, 20, pool_levels=False, key=np.uint64(1))
    random = np.random.default_rng(0)
    f.k = 20
    f.labels[:] = random.integers(4, size=(20, 4))
    f.actions[:] = random.integers(2, size=(20, 3))
    f.rewards[:] = random.random((20, 3))
    f.lengths[:] = random.integers(1, 4, size=20)
    taught, own, plain = (learner.tables(3, 4, 2, 20) for _ in range(3))
    f.teach(learner, taught, 0)
    for i in range(20):
        for h in range(f.lengths[i]):
            early = h + 1 == f.lengths[i] < 3
            s, a, r = (int(f.labels[i, h]), int(f.actions[i, h]), float(f.rewards[i, h]))
            learner.update(own, h, s, a, r, -1 if early else int(f.labels[i, h + 1]))
    f.teach(type("Plain", (type(learner),), {"is_compiled": lambda self: False})(), plain, 0)
    for one, two, three in zip(taught, own, plain):
        assert np.array_equal(one, two)
        assert np.array_equal(one, three)


class Noisy(gym.ObservationWrapper):
    """Cells of a grid, seen as a one-hot code behind noise."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (16,))

    def observation(self, cell):
        return np.eye(16)[cell] + 0.1 * self.unwrapped.np_random.normal(size=16)


def test_a_black_box_whose_episodes_end_early_is_learnt_too():
    env = Noisy(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=12))
    agent = bm.OnlineURL(pool_levels=False).fit(env, 300, seed=0)
    assert agent.returns_[-100:].mean() > 0.95


def test_a_vector_of_copies_is_learnt_from_one_after_the_other():
    envs = gym.make_vec("blockmdp/Comblock-v0", num_envs=2, horizon=3, n_actions=3)
    agent = bm.OnlineURL(pool_levels=False).fit(envs, 60, seed=0)
    assert agent.ledger_["learn"] == 60
    assert agent.returns_[-5:].mean() > 0.9


def test_what_was_learnt_can_be_saved_and_plotted(tmp_path):
    m = bm.comblock(5, n_actions=3, seed=0)
    agent = bm.OnlineURL(pool_levels=False).fit(m, 80, seed=0)
    agent.save(tmp_path / "policy.npz")
    x = m.sample(2, 1, 20)
    assert np.array_equal(bm.load(tmp_path / "policy.npz").act(x, 2), agent.act(x, 2))
    assert len(agent.history_) >= 3
    assert agent.plot().axes
    assert repr(agent) == "OnlineURL(pool_levels=False)"


def test_recording_keeps_the_policies_and_changes_nothing():
    m = bm.comblock(5, n_actions=3, seed=0)
    plain, recorded = (
        bm.OnlineURL(pool_levels=False).fit(m, 80, seed=0, record=record)
        for record in (False, True)
    )
    assert np.array_equal(plain.returns_, recorded.returns_)
    assert {entry.policy for entry in plain.history_} == {None}
    assert all(isinstance(entry.policy, Policy) for entry in recorded.history_)


class Nearest(ClusterMixin, BaseEstimator):
    """A user's own incremental oracle: a label for each observation far from all centres."""

    def __init__(self, radius=1.0):
        self.radius = radius

    def partial_fit(self, X, y=None):
        if not hasattr(self, "centres_"):
            self.centres_, self.labels_ = np.empty((0, X.shape[1])), np.empty(0, np.int64)
        for x in X:
            if len(self.centres_) == 0 or self._distances(x[None]).min() > self.radius:
                self.centres_ = np.vstack([self.centres_, x])
            self.labels_ = np.append(self.labels_, self._distances(x[None]).argmin())
        return self

    def fit(self, X, y=None):
        self.__dict__.pop("centres_", None)
        return self.partial_fit(X)

    def predict(self, X):
        return self._distances(X).argmin(axis=1)

    def changed_labels(self):
        return np.empty(0, np.int64)

    def _distances(self, X):
        return np.linalg.norm(X[:, None] - self.centres_, axis=2)


@pytest.mark.parametrize("pooled", [True, False])
def test_a_users_own_incremental_oracle_is_not_refitted(pooled, tmp_path):
    m = bm.lock_gaussian(4, sigma=0.05, seed=2)
    assert isinstance(Nearest(), IncrementalOracle)
    assert not isinstance(MiniBatchKMeans(), IncrementalOracle)  # it does not say what changed
    agent = bm.OnlineURL(Nearest(0.8), bm.UCBVI(), pool_levels=pooled).fit(m, 300)
    assert agent.value() == 0.5
    learnt = agent.decoder_.fitted[0].predictor
    assert isinstance(learnt, Nearest)
    assert len(learnt.labels_) == (300 * 5 if pooled else 300)


@pytest.mark.paper
def test_a_comblock_of_horizon_100_is_open_within_2200_episodes_on_every_seed():
    for seed in range(20):
        agent = bm.OnlineURL(pool_levels=False).fit(bm.comblock(100, seed=seed), 2_200, seed=seed)
        assert agent.returns_[-50:].mean() > 0.5  # it still tries other actions, one an episode
        assert agent.value() == pytest.approx(1.0)


def test_an_optimist_who_thinks_too_little_of_the_problem_is_warned():
    with pytest.warns(UserWarning, match=r"v_max=1, but .*DiabolicalLock is 4.*v_max=4") as caught:
        bm.OnlineURL(learner=bm.UCBVI()).fit(bm.diabolical_lock(3), 5)
    assert caught[0].filename == __file__  # it points at the user's line
    agent = bm.OnlineURL(pool_levels=False).fit(bm.comblock(3), 0)
    assert agent.decoder_.n_labels == 1
    assert agent.policy_.pi.shape[0] == 3


class Broken(gym.Env):
    """Pays what is no number."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float("nan"), False, False, {}


def test_a_reward_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match=r"rewards must be finite, but .* returned nan"):
        bm.OnlineURL(pool_levels=False).fit(Broken(), 3, horizon=4)


# --- noise ----------------------------------------------------------------------------------------
class Turned(bm.Emission):
    """The one-hot code of the state plus noise, turned at random at every level."""

    stationary = False

    def __init__(self, horizon, noise, seed):
        random = np.random.default_rng(seed)
        self.n_states, self.dim, self.n_levels, self.noise = 3, 12, horizon + 1, noise
        self.turns = [np.linalg.qr(random.normal(size=(12, 12)))[0] for _ in range(horizon + 1)]

    def sample(self, level, states, keys):
        z = bm.rng.normals(keys, 16)
        e = z[:, :12]
        if self.noise == "strong directions":
            e = e * np.where(np.arange(12) < 10, 1.0, 20.0)
        if self.noise == "heavy tails":
            e = e / np.sqrt((z[:, 12:15] ** 2).mean(axis=1, keepdims=True))
        if self.noise == "outliers":
            e = np.where(z[:, 12:13] > 2.0, 20 * e, e)  # about 2 %
        return (np.eye(12)[states] + 0.1 * e) @ self.turns[level]


def turned_lock(horizon, noise, seed):
    lock = bm.lock_gaussian(horizon, switch=0.2, seed=seed)
    tables = (lock.initial, lock.transitions, lock.rewards, lock.reward_probability)
    return bm.BlockMDP(*tables, emission=Turned(horizon, noise, seed))


@pytest.mark.parametrize("noise", ["round", "strong directions", "heavy tails", "outliers"])
def test_noise_of_any_shape_costs_little(noise):
    best = {"round": 0.5, "strong directions": 0.5, "heavy tails": 0.495, "outliers": 0.48}[noise]
    agent = bm.OnlineURL().fit(turned_lock(4, noise, seed=1), 400, seed=1)
    assert len(agent.decoder_.fitted) == 5
    assert agent.value() > 0.95 * best


def test_the_final_policy_does_not_rely_on_rare_labels_where_there_are_outliers():
    lock = bm.noisy_lock(4, "heavy tails", seed=1)
    agent = bm.OnlineURL(pool_levels=False).fit(lock, 1_000, seed=1)
    x = np.concatenate([lock.sample(level=2, state=s, n=1_000) for s in range(3)])
    labels = agent.decode(x, level=2)
    assert len(np.unique(labels)) == 3
    assert accuracy_score(np.repeat(range(3), 1_000), _states(labels)) > 0.99


def _states(labels):
    """The most common state of each label, if there are 1,000 observations of each state."""
    best = [np.argmax([(labels[i : i + 1_000] == k).sum() for i in (0, 1_000, 2_000)])
            for k in range(labels.max() + 1)]  # fmt: skip
    return np.array(best)[labels]


def test_noise_that_varies_more_than_the_states_is_learnt_from_all_levels():
    lock = bm.exogenous_lock(5, seed=0)
    agent, latent = bm.OnlineURL(), bm.Tabular(bm.PSRL())
    found = [np.flatnonzero(a.fit(lock, 200, seed=0).returns_ > 0.9)[5] for a in (agent, latent)]
    assert agent.value() == pytest.approx(1.0)
    assert found[0] <= 1.5 * found[1]


@pytest.mark.parametrize("S", [3, 6])
def test_distances_between_common_states_are_not_taken_for_noise(S):
    m = bm.random_block_mdp(horizon=20, n_states=S, seed=0)
    agent = bm.OnlineURL(pool_levels=False).fit(m, 120, seed=0)
    assert (agent.accuracy() > 0.95).mean() > 0.9


@pytest.mark.parametrize(("n", "answer"), [(2, None), (3, False)])
def test_levels_are_compared_by_labels_with_three_observations(n, answer):
    levels = np.repeat([0, 1], n)
    x = np.random.default_rng(0).normal(size=(2 * n, 4)) + 100 * levels[:, None]
    assert look_alike(Observations(levels, x), np.zeros(2 * n, np.int64)) is answer


def test_levels_are_compared_by_labels_of_a_fifth_of_the_observations():
    """A label that is rare at level 0 looks like one of level 1."""
    g = np.random.default_rng(0)
    for rare, answer in ((9, False), (10, True)):
        rows = [g.normal(size=(40, 4)), 100 + g.normal(size=(rare, 4)), 100 + g.normal(size=(9, 4))]
        levels = np.repeat([0, 0, 1], [40, rare, 9])
        labels = np.repeat([0, 1, 0], [40, rare, 9])
        assert look_alike(Observations(levels, np.concatenate(rows)), labels) is answer


def test_levels_share_a_decoder_if_they_look_alike():
    for lock, alike in (
        (bm.lock_bernoulli(5, seed=1), True),
        (bm.lock_gaussian(5, sigma=0.2, seed=2), True),
        (bm.comblock(5, seed=1), False),
        (bm.exogenous_lock(5, seed=1), False),
    ):
        agent = bm.OnlineURL().fit(lock, 40, seed=1)
        assert (len(agent.decoder_.fitted) == 1) == alike, lock
        short = bm.OnlineURL().fit(lock, 15, seed=1)  # too early to tell
        assert len(short.decoder_.fitted) == 6
    with pytest.raises(ValueError, match='pool_levels must be True, False or "auto", got None'):
        bm.OnlineURL(pool_levels=None)


def test_the_episodes_of_all_copies_are_used():
    copies = gym.make_vec("blockmdp/LockBernoulli-v0", num_envs=5, horizon=4)
    agent = bm.OnlineURL(pool_levels=True).fit(copies, 52, seed=0)
    assert agent.ledger_ == {"learn": 52, "unused": 3}  # the last two episodes need no more copies
    assert agent.trajectories_[:6].tolist() == [5, 5, 5, 5, 5, 10]
    again = bm.OnlineURL(pool_levels=True).fit(copies, 52, seed=0)
    assert np.array_equal(again.returns_, agent.returns_)


@pytest.mark.parametrize("pooled", [True, False])
def test_it_decodes_as_its_oracles_predict(pooled):
    m = bm.exogenous_lock(5, seed=1)
    simulator = make_simulator(m, 0)
    f = OnlineDecoder(DirichletMixture(), 5, 40, pool_levels=pooled, key=np.uint64(1))
    random = Policy(np.full((5, 1, m.n_actions), 1 / m.n_actions), None)
    drawn = simulator.rollout([random], 40, "learn")
    for i in range(39):
        f.learn(drawn[i : i + 1])
    x, levels = drawn.x[:20].reshape(20 * 6, -1), np.tile(np.arange(6), 20)
    found = f.decode(levels, x)
    assert found.max() > 0
    for h in range(6):
        oracle = f.oracles[0 if pooled else h]
        assert np.array_equal(found[levels == h], oracle.predict(x[levels == h]))
    assert np.array_equal(f.decode(levels, np.asfortranarray(x)), found)


class Changing(gym.vector.VectorObservationWrapper):
    """After ten steps, observations are no longer what they should be."""

    def __init__(self, envs, change):
        super().__init__(envs)
        self.change, self.seen = change, 0

    def observations(self, x):
        self.seen += 1
        return self.change(x) if self.seen > 10 else x


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: np.repeat(x, 100_000, axis=1), "an observation has 1600000 numbers"),
        (lambda x: x[:, :7], "an observation has 7 numbers, but others had 16"),
        (lambda x: x * 1j, "observations must be arrays of numbers, got dtype complex"),
        (lambda x: x.astype(object), "observations must be arrays of numbers, got dtype object"),
        (lambda x: x * np.nan, "some are NaN or infinite"),
    ],
)
def test_observations_that_change_their_kind_are_refused(change, message):
    def lake():
        return Noisy(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=12))

    envs = Changing(gym.vector.SyncVectorEnv([lake] * 3), change)
    with pytest.raises(ValueError, match=message):
        bm.OnlineURL(pool_levels=True).fit(envs, 60, seed=0, horizon=12)
