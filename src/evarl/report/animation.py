"""The animation of policies that take their test and are deployed, on two sites. Matplotlib is imported when it is drawn.

One row for each policy, one panel for each site: the map, and beside it a scale of values with the predicted and the true one.
All coordinates are pixels.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from evarl.evaluation.predictors import EVALUATOR, PASSIVE
from evarl.evaluation.scenes import PolicyScenes, Scene, Walk
from evarl.report.crossing_map import CELL, FAINT, MAP, RIVER, SHADES, draw_map, place
from evarl.report.figures import STYLES
from evarl.report.moving import gif
from evarl.worlds.crossing import BANK, COLUMNS

DOTS = 100
"""Pixels in an inch."""
LEFT, PANEL, HEADER, HEADING, BELOW, GAP = 20, 428, 40, 30, 24, 14
"""Left margin, width of a panel, and heights: of the line on top, of a row's heading, of the line below, between rows."""
ROW = HEADING + MAP[1] + BELOW + GAP
SCALE, BAR = 42, 24
"""Distance of the scale of values from the map, and its width."""
APART = 17
"""Distance between two labels."""

FAILED, TRUE = "#d55e00", "#000000"
PHASES = {"test": 0, "prediction": 88, "deployment": 228, "true value": 376}
"""The four phases, and where they stand in the line on top."""
TEST_MOMENTS, DEPLOYMENT_MOMENTS = 5, 3
"""Pictures of each step."""
TEST_STEP, DEPLOYMENT_STEP = 500, 240
"""Milliseconds of each step."""
PAUSES = (1200, 2600, 600, 5000)
"""Milliseconds before the test, at the prediction, before the deployment, and at the end."""
PART = 0.4
"""Part of a step after which a crossing that fails is shown to fail."""
COMMONEST = 128
"""Colours of the animation."""


@dataclass(frozen=True)
class Moment:
    """What one picture shows: a phase, how many steps of the test and of the deployment are done, and for how long."""

    phase: int
    test: float
    deployment: float
    milliseconds: int


