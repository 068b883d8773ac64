"""Policies of Stable-Baselines3, whose distributions are read and whose actions are drawn by JAX."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from evarl.errors import FileError, InputError
from evarl.policies.outside import Gives, OutsidePolicy, structure_of
from evarl.policies.threads import one_thread
from evarl.storage.files import check_regular, reason
from evarl.worlds.spaces import Space, as_space

LARGEST = 8 * 2**30
"""Maximum accepted size of a file in bytes."""
PACKAGES = ("stable_baselines3", "sb3_contrib")
ALGORITHMS = ("ppo", "a2c", "dqn", "sac", "td3", "ddpg", "trpo", "ars", "qrdqn", "tqc", "crossq", "maskableppo")


def from_stable_baselines3(model: Any, deterministic: bool = False, normalize: Any = None) -> OutsidePolicy:
    """A policy from a model of Stable-Baselines3, such as `PPO.load("model.zip")`.

    Actions are drawn from the policy's distribution (A2C, PPO, SAC), or are the most probable ones if `deterministic`, which is
    what `evaluate_policy` measures by default. Policies without a distribution (DQN, TD3, DDPG) are deterministic. `normalize` is
    the `VecNormalize` environment whose statistics the policy was trained with, the model's own unless given.
    """
    network = getattr(model, "policy", None)
    if network is None or not hasattr(model, "predict"):
        raise InputError(f"model: is a {type(model).__name__}; must be a model of Stable-Baselines3")
    name = type(model).__name__
    if hasattr(network, "lstm_actor") or name.startswith("Recurrent"):
        raise InputError(f"model: {name} keeps a state between steps; must act by the present observation alone")
    own = getattr(model, "get_vec_normalize_env", lambda: None)()
    statistics = own if normalize is None else normalize
    space = _space(model, name)
    gives, forward = _forward(model, network, deterministic)
    shown = model.observation_space
    number = type(shown).__name__ == "Discrete"

    def function(observation: np.ndarray) -> Any:
        seen = observation
        if number:  # one-hot in worlds of this package, a number in other logs
            seen = observation.argmax(axis=-1) if observation.ndim > 1 and observation.shape[-1] > 1 else observation
            seen = seen.reshape(-1).astype(np.int64)
        elif statistics is not None:
            seen = np.asarray(statistics.normalize_obs(observation))
        with one_thread():
            return forward(seen)

    parameters = {key: one.detach().cpu().numpy() for key, one in network.state_dict().items()}
    how = "deterministic" if gives == "actions" else "actions drawn at random"
    told = f"Stable-Baselines3 {name}, {type(network).__name__}, {how}"
    if statistics is not None:
        running = statistics.obs_rms
        extra = {"mean": running.mean, "var": running.var, "clip": statistics.clip_obs, "epsilon": statistics.epsilon}
        parameters |= {f"normalize.{key}": np.asarray(one) for key, one in extra.items()}
        told += ", observations normalised"
    shape = None if number else _shape(shown)  # actions count from 0, wherever those of the space do
    return OutsidePolicy(function, gives, told, parameters, structure_of(network), _versions(), shape, space, 0)


def load_stable_baselines3(
    path: str | Path, algorithm: str | None = None, deterministic: bool = False
) -> OutsidePolicy:
    """A policy from a file that Stable-Baselines3 saved. Its loader unpickles, which can execute code: load what you trust.

    The `algorithm` (ppo, sac, …) is recognised by the fields of the file unless given.
    """
    path = Path(path)
    check_regular(path, LARGEST)
    name = algorithm or _algorithm(path)
    for package in PACKAGES:
        try:
            module = importlib.import_module(package)
        except ImportError:
            continue
        kinds = {one.lower(): getattr(module, one) for one in dir(module) if hasattr(getattr(module, one), "load")}
        if name.lower() in kinds:
            try:
                return from_stable_baselines3(kinds[name.lower()].load(path, device="cpu"), deterministic)
            except InputError:
                raise
            except Exception as error:  # whatever the loader raises
                raise FileError(f"{path}: cannot be loaded as {name} by {package} ({reason(error)})") from error
    raise InputError(
        f"policy-sb3: the algorithm '{name}' is not in Stable-Baselines3 as it is installed here; must be one of "
        f"{', '.join(ALGORITHMS)}, with pip install stable-baselines3 (or sb3-contrib)"
    )


def _algorithm(path: Path) -> str:
    """The algorithm that saved a file, from the names of its settings, which are plain JSON."""
    import json
    import zipfile

    try:
        with zipfile.ZipFile(path) as file:
            names = json.loads(file.read("data")).keys()
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, AttributeError) as error:
        raise FileError(f"{path}: is not a file of Stable-Baselines3 ({reason(error)})") from error
    for algorithm, needed in SETTINGS.items():
        if needed <= names:
            return algorithm
    raise InputError(f"{path}: its algorithm is not recognised; must be given, with --sb3-algorithm")


SETTINGS: dict[str, set[str]] = {
    "trpo": {"cg_max_steps", "target_kl"},
    "ppo": {"clip_range", "n_epochs"},
    "a2c": {"gae_lambda", "ent_coef", "n_steps"},
    "qrdqn": {"exploration_schedule", "n_quantiles"},
    "dqn": {"exploration_schedule"},
    "tqc": {"top_quantiles_to_drop_per_net"},
    "sac": {"target_entropy", "ent_coef"},
    "td3": {"policy_delay", "target_policy_noise"},
}
"""Settings by which a file's algorithm is recognised, the more special ones first; DDPG acts as TD3 does."""


