"""How well the evaluator knows the final policies of a run: its predictions beside the truth, and beside every control."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from evarl.errors import InputError
from evarl.evaluation.logged import LoggedSeed, estimate_seed
from evarl.evaluation.predictions import Predictions, Witness
from evarl.evaluation.predictors import CRITIC, EVALUATOR, ORDER, WITHOUT, ZEROED
from evarl.evaluation.scores import Estimate, Score, average, rank_correlation, root, score, skill
from evarl.evaluation.subjects import root_key
from evarl.ope.configuration import LABELS, LogSettings
from evarl.ope.metrics import PolicyMetrics, policy_metrics
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.simulation.rollouts import StartStates
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_rollouts, check_states
from evarl.truth.monte_carlo import Truth, true_values
from evarl.worlds.world import Key

START, VISITED = "start", "visited"
NONE = Estimate(None)


@dataclass(frozen=True)
class Queries:
    """Some states, what they are truly worth to a policy, and what is predicted."""

    truth: Truth
    predictions: Predictions

    @property
    def scores(self) -> dict[str, Score]:
        """By predictor."""
        return {name: score(self.truth, said) for name, said in self.predictions.items()}


@dataclass(frozen=True)
class SeedEvaluation:
    """One seed's final policy."""

    seed: int
    discounted: Estimate
    """True mean discounted return over μ_D, with the standard error of the Monte Carlo."""
    undiscounted: Estimate
    assessment: list[float]
    """Ξ of the single fresh assessment; empty without evaluator."""
    queries: dict[str, Queries]
    """By kind: start and visited."""
    logged: LoggedSeed | None = None
    """Estimates from the log, if they were asked for."""


@dataclass(frozen=True)
class Row:
    """One predictor at one kind of states, over all seeds."""

    predictor: str
    queries: str
    mae: Estimate
    rmse: Estimate
    """Root of the noise-corrected mean squared error, averaged over seeds first."""
    bias: Estimate
    rank_states: Estimate
    """Rank correlation with the truth over states, averaged over seeds."""
    rank_seeds: float | None
    """Rank correlation over seeds, of the means over start states."""
    skill: Estimate
    """Of the evaluator against the best predictor without Ξ; unknown elsewhere."""
    not_fitted: str | None = None
    """Why all numbers are missing, where they would be those of an evaluator that was not fitted."""


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found."""

    run: str
    world: str
    beta: float
    discount: float
    horizon: int
    rollouts: int
    """From each state."""
    start_states: str
    """What μ_D came down to."""
    drawn: int
    distinct: int
    shuffled_with: str | None
    """Whose Ξ was shown instead, for `Ξ shuffled`."""
    seeds: list[SeedEvaluation]
    rows: list[Row]
    policies: dict[str, PolicyMetrics]
    """By predictor: how well it tells the policies of the seeds apart, by their means over start states."""
    not_fitted: str | None
    """Why the evaluator predicts nothing; None if it was fitted, or there is none."""
    best_without: dict[str, str]
    """The best predictor without Ξ, by kind of states: the yardstick of skill."""
    discounted: Estimate
    """True mean return over μ_D, averaged over seeds; the standard error is over seeds, or the Monte Carlo's if one."""
    undiscounted: Estimate
    notes: list[str]
    passive: "Evaluation | None"
    """A run with β = 0, its own policies against their own truth."""

    def row(self, predictor: str, queries: str) -> Row:
        """One row of the table."""
        return next(row for row in self.rows if (row.predictor, row.queries) == (predictor, queries))


