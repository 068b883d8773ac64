"""Repeated rollouts: the same ones, where bits can be compared, or fresh ones, which the issuer could not choose."""

import os
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import ks_2samp

from evarl.certificates import hashes
from evarl.certificates.certificate import Certificate
from evarl.certificates.checks import Changes
from evarl.certificates.claims import CLAIMS, conclude, gather
from evarl.certificates.conclusions import Conclusion, weaker
from evarl.certificates.evidence import PolicyTest, Say
from evarl.certificates.platform import differences, platform_here

DIFFERENT = 1e-4
"""Level of the test that stored and fresh returns have the same distribution."""
SAMPLED = ("returns", "others", "bounds")
"""Columns that are a random sample; predictions also depend on one random assessment."""


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
    here, found = hashes.of_code(), differences(certificate.platform, platform_here())
    if here.source != certificate.code.source:
        then, now = certificate.code.commit, here.commit
        found.append(f"evarl's source has changed (commit {then!s:.12}, now {now!s:.12})")
    for name, version in here.versions.items():
        if (was := certificate.code.versions.get(name)) != version:
            found.append(f"{name} was {was!s:.40}, is {version}")
    return found


def same_rollouts(certificate: Certificate, test: PolicyTest, say: Say) -> Changes:
    """Repeat the certificate's own rollouts; every number must be the same."""
    changed, again = {}, gather(test, say)
    for name in sorted(certificate.evidence.keys() | again.keys()):
        then, now = np.asarray(certificate.evidence.get(name, ())), np.asarray(again.get(name, ()))
        if then.shape != now.shape:
            changed[name] = f"there are {then.size} in the certificate, and {now.size} when repeated"
        elif not np.array_equal(then, now):
            worst = float(np.abs(then - now).max())
            changed[name] = f"are different when repeated, by up to {worst:.3g}"
    return changed


def fresh_rollouts(certificate: Certificate, test: PolicyTest, key: np.ndarray, say: Say) -> Replay:
    """Make as many rollouts from another key and compare their distribution and their conclusion with the certificate's.

    The conclusion that is confirmed is the weaker of the two. It is no stronger than that of the fresh rollouts alone, and so has
    the stated confidence whatever the issuer did.
    """
    evidence = gather(replace(test, key=key), say)
    changed = {} if test.protocol.sequential else _unlike(certificate.evidence, evidence)
    now, then = conclude(test.protocol, evidence), certificate.conclusion
    if now.outcome != then.outcome:
        changed["outcome"] = f"is {then.outcome!r} in the certificate; fresh rollouts give {now.outcome!r}"
    return Replay(changed, weaker(then, now, CLAIMS[test.protocol.claim].larger_is_stronger))


def _unlike(then: dict[str, tuple[float, ...]], now: dict[str, list[float]]) -> Changes:
    """Columns with another distribution, by a two-sample Kolmogorov–Smirnov test."""
    found = {}
    for name in SAMPLED:
        if name in then and name in now and (p := ks_2samp(then[name], now[name]).pvalue) < DIFFERENT:
            found[name] = f"are not distributed like fresh ones (p = {p:.1g})"
    return found
