"""Drawings of Brax robots: their bodies from the side, or from above for arms on a table, without Brax's renderer."""

from typing import Any

import numpy as np
from jaxtyping import Float

from evarl.evaluation.recording import Episode, Look
from evarl.report.canvas import Canvas
from evarl.report.drawing import COLOURS
from evarl.report.moving import Pixels
from evarl.worlds.world import AnyWorld

PLANE, SPHERE, CAPSULE, BOX = 0, 2, 3, 6
"""Types of MuJoCo's geometries that are drawn; cylinders are drawn as capsules."""
CYLINDER = 5
FROM_ABOVE = {"reacher": 0.35, "pusher": 1.1}
"""Arms on a table, and how far is seen to each side of its middle, in m."""
WIDTH = 400
AROUND = 1.9
"""How far is seen to each side of a robot that moves, in m."""
TICK = 0.5
"""Distance between two marks on the ground, in m."""


def robot(world: AnyWorld) -> tuple[Any, float, Look]:
    """How a robot is drawn, how many pictures in a second show its own time, and what is recorded of its physics."""
    system: Any = world.environment.sys  # type: ignore[attr-defined]
    shapes, table = _shapes(system.mj_model), FROM_ABOVE.get(world.name.split("/")[1].split(":")[0])
    seconds = float(world.environment.dt)  # type: ignore[attr-defined]

    def look(physics: Any) -> tuple[Any, Any]:
        place = physics.pipeline_state.x
        return place.pos, place.rot

    def draw(episode: Episode, step: int) -> Pixels:
        places, turns = episode.looks[step]
        return _drawn(shapes, places, turns, table)

    return draw, float(np.clip(1 / seconds, 10, 50)), look


def _shapes(model: Any) -> list[dict[str, Any]]:
    """The geometries that are drawn, each in the coordinates of its body."""
    kinds = {SPHERE, CAPSULE, CYLINDER, BOX}
    return [
        {"kind": int(model.geom_type[i]), "link": int(model.geom_bodyid[i]) - 1, "size": np.asarray(model.geom_size[i])}
        | {"place": np.asarray(model.geom_pos[i]), "turn": np.asarray(model.geom_quat[i])}
        for i in range(model.ngeom)
        if int(model.geom_type[i]) in kinds
    ]


def _drawn(
    shapes: list[dict[str, Any]], places: Float[np.ndarray, "L 3"], turns: Float[np.ndarray, "L 4"], table: float | None
) -> Pixels:
    above = table is not None
    axes, depth = ((0, 1), 2) if above else ((0, 2), 1)
    middle = 0.0 if above else float(places[0, 0])
    reach = AROUND if table is None else table
    canvas = Canvas(WIDTH, (middle - reach, middle + reach), (-reach, reach) if above else (-0.35, 1.75))
    if not above:
        _draw_ground(canvas, middle, reach)
    order = sorted(shapes, key=lambda shape: _world(shape, places, turns)[0][depth] * (1 if above else -1))
    for shape in order:
        _draw_shape(canvas, shape, _world(shape, places, turns), axes)
    return canvas.pixels()


def _draw_ground(canvas: Canvas, middle: float, reach: float) -> None:
    """The ground with marks that stand still while the picture follows the robot."""
    canvas.box((middle - reach, -0.35), (middle + reach, 0.0), "#ecece8")
    first = int(np.ceil((middle - reach) / TICK))
    for mark in range(first, int(np.floor((middle + reach) / TICK)) + 1):
        whole = mark % round(1 / TICK) == 0
        canvas.line([(mark * TICK, 0.0), (mark * TICK, -0.08 if whole else -0.04)], "#999999", 2, False)
        if whole:
            canvas.text((mark * TICK, -0.18), f"{mark * TICK:g} m".replace("-", "−"), "#777777", 10)


def _world(shape: dict[str, Any], places: np.ndarray, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a geometry is, and the directions of its own axes as the columns of a matrix."""
    local = _matrix(shape["turn"])
    if shape["link"] < 0:
        return shape["place"], local
    body = _matrix(turns[shape["link"]])
    return places[shape["link"]] + body @ shape["place"], body @ local


def _matrix(quaternion: Float[np.ndarray, " 4"]) -> Float[np.ndarray, "3 3"]:
    """The rotation of a quaternion (w, x, y, z).

    >>> _matrix(np.array([1.0, 0.0, 0.0, 0.0])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    w, x, y, z = np.asarray(quaternion, np.float64)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _draw_shape(
    canvas: Canvas, shape: dict[str, Any], where: tuple[np.ndarray, np.ndarray], axes: tuple[int, int]
) -> None:
    (place, turn), size, link = where, shape["size"], shape["link"]
    colour = "#b0b0b0" if link < 0 else COLOURS[link % 6]

    def seen(point: np.ndarray) -> tuple[float, float]:
        return float(point[axes[0]]), float(point[axes[1]])

    if shape["kind"] == SPHERE:
        canvas.circle(seen(place), float(size[0]), colour)
    elif shape["kind"] == BOX:
        corners = np.array([seen(place + turn @ ((2 * np.array(sign) - 1) * size)) for sign in np.ndindex(2, 2, 2)])
        low, high = corners.min(axis=0), corners.max(axis=0)
        canvas.box((low[0], low[1]), (high[0], high[1]), colour)
    else:
        along = turn[:, 2] * size[1]
        canvas.thick(seen(place - along), seen(place + along), float(size[0]), colour)