def evaluate(
    run: Run | str | Path,
    seeds: Sequence[int] | None = None,
    passive: Run | str | Path | None = None,
    rollouts: int | None = None,
    states: int = 64,
    replicates: int | None = None,
    random_seed: int = 0,
    ope: LogSettings | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Evaluation:
    """Measure every predictor of a run against Monte-Carlo truth, at start states and at states the policies visit.

    `rollouts` (64, or 8 in worlds on the host) are taken from each of `states` states. All seeds are asked about the
    same start states; if these are all one, it gets the rollouts of all. `random_seed` fixes what is random. With `ope`, the
    estimates from the log of the training stand beside the others, against the same truth.

    >>> import dataclasses, evarl, tempfile
    >>> evaluator = dataclasses.replace(evarl.preset("navigation").evaluator, warmup=1, initial_steps=5)
    >>> small = {"beta": 0.05, "updates": 2, "environments": 2, "steps": 8, "evaluator": evaluator}
    >>> run = evarl.train("navigation", out=tempfile.mkdtemp(), quiet=True, **small)
    >>> evarl.evaluate(run, rollouts=2, states=2).distinct
    1
    """
    run = run if isinstance(run, Run) else Run.load(run)
    keep_compiled_programs()
    seeds = run.seeds if seeds is None else _check_seeds(run, seeds)
    beside = None if passive is None else _check_passive(run, passive)
    if rollouts is None:
        rollouts = simulator_for(run.world).default_rollouts
    if rollouts < 2:
        raise InputError(f"rollouts: {rollouts} is not allowed; a standard error wants at least 2")
    check_states("states", states, run.world)
    check_rollouts("rollouts", rollouts, states)
    if ope is not None:
        ope.validate()
    start_key, root = jax.random.split(root_key(random_seed))
    starts = simulator_for(run.world).start_states(start_key, states)
    witness = None if run.assessment is None else Witness.of(run, seeds, replicates, root, say)
    found = []
    for seed in seeds:
        say(f"{run.path}: seed {seed}")
        found.append(_evaluate_seed(run, seed, jax.random.fold_in(root, seed), starts, rollouts, states, witness, ope))
    against = None
    if beside is not None:
        shared = [seed for seed in seeds if seed in beside.seeds]
        against = evaluate(beside, shared or None, None, rollouts, states, replicates, random_seed, None, say)
    not_fitted = None if witness is None else next(filter(None, map(witness.not_fitted.get, seeds)), None)
    rows, best = _rows(found, not_fitted)
    notes = _notes(run, starts, found, rows, best) + ([] if ope is None else _log_notes(found, ope))
    notes += [] if not_fitted is None else [not_fitted]
    notes += [] if against is None or against.not_fitted is None else [f"passive: {against.not_fitted}"]
    one = len(found) == 1
    return Evaluation(
        run=str(run.path),
        world=run.config.world,
        beta=run.config.beta,
        discount=run.config.discount,
        horizon=run.world.horizon,
        rollouts=rollouts,
        start_states=f"{starts.distinct} distinct of {starts.drawn} drawn from μ_D",
        drawn=starts.drawn,
        distinct=starts.distinct,
        shuffled_with=None if witness is None or not_fitted else witness.shuffled_with,
        seeds=found,
        rows=rows,
        policies=_over_policies(found),
        not_fitted=not_fitted,
        best_without=best,
        discounted=found[0].discounted if one else average([seed.discounted.mean for seed in found]),
        undiscounted=found[0].undiscounted if one else average([seed.undiscounted.mean for seed in found]),
        notes=notes,
        passive=against,
    )


def _evaluate_seed(
    run: Run,
    seed: int,
    key: Key,
    starts: StartStates,
    rollouts: int,
    states: int,
    witness: Witness | None,
    ope: LogSettings | None,
) -> SeedEvaluation:
    world, act = run.world, Partial(run.learner.agent.act, run.policy_state(seed))
    start_key, states_key, visited_key = jax.random.split(jax.random.fold_in(key, 2), 3)

    asked: dict[str, tuple[Truth, Array | np.ndarray]] = {}
    times = [np.asarray(starts.elapsed)]
    truth = true_values(world, act, starts, start_key, rollouts)
    asked[START] = (_pooled(truth) if starts.distinct == 1 else truth, starts.observation)
    if world.can_restart:
        met = simulator_for(world).visited_states(act, states_key, states)
        asked[VISITED] = (true_values(world, act, met, visited_key, rollouts), met.observation)
        times.append(np.asarray(met.elapsed))
    logged = None
    if ope is not None:
        everywhere = np.concatenate([np.asarray(observation) for _, observation in asked.values()])
        logged = estimate_seed(run, seed, ope, everywhere, np.concatenate(times))

    def predictions(at: slice, truth: Truth, observation: Array | np.ndarray) -> Predictions:
        """Ask at all states, so that one compiled program serves both kinds, and keep as many as have a truth."""
        said = {} if witness is None else witness.predictions(seed, observation)
        said[CRITIC] = np.asarray(run.value(jnp.asarray(observation), seed), np.float64)[None]
        for method, one in ({} if logged is None else logged.estimates).items():
            assert one.state_values is not None
            if np.isfinite(one.state_values).all():  # weights beyond 32 bits, which a note tells of
                said[LABELS[method]] = one.state_values[None, at]
        return {name: x[:, : len(truth.value)] for name, x in said.items()}

    found, first = {}, 0
    for kind, (known, observation) in asked.items():
        found[kind] = Queries(known, predictions(slice(first, first + len(observation)), known, observation))
        first += len(observation)
    return SeedEvaluation(
        seed=seed,
        discounted=_mean(truth.value, truth.standard_error),
        undiscounted=_mean(truth.undiscounted, None),
        assessment=[] if witness is None else [float(x) for x in witness.shown[seed]],
        queries=found,
        logged=logged,
    )


def _pooled(truth: Truth) -> Truth:
    """Truths about one and the same state, drawn Q times: one truth from Q R rollouts."""
    mean = _mean(truth.value, truth.standard_error)
    error = np.array([mean.standard_error])
    return Truth(
        np.array([mean.mean]), error, truth.undiscounted.mean(keepdims=True), truth.rollouts * len(truth.value)
    )


def _mean(values: np.ndarray, errors: np.ndarray | None) -> Estimate:
    """Mean over states drawn independently; their spread says how uncertain it is, or if there is one, its own error."""
    if len(values) == 1:
        return Estimate(float(values[0]), None if errors is None else float(errors[0]))
    return Estimate(float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5))


