"""Problems beside the paper's: drawn at random, seen as digits, with noise correlated over time."""

from __future__ import annotations

import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from helpers import python
from sklearn.datasets import load_digits

from blockmdp import (
    PCID,
    UCBVI,
    URL,
    OneHotBernoulli,
    OracleQ,
    Tabular,
    exogenous_lock,
    lock_bernoulli,
    lock_digits,
    noisy_chain,
    oracles,
    random_block_mdp,
    rng,
    streams,
)
from blockmdp.emissions import Digits, ExogenousBits, MarkovBits, branches, markov_bits
from blockmdp.envs import BlockMDPEnv, mdp_of
from blockmdp.jit import interpreted
from blockmdp.simulators import Policy, make_simulator

ENGINES = ("compiled", "interpreted", "stepwise")
PROBLEMS = {
    "RandomBlockMDP": (random_block_mdp, {"horizon": 3}),
    "LockDigits": (lock_digits, {"horizon": 3}),
    "ExogenousLock": (exogenous_lock, {"horizon": 3, "n_actions": 3, "n_bits": 2}),
    "NoisyChain": (noisy_chain, {"n_states": 3, "n_bits": 10}),
}
any_problem = pytest.mark.parametrize("name", PROBLEMS)


def keys(n, seed=0):
    return rng.children(rng.root(seed), 0, n)


# --- what all have in common ----------------------------------------------------------------------
@any_problem
def test_same_seed_same_problem_and_another_seed_another(name):
    make, kwargs = PROBLEMS[name]
    one, same, other = (make(**kwargs, seed=s) for s in (1, 1, 2))
    for field in ("initial", "transitions", "rewards", "reward_probability"):
        assert np.array_equal(getattr(one, field), getattr(same, field))
    assert not np.array_equal(one.transitions, other.transitions)
    for h in range(one.horizon + 1):
        for s in range(one.n_states):
            assert np.array_equal(one.sample(h, s, 20), same.sample(h, s, 20))
    assert one.name == name
    assert repr(one) == repr(same)


@any_problem
def test_a_pickled_problem_is_the_same_problem(name):
    make, kwargs = PROBLEMS[name]
    mdp = make(**kwargs, seed=3)
    copy = pickle.loads(pickle.dumps(mdp))
    assert np.array_equal(copy.transitions, mdp.transitions)
    assert np.array_equal(copy.rewards, mdp.rewards)
    assert copy.emission.per_episode == mdp.emission.per_episode
    assert np.array_equal(copy.sample(2, 1, 20), mdp.sample(2, 1, 20))


@any_problem
@pytest.mark.parametrize("observe", ["observation", "latent"])
def test_gymnasiums_checker_is_content(name, observe):
    make, kwargs = PROBLEMS[name]
    env = gym.make(f"blockmdp/{name}-v0", observe=observe, seed=5, **kwargs)
    assert np.array_equal(env.unwrapped.mdp.transitions, make(**kwargs, seed=5).transitions)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*infinity.*")  # Gaussian noise has no bounds
        check_env(env.unwrapped)


@any_problem
def test_all_defaults_make_a_problem_that_can_be_played(name):
    env = gym.make(f"blockmdp/{name}-v0")
    x, _ = env.reset(seed=0)
    assert env.observation_space.contains(x)
    assert 0 < mdp_of(env).optimal_value() <= 1
    assert gym.make_vec(f"blockmdp/{name}-v0", num_envs=2).reset(seed=0)[0].shape == (2, *x.shape)


@any_problem
def test_a_study_can_name_it(name):
    from blockmdp.experiments.catalogue import CATALOGUE, build, complete

    make, kwargs = PROBLEMS[name]
    assert CATALOGUE["problem"][make.__name__] == "blockmdp.envs"
    config = complete("problem", {"name": make.__name__, **kwargs}, "problem")
    built = build("problem", config, seed=4)
    assert np.array_equal(built.transitions, make(**kwargs, seed=4).transitions)


