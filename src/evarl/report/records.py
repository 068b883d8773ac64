"""Results of `evarl assess` and `evarl evaluate` as plain data for JSON."""

import dataclasses
from typing import Any

import numpy as np

from evarl.evaluation.assess import AssessmentResult
from evarl.evaluation.logged import logged_record
from evarl.evaluation.results import Evaluation, Queries, SeedEvaluation
from evarl.report.pictures import is_board, pictures


def evaluation_record(evaluation: Evaluation, points: bool) -> dict[str, Any]:
    """An evaluation; with `points`, also every true and predicted value, from which the figure is drawn."""
    plain = dataclasses.asdict(dataclasses.replace(evaluation, seeds=[], passive=None, sites=None))
    del plain["sites"]
    if (sites := evaluation.sites) is not None:
        plain["sites"] = {"count": sites.count} | dataclasses.asdict(sites) | {"drawn": sites.drawn.tolist()}
    for name in ("discounted", "undiscounted"):
        plain[f"return_{name}"] = plain.pop(name)
    return plain | {
        "seeds": [_seed(seed, points) for seed in evaluation.seeds],
        "passive": None if evaluation.passive is None else evaluation_record(evaluation.passive, points),
    }


def assessment_record(found: AssessmentResult) -> dict[str, Any]:
    """An assessment, as `evarl assess` prints it."""
    starts: list[Any] = [np.ravel(seen).tolist() for seen in found.observations]
    legend = {}
    if is_board(found.observations[0]):
        starts, legend["legend"] = pictures(found.observations, found.world)
    lowest, highest = ((x[:, 0] if x.shape[1] == 1 else x).tolist() for x in (found.lowest, found.highest))
    columns = {"start": starts, "return": found.mean_returns.tolist(), "returns": found.returns.tolist()}
    columns |= {"lowest": lowest, "highest": highest}
    at_states = zip(found.states, found.predicted_at_states.tolist() or [None] * len(found.states), strict=True)
    return {
        "run": found.run,
        "world": found.world,
        "seed": found.seed,
        "policy": found.policy,
        "evaluator": found.evaluator,
        "scenarios": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "not_fitted": found.not_fitted,
        "predicted": found.mean,
        "predicted_spread": found.standard_deviation,
        "random_seed": found.random_seed,
        "start_states_drawn": found.drawn,
        "start_states_distinct": found.distinct,
        "states": [{"state": list(state), "predicted": value} for state, value in at_states],
        "outside_training": [outside._asdict() for outside in found.outside_training],
    } | (_judgement(found) | legend | _site(found))


def _judgement(found: AssessmentResult) -> dict[str, Any]:
    """The interval, and whether the behaviour is outside of what the evaluator knows."""
    interval, no_interval, p_value, outside = found.judgement
    told = None if outside is None else outside._asdict() | {"reason": str(outside)}
    plain = None if interval is None else interval._asdict()
    return {"interval": plain, "no_interval": no_interval, "p_value": p_value, "outside": told}


def _site(found: AssessmentResult) -> dict[str, Any]:
    """The site of an assessment in a family of worlds, and the true value where it was measured."""
    truth = None if found.truth is None else found.truth._asdict() | {"exact": found.truth.standard_error is None}
    if found.context is None:
        return {} if truth is None else {"truth": truth}
    drawn = {"context_drawn": found.context_drawn, "outside_contexts": found.outside_contexts}
    return {"context": found.context} | drawn | {"truth": truth}


def _seed(seed: SeedEvaluation, points: bool) -> dict[str, Any]:
    logs = [logged_record(one) for one in seed.logs]  # recent first
    return {
        "seed": seed.seed,
        "return_discounted": dataclasses.asdict(seed.discounted),
        "return_undiscounted": dataclasses.asdict(seed.undiscounted),
        "assessment": seed.assessment,
        "queries": {kind: _queries(queries, points) for kind, queries in seed.queries.items()},
        "logged": logs[0] if logs else None,
    } | ({"logged_all": logs[1]} if len(logs) > 1 else {})


def _queries(queries: Queries, points: bool) -> dict[str, Any]:
    scores = {"scores": {name: dataclasses.asdict(one) for name, one in queries.scores.items()}}
    every = {
        "truth": queries.truth.value.tolist(),
        "standard_error": queries.truth.standard_error.tolist(),
        "rollouts": queries.truth.rollouts,
        "predictions": {name: values.tolist() for name, values in queries.mean_predictions.items()},
    }
    return scores | (every if points else {})
