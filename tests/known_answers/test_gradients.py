"""The evaluation-aware policy gradient, by enumeration: its expectation over all trajectories, without sampling, in float64.

Two states and two actions, so every rollout can be listed. One combination is a pair of deployment rollouts from one start
state (or several such groups) and all assessment rollouts; `weigh` is called for each, the surrogate that A2C differentiates
is formed with its answer, and the gradients are summed with the probabilities of the combinations. Nothing is discounted: w
and A carry no factor γ^t, so with γ = 1 the objective J is the return over the horizon. A2C takes a mean over steps, so
every gradient here is 1/T of the one meant, and is multiplied by T.
"""

import functools
import itertools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evarl.agents.trajectory import Trajectory
from evarl.assessment.assessment import AssessmentRollout
from evarl.assessment.behaviour import Returns, observe
from evarl.learning.weigh import (
    Evidence,
    Objective,
    Thinning,
    baselines,
    centred,
    discounted_average,
    hold,
    masked_mean,
    mean_of_others,
    weigh,
)

S, A, K = 2, 2, 2
BETA = 0.3
SCENARIOS = (0, 1)
DEFAULTS = {"queries": "start", "beta_variance": 0.0, "max_shift": 1e9, "discount": 1.0}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


# --- Two small worlds and everything about them that can be known exactly


@dataclass(frozen=True)
class World:
    transitions: np.ndarray
    rewards: np.ndarray
    horizon: int

    @classmethod
    def random(cls, seed: int, horizon: int) -> "World":
        rng = np.random.default_rng(seed)
        return cls(rng.dirichlet(np.ones(S), (S, A)), rng.normal(size=(S, A)), horizon)

    def values(self, theta):
        """V_t(s), t = 0 … T, by dynamic programming."""
        policy, values = jax.nn.softmax(theta), [jnp.zeros(S)]
        for _ in range(self.horizon):
            values.insert(0, (policy * (self.rewards + self.transitions @ values[0])).sum(1))
        return jnp.stack(values)

    def variance(self, theta):
        """Var(G | s): the second moment by dynamic programming, minus the square of the first."""
        policy, values, moment = jax.nn.softmax(theta), self.values(theta), jnp.zeros(S)
        for t in reversed(range(self.horizon)):
            following = 2.0 * self.rewards * (self.transitions @ values[t + 1]) + self.transitions @ moment
            moment = (policy * (self.rewards**2 + following)).sum(1)
        return moment - values[0] ** 2

    def rollouts(self, start: int) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
        """Every rollout: states, actions, and the probability of the states given the actions."""
        found = []
        for actions in itertools.product(range(A), repeat=self.horizon):
            for later in itertools.product(range(S), repeat=self.horizon - 1):
                states = (start, *later)
                steps = zip(states[:-1], actions[:-1], states[1:], strict=True)
                found.append((states, actions, float(np.prod([self.transitions[step] for step in steps]))))
        return found


def log_policy(theta, states, actions):
    return jax.nn.log_softmax(theta)[states, actions]


THETA = np.array([[0.3, -0.2], [-0.5, 0.4]])
MU = np.array([0.35, 0.65])
DEPLOYMENT = {T: World.random(1, T) for T in (1, 2, 3)}
ASSESSMENT = {h: World.random(2, h) for h in (1, 2)}


@dataclass(frozen=True)
class Evaluator:
    """V̂(s | G) = a(s) + b(s)·G + c(s) sin(G¹G²)."""

    bend: float
    a = np.array([0.4, -0.7])
    b = np.array([[0.8, -0.3], [0.5, 1.1]])
    c = np.array([0.9, -0.6])

    def __call__(self, shown):
        return self.a + self.b @ shown + self.bend * self.c * jnp.sin(shown[0] * shown[1])

    def slope(self, shown):
        """∂V̂(s)/∂Gⁱ by hand, [S, k]."""
        cross = self.bend * self.c * np.cos(shown[0] * shown[1])
        return self.b + cross[:, None] * np.array([[shown[1], shown[0]]])


LINEAR, CURVED = Evaluator(0.0), Evaluator(1.0)


# --- All combinations, and the exact expectation of the estimator


