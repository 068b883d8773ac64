"""What evaluation-aware learning adds to ordinary learning: remember → fit → weigh, each a pure function."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Shaped

from evarl.agents.acting import ActingPolicy, no_policies
from evarl.agents.advantages import next_values, returns_to_go
from evarl.agents.agent import Agent, Metrics
from evarl.agents.gradient_weights import GradientWeights
from evarl.agents.trajectory import Trajectory
from evarl.assessment.assessment import Assessment
from evarl.assessment.behaviour import Behaviour, BehaviourKind, observe
from evarl.evaluators.evaluator import Evaluator, EvaluatorState, LearntEvaluator, Offered
from evarl.evaluators.knowledge import Knowledge, Known
from evarl.evaluators.memory import Memory, PolicyRecord, Reservoir, empty_slots
from evarl.evaluators.targets import following
from evarl.keys import split
from evarl.learning.configuration import TrainConfig
from evarl.learning.control import Dual, Warmup, raise_beta, record_error, running_rate, watch_skill
from evarl.learning.weigh import (
    EVERY,
    Evidence,
    Objective,
    Thinning,
    masked_mean,
    mean_squared_error,
    product_of_errors,
    weigh,
)
from evarl.simulation.rollouts import AssessmentRollout
from evarl.worlds.world import Key

ENOUGH = 256
"""Visited states over which averages are taken where the whole batch is not needed."""
STARTS = 4
"""Episodes of each environment in a batch, the first ones, whose start states count where an evaluator knows no others."""
DIVERSE = 64
"""States kept of each policy in a reservoir."""


class EvaluationState(struct.PyTreeNode):
    """Everything that evaluation-aware learning carries from update to update."""

    evaluator: EvaluatorState
    memory: Memory | None
    """None when the evaluator is frozen."""
    baseline: Any
    """[h, k, ...] running mean of what steps of the assessment contribute to the behaviour."""
    loss_baseline: Float[Array, ""]
    """Running mean of the squared error at start states."""
    batch_mean: Float[Array, ""]
    """Mean return-to-go of the last batch: the simplest predictor without Ξ."""
    lowest: Behaviour
    """Least and greatest behaviour seen so far, leaf by leaf: beyond them the evaluator has learnt nothing."""
    highest: Behaviour
    warmup: Warmup | None = None
    """None unless the warm-up ends by itself."""
    dual: Dual | None = None
    """None unless β follows a target of the evaluation error."""


@dataclass(frozen=True, eq=False)
class Evaluability:
    """The fixed part: the assessment, the kind of behaviour, the evaluator and the objective."""

    config: TrainConfig
    assessment: Assessment
    behaviour: BehaviourKind
    evaluator: Evaluator
    frozen: LearntEvaluator | None

    @property
    def objective(self) -> Objective:
        """The settings of the policy gradient."""
        config = self.config
        return Objective(
            gradient=config.gradient,
            shape=config.shape,
            queries=config.queries,
            contexts=self.contexts,
            entropy=config.assessment.entropy_coefficient,
            beta_variance=config.beta_variance,
            rollouts_per_start=config.rollouts_per_start,
            max_shift=config.max_shift,
            discount=config.discount,
        )

    @property
    def contexts(self) -> int:
        """The number C of contexts in which every policy is assessed."""
        return self.config.groups

    @property
    def own_values(self) -> bool:
        """Whether the evaluator's own values follow where a batch cuts an episode; a frozen one's never do."""
        return self.config.evaluator.bootstrap == "evaluator" and self.frozen is None

    @property
    def keeps_policies(self) -> bool:
        """Whether the memory keeps the policies themselves, to compute what they show at learnt probes."""
        return self.evaluator.probe is not None and self.frozen is None

    @property
    def kept(self) -> int:
        """States kept of each policy in each context."""
        settings, each = self.config.evaluator, self.config.environments // self.contexts
        batch = each if settings.states == "start" else each * self.config.steps
        return min(batch, settings.transitions or batch)

    @property
    def kept_diverse(self) -> tuple[int, int]:
        """States kept of each policy in a reservoir: at the start of an episode, and anywhere."""
        others = 0 if self.config.evaluator.states == "start" else DIVERSE // 4
        return DIVERSE - others, others

    def offered(self, updates: int | Int[Array, ""]) -> Offered | None:
        """Records that the reservoirs were offered in so many updates; None for the paper's memory."""
        settings = self.config.evaluator
        if settings.memory == "recent":
            return None
        times = (updates + settings.diversify_every - 1) // settings.diversify_every
        return Offered(jnp.int32(times * self.contexts), jnp.int32(times * settings.perturbed))

    def diversified(self, index: int | Int[Array, ""]) -> Any:
        """Whether the reservoirs of a diverse memory are offered policies in the update with this index."""
        return index % self.config.evaluator.diversify_every == 0

    @property
    def thinning(self) -> Thinning:
        """Strides over steps and environments that leave about ENOUGH of the states that the evaluator is fitted to."""
        stride = max(1, self.config.steps // 32) if self.config.evaluator.states == "visited" else self.config.steps
        states = -(-self.config.steps // stride) * self.config.environments
        skip, each = max(1, min(self.config.environments, states // ENOUGH)), self.config.environments // self.contexts
        if self.contexts > 1:  # equally many environments of each context
            skip = max(step for step in range(1, min(skip, each) + 1) if each % step == 0)
        return Thinning(stride, skip)


def begin(fixed: Evaluability, key: Key, agent: Agent) -> EvaluationState:
    """The state before the first update; the memory may keep policies of the agent."""
    shapes, frozen, settings = fixed.evaluator.behaviour, fixed.frozen, fixed.config.evaluator
    full = lambda value: jax.tree.map(lambda x: jnp.full(x.shape, value, jnp.float32), shapes)  # noqa: E731
    memory = None
    if frozen is None:
        slots = settings.policies * fixed.contexts
        told = settings.lower_quantile is not None
        followed = settings.bootstrap == "evaluator"
        memory = Memory.create(slots, fixed.kept, fixed.evaluator.observation_space, shapes, told, followed)
        if settings.memory == "diverse":
            memory = memory.replace(**_reservoirs(fixed))
        if fixed.keeps_policies:
            memory = _with_places(memory, agent)
    horizon = fixed.assessment.horizon
    return EvaluationState(
        evaluator=fixed.evaluator.init(key) if frozen is None else frozen.state,
        memory=memory,
        baseline=jax.tree.map(lambda x: jnp.zeros((horizon, *x.shape)), shapes.rolled_out),
        loss_baseline=jnp.zeros(()),
        batch_mean=jnp.zeros(()),
        lowest=full(jnp.inf) if frozen is None else frozen.lowest,
        highest=full(-jnp.inf) if frozen is None else frozen.highest,
        warmup=Warmup.create() if settings.warmup_ends == "auto" else None,
        dual=None if fixed.config.target_error is None else Dual.create(),
    )


def _reservoirs(fixed: Evaluability) -> dict[str, Reservoir]:
    """The empty reservoirs of a diverse memory; in a family of worlds, earlier policies have a slot for each context."""
    settings, space, shapes = fixed.config.evaluator, fixed.evaluator.observation_space, fixed.evaluator.behaviour
    slots = empty_slots(settings.reservoir, sum(fixed.kept_diverse), space, shapes)
    perturbed = {"perturbed": Reservoir(slots, holds_out=True)} if settings.perturbed else {}
    return {"earlier": Reservoir(slots)} | perturbed


def _with_places(memory: Memory, agent: Agent) -> Memory:
    """The memory with places for the policies themselves."""

    def places(slots: PolicyRecord) -> PolicyRecord:
        return slots.replace(policy=no_policies(agent, slots.target.shape[0]))

    both = {"earlier": memory.earlier, "perturbed": memory.perturbed}
    reservoirs = {name: one.replace(slots=places(one.slots)) for name, one in both.items() if one is not None}
    return memory.replace(slots=places(memory.slots), **reservoirs)


def gather_evidence(
    fixed: Evaluability,
    state: EvaluationState,
    agent: Agent,
    policy: Any,
    trajectory: Trajectory,
    rollout: AssessmentRollout,
) -> Evidence:
    """What a batch and an assessment say about the current policy.

    Returns are continued where the batch cut an episode, by the critic or by the evaluator. Baselines, and that evaluator, are
    those before this update.
    """
    if fixed.config.evaluator.states == "start":  # the others are not predicted
        first = jnp.cumsum(trajectory.start_label >= 0, axis=0) <= STARTS
        trajectory = trajectory.replace(start_label=jnp.where(first, trajectory.start_label, -1))
    seen = (trajectory.context,) if fixed.config.critic_sees_context and trajectory.context is not None else ()
    own_values, ends = fixed.own_values, (trajectory.terminated, trajectory.truncated)
    value = agent.value(policy, trajectory.observation, *seen)
    if not own_values:
        last = agent.value(policy, trajectory.last_observation, *seen)
        returns = returns_to_go(trajectory.reward, last, *ends, fixed.config.discount)
    act = lambda observation: agent.distribution(policy, observation)  # noqa: E731
    observed = observe(fixed.behaviour, rollout, act, fixed.assessment.discount, state.evaluator.probed)
    if own_values:
        returns = continued_returns(fixed, state.evaluator, trajectory, observed.behaviour)
    kept = ActingPolicy.create(agent, policy) if fixed.keeps_policies else None
    baselines = state.baseline, state.loss_baseline
    return Evidence(trajectory, returns, value, rollout, observed, *baselines, policy=kept)


def continued_returns(
    fixed: Evaluability, evaluator: EvaluatorState, trajectory: Trajectory, behaviour: Behaviour
) -> Float[Array, "T N"]:
    """Returns-to-go that V̂ continues where the batch cut an episode and, if so configured, at the time limit."""
    reward, discount = trajectory.reward, fixed.config.discount
    at = lambda observation: predict_all(fixed, evaluator, observation, behaviour)  # noqa: E731
    last = at(trajectory.last_observation[None])[0]
    if fixed.config.evaluator.truncation == "bootstrap":
        beyond = next_values(jnp.zeros_like(reward), last, at(trajectory.final_observation), trajectory.truncated)
        reward = reward + discount * jnp.where(trajectory.truncated & ~trajectory.terminated, beyond, 0.0)
    return returns_to_go(reward, last, trajectory.terminated, trajectory.truncated, discount)


def remember(
    fixed: Evaluability, state: EvaluationState, evidence: Evidence, index: Int[Array, ""], key: Key
) -> EvaluationState:
    """Store the current policy in the memory, and update running statistics."""
    rate, contexts = running_rate(index), fixed.contexts
    means = jax.tree.map(lambda x: mean_over_contexts(x.mean(axis=2), contexts), evidence.observed.to_go)
    state = state.replace(
        baseline=jax.tree.map(lambda old, new: old + rate * (new - old), state.baseline, means),
        batch_mean=evidence.returns.mean(),
    )
    if state.memory is None:
        return state
    # with new contexts, episodes begin in step 0
    steps = slice(1) if fixed.config.evaluator.states == "start" else slice(None)
    told, onward = None if fixed.config.evaluator.lower_quantile is None else evidence.value, None
    if fixed.own_values:
        key, own = jax.random.split(key)
        onward = following(fixed.config.evaluator, evidence.trajectory, fixed.config.discount, own)
    batch = evidence.trajectory.observation, evidence.returns, told, onward
    batch = jax.tree.map(lambda x: by_context(x[steps], contexts), batch)
    count = batch[1].shape[1]
    if fixed.kept < count:  # the same steps of the same environments in every context
        rows = jax.random.choice(key, count, (fixed.kept,), replace=False)
        batch = jax.tree.map(lambda x: x[:, rows], batch)
    observation, target, told, onward = batch
    behaviour = behaviours(evidence.observed.behaviour, contexts)
    records = PolicyRecord(observation, target, behaviour, told, onward, _in_each(evidence.policy, contexts))
    diverse = state.memory.earlier is not None  # then the scales are those of the reservoirs
    return state.replace(
        memory=state.memory.store(index, records),
        evaluator=state.evaluator if diverse else fixed.evaluator.rescale(state.evaluator, records, rate),
        lowest=jax.tree.map(lambda old, new: jnp.minimum(old, new.min(axis=0)), state.lowest, behaviour),
        highest=jax.tree.map(lambda old, new: jnp.maximum(old, new.max(axis=0)), state.highest, behaviour),
    )


def remember_diverse(
    fixed: Evaluability,
    state: EvaluationState,
    evidence: Evidence,
    index: Int[Array, ""],
    perturbed: PolicyRecord | None,
    key: Key,
) -> EvaluationState:
    """Offer the current policy and its perturbed versions to the reservoirs of a diverse memory, if that is due.

    In other updates the same is written to no slot: a branch that left the reservoirs as they are would copy them.
    """
    memory, before, after = state.memory, fixed.offered(index), fixed.offered(index + 1)
    if memory is None or memory.earlier is None or before is None or after is None:
        return state
    due = fixed.diversified(index)
    rows_key, *keys = split(key, 3)
    records = _few_states(fixed, evidence, rows_key)
    memory = memory.replace(earlier=memory.earlier.offer(before.earlier, records, keys[0], due))
    lowest, highest = state.lowest, state.highest
    if memory.perturbed is not None and perturbed is not None:
        memory = memory.replace(perturbed=memory.perturbed.offer(before.perturbed, perturbed, keys[1], due))
        least = lambda old, new: jnp.minimum(old, jnp.where(due, new.min(axis=0), old))  # noqa: E731
        greatest = lambda old, new: jnp.maximum(old, jnp.where(due, new.max(axis=0), old))  # noqa: E731
        lowest = jax.tree.map(least, lowest, perturbed.behaviour)
        highest = jax.tree.map(greatest, highest, perturbed.behaviour)
    scales = jax.lax.cond(
        due, lambda: fixed.evaluator.scales(state.evaluator, memory, after), lambda: state.evaluator.scales
    )
    evaluator = state.evaluator.rescaled(scales)
    return state.replace(memory=memory, evaluator=evaluator, lowest=lowest, highest=highest)


def _few_states(fixed: Evaluability, evidence: Evidence, key: Key) -> PolicyRecord:
    """Records [C, ...] of the current policy in each context, with a few states of the batch: start states and others.

    A value is asked for at start states. Observations do not contain the clock, and what a policy that goes nowhere returns
    from a state depends on when it is there: if all visited states counted alike, its value at the start would be half as large.
    """
    contexts, (starts, others) = fixed.contexts, fixed.kept_diverse
    batch = evidence.trajectory.start_label >= 0, evidence.trajectory.observation, evidence.returns
    start, observation, target = (by_context(x, contexts) for x in batch)
    anywhere = jax.random.randint(key, (starts + others,), 0, start.shape[1])

    def rows(start: Bool[Array, " S"]) -> Int[Array, " count"]:
        count = start.sum(dtype=jnp.int32)
        places = nth_places(start, jnp.arange(starts, dtype=jnp.int32) % jnp.maximum(count, 1))
        return jnp.concatenate([jnp.where(count > 0, places, anywhere[:starts]), anywhere[starts:]])

    chosen = jax.vmap(rows)(start)
    observation, target = (jax.vmap(lambda x, at: x[at])(x, chosen) for x in (observation, target))
    shown = behaviours(evidence.observed.behaviour, contexts)
    return PolicyRecord(observation, target, shown, policy=_in_each(evidence.policy, contexts))


def _in_each(policy: Any, contexts: int) -> Any:
    """A policy once for each of C contexts, stacked; None if there is none to be kept."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x[None], (contexts, *x.shape)), policy)


def nth_places(flags: Bool[Array, " S"], numbers: Int[Array, " n"]) -> Int[Array, " n"]:
    """Where the flags that have these numbers are, counted from 0; there must be so many."""
    return jnp.searchsorted(jnp.cumsum(flags, dtype=jnp.int32), numbers + 1).astype(jnp.int32)


def fit(
    fixed: Evaluability, state: EvaluationState, index: Int[Array, ""], key: Key
) -> tuple[EvaluationState, Metrics]:
    """Fit the evaluator to the memory, as often as the schedule says; a frozen one stays as it is."""
    if state.memory is None:
        return state, {}
    steps, decay = fit_steps(fixed.config, index), index == fixed.config.updates - 1
    stored = (index + 1) * fixed.contexts
    offered = fixed.offered(index + 1)
    evaluator, loss = fixed.evaluator.fit(state.evaluator, state.memory, stored, steps, key, decay, offered)
    return state.replace(evaluator=evaluator), {"evaluator_loss": loss}


def at_present_probes(fixed: Evaluability, state: EvaluationState, evidence: Evidence) -> Evidence:
    """The evidence with what the current policy shows where learnt probes are after fitting; any other as it is."""
    if evidence.policy is None:
        return evidence
    discount, probes = fixed.assessment.discount, state.evaluator.probed
    return evidence._replace(observed=observe(fixed.behaviour, evidence.rollout, evidence.policy, discount, probes))


def watch(
    fixed: Evaluability, state: EvaluationState, skill: Float[Array, ""], index: Int[Array, ""]
) -> tuple[EvaluationState, Metrics]:
    """Let the warm-up end, if it ends by itself, by the skill on a batch that the evaluator was not fitted to."""
    if state.warmup is None:
        return state, {}
    settings = fixed.config.evaluator
    warmup = watch_skill(state.warmup, skill, index, settings.warmup, settings.warmup_window)
    return state.replace(warmup=warmup), {"warmup_ended": (warmup.ended >= 0).astype(jnp.float32)}


def weigh_policy(
    fixed: Evaluability, state: EvaluationState, evidence: Evidence, index: Int[Array, ""]
) -> tuple[EvaluationState, GradientWeights | None, Metrics]:
    """The weights of the policy gradient, None in passive training; also errors just before the policy update."""
    config, evidence = fixed.config, at_present_probes(fixed, state, evidence)
    predicted = predict(fixed, state.evaluator, evidence.trajectory, evidence.observed.behaviour)
    metrics = _errors(config, evidence, predicted)
    squared = mean_squared_error(fixed.objective, evidence, predicted)
    loss_baseline = state.loss_baseline + running_rate(index) * (squared - state.loss_baseline)
    state, weights = state.replace(loss_baseline=loss_baseline), None
    if config.beta > 0 or config.beta_variance > 0:
        size = ramp(config, index, state.warmup)
        at = lambda behaviour, thinning: predict(  # noqa: E731
            fixed, state.evaluator, evidence.trajectory, behaviour, thinning
        )
        beta = jnp.float32(config.beta) * size
        if state.dual is not None:
            limit, beta = beta, state.dual.beta
            state = state.replace(dual=follow(config, state.dual, metrics, limit))
        if state.warmup is not None or state.dual is not None:
            metrics["beta"] = beta
        weights, weighed = weigh(
            fixed.objective, evidence._replace(predicted=predicted), at, beta, size, fixed.thinning
        )
        metrics |= weighed
    return state, weights, metrics | {"assessment_return": evidence.observed.returns.mean(axis=1).mean()}


def follow(config: TrainConfig, dual: Dual, errors: Metrics, limit: Float[Array, ""]) -> Dual:
    """The next β, by the running mean of the error at start states; `limit` is 0 in the warm-up.

    Where several rollouts begin at one state, the error is √(mean (G − V̂)(G' − V̂)), in which there is no noise of single
    returns; elsewhere it is the mean of |G − V̂|, in which there is.
    """
    assert config.target_error is not None
    paired = config.rollouts_per_start > 1
    measured = errors["start_squared_error_corrected"] if paired else errors["start_error"]
    dual = record_error(dual, measured, limit > 0)
    error = jnp.sqrt(jnp.maximum(dual.error, 0.0)) if paired else dual.error
    beta = raise_beta(dual.beta, error, config.target_error, config.target_rate * config.beta, limit)
    return dual.replace(beta=jnp.where(dual.measured > 0, beta, dual.beta))


def predict(
    fixed: Evaluability,
    evaluator: EvaluatorState,
    trajectory: Trajectory,
    behaviour: Behaviour,
    thinning: Thinning = EVERY,
) -> Float[Array, "T N"]:
    """V̂ at the states of a (thinned) batch, for a policy that behaves like this: [C·k, ...], context by context.

    Where the evaluator is fitted to start states, it is asked about no others, and elsewhere the result is 0.
    """
    if fixed.config.evaluator.states == "start" and thinning == EVERY:
        steps, environments = trajectory.start_label.shape
        rows = first_starts(trajectory.start_label, min(STARTS, steps))
        places = rows, jnp.arange(environments)[None]
        values = predict_all(fixed, evaluator, trajectory.observation[places], behaviour)
        return jnp.zeros((steps, environments)).at[places].set(values)
    return predict_all(fixed, evaluator, thinning.of(trajectory.observation), behaviour)


def predict_all(
    fixed: Evaluability, evaluator: EvaluatorState, observation: Shaped[Array, "T N ..."], behaviour: Behaviour
) -> Float[Array, "T N"]:
    """V̂ at observations of N environments, which are grouped by context."""
    contexts = fixed.contexts
    queries = by_context(observation, contexts)
    if contexts == 1:  # products of batches of one matrix compile to slower code than plain ones
        return fixed.evaluator.predict(evaluator, behaviour, queries[0]).reshape(observation.shape[:2])
    values = jax.vmap(fixed.evaluator.predict, (None, 0, 0))(evaluator, behaviours(behaviour, contexts), queries)
    steps, environments = observation.shape[:2]
    return jnp.moveaxis(values.reshape(contexts, steps, -1), 0, 1).reshape(steps, environments)


def fresh_errors(fixed: Evaluability, state: EvaluationState, evidence: Evidence) -> Metrics:
    """Errors on a batch that the evaluator was not fitted to, and skill over the best predictor without Ξ.

    That is the critic, the last batch's mean, or the evaluator itself given the average behaviour.
    """
    behaviour, thinning = evidence.observed.behaviour, fixed.thinning
    at = lambda xi: predict(fixed, state.evaluator, evidence.trajectory, xi, thinning)  # noqa: E731
    predicted, blind = at(behaviour), at(state.evaluator.mean_behaviour(behaviour))
    returns, value = thinning.of(evidence.returns), thinning.of(evidence.value)
    squared = jnp.mean((returns - predicted) ** 2)
    others: tuple[Array, ...] = (value, blind, state.batch_mean)
    if evidence.trajectory.context is not None and fixed.config.critic_sees_context:
        others = others[1:]  # that critic knows more than any evaluator
    without = jnp.stack([jnp.mean((returns - other) ** 2) for other in others]).min()
    return {
        "evaluation_error_fresh": jnp.mean(jnp.abs(returns - predicted)),
        "evaluation_bias_fresh": jnp.mean(predicted - returns),
        "skill": 1.0 - squared / jnp.maximum(without, 1e-12),
    }


def _errors(config: TrainConfig, evidence: Evidence, predicted: Float[Array, "T N"]) -> Metrics:
    """Errors at visited and at start states; the corrected one has no noise of single returns in it."""
    error, start = evidence.returns - predicted, evidence.trajectory.start_label >= 0
    product, paired = product_of_errors(evidence, predicted, config.rollouts_per_start)
    corrected = masked_mean(product, paired)
    at_start = jnp.where(start.any(), masked_mean(jnp.abs(error), start), jnp.nan)
    return {
        "evaluation_error": at_start if config.evaluator.states == "start" else jnp.mean(jnp.abs(error)),
        "start_error": at_start,
        "start_squared_error_corrected": jnp.where(paired.any(), corrected, jnp.nan),
    }


def learnt(fixed: Evaluability, state: EvaluationState) -> LearntEvaluator:
    """What is saved of one seed's evaluator at the end."""
    remembered = jax.tree.map(lambda x: jnp.zeros((0, *x.shape), x.dtype), fixed.evaluator.behaviour)
    if state.memory is not None:
        remembered = fixed.evaluator.present(state.evaluator, state.memory.slots).behaviour
    lowest, highest = _ranges(fixed, state)
    return LearntEvaluator(
        state=state.evaluator,
        scenarios=fixed.evaluator.scenarios,
        remembered=remembered,
        lowest=lowest,
        highest=highest,
        batch_mean=state.batch_mean,
        knowledge=_knowledge(fixed, state),
    )


def _ranges(fixed: Evaluability, state: EvaluationState) -> tuple[Behaviour, Behaviour]:
    """Least and greatest behaviours seen so far, those of all policies in the memory at the present probes included."""
    memory, updates = state.memory, fixed.config.updates
    if memory is None or not fixed.keeps_policies:
        return state.lowest, state.highest
    offered = fixed.offered(updates)
    parts = [(memory.slots, np.arange(memory.policies) < updates * fixed.contexts)]
    if offered is not None:
        pairs = (memory.earlier, offered.earlier), (memory.perturbed, offered.perturbed)
        parts += [(one.slots, np.asarray(one.filled(count))) for one, count in pairs if one is not None]
    chosen = [jax.tree.map(lambda x, at=used: jnp.asarray(x)[at], slots) for slots, used in parts]
    shown = [fixed.evaluator.present(state.evaluator, one).behaviour.pathwise for one in chosen]
    every = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *shown)
    least = jax.tree.map(lambda old, new: jnp.minimum(old, new.min(axis=0)), state.lowest.pathwise, every)
    greatest = jax.tree.map(lambda old, new: jnp.maximum(old, new.max(axis=0)), state.highest.pathwise, every)
    return state.lowest.replace(pathwise=least), state.highest.replace(pathwise=greatest)


def _knowledge(fixed: Evaluability, state: EvaluationState) -> Knowledge | None:
    """The policies in the reservoirs at the end of a run, and what the evaluator says of the perturbed ones."""
    memory, offered = state.memory, fixed.offered(fixed.config.updates)
    if memory is None or memory.earlier is None or memory.perturbed is None or offered is None:
        return None
    starts = min(fixed.config.evaluator.perturbed_environments, fixed.kept_diverse[0])
    perturbed = memory.perturbed
    filled, held_out = np.asarray(perturbed.filled(offered.perturbed)), perturbed.held_out()
    predict = jax.jit(jax.vmap(fixed.evaluator.predict, (None, 0, 0)))

    def known(which: np.ndarray) -> Known:
        """The policies in some slots; the first states of each are the start states of its episodes."""
        some = jax.tree.map(lambda x: jnp.asarray(x)[np.flatnonzero(which)], perturbed.slots)
        some = fixed.evaluator.present(state.evaluator, some)
        predicted = predict(state.evaluator, some.behaviour, some.observation[:, :starts])
        return Known(some.behaviour, some.target[:, :starts].mean(axis=1), predicted.mean(axis=1))

    earlier = np.flatnonzero(np.asarray(memory.earlier.filled(offered.earlier)))
    own = jax.tree.map(lambda x: jnp.asarray(x)[earlier], memory.earlier.slots)
    shown = fixed.evaluator.present(state.evaluator, own).behaviour
    return Knowledge(known(filled & ~held_out), known(filled & held_out), shown)


def by_context(x: Array, contexts: int) -> Array:
    """The steps of a batch [T, N, ...] by context, [C, T·N/C, ...]."""
    steps, environments = x.shape[:2]
    grouped = x.reshape(steps, contexts, environments // contexts, *x.shape[2:])
    return jnp.moveaxis(grouped, 1, 0).reshape(contexts, steps * environments // contexts, *x.shape[2:])


def behaviours(behaviour: Behaviour, contexts: int) -> Behaviour:
    """What was shown in C contexts, [C·k, ...], as the behaviour in each of them, [C, k, ...]."""
    return jax.tree.map(lambda x: x.reshape(contexts, -1, *x.shape[1:]), behaviour)


def mean_over_contexts(x: Float[Array, "h Ck *shape"], contexts: int) -> Float[Array, "h k *shape"]:
    """The mean over contexts of numbers that belong to steps and scenarios."""
    return x if contexts == 1 else x.reshape(x.shape[0], contexts, -1, *x.shape[2:]).mean(axis=1)


def first_starts(label: Int[Array, "T N"], count: int) -> Int[Array, "count N"]:
    """The steps at which the first `count` episodes of each environment begin; 0 where there are not so many."""
    begun = jnp.cumsum(label >= 0, axis=0, dtype=jnp.int32)
    # the j-th start is at the step before which fewer have begun; no sorting, which takes longer than the predictions there
    before = (begun[None] <= jnp.arange(count, dtype=jnp.int32)[:, None, None]).sum(axis=1, dtype=jnp.int32)
    return jnp.where(before < label.shape[0], before, 0)


def fit_steps(config: TrainConfig, index: Int[Array, ""]) -> Int[Array, ""]:
    """Gradient steps of the evaluator: none in the warm-up, many at its end, a few in every n-th update after it, last ones.

    A warm-up that ends by itself has those of every n-th update from the first on, and the many where it may end at the earliest.
    """
    settings = config.evaluator
    due = (index - settings.warmup) % settings.every == 0
    if settings.warmup_ends == "fixed":
        due = (index > settings.warmup) & due
    steps = jnp.where(index == settings.warmup, settings.initial_steps, jnp.where(due, settings.steps, 0))
    return steps + jnp.where(index == config.updates - 1, settings.final_steps, 0)


def ramp(config: TrainConfig, index: Int[Array, ""], watched: Warmup | None = None) -> Float[Array, ""]:
    """The factor of β: 0 during the warm-up, which a frozen evaluator does not need, then up to 1 over `ramp` updates."""
    warmup = 0 if config.evaluator_mode == "frozen" else config.evaluator.warmup
    since = (index - (warmup if watched is None else watched.ended) + 1).astype(jnp.float32)
    size = jnp.clip(since / max(1, config.ramp), 0.0, 1.0)
    return size if watched is None else jnp.where(watched.ended >= 0, size, 0.0)
