"""Choice among estimators and among policies, on chains whose values are known."""

import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from tests.ope.chains import DISCOUNT, STEPS, data, drawn, everything, exact, policy

TARGET = 0.8
ALL = ope.Log(data(*everything()), DISCOUNT)


def value(switch):
    return float(np.dot(*exact(switch)))


@pytest.mark.parametrize("family", ["clip", "window"])
def test_the_first_candidate_has_no_bias(family):
    chosen = ope.select(ALL, policy(TARGET), family=family)
    found = chosen.selection
    by_name = {one.name: one for one in (*found.candidates, *found.left_out)}
    assert chosen.interval.estimate == by_name[f"{family} none"].value
    assert (chosen.value, chosen.why) == (found.chosen.value, found.why)
    assert by_name[f"{family} none"].value == pytest.approx(value(TARGET), abs=1e-6)
    assert found.chosen in found.candidates
    assert set(found.intervals) == set(by_name)
    if family == "window":
        assert by_name["window 0"].value == pytest.approx(value(0.5), abs=1e-6)
        assert set(by_name) == {"window none", "window 2", "window 1", "window 0"}


def test_windows_and_clips_by_hand():
    log = ope.Log(data(*drawn(np.random.default_rng(0), 7)), DISCOUNT)
    ratio = np.asarray(log.steps(policy(TARGET)).log_ratio, np.float64)
    reward = np.asarray(log.data.reward) * DISCOUNT ** np.arange(STEPS)
    windows = ope.select(log, policy(TARGET), members=(None, 2, 1, 0)).selection
    assert len(windows.candidates + windows.left_out) == 4
    for one in windows.candidates + windows.left_out:
        size = STEPS if one.name == "window none" else int(one.name.split()[1])
        total = [
            sum(reward[i, t] * np.exp(ratio[i, max(0, t + 1 - size) : t + 1].sum()) for t in range(STEPS))
            for i in range(7)
        ]
        assert one.value == pytest.approx(np.mean(total))
        assert one.standard_error == pytest.approx(np.std(total, ddof=1) / 7**0.5)
    (clipped,) = ope.select(log, policy(TARGET), family="clip", members=(0.1,)).selection.candidates
    assert clipped.value == pytest.approx(
        (reward * np.exp(np.cumsum(np.minimum(ratio, 0.1), axis=1))).sum(axis=1).mean()
    )


def bandit(generator, count, steps=8):
    """The reward is the action itself, so that the ratio of one action is enough."""
    action = generator.integers(0, 2, (count, steps))
    return ope.LoggedData.from_arrays(
        observation=np.ones((count, steps, 2)) * np.array([1.0, 0.0]),
        action=action,
        reward=action.astype(float),
        log_prob=np.full((count, steps), np.log(0.5)),
        final_observation=np.zeros((count, 2)),
    )


def test_a_short_window_is_chosen_where_it_has_no_bias():
    errors = []
    for seed in range(20):
        log = ope.Log(bandit(np.random.default_rng(seed), 300), 1.0)
        found = ope.select(log, policy(TARGET)).selection
        assert found.chosen.name == "window 1"  # window 0 estimates the logging policy, 4 and not 6.4
        errors.append([abs(one.value - 8 * TARGET) for one in (found.chosen, found.candidates[0])])
    assert np.mean(errors, axis=0)[0] < 0.35 * np.mean(errors, axis=0)[1]


def starts(generator, count):
    """One step from a start in [0, 1]; the reward is 1 beyond ½."""
    x = generator.random((count, 1, 1))
    return ope.LoggedData.from_arrays(
        observation=x,
        action=np.zeros((count, 1), int),
        reward=(x[:, :, 0] > 0.5) + generator.normal(0, 0.1, (count, 1)),
        log_prob=np.zeros((count, 1)),
        final_observation=np.zeros((count, 1)),
    )


def test_widths():
    """At ½ ± 0.15 wide kernels average over both sides, and with many trajectories a narrow one is chosen."""
    certain = policy(0.5)._replace(log_prob=lambda seen, action: np.zeros(len(action), np.float32))
    data_ = starts(np.random.default_rng(1), 2000)
    for state, truth in ((0.35, 0.0), (0.65, 1.0)):
        found = ope.select(ope.Log(data_, 1.0, np.array([[state]])), certain, family="width")
        assert abs(found.value - truth) < 0.1
        # all trajectories vary more than those near the state, and would be the first if widths made the order
        assert "width none" in [one.name for one in found.selection.left_out]
        assert found.interval is None
    with pytest.raises(InputError, match="states: 0 are given"):
        ope.select(ope.Log(data_, 1.0), certain, family="width")


