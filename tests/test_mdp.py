"""BlockMDP: what it rejects, that it is read-only, and its exact values against brute force."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from helpers import key_that_draws
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blockmdp import mdp, measures, random_block_mdp, rng
from blockmdp.dynamics import draw_successor, first_state, sample_reward
from blockmdp.emissions import Emission, OneHotBernoulli, PerLevel, StateAndLevel
from blockmdp.jit import interpreted
from blockmdp.mdp import BlockMDP, Successors

exact = settings(deadline=None, max_examples=30)


# --- brute force ----------------------------------------------------------------------------------
@st.composite
def distributions(draw, *shape):
    """Probabilities along the last axis; many are 0, some are 1."""
    rows, n = int(np.prod(shape[:-1], dtype=int)), shape[-1]
    row = st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=n, max_size=n).filter(any)
    weights = np.array([draw(row) for _ in range(rows)], float)
    return (weights / weights.sum(axis=1, keepdims=True)).reshape(shape)


@st.composite
def problems(draw):
    """Block MDPs so small that all trajectories and policies can be listed."""
    H, S, A = draw(
        st.sampled_from(
            [(1, 1, 1), (1, 1, 3), (1, 3, 1), (1, 3, 3), (2, 2, 2), (2, 2, 3), (2, 3, 2), (3, 2, 2)]
        )
    )
    numbers = st.sampled_from([-1.5, 0.0, 0.25, 1.0, 3.0])
    chances = st.sampled_from([0.0, 0.3, 0.5, 1.0])
    size = H * S * A * S
    rewards = draw(st.lists(numbers, min_size=size, max_size=size))
    probability = draw(st.lists(chances, min_size=size, max_size=size))
    return BlockMDP(
        draw(distributions(S)),
        draw(distributions(H, S, A, S)),
        np.reshape(rewards, (H, S, A, S)),
        np.reshape(probability, (H, S, A, S)),
        emission=OneHotBernoulli(S, 1),
    )


def trajectories(m, pi, h=0, s=None):
    """Yield (probability, states from level h on, mean reward) of each trajectory of pi."""
    if s is None:
        for first in range(m.n_states):
            if m.initial[first] > 0:
                for p, states, r in trajectories(m, pi, 0, first):
                    yield m.initial[first] * p, states, r
        return
    if h == m.horizon:
        yield 1.0, [s], 0.0
        return
    for a, t in itertools.product(range(m.n_actions), range(m.n_states)):
        p = pi[h][s][a] * m.transitions[h, s, a, t]
        if p > 0:
            r = m.rewards[h, s, a, t] * m.reward_probability[h, s, a, t]
            for q, states, later in trajectories(m, pi, h + 1, t):
                yield p * q, [s, *states], r + later


def brute_value(m, pi, h=0, s=None):
    return sum(p * r for p, _, r in trajectories(m, pi, h, s))


def brute_occupancy(m, pi):
    mu = np.zeros((m.horizon + 1, m.n_states))
    for p, states, _ in trajectories(m, pi):
        mu[np.arange(m.horizon + 1), states] += p
    return mu


def deterministic_policies(m):
    H, S, A = m.transitions.shape[:3]
    for choice in itertools.product(range(A), repeat=H * S):
        yield np.eye(A)[np.reshape(choice, (H, S))]


def policy(m, data):
    return data.draw(distributions(m.horizon, m.n_states, m.n_actions))


def close(a, b):
    return np.allclose(a, b, rtol=0, atol=1e-12)


# --- exact values ---------------------------------------------------------------------------------
@exact
@given(problems())
def test_optimal_values_are_the_best_over_all_deterministic_policies(m):
    best = np.full((m.horizon, m.n_states), -np.inf)
    for pi in deterministic_policies(m):
        for h, s in np.ndindex(best.shape):
            best[h, s] = max(best[h, s], brute_value(m, pi, h, s))
    V = m.optimal_values()
    assert V.shape == (m.horizon + 1, m.n_states)
    assert np.all(V[-1] == 0)
    assert close(V[:-1], best)
    assert close(m.optimal_value(), m.initial @ best[0])


@exact
@given(problems())
def test_the_optimal_policy_is_deterministic_and_attains_the_optimal_value(m):
    pi = m.optimal_policy()
    assert pi.shape == m.transitions.shape[:3]
    assert set(np.unique(pi)) <= {0.0, 1.0}
    assert np.all(pi.sum(axis=2) == 1)
    assert close(brute_value(m, pi), m.optimal_value())
    assert m.value(pi) == m.optimal_value()


@exact
@given(problems(), st.data())
def test_value_and_occupancy_of_a_policy_are_sums_over_trajectories(m, data):
    uniform = np.full(m.transitions.shape[:3], 1 / m.n_actions)
    assert np.array_equal(m.uniform_policy(), uniform)
    for pi in (uniform, policy(m, data)):
        assert close(m.value(pi), brute_value(m, pi))
        assert close(m.occupancy(pi), brute_occupancy(m, pi))
        assert close(m.occupancy(pi).sum(axis=1), 1)


@pytest.mark.parametrize("levels", [1, 6])
@pytest.mark.parametrize("lists", [False, True])
def test_compiled_values_equal_interpreted_ones(levels, lists, monkeypatch):
    g = np.random.default_rng(0)
    P = g.integers(3, size=(levels, 4, 3, 4)) + np.array([1, 0, 0, 0])
    P = P / P.sum(axis=-1, keepdims=True)
    after = Successors(np.broadcast_to(np.arange(4), P.shape), P) if lists else P
    rewards = g.normal(size=(levels, 4, 3, 4))
    pi = g.dirichlet(np.ones(3), size=(6, 4))

    def problem():
        return BlockMDP(
            np.full(4, 1 / 4), after, rewards, emission=OneHotBernoulli(4, 0), horizon=6
        )

    found = problem().value(pi), problem().optimal_values()
    for loop in (mdp._values_of, mdp._optimal_values, mdp._mean_after, mdp._share):
        monkeypatch.setattr(mdp, loop.__name__, interpreted(loop))
    assert problem().value(pi) == found[0]
    assert np.array_equal(problem().optimal_values(), found[1])


@exact
@given(problems())
def test_reachability_is_the_largest_occupancy_of_any_deterministic_policy(m):
    best = np.max([brute_occupancy(m, pi) for pi in deterministic_policies(m)], axis=0)
    assert close(m.reachability(), best)


@exact
@given(problems())
def test_expected_rewards_are_means_over_next_states_and_payment(m):
    for h, s, a in np.ndindex(m.transitions.shape[:3]):
        mean = sum(
            m.transitions[h, s, a, t] * m.rewards[h, s, a, t] * m.reward_probability[h, s, a, t]
            for t in range(m.n_states)
        )
        assert close(m.expected_rewards[h, s, a], mean)


def test_the_value_of_a_problem_with_one_transition_is_its_mean_reward():
    m = BlockMDP([1], [[[[1]]]], 3.0, 0.25, emission=OneHotBernoulli(1, 0))
    assert (m.horizon, m.n_states, m.n_actions) == (1, 1, 1)
    assert m.optimal_value() == m.value([[[1]]]) == 0.75
    assert m.optimal_values().tolist() == [[0.75], [0.0]]
    assert m.optimal_policy().tolist() == [[[1.0]]]
    assert m.reachability().tolist() == m.occupancy([[[1]]]).tolist() == [[1.0], [1.0]]


def test_among_equally_good_actions_the_optimal_policy_takes_the_first():
    P = np.ones((2, 1, 3, 1))
    rewards = np.array([0.0, 1.0, 1.0]).reshape(1, 1, 3, 1)
    m = BlockMDP([1.0], P, rewards, emission=OneHotBernoulli(1, 0))
    assert m.optimal_policy().argmax(axis=2).tolist() == [[1], [1]]


# --- rewards of smaller shapes --------------------------------------------------------------------
SHAPES = [(), (2,), (1,), (1, 1, 3, 1), (1, 2, 1, 1), (4, 1, 1, 1), (4, 2, 3, 2), (1, 1, 1, 2)]


def test_rewards_and_their_probabilities_broadcast_against_the_transitions():
    r = np.random.default_rng(0)
    P = r.dirichlet([1, 1], size=(4, 2, 3))
    emission = OneHotBernoulli(2, 1)
    for shape in SHAPES:
        small = r.random(shape)
        full = np.empty(P.shape)
        full[...] = small
        for a, b in (
            (
                BlockMDP([1, 0], P, small, 0.5, emission=emission),
                BlockMDP([1, 0], P, full, 0.5 * np.ones(P.shape), emission=emission),
            ),
            (
                BlockMDP([1, 0], P, 2, small, emission=emission),
                BlockMDP([1, 0], P, 2 * np.ones(P.shape), full, emission=emission),
            ),
        ):
            assert a.rewards.shape == a.reward_probability.shape == P.shape
            assert np.array_equal(a.rewards, b.rewards)
            assert np.array_equal(a.reward_probability, b.reward_probability)
            assert a.optimal_value() == b.optimal_value()


def test_a_reward_for_each_state_is_paid_on_arriving_there():
    to_one = np.zeros((1, 2, 1, 2))
    to_one[..., 1] = 1
    m = BlockMDP([1, 0], to_one, [5.0, 7.0], emission=OneHotBernoulli(2, 0))
    assert m.optimal_value() == 7.0


# --- read-only ------------------------------------------------------------------------------------
def example_problem(**changes):
    """H = 3, S = 2, A = 4."""
    r = np.random.default_rng(1)
    arguments = {
        "initial": np.array([0.25, 0.75]),
        "transitions": r.dirichlet([1, 1], size=(3, 2, 4)),
        "rewards": r.random((3, 2, 4, 2)),
        "reward_probability": r.random((3, 2, 4, 2)),
        "emission": OneHotBernoulli(2, 3),
    }
    return BlockMDP(**{**arguments, **changes})


FIELDS = ["initial", "transitions", "rewards", "reward_probability"]


def test_arrays_cannot_be_changed_or_replaced():
    m = example_problem()
    for field in (*FIELDS, "expected_rewards"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(m, field)[...] = 0.5
    for field in FIELDS:
        with pytest.raises(FrozenInstanceError):
            setattr(m, field, np.zeros(2))


def test_arguments_are_copied_and_stay_writable():
    given_arrays = {field: getattr(example_problem(), field).copy() for field in FIELDS}
    m = example_problem(**given_arrays)
    before = m.optimal_value()
    for field, array in given_arrays.items():
        kept = getattr(m, field).copy()
        array[...] = 0.125
        assert np.array_equal(getattr(m, field), kept), field
    assert m.optimal_value() == example_problem().optimal_value() == before


def test_changing_results_does_not_change_the_problem():
    m = example_problem()
    before = m.optimal_value()
    policy_before = m.optimal_policy()
    for result in (m.optimal_values(), m.optimal_policy(), m.reachability(), m.uniform_policy()):
        result[...] = 17
    assert m.optimal_value() == before
    assert np.array_equal(m.optimal_policy(), policy_before)


def test_a_pickled_problem_is_the_same_and_still_read_only():
    m = example_problem(name="Maze")
    copy = pickle.loads(pickle.dumps(m))
    assert copy.name == "Maze"
    assert copy.optimal_value() == m.optimal_value()
    for field in FIELDS:
        assert np.array_equal(getattr(copy, field), getattr(m, field))
        assert not getattr(copy, field).flags.writeable


def test_repr_names_the_problem_and_its_sizes():
    text = repr(example_problem(name="Maze"))
    for part in ("Maze", "horizon 3", "2 states", "4 actions", "OneHotBernoulli(2, 3"):
        assert part in text


# --- bad arguments --------------------------------------------------------------------------------
def changed(field, index, value):
    array = getattr(example_problem(), field).copy()
    array[index] = value
    return {field: array}


BAD = {
    "transitions of three axes": (
        {"transitions": np.ones((2, 2, 2))},
        r"transitions must have the shape \(H, S, A, S\).*\(2, 2, 2\)",
    ),
    "transitions to more states": (
        {"transitions": np.full((3, 2, 4, 3), 1 / 3)},
        r"transitions must have the shape \(H, S, A, S\).*\(3, 2, 4, 3\)",
    ),
    "no horizon": ({"transitions": np.ones((0, 2, 4, 2))}, r"transitions .*\(0, 2, 4, 2\)"),
    "no states": ({"transitions": np.ones((3, 0, 4, 0))}, r"transitions .*\(3, 0, 4, 0\)"),
    "no actions": ({"transitions": np.ones((3, 2, 0, 2))}, r"transitions .*\(3, 2, 0, 2\)"),
    "ragged transitions": ({"transitions": [[1, 0], [1]]}, "transitions must be an array of num"),
    "transitions as text": ({"transitions": "none"}, "transitions must be an array of numbers"),
    "negative transition": (
        changed("transitions", (1, 0, 2), [-0.5, 1.5]),
        r"transitions\[1, 0, 2, 0\] must be a probability, got -0.5",
    ),
    "transition not a number": (
        changed("transitions", (2, 1, 3, 1), np.nan),
        r"transitions\[2, 1, 3, 1\] must be a probability, got nan",
    ),
    "transitions short of one": (
        changed("transitions", (2, 0, 1), [0.5, 0.4]),
        r"transitions\[2, 0, 1\] must sum to 1, but sums to 0.9",
    ),
    "transitions just short of one": (
        changed("transitions", (0, 0, 0), [0.5, 0.5 - 1e-6]),
        r"transitions\[0, 0, 0\] must sum to 1, but sums to 0.999999",
    ),
    "transitions over one": (
        changed("transitions", (0, 1, 3), [1.0, 1.0]),
        r"transitions\[0, 1, 3\] must sum to 1, but sums to 2",
    ),
    "infinite transition": (
        changed("transitions", (0, 1, 3), [np.inf, 0.0]),
        r"transitions\[0, 1, 3(, 0)?\] .*inf",
    ),
    "initial of another length": (
        {"initial": [0.5, 0.25, 0.25]},
        r"initial must have the shape \(S,\) = \(2,\).*\(3,\)",
    ),
    "initial of two axes": ({"initial": [[0.5, 0.5]]}, r"initial .*\(1, 2\)"),
    "initial a number": ({"initial": 1.0}, r"initial .*\(\)"),
    "initial as text": ({"initial": ["a", "b"]}, "initial must be an array of numbers"),
    "negative initial": (
        {"initial": [1.25, -0.25]},
        r"initial\[1\] must be a probability, got -0.25",
    ),
    "initial not a number": (
        {"initial": [np.nan, 1]},
        r"initial\[0\] must be a probability, got nan",
    ),
    "initial short of one": ({"initial": [0.5, 0.25]}, r"initial must sum to 1, but sums to 0.75"),
    "reward not a number": (
        changed("rewards", (2, 1, 0, 1), np.nan),
        r"rewards\[2, 1, 0, 1\] must be finite, got nan",
    ),
    "infinite reward": (
        changed("rewards", (0, 0, 3, 0), -np.inf),
        r"rewards\[0, 0, 3, 0\] must be finite, got -inf",
    ),
    "rewards of another shape": (
        {"rewards": np.zeros((3, 2))[:, :, None]},
        r"rewards must be a number, a vector .*\(3, 2, 1\) is ambiguous",
    ),
    "rewards of too many axes": ({"rewards": np.zeros((1, 3, 2, 4, 2))}, r"rewards must have"),
    "rewards as text": ({"rewards": "many"}, "rewards must be an array of numbers"),
    "no rewards": ({"rewards": None}, "rewards"),
    "reward probability over one": (
        changed("reward_probability", (1, 1, 2, 0), 1.5),
        r"reward_probability\[1, 1, 2, 0\] must be in \[0, 1\], got 1.5",
    ),
    "negative reward probability": (
        {"reward_probability": -0.1},
        r"reward_probability\[0, 0, 0, 0\] must be in \[0, 1\], got -0.1",
    ),
    "reward probability not a number": (
        changed("reward_probability", (2, 0, 0, 1), np.nan),
        r"reward_probability\[2, 0, 0, 1\] must be in \[0, 1\], got nan",
    ),
    "reward probability of another shape": (
        {"reward_probability": [0.1, 0.2, 0.3]},
        r"reward_probability must have the shape .*\(3, 2, 4, 2\).*\(3,\)",
    ),
    "no emission": ({"emission": None}, r"emission must be .*Emission, got None"),
    "emission class": ({"emission": OneHotBernoulli}, r"emission must be .*Emission, got "),
    "emission of other states": (
        {"emission": OneHotBernoulli(3, 1)},
        "emission has 3 latent states, but transitions have 2",
    ),
    "emission of other levels": (
        {"emission": PerLevel([OneHotBernoulli(2, 1)] * 3)},
        "emission has 3 levels, but horizon 3 needs 4",
    ),
}


def test_a_bad_argument_raises_with_its_field_and_entry():
    for changes, message in BAD.values():
        with pytest.raises(ValueError, match=message):
            example_problem(**changes)


def test_the_unchanged_example_is_valid():
    assert example_problem().n_actions == 4
    levels = example_problem(emission=PerLevel([OneHotBernoulli(2, 1)] * 4))
    assert levels.emission.n_levels == 4


def test_probabilities_may_sum_to_one_up_to_rounding():
    thirds = np.full((1, 3, 1, 3), 0.333333333)
    m = BlockMDP([0.1 + 0.2, 0.3, 0.4], thirds, 0, emission=OneHotBernoulli(3, 0))
    assert m.n_states == 3


BAD_POLICIES = {
    "other shape": (np.full((3, 2, 2), 0.5), r"pi must have the shape .*\(3, 2, 4\).*\(3, 2, 2\)"),
    "one level only": (np.full((2, 4), 0.25), r"pi must have the shape .*\(3, 2, 4\).*\(2, 4\)"),
    "negative": (np.full((3, 2, 4), -0.25), r"pi\[0, 0, 0\] must be a probability, got -0.25"),
    "short of one": (np.full((3, 2, 4), 0.2), r"pi\[0, 0\] must sum to 1, but sums to 0.8"),
    "not a number": (np.full((3, 2, 4), np.nan), r"pi\[0, 0, 0\] must be a probability, got nan"),
    "text": ("left", "pi must be an array of numbers"),
}


def test_a_bad_policy_raises_with_its_entry():
    m = example_problem()
    for pi, message in BAD_POLICIES.values():
        for method in (m.value, m.occupancy):
            with pytest.raises(ValueError, match=message):
                method(pi)


# --- observations ---------------------------------------------------------------------------------
def test_samples_show_the_given_state_and_repeat_with_the_seed():
    m = example_problem(emission=OneHotBernoulli(2, 40))
    for level, state in itertools.product(range(4), range(2)):
        x = m.sample(level, state, 25, seed=3)
        assert x.shape == (25, 42)
        assert np.array_equal(x[:, :2], np.tile(np.eye(2)[state], (25, 1)))
        assert np.array_equal(x[:10], m.sample(level, state, 10, seed=3))
    bits = [m.sample(h, s, 25, seed)[:, 2:] for h in range(4) for s in range(2) for seed in (3, 4)]
    assert len({b.tobytes() for b in bits}) == 16


# --- the tables of the compiled loops -------------------------------------------------------------
BELOW_ONE = 1 - 2.0**-53


def outcome(cumulative, u):
    """Do what `draw_successor` does, for one row."""
    return int(np.sum(u >= cumulative[:-1]))


def chain(row, H=1):
    """Return a problem in which every row of probabilities is `row`."""
    S = len(row)
    P = np.broadcast_to(row, (H, S, 1, S))
    return BlockMDP(row, P, 0.0, emission=OneHotBernoulli(S, 0))


def rows(min_size=1, max_size=12):
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1.0), st.sampled_from([0.1, 1 / 3, 0.7]))
    weights = st.lists(weight, min_size=min_size, max_size=max_size).filter(any)
    return weights.map(lambda w: np.array(w) / np.sum(w))


TENTHS = np.full(10, 0.1)  # whose running sum ends below 1
TENTHS_THEN_NOTHING = np.append(TENTHS, [0.0, 0.0])
NOTHING_FIRST = np.append([0.0, 0.0], TENTHS)


@exact
@given(rows(), st.lists(st.floats(0, BELOW_ONE), max_size=5))
@example(TENTHS, [])
@example(TENTHS_THEN_NOTHING, [])
@example(NOTHING_FIRST, [])
@example(np.array([0.1] * 5 + [0.0] + [0.1] * 5 + [0.0]), [])
@example(np.array([1.0, 0.0]), [])
@example(np.array([0.0, 1.0]), [])
def test_no_uniform_number_leads_to_an_impossible_outcome(row, numbers):
    m = chain(row)
    for c in (m.dynamics.initial, m.dynamics.model[0, 0, 0, :, 0]):
        edges = c[c < 1]
        near = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
        for u in [0.0, 2.0**-53, BELOW_ONE, *near, *numbers]:
            if 0 <= u < 1:
                assert row[outcome(c, u)] > 0, (row, u)


@exact
@given(rows())
@example(TENTHS_THEN_NOTHING)
def test_every_outcome_has_its_share_of_the_unit_interval(row):
    m = chain(row)
    for c in (m.dynamics.initial, m.dynamics.model[0, 0, 0, :, 0]):
        right = np.minimum(c, 1.0)
        shares = np.diff(np.append(0.0, right))
        assert close(shares, row[: len(c)])
        assert not row[len(c) :].any()
        for s in np.flatnonzero(row):
            middle = right[s] - shares[s] / 2
            assert outcome(c, middle) == s


def test_the_largest_uniform_number_leads_to_the_last_possible_state():
    for row, last in (
        (TENTHS, 9),
        (TENTHS_THEN_NOTHING, 9),
        ([1.0, 0.0], 0),
        ([0.3, 0.7, 0.0], 1),
        ([1.0], 0),
    ):
        d = chain(np.array(row), H=3).dynamics
        assert first_state(d.initial, key_that_draws(BELOW_ONE, 0)) == last
        for h in range(3):
            e = key_that_draws(BELOW_ONE, 2 * h + 1)
            assert draw_successor(d.model, h, 0, 0, e) == last


def test_the_uniform_number_zero_leads_to_the_first_possible_state():
    for row, first in ((TENTHS, 0), (NOTHING_FIRST, 2), ([0.0, 1.0], 1)):
        d = chain(np.array(row), H=2).dynamics
        assert first_state(d.initial, key_that_draws(0.0, 0)) == first
        for h in range(2):
            assert draw_successor(d.model, h, 0, 0, key_that_draws(0.0, 2 * h + 1)) == first


def test_a_reward_is_paid_if_the_uniform_number_is_below_its_probability():
    P = np.ones((2, 1, 1, 1))
    for probability, u, paid in (
        (1.0, BELOW_ONE, 2.5),
        (0.0, 0.0, 0.0),
        (0.5, 0.5, 0.0),
        (0.5, 0.5 - 2.0**-53, 2.5),
    ):
        d = BlockMDP([1.0], P, 2.5, probability, emission=OneHotBernoulli(1, 0)).dynamics
        for h in range(2):
            e = key_that_draws(u, 2 * h + 2)
            assert sample_reward(d.model, h, 0, 0, 0, e) == paid


def test_states_and_rewards_have_the_probabilities_of_the_tables():
    m = example_problem()
    d = m.dynamics
    keys = rng.children(rng.root(8), 0, 20_000)
    first = np.bincount([first_state(d.initial, e) for e in keys], minlength=2) / len(keys)
    assert np.abs(first - m.initial).max() < 4 * 0.5 / np.sqrt(len(keys))
    after = np.array([draw_successor(d.model, 1, 0, 2, e) for e in keys])
    paid = np.array([sample_reward(d.model, 1, 0, 2, t, e) for t, e in zip(after, keys)])
    assert abs(after.mean() - m.transitions[1, 0, 2, 1]) < 4 * 0.5 / np.sqrt(len(keys))
    for t in (0, 1):
        here = paid[after == t]
        assert set(np.unique(here)) == {0.0, m.rewards[1, 0, 2, t]}
        p = m.reward_probability[1, 0, 2, t]
        assert abs((here > 0).mean() - p) < 4 * np.sqrt(p * (1 - p) / len(here))


# --- mistakes of newcomers ------------------------------------------------------------------------
def test_rewards_by_state_and_action_alone_are_ambiguous():
    for shape in [(2, 2), (1, 2, 2)]:
        with pytest.raises(ValueError, match=r"ambiguous. Write R\[None, :, :, None\]"):
            BlockMDP([1, 0], np.full((1, 2, 2, 2), 0.5), np.zeros(shape), emission=Unsound(2, 3))


class Unsound(Emission):
    """An emission that may have a mistake."""

    def __init__(self, n_states, dim, mistake=""):
        self.n_states, self.mistake = n_states, mistake
        if mistake != "no dim":
            self.dim = dim
        self.takes_levels = mistake == "not for levels"
        self.stationary = not self.takes_levels

    def sample(self, level, states, keys):
        if self.mistake == "not for levels":
            level = np.max(level)
            return np.full((len(states), self.dim), level)
        if self.mistake == "not repeatable":
            return np.random.default_rng().normal(size=(len(states), self.dim))
        x = np.zeros((len(states), self.dim + (self.mistake == "too wide")))
        return x + level * (self.mistake == "not stationary")


def test_mistakes_in_an_emission_are_found_when_the_problem_is_made():
    for mistake, words in {
        "no dim": "Unsound must set dim",
        "too wide": r"Unsound.sample must return shape \(n, dim\) = \(2, 3\), got \(2, 4\)",
        "not repeatable": "different observations for the same keys",
        "not stationary": "at different levels: set its attribute stationary = False",
        "not for levels": "for each level: set its attribute takes_levels = False",
    }.items():
        with pytest.raises(ValueError, match=words):
            BlockMDP([1, 0], np.full((1, 2, 2, 2), 0.5), 0.0, emission=Unsound(2, 3, mistake))


def test_an_emission_of_one_state_that_takes_no_levels_is_found():
    mistake = Unsound(1, 3, "not for levels")
    with pytest.raises(ValueError, match="takes_levels = False"):
        BlockMDP([1], np.ones((3, 1, 2, 1)), 0.0, emission=mistake)


def test_an_emission_for_another_number_of_levels_is_named_before_it_is_drawn():
    emission = StateAndLevel(2, 1, 0.1)
    with pytest.raises(ValueError, match="has 1 levels, but horizon 3 needs 4"):
        BlockMDP([1, 0], np.full((3, 2, 2, 2), 0.5), 0.0, emission=emission)


def test_an_accuracy_never_exceeds_one():
    """Shares of 100 observations that add up to a little more than 1 in floating point."""
    C = np.array([[[0.01, 0.2, 0.68, 0.11]]])
    assert C.sum() > 1.0
    assert measures.accuracy(C) == 1.0


def test_reached_states_are_those_of_positive_reachability():
    m = random_block_mdp(horizon=4, n_states=6, n_actions=2, seed=1)
    assert np.array_equal(m.reached(), m.reachability() > 0)
