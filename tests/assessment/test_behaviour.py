"""The kinds of behaviour Ξ: what they hold, by hand; what they do not depend on; and runs with each of them."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl import sizes
from evarl.agents.distributions import Categorical, DiagonalGaussian
from evarl.assessment import Fingerprint, Rewards, Steps, Trajectory, observe
from evarl.assessment.behaviour import behaviour_kind, part_of
from evarl.assessment.configuration import AssessmentConfig
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.evaluators.configuration import EvaluatorConfig, NetworkConfig
from evarl.evaluators.evaluator import make_evaluator
from evarl.learning.weigh import behaviour_weights
from evarl.runs.limits import check_training
from evarl.runs.pretrain import pretrain
from evarl.simulation.rollouts import AssessmentRollout
from evarl.worlds.registry import make_world
from evarl.worlds.spaces import Box, Discrete
from tests.runs.test_runs import same_files

H, K, R = 3, 2, 2
ALIVE = np.array([[[1, 1], [1, 1]], [[1, 0], [1, 1]], [[0, 0], [1, 0]]], bool)


def rollout(observation, action):
    """H steps of K scenarios, R replicates each; some end early, and what comes after is rubbish."""
    reward = np.where(ALIVE, np.arange(1.0, 1 + H * K * R).reshape(H, K, R), 0.0).astype(np.float32)
    return AssessmentRollout(*map(jnp.asarray, (observation, action, np.zeros_like(reward), reward, ALIVE)))


def rows_by_hand(x):
    """Of numbers [h, k, R, n] of single steps: in row t those of the steps from t on, [h, k, R, h, n]."""
    found = np.zeros((H, K, R, H, x.shape[-1]), np.float32)
    for t in range(H):
        for step in range(t, H):
            found[t, :, :, step] = np.where(ALIVE[step][..., None], x[step], 0.0)
    return found


def test_rewards_are_those_of_every_step():
    given = rollout(np.zeros((H, K, R, 1), np.float32), np.zeros((H, K, R), np.int32))
    seen = observe(Rewards(), given, None, 0.5)
    np.testing.assert_array_equal(seen.to_go, rows_by_hand(np.asarray(given.reward)[..., None])[..., 0])
    np.testing.assert_array_equal(seen.behaviour.rolled_out, np.asarray(given.reward).mean(axis=2).T)
    assert seen.behaviour.pathwise is None


@pytest.mark.parametrize("dtype", [bool, np.float32])
@pytest.mark.parametrize("space", [Discrete(3), Box((2,))])
def test_a_trajectory_is_every_step_until_its_end(dtype, space):
    """Flags, chosen actions and `alive` are shares, which are not standardised; everything else is a number."""
    rng = np.random.default_rng(0)
    observation = (3 * rng.normal(size=(H, K, R, 2, 2))).astype(dtype)
    continuous = rng.normal(size=(H, K, R, 2)).astype(np.float32)
    action = rng.integers(0, 3, (H, K, R)).astype(np.int32) if isinstance(space, Discrete) else continuous
    given = rollout(observation, action)
    seen = observe(Trajectory().for_actions(space), given, None, 1.0)
    reward, alive, flat = np.asarray(given.reward)[..., None], ALIVE[..., None], observation.reshape(H, K, R, 4)
    numbers, shares = [reward], [alive]
    (shares if dtype is bool else numbers).append(flat)
    (shares if isinstance(space, Discrete) else numbers).append(
        np.eye(3)[action] if isinstance(space, Discrete) else action
    )
    wanted = Steps(*(rows_by_hand(np.concatenate(parts, axis=-1, dtype=np.float32)) for parts in (numbers, shares)))
    jax.tree.map(np.testing.assert_array_equal, seen.to_go, wanted)
    np.testing.assert_allclose(seen.behaviour.rolled_out.shares, wanted.shares[0].mean(axis=1), rtol=1e-6)


def fingerprint(logits, states):
    given = rollout(np.broadcast_to(states[None, :, None, None], (H, len(states), R, 1)), np.zeros((H, K, R)))
    return observe(Fingerprint(), given, lambda shown: Categorical(jnp.asarray(logits)[shown[..., 0]]), 1.0).behaviour


def test_fingerprints_of_equal_policies_are_equal():
    """A constant in all logits, and actions that are never taken at a start state, change nothing."""
    logits = np.random.default_rng(0).normal(size=(4, 3))
    states = np.array([1, 3])
    shown = fingerprint(logits, states)
    assert shown.rolled_out is None
    chosen = np.exp(logits[states])
    np.testing.assert_allclose(shown.pathwise, chosen / chosen.sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(fingerprint(logits + 7.0, states).pathwise, shown.pathwise, rtol=1e-5)
    np.testing.assert_array_equal(fingerprint(logits, states[::-1]).pathwise, shown.pathwise[::-1])
    elsewhere = logits + np.array([5.0, 0.0, -5.0, 0.0])[:, None] * np.arange(3)
    np.testing.assert_array_equal(fingerprint(elsewhere, states).pathwise, shown.pathwise)


@pytest.mark.parametrize("discrete", [True, False])
def test_the_gradient_through_a_fingerprint(discrete):
    """The cotangent, times ∇Ξ, is −β ∇ mean_s[(V − V̂(s | Ξ))²] by finite differences in float64; V is held fixed."""
    with jax.enable_x64(True):
        rng, states, beta = np.random.default_rng(1), np.array([0, 1]), 0.3
        theta, known = jnp.asarray(rng.normal(size=(2, 2, 3))), jnp.asarray(rng.normal(size=(4, 1)))
        observation = np.broadcast_to(states[None, :, None, None], (H, K, R, 1))
        given = rollout(observation, np.zeros((H, K, R)))
        numbers = 3 if discrete else 6
        a, b = (jnp.asarray(rng.normal(size=(4, K, numbers))) for _ in range(2))

        def policy(theta):
            mean, deviation = theta
            kind = Categorical(mean) if discrete else DiagonalGaussian(mean, deviation)
            return lambda shown: jax.tree.map(lambda x: x[shown[..., 0]], kind)

        def predict(behaviour):
            product = lambda x: jnp.einsum("skb,kb->s", x, behaviour.pathwise)[:, None]  # noqa: E731
            return product(a) + jnp.sin(product(b))

        seen = observe(Fingerprint(), given, policy(theta), 1.0)
        error = known - predict(seen.behaviour)
        u, slope = behaviour_weights(jnp.asarray(beta), error, jnp.ones_like(error, bool), seen, predict)
        assert u is None
        found = jax.grad(lambda theta: jnp.sum(slope * seen.pathwise(policy(theta))))(theta)
        loss = jax.jit(
            lambda theta: jnp.mean((known - predict(observe(Fingerprint(), given, policy(theta), 1.0).behaviour)) ** 2)
        )
        for at in np.ndindex(theta.shape):
            step = jnp.zeros_like(theta).at[at].set(1e-3)
            one, two = (float(loss(theta + n * step) - loss(theta - n * step)) for n in (1, 2))
            np.testing.assert_allclose(found[at], -beta * (8 * one - two) / 12e-3, rtol=0, atol=1e-8)
        assert np.abs(found[0]).max() > 1e-2
        assert np.any(found[1]) != discrete


@pytest.mark.slow
def test_an_evaluator_reads_steps_in_their_order():
    """Start states have no order, but steps have one."""
    shapes = Steps(jnp.zeros((K, H, 2)), jnp.zeros((K, H, 1)))
    evaluator = make_evaluator(EvaluatorConfig(network=NetworkConfig(width=8)), Box((1,)), jnp.ones((K, 1)), shapes)
    state = evaluator.init(jax.random.PRNGKey(0))
    rng = np.random.default_rng(0)
    shown = jax.tree.map(lambda x: jnp.asarray(rng.random(x.shape), jnp.float32), shapes)
    ask = lambda shown: np.asarray(evaluator.predict(state, shown, jnp.ones((1, 1))))  # noqa: E731
    np.testing.assert_allclose(ask(jax.tree.map(lambda x: x[::-1], shown)), ask(shown), rtol=1e-5)
    assert np.abs(ask(jax.tree.map(lambda x: x[:, ::-1], shown)) - ask(shown)).max() > 1e-3


@pytest.mark.parametrize(
    "name", ["returns", "rewards", "trajectory", "fingerprint", "returns+fingerprint", "rewards+returns"]
)
def test_a_part_of_a_combination_is_what_that_kind_alone_would_be(name):
    rng = np.random.default_rng(0)
    action = rng.integers(0, 3, (H, K, R)).astype(np.int32)
    given = rollout(rng.random((H, K, R, 2)).astype(np.float32), action)
    policy = lambda observation: Categorical(jnp.concatenate([observation, observation[:, :1]], axis=1))  # noqa: E731
    seen = {
        kind: observe(behaviour_kind(kind, Discrete(3)), given, policy, 0.5).behaviour
        for kind in (name, "trajectory+rewards+returns+fingerprint")
    }
    found = part_of(seen["trajectory+rewards+returns+fingerprint"], name)
    assert jax.tree.structure(found) == jax.tree.structure(seen[name])
    jax.tree.map(np.testing.assert_array_equal, found, seen[name])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("returns+fingerprnt", "unknown 'fingerprnt'; did you mean 'fingerprint'?"),
        ("rewards+returns+rewards", "'rewards\\+returns\\+rewards' names rewards twice; each kind is allowed once"),
        ("returns+", "unknown ''"),
    ],
)
def test_wrong_combinations_are_refused(text, message):
    with pytest.raises(InputError, match=f"^assessment.behaviour: {message}"):
        AssessmentConfig(behaviour=text).validate()


def test_a_name_with_a_plus_cannot_be_registered():
    with pytest.raises(InputError, match="behaviour: 'a\\+b' is not allowed as a name"):
        evarl.register_behaviour("a+b", Rewards)


def test_the_linear_evaluator_takes_returns_only():
    config = EvaluatorConfig(network=NetworkConfig("linear"))
    with pytest.raises(InputError, match="linear averages returns, but this kind of behaviour has 9 numbers"):
        make_evaluator(config, Box((1,)), jnp.ones((K, 1)), Steps(jnp.zeros((K, H, 2)), jnp.zeros((K, H, 1))))


def test_trajectories_that_no_machine_holds_are_refused(monkeypatch):
    """5 scenarios of 1000 steps on 10 × 10 × 4 flags: 1000² · 5 · 405 numbers of four bytes, and 10 policies."""
    monkeypatch.setattr(sizes, "free_memory", lambda: 4 * 2**30)
    settings = {"world": "gymnax/Breakout-MinAtar", "evaluator_mode": "colearned", "assessment.horizon": 1000}
    world = make_world("gymnax/Breakout-MinAtar")
    for behaviour, allowed in (("returns+rewards", True), ("trajectory", False)):
        config = evarl.with_settings(evarl.TrainConfig(), settings | {"assessment.behaviour": behaviour})
        if allowed:
            check_training(config, world)
        else:
            with pytest.raises(InputError, match=r"assessment\.behaviour: trajectory is not allowed; .* at least 7\.5"):
                check_training(config, world)


ALL = "returns+rewards+trajectory+fingerprint"
SMALL = {"environments": 4, "steps": 8, "updates": 4, "agent.hidden_sizes": (8,), "evaluator.network.width": 8}
SMALL |= {"evaluator.warmup": 1, "evaluator.initial_steps": 3, "evaluator.policies": 3, "beta": 0.05}
SMALL |= {"assessment.horizon": 3}
FAMILY = {"environments": 6, "contexts": 2, "ramp": 0, "evaluator__final_steps": 0}
MINATAR = {"assessment__base_updates": 1, "assessment__scenarios": 2}
LEARNT = {"assessment__probes": "learnt"}
HOST = {"assessment__scenarios": 2, "agent__algorithm": "ppo", "agent__ppo__minibatches": 2}


def trained(out, world, **changes):
    given = {name.replace("__", "."): value for name, value in changes.items()}
    base = evarl.preset(world) if world in ("navigation", "crossing") else evarl.TrainConfig(world=world)
    return evarl.train(evarl.with_settings(base, SMALL | given), out=out, quiet=True, checkpoint_seconds=1e-3)


def finite(run):
    """That the run can be read back, and that everything in it and all that is predicted from it is a number."""
    loaded = evarl.Run.load(run.path)
    for name in ("policy_loss", "evaluation_error", "assessment_weight_max"):
        assert np.isfinite(loaded.metrics[name].to_numpy()[2:]).all(), name
    found = evarl.assess(loaded, samples=4, interval=False)
    assert np.isfinite(found.predicted).all()
    return found


@pytest.mark.slow
def test_all_kinds_at_once(tmp_path, capsys):
    """Trained, resumed to the same bits, saved, assessed and evaluated."""
    settings = {"assessment__behaviour": ALL, "assessment__replicates": 2, "seeds": 2, "assessment__probes": "learnt"}
    whole = trained(tmp_path / "whole", "navigation", **settings)
    found = finite(whole)
    assert found.behaviour.shape == (4, 4 + 1 + 3 + 3 * (1 + 2 + 1 + 4)), (
        "four probabilities, return, rewards and tokens"
    )
    learnt = [whole.evaluator_state(seed).state.probed for seed in (0, 1)]
    assert np.abs(learnt[0] - learnt[1]).max() > 1e-3, "each seed has probes of its own"
    named = whole.evaluator_state(0).remembered.rolled_out
    np.testing.assert_allclose(named["rewards"].sum(axis=-1), named["returns"], rtol=1e-5)
    np.testing.assert_allclose(named["trajectory"].numbers[..., 0], named["rewards"], rtol=1e-6)
    names = {row.predictor for row in evarl.evaluate(whole, rollouts=2, states=2).rows}
    assert {"evaluator", "evaluator, Ξ zeroed", "evaluator, Ξ shuffled"} <= names
    results = [f"{kind}/seed-1.safetensors" for kind in ("policy", "evaluator")]
    part = shutil.copytree(whole.path, tmp_path / "part")
    for name in ("summary.json", *results, max((part / "checkpoints/seeds-0-1").iterdir()).relative_to(part)):
        (part / name).unlink()
    assert max((part / "checkpoints/seeds-0-1").iterdir()).name > "update-000000000.safetensors", "it is resumed midway"
    evarl.train(whole.config, out=part, resume=True, quiet=True)
    assert same_files(whole.path, part, [*results, "metrics.parquet"])
    assert call(["assess", str(whole.path)]) == 0
    told = capsys.readouterr()
    assert "32 numbers" in told.out
    assert len(told.err.splitlines()) <= 4, "at most one line for each scenario"


@pytest.mark.slow
def test_an_evaluator_with_learnt_probes_can_be_frozen(tmp_path):
    """Its probes stay where they are in another run; they are no probes for a run whose probes are the start states."""
    kind = {"assessment__behaviour": "returns+fingerprint"}
    file = pretrain(trained(tmp_path / "first", "navigation", **kind | LEARNT), policies=3, transitions=8, steps=40)
    frozen = {
        "evaluator__file": str(file),
        "assessment__file": str(file.with_name("pretrained-assessment.safetensors")),
    }
    frozen |= {"evaluator_mode": "frozen", "evaluator__final_steps": 0}
    run = trained(tmp_path / "second", "navigation", **kind | LEARNT | frozen)
    finite(run)
    probes = run.evaluator_state(0).state.probed
    np.testing.assert_array_equal(probes, evarl.Run.load(tmp_path / "first").evaluator_state(file=file).state.probed)
    assert np.abs(probes - run.evaluator_state(0).scenarios).max() > 1e-2
    with pytest.raises(InputError, match=r"evaluator.file: .* has probes learnt, the configuration start"):
        trained(tmp_path / "third", "navigation", **kind | frozen)


@pytest.mark.parametrize(
    ("kind", "world", "settings"),
    [
        ("fingerprint", "gymnasium/Pendulum-v1", HOST | LEARNT),
        pytest.param("fingerprint", "gymnasium/Pendulum-v1", HOST, marks=pytest.mark.slow),
        pytest.param("returns+fingerprint", "gymnax/Breakout-MinAtar", MINATAR | LEARNT, marks=pytest.mark.slow),
        pytest.param("returns+fingerprint", "crossing", FAMILY | LEARNT, marks=pytest.mark.slow),
        pytest.param("trajectory", "gymnax/Breakout-MinAtar", MINATAR, marks=pytest.mark.slow),
        pytest.param("rewards", "crossing", FAMILY, marks=pytest.mark.slow),
        pytest.param("fingerprint", "crossing", FAMILY, marks=pytest.mark.slow),
        pytest.param("trajectory", "gymnasium/Pendulum-v1", HOST, marks=pytest.mark.slow),
        pytest.param(ALL, "crossing", FAMILY | {"evaluator__network__kind": "pairs"}, marks=pytest.mark.slow),
        pytest.param("trajectory", "navigation", {"evaluator__network__kind": "listing"}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_kinds_in_worlds_of_all_sorts(tmp_path, kind, world, settings):
    """Flags and numbers, discrete and continuous actions, compiled and on the host, a single world and contexts."""
    run = trained(tmp_path / "run", world, assessment__behaviour=kind, **settings)
    found = finite(run)
    assert (found.lowest <= found.highest).all()
