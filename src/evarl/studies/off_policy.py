"""Off-policy estimates from both parts of a log of training: all of training, as in the paper, and its last updates.

Results of older jobs have estimates from the last updates only, and are shown as they always were. The last updates are a
control: their policies are nearly the final one, so that methods have an easier task than in the paper.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evarl.evaluation.predictors import EVALUATOR
from evarl.ope.registry import LABELS
from evarl.studies.conditions import ConditionResults, mean_and_error
from evarl.studies.reports import CONTROL, Cell, ClaimCheck, ReportTable
from evarl.studies.verdicts import check_all_larger

ALL, RECENT = "all of training", "last updates"
"""Parts of a log, by their names in tables and claims."""


def by_part(one: ConditionResults) -> dict[str, ConditionResults]:
    """The same results by the part of the log that off-policy estimates are from, the paper's first.

    Where a job has stored estimates from the last updates only, these stand alone and without a name.
    """
    rows = {seed: known for seed, row in one.rows.items() if (known := _from_all(row)) is not None}
    return {ALL: replace(one, rows=rows), RECENT: one} if rows else {"": one}


def as_in_paper(one: ConditionResults) -> tuple[str, ConditionResults]:
    """How labels name the log that the paper gives its methods, and the results with it: all of training, where it is known."""
    part, results = next(iter(by_part(one).items()))
    return f", log: {part}" if part else "", results


def _from_all(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The results of a seed with the off-policy estimates from all of training in place of the others; None without them."""
    queries = row["queries"]
    if not queries or not all(asked.get("scores_all") for asked in queries.values()):
        return None
    changed = {kind: {**asked, "scores": asked["scores"] | asked["scores_all"]} for kind, asked in queries.items()}
    return {**row, "queries": changed}


def checks_below_methods(
    evaluated: ConditionResults, asked: ConditionResults, about: str, methods: Sequence[str], kind: str
) -> list[ClaimCheck]:
    """The claim that the evaluator's error is below that of every off-policy method; a second one for the last updates.

    `evaluated` are the results of the evaluator's policies, `asked` those of the policies the methods are asked about.
    """
    which = "FQE: greedy, Huber" if "fqe-greedy-huber" in methods else "FQE: sound"
    found = []
    for part, results in by_part(asked).items():
        log, control = f"; log: {part}" if part else "", CONTROL if part == RECENT else ""
        claim = f"{evaluated.world}, {about}: evaluator MAE below every OPE baseline ({which}{log}), at {kind} states{control}"
        theirs = {LABELS[method]: results.mae(kind, LABELS[method]) for method in methods}
        quantity = "MAE of the best baseline less that of the evaluator"
        found.append(check_all_larger(claim, quantity, theirs, evaluated.mae(kind)))
    return found


def log_tables(worlds: Mapping[str, Sequence[ConditionResults]], kinds: Iterable[str]) -> tuple[ReportTable, ...]:
    """A table for each kind of states, in which a row is a condition and a part of its log; none without both parts."""
    both = [parts for rows in worlds.values() for one in rows if len(parts := by_part(one)) > 1]
    return tuple(_log_table(both, kind) for kind in kinds) if both else ()


def _log_table(both: Sequence[Mapping[str, ConditionResults]], kind: str) -> ReportTable:
    parts = [(part, one, one.errors(kind)) for each in both for part, one in each.items()]
    methods = [name for name in LABELS.values() if any(name in errors for _, _, errors in parts)]
    rows: list[tuple[Cell, ...]] = []
    best: set[tuple[int, int]] = set()
    for part, one, errors in parts:
        known = [name for name in (EVALUATOR, *methods) if name in errors]
        if known:
            best.add((len(rows), 4 + [EVALUATOR, *methods].index(min(known, key=lambda name: errors[name].mean))))
        cells = [mean_and_error(one.mae(kind)), *map(errors.get, methods)]
        rows.append((one.world, one.condition.label, part, len(one.rows), *cells))
    note = (
        f"Mean absolute error at {kind} states, mean ± standard error over seeds; the least in bold. Off-policy methods are "
        "given a uniform sample of the episodes of all of training, as in the paper, or the last updates, whose policies are "
        "nearly the final one."
    )
    head = ("world", "training", "log", "seeds", EVALUATOR, *methods)
    title = f"Off-policy estimates from all of training and from its last updates, at {kind} states"
    return ReportTable(f"log-{kind}", title, head, tuple(rows), note, frozenset(best))
