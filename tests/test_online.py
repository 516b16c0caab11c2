"""Decoders learnt online: the Dirichlet process mixture, and OnlineURL."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClusterMixin, clone
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import adjusted_rand_score

import blockmdp as bm
from blockmdp.jit import interpreted
from blockmdp.oracles import AutoOracle, DirichletMixture, IncrementalOracle, fit_oracle
from blockmdp.oracles import _dirichlet as kernels
from blockmdp.policy import Policy
from blockmdp.simulators import make_simulator
from blockmdp.url.online import OnlineDecoder


def statistics(x, z, K):
    counts, sums = np.bincount(z, minlength=K), np.zeros((K, x.shape[1]))
    np.add.at(sums, z, x)
    return counts, sums


def clusters(seed=0, n=60, d=8, K=3, apart=6.0):
    random = np.random.default_rng(seed)
    z = random.integers(K, size=n)
    return apart * random.normal(size=(K, d))[z] / math.sqrt(d) + random.normal(size=(n, d)), z


def stream(m, level, n, weights, seed=0):
    """Observations of random states at a level, and the states."""
    states = np.random.default_rng(seed).choice(m.n_states, size=n, p=weights)
    x = np.empty((n, m.emission.dim))
    for s in np.unique(states):
        x[states == s] = m.sample(level, int(s), int((states == s).sum()), seed=seed)
    return x, states


# --- the evidence ---------------------------------------------------------------------------------
def by_matrices(x, z, ratio):
    """log p(x | z) with means and noise integrated out, from the joint covariance of all rows."""
    n, d = x.shape
    V = np.eye(n) + ratio * (z[:, None] == z)
    inverse, one = np.linalg.inv(V), np.ones(n)
    mean = one @ inverse @ x / (one @ inverse @ one)
    Q = np.einsum("ij,ik,kj->", x - mean, inverse, x - mean)
    logs = np.linalg.slogdet(V)[1] + math.log(one @ inverse @ one)
    return -0.5 * d * logs - 0.5 * (n - 1) * d * math.log(Q)


def prior(counts, alpha):
    return sum(math.log(alpha) + math.lgamma(c) for c in counts if c)


@pytest.mark.parametrize("K", [1, 2, 4])
def test_the_evidence_is_that_of_the_joint_normal_law_of_all_rows(K):
    x, _ = clusters(n=12, d=3)
    z = np.arange(12) % K
    counts, sums = statistics(x, z, 5)
    score, ratio, _ = kernels.evidence(False, counts, sums, (x**2).sum(), 3.0, math.log(0.1))
    direct = max(by_matrices(x, z, r) for r in kernels.RATIOS)
    assert score - prior(counts, 0.1) == pytest.approx(direct, abs=1e-8)
    assert by_matrices(x, z, ratio) == pytest.approx(direct, abs=1e-8)


def test_the_evidence_of_bits_lets_a_label_differ_from_the_rest_in_a_few_of_them():
    random = np.random.default_rng(0)
    x, z = (random.random((9, 8)) < 0.4).astype(float), np.arange(9) % 2
    counts, sums = statistics(x, z, 3)
    mean, chance = (x.sum(axis=0) + 0.5) / 10, 3 / 8
    total = prior(counts, 0.5)
    for k in range(2):
        for j in range(8):
            same, own, seen = 1.0, 1.0, [0.5, 0.5]
            for bit in x[z == k][:, j].astype(int):  # the chain of predictions
                same *= mean[j] if bit else 1 - mean[j]
                own *= seen[bit] / sum(seen)
                seen[bit] += 1
            total += math.log((1 - chance) * same + chance * own)
    score = kernels.evidence(True, counts, sums, 0.0, 8.0, math.log(0.5))[0]
    assert score == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("bits", [False, True])
def test_compiled_and_interpreted_kernels_agree(bits):
    x, z = clusters(n=40)
    x = (x > 0).astype(np.float32) if bits else x.astype(np.float32)
    z = (z + (np.arange(40) % 5 == 0)) % 4
    arguments = (8.0, 4.0, 1.5, math.log(0.01))

    def run(kind):
        counts, sums = statistics(x, z, 5)
        labels = z.copy()
        moves = kind(kernels.map_sweeps)(bits, x, labels, counts, sums, *arguments, 10)
        square = float((x**2).sum())
        found = kind(kernels.evidence)(bits, counts, sums, square, 8.0, arguments[-1])
        beliefs = (np.zeros((5, 8)), np.zeros(5), np.zeros(5), np.zeros(5, np.bool_))
        places = [
            kind(kernels.assign)(bits, row, counts, sums, square, *arguments, *beliefs)
            for row in (x if bits else 3 * x)[:9]
        ]
        near = kind(kernels.nearest)(x, np.zeros(8), *kind(kernels.scores)(bits, counts, sums, 4.0))
        numbers = [*found, *(p for place in places for p in place)]
        return numbers, (moves, labels.tolist(), counts.tolist(), sums.tolist(), near.tolist())

    (numbers, rest), (same_numbers, same_rest) = run(lambda f: f), run(interpreted)
    assert rest == same_rest
    assert numbers == pytest.approx(same_numbers, rel=1e-12)  # there are two libraries' lgamma


# --- the mixture ----------------------------------------------------------------------------------
@pytest.mark.parametrize(("H", "level"), [(5, 2), (25, 20), (100, 50), (100, 100)])
def test_a_new_state_is_known_at_its_first_visit_and_never_before(H, level):
    m = bm.comblock(H)
    x, states = stream(m, level, 400, [0.02, 0.02, 0.96], seed=H)
    oracle = DirichletMixture()
    for i, row in enumerate(x):
        oracle.partial_fit(row[None])
        if i >= 4:  # of two or three observations nobody can say how many states they are
            assert oracle.n_labels_ == len(set(states[: i + 1]))
    assert adjusted_rand_score(states, oracle.labels_) == 1.0
    assert np.array_equal(oracle.predict(x), oracle.labels_)


def test_online_and_at_once_it_finds_the_same():
    x, states = stream(bm.comblock(50), 7, 300, [0.4, 0.2, 0.4])
    online, at_once = DirichletMixture().partial_fit(x), DirichletMixture().fit(x)
    assert adjusted_rand_score(states, online.labels_) == 1.0
    assert adjusted_rand_score(online.labels_, at_once.labels_) == 1.0


@pytest.mark.parametrize("lock", [bm.lock_bernoulli(10), bm.lock_gaussian(10, sigma=0.2)])
def test_it_finds_the_states_of_the_paper_s_locks(lock):
    x, states = stream(lock, 3, 300, [0.2, 0.3, 0.5])
    assert adjusted_rand_score(states, DirichletMixture().partial_fit(x).labels_) == 1.0


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 6), st.booleans())
@settings(max_examples=40, deadline=None)
def test_whatever_it_is_given_its_books_balance(seed, n, d, bits):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)) * 10.0 ** random.integers(-3, 4)
    x[random.random(n) < 0.3] = x[0]
    if bits:
        x = (x > 0).astype(float)
    oracle = DirichletMixture(max_labels=4)
    before = np.zeros(0, np.int64)
    for row in x:
        oracle.partial_fit(row[None])
        changed = np.flatnonzero(oracle.labels_[:-1] != before)
        assert np.array_equal(oracle.changed_labels(), changed)
        before = oracle.labels_.copy()
    assert len(oracle.labels_) == n
    assert oracle.labels_.max() < oracle.n_labels_ <= 4
    kept = oracle._x[:n].astype(np.float64)
    counts, sums = statistics(kept, oracle.labels_, len(oracle._counts))
    assert np.array_equal(counts, oracle._counts)
    assert sums == pytest.approx(oracle._sums, rel=1e-5, abs=1e-5 * np.abs(kept).max() + 1e-12)
    assert set(oracle.predict(x)) <= set(oracle.labels_)


def test_bits_that_turn_out_to_be_numbers_are_read_again():
    oracle = DirichletMixture().partial_fit([[0.0, 1.0]] * 5)
    oracle.partial_fit([[0.5, 0.5]])
    assert len(oracle.labels_) == 6
    assert not oracle._bits


def test_it_refuses_what_is_no_observation():
    oracle = DirichletMixture().partial_fit(np.ones((3, 2)))
    with pytest.raises(ValueError, match="features"):
        oracle.partial_fit(np.ones((1, 3)))
    with pytest.raises(ValueError, match="NaN"):
        oracle.partial_fit([[np.nan, 1.0]])
    assert clone(DirichletMixture(0.5, max_labels=7)).get_params() == {
        "concentration": 0.5,
        "max_labels": 7,
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_labels": 0}, "max_labels must be an integer >= 1"),
        ({"concentration": 0.0}, "concentration must be a number above 0"),
        ({"concentration": float("nan")}, "concentration must be a number above 0"),
        ({"concentration": "x"}, "concentration must be a number above 0"),
    ],
)
def test_it_refuses_parameters_that_mean_nothing(wrong, words):
    with pytest.raises(ValueError, match=words):
        DirichletMixture(**wrong).fit(clusters()[0])
    with pytest.raises(ValueError, match="scale them down"):
        DirichletMixture().fit(clusters()[0] * 1e40)


def test_one_label_at_the_most_is_one_label():
    assert DirichletMixture(max_labels=1).fit(clusters()[0]).n_labels_ == 1
    assert DirichletMixture(max_labels=1).partial_fit(clusters()[0]).n_labels_ == 1


def test_as_an_oracle_it_folds_into_matrices_that_say_the_same():
    x, states = stream(bm.comblock(20), 5, 200, [0.3, 0.3, 0.4])
    fitted = fit_oracle(DirichletMixture(), x, np.uint64(1))
    assert type(fitted.predictor).__name__ == "LinearScores"
    assert adjusted_rand_score(states, fitted.predict(x)) == 1.0
    assert bm.URL(DirichletMixture()).fit(bm.lock_bernoulli(5), 2_000).value() == 0.5


# --- URL ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("H", "seeds"), [(5, 3), (10, 3), (25, 1)])
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


def test_two_runs_of_one_seed_are_the_same_and_of_another_not():
    m = bm.comblock(8, seed=0)
    one, same, other = (
        bm.OnlineURL(pool_levels=False).fit(m, 150, seed=s).returns_ for s in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("oracle", [DirichletMixture(), AutoOracle(), KMeans(3, n_init=2)])
@pytest.mark.parametrize("pooled", [True, False])
def test_it_remembers_how_it_reads_everything_it_saw(oracle, pooled):
    m = bm.comblock(4, n_actions=3, seed=3)
    simulator = make_simulator(m, 0)
    f = OnlineDecoder(oracle, 4, 50, pooled=pooled, key=np.uint64(1))
    seen = []
    for k in range(50):
        episode = simulator.rollout([Policy(m.uniform_policy(), f)], 1, "learn")
        before = f.labels[:k].copy()
        born, reread = f.learn(episode)
        assert reread == (f.labels[:k] != before).sum()
        assert all(f.labels[: k + 1, level].max() <= label for level, label in born if not pooled)
        seen.append(episode.x[0])
    assert f.labels.max() < f.n_labels
    x, levels = np.concatenate(seen), np.tile(np.arange(5), 50)
    read = f.decode(levels, x).reshape(50, 5)
    assert (read == f.labels).mean() > 0.9  # but for what has changed since it was last looked at
    assert np.array_equal(f.decoder().decode(levels, x).reshape(50, 5), read)


@pytest.mark.parametrize("learner", [bm.UCBVI(bonus=0.0), bm.OracleQ()])
def test_what_it_teaches_is_what_a_learner_would_have_learnt(learner):
    f = OnlineDecoder(DirichletMixture(), 3, 20, pooled=False, key=np.uint64(1))
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
    agent = bm.OnlineURL(pool_levels=False).fit(env, 600, seed=0)
    assert agent.returns_[-200:].mean() > 0.95


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
        assert agent.returns_[-50:].mean() == 1.0
        assert agent.value() == pytest.approx(1.0)


def test_an_optimist_who_thinks_too_little_of_the_problem_is_warned():
    with pytest.warns(UserWarning, match=r"v_max=1, but .*DiabolicalLock is 4.*v_max=4") as caught:
        bm.OnlineURL(pool_levels=False).fit(bm.diabolical_lock(3), 5)
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
