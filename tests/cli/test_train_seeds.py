"""Seeds of a command are spread over the cores of the processor."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNTED = (
    "from evarl.storage.compiled import split_processor; split_processor({}); import jax; print(len(jax.devices()))"
)


@pytest.mark.parametrize(("seeds", "flags", "devices"), [(1, "", 1), (4, "", 2), (3, "", 1), (4, "=3", 3)])
def test_as_many_devices_as_divide_the_seeds(seeds, flags, devices):
    if len(os.sched_getaffinity(0)) != 2:
        seeds, devices = (seeds, devices) if flags or seeds == 1 else (2, 2)
    flag = f"--xla_force_host_platform_device_count{flags}" if flags else ""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED.format(seeds)],
        env=os.environ | {"XLA_FLAGS": flag},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == devices


@pytest.mark.slow
def test_spread_seeds_learn_what_single_ones_do(tmp_path):
    command = [
        str(Path(sys.executable).with_name("evarl")),
        "train",
        "navigation",
        "--updates",
        "3",
        "--quiet",
        "--json",
    ]
    means = [
        json.loads(subprocess.check_output([*command, "--seeds", "2", "--out", str(tmp_path / name)], env=env))[
            "return"
        ]
        for name, env in {
            "two": dict(os.environ),
            "one": os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=1"},
        }.items()
    ]
    assert abs(means[0] - means[1]) < 1e-3
