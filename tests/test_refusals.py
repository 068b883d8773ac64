"""Wrong calls from Python: each is one InputError that names the field or argument, its value and what is allowed."""

import dataclasses

import numpy as np
import pytest

import evarl
from evarl.errors import InputError
from tests.evaluation.tiny import train_tiny


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_tiny(tmp_path_factory.mktemp("refusals") / "run")


def refused(call) -> str:
    with pytest.raises(InputError) as error:
        call()
    assert "\n" not in str(error.value)
    return str(error.value)


PRESET = evarl.preset("navigation")
SETTINGS = [
    (lambda: evarl.train("navigation", betta=1), "unknown 'betta'; did you mean 'beta'?"),
    (lambda: evarl.train("navigation", ouut="x"), "unknown 'ouut'; did you mean 'out'?"),
    (lambda: evarl.train("navigation", updates="many"), "updates: 'many' is not allowed; must be a whole number"),
    (lambda: evarl.train("navigation", updates=10.0), "updates: 10.0 is not allowed; must be a whole number"),
    (lambda: evarl.train("navigation", updates=True), "updates: True is not allowed; must be a whole number"),
    (lambda: evarl.train("navigation", steps=[200]), r"steps: [200] is not allowed; must be a whole number"),
    (lambda: evarl.train("navigation", beta="0.1"), "beta: '0.1' is not allowed; must be a number"),
    (
        lambda: evarl.train("navigation", horizon="long"),
        "horizon: 'long' is not allowed; must be a whole number or None",
    ),
    (lambda: evarl.train("navigation", agent={"algoritm": "ppo"}), "'agent.algoritm'; did you mean 'agent.algorithm'?"),
    (lambda: evarl.train("navigation", agent={"algorithm": "pppo"}), "agent.algorithm: unknown 'pppo'; did you mean"),
    (lambda: evarl.train("navigation", agent="ppo"), "agent: 'ppo' is not allowed; must be an AgentConfig"),
    (lambda: evarl.train("navigation", agent={"ppo": {"epochs": "2"}}), "agent.ppo.epochs: '2' is not allowed"),
    (
        lambda: evarl.train("navigation", agent={"hidden_sizes": 64}),
        "agent.hidden-sizes: 64 is not allowed; must be a list of whole numbers",
    ),
    (
        lambda: evarl.train("navigation", gradient="exakt"),
        "gradient: 'exakt' is not allowed; must be exact, paired, critic, printed or score",
    ),
    (
        lambda: evarl.train("navigation", context="bridge=1"),
        "context: 'bridge=1' is not allowed; must be a list of texts",
    ),
    (lambda: evarl.train("navigation", world=None), "world: None is not allowed; must be text"),
    (lambda: evarl.train("navigaton"), "preset: unknown 'navigaton'; did you mean 'navigation'?"),
    (
        lambda: evarl.train({"world": "navigation"}),
        "config: {'world': 'navigation'} is not allowed; must be a TrainConfig",
    ),
    (lambda: evarl.train("navigation", "out"), "train: too many positional arguments"),
    (lambda: evarl.train("navigation", out=3), "out: 3 is not allowed; must be a path or None"),
    (lambda: evarl.train("navigation", resume="yes"), "resume: 'yes' is not allowed; must be True or False"),
    (lambda: evarl.train("navigation", memory_gib="2"), "memory-gib: '2' is not allowed; must be a number or None"),
    (lambda: evarl.TrainConfig(seeds=None), "seeds: None is not allowed; must be a whole number"),
    (
        lambda: evarl.TrainConfig(agent={"algorithm": "ppo"}),
        "agent: {'algorithm': 'ppo'} is not allowed; must be an AgentConfig",
    ),
    (lambda: dataclasses.replace(PRESET, discount=[0.9]), "discount: [0.9] is not allowed; must be a number"),
    (lambda: evarl.EvaluatorConfig(steps="5"), "evaluator.steps: '5' is not allowed"),
    (lambda: evarl.NetworkConfig(width=2.5), "evaluator.network.width: 2.5 is not allowed"),
    (
        lambda: evarl.AssessmentConfig(probes="learned"),
        "assessment.probes: 'learned' is not allowed; must be start or learnt",
    ),
    (lambda: evarl.with_settings(PRESET, {"evaluator.netwrk.width": 3}), "did you mean 'evaluator.network'?"),
    (lambda: evarl.with_settings(PRESET, {"updates.first": 3}), "unknown 'updates.first'; updates has no fields"),
    (
        lambda: evarl.with_settings("navigation", {"updates": 3}),
        "config: 'navigation' is not allowed; must be a TrainConfig",
    ),
    (lambda: evarl.with_settings(PRESET, [("updates", 3)]), "changes: [('updates', 3)] is not allowed; must be a dict"),
    (lambda: evarl.Terms(alpha="small"), "alpha: 'small' is not allowed; must be a number"),
    (lambda: evarl.Terms(claim="mean"), "claim: 'mean' is not allowed; must be mean-return"),
    (lambda: evarl.Terms(range=(1.0,)), "range: (1.0,) is not allowed; must be a list of 2 numbers"),
    (lambda: evarl.preset(3), "name: 3 is not allowed; must be text"),
    (lambda: evarl.make_world(3), "name: 3 is not allowed; must be text"),
    (lambda: evarl.make_world("navigation", horizon="5"), "horizon: '5' is not allowed"),
]