def _forward(model: Any, network: Any, deterministic: bool) -> tuple[Gives, Callable[[np.ndarray], Any]]:
    """What the policy gives, and the function that gives it for prepared observations."""
    if deterministic:
        return "actions", lambda seen: model.predict(seen, deterministic=True)[0]
    if hasattr(network, "get_distribution"):
        kind = type(network.action_dist).__name__
        if kind == "CategoricalDistribution":
            return "logits", lambda seen: _distribution(network, seen).logits.cpu().numpy()
        if kind in ("DiagGaussianDistribution", "SquashedDiagGaussianDistribution"):
            return ("gaussian" if kind.startswith("Diag") else "squashed"), lambda seen: _gaussian(network, seen)
        raise InputError(
            f"model: {type(model).__name__} draws actions by {kind}, which is not supported; must be deterministic"
        )
    actor = getattr(network, "actor", None)
    if hasattr(actor, "get_action_dist_params"):
        if getattr(actor, "use_sde", False):
            raise InputError(
                f"model: {type(model).__name__} explores by state-dependent noise, which is not supported; must be deterministic"
            )
        return "squashed", lambda seen: _squashed(network, actor, seen)
    return "actions", lambda seen: model.predict(seen, deterministic=True)[0]


def _tensor(network: Any, seen: np.ndarray) -> Any:
    network.set_training_mode(False)
    return network.obs_to_tensor(seen)[0]


def _distribution(network: Any, seen: np.ndarray) -> Any:
    return network.get_distribution(_tensor(network, seen)).distribution


def _gaussian(network: Any, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = _distribution(network, seen)
    return found.mean.cpu().numpy(), found.stddev.log().cpu().numpy()


def _squashed(network: Any, actor: Any, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean, log_deviation, _ = actor.get_action_dist_params(_tensor(network, seen))
    return mean.cpu().numpy(), log_deviation.cpu().numpy()


def _space(model: Any, name: str) -> Space:
    from gymnasium import spaces

    try:
        return as_space(name, "action", model.action_space, spaces)
    except InputError:
        told = " ".join(str(model.action_space).split())
        raise InputError(f"model: {name} has the action space {told}; must be Box or Discrete") from None


def _shape(space: Any) -> tuple[int, ...] | None:
    """Shape of an observation; None for images, which may have their channels first or last."""
    shape = tuple(getattr(space, "shape", None) or ())
    return None if len(shape) == 3 else shape


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for package in ("stable-baselines3", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
