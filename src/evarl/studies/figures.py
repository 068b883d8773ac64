"""Figures of study reports, as PNG and SVG."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from evarl.report.drawing import COLOURS, rendered
from evarl.studies.reports import MeanAndError, ReportFigure

T = TypeVar("T")
Panels = Mapping[str, Mapping[str, T]]
"""By title of the panel and name of the condition, predictor or bar."""
MARKERS = "oDs^vP<>X"
LINE: dict[str, Any] = {"linewidth": 1.2, "markersize": 6, "elinewidth": 0.8}

Band = tuple[np.ndarray, np.ndarray]
"""Positions [points] and values [seeds, points]; NaN where a value is missing."""
Point = tuple[MeanAndError, MeanAndError, str]
"""Quantities on the two axes, and the text beside the point."""


def make_figure(name: str, caption: str, size: tuple[float, float], draw: Callable[[Any], None]) -> ReportFigure:
    """The figure that `draw` draws on an empty Matplotlib figure."""
    return ReportFigure(name, caption, *rendered(name, size, draw))


def curves(name: str, caption: str, rows: Mapping[str, Panels[Band]]) -> ReportFigure:
    """Mean curves with 95 % intervals over seeds: a row of panels for each quantity, a column for each world.

    `rows` is by quantity, world and condition.
    """
    worlds = list(next(iter(rows.values())))
    colours = _styles(panel for row in rows.values() for panel in row.values())

    def draw(figure: Any) -> None:
        panels = figure.subplots(len(rows), len(worlds), squeeze=False, sharex="col")
        for across, (quantity, row) in zip(panels, rows.items(), strict=True):
            for panel, world in zip(across, worlds, strict=True):
                if not row.get(world):  # nothing was measured there
                    panel.set_visible(False)
                    continue
                for condition, (x, values) in row[world].items():
                    colour = colours[condition][0]
                    mean, half = _interval(values)
                    panel.plot(x, mean, color=colour, linewidth=1.6)
                    panel.fill_between(x, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
                panel.set_ylim(*_limits([values for _, values in row[world].values()]))
                above, below = (_filled(rows, world, reverse) for reverse in (False, True))
                if quantity == above:
                    panel.set_title(world)
                if quantity == below:
                    panel.set_xlabel("environment steps")
                    panel.tick_params(labelbottom=True)
                if world == next(one for one in worlds if row.get(one)):
                    panel.set_ylabel(quantity)
                panel.grid(alpha=0.3)
        _legend(figure, {condition: (colour, "") for condition, (colour, _) in colours.items()})

    return make_figure(name, caption, (3.6 * len(worlds) + 1.0, 2.6 * len(rows) + 0.9), draw)


def _limits(values: Sequence[np.ndarray]) -> tuple[float, float]:
    """Limits of an axis by the values of single seeds: an interval of few seeds may be many times as wide.

    >>> _limits([np.array([[0.0, np.nan], [4.0, 10.0]])])
    (-0.5, 10.5)
    """
    low, high = (float(extreme(np.concatenate([one.ravel() for one in values]))) for extreme in (np.nanmin, np.nanmax))
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def _filled(rows: Mapping[str, Panels[Band]], world: str, reverse: bool) -> str:
    """The first, or the last, quantity that was measured in a world."""
    found = [quantity for quantity, row in rows.items() if row.get(world)]
    return found[-1 if reverse else 0]


def against(
    name: str, caption: str, panels: Panels[Sequence[Point]], labels: tuple[str, str], log: bool = False
) -> ReportFigure:
    """One quantity against another, with standard errors: a panel for each world, a line for each kind of condition.

    Axes are logarithmic with `log`.
    """
    styles = _styles(panels.values())

    def draw(figure: Any) -> None:
        for panel, (world, lines) in _panels(figure, panels):
            for kind, points in lines.items():
                colour, marker = styles[kind]
                x, y = ([point[axis].mean for point in points] for axis in (0, 1))
                dx, dy = ([point[axis].standard_error or 0.0 for point in points] for axis in (0, 1))
                panel.errorbar(x, y, xerr=dx, yerr=dy, color=colour, marker=marker, **LINE)
                for at_x, at_y, (_, _, text) in zip(x, y, points, strict=True):
                    panel.annotate(text, (at_x, at_y), textcoords="offset points", xytext=(5, 5), fontsize=8)
            panel.set(title=world, xlabel=labels[0], **({"xscale": "log", "yscale": "log"} if log else {}))
            panel.margins(0.15)
            panel.grid(alpha=0.3)
        figure.axes[0].set_ylabel(labels[1])
        _legend(figure, styles, columns=5 if len(styles) > 6 else 3)

    return make_figure(name, caption, (3.8 * len(panels) + 1.0, 4.0), draw)


def bars(
    name: str, caption: str, panels: Panels[MeanAndError], label: str, coloured: Sequence[str], log: bool = True
) -> ReportFigure:
    """Horizontal bars, a panel for each group; those named in `coloured` are coloured, the others grey.

    On a logarithmic axis, where the length of a bar means nothing, they are points.
    """
    names = list(_styles(panels.values()))

    def draw(figure: Any) -> None:
        for panel, (title, values) in _panels(figure, panels, sharey=True):
            for place, bar in enumerate(names):
                if bar in values:
                    mean, error = values[bar].mean, values[bar].standard_error
                    colour = COLOURS[0] if bar in coloured else "#bbbbbb"
                    if log:
                        point = {"marker": "o", "markersize": 6, "color": colour, "ecolor": "#444444"}
                        panel.errorbar(mean, place, xerr=error, elinewidth=0.8, **point)
                    else:
                        panel.barh(place, mean, xerr=error, color=colour, error_kw={"linewidth": 0.8})
                    text = {"textcoords": "offset points", "xytext": (4, 3), "fontsize": 7, "annotation_clip": False}
                    panel.annotate(f"{mean:.3g}", (mean, place), va="bottom", **text)
            scale = "log" if log else "linear"
            panel.set(title=title, xlabel=label, xscale=scale, yticks=range(len(names)), yticklabels=names)
            panel.grid(axis="x", alpha=0.3)
        figure.axes[0].invert_yaxis()

    return make_figure(name, caption, (3.4 * len(panels) + 2.0, 0.3 * len(names) + 1.4), draw)


def true_against_predicted(name: str, caption: str, panels: Panels[np.ndarray]) -> ReportFigure:
    """Predicted and true values of single states, [2, states]: a panel for each world, a colour for each predictor."""
    styles = _styles(panels.values())

    def draw(figure: Any) -> None:
        for panel, (world, clouds) in _panels(figure, panels):
            for predictor, (predicted, true) in reversed(clouds.items()):
                colour, marker = styles[predictor]
                panel.plot(predicted, true, marker, color=colour, markersize=3.5, alpha=0.5, markeredgewidth=0)
            everything = np.concatenate([true for _, true in clouds.values()])
            low, high = float(everything.min()), float(everything.max())
            margin = 0.3 * (high - low) or 1.0
            panel.plot([low, high], [low, high], color="black", linewidth=0.8)
            # limits by the true values: a few extreme predictions would shrink everything else to a dot
            panel.set(xlim=(low - margin, high + margin), title=world, xlabel="predicted value")
            panel.grid(alpha=0.3)
        figure.axes[0].set_ylabel("true value")
        _legend(figure, styles)

    return make_figure(name, caption, (3.8 * len(panels) + 1.0, 4.2), draw)


def boards(name: str, caption: str, games: Mapping[str, tuple[np.ndarray, Sequence[str]]]) -> ReportFigure:
    """Start states of the games' assessments: a row for each game, [k, rows, columns, channels], channels coloured."""
    most = max(len(states) for states, _ in games.values())

    def draw(figure: Any) -> None:
        from matplotlib.colors import to_rgb
        from matplotlib.patches import Patch, Rectangle

        panels = figure.subplots(len(games), most, squeeze=False)
        for row, (game, (states, channels)) in zip(panels, games.items(), strict=True):
            palette = [to_rgb(COLOURS[(6 + c) % len(COLOURS)]) for c in range(states.shape[-1])]
            for number, panel in enumerate(row):
                panel.set_axis_off()
                if number >= len(states):
                    continue
                height, width = states.shape[1:3]
                image = np.ones((height, width, 3))
                for channel, colour in enumerate(palette):
                    image[states[number, ..., channel] > 0] = colour
                panel.imshow(image, interpolation="nearest")
                panel.add_patch(Rectangle((-0.5, -0.5), width, height, fill=False, edgecolor="#888888"))
                panel.set_title(f"{game} {number + 1}", fontsize=8)
            present = [c for c in range(states.shape[-1]) if states[..., c].any()]
            labels = {c: channels[c] if c < len(channels) else f"channel {c}" for c in present}
            handles = [Patch(color=palette[c], label=label) for c, label in labels.items()]
            row[-1].legend(handles=handles, loc="center left", bbox_to_anchor=(1.05, 0.5), frameon=False, fontsize=8)

    return make_figure(name, caption, (1.8 * most + 1.8, 2.0 * len(games)), draw)


