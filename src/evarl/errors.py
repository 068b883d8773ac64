"""The errors a user is meant to read: one line that says what is wrong, with what value, and what to do."""

import difflib
from collections.abc import Iterable


def plain_text(text: str) -> str:
    r"""Text from elsewhere as one line that cannot steer a terminal: what is not printable becomes its escape.

    Names, paths and what libraries say may hold line breaks, escape sequences, or marks that turn the direction of reading.

    >>> print(plain_text("run\x1b[2J\u202e\n"), plain_text("β ≥ 0,05"))
    run\x1b[2J\u202e\n β ≥ 0,05
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class EvarlError(Exception):
    """Base of every error this package raises on purpose; the command line prints it on one line and exits with 2, or 1."""

    def __init__(self, message: str) -> None:
        super().__init__(plain_text(message))


class InputError(EvarlError, ValueError):
    """A setting, a name or an argument that cannot be used."""


class FileError(EvarlError):
    """A file that is missing, corrupt, truncated or cannot be written."""


class FaultError(EvarlError):
    """Work that was begun and could not be finished; the command line exits with 1."""


class DivergedError(FaultError):
    """Training produced a value that is not finite."""


class WorldError(FaultError):
    """A world on the host raised an exception, or returned what it must not."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a misspelt name that suggests the nearest right one.

    >>> str(unknown_name("world", "navigaton", ["navigation", "tabular/chain"]))
    "world: unknown 'navigaton'; did you mean 'navigation'? Known: navigation, tabular/chain"
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return InputError(f"{kind}: unknown '{name}'{hint} Known: {', '.join(known)}")
