"""The oracle that looks at actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.estimator_checks import check_estimator

import blockmdp as bm
from blockmdp.oracles import ControlledMixture, DirichletMixture
from blockmdp.oracles.controlled import Patterns, _moves_on_its_own, influence
from blockmdp.oracles.scores import CategoricalScores
from blockmdp.simulators import make_simulator
from blockmdp.testing import check_incremental_oracle

# fits that end while the oracle asks for random actions, which they say
exploring = pytest.mark.filterwarnings("ignore:the decoder that .* may be wrong")


def random_steps(m: bm.BlockMDP, episodes: int, seed: int = 0) -> tuple[Any, ...]:
    """Observations before and after steps of a random policy, their actions and states after."""
    pi = np.full((m.horizon, m.n_states, m.n_actions), 1 / m.n_actions)
    drawn = make_simulator(m, seed).rollout([bm.Policy(pi)], episodes, "test")
    x = drawn.x.astype(np.uint8)
    d = m.emission.dim
    return x[:, :-1].reshape(-1, d), x[:, 1:].reshape(-1, d), drawn.actions.ravel()


def test_only_the_bits_of_the_agents_maze_are_influenced() -> None:
    m = bm.multi_maze(2, seed=1)
    before, after, actions = random_steps(m, 100)
    found, rarer = influence(before, after, actions, 0.001)
    own = np.arange(363) // 121 == m.emission.controlled
    assert found.sum() >= 8
    assert own[found].all()
    assert rarer.max() <= len(after) / 2
    assert (rarer[found] >= 10).all()


def test_the_influence_of_actions_needs_two_actions_and_bits_that_vary() -> None:
    before = np.zeros((50, 3), np.uint8)
    for after in (before, np.eye(3, dtype=np.uint8)[np.arange(50) % 3]):
        assert not influence(before, after, np.zeros(50, int), 0.001)[0].any()
    assert not influence(before, before, np.arange(50) % 2, 0.001)[0].any()


def test_influence_is_found_on_bits_that_are_mostly_one() -> None:
    g = np.random.default_rng(0)
    actions = g.integers(0, 10, 2_000)
    after = g.integers(0, 2, (2_000, 3)).astype(np.uint8)
    after[:, 1] = actions != 7
    found, rarer = influence(after[::-1], after, actions, 0.001)
    assert found.tolist() == [False, True, False]
    assert rarer[1] == (actions == 7).sum()


def test_no_influence_is_found_on_what_moves_on_its_own() -> None:
    for seed in range(10):
        m = bm.noisy_chain(2, 60, horizon=20, seed=seed)
        before, after, actions = random_steps(m, 50, seed)
        found, _ = influence(before, after, actions, 0.001)
        assert set(np.flatnonzero(found)) <= set(m.emission.places)


def test_noise_is_not_taken_for_something_that_moves() -> None:
    lock, chain = bm.lock_bernoulli(20, seed=1), bm.noisy_chain(3, 60, horizon=20, seed=1)
    for m, moves in ((lock, False), (chain, True)):
        before, after, _ = random_steps(m, 40)
        assert _moves_on_its_own(before, after, np.zeros(len(after), int)) == moves
    few = before[:, :5]
    assert not _moves_on_its_own(few, few, np.zeros(len(few), int))


def test_without_bits_or_actions_the_labels_are_those_of_the_mixture() -> None:
    lock, bits = bm.comblock(10, seed=1), bm.lock_bernoulli(5, seed=1)
    for m in (lock, bits):
        one, other = ControlledMixture(), DirichletMixture()
        for s in (2, 2, 0, 1, 2, 0):
            X = m.sample(4, s, 15)
            one.partial_fit(X)
            other.partial_fit(X)
            assert np.array_equal(one.labels_, other.labels_)
            assert np.array_equal(one.changed_labels(), other.changed_labels())
        assert not one.explores_
        assert np.array_equal(one.predict(X), other.predict(X))
        assert all(map(np.array_equal, one.linear_scores(), other.linear_scores()))


def learn_step_by_step(oracle: ControlledMixture, episodes: int) -> list[bool]:
    """Show random episodes of 20 steps to an oracle. Return when it explored."""
    m = bm.noisy_chain(3, 40, horizon=20, seed=1)
    before, after, actions = random_steps(m, episodes)
    explored = []
    for i in range(0, 20 * episodes, 20):
        x, y = before[i : i + 20], after[i : i + 20]
        oracle.see_actions(y, x, np.zeros(20, int), actions[i : i + 20])
        oracle.partial_fit(np.concatenate([x[:1], y]).astype(float))
        explored.append(oracle.explores_)
    return explored


def test_exploring_ends_after_the_largest_number_of_steps() -> None:
    oracle = ControlledMixture(min_count=10**6, max_steps=500)  # too few to decide on any bit
    explored = learn_step_by_step(oracle, 60)
    assert sum(explored) * 20 == 500
    assert explored.index(True) * 20 == 240  # 250 steps are needed to see that something moves
    assert not explored[-1]
    assert oracle.kept_.all()
    assert len(oracle.labels_) == 60 * 21


def test_a_data_set_without_bits_is_never_explored() -> None:
    X = np.random.default_rng(0).normal(size=(30, 40))
    oracle = ControlledMixture().fit(X)
    assert not oracle._are_bits
    assert not any(learn_step_by_step(oracle, 40))
    oracle.fit(X > 0)
    assert oracle._are_bits
    assert any(learn_step_by_step(oracle, 40))


def test_exploring_ends_where_observations_are_no_longer_bits() -> None:
    oracle = ControlledMixture()
    assert learn_step_by_step(oracle, 40)[-1]
    assert oracle.n_labels_ == 1
    oracle.partial_fit(np.full((3, 40), 0.5))
    assert not oracle.explores_
    assert len(oracle.labels_) == 40 * 21 + 3
    assert oracle.kept_.all()


@pytest.mark.parametrize("make", [bm.comblock, bm.lock_bernoulli, bm.lock_gaussian])
def test_an_agent_loses_nothing_where_nothing_moves_on_its_own(make: Any) -> None:
    m = make(horizon=5, seed=3)
    returns = [
        bm.OnlineURL(oracle).fit(m, 80, seed=3).returns_
        for oracle in (ControlledMixture(), DirichletMixture())
    ]
    assert np.array_equal(*returns)


def test_numbered_categories_are_categories_here_too(tmp_path: Path) -> None:
    m = bm.noisy_lock(5, noise="numbered categories")
    agent = bm.OnlineURL(ControlledMixture(), pool_levels=False).fit(m, 150, seed=0)
    assert agent.value() > 0.9 * m.optimal_value()
    kinds = {type(each.predictor) for each in agent.policy_.decoder.fitted}
    assert CategoricalScores in kinds
    agent.save(tmp_path / "policy.npz")
    loaded, x = bm.load(tmp_path / "policy.npz"), m.sample(2, 0, n=200)
    assert np.array_equal(loaded.decode(x, 2), agent.policy_.decode(x, 2))


@pytest.fixture(scope="module")
def maze_agent() -> bm.OnlineURL:
    m = bm.multi_maze(2, horizon=20, seed=5)
    agent = bm.OnlineURL(
        ControlledMixture(min_count=60), bm.PSRL(stationary=True), pool_levels=True
    )
    return agent.fit(m, 500, seed=5)


def test_a_maze_among_others_is_recovered(maze_agent: bm.OnlineURL) -> None:
    assert maze_agent.recovers(samples=10)
    assert maze_agent.value(10) == pytest.approx(1.0)
    assert maze_agent.decoder_.fitted[0].n_labels == 68
    assert maze_agent.ledger_ == {"learn": 500}


@exploring
def test_every_engine_and_a_fit_in_pieces_give_the_same_result(tmp_path: Path) -> None:
    m = bm.multi_maze(1, horizon=16, seed=2)

    def agent() -> bm.OnlineURL:
        oracle = ControlledMixture(min_count=5, max_steps=600)
        return bm.OnlineURL(oracle, bm.PSRL(stationary=True), pool_levels=True)

    whole = agent().fit(m, 70, seed=1)
    file = tmp_path / "fit"
    agent().fit(m, 40, seed=1, checkpoint=file)
    others = [
        agent().fit(m, 70, seed=1, engine="stepwise"),
        agent().fit(m, 40, seed=1).fit_more(30),
        agent().fit(m, 70, seed=1, checkpoint=file),
    ]
    for other in others:
        assert np.array_equal(other.returns_, whole.returns_)
        assert np.array_equal(other.policy_.pi, whole.policy_.pi)
    path = tmp_path / "policy"
    whole.save(path)
    x = np.concatenate([m.sample(3, s, 2) for s in range(68)])
    assert np.array_equal(bm.load(path).act(x, 3), whole.act(x, 3))


def test_patterns_know_a_state_from_its_first_visit_on() -> None:
    X = np.eye(4)[[2, 0, 2, 1]]
    patterns = Patterns(3).partial_fit(X[:2]).partial_fit(X[2:])
    assert patterns.labels_.tolist() == [0, 1, 0, 2]
    assert patterns.n_labels_ == 3
    assert patterns.predict(np.eye(4)[[0, 1, 2]]).tolist() == [1, 2, 0]
    assert patterns.predict(np.array([[0.0, 1, 0, 1]])).tolist() == [2]  # most in common
    assert patterns.partial_fit(np.array([[0.0, 1, 0, 1]])).labels_[-1] == 2  # there are 3 at most
    assert len(patterns.changed_labels()) == 0
    assert patterns.trusted_labels().all()


class Spy(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """A user's oracle that sees actions. The label is whether the sum of an observation is odd."""

    seen: ClassVar[list[tuple[Any, ...]]] = []
    explores_ = False

    def fit(self, X: Any, y: None = None) -> Spy:
        self.labels_ = self.predict(X)
        return self

    def partial_fit(self, X: Any) -> Spy:
        before = getattr(self, "labels_", np.zeros(0, int))
        self.labels_ = np.concatenate([before, self.predict(X)])
        return self

    def predict(self, X: Any) -> Any:
        return (np.asarray(X).sum(axis=1) % 2).astype(int)

    def changed_labels(self) -> Any:
        return np.zeros(0, int)

    def see_actions(self, X: Any, before: Any, labels: Any, actions: Any) -> None:
        self.seen.append((X, before, labels, actions))


