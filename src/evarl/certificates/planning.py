"""From terms to a protocol. What cannot be tested is refused here, before any rollout."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from evarl.certificates import hashes
from evarl.certificates.certified_policy import CertifiedPolicy
from evarl.certificates.claims import CLAIMS, claim_of
from evarl.certificates.conclusions import least_rollouts
from evarl.certificates.protocol import Protocol, Terms, policy_name
from evarl.errors import InputError
from evarl.learning.configuration import differences
from evarl.runs.outside import OutsideRun
from evarl.runs.run import Run
from evarl.sizes import check_time
from evarl.stats import inputs

BATCH, SEQUENTIAL_BATCH = 256, 64
"""Number of rollouts that are made in parallel."""


def make_protocol(
    policy: CertifiedPolicy,
    terms: Terms,
    calibration: Sequence[CertifiedPolicy] = (),
    candidates: tuple[str, ...] = (),
) -> Protocol:
    """The protocol of a test of these terms; the same function makes it for the issuer and for the verifier."""
    claim, world = claim_of(terms, calibration), policy.world
    if claim.about_evaluator and not policy.has_evaluator:
        raise InputError(
            f"claim: {claim.name} is about an evaluator, and {policy.run.path} has none; train with --beta"
        )
    if claim.about_evaluator and world.contexts and not claim.about_sites:
        raise InputError(
            f"claim: {claim.name} is about one world, and {policy.run.path} was trained in a family, where an assessment is that "
            "of one site; must be mean-return, which is over sites drawn anew"
        )
    for one in (policy, *calibration):
        # Policies and evaluators are loaded, so that invalid ones are refused before the test is registered.
        one.check()
        if one.has_evaluator and one.not_fitted and claim.about_evaluator:
            raise InputError(f"claim: {one.run.path}: {one.not_fitted}")
    rollouts = terms.number()
    batch = min(SEQUENTIAL_BATCH if terms.sequential else BATCH, rollouts)
    turns = float(world.horizon) * -(-rollouts // batch) * max(1, len(calibration), terms.sites)
    check_time("horizon × rollouts", f"{world.horizon} × {rollouts}", turns, "the test")
    settings: dict[str, Any] = {}
    if "range" in claim.settings:
        (low, high), source = return_range(policy, terms)
        settings = {"low": low, "high": high, "range_from": source}
    protocol = Protocol(
        claim=claim.name,
        world=world.name,
        horizon=world.horizon,
        discount=world.discount,
        seed=policy.seed,
        files=policy.files(),
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
        contexts=tuple(map(str, world.contexts)),
        outside=policy.run.outside.description if isinstance(policy.run, OutsideRun) else "",
        **settings | claim.plan(policy, terms, calibration),
    )
    _check_threshold(protocol)
    return protocol


def return_range(policy: CertifiedPolicy, terms: Terms) -> tuple[tuple[float, float], Literal["world", "user"]]:
    """The range of possible returns and who states it; it is never estimated from returns."""
    known = policy.world.return_range()
    if terms.range is not None:
        low, high = terms.range
        inputs.check_range(low, high)
        if known is not None and (low > known[0] or high < known[1]):
            raise InputError(
                f"range: [{low:g}, {high:g}] does not contain all possible returns of {policy.world.name}, which are from "
                f"{known[0]:g} to {known[1]:g}; leave --range out"
            )
        return (float(low), float(high)), "user"
    if known is None:
        raise InputError(
            f"range: {policy.world.name} does not know its possible returns; give --range LO HI from the rules of the task, "
            "never from observed returns, for which no bound would be valid"
        )
    return known, "world"


def calibration_of(policy: CertifiedPolicy, runs: Sequence[Run]) -> list[CertifiedPolicy]:
    """The final policies of some runs, by seed, without the one to be certified; all must have been trained as it was.

    Training is a function of configuration and seed. Policies with equal configuration and seed are therefore the same policy,
    even if their bits differ because of other vectorisation or another machine, and are no further evidence.
    """
    found: dict[int, CertifiedPolicy] = {}
    own = policy.run.path.resolve()
    for run in runs:
        if odd := differences(_training(policy.run), _training(run)):
            raise InputError(
                f"from-policies: {run.path} was trained otherwise than {policy.run.path} ({odd[0]}); new-policy "
                "requires policies that differ by their seeds alone"
            )
        for seed in run.seeds:
            if seed == policy.seed and run.path.resolve() == own:
                continue
            first = policy if seed == policy.seed else found.get(seed)
            if first is not None:
                raise InputError(
                    f"from-policies: {run.path} seed {seed} is the same policy as {first.run.path} seed {seed}, by equal "
                    f"configuration and seed; new-policy requires policies that were trained independently, each once"
                )
            found[seed] = CertifiedPolicy(run, seed)
    policies = {policy.seed: policy, **found}
    digests = {one.files()[policy_name(seed)] for seed, one in policies.items()}
    if len(digests) < len(policies):
        raise InputError(
            "from-policies: two seeds have the same policy; new-policy requires policies that were trained independently"
        )
    return [found[seed] for seed in sorted(found)]


def calibration_runs(paths: Sequence[str | Path]) -> list[Run]:
    """The runs of calibration policies; checkpoints are refused."""
    for path in paths:
        if "checkpoints" in Path(path).parts or Path(path).is_file():
            raise InputError(
                f"from-policies: {path} is a file of one run, and checkpoints of one run are not independent policies; must be "
                "directories of finished runs"
            )
    return [Run.load(path) for path in paths]


def _check_threshold(protocol: Protocol) -> None:
    """Refuse a threshold that no rollouts could show to be reached."""
    if protocol.threshold is None or "range" not in CLAIMS[protocol.claim].settings:
        return
    low, high = protocol.range
    if not low < protocol.threshold < high:
        raise InputError(
            f"threshold: {protocol.threshold:g} is not allowed; must be a number between {low:g} and {high:g}, the least and "
            "the greatest possible return"
        )
    if not CLAIMS[protocol.claim].own_rollouts or protocol.sequential or protocol.two_valued:
        return
    least = least_rollouts(protocol)
    if least is None or least > protocol.rollouts:
        needed = "no number of rollouts could" if least is None else f"must be at least {least}"
        raise InputError(
            f"rollouts: {protocol.rollouts} cannot show J ≥ {protocol.threshold:g} at level {protocol.alpha:g} even if each had "
            f"the greatest possible return; {needed}"
        )


def _world_file(name: str) -> str | None:
    """SHA-256 of the file that holds a world of the user's own."""
    file = name.removeprefix("tabular/")
    return hashes.of_file(Path(file)) if file != name and file.endswith(".npz") else None


def _training(run: Run) -> dict[str, Any]:
    """The settings that policies trained in the same way have in common."""
    return {name: value for name, value in run.config.to_dict().items() if name not in ("seed", "seeds")}
