"""The evaluation-aware policy gradient: J − βL as scalar weights on ordinary advantages.

With L = E_s[d(s)²], d(s) = V(s) − V̂(s | Ξ), and the distribution of the query states held fixed,

    ∇(J − βL) = E_s[(1 − 2β d(s)) ∇V(s)] + 2β E_s[d(s) ∂V̂(s)/∂Ξ] ∇Ξ

so a deployment step is weighted with w = 1 − 2β d, and the behaviour Ξ has the cotangent u = 2β mean_s[d(s) ∂V̂(s)/∂Ξ], by one
pull-back of d through V̂. What was rolled out (the returns of the assessment) is differentiated by the score function: u
weighs the steps of the assessment rollouts. What is a function of the policy itself is differentiated pathwise. How d is
estimated is the option `gradient`:

    exact     as paired for w, and d² times the score of the assessment instead of u: see below
    paired    mean return of other rollouts from the same start state − V̂: unbiased for d
    critic    critic's value − V̂: lowest variance, biased by the critic's error
    printed   this rollout's own return − V̂: the paper's formula, which also penalises the variance of returns
    score     (G − V̂)² times the score of all rollouts: unbiased for the gradient of L + Var(G)

The pull-back is a linearisation where Ξ is random, and vanishes where V̂ has not learnt to use Ξ. V̂ depends on the policy only
through Ξ, so that without linearisation, over contexts c of a family of worlds,

    ∇(J − βL) = E_c[(1 − 2β d_c) ∇V_c] − β E_c,Ξ[d_c(Ξ)² ∇log p(Ξ | c)]

This is `exact`: every step of the assessment in context c has the advantage −β (d̂_c² − baseline), where d̂² is the product of two
independent errors, (G − V̂)(G' − V̂). Whatever does not depend on this context's assessment may be subtracted. First, the same
product with the prediction V̂° from the usual behaviour, a running mean of earlier updates: what remains,
(V̂° − V̂)(G + G' − V̂ − V̂°), is how much the prediction lost or gained by this assessment, and is 0, without any noise, where the
evaluator does not use it. Second, the mean of that over the other contexts. With the shape `assessment` the deployment weights
stay at 1.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from evarl.agents.gradient_weights import GradientWeights, PathwiseTerm
from evarl.agents.trajectory import Trajectory
from evarl.assessment.behaviour import Behaviour, Observed
from evarl.simulation.rollouts import AssessmentRollout


@dataclass(frozen=True)
class Objective:
    """The settings of the objective."""

    gradient: Literal["exact", "paired", "critic", "printed", "score"]
    queries: Literal["visited", "start"]
    beta_variance: float
    rollouts_per_start: int
    max_shift: float
    discount: float
    shape: Literal["both", "assessment"] = "both"
    contexts: int = 1
    entropy: float = 0.0
    """Weight of the entropy bonus in the assessment."""


class Evidence(NamedTuple):
    """What is known of the current policy in one update."""

    trajectory: Trajectory
    returns: Float[Array, "T N"]
    """Return-to-go."""
    value: Float[Array, "T N"]
    """The critic's value."""
    rollout: AssessmentRollout
    observed: Observed
    """Its behaviour in the assessment."""
    baseline: Any
    """[h, k, ...] running mean of `observed.to_go`, from earlier updates."""
    loss_baseline: Float[Array, ""]
    """Running mean of the squared error at start states, from earlier updates."""
    predicted: Float[Array, "T N"] | None = None
    """V̂ at every state of the batch, if it is known already."""
    policy: Any = None
    """The policy as the memory keeps it; None unless probes are learnt."""


class Thinning(NamedTuple):
    """Every `stride`-th step of every `skip`-th environment: enough for an average over visited states."""

    stride: int = 1
    skip: int = 1

    def of(self, x: Array) -> Array:
        """The rows of a batch [T, N, ...] that are kept."""
        return x[:: self.stride, :: self.skip]


