"""Gymnasium environments: single ones, vectors, ids and pictures."""

from __future__ import annotations

import importlib
import json
import warnings
from itertools import pairwise

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from helpers import python

import blockmdp.envs
from blockmdp import rng, streams
from blockmdp.dynamics import draw_successor, first_state, sample_reward, successor
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
    """Return a Block MDP with random tables, in which every transition may pay."""
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
    "bernoulli": lock_bernoulli(horizon=4),
    "gaussian": lock_gaussian(horizon=4),
    "truncated": lock_gaussian(horizon=4, truncate=True),
    "per level": per_level(),
    "linear": chance(3, 4, 3, Linear(OneHotBernoulli(4, 2), np.ones((5, 6)))),
    "horizon 1": lock_bernoulli(horizon=1),
    "one state": chance(3, 1, 2, OneHotBernoulli(1, 4)),
    "one action": chance(3, 3, 1, OneHotBernoulli(3, 1)),
    "one of each": chance(1, 1, 1, OneHotBernoulli(1, 0)),
    "markov": chance(4, 3, 2, markov()),
    "exogenous": chance(4, 3, 2, Linear(ExogenousBits(3, 5, 4, 0.2, 0.1), np.eye(12))),
    "markov at some levels": chance(2, 3, 2, PerLevel([markov(), OneHotBernoulli(3, 5), markov()])),
}


def play(env, steps, seed):
    """Return what an environment shows in some steps; actions depend on the seed alone."""
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
def test_registered_environments_pass_the_checker_of_gymnasium():
    ours = [id for id in gym.registry if id.startswith("blockmdp/")]
    assert len(ours) == 14
    sizes = {"blockmdp/NoisyChain-v0": {"n_states": 3, "n_bits": 10}}
    sizes["blockmdp/DeepSea-v0"] = {"size": 3}
    sizes["blockmdp/MultiMaze-v0"] = {"n_distractors": 1, "horizon": 16}
    for id in ours:
        kwargs = sizes.get(id, {"horizon": 3})
        for observe in ("observation", "latent"):
            check(gym.make(id, observe=observe, **kwargs).unwrapped)
    for mode in ("ansi", "rgb_array"):
        check_env(gym.make(IDS[0], horizon=3, render_mode=mode).unwrapped)


def check(env):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*infinity.*")  # Gaussian noise has no bounds
        warnings.filterwarnings("ignore", ".*not having a spec.*")
        check_env(env, skip_render_check=True)


def test_the_checker_warns_about_unbounded_noise_only():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gym.make("blockmdp/LockGaussian-v0", horizon=3).unwrapped)
    assert len(caught) == 2
    assert all("infinity" in str(w.message) for w in caught)


def test_every_kind_of_problem_passes_the_checker_of_gymnasium():
    for mdp in PROBLEMS.values():
        check(BlockMDPEnv(mdp))


def test_the_same_seed_gives_the_same_episodes():
    for mdp in PROBLEMS.values():
        env, twin = BlockMDPEnv(mdp), BlockMDPEnv(mdp)
        assert same(play(env, 20, seed=5), play(env, 20, seed=5))
        assert same(play(env, 20, seed=5), play(twin, 20, seed=5))


def test_another_seed_gives_other_episodes():
    env = BlockMDPEnv(lock_bernoulli(horizon=20))
    assert not data_equivalence(play(env, 5, seed=0), play(env, 5, seed=1))


def test_random_numbers_are_those_of_the_documented_streams():
    for mdp in PROBLEMS.values():
        check_streams(mdp, seed=11)


def check_streams(mdp, seed):
    env, dynamics = BlockMDPEnv(mdp), mdp.dynamics
    visits = np.zeros((mdp.horizon + 1, mdp.n_states), int)
    generator = np.random.default_rng(0)

    def expected(level, state):
        visits[level, state] += 1
        if mdp.emission.per_episode:
            key = rng.key(streams.episode_noise(seed), visits[0].sum() - 1)
        else:
            key = rng.key(streams.noise(seed, level, state), visits[level, state] - 1)
        return mdp.emission.sample(level, np.array([state]), np.array([key]))[0]

    for episode in range(6):
        x, info = env.reset(seed=seed if episode == 0 else None)
        e = rng.key(streams.world(seed), episode)
        s = first_state(dynamics.initial, e)
        assert info == {"latent_state": s, "level": 0}
        np.testing.assert_array_equal(x, expected(0, s))
        for h in range(mdp.horizon):
            a = int(generator.integers(mdp.n_actions))
            i = draw_successor(dynamics.model, h, s, a, e)
            t = successor(dynamics.states, h, s, a, i)
            r = sample_reward(dynamics.model, h, s, a, i, e)
            x, reward, terminated, truncated, info = env.step(a)
            assert (reward, terminated, truncated) == (r, h + 1 == mdp.horizon, False)
            assert info == {"latent_state": t, "level": h + 1}
            np.testing.assert_array_equal(x, expected(h + 1, t))
            s = t


