"""The claims of Feng et al. 2020, Section 5, checked on results. Pure functions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blockmdp.experiments import statistics
from blockmdp.experiments.results import Results
from blockmdp.experiments.settings import Setting
from blockmdp.experiments.store import Row
from blockmdp.experiments.tables import Summary, total

__all__ = ["Claim", "as_text", "claims_of", "horizon_slopes"]

V_STAR = 0.5
HORIZONS = (5, 10, 20)
NEAR = 0.9  # fraction of the optimum that counts as near-optimal
Group = Sequence[tuple[Setting, Row]]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, or an aim of ours, and what was measured.

    Attributes
    ----------
    says : str
        The claim, with the paper's number.
    measured : str
        What was measured, with the interval.
    holds : bool or None
        Whether the claim holds; None if the runs do not decide it.
    """

    says: str
    measured: str
    holds: bool | None

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: "holds", False: "does not hold", None: "undecided"}[self.holds]


def claims_of(
    figures: dict[str, Results],
    untuned: Results | None = None,
    defaults: Results | None = None,
    skyline: Results | None = None,
) -> list[Claim]:
    """Check all claims for which there are results.

    Parameters
    ----------
    figures : dict
        Results of the studies "figure1", "figure2" and "figure3".
    untuned : Results or None, default=None
        Results of the study of the untuned agent.
    defaults, skyline : Results or None, default=None
        Results of the studies of agents without arguments, and of OracleQ on latent states.

    Returns
    -------
    list of Claim
        In the order of the paper, then our own aims.
    """
    every = [row for results in figures.values() for row in results.done]
    claims = []
    locks = {"figure1": ("LockBernoulli", 0.80), "figure2": ("LockGaussian, sigma 0.1", 0.75)}
    locks["figure3"] = ("LockGaussian, sigma 0.2", 0.75)
    for name, (lock, share) in locks.items():
        if name in figures:
            claims.append(_near_optimal(figures[name].done, lock, share))
    if figures:
        claims.append(_as_good_as_the_skyline(figures))
        claims += _better_than_q_learning(figures)
        claims.append(_better_than_pcid(every))
    if "figure1" in figures:
        claims += [_obs_learners_fail(figures["figure1"], H) for H in HORIZONS]
    claims += [claim for row in _PAPER_NEEDS for claim in _oracle_trajectories(every, *row)]
    claims += [] if untuned is None else _untuned(untuned)
    return claims + ([] if defaults is None else _defaults(defaults, skyline))


def as_text(claims: Sequence[Claim]) -> str:
    """Return the claims as a table in Markdown."""
    lines = ["| claim | measured | verdict |", "|---|---|---|"]
    lines += [f"| {c.says} | {c.measured} | {c.verdict} |" for c in claims]
    return "\n".join(lines)


_PAPER_NEEDS = ((5, 100, 100), (10, 500, 1000), (20, 1000, 2500))


def _near_optimal(done: Group, lock: str, share: float) -> Claim:
    rows = [
        row
        for setting, row in done
        if setting.base_label == "URL"
        and setting.problem["horizon"] == 20
        and setting.problem["switch"] in (0.2, 0.5)
    ]
    near = sum(_final(row) >= NEAR * V_STAR for row in rows)
    low, high = statistics.wilson(near, len(rows))
    more = "more than " if share < 0.8 else ""
    return Claim(
        f"{lock}, H = 20, switch 0.2 and 0.5: URL is near-optimal with probability "
        f"{more}{share:.0%}",
        f"{near} of {len(rows)} runs end within 10 % of the optimum: {_share(near, len(rows))}, "
        f"95 % interval [{low:.2f}, {high:.2f}]",
        _at_least(share, low, high),
    )


def _as_good_as_the_skyline(figures: dict[str, Results]) -> Claim:
    pairs = _pairs(figures, "URL", "OracleQ-lat")
    good = sum(url.final >= 0.95 * skyline.final for url, skyline in pairs)
    worst = min((_ratio(url.final, skyline.final) for url, skyline in pairs), default=math.nan)
    return Claim(
        "URL is mostly as good as OracleQ-lat, which sees the latent states (the skyline)",
        f"in {good} of {len(pairs)} panels, its return at the end is at least 95 % of the "
        f"skyline's; in the worst panel {worst:.0%}",
        None if not pairs else good > len(pairs) / 2,
    )


