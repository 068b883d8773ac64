"""The figure of an evaluation: true against predicted values. Matplotlib is imported when it is drawn."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from evarl.evaluation.predictors import BATCH, BEST, CRITIC, EVALUATOR, MEAN, PASSIVE, SHUFFLED, ZEROED
from evarl.evaluation.results import SITE, START, Evaluation
from evarl.ope.registry import LABELS
from evarl.report.drawing import rendered

STYLES = {
    BATCH: ("#999999", "s"),
    ZEROED: ("#56b4e9", "v"),
    SHUFFLED: ("#cc79a7", "^"),
    CRITIC: ("#e69f00", "D"),
    PASSIVE: ("#009e73", "P"),
    LABELS["fqe"]: ("#d55e00", "<"),
    LABELS["pdis"]: ("#f0e442", ">"),
    LABELS["dr"]: ("#000000", "h"),
    EVALUATOR: ("#0072b2", "o"),
}
"""Colour (of the palette of Okabe and Ito) and marker of each predictor, from the back to the front. Of the off-policy
methods, only those of the paper whose estimates are in the range of the figure."""

FEW = 12
"""Up to this number of points, those of a predictor are drawn large."""
LARGE = {"markersize": 7, "elinewidth": 1.2, "alpha": 0.9}
SMALL = {"markersize": 4, "elinewidth": 0.6, "alpha": 0.6}


def evaluation_picture(evaluation: Evaluation) -> bytes:
    """PNG of true against predicted values, with a panel for each kind of states, or of errors for each hidden number."""
    if evaluation.sites is not None:
        return site_picture(evaluation)
    kinds = list(evaluation.seeds[0].queries)
    return _png((5.2 * len(kinds) + 2.2, 5.2), lambda figure: _draw(figure, evaluation, kinds))


def _png(size: tuple[float, float], draw: Callable[[Any], None]) -> bytes:
    return rendered("evaluation", size, draw, ("png",))[0]


def _draw(figure: Any, evaluation: Evaluation, kinds: list[str]) -> None:
    handles: dict[str, Any] = {}
    for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        handles |= _panel(panel, evaluation, kind)
    order = [name for name in reversed(STYLES) if name in handles]
    labels = [f"{name}\n(its own policies)" if name == PASSIVE else name for name in order]
    figure.legend([handles[name] for name in order], labels, loc="outside right center", frameon=False)
    count = len(evaluation.seeds)
    figure.suptitle(f"{evaluation.world}, β = {evaluation.beta:g}, {count} seed{'s' if count > 1 else ''}")


def _panel(panel: Any, evaluation: Evaluation, kind: str) -> dict[str, Any]:
    """Draw one kind of states and return the handles of the predictors."""
    handles, ends = {}, []
    for name, (colour, marker) in STYLES.items():
        asked, shown = (EVALUATOR, evaluation.passive) if name == PASSIVE else (name, evaluation)
        queries = [seed.queries[kind] for seed in (shown.seeds if shown else ()) if kind in seed.queries]
        queries = [one for one in queries if asked in one.predictions]
        if not queries:
            continue
        predicted = np.concatenate([one.mean_predictions[asked] for one in queries])
        true = np.concatenate([one.truth.value for one in queries])
        reach = 2 * np.concatenate([one.truth.standard_error for one in queries])
        style = LARGE if len(true) <= FEW else SMALL
        handles[name] = panel.errorbar(
            predicted, true, reach, fmt=marker, color=colour, linestyle="none", markeredgewidth=0, **style
        )
        ends += [predicted.min(), predicted.max(), (true - reach).min(), (true + reach).max()]
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    panel.plot(limits, limits, color="black", linewidth=0.8, zorder=0)
    panel.set(xlim=limits, ylim=limits, aspect="equal", xlabel="predicted value", ylabel="true value (± 2 s.e.)")
    states = f"start states: {evaluation.start_states}" if kind == START else "states that the policy visits"
    panel.set_title(states, fontsize=10)
    return handles


SITE_STYLES = {
    MEAN: ("#999999", "s"),
    SHUFFLED: ("#cc79a7", "^"),
    BEST: ("#d55e00", "D"),
    PASSIVE: ("#009e73", "P"),
    EVALUATOR: ("#0072b2", "o"),
}
"""Predictors over sites that are drawn, from the back to the front."""
MOST = 3
"""Hidden numbers against which errors are drawn, at most."""


def site_picture(evaluation: Evaluation) -> bytes:
    """PNG of true against predicted values of sites, and of errors against the hidden numbers of the sites."""
    sites = evaluation.sites
    assert sites is not None
    columns = 1 + min(MOST, len(sites.names))
    return _png((4.6 * columns + 2.2, 4.8), lambda figure: _draw_sites(figure, evaluation, columns))


def _draw_sites(figure: Any, evaluation: Evaluation, columns: int) -> None:
    sites = evaluation.sites
    assert sites is not None
    calibration, *errors = figure.subplots(1, columns, squeeze=False)[0]
    clouds = {name: cloud for name in SITE_STYLES if (cloud := _cloud(evaluation, name)) is not None}
    handles = _draw_calibration(calibration, clouds, "true value" if sites.exact else "true value (± 2 s.e.)")
    for number, panel in enumerate(errors):
        _draw_errors(panel, clouds, number)
        panel.set(xlabel=f"{sites.names[number]} (hidden)", ylabel="predicted − true value")
    order = [name for name in reversed(SITE_STYLES) if name in clouds]
    labels = [f"{name}\n(its own policies)" if name == PASSIVE else name for name in order]
    figure.legend([handles[name] for name in order], labels, loc="outside right center", frameon=False)
    count = len(evaluation.seeds)
    title = f"{evaluation.world}, β = {evaluation.beta:g}, {sites.count} sites, {count} seed{'s' if count > 1 else ''}"
    figure.suptitle(title)


class _Cloud(NamedTuple):
    """What one predictor says about every site, over all seeds."""

    predicted: np.ndarray
    true: np.ndarray
    reach: np.ndarray
    """Two standard errors of the true values."""
    contexts: np.ndarray
    """[N, P]"""


def _cloud(evaluation: Evaluation, name: str) -> _Cloud | None:
    """The points of a predictor; None where it has none. Of a shuffled Ξ one other site is drawn, not the mean over many."""
    asked, shown = (EVALUATOR, evaluation.passive) if name == PASSIVE else (name, evaluation)
    if shown is None or shown.sites is None:
        return None
    queries = [seed.queries[SITE] for seed in shown.seeds if asked in seed.queries[SITE].predictions]
    if not queries:
        return None
    predicted = np.concatenate([one.predictions[asked][0] for one in queries])
    true = np.concatenate([one.truth.value for one in queries])
    reach = 2 * np.concatenate([one.truth.standard_error for one in queries])
    return _Cloud(predicted, true, reach, np.tile(shown.sites.drawn, (len(queries), 1)))


def _draw_calibration(panel: Any, clouds: dict[str, _Cloud], label: str) -> dict[str, Any]:
    """Draw true against predicted values and return the handles of the predictors."""
    handles, ends = {}, []
    for name, cloud in clouds.items():
        colour, marker = SITE_STYLES[name]
        handles[name] = panel.errorbar(
            cloud.predicted, cloud.true, cloud.reach, fmt=marker, color=colour, markeredgewidth=0, **SMALL
        )
        ends += [cloud.predicted, cloud.true - cloud.reach, cloud.true + cloud.reach]
    low, high = np.concatenate(ends).min(), np.concatenate(ends).max()
    margin = 0.05 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    panel.plot(limits, limits, color="black", linewidth=0.8, zorder=0)
    panel.set(xlim=limits, ylim=limits, aspect="equal", xlabel="predicted value", ylabel=label)
    return handles


def _draw_errors(panel: Any, clouds: dict[str, _Cloud], number: int) -> None:
    """Draw errors against one hidden number; where it has few values, predictors stand side by side."""
    values = np.unique(next(iter(clouds.values())).contexts[:, number])
    few = len(values) <= FEW
    gap = 0.6 * np.diff(values).min() / len(clouds) if few and len(values) > 1 else 0.0
    for place, (name, cloud) in enumerate(clouds.items()):
        colour, marker = SITE_STYLES[name]
        beside = gap * (place - (len(clouds) - 1) / 2)
        spread = np.random.default_rng(0).uniform(-0.3, 0.3, len(cloud.true)) * gap
        at = cloud.contexts[:, number] + beside + spread
        style = {"markersize": SMALL["markersize"], "alpha": SMALL["alpha"], "markeredgewidth": 0}
        panel.plot(at, cloud.predicted - cloud.true, marker, color=colour, linestyle="none", **style)
    if few:
        panel.set_xticks(values, [f"{value:g}" for value in values])
    panel.axhline(0.0, color="black", linewidth=0.8, zorder=0)
