"""Speed, as far as it can be tested: what the compiled update does, and that no saving changed what it computes."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl import preset
from evarl.agents.a2c import A2C
from evarl.agents.actor_critic import ActorCritic
from evarl.agents.distributions import Categorical, world_action
from evarl.agents.trajectory import Trajectory
from evarl.assessment.assessment import Assessment
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from evarl.simulation.compiled import CompiledSimulator, WorldStates
from evarl.simulation.episodes import final_slots, record_final
from evarl.worlds.registry import make_world
from evarl.worlds.world import select

STORED = Path(__file__).parent / "compiled_cost.json"
"""What the compiled updates cost when they were last looked at. After a change that is meant, put the new figures there."""

TOLERANCE = 0.05


@pytest.mark.parametrize(
    ("name", "world"),
    [("navigation", "navigation"), pytest.param("minatar", "gymnax/SpaceInvaders-MinAtar", marks=pytest.mark.slow)],
)
def test_the_compiled_update_costs_what_it_did(name, world):
    """Seconds on a shared machine prove nothing; the compiler's count of operations, bytes and instructions does.

    The program is that of `evarl train --beta`, at the paper's settings. More is a regression. Less is a reason to be
    glad and to store the new figure, so that it stays.
    """
    found, stored = CompiledEngine(aware_learner(name, world), 1).cost(), json.loads(STORED.read_text())[name]
    assert found.keys() == stored.keys()
    for what, figure in found.items():
        ratio = figure / stored[what]
        assert abs(ratio - 1) < TOLERANCE, f"{name}: {what} {ratio:.3f} times what is stored; now {figure:.6g}"


def aware_learner(name, world):
    """Evaluation-aware training at the paper's settings, with start states that need no base policy."""
    config = dataclasses.replace(preset(name), world=world, beta=0.01).resolved()
    world = make_world(config.world, config.horizon)
    starts = jax.vmap(world.initial)(jax.random.split(jax.random.PRNGKey(0), config.assessment.scenarios))
    return make_learner(config, Assessment(world, starts, config.assessment.horizon))


COMPILED = """
import sys, time
from evarl import preset
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner
from tests.learning.test_speed import aware_learner

def seconds(learner):
    began = time.process_time()
    CompiledEngine(learner, 1)
    return time.process_time() - began

learners = make_learner(preset("navigation").resolved()), aware_learner("navigation", "navigation")
CompiledEngine(learners[0], 2)  # imports and the first start of the compiler
print(*map(seconds, learners))
"""


@pytest.mark.slow
def test_an_evaluation_aware_update_compiles_in_less_than_four_times_the_time_of_an_ordinary_one():
    """A ratio of processor times in one process without a cache; it was 2.9 when this was written."""
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-c", COMPILED]
    done = subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    plain, aware = map(float, done.stdout.split())
    assert aware < 4 * plain, f"{aware:.1f} s and {plain:.1f} s"


def plain_collect(simulator, batch, act, states, key, index=0, noise=None):
    """What `CompiledSimulator.collect` computes, written without any saving: keys drawn step by step, a reset at each."""
    world, steps, environments = simulator.world, batch.steps, batch.environments
    step_key, reset_key = jax.random.split(key)
    group = jnp.arange(environments) // batch.rollouts_per_start
    group_keys = jax.vmap(jax.random.fold_in, (None, 0))(reset_key, group)
    final = jnp.zeros((final_slots(steps, world.horizon), *states.observation.shape), states.observation.dtype)
    zeros = jnp.zeros(environments, jnp.int32)

    def one_step(carry, key):
        states, final, truncations, resets = carry
        act_key, step_key = jax.random.split(key)
        action, log_prob, *_ = act(noise(act_key), states.observation)
        keys = jax.random.split(step_key, environments)
        step = jax.vmap(world.step)(keys, states.state, world_action(world.action_space, action))
        done = step.terminated | step.truncated
        reset = jax.vmap(world.reset)(jax.vmap(jax.random.fold_in)(group_keys, resets))
        onward = WorldStates(step.state, step.observation, jnp.full_like(resets, -1))
        following = jax.vmap(select)(done, WorldStates(*reset, resets + 1), onward)
        final = record_final(final, truncations, step.truncated, step.observation)
        kept = (states.observation, action, log_prob, step.reward, step.terminated, step.truncated, states.label)
        counted = truncations + step.truncated.astype(jnp.int32), resets + done.astype(jnp.int32)
        return (following, final, *counted), kept

    (states, final, _, _), kept = jax.lax.scan(
        one_step, (states, final, zeros, zeros), jax.random.split(step_key, steps)
    )
    label = jnp.where(states.label >= 0, states.label + steps, states.label)
    return states.replace(label=label), Trajectory(*kept, final, states.observation)


