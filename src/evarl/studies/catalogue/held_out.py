"""`held-out`: errors of evaluators on policies of seeds that they were not fitted to, with and without the assessment."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from evarl.evaluation.predictors import BLIND, CONSTANT, EVALUATOR, SHUFFLED
from evarl.stats import ratio_of_means
from evarl.studies import figures
from evarl.studies.conditions import short_name
from evarl.studies.jobs import Job, Store
from evarl.studies.reports import Cell, ClaimCheck, MeanAndError, ReportFigure, ReportTable, StudyResults
from evarl.studies.scales import EVERYTHING, HeldOut, StudyScale
from evarl.studies.tables import number
from evarl.studies.verdicts import CONFIDENCE, Values, check_larger, check_some_larger

TITLE = "Do evaluators use the assessment? Errors on policies never seen"
METHOD = (
    "Policies of ordinary training are recorded at equal distances from the first, which has learnt nothing, to the last: the "
    "returns-to-go of whole episodes at states that they visit and at their start states, and Ξ. Evaluators are fitted to the "
    "visited states of the policies of some seeds. For each policy of the other seeds they predict the value, averaged over its "
    "visited states or over its start states. Every seed is held out once.\n\n"
    "“With Ξ” is the evaluator as it is used; “Ξ shuffled” shows it the assessment of another policy; “fitted without Ξ” is "
    "the same network, fitted and tested with all of Ξ at zero; “a constant” is the mean return of the policies that were "
    "fitted.\n\n"
    "The true value of a policy is known from a sample of episodes only. Its noise is not counted as an error of the "
    "predictors: the episodes are divided in two halves, and the mean error over one half is multiplied by that over the other. "
    "Noise in the two is independent and averages out of the product, whose expectation is the squared error against the exact "
    "value. Errors in the tables are roots of the mean product over all policies."
)
COLUMNS = {EVALUATOR: "with Ξ", SHUFFLED: "Ξ shuffled", BLIND: BLIND, CONSTANT: "a constant"}
SHARES = {"navigation": 0.5}
"""Largest share of the error without Ξ that is claimed, by world; 1 in the others."""
DEPENDENT = (
    "Seeds of one split share their evaluators, and splits share policies that evaluators were fitted to; intervals over seeds "
    "do not count this."
)
STATES = {"visited": "visited states", "start": "start states"}


@dataclass(frozen=True)
class Fitted:
    """Squared errors of one kind of evaluator, by predictor and held-out seed."""

    behaviour: str
    network: str
    squared: dict[str, Values]
    late: dict[str, Values]
    """Those on policies of the second half of training."""

    def rmse(self, predictor: str) -> float:
        """Root of the squared error averaged over seeds; 0 where noise makes the average negative."""
        return max(0.0, float(np.mean(list(self.squared[predictor].values())))) ** 0.5


def _ratio(squared: dict[str, Values], seeds: list[int] | None = None) -> float | None:
    """RMSE with Ξ over that without, over some of the seeds; None if the latter is not above 0."""
    chosen = list(squared[BLIND]) if seeds is None else seeds
    mine, blind = (sum(squared[name][seed] for seed in chosen) for name in (EVALUATOR, BLIND))
    return max(0.0, mine / blind) ** 0.5 if blind > 0 else None


def _bounds(squared: dict[str, Values]) -> tuple[float, float] | None:
    """Interval of the ratio: Student's, with the jackknife's error over seeds of the ratio of squared errors."""
    mine, blind = (list(squared[name].values()) for name in (EVALUATOR, BLIND))
    if sum(blind) <= 0:
        return None
    ratio, error = ratio_of_means(mine, blind)
    if error is None:
        return None
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(mine) - 1)) * error
    return max(0.0, ratio - half) ** 0.5, max(0.0, ratio + half) ** 0.5


def _with_bounds(squared: dict[str, Values]) -> str | None:
    """The ratio with its interval as text."""
    ratio, bounds = _ratio(squared), _bounds(squared)
    if ratio is None or bounds is None:
        return None if ratio is None else f"{ratio:.2f}"
    return f"{ratio:.2f} ({bounds[0]:.2f} to {bounds[1]:.2f})"


@dataclass(frozen=True)
class WorldResults:
    """Results of one world at one kind of states."""

    world: str
    folds: list[list[int]]
    evaluators: list[Fitted]
    noise: float
    """Root mean square of the standard errors of the true values, which is not in the errors."""

    @property
    def share(self) -> float:
        """Largest share of the error without Ξ that is claimed."""
        return SHARES.get(self.world, 1.0)

    @property
    def claim(self) -> str:
        """What is claimed of an error with Ξ."""
        return f"at most {self.share:g} times" if self.share < 1 else "below"


def jobs(scale: StudyScale) -> list[Job]:
    """One job for each world: all evaluators are fitted to the same policies."""
    return [_job(one) for one in scale.held_out]


def results(scale: StudyScale, store: Store) -> StudyResults:
    """Errors by world, kind of Ξ and network, and whether they are below those without Ξ."""
    finished, found = _found(scale, store)
    return StudyResults(
        checks=tuple(_check(states, one) for states, worlds in found.items() for one in worlds),
        tables=tuple(_table(states, worlds) for states, worlds in found.items()),
        figures=tuple(_figure(states, worlds) for states, worlds in found.items()) if finished else (),
        notes=(
            *map(_sizes, scale.held_out),
            *(_noise(found[states], states) for states in STATES if finished),
            DEPENDENT,
        ),
    )


def _found(scale: StudyScale, store: Store) -> tuple[list[str], dict[str, list[WorldResults]]]:
    """The worlds that are finished, and their results by kind of states."""
    finished = {one.world: store.result(job) for one in scale.held_out if store.finished(job := _job(one))}
    found = {states: [_world_results(world, states, result) for world, result in finished.items()] for states in STATES}
    return list(finished), found


def best_table(scale: StudyScale, store: Store) -> ReportTable:
    """A row for each world and kind of states: the kind of Ξ with the least error, and its controls."""
    rows: list[tuple[Cell, ...]] = []
    for states, worlds in _found(scale, store)[1].items():
        for one in worlds:
            best = min(one.evaluators, key=lambda fitted: fitted.rmse(EVALUATOR))
            errors = [best.rmse(name) for name in COLUMNS]
            kind = (best.behaviour, len(best.squared[EVALUATOR]))
            rows.append((short_name(one.world), STATES[states], *kind, *errors, _with_bounds(best.squared)))
    head = ("world", "at", "Ξ", "seeds", *COLUMNS.values(), "with / without Ξ")
    return ReportTable("held-out-best", "", head, tuple(rows))


def _job(one: HeldOut) -> Job:
    """The job that fits and tests evaluators, which needs the one that records policies."""
    label, world = f"held-out-{one.world.replace('/', '-').lower()}", {"preset": one.preset}
    assessed = one.changes | {"world": one.world, "evaluator_mode": "colearned"}
    assessment = Job(f"{label}-assessment", "assessment", world | {"changes": assessed}, weight=5.0)
    trained = {"updates": one.updates, "assessment.behaviour": EVERYTHING, "assessment.replicates": one.replicates}
    sizes = {name: getattr(one, name) for name in ("seeds", "policies", "episodes", "states")}
    settings = world | {"changes": assessed | trained} | sizes
    recorded = Job(f"{label}-policies", "record", settings, {"assessment": assessment}, weight=30.0)
    fits: dict[str, Any] = {name: list(getattr(one, name)) for name in ("behaviours", "networks")}
    fits |= {"folds": one.folds, "steps": one.steps, "changes": one.fitting}
    return Job(label, "held-out", fits, {"policies": recorded}, weight=30.0)


def _world_results(world: str, states: str, result: dict[str, Any]) -> WorldResults:
    def by_seed(one: dict[str, Any], part: str) -> dict[str, Values]:
        return {name: dict(enumerate(values[part])) for name, values in one["squared_errors"][states].items()}

    evaluators = [
        Fitted(one["behaviour"], one["network"], by_seed(one, "all"), by_seed(one, "late"))
        for one in result["evaluators"]
    ]
    return WorldResults(world, result["folds"], evaluators, float(np.mean(result["noise"][states])) ** 0.5)


def _check(states: str, one: WorldResults) -> ClaimCheck:
    """The claim about a world, which one kind of Ξ is enough for, with the first network."""
    network = one.evaluators[0].network
    kinds = {fitted.behaviour: _compared(fitted, one.share) for fitted in one.evaluators if fitted.network == network}
    return check_some_larger(
        f"{short_name(one.world)}, {STATES[states]}: with some kind of Ξ the error on policies of other seeds is {one.claim} "
        "that of the same network without",
        f"{f'{one.share**2:g} times the ' if one.share < 1 else ''}mean squared error without Ξ, less that with",
        kinds,
        f"{len(kinds)} kinds of Ξ were tried; the level is divided by their number",
    )


def _compared(fitted: Fitted, share: float) -> tuple[Values, Values]:
    """Squared errors that are allowed, and those that were made."""
    return {seed: share**2 * value for seed, value in fitted.squared[BLIND].items()}, fitted.squared[EVALUATOR]


def _table(states: str, worlds: list[WorldResults]) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    best: set[tuple[int, int]] = set()
    for one in worlds:
        least = min(one.evaluators, key=lambda fitted: fitted.rmse(EVALUATOR))
        for fitted in one.evaluators:
            if fitted is least:
                best.add((len(rows), 3))
            verdict = check_larger("", "", *_compared(fitted, one.share)).verdict
            errors = [fitted.rmse(name) for name in COLUMNS]
            rows.append(
                (short_name(one.world), fitted.behaviour, fitted.network, *errors, *_ratios(one, fitted), verdict)
            )
    claims = "; ".join(f"{short_name(one.world)} {one.claim} that {BLIND!r}" for one in worlds)
    return ReportTable(
        "held-out" if states == "visited" else f"held-out-{states}",
        f"Root mean squared error over held-out policies, {STATES[states]}",
        (
            "world",
            "Ξ",
            "network",
            *COLUMNS.values(),
            "with / without Ξ",
            "by split",
            "seeds",
            "second half of training",
            "claim",
        ),
        tuple(rows),
        f"With / without Ξ: the error with Ξ divided by that {BLIND!r}, with a 95 % interval over held-out seeds; mean squared "
        "errors are averaged over policies and seeds before they are divided and roots are taken. By split, and second half of "
        "training: the same for the seeds of each split, and for the later policies of all seeds. Claim: whether the error over "
        f"all policies is as claimed ({claims}), by Student's 95 % interval of the paired difference of squared errors over "
        "seeds, for each row by itself; seeds: in how many it is so. The least error of each world in bold.",
        frozenset(best),
    )


def _ratios(one: WorldResults, fitted: Fitted) -> tuple[Cell, ...]:
    """The ratio with its interval, that of every split, seeds below, and the ratio for the second half of training."""
    splits = [_ratio(fitted.squared, part) for part in one.folds]
    told = ", ".join("—" if ratio is None else f"{ratio:.2f}" for ratio in splits)
    mine, blind = fitted.squared[EVALUATOR], fitted.squared[BLIND]
    below = f"{sum(mine[seed] < one.share**2 * blind[seed] for seed in blind)} of {len(blind)}"
    return _with_bounds(fitted.squared), told, below, _with_bounds(fitted.late)


def _figure(states: str, worlds: list[WorldResults]) -> ReportFigure:
    panels = {
        short_name(one.world): {
            column if name == CONSTANT else f"{fitted.behaviour}, {column}": MeanAndError(fitted.rmse(name))
            for fitted in one.evaluators
            if fitted.network == one.evaluators[0].network
            for name, column in COLUMNS.items()
        }
        for one in worlds
    }
    coloured = [bar for bars in panels.values() for bar in bars if bar.endswith(COLUMNS[EVALUATOR])]
    caption = (
        f"Root mean squared error over held-out policies, {STATES[states]}; that of the evaluators with their assessment is "
        "coloured."
    )
    return figures.bars(f"held-out-errors-{states}", caption, panels, "RMSE", coloured, log=False)


def _sizes(one: HeldOut) -> str:
    return (
        f"{short_name(one.world)}: {one.seeds} seeds in {one.folds} splits, {one.updates} updates, {one.policies} policies of "
        f"each seed, {one.episodes} episodes and {one.states} visited states of each policy, {one.replicates} replicates of "
        f"each scenario, {one.steps} gradient steps."
    )


def _noise(worlds: list[WorldResults], states: str) -> str:
    told = ", ".join(f"{short_name(one.world)} {number(one.noise)}" for one in worlds)
    return f"Standard error of the true value of a policy at {STATES[states]} (root mean square), not counted as error: {told}."
