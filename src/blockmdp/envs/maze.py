"""The multi-maze of the STEEL paper: many walkers, of which the agent controls one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from blockmdp import rng, streams
from blockmdp.checks import check_integer, check_size
from blockmdp.emissions import Emission
from blockmdp.jit import jit
from blockmdp.mdp import BlockMDP
from blockmdp.rng import uniform

__all__ = ["Mazes", "multi_maze"]

SIZE = 11
WALL = 5  # row and column of the walls that make four rooms
DOORS = ((2, 5), (5, 2), (5, 8), (8, 5))
STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left
START, GOAL = (1, 1), (9, 9)
DISTANCE = 16  # steps from the start to the goal


def four_rooms() -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Return the walls of a maze (11, 11), its free cells and where each action leads.

    The free cells (68,) are indices of the flattened grid. The moves (68, 4) are numbers of cells;
    a move into a wall stays in place.
    """
    walls = np.zeros((SIZE, SIZE), np.bool_)
    walls[[0, WALL, -1]] = walls[:, [0, WALL, -1]] = True
    walls[tuple(np.transpose(DOORS))] = False
    cells = np.argwhere(~walls)
    number = np.full((SIZE, SIZE), -1)
    number[~walls] = np.arange(len(cells))
    after = number[tuple((cells[:, None] + STEPS).transpose(2, 0, 1))]
    moves = np.where(after < 0, np.arange(len(cells))[:, None], after)
    return walls, np.flatnonzero(~walls), moves


class Mazes(Emission):
    """Mazes one above the other, with a walker in each. The state is where one of them is.

    The other walkers begin in random cells, and move up, right, down or left at random in every
    step, unless a wall is in the way. All bits of walls and walkers are 1.

    Parameters
    ----------
    n_distractors : int
        Number of mazes whose walkers ignore the agent.
    controlled : int
        Maze of the walker that the agent controls, from 0 to n_distractors.

    Examples
    --------
    >>> emission = Mazes(2, controlled=1)
    >>> x = emission.sample(3, np.array([0]), rng.children(rng.root(0), 0, 1))
    >>> x.reshape(3, 11, 11)[1, :3]
    array([[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
           [1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1],
           [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]], dtype=int8)
    """

    dtype = np.int8
    low, high = 0.0, 1.0
    finite = True
    stationary = False

    def __init__(self, n_distractors: int, controlled: int) -> None:
        self.n_distractors = D = check_integer("n_distractors", n_distractors)
        self.controlled = check_integer("controlled", controlled)
        if self.controlled > D:
            raise ValueError(
                f"Mazes: controlled must be from 0 to n_distractors = {D}, got {controlled!r}"
            )
        walls, self._cells, self._moves = four_rooms()
        self.n_states = len(self._cells)
        self.dim = (D + 1) * walls.size
        self.per_episode = self.has_noise = D > 0
        self._walls = np.tile(walls.ravel().astype(np.int8), D + 1)
        others = np.delete(np.arange(D + 1), self.controlled)
        self._offsets = others * walls.size  # of the other mazes in the observation

    def sample(
        self, level: int, states: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> NDArray[np.int8]:
        rows = np.arange(len(states))
        x = np.tile(self._walls, (len(states), 1))
        x[rows, self.controlled * SIZE**2 + self._cells[states]] = 1
        if self.n_distractors:
            cells = self._cells[random_walks(keys, level, self.n_distractors, self._moves)]
            x[rows[:, None], self._offsets + cells] = 1
        return x

    def __repr__(self) -> str:
        return f"<Mazes: {self.n_states} cells, {self.n_distractors} distractors>"


@jit
def random_walks(
    keys: NDArray[np.uint64], level: int, n_walkers: int, moves: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return where random walkers are at a level, (n, n_walkers).

    Walker j begins in a cell drawn with `uniform(key, j)`. Its action on the way to level t is
    drawn with `uniform(key, t * n_walkers + j)`. So all levels of one key belong to the same walks.

    keys: (n,). moves: (cells, actions), the cell to which each action leads.
    """
    n_cells, n_actions = moves.shape
    out = np.empty((len(keys), n_walkers), np.int64)
    for i in range(len(keys)):
        if i > 0 and keys[i] == keys[i - 1]:
            out[i] = out[i - 1]
            continue
        for j in range(n_walkers):
            cell = int(uniform(keys[i], j) * n_cells)
            for t in range(1, level + 1):
                cell = moves[cell, int(uniform(keys[i], t * n_walkers + j) * n_actions)]
            out[i, j] = cell
    return out


def multi_maze(n_distractors: int = 8, horizon: int = 30, seed: int = 0) -> BlockMDP:
    """MultiMaze: the maze of the STEEL paper, among mazes in which others walk.

    A maze has 11 x 11 cells: walls around it, and a cross of walls with four doors that leaves four
    rooms. The agent moves up, right, down or left; a move into a wall does nothing. The state is
    the agent's cell, one of 68. Each other maze has a walker that moves at random.

    An episode begins in the upper left corner. Every step that ends in the lower right corner, 16
    steps away, pays 1 / (H - 15), so V* = 1. An observation shows all mazes, each as 121 bits that
    are 1 for walls and for the walker. Which of the mazes is the agent's is drawn once.

    Parameters
    ----------
    n_distractors : int, default=8
        Number of other mazes.
    horizon : int, default=30
        Number of actions in an episode, H, at least 16.
    seed : int, default=0
        Seed of the agent's place among the mazes.

    Returns
    -------
    BlockMDP
        The problem.

    See Also
    --------
    noisy_chain : The other problem of the STEEL paper.

    Notes
    -----
    The paper has one endless trajectory without rewards, which begins in a random cell. Here
    episodes begin in a corner, since there must be something to find, and the other walkers in
    random cells. Nothing depends on the level.

    References
    ----------
    Alexander Levine, Peter Stone and Amy Zhang. Learning a Fast Mixing Exogenous Block MDP using a
    Single Trajectory. ICLR 2025.

    Examples
    --------
    >>> m = multi_maze(n_distractors=8)
    >>> m
    <MultiMaze: horizon 30, 68 states, 4 actions, <Mazes: 68 cells, 8 distractors>>
    >>> round(m.optimal_value(), 10), m.emission.dim
    (1.0, 1089)
    """
    D = check_integer("n_distractors", n_distractors)
    H = check_integer("horizon", horizon, DISTANCE)
    _, cells, moves = four_rooms()
    S, A = moves.shape
    check_size(H, S, A)
    start, goal = (int(np.flatnonzero(cells == r * SIZE + c)[0]) for r, c in (START, GOAL))
    P, rewards = np.zeros((S, A, S)), np.zeros((S, A, S))
    P[np.arange(S)[:, None], np.arange(A), moves] = 1.0
    rewards[:, :, goal] = 1 / (H - DISTANCE + 1)
    controlled = int(rng.integer(streams.problem(seed), 0, D + 1))
    emission = Mazes(D, controlled)
    return BlockMDP(np.eye(S)[start], P, rewards, emission=emission, name="MultiMaze", horizon=H)
