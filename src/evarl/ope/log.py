"""A log prepared for estimators: what several of them need is computed once."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe_configuration import Convention
from evarl.ope.fqe_table import in_blocks
from evarl.ope.importance import Steps
from evarl.ope.model import Model
from evarl.ope.policy import TargetPolicy
from evarl.ope.rules import shares
from evarl.ope.settings import Rule, Settings
from evarl.worlds.world import Key

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Log:
    """Logged data, the discount, and the states whose values are asked for.

    Importance ratios and fitted Q functions are computed when an estimator first asks for them, and kept.
    """

    data: LoggedData
    discount: float
    """γ."""
    states: Shaped[Array | np.ndarray, "Q ..."] | None = None
    """Observations at which V is estimated."""
    times: Int[Array | np.ndarray, " Q"] | None = None
    """The step at which each state was observed, if time is a feature; 0 when not given."""
    _kept: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.discount <= 1:
            raise InputError(f"discount: {self.discount} is not allowed; must be from 0 to 1")
        expected = self.data.observation.shape[2:]
        if self.states is not None and self.states.shape[1:] != expected:
            raise InputError(
                f"states: have shape {self.states.shape[1:]} each; must be {expected}, that of the logged observations"
            )

    @property
    def uniform(self) -> Float[Array, " N"]:
        """Equal shares of all trajectories."""
        return jnp.full(self.data.trajectories, 1.0 / self.data.trajectories)

    def log_ratio(self, policy: TargetPolicy) -> Float[Array, "N T"]:
        """Log importance ratios log π_e − log π_b of the logged actions; 0 in the padding."""
        return self._once(("log_ratio", id(policy)), policy, lambda: _log_ratio(self.data, policy))

    def steps(self, policy: TargetPolicy, clip: float | None = None) -> Steps:
        """Rewards and log-ratios, which are limited to at most `clip`; −∞, the ratio of an impossible action, stays."""
        log_ratio = self.log_ratio(policy)
        if clip is not None:
            log_ratio = jnp.minimum(log_ratio, jnp.asarray(clip, log_ratio.dtype))
        return Steps(jnp.asarray(self.data.reward), log_ratio, jnp.asarray(self.data.mask), self.discount)

    def model(self, policy: TargetPolicy, settings: Settings, convention: Convention | None = None) -> Model:
        """Fitted Q evaluation of a policy, by the convention of the settings unless given."""
        config = settings.fqe if convention is None else replace(settings.fqe, convention=convention)
        name = ("model", id(policy), config, settings.random_seed)
        return self._once(name, policy, lambda: Model(config, self.data, policy, self.discount, fit_key(settings)))

    def state_values(self, rule: Rule, value: Callable[[Float[Array, " N"]], float]) -> Float[np.ndarray, " Q"] | None:
        """V at the query states from a function of the trajectories' shares; NaN where the rule selects none."""
        if self.states is None:
            return None
        states = np.asarray(self.states)
        distinct, row = self._once(
            ("shares", rule), None, lambda: np.unique(shares(rule, self.data, states), axis=0, return_inverse=True)
        )
        values = [value(jnp.asarray(share, jnp.float32)) if share.sum() > 0 else np.nan for share in distinct]
        return np.asarray(values, np.float64)[row.reshape(-1)]

    def _once(self, name: Any, policy: TargetPolicy | None, make: Callable[[], T]) -> T:
        """What was made under this name before, or is made now. The policy is kept too, so that its id stays its own."""
        if name not in self._kept:
            self._kept[name] = policy, make()
        found: T = self._kept[name][1]
        return found


def fit_key(settings: Settings) -> Key:
    """The random key of fits."""
    return jax.random.split(jax.random.PRNGKey(settings.random_seed))[0]


def bootstrap_key(settings: Settings) -> Key:
    """The random key of bootstrap samples."""
    return jax.random.split(jax.random.PRNGKey(settings.random_seed))[1]


def _log_ratio(data: LoggedData, policy: TargetPolicy) -> Float[Array, "N T"]:
    assert data.log_prob is not None
    log_prob = jax.jit(policy.log_prob)
    count, steps = data.mask.shape
    seen, done = (np.asarray(x).reshape(count * steps, *x.shape[2:]) for x in (data.observation, data.action))
    target = in_blocks(lambda at: log_prob(jnp.asarray(seen[at]), jnp.asarray(done[at])), count * steps)
    ratio = target.reshape(count, steps) - np.asarray(data.log_prob)
    if np.isnan(ratio[np.asarray(data.mask)]).any():
        raise InputError("policy.log_prob: is NaN for some logged actions; must be logarithms of probabilities")
    return jnp.asarray(np.where(data.mask, ratio, 0.0), jnp.float32)
