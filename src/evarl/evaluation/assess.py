"""The driver's test of one policy: what it shows in the assessment, and what the evaluator makes of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Float

from evarl.assessment.scenarios import given_states, parse_start_states
from evarl.errors import InputError
from evarl.evaluation.policies import import_policy, read_policy
from evarl.evaluation.subjects import predictor, root_key, taker
from evarl.learning.examiner import LearntEvaluator
from evarl.runs.checks import not_fitted
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.simulation.rollouts import Act
from evarl.simulation.simulator import simulator_for
from evarl.sizes import check_states

TOLERANCE = 1e-5
"""Two programs may round the same return differently; closer than this, relative to its size, counts as equal."""


@dataclass(frozen=True)
class Outside:
    """An assessment return that the evaluator has met nothing like."""

    scenario: int
    """Counted from 1."""
    returned: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Examination:
    """What a policy showed, and the value that is predicted from it."""

    run: str
    world: str
    seed: int
    """Whose evaluator, and unless another policy is given, whose policy."""
    policy: str
    observations: np.ndarray
    """[k, ...] what policies see at the start states of the scenarios."""
    returns: Float[np.ndarray, "k R"]
    lowest: Float[np.ndarray, " k"]
    """Least and greatest returns that the evaluator met in training."""
    highest: Float[np.ndarray, " k"]
    not_fitted: str | None
    """Why the evaluator predicts nothing; None if it was fitted."""
    predicted: Float[np.ndarray, " N"]
    """V̂ at the start states of the deployment world; one if all that were drawn are the same, none if it was not fitted."""
    drawn: int
    """Start states drawn from μ_D."""
    distinct: int
    states: list[tuple[float, ...]]
    """States of the user's choice."""
    predicted_at_states: Float[np.ndarray, " Q"]
    """Empty if the evaluator was not fitted."""

    @property
    def shown(self) -> Float[np.ndarray, " k"]:
        """Ξ: the mean return of each scenario."""
        return self.returns.mean(axis=1)

    @property
    def outside_training(self) -> list[Outside]:
        """Scenarios in which the policy did better or worse than any the evaluator has met."""
        slack = TOLERANCE * np.maximum(1.0, np.abs(self.shown))
        beyond = (self.shown < self.lowest - slack) | (self.shown > self.highest + slack)
        columns = self.shown, self.lowest, self.highest
        return [Outside(int(i) + 1, *(float(column[i]) for column in columns)) for i in np.flatnonzero(beyond)]

    @property
    def mean(self) -> float | None:
        """The predicted deployment value, averaged over μ_D; None if the evaluator was not fitted."""
        return float(self.predicted.mean()) if len(self.predicted) else None

    @property
    def spread(self) -> float | None:
        """Standard deviation of the predictions over start states; None when there is only one."""
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
) -> Examination:
    """Roll a policy through the run's assessment once and ask the evaluator of `seed` (the first) for its value.

    The policy is the final one of that seed, one from a file (`policy`; of a checkpoint the `policy_seed`-th), or a
    callable given as "module:name" (`policy_import`). `random_seed` fixes all that is random.

    >>> import dataclasses, evarl, tempfile
    >>> evaluator = dataclasses.replace(evarl.preset("navigation").evaluator, warmup=1, initial_steps=5)
    >>> small = {"beta": 0.05, "updates": 2, "environments": 2, "steps": 8, "evaluator": evaluator}
    >>> run = evarl.train("navigation", out=tempfile.mkdtemp(), quiet=True, **small)
    >>> evarl.assess(run).shown.shape
    (4,)
    """
    run = run if isinstance(run, Run) else Run.load(run)
    keep_compiled_programs()
    if policy is not None and policy_import is not None:
        raise InputError("policy and policy-import: only one of them can say which policy is assessed")
    check_states("samples", samples, run.world)
    learnt = run.evaluator_state(seed)
    seed = run.seeds[0] if seed is None else seed
    examiner = run.learner.examiner
    assert examiner is not None
    reason = not_fitted(learnt, run.config, seed)
    act, name = _policy(run, seed, policy, policy_import, policy_seed)
    who = f"policy-import: '{name}'" if policy_import is not None else name
    start_key, show_key = jax.random.split(root_key(random_seed))
    starts = simulator_for(run.world).start_states(start_key, samples)
    returns = taker(run, replicates, who)(act, show_key)
    asked = parse_states(run, states)
    return Examination(
        run=str(run.path),
        world=run.config.world,
        seed=seed,
        policy=name,
        observations=np.asarray(learnt.scenarios),
        returns=returns,
        lowest=np.asarray(learnt.lowest, np.float64),
        highest=np.asarray(learnt.highest, np.float64),
        not_fitted=reason,
        predicted=np.empty(0) if reason else _predict(run, learnt, returns, starts.shown),
        drawn=starts.drawn,
        distinct=starts.distinct,
        states=asked[0],
        predicted_at_states=np.empty(0) if reason or not asked[0] else _predict(run, learnt, returns, asked[1]),
    )


def _policy(run: Run, seed: int, file: str | Path | None, imported: str | None, index: int) -> tuple[Act, str]:
    """The policy that is assessed, and what it is called."""
    if imported is not None:
        return Partial(import_policy(imported, run.world)), imported
    if file is not None:
        return Partial(run.learner.agent.act, read_policy(run, Path(file), index)), str(file)
    return Partial(run.learner.agent.act, run.policy_state(seed)), f"final policy of seed {seed}"


def parse_states(run: Run, text: str) -> tuple[list[tuple[float, ...]], Any]:
    """States written as numbers, and what the policy sees there; only for worlds whose physics is a single array."""
    if not text.strip():
        return [], None
    world = run.world
    plain = "want a world whose state is a list of numbers"
    if not world.can_restart:
        raise InputError(f"states: cannot be given in {world.name}, which lives outside of JAX; {plain}")
    if len(jax.tree.leaves(simulator_for(world).start_template())) != 1:
        raise InputError(f"states: a state of {world.name} is more than a list of numbers; {plain}")
    states = parse_start_states(text, "states")
    return states, simulator_for(world).observations(jnp.asarray(given_states(world, states, "states")))


def _predict(run: Run, learnt: LearntEvaluator, returns: np.ndarray, queries: Any) -> Float[np.ndarray, " Q"]:
    examiner = run.learner.examiner
    assert examiner is not None
    return predictor(examiner.evaluator)(learnt.state, returns.mean(axis=1)[None], queries)[0]
