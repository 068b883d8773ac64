"""Modules that files are allowed to name. No JAX.

Worlds of Gymnasium may come from a module, and importing a module runs its code. A module that the user types, on the
command line or in Python, is imported. One that a file names is imported only if it is loaded already, or if the user has
allowed it by name: with `--allow-module NAME`, with `evarl.allow_modules("NAME")`, or for one run with
`Run.load(path, allow_modules=("NAME",))`.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evarl.errors import FileError, InputError

_allowed: frozenset[str] = frozenset()


def allow_modules(*names: str) -> None:
    """Allow files to name these modules, until the process ends."""
    global _allowed
    _allowed |= frozenset(names)


@contextmanager
def only_here() -> Iterator[None]:
    """Restore the allowed modules at the end of the block."""
    global _allowed
    before = _allowed
    try:
        yield
    finally:
        _allowed = before


def module_of(world: str) -> str:
    """The module that a world is imported from, or an empty string.

    >>> module_of("gymnasium/package.worlds:Maze-v0"), module_of("gymnasium/CartPole-v1"), module_of("brax/ant:spring")
    ('package.worlds', '', '')
    """
    family, _, identifier = world.partition("?")[0].partition("/")
    return identifier.rpartition(":")[0] if family == "gymnasium" else ""


def check_world(world: str, file: Path, allowed: Sequence[str] = ()) -> None:
    """Raise InputError if a world that a file names would import a module that is neither loaded nor allowed."""
    check_module("world", world, module_of(world), file, allowed)


def check_network(network: str, file: Path, allowed: Sequence[str] = ()) -> None:
    """The same for a network that a file names, as "module:attribute"."""
    check_module("network", network, network.rpartition(":")[0], file, allowed)


def check_module(what: str, name: str, module: str, file: Path, allowed: Sequence[str]) -> None:
    """Raise InputError if the module of what a file names is neither loaded nor allowed."""
    if not module or module in sys.modules or module in _allowed or module in allowed:
        return
    if not all(part.isidentifier() for part in module.split(".")):
        raise FileError(f"{file}: names the {what} {name!r:.100}, and {module!r:.100} cannot be the name of a module")
    raise InputError(
        f"{file}: names a {what} of the module '{module}', and files do not decide what is imported; if you trust it, allow "
        f"it with --allow-module {module}, in Python with evarl.allow_modules('{module}')"
    )


def import_module(module: str) -> Any:
    """A module, which may be in the current directory, as with `python -m`."""
    here = "" in sys.path or not _absent(module)
    if not here:
        sys.path.insert(0, "")
    return importlib.import_module(module)


def _absent(module: str) -> bool:
    """Whether a module is not to be found on the path as it is."""
    try:
        return module not in sys.modules and importlib.util.find_spec(module.partition(".")[0]) is None
    except ValueError:  # a module without a specification
        return False