def test_reset_in_the_middle_of_an_episode_starts_the_next_one():
    env = BlockMDPEnv(chance(5, 20, 2, OneHotBernoulli(20, 1)), observe="latent")
    env.reset(seed=0)
    first = [env.reset()[0] for _ in range(10)]
    env.reset(seed=0)
    env.step(0)
    assert [env.reset()[0] for _ in range(10)] == first


def test_the_first_reset_without_a_seed_draws_one():
    mdp = lock_bernoulli(horizon=60)
    assert not np.array_equal(BlockMDPEnv(mdp).reset()[0], BlockMDPEnv(mdp).reset()[0])
    twins = [BlockMDPEnv(mdp), BlockMDPEnv(mdp)]
    for env in twins:
        env.np_random = np.random.default_rng(3)
    np.testing.assert_array_equal(twins[0].reset()[0], twins[1].reset()[0])


def test_info_contains_latent_state_and_level_as_plain_integers():
    env = BlockMDPEnv(lock_bernoulli(horizon=2))
    infos = [env.reset(seed=0)[1], env.step(0)[4], env.step(0)[4]]
    assert [info["level"] for info in infos] == [0, 1, 2]
    assert all(type(value) is int for info in infos for value in info.values())
    # the one-hot code of the observation is the latent state
    x, info = env.reset()
    assert x[:3].argmax() == info["latent_state"]


def test_latent_observations_are_the_latent_states_of_the_same_episodes():
    for mdp in PROBLEMS.values():
        shown = play(BlockMDPEnv(mdp, observe="latent"), 20, seed=2)
        hidden = play(BlockMDPEnv(mdp), 20, seed=2)
        assert all(x[0] == x[-1]["latent_state"] for x in shown)
        assert same([x[1:] for x in shown], [x[1:] for x in hidden])


def test_the_observation_space_is_that_of_the_emission():
    assert BlockMDPEnv(lock_bernoulli(5)).observation_space == gym.spaces.MultiBinary(8)
    box = gym.spaces.Box(-np.inf, np.inf, (8,), np.float32)
    assert BlockMDPEnv(lock_gaussian(5)).observation_space == box
    box = gym.spaces.Box(-0.5, 1.5, (8,), np.float32)
    assert BlockMDPEnv(lock_gaussian(5, truncate=True)).observation_space == box
    latent = BlockMDPEnv(lock_bernoulli(5), observe="latent").observation_space
    assert latent == gym.spaces.Discrete(3)


def test_a_wrong_action_raises():
    env = BlockMDPEnv(lock_bernoulli(horizon=2))
    env.reset(seed=0)
    for action in (4, -1, 1.0, None, np.array([0, 1])):
        with pytest.raises(ValueError, match="action must be an integer from 0 to 3, got"):
            env.step(action)


def test_integers_of_any_type_are_actions():
    env = BlockMDPEnv(lock_bernoulli(horizon=3))
    env.reset(seed=0)
    for action in (2, np.int32(2), np.array(2)):
        env.step(action)


def test_a_step_outside_an_episode_raises():
    env = BlockMDPEnv(lock_bernoulli(horizon=1))
    with pytest.raises(ResetNeeded, match="call reset before the first step"):
        env.step(0)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(ResetNeeded, match="ended at level 1"):
        env.step(0)


def test_an_unknown_option_raises():
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


def test_the_vector_environment_equals_the_synchronous_one():
    for mdp in PROBLEMS.values():
        for observe in ("observation", "latent"):
            native, sync = both_kinds(mdp, 3, observe=observe)
            assert native.single_observation_space == sync.single_observation_space
            assert native.observation_space == sync.observation_space
            assert native.action_space == sync.action_space
            assert native.metadata == sync.metadata
            generator = np.random.default_rng(0)
            assert same(native.reset(seed=7), sync.reset(seed=7))
            for _ in range(3 * (mdp.horizon + 1)):
                actions = generator.integers(mdp.n_actions, size=3)
                assert same(native.step(actions), sync.step(actions))
            for seed in (None, [3, None, 1], 0):
                assert same(native.reset(seed=seed), sync.reset(seed=seed))
                for _ in range(mdp.horizon + 2):
                    actions = generator.integers(mdp.n_actions, size=3)
                    assert same(native.step(actions), sync.step(actions))