EVERY = Thinning()

Predict = Callable[[Behaviour, Thinning], Float[Array, "T N"]]
"""V̂ at the states of a (thinned) batch as a function of the behaviour Ξ."""


def weigh(
    objective: Objective,
    evidence: Evidence,
    predict: Predict,
    beta: Float[Array, ""],
    ramp: Float[Array, ""] | float = 1.0,
    thinning: Thinning = EVERY,
) -> tuple[GradientWeights, dict[str, Array]]:
    """The weights of one policy update, and metrics about them.

    w needs V̂ at every state of the batch. u is an average over states, and for visited states the thinned batch is enough.
    `ramp` scales the variance penalty, as β is scaled by the caller.
    """
    trajectory, rollout = evidence.trajectory, evidence.rollout
    start, done = trajectory.start_label >= 0, trajectory.terminated | trajectory.truncated
    predicted = evidence.predicted
    if predicted is None:
        predicted = predict(evidence.observed.behaviour, EVERY)
    others, paired = mean_of_others(evidence.returns, trajectory.start_label, objective.rollouts_per_start)
    error, valid = _errors(objective, evidence, predicted, others, paired)
    limit = objective.max_shift / (2.0 * jnp.maximum(beta, 1e-12))
    shift = jnp.where(valid, jnp.clip(error, -limit, limit), 0.0)
    average, share = _averages(objective, start, done, shift)

    bonus, weight, slope = jnp.zeros_like(shift), 1.0 - 2.0 * beta * average, None
    thinning = thinning if objective.queries == "visited" else EVERY
    some = lambda behaviour: predict(behaviour, thinning)  # noqa: E731
    u = jax.tree.map(lambda x: jnp.zeros_like(x[0]), evidence.observed.to_go)
    if objective.gradient in ("exact", "score"):
        squared, counted = squared_errors(objective, evidence, predicted)
        if objective.gradient == "exact" and objective.contexts > 1:
            blind = predict(usual_behaviour(evidence, objective.contexts), EVERY)
            squared -= squared_errors(objective, evidence, blind)[0]
        advantage = -share * beta * _surprise(objective, evidence, squared, counted)
        if objective.gradient == "score":
            weight = jnp.ones_like(shift)
            bonus -= beta * hold(centred(squared, start), start, done)
        if evidence.observed.behaviour.pathwise is not None:
            slope = pathwise_weights(beta, shift, valid, evidence.observed.behaviour, some)
    else:
        u, slope = behaviour_weights(beta, thinning.of(shift), thinning.of(valid), evidence.observed, some)
        advantage = _assessment_advantages(share, u, evidence)
    if objective.shape == "assessment":
        weight, bonus = jnp.ones_like(weight), jnp.zeros_like(bonus)
    scale = bound(objective, evidence, jnp.where(rollout.alive, advantage, 0.0))
    pathwise, held = (None, scale) if slope is None else _pathwise_term(objective, evidence, share, slope)
    if objective.beta_variance > 0:
        spread = jnp.where(start & paired, (evidence.returns - others) ** 2, 0.0)
        centre = centred_by_start(spread, trajectory.start_label, start & paired, objective.rollouts_per_start)
        bonus -= objective.beta_variance * ramp * hold(centre, start, done)
    weights = _gradient_weights(weight, bonus, rollout, scale * advantage, pathwise)
    if objective.entropy > 0:
        alive = rollout.alive.astype(advantage.dtype)
        weights = weights.replace(entropy=(objective.entropy * alive / alive.sum()).reshape(-1))
    bounded = (scale < 1.0) if pathwise is None else (scale < 1.0) | (held < 1.0)
    shown = _metrics(weight, scale, u) if jax.tree.leaves(u) else _metrics(weight, held, slope)
    return jax.lax.stop_gradient(weights), shown | {"weights_bounded": bounded.astype(weight.dtype)}


