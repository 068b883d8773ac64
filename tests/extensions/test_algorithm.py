"""A learning algorithm of one's own, in one file and by public names: plain and evaluation-aware training, and what follows."""

import jax
import numpy as np
import pytest

import evarl
from evarl.agents import ActorBatch, ActorCritic, actor_loss, value_loss


class Reinforce(ActorCritic):
    """Policy gradient with returns-to-go less their mean, no critic in the advantages."""

    def learn(self, state, key, trajectory, weights):
        policy = state.policy
        features = self.features(policy, trajectory.observation)
        value, advantage = self.advantages(policy, trajectory, features, policy.critic)
        returns = value + advantage
        batch = ActorBatch.create(features, trajectory, returns - returns.mean(), weights)
        loss = actor_loss(self, policy, batch, weights, lambda new, old, advantage, unit: new * advantage / unit)
        (_, (cost, entropy, _)), actor = jax.value_and_grad(loss, has_aux=True)(policy.actor)
        critic = jax.grad(lambda critic: value_loss(self.apply_critic(critic, features), returns))(policy.critic)
        return self.descend(state, actor, critic), {"policy_loss": cost, "entropy": entropy}


class Idle(Reinforce):
    """Learns nothing."""

    def learn(self, state, key, trajectory, weights):
        return state, {}


evarl.register_algorithm("reinforce", Reinforce.make)
evarl.register_algorithm("idle", Idle.make)
SMALL = {"environments": 2, "steps": 8, "updates": 4, "evaluator.warmup": 1, "evaluator.initial_steps": 5}


def trained(algorithm, out, **more):
    settings = SMALL | {"agent.algorithm": algorithm, "agent.hidden_sizes": [8]} | more
    return evarl.train(evarl.with_settings(evarl.preset("navigation"), settings), out=out, quiet=True)


@pytest.fixture(scope="module")
def aware(tmp_path_factory):
    return trained("reinforce", tmp_path_factory.mktemp("run") / "aware", beta=0.5)


@pytest.mark.slow
def test_it_learns_and_can_be_evaluation_aware(aware, tmp_path):
    plain = trained("reinforce", tmp_path / "plain")
    idle = trained("idle", tmp_path / "idle")
    first = [jax.tree.leaves(run.policy_state().actor)[0] for run in (plain, aware, idle)]
    assert np.abs(first[0] - first[2]).max() > 1e-4, "it moved"
    assert np.abs(first[0] - first[1]).max() > 1e-6, "the gradient weights reached it"
    assert "policy_loss" in plain.metrics.column_names


@pytest.mark.slow
def test_assess_and_evaluate_take_its_policies(aware):
    assert evarl.assess(aware, interval=False).mean_returns.shape == (4,)
    assert {"evaluator", "critic"} <= {row.predictor for row in evarl.evaluate(aware, rollouts=2, states=2).rows}


def test_a_name_is_taken_once():
    with pytest.raises(evarl.errors.InputError, match="algorithm: 'ppo' is taken; register it under another name"):
        evarl.register_algorithm("ppo", Reinforce.make)
    with pytest.raises(
        evarl.errors.InputError, match=r"agent.algorithm: unknown 'reinforced'; did you mean 'reinforce'"
    ):
        evarl.with_settings(evarl.preset("navigation"), {"agent.algorithm": "reinforced"}).validate()
