"""Whether the log supports the policy's actions: how far pairs of observation and action are from logged ones.

At logged observations, the distance to the nearest observation at which another trajectory took an action of the policy is
compared with the distance to the nearest one at which another took the logged action. A fitted Q function extrapolates to pairs
that are far from all logged ones, and refits may agree there.
"""

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from evarl.ope.dataset import LoggedData
from evarl.ope.fqe_table import target_actions
from evarl.ope.log import Log, generator
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig, Settings
from evarl.ope.support import FAR, LEVEL, MOST, Scaled, distances, pool_of

ASKED = 256
"""Start observations, and observations of any step, at which actions are looked at, at most."""
ALLOWED = 0.05
"""Probability of actions that are not supported, above which an estimate carries a warning."""


def action_warnings(log: Log, policy: TargetPolicy, settings: Settings) -> tuple[str, ...]:
    """A line that says how likely the policy is to take actions that the log does not support; none for continuous actions."""
    if not log.data.discrete or log.data.trajectories < 2:
        return ()
    config = settings.fitting()
    name = ("actions", id(policy), config.one_hot, settings.random_seed)
    found = log.once(name, policy, lambda: unsupported(config, log.data, policy, generator(settings)))
    where = ("logged start states", "logged observations")
    worst = int(np.argmax(found))
    if found[worst] <= ALLOWED:
        return ()
    return (
        f"at {where[worst]} the policy takes, with probability {found[worst]:.2g}, actions that were not logged at any "
        "observation as near as usual; their values are extrapolated",
    )


def unsupported(
    config: FQEConfig, data: LoggedData, policy: TargetPolicy, rng: np.random.Generator
) -> tuple[float, float]:
    """The policy's mean probability of actions that the log does not support, at start states and at all observations.

    An action is not supported at an observation if the nearest one at which another trajectory took it is farther than FAR
    times all but a share LEVEL of the usual distances; if observations are names of states, if it is another state.
    """
    entries = int(np.prod(data.observation.shape[2:])) * data.mask.size
    if entries > MOST:  # of large logs, some trajectories
        data = data.rows(rng.permutation(data.trajectories)[: max(2, data.trajectories * MOST // entries)])
    mask = np.asarray(data.mask)
    owner, step = np.nonzero(mask)
    seen, done = np.asarray(data.observation)[mask], np.asarray(data.action)[mask].astype(np.int64)
    scaled, zeros = Scaled(config, data, step), np.zeros(len(seen), int)
    (places, taken), sole, _ = pool_of(seen, owner, done, True, rng)
    points = scaled.points(places, zeros[: len(places)])

    def nearest(
        rows: Int[np.ndarray, " B"], wanted: Bool[np.ndarray, "B P"] | Bool[np.ndarray, " P"]
    ) -> Float[np.ndarray, " B"]:
        apart = distances(scaled.points(seen[rows], zeros[rows]), points)
        return np.where(wanted & (sole[None] != owner[rows][:, None]), apart, np.inf).min(axis=1)

    sample = rng.permutation(len(seen))[:ASKED]
    usual = nearest(sample, done[sample][:, None] == taken[None])
    usual = usual[np.isfinite(usual)]
    # states that are names are the same or not, however usual it is that another trajectory did not do what was done there
    far = FAR * float(np.quantile(usual, 1 - LEVEL)) if len(usual) and scaled.levels is None else 0.0
    shares = []
    for rows in (rng.permutation(np.flatnonzero(step == 0))[:ASKED], sample):
        chance = np.asarray(target_actions(config, data, policy, jax.random.PRNGKey(0), seen[rows]), np.float64)
        missing = np.stack([nearest(rows, taken == action) > far for action in range(chance.shape[1])], axis=1)
        shares.append(float((chance * missing).sum(axis=1).mean() / chance.sum(axis=1).mean()))
    return shares[0], shares[1]
