"""Checkpoints of one group of seeds: the newest few are kept, and a damaged one gives way to the one before it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evarl.errors import FileError
from evarl.storage.files import delete
from evarl.storage.tensors import load_tree, save_tree

KEPT = 3


def save_checkpoint(folder: Path, update: int, state: Any) -> None:
    """Write the state after `update` updates, then drop the oldest checkpoints."""
    save_tree(_path(folder, update), state, {"kind": "checkpoint", "update": str(update)})
    for path in sorted(folder.glob("update-*.safetensors"))[:-KEPT]:
        delete(path)


def load_newest(folder: Path, template: Any, warn: Callable[[str], None]) -> tuple[int, Any] | None:
    """The newest checkpoint that is whole, and its update; None when there is none. Damaged ones are reported."""
    for path in sorted(folder.glob("update-*.safetensors"), reverse=True):
        try:
            state, about = load_tree(path, template)
            update = about.get("update", "")
            if about.get("kind") != "checkpoint" or not update.isdecimal() or _path(folder, int(update)) != path:
                raise FileError(f"{path}: is not the checkpoint its name says")
            return int(update), state
        except FileError as error:
            warn(f"{error}; falling back to the checkpoint before it")
    return None


def _path(folder: Path, update: int) -> Path:
    return folder / f"update-{update:09d}.safetensors"
