"""The same numbers as ever: hashes of what agents earned and learnt, recorded at version 0.1
(those of PSRL, PCID, mixtures of bits and two that now retrain at 0.3).

They are the same on x86-64 and AArch64. If a change is meant to alter results,
print new hashes with `python tests/test_unchanged.py` and say so in the changelog.
"""

from __future__ import annotations

import hashlib

import gymnasium as gym
import numpy as np
import pytest
from sklearn.cluster import KMeans

import blockmdp as bm
from blockmdp.oracles import gmm, pca_dbscan_svm, pca_kmeans

LOCK = bm.lock_bernoulli(horizon=5, switch=0.2, seed=3)
SHORT = bm.lock_bernoulli(horizon=3)
GAUSS = bm.lock_gaussian(horizon=4, switch=0.5, sigma=0.2, seed=1)
COMBLOCK = bm.comblock(horizon=6, n_actions=4, seed=2)
EXOGENOUS = bm.exogenous_lock(horizon=3, n_actions=4, n_bits=3, seed=4)
CHAIN = bm.noisy_chain(n_states=4, n_bits=32, seed=5)
DIGITS = bm.lock_digits(horizon=3, seed=1)
Q = bm.OracleQ(lr=0.1, bonus=0.001)
RMAX = bm.UCBVI(bonus=0.0)

# name -> agent, problem, episodes, hash of the returns, hash of returns, tables, policy and labels
AGENTS = {
    "OracleQ-lat": (lambda: bm.Tabular(Q), LOCK, 1500),
    "QLearning-lat": (lambda: bm.Tabular(bm.QLearning(lr=0.2, exploration=0.3)), GAUSS, 1500),
    "UCBVI-lat": (lambda: bm.Tabular(bm.UCBVI()), COMBLOCK, 600),
    "PSRL-lat": (lambda: bm.Tabular(bm.PSRL()), LOCK, 600),
    "OracleQ-obs": (lambda: bm.Tabular(Q, on="observation"), LOCK, 1500),
    "URL": (lambda: bm.URL(learner=Q), LOCK, 1500),
    "URL, exogenous noise": (lambda: bm.URL(learner=Q, batch=20, pool_levels=True), EXOGENOUS, 300),
    "URL, k-means": (lambda: bm.URL(pca_kmeans(3), Q, batch=60, growth=1.5), GAUSS, 1500),
    "URL, mixture": (
        lambda: bm.URL(gmm(3, "spherical", 2), Q, batch=100, iterations=1),
        GAUSS,
        1500,
    ),
    "URL, DBSCAN": (lambda: bm.URL(pca_dbscan_svm(), Q, batch=50, iterations=2), DIGITS, 600),
    "URL, retrained": (
        lambda: bm.URL(
            pca_kmeans(3),
            Q,
            batch=50,
            iterations=2,
            retrain_every=100,
            memory=2000,
            restarts=2,
            evaluation=50,
        ),
        LOCK,
        400,
    ),
    "URL, theory": (
        lambda: bm.URL.theory(
            KMeans(3, n_init=2),
            Q,
            epsilon=0.5,
            delta=0.5,
            horizon=3,
            n_states=3,
            batch=5,
            label_error=0.01,
        ),
        bm.lock_gaussian(horizon=3, seed=1),
        2,
    ),
    "OnlineURL, by level": (lambda: bm.OnlineURL(learner=RMAX, pool_levels=False), COMBLOCK, 150),
    "OnlineURL": (lambda: bm.OnlineURL(learner=RMAX, pool_levels=True), LOCK, 120),
    "OnlineURL, PSRL, bits": (lambda: bm.OnlineURL(pool_levels=True), CHAIN, 60),
    "OnlineURL, refitted": (
        lambda: bm.OnlineURL(KMeans(4, n_init=2), bm.UCBVI(bonus=0.1), pool_levels=True),
        GAUSS,
        120,
    ),
    "PCID": (lambda: bm.PCID(n=150), LOCK, 500),
    "PCID, network": (lambda: bm.PCID("network", n=150), GAUSS, 500),
    "FrozenLake": (lambda: bm.Tabular(Q, on="observation"), "FrozenLake-v1", 300),
    "URL, vector": (lambda: bm.URL(learner=Q, batch=20), "vector", 200),
    "URL, stepwise": (lambda: bm.URL(learner=Q, batch=20), SHORT, 200),
}
HASHES = {
    "OracleQ-lat": ("28ca6428f35f6c58", "73cc4f8e187ef2f3"),
    "QLearning-lat": ("b904776b4f940a64", "7a03388811fe005e"),
    "UCBVI-lat": ("fe7b245360c149d9", "a04331481c8337d7"),
    "PSRL-lat": ("c75d878827b13b83", "ce67195749850709"),
    "OracleQ-obs": ("eb071ab439e4848f", "21ad728d1ea69878"),
    "URL": ("2b2ec985b1c86f26", "3f6fa47d92a3f199"),
    "URL, exogenous noise": ("3b55c44be2607a4e", "9c610bec5f91b597"),
    "URL, k-means": ("2ebf98c75993dc7f", "c3eee5c94a4a4c63"),
    "URL, mixture": ("b8475492a3f262f2", "22265e1d2f447964"),
    "URL, DBSCAN": ("c79aae54d48370d4", "a3bf17bcf7ba3725"),
    "URL, retrained": ("850b492757cb3e9b", "025f62b61b9554e4"),
    "URL, theory": ("cdead7b1f5591afe", "af1a583e2c1cc761"),
    "OnlineURL, by level": ("15cc84ea9d090694", "4b6857fc0480223b"),
    "OnlineURL": ("ac5dd3c10d754b18", "0e2744f8694eb28c"),
    "OnlineURL, PSRL, bits": ("0db05667e235b7c7", "c8d9c33814d6e949"),
    "OnlineURL, refitted": ("ab649cacaea50f8c", "dbf8949475db3173"),
    "PCID": ("d419244c77ec0a0b", "973f76ce1ae0064e"),
    "PCID, network": ("76e369cb0d84a95b", "112d0d135c1b7830"),
    "FrozenLake": ("166d0754bd7ca742", "93c0c8f7a6220c37"),
    "URL, vector": ("ba5dbf95b902a248", "828e081601d961fc"),
    "URL, stepwise": ("1c0f068e30dc00e8", "1181fa6c0e12094e"),
}


