"""Evaluation over sites of a family of worlds: the policy takes its test on each site, and its value there is predicted.

A site is a context that is drawn anew and hidden from the policy and from the evaluator. What is predicted is V_c, the mean
return over the start states of the site.
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from evarl.assessment.behaviour import Behaviour
from evarl.evaluation.inputs import UNKNOWN, AssessedPolicy, agent_policy, root_key
from evarl.evaluation.predictions import Assessed, BehaviourPredictor, Predictions
from evarl.evaluation.predictors import (
    BATCH,
    BEST,
    BLIND_CRITIC,
    CRITIC,
    EVALUATOR,
    MEAN,
    SHUFFLED,
    TOLD,
    TOLD_CRITIC,
    ZEROED,
)
from evarl.evaluation.results import SITE, Evaluation, Queries, SeedEvaluation, Sites, predicted, table
from evarl.evaluation.scores import average, over_seeds
from evarl.evaluation.told import told_values
from evarl.runs.checks import not_fitted
from evarl.runs.run import Run
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_assessment, check_rollouts, check_states
from evarl.truth.families import best_evaluator
from evarl.truth.monte_carlo import Truth
from evarl.truth.sites import (
    action_probabilities,
    exact_values,
    is_finite,
    measured_values,
    site_starts,
    start_weights,
)
from evarl.worlds.contexts import draw_contexts
from evarl.worlds.world import Key

SHUFFLES = 16
"""Other sites whose Ξ is shown in place of a site's own, at most."""
PATHS = 20_000
"""Action sequences of a test up to which the best evaluator is found by enumeration."""


@dataclass(frozen=True)
class Places:
    """The sites of an evaluation, which all seeds share."""

    run: Run
    contexts: Float[np.ndarray, "C P"]
    observation: Shaped[Any, "C n ..."]
    """Start states of each site, at which values are predicted."""
    weights: Float[np.ndarray, "C n"]
    """Their shares in the value of the site."""
    starts: Any
    """Start states of rollouts, site by site; None where values are exact."""
    about: str
    """The start states, in words."""
    given: AssessedPolicy | None = None
    """A policy of another package that is evaluated; None for the final policies of the seeds."""

    @property
    def exact(self) -> bool:
        """Whether true values are exact."""
        return self.starts is None

    def mean(self, values: Float[Array | np.ndarray, "C n"]) -> Float[np.ndarray, " C"]:
        """Values at start states, averaged over those of each site."""
        return (np.asarray(values, np.float64) * self.weights).sum(axis=1)


class SiteEffort(NamedTuple):
    """How much is measured."""

    sites: int
    rollouts: int | None
    """Episodes on each site; the simulator's default if None."""
    replicates: int | None
    """Rollouts of each scenario of the assessment; as in training if None."""
    random_seed: int


def evaluate_sites(
    run: Run,
    seeds: Sequence[int],
    effort: SiteEffort,
    notify: Callable[[str], None],
    given: tuple[AssessedPolicy, str] | None = None,
) -> Evaluation:
    """Compare every predictor of a run with the values of its final policies on sites with fresh contexts.

    A given policy, with its name, takes their place.
    """
    sites, rollouts, replicates, random_seed = effort
    rollouts = simulator_for(run.world).default_rollouts if rollouts is None else rollouts
    check_rollouts("rollouts", rollouts, sites, least=2)
    check_states("sites", sites, run.world)
    start_key, root = jax.random.split(root_key(random_seed))
    policy, name = (None, None) if given is None else given
    places = _places(run, start_key, sites, rollouts, policy)
    predictor = None if run.assessment is None else _predictor(run, sites, replicates, name or "the policy")
    found: list[SeedEvaluation] = []
    reasons = []
    with nullcontext() if policy is None else policy.errors():
        for seed in seeds:
            notify(f"{run.path}: seed {seed}")
            reasons.append(None if predictor is None else not_fitted(run.evaluator_state(seed), run.config, seed))
            measured = found[0].queries[SITE].truth if found and policy is not None else None
            found.append(_measure(places, predictor, seed, jax.random.fold_in(root, seed), reasons[-1], measured))
    reason = next(filter(None, reasons), None)
    evaluation = _summarised(places, found, rollouts, reason, random_seed)
    notes = evaluation.notes + ([] if name is None else [left_out(name)])
    return dataclasses.replace(evaluation, policy=name, notes=notes)


