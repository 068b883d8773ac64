"""Bands around the distribution of returns: with a finite-sample guarantee, or by the bootstrap."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np
from jaxtyping import Float

from evarl.bounds.bands import Band, dkw_band, framed, weighted_dkw_band, weighted_grid_band
from evarl.errors import InputError, unknown_name
from evarl.ope.settings import Settings
from evarl.ope.trajectories import Trajectories
from evarl.ranges import real, whole

Kind = Literal["dkw", "betting", "bootstrap", "none"]
KINDS: tuple[Kind, ...] = ("dkw", "betting", "bootstrap", "none")
SAME = 1e-6
"""Relative rounding error of a weight for each step, as log-probabilities may have 32 bits."""


@dataclass(frozen=True)
class BandSettings:
    """Settings of bands around a distribution of returns. Numbers must be fixed before the log is looked at."""

    kind: Kind = "bootstrap"
    """dkw and betting hold for every number of trajectories, bootstrap for many."""
    weight_bound: float | None = None
    """The greatest possible weight of a trajectory, if it is known. With 1 both policies are the same."""
    truncate: float | None = None
    """Weights are cut here, at 1 or more, where no bound is known: the band stays valid and gets wider at its upper end."""
    return_range: tuple[float, float] | None = None
    """The least and the greatest possible return, if known: needed for bounds on the mean and on CVaR, and for betting."""
    grid: int | tuple[float, ...] = 20
    """For betting: returns at which F is bounded, or how many of them, evenly in the range."""
    behaviour: Literal["logged", "estimated"] = "logged"
    """Whether the log-probabilities are those with which actions were drawn, or estimates, for which nothing is guaranteed."""

    def validate(self, method: str) -> None:
        """Refuse settings that are not allowed, or under which nothing is guaranteed."""
        if self.kind not in KINDS:
            raise unknown_name("band.kind", self.kind, KINDS)
        for name in ("weight_bound", "truncate"):
            if getattr(self, name) is not None:
                real(f"band.{name}", getattr(self, name), least=1)
        if self.kind in ("bootstrap", "none"):
            return
        if method != "tis":
            raise InputError(
                f"band.kind: {self.kind} is not valid for method {method}; must be bootstrap, or method tis"
            )
        if self.behaviour != "logged":
            raise InputError(
                f"band.behaviour: {self.behaviour} is not allowed for {self.kind}; must be logged, the probabilities with "
                "which actions were drawn"
            )
        if (self.weight_bound is None) == (self.truncate is None):
            raise InputError(
                f"band.weight_bound: {self.weight_bound}, truncate: {self.truncate}; must be one of them, fixed beforehand and "
                "not read off the log"
            )
        if isinstance(self.grid, int):
            whole("band.grid", self.grid)
        if self.kind == "betting" and self.return_range is None and isinstance(self.grid, int):
            raise InputError("band.return_range: is missing; betting requires it, or a grid, fixed beforehand")


DEFAULT = BandSettings()


def guaranteed_band(logged: Trajectories, settings: BandSettings, alpha: float) -> tuple[Band, str]:
    """A band that contains F with probability 1 − α for any number of trajectories, and what that relies on."""
    returns, weights = logged.returns, logged.weights
    low, high = settings.return_range or (-inf, inf)
    bound, limit = settings.weight_bound, settings.weight_bound or settings.truncate
    assert limit is not None
    slack = SAME * logged.mask.shape[1]
    if bound is not None and weights.max() > bound * (1 + slack):
        raise InputError(
            f"band.weight_bound: {bound:g} is exceeded by a weight of {weights.max():g}; must be the greatest"
        )
    text = "log-probabilities with which actions were drawn"
    text += "" if settings.return_range is None else f", returns in [{low:g}, {high:g}]"
    text += ", a cut of the weights that was fixed beforehand" if bound is None else f", weights of at most {bound:g}"
    if bound == 1 and settings.kind == "dkw":
        if weights.min() < 1 - slack:
            raise InputError(
                f"band.weight_bound: 1 means that the policies are the same, and a weight is {weights.min():g}; must be greater"
            )
        return dkw_band(returns, alpha, low, high), text
    if settings.kind == "dkw":
        return weighted_dkw_band(returns, weights, limit, alpha, low, high), text
    grid = settings.grid
    at = np.linspace(low, high, grid + 2)[1:-1] if isinstance(grid, int) else np.asarray(grid, np.float64)
    return weighted_grid_band(returns, weights, limit, at, alpha, low, high), f"{text}, a grid fixed beforehand"


def bootstrap_band(
    points: Float[np.ndarray, " K"],
    of_shares: Callable[[Float[np.ndarray, "B N"]], Float[np.ndarray, "B K"]],
    settings: Settings,
    count: int,
    band: BandSettings,
) -> Band:
    """F̂ ± the quantile of sup_x |F*(x) − F̂(x)| over resampled trajectories. Asymptotic."""
    generator = np.random.default_rng(abs(settings.random_seed))
    center = of_shares(np.full((1, count), 1.0 / count))[0]
    farthest: list[Float[np.ndarray, " B"]] = []
    block = max(1, 2**22 // count)
    for start in range(0, settings.resamples, block):
        size = min(block, settings.resamples - start)
        shares = generator.multinomial(count, np.full(count, 1.0 / count), size) / count
        farthest.append(np.abs(of_shares(shares) - center).max(axis=1))
    reach = np.quantile(np.concatenate(farthest), settings.confidence, method="higher")
    lower, upper = (np.append(0.0, center) + reach * sign for sign in (-1, 1))
    return framed(Band(points, lower, upper, settings.confidence, "bootstrap"), *(band.return_range or (-inf, inf)))
