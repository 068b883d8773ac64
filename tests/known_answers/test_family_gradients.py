"""The exact policy gradient of a family of worlds, by enumeration in float64, against finite differences of J − βL.

Two contexts, each with deployment and assessment worlds of its own, two states and two actions. One combination is all
deployment rollouts and all assessment rollouts of a batch, in both contexts; `weigh` is called for each, and the gradients of
A2C's surrogate are summed with the probabilities of the combinations. Nothing is sampled. T times the gradient is meant, as
A2C takes a mean over steps.
"""

import functools
import itertools
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evarl.agents.distributions import Categorical
from evarl.agents.trajectory import Trajectory
from evarl.assessment.assessment import AssessmentRollout
from evarl.assessment.behaviour import behaviour_kind, observe
from evarl.evaluators.configuration import NetworkConfig
from evarl.evaluators.evaluator import network_input
from evarl.evaluators.networks import StepEncoder, WithSteps, make_network
from evarl.learning.weigh import Evidence, Objective, weigh
from evarl.worlds.spaces import Discrete
from tests.known_answers.test_gradients import BETA, SCENARIOS, THETA, A, K, S, World, log_policy

C = 2
SHARED = 2
FIXED = {"queries": "start", "beta_variance": 0.0, "max_shift": 1e9, "discount": 1.0, "rollouts_per_start": SHARED}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def certain(seed, horizon):
    """A world whose transitions are certain, so that a rollout is a sequence of actions."""
    rng = np.random.default_rng(seed)
    return World(np.eye(S)[rng.integers(0, S, (S, A))], rng.normal(size=(S, A)), horizon)


def bent(behaviour):
    """V̂(s | Ξ) of one context, [S]: bent in every number that it is given."""
    rng = np.random.default_rng(11)
    told, known = (jax.tree.leaves(part) for part in (behaviour.rolled_out, behaviour.pathwise))
    numbers = jnp.concatenate([x.reshape(-1) for x in told] + [2.0 * x.reshape(-1) for x in known])
    a, b, c = rng.normal(size=S), rng.normal(size=(S, numbers.size)), rng.normal(size=(S, numbers.size))
    return a + b @ numbers + jnp.sin(c @ numbers) * numbers[0]


def learnt(behaviour):
    """V̂(s | Ξ) of one context, [S], by the library's networks with random parameters: steps are encoded, and attended to."""
    config, rng = NetworkConfig(width=4), np.random.default_rng(3)
    network = WithSteps(make_network(config, jnp.float64), StepEncoder(config, jnp.float64))
    scenarios, queries = (jnp.asarray(states, float)[:, None] for states in (SCENARIOS, range(S)))
    inputs = scenarios, network_input(behaviour), queries
    shapes = jax.eval_shape(network.init, jax.random.PRNGKey(0), *inputs)
    parameters = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), shapes)
    return network.apply(parameters, *inputs)


