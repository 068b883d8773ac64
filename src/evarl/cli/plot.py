"""`evarl plot RUN [RUN …]`: learning curves of runs in one picture."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from evarl.cli.parsing import OpensRuns, parse
from evarl.errors import InputError, plain_text
from evarl.storage.files import write_bytes

ENDINGS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Plot(OpensRuns):
    """Draw metrics of runs against training: the mean over seeds, its 95 % interval, and every seed faintly behind.

    Any column of metrics.parquet can be drawn; a wrong name lists them.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN …]")]
    """Directories of runs, finished or not."""
    metric: tuple[str, ...] = ("return",)
    """Metrics, each in a panel of its own."""
    labels: tuple[str, ...] = ()
    """Names of the runs in the legend; by default those of their directories."""
    x: Literal["steps", "updates", "time"] = "steps"
    """Environment steps, policy updates, or seconds."""
    smooth: int | None = None
    """Updates over which each seed is averaged; by default a hundredth of the run, 1: none."""
    summary: Literal["mean", "iqm"] = "mean"
    """The mean over seeds with a t-interval, or the interquartile mean with a bootstrap interval; intervals need three seeds."""
    out: str | None = None
    """File that ends in .png, .svg or .pdf; by default curves.png in the first run."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, draw, and print where the picture is."""
    command = parse(Plot, arguments, "evarl plot", Plot(tyro.MISSING))
    if not command.runs:
        raise InputError("runs: are missing; must be directories of runs")
    file = Path(command.out) if command.out else Path(command.runs[0]) / "curves.png"
    if file.suffix.lower() not in ENDINGS:
        raise InputError(f"out: '{file.name}' is not allowed; must end in {', '.join(ENDINGS)}")

    from evarl.report.curves import plot  # imports JAX

    figure = plot(
        command.runs,
        command.metric,
        labels=command.labels,
        x=command.x,
        smooth=command.smooth,
        summary=command.summary,
    )
    drawn = io.BytesIO()
    figure.savefig(drawn, format=file.suffix.lower().removeprefix("."), dpi=150)
    write_bytes(file, drawn.getvalue())
    print(f"picture in {plain_text(str(file))}")