def test_an_impossible_action_has_no_weight_in_any_window():
    never = policy(0.0)
    log = ope.Log(data(*everything()), DISCOUNT)
    found = {one.name: one.value for one in ope.select(log, never, members=(None, 1)).selection.candidates}
    assert found["window none"] == pytest.approx(value(0.0), abs=1e-6)
    assert np.isfinite(found["window 1"])


def test_selection_refusals():
    with pytest.raises(InputError, match="family"):
        ope.select(ALL, policy(TARGET), family="width2")
    with pytest.raises(InputError, match="one candidate has no bias"):
        ope.select(ALL, policy(TARGET), ope.Settings(clip=1.0))
    with pytest.raises(InputError, match="members: -1"):
        ope.select(ALL, policy(TARGET), members=(-1,))


def test_a_collapse_is_said():
    log = ope.Log(bandit(np.random.default_rng(0), 100, 40), 1.0)
    found = ope.select(log, policy(0.99))
    assert "window none" in found.warnings[0]
    assert "collapsed" in found.warnings[0]
    assert found.interval is None
    with pytest.raises(InputError, match="all candidates have collapsed"):
        ope.select(log, policy(0.99), members=(None,))


@pytest.mark.parametrize("method", ["tis", "wis", "pdis"])
def test_values_of_policies(method):
    policies = {f"{s}": policy(s) for s in (0.2, 0.5, 0.8)}
    found = ope.rank_policies(ALL, policies, method=method, true={name: value(float(name)) for name in policies})
    for name, one in found.values.items():
        assert one.estimate == pytest.approx(value(float(name)), abs=1e-6)
    assert found.order == tuple(sorted(policies, key=lambda name: -value(float(name))))
    assert found.chosen == found.order[0]
    assert found.metrics.regret_at_k == 0.0
    for (a, b), one in found.differences.items():
        assert one.estimate == pytest.approx(value(float(a)) - value(float(b)), abs=1e-6)


def test_the_best_policy_is_named_with_enough_data_only():
    policies = {f"{s}": policy(s) for s in (0.2, 0.8)}
    few = ope.rank_policies(ope.Log(data(*drawn(np.random.default_rng(0), 20)), DISCOUNT), policies)
    assert few.best is None
    assert few.regret > 0
    many = ope.rank_policies(ope.Log(data(*drawn(np.random.default_rng(0), 4000)), DISCOUNT), policies)
    assert many.best == max(policies, key=lambda name: value(float(name)))
    assert many.regret == 0.0
    bounded = ope.rank_policies(
        ope.Log(data(*drawn(np.random.default_rng(0), 4000)), DISCOUNT), policies, ope.Settings(range=(0.0, 1.75 * 4.1))
    )
    assert bounded.values[bounded.chosen].method == "bernstein"


def test_no_best_while_a_policy_is_unknown():
    log = ope.Log(bandit(np.random.default_rng(0), 400, 8), 1.0)
    found = ope.rank_policies(log, {"mixed": policy(0.6), "uniform": policy(0.5), "other": policy(0.999)})
    assert found.best is None
    assert found.regret is None
    assert "other" in found.why
    assert "other" not in found.values
    only = ope.rank_policies(log, {"other": policy(0.999)})
    assert (only.best, only.regret, only.values) == (None, None, {})


def test_ranking_refusals():
    with pytest.raises(InputError, match="policies: there are none"):
        ope.rank_policies(ALL, {})
    with pytest.raises(InputError, match="method"):
        ope.rank_policies(ALL, {"a": policy(0.5)}, method="fqe")
    with pytest.raises(InputError, match="self-normalised wis"):
        ope.rank_policies(ALL, {"a": policy(0.5)}, ope.Settings(range=(0.0, 1.0)), method="wis")
    with pytest.raises(InputError, match="true: has b; must have the policies, a"):
        ope.rank_policies(ALL, {"a": policy(0.5)}, true={"b": 1.0})
