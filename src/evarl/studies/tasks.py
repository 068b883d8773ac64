"""Tasks of workers: functions of a job and the store that can be interrupted at any time and called again."""

import itertools
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

from evarl.assessment.assessment import Assessment
from evarl.evaluation.evaluate import evaluate
from evarl.evaluation.held_out import by_states, folds, held_out_errors, truth_noise
from evarl.evaluation.logged import LoggedSeed, method_label
from evarl.evaluation.predictors import CRITIC, EVALUATOR
from evarl.evaluation.results import SeedEvaluation
from evarl.evaluation.scores import Score
from evarl.learning.configuration import TrainConfig, with_settings
from evarl.learning.played import RecordSize, play_policies
from evarl.learning.presets import studied
from evarl.learning.pretraining import Past, fit_to, learnt_from, remember
from evarl.ope.registry import LABELS, LogSettings
from evarl.ope.settings import FQEConfig
from evarl.report.pictures import CHANNELS
from evarl.runs.assessments import load_assessment, save_assessment, save_evaluator
from evarl.runs.log_plan import FOLDERS, LogFrom, Part
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.played import load_played, save_played
from evarl.runs.run import Run
from evarl.runs.train import new_assessment, train
from evarl.studies.jobs import Job, Store
from evarl.theory.tabular_study import tabular_study

CURVE_POINTS = 60
"""Points of a learning curve: means over equal intervals of training."""
SHOWN = (EVALUATOR, CRITIC, LABELS["fqe"])
"""Predictors whose single predictions are stored, for figures of true against predicted values; FQE from the last updates."""
ABOUT = ("world", "discount", "horizon", "start_states", "shuffled_with")
TIMES = ("seconds", "compile_seconds", "steps_per_second", "peak_memory_gib")
"""Parts of an evaluation, and of a run's summary, that are stored."""
FILES = {"assessment": "assessment.file", "frozen": "evaluator.file"}
"""Settings for the files of the jobs that a job needs, by role."""
TRAINING = 0.7
"""Share of a training job's progress that is training; the rest is evaluation."""


def train_and_evaluate(job: Job, store: Store) -> dict[str, Any]:
    """Train a group of seeds, then evaluate every predictor, and off-policy estimates if requested, against the truth."""
    settings, folder, config = job.settings, store.work(job) / "run", _config(job, store)
    evaluated = itertools.count()

    def watch(done: int, of: int) -> None:
        store.report_progress(job, TRAINING * done / of, f"update {done} of {of}")

    def notify(text: str) -> None:
        share = TRAINING + (1 - TRAINING) * next(evaluated) / config.seeds
        store.report_progress(job, share, f"evaluating{text.rpartition(':')[2]}")

    store.report_progress(job, 0.0, "compiling")
    log = settings["log_megabytes"] * config.seeds
    parts: LogFrom = "both" if log else "recent"
    run = train(config, out=folder, resume=True, quiet=True, log_megabytes=log, log_from=parts, watch=watch)
    fqe = FQEConfig(time_feature=True, steps=settings["fqe_steps"])
    ope = LogSettings(methods=tuple(settings["methods"]), fqe=fqe, resamples=200) if settings["methods"] else None
    sites = settings["states"] if run.world.contexts else None
    found = evaluate(run, None, None, settings["rollouts"], settings["states"], ope=ope, sites=sites, notify=notify)
    record = {
        "seeds": [_seed_record(seed) for seed in found.seeds],
        "about": {name: getattr(found, name) for name in ABOUT}
        | {"notes": [note for note in found.notes if not note.startswith("seed ")]},
        "curves": _curves(run),
        "training": {name: run.summary[name] for name in TIMES},
        "updates": config.updates,
        "steps": config.updates * config.environments * config.steps,
    }
    for unused in ("checkpoints", *FOLDERS.values()):
        shutil.rmtree(folder / unused, ignore_errors=True)
    return record


def make_assessment(job: Job, store: Store) -> dict[str, Any]:
    """Draw the start states of a world's assessment once, so that all conditions and seeds use the same."""
    keep_compiled_programs()
    config = _config(job, store)
    assessment = new_assessment(config, lambda text: store.report_progress(job, 0.1, "training the base policy"))
    save_assessment(store.file(job), assessment)
    seen = np.asarray(assessment.observations())
    return {
        "world": config.world,
        "assessed_in": assessment.world.name,
        "horizon": assessment.horizon,
        "channels": list(CHANNELS.get(config.world, ())),
        "observations": _rounded(seen) if seen.ndim < 4 else seen.astype(int).tolist(),
    }


