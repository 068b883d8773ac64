"""Training a policy and keeping the run in a directory, with its assessment and frozen evaluator built or read from files."""

import dataclasses
import inspect
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from evarl.assessment.assessment import Assessment
from evarl.assessment.configuration import AssessmentConfig
from evarl.errors import InputError, plain_text, unknown_name
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.base_policies import BasePolicy, build_assessment
from evarl.learning.configuration import TrainConfig, with_settings
from evarl.learning.learner import Learner, make_learner
from evarl.learning.presets import preset
from evarl.runs import directory
from evarl.runs.assessments import ASSESSMENT, load_assessment, load_evaluator, save_assessment, saved_assessment
from evarl.runs.checkpoints import newest_update
from evarl.runs.chunks import Callback
from evarl.runs.directory import RunDirectory
from evarl.runs.groups import EngineFor, engines, plan_groups
from evarl.runs.limits import check_log, check_training
from evarl.runs.log_plan import LogFrom, log_parts
from evarl.runs.machine import keep_compiled_programs, run_programs_inline
from evarl.runs.progress import compiling
from evarl.runs.reuse import reused_assessment
from evarl.runs.run import Run
from evarl.runs.session import Group, Options, Session
from evarl.settings import checked
from evarl.sizes import check_assessment
from evarl.stopping import Stopped, postponed
from evarl.worlds.names import name_of, with_arguments
from evarl.worlds.processes import Vectorise, open_vectorised
from evarl.worlds.registry import make_world
from evarl.worlds.world import HostWorld

Notify = Callable[[str], None]


@checked
def train(
    config: TrainConfig | str | None = None,
    *,
    env: Callable[..., Any] | str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    assessment: Assessment | AssessmentConfig | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    checkpoint_seconds: float = 30.0,
    memory_gib: float | None = None,
    seeds_per_program: int | None = None,
    log_megabytes: float = 0.0,
    log_from: LogFrom = "recent",
    watch: Callable[[int, int], None] = lambda done, of: None,
    callbacks: Sequence[Callback] = (),
    vectorise: Vectorise = "auto",
    **changes: Any,
) -> Run:
    """Train a policy and keep the run in a directory.

    Args:
        config: a configuration, or the name of a preset or world; by default `gymnasium` with an `env`, else `navigation`.
        env: a function or class that returns a new `gymnasium.Env` at each call, or an id like "CartPole-v1" or
            "my_envs:MyEnv-v0". A function that cannot be imported has to be given again to `evarl.load`.
        env_kwargs: arguments of `env`.
        assessment: settings of the assessment, or an assessment, whose mappings `evarl.load` needs again if it has any.
        out: the run directory; by default a new one under `runs/`, named after the world and the settings.
        resume: continue the run in `out`, or start it if there is none. With more `updates`, a finished run goes on too.
        quiet: print nothing.
        checkpoint_seconds: time between two checkpoints.
        memory_gib: memory that the run may use; by default most of what is free.
        seeds_per_program: greatest number of seeds that are vectorised together; by default as many as fit into memory.
        log_megabytes: disk space for each part of a log of trajectories; a resumed run keeps its value, and that of `log_from`.
        log_from: the last updates (recent), a uniform sample of the episodes of the whole training (all), or both parts.
        callbacks: functions of each `evarl.callbacks.Chunk`; one that returns True stops training, as does one that raises.
        watch: called now and then with the number of updates done and of all updates.
        vectorise: whether Gymnasium's environments are stepped in this process (sync) or in several (processes), with the same
            results; auto measures a step. Results of envpool are others, and resumed ones not those of one piece.
        changes: settings to change, where `agent={"algorithm": "ppo"}` changes fields of a field.

    >>> import evarl, tempfile
    >>> run = evarl.train("navigation", seeds=2, updates=3, out=tempfile.mkdtemp(), quiet=True)
    >>> run.metrics.num_rows
    6
    """
    if not isinstance(assessment, Assessment | None):
        changes, assessment = changes | {"assessment": assessment}, None
    settings = _with_environment(config, env, env_kwargs or {}, changes)
    settings.validate()
    limits = memory_gib, seeds_per_program, log_megabytes, log_from
    options = Options(quiet, checkpoint_seconds, *limits, watch, tuple(callbacks), vectorise)
    options.validate()
    path = Path(out) if out is not None else _default_path(settings, resume)
    kept = directory.open_run(path, settings) if resume and os.path.lexists(path / "config.json") else None
    if kept is None:
        _check_new(path, resume, options)
    elif kept.finished() and kept.config == settings:
        return Run(kept, assessment)
    return _train(_learner(settings, path, kept, options, assessment), path, kept, options)


