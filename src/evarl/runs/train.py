"""Training a policy and keeping the run in a directory."""

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from evarl.errors import unknown_name
from evarl.learning.configuration import TrainConfig
from evarl.learning.learner import Learner, make_learner
from evarl.learning.presets import preset
from evarl.runs import directory
from evarl.runs.assessments import ASSESSMENT, save_assessment
from evarl.runs.directory import RunDirectory
from evarl.runs.groups import engines, plan_groups
from evarl.runs.inputs import starting_point
from evarl.runs.limits import check_log, check_training
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.runs.session import Options, Session
from evarl.sizes import check_assessment
from evarl.stopping import postponed
from evarl.worlds.registry import make_world


def train(
    config: TrainConfig | str = "navigation",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    checkpoint_seconds: float = 30.0,
    memory_gib: float | None = None,
    seeds_per_program: int | None = None,
    log_megabytes: float = 0.0,
    watch: Callable[[int, int], None] = lambda done, of: None,
    **changes: Any,
) -> Run:
    """Train a policy and keep the run in a directory.

    Args:
        config: a configuration, or the name of a preset.
        out: the run directory; by default a new one under `runs/`, named after the world and the configuration.
        resume: continue the run in `out` from its newest checkpoint, or start it if there is none.
        quiet: print nothing.
        checkpoint_seconds: time between two checkpoints.
        memory_gib: memory that the run may use; by default most of what is free. Seeds are split into groups that fit.
        seeds_per_program: greatest number of seeds that are vectorised together; by default as many as fit into memory.
        log_megabytes: disk space for a log of deployment trajectories, for off-policy evaluation: the last updates, as
            many as fit. A resumed run keeps the value it was started with.
        watch: called now and then with the number of updates done and of all updates, over all groups of seeds.
        changes: fields of the configuration to change.

    >>> import evarl, tempfile
    >>> run = evarl.train("navigation", seeds=2, updates=3, out=tempfile.mkdtemp(), quiet=True)
    >>> run.metrics.num_rows
    6
    """
    settings = changed(preset(config) if isinstance(config, str) else config, changes).resolved()
    settings.validate()
    options = Options(quiet, checkpoint_seconds, memory_gib, seeds_per_program, log_megabytes, watch)
    options.validate()
    path = Path(out) if out is not None else _default_path(settings, resume)
    kept = directory.open_run(path, settings) if resume and os.path.lexists(path / "config.json") else None
    if kept is None:
        directory.check_free(path)
    elif kept.finished():
        return Run(kept)
    return _train(_learner(settings, path, kept, options), path, kept, options)


def changed(config: TrainConfig, changes: dict[str, Any]) -> TrainConfig:
    """A configuration with some fields changed; a wrong field suggests the nearest right one."""
    fields = [f.name for f in dataclasses.fields(config)]
    for name in changes:
        if name not in fields:
            raise unknown_name("setting", name, fields)
    return dataclasses.replace(config, **changes)


def _learner(config: TrainConfig, path: Path, kept: RunDirectory | None, options: Options) -> Learner:
    """The learner of a new or resumed run, after checks that it fits into memory and onto the disk."""
    world = make_world(config.world, config.horizon, config.discount)
    check_training(config, world)
    check_log(options.log_megabytes, config, world, path)
    keep_compiled_programs()
    console = Console(stderr=True, quiet=options.quiet, soft_wrap=True)
    assessment, frozen = starting_point(config, kept.path if kept else None, console.print)
    if assessment is not None:  # one from a file may be larger than the settings say
        check_assessment(world, assessment.scenarios, assessment.horizon, config.assessment.replicates)
    return make_learner(config, assessment, frozen)


def _train(learner: Learner, path: Path, kept: RunDirectory | None, options: Options) -> Run:
    """Compile, create the run directory unless it is `kept`, and train all groups of seeds in it."""
    began = time.monotonic()
    engine_for = engines(learner)
    groups = kept.groups if kept else plan_groups(learner, engine_for, options.memory(), options.seeds_per_program)
    with postponed() as interrupted:
        if kept is None:
            add_assessment = lambda folder: _save_assessment(folder, learner)  # noqa: E731
            kept = directory.create(path, learner.config, groups, add_assessment, options.log_megabytes)
        engine_for(len(groups[0]))
        session = Session(kept, options, compile_seconds=time.monotonic() - began)
        with kept.locked(), session:
            for group in groups:
                session.train_group(engine_for(len(group)), group, interrupted)
            kept.check_there()
            kept.write_summary(session.summary())
            kept.check_there()
    return Run(kept)


def _save_assessment(folder: Path, learner: Learner) -> None:
    if learner.assessment is not None:
        save_assessment(folder / ASSESSMENT, learner.assessment)


def _default_path(config: TrainConfig, resume: bool) -> Path:
    """`runs/WORLD-HASH`, with a number appended when an earlier run has this name; with `resume`, the earlier run."""
    base = Path("runs") / f"{config.world.replace('/', '-').replace(':', '-')}-{config.hash()}"
    path, number = base, 1
    while not resume and path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path
