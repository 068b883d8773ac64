"""Perturbed policies in worlds on the host: known returns, a replay in plain Gymnasium, resuming, families and intervals."""

import json
from functools import partial
from typing import ClassVar

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.agents.perturbation import perturbed_action
from evarl.assessment import Assessment
from evarl.cli.main import call
from evarl.errors import WorldError
from evarl.learning import make_learner
from evarl.learning.perturbed import draw_policies
from evarl.worlds import make_world

SHIFT = "gymnasium/EvarlTestShift-v0"
TINY = {
    "world": SHIFT,
    "context": ("wage=0.5:2",),
    "context_updates": 1,
    "seeds": 1,
    "environments": 2,
    "steps": 8,
    "horizon": 8,
    "discount": 0.9,
    "updates": 6,
    "rollouts_per_start": 1,
    "agent.hidden_sizes": [4],
    "assessment.start_states": "0 1 2",
    "assessment.horizon": 3,
    "evaluator_mode": "colearned",
    "evaluator.memory": "diverse",
    "evaluator.network.width": 4,
    "evaluator.network.layers": 1,
    "evaluator.warmup": 1,
    "evaluator.initial_steps": 2,
    "evaluator.final_steps": 0,
    "evaluator.policies": 2,
    "evaluator.transitions": 5,
    "evaluator.reservoir": 150,
    "evaluator.diversify_every": 1,
    "evaluator.perturbed": 25,
    "evaluator.perturbed_environments": 3,
}


class Shift(gymnasium.Env):
    """Pays `wage` for each of the 2 to 6 hours of a shift, which the reset seed says, and shows how many are left."""

    observation_space = gymnasium.spaces.Box(0.0, 8.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    wage = 1.0
    steps_before_failure: ClassVar[list[int]] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 7))
        return np.array([self.left], np.float32), {}

    def step(self, action):
        if self.steps_before_failure:
            self.steps_before_failure[0] -= 1
            if self.steps_before_failure[0] < 0:
                raise RuntimeError("the factory is closed")
        assert self.left > 0
        self.left -= 1
        return np.array([self.left], np.float32), self.wage, self.left == 0, False, {}


def hours(seed: int) -> int:
    """How long the shift with a reset seed is."""
    return int(Shift().reset(seed=seed)[0][0])


@pytest.fixture(scope="module", autouse=True)
def shift():
    identifier = SHIFT.removeprefix("gymnasium/")
    gymnasium.register(identifier, Shift, max_episode_steps=8, disable_env_checker=True)
    yield
    del gymnasium.registry[identifier]


def configured(**changes):
    return evarl.with_settings(evarl.preset("navigation"), TINY | changes).resolved()


def learner(**changes):
    config = configured(**changes)
    world = make_world(config.world, config.horizon, config.discount, config.context)
    return make_learner(config, Assessment(world, range(3), 3))


def gathered(learner, seed=0):
    """A fresh state, and what is gathered for the first update."""
    state = jax.jit(learner.init)(jax.random.PRNGKey(seed))
    worlds = learner.simulator.begin(learner.batch, state.key, seed, 0)
    return state, learner.gather(state, worlds, 0)[1]


@pytest.mark.slow
def test_returns_of_whole_episodes_are_those_that_the_world_pays(first):
    """The return with n hours left is wage · (1 − γⁿ) / (1 − γ); the assessment pays wage · min(3, n)."""
    records, steps = first[2].perturbed
    left = np.asarray(records.observation)[..., 0]
    assert left.shape == records.target.shape == (25, 64)
    assessed = np.minimum(3, [hours(seed) for seed in range(3)])
    wages = np.asarray(records.behaviour.rolled_out) / assessed[None]
    np.testing.assert_allclose(wages, np.broadcast_to(wages[:, :1], wages.shape), rtol=1e-6)
    assert len(np.unique(wages[:, 0].round(5))) == 25, "each policy has a context of its own"
    assert ((wages >= 0.5) & (wages <= 2)).all()
    np.testing.assert_allclose(records.target, wages[:, :1] * (1 - 0.9**left) / (1 - 0.9), rtol=1e-5)
    starts = left[:, :48].reshape(25, -1, 3)
    np.testing.assert_array_equal(starts, np.broadcast_to(starts[:, :1], starts.shape))
    assert np.unique(starts).tolist() == [2, 3, 4, 5, 6]
    assert np.unique(left[:, 48:]).tolist() == [1, 2, 3, 4, 5, 6], "the last step of an episode, and none after it"
    assert int(steps) == starts[:, 0].sum() + 25 * assessed.sum()


def replayed(world, act, seeds, horizon, keys):
    """Observations, rewards of one policy in plain environments, one for each reset seed; NaN after the end."""
    environments = [gymnasium.make(world) for _ in seeds]
    observation = np.stack([one.reset(seed=int(seed))[0] for one, seed in zip(environments, seeds, strict=True)])
    shown, rewards = np.full((horizon, *observation.shape), np.nan), np.full((horizon, len(seeds)), np.nan)
    alive, last = np.ones(len(seeds), bool), None
    for t, key in enumerate(jax.random.split(keys, horizon)):
        last = jax.device_get(act(key, observation, last, None if t == 0 else np.bool_(False)))
        for i in np.flatnonzero(alive):
            shown[t, i] = observation[i]
            observation[i], rewards[t, i], terminated, _, _ = environments[i].step(int(last.taken[i]))
            alive[i] = not terminated
    return shown, rewards


