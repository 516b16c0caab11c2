"""Other problems: random ones, handwritten digits, and noise that is correlated over time."""

from __future__ import annotations

import inspect
import itertools
import pickle

import gymnasium as gym
import numpy as np
import pytest
from helpers import python
from sklearn.datasets import load_digits

from blockmdp import (
    PCID,
    PSRL,
    UCBVI,
    URL,
    Bits,
    BlockMDP,
    OneHotBernoulli,
    OnlineURL,
    OracleQ,
    Tabular,
    bidirectional_lock,
    deep_sea,
    exogenous_lock,
    lock_bernoulli,
    lock_digits,
    measures,
    multi_maze,
    noisy_chain,
    noisy_lock,
    oracles,
    random_block_mdp,
    river_swim,
    rng,
    streams,
    tasid_lock,
)
from blockmdp.decoders import constant_decoder
from blockmdp.emissions import Digits, ExogenousBits, MarkovBits, branches, markov_bits
from blockmdp.envs import BlockMDPEnv, mdp_of
from blockmdp.envs.maze import Mazes, random_walks
from blockmdp.envs.noisy import NOISES
from blockmdp.jit import interpreted
from blockmdp.policy import Policy
from blockmdp.simulators import make_simulator

ENGINES = ("compiled", "interpreted", "stepwise")
PROBLEMS = {
    "RandomBlockMDP": (random_block_mdp, {"horizon": 3}),
    "DeepSea": (deep_sea, {"size": 4}),
    "LockDigits": (lock_digits, {"horizon": 3}),
    "ExogenousLock": (exogenous_lock, {"horizon": 3, "n_actions": 3, "n_bits": 2}),
    "NoisyLock": (noisy_lock, {"horizon": 3, "noise": "outliers"}),
    "NoisyChain": (noisy_chain, {"n_states": 3, "n_bits": 10}),
    "TasidLock": (tasid_lock, {"horizon": 3, "n_actions": 3}),
    "BidirectionalLock": (bidirectional_lock, {"horizon": 3, "n_actions": 6}),
}


def keys(n, seed=0):
    return rng.children(rng.root(seed), 0, n)


# --- what all have in common ----------------------------------------------------------------------
def test_the_same_seed_gives_the_same_problem_and_another_seed_another():
    for name, (make, kwargs) in PROBLEMS.items():
        one, same, other = (make(**kwargs, seed=s) for s in (1, 1, 2))
        for field in ("initial", "transitions", "rewards", "reward_probability"):
            assert np.array_equal(getattr(one, field), getattr(same, field))
        assert not np.array_equal(one.transitions, other.transitions)
        for h, s in itertools.product(range(one.horizon + 1), range(one.n_states)):
            assert np.array_equal(one.sample(h, s, 20), same.sample(h, s, 20))
        assert one.name == name
        assert repr(one) == repr(same)


def test_a_pickled_problem_is_the_same_problem():
    for make, kwargs in PROBLEMS.values():
        mdp = make(**kwargs, seed=3)
        copy = pickle.loads(pickle.dumps(mdp))
        assert np.array_equal(copy.transitions, mdp.transitions)
        assert np.array_equal(copy.rewards, mdp.rewards)
        assert copy.emission.per_episode == mdp.emission.per_episode
        assert np.array_equal(copy.sample(2, 1, 20), mdp.sample(2, 1, 20))


def test_gymnasium_makes_the_same_problem():
    for name, (make, kwargs) in PROBLEMS.items():
        env = gym.make(f"blockmdp/{name}-v0", seed=5, **kwargs)
        assert np.array_equal(mdp_of(env).transitions, make(**kwargs, seed=5).transitions)


def test_the_defaults_make_a_problem_that_can_be_played():
    for name in PROBLEMS:
        env = gym.make(f"blockmdp/{name}-v0")
        x, _ = env.reset(seed=0)
        assert env.observation_space.contains(x)
        assert 0 < mdp_of(env).optimal_value() <= (5 if name == "BidirectionalLock" else 1)
        envs = gym.make_vec(f"blockmdp/{name}-v0", num_envs=2)
        assert envs.reset(seed=0)[0].shape == (2, *x.shape)


def test_a_study_can_name_a_problem():
    from blockmdp.experiments.catalogue import CATALOGUE
    from blockmdp.experiments.parts import build, complete

    for make, kwargs in PROBLEMS.values():
        assert CATALOGUE["problem"][make.__name__] == "blockmdp.envs"
        config = complete("problem", {"name": make.__name__, **kwargs}, "problem")
        built = build("problem", config, seed=4)
        assert np.array_equal(built.transitions, make(**kwargs, seed=4).transitions)


