"""Measure the cost of an environment step, in a naive loop and in blockmdp (`make bench`).

Everything runs in one process and on one thread, and times are CPU times, so other processes matter
little. Each row alternates between naive and blockmdp several times, so a machine that slows down
slows both. The best time of each counts. Learning is part of a step. The naive loop runs fewer
episodes, which helps it, because its steps get slower as its dictionary of observations grows. Code
is compiled before the clock starts. Compile times are measured separately, in a fresh process with
an empty cache.

`python -m benchmarks --quick` takes a quick look. To measure more, add to `rows`.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["VECLIB_MAXIMUM_THREADS"] = "1"

import argparse
import functools
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from benchmarks import naive
from sklearn.base import clone
from sklearn.cluster import Birch

import blockmdp as bm
from blockmdp.decoders import FittedDecoder, constant_decoder
from blockmdp.learners.fixed_policy import FixedPolicy
from blockmdp.oracles import fit_oracle
from blockmdp.simulators import make_simulator

ROOT = Path(__file__).resolve().parents[1]
LR, BONUS, EXPLORATION, SWITCH = 0.1, 0.001, 0.001, 0.2
PAPER_NAME = {"latent": "lat", "observation": "obs"}


@dataclass(frozen=True)
class Row:
    """A row of the table. `naive` and `fast` take a seed and run the given number of steps."""

    name: str
    naive: Callable[[int], object]
    naive_steps: int
    fast: Callable[[int], object]
    fast_steps: int


# --- what is measured -----------------------------------------------------------------------------
LEARNERS = {
    "OracleQ": bm.OracleQ(lr=LR, bonus=BONUS),
    "QLearning": bm.QLearning(lr=LR, exploration=EXPLORATION),
}


PROBLEMS = {H: bm.lock_bernoulli(horizon=H, switch=SWITCH, seed=0) for H in (5, 20)}


def fit(learner: str, on: Any, H: int, episodes: int, seed: int, engine: Any = "auto") -> None:
    """Fit a tabular learner in blockmdp."""
    bm.Tabular(LEARNERS[learner], on=on).fit(PROBLEMS[H], episodes, seed=seed, engine=engine)


def fit_naive(learner: str, on: str, H: int, episodes: int, seed: int) -> None:
    """Fit the same learner in the naive loop."""
    env = naive.LockBernoulli(H, SWITCH, seed=seed)
    if learner == "OracleQ":
        agent: Any = naive.OracleQ(H, env.n_actions, LR, BONUS, seed=seed)
    else:
        decay = max(EXPLORATION * episodes, 1)
        agent = naive.QLearning(env.n_actions, LR, decay, seed=seed)
    naive.run(env, agent, episodes, on=on)


def tabular(learner: str, on: str, H: int, naive_episodes: int, fast_episodes: int) -> Row:
    """Return the row of a tabular learner."""
    return Row(
        f"{learner}-{PAPER_NAME[on]} H={H}",
        functools.partial(fit_naive, learner, on, H, naive_episodes),
        naive_episodes * H,
        functools.partial(fit, learner, on, H, fast_episodes),
        fast_episodes * H,
    )


ORACLES = {  # each with its lock
    "KMeans": (bm.lock_bernoulli, naive.LockBernoulli, bm.oracles.pca_kmeans(3)),
    "GMM": (bm.lock_gaussian, naive.LockGaussian, bm.oracles.gmm(3, n_init=1)),
    "DBSCAN+SVM": (bm.lock_gaussian, naive.LockGaussian, bm.oracles.pca_dbscan_svm()),
    "Birch": (bm.lock_gaussian, naive.LockGaussian, Birch(n_clusters=3)),
}


@functools.cache
def trained(oracle: str, H: int) -> tuple[Any, FittedDecoder, bm.BlockMDP, float]:
    """Fit an oracle to 100 random trajectories.

    Return the fitted estimator, the decoder of blockmdp, the problem, and the seconds of the fit.
    """
    lock, _, estimator = ORACLES[oracle]
    m = lock(horizon=H, switch=SWITCH, seed=0)
    random = bm.Policy(np.full((H, 1, m.n_actions), 1 / m.n_actions), constant_decoder())
    x = make_simulator(m, 0).rollout([random], 100, "oracle").observations.x
    start = time.process_time()
    fitted = fit_oracle(estimator, x, bm.rng.root(0))
    took = time.process_time() - start
    return clone(estimator).fit(x), FittedDecoder.of((fitted,)), m, took


def fit_url(oracle: str, H: int, episodes: int, seed: int) -> None:
    """Run OracleQ on the labels of a decoder in blockmdp."""
    _, decoder, m, _ = trained(oracle, H)
    simulator = make_simulator(m, seed)
    simulator.learn(simulator.start(LEARNERS["OracleQ"], episodes), decoder)


def fit_url_naive(oracle: str, H: int, episodes: int, seed: int) -> None:
    """Run OracleQ on the labels of an estimator in the naive loop."""
    env = ORACLES[oracle][1](H, SWITCH, seed=seed)
    learner = naive.OracleQ(H, env.n_actions, LR, BONUS, seed=seed)
    naive.run_url(env, trained(oracle, H)[0], learner, episodes)


def url(oracle: str, H: int, naive_episodes: int, fast_episodes: int) -> Row:
    """Return the row of URL with an oracle."""
    return Row(
        f"URL, {oracle} H={H}",
        functools.partial(fit_url_naive, oracle, H, naive_episodes),
        naive_episodes * H,
        functools.partial(fit_url, oracle, H, fast_episodes),
        fast_episodes * H,
    )


@functools.cache
def explored(H: int) -> tuple[naive.PCID, Any, bm.PCID]:
    """Return the naive PCID after exploration, its environment, and the PCID of blockmdp."""
    env = naive.LockBernoulli(H, SWITCH, seed=0)
    agent = naive.PCID(H, env.n_actions, seed=0)
    agent.explore(env)
    return agent, env, bm.PCID(n=300).fit(PROBLEMS[H], 1)


def exploit(H: int, episodes: int, seed: int) -> None:
    """Follow the policy of PCID in blockmdp."""
    agent = explored(H)[2]
    simulator = make_simulator(PROBLEMS[H], seed)
    simulator.learn(simulator.start(FixedPolicy(agent.policy_.pi), episodes), agent.decoder_)


def exploit_naive(H: int, episodes: int, seed: int) -> None:
    """Follow the policy of PCID in the naive loop."""
    agent, env, _ = explored(H)
    agent.exploit(env, episodes)


def pcid(H: int, naive_episodes: int, fast_episodes: int) -> Row:
    """Return the row of PCID after its exploration."""
    return Row(
        f"PCID exploiting H={H}",
        functools.partial(exploit_naive, H, naive_episodes),
        naive_episodes * H,
        functools.partial(exploit, H, fast_episodes),
        fast_episodes * H,
    )


def pcid_exploring(H: int) -> Row:
    """Return the row of PCID's exploration."""

    def slow(seed: int) -> None:
        env = naive.LockBernoulli(H, SWITCH, seed=seed)
        naive.PCID(H, env.n_actions, seed=seed).explore(env)

    def fast(seed: int) -> None:
        bm.PCID(n=300).fit(PROBLEMS[H], 0, seed=seed)

    return Row(f"PCID exploring H={H}", slow, 300 * H * H, fast, 300 * H * H)