def navigation_map(name: str, caption: str, starts: np.ndarray) -> ReportFigure:
    """Deployment with its obstacles beside the open field with the start states of the assessment."""
    from evarl.worlds.navigation import GOAL, GOAL_RADIUS, OBSTACLES, START

    def draw(figure: Any) -> None:
        from matplotlib.patches import Circle, Rectangle

        deployment, assessment = figure.subplots(1, 2)
        for panel, title in ((deployment, "deployment: step 0.2"), (assessment, "assessment: step 0.4")):
            panel.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=title)
            panel.add_patch(Circle(GOAL, GOAL_RADIUS, color=COLOURS[2], alpha=0.6))
            panel.annotate("goal", GOAL, ha="center", va="center", fontsize=8)
        for (left, low), (right, high) in OBSTACLES:
            deployment.add_patch(Rectangle((left, low), right - left, high - low, color="#888888"))
        deployment.plot(*START, "o", color=COLOURS[0])
        deployment.annotate("start", START, textcoords="offset points", xytext=(7, 4), fontsize=8)
        assessment.plot(starts[:, 0], starts[:, 1], "s", color=COLOURS[1])
        for number, start in enumerate(starts):
            assessment.annotate(f"{number + 1}", start, textcoords="offset points", xytext=(6, 4), fontsize=8)

    return make_figure(name, caption, (7.0, 3.6), draw)