def pretrain_evaluator(job: Job, store: Store) -> dict[str, Any]:
    """Fit an evaluator to the policies of ordinary training, to be frozen."""
    keep_compiled_programs()
    config, settings = _config(job, store), job.settings
    seeds = list(range(config.seed, config.seed + config.seeds))
    past = _remember(job, store, config, load_assessment(store.file(job.needs["assessment"])), seeds)
    store.report_progress(job, TRAINING, "fitting the evaluator")
    evaluator, state = fit_to(past, config, list(range(len(seeds))), settings["steps"], config.seed)
    save_evaluator(store.file(job), learnt_from(past, evaluator, state), config)
    return {"policies": len(past.updates) * len(seeds), "steps": settings["steps"]}


def record_policies(job: Job, store: Store) -> dict[str, Any]:
    """Record policies of ordinary training, to be predicted."""
    keep_compiled_programs()
    config, settings = _config(job, store), job.settings
    store.report_progress(job, 0.0, "compiling")
    assessment, seeds = load_assessment(store.file(job.needs["assessment"])), list(range(settings["seeds"]))
    played = play_policies(config, assessment, _record_size(job), seeds, _progress(job, store, config.updates))
    save_played(store.file(job), played)
    noise = {states: _rounded(values) for states, values in truth_noise(played).items()}
    values = {
        states: _rounded(np.asarray(records.target, np.float64).mean(axis=(0, 2)))
        for states, records in by_states(played).items()
    }
    return {"updates": played.visited.updates, "noise": noise, "values": values}


def evaluate_held_out(job: Job, store: Store) -> dict[str, Any]:
    """Squared errors of evaluators on policies of seeds that they were not fitted to, seed by seed, for all kinds of Ξ."""
    keep_compiled_programs()
    recorded, settings = job.needs["policies"], job.settings
    config, seeds = _config(recorded, store), recorded.settings["seeds"]
    config = with_settings(config, settings["changes"])
    assessment = load_assessment(store.file(recorded.needs["assessment"]))
    played = load_played(store.file(recorded), config, assessment, _record_size(recorded), seeds)
    kinds = [(behaviour, config.evaluator.network.kind) for behaviour in settings["behaviours"]]
    kinds += [(settings["behaviours"][0], network) for network in settings["networks"]]
    parts, found = folds(seeds, settings["folds"]), []
    for number, (behaviour, network) in enumerate(kinds):
        store.report_progress(job, number / len(kinds), f"fitting {network} to {behaviour}")
        fitted = with_settings(config, {"assessment.behaviour": behaviour, "evaluator.network.kind": network})
        by_fold = [held_out_errors(played, fitted, part, settings["steps"]) for part in parts]
        errors = {
            states: {name: _by_seed(np.concatenate([one[states][name] for one in by_fold])) for name in predictors}
            for states, predictors in by_fold[0].items()
        }
        found.append({"behaviour": behaviour, "network": network, "squared_errors": errors})
    noise = {states: _rounded(values) for states, values in truth_noise(played).items()}
    return {"folds": parts, "evaluators": found, "noise": noise}


def tabular(job: Job, store: Store) -> dict[str, Any]:
    """Evaluation error L and return J against β in random tabular MDPs."""
    store.report_progress(job, 0.0, f"{job.settings['trials']} trials")
    return tabular_study(**job.settings)


TASKS: dict[str, Callable[[Job, Store], dict[str, Any]]] = {
    "train": train_and_evaluate,
    "assessment": make_assessment,
    "pretrain": pretrain_evaluator,
    "tabular": tabular,
    "record": record_policies,
    "held-out": evaluate_held_out,
}


def _config(job: Job, store: Store) -> TrainConfig:
    """The preset with the job's changes, and the files of the jobs it needs; that of an assessment holds its start states."""
    files = {FILES[part]: str(store.file(needed)) for part, needed in job.needs.items()}
    if "assessment" in job.needs:
        files["assessment.start_states"] = ""
    return studied(job.settings["preset"], job.settings["changes"] | files).resolved()


def _remember(job: Job, store: Store, config: TrainConfig, assessment: Assessment, seeds: list[int]) -> Past:
    """Policies of ordinary training, with its updates reported as progress."""
    sizes = job.settings["policies"], job.settings["transitions"]
    return remember(config, assessment, *sizes, seeds, _progress(job, store, config.updates))


