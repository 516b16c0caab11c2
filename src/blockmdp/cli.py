"""The command `blockmdp`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NoReturn

from blockmdp import __version__

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or with those it was called with; its exit status."""
    args = _parser().parse_args(arguments)
    try:
        status: int = args.command(args)
        return status
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenProcessPool:
        return _complain("a worker process died; was it out of memory? Try fewer --jobs", 1)
    except OSError as error:
        return _complain(str(error), 1)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="blockmdp", description="Exploration with rich observations.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"blockmdp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    reproduce = commands.add_parser(
        "reproduce",
        help="run the paper's experiments and draw its figures",
        description="Run the experiments of Feng et al. 2020 and draw their figures: so far, "
        "OracleQ and QLearning in Figure 1 (LockBernoulli).",
        allow_abbrev=False,
    )
    reproduce.add_argument(
        "--out",
        type=_directory,
        default="results",
        metavar="DIR",
        help="where to write figures and curves (results)",
    )
    seeds = reproduce.add_mutually_exclusive_group()
    seeds.add_argument(
        "--seeds", type=_positive, default=50, metavar="N", help="runs of each setting (50)"
    )
    seeds.add_argument(
        "--quick", dest="seeds", action="store_const", const=5, help="the same as --seeds 5"
    )
    reproduce.add_argument(
        "--episodes", type=_positive, default=20_000, metavar="N", help="of each run (20000)"
    )
    reproduce.add_argument(
        "--jobs", type=_positive, default=_cores(), metavar="N", help="processes (all cores)"
    )
    reproduce.set_defaults(command=_reproduce)
    return parser


def _reproduce(args: argparse.Namespace) -> int:
    from blockmdp.experiments.reproduce import reproduce  # here, since matplotlib is slow to import

    print(reproduce(args.out, seeds=args.seeds, episodes=args.episodes, jobs=args.jobs))
    print(f"\nFigure and curves: {args.out / 'figure1-skyline'}.{{png,pdf,svg,csv}}")
    return 0


def _positive(text: str) -> int:
    try:
        n = int(text)
    except ValueError:
        n = 0
    if n < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more; got {text!r}")
    return n


def _directory(text: str) -> Path:
    """A directory that can be written to, made if need be."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise argparse.ArgumentTypeError(f"cannot write to {text!r}: {reason}") from None
    return path


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _complain(message: str, status: int) -> int:
    print(f"blockmdp: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
