"""Recorded episodes: what a policy sees, does and is rewarded, step by step, and what was predicted before.

Everything here is plain arrays; `evarl.report.video` draws them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from evarl.agents.distributions import world_action
from evarl.evaluation.described import described_episode
from evarl.evaluation.inputs import AssessedPolicy, agent_policy, root_key
from evarl.evaluation.predictions import BehaviourPredictor
from evarl.ranges import whole
from evarl.runs.checks import not_fitted
from evarl.runs.run import Run
from evarl.worlds.contexts import draw_contexts, parse_contexts, parse_site
from evarl.worlds.spaces import Discrete, Space
from evarl.worlds.world import AnyWorld, HostWorld, Key, Physics, World

Look = Callable[[Physics], Any]
"""What is kept of the physics for a drawing, such as the places of bodies; to be traced."""


@dataclass(frozen=True)
class Show:
    """What is to be recorded."""

    episodes: int = 1
    seed: int | None = None
    """Seed of the policy; by default the first."""
    random_seed: int = 0
    context: Sequence[str] | Mapping[str, float] | None = None
    """Hidden numbers of the site, in a family of worlds; drawn for each episode where they are not given."""
    deterministic: bool = False
    """Take the likeliest action, or the mean, in place of a draw."""
    random: bool = False
    """Draw actions uniformly, in place of the policy."""
    steps: int | None = None
    """Steps of an episode that are recorded, at most."""

    def validate(self) -> None:
        """Raise InputError for numbers that are not allowed."""
        whole("episodes", self.episodes, most=1000)
        if self.steps is not None:
            whole("steps", self.steps)


@dataclass(frozen=True)
class Episode:
    """One recorded episode of T steps."""

    observations: np.ndarray
    """[T + 1, ...]"""
    looks: list[Any]
    """What a drawing needs beside the observation, before each step and after the last; pictures of worlds on the host."""
    rewards: Float[np.ndarray, " T"]
    end: str
    """How it ended: "terminated", "truncated", or "cut" where no more was recorded."""
    predicted: float | None
    """Value that the evaluator predicted before, from the policy's test; None where there is no fitted evaluator."""
    context: dict[str, float] | None
    """Hidden numbers of its site."""

    def __repr__(self) -> str:
        return described_episode(self)

    @property
    def steps(self) -> int:
        """The number T of steps."""
        return len(self.rewards)

    def returns(self, discount: float = 1.0) -> Float[np.ndarray, " T1"]:
        """The return before each step and after the last."""
        weights = discount ** np.arange(self.steps)
        return np.concatenate([[0.0], np.cumsum(weights * self.rewards)])


def record(run: Run, show: Show, look: Look | None = None, world: AnyWorld | None = None) -> list[Episode]:
    """Let the final policy of a seed, or uniformly drawn actions, play some episodes in the world of its training.

    `world` is the same world where it is prepared for pictures.
    """
    show.validate()
    world, predictor = world or run.world, None if show.random else _Predictor.of(run, show)
    policy = _policy(run, show)
    site = _given_site(run, show.context)
    play = _host_player(world, look) if isinstance(world, HostWorld) else _player(world, look)
    found = []
    for index in range(show.episodes):
        site_key, test_key, walk_key = jax.random.split(jax.random.fold_in(root_key(show.random_seed), index), 3)
        at = site
        if at is None and world.contexts:
            at = np.asarray(draw_contexts(world.contexts, site_key, 1))[0]
        steps = min(show.steps or world.horizon, world.horizon)
        episode = play(policy, walk_key, at, steps)
        if at is not None:
            named = zip((one.name for one in world.contexts), at.tolist(), strict=True)
            episode = replace(episode, context={name: float(f"{value:.7g}") for name, value in named})
        if predictor is not None:
            episode = replace(episode, predicted=predictor(policy, test_key, at, episode.observations[0]))
        found.append(episode)
    return found


def _given_site(run: Run, given: Sequence[str] | Mapping[str, float] | None) -> Float[np.ndarray, " P"] | None:
    texts = [f"{name}={value!r}" for name, value in given.items()] if isinstance(given, Mapping) else given or ()
    site = parse_site(texts, run.world.contexts, run.config.world)
    if site is not None:
        parse_contexts(texts, run.world.parameters, run.config.world)  # refuses what the world does not allow
    return site


def _likeliest(agent: Any, parameters: Any, key: Key, observation: Array) -> tuple[Array, Array]:
    distribution = agent.distribution(parameters, observation)
    action = distribution.mode()
    return action, distribution.log_prob(action)