WRONG = [
    (deep_sea, {"size": 1}, "size must be an integer >= 2"),
    (river_swim, {"n_states": 1}, "n_states must be an integer >= 2"),
    (random_block_mdp, {"successors": 0}, "successors must be an integer >= 1"),
    (random_block_mdp, {"paying": 0.0}, r"paying must be a number in \(0, 1\], got 0.0"),
    (random_block_mdp, {"paying": float("nan")}, r"paying must be a number in \(0, 1\]"),
    (random_block_mdp, {"horizon": 0}, "horizon must be an integer >= 1"),
    (random_block_mdp, {"emission": OneHotBernoulli(4, 2)}, "emission has 4 latent states"),
    (lock_digits, {"images": "both"}, "images must be 'train', 'test' or 'all', got 'both'"),
    (lock_digits, {"switch": 1.5}, r"switch must be a number in \[0, 1\]"),
    (exogenous_lock, {"n_actions": 2}, "n_actions must be an integer >= 3"),
    (exogenous_lock, {"flip": 1.1}, r"flip must be a number in \[0, 1\], got 1.1"),
    (exogenous_lock, {"sigma": -1.0}, "sigma must be a number >= 0"),
    (noisy_lock, {"noise": "odd"}, "noise must be one of 'round', .*, got 'odd'"),
    (noisy_lock, {"sigma": 0.0}, "sigma must be a number > 0"),
    (noisy_lock, {"dim": 2}, "dim must be an integer >= 3"),
    (exogenous_lock, {"n_bits": 0.5}, "n_bits must be an integer"),
    (noisy_chain, {"n_bits": 19}, "n_bits must be at least n_states = 20, got 19"),
    (multi_maze, {"horizon": 15}, "horizon must be an integer >= 16, got 15"),
    (multi_maze, {"n_distractors": -1}, "n_distractors must be an integer >= 0, got -1"),
    (Mazes, {"n_distractors": 1, "controlled": 2}, "controlled must be from 0 to .* = 1, got 2"),
    (bidirectional_lock, {"horizon": 1}, "horizon must be an integer >= 2"),
    (tasid_lock, {"sigma": -1.0}, "sigma must be a number >= 0"),
    (noisy_chain, {"horizon": 19}, "horizon must be at least n_states = 20, .* got 19"),
    (Digits, {"digits": [1, 1]}, "digits must be different"),
    (Digits, {"digits": [10]}, "digits must be from 0 to 9"),
    (MarkovBits, {"places": [0, 0], "rise": [0.5] * 3, "fall": [0.5] * 3}, "different integers"),
    (MarkovBits, {"places": [3], "rise": [0.5] * 3, "fall": [0.5] * 3}, "from 0 to 2"),
    (
        MarkovBits,
        {"places": [0], "rise": [0.5] * 3, "fall": [0.5] * 2},
        "vectors of the same length",
    ),
    (
        MarkovBits,
        {"places": [0], "rise": [0.5, 2.0], "fall": [0.5] * 2},
        r"rise\[1\] must be in \[0, 1\], got 2.0",
    ),
    (MarkovBits, {"places": [0], "rise": [0.0] * 2, "fall": [0.0] * 2}, "bit 1 never changes"),
]


def test_a_wrong_argument_raises_with_its_name():
    for make, kwargs, message in WRONG:
        with pytest.raises(ValueError, match=message):
            make(**kwargs)


@pytest.mark.parametrize("name", PROBLEMS)
def test_whatever_is_no_number_is_refused_with_the_name_of_the_argument(name):
    make, kwargs = PROBLEMS[name]
    defaults = {k: each.default for k, each in inspect.signature(make).parameters.items()}
    numbers = [k for k, value in (defaults | kwargs).items() if type(value) in (int, float)]
    assert "seed" in numbers
    for argument in numbers:
        for wrong in ("1", [1], float("nan"), 10**400, -(10**400)):
            with pytest.raises(ValueError, match=argument):
                make(**kwargs | {argument: wrong})


# --- random problems ------------------------------------------------------------------------------
def test_an_action_leads_to_the_given_number_of_states():
    for S, k in ((5, 1), (5, 2), (5, 5), (1, 1), (30, 3)):
        m = random_block_mdp(4, S, 3, successors=k, seed=2)
        assert ((m.transitions > 0).sum(axis=3) == k).all()
        assert m.initial[0] == 1
        assert m.emission.dim == S + 4


