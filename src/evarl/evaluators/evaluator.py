"""Evaluators V̂(s | Ξ): their state, their predictions, and how they are fitted to a memory of recent policies."""

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from evarl.agents.networks import clipped_adam, descend
from evarl.assessment.behaviour import Behaviour, Steps
from evarl.errors import InputError
from evarl.evaluators.configuration import EvaluatorConfig
from evarl.evaluators.knowledge import Knowledge
from evarl.evaluators.memory import Memory, PolicyRecord, Reservoir
from evarl.evaluators.networks import StepEncoder, StepwiseBehaviour, WithSteps, make_network
from evarl.evaluators.probes import FOLLOWING, LEAST_DEVIATION, Probe, Probes, shown_at
from evarl.evaluators.targets import typical_returns
from evarl.keys import unrolled
from evarl.worlds.spaces import Box
from evarl.worlds.world import Key

FLOOR = 1e-6
"""Least variance. What varies less, relative to its size, is a constant up to the rounding of float32."""


LEAST_VARIANCE = 1e-3
"""Least variance of the returns of recent policies, relative to that of all, by which their loss is divided."""


class RunningScale(struct.PyTreeNode):
    """A running mean and mean square with exponential forgetting: policies change, and so does the size of their returns."""

    mean: Float[Array, "*shape"]
    square: Float[Array, "*shape"]

    @classmethod
    def create(cls, shape: tuple[int, ...]) -> "RunningScale":
        """Mean 0, deviation 1."""
        return cls(jnp.zeros(shape), jnp.ones(shape))

    def update(self, batch: Float[Array, "*batch_and_shape"], rate: Float[Array, ""]) -> "RunningScale":
        """Move towards the statistics of a batch."""
        batch = batch.reshape(-1, *self.mean.shape)
        mean = self.mean + rate * (batch.mean(axis=0) - self.mean)
        return RunningScale(mean, self.square + rate * ((batch**2).mean(axis=0) - self.square))

    def deviation(self) -> Float[Array, "*shape"]:
        """Standard deviation, kept away from zero."""
        return jnp.sqrt(jnp.maximum(self.square - self.mean**2, 0.0) + FLOOR)

    def at_least(self, deviation: float) -> "RunningScale":
        """The same with a deviation of at least this."""
        return self.replace(square=jnp.maximum(self.square, self.mean**2 + deviation**2))

    def varies(self) -> Bool[Array, "*shape"]:
        """Whether the values seen differ by more than rounding."""
        return self.square - self.mean**2 > FLOOR * (1.0 + self.mean**2)


class Offered(NamedTuple):
    """Numbers of records that the reservoirs of a diverse memory were offered."""

    earlier: Int[Array, ""]
    perturbed: Int[Array, ""]


class Batch(NamedTuple):
    """Rows of a memory for one gradient step."""

    records: PolicyRecord
    """[m, q, ...]"""
    recent: int | None
    """How many of the m policies, the first ones, are of the most recent; None if all are."""


class LowerQuantile(struct.PyTreeNode):
    """The network of a lower quantile, as it is fitted."""

    parameters: Any
    optimizer: optax.OptState


class Scales(NamedTuple):
    """By what an evaluator standardises."""

    target: RunningScale
    behaviour: Any
    observation: RunningScale


