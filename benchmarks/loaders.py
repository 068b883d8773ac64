"""What `make fuzz` damages: one file of every kind that evarl reads, how it is read, and when another load is right."""

import dataclasses
import json
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import jax
import numpy as np

import evarl
from benchmarks.mutations import (
    BYTES,
    MODULE,
    Arrays,
    Edit,
    Rng,
    digest,
    json_damage,
    npz_damage,
    read_npz,
    read_tensors,
    tensors_damage,
    write_tensors,
)
from evarl.assessment.assessment import Assessment
from evarl.certificates import ledger
from evarl.certificates.certificate import Attempt, Certificate, load, save
from evarl.certificates.protocol import Calibration
from evarl.errors import FileError
from evarl.learning.configuration import TrainConfig, with_settings
from evarl.ope.dataset import LoggedData
from evarl.runs.assessments import ASSESSMENT, load_assessment, load_evaluator, save_assessment
from evarl.runs.checkpoints import load_newest
from evarl.runs.directory import open_run
from evarl.runs.run import Run
from evarl.storage.files import LAYOUT
from evarl.studies.catalogue import PAPER_STUDIES
from evarl.studies.documents import verdict_table
from evarl.studies.jobs import Job, Store
from evarl.worlds import make_world, tabular

JOB = Job("job", "none")
STUDY = next(iter(PAPER_STUDIES))
CHECKS = {"name": "a", "checks": [{"claim": "b", "verdict": "holds", "effect": 1.5}]}

Damage = Callable[[Rng, bytes], tuple[str, bytes]]
Allowed = Callable[[Any, bytes], bool]


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str
    file: Path
    """One that is whole."""
    load: Callable[[Path], Any]
    damage: Damage
    """Something wrong in what the file says, under checksums that fit; and the name of it."""
    allowed: Allowed
    """Whether what was loaded is what another valid file says."""
    sealed: bool = True
    """Whether it has a checksum, so that damaged bytes are noticed."""
    linked: bool = False
    """Whether it may be a link to a file elsewhere: not inside of a run."""


SMALL = {
    "environments": 2,
    "steps": 32,
    "updates": 4,
    "seeds": 2,
    "beta": 0.05,
    "agent.hidden_sizes": (4,),
    "evaluator.network.kind": "linear",
    "evaluator.policies": 2,
    "evaluator.warmup": 1,
    "evaluator.initial_steps": 2,
}


def make_files(folder: Path) -> Run:
    """A tiny run with everything that a run can leave behind, and beside it what else can be on a disk."""
    config = with_settings(evarl.preset("navigation"), SMALL)
    run = evarl.train(config, out=folder / "run", quiet=True, log_megabytes=1)
    (run.path / "checkpoints" / "seeds-0-1" / "update-000000000.safetensors").unlink()  # nothing to fall back on
    issued = evarl.issue_certificate(run.path, evarl.Terms(rollouts=20))
    save(folder / "certificate.json", _with_everything(issued.certificate))
    host = make_world("gymnasium/CartPole-v1")
    save_assessment(folder / "host.safetensors", Assessment(host, (3, 7), 15, 0.9))
    run.logged_data().save(folder / "data.safetensors")
    transitions = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.25, 0.75]]])
    arrays: dict[str, Any] = {"transitions": transitions, "rewards": [[0.0, 0.0], [1.0, 2.0]], "start": [0.5, 0.5]}
    np.savez(folder / "mdp.npz", **arrays, terminal=np.array([False, True]))
    np.savez_compressed(folder / "compressed.npz", **arrays)
    Store(folder / "store").keep(
        JOB, {"task": "none", "settings": {"a": [1.5]}, "result": {"b": {"c": 2}}, "seconds": 1.5}
    )
    checks = folder / STUDY / "checks.json"
    checks.parent.mkdir()
    checks.write_text(json.dumps(CHECKS))
    return Run.load(run.path)


def make_payload(folder: Path, marker: Path) -> None:
    """A module that makes `marker` when it is imported."""
    (folder / f"{MODULE}.py").write_text(f"import pathlib\n\npathlib.Path({str(marker)!r}).touch()\n")


def _with_everything(certificate: Certificate) -> Certificate:
    """A certificate in which no field is empty, whatever sense it makes."""
    policies = (Calibration(1, {"config.json": "ab" * 32}), Calibration(0, {}))
    protocol = dataclasses.replace(
        certificate.protocol, threshold=-40, value_error=0.01, calibration=policies, candidates=("cd" * 32, "ef" * 32)
    )
    earlier = (Attempt("ab" * 32, 0.05),)
    return dataclasses.replace(certificate, protocol=protocol, protocol_sha256=protocol.hash(), earlier=earlier)


