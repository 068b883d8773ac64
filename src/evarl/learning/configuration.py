"""Everything that determines the numbers of a run. Plain data, no JAX; its hash names the run."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from evarl.agents.configuration import AgentConfig
from evarl.assessment.configuration import AssessmentConfig
from evarl.errors import InputError
from evarl.evaluators.configuration import EvaluatorConfig
from evarl.ranges import MOST, flag, real, whole
from evarl.settings import check_fields, with_changes

T = TypeVar("T")
MAX_SEED = MOST
ORDINARY: dict[str, Any] = {"beta": 0.0, "beta_variance": 0.0, "target_error": None}
"""Settings of training for return alone."""


@dataclass(frozen=True)
class TrainConfig:
    """What is trained, where, how long and from which seeds.

    >>> TrainConfig(world="navigation", beta=0.05).resolved().evaluator_mode
    'colearned'
    """

    world: str = "navigation"
    """Where the policy acts; `evarl worlds` lists the names."""
    horizon: int | None = None
    """Time limit of an episode in steps; the world's own when not given."""
    discount: float = 0.99
    """Discount γ of the deployment value."""
    context: tuple[str, ...] = ()
    """What is hidden and varies from site to site: NAME=LOW:HIGH or NAME=A,B,C, several if need be; `evarl worlds NAME` lists
    what can vary in a world."""
    contexts: int | None = None
    """Groups of environments in an update, each in a context of its own; not given: as many as there are start states."""
    context_updates: int | None = None
    """Updates after which contexts are drawn anew and all episodes begun anew; not given: enough for a whole episode."""
    critic_sees_context: bool = True
    """Whether the critic is given the hidden context in training; the policy and the evaluator never are."""
    environments: int = 8
    """Environments that run side by side."""
    steps: int = 200
    """Steps in each environment per update."""
    updates: int = 1000
    """Length of the run in policy updates."""
    seed: int = 0
    """First seed."""
    seeds: int = 1
    """Number of seeds, counted up from the first, trained as one vectorised program."""
    agent: AgentConfig = field(default_factory=AgentConfig)
    """The agent's settings."""
    beta: float = 0.0
    """Evaluability coefficient β: how much the policy gives for being predictable. 0 is ordinary training."""
    target_error: float | None = None
    """Evaluation error at start states that is asked for, in units of return: β then begins at 0, rises while the error is above
    and falls while it is below, and `beta` is its upper limit."""
    target_rate: float = 0.01
    """By what share of its limit β rises in an update in which the error is twice its target."""
    beta_variance: float = 0.0
    """Weight of a penalty on the variance of returns from a start state."""
    evaluator_mode: Literal["none", "colearned", "frozen"] | None = None
    """Whether an evaluator is learnt beside the policy, held fixed, or absent; not given: learnt when β is above 0."""
    gradient: Literal["exact", "paired", "critic", "printed", "score"] = "critic"
    """How the evaluation error is estimated in the policy gradient; exact is for families of worlds, where the others hardly
    change what a policy shows in its assessment."""
    shape: Literal["both", "assessment"] = "both"
    """What β may change: the policy in deployment and in its assessment (both), or in the assessment alone, so that return is
    not traded for accuracy."""
    queries: Literal["visited", "start"] = "visited"
    """States at which the evaluation error counts."""
    rollouts_per_start: int = 1
    """Environments that share each start state; paired and the variance penalty need at least 2."""
    ramp: int = 0
    """Updates after the warm-up over which β grows from 0 to its value."""
    max_shift: float = 2.0
    """The weights of the policy gradient stay within 1 ± this, and the assessment's advantages add up to at most this many
    standard deviations of the deployment's."""
    assessment: AssessmentConfig = field(default_factory=AssessmentConfig)
    """The driver's test."""
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    """What predicts the policy's values from its assessment."""

    def __post_init__(self) -> None:
        check_fields(self)

    def resolved(self) -> "TrainConfig":
        """The same with the evaluator's mode and the number of contexts settled."""
        settled: dict[str, Any] = {}
        if self.evaluator_mode is None:
            wanted = self.beta > 0 or self.beta_variance > 0
            settled["evaluator_mode"] = "colearned" if wanted else "none"
        if self.contexts is None and self.context:
            settled["contexts"] = max(1, self.environments // max(1, self.rollouts_per_start))
        return dataclasses.replace(self, **settled) if settled else self

    @property
    def groups(self) -> int:
        """The number C of groups of environments, each in a context of its own."""
        return (self.contexts or 1) if self.context else 1

    def validate(self) -> None:
        """Refuse settings that cannot work, with one line that says what is wrong and what is allowed."""
        for name in ("environments", "steps", "updates", "seeds"):
            whole(name, getattr(self, name))
        if self.horizon is not None:
            whole("horizon", self.horizon)
        real("discount", self.discount, least=0, most=1)
        whole("seed", self.seed, least=-MAX_SEED)
        if self.seed < 0 or self.seed + self.seeds - 1 > MAX_SEED:
            last = self.seed + self.seeds - 1
            raise InputError(f"seed: seeds {self.seed} to {last} are not allowed; must be between 0 and {MAX_SEED}")
        self.agent.validate()
        self._validate_contexts()
        self._validate_evaluation()
        batch, minibatches = self.environments * self.steps, self.agent.ppo.minibatches
        if self.agent.algorithm == "ppo" and batch % minibatches:
            raise InputError(
                f"agent.ppo.minibatches: {minibatches} does not divide the batch of "
                f"{self.environments} environments × {self.steps} steps = {batch}"
            )

    def _validate_contexts(self) -> None:
        for name in ("contexts", "context_updates"):
            if getattr(self, name) is not None:
                whole(flag("", name), getattr(self, name))
                if not self.context:
                    raise InputError(f"{flag('', name)}: has no effect without --context NAME=LOW:HIGH")
        if self.environments % self.groups:
            raise InputError(f"contexts: {self.groups} does not divide the {self.environments} environments")
        each = self.environments // self.groups
        if self.groups > 1 and each % self.rollouts_per_start:
            raise InputError(
                f"rollouts-per-start: {self.rollouts_per_start} does not divide the {each} environments of a context"
            )

    def _validate_evaluation(self) -> None:
        for name in ("beta", "beta_variance"):
            real(flag("", name), getattr(self, name), least=0)
        self._validate_control()
        whole("ramp", self.ramp, least=0)
        real("max-shift", self.max_shift, above=0)
        whole("rollouts-per-start", self.rollouts_per_start)
        shared = self.rollouts_per_start
        if self.evaluator_mode == "none" and (self.beta > 0 or self.beta_variance > 0):
            raise InputError(f"evaluator-mode: none does not go with beta {self.beta}; must be colearned or frozen")
        if self.beta > 0 and self.gradient in ("exact", "paired", "score") and self.queries != "start":
            raise InputError(f"queries: {self.queries} does not go with gradient {self.gradient}; must be start")
        pairs = self.beta > 0 and self.gradient in ("exact", "paired")
        if (pairs or self.beta_variance > 0) and min(shared, self.environments) < 2:
            need = f"gradient {self.gradient}" if pairs else "beta-variance"
            raise InputError(
                f"rollouts-per-start: {shared} of {self.environments} environments cannot serve {need}; must be 2 or more"
            )
        if (self.evaluator_mode == "frozen") != (self.evaluator.file is not None):
            raise InputError(
                f"evaluator.file: {self.evaluator.file} does not go with evaluator-mode {self.evaluator_mode}; "
                "a file made by `evarl pretrain` and mode frozen belong together"
            )
        self.assessment.validate()
        self.evaluator.validate()
        self._validate_remembered()

    def _validate_control(self) -> None:
        """What decides on β by itself must have something to decide on."""
        real("target-rate", self.target_rate, above=0)
        if self.target_error is not None:
            real("target-error", self.target_error, above=0)
            if self.beta == 0:
                raise InputError(
                    f"target-error: {self.target_error} has no effect with beta 0, the upper limit of β; must be above 0"
                )
        if self.evaluator.warmup_ends == "auto" and self.evaluator_mode == "frozen":
            raise InputError("evaluator.warmup-ends: auto does not go with a frozen evaluator, which has no warm-up")

    def _validate_remembered(self) -> None:
        """What the evaluator learns from must be there."""
        if self.evaluator.states == "start" and not (self.context and self.context_updates == 1):
            raise InputError(
                f"evaluator.states: start does not go with context-updates {self.context_updates}; needs --context and "
                "--context-updates 1, so that every batch begins with start states"
            )
        if self.evaluator.states == "start" and self.queries != "start":
            raise InputError(f"queries: {self.queries} does not go with evaluator.states start; must be start")
        if self.evaluator.lower_quantile is not None and not (self.context and self.critic_sees_context):
            raise InputError(
                f"evaluator.lower-quantile: {self.evaluator.lower_quantile} needs --context and a critic that sees the context"
            )

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    def hash(self) -> str:
        """Eight hexadecimal digits that change with every field."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:8]


def with_settings(config: T, changes: Mapping[str, Any]) -> T:
    """A configuration with some fields changed, which may be fields of fields, by their full names or as dicts.

    >>> with_settings(TrainConfig(), {"evaluator.network.width": 64}).evaluator.network.width
    64
    >>> with_settings(TrainConfig(), {"agent": {"algorithm": "ppo", "ppo": {"epochs": 8}}}).agent.ppo.epochs
    8
    """
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise InputError(
            f"config: {config!r:.60} is not allowed; must be a TrainConfig, such as evarl.preset('navigation')"
        )
    if not isinstance(changes, Mapping):
        raise InputError(f"changes: {changes!r:.60} is not allowed; must be a dict of settings")
    return with_changes(config, changes)


def differences(one: dict[str, Any], other: dict[str, Any], path: str = "") -> list[str]:
    """The fields in which two configurations differ, as `field: a ≠ b`."""
    found = []
    for name in sorted(one.keys() | other.keys()):
        a, b, label = one.get(name), other.get(name), f"{path}.{name}".lstrip(".")
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, label)
        elif a != b:
            found.append(f"{label}: {a!r} ≠ {b!r}")
    return found
