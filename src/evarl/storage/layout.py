"""The layout of run directories and files of arrays: a number that grows when older ones can no longer be read. No JAX."""

import functools
import importlib.metadata
from pathlib import Path
from typing import Any

from evarl.errors import FileError

LAYOUT = 2
FIRST = "0.1.0"
"""The version that wrote layout 1, in which files of arrays do not record their version."""


@functools.cache
def version(package: str = "evarl") -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_layout(path: Path, kind: str, layout: Any, writer: Any, remedy: str) -> None:
    """Raise FileError unless `layout` is the one that this version reads.

    >>> check_layout(Path("runs/x"), "run directory", 1, "0.1.0", "Train it again")
    Traceback (most recent call last):
    evarl.errors.FileError: runs/x: is a run directory of layout 1, written by evarl 0.1.0; this version reads layout 2...
    """
    if type(layout) is int and layout == LAYOUT:
        return
    article = "an" if kind[:1] in "aeiou" else "a"
    raise FileError(
        f"{path}: is {article} {kind} of layout {layout!s:.20}, written by evarl {writer!s:.20}; "
        f"this version reads layout {LAYOUT}. {remedy}, or use that version"
    )
