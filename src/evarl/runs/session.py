"""Training from the start or a checkpoint to the end or an interruption: compiled chunks of updates, saved in between."""

import dataclasses
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import jax
import numpy as np
import pyarrow as pa

from evarl.errors import DivergedError, FaultError, InputError, advice, unknown_name
from evarl.learning.engines import CAPACITY, Engine
from evarl.learning.learner import FAULTS
from evarl.ranges import real, whole
from evarl.runs.assessments import save_evaluator
from evarl.runs.checkpoints import load_newest, save_checkpoint
from evarl.runs.checks import cautions, written_by
from evarl.runs.chunks import Callback, Chunk
from evarl.runs.directory import RunDirectory
from evarl.runs.events import EventWriter
from evarl.runs.log import Logs, LogWriter
from evarl.runs.log_plan import FOLDERS, LogFrom, plan_log
from evarl.runs.metrics import MetricsTable
from evarl.runs.progress import ProgressBar
from evarl.settings import conforming
from evarl.sizes import SHARE, free_memory, total_memory
from evarl.stopping import Stopped
from evarl.storage.tensors import save_tree
from evarl.worlds.processes import POOLED, Vectorise

CHUNK_SECONDS = 1.0
"""Intended time of a chunk of updates; between chunks the host shows progress, notices Ctrl-C and saves."""

Columns = dict[str, np.ndarray]
"""Metrics of consecutive updates, each [updates, seeds]."""


@dataclass(frozen=True)
class Options:
    """Options of `train` that do not change its numbers, except for environments of EnvPool."""

    quiet: bool = False
    checkpoint_seconds: float = 30.0
    memory_gib: float | None = None
    seeds_per_program: int | None = None
    log_megabytes: float = 0.0
    log_from: LogFrom = "recent"
    watch: Callable[[int, int], None] = lambda done, of: None
    callbacks: tuple[Callback, ...] = ()
    vectorise: Vectorise = "auto"

    def validate(self) -> None:
        """Raise InputError for a value that cannot be used."""
        real("checkpoint-seconds", self.checkpoint_seconds, above=0)
        if self.vectorise not in get_args(Vectorise):
            raise unknown_name("vectorise", str(self.vectorise), get_args(Vectorise))
        if self.memory_gib is not None:
            real("memory-gib", self.memory_gib, above=0, most=total_memory() / 2**30)
        if self.seeds_per_program is not None:
            whole("seeds-per-program", self.seeds_per_program)
        real("log-megabytes", self.log_megabytes, least=0)
        if self.log_from not in get_args(LogFrom):
            raise unknown_name("log-from", str(self.log_from), get_args(LogFrom))
        if self.log_from != "recent" and not self.log_megabytes:
            raise InputError(f"log-from: {self.log_from} has no effect without log-megabytes; must be given with them")

    def memory(self) -> int:
        """Bytes that the run may use."""
        return int(self.memory_gib * 2**30) if self.memory_gib is not None else int(SHARE * free_memory())


