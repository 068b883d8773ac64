"""Training conditions that studies compare: their jobs, and the results of those jobs seed by seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evarl.evaluation.predictors import EVALUATOR, WITHOUT
from evarl.stats import standard_error
from evarl.stats.ratio import ratio_of_means
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import MeanAndError
from evarl.studies.scales import Family

if TYPE_CHECKING:
    from evarl.evaluation.scores import Score

Mode = Literal["passive", "colearned", "frozen"]
Values = dict[int, float]
"""By seed."""

PRETRAINING_SEED = 500_000
"""The frozen evaluator comes from a run of its own: it was fitted to none of the policies it is tested on."""


@dataclass(frozen=True)
class Condition:
    """One world, one kind of evaluator, one β."""

    world: str
    mode: Mode
    beta: float
    jobs: tuple[Job, ...]
    name: str = ""
    """As tables show it, where world, mode and β do not say it."""

    @property
    def label(self) -> str:
        """Name in tables."""
        if self.name:
            return self.name
        if self.mode == "passive":
            return "ordinary, passive evaluator"
        return f"{'EvA-RL' if self.mode == 'colearned' else 'frozen evaluator'}, β = {self.beta:g}"


def conditions(family: Family, world: str) -> list[Condition]:
    """All conditions of a world, the passive evaluator first."""
    found = [condition(family, world, "passive", 0.0)]
    found += [condition(family, world, "colearned", beta) for beta in family.betas]
    if family.frozen:
        found += [condition(family, world, "frozen", beta) for beta in (0.0, *family.betas)]
    return found


def condition(family: Family, world: str, mode: Mode, beta: float) -> Condition:
    """One condition with its training jobs."""
    needs = {"assessment": assessment(family, world)}
    if mode == "frozen":
        needs["frozen"] = frozen_evaluator(family, world, PRETRAINING_SEED, 1)
    changes = {"beta": beta, "evaluator_mode": "frozen" if mode == "frozen" else "colearned"}
    jobs = training_jobs(family, f"{_slug(world)}-{mode}-{beta:g}", _changes(family, world) | changes, needs)
    return Condition(world, mode, beta, jobs)


def training_jobs(family: Family, label: str, changes: dict[str, Any], needs: dict[str, Job]) -> tuple[Job, ...]:
    """Jobs that train and evaluate the seeds of a condition, in groups."""
    logged = "frozen" not in needs
    jobs = []
    for first in range(0, family.seeds, family.group):
        count = min(family.group, family.seeds - first)
        settings = {
            "preset": family.preset,
            "changes": changes | {"seed": first, "seeds": count},
            "states": family.states,
            "rollouts": family.rollouts,
            "log_megabytes": family.log_megabytes if logged else 0,
            "methods": list(family.methods) if logged else [],
            "fqe_steps": family.fqe_steps,
        }
        jobs.append(Job(f"{label}-seeds-{first}-{first + count - 1}", "train", settings, needs, family.weight * count))
    return tuple(jobs)


def assessment(family: Family, world: str) -> Job:
    """The job that draws a world's scenarios."""
    settings = {"preset": family.preset, "changes": _changes(family, world) | {"evaluator_mode": "colearned"}}
    return Job(f"{_slug(world)}-assessment", "assessment", settings, weight=0.5 * family.weight)


def frozen_evaluator(family: Family, world: str, seed: int, seeds: int) -> Job:
    """The job that fits an evaluator to the policies of ordinary runs with their own seeds."""
    policies, transitions, steps = family.pretraining
    changes = _changes(family, world) | {"evaluator_mode": "colearned", "seed": seed, "seeds": seeds}
    settings = {
        "preset": family.preset,
        "changes": changes,
        "policies": policies,
        "transitions": transitions,
        "steps": steps,
    }
    needs = {"assessment": assessment(family, world)}
    return Job(f"{_slug(world)}-pretraining", "pretrain", settings, needs, family.weight * seeds)


def _changes(family: Family, world: str) -> dict[str, Any]:
    return family.changes | family.per_world.get(world, {}) | {"world": world}


def short_name(world: str) -> str:
    """A world's name without its family.

    >>> short_name("gymnax/SpaceInvaders-MinAtar"), short_name("brax/ant"), short_name("navigation")
    ('SpaceInvaders', 'Ant', 'Navigation')
    """
    name = world.rpartition("/")[2].removesuffix("-MinAtar")
    return {"halfcheetah": "HalfCheetah"}.get(name, name[0].upper() + name[1:].replace("_", " "))