@dataclass(frozen=True)
class Combinations:
    """Every combination of deployment rollouts, `shared` from each of some start states, and K·R assessment rollouts."""

    deployment: World
    assessment: World
    replicates: int
    shared: int = 2
    starts: int = 1

    def __post_init__(self):
        group = [
            (MU[s] * np.prod([r[2] for r in rollouts]), [r[0] for r in rollouts], [r[1] for r in rollouts])
            for s in range(S)
            for rollouts in itertools.product(self.deployment.rollouts(s), repeat=self.shared)
        ]
        groups = list(itertools.product(group, repeat=self.starts))
        chances = np.array([np.prod([g[0] for g in one]) for one in groups])
        states, actions = (
            np.array([list(itertools.chain(*(g[x] for g in one))) for one in groups]).swapaxes(1, 2)  # [·, T, N]
            for x in (1, 2)
        )
        shown = list(itertools.product(*(self.assessment.rollouts(s) for s in np.repeat(SCENARIOS, self.replicates))))
        shape = (len(shown), K, self.replicates, self.assessment.horizon)
        shown_states = np.moveaxis(np.array([[r[0] for r in one] for one in shown]).reshape(shape), 3, 1)
        shown_actions = np.moveaxis(np.array([[r[1] for r in one] for one in shown]).reshape(shape), 3, 1)
        shown_chances = np.array([np.prod([r[2] for r in one]) for one in shown])
        i, j = (x.reshape(-1) for x in np.indices((len(groups), len(shown))))
        for name, value in {
            "chance": chances[i] * shown_chances[j],
            "states": states[i],
            "actions": actions[i],
            "shown_states": shown_states[j],
            "shown_actions": shown_actions[j],
        }.items():
            object.__setattr__(self, name, value)

    def expectation(
        self,
        gradient,
        evaluator,
        *,
        critic=None,
        baseline=None,
        loss_baseline=0.0,
        whole=False,
        kind=Returns(),  # noqa: B008
        policy=None,
        **settings,
    ):
        """T times the expected gradient of A2C's surrogate, its deployment and its assessment part.

        `whole` makes the advantage of every step G − V(s_0) instead of the return-to-go minus V_t(s_t). With a policy, a
        third part is T times the expected cotangent of the pathwise part of the behaviour.
        """
        theta, beta = jnp.asarray(THETA), settings.pop("beta", BETA)
        objective = Objective(**({"gradient": gradient, "rollouts_per_start": self.shared} | DEFAULTS | settings))
        values = self.deployment.values(theta)
        fixed = {
            "rewards": (self.deployment.rewards, self.assessment.rewards),
            "values": values,
            "critic": values if critic is None else jnp.broadcast_to(jnp.asarray(critic), values.shape),
            "baseline": exact_baseline(self.assessment) if baseline is None else baseline,
            "loss_baseline": np.float64(loss_baseline),
            "beta": np.float64(beta),
        }
        batch = self.states, self.actions, self.shown_states, self.shown_actions
        options = evaluator, whole, kind, policy
        multipliers = all_weights(objective, options, fixed, batch)
        total, *parts = expected_parts(theta, self.chance, batch, multipliers)
        np.testing.assert_allclose(total, 1.0, rtol=1e-10)  # up to 5e5 terms, in any order
        return tuple(self.deployment.horizon * part for part in parts[: 2 if policy is None else 3])


@jax.jit
def expected_parts(theta, chance, batch, multipliers):
    """The sum of all probabilities, expected gradients in deployment and assessment, and the expected cotangent."""
    (states, actions, shown_states, shown_actions), (weighted, shown, slopes) = batch, multipliers
    exponent = log_policy(theta, states, actions).sum((1, 2)) + log_policy(theta, shown_states, shown_actions).sum(
        (1, 2, 3)
    )
    probability = chance * jnp.exp(exponent)

    def deployed(theta):
        return jnp.sum(probability * (weighted * log_policy(theta, states, actions)).mean((1, 2)))

    def assessed(theta):
        return jnp.sum(probability * (shown * log_policy(theta, shown_states, shown_actions)).sum((1, 2, 3)))

    cotangent = jnp.tensordot(probability, slopes, axes=1)
    return probability.sum(), jax.grad(deployed)(theta), jax.grad(assessed)(theta), cotangent


@functools.partial(jax.jit, static_argnums=(0, 1))
def all_weights(objective, options, fixed, batch):
    """What multiplies log π in each combination: of the deployment steps [C, T, N] and the assessment's [C, h, k, R].

    Also the cotangents of the pathwise part, if there is one.
    """
    evaluator, whole, kind, policy = options

    def multipliers(one):
        states, actions, shown_states, shown_actions = one
        time = jnp.arange(states.shape[0])[:, None] * jnp.ones((1, states.shape[1]), int)
        rewards = fixed["rewards"][0][states, actions]
        returns = jnp.cumsum(rewards[::-1], axis=0)[::-1]
        value = fixed["values"][time, states]
        trajectory = Trajectory(
            observation=states,
            action=actions,
            log_prob=jnp.zeros_like(rewards),
            reward=rewards,
            terminated=jnp.zeros_like(rewards, bool),
            truncated=time == states.shape[0] - 1,
            start_label=jnp.where(time == 0, 0, -1),
            final_observation=jnp.zeros_like(rewards[:1]),
            last_observation=jnp.zeros_like(rewards[0]),
        )
        reward = fixed["rewards"][1][shown_states, shown_actions]
        alive = jnp.ones_like(reward, bool)
        rollout = AssessmentRollout(shown_states, shown_actions, jnp.zeros_like(reward), reward, alive)
        critic, observed = fixed["critic"][time, states], observe(kind, rollout, policy, 1.0)
        evidence = Evidence(trajectory, returns, critic, rollout, observed, fixed["baseline"], fixed["loss_baseline"])
        weights, _ = weigh(objective, evidence, at_states(evaluator, states), fixed["beta"])
        advantage = returns - value
        if whole:
            advantage = jnp.broadcast_to(advantage[:1], advantage.shape)
        weighted = weights.weight * advantage + weights.bonus  # as in a2c.py, with unit 1
        slopes = jnp.zeros(()) if weights.pathwise is None else weights.pathwise.cotangent
        return weighted, weights.advantage.reshape(shown_states.shape), slopes

    return jax.lax.map(multipliers, batch, batch_size=16384)


