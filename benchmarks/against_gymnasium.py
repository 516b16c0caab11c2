"""Measure what it is worth to make a Block MDP of a Gymnasium environment.

    python -m benchmarks.against_gymnasium

prints four tables: Q-learning in plain Python that steps through Gymnasium, against the same
algorithm in blockmdp; a large problem; the trajectories that learners need on the environments as
black boxes; and agents on vector environments, against random steps. Times are CPU times.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import gymnasium as gym
import numpy as np
from sklearn.cluster import KMeans

import blockmdp as bm

ENVIRONMENTS: tuple[tuple[str, dict[str, Any], int], ...] = (
    ("FrozenLake-v1", {"is_slippery": False}, 20),
    ("FrozenLake-v1", {"is_slippery": True}, 20),
    ("CliffWalking-v1", {}, 30),
    ("Taxi-v4", {}, 30),
)
LR, EXPLORATION, FINAL = 0.1, 0.5, 0.01


def plain_q_learning(env: Any, episodes: int, seed: int) -> None:
    """Q-learning as `bm.QLearning(stationary=True)`, one step of the environment at a time."""
    q = np.zeros((env.observation_space.n, env.action_space.n))
    random, span = np.random.default_rng(seed), max(EXPLORATION * episodes, 1.0)
    for k in range(episodes):
        epsilon = max(FINAL, 1.0 - (1.0 - FINAL) / span * k)
        s, _ = env.reset(seed=seed if k == 0 else None)
        over = False
        while not over:
            if random.random() < epsilon:
                a = int(random.integers(q.shape[1]))
            else:
                a = int(random.choice(np.flatnonzero(q[s] == q[s].max())))
            t, r, terminated, truncated, _ = env.step(a)
            after = 0.0 if terminated or truncated else q[t].max()
            q[s, a] += LR * (r + after - q[s, a])
            s, over = t, terminated or truncated


def seconds(function: Any, *arguments: Any) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def speed(episodes: int) -> None:
    """Print microseconds per episode, at the environments' own time limits."""
    print(f"{'microseconds per episode':<36}{'Gymnasium':>12}{'blockmdp':>12}{'ratio':>9}")
    for id, options, _ in ENVIRONMENTS:
        limit = {"max_episode_steps": 200} if id.startswith("Cliff") else {}
        env, m = gym.make(id, **options, **limit), bm.from_gymnasium(id, **options, **limit)
        learner = bm.QLearning(lr=LR, exploration=EXPLORATION, final_epsilon=FINAL, stationary=True)
        agent = bm.Tabular(learner)
        agent.fit(m, 10)  # compile before the clock starts
        slow = 1e6 / episodes * min(seconds(plain_q_learning, env, episodes, i) for i in range(2))
        fast = 1e6 / episodes * min(seconds(agent.fit, m, episodes, i) for i in range(5))
        name = f"{id} {options or ''}"
        print(f"{name:<36}{slow:>12,.0f}{fast:>12,.2f}{slow / fast:>8,.0f}x", flush=True)


def large(episodes: int) -> None:
    """Print time and memory for S = 5,000, A = 7, H = 300, one or three next states."""
    S, A, H = 5000, 7, 300
    print(f"\nS = {S}, A = {A}, H = {H}")
    print(f"{'next states, learner':<36}{'V* in s':>10}{'ns per step':>13}{'peak in GB':>12}")
    for K in (1, 3):
        g = np.random.default_rng(0)
        states = np.array([g.choice(S, K, replace=False) for _ in range(S * A)]).reshape(S, A, K)
        m = bm.BlockMDP(
            np.arange(S) == 0,
            bm.Successors(states, g.dirichlet(np.ones(K), (S, A))),
            np.arange(S) == S - 1,
            emission=bm.Fixed(np.arange(S)),
            horizon=H,
        )
        exact = seconds(m.optimal_value)
        for learner in (bm.QLearning(stationary=True), bm.OracleQ(v_max=50.0, stationary=True)):
            agent = bm.Tabular(learner)
            agent.fit(m, 2)
            took = min(seconds(agent.fit, m, episodes, i) for i in range(2)) / episodes / H
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            name = f"{K}, {type(learner).__name__}"
            print(f"{name:<36}{exact:>10.2f}{took * 1e9:>13.0f}{peak:>12.2f}", flush=True)


