"""The run directory.

config.json                           layout, configuration, groups of seeds, versions, commit
assessment.safetensors                the assessment (evaluation-aware runs)
metrics.parquet                       one row per update and seed
tensorboard/                          the same for each seed and averaged over seeds, as TensorBoard events
checkpoints/seeds-0-3/update-*.…      the newest states of each group of seeds
policy/seed-0.safetensors             the final policy of each seed
evaluator/seed-0.safetensors          its evaluator (evaluation-aware runs)
calibrated/seed-0.safetensors         the same with what it knows of perturbed policies (once it was asked about a policy)
log/seeds-0-3/updates-*.…             deployment trajectories of the last updates (on request)
log-all/seeds-0-3/updates-*.…         a sample of those of the whole training (on request)
summary.json                          returns, time and memory of the finished run
"""

import dataclasses
import datetime
import fcntl
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from evarl.errors import FaultError, FileError, InputError, advice
from evarl.learning.configuration import TrainConfig, differences
from evarl.runs.log_plan import FOLDERS as LOGS, LogFrom, Part, log_parts
from evarl.runs.provenance import commit, versions
from evarl.storage.files import FIRST, LAYOUT, check_layout, delete, reason, refuse_links_out, write_bytes
from evarl.storage.modules import check_network, check_world
from evarl.storage.plain import as_declared, read_json, seal, unseal
from evarl.worlds.names import offer, offered

FIELDS = {
    "layout",
    "created",
    "hash",
    "config",
    "seed_groups",
    "log_megabytes",
    "log_from",
    "versions",
    "commit",
    "planned",
    "sha256",
}
"""Fields of config.json; `planned` is there if the number of updates was changed after the run had begun, `log_from` unless it is
recent."""
LEFT_OVER = re.compile(r"\.(metrics\.parquet|summary\.json|[\w-]+\.safetensors)\.[a-z0-9_]{8}")
"""Names of temporary files (`evarl.storage.files`) that a killed process has left."""
GROUPED = ("checkpoints", "tensorboard", *LOGS.values())
"""Folders with a folder for each group of seeds."""
Fill = Callable[[Path], None]
CALIBRATED = "calibrated"
RESULTS = ("policy", "evaluator", CALIBRATED)
FOLDERS = (*GROUPED, *RESULTS)
FILES = ("config.json", "metrics.parquet", "summary.json")


