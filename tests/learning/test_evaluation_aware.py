"""Evaluation-aware training as a whole: what it leaves alone, what survives interruptions, and what it refuses."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl import AgentConfig, PPOConfig, TrainConfig
from evarl.assessment import Assessment, given_states
from evarl.assessment.configuration import AssessmentConfig
from evarl.cli.main import call
from evarl.errors import FileError, InputError
from evarl.evaluators.configuration import EvaluatorConfig, NetworkConfig
from evarl.learning.evaluability import fit, gather_evidence, remember, weigh_policy
from evarl.learning.learner import make_learner
from evarl.worlds.registry import make_world
from tests.evaluation.tiny import train_once
from tests.runs.test_resume import assert_kills_change_nothing
from tests.runs.test_runs import RESULTS

EVALUATOR = EvaluatorConfig(
    network=NetworkConfig(width=8, heads=2, layers=1), batch_size=16, initial_steps=10, warmup=2, policies=3
)
TINY = TrainConfig(
    environments=8,
    steps=16,
    updates=6,
    seeds=2,
    rollouts_per_start=2,
    agent=AgentConfig(hidden_sizes=(8,), ppo=PPOConfig(epochs=2, minibatches=2)),
    assessment=AssessmentConfig(scenarios=2, horizon=4, base_updates=2),
    evaluator=EVALUATOR,
)
FIELD = dataclasses.replace(TINY.assessment, start_states="0.25,0.25 0.75,0.75")
WORLDS = {
    "navigation": dataclasses.replace(TINY, assessment=FIELD),
    "space invaders": dataclasses.replace(TINY, world="gymnax/SpaceInvaders-MinAtar", horizon=50),
}


def leaves(run, seed):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.policy_state(seed))]


def same_policies(one, other):
    pairs = [pair for seed in one.seeds for pair in zip(leaves(one, seed), leaves(other, seed), strict=True)]
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.parametrize(
    ("world", "algorithm"),
    [
        ("navigation", "a2c"),
        pytest.param("navigation", "ppo", marks=pytest.mark.slow),
        pytest.param("space invaders", "a2c", marks=pytest.mark.slow),
    ],
)
def test_a_passive_evaluator_changes_no_bit_of_the_policy(world, algorithm, tmp_path):
    """β = 0 with an evaluator learnt beside the policy is ordinary training."""
    config = WORLDS[world]
    config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, algorithm=algorithm))
    plain = evarl.train(config, evaluator_mode="none", out=tmp_path / "plain", quiet=True)
    passive = train_once(dataclasses.replace(config, evaluator_mode="colearned"), tmp_path / "passive")
    assert same_policies(plain, passive)
    assert "evaluation_error" in passive.metrics.column_names
    assert "evaluation_error" not in plain.metrics.column_names


@functools.cache
def weights_of(gradient, frozen=False):
    """A function from the number of an update to the weights of the policy gradient, from one state and batch."""
    config = dataclasses.replace(
        WORLDS["navigation"],
        beta=0.3,
        beta_variance=0.2,
        gradient=gradient,
        queries="start",
        ramp=4,
        horizon=6,
        max_shift=1e6,
    ).resolved()
    world = make_world("navigation/open-field")
    assessment = Assessment(world, given_states(world, [(0.25, 0.25), (0.75, 0.75)]), 4)
    learner = make_learner(config, assessment)
    if frozen:
        knows_nothing = learner.learnt(jax.jit(learner.init)(jax.random.PRNGKey(2)).evaluation)
        fixed = dataclasses.replace(config.evaluator, file="given below")
        config = dataclasses.replace(config, evaluator_mode="frozen", evaluator=fixed)
        learner = make_learner(config, assessment, knows_nothing)
    state = jax.jit(learner.init)(jax.random.PRNGKey(0))

    def act(key, observation):
        return learner.agent.act(state.agent.policy, key, observation)

    @jax.jit
    def weights(index):
        key = jax.random.PRNGKey(1)
        _, trajectory = learner.simulator.collect(learner.batch, act, state.worlds, key)
        rollout, fixed = learner.assessment.take(act, key, 1), learner.evaluability
        evidence = gather_evidence(fixed, state.evaluation, learner.agent, state.agent.policy, trajectory, rollout)
        evaluation = remember(fixed, state.evaluation, evidence, index, key)
        return weigh_policy(fixed, fit(fixed, evaluation, index, key)[0], evidence, index)[1]

    return lambda update: weights(jnp.int32(update))


@pytest.mark.parametrize("gradient", ["paired", pytest.param("score", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_nothing_is_asked_of_the_policy_during_the_warm_up(gradient):
    for update in (0, 1):
        asked = weights_of(gradient)(update)
        assert (np.asarray(asked.weight) == 1.0).all()
        assert not np.asarray(asked.bonus).any()
        assert not np.asarray(asked.advantage).any()


@pytest.mark.parametrize("gradient", ["paired", pytest.param("score", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_the_ramp_is_one_ramp(gradient):
    """Half-way up the ramp, everything that β multiplies is half of what it is at the top, the bonus too."""
    asked = weights_of(gradient, frozen=True)  # so that updates differ in nothing else; there is no warm-up then
    half, full = asked(1), asked(3)
    assert np.abs(full.bonus).max() > 1e-3
    np.testing.assert_allclose(half.weight - 1.0, 0.5 * (full.weight - 1.0), atol=1e-5)
    np.testing.assert_allclose(half.bonus, 0.5 * full.bonus, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(half.advantage, 0.5 * full.advantage, rtol=1e-4, atol=1e-6)


KILLED = ["--updates", "250", "--beta", "0.05", "--rollouts-per-start", "2", "--gradient", "paired"]
KILLED += ["--evaluator.network.width", "8", "--evaluator.network.layers", "1", "--evaluator.batch-size", "16"]
KILLED += ["--evaluator.warmup", "20", "--evaluator.initial-steps", "20", "--evaluator.policies", "4"]
KILLED += ["--queries", "start", "--horizon", "12"]
EVALUATORS = ("evaluator/seed-0.safetensors", "evaluator/seed-1.safetensors", "assessment.safetensors")


@pytest.mark.slow
def test_killed_and_resumed_is_bit_identical(tmp_path):
    """Once; `make kill-test` kills a hundred times."""
    assert_kills_change_nothing(tmp_path, 1, *KILLED, files=(*RESULTS, *EVALUATORS))


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A run whose evaluator is there to be frozen."""
    out = tmp_path_factory.mktemp("learnt") / "run"
    return train_once(dataclasses.replace(WORLDS["navigation"], evaluator_mode="colearned"), out)


