"""What estimates are given, checked: one line that names what is wrong and what to do."""

from collections.abc import Sequence
from typing import Any

from evarl.errors import InputError
from evarl.ope.dataset import LoggedData
from evarl.ope.log import Log
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import Settings
from evarl.settings import conforming


def check_log_and_policy(log: Any, policy: Any, settings: Any) -> None:
    """Raise InputError unless these are a log, a policy and settings."""
    if isinstance(log, LoggedData):
        raise InputError("log: is LoggedData; must be a Log, which has the discount too: ope.Log(data, discount=0.99)")
    conforming("log", log, Log)
    if not isinstance(policy, TargetPolicy):
        told = "a function" if callable(policy) and not hasattr(policy, "predict") else f"a {type(policy).__name__}"
        raise InputError(
            f"policy: is {told}; must be a TargetPolicy, such as ope.target_policy(function, data) makes of a function or a "
            "model, ope.uniform_policy(data), or run.target_policy() of a run"
        )
    conforming("settings", settings, Settings)


def as_methods(methods: Any) -> Sequence[str] | None:
    """Names of methods as a list; a single name may be given alone."""
    if isinstance(methods, str):
        return [methods]
    found: Sequence[str] | None = conforming("methods", methods, Sequence[str] | None)
    return found
