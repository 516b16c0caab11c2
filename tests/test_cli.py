"""The command `blockmdp`: its help, its errors and its exit status."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import textwrap
import time
from importlib.metadata import entry_points
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from helpers import python

import blockmdp as bm
from blockmdp import cli
from blockmdp.agents import progress
from blockmdp.cli import main
from blockmdp.experiments import Study
from blockmdp.experiments.errors import ExecutorError, Interrupted, StoreError, StudyError
from blockmdp.paper import reproduce


def exit_status(arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


def test_the_package_installs_the_command():
    (command,) = entry_points(group="console_scripts", name="blockmdp")
    assert command.load().__module__ == "_blockmdp_command"


def test_python_runs_the_command_as_a_module():
    code = "import runpy, sys\nsys.argv[1:] = ['--version']\n"
    code += "runpy.run_module('blockmdp', run_name='__main__')"
    assert python(code).startswith("blockmdp ")


def test_help_explains_commands_and_options(capsys):
    for arguments, words in {
        "": "run tune status plot table compare export report list reproduce --version oracle PCID"
        " latent",
        "run": "STUDY --out --set --only --jobs --cluster --timeout --memory --retry-failed --quiet"
        " --dry-run",
        "tune": "--tuning-seeds --trials --out --set --cluster",
        "status": "DIR --study",
        "plot": "--y --to --study --against",
        "table": "Wilson bootstrap --format",
        "export": "FILE .parquet",
        "report": "DIR --study --out HTML",
        "compare": "AGENT OTHER --by --study --format --to",
        "list": "problems agents oracles learners",
        "reproduce": "--out --seeds --only --jobs --quick",
    }.items():
        assert exit_status([*arguments.split(), "--help"]) == 0
        out = capsys.readouterr().out
        assert [word for word in words.split() if word not in out] == []


def test_the_version_is_the_package_s(capsys):
    assert exit_status(["--version"]) == 0
    assert capsys.readouterr().out == f"blockmdp {bm.__version__}\n"


def test_a_bad_argument_gets_one_line_and_status_2(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line, words in {
        "": "COMMAND",
        "reprodcue": "unknown command 'reprodcue'; did you mean 'reproduce'? (see",
        "nothing": "unknown command 'nothing' (known: compare, completion, export, list, plot,",
        "list learner": "unknown kind 'learner'; did you mean 'learners'?",
        "reproduce --seeds 0": "--seeds: must be an integer >= 1, got '0'",
        "reproduce --only fig4": "--only: unknown part 'fig4'; choose from fig1, fig2, fig3, unt",
        "reproduce --jobs -1": "--jobs: must be an integer >= 1, got '-1'",
        "reproduce --seeds 3 --quick": "not allowed with argument --seeds",
        "reproduce --seed 3": "unrecognized arguments: --seed",
        "run": "the following arguments are required: STUDY",
        "run study.toml --jobs 0": "--jobs: must be an integer >= 1, got '0'",
        "run study.toml --timeout 0": "--timeout: must be a number > 0, got '0'",
        "run study.toml --memory nan": "--memory: must be a number > 0, got 'nan'",
        "run study.toml --timeout inf": "--timeout: must be a number > 0, got 'inf'",
        "run study.toml --quie": "unrecognized arguments: --quie",
        "tune study.toml --tuning-seeds x": "--tuning-seeds: must be an integer >= 1, got 'x'",
        "tune study.toml --trials 0": "--trials: must be an integer >= 1, got '0'",
        "table results --format html": "invalid choice: 'html'",
        "plot results --y best": "invalid choice: 'best'",
        "export results": "the following arguments are required: FILE",
    }.items():
        assert exit_status(line.split()) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert words in err


def test_an_out_that_cannot_be_written_gets_one_line_and_status_2(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "below")
    assert exit_status(["reproduce", "--out", out]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"cannot write to {out!r}: Not a directory" in err


def test_an_error_gets_one_line_and_its_exit_status(capsys, tmp_path, monkeypatch):
    kept = "interrupted: finished runs are kept; run the same command again to resume"
    for error, status, words in (
        (KeyboardInterrupt(), 130, "interrupted"),
        (Interrupted(signal.SIGINT), 130, kept),
        (Interrupted(signal.SIGTERM), 143, kept),
        (ExecutorError("no worker is left"), 1, "no worker is left"),
        (StoreError("out is in use"), 1, "out is in use"),
        (StudyError("seeds: a\nb"), 2, "seeds: a b"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
    ):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(reproduce, "reproduce", fail)
        assert main(["reproduce", "--out", str(tmp_path)]) == status
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert words in err


# --- completion and colours -----------------------------------------------------------------------
def complete(script, *words):
    """What bash offers after these words; the last one is not finished."""
    code = f"{script}\nCOMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}\n"
    done = subprocess.run(
        ["bash", "-c", code + '_blockmdp; echo "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_bash_completes_commands_options_and_values(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert complete(script, "blockmdp", "co") == ["compare", "completion"]
    assert complete(script, "blockmdp", "plot", "--y", "") == [
        *("average", "sliding", "value", "regret", "accuracy", "labels")
    ]
    assert complete(script, "blockmdp", "plot", "results", "--st") == ["--study"]
    assert complete(script, "blockmdp", "list", "l") == ["learners"]
    assert complete(script, "blockmdp", "report", "results", "--o") == ["--out"]
    for words in (["run", "--out", ""], ["run", ""], ["table", "res"]):
        assert complete(script, "blockmdp", *words) == []  # files
    assert main(["completion", "zsh"]) == 0
    assert script in capsys.readouterr().out
    assert main(["completion", "fish"]) == 0
    fish = capsys.readouterr().out
    assert "-n '__fish_seen_subcommand_from run' -l out -r -d 'directory" in fish
    assert "%%" not in fish


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_only_terminals_get_colours(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert cli.coloured("word", cli.RED, Terminal()) == "\x1b[31mword\x1b[0m"
    assert cli.coloured("word", cli.RED, io.StringIO()) == "word"
    monkeypatch.setattr(sys, "stdout", Terminal())
    cli._print_table("  agent  value\nH = 3\n  URL    0.5\n\nn/a: why")
    bold = "\x1b[1m{}\x1b[0m"
    expected = [bold.format("  agent  value"), bold.format("H = 3"), "  URL    0.5", "", "n/a: why"]
    assert sys.stdout.getvalue().splitlines() == expected
    monkeypatch.setattr(sys, "stdout", Terminal())
    cli._print_table("problem  verdict\nH = 3    better\nH = 5    worse\nH = 7    undecided")
    lines = sys.stdout.getvalue().splitlines()
    assert lines[1:] == [
        *("H = 3    \x1b[32mbetter\x1b[0m", "H = 5    \x1b[31mworse\x1b[0m", "H = 7    undecided")
    ]
    for variable, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert cli.coloured("word", cli.RED, Terminal()) == "word"


# --- fits in a terminal ---------------------------------------------------------------------------
def test_a_long_fit_shows_a_bar_in_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.001)
    plain = bm.OnlineURL().fit(bm.lock_bernoulli(3), 150)
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown = bm.OnlineURL().fit(bm.lock_bernoulli(3), 150)
    text = sys.stderr.getvalue()
    assert "OnlineURL" in text
    assert re.search(r"\d+ trajectories, mean return \d\.\d{3}, \d+ labels", text)
    assert (shown.returns_ == plain.returns_).all()  # looking changes nothing
    assert "compiling" not in text
    monkeypatch.setattr(progress, "DELAY", 60.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    bm.Tabular().fit(bm.lock_bernoulli(3), 150)
    assert sys.stderr.getvalue() == ""
    closed = io.StringIO()
    closed.close()
    for odd in (None, object(), closed):
        monkeypatch.setattr(sys, "stderr", odd)
        bm.Tabular().fit(bm.lock_bernoulli(3), 5)


def test_the_bar_says_that_a_loop_is_compiled(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "EVERY", 0.001)
    monkeypatch.setattr(sys, "stderr", Terminal())
    simulator = SimpleNamespace(run=None, episodes=0, labels=0)
    with progress.FitProgress(simulator, "URL") as bar:
        while not sys.stderr.getvalue():
            time.sleep(0.01)
        assert numba.njit(lambda x: np.sort(x + 1))(np.arange(3.0)).tolist() == [1, 2, 3]
    assert "compiling for the first time" in sys.stderr.getvalue()
    assert bar._compiling.depth == 0


def test_who_looks_at_results_waits_for_no_compiler(tmp_path):
    agents = [{"name": "Tabular"}]
    document = {"seeds": 1, "episodes": 20, "problem": "lock_bernoulli", "agent": agents}
    Study(document, "short").run(tmp_path, jobs=1, quiet=True)
    code = """
        import sys
        sys.argv[1:] = [{command!r}, {where!r}]
        from _blockmdp_command import main
        status = main()
        slow = {{"numba", "gymnasium", "sklearn", "scipy", "pandas", "matplotlib", "rich"}}
        print(status, sorted(slow & sys.modules.keys()))
    """
    for command in ("status", "table"):
        out = python(textwrap.dedent(code.format(command=command, where=str(tmp_path))))
        assert out.splitlines()[-1] == "0 []"


def test_names_of_the_package_are_there_though_loaded_later():
    code = """
        import gymnasium
        import blockmdp
        assert gymnasium.make("blockmdp/RiverSwim-v0").unwrapped.mdp.name == "RiverSwim"
        from blockmdp import *
        import blockmdp as bm
        assert all(getattr(bm, name) is globals()[name] for name in bm.__all__)
        assert set(bm.__all__) <= set(dir(bm))
        assert bm.learners.UCBVI is UCBVI and bm.envs.comblock is comblock
        assert set(bm._LATER) | set(bm._MODULES) == set(bm.__all__)
        try:
            bm.lock_bernouli
        except AttributeError as error:
            print(error)
    """
    out = python(textwrap.dedent(code))
    assert out == "module 'blockmdp' has no attribute 'lock_bernouli'\n"
