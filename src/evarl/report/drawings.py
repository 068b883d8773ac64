"""Drawings of worlds: a picture of each moment of a recorded episode."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from evarl.errors import InputError
from evarl.evaluation.recording import Episode, Look
from evarl.report.canvas import Canvas
from evarl.report.classic_drawings import CLASSIC
from evarl.report.crossing_map import CELL, MAP, RIVER, map_pixels, place
from evarl.report.drawing import COLOURS
from evarl.report.moving import Pixels
from evarl.report.pictures import CHANNELS
from evarl.worlds.contexts import ContextParameter
from evarl.worlds.crossing import BANK, BRIDGE, COLUMNS, Crossing
from evarl.worlds.navigation import GOAL, GOAL_RADIUS, Navigation
from evarl.worlds.world import AnyWorld, HostWorld, World

AGENT, TRAIL = COLOURS[0], "#a9cbe0"
LARGEST_BOARD = 64
"""Rows and columns of a board that is drawn, at most."""
BOARD_COLOURS = (*COLOURS[:6], "#882255", "#999933", "#44aa99", "#000000")


@dataclass(frozen=True)
class Drawing:
    """How a world is drawn."""

    draw: Callable[[Episode, int], Pixels]
    """The picture of an episode after so many steps."""
    fps: float
    """Pictures in a second at which it looks natural."""
    look: Look | None = None
    """What must be recorded of the physics beside observations."""
    world: AnyWorld | None = None
    """The world that must be recorded in place of that of the run, where it is prepared for pictures."""


def drawing_of(world: AnyWorld) -> Drawing:
    """How to draw a world; InputError if there is no way."""
    if (own := getattr(world, "picture", None)) is not None and isinstance(world, World):
        return Drawing(lambda episode, step: _checked(world, episode.looks[step]), 15, own)
    family, _, identifier = world.name.partition("/")
    if isinstance(world, Navigation):
        return Drawing(lambda episode, step: _navigation(world, episode, step), 4)
    if isinstance(world, Crossing):
        return Drawing(_crossing, 4)
    if identifier in CLASSIC and family in ("gymnax", "gymnasium"):
        known = CLASSIC[identifier]
        return Drawing(lambda episode, step: known.draw(episode.observations[step], episode.context or {}), known.fps)
    if family == "brax":
        from evarl.report.robots import robot

        return Drawing(*robot(world))
    if family == "gymnasium":
        return _rendered(world)
    if _is_board(world):
        return Drawing(lambda episode, step: board(episode.observations[step], world.name), 10)
    raise InputError(
        f"world: {world.name} cannot be drawn; a world of your own is drawn by a method picture(physics) that returns "
        "uint8[height, width, 3] made by jax.numpy"
    )


def _checked(world: AnyWorld, picture: Any) -> Pixels:
    pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        shape = f"{pixels.dtype}{list(pixels.shape)}"
        raise InputError(f"world: {world.name}: picture returned {shape}; must be uint8[height, width, 3]")
    return pixels


def _rendered(world: AnyWorld) -> Drawing:
    """A Gymnasium environment as it draws itself."""
    from evarl.worlds.gymnasium import GymnasiumEnvironments, GymnasiumWorld

    assert isinstance(world, GymnasiumWorld)
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):  # of pygame, which looks for a screen and loudspeakers
        os.environ.setdefault(driver, "dummy")

    def look(environments: GymnasiumEnvironments) -> Pixels:
        return environments.picture(0)

    return Drawing(lambda episode, step: episode.looks[step], 30, look, replace(world, pictures=True))


def _navigation(world: Navigation, episode: Episode, step: int) -> Pixels:
    """The unit square with obstacles and the goal; obstacles that do not stand on this site are dashed outlines."""
    canvas = Canvas(320, (-0.03, 1.03), (-0.03, 1.03))
    canvas.box((0, 0), (1, 1), "#f4f4f1", "#bbbbbb")
    known: dict[str, ContextParameter] = {one.name: one for one in world.parameters}
    for number, (low, high) in enumerate(world.obstacles, start=1):
        name = f"obstacle-{number}"
        stands = (episode.context or {}).get(name, known[name].default) >= 0.5
        canvas.box(low, high, "#8f8f8f" if stands else None, "#8f8f8f")
    canvas.circle(GOAL, GOAL_RADIUS, "#f0e442", "#555555")
    canvas.text(GOAL, "goal", "#333333", 10)
    path = [(float(x), float(y)) for x, y in episode.observations[: step + 1]]
    if len(path) > 1:
        canvas.line(path, TRAIL, 4)
        for point in path[:-1]:
            canvas.circle(point, 0.009, AGENT)
    canvas.circle(path[-1], 0.024, AGENT, "white")
    return canvas.pixels()


def _crossing(episode: Episode, step: int) -> Pixels:
    """The map, the way so far, and a cross on the bridge if the last step stayed before it."""
    canvas = Canvas(320, (0, MAP[0]), (0, MAP[1]), picture=_map())
    cells = [int(one.argmax()) for one in episode.observations[: step + 1]]
    path = [place((0, 0), *divmod(cell, COLUMNS)[::-1]) for cell in cells]
    if len(path) > 1:
        canvas.line(path, TRAIL, 5)
    row, column = divmod(cells[-1], COLUMNS)
    if step and cells[-1] == cells[-2] and column in BRIDGE and row in (BANK, BANK + 1):
        x, y, reach = path[-1][0], (BANK + 1) * CELL + RIVER / 2, 8
        for sign in (-1, 1):
            canvas.line([(x - reach, y - sign * reach), (x + reach, y + sign * reach)], COLOURS[1], 4)
    canvas.circle(path[-1], 9, AGENT, "white")
    return canvas.pixels()


_maps: list[Pixels] = []


def _map() -> Pixels:
    """The map, drawn once."""
    if not _maps:
        _maps.append(map_pixels(960 / MAP[0]))
    return _maps[0]


def _is_board(world: AnyWorld) -> bool:
    shape = world.observation_space.shape
    drawn = len(shape) in (2, 3) and max(shape[:2]) <= LARGEST_BOARD and (len(shape) == 2 or shape[2] <= 10)
    return drawn and not isinstance(world, HostWorld)


def board(observation: np.ndarray, world: str) -> Pixels:
    """A board of flags: each channel has a colour, and where there are several, the later ones are drawn smaller inside."""
    flags = observation.reshape(*observation.shape[:2], -1) != 0
    rows, columns, channels = flags.shape
    side = 320 / max(rows, columns)
    names = [*CHANNELS.get(world, ()), *(f"channel {one}" for one in range(channels))][:channels]
    lines = _legend_lines(names if channels > 1 else [], columns * side / 320 * 320)
    below = 20 * len(lines)
    canvas = Canvas(round(columns * side), (0, columns * side), (-below - 4, rows * side))
    canvas.box((0, 0), (columns * side, rows * side), "#f4f4f1")
    for line in range(1, max(rows, columns)) if side > 8 else ():
        canvas.line([(line * side, 0), (line * side, rows * side)], "#e6e6e2", 1, False)
        canvas.line([(0, line * side), (columns * side, line * side)], "#e6e6e2", 1, False)
    for row, column in np.argwhere(flags.any(axis=2)).tolist():
        for depth, channel in enumerate(np.flatnonzero(flags[row, column]).tolist()):
            inset = side * min(0.06 + 0.18 * depth, 0.42)
            low = (column * side + inset, (rows - 1 - row) * side + inset)
            colour = BOARD_COLOURS[channel % len(BOARD_COLOURS)] if channels > 1 else COLOURS[0]
            canvas.box(low, (low[0] + side - 2 * inset, low[1] + side - 2 * inset), colour)
    for number, line_of in enumerate(lines):
        y = -14 - 20 * number
        for x, name in line_of:
            canvas.box((x, y - 5), (x + 10, y + 5), BOARD_COLOURS[names.index(name) % len(BOARD_COLOURS)])
            canvas.text((x + 15, y), name, "#333333", 11, "lm")
    return canvas.pixels()


def _legend_lines(names: list[str], width: float) -> list[list[tuple[float, str]]]:
    """Names with their places, in as many lines as they need."""
    lines: list[list[tuple[float, str]]] = [[]] if names else []
    x = 4.0
    for name in names:
        needed = 15 + 6.9 * len(name) + 12
        if lines[-1] and x + needed > width:
            lines.append([])
            x = 4.0
        lines[-1].append((x, name))
        x += needed
    return lines
