"""Writing files so that a reader never sees half of one, whatever happens in between."""

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from evarl.errors import FileError

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that would break a line, steer a terminal or cannot be printed."""


def reason(error: BaseException) -> str:
    """What a library says is wrong, to be put into an error of one line."""
    return " ".join(CONTROL.sub(" ", str(error)).split())[:200] or type(error).__name__


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
