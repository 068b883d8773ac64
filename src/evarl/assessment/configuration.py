"""Settings of an assessment. Plain data, no JAX."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from evarl.errors import InputError
from evarl.ranges import flag, real, whole
from evarl.registry import Registry
from evarl.settings import check_fields

_KINDS = {"returns": "Returns", "rewards": "Rewards", "trajectory": "Trajectory", "fingerprint": "Fingerprint"}
BEHAVIOURS: Registry[Callable[[], Any]] = Registry(
    "behaviour", {kind: f"evarl.assessment.behaviour:{name}" for kind, name in _KINDS.items()}
)
"""Functions that make kinds of behaviour: `evarl.assessment.behaviour.BehaviourKind`."""
JOINED_BY = "+"
"""Between the names of kinds that are combined."""


def register_behaviour(name: str, make: Callable[[], Any]) -> None:
    """Add a kind of behaviour Ξ, which `assessment.behaviour` can then name.

    `make()` returns an `evarl.assessment.BehaviourKind`; it can be a class without arguments.
    """
    if isinstance(name, str) and JOINED_BY in name:
        raise InputError(
            f"behaviour: '{name}' is not allowed as a name; '{JOINED_BY}' joins the names of several kinds"
        )
    BEHAVIOURS.register(name, make)


def behaviour_names(text: str) -> tuple[str, ...]:
    """The kinds of behaviour that a setting names; unknown ones, and one that is named twice, are refused.

    >>> behaviour_names("returns+fingerprint")
    ('returns', 'fingerprint')
    """
    names = tuple(str(text).split(JOINED_BY))
    for name in names:
        BEHAVIOURS.check("assessment.behaviour", name)
        if names.count(name) > 1:
            raise InputError(f"assessment.behaviour: '{text}' names {name} twice; each kind is allowed once")
    return names


@dataclass(frozen=True)
class AssessmentConfig:
    """Settings of the assessment: its world, its start states and the length of its rollouts."""

    world: str | None = None
    """World of the assessment; by default the deployment world."""
    start_states: str = ""
    """Start states: the numbers of each as "0.2,0.2 0.8,0.2", as positions in navigation, x,x_dot,theta,theta_dot in
    CartPole, or the fields of any Gymnax state whose fields are single numbers; or tabular states or Gymnasium reset seeds
    as "3 7 11"."""
    scenarios: int = 5
    """Number k of start states that are drawn, if none are given, from the states that a base policy visits."""
    select: Literal["random", "greedy"] | None = None
    """How they are chosen from visited states: at random, or one after the other so that returns from there tell most about the
    values of some base policies (greedy). Not given: at random, unless a world has start states of its own."""
    candidates: int = 64
    """Visited states from which greedy chooses."""
    base_updates: int = 200
    """Updates of ordinary training for the base policy."""
    base_run: str | None = None
    """A finished run whose policy is the base policy instead."""
    file: str | None = None
    """File of an assessment saved by an earlier run (assessment.safetensors), used as it is."""
    horizon: int = 10
    """Steps in each scenario."""
    discount: float = 1.0
    """Discount of the assessment returns."""
    replicates: int = 1
    """Rollouts of each scenario."""
    entropy_coefficient: float = 0.0
    """Weight of an entropy bonus in the assessment, so that behaviour is explored that deployment does not call for; used
    when β is above 0."""
    behaviour: str = "returns"
    """What evaluators are given about a policy, Ξ: the return from each start state (returns), the reward of every step
    (rewards), every step with observation, action and reward (trajectory), the distribution of the policy's actions at the
    start states (fingerprint), or a kind that was registered; several are joined by "+", as in returns+fingerprint."""
    probes: Literal["start", "learnt"] = "start"
    """Where a fingerprint asks the policy how it would act: at the start states, or at observations that begin there and are
    learnt with the evaluator, by the gradient of its loss."""

    def __post_init__(self) -> None:
        check_fields(self, "assessment")

    def validate(self) -> None:
        """Refuse settings that cannot work."""
        kinds = behaviour_names(self.behaviour)
        if self.probes not in ("start", "learnt"):
            raise InputError(f"assessment.probes: {self.probes} is not allowed; must be start or learnt")
        if self.probes == "learnt" and "fingerprint" not in kinds:
            raise InputError(
                f"assessment.probes: learnt does not go with the behaviour {self.behaviour}, which has no probes; must be start, "
                "or add +fingerprint to assessment.behaviour"
            )
        for name in ("scenarios", "horizon", "replicates", "candidates"):
            whole(flag("assessment", name), getattr(self, name))
        whole("assessment.base-updates", self.base_updates, least=0)
        real("assessment.discount", self.discount, least=0, most=1)
        real("assessment.entropy-coefficient", self.entropy_coefficient, least=0)
        given = [name for name in ("start_states", "base_run", "file") if getattr(self, name)]
        if len(given) > 1:
            names = " and ".join(f"assessment.{name.replace('_', '-')}" for name in given)
            raise InputError(f"{names}: only one of them is allowed, since each determines the start states")
        self._validate_selection()

    def _validate_selection(self) -> None:
        """A choice needs something to choose from."""
        for name in ("start_states", "file"):
            if self.select is not None and getattr(self, name):
                given = flag("assessment", name)
                raise InputError(
                    f"assessment.select: {self.select} has no effect, since {given} determines the start states"
                )
        if self.select != "greedy":
            return
        if self.base_run is not None:
            raise InputError(
                "assessment.select: greedy does not go with assessment.base-run; it compares policies of several updates, which "
                "a finished run does not keep"
            )
        if self.candidates < self.scenarios:
            raise InputError(
                f"assessment.candidates: {self.candidates} is not allowed; must be at least assessment.scenarios, "
                f"{self.scenarios}"
            )
