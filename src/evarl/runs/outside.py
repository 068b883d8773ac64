"""Directories of outside policies: a world, and the parameters of one policy that this package did not train.

They are run directories without training, so that certificates and their ledger are kept as for any run. The file of the policy
holds its parameters and its code, and nothing in it is executed: the policy that acts is always given by the user, and compared
with the file.
"""

import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from evarl.errors import FileError, InputError
from evarl.learning.configuration import TrainConfig
from evarl.policies.acting import ActingOutside
from evarl.policies.outside import OutsidePolicy
from evarl.policies.wrap import wrap_policy
from evarl.runs.directory import RunDirectory, create, open_run
from evarl.runs.run import Run
from evarl.storage.files import CONTROL
from evarl.storage.tensors import load_arrays, save_tree

KIND = "outside policy"
SEED = 0
"""The seed under which the policy is kept; nothing was drawn from it."""


class OutsideRun(Run):
    """The directory of an outside policy, together with the policy itself."""

    def __init__(self, directory: RunDirectory, policy: OutsidePolicy):
        super().__init__(directory)
        self.outside = policy

    @classmethod
    def create(cls, path: str | Path, policy: Any, config: TrainConfig) -> "OutsideRun":
        """Make the directory of a policy that acts in the world of a configuration, or open one that was made so.

        The policy is an OutsidePolicy, or what `evarl.wrap_policy` recognises.
        """
        policy, path, config = wrap_policy(policy), Path(path), config.resolved()
        config.validate()
        if os.path.lexists(path / "config.json"):
            return cls(open_run(path, config), policy).checked()
        if not (policy.parameters or policy.code):
            raise InputError(
                f"{policy.description}: cannot be identified, since its source is not known; must have parameters"
            )
        from evarl.worlds.registry import make_world

        ActingOutside.create(policy, make_world(config.world, config.horizon, config.discount, config.context))
        directory = create(path, config, [[SEED]], fill=lambda folder: _save(folder, policy))
        return cls(directory, policy).checked()

    @classmethod
    def open(cls, path: str | Path, policy: Any) -> "OutsideRun":
        """Open the directory of a policy, which must be the one that it was made with."""
        return cls(open_run(Path(path)), wrap_policy(policy)).checked()

    @functools.cached_property
    def acting(self) -> ActingOutside:
        """The policy in its world."""
        return ActingOutside.create(self.outside, self.world)

    def checked(self) -> "OutsideRun":
        """The run itself, if its file is that of the policy; InputError if not."""
        path = _file(self.path)
        arrays, about = load_arrays(path)
        if about.get("kind") != KIND:
            raise InputError(
                f"{self.path}: is a run that was trained here, with policies of its own; must be a directory of an outside policy"
            )
        expected = _arrays(self.outside)
        same = arrays.keys() == expected.keys() and all(_same(arrays[name], expected[name]) for name in arrays)
        if not same or about.get("policy") != self.outside.sha256:
            told = " ".join(str(about.get("description")).split())
            raise InputError(
                f"{self.path}: is the directory of another policy ({told}, {about.get('policy', '')[:12]}…); this one is "
                f"{self.outside.description}, {self.outside.sha256[:12]}…"
            )
        return self

    def other_versions(self) -> list[str]:
        """Packages that the policy's numbers depend on and that have other versions than when the directory was made."""
        _, about = load_arrays(_file(self.path))
        then, now = about.get("versions", ""), _versions(self.outside)
        return [] if then == now else [f"packages of the policy were {then:.80}, are {now:.80}"]


def is_outside(run: Run, seed: int) -> bool:
    """Whether the policy file of a run is that of an outside policy."""
    path = run.path / "policy" / f"seed-{seed}.safetensors"
    try:
        return path.exists() and load_arrays(path)[1].get("kind") == KIND
    except FileError:  # reported where the file is needed
        return False


def _file(path: Path) -> Path:
    return path / "policy" / f"seed-{SEED}.safetensors"


def _save(folder: Path, policy: OutsidePolicy) -> None:
    about = {
        "kind": KIND,
        "description": policy.description,
        "gives": policy.gives,
        "policy": policy.sha256,
        "versions": _versions(policy),
        "code": hashlib.sha256(policy.code.encode()).hexdigest(),
    }
    (folder / "policy").mkdir()
    save_tree(_file(folder), _arrays(policy), about)


def _arrays(policy: OutsidePolicy) -> dict[str, np.ndarray]:
    """Parameters and code, by the names under which they are kept."""
    code = np.frombuffer(policy.code.encode(), np.uint8)
    named = {f"parameters/{CONTROL.sub('?', name)}": array for name, array in policy.parameters.items()}
    return {"code": code, **named}


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether arrays agree to the last bit; NaN is equal to itself."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == np.asarray(other).tobytes()


def _versions(policy: OutsidePolicy) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(policy.versions.items()))