def test_resetting_some_copies_equals_the_synchronous_environment():
    for mdp in PROBLEMS.values():
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


def test_the_vector_environment_resets_a_copy_in_the_step_after_an_episode():
    envs = BlockMDPVectorEnv(lock_bernoulli(horizon=2), 2)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    envs.reset(seed=0)
    levels, ends = zip(*((i["level"][0], e[0]) for *_, e, _, i in map(envs.step, [[0, 0]] * 5)))
    assert levels == (1, 2, 0, 1, 2)
    assert ends == (False, True, False, False, True)


def test_later_steps_of_the_vector_environment_do_not_change_earlier_results():
    envs = BlockMDPVectorEnv(lock_bernoulli(horizon=20), 2)
    x, info = envs.reset(seed=0)
    before, level = x.copy(), info["level"].copy()
    envs.step([0, 0])
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(info["level"], level)


def test_the_vector_environment_draws_a_seed_for_each_copy_that_has_none():
    x, _ = BlockMDPVectorEnv(lock_bernoulli(horizon=60), 2).reset()
    assert not np.array_equal(x[0], x[1])


def test_wrong_arguments_of_the_vector_environment_raise():
    envs = BlockMDPVectorEnv(lock_bernoulli(horizon=1), 2)
    with pytest.raises(ResetNeeded, match="call reset before the first step"):
        envs.step([0, 0])
    with pytest.raises(ValueError, match="seed must have 2 entries, got 3"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(ValueError, match="reset_mask must be 2 booleans"):
        envs.reset(options={"reset_mask": np.array([1, 0])})
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"actions\[1\] must be from 0 to 3, got 4"):
        envs.step([0, 4])
    for actions in ([0], [0.0, 1.0]):
        with pytest.raises(ValueError, match="actions must be 2 integers"):
            envs.step(actions)
    envs.step([0, 0])
    envs.step([9, 9])  # ignored: this step only resets


# --- ids ------------------------------------------------------------------------------------------
def test_make_accepts_the_arguments_of_the_problem():
    for id, problem in zip(IDS, (lock_bernoulli, lock_gaussian)):
        env = gym.make(id, horizon=7, switch=0.3, seed=2)
        expected = problem(horizon=7, switch=0.3, seed=2)
        np.testing.assert_array_equal(mdp_of(env).transitions, expected.transitions)
        assert repr(mdp_of(env)) == repr(expected)
        assert gym.make(env.spec).spec == env.spec
        assert gym.envs.registration.EnvSpec.from_json(env.spec.to_json()) == env.spec


def test_the_spec_contains_the_horizon_without_a_time_limit():
    env = gym.make(IDS[0], horizon=7)
    assert env.spec.max_episode_steps == 7
    assert gym.spec(IDS[0]).max_episode_steps is None
    assert [x[3] for x in play(env, 7, seed=0)[1:]] == [False] * 7  # never truncated
    timed = gym.wrappers.TimeAwareObservation(env)
    assert timed.reset(seed=0)[0].shape == (11,)
    assert BlockMDPEnv(lock_bernoulli(2)).spec is None


def test_an_environment_made_from_a_spec_plays_the_same_episodes():
    env = gym.make(IDS[0], horizon=3)
    again = gym.make(env.spec)  # Gymnasium adds a TimeLimit, which sets `truncated` at the end
    assert mdp_of(again).horizon == 3
    for one, two in zip(play(env, 12, seed=4), play(again, 12, seed=4)):
        assert same(one[:3], two[:3])
        assert same(one[-1], two[-1])


def test_make_accepts_all_options():
    env = gym.make(
        IDS[1], horizon=3, sigma=0.2, truncate=True, observe="latent", render_mode="rgb_array_list"
    )
    assert env.observation_space == gym.spaces.Discrete(3)
    assert env.unwrapped.mdp.emission.sigma == 0.2
    env.reset(seed=0)
    env.step(0)
    assert len(env.render()) == 2


def test_make_raises_for_an_unknown_argument():
    with pytest.raises(TypeError, match="horizn"):
        gym.make(IDS[0], horizn=3)


