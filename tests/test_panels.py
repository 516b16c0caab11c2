"""URL on the panels of Figure 1 of the paper, against measurements of the authors' code.

Each panel has 50 seeds, each with another lock. Settings and medians are those of the authors'
code, which fits the oracle once, on uniformly random trajectories. With as many labels as states,
one fit is bad for a few seeds. There the decoder is trained in smaller batches until it is stable,
as the appendix of the paper describes.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import pytest
from helpers import solved_at

from blockmdp import URL, OracleQ, lock_bernoulli, lock_gaussian
from blockmdp.oracles import gmm, pca_kmeans

SEEDS, EPISODES, SWITCHES = 50, 20_000, (0.0, 0.2, 0.5)


class Panel(NamedTuple):
    sigma: float | None  # None: Bernoulli
    horizon: int
    k: int
    batch: int
    medians: tuple[int, int, int]  # trajectories until solved, for each switch

    @property
    def adaptive(self):
        return self.k == 3


PANELS = [
    Panel(None, 5, 3, 100, (1562, 1478, 1510)),
    Panel(None, 10, 3, 500, (2457, 2404, 2452)),
    Panel(None, 20, 3, 2000, (5060, 5014, 4967)),
    Panel(0.1, 5, 3, 100, (1539, 1572, 1456)),
    Panel(0.1, 10, 3, 1000, (2944, 2888, 2923)),
    Panel(0.1, 20, 4, 2500, (6508, 6487, 6532)),
    Panel(0.2, 5, 3, 100, (1461, 1497, 1577)),
    Panel(0.2, 10, 4, 500, (2987, 2930, 2946)),
    Panel(0.2, 20, 5, 1000, (5834, 5789, 5815)),
]


def lock(panel, switch, seed):
    if panel.sigma is None:
        return lock_bernoulli(panel.horizon, switch, seed=seed)
    return lock_gaussian(panel.horizon, switch, panel.sigma, seed=seed)


def agent(panel):
    oracle = gmm(panel.k) if panel.sigma == 0.2 else pca_kmeans(panel.k)
    fields = {"batch": panel.batch, "iterations": 1, "test_batch": 0}
    if (panel.sigma, panel.horizon) == (0.1, 20):
        # For one seed, 2500 random trajectories are too few for one fit (29 of 30 decoders of the
        # authors are good here). So training continues on what the learner sees, at no cost.
        fields |= {"test_batch": 100, "retrain_every": 3000}
    if panel.adaptive:
        fields = {"batch": panel.batch // 4, "iterations": 16, "stop_agreement": 0.95}
    return URL(oracle, OracleQ(lr=0.1, bonus=0.001), **fields)


def trajectories_to_solve(panel, switch, seed):
    """Return the trajectories of all kinds until the run is solved."""
    fitted = agent(panel).fit(lock(panel, switch, seed), EPISODES, seed=seed)
    n = solved_at(fitted.returns_)
    return fitted.trajectories_[int(n) - 1] if np.isfinite(n) else np.inf


def name(panel):
    emission = "Bernoulli" if panel.sigma is None else f"Gauss {panel.sigma}"
    return f"{emission}, H {panel.horizon}"


@pytest.mark.paper
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("panel", PANELS, ids=name)
def test_every_seed_of_a_panel_is_solved_in_the_known_time(panel, switch):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        runs = [pool.submit(trajectories_to_solve, panel, switch, seed) for seed in range(SEEDS)]
        solved = np.array([run.result() for run in runs])
    print(f"\n{name(panel)}, switch {switch}: median {np.median(solved):.0f}")
    assert np.flatnonzero(np.isinf(solved)).tolist() == []  # seeds that were not solved
    assert np.median(solved) <= 1.1 * panel.medians[SWITCHES.index(switch)]


def test_trajectories_of_the_oracle_count_until_a_run_is_solved():
    panel = Panel(None, 5, 4, 300, (0, 0, 0))
    assert not panel.adaptive
    fitted = agent(panel).fit(lock(panel, 0.2, 0), EPISODES, seed=0)
    assert fitted.ledger_["oracle"] == 300
    assert trajectories_to_solve(panel, 0.2, 0) == solved_at(fitted.returns_) + 300 < EPISODES


def test_with_as_many_labels_as_states_training_continues_until_the_decoder_is_stable():
    fitted = agent(PANELS[0]).fit(lock(PANELS[0], 0.2, 0), EPISODES, seed=0)
    assert fitted.ledger_["oracle"] == 25 * len(fitted.history_)
    assert 2 <= len(fitted.history_) <= 16
    assert fitted.history_[-1].agreement >= 0.95
