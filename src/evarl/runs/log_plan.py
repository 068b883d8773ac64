"""Which updates and environments a log keeps: the last updates, or a uniform sample of the episodes of the whole training.

**The sample.** No episode is longer than the horizon L, so one that begins in an update of T steps has ended within

    w = 1 + ⌈(L − 1) / T⌉

updates, that one included. Updates are divided into blocks of g = 2 w. A *window* is a block and the w − 1 updates after it, and
an episode is in the log if it *begins* in the block of a window, in one of the environments that are kept. Whether it is depends
on its beginning alone and not on its length: whole episodes are kept, long and short ones alike. Those that are cut, by the end
of training or by new contexts, are in no log.

**Uniform.** Strata of 2^j consecutive blocks have one window each: with i the number of a stratum, fair coins c(h, ·) decide from
height h = j down to 1 in which half of 2^h blocks the window begins. So block b has a window if and only if

    c(h, ⌊b / 2^h⌋) = bit h − 1 of b   for all h from 1 to j,

which is j independent fair coins: its probability is 2^−j for every b, also in a last stratum that extends past the end of
training, where the window is left out if the coins lead there. The M environments that are kept are the first of a uniform
permutation of all N, the same throughout the run. j and M depend on the size of things and not on any draw, and coins and
permutation depend on nothing but the run's seed. So every episode of training that ends is in the log with the same
probability,

    2^−j M / N.

Windows that overlap need no exception, since the updates that they share are written once and each counts its own episodes.

**Nested.** The windows of j + 1 are among those of j, and fewer environments are among more, whatever the number of updates: so a
run that is made longer has logged already what the log of the longer run needs of its beginning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Int

if TYPE_CHECKING:
    from evarl.learning.learner import Learner

Part = Literal["recent", "all"]
"""The last updates, or a sample of the whole training."""
LogFrom = Literal["recent", "all", "both"]
FOLDERS: dict[Part, str] = {"recent": "log", "all": "log-all"}
"""Folder of each part in the run directory."""
TITLES: dict[Part, str] = {"recent": "recent", "all": "all of training"}
"""Names in tables."""
BLOCK = 2
"""g / w. A window has 3 w − 1 updates, of which two thirds count."""
HIGHEST = 3
"""j unless the size asks for more. Of 2^j g = 16 w updates fewer than 3 w are then logged, less than a fifth: worlds in JAX are
stepped a second time in these."""
FEWEST = 4
"""Strata that a run has at least before updates are left out for speed."""

Coins = Callable[[int, int], Bool[np.ndarray, " n"]]
"""The first n coins of a height."""


@dataclass(frozen=True)
class Plan:
    """What one part of a log keeps of the updates of training."""

    recorded: Bool[np.ndarray, " updates"]
    """Updates whose batches are written."""
    counted: Bool[np.ndarray, " updates"]
    """Updates in which an episode must begin to be in the log."""
    environments: Int[np.ndarray, " M"]
    """Environments that are kept."""


@dataclass(frozen=True)
class Sizes:
    """What decides how many updates and environments fit into a log."""

    episode: int
    """w."""
    environments: int
    fitting: int
    """Batches of one environment and all seeds that fit into the given size."""
    at_hand: bool
    """Whether batches need not be collected a second time, as in worlds on the host."""


def log_parts(log_from: LogFrom) -> tuple[Part, ...]:
    """The parts of a log."""
    return ("recent", "all") if log_from == "both" else (log_from,)


def plan_log(part: Part, learner: "Learner", megabytes: float, planned: Sequence[int]) -> Plan:
    """What a part of the log keeps, of a run that was planned to have these numbers of updates, one after another."""
    sizes, config = log_sizes(learner, megabytes), learner.config
    if part == "recent":
        recent = np.arange(config.updates) >= config.updates - sizes.fitting // sizes.environments
        return Plan(recent, recent, np.arange(sizes.environments))
    return sampled(sizes, config.seed, config.updates, planned)


def log_sizes(learner: "Learner", megabytes: float) -> Sizes:
    """The sizes of a run with a log of so many megabytes."""
    config, traceable = learner.config, learner.simulator.traceable
    space, actions, steps = learner.world.observation_space, learner.agent.action_space, config.steps
    observation = space.size * np.dtype(space.dtype).itemsize
    action = 4 * getattr(actions, "size", 1)
    slots = steps // learner.world.horizon + 2 if traceable else steps
    batch = steps * (observation + action + 14) + (slots + 1) * observation
    episode = 1 - (1 - learner.world.horizon) // steps
    return Sizes(episode, config.environments, int(megabytes * 2**20 // (batch * config.seeds)), not traceable)


def sampled(sizes: Sizes, seed: int, updates: int, planned: Sequence[int]) -> Plan:
    """The sample of a run with these updates; see above.

    Of all numbers of updates for which training was planned, the one counts for which least is kept: it cannot be logged later.
    """
    levels = [_level(sizes, total) for total in {*planned, updates}]
    height, kept = max(height for height, _ in levels), min(kept for _, kept in levels)
    block = BLOCK * sizes.episode
    recorded, counted = np.zeros(updates, bool), np.zeros(updates, bool)
    if kept:
        for begin in block * windows(-(-updates // block), height, lambda at, count: _coins(seed, at, count)):
            counted[begin : begin + block] = True
            recorded[begin : begin + block + sizes.episode - 1] = True
    order = np.random.default_rng([seed % 2**64, 0]).permutation(sizes.environments)
    return Plan(recorded, counted, order[:kept])


def windows(blocks: int, height: int, coins: Coins) -> Int[np.ndarray, " W"]:
    """The blocks that have a window, one in each stratum of 2^height blocks, in order."""
    found = np.arange(-(-blocks // 2**height))
    for at in range(height, 0, -1):
        found = 2 * found + coins(at, int(found[-1]) + 1)[found]
    return found[found < blocks]


def _level(sizes: Sizes, updates: int) -> tuple[int, int]:
    """j, and the number M of environments that then fit: everything if it fits, else windows, fewer of them only for M ≥ 1."""
    if sizes.fitting >= updates * sizes.environments:
        return 0, sizes.environments
    block, height = BLOCK * sizes.episode, 0
    strata = lambda height: -(-updates // (block * 2**height))  # noqa: E731
    while not sizes.at_hand and height < HIGHEST and strata(height + 1) >= FEWEST:
        height += 1
    # not the updates that the coins have led to: how many environments are kept must not depend on them
    recorded = lambda height: min(updates, strata(height) * (block + sizes.episode - 1))  # noqa: E731
    while sizes.fitting < recorded(height) and strata(height) > 1:
        height += 1
    return height, min(sizes.environments, sizes.fitting // recorded(height))


def _coins(seed: int, height: int, count: int) -> Bool[np.ndarray, " n"]:
    """Drawn one after another, so that more of them begin with the same."""
    return np.random.default_rng([seed % 2**64, height]).random(count) < 0.5
