"""Whole episodes in host worlds, each environment on its own: of many perturbed policies at once, or of one policy."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped, UInt32

from evarl.simulation.episodes import Returns
from evarl.simulation.host_acting import HostPolicy, act_each, check_actions, following_keys, mapped, step_keys
from evarl.simulation.host_resets import HostStarts, placed
from evarl.simulation.rollouts import SAME, Act, AssessmentRollout, Mapping, PerturbedAct
from evarl.worlds.spaces import Discrete
from evarl.worlds.world import HostWorld, Key


def play_each(
    world: HostWorld,
    acts: PerturbedAct,
    starts: list[Any],
    contexts: Float[np.ndarray, "PM Q"] | None,
    steps: int,
    keys: UInt32[Array, "P 2"],
    mapping: Mapping = SAME,
) -> AssessmentRollout:
    """Let P perturbed policies act in M environments each, all at once: leaves [P, steps, M, ...].

    They move in lock-step, so that one call is enough for all policies. Each environment is opened on its own and is not
    stepped again when its episode has ended; when all have, the remaining steps are 0.
    """
    space = mapping.action_space or world.action_space
    how, own = (acts, space, mapping.action), lambda x: x.reshape(len(keys), -1, *x.shape[1:])
    alive, first, rows = np.ones(len(starts), bool), np.ones((), bool), []
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(world.open(1))) for _ in starts]
        observation = np.stack([placed(one, 0, starts[i], contexts, i) for i, one in enumerate(opened)])
        shown = own(mapped(mapping, observation))
        shapes = jax.eval_shape(act_each, *how, keys, shown, None, None)[0]
        last = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
        for key in np.asarray(step_keys(keys, steps)):
            last, taken = jax.device_get(act_each(*how, key, shown, last, first))
            if isinstance(space, Discrete):
                check_actions(world.name, space, last.taken)
            observation, reward, going = observation.copy(), np.zeros(len(starts), np.float32), alive.copy()
            for i in np.flatnonzero(alive):
                step = opened[i].step(taken[i : i + 1])
                observation[i], reward[i], going[i] = step.observation[0], step.reward[0], not step.done[0]
            rows.append((shown, last.taken, np.zeros_like(own(reward)), own(reward), own(alive)))
            if not going.any():
                break
            shown, alive, first = own(mapped(mapping, observation)), going, np.zeros((), bool)
    return AssessmentRollout(*(_padded(np.stack(column, axis=1), steps) for column in zip(*rows, strict=True)))


def episode_returns(world: HostWorld, act: Act, starts: Any, key: Key, at_once: int) -> Returns:
    """Returns of one episode for each of M start states, at most `at_once` at a time.

    Environments move in lock-step for the policy's sake, but each is opened on its own: one whose episode has ended
    takes the next seed, and when there is none left it is not stepped again.
    """
    policy = HostPolicy(act, world.name, world.action_space)
    seeds, contexts = starts if isinstance(starts, HostStarts) else (starts, None)
    returns, elapsed = np.zeros((2, len(seeds))), np.zeros(len(seeds), int)
    following = min(at_once, len(seeds))
    under_way = {i: i for i in range(following)}  # environment → position of its seed
    with ExitStack() as stack:
        opened = [stack.enter_context(closing(world.open(1))) for _ in under_way]
        begin = lambda i, at: placed(opened[i], 0, seeds[at], contexts, at)  # noqa: E731
        observation = np.stack([begin(i, at) for i, at in under_way.items()])
        for act_key in _keys(key):
            if not under_way:
                break
            action = policy(act_key, observation).taken
            for i, at in list(under_way.items()):
                step = opened[i].step(action[i : i + 1])
                returns[:, at] += step.reward[0] * np.array([world.discount ** elapsed[at], 1.0])
                elapsed[at] += 1
                observation[i] = step.observation[0]
                if step.done[0]:
                    del under_way[i]
                    if following < len(seeds):
                        under_way[i], following = following, following + 1
                        observation[i] = begin(i, under_way[i])
    return Returns(*returns)


def _keys(key: Key) -> Iterator[UInt32[np.ndarray, "2"]]:
    """A key for each step, as many as are asked for."""
    while True:
        key, several = following_keys(key)
        yield from np.asarray(several)


def _padded(x: Shaped[np.ndarray, "P T ..."], steps: int) -> Shaped[Array, "P steps ..."]:
    """What happened in the first T steps, and 0 in the others."""
    others = [(0, 0)] * (x.ndim - 2)
    return jnp.asarray(np.pad(x, [(0, 0), (0, steps - x.shape[1]), *others]))