def test_successors_and_their_probabilities_are_uniform():
    m = random_block_mdp(50, 10, 20, successors=3, seed=0)
    P = m.transitions
    share = (P > 0).mean(axis=(0, 1, 2))
    assert share == pytest.approx(np.full(10, 0.3), abs=0.025)  # standard error 0.0046
    p = P[P > 0]  # one of three uniform Dirichlet weights is Beta(1, 2), with variance 1/18
    assert p.mean() == pytest.approx(1 / 3)
    assert p.var() == pytest.approx(1 / 18, abs=0.003)


def test_the_given_fraction_of_reachable_actions_pays():
    for paying, seed in itertools.product((1e-9, 0.05, 0.5, 1.0), range(3)):
        m = random_block_mdp(6, 8, 3, paying=paying, seed=seed)
        reachable = m.reachability()[:-1] > 0  # (H, S)
        r = m.expected_rewards
        n = 3 * reachable.sum()
        assert (r > 0).sum() == max(round(paying * n), 1)
        assert (r >= 0).all()
        assert (r[~reachable] == 0).all()


def test_the_largest_value_of_a_reachable_state_is_one():
    settings = ({}, {"successors": 1}, {"paying": 1e-9}, {"n_states": 40})
    for kwargs, seed in itertools.product(settings, range(4)):
        m = random_block_mdp(**kwargs, seed=seed)
        values = m.optimal_values()[m.reachability() > 0]
        assert values.max() == pytest.approx(1)
        assert 0 < m.optimal_value() <= 1 + 1e-9
        if kwargs == {"successors": 1}:  # deterministic
            assert m.optimal_value() == pytest.approx(1)


def test_a_random_problem_can_have_any_emission():
    emission = OneHotBernoulli(5, 3)
    m = random_block_mdp(emission=emission)
    assert m.emission is emission
    agent = Tabular(UCBVI(bonus=0.05)).fit(m, 3000, seed=0)
    assert agent.value() > 0.95 * m.optimal_value()


# --- DeepSea and RiverSwim ------------------------------------------------------------------------
def dive(m, actions):
    """The columns and the return of a sequence of actions."""
    column, columns, total = 0, [0], 0.0
    for row, a in enumerate(actions):
        column = int(m.transitions[row, column, a].argmax())
        total += m.rewards[row, columns[-1], a, column]
        columns.append(column)
    return columns, total


def test_only_the_diver_who_always_moves_right_finds_the_treasure():
    N = 5
    m = deep_sea(N, seed=2)
    for actions in itertools.product(range(2), repeat=N):
        columns, total = dive(m, actions)
        moves = np.diff(columns)
        rights = [
            m.transitions[row, column, a, min(column + 1, N - 1)] == 1.0
            for row, (column, a) in enumerate(zip(columns, actions))
        ]
        assert total == pytest.approx(all(rights) - 0.01 / N * sum(rights))
        assert ((moves == 1) | (moves == -1) | (moves == 0)).all()
    assert m.optimal_value() == pytest.approx(0.99)
    assert (m.transitions.argmax(axis=3)[:, :, 0] != m.transitions.argmax(axis=3)[:, :, 1]).all()


def test_deep_sea_is_solved_by_a_learner_and_behind_noisy_observations():
    for size in (10, 20):
        for agent in (Tabular(UCBVI(bonus=0.0)), OnlineURL()):
            agent.fit(deep_sea(size, seed=3), 400, seed=0)
            found = agent.returns_ > 0.5
            assert (np.cumsum(found) > 0.1 * np.arange(1, 401)).any()  # as bsuite counts


def test_river_swim_pays_upstream():
    m = river_swim()
    assert np.allclose(m.transitions[0].sum(axis=2), 1.0)
    assert m.transitions[3, 2, 1].tolist() == pytest.approx([0, 0.05, 0.6, 0.35, 0, 0])
    drift = np.zeros((20, 6, 2))
    drift[:, :, 0] = 1.0
    assert m.value(drift) == pytest.approx(0.005)
    assert m.value(drift[:, :, ::-1]) > 0.1


# --- digits ---------------------------------------------------------------------------------------
def test_the_lock_of_digits_has_the_dynamics_of_the_paper():
    one, two = lock_digits(6, 0.3, seed=4), lock_bernoulli(6, 0.3, seed=4)
    assert np.array_equal(one.transitions, two.transitions)
    assert np.array_equal(one.rewards, two.rewards)
    assert one.optimal_value() == 0.5


def test_train_and_test_images_are_disjoint_and_together_all_images():
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


