"""Off-policy estimates from the last updates and from the whole training, beside one another."""

import numpy as np
import pytest

import evarl
from evarl import ope
from evarl.evaluation.logged import estimate_run
from evarl.report.records import evaluation_record
from tests.evaluation.tiny import train_tiny

ESTIMATES = ope.LogSettings(methods=("fqe-linear", "tis"), resamples=20)


def both(tmp_path) -> evarl.Run:
    return train_tiny(tmp_path / "run", log_megabytes=0.02, log_from="both", horizon=10)


def test_every_part_that_exists_is_in_the_table(tmp_path):
    found = evarl.evaluate(both(tmp_path), rollouts=2, states=2, ope=ESTIMATES)
    names = [row.predictor for row in found.rows if row.queries == "start"]
    assert names[-4:] == [
        "TIS, recent",
        "FQE, linear, recent",
        "TIS, all of training",
        "FQE, linear, all of training",
    ]
    assert {"FQE, linear, recent", "FQE, linear, all of training"} <= found.policies.keys()
    for seed in found.seeds:
        recent, everything = seed.logs
        assert (recent.part, everything.part) == ("recent", "all")
        assert recent.trajectories != everything.trajectories
    assert any(
        "trajectories from the last updates and" in note and "from all of training" in note for note in found.notes
    )
    record = evaluation_record(found, points=False)["seeds"][1]
    assert (record["logged"]["part"], record["logged_all"]["part"]) == ("recent", "all")


@pytest.mark.parametrize("part", ["recent", "all"])
def test_one_part_needs_no_name(tmp_path, part):
    run = train_tiny(tmp_path / "run", log_megabytes=0.02, log_from=part, horizon=10)
    found = evarl.evaluate(run, rollouts=2, states=2, ope=ESTIMATES)
    assert [row.predictor for row in found.rows if row.queries == "start"][-2:] == ["TIS", "FQE, linear"]
    record = evaluation_record(found, points=False)["seeds"][0]
    assert record["logged"]["part"] == part
    assert "logged_all" not in record
    where = "from all of training" if part == "all" else "of training"
    assert any(f"trajectories {where} for each seed" in note for note in found.notes)


def test_a_number_of_updates_is_of_the_last_ones(tmp_path):
    run = both(tmp_path)
    assert [one.part for one in estimate_run(run, settings=ESTIMATES)] == ["all", "all"]
    few = ope.LogSettings(methods=("fqe-linear",), updates=1, resamples=20)
    (one,) = estimate_run(run, [0], few)
    assert one.part == "recent"
    found = evarl.evaluate(run, [0], rollouts=2, states=2, ope=few)
    assert [log.part for log in found.seeds[0].logs] == ["recent"]
    (other,) = estimate_run(run, [0], ESTIMATES, part="recent")
    assert other.trajectories > one.trajectories
    assert np.isfinite(other.estimates["fqe-linear"].value)
