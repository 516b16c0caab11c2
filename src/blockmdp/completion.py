"""Completion of the command in a shell: scripts for bash, zsh and fish, made from its arguments."""

from __future__ import annotations

import argparse
from typing import NamedTuple

__all__ = ["SHELLS", "completion"]

SHELLS = ("bash", "zsh", "fish")


class _Option(NamedTuple):
    """An option: its name, whether it takes a value, the values it may have, and its help."""

    name: str
    takes_value: bool
    values: list[str]
    help: str


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that makes a shell complete the command.

    Parameters
    ----------
    parser : ArgumentParser
        Parser of the command, with subcommands.
    shell : {"bash", "zsh", "fish"}
        The shell.

    Returns
    -------
    str
        The script. Where nothing is known, the shell completes the names of files.
    """
    commands, helps = _commands(parser)
    if shell == "fish":
        return _fish(commands, helps)
    script = _bash(commands)
    if shell == "bash":
        return script
    start = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }"
    return f"{start}\nautoload -U +X bashcompinit && bashcompinit\n{script}"


def _commands(
    parser: argparse.ArgumentParser,
) -> tuple[dict[str, tuple[list[_Option], list[str]]], dict[str, str]]:
    """Return options and choices of the positional arguments of each command, and its help."""
    (below,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    helps = {action.dest: action.help or "" for action in below._choices_actions}
    commands = {}
    for name, sub in below.choices.items():
        options, words = [], list[str]()
        for action in sub._actions:
            values = [str(choice) for choice in action.choices or ()]
            for option in action.option_strings[-1:]:
                options.append(_Option(option, action.nargs != 0, values, action.help or ""))
            words += values if not action.option_strings else []
        commands[name] = options, words
    return commands, helps


def _bash(commands: dict[str, tuple[list[_Option], list[str]]]) -> str:
    lines = [
        "_blockmdp() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" last="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        "    COMPREPLY=()",
        '    case "${COMP_WORDS[1]}:$last" in',
    ]
    for name, (options, _) in commands.items():
        for option in options:
            if option.takes_value:
                words = f'words="{" ".join(option.values)}"' if option.values else "return"
                lines.append(f"        {name}:{option.name}) {words} ;;")
    lines += ["    esac", '    if [ -z "$words" ]; then']
    lines.append('        case "${COMP_WORDS[1]}:$word" in')
    for name, (options, choices) in commands.items():
        words = " ".join(option.name for option in options)
        lines.append(f'            {name}:-*) words="{words}" ;;')
        lines += [f'            {name}:*) words="{" ".join(choices)}" ;;'] if choices else []
    lines += [
        "        esac",
        "    fi",
        f'    [ "$COMP_CWORD" = 1 ] && words="{" ".join(commands)} --help --version"',
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "}",
        "complete -o default -F _blockmdp blockmdp",
    ]
    return "\n".join(lines)


def _fish(commands: dict[str, tuple[list[_Option], list[str]]], helps: dict[str, str]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%") + "'"

    lines = []
    for name, (options, choices) in commands.items():
        first = "complete -c blockmdp -n __fish_use_subcommand"
        lines.append(f"{first} -f -a {name} -d {quoted(helps[name])}")
        here = f"complete -c blockmdp -n '__fish_seen_subcommand_from {name}'"
        if choices:
            lines.append(f"{here} -f -a {quoted(' '.join(choices))}")
        for option in options:
            value = " -r" * option.takes_value
            if option.values:
                value = f" -x -a {quoted(' '.join(option.values))}"
            long = option.name.removeprefix("--")
            lines.append(f"{here} -l {long}{value} -d {quoted(option.help)}")
    return "\n".join(lines)