NEWER = ("H", "successors", "seen", "discount")  # tables that version 0.1 did not have


def digest(*arrays):
    found = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def hashes(name, record=False):
    make, problem, episodes = AGENTS[name]
    if problem == "vector":
        problem = gym.make_vec("blockmdp/LockBernoulli-v0", num_envs=3, horizon=3)
    engine = "stepwise" if "stepwise" in name else "auto"
    agent = make().fit(problem, episodes, seed=7, engine=engine, record=record)
    tables = agent.tables_._asdict() if hasattr(agent, "tables_") else {}
    learnt = [agent.returns_, *(tables[name] for name in tables if name not in NEWER)]
    if isinstance(problem, bm.BlockMDP) and engine == "auto":
        learnt.append(agent.policy_.pi)
        if hasattr(agent, "decode"):
            levels = range(problem.horizon + 1)
            x = [
                np.concatenate([problem.sample(h, s, 20) for s in range(problem.n_states)])
                for h in levels
            ]
            labels = np.concatenate([agent.decode(x[h], h) for h in levels])
            learnt += [labels.astype(np.int64), agent.trajectories_]
    return digest(agent.returns_), digest(*learnt)


pytestmark = pytest.mark.filterwarnings("ignore:the proof of URL.theory")


@pytest.mark.parametrize("name", AGENTS)
def test_returns_and_tables_are_those_of_version_0_1(name):
    assert hashes(name) == HASHES[name]


@pytest.mark.parametrize("name", AGENTS)
def test_keeping_policies_at_checkpoints_changes_nothing(name):
    assert hashes(name, record=True) == HASHES[name]


if __name__ == "__main__":
    for name in AGENTS:
        print(f'    "{name}": {hashes(name)!r},'.replace("'", '"'))