@pytest.mark.parametrize("pooled", [True, False])
def test_an_own_oracle_sees_what_came_before_each_observation(pooled: bool) -> None:
    Spy.seen.clear()
    m = bm.lock_bernoulli(4)
    agent = bm.OnlineURL(Spy(), pool_levels=pooled).fit(m, 3)
    state = agent._so_far[1].f  # type: ignore[index]
    assert len(Spy.seen) == (3 if pooled else 12)  # nothing comes before the first level
    X, before, labels, actions = (np.concatenate(each) for each in zip(*Spy.seen))
    assert X.shape == before.shape == (12, m.emission.dim)
    assert actions.tolist() == state.actions.ravel().tolist()
    if pooled:
        assert np.array_equal(X[0], before[1])
        assert np.array_equal(before.sum(axis=1)[4:] % 2, labels[4:])  # it knew nothing at first


def test_an_oracle_that_never_asks_for_random_actions_sees_all() -> None:
    class Plain(Spy):
        @property
        def explores_(self) -> bool:
            raise AttributeError("explores_")

    Spy.seen.clear()
    bm.OnlineURL(Plain(), pool_levels=True).fit(bm.lock_bernoulli(4), 3)
    assert len(Spy.seen) == 3


@exploring
def test_an_oracle_can_ask_for_random_actions() -> None:
    class Curious(Spy):
        explores_ = True

    Spy.seen.clear()
    m = bm.lock_bernoulli(4, seed=1)
    one, other = (bm.OnlineURL(oracle, pool_levels=True) for oracle in (Curious(), Spy()))
    one.fit(m, 200)
    first = np.concatenate([each[3] for each in Spy.seen])
    assert np.bincount(first) / len(first) == pytest.approx(0.25, abs=0.06)
    assert not np.array_equal(one.returns_, other.fit(m, 200).returns_)


