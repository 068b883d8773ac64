"""Lower bounds on J from weighted returns: how often they hold, what they are for known contributions, and what is refused."""

import numpy as np
import pytest

from evarl import ope
from evarl.bounds import anderson_lower_bound, betting_lower_bound
from evarl.errors import InputError
from evarl.ope.guarantees import GuaranteeSettings, bound_from, contributions
from evarl.ope.trajectories import Trajectories, trajectories
from evarl.stats import t_lower_bound
from tests.ope.chains import DISCOUNT, STEPS, data, drawn, everything, exact, policy

REPETITIONS, N, TARGET = 500, 60, 0.8
JUST = np.dot(*exact(TARGET))


def simulated(case, generator):
    """J, and a log of N trajectories with returns in [−1, 1], as trajectories of one step or more."""
    if case == "smooth":  # two actions of logging probability ½, values −½ and ½, and noise
        chance, target, steps = 0.5, 0.8, 1
        action = generator.random((N, 1)) < chance
        reward = np.where(action, 0.5, -0.5) + generator.uniform(-0.5, 0.5, (N, 1))
        value = 0.5 * (2 * target - 1)
    elif case == "rare crash":  # the target policy takes an action that the log seldom shows, and it crashes in 1 of 20
        chance, target, steps = 0.1, 0.9, 1
        action = generator.random((N, 1)) < chance
        reward = np.where(action, np.where(generator.random((N, 1)) < 0.05, -1.0, 1.0), 0.0)
        value = 0.9 * 0.9
    else:  # ten steps: weights of up to 1.8^10 = 357
        chance, target, steps = 0.5, 0.9, 10
        action = generator.random((N, steps)) < chance
        reward = np.where(action, 0.1, -0.1)
        value = 10 * 0.1 * (2 * target - 1)
    ratio = np.where(action, target / chance, (1 - target) / (1 - chance))
    return value, Trajectories(reward, np.cumsum(np.log(ratio), axis=1), np.ones((N, steps), bool), 1.0)


SETTINGS = {
    "betting, fixed cut": GuaranteeSettings(least_return=-1.0, truncate=4.0),
    "betting, chosen cut": GuaranteeSettings(least_return=-1.0),
    "betting, by decision": GuaranteeSettings(least_reward=-1.0, truncate=20.0),
    "anderson": GuaranteeSettings("anderson", least_return=-1.0),
    "anderson, by decision": GuaranteeSettings("anderson", least_reward=-1.0),
}


CASES = [
    pytest.param(
        case,
        name,
        marks=pytest.mark.slow if (name.startswith("betting") and case == "smooth") or "chosen" in name else [],
    )
    for case in ("smooth", "rare crash", "heavy tail")
    for name in SETTINGS
]


@pytest.mark.parametrize(("case", "name"), CASES)
def test_coverage(case, name):
    generator, held = np.random.default_rng(len(case)), []
    for _ in range(REPETITIONS):
        value, logged = simulated(case, generator)
        held.append(bound_from(logged, SETTINGS[name], 0.9).value <= value)
    assert np.mean(held) >= 0.9 - 2 * np.sqrt(0.09 / REPETITIONS)


def test_the_t_bound_does_not_hold_where_weights_are_heavy():
    """Upwards: seldom seen large weights leave the mean too low, and a bound from above misses."""
    generator, held = np.random.default_rng(3), []
    for _ in range(REPETITIONS):
        value, logged = simulated("heavy tail", generator)
        held.append(-t_lower_bound(-logged.weights * logged.returns, 0.1) >= value)
    assert np.mean(held) < 0.8


@pytest.mark.parametrize("method", ["betting", "anderson"])
def test_it_is_the_bound_on_the_mean_of_the_contributions(method):
    log = ope.Log(data(*drawn(np.random.default_rng(0), 60)), DISCOUNT)
    guarantee = GuaranteeSettings(method, least_return=-1.0, truncate=8.0)
    found = ope.guaranteed_lower_bound(log, policy(TARGET), guarantee)
    logged = trajectories(log, policy(TARGET), ope.Settings())
    x = logged.weights * (logged.returns + 1.0)
    by_hand = betting_lower_bound(np.minimum(x, 8.0), 0.0, 8.0) if method == "betting" else anderson_lower_bound(x, 0.0)
    assert found.value == pytest.approx(by_hand - 1.0, abs=1e-8)
    assert found.value < JUST
    assert not found.trivial
    assert "drawn" in found.assumptions


