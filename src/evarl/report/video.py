"""Videos of policies: recorded episodes, drawn step by step, with the return so far and what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

import numpy as np

from evarl.errors import InputError, plain_text
from evarl.evaluation.inputs import opened
from evarl.evaluation.recording import Episode, Show, record
from evarl.ranges import real
from evarl.report.canvas import font
from evarl.report.drawings import Drawing, drawing_of
from evarl.report.moving import BRIEFEST, Pixels, ffmpeg, gif, mp4
from evarl.runs.run import Run
from evarl.storage.files import write_bytes

ENDINGS = (".gif", ".mp4")
MARGIN, LINE, HEAD = 12, 19, 24
"""Pixels around pictures, of a line of text, and above a picture."""
LINES = 3
"""Lines below a picture."""
NARROWEST = 380
"""Pixels that the text below needs."""
HELD = 1.2
"""Seconds for which the end of an episode is shown."""
MOST_FPS = 120
MOST_SHOWN = 4
"""Episodes that a video names when it is printed."""
ENDS = {"terminated": "ended", "truncated": "time limit reached", "cut": "the episode goes on"}


@dataclass(frozen=True)
class Video:
    """What was recorded and where it was written."""

    path: Path
    episodes: list[Episode]
    """Of the policy."""
    random: list[Episode]
    """Of random actions; empty unless they were asked for."""
    discount: float

    def __repr__(self) -> str:
        drawn = [*self.episodes, *self.random]
        shown = "".join(f"\n  {one!r}" for one in drawn[:MOST_SHOWN])
        more = f"\n  … ({len(drawn)} episodes)" if len(drawn) > MOST_SHOWN else ""
        return f"<Video {plain_text(str(self.path))}{shown}{more}>"


def video(
    run: Run | str | Path,
    path: str | Path | None = None,
    *,
    episodes: int = 1,
    seed: int | None = None,
    context: Sequence[str] | Mapping[str, float] | None = None,
    deterministic: bool = False,
    random: bool = False,
    steps: int | None = None,
    fps: float | None = None,
    random_seed: int = 0,
) -> Video:
    """Record episodes of a run's final policy and write them as a video, GIF or MP4 by the ending of `path`.

    Args:
        run: a run or its directory.
        path: the file; by default video.gif in the run. MP4 requires `pip install evarl[video]`.
        episodes: how many are shown, one after the other.
        seed: the seed whose policy is shown; by default the first.
        context: hidden numbers of the site in a family of worlds, {"bridge": 0.4}; drawn for each episode if not given.
        deterministic: take the likeliest action (or the mean) in place of a draw.
        random: show uniformly drawn actions beside the policy, in the same world with the same random numbers.
        steps: steps of an episode that are shown, at most.
        fps: pictures, that is steps, in a second; by default what suits the world.
        random_seed: random seed.
    """
    if path is not None and Path(path).suffix.lower() not in ENDINGS:
        raise InputError(f"out: '{Path(path).name}' is not allowed; must end in {' or '.join(ENDINGS)}")
    if path is not None and Path(path).suffix.lower() == ".mp4":
        ffmpeg()  # before anything is recorded
    run = opened(run)
    file = run.path / "video.gif" if path is None else Path(path)
    if fps is not None:
        real("fps", fps, above=0, most=MOST_FPS)
    show = Show(episodes, seed, random_seed, context, deterministic, False, steps)
    drawing = drawing_of(run.world)
    shown = [record(run, show, drawing.look, drawing.world)]
    if random:
        shown.append(record(run, replace(show, random=True), drawing.look, drawing.world))
    frames = Frames.of(run, drawing, shown, ("likeliest actions" if deterministic else "policy", "random actions"))
    speed = drawing.fps if fps is None else fps
    write_bytes(file, encoded(frames, speed, file.suffix.lower()))
    return Video(file, shown[0], shown[1] if random else [], run.world.discount)


def encoded(frames: "Frames", fps: float, ending: str) -> bytes:
    """Pictures as a file; the end of each episode is held."""
    hold = max(1, round(HELD * fps))
    if ending == ".mp4":
        return mp4(frames.held(hold), fps)
    each = max(BRIEFEST, round(100 / fps) * 10)
    return gif(frames, [each + (round(HELD * 1000) if last else 0) for last in frames.ends])


@dataclass(frozen=True)
class Frames(Sequence[Pixels]):
    """The pictures of a video, each of which is drawn when it is asked for."""

    drawing: Drawing
    shown: list[list[Episode]]
    """Episodes of each policy, side by side."""
    heads: tuple[str, ...]
    title: str
    varying: tuple[str, ...]
    """Names of the hidden numbers that are not the same on all sites."""
    discount: float
    moments: tuple[tuple[int, int], ...]
    """Number of the episode and steps done, for each picture."""
    ends: tuple[bool, ...]
    """Which of them are the last of their episode."""

    @classmethod
    def of(cls, run: Run, drawing: Drawing, shown: list[list[Episode]], heads: tuple[str, ...]) -> "Frames":
        """All pictures; episodes that are shown side by side begin together, and the longest one decides when both end."""
        longest = [max(one.steps for one in beside) for beside in zip(*shown, strict=True)]
        moments = [(number, step) for number, steps in enumerate(longest) for step in range(steps + 1)]
        ends = [step == longest[number] for number, step in moments]
        heads = heads[: len(shown)] if len(shown) > 1 else ()
        varying, world = tuple(one.name for one in run.world.contexts if one.low < one.high), run.world
        return cls(drawing, shown, heads, run.config.world, varying, world.discount, tuple(moments), tuple(ends))

    def held(self, times: int) -> "Frames":
        """The same with the last picture of each episode repeated."""
        kept = [
            (moment, end)
            for moment, end in zip(self.moments, self.ends, strict=True)
            for _ in range(1 + (times if end else 0))
        ]
        return replace(self, moments=tuple(moment for moment, _ in kept), ends=tuple(end for _, end in kept))

    def __len__(self) -> int:
        return len(self.moments)

    @overload
    def __getitem__(self, index: int) -> Pixels: ...
    @overload
    def __getitem__(self, index: slice) -> "Sequence[Pixels]": ...
    def __getitem__(self, index: int | slice) -> "Pixels | Sequence[Pixels]":
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        number, step = self.moments[index]
        beside = [episodes[number] for episodes in self.shown]
        pictures = [self.drawing.draw(one, min(step, one.steps)) for one in beside]
        return self._composed(pictures, beside, number, step)

    def _composed(self, pictures: list[Pixels], beside: list[Episode], number: int, step: int) -> Pixels:
        """Pictures side by side, with a title above and what is known below."""
        from PIL import Image, ImageDraw

        widths = [max(one.shape[1], NARROWEST if len(pictures) == 1 else 300) for one in pictures]
        tall = max(one.shape[0] for one in pictures)
        top = MARGIN + LINE + (HEAD if self.heads else 6)
        size = sum(widths) + MARGIN * (len(pictures) + 1), top + tall + 8 + LINE * LINES + MARGIN
        image = Image.new("RGB", (size[0] + size[0] % 2, size[1] + size[1] % 2), "white")
        draw = ImageDraw.Draw(image)
        draw.text((MARGIN, MARGIN), self.title, fill="#333333", font=font(13, True))
        count = len(self.shown[0])
        right = f"episode {number + 1} of {count}" if count > 1 else ""
        draw.text((size[0] - MARGIN, MARGIN), right, fill="#555555", font=font(13), anchor="ra")
        left = MARGIN
        for index, (picture, episode, width) in enumerate(zip(pictures, beside, widths, strict=True)):
            if self.heads:
                draw.text((left, MARGIN + LINE + 2), self.heads[index], fill="#555555", font=font(13))
            image.paste(Image.fromarray(picture), (left + (width - picture.shape[1]) // 2, top))
            for line, text in enumerate(self._told(episode, step)):
                draw.text((left, top + tall + 8 + LINE * line), text, fill="black", font=font(13))
            left += width + MARGIN
        return np.asarray(image)

    def _told(self, episode: Episode, step: int) -> list[str]:
        """The lines below a picture."""
        done = min(step, episode.steps)
        plain, discounted = (float(episode.returns(discount)[done]) for discount in (1.0, self.discount))
        end = f", {ENDS[episode.end]}" if done == episode.steps else ""
        site = "".join(
            f", {name} = {value:.3g}" for name, value in (episode.context or {}).items() if name in self.varying
        )
        predicted = "" if episode.predicted is None else f", predicted from the test {_number(episode.predicted)}"
        return [f"step {done}{end}{site}", f"return {_number(plain)}", f"discounted {_number(discounted)}{predicted}"]


def _number(value: float) -> str:
    """A number with a true minus sign.

    >>> _number(-0.254), _number(123.0)
    ('−0.25', '123.00')
    """
    return f"{value:.2f}".replace("-", "−")
