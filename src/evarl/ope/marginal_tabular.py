"""Marginalised importance sampling of a log whose observations are finitely many states: see `evarl.ope.marginal`."""

import jax
import numpy as np
from jaxtyping import Float, Int

from evarl.errors import InputError
from evarl.ope.checks import state_warnings
from evarl.ope.dataset import LoggedData
from evarl.ope.fqe_table import row_observations, rows, target_actions
from evarl.ope.log import SAME, Estimate, Log
from evarl.ope.marginal import Marginal, Visits, bootstrap, marginal, work
from evarl.ope.policy import TargetPolicy
from evarl.ope.settings import FQEConfig, Settings
from evarl.ope.tabular import prepare_tabular, solve_tabular, tabular_obstacle
from evarl.ope.uncertainty import few
from evarl.stats.intervals import Interval
from evarl.stats.skewed import bootstrap_interval, skewed_t_interval

MOST_STATES = 2000
"""Of a finite world: the linear system has as many unknowns."""
MOST_WORK = 3e10
"""Multiplications for all bootstrap samples, above which there is no bootstrap interval: about half a minute."""
LONGEST = 1e9
"""Mean number of steps until termination, above which it is a rounding error that there is one."""
NEGLIGIBLE = 1e-9
"""Part of the policy's visits that is rounding error."""
UNKNOWN = 0.01
"""Part of the policy's visits outside of what several trajectories know, above which there is no standard error."""


def marginal_tabular(log: Log, policy: TargetPolicy, settings: Settings) -> Estimate:
    """Marginalised importance sampling with states recognised by their observations."""
    data, config = log.data, settings.marginal
    if not data.discrete:
        raise InputError("action: is continuous in this log; mis-tabular requires discrete actions, dualdice does not")
    state, observations = distinct_states(row_observations(data))
    horizon = data.length if settings.horizon == "finite" else None
    chances = np.asarray(target_actions(FQEConfig(), data, policy, jax.random.PRNGKey(0), observations), np.float64)
    chances /= chances.sum(axis=1, keepdims=True)
    visits = _visits(data, state, chances, log.discount, horizon, config.transitions == "per-step")
    found = _solved(visits)
    unknown, once = 1.0 - found.supported, _seen_once(visits, found)
    notes = _notes(visits, unknown, once)
    intervals: dict[str, Interval] = {}
    error = None
    if unknown + once <= UNKNOWN and len(visits.start) > 1:
        error, intervals, missing = _uncertainty(visits, found, settings)
        notes += missing + _of_states(log, policy, settings, found)
    size, largest = _concentration(visits, found)
    return Estimate(
        value=found.value,
        state_values=_state_values(log, observations, found.state_values),
        standard_error=error,
        intervals=intervals,
        effective_sample_size=size,
        largest_weight_share=largest,
        warnings=notes,
    )


def _of_states(log: Log, policy: TargetPolicy, settings: Settings, found: Marginal) -> tuple[str, ...]:
    """Whether weighted residuals of the tabular Q function agree that observations are states."""
    if log.data.log_prob is None or tabular_obstacle(log) is not None:
        return ()
    prepared = prepare_tabular(settings.fitting(), log.data, policy, log.discount)
    solved = solve_tabular(*prepared, np.ones(len(prepared[1].row)))
    return state_warnings(log, policy, settings, solved.values_of(log.data), found.value + found.influence)


def distinct_states(observation: np.ndarray) -> tuple[Int[np.ndarray, " R"], np.ndarray]:
    """The state of each of the observations [R, ...], and one observation of each state [S, ...].

    >>> distinct_states(np.array([[0.5], [2.0], [0.5]]))
    (array([0, 1, 0]), array([[0.5],
           [2. ]]))
    """
    _, first, state = np.unique(_rounded(observation), axis=0, return_index=True, return_inverse=True)
    if len(first) > MOST_STATES:
        raise InputError(
            f"observation: has {len(first)} different values in this log; mis-tabular allows at most {MOST_STATES} states, "
            "dualdice has no limit"
        )
    return state.reshape(-1), observation[first]


def _rounded(observation: np.ndarray) -> Float[np.ndarray, "R F"]:
    """In units within which observations are the same; − 0 becomes 0."""
    return np.round(np.asarray(observation, np.float64).reshape(len(observation), -1) / SAME) + 0.0


