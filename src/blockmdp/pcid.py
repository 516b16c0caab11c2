"""PCID: policy cover via inductive decoding (Du et al. 2019, Algorithm 1), in its practical form.

PCID works level by level. It reaches the known states of a level with their homing policies, acts
at random, and learns to predict from the observations of the next level which (state, action) they
came from. The states of the next level are the clusters of these predictions. So PCID cannot tell
two latent states apart that have the same backward distribution over (state, action).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.agents.base import DecodingAgent, Steps
from blockmdp.checks import check_integer
from blockmdp.decoders import FittedDecoder
from blockmdp.history import Level
from blockmdp.learners.fixed_policy import FixedPolicy
from blockmdp.oracles._kmeans import Clusters, kmeans
from blockmdp.oracles._network import Network, predict, train
from blockmdp.oracles.fitting import ConstantPredictor, FittedOracle
from blockmdp.oracles.scores import LinearScores, NetworkScores
from blockmdp.policy import Policy
from blockmdp.simulators import LearnerRun, Simulator

__all__ = ["PCID"]

Array = NDArray[np.float64]


class PCID(DecodingAgent):
    """Policy cover via inductive decoding: explore level by level, then plan and exploit.

    The paper's baseline (Du et al. 2019). It needs no clustering of raw observations, but its
    states must differ in how they are reached.

    Parameters
    ----------
    model : {"linear", "network"}, default="linear"
        Predicts the previous (state, action) from an observation: least squares, or a network with
        one hidden layer of `n_clusters` logistic units.
    n : int, default=300
        Trajectories for each level.
    n_clusters : int, default=3
        Largest number of states at a level.
    min_cluster : int, default=30
        While a cluster has fewer observations than this, look for one cluster less.

    Attributes
    ----------
    policy_ : Policy
        The policy that was learnt.
    decoder_ : FittedDecoder
        The decoder that was learnt, one for each level.
    returns_ : ndarray of shape (episodes,)
        Return of each episode of exploitation.
    trajectories_ : ndarray of shape (episodes,)
        Trajectories of all kinds drawn by the end of each.
    ledger_ : dict
        Number of trajectories drawn, by kind: "explore", and "learn" for exploitation.
    history_ : list of Level
        What was found at each level.
    transitions_ : ndarray of shape (H, n_clusters, A, n_clusters)
        The learnt model: probability of the next label.

    See Also
    --------
    URL : Clusters observations instead.

    References
    ----------
    S. S. Du, A. Krishnamurthy, N. Jiang, A. Agarwal, M. Dudik, J. Langford. Provably efficient RL
    with Rich Observations via Latent State Decoding. ICML 2019.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5, switch=0.2)
    >>> agent = bm.PCID(n=300).fit(m, episodes=5_000, seed=0)
    >>> agent.value()
    0.5
    >>> agent.ledger_
    {'explore': 1500, 'learn': 5000}
    """

    history_: list[Level]
    transitions_: Array

    def __init__(
        self,
        model: Literal["linear", "network"] = "linear",
        n: int = 300,
        n_clusters: int = 3,
        *,
        min_cluster: int = 30,
    ) -> None:
        if model not in ("linear", "network"):
            raise ValueError(f"model must be 'linear' or 'network', got {model!r}")
        for name, value in (("n", n), ("n_clusters", n_clusters), ("min_cluster", min_cluster)):
            check_integer(name, value, 1)
        self.model, self.n, self.n_clusters = model, n, n_clusters
        self.min_cluster = min_cluster

    def _begin(self, simulator: Simulator, episodes: int, record: bool) -> _State:
        simulator.ledger.update({"explore": 0, "learn": 0})
        P, R, decoder, history = self._explore(simulator, record)
        drawn = simulator.episodes
        run = simulator.start(FixedPolicy(_plan(P, R)), episodes)
        return _State(run, decoder, P, history, drawn)

    def _steps(self, simulator: Simulator, state: _State, stop: int) -> Steps:
        yield state.run, state.decoder, stop - state.run.k, False

    def _end(self, simulator: Simulator, state: _State) -> None:
        run = state.run
        self.transitions_, self.history_ = state.P, state.history
        pi = run.learner.policy(run.tables).copy()
        self.policy_ = Policy(pi, state.decoder, simulator.observation_shape)
        self.returns_ = run.returns
        self.trajectories_ = state.drawn + np.arange(1, run.k + 1)

    def _explore(
        self, simulator: Simulator, record: bool
    ) -> tuple[Array, Array, FittedDecoder, list[Level]]:
        """Return the learnt model, P (H, S, A, S) and R (H, S, A), the decoder and the history."""
        H, A, S = simulator.horizon, simulator.n_actions, int(self.n_clusters)
        fitted = [FittedOracle(ConstantPredictor(), 1)] * (H + 1)
        P = np.zeros((H, S, A, S))  # of the labels found so far
        P[:, :, :, 0] = 1.0  # an action never tried leads to label 0
        R = np.zeros((H, S, A))
        homing, _ = _homing(P, 0, 1)
        history = []
        for h in range(H):
            f = FittedDecoder.of(tuple(fitted), S)
            cover = [Policy(pi, f) for pi in homing]
            D = simulator.rollout(cover, int(self.n), "explore", levels=h + 2)
            there = D.lengths > h
            x, a, r = D.x[there, h + 1], D.actions[there, h], D.rewards[there, h]
            x = x.reshape(len(x), math.prod(x.shape[1:]))  # there may be none
            s = f.decode(np.full(len(x), h), D.x[there, h])
            came_from = s.astype(np.int64) * A + a  # y = (state, action)
            key = rng.key(streams.estimator(simulator.seed), h)
            fitted[h + 1] = self._decode_backward(x, came_from, len(cover) * A, key)
            t = fitted[h + 1].predict(x)
            counts = np.zeros((S, A, S))
            np.add.at(counts, (s, a, t), 1)
            paid = np.zeros((S, A))
            np.add.at(paid, (s, a), r)
            total = counts.sum(axis=2)
            seen = total > 0
            P[h][seen] = counts[seen] / total[seen][:, None]
            R[h][seen] = paid[seen] / total[seen]
            found = fitted[h + 1].n_labels
            homing, reach = _homing(P, h + 1, found)
            sizes = tuple(np.bincount(t, minlength=found).tolist())
            kept = tuple(cover) if record else None
            history.append(
                Level(h + 1, simulator.episodes, found, sizes, tuple(reach.tolist()), kept)
            )
        return P, R, FittedDecoder.of(tuple(fitted), S), history

    def _decode_backward(
        self, x: NDArray[Any], came_from: NDArray[np.int64], n_pairs: int, key: np.uint64
    ) -> FittedOracle:
        """Predict the (state, action) indicator from the observation; cluster the predictions."""
        if len(x) == 0:
            return FittedOracle(ConstantPredictor(), 1, ("no observations to learn from",))
        indicator = np.eye(n_pairs)[came_from]
        g: _Linear | _Network
        if self.model == "linear":
            g = _Linear.fit(x, indicator)
        else:
            g = _Network.fit(x, indicator, int(self.n_clusters), rng.key(key, 0))
        # least squares have other rounding errors on other machines
        clusters = self._cluster(np.round(g.predict(x), 9), rng.key(key, 1))
        k = len(clusters.centres)
        notes = []
        if k < self.n_clusters:
            notes.append(
                f"{k} clusters: with one more, one had fewer than {self.min_cluster} points"
            )
        return FittedOracle(g.nearest(clusters.centres), k, tuple(notes))

    def _cluster(self, predicted: Array, key: np.uint64) -> Clusters:
        """Return `n_clusters` clusters, or fewer, so that none is too small."""
        k = min(int(self.n_clusters), len(predicted))
        while True:
            clusters: Clusters = kmeans(predicted, k, n_init=10, max_iter=300, tol=1e-4, key=key)
            smallest = np.bincount(clusters.labels, minlength=k).min()
            if k == 1 or smallest >= self.min_cluster:
                return clusters
            k -= 1


@dataclass
class _State:
    """A fit after exploring: the run of the planned policy, the decoder and the model."""

    run: LearnerRun
    decoder: FittedDecoder
    P: Array
    history: list[Level]
    drawn: int  # trajectories that were drawn to explore


@dataclass(frozen=True)
class _Linear:
    """Least squares: x -> A x + a."""

    A: Array
    a: Array

    @classmethod
    def fit(cls, x: NDArray[Any], y: Array) -> _Linear:
        X = np.column_stack([x.astype(np.float64), np.ones(len(x))])
        B = np.linalg.lstsq(X, y, rcond=None)[0]
        return cls(np.asarray(B[:-1].T, np.float64), np.asarray(B[-1], np.float64))

    def predict(self, x: NDArray[Any]) -> Array:
        return np.asarray(x @ self.A.T + self.a, np.float64)

    def nearest(self, C: Array) -> LinearScores:
        """Scores whose largest is the centre c nearest to A x + a: c . (A x + a) - |c|^2 / 2."""
        return LinearScores(np.ascontiguousarray(C @ self.A), C @ self.a - 0.5 * (C**2).sum(axis=1))


@dataclass(frozen=True)
class _Network:
    """One hidden layer of logistic units, linear outputs."""

    net: Network

    @classmethod
    def fit(cls, x: NDArray[Any], y: Array, units: int, key: np.uint64) -> _Network:
        """Train the network.

        The penalty and the small number of iterations keep it from memorising observations.
        """
        return cls(train(x.astype(np.float64), y, units, alpha=0.1, max_iter=50, tol=1e-4, key=key))

    def predict(self, x: NDArray[Any]) -> Array:
        return np.asarray(predict(x.astype(np.float64), self.net))

    def nearest(self, C: Array) -> NetworkScores:
        W, b, V, v = self.net
        return NetworkScores(W, b, np.ascontiguousarray(C @ V), C @ v - 0.5 * (C**2).sum(axis=1))


def _homing(P: Array, level: int, found: int) -> tuple[Array, Array]:
    """Return the policies that are most likely to reach each state of a level, and how likely.

    P: (H, S, A, S). found: states of the level. The policies (found, H, S, A) are uniform from the
    level on.
    """
    H, S, A, _ = P.shape
    pi = np.full((found, H, S, A), 1.0 / A)
    V = np.eye(S)[:found]
    for h in reversed(range(level)):
        Q = np.moveaxis(P[h] @ V.T, 2, 0)
        pi[:, h] = _greedy(Q)
        V = Q.max(axis=2)
    return pi, V[:, 0]


def _plan(P: Array, R: Array) -> Array:
    """Policy (H, S, A) with the largest value in the learnt model."""
    pi, V = np.empty(R.shape), np.zeros(R.shape[1])
    for h in reversed(range(len(R))):
        Q = R[h] + P[h] @ V
        pi[h], V = _greedy(Q), Q.max(axis=1)
    return pi


def _greedy(Q: Array) -> Array:
    """Best action of each state, uniform over ties. Q: (..., S, A).

    Actions tie if they differ by rounding errors, which are not the same on every machine.
    """
    rounding = 1e-9 * np.abs(Q).max(axis=(-2, -1), keepdims=True)
    best = Q.max(axis=-1, keepdims=True) - rounding <= Q
    return np.asarray(best / best.sum(axis=-1, keepdims=True), np.float64)
