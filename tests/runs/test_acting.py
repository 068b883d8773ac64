"""Policies in a loop of the user's own: actions in the environment's own space, exported programs, and wrong observations."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import evarl
from evarl.errors import InputError
from tests.evaluation.tiny import train_once


class Own(gymnasium.Env):
    """Numbers that do not begin at 0 on both sides."""

    observation_space = spaces.Discrete(4, start=2)
    action_space = spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 2
        return self.at, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.at = 2 + (self.at - 1 + int(action)) % 4
        return self.at, float(action == 6), False, False, {}


class Narrow(gymnasium.Env):
    """Actions in 64 bits between bounds that 32 bits cannot represent, one of them on one side only."""

    observation_space = spaces.Box(-5.0, 5.0, (2, 2), np.float64)
    action_space = spaces.Box(np.array([[-0.1], [0.3]]), np.array([[0.1], [np.inf]]), (2, 1), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(np.sum(action)), False, False, {}


gymnasium.register("OwnNumbers-v0", Own, max_episode_steps=8)
gymnasium.register("NarrowBounds-v0", Narrow, max_episode_steps=8)
AGENT = evarl.AgentConfig(hidden_sizes=(8,), normalise_observations=True, actor_learning_rate=0.05)
SMALL = {"environments": 2, "steps": 16, "agent": AGENT}


def trained(world: str, folder, **more) -> evarl.Run:
    return train_once(evarl.TrainConfig(world=world, **SMALL | {"updates": 3} | more), folder / "run")


@pytest.fixture(scope="module")
def navigation(tmp_path_factory):
    return trained("navigation", tmp_path_factory.mktemp("acting"), seeds=2, steps=64)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    return trained("gymnasium/OwnNumbers-v0", tmp_path_factory.mktemp("acting"))


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    return trained("gymnasium/NarrowBounds-v0", tmp_path_factory.mktemp("acting"))


POINTS = np.random.default_rng(0).random((37, 2))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_action_is_that_of_the_network_worked_out_in_numpy(navigation, seed):
    policy = navigation.policy_state(seed)
    layers, statistics = policy.actor["params"]["MLP_0"], policy.observation_statistics
    standardised = np.asarray(statistics.standardise(jnp.asarray(POINTS, jnp.float32)))
    hidden = np.tanh(standardised @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"])
    logits = hidden @ layers["Dense_1"]["kernel"] + layers["Dense_1"]["bias"]
    actions = navigation.predict(POINTS, seed=seed)
    assert actions.tolist() == logits.argmax(axis=1).tolist()
    assert [int(navigation.predict(point, seed=seed)) for point in POINTS[:5]] == actions[:5].tolist()


def test_other_sizes_of_batches_compile_nothing_new(navigation):
    navigation.predict(POINTS[:32])
    compiled = navigation._acting._likeliest._cache_size()
    for size in (17, 20, 31):
        assert navigation.predict(POINTS[:size]).shape == (size,)
    assert navigation._acting._likeliest._cache_size() == compiled
    assert navigation.predict(POINTS[:0]).shape == (0,)


def test_many_observations_are_taken_in_parts(navigation, monkeypatch):
    whole, drawn = navigation.predict(POINTS), navigation.predict(POINTS, deterministic=False, random_seed=3)
    monkeypatch.setattr("evarl.runs.acting.MOST", 8)
    assert navigation.predict(POINTS).tolist() == whole.tolist()
    assert navigation.predict(POINTS, deterministic=False, random_seed=3).tolist() == drawn.tolist()


def test_draws_have_the_probabilities_of_the_policy_and_can_be_repeated(navigation):
    many = np.broadcast_to(POINTS[0], (4000, 2))
    point = jnp.asarray(POINTS[0], jnp.float32)
    logits = navigation.learner.agent.distribution(navigation.policy_state(), point).logits
    drawn = navigation.predict(many, deterministic=False, random_seed=1)
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, jax.nn.softmax(logits), atol=5 * 0.5 / 4000**0.5)
    assert navigation.predict(many, False, random_seed=1).tolist() == drawn.tolist()
    assert navigation.predict(many[:100], False, random_seed=1).tolist() == drawn[:100].tolist()
    navigation.reseed(7)
    first, second = (navigation.predict(many, deterministic=False).tolist() for _ in range(2))
    assert first != second
    navigation.reseed(7)
    assert navigation.predict(many, deterministic=False).tolist() == first


@pytest.mark.parametrize("deterministic", [True, False])
def test_discrete_numbers_are_the_environments_own(numbers, deterministic):
    environment = gymnasium.make("OwnNumbers-v0", disable_env_checker=False)
    observation, _ = environment.reset(seed=0)
    for _ in range(6):
        action = numbers.predict(observation, deterministic)
        assert action.dtype == np.int64
        observation, *_ = environment.step(action)
    actions = numbers.predict([2, 3, 4, 5], deterministic)
    assert actions.shape == (4,)
    assert set(actions.tolist()) <= {5, 6, 7}
    with pytest.raises(InputError, match="observation: holds 6; must be whole numbers from 2 to 5"):
        numbers.predict(6)
    with pytest.raises(InputError, match="dtype float64 is not allowed; must be a whole number from 2 to 5"):
        numbers.predict(2.0)


@pytest.mark.parametrize("deterministic", [True, False])
def test_continuous_actions_have_the_environments_shape_dtype_and_bounds(narrow, deterministic):
    rows = np.random.default_rng(1).normal(size=(200, 2, 2)) * 5
    actions = narrow.predict(rows, deterministic)
    assert actions.shape == (200, 2, 1)
    assert all(Narrow.action_space.contains(action) for action in actions)
    assert Narrow.action_space.contains(narrow.predict(rows[0], deterministic))
    if not deterministic:  # deviation 1: most draws are beyond a bound, and are moved to it
        assert np.isclose(np.abs(actions[:, 0]), 0.1).mean() > 0.2


@pytest.mark.parametrize(
    ("world", "deterministic"),
    [
        ("navigation", False),
        ("numbers", True),
        ("narrow", True),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("navigation", True), ("numbers", False), ("narrow", False))
        ),
    ],
)
def test_an_exported_policy_acts_alike(world, deterministic, request, tmp_path):
    run = request.getfixturevalue(world)
    path = run.export(tmp_path / "policy.stablehlo", deterministic=deterministic)
    program = jax.export.deserialize(bytearray(path.read_bytes()))
    rows = {
        "navigation": POINTS,
        "numbers": np.array([2, 3, 4, 5, 3]),
        "narrow": POINTS.reshape(-1)[:72].reshape(-1, 2, 2),
    }
    for count in (1, 3, len(rows[world])):
        given = rows[world][:count].astype(run._acting.input_dtype)
        key = () if deterministic else (np.asarray(jax.random.PRNGKey(3)),)
        expected = run.predict(given, deterministic, random_seed=3)
        made = np.asarray(program.call(given, *key))
        if world == "narrow":
            np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)  # the order of sums may differ
            assert all(Narrow.action_space.contains(one.astype(np.float64)) for one in made)
        else:
            assert made.tolist() == expected.tolist()


WRONG = [
    ([0.1, 0.2, 0.3], r"an array of shape \[3\] is not allowed; must be float32\[2\], or \[N, 2\] for a batch"),
    (0.5, r"an array of shape \[\] is not allowed"),
    ([[[0.1, 0.2]]], r"an array of shape \[1, 1, 2\] is not allowed"),
    ([[0.1], [0.2, 0.3]], "is not allowed; must be float32"),
    (["0.1", "0.2"], "the dtype <U3 is not allowed"),
    ([None, 1.0], "the dtype object is not allowed"),
    ([0.1, float("nan")], "holds nan at 1 of row 0; must be finite numbers in 32 bits"),
    ([[0.1, 0.2], [1e300, 0.0]], r"holds 1e\+300 at 0 of row 1; must be finite"),
]


@pytest.mark.parametrize(("observation", "message"), WRONG)
def test_wrong_observations(navigation, observation, message):
    with pytest.raises(InputError, match=f"^observation: .*{message}"):
        navigation.predict(observation)


def test_wrong_options(navigation):
    for call, message in [
        (lambda: navigation.predict(POINTS, seed=9), "seed: 9 is not one of this run's seeds 0 to 1"),
        (lambda: navigation.predict(POINTS, seed="0"), "seed: 0 is not one of"),
        (
            lambda: navigation.predict(POINTS, deterministic="no"),
            "deterministic: 'no' is not allowed; must be True or False",
        ),
        (lambda: navigation.predict(POINTS, False, random_seed=1.5), "random-seed: 1.5 is not allowed"),
        (lambda: evarl.load(3), r"run: 3 is not allowed; must be a directory, as in evarl.load\('runs/first'\)"),
        (lambda: evarl.Run(None), r"run: None is not allowed; must be a directory, as in evarl.load\('runs/first'\)"),
    ]:
        with pytest.raises(InputError, match=message):
            call()


def test_a_run_says_what_it_is(navigation):
    again = evarl.Run(str(navigation.path))
    assert again.config == navigation.config
    mean = navigation.summary["return"]
    assert f"{navigation.path}: navigation, a2c, seeds 0 to 1, 3 updates, return {mean:.4g} ± " in repr(again)
    again.path.joinpath("summary.json").rename(again.path / "kept.json")
    assert repr(again) == f"<Run {navigation.path}: navigation, a2c, seeds 0 to 1, 3 updates, not finished>"
    again.path.joinpath("kept.json").rename(again.path / "summary.json")
