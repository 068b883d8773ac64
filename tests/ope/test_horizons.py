"""One horizon for all methods of a call, logs that were cut, many policies, and what a call costs."""

import subprocess
import sys
import tracemalloc

import jax
import numpy as np
import pytest

from evarl import ope
from evarl.errors import InputError
from evarl.ope.estimation import _possible
from tests.ope.test_estimate import DISCOUNT, EXACT, QUICK, SMALL, chain_log, one_hot, switching

ENDLESS = (4.21875 + 5.78125) / 2
"""Mean of V of the chain without a time limit."""
FORMS = ("tis", "pdis", "wis", "wpdis")


def estimate(data, methods=None, policy=None, discount=DISCOUNT, **settings):
    return ope.estimate(ope.Log(data, discount), policy or switching(0.3), ope.Settings(**settings), methods)


def test_one_horizon_for_all_methods():
    data = chain_log(1000)
    found = estimate(data, ("fqe", "pdis", "dr"), fqe=SMALL, resamples=50)
    for one in found.values():
        assert one.value == pytest.approx(EXACT.mean(), rel=0.06)
        assert one.estimand == "return of the policy over 5 steps, discounted by 0.9, from the 1000 logged starts"
    with pytest.raises(InputError, match="horizon: endless is not possible for pdis"):
        estimate(data, ("pdis",), horizon="endless")
    with pytest.raises(InputError, match=r"fqe\.time-feature: True is not allowed with horizon endless"):
        estimate(data, ("fqe",), fqe=SMALL, horizon="endless")


@pytest.mark.slow
def test_without_a_horizon():
    data = chain_log(1000)
    endless = ope.FQEConfig(hidden_sizes=(16,), steps=2500, target_interval=50, learning_rate=3e-3)
    found = estimate(data, ("fqe", "dr"), fqe=endless, horizon="endless", resamples=50)
    for one in found.values():
        assert one.value == pytest.approx(ENDLESS, rel=0.06)
        assert (
            one.estimand == "return of the policy without a time limit, discounted by 0.9, from the 1000 logged starts"
        )
    log, settings = ope.Log(data, DISCOUNT), ope.Settings(horizon="endless")
    assert not {one.name for one in _possible(log, settings, None)} & set(FORMS)


def ones(cut: bool) -> ope.LoggedData:
    """Ten steps of reward 1; half of the trajectories are cut after five."""
    mask = np.ones((200, 10), bool)
    mask[::2, 5:] = not cut
    action = np.random.default_rng(0).integers(0, 2, mask.shape)
    fields = {
        "action": action,
        "reward": np.ones(mask.shape),
        "log_prob": np.full(mask.shape, np.log(0.5)),
        "mask": mask,
    }
    return ope.LoggedData.from_arrays(
        observation=np.zeros((200, 10, 1)), final_observation=np.zeros((200, 1)), **fields
    )


def test_cut_trajectories_are_refused_or_continued():
    """The mistake: their missing rewards count as 0, which gives 7.5 for 10. With the exact V, 10 − t, nothing is missing."""
    assert estimate(ones(cut=False), ("pdis",), switching(0.5), 1.0)["pdis"].value == pytest.approx(10.0)
    for method in FORMS:
        with pytest.raises(
            InputError, match=r"truncated: 100 of 200 trajectories.*biases \w+; use dr or fqe, or cuts=model"
        ):
            estimate(ones(cut=True), (method,), switching(0.5), 1.0)
    exact = ope.OwnModel(q=lambda seen, action, time: 10.0 - time, v=lambda seen, time: 10.0 - time)
    log = ope.Log(ones(cut=True), 1.0, own_model=exact)
    assert not {one.name for one in _possible(log, ope.Settings(), None)} & set(FORMS)
    settings = ope.Settings(cuts="model", range=(0.0, 100.0), resamples=20)
    for one in ope.estimate(log, switching(0.5), settings, (*FORMS, "dr", "wdr")).values():
        assert one.value == pytest.approx(10.0)
        assert (
            "100 of 200 trajectories stop before step 10 without having ended; a model's value continues them"
            in one.warnings
        )
        assert "hoeffding" not in one.intervals  # the model's error is not bounded


def test_cut_trajectories_are_continued_by_a_fit():
    found = estimate(ones(cut=True), ("pdis",), switching(0.5), 1.0, cuts="model", fqe=SMALL, resamples=20)["pdis"]
    assert found.value == pytest.approx(10.0, rel=0.03)


def test_time_limits_that_are_marked_as_ends():
    data = chain_log(100)
    marked = data.replace(terminated=data.truncated, truncated=np.zeros_like(data.truncated))
    said = "every trajectory is marked as terminated at step 5; if that is a time limit, mark it as truncated"
    assert said in estimate(marked, ("pdis",))["pdis"].warnings
    assert said not in estimate(data, ("pdis",))["pdis"].warnings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clip": -1.0}, "clip: -1.0 is not allowed"),
        ({"clip": np.nan}, "clip: nan is not allowed"),
        ({"range": 3.0}, "range: 3.0 is not allowed; must be two numbers"),
        ({"range": (1.0, 2.0, 3.0)}, "range: (1.0, 2.0, 3.0) is not allowed; must be two numbers"),
        ({"rule": None}, "rule: unknown 'None'"),
        ({"horizon": "infinite"}, "horizon: unknown 'infinite'; did you mean 'finite'?"),
        ({"cuts": "modl"}, "cuts: unknown 'modl'; did you mean 'model'?"),
        ({"behaviour": "estimated"}, "behaviour: unknown 'estimated'; did you mean 'estimate'?"),
        ({"folds": 1}, "folds: 1 is not allowed; must be at least 2"),
        ({"least_sample": 0}, "least-sample: 0 is not allowed"),
    ],
)
def test_settings_that_are_refused(changes, message):
    with pytest.raises(InputError) as caught:
        ope.Settings(**changes).validate()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": [[0.0, np.nan]]}, "states: there are none, or some are not finite"),
        ({"states": np.zeros((0, 2))}, "states: there are none, or some are not finite"),
        ({"states": 3.0}, "states: have shape () each; must be (2,)"),
        ({"times": [0]}, "times: are given without states"),
        ({"states": np.zeros((2, 2)), "times": [0]}, "times: have shape (1,) and type int64; must be 2 whole numbers"),
        (
            {"states": np.zeros((1, 2)), "times": [0.5]},
            "times: have shape (1,) and type float64; must be 1 whole numbers",
        ),
        ({"states": np.zeros((1, 2)), "times": [5]}, "times: 5 to 5 is not allowed; must be from 0 to 4"),
        ({"discount": "a"}, "discount: 'a' is not allowed"),
    ],
)
def test_logs_that_are_refused(changes, message):
    with pytest.raises(InputError) as caught:
        ope.Log(chain_log(4), **{"discount": DISCOUNT} | changes)
    assert str(caught.value).startswith(message)


