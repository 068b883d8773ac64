"""`assess`: the assessment of one policy, and the value that a run's evaluator predicts from it."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from evarl.assessment.behaviour import Behaviour
from evarl.assessment.scenarios import given_states, parse_start_states
from evarl.errors import InputError
from evarl.evaluation.calibration import calibrated
from evarl.evaluation.described import described_assessment
from evarl.evaluation.inputs import (
    UNKNOWN,
    AssessedPolicy,
    agent_policy,
    opened,
    outside_given,
    read_policy,
    root_key,
)
from evarl.evaluation.knowledge import Judgement, judge
from evarl.evaluation.predictions import Assessed, BehaviourPredictor
from evarl.evaluators.evaluator import LearntEvaluator, features
from evarl.ranges import whole
from evarl.runs.checks import not_fitted
from evarl.runs.run import Run
from evarl.settings import checked
from evarl.simulation.episodes import StartStates
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_rollouts, check_states
from evarl.truth.sites import action_probabilities, exact_values, is_finite, measured_values, site_starts
from evarl.worlds.contexts import draw_contexts, outside_training, parse_contexts, parse_site
from evarl.worlds.world import Key

TOLERANCE = 1e-5
"""Relative difference below which two returns count as equal: different programs round differently."""


class OutsideTraining(NamedTuple):
    """A scenario, counted from 1, in which a number of the behaviour is outside of the range the evaluator was fitted to."""

    scenario: int
    returned: float
    lowest: float
    highest: float


class SiteValue(NamedTuple):
    """The true value of a policy on one site: its mean return over the start states there."""

    value: float
    standard_error: float | None
    """None for a value by dynamic programming, which is exact."""
    episodes: int
    """0 for an exact value."""


@dataclass(frozen=True)
class AssessmentResult:
    """The returns of a policy in the assessment, and the values predicted from it."""

    run: str
    world: str
    seed: int
    """Seed of the evaluator and, unless another policy is given, of the policy."""
    policy: str
    observations: np.ndarray
    """[k, ...] observations at the start states of the scenarios."""
    returns: Float[np.ndarray, "k R"]
    behaviour: Float[np.ndarray, "k B"]
    """The numbers that the evaluator was given for each start state; with the behaviour `returns`, the mean return."""
    lowest: Float[np.ndarray, "k B"]
    """Least and greatest of these numbers in training."""
    highest: Float[np.ndarray, "k B"]
    not_fitted: str | None
    """Why the evaluator predicts nothing; None if it was fitted."""
    predicted: Float[np.ndarray, " N"]
    """V̂ at the start states; one value if all start states are equal, none if the evaluator was not fitted."""
    drawn: int
    """Number of start states drawn from μ_D."""
    distinct: int
    states: list[tuple[float, ...]]
    """States given by the user."""
    predicted_at_states: Float[np.ndarray, " Q"]
    """V̂ at these states; empty if the evaluator was not fitted."""
    context: dict[str, float] | None = None
    """In a family of worlds: the hidden numbers of the site on which the policy was assessed."""
    context_drawn: bool = False
    """Whether they were drawn, and not given."""
    outside_contexts: list[str] = field(default_factory=list)
    """Sentences about given numbers that training never draws."""
    truth: SiteValue | None = None
    """In a family of worlds: the policy's value there, unless it was not asked for; in a single world, if it was asked for."""
    evaluator: str | None = None
    """File of the evaluator; None for that of the run."""
    judgement: Judgement = Judgement(None, None, None, None)
    """What the evaluator knows about such policies: an interval, and a warning if it knows nothing."""
    random_seed: int = 0
    """Of the one draw of the test from which the value is predicted; another draw gives another prediction."""

    def __repr__(self) -> str:
        return described_assessment(self)

    @property
    def mean_returns(self) -> Float[np.ndarray, " k"]:
        """Mean return of each scenario."""
        return self.returns.mean(axis=1)

    @property
    def standard_errors(self) -> Float[np.ndarray, " k"] | None:
        """Standard errors of the mean returns; None for a single replicate."""
        replicates = self.returns.shape[1]
        return self.returns.std(axis=1, ddof=1) / replicates**0.5 if replicates > 1 else None

    @property
    def outside_training(self) -> list[OutsideTraining]:
        """Scenarios in which a number of the behaviour is outside of its range in training."""
        slack = TOLERANCE * np.maximum(1.0, np.abs(self.behaviour))
        beyond = (self.behaviour < self.lowest - slack) | (self.behaviour > self.highest + slack)
        tables = self.behaviour, self.lowest, self.highest
        return [OutsideTraining(int(i) + 1, *(float(x[i, j]) for x in tables)) for i, j in np.argwhere(beyond)]

    @property
    def mean(self) -> float | None:
        """Predicted deployment value, averaged over μ_D; None if the evaluator was not fitted."""
        return float(self.predicted.mean()) if len(self.predicted) else None

    @property
    def standard_deviation(self) -> float | None:
        """Standard deviation of the predictions over start states; None if there is only one."""
        return float(self.predicted.std(ddof=1)) if len(self.predicted) > 1 else None