def _with_environment(
    config: TrainConfig | str | None,
    env: Callable[..., Any] | str | None,
    arguments: Mapping[str, Any],
    changes: dict[str, Any],
) -> TrainConfig:
    """The settings of a run, whose world is named after its environment if there is one."""
    if env is not None and "world" in changes:
        raise InputError(f"env: does not go with world {changes['world']!r:.100}; give one of them")
    config = ("navigation" if env is None else "gymnasium") if config is None else config
    settings = _settings(config, changes)
    world = settings.world if env is None else name_of(env)
    return dataclasses.replace(settings, world=with_arguments(world, arguments)).resolved()


def _settings(config: TrainConfig | str, changes: dict[str, Any]) -> TrainConfig:
    """The configuration with changes; an unknown name may have been meant as an option of `train` too."""
    base = preset(config) if isinstance(config, str) else config
    known = {one.name for one in dataclasses.fields(base)}
    for name in changes:
        if name.partition(".")[0] not in known:
            raise unknown_name("setting", name, [*sorted(known), *inspect.signature(train).parameters][:-1])
    return with_settings(base, changes).resolved()


def new_assessment(config: TrainConfig, notify: Notify) -> Assessment:
    """The assessment of a new run, from `assessment.file` or built; `notify` is called before a base policy is trained."""
    wanted = config.assessment
    if wanted.file is not None:
        return load_assessment(Path(wanted.file), named=(config.world, wanted.world))
    if wanted.base_run is None:
        return reused_assessment(config, notify)
    return build_assessment(config, notify, _base_policy(config, wanted.base_run))


def starting_point(
    config: TrainConfig, run: Path | None, notify: Notify, given: Assessment | None = None
) -> tuple[Assessment | None, LearntEvaluator | None]:
    """The assessment of an evaluation-aware run, `given` or read from its directory `run` on resume, and its frozen evaluator."""
    if config.evaluator_mode == "none":
        if given is not None:
            raise InputError('assessment: has no effect without beta above 0 or evaluator_mode="colearned"')
        return None, None
    if given is not None and config.assessment.file is not None:
        raise InputError(f"assessment.file: {config.assessment.file} does not go with an assessment that is given")
    named = (config.world, config.assessment.world)
    if run is not None:
        given = saved_assessment(run / ASSESSMENT, named, given)
    assessment = new_assessment(config, notify) if given is None else given
    file = config.evaluator.file
    if file is None:
        return assessment, None
    frozen = load_evaluator(Path(file), config, assessment)
    if frozen.state.steps() == 0:
        raise InputError(
            f"evaluator.file: {file} was not fitted; train its run for more updates than its warm-up, or use `evarl pretrain`"
        )
    return assessment, frozen


def _base_policy(config: TrainConfig, path: str) -> BasePolicy:
    """The first seed's policy of a base run; a run of another world is refused, whether or not it would be used."""
    run = Run.load(path)
    if run.config.world != config.world:
        raise InputError(f"assessment.base-run: {run.path} was trained in {run.config.world}, not in {config.world}")
    return run.learner.agent, run.policy_state()