class RunDirectory:
    """The paths of a run, its configuration and its groups of seeds."""

    def __init__(self, path: Path, config: TrainConfig, groups: list[list[int]], about: dict[str, Any]):
        self.path, self.config, self.groups, self.about = path, config, groups, about
        self._folder: int | None = None
        self.metrics = path / "metrics.parquet"
        self.summary = path / "summary.json"

    def folder(self, kind: str, group: list[int]) -> Path:
        """Folder of checkpoints, tensorboard or a part of the log of a group of seeds."""
        return self.path / kind / f"seeds-{group[0]}-{group[-1]}"

    def file(self, kind: str, seed: int) -> Path:
        """File of the final policy or evaluator of a seed."""
        return self.path / kind / f"seed-{seed}.safetensors"

    @property
    def log_megabytes(self) -> float:
        """Disk space for each part of the log."""
        return float(self.about["log_megabytes"])

    @property
    def log_parts(self) -> tuple[Part, ...]:
        """The parts of the log; none without one."""
        return log_parts(self.about.get("log_from", "recent")) if self.log_megabytes else ()

    @property
    def planned(self) -> list[int]:
        """The numbers of updates that training was planned to have, the last one of them now."""
        return [updates for _, updates in self.about.get("planned", [])] + [self.config.updates]

    def finished(self) -> bool:
        """Whether all updates of all seeds are done."""
        return os.path.lexists(self.summary)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other processes that train in it, and delete temporary files that were left there."""
        try:
            self._folder = folder = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise FaultError(f"out: cannot open {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in self.path.rglob(".*"):
                if LEFT_OVER.fullmatch(path.name) and path.is_file():
                    path.unlink()
            yield
        except BlockingIOError as error:
            raise InputError(f"out: another process is training in {self.path}; wait for it or stop it") from error
        finally:
            self._folder = None
            os.close(folder)

    def check_there(self) -> None:
        """Raise FaultError if the locked directory was moved or deleted, since what is written would be lost."""
        assert self._folder is not None
        try:
            same = os.path.samestat(os.stat(self.path), os.fstat(self._folder)) and (self.path / "config.json").exists()
        except OSError:
            same = False
        if not same:
            raise FaultError(
                f"out: {self.path} was deleted, renamed or replaced during training, so nothing more can be saved; "
                f"put it back and resume with {advice('--resume', 'resume=True')}, or start again"
            )

    def replan(self, config: TrainConfig, done: int) -> None:
        """Make this a run of more updates, or of those that are done if it was stopped early.

        config.json then tells in `planned` from which update on training was planned to have how many updates, as schedules
        depend on it. Results of the shorter run are deleted first: a process that is killed here leaves an unfinished run.
        """
        planned = self.about.get("planned", [[0, self.config.updates]])
        if config.updates > self.config.updates:
            planned = [*planned, [done, config.updates]]
            results = [self.summary, *(one for kind in RESULTS for one in (self.path / kind).glob("*.safetensors"))]
            for path in results:
                delete(path)
        about = self.about | {"hash": config.hash(), "config": config.to_dict(), "planned": planned}
        write_bytes(self.path / "config.json", _json(seal(about)))
        self.config, self.about = config, about

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write summary.json."""
        write_bytes(self.summary, _json(seal(summary)))

    def read_summary(self) -> dict[str, Any]:
        """The contents of summary.json."""
        if not self.finished():
            raise FileError(f"{self.path}: the run is not finished; finish it with {advice('--resume', 'resume=True')}")
        return unseal(read_json(self.summary), str(self.summary))


def create(
    path: Path,
    config: TrainConfig,
    groups: list[list[int]],
    fill: Fill = lambda path: None,
    log_megabytes: float = 0.0,
    log_from: LogFrom = "recent",
) -> RunDirectory:
    """Create the directory with config.json and what `fill` adds, in one step, so that it is never half-made."""
    check_free(path)
    about: dict[str, Any] = {
        "layout": LAYOUT,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hash": config.hash(),
        "config": config.to_dict(),
        "seed_groups": groups,
        "log_megabytes": log_megabytes,
        **({} if log_from == "recent" else {"log_from": log_from}),
        "versions": versions(),
        "commit": commit(),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            temporary.chmod(0o755)
            write_bytes(temporary / "config.json", _json(seal(about)))
            fill(temporary)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        raise FileError(f"out: cannot make {path}: {reason(error)}") from error
    return RunDirectory(path, config, groups, about)


def check_free(path: Path) -> None:
    """Raise InputError if `path` holds a run or anything else."""
    if os.path.lexists(path / "config.json"):
        how = advice("--resume", "evarl.train(..., resume=True)")
        raise InputError(f"out: {path} already holds a run; choose another directory, or resume it with {how}")
    if os.path.lexists(path) and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"out: {path} is not an empty directory; choose another")