@pytest.mark.parametrize("guarantee", [GuaranteeSettings(least_return=-2.0), GuaranteeSettings(least_reward=-0.5)])
def test_contributions_have_the_right_mean(guarantee):
    log = ope.Log(data(*everything()), DISCOUNT)
    low, x = contributions(trajectories(log, policy(TARGET), ope.Settings()), guarantee)
    assert x.min() >= 0
    assert low + x.mean() == pytest.approx(JUST, abs=1e-6)
    assert low == (-2.0 if guarantee.least_reward is None else -0.5 * 1.75)


def test_contributions_of_trajectories_that_end():
    """After the end the reward is 0, which is more than the least: for weights of any mean the shift must be exact."""
    mask = np.array([[True, False], [True, True]])
    ratio = np.array([[0.5, 1.0], [1.5, 2.0]])
    reward = np.where(mask, np.array([[1.0, 0.0], [-1.0, 3.0]]), 0.0)
    logged = Trajectories(reward, np.cumsum(np.log(ratio), axis=1), mask, 1.0)
    low, x = contributions(logged, GuaranteeSettings(least_reward=-1.0))
    assert low == -2.0
    np.testing.assert_allclose(x, [0.5 * 2 + 0.5 * 1, 1.5 * 0 + 3.0 * 4])
    with pytest.raises(InputError, match="must be 0 or less, the reward after the end"):
        contributions(logged, GuaranteeSettings(least_reward=0.5))


def test_clipping_only_lowers_the_mean():
    log = ope.Log(data(*everything()), DISCOUNT)
    for guarantee in (GuaranteeSettings(least_return=0.0), GuaranteeSettings(least_reward=-1.0)):
        low, x = contributions(trajectories(log, policy(TARGET), ope.Settings(clip=0.1)), guarantee)
        assert low + x.mean() < JUST - 0.01


def test_missing_support_only_lowers_the_mean():
    """The log never takes action 1 first: its trajectories are those of a policy that stays at first."""
    start, action = everything()
    stays = action[:, 0] == 0
    balanced = np.concatenate([np.flatnonzero(stays & (start == s))[:32] for s in (0, 1)])  # as many from either start
    whole = data(start[balanced], action[balanced])
    log_prob = np.array(whole.log_prob)
    log_prob[:, 0] = 0.0
    logged = trajectories(ope.Log(whole.replace(log_prob=log_prob), DISCOUNT), policy(TARGET), ope.Settings())
    assert logged.weights.mean() < 0.6
    low, x = contributions(logged, GuaranteeSettings(least_return=-1.0))
    assert low + x.mean() < JUST - 0.1


def test_the_cut_is_chosen_from_trajectories_that_are_not_used_again():
    generator = np.random.default_rng(8)
    _, logged = simulated("heavy tail", generator)
    found = bound_from(logged, GuaranteeSettings(least_return=-1.0), 0.9)
    assert found.trajectories == N - 6
    other = Trajectories(
        np.concatenate([logged.reward[:6], np.zeros((N - 6, 10))]), logged.log_weight, logged.mask, 1.0
    )
    assert bound_from(other, GuaranteeSettings(least_return=-1.0), 0.9).truncate == found.truncate


@pytest.mark.parametrize(
    ("guarantee", "text"),
    [
        (GuaranteeSettings("wis", least_return=0.0), "wis has no guaranteed bound"),
        (GuaranteeSettings("dr", least_return=0.0), "dr has no guaranteed bound"),
        (GuaranteeSettings(), "known beforehand and not read off the log"),
        (GuaranteeSettings(least_return=0.0, least_reward=0.0), "must be one of them"),
        (GuaranteeSettings(least_return=0.0, behaviour="estimated"), "estimated is not allowed"),
        (GuaranteeSettings(least_return=0.5), "is above a return of 0;"),
        (GuaranteeSettings(least_reward=0.5), "is above a reward in the log"),
        (GuaranteeSettings(least_return=0.0, truncate=0.0), "truncate: 0.0 is not allowed"),
    ],
)
def test_refusals(guarantee, text):
    log = ope.Log(data(*everything()), DISCOUNT)
    with pytest.raises(InputError, match=text) as error:
        ope.guaranteed_lower_bound(log, policy(TARGET), guarantee)
    assert "\n" not in str(error.value)


def test_cut_logs_are_refused():
    whole = data(*drawn(np.random.default_rng(6), 5))
    mask = np.ones((5, STEPS), bool)
    mask[1, 1:] = False
    with pytest.raises(InputError, match="trajectory 1 stops after 1 of 3 steps"):
        ope.guaranteed_lower_bound(
            ope.Log(whole.replace(mask=mask), DISCOUNT), policy(TARGET), GuaranteeSettings(least_return=0.0)
        )
