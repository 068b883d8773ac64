"""Traced programs of training, kept on disk: a later run with the same settings need not trace and lower its update again.

What is kept is StableHLO, which says what is to be computed; machine code is made of it by XLA, or comes from JAX's own cache of
compiled programs. Training compiles what was written also when it has just been traced, so that both give the same machine code.
"""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from evarl.assessment.assessment import Assessment
from evarl.errors import FileError
from evarl.learning.engines import Lower, lowered
from evarl.learning.learner import Learner
from evarl.runs.known import key_for, known_code, known_world
from evarl.storage.files import cache_folder, read_regular, write_bytes

WORTH = 0.1
"""Least time in seconds that it took to trace a program that is kept."""
LARGEST = 2**28
"""Maximum accepted size of a file in bytes."""


def kept_lowering(learner: Learner) -> Lower:
    """A function that lowers the programs of a learner, from what an earlier run kept if there is any.

    Where a key cannot stand for the code, such as that of a world of the user's own, nothing is kept.
    """
    key = _key(learner)
    return lowered if key is None else Kept(cache_folder() / "programs", key)


@dataclasses.dataclass(frozen=True)
class Kept:
    """Lowers programs, and keeps them in a folder under a key."""

    folder: Path
    key: str

    def __call__(
        self, name: str, function: Callable[..., Any], *arguments: Any, used_up: tuple[int, ...] = ()
    ) -> jax.stages.Lowered:
        """As `evarl.learning.engines.lowered`."""
        file, exported = self.folder / f"{self.key}-{name}.stablehlo", None
        with contextlib.suppress(FileError):
            exported = _read(file)
        if exported is None:
            began = time.perf_counter()
            exported = export.export(jax.jit(function))(*arguments)
            if time.perf_counter() - began < WORTH:
                return lowered(name, function, *arguments, used_up=used_up)
            data = bytes(exported.serialize())
            with contextlib.suppress(FileError):  # a folder that cannot be made is no reason not to train
                write_bytes(file, hashlib.sha256(data).digest() + data)
        return jax.jit(exported.call, donate_argnums=used_up).lower(*arguments)


def _read(file: Path) -> export.Exported | None:
    """The program in a file; None if it is damaged."""
    content = read_regular(file, LARGEST)
    digest, data = content[:32], content[32:]
    return export.deserialize(bytearray(data)) if hashlib.sha256(data).digest() == digest else None


def _key(learner: Learner) -> str | None:
    """The key of the programs of a learner; None where there is none."""
    config, assessment = learner.config, learner.assessment
    worlds = [learner.world] if assessment is None else [learner.world, assessment.world]
    mapped = assessment is not None and assessment.mapped
    if mapped or not known_code(config) or not all(map(known_world, worlds)):
        return None
    plain = dataclasses.replace(config, seed=0, seeds=1).to_dict()
    frozen = learner.evaluability is not None and learner.evaluability.frozen is not None
    return key_for([plain, frozen, None if assessment is None else _told(assessment)])


def _told(assessment: Assessment) -> list[str]:
    """What a program has of an assessment: its world, its length and its start states."""
    digest = hashlib.sha256()
    for leaf in map(np.asarray, jax.tree.leaves(assessment.start_states)):
        digest.update(f"{leaf.dtype}{leaf.shape}".encode() + leaf.tobytes())
    world = assessment.world
    about = world.name, world.horizon, world.discount, world.contexts, assessment.horizon, assessment.discount
    return [*map(str, about), digest.hexdigest()]