def test_start_states_are_compared_in_their_own_units():
    """One coordinate of 1e-7, and one of 1e6 whose neighbours differ by less than float32 can tell."""
    data = chain_log(4)
    start = np.array([[1e-7, 1e6], [2e-7, 1e6], [1e-7, 1e6 + 0.06], [2e-7, 2e6]], np.float32)
    log = ope.Log(data.replace(observation=np.repeat(start[:, None], 5, axis=1)), 1.0, start)
    found = ope.estimate(log, switching(0.3), ope.Settings(rule="per-start", warn_below=0.0), ("pdis",))["pdis"]
    first = np.asarray(log.steps(switching(0.3)).reward)
    assert found.state_values[0] == pytest.approx(found.state_values[2])
    assert first.shape == (4, 5)
    from evarl.ope.log import shares

    np.testing.assert_array_equal(
        shares("per-start", log.data, start), [[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0, 0, 1]]
    )


def test_many_policies():
    log = ope.Log(chain_log(500), DISCOUNT, np.stack([one_hot(0), one_hot(1)]))
    policies = {"a": switching(0.3), "b": switching(0.4)}
    settings = ope.Settings(rule="neighbours", resamples=50)
    found = ope.estimate_many(log, policies, settings, ("pdis", "wis"))
    assert found.keys() == policies.keys()
    listed = ope.estimate_many(log, list(policies.values()), settings, ("pdis", "wis"))
    for name, both in zip(policies, listed, strict=True):
        alone = ope.estimate(log, policies[name], settings, ("pdis", "wis"))
        for method, one in alone.items():
            assert one.value == both[method].value == found[name][method].value
            assert one.intervals == both[method].intervals
    fresh = ope.Log(chain_log(500), DISCOUNT)
    ope.estimate_many(fresh, policies, settings, ("pdis",))
    assert not any(owner in policies.values() for owner, _ in fresh._kept.values())


def test_pooled_values_of_several_states_are_said_to_be_j():
    states = np.stack([one_hot(0), one_hot(1)])
    for asked, rule, said in ((states, "pooled", True), (states[:1], "pooled", False), (states, "per-start", False)):
        log, settings = ope.Log(chain_log(500), DISCOUNT, asked), ope.Settings(rule=rule, resamples=20)
        one = ope.estimate(log, switching(0.3), settings, ("wpdis",))["wpdis"]
        assert (
            any(line.startswith("the value of every state is J, by the rule pooled") for line in one.warnings) == said
        )


def test_importance_sampling_compiles_nothing():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if "compile" in name else None
    )
    table = np.array([0.7, 0.3])
    policy = ope.TargetPolicy.from_probabilities(lambda seen: np.broadcast_to(table, (len(seen), 2)))
    found = estimate(chain_log(123), FORMS, policy)
    assert found.keys() == set(FORMS)
    assert compiled == []


def test_many_trajectories_in_bounded_memory():
    """Their bootstrap samples alone, [1000, 1e6] float64, would be 8 GB."""
    count = 200_000
    action = np.random.default_rng(0).integers(0, 2, (count, 2))
    data = ope.LoggedData.from_arrays(
        observation=np.zeros((count, 2, 1), np.float32),
        action=action,
        reward=action.astype(float),
        log_prob=np.full((count, 2), np.log(0.5)),
        final_observation=np.zeros((count, 1), np.float32),
    )
    policy = ope.TargetPolicy.from_probabilities(lambda seen: np.broadcast_to([0.7, 0.3], (len(seen), 2)))
    tracemalloc.start()
    found = ope.estimate(ope.Log(data, 1.0), policy, methods=("pdis", "wpdis"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 250e6
    for one in found.values():
        assert abs(one.value - 0.6) < 4 * one.standard_error
        wide = (one.intervals["bootstrap"].high - one.intervals["bootstrap"].low) / (2 * 1.96 * one.standard_error)
        assert wide == pytest.approx(1.0, abs=0.1)


def test_the_package_is_imported_without_jax():
    code = "import sys\nfrom evarl import ope\nope.Settings(), ope.estimators()\nassert 'jax' not in sys.modules\n"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_states_seen_later_are_marked():
    log = ope.Log(chain_log(100), DISCOUNT, np.stack([one_hot(0), one_hot(0)]), np.array([0, 3]))
    found = ope.estimate(log, switching(0.3), ope.Settings(fqe=QUICK), ("pdis", "fqe"))
    assert "values of states are over 5 steps from each, whatever its time" in found["pdis"].warnings
    assert found["fqe"].state_values[0] != found["fqe"].state_values[1]