def _learner(
    config: TrainConfig, path: Path, kept: RunDirectory | None, options: Options, given: Assessment | None = None
) -> Learner:
    """The learner of a new or resumed run, after checks that it fits into memory and onto the disk."""
    world = make_world(config.world, config.horizon, config.discount, config.context)
    if isinstance(world, HostWorld):
        run_programs_inline()
    if options.vectorise == "envpool":
        from evarl.worlds.pools import check_pool  # imports Gymnasium

        check_pool(world, config.rollouts_per_start)
    check_training(config, world)
    check_log(options.log_megabytes, config, world, path, len(log_parts(options.log_from)))
    keep_compiled_programs()
    console = Console(stderr=True, quiet=options.quiet, soft_wrap=True)
    assessment, frozen = starting_point(config, kept.path if kept else None, console.print, given)
    if assessment is not None:  # one from a file may be larger than the settings say
        check_assessment(world, assessment.scenarios, assessment.horizon, config.assessment.replicates)
    return make_learner(config, assessment, frozen)


def _train(learner: Learner, path: Path, kept: RunDirectory | None, options: Options) -> Run:
    """Compile, create the run directory unless it is `kept`, and train all groups of seeds in it."""
    began, notify = time.monotonic(), _console(options)
    engine_for = engines(learner, partial(open_vectorised, how=options.vectorise, notify=notify))
    with compiling(learner.config.world, options.quiet):
        groups = kept.groups if kept else plan_groups(learner, engine_for, options.memory(), options.seeds_per_program)
        engine_for(len(groups[0]))
    with postponed() as interrupted:
        if kept is None:
            fill = partial(_save_assessment, learner.assessment)
            kept = directory.create(path, learner.config, groups, fill, options.log_megabytes, options.log_from)
        seconds = time.monotonic() - began
        with kept.locked(), _closing(options.callbacks):
            if kept.config != learner.config:
                kept.replan(learner.config, newest_update(kept.folder("checkpoints", groups[0])))
            session = Session(kept, options, compile_seconds=seconds)
            with session.progress:
                session.warn(None)
                _train_groups(session, engine_for, interrupted)
            kept.check_there()
            period = learner.batch.context_updates if learner.world.contexts else 1
            kept.write_summary(session.summary(period))
            kept.check_there()
    return Run(kept, learner.assessment)


def _train_groups(session: Session, engine_for: EngineFor, interrupted: Callable[[], Stopped | None]) -> None:
    """Train all groups of seeds. If a callback stops the first, the others have as many updates, and so has the run."""
    kept, until = session.kept, session.config.updates
    for group in kept.groups:
        first = group is kept.groups[0]
        until = Group(session, engine_for(len(group)), group).train(interrupted, until, may_stop=first)
    if until < kept.config.updates:
        kept.replan(dataclasses.replace(kept.config, updates=until), until)


def _check_new(path: Path, resume: bool, options: Options) -> None:
    """Refuse a place where there is something; say that a run begins if one was to be resumed."""
    directory.check_free(path)
    if resume:
        _console(options)(f"{path}: holds no run to be resumed, so a new one is begun")


def _console(options: Options) -> Notify:
    """Prints lines on standard error, unless the run is to be quiet."""
    console = Console(stderr=True, quiet=options.quiet, soft_wrap=True)
    return lambda line: console.print(plain_text(line), markup=False, highlight=False)


@contextmanager
def _closing(callbacks: Sequence[Any]) -> Iterator[None]:
    """Call the method `close` of callbacks that have one when training ends, for whatever reason."""
    try:
        yield
    finally:
        for one in callbacks:
            getattr(one, "close", lambda: None)()


def _save_assessment(assessment: Assessment | None, folder: Path) -> None:
    if assessment is not None:
        save_assessment(folder / ASSESSMENT, assessment)


def _default_path(config: TrainConfig, resume: bool) -> Path:
    """`runs/WORLD-HASH`, with a number appended when an earlier run has this name; with `resume`, the earlier run."""
    world = re.sub(r"[^\w.-]+", "-", config.world.partition("?")[0])
    base = Path("runs") / f"{world}-{config.hash()}"
    path, number = base, 1
    while not resume and path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path
