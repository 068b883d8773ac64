"""`evarl animate RUN`: a picture in motion of policies that take their test and are deployed, on two sites."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from evarl.cli.parsing import OpensRuns, RunPath, parse
from evarl.errors import InputError, plain_text
from evarl.storage.files import write_bytes

ENDINGS = (".gif", ".png")


@dataclass(frozen=True)
class Animate(OpensRuns):
    """Draw how a policy takes its test and is deployed on two sites, beside the predicted and the true value.

    Only worlds with a map can be drawn: crossing.
    """

    run: RunPath
    """Directory of a finished run with an evaluator."""
    passive: str | None = None
    """Directory of a run with β = 0 and a co-learned evaluator, drawn above."""
    site: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Hidden context of a site, given twice; by default the two ends of what training draws."""
    seed: int | None = None
    """Seed of the policies and evaluators; by default the first."""
    random_seed: int = 0
    """Random seed."""
    out: str | None = None
    """File: .gif for the animation, .png for its last picture; by default animation.gif in the run."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, let the policies act, draw, and write the picture."""
    command = parse(Animate, arguments, "evarl animate", Animate(tyro.MISSING))
    file = Path(command.out) if command.out else Path(command.run) / "animation.gif"
    if file.suffix not in ENDINGS:
        raise InputError(f"out: '{file.name}' is not allowed; must end in {' or '.join(ENDINGS)}")

    from evarl.evaluation.scenes import compared_scenes  # imports JAX
    from evarl.report.animation import animated, still

    rows = compared_scenes(command.run, command.passive, command.site, command.seed, command.random_seed)
    write_bytes(file, still(rows) if file.suffix == ".png" else animated(rows))
    for row in rows:
        told = [f"site {one.site:g}: predicted {one.predicted:.3f}, true {one.true:.3f}" for one in row.scenes]
        print(plain_text(f"{row.run} (β = {row.beta:g}, seed {row.seed}): {'; '.join(told)}"))
    print(f"picture in {plain_text(str(file))}")
