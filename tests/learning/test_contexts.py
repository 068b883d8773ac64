"""Training in families of worlds: which environments share a context, who sees it, and that resuming changes nothing."""

import dataclasses
import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl import AgentConfig, EvaluatorConfig, NetworkConfig, PPOConfig
from evarl.errors import InputError
from evarl.learning import make_learner
from evarl.learning.base_policies import build_assessment
from evarl.learning.evaluability import (
    STARTS,
    behaviours,
    by_context,
    first_starts,
    fit_steps,
    gather_evidence,
    predict,
    predict_all,
    remember,
)
from evarl.simulation import Batch, simulator_for
from tests.runs.test_runs import RESULTS, same_files

SMALL = {
    "environments": 12,
    "contexts": 3,
    "rollouts_per_start": 2,
    "steps": 5,
    "horizon": 10,
    "updates": 7,
    "ramp": 0,
    "agent": AgentConfig(hidden_sizes=(8,), ppo=PPOConfig(epochs=1, minibatches=2)),
    "evaluator": EvaluatorConfig(
        network=NetworkConfig(width=8, heads=2, layers=1), batch_size=12, initial_steps=5, steps=1, warmup=1, policies=5
    ),
}


def small(preset="crossing", **changes):
    return evarl.with_settings(evarl.preset(preset), SMALL | {"beta": 0.5, "context_updates": 3} | changes).resolved()


def learner_for(config):
    return make_learner(config, build_assessment(config, print) if config.evaluator_mode != "none" else None)


def gathering(learner):
    """A compiled function of a state and the number of an update: trajectory, rollout and evidence of its batch."""

    @jax.jit
    def gathered(state, index):
        worlds, experience = learner.gather(state, state.worlds, index)
        trajectory, rollout, *_ = experience
        evidence = gather_evidence(
            learner.evaluability, state.evaluation, learner.agent, state.agent.policy, trajectory, rollout
        )
        evidence = evidence._replace(observed=evidence.observed._replace(pathwise=None))  # a function
        return trajectory, rollout, evidence, state.replace(worlds=worlds, key=experience.keys.next_update)

    return gathered


