"""The plot of a fitted agent: what its panels show, given what is known of the problem."""

from __future__ import annotations

import copy
import io
import itertools
from dataclasses import replace
from functools import cache

import gymnasium as gym
import matplotlib as mpl
import numpy as np
import pytest
from helpers import python
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError

from blockmdp import URL, BlockMDP, OneHotGaussian, PerLevel, lock_bernoulli, lock_gaussian
from blockmdp.measures import accuracy, confusion, value, values
from blockmdp.pcid import PCID
from blockmdp.plots.agent import plot_agent

KNOWN = ["Returns", "Accuracy of the decoder", "Labels of each state"]
TRAININGS = ["Decoders in training", "Names of labels"]
BY_LEVEL = ["States found", "Reach of the states found"]
RECORDED = [*TRAININGS, "Value of the policy"]


class Noisy(gym.ObservationWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.n = env.observation_space.n
        self.observation_space = gym.spaces.Box(-9, 9, (self.n,))
        self.rng = np.random.default_rng(0)

    def observation(self, s):
        return np.eye(self.n)[s] + 0.05 * self.rng.normal(size=self.n)


def per_level(horizon=2):
    m = lock_gaussian(horizon, sigma=0.05)
    emission = PerLevel([OneHotGaussian(3, 2, 0.02 * (h + 1)) for h in range(horizon + 1)])
    return BlockMDP(
        m.initial,
        m.transitions,
        m.rewards,
        m.reward_probability,
        emission=emission,
        name="PerLevel",
    )


def frozen_lake():
    env = Noisy(gym.make("FrozenLake-v1", is_slippery=False, max_episode_steps=6))
    agent = URL(KMeans(16, n_init=1), batch=30, retrain_every=50)
    return agent.fit(env, 90, seed=0, record=True)


MADE = {
    "practice": lambda: URL(batch=50).fit(lock_bernoulli(3), 3000, seed=0),
    "one training": lambda: URL(batch=50, iterations=1).fit(lock_bernoulli(3), 500, record=True),
    "unrecorded": lambda: URL(batch=50, retrain_every=50).fit(lock_bernoulli(3), 500, seed=0),
    "recorded": lambda: URL(batch=50, retrain_every=40).fit(
        lock_gaussian(3, sigma=0.3), 800, seed=2, record=True
    ),
    "as written": lambda: URL.theory(
        KMeans(3, n_init=1), epsilon=0.9, horizon=2, n_states=3, batch=3
    ).fit(per_level(), 3, seed=0, record=True),
    "black box": frozen_lake,
    "level by level": lambda: PCID(n=200).fit(lock_bernoulli(3), 500, seed=0),
    "level by level, recorded": lambda: PCID(n=120).fit(lock_bernoulli(2), 100, record=True),
    "no episodes": lambda: URL(batch=50, iterations=1).fit(lock_bernoulli(3), 0),
    "many labels": lambda: URL(KMeans(20, n_init=1), batch=50).fit(lock_gaussian(3), 500, seed=0),
}
fitted = cache(lambda name: MADE[name]())
drawn = cache(lambda name: fitted(name).plot())


def made(name):
    """A copy to change; the agent is fitted once, and drawn once as it is."""
    return copy.copy(fitted(name))


def long_history(n, **changes):
    """An agent whose decoder was trained n times, every 10 trajectories."""
    agent = made("recorded")
    some = agent.history_
    agent.history_ = [
        replace(some[i % len(some)], trajectories=10 * (i + 1), **changes) for i in range(n)
    ]
    return agent


def titles(figure):
    return [title for ax in figure.axes if (title := ax.get_title(loc="left"))]


def panel(figure, title):
    (ax,) = (ax for ax in figure.axes if ax.get_title(loc="left") == title)
    return ax


def line(ax, label):
    (found,) = (item for item in ax.lines if str(item.get_label()).startswith(label))
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def heat(figure):
    return np.ma.filled(panel(figure, "Labels of each state").images[0].get_array(), np.nan)


def png(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=30)
    return file.getvalue()


# --- which panels there are -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("practice", KNOWN + TRAININGS),
        ("one training", KNOWN + RECORDED),
        ("unrecorded", KNOWN + TRAININGS),
        ("recorded", KNOWN + RECORDED),
        ("as written", KNOWN + RECORDED),
        ("black box", ["Returns", *TRAININGS]),
        ("level by level", KNOWN + BY_LEVEL),
        ("level by level, recorded", [*KNOWN, "Value of the policy", *BY_LEVEL]),
        ("no episodes", KNOWN + TRAININGS),
        ("many labels", KNOWN + TRAININGS),
    ],
)
def test_the_plot_shows_what_is_known_and_no_more(name, expected):
    figure = drawn(name)
    assert titles(figure) == expected
    for ax in figure.axes:
        if title := ax.get_title(loc="left"):
            assert ax.get_xlabel(), title
            assert ax.get_ylabel(), title
    assert_nothing_overlaps(figure)


