"""Drawings of classic control from observations, the same for Gymnax and Gymnasium, without their own renderers."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from evarl.report.canvas import Canvas
from evarl.report.drawing import COLOURS
from evarl.report.moving import Pixels

BLUE, ORANGE, GREEN = COLOURS[0], COLOURS[1], COLOURS[2]
GROUND, DARK, FAINT = "#bbbbbb", "#333333", "#8a8a8a"
Context = dict[str, float]


@dataclass(frozen=True)
class Classic:
    """How a task is drawn from an observation and the hidden numbers of its site, and how fast it is shown."""

    draw: Callable[[np.ndarray, Context], Pixels]
    fps: float


def _cart_pole(observation: np.ndarray, context: Context) -> Pixels:
    """The cart between the two ends of its track, and its pole."""
    x, _, angle, _ = (float(one) for one in observation)
    canvas = Canvas(400, (-2.8, 2.8), (-0.55, 1.65))
    canvas.line([(-2.8, 0), (2.8, 0)], GROUND, 2, False)
    for end in (-2.4, 2.4):
        canvas.line([(end, -0.12), (end, 0.12)], ORANGE, 3, False)
    canvas.text((0, -0.35), "the episode ends at ±2.4, or when the pole leans 12° or more", FAINT, 10)
    canvas.box((x - 0.3, -0.12), (x + 0.3, 0.18), DARK)
    length = min(2 * context.get("length", 0.5), 1.45)  # a longer pole would leave the picture
    tip = (x + length * math.sin(angle), 0.1 + length * math.cos(angle))
    canvas.line([(x, 0.1), tip], COLOURS[4], 9)
    canvas.circle((x, 0.1), 0.045, BLUE)
    return canvas.pixels()


def _pendulum(observation: np.ndarray, context: Context) -> Pixels:
    """The pendulum; its angle is counted from upright, counter-clockwise."""
    cosine, sine, _ = (float(one) for one in observation)
    canvas = Canvas(300, (-1.35, 1.35), (-1.35, 1.35))
    canvas.circle((0, 0), 1.0, None, "#e3e3de")
    canvas.text((0, 1.2), "upright", FAINT, 10)
    canvas.line([(0, 0), (-sine, cosine)], COLOURS[1], 14)
    canvas.circle((0, 0), 0.05, DARK)
    return canvas.pixels()


def _acrobot(observation: np.ndarray, context: Context) -> Pixels:
    """Two links that hang from a bar, and the height that the end must reach."""
    first = math.atan2(float(observation[1]), float(observation[0]))
    second = first + math.atan2(float(observation[3]), float(observation[2]))
    one, two = (context.get(f"link_length_{number}", 1.0) for number in (1, 2))
    elbow = (one * math.sin(first), -one * math.cos(first))
    end = (elbow[0] + two * math.sin(second), elbow[1] - two * math.cos(second))
    reach = one + two + 0.3
    canvas = Canvas(300, (-reach, reach), (-reach, reach))
    canvas.line([(-reach, 1), (reach, 1)], GREEN, 2, False)
    canvas.text((0.1 - reach, 1.1), "goal: swing the end above this line", GREEN, 10, "ls")
    canvas.line([(0, 0), elbow], COLOURS[0], 9)
    canvas.line([elbow, end], COLOURS[5], 9)
    for joint in ((0.0, 0.0), elbow):
        canvas.circle(joint, 0.09, DARK)
    return canvas.pixels()


def _mountain_car(goal: float) -> Callable[[np.ndarray, Context], Pixels]:
    """A car in a valley, and a flag on its right hill."""

    def height(x: float) -> float:
        return math.sin(3 * x) * 0.45 + 0.55

    def draw(observation: np.ndarray, context: Context) -> Pixels:
        x = float(observation[0])
        canvas = Canvas(400, (-1.2, 0.6), (-0.06, 1.2))
        canvas.polygon(
            [(-1.2, -0.06), *((at, height(at)) for at in np.linspace(-1.2, 0.6, 200).tolist()), (0.6, -0.06)],
            "#e3e3de",
        )
        flag = context.get("goal_position", goal)
        canvas.line([(flag, height(flag)), (flag, height(flag) + 0.16)], DARK, 2)
        top = height(flag) + 0.16
        canvas.polygon([(flag, top), (flag + 0.07, top - 0.03), (flag, top - 0.06)], GREEN)
        slope = math.cos(3 * x) * 1.35
        length = math.hypot(1.0, slope)
        normal = (-slope / length, 1 / length)

        def beside(along: float, above: float) -> tuple[float, float]:
            """A point of the car, in its own directions."""
            return (
                x + along / length + above * normal[0],
                height(x) + along * slope / length + above * normal[1],
            )

        canvas.thick(beside(-0.045, 0.045), beside(0.045, 0.045), 0.022, BLUE)
        for along in (-0.045, 0.045):
            canvas.circle(beside(along, 0.018), 0.018, DARK)
        return canvas.pixels()

    return draw


CLASSIC = {
    "CartPole-v1": Classic(_cart_pole, 30),
    "Pendulum-v1": Classic(_pendulum, 20),
    "Acrobot-v1": Classic(_acrobot, 15),
    "MountainCar-v0": Classic(_mountain_car(0.5), 30),
    "MountainCarContinuous-v0": Classic(_mountain_car(0.45), 30),
}
"""Tasks by their id in both libraries."""
