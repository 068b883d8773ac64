"""The map of the world crossing, drawn on matplotlib axes whose coordinates are pixels."""

from typing import Any

import numpy as np

from evarl.worlds.crossing import BANK, BRIDGE, COLUMNS, FORD, GOAL, ROWS, START

CELL, RIVER = 30, 26
"""Size of a cell and of the river between two rows of cells."""
MAP = (COLUMNS * CELL, ROWS * CELL + RIVER)
SHADES = {"ground": "#f4f4f1", "lines": "#e3e3de", "river": "#b9ddf3", "bridge": "#c9a36a", "stones": "#8f8f8f"}
FAINT = "#767676"


def place(corner: tuple[float, float], column: float, row: float) -> tuple[float, float]:
    """The middle of a cell of the map with this left lower corner."""
    x, y = corner
    return x + (column + 0.5) * CELL, y + (row + 0.5) * CELL + (RIVER if row > BANK else 0)


def draw_map(axes: Any, corner: tuple[float, float]) -> None:
    """The banks, the river, the bridge, the ford, start and goal."""
    from matplotlib.patches import Rectangle

    (x, y), (width, height) = corner, MAP
    bank = y + (BANK + 1) * CELL
    axes.add_patch(Rectangle((x, y), width, height, color=SHADES["ground"], lw=0))
    for column in range(1, COLUMNS):
        axes.plot([x + column * CELL] * 2, [y, y + height], color=SHADES["lines"], lw=0.8)
    for row in range(1, ROWS):
        axes.plot([x, x + width], [place(corner, 0, row)[1] - CELL / 2] * 2, color=SHADES["lines"], lw=0.8)
    axes.add_patch(Rectangle((x, bank), width, RIVER, color=SHADES["river"], lw=0, zorder=3))
    for plank in range(len(BRIDGE) * 5):
        left = x + BRIDGE[0] * CELL + plank * 6 + 0.75
        axes.add_patch(Rectangle((left, bank - 3), 4.5, RIVER + 6, color=SHADES["bridge"], lw=0, zorder=4))
    stones = x + FORD * CELL + np.array([9, 20, 10, 19]), bank + np.array([4, 9, 15, 21])
    axes.plot(*stones, "o", color=SHADES["stones"], markersize=4.5, markeredgewidth=0, zorder=4)
    words = {"size": 8, "style": "italic", "ha": "center", "va": "center"}
    axes.text(x + 4.5 * CELL, bank + RIVER / 2, "river", color="#30617f", zorder=4, **words)
    for text, middle in (("bridge", x + (BRIDGE[0] + len(BRIDGE) / 2) * CELL), ("ford", x + (FORD + 0.5) * CELL)):
        axes.text(middle, bank - 13, text, color=FAINT, **words)
    for text, cell in (("start", START), ("goal", GOAL)):
        at = place(corner, *cell)
        axes.add_patch(Rectangle((at[0] - 14, at[1] - 14), 28, 28, fill=text == "goal", fc="#f0e442", ec="#555555"))
        axes.text(*at, text, size=7.5, ha="center", va="center", color="#333333")


def map_pixels(scale: float) -> np.ndarray:
    """Pixels [height, width, 3] of the map, so many times as large as `MAP`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(MAP[0] / 100, MAP[1] / 100), dpi=100 * scale)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, MAP[0]), ylim=(0, MAP[1]))
    axes.set_axis_off()
    draw_map(axes, (0, 0))
    canvas.draw()
    return np.array(canvas.buffer_rgba())[:, :, :3]