def frozen(learnt, **changes):
    file = str(learnt.path / "evaluator" / "seed-0.safetensors")
    config = dataclasses.replace(WORLDS["navigation"], beta=0.5, evaluator_mode="frozen")
    config = dataclasses.replace(config, **changes)
    return dataclasses.replace(config, evaluator=dataclasses.replace(config.evaluator, file=file))


@pytest.mark.slow
def test_a_frozen_evaluator_stays_as_it_was(learnt, tmp_path):
    run = evarl.train(frozen(learnt), out=tmp_path / "run", quiet=True)
    for one, other in zip(
        jax.tree.leaves(learnt.evaluator_state().state), jax.tree.leaves(run.evaluator_state().state), strict=True
    ):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert "evaluator_loss" not in run.metrics.column_names
    assert not same_policies(learnt, run), "β = 0.5 is not ordinary training"


STATES = dataclasses.replace(FIELD, start_states="0.25,0.25 0.75,0.75 0.5,0.5")
MOVED = dataclasses.replace(FIELD, start_states="0.25,0.25 0.75,0.7")
CHAIN = dataclasses.replace(FIELD, start_states="0 1")
WIDER = dataclasses.replace(EVALUATOR, network=dataclasses.replace(EVALUATOR.network, width=16))
OTHER = dataclasses.replace(EVALUATOR, network=dataclasses.replace(EVALUATOR.network, kind="pairs"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"world": "tabular/chain", "assessment": CHAIN}, "was trained in navigation, not in tabular/chain"),
        ({"assessment": STATES}, "is for an assessment of 2 scenarios, this one has 3"),
        ({"assessment": MOVED}, "is for other start states"),
        ({"evaluator": WIDER}, "has network.width 8, the configuration 16"),
        ({"evaluator": OTHER}, "has network.kind factored, the configuration pairs"),
    ],
    ids=["world", "k", "states", "width", "kind"],
)
def test_a_frozen_evaluator_of_another_kind_is_refused(changes, message, learnt, tmp_path):
    with pytest.raises(InputError) as error:
        evarl.train(frozen(learnt, **changes), out=tmp_path / "run", quiet=True)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, b"", b"not a safetensors file"])
