"""Issue certificates: fix the protocol, write it down, roll out, conclude."""

import dataclasses
import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evarl import certify
from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Certificate, save
from evarl.certificates.conclusions import conclude, least_rollouts
from evarl.certificates.evidence import Say, gather
from evarl.certificates.page import page
from evarl.certificates.protocol import Calibration, Claim, Protocol, policy_name
from evarl.certificates.subject import Subject, open_subject
from evarl.errors import InputError
from evarl.learning.configuration import differences
from evarl.runs.machine import keep_compiled_programs
from evarl.runs.provenance import machine
from evarl.runs.run import Run
from evarl.storage.files import write_bytes

ROLLOUTS, BUDGET = 1000, 10_000
BATCH, SEQUENTIAL_BATCH = 256, 64
"""Rollouts that are made side by side."""
VALUE_ERROR = 0.2
"""Share of α that C5 spends on lower bounds of the calibration policies' values."""


@dataclass(frozen=True)
class Terms:
    """What is to be shown, and with how much effort. Everything has to be decided before the first rollout."""

    claim: Claim = "J"
    threshold: float | None = None
    alpha: float = 0.05
    delta: float | None = None
    """For C2; as alpha unless given."""
    epsilon: float | None = None
    """For C3 and C4."""
    range: tuple[float, float] | None = None
    """The least and the greatest return that any policy can have; the world's own unless given."""
    rollouts: int | None = None
    sequential: bool = False
    budget: int | None = None


@dataclass(frozen=True)
class Issued:
    """A certificate and where it is."""

    certificate: Certificate
    path: Path

    @property
    def html(self) -> Path:
        """The page for people."""
        return self.path.with_suffix(".html")


def issue_certificate(
    run: Run | str | Path,
    terms: Terms | None = None,
    *,
    seed: int | None = None,
    from_policies: Sequence[str | Path] = (),
    again: bool = False,
    say: Say = lambda line: None,
) -> Issued:
    """Test a claim about the final policy of a seed of a run; the certificate goes into the run's folder certificates.

    The same terms give the same rollouts, so a certificate that was issued is not made again, and a test that was killed goes
    on. With `from_policies`, runs whose final policies C5 learns from.
    """
    keep_compiled_programs()
    subject = open_subject(run, seed)
    protocol = make_protocol(subject, terms or Terms(), [Run.load(one) for one in map(_run_path, from_policies)])
    return fulfil(subject, protocol, again, say)


def fulfil(subject: Subject, protocol: Protocol, again: bool, say: Say) -> Issued:
    """Carry out a protocol that is fixed, or give what it has led to before."""
    run, path = subject.run.path, ledger.path_of(subject.run.path, protocol)
    if (found := ledger.issued(run, protocol)) is not None:
        say("this test has been made before; its certificate stands")
        return Issued(found, path)
    earlier = ledger.register(run, protocol, again)
    evidence = gather(protocol, subject, say)
    if changed := [name for name, digest in subject.files().items() if protocol.files.get(name) != digest]:
        raise InputError(f"{run}: {', '.join(changed)} changed while the policy was tested; nothing is certified")
    without_page = Certificate(
        conclusion=conclude(protocol, evidence),
        protocol=protocol,
        protocol_sha256=protocol.hash(),
        evidence={name: tuple(column) for name, column in evidence.items()},
        earlier=earlier,
        issued=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        code=hashes.of_code(),
        machine=machine(),
        page_sha256="",
    )
    html = path.with_suffix(".html")
    write_bytes(html, page(without_page, path.name).encode())
    certificate = dataclasses.replace(without_page, page_sha256=hashes.of_file(html))
    save(path, certificate)
    return Issued(certificate, path)


def make_protocol(
    subject: Subject, terms: Terms, calibration: Sequence[Run] = (), candidates: tuple[str, ...] = ()
) -> Protocol:
    """The terms made definite; what cannot be tested as asked is refused here, before any rollout."""
    claim: Claim = "C5" if calibration else terms.claim
    if calibration and terms.claim not in ("J", "C5"):
        raise InputError(f"claim: {terms.claim} does not go with --from-policies, which bounds J of a new policy (C5)")
    _check_terms(terms, claim)
    if claim != "J" and not subject.has_evaluator:
        raise InputError(f"claim: {claim} is about an evaluator, and {subject.run.path} has none; train with --beta")
    world = subject.world
    settings: dict[str, Any] = {"low": None, "high": None, "range_from": None}
    if claim != "C2":
        (low, high), source = return_range(subject, terms)
        settings = {"low": low, "high": high, "range_from": source}
    name, asked, default = (
        ("budget", terms.budget, BUDGET) if terms.sequential else ("rollouts", terms.rollouts, ROLLOUTS)
    )
    rollouts = default if asked is None else asked
    if rollouts < 1:
        raise InputError(f"{name}: {rollouts} is not allowed; want at least 1")
    if claim == "C2":
        settings["delta"] = terms.alpha if terms.delta is None else terms.delta
        certify.order_index(rollouts, terms.alpha, settings["delta"])
    if claim == "C5":
        settings["value_error"] = round(VALUE_ERROR * terms.alpha, 12)  # as it would be written
        settings["calibration"] = _calibration(subject, calibration)
        _check_policies(len(settings["calibration"]), terms.alpha, settings["value_error"])
    protocol = Protocol(
        claim=claim,
        world=world.name,
        horizon=world.horizon,
        discount=world.discount,
        seed=subject.seed,
        files=subject.files(),
        alpha=terms.alpha,
        rollouts=rollouts,
        sequential=terms.sequential,
        threshold=terms.threshold,
        epsilon=terms.epsilon,
        batch=min(SEQUENTIAL_BATCH if terms.sequential else BATCH, rollouts),
        candidates=candidates,
        **settings,
    )
    _check_effort(protocol)
    return protocol