WRONG = [
    (random_block_mdp, {"successors": 0}, "successors must be an integer >= 1"),
    (random_block_mdp, {"paying": 0.0}, r"paying must be in \(0, 1\], got 0.0"),
    (random_block_mdp, {"paying": float("nan")}, r"paying must be in \(0, 1\]"),
    (random_block_mdp, {"horizon": 0}, "horizon must be an integer >= 1"),
    (random_block_mdp, {"emission": OneHotBernoulli(4, 2)}, "emission shows 4 latent states"),
    (lock_digits, {"images": "both"}, "images must be 'train', 'test' or 'all', got 'both'"),
    (lock_digits, {"switch": 1.5}, r"switch must be in \[0, 1\]"),
    (exogenous_lock, {"n_actions": 2}, "n_actions must be an integer >= 3"),
    (exogenous_lock, {"flip": 1.1}, r"flip must be in \[0, 1\], got 1.1"),
    (exogenous_lock, {"sigma": -1.0}, "sigma must be finite and >= 0"),
    (exogenous_lock, {"n_bits": 0.5}, "n_bits must be an integer"),
    (noisy_chain, {"n_bits": 19}, "n_bits must be n_states = 20 or more, got 19"),
    (noisy_chain, {"horizon": 19}, "horizon must be n_states = 20 or more, .* got 19"),
    (Digits, {"digits": [1, 1]}, "no two states can have the same digit"),
    (Digits, {"digits": [10]}, "digits must be some of 0 to 9"),
    (MarkovBits, {"places": [0, 0], "rise": [0.5] * 3, "fall": [0.5] * 3}, "different integers"),
    (MarkovBits, {"places": [3], "rise": [0.5] * 3, "fall": [0.5] * 3}, "from 0 to 2"),
    (MarkovBits, {"places": [0], "rise": [0.5] * 3, "fall": [0.5] * 2}, "as long as"),
    (MarkovBits, {"places": [0], "rise": [0.5, 2.0], "fall": [0.5] * 2}, r"rise\[1\] is 2.0"),
    (MarkovBits, {"places": [0], "rise": [0.0] * 2, "fall": [0.0] * 2}, "bit 1 can never change"),
]


@pytest.mark.parametrize(("make", "kwargs", "message"), WRONG)
def test_a_wrong_argument_is_named(make, kwargs, message):
    with pytest.raises(ValueError, match=message):
        make(**kwargs)


# --- drawn at random ------------------------------------------------------------------------------
@pytest.mark.parametrize(("S", "k"), [(5, 1), (5, 2), (5, 5), (1, 1), (30, 3)])
def test_an_action_leads_to_so_many_states(S, k):
    m = random_block_mdp(4, S, 3, successors=k, seed=2)
    assert ((m.transitions > 0).sum(axis=3) == k).all()
    assert m.initial[0] == 1
    assert m.emission.dim == S + 4


def test_successors_and_their_probabilities_are_drawn_evenly():
    m = random_block_mdp(50, 10, 20, successors=3, seed=0)
    P = m.transitions
    share = (P > 0).mean(axis=(0, 1, 2))
    assert share == pytest.approx(np.full(10, 0.3), abs=0.025)  # 0.0046 each
    p = P[P > 0]  # a share of a flat Dirichlet law of three is Beta(1, 2): mean 1/3, variance 1/18
    assert p.mean() == pytest.approx(1 / 3)
    assert p.var() == pytest.approx(1 / 18, abs=0.003)


@pytest.mark.parametrize("paying", [1e-9, 0.05, 0.5, 1.0])
def test_a_share_of_what_can_be_come_to_pays(paying):
    for seed in range(5):
        m = random_block_mdp(6, 8, 3, paying=paying, seed=seed)
        reachable = m.reachability()[:-1] > 0  # (H, S)
        r = m.expected_rewards
        n = 3 * reachable.sum()
        assert (r > 0).sum() == max(round(paying * n), 1)
        assert (r >= 0).all()
        assert (r[~reachable] == 0).all()


@pytest.mark.parametrize("kwargs", [{}, {"successors": 1}, {"paying": 1e-9}, {"n_states": 40}])
def test_one_is_the_most_that_can_be_earned_on_from_anywhere(kwargs):
    for seed in range(10):
        m = random_block_mdp(**kwargs, seed=seed)
        values = m.optimal_values()[m.reachability() > 0]
        assert values.max() == pytest.approx(1)
        assert 0 < m.optimal_value() <= 1 + 1e-9
        if kwargs == {"successors": 1}:  # then the best is where one starts
            assert m.optimal_value() == pytest.approx(1)


def test_an_emission_of_ones_own_shows_the_states():
    emission = OneHotBernoulli(5, 3)
    m = random_block_mdp(emission=emission)
    assert m.emission is emission
    agent = Tabular(UCBVI(bonus=0.05)).fit(m, 3000, seed=0)
    assert agent.value() > 0.95 * m.optimal_value()


