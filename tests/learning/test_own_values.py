"""Training with an evaluator whose own values follow where a batch cuts an episode, and critics that take several steps."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.assessment import Assessment, given_states
from evarl.errors import InputError
from evarl.evaluators.targets import following_cuts
from evarl.learning.evaluability import gather_evidence, predict_all, remember
from evarl.learning.learner import make_learner
from evarl.worlds.registry import make_world
from tests.learning.test_evaluation_aware import WORLDS
from tests.runs.test_runs import RESULTS, same_files

OWN = {"evaluator.bootstrap": "evaluator", "evaluator.trace": 0.8, "evaluator.target_interval": 3}
OWN |= {"evaluator.final_steps": 4, "evaluator.transitions": 40, "agent.critic_steps": 2, "beta": 0.1}


@pytest.mark.parametrize("truncation", ["end", "bootstrap"])
def test_returns_and_what_is_remembered_go_on_with_the_evaluator(truncation):
    """Episodes of 6 steps in a batch of 16: two time limits, then a cut. The values that follow are those of V̂ before fitting."""
    changes = {"evaluator.bootstrap": "evaluator", "evaluator.truncation": truncation, "horizon": 6}
    config = evarl.with_settings(WORLDS["navigation"], changes | {"evaluator_mode": "colearned"}).resolved()
    world = make_world("navigation/open-field", 6)
    learner = make_learner(config, Assessment(world, given_states(world, [(0.25, 0.25), (0.75, 0.75)]), 4))
    fixed, state = learner.evaluability, jax.jit(learner.init)(jax.random.PRNGKey(0))

    @jax.jit
    def one(state):
        _, (trajectory, rollout, keys, _) = learner.gather(state, state.worlds, jnp.int32(0))
        evidence = gather_evidence(fixed, state.evaluation, learner.agent, state.agent.policy, trajectory, rollout)
        onward = following_cuts(
            trajectory, jnp.zeros_like(trajectory.terminated), config.discount, truncation == "bootstrap"
        )
        values = predict_all(fixed, state.evaluation.evaluator, onward.observation, evidence.observed.behaviour)
        kept = remember(fixed, state.evaluation, evidence, jnp.int32(0), keys.remember)
        return trajectory, evidence.returns, onward, values, kept.memory.slots

    trajectory, returns, onward, values, slots = one(state)
    assert trajectory.truncated.sum() == 16
    assert (np.asarray(onward.discount) > 0).mean() == pytest.approx(1.0 if truncation == "bootstrap" else 0.25)
    assert np.abs(values).max() > 1e-3
    np.testing.assert_allclose(returns, onward.reward + onward.discount * values, rtol=1e-4, atol=1e-5)
    for stored, found in zip(jax.tree.leaves(slots.following), jax.tree.leaves(onward), strict=True):
        np.testing.assert_allclose(stored[0], np.asarray(found).reshape(stored[0].shape), rtol=1e-5)
    np.testing.assert_allclose(slots.target[0], np.asarray(returns).ravel(), rtol=1e-5)


@pytest.mark.slow
def test_a_resumed_run_with_own_values_has_the_same_bits(tmp_path):
    config = evarl.with_settings(WORLDS["navigation"], OWN)
    whole = evarl.train(config, out=tmp_path / "whole", quiet=True, checkpoint_seconds=1e-3)
    checkpoints = sorted((whole.path / "checkpoints" / "seeds-0-1").iterdir())
    assert len(checkpoints) > 1
    shutil.copytree(whole.path, tmp_path / "cut")
    (tmp_path / "cut" / "summary.json").unlink()
    for newer in checkpoints[1:]:
        (tmp_path / "cut" / newer.relative_to(whole.path)).unlink()
    again = evarl.train(config, out=tmp_path / "cut", quiet=True, resume=True)
    assert same_files(whole.path, again.path, [*RESULTS, "evaluator/seed-0.safetensors"])


def test_ppo_has_epochs_instead_of_critic_steps():
    agent = dataclasses.replace(WORLDS["navigation"].agent, algorithm="ppo", critic_steps=3)
    with pytest.raises(InputError, match=r"agent.critic-steps: 3 does not go with agent.algorithm ppo"):
        agent.validate()
