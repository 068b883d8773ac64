"""Exceptions for users: one line that says which value is wrong, and what is allowed."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_COMMAND: ContextVar[bool] = ContextVar("command", default=False)
"""Whether a command of the command line is being run."""


@contextmanager
def command_line() -> Iterator[None]:
    """Within this, advice is for the command line."""
    before = _COMMAND.set(True)
    try:
        yield
    finally:
        _COMMAND.reset(before)


def advice(command: str, python: str) -> str:
    """What to do next, for a user of the command line or of Python."""
    return command if _COMMAND.get() else python


def plain_text(text: str) -> str:
    r"""Text with every character that is not printable replaced by its escape, safe to print on a terminal.

    Names, paths and messages of libraries may hold line breaks, escape sequences or marks that change the direction of text.

    >>> print(plain_text("run\x1b[2J\u202e\n"), plain_text("β ≥ 0,05"))
    run\x1b[2J\u202e\n β ≥ 0,05
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class EvarlError(Exception):
    """Base class of the errors that this package raises; the command line prints them on one line and exits with 2 or 1."""

    def __init__(self, message: str) -> None:
        super().__init__(plain_text(message))


class InputError(EvarlError, ValueError):
    """A setting, name or argument that is not allowed."""


class FileError(EvarlError):
    """A file that is missing, corrupt, truncated or cannot be written."""


class FaultError(EvarlError):
    """Work that was started and could not be finished; the command line exits with 1."""


class DivergedError(FaultError):
    """Training produced NaN or infinity."""


class WorldError(FaultError):
    """A world on the host raised an exception or returned a wrong value."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An InputError for an unknown name, which suggests the nearest known one.

    >>> str(unknown_name("world", "navigaton", ["navigation", "tabular/chain"]))
    "world: unknown 'navigaton'; did you mean 'navigation'? Known: navigation, tabular/chain"
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return InputError(f"{kind}: unknown '{name}'{hint} Known: {', '.join(known)}")
