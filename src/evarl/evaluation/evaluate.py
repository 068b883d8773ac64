"""`evaluate`: predictions for the final policies of a run against their true values, beside every control."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evarl.errors import InputError
from evarl.evaluation.inputs import AssessedPolicy, agent_policy, opened, outside_given, root_key
from evarl.evaluation.logged import LoggedSeed, estimate_seed, method_label
from evarl.evaluation.predictions import EvaluatorPredictions, Predictions
from evarl.evaluation.predictors import CRITIC, EVALUATOR
from evarl.evaluation.results import (
    START,
    VISITED,
    Evaluation,
    Queries,
    SeedEvaluation,
    over_policies,
    predicted,
    table,
)
from evarl.evaluation.scores import average, over_seeds
from evarl.evaluation.sites import NO_EVALUATOR, SiteEffort, evaluate_sites, left_out
from evarl.ope.registry import LogSettings
from evarl.ranges import whole
from evarl.runs.checks import not_fitted
from evarl.runs.log_plan import Part
from evarl.runs.run import Run
from evarl.settings import checked
from evarl.simulation.episodes import StartStates
from evarl.simulation.rollouts import Act
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_rollouts, check_states
from evarl.truth.monte_carlo import Truth, true_values
from evarl.worlds.world import Key

OF: dict[Part, str] = {"recent": "the last updates", "all": "all of training"}
"""Parts of a log in remarks."""
SITES = 64
"""Sites on which the policies of a family of worlds are evaluated, by default."""


@dataclass(frozen=True)
class Measurement:
    """What the seeds of one evaluation share: the run, its start states, and how its policies are measured."""

    run: Run
    starts: StartStates
    rollouts: int
    """Rollouts from each state."""
    evaluators: EvaluatorPredictions | None
    ope: LogSettings | None
    given: tuple[AssessedPolicy, str] | None = None
    """A policy of another package that is evaluated, and its name; None for the final policies of the seeds."""

    @property
    def outside(self) -> str | None:
        """The name of the given policy."""
        return None if self.given is None else self.given[1]


Measured = dict[str, tuple[StartStates, Truth]]
"""True values by kind of states."""


@checked
def evaluate(
    run: Run | str | Path,
    seeds: Sequence[int] | None = None,
    passive: Run | str | Path | None = None,
    rollouts: int | None = None,
    states: int = 64,
    replicates: int | None = None,
    random_seed: int = 0,
    ope: LogSettings | None = None,
    sites: int | None = None,
    policy: Any = None,
    policy_import: str | None = None,
    notify: Callable[[str], None] = lambda line: None,
) -> Evaluation:
    """Compare every predictor of a run with Monte Carlo values, at start states and at states that the policies visit.

    Each of `states` states has `rollouts` rollouts (64, or 8 in worlds on the host). All seeds have the same start states; if
    these are all equal, the rollouts are pooled. With `ope`, estimates from the log of the training are compared as well.

    In a family of worlds, values are compared over `sites` sites (64) with fresh contexts instead of over states: every policy
    takes its assessment on each, and is measured there by `rollouts` episodes, or exactly where the world is finite.

    A policy of another package (`policy`, as `evarl.wrap_policy` takes it, or `policy_import`, as "module:name") is evaluated in
    place of the run's own: it is measured once, and the evaluator of each seed predicts its value from its assessment.

    >>> import evarl, tempfile
    >>> small = {"updates": 2, "environments": 2, "steps": 8}
    >>> run = evarl.train("navigation", out=tempfile.mkdtemp(), quiet=True, **small)
    >>> evarl.evaluate(run, rollouts=2, states=2).distinct
    1
    """
    run = opened(run)
    seeds = run.seeds if seeds is None else _check_seeds(run, seeds)
    beside = None if passive is None else _check_passive(run, passive)
    _check(run, sites, ope)
    given = outside_given(run, policy, policy_import)
    if given is not None:
        _check_outside(run, seeds, passive, ope)
    if run.world.contexts:
        effort = SiteEffort(SITES if sites is None else sites, rollouts, replicates, random_seed)
        own = evaluate_sites(run, seeds, effort, notify, given)
        there = None if beside is None else evaluate_sites(beside, _shared_seeds(beside, seeds), effort, notify)
        return _beside(own, there)
    rollouts = simulator_for(run.world).default_rollouts if rollouts is None else rollouts
    check_states("states", states, run.world)
    check_rollouts("rollouts", rollouts, states, least=2)
    start_key, root = jax.random.split(root_key(random_seed))
    starts = simulator_for(run.world).start_states(start_key, states)
    with nullcontext() if given is None else given[0].errors():
        evaluators = (
            None if run.assessment is None else EvaluatorPredictions(run, seeds, replicates, root, notify, given)
        )
        evaluation = _evaluated(Measurement(run, starts, rollouts, evaluators, ope, given), seeds, root, notify)
    evaluation = dataclasses.replace(evaluation, random_seed=random_seed)
    if beside is None:
        return evaluation
    same = rollouts, states, replicates, random_seed
    return _beside(evaluation, evaluate(beside, _shared_seeds(beside, seeds), None, *same, notify=notify))


def _beside(evaluation: Evaluation, passive: Evaluation | None) -> Evaluation:
    """An evaluation with that of a passive run."""
    if passive is None:
        return evaluation
    notes = [] if passive.not_fitted is None else [f"passive: {passive.not_fitted}"]
    return dataclasses.replace(evaluation, passive=passive, notes=evaluation.notes + notes)


def _shared_seeds(beside: Run, seeds: Sequence[int]) -> list[int]:
    """The seeds of a run that are also seeds of another; all if there are none."""
    return [seed for seed in seeds if seed in beside.seeds] or beside.seeds


def _evaluated(plan: Measurement, seeds: Sequence[int], key: Key, notify: Callable[[str], None]) -> Evaluation:
    """The evaluation of all seeds; a given policy is measured once for all of them."""
    found: list[SeedEvaluation] = []
    kinds: Measured = {}
    for seed in seeds:
        notify(f"{plan.run.path}: seed {seed}")
        if plan.given is None or not kinds:
            policy = agent_policy(plan.run, plan.run.policy_state(seed)) if plan.given is None else plan.given[0]
            kinds = _true_values(plan, policy.act, jax.random.fold_in(jax.random.fold_in(key, seed), 2))
        found.append(_compared(plan, seed, kinds))
    return _summarise(plan, found)


def _compared(plan: Measurement, seed: int, kinds: Measured) -> SeedEvaluation:
    """Compare every predictor of a seed with Monte Carlo values at start states and at states that the policy visits."""
    logs, off_policy = _from_log(plan, seed, {kind: states for kind, (states, _) in kinds.items()})
    queries = {}
    for kind, (states, truth) in kinds.items():
        if kind == START and states.distinct == 1:
            truth = _pooled(truth)
        # start states that are all equal are all predicted, so that one compiled program serves both kinds of states
        evaluator = {} if plan.evaluators is None else plan.evaluators.predict(seed, states.observation)
        critic = {}
        if plan.outside is None:
            critic = {CRITIC: np.asarray(plan.run.value(jnp.asarray(states.observation), seed), np.float64)[None]}
        predictions = evaluator | critic | off_policy[kind]
        queries[kind] = Queries(truth, {name: x[:, : len(truth.value)] for name, x in predictions.items()})
    _, start = kinds[START]
    return SeedEvaluation(
        seed=seed,
        discounted=average(start.value, float(start.standard_error[0])),
        undiscounted=average(start.undiscounted),
        assessment=[] if plan.evaluators is None else plan.evaluators.assessed(seed).returns.mean(axis=1).tolist(),
        queries=queries,
        logs=logs,
    )


def _true_values(plan: Measurement, act: Act, key: Key) -> Measured:
    """Start states and visited states with their values; in worlds on the host, visited states cannot be returned to."""
    world, starts = plan.run.world, plan.starts
    start_key, states_key, visited_key = jax.random.split(key, 3)
    found = {START: (starts, true_values(world, act, starts, start_key, plan.rollouts))}
    if world.can_restart:
        visited = simulator_for(world).visited_states(act, states_key, starts.drawn)
        found[VISITED] = visited, true_values(world, act, visited, visited_key, plan.rollouts)
    return found


def _from_log(
    plan: Measurement, seed: int, kinds: dict[str, StartStates]
) -> tuple[tuple[LoggedSeed, ...], dict[str, Predictions]]:
    """Off-policy estimates from each part of the log, and their values at each kind of states.

    Values with infinite importance weights are left out; a warning of the estimate reports them.
    """
    found: dict[str, Predictions] = {kind: {} for kind in kinds}
    if plan.ope is None:
        return (), found
    observations, elapsed = (
        np.concatenate([np.asarray(getattr(states, what)) for states in kinds.values()])
        for what in ("observation", "elapsed")
    )
    parts = (plan.run.log_part("recent", plan.ope.updates),) if plan.ope.updates is not None else plan.run.log_parts
    logs = tuple(estimate_seed(plan.run, seed, plan.ope, observations, elapsed, part) for part in parts or (None,))
    for part, method, one in ((log.part, *item) for log in logs for item in log.estimates.items()):
        assert one.state_values is not None
        if np.isfinite(one.state_values).all():
            for kind, values in zip(kinds, np.split(one.state_values, len(kinds)), strict=True):
                found[kind][method_label(method, part, parts)] = values[None]
    return logs, found


def _pooled(truth: Truth) -> Truth:
    """Values of one state that was drawn Q times: one value from Q R rollouts."""
    mean = average(truth.value, float(truth.standard_error[0]))
    values = np.array([mean.mean]), np.array([mean.standard_error]), truth.undiscounted.mean(keepdims=True)
    return Truth(*values, truth.rollouts * len(truth.value))


def _summarise(plan: Measurement, seeds: list[SeedEvaluation]) -> Evaluation:
    """The evaluation of a run from that of its seeds."""
    run, starts, evaluators = plan.run, plan.starts, plan.evaluators
    reasons = [] if evaluators is None else [evaluators.not_fitted[seed.seed] for seed in seeds]
    not_fitted = next(filter(None, reasons), None)
    rows, best = table(seeds, not_fitted)
    evaluation = Evaluation(
        run=str(run.path),
        world=run.config.world,
        beta=run.config.beta,
        discount=run.config.discount,
        horizon=run.world.horizon,
        rollouts=plan.rollouts,
        start_states=str(starts),
        drawn=starts.drawn,
        distinct=starts.distinct,
        shuffled_with=None if evaluators is None or not_fitted else evaluators.shuffled_with,
        seeds=seeds,
        rows=rows,
        policies=over_policies(seeds) if plan.outside is None else {},
        not_fitted=not_fitted,
        best_without=best,
        discounted=over_seeds([seed.discounted for seed in seeds], plan.outside is not None),
        undiscounted=over_seeds([seed.undiscounted for seed in seeds], plan.outside is not None),
        notes=[],
        passive=None,
        policy=plan.outside,
        predicted=predicted(seeds, START),
    )
    return dataclasses.replace(evaluation, notes=_notes(plan, evaluation))


def _notes(plan: Measurement, found: Evaluation) -> list[str]:
    """Remarks that a reader of the table needs."""
    notes = [] if plan.outside is None else [left_out(plan.outside)]
    if not plan.run.world.can_restart:
        notes.append(
            f"{found.world} runs on the host: a start state is a reset seed, which also fixes the world's random numbers, and "
            "visited states cannot be returned to, so only start states are evaluated"
        )
    if found.distinct == 1 and found.drawn > 1:
        notes.append(
            f"all start states are equal; their {found.seeds[0].queries[START].truth.rollouts} rollouts are pooled"
        )
    if plan.run.assessment is None:
        notes.append(NO_EVALUATOR)
    for row in found.rows:
        if row.predictor == EVALUATOR and row.skill.mean is None and row.not_fitted is None:
            notes.append(
                f"no skill at {row.queries} states: the error of {found.best_without[row.queries]} cannot be told from 0; "
                "use more rollouts"
            )
    notes += [] if plan.ope is None else _log_notes(found.seeds, plan.ope)
    return notes + ([] if found.not_fitted is None else [found.not_fitted])


def _log_notes(seeds: list[SeedEvaluation], settings: LogSettings) -> list[str]:
    """The source of the off-policy estimates, and their warnings."""
    parts = [log.part for log in seeds[0].logs]
    counts = []
    for number, part in enumerate(parts):
        count = sum(seed.logs[number].trajectories for seed in seeds) / len(seeds)
        where = " of training" if len(parts) == 1 and part != "all" else f" from {OF[part]}" if part else ""
        counts.append(f"{count:.0f} trajectories{where}")
    notes = [
        f"off-policy estimates: {' and '.join(counts)} for each seed; importance sampling estimates the value of a state by the "
        f"rule {settings.rule}, fitted Q evaluation directly"
    ]
    warned: dict[str, list[str]] = {}
    for log in (log for seed in seeds for log in seed.logs):
        for method, one in log.estimates.items():
            for warning in one.warnings:
                warned.setdefault(f"{method_label(method, log.part, parts)}: {warning}", []).append(str(log.seed))
    return notes + [f"seed {', '.join(numbers)}: {warning}" for warning, numbers in warned.items()]


def _check_seeds(run: Run, seeds: Sequence[int]) -> list[int]:
    for seed in seeds:
        if seed not in run.seeds:
            raise InputError(f"seeds: {seed} is not one of this run's seeds {run.seeds[0]} to {run.seeds[-1]}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds: {list(seeds)} is not allowed; must be at least one, each once")
    return list(seeds)


def _check_passive(run: Run, passive: Run | str | Path) -> Run:
    """A run in the same world whose evaluator did not influence its policy."""
    passive = opened(passive)
    there = passive.config
    if there.beta > 0 or there.beta_variance > 0:
        raise InputError(
            f"passive: {passive.path} was trained with β = {there.beta:g} and a variance penalty of "
            f"{there.beta_variance:g}; must be a run with β = 0 and --evaluator-mode colearned"
        )
    if passive.assessment is None:
        raise InputError(f"passive: {passive.path} has no evaluator; train it with --evaluator-mode colearned")
    own, other = ((one.config.world, one.config.discount, one.world.horizon) for one in (run, passive))
    if own != other:
        raise InputError(
            f"passive: {passive.path} has world, discount and horizon {other}; must be those of the run, {own}"
        )
    here, beside = ([str(context) for context in one.world.contexts] for one in (run, passive))
    if here != beside:
        raise InputError(f"passive: {passive.path} has the contexts {beside}; must be those of the run, {here}")
    return passive


def _check_outside(run: Run, seeds: Sequence[int], passive: Any, ope: LogSettings | None) -> None:
    """Refuse what only the policies of the run have, and a run whose evaluators cannot be asked."""
    for name, value in (("passive", passive), ("ope", ope)):
        if value is not None:
            raise InputError(f"{name}: is about policies of runs; must be left out for a policy of another package")
    if run.assessment is None:
        raise InputError(f"policy: {run.path} has no evaluator to be asked about it; `evarl certify` needs none")
    for seed in seeds:
        if (reason := not_fitted(run.evaluator_state(seed), run.config, seed)) is not None:
            raise InputError(f"policy: the evaluator cannot be asked about it ({reason}); `evarl certify` needs none")


def _check(run: Run, sites: int | None, ope: LogSettings | None) -> None:
    """Refuse what is only possible with sites, or only without, and settings that cannot be used."""
    if sites is not None and not run.world.contexts:
        raise InputError(f"sites: {run.path} was trained without contexts; only a family of worlds has sites")
    if sites is not None:
        whole("sites", sites, least=2)
    if ope is not None and run.world.contexts:
        raise InputError(f"ope: the log of {run.path} is of many sites and tells none apart; `evarl ope` estimates J")
    if ope is not None:
        ope.validate()
