"""Map how many trajectories OracleQ needs over 64 x 64 learning rates and bonuses, on a GPU.

    python -m benchmarks.phase phase.npz        # 614,400 runs of 20,000 episodes
    python -m benchmarks.phase phase.npz --draw docs/img/phase.png

Each point has 50 seeds on the paper's LockBernoulli at each of three horizons. Runs are solved when
the mean of 1,000 returns exceeds 80 % of the optimal value, as in the paper's figures. All of this
happens on the GPU; only the number of the episode comes back.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numba import cuda

import blockmdp as bm
from blockmdp import streams
from blockmdp.simulators import cuda as gpu

HORIZONS = (5, 10, 20)
WINDOW = 1000
RATES = 16  # learning rates at once


@cuda.jit
def first_solved(returns, window, threshold, solved):
    """Write the episode at which the mean of the last returns first exceeds a threshold."""
    i = cuda.grid(1)
    if i < returns.shape[1]:
        total = 0.0
        solved[i] = -1
        for k in range(returns.shape[0]):
            total += returns[k, i]
            if k >= window:
                total -= returns[k - window, i]
            if k + 1 >= window and total > threshold * window and solved[i] < 0:
                solved[i] = k + 1


def run(horizon, rates, bonuses, seeds, episodes):
    """Return the trajectories until solved, (rates, bonuses, seeds); -1 if a run never was."""
    problems = [bm.lock_bernoulli(horizon=horizon, switch=0.2, seed=seed) for seed in range(seeds)]
    A = bm.OracleQ()
    one = A.tables(horizon, problems[0].n_states, problems[0].n_actions, episodes)
    sight = gpu.Sight(np.uint64(0), *np.zeros((8, 1)))
    # seeds first, so that the runs of a block share a problem
    at = np.indices((seeds, min(RATES, len(rates)), len(bonuses))).reshape(3, -1)
    which, n = at[0], at.shape[1]
    slots, one_problem = gpu.slots_of(which, seeds, gpu.shapes_of(problems[0].dynamics))
    shapes = gpu.shapes_of(one), gpu.shapes_of(sight), gpu.shapes_of(problems[0].dynamics)
    functions = (A.act, A.update, A.plan)
    kernel = gpu.kernel_of(functions, type(one), gpu.Layout(*shapes, horizon, one_problem), None)
    keys = [np.array([f(seed) for seed in range(seeds)], np.uint64)[which]
            for f in (streams.world, streams.agent)]  # fmt: skip
    none = np.zeros(n, np.int64)
    facts = [cuda.to_device(a) for a in (slots, which, *keys, none, none, none + episodes)]
    seen, there = gpu.stacked([sight] * n), gpu.problems_on_gpu([m.dynamics for m in problems])
    returns, solved = cuda.device_array((episodes, n)), cuda.device_array(n, np.int64)
    parts = []
    for first in range(0, len(rates), RATES):
        tables = [np.broadcast_to(np.asarray(a)[..., None], (*np.shape(a), n)) for a in one]
        tables = type(one)(*tables)._replace(alpha=rates[first:][at[1]], c=bonuses[at[2]])
        tables = type(one)(*(cuda.to_device(np.ascontiguousarray(a)) for a in tables))
        with gpu.exact_arithmetic():
            kernel[slots.shape](tables, seen, there, *facts, returns)
        first_solved[-(-n // 128), 128](returns, WINDOW, 0.8 * problems[0].optimal_value(), solved)
        parts.append(solved.copy_to_host().reshape(seeds, -1, len(bonuses)))
    return np.concatenate(parts, axis=1).transpose(1, 2, 0)


def draw(data, path):
    """Draw the median number of trajectories at each point; white where most runs fail."""
    from matplotlib import pyplot as plt
    from matplotlib.colors import LogNorm

    figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained", sharey=True)
    rates, bonuses = data["rates"], data["bonuses"]
    for axis, H in zip(axes, HORIZONS):
        solved = data[f"solved{H}"].astype(float)
        solved[solved < 0] = np.inf
        median = np.median(solved, axis=2)
        median[np.isinf(median)] = np.nan
        mesh = axis.pcolormesh(bonuses, rates, median, norm=LogNorm(1000, 20_000), cmap="viridis_r")
        axis.plot(0.001, 0.1, "k+", label="default")
        axis.set(xscale="log", yscale="log", title=f"H = {H}", xlabel="bonus")
    axes[0].set_ylabel("learning rate")
    axes[0].legend(loc="lower left")
    figure.colorbar(mesh, ax=axes, label="trajectories until solved (median)")
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run the map, or draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", help="where the result is kept")
    parser.add_argument("--draw", metavar="PICTURE", help="draw a result instead")
    parser.add_argument("--points", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--episodes", type=int, default=20_000)
    args = parser.parse_args()
    if args.draw:
        draw(np.load(args.file), args.draw)
        return
    rates, bonuses = np.logspace(-3, 0, args.points), np.logspace(-5, 0, args.points)
    kept, start = {"rates": rates, "bonuses": bonuses}, time.perf_counter()
    for H in HORIZONS:
        begun = time.perf_counter()
        kept[f"solved{H}"] = run(H, rates, bonuses, args.seeds, args.episodes).astype(np.int32)
        steps = kept[f"solved{H}"].size * args.episodes * H
        seconds = time.perf_counter() - begun
        print(f"H = {H}: {seconds:.1f} s, {steps / seconds / 1e9:.1f} G steps/s", flush=True)
    runs = 3 * kept["solved5"].size
    print(f"{runs:,} runs in {time.perf_counter() - start:.1f} s")
    np.savez_compressed(args.file, **kept)


if __name__ == "__main__":
    main()
