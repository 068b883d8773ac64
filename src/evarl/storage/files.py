"""Files: written so that a reader never sees half of one, and read only if they are regular and not too long."""

import errno
import hashlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from evarl.errors import FileError

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that would break a line, steer a terminal or cannot be printed."""
PIECE = 2**20
"""Bytes that are read at once where a file need not be in memory as a whole."""


def reason(error: BaseException) -> str:
    """What a library says is wrong, to be put into an error of one line."""
    return " ".join(CONTROL.sub(" ", str(error)).split())[:200] or type(error).__name__


def read_regular(path: Path, longest: int) -> bytes:
    """The contents of a regular file of at most `longest` bytes; FileError for whatever else stands at `path`."""
    with _opened(path, longest) as (file, size):
        return file.read(size)


def hash_regular(path: Path, longest: int) -> str:
    """SHA-256 of a regular file of at most `longest` bytes, read in pieces; FileError for whatever else is at `path`."""
    digest = hashlib.sha256()
    with _opened(path, longest) as (file, size):
        while size > 0 and (piece := file.read(min(size, PIECE))):
            digest.update(piece)
            size -= len(piece)
    return digest.hexdigest()


def check_regular(path: Path, longest: int) -> None:
    """Refuse what `read_regular` refuses, without reading: for libraries that open files themselves."""
    with _opened(path, longest):
        pass


def read_end(path: Path, longest: int) -> bytes:
    """The last `longest` bytes of a regular file."""
    with _opened(path, sys.maxsize) as (file, size):
        file.seek(max(0, size - longest))
        return file.read(longest)


def check_appendable(path: Path) -> None:
    """Refuse to append to what exists and is no regular file: opening a FIFO for writing waits for a reader."""
    if os.path.lexists(path):
        check_regular(path, sys.maxsize)


def delete(path: Path) -> None:
    """Delete a file; FileError where a directory, or a lack of rights, stands in the way."""
    try:
        path.unlink()
    except OSError as error:
        raise FileError(f"{path}: cannot be deleted ({error.strerror or error}); move it away") from error


def refuse_links_out(folder: Path) -> None:
    """FileError if anything in a folder links to what lies outside of it; the folder itself may be reached by a link."""
    root = os.path.realpath(folder)
    for inside, folders, files in os.walk(root):
        for one in (os.path.join(inside, name) for name in (*folders, *files)):
            if os.path.islink(one) and os.path.commonpath([root, target := os.path.realpath(one)]) != root:
                shown = os.path.join(folder, os.path.relpath(one, root))
                raise FileError(f"{shown}: links to {target}, outside of {folder}; put the file itself there")


@contextmanager
def _opened(path: Path, longest: int) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file, and its size. It is opened before it is looked at, so that both are of one file."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise FileError(f"{path}: is not a regular file")
            if found.st_size > longest:
                raise FileError(f"{path}: is longer than {longest} bytes, which no file of this kind is")
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
    """Opening a FIFO waits for somebody to write into it, unless told otherwise."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def write_atomically(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write to a temporary file beside `path`, flush it to disk, then rename it over `path`."""
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
            f"Make room and try again (a run goes on with --resume)"
        ) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically."""

    def write(file: BinaryIO) -> None:
        file.write(data)

    write_atomically(path, write)
