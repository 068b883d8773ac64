"""`evarl pretrain RUN`: fit an evaluator to all policies of a run, to be used frozen in another run."""

from dataclasses import dataclass

import tyro

from evarl.cli.parsing import OpensRuns, RunPath, options, parse
from evarl.errors import plain_text


@dataclass(frozen=True)
class Pretrain(OpensRuns):
    """Train a run again, bit for bit, and fit an evaluator to its policies.

    The file is for `evarl train … --evaluator-mode frozen --evaluator.file FILE --assessment.file FILE-assessment…`.
    """

    run: RunPath
    """Directory of a finished run."""
    out: str | None = None
    """File for the evaluator; by default pretrained.safetensors in the run directory."""
    policies: int = 100
    """Number of policies of the run to use, at equal distances."""
    transitions: int = 512
    """States kept of each policy."""
    steps: int = 5000
    """Gradient steps."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, fit the evaluator, and print its path."""
    command = parse(Pretrain, arguments, "evarl pretrain", Pretrain(tyro.MISSING))

    from evarl.runs.pretrain import pretrain  # imports JAX
    from evarl.runs.run import Run

    path = pretrain(Run.load(command.run), **options(command, "run"))
    print(f"evaluator in {plain_text(str(path))}")
