"""Only regular files of a bounded size are read, and whatever else stands in their place is refused at once."""

import hashlib
import os
import socket
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evarl.errors import FileError
from evarl.runs import metrics
from evarl.storage.files import check_regular, hash_regular, read_regular
from evarl.storage.plain import read_json
from evarl.storage.tensors import load_arrays, save_tree

GIB = 2**30


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(40 * GIB)


def _bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


ODD = {
    "fifo": (_fifo, "is not a regular file"),
    "socket": (_bound_socket, "is not a regular file"),
    "directory": (Path.mkdir, "is not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "terminal": (lambda path: path.symlink_to("/dev/ptmx"), "is not a regular file"),
    "sparse": (_sparse, f"is longer than {GIB} bytes, the maximum for this kind of file"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "no such file"),
    "link to itself": (lambda path: path.symlink_to(path.name), "cannot be read (Too many levels of symbolic links"),
    "nothing": (lambda path: None, "no such file"),
}


@pytest.mark.parametrize("read", [read_regular, hash_regular, check_regular])
@pytest.mark.parametrize("odd", ODD)
def test_odd_files_are_refused_at_once(tmp_path, monkeypatch, odd, read):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    path = Path("file")
    make, why = ODD[odd]
    make(path)
    with pytest.raises(FileError) as refused:
        read(path, GIB)
    assert str(refused.value).replace("[Errno 40] ", "").startswith(f"file: {why}")


def test_what_lies_below_a_file_is_missing_and_a_path_with_a_zero_byte_cannot_be_read(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="inside: no such file"):
        read_regular(tmp_path / "file" / "inside", 10)
    with pytest.raises(FileError, match="cannot be read"):
        read_regular(Path("a\0b"), 10)


@pytest.mark.parametrize("data", [b"", b"abc", bytes(range(256)) * 10_000])
def test_regular_files_are_read_and_hashed_whole(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    assert read_regular(path, len(data)) == data
    assert hash_regular(path, len(data)) == hashlib.sha256(data).hexdigest()
    if data:
        with pytest.raises(FileError, match=rf"is longer than {len(data) - 1} bytes"):
            read_regular(path, len(data) - 1)


def test_a_link_that_the_user_names_is_followed(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 3) == b"abc"


@pytest.mark.parametrize("text", ["[" + "[]," * 2**21 + "0]", "[" + "0," * 2**22 + "0]"])
def test_a_file_of_few_bytes_and_many_values_is_refused(tmp_path, text):
    (tmp_path / "file").write_text(text)
    with pytest.raises(FileError, match="holds more values than any file of this kind"):
        read_json(tmp_path / "file")


def test_a_table_whose_rows_take_no_room_in_the_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "LARGEST", 2**20)
    path = tmp_path / "metrics.parquet"
    pq.write_table(pa.table({"return": np.zeros(2**18)}), path)
    assert path.stat().st_size < 10_000
    with pytest.raises(FileError, match=r"it says that it holds 262144 rows"):
        metrics.MetricsTable.read(path)


def test_a_file_of_many_arrays_or_many_words_is_refused(tmp_path):
    save_tree(tmp_path / "arrays", {str(i): np.zeros(0) for i in range(10_001)}, {})
    save_tree(tmp_path / "words", {}, {str(i): "word" for i in range(1000)})
    for name in ("arrays", "words"):
        with pytest.raises(FileError, match="it holds more arrays or text than any file"):
            load_arrays(tmp_path / name)
