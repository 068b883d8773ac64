"""Evaluators fitted to all policies of a finished run, written to a file that another run can use frozen."""

import dataclasses
from pathlib import Path

from evarl.learning.pretraining import fit_to, learnt_from, remember
from evarl.runs.assessments import ASSESSMENT, save_assessment, save_evaluator
from evarl.runs.limits import check_pretraining
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.runs.train import new_assessment


def pretrain(
    run: Run, *, out: str | Path | None = None, policies: int = 100, transitions: int = 512, steps: int = 5000
) -> Path:
    """Fit an evaluator to the policies of a run and write it, with its assessment beside it; returns its path.

    Args:
        run: a finished run.
        out: file for the evaluator; by default `pretrained.safetensors` in the run directory.
        policies: number of policies of the run to use, at equal distances.
        transitions: states kept of each policy.
        steps: gradient steps.
    """
    check_pretraining(run.config, run.world, policies, transitions, steps)
    keep_compiled_programs()
    path = Path(out) if out is not None else run.path / "pretrained.safetensors"
    fitted = dataclasses.replace(run.config.evaluator, file=None)
    config = dataclasses.replace(run.config, evaluator_mode="colearned", evaluator=fitted)
    assessment = run.assessment or new_assessment(config, print)
    past = remember(config, assessment, policies, transitions, run.seeds)
    evaluator, state = fit_to(past, config, list(range(len(run.seeds))), steps, run.seeds[0])
    save_evaluator(path, learnt_from(past, evaluator, state), config)
    save_assessment(path.with_name(f"{path.stem}-{ASSESSMENT}"), assessment)
    return path
