"""A model of the distribution of returns for the doubly robust form: weighted neighbours, from other trajectories."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from evarl.errors import InputError
from evarl.ope.log import Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Settings
from evarl.ope.trajectories import trajectories
from evarl.ranges import whole
from evarl.sizes import check_memory

DEFAULT = Settings()
ROUNDING = 1e-9
"""Returns that differ by less, relative to their spread, are equal: they are sums in different orders."""


class KernelCDF:
    """The distribution of what remains of the return after s_t, a_t, from logged trajectories of other folds.

    Of trajectories that took the same action at t, each counts with a Gaussian kernel between observations, in units of
    their spread and of Silverman's width, times the weight of its actions after t, so that what remains is that under the
    target policy. Trajectories of the own fold are left out: the doubly robust form stays unbiased. Needs discrete
    actions, and memory for N² / folds numbers.
    """

    def __init__(self, log: Log, policy: TargetPolicy, settings: Settings = DEFAULT, folds: int = 5):
        data = log.data
        if not data.discrete or policy.probabilities is None:
            raise InputError(
                "action: is continuous; KernelCDF needs discrete actions, otherwise give a model of your own"
            )
        whole("folds", folds, least=2, most=data.trajectories)
        check_memory("folds", folds, 8.0 * data.trajectories**2 / folds, "the kernel between trajectories")
        logged = trajectories(log, policy, settings)
        self._mask, self._folds = logged.mask, folds
        self._fold = np.random.default_rng(abs(settings.random_seed)).permutation(data.trajectories) % folds
        before = np.cumsum(logged.reward, axis=1) - logged.reward
        self._before, self._after = before, logged.returns[:, None] - before
        with np.errstate(invalid="ignore"):  # −∞ − −∞: the weight up to t is 0 already
            later = logged.log_weight[:, -1:] - logged.log_weight
        self._later = np.where(np.isnan(later), -np.inf, later)
        self._rounding = ROUNDING * max(1.0, float(np.abs(logged.reward).sum(axis=1).max()))
        self._seen = np.asarray(data.observation, np.float64).reshape(*self._mask.shape, -1)
        self._action, self._policy, self._raw = np.asarray(data.action), policy, data.observation

    def __call__(
        self, step: int, points: Float[np.ndarray, " K"]
    ) -> tuple[Float[np.ndarray, "N K"], Float[np.ndarray, "N K"]]:
        """Q_t(x) of the logged action and V_t(x) of the policy; 0 for trajectories that have ended."""
        alive = self._mask[:, step]
        assert self._policy.probabilities is not None
        chance = np.asarray(self._policy.probabilities(jnp.asarray(self._raw[:, step])), np.float64)
        q, v = np.zeros((2, len(alive), len(points)))
        for fold in range(self._folds):
            asked = np.flatnonzero(alive & (self._fold == fold))
            given = alive & (self._fold != fold)
            if not len(asked) or not given.any():
                continue
            for action in range(chance.shape[1]):
                found = self._of_action(step, asked, given, action, points)
                v[asked] += chance[asked, action, None] * found
                q[asked] = np.where(self._action[asked, step, None] == action, found, q[asked])
        return np.clip(q, 0.0, 1.0), np.clip(v, 0.0, 1.0)

    def _of_action(
        self,
        step: int,
        asked: Int[np.ndarray, " Q"],
        given: Bool[np.ndarray, " N"],
        action: int,
        points: Float[np.ndarray, " K"],
    ) -> Float[np.ndarray, "Q K"]:
        """Q_t(x) of one action; from all actions where no other trajectory took it."""
        same = given & (self._action[:, step] == action) & np.isfinite(self._later[:, step])
        usable = np.flatnonzero(same if same.any() else given)
        usable = usable[np.argsort(self._after[usable, step], kind="stable")]
        log_kernel = self._log_kernel(self._seen[asked, step], self._seen[usable, step]) + self._later[usable, step]
        top = log_kernel.max(axis=1, keepdims=True)
        kernel = np.exp(log_kernel - np.where(np.isfinite(top), top, 0.0))
        summed = np.concatenate([np.zeros((len(asked), 1)), np.cumsum(kernel, axis=1)], axis=1)
        rest = points - self._before[asked, step, None] + self._rounding
        place = np.searchsorted(self._after[usable, step], rest, side="right")
        return np.take_along_axis(summed, place, axis=1) / np.maximum(summed[:, -1:], 1e-300)

    @staticmethod
    def _log_kernel(a: Float[np.ndarray, "Q F"], b: Float[np.ndarray, "M F"]) -> Float[np.ndarray, "Q M"]:
        spread = b.std(axis=0)
        scale = np.where(spread > 1e-5, spread, 1.0)
        a, b = a / scale, b / scale
        squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
        return -np.maximum(squares, 0.0) / (2 * len(b) ** (-2.0 / (b.shape[1] + 4.0)))
