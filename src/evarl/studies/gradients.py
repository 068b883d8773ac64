"""Where evaluation-aware learning earns its place: gradient × β on navigation, with a passive and a frozen evaluator.

Every condition is one run of several seeds, kept and never run twice. Return, evaluator error at the start and at visited
states (ground truth by Monte Carlo) and skill over the best predictor without Ξ are measured on the final policies.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evarl.learning.configuration import TrainConfig
from evarl.learning.presets import preset
from evarl.ranges import whole
from evarl.runs.pretrain import pretrain
from evarl.runs.run import Run
from evarl.runs.train import changed, train
from evarl.storage.files import write_bytes
from evarl.storage.plain import seal
from evarl.studies.measure import measure, summarise

BETAS = (0.005, 0.05, 0.5)
FEW = 8
"""Deployment returns of each policy that the evaluator sees in the conditions *few*, out of 1 600."""

MAIN = (
    "passive β=0",
    "critic β=0.05",
    "ramped paired β=0.5",
    "ramped paired β=1.5",
    "few passive β=0",
    "few critic β=0.05",
    "few printed β=0.01",
)
"""Conditions that get three times as many seeds as the others: the paper's protocol has 30."""

QUERIES = {"critic": "visited", "printed": "visited", "paired": "start", "score": "start"}


def conditions(updates: int) -> dict[str, dict[str, Any]]:
    """Name of each condition, and what it changes in the navigation preset."""
    base: dict[str, Any] = {"updates": updates, "evaluator_mode": "colearned"}
    navigation = preset("navigation")
    named: dict[str, dict[str, Any]] = {
        "passive β=0": base,
        "critic β=0.05": base | {"gradient": "critic", "beta": 0.05},
    }
    few = base | {"evaluator": dataclasses.replace(navigation.evaluator, transitions=FEW)}
    named["few passive β=0"] = few
    named["few critic β=0.05"] = few | {"gradient": "critic", "beta": 0.05}
    named["few printed β=0.01"] = few | {"gradient": "printed", "beta": 0.01}
    for gradient, queries in QUERIES.items():
        for beta in BETAS:
            named[f"{gradient} β={beta}"] = base | {"gradient": gradient, "queries": queries, "beta": beta}
    ramp = {"ramp": max(1, updates - navigation.evaluator.warmup), "beta": 0.5}
    named["ramped critic β=0.5"] = base | ramp | {"gradient": "critic"}
    named["ramped paired β=0.5"] = base | ramp | {"gradient": "paired", "queries": "start"}
    named["ramped paired β=1.5"] = base | ramp | {"gradient": "paired", "queries": "start", "beta": 1.5}
    # here the critic must speak of the same value as the evaluator, which ends at the time limit
    agent = dataclasses.replace(navigation.agent, truncation="as-termination")
    frozen = base | {"evaluator_mode": "frozen", "gradient": "critic"}
    for beta in (0.0, *BETAS):
        named[f"frozen critic β={beta}"] = frozen | {"agent": agent, "beta": beta}
    named["frozen ramped critic β=0.5"] = frozen | {"agent": agent} | ramp
    named["frozen ramped bootstrapped critic β=0.5"] = frozen | ramp
    return named


def study(out: Path, seeds: int, updates: int, say: Callable[[str], None], share: tuple[int, int] = (0, 1)) -> None:
    """Run what is missing, measure it, and write one JSON file per condition.

    With `share` = (i, n), every n-th condition from the i-th on: for n processes at a time. The seeds of a condition run
    one after the other in one program, which on two cores is faster than all at once.
    """
    whole("seeds", seeds)
    whole("updates", updates)
    whole("share", share[1])
    whole("share", share[0], least=0, most=share[1] - 1)
    out.mkdir(parents=True, exist_ok=True)
    frozen: Path | None = None
    for name, changes in list(conditions(updates).items())[share[0] :: share[1]]:
        file = out / f"{name.replace(' ', '-').replace('β=', 'beta-')}.json"
        if file.exists():
            continue
        if changes["evaluator_mode"] == "frozen":
            frozen = frozen or _pretrained(out, updates)
            changes = changes | {"evaluator": dataclasses.replace(preset("navigation").evaluator, file=str(frozen))}
        config: TrainConfig = changed(preset("navigation"), changes | {"seeds": seeds * (3 if name in MAIN else 1)})
        say(f"{name}: {config.seeds} seeds")
        folder = Path("runs") / "studies" / out.name / file.stem
        run = train(config, out=folder, resume=True, quiet=True, seeds_per_program=1)
        rows = [dataclasses.asdict(measure(run, seed)) for seed in run.seeds]
        result = {"condition": name, "seconds": run.summary["seconds"], "config": run.config.to_dict(), "seeds": rows}
        write_bytes(file, (json.dumps(seal(result), indent=1, ensure_ascii=False) + "\n").encode())
        say(f"  { ({k: round(v[0], 3) for k, v in summarise(rows).items()}) }")


def _pretrained(out: Path, updates: int) -> Path:
    """An evaluator fitted to all policies of ordinary training with other seeds than those of the study."""
    config = changed(preset("navigation"), {"updates": updates, "seeds": 4, "seed": 1000, "evaluator_mode": "none"})
    path = Path("runs") / "studies" / out.name / "pretraining"
    file = path / "pretrained.safetensors"
    if not file.exists():
        train(config, out=path, resume=True, quiet=True)
        pretrain(Run.load(path))
    return file
