"""The kernel on a GPU, and its simulator, give what the CPU gives."""

from __future__ import annotations

import copy
import random
import sys

import numpy as np
import pandas as pd
import pytest
from helpers import python
from numba import cuda
from test_many import LEARNERS, check_many, lock

import blockmdp as bm


def test_a_label_that_never_wins_does_not_decide_what_is_drawn():
    from blockmdp.simulators.cuda import _turns

    W, b = np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 3.0]]), np.array([0.5, -0.5])
    turn, rest = _turns(W, b, np.ones(3))
    assert turn.tolist() == [1, 0, 2]  # no difference is larger than that of coordinate 1
    assert rest == pytest.approx([1.0, 0.0, 0.0], abs=1e-12)
    more, never = np.concatenate([W, [[99.0, 0.0, -99.0]]]), np.append(b, -np.inf)
    for one, other in zip(_turns(more, never, np.ones(3)), (turn, rest)):
        assert np.array_equal(one, other)


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_cuda_is_one_clear_error():
    with pytest.raises(ValueError, match=r"engine='cuda' cannot be used: no NVIDIA GPU was found"):
        bm.fit_many(bm.Tabular(), lock(0), 10, seeds=0, engine="cuda")
    assert bm.fit_many(bm.Tabular(), lock(0), 10, seeds=0)[0].returns_.shape == (10,)


def check_cuda():
    """Compare the kernel with the CPU, on the simulator or on a GPU."""
    bits, normals = [lock(s) for s in range(3)], [lock(s, bm.lock_gaussian) for s in range(3)]
    own = bm.comblock(horizon=3)
    seeds = [7, 8, 9]
    check_many(bm.Tabular(bm.OracleQ(lr=0.3)), bits, 12, seeds, "cuda")
    check_many(bm.URL(bm.oracles.pca_kmeans(), bm.OracleQ(), batch=40), normals, 6, seeds, "cuda")
    check_many(bm.URL(bm.oracles.gmm(), bm.OracleQ(), batch=40), bits, 6, seeds, "cuda")
    check_many(bm.URL(learner=bm.OracleQ(), retrain_every=4, batch=40), bits, 8, seeds, "cuda")
    levels = bm.URL(bm.oracles.pca_kmeans(), bm.OracleQ(), batch=40, pool_levels=False)
    check_many(levels, [own] * 2, 6, [1, 2], "cuda")
    check_many(bm.PCID(n=40), bits, 6, seeds, "cuda")
    mixed = [bm.Tabular(bm.OracleQ(lr=0.3)), bm.Tabular(bm.PSRL()), bm.PCID(n=40)]
    check_many(mixed, bits, 6, seeds, "cuda")
    for agent, problem, words in (
        (bm.OnlineURL(), bits[0], "OnlineURL learns its decoder in each episode"),
        (bm.URL(evaluation=5), bits[0], "evaluation=5 draws trajectories after the last episode"),
        (bm.Tabular(on="observation"), bits[0], "linear or quadratic scores"),
        (bm.PCID(n=40), bm.exogenous_lock(horizon=3), "cannot draw the observations of"),
    ):
        with pytest.raises(ValueError, match=words):
            bm.fit_many(agent, problem, 5, seeds=0, engine="cuda")
        bm.fit_many(agent, problem, 5, seeds=0)


def test_the_kernel_gives_the_same_in_the_simulator():
    """In a process of its own: numba reads these variables when it is imported."""
    variables = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    python("import test_cuda; test_cuda.check_cuda()", env=variables)


@pytest.mark.cuda
def test_the_kernel_gives_the_same_on_a_gpu():
    check_cuda()


@pytest.mark.cuda
def test_100_random_fits_on_a_gpu():
    """Logarithms and powers are rounded differently there, so a few learners may choose otherwise
    after a while; the others must learn the same, bit for bit.
    """
    draw = random.Random(0)
    agents, problems, seeds = [], [], []
    for i in range(100):
        make = draw.choice([bm.lock_bernoulli, bm.random_block_mdp])
        agents.append(bm.Tabular(LEARNERS[i % len(LEARNERS)]))
        problems.append(make(horizon=4, seed=draw.randrange(10**6)))
        seeds.append(draw.randrange(10**6))
    fits = bm.fit_many(agents, problems, 1000, seeds, engine="cuda")
    same = {}
    for agent, problem, seed, fit in zip(agents, problems, seeds, fits):
        alone = copy.copy(agent).fit(problem, 1000, seed)
        equal = np.array_equal(alone.returns_, fit.returns_)
        same.setdefault(type(agent.learner).__name__, []).append(equal)
    print({name: f"{sum(each)} of {len(each)}" for name, each in same.items()}, file=sys.stderr)
    assert all(all(same[name]) for name in ("OracleQ", "QLearning", "UCBVI", "DelayedQ", "RMAX"))
    assert np.mean([np.mean(each) for each in same.values()]) > 0.9


STUDY = """
seeds = 3
episodes = 8
[[problem]]
name = "lock_bernoulli"
horizon = [2, 3]
[[agent]]
name = "Tabular"
[[agent]]
name = "URL"
batch = 30
learner = "OracleQ"
[[agent]]
name = "OnlineURL"
"""


def test_a_study_on_the_simulator_stores_the_same_runs(tmp_path):
    (tmp_path / "s.toml").write_text(STUDY)
    code = (
        "import sys; from blockmdp.cli import main;"
        "sys.exit(main(['run', 's.toml', '--quiet', '--out', sys.argv[0], *OPTIONS]))"
    )
    rows = []
    for name, options, variables in (
        ("cpu", [], {}),
        ("gpu", ["--device", "cuda"], {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}),
    ):
        python(code.replace("sys.argv[0]", repr(name)).replace("*OPTIONS", f"*{options}"),
               cwd=tmp_path, env=variables)  # fmt: skip
        frame = bm.Results(tmp_path / name).frame().sort_values("key", ignore_index=True)
        assert len(frame) == 18
        assert frame["error"].isna().all()
        rows.append(frame.drop(columns=["seconds", "environment.threads"]))
    pd.testing.assert_frame_equal(*rows)


@pytest.mark.skipif(cuda.is_available(), reason="there is a GPU")
def test_a_study_without_a_gpu_is_one_clear_error(tmp_path):
    (tmp_path / "s.toml").write_text(STUDY)
    study = bm.Study.load(tmp_path / "s.toml")
    with pytest.raises(RuntimeError, match="--device cuda cannot be used: no NVIDIA GPU"):
        study.run(tmp_path / "out", device="cuda", quiet=True)
    with pytest.raises(ValueError, match="there is no --cluster, --timeout, --memory"):
        study.run(tmp_path / "out", device="cuda", timeout=3.0)