def _better_than_q_learning(figures: dict[str, Results]) -> list[Claim]:
    pairs = _pairs(figures, "URL", "QLearning-lat")
    claims = []
    for H in HORIZONS:
        of_H = [pair for pair in pairs if f"H = {H}," in pair[0].panel]
        if not of_H:
            continue
        better = sum(url.final_low > 2 * q.final_high for url, q in of_H)
        finals = sorted(q.final for _, q in of_H)
        claims.append(
            Claim(
                f"H = {H}: URL is much better than QLearning-lat (the paper: especially at H = 20)",
                f"more than twice its return at the end in {better} of {len(of_H)} panels "
                f"(disjoint intervals); QLearning-lat reaches {finals[0]:.3f} to {finals[-1]:.3f}",
                better == len(of_H),
            )
        )
    return claims


def _better_than_pcid(done: Group) -> Claim:
    """Compare reward per trajectory of all kinds, with a bootstrap interval in each panel."""
    url, pcid = (_by_panel(done, base, _reward_per_trajectory) for base in ("URL", "PCID"))
    wins = losses = 0
    for panel in url.keys() & pcid.keys():
        low, high = _difference(url[panel], pcid[panel])
        wins += low > 0
        losses += high < 0
    n = len(url.keys() & pcid.keys())
    return Claim(
        "URL outperforms PCID in most cases",
        f"in reward per trajectory, it is better in {wins} of {n} panels and worse in {losses} "
        "(95 % interval of the difference)",
        None if not n else wins > n / 2,
    )


def _obs_learners_fail(figure: Results, H: int) -> Claim:
    obs = [
        s
        for s in figure.summaries()
        if s.agent.endswith("-obs") and f"H = {H}," in s.panel and s.runs
    ]
    says = (
        "OracleQ-obs and QLearning-obs, which learn on observations, are far from optimal even "
        f"at small H: H = {H}"
    )
    if not obs:
        return Claim(says, "not run", None)
    best = max(obs, key=lambda s: s.final)
    solved = sum(round(s.solved * s.runs) for s in obs if not s.unjudged)
    return Claim(
        says,
        f"the best return at the end is {best.final:.3f} [{best.final_low:.3f}, "
        f"{best.final_high:.3f}] of {V_STAR} ({best.agent}, {best.panel}); "
        f"{solved} of {sum(s.runs for s in obs)} runs solved",
        bool(best.final_high < NEAR * V_STAR),
    )


def _oracle_trajectories(done: Group, H: int, low: int, high: int) -> list[Claim]:
    """Check that this many trajectories are enough to solve nine runs in ten."""
    rows = [row for s, row in done if s.base_label == "URL" and s.problem["horizon"] == H]
    if not rows:
        return []
    needs = f"{low}" if low == high else f"{low} to {high}"
    enough = [row for row in rows if _oracle(row) <= high]
    solved = sum(row.solved_at is not None for row in enough)
    batches = ", ".join(map(str, sorted({_oracle(row) for row in rows})))
    words = f"tuned: {batches}; {solved} of the {len(enough)} runs with at most {high} are solved"
    auto = [
        _oracle(row)
        for s, row in done
        if s.base_label == "URL untuned" and s.problem["horizon"] == H
    ]
    if auto:
        words += f"; untuned: median {np.median(auto):.0f}, at most {max(auto)}, with tests"
    says = f"H = {H}: {needs} trajectories are enough to train the decoder"
    return [Claim(says, words, _at_least(NEAR, *statistics.wilson(solved, len(enough))))]


def _untuned(results: Results) -> list[Claim]:
    rows = [(setting, row) for setting, row in results.done if setting.base_label == "URL untuned"]
    if not rows:
        return []
    solved = sum(row.solved_at is not None for _, row in rows)
    panels = {setting.panel for setting, _ in rows}
    pairs = _pairs({"untuned": results}, "URL untuned", "OracleQ-lat")
    ratios = [_ratio(url.solved_at, skyline.solved_at) for url, skyline in pairs]
    worst = max(ratios, default=math.nan)
    return [
        Claim(
            "Our aim: untuned URL solves every seed of every panel",
            f"{solved} of {len(rows)} runs in {len(panels)} panels",
            solved == len(rows),
        ),
        Claim(
            "Our aim: it needs at most 1.1 times the trajectories of OracleQ-lat",
            f"ratio of medians from {min(ratios, default=math.nan):.3f} to {worst:.3f}; at most "
            f"1.1 in {sum(r <= 1.1 for r in ratios)} of {len(ratios)} panels",
            bool(worst <= 1.1),
        ),
    ]


# the largest share of the skyline's trajectories that we aim at, by horizon
_SHARES = {"OnlineURL": {5: 0.4, 10: 0.25, 20: 0.15}, "URL": {5: 0.5, 10: 0.3, 20: 0.2}}


