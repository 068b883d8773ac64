"""Settings of an evaluator: its network, and how it is fitted. Plain data, no JAX, so that `--help` stays quick."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from evarl.errors import InputError
from evarl.ranges import flag, real, whole
from evarl.registry import Registry
from evarl.settings import check_fields

_KINDS = {"listing": "Listing", "pairs": "PairTokens", "factored": "Factored", "linear": "Linear"}
NETWORKS: Registry[Callable[..., Any]] = Registry(
    "evaluator", {kind: f"evarl.evaluators.networks:{name}" for kind, name in _KINDS.items()}
)
"""Functions (config, dtype) → network."""


def register_evaluator(name: str, make: Callable[..., Any]) -> None:
    """Add an evaluator network, which `evaluator.network.kind` can then name.

    `make(config, dtype)` returns an object with `init(key, scenarios, behaviour, queries)` → parameters and
    `apply(parameters, scenarios, behaviour, queries)` → values [Q], such as a Flax module; see `evarl.evaluators.networks`.
    """
    NETWORKS.register(name, make)


@dataclass(frozen=True)
class NetworkConfig:
    """The network that maps an assessment and a query state to a value."""

    kind: str = "factored"
    """The paper's appendix (listing), one token per state and return (pairs), the same encoded once for all queries
    (factored), an average of the returns weighted by similarity (linear), or a network that was registered."""
    width: int = 32
    """Size of a token, and of the hidden layers."""
    heads: int = 2
    """Attention heads; must divide the width. Not used by linear."""
    layers: int = 2
    """Transformer blocks of listing and pairs; factored has one block of its own, and linear none."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluator.network")

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        NETWORKS.check("evaluator.network.kind", self.kind)
        for name in ("width", "heads", "layers"):
            whole(flag("evaluator.network", name), getattr(self, name))
        if self.width % self.heads:
            raise InputError(f"evaluator.network.heads: {self.heads} does not divide the width {self.width}")


