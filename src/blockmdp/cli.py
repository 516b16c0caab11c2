"""The command `blockmdp`."""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from blockmdp import __version__
from blockmdp.checks import is_terminal
from blockmdp.completion import SHELLS, completion

# The functions below import what they need, so that `--help` does not take seconds.
if TYPE_CHECKING:
    from blockmdp.experiments import Results, Study

__all__ = ["main"]

MAX_LISTED = 10_000  # runs that --dry-run lists, and lines of a table in a terminal
FORMATS = ("png", "pdf", "svg")
KINDS = ("problems", "agents", "oracles", "learners")  # of `list`
PARTS = ("fig1", "fig2", "fig3", "untuned", "defaults", "skyline", "horizon")  # of `reproduce`

DESCRIPTION = """\
Reinforcement learning where a few hidden states produce endless different observations.

A study file lists problems, agents and seeds. `run` does its runs on all cores and
stores them; `table`, `plot`, `report` and `export` show what was stored.
"""
WORDS = """\
names of agents:
  URL          reinforcement learning with an unsupervised-learning oracle
  OnlineURL    URL whose decoder is learnt from the learner's own episodes
  PCID         policy cover via inductive decoding (Du et al. 2019)
  OracleQ-lat  the learner OracleQ on latent states; -obs: on observations
"""


BOLD, RED, GREEN, YELLOW = "1", "31", "32", "33"