def test_a_file_that_is_no_evaluator_is_refused(content, learnt, tmp_path):
    path = tmp_path / "evaluator.safetensors"
    if content is not None:
        path.write_bytes(content)
    config = frozen(learnt)
    config = dataclasses.replace(config, evaluator=dataclasses.replace(config.evaluator, file=str(path)))
    with pytest.raises(FileError, match=r"evaluator\.safetensors"):
        evarl.train(config, out=tmp_path / "run", quiet=True)
    policy = str(learnt.path / "policy" / "seed-0.safetensors")
    config = dataclasses.replace(config, evaluator=dataclasses.replace(config.evaluator, file=policy))
    with pytest.raises(FileError, match="does not hold an evaluator"):
        evarl.train(config, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


AWARE = ["navigation", "--beta", "0.1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["minatar", "--beta", "0.1", "--assessment.scenarios", "0"], "assessment.scenarios: 0 is not allowed"),
        ([*AWARE, "--assessment.horizon", "0"], "assessment.horizon: 0 is not allowed; must be at least 1"),
        ([*AWARE, "--assessment.replicates", "0"], "assessment.replicates: 0 is not allowed; must be at least 1"),
        (["navigation", "--beta", "-1"], "beta: -1.0 is not allowed; must be a number of at least 0"),
        (["navigation", "--beta", "nan"], "beta: nan is not allowed; must be a number of at least 0"),
        ([*AWARE, "--max-shift", "0"], "max-shift: 0.0 is not allowed; must be a number above 0"),
        (
            [*AWARE, "--assessment.start-states", "0.1"],
            "assessment.start-states: [(0.1,)] is not allowed; a state of navigation has 2 numbers",
        ),
        (
            [*AWARE, "--assessment.start-states", "0.2,0.2 5,5"],
            "assessment.start-states: (5.0, 5.0) is outside of navigation, which shows Box(2, 0.0 to 1.0, float32)",
        ),
        (
            [*AWARE, "--world", "tabular/chain", "--assessment.start-states", "inf"],
            "assessment.start-states: [(inf,)] is not allowed; must be one whole number for each state",
        ),
        ([*AWARE, "--assessment.start-states", "a,b"], "assessment.start-states: 'a,b' is not a list like"),
        ([*AWARE, "--assessment.world", "tabular/chian"], "did you mean 'tabular/chain'?"),
        (
            [*AWARE, "--assessment.world", "tabular/chain", "--assessment.start-states", "0 1"],
            "assessment.world: tabular/chain takes Discrete(2), navigation Discrete(4) as action space",
        ),
        (
            [*AWARE, "--world", "tabular/chain", "--assessment.start-states", "0 2"],
            "assessment.start-states: [0, 2] is not allowed; tabular/chain has states 0 to 1",
        ),
        ([*AWARE, "--gradient", "paired", "--queries", "visited"], "queries: visited does not go with gradient paired"),
        ([*AWARE, "--gradient", "score", "--queries", "visited"], "queries: visited does not go with gradient score"),
        (
            [*AWARE, "--gradient", "paired", "--queries", "start", "--rollouts-per-start", "1"],
            "rollouts-per-start: 1 of 8 environments cannot serve gradient paired; must be 2 or more",
        ),
        (
            ["navigation", "--beta-variance", "0.1", "--rollouts-per-start", "1"],
            "rollouts-per-start: 1 of 8 environments cannot serve beta-variance; must be 2 or more",
        ),
        (["navigation", "--rollouts-per-start", "0"], "rollouts-per-start: 0 is not allowed; must be at least 1"),
        (["navigation", "--evaluator-mode", "frozen"], "evaluator.file: None does not go with evaluator-mode frozen"),
        ([*AWARE, "--evaluator-mode", "none"], "evaluator-mode: none does not go with beta 0.1"),
        ([*AWARE, "--evaluator.network.heads", "3"], "evaluator.network.heads: 3 does not divide the width 32"),
        ([*AWARE, "--evaluator.batch-size", "0"], "evaluator.batch-size: 0 is not allowed; must be at least 1"),
        (
            ["navigation", "--evaluator-mode", "frozen", "--evaluator.file", "nothing.safetensors"],
            "nothing.safetensors: no such file",
        ),
        (
            [*AWARE, "--assessment.start-states", "", "--assessment.file", "nothing.safetensors"],
            "nothing.safetensors: no such file",
        ),
        # worlds on the host and worlds in JAX cannot assess each other's policies
        (
            [*AWARE, "--assessment.world", "gymnasium/CartPole-v1", "--assessment.start-states", "1 2"],
            "assessment.world: ",
        ),
        (
            [
                *["navigation", "--world", "gymnasium/CartPole-v1", "--beta", "0.1"],
                *["--assessment.world", "gymnax/CartPole-v1", "--assessment.start-states", "1 2"],
            ],
            "assessment.",
        ),
        (
            [
                *["navigation", "--world", "gymnasium/CartPole-v1", "--beta", "0.1"],
                *["--assessment.world", "gymnasium/MountainCar-v0", "--assessment.start-states", "1 2"],
            ],
            "assessment.world: gymnasium/MountainCar-v0 shows float32[2], gymnasium/CartPole-v1 float32[4]",
        ),
        ([*AWARE, "--assessment.start-states", "nan,0.5"], "assessment.start-states: "),
        (["navigation", "--beta", "inf"], "beta: inf is not allowed"),
    ],
    ids=lambda value: " ".join(value)[:90] if isinstance(value, list) else "",
)
def test_bad_input_is_one_clear_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(["train", *arguments, "--updates", "2"]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert err.count("\n") == 1, err
    assert not list(tmp_path.iterdir()), "nothing is written"
