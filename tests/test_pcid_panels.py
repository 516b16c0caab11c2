"""PCID on the panels of the paper: which locks it solves, and how fast."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from helpers import solved_at

from blockmdp import PCID, lock_bernoulli, lock_gaussian

SEEDS, WINDOW = 20, 1000
PANELS = [(sigma, H) for sigma in (None, 0.1, 0.2) for H in (5, 10, 20)]


def needed(sigma, H):
    """Return the trajectories per level: 300, or 400 for the longest lock with the most noise."""
    return 400 if (sigma, H) == (0.2, 20) else 300


def run(setting):
    sigma, H, switch, seed = setting
    problem = (
        lock_bernoulli(H, switch, seed=seed)
        if sigma is None
        else lock_gaussian(H, switch, sigma, seed=seed)
    )
    agent = PCID(n=needed(sigma, H)).fit(problem, 3 * WINDOW, seed=seed)
    return agent.ledger_["explore"] + solved_at(agent.returns_)


def solved(sigma, H, switch):
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        at = np.array(list(pool.map(run, [(sigma, H, switch, s) for s in range(SEEDS)])))
    good, when = np.isfinite(at).sum(), np.median(at)
    print(f"\nsigma {sigma}, H {H}, switch {switch}: {good} of {SEEDS}, at {when}")
    return at


@pytest.mark.paper
@pytest.mark.parametrize("switch", [0.0, 0.2])
@pytest.mark.parametrize(("sigma", "H"), PANELS)
def test_pcid_solves_the_lock_as_soon_as_it_has_explored(sigma, H, switch):
    at = solved(sigma, H, switch)
    assert np.isfinite(at).all()
    assert np.median(at) <= needed(sigma, H) * H + WINDOW + 50


@pytest.mark.paper
@pytest.mark.parametrize(("sigma", "H"), [(None, 5), (None, 10), (None, 20)])
def test_at_switch_one_half_pcid_solves_only_locks_whose_live_states_share_actions(sigma, H):
    share = np.isfinite(solved(sigma, H, 0.5)).mean()
    assert share < (5 / 6) ** (H - 1) + 0.3  # three standard deviations of 20 seeds