def at_states(evaluator, states):
    """`predict` of an evaluator that is given returns, and the pathwise part if there is one."""
    return lambda behaviour, thinning: evaluator(*jax.tree.leaves(behaviour))[thinning.of(states)]


def exact_baseline(world):
    """Expected rewards-to-go of the scenarios, [h, k]."""
    policy, chances, rows = jax.nn.softmax(THETA), np.eye(S)[list(SCENARIOS)], []
    values = world.values(THETA)
    for t in range(world.horizon):
        rows.append(chances @ values[t])
        chances = chances @ jnp.einsum("sa,sax->sx", policy, world.transitions)
    return jnp.stack(rows)


def showings(world):
    """Every Ξ of one replicate: returns [k], the rewards-to-go [h, k], states and actions [h, k], and P(states | actions)."""
    for one in itertools.product(*(world.rollouts(s) for s in SCENARIOS)):
        states, actions = (np.array([r[x] for r in one]).T for x in (0, 1))
        to_go = np.cumsum(world.rewards[states, actions][::-1], axis=0)[::-1]
        yield to_go[0], to_go, states, actions, np.prod([r[2] for r in one])


def over_showings(world, theta, f):
    """E_Ξ[f(G)], differentiable in θ."""
    shown, _, states, actions, chance = map(np.stack, zip(*showings(world), strict=True))
    return jnp.tensordot(chance * jnp.exp(log_policy(theta, states, actions).sum((1, 2))), jax.vmap(f)(shown), axes=1)


def shown_mean(world, theta):
    return world.values(theta)[0][jnp.asarray(SCENARIOS)]


def same(one, other, tolerance=1e-8):
    assert np.abs(np.asarray(other)).max() > 1e-3, "an answer of 0 would show nothing"
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def jacobian_of_values(world):
    return np.asarray(jax.jacobian(lambda theta: world.values(theta)[0])(jnp.asarray(THETA)))  # [S, S, A]


def seldom(*cases):
    """Sizes whose answers are tried by other tests as well."""
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


@functools.cache
def combinations(steps, shown_steps, replicates, shared=2, starts=1):
    return Combinations(DEPLOYMENT[steps], ASSESSMENT[shown_steps], replicates, shared, starts)


# --- (1) paired: unbiased for ∇(J − βL)


@pytest.mark.parametrize(
    "case",
    [
        (2, 1, 2),
        (2, 1, 3),
        (2, 1, 2, 3),
        *(pytest.param(case, marks=pytest.mark.slow) for case in ((3, 1, 2), (2, 2, 2), (2, 1, 2, 2, 2))),
    ],
)
def test_paired_with_replicates_is_the_gradient_of_what_it_says(case):
    """A linear evaluator, several replicates: ∇(J − βL), L = E_s[(V(s) − V̂(s | E[G]))²], by autodiff and by differences."""
    all_of_them = combinations(*case)

    def target(theta):
        value = all_of_them.deployment.values(theta)[0]
        error = value - LINEAR(shown_mean(all_of_them.assessment, theta))
        return jnp.dot(MU, value) - BETA * jnp.dot(MU, error**2)

    got = sum(all_of_them.expectation("paired", LINEAR))
    same(got, jax.grad(target)(jnp.asarray(THETA)))
    step = 1e-5
    differences = np.zeros((S, A))
    for at in np.ndindex(S, A):
        shift = np.zeros((S, A))
        shift[at] = step
        differences[at] = (target(THETA + shift) - target(THETA - shift)) / (2 * step)
    same(got, differences, 1e-6)


# --- (2) paired with one replicate


def formula(deployment, assessment, evaluator, baseline):
    """E_Ξ{ Σ_s μ(s) (1 − 2β d) ∇V + 2β Σ_i mean_s[d ∂V̂/∂Gⁱ] Σ_t (Gⁱ_t − bⁱ_t) ∇log π(aⁱ_t | sⁱ_t) } with exact V."""
    value, slopes = np.asarray(deployment.values(THETA)[0]), jacobian_of_values(deployment)
    policy, total = np.asarray(jax.nn.softmax(THETA)), np.zeros((S, A))
    for shown, to_go, states, actions, chance in showings(assessment):
        weight = chance * np.prod(policy[states, actions])
        error = value - np.asarray(evaluator(shown))
        total += weight * np.einsum("s,sxy->xy", MU * (1 - 2 * BETA * error), slopes)
        u = 2 * BETA * np.einsum("s,si->i", MU * error, evaluator.slope(shown))
        for t, i in np.ndindex(*states.shape):
            score = np.zeros((S, A))
            score[states[t, i]] = np.eye(A)[actions[t, i]] - policy[states[t, i]]
            total += weight * u[i] * (to_go[t, i] - baseline[t, i]) * score
    return total