def test_groups_share_a_context_that_is_drawn_anew_after_so_many_updates():
    learner = learner_for(small(context=("bridge=0:1",)))
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    gather = jax.jit(learner.gather)
    seen = []
    for index in range(7):
        worlds, experience = gather(state, state.worlds, jnp.int32(index))
        state = state.replace(worlds=worlds, key=experience.keys.next_update)
        context = np.asarray(experience.trajectory.context)
        assert context.shape == (12, 1)
        assert (context.reshape(3, 4) == context[::4]).all(), "four neighbours share a context"
        assert len(np.unique(context)) == 3
        starts = np.asarray(experience.trajectory.start_label[0])
        assert (starts == 0).all() == (index % 3 == 0), "with new contexts all episodes begin anew"
        seen.append(context[:, 0])
    same = [[bool((a == b).all()) for b in seen] for a in seen]
    assert same == [[i // 3 == j // 3 for j in range(7)] for i in range(7)]


@pytest.mark.slow
def test_each_context_is_predicted_from_its_own_assessment():
    """`predict` of C contexts at once is the evaluator's prediction context by context."""
    learner = learner_for(small(context=("bridge=0:1",)))
    state = jax.jit(learner.init)(jax.random.PRNGKey(1))
    fixed, evaluation = learner.evaluability, state.evaluation
    trajectory, rollout, evidence, _ = gathering(learner)(state, jnp.int32(0))
    assert rollout.reward.shape == (6, 3 * 4, 1)
    shown = behaviours(evidence.observed.behaviour, 3)
    assert len(np.unique(np.asarray(shown.rolled_out).sum(axis=1))) > 1
    evaluator = evaluation.evaluator.replace(behaviour=jax.tree.map(lambda x: x * 2.0, evaluation.evaluator.behaviour))
    found = by_context(jax.jit(partial(predict, fixed))(evaluator, trajectory, evidence.observed.behaviour), 3)
    queries, alone = by_context(trajectory.observation, 3), jax.jit(fixed.evaluator.predict)
    for c in range(3):
        one = jax.tree.map(lambda x, c=c: x[c], shown)
        np.testing.assert_allclose(found[c], alone(evaluator, one, queries[c]), rtol=1e-5, atol=1e-6)


def test_the_first_starts_of_each_environment_are_found_in_order():
    label = jnp.array([[0, -1], [-1, -1], [1, -1], [2, 0], [-1, -1]], jnp.int32)
    assert first_starts(label, 2).tolist() == [[0, 3], [2, 0]]
    assert first_starts(label, 4).tolist() == [[0, 3], [2, 0], [3, 0], [0, 0]]


@pytest.mark.slow
def test_an_evaluator_of_start_states_is_asked_about_those_alone():
    """At the first starts of each environment it says what it says everywhere, and elsewhere nothing counts."""
    changes = {"context": ("bridge=0:1",), "context_updates": 1, "horizon": 1, "steps": 7, "evaluator.states": "start"}
    learner = learner_for(small(**changes))
    state = jax.jit(learner.init)(jax.random.PRNGKey(1))
    fixed, evaluation = learner.evaluability, state.evaluation
    trajectory, _, evidence, _ = gathering(learner)(state, jnp.int32(0))
    assert (trajectory.start_label >= 0).all(), "with a horizon of 1, an episode begins at every step"
    counted = np.asarray(evidence.trajectory.start_label) >= 0
    assert counted[:STARTS].all()
    assert not counted[STARTS:].any()
    behaviour = evidence.observed.behaviour
    found = jax.jit(partial(predict, fixed))(evaluation.evaluator, evidence.trajectory, behaviour)
    every = jax.jit(partial(predict_all, fixed))(evaluation.evaluator, trajectory.observation, behaviour)
    np.testing.assert_allclose(found[:STARTS], every[:STARTS], rtol=1e-5, atol=1e-6)
    assert (np.asarray(found[STARTS:]) == 0).all()


@pytest.mark.slow
def test_the_critic_sees_the_context_and_the_policy_does_not():
    config = small(context=("bridge=0:1",))
    learner = learner_for(config)
    policy = jax.jit(learner.init)(jax.random.PRNGKey(0)).agent.policy
    observation = jnp.ones((2, 56), bool)
    one, other = jnp.zeros((2, 1)), jnp.ones((2, 1))
    agent = learner.agent
    assert (agent.value(policy, observation, one) != agent.value(policy, observation, other)).all()
    inputs = [
        policy.actor["params"]["MLP_0"]["Dense_0"]["kernel"],
        policy.critic["params"]["MLP_0"]["Dense_0"]["kernel"],
    ]
    assert [x.shape[0] for x in inputs] == [56, 57]
    with pytest.raises(InputError, match="give one for each observation"):
        agent.value(policy, observation)
    blind = learner_for(dataclasses.replace(config, critic_sees_context=False))
    assert blind.agent.value(jax.jit(blind.init)(jax.random.PRNGKey(0)).agent.policy, observation).shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"agent.algorithm": "ppo", "shape": "both", "critic_sees_context": False},
        {"gradient": "score"},
        {"gradient": "critic", "queries": "visited", "context_updates": None},
        {"beta": 0.0, "evaluator_mode": "none"},
    ],
    ids=str,
)
def test_a_resumed_run_has_the_same_bits(changes, tmp_path):
    config = small(seeds=2, **changes)
    whole = evarl.train(config, out=tmp_path / "whole", quiet=True, checkpoint_seconds=1e-3)
    checkpoints = sorted((whole.path / "checkpoints" / "seeds-0-1").iterdir())
    assert len(checkpoints) > 1
    shutil.copytree(whole.path, tmp_path / "cut")
    (tmp_path / "cut" / "summary.json").unlink()
    for newer in checkpoints[1:]:  # the one that is left is not the first of its contexts
        (tmp_path / "cut" / newer.relative_to(whole.path)).unlink()
    again = evarl.train(config, out=tmp_path / "cut", quiet=True, resume=True)
    files = RESULTS if config.evaluator_mode == "none" else [*RESULTS, "evaluator/seed-0.safetensors"]
    assert same_files(whole.path, again.path, files)


