"""Learnt probes: what policies show there, the gradient through it, and what is learnt that fixed probes cannot tell."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.agents.acting import ActingPolicy, no_policies
from evarl.agents.agent import make_agent
from evarl.agents.configuration import AgentConfig
from evarl.agents.distributions import Categorical, DiagonalGaussian
from evarl.agents.perturbation import draw_perturbations, no_perturbation, perturbed_distribution, with_noise
from evarl.assessment.behaviour import Behaviour, Fingerprint, at_probes, behaviour_kind, observe
from evarl.assessment.configuration import AssessmentConfig
from evarl.errors import InputError
from evarl.evaluators.configuration import EvaluatorConfig, NetworkConfig
from evarl.evaluators.evaluator import make_evaluator
from evarl.evaluators.memory import Memory, PolicyRecord
from evarl.evaluators.probes import shown_at
from evarl.learning.weigh import behaviour_weights
from evarl.simulation.rollouts import AssessmentRollout
from evarl.worlds.spaces import Box, Discrete

FINGERPRINT = partial(at_probes, Fingerprint())
K, CONTEXTS = 2, 2


def rollout(states):
    """Two steps from each of the states, in each context."""
    shown = np.broadcast_to(np.concatenate([states] * CONTEXTS)[None, :, None], (2, CONTEXTS * K, 1, states.shape[1]))
    zeros = np.zeros(shown.shape[:3], states.dtype)
    return AssessmentRollout(*map(jnp.asarray, (shown, zeros, zeros, zeros, zeros == 0)))


@pytest.mark.parametrize("discrete", [True, False])
def test_the_gradient_through_a_fingerprint_at_learnt_probes(discrete):
    """The cotangent, times ∇Ξ, is −β ∇ mean_s[(V − V̂(s | Ξ))²] by finite differences in float64; V and probes are held fixed."""
    with jax.enable_x64(True):
        rng, beta = np.random.default_rng(1), 0.3
        states, probes = rng.normal(size=(K, 2)), jnp.asarray(rng.normal(size=(K, 2)))
        theta, known = jnp.asarray(rng.normal(size=(2, 2, 3))), jnp.asarray(rng.normal(size=(4, 1)))
        a, b = (jnp.asarray(rng.normal(size=(4, CONTEXTS * K, 3 if discrete else 6))) for _ in range(2))
        kind = behaviour_kind("fingerprint", Discrete(3))

        def policy(theta):
            mean, deviation = theta
            act = lambda x: (jnp.tanh(x @ mean), jnp.sin(x @ deviation))  # noqa: E731
            return lambda x: Categorical(3.0 * act(x)[0]) if discrete else DiagonalGaussian(*act(x))

        def predict(behaviour):
            product = lambda x: jnp.einsum("skb,kb->s", x, behaviour.pathwise)[:, None]  # noqa: E731
            return product(a) + jnp.sin(product(b))

        def shown(theta, probes=probes):
            return observe(kind, rollout(states), policy(theta), 1.0, probes)

        seen = shown(theta)
        own = kind.probed(probes, policy(theta))
        np.testing.assert_array_equal(
            seen.behaviour.pathwise, jnp.concatenate([own] * CONTEXTS), "alike in all contexts"
        )
        assert not jax.grad(lambda probes: shown(theta, probes).behaviour.pathwise.sum())(probes).any(), "held fixed"
        error = known - predict(seen.behaviour)
        _, slope = behaviour_weights(jnp.asarray(beta), error, jnp.ones_like(error, bool), seen, predict)
        found = jax.grad(lambda theta: jnp.sum(slope * seen.pathwise(policy(theta))))(theta)
        loss = jax.jit(lambda theta: jnp.mean((known - predict(shown(theta).behaviour)) ** 2))
        for at in np.ndindex(theta.shape):
            step = jnp.zeros_like(theta).at[at].set(1e-3)
            one, two = (float(loss(theta + n * step) - loss(theta - n * step)) for n in (1, 2))
            np.testing.assert_allclose(found[at], -beta * (8 * one - two) / 12e-3, rtol=0, atol=1e-8)
        assert np.abs(found[0]).max() > 1e-2


class Slopes:
    """An agent with two actions and one number w: π(1 | s) = 1 / (1 + exp(−w s)), so that at s = 0 all its policies are alike."""

    action_space = Discrete(2)

    def distribution(self, policy, observation):
        w, constant = policy[0], policy[1]
        return Categorical(jnp.concatenate([jnp.zeros_like(observation), w * observation], axis=-1) + constant)


AGENT, UNIT = Slopes(), 100.0
AS_IT_IS = jax.tree.map(lambda x: jnp.zeros((8, *x.shape)), no_perturbation(AGENT.action_space))
W = np.linspace(-2.0, 2.0, 8).astype(np.float32) / UNIT


def slopes(probe):
    """An evaluator and the memory of eight policies of `Slopes`, whose value is UNIT · w, met at states between ± UNIT."""
    space, start = Box((1,), -UNIT, UNIT), jnp.zeros((1, 1))
    config = EvaluatorConfig(NetworkConfig(width=8), learning_rate=1e-2, batch_size=32)
    evaluator = make_evaluator(config, space, start, Behaviour(None, jnp.zeros((1, 2))), probe)
    states = np.random.default_rng(0).uniform(-UNIT, UNIT, (8, 16, 1)).astype(np.float32)
    target = jnp.broadcast_to(UNIT * jnp.asarray(W)[:, None], (8, 16))
    policy = ActingPolicy(AGENT, (jnp.asarray(W), jnp.zeros(8)), AS_IT_IS) if probe else None
    records = PolicyRecord(jnp.asarray(states), target, Behaviour(None, jnp.full((8, 1, 2), 0.5)), policy=policy)

    def fit(steps):
        state = evaluator.rescale(evaluator.init(jax.random.PRNGKey(0)), records, jnp.ones(()))
        return evaluator.fit(state, Memory(records), jnp.int32(8), jnp.int32(steps), jax.random.PRNGKey(1))

    return evaluator, records, jax.jit(fit)


@pytest.mark.slow
def test_probes_move_to_where_policies_differ():
    """At s = 0 all policies are alike. With a fixed probe there the error stays Var(V); a learnt one explains nearly all."""
    (_, _, fixed), (evaluator, records, learnt) = slopes(None), slopes(FINGERPRINT)
    variance = float(np.var(UNIT * W))
    state, _ = learnt(400)
    assert min(float(learnt(1)[1]), float(fixed(400)[1])) > 0.9 * variance
    assert abs(float(learnt(20)[0].probed[0, 0])) > 2.0, "steps of 0.01 are in deviations of the observations"
    shown = evaluator.present(state, records)
    predict = jax.vmap(evaluator.predict, (None, 0, 0))
    assert np.mean((predict(state, shown.behaviour, shown.observation) - shown.target) ** 2) < 0.1 * variance
    np.testing.assert_allclose(shown.behaviour.pathwise[:, 0, 1], 1 / (1 + np.exp(-W * state.probed[0, 0])), rtol=1e-5)
    # scales follow the probes: the average is that of what is shown now, and nothing is many deviations from it
    mean = state.mean_behaviour(jax.tree.map(lambda x: x[0], shown.behaviour)).pathwise
    np.testing.assert_allclose(mean, shown.behaviour.pathwise.mean(axis=0), atol=0.05)
    deviation = state.behaviour.pathwise.deviation()
    np.testing.assert_allclose(deviation, np.maximum(shown.behaviour.pathwise.std(axis=(0, 1)), 0.05), rtol=0.3)


def test_equal_distributions_are_shown_alike():
    """A constant in all logits changes nothing, wherever the probes are; another slope does."""
    evaluator, records, _ = slopes(FINGERPRINT)
    state = evaluator.init(jax.random.PRNGKey(0))
    at = lambda probe: state.replace(probes=state.probes.replace(observation=jnp.full((1, 1), probe)))  # noqa: E731
    others = [
        records.replace(policy=ActingPolicy(AGENT, (w, c), AS_IT_IS))
        for w, c in ((W, jnp.full(8, 7.0)), (-W, jnp.zeros(8)))
    ]
    for probe, same in ((0.0, True), (60.0, False)):
        own, shifted, turned = (evaluator.present(at(probe), one).behaviour.pathwise for one in (records, *others))
        np.testing.assert_allclose(shifted, own, rtol=1e-5)
        assert np.allclose(turned, own) == same


@pytest.mark.parametrize("space", [pytest.param(Discrete(3), marks=pytest.mark.slow), Box((2,), -1.0, 1.0)])
@pytest.mark.slow
def test_flags_can_be_probed_anywhere(space):
    """Probes begin as the flags of a start state, show what flags show, and have a slope; so it is with perturbed policies."""
    flags, start = Box((2, 3), 0.0, 1.0, "bool"), jnp.asarray(np.random.default_rng(0).random((K, 2, 3)) > 0.5)
    agent = make_agent(AgentConfig(hidden_sizes=(8,), normalise_observations=True), flags, space, 0.99, 10)

    @jax.jit
    def found(key):
        policy = with_noise(agent.init(key, 1).policy, jnp.float32(2.0), key)
        drawn = jax.tree.map(lambda x: x[0], draw_perturbations(space, key, 1))
        how = drawn.replace(random=jnp.float32(0.5), favoured=jnp.float32(0.25))
        wanted = agent.distribution(policy, start), perturbed_distribution(agent, policy, how, start)
        return policy, how, [Fingerprint().probed(start, lambda _, one=one: one) for one in wanted]

    policy, how, wanted = found(jax.random.PRNGKey(0))
    evaluator = make_evaluator(EvaluatorConfig(), flags, start, Behaviour(None, wanted[0]), FINGERPRINT)

    @jax.jit
    def shown(kept):
        one = PolicyRecord(start[None], jnp.zeros((1, K)), Behaviour(None, wanted[0][None]), policy=kept)
        state = evaluator.init(jax.random.PRNGKey(0))
        slope = jax.grad(lambda probes: shown_at(FINGERPRINT, probes, one).behaviour.pathwise[0, :, 0].sum())(
            state.probed
        )
        return evaluator.present(state, one).behaviour.pathwise[0], slope

    for perturbation, by_flags in zip((None, how), wanted, strict=True):
        kept = jax.tree.map(lambda x: x[None], ActingPolicy.create(agent, policy, perturbation))
        assert kept.parameters.critic is None
        assert jax.tree.structure(kept) == jax.tree.structure(no_policies(agent, 3))
        by_probes, slope = shown(kept)
        np.testing.assert_allclose(by_probes, by_flags, rtol=1e-6, atol=1e-7)
        assert np.isfinite(slope).all()
        assert np.abs(slope).max() > 1e-4


def test_only_the_fingerprint_of_a_combination_is_asked_at_probes():
    rng = np.random.default_rng(0)
    given = rollout(rng.random((K, 2)).astype(np.float32))
    policy = lambda x: Categorical(jnp.concatenate([x, x[:, :1] ** 2], axis=1))  # noqa: E731
    kind, probes = behaviour_kind("fingerprint+returns", Discrete(3)), jnp.asarray(rng.random((K, 2)), jnp.float32)
    fixed, moved = (observe(kind, given, policy, 1.0, at).behaviour for at in (None, probes))
    np.testing.assert_array_equal(moved.rolled_out["returns"], fixed.rolled_out["returns"])
    assert np.abs(moved.pathwise["fingerprint"] - fixed.pathwise["fingerprint"]).max() > 1e-2
    again = observe(kind, given, policy, 1.0, given.observation[0, :K, 0]).behaviour
    jax.tree.map(np.testing.assert_array_equal, again, fixed)


@pytest.mark.parametrize(
    ("probes", "behaviour", "message"),
    [
        ("learnt", "returns+rewards", "learnt does not go with the behaviour returns\\+rewards, which has no probes"),
        ("moved", "fingerprint", "'moved' is not allowed; must be start or learnt"),
    ],
)
def test_what_cannot_be_is_refused(probes, behaviour, message):
    with pytest.raises(InputError, match=f"^assessment.probes: {message}") as error:
        AssessmentConfig(probes=probes, behaviour=behaviour).validate()
    assert "\n" not in str(error.value)
