"""The command `blockmdp`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from blockmdp import __version__

if TYPE_CHECKING:
    from blockmdp.experiments.results import Results
    from blockmdp.experiments.study import Study

__all__ = ["main"]

FORMATS = ("png", "pdf", "svg")
PARTS = ("fig1", "fig2", "fig3", "untuned", "horizon")  # of `reproduce`


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or with those it was called with; its exit status.

    0: all is well; 1: something failed; 2: the command or the study file is wrong; 130 or 143: it
    was interrupted.
    """
    args = _parser().parse_args(arguments)
    args.line = shlex.join(["blockmdp", *(sys.argv[1:] if arguments is None else arguments)])
    from blockmdp.experiments.driver import Interrupted
    from blockmdp.experiments.pool import ExecutorError
    from blockmdp.experiments.store import StoreError
    from blockmdp.experiments.study import StudyError

    try:
        status: int = args.command(args)
        sys.stdout.flush()
        return status
    except Interrupted as stop:
        kept = "what was finished is kept; the same command goes on from there"
        return _complain(f"interrupted: {kept}", 128 + stop.signum)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except StudyError as error:
        return _complain(" ".join(str(error).split()), 2)
    except BrokenPipeError:  # of `| head`, say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ExecutorError, StoreError, OSError) as error:
        return _complain(str(error), 1)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="blockmdp", description="Exploration with rich observations.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"blockmdp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, function: Any, help: str, description: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=description, allow_abbrev=False)
        sub.set_defaults(command=function)
        return sub

    run = command(
        *("run", _run, "do the runs of a study file that are not done yet"),
        "Do the runs of a study file that are not done yet, and keep each as soon as it is "
        "finished. Given again, the command goes on where it was interrupted.",
    )
    _study_options(run)
    run.add_argument(
        "--dry-run", action="store_true", help="print the runs and how many are done, run none"
    )

    tune = command(
        *("tune", _tune, "find each agent's best hyperparameters, then run those"),
        "Run a study's grid on tuning seeds, choose the best point for each agent in each panel "
        "(the most reward per trajectory), write the study with these points to OUT/tuned.toml, "
        "and run it on the study's own seeds.",
    )
    _study_options(tune)
    tune.add_argument(
        "--tuning-seeds", type=_positive, default=10, metavar="N", help="how many (10)"
    )

    status = command(
        *("status", _status, "how far a study is"),
        "Tell how many runs are done, running and failed, and how long the rest will take.",
    )
    _results_options(status)

    plot = command(
        *("plot", _plot, "draw learning curves"),
        "Draw a study's learning curves: mean and one standard deviation over seeds against the "
        "number of training trajectories of all kinds. Or, with --against, how the trajectories "
        "until solved grow with a parameter: their median, and a bar between the quartiles.",
    )
    _results_options(plot)
    plot.add_argument(
        "--y",
        choices=("average", "sliding"),
        default="average",
        help="mean of all returns so far, as in the paper, or of the last solved.window (average)",
    )
    plot.add_argument(
        "--against", metavar="KEY", help="a parameter of the problem, such as horizon"
    )
    plot.add_argument(
        "--to", type=Path, metavar="FILE", help="a .png, .pdf or .svg file (all three, in DIR)"
    )

    table = command(
        *("table", _table, "tell what each agent reached"),
        "For each problem and agent: the share of seeds solved with Wilson's 95 % interval; the "
        "median of the trajectories until solved, where runs that were not solved count as longer "
        "than all others ('more': the median is one of them); the mean return at the end with a "
        "bootstrap 95 % interval; its interquartile mean (IQM).",
    )
    _results_options(table)
    table.add_argument("--format", choices=("text", "markdown", "csv"), default="text")

    export = command(
        *("export", _export, "write all runs to a .csv or .parquet file"),
        "Write one row a run: settings, seed, what came of it, ledger, versions, traceback.",
    )
    _results_options(export)
    export.add_argument("file", type=Path, metavar="FILE", help="ends in .csv or .parquet")

    command(
        *("list", _list, "what a study file can name"),
        "List problems, agents, oracles and learners, with their parameters.",
    )

    reproduce = command(
        *("reproduce", _reproduce, "run the paper's experiments and tell whether they hold"),
        "Run the experiments of Feng et al. 2020, Section 5 (Figures 1 to 3), an agent with "
        "nothing tuned on the same problems, and longer horizons; draw the figures, measure "
        "every claim, and write a report. Given again, the command goes on where it was "
        "interrupted.",
    )
    reproduce.add_argument(
        "--out",
        type=_directory,
        default="results/paper",
        metavar="DIR",
        help="where to keep runs and write figures and the report (results/paper)",
    )
    reproduce.add_argument(
        "--only",
        type=_parts,
        default=(),
        metavar="PART",
        help="some of fig1, fig2, fig3, untuned, horizon, with commas between them (all)",
    )
    seeds = reproduce.add_mutually_exclusive_group()
    seeds.add_argument("--seeds", type=_positive, metavar="N", help="runs of each setting (50)")
    seeds.add_argument(
        "--quick", dest="seeds", action="store_const", const=5, help="the same as --seeds 5"
    )
    _run_options(reproduce)
    return parser