class Late(DirichletMixture):  # type: ignore[misc]
    """Asks for random actions once it has seen 52 observations, and counts what it then sees."""

    shown: ClassVar[list[int]] = []

    @property
    def explores_(self) -> bool:
        return len(getattr(self, "labels_", ())) >= 52

    def see_actions(self, X: Any, before: Any, labels: Any, actions: Any) -> None:
        if self.explores_:
            self.shown.append(len(X))


@exploring
def test_steps_before_levels_were_pooled_are_not_shown_as_random() -> None:
    Late.shown.clear()
    agent = bm.OnlineURL(Late()).fit(bm.lock_bernoulli(4), 20)
    assert agent.decoder_.pooled  # since episode 16; one for all has seen enough after the 11th
    assert Late.shown == [4] * 4


@exploring
def test_copies_that_began_before_are_not_shown_as_random() -> None:
    Late.shown.clear()
    envs = bm.envs.BlockMDPVectorEnv(bm.lock_bernoulli(4), 8)
    bm.OnlineURL(Late(), pool_levels=True).fit(envs, 32)
    assert Late.shown == [32, 32]  # seen enough in the second round, so random from the third on


def test_an_episode_can_be_longer_than_the_steps_of_the_first_look() -> None:
    m = bm.noisy_chain(3, 40, horizon=300, seed=1)
    before, after, actions = random_steps(m, 1)
    oracle = ControlledMixture()
    oracle.see_actions(after, before, np.zeros(300, int), actions)
    oracle.partial_fit(np.concatenate([before[:1], after]).astype(float))
    assert oracle.n_labels_ >= 1
    assert not oracle.explores_


