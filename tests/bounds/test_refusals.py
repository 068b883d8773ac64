"""Every sentence with which a claim is refused."""

import re

import numpy as np
import pytest

from evarl import bounds, stats
from evarl.errors import InputError
from tests.bounds.test_trajectory import DISCOUNT, trajectories, truth

G, V = [0.2, 0.4, 0.6], [0.1, 0.2, 0.3]
FRESH = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
UNIT = bounds.Range(0, 1)

CASES = {
    "first to finish": (
        lambda: bounds.first_begun([1.0, 0.0, 2.0], [True, False, True], 2),
        "ended: episode 2 of the first 2 has not ended; the episodes that end first are the short ones, so continue until all "
        "of these have ended",
    ),
    "more than were begun": (
        lambda: bounds.first_begun([1.0], [True], 2),
        "count: 2 is not allowed; must be from 1 to 1, the episodes that were started",
    ),
    "no returns": (lambda: bounds.betting_lower_bound([], 0, 1), "returns: has length 0; must be at least 1 rollouts"),
    "not finite": (
        lambda: bounds.betting_lower_bound([0.1, np.nan], 0, 1),
        "returns: is nan at [1]; must be finite",
    ),
    "outside": (
        lambda: bounds.betting_lower_bound([0.1, 1.5], 0, 1),
        "returns: 1.5 is outside the range [0, 1]; the range must contain every possible rollout and be fixed before the first",
    ),
    "outside, one at a time": (
        lambda: bounds.sequential_test([0.5, -3.0], 0.5, 0, 1),
        "returns: -3 is outside the range [0, 1]; the range must contain every possible rollout and be fixed before the first",
    ),
    "no range": (
        lambda: bounds.betting_upper_bound(G, 1, 1),
        "range: [1, 1] is not allowed; must be two finite numbers, the lower one first",
    ),
    "endless range": (
        lambda: stats.hoeffding_lower_bound(G, 0, np.inf),
        "range: [0, inf] is not allowed; must be two finite numbers, the lower one first",
    ),
    "three values": (
        lambda: bounds.two_valued_lower_bound([0.0, 0.5, 1.0], 0, 1),
        "returns: 0.5 is neither 0 nor 1; must be one of these two values; use betting_lower_bound for other returns",
    ),
    "three values, from above": (
        lambda: bounds.two_valued_upper_bound([0.0, 1.0, 1.00001], 0, 1),
        "returns: 1.00001 is neither 0 nor 1; must be one of these two values; use betting_lower_bound for other returns",
    ),
    "two values, no range": (
        lambda: bounds.two_valued_lower_bound([1.0], 1, 1),
        "range: [1, 1] is not allowed; must be two finite numbers, the lower one first",
    ),
    "two values, no level": (
        lambda: bounds.two_valued_upper_bound([1.0], 0, 1, alpha=1.0),
        "alpha: 1.0 is not allowed; must be a number between 0 and 1, such as 0.05",
    ),
    "alpha": (
        lambda: bounds.betting_lower_bound(G, 0, 1, alpha=0.0),
        "alpha: 0.0 is not allowed; must be a number between 0 and 1, such as 0.05",
    ),
    "alpha_reject": (
        lambda: bounds.sequential_test(G, 0.5, 0, 1, bounds.StoppingRule(alpha_reject=1.0)),
        "alpha_reject: 1.0 is not allowed; must be a number between 0 and 1, such as 0.05",
    ),
    "delta": (
        lambda: bounds.order_bound(G, V, 0.05, 2.0),
        "delta: 2.0 is not allowed; must be a number between 0 and 1, such as 0.05",
    ),
    "cap": (
        lambda: bounds.e_process(G, 0.5, 0, 1, cap=1.0),
        "cap: 1.0 is not allowed; must be a number between 0 and 1, such as 0.5 or 0.75",
    ),
    "mean": (
        lambda: bounds.e_process(G, 2.0, 0, 1),
        "mean: 2 is outside the range [0, 1]; must be inside",
    ),
    "budget": (
        lambda: bounds.sequential_test(G, 0.5, 0, 1, bounds.StoppingRule(budget=0)),
        "budget: 0 is not allowed; must be at least 1 rollout",
    ),
    "values": (
        lambda: bounds.mixture_lower_bound(bounds.EvaluatedRollouts(G, V[:2], FRESH), UNIT),
        "values: has length 2; must be 3, one for each of the rollouts",
    ),
    "fresh": (
        lambda: bounds.mixture_lower_bound(bounds.EvaluatedRollouts(G, V, FRESH[:2]), UNIT),
        "fresh: has shape (2, 2); must be [3, M], M start states for each rollout",
    ),
    "fresh for all": (
        lambda: bounds.mixture_lower_bound(bounds.EvaluatedRollouts(G, V, [[0.1, 0.2]] * 3), UNIT),
        "fresh: all rows are equal; must be start states that are drawn independently for each rollout",
    ),
    "no fresh": (
        lambda: bounds.mixture_sequential_test([(0.5, 0.5, [])], 0.5, UNIT),
        "fresh: has length 0; must be at least 1 start states",
    ),
    "value range": (
        lambda: bounds.Range(0, 1, value_high=2.0),
        "value range: [0, 2] is not allowed; must be a part of [0, 1]",
    ),
    "values upside down": (
        lambda: bounds.controlled_returns(G, V, FRESH, 1.0, 1.0, 0.0),
        "value range: [1, 0] is not allowed; must have the lower number first",
    ),
    "shares": (
        lambda: bounds.mixture_lower_bound(bounds.EvaluatedRollouts(G, V, FRESH), UNIT, shares={0.0: 0.5, 1.0: 0.6}),
        "shares: {0.0: 0.5, 1.0: 0.6} is not allowed; must be λ → share with λ = 0 among them, no negative λ, and positive "
        "shares that sum to 1",
    ),
    "few rollouts": (
        lambda: bounds.order_bound([0.0] * 58, [0.0] * 58),
        "returns: there are 58; must be at least 59 for alpha 0.05 and delta 0.05",
    ),
    "predictions": (
        lambda: bounds.order_bound([0.0] * 59, [0.0] * 58),
        "predictions: has length 58; must be 59, one for each of the rollouts",
    ),
    "epsilon": (
        lambda: bounds.risk_control(G, V, UNIT, epsilon=0.0),
        "epsilon: 0 is not allowed; must be a number above 0",
    ),
    "grid": (
        lambda: bounds.risk_control(G, V, UNIT, epsilon=0.1, grid=[0.5, 0.1]),
        "grid: goes from 0.5 to 0.1; must be increasing and not negative",
    ),
    "no margin": (
        lambda: bounds.risk_control(G, [1.0] * 3, UNIT, epsilon=0.01, grid=[0.0]).at(V),
        "margin: no λ of the grid passed; use more rollouts, a larger epsilon or a grid with larger λ",
    ),
    "other returns": (
        lambda: bounds.rmse_upper_bound(G, G[:2], V, UNIT),
        "other_returns: has length 2; must be 3, one for each of the rollouts",
    ),
    "few policies": (
        lambda: bounds.conformal_bound([0.0] * 18, [0.0] * 18),
        "values: there are 18; must be at least 19 policies for alpha 0.05",
    ),
    "few policies for bounds": (
        lambda: bounds.conformal_bound([0.0] * 23, [0.0] * 23, 0.05, 0.01),
        "values: there are 23; must be at least 24 policies for alpha 0.05",
    ),
    "bounds that cost too much": (
        lambda: bounds.conformal_bound([0.0] * 100, [0.0] * 100, 0.05, [0.001] * 100),
        "value_error: costs 0.1; must be less than alpha, 0.05",
    ),
    "impossible error": (
        lambda: bounds.conformal_bound([0.0] * 19, [0.0] * 19, 0.05, -0.1),
        "value_error: -0.1 is not allowed; must be 0 or more and below 1",
    ),
    "errors": (
        lambda: bounds.conformal_bound([0.0] * 19, [0.0] * 19, 0.05, [0.001]),
        "value_error: has length 1; must be 19, one for each of the policies",
    ),
    "candidates": (
        lambda: bounds.fixed_sequence([1.0, 2.0], [True]),
        "test: has length 1; must be 2, one for each of the candidates",
    ),
    "two rollouts": (
        lambda: stats.bernstein_lower_bound([0.5], 0, 1),
        "values: has length 1; must be at least 2 runs",
    ),
    "t level": (
        lambda: stats.t_lower_bound(G, 0.5),
        "alpha: 0.5 is not allowed; must be a number between 0 and 0.5, such as 0.05",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_sentences(case):
    call, sentence = CASES[case]
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        call()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"mask": [[0.0, 1.0]]},
            "mask: must be 1 for the first steps of each row, those that were taken, and 0 after them",
        ),
        ({"mask": [1.0]}, "mask: has shape (1,); must be [rollouts, steps]"),
        ({"mask": [[1.0], [1.0, 1.0]]}, "mask: is not an array of numbers; must be numbers in rows of equal length"),
        ({"q": [[1.0]]}, "q: has shape (1, 1); must be (1, 2), that of the mask"),
        ({"q": [[1.0, np.inf]]}, "q: is inf at [0, 1]; must be finite"),
        ({"v0": [1.0, 2.0]}, "v0: has length 2; must be 1, one for each of the rollouts"),
        ({"discount": 1.5}, "discount: 1.5 is not allowed; must be a number from 0 to 1"),
        ({"horizon": 1}, "horizon: 1 is less than the 2 steps of the rewards; must be the world's time limit"),
    ],
    ids=["order", "shape", "ragged", "another shape", "not finite", "length", "discount", "horizon"],
)
def test_sentences_about_trajectories(changes, sentence):
    arguments = vars(trajectories(0, 2, *truth(0, 2))[2])
    one = {name: value[:1] if np.ndim(value) else value for name, value in arguments.items()}
    one |= {"mask": np.ones((1, 2)), "discount": DISCOUNT, "horizon": None}

    def estimate(discount, horizon, **fields):
        return bounds.trajectory_estimate(bounds.Trajectories(**fields), discount, horizon)

    estimate(**one)
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        estimate(**{**one, **changes})
