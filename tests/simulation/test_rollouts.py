"""What simulators are given and return, apart from any engine."""

import numpy as np
import pytest

from evarl.errors import InputError
from evarl.simulation.host_acting import check_actions
from evarl.worlds.spaces import Box


def test_actions_in_boxes_are_finite_and_clipped_where_there_are_two_bounds():
    """−1 and 1 stand for two bounds, and actions beyond are clipped; those beyond a single bound are refused."""
    space = Box((2,), (-2.0, 0.0), (2.0, np.inf))
    check_actions("a box", space, np.array([[5.0, 3.0], [-5.0, 0.0]], np.float32))
    for wrong in ([0.0, -0.1], [np.nan, 1.0], [np.inf, 1.0], [0.0, np.inf]):
        with pytest.raises(InputError, match=r"the policy takes the action \[.*\] in a box; must be finite numbers"):
            check_actions("a box", space, np.array([[0.0, 0.0], wrong], np.float32))