@pytest.mark.slow
def test_records_agree_with_a_replay_in_plain_gymnasium():
    trained = learner(
        world="gymnasium/CartPole-v1", horizon=40, context=(), context_updates=None, **{"evaluator.perturbed": 5}
    )
    state, experience = gathered(trained, seed=3)
    agent, records = trained.agent, experience.perturbed.records
    drawn = draw_policies(agent, state.agent.policy, (), 5, experience.keys.perturb)
    steps, program = 0, jax.jit(partial(perturbed_action, agent))
    policies = jax.device_get((drawn.policies.parameters, drawn.policies.how))
    for p in range(5):
        act = partial(program, *jax.tree.map(lambda leaf: leaf[p], policies))  # noqa: B023
        reset_key, play_key = jax.random.split(drawn.play_keys[p])
        seeds = jax.random.randint(reset_key, (3,), 0, 2**31 - 1)
        shown, rewards = replayed("CartPole-v1", act, seeds, 40, play_key)
        _, assessed = replayed("CartPole-v1", act, range(3), 3, drawn.assess_keys[p])
        np.testing.assert_allclose(records.behaviour.rolled_out[p], np.nansum(assessed, axis=0))
        to_go = np.zeros((41, 3))
        for t in reversed(range(40)):
            to_go[t] = np.nan_to_num(rewards[t]) + 0.9 * to_go[t + 1]
        np.testing.assert_allclose(records.observation[p, :3], shown[0], rtol=1e-6)
        np.testing.assert_allclose(records.target[p, :3], to_go[0], rtol=1e-5)
        visited = {
            row.astype(np.float32).tobytes(): t for row, t in zip(shown.reshape(-1, 4), to_go[:-1].ravel(), strict=True)
        }
        for row, target in zip(np.asarray(records.observation[p, 48:]), records.target[p, 48:], strict=True):
            assert visited[row.tobytes()] == pytest.approx(float(target), rel=1e-5)
        steps += np.isfinite(rewards).sum() + np.isfinite(assessed).sum()
    assert int(experience.perturbed.steps) == steps
    assert len(np.unique(np.asarray(drawn.policies.how.noise))) > 1


@pytest.mark.slow
def test_what_perturbed_policies_do_is_a_function_of_the_state_that_is_saved(first):
    """Episodes of training begin anew when a run is resumed; those of perturbed policies do so in every update."""
    trained, state, experience = first
    resumed = trained.simulator.begin(trained.batch, state.key, 8, 3)
    again = trained.gather(state, resumed, 3)[1]
    jax.tree.map(np.testing.assert_array_equal, experience.perturbed, again.perturbed)
    assert (experience.trajectory.observation != again.trajectory.observation).any()


@pytest.fixture(scope="module")
def first():
    """A learner, its fresh state, and what is gathered for the first update."""
    made = learner()
    return made, *gathered(made)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run over contexts that take new values in every update, with 30 held-out policies."""
    return evarl.train(configured(), out=tmp_path_factory.mktemp("host") / "whole", quiet=True)


def test_one_program_learns_from_all_updates(first):
    """Another one would be compiled if an update gave back a state of other types than it was given."""
    trained, _, experience = first
    state = jax.eval_shape(trained.init, jax.random.PRNGKey(0))
    following, _ = jax.eval_shape(trained.update, state, jnp.int32(0), experience)
    kinds = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), tree)  # noqa: E731
    assert kinds(following) == kinds(state)


@pytest.mark.slow
def test_a_run_over_contexts_that_is_resumed_is_the_same_run(run, tmp_path, monkeypatch):
    """With new contexts in every update all episodes begin anew then, so that resuming changes nothing."""
    monkeypatch.setattr(Shift, "steps_before_failure", [int(run.metrics["perturbed_steps"].to_numpy()[:3].sum())])
    with pytest.raises(WorldError, match=r"the factory is closed.*; the run is kept up to update \d"):
        evarl.train(run.config, out=tmp_path / "run", quiet=True)
    failed = evarl.Run.load(tmp_path / "run").metrics.num_rows
    assert 0 < failed < 6
    monkeypatch.setattr(Shift, "steps_before_failure", [])
    resumed = evarl.train(run.config, out=tmp_path / "run", quiet=True, resume=True)
    for name in set(run.metrics.column_names) - {"seconds", "time"}:
        np.testing.assert_array_equal(resumed.metrics[name].to_numpy(), run.metrics[name].to_numpy(), err_msg=name)
    jax.tree.map(np.testing.assert_array_equal, resumed.evaluator_state(0), run.evaluator_state(0))


@pytest.mark.slow
def test_assess_gives_an_interval(run, capsys):
    assert call(["assess", str(run.path), "--json", "--context", "wage=1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["interval"]["low"] < found["predicted"] < found["interval"]["high"]
    assert (found["interval"]["policies"], found["no_interval"]) == (30, None)