def test_train_and_test_locks_have_the_same_combination_and_digits():
    train, test = (lock_digits(5, images=images, seed=7) for images in ("train", "test"))
    assert train.emission.digits == test.emission.digits
    assert np.array_equal(train.transitions, test.transitions)
    assert len({lock_digits(2, seed=s).emission.digits for s in range(6)}) == 6


def test_observations_of_a_state_are_all_images_of_its_digit_and_no_others():
    m = lock_digits(3, seed=1)
    for s in range(3):
        x = m.sample(1, s, 3000)
        assert x.dtype == np.float32
        assert {v.tobytes() for v in x} == {v.tobytes() for v in m.emission.images[s]}


@pytest.mark.integration
def test_scikit_learn_is_imported_only_for_digits():
    code = (
        "import sys, blockmdp, blockmdp.envs\n"
        "before = 'sklearn' in sys.modules\n"
        "blockmdp.lock_digits(2)\n"
        "print(before, 'sklearn' in sys.modules)"
    )
    assert python(code).split() == ["False", "True"]


def test_a_decoder_learnt_from_some_images_decodes_others():
    agent = URL(batch=100, iterations=1).fit(lock_digits(3, seed=1), 3_000, seed=0)
    assert agent.value() > 0.45
    unseen = lock_digits(3, images="test", seed=1)
    assert agent.value(on=unseen) > 0.45


# --- the exogenous lock ---------------------------------------------------------------------------
def test_two_actions_enter_the_branches_and_one_per_level_stays_in_them():
    for H in (1, 2, 7):
        m = exogenous_lock(H, n_actions=5, seed=3)
        P = m.transitions
        assert set(np.unique(P)) == {0.0, 1.0}
        # at the start: one action to a, one to b, three to the dead state
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


def test_bits_start_fair_and_flip_with_their_probability():
    for flip in (0.0, 0.1, 0.5, 1.0):
        emission = ExogenousBits(3, 5, 10, flip, 0.0)
        x = [emission.sample(h, np.full(10_000, 1), keys(10_000))[:, 8:] for h in range(5)]
        for h in range(5):
            assert x[h].mean(axis=0) == pytest.approx(np.full(10, 0.5), abs=0.03)  # error 0.005
            for later in range(h + 1, 5):
                expected = (1 - (1 - 2 * flip) ** (later - h)) / 2
                # standard error at most 0.0016
                assert (x[h] != x[later]).mean() == pytest.approx(expected, abs=0.008)
        between = np.corrcoef(np.hstack([x[0], x[4]]).T)[:10, :10]
        assert np.abs(between - np.eye(10)).max() < 0.05  # different bits are independent


def test_gaussian_noise_is_independent_at_every_level():
    emission = ExogenousBits(3, 4, 2, 0.0, 0.5)
    quiet = ExogenousBits(3, 4, 2, 0.0, 0.0)
    states = np.zeros(10_000, np.int64)
    noise = [
        (emission.sample(h, states, keys(10_000)) - quiet.sample(h, states, keys(10_000))).ravel()
        for h in range(4)
    ]
    assert [n.std() for n in noise] == pytest.approx([0.5] * 4, abs=0.01)
    assert np.abs(np.corrcoef(noise) - np.eye(4)).max() < 0.02  # standard error 0.0033


def bits_of(m, x):
    """Return the bits in observations of the exogenous lock, without noise, (..., n_bits)."""
    from scipy.linalg import hadamard

    base = x @ hadamard(m.emission.dim) / m.emission.dim
    n = m.emission.emission.n_bits
    return np.rint(base[..., m.horizon + 4 : m.horizon + 4 + n]).astype(int)


def random_policy(m):
    return Policy(np.full((m.horizon, 1, m.n_actions), 1 / m.n_actions), constant_decoder())


def test_bits_are_correlated_within_an_episode_and_independent_between_episodes():
    m = exogenous_lock(6, n_actions=3, n_bits=20, flip=0.1, sigma=0.01, seed=1)
    for engine in ENGINES:
        x = make_simulator(m, 2, engine=engine).rollout([random_policy(m)], 200, "test").x
        bits = bits_of(m, x)  # (n, H + 1, 20)
        assert set(np.unique(bits)) == {0, 1}
        # standard errors 0.002 and 0.005
        assert (bits[:, 1:] != bits[:, :-1]).mean() == pytest.approx(0.1, abs=0.01)
        assert (bits[1:] != bits[:-1]).mean() == pytest.approx(0.5, abs=0.03)