@checked
def assess(
    run: Run | str | Path,
    seed: int | None = None,
    policy: Any = None,
    policy_import: str | None = None,
    policy_seed: int = 0,
    states: str = "",
    samples: int = 64,
    replicates: int | None = None,
    random_seed: int = 0,
    context: Sequence[str] | Mapping[str, float] | None = None,
    truth_episodes: int | None = None,
    evaluator: str | Path | None = None,
    interval: bool = True,
) -> AssessmentResult:
    """Roll a policy through the run's assessment once and predict its value with the evaluator of `seed` (the first).

    The policy is the final one of that seed, one from a file (`policy`; of a checkpoint the `policy_seed`-th), a policy of
    another package (`policy`, as `evarl.wrap_policy` takes it), or given as "module:name" (`policy_import`). `evaluator` is the
    file of another evaluator for the same assessment, as made by `evarl pretrain`. In a family of worlds, the assessment is
    taken on one site, whose `context` is given as {"bridge": 0.4} or drawn. The value there is exact where the world is finite,
    else measured by `truth_episodes` episodes (256, or 32 on the host; 0 leaves it out); in a single world, that of a policy from
    elsewhere is measured if they are given. Without an `interval`, no perturbed policies are tried to find out how wrong the
    evaluator is.

    >>> import evarl, tempfile
    >>> fitted = {"evaluator.warmup": 1, "evaluator.initial_steps": 5, "beta": 0.05, "updates": 2, "steps": 8}
    >>> run = evarl.train(evarl.with_settings(evarl.preset("navigation"), fitted), out=tempfile.mkdtemp(), quiet=True)
    >>> evarl.assess(run, interval=False).mean_returns.shape
    (4,)
    """
    run = opened(run)
    check_states("samples", samples, run.world)
    seed = run.seeds[0] if seed is None else seed
    learnt = run.evaluator_state(seed, evaluator)
    given, queries = parse_states(run, states)
    assessed_policy, name = _policy(run, seed, policy, policy_import, policy_seed)
    start_key, assessment_key = jax.random.split(root_key(random_seed))
    predictor = BehaviourPredictor(run, replicates, name if policy_import is None else f"policy-import: '{name}'")
    context_key, truth_key = jax.random.split(jax.random.fold_in(start_key, 1))
    elsewhere = policy_import is not None or not isinstance(policy, str | Path | None)
    site, on_site = _site(run, context, context_key, None if elsewhere else truth_episodes)
    keys = start_key, assessment_key
    with assessed_policy.errors():
        starts, assessed = _tested(run, predictor, (assessed_policy, learnt.state.probed), site, keys, samples)
        if site is not None or truth_episodes:
            on_site["truth"] = _truth(run, assessed_policy, site, truth_key, truth_episodes)
    if interval and not_fitted(learnt, run.config, seed) is None:
        learnt = calibrated(run, seed, learnt, own=evaluator is None)
    found = _result(run, (seed, learnt), name, predictor, starts, assessed)
    if given:
        at_states = np.empty(0) if found.not_fitted else predictor.predict(learnt.state, assessed.behaviour, queries)
        found = dataclasses.replace(found, states=given, predicted_at_states=at_states)
    named = None if evaluator is None else str(evaluator)
    return dataclasses.replace(found, evaluator=named, random_seed=random_seed, **on_site)


def assess_policy(
    run: Run, policy: AssessedPolicy, name: str, seed: int | None = None, samples: int = 64, random_seed: int = 0
) -> AssessmentResult:
    """As `assess` in a single world, for a policy that is at hand."""
    keys = jax.random.split(root_key(random_seed))
    predictor, seed = BehaviourPredictor(run, None, name), run.seeds[0] if seed is None else seed
    learnt = run.evaluator_state(seed)
    starts, assessed = _tested(run, predictor, (policy, learnt.state.probed), None, (keys[0], keys[1]), samples)
    if not_fitted(learnt, run.config, seed) is None:
        learnt = calibrated(run, seed, learnt)
    return _result(run, (seed, learnt), name, predictor, starts, assessed)


def _result(
    run: Run,
    evaluator: tuple[int, LearntEvaluator],
    name: str,
    predictor: BehaviourPredictor,
    starts: StartStates,
    assessed: Assessed,
) -> AssessmentResult:
    """The value that the evaluator of a seed predicts, and what it knows about such policies."""
    seed, learnt = evaluator
    reason = not_fitted(learnt, run.config, seed)
    predicted = np.empty(0) if reason else predictor.predict(learnt.state, assessed.behaviour, starts.queries)
    mean = None if reason else float(predicted.mean())
    return AssessmentResult(
        run=str(run.path),
        world=run.config.world,
        seed=seed,
        policy=name,
        observations=np.asarray(learnt.scenarios),
        returns=assessed.returns,
        behaviour=_numbers(assessed.behaviour),
        lowest=_numbers(learnt.lowest),
        highest=_numbers(learnt.highest),
        not_fitted=reason,
        predicted=predicted,
        drawn=starts.drawn,
        distinct=starts.distinct,
        states=[],
        predicted_at_states=np.empty(0),
        judgement=judge(learnt, assessed.behaviour, mean, run.world.return_range() or (-np.inf, np.inf)),
    )