@pytest.mark.parametrize("case", [(2, 1, 1), (2, 2, 1), (3, 1, 1)])
@pytest.mark.parametrize("evaluator", [LINEAR, CURVED], ids=["linear", "curved"])
def test_paired_with_one_replicate_is_the_formula_with_the_exact_error(case, evaluator):
    world = combinations(*case)
    for baseline in (exact_baseline(world.assessment), np.full((world.assessment.horizon, K), 0.7)):
        got = sum(world.expectation("paired", evaluator, baseline=baseline))
        same(got, formula(world.deployment, world.assessment, evaluator, np.asarray(baseline)))


def test_one_replicate_also_punishes_the_variance_of_the_assessment():
    """u_i holds Gⁱ itself, so with one replicate, one step and the exact mean as baseline there is a second penalty:
    ∇(J − β(L + 2 Σ_i E_s[c_i(s)²] Var(Gⁱ))) for a linear evaluator. Two replicates have none."""
    world = combinations(2, 1, 1)

    def target(theta, extra):
        value, shown = world.deployment.values(theta)[0], shown_mean(world.assessment, theta)
        variance = world.assessment.variance(theta)[jnp.asarray(SCENARIOS)]
        loss = jnp.dot(MU, (value - LINEAR(shown)) ** 2) + extra * jnp.dot(MU @ LINEAR.b**2, variance)
        return jnp.dot(MU, value) - BETA * loss

    got = sum(world.expectation("paired", LINEAR))
    same(got, jax.grad(target)(jnp.asarray(THETA), 2.0))
    plain = jax.grad(target)(jnp.asarray(THETA), 0.0)
    assert np.abs(got - plain).max() > 1e-2
    same(sum(combinations(2, 1, 2).expectation("paired", LINEAR)), plain)


@pytest.mark.parametrize("replicates", [1, 2])
def test_the_running_baseline_matters_with_one_replicate_only(replicates):
    """With one replicate, u and the score it multiplies are correlated, and so the baseline is not free of bias."""
    world = combinations(2, 1, replicates)
    one, other = (sum(world.expectation("paired", LINEAR, baseline=np.full((1, K), b))) for b in (0.0, 3.0))
    assert (np.abs(one - other).max() < 1e-9) == (replicates == 2)


# --- (3) printed


@pytest.mark.parametrize("case", [(1, 1, 1), (2, 1, 1), (3, 1, 1)])
def test_printed_also_punishes_the_variance_of_the_return_twice(case):
    """Σ_s μ(s) [∇V − β(2(V − V̂) ∇V + 2 ∇Var(G|s))], when every step of an episode has the advantage G − V(s_0)."""
    world = combinations(*case)
    got, _ = world.expectation("printed", CURVED, whole=True)
    same(got, printed(world, lambda theta: 2 * world.deployment.variance(theta)))


def printed(world, extra):
    """∇ of what `printed` optimises, with V̂ held fixed; `extra(θ)` is a second penalty for each start state."""
    predicted = over_showings(world.assessment, THETA, CURVED)

    def target(theta):
        value = world.deployment.values(theta)[0]
        return jnp.dot(MU, value - BETA * ((value - predicted) ** 2 + extra(theta)))

    return jax.grad(target)(jnp.asarray(THETA))


@pytest.mark.parametrize("case", [(1, 1, 1), (2, 1, 1), (3, 1, 1)])
def test_printed_with_returns_to_go(case):
    """With the advantage of a step being the return-to-go minus V_t(s_t), which is what A2C uses, the second penalty is
    milder: instead of 2∇Var(G) it is ∇Var(G) + Σ_t E[(G_t − V_t)² ∇log π(a_t|s_t)], the same only when T = 1. (The weight
    holds the rewards before t, which no longer vanish beside ∇log π(a_t|s_t) as they do when the weight is independent.)
    """
    world = combinations(*case)
    got, _ = world.expectation("printed", CURVED)

    def steps(theta):
        """Σ_t E[(G_t − V_t)² log π(a_t|s_t)] with all but log π held fixed: its gradient is the sum above."""
        policy, values, total = np.asarray(jax.nn.softmax(THETA)), np.asarray(world.deployment.values(THETA)), []
        for s in range(S):
            states, actions, chance = map(np.array, zip(*world.deployment.rollouts(s), strict=True))
            weight = chance * np.prod(policy[states, actions], axis=1)
            to_go = np.cumsum(world.deployment.rewards[states, actions][:, ::-1], axis=1)[:, ::-1]
            squared = (to_go - values[np.arange(states.shape[1]), states]) ** 2
            total.append(jnp.sum(weight[:, None] * squared * log_policy(theta, states, actions)))
        return jnp.stack(total)

    same(got, printed(world, lambda theta: world.deployment.variance(theta) + steps(theta)))
    twice = printed(world, lambda theta: 2 * world.deployment.variance(theta))
    assert (np.abs(got - twice).max() < 1e-8) == (case[0] == 1)


@pytest.mark.parametrize("case", [(2, 1, 1), (2, 1, 2), *seldom((2, 2, 1))])
def test_the_assessment_part_of_printed_is_that_of_paired(case):
    world = combinations(*case)
    same(world.expectation("printed", CURVED)[1], world.expectation("paired", CURVED)[1])


# --- (4) critic