def rows(quick: bool) -> list[Row]:
    """Return all rows of the table."""
    fewer = 10 if quick else 1
    return (
        [
            tabular(learner, on, H, 4_000 // fewer, episodes // fewer)
            for on, episodes in (("latent", 400_000), ("observation", 20_000))
            for learner in LEARNERS
            for H in PROBLEMS
        ]
        + [
            url(oracle, H, 400 // H, (episodes if H == 5 else episodes // 4) // fewer)
            for oracle, episodes in (
                ("KMeans", 80_000),
                ("GMM", 80_000),
                ("DBSCAN+SVM", 8_000),
                ("Birch", 8_000),
            )
            for H in PROBLEMS
        ]
        + [
            row
            for H in PROBLEMS
            for row in (pcid_exploring(H), pcid(H, 2_000 // H, 200_000 // H // fewer))
        ]
    )


# --- how it is measured ---------------------------------------------------------------------------
def seconds(function: Callable[..., object], *arguments: Any) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def measure(row: Row, repetitions: int) -> dict[str, Any]:
    """Measure a row, alternating between naive and blockmdp."""
    row.fast(0)  # compile, or load from the cache, before the clock starts
    times = [(seconds(row.naive, i), seconds(row.fast, i)) for i in range(repetitions)]
    slow, fast = (min(t) for t in zip(*times))
    slow, fast = row.naive_steps / slow, row.fast_steps / fast
    return {
        "name": row.name,
        "naive_steps_per_second": slow,
        "blockmdp_steps_per_second": fast,
        "ratio": fast / slow,
        "naive_steps": row.naive_steps,
        "blockmdp_steps": row.fast_steps,
        "seconds": times,
    }


def print_row(r: dict[str, Any]) -> None:
    """Print what `measure` returned."""
    slow, fast = r["naive_steps_per_second"], r["blockmdp_steps_per_second"]
    print(f"{r['name']:<24}{slow:>10,.0f}{fast:>14,.0f}{r['ratio']:>8,.0f}x", flush=True)


def flatness(repetitions: int, quick: bool) -> list[dict[str, Any]]:
    """Measure nanoseconds per step of OracleQ-lat, H = 20, for different numbers of episodes."""
    counts = (10**4, 10**5) if quick else (10**4, 10**5, 10**6)
    best = dict.fromkeys(counts, np.inf)
    for i in range(repetitions):
        for n in counts:
            best[n] = min(best[n], seconds(fit, "OracleQ", "latent", 20, n, i))
    return [{"episodes": n, "nanoseconds_per_step": t / n / 20 * 1e9} for n, t in best.items()]


def engines(repetitions: int) -> list[dict[str, Any]]:
    """Measure steps per second of OracleQ-lat, H = 20, in each engine."""
    episodes = {"compiled": 100_000, "interpreted": 200, "stepwise": 200}
    result = []
    for engine, n in episodes.items():
        best = min(seconds(fit, "OracleQ", "latent", 20, n, i, engine) for i in range(repetitions))
        result.append({"engine": engine, "steps_per_second": n * 20 / best})
    return result


EVERY_LEARNER = (
    *(bm.OracleQ(), bm.QLearning(), bm.UCBQ(), bm.UCBQ("bernstein"), bm.DelayedQ()),
    *(bm.UCBVI(), bm.UCBVITheory(), bm.UCBVITheory("bernstein"), bm.UBEV(), bm.EULER()),
    *(bm.UCRL2(), bm.RMAX(), bm.E3(), bm.PSRL(), bm.PSRLTheory(), bm.OPSRL(), bm.RLSVI()),
)


def swim(i: int, episodes: int, repetitions: int) -> float:
    """Return the steps per second of a learner on the latent states of RiverSwim."""
    agent, m = bm.Tabular(EVERY_LEARNER[i]), bm.river_swim()
    agent.fit(m, 5)  # compile before the clock starts
    best = min(seconds(agent.fit, m, episodes, seed) for seed in range(repetitions))
    return m.horizon * episodes / best


def learners(repetitions: int, quick: bool) -> list[dict[str, Any]]:
    """Measure every learner on RiverSwim, compiled and in plain Python."""
    found = []
    for i, learner in enumerate(EVERY_LEARNER):
        bonus = getattr(learner, "bonus", None)
        slow = in_fresh_process("swim", i, 10 if quick else 200, repetitions, NUMBA_DISABLE_JIT="1")
        fast = swim(i, 1_000 if quick else 20_000, repetitions)
        row = {
            "name": type(learner).__name__ + (f", {bonus}" if isinstance(bonus, str) else ""),
            "naive_steps_per_second": slow,
            "blockmdp_steps_per_second": fast,
            "ratio": fast / slow,
        }
        print_row(row)
        found.append(row)
    return found


ONLINE = {  # episodes in which OnlineURL() solves the problem
    "comblock, H = 100": (lambda: bm.comblock(100, seed=1), 2_000),
    "noisy_chain, K = 20": (lambda: bm.noisy_chain(20, seed=0), 1_000),
    "lock_gaussian, H = 20": (lambda: bm.lock_gaussian(20, seed=0), 1_000),
}


def fit_online(name: str, episodes: int) -> float:
    """Return the seconds of a fit of OnlineURL()."""
    problem = ONLINE[name][0]()
    bm.OnlineURL().fit(problem, episodes)  # compile before the clock starts
    return seconds(bm.OnlineURL().fit, problem, episodes)


def online(name: str, quick: bool) -> dict[str, Any]:
    """Measure a fit of OnlineURL(), and how many times longer its first episodes take if nothing is
    compiled.
    """
    episodes, first = ONLINE[name][1] // (10 if quick else 1), 10
    plain = in_fresh_process("fit_online", name, first, NUMBA_DISABLE_JIT="1")
    took = fit_online(name, episodes)
    return {
        "name": name,
        "episodes": episodes,
        "seconds": took,
        "milliseconds_per_episode": took / episodes * 1e3,
        "ratio": plain / fit_online(name, first),
    }


def first_fits() -> dict[str, float]:
    """Measure how many seconds the first fit of each agent takes longer than the second."""
    extra = {}
    for on in ("latent", "observation"):
        for learner in LEARNERS:
            first, second = (seconds(fit, learner, on, 5, 100, 0) for _ in range(2))
            extra[f"{learner}-{PAPER_NAME[on]}"] = first - second
    problem = bm.lock_bernoulli(5, seed=0)
    for agent in (bm.OnlineURL(), bm.URL(), bm.PCID()):
        first, second = (seconds(agent.fit, problem, 300) for _ in range(2))
        extra[type(agent).__name__] = first - second
    return extra


def peak_memory() -> dict[str, float]:
    """Measure peak memory in MB after the import, and after 50,000 episodes of OracleQ-obs."""
    before = peak_mb()
    fit("OracleQ", "observation", 20, 50_000, 0)
    return {"imported": before, "peak": peak_mb()}


def peak_mb() -> float:
    """Return the peak memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.is_file():  # on Linux, ru_maxrss includes the memory of the parent process
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


SIZES = {
    "H": [(H, 10, 5) for H in (10, 50, 200)],
    "S": [(10, S, 5) for S in (10, 30, 100)],
    "A": [(10, 10, A) for A in (5, 20, 50)],
    "all": [(200, 100, 50)],
}
AGENTS = {"UCBVI-lat": 2_000, "OnlineURL": 200}  # episodes


def scaled(agent: str, H: int, S: int, A: int, episodes: int) -> dict[str, float]:
    """Measure milliseconds per episode and peak memory on a random Block MDP of a given size."""
    problem = bm.random_block_mdp(horizon=H, n_states=S, n_actions=A, seed=0)
    learner = bm.UCBVI(bonus=0.0)
    maker = {
        "UCBVI-lat": lambda: bm.Tabular(learner),
        "OnlineURL": lambda: bm.OnlineURL(learner=learner, pool_levels=False),
    }[agent]
    maker().fit(bm.random_block_mdp(horizon=3, seed=0), 5)  # compile before the clock starts
    took = seconds(maker().fit, problem, episodes)
    return {"milliseconds_per_episode": took / episodes * 1e3, "peak_mb": peak_mb()}


def scaling(quick: bool) -> list[dict[str, Any]]:
    """Measure how time and memory grow with the horizon, the states and the actions."""
    rows = []
    for axis, sizes in SIZES.items():
        for H, S, A in sizes[: 2 if quick else None]:
            for agent, episodes in AGENTS.items():
                if quick and axis == "all":
                    continue
                n = max(episodes // 20, 5) if axis == "all" else episodes // (10 if quick else 1)
                found = in_fresh_process("scaled", agent, H, S, A, n)
                rows.append({"axis": axis, "agent": agent, "H": H, "S": S, "A": A} | found)
                print(
                    f"{agent:<12}{H:>5}{S:>5}{A:>5}{found['milliseconds_per_episode']:>12.2f}"
                    f"{found['peak_mb']:>10,.0f}",
                    flush=True,
                )
    return rows


def in_fresh_process(function: str, *arguments: Any, **environment: str) -> Any:
    """Call a function of this file in a fresh process, and return its result."""
    call = f"b.{function}(*{arguments!r})"
    code = f"import json, benchmarks.__main__ as b; print(json.dumps({call}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


def naive_speeds(table: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the naive speeds, which `blockmdp reproduce` uses if there are no benchmarks."""
    fields = ("name", "naive_steps_per_second")
    rows = [{field: row[field] for field in fields} for row in table]
    return {"made_by": "python -m benchmarks --naive", "rows": rows}


# --- output ---------------------------------------------------------------------------------------
def main() -> None:
    """Measure everything, print tables and write a JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed.")
    parser.add_argument("--quick", action="store_true", help="measure less, in a few minutes")
    parser.add_argument(
        "--out",
        type=Path,
        help="output file (default: results/bench.json, or bench-quick.json with --quick)",
    )
    parser.add_argument(
        "--naive",
        type=Path,
        metavar="FILE",
        help="also write the naive speeds to this file (src/blockmdp/paper/naive.json in the "
        "package)",
    )
    args = parser.parse_args()
    quick, repetitions = args.quick, 2 if args.quick else 5
    out = args.out or ROOT / "results" / ("bench-quick.json" if quick else "bench.json")
    out.parent.mkdir(parents=True, exist_ok=True)

    memory = in_fresh_process("peak_memory")

    print(f"Environment steps per second, learning included; locks with switch {SWITCH:g};")
    print(f"alternating, single-core CPU time, best of {repetitions}\n")
    print(f"{'':<24}{'naive':>10}{'blockmdp':>14}{'ratio':>9}")
    table = []
    for row in rows(quick):
        r = measure(row, repetitions)
        table.append(r)
        print_row(r)

    print(
        "\nThe same for all learners on the latent states of RiverSwim, H = 20, S = 6; plain Python"
    )
    print("is the learner's own code without numba")
    print(f"{'':<24}{'Python':>10}{'blockmdp':>14}{'ratio':>9}")
    zoo = learners(repetitions, quick)

    print("\nseconds to fit an oracle to 100 trajectories")
    fitting = {f"{o} H={H}": trained(o, H)[3] for o in ORACLES for H in PROBLEMS}
    for name, took in fitting.items():
        print(f"{name:<20}{took:>10.2f}")

    print("\nnanoseconds per step of OracleQ-lat, H = 20")
    flat = flatness(repetitions, quick)
    for line in flat:
        print(f"{line['episodes']:>10,} episodes{line['nanoseconds_per_step']:>10.1f}")

    print("\nsteps per second of OracleQ-lat, H = 20, by engine")
    by_engine = engines(repetitions)
    for line in by_engine:
        print(f"{line['engine']:<20}{line['steps_per_second']:>12,.0f}")

    print(
        "\nOnlineURL(): seconds of a fit, milliseconds per episode, and how many times longer its"
    )
    print("first episodes take if nothing is compiled")
    print(f"{'':<24}{'episodes':>10}{'seconds':>10}{'ms':>8}{'ratio':>9}")
    fits = []
    for name in ONLINE:
        r = online(name, quick)
        fits.append(r)
        print(
            f"{name:<24}{r['episodes']:>10,}{r['seconds']:>10.1f}"
            f"{r['milliseconds_per_episode']:>8.1f}{r['ratio']:>8,.0f}x",
            flush=True,
        )

    with tempfile.TemporaryDirectory() as cache:
        compiling = in_fresh_process("first_fits", NUMBA_CACHE_DIR=cache)
        loading = in_fresh_process("first_fits", NUMBA_CACHE_DIR=cache)
    print("\nseconds that the first fit in a process takes longer than the second, in this order")
    print(f"{'':<20}{'no cache':>10}{'cached':>10}")
    for name in compiling:
        print(f"{name:<20}{compiling[name]:>10.2f}{loading[name]:>10.2f}")
    print(f"{'all':<20}{sum(compiling.values()):>10.2f}{sum(loading.values()):>10.2f}")

    print("\nscaling on random Block MDPs: milliseconds per episode, peak memory in MB")
    print(f"{'':<12}{'H':>5}{'S':>5}{'A':>5}{'ms':>12}{'MB':>10}")
    sizes = scaling(quick)

    print("\npeak memory of OracleQ-obs, H = 20, 50,000 episodes")
    print(f"{memory['peak']:.0f} MB, of which imports take {memory['imported']:.0f} MB")

    result = {
        "quick": quick,
        "repetitions": repetitions,
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
            "blockmdp": bm.__version__,
        },
        "rows": table,
        "learners": zoo,
        "oracle_fit_seconds": fitting,
        "flatness": flat,
        "engines": by_engine,
        "online": fits,
        "compile_seconds": compiling,
        "load_seconds": loading,
        "memory_mb": memory,
        "scaling": sizes,
    }
    out.write_text(json.dumps(result, indent=2) + "\n")
    if args.naive:
        args.naive.write_text(json.dumps(naive_speeds(table), indent=1) + "\n")


if __name__ == "__main__":
    main()
