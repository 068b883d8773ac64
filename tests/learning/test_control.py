"""When β begins to act and how large it becomes: the recursions by hand, and in training."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.assessment import Assessment
from evarl.errors import InputError
from evarl.learning import make_learner
from evarl.learning.control import Dual, Warmup, raise_beta, record_error, watch_skill
from evarl.learning.evaluability import fit_steps, ramp
from evarl.worlds import make_world
from tests.runs.test_runs import RESULTS, same_files


def ends(skills, earliest=0, window=4):
    """The running means, and the update in which the warm-up ended."""
    warmup, means = Warmup.create(), []
    for index, skill in enumerate(skills):
        warmup = watch_skill(warmup, jnp.float32(skill), jnp.int32(index), earliest, window)
        means.append(float(warmup.skill))
    return means, int(warmup.ended)


def test_the_warm_up_ends_when_the_running_mean_of_skill_becomes_positive():
    means, ended = ends([-50.0, 0.6, 0.6, 0.6, 0.6, -1.0])
    by_hand = [-1.0]
    for skill in (0.6, 0.6, 0.6, 0.6, -1.0):  # −50 counts as −1
        by_hand.append(by_hand[-1] * 3 / 4 + skill / 4)
    np.testing.assert_allclose(means, by_hand, rtol=1e-6)
    assert [mean > 0 for mean in means] == [False, False, False, False, True, False]
    assert ended == 4, "what has ended does not begin again"


def test_the_warm_up_does_not_end_before_its_time_or_without_skill():
    assert ends([0.9] * 30, earliest=17)[1] == 17
    assert ends([0.9] * 30, earliest=40)[1] == -1
    assert ends([0.0] * 200)[1] == -1
    assert ends([0.2, -0.9] * 100)[1] == -1


def test_a_constant_skill_takes_as_long_as_documented():
    window, skill = 100, 0.25
    assert ends([skill] * 400, window=window)[1] == pytest.approx(window * np.log(1 + 1 / skill), rel=0.02)


def test_beta_follows_the_error_by_the_recursion():
    """Limits of 0 in a warm-up, of 1 and 2 in a ramp, then of 3; a batch without start states changes no mean."""
    errors = [9.0, 4.0, np.nan, 1.0, 1.0, 0.25]
    limits = [0.0, 1.0, 2.0, 3.0, 3.0, 3.0]
    target, rate = 0.5, 0.1
    dual, found = Dual.create(), []
    for error, limit in zip(errors, limits, strict=True):
        dual = record_error(dual, jnp.float32(error), jnp.float32(limit) > 0)
        dual = dual.replace(beta=raise_beta(dual.beta, dual.error, target, rate, jnp.float32(limit)))
        found.append((float(dual.error), float(dual.beta)))
    means = [0.0, 4.0, 4.0, 2.5, 2.0, 1.5625]  # the error of the warm-up does not count
    betas = [0.0]
    for mean, limit in zip(means[1:], limits[1:], strict=True):
        betas.append(min(max(betas[-1] + rate * (mean - target) / target, 0.0), limit))
    np.testing.assert_allclose(found, np.stack([means, betas], axis=1), rtol=1e-6)
    assert betas[1] == pytest.approx(0.7)
    low = raise_beta(jnp.float32(0.05), jnp.float32(0.0), target, rate, jnp.float32(3.0))
    assert float(low) == 0.0, "it falls, and not below 0"


def test_the_ramp_counts_from_where_the_warm_up_ended():
    config = evarl.with_settings(evarl.preset("navigation"), {"ramp": 4, "evaluator.warmup_ends": "auto"})
    config = evarl.with_settings(config, {"evaluator.warmup": 10, "evaluator.every": 3, "updates": 100}).resolved()
    at = lambda index, ended: float(ramp(config, jnp.int32(index), Warmup(jnp.zeros(()), jnp.int32(ended))))  # noqa: E731
    assert [at(50, -1), at(49, 49), at(50, 49), at(52, 49), at(80, 49)] == [0.0, 0.25, 0.5, 1.0, 1.0]
    steps = [int(fit_steps(config, jnp.int32(index))) for index in range(17)]
    settings = config.evaluator
    expected = {1: settings.steps, 4: settings.steps, 7: settings.steps, 10: settings.initial_steps, 13: settings.steps}
    assert steps == [(expected | {16: settings.steps}).get(index, 0) for index in range(17)], "also in the warm-up"


TINY = {
    **{"environments": 4, "rollouts_per_start": 2, "steps": 8, "horizon": 8, "updates": 12, "seeds": 2, "ramp": 2},
    **{"agent.hidden_sizes": [4], "evaluator.network.width": 8, "evaluator.network.heads": 1, "evaluator.warmup": 2},
    **{
        "evaluator.network.layers": 1,
        "evaluator.batch_size": 16,
        "evaluator.initial_steps": 5,
        "evaluator.policies": 3,
    },
}
BY_ITSELF = {"target_error": 2.0, "target_rate": 0.2, "evaluator.warmup_ends": "auto", "evaluator.warmup_window": 2}
BY_ITSELF |= {"assessment.select": "greedy", "assessment.candidates": 8, "assessment.base_updates": 24}
BY_ITSELF |= {
    "assessment.horizon": 8,
    "agent.actor_learning_rate": 0.03,
}  # policies that differ, after so little training


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """A run that chooses its start states, the end of its warm-up and β."""
    config = evarl.with_settings(evarl.preset("navigation"), TINY | BY_ITSELF | {"beta": 0.5})
    folder = tmp_path_factory.mktemp("chosen")
    return evarl.train(config, out=folder / "whole", quiet=True, checkpoint_seconds=1e-9)


def columns(run):
    """Metrics as [updates, seeds]."""
    table, seeds = run.metrics, len(run.seeds)
    return {name: table[name].to_numpy().reshape(-1, seeds) for name in table.column_names}


@pytest.mark.slow
def test_training_logs_the_beta_that_the_recursions_give(chosen):
    found, config = columns(chosen), chosen.config
    for seed in range(2):
        warmup, dual = Warmup.create(), Dual.create()
        for index in range(12):
            skill, squared = (
                jnp.float32(found[name][index, seed]) for name in ("skill", "start_squared_error_corrected")
            )
            warmup = watch_skill(warmup, skill, jnp.int32(index), 2, 2)
            limit = 0.5 * ramp(config, jnp.int32(index), warmup)
            assert bool(found["warmup_ended"][index, seed]) == bool(warmup.ended >= 0)
            assert found["beta"][index, seed] == pytest.approx(float(dual.beta), abs=1e-6)
            dual = record_error(dual, squared, limit > 0)
            if dual.measured > 0:
                error = jnp.sqrt(jnp.maximum(dual.error, 0.0))
                dual = dual.replace(beta=raise_beta(dual.beta, error, 2.0, 0.2 * 0.5, limit))


@pytest.mark.slow
def test_resumed_in_the_middle_it_ends_with_the_same_bits(chosen):
    out = chosen.path.with_name("resumed")
    shutil.copytree(chosen.path, out)
    (out / "summary.json").unlink()
    *_, middle, newest = sorted((out / "checkpoints" / "seeds-0-1").iterdir())
    newest.unlink()
    assert "update-000000012" in newest.name
    for file in (*out.glob("policy/*"), *out.glob("evaluator/*")):
        file.unlink()
    evarl.train(chosen.config, out=out, resume=True, quiet=True)
    evaluators = [f"evaluator/seed-{seed}.safetensors" for seed in range(2)]
    assert same_files(chosen.path, out, [*RESULTS, *evaluators, str(newest.relative_to(out))]), middle


def test_by_default_nothing_is_carried_or_logged():
    config = evarl.with_settings(evarl.preset("navigation"), TINY | {"beta": 0.5}).resolved()
    assessment = Assessment(make_world("navigation/open-field"), np.array([[0.2, 0.2]], np.float32), 3)
    learner = make_learner(config, assessment)
    state = jax.eval_shape(learner.init, jax.random.PRNGKey(0))
    assert (state.evaluation.warmup, state.evaluation.dual) == (None, None)
    _, metrics = jax.eval_shape(learner.update, state, jnp.int32(0))
    assert not {"beta", "warmup_ended"} & set(metrics)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": 0.1, "target_error": 0.0}, "target-error: 0.0 is not allowed; must be a number above 0"),
        ({"beta": 0.1, "target_error": -1.0}, "target-error: -1.0 is not allowed"),
        ({"beta": 0.1, "target_error": float("nan")}, "target-error: nan is not allowed"),
        ({"beta": 0.0, "target_error": 1.0}, "target-error: 1.0 has no effect with beta 0"),
        ({"beta": 0.1, "target_rate": 0.0}, "target-rate: 0.0 is not allowed; must be a number above 0"),
        ({"beta": 0.1, "evaluator.warmup_window": 0}, "evaluator.warmup-window: 0 is not allowed; must be at least 1"),
        (
            {"evaluator_mode": "frozen", "evaluator.file": "x", "evaluator.warmup_ends": "auto"},
            "evaluator.warmup-ends: auto does not go with a frozen evaluator",
        ),
    ],
)
def test_nonsense_is_refused(changes, message):
    with pytest.raises(InputError) as caught:
        evarl.with_settings(evarl.preset("navigation"), changes).resolved().validate()
    assert message in str(caught.value)


def test_a_frozen_evaluator_may_have_a_target():
    frozen = {"evaluator_mode": "frozen", "evaluator.file": "x", "beta": 1.0, "target_error": 0.5}
    evarl.with_settings(evarl.preset("navigation"), frozen).validate()
