"""Command lines from dataclasses, with errors on one line, and what commands share: options, and files of results."""

import contextlib
import dataclasses
import inspect
import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from evarl.cli.examples import examples
from evarl.cli.parser_errors import rewritten
from evarl.errors import InputError
from evarl.storage.files import write_bytes
from evarl.storage.modules import allow_modules

T = TypeVar("T")
HELP_ALL = "--help-all"
"""Asks for the help with all flags; the same as --help where there is no shorter one."""
Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""An option without a value."""
RunPath = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""The directory of a run, as the argument of a command."""


@dataclass(frozen=True)
class OpensRuns:
    """Options of every command that opens a run."""

    allow_module: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")] = field(
        default=(), kw_only=True
    )
    """Module from which a world in a file may be loaded; importing it runs its code. Can be given several times."""


@dataclass(frozen=True)
class PrintsResults(OpensRuns):
    """Options of every command that opens a run and prints tables or JSON."""

    json: Flag = field(default=False, kw_only=True)
    """Print one JSON object as the last line of standard output."""


def parse(kind: type[T], arguments: list[str], program: str, default: T) -> T:
    """A dataclass filled from command-line arguments; `--help` prints its fields, with examples, and exits."""
    errors = io.StringIO()
    about = f"{inspect.getdoc(kind)}\n\n{examples(program.split()[1])}"
    arguments = ["--help" if one == HELP_ALL else one for one in arguments]
    try:
        with contextlib.redirect_stderr(errors):
            command = tyro.cli(kind, args=arguments, prog=program, default=default, description=about)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(rewritten(_one_line(errors.getvalue()))) from None
    if isinstance(command, OpensRuns):
        allow_modules(*command.allow_module)
    return command


def options(command: OpensRuns, *but: str) -> dict[str, Any]:
    """The options of a command that are parameters of its function; the others are named in `but`."""
    names = {one.name for one in dataclasses.fields(command)} - {"allow_module", "json", *but}
    return {name: getattr(command, name) for name in names}


def parse_seeds(text: str) -> list[int] | None:
    """Seeds as a list; None for all."""
    if text == "all":
        return None
    try:
        return [int(seed) for seed in text.replace(",", " ").split()]
    except ValueError as error:
        raise InputError(f"seeds: '{text}' is not allowed; must be all, or a list like \"0 1 2\"") from error


def write_results(out: str | None, default: Path, record: dict[str, Any]) -> Path:
    """Write a result as JSON to the file that was asked for, or to the default, and return its path."""
    file = Path(out) if out else default
    write_bytes(file, (json.dumps(record, ensure_ascii=False) + "\n").encode())
    return file


def _one_line(text: str) -> str:
    """The message of the parser, without the box around it, its title, and the help below it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"\A(╭.*|.*\n\s*-{3,}\s*)\n", "", text)
    words = re.sub(r"[╭╮╰╯─│┌┐└┘━┃]|-{3,}|\[/?[a-z]+\]", " ", text)
    return re.split(r" (?:Argument helptext:|For full helptext)", " ".join(words.split()))[0]
