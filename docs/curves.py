"""Draw the pictures of the guide that take minutes: `python docs/curves.py` puts them in docs/img.

Runs are kept in results/docs, so that a second call is faster. `python docs/curves.py pcid` draws
the pictures of one page.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

import blockmdp as bm
from blockmdp import plots

IMG = Path(__file__).parent / "img"
OUT = Path(__file__).parents[1] / "results" / "docs"
SEEDS = 20
Table = dict[str, Any]

LATENT = {"name": "Tabular", "on": "latent"}
LOCK = {"name": "lock_bernoulli", "horizon": [5, 10, 20], "switch": 0.2}


REGRETS = (
    *(bm.OracleQ(), bm.QLearning(), bm.UCBVI(), bm.PSRL(), bm.UCBQ(), bm.UCBVITheory()),
    *(bm.UBEV(), bm.EULER(), bm.UCRL2(), bm.RMAX(), bm.E3(), bm.DelayedQ(), bm.PSRLTheory()),
    *(bm.OPSRL(), bm.RLSVI()),
)


def with_oracle(name: str, n_states: int | None = None, **more: Any) -> Table:
    """URL with an oracle and the paper's learner."""
    oracle = {"name": name} | ({} if n_states is None else {"n_states": n_states})
    return {"name": "URL", "oracle": oracle, "learner": "OracleQ", **more}


def curves(name: str, problem: Any, agents: list[Table], titles: tuple[str, ...] = ()) -> None:
    """Mean of the last 1000 returns: mean and one standard deviation over seeds."""
    document = {"seeds": SEEDS, "episodes": 10_000, "problem": problem, "agent": agents}
    results = bm.Study(document, name).run(OUT, quiet=True)
    print(f"{name}\n{results.table()}\n")
    panels = results.panels("sliding")
    panels = [replace(p, title=t) for p, t in zip(panels, titles)] if titles else panels
    save(plots.learning_curves(panels, y_label="reward"), name)


def save(figure: Figure, name: str, dpi: int = 110) -> None:
    figure.savefig(IMG / f"{name}.png", dpi=dpi, pil_kwargs={"optimize": True})


def locks() -> None:
    """Draw the runs of `blockmdp run studies/locks.toml`."""
    results = bm.Results(OUT.parent / "locks")
    save(results.plot(against="horizon"), "locks-horizon", dpi=130)
    save(results.plot("sliding"), "locks", dpi=130)
    reduce_colours("locks")


def reduce_colours(name: str) -> None:
    """Make a picture smaller: 64 colours are enough."""
    picture = Image.open(IMG / f"{name}.png").convert("RGB")
    few = picture.quantize(64, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(IMG / f"{name}.png", optimize=True)


def zoo() -> None:
    """Draw the runs of `blockmdp run studies/zoo.toml`, and count what each learner solves."""
    results = bm.Results(OUT.parent / "zoo")
    short = {
        "lock_bernoulli, H = ": "lock, H = ",
        "lock_gaussian, H = ": "Gaussian lock, H = ",
        "river_swim, H = 20, n_states = 6": "RiverSwim",
        "deep_sea, size = ": "DeepSea, N = ",
        "random_block_mdp, H = 5, n_states = ": "random, S = ",
    }
    for of in ("solved", "regret"):
        values, agents, panels = results.cells(of)
        for old, new in short.items():
            panels = [panel.replace(old, new) for panel in panels]
        for on in ("latent", "URL"):
            rows = [i for i, agent in enumerate(agents) if agent.startswith(on)]
            names = [agents[i].partition("learner=")[2].replace("scale=", "") for i in rows]
            words = {"solved": "trajectories until solved", "regret": "regret, in optimal returns"}
            name = f"zoo-{of}-{on.lower()}"
            save(plots.heat_map(values[rows], names, panels, label=words[of]), name)
            reduce_colours(name)
            for learner, row in zip(names, values[rows] if of == "solved" else ()):
                print(f"{on}, {learner}: {np.isfinite(row).sum()} of {len(row)}, {row.max()}")


def noise(*folders: str | Path) -> None:
    """Print the values of `blockmdp run studies/noise.toml` as shares of the skyline's.

    For OnlineURL also print the median of the trajectories until solved.
    """
    folders = folders or (OUT.parent / "noise",)
    runs = pd.concat([bm.Results(folder).frame() for folder in folders])
    keys = ["problem.horizon", "problem.noise", "seed"]
    value = runs.pivot_table("final", keys, "agent", sort=False)
    solved = runs[runs.agent == "OnlineURL"].set_index(keys)["solved_at"].fillna(np.inf)
    shares = value.drop(columns="likelihood").div(value["likelihood"], axis=0)
    for H, of_H in shares.groupby(level=0):
        agents = [agent for agent in of_H if of_H[agent].notna().any()]
        print(f"\n| noise, H = {H} | {' | '.join(agents)} | solved | skyline's value |")
        print("|---" * (len(agents) + 3) + "|")
        for kind in bm.envs.noisy.NOISES:
            of_kind = of_H.xs(kind, level=1)
            cells = [
                f"{(each >= 0.95).sum()} of {len(each)} ({each.min():.3f})"
                for each in (of_kind[agent].dropna() for agent in agents)
            ]
            median = solved.xs((H, kind)).median()
            best = value["likelihood"].xs((H, kind)).mean()
            print(f"| {kind} | {' | '.join(cells)} | {median:,.0f} | {best:.3f} |")


class Changed(bm.Emission):
    """Observations of another emission, changed by a function of x and of normal numbers z."""

    stationary = False

    def __init__(self, emission: bm.Emission, change: Callable[[Any, Any], Any]) -> None:
        self.emission, self.change = emission, change
        self.n_states, self.dim = emission.n_states, emission.dim

    def sample(self, level: int, states: Any, keys: Any) -> Any:
        z = bm.rng.normals(keys ^ np.uint64(1), self.dim)
        return self.change(self.emission.sample(level, states, keys), z)


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "rounded to thirds": lambda x, z: np.round(3 * x),
    "bytes": lambda x, z: np.clip(128 + 60 * x, 0, 255).astype(np.uint8).astype(float),
    "negative numbers are 0": lambda x, z: np.maximum(x, 0),
    "clipped at -0.3 and 0.5": lambda x, z: np.clip(x, -0.3, 0.5),
    "exponential": lambda x, z: np.exp(2 * x),
    "sign(x) abs(x)^1.3": lambda x, z: np.sign(x) * np.abs(x) ** 1.3,
    "units from 0.001 to 1,000": lambda x, z: x * np.geomspace(1e-3, 1e3, x.shape[1]),
    "a random factor for all coordinates": lambda x, z: x * np.exp(0.3 * z[:, :1]),
    "a random offset for all coordinates": lambda x, z: x + 3 * z[:, :1],
    "2.8 % of the numbers are 3 or -3": lambda x, z: np.where(np.abs(z) > 2.2, 3 * np.sign(z), x),
}