def moments(rows: Sequence[PolicyScenes]) -> list[Moment]:
    """The pictures of an animation in order; all panels go on together, until the longest episode has ended."""
    scenes = [scene for row in rows for scene in row.scenes]
    test, deployment = (max(len(walk.failed) for walk in walks) for walks in zip(*map(_walks, scenes), strict=True))
    found = [Moment(0, 0.0, 0.0, PAUSES[0])]
    found += [Moment(0, done, 0.0, TEST_STEP // TEST_MOMENTS) for done in _parts(test, TEST_MOMENTS)]
    found += [Moment(1, test, 0.0, PAUSES[1]), Moment(2, test, 0.0, PAUSES[2])]
    each = DEPLOYMENT_STEP // DEPLOYMENT_MOMENTS
    found += [Moment(2, test, done, each) for done in _parts(deployment, DEPLOYMENT_MOMENTS)]
    return [*found, Moment(3, test, deployment, PAUSES[3])]


def animated(rows: Sequence[PolicyScenes]) -> bytes:
    """The animation as a GIF that loops; the same data give the same bytes."""
    shown = moments(rows)
    pixels = [picture[:, :, :3] for picture in _drawn(rows, shown)]
    return gif(pixels, [moment.milliseconds for moment in shown], COMMONEST)


def still(rows: Sequence[PolicyScenes]) -> bytes:
    """The last picture as a PNG."""
    from PIL import Image

    (pixels,) = _drawn(rows, moments(rows)[-1:])
    file = io.BytesIO()
    Image.fromarray(pixels).convert("RGB").save(file, "PNG")
    return file.getvalue()


def _walks(scene: Scene) -> tuple[Walk, Walk]:
    return scene.test, scene.deployment


def _parts(steps: int, moments: int) -> list[float]:
    return [count / moments for count in range(1, steps * moments + 1)]


def _drawn(rows: Sequence[PolicyScenes], shown: Sequence[Moment]) -> Iterator[np.ndarray]:
    """Pixels [height, width, 4] of each picture; what never changes is drawn once."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = LEFT + PANEL * len(rows[0].scenes), HEADER + ROW * len(rows)
    figure = Figure(figsize=(width / DOTS, height / DOTS), dpi=DOTS)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    values = _Scale.of(rows)
    panels: list[_Heading | _Panel] = []
    for i, row in enumerate(rows):
        colour = STYLES[EVALUATOR if row.beta > 0 else PASSIVE][0]
        bottom = height - HEADER - ROW * i - HEADING - MAP[1]
        heading = _Heading(axes, row, bottom + MAP[1] + 9, width, colour)
        heading.draw_ground()
        panels.append(heading)
        for j, scene in enumerate(row.scenes):
            panel = _Panel(axes, scene, (LEFT + PANEL * j, bottom), colour, values)
            panel.draw_ground("AB"[j] if j < 2 else str(j + 1))
            panels.append(panel)
    canvas.draw()
    ground = canvas.copy_from_bbox(figure.bbox)
    for moment in shown:
        canvas.restore_region(ground)
        artists = _phase_line(axes, moment, rows[0].scenes[0], height)
        for part in panels:
            artists += part.draw(moment)
        for artist in artists:
            axes.draw_artist(artist)
            artist.remove()
        yield np.array(canvas.buffer_rgba())


def _phase_line(axes: Any, moment: Moment, scene: Scene, height: int) -> list[Any]:
    """The four phases, the present one in bold, and how far it is."""
    found, y = [], height - 22
    for index, (name, x) in enumerate(PHASES.items()):
        style = {"weight": "bold", "color": "black"} if index == moment.phase else {"color": FAINT}
        found.append(axes.text(LEFT + x, y, name, size=11.5, va="center", **style))
        if index:
            found.append(axes.text(LEFT + x - 23, y, "→", size=11.5, va="center", ha="center", color=FAINT))
    steps = {
        0: f"{scene.test.cells.shape[1]} scenarios, step {int(np.ceil(moment.test))} of {scene.test.steps}",
        2: f"step {int(np.ceil(moment.deployment))}",
    }
    text = steps.get(moment.phase, "")
    return [*found, axes.text(LEFT + 2 * PANEL - 16, y, text, size=10, va="center", ha="right", color=FAINT)]


@dataclass(frozen=True)
class _Scale:
    """A scale of values, the same in all panels."""

    low: float

    @classmethod
    def of(cls, rows: Sequence[PolicyScenes]) -> "_Scale":
        scenes = [scene for row in rows for scene in row.scenes]
        least = min(min(one.predicted, one.true, one.deployment.returns[-1, 0]) for one in scenes)
        return cls(float(np.floor(min(least, -1.0) - 0.5)))

    def height(self, value: float) -> float:
        """Height above the lower end, in pixels; 0 is at the upper end."""
        return float(np.clip(1 - value / self.low, 0.0, 1.0)) * MAP[1]

    @property
    def ticks(self) -> range:
        return range(0, int(self.low) - 1, -5 if self.low <= -5 else -1)


@dataclass(frozen=True)
class _Heading:
    """What stands above a row: how the policy was trained and, at the end, its mean error."""

    axes: Any
    row: PolicyScenes
    y: float
    width: int
    colour: str

    def draw_ground(self) -> None:
        kind = "Evaluation-aware policy" if self.row.beta > 0 else "Ordinary policy"
        style = {"size": 11.5, "weight": "bold", "va": "center", "color": self.colour}
        self.axes.text(LEFT, self.y + 3, f"{kind} (β = {self.row.beta:g})", **style)

    def draw(self, moment: Moment) -> list[Any]:
        if moment.phase < 3:
            return []
        count = f"{len(self.row.scenes[0].errors):,}".replace(",", "\u202f")
        text = f"mean error over {count} tests on each site: {self.row.mean_error:.2f}"
        return [self.axes.text(self.width - 16, self.y + 3, text, size=10, va="center", ha="right", color="black")]


@dataclass(frozen=True)
class _Panel:
    """One policy on one site."""

    axes: Any
    scene: Scene
    corner: tuple[int, int]
    """Left lower corner of the map."""
    colour: str
    values: _Scale

    def draw_ground(self, name: str) -> None:
        """The map, which is the same on all sites, and the empty scale."""
        (x, y), axes = self.corner, self.axes
        draw_map(axes, self.corner)
        holds = f"{100 * self.scene.site:.3g}\u202f%"
        axes.text(x, y - 15, f"site {name}, hidden: bridge holds {holds}", size=9, va="center", color=FAINT)
        self._draw_scale()

    def _draw_scale(self) -> None:
        from matplotlib.patches import Rectangle

        left, y = self._bar, self.corner[1]
        self.axes.add_patch(Rectangle((left, y), BAR, MAP[1], color=SHADES["ground"], lw=0))
        for tick in self.values.ticks:
            height = y + self.values.height(tick)
            self.axes.plot([left, left + BAR], [height] * 2, color="#cccccc", lw=0.8)
            text = f"{tick}".replace("-", "−")
            self.axes.text(left - 5, height, text, size=8, ha="right", va="center", color=FAINT)

    @property
    def _bar(self) -> int:
        """Left end of the scale."""
        return self.corner[0] + MAP[0] + SCALE

    def draw(self, moment: Moment) -> list[Any]:
        """What changes: agents with their trails, and the scale."""
        if moment.phase < 2:
            found = self._draw_walk(self.scene.test, moment.test, 9)
        else:
            found = self._draw_walk(self.scene.deployment, moment.deployment, 14)
        return found + self._draw_values(moment) + [self._draw_note(moment)]

    def _draw_walk(self, walk: Walk, done: float, size: float) -> list[Any]:
        """Agents with their trails, and a cross where the bridge did not hold, large while it happens."""
        count, step = walk.cells.shape[1], min(int(done), walk.steps)
        part = done - step if step < walk.steps else 0.0
        river = self.corner[1] + (BANK + 1) * CELL + RIVER / 2
        trails, crosses, agents = [], [], []
        for number in range(count):
            path = np.array(
                [place(self.corner, *divmod(int(at), COLUMNS)[::-1]) for at in walk.cells[: step + 2, number]]
            )
            path += _beside(number, count)
            failed = walk.failed[: step + 1, number]
            here = _moved(path, part > 0 and bool(failed[step]), step, part, river)
            way = np.concatenate([path[: step + 1], here[None]])
            trails += self.axes.plot(*way.T, color=self.colour, lw=2.2 if count > 1 else 3.5, alpha=0.45)
            for index in np.flatnonzero(failed[: step + (part >= PART)]).tolist():
                now = index == (step if part >= PART else step - 1) and done < walk.steps
                style = {"markersize": 14, "markeredgewidth": 3.6} if now else {"markersize": 8, "markeredgewidth": 2.0}
                crosses += self.axes.plot(path[index, 0], river, "x", color=FAILED, **style)
            edge = {"markeredgecolor": "white", "markeredgewidth": 1.2}
            agents += self.axes.plot(*here, "o", color=self.colour, markersize=size, **edge)
        return trails + agents + crosses

    def _draw_values(self, moment: Moment) -> list[Any]:
        """The running return, the predicted value from the prediction on, and the true one at the end."""
        from matplotlib.patches import Rectangle

        found, labels = [], []
        scene, left, y = self.scene, self._bar, self.corner[1]
        if moment.phase >= 2:
            height = self.values.height(self._return(moment))
            bar = Rectangle((left + 6, y + height), BAR - 12, MAP[1] - height, color="#c4c4c4", lw=0)
            found.append(self.axes.add_patch(bar))
        if moment.phase >= 1:
            labels.append((scene.predicted, f"predicted {_number(scene.predicted)}", self.colour))
        if moment.phase == 3:
            labels.append((scene.true, f"true {_number(scene.true)}", TRUE))
        for value, _, colour in labels:
            level = y + self.values.height(value)
            found += self.axes.plot(
                [left - 2, left + BAR + 4], [level] * 2, color=colour, lw=3.2, solid_capstyle="butt"
            )
        if moment.phase == 3:
            levels = [y + self.values.height(value) for value in (scene.predicted, scene.true)]
            middle = left + BAR / 2
            found += self.axes.plot([middle] * 2, levels, color=FAILED, lw=4, solid_capstyle="butt", zorder=1.5)
            labels.append(((scene.predicted + scene.true) / 2, f"off by {scene.error:.1f}", FAILED))
        labels.sort(key=lambda label: label[0])
        heights = _spread(np.array([y + self.values.height(value) for value, _, _ in labels]))
        for height, (_, text, colour) in zip(heights, labels, strict=True):
            style = {"size": 10, "weight": "bold", "va": "center_baseline", "color": colour}
            found.append(self.axes.text(left + BAR + 9, height, text, **style))
        return found

    def _draw_note(self, moment: Moment) -> Any:
        """Below the scale: how the bridge was tried so far, and in deployment the running return."""
        if moment.phase < 2:
            steps = int(moment.test)
            failed, held = (int(x[:steps].sum()) for x in (self.scene.test.failed, self.scene.test.held))
            text = f"bridge tried {failed + held}×" + (f", held {held}×" if failed + held else "")
        else:
            text = f"this episode {_number(self._return(moment))}"
        right = self.corner[0] + PANEL - 16
        return self.axes.text(right, self.corner[1] - 15, text, size=9, va="center", ha="right", color="#333333")

    def _return(self, moment: Moment) -> float:
        walk = self.scene.deployment
        return float(walk.returns[min(int(moment.deployment), walk.steps), 0])


def _moved(
    path: Float[np.ndarray, "P 2"], fails: bool, step: int, part: float, river: float
) -> Float[np.ndarray, " 2"]:
    """Where an agent is in the middle of a step; one that fails to cross the river turns back on the bridge."""
    if fails:
        return path[step] + np.array([0.0, min(part, 1 - part) * 1.3 * (river - path[step, 1])])
    return path[step] + part * (path[min(step + 1, len(path) - 1)] - path[step])


def _beside(number: int, count: int) -> Float[np.ndarray, " 2"]:
    """How far one of several agents is drawn from the middle of its cell, so that all can be seen."""
    if count == 1:
        return np.zeros(2)
    angle = 2 * np.pi * (number + 0.5) / count
    return 5.0 * np.array([np.cos(angle), np.sin(angle)])


def _spread(heights: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """Ascending heights, moved from their middle as far as labels need.

    >>> _spread(np.array([100.0, 104.0, 108.0])).tolist(), _spread(np.array([10.0, 50.0])).tolist()
    ([87.0, 104.0, 121.0], [10.0, 50.0])
    """
    found, middle = heights.astype(np.float64), len(heights) // 2
    for index in range(middle + 1, len(found)):
        found[index] = max(found[index], found[index - 1] + APART)
    for index in range(middle - 1, -1, -1):
        found[index] = min(found[index], found[index + 1] - APART)
    return found


def _number(value: float) -> str:
    """A number with a true minus sign.

    >>> _number(-7.251)
    '−7.3'
    """
    return f"{value:.1f}".replace("-", "−")
