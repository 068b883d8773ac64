"""What comes before the dense layers of actor and critic: nothing, a small convolutional network, or a module of the user."""

import math
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.initializers import orthogonal, zeros
from jaxtyping import Array, Float

from evarl.agents.configuration import NETWORKS
from evarl.errors import InputError
from evarl.storage.files import reason
from evarl.storage.modules import import_module
from evarl.worlds.spaces import Box

GAIN = math.sqrt(2)
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, width and stride of the convolutions of Mnih et al. (2015), for images of at least LARGE pixels on each side."""
SMALL = ((16, 3, 1), (32, 2, 2))
"""The same for smaller images."""
LARGE = 36
LEAST = 8
"""Least number of pixels on each side of what is taken for an image by itself."""


class Convolution(nn.Module):
    """A convolution without padding, whose width is a multiple of its stride, as one matrix product.

    On a CPU, XLA's own convolutions inside of loops take ten times as long. Squares of `stride` × `stride` pixels become the
    channels of one, so that only (width / stride)² shifted images have to be laid side by side.
    """

    channels: int
    width: int
    stride: int

    @nn.compact
    def __call__(self, x: Float[Array, "batch H W C"]) -> Float[Array, "batch h w channels"]:
        """The images, with a channel for each kernel."""
        batch, height, width, depth = x.shape
        s, shifts = self.stride, self.width // self.stride
        rows, columns = height // s, width // s
        squares = x[:, : rows * s, : columns * s].reshape(batch, rows, s, columns, s, depth)
        squares = squares.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, s * s * depth)
        down, across = rows - shifts + 1, columns - shifts + 1
        shifted = [squares[:, i : i + down, j : j + across] for i in range(shifts) for j in range(shifts)]
        patches = jnp.concatenate(shifted, axis=-1).reshape(batch * down * across, -1)
        shown = nn.Dense(self.channels, kernel_init=orthogonal(GAIN), bias_init=zeros)(patches)
        return shown.reshape(batch, down, across, self.channels)


class Convolutions(nn.Module):
    """The usual small network for images [B, H, W, C] or [B, C, H, W]: convolutions and a dense layer, all with ReLU."""

    outputs: int = 0
    """Width of the dense layer; 0: 512 for large images, 128 for others."""

    @nn.compact
    def __call__(self, x: Float[Array, "batch a b c"]) -> Float[Array, "batch outputs"]:
        """Features of the images."""
        if channels_first(x.shape[1:]):
            x = jnp.moveaxis(x, 1, 3)
        large = min(x.shape[1:3]) >= LARGE
        for channels, width, stride in NATURE if large else SMALL:
            x = nn.relu(Convolution(channels, width, stride)(x))
        outputs = self.outputs or (512 if large else 128)
        return nn.relu(nn.Dense(outputs, kernel_init=orthogonal(GAIN), bias_init=zeros)(x.reshape(len(x), -1)))


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether an image is written [C, H, W]: the channels are the axis that is shorter than both others.

    >>> channels_first((4, 84, 84)), channels_first((84, 84, 4))
    (True, False)
    """
    return shape[0] < min(shape[1:])


def is_image(space: Box) -> bool:
    """Whether observations are taken for images by themselves: three axes of bytes or floats, with sides of some length.

    >>> is_image(Box((84, 84, 3), 0, 255, "uint8")), is_image(Box((10, 10, 4), 0, 1, "bool")), is_image(Box((12,)))
    (True, False, False)
    """
    if len(space.shape) != 3 or space.dtype == "bool":
        return False
    height, width = space.shape[1:] if channels_first(space.shape) else space.shape[:2]
    return min(height, width) >= LEAST


def torso_for(name: str, space: Box) -> nn.Module | None:
    """The network that `agent.network` names, for some observations; None if there are dense layers only."""
    if name == "auto":
        return Convolutions() if is_image(space) else None
    if name == "mlp":
        return None
    made = _imported(name) if ":" in name else NETWORKS.get(name)
    torso = made if isinstance(made, nn.Module) else _called(name, made)
    _check(name, torso, space)
    return torso


def _imported(name: str) -> Any:
    """What "module:attribute" names. Names that come from files have passed `check_module` before."""
    module, _, attribute = name.partition(":")
    try:
        found = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the module raises
        raise InputError(f"agent.network: '{name}' cannot be imported: {reason(error)}") from error
    return found


def _called(name: str, made: Any) -> nn.Module:
    """The module that a class or function returns."""
    try:
        torso = made()
    except Exception as error:
        raise InputError(f"agent.network: '{name}' cannot be made without arguments: {reason(error)}") from error
    if not isinstance(torso, nn.Module):
        raise InputError(f"agent.network: '{name}' is {torso!r:.60}; must be a flax.linen.Module")
    return torso


def _check(name: str, torso: nn.Module, space: Box) -> None:
    """Refuse a module that does not map observations [B, ...] to rows of features."""
    try:
        shape = jax.eval_shape(
            lambda key: torso.init_with_output(key, jnp.zeros((2, *space.shape)))[0], jax.random.PRNGKey(0)
        ).shape
    except Exception as error:  # whatever the module raises
        raise InputError(
            f"agent.network: '{name}' fails on observations {[2, *space.shape]}: {reason(error)}"
        ) from error
    if len(shape) < 2 or shape[0] != 2:
        raise InputError(
            f"agent.network: '{name}' maps observations {[2, *space.shape]} to {list(shape)}; must be [2, features]"
        )


def embed(
    torso: nn.Module | None, shape: tuple[int, ...], features: Float[Array, "*batch features"]
) -> Float[Array, "*batch embedded"]:
    """Rows of features with the observation at their beginning replaced by what the torso makes of it."""
    if torso is None:
        return features
    size, batch = math.prod(shape), features.shape[:-1]
    shown = torso(features[..., :size].reshape(-1, *shape)).reshape(*batch, -1)
    return jnp.concatenate([cast(Array, shown), features[..., size:]], axis=-1)