def test_the_environment_shows_the_same_episodes_as_the_simulator():
    m = noisy_chain(4, 12, horizon=6, seed=3)
    drawn = make_simulator(m, 9).rollout([random_policy(m)], 20, "test")
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
def test_the_right_action_moves_on_and_the_wrong_one_leads_back_to_the_start():
    m = noisy_chain(6, 20, seed=2)
    assert (m.horizon, m.n_states, m.n_actions, m.emission.dim) == (6, 6, 2, 20)
    for h in range(6):
        for s in range(6):
            leads = sorted(m.transitions[h, s].argmax(axis=1).tolist())
            assert leads == sorted([0, min(s + 1, 5)])
    assert set(np.unique(m.transitions)) == {0.0, 1.0}
    chains = [noisy_chain(6, 6, seed=seed).transitions[0] for seed in range(80)]
    right = [P[np.arange(5), 1, np.arange(1, 6)] for P in chains]
    assert np.mean(right) == pytest.approx(0.5, abs=0.12)  # standard error 0.025


def test_the_chain_can_pay_once_in_as_many_levels_as_states():
    for K in (1, 2, 20):
        assert noisy_chain(K, 64).optimal_value() == 1.0
        assert noisy_chain(K, 64, horizon=K + 3).optimal_value() == 4.0
        m = noisy_chain(K, 64)
        assert (m.expected_rewards.sum(axis=(0, 2)) > 0).tolist() == [False] * (K - 1) + [True]


def test_the_code_of_the_state_is_at_its_places():
    m = noisy_chain(5, 30, seed=1)
    places = m.emission.places
    for s in range(5):
        x = m.sample(3, s, 500)
        assert x.dtype == np.int8
        assert np.array_equal(x[:, places], np.tile(np.eye(5, dtype=np.int8)[s], (500, 1)))
    assert sorted(places.tolist()) != list(range(5))


def test_other_bits_are_stationary_markov_chains_with_their_own_rates():
    m = noisy_chain(4, 60, horizon=5, seed=1)
    e, n = m.emission, 10_000
    noise = np.setdiff1d(np.arange(60), e.places)
    rise, fall = e.rise[noise], e.fall[noise]
    assert min(rise.min(), fall.min()) >= 0.1
    assert max(rise.max(), fall.max()) <= 0.9
    assert np.concatenate([rise, fall]).mean() == pytest.approx(0.5, abs=0.08)  # error 0.022
    x = [e.sample(h, np.zeros(n, np.int64), keys(n))[:, noise] for h in range(6)]
    for h in range(6):
        assert x[h].mean(axis=0) == pytest.approx(rise / (rise + fall), abs=0.03)  # error 0.005
    for h in range(5):
        zero, after = x[h] == 0, x[h + 1]
        measured = (after * zero).sum(axis=0) / zero.sum(axis=0)
        assert measured == pytest.approx(rise, abs=0.07)  # error at most 0.016
        measured = ((1 - after) * ~zero).sum(axis=0) / (~zero).sum(axis=0)
        assert measured == pytest.approx(fall, abs=0.07)


def test_compiled_noise_equals_interpreted_noise():
    g = np.random.default_rng(0)
    start, rise, fall = g.uniform(0, 1, (3, 17))
    some = keys(9)
    for level in (0, 1, 12):
        arguments = (some, level, start, rise, fall)
        assert np.array_equal(markov_bits(*arguments), interpreted(markov_bits)(*arguments))
        assert np.array_equal(branches(some, level), interpreted(branches)(some, level))
        assert branches(some, level).tolist() == [int(rng.key(key, level)) for key in some]
        again = np.array([0, 0, 1, 0, 0, 2, 2, 2])  # a chain is the same wherever its key is
        repeated = markov_bits(some[again], *arguments[1:])
        assert np.array_equal(repeated, markov_bits(*arguments)[again])


# --- agents on correlated noise -------------------------------------------------------------------
AGENTS = [
    lambda: Tabular(OracleQ(lr=0.3, bonus=0.05)),
    lambda: Tabular(UCBVI(bonus=0.05)),
    lambda: URL(batch=30, iterations=2),
    lambda: URL(batch=10, iterations=1, retrain_every=20),
    lambda: URL(batch=10, iterations=1, pool_levels=False),
    lambda: PCID(n=60, min_cluster=5),
]