def return_range(subject: Subject, terms: Terms) -> tuple[tuple[float, float], str]:
    """The range of returns and whose word it is; never what was seen."""
    known = subject.world.return_range()
    if terms.range is not None:
        low, high = terms.range
        certify.hoeffding_lower_bound([low], low, high)  # refuses what is no range
        if known is not None and (low > known[0] or high < known[1]):
            raise InputError(
                f"range: [{low:g}, {high:g}] leaves out returns that {subject.world.name} can have, which are from "
                f"{known[0]:g} to {known[1]:g}; leave --range out"
            )
        return (float(low), float(high)), "user"
    if known is None:
        raise InputError(
            f"range: {subject.world.name} does not know what returns are possible; give --range LO HI from the rules of the "
            "task, never from returns that were seen: a range that is read off the data promises nothing"
        )
    return known, "world"


def _check_terms(terms: Terms, claim: Claim) -> None:
    """Refuse settings that the claim has no use for, or cannot do without."""
    certify.betting_lower_bound([0.5], 0.0, 1.0, terms.alpha)  # refuses what is no level
    unused = {
        "threshold": (terms.threshold, ("J", "C5")),
        "delta": (terms.delta, ("C2",)),
        "epsilon": (terms.epsilon, ("C3", "C4")),
        "range": (terms.range, ("J", "C3", "C4", "C5")),
    }
    for name, (value, claims) in unused.items():
        if value is not None and claim not in claims:
            raise InputError(f"{name}: {value} does not go with claim {claim}; only {' and '.join(claims)} have one")
    if terms.sequential and claim != "J":
        raise InputError(f"sequential: does not go with claim {claim}; only J is tested rollout by rollout")
    if terms.sequential and terms.threshold is None:
        raise InputError("threshold: is missing; a sequential test wants to know what is to be shown")
    if terms.sequential and terms.rollouts is not None:
        raise InputError("rollouts: does not go with --sequential, which ends when it can; give --budget")
    if terms.budget is not None and not terms.sequential:
        raise InputError("budget: goes with --sequential only; give --rollouts")
    if claim == "C3" and terms.epsilon is None:
        raise InputError("epsilon: is missing; C3 wants to know how much may be overstated on average")


def _check_effort(protocol: Protocol) -> None:
    """Refuse a test that could not succeed, whatever the rollouts return."""
    if protocol.threshold is None:
        return
    low, high = protocol.range
    if not low < protocol.threshold < high:
        raise InputError(
            f"threshold: {protocol.threshold:g} is not allowed; want a number between {low:g} and {high:g}, the least and the "
            "greatest return that are possible"
        )
    if protocol.claim != "J" or protocol.sequential:
        return
    least = least_rollouts(protocol)
    if least is None or least > protocol.rollouts:
        want = "no number of them could" if least is None else f"want at least {least}"
        raise InputError(
            f"rollouts: {protocol.rollouts} cannot show J ≥ {protocol.threshold:g} at level {protocol.alpha:g} even if each "
            f"returned the most that is possible; {want}"
        )


def _check_policies(count: int, alpha: float, value_error: float) -> None:
    """Refuse fewer policies than C5 needs."""
    if count < (least := certify.least_policies(alpha, value_error)):
        raise InputError(
            f"from-policies: there are {count} other policies; want at least {least} for alpha {alpha:g}, of which "
            f"{value_error:g} goes to the lower bounds that stand for their true J"
        )


def _calibration(subject: Subject, runs: Sequence[Run]) -> tuple[Calibration, ...]:
    """Every final policy of those runs but the one that is to be certified; they must have been trained as it was."""
    found: dict[str, Calibration] = {}
    own = subject.files()[policy_name(subject.seed)]
    for run in runs:
        if odd := differences(_training(subject.run), _training(run)):
            raise InputError(
                f"from-policies: {run.path} was trained otherwise than {subject.run.path} ({odd[0]}); C5 wants policies "
                "that differ by their seeds alone"
            )
        for seed in run.seeds:
            files = Subject(run, seed).files()
            policy = files[policy_name(seed)]
            if policy == own:
                continue
            if policy in found:
                raise InputError(
                    f"from-policies: {run.path} seed {seed} is the same policy as {found[policy].run} seed "
                    f"{found[policy].seed}; C5 wants policies that were trained independently, each once"
                )
            path = os.path.relpath(run.path.resolve(), subject.run.path.resolve())
            found[policy] = Calibration(path, seed, files)
    return tuple(found.values())


def _training(run: Run) -> dict[str, Any]:
    """What a run's policies have in common."""
    return {name: value for name, value in run.config.to_dict().items() if name not in ("seed", "seeds")}


def _run_path(path: str | Path) -> Path:
    """The directory of a run; a checkpoint is none."""
    if "checkpoints" in Path(path).parts or Path(path).is_file():
        raise InputError(
            f"from-policies: {path} is a file of one run; checkpoints of one run are not independent policies, want "
            "directories of finished runs"
        )
    return Path(path)