def coloured(text: str, colour: str, stream: TextIO) -> str:
    """Return text in a colour if the stream is a terminal that has colours."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or not is_terminal(stream) else f"\x1b[{colour}m{text}\x1b[0m"


class _Parser(argparse.ArgumentParser):
    """Reports errors in one line."""

    def error(self, message: str) -> NoReturn:
        choice = r"argument (COMMAND|KIND|SHELL): invalid choice: '(.*)' \(choose from (.*)\)"
        if wrong := re.fullmatch(choice, message):
            from blockmdp.experiments.errors import suggest

            what, word, known = wrong.groups()
            message = f"unknown {what.lower()} {word!r}{suggest(word, re.findall('[a-z]+', known))}"
        line = f"{self.prog}: {message} (see {self.prog} --help)"
        self.exit(2, f"{coloured(line, RED, sys.stderr)}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str or None, default=None
        Arguments after the command's name. None takes those of this process.

    Returns
    -------
    int
        Exit status: 0 if all went well, 1 if something failed, 2 if the command or the study file
        is wrong, 130 or 143 if it was interrupted.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (until the process ends)
    args = _parser().parse_args(arguments)
    args.line = shlex.join(["blockmdp", *(sys.argv[1:] if arguments is None else arguments)])
    from blockmdp.experiments.errors import ExecutorError, Interrupted, StoreError, StudyError

    try:
        status: int = args.command(args)
        sys.stdout.flush()
        return status
    except Interrupted as stop:
        kept = "finished runs are kept; run the same command again to resume"
        return _fail(f"interrupted: {kept}", 128 + stop.signum)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except StudyError as error:
        return _fail(" ".join(str(error).split()), 2)
    except BrokenPipeError:  # such as in `blockmdp list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ExecutorError, StoreError, OSError) as error:
        return _fail(str(error), 1)
    finally:
        if arguments is None:
            gc.freeze()  # what was read need not be looked at when the process ends
        gc.enable()


# --- arguments ------------------------------------------------------------------------------------
def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="blockmdp",
        description=DESCRIPTION,
        epilog=WORDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"blockmdp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, function: Any, help: str, description: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=description, allow_abbrev=False)
        sub.set_defaults(command=function)
        return sub

    run = command(
        *("run", _run, "do the missing runs of a study file"),
        "Do the runs of a study file that are not done yet, and store each as soon as it is "
        "finished. If interrupted, run the same command again to resume.",
    )
    _study_options(run)
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="list the runs and how many are done, but do none; modules of your own are not "
        "imported",
    )
    run.add_argument(
        "--until",
        type=_above_zero,
        metavar="SHARE",
        help="add seeds until the mean return at the end is known this well: plus or minus this "
        "share of the optimal value, for each agent and problem; stop if runs fail",
    )
    run.add_argument(
        "--max-seeds",
        type=_positive,
        default=1000,
        metavar="N",
        help="with --until: stop at this number of seeds (default: 1000)",
    )
    run.add_argument(
        "--checkpoint",
        action="store_true",
        help="keep the state of each fit in OUT/checkpoints, and go on from there if it was "
        "interrupted, or if episodes were raised",
    )
    run.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda does thousands of runs at once on an NVIDIA GPU (default: cpu)",
    )
    run.add_argument(
        "--trust",
        action="store_true",
        help="with --dry-run: import modules of your own, and check the parts that they define",
    )

    tune = command(
        *("tune", _tune, "find the best hyperparameters of each agent and run them"),
        "Try hyperparameters on separate tuning seeds: all points of a study's grid, or with "
        "--trials those that Optuna suggests. Choose the best point for each agent in each "
        "panel: the one with the most reward per trajectory. Write the study with these points to "
        "OUT/tuned.toml, and run it on the study's own seeds.",
    )
    _study_options(tune)
    tune.add_argument(
        "--tuning-seeds",
        type=_positive,
        default=10,
        metavar="N",
        help="number of tuning seeds (default: 10)",
    )
    tune.add_argument(
        "--trials",
        type=_positive,
        metavar="N",
        help="let Optuna choose N points for each agent in each panel, and drop bad ones early; "
        "a study with ranges needs it (default: the whole grid)",
    )

    status = command(
        *("status", _status, "show how far a study is"),
        "Show how many runs are done, failed and missing, how long the rest will take, and the "
        "first errors.",
    )
    _results_options(status)

    plot = command(
        *("plot", _plot, "draw learning curves"),
        "Draw the learning curves of a study: mean and standard deviation over seeds, against the "
        "number of training trajectories of all kinds. With --against, draw how the number of "
        "trajectories until solved grows with a parameter: median and quartiles over seeds. With "
        "--map, draw a heat map of all agents and problems: medians over seeds.",
    )
    _results_options(plot)
    plot.add_argument(
        "--y",
        choices=("average", "sliding", "value", "regret", "accuracy", "labels"),
        default="average",
        help="average: sum of all returns so far per trajectory; sliding: mean return of the last "
        "episodes, as many as the study's solved.window; value: exact value of the policy at the "
        "time; regret: optimal value for each trajectory, minus all returns; accuracy, labels: how "
        "well the final decoder tells states apart at each level, and its number of labels "
        "(default: average)",
    )
    kind = plot.add_mutually_exclusive_group()
    kind.add_argument(
        "--against", metavar="KEY", help="a numeric parameter of the problem, such as horizon"
    )
    kind.add_argument(
        "--map",
        choices=("solved", "regret"),
        help="solved: trajectories until solved; regret: optimal returns lost, of one for each "
        "trajectory",
    )
    _to_option(plot)

    table = command(
        *("table", _table, "summarise each agent on each problem"),
        "Show for each problem and agent, over seeds: how many runs were solved, with Wilson's "
        "95 % interval; the median number of trajectories until solved ('unsolved' if the median "
        "run was not solved); the mean return at the end, with a bootstrap 95 % interval; the mean "
        "exact value of the final policy; and the mean accuracy of the decoder at its worst level. "
        "In a narrow terminal there are no intervals.",
    )
    _results_options(table)
    _format_option(table)

    compare = command(
        *("compare", _compare, "say whether one agent is better than another"),
        "Compare two agents seed by seed, in each panel in which both have runs. Show their means, "
        "the mean difference with a bootstrap 95 % interval, the probability P that a run of the "
        "first agent is better, and the p-value of a permutation test, corrected for the number "
        "of panels. Draw the differences, and the share of runs that reach each score.",
    )
    _results_options(compare)
    compare.add_argument("one", metavar="AGENT", help="label of an agent, as in `blockmdp table`")
    compare.add_argument("other", metavar="OTHER", help="label of another")
    compare.add_argument(
        "--by",
        choices=("reward", "final", "solved"),
        default="reward",
        help="reward: sum of all returns per trajectory of any kind; final: mean return at the "
        "end; solved: trajectories until solved (default: reward)",
    )
    _format_option(compare)
    _to_option(compare)

    export = command(
        *("export", _export, "write all runs to a .csv or .parquet file"),
        "Write one row for each run: study, parameters, seed, results, trajectories by kind, "
        "versions and tracebacks. A run that belongs to several studies has a row in each.",
    )
    _results_options(export, default="all")
    export.add_argument("file", type=Path, metavar="FILE", help="a .csv or .parquet file")

    report = command(
        *("report", _report, "write one HTML file that shows a study"),
        "Write one HTML file that opens without a network: learning curves with the values of "
        "single seeds, where decoders err, the table, failed runs with their errors, versions, and "
        "the study file. "
        "Nothing that the store names is imported or run.",
    )
    _results_options(report)
    report.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="an .html file (default: DIR/STUDY-report.html, or DIR/studies-report.html if there "
        "are several)",
    )

    listed = command(
        *("list", _list, "list what a study file can name"),
        "List all problems, agents, oracles and learners with their parameters.",
    )
    listed.add_argument(
        "kind", nargs="?", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)}"
    )

    shells = command(
        *("completion", _completion, "print a script that completes this command in a shell"),
        "Print a script that completes this command in a shell. In bash or zsh: "
        'eval "$(blockmdp completion bash)". In fish: blockmdp completion fish | source.',
    )
    shells.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))

    reproduce = command(
        *("reproduce", _reproduce, "run the paper's experiments and check its claims"),
        "Run the experiments of Feng et al. 2020, Section 5 (Figures 1 to 3), untuned agents on "
        "the same problems, and longer horizons. Draw the figures, check every claim, and write a "
        "report. If interrupted, run the same command again to resume.",
    )
    reproduce.add_argument(
        "--out",
        type=_directory,
        default="results/paper",
        metavar="DIR",
        help="directory for runs, figures and the report (default: results/paper)",
    )
    reproduce.add_argument(
        "--only",
        type=_parts,
        default=(),
        metavar="PART",
        help=f"some of {', '.join(PARTS)}, separated by commas (default: all)",
    )
    seeds = reproduce.add_mutually_exclusive_group()
    seeds.add_argument(
        "--seeds", type=_positive, metavar="N", help="runs of each setting (default: 50)"
    )
    seeds.add_argument(
        "--quick",
        action="store_true",
        help="a first look: --seeds 2, and --only fig1 unless you name other parts",
    )
    _run_options(reproduce)
    return parser


def _study_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("study", metavar="STUDY", help="a study file, such as studies/my-study.toml")
    add("--out", type=Path, metavar="DIR", help="directory for the runs (default: results/STUDY)")
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="change a value of the study, such as episodes=5000, problem.horizon=[5] or "
        "agent.URL.batch=100; may be repeated",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="do only some runs, such as agent=URL, horizon=5,10 or seed=3; if repeated, all "
        "conditions must hold",
    )
    _run_options(parser)


def _run_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--jobs",
        type=_positive,
        metavar="N",
        help="number of processes on this machine (default: number of cores)",
    )
    add(
        "--cluster",
        metavar="ADDRESS",
        help="use a Dask cluster: the address of its scheduler (tcp://host:8786), or its "
        "scheduler file",
    )
    add(
        "--timeout",
        type=_above_zero,
        metavar="SECONDS",
        help="let a run fail if it takes longer (default: no limit)",
    )
    add(
        "--memory",
        type=_above_zero,
        metavar="GIB",
        help="let a run fail if its process allocates more (default: no limit)",
    )
    add("--retry-failed", action="store_true", help="repeat runs that failed before")
    add("--quiet", action="store_true", help="show no progress")


def _results_options(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="directory of the runs, as given to --out"
    )
    parser.add_argument(
        "--study",
        metavar="NAME",
        default=default,
        help="which study, if DIR has several: a name, several names separated by commas, or all "
        f"(default: {default or 'the one that was run last'})",
    )


def _format_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=("text", "markdown", "csv"),
        default="text",
        help="format of the table; csv has more columns (default: text)",
    )


def _to_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FILE",
        help="a .png, .pdf or .svg file for the figure (default: one of each in DIR)",
    )


def _parts(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(
                f"unknown part {part!r}; choose from {', '.join(PARTS)}"
            )
    return parts


def _positive(text: str) -> int:
    try:
        n = int(text)
    except ValueError:
        n = 0
    if n < 1:
        raise argparse.ArgumentTypeError(f"must be an integer >= 1, got {text!r}")
    return n


def _above_zero(text: str) -> float:
    try:
        x = float(text)
    except ValueError:
        x = 0.0
    if not 0 < x < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number > 0, got {text!r}")
    return x


def _directory(text: str) -> Path:
    """Return a directory that can be written to; create it if needed."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise argparse.ArgumentTypeError(f"cannot write to {text!r}: {reason}") from None
    return path


