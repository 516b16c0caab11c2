"""The command `blockmdp`: its help, its errors and its exit status."""

from __future__ import annotations

import signal
from importlib.metadata import entry_points

import pytest

import blockmdp as bm
from blockmdp.cli import main
from blockmdp.experiments.errors import ExecutorError, Interrupted, StoreError, StudyError
from blockmdp.paper import reproduce


def exit_status(arguments):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


def test_the_package_installs_the_command():
    (command,) = entry_points(group="console_scripts", name="blockmdp")
    assert command.load().__module__ == "_blockmdp_command"


def test_help_explains_commands_and_options(capsys):
    for arguments, words in {
        "": "run tune status plot table compare export list reproduce --version oracle PCID latent",
        "run": "STUDY --out --set --only --jobs --cluster --timeout --memory --retry-failed --quiet"
        " --dry-run",
        "tune": "--tuning-seeds --out --set --cluster",
        "status": "DIR --study",
        "plot": "--y --to --study --against",
        "table": "Wilson bootstrap --format",
        "export": "FILE .parquet",
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
        "nothing": "unknown command 'nothing' (known: compare, export, list, plot, reproduce, run,",
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
