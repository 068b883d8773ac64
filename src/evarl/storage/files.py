"""Atomic writing of files, reading of regular files of limited size, and the layout of what is written. No JAX."""

import errno
import functools
import hashlib
import importlib.metadata
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from evarl.errors import FileError

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that break lines, control a terminal or cannot be printed."""
LAYOUT = 2
"""The layout of run directories and files of arrays, which grows when older ones can no longer be read."""
FIRST = "0.1.0"
"""The version that wrote layout 1, in which files of arrays do not record their version."""
PIECE = 2**20
"""Bytes that are read at once for hashing."""


def reason(error: BaseException) -> str:
    """The message of a library's exception on one line, shortened."""
    return " ".join(CONTROL.sub(" ", str(error)).split())[:200] or type(error).__name__


def read_regular(path: Path, longest: int) -> bytes:
    """The contents of a regular file of at most `longest` bytes; FileError for anything else at `path`."""
    with _opened(path, longest) as (file, size):
        return file.read(size)


def hash_regular(path: Path, longest: int) -> str:
    """SHA-256 of a regular file of at most `longest` bytes, in hexadecimal; FileError for anything else at `path`."""
    digest = hashlib.sha256()
    with _opened(path, longest) as (file, size):
        while size > 0 and (piece := file.read(min(size, PIECE))):
            digest.update(piece)
            size -= len(piece)
    return digest.hexdigest()


def check_regular(path: Path, longest: int) -> None:
    """Raise FileError where `read_regular` does, without reading: for libraries that open files themselves."""
    with _opened(path, longest):
        pass


def read_end(path: Path, longest: int) -> bytes:
    """The last `longest` bytes of a regular file."""
    with _opened(path, sys.maxsize) as (file, size):
        file.seek(max(0, size - longest))
        return file.read(longest)


def check_appendable(path: Path) -> None:
    """Raise FileError if `path` exists and is not a regular file; opening a FIFO would wait for a reader."""
    if os.path.lexists(path):
        check_regular(path, sys.maxsize)


def delete(path: Path) -> None:
    """Delete a file; FileError if it is a directory or may not be deleted."""
    try:
        path.unlink()
    except OSError as error:
        raise FileError(f"{path}: cannot be deleted ({error.strerror or error}); move it away") from error


def refuse_links_out(folder: Path) -> None:
    """Raise FileError if a link in a folder leads outside of it; the folder itself may be a link."""
    root = os.path.realpath(folder)
    for inside, folders, files in os.walk(root):
        for one in (os.path.join(inside, name) for name in (*folders, *files)):
            if os.path.islink(one) and os.path.commonpath([root, target := os.path.realpath(one)]) != root:
                shown = os.path.join(folder, os.path.relpath(one, root))
                raise FileError(f"{shown}: links to {target}, outside of {folder}; put the file itself there")


@contextmanager
def _opened(path: Path, longest: int) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file, opened for reading, and its size, both of the same file."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise FileError(f"{path}: is not a regular file")
            if found.st_size > longest:
                raise FileError(f"{path}: is longer than {longest} bytes, the maximum for this kind of file")
            yield file, found.st_size
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise FileError(f"{path}: is not a regular file") from error
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        socket = isinstance(error, OSError) and error.errno == errno.ENXIO
        why = "is not a regular file" if socket else f"cannot be read ({reason(error)})"
        raise FileError(f"{path}: {why}") from error


def _open_without_waiting(path: str, flags: int) -> int:
    """Open without waiting for a writer, as opening a FIFO otherwise does."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a temporary file beside `path`, flush it to disk and rename it to `path`, so that no reader sees half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise FileError(
            f"cannot write {path}: {error.strerror or error}; what was there before is intact. "
            f"Make room and try again (with --resume for a run)"
        ) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically."""
    write_atomically(path, lambda file: file.write(data))


@functools.cache
def version(package: str = "evarl") -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cache_folder() -> Path:
    """The folder for what is kept to save time and can be deleted: ~/.cache/evarl, or that under $XDG_CACHE_HOME."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evarl"


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