def _uniform(space: Space, key: Key, observation: Array) -> tuple[Array, None]:
    """Uniform actions in the policy's units; unbounded coordinates are drawn from −1 to 1 as well."""
    if isinstance(space, Discrete):
        return jax.random.randint(key, (len(observation),), 0, space.n), None
    return jax.random.uniform(key, (len(observation), space.size), minval=-1.0, maxval=1.0), None


def _policy(run: Run, show: Show) -> AssessedPolicy:
    if show.random:
        return AssessedPolicy(Partial(partial(_uniform, run.learner.agent.action_space)))
    parameters = run.policy_state(show.seed)
    sampled = agent_policy(run, parameters)
    if not show.deterministic:
        return sampled
    return sampled._replace(act=Partial(partial(_likeliest, run.learner.agent), parameters))


class _Predictor:
    """Predicts the value of an episode from a test of the policy on the same site."""

    def __init__(self, run: Run, state: Any):
        self._predict, self._state = BehaviourPredictor(run), state

    @classmethod
    def of(cls, run: Run, show: Show) -> "_Predictor | None":
        """None where there is no evaluator, or one that was not fitted."""
        if run.assessment is None:
            return None
        learnt = run.evaluator_state(show.seed)
        seed = run.seeds[0] if show.seed is None else show.seed
        return None if not_fitted(learnt, run.config, seed) else cls(run, learnt.state)

    def __call__(
        self, policy: AssessedPolicy, key: Key, site: Float[np.ndarray, " P"] | None, start: np.ndarray
    ) -> float:
        take, probes = self._predict, self._state.probed
        tested = take.assess(policy, key, None, probes) if site is None else take.assess_site(policy, key, site, probes)
        return float(take.predict(self._state, tested.behaviour, jnp.asarray(start)[None])[0])


Play = Callable[[AssessedPolicy, Key, Float[np.ndarray, " P"] | None, int], Episode]
"""Plays an episode of a policy from a key, on a site if there are several, of at most so many steps."""


def _player(world: AnyWorld, look: Look | None) -> Play:
    """Plays episodes of a world in JAX by one compiled step that is called again and again."""
    assert isinstance(world, World)
    looked = look or (lambda physics: jnp.zeros(()))

    @jax.jit
    def begin(key: Key, context: Array | None) -> tuple[Any, Array, Any]:
        state, observation = world.reset(key, context)
        return state, observation, looked(state.physics)

    @jax.jit
    def step(policy: AssessedPolicy, key: Key, state: Any, observation: Array) -> tuple[Any, Any]:
        act_key, world_key = jax.random.split(key)
        action = world_action(world.action_space, policy.act(act_key, observation[None])[0])
        moved = world.step(world_key, state, action[0])
        return moved, looked(moved.state.physics)

    def play(policy: AssessedPolicy, key: Key, site: Float[np.ndarray, " P"] | None, most: int) -> Episode:
        reset_key, key = jax.random.split(key)
        state, observation, shown = begin(reset_key, None if site is None else jnp.asarray(site, jnp.float32))
        observations, looks, rewards, end = [observation], [shown], [], "cut"
        for index in range(most):
            moved, shown = step(policy, jax.random.fold_in(key, index), state, observation)
            state, observation = moved.state, moved.observation
            observations.append(observation)
            looks.append(shown)
            rewards.append(moved.reward)
            if bool(moved.done):
                end = "terminated" if bool(moved.terminated) else "truncated"
                break
        stacked = np.stack([np.asarray(one) for one in observations])
        return Episode(stacked, jax.device_get(looks), np.asarray(rewards, np.float64), end, None, None)

    return play


def _host_player(world: HostWorld, look: Look | None) -> Play:
    """Plays episodes of a world on the host; where there is a `look`, it is given the open environments."""
    act = jax.jit(lambda policy, key, shown: world_action(world.action_space, policy.act(key, shown[None])[0]))
    looked = look or (lambda environments: None)

    def play(policy: AssessedPolicy, key: Key, site: Float[np.ndarray, " P"] | None, most: int) -> Episode:
        environments = world.open(1)
        try:
            if site is not None:
                environments.place(0, site)
            observations = [environments.reset(0, int(jax.random.randint(key, (), 0, 2**31 - 1)))]
            looks, rewards, end = [looked(environments)], [], "cut"
            for index in range(most):
                action = act(policy, jax.random.fold_in(key, index), observations[-1])
                moved = environments.step(np.asarray(action))
                observations.append(moved.observation[0])
                looks.append(looked(environments))
                rewards.append(float(moved.reward[0]))
                if moved.done[0]:
                    end = "terminated" if moved.terminated[0] else "truncated"
                    break
        finally:
            environments.close()
        return Episode(np.stack(observations), looks, np.asarray(rewards), end, None, None)

    return play