def kinds_of(folder: Path, run: Run, marker: Path) -> list[Kind]:
    """Every kind, for the files that `make_files` made."""
    return [*_kinds_in_a_run(run), *_kinds_elsewhere(folder, marker)]


def _kinds_in_a_run(run: Run) -> list[Kind]:
    path, learner, assessment = run.path, run.learner, run.assessment
    (checkpoint,) = (path / "checkpoints" / "seeds-0-1").iterdir()
    (log,) = (path / "log" / "seeds-0-1").iterdir()
    policy, evaluator = (path / name / "seed-0.safetensors" for name in ("policy", "evaluator"))
    assert assessment is not None
    one = jax.eval_shape(learner.init, jax.random.PRNGKey(0))
    state = jax.tree.map(lambda x: jax.ShapeDtypeStruct((len(run.seeds), *x.shape), x.dtype), one)

    def opened() -> Run:
        """The run as read anew, but for its networks, which take their time."""
        again = Run.load(path)
        again.__dict__["learner"] = learner
        return again

    def in_run(load: Callable[[Path], Any]) -> Callable[[Path], Any]:
        """A loader of a file whose run is opened first."""
        return lambda file: (open_run(path), load(file))[1]

    def tensors(name: str, file: Path, load: Callable[[Path], Any], told: Callable[..., bool] = _as_told_tree) -> Kind:
        return Kind(name, file, load, tensors_damage, partial(told, read_tensors(file.read_bytes())[0]))

    def words(name: str, file: str, load: Callable[[Path], Any], allowed: Allowed, seal: Edit) -> Kind:
        return Kind(name, path / file, load, partial(json_damage, seal=seal), allowed)

    return [
        words("configuration", "config.json", _configuration, _as_told_configuration, _seal_configuration),
        Kind(
            "configuration, used",
            path / "config.json",
            _used,
            partial(json_damage, seal=_seal_configuration, edits=("another number", "a number nearby", "another text")),
            lambda found, data: True,
        ),
        words("summary", "summary.json", lambda file: opened().summary, _as_told_summary, _sealed),
        Kind(
            "metrics",
            path / "metrics.parquet",
            lambda file: opened().metrics,
            lambda rng, data: ("bytes changed twice", BYTES["bytes changed"](rng, BYTES["bytes changed"](rng, data))),
            lambda found, data: True,
            sealed=False,
        ),
        Kind("assessment", path / ASSESSMENT, lambda file: opened().assessment, _of_another_world, _as_told_assessment),
        tensors("evaluator", evaluator, in_run(lambda file: load_evaluator(file, run.config, assessment))),
        tensors("policy", policy, lambda file: opened().policy_state(0)),
        tensors("checkpoint", checkpoint, in_run(lambda file: _newest(file, state))),
        tensors("log", log, lambda file: opened().logged_data(1), _as_told_log),
    ]


def _kinds_elsewhere(folder: Path, marker: Path) -> list[Kind]:
    certificate, book = folder / "certificate.json", folder / "run" / ledger.FOLDER / ledger.LEDGER
    store = Store(folder / "store")

    def words(name: str, file: Path, load: Callable[[Path], Any], allowed: Allowed, seal: Edit, sealed: bool) -> Kind:
        return Kind(name, file, load, partial(json_damage, seal=seal), allowed, sealed, linked=True)

    def anything(found: Any, data: bytes) -> bool:
        return True

    def archive(name: str, file: Path) -> Kind:
        damage = partial(npz_damage, marker=marker)
        return Kind(name, file, lambda file: tabular.load(str(file)), damage, _as_told_tabular, linked=True)

    host, data = folder / "host.safetensors", folder / "data.safetensors"
    return [
        words("certificate", certificate, lambda file: load(file)[0], _as_told_certificate, _seal_certificate, True),
        words("ledger", book, lambda file: ledger.read(folder / "run"), _as_told_ledger, _seal_ledger, True),
        Kind("assessment, host", host, load_assessment, _of_another_world, _as_told_host, linked=True),
        Kind("data set", data, LoggedData.load, tensors_damage, _as_told_data, linked=True),
        archive("tabular", folder / "mdp.npz"),
        archive("tabular, compressed", folder / "compressed.npz"),
        words("job", store.result_file(JOB), lambda file: store.record(JOB), _as_told_job, _sealed, sealed=True),
        words("checks", folder / STUDY / "checks.json", lambda file: verdict_table(folder), anything, _unsealed, False),
    ]


