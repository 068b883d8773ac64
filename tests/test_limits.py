"""Numbers that cannot be, and sizes that no machine holds: refused on one line, before anything is allocated or compiled."""

import dataclasses
import itertools
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import evarl
from evarl import sizes
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.evaluation.controlled import controlled_estimates
from evarl.learning.configuration import TrainConfig, with_settings
from evarl.learning.presets import PRESETS, preset
from evarl.ope.dualdice import check_dice
from evarl.ope.estimation import check_fit
from evarl.ope.registry import LogSettings
from evarl.runs.limits import check_log, check_pretraining, check_training
from evarl.stats import bootstrap_distribution
from evarl.storage.tensors import load_arrays, save_tree
from evarl.studies.scales import SCALES
from evarl.worlds.registry import make_world
from tests.evaluation.tiny import train_tiny

GIB = 2**30
WHOLE: tuple[Any, ...] = (-5, 0, 10**9, 10**12, 10**15, 10**30, 2.5, "8", True, None)
REAL: tuple[Any, ...] = (-5.0, 0.0, 1e9, 1e300, math.inf, -math.inf, math.nan, "0.1", True, None)


def numbers_of(kind: type, prefix: str = "") -> dict[str, str]:
    """Every field that is a number, or a tuple of them, of a configuration and of those within it."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            found |= numbers_of(hint, f"{prefix}{name}.")
        elif {int, float} & {hint, *get_args(hint)}:
            found[f"{prefix}{name}"] = "int" if int in (hint, *get_args(hint)) else "float"
    return found


def optional(config: Any, name: str) -> bool:
    for part in name.split(".")[:-1]:
        config = getattr(config, part)
    return "None" in str(get_type_hints(type(config))[name.split(".")[-1]])


def refusal(*checks: Callable[[], None]) -> str | None:
    """What is said, if one of them refuses."""
    began = time.monotonic()
    try:
        for check in checks:
            check()
        said = None
    except InputError as error:
        said = str(error)
    assert time.monotonic() - began < 5
    return said


@pytest.fixture
def four_gib(monkeypatch):
    monkeypatch.setattr(sizes, "free_memory", lambda: int(3.5 * GIB))


def check_all(base: TrainConfig, changes: dict[str, Any], world: Any) -> None:
    config = with_settings(base, changes)
    config.validate()
    check_training(config, dataclasses.replace(world, horizon=config.horizon or world.horizon))


AWARE = {"beta": 0.05, "evaluator.network.kind": "listing", "evaluator_mode": "colearned", "agent.algorithm": "ppo"}
AWARE |= {"assessment.select": "greedy", "evaluator.memory": "diverse", "evaluator.bootstrap": "critic"}
HARMLESS = {
    "discount", "seed", "rollouts_per_start", "ramp", "max_shift", "beta", "beta_variance", "evaluator.warmup",
    "evaluator.transitions", "evaluator.every", "assessment.discount", "agent.gae_lambda", "agent.ppo.clip_range",
    "agent.actor_learning_rate", "agent.critic_learning_rate", "agent.entropy_coefficient", "agent.max_gradient_norm",
    "evaluator.learning_rate", "assessment.entropy_coefficient", "target_error", "target_rate", "evaluator.warmup_window",
    "evaluator.diversify_every",
}  # fmt: skip
"""Fields whose size asks for nothing: 10⁹ is odd, and works."""


@pytest.mark.parametrize("name", numbers_of(TrainConfig))
def test_every_number_of_a_run_is_checked(name, four_gib, tmp_path):
    """By the same functions that `train` calls before anything else; on a machine of 4 GiB."""
    base = with_settings(preset("minatar"), AWARE)
    world = make_world("gymnax/SpaceInvaders-MinAtar", 200, 0.99)
    kind = numbers_of(TrainConfig)[name]
    for value in WHOLE if kind == "int" else REAL:
        changes = {name: (value,) if name.endswith("hidden_sizes") else value}
        allowed = value is None and optional(base, name)
        allowed |= value == 0 and value is not True and name in (
            "seed", "ramp", "evaluator.initial_steps", "evaluator.final_steps", "evaluator.warmup", "discount",
            "assessment.base_updates", "evaluator.perturbed",
            "beta", "beta_variance", "agent.gae_lambda", "agent.entropy_coefficient", "assessment.discount",
            "assessment.entropy_coefficient",
        )  # fmt: skip
        allowed |= value == 10**9 and name in HARMLESS and not name.endswith(("discount", "gae_lambda"))
        said = refusal(partial(check_all, base, changes, world))
        assert (said is None) == allowed, f"{name} = {value!r}: {said}"
        assert said is None or ("\n" not in said and name.split(".")[-1].split("_")[0] in said), said


def test_the_papers_settings_fit_a_small_machine(four_gib, tmp_path):
    for name in PRESETS:
        config = with_settings(preset(name), {"seeds": 30, "beta": 0.05}).resolved()
        config.validate()
        world = make_world(config.world, config.horizon, config.discount)
        check_training(config, world)
        check_log(250.0, config, world, tmp_path)
    for scale in SCALES.values():
        for family in (scale.minatar, scale.brax, scale.navigation):
            sizes.check_rollouts("rollouts", family.rollouts, family.states)
            sizes.check_reproduction(30, 100)


def test_the_estimate_of_a_batch_is_what_is_allocated(monkeypatch):
    """4096 × 1000 steps of navigation: observation 8, action 4, log-probability 4, reward 4, flags 2, label 4 bytes."""
    config = dataclasses.replace(preset("navigation").resolved(), environments=4096, steps=1000)
    needed = 4096 * 1000 * (8 + 4 + 4 + 4 + 2 + 4)
    world = make_world("navigation")
    monkeypatch.setattr(sizes, "free_memory", lambda: int(needed / sizes.SHARE) + 1)
    check_training(config, world)
    monkeypatch.setattr(sizes, "free_memory", lambda: int(needed / sizes.SHARE) - 1)
    with pytest.raises(
        InputError, match=r"environments × steps: 4096 × 1000 is not allowed; a batch takes at least 0.0992 GiB"
    ):
        check_training(config, world)


@pytest.mark.parametrize("name", numbers_of(LogSettings))
def test_every_number_of_an_estimate_from_a_log_is_checked(name, four_gib):
    kind = numbers_of(LogSettings)[name]
    harmless = {"updates", "random_seed", "fqe.target_interval", "fqe.learning_rate", "fqe.tolerance", "clip"}
    harmless |= {"dice.learning_rate", "dice.ridge", "dice.tolerance", "least_sample", "ridge"}
    harmless |= {"switch_threshold", "shrinkage"}
    if name == "range":
        return  # a pair: see below
    for value in WHOLE if kind == "int" else REAL:
        settings = with_settings(LogSettings(), {name: (value,) if name.endswith("hidden_sizes") else value})
        allowed = value is None and optional(LogSettings(), name)
        allowed |= value == 10**9 and name in harmless
        allowed |= value in (0, -5) and value is not True and name == "random_seed"
        allowed |= (
            value == 0
            and value is not True
            and name
            in ("fqe_refits", "fqe.held_out", "fqe.trace", "warn_below", "clip", "switch_threshold", "shrinkage")
        )
        memory = 4.0 * settings.resamples * 1000 if isinstance(settings.resamples, int) else 0.0
        said = refusal(
            settings.validate,
            partial(check_fit, settings.fqe, settings.fqe_refits, rows=10**5, features=100),
            partial(check_dice, settings.dice, steps=10**5, features=100),
            partial(sizes.check_memory, "resamples", settings.resamples, memory, "what is drawn"),
        )
        assert (said is None) == allowed, f"{name} = {value!r}: {said}"
        assert said is None or "\n" not in said


@pytest.mark.parametrize("end", [math.inf, math.nan])
def test_a_range_of_returns_is_finite(end):
    with pytest.raises(InputError, match=r"range: .* is not allowed; must be a (finite )?number"):
        dataclasses.replace(LogSettings(), range=(0.0, end)).validate()


@pytest.mark.parametrize("name", ["policies", "transitions", "steps"])
@pytest.mark.parametrize("value", [-5, 0, 10**9, 10**15])
def test_pretraining(name, value, four_gib):
    settings = {"policies": 100, "transitions": 512, "steps": 5000} | {name: value}
    config = dataclasses.replace(preset("minatar"), seeds=30)
    world = make_world("gymnax/SpaceInvaders-MinAtar")
    if name == "transitions" and value == 10**9:  # no more than a batch has
        settings["policies"] = 1
        check_pretraining(config, world, **settings)
        return
    if name == "policies":  # no more than there are updates
        settings["transitions"] = 10**5
    with pytest.raises(InputError, match=f"{name}: {value} is not allowed"):
        check_pretraining(config, world, **settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """With a log of its last updates."""
    out = tmp_path_factory.mktemp("limits") / "run"
    return train_tiny(out, log_megabytes=1).path


FLAGS = {
    "train navigation": ("--environments", "--steps", "--updates", "--seeds", "--checkpoint-seconds", "--memory-gib",
                         "--seeds-per-program", "--log-megabytes", "--agent.hidden-sizes"),
    "train navigation --beta 0.05": ("--assessment.replicates", "--assessment.horizon", "--evaluator.policies",
                                     "--evaluator.network.heads 1 --evaluator.network.width",
                                     "--evaluator.batch-size", "--evaluator.initial-steps"),
    "assess RUN": ("--samples", "--replicates"),
    "evaluate RUN": ("--rollouts", "--states", "--replicates", "--ope --log.resamples", "--ope --log.fqe.steps"),
    "ope RUN": ("--resamples", "--updates", "--fqe-refits", "--fqe.batch-size"),
    "pretrain RUN": ("--policies", "--transitions", "--steps"),
    "reproduce mismatch --scale smoke": ("--seeds", "--workers"),
    "reproduce gradients --scale smoke": ("--seeds", "--workers"),
}  # fmt: skip
ALLOWED = {"--seeds-per-program", "--checkpoint-seconds", "--updates", "--log-megabytes", "--workers"}
"""Flags for which 10⁹ or more asks for nothing by itself; not tried through the command."""


@pytest.mark.parametrize("command", FLAGS)
def test_flags_are_refused_on_one_line_and_nothing_is_written(command, run, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(run.rglob("*"))
    for flag, value in itertools.product(FLAGS[command], ("-5", "0", "1000000000", "1000000000000000", "inf", "nan")):
        if value == "0" and flag in ("--log-megabytes", "--fqe-refits", "--evaluator.initial-steps"):
            continue
        if value.startswith("1") and flag in ALLOWED and not (flag == "--updates" and command.startswith("train")):
            continue
        if flag in ("--transitions", "--policies") and value == "1000000000":  # no more than the run has
            continue
        words = command.replace("RUN", str(run)).split()
        assert call([*words, *flag.split(), value]) == 2, f"{flag} {value}"
        out, err = capfd.readouterr()
        lines = err.splitlines()
        assert out == ""
        assert [line for line in lines if line.startswith("evarl: ")] == lines[-1:], err
        assert all("seed" in line for line in lines[:-1]), err  # who is at work
    assert sorted(run.rglob("*")) == before
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_three_million_seeds(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sizes, "free_memory", lambda: 64 * GIB)
    assert call(["train", "navigation", "--seeds", "3000000"]) == 2
    assert (
        "updates × seeds: 1000 × 3000000 is not allowed; the table of metrics takes at least 279 GiB"
        in capfd.readouterr().err
    )
    assert call(["reproduce", "mismatch", "--seeds", "3000000"]) == 2
    assert "seeds: 3000000 is not allowed; a report of 9000000 runs takes at least 549 GiB" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_log_that_the_disk_has_no_room_for(tmp_path, monkeypatch):
    """No more is written than training makes, so a budget beyond that asks for nothing."""
    config, world = preset("navigation").resolved(), make_world("navigation")
    written = 1000 * 8 * 200 * (8 + 18)
    monkeypatch.setattr(sizes.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": written})())
    check_log(1e15, config, world, tmp_path)
    monkeypatch.setattr(sizes.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": written - 1})())
    with pytest.raises(
        InputError, match=r"log-megabytes: 1000000000000000.0 is not allowed; files take at least 0.0387 GiB"
    ):
        check_log(1e15, config, world, tmp_path / "not" / "there" / "yet")


def test_free_memory_obeys_a_limit_of_the_process():
    """`ulimit -v` counts addresses: what the process has is no longer free."""
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30));"
        "from evarl.sizes import free_memory; print(free_memory())"
    )
    free = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60).stdout)
    assert 2**29 < free < 2**30
    assert free < sizes.free_memory() <= sizes.total_memory()
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    assert sizes.total_memory() == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize("gib", [0.5, 1, 2])
def test_a_process_that_may_have_too_little_is_told_so(gib, tmp_path):
    """Before libraries are loaded that abort or crash then."""
    script = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({int(gib * GIB)},) * 2);"
        "from evarl.cli.main import main; main()"
    )
    command = [sys.executable, "-c", script, "train", "navigation", "--out", str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert result.stderr == (
        f"evarl: memory: this process may have {gib} GiB of addresses (ulimit -v), and JAX alone reserves some 3 GiB; "
        "raise the limit\n"
    )


def test_a_machine_without_memory_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(sizes, "free_memory", lambda: 2**27)
    assert call(["worlds"]) == 2
    assert capsys.readouterr().err == "evarl: memory: 0.125 GiB are free, and JAX alone takes 0.293 GiB; make room\n"


@pytest.mark.parametrize("value", [0, -5, 10**15])
def test_what_python_is_given_is_refused_as_well(value, run):
    opened = evarl.Run.load(run)
    for call_it in (
        lambda: make_world("navigation", horizon=value),
        lambda: evarl.evaluate(opened, rollouts=value, states=2),
        lambda: evarl.evaluate(opened, rollouts=2, states=value),
        lambda: evarl.assess(opened, samples=value),
        lambda: evarl.assess(opened, replicates=value),
        lambda: bootstrap_distribution([0.0, 1.0], np.mean, resamples=value),
        lambda: controlled_estimates(opened, rollouts=value),
        lambda: controlled_estimates(opened, rollouts=2, resamples=value),
    ):
        with pytest.raises(InputError, match="is not allowed"):
            call_it()


def test_an_assessment_from_a_file_is_measured_too(run, tmp_path, capfd):
    """Its horizon is the file's and not the configuration's."""
    tree, about = load_arrays(run / "assessment.safetensors")
    save_tree(tmp_path / "long.safetensors", tree, about | {"horizon": "1000000000"})
    flags = ["--beta", "0.05", "--assessment.file", str(tmp_path / "long.safetensors"), "--out", str(tmp_path / "run")]
    assert call(["train", "navigation", *flags]) == 2
    said = capfd.readouterr().err
    assert said.startswith("evarl: assessment.scenarios × horizon × replicates: 4 × 1000000000 × 1 is not allowed"), (
        said
    )
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()