def other_noise(seeds: int = 4, episodes: int = 1_000) -> None:
    """Print how OnlineURL does behind noise that it was not developed with."""
    for name, change in CHANGES.items():
        shares, solved = [], []
        for seed in range(seeds):
            lock = bm.noisy_lock(horizon=10, noise="round", seed=seed)
            tables = (lock.initial, lock.transitions, lock.rewards, lock.reward_probability)
            m = bm.BlockMDP(*tables, emission=Changed(lock.emission, change))
            agent = bm.OnlineURL(pool_levels=False).fit(m, episodes, seed=seed, record=True)
            shares.append(agent.value() / m.optimal_value())
            solved.append(agent.solved_from())
        print(f"| {name} | {min(shares):.3f} | {solved} |", flush=True)


def url() -> None:
    practical = [
        with_oracle("pca_kmeans", 3, label="URL, KMeans", batch=batch, when={"horizon": H})
        for H, batch in ((5, 100), (10, 250), (20, 1000))
    ]
    curves("url", LOCK, [LATENT, *practical])
    m = bm.lock_bernoulli(horizon=10, switch=0.2, seed=0)
    agent = bm.URL(bm.oracles.pca_kmeans(3), batch=250).fit(m, 10_000, seed=0, record=True)
    save(agent.plot(), "url-agent", dpi=90)


def learners() -> None:
    agents = [
        {"name": "Tabular", "on": on, "learner": learner}
        for on in ("latent", "observation")
        for learner in ("OracleQ", "QLearning")
    ]
    curves("learners", LOCK, agents)


def regret(episodes: int = 20_000, seeds: int = 5) -> None:
    """Draw the exact regret of every learner on a chain, with its published bonus and with less."""
    chain = bm.river_swim(n_states=3, horizon=5)
    k = np.unique(np.geomspace(1, episodes, 60).astype(int))
    uniform = chain.value(chain.uniform_policy())
    panels = []
    for learner in REGRETS:
        scaled = {"1": learner}
        if hasattr(learner, "scale"):
            scaled["0.05"] = replace(learner, scale=0.05, v_max=1.0)
        lines = []
        for scale, each in scaled.items():
            runs = np.array(
                [bm.regret(chain, each, episodes, seed)[k - 1] for seed in range(seeds)]
            )
            label = "default" if scale == "1" else f"scale={scale}, v_max=1"
            lines.append(plots.Curve(label, k, runs.mean(axis=0), runs.std(axis=0)))
        lost = k * (chain.optimal_value() - uniform)
        lines.append(plots.Curve("uniform policy", k, lost, 0 * lost))
        panels.append(plots.Panel(type(learner).__name__, lines))
    order = ("default", "scale=0.05, v_max=1", "uniform policy")
    figure = plots.learning_curves(
        panels, columns=4, order=order, x_label="episodes", y_label="regret"
    )
    for ax in figure.axes:
        ax.set(xscale="log", yscale="log", xlim=(1, episodes), ylim=(0.05, None))
    save(figure, "regret", dpi=110)
    reduce_colours("regret")


