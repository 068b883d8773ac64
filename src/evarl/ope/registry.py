"""The registry of off-policy estimators, and settings that name them. No JAX until an estimate is made."""

import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from evarl.errors import InputError, unknown_name
from evarl.ope.settings import Horizon, Rule, Settings
from evarl.ranges import whole

if TYPE_CHECKING:
    from evarl.ope.log import Estimate, Log
    from evarl.ope.policy import TargetPolicy

Need = Literal["log_prob", "fqe"]
NEEDS: tuple[Need, ...] = ("log_prob", "fqe")


class Estimator(Protocol):
    """A method of off-policy evaluation."""

    @property
    def name(self) -> str:
        """Name in `--methods` and in results: lower-case letters, digits and hyphens."""

    @property
    def label(self) -> str:
        """Name in tables and figures."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """What the method uses: the behaviour policy's log-probabilities in the log, fitted Q evaluation, or neither."""

    def estimate(self, log: "Log", policy: "TargetPolicy", settings: Settings) -> "Estimate":
        """Estimate J of a policy, and V at `log.states` if these are given."""


@dataclass(frozen=True)
class BuiltIn:
    """An estimator of this package: a function "module:name" of `evarl.ope`, which is imported when it is first used."""

    name: str
    label: str
    needs: tuple[Need, ...]
    function: str
    options: Mapping[str, Any] = field(default_factory=dict)
    horizons: tuple[Horizon, ...] = ("finite", "endless")
    """Horizons of the values that it can estimate; an estimator without this field can estimate both."""
    condition: str = ""
    """A function "module:name" that says why the method cannot be used with a log, or returns None; "" if it always can."""
    usual: bool = True
    """Whether it is used when no methods are named."""

    def estimate(self, log: "Log", policy: "TargetPolicy", settings: Settings) -> "Estimate":
        """Estimate J of a policy, and V at `log.states` if these are given."""
        module, name = self.function.split(":")
        function = getattr(importlib.import_module(f"evarl.ope.{module}"), name)  # imports JAX
        found: Estimate = function(log, policy, settings, **self.options)
        return found

    def obstacle(self, log: "Log") -> str | None:
        """Why the method cannot be used with a log; None if it can."""
        if not self.condition:
            return None
        module, name = self.condition.split(":")
        found: str | None = getattr(importlib.import_module(f"evarl.ope.{module}"), name)(log)
        return found


_BOTH: tuple[Horizon, ...] = ("finite", "endless")
_NORMALISED = {"self_normalised": True}
_PER_DECISION = {"per_decision": True}
_FINITE: tuple[Horizon, ...] = ("finite",)
_ESTIMATORS: dict[str, Estimator] = {}
LABELS: dict[str, str] = {}
"""Labels of the registered estimators by name."""


def register(estimator: Estimator) -> None:
    """Add an estimator, which can then be used by name in `ope.estimate`, `evaluate` and `--methods`."""
    name, label = estimator.name, estimator.label
    if not re.fullmatch("[a-z][a-z0-9-]*", name):
        raise InputError(f"name: {name!r} is not allowed; must be lower-case letters, digits and hyphens")
    if name in _ESTIMATORS or label in LABELS.values():
        raise InputError(f"name: {name} or its label {label!r} is registered already; must be new")
    for need in estimator.needs:
        if need not in NEEDS:
            raise unknown_name("needs", need, NEEDS)
    _ESTIMATORS[name], LABELS[name] = estimator, label


def unregister(name: str) -> None:
    """Remove an estimator."""
    chosen((name,))
    del _ESTIMATORS[name], LABELS[name]


def estimators() -> dict[str, Estimator]:
    """All registered estimators by name.

    >>> estimators()["wis"].label
    'self-normalised TIS'
    """
    return dict(_ESTIMATORS)


def usual_methods() -> tuple[str, ...]:
    """Names of the estimators that are used when none are named: all but those for special logs.

    >>> "dr" in usual_methods(), "mis-tabular" in usual_methods()
    (True, False)
    """
    return tuple(name for name, one in _ESTIMATORS.items() if getattr(one, "usual", True))


def chosen(names: Iterable[str]) -> list[Estimator]:
    """The estimators with these names, at least one."""
    names = list(names)
    if not names:
        raise InputError(f"methods: there are none; must be some of {', '.join(_ESTIMATORS)}")
    for name in names:
        if name not in _ESTIMATORS:
            raise unknown_name("method", name, _ESTIMATORS)
    return [_ESTIMATORS[name] for name in names]


@dataclass(frozen=True)
class LogSettings(Settings):
    """Settings of estimates from the log of a run."""

    methods: tuple[str, ...] = field(default_factory=usual_methods)
    """Estimators, by their names."""
    updates: int | None = None
    """Number of last updates whose log is used; all when not given."""
    rule: Rule = "neighbours"
    """Trajectories from which the value of a state is estimated: all (pooled), those that start there (per-start), or those
    that start near it (neighbours; in a world with one start state, all). Fitted Q evaluation needs no rule."""

    def validate(self) -> None:
        """Refuse settings that are not allowed."""
        chosen(self.methods)
        if self.updates is not None:
            whole("updates", self.updates)
        super().validate()


for _one in (
    BuiltIn("fqe", "FQE", ("fqe",), "fitted:fitted_q"),
    BuiltIn("fqe-greedy-huber", "FQE, greedy-huber", ("fqe",), "fitted:fitted_q", {"convention": "greedy-huber"}),
    BuiltIn("tis", "TIS", ("log_prob",), "methods:importance_sampling", {}, _FINITE),
    BuiltIn("pdis", "PDIS", ("log_prob",), "methods:importance_sampling", _PER_DECISION, _FINITE),
    BuiltIn("wis", "self-normalised TIS", ("log_prob",), "methods:importance_sampling", _NORMALISED, _FINITE),
    BuiltIn(
        "wpdis",
        "self-normalised PDIS",
        ("log_prob",),
        "methods:importance_sampling",
        _PER_DECISION | _NORMALISED,
        _FINITE,
    ),
    BuiltIn("dr", "DR", ("log_prob", "fqe"), "methods:doubly_robust"),
    BuiltIn("wdr", "self-normalised DR", ("log_prob", "fqe"), "methods:doubly_robust", _NORMALISED),
    BuiltIn("magic", "MAGIC", ("log_prob", "fqe"), "methods:magic"),
    BuiltIn("fqe-tabular", "FQE, tabular", (), "tabular:tabular", {}, _BOTH, "tabular:tabular_obstacle", False),
    BuiltIn("fqe-linear", "FQE, linear", (), "linear:linear", {}, _BOTH, "linear:linear_obstacle", False),
    BuiltIn("mrdr", "MRDR", ("log_prob",), "mrdr:mrdr", {}, _FINITE, "mrdr:mrdr_obstacle", False),
    BuiltIn(
        "switch-dr", "Switch-DR", ("log_prob", "fqe"), "shrunk:shrunk_doubly_robust", {"kind": "switch"}, usual=False
    ),
    BuiltIn("dr-os", "DRos", ("log_prob", "fqe"), "shrunk:shrunk_doubly_robust", {"kind": "optimistic"}, usual=False),
    BuiltIn("mis-tabular", "tabular MIS", (), "marginal_tabular:marginal_tabular", usual=False),
    BuiltIn("dualdice", "DualDICE", (), "dualdice:dualdice", usual=False),
):
    register(_one)