def plainly(monkeypatch):
    """Replace every place where speed was bought by the obvious code."""

    def gathered(self, action):
        return jnp.take_along_axis(jax.nn.log_softmax(self.logits), action[..., None], axis=-1)[..., 0]

    def step_by_step(apply):
        return lambda self, parameters, x, product=None: (
            jax.vmap(lambda row: apply(self, parameters, row))(x) if x.ndim == 3 else apply(self, parameters, x)
        )

    def converted(observation, axes):
        return observation.reshape(*observation.shape[: observation.ndim - axes], -1).astype(jnp.float32)

    monkeypatch.setattr(CompiledSimulator, "collect", plain_collect)
    monkeypatch.setattr(Categorical, "log_prob", gathered)
    monkeypatch.setattr(A2C, "explore", ActorCritic.explore)
    monkeypatch.setattr(ActorCritic, "apply_actor", step_by_step(ActorCritic.apply_actor))
    monkeypatch.setattr(ActorCritic, "apply_critic", step_by_step(ActorCritic.apply_critic))
    monkeypatch.setattr("evarl.agents.actor_critic.flat_features", converted)


def small(name, world):
    config = dataclasses.replace(preset(name), world=world, environments=8, steps=32, horizon=20, rollouts_per_start=2)
    learner = make_learner(config)
    return learner, jax.jit(learner.init)(jax.random.PRNGKey(0))


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("navigation", "navigation"),
        pytest.param("minatar", "gymnax/SpaceInvaders-MinAtar", marks=pytest.mark.slow),
    ],
)
def test_savings_change_nothing_but_the_order_of_sums(name, world):
    """Each of 100 updates is also made by a program without any of them, from the state before it.

    Where gradients are small, Adam magnifies their last bits, but not beyond a small part of its step size (5e-4 and 5e-3).
    A last bit can also turn an action that is drawn, about one in a million; then the batches differ.
    """
    learner, state = small(name, world)

    def twice(state, index):
        ours, metrics = learner.update(state, index)
        with pytest.MonkeyPatch.context() as patch:
            plainly(patch)
            plain, plain_metrics = learner.update(state, index)
        gaps = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), ours.agent.policy, plain.agent.policy)
        same = (ours.worlds.observation == plain.worlds.observation).all()
        return ours, (jnp.stack(jax.tree.leaves(gaps)).max(), same & (metrics["episodes"] == plain_metrics["episodes"]))

    gaps, same = jax.jit(lambda state: jax.lax.scan(twice, state, jnp.arange(100)))(state)[1]
    assert same.mean() > 0.95
    assert 0 <= gaps[same].max() < 1e-6


SPREAD = """
import dataclasses, sys
import jax, numpy as np
from evarl import preset
from evarl.learning.engines import CompiledEngine
from evarl.learning.learner import make_learner

config = dataclasses.replace(preset("navigation"), environments=4, steps=20)
engine = CompiledEngine(make_learner(config), 4)
state, metrics = engine.advance(engine.init([0, 1, 2, 3]), 0, 5)
assert {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(state)} == {len(jax.devices())}
np.savez(sys.argv[1], *jax.tree.leaves(jax.device_get(state)), **metrics)
"""


@pytest.mark.slow  # `tests/studies/test_jobs.py` compares a whole run on two devices with one on a single device
def test_seeds_on_two_devices_get_the_numbers_of_one(tmp_path, monkeypatch):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"
    environment = os.environ | {"XLA_FLAGS": flags}
    subprocess.run([sys.executable, "-c", SPREAD, tmp_path / "two.npz"], env=environment, check=True)
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "one.npz")])
    exec(compile(SPREAD, "spread", "exec"), {})  # here there is one device
    one, two = np.load(tmp_path / "one.npz"), np.load(tmp_path / "two.npz")
    assert one.files == two.files
    for name in one.files:
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=1e-5, err_msg=name)
