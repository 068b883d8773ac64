"""`evarl train PRESET` or `evarl train WORLD`: train a policy and keep the run in a directory."""

import json
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from evarl.cli.parsing import Flag, PrintsResults, options, parse
from evarl.cli.tables import number
from evarl.errors import plain_text
from evarl.learning.configuration import TrainConfig
from evarl.learning.presets import PRESETS, preset
from evarl.worlds.names import parse_arguments


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
    """Continue the run in --out from its newest checkpoint, or start it if there is none."""
    quiet: Flag = False
    """Print no progress."""
    checkpoint_seconds: float = 30.0
    """Time between two checkpoints."""
    vectorise: Literal["auto", "sync", "processes"] = "auto"
    """Step Gymnasium's environments in this process (sync) or in several (processes), which is faster where a step is slow;
    auto measures one. Results are the same."""
    memory_gib: float | None = None
    """Memory that the run may use; by default most of what is free. Seeds are split into groups that fit."""
    seeds_per_program: int | None = None
    """Greatest number of seeds that are vectorised together; by default as many as fit into memory."""
    log_megabytes: float = 0.0
    """Disk space for a log of deployment trajectories, for `evarl ope`: the last updates, as many as fit."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, train, and print the results."""
    if not arguments or arguments[0] in ("-h", "--help"):
        for name, build in PRESETS.items():
            print(f"  {name:<12} {build.__doc__}")
        print("  WORLD        a world, such as gymnasium/CartPole-v1, with the preset that fits it")
        print("\nThe settings below can be given after any preset; the values shown are those of navigation.\n")
        parse(Train, ["--help"], "evarl train PRESET", Train(preset("navigation")))
    settings = preset(arguments[0], paper="--paper" in arguments)
    command = parse(Train, arguments[1:], f"evarl train {arguments[0]}", Train(settings))

    from evarl.runs.train import train  # imports JAX

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
    what = "no episode finished" if mean is None else f"return {number(mean, error=error)}{over}"
    print(f"{what} in the last tenth of {summary['updates']} updates")
    print(f"results in {plain_text(str(result.path))}")
