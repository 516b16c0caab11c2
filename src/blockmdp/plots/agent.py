"""The plot of a fitted agent: its returns, what its decoder tells apart, how that was trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from blockmdp.decoders import FittedDecoder
from blockmdp.history import Level, Refit, Snapshot
from blockmdp.mdp import BlockMDP
from blockmdp.measures import accuracy, confusion, value, values
from blockmdp.plots.style import BLUE, GREEN, GREY, ORANGE, style
from blockmdp.policy import Policy

__all__ = ["plot_agent"]

_FEW = 50  # points that get markers; recorded policies that are measured


class FittedAgent(Protocol):
    """What `plot_agent` reads of a fitted agent; all that `blockmdp.Agent` has."""

    policy_: Policy
    returns_: NDArray[np.float64]
    trajectories_: NDArray[np.int64]
    ledger_: dict[str, int]
    history_: list[Any]
    snapshots_: list[Snapshot]
    mdp_: BlockMDP | None
    seed_: int


def plot_agent(agent: FittedAgent, *, level: int | None = None) -> Figure:
    """Draw what a fitted agent did, in up to six panels.

    - *Returns*: sliding mean of the returns, against all trajectories drawn.
    - *Accuracy of the decoder* at each level, and *labels of each state*, if the latent states are
      known.
    - *Decoders in training*: agreement of each decoder with the one before.
    - *Names of labels*: labels confirmed so far, and labels that changed their name.
    - *Value of the policy* at up to 50 checkpoints of the fit, if `fit(..., record=True)` kept them
      and the problem is a `BlockMDP`.
    - *States found* and their *reach*, for an agent that explores level by level, such as `PCID`.

    With several restarts, the decoder and its training are those of the restart that was kept.

    Parameters
    ----------
    agent : Agent
        Fitted agent.
    level : int or None, default=None
        Level whose labels are shown. None shows the mean over the levels where a state can be
        reached.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; no window opens.

    Examples
    --------
    >>> from blockmdp import URL, lock_bernoulli
    >>> agent = URL(batch=50, iterations=2).fit(lock_bernoulli(horizon=3), episodes=500)
    >>> [axes.get_title(loc="left") for axes in plot_agent(agent).axes][:3]
    ['Returns', 'Accuracy of the decoder', 'Labels of each state']
    """
    mdp, decoder = agent.mdp_, agent.policy_.decoder
    if level is not None and (mdp is None or not 0 <= level <= mdp.horizon):
        has = "the problem is a black box" if mdp is None else f"levels are 0 to {mdp.horizon}"
        raise ValueError(f"level {level!r} cannot be shown: {has}")
    refits = [entry for entry in agent.history_ if isinstance(entry, Refit)]
    found = [entry for entry in agent.history_ if isinstance(entry, Level)]
    trainings = _Trainings.of(refits) if refits else None
    inside, decoders, policies = None, None, None
    if mdp is not None and isinstance(decoder, FittedDecoder):
        inside = _Inside(mdp, confusion(mdp, decoder, seed=agent.seed_), mdp.reached())
    if mdp is not None:
        decoders = _Measured.decoders(mdp, refits, agent.seed_)
        policies = _Measured.policies(mdp, agent.snapshots_, agent.seed_)
    upper: list[Callable[[Axes], None]] = [lambda ax: _returns(ax, agent)]
    lower: list[Callable[[Axes], None]] = []
    if inside is not None and isinstance(decoder, FittedDecoder):
        upper.append(lambda ax: _accuracy(ax, inside))
        upper.append(lambda ax: _labels(ax, inside, decoder.pooled, level))
    if trainings is not None:
        pooled = isinstance(decoder, FittedDecoder) and decoder.pooled
        since_start = _kept(agent) == 0
        lower.append(lambda ax: _agreement(ax, trainings, decoders, since_start))
        lower.append(lambda ax: _names(ax, trainings, pooled, inside, since_start))
    if policies is not None and mdp is not None:
        lower.append(lambda ax: _values(ax, policies, mdp))
    if found:
        lower.append(lambda ax: _found(ax, found, inside))
        lower.append(lambda ax: _reach(ax, found, inside))
    rows = [upper + lower] if len(upper) == 1 else [row for row in (upper, lower) if row]
    with style():
        width = 3.6 * max(2, *map(len, rows))
        layout = ConstrainedLayoutEngine(w_pad=0.08)
        figure = Figure((width, 0.4 + 2.9 * len(rows)), layout=layout)
        grid = figure.add_gridspec(len(rows), 6, hspace=0.08)
        for i, row in enumerate(rows):
            span = 6 // len(row)
            for j, draw in enumerate(row):
                draw(figure.add_subplot(grid[i, j * span : (j + 1) * span]))
        figure.suptitle(_caption(agent), x=0.01, ha="left")
    return figure


# --- what is known --------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Inside:
    """The decoder against the latent states. C: (H + 1, S, labels), reachable: (H + 1, S)."""

    mdp: BlockMDP
    C: NDArray[np.float64]
    reachable: NDArray[np.bool_]


@dataclass(frozen=True)
class _Trainings:
    """The refits in the history, as arrays (n,)."""

    x: NDArray[np.float64]
    agreement: NDArray[np.float64]
    confirmed: NDArray[np.int64]
    relabelled: NDArray[np.int64]
    noted: NDArray[np.bool_]

    @classmethod
    def of(cls, refits: Sequence[Refit]) -> _Trainings:
        return cls(
            np.array([d.trajectories for d in refits], np.float64),
            np.array([d.agreement for d in refits], np.float64),
            np.cumsum([len(d.confirmed) for d in refits]),
            np.array([d.relabelled for d in refits], np.int64),
            np.array([bool(d.notes) for d in refits]),
        )


@dataclass(frozen=True)
class _Measured:
    """What was measured at up to `_FEW` moments of the fit: x, trajectories so far, and y, (m,)."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]

    @classmethod
    def decoders(cls, mdp: BlockMDP, refits: Sequence[Refit], seed: int) -> _Measured | None:
        """Accuracy at the worst level of each decoder that was kept; None if none was."""
        kept = [
            (d.trajectories, d.policy.decoder)
            for d in refits
            if d.policy is not None and d.policy.decoder is not None
        ]
        if not kept:
            return None
        at = np.linspace(0, len(kept) - 1, min(len(kept), _FEW)).round().astype(int).tolist()
        reachable = mdp.reached()
        y = [accuracy(confusion(mdp, kept[i][1], None, seed), reachable).min() for i in at]
        return cls(np.array([kept[i][0] for i in at], np.float64), np.array(y))

    @classmethod
    def policies(cls, mdp: BlockMDP, kept: Sequence[Snapshot], seed: int) -> _Measured | None:
        """Value of each policy that was kept; None if none was."""
        if not kept:
            return None
        x = np.array([snapshot.trajectories for snapshot in kept], np.float64)
        at = np.unique(np.searchsorted(x, np.linspace(x[0], x[-1], _FEW)))
        return cls(x[at], values(mdp, [kept[i] for i in at], None, seed))


