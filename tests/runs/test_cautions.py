"""Training says, once, what makes its results mean less than they seem to, and the run keeps it."""

import json

import numpy as np
import pytest

from evarl.cli.main import call
from evarl.learning.configuration import TrainConfig, with_settings
from evarl.runs.checks import cautions
from evarl.runs.metrics import MetricsTable

# in the chain, the reward of a step depends on where it begins: one step from one state always returns the same
CHAIN = ["train", "navigation", "--world", "tabular/chain", "--horizon", "8", "--environments", "4", "--steps", "8"]
CHAIN += ["--beta", "0.05", "--rollouts-per-start", "1", "--agent.hidden-sizes", "8", "--evaluator.network.width", "8"]
CHAIN += ["--evaluator.initial-steps", "5", "--evaluator.warmup", "5", "--evaluator.policies", "4"]
CHAIN += ["--assessment.start-states", "1", "--assessment.horizon", "1"]
UNFITTED = (
    "the evaluator is not fitted in this run, and β has no effect: 5 updates do not exceed the warm-up of 5; train for more, "
    "or lower --evaluator.warmup"
)
CONSTANT = (
    "the assessment return was 1.000 in each of {} updates (seed 0), so it does not distinguish policies; use a longer "
    "--assessment.horizon, or other start states"
)


def warnings_of(capsys, *arguments: str) -> list[str]:
    assert call([*CHAIN, *arguments]) == 0
    lines = capsys.readouterr().err.splitlines()
    return [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]


@pytest.mark.slow
def test_a_run_within_its_warm_up_says_so_first(tmp_path, capsys):
    assert warnings_of(capsys, "--updates", "5", "--out", str(tmp_path / "run"))[0] == UNFITTED
    kept = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert kept["warnings"] == [UNFITTED, CONSTANT.format(5)]
    assert warnings_of(capsys, "--updates", "5", "--out", str(tmp_path / "quiet"), "--quiet") == []
    assert json.loads((tmp_path / "quiet" / "summary.json").read_text())["warnings"] == kept["warnings"]


@pytest.mark.slow
def test_an_assessment_that_never_varies_is_told_of_once_and_has_no_weight(tmp_path, capsys):
    run = tmp_path / "run"
    arguments = ["--updates", "60", "--out", str(run), "--checkpoint-seconds", "1e-9"]
    (said,) = warnings_of(capsys, *arguments)
    assert any(said == CONSTANT.format(count) for count in range(20, 60)), "not only at the end"
    kept = json.loads((run / "summary.json").read_text())
    assert kept["warnings"] == [CONSTANT.format(60)]
    table = MetricsTable.read(run / "metrics.parquet").table()
    for name in ("assessment_weight_min", "assessment_weight_max", "weights_bounded"):
        assert not table[name].to_numpy().any(), name
    (run / "summary.json").unlink()
    assert warnings_of(capsys, *arguments, "--resume") == []
    assert json.loads((run / "summary.json").read_text())["warnings"] == kept["warnings"]


def table_of(**columns: list[float]):
    metrics = MetricsTable()
    metrics.add(0, 1, [0], {name: np.asarray(values, np.float32)[:, None] for name, values in columns.items()})
    return metrics.table()


@pytest.mark.parametrize("mode", ["none", "frozen"])
def test_without_a_warm_up_there_is_nothing_to_say(mode):
    assert cautions(TrainConfig(updates=3, evaluator_mode=mode)) == {}


def test_the_first_step_may_come_after_the_warm_up():
    config = with_settings(
        TrainConfig(evaluator_mode="colearned", updates=12),
        {"evaluator.warmup": 10, "evaluator.initial_steps": 0, "evaluator.every": 2},
    )
    assert "12 updates do not exceed the 12 before its first step" in cautions(config)["not fitted"]
    assert cautions(with_settings(config, {"updates": 13})) == {}
    assert cautions(with_settings(config, {"evaluator.initial_steps": 1, "updates": 11})) == {}