@dataclass(frozen=True)
class Family:
    """All combinations of rollouts: SHARED deployment rollouts and one assessment of k scenarios, in each context."""

    deployment: tuple[World, ...]
    assessment: tuple[World, ...]
    start: int = 0
    single: bool = False
    """A batch of one context at a time, each as likely as the other, instead of both at once."""
    arrays: tuple = field(init=False, compare=False)

    def __post_init__(self):
        sites = [self._site(c, *worlds) for c, worlds in enumerate(zip(self.deployment, self.assessment, strict=True))]
        if self.single:
            batches = tuple(np.concatenate(column)[:, None] for column in zip(*sites, strict=True))
        else:
            chosen = [x.reshape(-1) for x in np.indices([len(site[0]) for site in sites])]
            batches = tuple(
                np.stack([site[i][at] for site, at in zip(sites, chosen, strict=True)], axis=1) for i in range(6)
            )
        object.__setattr__(self, "arrays", (batches[0].prod(axis=1) / (C if self.single else 1), *batches[1:]))

    def _site(self, number, deployment, assessment):
        """Of all combinations in one context: chances, states and actions [T, N] and [h, k], and the context's number."""
        rollouts = [one for one in deployment.rollouts(self.start) if one[2]]
        tests = [[one for one in assessment.rollouts(s) if one[2]] for s in SCENARIOS]
        found = []
        for deployed in itertools.product(rollouts, repeat=SHARED):
            for shown in itertools.product(*tests):
                rows = (np.array([r[i] for r in group]).T for group in (deployed, shown) for i in (0, 1))
                found.append((np.prod([r[2] for r in deployed + shown]), *rows, number))
        return [np.stack(column) for column in zip(*found, strict=True)]

    def gradient(self, gradient, kind, shape="both", evaluator=bent, **settings):
        """The expected gradient: of deployment steps, of assessment steps, and through the pathwise part of Ξ."""
        theta, T, contexts = jnp.asarray(THETA), self.deployment[0].horizon, 1 if self.single else C
        objective = Objective(gradient=gradient, shape=shape, contexts=contexts, **(FIXED | settings))
        policy = lambda states: Categorical(theta[states])  # noqa: E731
        rewards = [jnp.stack([w.rewards for w in worlds]) for worlds in (self.deployment, self.assessment)]
        values = jnp.stack([w.values(theta) for w in self.deployment])

        def multipliers(one):
            states, actions, shown_states, shown_actions, numbers = one
            flat = lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1)  # noqa: E731  [C, T, N] → [T, C·N]
            here, shown_here = (jnp.repeat(numbers, count)[None] for count in (SHARED, K))
            reward = rewards[0][here, flat(states), flat(actions)]
            returns = jnp.cumsum(reward[::-1], axis=0)[::-1]
            time = jnp.arange(T)[:, None] * jnp.ones_like(reward, int)
            value = values[here, time, flat(states)]
            trajectory = Trajectory(
                observation=flat(states),
                action=flat(actions),
                log_prob=jnp.zeros_like(reward),
                reward=reward,
                terminated=jnp.zeros_like(reward, bool),
                truncated=time == T - 1,
                start_label=jnp.where(time == 0, 0, -1),
                final_observation=jnp.zeros_like(reward[:1]),
                last_observation=jnp.zeros_like(reward[0]),
            )
            seen, did = flat(shown_states)[:, :, None], flat(shown_actions)[:, :, None]
            gained = rewards[1][shown_here[:, :, None], seen, did]
            rollout = AssessmentRollout(seen, did, jnp.zeros_like(gained), gained, jnp.ones_like(gained, bool))
            observed = observe(kind, rollout, policy, 1.0)

            def predict(behaviour, thinning):
                by_site = jax.tree.map(lambda x: x.reshape(contexts, -1, *x.shape[1:]), behaviour)
                known = jax.vmap(evaluator)(by_site)  # [C, S]
                own = jnp.repeat(jnp.arange(contexts), SHARED)[None]
                return known[own, trajectory.observation]

            before = jax.tree.map(lambda x: jnp.full_like(x[:, :K, 0], 0.2), observed.to_go)  # of earlier policies
            evidence = Evidence(trajectory, returns, value, rollout, observed, before, jnp.asarray(0.37))
            weights, _ = weigh(objective, evidence, predict, jnp.asarray(BETA))
            weighted = weights.weight * (returns - value) + weights.bonus
            through = [] if weights.pathwise is None else jax.tree.leaves(weights.pathwise.cotangent)
            slopes = through[0] if through else jnp.zeros((contexts * K, A))
            return weighted, weights.advantage.reshape(seen.shape[:2]), slopes, flat(states), flat(actions), seen, did

        @jax.jit
        def expected(theta, chance, *batches):
            weighted, shown, slopes, states, actions, seen, did = jax.lax.map(multipliers, batches, batch_size=4096)
            seen, did = seen[..., 0], did[..., 0]
            probability = chance * jnp.exp(
                log_policy(theta, states, actions).sum((1, 2)) + log_policy(theta, seen, did).sum((1, 2))
            )

            def deployed(theta):
                return jnp.sum(probability * (weighted * log_policy(theta, states, actions)).mean((1, 2)))

            def assessed(theta):
                return jnp.sum(probability * (shown * log_policy(theta, seen, did)).sum((1, 2)))

            def through(theta):
                at = jax.nn.softmax(theta)[jnp.asarray(SCENARIOS * contexts)]
                return jnp.sum(jnp.einsum("c,cka->ka", probability, slopes) * at)

            return probability.sum(), [jax.grad(part)(theta) for part in (deployed, assessed, through)]

        total, parts = expected(theta, *self.arrays)
        np.testing.assert_allclose(total, 1.0, rtol=1e-10)
        return [T * np.asarray(part) for part in parts]

    def objective(self, theta, kind, fixed_value=None, evaluator=bent):
        """J − βL: contexts are equally likely, L = E_c E_Ξ|c[(V_c(s) − V̂(s | Ξ))²]. With `fixed_value` V_c is held there."""
        policy = lambda states: Categorical(theta[states])  # noqa: E731
        total = 0.0
        for deployment, assessment in zip(self.deployment, self.assessment, strict=True):
            value = deployment.values(theta)[0][self.start]
            held = value if fixed_value is None else deployment.values(fixed_value)[0][self.start]
            tests = list(itertools.product(*(assessment.rollouts(s) for s in SCENARIOS)))
            chance = np.array([np.prod([r[2] for r in one]) for one in tests])
            seen, did = (np.array([[r[i] for r in one] for one in tests]).swapaxes(1, 2)[..., None] for i in (0, 1))

            def predicted(seen, did, rewards=assessment.rewards):
                gained = jnp.asarray(rewards)[seen, did]
                rollout = AssessmentRollout(seen, did, jnp.zeros_like(gained), gained, jnp.ones_like(gained, bool))
                return evaluator(observe(kind, rollout, policy, 1.0).behaviour)[self.start]

            probability = chance * jnp.exp(log_policy(theta, seen, did).sum((1, 2, 3)))
            loss = jnp.sum(probability * (held - jax.vmap(predicted)(jnp.asarray(seen), jnp.asarray(did))) ** 2)
            total += (value - BETA * loss) / C
        return total


