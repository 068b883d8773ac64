"""Results say in a few lines what they are, and from which draw of the test they predict."""

import numpy as np

import evarl
from evarl import ope
from evarl.cli.main import call
from tests.evaluation.tiny import train_tiny


def test_results_are_a_few_lines(tmp_path, capsys):
    run = train_tiny(tmp_path / "run")
    evaluation = evarl.evaluate(run, rollouts=2, states=8)
    shown = repr(evaluation).splitlines()
    assert shown[0].startswith(f"<Evaluation of {run.path}: navigation, β = 0.05, 2 seeds, true return -")
    assert len(shown) == 2 + len(evaluation.rows)
    assert shown[1].split() == ["states", "predictor", "MAE", "RMSE", "bias", "skill"]
    assert max(map(len, shown)) < 200
    assert evaluation == evaluation
    assessed = evarl.assess(run, interval=False, random_seed=3)
    told = repr(assessed)
    assert told.startswith(f"<AssessmentResult of {run.path}: final policy of seed 0, seed 0, navigation")
    assert f"predicted value: {assessed.mean:.4g}" in told
    assert "(random seed 3)" in told
    assert len(told) < 500
    assert call(["assess", str(run.path), "--no-interval", "--random-seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "from one draw of the test (random seed 3, one rollout of each scenario): another --random-seed" in said
    assert call(["evaluate", str(run.path), "--rollouts", "2", "--states", "4", "--seeds", "0"]) == 0
    said = capsys.readouterr().out
    assert "the evaluator predicts from one draw of each policy's test (random seed 0)" in said


def test_logs_and_estimates_are_one_line():
    data = ope.LoggedData.from_arrays(
        observation=np.zeros((40, 2, 3)),
        action=np.array([[0, 1]] * 40),
        reward=np.ones((40, 2)),
        log_prob=np.log(np.full((40, 2), 0.5)),
        final_observation=np.zeros((40, 3)),
    )
    assert repr(data) == "<LoggedData: 40 trajectories of at most 2 steps, observations [3], actions int32[]>"
    estimate = ope.estimate(ope.Log(data, 1.0), ope.uniform_policy(data), methods="pdis")["pdis"]
    assert repr(estimate).startswith("<Estimate pdis: 2 ± ")
    assert len(repr(estimate)) < 200
    assert (
        repr(ope.Estimate(method="fqe", value=1e9, warnings=("diverged: far",)))
        == "<Estimate fqe: diverged, 1 warnings>"
    )


def test_a_video_names_its_episodes(tmp_path):
    run = train_tiny(tmp_path / "run")
    video = evarl.video(run, tmp_path / "policy.gif", episodes=5, steps=2)
    lines = repr(video).splitlines()
    assert lines[0] == f"<Video {tmp_path}/policy.gif"
    assert lines[1].startswith("  <Episode: 2 steps, return -")
    assert lines[-1] == "  … (5 episodes)>"
