"""Command lines from dataclasses, with errors on one line."""

import contextlib
import io
import re
from typing import TypeVar

import tyro

from evarl.errors import InputError

T = TypeVar("T")


def parse(kind: type[T], arguments: list[str], program: str, default: T) -> T:
    """Fill a dataclass from command-line arguments; `--help` prints its fields and leaves."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(kind, args=arguments, prog=program, default=default)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(_one_line(errors.getvalue())) from None


def _one_line(text: str) -> str:
    """The parser frames its messages in a box and repeats its help; keep what is wrong."""
    words = re.sub(r"[╭╮╰╯─│┌┐└┘━┃]|\x1b\[[0-9;]*m|\[/?[a-z]+\]", " ", text)
    return re.split(r" (?:Argument helptext:|For full helptext)", " ".join(words.split()))[0]
