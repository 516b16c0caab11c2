"""Films of episodes, as GIF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from blockmdp.checks import check_integer, check_number
from blockmdp.envs.gym import BlockMDPEnv
from blockmdp.mdp import BlockMDP
from blockmdp.policy import Policy

__all__ = ["animate"]

LEAST = 240  # pixels of the shorter side of a film, to which small pictures are enlarged
MOST = 100  # pictures in a second: a GIF counts hundredths
PAUSE = 3  # how much longer the last picture of an episode is shown


def animate(
    problem: BlockMDP | gymnasium.Env[Any, Any],
    policy: Policy,
    path: str | Path,
    *,
    episodes: int = 1,
    seed: int = 0,
    fps: float = 4.0,
) -> float:
    """Play episodes of a policy, and write them to a GIF file.

    If observations are pictures, the film shows what the agent sees. Otherwise it shows what
    `render` draws: the latent states of a Block MDP, or the pictures of a Gymnasium environment.

    Parameters
    ----------
    problem : BlockMDP or gymnasium.Env
        Problem to act in. An environment must have `render_mode="rgb_array"`.
    policy : Policy
        Policy to follow.
    path : str or Path
        File to write, which ends in ".gif".
    episodes : int, default=1
        Number of episodes.
    seed : int, default=0
        Seed of the first episode.
    fps : float, default=4.0
        Pictures in a second, at most 100.

    Returns
    -------
    float
        Mean return of the episodes.

    See Also
    --------
    blockmdp.Agent.animate : The same for an agent.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.from_gymnasium("FrozenLake-v1", 10, is_slippery=False)
    >>> film = getfixture("tmp_path") / "lake.gif"
    >>> animate(m, bm.Policy(m.optimal_policy()), film)
    1.0
    >>> film.exists()
    True
    """
    from PIL import Image  # here, since it is slow to import

    _check_path(path)
    episodes = check_integer("episodes", episodes, 1)
    fps = check_number("fps", fps, 0, MOST, closed="right")
    env: Any = problem
    if isinstance(problem, BlockMDP):
        sees: Any = "latent" if policy.decoder is None else "observation"
        env = BlockMDPEnv(problem, observe=sees, render_mode="rgb_array")
    elif getattr(problem, "render_mode", None) != "rgb_array":
        raise ValueError(f"{problem} draws no pictures: make it with render_mode='rgb_array'")
    frames: list[Any] = []
    seconds: list[float] = []
    total = 0.0
    for episode in range(episodes):
        x, info = env.reset(seed=seed if episode == 0 else None)
        over, level = False, 0
        while True:
            frames.append(Image.fromarray(_enlarged(_picture(env, problem, x, info))))
            seconds.append(1 / fps)
            if over or level == policy.horizon:
                break
            x, reward, terminated, truncated, info = env.step(policy.act(x, level))
            total, over, level = total + float(reward), terminated or truncated, level + 1
        seconds[-1] *= PAUSE
    milliseconds = [round(1000 * each) for each in seconds]
    first, *rest = frames
    first.save(path, format="GIF", save_all=True, append_images=rest, duration=milliseconds, loop=0)
    return total / episodes


def _check_path(path: str | Path) -> None:
    """Raise ValueError if no GIF file can be written there."""
    path = Path(path)
    if path.suffix.lower() != ".gif":
        raise ValueError(f"path must be the name of a file that ends in .gif, got {str(path)!r}")
    if path.is_dir():
        raise ValueError(f"path must be a file, but {str(path)!r} is a folder")
    if not path.parent.is_dir():
        raise ValueError(f"path must be in a folder that exists, got {str(path)!r}")


def _picture(env: Any, problem: Any, x: Any, info: dict[str, Any]) -> NDArray[np.uint8]:
    """Return what to show: the observation if it is a picture, otherwise what `render` draws."""
    if not isinstance(problem, BlockMDP):
        return np.asarray(env.render(), np.uint8)
    emission: Any = problem.emission
    shape: tuple[int, ...] = getattr(emission, "shape", ())
    if len(shape) != 3 or shape[2] != 3 or (emission.low, emission.high) == (0.0, 1.0):
        return np.asarray(env.render(), np.uint8)
    if env.observe == "latent":
        clean = getattr(emission, "pictures", getattr(emission, "observations", None))
        assert clean is not None
        x = clean[info["latent_state"]]
    return np.asarray(x, np.uint8).reshape(shape)


def _enlarged(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat the pixels of a small picture."""
    times = -(-LEAST // min(picture.shape[:2]))
    return picture.repeat(times, axis=0).repeat(times, axis=1)