def test_start_states_are_remembered_context_by_context():
    """With contexts that are drawn anew in each update, episodes begin in step 0 of all four environments of a context."""
    config = small(
        context=("bridge=0:1",),
        context_updates=1,
        **{"evaluator.states": "start", "evaluator.lower_quantile": 0.1, "steps": 12},
    )
    learner = learner_for(config)
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    evaluation, gathered = state.evaluation, gathering(learner)
    keep = jax.jit(partial(remember, learner.evaluability))
    assert evaluation.memory.slots.target.shape == (5 * 3, 4)
    for index in range(2):
        trajectory, _, evidence, state = gathered(state.replace(evaluation=evaluation), jnp.int32(index))
        evaluation = keep(evaluation, evidence, jnp.int32(index), jax.random.PRNGKey(1))
        kept = jax.tree.map(lambda x, at=3 * index: x[at : at + 3], evaluation.memory.slots)
        assert (trajectory.start_label[0] >= 0).all()
        np.testing.assert_array_equal(kept.observation, trajectory.observation[0].reshape(3, 4, -1))
        np.testing.assert_array_equal(kept.target, evidence.returns[0].reshape(3, 4))
        np.testing.assert_array_equal(kept.told, evidence.value[0].reshape(3, 4))
        seen = np.repeat(np.asarray(trajectory.context).reshape(3, 4, 1)[:, :1], 4, axis=1)
        value = learner.agent.value(state.agent.policy, kept.observation, jnp.asarray(seen))
        np.testing.assert_allclose(kept.told, value, rtol=1e-5)
    assert len(np.unique(np.asarray(evidence.returns[0]))) > 1


@pytest.mark.slow
def test_last_steps_are_taken_in_the_last_update_alone():
    """Up to the last fit the bits do not depend on their number; without any the program is another one, and rounds otherwise."""
    alone = {"context": (), "contexts": None, "context_updates": None, "beta": 0.0, "evaluator_mode": "colearned"}
    none = small("navigation", updates=4, **alone)
    few, many = (evarl.with_settings(none, {"evaluator.final_steps": number}) for number in (10, 20))
    assert [int(fit_steps(many, jnp.int32(index))) for index in range(4)] == [0, 5, 1, 21]
    states, counts = {}, {}
    for config in (none, few, many):
        learner = learner_for(config)
        state, update = jax.jit(learner.init)(jax.random.PRNGKey(0)), jax.jit(learner.update)
        states[config], counts[config] = [], []
        for index in range(4):
            state, _ = update(state, jnp.int32(index))
            states[config].append(state)
            counts[config].append(state.evaluation.evaluator.steps())
    assert [counts[config] for config in (none, few, many)] == [[0, 5, 6, 7], [0, 5, 6, 17], [0, 5, 6, 27]]
    before = {config: [found[:3], found[3].evaluation.memory] for config, found in states.items()}
    for x, y, z in zip(*(jax.tree.leaves(before[config]) for config in (none, few, many)), strict=True):
        np.testing.assert_array_equal(y, z)
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)
    last = [jax.tree.leaves(states[config][3].evaluation.evaluator.parameters) for config in (few, many)]
    assert any(not np.array_equal(y, z) for y, z in zip(*last, strict=True))


IN_THE_OPEN = {"assessment.world": "navigation/open-field", "assessment.horizon": 3}