def differences(compiled):
    """Central differences with an error of fourth order."""
    found, step = np.zeros((S, A)), 1e-3
    for at in np.ndindex(S, A):
        shift = np.zeros((S, A))
        shift[at] = step
        one, two = (float(compiled(THETA + n * shift) - compiled(THETA - n * shift)) for n in (1, 2))
        found[at] = (8 * one - two) / (12 * step)
    return found


@functools.cache
def family(steps, shown_steps, random=False, single=False):
    make = World.random if random else certain
    worlds = [tuple(make(seed + c, n) for c in range(C)) for seed, n in ((1, steps), (21, shown_steps))]
    return Family(*worlds, single=single)


KINDS = ("returns", "rewards", "returns+fingerprint")
CASES = {
    "assessment of three steps": (1, 3),
    "deployment of three steps": (3, 1),
    "random transitions": (2, 1, True),
    "one context at a time, three steps each": (3, 3, False, True),
}


def kind_of(names):
    return behaviour_kind(names, Discrete(A))


@functools.cache
def wanted_gradients(case, kind):
    """Of the exact objective, by automatic differentiation and by finite differences."""
    world, shown = family(*CASES[case]), kind_of(kind)
    both = jax.jit(jax.value_and_grad(lambda theta: world.objective(theta, shown)))
    return np.asarray(both(THETA)[1]), differences(lambda theta: both(theta)[0])


FIRST, *OTHERS = CASES


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        *itertools.product([FIRST], KINDS),
        ("one context at a time, three steps each", "returns+fingerprint"),
        ("random transitions", "fingerprint"),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in itertools.product(OTHERS, ["returns", "rewards"])),
        pytest.param("deployment of three steps", "returns+fingerprint", marks=pytest.mark.slow),
        pytest.param("random transitions", "returns+fingerprint", marks=pytest.mark.slow),
        ("assessment of three steps", "trajectory"),
        pytest.param("one context at a time, three steps each", "trajectory", marks=pytest.mark.slow),
    ],
)
def test_the_expectation_is_the_gradient_of_the_objective(case, kind):
    """For shape `both` to 1e-8 by automatic differentiation of the exact objective, which agrees with finite differences."""
    wanted, by_differences = wanted_gradients(case, kind)
    np.testing.assert_allclose(wanted, by_differences, rtol=0, atol=1e-8)
    got = family(*CASES[case]).gradient("exact", kind_of(kind))
    assert np.abs(got[2 if kind == "fingerprint" else 1]).max() > 1e-2, "the behaviour is a good part of the gradient"
    assert np.any(got[1]) == (kind != "fingerprint"), "no step of the assessment matters to a fingerprint"
    assert np.any(got[2]) == ("fingerprint" in kind)
    np.testing.assert_allclose(sum(got), wanted, rtol=0, atol=1e-8)


def test_the_expectation_is_the_gradient_with_a_network_of_the_library():
    """All kinds at once, through the network that encodes steps and attends to start states."""
    world, shown = family(*CASES["assessment of three steps"]), kind_of("returns+rewards+trajectory+fingerprint")
    objective = lambda theta: world.objective(theta, shown, evaluator=learnt)  # noqa: E731
    wanted = differences(jax.jit(objective))
    got = world.gradient("exact", shown, evaluator=learnt)
    assert min(np.abs(part).max() for part in got) > 1e-3, "all three parts count"
    np.testing.assert_allclose(sum(got), wanted, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[:2]), "returns+fingerprint"]
)
def test_the_assessment_alone(kind):
    """Shape `assessment`: the same with V_c held fixed in L, so that deployment is improved for its return only."""
    world, shown = family(*CASES["assessment of three steps"]), kind_of(kind)
    fixed = lambda theta: world.objective(theta, shown, fixed_value=jnp.asarray(THETA))  # noqa: E731
    got = world.gradient("exact", shown, shape="assessment")
    np.testing.assert_allclose(sum(got), differences(jax.jit(fixed)), rtol=0, atol=1e-8)


@pytest.mark.parametrize(("kind", "off"), [("returns", 0.1), ("rewards", 0.1)])
def test_the_form_through_the_slope_of_the_evaluator_is_another(kind, off):
    """The paper's form, ∂V̂/∂Ξ ∇E[Ξ], linearises V̂ in a random Ξ: for a bent V̂ it is off by a good part of the gradient."""
    case = "assessment of three steps"
    wanted, _ = wanted_gradients(case, kind)
    linearised = sum(family(*CASES[case]).gradient("paired", kind_of(kind)))
    assert np.abs(linearised - wanted).max() > off * np.abs(wanted).max()
