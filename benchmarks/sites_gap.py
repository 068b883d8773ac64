"""`python -m benchmarks.sites_gap RUN …`: what a run's evaluator is worth in bounds on new sites, against a constant prediction.

A run with `--evaluator.lower-quantile` has two predictors: the value and a lower quantile of it.

Runs are trained in `crossing` over hidden contexts. A repetition draws n calibration sites and one new site, tests the policy on
all of them, and bounds the return on the new one. The expected return on every site is known exactly. Sites, tests and episodes
are simulated once for each policy, and a repetition takes its own of them.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks.found import Found
from evarl import bounds
from evarl.bounds.sites import VALUE_ERROR
from evarl.certificates.certified_policy import CertifiedPolicy
from evarl.certificates.names import PredictorName
from evarl.errors import InputError
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.simulation.simulator import simulator_for
from evarl.truth.families import context_values
from evarl.worlds.contexts import draw_contexts
from evarl.worlds.crossing import START, STATES, Crossing, cell

LEVELS = (0.1, 0.05)
AT_ONCE = 500
"""Sites that are simulated in one program."""
CONSTANT = "constant"
CLAIMS = {"site-return": 0.0, "site-value": VALUE_ERROR}
"""Claims, and the level of the lower bounds on the expected return."""


@dataclasses.dataclass(frozen=True)
class Pool:
    """Sites that were drawn: expected returns, predictions from one test, means of episodes and lower bounds on expectations."""

    values: np.ndarray
    predictions: dict[str, np.ndarray]
    """By name of the predictor; those of one site are from the same test."""
    means: np.ndarray
    lower: np.ndarray


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much is simulated."""

    sites: int = 100
    """Calibration sites."""
    episodes: int = 100
    """Episodes on each site."""
    repetitions: int = 500
    """Calibrations with one new site each, shared by the policies of a run."""
    pool: int = 4000
    """Sites of which those of a repetition are taken."""


DEFAULT = Settings()


def exact_values(policy: CertifiedPolicy, contexts: np.ndarray) -> np.ndarray:
    """The expected return from the start on each site, [N]."""
    world, run = policy.world, policy.run
    assert isinstance(world, Crossing)
    seen = jax.vmap(world.observation)(jnp.arange(STATES, dtype=jnp.int32))
    probabilities = np.asarray(
        jax.nn.softmax(run.learner.agent.distribution(run.policy_state(policy.seed), seen).logits)
    )
    different, places = np.unique(contexts, axis=0, return_inverse=True)
    return context_values(world, probabilities.astype(np.float64), different)[places.ravel(), cell(*START)]


def simulated(policy: CertifiedPolicy, settings: Settings, key: jax.Array) -> Pool:
    """Draw sites; on each, take the test once and play some episodes."""
    world = policy.world
    if not isinstance(world, Crossing) or not world.contexts:
        raise InputError(f"runs: {policy.run.path} is not a run in crossing over hidden contexts")
    site_key, start_key, test_key, walk_key = jax.random.split(key, 4)
    contexts = draw_contexts(world.contexts, site_key, settings.pool)
    queries = simulator_for(world).start_states(start_key, 1).queries
    names: list[PredictorName] = ["value", "quantile"] if policy.has_lower_quantile else ["value"]
    columns: dict[str, list[np.ndarray]] = {name: [] for name in names}
    returns = []
    for first in range(0, settings.pool, AT_ONCE):
        here = contexts[first : first + AT_ONCE]
        for name in names:  # with one key: the same tests
            columns[name].append(policy.predicted_at(here, jax.random.fold_in(test_key, first), queries, name))
        returns.append(policy.returns_at(here, jax.random.fold_in(walk_key, first), settings.episodes))
    predicted, rows = {name: np.concatenate(column) for name, column in columns.items()}, np.concatenate(returns)
    limits = bounds.Range(*world.return_range())
    lower = np.asarray(bounds.SiteCalibration.bounded(predicted["value"], rows, limits).returns)
    predicted[CONSTANT] = np.zeros(settings.pool)
    return Pool(exact_values(policy, np.asarray(contexts)), predicted, rows.mean(axis=1), lower)


def coverage(pool: Pool, settings: Settings, claim: str, alpha: float, predictor: str = "value") -> Found:
    """Whether the bound held on the new site of each repetition, and its gap to the expected return there."""
    error, value, predictions = CLAIMS[claim], claim == "site-value", pool.predictions[predictor]
    known, truths = (pool.lower, pool.values) if value else (pool.means, pool.means)
    rng = np.random.default_rng(11)
    covered, gaps = np.empty(settings.repetitions, bool), np.empty(settings.repetitions)
    for i in range(settings.repetitions):
        *old, new = rng.choice(settings.pool, settings.sites + 1, replace=False)
        calibration = bounds.SiteCalibration(predictions[old], known[old], settings.episodes, value_error=error)
        bound = bounds.site_bound(calibration, alpha).at(predictions[new])
        covered[i], gaps[i] = truths[new] >= bound, pool.values[new] - bound
    return Found(covered, gaps)


def table(runs: list[Run], settings: Settings, notify: Callable[[str], None] = print) -> str:
    """The table in Markdown, over the policies of all seeds of each run."""
    lines = [
        f"{settings.repetitions} repetitions for each policy, each with {settings.sites} calibration sites, "
        f"{settings.episodes} episodes on each.",
        "",
        "| run | prediction | error over sites | "
        + " | ".join(f"{claim}, {100 * (1 - a):g} %" for claim in CLAIMS for a in LEVELS)
        + " |",
        "| --- " * (3 + len(CLAIMS) * len(LEVELS)) + "|",
    ]
    for run in runs:
        pools = [simulated(CertifiedPolicy(run, seed), settings, jax.random.PRNGKey(seed)) for seed in run.seeds]
        for name in pools[0].predictions:
            cells = [_cell(pools, settings, claim, alpha, name) for claim in CLAIMS for alpha in LEVELS]
            errors = np.mean([_error(pool, name) for pool in pools])
            lines.append(f"| {run.path.name} | {name} | {errors:.3f} | " + " | ".join(cells) + " |")
            notify(lines[-1])
    return "\n".join(lines)


def _cell(pools: list[Pool], settings: Settings, claim: str, alpha: float, predictor: str) -> str:
    found = [coverage(pool, settings, claim, alpha, predictor) for pool in pools]
    parts = (np.concatenate([getattr(one, part) for one in found]) for part in ("covered", "gaps"))
    return Found(*parts).cell()


def _error(pool: Pool, predictor: str) -> float:
    """The root mean squared error over sites; of a constant, that of the best one."""
    errors = pool.values - pool.predictions[predictor]
    return float(np.std(errors) if predictor == CONSTANT else np.sqrt(np.mean(errors**2)))


def main(runs: Annotated[tuple[str, ...], tyro.conf.Positional], settings: Settings = DEFAULT) -> None:
    """Print the table: coverage in per cent ± its standard error, and the mean of expected return − bound."""
    keep_compiled_programs()
    print("\n" + table([Run.load(path) for path in runs], settings))


if __name__ == "__main__":
    tyro.cli(main)