class EvaluatorState(struct.PyTreeNode):
    """Everything that fitting changes."""

    parameters: Any
    optimizer: optax.OptState
    target: RunningScale
    behaviour: Any
    """A behaviour with a `RunningScale` for each leaf, over policies and start states."""
    observation: RunningScale
    lower: LowerQuantile | None = None
    """None unless the configuration has a `lower_quantile`."""
    probes: Probes | None = None
    """None unless they are learnt."""

    @property
    def probed(self) -> Float[Array, "k ..."] | None:
        """The observations at which policies are asked how they would act; None where these are the start states."""
        return None if self.probes is None else self.probes.observation

    @property
    def scales(self) -> "Scales":
        """By what observations, returns and behaviours are standardised."""
        return Scales(self.target, self.behaviour, self.observation)

    def rescaled(self, scales: "Scales") -> "EvaluatorState":
        """The state with other scales."""
        return self.replace(**scales._asdict())

    def steps(self) -> int:
        """Gradient steps taken so far, as the optimiser counts them; 0 if it was never fitted."""
        return int(optax.tree_utils.tree_get(self.optimizer, "count"))

    def mean_behaviour(self, like: Behaviour) -> Behaviour:
        """The average behaviour, which standardisation maps to zeros; `like` has its shapes, [k, ...]."""
        return _with_scales(lambda scale, leaf: jnp.broadcast_to(scale.mean[None], leaf.shape), self.behaviour, like)


class LearntEvaluator(struct.PyTreeNode):
    """An evaluator as it is saved: its state, and the behaviours it was fitted to."""

    state: EvaluatorState
    scenarios: Array
    """[k, ...] observations at the start states of its assessment."""
    remembered: Behaviour
    """[m, k, ...] behaviours of the last policies it was fitted to."""
    lowest: Behaviour
    """[k, ...] least and greatest values of each leaf that it has seen."""
    highest: Behaviour
    batch_mean: Float[Array, ""]
    """Mean return-to-go of the last batch."""
    knowledge: Knowledge | None = None
    """What intervals and warnings follow from; None unless the memory was diverse, with perturbed policies."""


