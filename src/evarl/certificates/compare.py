"""Comparison of several candidates at one level: they are tested in the order of their predictions until the first fails."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from evarl.bounds import fixed_sequence
from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Attempt
from evarl.certificates.evidence import STARTS, PolicyTest, Say
from evarl.certificates.issue import Issued, fulfil
from evarl.certificates.planning import Terms, make_protocol
from evarl.certificates.protocol import policy_name
from evarl.certificates.subject import Subject
from evarl.errors import InputError
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.run import Run
from evarl.simulation.simulator import simulator_for


@dataclass(frozen=True)
class Candidate:
    """One policy of a comparison."""

    run: str
    seed: int
    predicted: float
    """Ĵ(Ξ), by its own evaluator."""
    issued: Issued | None
    """None for those whose turn did not come."""

    @property
    def certified(self) -> bool:
        """Whether it was shown to reach the threshold."""
        return self.issued is not None and self.issued.outcome == "certified"


def compare_policies(
    runs: Sequence[str | Path],
    terms: Terms,
    *,
    again: bool = False,
    sign_with: str | Path | None = None,
    say: Say = lambda line: None,
) -> list[Candidate]:
    """Test J ≥ threshold for the final policies of all seeds of some runs, the most promising first.

    The family-wise error is at most α: the probability that any candidate is certified that does not reach the threshold. The
    comparison is entered in the ledgers of all candidates before the first rollout, also of those whose turn does not come.
    """
    keep_compiled_programs()
    if terms.threshold is None or terms.claim != "J":
        raise InputError("threshold: is missing; candidates are compared by whether J reaches it")
    subjects = [Subject(run, seed) for run in map(Run.load, runs) for seed in run.seeds]
    _check(subjects)
    policies = [one.files()[policy_name(one.seed)] for one in subjects]
    if len(set(policies)) < len(policies):
        raise InputError("runs: a policy is given twice; want each candidate once")
    # Random numbers of the assessments follow from the candidates and the terms, as those of the rollouts do.
    key = hashes.random_key(hashes.of_data([sorted(policies), terms.threshold, terms.alpha, terms.nonce]))
    start_key, show_key = jax.random.split(jnp.asarray(key))
    predicted: list[float] = []
    for one in subjects:
        predict = one.assessed(jax.random.fold_in(show_key, len(predicted)))
        predicted.append(float(predict(simulator_for(one.world).start_states(start_key, STARTS).queries).mean()))
    order = np.argsort(-np.asarray(predicted), kind="stable").tolist()
    ranked = tuple(policies[i] for i in order)
    protocols = [make_protocol(one, terms, candidates=ranked) for one in subjects]
    ledger.register_comparison([(one.run.path, made) for one, made in zip(subjects, protocols, strict=True)], again)
    found: dict[int, Issued] = {}

    def test(i: int) -> bool:
        one, protocol = subjects[i], protocols[i]
        say(f"{one.run.path} seed {one.seed}, predicted {predicted[i]:.4g}")
        found[i] = fulfil(PolicyTest(protocol, one, protocol.key()), again, sign_with, say)
        return found[i].outcome == "certified"

    fixed_sequence(predicted, test)
    return [Candidate(str(subjects[i].run.path), subjects[i].seed, predicted[i], found.get(i)) for i in order]


def earlier_tests(candidates: Sequence[Candidate]) -> list[Attempt]:
    """Earlier tests and comparisons of the candidates, each once; their levels add to that of the comparison."""
    issued = [one.issued.certificate for one in candidates if one.issued is not None]
    return list({attempt.digest: attempt for certificate in issued for attempt in certificate.earlier}.values())


def _check(subjects: list[Subject]) -> None:
    """Candidates must be for one task."""
    first = subjects[0].world
    for one in subjects[1:]:
        here, there = (
            (one.world.name, one.world.horizon, one.world.discount),
            (first.name, first.horizon, first.discount),
        )
        if here != there:
            raise InputError(f"runs: {one.run.path} is for {here}, {subjects[0].run.path} for {there}; want one task")