@pytest.fixture(scope="module")
def fresh_process():
    """What a fresh process without the compiler prints: shapes, modules, and episodes."""
    code = (
        "import json, sys, gymnasium as gym\n"
        "env = gym.make('blockmdp:blockmdp/LockBernoulli-v0', horizon=20, switch=0.2)\n"
        "shape = env.reset(seed=0)[0].shape\n"
        "from blockmdp.envs import lock_bernoulli, render\n"
        "render.rgb(lock_bernoulli(2), [0])\n"
        "pyplot = 'matplotlib.pyplot' in sys.modules\n"
        "import test_envs\n"
        "print(json.dumps([shape, pyplot, test_envs.episodes()]))"
    )
    return json.loads(python(code, env={"NUMBA_DISABLE_JIT": "1"}))


def episodes():
    """Some steps of both kinds of environments, as text."""
    mdp = lock_gaussian(horizon=2)
    one, two = BlockMDPEnv(mdp), BlockMDPVectorEnv(mdp, 2)
    steps = [one.reset(seed=3), *map(one.step, [0, 1])]
    return repr(steps + [two.reset(seed=3), *map(two.step, [[0, 1]] * 3)])


def test_make_with_the_name_of_the_module_needs_no_import(fresh_process):
    assert fresh_process[0] == [23]


def test_drawing_does_not_import_pyplot(fresh_process):
    assert fresh_process[1] is False


def test_without_the_compiler_everything_is_the_same(fresh_process):
    assert fresh_process[2] == episodes()


def test_make_vec_gives_the_same_in_both_modes():
    for id in IDS:
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


def test_the_problem_of_a_user_can_be_registered():
    register("tests/PerLevel-v0", per_level, H=2)
    env = gym.make("tests/PerLevel-v0")
    assert mdp_of(env).horizon == 2
    assert gym.make_vec("tests/PerLevel-v0", num_envs=2, H=3).mdp.horizon == 3
    del gym.registry["tests/PerLevel-v0"]


def test_a_function_that_cannot_be_imported_cannot_be_registered():
    with pytest.raises(ValueError, match="top level of a module"):
        register("tests/Lambda-v0", lambda: lock_bernoulli(1))


def test_mdp_of_finds_the_block_mdp_inside_the_wrappers_of_make_only():
    mdp = lock_bernoulli(2)
    env = BlockMDPEnv(mdp)
    assert mdp_of(env) is mdp
    assert mdp_of(BlockMDPEnv(mdp, observe="latent")) is None
    assert mdp_of(gym.wrappers.OrderEnforcing(gym.wrappers.PassiveEnvChecker(env))) is mdp
    assert mdp_of(gym.wrappers.TransformReward(env, lambda r: -r)) is None
    assert mdp_of(gym.make(IDS[0], horizon=5, max_episode_steps=4)) is None
    assert mdp_of(gym.make(IDS[0], horizon=5, max_episode_steps=5)) is not None
    assert mdp_of(gym.make("FrozenLake-v1")) is None

    class Other(BlockMDPEnv):
        pass

    assert mdp_of(Other(mdp)) is None


# --- pictures -------------------------------------------------------------------------------------
def test_frames_have_one_size_and_change_when_the_agent_moves():
    for H, S in ((1, 1), (5, 3), (100, 3), (20, 20)):
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


def test_a_frame_does_not_depend_on_earlier_frames():
    mdp = lock_bernoulli(horizon=5)
    frame = render.rgb(mdp, [0, 0])
    render.rgb(mdp, [0, 1, 2, 2], action=1, reward=1.0)
    np.testing.assert_array_equal(render.rgb(mdp, [0, 0]), frame)


def test_text_shows_the_path_the_agent_and_the_last_step():
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


def test_text_of_a_long_horizon_shows_the_levels_around_the_agent():
    mdp = lock_bernoulli(horizon=100)
    for now in (0, 50, 100):
        lines = render.ansi(mdp, [0] * (now + 1)).splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[2].count("@") == 1
        column = lines[2].index("@")
        assert lines[1][column:].startswith(str(now))  # the level above the agent


def test_frames_of_the_vector_environment_equal_the_synchronous_ones():
    native, sync = both_kinds(lock_bernoulli(horizon=2), 2, render_mode="ansi")
    native.reset(seed=0), sync.reset(seed=0)
    for _ in range(5):
        assert native.render() == sync.render()
        native.step([0, 1]), sync.step([0, 1])


def test_render_warns_without_a_mode_and_raises_before_reset():
    mdp = lock_bernoulli(1)
    for kind in (BlockMDPEnv, lambda *a, **k: BlockMDPVectorEnv(*a, 2, **k)):
        with pytest.warns(UserWarning, match="render_mode"):
            assert kind(mdp).render() is None
        with pytest.raises(ResetNeeded, match="call reset before the first render"):
            kind(mdp, render_mode="ansi").render()
