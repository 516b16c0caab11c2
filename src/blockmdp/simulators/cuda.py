"""Learning episodes of many runs at once on an NVIDIA GPU, one thread for each run.

The kernel is `blockmdp.loop.learn_from` around the functions of the learner, so nothing is
implemented twice. The arrays of a batch have the run as their last axis, so that neighbouring
threads read neighbouring numbers, and runs of the same problem are neighbours.
"""

from __future__ import annotations

import contextlib
import functools
import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import config as settings
from numba import cuda as cuda_of_numba
from numba import from_dtype
from numba.cuda.cudadrv import nvvm

from blockmdp import streams
from blockmdp.decoders import Decoder, FittedDecoder
from blockmdp.dynamics import Dynamics
from blockmdp.history import next_checkpoint
from blockmdp.loop import Episodes, learn_from
from blockmdp.oracles.fitting import ConstantPredictor
from blockmdp.oracles.scores import LinearScores, QuadraticScores, best_label
from blockmdp.rng import child
from blockmdp.simulators.base import LearnerRun
from blockmdp.simulators.block import BlockSimulator
from blockmdp.trajectories import Observations

__all__ = [
    "Layout",
    "Request",
    "Sight",
    "exact_arithmetic",
    "kernel_of",
    "learn_many",
    "problems_on_gpu",
    "shapes_of",
    "slots_of",
    "stacked",
]

cuda: Any = cuda_of_numba
on_gpu = cuda.jit(device=True)  # compiles a function that kernels call
# Of kernels: enough warps must fit into the registers of a processor to wait for memory together,
# and the linker must not fuse multiplications and additions again.
REAL = not getattr(settings, "ENABLE_CUDASIM", 0)
OPTIONS = {"max_registers": 128, "lto": False} if REAL else {}
CACHE = 228 * 1024  # bytes of a processor that its blocks share, at most
PATIENCE = 8  # coordinates after which all of an observation are drawn
WARP = 32  # threads that run in step
LOCAL, SHARED = 2**14, 3 * 2**14  # most bytes of a thread's tables, and of a block's problem
SHARE = 0.4  # of the free memory of the GPU, at most, holds the returns of a batch


class Request(NamedTuple):
    """Learning episodes that one run needs: a simulator, and arguments of its `learn`."""

    simulator: BlockSimulator
    run: LearnerRun
    decoder: Decoder | None
    n: int
    record: bool


class Sight(NamedTuple):
    """What a run sees: how its observations are drawn and decoded. Without use for latent states.

    G is 1, or H + 1 if each level has its own decoder.
    """

    root: Any  # key above all observations
    visits: Any  # (H + 1, S), number of visits so far
    constants: Any  # of the emission, see `blockmdp.emissions.Drawing`
    order: Any  # (G, labels), how labels are renamed
    W: Any  # (G, K, dim) linear or (G, K, p, dim) quadratic scores, see `blockmdp.oracles.scores`
    b: Any  # (G, K) or (G, K, p)
    c: Any  # (G, K), for quadratic scores
    turn: Any  # (G, dim), coordinates by the difference that they make to linear scores
    rest: Any  # (G, dim), the most that the coordinates after this one make


def learn_many(requests: Sequence[Request], *, lenient: bool = False) -> list[Observations | None]:
    """Run learning episodes of many runs, as if each simulator had done so alone.

    Parameters
    ----------
    requests : sequence of Request
        What to run. Each run may have its own problem, seed, learner and decoder.
    lenient : bool, default=False
        Run on the CPU what a GPU cannot do, instead of raising ValueError.

    Returns
    -------
    list of Observations or None
        What `Simulator.learn` returns, for each request.
    """
    groups: dict[Any, list[int]] = {}
    sights: dict[int, tuple[Sight, Any]] = {}
    seen: dict[int, Observations | None] = {}
    for i, each in enumerate(requests):
        try:
            sights[i] = _sight(each)
        except ValueError:
            if not lenient:
                raise
            seen[i] = each.simulator.learn(*each[1:])
        else:
            groups.setdefault(_kind(each, *sights[i]), []).append(i)
    before = {i: requests[i].simulator.visits.copy() for i in sights if requests[i].record}
    for members in groups.values():
        members.sort(key=lambda i: (id(requests[i].simulator.mdp), requests[i].simulator.seed))
        for part in _batches(members, requests):
            _learn([requests[i] for i in part], [sights[i][0] for i in part], sights[part[0]][1])
    seen |= {i: requests[i].simulator.seen_since(visits) for i, visits in before.items()}
    return [seen.get(i) for i in range(len(requests))]


