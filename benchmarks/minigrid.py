"""How many trajectories MiniGrid needs, from noisy pixels and on latent states.

    python -m benchmarks.minigrid [FILE]

Results are kept in FILE (results/minigrid.jsonl), so that it can be interrupted and goes on.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import blockmdp as bm

# id, horizon and largest number of episodes; the cheap ones first
PROBLEMS = [
    ("MiniGrid-Empty-5x5-v0", 10, 256),
    ("MiniGrid-MultiRoom-N2-S4-v0", 15, 256),
    ("MiniGrid-DoorKey-5x5-v0", 20, 512),
    ("MiniGrid-KeyCorridorS3R1-v0", 30, 512),
    ("MiniGrid-Empty-8x8-v0", 20, 512),
    ("MiniGrid-SimpleCrossingS9N1-v0", 25, 512),
    ("MiniGrid-LavaCrossingS9N1-v0", 25, 512),
    ("MiniGrid-Unlock-v0", 25, 768),
    ("MiniGrid-FourRooms-v0", 30, 768),
]
NOISES = (None, "tint", "distractors")
SEEDS = range(5)
SAMPLES = 10  # observations of each state from which the value is computed
LEARNER = bm.UCBVI(bonus=0.0, stationary=True, discount=0.95, greedy="known")


def value(agent: Any, m: bm.BlockMDP) -> float:
    """Return the exact value of a policy, given the labels of `SAMPLES` pictures of each state.

    Levels look alike and share a decoder, so the same pictures serve all levels.
    """
    policy, S, A = agent.policy_, m.n_states, m.n_actions
    if policy.decoder is None:
        return agent.value()
    n = SAMPLES if m.emission.has_noise else 1
    x = np.concatenate([m.sample(0, s, n, seed=agent.seed_) for s in range(S)])
    labels = policy.decode(x, 0)
    states = np.repeat(np.arange(S), n)
    pi = np.zeros((m.horizon, S, A))
    for h in range(m.horizon):
        np.add.at(pi[h], (states, policy.actions(labels, h)), 1 / n)
    return m.value(pi)


def trajectories(agent: Any, m: bm.BlockMDP, seed: int, most: int) -> int | None:
    """Return the trajectories after which the value first exceeds 0.9 V*, in steps of 8."""
    agent.fit(m, 8, seed)
    while True:
        if agent.returns_.max() > 0 and value(agent, m) > 0.9 * m.optimal_value():
            return int(agent.trajectories_[-1])
        if len(agent.returns_) >= most:
            return None
        agent.fit_more(8)


def run(file: Path) -> list[dict[str, Any]]:
    """Do the runs that are not in the file yet, and return all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(row["id"], row["noise"], row["seed"]) for row in rows}
    for noise in ("latent", None, "distractors", "tint"):
        for name, horizon, most in PROBLEMS:
            todo = [seed for seed in SEEDS if (name, noise, seed) not in done]
            if not todo:
                continue
            m = bm.minigrid(name, horizon, noise=None if noise == "latent" else noise, tile=3)
            screens = None
            if isinstance(m.emission, bm.Fixed):
                screens = len(np.unique(m.emission.observations, axis=0))
            for seed in todo:
                agent: Any = bm.Tabular(LEARNER)
                if noise != "latent":
                    oracle = bm.oracles.images(kind="rendered")
                    agent = bm.OnlineURL(oracle, LEARNER, pool_levels=True)
                row = {
                    **{"id": name, "noise": noise, "seed": seed, "horizon": horizon},
                    **{"states": m.n_states, "screens": screens, "value": m.optimal_value()},
                    "trajectories": trajectories(agent, m, seed, most),
                }
                rows.append(row)
                with file.open("a") as out:
                    out.write(json.dumps(row) + "\n")
                print(row, file=sys.stderr, flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Return the results as a table: the median of five seeds, and how many were solved."""
    lines = [
        "| id | horizon | states | screens | $V^*$ | latent states | pixels | tint | distractors |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, horizon, _ in PROBLEMS:
        mine = [row for row in rows if row["id"] == name]
        if not mine:
            continue
        screens = next((row["screens"] for row in mine if row["screens"]), "")
        short = name.removeprefix("MiniGrid-").removesuffix("-v0")
        cells = [short, horizon, mine[0]["states"], screens, f"{mine[0]['value']:g}"]
        for noise in ("latent", *NOISES):
            found = [row["trajectories"] for row in mine if row["noise"] == noise]
            solved = sum(n is not None for n in found)
            middle = median(n if n is not None else np.inf for n in found) if found else np.inf
            number = f"{middle:.0f}" if middle < np.inf else "-"
            cells.append("" if not found else f"{number} ({solved}/{len(found)})")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(table(run(Path(*sys.argv[1:2] or ["results/minigrid.jsonl"]))))