def _kept(agent: FittedAgent) -> int:
    """Return the number of the restart whose policy was kept."""
    means = getattr(agent, "evaluations_", np.empty(0))
    return int(np.argmax(means)) if len(means) else 0


def _caption(agent: FittedAgent) -> str:
    name = type(agent).__name__ + (f" on {agent.mdp_.name}" if agent.mdp_ is not None else "")
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in agent.ledger_.items() if n)
    return f"{name}, seed {agent.seed_}: {sum(agent.ledger_.values()):,} trajectories ({kinds})"


# --- the panels -----------------------------------------------------------------------------------
def _returns(ax: Axes, agent: FittedAgent) -> None:
    restarts = getattr(agent, "restarts", 1)
    kept = _kept(agent)
    K = len(agent.returns_) // restarts
    window = max(1, min(1000, K // 20))
    end = float(agent.history_[-1].trajectories) if agent.history_ else 0.0
    mean = f"mean of {window:,} episodes" if window > 1 else "each episode"
    for n in range(restarts) if K else ():
        x = agent.trajectories_[n * K : (n + 1) * K]
        total = np.cumsum(np.append(0.0, agent.returns_[n * K : (n + 1) * K]))
        y = (total[window:] - total[:-window]) / window
        x = x[window - 1 :]
        step = -(-len(x) // 2000)
        first_other = n == int(kept == 0)
        if n == kept:
            _line(ax, x[::step], y[::step], BLUE, mean, zorder=3)
            end = max(end, float(x[-1]))
        else:
            label = "other restarts" if first_other else None
            ax.plot(x[::step], y[::step], color=GREY, alpha=0.4, lw=1, label=label)
    if not K:
        _say(ax, "no episodes")
    if agent.mdp_ is not None:
        reached = value(agent.mdp_, agent.policy_, seed=agent.seed_)
        label = f"policy learnt: {round(reached, 3):g}"
        ax.plot(end, reached, "D", ms=5, color=GREEN, zorder=4, clip_on=False, label=label)
        _optimum(ax, agent.mdp_)
    ax.set_xlim(left=0)
    _finish(ax, "Returns", "trajectories of any kind", "return")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))


def _accuracy(ax: Axes, inside: _Inside) -> None:
    levels = np.arange(inside.mdp.horizon + 1)
    blind = 1 / inside.reachable.sum(axis=1)
    _line(ax, levels, accuracy(inside.C, inside.reachable), BLUE, "decoder", zorder=3)
    ax.step(levels, blind, where="mid", color=GREY, lw=0.8, label="one label for all")
    ax.set_ylim(0, 1.04)
    _finish(ax, "Accuracy of the decoder", "level", "share told apart")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def _labels(ax: Axes, inside: _Inside, pooled: bool, level: int | None) -> None:
    C, weight = inside.C, inside.reachable.astype(np.float64)
    S = C.shape[1]
    if level is not None:
        C, weight = C[level : level + 1], weight[level : level + 1]
    if pooled or level is not None:
        order = _order((C * weight[:, :, None]).mean(axis=0))
        C, names = C[:, :, order], [str(i) for i in order]
    else:  # labels of different levels are unrelated: match them level by level
        C = np.pad(C, ((0, 0), (0, 0), (0, max(S - C.shape[2], 0))))
        C = np.stack([c[:, _order(c * w[:, None])] for c, w in zip(C, weight)])
        names = [f"of {s}" if s < S else "more" for s in range(C.shape[2])]
    seen = weight.sum(axis=0)
    share = np.full((S, C.shape[2]), np.nan)
    np.divide(np.einsum("hsl,hs->sl", C, weight), seen[:, None], share, where=seen[:, None] > 0)
    ax.set_facecolor("#dddddd")  # shows where a state cannot be reached
    image = ax.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if S <= 9 and share.shape[1] <= 6:
        for (s, label), p in np.ndenumerate(share):
            text = "" if np.isnan(p) else "·" if p == 0 else f"{p:.2f}"
            colour = "white" if p > 0.5 else "black"
            ax.text(label, s, text, ha="center", va="center", fontsize=8, color=colour)
    else:
        bar = ax.figure.colorbar(image, ax=ax, pad=0.02, fraction=0.06)
        bar.ax.tick_params(labelsize=8, width=0.6)
        bar.outline.set_visible(False)
    ax.spines[:].set_visible(False)
    where = "mean over levels" if level is None else f"level {level}"
    if not pooled and level is None:
        where = "matched at each level"
    named = len(names) <= 12
    what = "label" if named else f"{len(names)} labels"
    _finish(ax, "Labels of each state", f"{what} ({where})", "latent state")
    ax.tick_params(length=0)
    ax.set_xticks(range(len(names)) if named else [], names if named else [])
    ax.yaxis.set_major_locator(MaxNLocator(12, integer=True))


def _agreement(ax: Axes, t: _Trainings, measured: _Measured | None, since_start: bool) -> None:
    compared = ~np.isnan(t.agreement)
    if compared.any():
        _crowd(ax, t.x[compared], t.agreement[compared], BLUE, "agreement with the last")
    elif measured is None:
        _say(ax, f"{len(t.x)} training{'s' * (len(t.x) > 1)}, none compared with the last")
    if measured is not None:
        _line(ax, measured.x, measured.y, GREEN, "worst level's accuracy", marker="s")
    if t.noted.any():
        x = t.x[t.noted]
        ax.plot(x, np.zeros(len(x)), "|", color=ORANGE, ms=9, label=f"notes ({len(x):,})")
    ax.set_ylim(-0.03, 1.04)
    _finish(ax, "Decoders in training", "", "share")
    _over_trainings(ax, t, since_start)


def _names(
    ax: Axes, t: _Trainings, pooled: bool, inside: _Inside | None, since_start: bool
) -> None:
    x, n = t.x, t.confirmed
    marker = "o" if len(x) <= _FEW else None
    ax.step(x, n, where="post", color=BLUE, lw=1.5, marker=marker, ms=4, label="confirmed so far")
    changed = t.relabelled > 0
    label = f"renamed ({int(t.relabelled.sum()):,} in all)"
    if changed.sum() <= 2 * _FEW:
        ax.vlines(x[changed], 0, t.relabelled[changed], color=ORANGE, lw=1.2, label=label)
    else:
        _crowd(ax, x, t.relabelled, ORANGE, label)
    top = int(max(n[-1], t.relabelled.max(), 1))
    if inside is not None:
        states = inside.reachable.any(axis=0).sum() if pooled else inside.reachable.sum()
        there = "states" if pooled else "states of all levels"
        ax.axhline(states, color=GREY, lw=0.8, zorder=1, label=f"{there}: {states}")
        top = max(top, int(states))
    ax.set_ylim(-0.03 * top, 1.08 * top)
    _finish(ax, "Names of labels", "", "labels")
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    _over_trainings(ax, t, since_start)


def _values(ax: Axes, policies: _Measured, mdp: BlockMDP) -> None:
    _line(ax, policies.x, policies.y, GREEN, "policy at the time", marker="s")
    _optimum(ax, mdp)
    ax.set_xlim(left=0)
    _finish(ax, "Value of the policy", "trajectories of any kind", "expected return")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))