# --- digits ---------------------------------------------------------------------------------------
def test_the_digits_lock_is_the_lock_of_the_paper():
    one, two = lock_digits(6, 0.3, seed=4), lock_bernoulli(6, 0.3, seed=4)
    assert np.array_equal(one.transitions, two.transitions)
    assert np.array_equal(one.rewards, two.rewards)
    assert one.optimal_value() == 0.5


def test_train_and_test_images_are_disjoint_and_together_all():
    seen = {}
    for images in ("train", "test", "all"):
        emission = Digits(range(10), images)
        seen[images] = [{x.tobytes() for x in shown} for shown in emission.images]
    x, y = load_digits(return_X_y=True)
    for d in range(10):
        train, test, whole = (seen[images][d] for images in ("train", "test", "all"))
        assert not train & test
        assert train | test == whole == {v.tobytes() for v in (x[y == d] / 16).astype(np.float32)}
        assert len(test) == pytest.approx(len(whole) / 3, abs=1)


def test_other_images_leave_the_lock_and_its_digits_as_they_are():
    train, test = (lock_digits(5, images=images, seed=7) for images in ("train", "test"))
    assert train.emission.digits == test.emission.digits
    assert np.array_equal(train.transitions, test.transitions)
    assert len({lock_digits(2, seed=s).emission.digits for s in range(20)}) == 20


def test_every_image_of_a_states_digit_comes_up_and_no_other():
    m = lock_digits(3, seed=1)
    for s in range(3):
        x = m.sample(1, s, 3000)
        assert x.dtype == np.float32
        assert {v.tobytes() for v in x} == {v.tobytes() for v in m.emission.images[s]}


def test_scikit_learn_is_imported_only_when_digits_are_asked_for():
    code = (
        "import sys, blockmdp, blockmdp.envs\n"
        "before = 'sklearn' in sys.modules\n"
        "blockmdp.lock_digits(2)\n"
        "print(before, 'sklearn' in sys.modules)"
    )
    assert python(code).split() == ["False", "True"]


def test_a_decoder_learnt_on_some_images_reads_others():
    agent = URL(batch=100, iterations=1).fit(lock_digits(4, seed=1), 10_000, seed=0)
    assert agent.value() > 0.45
    unseen = lock_digits(4, images="test", seed=1)
    assert agent.value(on=unseen) > 0.45


# --- the exogenous lock ---------------------------------------------------------------------------
@pytest.mark.parametrize("H", [1, 2, 7])
def test_two_actions_enter_the_branches_and_one_a_level_stays_in_them(H):
    m = exogenous_lock(H, n_actions=5, seed=3)
    P = m.transitions
    assert set(np.unique(P)) == {0.0, 1.0}
    # the start: one action to a, one to b, three to the dead state
    assert P[0, 0].sum(axis=0).tolist() == [1, 1, 3]
    for h in range(1, H):
        for branch in (0, 1):
            assert P[h, branch].sum(axis=0).tolist() == [1 - branch, branch, 4]
        assert (P[h, 0, :, 0] * P[h, 1, :, 1] == 0).all()  # never the same action
    assert (P[:, 2, :, 2] == 1).all()
    assert m.optimal_value() == 1.0
    assert m.optimal_values()[1, 1] == (0.1 if H > 1 else 0.0)
    assert (m.expected_rewards[: H - 1] == 0).all()
    assert m.emission.dim == 2 ** int(np.ceil(np.log2(H + 4 + 10)))


def test_branch_b_pays_a_tenth():
    m = exogenous_lock(4, seed=1)
    pi = m.optimal_policy()
    enter_b = m.transitions[0, 0, :, 1].argmax()
    pi[0, 0] = np.eye(m.n_actions)[enter_b]
    assert m.value(pi) == pytest.approx(0.1)


@pytest.mark.parametrize("flip", [0.0, 0.1, 0.5, 1.0])
def test_bits_start_fair_and_flip_with_their_probability(flip):
    emission = ExogenousBits(3, 7, 10, flip, 0.0)
    x = [emission.sample(h, np.full(20_000, 1), keys(20_000))[:, 10:] for h in range(7)]
    for h in range(7):
        assert x[h].mean(axis=0) == pytest.approx(np.full(10, 0.5), abs=0.025)  # 0.0035 each
        for later in range(h + 1, 7):
            expected = (1 - (1 - 2 * flip) ** (later - h)) / 2
            # 0.0011 at most
            assert (x[h] != x[later]).mean() == pytest.approx(expected, abs=0.006)
    between = np.corrcoef(np.hstack([x[0], x[6]]).T)[:10, :10]
    assert np.abs(between - np.eye(10)).max() < 0.04  # different bits have nothing to do


