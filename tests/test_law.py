"""How fast learners learn, over 50 seeds, against measurements of the authors' own code.

`helpers.solved_at` defines when a run is solved. The problem and the run have the same seed, so
every run has another combination.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers import solved_at

from blockmdp import OracleQ, QLearning, Tabular, lock_bernoulli

SEEDS = range(50)
SWITCHES = [0.0, 0.2, 0.5]
MEDIAN = {5: 1400, 10: 2000, 20: 3100}  # trajectories, for every switch


def returns(learner, on, horizon, switch, episodes):
    """Return the returns of all seeds, (seeds, episodes)."""
    return np.array(
        [
            Tabular(learner, on)
            .fit(lock_bernoulli(horizon, switch, seed=seed), episodes, seed=seed)
            .returns_
            for seed in SEEDS
        ]
    )


def solutions(learner, on, horizon, switch, episodes):
    """Return the episodes until each seed is solved; `pytest -s` prints a summary."""
    n = np.array([solved_at(r) for r in returns(learner, on, horizon, switch, episodes)])
    solved = n[np.isfinite(n)]
    middle = (
        f"median {np.median(n):.0f}, {n.min():.0f} to {solved.max():.0f}" if len(solved) else ""
    )
    print(f"\n{learner} on {on}, H={horizon}, switch={switch}: {len(solved)}/{len(n)}", middle)
    return n


def test_solved_means_that_the_last_1000_returns_sum_to_more_than_450():
    r = np.zeros(3000)
    r[1500:1950] = 1
    assert solved_at(r) == np.inf
    r[2400] = 1
    assert solved_at(r) == 2401
    assert solved_at(np.ones(2000)) == 1000
    assert solved_at(np.ones(999)) == np.inf


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("horizon", [5, 10, 20])
def test_oracleq_on_latent_states_solves_every_seed_in_the_known_time(horizon, switch):
    n = solutions(OracleQ(lr=0.1, bonus=0.001), "latent", horizon, switch, 20_000)
    assert np.isfinite(n).all()
    assert np.median(n) == pytest.approx(MEDIAN[horizon], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
def test_qlearning_solves_the_short_lock(switch):
    n = solutions(QLearning(lr=0.1, exploration=0.001), "latent", 5, switch, 20_000)
    assert np.isfinite(n).all()
    assert 1000 <= np.median(n) < 1300


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize(
    ("lr", "exploration"),
    [(0.1, 0.001), (0.1, 0.0), (0.1, 0.1), (0.1, 0.5), (0.01, 0.001), (0.5, 0.01), (1.0, 0.001)],
)
def test_qlearning_earns_nothing_at_horizon_20(lr, exploration, switch):
    learner = QLearning(lr=lr, exploration=exploration)
    r = returns(learner, "latent", 20, switch, 50_000)
    # random actions survive with probability 2**-20: about one reward in all 50 seeds together
    print(f"\n{learner}, H=20, switch={switch}: {int(r.sum())} rewards in {r.size} episodes")
    assert r.sum() <= 10
    assert np.median(r.sum(axis=1)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
def test_oracleq_on_observations_fails_at_horizon_10(switch):
    n = solutions(OracleQ(lr=0.1, bonus=0.001), "observation", 10, switch, 20_000)
    assert np.isinf(n).all()


@pytest.mark.slow
def test_oracleq_on_observations_solves_the_shortest_locks():
    n = solutions(OracleQ(lr=0.1, bonus=0.001), "observation", 3, 0.2, 20_000)
    assert np.isfinite(n).all()
