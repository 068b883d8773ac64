"""What comes before the dense layers of actor and critic: convolutions for images, and modules of the user."""

import dataclasses
import sys

import flax.linen as nn
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evarl
from evarl.agents.configuration import AgentConfig
from evarl.agents.torsos import Convolution, Convolutions, torso_for
from evarl.errors import InputError
from evarl.worlds import Box

TINY = {"environments": 2, "steps": 4, "updates": 2, "quiet": True}


class Flat(nn.Module):
    """Nothing but the observation in a row."""

    @nn.compact
    def __call__(self, x):
        return x.reshape(len(x), -1)


FLAT = Flat()


class Lights(gymnasium.Env):
    """An image of bytes, whose brighter half tells the action that pays."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 9, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def _show(self):
        self.right = int(self.np_random.integers(2))
        image = np.zeros((8, 9, 1), np.uint8)
        image[:, 5:] = 255 * self.right
        image[:, :4] = 255 - 255 * self.right
        return image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action):
        paid = float(action == self.right)
        return self._show(), paid, False, False, {}


@pytest.mark.parametrize(("width", "stride"), [(4, 2), (3, 1), (8, 4)])
def test_a_convolution_is_that_of_flax(width, stride, key):
    """Its kernel has the rows of each square together: [shift, shift, stride, stride, C]."""
    image = jax.random.normal(key, (2, 13, 11, 3))
    network, shifts = Convolution(5, width, stride), width // stride
    parameters = network.init(key, image)
    kernel = parameters["params"]["Dense_0"]["kernel"].reshape(shifts, shifts, stride, stride, 3, 5)
    kernel = kernel.transpose(0, 2, 1, 3, 4, 5).reshape(width, width, 3, 5)
    plain = nn.Conv(5, (width, width), stride, "VALID")
    wanted = plain.apply({"params": {"kernel": kernel, "bias": jnp.zeros(5)}}, image)
    np.testing.assert_allclose(network.apply(parameters, image), wanted, rtol=1e-4, atol=1e-4)


def test_channels_may_come_first_or_last(key):
    last = jax.random.uniform(key, (2, 8, 9, 3))
    network = Convolutions()
    parameters = network.init(key, last)
    shown = network.apply(parameters, last)
    np.testing.assert_array_equal(network.apply(parameters, jnp.moveaxis(last, 3, 1)), shown)
    assert shown.shape == (2, 128)
    assert jax.eval_shape(network.init_with_output, key, jnp.zeros((1, 4, 84, 84)))[0].shape == (1, 512)


@pytest.mark.parametrize(
    ("space", "found"),
    [
        (Box((84, 84, 4), 0, 255, "uint8"), True),
        (Box((3, 32, 32)), True),
        (Box((10, 10, 4), 0, 1, "bool"), False),
        (Box((17,)), False),
    ],
)
def test_images_get_convolutions_by_themselves(space, found):
    assert isinstance(torso_for("auto", space), Convolutions) == found


@pytest.fixture(scope="module")
def lights(tmp_path_factory):
    out = tmp_path_factory.mktemp("lights") / "run"
    settings = {"environments": 4, "steps": 32, "updates": 8, "horizon": 8, "quiet": True, "beta": 0.01}
    config = evarl.with_settings(
        evarl.preset("gymnasium"), {"evaluator.warmup": 2, "assessment.horizon": 4, "agent.ppo.minibatches": 2}
    )
    return evarl.train(config, env=Lights, out=out, **settings)


@pytest.mark.slow
def test_a_policy_learns_from_images_and_is_evaluated(lights):
    """Half of the steps are paid by chance; an image is divided by 255 and not standardised pixel by pixel."""
    assert lights.policy_state().observation_statistics is None
    assert "torso" in lights.policy_state().actor["params"]
    assert lights.summary["return"] > 7.0
    assert np.isfinite(lights.metrics["evaluator_loss"].to_numpy()).any() or lights.evaluator_state().state.steps() > 0


@pytest.mark.slow
def test_the_run_is_loaded_with_its_function(lights):
    again = evarl.Run.load(lights.path, env=Lights)
    image = np.zeros((8, 9, 1), np.uint8)
    image[:, 5:] = 255
    assert int(again.policy(image, jax.random.PRNGKey(0))) == 1


@pytest.mark.parametrize("algorithm", ["a2c", pytest.param("ppo", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_module_that_changes_nothing_is_the_plain_network(algorithm, tmp_path):
    evarl.register_network("flat-test", FLAT)
    config = evarl.preset("navigation")
    values = []
    for network in ("mlp", "flat-test"):
        agent = dataclasses.replace(config.agent, algorithm=algorithm, network=network)
        run = evarl.train(dataclasses.replace(config, agent=agent), out=tmp_path / network, **TINY)
        values.append(run.value(jnp.array([[0.1, 0.2]])))
    np.testing.assert_allclose(*values, rtol=1e-5)


@pytest.mark.slow
def test_modules_by_import_path(tmp_path, monkeypatch):
    (tmp_path / "evarl_nets.py").write_text(
        "import flax.linen as nn\n\nclass Torso(nn.Module):\n    @nn.compact\n    def __call__(self, x):\n"
        "        return nn.relu(nn.Dense(5)(x))\n\nnumber = 3\n\nclass Row(nn.Module):\n    def __call__(self, x):\n"
        "        return x[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    config = evarl.preset("navigation")
    named = lambda name: dataclasses.replace(config, agent=dataclasses.replace(config.agent, network=name))  # noqa: E731
    run = evarl.train(named("evarl_nets:Torso"), out=tmp_path / "run", **TINY)
    assert run.policy_state().actor["params"]["torso"]["Dense_0"]["kernel"].shape == (2, 5)
    for wrong, told in {
        "evarl_nets:Torsos": "cannot be imported: module 'evarl_nets' has no attribute 'Torsos'",
        "nowhere_nets:Torso": "cannot be imported: No module named 'nowhere_nets'",
        "evarl_nets:number": "cannot be made without arguments: 'int' object is not callable",
        "evarl_nets:Row": r"maps observations \[2, 2\] to \[2\]; must be \[2, features\]",
    }.items():
        with pytest.raises(InputError, match=rf"^agent.network: '{wrong}' {told}"):
            torso_for(wrong, Box((2,)))
    del sys.modules["evarl_nets"]
    with pytest.raises(InputError, match="names a network of the module 'evarl_nets', and files do not decide"):
        evarl.Run.load(run.path)
    assert evarl.Run.load(run.path, allow_modules=("evarl_nets",)).value(jnp.zeros(2)).shape == ()


def test_networks_that_are_not_known_are_refused():
    with pytest.raises(InputError, match=r"^agent.network: unknown 'cmn'; did you mean 'cnn'"):
        AgentConfig(network="cmn").validate()
    with pytest.raises(InputError, match=r"agent.network: Flat\(\) is not allowed; must be text"):
        AgentConfig(network=Flat()).validate()  # type: ignore[arg-type]