@dataclass(frozen=True)
class EvaluatorConfig:
    """A network, and how it is fitted to the memory of recent policies."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Its architecture."""
    learning_rate: float = 3e-3
    """Adam step size."""
    batch_size: int = 128
    """Queries in one gradient step, equally many from every stored policy."""
    steps: int = 5
    """Gradient steps before each policy update."""
    initial_steps: int = 500
    """Gradient steps on the filled memory when the warm-up ends."""
    warmup: int = 100
    """Policy updates before the evaluator is used; the memory fills meanwhile."""
    warmup_ends: Literal["fixed", "auto"] = "fixed"
    """Whether the warm-up ends after so many updates, or by itself, then at the earliest (auto): the evaluator is fitted from the
    first update on, and used once its skill over predictors without Ξ, averaged over `warmup_window` updates, is above 0."""
    warmup_window: int = 20
    """Updates over which skill is averaged to end the warm-up by itself."""
    memory: Literal["recent", "diverse"] = "recent"
    """Policies that the evaluator is fitted to: the most recent ones, as in the paper; or also earlier ones of the whole run and
    perturbed ones, so that predictions about odd policies have a basis, an interval and a warning."""
    policies: int = 10
    """Most recent policies that the memory keeps."""
    reservoir: int = 400
    """Slots of a diverse memory for earlier policies, and again as many for perturbed ones; both are uniform samples of the whole
    run. Every fifth perturbed policy is never fitted to: it calibrates intervals."""
    diversify_every: int = 10
    """A diverse memory is offered the current policy and perturbed versions of it in one update out of this many."""
    perturbed: int = 8
    """Perturbed versions of the policy that a diverse memory is then offered: noise in the parameters, random actions, one
    action that is favoured, delayed and repeated actions. They cost environment steps and never enter the policy gradient."""
    perturbed_environments: int = 4
    """Environments in which each perturbed policy plays one whole episode."""
    recent_share: float = 0.95
    """Weight of the most recent policies in the loss of a diverse memory; the others share the rest."""
    states: Literal["visited", "start"] = "visited"
    """States at which returns are remembered: all that a policy visits, or only those in which its episodes begin, where the
    observation does not tell how much of an episode is left. The latter needs contexts that are drawn anew in each update."""
    transitions: int | None = None
    """States kept of each policy; all of a batch when not given."""
    final_steps: int = 0
    """Gradient steps in the last update, with a step size that falls to 0."""
    bootstrap: Literal["critic", "evaluator"] = "critic"
    """Whose value follows where a batch cuts an episode: the critic's when the batch is stored, or the evaluator's own, for the
    same policy, computed anew in every gradient step."""
    trace: float = 1.0
    """λ of the targets, with bootstrap evaluator: 1 are returns up to where the batch cuts the episode, 0 one reward and the
    evaluator's value; in between, returns are cut at random so that the expected target is the λ-return."""
    truncation: Literal["end", "bootstrap"] = "end"
    """At a time limit, with bootstrap evaluator: the return ends by definition, or the evaluator's value follows, for values over
    many more steps than 1 / (1 − γ) where the observation does not tell how many are left."""
    target_interval: int = 1
    """Gradient steps between two copies of the parameters that compute the values that follow, with bootstrap evaluator."""
    lower_quantile: float | None = None
    """Level of a second network that predicts a lower quantile of the value over the contexts that a behaviour leaves possible,
    for tighter certificates of sites; fitted to a critic that sees the context, whose values have no noise of episodes."""
    every: int = 1
    """Fit in one policy update out of this many: above 1, the evaluator lags behind the policy."""
    file: str | None = None
    """A pre-trained evaluator (made by `evarl pretrain`), to be held fixed in mode frozen."""

    def __post_init__(self) -> None:
        check_fields(self, "evaluator")

    def unfitted_updates(self) -> int:
        """Updates at the beginning of a run in which the evaluator takes no gradient step."""
        if self.warmup_ends == "auto":
            return 0
        return self.warmup if self.initial_steps else self.warmup + self.every

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        for name in ("batch_size", "steps", "policies", "every", "diversify_every", "warmup_window", "target_interval"):
            whole(flag("evaluator", name), getattr(self, name))
        for name in ("initial_steps", "warmup", "final_steps"):
            whole(flag("evaluator", name), getattr(self, name), least=0)
        for name in ("reservoir", "perturbed_environments"):
            whole(flag("evaluator", name), getattr(self, name))
        whole("evaluator.perturbed", self.perturbed, least=0)
        real("evaluator.recent-share", self.recent_share, above=0, most=1)
        if self.memory not in ("recent", "diverse"):
            raise InputError(f"evaluator.memory: {self.memory} is not allowed; must be recent or diverse")
        if self.memory == "diverse" and self.bootstrap == "evaluator":
            raise InputError("evaluator.bootstrap: evaluator does not go with evaluator.memory diverse; must be critic")
        if self.memory == "diverse" and self.lower_quantile is not None:
            raise InputError(
                f"evaluator.lower-quantile: {self.lower_quantile} does not go with evaluator.memory diverse, since the critic "
                "does not know the values of perturbed policies; must be recent"
            )
        if self.transitions is not None:
            whole("evaluator.transitions", self.transitions)
        real("evaluator.learning-rate", self.learning_rate, above=0)
        real("evaluator.trace", self.trace, least=0, most=1)
        self._validate_bootstrap()
        if self.lower_quantile is not None:
            real("evaluator.lower-quantile", self.lower_quantile, above=0, most=0.5)
        self.network.validate()

    def _validate_bootstrap(self) -> None:
        """What only values of the evaluator need must not be set without them."""
        for name, usual in {"trace": 1.0, "truncation": "end", "target_interval": 1}.items():
            value = getattr(self, name)
            if self.bootstrap == "critic" and value != usual:
                raise InputError(
                    f"{flag('evaluator', name)}: {value} needs evaluator.bootstrap evaluator; must be {usual}"
                )
        if self.bootstrap == "evaluator" and self.states == "start":
            raise InputError(
                "evaluator.bootstrap: evaluator does not go with evaluator.states start, which has no values where batches are "
                "cut; must be critic"
            )