def black_boxes(episodes: int) -> None:
    """Print the trajectories after which the exact value stays above 90 % of the optimal value."""
    print(f"\ntrajectories to 90 % of V*, as black boxes, at most {episodes:,}")
    print(f"{'':<36}{'UCBVI':>10}{'':>10}{'QLearning':>12}")
    print(f"{'':<36}{'shared':>10}{'by level':>10}{'shared':>12}{'by level':>10}")
    for id, options, H in ENVIRONMENTS:
        m, row = bm.from_gymnasium(id, H, **options), ""
        for learner in (bm.UCBVI, bm.QLearning):
            for stationary in (True, False):
                more = {"v_max": 20.0 if id.startswith("Taxi") else 1.0}
                if learner is bm.QLearning:
                    more = {"lr": 0.2, "exploration": 0.5}
                agent = bm.Tabular(
                    learner(**more, stationary=stationary),
                    on="observation",
                    by_level=not stationary,
                )
                agent.fit(gym.make(id, **options, max_episode_steps=H), episodes, record="few")
                row += f"{solved_from(m, agent) or '-':>10}" + "  " * (len(row) == 10)
        print(f"{id + ' ' + str(options or ''):<36}{row}", flush=True)


def solved_from(m: bm.BlockMDP, agent: bm.Agent) -> int | None:
    """Return as `agent.solved_from()` for a black box whose states are its observations."""
    best, first, states = m.optimal_value(), None, np.arange(m.n_states)
    for snapshot in reversed(agent.snapshots_ or []):
        greedy = np.stack([snapshot.policy.act(states, h) for h in range(m.horizon)])
        if m.value(np.eye(m.n_actions)[greedy]) < best - 0.1 * abs(best):
            break
        first = snapshot.trajectories
    return first


class Noisy(gym.ObservationWrapper[Any, Any, Any]):
    """The one-hot code of the state plus Gaussian noise, in 24 dimensions."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (24,), np.float32)

    def observation(self, observation: Any) -> Any:
        x = self.unwrapped.np_random.normal(0, 0.1, 24)
        x[observation] += 1
        return x.astype(np.float32)


class Counted(gym.vector.VectorWrapper):
    """A vector environment that counts its steps."""

    steps = 0

    def step(self, actions: Any) -> Any:
        self.steps += self.num_envs
        return self.env.step(actions)


def copies(n: int) -> Counted:
    """Return n copies of FrozenLake behind noise."""

    def lake() -> Any:
        return Noisy(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=20))

    return Counted(gym.vector.SyncVectorEnv([lake] * n))


def throughput(episodes: int, n: int = 8, turns: int = 9) -> None:
    """Print the steps per second of agents on n copies, and their share of those of random actions.

    The speed of a machine varies, so each fit stands between two random walks, and the median over
    the turns counts.
    """
    print(f"\nsteps per second on {n} copies of FrozenLake behind noise, {episodes} episodes")
    k_means = bm.URL(KMeans(24, n_init=3), bm.OracleQ(), batch=200, iterations=1)
    agents = {"URL": k_means, "OnlineURL": bm.OnlineURL(pool_levels=True)}
    for name, agent in agents.items():
        agent.fit(copies(n), 10, horizon=20)  # compile before the clock starts
        fits, walks = [], [random_steps(n, episodes)]
        for _ in range(turns):
            envs = copies(n)
            took = seconds(lambda: agent.fit(envs, episodes, horizon=20))  # noqa: B023
            fits.append(envs.steps / took)
            walks.append(random_steps(n, episodes))
        shares = np.array(fits) / (np.array(walks[:-1]) + walks[1:]) * 2
        low, middle, high = np.quantile(shares, [0.25, 0.5, 0.75])
        unused = agent.ledger_["unused"] / sum(agent.ledger_.values())
        print(
            f"{name:<12}{np.median(fits):>9,.0f}, random {np.median(walks):,.0f}: {middle:.0%} "
            f"(quartiles {low:.0%} and {high:.0%} of {turns} turns), episodes unused {unused:.0%}",
            flush=True,
        )


def random_steps(n: int, episodes: int) -> float:
    """Return the steps per second of random actions."""
    envs = copies(n)
    envs.reset(seed=0)
    return 1 / seconds(walk, envs, 10 * episodes // n, np.random.default_rng(0)) * envs.steps


def walk(envs: Counted, steps: int, random: np.random.Generator) -> None:
    """Take random actions in all copies."""
    for _ in range(steps):
        envs.step(random.integers(4, size=envs.num_envs))


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against_gymnasium")
    parser.add_argument("--quick", action="store_true", help="measure less")
    quick = parser.parse_args().quick
    speed(100 if quick else 1_000)
    large(20 if quick else 1_000)
    black_boxes(100 if quick else 2_000)
    throughput(30 if quick else 3_000)


if __name__ == "__main__":
    main()