def test_every_engine_gives_an_agent_the_same_results():
    for name in ("ExogenousLock", "NoisyChain"):
        make, kwargs = PROBLEMS[name]
        mdp = make(**kwargs, seed=1)
        for make_agent in AGENTS:
            agents = [make_agent().fit(mdp, 25, seed=3, engine=engine) for engine in ENGINES]
            assert agents[0].returns_.shape == (25,)
            for other in agents[1:]:
                assert np.array_equal(other.returns_, agents[0].returns_)
                assert np.array_equal(other.policy_.pi, agents[0].policy_.pi)
                assert other.ledger_ == agents[0].ledger_


def test_every_engine_gives_a_learner_on_observations_the_same_results():
    mdp = noisy_chain(3, 7, seed=1)
    agents = [
        Tabular(OracleQ(lr=0.3), on="observation").fit(mdp, 300, seed=3, engine=engine)
        for engine in ENGINES
    ]
    for other in agents[1:]:
        assert np.array_equal(other.returns_, agents[0].returns_)
    x = np.concatenate([mdp.sample(1, s, 50) for s in range(3)])
    actions = [agent.act(x, 1).tolist() for agent in agents]
    assert actions[0] == actions[1] == actions[2]


def test_both_problems_are_solved_on_latent_states():
    for mdp, episodes in ((exogenous_lock(5, seed=2), 400), (noisy_chain(10, 64, seed=2), 1500)):
        agent = Tabular(UCBVI(bonus=0.0)).fit(mdp, episodes, seed=0)
        assert agent.value() == 1.0


# --- mazes and locks among distractors ------------------------------------------------------------
def test_a_maze_has_four_rooms_and_a_move_into_a_wall_does_nothing() -> None:
    m = multi_maze(0)
    assert (m.n_states, m.n_actions, m.emission.dim, m.stationary) == (68, 4, 121, True)
    pictures = [m.sample(0, s, 1)[0].reshape(11, 11) for s in range(68)]
    walls = np.logical_and.reduce(pictures)
    assert (~walls).sum() == 68
    assert [walls[door] for door in ((2, 5), (5, 2), (5, 8), (8, 5))] == [False] * 4
    assert walls[5].sum() == 9
    where = [tuple(np.argwhere(picture & ~walls)[0]) for picture in pictures]
    for s, (row, column) in enumerate(where):
        for a, (down, right) in enumerate([(-1, 0), (0, 1), (1, 0), (0, -1)]):
            there = (row + down, column + right)
            if walls[there]:
                there = (row, column)
            assert where[m.transitions[0, s, a].argmax()] == there


def test_the_far_corner_of_a_maze_is_16_steps_away() -> None:
    for horizon in (16, 30):
        m = multi_maze(2, horizon)
        assert m.optimal_value() == pytest.approx(1.0)
        assert m.reached()[16, -1]
        assert not m.reached()[:16, -1].any()


def test_other_walkers_of_a_maze_ignore_the_agent() -> None:
    m = multi_maze(3, seed=1)
    assert {multi_maze(3, seed=seed).emission.controlled for seed in range(20)} == {0, 1, 2, 3}
    one, other = (
        m.emission.sample(7, np.full(50, s), keys(50)).reshape(50, 4, 121) for s in (3, 40)
    )
    differ = (one != other).any(axis=(0, 2))
    assert differ.tolist() == [i == m.emission.controlled for i in range(4)]
    whole = Mazes(3.0, float(m.emission.controlled))  # type: ignore[arg-type]
    again = whole.sample(7, np.full(50, 3), keys(50))
    assert np.array_equal(again.reshape(50, 4, 121), one)


def test_other_walkers_of_a_maze_move_at_random() -> None:
    m = multi_maze(1)
    moves = m.transitions[0].argmax(axis=2)
    at = [random_walks(keys(20_000), level, 1, moves)[:, 0] for level in (4, 5)]
    counts = np.zeros((68, 68))
    np.add.at(counts, tuple(at), 1)
    shares = counts / counts.sum(axis=1, keepdims=True)
    assert np.abs(shares - m.transitions[0].mean(axis=1)).max() < 0.12  # standard error 0.025
    assert np.bincount(at[1], minlength=68) / 20_000 == pytest.approx(1 / 68, abs=0.005)
    slow = interpreted(random_walks)(keys(30), 5, 3, moves)
    assert np.array_equal(slow, random_walks(keys(30), 5, 3, moves))