# --- commands -------------------------------------------------------------------------------------
def _load(args: argparse.Namespace, trust: bool = True) -> Study:
    from blockmdp.experiments import Study

    return Study.load(args.study, args.changes, trust=trust).only(args.only)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    names = ("jobs", "cluster", "timeout", "memory", "retry_failed", "quiet")
    return {name: getattr(args, name) for name in names}


def _run(args: argparse.Namespace) -> int:
    from blockmdp.experiments.ranges import not_runnable

    study = _load(args, trust=args.trust or not args.dry_run)
    out = args.out or Path("results") / study.name
    if study.ranges:
        raise not_runnable(study.ranges[0], args.study)
    if args.dry_run:
        return _dry_run(study, out, args.trust)
    more = {name: getattr(args, name) for name in ("until", "max_seeds", "checkpoint", "device")}
    return _conclude(study.run(out, **_options(args), **more), args.quiet)


def _dry_run(study: Study, out: Path, trust: bool) -> int:
    from blockmdp.experiments.errors import printable
    from blockmdp.experiments.parts import foreign
    from blockmdp.experiments.store import FILE, Store

    done: set[tuple[str, int]] = set()
    if (out / FILE).is_file():
        with Store(out, warn=_print_warning) as store:
            done = {(row.setting, row.seed) for row in store.rows() if row.error is None}
    for run in itertools.islice(study.runs(), MAX_LISTED):
        print(f"{printable(str(run))}{'  (done)' if (run.setting.key, run.seed) in done else ''}")
    if len(study) > MAX_LISTED:
        print(f"... and {len(study) - MAX_LISTED} more")
    keys, seeds = {setting.key for setting in study.settings}, set(study.seeds)
    there = sum(setting in keys and seed in seeds for setting, seed in done)
    print(f"{len(study)} runs, {there} of them done", file=sys.stderr)
    parts = {id(s.problem): ("problem", s.problem) for s in study.settings}
    parts |= {id(s.agent): ("agent", s.agent) for s in study.settings}  # settings share them
    own = {name: None for part in parts.values() for name in foreign(*part)}
    if own and not trust:
        _print_warning(
            f"not imported: {', '.join(own)}; with --trust, their parameters are checked, and it "
            "is known which of their runs are done"
        )
    return 0


