"""That claims hold as often as they say: the simulation of `make coverage` with fewer repetitions."""

import numpy as np
import pytest

from benchmarks import tightness
from benchmarks.coverage import CLAIMS, METHODS, PAGE, POPULATIONS, SIZES, Found, mean_bounds
from evarl.errors import InputError

REPETITIONS = 500
LONG = ("evaluator-overstatement, ε = .05", "evaluator-error")
"""Claims whose 500 repetitions with 200 rollouts take seconds."""


def cases(*sizes: int) -> list:
    """All numbers of rollouts in all populations: `make test-slow` tries all but these with crashes, the hardest to cover."""
    return [
        pytest.param(
            n, one, id=f"{n}-{one.name}", marks=[] if n in sizes and one.name == "crashes" else pytest.mark.slow
        )
        for n in SIZES
        for one in POPULATIONS
    ]


VALID = ("betting", "betting, any time", "mixture, good V̂")


def holds(found: Found, level: float) -> bool:
    return found.coverage >= 1 - level - 2 * np.sqrt(level * (1 - level) / len(found.covered))


@pytest.mark.parametrize(("n", "population"), cases(20))
@pytest.mark.slow
def test_lower_bounds_of_the_mean(population, n):
    for method, found in zip(VALID, mean_bounds(population, n, REPETITIONS, VALID), strict=True):
        assert holds(found, 0.05), method


@pytest.mark.parametrize(
    ("claim", "n", "population"),
    [
        pytest.param(claim, *one.values, id=f"{claim}-{one.id}", marks=one.marks)
        for claim in CLAIMS
        for one in cases(20, *(() if claim in LONG else (200,)))
    ],
)
@pytest.mark.slow
def test_other_claims(claim, n, population):
    level, simulate = CLAIMS[claim]
    if (claim, n) in {
        ("single-episode, α = δ = .05", 20),
        ("single-episode, α = δ = .05", 50),
        ("new-policy, J bounded", 20),
    }:
        with pytest.raises(InputError, match="must be at least"):
            simulate(population, n, REPETITIONS)
    else:
        assert holds(simulate(population, n, REPETITIONS), level)


def test_the_t_bound_does_not_hold():
    crashes = POPULATIONS[2]
    found = mean_bounds(crashes, 20, REPETITIONS, ("Student t (invalid)",))[0]
    assert found.coverage < 0.65


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("4 % crashes", "skewed", "constant") else pytest.mark.slow)
        for name in tightness.RETURNS
    ],
)
@pytest.mark.parametrize("alpha", [0.05, pytest.param(0.01, marks=pytest.mark.slow)])
def test_tighter_than_plain_bets_and_valid(name, alpha):
    mean, sample = tightness.RETURNS[name]
    for n in (20, 100):
        returns = sample(np.random.default_rng(n), (REPETITIONS, n))
        assert tightness.relative_gap(returns[:60], mean, alpha, sequential=False) < 0.97
        assert tightness.relative_gap(returns[:60], mean, alpha, sequential=True) < 1.04
        for sequential in (False, True):
            held = tightness.coverage(returns, mean, alpha, sequential)
            assert held >= 1 - alpha - 2 * np.sqrt(alpha * (1 - alpha) / REPETITIONS)


def test_plain_bets_are_what_they_were():
    # Bets that are capped at ½/m in every round: each of 50 ones multiplies K by ½ + ½/m.
    assert tightness.plain_bounds(np.ones((1, 50)), 0.05, False) == pytest.approx(1 / (2 * 20**0.02 - 1), abs=1e-8)


def test_the_page_has_the_tables():
    text = PAGE.read_text()
    assert all(name in text for name in (*METHODS, *CLAIMS, *tightness.RETURNS))
