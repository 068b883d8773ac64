"""That claims hold as often as they say: the simulation of `make coverage` with fewer repetitions."""

import numpy as np
import pytest

from benchmarks.coverage import CLAIMS, METHODS, PAGE, POPULATIONS, SIZES, Found, mean_bounds
from evarl.errors import InputError

REPETITIONS = 500
NUMBERS = [pytest.param(n, marks=pytest.mark.slow) if n == 50 else n for n in SIZES]
VALID = ("betting", "betting, any time", "mixture, good V̂")


def holds(found: Found, level: float) -> bool:
    return found.coverage >= 1 - level - 2 * np.sqrt(level * (1 - level) / len(found.covered))


@pytest.mark.parametrize("population", POPULATIONS, ids=lambda p: p.name)
@pytest.mark.parametrize("n", NUMBERS)
def test_lower_bounds_of_the_mean(population, n):
    for method, found in zip(VALID, mean_bounds(population, n, REPETITIONS, VALID), strict=True):
        assert holds(found, 0.05), method


@pytest.mark.parametrize("population", POPULATIONS, ids=lambda p: p.name)
@pytest.mark.parametrize("n", NUMBERS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_other_claims(claim, n, population):
    level, simulate = CLAIMS[claim]
    if (claim, n) in {("C2, α = δ = .05", 20), ("C2, α = δ = .05", 50), ("C5, J bounded", 20)}:
        with pytest.raises(InputError, match="want at least"):
            simulate(population, n, REPETITIONS)
    else:
        assert holds(simulate(population, n, REPETITIONS), level)


def test_the_t_bound_does_not_hold():
    crashes = POPULATIONS[2]
    found = mean_bounds(crashes, 20, REPETITIONS, ("Student t (invalid)",))[0]
    assert found.coverage < 0.65


def test_the_page_has_the_table():
    text = PAGE.read_text()
    assert all(name in text for name in (*METHODS, *CLAIMS))
