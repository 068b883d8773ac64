"""Training on the host's side: compiled chunks of updates, and between them logging, saving and showing progress."""

import dataclasses
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
from rich.console import Console

from evarl.assessment.assessment import Assessment
from evarl.errors import DivergedError, FaultError, InputError, unknown_name
from evarl.evaluators.evaluator import LearntEvaluator
from evarl.learning.configuration import TrainConfig
from evarl.learning.engines import CAPACITY, Engine
from evarl.learning.learner import FAULTS, Learner, LearnerState, make_learner
from evarl.learning.presets import preset
from evarl.ranges import real, whole
from evarl.runs import directory
from evarl.runs.assessments import (
    ASSESSMENT,
    build_assessment,
    load_assessment,
    load_evaluator,
    save_assessment,
    save_evaluator,
)
from evarl.runs.cautions import cautions
from evarl.runs.checkpoints import load_newest, save_checkpoint
from evarl.runs.checks import written_by
from evarl.runs.directory import RunDirectory
from evarl.runs.events import EventWriter
from evarl.runs.groups import engines, plan_groups
from evarl.runs.log import LogWriter, first_logged_update
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.metrics import MetricsTable
from evarl.runs.progress import ProgressBar
from evarl.runs.run import Run
from evarl.sizes import SHARE, check_assessment, check_log, check_training, free_memory, total_memory
from evarl.stopping import Stopped, postponed
from evarl.storage.tensors import save_tree
from evarl.worlds.registry import make_world

