"""Comparison of candidates with a family-wise error of at most α: tests in the order of predictions until the first fails."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evarl.bounds import fixed_sequence
from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Attempt
from evarl.certificates.certified_policy import CertifiedPolicy, open_policy
from evarl.certificates.claims import CLAIMS
from evarl.certificates.evidence import STARTS, Notify, PolicyTest
from evarl.certificates.issue import Issued, fulfil
from evarl.certificates.planning import make_protocol, return_range
from evarl.certificates.protocol import Terms, policy_name
from evarl.errors import InputError
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.outside import OutsideRun
from evarl.runs.run import Run
from evarl.settings import checked
from evarl.simulation.simulator import simulator_for
from evarl.stats import inputs
from evarl.worlds.world import AnyWorld, Key

SLACK = 0.1
"""How far a prediction may be outside of the possible returns, relative to their range, before it is no reason to test early."""


@dataclass(frozen=True)
class Candidate:
    """One policy of a comparison."""

    run: str
    seed: int
    predicted: float
    """Ĵ(Ξ), the prediction of its own evaluator; of an outside policy that of the first candidate that has one."""
    issued: Issued | None
    """None for candidates that were not tested."""
    outside: str = ""
    """Description of an outside policy; empty for the final policy of a run."""

    @property
    def certified(self) -> bool:
        """Whether it is shown that J reaches the threshold."""
        return self.issued is not None and self.issued.outcome == "certified"


@checked
def compare_policies(
    runs: Sequence[Run | str | Path],
    terms: Terms,
    *,
    again: bool = False,
    sign_with: str | Path | None = None,
    notify: Notify = lambda line: None,
) -> list[Candidate]:
    """Test J ≥ threshold for the final policies of all seeds of some runs, in the order of their predictions.

    A policy of another package is given as what `outside_directory` returns. It has no evaluator, and its value is predicted by
    that of the first candidate that has one, from an assessment. The error does not depend on predictions being right.
    Predictions are clipped to the possible returns, and those that are far outside of them come last.

    The family-wise error, the probability that any candidate is certified and does not reach the threshold, is at most α. The
    comparison is registered in the ledgers of all candidates before the first rollout, tested or not.
    """
    keep_compiled_programs()
    if terms.threshold is None or not CLAIMS[terms.claim].own_rollouts:
        raise InputError("threshold: is missing; candidates are compared by whether J reaches it")
    opened = [run if isinstance(run, Run) else Run.load(run) for run in runs]
    policies = [open_policy(run, seed) for run in opened for seed in run.seeds]
    _check(policies)
    digests = [one.files()[policy_name(one.seed)] for one in policies]
    if len(set(digests)) < len(digests):
        raise InputError("runs: a policy is given twice; must be given once")
    # The random numbers of the assessments are derived from the candidates and the terms, like those of the rollouts.
    key = hashes.random_key(hashes.of_data([sorted(digests), terms.threshold, terms.alpha, terms.nonce]))
    start_key, assessment_key = jax.random.split(jnp.asarray(key))
    possible, _ = return_range(policies[0], terms)
    predicted = _predicted(policies, start_key, assessment_key)
    order = _order(policies, predicted, possible, notify)
    ranked = tuple(digests[i] for i in order)
    protocols = [make_protocol(one, terms, candidates=ranked) for one in policies]
    ledger.register_comparison([(one.run.path, made) for one, made in zip(policies, protocols, strict=True)], again)
    found: dict[int, Issued] = {}

    def test(i: int) -> bool:
        one, protocol = policies[i], protocols[i]
        notify(f"{one.run.path} seed {one.seed}, predicted {predicted[i]:.4g}")
        found[i] = fulfil(PolicyTest(protocol, one), again, sign_with, notify)
        return found[i].outcome == "certified"

    fixed_sequence(-np.argsort(order), test)
    return [
        Candidate(str(policies[i].run.path), policies[i].seed, predicted[i], found.get(i), protocols[i].outside)
        for i in order
    ]


def _predicted(policies: list[CertifiedPolicy], start_key: Key, assessment_key: Key) -> list[float]:
    """Ĵ(Ξ) of each candidate, from one assessment."""
    first = next((one for one in policies if one.has_evaluator), None)
    found: list[float] = []
    for one in policies:
        key = jax.random.fold_in(assessment_key, len(found))
        if not isinstance(one.run, OutsideRun):
            predict = one.assessed(key)
        elif first is None:
            raise InputError(
                f"runs: {one.run.path} is of an outside policy, and no run has an evaluator that could predict its value; must "
                "include one"
            )
        else:
            predict = first.assessed(key, one.run)
        found.append(float(predict(simulator_for(one.world).start_states(start_key, STARTS).queries).mean()))
    return found


def _order(
    policies: list[CertifiedPolicy], predicted: list[float], possible: tuple[float, float], notify: Notify
) -> list[int]:
    """The candidates from the most to the least promising; of equal ones, final policies of runs before outside policies."""
    told = inputs.vector("predictions", predicted, of="candidates")
    likely = np.clip(told, *possible)
    impossible = np.abs(told - likely) > SLACK * (possible[1] - possible[0])
    for i in np.flatnonzero(impossible):
        notify(
            f"{policies[i].run.path} seed {policies[i].seed}: the evaluator knows nothing about it, its prediction "
            f"{told[i]:.4g} is not among the possible returns, {possible[0]:g} to {possible[1]:g}; it comes last"
        )
    outside = [isinstance(one.run, OutsideRun) for one in policies]
    return np.lexsort((outside, -likely, impossible)).tolist()


def earlier_tests(candidates: Sequence[Candidate]) -> list[Attempt]:
    """Earlier tests and comparisons of the candidates, each once; their levels add to that of the comparison."""
    issued = [one.issued.certificate for one in candidates if one.issued is not None]
    return list({attempt.digest: attempt for certificate in issued for attempt in certificate.earlier}.values())


def _check(policies: list[CertifiedPolicy]) -> None:
    """Refuse candidates for different tasks."""
    there, *others = [(one.run.path, _task(one.world)) for one in policies]
    for here in others:
        if here[1] != there[1]:
            raise InputError(f"runs: {here[0]} is for {here[1]}, {there[0]} for {there[1]}; must be for one task")


def _task(world: AnyWorld) -> tuple[Any, ...]:
    """World, time limit and discount, and what varies in a family of worlds."""
    return (world.name, world.horizon, world.discount, *map(str, world.contexts))