@dataclass(frozen=True, eq=False)
class Evaluator:
    """V̂(s | Ξ): the fixed part; its functions are pure and take the changing part as an argument."""

    config: EvaluatorConfig
    observation_space: Box
    scenarios: Array
    """[k, ...] observations at the assessment's start states."""
    behaviour: Any
    """Shapes of one policy's behaviour."""
    network: Any
    """A Flax module, or anything else that has its `init` and `apply`."""
    optimizer: optax.GradientTransformation
    probe: Probe | None = None
    """What a policy shows at learnt probes; None where probes do not move."""

    def init(self, key: Key) -> EvaluatorState:
        """An evaluator that was never fitted."""
        k, width = self.scenarios.shape[0], self.observation_space.size
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.behaviour)
        keys = [key] if self.config.lower_quantile is None else list(jax.random.split(key))
        inputs = jnp.zeros((k, width)), network_input(zeros), jnp.zeros((1, width))
        networks = [self.network.init(key, *inputs) for key in keys]
        (parameters, optimizer), *lower = [(network, self.optimizer.init(network)) for network in networks]
        target, observation = RunningScale.create(()), RunningScale.create((width,))
        behaviour = jax.tree.map(lambda x: RunningScale.create(x.shape[1:]), self.behaviour)
        quantile = LowerQuantile(*lower[0]) if lower else None
        probes = None if self.probe is None else Probes.create(self.scenarios, self.optimizer)
        return EvaluatorState(parameters, optimizer, target, behaviour, observation, quantile, probes)

    def predict(self, state: EvaluatorState, behaviour: Behaviour, queries: Array) -> Float[Array, " Q"]:
        """V̂ at the queries [Q, ...] for the policy that behaved like this, in units of reward."""
        return self._in_rewards(state, state.parameters, behaviour, queries)

    def predict_lower(self, state: EvaluatorState, behaviour: Behaviour, queries: Array) -> Float[Array, " Q"]:
        """The predicted lower quantile of the value at the queries [Q, ...], in units of reward."""
        assert state.lower is not None
        return self._in_rewards(state, state.lower.parameters, behaviour, queries)

    def present(self, state: EvaluatorState, records: PolicyRecord) -> PolicyRecord:
        """Records [p, ...] with the behaviours of their policies at the present probes; as they are if these do not move."""
        if self.probe is None or state.probes is None:
            return records
        return shown_at(self.probe, jnp.asarray(state.probes.observation), records)

    def rescale(self, state: EvaluatorState, record: PolicyRecord, rate: Float[Array, ""]) -> EvaluatorState:
        """Update the running scales with the newest policy, whose weight is `rate`."""
        if self.observation_space.dtype != "bool":
            state = state.replace(observation=state.observation.update(record.observation.astype(jnp.float32), rate))
        behaviour = _with_scales(lambda scale, x: scale.update(x, rate), state.behaviour, record.behaviour)
        returns = record.target if record.following is None else typical_returns(record.following)
        return _with_least(state.replace(target=state.target.update(returns, rate), behaviour=behaviour))

    def scales(self, state: EvaluatorState, memory: Memory, policies: Offered) -> Scales:
        """Scales of all policies in the reservoirs that the evaluator may be fitted to, in place of running ones.

        The running scales follow the newest policies. When these hardly differ any more, an odd behaviour would be many
        thousand deviations away from them.
        """
        filled = [(one, one.filled(count) & ~one.held_out()) for one, count in _reservoirs(memory, policies)]

        def scale(tables: list[Array], shape: tuple[int, ...]) -> RunningScale:
            """The mean over reservoirs of their means and mean squares."""
            rows = [x.astype(jnp.float32).reshape(len(x), -1, *shape) for x in tables]
            both = list(zip(rows, (used for _, used in filled), strict=True))
            moments = [[_mean_of(x**power, used) for x, used in both] for power in (1, 2)]
            return RunningScale(*(jnp.mean(jnp.stack(moment), axis=0) for moment in moments))

        slots, observation = [self.present(state, one.slots) for one, _ in filled], state.observation
        if self.observation_space.dtype != "bool":
            observation = scale([x.observation for x in slots], observation.mean.shape)
        shown = lambda old, *leaves: scale(list(leaves), old.mean.shape)  # noqa: E731
        behaviour = _with_scales(shown, state.behaviour, *(x.behaviour for x in slots))
        scales = Scales(scale([x.target for x in slots], ()), behaviour, observation)
        return _with_least(state.rescaled(scales)).scales

    def fit(
        self,
        state: EvaluatorState,
        memory: Memory,
        stored: Int[Array, ""],
        steps: Int[Array, ""],
        key: Key,
        decay: bool | Bool[Array, ""] = False,
        offered: Offered | None = None,
    ) -> tuple[EvaluatorState, Float[Array, ""]]:
        """The state after some gradient steps on the memory, and the mean loss on recent policies in squared reward.

        `stored` policies have been stored so far; while these are fewer than there are slots, empty ones are left out. With
        `decay` the step size falls to 0. Where own values follow, targets are made anew in every step, and where probes are
        learnt, so are behaviours. With `offered`, the numbers of records that reservoirs were offered, the memory is diverse and
        the loss a weighted mean over its parts.
        """
        filled, interval = jnp.minimum(stored, memory.policies), self.config.target_interval

        def one_step(index: Array, carry: tuple[EvaluatorState, Array, Any]) -> tuple[EvaluatorState, Array, Any]:
            state, total, copy = carry
            records, recent = self._batch(memory, filled, jax.random.fold_in(unrolled(key), index), offered)
            records = self.present(state, records)
            state = _following(state, records, recent)
            if copy is not None:
                due = jnp.asarray(index, jnp.int32) % interval == 0
                copy = jax.tree.map(lambda old, new: jnp.where(due, new, old), copy, state.parameters)
            targets = state.parameters if copy is None else copy
            batch = self._with_targets(state, targets, records)
            past = jnp.asarray(index, jnp.float32) / jnp.asarray(steps, jnp.float32)
            share = jnp.where(decay, 1.0 - past, 1.0)
            slopes = jax.value_and_grad(self._fitted_loss, has_aux=True)
            still = jax.tree.map(jnp.zeros_like, state.probed)
            (_, loss), (gradient, shift) = slopes((state.parameters, still), state, batch, recent)
            lower = state.lower
            if lower is not None:
                slope = jax.grad(self._pinball_loss)(lower.parameters, state, batch)
                lower = LowerQuantile(*self._descend(slope, lower.optimizer, lower.parameters, share))
            parameters, optimizer = self._descend(gradient, state.optimizer, state.parameters, share)
            probes = self._moved(state, shift, share)
            state = state.replace(parameters=parameters, optimizer=optimizer, lower=lower, probes=probes)
            return state, total + loss, copy

        copy = state.parameters if interval > 1 else None
        state, total, _ = jax.lax.fori_loop(0, steps, one_step, (state, jnp.zeros(()), copy))
        mean = total / jnp.maximum(steps, 1).astype(jnp.float32)
        return state, mean * state.target.deviation() ** 2

    def _batch(self, memory: Memory, filled: Int[Array, ""], key: Key, offered: Offered | None) -> Batch:
        """Rows of the most recent policies and, from a diverse memory, as many of the reservoirs behind them."""
        size, reservoirs = self.config.batch_size, _reservoirs(memory, offered)
        if not reservoirs:
            return Batch(memory.sample(key, filled, size), None)
        own, *others = jax.random.split(key, 1 + len(reservoirs))
        recent = memory.sample_few(own, filled, max(1, size // 2))
        each, rows = max(1, size // 2 // len(reservoirs)), recent.target.shape[1]
        rest = [one.sample(own, count, each, rows) for own, (one, count) in zip(others, reservoirs, strict=True)]
        together = jax.tree.map(lambda *parts: jnp.concatenate(parts), recent, *rest)
        return Batch(together, len(recent.target))

    def _fitted_loss(
        self, fitted: tuple[Any, Array | None], state: EvaluatorState, batch: PolicyRecord, recent: int | None
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """`_weighted_loss` as a function of the network's parameters and of a shift of the probes, None if these do not move."""
        parameters, shift = fitted
        if self.probe is not None and state.probes is not None and shift is not None:
            probes = state.probes.observation + self._unit(state) * shift
            batch = shown_at(self.probe, probes, batch)
        return self._weighted_loss(parameters, state, batch, recent)

    def _weighted_loss(
        self, parameters: Any, state: EvaluatorState, batch: PolicyRecord, recent: int | None
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The loss that is minimised, and the one on the most recent policies, which is the same without reservoirs.

        With them the weight of the first `recent` policies is `recent_share`, and the others share the rest. The returns of
        recent policies vary less than those of all; their loss is divided by its own variance, so that it is as exact as without.
        """
        squared = self._squared_errors(parameters, state, batch)
        if recent is None:
            return squared.mean(), squared.mean()
        share, loss = self.config.recent_share, squared[:recent].mean()
        relative = jnp.var(batch.target[:recent]) / state.target.deviation() ** 2
        own = loss / jnp.clip(relative, LEAST_VARIANCE, 1.0)
        return share * own + (1.0 - share) * squared[recent:].mean(), loss

    def _descend(
        self, gradient: Any, optimizer: optax.OptState, parameters: Any, share: Float[Array, ""]
    ) -> tuple[Any, optax.OptState]:
        """One gradient step, of which only a share is taken where the last steps decay."""
        stepped, optimizer = descend(self.optimizer, gradient, optimizer, parameters)
        if self.config.final_steps:
            stepped = jax.tree.map(lambda old, new: old + share * (new - old), parameters, stepped)
        return stepped, optimizer

    def _moved(self, state: EvaluatorState, slope: Array | None, share: Float[Array, ""]) -> Probes | None:
        """The probes after one gradient step, whose size is in deviations of the observations, as that of the network's input."""
        if state.probes is None or slope is None:
            return None
        shift, optimizer = self._descend(slope, state.probes.optimizer, jnp.zeros_like(slope), share)
        return Probes(state.probes.observation + self._unit(state) * shift, optimizer)

    def _unit(self, state: EvaluatorState) -> Float[Array, "..."]:
        """Deviations of the observations, [1, ...]; 1 for flags."""
        deviation = state.observation.deviation()
        unit = jnp.ones_like(deviation) if self.observation_space.dtype == "bool" else deviation
        return unit.reshape(1, *self.observation_space.shape)

    def _with_targets(self, state: EvaluatorState, parameters: Any, batch: PolicyRecord) -> PolicyRecord:
        """A batch with targets R + γⁿ V̂(s′ | Ξ) where own values follow, held fixed; any other as it is."""
        onward = batch.following
        if onward is None:
            return batch
        values = jax.vmap(self._in_rewards, (None, None, 0, 0))(state, parameters, batch.behaviour, onward.observation)
        return batch.replace(target=onward.reward + onward.discount * values)

    def _pinball_loss(self, parameters: Any, state: EvaluatorState, batch: PolicyRecord) -> Float[Array, ""]:
        """Mean of max(a e, (a − 1) e) in standardised units, e = value − prediction: least at the quantile of level a."""
        level = self.config.lower_quantile
        assert level is not None
        assert batch.told is not None
        predict = jax.vmap(lambda row: self._standardised(state, parameters, row.behaviour, row.observation))
        error = (batch.told - state.target.mean) / state.target.deviation() - predict(batch)
        return jnp.mean(jnp.maximum(level * error, (level - 1.0) * error))

    def _squared_errors(self, parameters: Any, state: EvaluatorState, batch: PolicyRecord) -> Float[Array, "m q"]:
        """Squared errors in standardised units; each behaviour is read once for all its queries."""
        predict = jax.vmap(lambda row: self._standardised(state, parameters, row.behaviour, row.observation))
        target = (batch.target - state.target.mean) / state.target.deviation()
        return (predict(batch) - target) ** 2

    def _in_rewards(self, state: EvaluatorState, parameters: Any, behaviour: Behaviour, queries: Array) -> Array:
        """What a network predicts, in units of reward."""
        standardised = self._standardised(state, parameters, behaviour, queries)
        return standardised * state.target.deviation() + state.target.mean

    def _standardised(self, state: EvaluatorState, parameters: Any, behaviour: Behaviour, queries: Array) -> Array:
        shown = network_input(standardised_behaviour(state, behaviour))
        scenarios, asked = self._features(state, self.scenarios), self._features(state, queries)
        return cast(Array, self.network.apply(parameters, scenarios, shown, asked))

    def _features(self, state: EvaluatorState, observation: Array) -> Float[Array, "B F"]:
        """Flattened observations, standardised unless they are flags."""
        flat = observation.reshape(observation.shape[0], -1)
        if self.observation_space.dtype == "bool":
            return jnp.where(flat, 1.0, 0.0)
        return (flat.astype(jnp.float32) - state.observation.mean[None]) / state.observation.deviation()[None]


def make_evaluator(
    config: EvaluatorConfig, observation_space: Box, scenarios: Array, behaviour: Any, probe: Probe | None = None
) -> Evaluator:
    """An evaluator with its network and optimiser; `behaviour` has the shapes of one policy's. Probes are learnt with `probe`."""
    numbers = jax.eval_shape(features, behaviour).shape[1]
    if config.network.kind == "linear" and numbers != 1:
        raise InputError(
            f"evaluator.network.kind: linear averages returns, but this kind of behaviour has {numbers} numbers for each "
            "start state; must be another kind of network"
        )
    optimizer = clipped_adam(config.learning_rate, 1.0)
    network: Any = make_network(config.network)
    if any(isinstance(part, Steps) for part in _parts(behaviour)):
        network = WithSteps(network, StepEncoder(config.network))
    return Evaluator(config, observation_space, jnp.asarray(scenarios), behaviour, network, optimizer, probe)


def features(behaviour: Any) -> Float[Array, "k B"]:
    """All numbers of a behaviour side by side, one row for each start state."""
    rows = [jnp.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(behaviour)]
    return rows[0] if len(rows) == 1 else jnp.concatenate(rows, axis=1)


def standardised_behaviour(state: EvaluatorState, behaviour: Behaviour) -> Behaviour:
    """The numbers of a behaviour in deviations from their mean; 0 where they have never varied."""

    def standardise(scale: Any, x: Any) -> Any:
        if isinstance(x, Steps):
            return x.replace(numbers=standardise(scale.numbers, x.numbers))
        # what never varied has taught nothing; divided by the floor, it would be given enormous slopes
        numbers = scale.mean, scale.deviation(), scale.varies()
        mean, deviation, varies = (y if y.ndim == 0 else y[None] for y in numbers)
        return jnp.where(varies, (x - mean) / deviation, 0.0)

    return _with_scales(standardise, state.behaviour, behaviour, whole_steps=True)


def _following(state: EvaluatorState, batch: PolicyRecord, recent: int | None) -> EvaluatorState:
    """The state with scales that follow what policies show while the probes move; those of reservoirs, if there are any."""
    if state.probes is None:
        return state
    shown = jax.tree.map(lambda x: x[recent:], batch.behaviour.pathwise)
    pathwise = _with_scales(lambda scale, x: scale.update(x, jnp.float32(FOLLOWING)), state.behaviour.pathwise, shown)
    return _with_least(state.replace(behaviour=state.behaviour.replace(pathwise=pathwise)))


def _with_least(state: EvaluatorState) -> EvaluatorState:
    """The state with least deviations of what policies show at learnt probes; any other as it is."""
    if state.probes is None:
        return state
    pathwise = _with_scales(lambda scale: scale.at_least(LEAST_DEVIATION), state.behaviour.pathwise)
    return state.replace(behaviour=state.behaviour.replace(pathwise=pathwise))


def _reservoirs(memory: Memory, offered: Offered | None) -> list[tuple[Reservoir, Int[Array, ""]]]:
    """The reservoirs of a diverse memory, each with the number of records that it was offered."""
    if offered is None:
        return []
    pairs = (memory.earlier, offered.earlier), (memory.perturbed, offered.perturbed)
    return [(one, count) for one, count in pairs if one is not None]


def _mean_of(x: Float[Array, "n rows *shape"], used: Bool[Array, " n"]) -> Float[Array, "*shape"]:
    """The mean over rows of the used slots."""
    weight = used.astype(jnp.float32)
    return jnp.tensordot(weight, x.mean(axis=1), 1) / jnp.maximum(weight.sum(), 1.0)


def network_input(behaviour: Behaviour) -> Float[Array, "k B"] | StepwiseBehaviour:
    """What networks are given of a behaviour: its numbers side by side, and its steps apart where it has any."""
    parts = _parts(behaviour)
    steps = [x for part in parts if isinstance(part, Steps) for x in (part.numbers, part.shares)]
    if not steps:
        return features(behaviour)
    plain = [part for part in parts if not isinstance(part, Steps)]
    numbers = features(plain) if plain else jnp.zeros((steps[0].shape[0], 0), steps[0].dtype)
    return StepwiseBehaviour(numbers, jnp.concatenate(steps, axis=-1))


def _parts(behaviour: Any) -> list[Any]:
    """The leaves of a behaviour, where steps are told as one."""
    return jax.tree.leaves(behaviour, is_leaf=lambda node: isinstance(node, Steps))


def _with_scales(function: Any, scales: Any, *behaviours: Any, whole_steps: bool = False) -> Any:
    """`function(scale, *leaves)` for every leaf of behaviours; with `whole_steps`, `Steps` are given to it as one."""
    leaf = (RunningScale, Steps) if whole_steps else RunningScale
    return jax.tree.map(function, scales, *behaviours, is_leaf=lambda node: isinstance(node, leaf))
