"""The tasks of classic control, which Gymnax and Gymnasium describe by the same numbers: what may vary, and their states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from evarl.worlds.contexts import ContextParameter

_LINKS = tuple(
    ContextParameter(f"link_{quantity}_{number}", 1.0, 0.5, 2.0, f"{quantity} of link {number}")
    for number in (1, 2)
    for quantity in ("length", "mass")
)
_CAR_GRAVITY = ContextParameter("gravity", 0.0025, 0.0015, 0.0035, "pull towards the valley")

PARAMETERS = {
    "CartPole-v1": (
        ContextParameter("length", 0.5, 0.1, 2.0, "half the length of the pole, in m"),
        ContextParameter("masspole", 0.1, 0.01, 1.0, "mass of the pole, in kg"),
        ContextParameter("masscart", 1.0, 0.2, 5.0, "mass of the cart, in kg"),
        ContextParameter("force_mag", 10.0, 2.0, 20.0, "force of a push, in N"),
        ContextParameter("gravity", 9.8, 1.0, 20.0, "gravity, in m/s²"),
    ),
    "Pendulum-v1": (
        ContextParameter("g", 10.0, 1.0, 20.0, "gravity, in m/s²"),
        ContextParameter("m", 1.0, 0.2, 2.0, "mass, in kg"),
        ContextParameter("l", 1.0, 0.5, 2.0, "length, in m"),
        ContextParameter("max_torque", 2.0, 0.5, 2.0, "torque beyond which the motor gives no more, in Nm"),
    ),
    "Acrobot-v1": _LINKS,
    "MountainCar-v0": (ContextParameter("force", 0.001, 0.0005, 0.002, "force of the engine"), _CAR_GRAVITY),
    "MountainCarContinuous-v0": (
        ContextParameter("power", 0.0015, 0.0005, 0.003, "force of the engine at full throttle"),
        _CAR_GRAVITY,
    ),
}
"""What varies in each task, by id. Time steps, limits and goals are left out: they change the task, not its site."""


def with_derived(identifier: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a task's parameters, and of the numbers that follow from them.

    >>> found = with_derived("CartPole-v1", {"masscart": 1.0, "masspole": 0.5, "length": 2.0})
    >>> found["total_mass"], found["polemass_length"]
    (1.5, 1.0)
    """
    found = dict(values)
    if identifier == "CartPole-v1":
        found["total_mass"] = found["masscart"] + found["masspole"]
        found["polemass_length"] = found["masspole"] * found["length"]
    if identifier == "Acrobot-v1":  # the centre of mass is the middle of the link
        found |= {f"link_com_pos_{number}": 0.5 * found[f"link_length_{number}"] for number in (1, 2)}
    return found


@dataclass(frozen=True)
class ClassicState:
    """The numbers that are the whole state of a task."""

    fields: tuple[str, ...]
    ended: Callable[..., bool]
    """Whether the task has ended at a state, given by its numbers."""
    angles: int = 0
    """How many of the first numbers are angles, which are shown as cosine and sine."""

    def observation(self, state: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
        """What Gymnasium shows at a state.

        >>> STATES["Pendulum-v1"].observation(np.array([0.0, 3.0])).tolist()
        [1.0, 0.0, 3.0]
        """
        angles = state[: self.angles]
        shown = np.stack([np.cos(angles), np.sin(angles)], axis=1).ravel()
        return np.concatenate([shown, state[self.angles :]]).astype(np.float32)


_CAR = ("position", "velocity")

STATES = {
    "CartPole-v1": ClassicState(
        ("x", "x_dot", "theta", "theta_dot"),
        lambda x, x_dot, theta, theta_dot: abs(x) > 2.4 or abs(theta) > 12 * 2 * np.pi / 360,
    ),
    "Pendulum-v1": ClassicState(("theta", "theta_dot"), lambda theta, theta_dot: False, angles=1),
    "Acrobot-v1": ClassicState(
        ("joint_angle1", "joint_angle2", "velocity_1", "velocity_2"),
        lambda first, second, *velocities: -np.cos(first) - np.cos(first + second) > 1.0,
        angles=2,
    ),
    "MountainCar-v0": ClassicState(_CAR, lambda position, velocity: position >= 0.5 and velocity >= 0),
    "MountainCarContinuous-v0": ClassicState(_CAR, lambda position, velocity: position >= 0.45 and velocity >= 0),
}
"""The state of each task, by id, with Gymnax's names. It is `env.unwrapped.state` in Gymnasium."""

ENDED = "must be a state in which the episode has not ended"
"""What is told about a state at which none can begin."""
