"""Ways of training that the results compare, as jobs, and what those jobs found."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evarl.stats import standard_error
from evarl.studies.findings import Measured
from evarl.studies.jobs import Job, Store
from evarl.studies.scales import Family

Mode = Literal["passive", "colearned", "frozen"]

PRETRAINING_SEED = 500_000
"""The frozen evaluator comes from a run of its own: it has seen none of the policies it is tried on."""


@dataclass(frozen=True)
class Condition:
    """One world, one kind of evaluator, one β."""

    world: str
    mode: Mode
    beta: float
    jobs: tuple[Job, ...]

    @property
    def label(self) -> str:
        """As tables say it."""
        if self.mode == "passive":
            return "ordinary, passive evaluator"
        return f"{'EvA-RL' if self.mode == 'colearned' else 'frozen evaluator'}, β = {self.beta:g}"


def conditions(family: Family, world: str) -> list[Condition]:
    """All that are run in a world, the passive evaluator first."""
    found = [condition(family, world, "passive", 0.0)]
    found += [condition(family, world, "colearned", beta) for beta in family.betas]
    if family.frozen:
        found += [condition(family, world, "frozen", beta) for beta in (0.0, *family.betas)]
    return found


def condition(family: Family, world: str, mode: Mode, beta: float) -> Condition:
    """One condition, its seeds in groups."""
    needs = {"assessment": assessment(family, world)}
    if mode == "frozen":
        needs["frozen"] = frozen_evaluator(family, world)
    jobs = []
    for first in range(0, family.seeds, family.group):
        count = min(family.group, family.seeds - first)
        changes = _changes(family, world) | {
            "beta": beta,
            "evaluator_mode": "frozen" if mode == "frozen" else "colearned",
            "seed": first,
            "seeds": count,
        }
        settings = {
            "preset": family.preset,
            "changes": changes,
            "states": family.states,
            "rollouts": family.rollouts,
            "log_megabytes": 0 if mode == "frozen" else family.log_megabytes,
            "methods": [] if mode == "frozen" else list(family.methods),
            "fqe_steps": family.fqe_steps,
        }
        label = f"{_slug(world)}-{mode}-{beta:g}-seeds-{first}-{first + count - 1}"
        jobs.append(Job(label, "train", settings, needs, family.weight * count))
    return Condition(world, mode, beta, tuple(jobs))


def assessment(family: Family, world: str) -> Job:
    """The job that draws a world's scenarios."""
    settings = {"preset": family.preset, "changes": _changes(family, world) | {"evaluator_mode": "colearned"}}
    return Job(f"{_slug(world)}-assessment", "assessment", settings, weight=0.5 * family.weight)


def frozen_evaluator(family: Family, world: str) -> Job:
    """The job that fits an evaluator to the policies of an ordinary run."""
    policies, transitions, steps = family.pretraining
    changes = _changes(family, world) | {
        "evaluator_mode": "colearned",
        "seed": PRETRAINING_SEED,
        "seeds": 1,
    }
    settings = {
        "preset": family.preset,
        "changes": changes,
        "policies": policies,
        "transitions": transitions,
        "steps": steps,
    }
    needs = {"assessment": assessment(family, world)}
    return Job(f"{_slug(world)}-pretraining", "pretrain", settings, needs, family.weight)


def _changes(family: Family, world: str) -> dict[str, Any]:
    return family.changes | family.per_world.get(world, {}) | {"world": world}


def short(world: str) -> str:
    """A world's name without its family: what people call it.

    >>> short("gymnax/SpaceInvaders-MinAtar"), short("brax/ant"), short("navigation")
    ('SpaceInvaders', 'Ant', 'Navigation')
    """
    name = world.rpartition("/")[2].removesuffix("-MinAtar")
    return {"halfcheetah": "HalfCheetah"}.get(name, name[0].upper() + name[1:].replace("_", " "))


def _slug(world: str) -> str:
    return short(world).lower().replace(" ", "-")


@dataclass(frozen=True)
class Seeds:
    """What the finished jobs of a condition found, seed by seed."""

    condition: Condition
    rows: dict[int, dict[str, Any]]
    curves: dict[str, np.ndarray]
    """By metric: [seeds, points]; `steps` is [points]."""

    @property
    def numbers(self) -> list[int]:
        """Seeds, in order."""
        return sorted(self.rows)

    def returns(self, discounted: bool = True) -> dict[int, float]:
        """True mean return over μ_D."""
        return {seed: row["return" if discounted else "return_undiscounted"] for seed, row in self.rows.items()}

    def mae(self, predictor: str, kind: str) -> dict[int, float] | None:
        """Mean absolute error of a predictor at one kind of states; None where it did not speak for every seed."""
        scores = {seed: row["queries"].get(kind, {}).get("scores", {}) for seed, row in self.rows.items()}
        if not scores or any(predictor not in one for one in scores.values()):
            return None
        return {seed: one[predictor]["mae"] for seed, one in scores.items()}

    def predictors(self, kind: str) -> list[str]:
        """Those that speak for every seed."""
        names = [list(row["queries"].get(kind, {}).get("scores", {})) for row in self.rows.values()]
        return [name for name in names[0] if all(name in others for others in names)] if names else []


def found(store: Store, condition: Condition) -> Seeds | None:
    """What is finished of a condition; None if nothing is."""
    results = [store.result(job) for job in condition.jobs if store.finished(job)]
    if not results:
        return None
    rows = {row["seed"]: row for result in results for row in result["seeds"]}
    names = set.intersection(*(set(result["curves"]) for result in results)) - {"steps"}
    curves = {
        name: np.array([row for result in results for row in result["curves"][name]], np.float64) for name in names
    }
    return Seeds(condition, rows, curves | {"steps": np.array(results[0]["curves"]["steps"], np.float64)})


def measured(values: dict[int, float] | None) -> Measured | None:
    """Mean and standard error over seeds."""
    if values is None:
        return None
    numbers = np.array(list(values.values()), np.float64)
    return Measured(float(numbers.mean()), standard_error(numbers) if len(numbers) > 1 else None)
