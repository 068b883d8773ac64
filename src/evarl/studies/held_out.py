"""Do evaluators use the assessment? Their errors on policies of seeds that they have never seen, with and without Ξ.

Policies of ordinary training runs are remembered along the way: states met, returns-to-go and Ξ. Each kind of evaluator is
fitted to those of some seeds and tried on those of the others. *Blind* is the same network fitted and tried with all
assessment returns at zero: the best that kind can do without Ξ. *Shuffled* is the fitted one shown another policy's Ξ.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax
import numpy as np

from evarl.evaluators.configuration import NetworkConfig
from evarl.evaluators.evaluator import Evaluator, EvaluatorState
from evarl.evaluators.memory import PolicyRecord
from evarl.learning.presets import preset
from evarl.learning.pretraining import Past, fit_to, remember
from evarl.runs.inputs import new_assessment
from evarl.runs.train import changed
from evarl.storage.files import write_bytes
from evarl.storage.plain import seal

KINDS: tuple[Any, ...] = get_args(get_type_hints(NetworkConfig)["kind"])
WORLDS = {"navigation": ("navigation", 1000), "gymnax/Asterix-MinAtar": ("minatar", 400)}
"""World, preset, and how many updates are made."""

POLICIES, TRANSITIONS, SEEDS, HELD_OUT, STEPS = 60, 256, 9, 3, 4000


def study(out: Path, say: Callable[[str], None]) -> None:
    """Measure every kind in every world, and write one JSON file for each world."""
    out.mkdir(parents=True, exist_ok=True)
    for world, (name, updates) in WORLDS.items():
        file = out / f"{world.replace('/', '-')}.json"
        if file.exists():
            continue
        config = changed(preset(name), {"world": world, "updates": updates, "evaluator_mode": "colearned"})
        say(f"{world}: training {SEEDS} seeds for {updates} updates")
        past = remember(config, new_assessment(config, say), POLICIES, TRANSITIONS, list(range(SEEDS)))
        rows = []
        for kind in KINDS:
            network = dataclasses.replace(config.evaluator.network, kind=kind)
            tried = changed(config, {"evaluator": dataclasses.replace(config.evaluator, network=network)})
            rows.append({"kind": kind} | _errors(past, tried))
            say(f"  {rows[-1]}")
        result = {"world": world, "policies": POLICIES, "updates": updates, "seeds": SEEDS, "held_out": HELD_OUT}
        write_bytes(file, (json.dumps(seal(result | {"steps": STEPS, "kinds": rows}), indent=1) + "\n").encode())


def _errors(past: Past, config: Any) -> dict[str, float]:
    """Root mean squared errors over held-out policies, of the value averaged over the states that a policy met."""
    learnt_from, tried_on = list(range(SEEDS - HELD_OUT)), list(range(SEEDS - HELD_OUT, SEEDS))
    blind_past = dataclasses.replace(past, policies=past.policies.replace(returns=np.zeros_like(past.policies.returns)))
    held_out = jax.tree.map(lambda leaf: leaf[tried_on].reshape(-1, *leaf.shape[2:]), past.policies)
    order = np.random.default_rng(0).permutation(len(held_out.returns))
    seeing = fit_to(past, config, learnt_from, STEPS, 0)
    blind = fit_to(blind_past, config, learnt_from, STEPS, 0)
    predictions = {
        "seeing": _predict(*seeing, held_out),
        "shuffled": _predict(*seeing, held_out.replace(returns=held_out.returns[order])),
        "blind": _predict(*blind, held_out.replace(returns=np.zeros_like(held_out.returns))),
    }
    mean = held_out.target.mean(axis=1)
    errors = {name: float(np.sqrt(np.mean((x.mean(axis=1) - mean) ** 2))) for name, x in predictions.items()}
    errors |= {f"{name}_state_mae": float(np.abs(x - held_out.target).mean()) for name, x in predictions.items()}
    trained = past.policies.target[learnt_from].mean()
    errors["constant"] = float(np.sqrt(np.mean((trained - mean) ** 2)))
    errors["skill"] = 1.0 - errors["seeing"] ** 2 / min(errors["blind"], errors["constant"]) ** 2
    return errors


def _predict(evaluator: Evaluator, state: EvaluatorState, policies: PolicyRecord) -> np.ndarray:
    """V̂ at the remembered states of every policy, [M, S]."""
    one = jax.jit(lambda state, policy: evaluator.predict(state, policy.returns, policy.observation))
    return np.stack(
        [one(state, jax.tree.map(lambda leaf, i=i: leaf[i], policies)) for i in range(len(policies.returns))]
    )