@pytest.mark.parametrize("case", [(2, 1, 1), (2, 1, 2), *seldom((2, 2, 1), (2, 1, 1, 2, 2))])
def test_critic_with_exact_values_is_paired(case):
    world = combinations(*case)
    for one, other in zip(*(world.expectation(g, CURVED) for g in ("critic", "paired")), strict=True):
        same(one, other)


def test_an_error_of_the_critic_goes_into_the_weights():
    """A critic that says V + e adds −2β Σ_s μ(s) e(s) ∇V(s), and 2β Σ_i E_s[e(s) c_i(s)] ∇E[Gⁱ]."""
    world, error = combinations(2, 1, 2), np.array([0.6, -1.3])
    right = world.expectation("critic", LINEAR)
    wrong = world.expectation("critic", LINEAR, critic=world.deployment.values(THETA)[0] + error)
    same(wrong[0] - right[0], -2 * BETA * np.einsum("s,sxy->xy", MU * error, jacobian_of_values(world.deployment)))
    shown = jax.jacobian(lambda theta: shown_mean(world.assessment, theta))(jnp.asarray(THETA))
    same(wrong[1] - right[1], 2 * BETA * np.einsum("s,si,ixy->xy", MU * error, LINEAR.b, shown))


# --- (5) score


@pytest.mark.parametrize("loss_baseline", [0.0, 1.7, -20.0])
@pytest.mark.parametrize("case", [(2, 1, 1), (2, 2, 1), (3, 1, 1), (2, 1, 1, 2, 2), (2, 1, 1, 1, 2), (2, 1, 1, 1, 1)])
def test_score_is_the_gradient_of_the_expected_squared_error(case, loss_baseline):
    """∇(J − β E_Ξ E_s E[(G − V̂(s|Ξ))²]) = ∇(J − β (E_Ξ E_s[d²] + E_s Var(G|s))), whatever the baselines and however V̂
    is curved."""
    world = combinations(*case)

    def target(theta):
        value, variance = world.deployment.values(theta)[0], world.deployment.variance(theta)
        loss = over_showings(world.assessment, theta, lambda shown: jnp.dot(MU, (value - CURVED(shown)) ** 2))
        return jnp.dot(MU, value) - BETA * (loss + jnp.dot(MU, variance))

    same(sum(world.expectation("score", CURVED, loss_baseline=loss_baseline)), jax.grad(target)(jnp.asarray(THETA)))


def test_score_with_replicates_takes_their_mean_as_the_return():
    world = combinations(2, 1, 2)

    def target(theta):
        value, variance = world.deployment.values(theta)[0], world.deployment.variance(theta)
        chosen = jax.nn.softmax(theta)
        loss = 0.0
        for actions in itertools.product(range(A), repeat=2 * K):  # one step: a replicate is one action
            actions = np.array(actions).reshape(K, 2)
            states = np.array(SCENARIOS)[:, None]
            shown = world.assessment.rewards[states, actions].mean(axis=1)
            loss += jnp.prod(chosen[states, actions]) * jnp.dot(MU, (value - CURVED(shown)) ** 2)
        return jnp.dot(MU, value) - BETA * (loss + jnp.dot(MU, variance))

    same(sum(world.expectation("score", CURVED)), jax.grad(target)(jnp.asarray(THETA)))


# --- (6) the variance penalty


@pytest.mark.parametrize(
    ("gradient", "case"),
    [
        *itertools.product(
            ["paired"], [(1, 1, 1), (2, 1, 1), (3, 1, 1), (2, 1, 1, 3), (2, 1, 1, 2, 2), (1, 1, 1, 3, 2)]
        ),
        *itertools.product(["score"], [(2, 1, 1), (2, 1, 1, 2, 2)]),
        *(
            pytest.param("score", case, marks=pytest.mark.slow)
            for case in [(1, 1, 1), (3, 1, 1), (2, 1, 1, 3), (1, 1, 1, 3, 2)]
        ),
    ],
)
def test_the_variance_penalty_is_the_gradient_of_the_variance(case, gradient):
    world, weight = combinations(*case), 0.8
    plain, _ = world.expectation(gradient, LINEAR)
    got, _ = world.expectation(gradient, LINEAR, beta_variance=weight)
    gradient_of_variance = jax.grad(lambda theta: jnp.dot(MU, world.deployment.variance(theta)))(jnp.asarray(THETA))
    same(got - plain, -weight * gradient_of_variance)


def test_the_variance_penalty_alone():
    """Without β: ∇(J − β_variance E_s Var(G|s)), and nothing is asked of the assessment."""
    world = combinations(2, 1, 1)
    deployed, assessed = world.expectation("paired", LINEAR, beta=0.0, beta_variance=0.8)
    target = lambda theta: jnp.dot(MU, world.deployment.values(theta)[0] - 0.8 * world.deployment.variance(theta))  # noqa: E731
    same(deployed, jax.grad(target)(jnp.asarray(THETA)))
    assert np.abs(assessed).max() == 0.0


# --- (7) a behaviour with a part that is a function of the policy itself


class ReturnsAndProbabilities(Returns):
    """Also the probabilities of the actions at the start states, [k, A]."""

    def pathwise(self, rollout, policy):
        return policy(rollout.observation[0, :, 0])


