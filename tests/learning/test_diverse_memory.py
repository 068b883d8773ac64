"""Training with a diverse memory: what is stored, what it costs, and that the policy does not notice."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.assessment import Assessment
from evarl.errors import InputError
from evarl.learning import make_learner
from evarl.learning.perturbed import kept_states
from evarl.runs.checkpoints import load_newest, save_checkpoint
from evarl.worlds import make_world

STARTS = np.array([[0.2, 0.2], [0.8, 0.8]], np.float32)
TINY = {
    "environments": 2,
    "steps": 12,
    "horizon": 8,
    "updates": 8,
    "rollouts_per_start": 1,
    "agent.hidden_sizes": [4],
    "evaluator_mode": "colearned",
    "evaluator.network.width": 4,
    "evaluator.warmup": 2,
    "evaluator.initial_steps": 2,
    "evaluator.policies": 2,
    "evaluator.reservoir": 10,
    "evaluator.perturbed": 3,
    "evaluator.perturbed_environments": 2,
}
DIVERSE = {
    "evaluator.memory": "diverse",
    "evaluator.diversify_every": 1,
    "assessment.behaviour": "returns+fingerprint",
    "assessment.probes": "learnt",
    "evaluator.final_steps": 20,
}


def learner(**changes):
    config = evarl.with_settings(evarl.preset("navigation"), TINY | changes).resolved()
    return make_learner(config, Assessment(make_world("navigation/open-field", context=config.context), STARTS, 3))


@functools.cache
def compiled(learner):
    return jax.jit(learner.init), jax.jit(learner.update)


def trained(learner, updates=8, seed=1, kept=None):
    """The state and the metrics; with a folder `kept`, the state is read back from a checkpoint there midway."""
    init, update = compiled(learner)
    state, metrics = init(jax.random.PRNGKey(seed)), []
    for index in range(updates):
        if kept is not None and index == updates // 2:
            save_checkpoint(kept, index, jax.device_get(state))
            template = jax.eval_shape(learner.init, jax.random.PRNGKey(0))
            _, state = load_newest(kept, template, print)
        state, told = update(state, jnp.int32(index))
        metrics.append(told)
    return state, metrics


@pytest.fixture(scope="module")
def fixed():
    return learner(**DIVERSE)


@pytest.fixture(scope="module")
def diverse(fixed):
    return trained(fixed)


@pytest.fixture(scope="module")
def recent():
    return trained(learner())


@pytest.mark.slow
def test_reservoirs_hold_policies_of_the_whole_run(diverse):
    memory = diverse[0].evaluation.memory
    assert memory.earlier.slots.target.shape == memory.perturbed.slots.target.shape == (10, 64)
    assert memory.perturbed.slots.behaviour.rolled_out["returns"].shape == (10, 2)
    starts, visited = np.split(np.asarray(memory.perturbed.slots.observation), [48], axis=1)
    np.testing.assert_allclose(starts, np.broadcast_to(np.float32(0.05), starts.shape))
    assert np.ptp(visited) > 0.3
    filled = np.asarray(memory.earlier.slots.target).any(axis=1)
    assert filled.tolist() == [True] * 8 + [False] * 2, "one policy in each of 8 updates"
    assert np.asarray(memory.perturbed.slots.target).any(axis=1).all()


@pytest.mark.slow
def test_steps_of_perturbed_policies_are_counted(diverse):
    """At most 3 policies × (2 episodes of 8 steps + 2 scenarios of 3); less where an episode ended."""
    steps = [int(told["perturbed_steps"]) for told in diverse[1]]
    assert max(steps) <= 3 * (2 * 8 + 2 * 3)
    assert min(steps) >= 3 * (2 + 2)
    assert max(steps) > 3 * 8


@pytest.mark.slow
def test_a_passive_policy_is_the_same_whatever_the_evaluator_remembers(diverse, recent):
    assert learner().learnt(recent[0].evaluation).knowledge is None
    assert "perturbed_steps" not in recent[1][0]
    assert recent[0].evaluation.memory.earlier is None
    for one, other in zip(*(jax.tree.leaves(state.agent.policy) for state, _ in (recent, diverse)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_what_is_learnt_includes_held_out_policies(diverse, fixed):
    known = fixed.learnt(diverse[0].evaluation).knowledge
    assert known.held_out.returned.shape == (2,)
    assert known.others.returned.shape == (8,)
    assert known.earlier.rolled_out["returns"].shape == (8, 2)
    memory = diverse[0].evaluation.memory
    np.testing.assert_allclose(
        known.held_out.returned, memory.perturbed.slots.target[[4, 9], :2].mean(axis=1), rtol=1e-6
    )


def test_perturbed_policies_have_fingerprints(diverse):
    """The stored probabilities are those of mixtures; the policy itself is still nearly uniform."""
    shown = np.asarray(diverse[0].evaluation.memory.perturbed.slots.behaviour.pathwise["fingerprint"])
    assert shown.shape == (10, 2, 4)
    np.testing.assert_allclose(shown.sum(axis=-1), 1.0, rtol=1e-5)
    away = np.abs(shown - 0.25).max(axis=(1, 2))
    assert away.max() > 0.2
    assert away.min() < 0.01
    assert all(int(told["fault"]) == 0 for told in diverse[1])


@pytest.mark.slow
def test_what_is_learnt_is_what_policies_show_at_the_present_probes(diverse, fixed):
    """The memory's own numbers are from when the policies were met; files, intervals and ranges have those of now."""
    state = diverse[0].evaluation
    learnt, probes = fixed.learnt(state), state.evaluator.probed
    assert np.abs(probes - STARTS).max() > 2e-3
    slots = state.memory.perturbed.slots
    for at, shown in zip([4, 9], learnt.knowledge.held_out.behaviour.pathwise["fingerprint"], strict=True):
        policy = jax.tree.map(lambda x: x[at], slots.policy)  # noqa: B023
        np.testing.assert_allclose(shown, jax.nn.softmax(policy(probes).logits), rtol=1e-5)
    newest = jax.tree.map(lambda x: x[7 % 2], state.memory.slots.policy)
    shown = np.asarray(jax.nn.softmax(newest(probes).logits))
    np.testing.assert_allclose(learnt.remembered.pathwise["fingerprint"][7 % 2], shown, rtol=1e-5)
    for bound, sign in ((learnt.lowest, 1), (learnt.highest, -1)):
        assert (sign * (shown - bound.pathwise["fingerprint"]) > -1e-6).all()