def _slug(world: str) -> str:
    return short_name(world).lower().replace(" ", "-")


@dataclass(frozen=True)
class ConditionResults:
    """Results of the finished jobs of a condition, seed by seed."""

    condition: Condition
    rows: dict[int, dict[str, Any]]
    curves: dict[str, np.ndarray]
    """By metric: [seeds, points]; `steps` is [points]. Empty where they were not kept."""

    @property
    def numbers(self) -> list[int]:
        """Seeds, in order."""
        return sorted(self.rows)

    def returns(self, discounted: bool = True) -> Values:
        """True mean return over μ_D, by seed."""
        return {seed: row["return" if discounted else "return_undiscounted"] for seed, row in self.rows.items()}

    def mae(self, predictor: str, kind: str) -> Values | None:
        """Mean absolute error of a predictor at one kind of states, by seed; None if it is missing for any seed."""
        return self._scores(predictor, kind, "mae")

    def predictors(self, kind: str) -> list[str]:
        """Predictors with scores for every seed."""
        names = [list(row["queries"].get(kind, {}).get("scores", {})) for row in self.rows.values()]
        return [name for name in names[0] if all(name in others for others in names)] if names else []

    def skill(self, kind: str, without: Sequence[str] = WITHOUT) -> MeanAndError | None:
        """Skill of the evaluator over the best of some predictors, from squared errors averaged over seeds first."""
        known = {name: scores for name in without if (scores := self._score_objects(name, kind)) is not None}
        mine = self._score_objects(EVALUATOR, kind)
        if mine is None or not known:
            return None
        from evarl.evaluation.scores import skill  # imports JAX

        found = skill(mine, known).estimate
        return None if found.mean is None else MeanAndError(found.mean, found.standard_error)

    def _scores(self, predictor: str, kind: str, measure: str) -> Values | None:
        scores = [row["queries"].get(kind, {}).get("scores", {}).get(predictor, {}) for row in self.rows.values()]
        if not scores or any(one.get(measure) is None for one in scores):
            return None
        return {seed: one[measure] for seed, one in zip(self.rows, scores, strict=True)}

    def _score_objects(self, predictor: str, kind: str) -> "list[Score] | None":
        """Scores of a predictor by seed; None if its squared error is missing for any seed."""
        from evarl.evaluation.scores import Score  # imports JAX

        if self._scores(predictor, kind, "mse") is None:
            return None
        scores = [row["queries"][kind]["scores"][predictor] for row in self.rows.values()]
        return [Score(**{"mae": 0.0, "bias": 0.0, "rank": None, "noise": 0.0} | one) for one in scores]


def mae_of(results: ConditionResults | None, predictor: str, kind: str) -> Values | None:
    """Mean absolute error by seed; None for missing results."""
    return None if results is None else results.mae(predictor, kind)


def returns_of(results: ConditionResults | None, discounted: bool = True) -> Values | None:
    """True mean return by seed; None for missing results."""
    return None if results is None else results.returns(discounted)


def condition_results(store: Store, condition: Condition) -> ConditionResults | None:
    """Results of the finished jobs of a condition; None if none is finished."""
    results = [store.result(job) for job in condition.jobs if store.finished(job)]
    if not results:
        return None
    rows = {row["seed"]: row for result in results for row in result["seeds"]}
    names = set.intersection(*(set(result["curves"]) for result in results)) - {"steps"}
    curves = {
        name: np.array([row for result in results for row in result["curves"][name]], np.float64) for name in names
    }
    steps = np.array(results[0]["curves"].get("steps", []), np.float64)
    return ConditionResults(condition, rows, curves | {"steps": steps})


def mean_and_error(values: Values | None) -> MeanAndError | None:
    """Mean and standard error over seeds."""
    if values is None:
        return None
    numbers = np.array(list(values.values()), np.float64)
    return MeanAndError(float(numbers.mean()), standard_error(numbers) if len(numbers) > 1 else None)


def ratio(above: Values, below: Values) -> MeanAndError | None:
    """Mean of `above` divided by the mean of `below`, over the seeds that both have.

    None if the divisor is 0, or changes its sign when one seed is left out: the ratio then says nothing.
    """
    shared = sorted(above.keys() & below.keys())
    if not shared or not sum(below[seed] for seed in shared):
        return None
    found, error = ratio_of_means([above[seed] for seed in shared], [below[seed] for seed in shared])
    return None if error is None and len(shared) > 1 else MeanAndError(found, error)