def test_one_of_two_locks_pays_more() -> None:
    better = set()
    for seed in range(10):
        m = bidirectional_lock(6, seed=seed)
        assert m.optimal_value() == pytest.approx(5 - 4 / 5)
        pays = m.rewards[-1].max(axis=(0, 1))
        better.add(tuple(pays))
        assert sorted(pays) == [0, 0, 0, 2, 2, 5, 5]
        assert m.transitions[0, 0, :5, 1].min() == m.transitions[0, 0, 5:, 4].min() == 1.0
        for h in range(1, 6):
            for live in (1, 2, 4, 5):
                dead = 3 if live < 3 else 6
                assert (m.transitions[h, live, :, dead] == 1).sum() == 9
                good = m.transitions[h, live, :, dead].argmin()
                assert m.transitions[h, live, good, dead - 2 : dead].tolist() == [0.5, 0.5]
                assert (m.transitions[h, dead, :, dead] == 1).all()
    assert len(better) == 2


def test_the_bits_of_tasids_lock_are_fresh_at_each_level() -> None:
    m = tasid_lock(4, sigma=0.0)
    assert m.emission.dim == 16
    x = [m.emission.emission.sample(h, np.zeros(2000, int), keys(2000))[:, 8:] for h in (1, 2)]
    assert x[0].mean(axis=0) == pytest.approx(0.5, abs=0.06)
    assert (x[0] == x[1]).mean(axis=0) == pytest.approx(0.5, abs=0.06)  # standard error 0.011


# --- STEEL's test of success ----------------------------------------------------------------------
def test_a_chain_is_recovered_only_with_the_right_decoder_and_transitions() -> None:
    m = noisy_chain(4, 16, seed=1)
    agent = OnlineURL(learner=UCBVI(bonus=0.1), pool_levels=True).fit(m, 200, seed=1)
    assert agent.recovers()
    counts, decoder = agent.tables_.m, agent.decoder_
    wrong = counts.copy()
    wrong[:, 0] = 0  # an action that was never tried
    assert not measures.recovers(m, decoder, wrong)
    assert not measures.recovers(m, decoder, np.roll(counts, 1, axis=3))
    more = np.pad(counts, ((0, 0), (0, 2), (0, 0), (0, 2)))  # labels that nothing has
    assert measures.recovers(m, decoder.widened(6), more)
    assert not measures.recovers(m, constant_decoder(), counts[:, :1, :, :1])
    assert measures.recovers(m, decoder, counts.sum(axis=0, keepdims=True))
    short = OnlineURL(learner=UCBVI(bonus=0.1), pool_levels=True).fit(m, 2, seed=1)
    assert not short.recovers()
    assert not agent.recovers(on=noisy_chain(4, 16, seed=2))


def test_a_lock_with_a_decoder_for_each_level_is_recovered_level_by_level() -> None:
    m = bidirectional_lock(2, n_actions=4, swap=0.0, seed=0)
    agent = OnlineURL(learner=UCBVI(bonus=1.0, v_max=5.0), pool_levels=False).fit(m, 100, seed=0)
    assert agent.recovers()
    assert not measures.recovers(m, agent.decoder_, agent.tables_.m.sum(axis=0, keepdims=True))


def test_recovers_names_a_wrong_argument() -> None:
    agent = OnlineURL().fit(noisy_chain(3, 8), 5)
    for samples in (0, -1, 2.5):
        with pytest.raises(ValueError, match=f"samples must be an integer >= 1, got {samples}"):
            agent.recovers(samples=samples)
        with pytest.raises(ValueError, match=f"samples must be an integer >= 1, got {samples}"):
            agent.value(samples)
    for tolerance in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"tolerance must be a number in \[0, 1\], got "):
            agent.recovers(tolerance)


def test_a_decoder_refuses_observations_of_another_size() -> None:
    m = lock_bernoulli(4)
    probabilities = np.random.default_rng(0).random((3, 5000))
    wide = BlockMDP(m.initial, m.transitions, m.rewards, 0.5, emission=Bits(probabilities))
    agent = OnlineURL().fit(m, 50)
    with pytest.raises(ValueError, match="5000 numbers, but the decoder learnt from 7"):
        agent.recovers(on=wide)
    with pytest.raises(ValueError, match="5000 numbers, but the decoder learnt from 7"):
        measures.confusion(wide, agent.decoder_)
    with pytest.raises(ValueError, match=r"shape \(1 or 4, n_labels, 4, n_labels\) .* \(2, 2\)"):
        measures.recovers(m, agent.decoder_, np.zeros((2, 2)))