class Session:
    """One session of training: metrics, progress and warnings of all groups of seeds."""

    def __init__(self, kept: RunDirectory, options: Options, compile_seconds: float):
        self.kept, self.config, self.options = kept, kept.config, options
        self.compile_seconds = compile_seconds
        self.metrics = MetricsTable.read(kept.metrics)
        self.progress = ProgressBar(self.config.world, self.config.updates, options.quiet)
        self.warned = set(cautions(self.config, self.metrics.table())) if kept.metrics.exists() else set()
        self.steps = self.before = 0
        self.began = time.monotonic()

    def warn(self, metrics: pa.Table | None) -> None:
        """Print each kind of warning once in a run."""
        for kind, line in cautions(self.config, metrics).items():
            if kind not in self.warned:
                self.progress.notify(f"warning: {line}")
                self.warned.add(kind)

    def begin(self, group: list[int], done: int) -> None:
        """Show that a group of seeds is trained next, which has `done` updates; several groups are told apart by their seeds."""
        self.before = self.config.updates * self.kept.groups.index(group)
        self.progress.begin(self.config.world + self.named(group), done)

    def named(self, group: list[int]) -> str:
        """The seeds of a group for messages; nothing if it is the only one."""
        if len(self.kept.groups) == 1:
            return ""
        return f", seed {group[0]}" if len(group) == 1 else f", seeds {group[0]} to {group[-1]}"

    def add_metrics(self, first: int, group: list[int], columns: Columns) -> None:
        """Append the metrics of a group's updates from `first` on."""
        self.metrics.add(first, self.config.environments * self.config.steps, group, columns)

    def show(self, chunk: Chunk) -> None:
        """Show that some updates were made."""
        returns = chunk["return"]
        self.steps += returns.size * self.config.environments * self.config.steps
        finished = returns[np.isfinite(returns)]
        mean = float(finished[-len(chunk.seeds) :].mean()) if finished.size else float("nan")
        self.progress.advance(len(returns), chunk.steps_per_second, mean)
        self.options.watch(self.before + self.progress.done, self.config.updates * len(self.kept.groups))

    def call_back(self, chunk: Chunk) -> bool:
        """Give a chunk to all callbacks; whether one of them asks to stop."""
        answers = [one(chunk) for one in self.options.callbacks]
        return any(conforming("callbacks: what one returns", answer, bool | None) for answer in answers)

    def summary(self, period: int = 1) -> dict[str, Any]:
        """The return of each seed at the end of the run, its time and memory, and warnings.

        The end is the last tenth, or the last `period` updates if these are more: contexts are drawn once in a period, and
        episodes that finish in only some of its updates count.
        """
        table, config = self.metrics.table(), self.kept.config
        last = min(config.updates, max(1, config.updates // 10, period))
        late = table["update"].to_numpy() >= config.updates - last
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
            "return_updates": last,
            "no_return": None if known else _no_return(table["truncated"].to_numpy()[late]),
            "seconds": round(seconds, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "steps_per_second": round(self.steps / seconds),
            "warnings": [
                *cautions(config, table).values(),
                *([POOLED] if self.options.vectorise == "envpool" else []),
            ],
            "peak_memory_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        }


class Group:
    """A group of seeds in training: the state after `done` updates, and metrics since the last checkpoint."""

    def __init__(self, session: Session, engine: Engine, group: list[int]):
        self.session, self.kept, self.config = session, session.kept, session.config
        self.engine, self.group = engine, group
        self.folder = self.kept.folder("checkpoints", group)
        self.done = 0
        found = load_newest(self.folder, engine.template, session.progress.notify)
        self.state = engine.init(group)
        if found is not None:
            self.done, self.state = found[0], jax.tree.map(jax.numpy.asarray, found[1])
            if 0 < self.done < self.config.updates and not engine.learner.resumes_exactly(self.done):
                session.progress.notify(
                    f"{self.config.world}: resumed after update {self.done} with new episodes, since environments on the host "
                    "cannot be saved; numbers from here on are not those of a run in one piece"
                )
        else:
            save_checkpoint(self.folder, 0, self.state)
        session.metrics.keep_before(group, self.done)
        session.begin(group, self.done)
        per_update = self.config.environments * self.config.steps
        self.events = EventWriter(self.kept.folder("tensorboard", group), self.done * per_update)
        self.log = self._logs()
        self.unsaved: list[Chunk] = []
        self.saved = time.monotonic()
        self.chunk = 1

    def _logs(self) -> Logs:
        """The parts of the log, as far as they were written before the checkpoint that is resumed."""
        sizes = self.engine.learner, self.kept.log_megabytes, self.kept.planned
        plans = {part: plan_log(part, *sizes) for part in self.kept.log_parts}
        folders = {part: self.kept.folder(FOLDERS[part], self.group) for part in plans}
        return Logs([LogWriter(folders[part], plan, self.done) for part, plan in plans.items()], self.config.updates)

    def train(self, interrupted: Callable[[], Stopped | None], until: int, may_stop: bool) -> int:
        """Make the updates that are left of `until`, with checkpoints in between, and write the policies and evaluators.

        Returns the number of updates at the end: fewer if a callback asks to stop and the group `may_stop`. Raises Stopped at
        an interruption.
        """
        try:
            self._train(interrupted, until, may_stop)
        finally:
            self.events.close()
        if self.done < until:
            self.session.progress.notify(f"stopped by a callback after update {self.done} of {until}")
        self._save_results()
        return self.done

    def _train(self, interrupted: Callable[[], Stopped | None], until: int, may_stop: bool) -> None:
        stops = False
        while self.done < until and not stops:
            if stopped := interrupted():
                self._save()
                path = self.kept.path
                how = advice(
                    f"resume with the same command and --out {path} --resume",
                    f"resume with the same arguments and evarl.train(..., out={str(path)!r}, resume=True)",
                )
                where = f"stopped after update {self.done} of {until}{self.session.named(self.group)}"
                raise Stopped(f"{where}; {how}", stopped.number)
            stops = self._advance(until) and may_stop
            if stops or self.done == until or time.monotonic() - self.saved > self.session.options.checkpoint_seconds:
                self._save()

    def _advance(self, until: int) -> bool:
        """Make one chunk of updates, or one update that is logged; whether a callback asks to stop."""
        began = time.monotonic()
        logged = self.log.due(self.done)
        try:
            if logged:
                self.state, columns, batch = self.engine.advance_logged(self.state, self.done)
                self.log.add(self.done, batch)
            else:
                count = min(self.chunk, self.log.unlogged(self.done), until - self.done, CAPACITY)
                self.state, columns = self.engine.advance(self.state, self.done, count)
        except FaultError as error:
            self._save()
            how = advice("--resume", "resume=True")
            raise type(error)(f"{error}; the run is kept up to update {self.done}, resume with {how}") from error
        seconds, count = time.monotonic() - began, len(columns["fault"])
        self._stop_if_diverged(columns.pop("fault"), columns)
        self.session.add_metrics(self.done, self.group, columns)
        chunk = Chunk(columns, self.done, tuple(self.group), seconds, time.time(), self.config, self.kept.path)
        self.unsaved.append(chunk)
        self.done += count
        self.session.show(chunk)
        if not logged:  # single updates say little of the time of many
            self.chunk = max(1, min(2 * self.chunk, int(count * CHUNK_SECONDS / seconds)))
        try:
            return self.session.call_back(chunk)
        except Exception as error:
            self._save()
            error.add_note(
                f"a callback failed; the run {self.kept.path} is kept up to update {self.done} and can be resumed"
            )
            raise

    def _save(self) -> None:
        """Write log, metrics and events first, so that the rows of all updates before a checkpoint are there."""
        if not self.unsaved:
            return
        self.kept.check_there()
        self.log.flush()
        self.session.metrics.write(self.kept.metrics)
        self.session.warn(self.session.metrics.table())
        self.events.write(self.unsaved)
        save_checkpoint(self.folder, self.done, jax.device_get(self.state))
        self.saved, self.unsaved = time.monotonic(), []

    def _save_results(self) -> None:
        """Write the final policy of each seed, and its evaluator in evaluation-aware runs."""
        state = jax.device_get(self.state)
        config = dataclasses.replace(self.config, updates=self.done)  # a callback may have stopped it early
        learner = self.engine.learner.ending_with(config)
        for index, seed in enumerate(self.group):
            one = jax.tree.map(lambda leaf, at=index: leaf[at], state)
            about = {"kind": "policy", "world": self.config.world} | written_by(config, seed)
            save_tree(self.kept.file("policy", seed), one.agent.policy, about)
            if one.evaluation is not None:
                save_evaluator(self.kept.file("evaluator", seed), learner.learnt(one.evaluation), config, seed)

    def _stop_if_diverged(self, fault: np.ndarray, columns: Columns) -> None:
        """Raise DivergedError at the first update that made NaN or infinity, after saving the metrics before it."""
        if not fault.any():
            return
        row = int(np.flatnonzero(fault.any(axis=1))[0])
        index = int(np.flatnonzero(fault[row])[0])
        if row:
            self.session.add_metrics(self.done, self.group, {name: values[:row] for name, values in columns.items()})
            self.session.metrics.write(self.kept.metrics)
        newest = max(self.folder.glob("update-*"), default=None)
        raise DivergedError(
            f"{FAULTS[fault[row, index] - 1]} became NaN or infinite in update {self.done + row}, seed {self.group[index]}; "
            f"training stopped, the last good checkpoint is {newest}"
        )


def _no_return(truncated: np.ndarray) -> str:
    """Why there is no return, from the part of episodes that ended by their time limit, which is known where any ended."""
    if not np.isfinite(truncated.astype(float)).any():
        return "no episode finished"
    return (
        "no return: episodes finished, but none that counts, the first in its context or begun early enough to finish there for "
        "certain; more --context-updates would help;"
    )


def _finite_mean(values: np.ndarray) -> float | None:
    values = np.asarray(values, float)
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else None
