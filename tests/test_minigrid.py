"""MiniGrid as Block MDPs, their noisy pictures, and the oracle for them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from sklearn.base import clone

import blockmdp as bm
from blockmdp import rng
from blockmdp.envs.screens import draw_screens
from blockmdp.jit import interpreted
from blockmdp.oracles import screens as loops
from blockmdp.testing import check_incremental_oracle

LEARNER = bm.UCBVI(bonus=0.0, stationary=True, discount=0.95, greedy="known")
NOISES: list[dict[str, Any]] = [
    {"tint": 0.3},
    {"distractors": 2},
    {"pixel": 0.05},
    {"shift": 2},
    {"tint": 0.5, "distractors": 3, "size": 3, "pixel": 0.02, "shift": 1},
]


def pictures(n: int = 6) -> np.ndarray:
    """A red bar at n places, on a floor with a wall around it."""
    shown = np.zeros((n, 8, 9, 3), np.uint8)
    shown[:, [0, -1]] = shown[:, :, [0, -1]] = 100
    for s in range(n):
        shown[s, 1 + s, 2:4] = (255, 0, 0)
        shown[s, 1 + s, 4] = (120, 30, 0)
    return shown


def noisy(states: np.ndarray, seed: int = 0, **noise: Any) -> np.ndarray:
    emission = bm.Screens(pictures(), **noise)
    return emission.sample(0, states, rng.children(rng.root(seed), 0, len(states)))


# --- MiniGrid -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def minigrid() -> Any:
    return pytest.importorskip("minigrid", reason="the extra blockmdp[minigrid] is not installed")


@pytest.mark.parametrize(
    ("name", "states"),
    [("Empty-5x5", 34), ("DoorKey-5x5", 270), ("KeyCorridorS3R1", 160), ("MultiRoom-N2-S4", 64)],
)
def test_the_table_says_what_the_environment_does(minigrid: Any, name: str, states: int) -> None:
    m = bm.minigrid(f"MiniGrid-{name}-v0", 40, tile=3)
    assert m.n_states == states
    assert m.is_block()
    env: Any = gymnasium.make(f"MiniGrid-{name}-v0").unwrapped
    ours = m.to_gymnasium()
    random = np.random.default_rng(0)
    for _ in range(5):
        env.reset(seed=0)
        x, _ = ours.reset(seed=0)
        shown = x.reshape(m.emission.shape)
        for _ in range(40):
            picture = env.get_frame(highlight=False, tile_size=3)
            found = np.lib.stride_tricks.sliding_window_view(picture, shown.shape)
            assert (found == shown).all(axis=(-3, -2, -1)).any()
            a = int(random.integers(7))
            _, paid, over, _, _ = env.step(a)
            x, reward, terminated, _, info = ours.step(a)
            shown = x.reshape(m.emission.shape)
            assert (paid > 0) == (reward == 1.0)
            assert over == bool(m.ends is not None and m.ends[info["latent_state"]])
            if over or terminated:
                break


def test_early_success_pays_as_minigrid_does(minigrid: Any) -> None:
    m = bm.minigrid("MiniGrid-Empty-5x5-v0", 10, reward="early")
    assert m.optimal_value() == pytest.approx(1 - 0.9 * 5 / 10)
    assert bm.minigrid("MiniGrid-Empty-5x5-v0").horizon == 100


def test_the_whole_grid_tells_states_apart_and_the_agents_view_does_not(minigrid: Any) -> None:
    assert bm.minigrid("MiniGrid-KeyCorridorS3R1-v0", 30, observation="grid").is_block()
    assert not bm.minigrid("MiniGrid-KeyCorridorS3R1-v0", 30, observation="view").is_block()


def test_a_grid_is_solved_from_noisy_pixels(minigrid: Any, tmp_path: Path) -> None:
    m = bm.minigrid("MiniGrid-Empty-5x5-v0", 10, noise={"tint": 0.3, "distractors": 2}, tile=3)
    oracle = bm.oracles.images(kind="rendered")
    agent = bm.OnlineURL(oracle, LEARNER, pool_levels=True).fit(m, episodes=80, seed=0)
    assert agent.value(samples=5) > 0.9
    assert agent.animate(tmp_path / "film.gif") == 1.0
    assert (tmp_path / "film.gif").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"observation": "text"}, "observation must be"),
        ({"reward": "late"}, "reward must be"),
        ({"noise": "fog"}, "noise must be a mapping, None or one of 'tint', .*, got 'fog'$"),
        ({"noise": "distractor"}, "got 'distractor'; did you mean 'distractors'?"),
        ({"noise": ["tint"]}, r"one of 'tint', .*, got \['tint'\]"),
        ({"noise": {"tnt": 1}}, "keys from 'tint', .*, got 'tnt'; did you mean 'tint'?"),
        ({"noise": {"tint": 7}, "cap": 1}, r"tint must be a number in \[0, 1\], got 7"),
        ({"noise": "tint", "observation": "grid"}, "noise needs a picture"),
        ({"cap": 10}, "more than 10 states"),
    ],
)
def test_unsuitable_arguments_are_named(
    minigrid: Any, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        bm.minigrid("MiniGrid-Empty-5x5-v0", 10, **arguments)


def test_unsuitable_environments_are_named(minigrid: Any) -> None:
    with pytest.raises(ValueError, match="id of a MiniGrid environment"):
        bm.minigrid("FrozenLake-v1")
    with pytest.raises(ValueError, match="is random"):
        bm.minigrid("MiniGrid-Dynamic-Obstacles-5x5-v0", 10)


# --- the noise ------------------------------------------------------------------------------------
@pytest.mark.parametrize("noise", NOISES)
def test_compiled_and_interpreted_noise_are_equal(noise: dict[str, Any]) -> None:
    emission = bm.Screens(pictures(), **noise)
    states, keys = np.arange(6), rng.children(rng.root(1), 0, 6)
    arguments = (emission.tint, emission.distractors, emission.size, emission.pixel, emission.shift)
    slow = interpreted(draw_screens)(emission.pictures, emission._behind, states, keys, *arguments)
    assert np.array_equal(emission.sample(0, states, keys), slow.reshape(6, -1))
    one = emission.sample(0, states[3:4], keys[3:4])
    assert np.array_equal(one[0], slow[3].ravel())
    assert not np.array_equal(slow, emission.pictures)


def test_tints_stay_in_range_and_keep_the_order_of_colours() -> None:
    x = noisy(np.zeros(300, np.int64), tint=0.4).reshape(300, 8, 9, 3).astype(float)
    floor, wall, bar = x[:, 5, 5], x[:, 0, 0], x[:, 1, 2]
    assert (floor < wall).all()
    assert (wall[:, 0] < bar[:, 0]).all()
    contrast = (wall - floor) / 100
    assert contrast.min() == pytest.approx(0.6, abs=0.02)
    assert contrast.max() == pytest.approx(1.0, abs=0.02)


def test_distractors_stay_behind_what_changes() -> None:
    states = np.repeat(np.arange(6), 50)
    x = noisy(states, distractors=4).reshape(-1, 8, 9, 3)
    clean = pictures()[states]
    bar = clean[..., 0] > clean[..., 1] + 50
    assert np.array_equal(x[bar], clean[bar])
    assert ((x != clean).any(axis=3).sum(axis=(1, 2)) <= 16).all()


def test_without_noise_screens_are_pictures() -> None:
    emission = bm.Screens(pictures())
    assert not emission.has_noise
    assert np.array_equal(
        emission.sample(0, np.arange(6), np.zeros(6, np.uint64)), pictures().reshape(6, -1)
    )


@pytest.mark.parametrize(
    ("shown", "noise", "words"),
    [
        (np.zeros((2, 3, 3)), {}, "shape"),
        (np.full((2, 3, 3, 3), 300), {}, "from 0 to 255"),
        (np.full((2, 3, 3, 3), 99.5), {}, "whole numbers from 0 to 255, not fractions: round"),
        (np.full((2, 3, 3, 3), 0.5), {}, "whole numbers from 0 to 255: multiply them by 255"),
        (np.ones((2, 3, 3, 3), np.bool_), {}, "numbers from 0 to 255"),
        (np.zeros((2, 3, 3, 3)), {"tint": 2.0}, "tint"),
        (np.zeros((2, 3, 3, 3)), {"tint": "x"}, r"tint must be a number in \[0, 1\], got 'x'"),
        (np.zeros((2, 3, 3, 3)), {"pixel": -1.0}, "pixel"),
        (np.zeros((2, 3, 3, 3)), {"distractors": -1}, "distractors"),
    ],
)
def test_impossible_screens_are_named(shown: Any, noise: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bm.Screens(shown, **noise)


# --- the oracle -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "noise", [{"tint": 0.4}, {"distractors": 2}, {"tint": 0.3, "distractors": 2}]
)
def test_the_oracle_finds_the_states(noise: dict[str, Any]) -> None:
    states = np.random.default_rng(0).integers(0, 6, 400)
    oracle = bm.oracles.images(kind="rendered").fit(noisy(states, **noise))
    again = np.random.default_rng(1).integers(0, 6, 300)
    labels = oracle.predict(noisy(again, seed=5, **noise))
    pairs, counts = np.unique(np.stack([again, labels]), axis=1, return_counts=True)
    right = sum(counts[pairs[1] == k].max() for k in np.unique(labels))
    assert right >= 0.98 * len(again)
    assert oracle.n_labels_ <= 20


def test_a_distractor_of_one_colour_is_a_known_limit() -> None:
    shown, random = pictures()[np.arange(300) % 6], np.random.default_rng(0)
    for x in shown:
        x[7, random.integers(9)] = (0, 0, 200)
    assert bm.oracles.ScreenOracle().fit(shown.reshape(300, -1)).n_labels_ > 20


def test_the_oracle_is_an_incremental_oracle() -> None:
    random = np.random.default_rng(0)
    x = np.repeat([10.0, 100.0, 200.0], 20)[random.permutation(60)]
    X = np.stack([x, np.full(60, 50.0), x[::-1]], axis=1) + random.normal(size=(60, 3))
    check_incremental_oracle(bm.oracles.ScreenOracle(channels=1), X)


def test_pictures_can_come_one_by_one_and_the_oracle_be_copied_meanwhile() -> None:
    X = noisy(np.random.default_rng(0).integers(4, size=60), tint=0.2).reshape(60, -1)
    oracle = bm.oracles.ScreenOracle().fit(X[:7])
    for i in range(7, 60):
        if i % 20 == 0:
            oracle = pickle.loads(pickle.dumps(oracle))
        oracle.partial_fit(X[i : i + 1])
    other = bm.oracles.ScreenOracle().fit(X[:7])
    for rows in np.split(X[7:], [10, 11, 40]):
        other.partial_fit(rows)
    assert np.array_equal(oracle._codes, other._codes)
    assert oracle._codes.shape == (60, X.shape[1] // 3)
    assert len(pickle.dumps(oracle)) < 1.5 * oracle._codes.nbytes + 50_000


@pytest.mark.parametrize(
    ("scale", "offset", "words"),
    [
        (1 / 255, 0.0, "all are from 0 to 1: multiply the pictures by 255"),
        (1e18, 0.0, r"from 0 to 255, got numbers from 0 to 2.55e\+20"),
        (1.0, -1.0, "from 0 to 255, got numbers from -1 to 254"),
        (1.0, np.nan, "NaN"),
    ],
)
def test_pictures_on_another_scale_are_an_error(scale: float, offset: float, words: str) -> None:
    x = scale * pictures().reshape(6, -1) + offset
    oracle = bm.oracles.ScreenOracle()
    for learn in (oracle.fit, oracle.partial_fit):
        with pytest.raises(ValueError, match=words):
            learn(x)
    oracle.fit(pictures().reshape(6, -1))
    if scale >= 1:  # a dark picture is not an error
        with pytest.raises(ValueError, match=words):
            oracle.predict(x)


def test_learning_in_pieces_gives_labels_of_the_whole_past() -> None:
    states = np.random.default_rng(0).integers(0, 6, 200)
    x = noisy(states, tint=0.2)
    oracle = clone(bm.oracles.ScreenOracle())
    before = np.zeros(0, np.int64)
    for i in range(0, 200, 10):
        oracle.partial_fit(x[i : i + 10])
        changed = np.flatnonzero(oracle.labels_[: len(before)] != before)
        assert np.array_equal(oracle.changed_labels(), changed)
        before = oracle.labels_
    assert len(np.unique(np.stack([states, oracle.labels_]), axis=1).T) == 6
    assert len(oracle.palette_) == 4


def test_compiled_and_interpreted_loops_of_the_oracle_are_equal() -> None:
    x = noisy(np.arange(6), tint=0.3, distractors=1).astype(np.float64)
    fast = loops.fit_colours(x, x[0], 3, 2.0)
    names = ("most_frequent", "count_close", "refined", "difference", "find")
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(loops, name, interpreted(getattr(loops, name)))
        slow = interpreted(loops.fit_colours)(x, x[0], 3, 2.0)
        assert np.array_equal(fast, slow)
        codes = []
        for run in (loops.learn_codes, interpreted(loops.learn_codes)):
            palette = loops.Palette.new(3).with_room(72)
            codes.append(np.empty(72, np.int32))
            run(fast[1], palette, 0, 4.0, np.zeros(72, np.int32), codes[-1])
        assert np.array_equal(*codes)
        recurs, guess = np.ones(palette.used[0], np.bool_), codes[0]
        colours = (np.arange(palette.used[0]), guess, 4.0)
        for name, arguments in {
            "most_common": (np.stack(codes), recurs),
            "read_codes": (fast, palette, *colours),
        }.items():
            function = getattr(loops, name)
            assert np.array_equal(function(*arguments), interpreted(function)(*arguments))
    prototypes = loops.Prototypes.new(72)
    for row in loops.read_codes(fast, palette, *colours)[:4]:
        prototypes = prototypes.with_row(row, guess)
    row = loops.read_codes(fast, palette, *colours)[5]
    differs = np.flatnonzero(row != guess)
    results = [
        run(prototypes, row, differs, np.zeros(72, np.bool_))
        for run in (loops.nearest, interpreted(loops.nearest))
    ]
    assert results[0] == results[1]


def test_channels_must_divide_the_numbers_of_a_picture() -> None:
    with pytest.raises(ValueError, match="3 channels"):
        bm.oracles.ScreenOracle().fit(np.zeros((4, 10)))
    with pytest.raises(ValueError, match="kind must be"):
        bm.oracles.images(kind="blurred")  # type: ignore[arg-type]


def test_an_argument_of_the_other_kind_of_images_is_an_error() -> None:
    with pytest.raises(ValueError, match="n_components is only for kind='varied', got n_comp"):
        bm.oracles.images(5, kind="rendered")
    with pytest.raises(ValueError, match="caution is only for kind='varied', got caution=0"):
        bm.oracles.images(caution=0.0, kind="rendered")
    with pytest.raises(ValueError, match="channels is only for kind='rendered', got channels=1"):
        bm.oracles.images(channels=1)
    assert bm.oracles.images(kind="rendered", channels=1).channels == 1
    steps = bm.oracles.images(7, -1.0)
    assert (steps[1].n_components, steps[-1].caution) == (7, -1.0)


def test_a_policy_that_sees_pictures_can_be_saved(tmp_path: Path) -> None:
    shown = bm.Screens(pictures(3), tint=0.3, distractors=1, size=2**63 - 1)  # hides all else
    assert shown.sample(0, np.arange(3), rng.children(rng.root(0), 0, 3)).shape == (3, shown.dim)
    lock = bm.lock_bernoulli(horizon=3)
    emission = bm.Screens(pictures(3), tint=0.3)
    m = bm.BlockMDP(lock.initial, lock.transitions, lock.rewards, emission=emission)
    oracle = bm.oracles.images(kind="rendered")
    agent = bm.OnlineURL(oracle, pool_levels=True).fit(m, episodes=60, seed=0)
    agent.save(tmp_path / "policy.npz")
    policy = bm.load(tmp_path / "policy.npz")
    x = emission.sample(1, np.arange(9) % 3, rng.children(rng.root(1), 0, 9))
    assert [policy.act(row, 1) for row in x] == [agent.policy_.act(row, 1) for row in x]


# --- films ----------------------------------------------------------------------------------------
def test_any_problem_can_be_animated(tmp_path: Path) -> None:
    m = bm.lock_bernoulli(horizon=3)
    agent = bm.Tabular(bm.UCBVI()).fit(m, episodes=200)
    assert 0 <= agent.animate(tmp_path / "lock.gif", episodes=2) <= 1
    env: Any = gymnasium.make("FrozenLake-v1", max_episode_steps=5, render_mode="rgb_array")
    black = bm.Tabular(bm.UCBVI(), on="observation").fit(env, episodes=2)
    black.animate(tmp_path / "lake.gif", on=env)
    with pytest.raises(ValueError, match="fitted to a black box"):
        black.animate(tmp_path / "lake.gif")
    with pytest.raises(ValueError, match="render_mode"):
        black.animate(tmp_path / "lake.gif", on=gymnasium.make("FrozenLake-v1"))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("film.gif", {"fps": 0}, r"fps must be a number in \(0, 100\], got 0"),
        ("film.gif", {"fps": -4}, r"fps must be a number in \(0, 100\], got -4"),
        ("film.gif", {"fps": "4"}, r"fps must be a number in \(0, 100\], got '4'"),
        ("film.gif", {"episodes": 0}, "episodes must be an integer >= 1, got 0"),
        ("film.mp4", {}, "ends in .gif, got '.*film.mp4'"),
        ("", {}, "ends in .gif, got "),
        ("folder.gif", {}, "folder.gif' is a folder"),
        ("missing/film.gif", {}, "in a folder that exists, got '.*film.gif'"),
    ],
)
def test_a_film_that_cannot_be_written_is_an_error_before_anything_is_played(
    tmp_path: Path, name: str, options: dict[str, Any], words: str
) -> None:
    (tmp_path / "folder.gif").mkdir()
    m = bm.lock_bernoulli(horizon=3)

    def act(*_: Any) -> int:
        raise AssertionError("an episode was played")

    policy = bm.Policy(m.optimal_policy())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm.Policy, "act", act)
        with pytest.raises(ValueError, match=words):
            bm.plots.animate(m, policy, tmp_path / name, **options)


# --- the learner ----------------------------------------------------------------------------------
def test_with_a_discount_ucbvi_finds_a_goal_earlier_and_keeps_it() -> None:
    m = bm.from_gymnasium("FrozenLake-v1", 20, is_slippery=False, map_name="8x8")
    solved = {}
    for learner in (bm.UCBVI(bonus=0.0, stationary=True), LEARNER):
        agent = bm.Tabular(learner).fit(m, episodes=300, seed=0, record="few")
        solved[learner.greedy] = agent.solved_from() or 10_000
    assert solved["known"] < solved["optimistic"]
    with pytest.raises(ValueError, match="greedy must be"):
        bm.UCBVI(greedy="lazy")  # type: ignore[arg-type]