@dataclass(frozen=True)
class Informed:
    """V̂(s | G, P) = a(s) + b(s)·G + Σ p(s) P + q(s) P¹₀ G²: linear in what was rolled out, so that its mean is exact."""

    p = np.random.default_rng(5).normal(size=(S, K, A))
    q = np.array([0.7, -0.4])

    def __call__(self, returns, probabilities):
        linear = LINEAR(returns) + jnp.einsum("ska,ka->s", self.p, probabilities)
        return linear + self.q * probabilities[0, 0] * returns[1]


@pytest.mark.parametrize("case", [(2, 1, 2), (2, 1, 3), *seldom((2, 2, 2))])
def test_the_pathwise_part_completes_the_gradient(case):
    """∇(J − βL), L = E_s[(V(s) − V̂(s | E[G], P))²]: score-function weights for G, one cotangent for P."""
    world, evaluator = combinations(*case), Informed()
    policy = lambda states, theta=THETA: jax.nn.softmax(theta)[states]  # noqa: E731

    def target(theta):
        value = world.deployment.values(theta)[0]
        at = policy(jnp.asarray(SCENARIOS), theta)
        error = value - evaluator(shown_mean(world.assessment, theta), at)
        return jnp.dot(MU, value) - BETA * jnp.dot(MU, error**2)

    deployed, assessed, slopes = world.expectation("paired", evaluator, kind=ReturnsAndProbabilities(), policy=policy)
    through = lambda theta: jnp.sum(slopes * policy(jnp.asarray(SCENARIOS), theta))  # noqa: E731
    pathwise = jax.grad(through)(jnp.asarray(THETA))
    assert np.abs(pathwise).max() > 1e-2, "it is a good part of the gradient"
    same(deployed + assessed + pathwise, jax.grad(target)(jnp.asarray(THETA)))


def test_score_goes_through_the_pathwise_part():
    """∇(J − β E_Ξ[(G − V̂(s | G_A, P))²]): not linearised in what was rolled out, and P is differentiated directly."""
    world, evaluator = combinations(2, 1, 1), Informed()
    policy = lambda states, theta=THETA: jax.nn.softmax(theta)[states]  # noqa: E731

    def target(theta):
        value, variance = world.deployment.values(theta)[0], world.deployment.variance(theta)
        error = lambda shown: value - evaluator(shown, policy(jnp.asarray(SCENARIOS), theta))  # noqa: E731
        loss = over_showings(world.assessment, theta, lambda shown: jnp.dot(MU, error(shown) ** 2))
        return jnp.dot(MU, value) - BETA * (loss + jnp.dot(MU, variance))

    deployed, assessed, slopes = world.expectation("score", evaluator, kind=ReturnsAndProbabilities(), policy=policy)
    pathwise = jax.grad(lambda theta: jnp.sum(slopes * policy(jnp.asarray(SCENARIOS), theta)))(jnp.asarray(THETA))
    assert np.abs(pathwise).max() > 1e-2, "it is a good part of the gradient"
    same(deployed + assessed + pathwise, jax.grad(target)(jnp.asarray(THETA)))


# --- (8) The pieces, by hand and against loops


def array(*rows):
    return jnp.asarray(np.array(rows, float).T)  # one row for each environment; time first


def flags(*rows):
    return jnp.asarray(np.array(rows, bool).T)


def test_discounted_average_by_hand():
    x, done = array([1, 2, 3, 4, 5]), flags([0, 0, 1, 0, 0])
    average, count = discounted_average(x, done, 0.5)
    np.testing.assert_allclose(count[:, 0], [1, 1.5, 1.75, 1, 1.5])
    np.testing.assert_allclose(average[:, 0], [1, 2.5 / 1.5, 4.25 / 1.75, 4, 7 / 1.5])
    np.testing.assert_allclose(discounted_average(x, done, 1.0)[0][:, 0], [1, 1.5, 2, 4, 4.5])
    np.testing.assert_allclose(discounted_average(x, done, 0.0)[0], x)


