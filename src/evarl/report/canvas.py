"""A canvas in the units of what is drawn, with smooth edges. Pillow is imported when one is made."""

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from evarl.report.moving import Pixels

FINER = 3
"""Drawn so many times as large, then made smaller."""
Point = tuple[float, float]


@cache
def font(size: int, bold: bool = False) -> Any:
    """Matplotlib's DejaVu Sans, which has Greek letters and mathematical signs."""
    import matplotlib
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(matplotlib.get_data_path() + f"/fonts/ttf/{name}"), size)


class Canvas:
    """An area of `width` pixels that shows x from `left` to `right` and y from `low` to `high`, upwards, at one scale."""

    def __init__(self, width: int, x: Point, y: Point, ground: str = "white", picture: Pixels | None = None):
        from PIL import Image, ImageDraw

        self._x, self._y = x, y
        self._scale = FINER * width / (x[1] - x[0])
        self.size = (width, round(width * (y[1] - y[0]) / (x[1] - x[0])))
        finer = (FINER * self.size[0], FINER * self.size[1])
        self._image = Image.new("RGB", finer, ground)
        if picture is not None:
            self._image.paste(Image.fromarray(picture).resize(finer))
        self._draw = ImageDraw.Draw(self._image)

    def at(self, point: Point) -> Point:
        """A point in pixels of the large picture."""
        return (point[0] - self._x[0]) * self._scale, (self._y[1] - point[1]) * self._scale

    def line(self, points: Sequence[Point], colour: str, width: float = 2.0, round_ends: bool = True) -> None:
        """A line through points; the width is in pixels."""
        thick = max(1, round(FINER * width))
        ends = [self.at(one) for one in points]
        for begin, end in itertools.pairwise(ends):  # Pillow's own lines are jagged
            across = np.subtract(end, begin)[::-1] * (-1, 1) * (thick / 2 / (np.hypot(*np.subtract(end, begin)) or 1))
            corners = (begin + across, end + across, end - across, begin - across)
            self._draw.polygon([(float(x), float(y)) for x, y in corners], fill=colour)
        if round_ends and thick > 2:
            for x, y in ends:
                self._draw.ellipse((x - thick / 2, y - thick / 2, x + thick / 2, y + thick / 2), fill=colour)

    def thick(self, begin: Point, end: Point, radius: float, colour: str) -> None:
        """A line with round ends whose radius is in the units of the picture."""
        self.line([begin, end], colour, 2 * radius * self._scale / FINER)

    def polygon(self, points: Sequence[Point], fill: str | None, edge: str | None = None) -> None:
        """A filled polygon."""
        self._draw.polygon([self.at(one) for one in points], fill=fill, outline=edge, width=FINER)

    def box(self, low: Point, high: Point, fill: str | None, edge: str | None = None) -> None:
        """An upright rectangle."""
        self.polygon([low, (high[0], low[1]), high, (low[0], high[1])], fill, edge)

    def circle(self, centre: Point, radius: float, fill: str | None, edge: str | None = None) -> None:
        """A disc whose radius is in the units of the picture."""
        (x, y), reach = self.at(centre), radius * self._scale
        self._draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill=fill, outline=edge, width=FINER)

    def text(self, point: Point, text: str, colour: str = "#555555", size: int = 11, anchor: str = "mm") -> None:
        """A text whose size is in pixels; the anchor is Pillow's."""
        self._draw.text(self.at(point), text, fill=colour, font=font(FINER * size), anchor=anchor)

    def pixels(self) -> Pixels:
        """The picture [height, width, 3]."""
        from PIL import Image

        return np.asarray(self._image.resize(self.size, Image.Resampling.BOX))