def test_gaussian_noise_is_fresh_at_every_level():
    emission = ExogenousBits(3, 4, 2, 0.0, 0.5)
    quiet = ExogenousBits(3, 4, 2, 0.0, 0.0)
    states = np.zeros(10_000, np.int64)
    noise = [
        (emission.sample(h, states, keys(10_000)) - quiet.sample(h, states, keys(10_000))).ravel()
        for h in range(4)
    ]
    assert [n.std() for n in noise] == pytest.approx([0.5] * 4, abs=0.01)
    assert np.abs(np.corrcoef(noise) - np.eye(4)).max() < 0.02  # 0.0033 each


def bits_of(m, x):
    """The bits of the exogenous lock's observations without noise, (..., n_bits)."""
    from scipy.linalg import hadamard

    base = x @ hadamard(m.emission.dim) / m.emission.dim
    n = m.emission.emission.n_bits
    return np.rint(base[..., m.horizon + 4 : m.horizon + 4 + n]).astype(int)


def everywhere(m):
    return Policy(np.full((m.horizon, 1, m.n_actions), 1 / m.n_actions), Blind())


class Blind:
    """Sees one label only."""

    n_labels = 1

    def decode(self, levels, x):
        return np.zeros(len(x), np.int64)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_episodes_bits_hang_together_and_those_of_two_episodes_do_not(engine):
    m = exogenous_lock(6, n_actions=3, n_bits=20, flip=0.1, sigma=0.01, seed=1)
    x = make_simulator(m, 2, engine=engine).rollout([everywhere(m)], 200, "test").x
    bits = bits_of(m, x)  # (n, H + 1, 20)
    assert set(np.unique(bits)) == {0, 1}
    assert (bits[:, 1:] != bits[:, :-1]).mean() == pytest.approx(0.1, abs=0.01)  # 0.002
    assert (bits[1:] != bits[:-1]).mean() == pytest.approx(0.5, abs=0.03)  # 0.005


def test_the_environment_shows_the_same_episodes_as_the_simulator():
    m = noisy_chain(4, 12, horizon=6, seed=3)
    drawn = make_simulator(m, 9).rollout([everywhere(m)], 20, "test")
    env = BlockMDPEnv(m)
    episode_keys = rng.children(streams.episode_noise(9), 0, 20)
    for i in range(20):
        x, info = env.reset(seed=9 if i == 0 else None)
        for h in range(7):
            state = np.array([info["latent_state"]])
            assert np.array_equal(x, drawn.x[i, h])
            assert np.array_equal(x, m.emission.sample(h, state, episode_keys[i : i + 1])[0])
            if h < 6:
                x, *_, info = env.step(drawn.actions[i, h])


# --- the noisy chain ------------------------------------------------------------------------------
def test_the_right_action_goes_on_and_the_wrong_one_back_to_the_start():
    m = noisy_chain(6, 20, seed=2)
    assert (m.horizon, m.n_states, m.n_actions, m.emission.dim) == (6, 6, 2, 20)
    for h in range(6):
        for s in range(6):
            leads = sorted(m.transitions[h, s].argmax(axis=1).tolist())
            assert leads == sorted([0, min(s + 1, 5)])
    assert set(np.unique(m.transitions)) == {0.0, 1.0}
    chains = [noisy_chain(6, 6, seed=seed).transitions[0] for seed in range(80)]
    right = [P[np.arange(5), 1, np.arange(1, 6)] for P in chains]
    assert np.mean(right) == pytest.approx(0.5, abs=0.12)  # 0.025


@pytest.mark.parametrize("K", [1, 2, 20])
def test_the_chain_can_pay_once_in_as_many_levels_as_states(K):
    assert noisy_chain(K, 64).optimal_value() == 1.0
    assert noisy_chain(K, 64, horizon=K + 3).optimal_value() == 4.0
    m = noisy_chain(K, 64)
    assert (m.expected_rewards.sum(axis=(0, 2)) > 0).tolist() == [False] * (K - 1) + [True]


def test_the_states_code_stands_at_its_places_whatever_the_noise():
    m = noisy_chain(5, 30, seed=1)
    places = m.emission.places
    for s in range(5):
        x = m.sample(3, s, 500)
        assert x.dtype == np.int8
        assert np.array_equal(x[:, places], np.tile(np.eye(5, dtype=np.int8)[s], (500, 1)))
    assert sorted(places.tolist()) != list(range(5))