def _found(ax: Axes, levels: Sequence[Level], inside: _Inside | None) -> None:
    h = [entry.level for entry in levels]
    if inside is not None:
        there = inside.reachable.sum(axis=1)[h]
        ax.step(h, there, where="mid", color=GREY, lw=0.8, label="states there are")
    _line(ax, h, [entry.clusters for entry in levels], BLUE, "found", zorder=3)
    ax.set_ylim(bottom=0)
    _finish(ax, "States found", "level", "states")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _reach(ax: Axes, levels: Sequence[Level], inside: _Inside | None) -> None:
    if inside is not None:
        best = inside.mdp.reachability()
        at = [(entry.level, p) for entry in levels for p in best[entry.level] if p > 0]
        ax.plot(*zip(*at), "_", color=GREY, ms=14, label="any policy, each state")
    at = [(entry.level, p) for entry in levels for p in entry.reach]
    ax.plot(*zip(*at), "o", color=BLUE, ms=4, alpha=0.7, label="homing policy, by its own model")
    ax.set_ylim(-0.03, 1.04)
    _finish(ax, "Reach of the states found", "level", "probability")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))


# --- what panels share ----------------------------------------------------------------------------
def _line(
    ax: Axes, x: Any, y: Any, colour: str, label: str, marker: str = "o", zorder: float = 2
) -> None:
    """Draw a line, with markers if its points are few."""
    dots = marker if len(x) <= _FEW else None
    ax.plot(x, y, marker=dots, ms=4, lw=1.5, color=colour, label=label, zorder=zorder)


