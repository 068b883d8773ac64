"""Other lower bounds, for comparison only. Nothing is certified with them.

    hoeffding   mean − R √(ln(1/α)/(2n))                                     valid, and blind to variance
    bernstein   mean − √(2 s² ln(2/α)/n) − 7 R ln(2/α)/(3(n − 1))            valid (Maurer & Pontil, 2009), and timid
    student t   mean − t_{1−α, n−1} s/√n                                     *invalid*: what never happened does not count

with R = high − low and s² the unbiased variance. With 4 % crashes a sample of 20 has none in it 44 % of the time, and the t
bound then knows of none: it covers some 60 % where it says 95 %.
"""

import numpy as np
from numpy.typing import ArrayLike

from evarl.bounds import inputs
from evarl.errors import InputError
from evarl.stats import t_interval


def hoeffding_lower_bound(returns: ArrayLike, low: float, high: float, alpha: float = 0.05) -> float:
    """Hoeffding's, cut to the range.

    >>> round(hoeffding_lower_bound([0.0, 1.0] * 500, 0.0, 1.0), 4)
    0.4613
    """
    inputs.check_level("alpha", alpha)
    found = inputs.returns_in("returns", returns, low, high)
    return max(low, float(found.mean() - (high - low) * np.sqrt(np.log(1 / alpha) / (2 * len(found)))))


def bernstein_lower_bound(returns: ArrayLike, low: float, high: float, alpha: float = 0.05) -> float:
    """The empirical Bernstein bound, cut to the range.

    >>> round(bernstein_lower_bound([0.0, 1.0] * 500, 0.0, 1.0), 4)
    0.4484
    """
    inputs.check_level("alpha", alpha)
    found = inputs.returns_in("returns", returns, low, high)
    inputs.vector("returns", found, at_least=2, of="rollouts")
    doubt = np.log(2 / alpha)
    reach = np.sqrt(2 * found.var(ddof=1) * doubt / len(found)) + 7 * (high - low) * doubt / (3 * (len(found) - 1))
    return max(low, float(found.mean() - reach))


def student_t_lower_estimate(returns: ArrayLike, alpha: float = 0.05) -> float:
    """Student's one-sided bound: an estimate, *not* a bound, unless returns are normal.

    >>> round(student_t_lower_estimate([1.0, 2.0, 3.0]), 4)
    0.3141
    """
    if not 0 < alpha < 0.5:
        raise InputError(f"alpha: {alpha} is not allowed; want a number between 0 and 0.5, such as 0.05")
    return t_interval(returns, 1 - 2 * alpha).low
