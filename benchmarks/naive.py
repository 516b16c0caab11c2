"""The naive baseline: the locks and their learners, written as research code usually is.

An environment object takes one action at a time and builds an observation array in every step, even
if nobody looks at it. Learners keep Q in a dictionary. A scikit-learn pipeline predicts one
observation at a time. The code is neither slowed down nor tuned. blockmdp is measured against it,
so it imports nothing from the package.

`python benchmarks/naive.py` prints the cost of a step, and when OracleQ solves the lock.
"""

from __future__ import annotations

import time

import numpy as np


class Lock:
    """The combination lock of Feng et al. (2020), Section 5; subclasses define observations."""

    n_states = 3
    n_actions = 4

    def __init__(self, horizon, switch=0.2, seed=None):
        self.horizon = horizon
        self.switch = switch
        self.rng = np.random.default_rng(seed)
        # for each level and live state, a random order of the actions: the first one leads to state
        # 0 (up to a switch), the second to state 1, the other two are fatal
        self.roles = [
            [self.rng.permutation(self.n_actions) for live in range(2)] for h in range(horizon)
        ]
        self.level = 0
        self.state = 0

    def reset(self):
        self.level = 0
        self.state = 0
        return self.observe(), {"state": self.state}

    def step(self, action):
        if self.state != 2:
            roles = self.roles[self.level][self.state]
            if action == roles[0]:
                self.state = 1 if self.rng.random() < self.switch else 0
            elif action == roles[1]:
                self.state = 0 if self.rng.random() < self.switch else 1
            else:
                self.state = 2
        self.level += 1
        done = self.level == self.horizon
        reward = 0.0
        if done and self.state != 2 and self.rng.random() < 0.5:
            reward = 1.0
        return self.observe(), reward, done, {"state": self.state}

    def observe(self):
        raise NotImplementedError


class LockBernoulli(Lock):
    """One-hot code of the state, then `horizon` random bits."""

    def observe(self):
        x = np.zeros(self.n_states + self.horizon, dtype=int)
        x[self.state] = 1
        x[self.n_states :] = self.rng.integers(0, 2, size=self.horizon)
        return x


class LockGaussian(Lock):
    """One-hot code of the state and `horizon` zeros, plus Gaussian noise on every coordinate."""

    def __init__(self, horizon, switch=0.2, sigma=0.1, seed=None):
        super().__init__(horizon, switch, seed)
        self.sigma = sigma

    def observe(self):
        x = np.zeros(self.n_states + self.horizon)
        x[self.state] = 1
        return x + self.rng.normal(0.0, self.sigma, size=len(x))


class OracleQ:
    """Q-learning with upper confidence bounds (Jin et al. 2018).

    As in the experiments of Feng et al. (2020), the learning rate is constant, the bonus is
    c * sqrt(H / n), and Q starts at 1 and is capped there.
    """

    def __init__(self, horizon, n_actions, lr=0.1, c=0.001, seed=None):
        self.horizon = horizon
        self.n_actions = n_actions
        self.lr = lr
        self.c = c
        self.rng = np.random.default_rng(seed)
        self.Q = {}
        self.N = {}

    def act(self, key):
        if key not in self.Q:
            self.Q[key] = np.ones(self.n_actions)
            self.N[key] = np.zeros(self.n_actions, dtype=int)
        q = self.Q[key]
        return self.rng.choice(np.flatnonzero(q == q.max()))

    def update(self, trajectory):
        """Learn from an episode, a list of (key, action, reward) in the order of the steps."""
        for h, (key, a, r) in enumerate(trajectory):
            v_next = 0.0
            if h + 1 < len(trajectory):
                v_next = self.Q[trajectory[h + 1][0]].max()
            self.N[key][a] += 1
            bonus = self.c * np.sqrt(self.horizon / self.N[key][a])
            q = (1 - self.lr) * self.Q[key][a] + self.lr * (r + v_next + bonus)
            self.Q[key][a] = min(1.0, q)