def open_run(
    path: Path,
    config: TrainConfig | None = None,
    allow_modules: Sequence[str] = (),
    env: Callable[..., Any] | None = None,
    *,
    to_read: bool = False,
) -> RunDirectory:
    """Open a run directory; with `config`, raise InputError if it was made with another configuration, except for more updates.

    `env` makes the environments of the run's world, instead of what it names.

    A run may be from anywhere: links out of it are refused, and so are modules that neither `config` nor the user names. With
    `to_read` modules do not matter: what is recorded is looked at, and neither the world nor the network is made.
    """
    file = path / "config.json"
    if not os.path.lexists(file):
        raise FileError(f"{path}: holds no run (there is no config.json)")
    refuse_links_out(path)
    _check_kinds(path)
    about = _read_config(path, file)
    kept = as_declared(TrainConfig, about.get("config"), f"{file}, config", lambda number: not math.isnan(number))
    if about.get("hash") != kept.hash():
        raise FileError(f"{file}: the configuration has been changed since the run was made (its hash does not fit)")
    groups = _groups(file, about.get("seed_groups"), kept)
    if not as_declared(float, about.get("log_megabytes"), f"{file}, log_megabytes") >= 0:
        raise FileError(f"{file}, log_megabytes: is {about['log_megabytes']}; must be at least 0")
    as_declared(cast(Any, LogFrom), about.get("log_from", "recent"), f"{file}, log_from")
    as_declared(cast(Any, tuple[tuple[int, ...], ...]), about.get("planned", []), f"{file}, planned")
    if config is not None:
        _check_same(path, kept, config)
    try:
        kept.validate()
    except InputError as error:
        raise FileError(f"{file}, config: {error}") from error
    if env is not None:
        offer(kept.world, env)
    if config is None and not to_read:
        for world in (kept.world, kept.assessment.world):
            if world is not None and offered(world) is None:
                check_world(world, file, allow_modules)
        if ":" in kept.agent.network:
            check_network(kept.agent.network, file, allow_modules)
    return RunDirectory(path, kept, groups, about)


def _check_same(path: Path, kept: TrainConfig, config: TrainConfig) -> None:
    """Raise InputError unless two configurations are the same but for updates, of which the second may have more."""
    found = differences(kept.to_dict(), config.to_dict())
    longer = dataclasses.replace(kept, updates=config.updates) == config and config.updates > kept.updates
    if found and not longer:
        hint = "; only the number of updates can be changed, to a greater one" if kept.updates != config.updates else ""
        raise InputError(f"resume: {path} was made with another configuration (there ≠ here): {'; '.join(found)}{hint}")


def _read_config(path: Path, file: Path) -> dict[str, Any]:
    """The contents of config.json; FileError if it is damaged or of another layout."""
    about = read_json(file)
    if not isinstance(about, dict) or not ("layout" in about or "format" in about):
        raise FileError(f"{file}: is not the configuration of a run")
    made_with = about.get("versions")
    writer = made_with.get("evarl") if isinstance(made_with, dict) else None
    layout = about.get("layout", 1)  # the first layout was called a format
    check_layout(path, "run directory", layout, writer or FIRST, "Train it again")
    if about.keys() - FIELDS:
        raise FileError(f"{file}: has unknown fields {sorted(about.keys() - FIELDS - {'planned'})!r:.100}")
    return unseal(about, str(file))


def _check_kinds(path: Path) -> None:
    """Raise FileError for a file in place of a folder, or anything else in place of a file."""
    for place in (*(path / name for name in FOLDERS), *(inner for name in GROUPED for inner in path.glob(f"{name}/*"))):
        if place.exists() and not place.is_dir():
            raise FileError(f"{place}: is not a folder, as it must be in a run directory; move it away")
    for place in (*(path / name for name in FILES), *path.rglob("*.safetensors")):
        if place.exists() and not place.is_file():
            raise FileError(f"{place}: is not a file, as it must be in a run directory; move it away")


def _groups(file: Path, data: Any, config: TrainConfig) -> list[list[int]]:
    """The groups of seeds, which must hold every seed of the run in order."""
    hint: Any = tuple[tuple[int, ...], ...]
    groups = [list(group) for group in as_declared(hint, data, f"{file}, seed_groups")]
    seeds = [seed for group in groups for seed in group]
    if not all(groups) or len(seeds) != config.seeds or seeds != list(range(config.seed, config.seed + config.seeds)):
        raise FileError(f"{file}, seed_groups: are {groups!r:.60}; must be {config.seeds} seeds from {config.seed} on")
    return groups


def _json(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
