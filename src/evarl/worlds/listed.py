"""The worlds of all families, written down so that they can be listed without importing Gymnax, Brax and JAX.

`tests/worlds/test_listed.py` compares this list with what the libraries make.
"""

from importlib.util import find_spec
from typing import NamedTuple

OPTIONAL = ("brax",)
"""Families whose package may be missing."""


class Listed(NamedTuple):
    """What is known of a world before it is made."""

    name: str
    observations: str
    actions: str
    horizon: int
    discount: float


WORLDS: tuple[Listed, ...] = (
    Listed("navigation", "Box(2, 0.0 to 1.0, float32)", "Discrete(4)", 50, 0.99),
    Listed("navigation/open-field", "Box(2, 0.0 to 1.0, float32)", "Discrete(4)", 50, 0.99),
    Listed("crossing", "Box(56, 0.0 to 1.0, bool)", "Discrete(4)", 40, 0.99),
    Listed("tabular/chain", "Box(2, 0.0 to 1.0, float32)", "Discrete(2)", 100, 0.9),
    Listed("gymnax/CartPole-v1", "Box(4, … to …, float32)", "Discrete(2)", 500, 0.99),
    Listed("gymnax/Pendulum-v1", "Box(3, … to …, float32)", "Box(1, -2.0 to 2.0, float32)", 200, 0.99),
    Listed("gymnax/Acrobot-v1", "Box(6, … to …, float32)", "Discrete(3)", 500, 0.99),
    Listed("gymnax/MountainCar-v0", "Box(2, … to …, float32)", "Discrete(3)", 200, 0.99),
    Listed("gymnax/MountainCarContinuous-v0", "Box(2, … to …, float32)", "Box(1, -1.0 to 1.0, float32)", 999, 0.99),
    Listed("gymnax/Asterix-MinAtar", "Box(10×10×4, 0.0 to 1.0, bool)", "Discrete(5)", 1000, 0.99),
    Listed("gymnax/Breakout-MinAtar", "Box(10×10×4, 0.0 to 1.0, bool)", "Discrete(3)", 1000, 0.99),
    Listed("gymnax/Freeway-MinAtar", "Box(10×10×7, 0.0 to 1.0, bool)", "Discrete(3)", 2500, 0.99),
    Listed("gymnax/Seaquest-MinAtar", "Box(10×10×10, 0.0 to 1.0, bool)", "Discrete(6)", 1000, 0.99),
    Listed("gymnax/SpaceInvaders-MinAtar", "Box(10×10×6, 0.0 to 1.0, bool)", "Discrete(4)", 1000, 0.99),
    Listed("gymnax/Catch-bsuite", "Box(10×5, 0.0 to 1.0, float32)", "Discrete(3)", 1000, 0.99),
    Listed("gymnax/DeepSea-bsuite", "Box(8×8, 0.0 to 1.0, float32)", "Discrete(2)", 8, 0.99),
    Listed("gymnax/DiscountingChain-bsuite", "Box(2, -1.0 to 5.0, float32)", "Discrete(5)", 100, 0.99),
    Listed("gymnax/SimpleBandit-bsuite", "Box(1×1, 1.0 to 1.0, float32)", "Discrete(11)", 100, 0.99),
    Listed("gymnax/FourRooms-misc", "Box(4, 1.0 to 11.0, float32)", "Discrete(4)", 500, 0.99),
    Listed("gymnax/Reacher-misc", "Box(8, -inf to inf, float32)", "Box(2, -1.0 to 1.0, float32)", 100, 0.99),
    Listed("gymnax/Swimmer-misc", "Box(16, -inf to inf, float32)", "Box(2, -1.0 to 1.0, float32)", 500, 0.99),
    Listed("gymnax/Pong-misc", "Box(30×40×3, 0.0 to 2.0, float32)", "Discrete(3)", 1000, 0.99),
    Listed("gymnax/FrozenLake-misc", "Box(16, 0.0 to 1.0, float32)", "Discrete(4)", 100, 0.99),
    Listed("brax/ant", "Box(27, -inf to inf, float32)", "Box(8, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/halfcheetah", "Box(17, -inf to inf, float32)", "Box(6, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/hopper", "Box(11, -inf to inf, float32)", "Box(3, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/humanoid", "Box(244, -inf to inf, float32)", "Box(17, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/humanoidstandup", "Box(244, -inf to inf, float32)", "Box(17, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/inverted_double_pendulum", "Box(8, -inf to inf, float32)", "Box(1, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/inverted_pendulum", "Box(4, -inf to inf, float32)", "Box(1, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/pusher", "Box(23, -inf to inf, float32)", "Box(7, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/reacher", "Box(11, -inf to inf, float32)", "Box(2, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("brax/walker2d", "Box(17, -inf to inf, float32)", "Box(6, -1.0 to 1.0, float32)", 1000, 0.99),
    Listed("gymnasium/CartPole-v1", "Box(4, … to …, float32)", "Discrete(2)", 500, 0.99),
    Listed("gymnasium/Pendulum-v1", "Box(3, … to …, float32)", "Box(1, -2.0 to 2.0, float32)", 200, 0.99),
    Listed("gymnasium/Acrobot-v1", "Box(6, … to …, float32)", "Discrete(3)", 500, 0.99),
    Listed("gymnasium/MountainCar-v0", "Box(2, … to …, float32)", "Discrete(3)", 200, 0.99),
    Listed("gymnasium/MountainCarContinuous-v0", "Box(2, … to …, float32)", "Box(1, -1.0 to 1.0, float32)", 999, 0.99),
    Listed("gymnasium/FrozenLake-v1", "Box(16, 0.0 to 1.0, float32)", "Discrete(4)", 100, 0.99),
    Listed("gymnasium/FrozenLake8x8-v1", "Box(64, 0.0 to 1.0, float32)", "Discrete(4)", 200, 0.99),
    Listed("gymnasium/Taxi-v4", "Box(500, 0.0 to 1.0, float32)", "Discrete(6)", 200, 0.99),
)


def listed_worlds() -> tuple[Listed, ...]:
    """The worlds whose packages are installed.

    >>> listed_worlds()[0].name
    'navigation'
    """
    missing = tuple(f"{family}/" for family in OPTIONAL if find_spec(family) is None)
    return tuple(one for one in WORLDS if not one.name.startswith(missing))