@pytest.mark.parametrize(("call", "message"), SETTINGS, ids=[message[:40] for _, message in SETTINGS])
def test_wrong_settings(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused(call)
    assert not list(tmp_path.iterdir())


MEASUREMENTS = [
    (lambda run: evarl.assess(run, sampels=3), "argument: unknown 'sampels'; did you mean 'samples'?"),
    (lambda run: evarl.assess(run, samples="64"), "samples: '64' is not allowed; must be a whole number"),
    (lambda run: evarl.assess(run, seed="0"), "seed: '0' is not allowed; must be a whole number or None"),
    (lambda run: evarl.assess(run, seed=9), "seed: 9 is not one of this run's seeds 0 to 1"),
    (lambda run: evarl.assess(run, states=[0.2, 0.2]), "states: [0.2, 0.2] is not allowed; must be text"),
    (lambda run: evarl.assess(3), "run: 3 is not allowed; must be a Run or a path"),
    (lambda run: evarl.evaluate(run, rollouts=[2]), "rollouts: [2] is not allowed; must be a whole number or None"),
    (lambda run: evarl.evaluate(run, seeds=0), "seeds: 0 is not allowed; must be a list of whole numbers or None"),
    (
        lambda run: evarl.evaluate(run, seeds=["0"]),
        "seeds: ['0'] is not allowed; must be a list of whole numbers or None",
    ),
    (lambda run: evarl.evaluate(run, random_seed=1.5), "random-seed: 1.5 is not allowed"),
    (lambda run: evarl.evaluate(), "evaluate: missing a required argument: 'run'"),
    (lambda run: evarl.issue_certificate(run, {"alpha": 0.1}), "terms: {'alpha': 0.1} is not allowed; must be a Terms"),
    (lambda run: evarl.issue_certificate(run, evarl.Terms(), again="no"), "again: 'no' is not allowed"),
    (lambda run: evarl.issue_certificate(run, treshold=1), "argument: unknown 'treshold'"),
    (lambda run: evarl.compare_policies(run.path, evarl.Terms(threshold=0.0)), "must be a list of"),
    (lambda run: evarl.verify_certificate(5), "path: 5 is not allowed; must be a path"),
]


@pytest.mark.parametrize(("call", "message"), MEASUREMENTS, ids=[message[:40] for _, message in MEASUREMENTS])
def test_wrong_measurements(call, message, run):
    assert message in refused(lambda: call(run))


def test_nested_settings_can_be_dicts_or_full_names():
    changes = {"agent": {"algorithm": "ppo", "ppo": {"epochs": 2}}, "agent.gae_lambda": 0.9}
    config = evarl.with_settings(PRESET, changes)
    assert (config.agent.algorithm, config.agent.ppo.epochs, config.agent.gae_lambda) == ("ppo", 2, 0.9)
    assert config.agent.ppo.minibatches == PRESET.agent.ppo.minibatches
    assert config.agent.actor_learning_rate == PRESET.agent.actor_learning_rate


def test_lists_and_numpy_numbers_are_what_they_are_equal_to():
    plain = evarl.TrainConfig(updates=5, beta=0.5, agent=evarl.AgentConfig(hidden_sizes=(8, 8), scale_rewards=True))
    agent = evarl.AgentConfig(hidden_sizes=[np.int64(8), 8], scale_rewards=np.bool_(True))
    same = evarl.TrainConfig(updates=np.int32(5), beta=np.float64(0.5), agent=agent)
    assert same == plain
    assert same.hash() == plain.hash()
    assert hash(same) == hash(plain)


def test_training_takes_nested_settings(tmp_path):
    small = {"environments": 2, "steps": 8, "updates": 1, "out": tmp_path / "run", "quiet": True}
    run = evarl.train("navigation", agent={"algorithm": "ppo", "hidden_sizes": [4]}, **small)
    assert run.config.agent == dataclasses.replace(PRESET.agent, algorithm="ppo", hidden_sizes=(4,))
