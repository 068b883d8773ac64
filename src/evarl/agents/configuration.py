"""Settings of an agent. Plain data, no JAX, so that `--help` stays quick."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from evarl.errors import InputError
from evarl.ranges import flag, real, sizes, whole
from evarl.registry import Registry
from evarl.settings import check_fields

ALGORITHMS: Registry[Callable[..., Any]] = Registry(
    "algorithm", {"a2c": "evarl.agents.a2c:A2C.make", "ppo": "evarl.agents.ppo:PPO.make"}
)
"""Functions that make agents, as `register_algorithm` takes them."""


def register_algorithm(name: str, make: Callable[..., Any]) -> None:
    """Add a learning algorithm, which `agent.algorithm` can then name.

    `make(config, observation_space, action_space, discount, updates)` returns an `evarl.agents.Agent`; for a subclass of
    `evarl.agents.ActorCritic` it is the class method `make`. In a family of worlds it is also given `contexts`, what the
    critic may see.
    """
    ALGORITHMS.register(name, make)


NETWORKS: Registry[Any] = Registry(
    "network",
    {"auto": "", "mlp": "", "cnn": "evarl.agents.torsos:Convolutions"},  # the first two are no modules
)
"""Flax modules, or what makes them, as `register_network` takes them."""


def register_network(name: str, make: Any) -> None:
    """Add a network that comes before the dense layers of actor and critic, which `agent.network` can then name.

    `make` is a `flax.linen.Module`, or a class or function that returns one without arguments. It maps observations
    [B, ...] of floats to features [B, F]; actor and critic each have parameters of their own.
    """
    NETWORKS.register(name, make)


@dataclass(frozen=True)
class PPOConfig:
    """What PPO has beyond A2C.

    >>> PPOConfig(epochs=8).clip_range
    0.2
    """

    epochs: int = 4
    """Passes over each batch."""
    minibatches: int = 4
    """Gradient steps in one pass; must divide environments × steps."""
    clip_range: float = 0.2
    """How far the probability ratio may move before its gradient is cut."""

    def __post_init__(self) -> None:
        check_fields(self, "agent.ppo")

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        for name in ("epochs", "minibatches"):
            whole(flag("agent.ppo", name), getattr(self, name))
        real("agent.ppo.clip-range", self.clip_range, above=0)


@dataclass(frozen=True)
class AgentConfig:
    """An actor and a critic, two separate networks, and how they learn.

    >>> AgentConfig(algorithm="ppo", hidden_sizes=(32,)).ppo.epochs
    4
    """

    algorithm: str = "a2c"
    """One gradient step per batch (a2c), several clipped ones (ppo), or an algorithm that was registered."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the hidden layers of actor and critic."""
    network: str = "auto"
    """What comes before them: nothing (mlp), a small convolutional network (cnn), a Flax module as package.module:Name, or one
    that was registered. By itself (auto) cnn for images, [H, W, C] or [C, H, W] of bytes or floats, else mlp."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Non-linearity of the hidden layers."""
    actor_learning_rate: float = 5e-4
    """Adam step size of the actor."""
    critic_learning_rate: float = 1e-3
    """Adam step size of the critic."""
    critic_steps: int = 1
    """Gradient steps of the critic on each batch (a2c), the first beside the actor's and the others after it, each with targets
    of the critic as it is by then. PPO has `ppo.epochs` instead."""
    anneal_learning_rates: bool = False
    """Let both learning rates fall linearly to zero over the run."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation: 0 trusts the critic, 1 the returns."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    max_gradient_norm: float = 0.5
    """Gradients of actor and critic are each scaled down to this norm."""
    normalise_advantages: bool = True
    """Shift and scale the advantages of each batch (PPO: of each minibatch) to mean 0 and deviation 1."""
    normalise_observations: bool = False
    """Standardise observations by running statistics, which are saved with the policy."""
    scale_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return, inside the losses only."""
    truncation: Literal["bootstrap", "as-termination"] = "bootstrap"
    """At a time limit, go on with the critic's value, or take the limit for an end as many implementations do."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """Used when the algorithm is ppo."""

    def __post_init__(self) -> None:
        check_fields(self, "agent")

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        ALGORITHMS.check("agent.algorithm", self.algorithm)
        sizes("agent.hidden-sizes", self.hidden_sizes)
        if not isinstance(self.network, str):
            raise InputError(
                f"agent.network: {self.network!r:.60} is not allowed; must be a name: register a module with "
                "evarl.register_network(name, module), or give its import path package.module:Name"
            )
        if ":" not in self.network:
            NETWORKS.check("agent.network", self.network)
        for name in ("actor_learning_rate", "critic_learning_rate", "max_gradient_norm"):
            real(flag("agent", name), getattr(self, name), above=0)
        whole("agent.critic-steps", self.critic_steps)
        if self.algorithm == "ppo" and self.critic_steps > 1:
            raise InputError(
                f"agent.critic-steps: {self.critic_steps} does not go with agent.algorithm ppo, whose critic takes ppo.epochs × "
                "ppo.minibatches steps; must be 1"
            )
        real("agent.entropy-coefficient", self.entropy_coefficient, least=0)
        real("agent.gae-lambda", self.gae_lambda, least=0, most=1)
        self.ppo.validate()