# Loaders that say more than what was read, or less


def _newest(file: Path, template: Any) -> Any:
    """The state of a checkpoint; one that is passed over is an error here."""
    said: list[str] = []
    found = load_newest(file.parent, template, said.append)
    if found is None:
        raise FileError(said[0])
    assert not said
    assert found[0] == SMALL["updates"]
    return found[1]


def _used(file: Path) -> Any:
    """What commands make of a configuration: networks, a policy and an evaluator."""
    run = Run.load(file.parent)
    return run.policy_state(0), run.evaluator_state(0)


def _configuration(file: Path) -> tuple[TrainConfig, list[list[int]], float]:
    """What a run goes by; the rest of the file is for people."""
    kept = open_run(file.parent)
    return kept.config, kept.groups, kept.log_megabytes


# Checksums made to fit


def _unsealed(rng: Rng, data: Any) -> Any:
    return data


def _sealed(rng: Rng, data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    data.pop("sha256", None)
    return data | {"sha256": digest(data)}


def _seal_certificate(rng: Rng, data: Any) -> Any:
    if isinstance(data, dict) and "protocol" in data and rng.random() < 0.8:
        data["protocol_sha256"] = digest(data["protocol"])
    return _sealed(rng, data)


def _seal_ledger(rng: Rng, data: Any) -> Any:
    """Now and then the chain is made to fit."""
    entries = data.get("entries") if isinstance(data, dict) else None
    if not isinstance(entries, list) or rng.random() < 0.2:
        return data
    previous = ledger.NOTHING
    for number, entry in enumerate(entries):
        if isinstance(entry, dict):
            entry.pop("sha256", None)
            entry |= {"number": number, "previous": previous}
            if isinstance(entry.get("protocol"), dict) and rng.random() < 0.8:
                entry["digest"] = digest(entry["protocol"])
            entry["sha256"] = previous = digest(entry)
    return data


def _seal_configuration(rng: Rng, data: Any) -> Any:
    if isinstance(data, dict) and "config" in data:
        data["hash"] = digest(data["config"], 8)
    return _sealed(rng, data)


def _of_another_world(rng: Rng, data: bytes) -> tuple[str, bytes]:
    """Now and then an assessment names another world, or one from a module that somebody hopes will be imported."""
    if rng.random() < 0.8:
        return tensors_damage(rng, data)
    arrays, about = read_tensors(data)
    names = ["navigation", "tabular/chain", "tabular/none.npz", "gymnasium/CartPole-v1", "gymnasium/None-v0"]
    names += [f"gymnasium/{MODULE}:None-v0", f"gymnasium/{MODULE}:CartPole-v1", "gymnasium/..:x", "navigation\n"]
    return "another world", write_tensors(arrays, about | {"world": names[int(rng.integers(len(names)))]})


# When another load is right: it is what the file says, and of the types that are declared


def fits(hint: Any, value: Any) -> bool:
    """Whether a value is what a type hint says; a whole number may be a float, a flag is no number."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        return type(value) is hint and all(fits(one, getattr(value, name)) for name, one in hints.items())
    if origin in (Union, types.UnionType):
        return any(fits(one, value) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is dict:
        return type(value) is dict and all(fits(inner[0], a) and fits(inner[1], b) for a, b in value.items())
    if origin is tuple:
        return type(value) is tuple and all(fits(inner[0], one) for one in value)
    if hint is float:
        return type(value) in (int, float) and not math.isnan(value)
    return hint is Any or type(value) is hint


def same(one: Any, other: Any) -> bool:
    """Whether two things are alike to the last bit, types included."""
    one, other = (np.asarray(x) if isinstance(x, jax.Array) else x for x in (one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one))
    return repr(one) == repr(other) if isinstance(one, float) else one is other or one == other


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(value)))


def _told(data: bytes) -> dict[str, Any]:
    """What a file says that has a checksum, which must fit."""
    told = json.loads(data)
    stated = told.pop("sha256")
    assert stated == digest(told)
    return told


def _as_told_certificate(found: Certificate, data: bytes) -> bool:
    told = _told(data)
    json.dumps(told, allow_nan=False, ensure_ascii=False).encode()  # raises where a number is none, or a text
    sealed = told["protocol_sha256"] == digest(told["protocol"])
    return sealed and fits(Certificate, found) and same(_as_json(found), told)


def _as_told_ledger(found: list[ledger.Entry], data: bytes) -> bool:
    told = json.loads(data)["entries"]
    sealed = all(entry.pop("sha256") == digest(entry) for entry in told)
    return sealed and fits(tuple[ledger.Entry, ...], tuple(found)) and same([_as_json(one) for one in found], told)


def _as_told_configuration(found: tuple[TrainConfig, list[list[int]], float], data: bytes) -> bool:
    told, (config, groups, megabytes) = _told(data), found
    seeds = [seed for group in groups for seed in group]
    return (
        told["hash"] == digest(told["config"], 8)
        and fits(TrainConfig, config)
        and same([_as_json(config), groups], [told["config"], told["seed_groups"]])
        and all(groups)
        and same(seeds, list(range(config.seed, config.seed + config.seeds)))
        and told["layout"] == LAYOUT
        and fits(float, told["log_megabytes"])
        and 0 <= megabytes == told["log_megabytes"] < math.inf
    )


def _as_told_job(found: Any, data: bytes) -> bool:
    return found["job"] == JOB.name and isinstance(found["result"], dict)


def _as_told_summary(found: Any, data: bytes) -> bool:
    return same(found, _told(data))


def _held(data: bytes) -> tuple[Arrays, dict[str, str]]:
    """What a file of arrays says; flags are 0 or 1."""
    arrays, about = read_tensors(data)
    assert all(x.view(np.uint8).max(initial=0) <= 1 for x in arrays.values() if x.dtype == bool)
    return arrays, about


def _like(arrays: Arrays, original: Arrays) -> bool:
    """Whether names, dtypes and shapes are those of the original."""
    one, other = ({name: (x.dtype, x.shape) for name, x in held.items()} for held in (arrays, original))
    return one == other


def _named(tree: Any) -> Arrays:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def _as_told_tree(original: Arrays, found: Any, data: bytes) -> bool:
    arrays, about = _held(data)
    return about["layout"] == str(LAYOUT) and _like(arrays, original) and same(_named(found), arrays)


def _as_told_about(found: Assessment, about: dict[str, str]) -> bool:
    numbers = found.world.horizon, found.horizon, found.discount
    told = int(about["world_horizon"]), int(about["horizon"]), float(about["discount"])
    likely = min(numbers[:2]) >= 1 and 0 <= found.discount <= 1
    return numbers == told and likely and (found.world.name, about["mapped"]) == (about["world"], "no")


def _as_told_assessment(found: Assessment, data: bytes) -> bool:
    arrays, about = _held(data)
    held = same(_named({"start": found.start_states}), arrays) and all(len(x) for x in arrays.values())
    return held and all(np.isfinite(x).all() for x in arrays.values()) and _as_told_about(found, about)


def _as_told_host(found: Assessment, data: bytes) -> bool:
    return _as_told_assessment(found, data) and min(found.start_states) >= 0


def _as_told_log(original: Arrays, found: LoggedData, data: bytes) -> bool:
    arrays, _ = _held(data)
    floats = [x for x in jax.tree.leaves(found) if x.dtype == np.float32]
    return _like(arrays, original) and all(np.isfinite(x).all() for x in floats)


def _taken_over(found: Any, told: Arrays) -> bool:
    """Whether arrays are those of a file, be it in another precision; flags are 0 or 1, and whole numbers stay as they are."""
    for name, x in told.items():
        value = np.asarray(getattr(found, name))
        exact = value.dtype.kind != "f"
        if x.dtype.kind not in "fiub" or not np.array_equal(value, x if exact else x.astype(value.dtype)):
            return False
    return True


def _as_told_data(found: LoggedData, data: bytes) -> bool:
    arrays, about = _held(data)
    defaults = {"mask": True, "terminated": False, "truncated": False}
    left_out = all(np.all(getattr(found, name) == value) for name, value in defaults.items() if name not in arrays)
    unknown = (found.log_prob is None) == ("log_prob" not in arrays)
    return about["kind"] == "logged data" and _taken_over(found, arrays) and left_out and unknown


def _as_told_tabular(found: tabular.Tabular, data: bytes) -> bool:
    arrays = read_npz(data)
    none = "terminal" in arrays or not np.any(found.terminal)
    return {"transitions", "rewards", "start"} <= arrays.keys() and _taken_over(found, arrays) and none
