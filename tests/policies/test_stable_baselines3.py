"""Policies of Stable-Baselines3 itself, where it is installed: `make test-sb3`."""

import json
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl import ope
from evarl.agents.distributions import world_action
from evarl.cli.main import call
from evarl.errors import FileError, InputError
from evarl.policies import ActingOutside, from_stable_baselines3, from_torch, load_stable_baselines3

sb3 = pytest.importorskip("stable_baselines3")
torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
MODELS = {
    "ppo": ("PPO", "CartPole-v1"),
    "a2c": ("A2C", "CartPole-v1"),
    "dqn": ("DQN", "CartPole-v1"),
    "gaussian": ("PPO", "Pendulum-v1"),
    "sac": ("SAC", "Pendulum-v1"),
    "td3": ("TD3", "Pendulum-v1"),
    "ddpg": ("DDPG", "Pendulum-v1"),
    "lake": ("PPO", "FrozenLake-v1"),
}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models with random weights, and the files in which they were saved."""
    folder, found = tmp_path_factory.mktemp("models"), {}
    for name, (algorithm, world) in MODELS.items():
        small = {"buffer_size": 100} if algorithm in ("DQN", "SAC", "TD3", "DDPG") else {}
        model = getattr(sb3, algorithm)("MlpPolicy", world, seed=1, device="cpu", **small)
        model.save(folder / f"{name}.zip")
        found[name] = model, folder / f"{name}.zip", evarl.make_world(f"gymnasium/{world}")
    return found


def seen(name, world):
    if name == "lake":
        return np.eye(16, dtype=np.float32), np.arange(16)
    shown = np.random.default_rng(0).normal(size=(64, *world.observation_space.shape)).astype(np.float32)
    return shown, shown


@pytest.mark.parametrize("name", MODELS)
def test_deterministic_actions_are_those_of_predict(models, name, key):
    model, file, world = models[name]
    ours, theirs = seen(name, world)
    acting = ActingOutside.create(load_stable_baselines3(file, deterministic=True), world)
    action = world_action(world.action_space, jax.jit(acting.act)(key, ours)[0])
    np.testing.assert_allclose(np.asarray(action), model.predict(theirs, deterministic=True)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["ppo", "a2c", "lake", "gaussian"])
def test_log_probabilities_are_those_of_evaluate_actions(models, name, key):
    model, file, world = models[name]
    ours, theirs = seen(name, world)
    action, log_prob = ActingOutside.create(load_stable_baselines3(file), world).act(key, jnp.asarray(ours))
    scale = 2.0 if name == "gaussian" else 1.0  # of Pendulum's torque in units of policies
    with torch.no_grad():
        tensor = model.policy.obs_to_tensor(theirs)[0]
        expected = model.policy.evaluate_actions(
            tensor, torch.as_tensor(np.asarray(action) * np.asarray(scale, action.dtype))
        )[1]
    np.testing.assert_allclose(log_prob, expected.numpy() + np.log(scale), rtol=1e-4, atol=1e-5)


def test_squashed_densities_are_those_of_sac(models, key):
    model, _, world = models["sac"]
    shown = seen("sac", world)[0]
    action, log_prob = ActingOutside.create(from_stable_baselines3(model), world).act(key, jnp.asarray(shown))
    with torch.no_grad():
        distribution = model.actor.action_dist
        mean, log_std, _ = model.actor.get_action_dist_params(model.policy.obs_to_tensor(shown)[0])
        expected = distribution.proba_distribution(mean, log_std).log_prob(torch.as_tensor(np.asarray(action))).numpy()
    inside = np.abs(np.asarray(action)[:, 0]) < 0.99
    np.testing.assert_allclose(np.asarray(log_prob)[inside], expected[inside], rtol=1e-3, atol=1e-3)


def test_normalised_observations(key):
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    environment = VecNormalize(make_vec_env("CartPole-v1", 2, seed=0))
    model = sb3.PPO("MlpPolicy", environment, n_steps=32, batch_size=32, seed=0, device="cpu").learn(64)
    policy = from_stable_baselines3(model, deterministic=True)
    shown = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    expected = model.predict(environment.normalize_obs(shown), deterministic=True)[0]
    world = evarl.make_world("gymnasium/CartPole-v1")
    np.testing.assert_array_equal(ActingOutside.create(policy, world).act(key, jnp.asarray(shown))[0], expected)
    assert {"normalize.mean", "normalize.var"} <= policy.parameters.keys()


def test_modules_of_torch(key):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    world, shown = (
        evarl.make_world("gymnasium/CartPole-v1"),
        np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32),
    )
    module, function = (
        from_torch(network),
        from_torch(lambda x: torch.distributions.Categorical(logits=network(x)), parameters=network),
    )
    logits = network(torch.as_tensor(shown)).detach().numpy()
    for policy in (module, function, evarl.wrap_policy(network)):
        assert policy.parameters.keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
        chances = jax.nn.softmax(ActingOutside.create(policy, world).distribution(jnp.asarray(shown)).logits)
        np.testing.assert_allclose(chances, jax.nn.softmax(logits), rtol=1e-5)


@pytest.mark.parametrize("name", ["ppo", "gaussian", "sac", "td3"])
def test_off_policy_evaluation(models, name):
    """A log of the policy itself: importance ratios are 1, and the estimate is the mean return."""
    model, _, world = models[name]
    rng = np.random.default_rng(0)
    shown = rng.normal(size=(40, 3, *world.observation_space.shape)).astype(np.float32)
    action = np.stack([model.predict(shown[:, t])[0] for t in range(3)], axis=1)
    fields = {
        "observation": shown,
        "action": action,
        "reward": rng.normal(size=(40, 3)),
        "final_observation": shown[:, 0],
    }
    bare = ope.LoggedData.from_arrays(**fields)
    policy = ope.target_policy(model, bare)
    fqe = ope.FQEConfig(steps=20, hidden_sizes=(4,))
    if name == "td3":
        assert np.isfinite(ope.estimate(ope.Log(bare, 0.9), policy, ope.Settings(fqe=fqe), ("fqe",))["fqe"].value)
        return
    log_prob = np.stack([np.asarray(policy.log_prob(shown[:, t], action[:, t])) for t in range(3)], axis=1)
    data = ope.LoggedData.from_arrays(**fields, log_prob=log_prob)
    found = ope.estimate(ope.Log(data, 0.9), policy, ope.Settings(fqe=fqe), ("tis", "fqe"))
    assert found["tis"].value == pytest.approx((fields["reward"] @ 0.9 ** np.arange(3)).mean(), rel=1e-6)


def test_certificates_from_the_command_line(models, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = ["--policy-sb3", str(models["a2c"][1])]
    effort = ["--world", "gymnasium/CartPole-v1", "--horizon", "20", "--range", "0", "20", "--rollouts", "32", "--json"]
    assert call(["certify", "here", *given, *effort]) == 0
    record = json.loads(capsys.readouterr().out)
    assert call(["verify", record["certificate"], *given]) == 0
    assert "the same rollouts were repeated, to the last bit, and fresh ones were made" in capsys.readouterr().out
    assert call(["verify", record["certificate"], "--policy-sb3", str(models["ppo"][1])]) == 2
    assert "is the directory of another policy (Stable-Baselines3 A2C" in capsys.readouterr().err
    assert call(["verify", record["certificate"], *given, "--deterministic"]) == 2


def test_evaluating_and_comparing_a_model(models, tmp_path, monkeypatch, capsys):
    """Deterministic: the value is the mean of what Stable-Baselines3 returns itself, from the same reset seeds."""
    monkeypatch.chdir(tmp_path)
    model, file, _ = models["a2c"]
    few = {
        "evaluator.warmup": 1,
        "evaluator.initial_steps": 2,
        "evaluator.final_steps": 0,
        "evaluator.memory": "recent",
    }
    small = {
        "world": "gymnasium/CartPole-v1",
        "horizon": 20,
        "discount": 1.0,
        "updates": 2,
        "environments": 2,
        "steps": 8,
    }
    config = evarl.with_settings(evarl.preset("gymnasium"), {"beta": 0.1} | few | small)
    evarl.train(config, out="run", quiet=True)
    given = ["--policy-sb3", str(file), "--deterministic"]
    assert call(["evaluate", "run", *given, "--states", "4", "--rollouts", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policy"].startswith("Stable-Baselines3 A2C")
    assert {row["predictor"] for row in found["rows"]} >= {"evaluator"}
    truth = evarl.evaluate("run", policy=from_stable_baselines3(model, deterministic=True), states=4, rollouts=2)
    assert found["return_discounted"]["mean"] == truth.discounted.mean
    seeds = np.asarray(evarl.simulation.simulator_for(evarl.load("run").world).start_states(_start_key(), 4).state)
    expected = [_played(model, int(seed), 20) for seed in seeds]
    assert truth.seeds[0].queries["start"].truth.value.tolist() == expected
    effort = ["--threshold", "1", "--range", "0", "20", "--rollouts", "64", "--json"]
    assert call(["compare", "run", "model", *given, *effort]) in (0, 1)
    rows = json.loads(capsys.readouterr().out)["candidates"]
    assert [row["run"] for row in rows if row["outside"].startswith("Stable-Baselines3 A2C")] == ["model"]


def _start_key():
    from evarl.evaluation.inputs import root_key

    return jax.random.split(root_key(0))[0]


def _played(model, seed, horizon):
    """The return of one episode of CartPole by Stable-Baselines3's own predictions."""
    import gymnasium

    environment, total = gymnasium.make("CartPole-v1"), 0.0
    shown, _ = environment.reset(seed=seed)
    for _ in range(horizon):
        shown, reward, ended, *_ = environment.step(int(model.predict(shown, deterministic=True)[0]))
        total += float(reward)
        if ended:
            break
    return total


def test_files_that_are_refused(models, tmp_path):
    (tmp_path / "x.zip").write_bytes(b"no")
    with pytest.raises(FileError, match="is not a file of Stable-Baselines3"):
        load_stable_baselines3(tmp_path / "x.zip")
    with pytest.raises(InputError, match="the algorithm 'pop' is not in Stable-Baselines3"):
        load_stable_baselines3(models["ppo"][1], "pop")
    with pytest.raises(FileError, match="cannot be loaded as sac"):
        load_stable_baselines3(models["ppo"][1], "sac")


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["certify_sb3.py", str(tmp_path), "512"])
    runpy.run_path(str(ROOT / "examples/certify_sb3.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert "actions drawn at random" in out
    assert "verified: True" in out