def _errors(
    objective: Objective,
    evidence: Evidence,
    predicted: Float[Array, "T N"],
    others: Float[Array, "T N"],
    paired: Bool[Array, "T N"],
) -> tuple[Float[Array, "T N"], Bool[Array, "T N"]]:
    """The estimate of d at every state of the batch, and the states at which it counts."""
    start = evidence.trajectory.start_label >= 0
    known = {"exact": others, "paired": others, "critic": evidence.value}
    known |= {"printed": evidence.returns, "score": evidence.returns}
    everywhere = start if objective.queries == "start" else jnp.ones_like(start)
    valid = {"exact": start & paired, "paired": start & paired, "score": start}.get(objective.gradient, everywhere)
    return known[objective.gradient] - predicted, valid


def squared_errors(
    objective: Objective, evidence: Evidence, predicted: Float[Array, "T N"]
) -> tuple[Float[Array, "T N"], Bool[Array, "T N"]]:
    """The squared error at every start state of the batch, and where it is known.

    For `exact` it is the product of independent errors, which is unbiased for (V − V̂)². Elsewhere it is (G − V̂)², which also
    contains the variance of the return.
    """
    if objective.gradient == "exact":
        return product_of_errors(evidence, predicted, objective.rollouts_per_start)
    return (evidence.returns - predicted) ** 2, evidence.trajectory.start_label >= 0


def product_of_errors(
    evidence: Evidence, predicted: Float[Array, "T N"], rollouts_per_start: int
) -> tuple[Float[Array, "T N"], Bool[Array, "T N"]]:
    """(G − V̂)(G' − V̂) at start states, where G' is the mean of the other rollouts from there, and where there are others.

    The rollouts are independent, so their noise averages out: it is unbiased for (V − V̂)².
    """
    others, paired = mean_of_others(evidence.returns, evidence.trajectory.start_label, rollouts_per_start)
    return (evidence.returns - predicted) * (others - predicted), paired


def mean_squared_error(objective: Objective, evidence: Evidence, predicted: Float[Array, "T N"]) -> Float[Array, ""]:
    """The mean of `squared_errors`."""
    return masked_mean(*squared_errors(objective, evidence, predicted))


def usual_behaviour(evidence: Evidence, contexts: int) -> Behaviour:
    """The mean of what earlier policies showed, in every context: it does not depend on the present assessment."""
    mean = jax.tree.map(lambda x: jnp.concatenate([x[0]] * contexts), evidence.baseline)
    return evidence.observed.behaviour.replace(rolled_out=mean)


