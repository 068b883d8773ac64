"""Command lines from dataclasses, with errors on one line."""

import contextlib
import io
import re
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import tyro

from evarl.errors import InputError
from evarl.storage.modules import allow_modules

T = TypeVar("T")


@dataclass(frozen=True)
class OpensRuns:
    """Options of every command that opens a run."""

    allow_module: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")] = field(
        default=(), kw_only=True
    )
    """Module from which a world in a file may be loaded; importing it runs its code. Can be given several times."""


def parse(kind: type[T], arguments: list[str], program: str, default: T) -> T:
    """A dataclass filled from command-line arguments; `--help` prints its fields and exits."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            command = tyro.cli(kind, args=arguments, prog=program, default=default)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(_one_line(errors.getvalue())) from None
    if isinstance(command, OpensRuns):
        allow_modules(*command.allow_module)
    return command


def _one_line(text: str) -> str:
    """The message of the parser, without the box around it, its title, and the help below it."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"\A(╭.*|.*\n\s*-{3,}\s*)\n", "", text)
    words = re.sub(r"[╭╮╰╯─│┌┐└┘━┃]|-{3,}|\[/?[a-z]+\]", " ", text)
    return re.split(r" (?:Argument helptext:|For full helptext)", " ".join(words.split()))[0]