def _study_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("study", metavar="STUDY", help="a study file, such as studies/my-study.toml")
    add("--out", type=Path, metavar="DIR", help="where the runs are kept (results/STUDY)")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="change a value of the study: episodes=5000, problem.horizon=[5], agent.URL.batch=100",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only these runs: agent=URL, horizon=5,10, seed=3; several times: all must hold",
    )
    _run_options(parser)


def _run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--jobs", type=_positive, metavar="N", help="processes on this machine (all cores)")
    add(
        "--cluster",
        metavar="ADDRESS",
        help="use a Dask cluster: its scheduler's address (tcp://host:8786) or scheduler file",
    )
    add("--timeout", type=_seconds, metavar="S", help="a run that takes longer fails (none)")
    add("--memory", type=_seconds, metavar="GIB", help="a run that allocates more fails (none)")
    add("--retry-failed", action="store_true", help="do runs again that failed before")
    add("--quiet", action="store_true", help="show no progress")


def _results_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="such as results/my-study")
    parser.add_argument(
        "--study", metavar="NAME", help="which, if DIR holds several (the one run last)"
    )


def _load(args: argparse.Namespace) -> Study:
    from blockmdp.experiments.study import Study

    return Study.load(args.study, args.changes).only(args.only)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    names = ("jobs", "cluster", "timeout", "memory", "retry_failed", "quiet")
    return {name: getattr(args, name) for name in names}


def _run(args: argparse.Namespace) -> int:
    study = _load(args)
    out = args.out or Path("results") / study.name
    if args.dry_run:
        return _dry_run(study, out)
    return _conclude(study.run(out, **_options(args)), args.quiet)


def _dry_run(study: Study, out: Path) -> int:
    from blockmdp.experiments.store import FILE, Store

    done: set[str] = set()
    if (out / FILE).is_file():
        with Store(out) as store:
            done = store.done()
    runs = list(study.runs())
    for run in runs:
        print(f"{run}{'  (done)' if run.key in done else ''}")
    there = sum(run.key in done for run in runs)
    print(f"{len(runs)} runs, {there} of them done", file=sys.stderr)
    return 0


def _conclude(results: Results, quiet: bool) -> int:
    if not quiet:
        where = results.directory
        print(f"{len(results.done)} runs of {results.study.name} are in {where}. "
              f"See: blockmdp table {where}; blockmdp plot {where}")  # fmt: skip
    if results.failed:
        return _complain(
            f"{len(results.failed)} runs failed (blockmdp status {results.directory} tells why)", 1
        )
    return 0


def _tune(args: argparse.Namespace) -> int:
    from blockmdp.experiments.tuning import tune

    study = _load(args)
    out = args.out or Path("results") / study.name
    tuned, path = tune(study, out, seeds=args.tuning_seeds, how=args.line, **_options(args))
    if not args.quiet:
        print(f"the best settings are in {path}; now they are run on fresh seeds", file=sys.stderr)
    results = tuned.run(out, **_options(args))
    print(results.table())
    return _conclude(results, args.quiet)


def _results(args: argparse.Namespace) -> Results:
    from blockmdp.experiments.results import Results

    return Results(args.directory, args.study, tell=lambda line: print(line, file=sys.stderr))


def _status(args: argparse.Namespace) -> int:
    print(_results(args).status())
    return 0


def _plot(args: argparse.Namespace) -> int:
    from blockmdp.plots.curves import save

    results = _results(args)
    kind = args.y if args.against is None else f"against-{args.against}"
    to: Path = args.to or results.directory / f"{results.study.name}-{kind}"
    formats: Sequence[str] = FORMATS
    if args.to is not None:
        if to.suffix[1:] not in FORMATS:
            return _complain(f"--to {to}: must end in .png, .pdf or .svg", 2)
        formats, to = (to.suffix[1:],), to.with_suffix("")
    for path in save(results.plot(args.y, against=args.against), to, formats):
        print(path)
    return 0


def _table(args: argparse.Namespace) -> int:
    print(_results(args).table(args.format))
    return 0


def _export(args: argparse.Namespace) -> int:
    if args.file.suffix not in (".csv", ".parquet"):
        return _complain(f"{args.file}: must end in .csv or .parquet", 2)
    results = _results(args)
    results.export(args.file)
    print(f"{len(results.rows)} runs to {args.file}")
    return 0


def _list(args: argparse.Namespace) -> int:
    from blockmdp.experiments.catalogue import describe

    print(describe())
    return 0


def _reproduce(args: argparse.Namespace) -> int:
    from blockmdp.paper.reproduce import reproduce  # here, since matplotlib is slow to import

    text, whole = reproduce(args.out, seeds=args.seeds, only=args.only, **_options(args))
    if not args.quiet:
        print(text)
    return 0 if whole else _complain(f"some runs failed: see blockmdp status {args.out}", 1)


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if part not in PARTS:
            known = ", ".join(PARTS)
            raise argparse.ArgumentTypeError(f"there is no {part!r}, only {known}")
    return parts


def _positive(text: str) -> int:
    try:
        n = int(text)
    except ValueError:
        n = 0
    if n < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more; got {text!r}")
    return n


def _seconds(text: str) -> float:
    try:
        x = float(text)
    except ValueError:
        x = 0.0
    if not 0 < x < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number above 0; got {text!r}")
    return x


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


def _complain(message: str, status: int) -> int:
    print(f"blockmdp: {message}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
