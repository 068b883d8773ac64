"""Checkpoints of a group of seeds: the newest few are kept, and a damaged one is replaced by the one before it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evarl.errors import FileError
from evarl.storage.files import delete
from evarl.storage.tensors import as_tree, load_arrays, save_tree

KEPT = 3
"""Number of checkpoints that are kept."""


def save_checkpoint(folder: Path, update: int, state: Any) -> None:
    """Write the state after `update` updates, then delete the oldest checkpoints."""
    save_tree(_path(folder, update), state, {"kind": "checkpoint", "update": str(update)})
    for path in sorted(folder.glob("update-*.safetensors"))[:-KEPT]:
        delete(path)


def load_newest(folder: Path, template: Any, warn: Callable[[str], None]) -> tuple[int, Any] | None:
    """The update and the state of the newest undamaged checkpoint, or None; `warn` is called for each damaged one."""
    for path in sorted(folder.glob("update-*.safetensors"), reverse=True):
        try:
            arrays, about = load_arrays(path)
            state = as_tree(path, arrays, template)
            update = about.get("update", "")
            if about.get("kind") != "checkpoint" or not update.isdecimal() or _path(folder, int(update)) != path:
                raise FileError(f"{path}: is not the checkpoint that its name says")
            return int(update), state
        except FileError as error:
            warn(f"{error}; falling back to the checkpoint before it")
    return None


def newest_update(folder: Path) -> int:
    """The number of updates after which the newest checkpoint was written; 0 if there is none."""
    names = (path.stem.removeprefix("update-") for path in folder.glob("update-*.safetensors"))
    return max((int(name) for name in names if name.isdecimal()), default=0)


def _path(folder: Path, update: int) -> Path:
    return folder / f"update-{update:09d}.safetensors"
