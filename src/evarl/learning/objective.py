"""The evaluation-aware policy gradient: J − βL as scalar weights on ordinary advantages.

With L = E_s[d(s)²], d(s) = V(s) − V̂(s | Ξ), and the distribution of the query states held fixed,

    ∇(J − βL) = E_s[(1 − 2β d(s)) ∇V(s)] + 2β Σ_i E_s[d(s) ∂V̂(s)/∂G^i] ∇E[G^i]

so a deployment step is weighted with w = 1 − 2β d and the steps of assessment rollout i with
u_i = 2β mean_s[d(s) ∂V̂(s)/∂G^i]. How d is estimated is the option `gradient`:

    paired    mean return of other rollouts from the same start state − V̂: unbiased for d
    critic    critic's value − V̂: lowest variance, biased by the critic's error
    printed   this rollout's own return − V̂: the paper's formula, which also punishes the variance of returns
    score     (G − V̂)² times the score of all rollouts: unbiased for the gradient of L + Var(G)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.trajectory import Trajectory
from evarl.simulation.rollouts import AssessmentRollout

Predict = Callable[[Float[Array, " k"]], Float[Array, "T N"]]
"""V̂ at every state of the batch as a function of the assessment returns Ξ."""


@dataclass(frozen=True)
class Objective:
    """The fixed part of the objective."""

    gradient: Literal["paired", "critic", "printed", "score"]
    queries: Literal["visited", "start"]
    beta_variance: float
    rollouts_per_start: int
    max_shift: float
    discount: float
    assessment_discount: float


class Evidence(NamedTuple):
    """What is known of the current policy in one update."""

    trajectory: Trajectory
    returns: Float[Array, "T N"]
    """Return-to-go."""
    value: Float[Array, "T N"]
    """The critic's value."""
    showing: AssessmentRollout
    baseline: Float[Array, "h k"]
    """Running mean of the assessment's rewards-to-go, from earlier updates."""
    loss_baseline: Float[Array, ""]
    """Running mean of the squared error at start states, from earlier updates."""


class Thinned(NamedTuple):
    """Every n-th step of every m-th environment, and V̂ there: enough for an average over visited states."""

    stride: int
    predict: Predict
    skip: int = 1


