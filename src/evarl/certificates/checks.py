"""Checks of a certificate: everything that can be derived is derived again and compared; then rollouts are repeated.

Repeated rollouts are the same ones, where bits can be compared, or fresh ones, which the issuer could not choose.
"""

import os
import platform
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
from scipy.stats import ks_2samp

from evarl.certificates import hashes, ledger
from evarl.certificates.certificate import Certificate
from evarl.certificates.certified_policy import CertifiedPolicy, file_names
from evarl.certificates.claims import CLAIMS, conclude, gather
from evarl.certificates.conclusions import Conclusion, weaker
from evarl.certificates.evidence import Notify, PolicyTest
from evarl.certificates.page import page
from evarl.certificates.planning import make_protocol
from evarl.certificates.protocol import Protocol, terms_of
from evarl.errors import EvarlError, FileError
from evarl.runs.provenance import machine
from evarl.storage.files import read_regular

Changes = dict[str, str]
"""What is not as it must be: what, and how it differs."""

CHANGED = "has been changed since the certificate was issued"
FIGURE = re.compile(rb'src="data:image/[a-z+]+;base64,[A-Za-z0-9+/=]*"')
DIFFERENT = 1e-4
"""Level of the test that stored and fresh returns have the same distribution."""
SAMPLED = ("returns", "others", "bounds")
"""Columns that are a random sample; predictions also depend on one random assessment."""
SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_default_matmul_precision",
    "jax_platforms",
)
"""Settings of JAX that change random numbers or rounding."""
VECTOR = re.compile(r"^(avx|amx|fma|f16c|sse4|asimd|sve|neon)")


def file_changes(protocol: Protocol, run: Path) -> Changes:
    """Files of the run that differ from those of the protocol; their names are derived from the seed, not the certificate."""
    found, known = {}, file_names(protocol.seed)
    for name, digest in protocol.files.items():
        if name not in known:
            found[f"protocol, files, {name}"] = "is not a file that a certificate refers to"
            continue
        try:
            if hashes.of_file(run / name) != digest:
                found[name] = CHANGED
        except FileError as error:
            found[name] = str(error).removeprefix(f"{run / name}: ")
    return found


def check(
    certificate: Certificate, path: Path, policy: CertifiedPolicy, calibration: Sequence[CertifiedPolicy]
) -> tuple[PolicyTest | None, Changes]:
    """The test that the terms of a certificate lead to in this run, and what in the certificate does not follow from it.

    The test is made by the function that makes it for the issuer, so that nothing that the run determines is taken from the
    certificate. Then conclusion, ledger and page are compared with what follows from protocol and evidence.
    """
    protocol, run = certificate.protocol, policy.run.path
    try:
        derived = make_protocol(policy, terms_of(protocol), calibration, protocol.candidates)
    except EvarlError as error:
        return None, {"protocol": f"cannot be that of this run ({error})"}
    found = _protocol_changes(protocol, derived)
    found = found or _conclusion_changes(certificate) | _ledger_changes(certificate, run)
    found = found or _page_changes(certificate, path)  # which can be drawn only if the rest is valid
    return PolicyTest(derived, policy, calibration), found


def _protocol_changes(stated: Protocol, derived: Protocol) -> Changes:
    then, now = stated.to_dict(), derived.to_dict()
    found = {
        name: CHANGED if name in stated.files else "is not part of the certificate"
        for name in sorted(stated.files.keys() | derived.files.keys())
        if stated.files.get(name) != derived.files.get(name)
    }
    for name in then.keys() - {"files"}:
        if then[name] != now[name]:
            found[f"protocol, {name}"] = f"is {then[name]!r:.80} in the certificate; the run gives {now[name]!r:.80}"
    if stated.candidates and stated.policy not in stated.candidates:
        found["protocol, candidates"] = "do not include the policy that is certified"
    if not found and stated.hash() != derived.hash():
        found["protocol"] = "is not written as this version writes it"
    return found


def _conclusion_changes(certificate: Certificate) -> Changes:
    evidence = {name: list(column) for name, column in certificate.evidence.items()}
    try:
        with np.errstate(all="ignore"):  # invented numbers may overflow
            found = conclude(certificate.protocol, evidence)
        if found != certificate.conclusion:
            return {"conclusion": "does not follow from the evidence in the certificate"}
    except (EvarlError, KeyError, ValueError, ArithmeticError, AssertionError) as error:
        return {"conclusion": f"cannot be drawn from the evidence in the certificate ({error!r:.200})"}
    return {}


def _page_changes(certificate: Certificate, path: Path) -> Changes:
    """The page is made again; its figure is compared only if the same code drew it, since libraries draw differently."""
    html = path.with_suffix(".html")
    if not os.path.lexists(html):  # the certificate was sent without its page
        return {}
    try:
        kept = read_regular(html, hashes.LONGEST)
    except EvarlError as error:
        return {html.name: str(error).removeprefix(f"{html}: ")}
    again = page(certificate, path.name).encode()
    same_code = hashes.of_code() == certificate.code
    if hashes.of_bytes(kept) == certificate.page_sha256 and (
        kept == again if same_code else FIGURE.sub(b"", kept) == FIGURE.sub(b"", again)
    ):
        return {}
    return {html.name: f"{CHANGED}, or does not agree with the certificate"}