def test_the_bound_on_weights_is_counted_in_updates():
    config = TrainConfig(evaluator_mode="colearned", beta=0.1, updates=200, max_shift=1.5)
    calm = {"assessment_return": [1.0, 2.0, 1.0, 1.0]}
    assert cautions(config, table_of(**calm, weights_bounded=[0, 0, 0, 0])) == {}
    assert cautions(config, table_of(**calm)) == {}, "earlier versions did not count"
    found = cautions(config, table_of(**calm, weights_bounded=[0, 1, 0, 1]))
    assert "exceeded their bound, --max-shift 1.5, in 2 of 4 updates" in found["bounded weights"]


def test_a_warm_up_that_never_ended_is_told_of_at_the_end():
    config = with_settings(
        TrainConfig(evaluator_mode="colearned", beta=0.1, updates=4),
        {"evaluator.warmup": 9, "evaluator.warmup_ends": "auto"},
    )
    calm = {"assessment_return": [1.0, 2.0, 1.0, 1.0]}
    assert cautions(config) == {}, "it is fitted from the first update on"
    assert cautions(config, table_of(assessment_return=[1.0, 2.0], warmup_ended=[0, 0])) == {}, "it may still end"
    assert cautions(config, table_of(**calm, warmup_ended=[0, 0, 0, 1])) == {}
    found = cautions(config, table_of(**calm, warmup_ended=[0, 0, 0, 0]))
    assert found["warm-up"].startswith("the warm-up of seed 0 did not end within 4 updates, and β had no effect")


def test_few_updates_do_not_show_that_an_assessment_never_varies():
    config = TrainConfig(evaluator_mode="colearned", updates=200)
    assert cautions(config, table_of(assessment_return=[3.0] * 19)) == {}
    assert list(cautions(config, table_of(assessment_return=[3.0] * 20))) == ["constant assessment"]
    assert cautions(config, table_of(assessment_return=[3.0] * 19 + [2.75])) == {}


LIMITED = (
    "nearly all episodes end by the time limit of 8 steps; the values of the critic, and of the evaluator that follows it where "
    "a batch cuts an episode, include rewards beyond it, which the return of a deployment does not (γ^8 is 0.92); use "
    "--agent.truncation as-termination"
)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--steps", "12"], [LIMITED]),
        (["--steps", "16"], []),
        (["--steps", "12", "--agent.truncation", "as-termination"], []),
    ],
)
@pytest.mark.slow
def test_values_beyond_the_time_limit_are_told_of_where_batches_cut_episodes(arguments, told, tmp_path, capsys):
    run = tmp_path / "run"
    arguments = [*arguments, "--updates", "10", "--assessment.horizon", "4", "--out", str(run)]
    assert warnings_of(capsys, *arguments) == told
    assert json.loads((run / "summary.json").read_text())["warnings"] == told
    table = MetricsTable.read(run / "metrics.parquet").table()
    assert set(table["truncated"].to_pylist()) == {1.0}


def test_a_time_limit_is_told_of_only_where_it_matters():
    def found(truncated: float, length: float, mode: str = "colearned", **changes):
        config = with_settings(TrainConfig(evaluator_mode=mode, updates=2, steps=70), {"evaluator.warmup": 1} | changes)
        columns = {"assessment_return": [1.0, 2.0], "truncated": [0.0, truncated], "episode_length": [5.0, length]}
        return cautions(config, table_of(**columns)).get("time limit")

    own = {"evaluator.bootstrap": "evaluator"}
    beyond = own | {"evaluator.truncation": "bootstrap"}
    assert "the time limit of 200 steps" in found(0.96, 200)
    assert found(0.94, 200) is None, "many end otherwise"
    assert found(float("nan"), float("nan")) is None, "no episode ended"
    assert found(1.0, 1000) is None, "0.99^1000 is next to nothing"
    assert found(1.0, 35) is None, "two whole episodes in a batch"
    assert found(1.0, 200, mode="none") is None
    assert found(1.0, 200, **own) is None, "its values end at the limit"
    assert found(1.0, 200, **beyond).endswith("(γ^200 is 0.13); use --evaluator.truncation end")
    assert found(1.0, 1000, **beyond) is None
