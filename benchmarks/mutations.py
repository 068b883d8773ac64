"""Damaged copies of files, for `make fuzz` and the tests.

Damage to bytes is what disks, networks and editors do; a checksum has to notice it. Damage to contents is what somebody
does on purpose: the file is well-formed, every checksum in it fits, and what it says is wrong.
"""

import copy
import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, numpy as safetensors

Rng = np.random.Generator
Damage = Callable[[Rng, bytes], bytes]
Edit = Callable[[Rng, Any], Any]
"""Changes plain data or arrays, in place or not."""
Arrays = dict[str, np.ndarray]


# Bytes


def _cut(rng: Rng, data: bytes) -> tuple[int, int]:
    """A part that is short more often than long."""
    begin = int(rng.integers(len(data)))
    return begin, min(len(data), begin + 1 + int(2 ** rng.uniform(0, 12)))


def _flip_a_bit(rng: Rng, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _change_bytes(rng: Rng, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        changed[rng.integers(len(data))] = int(rng.integers(256))
    return bytes(changed)


def _truncate(rng: Rng, data: bytes) -> bytes:
    return data[: rng.integers(len(data))]


def _insert(rng: Rng, data: bytes) -> bytes:
    at = int(rng.integers(len(data) + 1))
    return data[:at] + rng.bytes(int(rng.integers(1, 64))) + data[at:]


def _delete(rng: Rng, data: bytes) -> bytes:
    begin, end = _cut(rng, data)
    return data[:begin] + data[end:]


def _swap_blocks(rng: Rng, data: bytes) -> bytes:
    a, b, c = sorted(int(at) for at in rng.integers(len(data) + 1, size=3))
    return data[:a] + data[b:c] + data[a:b] + data[c:]


def _zero(rng: Rng, data: bytes) -> bytes:
    begin, end = _cut(rng, data)
    return data[:begin] + bytes(end - begin) + data[end:]


def _repeat(rng: Rng, data: bytes) -> bytes:
    begin, end = _cut(rng, data)
    return data[:end] + data[begin:end] + data[end:]


def _append(rng: Rng, data: bytes) -> bytes:
    return data + (data if rng.random() < 0.2 else rng.bytes(int(rng.integers(1, 64))))


BYTES: dict[str, Damage] = {
    "a bit flipped": _flip_a_bit,
    "bytes changed": _change_bytes,
    "truncated": _truncate,
    "bytes inserted": _insert,
    "bytes deleted": _delete,
    "blocks swapped": _swap_blocks,
    "a block zeroed": _zero,
    "a part repeated": _repeat,
    "bytes appended": _append,
}


# What is no regular file


def _fifo(file: Path, copy: Path) -> None:
    os.mkfifo(file)


def _sparse(file: Path, copy: Path) -> None:
    with file.open("wb") as one:
        one.truncate(40 * 2**30)


SPECIAL: dict[str, Callable[[Path, Path], None]] = {
    "a FIFO": _fifo,
    "a device": lambda file, copy: file.symlink_to("/dev/zero"),
    "a directory": lambda file, copy: file.mkdir(),
    "a sparse file of 40 GiB": _sparse,
    "a link to itself": lambda file, copy: file.symlink_to(file.name),
    "a link to nowhere": lambda file, copy: file.symlink_to("nowhere"),
    "a link to a copy": lambda file, copy: file.symlink_to(copy),
}
"""What can stand in the place of a file; `copy` is a whole one elsewhere."""


# Plain data

STEERING = ("\x1b[2J", "\x9b2J", "\x1b]0;title\x07", "\r", "\u202e", "\u2066", "\u2028", "\x7f")
"""Texts that would clear a screen, name a window, overwrite a line or turn the direction of reading."""
MODULE = "evarl_fuzz_payload"
"""A Python module beside the files. Nobody may import it."""
MODULES = (MODULE, f"{MODULE}:CartPole-v1", f"gymnasium/{MODULE}:CartPole-v1", f"gymnasium/{MODULE}:None-v0")
"""Texts that somebody may take for what is to be imported."""
WORDS = (
    "",
    "x",
    "J",
    "nan",
    "-1",
    "1e400",
    "__class__",
    "/dev/zero",
    "two\nlines",
    "\x00",
    *STEERING,
    *MODULES,
    "\ud800",
    "é≠",
    "a" * 10_000,
)
NUMBERS = (0, 1, -1, -5, 2**31, 10**12, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 5e-324, 1.5, 1e12, 1e300, -1e308)
NO_NUMBERS = (float("nan"), float("inf"), float("-inf"))
OTHERS: tuple[Any, ...] = (None, True, False, 7, 2.5, "word", [], {}, [1, "a"], {"a": 1}, [[]], [None])
RAW = {
    "@digits@": "9" * 5000,
    "@exponent@": "1e999999",
    "@steep@": "[" * 950 + "]" * 950,
    "@lists@": "[" * 100_000 + "]" * 100_000,
    "@tables@": '{"a":' * 100_000 + "1" + "}" * 100_000,
}
"""Texts that json.dumps would not write, and what is put in their place until it has written the rest."""


def _pick(rng: Rng, options: Sequence[Any]) -> Any:
    return copy.deepcopy(options[int(rng.integers(len(options)))])


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Every value inside, as its container and its key there."""
    found: list[tuple[Any, Any]] = []
    waiting = [data]
    while waiting:
        one = waiting.pop()
        for key in one if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ():
            found.append((one, key))
            waiting.append(one[key])
    return found


def _replaced(kind: type | tuple[type, ...], options: Sequence[Any] | Callable[[Rng, Any], Any]) -> Edit:
    """An edit of one value of a kind; numbers in long lists are no likelier to be hit than all the rest together."""

    def edit(rng: Rng, data: Any) -> Any:
        places = [(one, key) for one, key in _places(data) if isinstance(one[key], kind)]
        named = [place for place in places if isinstance(place[0], dict)]
        places = named if named and rng.random() < 0.5 else places
        if not places:
            return [_pick(rng, OTHERS)]
        one, key = places[int(rng.integers(len(places)))]
        one[key] = options(rng, one[key]) if callable(options) else _pick(rng, options)
        return data

    return edit


def _drop(rng: Rng, table: Any) -> Any:
    if table:
        del table[_pick(rng, list(table) if isinstance(table, dict) else range(len(table)))]
    return table


def _add(rng: Rng, table: Any) -> Any:
    if isinstance(table, list):
        table.insert(int(rng.integers(len(table) + 1)), _pick(rng, [*OTHERS, *table]))
    else:
        table[_pick(rng, WORDS)] = _pick(rng, [*OTHERS, *table.values()])
    return table


def _rename(rng: Rng, table: dict[str, Any]) -> dict[str, Any]:
    old = _pick(rng, [None, *table])
    new = _pick(rng, [*WORDS, str(old) + " ", str(old).upper()])
    return {new if key == old else key: value for key, value in table.items()}


def _resize(rng: Rng, values: list[Any]) -> list[Any]:
    return _pick(rng, [values * 2, values[::-1], values[:1], values[:-1], [], [values], values + values[-1:]])


def _nest(rng: Rng, value: Any) -> Any:
    for _ in range(int(2 ** rng.uniform(0, 8.5))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def _swap_values(rng: Rng, data: Any) -> Any:
    places = _places(data)
    (one, a), (other, b) = (places[int(i)] for i in rng.integers(len(places), size=2))
    one[a], other[b] = copy.deepcopy(other[b]), copy.deepcopy(one[a])
    return data


def _reorder(rng: Rng, data: Any) -> Any:
    """The same, with tables in another order."""
    if isinstance(data, list):
        return [_reorder(rng, one) for one in data]
    return {name: _reorder(rng, data[name]) for name in reversed(data)} if isinstance(data, dict) else data


PLAIN: dict[str, Edit] = {
    "a value of another type": _replaced(object, OTHERS),
    "another number": _replaced((int, float), NUMBERS),
    "a number that is none": _replaced((int, float), NO_NUMBERS),
    "a number nearby": _replaced((int, float), lambda rng, x: type(x)(x + _pick(rng, (1, -1)))),
    "a number as another type": _replaced((int, float), lambda rng, x: _pick(rng, (str(x), float(x), [x], bool(x)))),
    "another text": _replaced(str, WORDS),
    "a text that steers the terminal": _replaced(str, lambda rng, x: x[: len(x) // 2] + _pick(rng, STEERING) + x),
    "a text with a letter changed": _replaced(str, lambda rng, x: x[:-1] + _pick(rng, "0aZ\n")),
    "null": _replaced(object, [None]),
    "a key or an item dropped": _replaced((dict, list), _drop),
    "a key or an item added": _replaced((dict, list), _add),
    "a key renamed": _replaced(dict, _rename),
    "a list of another length": _replaced(list, _resize),
    "deep nesting": _replaced(object, _nest),
    "what cannot be written": _replaced(object, tuple(RAW)),
    "two values swapped": _swap_values,
    "another order": _reorder,
}
"""Edits of what is inside a table or a list."""


def edited(rng: Rng, data: Any, edits: Sequence[str] = tuple(PLAIN)) -> tuple[str, Any]:
    """Plain data with something wrong in it, or wrong as a whole."""
    name = _pick(rng, edits)
    (found,) = PLAIN[name](rng, [copy.deepcopy(data)])
    return name, found


def as_text(data: Any, indent: int | None = None) -> bytes:
    """JSON, with what JSON has no words for."""
    text = json.dumps(data, indent=indent)
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode()


def json_damage(rng: Rng, data: bytes, seal: Edit, edits: Sequence[str] = tuple(PLAIN)) -> tuple[str, bytes]:
    """Something wrong in a JSON file; `seal` makes its checksums fit again."""
    name, found = edited(rng, json.loads(data), edits)
    return name, as_text(seal(rng, found), _pick(rng, (None, 1, 4)))


def digest(data: Any, length: int = 64) -> str:
    """SHA-256 of plain data, NaN included, as certificates and configurations have it."""
    return sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:length]


# Arrays


def _one(change: Callable[[Rng, np.ndarray], np.ndarray]) -> Edit:
    """An edit of one array."""

    def edit(rng: Rng, arrays: Arrays) -> Arrays:
        name = _pick(rng, sorted(arrays))
        return arrays | {name: change(rng, arrays[name])}

    return edit


def _drop_array(rng: Rng, arrays: Arrays) -> Arrays:
    gone = _pick(rng, sorted(arrays))
    return {} if rng.random() < 0.1 else {name: x for name, x in arrays.items() if name != gone}


def _add_array(rng: Rng, arrays: Arrays) -> Arrays:
    return arrays | {
        _pick(rng, ("more", "", "two\nlines", "../x", *sorted(arrays)[:1])): _pick(rng, list(arrays.values()))
    }


def _rename_array(rng: Rng, arrays: Arrays) -> Arrays:
    old = _pick(rng, sorted(arrays))
    new = _pick(rng, ["", "two\nlines", "\x1b[2J", old + "/0", old.upper(), *sorted(arrays)])
    return {new if name == old else name: x for name, x in arrays.items()}


def _swap_arrays(rng: Rng, arrays: Arrays) -> Arrays:
    a, b = _pick(rng, sorted(arrays)), _pick(rng, sorted(arrays))
    return arrays | {a: arrays[b], b: arrays[a]}


def _retype(rng: Rng, x: np.ndarray) -> np.ndarray:
    kinds = ("f2", "f4", "f8", "i1", "u1", "i4", "i8", "u8", "?", ml_dtypes.bfloat16, "c8")
    with np.errstate(all="ignore"):
        return x.astype(_pick(rng, kinds))


def _reshape(rng: Rng, x: np.ndarray) -> np.ndarray:
    flat = x.reshape(-1)
    options = [flat, x[None], x[..., None], x.T, flat[:0], np.zeros((0, 10**12), x.dtype)]
    options += [x[:1], x[:-1], x[1:], x[..., :0], np.concatenate([x, x])] if x.ndim else []
    options += [flat[0]] if flat.size else []
    return np.asarray(_pick(rng, options))


def _revalue(rng: Rng, x: np.ndarray) -> np.ndarray:
    x = x.copy(order="C")
    if not x.size:
        return x
    if x.dtype.kind == "f":
        x.flat[rng.integers(x.size)] = _pick(rng, (np.nan, np.inf, -np.inf, 0.0, -1.0, 1.0, 1e30, 0.25))
    else:
        x.flat[rng.integers(x.size)] = _pick(rng, (0, 1, 100)) if x.dtype.kind in "ui" else rng.random() < 0.5
    return x


def _scramble(rng: Rng, x: np.ndarray) -> np.ndarray:
    x = x.copy(order="C")
    raw = x.reshape(-1).view(np.uint8)
    raw[: len(raw)] = np.frombuffer(rng.bytes(len(raw)), np.uint8)
    return x


def _widen(rng: Rng, x: np.ndarray) -> np.ndarray:
    """Numbers that fit into no smaller type."""
    if x.dtype.kind == "f":
        return x.astype("f8") * 1e300
    return x.astype("i8") + 2**40


ARRAYS: dict[str, Edit] = {
    "an array missing": _drop_array,
    "an array more": _add_array,
    "an array renamed": _rename_array,
    "two arrays swapped": _swap_arrays,
    "an array of another type": _one(_retype),
    "an array of another shape": _one(_reshape),
    "an array with another value": _one(_revalue),
    "an array of random bits": _one(_scramble),
    "an array of wide numbers": _one(_widen),
}


# Safetensors: eight bytes that say how long the header is, the header in JSON, the numbers


def read_tensors(data: bytes) -> tuple[Arrays, Any]:
    """Arrays and the text beside them, without its checksum."""
    length = int.from_bytes(data[:8], "little")
    about = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["evarl"])
    if isinstance(about, dict):
        about.pop("sha256", None)
    return dict(sorted(safetensors.load(data).items())), about  # their order is random


def write_tensors(arrays: Arrays, about: Any) -> bytes:
    """A file whose checksum fits, if there can be one."""
    if isinstance(about, dict):
        sealed = sha256(repr(sorted(about.items())).encode())
        for name in sorted(arrays):
            sealed.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
            sealed.update(np.ascontiguousarray(arrays[name]).tobytes())
        about = {**about, "sha256": sealed.hexdigest()}
    return safetensors.save(arrays, metadata={"evarl": as_text(about).decode()})


def _edit_header(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """Types, shapes, offsets and whatever else the header says; with a checksum that fits where the format allows it."""
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    if rng.random() < 0.3:
        one = header[_pick(rng, [name for name in header if name != "__metadata__"])]
        one["dtype"] = _pick(rng, ("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "C64", "X", ""))
        name = "header: another dtype"
    else:
        name, header = edited(rng, header)
        name = f"header: {name}"
    text = as_text(header)
    length = len(text) if rng.random() < 0.9 else int(rng.integers(2**62))
    changed = length.to_bytes(8, "little") + text + body
    try:
        return name, write_tensors(*read_tensors(changed))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        return name, changed


def tensors_damage(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """Something wrong in a safetensors file, with a checksum that fits."""
    arrays, about = read_tensors(data)
    part = rng.random()
    if part < 0.25:
        return _edit_header(rng, data)
    if part < 0.5:
        name, about = edited(rng, about)
        return f"about: {name}", write_tensors(arrays, about)
    name = _pick(rng, list(ARRAYS))
    return name, write_tensors({key: np.asarray(x, order="C") for key, x in ARRAYS[name](rng, arrays).items()}, about)


# .npz: a ZIP archive of arrays, each behind a header that is Python's notation of a table


def read_npz(data: bytes) -> Arrays:
    """Arrays by name."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


class Payload:
    """An object that makes a file when it is unpickled."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


def pickled(marker: Path) -> bytes:
    """A file that is nothing but a pickled payload."""
    return pickle.dumps(Payload(marker))


def _write_npz(rng: Rng, arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    (np.savez if rng.random() < 0.5 else np.savez_compressed)(file, **arrays)
    return file.getvalue()


def _edit_npy(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """The header of one array, inside an archive whose own checksums fit."""
    members = _members(data)
    name = _pick(rng, sorted(members))
    raw = members[name]
    length = int.from_bytes(raw[8:10], "little")
    header, body = raw[10 : 10 + length].decode(), raw[10 + length :]
    options = {
        "descr": ("'|O'", "'<f4'", "'>f8'", "'<i8'", "'<U8'", "[('a', '<f8')]", "'<c16'", "'x'", "('<f8', (2,))", "1"),
        "shape": (
            "()",
            "(1,)",
            "(2, 1)",
            "(-1,)",
            "(10**12,)",
            "(1000000000000,)",
            "(2.5,)",
            "(1L,)",
            "'a'",
            "(99999,)",
        ),
        "fortran_order": ("True", "1", "None", "__import__('os')"),
    }
    key = _pick(rng, [*options, "anything"])
    if key == "anything":
        header = _pick(rng, (header[:-20], "{}\n", "(" * 5000, header + " " * 20_000, "{'a': 1}", "é", header * 2))
    else:
        before, after = header.split(f"'{key}': ")
        old = after[: after.index(")") + 1] if key == "shape" else after[: after.index(",")]
        header = before + f"'{key}': " + _pick(rng, options[key]) + after[len(old) :]
    text = header.encode("latin1")
    version = _pick(rng, (b"\1\0", b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\t\0"))
    size = len(text).to_bytes(2 if version[0] == 1 else 4, "little")
    members[name] = raw[:6] + version + size + text + body
    return f"array header: {key}", _zipped(members)


def _edit_archive(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """What only an archive can have wrong."""
    members = _members(data)
    name = _pick(
        rng, ("an array alone", "no array", "a folder", "an empty member", "encrypted", "unknown compression", "huge")
    )
    first = sorted(members)[0]
    if name == "an array alone":
        return name, members[first]
    if name == "huge":
        file = io.BytesIO()
        np.savez_compressed(file, zeros=np.zeros(2**22))
        return name, file.getvalue()
    if name in ("encrypted", "unknown compression"):
        raw = bytearray(data)
        for sign, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            at = raw.find(sign) + flags
            if name == "encrypted":
                raw[at] |= 1
            else:
                raw[at + 2] = 77
        return name, bytes(raw)
    more = {"no array": {"terminal": b"text"}, "a folder": {"a/": b""}, "an empty member": {first: b""}}
    return name, _zipped(members | more[name])


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _zipped(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, raw in members.items():
            archive.writestr(zipfile.ZipInfo(name), raw)  # without the time of day
    return file.getvalue()


def npz_damage(rng: Rng, data: bytes, marker: Path) -> tuple[str, bytes]:
    """Something wrong in an .npz file, whose checksums fit; sometimes an object that makes `marker` when it is unpickled."""
    part = rng.random()
    if part < 0.3:
        return _edit_npy(rng, data)
    if part < 0.45:
        return _edit_archive(rng, data)
    arrays = read_npz(data)
    if part < 0.55:
        return "a pickled object", _write_npz(
            rng, arrays | {_pick(rng, [*arrays, "more"]): np.array([Payload(marker)], object)}
        )
    name = _pick(rng, list(ARRAYS))
    return name, _write_npz(rng, ARRAYS[name](rng, arrays))