def _batches(members: list[int], requests: Sequence[Request]) -> Iterator[list[int]]:
    """Split runs into batches whose returns fit into the memory of the GPU."""
    free = cuda.current_context().get_memory_info()[0]
    longest = max(requests[i].run.k + requests[i].n for i in members) or 1
    most = int(max(min(SHARE * free, 2.0**40) // (8 * longest), 1))
    for first in range(0, len(members), most):
        yield members[first : first + most]


def _learn(requests: Sequence[Request], sights: Sequence[Sight], see_by: Any) -> None:
    """Run the episodes of requests of the same kind."""
    runs, simulators = [each.run for each in requests], [each.simulator for each in requests]
    problems = {id(simulator.mdp): simulator.mdp.dynamics for simulator in simulators}
    place = {name: p for p, name in enumerate(problems)}
    tables, sight = (stacked(all_of) for all_of in ([run.tables for run in runs], sights))
    dynamics = problems_on_gpu(list(problems.values()))
    k = np.array([run.k for run in runs])
    stop = k + [each.n for each in requests]
    facts = (
        np.array([place[id(simulator.mdp)] for simulator in simulators]),
        np.array([simulator.world_key for simulator in simulators], np.uint64),
        np.array([run.key for run in runs], np.uint64),
        np.array([simulator.episodes for simulator in simulators]) - k,
    )
    slots, one_problem = slots_of(facts[0], len(problems), shapes_of(next(iter(problems.values()))))
    begin, there = k, [cuda.to_device(each) for each in (slots, *facts)]
    returns = cuda.device_array((int(stop.max()), len(runs)))
    A, own = runs[0].learner, runs[0].tables
    cls: Any = type(own)
    shapes = (shapes_of(own), shapes_of(sights[0]), shapes_of(simulators[0].mdp.dynamics))
    kernel = kernel_of(
        (A.act, A.update, A.plan), cls, Layout(*shapes, simulators[0].horizon, one_problem), see_by
    )
    while (k < stop).any():
        end = np.array([_next_stop(*each) for each in zip(simulators, k.tolist(), stop.tolist())])
        limits = [cuda.to_device(each) for each in (k, end)]
        with exact_arithmetic(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Grid size")  # a few runs are welcome, too
            kernel[slots.shape](tables, sight, dynamics, *there, *limits, returns)
        k = end
        _copy_back(tables, [run.tables for run in runs])
        for each, now in zip(requests, k.tolist()):
            each.simulator.ledger["learn"] += now - each.run.k
            each.run.k = now
            if each.simulator.is_due(each.run):
                each.simulator.keep(each.run, each.decoder)
    paid = np.ascontiguousarray(returns.copy_to_host().T)
    for run, first, row in zip(runs, begin, paid):
        run.returns[first : run.k] = row[first : run.k]
    if see_by is not None:
        for simulator, visits in zip(simulators, np.moveaxis(sight.visits.copy_to_host(), -1, 0)):
            simulator.visits[...] = visits


def problems_on_gpu(problems: Sequence[Dynamics]) -> Dynamics:
    """Return the tables of problems on the GPU, one after the other."""
    parts = [np.zeros(1) if each[0] is None else np.stack(each) for each in zip(*problems)]
    return Dynamics(*map(cuda.to_device, parts))


def slots_of(which: Any, problems: int, shapes: Shapes) -> tuple[Any, bool]:
    """Return the run of each thread of each block, -1 for none, and whether all runs of a block
    have one problem.
    """
    one_problem = _size(shapes) <= SHARED and len(which) >= 16 * problems
    groups = [np.arange(len(which))]
    if one_problem:
        groups = [np.flatnonzero(which == p) for p in range(problems)]
    device = getattr(cuda.current_context(), "device", None)  # None in the simulator
    processors = getattr(device, "MULTIPROCESSOR_COUNT", 1)

    def load(n: int) -> int:  # threads of the processor with the most, and copies of the problem
        blocks = sum(-(-len(each) // n) for each in groups)
        return -(-blocks // processors) * (n + WARP)

    n = min(range(WARP, 8 * WARP + 1, WARP), key=load)
    padded = [np.append(each, np.full(-len(each) % n, -1)) for each in groups]
    return np.concatenate(padded).reshape(-1, n), one_problem


def _next_stop(simulator: BlockSimulator, k: int, stop: int) -> int:
    """Return the end of the run, or the checkpoint before it at which the policy is kept."""
    if simulator.snapshots is None or k >= stop:
        return stop
    return min(stop, next_checkpoint(k, simulator.digits))


def stacked(tuples: Sequence[Any]) -> Any:
    """Return a tuple of arrays on the GPU, with the run as their last axis."""
    parts = [cuda.to_device(np.stack(each, axis=-1)) for each in zip(*tuples)]
    return type(tuples[0])(*parts) if hasattr(tuples[0], "_fields") else tuple(parts)


def _copy_back(batch: Any, tuples: Sequence[Any]) -> None:
    """Copy arrays from the GPU into those that `stacked` was given."""
    for j, part in enumerate(batch):
        if isinstance(tuples[0][j], np.ndarray):
            for own, new in zip(tuples, np.moveaxis(part.copy_to_host(), -1, 0)):
                own[j][...] = new


# --- what a run sees ------------------------------------------------------------------------------
def _sight(request: Request) -> tuple[Sight, Any]:
    """Return what a run sees, and the arguments of `_see`: None for latent states."""
    simulator: BlockSimulator = request.simulator
    decoder: Any = request.decoder
    simulator.use_observations(decoder is not None)
    if decoder is None:
        return Sight(np.uint64(0), *np.zeros((8, 1))), None
    simulator.grow(request.run, decoder.n_labels)
    emission = simulator.mdp.emission
    drawing = None if emission.per_episode else emission.drawing()
    if drawing is None:
        raise ValueError(
            f"engine='cuda' cannot draw the observations of {emission!r}: use engine='compiled'"
        )
    scores = _scores(decoder)
    K = max(len(each.b) for each in scores)
    d = next((each.W.shape[1:-1] for each in scores), ())
    dim = len(drawing.largest)
    W = np.zeros((len(scores), K, *d, dim))
    b = np.full(W.shape[:-1], 0.0 if d else -np.inf)
    c = np.full(W.shape[:2], -np.inf)
    turn, rest = np.zeros((len(scores), dim), np.int64), np.zeros((len(scores), dim))
    for g, each in enumerate(scores):
        n = len(each.b)
        W[g, :n] = each.W if drawing.matrix is None else each.W @ drawing.matrix
        b[g, :n], c[g, :n] = each.b, getattr(each, "c", 0.0)
        if not d:
            turn[g], rest[g] = _turns(W[g, :n], each.b, drawing.largest)
    root = streams.noise_root(simulator.seed)
    constants = np.array(drawing.constants)
    sight = Sight(root, simulator.visits, constants, decoder.order, W, b, c, turn, rest)
    return sight, (drawing.value, dim, K, bool(d))


def _turns(W: Any, b: Any, largest: Any) -> tuple[Any, Any]:
    """Return `turn` and `rest` of a decoder, see `Sight`."""
    W, b = W[b > -np.inf], b[b > -np.inf]
    most = (W.max(axis=0) - W.min(axis=0)) * largest  # by which two scores may come closer
    turn = np.argsort(-most, kind="stable")
    rounding = 1e-14 * len(largest) * (np.abs(W).max(axis=0) @ largest + np.abs(b).max())
    return turn, np.append(np.cumsum(most[turn][:0:-1])[::-1], 0.0) + rounding


def _scores(decoder: Any) -> list[Any]:
    """Return the scores of a decoder: one for all levels, or one for each."""
    fitted = decoder.fitted if isinstance(decoder, FittedDecoder) else ()
    scores: list[Any] = [each.predictor for each in fitted]
    shown = [each for each in scores if not isinstance(each, ConstantPredictor)]
    kinds = {type(each) for each in shown} or {LinearScores}
    if not scores or kinds not in ({LinearScores}, {QuadraticScores}):
        raise ValueError(
            "engine='cuda' needs decoders with linear or quadratic scores, such as k-means and "
            f"mixtures, got {decoder!r}: use engine='compiled'"
        )
    one: Any = LinearScores(np.zeros((1, 1)), np.zeros(1))
    if kinds == {QuadraticScores}:
        shape = (1, *shown[0].W.shape[1:])
        one = QuadraticScores(np.zeros(shape), np.zeros(shape[:2]), np.zeros(1))
    return [one if isinstance(each, ConstantPredictor) else each for each in scores]


def _kind(request: Request, sight: Sight, see_by: Any) -> tuple[Any, ...]:
    """Return what all runs of a kernel have in common."""
    A, tables = request.run.learner, request.run.tables
    shapes = shapes_of((*tables, *sight, *request.simulator.mdp.dynamics))
    return A.act, A.update, A.plan, type(tables), shapes, request.simulator.horizon, see_by


# --- the kernel -----------------------------------------------------------------------------------
KERNEL = """
def kernel(tables, sight, dynamics, slots, which, world, agent, offset, k, stop, returns):
    i = slots[cuda.blockIdx.x, cuda.threadIdx.x]
    p = which[{run}]
{take_problem}
    if i >= 0:
{take_own}
        learn_from(
            see, for_ever, act, update, plan, {tables}, {dynamics}, {sight},
            Episodes(world[i], agent[i], offset[i]), k[i], returns[: stop[i], i],
        )
{give_back}
"""


Shapes = tuple[tuple[tuple[int, ...], str] | None, ...]


class Layout(NamedTuple):
    """What the source of a kernel depends on; the shape and the type of each array."""

    tables: Shapes
    sight: Shapes
    dynamics: Shapes
    horizon: int
    one_problem: bool  # whether all runs of a block have the same problem


def shapes_of(parts: Any) -> Shapes:
    """Return the shape and the type of each array; None for what a problem does not have."""
    return tuple(
        None if part is None else (np.shape(part), np.asarray(part).dtype.str) for part in parts
    )


def _size(shapes: Shapes) -> int:
    """Return the number of bytes of arrays."""
    there = [each for each in shapes if each is not None]
    return sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in there)


@functools.cache
def kernel_of(functions: tuple[Any, ...], cls: Any, layout: Layout, see_by: Any) -> Any:
    """Return the kernel of a learner's functions with tables of class `cls`.

    A thread copies its tables to local memory, which the first cache holds without writing it
    through, and a block copies its problem to shared memory: this doubles the speed. What is too
    large stays where it is. All shapes must be constants for this, so the source names them.
    """
    scope: dict[str, Any] = dict(zip(("act", "update", "plan"), functions))
    scope |= {"see": _see(see_by), "for_ever": _for_ever, "learn_from": learn_from, "cuda": cuda}
    scope |= {"Tables": cls, "Sight": Sight, "Dynamics": Dynamics, "Episodes": Episodes}
    take_problem, take_own, give_back = [], [], []
    own: dict[str, list[str]] = {"tables": [], "sight": [], "dynamics": []}
    small = _size(layout.tables) + _size(layout.sight) <= LOCAL
    for name, places in own.items():
        for n, each in enumerate(getattr(layout, name)):
            if each is None:
                places.append("None")
                continue
            shape, kind = each
            if name == "dynamics" and not shape:
                places.append(str(layout.horizon))
                continue
            there, here = f"{name}[{n}]", f"{name}_{n}"
            scope[f"{here}_type"] = from_dtype(np.dtype(kind))
            at = ", ".join(f"x{axis}" for axis in range(len(shape)))
            if name == "dynamics" and layout.one_problem:
                take_problem.append(f"{here} = cuda.shared.array({shape}, {here}_type)")
                take_problem += _loops(shape, f"{here}[{at}] = {there}[p, {at}]", shared=True)
                places.append(here)
            elif name == "dynamics":
                places.append(f"{there}[p]")
            elif small and shape and 0 not in shape:
                take_own.append(f"{here} = cuda.local.array({shape}, {here}_type)")
                take_own += _loops(shape, f"{here}[{at}] = {there}[{at}, i]")
                give_back += _loops(shape, f"{there}[{at}, i] = {here}[{at}]")
                places.append(here)
            else:
                places.append(f"{there}[{':, ' * len(shape)}i]")
    if layout.one_problem:
        take_problem.append("cuda.syncthreads()")
    plain = not hasattr(cls, "_fields")
    source = KERNEL.format(
        run="slots[cuda.blockIdx.x, 0]" if layout.one_problem else "max(i, 0)",
        take_problem=textwrap.indent("\n".join(take_problem), " " * 4),
        take_own=textwrap.indent("\n".join(take_own), " " * 8),
        give_back=textwrap.indent("\n".join(give_back), " " * 8),
        tables=f"{'' if plain else 'Tables'}({', '.join(own['tables'])},)",
        dynamics=f"Dynamics({', '.join(own['dynamics'])})",
        sight=f"Sight({', '.join(own['sight'])})",
    )
    exec(source, scope)
    options: dict[str, Any] = dict(OPTIONS)
    if REAL and layout.one_problem and see_by is None:  # waits for tables: they get all other cache
        share = math.ceil(100 * (_size(layout.dynamics) + 1024) / CACHE)
        options["shared_memory_carveout"] = share
    return cuda.jit(scope["kernel"], **options)


def _loops(shape: tuple[int, ...], body: str, *, shared: bool = False) -> list[str]:
    """Return lines that run `body` for all indices x0, x1, ... of a shape, or a thread's share."""
    ranges = [str(n) for n in shape]
    if shared:
        ranges[0] = f"cuda.threadIdx.x, {shape[0]}, cuda.blockDim.x"
    lines = [f"{' ' * 4 * axis}for x{axis} in range({n}):" for axis, n in enumerate(ranges)]
    return [*lines, " " * 4 * len(shape) + body]


def _see(see_by: Any) -> Any:
    """Return the function `see` of `learn_from`."""
    if see_by is None:
        return _latent
    value, dim, K, quadratic = see_by
    decode = _most_probable if quadratic else best_label

    @on_gpu
    def see(sight, h, s):
        n = sight.visits[h, s]
        sight.visits[h, s] = n + 1
        cell = np.uint64(child(np.uint64(child(sight.root, h)), s))
        key = np.uint64(child(cell, n))
        g = h if len(sight.order) > 1 else 0
        label = -1 if quadratic else leader(sight, g, h, s, key)
        if label < 0:
            y = cuda.local.array(dim, np.float64)
            for j in range(dim):
                y[j] = value(sight.constants, h, s, key, j)
            label = decode(sight, g, y)
        return sight.order[g, label]

    @on_gpu
    def leader(sight, g, h, s, key):
        """Return the label if few coordinates decide it, whatever the others are; else -1."""
        scores = cuda.local.array(K, np.float64)
        for k in range(K):
            scores[k] = sight.b[g, k]
        for m in range(min(dim, PATIENCE)):
            j = sight.turn[g, m]
            y = value(sight.constants, h, s, key, j)
            best, second = -np.inf, -np.inf
            label = 0
            for k in range(K):
                scores[k] += sight.W[g, k, j] * y
                if scores[k] > best:
                    second = best
                    best = scores[k]
                    label = k
                elif scores[k] > second:
                    second = scores[k]
            if best - second > sight.rest[g, m]:
                return label
        return -1

    return see


@on_gpu
def _latent(sight, h, s):
    return s


@on_gpu
def _for_ever(sight, n):
    return n


@on_gpu
def _most_probable(sight, g, y):
    """Return the label with the largest quadratic score; see `oracles.scores.quadratic_labels`."""
    K, p = sight.b.shape[1:]
    best = -np.inf
    label = 0
    for k in range(K):
        score = sight.c[g, k]
        part = 0.0
        for m in range(p):
            z = 0.0
            for j in range(len(y)):
                z += sight.W[g, k, m, j] * y[j]
            z += sight.b[g, k, m]
            part += 0.5 * z * z
            if m == 3 or m == p - 1:  # the same order of sums
                score -= part
                part = 0.0
        if score > best:
            best = score
            label = k
    return label


@contextlib.contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Compile without fused multiply-adds, which would round differently than a CPU does.

    Tables of constants, which random numbers are looked up in, go to global memory: threads that
    read different places of constant memory would have to wait for each other.
    """
    kept: dict[str, Any] = {}
    if callable(getattr(nvvm, "compile_ir", None)):  # not in the simulator
        changed = {
            "compile_ir": functools.partial(nvvm.compile_ir, fma=False),
            "ADDRSPACE_CONSTANT": nvvm.ADDRSPACE_GLOBAL,
        }
        kept = {name: getattr(nvvm, name) for name in changed}
        vars(nvvm).update(changed)
    try:
        yield
    finally:
        vars(nvvm).update(kept)
