"""`evarl video RUN`: episodes of a policy as an MP4 or a GIF."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from evarl.cli.parsing import Flag, OpensRuns, RunPath, options, parse
from evarl.errors import plain_text

if TYPE_CHECKING:
    from evarl.evaluation.recording import Episode


@dataclass(frozen=True)
class Video(OpensRuns):
    """Record episodes of a run's final policy, with the return so far and the value that its evaluator predicted.

    Drawn are navigation, crossing, MinAtar and other boards, classic control, Brax's robots, and Gymnasium's environments as
    they draw themselves.
    """

    run: RunPath
    """Directory of a finished run."""
    out: str | None = None
    """File that ends in .gif or .mp4; by default video.gif in the run. MP4 requires: pip install 'evarl[video]'."""
    episodes: int = 1
    """Episodes, one after the other."""
    seed: int | None = None
    """Seed of the policy; by default the first."""
    context: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Hidden number of the site, once for each that varies; by default drawn for each episode as in training."""
    deterministic: Flag = False
    """Take the likeliest action, or the mean, in place of a draw."""
    random: Flag = False
    """Show uniformly drawn actions beside the policy."""
    steps: int | None = None
    """Steps of an episode that are shown, at most; by default all."""
    fps: float | None = None
    """Steps in a second; by default what suits the world."""
    random_seed: int = 0
    """Random seed."""


def run(arguments: list[str]) -> None:
    """Parse the arguments, record, write the video and print what happened."""
    command = parse(Video, arguments, "evarl video", Video(tyro.MISSING))

    from evarl.report.video import video  # imports JAX

    made = video(command.run, command.out, **options(command, "run", "out"))
    for number, episode in enumerate(made.episodes, start=1):
        print(f"episode {number}: {_told(episode, made.discount)}")
    for number, episode in enumerate(made.random, start=1):
        print(f"random actions, episode {number}: {_told(episode, made.discount)}")
    print(f"video in {plain_text(str(made.path))}")


def _told(episode: "Episode", discount: float) -> str:
    site = "".join(f"{name}={value:g}, " for name, value in (episode.context or {}).items())
    plain, discounted = episode.returns()[-1], episode.returns(discount)[-1]
    predicted = "" if episode.predicted is None else f", predicted value {episode.predicted:.3f}"
    return f"{site}{episode.steps} steps ({episode.end}), return {plain:.3f}, discounted {discounted:.3f}{predicted}"
