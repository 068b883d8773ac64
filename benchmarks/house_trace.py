"""Prints, as JSON, the calls of evarl's functions while one update is traced: `[file, function]` in the order of calls.

`benchmarks.house` runs this file in a process of its own, with the source tree that it measures first on PYTHONPATH.
"""

import dataclasses
import json
import os
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import evarl

ROOT = f"{Path(evarl.__file__).parent}{os.sep}"
ENTRIES = ("Learner.update", "update")
"""What the update is called in `learning/`."""


class Recorder:
    """A profile function that records calls from the first entry of the update to its return, and then ends the process."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.update: FrameType | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Called by Python at every call and return."""
        code = frame.f_code
        if not code.co_filename.startswith(ROOT):
            return
        if event == "call":
            self.update = self.update or (frame if is_update(code) else None)
            if self.update is not None:
                self.calls.append((code.co_filename.removeprefix(ROOT), code.co_qualname))
        elif event == "return" and frame is self.update:
            sys.setprofile(None)
            print(json.dumps(self.calls), flush=True)
            os._exit(0)  # what remains is compilation


def is_update(code: CodeType) -> bool:
    return code.co_filename.startswith(f"{ROOT}learning{os.sep}") and code.co_qualname in ENTRIES


def train_a_little(folder: str) -> None:
    config = evarl.preset("navigation")
    config = dataclasses.replace(
        config,
        evaluator=dataclasses.replace(config.evaluator, warmup=1),
        beta=0.05,
        seeds=1,
        updates=2,
        environments=2,
        steps=4,
        horizon=8,
    )
    sys.setprofile(Recorder())
    evarl.train(config, out=Path(folder) / "run")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train_a_little(folder)
    sys.exit(f"no call of {' or '.join(ENTRIES)} in {ROOT}learning")