class QLearning:
    """Epsilon-greedy Q-learning that starts at 0.

    Epsilon falls linearly from 1 to `final_epsilon`, by 1 / decay_episodes in each episode.
    """

    def __init__(self, n_actions, lr=0.1, decay_episodes=100, final_epsilon=0.01, seed=None):
        self.n_actions = n_actions
        self.lr = lr
        self.decay_episodes = decay_episodes
        self.final_epsilon = final_epsilon
        self.epsilon = 1.0
        self.episode = 0
        self.rng = np.random.default_rng(seed)
        self.Q = {}

    def act(self, key):
        if key not in self.Q:
            self.Q[key] = np.zeros(self.n_actions)
        if self.rng.random() < self.epsilon:
            return self.rng.integers(self.n_actions)
        q = self.Q[key]
        return self.rng.choice(np.flatnonzero(q == q.max()))

    def update(self, trajectory):
        """Learn from an episode, a list of (key, action, reward) in the order of the steps."""
        for h, (key, a, r) in enumerate(trajectory):
            v_next = 0.0
            if h + 1 < len(trajectory):
                v_next = self.Q[trajectory[h + 1][0]].max()
            self.Q[key][a] += self.lr * (r + v_next - self.Q[key][a])
        self.episode += 1
        self.epsilon = max(self.final_epsilon, 1.0 - self.episode / self.decay_episodes)


def run(env, learner, episodes, on="latent"):
    """Learn on latent states or on raw observations; return the returns, (episodes,)."""
    if on not in ("latent", "observation"):
        raise ValueError(f"on must be 'latent' or 'observation', got {on!r}")
    returns = np.zeros(episodes)
    for k in range(episodes):
        trajectory = []
        x, info = env.reset()
        done = False
        h = 0
        while not done:
            key = (h, info["state"]) if on == "latent" else (h, tuple(x.tolist()))
            a = learner.act(key)
            x, r, done, info = env.step(a)
            trajectory.append((key, a, r))
            returns[k] += r
            h += 1
        learner.update(trajectory)
    return returns


def run_url(env, estimator, learner, episodes):
    """Learn on the labels that a fitted scikit-learn estimator predicts; return the returns."""
    returns = np.zeros(episodes)
    for k in range(episodes):
        trajectory = []
        x, _ = env.reset()
        done = False
        h = 0
        while not done:
            key = (h, estimator.predict(x.reshape(1, -1))[0])
            a = learner.act(key)
            x, r, done, _ = env.step(a)
            trajectory.append((key, a, r))
            returns[k] += r
            h += 1
        learner.update(trajectory)
    return returns