def _defaults(results: Results, skyline: Results | None) -> list[Claim]:
    claims = []
    for agent, shares in _SHARES.items():
        rows = [(setting, row) for setting, row in results.done if setting.base_label == agent]
        if not rows:
            continue
        solved = sum(row.solved_at is not None for _, row in rows)
        claims.append(
            Claim(
                f"Our aim: {agent}() with no argument solves every seed of every panel",
                f"{solved} of {len(rows)} runs in {len({s.panel for s, _ in rows})} panels",
                solved == len(rows),
            )
        )
        horizons = {setting.panel: setting.problem["horizon"] for setting, _ in rows}
        pairs = _pairs({"defaults": results}, agent, "OracleQ-lat", skyline)
        for H, share in shares.items():
            ratios = [_ratio(a.solved_at, b.solved_at) for a, b in pairs if horizons[a.panel] == H]
            if ratios:
                claims.append(
                    Claim(
                        f"Our aim: at H = {H}, {agent}() needs at most {share} of the trajectories "
                        "of OracleQ-lat",
                        f"ratio of medians from {min(ratios):.3f} to {max(ratios):.3f} in "
                        f"{len(ratios)} panels",
                        bool(max(ratios) <= share),
                    )
                )
    return claims


def horizon_slopes(results: Results) -> list[dict[str, Any]]:
    """Measure how trajectories and seconds grow with the horizon H.

    Parameters
    ----------
    results : Results
        Results of the study "horizon".

    Returns
    -------
    list of dict
        For each problem and agent: the horizons `H`; for each horizon the runs `solved`, the median
        number of `trajectories` until solved and the mean `seconds` of a run; and the slopes
        `slope` and `slope_seconds` of their logarithms against the logarithm of H.
    """
    groups: dict[tuple[str, str], dict[int, list[Row]]] = {}
    for setting, row in results.done:
        name = setting.problem["name"]
        by_H = groups.setdefault((name, setting.base_label), {})
        by_H.setdefault(setting.problem["horizon"], []).append(row)
    table = []
    for (name, agent), by_H in groups.items():
        H = np.array(sorted(by_H))
        at = [statistics.median_with_censoring([row.solved_at for row in by_H[h]]) for h in H]
        solved = [sum(row.solved_at is not None for row in by_H[h]) for h in H]
        seconds = [float(np.mean([row.seconds for row in by_H[h]])) for h in H]
        table.append(
            {
                "problem": name,
                "agent": agent,
                "H": H.tolist(),
                "solved": [f"{n} of {len(by_H[h])}" for n, h in zip(solved, H)],
                "trajectories": at,
                "seconds": seconds,
                "slope": _slope(H, at),
                "slope_seconds": _slope(H, seconds),
            }
        )
    return table


def _slope(H: Any, y: Sequence[float]) -> float:
    good = np.isfinite(y)
    if good.sum() < 2:
        return math.nan
    return float(np.polyfit(np.log(np.asarray(H)[good]), np.log(np.asarray(y)[good]), 1)[0])


def _pairs(
    figures: dict[str, Results],
    one: str,
    other: str,
    more: Results | None = None,
) -> list[tuple[Summary, Summary]]:
    """Return the summaries of two agents in each panel that has both.

    more: results that may have the other agent.
    """
    pairs = []
    others = [] if more is None else more.summaries()
    for results in figures.values():
        found = {(s.panel, s.agent): s for s in [*results.summaries(), *others] if s.runs}
        for panel in results.study.panels:
            if (panel, one) in found and (panel, other) in found:
                pairs.append((found[panel, one], found[panel, other]))
    return pairs


def _by_panel(
    done: Group, base: str, value: Callable[[Setting, Row], float]
) -> dict[Any, list[float]]:
    groups: dict[Any, list[float]] = {}
    for setting, row in done:
        if setting.base_label == base:
            key = setting.panel, setting.problem["name"], setting.problem.get("sigma")
            groups.setdefault(key, []).append(value(setting, row))
    return groups


def _reward_per_trajectory(setting: Setting, row: Row) -> float:
    return total(setting, row) / row.trajectories


def _difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Return the bootstrap interval of mean(a) - mean(b)."""
    means = [
        values[statistics.resamples(len(values))].mean(axis=1) for values in map(np.array, (a, b))
    ]
    # reversed, so that two agents with equally many runs are resampled independently
    low, high = np.quantile(means[0] - means[1][::-1], [0.025, 0.975])
    return float(low), float(high)


def _at_least(share: float, low: float, high: float) -> bool | None:
    """Whether a fraction is at least `share`, given its interval; None if that is undecided."""
    return True if low >= share else False if high < share else None


def _final(row: Row) -> float:
    assert row.final is not None
    return row.final


def _oracle(row: Row) -> int:
    ledger = json.loads(row.ledger)
    return int(ledger.get("oracle", 0) + ledger.get("test", 0))


def _ratio(x: float, y: float) -> float:
    return x / y if y else math.nan


def _share(k: int, n: int) -> str:
    return f"{k / n:.0%}" if n else "-"
