"""Evaluations and examinations as plain data for JSON."""

import dataclasses
from typing import Any

import numpy as np

from evarl.evaluation.assess import Examination
from evarl.evaluation.evaluate import Evaluation, Queries, Row, SeedEvaluation
from evarl.evaluation.logged import logged_record
from evarl.report.pictures import is_board, pictures


def evaluation_record(evaluation: Evaluation, points: bool) -> dict[str, Any]:
    """The whole evaluation; with `points`, also every true and predicted value, from which the picture is drawn."""
    plain = {
        field.name: getattr(evaluation, field.name)
        for field in dataclasses.fields(evaluation)
        if field.name not in ("rows", "seeds", "passive", "policies", "discounted", "undiscounted")
    }
    return plain | {
        "return_discounted": dataclasses.asdict(evaluation.discounted),
        "return_undiscounted": dataclasses.asdict(evaluation.undiscounted),
        "policies": {name: dataclasses.asdict(one) for name, one in evaluation.policies.items()},
        "rows": [row_record(row) for row in evaluation.rows],
        "seeds": [_seed(seed, points) for seed in evaluation.seeds],
        "passive": None if evaluation.passive is None else evaluation_record(evaluation.passive, points),
    }


def row_record(row: Row) -> dict[str, Any]:
    """One row of the table."""
    return dataclasses.asdict(row)


def examination_record(examination: Examination) -> dict[str, Any]:
    """What `evarl assess` prints."""
    boards = is_board(examination.observations[0])
    starts: list[Any]
    if boards:
        starts, legend = pictures(examination.observations, examination.world)
    else:
        starts, legend = [np.ravel(seen).tolist() for seen in examination.observations], None
    said = examination.predicted_at_states.tolist() or [None] * len(examination.states)
    at_states = zip(examination.states, said, strict=True)
    return {
        "run": examination.run,
        "world": examination.world,
        "seed": examination.seed,
        "policy": examination.policy,
        "scenarios": [
            {
                "start": start,
                "return": float(shown),
                "returns": returns.tolist(),
                "lowest": float(low),
                "highest": float(high),
            }
            for start, shown, returns, low, high in zip(
                starts,
                examination.shown,
                examination.returns,
                examination.lowest,
                examination.highest,
                strict=True,
            )
        ],
        "not_fitted": examination.not_fitted,
        "predicted": examination.mean,
        "predicted_spread": examination.spread,
        "start_states_drawn": examination.drawn,
        "start_states_distinct": examination.distinct,
        "states": [{"state": list(state), "predicted": value} for state, value in at_states],
        "outside_training": [dataclasses.asdict(outside) for outside in examination.outside_training],
    } | ({"legend": legend} if boards else {})


def _seed(seed: SeedEvaluation, points: bool) -> dict[str, Any]:
    return {
        "seed": seed.seed,
        "return_discounted": dataclasses.asdict(seed.discounted),
        "return_undiscounted": dataclasses.asdict(seed.undiscounted),
        "assessment": seed.assessment,
        "queries": {kind: _queries(queries, points) for kind, queries in seed.queries.items()},
        "logged": None if seed.logged is None else logged_record(seed.logged),
    }


def _queries(queries: Queries, points: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"scores": {name: dataclasses.asdict(one) for name, one in queries.scores.items()}}
    if points:
        found["truth"] = queries.truth.value.tolist()
        found["standard_error"] = queries.truth.standard_error.tolist()
        found["rollouts"] = queries.truth.rollouts
        found["predictions"] = {name: said.mean(axis=0).tolist() for name, said in queries.predictions.items()}
    return found