def assert_nothing_overlaps(figure):
    """Check that titles and legends lie beside the data, and in the figure."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    inside = [ax.get_window_extent(renderer) for ax in figure.axes]
    beside = []
    for ax in figure.axes:
        beside += [ax._left_title.get_window_extent(renderer)] if ax.get_title(loc="left") else []
        beside += [legend.get_window_extent(renderer)] if (legend := ax.get_legend()) else []
    beside.append(figure._suptitle.get_window_extent(renderer))
    for one in beside:
        assert one.x0 >= figure.bbox.x0
        assert one.x1 <= figure.bbox.x1 + 1
        assert not any(one.overlaps(box.expanded(0.99, 0.97)) for box in inside)
    for one, two in itertools.combinations(beside, 2):
        assert not one.expanded(0.98, 0.9).overlaps(two.expanded(0.98, 0.9))


def test_without_a_history_the_trainings_are_left_out():
    agent = made("recorded")
    agent.history_ = []
    assert titles(plot_agent(agent)) == [*KNOWN, "Value of the policy"]
    agent.snapshots_ = []
    assert titles(plot_agent(agent)) == KNOWN
    agent.mdp_ = None
    assert titles(plot_agent(agent)) == ["Returns"]


def test_the_caption_counts_every_trajectory():
    text = drawn("practice")._suptitle.get_text()
    assert text.startswith("URL on LockBernoulli, seed 0: 3,1")
    assert "learn 3,000" in text
    assert "evaluate" not in text
    assert drawn("black box")._suptitle.get_text().startswith("URL, seed 0:")


def test_an_agent_must_be_fitted_and_a_level_be_there():
    with pytest.raises(NotFittedError, match="call fit before plot"):
        URL().plot()
    with pytest.raises(ValueError, match="levels are 0 to 3"):
        plot_agent(made("practice"), level=4)
    with pytest.raises(ValueError, match="black box"):
        plot_agent(made("black box"), level=0)


# --- what they show -------------------------------------------------------------------------------
def test_returns_are_a_sliding_mean_against_all_trajectories():
    agent = fitted("practice")
    ax = panel(drawn("practice"), "Returns")
    x, y = line(ax, "mean of 150 episodes")
    step = 2  # 2851 points, of which at most 2000 are drawn
    assert np.array_equal(x, agent.trajectories_[149::step])
    expected = np.convolve(agent.returns_, np.ones(150) / 150, "valid")[::step]
    assert np.allclose(y, expected)
    assert line(ax, "optimum: 0.5")[1].tolist() == [0.5, 0.5]
    end, reached = line(ax, "policy learnt")
    assert reached == pytest.approx(agent.value())
    assert end == agent.trajectories_[-1]


def test_a_window_holds_a_thousand_episodes_at_most():
    agent = made("practice")
    agent.returns_ = np.arange(50_000.0)
    agent.trajectories_ = np.arange(50_000) + 100
    x, y = line(panel(agent.plot(), "Returns"), "mean of 1,000 episodes")
    assert len(x) <= 2000
    assert (x[0], y[0]) == (1099, 499.5)


def test_restarts_have_lines_of_their_own_and_the_kept_one_stands_out():
    agent = made("as written")
    assert agent.restarts == 2
    kept = int(agent.evaluations_.argmax())
    ax = panel(drawn("as written"), "Returns")
    x, y = line(ax, "each episode")
    assert np.array_equal(x, agent.trajectories_[3 * kept : 3 * kept + 3])
    assert np.array_equal(y, agent.returns_[3 * kept : 3 * kept + 3])
    other = 1 - kept
    assert np.array_equal(
        line(ax, "other restarts")[0], agent.trajectories_[3 * other : 3 * other + 3]
    )


def test_accuracy_is_the_agents_own_beside_that_of_a_single_label():
    agent = fitted("recorded")
    ax = panel(drawn("recorded"), "Accuracy of the decoder")
    x, y = line(ax, "decoder")
    assert x.tolist() == [0, 1, 2, 3]
    assert np.allclose(y, agent.accuracy())
    assert np.allclose(line(ax, "one label for all")[1], [1, 1 / 3, 1 / 3, 1 / 3])


def test_labels_are_put_in_the_order_of_the_states_under_their_own_names():
    agent, figure = fitted("practice"), drawn("practice")
    assert np.allclose(heat(figure), np.eye(3))
    names = [t.get_text() for t in panel(figure, "Labels of each state").get_xticklabels()]
    C = agent.confusion()
    assert names == [str(C[2, s].argmax()) for s in range(3)]


def test_labels_that_mean_another_state_at_each_level_are_matched_before_the_mean():
    agent = URL(KMeans(3, n_init=5), batch=100, iterations=1, pool_levels=False)
    agent.fit(per_level(), 0, seed=0)
    swapped = agent.decoder_.swap(1, 0, 1).swap(2, 1, 2)
    agent.policy_ = replace(agent.policy_, decoder=swapped)
    figure = agent.plot()
    assert np.allclose(np.diag(heat(figure))[1:], 1, atol=0.02)
    assert "matched at each level" in panel(figure, "Labels of each state").get_xlabel()
    labels = panel(plot_agent(agent, level=1), "Labels of each state")
    assert labels.get_xlabel() == "label (level 1)"


def test_a_state_that_cannot_be_reached_has_no_labels():
    stay = np.eye(3)[None, :, None, :]
    m = BlockMDP([0.5, 0.5, 0], stay, [0.0, 1.0, 1.0], emission=OneHotGaussian(3, 0, 0.05))
    share = heat(URL(KMeans(2, n_init=2), batch=50).fit(m, 100, seed=0).plot())
    assert np.isnan(share[2]).all()
    assert np.allclose(share[:2], np.eye(2))


def test_the_timeline_is_the_history():
    figure, history = drawn("unrecorded"), fitted("unrecorded").history_
    x, y = line(panel(figure, "Decoders in training"), "agreement")
    assert x.tolist() == [d.trajectories for d in history[1:]]  # the first has nothing before it
    assert y.tolist() == [d.agreement for d in history[1:]]
    ax = panel(figure, "Names of labels")
    confirmed = np.cumsum([len(d.confirmed) for d in history])
    assert line(ax, "confirmed so far")[1].tolist() == confirmed.tolist()
    total = sum(d.relabelled for d in history)
    assert f"renamed ({total} in all)" in ax.get_legend_handles_labels()[1]
    assert line(ax, "states: 3")[1].tolist() == [3, 3]


def test_notes_of_the_oracle_are_marked():
    agent = made("unrecorded")
    agent.history_ = [*agent.history_[:-1], replace(agent.history_[-1], notes=("it was odd",))]
    x, _ = line(panel(agent.plot(), "Decoders in training"), "notes (1)")
    assert x.tolist() == [agent.history_[-1].trajectories]


def test_recorded_decoders_are_measured_against_the_latent_states():
    agent = made("as written")
    agent.history_ = agent.history_[:5]
    figure, m = agent.plot(), agent.mdp_
    x, right = line(panel(figure, "Decoders in training"), "worst level's accuracy")
    assert x.tolist() == [d.trajectories for d in agent.history_]
    for i, d in enumerate(agent.history_):
        C = confusion(m, d.policy.decoder, 1000, agent.seed_)
        assert right[i] == pytest.approx(accuracy(C, m.reachability() > 0).min())
    x, values = line(panel(figure, "Value of the policy"), "policy at the time")
    assert x.tolist() == [s.trajectories for s in agent.snapshots_]
    for i, s in enumerate(agent.snapshots_):
        assert values[i] == pytest.approx(value(m, s.policy, 1000, agent.seed_))
    assert line(panel(figure, "Value of the policy"), "optimum: 0.5")[1].tolist() == [0.5, 0.5]


def test_thousands_of_trainings_are_summed_up(monkeypatch):
    measured = []
    module = __import__("blockmdp.plots.agent", fromlist=["confusion"])
    monkeypatch.setattr(module, "values", lambda m, s, *a: measured.extend(s) or values(m, s, *a))
    agent = long_history(3000, relabelled=2)
    figure = agent.plot()
    x, _ = line(panel(figure, "Value of the policy"), "policy at the time")
    assert x[[0, -1]].tolist() == [agent.snapshots_[i].trajectories for i in (0, -1)]
    assert 40 <= len(x) <= 50
    assert len(measured) == len(x)
    x, _ = line(panel(figure, "Decoders in training"), "worst level's accuracy")
    assert (x[0], x[-1], len(x)) == (10, 30_000, 50)
    x, y = line(panel(figure, "Decoders in training"), "agreement")
    assert len(x) == 50
    assert 0 <= y.min() <= y.max() <= 1
    x, y = line(panel(figure, "Names of labels"), "renamed (6,000 in all)")
    assert np.array_equal(y, np.full(50, 2.0))
    assert png(figure)


def test_trainings_that_were_never_compared_say_so():
    agent = made("practice")
    agent.history_ = agent.history_[:1]
    texts = [t.get_text() for t in panel(agent.plot(), "Decoders in training").texts]
    assert texts == ["1 training, none compared with the last"]


def test_what_was_found_at_each_level_stands_beside_what_is_there():
    agent, figure = fitted("level by level"), drawn("level by level")
    ax = panel(figure, "States found")
    assert line(ax, "found")[1].tolist() == [d.clusters for d in agent.history_]
    assert line(ax, "states there are")[1].tolist() == [3, 3, 3]
    x, y = line(panel(figure, "Reach of the states found"), "homing policy")
    assert x.tolist() == [d.level for d in agent.history_ for _ in d.reach]
    assert y.tolist() == [p for d in agent.history_ for p in d.reach]
    black_box = made("level by level")
    black_box.mdp_ = None
    assert titles(plot_agent(black_box)) == ["Returns", *BY_LEVEL]


# --- matplotlib is left alone ---------------------------------------------------------------------
def test_the_users_settings_neither_change_nor_matter():
    agent = fitted("practice")
    plain = png(agent.plot())
    mine = {"font.size": 30, "axes.facecolor": "black", "axes.grid": True, "xtick.color": "red"}
    with mpl.rc_context(mine):
        before = dict(mpl.rcParams)
        figure = agent.plot()
        assert dict(mpl.rcParams) == before
        assert png(figure) == plain


@pytest.mark.integration
def test_drawing_needs_no_pyplot_and_importing_blockmdp_no_matplotlib():
    code = """
import sys
import blockmdp as bm
assert not any(name.startswith("matplotlib") for name in sys.modules)
agent = bm.URL(batch=20, iterations=1).fit(bm.lock_bernoulli(2), 20)
agent.plot().savefig(__import__("io").BytesIO())
assert "matplotlib.pyplot" not in sys.modules
"""
    assert python(code) == ""
