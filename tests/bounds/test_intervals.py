"""What is there for comparison is what others compute."""

import numpy as np
import pytest

from evarl.bounds import bernstein_lower_bound, hoeffding_lower_bound, student_t_lower_estimate
from evarl.ope import intervals


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_one_side_is_half_of_the_two_sided_intervals(alpha):
    returns = np.random.default_rng(0).uniform(-1, 3, 300)
    confidence = 1 - 2 * alpha
    assert hoeffding_lower_bound(returns, -1, 3, alpha) == pytest.approx(
        intervals.hoeffding(returns, -1, 3, confidence).low, abs=1e-9
    )
    assert bernstein_lower_bound(returns, -1, 3, alpha) == pytest.approx(
        intervals.bernstein(returns, -1, 3, confidence).low, abs=1e-9
    )
    assert student_t_lower_estimate(returns, alpha) == pytest.approx(
        intervals.student_t(returns, confidence).low, abs=1e-9
    )


def test_cut_to_the_range():
    assert hoeffding_lower_bound([0.1], 0, 1) == bernstein_lower_bound([0.1, 0.2], 0, 1) == 0