def _rows(seeds: list[SeedEvaluation], not_fitted: str | None) -> tuple[list[Row], dict[str, str]]:
    """The table, and the best predictor without Ξ for each kind of states."""
    rows, best = [], {}
    for kind in seeds[0].queries:
        for name in (EVALUATOR, ZEROED) if not_fitted else ():
            rows.append(Row(name, kind, NONE, NONE, NONE, NONE, None, NONE, not_fitted))
        scores = [seed.queries[kind].scores for seed in seeds]
        everywhere = [name for name in (*ORDER, *LABELS.values()) if all(name in one for one in scores)]
        columns = {name: [one[name] for one in scores] for name in everywhere}
        without = {name: columns[name] for name in WITHOUT if name in columns}
        found = skill(columns[EVALUATOR], without) if EVALUATOR in columns else None
        if found is not None and found.best_without is not None:
            best[kind] = found.best_without
        for name, column in columns.items():
            over_seeds = None
            if kind == START:
                said = [float(seed.queries[kind].predictions[name].mean()) for seed in seeds]
                over_seeds = rank_correlation(said, [float(seed.queries[kind].truth.value.mean()) for seed in seeds])
            rows.append(
                Row(
                    predictor=name,
                    queries=kind,
                    mae=average([one.mae for one in column]),
                    rmse=root(average([one.mse for one in column])),
                    bias=average([one.bias for one in column]),
                    rank_states=average([one.rank for one in column]),
                    rank_seeds=over_seeds,
                    skill=found.estimate if found is not None and name == EVALUATOR else Estimate(None),
                )
            )
    return rows, best


def _over_policies(seeds: list[SeedEvaluation]) -> dict[str, PolicyMetrics]:
    """Each seed's final policy is one policy; a predictor says its value over μ_D."""
    if len(seeds) < 2:
        return {}
    starts = [seed.queries[START] for seed in seeds]
    true = np.array([one.truth.value.mean() for one in starts])
    names = [name for name in (*ORDER, *LABELS.values()) if all(name in one.predictions for one in starts)]
    return {name: policy_metrics(np.array([one.predictions[name].mean() for one in starts]), true) for name in names}


def _notes(
    run: Run, starts: StartStates, seeds: list[SeedEvaluation], rows: list[Row], best: dict[str, str]
) -> list[str]:
    """What a reader of the table has to know."""
    notes = []
    if not run.world.can_restart:
        notes.append(
            f"{run.config.world} lives on the host: a start state is a reset seed, its value contains the world's own "
            "dice, and visited states cannot be returned to, so only start states are evaluated"
        )
    if starts.distinct == 1 and starts.drawn > 1:
        notes.append(f"all start states are one, which got {seeds[0].queries[START].truth.rollouts} rollouts")
    if run.assessment is None:
        notes.append("this run has no evaluator: train with --beta, or with --evaluator-mode colearned")
    for row in rows:
        if row.predictor == EVALUATOR and row.skill.mean is None and row.not_fitted is None:
            notes.append(
                f"no skill at {row.queries} states: the error of {best[row.queries]} cannot be told from 0; "
                "more rollouts may tell"
            )
    return notes


def _log_notes(seeds: list[SeedEvaluation], settings: LogSettings) -> list[str]:
    """Where estimates from the log come from, and which of them are not to be believed."""
    logs = [seed.logged for seed in seeds if seed.logged is not None]
    count = sum(log.trajectories for log in logs) / len(logs)
    notes = [
        f"off-policy estimates: {count:.0f} trajectories of training for each seed; importance sampling speaks for a "
        f"state by the rule {settings.rule}, fitted Q evaluation directly"
    ]
    said: dict[str, list[str]] = {}
    for log in logs:
        for method, one in log.estimates.items():
            for warning in one.warnings:
                said.setdefault(f"{LABELS[method]}: {warning}", []).append(str(log.seed))
    return notes + [f"seed {', '.join(numbers)}: {warning}" for warning, numbers in said.items()]


def _check_seeds(run: Run, seeds: Sequence[int]) -> list[int]:
    for seed in seeds:
        if seed not in run.seeds:
            raise InputError(f"seeds: {seed} is not one of this run's seeds {run.seeds[0]} to {run.seeds[-1]}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds: {list(seeds)} is not allowed; want at least one, each once")
    return list(seeds)


def _check_passive(run: Run, passive: Run | str | Path) -> Run:
    """A run with an evaluator that did not influence its policy, in the same world."""
    passive = passive if isinstance(passive, Run) else Run.load(passive)
    here, there = run.config, passive.config
    if there.beta > 0 or there.beta_variance > 0:
        raise InputError(
            f"passive: {passive.path} was trained with β = {there.beta:g} and a variance penalty of "
            f"{there.beta_variance:g}; want a run with β = 0 and --evaluator-mode colearned"
        )
    if passive.assessment is None:
        raise InputError(f"passive: {passive.path} has no evaluator; train it with --evaluator-mode colearned")
    settings = [(c.world, c.discount, r.world.horizon) for r, c in ((run, here), (passive, there))]
    if settings[0] != settings[1]:
        raise InputError(
            f"passive: {passive.path} has world, discount and horizon {settings[1]}; want those of the run, {settings[0]}"
        )
    return passive