@pytest.mark.slow
def test_the_first_probes_are_the_start_states(fixed):
    state = fixed.evaluability.evaluator.init(jax.random.PRNGKey(0))
    np.testing.assert_array_equal(state.probed, STARTS)
    assert learner().evaluability.evaluator.init(jax.random.PRNGKey(0)).probes is None


def test_a_checkpoint_holds_policies_and_probes(diverse, fixed, tmp_path):
    """Continued from a file, every bit is the same."""
    again = trained(fixed, kept=tmp_path)
    for one, other in zip(*map(jax.tree.leaves, (diverse, again)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_families_of_worlds_have_perturbed_policies_too():
    family = learner(**DIVERSE, context=("slip=0:0.5",), **{"beta": 0.1, "evaluator.transitions": 5})
    state, metrics = trained(family, 4)
    assert np.isfinite(np.asarray(state.evaluation.memory.perturbed.slots.target)).all()
    assert np.asarray(state.evaluation.memory.earlier.slots.target).any(axis=1).sum() == 4 * family.config.groups
    assert int(metrics[-1]["fault"]) == 0


def test_start_states_come_first_and_ended_episodes_are_left_out():
    alive = jnp.asarray([[True, True], [True, True], [False, True], [False, True]])
    places = np.asarray(kept_states(alive, 3, 6))
    assert places[:3].tolist() == [0, 1, 0]
    assert places[3:].tolist() == [0, 1, 2, 3, 5, 7]
    assert np.asarray(kept_states(alive, 2, 0)).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluator.memory": "wide"}, "evaluator.memory: 'wide' is not allowed; must be recent or diverse"),
        ({"evaluator.reservoir": 0}, "evaluator.reservoir: 0 is not allowed"),
        ({"evaluator.perturbed": -1}, "evaluator.perturbed: -1 is not allowed"),
        ({"evaluator.recent_share": 0.0}, "evaluator.recent-share: 0.0 is not allowed"),
        (
            DIVERSE | {"evaluator.lower_quantile": 0.1, "context": ("slip=0:0.5",)},
            "evaluator.lower-quantile: 0.1 does not go with evaluator.memory diverse",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError) as error:
        learner(**changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
