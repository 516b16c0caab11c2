"""Fit many agents at once: on all cores of the CPU, or together on a GPU."""

from __future__ import annotations

import copy
import ctypes
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from blockmdp.agents.base import Agent
from blockmdp.agents.processes import call_each
from blockmdp.agents.tabular import Tabular
from blockmdp.checks import check_integer, cores, keep_warnings, warn
from blockmdp.envs.gym import mdp_of
from blockmdp.mdp import BlockMDP
from blockmdp.oracles.fitting import one_thread
from blockmdp.simulators import BlockSimulator

__all__ = ["fit_many", "why_no_gpu"]

A = TypeVar("A", bound=Agent)
T = TypeVar("T")
Together = Literal["auto", "compiled", "cuda"]
NAME = "fit {} of fit_many, counted from 0"


def fit_many(
    agent: A | Sequence[A],
    problems: BlockMDP | Sequence[BlockMDP],
    episodes: int,
    seeds: int | Sequence[int],
    *,
    engine: Together = "auto",
    record: bool | Literal["few"] = False,
) -> list[A]:
    """Fit many agents. The results are those of fitting each alone, by `Agent.fit`.

    Give one agent, problem or seed for all fits, or one for each.

    Parameters
    ----------
    agent : Agent or sequence of Agent
        Agents to fit; they stay as they are, and copies of them are fitted.
    problems : BlockMDP or sequence of BlockMDP
        Problems to learn.
    episodes : int
        Number of learning episodes of each fit.
    seeds : int or sequence of int
        Seeds of the fits.
    engine : {"auto", "compiled", "cuda"}, default="auto"
        "compiled" uses all cores of the CPU: threads for `Tabular` with a compiled learner, and
        copies of this process for agents that also run Python (on Linux, if they can be pickled and
        no other thread fits; otherwise they take turns). What an oracle or a learner of your own
        changes elsewhere than in itself, such as a global variable, stays in the copy. "cuda" runs
        the learning episodes of all fits in one kernel on an NVIDIA GPU; oracles are fitted on the
        CPU. It needs the extra ``blockmdp[cuda]``, and an agent whose decoder does not change in
        each episode (`Tabular` on latent states, `URL`, `PCID`). "auto" takes the GPU if it can.
    record : bool or "few", default=False
        Keep the greedy policy at checkpoints, as in `Agent.fit`.

    Returns
    -------
    list of Agent
        The fitted agents.

    Examples
    --------
    >>> import blockmdp as bm
    >>> m = bm.lock_bernoulli(horizon=5)
    >>> fits = bm.fit_many(bm.Tabular(bm.UCBVI()), m, 500, seeds=range(4), engine="compiled")
    >>> [fit.value() for fit in fits]
    [0.5, 0.5, 0.5, 0.5]
    """
    if engine not in ("auto", "compiled", "cuda"):
        raise ValueError(f"engine must be 'auto', 'compiled' or 'cuda', got {engine!r}")
    episodes = check_integer("episodes", episodes)
    agents, mdps, numbers = _aligned(agent, problems, seeds)
    agents = [copy.copy(each) for each in agents]
    why = why_no_gpu() if engine != "compiled" else "engine='compiled'"
    why = why or next(filter(None, map(_why_alone, agents)), "")
    if why and engine == "cuda":
        raise ValueError(f"engine='cuda' cannot be used: {why}")
    messages: list[list[str]] = [[] for _ in agents]  # warnings of each fit
    try:
        if why:
            return _fit_each(agents, mdps, numbers, messages, episodes, record)
        simulators = [
            one._simulator(mdp, seed, "compiled", None, record)
            for one, mdp, seed in zip(agents, mdps, numbers)
        ]
        _fit_together(agents, simulators, messages, episodes, record is True, engine == "auto")
        return agents
    finally:
        for i, kept in enumerate(messages):
            for message in kept:
                warn(f"{NAME.format(i)}: {message}")


def _fit_each(
    agents: Sequence[A],
    mdps: Sequence[BlockMDP],
    seeds: Sequence[int],
    messages: Sequence[list[str]],
    episodes: int,
    record: bool | Literal["few"],
) -> list[A]:
    """Fit each agent by itself, on all cores."""
    fitted: dict[int, A] = {}

    def fit(i: int) -> A:
        with _in_fit(i, messages):
            return agents[i].fit(mdps[i], episodes, seeds[i], engine="compiled", record=record)

    def keep(i: int, told: tuple[A, list[str]]) -> None:
        fitted[i], messages[i][:] = told

    numbers = range(len(agents))
    others = [i for i in numbers if not _is_compiled(agents[i])]
    stay = [i for i in others if not _can_be_pickled(agents[i])]
    call_each(lambda i: (fit(i), messages[i]), others, stay, mdps, keep)
    compiled = [i for i in numbers if i not in fitted]
    fitted |= zip(compiled, _in_threads(fit, compiled))
    return [fitted[i] for i in numbers]


@contextmanager
def _in_fit(i: int, messages: Sequence[list[str]]) -> Iterator[None]:
    """Keep the warnings of fit i, and name it in errors."""
    try:
        with keep_warnings(messages[i]):
            yield
    except Exception as error:
        error.add_note(f"this happened in {NAME.format(i)}")
        raise


