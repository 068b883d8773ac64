"""From what is asked for to a protocol. What cannot be tested as asked is refused here, before any rollout."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evarl import bounds
from evarl.certificates import hashes
from evarl.certificates.conclusions import least_rollouts
from evarl.certificates.protocol import LARGEST_LEVEL, LEAST_LEVEL, Calibration, Claim, Protocol, policy_name
from evarl.certificates.subject import Subject
from evarl.errors import InputError
from evarl.learning.configuration import differences
from evarl.runs.run import Run
from evarl.sizes import check_time
from evarl.stats import inputs
from evarl.storage.files import CONTROL

ROLLOUTS, BUDGET = 1000, 10_000
BATCH, SEQUENTIAL_BATCH = 256, 64
"""Rollouts that are made side by side."""
VALUE_ERROR = 0.2
"""Share of α that C5 spends on lower bounds of the calibration policies' values."""
MOST_ROLLOUTS = 1_000_000
"""A certificate keeps every return, and a file of more would not be read."""
LONGEST_NONCE = 200


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
    two_valued: bool = False
    """Whether every return is one of the two ends of the range by the rules of the task; J only."""
    rollouts: int | None = None
    sequential: bool = False
    budget: int | None = None
    nonce: str = ""
    """Text from whoever will rely on the certificate, chosen after the policy was fixed; random numbers follow from it."""


def terms_of(protocol: Protocol) -> Terms:
    """The terms that lead to a protocol."""
    effort = {"budget": protocol.rollouts} if protocol.sequential else {"rollouts": protocol.rollouts}
    given = protocol.range_from == "user" and protocol.low is not None and protocol.high is not None
    return Terms(
        claim=protocol.claim,
        threshold=protocol.threshold,
        alpha=protocol.alpha,
        delta=protocol.delta,
        epsilon=protocol.epsilon,
        range=protocol.range if given else None,
        two_valued=protocol.two_valued,
        sequential=protocol.sequential,
        nonce=protocol.nonce,
        **effort,
    )


def make_protocol(
    subject: Subject, terms: Terms, calibration: Sequence[Subject] = (), candidates: tuple[str, ...] = ()
) -> Protocol:
    """The protocol of a test of these terms; the same function makes it for the issuer and for whoever verifies."""
    claim: Claim = "C5" if calibration else terms.claim
    if calibration and terms.claim not in ("J", "C5"):
        raise InputError(f"claim: {terms.claim} does not go with --from-policies, which bounds J of a new policy (C5)")
    _check_terms(terms, claim)
    if claim != "J" and not subject.has_evaluator:
        raise InputError(f"claim: {claim} is about an evaluator, and {subject.run.path} has none; train with --beta")
    _check_policies_usable([subject, *calibration], predicts=claim != "J")
    world = subject.world
    name, asked, default = (
        ("budget", terms.budget, BUDGET) if terms.sequential else ("rollouts", terms.rollouts, ROLLOUTS)
    )
    rollouts = default if asked is None else asked
    if not 1 <= rollouts <= MOST_ROLLOUTS:
        raise InputError(f"{name}: {rollouts} is not allowed; want 1 to {MOST_ROLLOUTS:,}, since each is kept")
    batch = min(SEQUENTIAL_BATCH if terms.sequential else BATCH, rollouts)
    turns = float(world.horizon) * -(-rollouts // batch) * max(1, len(calibration))
    check_time("horizon × rollouts", f"{world.horizon} × {rollouts}", turns, "the test")
    settings: dict[str, Any] = {"low": None, "high": None, "range_from": None}
    if claim != "C2":
        (low, high), source = return_range(subject, terms)
        settings = {"low": low, "high": high, "range_from": source}
    if claim == "C2":
        settings["delta"] = terms.alpha if terms.delta is None else terms.delta
        bounds.order_index(rollouts, terms.alpha, settings["delta"])
    if claim == "C5":
        settings["value_error"] = round(VALUE_ERROR * terms.alpha, 12)  # as it would be written
        settings["calibration"] = tuple(Calibration(one.seed, one.files()) for one in calibration)
        _check_policies(len(calibration), terms.alpha, settings["value_error"])
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
        batch=batch,
        candidates=candidates,
        nonce=terms.nonce,
        two_valued=terms.two_valued,
        world_sha256=_world_file(world.name),
        **settings,
    )
    _check_effort(protocol)
    return protocol


def return_range(subject: Subject, terms: Terms) -> tuple[tuple[float, float], Literal["world", "user"]]:
    """The range of returns and whose word it is; never what was seen."""
    known = subject.world.return_range()
    if terms.range is not None:
        low, high = terms.range
        inputs.check_range(low, high)
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