def _tested(
    run: Run,
    predictor: BehaviourPredictor,
    asked: tuple[AssessedPolicy, Array | None],
    site: Float[np.ndarray, " P"] | None,
    keys: tuple[Key, Key],
    samples: int,
) -> tuple[StartStates, Assessed]:
    """Start states of deployment, and the assessment of a policy at some probes; both on one site of a family of worlds."""
    (policy, probes), (start_key, assessment_key) = asked, keys
    if site is None:
        starts = simulator_for(run.world).start_states(start_key, samples)
        return starts, predictor.assess(policy, assessment_key, probes=probes)
    starts = site_starts(run.world, start_key, site[None], samples)
    return starts, predictor.assess_site(policy, assessment_key, site, probes)


def _numbers(behaviour: Behaviour) -> Float[np.ndarray, "k B"]:
    return np.asarray(features(behaviour), np.float64)


def _site(
    run: Run, given: Sequence[str] | Mapping[str, float] | None, key: Key, episodes: int | None
) -> tuple[Float[np.ndarray, " P"] | None, dict[str, Any]]:
    """The context of the site that is given, else of one that is drawn, and what is told about it; none in a single world."""
    world = run.world
    if not world.contexts:
        _refuse_site(run, given, episodes)
        return None, {}
    texts = [f"{name}={value!r}" for name, value in given.items()] if isinstance(given, Mapping) else given or ()
    site = parse_site(texts, world.contexts, run.config.world)
    drawn = site is None
    if site is None:
        site = np.asarray(draw_contexts(world.contexts, key, 1))[0]
        told = []
    else:
        parse_contexts(texts, world.parameters, run.config.world)  # refuses what the world does not allow
        told = outside_training(site, world.contexts)
    named = {one.name: float(f"{value:.7g}") for one, value in zip(world.contexts, site.tolist(), strict=True)}
    return site, {"context": named, "context_drawn": drawn, "outside_contexts": told}


def _truth(
    run: Run, policy: AssessedPolicy, site: Float[np.ndarray, " P"] | None, key: Key, episodes: int | None
) -> SiteValue | None:
    """The policy's value on a site, or in a single world; None if no episodes are asked for."""
    world = run.world
    if episodes is not None:
        whole("truth-episodes", episodes, least=0)
    if episodes == 0:
        return None
    if site is not None and policy.distribution is not UNKNOWN and is_finite(world):
        return SiteValue(
            float(exact_values(world, action_probabilities(world, policy.distribution), site[None]).value[0]), None, 0
        )
    episodes = 4 * simulator_for(world).default_rollouts if episodes is None else episodes
    check_rollouts("truth-episodes", episodes, least=2)
    check_states("truth-episodes", episodes, world)
    start_key, walk_key = jax.random.split(key)
    if site is None:
        drawn = simulator_for(world).start_states(start_key, episodes)
        returns = np.asarray(simulator_for(world).episode_returns(policy.act, drawn, walk_key).discounted, np.float64)
        return SiteValue(float(returns.mean()), float(returns.std(ddof=1) / episodes**0.5), episodes)
    starts = site_starts(world, start_key, site[None], episodes)
    found = measured_values(world, policy.act, starts, walk_key, 1)
    return SiteValue(float(found.value[0]), float(found.standard_error[0]), episodes)


def _refuse_site(run: Run, context: Sequence[str] | Mapping[str, float] | None, episodes: int | None) -> None:
    """Refuse what only a family of worlds has."""
    if context:
        parse_site(list(context), (), run.config.world)
    if episodes is not None:
        raise InputError(
            f"truth-episodes: {run.config.world} was trained without contexts; `evarl evaluate` measures true values"
        )


def _policy(run: Run, seed: int, file: Any, imported: str | None, index: int) -> tuple[AssessedPolicy, str]:
    """The policy that is assessed, and its name."""
    if isinstance(file, str | Path) and imported is None:
        return read_policy(run, Path(file), index), str(file)
    given = outside_given(run, file, imported)
    return given or (agent_policy(run, run.policy_state(seed)), f"final policy of seed {seed}")


def parse_states(run: Run, text: str) -> tuple[list[tuple[float, ...]], Any]:
    """States written as numbers, and their observations [Q, ...]; only for worlds whose states can be written so."""
    if not text.strip():
        return [], None
    world = run.world
    if not (world.can_restart or world.state_fields):
        raise InputError(f"states: not possible in {world.name}, which is not compiled by JAX")
    states = parse_start_states(text, "states")
    return states, simulator_for(world).observations(given_states(world, states, "states"))