def _conclude(results: Results, quiet: bool) -> int:
    if not quiet:
        where = results.directory
        print(f"{len(results.done)} runs of {results.study.name} are in {where}. "
              f"Next: blockmdp table {where}; blockmdp plot {where}")  # fmt: skip
    if results.failed:
        return _fail(
            f"{len(results.failed)} runs failed; for the reasons: "
            f"blockmdp status {results.directory}",
            1,
        )
    return 0


def _tune(args: argparse.Namespace) -> int:
    from blockmdp.experiments.tuning import tune

    study = _load(args)
    out = args.out or Path("results") / study.name
    options = {"seeds": args.tuning_seeds, "trials": args.trials, "command": args.line}
    tuned, path = tune(study, out, **options, **_options(args))
    if not args.quiet:
        print(f"the best settings are in {path}; running them on new seeds", file=sys.stderr)
    results = tuned.run(out, **_options(args))
    _print_table(results.table(width=_width()))
    return _conclude(results, args.quiet)


def _studies(args: argparse.Namespace) -> list[Results]:
    """Return the studies that were asked for. Say what is not shown."""
    from blockmdp.experiments.results import Ended, Results
    from blockmdp.experiments.store import Store

    gc.disable()  # what is read is kept: looking for garbage takes a fifth of the time
    with Store(args.directory, warn=_print_warning) as store:
        there = store.names()
    names = there[-1:] if args.study is None else [name.strip() for name in args.study.split(",")]
    if args.study == "all" and "all" not in there:
        names = there
    names = list(dict.fromkeys(names))
    kind = Ended if args.command is _status else Results
    found = [kind(args.directory, name, warn=_print_warning) for name in names]
    if args.study is None and len(there) > 1:
        _print_warning(
            f"this is the study {there[-1]}, one of {len(there)} in {args.directory}: choose with "
            "--study NAME or --study all"
        )
    for results in found if args.command is not _status else ():
        ended, total = len(results.rows), len(results.study)
        if ended < total:
            _print_warning(f"{results.study.name}: {ended} of {total} runs have ended so far")
    return found


def _status(args: argparse.Namespace) -> int:
    print("\n\n".join(results.status() for results in _studies(args)))
    return 0


def _plot(args: argparse.Namespace) -> int:
    kind = args.y if args.against is None else f"against-{args.against}"
    kind = kind if args.map is None else f"map-{args.map}"
    _check_ending(args.to)
    studies = _studies(args)
    if args.to is not None and len(studies) > 1:
        return _fail(f"--to {args.to}: name one study, since each has a figure of its own", 2)
    for results in studies:
        if args.map is None:
            figure = results.plot(args.y, against=args.against)
        else:
            figure = results.plot_map(args.map)
        _save(figure, args.to, results.directory / f"{results.study.name}-{kind}", sys.stdout)
    return 0