def _in_threads(fit: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
    """Return the results of compiled fits."""
    running: set[int] = set()  # threads

    def run(i: int) -> T:
        thread = threading.get_ident()
        running.add(thread)
        try:
            return fit(i)
        finally:
            running.discard(thread)

    def stop() -> None:
        for thread in list(running):  # at the next line of Python that it runs
            error = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)

    with _threads() as pool:
        return _results({i: pool.submit(run, i) for i in numbers}, stop)


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """Make a thread for each core."""
    # once for all threads: each of these contexts changes what other threads see
    with one_thread(), warnings.catch_warnings(), ThreadPoolExecutor(cores()) as pool:
        yield pool


def _results(fits: Mapping[int, Future[T]], stop: Callable[[], None] = lambda: None) -> list[T]:
    """Return the results of fits. If one fails, or Ctrl-C comes, the others are not begun, and
    `stop` ends those that run.
    """
    try:
        wait(fits.values(), return_when=FIRST_EXCEPTION)
        for fit in fits.values():
            if fit.done() and (error := fit.exception()) is not None:
                raise error
        return [fit.result() for fit in fits.values()]
    except BaseException:
        for fit in fits.values():
            fit.cancel()
        stop()
        raise


def _aligned(agent: Any, problems: Any, seeds: Any) -> tuple[list[Any], ...]:
    """Return agents, problems and seeds as lists of the same length."""
    agents = list(agent) if hasattr(agent, "__iter__") else [agent]
    single = not hasattr(problems, "__iter__") or isinstance(problems, str)
    mdps: list[Any] = [problems] if single else list(problems)
    mdps = [each if isinstance(each, BlockMDP) else mdp_of(each) for each in mdps]
    is_one = not hasattr(seeds, "__iter__") or getattr(seeds, "ndim", 1) == 0
    numbers = [seeds] if is_one else list(seeds)
    if not all(isinstance(each, Agent) for each in agents) or None in mdps:
        raise ValueError("fit_many needs agents of blockmdp, and a BlockMDP for each of them")
    lengths = {len(each) for each in (agents, mdps, numbers)}
    n = 0 if lengths <= {0, 1} and 0 in lengths else max(lengths)
    for name, each in (("agent", agents), ("problems", mdps), ("seeds", numbers)):
        if len(each) not in (1, n):
            raise ValueError(f"fit_many: {name} has {len(each)} entries, but another list has {n}")
    return tuple(each * n if len(each) == 1 else each for each in (agents, mdps, numbers))


def why_no_gpu() -> str:
    """Say why there is no GPU to compute on; nothing if there is one."""
    try:
        from numba import cuda

        found = cuda.is_available()  # type: ignore[no-untyped-call,unused-ignore]
    except Exception as error:  # a driver and a package that do not fit together
        return f"numba.cuda does not work here ({error})"
    return "" if found else "no NVIDIA GPU was found, or the extra blockmdp[cuda] is not installed"


def _learns_in_python(agent: Agent) -> bool:
    """Whether an agent does something after each episode, so that there is no compiled loop."""
    return type(agent)._steps is Agent._steps


def _is_compiled(agent: Agent) -> bool:
    """Whether a fit is one compiled loop, so that threads run it at the same time."""
    return type(agent) is Tabular and (agent.learner is None or agent.learner.is_compiled())


def _can_be_pickled(agent: Agent) -> bool:
    """Whether an agent that was fitted in another process can be sent back."""
    try:
        pickle.dumps(agent)
    except Exception:  # whatever its parts raise
        return False
    return True


def _why_alone(agent: Agent) -> str:
    """Say why an agent cannot learn together with others; nothing if it can."""
    if _learns_in_python(agent):
        return f"{type(agent).__name__} learns its decoder in each episode"
    return agent._why_not_more()


def _fit_together(
    agents: Sequence[Agent],
    simulators: Sequence[BlockSimulator],
    messages: Sequence[list[str]],
    episodes: int,
    record: bool,
    lenient: bool,
) -> None:
    """Fit agents in rounds: each says what it needs next, and all of it runs in one kernel.

    What they do before they say it, such as fitting an oracle, runs on all cores.
    """
    from blockmdp.simulators.cuda import Request, learn_many  # here, because numba.cuda is slow

    states = []
    for i, (one, simulator) in enumerate(zip(agents, simulators)):
        with _in_fit(i, messages):
            states.append(one._begin(simulator, episodes, record))
    steps = [
        one._steps(each, state, episodes) for one, each, state in zip(agents, simulators, states)
    ]
    seen: dict[int, Any] = dict.fromkeys(range(len(agents)))

    def advance(i: int) -> Request | None:
        try:
            with _in_fit(i, messages):
                return Request(simulators[i], *steps[i].send(seen[i]))
        except StopIteration:
            return None

    with _threads() as pool:
        while seen:
            requests = _results({i: pool.submit(advance, i) for i in seen})
            asked = {i: each for i, each in zip(seen, requests) if each is not None}
            seen = dict(zip(asked, learn_many(list(asked.values()), lenient=lenient)))
    for i, (one, simulator, state) in enumerate(zip(agents, simulators, states)):
        with _in_fit(i, messages):
            one._ended(simulator, state)
            one._fitted_by(simulator)