@pytest.mark.slow
def test_contexts_go_by_name_into_an_assessment_in_another_world():
    """Slip acts in the open field too; obstacles, of which it has none, do not."""
    texts = ("obstacle-1=0,1", "slip=0:0.5")
    config = small("navigation", context=texts, gradient="exact", queries="start", **IN_THE_OPEN)
    learner = learner_for(config)
    assert [context.name for context in learner.assessment.world.contexts] == ["slip"]
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    _, (trajectory, rollout, *_) = jax.jit(learner.gather)(state, state.worlds, jnp.int32(0))
    assert trajectory.context.shape == (12, 2)
    assert rollout.reward.shape == (3, 3 * 4, 1)


@pytest.mark.slow
def test_an_update_with_contexts_that_the_assessment_does_not_have():
    texts = ("obstacle-1=0,1", "slip=0:0.5")
    learner = learner_for(small("navigation", context=texts, gradient="exact", queries="start", **IN_THE_OPEN))
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))
    _, metrics = jax.jit(learner.update)(state, jnp.int32(5))
    assert int(metrics["fault"]) == 0


def test_host_environments_get_their_contexts_back():
    """What was drawn depends on the seed and the period alone, so a run that is resumed in its middle has the same."""
    world = evarl.make_world("gymnasium/CartPole-v1", context=["length=0.3:2"])
    simulator = simulator_for(world)
    batch = Batch(4, 5, 2, contexts=2, context_updates=3)
    begun = [simulator.begin(batch, jax.random.PRNGKey(0), seed=7, index=index) for index in (3, 5, 6)]
    first, later, other = (one.contexts for one in begun)
    np.testing.assert_array_equal(first, later)
    assert (first != other).all()
    assert (first.reshape(2, 2) == first[::2]).all()
    lengths = [one.unwrapped.length for one in begun[0].environments._environments]
    np.testing.assert_allclose(lengths, first[:, 0], rtol=1e-6)
    renewed = simulator.renew(batch, begun[1], jax.random.PRNGKey(0), 5)
    np.testing.assert_array_equal(renewed.contexts, first)
    for one in begun:
        one.environments.close()


@pytest.mark.slow
def test_a_host_world_is_trained_over_contexts(tmp_path):
    settings = {"world": "gymnasium/CartPole-v1", "context": ("length=0.3:2",), "horizon": 8, "beta": 0.5, "updates": 3}
    settings |= {
        "context_updates": 1,
        "assessment.horizon": 4,
        "assessment.scenarios": 2,
        "steps": 8,
        "environments": 6,
    }
    config = small("crossing", **settings)
    run = evarl.train(config, out=tmp_path / "run", quiet=True)
    assert run.metrics.num_rows == 3
    assert np.isfinite(run.metrics["evaluator_loss"].to_numpy()).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"context": (), "contexts": 3}, "contexts: has no effect without --context NAME=LOW:HIGH"),
        ({"contexts": 5}, "contexts: 5 does not divide the 12 environments"),
        ({"contexts": 4}, "rollouts-per-start: 2 does not divide the 3 environments of a context"),
        ({"context": ("brigde=0:1",)}, "bridge"),
        ({"context": ("bridge=0:2",)}, "context: bridge=2 is not allowed; crossing takes 0 to 1"),
        ({"queries": "visited"}, "queries: visited does not go with gradient exact; must be start"),
        (
            {"evaluator.states": "start"},
            "evaluator.states: start does not go with context-updates 3; needs --context and ",
        ),
        (
            {"context": (), "contexts": None, "context_updates": None, "evaluator.states": "start"},
            "evaluator.states: start does not go with context-updates None; needs --context",
        ),
        (
            {"critic_sees_context": False, "evaluator.lower_quantile": 0.1},
            "evaluator.lower-quantile: 0.1 needs --context and a critic that sees the context",
        ),
        (
            {"context": (), "contexts": None, "context_updates": None, "evaluator.lower_quantile": 0.1},
            "evaluator.lower-quantile: 0.1 needs --context",
        ),
        ({"rollouts_per_start": 1}, "rollouts-per-start: 1 of 12 environments cannot serve gradient exact"),
    ],
)
def test_refused_settings(changes, said, tmp_path):
    with pytest.raises(InputError, match=said):
        evarl.train(small(**changes), out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