def _crowd(ax: Axes, x: Any, y: Any, colour: str, label: str) -> None:
    """Draw a line; if its points are many, means of neighbours in a band of their range."""
    if len(x) > 2 * _FEW:
        groups = np.array_split(np.arange(len(x)), _FEW)
        low, high = ([f(y[g]) for g in groups] for f in (np.min, np.max))
        x, y = (np.array([v[g].mean() for g in groups]) for v in (x, y))
        ax.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    _line(ax, x, y, colour, label)


def _optimum(ax: Axes, mdp: BlockMDP) -> None:
    best = mdp.optimal_value()
    ax.axhline(best, color=GREY, lw=0.8, zorder=1, label=f"optimum: {round(best, 3):g}")
    drawn = [float(v) for line in ax.lines for v in np.ravel(line.get_ydata())]
    if best > 0 and min(drawn) >= 0:
        ax.set_ylim(-0.03 * max(drawn), 1.08 * max(drawn))


def _over_trainings(ax: Axes, t: _Trainings, since_start: bool) -> None:
    ax.set_xlabel(f"trajectories, at {len(t.x):,} training{'s' * (len(t.x) > 1)} of the decoder")
    if since_start:
        ax.set_xlim(0, 1.04 * max(t.x[-1], 1))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))


def _finish(ax: Axes, title: str, x_label: str, y_label: str) -> None:
    """Title, then two lines of legend, then the panel: nothing is drawn over the data."""
    ax.set_title(title, pad=30)
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.tick_params(labelsize=8, width=0.6)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    entries = len(ax.get_legend_handles_labels()[0])
    if entries:
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 1),
            ncols=-(-entries // 2),
            borderaxespad=0.2,
            handlelength=1.6,
            columnspacing=1.2,
            labelspacing=0.3,
        ).set_in_layout(False)  # the title above it makes room


def _say(ax: Axes, text: str) -> None:
    ax.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=ax.transAxes)


def _order(share: NDArray[np.float64]) -> NDArray[np.int64]:
    """Order labels by the state they match best, then the rest. share: (S, L)."""
    states, labels = linear_sum_assignment(-share)
    rest = np.setdiff1d(np.arange(share.shape[1]), labels)
    rest = rest[np.argsort(share[:, rest].argmax(axis=0), kind="stable")]
    return np.concatenate([labels[np.argsort(states)], rest])
