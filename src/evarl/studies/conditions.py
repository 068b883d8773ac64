"""Training conditions that studies compare: their jobs, and the results of those jobs seed by seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from evarl.evaluation.predictors import EVALUATOR, ORDER, WITHOUT
from evarl.ope.registry import LABELS
from evarl.stats import ratio_of_means, standard_error
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import MeanAndError
from evarl.studies.scales import Family, spans

if TYPE_CHECKING:
    from evarl.evaluation.scores import Score

Mode = Literal["passive", "colearned", "frozen"]
Values = dict[int, float]
"""By seed; empty where nothing was measured."""

PRETRAINED = (500_000, 1)
"""First seed and number of seeds of the runs that a frozen evaluator is fitted to: none of the policies it is tested on."""


@dataclass(frozen=True)
class Condition:
    """One world, one kind of evaluator, one β."""

    world: str
    mode: Mode
    beta: float
    jobs: tuple[Job, ...] = ()
    label: str = ""
    """Name in tables."""
    variant: str = ""
    """As of its family."""


def conditions(family: Family, world: str) -> list[Condition]:
    """All conditions of a world, the passive evaluator first."""
    kinds: list[tuple[Mode, float, str]] = [("passive", 0.0, "ordinary, passive evaluator")]
    kinds += [("colearned", beta, f"EvA-RL, β = {beta:g}") for beta in family.betas]
    if family.frozen:
        kinds += [("frozen", beta, f"frozen evaluator, β = {beta:g}") for beta in (0.0, *family.betas)]
    changes, slug = (
        _changes(family, world),
        _slug(world) + (f"-{family.variant.lower().replace(' ', '-')}" if family.variant else ""),
    )
    return [
        condition(family, mode, changes | {"beta": beta}, label, f"{slug}-{mode}-{beta:g}")
        for mode, beta, label in kinds
    ]


def condition(
    family: Family, mode: Mode, changes: dict[str, Any], label: str, slug: str, pretrained: tuple[int, int] = PRETRAINED
) -> Condition:
    """A condition with the jobs that train and evaluate its seeds, in groups; `slug` begins the names of the jobs."""
    world, frozen = changes["world"], mode == "frozen"
    needs = {"assessment": assessment(family, world)}
    if frozen:
        needs["frozen"] = frozen_evaluator(family, world, *pretrained)
    jobs = []
    for first, count in spans(family):
        seeds = {"evaluator_mode": "frozen" if frozen else "colearned", "seed": first, "seeds": count}
        settings = {
            "preset": family.preset,
            "changes": changes | seeds,
            "states": family.states,
            "rollouts": family.rollouts,
            "log_megabytes": 0 if frozen else family.log_megabytes,
            "methods": [] if frozen else list(family.methods),
            "fqe_steps": family.fqe_steps,
        }
        jobs.append(Job(f"{slug}-seeds-{first}-{first + count - 1}", "train", settings, needs, family.weight * count))
    return Condition(world, mode, changes["beta"], tuple(jobs), label, family.variant)


def assessment(family: Family, world: str) -> Job:
    """The job that draws a world's scenarios."""
    settings = {"preset": family.preset, "changes": _changes(family, world) | {"evaluator_mode": "colearned"}}
    return Job(f"{_slug(world)}-assessment", "assessment", settings, weight=0.5 * family.weight)


def frozen_evaluator(family: Family, world: str, seed: int, seeds: int) -> Job:
    """The job that fits an evaluator to the policies of ordinary runs with their own seeds."""
    changes = _changes(family, world) | {"evaluator_mode": "colearned", "seed": seed, "seeds": seeds}
    amounts = dict(zip(("policies", "transitions", "steps"), family.pretraining, strict=True))
    settings = {"preset": family.preset, "changes": changes, **amounts}
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
    """Results of the finished jobs of a condition, seed by seed; there may be none."""

    condition: Condition
    rows: dict[int, dict[str, Any]]
    curves: dict[str, np.ndarray]
    """By metric: [seeds, points]; `steps` is [points]. Empty where they were not kept."""

    @property
    def world(self) -> str:
        """The world's name in tables."""
        name, variant = short_name(self.condition.world), self.condition.variant
        return f"{name}, {variant}" if variant else name

    def returns(self, discounted: bool = True) -> Values:
        """True mean return over μ_D, by seed."""
        return {seed: row["return" if discounted else "return_undiscounted"] for seed, row in self.rows.items()}

    def mae(self, kind: str, predictor: str = EVALUATOR) -> Values:
        """Mean absolute error of a predictor at one kind of states, by seed; empty if it is missing for any seed."""
        return {seed: one["mae"] for seed, one in self._scores(kind, predictor, "mae").items()}

    def mse(self, kind: str, predictor: str = EVALUATOR) -> Values:
        """Mean squared error less the noise of the true values, by seed; empty if it is missing for any seed."""
        return {seed: one["mse"] for seed, one in self._scores(kind, predictor, "mse").items()}

    def ranks(self, kind: str, predictor: str = EVALUATOR) -> Values:
        """Rank correlation of predicted and true values, by seed; empty if it is missing for any seed."""
        return {seed: one["rank"] for seed, one in self._scores(kind, predictor, "rank").items()}

    def errors(self, kind: str) -> dict[str, MeanAndError]:
        """Mean absolute errors of all predictors at one kind of states, averaged over seeds."""
        errors = {name: mean_and_error(self.mae(kind, name)) for name in (*ORDER, *LABELS.values())}
        return {name: error for name, error in errors.items() if error is not None}

    def skill(self, kind: str, without: Sequence[str] = WITHOUT) -> MeanAndError | None:
        """Skill of the evaluator over the best of some predictors, from squared errors averaged over seeds first."""
        from evarl.evaluation.scores import skill  # imports JAX

        scores = {
            name: [stored_score(one) for one in known.values()]
            for name in (EVALUATOR, *without)
            if (known := self._scores(kind, name, "mse"))
        }
        mine = scores.pop(EVALUATOR, None)
        if mine is None or not scores:
            return None
        found = skill(mine, scores).estimate
        return None if found.mean is None else MeanAndError(found.mean, found.standard_error)

    def _scores(self, kind: str, predictor: str, measure: str) -> dict[int, dict[str, Any]]:
        """Scores of a predictor by seed; none if a measure is missing for any seed."""
        found = {s: row["queries"].get(kind, {}).get("scores", {}).get(predictor, {}) for s, row in self.rows.items()}
        return found if all(one.get(measure) is not None for one in found.values()) else {}


def stored_score(record: dict[str, Any]) -> "Score":
    """A score from the record of a job, in which parts may be missing."""
    from evarl.evaluation.scores import Score  # imports JAX

    return Score(**{"mae": 0.0, "bias": 0.0, "rank": None, "noise": 0.0} | record)


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
    """Mean and standard error over seeds; None without values."""
    if not values:
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
