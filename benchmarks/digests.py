"""`python -m benchmarks.digests OUT`: digests of what training, evaluation, OPE and certificates compute.

Run it before a change that must not alter results, and after it; `--against` compares the two. Runs of every kind are made by
the `evarl` command of the Python environment, as a user would, and kept in OUT, so that what differs can be looked at. Digests
are those of arrays and numbers alone, in an order that does not depend on their names.

    python -m benchmarks.digests runs/before
    python -m benchmarks.digests runs/after --against runs/before
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import tyro
from safetensors.numpy import load_file

SHORT = "--seeds 2 --updates 60 --environments 8 --steps 50 --log-megabytes 20"
FITTED = "--evaluator.warmup 20 --evaluator.initial-steps 50"
AWARE = f"{SHORT} {FITTED} --beta 0.05"
START = "--queries start --rollouts-per-start 2"
SMALL = "--updates 12 --evaluator.warmup 4 --evaluator.initial-steps 20"
GAME = f"--world gymnax/Breakout-MinAtar --environments 8 --steps 20 --assessment.base-updates 10 {SMALL} --beta 0.05"
RUNS = {
    "plain": f"navigation {SHORT}",
    "plain-ppo": f"navigation {SHORT} --agent.algorithm ppo",
    "passive": f"navigation {SHORT} {FITTED} --evaluator-mode colearned",
    "critic": f"navigation {AWARE}",
    "critic-one-seed": f"navigation {AWARE} --seeds 1 --ramp 10",
    "printed": f"navigation {AWARE} --gradient printed",
    "paired": f"navigation {AWARE} --gradient paired {START}",
    "score": f"navigation {AWARE} --gradient score {START}",
    "variance": f"navigation {AWARE} --beta-variance 0.01 --rollouts-per-start 2",
    "replicates": f"navigation {AWARE} --assessment.replicates 3",
    "subsample": f"navigation {AWARE} --evaluator.transitions 64",
    "ppo": f"navigation {AWARE} --agent.algorithm ppo",
    "listing": f"navigation {AWARE} --evaluator.network.kind listing",
    "paired-tokens": f"navigation {AWARE} --evaluator.network.kind PAIRS",
    "linear": f"navigation {AWARE} --evaluator.network.kind linear",
    "frozen": f"navigation {SHORT} --beta 0.05 --evaluator-mode frozen --evaluator.file OUT/plain/pretrained.safetensors "
    "--assessment.file OUT/plain/pretrained-assessment.safetensors",
    "game": f"minatar {GAME}",
    "game-ppo": f"minatar {GAME} --agent.algorithm ppo --agent.ppo.minibatches 4",
    "host": f"navigation --world gymnasium/CartPole-v1 --environments 2 --steps 40 {SMALL} --beta 0.05 --log-megabytes 5",
    "robot": f"brax --world brax/reacher --environments 16 --assessment.base-updates 2 {SMALL} --beta 0.05",
}
"""Arguments of `evarl train`, in the order in which they are run."""

THEN = {
    "plain": ["pretrain RUN --policies 10 --transitions 32 --steps 100", "ope RUN --json"],
    "critic": [
        "assess RUN --json",
        "evaluate RUN --passive OUT/passive --states 16 --rollouts 8 --ope --json",
        "certify RUN --threshold -8 --rollouts 200 --json",
        "certify RUN --rollouts 200 --claim CLAIM-SINGLE --json",
        "certify RUN --rollouts 200 --claim CLAIM-MEAN-ERROR --epsilon 1 --json",
        "certify RUN --rollouts 200 --claim CLAIM-RMSE --json",
        "compare RUN --threshold -8 --rollouts 100 --again --json",
    ],
    "host": ["assess RUN --json", "evaluate RUN --states 4 --rollouts 2 --json"],
    "game": ["assess RUN --json", "evaluate RUN --states 8 --rollouts 4 --json"],
}
"""Commands that are run afterwards; each prints a JSON object."""

CLAIMS = {
    "PAIRS": "pairs",
    "CLAIM-SINGLE": "single-episode",
    "CLAIM-MEAN-ERROR": "evaluator-overstatement",
    "CLAIM-RMSE": "evaluator-error",
}
VOLATILE = {"seconds", "compile_seconds", "steps_per_second", "peak_memory_gib", "bytes", "time"}
"""Fields that are not results."""


def digests(run: Path, said: list[Any]) -> dict[str, str]:
    """What one run computed: one digest for each file of arrays, each metric, and each command's numbers."""
    found = {}
    for path in sorted(
        [*run.glob("policy/seed-*"), *run.glob("evaluator/seed-*"), *run.glob("pretrained.safetensors")]
    ):
        own = {
            name: x for name, x in load_file(path).items() if path.parent.name == "policy" or name.startswith("state")
        }
        found[str(path.relative_to(run))] = _sha(
            sorted(_sha([str(x.dtype), x.shape, x.tobytes()]) for x in own.values())
        )
    metrics = pq.read_table(run / "metrics.parquet")
    for name in metrics.column_names:
        found[f"metric {name}"] = _sha([np.asarray(metrics[name].to_numpy()).tobytes()])
    for path in sorted(run.glob("log/*/updates-*")):
        found[f"log {path.parent.name}"] = _sha(sorted(_sha([x.tobytes()]) for x in load_file(path).values()))
    for command, answer in said:
        found[command] = _sha(sorted(map(repr, _numbers(answer))))
    return found


