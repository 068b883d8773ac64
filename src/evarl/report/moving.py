"""Moving pictures as files: GIF by Pillow, MP4 by the ffmpeg that the package imageio-ffmpeg brings."""

import io
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from evarl.errors import FaultError, InputError

Pixels = UInt8[np.ndarray, "height width 3"]
COLOURS = 255
"""Colours of a GIF."""
SAMPLE = 9
"""Pictures that the palette of a GIF is made from."""
FLAT = 4096
"""Pictures with more colours than this are photographs, whose palette is found by median cut."""
BRIEFEST = 20
"""Milliseconds for which a GIF must show a picture; most programs show quicker ones slowly."""


def gif(pictures: Sequence[Pixels], milliseconds: Sequence[int], colours: int = COLOURS) -> bytes:
    """A GIF that loops; the same data give the same bytes. Pictures are asked for one after the other."""
    from PIL import Image

    count = len(pictures)
    chosen = sorted({round(index * (count - 1) / (SAMPLE - 1)) for index in range(SAMPLE)})
    palette = _palette([pictures[index] for index in chosen], colours)

    def images() -> Iterator[Image.Image]:
        for indices in _indexed(pictures, palette):
            image = Image.fromarray(indices)
            image.putpalette(palette.tobytes())
            yield image

    first, *others = images()
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=list(milliseconds), loop=0, disposal=1)
    return file.getvalue()


def mp4(pictures: Sequence[Pixels], fps: float) -> bytes:
    """An MP4 (H.264) that browsers and players show; width and height must be even."""
    imageio_ffmpeg = ffmpeg()
    height, width = pictures[0].shape[:2]
    with tempfile.TemporaryDirectory(prefix="evarl-") as folder:
        file = Path(folder) / "video.mp4"
        made = ["-movflags", "+faststart", "-preset", "medium"]
        writer = imageio_ffmpeg.write_frames(
            str(file), (width, height), fps=fps, quality=7, macro_block_size=2, output_params=made
        )
        try:
            with warnings.catch_warnings():  # the child process becomes ffmpeg at once and takes no lock of JAX
                warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
                writer.send(None)
            for picture in pictures:
                writer.send(np.ascontiguousarray(picture))
            writer.close()
            return file.read_bytes()
        except OSError as error:
            raise FaultError(f"video: ffmpeg failed ({str(error).splitlines()[0]:.200})") from error


def ffmpeg() -> Any:
    """The package that writes MP4; InputError if it is not installed."""
    try:
        import imageio_ffmpeg
    except ModuleNotFoundError as error:
        raise InputError(
            "out: MP4 requires the package imageio-ffmpeg; install evarl[video], or choose a file that ends in .gif"
        ) from error
    return imageio_ffmpeg


def _palette(pictures: Sequence[Pixels], count: int) -> np.ndarray:
    """At most so many colours [N, 3]: the commonest, so that areas keep theirs exactly; of photographs, by median cut."""
    from PIL import Image

    every = np.concatenate([one.reshape(-1, 3) for one in pictures])
    colours, counts = np.unique(every, axis=0, return_counts=True)
    if len(colours) > FLAT:
        found = Image.fromarray(every[None]).quantize(count, method=Image.Quantize.MEDIANCUT).getpalette() or []
        return np.asarray(found, np.uint8).reshape(-1, 3)
    return colours[np.argsort(-counts, kind="stable")[:count]]


def _indexed(pictures: Sequence[Pixels], palette: np.ndarray) -> Iterator[np.ndarray]:
    """Pictures [height, width] of indices of the nearest colours in a palette."""
    nearest = np.full(2**24, -1, np.int16)
    for picture in pictures:
        codes = picture.astype(np.int32) @ np.array([2**16, 2**8, 1], np.int32)
        new = np.unique(codes[nearest[codes] < 0])
        colours = np.stack([new >> 16, new >> 8 & 255, new & 255], axis=1)
        for part in np.array_split(np.arange(len(new)), max(1, len(new) // 4096)):
            distance = ((colours[part, None] - palette[None].astype(np.int32)) ** 2).sum(axis=2)
            nearest[new[part]] = distance.argmin(axis=1)
        yield nearest[codes].astype(np.uint8)
