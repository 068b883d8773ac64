"""`assess`: the assessment of one policy, and the value that a run's evaluator predicts from it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from evarl.assessment.scenarios import given_states, parse_start_states
from evarl.errors import InputError
from evarl.evaluation.inputs import AssessedPolicy, agent_policy, import_policy, opened, read_policy, root_key
from evarl.evaluation.predictions import BehaviourPredictor
from evarl.evaluators.evaluator import features
from evarl.runs.checks import not_fitted
from evarl.runs.run import Run
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_states

TOLERANCE = 1e-5
"""Relative difference below which two returns count as equal: different programs round differently."""


class OutsideTraining(NamedTuple):
    """A scenario, counted from 1, in which a number of the behaviour is outside of the range the evaluator was fitted to."""

    scenario: int
    returned: float
    lowest: float
    highest: float


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


def assess(
    run: Run | str | Path,
    seed: int | None = None,
    policy: str | Path | None = None,
    policy_import: str | None = None,
    policy_seed: int = 0,
    states: str = "",
    samples: int = 64,
    replicates: int | None = None,
    random_seed: int = 0,
) -> AssessmentResult:
    """Roll a policy through the run's assessment once and predict its value with the evaluator of `seed` (the first).

    The policy is the final one of that seed, one from a file (`policy`; of a checkpoint the `policy_seed`-th), or a
    function given as "module:name" (`policy_import`).

    >>> import dataclasses, evarl, tempfile
    >>> evaluator = dataclasses.replace(evarl.preset("navigation").evaluator, warmup=1, initial_steps=5)
    >>> small = {"beta": 0.05, "updates": 2, "environments": 2, "steps": 8, "evaluator": evaluator}
    >>> run = evarl.train("navigation", out=tempfile.mkdtemp(), quiet=True, **small)
    >>> evarl.assess(run).mean_returns.shape
    (4,)
    """
    run = opened(run)
    if policy is not None and policy_import is not None:
        raise InputError("policy and policy-import: only one of them can be given")
    check_states("samples", samples, run.world)
    learnt = run.evaluator_state(seed)
    seed = run.seeds[0] if seed is None else seed
    given, queries = parse_states(run, states)
    assessed_policy, name = _policy(run, seed, policy, policy_import, policy_seed)
    start_key, assessment_key = jax.random.split(root_key(random_seed))
    starts = simulator_for(run.world).start_states(start_key, samples)
    predictor = BehaviourPredictor(run, replicates, name if policy_import is None else f"policy-import: '{name}'")
    assessed = predictor.assess(assessed_policy, assessment_key)
    behaviours = (assessed.behaviour, learnt.lowest, learnt.highest)
    numbers, lowest, highest = (np.asarray(features(one), np.float64) for one in behaviours)
    reason = not_fitted(learnt, run.config, seed)

    def predict(queries: Any) -> Float[np.ndarray, " Q"]:
        return np.empty(0) if reason else predictor.predict(learnt.state, assessed.behaviour, queries)

    return AssessmentResult(
        run=str(run.path),
        world=run.config.world,
        seed=seed,
        policy=name,
        observations=np.asarray(learnt.scenarios),
        returns=assessed.returns,
        behaviour=numbers,
        lowest=lowest,
        highest=highest,
        not_fitted=reason,
        predicted=predict(starts.queries),
        drawn=starts.drawn,
        distinct=starts.distinct,
        states=given,
        predicted_at_states=predict(queries) if given else np.empty(0),
    )


def _policy(
    run: Run, seed: int, file: str | Path | None, imported: str | None, index: int
) -> tuple[AssessedPolicy, str]:
    """The policy that is assessed, and its name."""
    if imported is not None:
        return import_policy(imported, run.world), imported
    if file is not None:
        return read_policy(run, Path(file), index), str(file)
    return agent_policy(run, run.policy_state(seed)), f"final policy of seed {seed}"


def parse_states(run: Run, text: str) -> tuple[list[tuple[float, ...]], Any]:
    """States written as numbers, and their observations [Q, ...]; only for worlds whose physics is a single array."""
    if not text.strip():
        return [], None
    world = run.world
    if not world.can_restart:
        raise InputError(f"states: not possible in {world.name}, which is not compiled by JAX")
    states = parse_start_states(text, "states")
    return states, simulator_for(world).observations(jnp.asarray(given_states(world, states, "states")))
