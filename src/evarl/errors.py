"""The errors a user is meant to read: one line that says what is wrong, with what value, and what to do."""

import difflib
from collections.abc import Iterable


class EvarlError(Exception):
    """Base of every error this package raises on purpose; the command line prints it on one line and exits with 2, or 1."""


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