def test_other_bits_are_markov_chains_with_their_own_rates_and_look_alike_at_all_levels():
    m = noisy_chain(4, 100, horizon=8, seed=1)
    e, n = m.emission, 20_000
    noise = np.setdiff1d(np.arange(100), e.places)
    rise, fall = e.rise[noise], e.fall[noise]
    assert min(rise.min(), fall.min()) >= 0.1
    assert max(rise.max(), fall.max()) <= 0.9
    assert np.concatenate([rise, fall]).mean() == pytest.approx(0.5, abs=0.08)  # 0.017
    x = [e.sample(h, np.zeros(n, np.int64), keys(n))[:, noise] for h in range(9)]
    for h in range(9):
        assert x[h].mean(axis=0) == pytest.approx(rise / (rise + fall), abs=0.025)  # 0.0035 each
    for h in range(8):
        zero, after = x[h] == 0, x[h + 1]
        measured = (after * zero).sum(axis=0) / zero.sum(axis=0)
        assert measured == pytest.approx(rise, abs=0.07)  # 0.011 at most
        measured = ((1 - after) * ~zero).sum(axis=0) / (~zero).sum(axis=0)
        assert measured == pytest.approx(fall, abs=0.07)


def test_compiled_noise_is_the_interpreted_noise():
    g = np.random.default_rng(0)
    start, rise, fall = g.uniform(0, 1, (3, 17))
    some = keys(9)
    with np.errstate(over="ignore"):
        for level in (0, 1, 12):
            arguments = (some, level, start, rise, fall)
            assert np.array_equal(markov_bits(*arguments), interpreted(markov_bits)(*arguments))
            assert np.array_equal(branches(some, level), interpreted(branches)(some, level))
            one_by_one = [int(rng.child(key, level)) for key in some]
            assert branches(some, level).tolist() == one_by_one


# --- learners on noise that hangs together --------------------------------------------------------
AGENTS = {
    "latent": lambda: Tabular(OracleQ(lr=0.3, bonus=0.05)),
    "UCBVI": lambda: Tabular(UCBVI(bonus=0.05)),
    "URL": lambda: URL(batch=30, iterations=2),
    "URL, retraining": lambda: URL(batch=10, iterations=1, retrain_every=20),
    "URL, a decoder a level": lambda: URL(batch=10, iterations=1, pool_levels=False, online=False),
    "PCID": lambda: PCID(n=60, min_cluster=5),
}


@pytest.mark.parametrize("name", ["ExogenousLock", "NoisyChain"])
@pytest.mark.parametrize("agent", AGENTS)
def test_every_engine_gives_an_agent_the_same(agent, name):
    make, kwargs = PROBLEMS[name]
    mdp = make(**kwargs, seed=1)
    agents = [AGENTS[agent]().fit(mdp, 60, seed=3, engine=engine) for engine in ENGINES]
    assert agents[0].returns_.shape == (60,)
    for other in agents[1:]:
        assert np.array_equal(other.returns_, agents[0].returns_)
        assert np.array_equal(other.policy_, agents[0].policy_)
        assert other.ledger_ == agents[0].ledger_


def test_every_engine_gives_a_learner_on_observations_the_same():
    mdp = noisy_chain(3, 7, seed=1)
    agents = [
        Tabular(OracleQ(lr=0.3), on="observation").fit(mdp, 300, seed=3, engine=engine)
        for engine in ENGINES
    ]
    for other in agents[1:]:
        assert np.array_equal(other.returns_, agents[0].returns_)
    x = np.concatenate([mdp.sample(1, s, 50) for s in range(3)])
    actions = [[agent.act(v, 1) for v in x] for agent in agents]
    assert actions[0] == actions[1] == actions[2]


def test_with_the_states_given_both_are_opened():
    for mdp, episodes in ((exogenous_lock(5, seed=2), 400), (noisy_chain(10, 64, seed=2), 1500)):
        agent = Tabular(UCBVI(bonus=0.0)).fit(mdp, episodes, seed=0)
        assert agent.value() == 1.0


@pytest.mark.paper
def test_most_locks_of_digits_are_opened_with_images_never_seen():
    near = 0
    for seed in range(20):
        agent = URL(oracles.images(), batch=1000, iterations=1)
        agent.fit(lock_digits(10, seed=seed), 50_000, seed=seed)
        others = lock_digits(10, images="test", seed=seed)
        near += agent.value(on=others) >= 0.9 * others.optimal_value()
    assert near >= 18
