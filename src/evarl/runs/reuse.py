"""Assessments that begin where base policies went: those of this package, and those that runs keep for one another."""

import contextlib
import dataclasses
import hashlib
import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path

from evarl.assessment.assessment import Assessment
from evarl.errors import FileError
from evarl.evaluators.configuration import EvaluatorConfig
from evarl.learning.base_policies import build_assessment, needs_base_policy
from evarl.learning.configuration import ORDINARY, TrainConfig
from evarl.runs.assessments import load_assessment, save_assessment
from evarl.runs.known import key_for, known_code
from evarl.storage.files import cache_folder

STANDARD = Path(str(importlib.resources.files("evarl"))) / "assessment" / "standard"
"""Assessments for default settings of games and robots, made by `python -m tools.standard_assessments`."""


def reused_assessment(config: TrainConfig, notify: Callable[[str], None]) -> Assessment:
    """The assessment that a configuration describes: that of this package, one that an earlier run kept, or a new one.

    Training a base policy takes as long as hundreds of updates and as another compilation, and depends neither on the seeds nor
    on the evaluator of a run, nor on how much its policy gives for being predictable.
    """
    if not needs_base_policy(config) or not known_code(config):
        return build_assessment(config, notify)
    standard, file = standard_file(config), cache_folder() / "assessments" / f"{_key(config)}.safetensors"
    if standard.exists():
        notify(f"the assessment starts from the standard start states of {config.world}, which come with evarl")
        return load_assessment(standard, named=(config.world,))
    try:
        found = load_assessment(file, named=(config.world,))
    except FileError:  # there is none, or it is damaged
        found = build_assessment(config, notify)
        with contextlib.suppress(FileError):  # a folder that cannot be made is no reason not to train
            save_assessment(file, found)
    else:
        notify(f"the assessment starts from the states of an earlier run with these settings, kept in {file}")
    return found


def standard_file(config: TrainConfig) -> Path:
    """Where the standard assessment of a configuration is, if there is one.

    It is the same on every machine and in every version, so that everybody's policies take the same test.
    """
    settings = json.dumps(_plain(config).to_dict(), sort_keys=True)
    name = config.world.replace("/", "-").lower()
    return STANDARD / f"{name}-{hashlib.sha256(settings.encode()).hexdigest()[:12]}.safetensors"


def _key(config: TrainConfig) -> str:
    """A digest of everything that the start states depend on, code and machine included."""
    return key_for(_plain(config).to_dict())


def _plain(config: TrainConfig) -> TrainConfig:
    """The settings that the start states depend on, all others as they are by default."""
    return dataclasses.replace(
        config, **ORDINARY, evaluator_mode="none", evaluator=EvaluatorConfig(), seed=0, seeds=1, updates=1
    )
