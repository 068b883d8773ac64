"""Options of commands that take a policy of another package."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evarl.cli.parsing import Flag
from evarl.errors import InputError

if TYPE_CHECKING:
    from evarl.policies.outside import OutsidePolicy


@dataclass(frozen=True)
class OutsideOptions:
    """A policy of another package."""

    policy_sb3: str | None = field(default=None, kw_only=True)
    """Another policy: a file that Stable-Baselines3 saved. Its loader unpickles, which can execute code: only for files that you
    trust."""
    sb3_algorithm: str | None = field(default=None, kw_only=True)
    """Algorithm of that file, such as ppo or sac; recognised unless given."""
    deterministic: Flag = field(default=False, kw_only=True)
    """Let it take the most probable actions, as evaluate_policy of Stable-Baselines3 does, in place of drawing them."""


@dataclass(frozen=True)
class ImportOptions(OutsideOptions):
    """A policy of another package, from a file or from a module."""

    policy_import: str | None = field(default=None, kw_only=True)
    """A policy of another package as module:name: a function of NumPy, observations → actions or probabilities, or what
    evarl.policies made of a model."""


OPTIONS = ("policy_sb3", "sb3_algorithm", "deterministic")


def sb3_policy(command: OutsideOptions) -> "OutsidePolicy | None":
    """The policy of Stable-Baselines3 that the options name; None if there is none."""
    if command.policy_sb3 is None:
        for name in OPTIONS[1:]:
            if getattr(command, name):
                raise InputError(f"{name.replace('_', '-')}: is allowed with --policy-sb3 only")
        return None
    from evarl.policies.stable_baselines3 import load_stable_baselines3  # imports PyTorch

    return load_stable_baselines3(command.policy_sb3, command.sb3_algorithm, command.deterministic)


def given_policy(command: ImportOptions) -> "OutsidePolicy | str | None":
    """The policy of another package that the options name, or its name in a module; None if there is none."""
    only_one({"policy-sb3": command.policy_sb3, "policy-import": command.policy_import})
    return sb3_policy(command) or command.policy_import


def only_one(given: dict[str, Any]) -> None:
    """Raise InputError if several of these options are given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise InputError(f"{' and '.join(names)}: only one of them can be given")