def _visits(
    data: LoggedData,
    state: Int[np.ndarray, " R"],
    chances: Float[np.ndarray, "S A"],
    discount: float,
    horizon: int | None,
    per_step: bool,
) -> Visits:
    """The steps of a log, by their place in trajectories."""
    trajectory, step = rows(data)
    moves = np.flatnonzero(step < np.asarray(data.mask).sum(axis=1)[trajectory])
    start = state[np.flatnonzero(step == 0)]
    moves = moves[np.argsort(step[moves], kind="stable")]
    at = trajectory[moves], step[moves]
    ended = np.asarray(data.terminated)[at]
    if horizon is None and discount == 1 and not ended.any():
        raise InputError("discount: 1 is not allowed where no step terminates; must be below 1, or the horizon finite")
    return Visits(
        *at,
        state=state[moves],
        action=np.asarray(data.action)[at].astype(np.int64),
        reward=np.asarray(data.reward, np.float64)[at],
        following=np.where(ended, len(chances), state[moves + 1]),
        start=start,
        policy=chances,
        discount=float(discount),
        horizon=horizon,
        per_step=per_step,
    )


def _solved(visits: Visits) -> Marginal:
    """The estimate with equal shares; refused where the policy goes round for ever without discount."""
    count = len(visits.start)
    refusal = "discount: 1 is not allowed where the policy may never terminate; must be below 1, or the horizon finite"
    try:
        found = marginal(visits, np.full(count, 1.0 / count))
    except np.linalg.LinAlgError as error:
        raise InputError(refusal) from error
    if visits.horizon is None and visits.discount == 1 and not 0 <= found.weight.sum() / count <= LONGEST:
        raise InputError(refusal)
    return found


def _seen_once(visits: Visits, found: Marginal) -> float:
    """Part of the weight on what a single trajectory has tried, whose spread is unknown."""
    order = np.lexsort((visits.trajectory, visits.cell))
    cell, who = visits.cell[order], visits.trajectory[order]
    first = np.append(True, (cell[1:] != cell[:-1]) | (who[1:] != who[:-1]))
    tried = np.bincount(cell[first], minlength=visits.chance.size)
    return float(found.weight[tried[visits.cell] < 2].sum() / max(found.weight.sum(), np.finfo(float).tiny))


def _notes(visits: Visits, unknown: float, once: float) -> tuple[str, ...]:
    notes: tuple[str, ...] = ()
    if not unknown <= NEGLIGIBLE:
        notes += (
            f"{unknown:.2%} of what the policy visits is not in the log: states or actions that were never tried there; "
            "the rest stands for it",
        )
    if once > UNKNOWN:
        notes += (f"{once:.2%} of the weight is on actions that a single trajectory has tried",)
    if unknown + once > UNKNOWN:
        notes += ("so there is no standard error",)
    elif len(visits.start) < 2:
        notes += ("one trajectory has no standard error",)
    return notes


def _uncertainty(
    visits: Visits, found: Marginal, settings: Settings
) -> tuple[float, dict[str, Interval], tuple[str, ...]]:
    """Standard error and intervals, and why one is missing."""
    each, notes = found.value + found.influence, few(found.influence, "the estimate")
    error = float(found.influence.std(ddof=1) / len(each) ** 0.5)
    intervals = {"t": skewed_t_interval(found.value, each, settings.confidence)}
    if settings.resamples * work(visits) > MOST_WORK:
        return error, intervals, (*notes, "no bootstrap interval, which would take long with so many states and steps")
    if visits.horizon is None and visits.discount == 1:
        return error, intervals, notes  # a sample may never terminate
    drawn = bootstrap(visits, settings.resamples, np.random.default_rng(settings.random_seed % 2**32))
    if np.isfinite(drawn).all():
        intervals["bootstrap"] = bootstrap_interval(found.value, drawn, each, settings.confidence)
    return error, intervals, notes


def _concentration(visits: Visits, found: Marginal) -> tuple[float, float]:
    """Effective sample size (Σ w)² / Σ w² of steps, as a share of the steps, in trajectories; the largest one's share."""
    count, weight = len(visits.start), found.weight
    owned = np.bincount(visits.trajectory, weight, count)
    if visits.per_step and visits.discount > 0:  # relative to the same step, so that discounting is no concentration
        weight = weight / np.maximum(visits.discount**visits.step, np.finfo(float).tiny)
    if not weight.max() > 0:
        return 0.0, 1.0
    weight = weight / weight.max()
    size = weight.sum() ** 2 / (weight @ weight) / len(weight) * count
    return float(size), float(owned.max() / owned.sum())


def _state_values(
    log: Log, observations: np.ndarray, values: Float[np.ndarray, "T S"]
) -> Float[np.ndarray, " Q"] | None:
    """V at the query states and steps; NaN at states that are not in the log."""
    if log.states is None:
        return None
    known = {row.tobytes(): index for index, row in enumerate(_rounded(observations))}
    place = [known.get(row.tobytes(), -1) for row in _rounded(np.asarray(log.states))]
    times = np.zeros(len(place), int) if log.times is None or len(values) == 1 else np.asarray(log.times)
    inside = np.clip(times, 0, len(values) - 1)
    return np.where((np.asarray(place) >= 0) & (inside == times), values[inside, place], np.nan)
