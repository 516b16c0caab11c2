"""Algorithm 1 as written, end to end: the policy is epsilon-optimal with probability 1 - delta."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from sklearn.cluster import KMeans

from blockmdp import URL, BlockMDP, Linear, OneHotBernoulli, OneHotGaussian, OracleQ, PerLevel

EPSILON, DELTA, SEEDS = 0.1, 0.1, 52
CASES = [  # H, S, A, K, B, emission
    (2, 2, 4, 30, 10, "rotated"),
    (2, 3, 2, 24, 12, "permuted"),
    (3, 2, 3, 24, 10, "rotated"),
    (4, 2, 2, 14, 10, "permuted"),
]


def problem(H, S, A, emission, seed):
    """In each state one action leads to state 0 and the others elsewhere, nine times in ten.

    Only the last step pays, and only in state 0. States start alike, so that there are S kinds of
    observations to tell apart at every level, as Definition 1 has it: k-means would split one.
    Every level has an emission of its own.
    """
    g = np.random.default_rng(seed)
    P = np.full((H, S, A, S), 0.1 / S)
    for h, s in np.ndindex(H, S):
        good = g.integers(A)
        for a in range(A):
            P[h, s, a, 0 if a == good else g.integers(1, S)] += 0.9
    rewards = np.zeros_like(P)
    rewards[-1, :, :, 0] = 1.0
    if emission == "rotated":
        shown, maps = (
            OneHotGaussian(S, 3, 0.1),
            [np.linalg.qr(g.normal(size=(S + 3, S + 3)))[0] for _ in range(H + 1)],
        )
    else:
        weights = np.diag([2.0] * S + [0.5] * 3)  # the state's bits stand out
        shown, maps = OneHotBernoulli(S, 3), [weights[g.permutation(S + 3)] for _ in range(H + 1)]
    levels = PerLevel([Linear(shown, matrix) for matrix in maps])
    return BlockMDP(np.full(S, 1 / S), P, rewards, emission=levels)


def wilson(successes, n, z=1.96):
    """The Wilson interval of a share, 95 %."""
    p = successes / n
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return centre - half, centre + half


def test_wilsons_interval_is_the_one_in_the_books():
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(50, 50) == pytest.approx((0.9286, 1.0), abs=1e-4)


def test_the_problems_are_no_gift():
    for seed in range(12):
        H, S, A, _, _, emission = CASES[seed % len(CASES)]
        m = problem(H, S, A, emission, seed)
        assert m.optimal_value() - m.value(m.uniform_policy()) > 4 * EPSILON
        assert m.reachability().min() > 0.02
        means = np.array(
            [[m.sample(h, s, 200).mean(axis=0) for s in range(S)] for h in range(H + 1)]
        )
        assert np.abs(means[0] - means[1]).max() > 0.3  # levels look different


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the proof of URL.theory")  # the learner is a practical one
def test_the_share_of_epsilon_optimal_policies_is_one_minus_delta_at_least():
    gaps, seconds = [], []
    for seed in range(SEEDS):
        H, S, A, K, B, emission = CASES[seed % len(CASES)]
        m = problem(H, S, A, emission, seed)
        agent = URL.theory(
            KMeans(S, n_init=S),
            OracleQ(lr=0.5, bonus=0.0),
            epsilon=EPSILON,
            delta=DELTA,
            horizon=H,
            n_states=S,
            batch=B,
            label_error=0.01,
        )
        begun = time.perf_counter()
        agent.fit(m, K, seed=seed)
        seconds.append(time.perf_counter() - begun)
        constants = URL.constants(EPSILON, DELTA, H, S, batch=B)
        assert agent.ledger_ == constants.all_trajectories(K)
        last = sum((K * constants.J + i + 1) * B for i in range(1, constants.J + 1))
        data = agent.ledger_["oracle"] + agent.ledger_["test"] + agent.ledger_["evaluate"]
        assert constants.trajectories(K) == data - constants.N * last
        gaps.append(m.optimal_value() - agent.value())
    good = int((np.array(gaps) <= EPSILON).sum())
    low, high = wilson(good, SEEDS)
    print(
        f"\n{good} of {SEEDS} policies are {EPSILON}-optimal: {good / SEEDS:.3f}, "
        f"Wilson 95 % [{low:.3f}, {high:.3f}]; {np.mean(seconds):.1f} s a run"
    )
    assert good >= (1 - DELTA) * SEEDS