def _numbers(answer: Any, name: str = "") -> Iterator[float]:
    """Every number in a JSON answer that is a result."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            yield from _numbers(value, key)
    elif isinstance(answer, list):
        for value in answer:
            yield from _numbers(value, name)
    elif isinstance(answer, int | float) and not isinstance(answer, bool) and name not in VOLATILE:
        yield float(answer)


def _sha(parts: list[Any]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else str(part).encode())
    return whole.hexdigest()[:16]


def _evarl(arguments: str, out: Path, run: Path) -> subprocess.CompletedProcess[str]:
    words = [word.replace("OUT", str(out)).replace("RUN", str(run)) for word in arguments.split()]
    words = [CLAIMS.get(word, word) for word in words]
    command = [sys.executable, "-c", "from evarl.cli.main import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _one(name: str, out: Path) -> dict[str, str]:
    run, said = out / name, []
    for arguments in [f"train {RUNS[name]} --quiet --json --out RUN", *THEN.get(name, [])]:
        done = _evarl(arguments, out, run)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{name}: evarl {arguments} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        if arguments.endswith("--json"):
            said.append((arguments, json.loads(done.stdout.strip().splitlines()[-1])))
    (run / "said.json").write_text(json.dumps(said, indent=1))
    return digests(run, said)


def main(
    out: Annotated[Path, tyro.conf.Positional], against: Path | None = None, only: tuple[str, ...] = tuple(RUNS)
) -> None:
    """Make the runs that OUT does not have yet, write digests.json, and compare it with that of another folder.

    Args:
        out: folder for runs and digests.
        against: folder of an earlier call, to compare with.
        only: names of runs.
    """
    out.mkdir(parents=True, exist_ok=True)
    file = out / "digests.json"
    found: dict[str, dict[str, str]] = json.loads(file.read_text()) if file.exists() else {}
    for name in RUNS:
        if name in only and name not in found:
            print(name, flush=True)
            found[name] = _one(name, out)
            file.write_text(json.dumps(found, indent=1))
    if against is None:
        return
    before = json.loads((against / "digests.json").read_text())
    same = different = 0
    for name in sorted(found.keys() & before.keys()):
        one, other = found[name], before[name]
        wrong = [what for what in sorted(one.keys() | other.keys()) if one.get(what) != other.get(what)]
        same, different = same + len(one) - len(wrong), different + len(wrong)
        if wrong:
            print(f"{name}: {', '.join(wrong)}")
    print(f"{same} digests are the same, {different} differ")


if __name__ == "__main__":
    tyro.cli(main)