def calibration_of(subject: Subject, runs: Sequence[Run]) -> list[Subject]:
    """Every final policy of some runs but the one that is to be certified, by seed; all must have been trained as it was.

    Training is a function of configuration and seed. So an equal seed is the same policy, though its bits may differ where it
    was vectorised otherwise or trained on another machine, and it is no further evidence.
    """
    found: dict[int, Subject] = {}
    own = subject.run.path.resolve()
    for run in runs:
        if odd := differences(_training(subject.run), _training(run)):
            raise InputError(
                f"from-policies: {run.path} was trained otherwise than {subject.run.path} ({odd[0]}); C5 wants policies "
                "that differ by their seeds alone"
            )
        for seed in run.seeds:
            if seed == subject.seed and run.path.resolve() == own:
                continue
            first = subject if seed == subject.seed else found.get(seed)
            if first is not None:
                raise InputError(
                    f"from-policies: {run.path} seed {seed} is the same policy as {first.run.path} seed {seed}, by equal "
                    "configuration and seed; C5 wants policies that were trained independently, each once"
                )
            found[seed] = Subject(run, seed)
    policies = {subject.seed: subject, **found}
    digests = {one.files()[policy_name(seed)] for seed, one in policies.items()}
    if len(digests) < len(policies):
        raise InputError(
            "from-policies: a policy stands there under two seeds; C5 wants policies that were trained independently"
        )
    return [found[seed] for seed in sorted(found)]


def run_directory(path: str | Path) -> Path:
    """The directory of a run; a checkpoint is none."""
    if "checkpoints" in Path(path).parts or Path(path).is_file():
        raise InputError(
            f"from-policies: {path} is a file of one run; checkpoints of one run are not independent policies, want "
            "directories of finished runs"
        )
    return Path(path)


def _check_terms(terms: Terms, claim: Claim) -> None:
    """Refuse settings that the claim has no use for, or cannot do without."""
    for name, level in {"alpha": terms.alpha, "delta": terms.delta}.items():
        if level is not None and not LEAST_LEVEL <= level <= LARGEST_LEVEL:
            raise InputError(f"{name}: {level} is not allowed; want a number from {LEAST_LEVEL:g} to {LARGEST_LEVEL}")
    if terms.epsilon is not None and not 0 < terms.epsilon < float("inf"):
        raise InputError(f"epsilon: {terms.epsilon} is not allowed; want a number above 0")
    if len(terms.nonce) > LONGEST_NONCE or CONTROL.search(terms.nonce):
        raise InputError(f"nonce: is not allowed; want at most {LONGEST_NONCE} printable characters on one line")
    unused = {
        "threshold": (terms.threshold, ("J", "C5")),
        "delta": (terms.delta, ("C2",)),
        "epsilon": (terms.epsilon, ("C3", "C4")),
        "range": (terms.range, ("J", "C3", "C4", "C5")),
        "two-valued": (terms.two_valued or None, ("J",)),
    }
    for name, (value, claims) in unused.items():
        if value is not None and claim not in claims:
            raise InputError(f"{name}: {value} does not go with claim {claim}; only {' and '.join(claims)} have one")
    if terms.sequential and claim != "J":
        raise InputError(f"sequential: does not go with claim {claim}; only J is tested rollout by rollout")
    if terms.sequential and terms.two_valued:
        raise InputError("two-valued: does not go with --sequential; give --rollouts")
    if terms.sequential and terms.threshold is None:
        raise InputError("threshold: is missing; a sequential test wants to know what is to be shown")
    if terms.sequential and terms.rollouts is not None:
        raise InputError("rollouts: does not go with --sequential, which ends when it can; give --budget")
    if terms.budget is not None and not terms.sequential:
        raise InputError("budget: goes with --sequential only; give --rollouts")
    if claim == "C3" and terms.epsilon is None:
        raise InputError("epsilon: is missing; C3 wants to know how much may be overstated on average")


def _check_policies_usable(subjects: Sequence[Subject], predicts: bool) -> None:
    """Load policies and evaluators, so that what cannot be used is refused before a test is registered."""
    for one in subjects:
        one.run.policy_state(one.seed)
        if one.has_evaluator and one.not_fitted and predicts:
            raise InputError(f"claim: {one.run.path}: {one.not_fitted}")


def _world_file(name: str) -> str | None:
    """SHA-256 of the file that holds a world of a user's own."""
    file = name.removeprefix("tabular/")
    return hashes.of_file(Path(file)) if file != name and file.endswith(".npz") else None


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
    if protocol.claim != "J" or protocol.sequential or protocol.two_valued:
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
    if count < (least := bounds.least_policies(alpha, value_error)):
        raise InputError(
            f"from-policies: there are {count} other policies; want at least {least} for alpha {alpha:g}, of which "
            f"{value_error:g} goes to the lower bounds that stand for their true J"
        )


def _training(run: Run) -> dict[str, Any]:
    """What a run's policies have in common."""
    return {name: value for name, value in run.config.to_dict().items() if name not in ("seed", "seeds")}
