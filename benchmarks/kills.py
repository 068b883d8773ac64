"""`make kill-test`: training killed at random moments, resumed, and compared byte by byte with training in one piece.

Runs of every kind (A2C, PPO, with a log, evaluation-aware) are small enough to end in seconds, and are killed by SIGKILL
again and again, most of them between checkpoints, until they come to their end; then the next one begins.
"""

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tyro

from evarl.storage.tensors import load_arrays

SMALL = ["train", "navigation", "--environments", "2", "--steps", "16", "--seeds", "2", "--agent.hidden-sizes", "8"]
SMALL += ["--horizon", "7", "--rollouts-per-start", "2", "--checkpoint-seconds", "0.1", "--quiet"]
AWARE = [
    "--beta",
    "0.05",
    "--evaluator.warmup",
    "50",
    "--evaluator.initial-steps",
    "20",
    "--evaluator.network.width",
    "8",
]
KINDS = {
    "a2c": ["--updates", "2000"],
    "ppo": ["--updates", "2000", "--agent.algorithm", "ppo"],
    "logged": ["--updates", "60", "--log-megabytes", "10"],
    "aware": ["--updates", "300", *AWARE],
}
LONGEST = 300.0
"""Seconds after which a run that is not killed counts as hung."""
SOON = 0.5
"""Seconds: some checkpoints."""
MOST = 10
"""Kills of one run, so that all kinds have their turn."""


def start(out: Path, kind: str, *more: str) -> subprocess.Popen[bytes]:
    """Train in a process of its own, as a user would."""
    command = [sys.executable, "-c", "from evarl.cli.main import main; main()", *SMALL, *KINDS[kind], "--out", str(out)]
    return subprocess.Popen([*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def contents(run: Path) -> dict[str, bytes]:
    """What a run computed. Where the log is cut into files depends on when checkpoints were made, so it is joined.

    What a killed process was about to rename, which nobody reads, is left out.
    """
    names = [
        run / "metrics.parquet",
        *run.glob("policy/seed-*"),
        *run.glob("evaluator/seed-*"),
        *run.glob("assessment.*"),
    ]
    names += [max(folder.glob("update-*")) for folder in run.glob("checkpoints/*")]
    found = {str(path.relative_to(run)): path.read_bytes() for path in names}
    for folder in run.glob("log/*"):
        parts = [load_arrays(path)[0] for path in sorted(folder.glob("updates-*"))]
        for name in parts[0]:
            found[f"log/{folder.name}/{name}"] = np.concatenate([part[name] for part in parts]).tobytes()
    return found


def differences(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """What is not the same."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def wait_at_random(process: subprocess.Popen[bytes], out: Path, seconds: float, rng: random.Random) -> None:
    """Wait for a moment: a quarter of them any time from the start on, the others soon after something was saved."""
    if rng.random() > 0.25:
        before, seconds = newest(out), SOON
        while process.poll() is None and newest(out) == before:
            time.sleep(0.01)
    process.wait(rng.uniform(0.0, seconds))


def newest(out: Path) -> str:
    """The name of the newest checkpoint."""
    return max((path.name for path in out.glob("checkpoints/*/update-*")), default="")


def killed_run(out: Path, kind: str, seconds: float, kills: int, rng: random.Random) -> tuple[int, str]:
    """Train, kill at most `kills` times, and finish; how often it was killed, and what went wrong if anything did."""
    killed = 0
    while True:
        process = start(out, kind, "--resume")
        try:
            if killed < kills:
                wait_at_random(process, out, seconds, rng)
            else:
                process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
        if process.returncode == 0:
            return killed, ""
        if process.returncode != -signal.SIGKILL or killed >= kills:
            return killed, f"exit code {process.returncode}: {said.decode(errors='replace')[-500:]}"
        killed += 1


def main(kills: int = 100, seed: int = 0, kinds: tuple[str, ...] = tuple(KINDS)) -> None:
    """Kill training so many times; the exit code is 1 if any run differs from one in one piece, or does not end well.

    Args:
        kills: how many in all.
        seed: of the moments.
        kinds: of runs.
    """
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    rng, began = random.Random(seed), time.monotonic()
    killed, runs, failures = dict.fromkeys(kinds, 0), 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder, whole, lasted = Path(name), {}, {}
        for kind in itertools.cycle(kinds):
            if sum(killed.values()) >= kills:
                break
            if kind not in whole:
                started, process = time.monotonic(), start(folder / kind, kind)
                _, said = process.communicate()
                if process.returncode:
                    sys.exit(f"{kind}: exit code {process.returncode}: {said.decode(errors='replace')}")
                whole[kind], lasted[kind] = contents(folder / kind), time.monotonic() - started
            out = folder / "killed"
            count, wrong = killed_run(out, kind, lasted[kind], min(MOST, kills - sum(killed.values())), rng)
            killed[kind] += count
            runs += 1
            if not wrong and (odd := differences(whole[kind], contents(out))):
                wrong = f"differs in {', '.join(odd)}"
            failures += bool(wrong)
            print(f"{kind}: killed {count} times, {wrong or 'the same bytes'}", flush=True)
            shutil.rmtree(out, ignore_errors=True)
    each = ", ".join(f"{kind} {count}" for kind, count in killed.items())
    print(
        f"{sum(killed.values())} kills ({each}) of {runs} runs in {time.monotonic() - began:.0f} s: {failures} failures"
    )
    sys.exit(failures > 0)


if __name__ == "__main__":
    tyro.cli(main)
