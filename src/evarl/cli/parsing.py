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
    """What every command takes that opens a run."""

    allow_module: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")] = field(
        default=(), kw_only=True
    )
    """Module that a world in a file may come from; it is imported, which runs its code. Can be given several times."""


def parse(kind: type[T], arguments: list[str], program: str, default: T) -> T:
    """Fill a dataclass from command-line arguments; `--help` prints its fields and leaves."""
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
    """The parser frames its messages in a box and repeats its help; keep what is wrong."""
    words = re.sub(r"[╭╮╰╯─│┌┐└┘━┃]|\x1b\[[0-9;]*m|\[/?[a-z]+\]", " ", text)
    return re.split(r" (?:Argument helptext:|For full helptext)", " ".join(words.split()))[0]
