"""Policies of other packages act and are assessed as policies of this one; PyTorch and its packages are replaced by stand-ins."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl import policies
from evarl.agents.distributions import Categorical, DiagonalGaussian, world_action
from evarl.cli.main import call
from evarl.errors import InputError
from evarl.policies import ActingOutside, from_numpy, from_stable_baselines3
from evarl.simulation import simulator_for
from evarl.worlds.spaces import Box
from tests.evaluation.tiny import train_tiny

WEIGHTS = np.array([[1.0, -0.5, 0.25, 0.0], [0.5, 1.0, -1.0, 0.0]])
NAVIGATION = evarl.make_world("navigation")
PENDULUM = evarl.make_world("gymnax/Pendulum-v1")


class Tensor(np.ndarray):
    """As much of a tensor as is used of one."""

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return np.asarray(self)


def tensor(array):
    return np.asarray(array, np.float32).view(Tensor)


class CategoricalDistribution:
    pass


class DiagGaussianDistribution:
    pass


class Distribution:
    def __init__(self, **fields):
        self.distribution = type("Inner", (), fields)


class Policy:
    """The interface of Stable-Baselines3's ActorCriticPolicy."""

    def __init__(self, weights, action_dist, log_std=0.0):
        self.weights, self.action_dist, self.log_std = tensor(weights), action_dist, log_std

    def state_dict(self):
        return {"weights": self.weights}

    def set_training_mode(self, mode):
        assert mode is False

    def obs_to_tensor(self, observation):
        return tensor(observation), True

    def get_distribution(self, observation):
        out = tensor(observation @ self.weights)
        if isinstance(self.action_dist, CategoricalDistribution):
            return Distribution(logits=out)
        return Distribution(
            mean=out, stddev=type("D", (), {"log": lambda _: tensor(np.full_like(out, self.log_std))})()
        )


class PPO:
    """The interface of a model."""

    def __init__(self, world, policy):
        from gymnasium import spaces

        self.policy = policy
        bounds = world.observation_space.bounds()
        self.observation_space = spaces.Box(*bounds, world.observation_space.shape)
        action = world.action_space
        box = isinstance(action, Box)
        self.action_space = spaces.Box(*action.bounds(), action.shape) if box else spaces.Discrete(action.n)

    def predict(self, observation, deterministic):
        assert deterministic
        return (observation @ np.asarray(self.policy.weights)).argmax(axis=1), None


def ppo(**changes):
    return PPO(NAVIGATION, Policy(WEIGHTS, CategoricalDistribution(), **changes))


@pytest.fixture(autouse=True)
def one_thread_without_torch(monkeypatch):
    import contextlib

    monkeypatch.setattr("evarl.policies.stable_baselines3.one_thread", contextlib.nullcontext)


def jax_policy(key, observation):
    return Categorical(observation @ jnp.asarray(WEIGHTS, jnp.float32)).draw(
        Categorical.noise(key, (*observation.shape[:-1], 4))
    )


SAME = {
    "logits": from_numpy(lambda seen: seen @ WEIGHTS, "logits", {"weights": WEIGHTS}),
    "probabilities": from_numpy(
        lambda seen: np.exp(seen @ WEIGHTS) / np.exp(seen @ WEIGHTS).sum(axis=1, keepdims=True), "probabilities"
    ),
}


@pytest.mark.parametrize("kind", ["logits", "probabilities", "sb3"])
def test_actions_are_those_of_the_same_jax_policy(kind, key):
    policy = SAME.get(kind) or from_stable_baselines3(ppo())
    acting = ActingOutside.create(policy, NAVIGATION)
    seen = jax.random.uniform(key, (500, 2))
    action, log_prob = jax.jit(acting.act)(key, seen)
    expected, expected_log_prob = jax_policy(key, seen)
    np.testing.assert_array_equal(action, expected)
    np.testing.assert_allclose(log_prob, expected_log_prob, rtol=1e-5, atol=1e-6)
    vmapped, _ = jax.vmap(acting.act)(jnp.stack([key, key]), jnp.stack([seen, seen]))
    np.testing.assert_array_equal(vmapped, [action, action])


def test_rollouts_are_those_of_the_same_jax_policy(key):
    simulator = simulator_for(NAVIGATION)
    starts = simulator.start_states(key, 32)
    acting = ActingOutside.create(SAME["logits"], NAVIGATION)
    found, expected = (simulator.episode_returns(act, starts, key).discounted for act in (acting.act, jax_policy))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_deterministic_policies_take_their_actions(key):
    acting = ActingOutside.create(from_stable_baselines3(ppo(), deterministic=True), NAVIGATION)
    seen = np.asarray(jax.random.uniform(key, (50, 2)))
    action, log_prob = acting.act(key, jnp.asarray(seen))
    np.testing.assert_array_equal(action, (seen @ WEIGHTS).argmax(axis=1))
    assert not np.asarray(log_prob).any()
    distribution = acting.distribution(jnp.asarray(seen))
    np.testing.assert_array_equal(distribution.mode(), action)
    assert np.asarray(distribution.entropy()).max() == 0.0


