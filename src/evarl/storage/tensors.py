"""Pytrees of arrays in safetensors files with a checksum. Reading them executes no code."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from evarl.errors import FileError
from evarl.storage.files import CONTROL, FIRST, LAYOUT, check_layout, check_regular, reason, version, write_bytes

LARGEST = 8 * 2**30
"""Maximum accepted size of a file in bytes."""
MOST = 10_000
"""Maximum accepted number of arrays, and of characters of all texts together."""
LONGEST = 1000
"""Maximum accepted length of a name or a text in characters."""


def save_tree(path: Path, tree: Any, about: dict[str, str]) -> None:
    """Write the leaves of a pytree under their paths, and the texts `about` beside them."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _named_leaves(tree).items()}
    about = {**about, "layout": str(LAYOUT), "version": str(version())}
    header = json.dumps({**about, "sha256": _digest(arrays, about)}, sort_keys=True)
    # one entry only: the format does not fix the order of several, and equal trees should be equal files
    write_bytes(path, save(arrays, metadata={"evarl": header}))


def as_tree(path: Path, arrays: dict[str, np.ndarray], template: Any) -> Any:
    """Arrays of the file `path` as a pytree like `template`; FileError unless names, shapes and dtypes are the same."""
    expected = _named_leaves(template)
    if arrays.keys() != expected.keys():
        odd = sorted(arrays.keys() ^ expected.keys())
        raise FileError(f"{path}: holds other arrays than expected: {len(odd)} names differ, first {odd[0]}")
    for name, leaf in expected.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            have = f"{arrays[name].dtype}{list(arrays[name].shape)}"
            raise FileError(f"{path}: {name} is {have}; must be {leaf.dtype}{list(leaf.shape)}")
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in expected])


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """All arrays of a file by name, and the texts beside them; FileError if its checksum or its layout is wrong."""
    check_regular(path, LARGEST)
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {})["evarl"]
            if len(text) > MOST or len(file.keys()) > MOST:
                raise ValueError("it holds more arrays or text than any file of this kind")
            about = json.loads(text)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — a file, not a dictionary
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{path}: corrupt or truncated ({reason(error)})") from error
    if not isinstance(about, dict) or not all(map(_is_word, [*arrays, *about, *about.values()])):
        raise FileError(f"{path}: corrupt (the texts beside its arrays are not plain text)")
    stated = about.pop("sha256", None)
    if stated != _digest(arrays, about):
        raise FileError(f"{path}: corrupt (its checksum does not fit its contents)")
    if any(not true_flags(array) for array in arrays.values()):
        raise FileError(f"{path}: corrupt (a flag is neither true nor false)")
    layout, writer = about.pop("layout", "1"), about.pop("version", FIRST)
    kind = f"{about.get('kind', '')[:40]} file".strip()
    check_layout(path, kind, LAYOUT if layout == str(LAYOUT) else layout, writer, "Make it again")
    return arrays, about


def true_flags(array: np.ndarray) -> bool:
    """Whether every boolean is a byte of 0 or 1; NumPy accepts others and computes wrong results with them."""
    return array.dtype != bool or not (array.view(np.uint8) > 1).any()


def _is_word(text: Any) -> bool:
    """Whether it is a short text without control characters, which can be shown in an error of one line."""
    return isinstance(text, str) and len(text) <= LONGEST and not CONTROL.search(text)


def _named_leaves(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _digest(arrays: dict[str, np.ndarray], about: dict[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(about.items())).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