def _ledger_changes(certificate: Certificate, run: Path) -> Changes:
    """Differences in the registration, the certificate's own entry and the earlier tests that count."""
    name = ledger.LEDGER
    try:
        entries = ledger.read(run)
    except EvarlError as error:
        return {name: str(error)}
    own = ledger.find(entries, certificate.protocol)
    if own is None:
        return {name: "does not contain the protocol, which must be registered before the first rollout"}
    if ledger.place(own) != certificate.ledger:
        return {
            name: "contains the protocol in another place than the certificate states; entries were deleted or replaced"
        }
    if not any(entry.kind == "certificate" and entry.digest == certificate.digest() for entry in entries):
        return {name: "does not contain this certificate"}
    if certificate.protocol.candidates and not ledger.compared(entries[: own.number], certificate.protocol):
        return {name: "does not contain the comparison, which must be registered before the first rollout"}
    if certificate.protocol.site and ledger.find(entries[: own.number], certificate.protocol.calibrating) is None:
        return {name: "does not contain the calibration, which must be registered before the test of a site"}
    if ledger.earlier_tests(entries, certificate.protocol) != certificate.earlier:
        return {"earlier": "are not the earlier tests of this claim in the ledger; the confidence is another"}
    return {}


@dataclass(frozen=True)
class Replay:
    """What fresh rollouts show."""

    changed: Changes
    conclusion: Conclusion
    """The conclusion that is confirmed: the certificate's, or that of fresh rollouts where it states less."""


def fresh_key() -> np.ndarray:
    """An unpredictable key, in JAX's old style."""
    return np.frombuffer(os.urandom(8), np.uint32).copy()


def obstacles(certificate: Certificate) -> list[str]:
    """Reasons why bits cannot be compared here; none on the platform and with the code that issued the certificate."""
    here, then, now = hashes.of_code(), certificate.platform, platform_here()
    found = [f"{name} was {then.get(name)!r:.80}, is {now[name]!r:.80}" for name in now if then.get(name) != now[name]]
    if here.source != certificate.code.source:
        commit = certificate.code.commit
        found.append(f"evarl's source has changed (commit {commit!s:.12}, now {here.commit!s:.12})")
    for name, version in here.versions.items():
        if (was := certificate.code.versions.get(name)) != version:
            found.append(f"{name} was {was!s:.40}, is {version}")
    return found


def same_rollouts(certificate: Certificate, test: PolicyTest, notify: Notify) -> Changes:
    """Repeat the certificate's own rollouts; every number must be the same."""
    changed, again = {}, gather(test, notify)
    for name in sorted(certificate.evidence.keys() | again.keys()):
        then, now = np.asarray(certificate.evidence.get(name, ())), np.asarray(again.get(name, ()))
        if then.shape != now.shape:
            changed[name] = f"there are {then.size} in the certificate, and {now.size} when repeated"
        elif not np.array_equal(then, now):
            worst = float(np.abs(then - now).max())
            changed[name] = f"are different when repeated, by up to {worst:.3g}"
    return changed


def fresh_rollouts(certificate: Certificate, test: PolicyTest, key: np.ndarray, notify: Notify) -> Replay:
    """Make as many rollouts from another key and compare their distribution and their conclusion with the certificate's.

    The conclusion that is confirmed is the weaker of the two. It is no stronger than that of the fresh rollouts alone, and so has
    the stated confidence whatever the issuer did.
    """
    evidence = gather(replace(test, key=key), notify)
    changed = {} if test.protocol.sequential else _unlike(certificate.evidence, evidence)
    now, then = conclude(test.protocol, evidence), certificate.conclusion
    if now.outcome != then.outcome:
        changed["outcome"] = f"is {then.outcome!r} in the certificate; fresh rollouts give {now.outcome!r}"
    return Replay(changed, weaker(then, now, CLAIMS[test.protocol.claim].larger_is_stronger))


def _unlike(then: dict[str, tuple[float, ...]], now: dict[str, list[float]]) -> Changes:
    """Columns with another distribution, by a two-sample Kolmogorov–Smirnov test."""
    found = {}
    for name in SAMPLED:
        if name in then and name in now and (p := _same_distribution(then[name], now[name])) < DIFFERENT:
            found[name] = f"are not distributed like fresh ones (p = {p:.1g})"
    return found


def platform_here() -> dict[str, str]:
    """The platform of this process; results are compared bit by bit only between equal platforms.

    >>> platform_here()["jax_enable_x64"]
    'False'
    """
    flags = {flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith("--xla_dump")}
    return {
        "architecture": platform.machine(),
        "instruction set": _instruction_set(),
        "cores": str(machine()["cores"]),
        "jaxlib": jax.lib.__version__,
        "XLA_FLAGS": " ".join(sorted(flags)),
        **{name: str(getattr(jax.config, name, None)) for name in SETTINGS},
    }


def _instruction_set() -> str:
    """Names of the vector instruction sets of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    listed = [line.split(":", 1)[1] for line in lines if line.lower().startswith(("flags", "features"))]
    return " ".join(sorted(word for word in "".join(listed[:1]).split() if VECTOR.match(word)))


def _same_distribution(then: Sequence[float], now: Sequence[float]) -> float:
    """The p-value of Kolmogorov's and Smirnov's test of two samples, asymptotic where the exact one cannot be computed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ks_2samp: Exact calculation unsuccessful", RuntimeWarning)
        return float(ks_2samp(then, now).pvalue)
