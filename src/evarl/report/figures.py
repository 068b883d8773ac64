"""The figure of an evaluation: true against predicted values. Matplotlib is imported when it is drawn."""

from typing import Any

import numpy as np

from evarl.evaluation.predictors import BATCH, CRITIC, EVALUATOR, PASSIVE, SHUFFLED, ZEROED
from evarl.evaluation.results import START, Evaluation
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
    """PNG of true against predicted values, with a panel for each kind of states."""
    kinds = list(evaluation.seeds[0].queries)
    return rendered("evaluation", (5.2 * len(kinds) + 2.2, 5.2), lambda figure: _draw(figure, evaluation, kinds))[0]


def _draw(figure: Any, evaluation: Evaluation, kinds: list[str]) -> None:
    handles: dict[str, Any] = {}
    for panel, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        handles |= _panel(panel, evaluation, kind)
    order = [name for name in reversed(STYLES) if name in handles]
    labels = [f"{name}\n(its own policies)" if name == PASSIVE else name for name in order]
    figure.legend([handles[name] for name in order], labels, loc="outside right upper", frameon=False)
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
