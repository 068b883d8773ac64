"""Trees of arrays on disk, in the safetensors format with a checksum: no code is ever loaded, and damage is noticed."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from evarl.errors import FileError
from evarl.storage.files import CONTROL, check_regular, reason, write_bytes

LARGEST = 8 * 2**30
"""Bytes of a file; one that is larger is none of ours."""
MOST = 10_000
"""Arrays in a file, and characters of all that stands beside them."""
LONGEST = 1000
"""Characters of a name or a value beside the arrays; those that are longer are none of ours."""


def save_tree(path: Path, tree: Any, about: dict[str, str]) -> None:
    """Write the leaves of `tree` under their paths, and `about` as text beside them."""
    arrays = _named_leaves(tree)
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in arrays.items()}
    header = json.dumps({**about, "sha256": _digest(arrays, about)}, sort_keys=True)
    # one entry only: the format does not fix the order of several, and equal trees should be equal files
    write_bytes(path, save(arrays, metadata={"evarl": header}))


def load_tree(path: Path, template: Any) -> tuple[Any, dict[str, str]]:
    """Read a tree with the structure, shapes and dtypes of `template`; FileError when anything does not fit."""
    arrays, about = load_arrays(path)
    wanted = _named_leaves(template)
    if arrays.keys() != wanted.keys():
        odd = sorted(arrays.keys() ^ wanted.keys())
        raise FileError(f"{path}: does not hold what is asked for: {len(odd)} names differ, first {odd[0]}")
    for name, leaf in wanted.items():
        if arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            have = f"{arrays[name].dtype}{list(arrays[name].shape)}"
            raise FileError(f"{path}: {name} is {have}, want {leaf.dtype}{list(leaf.shape)}")
    return jax.tree.unflatten(jax.tree.structure(template), [arrays[name] for name in wanted]), about


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read all arrays of a file by name, and the text beside them, after checking the checksum."""
    check_regular(path, LARGEST)
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {})["evarl"]
            if len(text) > MOST or len(file.keys()) > MOST:
                raise ValueError("it holds more than any file of this kind")
            about = json.loads(text)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — a file, not a dictionary
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{path}: corrupt or truncated ({reason(error)})") from error
    if not isinstance(about, dict) or not all(map(_is_word, [*arrays, *about, *about.values()])):
        raise FileError(f"{path}: corrupt (what stands beside its arrays is not plain text)")
    stated = about.pop("sha256", None)
    if stated != _digest(arrays, about):
        raise FileError(f"{path}: corrupt (its checksum does not fit its contents)")
    if any(not true_flags(array) for array in arrays.values()):
        raise FileError(f"{path}: corrupt (a flag is neither true nor false)")
    return arrays, about


def true_flags(array: np.ndarray) -> bool:
    """Whether every boolean is a byte of 0 or 1; NumPy takes others as they are and computes nonsense with them."""
    return array.dtype != bool or not (array.view(np.uint8) > 1).any()


def _is_word(text: Any) -> bool:
    """Whether it can be shown in an error of one line."""
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
