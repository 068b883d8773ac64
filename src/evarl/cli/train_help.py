"""The help of `evarl train`: presets, examples and the flags that most people need; `--help-all` has all flags."""

import inspect
import re
from operator import attrgetter
from typing import Any

from evarl.cli.examples import examples
from evarl.learning.configuration import TrainConfig
from evarl.learning.presets import PRESETS

FLAGS: dict[str, dict[str, tuple[str, str]]] = {
    "what is trained": {
        "--world": ("NAME", "another world than the preset's; `evarl worlds` lists them"),
        "--context": ("NAME=LOW:HIGH", "hidden numbers that vary; `evarl worlds NAME` lists them"),
        "--horizon": ("N", "time limit of an episode in steps; by default the world's own"),
        "--discount": ("γ", "discount of the value"),
    },
    "how long": {
        "--updates": ("N", "policy updates, each of environments × steps steps"),
        "--environments": ("N", "environments side by side"),
        "--steps": ("N", "steps in each environment per update"),
        "--seeds": ("N", "seeds, trained together in one program"),
        "--seed": ("N", "first seed"),
    },
    "agent": {
        "--agent.algorithm": ("NAME", "a2c or ppo"),
        "--agent.hidden-sizes": ("N …", "widths of the hidden layers"),
        "--agent.actor-learning-rate": ("X", "Adam step size of the policy"),
        "--agent.critic-learning-rate": ("X", "Adam step size of the critic"),
        "--agent.entropy-coefficient": ("X", "weight of the entropy bonus"),
        "--agent.normalise-observations": ("", "standardise observations by running statistics"),
    },
    "evaluability": {
        "--beta": ("β", "how much the policy gives for being predictable; 0: ordinary training"),
        "--evaluator-mode": ("MODE", "none, colearned or frozen; by default colearned if β > 0"),
        "--assessment.scenarios": ("K", "start states of the test, where none are given"),
        "--assessment.horizon": ("N", "steps of the test from each of them"),
        "--assessment.behaviour": ("KIND", "what the evaluator is shown: returns, rewards, trajectory, fingerprint"),
        "--evaluator.warmup": ("N", "updates before the evaluator is used"),
        "--paper": ("", "the paper's assessment, evaluator and gradient in place of our defaults"),
    },
    "run": {
        "--out": ("FOLDER", "run directory; by default a new one under runs/"),
        "--resume": ("", "go on from the newest checkpoint in --out"),
        "--log-megabytes": ("X", "disk space for trajectories, for `evarl ope`"),
        "--log-from": ("PART", "what is logged: recent (the last updates), all (a sample of training) or both"),
        "--quiet": ("", "print no progress"),
        "--json": ("", "print the results as JSON"),
    },
}
"""The flags of the short help in groups: what they take and what they do, in one line each."""

LONGEST = 32
"""Characters of a value that are shown."""


def train_help(config: TrainConfig, preset: str | None) -> str:
    """The short help, with the values of a configuration."""
    lines = [f"usage: evarl train {preset or 'PRESET'} [FLAGS]", ""]
    lines += ["Train a policy and keep the run in a directory: settings, metrics, checkpoints, final policies.", ""]
    lines += ["presets:", *(f"  {name:<12} {_summary(name)}" for name in PRESETS), ""]
    lines += ["A world can stand in place of a preset, such as gymnasium/CartPole-v1 or gymnasium/my_envs:MyEnv-v0;"]
    lines += ["`evarl worlds` lists them.", "", examples("train")]
    lines += ["", f"values in brackets are those of {preset or 'navigation'}"]
    for group, flags in FLAGS.items():
        lines += ["", f"{group}:"]
        for flag, (takes, text) in flags.items():
            lines.append(f"  {f'{flag} {takes}'.rstrip():<34} {text}{_value(config, flag)}")
    return "\n".join([*lines, "", "every other flag: evarl train --help-all"])


def _summary(name: str) -> str:
    """What a preset is, and its world."""
    first = (inspect.getdoc(PRESETS[name]) or "").splitlines()[0]
    return f"{re.sub(r' *[(].*[)]', '', first).rstrip('.')} ({PRESETS[name]().world})"


def _value(config: TrainConfig, flag: str) -> str:
    """The value of a flag in brackets, unless it is none, off or empty."""
    try:
        value: Any = attrgetter(flag.removeprefix("--").replace("-", "_"))(config)
    except AttributeError:  # an option of the command
        return ""
    if value is None or value is False or value in ("", ()):
        return ""
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else "on" if value is True else f"{value}"
    return f" ({shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + '…'})"
