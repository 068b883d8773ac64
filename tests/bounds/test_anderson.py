"""Anderson's bound: by a linear programme, and how often it holds where numbers have a heavy tail."""

import numpy as np
import pytest
from scipy.optimize import linprog

from evarl.bounds import anderson_lower_bound, anderson_upper_bound, dkw_band
from evarl.errors import InputError
from evarl.stats import t_lower_bound

REPETITIONS = 600
POPULATIONS = {
    "smooth": (0.5, lambda rng, shape: rng.random(shape)),
    "rare crash": (0.96, lambda rng, shape: (rng.random(shape) >= 0.04).astype(float)),
    "heavy tail": (float(np.exp(2.0)), lambda rng, shape: rng.lognormal(0.0, 2.0, shape)),
    "no mean square": (3.0, lambda rng, shape: rng.pareto(1.5, shape) + 1.0),
}


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_it_is_the_least_mean_in_the_band(alpha):
    x = np.sort(np.random.default_rng(0).gamma(1.0, size=12))
    reach = np.sqrt(np.log(1 / alpha) / (2 * len(x)))
    # masses on 0 and on the values; sums up to each are at most the share of values there, plus the reach
    points = np.append(0.0, x)
    most = np.minimum(np.arange(13) / 12 + reach, 1.0)
    found = linprog(points, np.tril(np.ones((13, 13))), most, np.ones((1, 13)), [1.0])
    assert anderson_lower_bound(x, 0.0, alpha) == pytest.approx(found.fun)
    assert anderson_upper_bound(-x, 0.0, alpha) == pytest.approx(-found.fun)
    two_sided = dkw_band(x, 2 * alpha, low=0.0)
    assert two_sided.mean()[0] == pytest.approx(found.fun)


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("n", [20, 200])
def test_coverage(name, n):
    mean, draw = POPULATIONS[name]
    x = draw(np.random.default_rng(n), (REPETITIONS, n))
    held = np.mean([anderson_lower_bound(row, 0.0, 0.05) <= mean for row in x])
    assert held >= 0.95 - 2 * np.sqrt(0.05 * 0.95 / REPETITIONS)
    if name == "rare crash" and n == 20:
        assert np.mean([t_lower_bound(row, 0.05) <= mean for row in x]) < 0.7


def test_refusals():
    with pytest.raises(InputError, match=r"low: 0\.5 is not allowed; must be at most 0\.2"):
        anderson_lower_bound([0.2, 1.0], 0.5)
    with pytest.raises(InputError, match="alpha"):
        anderson_lower_bound([0.2, 1.0], 0.0, 0.6)
