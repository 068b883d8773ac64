"""Rollouts made again: the same ones, where bits can be compared, or fresh ones, which the issuer could not choose."""

import os
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import ks_2samp

from evarl.certificates import hashes
from evarl.certificates.certificate import Certificate
from evarl.certificates.checks import Changes
from evarl.certificates.conclusions import Conclusion, conclude, weaker
from evarl.certificates.evidence import PolicyTest, Say, gather
from evarl.certificates.platform import differences, platform_here

DIFFERENT = 1e-4
"""Level of the test that stored and fresh returns have one distribution."""
SAMPLED = ("returns", "others", "bounds")
"""Columns that depend on nothing but the policies and chance; predictions also depend on one random assessment."""


@dataclass(frozen=True)
class Replay:
    """What fresh rollouts show."""

    changed: Changes
    conclusion: Conclusion
    """What stands: the certificate's conclusion, or that of fresh rollouts where it states less."""


def fresh_key() -> np.ndarray:
    """A key that nobody could foresee, in JAX's old style."""
    return np.frombuffer(os.urandom(8), np.uint32).copy()


def obstacles(certificate: Certificate) -> list[str]:
    """Why bits cannot be compared here; empty on the platform, and with the code, that issued the certificate."""
    here, found = hashes.of_code(), differences(certificate.platform, platform_here())
    if here.source != certificate.code.source:
        then, now = certificate.code.commit, here.commit
        found.append(f"evarl's source has changed (commit {then!s:.12}, now {now!s:.12})")
    for name, version in here.versions.items():
        if (was := certificate.code.versions.get(name)) != version:
            found.append(f"{name} was {was!s:.40}, is {version}")
    return found


def same_rollouts(certificate: Certificate, test: PolicyTest, say: Say) -> Changes:
    """Make the certificate's own rollouts again; every number must be the same."""
    changed, again = {}, gather(test, say)
    for name in sorted(certificate.evidence.keys() | again.keys()):
        then, now = np.asarray(certificate.evidence.get(name, ())), np.asarray(again.get(name, ()))
        if then.shape != now.shape:
            changed[name] = f"there were {then.size}, and now there are {now.size}"
        elif not np.array_equal(then, now):
            worst = float(np.abs(then - now).max())
            changed[name] = f"come out otherwise now: they differ by up to {worst:.3g}"
    return changed


def fresh_rollouts(certificate: Certificate, test: PolicyTest, key: np.ndarray, say: Say) -> Replay:
    """Make as many rollouts from another key: do they look like the stored ones, and do they show the same?

    The conclusion that stands is the weaker of the two. It is no stronger than that of the fresh rollouts alone, and so has the
    stated confidence whatever the issuer did.
    """
    evidence = gather(replace(test, key=key), say)
    changed = {} if test.protocol.sequential else _unlike(certificate.evidence, evidence)
    now, then = conclude(test.protocol, evidence), certificate.conclusion
    if now.outcome != then.outcome:
        changed["outcome"] = f"is {then.outcome!r} in the certificate; fresh rollouts give {now.outcome!r}"
    return Replay(changed, weaker(then, now, test.protocol.claim))


def _unlike(then: dict[str, tuple[float, ...]], now: dict[str, list[float]]) -> Changes:
    """Columns whose distribution is another one, by a two-sample Kolmogorov–Smirnov test."""
    found = {}
    for name in SAMPLED:
        if name in then and name in now and (p := ks_2samp(then[name], now[name]).pvalue) < DIFFERENT:
            found[name] = f"are not distributed like fresh ones (p = {p:.1g})"
    return found
