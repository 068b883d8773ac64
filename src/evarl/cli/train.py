"""`evarl train PRESET` or `evarl train WORLD`: train a policy and keep the run in a directory."""

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from evarl.cli.parsing import HELP_ALL, Flag, PrintsResults, options, parse
from evarl.cli.tables import draws_blocks, number, sparkline
from evarl.cli.train_help import train_help
from evarl.errors import InputError, plain_text
from evarl.learning.configuration import TrainConfig
from evarl.learning.presets import PRESETS, preset
from evarl.worlds.names import parse_arguments

if TYPE_CHECKING:
    from evarl.runs.run import Run

FEWEST = 10
"""Updates with a return from which on a curve is printed."""


@dataclass(frozen=True)
class Train(PrintsResults):
    """Train a policy and keep the run in a directory: configuration, metrics, events, checkpoints, final policies."""

    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = field(default_factory=TrainConfig)
    make: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Argument with which a Gymnasium environment is made, such as is_slippery=false; the value is JSON, or else text. Can be
    given several times."""
    paper: Flag = False
    """The paper's assessment, evaluator (listing) and policy gradient (printed) in place of our defaults; other flags still
    count."""
    out: str | None = None
    """Run directory; by default a new one under runs/, named after the world and the configuration."""
    resume: Flag = False
    """Continue the run in --out from its newest checkpoint, or start it if there is none; with more --updates than before, also
    past its planned end."""
    quiet: Flag = False
    """Print no progress."""
    checkpoint_seconds: float = 30.0
    """Time between two checkpoints."""
    vectorise: Literal["auto", "sync", "processes", "envpool"] = "auto"
    """Step Gymnasium's environments in this process (sync) or in several (processes), which is faster where a step is slow;
    auto measures one. Results are the same. envpool: those of EnvPool, in threads, where it has the id; it seeds them once, so
    numbers are other ones, and a resumed run is not that of one piece."""
    memory_gib: float | None = None
    """Memory that the run may use; by default most of what is free. Seeds are split into groups that fit."""
    seeds_per_program: int | None = None
    """Greatest number of seeds that are vectorised together; by default as many as fit into memory."""
    log_megabytes: float = 0.0
    """Disk space for a log of deployment trajectories, for `evarl ope`."""
    log_from: Literal["recent", "all", "both"] = "recent"
    """What the log holds: the last updates, as many as fit (recent); a uniform sample of the episodes of the whole training
    (all); or each of these in so much space (both)."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, train, and print the results."""
    named = arguments[0] if arguments and not arguments[0].startswith("-") else None
    settings = preset(named or "navigation", paper=named is not None and "--paper" in arguments)
    if not arguments or {"-h", "--help"} & {*arguments}:
        print(train_help(settings, named))
        return
    if HELP_ALL in arguments:
        parse(Train, ["--help"], f"evarl train {named or 'PRESET'}", Train(settings))
    if named is None:
        names = ", ".join(PRESETS)
        raise InputError(
            f"preset: is missing before {arguments[0]}; must be one of {names}, or a world such as gymnasium/CartPole-v1"
        )
    command = parse(Train, arguments[1:], f"evarl train {named}", Train(settings))

    from evarl.runs.train import train  # imports JAX
    from evarl.storage.compiled import split_processor

    split_processor(command.config.seeds)
    arguments_of_make = parse_arguments(command.make)
    result = train(
        **options(command, "paper", "make"), env_kwargs=arguments_of_make
    )  # the paper is in the configuration
    summary = {"run": str(result.path)} | result.summary
    if command.json:
        print(json.dumps(summary))
        return
    mean, error = summary["return"], summary["return_standard_error"]
    over = "" if error is None else f" (standard error over {summary['seeds']} seeds)"
    what = (
        summary.get("no_return", "no episode finished") if mean is None else f"return {number(mean, error=error)}{over}"
    )
    updates, tenth = summary["updates"], max(1, summary["updates"] // 10)
    last = summary.get("return_updates", tenth)
    print(f"{what} in the last {f'tenth of {updates}' if last == tenth else f'{last} of {updates}'} updates")
    if draws_blocks() and (drawn := _return_curve(result)):
        print(drawn)
    print(f"results in {plain_text(str(result.path))}")


def _return_curve(result: "Run") -> str:
    """The return over the run, averaged over seeds, as one line; empty where there is nothing to see."""
    table = result.metrics.group_by("update").aggregate([("return", "mean")]).sort_by("update")
    means = table["return_mean"].to_pylist()
    known = [one for one in means if one is not None]
    if len(known) < FEWEST:
        return ""
    return f"over the run {sparkline(means)} from {min(known):.4g} to {max(known):.4g}"