def _predictor(run: Run, sites: int, replicates: int | None, policy: str) -> BehaviourPredictor:
    predictor, assessment = BehaviourPredictor(run, replicates, policy), run.assessment
    assert assessment is not None
    replicates = run.config.assessment.replicates if replicates is None else replicates
    check_assessment(run.world, sites * assessment.scenarios, assessment.horizon, replicates)
    return predictor


def _places(run: Run, key: Key, sites: int, rollouts: int, given: AssessedPolicy | None) -> Places:
    """Contexts of all sites and their start states: all that there are where values are exact, else those of rollouts.

    Values are exact in finite worlds, unless the action probabilities of the given policy are not known.
    """
    context_key, key = jax.random.split(key)
    contexts = np.asarray(draw_contexts(run.world.contexts, context_key, sites))
    if is_finite(run.world) and (given is None or given.distribution is not UNKNOWN):
        shown, weights = start_weights(run.world, contexts)
        every = jnp.broadcast_to(shown[None], (sites, *shown.shape))
        return Places(run, contexts, every, weights, None, f"all {len(shown)} of {run.world.name}", given)
    starts = site_starts(run.world, key, contexts, rollouts)
    each = np.asarray(starts.observation)
    each = each.reshape(sites, rollouts, *each.shape[1:])
    if starts.distinct == 1:
        each = each[:, :1]
    weights = np.full(each.shape[:2], 1 / each.shape[1])
    return Places(run, contexts, each, weights, starts, str(starts), given)


def _measure(
    places: Places,
    predictor: BehaviourPredictor | None,
    seed: int,
    key: Key,
    reason: str | None,
    measured: Truth | None = None,
) -> SeedEvaluation:
    """Compare every predictor of a seed with the values of the policy on all sites, which may have been measured before."""
    given = places.given
    policy = agent_policy(places.run, places.run.policy_state(seed)) if given is None else given
    truth = _truth(places, policy, jax.random.fold_in(key, 2)) if measured is None else measured
    predictions, assessment = _controls(places, seed, truth), []
    if predictor is not None:
        test_key = jax.random.fold_in(key, 1)
        if given is None:
            assessed = predictor.assess_seed(seed, test_key, places.contexts)
            predictions |= _batch_mean(places, seed)
        else:
            probes = places.run.evaluator_state(seed).state.probed
            assessed = predictor.assess(given, test_key, places.contexts, probes)
        assessment = assessed.returns.mean(axis=(0, 2)).tolist()
        predictions |= _best(places, policy, assessed)
        if reason is None:
            predictions |= _from_assessments(places, predictor, seed, assessed.behaviour)
    return SeedEvaluation(
        seed=seed,
        discounted=average(truth.value),
        undiscounted=average(truth.undiscounted),
        assessment=assessment,
        queries={SITE: Queries(truth, predictions)},
    )


def _truth(places: Places, policy: AssessedPolicy, key: Key) -> Truth:
    """Values of the policy on all sites."""
    world = places.run.world
    if places.exact:
        return exact_values(world, action_probabilities(world, policy.distribution), places.contexts)
    return measured_values(world, policy.act, places.starts, key, len(places.contexts))


def _from_assessments(places: Places, predictor: BehaviourPredictor, seed: int, shown: Behaviour) -> Predictions:
    """Predictions from what each site's test showed, from the average, and from what the tests of other sites showed."""
    state, sites = places.run.evaluator_state(seed).state, len(places.contexts)

    def values(behaviours: Behaviour) -> Float[np.ndarray, " C"]:
        return places.mean(predictor.predict_sites(state, behaviours, places.observation))

    one = state.mean_behaviour(jax.tree.map(lambda leaf: leaf[0], shown))
    average = jax.tree.map(lambda leaf: np.broadcast_to(leaf[None], (sites, *leaf.shape)), one)
    steps = np.unique(np.linspace(1, sites - 1, SHUFFLES).astype(int)).tolist()
    shuffled = [values(jax.tree.map(lambda leaf, by=by: np.roll(leaf, by, axis=0), shown)) for by in steps]
    return {EVALUATOR: values(shown)[None], ZEROED: values(average)[None], SHUFFLED: np.stack(shuffled)}