def test_hold_by_hand():
    """The first environment is in mid-episode when the batch begins; what comes before a start holds 0."""
    x = array([9, 9, 3, 9, 5, 9], [2, 9, 9, 9, 9, 9])
    start, done = flags([0, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0]), flags([0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(hold(x, start, done), array([0, 0, 3, 3, 5, 5], [2, 2, 2, 2, 2, 2]))


def test_mean_of_others_by_hand():
    """Labels: 0 at the very first reset, 1 … within a batch, steps + 1 … for a start drawn in the batch before."""
    label = jnp.asarray(np.array([[0, -1, 1], [0, 1, 2], [0, -1, 1], [0, 1, -1]]).T)
    returns = array([1, 9, 10], [2, 20, 30], [4, 9, 40], [8, 50, 9])
    others, paired = mean_of_others(returns, label, 2)
    np.testing.assert_array_equal(paired, flags([1, 0, 1], [1, 1, 0], [1, 0, 1], [1, 1, 0]))
    np.testing.assert_allclose(others, array([2, 0, 20], [1, 10, 0], [8, 0, 50], [4, 40, 0]))
    others, paired = mean_of_others(returns, label, 4)
    np.testing.assert_array_equal(paired, flags([1, 0, 1], [1, 1, 0], [1, 0, 1], [1, 1, 0]))
    np.testing.assert_allclose(others[0], [14 / 3, 13 / 3, 11 / 3, 7 / 3])
    np.testing.assert_allclose(others[2, 0], (20 + 40 + 50) / 3)
    assert not mean_of_others(returns, label, 1)[1].any()


def test_a_start_carried_over_is_not_taken_for_one_of_this_batch():
    label = jnp.asarray(
        np.array([[4, 1, -1], [4, 1, 2], [1, 2, 3], [6, -1, -1]]).T
    )  # 3 steps: 4, 5, 6 are carried over
    others, paired = mean_of_others(array([1, 2, 0], [3, 4, 5], [6, 7, 8], [9, 0, 0]), label, 4)
    np.testing.assert_array_equal(paired, flags([1, 1, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0]))
    np.testing.assert_allclose(others[:, 0], [3, 5, 0])
    np.testing.assert_allclose(others[2, 1], 7)


def test_centred_by_hand():
    got = centred(array([1, 7, 3], [5, 9, 9]), flags([1, 0, 1], [1, 0, 0]))
    np.testing.assert_allclose(got, array([-3, 0, 0], [3, 0, 0]))
    np.testing.assert_allclose(centred(array([4, 9]), flags([1, 0])), array([4, 0]))
    np.testing.assert_allclose(centred(array([4, 9]), flags([0, 0])), array([0, 0]))


def test_masked_mean_and_baselines_by_hand():
    assert masked_mean(array([1, 7, 3]), flags([1, 0, 1])) == 2.0
    assert masked_mean(array([1, 7, 3]), flags([0, 0, 0])) == 0.0
    to_go = jnp.asarray([[[1.0, 3.0, 8.0]]])
    np.testing.assert_allclose(baselines(to_go, jnp.asarray([[100.0]])), [[[5.5, 4.5, 2.0]]])
    np.testing.assert_allclose(baselines(to_go[:, :, :1], jnp.asarray([[100.0]])), [[[100.0]]])


@functools.partial(jax.jit, static_argnums=(3, 4))
def pieces(x, label, done, shared, discount):
    start = label >= 0
    average = discounted_average(x, done, discount)
    return mean_of_others(x, label, shared), hold(x, start, done), average, centred(x, start)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(1, 2), (6, 1), (6, 3)]), st.sampled_from([0.0, 0.7, 1.0]))
def test_pieces_against_loops(seed, sizes, discount):
    rng = np.random.default_rng(seed)
    steps, shared = sizes
    N = 2 * shared
    done, x = rng.random((steps, N)) < 0.4, rng.normal(size=(steps, N))
    label = np.full((steps, N), -1)
    for n in range(N):
        resets, following = 0, rng.choice([-1, 0, steps + 1])
        for t in range(steps):
            label[t, n], following = following, -1
            if done[t, n]:
                resets += 1
                following = resets
    start = label >= 0
    with jax.enable_x64(True):
        (others, paired), held, (average, count), middle = pieces(x, label, done, shared, discount)
    for n in range(N):
        value, visited = 0.0, []
        for t in range(steps):
            visited.append(x[t, n])
            trace = [discount ** (len(visited) - 1 - i) for i in range(len(visited))]
            np.testing.assert_allclose(count[t, n], sum(trace), rtol=1e-12)
            np.testing.assert_allclose(average[t, n], np.dot(trace, visited) / sum(trace), rtol=1e-12, atol=1e-12)
            value = x[t, n] if start[t, n] else value
            assert held[t, n] == value
            if done[t, n]:
                value, visited = 0.0, []
            same_start = [
                x[i, m]
                for i, m in np.ndindex(steps, N)
                if m // shared == n // shared and label[i, m] == label[t, n] and (i, m) != (t, n)
            ]
            assert paired[t, n] == (start[t, n] and bool(same_start))
            np.testing.assert_allclose(others[t, n], np.mean(same_start) if paired[t, n] else 0.0, atol=1e-12)
            rest = [x[i, m] for i, m in zip(*np.nonzero(start), strict=True) if (i, m) != (t, n)]
            wanted = x[t, n] - (np.mean(rest) if rest else 0.0) if start[t, n] else 0.0
            np.testing.assert_allclose(middle[t, n], wanted, atol=1e-12)


# --- (9) visited states as queries, and the limits of the weights


def visited_evidence(seed, replicates=1, discount=1.0):
    rng = np.random.default_rng(seed)
    T, N, h, R = 7, 4, 2, replicates
    done = rng.random((T, N)) < 0.35
    terminated = done & (rng.random((T, N)) < 0.5)
    label = np.where(np.concatenate([np.zeros((1, N), bool), done[:-1]]), 1, -1)
    states = rng.integers(0, S, (T, N))
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))  # noqa: E731
    trajectory = Trajectory(
        observation=states,
        action=jnp.zeros((T, N), int),
        log_prob=draw(T, N),
        reward=draw(T, N),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(done & ~terminated),
        start_label=jnp.asarray(label),
        final_observation=draw(1, N),
        last_observation=draw(N),
    )
    alive = jnp.asarray(np.cumprod(rng.random((h, K, R)) < 0.8, axis=0).astype(bool))
    zeros = jnp.zeros((h, K, R), int)
    rollout = AssessmentRollout(zeros, zeros, draw(h, K, R), jnp.where(alive, draw(h, K, R), 0.0), alive)
    observed = observe(Returns(), rollout, None, discount)
    return Evidence(trajectory, draw(T, N), draw(T, N), rollout, observed, draw(h, K), draw()), states


