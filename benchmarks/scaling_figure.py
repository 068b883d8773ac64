"""The picture of `make bench-scaling`: a small panel for each sweep, time and memory against size, all logarithmic."""

import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

TIME, MEMORY = "#0072b2", "#d55e00"
COLUMNS = 4


def slope(size: np.ndarray, cost: np.ndarray) -> float:
    """Exponent of growth: the slope of log cost against log size, by least squares over the upper half of the points.

    >>> round(slope(np.array([1.0, 2.0, 4.0, 8.0]), np.array([9.0, 9.0, 16.0, 64.0])), 6)
    2.0
    """
    upper = slice(min(len(size) // 2, len(size) - 2), None) if len(size) > 1 else slice(0)
    x, y = np.log(size[upper]), np.log(cost[upper])
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else float("nan")


def figure(sweeps: Mapping[str, Mapping[str, np.ndarray]]) -> bytes:
    """A PNG; see `benchmarks.scaling.series` for what a sweep holds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = {name: line for name, line in sweeps.items() if len(line["size"])}
    columns = max(1, min(COLUMNS, len(drawn)))
    rows = max(1, math.ceil(len(drawn) / columns))
    picture = Figure(figsize=(3.6 * columns, 2.9 * rows + 0.5), layout="constrained")
    FigureCanvasAgg(picture)
    panels = picture.subplots(rows, columns, squeeze=False).ravel()
    handles: list[Any] = []
    for panel, (name, line) in zip(panels, drawn.items(), strict=False):
        handles = _panel(panel, name, line)
    for panel in panels[len(drawn) :]:
        panel.set_axis_off()
    if handles:
        across = min(len(handles), max(1, columns))  # what fits below the panels
        picture.legend(handles=handles, loc="outside lower center", ncols=across, fontsize=9, frameon=False)
    file = io.BytesIO()
    picture.savefig(file, format="png", dpi=150)
    return file.getvalue()


def _panel(panel: Any, name: str, line: Mapping[str, np.ndarray]) -> list[Any]:
    """Time on the left, memory on the right."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    size, (low, middle, high) = line["size"], line["milliseconds"]
    memory = panel.twinx()
    (time,) = panel.plot(size, middle, "o-", color=TIME, label="ms per update (left), with quartiles")
    panel.fill_between(size, low, high, color=TIME, alpha=0.2, linewidth=0)
    ideal = panel.plot(size, middle[-1] * size / size[-1], ":", color="#999999", label="in proportion to size")
    (peak,) = memory.plot(size, line["peak"], "s-", color=MEMORY, label="peak GiB of the process (right)")
    (plan,) = memory.plot(size, line["plan"], "s--", color=MEMORY, mfc="white", label="planned GiB (right)")
    world, _, what = name.partition(": ")
    grows = f"time ~ size^{slope(size, middle):.2f}" if len(size) > 1 else ""
    panel.set_title(f"{world.rsplit('/', 1)[-1]}: {what}\n{grows}", fontsize=10)
    for axis, colour in ((panel, TIME), (memory, MEMORY)):
        axis.set_yscale("log")
        axis.tick_params(axis="y", which="both", colors=colour, labelsize=8)
        _widen(axis)
        steps = (1, 2, 5) if np.ptp(np.log10(axis.get_ylim())) < 2 else (1,)
        axis.yaxis.set_major_locator(LogLocator(subs=steps))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set_xscale("log")
    panel.set_xticks(size, [f"{one:g}" for one in size], fontsize=8)
    panel.minorticks_off()
    memory.minorticks_off()
    panel.set_zorder(memory.get_zorder() + 1)
    panel.patch.set_visible(False)
    return [time, peak, plan, *ideal]


def _widen(axis: Any) -> None:
    """At least a factor of ten from bottom to top: what hardly grows shall look so."""
    low, high = axis.get_ylim()
    missing = max(0.0, 1.0 - math.log10(high / low)) / 2
    axis.set_ylim(low / 10**missing, high * 10**missing)