def _controls(places: Places, seed: int, truth: Truth) -> Predictions:
    """Predictions that use no test: the seed's critic, the mean over sites, and what knowing the context would give."""
    run, sites = places.run, len(places.contexts)
    constant, told = truth.value.mean(), told_values(run.world.contexts, places.contexts, truth.value)
    references = {MEAN: np.full((1, sites), constant), TOLD: told[None]}
    if places.given is not None:
        return references
    shown = jnp.asarray(places.observation)
    critic = places.mean(run.value(shown, seed))[None]
    found = {CRITIC: critic}
    if run.critic_sees_context:
        inside = jnp.asarray(places.contexts)[:, None]
        found = {BLIND_CRITIC: critic, TOLD_CRITIC: places.mean(run.value(shown, seed, inside))[None]}
    return found | references


def _batch_mean(places: Places, seed: int) -> Predictions:
    return {BATCH: np.full((1, len(places.contexts)), float(places.run.evaluator_state(seed).batch_mean))}


def _best(places: Places, policy: AssessedPolicy, assessed: Assessed) -> Predictions:
    """The best evaluator of these returns; nothing where it is not known."""
    run, assessment = places.run, places.run.assessment
    assert assessment is not None
    world: Any = run.world
    single = assessed.returns.shape[2] == 1 and (places.weights == 1).all()
    if not (places.exact and single and len(world.contexts) == 1 and run.config.assessment.behaviour == "returns"):
        return {}
    if assessment.mapped or assessment.world.name != world.name:
        return {}
    if world.action_space.n**assessment.horizon > PATHS:
        return {}
    probabilities = action_probabilities(world, policy.distribution)
    starts = [int(state) for state in np.asarray(assessment.start_states)]
    best = best_evaluator(world, probabilities, starts, assessment.horizon, discount=assessment.discount)
    return {BEST: np.asarray([[best.posterior_value(row) for row in assessed.returns[:, :, 0].tolist()]])}


def _summarised(
    places: Places, seeds: list[SeedEvaluation], rollouts: int, reason: str | None, random_seed: int
) -> Evaluation:
    """The evaluation of a run from that of its seeds."""
    run, world = places.run, places.run.world
    rows, best = table(seeds, reason)
    has_evaluator = run.assessment is not None and reason is None
    notes = [] if run.assessment is not None else [NO_EVALUATOR]
    return Evaluation(
        run=str(run.path),
        world=run.config.world,
        beta=run.config.beta,
        discount=run.config.discount,
        horizon=world.horizon,
        rollouts=0 if places.exact else rollouts,
        start_states=places.about,
        drawn=places.observation.shape[1] if places.exact else places.starts.drawn,
        distinct=places.observation.shape[1] if places.exact else places.starts.distinct,
        shuffled_with="other sites" if has_evaluator else None,
        seeds=seeds,
        rows=rows,
        policies={},
        not_fitted=reason,
        best_without=best,
        discounted=over_seeds([seed.discounted for seed in seeds], places.given is not None),
        undiscounted=over_seeds([seed.undiscounted for seed in seeds], places.given is not None),
        notes=notes + ([] if reason is None else [reason]),
        passive=None,
        predicted=predicted(seeds, SITE),
        random_seed=random_seed,
        sites=Sites(
            contexts=[str(context) for context in world.contexts],
            names=[context.name for context in world.contexts],
            drawn=places.contexts,
            exact=places.exact,
            random_seed=random_seed,
        ),
    )


def left_out(policy: str) -> str:
    """What is not said about a policy of another package."""
    return (
        f"the policy is {policy}: critics, last batches and logs are those of the run's own policies, and are left out; "
        "`evarl assess` tells whether an evaluator knows such policies"
    )


NO_EVALUATOR = "this run has no evaluator: train with --beta, or with --evaluator-mode colearned"
