"""What results say of themselves, in a few lines of plain text. The results import this module, so they are not named here."""

from collections.abc import Sequence
from typing import Any

from evarl.errors import plain_text

MOST = 8
"""Numbers of a list that are shown."""


def described_evaluation(found: Any) -> str:
    """The main lines of what `evarl evaluate` prints: true return, and errors of every predictor."""
    seeds = f"{len(found.seeds)} seed{'s' if len(found.seeds) > 1 else ''}"
    about = f"{found.world}, β = {found.beta:g}, {seeds}, true return {_text(found.discounted)} discounted"
    head = ("states", "predictor", "MAE", "RMSE", "bias", "skill")
    rows = [
        (one.queries, one.predictor, *map(_text, (one.mae, one.rmse, one.bias, one.skill)))
        if one.not_fitted is None
        else (one.queries, one.predictor, "not fitted", "", "", "")
        for one in found.rows
    ]
    return "\n".join([plain_text(f"<Evaluation of {found.run}: {about}"), *_aligned([head, *rows])]) + ">"


def described_assessment(found: Any) -> str:
    """The prediction with its interval, the returns of the test, and the true value if it is known."""
    lines = [f"<AssessmentResult of {found.run}: {found.policy}, seed {found.seed}, {found.world}"]
    if found.mean is None:
        lines.append(f"  predicted value: not fitted ({found.not_fitted})")
    else:
        interval = found.judgement.interval
        over = "" if interval is None else f", {interval.share:.0%} interval {interval.low:.4g} to {interval.high:.4g}"
        outside = "" if found.judgement.outside is None else ", outside what the evaluator knows"
        lines.append(f"  predicted value: {found.mean:.4g}{over}{outside}")
    lines.append(f"  returns of the test: {_numbers(found.mean_returns.tolist())} (random seed {found.random_seed})")
    if found.context is not None:
        lines.append(f"  site: {', '.join(f'{name}={value:g}' for name, value in found.context.items())}")
    if found.truth is not None:
        error = found.truth.standard_error
        lines.append(f"  true value: {found.truth.value:.4g}{'' if error is None else f' ± {error:.2g}'}")
    return "\n".join(map(plain_text, lines)) + ">"


def described_episode(found: Any) -> str:
    """Length, return and end."""
    predicted = "" if found.predicted is None else f", predicted {found.predicted:.4g}"
    return f"<Episode: {found.steps} steps, return {found.returns()[-1]:.4g}, {found.end}{predicted}>"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [f"  {plain_text(line.rstrip())}" for line in lines]


def _numbers(values: Sequence[float]) -> str:
    shown = ", ".join(f"{value:.4g}" for value in values[:MOST])
    return shown if len(values) <= MOST else f"{shown} … ({len(values)})"


def _text(one: Any) -> str:
    if one.mean is None:
        return "—"
    return f"{one.mean:.3f}" + ("" if one.standard_error is None else f" ± {one.standard_error:.3f}")
