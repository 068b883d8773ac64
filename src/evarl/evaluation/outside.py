"""Outside policies by the names that users give them, and their directories."""

import os
from pathlib import Path
from typing import Any

from evarl.errors import InputError
from evarl.evaluation.inputs import imported, imported_outside
from evarl.learning.configuration import TrainConfig
from evarl.policies.outside import OutsidePolicy
from evarl.runs.outside import OutsideRun
from evarl.runs.run import Run
from evarl.worlds.registry import make_world


def outside_directory(
    path: str | Path, policy: Any, world: str | None = None, horizon: int | None = None, discount: float | None = None
) -> OutsideRun:
    """The directory of an outside policy, which is made if there is none: a run without training, for certificates.

    The policy is given as "module:name", as an OutsidePolicy, or as what `evarl.wrap_policy` recognises. World, time limit and
    discount (1 unless given) need not be given for a directory that was made before.
    """
    config = outside_configuration(path, world, horizon, discount)
    if isinstance(policy, str):
        policy = imported_in(policy, config.world, config.horizon)
    return OutsideRun.create(path, policy, config)


def outside_configuration(
    path: str | Path, world: str | None = None, horizon: int | None = None, discount: float | None = None
) -> TrainConfig:
    """The configuration of the directory of an outside policy: what it was made with or, for a new one, what is given.

    InputError if it was made with something else than what is given. No policy is needed to find out.
    """
    given: dict[str, Any] = {"world": world, "horizon": horizon, "discount": discount}
    given = {name: value for name, value in given.items() if value is not None}
    if os.path.lexists(Path(path) / "config.json"):
        kept = Run.load(path).config
        for name, value in given.items():
            there = getattr(kept, name)
            if there != value:
                told = f"{name} {'of the world' if there is None else there}"
                raise InputError(
                    f"{path}: holds a policy with {told}, and {name} {value} is needed here; give another directory"
                )
        given = {name: getattr(kept, name) for name in ("world", "horizon", "discount")}
    if "world" not in given:
        raise InputError("world: is missing; must be that of the policy, such as gymnasium/CartPole-v1")
    return TrainConfig(**{"discount": 1.0} | given)


def imported_in(name: str, world: str, horizon: int | None = None) -> OutsidePolicy:
    """The outside policy "module:name", for a world."""
    found = imported_outside(name, imported(name), make_world(world, horizon))
    if found is None:
        raise InputError(
            f"policy-import: '{name}' is not a function of observations alone; must be one, or made by evarl.policies"
        )
    return found