def _interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over seeds and half the width of Student's 95 % interval at each point, without missing values."""
    count = np.isfinite(values).sum(axis=0)
    total = np.where(np.isfinite(values), values, 0.0).sum(axis=0)
    mean = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    squares = np.where(np.isfinite(values), (values - mean) ** 2, 0.0).sum(axis=0)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    factor = stats.t.ppf(0.975, np.maximum(count - 1, 1)) / np.sqrt(np.maximum(count, 1))
    return mean, np.where(count > 1, factor * deviation, 0.0)


def _panels(figure: Any, panels: Mapping[str, Any], **shared: bool) -> Iterable[tuple[Any, tuple[str, Any]]]:
    """A row of axes, each with the title and the contents of its panel."""
    return zip(figure.subplots(1, len(panels), squeeze=False, **shared)[0], panels.items(), strict=True)


def _styles(panels: Iterable[Iterable[str]]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each name that occurs in panels."""
    names = dict.fromkeys(name for panel in panels for name in panel)
    return {name: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(names)}


def _legend(figure: Any, styles: Mapping[str, tuple[str, str]], columns: int | None = None) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, marker=marker) for colour, marker in styles.values()]
    columns = min(columns or (1 if len(styles) > 6 else 3), len(styles))
    figure.legend(handles, list(styles), loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