def _by_seed(errors: np.ndarray) -> dict[str, list[float]]:
    """Errors [seeds, policies] averaged over all policies of each seed, and over those of the second half of training."""
    parts = {"all": errors, "late": errors[:, errors.shape[1] // 2 :]}
    return {name: _rounded(part.mean(axis=1)) for name, part in parts.items()}


def _record_size(job: Job) -> RecordSize:
    return RecordSize(*(job.settings[name] for name in ("policies", "episodes", "states")))


def _progress(job: Job, store: Store, updates: int) -> Callable[[int], None]:
    """A function to be told of updates that were made, which reports how many of all there were."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        store.report_progress(job, TRAINING * done / updates, f"update {done} of {updates}")

    return advance


def _score_record(score: Score) -> dict[str, float | None]:
    rounded = {name: _round(getattr(score, name)) for name in ("mae", "mse", "bias", "noise")}
    return rounded | {"rank": score.rank}


def _seed_record(seed: SeedEvaluation) -> dict[str, Any]:
    """One seed: returns, scores of all predictors, single predictions of a few, and diagnostics of the off-policy estimates.

    Estimates from the last updates are in `scores` by the labels of their methods, those from the whole training in `scores_all`.
    """
    parts = [log.part for log in seed.logs]
    labels: dict[Part | None, dict[str, str]] = {
        log.part: {method_label(method, log.part, parts): LABELS[method] for method in log.estimates}
        for log in seed.logs
    }
    recent, everything = labels.get("recent", {}), labels.get("all", {})
    queries = {}
    for kind, asked in seed.queries.items():
        scores = {name: _score_record(one) for name, one in asked.scores.items()}
        shown = {recent.get(name, name): values for name, values in asked.predictions.items() if name not in everything}
        queries[kind] = {
            "scores": {recent.get(name, name): one for name, one in scores.items() if name not in everything},
            "truth": _rounded(asked.truth.value),
            "standard_error": _rounded(asked.truth.standard_error),
            "rollouts": asked.truth.rollouts,
            "predictions": {name: _rounded(shown[name].mean(axis=0)) for name in SHOWN if name in shown},
        }
        if everything:
            queries[kind]["scores_all"] = {everything[name]: one for name, one in scores.items() if name in everything}
    return {
        "seed": seed.seed,
        "return": _round(seed.discounted.mean),
        "return_undiscounted": _round(seed.undiscounted.mean),
        "assessment": _rounded(np.asarray(seed.assessment)),
        "queries": queries,
        "logs": {log.part: _log_record(log) for log in seed.logs},
    }


def _log_record(log: LoggedSeed) -> dict[str, Any]:
    """The size of one part of a log, and diagnostics of the estimates from it."""
    estimates = log.estimates
    return {
        "trajectories": log.trajectories,
        "steps": log.steps,
        "effective_sample_size": {m: one.effective_sample_size for m, one in estimates.items()},
        "bellman_error": {m: one.bellman_error for m, one in estimates.items()},
        "warnings": {m: list(one.warnings) for m, one in estimates.items() if one.warnings},
    }


def _curves(run: Run) -> dict[str, Any]:
    """Return and evaluation error over training, a row for each seed: means over equal intervals of updates."""
    table, updates = run.metrics, run.config.updates
    edges = np.linspace(0, updates, min(CURVE_POINTS, updates) + 1).astype(int)
    update, seed = table["update"].to_numpy(), table["seed"].to_numpy()
    per_update = run.config.environments * run.config.steps
    found: dict[str, Any] = {"steps": [int(edge) * per_update for edge in edges[1:]]}
    order = [np.flatnonzero(seed == one)[np.argsort(update[seed == one])] for one in run.seeds]
    for name in ("return", "return_discounted", "evaluation_error_fresh", "evaluation_error"):
        if name in table.column_names:
            values = table[name].to_numpy()
            found[name] = [[_mean(values[rows[a:b]]) for a, b in itertools.pairwise(edges)] for rows in order]
    return found


def _mean(values: np.ndarray) -> float | None:
    values = values[np.isfinite(values)]
    return _round(values.mean()) if values.size else None


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _rounded(values: np.ndarray) -> list[Any]:
    return np.vectorize(_round, otypes=[np.float64])(values).tolist()
