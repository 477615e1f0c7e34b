"""The page of the command line, from its parser: every verb with its arguments, example and JSON; exit statuses."""

from __future__ import annotations

from typing import Any

import typer
from markdown_table import table_of

from ropewalk.cli.exit_status import MEANINGS
from ropewalk.cli.output import KEYS
from ropewalk.cli.parser import EXAMPLES, app

INTRODUCTION = """# Command line

Generated from the parser by `make docs`. `ropewalk VERB --help` prints the same, and `ropewalk --version` the version.

**Shell completion.** `ropewalk --install-completion` installs it for the shell that is running (bash, zsh, fish,
PowerShell); `ropewalk --show-completion` prints it instead. It knows verbs and options, `default`, engines, and the
names of all presets and methods, also after a `+`.

**JSON.** With `--json` a verb prints one JSON object and nothing else on the output stream; progress and errors go to
the error stream. A number that is infinite or was not measured is null. Keys are added, but never renamed.

**Colour.** Colours go to terminals only; the environment variable `NO_COLOR` turns them off.

**Progress.** A terminal shows a bar on the error stream, a log a line every half minute."""


def command_line_page() -> str:
    """The page."""
    command: Any = typer.main.get_command(app)
    verbs = [part for verb in EXAMPLES for part in _verb(command.commands[verb.__name__], EXAMPLES[verb])]
    return "\n\n".join([INTRODUCTION, *_exit_statuses(), *verbs]) + "\n"


def _exit_statuses() -> list[str]:
    rows = [(str(status), f"{_capital(meaning)}.") for status, meaning in MEANINGS.items()]
    return ["## Exit status", table_of(("status", "meaning"), rows)]


def _verb(verb: Any, example: str) -> list[str]:
    arguments = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    usage = " ".join(["ropewalk", verb.name, *(_usage(argument) for argument in arguments), "[OPTIONS]"])
    parts = [f"## {verb.name}", _as_text(verb.help), f"```text\n{usage}\n```", f"Example: `{example}`"]
    options = [parameter for parameter in verb.params if parameter.param_type_name == "option"]
    rows = [
        (f"`{_name(parameter)}`", _default(parameter), _cell(parameter.help)) for parameter in (*arguments, *options)
    ]
    parts.append(table_of(("argument or option", "default", "meaning"), rows))
    return parts + [table for name in KEYS if name.split()[0] == verb.name for table in _keys(name)]


def _keys(name: str) -> list[str]:
    rows = [(f"`{key}`", _cell(meaning)) for key, meaning in KEYS[name].items()]
    return [f"`{name} --json`:", table_of(("key", "value"), rows)]


def _usage(argument: Any) -> str:
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _usage(parameter).strip("[]")
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {parameter.metavar or 'VALUE'}"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "needed"
    default = parameter.default
    shown = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
    return f"`{default}`" if shown else ""


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


def _as_text(text: str) -> str:
    return " ".join(text.split())


def _capital(text: str) -> str:
    return text if text.startswith("`") else text[:1].upper() + text[1:]