def test_url_shows_the_steps_of_all_batches_but_the_first() -> None:
    Spy.seen.clear()
    agent = bm.URL(Spy(), batch=5, iterations=3, stop_agreement=None, pool_levels=False)
    m = bm.lock_bernoulli(4, seed=1)
    agent.fit(m, 1)
    assert [len(each[0]) for each in Spy.seen] == [0, 5, 5, 5, 5] * 2
    X, before, labels, actions = Spy.seen[2]  # at level 2
    assert X.shape == before.shape == (5, m.emission.dim)
    assert np.array_equal(before.sum(axis=1) % 2, labels)
    assert ((actions >= 0) & (actions < m.n_actions)).all()


def test_url_shows_no_steps_to_an_oracle_that_could_not_be_fitted_yet() -> None:
    class Slow(Spy):
        def fit(self, X: Any, y: None = None) -> Spy:
            if len(X) < 8:
                raise ValueError("too few")
            return super().fit(X)

    Spy.seen.clear()
    agent = bm.URL(Slow(), batch=5, iterations=3, stop_agreement=None, pool_levels=False)
    agent.fit(bm.lock_bernoulli(4, seed=1), 1)
    assert [len(each[0]) for each in Spy.seen] == [0, 5, 5, 5, 5]  # of the third batch


@exploring
def test_url_draws_random_trajectories_as_long_as_its_oracle_asks_for_them() -> None:
    Late.shown.clear()
    agent = bm.URL(Late(), batch=6, iterations=1, pool_levels=True).fit(bm.lock_bernoulli(4), 1)
    assert agent.ledger_["oracle"] == 6
    agent = bm.URL(Late(), batch=6, iterations=2, pool_levels=True).fit(bm.lock_bernoulli(4), 1)
    assert agent.ledger_["oracle"] == 6 * 102
    assert Late.shown == [24] * 100  # the second batch was not random


def test_a_fit_that_ends_while_the_oracle_explores_says_so() -> None:
    m = bm.noisy_chain(4, 32, seed=0)
    agent = bm.OnlineURL(ControlledMixture(), pool_levels=True)
    with pytest.warns(UserWarning, match="still tests with random actions .* Try more episodes"):
        agent.fit(m, 70)
    with pytest.warns(UserWarning, match="still tests with random actions"):
        bm.URL(Late(), batch=6, iterations=2, pool_levels=True).fit(bm.lock_bernoulli(4), 1)


def test_url_recovers_a_chain_among_bits_that_move() -> None:
    m = bm.noisy_chain(5, 64, horizon=10, seed=5)
    agent = bm.URL(ControlledMixture(min_count=30)).fit(m, 100, seed=5)
    assert agent.ledger_["oracle"] <= 300
    assert np.array_equal(agent.accuracy(samples=20), np.ones(11))
    assert agent.recovers(samples=20)
    assert agent.value(20) == m.optimal_value()


@pytest.mark.slow
def test_url_finds_the_states_of_a_maze_among_others() -> None:
    m = bm.multi_maze(2, horizon=20, seed=5)
    oracle = ControlledMixture(min_count=60)
    agent = bm.URL(oracle, bm.PSRL(stationary=True), pool_levels=True).fit(m, 600, seed=5)
    assert agent.decoder_.fitted[0].n_labels == 68
    assert np.array_equal(agent.accuracy(samples=5), np.ones(21))
    assert agent.value(5) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"error": 0.0}, r"error must be a number in \(0, 1\), got 0.0"),
        ({"concentration": -1}, "concentration must be a number > 0, got -1"),
        ({"memory": 0}, "memory must be an integer >= 1, got 0"),
        ({"min_count": 0}, "min_count must be an integer >= 1, got 0"),
        ({"max_steps": 0}, "max_steps must be an integer >= 1, got 0"),
    ],
)
def test_a_wrong_parameter_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ControlledMixture(**arguments).fit(np.eye(3))
    with pytest.raises(ValueError, match=message):
        ControlledMixture(**arguments).see_actions(np.eye(3), np.eye(3), [0, 0, 0], [0, 1, 0])


def test_it_is_an_estimator_and_an_incremental_oracle() -> None:
    check_incremental_oracle(ControlledMixture())
    results = check_estimator(ControlledMixture(), on_fail=None, on_skip=None)
    assert {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"} == {}