def pcid() -> None:
    practical = with_oracle("pca_kmeans", 3, label="URL, KMeans", batch=250)
    switches = LOCK | {"horizon": 10, "switch": [0.0, 0.2, 0.5]}
    curves("pcid", switches, [LATENT, practical, {"name": "PCID"}])


def auto_oracle() -> None:
    gaussian = {"name": "lock_gaussian", "horizon": 20}
    locks = [LOCK | {"horizon": 20}, gaussian | {"sigma": 0.1}, gaussian | {"sigma": 0.2}]
    titles = ("LockBernoulli", "LockGaussian, sigma 0.1", "LockGaussian, sigma 0.2")
    once = {"label": "URL, the paper's oracle", "iterations": 1, "test_batch": 0}
    tuned = [
        with_oracle("pca_kmeans", 3, batch=2000, when={"name": "lock_bernoulli"}, **once),
        with_oracle("pca_kmeans", 4, batch=2500, when={"sigma": 0.1}, **once),
        with_oracle("gmm", 5, batch=1000, when={"sigma": 0.2}, **once),
    ]
    untuned = with_oracle("AutoOracle", label="URL, AutoOracle")
    curves("auto-oracle", locks, [LATENT, untuned, *tuned], titles)
    oracles = {
        "AutoOracle": bm.oracles.AutoOracle(),
        "KMeans, 3 labels": bm.oracles.pca_kmeans(3),
        "GMM, 5 labels": bm.oracles.gmm(5, n_init=3),
    }
    problems = (bm.lock_bernoulli(20), bm.lock_gaussian(20), bm.lock_gaussian(20, sigma=0.2))
    panels = [
        plots.Panel(title, [needed(label, oracle, m) for label, oracle in oracles.items()])
        for title, m in zip(titles, problems)
    ]
    figure = plots.learning_curves(
        panels, x_label="random trajectories to learn from", y_label="accuracy"
    )
    first = figure.axes[0]  # whose axes the others share
    first.set_xscale("log")
    first.set_xlim(10, 1000)
    first.set_xticks([10, 100, 1000], ["10", "100", "1000"])
    first.set_ylim(0.3, 1.03)
    save(figure, "oracle-data")


def needed(label: str, oracle: Any, m: bm.BlockMDP, seeds: int = 8) -> plots.Curve:
    """Measure how well an oracle separates the states of a lock; all states count equally."""
    sizes = (10, 30, 100, 300, 1000)
    shares = [
        [
            bm.URL(oracle, batch=n, iterations=1, test_batch=0)
            .fit(m, episodes=1, seed=seed)
            .accuracy(samples=200)[1:]
            .mean()
            for n in sizes
        ]
        for seed in range(seeds)
    ]
    print(m.name, label, np.round(np.mean(shares, axis=0), 3))
    return plots.Curve(label, np.array(sizes), np.mean(shares, axis=0), np.std(shares, axis=0))


def held_out(locks: int = 20) -> None:
    """Print how well locks of digits are solved on images that the agent has not seen."""
    near_optimal = 0
    for seed in range(locks):
        lock = bm.lock_digits(horizon=10, images="train", seed=seed)
        agent = bm.URL(bm.oracles.images(), batch=1000, iterations=1)
        agent.fit(lock, episodes=50_000, seed=seed)
        value = agent.value(on=bm.lock_digits(horizon=10, images="test", seed=seed))
        near_optimal += value >= 0.9 * lock.optimal_value()
        print(
            f"lock {seed:>2}, digits {lock.emission.digits}: value {agent.value():.3f} on the "
            f"training images, {value:.3f} on held-out images, optimum {lock.optimal_value()}"
        )
    print(f"near-optimal on held-out images (90 % of the optimum): {near_optimal} of {locks}")


PAGES = {
    "url": url,
    "learners": learners,
    "regret": regret,
    "pcid": pcid,
    "auto-oracle": auto_oracle,
    "locks": locks,
    "zoo": zoo,
    "held-out": held_out,
    "noise": noise,
    "other-noise": other_noise,
}

if __name__ == "__main__":
    IMG.mkdir(exist_ok=True)
    for page in sys.argv[1:] or PAGES:
        PAGES[page]()