def guide(
    objective: Objective,
    beta: Float[Array, ""],
    evidence: Evidence,
    predict: Predict,
    thinned: Thinned | None = None,
    ramp: Float[Array, ""] | float = 1.0,
) -> tuple[GradientWeights, dict[str, Array]]:
    """Weights, bonus and assessment advantages for one policy update, and what they look like.

    w wants V̂ at every state of the batch. u is an average over states, and for visited states the thinned batch does.
    `ramp` scales the variance penalty, as β is scaled by whoever calls.
    """
    trajectory, showing = evidence.trajectory, evidence.showing
    start = trajectory.start_label >= 0
    to_go = showing.rewards_to_go(objective.assessment_discount)  # [h, k, R]
    shown = to_go[0].mean(axis=1)
    predicted = jax.lax.stop_gradient(predict(shown))
    others, paired = mean_of_others(evidence.returns, trajectory.start_label, objective.rollouts_per_start)
    error = {"paired": others, "critic": evidence.value, "printed": evidence.returns, "score": evidence.returns}[
        objective.gradient
    ] - predicted
    valid = {"paired": start & paired, "score": start}.get(
        objective.gradient, start if objective.queries == "start" else jnp.ones_like(start)
    )
    limit = objective.max_shift / (2.0 * jnp.maximum(beta, 1e-12))
    shift = jnp.where(valid, jnp.clip(error, -limit, limit), 0.0)

    if objective.queries == "visited":
        average, count = discounted_average(shift, trajectory.done, objective.discount)
        share = jnp.mean(1.0 / count)
    else:
        average = hold(shift, start, trajectory.done)
        share = jnp.mean(start.astype(shift.dtype))

    bonus = jnp.zeros_like(shift)
    if objective.gradient == "score":
        weight, u = jnp.ones_like(shift), jnp.zeros_like(to_go[0])
        squared = error**2
        bonus -= beta * hold(centred(squared, start), start, trajectory.done)
        surprise = masked_mean(squared, start) - evidence.loss_baseline
        advantage = -share * beta * surprise * jnp.ones_like(to_go)
    else:
        weight = 1.0 - 2.0 * beta * average
        stride, some, skip = thinned if thinned and objective.queries == "visited" else Thinned(1, predict)
        u = assessment_weights(beta, shift[::stride, ::skip], valid[::stride, ::skip], to_go[0], some)
        advantage = share * u[None] * (to_go - baselines(to_go, evidence.baseline)) / to_go.shape[2]
    scale = bound(objective, evidence, jnp.where(showing.alive, advantage, 0.0))
    advantage = scale * advantage
    if objective.beta_variance > 0:
        spread = jnp.where(start & paired, (evidence.returns - others) ** 2, 0.0)
        centre = centred_by_start(spread, trajectory.start_label, start & paired, objective.rollouts_per_start)
        bonus -= objective.beta_variance * ramp * hold(centre, start, trajectory.done)

    steps = showing.log_prob.size
    guidance = GradientWeights(
        weight=weight,
        bonus=bonus,
        observation=showing.observation.reshape(steps, *showing.observation.shape[3:]),
        action=showing.action.reshape(steps, *showing.action.shape[3:]),
        log_prob=showing.log_prob.reshape(steps),
        advantage=jnp.where(showing.alive, advantage, 0.0).reshape(steps),
    )
    metrics = {
        "weight_mean": weight.mean(),
        "weight_min": weight.min(),
        "weight_max": weight.max(),
        "assessment_weight_mean": scale * u.mean(),
        "assessment_weight_min": scale * u.min(),
        "assessment_weight_max": scale * u.max(),
        "weights_bounded": (scale < 1.0).astype(u.dtype),
    }
    return jax.lax.stop_gradient(guidance), metrics


def bound(objective: Objective, evidence: Evidence, advantage: Float[Array, "h k R"]) -> Float[Array, ""]:
    """What the assessment's advantages are multiplied by; 1 unless they outweigh the deployment batch.

    They are summed in the policy gradient, beside the mean of deployment advantages whose weights stay within
    1 ± max_shift. So their sizes add up to at most max_shift standard deviations of those advantages.
    """
    total = jnp.abs(advantage).sum()
    reach = objective.max_shift * jnp.std(evidence.returns - evidence.value)
    return jnp.where(total > reach, reach / jnp.maximum(total, 1e-30), 1.0)


def assessment_weights(
    beta: Float[Array, ""],
    error: Float[Array, "T N"],
    valid: Bool[Array, "T N"],
    returns: Float[Array, "k R"],
    predict: Predict,
) -> Float[Array, "k R"]:
    """u_i = 2β mean_s[d(s) ∂V̂(s)/∂G^i], by one pull-back of d through V̂.

    With several replicates, the weight of a replicate uses d and ∂V̂ at the mean of the *others*, so that it is
    independent of the rollout whose score it multiplies; with one there is no other.
    """
    replicates = returns.shape[1]
    count = jnp.maximum(valid.sum(), 1).astype(error.dtype)

    def pull_back(shown: Float[Array, " k"], error: Float[Array, "T N"]) -> Float[Array, " k"]:
        _, pull = jax.vjp(predict, shown)
        return pull(jnp.where(valid, error, 0.0) / count)[0]

    whole = returns.mean(axis=1)
    if replicates == 1:
        return 2.0 * beta * pull_back(whole, error)[:, None]
    rest = (returns.sum(axis=1, keepdims=True) - returns) / (replicates - 1)  # [k, R]
    predicted = predict(whole)
    one = lambda shown: pull_back(shown, error + predicted - predict(shown))  # noqa: E731
    return 2.0 * beta * jax.vmap(one, in_axes=1, out_axes=1)(rest)


def baselines(to_go: Float[Array, "h k R"], running: Float[Array, "h k"]) -> Float[Array, "h k R"]:
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
    """γ-discounted average of x over the states met so far in the episode, and the trace of ones that it divides by.

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
