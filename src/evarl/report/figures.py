"""Pictures of evaluations. Matplotlib is imported when one is drawn."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from evarl.evaluation.evaluate import Evaluation, Queries
from evarl.evaluation.predictors import BATCH, CRITIC, EVALUATOR, PASSIVE, SHUFFLED, ZEROED
from evarl.ope.configuration import LABELS

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
"""Colour (Okabe and Ito's, told apart by all eyes) and marker, from the back to the front. Of the off-policy methods,
those of the paper whose estimates fit into a picture."""

FEW = 12
"""Up to so many points of one predictor are drawn large."""


def evaluation_picture(evaluation: Evaluation) -> bytes:
    """True against predicted values, a panel for each kind of states, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kinds = list(evaluation.seeds[0].queries)
    figure = Figure(figsize=(5.2 * len(kinds) + 2.2, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(kinds), squeeze=False)[0]
    handles: dict[str, Any] = {}
    for panel, kind in zip(panels, kinds, strict=True):
        handles |= _panel(panel, evaluation, kind)
    order = [name for name in reversed(STYLES) if name in handles]
    figure.legend(
        [handles[name] for name in order],
        [f"{name}\n(its own policies)" if name == PASSIVE else name for name in order],
        loc="outside right upper",
        frameon=False,
    )
    count = len(evaluation.seeds)
    figure.suptitle(f"{evaluation.world}, β = {evaluation.beta:g}, {count} seed{'s' if count > 1 else ''}")
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=150)
    return file.getvalue()


def _panel(panel: Any, evaluation: Evaluation, kind: str) -> dict[str, Any]:
    """Draw one kind of states; gives a handle for each predictor."""
    handles, ends = {}, []
    for name, (colour, marker) in STYLES.items():
        queries = list(_of(evaluation, name, kind))
        if not queries:
            continue
        said = np.concatenate([one.predictions[_asked(name)].mean(axis=0) for one in queries])
        true = np.concatenate([one.truth.value for one in queries])
        reach = 2 * np.concatenate([one.truth.standard_error for one in queries])
        few = len(true) <= FEW
        handles[name] = panel.errorbar(
            said,
            true,
            yerr=reach,
            fmt=marker,
            color=colour,
            markersize=7 if few else 4,
            markeredgewidth=0,
            elinewidth=1.2 if few else 0.6,
            alpha=0.9 if few else 0.6,
            linestyle="none",
        )
        ends += [said.min(), said.max(), (true - reach).min(), (true + reach).max()]
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    panel.plot(limits, limits, color="black", linewidth=0.8, zorder=0)
    panel.set(xlim=limits, ylim=limits, aspect="equal", xlabel="predicted value", ylabel="true value (± 2 s.e.)")
    states = f"start states: {evaluation.start_states}" if kind == "start" else "states that the policy visits"
    panel.set_title(states, fontsize=10)
    return handles


def _of(evaluation: Evaluation, name: str, kind: str) -> Iterator[Queries]:
    """The queries at which a predictor speaks: the passive evaluator's are those of its own run."""
    source = evaluation.passive if name == PASSIVE else evaluation
    for seed in [] if source is None else source.seeds:
        if kind in seed.queries and _asked(name) in seed.queries[kind].predictions:
            yield seed.queries[kind]


def _asked(name: str) -> str:
    """What a predictor is called in the run that it belongs to."""
    return EVALUATOR if name == PASSIVE else name
