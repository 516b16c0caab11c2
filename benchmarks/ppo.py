"""How many trajectories PPO needs on two MiniGrid problems, from the pictures that `minigrid` sees.

Stable-Baselines3 needs torch, so it runs in an environment of its own:

    python -m venv /tmp/ppo
    /tmp/ppo/bin/pip install stable-baselines3==2.9.2 '.[minigrid]'
    /tmp/ppo/bin/python -m benchmarks.ppo [--seeds 5] [--most 5000]

PPO is solved when the exact value of its policy, with its most probable actions or with those that
it draws, exceeds 0.9 V*. This is asked before the first update and after each. Every episode that
has begun counts. PPO does not know how much of an episode is left.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

import blockmdp as bm

PROBLEMS = [("MiniGrid-Empty-5x5-v0", 10), ("MiniGrid-DoorKey-5x5-v0", 20)]
COPIES = 8
SETTINGS: dict[str, dict[str, Any]] = {  # all else as Stable-Baselines3 has it
    "default": {"n_steps": 2048 // COPIES},
    "short rollouts": {"n_steps": 128, "ent_coef": 0.01, "learning_rate": 1e-3},
}


class Scaled(gym.ObservationWrapper):
    """Pictures as numbers from 0 to 1."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, 1, env.observation_space.shape, np.float32)

    def observation(self, observation: Any) -> Any:
        """Return the picture, scaled."""
        return observation.astype(np.float32) / 255


class Until(BaseCallback):
    """Stop when the policy is good enough, and count the episodes."""

    def __init__(self, m: bm.BlockMDP, most: int) -> None:
        super().__init__()
        self.m, self.most, self.begun, self.found = m, most, 0, False
        self.x = np.concatenate([m.sample(0, s, 1, seed=0) for s in range(m.n_states)])

    def value(self) -> float:
        """Return the exact value of the policy, greedy or drawn at random, the better of both."""
        x = torch.as_tensor(self.x.astype(np.float32) / 255)
        with torch.no_grad():
            drawn = self.model.policy.get_distribution(x).distribution.probs.numpy()
        drawn = drawn.astype(np.float64) / drawn.sum(axis=1, dtype=np.float64, keepdims=True)
        greedy = np.eye(self.m.n_actions)[drawn.argmax(axis=1)]
        H, S, A = self.m.horizon, self.m.n_states, self.m.n_actions
        return max(self.m.value(np.broadcast_to(pi, (H, S, A)).copy()) for pi in (drawn, greedy))

    def _on_training_start(self) -> None:
        self.begun = self.training_env.num_envs

    def _on_step(self) -> bool:
        if self.found:
            return False
        self.begun += int(np.count_nonzero(self.locals["dones"]))
        return self.begun < self.most

    def _on_rollout_start(self) -> None:  # after each update, and before the first
        self.found = self.value() > 0.9 * self.m.optimal_value()


def trajectories(m: bm.BlockMDP, seed: int, most: int, **settings: Any) -> int | None:
    """Return how many trajectories PPO needs, None if it needs more than `most`."""
    make: list[Callable[[], gym.Env]] = [lambda: Scaled(m.to_gymnasium())] * COPIES
    model = PPO("MlpPolicy", DummyVecEnv(make), seed=seed, device="cpu", **settings)
    until = Until(m, most)
    model.learn(most * m.horizon, callback=until)
    return until.begun if until.found else None


def main() -> None:
    """Print a table: the median, and how many seeds were solved."""
    parser = argparse.ArgumentParser(description="Count PPO's trajectories on MiniGrid.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=5_000, help="trajectories of a run")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, horizon in PROBLEMS:
        m = bm.minigrid(name, horizon, tile=3)
        for label, settings in SETTINGS.items():
            one = partial(trajectories, m, most=options.most, **settings)
            found = [one(seed) for seed in range(options.seeds)]
            middle = median(np.inf if n is None else n for n in found)
            solved = sum(n is not None for n in found)
            print(f"{name}, {label}: {middle:g} ({solved}/{len(found)}) {found}", flush=True)


if __name__ == "__main__":
    main()