def test_labels_that_a_decoder_does_not_have_are_refused() -> None:
    class Odd:
        n_labels = 2

        def __init__(self, label: float, each: int = 1) -> None:
            self.label, self.each = label, each

        def decode(self, levels: np.ndarray, x: np.ndarray) -> np.ndarray:
            return np.full((len(x), self.each), self.label)

    m = lock_bernoulli(4)
    assert (measures.confusion(m, Odd(1))[:, :, 1] == 1.0).all()
    assert (measures.confusion(m, Odd(1.0))[:, :, 1] == 1.0).all()
    for wrong in (-1, 0.5):
        with pytest.raises(ValueError, match=rf"whole numbers >= 0, got {wrong}"):
            measures.confusion(m, Odd(wrong))
    with pytest.raises(ValueError, match=r"gave 3000 labels for 1500 observations"):
        measures.confusion(m, Odd(1, each=2), samples=100)
    with pytest.raises(ValueError, match="n_labels = 2 gave the label 2"):
        measures.confusion(m, Odd(2))


@pytest.mark.parametrize("seed", [-1, 1.5, None, "1", 2**64])
def test_seeds_of_problems_are_checked(seed) -> None:
    with pytest.raises(ValueError, match="seed must be an integer from 0 to"):
        lock_bernoulli(4, seed=seed)


def test_recovers_needs_counts_of_transitions() -> None:
    agent = OnlineURL(learner=OracleQ()).fit(noisy_chain(3, 8), 5)
    with pytest.raises(ValueError, match="recovers needs a learner that counts transitions"):
        agent.recovers()


@pytest.mark.paper
def test_most_locks_of_digits_are_solved_with_held_out_images():
    near = 0
    for seed in range(20):
        agent = URL(oracles.images(), batch=1000, iterations=1)
        agent.fit(lock_digits(10, seed=seed), 50_000, seed=seed)
        others = lock_digits(10, images="test", seed=seed)
        near += agent.value(on=others) >= 0.9 * others.optimal_value()
    assert near >= 18


# --- noisy_lock -----------------------------------------------------------------------------------
@pytest.mark.parametrize("noise", NOISES)
def test_the_likelihood_of_a_noisy_lock_tells_its_states(noise):
    m = noisy_lock(4, noise, seed=3)
    for h, s in itertools.product(range(5), range(3)):
        likely = m.emission.log_likelihood(h, m.sample(h, s, 400)).argmax(axis=1)
        assert (likely == s).mean() > 0.9
        assert abs((likely == s).mean() - _by_posterior(m, h, s)) < 0.1


def _by_posterior(m, h, s):
    """How often the most likely state is s, where states are drawn and weighed by likelihood."""
    x = np.concatenate([m.sample(h, t, 400, seed=1) for t in range(3)])
    log = m.emission.log_likelihood(h, x)
    p = np.exp(log - log.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return (p[:, s] * (log.argmax(axis=1) == s)).sum() / p[:, s].sum()


def test_noise_of_a_noisy_lock_has_the_size_it_should_have():
    def spread(noise, level=2):
        x = noisy_lock(4, noise, sigma=0.1, seed=1).sample(level, 0, 4000).astype(float)
        return np.sqrt(np.linalg.eigvalsh(np.cov(x.T)))

    assert spread("round") == pytest.approx(np.full(20, 0.1), rel=0.1)
    assert spread("direction")[-1] == pytest.approx(0.5, rel=0.1)
    assert spread("directions")[-2:] == pytest.approx([2.0, 2.0], rel=0.1)
    assert spread("correlated") == pytest.approx(0.1 * np.geomspace(0.2, 3, 20), rel=0.2)
    assert spread("by level", 1)[-1] != pytest.approx(spread("by level", 2)[-1], rel=0.05)
    x = noisy_lock(4, "outliers", seed=1)
    far = np.linalg.norm(x.sample(1, 0, 4000) - x.sample(1, 0, 4000).mean(axis=0), axis=1) > 2
    assert far.mean() == pytest.approx(0.05, abs=0.02)


def test_levels_of_a_noisy_lock_differ():
    m = noisy_lock(4, "round", seed=1)
    means = np.array([[m.sample(h, s, 400).mean(axis=0) for s in range(3)] for h in range(2)])
    assert np.abs(means[0] - means[1]).max() > 0.3


def test_a_learner_can_be_shown_the_most_likely_state():
    m = noisy_lock(4, "heavy tails", seed=2)
    agent = Tabular(PSRL(), on="likelihood").fit(m, 300, seed=2)
    assert agent.value() > 0.45
    assert agent.ledger_ == {"learn": 300}
    with pytest.raises(ValueError, match=r"needs an emission with a method log_likelihood"):
        Tabular(on="likelihood").fit(exogenous_lock(), 5)