@pytest.mark.parametrize("gradient", ["critic", "printed"])
@pytest.mark.parametrize("discount", [0.9, 1.0])
@pytest.mark.parametrize(
    ("max_shift", "stride", "apart"), [(1e9, None, 1.0), (0.3, 1, 1.0), (0.3, 1, 0.01), (1e9, 3, 1.0)]
)
def test_visited_queries_against_loops(gradient, discount, max_shift, stride, apart):
    """w = 1 − 2β z with z the discounted average of d over the states visited so far; the assessment has the share of the mean
    of 1/trace, u = 2β mean[d ∂V̂/∂G], and nothing after its end. d is clipped so that w stays within 1 ± max_shift, and
    the assessment's advantages are scaled down until they add up to no more than max_shift deviations of G − V.
    In a thinned batch, u is the mean over every n-th step."""
    evidence, states = visited_evidence(0, discount=0.8)
    evidence = evidence._replace(returns=evidence.value + apart * (evidence.returns - evidence.value))
    wanted = Objective(gradient, "visited", 0.0, 1, max_shift, discount)
    thinning = Thinning(stride or 1)
    weights, metrics = weigh(wanted, evidence, at_states(CURVED, states), jnp.float64(BETA), thinning=thinning)
    reward = np.asarray(evidence.rollout.reward)[..., 0]
    to_go = np.stack([reward[0] + 0.8 * reward[1], reward[1]])
    known = np.asarray(evidence.value if gradient == "critic" else evidence.returns)
    error = known - np.asarray(CURVED(to_go[0]))[states]
    error = np.clip(error, -max_shift / (2 * BETA), max_shift / (2 * BETA))
    done = np.asarray(evidence.trajectory.done)
    weight, ones = np.zeros_like(error), np.zeros_like(error)
    for n in range(error.shape[1]):
        total = count = 0.0
        for t in range(error.shape[0]):
            total, count = discount * total + error[t, n], discount * count + 1
            weight[t, n], ones[t, n] = 1 - 2 * BETA * total / count, count
            if done[t, n]:
                total = count = 0.0
    np.testing.assert_allclose(weights.weight, weight, atol=1e-12)
    assert np.abs(weight - 1).max() <= max_shift + 1e-12
    some, at = error[::stride], states[::stride]
    u = 2 * BETA * np.einsum("tn,tni->i", some, CURVED.slope(to_go[0])[at]) / some.size
    advantage = (1 / ones).mean() * u[None] * (to_go - np.asarray(evidence.baseline))
    alive = np.asarray(evidence.rollout.alive)[..., 0]
    reach = max_shift * np.std(np.asarray(evidence.returns - evidence.value))
    scale = min(1.0, reach / np.abs(advantage[alive]).sum())
    wanted = np.where(alive, scale * advantage, 0)
    np.testing.assert_allclose(weights.advantage.reshape(to_go.shape), wanted, atol=1e-12)
    np.testing.assert_allclose(metrics["assessment_weight_max"], scale * u.max(), atol=1e-12)
    assert bool(metrics["weights_bounded"]) == (scale < 1) == (apart == 0.01)
    assert not alive.all()
    assert not np.asarray(weights.bonus).any()
    np.testing.assert_allclose(metrics["weight_mean"], weight.mean(), atol=1e-12)


@pytest.mark.parametrize("gradient", ["paired", "critic", "printed", "score"])
def test_without_beta_there_is_nothing(gradient):
    evidence, states = visited_evidence(1, replicates=2)
    for queries in ("visited", "start"):
        wanted = Objective(gradient, queries, 0.0, 2, 2.0, 0.9)
        weights, _ = weigh(wanted, evidence, at_states(CURVED, states), jnp.float64(0.0))
        assert (np.asarray(weights.weight) == 1.0).all()
        assert not np.asarray(weights.bonus).any()
        assert not np.asarray(weights.advantage).any()


def test_a_batch_without_a_start_leaves_the_gradient_alone():
    evidence, states = visited_evidence(2)
    trajectory = evidence.trajectory.replace(start_label=jnp.full((7, 4), -1))
    for gradient in ("paired", "critic", "printed", "score"):
        wanted = Objective(gradient, "start", 0.5, 2, 2.0, 0.9)
        without = evidence._replace(trajectory=trajectory)
        weights, _ = weigh(wanted, without, at_states(CURVED, states), jnp.float64(BETA))
        assert (np.asarray(weights.weight) == 1.0).all()
        assert not np.asarray(weights.bonus).any()
        assert not np.asarray(weights.advantage).any()