CHUNK_SECONDS = 1.0
"""The host looks up about this often: to show progress, to notice Ctrl-C, to save."""


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
        resume: go on with the run in `out` where it stopped, or start it if there is none.
        quiet: show nothing.
        checkpoint_seconds: time between two checkpoints.
        memory_gib: memory that the run may plan for; by default most of what is free. Seeds are split accordingly.
        seeds_per_program: seeds that are vectorised together at the most; by default as many as fit into memory.
        log_megabytes: disk space for a log of deployment trajectories, for off-policy evaluation: the last updates, as
            many as fit. A resumed run keeps the budget it began with.
        watch: told now and then how many updates are done, and of how many; those of one group of seeds after another.
        changes: fields of the configuration to change.

    >>> import evarl, tempfile
    >>> run = evarl.train("navigation", seeds=2, updates=3, out=tempfile.mkdtemp(), quiet=True)
    >>> run.metrics.num_rows
    6
    """
    settings = changed(preset(config) if isinstance(config, str) else config, changes).resolved()
    settings.validate()
    real("checkpoint-seconds", checkpoint_seconds, above=0)
    if memory_gib is not None:
        real("memory-gib", memory_gib, above=0, most=total_memory() / 2**30)
    if seeds_per_program is not None:
        whole("seeds-per-program", seeds_per_program)
    real("log-megabytes", log_megabytes, least=0)
    path = Path(out) if out is not None else _default_path(settings, resume)
    going_on = resume and os.path.lexists(path / "config.json")
    kept = directory.open_run(path, settings) if going_on else None
    if kept is None:
        directory.check_free(path)
    elif kept.finished():
        return Run(kept)

    world = make_world(settings.world, settings.horizon, settings.discount)
    check_training(settings, world)
    check_log(log_megabytes, settings, world, path)
    keep_compiled_programs()
    assessment, frozen = _assessment(settings, path if kept else None, quiet)
    if assessment is not None:  # a file may say other than the settings
        check_assessment(world, assessment.scenarios, assessment.horizon, settings.assessment.replicates)
    learner = make_learner(settings, assessment, frozen)
    began = time.monotonic()
    engine_for = engines(learner)
    if kept is None:
        memory = int(memory_gib * 2**30) if memory_gib is not None else int(SHARE * free_memory())
        groups = plan_groups(learner, engine_for, memory, seeds_per_program)
    with postponed() as interrupted:
        if kept is None:
            fill = lambda folder: _keep_assessment(folder, assessment)  # noqa: E731
            kept = directory.create(path, settings, groups, fill, log_megabytes)
        engine_for(len(kept.groups[0]))
        session = _Session(kept, quiet, checkpoint_seconds, watch, compile_seconds=time.monotonic() - began)
        with kept.locked(), session:
            for group in kept.groups:
                session.train_group(engine_for(len(group)), group, interrupted)
            kept.check_there()
            kept.write_summary(session.summary())
            kept.check_there()
    return Run(kept)


def changed(config: TrainConfig, changes: dict[str, Any]) -> TrainConfig:
    """A configuration with some fields changed; a wrong field suggests the nearest right one."""
    fields = [f.name for f in dataclasses.fields(config)]
    for name in changes:
        if name not in fields:
            raise unknown_name("setting", name, fields)
    return dataclasses.replace(config, **changes)


def _assessment(
    config: TrainConfig, kept: Path | None, quiet: bool
) -> tuple[Assessment | None, LearntEvaluator | None]:
    """The assessment of an evaluation-aware run, from its directory if it has one, and its frozen evaluator if any."""
    if config.evaluator_mode == "none":
        return None, None
    console = Console(stderr=True, quiet=quiet, soft_wrap=True)
    named = (config.world, config.assessment.world)
    assessment = load_assessment(kept / ASSESSMENT, named=named) if kept else build_assessment(config, console.print)
    file = config.evaluator.file
    if file is None:
        return assessment, None
    frozen = load_evaluator(Path(file), config, assessment)
    if frozen.state.steps() == 0:
        raise InputError(
            f"evaluator.file: {file} was not fitted; train its run for more updates than its warm-up, or use `evarl pretrain`"
        )
    return assessment, frozen


def _keep_assessment(folder: Path, assessment: Assessment | None) -> None:
    if assessment is not None:
        save_assessment(folder / ASSESSMENT, assessment)


def _default_path(config: TrainConfig, resume: bool) -> Path:
    """`runs/WORLD-HASH`, with a number behind it when that is taken by an earlier run (which --resume goes on with)."""
    base = Path("runs") / f"{config.world.replace('/', '-').replace(':', '-')}-{config.hash()}"
    path, number = base, 1
    while not resume and path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


class _Session:
    """One sitting of training: from the start, or a resume, to the end or an interruption."""

    def __init__(
        self,
        kept: RunDirectory,
        quiet: bool,
        checkpoint_seconds: float,
        watch: Callable[[int, int], None],
        compile_seconds: float,
    ):
        self.kept = kept
        self.config = kept.config
        self.checkpoint_seconds = checkpoint_seconds
        self.watch = watch
        self.compile_seconds = compile_seconds
        self.metrics = MetricsTable.read(kept.metrics)
        self.progress = ProgressBar(self.config.world, self.config.updates * len(kept.groups), quiet)
        self.warned = set(cautions(self.config, self.metrics.table())) if kept.metrics.exists() else set()
        self.steps = 0
        self.began = time.monotonic()

    def __enter__(self) -> "_Session":
        self.progress.__enter__()
        self._warn(None)
        return self

    def __exit__(self, *exception: Any) -> None:
        self.progress.__exit__(*exception)

    def train_group(self, engine: Engine, group: list[int], interrupted: Callable[[], Stopped | None]) -> None:
        """Train one group of seeds to the end, from its newest checkpoint if it has one, or to the next interruption."""
        folder, config = self.kept.checkpoints(group), self.config
        found = load_newest(folder, engine.template, self.progress.say)
        state = engine.init(group)
        done = 0
        if found is not None:
            done, state = found[0], jax.tree.map(jax.numpy.asarray, found[1])
        else:
            save_checkpoint(folder, 0, state)
        self.metrics.keep_before(group, done)
        self.progress.skip(done)
        events = EventWriter(self.kept.events(group), done)
        log = LogWriter(self.kept.log(group), first_logged_update(engine.learner, self.kept.log_megabytes), done)
        unsaved: list[tuple[int, dict[str, np.ndarray]]] = []
        saved, count = time.monotonic(), 1
        while done < config.updates:
            if stopped := interrupted():
                if unsaved:
                    self._save(folder, done, state, events, log, unsaved)
                raise Stopped(
                    f"stopped after update {done} of {config.updates}; "
                    f"go on with the same command and --out {self.kept.path} --resume",
                    stopped.number,
                )
            began = time.monotonic()
            count = min(count, log.first - done, CAPACITY) if done < log.first else 1
            try:
                state, columns = _advance(engine, state, done, count, log)
            except FaultError as error:
                if unsaved:
                    self._save(folder, done, state, events, log, unsaved)
                raise type(error)(f"{error}; the run is kept up to update {done}, go on with --resume") from error
            seconds, count = time.monotonic() - began, len(columns["fault"])
            self._stop_if_diverged(columns.pop("fault"), done, group, columns)
            self.metrics.add(done, config.environments * config.steps, group, columns)
            unsaved.append((done, columns))
            done += count
            self._show(count, len(group), seconds, columns)
            count = max(1, min(2 * count, int(count * CHUNK_SECONDS / seconds)))
            if done == config.updates or time.monotonic() - saved > self.checkpoint_seconds:
                self._save(folder, done, state, events, log, unsaved)
                saved, unsaved = time.monotonic(), []
        events.close()
        self._save_policies(group, state, engine.learner)

    def summary(self) -> dict[str, Any]:
        """How the run ended: the return of each seed over the last tenth of the run, and what it cost."""
        table, config = self.metrics.table(), self.config
        late = table["update"].to_numpy() >= config.updates - max(1, config.updates // 10)
        returns, seeds = table["return"].to_numpy()[late], table["seed"].to_numpy()[late]
        per_seed = {int(seed): _finite_mean(returns[seeds == seed]) for seed in np.unique(seeds)}
        known = [value for value in per_seed.values() if value is not None]
        seconds = time.monotonic() - self.began
        return {
            "world": config.world,
            "updates": config.updates,
            "seeds": config.seeds,
            "return": _finite_mean(np.asarray(known)),
            "return_standard_error": float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None,
            "return_per_seed": per_seed,
            "seconds": round(seconds, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "steps_per_second": round(self.steps / seconds),
            "warnings": list(cautions(config, table).values()),
            "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        }

    def _save(
        self, folder: Path, done: int, state: LearnerState, events: EventWriter, log: LogWriter, unsaved: list[Any]
    ) -> None:
        """Metrics and log first: whatever the checkpoint then says was done, its rows are there."""
        self.kept.check_there()
        log.flush()
        self.metrics.write(self.kept.metrics)
        self._warn(self.metrics.table())
        for first, columns in unsaved:
            events.add(first, columns)
        events.flush()
        save_checkpoint(folder, done, jax.device_get(state))

    def _warn(self, metrics: pa.Table | None) -> None:
        """Say each kind of caution once in a run."""
        for kind, line in cautions(self.config, metrics).items():
            if kind not in self.warned:
                self.progress.say(f"warning: {line}")
                self.warned.add(kind)

    def _save_policies(self, group: list[int], state: LearnerState, learner: Learner) -> None:
        """The final policy of each seed, and its evaluator if it has one."""
        state = jax.device_get(state)
        for index, seed in enumerate(group):
            policy, evaluation = jax.tree.map(lambda leaf, at=index: leaf[at], (state.agent.policy, state.evaluation))
            about = {"kind": "policy", "world": self.config.world}
            save_tree(self.kept.policy(seed), policy, about | written_by(self.config, seed))
            if evaluation is not None:
                save_evaluator(self.kept.evaluator(seed), learner.learnt(evaluation), self.config, seed)

    def _stop_if_diverged(self, fault: np.ndarray, done: int, group: list[int], columns: dict[str, np.ndarray]) -> None:
        if not fault.any():
            return
        row = int(np.flatnonzero(fault.any(axis=1))[0])
        index = int(np.flatnonzero(fault[row])[0])
        if row:
            good = {name: values[:row] for name, values in columns.items()}
            self.metrics.add(done, self.config.environments * self.config.steps, group, good)
            self.metrics.write(self.kept.metrics)
        newest = max(self.kept.checkpoints(group).glob("update-*"), default=None)
        raise DivergedError(
            f"{FAULTS[fault[row, index] - 1]} became NaN or infinite in update {done + row}, seed {group[index]}; "
            f"training stopped, the last good checkpoint is {newest}"
        )

    def _show(self, count: int, seeds: int, seconds: float, columns: dict[str, np.ndarray]) -> None:
        steps = count * seeds * self.config.environments * self.config.steps
        self.steps += steps
        finished = columns["return"][np.isfinite(columns["return"])]
        self.progress.advance(
            count, steps / seconds, float(finished[-seeds:].mean()) if finished.size else float("nan")
        )
        self.watch(self.progress.done, self.progress.updates)


def _advance(
    engine: Engine, state: LearnerState, done: int, count: int, log: LogWriter
) -> tuple[LearnerState, dict[str, np.ndarray]]:
    """Some updates; where the log has begun, one, whose batch is logged."""
    if done < log.first:
        return engine.advance(state, done, count)
    state, columns, batch = engine.advance_logged(state, done)
    log.add(done, batch)
    return state, columns


def _finite_mean(values: np.ndarray) -> float | None:
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else None
