"""The Gymnasium face: the single environment, the vector environment, ids and pictures."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import warnings
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import blockmdp.envs
from blockmdp import rng, streams
from blockmdp.dynamics import first_state, next_state, sample_reward
from blockmdp.emissions import (
    ExogenousBits,
    Linear,
    MarkovBits,
    OneHotBernoulli,
    OneHotGaussian,
    PerLevel,
)
from blockmdp.envs import (
    BlockMDPEnv,
    BlockMDPVectorEnv,
    lock_bernoulli,
    lock_gaussian,
    mdp_of,
    register,
    render,
)
from blockmdp.mdp import BlockMDP

IDS = ["blockmdp/LockBernoulli-v0", "blockmdp/LockGaussian-v0"]


def chance(H, S, A, emission, seed=0):
    """A Block MDP with random tables, whose every transition may pay."""
    generator = np.random.default_rng(seed)
    transitions = generator.dirichlet(np.ones(S), size=(H, S, A))
    rewards = generator.normal(size=transitions.shape)
    return BlockMDP(np.ones(S) / S, transitions, rewards, 0.5, emission=emission, name="Chance")


def per_level(H=4):
    bits, reals = OneHotBernoulli(3, 2), OneHotGaussian(3, 2, 0.3)
    return chance(H, 3, 2, PerLevel([bits if h % 2 else reals for h in range(H + 1)]))


def markov(S=3):
    rates = np.random.default_rng(S).uniform(0.1, 0.9, (2, 8))
    return MarkovBits(np.arange(S) * 2, *rates)


PROBLEMS = {
    "bernoulli": lambda: lock_bernoulli(horizon=4),
    "gaussian": lambda: lock_gaussian(horizon=4),
    "truncated": lambda: lock_gaussian(horizon=4, truncate=True),
    "per level": per_level,
    "linear": lambda: chance(3, 4, 3, Linear(OneHotBernoulli(4, 2), np.ones((5, 6)))),
    "horizon 1": lambda: lock_bernoulli(horizon=1),
    "one state": lambda: chance(3, 1, 2, OneHotBernoulli(1, 4)),
    "one action": lambda: chance(3, 3, 1, OneHotBernoulli(3, 1)),
    "one of each": lambda: chance(1, 1, 1, OneHotBernoulli(1, 0)),
    "markov": lambda: chance(4, 3, 2, markov()),
    "exogenous": lambda: chance(4, 3, 2, Linear(ExogenousBits(3, 5, 4, 0.2, 0.1), np.eye(12))),
    "markov at some levels": lambda: chance(
        2, 3, 2, PerLevel([markov(), OneHotBernoulli(3, 5), markov()])
    ),
}


@pytest.fixture(params=PROBLEMS)
def mdp(request):
    return PROBLEMS[request.param]()


def play(env, steps, seed):
    """What an environment shows in a number of steps; the actions depend on the seed alone."""
    generator = np.random.default_rng(seed)
    seen, over = [env.reset(seed=seed)], False
    for _ in range(steps):
        if over:
            seen.append(env.reset())
            over = False
        else:
            seen.append(env.step(generator.integers(env.action_space.n)))
            over = seen[-1][2]
    return seen


# --- one environment ------------------------------------------------------------------------------
@pytest.mark.parametrize("observe", ["observation", "latent"])
@pytest.mark.parametrize("id", IDS)
def test_registered_environments_pass_gymnasiums_checker(id, observe):
    # the paper's Gaussian lock has no bounds, of which the checker always warns
    kwargs = {"truncate": True} if "Gaussian" in id else {}
    for mode in (None, "ansi", "rgb_array"):
        check_env(gym.make(id, horizon=3, observe=observe, render_mode=mode, **kwargs).unwrapped)


def test_unbounded_noise_is_the_only_thing_the_checker_warns_of():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gym.make("blockmdp/LockGaussian-v0", horizon=3).unwrapped)
    assert len(caught) == 2
    assert all("infinity" in str(w.message) for w in caught)


def test_every_kind_of_problem_passes_gymnasiums_checker(mdp):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*infinity.*")
        warnings.filterwarnings("ignore", ".*not having a spec.*")
        check_env(BlockMDPEnv(mdp))


def test_same_seed_same_episodes(mdp):
    env = BlockMDPEnv(mdp)
    assert data_equivalence(play(env, 20, seed=5), play(env, 20, seed=5), exact=True)
    assert data_equivalence(play(env, 20, seed=5), play(BlockMDPEnv(mdp), 20, seed=5), exact=True)


def test_another_seed_gives_other_episodes():
    env = BlockMDPEnv(lock_bernoulli(horizon=20))
    assert not data_equivalence(play(env, 5, seed=0), play(env, 5, seed=1))


def test_numbers_are_those_of_the_documented_streams(mdp):
    seed, env = 11, BlockMDPEnv(mdp)
    dynamics, visits = mdp.dynamics, np.zeros((mdp.horizon + 1, mdp.n_states), int)
    generator = np.random.default_rng(0)

    def expected(level, state):
        visits[level, state] += 1
        with np.errstate(over="ignore"):
            n = visits[level, state] - 1
            key = np.uint64(rng.child(streams.noise(seed, level, state), n))
            if mdp.emission.per_episode:
                key = np.uint64(rng.child(streams.episode_noise(seed), visits[0].sum() - 1))
        return mdp.emission.sample(level, np.array([state]), np.array([key]))[0]

    for episode in range(6):
        x, info = env.reset(seed=seed if episode == 0 else None)
        with np.errstate(over="ignore"):
            e = np.uint64(rng.child(streams.world(seed), episode))
            s = first_state(dynamics.initial, e)
        assert info == {"latent_state": s, "level": 0}
        np.testing.assert_array_equal(x, expected(0, s))
        for h in range(mdp.horizon):
            a = int(generator.integers(mdp.n_actions))
            with np.errstate(over="ignore"):
                t = next_state(dynamics.model, h, s, a, e)
                r = sample_reward(dynamics.model, h, s, a, t, e)
            x, reward, terminated, truncated, info = env.step(a)
            assert (reward, terminated, truncated) == (r, h + 1 == mdp.horizon, False)
            assert info == {"latent_state": t, "level": h + 1}
            np.testing.assert_array_equal(x, expected(h + 1, t))
            s = t


def test_an_abandoned_episode_is_followed_by_the_next_one():
    env = BlockMDPEnv(chance(5, 20, 2, OneHotBernoulli(20, 1)), observe="latent")
    env.reset(seed=0)
    first = [env.reset()[0] for _ in range(10)]
    env.reset(seed=0)
    env.step(0)
    assert [env.reset()[0] for _ in range(10)] == first


def test_first_reset_without_a_seed_draws_one():
    mdp = lock_bernoulli(horizon=60)
    assert not np.array_equal(BlockMDPEnv(mdp).reset()[0], BlockMDPEnv(mdp).reset()[0])
    twins = [BlockMDPEnv(mdp), BlockMDPEnv(mdp)]
    for env in twins:
        env.np_random = np.random.default_rng(3)
    np.testing.assert_array_equal(twins[0].reset()[0], twins[1].reset()[0])


def test_info_tells_latent_state_and_level_as_plain_integers():
    env = BlockMDPEnv(lock_bernoulli(horizon=2))
    infos = [env.reset(seed=0)[1], env.step(0)[4], env.step(0)[4]]
    assert [info["level"] for info in infos] == [0, 1, 2]
    assert all(type(value) is int for info in infos for value in info.values())
    # the one-hot code of the observation is the latent state
    x, info = env.reset()
    assert x[:3].argmax() == info["latent_state"]


def test_latent_observations_are_the_latent_states_of_the_same_episodes(mdp):
    shown = play(BlockMDPEnv(mdp, observe="latent"), 20, seed=2)
    hidden = play(BlockMDPEnv(mdp), 20, seed=2)
    assert all(x[0] == x[-1]["latent_state"] for x in shown)
    assert data_equivalence([x[1:] for x in shown], [x[1:] for x in hidden], exact=True)


def test_observation_space_is_the_emissions_own():
    assert BlockMDPEnv(lock_bernoulli(5)).observation_space == gym.spaces.MultiBinary(8)
    box = gym.spaces.Box(-np.inf, np.inf, (8,), np.float32)
    assert BlockMDPEnv(lock_gaussian(5)).observation_space == box
    box = gym.spaces.Box(-0.5, 1.5, (8,), np.float32)
    assert BlockMDPEnv(lock_gaussian(5, truncate=True)).observation_space == box
    latent = BlockMDPEnv(lock_bernoulli(5), observe="latent").observation_space
    assert latent == gym.spaces.Discrete(3)


@pytest.mark.parametrize("action", [4, -1, 1.0, None, np.array([0, 1])])
def test_a_wrong_action_is_named(action):
    env = BlockMDPEnv(lock_bernoulli(horizon=2))
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action .* is none of the integers 0 to 3"):
        env.step(action)


@pytest.mark.parametrize("action", [2, np.int32(2), np.array(2)])
def test_any_integer_is_an_action(action):
    env = BlockMDPEnv(lock_bernoulli(horizon=2))
    env.reset(seed=0)
    env.step(action)


def test_stepping_outside_an_episode_asks_for_a_reset():
    env = BlockMDPEnv(lock_bernoulli(horizon=1))
    with pytest.raises(ResetNeeded, match="before the first reset"):
        env.step(0)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ResetNeeded, match="ended at level 1"):
        env.step(0)


def test_unknown_options_are_named():
    with pytest.raises(ValueError, match=r"observe .* 'both'"):
        BlockMDPEnv(lock_bernoulli(1), observe="both")
    with pytest.raises(ValueError, match=r"render_mode .* 'human'"):
        BlockMDPEnv(lock_bernoulli(1), render_mode="human")
    with pytest.raises(ValueError, match=r"observe .* 'both'"):
        BlockMDPVectorEnv(lock_bernoulli(1), 2, observe="both")
    with pytest.raises(ValueError, match=r"num_envs .* 0"):
        BlockMDPVectorEnv(lock_bernoulli(1), 0)


# --- many at once ---------------------------------------------------------------------------------
def both_kinds(mdp, n, **kwargs):
    native = BlockMDPVectorEnv(mdp, n, **kwargs)
    return native, SyncVectorEnv([lambda: BlockMDPEnv(mdp, **kwargs)] * n)


def same(a, b):
    return data_equivalence(a, b, exact=True)


@pytest.mark.parametrize("observe", ["observation", "latent"])
def test_native_vector_env_equals_the_synchronous_one(mdp, observe):
    native, sync = both_kinds(mdp, 3, observe=observe)
    assert native.single_observation_space == sync.single_observation_space
    assert native.observation_space == sync.observation_space
    assert native.action_space == sync.action_space
    assert native.metadata == sync.metadata
    generator = np.random.default_rng(0)
    assert same(native.reset(seed=7), sync.reset(seed=7))
    for _ in range(5 * (mdp.horizon + 1)):
        actions = generator.integers(mdp.n_actions, size=3)
        assert same(native.step(actions), sync.step(actions))
    for seed in (None, [3, None, 1], 0):
        assert same(native.reset(seed=seed), sync.reset(seed=seed))
        for _ in range(mdp.horizon + 2):
            actions = generator.integers(mdp.n_actions, size=3)
            assert same(native.step(actions), sync.step(actions))


def test_resetting_some_copies_equals_the_synchronous_one(mdp):
    native, sync = both_kinds(mdp, 4)
    assert same(native.reset(seed=0), sync.reset(seed=0))
    generator = np.random.default_rng(0)
    for _ in range(12):
        actions = generator.integers(mdp.n_actions, size=4)
        assert same(native.step(actions), sync.step(actions))
        mask = generator.random(4) < 0.5
        if mask.any():  # now the copies are at different levels
            answers = [envs.reset(options={"reset_mask": mask}) for envs in (native, sync)]
            assert same(*answers)


def test_vector_env_autoresets_on_the_next_step():
    envs = BlockMDPVectorEnv(lock_bernoulli(horizon=2), 2)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    envs.reset(seed=0)
    levels, ends = zip(*((i["level"][0], e[0]) for *_, e, _, i in map(envs.step, [[0, 0]] * 5)))
    assert levels == (1, 2, 0, 1, 2)
    assert ends == (False, True, False, False, True)


def test_what_the_vector_env_returned_stays_as_it_was():
    envs = BlockMDPVectorEnv(lock_bernoulli(horizon=20), 2)
    x, info = envs.reset(seed=0)
    before, level = x.copy(), info["level"].copy()
    envs.step([0, 0])
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(info["level"], level)


def test_vector_env_without_a_seed_draws_one_for_each_copy():
    x, _ = BlockMDPVectorEnv(lock_bernoulli(horizon=60), 2).reset()
    assert not np.array_equal(x[0], x[1])


def test_vector_env_names_what_is_wrong():
    envs = BlockMDPVectorEnv(lock_bernoulli(horizon=1), 2)
    with pytest.raises(ResetNeeded, match="before the first reset"):
        envs.step([0, 0])
    with pytest.raises(ValueError, match="3 seeds for 2"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="reset_mask must be 2 booleans"):
        envs.reset(options={"reset_mask": np.array([1, 0])})
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="action 4 of copy 1"):
        envs.step([0, 4])
    for actions in ([0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="actions must be 2 integers"):
            envs.step(actions)
    envs.step([0, 0])
    envs.step([9, 9])  # ignored, since this step resets, as in the synchronous one


# --- ids ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("id", IDS)
def test_make_takes_the_problems_arguments(id):
    env = gym.make(id, horizon=7, switch=0.3, seed=2)
    problem = lock_bernoulli if "Bernoulli" in id else lock_gaussian
    expected = problem(horizon=7, switch=0.3, seed=2)
    np.testing.assert_array_equal(mdp_of(env).transitions, expected.transitions)
    assert repr(mdp_of(env)) == repr(expected)
    assert gym.make(env.spec).spec == env.spec
    assert gym.envs.registration.EnvSpec.from_json(env.spec.to_json()) == env.spec


def test_make_knows_all_options():
    env = gym.make(
        IDS[1], horizon=3, sigma=0.2, truncate=True, observe="latent", render_mode="rgb_array_list"
    )
    assert env.observation_space == gym.spaces.Discrete(3)
    assert env.unwrapped.mdp.emission.sigma == 0.2
    env.reset(seed=0)
    env.step(0)
    assert len(env.render()) == 2


def test_make_refuses_an_unknown_argument():
    with pytest.raises(TypeError, match="horizn"):
        gym.make(IDS[0], horizn=3)


def test_make_with_the_modules_name_needs_no_import():
    code = (
        "import gymnasium as gym\n"
        "env = gym.make('blockmdp:blockmdp/LockBernoulli-v0', horizon=20, switch=0.2)\n"
        "print(env.reset(seed=0)[0].shape)"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.returncode) == ("(23,)\n", 0), run.stderr


@pytest.mark.parametrize("id", IDS)
def test_make_vec_gives_the_same_in_both_modes(id):
    sync = gym.make_vec(id, num_envs=4, vectorization_mode="sync", horizon=3)
    native = gym.make_vec(id, num_envs=4, vectorization_mode="vector_entry_point", horizon=3)
    assert isinstance(gym.make_vec(id, num_envs=4), BlockMDPVectorEnv)
    assert isinstance(native, BlockMDPVectorEnv)
    assert isinstance(sync, SyncVectorEnv)
    assert same(native.reset(seed=1), sync.reset(seed=1))
    for _ in range(8):
        assert same(native.step([0, 1, 2, 3]), sync.step([0, 1, 2, 3]))


def test_registering_twice_is_silent():
    importlib.reload(blockmdp.envs)


def test_registering_something_else_under_an_id_warns():
    with pytest.warns(UserWarning, match="Overriding"):
        register(IDS[0], lock_bernoulli, horizon=3)
    with pytest.warns(UserWarning, match="Overriding"):
        register(IDS[0], lock_bernoulli)


def test_a_problem_function_of_ones_own_is_one_line_to_register():
    register("tests/PerLevel-v0", per_level, H=2)
    env = gym.make("tests/PerLevel-v0")
    assert mdp_of(env).horizon == 2
    assert gym.make_vec("tests/PerLevel-v0", num_envs=2, H=3).mdp.horizon == 3
    del gym.registry["tests/PerLevel-v0"]


def test_a_function_that_no_module_holds_cannot_be_registered():
    with pytest.raises(ValueError, match="top of a module"):
        register("tests/Lambda-v0", lambda: lock_bernoulli(1))


def test_mdp_of_sees_through_the_wrappers_of_make_alone():
    mdp = lock_bernoulli(2)
    env = BlockMDPEnv(mdp)
    assert mdp_of(env) is mdp
    assert mdp_of(BlockMDPEnv(mdp, observe="latent")) is None
    assert mdp_of(gym.wrappers.OrderEnforcing(gym.wrappers.PassiveEnvChecker(env))) is mdp
    assert mdp_of(gym.wrappers.TransformReward(env, lambda r: -r)) is None
    assert mdp_of(gym.make(IDS[0], max_episode_steps=1)) is None
    assert mdp_of(gym.make("FrozenLake-v1")) is None

    class Other(BlockMDPEnv):
        pass

    assert mdp_of(Other(mdp)) is None


# --- pictures -------------------------------------------------------------------------------------
@pytest.mark.parametrize("H", [1, 5, 20, 100])
@pytest.mark.parametrize("S", [1, 3, 20])
def test_frames_have_one_size_and_change_as_the_agent_moves(H, S):
    env = BlockMDPEnv(chance(H, S, 2, OneHotBernoulli(S, 0)), render_mode="rgb_array")
    env.reset(seed=0)
    frames = [env.render()]
    for _ in range(min(H, 3)):
        env.step(0)
        frames.append(env.render())
    height, width, channels = frames[0].shape
    assert channels == 3
    assert height % 2 == width % 2 == 0
    assert height <= 600
    assert 400 <= width <= 1300
    assert all(f.dtype == np.uint8 and f.shape == frames[0].shape for f in frames)
    assert all((a != b).any() for a, b in pairwise(frames))


def test_a_frame_depends_on_nothing_drawn_before_it():
    mdp = lock_bernoulli(horizon=5)
    frame = render.rgb(mdp, [0, 0])
    render.rgb(mdp, [0, 1, 2, 2], action=1, reward=1.0)
    np.testing.assert_array_equal(render.rgb(mdp, [0, 0]), frame)


def test_drawing_leaves_matplotlibs_global_state_alone():
    code = (
        "import sys\n"
        "from blockmdp.envs import lock_bernoulli, render\n"
        "render.rgb(lock_bernoulli(2), [0])\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_text_shows_the_path_the_place_and_the_last_step():
    env = BlockMDPEnv(lock_bernoulli(horizon=3), render_mode="ansi")
    _, info = env.reset(seed=0)
    path = [info["latent_state"]]
    assert env.render().splitlines()[-1] == "level 0 of 3, state 0, V* 0.5"
    for action in (0, 1):
        path.append(env.step(action)[4]["latent_state"])
    name, _, *rows, caption = env.render().splitlines()
    assert name == "LockBernoulli"
    assert caption.startswith(f"level 2 of 3, state {path[2]}, action 1, reward 0, V* ")
    cells = [row.split()[2:] for row in rows]
    assert [[row[h] for row in cells].index("o") for h in (0, 1)] == path[:2]
    assert [row[2] for row in cells].index("@") == path[2]
    assert all(row[3] == "." for row in cells)


@pytest.mark.parametrize("now", [0, 50, 100])
def test_text_of_a_long_horizon_keeps_the_agent_in_sight(now):
    lines = render.ansi(lock_bernoulli(horizon=100), [0] * (now + 1)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].count("@") == 1
    column = lines[2].index("@")
    assert lines[1][column:].startswith(str(now))  # its level stands above it


def test_vector_frames_equal_the_synchronous_ones():
    native, sync = both_kinds(lock_bernoulli(horizon=2), 2, render_mode="ansi")
    native.reset(seed=0), sync.reset(seed=0)
    for _ in range(5):
        assert native.render() == sync.render()
        native.step([0, 1]), sync.step([0, 1])


def test_render_without_a_mode_warns_and_without_a_reset_fails():
    mdp = lock_bernoulli(1)
    for kind in (BlockMDPEnv, lambda *a, **k: BlockMDPVectorEnv(*a, 2, **k)):
        with pytest.warns(UserWarning, match="render_mode"):
            assert kind(mdp).render() is None
        with pytest.raises(ResetNeeded, match="before the first reset"):
            kind(mdp, render_mode="ansi").render()


def test_without_the_compiler_everything_is_the_same():
    code = (
        "import numpy as np\n"
        "from blockmdp.envs import *\n"
        "m = lock_gaussian(horizon=2)\n"
        "one, two = BlockMDPEnv(m), BlockMDPVectorEnv(m, 2)\n"
        "out = [one.reset(seed=3), *map(one.step, [0, 1])]\n"
        "out += [two.reset(seed=3), *map(two.step, [[0, 1]] * 3)]\n"
        "print(repr(out))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled},
        ).stdout
        for disabled in ("0", "1")
    }
    assert len(outputs) == 1