def test_continuous_actions_are_in_the_units_of_the_world(key):
    """Bounds of Pendulum's torque are −2 and 2, those of policies −1 and 1."""
    weights = np.array([[0.5], [1.0], [0.25]])
    model = PPO(PENDULUM, Policy(weights, DiagGaussianDistribution(), log_std=-1.0))
    acting = ActingOutside.create(from_stable_baselines3(model), PENDULUM)
    seen = jax.random.normal(key, (200, 3)) * 0.1
    action, log_prob = acting.act(key, seen)
    own = DiagonalGaussian(seen @ jnp.asarray(weights, jnp.float32), jnp.full((200, 1), -1.0))
    drawn = own.perturbed(DiagonalGaussian.noise(key, (200, 1)))
    np.testing.assert_allclose(
        world_action(PENDULUM.action_space, action), jnp.clip(drawn, -2, 2), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(log_prob, own.log_prob(drawn) + np.log(2.0), rtol=1e-4, atol=1e-5)


def test_squashed_actions_have_the_density_of_tanh(key):
    """The density integrates to 1 over the actions, by a histogram of draws."""
    acting = ActingOutside.create(from_numpy(lambda seen: (seen[:, :1] * 0 + 0.3, -0.5), "squashed"), PENDULUM)
    action, log_prob = acting.act(key, jnp.zeros((20_000, 3)))
    assert np.abs(np.asarray(action)).max() < 1
    inside = np.abs(np.asarray(action)[:, 0] - 0.2) < 0.05
    assert inside.mean() / 0.1 == pytest.approx(np.exp(np.asarray(log_prob)[inside]).mean(), rel=0.1)
    free = np.arctanh(np.asarray(action, np.float64))[:, 0]
    normal = -0.5 * ((free - 0.3) / np.exp(-0.5)) ** 2 + 0.5 - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(
        log_prob, normal - np.log1p(-(np.asarray(action, np.float64)[:, 0] ** 2)), rtol=2e-3, atol=2e-3
    )


def test_a_digest_is_of_parameters_code_and_description():
    assert from_stable_baselines3(ppo()).sha256 == from_stable_baselines3(ppo()).sha256
    other = from_stable_baselines3(PPO(NAVIGATION, Policy(WEIGHTS + 1e-6, CategoricalDistribution())))
    digests = {from_stable_baselines3(ppo()).sha256, other.sha256, from_stable_baselines3(ppo(), True).sha256}
    assert len(digests) == 3
    assert from_stable_baselines3(ppo()).description == "Stable-Baselines3 PPO, Policy, actions drawn at random"


@pytest.mark.slow
def test_assessing_an_outside_policy(tmp_path):
    run = train_tiny(tmp_path / "run")
    (tmp_path / "outside_policies.py").write_text(
        "import jax.numpy as jnp, numpy as np\n"
        "from evarl.agents.distributions import Categorical\n"
        f"W = np.array({WEIGHTS.tolist()})\n"
        "def traced(key, seen): return Categorical(seen @ jnp.asarray(W, jnp.float32)).sample(key), None\n"
        "def chances(seen):\n    e = np.exp(seen @ W)\n    return e / e.sum(axis=1, keepdims=True)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        named = [f"outside_policies:{name}" for name in ("traced", "chances")]
        traced, numpy = (evarl.assess(run, policy_import=name, interval=False) for name in named)
    model = evarl.assess(run, policy=ppo(), interval=False, truth_episodes=8)
    np.testing.assert_array_equal(traced.returns, numpy.returns)
    np.testing.assert_array_equal(traced.returns, model.returns)
    assert traced.mean == numpy.mean == model.mean
    assert model.policy.startswith("Stable-Baselines3 PPO")
    assert model.truth.episodes == 8
    assert NAVIGATION.return_range()[0] <= model.truth.value <= NAVIGATION.return_range()[1]


@pytest.mark.parametrize(
    ("function", "gives", "message"),
    [
        (
            lambda seen: np.full((len(seen), 3), 1 / 3),
            "probabilities",
            r"of shape \(2, 3\) for 2 observations; must be \(2, 4\)",
        ),
        (lambda seen: np.full((len(seen), 4), 0.3), "probabilities", r"below 0 or sum to 1\.2; must sum to 1"),
        (lambda seen: np.full(len(seen), 7), "actions", "takes the action 7; must be a whole number from 0 to 3"),
        (lambda seen: np.full((len(seen), 4), np.nan), "logits", "logits that are not finite"),
        (lambda seen: seen @ np.ones(5), "logits", r"raises ValueError at observations float32\[2, 2\]"),
        (
            lambda seen: 1 if seen[0] > 0 else 2,
            "actions",
            r"\); must take a batch of observations, and return actions for each$",
        ),
        (
            lambda seen: (seen, 0.0),
            "gaussian",
            r"gives gaussian, and navigation has actions Discrete\(4\); must give prob",
        ),
    ],
)
def test_policies_that_do_not_fit_are_refused_by_name(function, gives, message):
    with pytest.raises(InputError, match=f"^function tests.policies.test_outside:.*{message}"):
        ActingOutside.create(from_numpy(function, gives), NAVIGATION)


def test_what_a_policy_raises_in_a_rollout_is_one_line(key):
    calls = []

    def sometimes(seen):
        calls.append(1)
        return np.full(len(seen), 9 if len(calls) > 3 else 0)

    acting = ActingOutside.create(from_numpy(sometimes, "actions"), NAVIGATION)
    simulator = simulator_for(NAVIGATION)
    starts = simulator.start_states(key, 4)
    with pytest.raises(InputError, match=r"takes the action 9; must be a whole number from 0 to 3$"), acting.errors():
        simulator.episode_returns(acting.act, starts, key)


def test_models_that_are_refused():
    with pytest.raises(InputError, match="policy: is a int; must be a model of Stable-Baselines3"):
        policies.wrap_policy(3)
    with pytest.raises(
        InputError, match=r"takes observations of shape \(2,\); those of gymnax/Pendulum-v1 have \(3,\)"
    ):
        ActingOutside.create(from_stable_baselines3(ppo()), PENDULUM)
    model = ppo()
    model.policy.lstm_actor = None
    with pytest.raises(InputError, match="PPO keeps a state between steps"):
        from_stable_baselines3(model)
    other = PPO(NAVIGATION, Policy(WEIGHTS, object()))
    with pytest.raises(InputError, match="PPO draws actions by object, which is not supported; must be deterministic"):
        from_stable_baselines3(other)
    with pytest.raises(InputError, match="gives: 'q' is not allowed; must be one of probabilities, logits"):
        from_numpy(lambda seen: seen, "q")


class FromFive(gymnasium.Env):
    """Pays 1 for its action 6, of 5, 6 and 7."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.zeros(1, np.float32), float(action == 6), True, False, {}


FIVE = "gymnasium/tests.policies.test_outside:FromFive"


def test_actions_are_the_numbers_of_the_environment(key):
    world = evarl.make_world(FIVE)
    assert str(world.action_space) == "Discrete(3, start=5)"
    simulator = simulator_for(world)
    starts = simulator.start_states(key, 2)
    six, one = (lambda seen: np.full(len(seen), 6)), (lambda seen: np.full(len(seen), 1))
    for policy in (evarl.wrap_policy(six, gives="actions"), from_numpy(one, "actions", first_action=0)):
        acting = ActingOutside.create(policy, world)
        assert simulator.episode_returns(acting.act, starts, key).discounted.tolist() == [1.0, 1.0]
    told = (
        r"takes the action 1; must be a whole number from 5 to 7, as in the environment; a policy whose actions count from 0 to "
        r"2 must be wrapped with first_action=0"
    )
    with pytest.raises(InputError, match=told):
        ActingOutside.create(from_numpy(one, "actions"), world)
    assert from_numpy(one, "actions").sha256 != from_numpy(one, "actions", first_action=0).sha256
    with pytest.raises(InputError, match="first-action: 'a' is not allowed; must be a whole number"):
        from_numpy(one, "actions", first_action="a")


def test_models_count_from_zero_whatever_their_space_says(key):
    """Stable-Baselines3 takes the index of the greatest logit."""
    world = evarl.make_world(FIVE)
    model = PPO(world, Policy(np.array([[0.0, 1.0, 0.0]]), CategoricalDistribution()))
    model.action_space = FromFive.action_space
    acting = ActingOutside.create(from_stable_baselines3(model, deterministic=True), world)
    assert acting.act(key, jnp.ones((2, 1)))[0].tolist() == [1, 1]


def test_worlds_show_where_actions_begin(capsys):
    assert call(["worlds", FIVE]) == 0
    assert "actions Discrete(3, start=5)" in capsys.readouterr().out
