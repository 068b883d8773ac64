"""Learning curves of runs: the mean over seeds with its interval, and every seed faintly behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from jaxtyping import Float
from scipy import stats

from evarl.errors import InputError, unknown_name
from evarl.ranges import whole
from evarl.report.drawing import COLOURS
from evarl.runs.directory import open_run
from evarl.runs.run import Run
from evarl.stats import iqm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Axis = Literal["steps", "updates", "time"]
Summary = Literal["mean", "iqm"]
AXES: dict[Axis, str] = {
    "steps": "environment steps per seed",
    "updates": "policy updates",
    "time": "training time at the run's mean speed, in s",
}
UNITS = {
    "return": "return of an episode, undiscounted",
    "discounted_return": "return of an episode, discounted",
    "episode_length": "length of an episode, in steps",
    "entropy": "entropy of the policy, in nats",
    "evaluation_error": "evaluation error, in units of return",
    "evaluation_error_fresh": "evaluation error on fresh batches, in units of return",
    "start_error": "evaluation error at start states, in units of return",
    "assessment_return": "return in the assessment",
    "value_loss": "loss of the critic",
}
"""Labels of metrics; others are called by their names."""
KEYS = ("update", "steps", "seed")
CONFIDENCE = 0.95
FEWEST = 3
"""Least number of seeds of an interval: that of two, by t with 1 degree of freedom, is 12.7 times as wide as their distance."""
RESAMPLES = 500
"""Bootstrap samples of an interval of the interquartile mean."""
POINTS = 400
"""Points of a curve; longer ones are averaged in bins."""
SMOOTHED = 100
"""By default values are averaged over this part of a run."""
FAINT = 12
"""Up to this number of seeds, each is drawn."""


@dataclass(frozen=True)
class Curve:
    """One metric of one run."""

    label: str
    x: Float[np.ndarray, " P"]
    values: Float[np.ndarray, "S P"]
    """Of each seed; NaN where there is no value, such as a return when no episode finished."""
    middle: Float[np.ndarray, " P"]
    """Mean or interquartile mean over seeds."""
    low: Float[np.ndarray, " P"]
    """95 % interval over seeds; NaN where fewer than `FEWEST` have a value."""
    high: Float[np.ndarray, " P"]


def plot(
    runs: Run | str | Path | Sequence[Run | str | Path],
    metric: str | Sequence[str] = "return",
    *,
    labels: Sequence[str] = (),
    x: Axis = "steps",
    smooth: int | None = None,
    summary: Summary = "mean",
) -> "Figure":
    """A matplotlib figure of learning curves, with a panel for each metric and a colour for each run.

    Args:
        runs: one run or several, as objects or directories; runs that were not finished are drawn as far as they are.
        metric: a column of the metrics, such as "return" or "evaluation_error", or several.
        labels: names of the runs in the legend; by default those of their directories.
        x: environment steps, updates, or time.
        smooth: updates over which each seed is averaged; by default a hundredth of the run.
        summary: the mean over seeds with a t-interval, or the interquartile mean with a bootstrap interval; intervals need
            three seeds.
    """
    from matplotlib.figure import Figure

    listed = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    metrics = [metric] if isinstance(metric, str) else list(metric)
    _check(listed, metrics, labels, x, summary)
    opened_runs = [one if isinstance(one, Run) else Run(open_run(Path(one), to_read=True)) for one in listed]
    named = list(labels) or _names(opened_runs)
    figure = Figure(figsize=(6.4 * len(metrics), 4.2), layout="constrained")
    for panel, name in zip(figure.subplots(1, len(metrics), squeeze=False)[0], metrics, strict=True):
        curves = [
            learning_curve(run, name, text, x, smooth, summary) for run, text in zip(opened_runs, named, strict=True)
        ]
        _draw(panel, curves, summary)
        panel.set(xlabel=AXES[x], ylabel=UNITS.get(name, name.replace("_", " ")))
    return figure


def learning_curve(
    run: Run, metric: str, label: str, x: Axis = "steps", smooth: int | None = None, summary: Summary = "mean"
) -> Curve:
    """One metric of a run over all of its seeds, smoothed."""
    table = run.metrics
    known = [name for name in table.column_names if name not in KEYS]
    if metric not in known:
        raise unknown_name("metric", metric, known)
    seed, update = table["seed"].to_numpy(), table["update"].to_numpy()
    seeds, done = np.unique(seed), int(update.max()) + 1
    values = np.full((len(seeds), done), np.nan)
    values[np.searchsorted(seeds, seed), update] = table[metric].to_numpy(zero_copy_only=False).astype(np.float64)
    if np.isnan(values).all():
        raise InputError(f"metric: {metric} has no values in {run.path}")
    window = max(1, done // SMOOTHED) if smooth is None else smooth
    values = _moving_mean(values, window)
    size = -(-done // POINTS)
    values = _binned(values, size)
    at = _binned((np.arange(done) + 1.0)[None], size)[0]
    scale = {"updates": 1.0, "steps": float(run.config.environments * run.config.steps), "time": _seconds(run, x)}[x]
    middle, low, high = _summary(values, summary)
    return Curve(label, at * scale, values, middle, low, high)


def _seconds(run: Run, x: Axis) -> float:
    """Seconds of one update, by the mean speed of the run."""
    if x != "time":
        return 1.0
    found = run.summary
    return float(found["seconds"]) / int(found["updates"])


def _check(runs: Sequence[Any], metrics: Sequence[str], labels: Sequence[str], x: str, summary: str) -> None:
    if not runs:
        raise InputError("runs: are missing; must be directories of runs")
    if not metrics:
        raise InputError("metric: is missing; must be a column of the metrics, such as return")
    if labels and len(labels) != len(runs):
        raise InputError(f"labels: {len(labels)} labels for {len(runs)} runs are not allowed; must be one for each run")
    if x not in AXES:
        raise unknown_name("x", x, AXES)
    if summary not in get_args(Summary):
        raise unknown_name("summary", summary, get_args(Summary))


def _names(runs: Sequence[Run]) -> list[str]:
    """The shortest ends of their paths that tell the runs apart."""
    parts = [run.path.absolute().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [run.path.name for run in runs]


def _moving_mean(values: Float[np.ndarray, "S U"], window: int) -> Float[np.ndarray, "S U"]:
    """Means over the last `window` updates, of those that have a value.

    >>> _moving_mean(np.array([[1.0, np.nan, 4.0, 6.0]]), 2).tolist()
    [[1.0, 1.0, 4.0, 5.0]]
    """
    whole("smooth", window)
    known = np.isfinite(values)
    sums, counts = (np.cumsum(x, axis=1) for x in (np.where(known, values, 0.0), known.astype(float)))
    before = [np.pad(x, ((0, 0), (window, 0)))[:, : x.shape[1]] for x in (sums, counts)]
    total, count = sums - before[0], counts - before[1]
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _binned(values: Float[np.ndarray, "S U"], size: int) -> Float[np.ndarray, "S P"]:
    """Means of `size` neighbours; the last bin may be smaller."""
    starts = np.arange(0, values.shape[1], size)
    known = np.isfinite(values)
    total = np.add.reduceat(np.where(known, values, 0.0), starts, axis=1)
    count = np.add.reduceat(known.astype(float), starts, axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _summary(values: Float[np.ndarray, "S P"], kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middle and 95 % interval over the seeds that have a value."""
    count, points = values.shape
    middle, low, high = (np.full(points, np.nan) for _ in range(3))
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    for at in range(points):
        known = values[:, at][np.isfinite(values[:, at])]
        if not len(known):
            continue
        middle[at] = known.mean() if kind == "mean" else float(iqm(known))
        if len(known) < FEWEST:
            continue
        if kind == "mean":
            reach = stats.t.ppf((1 + CONFIDENCE) / 2, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
            low[at], high[at] = middle[at] - reach, middle[at] + reach
        else:
            sampled = np.asarray(iqm(known[drawn % len(known)], axis=1))
            low[at], high[at] = np.quantile(sampled, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return middle, low, high


def _draw(panel: Any, curves: Sequence[Curve], summary: Summary) -> None:
    """Curves, their intervals and single seeds; the legend says how many seeds there are."""
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        count = len(curve.values)
        for one in curve.values if 1 < count <= FAINT else ():
            panel.plot(curve.x, one, color=colour, alpha=0.22, linewidth=0.8)
        if count >= FEWEST:
            panel.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
        text = f"{curve.label} ({count} seed{'s' if count > 1 else ''})"
        panel.plot(curve.x, curve.middle, color=colour, linewidth=1.8, label=text)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.margins(x=0.01)
    middles = np.concatenate([x for curve in curves for x in (curve.values.ravel(), curve.middle)])
    low, high = np.nanmin(middles), np.nanmax(middles)
    margin = 0.06 * (high - low) or 0.5
    panel.set_ylim(low - margin, high + margin)  # an interval of few seeds may be many times as wide
    told = {"mean": "mean", "iqm": "interquartile mean"}[summary]
    most = max(len(curve.values) for curve in curves)
    interval = " and its 95 % interval" if most >= FEWEST else ""
    title = f"{told} over seeds{interval}" if most > 1 else None
    panel.legend(frameon=False, fontsize=9, title=title, title_fontsize=9, alignment="left")
    panel.ticklabel_format(axis="x", style="sci", scilimits=(-3, 5), useMathText=True)