class PCID:
    """Policy cover via inductive decoding (Du et al. 2019), linear, one trajectory at a time."""

    def __init__(self, horizon, n_actions, n=300, n_clusters=3, seed=None):
        self.horizon = horizon
        self.n_actions = n_actions
        self.n = n
        self.n_clusters = n_clusters
        self.rng = np.random.default_rng(seed)
        self.models = []  # for levels 1, 2, ...: (regression, cluster centres)
        self.P = []  # estimated transitions (state, action, next state) of each level
        self.R = []

    def decode(self, h, x):
        """Return the label of an observation at level h."""
        if h == 0:
            return 0
        regression, centres = self.models[h - 1]
        g = regression.predict(x.reshape(1, -1))
        return int(np.argmin(((centres - g) ** 2).sum(axis=1)))

    def plan(self, reward, last):
        """Return the best policy for a reward per level plus final values `last`, as a list."""
        V = last
        policy = []
        for h in reversed(range(len(self.P))):
            Q = reward[h] + self.P[h] @ V
            policy.append(Q.argmax(axis=1))
            V = Q.max(axis=1)
        return policy[::-1]

    def explore(self, env):
        """Find the states of one level after the other, with n trajectories per level."""
        states = 1
        for h in range(self.horizon):
            nothing = [np.zeros(P.shape[:2]) for P in self.P]
            homing = [self.plan(nothing, np.eye(states)[s]) for s in range(states)]
            came_from, seen, rewards = [], [], []
            for _ in range(self.n):
                policy = homing[self.rng.integers(states)]
                x, _ = env.reset()
                for g in range(self.horizon):
                    s = self.decode(g, x) if g <= h else None
                    a = policy[g][s] if g < h else self.rng.integers(self.n_actions)
                    x, r, _, _ = env.step(a)
                    if g == h:
                        came_from.append((s, a))
                        seen.append(x)
                        rewards.append(r)
            states = self.learn_level(came_from, np.array(seen), rewards, states)

    def learn_level(self, came_from, x, rewards, states):
        from sklearn.cluster import KMeans
        from sklearn.linear_model import LinearRegression

        y = np.zeros((len(x), states * self.n_actions))
        for i, (s, a) in enumerate(came_from):
            y[i, s * self.n_actions + a] = 1
        regression = LinearRegression().fit(x, y)
        g = regression.predict(x)
        k = self.n_clusters
        clusters = KMeans(k, n_init=10).fit(g)
        while k > 1 and np.bincount(clusters.labels_).min() < 30:
            k -= 1
            clusters = KMeans(k, n_init=10).fit(g)
        self.models.append((regression, clusters.cluster_centers_))
        P, R = np.zeros((states, self.n_actions, k)), np.zeros((states, self.n_actions))
        for (s, a), t, r in zip(came_from, clusters.labels_, rewards):
            P[s, a, t] += 1
            R[s, a] += r
        count = np.maximum(P.sum(axis=2), 1)
        self.P.append(P / count[:, :, None])
        self.R.append(R / count)
        return k

    def exploit(self, env, episodes):
        """Follow the best policy of the learnt model; return the returns."""
        policy = self.plan(self.R, np.zeros(self.P[-1].shape[2]))
        returns = np.zeros(episodes)
        for k in range(episodes):
            x, _ = env.reset()
            for h in range(self.horizon):
                x, r, _, _ = env.step(policy[h][self.decode(h, x)])
                returns[k] += r
        return returns


def collect(env, episodes, seed=None):
    """Return observations of random trajectories, (episodes * (H + 1), dim)."""
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(episodes):
        x, _ = env.reset()
        data.append(x)
        done = False
        while not done:
            x, _, done, _ = env.step(rng.integers(env.n_actions))
            data.append(x)
    return np.array(data)


def seconds(function, *args, **kwargs):
    """Return the result of a call, and how long it took."""
    start = time.perf_counter()
    result = function(*args, **kwargs)
    return result, time.perf_counter() - start


def steps_per_second(env, learner, episodes, on="latent"):
    """Return the environment steps per second of `run`, learning included."""
    _, took = seconds(run, env, learner, episodes, on=on)
    return episodes * env.horizon / took


def steps_per_second_url(env, estimator, learner, episodes):
    """Return the environment steps per second of `run_url`, learning included."""
    _, took = seconds(run_url, env, estimator, learner, episodes)
    return episodes * env.horizon / took


def solved_at(returns, window=1000, level=0.45):
    """Return the episodes until the mean of `window` returns exceeds `level`; None if never."""
    means = np.convolve(returns, np.ones(window) / window, mode="valid")
    above = np.flatnonzero(means > level)
    return int(above[0]) + window if len(above) else None


def main():
    """Print the cost of a step, and when OracleQ on latent states solves the lock."""
    print("microseconds per step, median of 5  H=5   H=20")
    for name, lock in (("LockBernoulli", LockBernoulli), ("LockGaussian", LockGaussian)):
        for on in ("latent", "observation"):
            cost = {}
            for H in (5, 20):
                rates = []
                for seed in range(5):
                    env = lock(H, seed=seed)
                    learner = OracleQ(H, env.n_actions, seed=100 + seed)
                    rates.append(steps_per_second(env, learner, 40_000 // H, on))
                cost[H] = 1e6 / np.median(rates)
            print(f"{name:16}{on:16}{cost[5]:6.1f} {cost[20]:6.1f}")
    for H in (5, 20):
        at = []
        for seed in range(10):
            env = LockBernoulli(H, seed=seed)
            at.append(solved_at(run(env, OracleQ(H, env.n_actions, seed=100 + seed), 5000)))
        print(f"OracleQ on latent states, H={H}: solved after {at} episodes")


if __name__ == "__main__":
    main()