def _compare(args: argparse.Namespace) -> int:
    from blockmdp.experiments.results import compare

    _check_ending(args.to)
    found = compare(_studies(args), args.one, args.other, args.by)
    if args.format != "csv" or args.to is not None:
        agents = re.sub(r"[^\w.-]+", "-", f"{args.one}-{args.other}-{args.by}")
        _save(found.plot(), args.to, args.directory / f"compare-{agents}", sys.stderr)
    _print_table(found.table(args.format, _width()), args.format)
    if args.format != "csv":
        print(f"\n{found.summary()}")
    return 0


def _check_ending(to: Path | None) -> None:
    from blockmdp.experiments.errors import StudyError

    if to is not None and to.suffix[1:] not in FORMATS:
        raise StudyError(f"--to {to}: must end in .png, .pdf or .svg")


def _save(figure: Any, to: Path | None, default: Path, said: TextIO) -> None:
    """Save a figure as the file that was asked for, or in all formats, and say where."""
    from blockmdp.plots.curves import save

    if to is None:
        paths = save(figure, default, FORMATS)
    else:
        paths = save(figure, to.with_suffix(""), (to.suffix[1:],))
    for path in paths:
        print(path, file=said)


def _table(args: argparse.Namespace) -> int:
    studies = _studies(args)
    if args.format == "csv" and len(studies) > 1:
        return _fail("name one study for a CSV table, or write all runs with blockmdp export", 2)
    for i, results in enumerate(studies):
        if len(studies) > 1:
            print("" if i == 0 else "\n", f"{results.study.name}:", sep="")
        _print_table(results.table(args.format, _width()), args.format)
    return 0


def _export(args: argparse.Namespace) -> int:
    from blockmdp.experiments.results import export

    if args.file.suffix not in (".csv", ".parquet"):
        return _fail(f"{args.file}: must end in .csv or .parquet", 2)
    studies = _studies(args)
    export(studies, args.file)
    n = sum(len(results.rows) for results in studies)
    of = f" of {len(studies)} studies" if len(studies) > 1 else ""
    print(f"wrote {n} runs{of} to {args.file}")
    return 0


def _report(args: argparse.Namespace) -> int:
    from blockmdp.experiments.reporting import plain_name
    from blockmdp.experiments.results import report

    if args.out is not None and args.out.suffix != ".html":
        return _fail(f"--out {args.out}: must end in .html", 2)
    studies = _studies(args)
    name = plain_name(studies[0].study.name) if len(studies) == 1 else "studies"
    path = args.out or args.directory / f"{name}-report.html"
    report(studies, path)
    print(path)
    return 0


def _list(args: argparse.Namespace) -> int:
    from blockmdp.experiments.catalogue import describe

    print(describe(args.kind))
    return 0


def _completion(args: argparse.Namespace) -> int:
    print(completion(_parser(), args.shell))
    return 0


def _reproduce(args: argparse.Namespace) -> int:
    from blockmdp.paper.reproduce import reproduce

    seeds, only = (2, args.only or ["fig1"]) if args.quick else (args.seeds, args.only)
    text, complete = reproduce(args.out, seeds=seeds, only=only, **_options(args))
    if not args.quiet:
        print(text)
    if complete:
        return 0
    return _fail(f"some runs failed; for the reasons: blockmdp status {args.out}", 1)


def _print_warning(line: str) -> None:
    from blockmdp.experiments.errors import printable

    print(coloured(printable(line), YELLOW, sys.stderr), file=sys.stderr)


def _width() -> int:
    """Return the number of columns of the terminal, 80 if there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def _print_table(text: str, form: str = "text") -> None:
    """Print a table; as text, with its head and titles in bold, and verdicts in colour."""
    if form != "text" or not is_terminal(sys.stdout):
        print(text)
        return
    head, *lines = text.splitlines()
    if len(lines) > MAX_LISTED:
        more = f"... and {len(lines) - MAX_LISTED} more lines; to see them all: | less"
        lines[MAX_LISTED:] = [more]
    print(coloured(head, BOLD, sys.stdout))
    for line in lines:
        if (
            head.startswith(" ") and line[:1] not in (" ", "") and line[:4] != "n/a:"
        ):  # the title of a panel
            line = coloured(line, BOLD, sys.stdout)
        for word, colour in (("better", GREEN), ("worse", RED)):
            if line.endswith(f" {word}"):
                line = line.removesuffix(word) + coloured(word, colour, sys.stdout)
        print(line)


def _fail(message: str, status: int) -> int:
    from blockmdp.experiments.errors import printable

    print(coloured(f"blockmdp: {printable(message)}", RED, sys.stderr), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
