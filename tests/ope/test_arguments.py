"""Wrong arguments of off-policy evaluation and of registries are one line that says what to give."""

import numpy as np
import pytest

import evarl
from evarl import ope
from evarl.errors import InputError

DATA = ope.LoggedData.from_arrays(
    observation=np.zeros((4, 2, 1)),
    action=np.array([[0, 1]] * 4),
    reward=np.ones((4, 2)),
    log_prob=np.log(np.full((4, 2), 0.5)),
    final_observation=np.zeros((4, 1)),
)
LOG = ope.Log(DATA, 1.0)
POLICY = ope.uniform_policy(DATA)


def function(seen):
    return np.full((len(seen), 2), 0.5)


CASES = {
    "function": (
        lambda: ope.estimate(LOG, function),
        r"^policy: is a function; must be a TargetPolicy, such as ope.targ",
    ),
    "select": (lambda: ope.select(LOG, function), r"^policy: is a function; must be a TargetPolicy"),
    "number": (lambda: ope.estimate(LOG, 3), r"^policy: is a int; must be a TargetPolicy"),
    "data": (
        lambda: ope.estimate(DATA, POLICY),
        r"^log: is LoggedData; must be a Log.*ope.Log\(data, discount=0.99\)$",
    ),
    "rank": (lambda: ope.rank_policies(DATA, {"a": POLICY}), "^log: is LoggedData; must be a Log"),
    "log": (lambda: ope.estimate("log.csv", POLICY), "^log: 'log.csv' is not allowed; must be a Log$"),
    "settings": (lambda: ope.estimate(LOG, POLICY, {"clip": 1}), "^settings: .* is not allowed; must be a Settings$"),
    "methods": (
        lambda: ope.estimate(LOG, POLICY, methods=3),
        "^methods: 3 is not allowed; must be a list of texts or None",
    ),
    "no data": (lambda: ope.Log(3, discount=1.0), "^data: 3 is not allowed; must be a LoggedData$"),
    "read": (lambda: ope.read(5), "^path: 5 is not allowed; must be a path$"),
    "first": (
        lambda: ope.read("log.csv", first_action="a"),
        "^first-action: 'a' is not allowed; must be a whole number$",
    ),
    "flat": (lambda: ope.LoggedData.from_flat([1, 2]), r"^fields: \[1, 2\] is not allowed; must be a dict of arrays"),
    "world": (lambda: evarl.register_world(3, 4), "^name: 3 is not allowed; must be text$"),
    "make": (lambda: evarl.register_world("mine", 4), "^make: 4 is not allowed; must be a function$"),
    "algorithm": (lambda: evarl.register_algorithm(3, list), "^name: 3 is not allowed; must be text$"),
    "behaviour": (lambda: evarl.register_behaviour(3, list), "^name: 3 is not allowed; must be text$"),
    "target": (lambda: ope.target_policy(function, 3), "^data: 3 is not allowed; must be a LoggedData$"),
}


@pytest.mark.parametrize("case", CASES)
def test_one_line_says_what_to_give(case):
    call, told = CASES[case]
    with pytest.raises(InputError, match=told):
        call()


def test_a_run_is_no_policy(tmp_path):
    run = evarl.train("navigation", updates=1, environments=2, steps=8, out=tmp_path / "run", quiet=True)
    with pytest.raises(InputError, match=r"^policy: is a run; must be one of its policies, run.target_policy\(\)"):
        ope.target_policy(run, DATA)
    with pytest.raises(InputError, match=r"^policy: is a Run; must be a TargetPolicy.*run.target_policy\(\) of a run$"):
        ope.estimate(LOG, run)


def test_a_single_method_may_be_named_alone():
    assert ope.estimate(LOG, POLICY, methods="pdis").keys() == {"pdis"}
