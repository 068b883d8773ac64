"""Monte-Carlo values with control variates: along the trajectory, from V̂ and from resampled steps.

    Q̂(s, a) = r̂(s, a) + γ v̂(s, a),   the means of r and of V̂(s') over M steps that are resampled from (s, a)

    G_cv = G − [V̂(s_0) − mean_j V̂(s̃_j)] − Σ_t γ^t [Q̂(s_t, a_t) − E_π Q̂(s_t, ·)]
             − Σ_t γ^t [r_t − r̂(s_t, a_t)] − Σ_t γ^{t+1} [V̂(s_{t+1}) − v̂(s_t, a_t)]

V̂ is 0 after a termination and after the time limit, for steps that were taken and for resampled ones alike. Then every bracket
has mean 0 given the past, whatever V̂ and M are: Q̂ is sampled before the action and independently of it, and the step that is
taken has the distribution of the resampled ones. s̃_j are start states drawn for each rollout alone, so that the G_cv are
independent and their standard error is that of their mean.

In a deterministic world M = 1 is exact and only the errors of V̂ remain. In a stochastic one resampling adds noise: with the true
V, and σ² = Var(r + γ V(s') | s, a),

    Var(G_cv) = Σ_t γ^{2t} E Σ_a π(a|s_t)² σ²(s_t, a) / M   where Var(G) contains   Σ_t γ^{2t} E Σ_a π(a|s_t) σ²(s_t, a).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int

from evarl.agents.distributions import Categorical, Distribution, Policy
from evarl.bounds import Trajectories, trajectory_estimate
from evarl.errors import InputError
from evarl.ranges import whole
from evarl.simulation.compiled import CompiledSimulator
from evarl.simulation.rollouts import Batch
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_memory, check_rollouts
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import AnyWorld, Key, Step, WorldState

Value = Callable[[Array], Float[Array, " B"]]
"""V̂ at observations [B, ...], such as `Partial(agent.value, policy)`. It has to be fixed before the rollouts."""

AT_ONCE = 1024
"""Rollouts that run at a time, by default."""


@dataclass(frozen=True)
class ControlSettings:
    """How much is sampled for the control variates."""

    resamples: int = 1
    """Number M of steps resampled for each action; in a deterministic world 1 is exact."""
    actions: int = 16
    """Continuous actions drawn for E_π Q̂; discrete ones are all evaluated."""
    fresh: int = 32
    """Start states drawn for each rollout, for E_μ V̂."""


DEFAULT = ControlSettings()


class Summary(NamedTuple):
    """The value J by plain Monte Carlo and with control variates, from the same rollouts."""

    rollouts: int
    plain: float
    """Mean G, and its standard error."""
    plain_error: float
    controlled: float
    """Mean G_cv, and its standard error."""
    controlled_error: float
    variance_ratio: float | None
    """Var(G) / Var(G_cv): how many times as many plain rollouts give the same precision. None where G_cv does not vary."""
    extra_steps: int
    """Steps resampled for each step taken."""


@dataclass(frozen=True)
class Controlled:
    """Returns of n rollouts, without and with control variates."""

    returns: Float[np.ndarray, " n"]
    """G, discounted."""
    estimates: Float[np.ndarray, " n"]
    """G_cv, with the same mean."""
    extra_steps: int
    """Steps resampled for each step taken."""

    @property
    def summary(self) -> Summary:
        """Means, standard errors, and the ratio of variances."""
        n, both = len(self.returns), np.stack([self.returns, self.estimates])
        variance = both.var(axis=1, ddof=1)
        plain, controlled = zip(both.mean(axis=1).tolist(), np.sqrt(variance / n).tolist(), strict=True)
        ratio = float(variance[0] / variance[1]) if variance[1] > 0 else None
        return Summary(n, *plain, *controlled, ratio, self.extra_steps)


class _Rows(NamedTuple):
    """Fields of `Trajectories`, of one step or of all."""

    mask: Bool[Array, "*T n"]
    reward: Float[Array, "*T n"]
    expected_reward: Float[Array, "*T n"]
    q: Float[Array, "*T n"]
    expected_q: Float[Array, "*T n"]
    v_next: Float[Array, "*T n"]
    expected_v_next: Float[Array, "*T n"]


_Walk = tuple[Key, Int[Array, ""], WorldState, Array, Bool[Array, " n"], _Rows]
"""n rollouts under way: key, time, states, observations, which are alive, and rows [T, n], zeros from that time on."""


def controlled_rollouts(
    world: AnyWorld,
    policy: Policy,
    value: Value,
    key: Key,
    rollouts: int,
    settings: ControlSettings = DEFAULT,
    at_once: int = AT_ONCE,
) -> Controlled:
    """Returns of a policy from start states drawn from μ_D, with and without control variates made of V̂.

    Policies and V̂ given as `Partial` are data to the compiled program, so the next ones of the same kind use it again. The
    same key gives the same rollouts, whatever V̂ is. The world must be one in JAX, in which steps can be repeated.
    """
    if not world.can_restart:
        raise InputError(f"world: {world.name} is not allowed; must be in JAX, where a step can be repeated")
    check_rollouts("rollouts", rollouts, least=2)
    for name, number in asdict(settings).items():
        whole(name, number)
        needed = 4.0 * number * min(rollouts, at_once) * world.observation_space.size
        check_memory(name, number, needed, "a step of all rollouts")
    policy, value = (function if isinstance(function, Partial) else Partial(function) for function in (policy, value))
    chunks = -(-rollouts // at_once)
    size = -(-rollouts // chunks)
    simulator, parts = cast(CompiledSimulator, simulator_for(world)), []
    for index in range(chunks):
        walked = _walked(simulator, policy, value, jax.random.fold_in(key, index), size, settings)
        parts.append(_estimated(world, *jax.device_get(walked)))
    returns, estimates = np.concatenate(parts, axis=1)[:, :rollouts]
    space = world.action_space
    candidates = space.n if isinstance(space, Discrete) else 1 + settings.actions
    return Controlled(returns, estimates, extra_steps=settings.resamples * candidates)


def _estimated(world: AnyWorld, start: Float[np.ndarray, " n"], rows: _Rows) -> Float[np.ndarray, "2 n"]:
    """G and G_cv."""
    rows = jax.tree.map(np.transpose, rows)
    discounts = world.discount ** np.arange(world.horizon)
    returns = np.where(rows.mask, rows.reward, 0.0).astype(np.float64) @ discounts
    trajectories = Trajectories(
        rewards=rows.expected_reward,  # r_t minus its own bracket
        mask=rows.mask,
        v0=start,
        mean_v0=0.0,  # subtracted already, for each rollout its own
        q=rows.q,
        expected_q=rows.expected_q,
        v_next=rows.v_next,
        expected_v_next=rows.expected_v_next,
    )
    return np.stack([returns, trajectory_estimate(trajectories, world.discount, world.horizon)])


@partial(jax.jit, static_argnames=("simulator", "count", "settings"))
def _walked(
    simulator: CompiledSimulator, policy: Policy, value: Value, key: Key, count: int, settings: ControlSettings
) -> tuple[Float[Array, " n"], _Rows]:
    """The bracket of the start state, and the rows [T, n] of whole episodes; the loop stops when the last has ended."""
    start_key, walk_key = jax.random.split(key)
    begun = simulator.begin(Batch((1 + settings.fresh) * count, 1), start_key)  # the rollouts' own first
    starts = value(begun.observation).reshape(1 + settings.fresh, count)
    states, observation = jax.tree.map(lambda leaf: leaf[:count], (begun.state, begun.observation))
    zeros = jnp.zeros((simulator.world.horizon, count))
    rows = _Rows(zeros.astype(bool), *[zeros] * (len(_Rows._fields) - 1))
    walk = walk_key, jnp.zeros((), jnp.int32), states, observation, jnp.ones(count, bool), rows
    one_step = partial(_one_step, simulator, policy, value, settings)
    walk = jax.lax.while_loop(lambda walk: walk[4].any(), one_step, walk)
    return starts[0] - starts[1:].mean(axis=0), walk[-1]


def _one_step(
    simulator: CompiledSimulator, policy: Policy, value: Value, settings: ControlSettings, walk: _Walk
) -> _Walk:
    """Take a step, and resample M others for each candidate action, all with randomness of their own."""
    key, time, states, observation, alive, rows = walk
    key, act_key, step_key = jax.random.split(key, 3)
    candidates, weight, chosen = _candidates(policy(observation), act_key, settings.actions)
    every = jnp.concatenate([_pick(candidates, chosen)[None], *[candidates] * settings.resamples])

    def step_with(actions: Array, keys: Array) -> Step:
        as_given = lambda given, observation: (given,)  # noqa: E731
        return simulator.step(as_given, actions, keys, states, observation)[1]

    step = jax.vmap(step_with)(every, jax.random.split(step_key, every.shape[:2]))
    seen = step.observation.reshape(-1, *step.observation.shape[2:])
    behind = jnp.where(step.done, 0.0, value(seen).reshape(step.done.shape))  # V̂ is 0 after either kind of end
    shape = settings.resamples, *weight.shape
    mean_reward, mean_behind = (x[1:].reshape(shape).mean(axis=0) for x in (step.reward, behind))
    q = mean_reward + simulator.world.discount * mean_behind
    row = _Rows(
        mask=alive,
        reward=step.reward[0],
        expected_reward=_pick(mean_reward, chosen),
        q=_pick(q, chosen),
        expected_q=(weight * q).sum(axis=0),
        v_next=behind[0],
        expected_v_next=_pick(mean_behind, chosen),
    )
    rows = jax.tree.map(lambda table, new: table.at[time].set(new), rows, row)
    taken = jax.tree.map(lambda leaf: leaf[0], step)
    return key, time + 1, taken.state, taken.observation, alive & ~taken.done, rows


def _candidates(
    distribution: Distribution, key: Key, actions: int
) -> tuple[Array, Float[Array, "C n"], Int[Array, " n"]]:
    """Candidate actions [C, n, ...] of the policy, their weights in E_π Q̂, and the position of the one taken.

    Discrete actions are all there. Of continuous ones the first is taken; the others are drawn apart, and estimate the mean.
    """
    if isinstance(distribution, Categorical):
        n, count = distribution.logits.shape
        every = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[:, None], (count, n))
        return every, jax.nn.softmax(distribution.logits).T, distribution.sample(key)
    drawn = jax.vmap(distribution.sample)(jax.random.split(key, 1 + actions))
    n = drawn.shape[1]
    weight = jnp.full((1 + actions, n), 1 / actions).at[0].set(0.0)
    return drawn, weight, jnp.zeros(n, jnp.int32)


def _pick(table: Array, chosen: Int[Array, " n"]) -> Array:
    """The chosen one [n, ...] of candidates [C, n, ...]."""
    return table[chosen, jnp.arange(chosen.shape[0])]