def _surprise(
    objective: Objective, evidence: Evidence, squared: Float[Array, "T N"], where: Bool[Array, "T N"]
) -> Float[Array, "h k R"]:
    """By how much the squared error of a context exceeds its baseline, for each of its assessment steps, over C.

    The baseline is the mean over the other contexts of the batch, which do not depend on this one's assessment; with a
    single context it is a running mean.
    """
    contexts = objective.contexts
    if not jax.tree.leaves(evidence.observed.to_go):  # predictions do not depend on what happens in the assessment
        return jnp.zeros_like(evidence.rollout.reward)
    if contexts == 1:
        return (masked_mean(squared, where) - evidence.loss_baseline) * jnp.ones_like(evidence.rollout.reward)
    total, count = (
        jnp.where(where, x, 0.0).reshape(x.shape[0], contexts, -1).sum(axis=(0, 2))
        for x in (squared, jnp.ones_like(squared))
    )
    mean, known = total / jnp.maximum(count, 1.0), count > 0.5
    others = jnp.where(known, mean, 0.0).sum() - mean
    rest = jnp.maximum(known.sum() - 1, 1).astype(mean.dtype)
    excess = jnp.where(known, mean - others / rest, 0.0) / contexts
    rollout = evidence.rollout.reward
    return jnp.repeat(excess, rollout.shape[1] // contexts)[None, :, None] * jnp.ones_like(rollout)


def _averages(
    objective: Objective, start: Bool[Array, "T N"], done: Bool[Array, "T N"], shift: Float[Array, "T N"]
) -> tuple[Float[Array, "T N"], Float[Array, ""]]:
    """The errors that weigh each deployment step, and the share of the assessment in a mean over the batch."""
    if objective.queries == "visited":
        average, count = discounted_average(shift, done, objective.discount)
        return average, jnp.mean(1.0 / count)
    return hold(shift, start, done), jnp.mean(start.astype(shift.dtype))


def pathwise_weights(
    beta: Float[Array, ""],
    error: Float[Array, "T N"],
    valid: Bool[Array, "T N"],
    behaviour: Behaviour,
    predict: Callable[[Behaviour], Float[Array, "T N"]],
) -> Any:
    """2β mean_s[d(s) ∂V̂(s)/∂Ξ] for the part of Ξ that is a function of the policy, [k, ...]; no linearisation."""
    _, pull = jax.vjp(lambda pathwise: predict(behaviour.replace(pathwise=pathwise)), behaviour.pathwise)
    count = jnp.maximum(valid.sum(), 1).astype(error.dtype)
    return jax.tree.map(lambda x: 2.0 * beta * x, pull(jnp.where(valid, error, 0.0) / count)[0])


def behaviour_weights(
    beta: Float[Array, ""],
    error: Float[Array, "T N"],
    valid: Bool[Array, "T N"],
    observed: Observed,
    predict: Callable[[Behaviour], Float[Array, "T N"]],
) -> tuple[Any, Any]:
    """U = 2β mean_s[d(s) ∂V̂(s)/∂Ξ]: [k, R, ...] for what was rolled out, and [k, ...] or None for the pathwise part.

    With several replicates, the weight of a replicate uses d and ∂V̂ at the mean of the *others*, so that it is
    independent of the rollout whose score it multiplies; with one there is no other.
    """
    if not jax.tree.leaves(observed.to_go):
        return None, pathwise_weights(beta, error, valid, observed.behaviour, predict)
    returns = jax.tree.map(lambda x: x[0], observed.to_go)  # [k, R, ...]
    replicates = jax.tree.leaves(returns)[0].shape[1]
    count = jnp.maximum(valid.sum(), 1).astype(error.dtype)

    def pull_back(behaviour: Behaviour, error: Float[Array, "T N"]) -> Behaviour:
        _, pull = jax.vjp(predict, behaviour)
        return pull(jnp.where(valid, error, 0.0) / count)[0]

    whole = observed.behaviour
    if replicates == 1:
        slope = jax.tree.map(lambda x: 2.0 * beta * x, pull_back(whole, error))
        return jax.tree.map(lambda x: x[:, None], slope.rolled_out), slope.pathwise
    rest = jax.tree.map(lambda x: (x.sum(axis=1, keepdims=True) - x) / (replicates - 1), returns)
    predicted = predict(whole)

    def slope_at(rolled_out: Any, error_at: Any) -> Behaviour:
        """The cotangent where V̂ has the slope of one behaviour and d is the error of another."""
        error_there = error + predicted - predict(whole.replace(rolled_out=error_at))
        return pull_back(whole.replace(rolled_out=rolled_out), error_there)

    others = jax.vmap(lambda rest: slope_at(rest, rest).rolled_out, in_axes=1, out_axes=1)(rest)
    u = jax.tree.map(lambda x: 2.0 * beta * x, others)
    if whole.pathwise is None:
        return u, None
    # no score multiplies this part, so that d and the slope only have to be independent of each other
    pathwise = jax.vmap(lambda rest, own: slope_at(rest, own).pathwise, in_axes=1)(rest, returns)
    return u, jax.tree.map(lambda x: 2.0 * beta * x.mean(axis=0), pathwise)


def _pathwise_term(
    objective: Objective, evidence: Evidence, share: Float[Array, ""], slope: Any
) -> tuple[PathwiseTerm, Float[Array, ""]]:
    """The part of the gradient that goes through Ξ directly, and the factor that bounds it."""
    slope = jax.tree.map(lambda x: share * x, slope)
    scale = bound(objective, evidence, slope)
    return PathwiseTerm(jax.tree.map(lambda x: scale * x, slope), evidence.observed.pathwise), scale


def _assessment_advantages(share: Float[Array, ""], u: Any, evidence: Evidence) -> Float[Array, "h k R"]:
    """What multiplies the score of each assessment step: u times the advantage of the step, over all statistics."""

    def term(u: Array, to_go: Array, running: Array) -> Float[Array, "h k R"]:
        contexts = to_go.shape[1] // running.shape[1]
        running = running if contexts == 1 else jnp.concatenate([running] * contexts, axis=1)
        each = share * u[None] * (to_go - baselines(to_go, running)) / to_go.shape[2]
        return each.sum(axis=tuple(range(3, each.ndim))) if each.ndim > 3 else each

    terms = jax.tree.leaves(jax.tree.map(term, u, evidence.observed.to_go, evidence.baseline))
    return functools.reduce(jnp.add, terms) if terms else jnp.zeros_like(evidence.rollout.reward)


def bound(objective: Objective, evidence: Evidence, weights: Any) -> Float[Array, ""]:
    """The factor that the assessment's advantages, or its cotangents, are multiplied by; 1 unless they outweigh the batch.

    They are summed in the policy gradient, beside the mean of deployment advantages whose weights stay within
    1 ± max_shift. So their sizes add up to at most max_shift standard deviations of those advantages.
    """
    total = functools.reduce(jnp.add, [jnp.abs(x).sum() for x in jax.tree.leaves(weights)])
    reach = objective.max_shift * jnp.std(evidence.returns - evidence.value)
    return jnp.where(total > reach, reach / jnp.maximum(total, 1e-30), 1.0)


def _gradient_weights(
    weight: Float[Array, "T N"],
    bonus: Float[Array, "T N"],
    rollout: AssessmentRollout,
    advantage: Float[Array, "h k R"],
    pathwise: PathwiseTerm | None,
) -> GradientWeights:
    steps = rollout.log_prob.size
    return GradientWeights(
        weight=weight,
        bonus=bonus,
        observation=rollout.observation.reshape(steps, *rollout.observation.shape[3:]),
        action=rollout.action.reshape(steps, *rollout.action.shape[3:]),
        log_prob=rollout.log_prob.reshape(steps),
        advantage=jnp.where(rollout.alive, advantage, 0.0).reshape(steps),
        pathwise=pathwise,
    )


def _metrics(weight: Float[Array, "T N"], scale: Float[Array, ""], u: Any) -> dict[str, Array]:
    leaves = jax.tree.leaves(u)
    all_u = leaves[0] if len(leaves) == 1 else jnp.concatenate([leaf.reshape(-1) for leaf in leaves])
    metrics = {f"weight_{name}": getattr(weight, name)() for name in ("mean", "min", "max")}
    return metrics | {f"assessment_weight_{name}": scale * getattr(all_u, name)() for name in ("mean", "min", "max")}


def baselines(
    to_go: Float[Array, "h k R *shape"], running: Float[Array, "h k *shape"]
) -> Float[Array, "h k #R *shape"]:
    """What is subtracted from rewards-to-go: the mean of the other replicates, or with one replicate a running mean."""
    replicates = to_go.shape[2]
    if replicates == 1:
        return running[:, :, None]
    return (to_go.sum(axis=2, keepdims=True) - to_go) / (replicates - 1)


def mean_of_others(
    returns: Float[Array, "T N"], label: Int[Array, "T N"], rollouts_per_start: int
) -> tuple[Float[Array, "T N"], Bool[Array, "T N"]]:
    """For each step that begins an episode, the mean return of the *other* episodes of this batch from that start state.

    Environments are grouped by `rollouts_per_start`; equal labels within a group mean the same start state. The second
    result says where there was another episode.
    """
    total, count = (total_by_start(x, label, rollouts_per_start) for x in (returns, jnp.ones_like(returns)))
    paired = (label >= 0) & (count > 1.5)
    return jnp.where(paired, (total - returns) / jnp.maximum(count - 1.0, 1.0), 0.0), paired


def total_by_start(x: Float[Array, "T N"], label: Int[Array, "T N"], rollouts_per_start: int) -> Float[Array, "T N"]:
    """For each step that begins an episode, the sum of x over all episodes of this batch that begin at the same state."""
    steps, environments = x.shape
    start = label >= 0
    group = jnp.arange(environments) // rollouts_per_start
    labels = 2 * steps + 1
    place = jnp.where(start, group[None] * labels + label, 0)
    segments = labels * (-(-environments // rollouts_per_start))
    sums = jax.ops.segment_sum(jnp.where(start, x, 0.0).reshape(-1), place.reshape(-1), segments)
    return sums[place]


def discounted_average(
    x: Float[Array, "T N"], done: Bool[Array, "T N"], discount: float
) -> tuple[Float[Array, "T N"], Float[Array, "T N"]]:
    """γ-discounted average of x over the states visited so far in the episode, and the trace of ones that it divides by.

    The trace begins anew with each episode and with each batch, since earlier errors are those of another policy.
    """

    def forwards(
        carry: tuple[Array, Array], now: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        total, count = carry
        x, done = now
        total, count = discount * total + x, discount * count + 1.0
        following = jnp.where(done, 0.0, total), jnp.where(done, 0.0, count)
        return following, (total / count, count)

    zeros = jnp.zeros_like(x[0])
    return jax.lax.scan(forwards, (zeros, zeros), (x, done))[1]


def hold(x: Float[Array, "T N"], start: Bool[Array, "T N"], done: Bool[Array, "T N"]) -> Float[Array, "T N"]:
    """The value of x at the start of the episode, held to its end; 0 in episodes that began before the batch."""

    def forwards(held: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        x, start, done = now
        held = jnp.where(start, x, held)
        return jnp.where(done, 0.0, held), held

    return jax.lax.scan(forwards, jnp.zeros_like(x[0]), (x, start, done))[1]


def centred(x: Float[Array, "T N"], where: Bool[Array, "T N"]) -> Float[Array, "T N"]:
    """X minus the mean of the other chosen entries: a baseline that does not depend on the entry itself."""
    count = where.sum().astype(x.dtype)
    others = (jnp.where(where, x, 0.0).sum() - x) / jnp.maximum(count - 1.0, 1.0)
    return jnp.where(where, x - jnp.where(count > 1.5, others, 0.0), 0.0)


def centred_by_start(
    x: Float[Array, "T N"], label: Int[Array, "T N"], where: Bool[Array, "T N"], rollouts_per_start: int
) -> Float[Array, "T N"]:
    """Entries minus the mean over *other start states*.

    For quantities that the rollouts from one start state share, such as their distance from one another, the others of
    the same start are no baseline: they depend on the entry's own rollout, and the bias can cancel the whole gradient.
    """
    inside, ones = jnp.where(where, x, 0.0), where.astype(x.dtype)
    same, many = (total_by_start(y, label, rollouts_per_start) for y in (inside, ones))
    count = ones.sum() - many
    others = jnp.where(count > 0.5, (inside.sum() - same) / jnp.maximum(count, 1.0), 0.0)
    return jnp.where(where, x - others, 0.0)


def masked_mean(x: Float[Array, "T N"], where: Bool[Array, "T N"]) -> Float[Array, ""]:
    """Mean over the chosen entries; 0 when there are none."""
    return jnp.where(where, x, 0.0).sum() / jnp.maximum(where.sum(), 1).astype(x.dtype)
