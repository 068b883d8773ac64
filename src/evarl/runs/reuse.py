"""Assessments that begin where base policies went, kept on disk for the next run that needs the same."""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable

import jax

from evarl.assessment.assessment import Assessment
from evarl.errors import FileError
from evarl.evaluators.configuration import EvaluatorConfig
from evarl.learning.base_policies import build_assessment, needs_base_policy
from evarl.learning.configuration import ORDINARY, TrainConfig
from evarl.runs.assessments import load_assessment, save_assessment
from evarl.runs.provenance import machine, source, versions
from evarl.storage.files import cache_folder
from evarl.worlds.registry import own_names


def reused_assessment(config: TrainConfig, notify: Callable[[str], None]) -> Assessment:
    """The assessment that a configuration describes, from an earlier run with the same one if it was kept, and else built.

    Training a base policy takes as long as hundreds of updates and as another compilation, and depends neither on the seeds nor
    on the evaluator of a run, nor on how much its policy gives for being predictable.
    """
    if not needs_base_policy(config) or not _known(config):
        return build_assessment(config, notify)
    file = cache_folder() / "assessments" / f"{_key(config)}.safetensors"
    try:
        found = load_assessment(file, named=(config.world,))
    except FileError:  # there is none, or it is damaged
        found = build_assessment(config, notify)
        with contextlib.suppress(FileError):  # a folder that cannot be made is no reason not to train
            save_assessment(file, found)
    else:
        notify(f"the assessment starts from the states of an earlier run with these settings, kept in {file}")
    return found


def _known(config: TrainConfig) -> bool:
    """Whether all code that a base policy depends on is this package's and its dependencies', so that a key can stand for it."""
    builtin = config.agent.algorithm in ("a2c", "ppo") and config.agent.network in ("auto", "mlp", "cnn")
    return builtin and ":" not in config.world and config.world not in own_names()


def _key(config: TrainConfig) -> str:
    """A digest of everything that the start states depend on: settings, code, and what decides how numbers are rounded."""
    plain = dataclasses.replace(
        config, **ORDINARY, evaluator_mode="none", evaluator=EvaluatorConfig(), seed=0, seeds=1, updates=1
    )
    rounding = os.environ.get("XLA_FLAGS"), jax.default_backend(), bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
    about = plain.to_dict(), source(), versions(), machine(), rounding
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
