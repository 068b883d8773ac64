"""What may vary in the tasks of classic control, which Gymnax and Gymnasium describe by the same numbers. Plain data, no JAX."""

from collections.abc import Mapping
from typing import Any

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
